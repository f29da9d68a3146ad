/* Linked into examples/convert with the linker's --wrap, so that one of its calls fails, the
   FAULT-th from 1 on. What fails has come to nothing, and errno says why; reads give less. With
   FAULT 0, or more than there are, nothing fails. FAULT_LOG names a file that gets the call's name
   if one has failed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
FILE *__real_fopen(const char *path, const char *mode);
FILE *__real_fopen64(const char *path, const char *mode);
int __real_fseek(FILE *f, long at, int from);
long __real_ftell(FILE *f);
size_t __real_fread(void *p, size_t size, size_t n, FILE *f);
int __real_lstat(const char *path, struct stat *st);
int __real_lstat64(const char *path, struct stat *st);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
int __wrap_fseek(FILE *f, long at, int from);
long __wrap_ftell(FILE *f);
size_t __wrap_fread(void *p, size_t size, size_t n, FILE *f);
int __wrap_lstat(const char *path, struct stat *st);
int __wrap_lstat64(const char *path, struct stat *st);

static int fails(const char *name, int reason) {
    static long left = -1;
    const char *text = getenv("FAULT"), *path = getenv("FAULT_LOG");
    FILE *log;
    if (left < 0) left = text ? atol(text) : 0;
    if (left == 0 || --left > 0) return 0;
    if (path && (log = fopen(path, "w")) != 0) {
        fprintf(log, "%s\n", name);
        fclose(log);
    }
    left = 0;
    errno = reason;
    return 1;
}

void *__wrap_malloc(size_t n) { return fails("malloc", ENOMEM) ? 0 : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) {
    return fails("calloc", ENOMEM) ? 0 : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n) {
    return fails("realloc", ENOMEM) ? 0 : __real_realloc(p, n);
}
FILE *__wrap_fopen(const char *path, const char *mode) {
    return fails("fopen", EMFILE) ? 0 : __real_fopen(path, mode);
}
int __wrap_fseek(FILE *f, long at, int from) {
    return fails("fseek", EIO) ? -1 : __real_fseek(f, at, from);
}
long __wrap_ftell(FILE *f) { return fails("ftell", EIO) ? -1 : __real_ftell(f); }
size_t __wrap_fread(void *p, size_t size, size_t n, FILE *f) {
    return fails("fread", EIO) ? 0 : __real_fread(p, size, n, f);
}
int __wrap_lstat(const char *path, struct stat *st) {
    return fails("lstat", EACCES) ? -1 : __real_lstat(path, st);
}
/* What glibc calls them where files may be larger than 2 GB; here a stat is only handed on. */
FILE *__wrap_fopen64(const char *path, const char *mode) {
    return fails("fopen", EMFILE) ? 0 : __real_fopen64(path, mode);
}
int __wrap_lstat64(const char *path, struct stat *st) {
    return fails("lstat", EACCES) ? -1 : __real_lstat64(path, st);
}
