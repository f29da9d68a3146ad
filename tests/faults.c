/* faults.c - loaded with LD_PRELOAD, it makes system calls fail. In the environment are

       FAULT_FDOPEN=1      fdopen has no memory
       FAULT_RENAME=N      the N-th rename, from 1 on, ends with EIO
       FAULT_FSYNC=1       nothing reaches the disk: EIO
       FAULT_PATH=WORD     files and folders whose paths hold the word cannot be opened
       FAULT_ERRNO=N       for this reason (EACCES)
       FAULT_AFTER=N       but so many times they can

   A shared library for glibc: cc -shared -fPIC tests/faults.c -o faults.so -ldl */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

FILE *fdopen(int fd, const char *mode) {
    FILE *(*real)(int, const char *);
    void *p = next("fdopen");
    memcpy(&real, &p, sizeof real);
    errno = ENOMEM;
    return getenv("FAULT_FDOPEN") ? 0 : real(fd, mode);
}

int fsync(int fd) {
    int (*real)(int);
    void *p = next("fsync");
    memcpy(&real, &p, sizeof real);
    errno = EIO;
    return getenv("FAULT_FSYNC") ? -1 : real(fd);
}

int rename(const char *from, const char *to) {
    static int n;
    const char *which = getenv("FAULT_RENAME");
    int (*real)(const char *, const char *);
    void *p = next("rename");
    memcpy(&real, &p, sizeof real);
    errno = EIO;
    return which && ++n == atoi(which) ? -1 : real(from, to);
}

/* Is this path to fail? Sets errno then. */
static int fails(const char *path) {
    static int n;
    const char *word = getenv("FAULT_PATH"), *reason = getenv("FAULT_ERRNO"),
               *after = getenv("FAULT_AFTER");
    if (!word || !strstr(path, word) || (after && n++ < atoi(after))) return 0;
    errno = reason ? atoi(reason) : EACCES;
    return 1;
}

static int open_as(const char *name, const char *path, int flags, int mode) {
    int (*real)(const char *, int, ...);
    void *p = next(name);
    memcpy(&real, &p, sizeof real);
    return fails(path) ? -1 : real(path, flags, mode);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list args; \
        int mode = 0; \
        va_start(args, flags); \
        if (flags & O_CREAT) mode = va_arg(args, int); \
        va_end(args); \
        return open_as(#name, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define SCANDIR(name, entry) \
    int name(const char *path, struct entry ***list, int (*is_wanted)(const struct entry *), \
             int (*compare)(const struct entry **, const struct entry **)) { \
        int (*real)(const char *, struct entry ***, int (*)(const struct entry *), \
                    int (*)(const struct entry **, const struct entry **)); \
        void *p = next(#name); \
        memcpy(&real, &p, sizeof real); \
        return fails(path) ? -1 : real(path, list, is_wanted, compare); \
    }
SCANDIR(scandir, dirent)
SCANDIR(scandir64, dirent64)
