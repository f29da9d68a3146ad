#include "text.h"
#include "../embed/say.h"
#include "../utf8.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Reads all of f to *p, which the caller frees. Returns an exit code. */
static int read_all(FILE *f, const char *name, char **p, size_t *n) {
    size_t cap = 0, got;
    *p = 0;
    *n = 0;
    do {
        if (cap - *n < 65536) {
            char *more = cap < SIZE_MAX / 4 ? (char *)realloc(*p, 2 * cap + 131072) : 0;
            if (!more) return fail(FAILED, "%s: there is no memory for it", name);
            *p = more;
            cap = 2 * cap + 131072;
        }
        got = fread(*p + *n, 1, cap - *n, f);
        *n += got;
    } while (got > 0);
    return ferror(f) ? fail(FAILED, "%s: cannot read: %s", name, strerror(errno)) : DONE;
}

static int read_file(const text *t, const settings *s, char **p, size_t *n) {
    FILE *f = strcmp(s->file, "-") ? utf8_fopen(s->file, "rb") : stdin;
    size_t mark;
    int code;
    if (!f) return fail(FAILED, "%s: cannot open: %s", t->name, strerror(errno));
    code = read_all(f, t->name, p, n);
    if (f != stdin) fclose(f);
    if (code != DONE) return code;
    *n -= utf8_line_end(*p, *n);       /* as llama.cpp's -f does */
    mark = utf8_mark(*p, *n);
    if (mark) memmove(*p, *p + mark, *n -= mark);
    return DONE;
}

static int tokenize(text *t, const bitnet_model *model, const char *p, size_t size) {
    bitnet_model_info info;
    int flags;
    bitnet_model_get_info(model, &info);
    flags = info.add_bos ? BITNET_ADD_BOS : 0;
    t->n = bitnet_tokenize(model, p, size, flags, 0, 0);
    if (t->n < 0)
        return fail(FAILED, "%s: it cannot be tokenized: %s", t->name,
                    bitnet_result_text((bitnet_result)t->n));
    t->tokens = (bitnet_token *)malloc(((size_t)t->n + 1) * sizeof *t->tokens);
    if (!t->tokens || bitnet_tokenize(model, p, size, flags, t->tokens, (size_t)t->n) != t->n)
        return fail(FAILED, "%s: there is no memory for its tokens", t->name);
    return DONE;
}

int text_read(text *t, const bitnet_model *model, const settings *s) {
    char *p = 0;
    size_t n = 0;
    int code = DONE;
    memset(t, 0, sizeof *t);
    t->name = s->prompt ? "-p" : strcmp(s->file, "-") ? s->file : "standard input";
    note("tokenizing the input ..");
    if (s->prompt) n = strlen(s->prompt);
    else code = read_file(t, s, &p, &n);
    if (code == DONE) code = tokenize(t, model, s->prompt ? s->prompt : p, n);
    free(p);
    return code;
}

void text_free(text *t) {
    free(t->tokens);
    memset(t, 0, sizeof *t);
}
