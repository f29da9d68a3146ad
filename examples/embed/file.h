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

/* Maps a regular file. Returns 0, or an errno: ENOENT if there is none. If another program makes
   the file shorter, reading it is SIGBUS. */
int file_map(mapped *m, const char *path);
void file_unmap(mapped *m);

/* The same for files that others may write to, of at most `most` bytes: reads it into memory.
   file_forget frees that. */
int file_read(mapped *m, const char *path, size_t most);
void file_forget(mapped *m);

/* Can a file be opened for reading? Returns 0, or an errno. */
int file_try(const char *path);

/* What a path stands for. */
typedef struct file_facts {
    int is_file, is_folder;            /* 0, 0: neither */
    uint64_t size;
    uint64_t device, number;           /* together no other file's */
} file_facts;

/* follow 1: through links. Returns 0, or an errno. */
int file_look(file_facts *f, const char *path, int follow);

/* The names in a folder but . and .., in the order of their bytes, so that it is the same
   everywhere. Returns 0, or an errno. file_forget_names follows. */
typedef struct file_names {
    char **p;                          /* [n] */
    size_t n, cap;
} file_names;
int file_list(file_names *l, const char *folder);
void file_forget_names(file_names *l);

/* Do both paths lead to one file that is there? a and b may be 0. */
int file_is_same(const char *a, const char *b);

/* A file that is written as PATH.PID-N.part until it is complete, or standard output. */
typedef struct written {
    FILE *f;
    char *path, *part;                 /* 0: standard output; path is a file, no link to one */
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

/* Is this the name, without its folder, of what a killed run left of this file? */
int file_is_leftover(const written *w, const char *name);

/* Can its beginning be written again? */
int file_can_seek(const written *w);

#endif
