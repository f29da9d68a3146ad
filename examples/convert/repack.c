#include "commands.h"
#include "check.h"
#include "fold.h"
#include "output.h"
#include "pack.h"
#include <stdlib.h>
#include <string.h>

/* ---- what becomes of each tensor ----

   All that can fail is checked before the output is begun: shapes, scales, and floats that have to
   be ternary. */

typedef enum plan_kind {
    PLAN_COPY,
    PLAN_REPACK,                       /* ternary weights, to another packing */
    PLAN_PACK,                         /* floats that are -s, 0 and s */
    PLAN_HEAD,                         /* floats, to another type of floats */
    PLAN_UNFOLD,                       /* blocks, and what is folded, to floats */
    PLAN_FOLD                          /* floats that are -s, 0 and s once they are folded */
} plan_kind;

typedef struct plan {
    plan_kind kind;
    uint32_t type;                     /* of the output */
    float scale;                       /* of PLAN_PACK without blocks */
} plan;

static uint64_t n_rounded;             /* scales */
static fold folded, target;            /* the input; what the output is to be */
static float farthest;                 /* of weights that are folded, from -s, 0 or s, in s */

static int is_q2_0(uint32_t type) {
    return type == BITNET_TENSOR_Q2_0 || type == BITNET_TENSOR_PQ2_0;
}

/* Types whose models have their embedding and head in them, too. */
static int is_of_all(uint32_t type) {
    return type == BITNET_TENSOR_Q1_0 || type == BITNET_TENSOR_PTQ1_0 || is_q2_0(type);
}

/* Is it to be packed as the ternary weights are? Only one of the two sizes of Q2_0's blocks may be
   in a file. */
static int is_repacked(const bitnet_gguf_tensor *t, const repack_options *o) {
    return is_ternary(t) || (is_head(t) && is_of_all(t->type) && is_of_all(o->to.type) &&
                             !o->wants_head);
}

/* Can `from` hold weights that `to` cannot? Only Q2_0 has 2, and Q1_0 has no 0. */
static int may_not_fit(uint32_t from, uint32_t to) {
    return (is_q2_0(from) && !is_q2_0(to)) || (to == BITNET_TENSOR_Q1_0 && from != to);
}

/* The number of an output type in the file: what is copied keeps its own. */
static uint32_t number_of(const bitnet_gguf_tensor *t, const plan *p, const repack_options *o) {
    if (p->kind == PLAN_COPY) return t->stored_type;
    return p->type == BITNET_TENSOR_PQ2_0 && o->pq2_0_as_42 ? BITNET_TENSOR_Q2_0 : p->type;
}

/* A scale as the output stores it. */
static float stored_scale(const char *name, float scale, const repack_options *o) {
    const float half = pack_half(scale), most = 65504.0f;
    if (!in_blocks(o->to.type) || (half >= scale && half <= scale)) return scale;
    if (!o->round_scales)
        fail(1, "tensor '%s': its scale, %.9g, is not an F16, which %s needs; --round-scales "
             "rounds it", name, (double)scale, bitnet_tensor_type_name(o->to.type));
    if (!(half > 0 || half < 0) || half > most || half < -most)
        fail(1, "tensor '%s': its scale, %.9g, is too small or too large for an F16", name,
             (double)scale);
    return half;
}

/* Do the blocks of `from` keep their scales in those of `to`? */
static int keeps_blocks(const bitnet_ternary *from, const bitnet_ternary *to) {
    return in_blocks(from->type) && in_blocks(to->type);
}

/* The one scale of a tensor, as it is to be written: a scale in a tensor of its own is copied with
   that tensor, and then the scale in blocks must be 1. */
static float one_scale(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const bitnet_ternary *to,
                       const repack_options *o) {
    const int own = has_own_scale(g, t->name);
    bitnet_error err = {0};
    float scale = 1;
    if (in_blocks(t->type) || !own) scale = read_scale(g, t, &err);
    if (err.code == BITNET_ERR_UNSUPPORTED)            /* it has blocks of different scales */
        fail(1, "tensor '%s': %s; --to q2_0, q2_0_128, pq2_0, ptq1_0, q1_0, tq1_0 or tq2_0 keeps "
             "one for each block", t->name, err.text);
    if (err.code) fail(1, "tensor '%s': %s", t->name, err.text);
    if (in_blocks(t->type) && !in_blocks(to->type) && own && scale != 1)
        fail(1, "tensor '%s': its blocks have the scale %g, and another tensor has a second one; "
             "%s stores only one", t->name, (double)scale, bitnet_tensor_type_name(to->type));
    return stored_scale(t->name, scale, o);
}

/* Reads all of a tensor of ternary weights into bytes_in. */
static void read_tensor(const bitnet_gguf *g, const bitnet_gguf_tensor *t) {
    bytes_in = (uint8_t *)grow(bytes_in, t->size);
    read_bytes(g, t, 0, bytes_in, t->size);
}

/* Fails if a weight is none of `to`'s. */
static void check_weights(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                          const bitnet_ternary *from, const bitnet_ternary *to,
                          const repack_options *o) {
    bitnet_error err = {0};
    int32_t row, n;
    read_tensor(g, t);
    for (row = 0; row < to->rows; row += n) {
        n = to->rows - row < ROWS ? to->rows - row : ROWS;
        unpack(from, &o->from, t->name, bytes_in, row, n, &weights[0]);
        if (pack_fits(to, weights[0], row, n, &err)) fail(1, "tensor '%s': %s", t->name, err.text);
    }
}

/* The scales of all rows, in blocks as large as `to` has. out 0: only a check. */
static void convert_scales(const bitnet_gguf_tensor *t, const bitnet_ternary *from,
                           const bitnet_ternary *to, const repack_options *o, uint8_t *out) {
    bitnet_error err = {0};
    int32_t row, n;
    for (row = 0; row < to->rows; row += n) {
        n = to->rows - row < ROWS ? to->rows - row : ROWS;
        unpack(from, &o->from, t->name, bytes_in, row, n, &weights[0]);
        if (pack_scales(to, out, from, bytes_in, weights[0], row, n, &err))
            fail(1, "tensor '%s': %s", t->name, err.text);
    }
}

static void plan_ternary(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                         const repack_options *o) {
    const bitnet_ternary from = ternary_of(t, t->type, &o->from);
    const bitnet_ternary to = ternary_of(t, o->to.type, &o->to);
    float scale, exact;
    if (may_not_fit(from.type, to.type)) check_weights(g, t, &from, &to, o);
    if (keeps_blocks(&from, &to)) {
        if (pack_group(to.type) <= pack_group(from.type)) return;
        read_tensor(g, t);
        convert_scales(t, &from, &to, o, 0);
        return;
    }
    if (!in_blocks(from.type) && !in_blocks(to.type)) return;
    scale = one_scale(g, t, &to, o);
    if (in_blocks(from.type) || has_own_scale(g, t->name)) return;
    exact = read_scale(g, t, 0);
    n_rounded += scale < exact || scale > exact;
}

/* ---- floats that are ternary ---- */

/* Reads n <= ROWS rows of floats into *x. */
static void read_rows(const bitnet_gguf *g, const bitnet_gguf_tensor *t, int32_t row, int32_t n,
                      float **x) {
    const uint64_t dims[1] = {t->dims[0]};
    const uint64_t size = bitnet_tensor_size(t->type, 1, dims) * (uint64_t)n;
    bitnet_error err = {0};
    bytes_in = (uint8_t *)grow(bytes_in, size);
    *x = (float *)grow(*x, (uint64_t)ROWS * dims[0] * sizeof **x);
    read_bytes(g, t, (uint64_t)row * (size / (uint64_t)n), bytes_in, size);
    if (bitnet_floats_unpack(t->type, bytes_in, n * (int32_t)dims[0], *x, &err))
        fail(1, "tensor '%s': %s", t->name, err.text);
}

/* Fails if the numbers are not 0 and one s, which *scale gets, or -s. */
static void check_ternary(const char *name, const float *x, int32_t row, int32_t n, int32_t rows,
                          float *scale) {
    int64_t i;
    for (i = 0; i < (int64_t)n * rows; i++) {
        const float a = x[i] < 0 ? -x[i] : x[i];
        if (a - a == 0 && !(a > 0)) continue;
        if (!(*scale > 0) && a - a == 0) *scale = a;
        if (!(a >= *scale && a <= *scale))
            fail(1, "tensor '%s': its numbers are not -s, 0 and s: row %d, column %d is %.9g; "
                 "--copy copies what is not ternary", name, (int)(row + i / n), (int)(i % n),
                 (double)x[i]);
    }
}

/* Packs floats into out, or only checks them if it is 0, and returns the scale. */
static float pack_tensor(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                         const bitnet_ternary *to, float scale, uint8_t *out) {
    const int blocks = in_blocks(to->type);
    const uint64_t dims[1] = {t->dims[0]}, row_bytes = bitnet_tensor_size(to->type, 1, dims);
    bitnet_error err = {0};
    float *x = 0;
    int32_t row, n;
    int64_t i;
    for (row = 0; row < to->rows; row += n) {
        n = to->rows - row < ROWS ? to->rows - row : ROWS;
        read_rows(g, t, row, n, &x);
        weights[0] = (int8_t *)grow(weights[0], (uint64_t)ROWS * (uint64_t)to->n);
        if (blocks && pack_rows(to, x, row, n, weights[0],
                                out ? out + (uint64_t)row * row_bytes : 0, &err))
            fail(1, "tensor '%s': %s; --copy copies what is not ternary", t->name, err.text);
        if (blocks) continue;
        check_ternary(t->name, x, row, to->n, n, &scale);
        for (i = 0; i < (int64_t)n * to->n; i++)
            weights[0][i] = (int8_t)((x[i] > 0) - (x[i] < 0));
        if (out && pack_ternary(to, weights[0], row, n, out, &err))
            fail(1, "tensor '%s': %s", t->name, err.text);
    }
    free(x);
    return scale > 0 ? scale : 1.0f;   /* all are 0 */
}

static plan plan_layer(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const repack_options *o) {
    plan p = {PLAN_COPY, 0, 0};
    bitnet_ternary to;
    p.type = t->type;
    if (o->copy) return p;
    if (t->type != BITNET_TENSOR_F32 && t->type != BITNET_TENSOR_F16 &&
        t->type != BITNET_TENSOR_BF16)
        fail(1, "tensor '%s' is %s, which is not ternary; --copy copies it", t->name, t->type_name);
    if (has_own_scale(g, t->name))
        fail(1, "tensor '%s' is %s, and a scale is in another tensor; --copy copies both", t->name,
             t->type_name);
    to = ternary_of(t, o->to.type, &o->to);
    p.kind = PLAN_PACK;
    p.type = to.type;
    p.scale = pack_tensor(g, t, &to, 0, 0);
    return p;
}

/* ---- folding and unfolding ---- */

/* Makes a block's numbers -s, 0 and s, for the F16 nearest to the mean of those that are not 0,
   which is returned. */
static float snap_block(const char *name, float *x, int32_t n, int32_t row, int32_t column) {
    float most = 0, mean, s, off = 0;
    double sum = 0;
    int32_t i, live = 0;
    for (i = 0; i < n; i++) {
        const float a = x[i] < 0 ? -x[i] : x[i];
        if (!(a <= most)) most = a;
    }
    for (i = 0; i < n; i++) {
        const float a = x[i] < 0 ? -x[i] : x[i];
        if (a > most / 2) sum += (double)a;
        live += a > most / 2;
    }
    mean = live ? (float)(sum / live) : 0;
    s = pack_half(mean);
    for (i = 0; i < n; i++) {
        const float to = x[i] > most / 2 ? s : x[i] < -most / 2 ? -s : 0;
        const float d = x[i] > to ? x[i] - to : to - x[i];
        if (!(d <= off)) off = d;
        x[i] = to;
    }
    if (!(off <= s / 8))
        fail(1, "tensor '%s': row %d, columns %d to %d: folded, they are not -s, 0 and s", name,
             (int)row, (int)column, (int)(column + n - 1));
    if (s > 0 && off / s > farthest) farthest = off / s;
    return mean;
}

/* How many numbers of a folded row x are others than those of `plain` when they are unfolded and
   rounded to F16. */
static int32_t count_off(const char *name, const float *x, float *room, const float *plain,
                         int32_t n) {
    int32_t i, off = 0;
    memcpy(room, x, (size_t)n * sizeof *x);
    fold_undo(&target, name, room, n);
    for (i = 0; i < n; i++) {
        const float y = pack_half(room[i]);
        off += y < plain[i] || y > plain[i];
    }
    return off;
}

/* Folds a row in place and makes its blocks -s, 0 and s. What an F16 has lost may be worth a last
   bit of s: then the next F16 on the mean's side is tried, and kept if the row comes out nearer.
   room [2][n], means [n / group] */
static void fold_row(const bitnet_gguf_tensor *t, float *x, float *room, float *means, int32_t n,
                     int32_t group, int32_t row) {
    float *plain = room + n;
    int32_t k, i, off;
    memcpy(plain, x, (size_t)n * sizeof *x);
    fold_do(&target, t->name, x, n);
    for (k = 0; k < n; k += group) means[k / group] = snap_block(t->name, x + k, group, row, k);
    off = t->type == BITNET_TENSOR_F16 ? count_off(t->name, x, room, plain, n) : 0;
    for (k = 0; k < n && off; k += group) {
        const float mean = means[k / group], s = pack_half(mean);
        const float step = s / 1500;   /* 0.7 to 1.4 last bits */
        const float next = pack_half(mean > s ? s + step : s - step);
        const float to_s = mean > s ? mean - s : s - mean;
        const float to_next = mean > next ? mean - next : next - mean;
        int32_t now;
        if (2 * to_s < to_next) continue;
        for (i = k; i < k + group; i++) x[i] = x[i] > 0 ? next : x[i] < 0 ? -next : 0;
        now = count_off(t->name, x, room, plain, n);
        for (i = k; i < k + group && now >= off; i++) x[i] = x[i] > 0 ? s : x[i] < 0 ? -s : 0;
        if (now < off) off = now;
    }
}

/* Packs a tensor's folded rows, or only checks them. */
static void fold_tensor(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const bitnet_ternary *to,
                        int writes) {
    const int32_t group = pack_group(to->type);
    const uint64_t dims[1] = {t->dims[0]}, row_bytes = bitnet_tensor_size(to->type, 1, dims);
    bitnet_error err = {0};
    float *x = 0, *room = (float *)grow(0, 3 * t->dims[0] * sizeof *room);
    int32_t row, n, r;
    bytes_out = (uint8_t *)grow(bytes_out, ROWS * row_bytes);
    weights[0] = (int8_t *)grow(weights[0], (uint64_t)ROWS * (uint64_t)to->n);
    for (row = 0; row < to->rows; row += n) {
        n = to->rows - row < ROWS ? to->rows - row : ROWS;
        read_rows(g, t, row, n, &x);
        for (r = 0; r < n; r++)
            fold_row(t, x + (size_t)r * (size_t)to->n, room, room + 2 * to->n, to->n, group,
                     row + r);
        if (pack_rows(to, x, row, n, weights[0], writes ? bytes_out : 0, &err))
            fail(1, "tensor '%s': %s", t->name, err.text);
        if (writes && gguf_write_data(&writer, bytes_out, (size_t)n * (size_t)row_bytes))
            fail(1, "%s", writer.err.text);
    }
    free(x);
    free(room);
}

static plan plan_fold(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const repack_options *o) {
    plan p = {PLAN_COPY, 0, 0};
    p.type = t->type;
    if (o->unfold ? fold_has(&folded, t->name) || in_blocks(t->type)
                  : fold_has(&target, t->name)) {
        if (!is_float(t) || t->dims[0] > INT32_MAX)
            fail(1, "tensor '%s' is %s, which cannot be folded or unfolded", t->name, t->type_name);
        p.kind = o->unfold ? PLAN_UNFOLD : PLAN_FOLD;
        p.type = o->unfold ? o->unfold_type : o->to.type;
        if (!bitnet_tensor_size(p.type, 1, t->dims))
            fail(1, "tensor '%s': its rows of %.0f weights are not whole blocks of %s", t->name,
                 (double)t->dims[0], bitnet_tensor_type_name(p.type));
    }
    if (p.kind == PLAN_FOLD) {
        const bitnet_ternary to = ternary_of(t, p.type, &o->to);
        fold_tensor(g, t, &to, 0);
    }
    return p;
}

static plan make_plan(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const repack_options *o) {
    plan p = {PLAN_COPY, 0, 0};
    p.type = t->type;
    if (!t->size)
        fail(1, "tensor '%s': unsupported tensor type %u (%s)", t->name, (unsigned)t->type,
             t->type_name ? t->type_name : "unknown");
    if (o->unfold || o->fold) return plan_fold(g, t, o);
    if (is_repacked(t, o)) {
        plan_ternary(g, t, o);
        p.kind = PLAN_REPACK;
        p.type = o->to.type;
    } else if (is_layer(t)) {
        p = plan_layer(g, t, o);
    } else if (is_head(t) && o->wants_head) {
        if (!is_float(t))
            fail(1, "tensor '%s': --head cannot read type %u (%s)", t->name, (unsigned)t->type,
                 t->type_name);
        p.kind = o->head_type == t->type ? PLAN_COPY : PLAN_HEAD;
        p.type = o->head_type;
        if (!bitnet_tensor_size(p.type, 1, t->dims))
            fail(1, "tensor '%s': its rows of %.0f weights are not whole blocks of %s; --head q8_0 "
                 "and q5_0 have blocks of 32, f16 and bf16 have none", t->name, (double)t->dims[0],
                 bitnet_tensor_type_name(p.type));
    }
    return p;
}

/* ---- header ---- */

/* general.file_type of an output type, whose numbers are others. */
static uint32_t file_type_of(uint32_t type) {
    switch (type) {
        case BITNET_TENSOR_BF16: return 32;
        case BITNET_TENSOR_Q8_0: return 7;
        case BITNET_TENSOR_Q5_0: return 8;
        case BITNET_TENSOR_Q4_K: return 15;
        case BITNET_TENSOR_Q5_K: return 17;
        case BITNET_TENSOR_Q6_K: return 18;
        case BITNET_TENSOR_I2_S: case BITNET_TENSOR_Q1_0: return 40;
        case BITNET_TENSOR_TQ1_0: case BITNET_TENSOR_TQ2_0: return type + 2;
        case BITNET_TENSOR_Q2_0: case BITNET_TENSOR_PQ2_0: return 41;
        case BITNET_TENSOR_PTQ1_0: return 129;
        default: return type;
    }
}

/* Copies the keys. Sets general.file_type for a new packing, and adds a tokenizer.ggml.pre that is
   missing. */
static void add_keys(const bitnet_gguf *g, int has_ternary, uint32_t type, int unfolds) {
    const uint32_t file_type = file_type_of(type);
    bitnet_gguf_key k, other;
    uint64_t i;
    for (i = 0; !bitnet_gguf_get_key(g, i, &k); i++) {
        if (unfolds && fold_is_key(k.name)) continue;
        if (has_ternary && !strcmp(k.name, "general.file_type"))
            gguf_add_u32(&writer, k.name, file_type);
        else gguf_add_value(&writer, k.name, &k.value);
        if (!strcmp(k.name, "tokenizer.ggml.model") && means_llama_bpe(g) &&
            bitnet_gguf_find_key(g, "tokenizer.ggml.pre", &other))
            gguf_add_string(&writer, "tokenizer.ggml.pre", "llama-bpe");
    }
    if (has_ternary && bitnet_gguf_find_key(g, "general.file_type", &k))
        gguf_add_u32(&writer, "general.file_type", file_type);
}

/* ---- data ---- */

static void write_bytes(const void *p, uint64_t n) {
    if (gguf_write_data(&writer, p, (size_t)n)) fail(1, "%s", writer.err.text);
}

static void write_copy(const bitnet_gguf *g, const bitnet_gguf_tensor *t) {
    uint64_t at, n;
    bytes_in = (uint8_t *)grow(bytes_in, PIECE);
    for (at = 0; at < t->size; at += n) {
        n = t->size - at < PIECE ? t->size - at : PIECE;
        read_bytes(g, t, at, bytes_in, n);
        write_bytes(bytes_in, n);
    }
}

/* Zeros, for the output tensor. */
static uint64_t clear_output(const bitnet_gguf_tensor *t, const bitnet_ternary *to) {
    const uint64_t size = bitnet_tensor_size(to->type, t->n_dims, t->dims);
    bytes_out = (uint8_t *)grow(bytes_out, size);
    memset(bytes_out, 0, (size_t)size);
    return size;
}

/* Except in blocks, the last 32 bytes contain the scale and are the same in all packings. */
static void write_ternary(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                          const repack_options *o) {
    const bitnet_ternary from = ternary_of(t, t->type, &o->from);
    const bitnet_ternary to = ternary_of(t, o->to.type, &o->to);
    const uint64_t size = clear_output(t, &to);
    const int plain = !in_blocks(from.type) && !in_blocks(to.type);
    const float scale = plain || keeps_blocks(&from, &to) ? 1 : one_scale(g, t, &to, o);
    bitnet_error err = {0};
    int32_t row, n;
    read_tensor(g, t);
    for (row = 0; row < to.rows; row += n) {
        n = to.rows - row < ROWS ? to.rows - row : ROWS;
        unpack(&from, &o->from, t->name, bytes_in, row, n, &weights[0]);
        if (pack_ternary(&to, weights[0], row, n, bytes_out, &err))
            fail(1, "tensor '%s': %s", t->name, err.text);
    }
    if (plain) memcpy(bytes_out + size - 32, bytes_in + t->size - 32, 32);
    else if (keeps_blocks(&from, &to)) convert_scales(t, &from, &to, o, bytes_out);
    else if (pack_scale(&to, scale, bytes_out, &err)) fail(1, "tensor '%s': %s", t->name, err.text);
    write_bytes(bytes_out, size);
}

static void write_packed(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const plan *p,
                         const repack_options *o) {
    const bitnet_ternary to = ternary_of(t, p->type, &o->to);
    const uint64_t size = clear_output(t, &to);
    bitnet_error err = {0};
    pack_tensor(g, t, &to, p->scale, bytes_out);
    if (!in_blocks(to.type) && pack_scale(&to, p->scale, bytes_out, &err))
        fail(1, "tensor '%s': %s", t->name, err.text);
    write_bytes(bytes_out, size);
}

/* Floats, or blocks, to another type; what is folded is unfolded with `how`, which may be 0. */
static void write_head(const bitnet_gguf *g, const bitnet_gguf_tensor *t, uint32_t type,
                       const fold *how) {
    const uint64_t dims[1] = {t->dims[0]};
    const uint64_t row_in = bitnet_tensor_size(t->type, 1, dims);
    const uint64_t row_out = bitnet_tensor_size(type, 1, dims);
    bitnet_error err = {0};
    const int32_t n = (int32_t)t->dims[0];
    float *x = (float *)grow(0, t->dims[0] * sizeof *x);
    const int undoes = how && fold_has(how, t->name);
    uint64_t row, rows = t->dims[1] * t->dims[2] * t->dims[3];
    bytes_in = (uint8_t *)grow(bytes_in, row_in);
    bytes_out = (uint8_t *)grow(bytes_out, row_out);
    for (row = 0; row < rows; row++) {
        read_bytes(g, t, row * row_in, bytes_in, row_in);
        if (bitnet_floats_unpack(t->type, bytes_in, n, x, &err))
            fail(1, "tensor '%s', row %.0f: %s", t->name, (double)row, err.text);
        if (undoes) fold_undo(how, t->name, x, n);
        if (pack_floats(type, x, n, bytes_out, &err))
            fail(1, "tensor '%s', row %.0f: %s", t->name, (double)row, err.text);
        write_bytes(bytes_out, row_out);
    }
    free(x);
}

static void write_folded(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const plan *p,
                         const repack_options *o) {
    const bitnet_ternary to = ternary_of(t, p->type, &o->to);
    fold_tensor(g, t, &to, 1);
}

static void write_tensor(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const plan *p,
                         const repack_options *o) {
    switch (p->kind) {
        case PLAN_REPACK: write_ternary(g, t, o); break;
        case PLAN_PACK: write_packed(g, t, p, o); break;
        case PLAN_HEAD: write_head(g, t, p->type, 0); break;
        case PLAN_UNFOLD: write_head(g, t, p->type, &folded); break;
        case PLAN_FOLD: write_folded(g, t, p, o); break;
        default: write_copy(g, t); break;
    }
}

/* What is to be done to the fold: of the input, or as that of another file. */
static bitnet_gguf *read_folds(const bitnet_gguf *g, const char *in, const repack_options *o) {
    bitnet_gguf *model;
    if (!o->unfold && !o->fold) return 0;
    fold_read(&folded, g, in);
    if (o->unfold && !folded.block)
        fail(1, "%s: it is not folded: it has no keys prism.hadamard.*", in);
    if (o->fold && folded.block) fail(1, "%s: it is folded already; --unfold first", in);
    fold_check(&folded, g, in);
    if (!o->fold) return 0;
    model = open_whole(o->fold);
    fold_read(&target, model, o->fold);
    if (!target.block)
        fail(1, "%s: it is not folded: it has no keys prism.hadamard.*", o->fold);
    fold_check(&target, g, in);
    return model;
}

void repack(const char *in, const char *out, const repack_options *o) {
    bitnet_gguf *g = open_whole(in), *model = read_folds(g, in, o);
    bitnet_gguf_key k;
    bitnet_gguf_tensor t;
    int has_ternary = 0, has_head = 0;
    uint64_t i, n;
    plan *plans;
    for (n = 0; !bitnet_gguf_get_tensor(g, n, &t); n++) has_head |= is_head(&t);
    if (o->wants_head && !has_head)
        fail(1, "%s: --head finds neither token_embd.weight nor output.weight", in);
    plans = (plan *)grow(0, n * sizeof *plans);
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++) {
        plans[i] = make_plan(g, &t, o);
        has_ternary |= plans[i].kind != PLAN_COPY && plans[i].kind != PLAN_HEAD;
    }
    if (!has_ternary && (o->wants_ternary || (!o->copy && !o->wants_head)))
        fail(1, "%s: it has no ternary weights%s", in,
             o->wants_ternary ? "" : "; --copy copies it");
    output_open(out, o->force);
    add_keys(g, has_ternary, o->unfold ? o->unfold_type : o->to.type, o->unfold);
    for (i = 0; model && !bitnet_gguf_get_key(model, i, &k); i++)
        if (fold_is_key(k.name)) gguf_add_value(&writer, k.name, &k.value);
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++)
        gguf_add_tensor_as(&writer, t.name, plans[i].type, number_of(&t, &plans[i], o), t.n_dims,
                           t.dims);
    if (gguf_write_header(&writer)) fail(1, "%s: %s", in, writer.err.text);
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++) write_tensor(g, &t, &plans[i], o);
    bitnet_gguf_close(g);
    bitnet_gguf_close(model);
    fold_free(&folded);
    fold_free(&target);
    free(plans);
    if (gguf_write_end(&writer)) fail(1, "%s: %s", out, writer.err.text);
    if (n_rounded) say("%.0f scales are rounded to F16", (double)n_rounded);
    if (o->fold)
        say("folded: the weights were off -s, 0 and s by up to %.2g s", (double)farthest);
    check_output(output_end(), out, &o->to, !o->copy, "; --copy writes it");
    output_close(o->force);
}
