/* slow_open.c - loaded with LD_PRELOAD, it makes models take two seconds to open */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static int slowly(const char *name, const char *path, int flags, int mode) {
    int (*real)(const char *, int, ...);
    const size_t n = strlen(path);
    *(void **)&real = dlsym(RTLD_NEXT, name);
    if (n > 5 && !strcmp(path + n - 5, ".gguf")) usleep(2000000);
    return real(path, flags, mode);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list args; \
        int mode; \
        va_start(args, flags); \
        mode = flags & O_CREAT ? va_arg(args, int) : 0; \
        va_end(args); \
        return slowly(#name, path, flags, mode); \
    }
int open(const char *path, int flags, ...);
int open64(const char *path, int flags, ...);
OPEN(open)
OPEN(open64)
