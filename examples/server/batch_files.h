/* batch_files.h - files by descriptors: those of POSIX, or of Windows

   Paths are UTF-8. What fails sets errno. */
#ifndef SERVER_BATCH_FILES_H
#define SERVER_BATCH_FILES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* To read and to append; it is made if it is not there. Returns its descriptor, or -1. */
int file_open(const char *path);
int file_remove(const char *path);

/* Would reading return at once? */
int file_is_ready(int fd);
/* Read at most n bytes, write some of n. Return how many, 0 at the end, -1. */
int64_t file_read(int fd, char *p, size_t n);
int64_t file_write(int fd, const char *p, size_t n);
/* From its start on. */
int file_seek(FILE *f, uint64_t at);
int file_rewind(int fd);
int64_t file_place(int fd);

/* -1: it is no regular file. */
int64_t file_size(int fd);
/* Something that is there and is no regular file: reading a pipe would not end. */
int file_is_other(const char *path);
/* Cuts what is behind `size` bytes off. Nonzero: it failed. */
int file_cut(int fd, int64_t size);
/* Waits until the disk has it. Nonzero: it failed. */
int file_sync(int fd);

/* Nobody else gets the file until it is closed. Returns 0 if another program has it. */
int file_lock(int fd);
/* Are these the same regular file? */
int files_are_same(int fd, int other);
/* Is it still the one of this name? */
int file_is_named(int fd, const char *path);
/* What the path stands for behind links, from malloc. */
char *file_real_path(const char *path);
/* Gives the copy the permissions of fd. Nonzero: it failed. */
int file_permit(int fd, FILE *copy);
/* The copy, a path, becomes the locked file `path`, and *fd that file. Nonzero: it failed, and *fd
   is what it was, or -1. */
int file_take_place(const char *copy, const char *path, int *fd);

int file_is_terminal(int fd);
/* Calls fn when the user or the system wants an end. A pipe that nobody reads, and a file that gets
   too large, are errors of file_write. */
void file_on_signal(void (*fn)(int));

#endif
