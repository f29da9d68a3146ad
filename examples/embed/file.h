/* file.h - files that are mapped, and files that get their name when they are complete */
#ifndef EMBED_FILE_H
#define EMBED_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct mapped {
    const uint8_t *p;                  /* [size] */
    size_t size;
} mapped;

/* Maps a regular file. Returns 0, or an errno: ENOENT if there is none. */
int file_map(mapped *m, const char *path);
void file_unmap(mapped *m);

/* A file that is written as PATH.part, or standard output. */
typedef struct written {
    FILE *f;
    char *path, *part;                 /* 0: standard output */
    uint64_t start;                    /* where it begins */
} written;

/* path 0: standard output. These return exit codes and say what failed. */
int file_create(written *w, const char *path);
/* Fails if something could not be written so far. */
int file_check(written *w);
/* Writes n bytes over the beginning. */
int file_replace_start(written *w, const void *p, size_t n);
/* Flushes and closes it. */
int file_end(written *w);
/* After file_end: gives it its name. */
int file_name(written *w);
/* Removes it if it has no name yet, and frees. */
void file_free(written *w);

/* Can its beginning be written again? */
int file_can_seek(const written *w);

#endif
