/* bitnet_kernels_wasm.h - WebAssembly kernels for bitnet.h: SIMD128, relaxed SIMD; MIT licence, see
   there

   Put this file beside bitnet.h, which includes it by name. Every entry gives the same bits as its
   scalar twin in bitnet.h. The comments there say what is computed; those here say only how.

   INSTRUCTIONS
       simd128       Needs -msimd128. Integer dot products use i32x4.dot_i16x8_s (PMADDWD on x86):
                     there is no product of bytes, and x86 has no shift of bytes.
       relaxed-simd  Also needs -mrelaxed-simd. Integer dot products of bytes use relaxed dots, one
                     of whose operands has 7 bits.
       Both          Floats use multiplications and additions, with 16 partial sums in four
                     registers. F16 is converted by integer operations, because there is no
                     instruction for it.
   An engine does not load a module with instructions that it does not know. So the command line
   decides what is compiled, and the page decides which module to load. bitnet__cpu_features reports
   what the module has, and tests whether this engine computes the relaxed dot correctly.

   WEIGHTS: I2_S, 128-group, read in place
       A row of n weights is n / 4 bytes. A block of 128 weights is 32 of them, two registers.
       Code = weight + 1. Code 3 is invalid, but counts as 3 here as in the scalar code.

           byte of the block      0     1     2   ...  31       with activations
           bits 7-6, weight       0     1     2   ...  31         0 ..  31
           bits 5-4, weight      32    33    34   ...  63        32 ..  63
           bits 3-2, weight      64    65    66   ...  95        64 ..  95
           bits 1-0, weight      96    97    98   ... 127        96 .. 127

       simd128, few columns: a word of two bytes has eight fields. Each is masked in place, which
       makes it 4^k times too large at place k. Its activation, as a word, is made 4^(4-k) times as
       large, once for all rows. So all products are 256 times too large and go into one sum.

           bits of the word v    15-14  13-12  11-10   9-8    7-6    5-4    3-2    1-0
           masked in             v >> 6 v >> 6 v >> 6  v      v      v      v      v
           k there               4      3      2       4      3      2      1      0

       relaxed-simd: bytes in place, masked by 0x03 and 0x0c in v and, for the other two fields, in
       v >> 4 (a shift of words: the mask removes the neighbour's bits). There are two sums, of
       codes and of 4 times the codes.

   WEIGHTS WITH A SCALE PER GROUP
       A register is 16 weights of 4 rows, 4 bytes each. It meets the same activations in all lanes,
       so that a row's sum stays in its lane. Code = weight + 1; there is no code 3.

       simd128, one column: as above, each field of a word is masked in place, in v and in v >> 8,
       and its activations, a pair of words, are made 4^(4-k) times as large, once for many rows.
       That is AND, PMADDWD and PADDD for 8 products; a table of partial sums would take about as
       many (SWIZZLE is two instructions on x86, and its bytes must be widened).

           bits of the word v     15-14  13-12  11-10   9-8    7-6    5-4    3-2    1-0
           byte 0 or 2, weight                                 12 +   8 +    4 +    0 + byte
           byte 1 or 3, weight    12 +   8 +    4 +    0 + byte
           masked in              v >> 8 v >> 8 v >> 8 v >> 8  v      v      v      v
           k there                3      2      1      0       3      2      1      0

       simd128, more columns: weights of two rows to a word, unpacked once. That is PMADDWD and
       PADDD for 16 products.

       relaxed-simd: bytes masked by 0x03 and 0x0c as above, or, for more columns, unpacked once.
       The relaxed dot and an addition do 16 products.

       V8 moves the loads of a basic block to its beginning. So a panel's loop takes one step at a
       time, 4 registers of weights and 2 of activations: with 8 sums these are 14 of the 15 that V8
       uses. Unrolled, it would spill them and take a third longer.

   WHY THE RELAXED DOT IS EXACT
       i16x8.relaxed_dot_i8x16_i7x16_s gives sums of two products of a signed byte and one of 7
       bits. An engine may take the latter as signed or unsigned, and may wrap or saturate the sum.
       Codes and 4 times codes are at most 12, the same either way. A pair of products is at most
       2 * 12 * 128 = 3072, far from 32767. i32x4.relaxed_dot_i8x16_i7x16_add_s adds two such pairs
       to an int32. Engines that use SDOT or AVX-VNNI take one instruction for that; others take
       three, while an int16 sum needs only the first of these and an addition. bitnet__relaxed_kind
       finds out which, by products that do not fit 7 bits. In Node 20 (PMADDUBSW) int16 sums are
       1.7 times as fast, in Chromium 156 (AVX-VNNI) int32 sums are 1.4 times as fast.
       Bytes of dotrows_u8 have 8 bits, not 7. They are passed as signed or unsigned, as the engine
       takes them. The standard leaves that choice to the engine, but only once for a program.

   BOUNDS, for q from -128 to 127; of I2_S for codes up to 3, n <= 2^20: 8192 blocks
       simd128, tile      A product is at most 256 * 3 * 128 = 98304. A lane gets 16 a block, 32
                          blocks: 50331648; four lanes 201326592.
       simd128, panel     The weight 2 of code 3 counts too: words are -8193 to 16386. In 64 weights
                          a lane gets 16 products of the lower row, -256 to 254 each: -4096 to 4064,
                          in 13 bits. The upper row has 19 bits: 256 products of one depth, -65536
                          to 65024. The sum of both may wrap; their difference does not.
       relaxed, tile      int16: a block is 4 pairs of 4 code to a lane, 4 * 3072 = 12288, and 4 of
                          code, 3072. Two blocks: 24576 and 6144; code + 4 code / 4 <= 12288.
                          int32: all lanes together 4 code, n / 2 products of 1536, at most
                          805306368; code, a quarter of that.
       relaxed, panel     int16: 640 weights are 80 products of 384, 30720.
       all, int32         All lanes together 384 n, at most 402653184; before or after the sum of q,
                          at most 128 n = 2^27, is subtracted. int32 goes to 2^31.
       dotrows_u8         255 * 64 n, at most 1069547520 for n = 2^16, and 128 times the sum of q,
                          at most 2^29. Relaxed: pairs of products are at most 2 * 255 * 64 = 32640
                          (unsigned) or 2 * 128 * 64 = 16384 (signed).
       dotrows_u4         1920 n, at most 2013265920, and 8 times the sum of q, at most 2^30. Pairs
                          of products are at most 2 * 15 * 128 = 3840.

   BOUNDS of a group of 256, for codes up to 2. int32 holds the exact dot product.
       simd128, tile      A product is at most 256 * 2 * 128 = 65536, a lane's sum 2^24; 256 times
                          the sum of q, at most 2^23, is subtracted.
       simd128, panel     Words are -16385 to 16385. In 32 weights a lane gets 32 products of the
                          lower row, -128 to 128 each: -4096 to 4096, in 14 bits (64 weights would
                          reach 8192). The group: 2^15 + 16384 * 2^15 < 2^30.
       relaxed, tile      int16: 128 weights are 16 pairs of 4 code, -2048 to 2032 each: -32768 to
                          32512. A quarter of that, twice, and 32 pairs of code, -512 to 508 each:
                          the same.
       relaxed, panel     int16: 64 pairs of code: the same. */

#if BITNET__KERNEL_ABI != 7
  #error "bitnet_kernels_wasm.h and bitnet.h are of different releases"
#endif
#define BITNET__HAVE_SIMD

#ifdef __cplusplus
}   /* the compiler's header sets its own linkage */
#endif
#include <wasm_simd128.h>
#ifdef __cplusplus
extern "C" {
#endif

/* clang 14 accepts -mrelaxed-simd, but has no intrinsics for it. */
#if defined(__wasm_relaxed_simd__) && !defined(BITNET_NO_RELAXED) && __clang_major__ >= 16
  #define BITNET__RELAXED 1
#else
  #define BITNET__RELAXED 0
#endif

/* ---- sums ---- */

/* Lane r is the sum of the lanes of s[r]. */
BITNET__INLINE v128_t bitnet__fold4_wasm(const v128_t *s) {
    const v128_t a = wasm_i32x4_add(wasm_i32x4_shuffle(s[0], s[1], 0, 4, 1, 5),
                                    wasm_i32x4_shuffle(s[0], s[1], 2, 6, 3, 7));
    const v128_t b = wasm_i32x4_add(wasm_i32x4_shuffle(s[2], s[3], 0, 4, 1, 5),
                                    wasm_i32x4_shuffle(s[2], s[3], 2, 6, 3, 7));
    return wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 1, 4, 5),
                          wasm_i32x4_shuffle(a, b, 2, 3, 6, 7));
}

/* Writes the dots of a column with `rows` rows, at most 4 of them, minus *sum. If sum is null, adds
   the dots to what is there. */
BITNET__INLINE void bitnet__put_dots_wasm(int32_t *to, v128_t dots, int rows, const int32_t *sum) {
    int32_t four[4] = {0, 0, 0, 0};
    if (rows <= 0) return;
    if (sum) dots = wasm_i32x4_sub(dots, wasm_i32x4_splat(*sum));
    else {
        bitnet__put(four, to, rows);
        dots = wasm_i32x4_add(dots, wasm_v128_load(four));
    }
    wasm_v128_store(four, dots);
    bitnet__put(to, four, rows);
}

/* The same where the rows are at distances of `apart`. */
BITNET__INLINE void bitnet__put_apart_wasm(int32_t *to, v128_t dots, int rows, int apart,
                                           const int32_t *sum) {
    int32_t four[4];
    int r;
    wasm_v128_store(four, dots);
    for (r = 0; r < 4 && r * apart < rows; r++)
        to[r * apart] = sum ? four[r] - *sum : to[r * apart] + four[r];
}

/* The codes of bits 7-6 (i = 0) to 1-0 (i = 3), a byte each. */
BITNET__INLINE v128_t bitnet__codes_wasm(v128_t v, const int i) {
    return wasm_v128_and(i == 3 ? v : wasm_u16x8_shr(v, (uint32_t)(6 - 2 * i)),
                         wasm_i8x16_const_splat(3));
}

/* The table entry for ternary weights: panels of panel_rows rows and panel_cols columns, from
   min_cols columns on; else tiles. bitnet.h has the loops. With 1 for `wide` they leave no columns
   to the tiles. */
#define BITNET__DEFINE_PANELS(isa, unpack, panel_rows, panel_cols, depth, vectors, min_cols) \
    BITNET__APART void bitnet__panels_##isa(const uint8_t *w, const int8_t *q, \
                                            const int32_t *sums, int n, int rows, int cols, \
                                            int32_t *out, size_t out_stride) { \
        v128_t panel[vectors]; \
        bitnet__panels(w, q, sums, n, rows, cols, out, out_stride, panel, unpack, \
                       bitnet__multiply_##isa, panel_rows, depth, panel_cols); \
    } \
    static void bitnet__dotrows_i2s_##isa(const uint8_t *w, const int8_t *q, const int32_t *sums, \
                                          int n, int rows, int cols, int32_t *out, \
                                          size_t out_stride) { \
        bitnet__tiles_and_panels(w, q, sums, n, rows, cols, out, out_stride, \
                                 bitnet__tiles_##isa, bitnet__panels_##isa, 1, min_cols, \
                                 bitnet__i2s_bytes); \
    }

/* ---- I2_S, SIMD128 ----
   Few columns: tiles of 4 rows and a column, straight from the packed rows, over DEPTH weights of
   prepared activations. Many columns: panels of rows.

   The rows of a tile are a quarter of the call's rows apart. There is no prefetch here, and the
   CPU's own prefetcher follows a stream only within its page. Four neighbouring rows would share a
   page, and be read from memory at half the speed. */
enum { BITNET__DEPTH = 4096, BITNET__PANEL = 1024 };

BITNET__INLINE int bitnet__quarter(int rows) { return (rows + 3) / 4; }

/* 8 vectors for 16 bytes of weights, in the order in which the tile takes them. */
static void bitnet__prepare_simd128(const int8_t *q, int len, v128_t *act) {
    const v128_t high = wasm_i16x8_const_splat(-256);
    int b, h, i;
    for (b = 0; b < len; b += 128) {
        for (h = 0; h < 32; h += 16, act += 8) {
            v128_t even[4], odd[4];
            BITNET__UNROLL for (i = 0; i < 4; i++) {     /* each times 256 */
                const v128_t a = wasm_v128_load(q + b + 96 - 32 * i + h);
                even[i] = wasm_i16x8_shl(a, 8);
                odd[i] = wasm_v128_and(a, high);
            }
            act[0] = even[0];
            act[1] = wasm_i16x8_shr(even[1], 2);
            act[2] = wasm_i16x8_shr(even[2], 4);
            act[3] = wasm_i16x8_shr(even[3], 6);
            act[4] = wasm_i16x8_shr(odd[0], 8);
            act[5] = wasm_i16x8_shr(odd[1], 4);
            act[6] = wasm_i16x8_shr(odd[2], 6);
            act[7] = wasm_i16x8_shr(odd[3], 8);
        }
    }
}

/* w is the first of up to 4 rows at distances of `apart`; `rows` rows are left. */
BITNET__INLINE void bitnet__tile_simd128(const uint8_t *w, size_t row_bytes, const v128_t *act,
                                         int len, int rows, int apart, const int32_t *sum,
                                         int32_t *out) {
    v128_t dot[4], v[4], mask[5];
    const uint8_t *row[4];
    int r, i, h;
    BITNET__UNROLL for (i = 0; i < 5; i++) mask[i] = wasm_i16x8_splat((int16_t)(3 << 2 * i));
    BITNET__UNROLL for (r = 0; r < 4; r++) {
        row[r] = w + bitnet__clamp(r * apart, rows) * row_bytes;
        dot[r] = wasm_i32x4_const_splat(0);
    }
    for (; len > 0; len -= 128) {
        BITNET__UNROLL for (h = 0; h < 2; h++, act += 8) {
            BITNET__UNROLL for (r = 0; r < 4; r++) v[r] = wasm_v128_load(row[r] + 16 * h);
            BITNET__UNROLL for (i = 0; i < 8; i++) {
                if (i == 5) {
                    BITNET__UNROLL for (r = 0; r < 4; r++) v[r] = wasm_u16x8_shr(v[r], 6);
                }
                BITNET__UNROLL for (r = 0; r < 4; r++)
                    dot[r] = wasm_i32x4_add(
                        dot[r], wasm_i32x4_dot_i16x8(
                                    wasm_v128_and(v[r], mask[i < 5 ? i : i - 3]), act[i]));
            }
        }
        BITNET__UNROLL for (r = 0; r < 4; r++) row[r] += 32;
    }
    bitnet__put_apart_wasm(out, wasm_i32x4_shr(bitnet__fold4_wasm(dot), 8), rows, apart, sum);
}

BITNET__APART void bitnet__tiles_simd128(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                         int n, int rows, int cols, int32_t *out,
                                         size_t out_stride) {
    v128_t act[BITNET__DEPTH / 8];
    const size_t row_bytes = (size_t)(n / 4);
    const int quarter = bitnet__quarter(rows);
    int r, c, k, len;
    for (c = 0; c < cols; c++, q += n, out += out_stride) {
        for (k = 0; k < n; k += len) {
            len = n - k < BITNET__DEPTH ? n - k : BITNET__DEPTH;
            bitnet__prepare_simd128(q + k, len, act);
            for (r = 0; r < quarter; r++)
                bitnet__tile_simd128(w + (size_t)r * row_bytes + (size_t)(k / 4), row_bytes, act,
                                     len, rows - r, quarter, k ? 0 : sums + c, out + r);
        }
    }
}

/* A panel is 8 rows, two to a word, so that one product serves both: weight of one row + 8192 *
   weight of the other. 4 vectors of such pairs follow each other, in the order of the
   activations. */
BITNET__INLINE void bitnet__unpack_simd128(const uint8_t *w, int n, int rows, int first, int k,
                                           int len, void *panel) {
    const v128_t ones = wasm_i16x8_const_splat(8192 + 1);
    int r, piece, i;
    w += k / 4;
    for (r = 0; r < 8; r += 2) {
        const uint8_t *low = w + bitnet__clamp(first + r, rows) * (size_t)(n / 4);
        const uint8_t *high = w + bitnet__clamp(first + r + 1, rows) * (size_t)(n / 4);
        for (piece = 0; piece < len / 64; piece++) {
            const v128_t v = wasm_v128_load(low + (size_t)piece * 16);
            const v128_t u = wasm_v128_load(high + (size_t)piece * 16);
            v128_t *to = (v128_t *)panel + (piece / 2 * 16 + piece % 2 * 2) * 4 + r / 2;
            BITNET__UNROLL for (i = 0; i < 4; i++) {
                const v128_t a = bitnet__codes_wasm(v, i), b = bitnet__codes_wasm(u, i);
                to[i * 16] = wasm_i16x8_sub(
                    wasm_i16x8_add(wasm_u16x8_extend_low_u8x16(a),
                                   wasm_i16x8_shl(wasm_u16x8_extend_low_u8x16(b), 13)), ones);
                to[i * 16 + 4] = wasm_i16x8_sub(
                    wasm_i16x8_add(wasm_u16x8_extend_high_u8x16(a),
                                   wasm_i16x8_shl(wasm_u16x8_extend_high_u8x16(b), 13)), ones);
            }
        }
    }
}

/* 8 sums of pairs, 1 vector of weights, 2 of activations. What a lower row adds in 64 weights fits
   13 bits, in which the upper row adds nothing. So it can be taken out of the sum, and 8192 times
   the upper row's sum is left. */
BITNET__INLINE void bitnet__multiply_simd128(const void *panel, int len, const int8_t *q, int n,
                                             const int32_t *sums, int rows, int cols, int32_t *out,
                                             size_t out_stride) {
    const v128_t *w = (const v128_t *)panel;
    const int32_t none = 0;
    v128_t both[2][4], low[2][4], v, a[2];
    const int8_t *col[2];
    int r, c, k;
    BITNET__UNROLL for (c = 0; c < 2; c++) {
        col[c] = q + bitnet__clamp(c, cols) * (size_t)n;
        BITNET__UNROLL for (r = 0; r < 4; r++) both[c][r] = low[c][r] = wasm_i32x4_const_splat(0);
    }
    for (; len > 0; len -= 64) {
        BITNET__UNROLL for (k = 0; k < 8; k++, w += 4) {
            BITNET__UNROLL for (c = 0; c < 2; c++) a[c] = wasm_i16x8_load8x8(col[c] + 8 * k);
            BITNET__UNROLL for (r = 0; r < 4; r++) {
                v = w[r];
                BITNET__UNROLL for (c = 0; c < 2; c++)
                    both[c][r] = wasm_i32x4_add(both[c][r], wasm_i32x4_dot_i16x8(v, a[c]));
            }
        }
        BITNET__UNROLL for (c = 0; c < 2; c++) {
            col[c] += 64;
            BITNET__UNROLL for (r = 0; r < 4; r++) {
                v = wasm_i32x4_shl(wasm_i32x4_sub(both[c][r], low[c][r]), 19);
                low[c][r] = wasm_i32x4_add(low[c][r], wasm_i32x4_shr(v, 19));
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < 2; c++) {
        int32_t *to = out + (size_t)c * out_stride;
        if (c >= cols) continue;
        BITNET__UNROLL for (r = 0; r < 4; r++)
            both[c][r] = wasm_i32x4_shr(wasm_i32x4_sub(both[c][r], low[c][r]), 13);
        v = bitnet__fold4_wasm(low[c]);
        a[0] = bitnet__fold4_wasm(both[c]);
        bitnet__put_dots_wasm(to, wasm_i32x4_shuffle(v, a[0], 0, 4, 1, 5), rows, sums ? &none : 0);
        bitnet__put_dots_wasm(to + 4, wasm_i32x4_shuffle(v, a[0], 2, 6, 3, 7), rows - 4,
                              sums ? &none : 0);
    }
}

BITNET__DEFINE_PANELS(simd128, bitnet__unpack_simd128, 8, 2, BITNET__PANEL, BITNET__PANEL / 2, 4)

/* ---- bytes and halves of bytes: tiles of 4 rows and 1 or 2 columns ---- */

/* How bytes are multiplied: as words, or by the relaxed dot, whose second operand the engine takes
   as signed or unsigned. SATURATED is unsigned too, with sums of two products in int16. */
enum { BITNET__WORDS, BITNET__SIGNED, BITNET__UNSIGNED, BITNET__SATURATED };

/* 8 weights as words, or 16 bytes: weight - 128, by its sign bit, if they are signed. */
BITNET__INLINE v128_t bitnet__load_u8_wasm(const uint8_t *w, const int way) {
    return way == BITNET__WORDS    ? wasm_u16x8_load8x8(w)
           : way == BITNET__SIGNED ? wasm_v128_xor(wasm_v128_load(w), wasm_i8x16_const_splat(-128))
                                   : wasm_v128_load(w);
}

/* 8 or 16 weights of 4 bits: the upper or lower halves of bytes. */
BITNET__INLINE v128_t bitnet__load_u4_wasm(const uint8_t *w, const int lower, const int way) {
    const v128_t v = bitnet__load_u8_wasm(w, way);
    if (lower) return wasm_v128_and(v, wasm_i8x16_const_splat(15));
    return way == BITNET__WORDS ? wasm_u16x8_shr(v, 4) : wasm_u8x16_shr(v, 4);
}

BITNET__INLINE v128_t bitnet__load_q_wasm(const int8_t *q, const int way) {
    return way == BITNET__WORDS ? wasm_i16x8_load8x8(q) : wasm_v128_load(q);
}

/* Pairs of products reach 2 * 255 * 64 = 32640, which is why |q| is at most 64. */
BITNET__INLINE v128_t bitnet__dot_u8_wasm(v128_t sum, v128_t w, v128_t a, const int way) {
#if BITNET__RELAXED
    if (way != BITNET__WORDS) return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(a, w, sum);
#endif
    (void)way;
    return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(w, a));
}

/* Of 4 bits, 64 bytes are 128 weights. */
BITNET__INLINE void bitnet__tile_bytes_wasm(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                            int n, int rows, int apart, int32_t *out,
                                            size_t out_stride, const int tile_cols,
                                            const int bits, const int way) {
    const int wide = way == BITNET__WORDS ? 8 : 16;
    const int less = bits == 4 ? 8 : way == BITNET__SIGNED ? 0 : 128;
    v128_t dot[2][4], v[4], a;
    const uint8_t *row[4];
    const int8_t *col[2];
    int left = n / 8 * bits, r, c, h, lower;
    BITNET__UNROLL for (r = 0; r < 4; r++) {
        row[r] = w + bitnet__clamp(r * apart, rows) * (size_t)left;
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) dot[c][r] = wasm_i32x4_const_splat(0);
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) col[c] = q + (size_t)c * (size_t)n;
    for (; left > 0; left -= 32) {
        BITNET__UNROLL for (h = 0; h < 32 * 8 / bits; h += wide) {
            const int at = h % 32;
            lower = h / 32;
            BITNET__UNROLL for (r = 0; r < 4; r++)
                v[r] = bits == 8 ? bitnet__load_u8_wasm(row[r] + at, way)
                                 : bitnet__load_u4_wasm(row[r] + at, lower, way);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                a = bitnet__load_q_wasm(col[c] + at + 64 * lower, way);
                BITNET__UNROLL for (r = 0; r < 4; r++)
                    dot[c][r] = bitnet__dot_u8_wasm(dot[c][r], v[r], a, way);
            }
        }
        BITNET__UNROLL for (r = 0; r < 4; r++) row[r] += 32;
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            col[c] += bits == 4 && left % 64 ? 96 : 32;
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        const int32_t sum = less * sums[c];
        bitnet__put_apart_wasm(out + (size_t)c * out_stride, bitnet__fold4_wasm(dot[c]), rows,
                               apart, &sum);
    }
}

BITNET__INLINE void bitnet__dotrows_bytes_wasm(const uint8_t *w, const int8_t *q,
                                               const int32_t *sums, int n, int rows, int cols,
                                               int32_t *out, size_t out_stride, const int bits,
                                               const int way) {
    const int quarter = bitnet__quarter(rows);
    int r, c, step;
    if (n % 32) {
        bitnet__dotrows_u8_scalar(w, q, sums, n, rows, cols, out, out_stride);
        return;
    }
    for (r = 0; r < quarter; r++) {
        for (c = 0; c < cols; c += step) {
            const uint8_t *row = w + (size_t)r * (size_t)(n / 8 * bits);
            const int8_t *col = q + (size_t)c * (size_t)n;
            int32_t *to = out + (size_t)c * out_stride + (size_t)r;
            step = cols - c >= 2 ? 2 : 1;
            if (step == 2)
                bitnet__tile_bytes_wasm(row, col, sums + c, n, rows - r, quarter, to, out_stride,
                                        2, bits, way);
            else
                bitnet__tile_bytes_wasm(row, col, sums + c, n, rows - r, quarter, to, out_stride,
                                        1, bits, way);
        }
    }
}

static void bitnet__dotrows_u8_simd128(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                       int n, int rows, int cols, int32_t *out,
                                       size_t out_stride) {
    bitnet__dotrows_bytes_wasm(w, q, sums, n, rows, cols, out, out_stride, 8, BITNET__WORDS);
}

static void bitnet__dotrows_u4_simd128(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                       int n, int rows, int cols, int32_t *out,
                                       size_t out_stride) {
    bitnet__dotrows_bytes_wasm(w, q, sums, n, rows, cols, out, out_stride, 4, BITNET__WORDS);
}

#if BITNET__RELAXED
/* ---- relaxed SIMD: how the engine computes it ---- */

/* Finds that out by four products whose operands have 8 bits. These are volatile because Binaryen
   120 aborts on a relaxed operation with constants. */
static int bitnet__relaxed_kind(void) {
    static volatile int8_t ones = -1, most = 127;
    const int32_t sum = wasm_i32x4_extract_lane(
        wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i8x16_splat(most), wasm_i8x16_splat(ones),
                                               wasm_i32x4_const_splat(0)), 0);
    return sum == 4 * 127 * -1    ? BITNET__SIGNED
           : sum == 4 * 127 * 255 ? BITNET__UNSIGNED
                                  : BITNET__SATURATED;
}

/* Whether the engine is right. The baseline compiler of Node 20 is not: it takes the other operand
   as the one of 7 bits. */
static int bitnet__relaxed_correct(void) {
    static volatile int8_t minus = -128, three = 3;
    const v128_t dot = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(
        wasm_i8x16_splat(minus), wasm_i8x16_splat(three), wasm_i32x4_splat(minus));
    const v128_t halves = wasm_i16x8_relaxed_dot_i8x16_i7x16(wasm_i8x16_splat(minus),
                                                             wasm_i8x16_splat(three));
    return wasm_i32x4_extract_lane(dot, 0) == 4 * -128 * 3 - 128 &&
           wasm_i32x4_extract_lane(dot, 3) == 4 * -128 * 3 - 128 &&
           wasm_i16x8_extract_lane(halves, 0) == 2 * -128 * 3 &&
           wasm_i16x8_extract_lane(halves, 7) == 2 * -128 * 3;
}

/* ---- I2_S, relaxed SIMD ----
   halves: sums are 8 lanes of int16, else 4 lanes of int32. */

BITNET__INLINE v128_t bitnet__dot_relaxed(v128_t sum, v128_t codes, v128_t a, const int halves) {
    return halves ? wasm_i16x8_add(sum, wasm_i16x8_relaxed_dot_i8x16_i7x16(a, codes))
                  : wasm_i32x4_relaxed_dot_i8x16_i7x16_add(a, codes, sum);
}

/* Sums as int32: pairs of int16 sums are added. */
BITNET__INLINE v128_t bitnet__to_int32_relaxed(v128_t sum, const int halves) {
    return halves ? wasm_i32x4_dot_i16x8(sum, wasm_i16x8_const_splat(1)) : sum;
}

BITNET__INLINE void bitnet__tile_relaxed(const uint8_t *w, size_t row_bytes, const int8_t *q,
                                         int n, int rows, int apart, const int32_t *sum,
                                         int32_t *out, const int halves) {
    const v128_t zero = wasm_i32x4_const_splat(0);
    v128_t dot[4], part[2][4], v[4], mask[2], a;
    const uint8_t *row[4];
    int r, b, h, i, end;
    mask[0] = wasm_i8x16_const_splat(0x03);
    mask[1] = wasm_i8x16_const_splat(0x0c);
    BITNET__UNROLL for (r = 0; r < 4; r++) {
        row[r] = w + bitnet__clamp(r * apart, rows) * row_bytes;
        dot[r] = zero;
    }
    for (b = 0; b < n; b = end) {
        end = halves && n - b > 256 ? b + 256 : n;
        BITNET__UNROLL for (r = 0; r < 4; r++) part[0][r] = part[1][r] = zero;
        for (; b < end; b += 128, q += 128) {
            BITNET__UNROLL for (h = 0; h < 2; h++) {
                BITNET__UNROLL for (r = 0; r < 4; r++) v[r] = wasm_v128_load(row[r] + 16 * h);
                BITNET__UNROLL for (i = 0; i < 4; i++) {
                    if (i == 2) {
                        BITNET__UNROLL for (r = 0; r < 4; r++) v[r] = wasm_u16x8_shr(v[r], 4);
                    }
                    a = wasm_v128_load(q + 96 - 32 * i + 16 * h);
                    BITNET__UNROLL for (r = 0; r < 4; r++)
                        part[i % 2][r] = bitnet__dot_relaxed(
                            part[i % 2][r], wasm_v128_and(v[r], mask[i % 2]), a, halves);
                }
            }
            BITNET__UNROLL for (r = 0; r < 4; r++) row[r] += 32;
        }
        BITNET__UNROLL for (r = 0; r < 4; r++) {
            a = halves ? wasm_i16x8_add(part[0][r], wasm_i16x8_shr(part[1][r], 2))
                       : wasm_i32x4_add(part[0][r], wasm_i32x4_shr(part[1][r], 2));
            dot[r] = wasm_i32x4_add(dot[r], bitnet__to_int32_relaxed(a, halves));
        }
    }
    bitnet__put_apart_wasm(out, bitnet__fold4_wasm(dot), rows, apart, sum);
}

BITNET__INLINE void bitnet__tiles_relaxed(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                          int n, int rows, int cols, int32_t *out,
                                          size_t out_stride, const int halves) {
    const size_t row_bytes = (size_t)(n / 4);
    const int quarter = bitnet__quarter(rows);
    int r, c;
    for (r = 0; r < quarter; r++, w += row_bytes)
        for (c = 0; c < cols; c++)
            bitnet__tile_relaxed(w, row_bytes, q + (size_t)c * (size_t)n, n, rows - r, quarter,
                                 sums + c, out + (size_t)c * out_stride + (size_t)r, halves);
}

/* A panel is 4 rows of codes, a byte each: 4 vectors, one of each row, in turn. */
BITNET__INLINE void bitnet__unpack_relaxed(const uint8_t *w, int n, int rows, int first, int k,
                                           int len, void *panel) {
    int r, piece, i;
    w += k / 4;
    for (r = 0; r < 4; r++) {
        const uint8_t *row = w + bitnet__clamp(first + r, rows) * (size_t)(n / 4);
        for (piece = 0; piece < len / 64; piece++) {
            const v128_t v = wasm_v128_load(row + (size_t)piece * 16);
            v128_t *to = (v128_t *)panel + (piece / 2 * 8 + piece % 2) * 4 + r;
            BITNET__UNROLL for (i = 0; i < 4; i++) to[i * 8] = bitnet__codes_wasm(v, i);
        }
    }
}

/* 12 sums, so that no addition waits for the one before: that of AVX-VNNI takes 5 cycles. */
BITNET__INLINE void bitnet__multiply_relaxed(const void *panel, int len, const int8_t *q, int n,
                                             const int32_t *sums, int rows, int cols, int32_t *out,
                                             size_t out_stride, const int halves) {
    const v128_t *w = (const v128_t *)panel;
    v128_t dot[3][4], v, a[3];
    const int8_t *col[3];
    int r, c, k;
    BITNET__UNROLL for (c = 0; c < 3; c++) {
        col[c] = q + bitnet__clamp(c, cols) * (size_t)n;
        BITNET__UNROLL for (r = 0; r < 4; r++) dot[c][r] = wasm_i32x4_const_splat(0);
    }
    for (; len > 0; len -= 64) {
        BITNET__UNROLL for (k = 0; k < 4; k++, w += 4) {
            BITNET__UNROLL for (c = 0; c < 3; c++) a[c] = wasm_v128_load(col[c] + 16 * k);
            BITNET__UNROLL for (r = 0; r < 4; r++) {
                v = w[r];
                BITNET__UNROLL for (c = 0; c < 3; c++)
                    dot[c][r] = bitnet__dot_relaxed(dot[c][r], v, a[c], halves);
            }
        }
        BITNET__UNROLL for (c = 0; c < 3; c++) col[c] += 64;
    }
    BITNET__UNROLL for (c = 0; c < 3; c++) {
        if (c >= cols) continue;
        BITNET__UNROLL for (r = 0; r < 4; r++)
            dot[c][r] = bitnet__to_int32_relaxed(dot[c][r], halves);
        bitnet__put_dots_wasm(out + (size_t)c * out_stride, bitnet__fold4_wasm(dot[c]), rows,
                              sums ? sums + c : 0);
    }
}

#define BITNET__DEFINE_RELAXED(isa, halves) \
    BITNET__APART void bitnet__tiles_##isa(const uint8_t *w, const int8_t *q, \
                                           const int32_t *sums, int n, int rows, int cols, \
                                           int32_t *out, size_t out_stride) { \
        bitnet__tiles_relaxed(w, q, sums, n, rows, cols, out, out_stride, halves); \
    } \
    BITNET__INLINE void bitnet__multiply_##isa(const void *panel, int len, const int8_t *q, \
                                               int n, const int32_t *sums, int rows, int cols, \
                                               int32_t *out, size_t out_stride) { \
        bitnet__multiply_relaxed(panel, len, q, n, sums, rows, cols, out, out_stride, halves); \
    } \
    BITNET__DEFINE_PANELS(isa, bitnet__unpack_relaxed, 4, 3, 640, 160, 6)
BITNET__DEFINE_RELAXED(relaxed16, 1)
BITNET__DEFINE_RELAXED(relaxed32, 0)

static void bitnet__dotrows_i2s_relaxed(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                        int n, int rows, int cols, int32_t *out,
                                        size_t out_stride) {
    if (bitnet__relaxed_kind() == BITNET__SATURATED)
        bitnet__dotrows_i2s_relaxed16(w, q, sums, n, rows, cols, out, out_stride);
    else bitnet__dotrows_i2s_relaxed32(w, q, sums, n, rows, cols, out, out_stride);
}

static void bitnet__dotrows_u8_relaxed(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                       int n, int rows, int cols, int32_t *out,
                                       size_t out_stride) {
    if (bitnet__relaxed_kind() == BITNET__SIGNED)
        bitnet__dotrows_bytes_wasm(w, q, sums, n, rows, cols, out, out_stride, 8, BITNET__SIGNED);
    else
        bitnet__dotrows_bytes_wasm(w, q, sums, n, rows, cols, out, out_stride, 8,
                                   BITNET__UNSIGNED);
}

/* 4 bits are the same for every engine. */
static void bitnet__dotrows_u4_relaxed(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                       int n, int rows, int cols, int32_t *out,
                                       size_t out_stride) {
    bitnet__dotrows_bytes_wasm(w, q, sums, n, rows, cols, out, out_stride, 4, BITNET__UNSIGNED);
}
#endif

/* ---- floats ----
   Four registers hold 16 floats, so that element i of a sum stays in lane i % 16 by itself: lane
   4 j + l is lane l of register j. The scalar twin takes lengths that are not a multiple of 16,
   which models avoid. */

enum { BITNET__ROWS_F32, BITNET__ROWS_F16, BITNET__ROWS_BF16 };
#define BITNET__ROW_BYTES(kind) ((kind) == BITNET__ROWS_F32 ? (size_t)4 : (size_t)2)

/* Four F16, in the upper halves of the words. Without the sign and shifted to the fields of F32
   they are 2^112 too small, subnormals too. Infinity and NaN become 2^16 or more, and then get the
   exponent of F32's infinity. The next operation quiets a signalling NaN. */
BITNET__INLINE v128_t bitnet__from_f16_wasm(v128_t high) {
    const v128_t sign = wasm_v128_and(high, wasm_i32x4_const_splat(INT32_MIN));
    const v128_t rest = wasm_u32x4_shr(wasm_v128_xor(high, sign), 3);
    const v128_t x = wasm_f32x4_mul(rest, wasm_f32x4_const_splat(5.192296858534828e33f));
    const v128_t inf = wasm_v128_and(wasm_i32x4_gt(x, wasm_i32x4_const_splat(0x477fffff)),
                                     wasm_i32x4_const_splat(0x7f800000));
    return wasm_v128_or(wasm_v128_or(x, sign), inf);
}

/* Eight elements. */
BITNET__INLINE void bitnet__load8_wasm(v128_t *v, const uint8_t *p, const int kind) {
    v[0] = wasm_v128_load(p);
    if (kind == BITNET__ROWS_F32) v[1] = wasm_v128_load(p + 16);
    else {
        const v128_t zero = wasm_i32x4_const_splat(0);
        v[1] = wasm_i16x8_shuffle(zero, v[0], 0, 12, 1, 13, 2, 14, 3, 15);
        v[0] = wasm_i16x8_shuffle(zero, v[0], 0, 8, 1, 9, 2, 10, 3, 11);
    }
    if (kind == BITNET__ROWS_F16) {
        v[0] = bitnet__from_f16_wasm(v[0]);
        v[1] = bitnet__from_f16_wasm(v[1]);
    }
}

/* Adds the 16 partial sums in the order of bitnet__sum_lanes. */
BITNET__INLINE float bitnet__fold_wasm(const v128_t *sum) {
    v128_t s = wasm_f32x4_add(wasm_f32x4_add(sum[0], sum[2]), wasm_f32x4_add(sum[1], sum[3]));
    s = wasm_f32x4_add(s, wasm_i32x4_shuffle(s, s, 2, 3, 0, 1));
    s = wasm_f32x4_add(s, wasm_i32x4_shuffle(s, s, 1, 0, 3, 2));
    return wasm_f32x4_extract_lane(s, 0);
}

/* A tile is 2 dot products, whose sums take 8 registers: 2 rows and 1 column, or 1 and 2. Past the
   last row it repeats that row and drops the result. */
BITNET__INLINE void bitnet__tile_dots_wasm(const uint8_t *w, const float *x, int n, int rows,
                                           float *out, size_t out_stride, const int tile_cols,
                                           const int kind) {
    const size_t bytes = BITNET__ROW_BYTES(kind);
    const int tile_rows = 2 / tile_cols;
    v128_t sum[2][2][4], v[2][2], a;
    const uint8_t *row[2];
    int r, c, i, j, k;
    BITNET__UNROLL for (r = 0; r < tile_rows; r++) {
        row[r] = w + bitnet__clamp(r, rows) * (size_t)n * bytes;
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            BITNET__UNROLL for (j = 0; j < 4; j++) sum[r][c][j] = wasm_f32x4_const_splat(0.0f);
        }
    }
    for (i = 0; i < n; i += BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < 4; j += 2) {
            BITNET__UNROLL for (r = 0; r < tile_rows; r++)
                bitnet__load8_wasm(v[r], row[r] + (size_t)(i + 4 * j) * bytes, kind);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                BITNET__UNROLL for (k = 0; k < 2; k++) {
                    a = wasm_v128_load(x + (size_t)c * (size_t)n + i + 4 * (j + k));
                    BITNET__UNROLL for (r = 0; r < tile_rows; r++)
                        sum[r][c][j + k] =
                            wasm_f32x4_add(sum[r][c][j + k], wasm_f32x4_mul(v[r][k], a));
                }
            }
        }
    }
    BITNET__UNROLL for (r = 0; r < tile_rows; r++) {
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            if (r < rows) out[(size_t)c * out_stride + (size_t)r] = bitnet__fold_wasm(sum[r][c]);
    }
}

/* Rows are in the outer loop because they are the longer array. */
BITNET__INLINE void bitnet__dots_wasm(const uint8_t *w, const float *x, int n, int rows, int cols,
                                      float *out, size_t out_stride, const int kind) {
    const size_t row_bytes = (size_t)n * BITNET__ROW_BYTES(kind);
    int r, c;
    for (; rows > 0; rows -= 2, w += 2 * row_bytes, out += 2) {
        const float *col = x;
        float *to = out;
        for (c = cols; c >= 2; c -= 2, col += 2 * (size_t)n, to += 2 * out_stride)
            for (r = 0; r < 2 && r < rows; r++)
                bitnet__tile_dots_wasm(w + (size_t)r * row_bytes, col, n, 1, to + r, out_stride, 2,
                                       kind);
        if (c) bitnet__tile_dots_wasm(w, col, n, rows, to, out_stride, 1, kind);
    }
}

/* With several columns, rows of F16 are converted to floats once, in blocks of up to 16 KB, which
   then stay in the L1 cache for all columns. */
enum { BITNET__WIDE = 4096 };

static void bitnet__widen_wasm(const uint8_t *w, size_t w_stride, int n, int rows, float *wide) {
    v128_t v[2];
    int r, i;
    for (r = 0; r < rows; r++, w += w_stride * 2) {
        for (i = 0; i < n; i += 8, wide += 8) {
            bitnet__load8_wasm(v, w + 2 * (size_t)i, BITNET__ROWS_F16);
            wasm_v128_store(wide, v[0]);
            wasm_v128_store(wide + 4, v[1]);
        }
    }
}

static void bitnet__dotrows_f32_wasm(const uint8_t *w, const float *x, int n, int rows, int cols,
                                     float *out, size_t out_stride) {
    if (n % BITNET__LANES) bitnet__dotrows_f32_scalar(w, x, n, rows, cols, out, out_stride);
    else bitnet__dots_wasm(w, x, n, rows, cols, out, out_stride, BITNET__ROWS_F32);
}

static void bitnet__dotrows_bf16_wasm(const uint8_t *w, const float *x, int n, int rows, int cols,
                                      float *out, size_t out_stride) {
    if (n % BITNET__LANES) bitnet__dotrows_bf16_scalar(w, x, n, rows, cols, out, out_stride);
    else bitnet__dots_wasm(w, x, n, rows, cols, out, out_stride, BITNET__ROWS_BF16);
}

static void bitnet__dotrows_f16_wasm(const uint8_t *w, const float *x, int n, int rows, int cols,
                                     float *out, size_t out_stride) {
    float wide[BITNET__WIDE];
    int r, c, count, step;
    if (n % BITNET__LANES) {
        bitnet__dotrows_f16_scalar(w, x, n, rows, cols, out, out_stride);
        return;
    }
    if (cols == 1 || n > BITNET__WIDE) {
        bitnet__dots_wasm(w, x, n, rows, cols, out, out_stride, BITNET__ROWS_F16);
        return;
    }
    for (r = 0; r < rows; r += count) {
        count = rows - r < BITNET__WIDE / n ? rows - r : BITNET__WIDE / n;
        bitnet__widen_wasm(w + (size_t)r * (size_t)n * 2, (size_t)n, n, count, wide);
        for (c = 0; c < cols; c += step) {     /* columns outside: they are the longer array */
            step = cols - c >= 2 ? 2 : 1;
            bitnet__dots_wasm((const uint8_t *)wide, x + (size_t)c * (size_t)n, n, count, step,
                              out + (size_t)c * out_stride + (size_t)r, out_stride,
                              BITNET__ROWS_F32);
        }
    }
}

/* A tile of the weighted sums over all rows of a block: 1 or 2 columns of 4 registers each. out
   carries the sums from one block to the next, so the order of additions stays the same. */
BITNET__INLINE void bitnet__tile_mix_wasm(const uint8_t *w, size_t w_stride, const float *p,
                                          size_t p_stride, int n, int rows, float *out,
                                          const int tile_cols, const int kind) {
    const size_t bytes = BITNET__ROW_BYTES(kind);
    v128_t sum[2][4], v[2], a[2];
    int r, c, j, k;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (j = 0; j < 4; j++)
            sum[c][j] = wasm_v128_load(out + (size_t)c * (size_t)n + 4 * j);
    }
    for (r = 0; r < rows; r++, w += w_stride * bytes) {
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            a[c] = wasm_v128_load32_splat(p + (size_t)c * p_stride + r);
        BITNET__UNROLL for (j = 0; j < 4; j += 2) {
            bitnet__load8_wasm(v, w + (size_t)j * 4 * bytes, kind);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                BITNET__UNROLL for (k = 0; k < 2; k++)
                    sum[c][j + k] = wasm_f32x4_add(sum[c][j + k], wasm_f32x4_mul(a[c], v[k]));
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (j = 0; j < 4; j++)
            wasm_v128_store(out + (size_t)c * (size_t)n + 4 * j, sum[c][j]);
    }
}

BITNET__INLINE void bitnet__mix_wasm(const uint8_t *w, size_t w_stride, const float *p,
                                     size_t p_stride, int n, int rows, int cols, float *out,
                                     const int kind) {
    int c, i, step;
    for (c = 0; c < cols; c += step) {
        step = cols - c >= 2 ? 2 : 1;
        for (i = 0; i < n; i += BITNET__LANES) {
            const uint8_t *from = w + (size_t)i * BITNET__ROW_BYTES(kind);
            if (step == 2)
                bitnet__tile_mix_wasm(from, w_stride, p, p_stride, n, rows, out + i, 2, kind);
            else bitnet__tile_mix_wasm(from, w_stride, p, p_stride, n, rows, out + i, 1, kind);
        }
        p += (size_t)step * p_stride;
        out += (size_t)step * (size_t)n;
    }
}

/* Blocks of 32 rows, so that they are still in the L1 cache for the next tile. */
static void bitnet__sumrows_f32_wasm(const uint8_t *w, size_t w_stride, const float *p,
                                     size_t p_stride, int n, int rows, int cols, float *out) {
    int r, count;
    if (n % BITNET__LANES) {
        bitnet__sumrows_f32_scalar(w, w_stride, p, p_stride, n, rows, cols, out);
        return;
    }
    for (r = 0; r < rows; r += count) {
        count = rows - r < 32 ? rows - r : 32;
        bitnet__mix_wasm(w + (size_t)r * w_stride * 4, w_stride, p + r, p_stride, n, count, cols,
                         out, BITNET__ROWS_F32);
    }
}

static void bitnet__sumrows_f16_wasm(const uint8_t *w, size_t w_stride, const float *p,
                                     size_t p_stride, int n, int rows, int cols, float *out) {
    float wide[BITNET__WIDE];
    int r, count;
    if (n % BITNET__LANES) {
        bitnet__sumrows_f16_scalar(w, w_stride, p, p_stride, n, rows, cols, out);
        return;
    }
    for (r = 0; r < rows; r += count, w += (size_t)count * w_stride * 2) {
        if (cols == 1 || n > BITNET__WIDE) {
            count = rows - r < 32 ? rows - r : 32;
            bitnet__mix_wasm(w, w_stride, p + r, p_stride, n, count, cols, out, BITNET__ROWS_F16);
        } else {
            count = rows - r < BITNET__WIDE / n ? rows - r : BITNET__WIDE / n;
            bitnet__widen_wasm(w, w_stride, n, count, wide);
            bitnet__mix_wasm((const uint8_t *)wide, (size_t)n, p + r, p_stride, n, count, cols, out,
                             BITNET__ROWS_F32);
        }
    }
}

/* ---- a scale per group ----
   One column: tiles of 16 rows, straight from the packed rows. More columns: panels of rows, two
   columns at a time. */

/* Vectors of 4 rows in a block of 16; the weights of a row for which activations are prepared, and
   the vectors of a panel; the rows of the only column, or the columns of a panel, whose float sums
   are kept at a time. */
enum { BITNET__BLOCK = 4, BITNET__PART = 512, BITNET__BAND_ROWS = 64, BITNET__BAND_COLS = 32 };

/* Rows r to r + 15 from weight k on, the first of a group; if these rows are not there, the last
   block's. */
BITNET__INLINE const uint8_t *bitnet__groups_wasm(const bitnet__grouped *x, int r, int k) {
    if (r >= x->rows) r -= BITNET__GROUP_ROWS;
    return x->w + bitnet__groups_bytes(x->n, x->group, r) +
           (size_t)(k / x->group) * bitnet__group_bytes(x->group);
}

BITNET__INLINE void bitnet__load_scales_wasm(const uint8_t *scales, v128_t *d) {
    bitnet__load8_wasm(d, scales, BITNET__ROWS_F16);
    bitnet__load8_wasm(d + 2, scales + 16, BITNET__ROWS_F16);
}

/* The number of a column's group, in sums and steps. */
BITNET__INLINE size_t bitnet__group_at(const bitnet__grouped *x, int c, int k) {
    return (size_t)c * (size_t)(x->n / x->group) + (size_t)(k / x->group);
}

BITNET__INLINE v128_t bitnet__add_group_wasm(v128_t sum, v128_t dot, v128_t d, v128_t step) {
    const v128_t scale = wasm_f32x4_mul(d, step);
    return wasm_f32x4_add(sum, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(dot), scale));
}

/* Writes the sums of rows r to r + 3 of column c, as far as they are there. */
BITNET__INLINE void bitnet__put_groups_wasm(const bitnet__grouped *x, int r, int c,
                                            v128_t sum) {
    float four[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float *to = x->out + (size_t)c * x->out_stride + (size_t)r;
    if (r >= x->rows) return;
    if (x->add) {
        bitnet__put(four, to, x->rows - r);
        sum = wasm_f32x4_add(wasm_v128_load(four), sum);
    }
    wasm_v128_store(four, sum);
    bitnet__put(to, four, x->rows - r);
}

/* Words 256 times too large: pair i is divided by 4^i. A multiplication would do, but LLVM makes
   shifts of it, one for each lane. */
BITNET__INLINE v128_t bitnet__places_simd128(v128_t v) {
    v = wasm_i32x4_shuffle(v, wasm_i16x8_shr(v, 2), 0, 5, 2, 7);
    return wasm_i32x4_shuffle(v, wasm_i16x8_shr(v, 4), 0, 1, 6, 7);
}

/* 8 pairs of words for 16 weights: of even bytes, then of odd ones. */
static void bitnet__prepare_groups_simd128(const int8_t *q, int len, v128_t *act) {
    int i;
    for (i = 0; i < len; i += 16, act += 2) {
        const v128_t a = wasm_v128_load(q + i);
        act[0] = bitnet__places_simd128(wasm_i16x8_shl(a, 8));
        act[1] = bitnet__places_simd128(wasm_v128_and(a, wasm_i16x8_const_splat(-256)));
    }
}

/* Rows r to r + 15 and weights k to k + len - 1, for which act has the activations. Adds to sum. */
BITNET__INLINE void bitnet__tile_groups_simd128(const bitnet__grouped *x, int r, int k,
                                                int len, const v128_t *act, v128_t *sum) {
    const uint8_t *w = bitnet__groups_wasm(x, r, k);
    const int32_t *pair = (const int32_t *)(const void *)act;
    v128_t dot[BITNET__BLOCK], v[BITNET__BLOCK], d[BITNET__BLOCK], mask[4], a;
    int g, i, j, b;
    BITNET__UNROLL for (i = 0; i < 4; i++) mask[i] = wasm_i16x8_splat((int16_t)(3 << 2 * i));
    for (g = k / x->group; g < (k + len) / x->group; g++) {
        bitnet__load_scales_wasm(w, d);
        w += BITNET__GROUP_SCALES;
        BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
            dot[b] = wasm_i32x4_splat(-256 * x->sums[g]);
        for (j = 0; j < x->group; j += 16, w += 64, pair += 8) {
            BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++) v[b] = wasm_v128_load(w + 16 * b);
            BITNET__UNROLL for (i = 0; i < 8; i++) {
                if (i == 4) {
                    BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
                        v[b] = wasm_u16x8_shr(v[b], 8);
                }
                a = wasm_v128_load32_splat(pair + i);
                BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
                    dot[b] = wasm_i32x4_add(
                        dot[b], wasm_i32x4_dot_i16x8(wasm_v128_and(v[b], mask[i % 4]), a));
            }
        }
        a = wasm_v128_load32_splat(x->steps + g);
        BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
            sum[b] = bitnet__add_group_wasm(sum[b], wasm_i32x4_shr(dot[b], 8), d[b], a);
    }
}

BITNET__APART void bitnet__tiles_groups_simd128(const bitnet__grouped *x) {
    v128_t act[BITNET__PART / 8], sum[BITNET__BAND_ROWS / 4];
    int first, r, k, b, len, rows;
    for (first = 0; first < x->rows; first += BITNET__BAND_ROWS) {
        rows = x->rows - first < BITNET__BAND_ROWS ? x->rows - first : BITNET__BAND_ROWS;
        for (b = 0; b < BITNET__BAND_ROWS / 4; b++) sum[b] = wasm_f32x4_const_splat(0.0f);
        for (k = 0; k < x->n; k += len) {
            len = x->n - k < BITNET__PART ? x->n - k : BITNET__PART;
            bitnet__prepare_groups_simd128(x->q + k, len, act);
            for (r = 0; r < rows; r += BITNET__GROUP_ROWS)
                bitnet__tile_groups_simd128(x, first + r, k, len, act, sum + r / 4);
        }
        for (r = 0; r < rows; r += 4) bitnet__put_groups_wasm(x, first + r, 0, sum[r / 4]);
    }
}

/* A panel of rows and `len` weights, and their scales, the vectors of a group together. */
typedef void bitnet__unpack_groups_fn(const bitnet__grouped *x, int r, int k, int len,
                                      v128_t *panel, v128_t *d);
/* Adds a panel's products with columns c and c + 1 to their sums. */
typedef void bitnet__multiply_groups_fn(const bitnet__grouped *x, int c, int k, int len,
                                        const v128_t *panel, const v128_t *d, v128_t *sum);

/* A panel has `vectors` vectors of 4 rows, and `depth` weights of each. Its columns' sums are in
   memory, but in out only at the end: with add, that has terms of its own, which come last. */
BITNET__INLINE void bitnet__panels_groups(const bitnet__grouped *x,
                                          bitnet__unpack_groups_fn *unpack,
                                          bitnet__multiply_groups_fn *multiply, v128_t *panel,
                                          v128_t *d, v128_t *sum, const int vectors,
                                          const int depth) {
    int first, r, k, c, len, cols, i;
    for (first = 0; first < x->cols; first += BITNET__BAND_COLS) {
        cols = x->cols - first < BITNET__BAND_COLS ? x->cols - first : BITNET__BAND_COLS;
        for (r = 0; r < x->rows; r += 4 * vectors) {
            for (i = 0; i < BITNET__BAND_COLS * vectors; i++) sum[i] = wasm_f32x4_const_splat(0.0f);
            for (k = 0; k < x->n; k += len) {
                len = x->n - k < depth ? x->n - k : depth;
                unpack(x, r, k, len, panel, d);
                for (c = 0; c < cols; c += 2)
                    multiply(x, first + c, k, len, panel, d, sum + c * vectors);
            }
            for (c = 0; c < cols; c++)
                for (i = 0; i < vectors; i++)
                    bitnet__put_groups_wasm(x, r + 4 * i, first + c, sum[c * vectors + i]);
        }
    }
}

/* The table entry. */
#define BITNET__DEFINE_GROUPS(isa, unpack, vectors, depth) \
    BITNET__APART void bitnet__panels_groups_##isa(const bitnet__grouped *x) { \
        v128_t panel[BITNET__PART], d[(depth) / 64 * (vectors)]; \
        v128_t sum[BITNET__BAND_COLS * (vectors)]; \
        bitnet__panels_groups(x, unpack, bitnet__multiply_groups_##isa, panel, d, sum, vectors, \
                              depth); \
    } \
    static void bitnet__dotrows_groups_##isa(const uint8_t *w, const int8_t *q, \
                                             const int32_t *sums, const float *steps, int n, \
                                             int group, int rows, int cols, int add, float *out, \
                                             size_t out_stride) { \
        const bitnet__grouped x = {w, q, sums, steps, n, group, rows, cols, add, out, \
                                       out_stride}; \
        if (cols == 1) bitnet__tiles_groups_##isa(&x); \
        else bitnet__panels_groups_##isa(&x); \
    }

/* The scales of the groups of a panel. */
BITNET__INLINE void bitnet__unpack_scales_wasm(const bitnet__grouped *x, int r, int k, int len,
                                               const int vectors, v128_t *d) {
    int b, g;
    for (g = 0; g < len / x->group; g++)
        for (b = 0; b < vectors; b += BITNET__BLOCK)
            bitnet__load_scales_wasm(bitnet__groups_wasm(x, r + 4 * b, k + g * x->group),
                                     d + g * vectors + b);
}

/* A panel is 32 rows, two to a word, so that one product serves both: weight of one row + 16384 *
   weight of the other, 4 rows further on. A vector is two neighbouring weights of 8 rows; 4 of
   them follow each other. */
BITNET__INLINE void bitnet__unpack_groups_simd128(const bitnet__grouped *x, int r, int k,
                                                  int len, v128_t *panel, v128_t *d) {
    const v128_t fields = wasm_i16x8_const_splat((int16_t)0xc003);
    const v128_t ones = wasm_i16x8_const_splat(16384 + 1);
    int b, i, j;
    bitnet__unpack_scales_wasm(x, r, k, len, 2 * BITNET__BLOCK, d);
    for (b = 0; b < 4; b++) {
        const uint8_t *w = bitnet__groups_wasm(x, r + b / 2 * BITNET__GROUP_ROWS, k) + b % 2 * 32;
        v128_t *to = panel + b, low, high;
        for (j = 0; j < len; j += 16, w += 64) {
            if (j % x->group == 0) w += BITNET__GROUP_SCALES;
            low = wasm_v128_load(w);
            high = wasm_v128_load(w + 16);
            BITNET__UNROLL for (i = 0; i < 4; i++, to += 8) {
                const v128_t v = wasm_v128_or(
                    wasm_v128_and(wasm_u16x8_shr(low, (uint32_t)(2 * i)),
                                  wasm_i8x16_const_splat(3)),
                    wasm_v128_and(wasm_i16x8_shl(high, (uint32_t)(6 - 2 * i)),
                                  wasm_i8x16_const_splat((int8_t)0xc0)));
                const v128_t s = wasm_i8x16_shuffle(v, v, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6,
                                                    7, 7);
                const v128_t t = wasm_i8x16_shuffle(v, v, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13,
                                                    13, 14, 14, 15, 15);
                to[0] = wasm_i16x8_sub(
                    wasm_v128_and(wasm_i32x4_shuffle(s, t, 0, 2, 4, 6), fields), ones);
                to[4] = wasm_i16x8_sub(
                    wasm_v128_and(wasm_i32x4_shuffle(s, t, 1, 3, 5, 7), fields), ones);
            }
        }
    }
}

/* 8 sums of pairs, 4 vectors of weights, 2 of activations. What a lower row adds in 32 weights fits
   14 bits, in which the upper row adds nothing. So it can be taken out of the sum, and 16384 times
   the upper row's sum is left. */
BITNET__INLINE void bitnet__multiply_groups_simd128(const bitnet__grouped *x, int c, int k,
                                                    int len, const v128_t *panel, const v128_t *d,
                                                    v128_t *sum) {
    v128_t both[2][4], low[2][4], act[2][32], v, a[2];
    const int32_t *pair = (const int32_t *)(const void *)act;
    size_t at[2];
    int g, i, j, p, r;
    BITNET__UNROLL for (i = 0; i < 2; i++) {
        const int one = (int)bitnet__clamp(c + i, x->cols);
        const int8_t *q = x->q + (size_t)one * (size_t)x->n + (size_t)k;
        for (j = 0; j < len; j += 8) act[i][j / 8] = wasm_i16x8_load8x8(q + j);
        at[i] = bitnet__group_at(x, one, k);
    }
    for (g = 0; g < len / x->group; g++, d += 8) {
        BITNET__UNROLL for (i = 0; i < 2; i++) {
            BITNET__UNROLL for (r = 0; r < 4; r++)
                both[i][r] = low[i][r] = wasm_i32x4_const_splat(0);
        }
        for (j = 0; j < x->group; j += 32) {
            for (p = 0; p < 16; p++, panel += 4, pair++) {
                BITNET__UNROLL for (i = 0; i < 2; i++)
                    a[i] = wasm_v128_load32_splat(pair + 128 * i);
                BITNET__UNROLL for (r = 0; r < 4; r++) {
                    v = panel[r];
                    BITNET__UNROLL for (i = 0; i < 2; i++)
                        both[i][r] = wasm_i32x4_add(both[i][r], wasm_i32x4_dot_i16x8(v, a[i]));
                }
            }
            BITNET__UNROLL for (i = 0; i < 2; i++) {
                BITNET__UNROLL for (r = 0; r < 4; r++) {
                    v = wasm_i32x4_shl(wasm_i32x4_sub(both[i][r], low[i][r]), 18);
                    low[i][r] = wasm_i32x4_add(low[i][r], wasm_i32x4_shr(v, 18));
                }
            }
        }
        BITNET__UNROLL for (i = 0; i < 2; i++) {
            v128_t *to = sum + 8 * i;
            a[i] = wasm_v128_load32_splat(x->steps + at[i] + (size_t)g);
            BITNET__UNROLL for (r = 0; r < 4; r++) {
                v = wasm_i32x4_shr(wasm_i32x4_sub(both[i][r], low[i][r]), 14);
                to[2 * r] = bitnet__add_group_wasm(to[2 * r], low[i][r], d[2 * r], a[i]);
                to[2 * r + 1] = bitnet__add_group_wasm(to[2 * r + 1], v, d[2 * r + 1], a[i]);
            }
        }
    }
}

BITNET__DEFINE_GROUPS(simd128, bitnet__unpack_groups_simd128, 8, 256)

#if BITNET__RELAXED
/* The same with relaxed dots; halves: sums are 8 lanes of int16, else 4 lanes of int32. */
BITNET__INLINE void bitnet__tile_groups_relaxed(const bitnet__grouped *x, int r,
                                                const int halves) {
    const uint8_t *w = bitnet__groups_wasm(x, r, 0);
    const int8_t *q = x->q;
    const int part = x->group < 128 ? x->group : 128;
    const v128_t zero = wasm_i32x4_const_splat(0);
    v128_t sum[BITNET__BLOCK], dot[2][BITNET__BLOCK], v[BITNET__BLOCK], d[BITNET__BLOCK];
    v128_t mask[2], a, s;
    int g, i, j, b, end;
    mask[0] = wasm_i8x16_splat(0x03);
    mask[1] = wasm_i8x16_splat(0x0c);
    BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++) sum[b] = wasm_f32x4_const_splat(0.0f);
    for (g = 0; g < x->n / x->group; g++) {
        bitnet__load_scales_wasm(w, d);
        w += BITNET__GROUP_SCALES;
        BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++) dot[0][b] = zero;
        for (end = part; end <= x->group; end += part) {
            BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++) dot[1][b] = zero;
            for (j = 0; j < part; j += 16, w += 64, q += 16) {
                BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
                    v[b] = wasm_v128_load(w + 16 * b);
                BITNET__UNROLL for (i = 0; i < 4; i++) {
                    if (i == 2) {
                        BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
                            v[b] = wasm_u16x8_shr(v[b], 4);
                    }
                    a = wasm_v128_load32_splat(q + 4 * i);
                    BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
                        dot[i % 2][b] = bitnet__dot_relaxed(
                            dot[i % 2][b], wasm_v128_and(v[b], mask[i % 2]), a, halves);
                }
            }
            BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
                dot[0][b] = halves ? wasm_i16x8_add(dot[0][b], wasm_i16x8_shr(dot[1][b], 2))
                                   : wasm_i32x4_add(dot[0][b], wasm_i32x4_shr(dot[1][b], 2));
        }
        a = wasm_v128_load32_splat(x->steps + g);
        s = wasm_v128_load32_splat(x->sums + g);
        BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
            sum[b] = bitnet__add_group_wasm(
                sum[b], wasm_i32x4_sub(bitnet__to_int32_relaxed(dot[0][b], halves), s), d[b], a);
    }
    BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
        bitnet__put_groups_wasm(x, r + 4 * b, 0, sum[b]);
}

BITNET__INLINE void bitnet__tiles_groups_relaxed(const bitnet__grouped *x, const int halves) {
    int r;
    for (r = 0; r < x->rows; r += BITNET__GROUP_ROWS) bitnet__tile_groups_relaxed(x, r, halves);
}

/* A panel is 16 rows of codes, a byte each: 4 vectors of 4 rows and 4 weights, in turn. */
BITNET__INLINE void bitnet__unpack_groups_relaxed(const bitnet__grouped *x, int r, int k,
                                                  int len, v128_t *panel, v128_t *d) {
    const uint8_t *w = bitnet__groups_wasm(x, r, k);
    int j, b, i;
    bitnet__unpack_scales_wasm(x, r, k, len, BITNET__BLOCK, d);
    for (j = 0; j < len; j += 16, w += 64, panel += 16) {
        if (j % x->group == 0) w += BITNET__GROUP_SCALES;
        BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++) {
            const v128_t v = wasm_v128_load(w + 16 * b);
            BITNET__UNROLL for (i = 0; i < 4; i++)
                panel[4 * i + b] = bitnet__codes_wasm(v, 3 - i);
        }
    }
}

/* 8 sums, 4 vectors of weights, 2 of activations. */
BITNET__INLINE void bitnet__multiply_groups_relaxed(const bitnet__grouped *x, int c, int k,
                                                    int len, const v128_t *panel, const v128_t *d,
                                                    v128_t *sum, const int halves) {
    v128_t dot[2][BITNET__BLOCK], v, a[2];
    const int8_t *col[2];
    size_t at[2];
    int g, i, j, b;
    BITNET__UNROLL for (i = 0; i < 2; i++) {
        const int one = (int)bitnet__clamp(c + i, x->cols);
        col[i] = x->q + (size_t)one * (size_t)x->n + (size_t)k;
        at[i] = bitnet__group_at(x, one, k);
    }
    for (g = 0; g < len / x->group; g++, d += BITNET__BLOCK) {
        BITNET__UNROLL for (i = 0; i < 2; i++) {
            BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
                dot[i][b] = wasm_i32x4_const_splat(0);
        }
        for (j = 0; j < x->group; j += 4, panel += 4) {
            BITNET__UNROLL for (i = 0; i < 2; i++) {
                a[i] = wasm_v128_load32_splat(col[i]);
                col[i] += 4;
            }
            BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++) {
                v = panel[b];
                BITNET__UNROLL for (i = 0; i < 2; i++)
                    dot[i][b] = bitnet__dot_relaxed(dot[i][b], v, a[i], halves);
            }
        }
        BITNET__UNROLL for (i = 0; i < 2; i++) {
            v128_t *to = sum + BITNET__BLOCK * i;
            a[i] = wasm_v128_load32_splat(x->steps + at[i] + (size_t)g);
            BITNET__UNROLL for (b = 0; b < BITNET__BLOCK; b++)
                to[b] = bitnet__add_group_wasm(
                    to[b], wasm_i32x4_sub(bitnet__to_int32_relaxed(dot[i][b], halves),
                                          wasm_i32x4_splat(x->sums[at[i] + (size_t)g])),
                    d[b], a[i]);
        }
    }
}

#define BITNET__DEFINE_GROUPS_RELAXED(isa, halves) \
    BITNET__APART void bitnet__tiles_groups_##isa(const bitnet__grouped *x) { \
        bitnet__tiles_groups_relaxed(x, halves); \
    } \
    BITNET__INLINE void bitnet__multiply_groups_##isa(const bitnet__grouped *x, int c, int k, \
                                                      int len, const v128_t *panel, \
                                                      const v128_t *d, v128_t *sum) { \
        bitnet__multiply_groups_relaxed(x, c, k, len, panel, d, sum, halves); \
    } \
    BITNET__DEFINE_GROUPS(isa, bitnet__unpack_groups_relaxed, BITNET__BLOCK, 512)
BITNET__DEFINE_GROUPS_RELAXED(relaxed16, 1)
BITNET__DEFINE_GROUPS_RELAXED(relaxed32, 0)

static void bitnet__dotrows_groups_relaxed(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                           const float *steps, int n, int group, int rows,
                                           int cols, int add, float *out, size_t out_stride) {
    if (bitnet__relaxed_kind() == BITNET__SATURATED)
        bitnet__dotrows_groups_relaxed16(w, q, sums, steps, n, group, rows, cols, add, out,
                                         out_stride);
    else
        bitnet__dotrows_groups_relaxed32(w, q, sums, steps, n, group, rows, cols, add, out,
                                         out_stride);
}
#endif

/* ---- one row ----
   These functions and those of bitnet_kernels_arm.h are alike, step for step: change both.

   pmax(a, b) is a < b ? b : a, and pmin(a, b) is b < a ? b : a. With the constant first they do the
   same as the scalar comparisons, in which a NaN falls through to the constant. Where a NaN must
   stay, the constant is the second operand. */

static float bitnet__quantize_wasm(const float *x, int n, int8_t *q, int32_t *sum) {
    const v128_t magic = wasm_f32x4_const_splat(12582912.0f);
    v128_t tops = wasm_i32x4_const_splat(0), total = tops, v[4], scale;
    uint32_t top = 0, bits[4];
    int32_t lanes[4];
    float a, s;
    int i, j;
    if (n % BITNET__LANES) return bitnet__quantize_scalar(x, n, q, sum);
    for (i = 0; i < n; i += 4)
        tops = wasm_u32x4_max(tops, wasm_v128_and(wasm_v128_load(x + i),
                                                  wasm_i32x4_const_splat(0x7fffffff)));
    wasm_v128_store(bits, tops);
    for (i = 0; i < 4; i++) top = bits[i] > top ? bits[i] : top;
    a = bitnet__float_from_bits(top);
    a = a > 1e-5f ? a : 1e-5f;
    s = 127.0f / a;
    scale = wasm_f32x4_splat(s);
    for (i = 0; i < n; i += BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < 4; j++) {
            v[j] = wasm_f32x4_mul(wasm_v128_load(x + i + 4 * j), scale);
            v[j] = wasm_f32x4_pmax(wasm_f32x4_const_splat(-128.0f), v[j]);
            v[j] = wasm_f32x4_pmin(wasm_f32x4_const_splat(127.0f), v[j]);
            v[j] = wasm_i32x4_sub(wasm_f32x4_add(v[j], magic), magic);
            total = wasm_i32x4_add(total, v[j]);
        }
        wasm_v128_store(q + i, wasm_i8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4(v[0], v[1]),
                                                       wasm_i16x8_narrow_i32x4(v[2], v[3])));
    }
    wasm_v128_store(lanes, total);
    *sum = lanes[0] + lanes[1] + lanes[2] + lanes[3];
    return s;
}

BITNET__INLINE v128_t bitnet__horner_wasm(v128_t p, v128_t x, float next) {
    return wasm_f32x4_add(wasm_f32x4_mul(p, x), wasm_f32x4_splat(next));
}

BITNET__INLINE v128_t bitnet__expf_wasm(v128_t x) {
    v128_t t, n, r, p;
    x = wasm_f32x4_pmax(wasm_f32x4_const_splat(-64.0f), x);
    x = wasm_f32x4_pmin(wasm_f32x4_const_splat(88.0f), x);
    t = bitnet__horner_wasm(x, wasm_f32x4_const_splat(1.44269504f), 12582912.0f);
    n = wasm_f32x4_sub(t, wasm_f32x4_const_splat(12582912.0f));
    r = wasm_f32x4_sub(x, wasm_f32x4_mul(n, wasm_f32x4_const_splat(0.693359375f)));
    r = wasm_f32x4_sub(r, wasm_f32x4_mul(n, wasm_f32x4_const_splat(-2.12194440e-4f)));
    p = bitnet__horner_wasm(r, wasm_f32x4_const_splat(1.0f / 720.0f), 1.0f / 120.0f);
    p = bitnet__horner_wasm(p, r, 1.0f / 24.0f);
    p = bitnet__horner_wasm(p, r, 1.0f / 6.0f);
    p = bitnet__horner_wasm(p, r, 0.5f);
    p = bitnet__horner_wasm(p, r, 1.0f);
    p = bitnet__horner_wasm(p, r, 1.0f);
    return wasm_i32x4_add(p, wasm_i32x4_shl(t, 23));
}

BITNET__INLINE v128_t bitnet__round13_wasm(v128_t x) {
    const v128_t t = wasm_f32x4_mul(x, wasm_f32x4_const_splat(2049.0f));
    return wasm_f32x4_sub(t, wasm_f32x4_sub(t, x));
}

BITNET__INLINE v128_t bitnet__to_f13_wasm(v128_t x) {
    const v128_t tiny = wasm_f32x4_lt(wasm_f32x4_abs(x), wasm_f32x4_const_splat(7.8886091e-31f));
    x = wasm_f32x4_pmax(x, wasm_f32x4_const_splat(-1.2676506e30f));
    x = wasm_f32x4_pmin(x, wasm_f32x4_const_splat(1.2676506e30f));
    return wasm_v128_andnot(bitnet__round13_wasm(x), tiny);
}

/* n is the length of the context, any number. The elements after the last 16 are padded with the
   largest one, and the padding is left out of the sum. */
static void bitnet__softmax_wasm(float *x, int n, float scale, int to_f13) {
    v128_t v, sum[4], tops = wasm_f32x4_const_splat(-3.4e38f);
    float lanes[BITNET__LANES], rest[BITNET__LANES], top = -3.4e38f, inv;
    int i, j, whole = n - n % BITNET__LANES;
    for (i = 0; i < whole; i += 4) {
        v = wasm_f32x4_mul(wasm_v128_load(x + i), wasm_f32x4_splat(scale));
        tops = wasm_f32x4_pmax(tops, v);
        wasm_v128_store(x + i, v);
    }
    wasm_v128_store(lanes, tops);
    for (i = 0; i < 4; i++) top = lanes[i] > top ? lanes[i] : top;
    for (i = whole; i < n; i++) {
        x[i] *= scale;
        top = x[i] > top ? x[i] : top;
    }
    BITNET__UNROLL for (j = 0; j < 4; j++) sum[j] = wasm_f32x4_const_splat(0.0f);
    for (i = 0; i < whole; i += BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < 4; j++) {
            v = wasm_f32x4_sub(wasm_v128_load(x + i + 4 * j), wasm_f32x4_splat(top));
            v = bitnet__expf_wasm(v);
            sum[j] = wasm_f32x4_add(sum[j], v);
            wasm_v128_store(x + i + 4 * j, v);
        }
    }
    for (i = 0; i < BITNET__LANES; i++) rest[i] = whole + i < n ? x[whole + i] : top;
    for (j = 0; j < 4; j++) {
        v = wasm_f32x4_sub(wasm_v128_load(rest + 4 * j), wasm_f32x4_splat(top));
        wasm_v128_store(rest + 4 * j, bitnet__expf_wasm(v));
        wasm_v128_store(lanes + 4 * j, sum[j]);
    }
    memcpy(x + whole, rest, (size_t)(n - whole) * sizeof *x);
    for (i = 0; whole + i < n; i++) lanes[i] += rest[i];
    inv = 1.0f / bitnet__sum_lanes(lanes);
    for (i = 0; i < whole; i += 4) {
        v = wasm_f32x4_mul(wasm_v128_load(x + i), wasm_f32x4_splat(inv));
        wasm_v128_store(x + i, to_f13 ? bitnet__round13_wasm(v) : v);
    }
    for (i = whole; i < n; i++) x[i] = to_f13 ? bitnet__round13(x[i] * inv) : x[i] * inv;
}

static void bitnet__rope_wasm(const float *x, const float *cos_sin, int n_rot, int n, int to_f13,
                              float *y) {
    const int half = n_rot / 2;
    v128_t a, b, cs, sn, v;
    int i;
    if (n_rot % 8 || n % 4) {
        bitnet__rope_scalar(x, cos_sin, n_rot, n, to_f13, y);
        return;
    }
    for (i = 0; i < half; i += 4) {
        a = wasm_v128_load(x + i);
        b = wasm_v128_load(x + half + i);
        cs = wasm_v128_load(cos_sin + i);
        sn = wasm_v128_load(cos_sin + half + i);
        v = wasm_f32x4_sub(wasm_f32x4_mul(a, cs), wasm_f32x4_mul(b, sn));
        wasm_v128_store(y + i, to_f13 ? bitnet__to_f13_wasm(v) : v);
        v = wasm_f32x4_add(wasm_f32x4_mul(b, cs), wasm_f32x4_mul(a, sn));
        wasm_v128_store(y + half + i, to_f13 ? bitnet__to_f13_wasm(v) : v);
    }
    for (i = n_rot; i < n; i += 4) {
        v = wasm_v128_load(x + i);
        wasm_v128_store(y + i, to_f13 ? bitnet__to_f13_wasm(v) : v);
    }
}

/* All four cases of the scalar code; masks select one. */
BITNET__INLINE v128_t bitnet__to_f16_wasm(v128_t x) {
    const v128_t rest = wasm_v128_and(x, wasm_i32x4_const_splat(0x7fffffff));
    const v128_t sign = wasm_v128_and(wasm_u32x4_shr(x, 16), wasm_i32x4_const_splat(0x8000));
    const v128_t cut = wasm_u32x4_shr(rest, 13);
    const v128_t odd = wasm_v128_and(cut, wasm_i32x4_const_splat(1));
    const v128_t small = wasm_i32x4_sub(wasm_f32x4_add(rest, wasm_f32x4_const_splat(0.5f)),
                                        wasm_i32x4_const_splat(0x3f000000));
    const v128_t nan = wasm_v128_or(wasm_v128_and(cut, wasm_i32x4_const_splat(0x3ff)),
                                    wasm_i32x4_const_splat(0x7e00));
    v128_t h = wasm_i32x4_add(wasm_i32x4_add(rest, odd), wasm_i32x4_const_splat(-0x37fff001));
    h = wasm_u32x4_shr(h, 13);
    h = wasm_v128_bitselect(small, h, wasm_i32x4_lt(rest, wasm_i32x4_const_splat(0x38800000)));
    h = wasm_v128_bitselect(wasm_i32x4_const_splat(0x7c00), h,
                            wasm_i32x4_gt(rest, wasm_i32x4_const_splat(0x477fefff)));
    h = wasm_v128_bitselect(nan, h, wasm_i32x4_gt(rest, wasm_i32x4_const_splat(0x7f800000)));
    return wasm_v128_or(h, sign);
}

static void bitnet__store_f16_wasm(const float *x, int n, uint8_t *out) {
    int i, whole = n - n % 8;
    for (i = 0; i < whole; i += 8)
        wasm_v128_store(out + 2 * (size_t)i,
                        wasm_u16x8_narrow_i32x4(bitnet__to_f16_wasm(wasm_v128_load(x + i)),
                                                bitnet__to_f16_wasm(wasm_v128_load(x + i + 4))));
    bitnet__store_f16_scalar(x + whole, n - whole, out + 2 * (size_t)whole);
}

/* Four integer dot products as floats, times f. */
BITNET__INLINE v128_t bitnet__scaled_wasm(const int32_t *dots, float f) {
    return wasm_f32x4_mul(wasm_f32x4_convert_i32x4(wasm_v128_load(dots)), wasm_f32x4_splat(f));
}

static void bitnet__dequantize_wasm(const int32_t *dots, float f, int n, int add, float *y) {
    int i, whole = n - n % 4;
    for (i = 0; i < whole; i += 4) {
        const v128_t v = bitnet__scaled_wasm(dots + i, f);
        wasm_v128_store(y + i, add ? wasm_f32x4_add(wasm_v128_load(y + i), v) : v);
    }
    bitnet__dequantize_scalar(dots + whole, f, n - whole, add, y + whole);
}

static void bitnet__relu2_gate_wasm(const float *gate, const float *up, int n, float *y) {
    int i, whole = n - n % 4;
    for (i = 0; i < whole; i += 4) {
        const v128_t g = wasm_f32x4_pmax(wasm_f32x4_const_splat(0.0f), wasm_v128_load(gate + i));
        wasm_v128_store(y + i, wasm_f32x4_mul(wasm_f32x4_mul(g, g), wasm_v128_load(up + i)));
    }
    bitnet__relu2_gate_scalar(gate + whole, up + whole, n - whole, y + whole);
}

static void bitnet__sigmoid_gate_wasm(const float *gate, const float *up, float a, float b, int n,
                                      float *y) {
    int i, whole = n - n % 4;
    for (i = 0; i < whole; i += 4) {
        const v128_t g = wasm_v128_load(gate + i);
        v128_t t = wasm_f32x4_mul(wasm_f32x4_mul(wasm_f32x4_splat(b), g), g);
        t = wasm_f32x4_mul(wasm_f32x4_add(t, wasm_f32x4_splat(a)), g);
        t = wasm_f32x4_add(wasm_f32x4_const_splat(1.0f), bitnet__expf_wasm(t));
        wasm_v128_store(y + i, wasm_f32x4_mul(wasm_f32x4_div(g, t), wasm_v128_load(up + i)));
    }
    bitnet__sigmoid_gate_scalar(gate + whole, up + whole, a, b, n - whole, y + whole);
}

static void bitnet__rmsnorm_wasm(const float *x, const float *gain, int n, float eps, float *y) {
    v128_t v, sum[4];
    float lanes[BITNET__LANES], mean, inv;
    int i, j;
    if (n % BITNET__LANES) {
        bitnet__rmsnorm_scalar(x, gain, n, eps, y);
        return;
    }
    BITNET__UNROLL for (j = 0; j < 4; j++) sum[j] = wasm_f32x4_const_splat(0.0f);
    for (i = 0; i < n; i += BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < 4; j++) {
            v = wasm_v128_load(x + i + 4 * j);
            sum[j] = wasm_f32x4_add(sum[j], wasm_f32x4_mul(v, v));
        }
    }
    for (j = 0; j < 4; j++) wasm_v128_store(lanes + 4 * j, sum[j]);
    mean = bitnet__sum_lanes(lanes) / (float)n;
    inv = (float)(1.0 / bitnet__sqrt((double)mean + (double)eps));
    for (i = 0; i < n; i += 4) {
        v = wasm_f32x4_mul(wasm_v128_load(x + i), wasm_f32x4_splat(inv));
        wasm_v128_store(y + i, wasm_f32x4_mul(v, wasm_v128_load(gain + i)));
    }
}

/* ---- what the module and the engine support ---- */

static uint32_t bitnet__cpu_features(void) {
    uint32_t features = BITNET_CPU_SIMD128;
#if BITNET__RELAXED
    if (bitnet__relaxed_correct()) features |= BITNET_CPU_RELAXED;
#endif
    return features;
}

/* ---- the tables ---- */

#define BITNET__KERNEL_ENTRIES(ternary, groups, u8, u4) \
    bitnet__quantize_wasm, ternary, groups, bitnet__dotrows_f32_wasm, bitnet__dotrows_f16_wasm, \
    bitnet__dotrows_bf16_wasm, bitnet__dotrows_f16_wasm, bitnet__sumrows_f32_wasm, \
    bitnet__sumrows_f16_wasm, bitnet__softmax_wasm, bitnet__rope_wasm, bitnet__store_f16_wasm, \
    bitnet__dequantize_wasm, bitnet__relu2_gate_wasm, bitnet__sigmoid_gate_wasm, \
    bitnet__rmsnorm_wasm, u8, u4, ternary

static const bitnet_kernels bitnet__kernels_simd128 = {
    "simd128", BITNET_CPU_SIMD128, 0, 0, 0, 0,
    BITNET__KERNEL_ENTRIES(bitnet__dotrows_i2s_simd128, bitnet__dotrows_groups_simd128,
                           bitnet__dotrows_u8_simd128, bitnet__dotrows_u4_simd128)
};
#if BITNET__RELAXED
static const bitnet_kernels bitnet__kernels_relaxed = {
    "relaxed-simd", BITNET_CPU_SIMD128 | BITNET_CPU_RELAXED, 0, 0, 0, 0,
    BITNET__KERNEL_ENTRIES(bitnet__dotrows_i2s_relaxed, bitnet__dotrows_groups_relaxed,
                           bitnet__dotrows_u8_relaxed, bitnet__dotrows_u4_relaxed)
};
  #define BITNET__KERNEL_TABLES &bitnet__kernels_relaxed, &bitnet__kernels_simd128,
#else
  #define BITNET__KERNEL_TABLES &bitnet__kernels_simd128,
#endif
