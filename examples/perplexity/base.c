#define _FILE_OFFSET_BITS 64
#include "base.h"
#include "../embed/say.h"
#include "../utf8.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 20, LARGEST_CODE = 65535 };
static const char magic[] = "_logits_";

/* ---- rows ---- */

size_t base_row_bytes(int32_t n_vocab) { return 8 + 4 * (((size_t)n_vocab + 1) / 2); }

float base_get_float(const uint8_t *p) {
    const uint32_t bits = base_get_u32(p);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void put_u32(uint8_t *p, uint32_t n) {
    int i;
    for (i = 0; i < 4; i++) p[i] = (uint8_t)(n >> 8 * i);
}

static void put_float(uint8_t *p, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_u32(p, bits);
}

/* The code nearest to a logit; inverse is 1 / scale. */
static unsigned code_of(float logit, float smallest, float inverse) {
    const float level = inverse * (logit - smallest);
    if (!(logit > smallest)) return 0;
    return level < (float)LARGEST_CODE ? (unsigned)lrintf(level) : LARGEST_CODE;
}

/* In floats, as llama.cpp does. */
void base_row_pack(const float *logits, int32_t n_vocab, double log_sum, uint8_t *row) {
    float largest = logits[0], smallest = logits[0], scale;
    int32_t i;
    for (i = 1; i < n_vocab; i++) {
        if (logits[i] > largest) largest = logits[i];
        if (logits[i] < smallest) smallest = logits[i];
    }
    if (smallest < largest - 16.0f) smallest = largest - 16.0f;
    scale = (largest - smallest) / (float)LARGEST_CODE;
    put_float(row, scale);
    put_float(row + 4, smallest - largest - (float)log_sum);
    memset(row + 8, 0, base_row_bytes(n_vocab) - 8);
    if (scale == 0.0f) return;
    for (i = 0; i < n_vocab; i++) {
        const unsigned code = code_of(logits[i], smallest, 1.0f / scale);
        row[8 + 2 * (size_t)i] = (uint8_t)(code & 255);
        row[9 + 2 * (size_t)i] = (uint8_t)(code >> 8);
    }
}

int base_row_is_sound(const uint8_t *row, int32_t n_vocab) {
    const double scale = (double)base_get_float(row), smallest = (double)base_get_float(row + 4);
    const double rounding = 1e-4;      /* of the floats that the row was made with */
    unsigned top = 0;
    int32_t i;
    if (!(scale >= 0.0 && smallest <= rounding && smallest >= -1000.0)) return 0;
    for (i = 0; i < n_vocab; i++) {
        const unsigned code = base_code(row, i);
        top = code > top ? code : top;
    }
    return smallest + scale * top <= rounding;
}

/* ---- files ---- */

int base_create(written *w, const char *path, const plan *p, int32_t n_vocab) {
    const size_t n_tokens = (size_t)p->n_chunks * (size_t)p->n_ctx;
    uint8_t bytes[12];
    size_t i;
    int code = DONE;
    if (!is_not_a_file(path) && file_begins_otherwise(path, magic))
        code = fail(FAILED, "cannot write to %s: it is there, and is no base", path);
    if (code == DONE) code = file_create(w, path, 0);
    if (code != DONE) return code;
    put_u32(bytes, (uint32_t)p->n_ctx);
    put_u32(bytes + 4, (uint32_t)n_vocab);
    put_u32(bytes + 8, (uint32_t)p->n_chunks);
    fwrite(magic, 1, 8, w->f);
    fwrite(bytes, 1, 12, w->f);
    for (i = 0; i < n_tokens; i++) {
        put_u32(bytes, (uint32_t)p->tokens[i]);
        fwrite(bytes, 1, 4, w->f);
    }
    return file_check(w);
}

/* Reads n bytes, which the size of the file has promised. */
static int read_bytes(base *b, void *to, size_t n) {
    if (fread(to, 1, n, b->f) == n) return DONE;
    return fail(FAILED, "%s: cannot read: %s", b->path,
                ferror(b->f) ? strerror(errno) : "it became shorter");
}

/* Has the file the size that its header promises? */
static int check_size(const base *b, uint64_t size) {
    const uint64_t rows = (uint64_t)(b->n_ctx - 1 - b->n_ctx / 2);
    const uint64_t chunk = 4 * (uint64_t)b->n_ctx + rows * base_row_bytes(b->n_vocab);
    const uint64_t n = (size - HEADER_BYTES) / chunk, rest = (size - HEADER_BYTES) % chunk;
    if (n < (uint64_t)b->n_chunks)
        return fail(FAILED, "%s: it is truncated: it should have %d chunks of %llu bytes, and has "
                    "%llu bytes behind its header", b->path, (int)b->n_chunks,
                    (unsigned long long)chunk, (unsigned long long)(size - HEADER_BYTES));
    if (n > (uint64_t)b->n_chunks || rest)
        return fail(FAILED, "%s: bytes follow its %d chunks", b->path, (int)b->n_chunks);
    return DONE;
}

static int read_header(base *b, uint64_t size, int32_t n_vocab) {
    uint8_t header[HEADER_BYTES];
    const size_t n = fread(header, 1, sizeof header, b->f);
    if (ferror(b->f)) return fail(FAILED, "%s: cannot read: %s", b->path, strerror(errno));
    if (n < 8 || memcmp(header, magic, 8))
        return fail(FAILED, "%s: this is no file of log-probabilities", b->path);
    if (n < sizeof header)
        return fail(FAILED, "%s: it is truncated: it ends in its header", b->path);
    b->n_ctx = (int32_t)base_get_u32(header + 8);
    b->n_vocab = (int32_t)base_get_u32(header + 12);
    b->n_chunks = (int32_t)base_get_u32(header + 16);
    if (b->n_ctx < 3 || b->n_ctx > 1 << 20 || b->n_vocab < 1 || b->n_chunks < 1)
        return fail(FAILED, "%s: its header is damaged: chunks of %d tokens, vocabulary of %d, %d "
                    "chunks", b->path, (int)b->n_ctx, (int)b->n_vocab, (int)b->n_chunks);
    if (b->n_vocab != n_vocab)
        return fail(FAILED, "%s: its vocabulary has %d tokens, that of the model %d", b->path,
                    (int)b->n_vocab, (int)n_vocab);
    return check_size(b, size);
}

static int read_tokens(base *b) {
    const uint64_t n = (uint64_t)b->n_chunks * (uint64_t)b->n_ctx;
    uint8_t bytes[4];
    uint64_t i;
    int code;
    b->tokens = n <= SIZE_MAX / 8 ? (bitnet_token *)malloc((size_t)n * sizeof *b->tokens) : 0;
    if (!b->tokens) return fail(FAILED, "there is no memory");
    for (i = 0; i < n; i++) {
        if ((code = read_bytes(b, bytes, 4)) != DONE) return code;
        b->tokens[i] = (bitnet_token)base_get_u32(bytes);
        if (b->tokens[i] < 0 || b->tokens[i] >= b->n_vocab)
            return fail(FAILED, "%s: its token %llu is %d, which is not in the vocabulary", b->path,
                        (unsigned long long)i, (int)b->tokens[i]);
    }
    return DONE;
}

int base_open(base *b, const char *path, int32_t n_vocab) {
    file_facts facts;
    int code, wrong;
    memset(b, 0, sizeof *b);
    b->path = path;
    if (!(b->f = utf8_fopen(path, "rb")))
        return fail(FAILED, "%s: cannot open: %s", path, strerror(errno));
    if ((wrong = file_look(&facts, path, 1)) != 0)
        return fail(FAILED, "%s: cannot open: %s", path, strerror(wrong));
    if (!facts.is_file) return fail(FAILED, "%s: it is not a file", path);
    code = read_header(b, facts.size, n_vocab);
    return code == DONE ? read_tokens(b) : code;
}

void base_close(base *b) {
    if (b->f) fclose(b->f);
    free(b->tokens);
    memset(b, 0, sizeof *b);
}

int base_read(base *b, uint8_t *rows, int32_t n) {
    const size_t bytes = base_row_bytes(b->n_vocab);
    const int code = read_bytes(b, rows, bytes * (size_t)n);
    int32_t i;
    for (i = 0; code == DONE && i < n; i++, b->n_read++)
        if (!base_row_is_sound(rows + bytes * (size_t)i, b->n_vocab))
            return fail(FAILED, "%s: row %llu is damaged: these are no log-probabilities", b->path,
                        (unsigned long long)b->n_read);
    return code;
}
