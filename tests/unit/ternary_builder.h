/* Encoders of the other ternary types, place by place from the formats' definitions: TL1 and TL2 in
   tiles, TL2_R16, TQ1_0, TQ2_0, PTQ1_0 and both kinds of Q2_0 in blocks; and models that hold
   them. */
#ifndef TERNARY_BUILDER_H
#define TERNARY_BUILDER_H

#include "gguf_builder.h"

enum { IMP_TQ1 = 34, IMP_TQ2 = 35, IMP_I2S = 36, IMP_TL1 = 38, IMP_TL2 = 39, IMP_Q1 = 41,
       IMP_Q2 = 42, IMP_PQ2 = 142, IMP_PTQ1 = 143, IMP_MXFP4 = 1000, IMP_TL2R = 20016 };

static struct imp_setting {
    uint32_t type;
    bitnet_tile tile;
    float block;                       /* every block's scale; 0: the tensor's, cut to F16 */
    int separate;                      /* 1: the block's scale times a tensor of its own */
    int differ;                        /* 1: blocks differ, half to one and a half times that */
    uint32_t number;                   /* the type's number in the file; 0: its own */
} imp;

static struct imp_shapes { const bitnet_shape_tile *tiles; int n; } imp_shapes;  /* first, if any */

/* Gives imp the tile of a shape; n 0: it stays. */
static inline void imp_take_tile(int rows, int n) {
    int i;
    for (i = 0; i < imp_shapes.n; i++)
        if (imp_shapes.tiles[i].rows == rows && imp_shapes.tiles[i].n == n)
            imp.tile = imp_shapes.tiles[i].tile;
}

static inline int imp_pair(const int8_t *w) { return 3 * w[0] + w[1] + 4; }

static inline void imp_tl1(const gb_linear *l, uint8_t *out) {
    const int K = l->n_in, BM = imp.tile.rows, BY = imp.tile.cols, bm = imp.tile.group;
    const int by = 256 / bm;
    int m, p;
    for (m = 0; m < l->n_out; m++)
        for (p = 0; p < K / 2; p += 2) {
            const int k = 2 * p, tm = m / BM, mb = m % BM / bm, mg = m % bm / 16, ml = m % 16;
            const int kb = k / BY, pb = k % BY / by, pq = k % by / 4;
            const int8_t *w = l->w + (size_t)m * (size_t)K + k;
            const int at = (((((tm * (K / BY) + kb) * (BM / bm) + mb) * (BY / by) + pb) *
                             (bm / 16) + mg) * (by / 4) + pq) * 16 + ml;
            out[at] = (uint8_t)(imp_pair(w) << 4 | imp_pair(w + 2));
        }
}

/* Where things of weight (m, k) are in a TL2 tensor; *bit counts from a word's lowest. */
static inline size_t imp_index_at(const gb_linear *l, int m, int k, int *shift) {
    static const int back[4] = {0, 2, 1, 3};             /* P is its own inverse */
    const int BM = imp.tile.rows, BY = imp.tile.cols, K3 = l->n_in / BY * BY, t = k / 3;
    const int kb = t / (BY / 3), pb = t % (BY / 3) / 2, x = back[m % 32 / 8] * 8 + m % 8;
    *shift = t % 2 ? 0 : 4;
    return (size_t)((((m / BM * (K3 / BY) + kb) * (BM / 32) + m % BM / 32) * (BY / 6) + pb) * 32 +
                    x);
}

static inline size_t imp_sign_at(const gb_linear *l, int m, int k, int *bit) {
    const int BM = imp.tile.rows, BY = imp.tile.cols, K3 = l->n_in / BY * BY, t = k / 3;
    const int kb = t / (BY / 3), sb = t % (BY / 3) / 8, j = t % 8, h = m % 32 / 16, c = m % 16;
    const int block = ((m / BM * (K3 / BY) + kb) * (BM / 32) + m % BM / 32) * (BY / 24) + sb;
    *bit = 15 - (2 * j + h);
    return (size_t)(l->n_out * K3 / 6 + 32 * block + 2 * c);
}

static inline size_t imp_pair_at(const gb_linear *l, int m, int k, int *shift) {
    static const int back[4] = {0, 2, 1, 3};
    const int BM = imp.tile.rows, BY = imp.tile.cols, K3 = l->n_in / BY * BY, K2 = l->n_in - K3;
    const int p = (k - K3) / 2, kb = p / 16, pb = p % 16 / 2, x = back[m % 32 / 8] * 8 + m % 8;
    *shift = p % 2 ? 0 : 4;
    return (size_t)(l->n_out * K3 / 6 + l->n_out * K3 / 24 +
                    (((m / BM * (K2 / 32) + kb) * (BM / 32) + m % BM / 32) * 8 + pb) * 32 + x);
}

static inline size_t imp_tl2_size(const gb_linear *l) {
    size_t n = (size_t)(l->n_in - 256) * (size_t)l->n_out / 3 * 5 / 8 +
               256 * (size_t)l->n_out / 2 * 4 / 8;
    return (n + 31) / 32 * 32 + 32;
}

static inline void imp_tl2(const gb_linear *l, uint8_t *out) {
    const int K3 = l->n_in / imp.tile.cols * imp.tile.cols;
    int m, k, at;
    for (m = 0; m < l->n_out; m++) {
        const int8_t *w = l->w + (size_t)m * (size_t)l->n_in;
        for (k = 0; k < K3; k += 3) {
            const int n = 9 * w[k] + 3 * w[k + 1] + w[k + 2];
            size_t byte = imp_index_at(l, m, k, &at);
            out[byte] |= (uint8_t)((n < 0 ? -n : n) << at);
            byte = imp_sign_at(l, m, k, &at);
            if (n < 0) out[byte + (at > 7)] |= (uint8_t)(1 << at % 8);
        }
        for (; k < l->n_in; k += 2) {
            const size_t byte = imp_pair_at(l, m, k, &at);
            out[byte] |= (uint8_t)(imp_pair(w + k) << at);
        }
    }
}

static inline size_t imp_tl2r_group(int n) {
    const int sets = (n + 23) / 24;
    return (size_t)(sets / 4 * 320 + (sets % 4 ? 64 + sets % 4 * 64 : 0));
}

static inline size_t imp_tl2r_size(const gb_linear *l) {
    return (size_t)((l->n_out + 15) / 16) * imp_tl2r_group(l->n_in) + 32;
}

/* Where the triple of weight (m, k) is in a TL2_R16 tensor: its nibble, and its fifth. */
static inline size_t imp_nibble_at(const gb_linear *l, int m, int k, int *shift) {
    const int set = k / 24, h = k % 24 / 12, t = k % 4;
    *shift = 4 * h;
    return (size_t)(m / 16) * imp_tl2r_group(l->n_in) +
           (size_t)(set / 4 * 320 + 64 + set % 4 * 64 + 4 * (m % 16) + t);
}

static inline size_t imp_fifth_at(const gb_linear *l, int m, int k, int *bit) {
    const int set = k / 24, h = k % 24 / 12, t = k % 4;
    *bit = 2 * (set % 4) + h;
    return (size_t)(m / 16) * imp_tl2r_group(l->n_in) + (size_t)(set / 4 * 320 + 4 * (m % 16) + t);
}

/* Triples by trial: 27 values, each for other codes. The rows behind the last one repeat it. */
static inline void imp_tl2r(const gb_linear *l, uint8_t *out) {
    int m, k, j, nibble, fifth, code[3], at;
    for (m = 0; m < (l->n_out + 15) / 16 * 16; m++)
        for (k = 0; k < l->n_in; k += k % 4 == 3 ? 9 : 1) {        /* the first of each triple */
            const int8_t *w = l->w + (size_t)(m < l->n_out ? m : l->n_out - 1) * (size_t)l->n_in;
            size_t byte;
            for (j = 0; j < 3; j++) code[j] = k + 4 * j < l->n_in ? w[k + 4 * j] + 1 : 0;
            for (nibble = 5 * code[1], fifth = 0;; fifth++) {
                const int x = nibble % 5;
                if (fifth == 2 || (fifth && x == 4)) fifth = 0, nibble++;
                if ((nibble % 5 < 3 ? nibble % 5 : nibble % 5 == 3 ? 2 * fifth : 1) == code[0] &&
                    (nibble % 5 < 3 ? fifth : 2) == code[2]) break;
            }
            byte = imp_nibble_at(l, m, k, &at);
            out[byte] |= (uint8_t)(nibble << at);
            byte = imp_fifth_at(l, m, k, &at);
            out[byte] |= (uint8_t)(fifth << at);
        }
}

/* Weights, bytes and the scale's place in a block; 0 weights: the type has no blocks. */
typedef struct imp_shape { int weights, bytes, scale_at; } imp_shape;
static inline imp_shape imp_shape_of(uint32_t type) {
    const imp_shape none = {0, 0, 0}, tq1 = {256, 54, 52}, tq2 = {256, 66, 64}, q2 = {64, 18, 0},
                    pq2 = {128, 34, 0}, q1 = {128, 18, 0}, ptq1 = {128, 28, 26};
    return type == IMP_TQ1 ? tq1 : type == IMP_TQ2 ? tq2 : type == IMP_Q2 ? q2
         : type == IMP_PQ2 ? pq2 : type == IMP_Q1 ? q1 : type == IMP_PTQ1 ? ptq1 : none;
}

/* The weights of one block; those of Q1_0 are not 0. TQ1_0 and PTQ1_0: digits in base 3, most
   significant first, of a number that is then scaled from 243 to 256, rounded up. */
static inline void imp_block(uint32_t type, const int8_t *w, uint8_t *out) {
    int i, j, n;
    if (type == IMP_Q2 || type == IMP_PQ2)
        for (i = 0; i < imp_shape_of(type).weights; i++)
            out[2 + i / 4] |= (uint8_t)((w[i] + 1) << 2 * (i % 4));
    else if (type == IMP_Q1)
        for (i = 0; i < 128; i++) out[2 + i / 8] |= (uint8_t)((w[i] > 0) << i % 8);
    else if (type == IMP_TQ2)
        for (i = 0; i < 64; i++)
            for (j = 0; j < 4; j++)
                out[i] |= (uint8_t)((w[i / 32 * 128 + i % 32 + 32 * j] + 1) << 2 * j);
    else {
        const int a = type == IMP_TQ1 ? 32 : 16, b = a / 2, c = a / 8;     /* bytes of each part */
        for (i = 0; i < a + b + c; i++) {
            for (n = 0, j = 0; j < 5; j++) {
                const int at = i < a ? i + a * j : i < a + b ? 5 * a + i - a + b * j
                                                             : 5 * (a + b) + i - a - b + c * j;
                n = 3 * n + (i >= a + b && j == 4 ? 0 : w[at] + 1);
            }
            out[i] = (uint8_t)((n * 256 + 242) / 243);
        }
    }
}

static inline float imp_cut(float x) { return bitnet__f16_to_f32(bitnet__f32_to_f16(x)); }

/* n weights with these scales, one a block: a heap block. */
static inline uint8_t *imp_blocks(uint32_t type, const int8_t *w, size_t n, const float *scales,
                                  size_t *size) {
    const imp_shape s = imp_shape_of(type);
    const size_t count = n / (size_t)s.weights;
    uint8_t *out;
    size_t i;
    *size = count * (size_t)s.bytes;
    out = (uint8_t *)calloc(*size, 1);
    if (!out) exit(3);
    for (i = 0; i < count; i++) {
        uint8_t *block = out + i * (size_t)s.bytes;
        const uint16_t half = bitnet__f32_to_f16(scales[i]);
        imp_block(type, w + i * (size_t)s.weights, block);
        block[s.scale_at] = (uint8_t)half;
        block[s.scale_at + 1] = (uint8_t)(half >> 8);
    }
    return out;
}

/* Blocks. Where they are groups, l says so. */
static inline uint8_t *imp_encode_blocks(gb_linear *l, size_t *size) {
    const size_t n = (size_t)l->n_in * (size_t)l->n_out;
    const int weights = imp_shape_of(imp.type).weights;
    const size_t count = n / (size_t)weights;
    const float scale = imp.block == 0.0f ? l->scale : imp.block;
    uint64_t random = 77 + n;
    uint8_t *out;
    size_t i;
    l->scales = (float *)gb_malloc(count * sizeof *l->scales);
    for (i = 0; i < count; i++)
        l->scales[i] = imp_cut(imp.differ ? scale * (float)gb_uniform(&random, 0.5, 1.5) : scale);
    if (imp.differ || weights < 256) l->group = weights;
    out = imp_blocks(imp.type, l->w, n, l->scales, size);
    return out;
}

static inline uint8_t *imp_encode(gb_linear *l, uint32_t *type, size_t *size) {
    const size_t n = (size_t)l->n_in * (size_t)l->n_out;
    uint8_t *out;
    size_t i;
    int shift;
    imp_take_tile(l->n_out, l->n_in);
    *type = imp.number ? imp.number : imp.type == IMP_MXFP4 ? IMP_TL2 : imp.type;
    if (!imp.separate && imp.block == 0.0f) l->scale = imp_cut(l->scale);
    if (imp_shape_of(imp.type).weights) return imp_encode_blocks(l, size);
    *size = imp.type == IMP_TL2 ? imp_tl2_size(l)
          : imp.type == IMP_TL2R ? imp_tl2r_size(l)
          : imp.type == IMP_MXFP4 ? n / 32 * 17 : n / 4 + 32;
    out = (uint8_t *)calloc(*size, 1);
    if (!out) exit(3);
    if (imp.type == IMP_TL1) imp_tl1(l, out);
    if (imp.type == IMP_TL2) imp_tl2(l, out);
    if (imp.type == IMP_TL2R) imp_tl2r(l, out);
    for (i = 0; imp.type == IMP_I2S && i < n; i++) {
        const size_t at = gb_code_at(BITNET_I2S_128, (size_t)l->n_in, i, &shift);
        out[at] |= (uint8_t)((l->w[i] + 1) << shift);
    }
    if (imp.type != IMP_MXFP4) {
        gb_buf b = {0};
        gb_float(&b, imp.type == IMP_I2S && imp.separate ? imp.block * l->scale : l->scale);
        memcpy(out + *size - 32, b.p, 4);
        free(b.p);
    }
    return out;
}

/* Shape 0 and 1 are for tiles, 0 with rows of whole blocks of 128 and several tiles each way; 2 is
   for blocks. 3 and 4 are for row packs that are not full, 4 with whole blocks of 128. */
static inline gb_model imp_model(int shape) {
    static const int sizes[5][5] = {
        {384, 640, 4, 2, 96}, {320, 448, 2, 1, 160}, {256, 512, 4, 2, 64},
        {192, 328, 2, 1, 100}, {256, 384, 32, 1, 20}};
    gb_model g = {.dim = sizes[shape][0], .ffn = sizes[shape][1], .layers = 1,
                  .heads = sizes[shape][2], .kv_heads = sizes[shape][3],
                  .head_dim = sizes[shape][4], .embed_type = GB_TENSOR_F16, .n_ctx = 16,
                  .seed = 31};
    g.encode = imp_encode;
    if (imp.type < IMP_I2S && imp.separate) g.scale_suffix = ".scale";
    gb_make_model(&g);
    return g;
}

#endif
