/* No result is a NaN, whose bits differ between CPUs: a difference in a NaN's payload would hide
   one that matters. So no input is infinite, and no sum can overflow. */
#define BITNET_IMPLEMENTATION           /* with what is private of bitnet_kernels */
#include "kernels.h"
#include "report.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int n, rows, cols;
    int kinds;                         /* how many kinds of inputs are tried; 0: four */
} shape;
typedef struct op {
    const char *name;
    char weights;                      /* t ternary, i the same with any code of 2 bits, g blocks
                                          of layout variant, n halves of bytes, f F32, h F16,
                                          b BF16, 4 Q4_K, k keys and v values of an int8 cache,
                                          0 none */
    int seeds, variant;
    const shape *shapes;               /* the last one has n = 0 */
    void (*run)(const bitnet_kernels *k, const struct op *o, const shape *s, values *out);
} op;

/* Kinds of random numbers, by the range of their biased exponents. One number in 32 is a zero, of
   either sign. */
static const struct kind { const char *name; uint32_t low, high; } kinds[] = {
    {"normal", 121, 130}, {"wide", 97, 147}, {"subnormal", 0, 27}, {"huge", 167, 182},
    {"halves", 0, 0}                   /* only for quantize */
};
enum { NORMAL, WIDE, SUBNORMAL, HUGE_KIND, HALVES };
static const char *const int_kinds[] = {"random", "saturated"};
enum { MOST_X = 1 << 17, MOST_W = 1 << 20, MOST_SUMS = 2048,
       MOST_POSITIONS = 4096 };
static uint64_t random_state;
static uint8_t weights[MOST_W];
static int8_t q[MOST_X];
static float x[MOST_X], y[MOST_X];
static int32_t ints[MOST_X], sums[MOST_SUMS];
static int kind;                       /* of the floats; for integers 1 means saturated */
static values expected, got;
static const bitnet_kernels *scalar;   /* the table */

/* ---- inputs ---- */

static uint32_t random_bits(void) {    /* SplitMix64 (Steele, Lea, Flood 2014) */
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Halves lie between -127 and 127: the quantizer must round each of them from a tie. */
static float number(int of) {
    uint32_t bits = random_bits(), r = random_bits();
    const struct kind *k = &kinds[of];
    if (of == HALVES) return (float)((int32_t)(r % 509) - 254) / 2;
    if (r % 32 == 0) return from_bits(bits & 0x80000000);
    return from_bits((bits & 0x807fffff) | (k->low + (r >> 5) % (k->high - k->low + 1)) << 23);
}

static uint32_t half_bits(void) {      /* the exponent is not 31: finite */
    uint32_t bits = random_bits() & 0xffff, r = random_bits();
    if (kind == WIDE) return (bits & 0x7c00) == 0x7c00 ? bits ^ 0x4000 : bits;
    return (bits & 0x83ff) | (kind == SUBNORMAL ? r % 4 : 10 + r % 8) << 10;
}

/* Rounds to 13 significant bits and to 0 below 2^-113, as scores_f16 and sumrows_f16 need it. */
static void to_f13(float *p, size_t n) {
    for (; n > 0; n--, p++) {
        uint32_t bits = float_bits(*p) & 0xfffff800;
        *p = from_bits((bits >> 23 & 255) < 14 ? bits & 0x80000000 : bits);
    }
}

/* Saturated inputs: a third of the rows or columns has the low end, a third the high one. */
static uint32_t either_end(size_t which, uint32_t low, uint32_t high) {
    uint32_t r = random_bits();
    return (which % 3 < 2 ? which % 3 : r & 1) ? high : low;
}

static uint32_t ternary_byte(size_t row) {
    uint32_t r = random_bits();
    if (kind) return either_end(row, 0x00, 0xaa);
    return r % 3 | (r >> 8) % 3 << 2 | (r >> 16) % 3 << 4 | (r >> 24) % 3 << 6;
}

static void make_weights(char type, size_t n, size_t rows) {
    size_t row, i, bytes = type == 'f' ? 4 : type == 'h' || type == 'b' ? 2 : 1;
    uint8_t *w = weights + 1;          /* no alignment is promised */
    if (type == 't' || type == 'i') n /= 4;
    if (type == 'n') n /= 2;
    for (row = 0; row < rows; row++)
        for (i = 0; i < n; i++, w += bytes) {
            uint32_t v = type == 't' ? ternary_byte(row)
                : bytes == 1 ? (kind ? either_end(row, 0, 255) : random_bits() & 255)
                : type == 'h' ? half_bits() : float_bits(number(kind));
            if (type == 'b') v >>= 16;
            w[0] = (uint8_t)v;
            if (bytes > 1) w[1] = (uint8_t)(v >> 8);
            if (bytes > 2) {
                w[2] = (uint8_t)(v >> 16);
                w[3] = (uint8_t)(v >> 24);
            }
        }
}

/* The layouts of blocks with a scale each, by the variant of an operation. Activations need no
   order here. */
static const bitnet__blocks layouts[] = {
    {64, 18, 0, 2, 2, 0}, {128, 34, 0, 2, 2, 0}, {256, 66, 64, 0, 2, 0}, {128, 18, 0, 2, 1, 0},
    {128, 28, 26, 0, 0, 0}
};

static void make_groups(size_t n, size_t rows, const bitnet__blocks *b) {
    uint8_t *p = weights + 1;
    size_t row, i, j;
    for (row = 0; row < rows; row++)
        for (i = 0; i < n / (size_t)b->group; i++, p += b->bytes) {
            const uint32_t v = half_bits();
            for (j = 0; j < (size_t)b->bytes; j++)
                p[j] = (uint8_t)(b->bits == 2 ? ternary_byte(row) : random_bits() & 255);
            p[b->scale_at] = (uint8_t)v;
            p[b->scale_at + 1] = (uint8_t)(v >> 8);
        }
}

/* Blocks of 144 bytes, which begin with two scales. */
static void make_q4_k(size_t n, size_t rows) {
    uint8_t *p = weights + 1;
    size_t i, j;
    for (i = 0; i < rows * n / 256; i++, p += 144)
        for (j = 0; j < 144; j++) {
            const uint32_t v = half_bits();
            p[j] = (uint8_t)v;
            if (j < 4) p[++j] = (uint8_t)(v >> 8);
        }
}

static void put_float(uint8_t *p, float f) {
    int i;
    for (i = 0; i < 4; i++) p[i] = (uint8_t)(float_bits(f) >> 8 * i);
}

/* Blocks of 64 positions, as drawn in bitnet.h under "an int8 cache". */
static void make_cache(size_t n, size_t rows) {
    const size_t size = 64 * (4 + n);
    size_t i, b;
    for (b = 0; b < rows / 64; b++) {
        uint8_t *p = weights + 1 + b * size;
        for (i = 0; i < 64; i++) put_float(p + 4 * i, number(NORMAL));
        for (i = 256; i < size; i++)
            p[i] = (uint8_t)(kind ? either_end(i / 256, 0, 255) : random_bits() & 255);
    }
}

/* Queries from -127 to 127, n to a column, or weights of values from 0 to 127. */
static void make_codes(int of_values, size_t n, size_t cols) {
    size_t c, i;
    for (c = 0; c < cols; c++)
        for (i = 0, sums[c] = 0; i < n; i++) {
            int32_t v = kind ? (either_end(c, 0, 1) ? 127 : -127)
                : (int32_t)(random_bits() % 255) - 127;
            if (of_values) v = abs(v);
            q[c * n + i] = (int8_t)v;
            sums[c] += v;
        }
}

/* Activations from -128 to 127. */
static void make_activations(size_t n, size_t cols) {
    size_t c, i;
    for (c = 0; c < cols; c++)
        for (i = 0, sums[c] = 0; i < n; i++) {
            const int32_t v = kind ? (either_end(c, 0, 1) ? 127 : -128)
                : (int32_t)(random_bits() & 255) - 128;
            q[c * n + i] = (int8_t)v;
            sums[c] += v;
        }
}

static int is_int(const op *o) {
    return o->weights && strchr("tingkv", o->weights);
}

static void make_inputs(const op *o, const shape *s) {
    size_t i, n = (size_t)s->n, rows = (size_t)s->rows, cols = (size_t)s->cols;
    if (o->weights == 'g') {           /* each group is a column of its own, with a step */
        const size_t group = (size_t)layouts[o->variant].group;
        make_groups(n, rows, &layouts[o->variant]);
        make_activations(group, cols * n / group);
        for (i = 0; i < cols * (n / group); i++) x[i] = number(kind);
        return;
    }
    if (o->weights == 'k' || o->weights == 'v') {
        make_cache(n, rows);
        make_codes(o->weights == 'v', o->weights == 'v' ? rows : n, cols);
        for (i = 0; i < cols * rows / 64; i++) x[i] = number(NORMAL);
        return;
    }
    if (o->weights == '4') make_q4_k(n, rows);
    else make_weights(o->weights, n, rows);
    if (is_int(o)) make_activations(n, cols);
    else for (i = 0; i < (n + rows) * cols + 2 * n; i++) {
        x[i] = number(kind);
        ints[i] = (int32_t)(random_bits() % 0x10000000) - 0x8000000;
    }
    if (kind == HALVES) x[0] = 127;    /* makes the quantizer's scale 1 */
}

/* ---- the operations ---- */

static void run_quantize(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    int32_t sum, i;
    float scale = k->quantize(x, s->n, q, &sum);
    (void)o;
    for (i = 0; i < s->n; i++) put(out, 'b', (uint8_t)q[i]);
    put_ints(out, &sum, 1);
    put_floats(out, &scale, 1);
}

/* A table that packs weights packs them first. Each column is followed by one unused element. */
static void run_int_dots(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    size_t stride = (size_t)s->rows + 1, c;
    const int packs = o->weights == 't' && k->pack;
    uint8_t *packed = packs ? (uint8_t *)grow(0, k->packed_bytes(s->n, s->rows)) : 0;
    const uint8_t *w = packs ? packed : weights + 1;
    memset(ints, 0, stride * (size_t)s->cols * sizeof *ints);
    if (!packs || !k->pack(weights + 1, s->n, s->rows, packed))    /* if refused: zeros */
        (o->weights == 't' ? k->dotrows_ternary : o->weights == 'i' ? k->dotrows_i2s
                                                                    : k->dotrows_u4)(
            &(bitnet__dots){w, q, sums, s->n, s->rows, s->cols, ints, (size_t)s->n, stride});
    for (c = 0; c < (size_t)s->cols; c++) put_ints(out, ints + c * stride, (size_t)s->rows);
    free(packed);
}

/* An odd number of rows adds; an even number of columns multiplies packs, where the table has
   them. Each column is followed by one unused element. */
static void run_group_dots(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    size_t stride = (size_t)s->rows + 1, c, i;
    const bitnet__blocks *b = &layouts[o->variant];
    const int row = s->n / b->group * b->bytes;
    uint8_t *packed = 0;
    if (k->pack_groups && b->bits && s->cols % 2 == 0)
        packed = (uint8_t *)grow(0, (size_t)((s->rows + 15) / 16 * 16 * row));
    for (i = 0; i < stride * (size_t)s->cols; i++) y[i] = (float)i - 7;
    for (c = 0; packed && c < (size_t)s->rows; c += 16)
        k->pack_groups(b, weights + 1 + c * (size_t)row, s->n,
                       s->rows - (int)c < 16 ? s->rows - (int)c : 16, packed + c * (size_t)row);
    k->dotrows_groups(&(bitnet__grouped){packed ? packed : weights + 1, b, q, sums, x, s->n,
                                         s->rows, s->cols, s->rows % 2, y, stride, packed != 0});
    free(packed);
    for (c = 0; c < (size_t)s->cols; c++) put_floats(out, y + c * stride, (size_t)s->rows);
}

static void run_float_dots(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    size_t stride = (size_t)s->rows + 1, c;
    void (*dots)(const uint8_t *, const float *, int, int, int, float *, size_t) =
        o->variant ? k->scores_f16 :
        o->weights == '4' ? (k->dotrows_q4_k ? k : scalar)->dotrows_q4_k :
        o->weights == 'f' ? k->dotrows_f32 :
        o->weights == 'h' ? k->dotrows_f16 : k->dotrows_bf16;
    if (o->variant) to_f13(x, (size_t)s->n * (size_t)s->cols);
    dots(weights + 1, x, s->n, s->rows, s->cols, y, stride);
    for (c = 0; c < (size_t)s->cols; c++) put_floats(out, y + c * stride, (size_t)s->rows);
}

/* The probabilities x are [cols][rows + 1]; the sums start as the numbers after them. */
static void run_sumrows(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    size_t n = (size_t)s->n, n_p = (size_t)(s->rows + 1) * (size_t)s->cols;
    if (o->weights == 'h') to_f13(x, n_p);
    memcpy(y, x + n_p, n * (size_t)s->cols * sizeof *y);
    (o->weights == 'f' ? k->sumrows_f32 : k->sumrows_f16)(
        weights + 1, n, x, (size_t)s->rows + 1, s->n, s->rows, s->cols, y);
    put_floats(out, y, n * (size_t)s->cols);
}

static void run_scores_i8(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    size_t stride = (size_t)s->rows + 1, c;
    (void)o;
    k->scores_i8(weights + 1, q, sums, s->n, s->rows, s->cols, y, stride);
    for (c = 0; c < (size_t)s->cols; c++) put_floats(out, y + c * stride, (size_t)s->rows);
}

/* All elements but the first 16, if there are more than 20. */
static void run_sumrows_i8(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    const int first = s->n > 20 ? 16 : 0, count = s->n - first;
    const size_t size = (size_t)count * (size_t)s->cols;
    size_t i;
    (void)o;
    for (i = 0; i < size; i++) y[i] = (float)i - 7;
    k->sumrows_i8(weights + 1, (const uint8_t *)q, x, (size_t)s->rows, s->n, first, count,
                         s->rows, s->cols, y);
    put_floats(out, y, size);
}

/* n positions of heads of 4 elements; variant: so many at either end are outside. Of many positions
   the report has the last two blocks; and what follows the scales, which must stay. */
static void run_weigh_i8(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    static uint8_t w[(MOST_POSITIONS + 64) * 8], to[MOST_POSITIONS + 64];
    const int first = s->n > 128 ? s->n - 128 : 0;
    int i;
    for (i = 0; i < s->n; i++) put_float(w + i / 64 * 512 + i % 64 * 4, x[s->n + i]);
    y[s->n / 64] = -1;
    k->weigh_i8(x, w, 4, s->n, o->variant, s->n - o->variant, to, y);
    for (i = first; i < s->n; i++) put(out, 'b', to[i]);
    put_floats(out, y + first / 64, (size_t)(s->n - first) / 64 + 1);
}

static void run_softmax(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    memcpy(y, x, (size_t)s->n * sizeof *y);
    k->softmax(y, s->n, 0.125f, o->variant);
    put_floats(out, y, (size_t)s->n);
}

static void run_rope(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    int n_rot = o->variant ? s->n / 2 * 2 : s->n / 4 * 2;
    k->rope(x, x + s->n, n_rot, s->n, o->variant, y);
    put_floats(out, y, (size_t)s->n);
}

static void run_store_f16(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    uint8_t h[512];
    int i;
    (void)o;
    k->store_f16(x, s->n, h);
    for (i = 0; i < s->n; i++) put(out, 'h', h[2 * i] | (uint32_t)h[2 * i + 1] << 8);
}

static float factor(int i) { return kind == HUGE_KIND ? 0.75f : x[i]; }    /* avoids infinity */

static void run_dequantize(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    memcpy(y, x + 1, (size_t)s->n * sizeof *y);
    k->dequantize(ints, factor(0), s->n, o->variant, y);
    put_floats(out, y, (size_t)s->n);
}

static void run_relu2_gate(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    (void)o;
    k->relu2_gate(x, x + s->n, s->n, y);
    put_floats(out, y, (size_t)s->n);
}

/* Variant 0: SiLU; 1: GELU. */
static void run_sigmoid_gate(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    k->sigmoid_gate(x, x + s->n, o->variant ? -1.59576912f : -1,
                           o->variant ? -0.0713548163f : 0, s->n, y);
    put_floats(out, y, (size_t)s->n);
}

static void run_sigmoid(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    (void)o;
    k->sigmoid(x, x + s->n, s->n, y);
    put_floats(out, y, (size_t)s->n);
}

static void run_hadamard(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    (void)o;
    memcpy(y, x, (size_t)s->n * sizeof *y);
    k->hadamard(y, s->n, s->n & -s->n);
    put_floats(out, y, (size_t)s->n);
}

/* n keys, `rows` values, at most two tokens, whose decays and betas are elements of theirs: the
   rows of the last key in a state, which is the weights, and what is read of it. */
static void run_delta_rule(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    const size_t n = (size_t)s->n, rows = (size_t)s->rows, size = n * rows;
    const uint8_t *w = weights + 1;
    bitnet__delta d;
    size_t i;
    (void)o;
    for (i = 0; i < size; i++, w += 4)
        y[i] = from_bits(w[0] | (uint32_t)w[1] << 8 | (uint32_t)w[2] << 16 | (uint32_t)w[3] << 24);
    d.state = y;
    d.q = d.decay = x;
    d.k = d.beta = x + n;
    d.v = x + 2 * n;
    d.out = y + size;
    d.n_keys = s->n;
    d.n_values = s->rows;
    d.n_tokens = s->cols;
    d.stride = d.gate_stride = 2 * n + rows;
    d.out_stride = rows;
    k->delta_rule(&d);
    put_floats(out, y + size - rows, rows + rows * (size_t)s->cols);
}

static void run_rmsnorm(const bitnet_kernels *k, const op *o, const shape *s, values *out) {
    (void)o;
    k->rmsnorm(x, x + s->n, s->n, 1e-5f, y);
    put_floats(out, y, (size_t)s->n);
}

/* 2560 and 6912 are the row lengths of the official model. */
static const shape vectors[] = {{1, 1, 1, 0}, {2, 1, 1, 0}, {3, 1, 1, 0}, {5, 1, 1, 0},
    {8, 1, 1, 0}, {16, 1, 1, 0}, {33, 1, 1, 0}, {80, 1, 1, 0}, {129, 1, 1, 2}, {0, 0, 0, 0}};
static const shape gated[] = {{1, 1, 1, 0}, {8, 1, 1, 0}, {33, 1, 1, 0}, {0, 0, 0, 0}};
static const shape normed[] = {{1, 1, 1, 0}, {3, 1, 1, 0}, {8, 1, 1, 0}, {33, 1, 1, 0},
    {129, 1, 1, 0}, {320, 1, 1, 1}, {0, 0, 0, 0}};
static const shape turned[] = {{1, 1, 1, 0}, {8, 1, 1, 0}, {96, 1, 1, 0}, {128, 1, 1, 1},
    {256, 1, 1, 1}, {0, 0, 0, 0}};
static const shape states[] = {{7, 5, 2, 1}, {16, 16, 2, 1}, {6, 32, 1, 2}, {128, 32, 1, 1},
    {0, 0, 0, 0}};
static const shape quantized[] = {{1, 1, 1, 5}, {3, 1, 1, 5}, {8, 1, 1, 5}, {33, 1, 1, 5},
    {129, 1, 1, 5}, {6912, 1, 1, 1}, {0, 0, 0, 0}};
static const shape integer[] = {{128, 37, 1, 0}, {128, 5, 2, 0}, {256, 35, 3, 0}, {384, 9, 5, 0},
    {128, 17, 8, 0}, {256, 19, 33, 0}, {2560, 33, 1, 0}, {2560, 2, 33, 0}, {6912, 3, 2, 0},
    {6912, 2, 5, 0}, {0, 0, 0, 0}};
static const shape halves[] = {{256, 9, 1, 0}, {128, 2, 33, 0}, {0, 0, 0, 0}};
static const shape codes[] = {{384, 37, 1, 0}, {256, 5, 33, 0}, {0, 0, 0, 0}};
static const shape in_blocks[] = {{512, 9, 1, 0}, {768, 3, 5, 0}, {256, 2, 33, 0}, {0, 0, 0, 0}};
static const shape grouped[] = {{256, 37, 1, 0}, {256, 6, 2, 0}, {256, 35, 3, 0}, {512, 9, 5, 0},
    {768, 16, 8, 0}, {2560, 33, 1, 0}, {2560, 2, 33, 0}, {6912, 3, 2, 0}, {0, 0, 0, 0}};
static const shape floats[] = {{1, 3, 1, 0}, {23, 5, 2, 0}, {45, 6, 3, 0}, {64, 17, 5, 0},
    {80, 3, 8, 0}, {128, 4, 33, 0}, {2560, 5, 1, 0}, {6912, 3, 2, 0}, {0, 0, 0, 0}};
static const shape mixes[] = {{1, 3, 1, 0}, {17, 5, 2, 0}, {64, 9, 1, 0}, {20, 21, 3, 0},
    {16, 70, 5, 0}, {8, 9, 8, 0}, {3, 40, 33, 0}, {0, 0, 0, 0}};
static const shape keys[] = {{4, 64, 2, 0}, {36, 64, 1, 0}, {128, 64, 3, 0}, {0, 0, 0, 0}};
static const shape cached[] = {{20, 64, 2, 0}, {80, 64, 1, 0}, {64, 128, 3, 0}, {0, 0, 0, 0}};
static const shape blocks[] = {{64, 1, 1, 0}, {128, 1, 1, 0}, {MOST_POSITIONS, 1, 1, 1},
    {0, 0, 0, 0}};

static const op ops[] = {
    {"quantize", 0, 1, 0, quantized, run_quantize},
    {"dotrows_ternary", 't', 1, 0, integer, run_int_dots},
    {"dotrows_u4", 'n', 1, 0, halves, run_int_dots},
    {"dotrows_groups Q2_0", 'g', 1, 0, grouped, run_group_dots},
    {"dotrows_groups PQ2_0", 'g', 1, 1, grouped, run_group_dots},
    {"dotrows_groups TQ2_0", 'g', 1, 2, grouped, run_group_dots},
    {"dotrows_groups Q1_0", 'g', 1, 3, grouped, run_group_dots},
    {"dotrows_groups PTQ1_0", 'g', 1, 4, grouped, run_group_dots},
    {"dotrows_f32", 'f', 1, 0, floats, run_float_dots},
    {"dotrows_f16", 'h', 1, 0, floats, run_float_dots},
    {"dotrows_bf16", 'b', 1, 0, floats, run_float_dots},
    {"scores_f16", 'h', 1, 1, floats, run_float_dots},
    {"sumrows_f32", 'f', 1, 0, mixes, run_sumrows},
    {"sumrows_f16", 'h', 1, 0, mixes, run_sumrows},
    {"scores_i8", 'k', 1, 0, keys, run_scores_i8},
    {"weigh_i8", 0, 1, 0, blocks, run_weigh_i8},
    {"weigh_i8 part", 0, 1, 9, blocks, run_weigh_i8},
    {"sumrows_i8", 'v', 1, 0, cached, run_sumrows_i8},
    {"softmax", 0, 1, 0, vectors, run_softmax},
    {"softmax shortened", 0, 1, 1, vectors, run_softmax},
    {"rope", 0, 1, 0, vectors, run_rope},
    {"rope shortened", 0, 1, 1, vectors, run_rope},
    {"store_f16", 0, 1, 0, vectors, run_store_f16},
    {"dequantize", 0, 1, 0, vectors, run_dequantize},
    {"dequantize added", 0, 1, 1, vectors, run_dequantize},
    {"relu2_gate", 0, 1, 0, vectors, run_relu2_gate},
    {"silu_gate", 0, 1, 0, gated, run_sigmoid_gate},
    {"gelu_gate", 0, 1, 1, gated, run_sigmoid_gate},
    {"rmsnorm", 0, 1, 0, normed, run_rmsnorm},
    {"sigmoid", 0, 1, 0, gated, run_sigmoid},
    {"hadamard", 0, 1, 0, turned, run_hadamard},
    {"delta_rule", 'f', 1, 0, states, run_delta_rule},
    {"dotrows_i2s", 'i', 1, 0, codes, run_int_dots},
    {"dotrows_q4_k", '4', 1, 0, in_blocks, run_float_dots}
};

/* ---- all of them ---- */

static void run(const bitnet_kernels *k, const op *o, const shape *s, uint32_t seed, values *out) {
    random_state = seed;               /* an operation may change its inputs: make them again */
    out->n = 0;
    make_inputs(o, s);
    o->run(k, o, s, out);
}

/* What is compared with scalar. Asking the CPU takes long on a virtual machine: it is done once. */
static const bitnet_kernels *tables[64];
static int n_tables;

static void list_tables(const bitnet_kernels *only) {
    int i;
    for (i = n_tables = 0; i < bitnet_kernels_count() && n_tables < 64; i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        if (k != scalar && (!only || k == only) && bitnet_kernels_usable(k)) tables[n_tables++] = k;
    }
}

/* Returns how many tables differ from scalar. A message comes once for each table and operation. */
static int check_op(const op *o, const shape *s, uint32_t seed) {
    static const op *told[64];         /* by table */
    const char *kind_name = is_int(o) ? int_kinds[kind] : kinds[kind].name;
    char what[128];
    int i, n_wrong = 0;
    snprintf(what, sizeof what, "%s n=%d", o->name, s->n);
    if (o->weights) snprintf(what + strlen(what), 64, " rows=%d cols=%d", s->rows, s->cols);
    snprintf(what + strlen(what), 64, " %s seed=%lu", kind_name, (unsigned long)seed);
    run(scalar, o, s, seed, &expected);
    write_line(what, "scalar", &expected);
    for (i = 0; i < n_tables; i++) {
        const bitnet_kernels *k = tables[i];
        size_t at;
        run(k, o, s, seed, &got);
        at = first_difference(&expected, &got);
        if (at == expected.n) continue;            /* got has as many */
        write_line(what, k->name, &got);
        if (told[i] != o)
            fprintf(stderr, "crosscheck: kernel %s is wrong: %s, element %lu: %s instead of %s\n",
                    k->name, what, (unsigned long)at, show_value(got.v[at].type, got.v[at].bits),
                    show_value(expected.v[at].type, expected.v[at].bits));
        told[i] = o;
        n_wrong++;
    }
    return n_wrong;
}

int check_kernels(const bitnet_kernels *only) {
    size_t i;
    int n_wrong = 0, seed;
    const shape *s;
    scalar = bitnet_kernels_find("scalar");
    list_tables(only);
    for (i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        const int n_kinds = is_int(&ops[i]) ? 2 : HALVES;
        for (s = ops[i].shapes; s->n; s++)
            for (kind = 0; kind < (s->kinds ? s->kinds : n_kinds); kind++)
                for (seed = 1; seed <= ops[i].seeds; seed++)
                    n_wrong += check_op(&ops[i], s, (uint32_t)seed);
    }
    return n_wrong;
}

void softmax(float *p, int n) { bitnet_kernels_find("scalar")->softmax(p, n, 1, 0); }
