#define _DEFAULT_SOURCE 1              /* lstat, realpath and others, also with -std=c99 */
#define _FILE_OFFSET_BITS 64           /* for permissions.h */
#include "files.h"
#include "options.h"
#include "screen.h"
#include "../permissions.h"
#include "../utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef _WIN32
  #include <io.h>
  #include <windows.h>
  #define getpid GetCurrentProcessId
#else
  #include <unistd.h>
#endif

#ifdef _WIN32
/* Creates a new file for writing, which is to replace the one at `old`, if that is there. -1, and
   errno is EEXIST: something has that name. */
static int create_file(const char *path, const char *old) {
    WCHAR wide[UTF8_PATH];
    (void)old;
    return utf8_wide(path, wide) ? _wopen(wide, _O_CREAT | _O_EXCL | _O_WRONLY | _O_BINARY,
                                          _S_IREAD | _S_IWRITE) : -1;
}

int is_not_a_file(const char *path) {
    WCHAR wide[UTF8_PATH];
    struct _stat64 st;
    return utf8_wide(path, wide) && !_wstat64(wide, &st) && (st.st_mode & S_IFMT) != S_IFREG;
}

/* Links are rare here: the path as it is. */
int follow_link(const char *path, char *out, size_t cap) {
    errno = ENAMETOOLONG;
    return snprintf(out, cap, "%s", path) < (int)cap;
}

void remove_file(const char *path) {
    WCHAR wide[UTF8_PATH];
    if (utf8_wide(path, wide)) _wremove(wide);
}

int replace_file(const char *from, const char *to) {
    WCHAR a[UTF8_PATH], b[UTF8_PATH];
    errno = EACCES;
    return utf8_wide(from, a) && utf8_wide(to, b) && MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING);
}

int64_t seek_file(FILE *f, int64_t at, int from) {
    return _fseeki64(f, at, from) ? -1 : _ftelli64(f);
}
#else
static int create_file(const char *path, const char *old) {
    struct stat st;
    const int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, stat(old, &st) ? 0666 : 0600);
    if (fd >= 0) keep_permissions(fd, old);
    return fd;
}

/* A pipe would block a reader, and renaming would put a file in the place of a device. */
int is_not_a_file(const char *path) {
    struct stat st;
    return !stat(path, &st) && !S_ISREG(st.st_mode);
}

/* The file that a path stands for: of a link what it leads to, because renaming would replace the
   link. Returns 0 and sets errno if the link leads nowhere. */
int follow_link(const char *path, char *out, size_t cap) {
    struct stat st;
    const int is_link = !lstat(path, &st) && S_ISLNK(st.st_mode);
    char *target = is_link ? realpath(path, 0) : 0;
    int n;
    if (is_link && !target) return 0;
    n = snprintf(out, cap, "%s", target ? target : path);
    free(target);
    errno = ENAMETOOLONG;
    return n < (int)cap;
}

void remove_file(const char *path) { remove(path); }
int replace_file(const char *from, const char *to) { return rename(from, to) == 0; }

int64_t seek_file(FILE *f, int64_t at, int from) {
    return fseek(f, (long)at, from) ? -1 : ftell(f);
}
#endif

FILE *create_unfinished(const char *path, char *name, size_t cap) {
    FILE *f;
    int i, n, reason, fd = -1;
    errno = EEXIST;
    for (i = 0; i < 100 && fd < 0 && errno == EEXIST; i++) {
        n = snprintf(name, cap, "%s.%d-%d.part", path, (int)getpid(), i);
        errno = ENAMETOOLONG;
        if (n < (int)cap) fd = create_file(name, path);
    }
    if (fd < 0) return 0;
    f = fdopen(fd, "wb");
    if (f) return f;
    reason = errno;
    close(fd);
    remove_file(name);
    errno = reason;
    return 0;
}

/* ---- texts ---- */

int append(struct text *t, const char *s, size_t n) {
    if (n > MAX_TEXT - t->n) return 0;
    if (t->n + n >= t->cap) {
        size_t cap = 2 * (t->n + n) + 256;
        char *grown = (char *)realloc(t->s, cap);
        if (!grown) return 0;
        t->s = grown;
        t->cap = cap;
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
    return 1;
}

void drop_mark(struct text *t) {
    const size_t size = utf8_mark(t->s, t->n);
    if (size) memmove(t->s, t->s + size, (t->n -= size) + 1);
}

/* Reads a prompt to the end of the file, without its last newline. */
static int read_stream(FILE *f, const char *name, struct text *t) {
    char block[4096];
    size_t n;
    errno = 0;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        if (!append(t, block, n))
            return fail(1, "'%s' is too long: prompts have at most 16 MiB", name);
    if (ferror(f)) return fail(1, "cannot read '%s': %s", name, strerror(errno));
    drop_mark(t);
    if (t->n > 0) t->s[t->n -= utf8_line_end(t->s, t->n)] = 0;
    if (t->n == 0 && f == stdin)
        return fail(2, chatting == YES ? "no message: give -p or --file; stdin is empty"
                                       : "no prompt: give -p, --file or -cnv; stdin is empty");
    if (t->n == 0) return fail(1, "'%s' is empty", name);
    if (strlen(t->s) < t->n) return fail(1, "'%s' is not a text: it contains a zero byte", name);
    return escapes == YES ? unescape(name, t->s) : GO_ON;
}

int read_file(const char *path, char **out) {
    const int is_stdin = !strcmp(path, "-");
    FILE *f = is_stdin ? stdin : utf8_fopen(path, "rb");
    struct text t = {0, 0, 0};
    int code;
    if (!f) return fail(1, "cannot read '%s': %s", path, strerror(errno));
    code = read_stream(f, is_stdin ? "stdin" : path, &t);
    if (!is_stdin) fclose(f);
    if (code == GO_ON) *out = t.s;
    else free(t.s);
    return code;
}
