/* slow_open.c - loaded with LD_PRELOAD, it makes models take two seconds to open; and where
   BELL_FILE names a file, libmicrohttpd takes no connection of our own until that is there */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

int MHD_add_connection(void *daemon, int fd, const struct sockaddr *a, socklen_t n);
int MHD_add_connection(void *daemon, int fd, const struct sockaddr *a, socklen_t n) {
    int (*real)(void *, int, const struct sockaddr *, socklen_t);
    const char *file = getenv("BELL_FILE");
    *(void **)&real = dlsym(RTLD_NEXT, "MHD_add_connection");
    while (file && access(file, F_OK)) usleep(10000);
    return real(daemon, fd, a, n);
}
