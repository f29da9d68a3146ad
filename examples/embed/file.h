/* file.h - files that are mapped or read, and files that get their name when they are complete */
#ifndef EMBED_FILE_H
#define EMBED_FILE_H

#include "../written.h"

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

/* Writing, as written_create and the others do; these return exit codes and say what failed.
   written_free follows. */
int file_create(written *w, const char *path, int devices);
int file_check(const written *w);
/* Writes n bytes over the beginning. */
int file_replace_start(const written *w, const void *p, size_t n);
/* Can its beginning be written again? */
int file_can_seek(const written *w);
int file_end(written *w);
int file_name(written *w);

#endif
