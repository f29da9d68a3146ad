#include "fold.h"
#include "output.h"
#include <stdlib.h>
#include <string.h>

#define PREFIX "prism.hadamard."

int fold_is_key(const char *name) { return !strncmp(name, PREFIX, sizeof PREFIX - 1); }

static int find(const bitnet_gguf *g, const char *name, bitnet_gguf_key *k) {
    char full[64];
    snprintf(full, sizeof full, PREFIX "%s", name);
    return !bitnet_gguf_find_key(g, full, k);
}

static int is_true(const bitnet_gguf *g, const char *name) {
    bitnet_gguf_key k;
    return find(g, name, &k) && k.value.type == BITNET_GGUF_BOOL && k.value.data[0];
}

/* A number, which may be an element of an array; -1: it is none. */
static int64_t number(const bitnet_gguf_value *v) {
    char text[64], *end;
    long n;
    if (v->type == BITNET_GGUF_STRING || v->type == BITNET_GGUF_ARRAY ||
        bitnet_gguf_text(v, text, sizeof text) < 0) return -1;
    n = strtol(text, &end, 10);
    return *end || end == text ? -1 : n;
}

static int64_t key_number(const bitnet_gguf *g, const char *name) {
    bitnet_gguf_key k;
    return bitnet_gguf_find_key(g, name, &k) ? -1 : number(&k.value);
}

#define BAD(key) fail(1, "%s: key '" PREFIX "%s' is missing or not known here", path, key)

static void read_array(const bitnet_gguf *g, const char *path, const char *name, int strings,
                       bitnet_gguf_value *v) {
    bitnet_gguf_key k;
    memset(v, 0, sizeof *v);
    if (!find(g, name, &k)) return;
    if (k.value.type != BITNET_GGUF_ARRAY || (k.value.element == BITNET_GGUF_STRING) != strings)
        BAD(name);
    *v = k.value;
}

/* The signs of each width, one after the other. */
static void read_signs(fold *f, const bitnet_gguf *g, const char *path) {
    bitnet_gguf_value widths, values, one = {0}, sign = {0};
    int64_t i;
    int k;
    read_array(g, path, "sign_widths", 0, &widths);
    read_array(g, path, "sign_values", 0, &values);
    if (widths.count < 1 || widths.count > FOLD_WIDTHS) BAD("sign_widths");
    while (bitnet_gguf_next(&widths, &one)) {
        const int64_t width = number(&one);
        for (k = 0; k < f->n_widths && f->widths[k] != width; k++) {}
        if (k < f->n_widths || width < 1 || width > 1 << 24) BAD("sign_widths");
        f->widths[k] = width;
        f->signs[k] = (int8_t *)grow(0, (uint64_t)width);
        f->n_widths++;
        for (i = 0; i < width; i++) {
            const int more = bitnet_gguf_next(&values, &sign);
            char text[8];
            /* -1 is also what number returns for none */
            if (!more || bitnet_gguf_text(&sign, text, sizeof text) < 0 ||
                (strcmp(text, "1") && strcmp(text, "-1"))) BAD("sign_values");
            f->signs[k][i] = text[0] == '-' ? -1 : 1;
        }
    }
    if (bitnet_gguf_next(&values, &sign)) BAD("sign_values");
}

void fold_read(fold *f, const bitnet_gguf *g, const char *path) {
    static const char *const names[] = {"weight_names", "inverse_weight_names"};
    const int tied = is_true(g, "tied_output");
    bitnet_gguf_key k;
    bitnet_gguf_tensor t;
    int64_t version, block;
    uint64_t i;
    int any = 0;
    memset(f, 0, sizeof *f);
    for (i = 0; !bitnet_gguf_get_key(g, i, &k); i++) any |= fold_is_key(k.name);
    if (!any) return;
    version = key_number(g, PREFIX "version");
    block = key_number(g, PREFIX "block_size");
    if (version != (tied ? 2 : 1) || (tied && !bitnet_gguf_find_tensor(g, "output.weight", &t)))
        BAD("version");
    if (block < 1 || block > 1 << 16 || (block & (block - 1))) BAD("block_size");
    if (!key_is(g, PREFIX "transform", "normalized-sylvester-walsh-hadamard")) BAD("transform");
    if (!key_is(g, PREFIX "axis", "input-last-dimension")) BAD("axis");
    if (key_is(g, PREFIX "sign_mode", "explicit")) read_signs(f, g, path);
    else if (!key_is(g, PREFIX "sign_mode", "identity")) BAD("sign_mode");
    for (i = 0; i < 2; i++) read_array(g, path, names[i], 1, &f->names[i]);
    f->block = (int32_t)block;
    f->grouped = is_true(g, "gdn_v_grouped");
    f->key_heads = key_number(g, "qwen35.ssm.group_count");
    f->value_heads = key_number(g, "qwen35.ssm.time_step_rank");
}

void fold_free(fold *f) {
    int k;
    for (k = 0; k < f->n_widths; k++) free(f->signs[k]);
    memset(f, 0, sizeof *f);
}

int fold_has(const fold *f, const char *name) {
    const size_t n = strlen(name);
    int i;
    for (i = 0; i < 2 && f->block; i++) {
        bitnet_gguf_value one = {0};
        while (bitnet_gguf_next(&f->names[i], &one))
            if (one.size == n && !memcmp(one.data, name, n)) return 1;
    }
    return 0;
}

static const int8_t *signs_of(const fold *f, int64_t width) {
    int k;
    for (k = 0; k < f->n_widths; k++)
        if (f->widths[k] == width) return f->signs[k];
    return 0;
}

/* Are the columns of this matrix in the other order of value heads? */
static int is_grouped(const fold *f, const char *name) {
    const char *end = strstr(name, ".ssm_out.weight");
    return f->grouped && end && !end[sizeof ".ssm_out.weight" - 1];
}

void fold_check(const fold *f, const bitnet_gguf *g, const char *path) {
    bitnet_gguf_tensor t;
    int i;
    for (i = 0; i < 2 && f->block; i++) {
        bitnet_gguf_value one = {0};
        while (bitnet_gguf_next(&f->names[i], &one)) {
            char name[65];
            snprintf(name, sizeof name, "%.*s", one.size < 65 ? (int)one.size : 64,
                     (const char *)one.data);
            if (bitnet_gguf_find_tensor(g, name, &t))
                fail(1, "%s: tensor '%s', which is folded, is missing", path, name);
            if (t.dims[0] % (uint64_t)f->block || t.dims[0] > INT32_MAX ||
                (f->n_widths && !signs_of(f, (int64_t)t.dims[0])))
                fail(1, "%s: tensor '%s': rows of %.0f weights have no blocks of %d with signs",
                     path, name, (double)t.dims[0], (int)f->block);
            if (is_grouped(f, name) && (f->key_heads < 1 || f->value_heads % f->key_heads ||
                                        (int64_t)t.dims[0] % f->value_heads))
                fail(1, "%s: tensor '%s': its columns are no %d value heads", path, name,
                     (int)f->value_heads);
        }
    }
}

int fold_is_same(const fold *a, const fold *b, const char *name, int64_t width) {
    const int both = fold_has(a, name);
    const int8_t *x = signs_of(a, width), *y = signs_of(b, width);
    if (both != fold_has(b, name)) return 0;
    return !both || (a->block == b->block && is_grouped(a, name) == is_grouped(b, name) &&
                     (x && y ? !memcmp(x, y, (size_t)width) : x == y));
}

/* Sums and differences of double are exact here: a block has at most 2^16 numbers of 24 bits. The
   root of a power of two is one, or one times the root of two. */
static void turn(const fold *f, float *row, int32_t n) {
    double *x = (double *)grow(0, (uint64_t)f->block * sizeof *x), factor = 1;
    int32_t at, i, k, half, size;
    for (size = f->block; size >= 4; size /= 4) factor /= 2;
    if (size == 2) factor *= 0.70710678118654752440;
    for (at = 0; at < n; at += f->block) {
        for (i = 0; i < f->block; i++) x[i] = (double)row[at + i];
        for (half = 1; half < f->block; half *= 2)
            for (i = 0; i < f->block; i += 2 * half)
                for (k = i; k < i + half; k++) {
                    const double a = x[k], b = x[k + half];
                    x[k] = a + b;
                    x[k + half] = a - b;
                }
        for (i = 0; i < f->block; i++) row[at + i] = (float)(x[i] * factor);
    }
    free(x);
}

static void multiply_signs(const fold *f, float *row, int32_t n) {
    const int8_t *signs = signs_of(f, n);
    int32_t i;
    for (i = 0; i < n && signs; i++)
        if (signs[i] < 0) row[i] = -row[i];
}

/* Value heads: from those of a key head together to one of each in turn, or back. */
static void move_heads(const fold *f, float *row, int32_t n, int to_turns) {
    const int64_t keys = f->key_heads, heads = f->value_heads, each = heads / keys;
    const size_t size = (size_t)(n / heads) * sizeof *row;
    float *other = (float *)grow(0, (uint64_t)n * sizeof *row);
    int64_t h;
    for (h = 0; h < heads; h++) {      /* in turn, h; together, the other one */
        float *a = row + h * (n / heads), *b = row + (h % keys * each + h / keys) * (n / heads);
        if (to_turns) memcpy(other + (a - row), b, size);
        else memcpy(other + (b - row), a, size);
    }
    memcpy(row, other, (size_t)n * sizeof *row);
    free(other);
}

void fold_undo(const fold *f, const char *name, float *row, int32_t n) {
    turn(f, row, n);
    multiply_signs(f, row, n);
    if (is_grouped(f, name)) move_heads(f, row, n, 1);
}

void fold_do(const fold *f, const char *name, float *row, int32_t n) {
    if (is_grouped(f, name)) move_heads(f, row, n, 0);
    multiply_signs(f, row, n);
    turn(f, row, n);
}
