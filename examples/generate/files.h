/* files.h - places in files, and texts that are read */
#ifndef GENERATE_FILES_H
#define GENERATE_FILES_H

#include "../written.h"
#include "generate.h"

int64_t seek_file(FILE *f, int64_t at, int from);      /* returns the place */

struct text {
    char *s;                           /* NUL-terminated */
    size_t n, cap;
};

/* Returns 0 if there is no memory, or if the text would exceed MAX_TEXT. */
int append(struct text *t, const char *s, size_t n);
/* Removes a byte order mark. */
void drop_mark(struct text *t);
/* The text of a file (-: stdin), in memory that lives as long as the program. */
int read_file(const char *path, char **out);

#endif
