/* utf8.h - arguments and file names in UTF-8 on every system; Windows has them in UTF-16 */
#ifndef EXAMPLES_UTF8_H
#define EXAMPLES_UTF8_H

#include <stdio.h>

#ifdef _WIN32
  #include <errno.h>
  #include <stdlib.h>
  #include <windows.h>
  #include <shellapi.h>
  #ifdef _MSC_VER
    #pragma comment(lib, "shell32")
  #endif

/* The program's arguments, which live as long as the program. */
static inline char **utf8_arguments(int *argc, char **argv) {
    int i, n = 0;
    WCHAR **wide = CommandLineToArgvW(GetCommandLineW(), &n);
    char **out = wide ? (char **)calloc((size_t)n + 1, sizeof *out) : 0;
    for (i = 0; out && i < n; i++) {
        int size = WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, 0, 0, 0, 0);
        out[i] = (char *)malloc((size_t)size);
        if (!out[i]) return argv;
        WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, out[i], size, 0, 0);
    }
    LocalFree(wide);
    if (!out) return argv;
    *argc = n;
    return out;
}

static inline FILE *utf8_fopen(const char *path, const char *mode) {
    WCHAR wide[1024], wide_mode[8];
    MultiByteToWideChar(CP_UTF8, 0, mode, -1, wide_mode, 8);
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, 1024))
        return _wfopen(wide, wide_mode);
    errno = EILSEQ;
    return 0;
}
#else
static inline char **utf8_arguments(int *argc, char **argv) {
    (void)argc;
    return argv;
}

static inline FILE *utf8_fopen(const char *path, const char *mode) { return fopen(path, mode); }
#endif

#endif
