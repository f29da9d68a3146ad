/* index.h - the commands index and search */
#ifndef EMBED_INDEX_H
#define EMBED_INDEX_H

#include "options.h"

/* NAME.npy has the vectors of passages, NAME.i8.npy their int8 copies (bounds.h). The first line of
   NAME.jsonl says which model made them, how many rows there are, and hashes of the rows and of the
   lines behind it; line i + 2 says where row i was found:

       {"index":2,"model":"NAME","dim":640,"probe":"16 hexadecimal digits","rows":12,
        "vectors":"16 digits","passages":"16 digits"}      (in one line)
       {"file":"notes/a.txt","offset":0,"length":310,"text":"its first words"}

   The other two files end with the hash of the rows (npy.h). A search compares all three, so that
   files of two runs cannot name wrong passages.
   These return exit codes. */
int run_index(const settings *s);
int run_search(const settings *s);

enum { INDEX_VERSION = 2 };            /* 1 had no hashes */

/* NAME.npy and another ending instead of .npy; from malloc, or 0 without memory. */
char *index_path(const char *npy, const char *ending);

#endif
