/* utf8.h - arguments, file names, text files and the console in UTF-8

   Windows has arguments, names and what is typed in UTF-16. Some of its programs put a byte order
   mark in front of a text, and end lines with \r\n. The rule for all text files here, standard
   input too: the mark is no part of the text, and \r\n ends a line as \n does. A tool that drops
   the last line end of a text drops either; line ends inside a text stay as they are. */
#ifndef EXAMPLES_UTF8_H
#define EXAMPLES_UTF8_H

#include <stdio.h>
#include <string.h>

#ifdef _WIN32
  #include <errno.h>
  #include <stdlib.h>
  #include <windows.h>
  #include <shellapi.h>
  #ifdef _MSC_VER
    #pragma comment(lib, "shell32")
  #endif

static UINT utf8_page_before;           /* code page of the console's output */
static inline void utf8_restore_page(void) { SetConsoleOutputCP(utf8_page_before); }

/* The program's arguments, which live as long as the program. What it writes to a console from now
   on is read as UTF-8. */
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
    utf8_page_before = GetConsoleOutputCP();
    if (utf8_page_before && SetConsoleOutputCP(CP_UTF8)) atexit(utf8_restore_page);
    if (!out) return argv;
    *argc = n;
    return out;
}

/* The next byte of standard input, or EOF. A console's code page cannot hold all that is typed: it
   is read as UTF-16. */
static inline int utf8_getc(void) {
    static char bytes[4 * 256];
    static int at, n;
    WCHAR wide[257];
    DWORD mode, more = 0, got = 0;
    HANDLE console = GetStdHandle(STD_INPUT_HANDLE);
    if (!GetConsoleMode(console, &mode)) return getc(stdin);
    if (at == n) {
        at = n = 0;
        if (!ReadConsoleW(console, wide, 256, &got, 0) || !got || wide[0] == 0x1A) return EOF;
        if (wide[got - 1] >= 0xD800 && wide[got - 1] < 0xDC00 &&
            ReadConsoleW(console, wide + got, 1, &more, 0)) got += more;  /* half of a character */
        n = WideCharToMultiByte(CP_UTF8, 0, wide, (int)got, bytes, sizeof bytes, 0, 0);
        if (n <= 0) return EOF;
    }
    return (unsigned char)bytes[at++];
}

/* A path as Windows takes it; 0 and errno if it is not UTF-8 or too long. */
enum { UTF8_PATH = 4096 };
static inline const WCHAR *utf8_wide(const char *path, WCHAR wide[UTF8_PATH]) {
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, UTF8_PATH)) return wide;
    errno = EILSEQ;
    return 0;
}

static inline FILE *utf8_fopen(const char *path, const char *mode) {
    WCHAR wide[UTF8_PATH], wide_mode[8];
    MultiByteToWideChar(CP_UTF8, 0, mode, -1, wide_mode, 8);
    return utf8_wide(path, wide) ? _wfopen(wide, wide_mode) : 0;
}
#else
static inline char **utf8_arguments(int *argc, char **argv) {
    (void)argc;
    return argv;
}

static inline FILE *utf8_fopen(const char *path, const char *mode) { return fopen(path, mode); }

static inline int utf8_getc(void) { return getc(stdin); }
#endif

/* The size of the byte order mark that p [n] begins with; 0: there is none. */
static inline size_t utf8_mark(const char *p, size_t n) {
    return n >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3) ? 3 : 0;
}

/* The size of the line end that p [n] ends with, \n or \r\n; 0: there is none. */
static inline size_t utf8_line_end(const char *p, size_t n) {
    if (n == 0 || p[n - 1] != '\n') return 0;
    return n > 1 && p[n - 2] == '\r' ? 2 : 1;
}

#endif
