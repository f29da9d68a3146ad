#include "check.h"
#include "output.h"
#include "pack.h"
#include <stdlib.h>
#include <string.h>

/* ---- tensors of zeros ---- */

/* I2_S, in every packing: a byte is four codes, of which 1 is zero. */
static int is_zero_i2s(const bitnet_gguf *g, const bitnet_gguf_tensor *t) {
    bitnet_error err = {0};
    uint64_t at, n, i;
    bytes_in = (uint8_t *)grow(bytes_in, PIECE);
    for (at = 0; at + 32 < t->size; at += n) {
        n = t->size - 32 - at < PIECE ? t->size - 32 - at : PIECE;
        read_bytes(g, t, at, bytes_in, n);
        for (i = 0; i < n; i++)
            if (bytes_in[i] != 0x55) {
                const float scale = has_own_scale(g, t->name) ? 1 : read_scale(g, t, &err);
                return !(scale > 0 || scale < 0) && !err.code;
            }
    }
    return 1;
}

/* TL1, TL2 and TL2_R16. */
static int is_zero_table(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const packing *p) {
    bitnet_ternary m;
    int32_t row, n, i;
    memset(&m, 0, sizeof m);
    m.type = t->type;
    m.n = (int32_t)t->dims[0];
    m.rows = (int32_t)t->dims[1];
    if (t->type != BITNET_TENSOR_TL2_R16) m.tile = tiles_find(&p->tiles, m.rows, m.n);
    if (t->n_dims != 2 || t->dims[1] > INT32_MAX || bitnet_ternary_check(&m, t->name, 0)) return 0;
    bytes_in = (uint8_t *)grow(bytes_in, t->size);
    weights[0] = (int8_t *)grow(weights[0], (uint64_t)m.n);
    read_bytes(g, t, 0, bytes_in, t->size);
    for (row = 0; row < m.rows; row += n) {
        n = 1;
        if (bitnet_ternary_unpack(&m, bytes_in, row, n, weights[0], 0)) return 0;
        for (i = 0; i < m.n; i++)
            if (weights[0][i]) return 0;
    }
    return 1;
}

static int is_zero_floats(const bitnet_gguf *g, const bitnet_gguf_tensor *t) {
    const uint64_t dims[1] = {t->dims[0]}, size = bitnet_tensor_size(t->type, 1, dims);
    float *x = (float *)grow(0, t->dims[0] * sizeof *x);
    uint64_t at, i = 0;
    bytes_in = (uint8_t *)grow(bytes_in, size);
    for (at = 0; at < t->size && i == (at ? t->dims[0] : 0); at += size) {
        read_bytes(g, t, at, bytes_in, size);
        if (bitnet_floats_unpack(t->type, bytes_in, (int32_t)t->dims[0], x, 0)) break;
        for (i = 0; i < t->dims[0] && x[i] - x[i] == 0 && !(x[i] > 0 || x[i] < 0);) i++;
    }
    free(x);
    return at >= t->size && i == t->dims[0];
}

static int is_zero(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const packing *p) {
    if (!t->size || t->dims[0] > INT32_MAX) return 0;
    if (is_type(t, BITNET_TENSOR_I2_S)) return is_zero_i2s(g, t);
    if (is_type(t, BITNET_TENSOR_TL1) || is_type(t, BITNET_TENSOR_TL2) ||
        is_type(t, BITNET_TENSOR_TL2_R16)) return is_zero_table(g, t, p);
    return is_float(t) && is_zero_floats(g, t);
}

/* The same tensor of layers one after the other: blk.0-29.ffn_up.weight. */
typedef struct layer_run { char name[64]; long from, to; } layer_run;

enum { MAX_RUNS = 64, SHOWN_RUNS = 24 };

/* The layer of a tensor and the rest of its name; -1: it is in no layer. */
static long layer_of(const char *name, const char **rest) {
    char *end;
    long layer;
    *rest = name;
    if (strncmp(name, "blk.", 4) || name[4] < '0' || name[4] > '9') return -1;
    layer = strtol(name + 4, &end, 10);
    if (*end != '.') return -1;
    *rest = end + 1;
    return layer;
}

/* Adds a tensor to the runs, of which two may become one. Returns how many there are. */
static int add_to_runs(layer_run *runs, int n, const char *name) {
    const char *rest;
    const long layer = layer_of(name, &rest);
    int i, found = -1;
    for (i = 0; i < n; i++) {
        layer_run *run = &runs[i];
        const int beside = layer == run->to + 1 || layer + 1 == run->from;
        if (layer < 0 || !beside || strcmp(run->name, rest)) continue;
        if (found >= 0) {              /* it was between the two */
            if (run->from < runs[found].from) runs[found].from = run->from;
            if (run->to > runs[found].to) runs[found].to = run->to;
            *run = runs[n - 1];
            return n - 1;
        }
        if (layer > run->to) run->to = layer;
        else run->from = layer;
        found = i;
    }
    if (found >= 0 || n == MAX_RUNS || strlen(rest) >= sizeof runs->name) return n;
    strcpy(runs[n].name, rest);
    runs[n].from = runs[n].to = layer;
    return n + 1;
}

void check_zeros(const bitnet_gguf *g, const packing *p, void (*tell)(const char *format, ...)) {
    layer_run runs[MAX_RUNS];
    bitnet_gguf_tensor t;
    char text[SHOWN_RUNS * 100];
    int n = 0, zeros = 0, i;
    size_t len = 0;
    uint64_t k;
    for (k = 0; !bitnet_gguf_get_tensor(g, k, &t); k++) {
        if (!is_zero(g, &t, p)) continue;
        zeros++;
        n = add_to_runs(runs, n, t.name);
    }
    for (i = 0; i < n && i < SHOWN_RUNS; i++) {
        const layer_run *run = &runs[i];
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", i ? ", " : "",
                                run->from < 0 ? "" : "blk.");
        if (run->from >= 0)
            len += (size_t)snprintf(text + len, sizeof text - len, run->from < run->to ? "%ld-%ld."
                                    : "%ld.", run->from, run->to);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s", run->name);
    }
    if (zeros)
        tell("all numbers are zero in %d tensor%s: %s%s", zeros, zeros == 1 ? "" : "s",
             n ? text : "their names are too long", n > SHOWN_RUNS ? " and others" : "");
}

/* ---- the whole file ---- */

bitnet_result check_load(const char *path, const packing *p, bitnet_error *err) {
    bitnet_model_params params;
    bitnet_model *m = 0;
    bitnet_result r;
    memset(&params, 0, sizeof params);
    params.i2s_packing = p->i2s_packing;
    params.tile = p->tiles.all;
    params.tiles = p->tiles.shapes;
    params.n_tiles = p->tiles.n_shapes;
    params.max_bytes = UINT64_MAX;
    r = bitnet_model_load_file(path, &params, &m, err);
    bitnet_model_free(m);
    return r;
}

void check_output(const char *path, const char *out, const packing *p, int loads,
                  const char *hint) {
    bitnet_error err = {0};
    bitnet_gguf *g = open_input(path);
    bitnet_result r;
    check_zeros(g, p, say);
    bitnet_gguf_close(g);
    if (!loads) return;
    r = check_load(path, p, &err);
    if (r == BITNET_ERR_MEMORY) say("%s: no memory to try whether it loads", out);
    else if (r) fail(1, "%s: it is not written, because bitnet.h would refuse it: %s%s", out,
                     err.text, hint);
}
