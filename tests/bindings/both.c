/* Lets two plugins write a text, each with its own copy of the library; see test_bindings.sh.

       both MODEL                  linked with them
       both MODEL FIRST SECOND     compiled with LOAD: loads them, their names for all to see */
#ifdef LOAD
  #include <dlfcn.h>
#endif
#include <stdio.h>

typedef int (*write_fn)(const char *path, char *out, size_t cap);

#ifndef LOAD
int write_this(const char *path, char *out, size_t cap);
int write_that(const char *path, char *out, size_t cap);
#endif

static int show(const char *path, write_fn write) {
    char text[4096];
    const int code = write(path, text, sizeof text);
    printf("%s\n", text);
    return code;
}

int main(int argc, char **argv) {
#ifdef LOAD
    void *first = argc > 3 ? dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL) : NULL;
    void *second = argc > 3 ? dlopen(argv[3], RTLD_NOW | RTLD_GLOBAL) : NULL;
    union { void *p; write_fn f; } this, that;     /* ISO C converts no pointer to a function */
    if (!first || !second) return printf("%s\n", dlerror()) > 0;
    this.p = dlsym(RTLD_DEFAULT, "write_this");
    that.p = dlsym(RTLD_DEFAULT, "write_that");
    return !this.p || !that.p || show(argv[1], this.f) || show(argv[1], that.f);
#else
    return argc < 2 || show(argv[1], write_this) || show(argv[1], write_that);
#endif
}
