#define _DEFAULT_SOURCE 1              /* isatty, also with -std=c99 */
#include "input.h"
#include "../utf8.h"
#include "say.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int input_open(input *in, const settings *s) {
    memset(in, 0, sizeof *in);
    in->s = s;
    in->separator = s->separator ? s->separator : "\n";
    in->line = 1;
    in->name = s->prompt ? "-p" : s->file && strcmp(s->file, "-") ? s->file : "standard input";
    if (s->prompt) {
        in->at = s->prompt;
        in->end = s->prompt + strlen(s->prompt);
    } else if (!s->file || !strcmp(s->file, "-")) in->f = stdin;
    else if (!(in->f = utf8_fopen(s->file, "rb")))
        return fail(FAILED, "cannot open %s: %s", s->file, strerror(errno));
    return DONE;
}

void input_close(input *in) {
    if (in->f && in->f != stdin) fclose(in->f);
    buffer_free(&in->piece);
}

static int next_byte(input *in) {
    if (in->f) return getc(in->f);
    return in->at < in->end ? (uint8_t)*in->at++ : EOF;
}

/* Does the piece end with the separator? */
static int is_complete(const input *in) {
    const size_t n = strlen(in->separator);
    return n > 0 && in->piece.n >= n && !memcmp(in->piece.p + in->piece.n - n, in->separator, n);
}

static void drop_mark(buffer *b) {
    const size_t size = utf8_mark(b->p, b->n);
    if (size) memmove(b->p, b->p + size, b->n -= size);
}

/* Reads to the next separator or the end, and leaves that out. What is over TEXT_BYTES is dropped.
   *lines is the number of newlines. Returns 0 if nothing is left. */
static int read_piece(input *in, uint64_t *lines) {
    const size_t n = strlen(in->separator);
    char end;
    int c = EOF;
    in->piece.n = 0;
    in->too_long = 0;
    *lines = 0;
    while (!in->piece.failed && (c = next_byte(in)) != EOF) {
        const char byte = (char)c;
        *lines += c == '\n';
        if (in->piece.n == TEXT_BYTES + n) {           /* keep as much as a separator may need */
            in->too_long = 1;
            memmove(in->piece.p, in->piece.p + in->piece.n - n, n);
            in->piece.n = n;
        }
        buffer_add(&in->piece, &byte, 1);
        if (is_complete(in)) {
            in->piece.n -= n;
            break;
        }
    }
    if (c == EOF && in->piece.n == 0) return 0;
    if (in->f && !in->has_begun) drop_mark(&in->piece);
    in->has_begun = 1;
    end = in->piece.n ? in->piece.p[in->piece.n - 1] : 0;
    if (!strcmp(in->separator, "\n") && end == '\r') in->piece.n--;
    return 1;
}

static int is_blank(const buffer *b) {
    size_t i;
    for (i = 0; i < b->n; i++)
        if (!strchr(" \t\r\n\v\f", b->p[i]) || !b->p[i]) return 0;
    return 1;
}

/* Sets the error if the text is not UTF-8. */
static void check_utf8(text *t) {
    size_t i, size;
    for (i = 0; i < t->n; i += size) {
        size = bitnet_utf8_decode(t->p + i, t->n - i, 0);
        if (size) continue;
        snprintf(t->error, sizeof t->error, "byte %llu is not valid UTF-8",
                 (unsigned long long)i + 1);
        return;
    }
}

/* A copy of n bytes with a NUL; 0 without memory. */
static char *copy_of(const char *p, size_t n) {
    char *copy = (char *)malloc(n + 1);
    if (!copy) return 0;
    if (n) memcpy(copy, p, n);
    copy[n] = 0;
    return copy;
}

/* Tokens from "input". Returns 0 without memory. */
static int take_tokens(const json *j, uint32_t list, text *t) {
    uint32_t node = list + 1, i;
    const uint32_t n = j->nodes[list].n;
    t->tokens = (bitnet_token *)malloc(((size_t)n + 1) * sizeof *t->tokens);
    if (!t->tokens) return 0;
    for (i = 0; i < n; i++, node = j->nodes[node].next) {
        uint64_t id = 0;
        if (!json_uint(j, node, &id) || id > INT32_MAX) {
            snprintf(t->error, sizeof t->error, "\"input\": a text or a list of tokens is needed");
            return 1;
        }
        t->tokens[t->n_tokens++] = (bitnet_token)id;
    }
    return 1;
}

/* Takes id and text out of an object. Returns 0 without memory. */
static int take_object(const json *j, text *t) {
    const uint32_t id = json_get(j, JSON_ROOT, "id"), own = json_get(j, JSON_ROOT, "text");
    const uint32_t node = own ? own : json_get(j, JSON_ROOT, "input");
    if (json_kind(j, JSON_ROOT) != JSON_OBJECT) {
        snprintf(t->error, sizeof t->error, "an object of JSON is needed");
        return 1;
    }
    if (id) {
        buffer value = {0};
        buffer_value(&value, j, id);
        if (value.failed) return 0;
        t->id = value.p;
    }
    if (node && json_kind(j, node) == JSON_STRING) {
        t->n = j->nodes[node].len;
        return (t->p = copy_of(j->text + j->nodes[node].at, t->n)) != 0;
    }
    if (node && !own && json_kind(j, node) == JSON_ARRAY) return take_tokens(j, node, t);
    snprintf(t->error, sizeof t->error, "\"text\" is needed, a string");
    return 1;
}

/* Makes a text of the line's JSON. Returns 0 without memory. */
static int take_json(const input *in, text *t) {
    bitnet_error err;
    bitnet_result r;
    json j;
    int there = 1;
    memset(&j, 0, sizeof j);
    snprintf(j.name, sizeof j.name, "the line");
    j.size = in->piece.n;
    if (!(j.text = copy_of(in->piece.p, in->piece.n))) return 0;
    r = json_parse(&j, &err);
    if (r == BITNET_ERR_MEMORY) there = 0;
    else if (r != BITNET_OK) snprintf(t->error, sizeof t->error, "%.180s", err.text);
    else there = take_object(&j, t);
    json_free(&j);
    return there;
}

/* Makes a text of the piece. Returns 0 without memory. */
static int take_piece(const input *in, text *t) {
    if (in->too_long)
        snprintf(t->error, sizeof t->error, "it has more than %d MB", TEXT_BYTES >> 20);
    else if (in->s->jsonl) {
        if (!take_json(in, t)) return 0;
    } else {
        t->n = in->piece.n;
        if (!(t->p = copy_of(in->piece.p, t->n))) return 0;
        check_utf8(t);
    }
    if (in->s->task && !t->p && !t->error[0])
        snprintf(t->error, sizeof t->error, "--query needs a text, not tokens");
    if (t->p && !t->n && !t->error[0]) snprintf(t->error, sizeof t->error, "the text is empty");
    return !in->s->task || t->error[0] || add_task(t, in->s->task);
}

int input_read(input *in, text *texts, int32_t *n) {
    const int32_t most = in->f == stdin && isatty(0) ? 1 : BATCH;
    size_t bytes = 0;
    uint64_t lines;
    for (*n = 0; *n < most && bytes < TEXT_BYTES && !in->ended;) {
        text *t = &texts[*n];
        if (!read_piece(in, &lines)) in->ended = 1;
        else if (is_blank(&in->piece) && !in->too_long) in->n_empty++;
        else {
            memset(t, 0, sizeof *t);
            t->line = in->line;
            ++*n;
            if (!take_piece(in, t)) return fail(FAILED, "there is no memory");
            bytes += in->piece.n;
        }
        in->line += lines;
        if (in->piece.failed) return fail(FAILED, "there is no memory");
    }
    if (stop_is_asked(0)) return STOPPED;
    if (in->f && ferror(in->f))
        return fail(FAILED, "cannot read %s: %s", in->name, strerror(errno));
    return DONE;
}
