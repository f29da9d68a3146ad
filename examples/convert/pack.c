#include "pack.h"
#include "../json/text.h"
#include <stdlib.h>
#include <string.h>

static const char *pack_type_name(uint32_t type) {
    const char *name = bitnet_tensor_type_name(type);
    return name ? name : "unknown";
}

/* The lowest n bytes of v, little-endian. */
static void pack_store(uint8_t *p, uint32_t v, int n) {
    for (; n > 0; n--, v >>= 8) *p++ = (uint8_t)v;
}

static uint32_t pack_float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Stores an F16, rounded to nearest, ties to even, and returns its value. Below 2^-14 its last bit
   is 2^-24, as is that of a float in [0.5, 1): adding 0.5 rounds to it. */
static float pack_f16(float x, uint8_t *out) {
    const uint32_t bits = pack_float_bits(x), rest = bits & 0x7fffffff;
    uint32_t half;
    float y = 0;
    if (rest < 0x38800000) half = pack_float_bits((x < 0 ? -x : x) + 0.5f) - 0x3f000000;
    else if (rest < 0x477ff000) half = (rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13;
    else half = 0x7c00;                /* from 65520 on: infinity */
    half |= bits >> 16 & 0x8000;
    out[0] = (uint8_t)half;
    out[1] = (uint8_t)(half >> 8);
    bitnet_floats_unpack(BITNET_TENSOR_F16, out, 1, &y, 0);
    return y;
}

static float pack_abs(float x) { return x < 0 ? -x : x; }

float pack_half(float x) {
    uint8_t bytes[2];
    return pack_f16(x, bytes);
}

/* ---- ternary weights; PACKINGS in bitnet.h draws those of I2_S ---- */

/* The types with an F16 scale in each block: its weights, its bytes, where the scale is, the
   largest weight, and whether there is a weight 0. */
static const struct pack_blocks {
    uint32_t type;
    int32_t weights, bytes, scale, most, has_zero;
} pack_blocks[] = {
    {BITNET_TENSOR_TQ1_0, 256, 54, 52, 1, 1}, {BITNET_TENSOR_TQ2_0, 256, 66, 64, 1, 1},
    {BITNET_TENSOR_Q2_0, 64, 18, 0, 2, 1}, {BITNET_TENSOR_PQ2_0, 128, 34, 0, 2, 1},
    {BITNET_TENSOR_PTQ1_0, 128, 28, 26, 1, 1}, {BITNET_TENSOR_Q1_0, 128, 18, 0, 1, 0}
};

static const struct pack_blocks *pack_find(uint32_t type) {
    size_t i;
    for (i = 0; i < sizeof pack_blocks / sizeof pack_blocks[0]; i++)
        if (pack_blocks[i].type == type) return &pack_blocks[i];
    return 0;
}

int32_t pack_group(uint32_t type) {
    const struct pack_blocks *b = pack_find(type);
    return b ? b->weights : 0;
}

/* Where the scale of a block is, as an offset into the tensor. */
static size_t pack_scale_at(const bitnet_ternary *t, int32_t row, int32_t block) {
    const struct pack_blocks *b = pack_find(t->type);
    const size_t per_row = b ? (size_t)(t->n / b->weights) : 0;
    if (!b) return 0;                  /* no such type comes here */
    return ((size_t)row * per_row + (size_t)block) * (size_t)b->bytes + (size_t)b->scale;
}

static size_t pack_tensor_size(const bitnet_ternary *t) {
    uint64_t dims[2];
    dims[0] = (uint64_t)t->n;
    dims[1] = (uint64_t)t->rows;
    return (size_t)bitnet_tensor_size(t->type, 2, dims);
}

/* Sets the bits of a byte under mask to those of v. */
static void pack_bits(uint8_t *p, uint32_t mask, uint32_t v) {
    *p = (uint8_t)((*p & ~mask) | v);
}

/* Two pairs of weights, each pair a digit of base 9. */
static uint8_t pack_pairs(const int8_t *w) {
    return (uint8_t)((3 * w[0] + w[1] + 4) << 4 | (3 * w[2] + w[3] + 4));
}

/* In a group of 128 weights (BITNET_I2S_64: 64) the first quarter is in the highest two bits of its
   bytes, and so on. BITNET_I2S_4ROW groups four rows in the same way. A run of weights is next to
   each other, at one shift. */
static void pack_row_i2s(const bitnet_ternary *t, size_t row, const int8_t *w, uint8_t *data) {
    const size_t n = (size_t)t->n, quarter = t->i2s_packing == BITNET_I2S_128 ? 32 : 16;
    size_t k, run, i;
    for (k = 0; k < n; k += run) {
        const size_t at = row * n + k;
        size_t byte = at / (4 * quarter) * quarter + at % quarter, part = at / quarter % 4;
        uint32_t shift;
        run = quarter - at % quarter;
        if (t->i2s_packing == BITNET_I2S_4ROW) {
            byte = row / 4 * n;
            part = row % 4;
            run = n;
        }
        if (run > n - k) run = n - k;
        shift = 6 - 2 * (uint32_t)part;
        for (i = 0; i < run; i++)
            pack_bits(data + byte + i, 3u << shift, (uint32_t)(w[k + i] + 1) << shift);
    }
}

static void pack_row_tl1(const bitnet_ternary *t, size_t row, const int8_t *w, uint8_t *data) {
    const size_t BM = (size_t)t->tile.rows, BK = (size_t)t->tile.cols, bm = (size_t)t->tile.group;
    const size_t n = (size_t)t->n, by = 256 / bm;
    size_t k;
    for (k = 0; k < n; k += 4, w += 4) {
        const size_t tile = (row / BM * (n / BK) + k / BK) * (BM / bm) + row % BM / bm;
        const size_t group = (tile * (BK / by) + k % BK / by) * (bm / 16) + row % bm / 16;
        data[(group * (by / 4) + k % by / 4) * 16 + row % 16] = pack_pairs(w);
    }
}

/* Triplets of columns [0, k3) as indices, then their signs, then the other columns as pairs. */
static void pack_row_tl2(const bitnet_ternary *t, size_t row, const int8_t *w, uint8_t *data) {
    static const uint8_t order[4] = {0, 2, 1, 3};
    const size_t BM = (size_t)t->tile.rows, BK = (size_t)t->tile.cols, rows = (size_t)t->rows;
    const size_t n = (size_t)t->n, k2 = n % BK, k3 = n - k2;
    const size_t signs_at = (size_t)((uint64_t)rows * k3 / 6);
    const size_t pairs_at = signs_at + (size_t)((uint64_t)rows * k3 / 24);
    const size_t block = row % BM / 32, x = order[row % 32 / 8] * 8u + row % 8;
    size_t k, j;
    for (k = 0; k < k3; k += 24) {
        const size_t tile = (row / BM * (k3 / BK) + k / BK) * (BM / 32) + block;
        const size_t unit = tile * (BK / 24) + k % BK / 24;
        uint8_t *signs = data + signs_at + unit * 32 + 2 * (row % 16);
        for (j = 0; j < 8; j++, w += 3) {
            const int v = 9 * w[0] + 3 * w[1] + w[2];
            const uint32_t index = (uint32_t)(v < 0 ? -v : v);
            const uint32_t bit = 15 - (2 * (uint32_t)j + (uint32_t)(row % 32 / 16));
            pack_bits(data + unit * 128 + j / 2 * 32 + x, j % 2 ? 0x0fu : 0xf0u,
                      j % 2 ? index : index << 4);
            pack_bits(signs + bit / 8, 1u << bit % 8, (v < 0 ? 1u : 0u) << bit % 8);
        }
    }
    for (k = 0; k < k2; k += 4, w += 4) {
        const size_t tile = (row / BM * (k2 / 32) + k / 32) * (BM / 32) + block;
        data[pairs_at + (tile * 8 + k % 32 / 4) * 32 + x] = pack_pairs(w);
    }
}

/* 24 weights at a time as eight triples, which bitnet.h draws: nibble 5 b + m and a fifth bit for
   the codes a, b, c. The last row is repeated to the end of its group of 16. */
static void pack_row_tl2_r16(const bitnet_ternary *t, size_t row, const int8_t *w, uint8_t *data) {
    static const uint8_t m[3][3] = {{0, 0, 3}, {1, 1, 4}, {2, 2, 3}};      /* by a, c */
    static const uint8_t s[3][3] = {{0, 1, 0}, {0, 1, 0}, {0, 1, 1}};
    const size_t n = (size_t)t->n, sets = (n + 23) / 24;
    const size_t last = row + 1 < (size_t)t->rows ? row : row / 16 * 16 + 15;
    uint8_t *group = data + row / 16 * (sets + (sets + 3) / 4) * 64;
    size_t i, x, r, k;
    for (i = 0; i < sets; i++)
        for (x = 0; x < 8; x++) {
            const size_t at = 24 * i + x / 4 * 12 + x % 4;
            uint8_t *fifths = group + i / 4 * 320 + x % 4, *nibbles = fifths + 64 + i % 4 * 64;
            const uint32_t bit = (uint32_t)(i % 4 * 2 + x / 4), shift = x / 4 ? 4 : 0;
            uint8_t code[3];
            for (k = 0; k < 3; k++) code[k] = at + 4 * k < n ? (uint8_t)(w[at + 4 * k] + 1) : 0;
            for (r = row; r <= last; r++) {
                pack_bits(nibbles + r % 16 * 4, 15u << shift,
                          (5u * code[1] + m[code[0]][code[2]]) << shift);
                pack_bits(fifths + r % 16 * 4, bit ? 1u << bit : 255u,
                          (uint32_t)s[code[0]][code[2]] << bit);
            }
        }
}

/* `digits` times n weights as n bytes: first the first digit of each, then the second ones. Up to
   five digits make a number below 243, the first of 81s, which is stored as a fraction of 243 in
   256ths, rounded up. */
static void pack_digits(const int8_t *w, int n, int digits, uint8_t *out) {
    int i, j;
    for (i = 0; i < n; i++) {
        uint32_t x = 0;
        for (j = 0; j < 5; j++)
            x = 3 * x + (j < digits ? (uint32_t)(w[n * j + i] + 1) : 0);
        out[i] = (uint8_t)((x * 256 + 242) / 243);
    }
}

/* A block of 256 weights as 52 bytes (TQ1_0), or of 128 as 26 (PTQ1_0). */
static void pack_block_digits(const int8_t *w, int32_t n, uint8_t *out) {
    const int part = n / 8, few = n / 64;      /* bytes */
    pack_digits(w, part, 5, out);
    pack_digits(w + 5 * part, part / 2, 5, out + part);
    pack_digits(w + n - 4 * few, few, 4, out + part / 2 * 3);
}

/* A block of 256 weights as 64 bytes of four codes (TQ2_0), the first in the lowest bits. */
static void pack_block_tq2(const int8_t *w, uint8_t *out) {
    int i, j;
    for (i = 0; i < 64; i++) {
        uint32_t x = 0;
        for (j = 0; j < 4; j++)
            x |= (uint32_t)(w[i / 32 * 128 + i % 32 + 32 * j] + 1) << 2 * j;
        out[i] = (uint8_t)x;
    }
}

static int pack_any(const int8_t *w, int32_t n) {
    int32_t i;
    for (i = 0; i < n && !w[i]; i++) {}
    return i < n;
}

/* A block of 128 weights as 16 bytes of eight neighbours (Q1_0), the first in the lowest bit. There
   the scale says whether the weights are 0: for zeros it becomes 0, for others 1 if it was 0. */
static void pack_block_q1(const int8_t *w, uint8_t *out) {
    int i;
    if (!pack_any(w, 128)) out[0] = out[1] = 0;
    else if (!out[0] && !(out[1] & 0x7f)) out[1] = 0x3c;
    memset(out + 2, 0, 16);
    for (i = 0; i < 128; i++) out[2 + i / 8] |= (uint8_t)((w[i] >= 0) << i % 8);
}

/* n weights as n / 4 bytes of four neighbours (Q2_0), the first in the lowest bits. */
static void pack_block_q2(const int8_t *w, int32_t n, uint8_t *out) {
    int32_t i;
    for (i = 0; i < n; i += 4, w += 4)
        *out++ = (uint8_t)((w[0] + 1) | (w[1] + 1) << 2 | (w[2] + 1) << 4 | (w[3] + 1) << 6);
}

static void pack_row_blocks(const bitnet_ternary *t, int32_t row, const int8_t *w, uint8_t *data) {
    const struct pack_blocks *b = pack_find(t->type);
    uint8_t *p = data + (size_t)row * (size_t)(t->n / b->weights) * (size_t)b->bytes;
    int32_t k;
    for (k = 0; k < t->n; k += b->weights, w += b->weights, p += b->bytes) {
        if (t->type == BITNET_TENSOR_TQ1_0 || t->type == BITNET_TENSOR_PTQ1_0)
            pack_block_digits(w, b->weights, p);
        else if (t->type == BITNET_TENSOR_TQ2_0) pack_block_tq2(w, p);
        else if (t->type == BITNET_TENSOR_Q1_0) pack_block_q1(w, p);
        else pack_block_q2(w, b->weights, p + 2);
    }
}

/* Has the matrix passed bitnet_ternary_check, and does it have these rows? */
static bitnet_result pack_check(const bitnet_ternary *t, const void *data, const void *rows,
                                int32_t row, int32_t n_rows, bitnet_error *err) {
    bitnet_ternary copy;
    if (!t || !data || !rows || row < 0 || n_rows < 0 || (int64_t)row + n_rows > t->rows)
        return set_error(err, BITNET_ERR_ARG, "the rows to pack are not in the matrix");
    copy = *t;
    return bitnet_ternary_check(&copy, "ternary", err);
}

/* The column of a weight that the type cannot hold, in a row; t->n: there is none. */
static int32_t pack_find_misfit(const bitnet_ternary *t, const int8_t *w) {
    const struct pack_blocks *b = pack_find(t->type);
    const int most = b ? b->most : 1;
    int32_t k, i;
    int bad = 0;
    for (i = 0; i < t->n; i++) bad |= w[i] < -1 || w[i] > most;
    for (i = 0; bad && i < t->n; i++)
        if (w[i] < -1 || w[i] > most) return i;
    for (k = 0; b && !b->has_zero && k < t->n; k += b->weights) {
        if (!pack_any(w + k, b->weights)) continue;
        for (i = k; i < k + b->weights; i++)
            if (!w[i]) return i;
    }
    return t->n;
}

bitnet_result pack_fits(const bitnet_ternary *t, const int8_t *weights, int32_t row,
                        int32_t n_rows, bitnet_error *err) {
    const int8_t *w = weights;
    int32_t r, i;
    for (r = row; r < row + n_rows; r++, w += t->n) {
        i = pack_find_misfit(t, w);
        if (i < t->n)
            return set_error(err, BITNET_ERR_ARG, "row %d, column %d is the weight %d, which %s "
                             "cannot hold%s", (int)r, (int)i, w[i], pack_type_name(t->type),
                             w[i] ? "" : " beside others");
    }
    return BITNET_OK;
}

bitnet_result pack_ternary(const bitnet_ternary *t, const int8_t *weights, int32_t row,
                           int32_t n_rows, uint8_t *data, bitnet_error *err) {
    bitnet_result result = pack_check(t, data, weights, row, n_rows, err);
    const int8_t *w = weights;
    int32_t r;
    if (result != BITNET_OK) return result;
    for (r = row; r < row + n_rows; r++, w += t->n) {
        if ((result = pack_fits(t, w, r, 1, err)) != BITNET_OK) return result;
        switch (t->type) {
            case BITNET_TENSOR_I2_S: pack_row_i2s(t, (size_t)r, w, data); break;
            case BITNET_TENSOR_TL1: pack_row_tl1(t, (size_t)r, w, data); break;
            case BITNET_TENSOR_TL2: pack_row_tl2(t, (size_t)r, w, data); break;
            case BITNET_TENSOR_TL2_R16: pack_row_tl2_r16(t, (size_t)r, w, data); break;
            default: pack_row_blocks(t, r, w, data); break;
        }
    }
    return BITNET_OK;
}

float pack_block_scale(const bitnet_ternary *t, const uint8_t *data, int32_t row, int32_t block) {
    float scale = 0;
    bitnet_floats_unpack(BITNET_TENSOR_F16, data + pack_scale_at(t, row, block), 1, &scale, 0);
    return scale;
}

void pack_clear(const bitnet_ternary *t, const uint8_t *data, int32_t row, int32_t n_rows,
                int8_t *weights) {
    const int32_t group = pack_group(t->type);
    int32_t r, k;
    for (r = row; group && r < row + n_rows; r++)
        for (k = 0; k < t->n; k += group, weights += group) {
            const uint8_t *half = data + pack_scale_at(t, r, k / group);
            if (!half[0] && !(half[1] & 0x7f)) memset(weights, 0, (size_t)group);
        }
}

/* The scale of row r's blocks: half, an F16; 0 in blocks whose weights are all 0. */
static void pack_block_scales(const bitnet_ternary *t, int32_t r, const int8_t *w,
                              const uint8_t half[2], uint8_t *data) {
    const int32_t group = pack_group(t->type);
    int32_t k;
    for (k = 0; k < t->n; k += group, w += group) {
        uint8_t *p = data + pack_scale_at(t, r, k / group);
        const int any = pack_any(w, group);
        p[0] = any ? half[0] : 0;
        p[1] = any ? half[1] : 0;
    }
}

/* The block of `from` whose scale a block of `to`, weights [k, k + group) of a row, gets: the only
   one there, or the only one with weights other than 0, or one with the same scale as all such. -1:
   there are several; these are other[0] and other[1]. */
static int32_t pack_source(const bitnet_ternary *from, const uint8_t *data, int32_t row, int32_t k,
                           int32_t group, const int8_t *w, int32_t other[2]) {
    const int32_t step = pack_group(from->type), first = k / step;
    int32_t found = -1, b;
    for (b = first; b * step < k + group; b++) {
        const int32_t low = b * step > k ? b * step : k;
        const int32_t high = (b + 1) * step < k + group ? (b + 1) * step : k + group;
        if (!pack_any(w + low, high - low)) continue;
        if (found >= 0 && memcmp(data + pack_scale_at(from, row, found),
                                 data + pack_scale_at(from, row, b), 2)) {
            other[0] = found * step;
            other[1] = b * step;
            return -1;
        }
        if (found < 0) found = b;
    }
    return found < 0 ? first : found;
}

bitnet_result pack_scales(const bitnet_ternary *to, uint8_t *out, const bitnet_ternary *from,
                          const uint8_t *data, const int8_t *weights, int32_t row, int32_t n_rows,
                          bitnet_error *err) {
    const int32_t group = pack_group(to->type);
    int32_t r, k, other[2] = {0, 0};
    for (r = row; r < row + n_rows; r++, weights += to->n)
        for (k = 0; k < to->n; k += group) {
            const int32_t source = pack_source(from, data, r, k, group, weights, other);
            if (source < 0)
                return set_error(err, BITNET_ERR_UNSUPPORTED, "row %d has other scales from column "
                                 "%d on than from %d on, and in %s %d weights share one", (int)r,
                                 (int)other[1], (int)other[0], pack_type_name(to->type),
                                 (int)group);
            if (out && (to->type != BITNET_TENSOR_Q1_0 || pack_any(weights + k, group)))
                memcpy(out + pack_scale_at(to, r, k / group),
                       data + pack_scale_at(from, r, source), 2);
        }
    return BITNET_OK;
}

/* The s of floats that are -s, 0 and s, and their signs; 0 if all are 0, -1: they are not so. */
static float pack_signs(const float *x, int32_t n, int8_t *signs) {
    float scale = 0;
    int32_t i;
    for (i = 0; i < n; i++) {
        const float a = pack_abs(x[i]);
        signs[i] = (int8_t)((x[i] > 0) - (x[i] < 0));
        if (signs[i] && !(scale > 0)) scale = a;
        if (signs[i] ? !(a >= scale && a <= scale) : a - a != 0) return -1;
    }
    return scale;
}

bitnet_result pack_rows(const bitnet_ternary *t, const float *x, int32_t row, int32_t n_rows,
                        int8_t *weights, uint8_t *data, bitnet_error *err) {
    const int32_t group = pack_group(t->type);
    bitnet_ternary rows = *t;
    bitnet_result result;
    int32_t r, k;
    rows.rows = n_rows;
    for (r = 0; r < n_rows; r++)
        for (k = 0; k < t->n; k += group, x += group) {
            uint8_t half[2] = {0, 0};
            const float scale = pack_signs(x, group, weights + (size_t)r * (size_t)t->n + k);
            if (scale < 0 || scale > 65504.0f || pack_f16(scale, half) < scale ||
                pack_half(scale) > scale)
                return set_error(err, BITNET_ERR_UNSUPPORTED, "row %d, columns %d to %d: %s",
                                 (int)(row + r), (int)k, (int)(k + group - 1), scale < 0
                                 ? "they are not -s, 0 and s" : "their scale is not an F16");
            if (data) memcpy(data + pack_scale_at(&rows, r, k / group), half, 2);
        }
    result = pack_fits(t, weights, row, n_rows, err);
    return data && !result ? pack_ternary(&rows, weights, 0, n_rows, data, err) : result;
}

bitnet_result pack_find_scale(const bitnet_ternary *t, const uint8_t *data, float *out,
                              bitnet_error *err) {
    const int32_t group = pack_group(t->type);
    bitnet_result result = BITNET_OK;
    int32_t r, k, row = -1, column = 0;        /* where the first scale is */
    int8_t *w = (int8_t *)malloc((size_t)t->n);
    if (!w) return set_error(err, BITNET_ERR_MEMORY, "no memory for a row of weights");
    for (r = 0; r < t->rows && !result; r++) {
        if ((result = bitnet_ternary_unpack(t, data, r, 1, w, err)) != BITNET_OK) break;
        pack_clear(t, data, r, 1, w);
        for (k = 0; k < t->n && !result; k += group) {
            const float scale = pack_block_scale(t, data, r, k / group);
            if (!pack_any(w + k, group)) continue;
            if (row < 0) {
                row = r;
                column = k;
                *out = scale;
            } else if (memcmp(&scale, out, sizeof scale))
                result = set_error(err, BITNET_ERR_UNSUPPORTED, "blocks of different scales: %g "
                                   "(row %d, column %d), %g (row %d, column %d); one is needed "
                                   "here", (double)*out, (int)row, (int)column, (double)scale,
                                   (int)r, (int)k);
        }
    }
    if (row < 0) *out = 1;
    free(w);
    return result;
}

bitnet_result pack_scale(const bitnet_ternary *t, float scale, uint8_t *data, bitnet_error *err) {
    bitnet_result result = pack_check(t, data, data, 0, 0, err);
    uint8_t half[2];
    int8_t *w;
    int32_t r;
    if (result != BITNET_OK) return result;
    if (!pack_find(t->type)) {
        pack_store(data + pack_tensor_size(t) - 32, pack_float_bits(scale), 4);
        return BITNET_OK;
    }
    if (!(pack_f16(scale, half) == scale))
        return set_error(err, BITNET_ERR_UNSUPPORTED, "its scale, %.9g, is not an F16, which %s "
                         "needs", (double)scale, pack_type_name(t->type));
    w = (int8_t *)malloc((size_t)t->n);
    if (!w) return set_error(err, BITNET_ERR_MEMORY, "no memory for a row of weights");
    for (r = 0; r < t->rows && !result; r++) {
        result = bitnet_ternary_unpack(t, data, r, 1, w, err);
        if (t->type == BITNET_TENSOR_Q1_0) pack_clear(t, data, r, 1, w);
        if (!result) pack_block_scales(t, r, w, half, data);
    }
    free(w);
    return result;
}

/* ---- floats ---- */

/* The nearest integer within [low, high], halves away from 0; a NaN gives low. */
static int pack_nearest(float x, int low, int high) {
    if (!(x > (float)low)) return low;
    if (x >= (float)high) return high;
    return (int)(x < 0 ? x - 0.5f : x + 0.5f);
}

/* To the nearest BF16, ties to even. Returns 0 for an infinity or a NaN. */
static int pack_bf16(float x, uint8_t *out) {
    const uint32_t bits = pack_float_bits(x);
    pack_store(out, (bits + 0x7fff + (bits >> 16 & 1)) >> 16, 2);
    return (out[1] & 0x7f) != 0x7f || out[0] < 0x80;
}

/* 32 weights: d = max|x| / 127 as an F16, then x / d to the nearest. Returns 0 if d is infinite. */
static int pack_q8_0(const float *x, uint8_t *out) {
    float most = 0, d;
    int i;
    for (i = 0; i < 32; i++) most = pack_abs(x[i]) > most ? pack_abs(x[i]) : most;
    d = pack_f16(most / 127.0f, out);
    for (i = 0; i < 32; i++)
        out[2 + i] = d > 0 ? (uint8_t)pack_nearest(x[i] / d, -127, 127) : 0;
    return d <= 65504.0f;
}

/* The scale s for which s * q, with q in -half .. half - 1, comes nearest to n weights x by the sum
   of squares. Tries nine grids around the one where the largest weight is -half. For given q the
   best scale is sum(x q) / sum(q q). Products that are added to something are exact in double, here
   and below: so a compiler that fuses the two makes the same file. */
static float pack_best_scale(const float *x, int n, int half) {
    float most = 0, scale = 0;
    double best = 0;
    int i, k;
    for (i = 0; i < n; i++)
        if (pack_abs(x[i]) > pack_abs(most)) most = x[i];
    if (most == 0) return 0;
    for (k = -4; k <= 4; k++) {
        const float f = -((float)half + 0.25f * (float)k) / most;
        double xq = 0, qq = 0;
        for (i = 0; i < n; i++) {
            const int q = pack_nearest(x[i] * f, -half, half - 1);
            xq += (double)x[i] * q;
            qq += q * q;
        }
        if (qq > 0 && xq * xq > best * qq) {
            best = xq * xq / qq;
            scale = (float)(xq / qq);
        }
    }
    return scale;
}

/* 256 weights of 6 bits: 128 bytes with the lower four bits, 64 with the upper two, 16 scales as
   int8 and the F16 d that multiplies them. The largest scale becomes -128. Returns 0 if d is
   infinite. */
static int pack_q6_k(const float *x, uint8_t *out) {
    float scales[16], most = 0, d, f;
    uint8_t q[256];
    int i, j, half;
    for (i = 0; i < 16; i++) {
        scales[i] = pack_best_scale(x + 16 * i, 16, 32);
        if (pack_abs(scales[i]) > pack_abs(most)) most = scales[i];
    }
    memset(out, 0, 210);
    d = pack_f16(most == 0 ? 0 : most / -128.0f, out + 208);
    for (i = 0; i < 16; i++) {
        const int s = d < 0 || d > 0 ? pack_nearest(scales[i] / d, -128, 127) : 0;
        out[192 + i] = (uint8_t)s;
        f = d * (float)s;
        for (j = 16 * i; j < 16 * i + 16; j++)
            q[j] = (uint8_t)((f < 0 || f > 0 ? pack_nearest(x[j] / f, -32, 31) : 0) + 32);
    }
    for (half = 0; half < 2; half++)
        for (j = 0; j < 32; j++) {
            const uint8_t *p = q + 128 * half + j;
            out[64 * half + j] = (uint8_t)((p[0] & 15) | (p[64] & 15) << 4);
            out[64 * half + 32 + j] = (uint8_t)((p[32] & 15) | (p[96] & 15) << 4);
            out[128 + 32 * half + j] =
                (uint8_t)(p[0] >> 4 | p[32] >> 4 << 2 | p[64] >> 4 << 4 | p[96] >> 4 << 6);
        }
    return d >= -65504.0f && d <= 65504.0f;
}

/* 32 weights of 5 bits: d, the upper bits, the lower four. Returns 0 if d is infinite. */
static int pack_q5_0(const float *x, uint8_t *out) {
    const float d = pack_f16(pack_best_scale(x, 32, 16), out);
    uint32_t high = 0;
    int i, q;
    memset(out + 6, 0, 16);
    for (i = 0; i < 32; i++) {
        q = (d < 0 || d > 0 ? pack_nearest(x[i] / d, -16, 15) : 0) + 16;
        out[6 + i % 16] |= (uint8_t)((q & 15) << i / 16 * 4);
        high |= (uint32_t)q >> 4 << i;
    }
    pack_store(out + 2, high, 4);
    return d >= -65504.0f && d <= 65504.0f;
}

/* Weights as scale * q - least, with q in 0 .. most; neither is negative. */
typedef struct pack_line { float scale, least; } pack_line;

static int pack_on_line(const pack_line *l, float x, int most) {
    return l->scale > 0 ? pack_nearest((x + l->least) / l->scale, 0, most) : 0;
}

/* Moves a line closer to 32 weights x: for the q that it gives them, the sum of squares is least on
   the line of linear regression or, if that begins above 0, on one through 0. */
static void pack_fit_line(pack_line *l, const float *x, int most) {
    double x1 = 0, xq = 0, least;
    int q1 = 0, q2 = 0, det, i;        /* sums of q and of its square */
    float scale;
    for (i = 0; i < 32; i++) {
        const int q = pack_on_line(l, x[i], most);
        q1 += q;
        q2 += q * q;
        x1 += (double)x[i];
        xq += (double)x[i] * q;
    }
    det = 32 * q2 - q1 * q1;
    if (det == 0) return;              /* all q are equal */
    x1 = (double)(float)x1;
    xq = (double)(float)xq;
    least = (q1 * xq - q2 * x1) / det;
    scale = (float)(least < 0 ? xq / q2 : (32 * xq - q1 * x1) / det);
    if (!(scale > 0)) return;
    l->scale = scale;
    l->least = least < 0 ? 0 : (float)least;
}

/* The best line for 32 weights x. Tries lines from the smallest weight, or 0, where q = 0, to the
   largest one, where q is near `most`. */
static pack_line pack_best_line(const float *x, int most) {
    pack_line best = {0, 0};
    float low = 0, high = x[0];
    double least_error = 0;
    int i, k;
    for (i = 0; i < 32; i++) {
        if (x[i] < low) low = x[i];
        if (x[i] > high) high = x[i];
    }
    for (k = -8; k < 12; k++) {
        pack_line line = {(high - low) / ((float)(10 * most + k) / 10), -low};
        double error = 0;
        pack_fit_line(&line, x, most);
        for (i = 0; i < 32; i++) {
            const double y = (double)line.scale * pack_on_line(&line, x[i], most);
            const double off = (double)(float)(y - (double)line.least - (double)x[i]);
            error += off * off;
        }
        if (k > -8 && !(error < least_error)) continue;
        least_error = error;
        best = line;
    }
    return best;
}

/* 256 weights of 4 or, with most 31, of 5 bits. Returns 0 if d or dmin is infinite. */
static int pack_k4(const float *x, int most, uint8_t *out) {
    const int bytes = most == 31 ? 176 : 144;
    pack_line lines[8];
    float scale = 0, least = 0, d, dmin;
    int s, i;
    for (s = 0; s < 8; s++) {
        lines[s] = pack_best_line(x + 32 * s, most);
        if (!(lines[s].scale <= scale)) scale = lines[s].scale;    /* a NaN, too */
        if (!(lines[s].least <= least)) least = lines[s].least;
    }
    memset(out, 0, (size_t)bytes);
    d = pack_f16(scale / 63, out);
    dmin = pack_f16(least / 63, out + 2);
    for (s = 0; s < 8; s++) {
        const int a = d > 0 ? pack_nearest(lines[s].scale / d, 0, 63) : 0;
        const int b = dmin > 0 ? pack_nearest(lines[s].least / dmin, 0, 63) : 0;
        uint8_t *low = out + bytes - 128 + s / 2 * 32, *high = out + 16;
        lines[s].scale = d * (float)a;
        lines[s].least = dmin * (float)b;
        if (s < 4) {
            out[4 + s] |= (uint8_t)a;
            out[8 + s] |= (uint8_t)b;
        } else {
            out[s] |= (uint8_t)(a >> 4 << 6);
            out[4 + s] |= (uint8_t)(b >> 4 << 6);
            out[8 + s] = (uint8_t)((a & 15) | (b & 15) << 4);
        }
        for (i = 0; i < 32; i++) {
            const int q = pack_on_line(&lines[s], x[32 * s + i], most);
            low[i] |= (uint8_t)((q & 15) << s % 2 * 4);
            if (most == 31) high[i] |= (uint8_t)(q >> 4 << s);
        }
    }
    return d <= 65504.0f && dmin <= 65504.0f;
}

/* One block of each type. Returns 0 if the type cannot hold it. */
static int pack_block(uint32_t type, const float *x, uint8_t *out) {
    switch (type) {
        case BITNET_TENSOR_F32: pack_store(out, pack_float_bits(*x), 4); return 1;
        case BITNET_TENSOR_BF16: return pack_bf16(*x, out);
        case BITNET_TENSOR_Q8_0: return pack_q8_0(x, out);
        case BITNET_TENSOR_Q5_0: return pack_q5_0(x, out);
        case BITNET_TENSOR_Q4_K: return pack_k4(x, 15, out);
        case BITNET_TENSOR_Q5_K: return pack_k4(x, 31, out);
        default: return pack_q6_k(x, out);
    }
}

bitnet_result pack_floats(uint32_t type, const float *x, int32_t n, uint8_t *out,
                          bitnet_error *err) {
    static const struct { uint32_t type; int32_t block, bytes; } types[] = {
        {BITNET_TENSOR_F32, 1, 4}, {BITNET_TENSOR_F16, 1, 2}, {BITNET_TENSOR_BF16, 1, 2},
        {BITNET_TENSOR_Q8_0, 32, 34}, {BITNET_TENSOR_Q6_K, 256, 210},
        {BITNET_TENSOR_Q5_K, 256, 176}, {BITNET_TENSOR_Q4_K, 256, 144},
        {BITNET_TENSOR_Q5_0, 32, 22}
    };
    enum { N_TYPES = sizeof types / sizeof types[0] };
    const char *name = pack_type_name(type);
    int32_t i;
    int k, ok = 1;
    if (!x || !out || n < 0) return set_error(err, BITNET_ERR_ARG, "there are no floats to pack");
    for (k = 0; k < N_TYPES && types[k].type != type; k++) {}
    if (k == N_TYPES)
        return set_error(err, BITNET_ERR_UNSUPPORTED, "cannot convert to type %u (%s)",
                         (unsigned)type, name);
    if (n % types[k].block)
        return set_error(err, BITNET_ERR_ARG, "%d weights are not whole blocks of %s", (int)n,
                         name);
    for (i = 0; i < n && ok; i++) ok = x[i] - x[i] == 0.0f;      /* neither NaN nor infinite */
    if (type == BITNET_TENSOR_F16) {                             /* 65520 rounds to infinity */
        for (i = 0; i < n && ok; i++) ok = pack_abs(x[i]) < 65520.0f;
        for (i = 0; i < n && ok; i++) pack_f16(x[i], out + 2 * (size_t)i);
    } else for (i = 0; i < n && ok; i += types[k].block, x += types[k].block, out += types[k].bytes)
        ok = pack_block(type, x, out);
    if (!ok)
        return set_error(err, BITNET_ERR_FORMAT, "a weight is a NaN or too large for %s", name);
    return BITNET_OK;
}
