/* files.h - files, whose paths are UTF-8 on Windows, too; and texts that are read */
#ifndef GENERATE_FILES_H
#define GENERATE_FILES_H

#include "generate.h"
#include <stdio.h>

/* Something that exists and is not a regular file. */
int is_not_a_file(const char *path);
/* The file that a path stands for: of a link what it leads to. Returns 0 and sets errno if the link
   leads nowhere. */
int follow_link(const char *path, char *out, size_t cap);
/* Creates PATH.PID-N.part, a name that nothing has; it is in name then. */
FILE *create_unfinished(const char *path, char *name, size_t cap);
/* Gives a file another name, in place of a file that has it. Returns 0 if it can't. */
int replace_file(const char *from, const char *to);
void remove_file(const char *path);
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
