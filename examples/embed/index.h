/* index.h - the commands index and search */
#ifndef EMBED_INDEX_H
#define EMBED_INDEX_H

#include "options.h"

/* NAME.npy has the vectors of passages, NAME.i8.npy their int8 copies (bounds.h). The first line of
   NAME.jsonl says which model made them; line i + 2 says where row i was found:

       {"index":1,"model":"NAME","dim":640,"probe":"16 hexadecimal digits"}
       {"file":"notes/a.txt","offset":0,"length":310,"text":"its first words"}

   These return exit codes. */
int run_index(const settings *s);
int run_search(const settings *s);

/* NAME.npy and another ending instead of .npy; from malloc, or 0 without memory. */
char *index_path(const char *npy, const char *ending);

#endif
