/* files.h - files over 4 GB, with paths in UTF-8, and reading the files of a folder. A file that
   exists but cannot be read is an error even where it is optional. */
#ifndef CONVERT_FILES_H
#define CONVERT_FILES_H

#include "../json/json.h"
#include "../written.h"

#ifdef _WIN32
enum { FILE_PATH = 1024 };             /* bytes of a path with its NUL */
#else
enum { FILE_PATH = 4096 };
#endif

/* The output may replace no file that is read: from file_set_output on each one is compared with
   it. file_open does that itself; what opens a file in another way calls file_note_read. */
void file_set_output(const char *path);
void file_note_read(const char *path);
int file_output_is_read(void);

int is_folder(const char *path);

/* Is it what git leaves in the place of a large file? Then an error says FILE_POINTER. */
#define FILE_POINTER "this is a pointer of git-lfs, not the file itself; 'git lfs pull' gets that"
int file_is_pointer(const char *path);
/* Does something in the folder have that name? */
int file_exists(const char *dir, const char *name);
/* The last part of a path, also of "." and "..", as one line of clean text. Of a folder in Hugging
   Face's cache, models--ORG--NAME/snapshots/COMMIT, it is NAME. */
void file_base_name(const char *path, char *out, size_t cap);

/* Moves to an offset from the start. Nonzero: it failed. */
int file_seek(FILE *f, uint64_t at);

/* Opens a file of a folder at its start. *f is 0 after an error, and if an optional file does not
   exist, which is not an error. */
bitnet_result file_open(const char *dir, const char *name, int optional, FILE **f, uint64_t *size,
                        bitnet_error *err);
/* The next n bytes of f as new memory, with a NUL after them. *out is to be freed in any case. */
bitnet_result file_read(FILE *f, const char *name, size_t n, char **out, bitnet_error *err);
/* Parses the next n bytes of f as JSON; they are at offset base of the file. */
bitnet_result file_parse(FILE *f, const char *name, size_t base, uint64_t n, json *j,
                         bitnet_error *err);
/* Parses a whole file. If an optional file does not exist, j has no nodes. */
bitnet_result file_load_json(const char *dir, const char *name, int optional, json *j,
                             bitnet_error *err);

#endif
