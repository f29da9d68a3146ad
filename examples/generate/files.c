#define _DEFAULT_SOURCE 1              /* for written.h */
#define _FILE_OFFSET_BITS 64
#define WRITTEN_IMPLEMENTATION
#include "files.h"
#include "options.h"
#include "screen.h"
#include "../utf8.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
int64_t seek_file(FILE *f, int64_t at, int from) {
    return _fseeki64(f, at, from) ? -1 : _ftelli64(f);
}
#else
int64_t seek_file(FILE *f, int64_t at, int from) {
    return fseeko(f, (off_t)at, from) ? -1 : (int64_t)ftello(f);
}
#endif

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

/* Reads to the end of the file, without its last newline. */
static int read_stream(FILE *f, const char *name, int is_prompt, struct text *t) {
    char block[4096];
    size_t n;
    errno = 0;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        if (!append(t, block, n))
            return fail(1, "'%s' is too long: a text has at most 16 MiB", name);
    if (ferror(f)) return fail(1, "cannot read '%s': %s", name, strerror(errno));
    drop_mark(t);
    if (t->n > 0) t->s[t->n -= utf8_line_end(t->s, t->n)] = 0;
    if (t->n == 0 && f == stdin && is_prompt)
        return fail(2, chatting == YES ? "no message: give -p or --file; stdin is empty"
                                       : "no prompt: give -p, --file or -cnv; stdin is empty");
    if (t->n == 0) return fail(1, "'%s' is empty", name);
    if (strlen(t->s) < t->n) return fail(1, "'%s' is not a text: it contains a zero byte", name);
    return GO_ON;
}

int read_file(const char *path, char **out) {
    const int is_stdin = !strcmp(path, "-");
    const char *name = is_stdin ? "stdin" : path;
    FILE *f = is_stdin ? stdin : utf8_fopen(path, "rb");
    struct text t = {0, 0, 0};
    int code;
    if (!f) return fail(1, "cannot read '%s': %s", path, strerror(errno));
    code = read_stream(f, name, out == &prompt, &t);
    if (!is_stdin) fclose(f);
    /* Grammars and schemas have escapes of their own. */
    if (code == GO_ON && escapes == YES && (out == &prompt || out == &system_text))
        code = unescape(name, t.s);
    if (code == GO_ON) *out = t.s;
    else free(t.s);
    return code;
}
