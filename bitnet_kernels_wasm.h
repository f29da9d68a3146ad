/* bitnet_kernels_wasm.h - WebAssembly kernels for bitnet.h: SIMD128, relaxed SIMD; MIT licence, see
   there

   Put this file beside bitnet.h, which includes it by name. Every entry gives the same bits as its
   scalar twin in bitnet.h. The comments there say what is computed; those here say only how.

   INSTRUCTIONS
       simd128       Needs -msimd128. Integer dot products use i32x4.dot_i16x8_s (PMADDWD on x86):
                     there is no product of bytes, and x86 has no shift of bytes.
       relaxed-simd  Also needs -mrelaxed-simd. Integer dot products of bytes use relaxed dots, one
                     of whose operands has 7 bits.
       Both          Many columns are not multiplied, but looked up: see there. Floats have 16
                     partial sums in four registers. F16 is converted by integer operations, because
                     there is no instruction for it. relaxed-simd multiplies and adds at once where
                     a product is exact (scores_f16, sumrows_f16).
   An engine does not load a module with instructions that it does not know. So the command line
   decides what is compiled, and the page decides which module to load. BITNET_NO_SIMD128 leaves
   simd128's table out of a module with relaxed SIMD, for pages that load that one only where it is
   right. bitnet__cpu_features reports
   what the module has, and tests whether this engine computes the relaxed dot correctly.
   dotrows_groups takes 320 KB of the stack, dotrows_ternary 210 KB: give each thread 512 KB
   (-sSTACK_SIZE).

   WEIGHTS: I2_S, the 128 packing, read in place
       A row of n weights is n / 4 bytes. A block of 128 weights is 32 of them, two registers.
       Code = weight + 1. Code 3 is invalid, but counts as 3 here as in the scalar code.

           byte of the block      0     1     2   ...  31       with activations
           bits 7-6, weight       0     1     2   ...  31         0 ..  31
           bits 5-4, weight      32    33    34   ...  63        32 ..  63
           bits 3-2, weight      64    65    66   ...  95        64 ..  95
           bits 1-0, weight      96    97    98   ... 127        96 .. 127

       simd128, few columns: two rows are multiplied at once, because i32x4.dot_i16x8 has room for
       both. A word takes a byte of the first row below, and one of the second above. One of them is
       moved by 4 bits: so of the same weight, the second row's code is 2^12 times as large. A word
       is masked for one weight of both. Once, the codes are 4 times as large; the other time, the
       activations are. The second code of these is in the sign: its upper bit is turned over, which
       makes it code - 2.

           bits of the word      15-14  13-12  11-8   7-4    3-2    1-0       masks
           weights, first time   64 +   96 +   -      -      64 +   96 +      0x3003, 0xc00c
           second time           0 +    32 +   -      -      0 +    32 +      the same

       After 8 products, the first row's sum is in the lower 14 bits of an int32, once it is made
       positive; the second's is above. Both are added up from there.

       relaxed-simd, relaxed dots of four products: bytes in place, masked by 0x03 and 0x0c in v
       and, for the other two fields, in v >> 4 (a shift of words: the mask removes the neighbour's
       bits). There are sums of codes and sums of 4 times the codes.

       relaxed-simd, relaxed dots of two products: bytes of v, v >> 2, v >> 4 and v >> 6, masked by
       0x03. Sums of 4 times the codes would fit int16 for only 2 blocks.

   LOOKED-UP SUMS, for many columns
       A byte of weights has four codes: 81 values without code 3. For each place of a byte in a row
       and 16 columns, the 81 possible sums of (code - 1) * q are computed once, as int16. A row
       then adds, for each of its bytes, one of them: two vectors, 64 products for two loads and two
       additions. A byte of weights is turned once into the address of its sum, for all columns.

           k-step   8 bytes of each row, 32 weights: a table [8][81][16] of int16, 20 KB, in L1
           entry    27 c0 + 9 c1 + 3 c2 + c3 of a byte with the codes c0 (bits 7-6) to c3 (1-0)

       That takes no product, so it is the same with and without relaxed SIMD. A table costs about
       as much as looking up 80 rows, so up to 640 rows share it, and few rows or columns go to the
       tiles. So do rows with a code 3.

   WEIGHTS WITH A SCALE PER GROUP, read in place
       16 bytes of a row are multiplied as those of I2_S. Only the activations that they meet are
       others: bitnet.h draws them under "a scale per group". Few columns go to tiles of 16 rows. A
       row's sum of a group ends in a lane of its own, because its scale comes next.

   SUMS OF FOUR BITS, for codes of one bit and few columns
       Of 16 rows, each lane gets the same byte. Half a byte selects a sum of those of 4 activations
       whose bits are 1, plus 512: a number of 10 bits. Two swizzles look up its lower and its upper
       5 bits, in tables that are made once for all rows. That is 1.3 times as fast as 2 bits, or
       faster. 8 sums fit a byte. Then both are added up as words: `odd` has the words' upper
       bytes, `sum` whole words, which may wrap; sum - 256 odd is what lower bytes have. At last,
       dot = 2 sum - the sum of q.

   WHY THE RELAXED DOT IS EXACT
       i16x8.relaxed_dot_i8x16_i7x16_s gives sums of two products of a signed byte and one of 7
       bits. An engine may take the latter as signed or unsigned, and may wrap or saturate the sum.
       Codes and 4 times codes are at most 12, the same either way. A pair of products is at most
       2 * 12 * 128 = 3072, far from 32767. i32x4.relaxed_dot_i8x16_i7x16_add_s adds two such pairs
       to an int32. Engines that use SDOT or AVX-VNNI take one instruction for that; others take
       three, while an int16 sum needs only the first of these and an addition.
       bitnet__relaxed_halves finds out which, by products that do not fit 7 bits. In Node 20
       (PMADDUBSW) int16 sums are 1.7 times as fast, in Chromium 156 with AVX-VNNI int32 sums are
       1.4 times as fast.

   BOUNDS, for q from -128 to 127; of I2_S for codes up to 3, n <= 2^20: 8192 blocks
       simd128, tile      Of 8 products of a lane, 4 times the first row's are from 0 to
                          4 * 8 * 3 * 128 = 12288, under 2^14, once 4 * 3 * |q| is added for each
                          q < 0. A lane gets 32 products a block, 16 of codes up to 3 and 16 of
                          -2 to 1: the second row's are at most 16 * 5 * 128 = 10240, 12 blocks
                          122880, times 2^14 under 2^31.
       relaxed, row       int16, a lane: a block is 8 pairs of code, 8 * 2 * 3 * 128 = 6144. 5
                          blocks (HALVES_BLOCKS2): 30720.
                          int32: all lanes together 4 code, n / 2 products of 1536, at most
                          805306368; code, a quarter of that.
       looked-up sums     int16: no code 3, so 224 weights are at most 224 * 128 = 28672.
       all, int32         All lanes together 384 n, at most 402653184; before or after the sum of q,
                          at most 128 n = 2^27, is subtracted. int32 goes to 2^31.
       scores_i8          Keys as they are, |q| <= 127: all lanes together 255 * 127 n, at most
                          2122383360 for n = 2^16, minus 128 times the sum of q, at most
                          1065353216.
       sumrows_i8         64 products of at most 128 * 127, all lanes together 1040384. Relaxed:
                          pairs of products are at most 2 * 128 * 127 = 32512, and weights of
                          positions have 7 bits.
       dotrows_u4         1920 n, at most 2013265920, and 8 times the sum of q, at most 2^30. Pairs
                          of products are at most 2 * 15 * 128 = 3840; int16, a lane: a block
                          (HALVES_BLOCKS4) is 8 pairs, 30720. simd128, one column: 16 times as
                          much, but only for 8192 weights: 251658240.

   BOUNDS of a scale group: codes up to 3 in groups of 64 and 128, up to 2 in those of 256. int32
   holds the exact dot product.
       simd128, tile      As for I2_S, for at most 2 blocks.
       relaxed, tile      int16: 64 weights of a row are 4 pairs of code in a lane, at most
                          4 * 2 * 3 * 128 = 3072; of those, 2 pairs of 4 code are 6144. Two lanes
                          of a row are added, and up to 2 times 64 weights: 12288. With codes up to
                          2, 4 times 64: 16384.
       looked-up sums     int16: no code 3, so 128 weights are at most 128 * 128 = 16384; 256: two
                          such sums.
       four bits          Bytes: 8 * 31 = 248. Of 32 halves of bytes, int16: 32 * 1020 = 32640. */

#if BITNET__KERNEL_ABI != 13
  #error "bitnet_kernels_wasm.h and bitnet.h are of different releases"
#endif
#define BITNET__HAVE_SIMD
#ifdef BITNET_SMALL                    /* web/bitnet_web.c compiles all but this for size */
  #pragma clang attribute bitnet_small.pop
#endif
#define BITNET__PACKS_simd128 0
#define BITNET__PACKS_relaxed 0

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
#if BITNET__RELAXED && defined(BITNET_NO_SIMD128)
  #define BITNET__SIMD128 0
#else
  #define BITNET__SIMD128 1
#endif

/* Before a loop that has to stay one: V8 moves the loads of a basic block to its beginning, and
   spills what does not fit into the 15 registers that it uses. */
#define BITNET__ROLLED _Pragma("clang loop unroll(disable)")

/* ---- constants of inner loops ----
   V8 makes a constant anew wherever it is used, by three instructions. What comes from memory it
   keeps in a register. The words are volatile, so that no compiler makes constants of them, and
   static: clang 14 reads a volatile local variable before its value is written. */
enum {
    BITNET__EVEN, BITNET__ODD, BITNET__UPPER, BITNET__LOWER,     /* of pairs of rows; see
                                          bitnet__dot_pair_simd128 */
    BITNET__BITS2, BITNET__BITS4,      /* the lowest bits of each byte */
    BITNET__HALF0, BITNET__HALF1,      /* the halves of each word's lower byte */
    BITNET__FIELDS_F16, BITNET__SCALE_F16, BITNET__ABS_F16,      /* see F16 */
    BITNET__UPPER_HALF
};

static const volatile uint32_t bitnet__words_wasm[] = {
    0x30033003, 0xc00cc00c, 0x88888888, 0x3fff,
    0x03030303, 0x0f0f0f0f,
    0x000f000f, 0x00f000f0,
    0x8fffe000, 0x77800000, 0x7fff7fff, 0xffff0000
};

/* The word of this number, four times. */
BITNET__INLINE v128_t bitnet__kept_wasm(int number) {
    return wasm_u32x4_splat(bitnet__words_wasm[number]);
}

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

/* Lanes 2 i and 2 i + 1 of both are added. */
BITNET__INLINE v128_t bitnet__fold2_wasm(v128_t a, v128_t b) {
    return wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 2, 4, 6),
                          wasm_i32x4_shuffle(a, b, 1, 3, 5, 7));
}

/* Writes the dots of a column with up to 4 rows at distances of `apart`, minus *sum. If sum is
   null, adds the dots to what is there. */
BITNET__INLINE void bitnet__put_apart_wasm(int32_t *to, v128_t dots, int rows, int apart,
                                           const int32_t *sum) {
    int32_t four[4];
    int r;
    wasm_v128_store(four, dots);
    for (r = 0; r < 4 && r * apart < rows; r++)
        to[r * apart] = sum ? four[r] - *sum : to[r * apart] + four[r];
}

/* ---- many columns: sums of four activations, looked up ----
   See LOOKED-UP SUMS. A k-step is 8 bytes of every row, 32 weights. */
enum {
    BITNET__SUMS = 81,                 /* that a byte of weights can select, without a code 3 */
    BITNET__LOOK_ROWS = BITNET__ROWS,  /* that share the sums of a k-step, at most */
    BITNET__LOOK_LEAST = 32,           /* and at least: for fewer, the sums would take most time */
    BITNET__LOOK_K_STEPS = 8,          /* whose entries are known at a time */
    BITNET__LOOK_COLS = 16,            /* of a table, in two vectors */
    BITNET__LOOK_TABLE = 8 * BITNET__SUMS * 2 + 128,   /* vectors; also what a code 3 selects */

    /* The columns from which on they are faster than the tiles of a table. */
    BITNET__FEW_SIMD128 = 5, BITNET__FEW_RELAXED16 = 8, BITNET__FEW_RELAXED32 = 16,
    BITNET__FEW_GROUPS32 = 8, BITNET__FEW_BITS = 8
};

/* Where a k-step's rows find their sums: the addresses of 8 entries for each row. */
typedef uint32_t bitnet__look[BITNET__LOOK_ROWS * 8 + 8];

BITNET__INLINE v128_t bitnet__zip_low_wasm(v128_t a, v128_t b) {
    return wasm_i8x16_shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

BITNET__INLINE v128_t bitnet__zip_high_wasm(v128_t a, v128_t b) {
    return wasm_i8x16_shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/* 8 bytes of 16 columns become 8 vectors of 16 columns. */
BITNET__INLINE void bitnet__turn_wasm(const int8_t *const *col, int k, v128_t *to) {
    v128_t a[8], b[8];
    int i, round;
    BITNET__UNROLL for (i = 0; i < 8; i++)
        a[i] = bitnet__zip_low_wasm(wasm_v128_load64_zero(col[i] + k),
                                    wasm_v128_load64_zero(col[i + 8] + k));
    BITNET__UNROLL for (round = 0; round < 3; round++) {
        BITNET__UNROLL for (i = 0; i < 4; i++) {
            b[2 * i] = bitnet__zip_low_wasm(a[i], a[i + 4]);
            b[2 * i + 1] = bitnet__zip_high_wasm(a[i], a[i + 4]);
        }
        BITNET__UNROLL for (i = 0; i < 8; i++) a[i] = b[i];
    }
    BITNET__UNROLL for (i = 0; i < 8; i++) to[i] = a[i];
}

/* The sums of (code - 1) * q for the codes of one byte and 8 columns, q[0] for bits 7-6. Entry
   27 c0 + 9 c1 + 3 c2 + c3 is to[2 * entry]. */
BITNET__APART void bitnet__sums_wasm(v128_t q0, v128_t q1, v128_t q2, v128_t q3, v128_t *to) {
    v128_t low[9], sum, high = wasm_i16x8_neg(wasm_i16x8_add(q0, q1));
    int i, j, l;
    low[0] = wasm_i16x8_neg(wasm_i16x8_add(q2, q3));
    BITNET__UNROLL for (l = 1; l < 9; l++)
        low[l] = l % 3 ? wasm_i16x8_add(low[l - 1], q3) : wasm_i16x8_add(low[l - 3], q2);
    for (i = 0; i < 3; i++, high = wasm_i16x8_add(high, q0)) {
        for (j = 0, sum = high; j < 3; j++, sum = wasm_i16x8_add(sum, q1), to += 18) {
            BITNET__UNROLL for (l = 0; l < 8; l++) to[2 * l] = wasm_i16x8_add(sum, low[l]);
            to[16] = wasm_i16x8_add(sum, low[8]);
        }
    }
}

/* The table of a k-step that begins with weight k, for up to 16 columns. */
static void bitnet__table_wasm(const int8_t *const *col, int k, int vectors, int groups,
                               v128_t *table) {
    v128_t q[32], a[4];
    int i, j, at;
    if (!groups) k = k / 128 * 128 + k % 128 / 4;
    for (i = 0; i < 4; i++) bitnet__turn_wasm(col, k + i * (groups ? 8 : 32), q + 8 * i);
    for (j = 0; j < 8; j++, table += 2 * BITNET__SUMS) {
        for (i = 0; i < 4; i++) {
            at = groups ? j / 4 * 16 + 12 - 4 * i + j % 4 : 8 * i + j;
            a[i] = q[at];
        }
        bitnet__sums_wasm(wasm_i16x8_extend_low_i8x16(a[0]), wasm_i16x8_extend_low_i8x16(a[1]),
                          wasm_i16x8_extend_low_i8x16(a[2]), wasm_i16x8_extend_low_i8x16(a[3]),
                          table);
        if (vectors == 2)
            bitnet__sums_wasm(wasm_i16x8_extend_high_i8x16(a[0]),
                              wasm_i16x8_extend_high_i8x16(a[1]),
                              wasm_i16x8_extend_high_i8x16(a[2]),
                              wasm_i16x8_extend_high_i8x16(a[3]), table + 1);
    }
}

/* The entries that 8 bytes of each of two rows select. The codes of a byte are a number of base 4;
   half a byte, 4 a + b, becomes 3 a + b, and the whole, 16 a + b, 9 a + b. */
BITNET__INLINE void bitnet__find_wasm(v128_t v, const v128_t *table, uint32_t *at) {
    const uint32_t place = BITNET__SUMS * 2 * sizeof *table;
    v128_t first[2], eight[2];
    int r;
    first[0] = wasm_i32x4_add(wasm_i32x4_splat((int32_t)(uintptr_t)table),
                              wasm_i32x4_const(0, place, 2 * place, 3 * place));
    first[1] = wasm_i32x4_add(first[0], wasm_i32x4_const_splat(4 * place));
    v = wasm_i8x16_sub(v, wasm_v128_and(wasm_u16x8_shr(v, 2), wasm_i8x16_const_splat(0x33)));
    v = wasm_i8x16_add(
        wasm_i8x16_sub(v, wasm_v128_and(wasm_u16x8_shr(v, 1), wasm_i8x16_const_splat(0x78))),
        wasm_v128_and(wasm_u16x8_shr(v, 4), wasm_i8x16_const_splat(0x0f)));
    eight[0] = wasm_i16x8_shl(wasm_u16x8_extend_low_u8x16(v), 5);  /* entries have 32 bytes */
    eight[1] = wasm_i16x8_shl(wasm_u16x8_extend_high_u8x16(v), 5);
    BITNET__UNROLL for (r = 0; r < 2; r++, at += 8) {
        wasm_v128_store(at, wasm_i32x4_add(first[0], wasm_u32x4_extend_low_u16x8(eight[r])));
        wasm_v128_store(at + 4, wasm_i32x4_add(first[1], wasm_u32x4_extend_high_u16x8(eight[r])));
    }
}

/* Adds to the sums of each row, two vectors, what its 8 bytes select; `first`: to 0. Loads are what
   limits the loop, so one load gets two addresses. */
BITNET__INLINE void bitnet__look_up_wasm(const uint32_t *at, int rows, const int first, v128_t *sum,
                                         const int vectors) {
    int r, h, i, j;
    for (r = 0; r < rows; r++, sum += 2) {
        v128_t s[2];
        BITNET__UNROLL for (j = 0; j < vectors; j++)
            s[j] = first ? wasm_i32x4_const_splat(0) : sum[j];
        BITNET__ROLLED for (h = 0; h < 2; h++, at += 4) {
            BITNET__UNROLL for (i = 0; i < 4; i += 2) {
                const v128_t *low, *high;
                uint64_t two;
                memcpy(&two, at + i, sizeof two);
                low = (const v128_t *)(uintptr_t)(uint32_t)two;
                high = (const v128_t *)(uintptr_t)(two >> 32);
                BITNET__UNROLL for (j = 0; j < vectors; j++)
                    s[j] = wasm_i16x8_add(wasm_i16x8_add(s[j], low[j]), high[j]);
            }
        }
        BITNET__UNROLL for (j = 0; j < vectors; j++) sum[j] = s[j];
    }
}

BITNET__APART void bitnet__look_up1_wasm(const uint32_t *at, int rows, int first, v128_t *sum) {
    if (first) bitnet__look_up_wasm(at, rows, 1, sum, 1);
    else bitnet__look_up_wasm(at, rows, 0, sum, 1);
}

BITNET__APART void bitnet__look_up2_wasm(const uint32_t *at, int rows, int first, v128_t *sum) {
    if (first) bitnet__look_up_wasm(at, rows, 1, sum, 2);
    else bitnet__look_up_wasm(at, rows, 0, sum, 2);
}

/* The sums of up to 16 columns, from column c on, over `k_steps` k-steps from weight k on. */
static void bitnet__look_up_columns_wasm(const int8_t *q, size_t q_stride, int c, int cols, int k,
                                         int k_steps, int groups, const bitnet__look *at, int rows,
                                         v128_t *table, v128_t *sum) {
    const int vectors = cols - c > 8 ? 2 : 1;
    const int8_t *col[BITNET__LOOK_COLS];
    int i;
    for (i = 0; i < BITNET__LOOK_COLS; i++) col[i] = q + bitnet__clamp(c + i, cols) * q_stride;
    for (i = 0; i < k_steps; i++) {
        bitnet__table_wasm(col, k + 32 * i, vectors, groups, table);
        if (vectors == 2) bitnet__look_up2_wasm(at[i], rows, i == 0, sum);
        else bitnet__look_up1_wasm(at[i], rows, i == 0, sum);
    }
}

/* ---- I2_S, looked up ---- */

/* Writes the sums of 8 rows and up to 8 columns, at sum[2 * row]; or adds them, with add. */
BITNET__INLINE void bitnet__put_sums_wasm(const v128_t *sum, int cols, int add, int32_t *out,
                                          size_t out_stride) {
    v128_t a[8], b[8];
    int i, round;
    BITNET__UNROLL for (i = 0; i < 8; i++) a[i] = sum[2 * i];
    BITNET__UNROLL for (round = 0; round < 3; round++) {
        BITNET__UNROLL for (i = 0; i < 4; i++) {
            b[2 * i] = wasm_i16x8_shuffle(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            b[2 * i + 1] = wasm_i16x8_shuffle(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        BITNET__UNROLL for (i = 0; i < 8; i++) a[i] = b[i];
    }
    BITNET__UNROLL for (i = 0; i < 8; i++, out += out_stride) {
        v128_t low = wasm_i32x4_extend_low_i16x8(a[i]), high = wasm_i32x4_extend_high_i16x8(a[i]);
        if (i < cols) {
            if (add) {
                low = wasm_i32x4_add(low, wasm_v128_load(out));
                high = wasm_i32x4_add(high, wasm_v128_load(out + 4));
            }
            wasm_v128_store(out, low);
            wasm_v128_store(out + 4, high);
        }
    }
}

/* The same for fewer than 8 rows. */
static void bitnet__put_few_sums_wasm(const v128_t *sum, int rows, int cols, int add, int32_t *out,
                                      size_t out_stride) {
    const size_t bytes = (size_t)rows * sizeof *out;
    int32_t tail[64] = {0};
    int c;
    for (c = 0; c < 8 && c < cols; c++) memcpy(tail + 8 * c, out + (size_t)c * out_stride, bytes);
    bitnet__put_sums_wasm(sum, cols, add, tail, 8);
    for (c = 0; c < 8 && c < cols; c++) memcpy(out + (size_t)c * out_stride, tail + 8 * c, bytes);
}

/* The sums of up to 8 columns. */
BITNET__APART void bitnet__put_all_sums_wasm(const v128_t *sum, int rows, int cols, int add,
                                             int32_t *out, size_t out_stride) {
    for (; rows >= 8; rows -= 8, sum += 16, out += 8) {
        if (add) bitnet__put_sums_wasm(sum, cols, 1, out, out_stride);
        else bitnet__put_sums_wasm(sum, cols, 0, out, out_stride);
    }
    if (rows > 0) bitnet__put_few_sums_wasm(sum, rows, cols, add, out, out_stride);
}

/* Is there a code 3? n is a multiple of 32. This also brings the weights into the cache, in order;
   a k-step reads 8 bytes of each row, which no prefetcher foresees. */
BITNET__APART int bitnet__has_code3_wasm(const uint8_t *w, size_t n) {
    v128_t threes = wasm_i32x4_const_splat(0), v;
    size_t i;
    for (i = 0; i < n; i += 16) {
        v = wasm_v128_load(w + i);
        threes = wasm_v128_or(threes, wasm_v128_and(v, wasm_u16x8_shr(v, 1)));
    }
    return wasm_v128_any_true(wasm_v128_and(threes, wasm_i8x16_const_splat(0x55)));
}

/* The entries of a k-step's rows. */
static void bitnet__find_i2s_wasm(const uint8_t *w, size_t row_bytes, int rows,
                                  const v128_t *table, uint32_t *at) {
    int r;
    for (r = 0; r < rows; r += 2, w += 2 * row_bytes, at += 16)
        bitnet__find_wasm(wasm_v128_load64_lane(r + 1 < rows ? w + row_bytes : w,
                                                wasm_v128_load64_zero(w), 1), table, at);
}

/* Up to LOOK_ROWS rows without a code 3. 224 weights at a time, the most whose sums fit int16. */
BITNET__APART void bitnet__look_up_i2s_wasm(const bitnet__dots *d) {
    const int n = d->n, rows = d->rows, cols = d->cols;
    v128_t table[BITNET__LOOK_TABLE], sum[BITNET__LOOK_ROWS * 2 + 16];
    bitnet__look at[BITNET__LOOK_K_STEPS];
    int k, c, i, k_steps;
    for (k = 0; k < n; k += 32 * k_steps) {
        k_steps = n - k < 224 ? (n - k) / 32 : 7;
        for (i = 0; i < k_steps; i++)
            bitnet__find_i2s_wasm(d->w + k / 4 + 8 * i, (size_t)(n / 4), rows, table, at[i]);
        for (c = 0; c < cols; c += BITNET__LOOK_COLS) {
            bitnet__look_up_columns_wasm(d->q, d->q_stride, c, cols, k, k_steps, 0, at, rows, table,
                                         sum);
            for (i = 0; i < 2 && c + 8 * i < cols; i++)
                bitnet__put_all_sums_wasm(sum + i, rows, cols - c - 8 * i, k > 0,
                                          d->out + (size_t)(c + 8 * i) * d->stride, d->stride);
        }
    }
}

/* The table entry: from min_cols columns on, looked-up sums, if there are enough rows. */
#define BITNET__DEFINE_I2S(isa, min_cols) \
    static void bitnet__dotrows_i2s_##isa(const bitnet__dots *d) { \
        bitnet__dots patch; \
        int r; \
        for (r = 0; r < d->rows; r += patch.rows) { \
            patch = bitnet__dots_from(d, bitnet__i2s_bytes(d->n, r), r, 0); \
            patch.rows = bitnet__share(patch.rows, BITNET__LOOK_ROWS); \
            if (d->cols < min_cols || patch.rows < BITNET__LOOK_LEAST || \
                bitnet__has_code3_wasm(patch.w, bitnet__i2s_bytes(d->n, patch.rows))) \
                bitnet__tiles_##isa(&patch); \
            else bitnet__look_up_i2s_wasm(&patch); \
        } \
    }

/* ---- I2_S, SIMD128 ----
   Few columns: tiles of 4 rows and a column, straight from the packed rows, over DEPTH weights of
   prepared activations.

   The rows of a tile are a quarter of the call's rows apart. The CPU's prefetcher follows a stream
   only within its page. Four neighbouring rows would share a page, and be read from memory at half
   the speed. At a new page, some CPUs wait for the page's address and for memory; there is no
   prefetch here. For those, where the first row of a tile reaches a new page, a byte of the next
   page of all four rows can be loaded: the CPU waits for them together, once. But Zen 4 reads 2
   bits 18 % faster without that, and 4 bits 32 %: of one column, only relaxed dots of four products
   do it, which are Intel's. */
enum {
    BITNET__DEPTH = 8192,
    BITNET__PAIR_BLOCKS = 12,          /* whose sums of a pair of rows fit a lane */
    BITNET__AHEAD = 4096               /* bytes of a page */
};

BITNET__INLINE int bitnet__quarter(int rows) { return (rows + 3) / 4; }

/* Loads the first byte of the next page of each of 4 rows, if it is before `end`. */
BITNET__APART void bitnet__touch_pages_wasm(const uint8_t *w, size_t apart, const uint8_t *end) {
    size_t ahead;
    int r;
    for (r = 0; r < 4; r++) {
        ahead = (size_t)r * apart;
        ahead += BITNET__AHEAD - ((uintptr_t)w + ahead) % BITNET__AHEAD;
        if (ahead < (size_t)(end - w)) (void)*(const volatile uint8_t *)(w + ahead);
    }
}

/* Before a tile whose rows have `bytes` bytes, of which the first is at w: see above. */
BITNET__INLINE void bitnet__touch_wasm(const uint8_t *w, size_t bytes, size_t apart,
                                       const uint8_t *end) {
    if ((uintptr_t)w % BITNET__AHEAD + bytes >= BITNET__AHEAD && bytes < (size_t)(end - w))
        bitnet__touch_pages_wasm(w + bytes, apart, end);
}

BITNET__INLINE int32_t bitnet__sum4_wasm(v128_t v) {
    v = wasm_i32x4_add(v, wasm_i32x4_shuffle(v, v, 2, 3, 0, 1));
    v = wasm_i32x4_add(v, wasm_i32x4_shuffle(v, v, 1, 0, 3, 2));
    return wasm_i32x4_extract_lane(v, 0);
}

/* The activations of a column for a pair of rows: for 16 bytes of weights 2 fields, then the other
   2. Each time 4 vectors, and what keeps the sums of the first row positive. */
typedef struct bitnet__pairs {
    v128_t act[BITNET__DEPTH / 128 * 20];
    int32_t less, more;                /* what the sums of the first row have too much, and those of
                                          the second too little */
} bitnet__pairs;

/* The same as partial sums. */
typedef struct bitnet__pair_sums { v128_t less, more; } bitnet__pair_sums;

/* The activations of 16 bytes of weights for 2 fields. */
BITNET__INLINE void bitnet__prepare_pair_wasm(v128_t lower, v128_t upper, v128_t *act,
                                              bitnet__pair_sums *s) {
    const v128_t zero = wasm_i32x4_const_splat(0);
    int j;
    act[0] = wasm_i16x8_extend_low_i8x16(lower);
    act[1] = wasm_i16x8_extend_low_i8x16(upper);
    act[2] = wasm_i16x8_extend_high_i8x16(lower);
    act[3] = wasm_i16x8_extend_high_i8x16(upper);
    act[4] = zero;
    BITNET__UNROLL for (j = 0; j < 2; j++)
        act[4] = wasm_i32x4_add(act[4], wasm_i32x4_dot_i16x8(
            wasm_i16x8_add(wasm_i16x8_min(act[j], zero), wasm_i16x8_min(act[2 + j], zero)),
            wasm_i16x8_const_splat(-12)));
    s->more = wasm_i32x4_add(s->more, wasm_i32x4_dot_i16x8(wasm_i16x8_add(act[1], act[3]),
                                                           wasm_i16x8_const_splat(2)));
    s->less = wasm_i32x4_add(s->less, wasm_i32x4_shr(act[4], 2));
    act[0] = wasm_i16x8_shl(act[0], 2);
    act[2] = wasm_i16x8_shl(act[2], 2);
}

static void bitnet__prepare_simd128(const int8_t *q, int len, bitnet__pairs *p) {
    bitnet__pair_sums s = {wasm_i32x4_const_splat(0), wasm_i32x4_const_splat(0)};
    int i;
    for (i = 0; i < len; i += 32) {    /* the lower field is the later weight */
        const int8_t *from = q + i / 128 * 128 + i % 128 / 64 * 16 + (i % 64 ? 0 : 64);
        bitnet__prepare_pair_wasm(wasm_v128_load(from + 32), wasm_v128_load(from),
                                  p->act + i / 32 * 5, &s);
    }
    p->less = bitnet__sum4_wasm(s.less);
    p->more = bitnet__sum4_wasm(s.more);
}

/* What words of a pair of rows are masked with: the fields of two weights; the upper bits of the
   second row's codes; the sums of the first row. */
typedef struct bitnet__pair_masks { v128_t even, odd, upper, lower; } bitnet__pair_masks;

BITNET__INLINE bitnet__pair_masks bitnet__get_pair_masks(void) {
    bitnet__pair_masks m;
    m.even = bitnet__kept_wasm(BITNET__EVEN);
    m.odd = bitnet__kept_wasm(BITNET__ODD);
    m.upper = bitnet__kept_wasm(BITNET__UPPER);
    m.lower = bitnet__kept_wasm(BITNET__LOWER);
    return m;
}

/* 16 bytes of a pair of rows: adds what is in the low bits to low, and all of it to all. */
BITNET__INLINE void bitnet__dot_pair_simd128(v128_t a, v128_t b, const v128_t *act,
                                             const bitnet__pair_masks *m, v128_t *low,
                                             v128_t *all) {
    v128_t v, sum;
    int h, i;
    b = wasm_v128_xor(b, m->upper);
    BITNET__UNROLL for (h = 0; h < 2; h++, act += 5) {
        const v128_t first = h ? wasm_u16x8_shr(a, 4) : a, second = h ? b : wasm_i16x8_shl(b, 4);
        sum = act[4];
        BITNET__UNROLL for (i = 0; i < 4; i += 2) {
            v = i ? bitnet__zip_high_wasm(first, second) : bitnet__zip_low_wasm(first, second);
            sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(wasm_v128_and(v, m->even), act[i]));
            sum = wasm_i32x4_add(sum,
                                 wasm_i32x4_dot_i16x8(wasm_v128_and(v, m->odd), act[i + 1]));
        }
        *low = wasm_i32x4_add(*low, wasm_v128_and(sum, m->lower));
        *all = wasm_i32x4_add(*all, sum);
    }
}

/* w is the first of up to 4 rows at distances of `apart`; `rows` rows are left. */
BITNET__INLINE void bitnet__tile_simd128(const uint8_t *w, size_t row_bytes,
                                         const bitnet__pairs *p, int len, int rows, int apart,
                                         const int32_t *sum, int32_t *out) {
    const bitnet__pair_masks masks = bitnet__get_pair_masks();
    v128_t dot[4], low[2], all[2];
    const v128_t *act = p->act;
    const uint8_t *row[4];
    int r, i, count;
    BITNET__UNROLL for (r = 0; r < 4; r++) {
        row[r] = w + bitnet__clamp(r * apart, rows) * row_bytes;
        dot[r] = wasm_i32x4_const_splat(0);
    }
    for (; len > 0; len -= count) {
        count = len < 128 * BITNET__PAIR_BLOCKS ? len : 128 * BITNET__PAIR_BLOCKS;
        low[0] = low[1] = all[0] = all[1] = wasm_i32x4_const_splat(0);
        for (i = 0; i < count; i += 64, act += 10) {
            BITNET__UNROLL for (r = 0; r < 2; r++)
                bitnet__dot_pair_simd128(wasm_v128_load(row[2 * r]),
                                         wasm_v128_load(row[2 * r + 1]), act, &masks, low + r,
                                         all + r);
            BITNET__UNROLL for (r = 0; r < 4; r++) row[r] += 16;
        }
        BITNET__UNROLL for (r = 0; r < 2; r++) {
            all[r] = wasm_i32x4_shr(wasm_i32x4_sub(all[r], low[r]), 14);
            dot[2 * r] = wasm_i32x4_add(dot[2 * r], wasm_i32x4_shr(low[r], 2));
            dot[2 * r + 1] = wasm_i32x4_add(dot[2 * r + 1], all[r]);
        }
    }
    bitnet__put_apart_wasm(out, wasm_i32x4_add(bitnet__fold4_wasm(dot), wasm_i32x4_make(
        -p->less, p->more, -p->less, p->more)), rows, apart, sum);
}

BITNET__APART void bitnet__tiles_simd128(const bitnet__dots *d) {
    bitnet__pairs act;
    const size_t row_bytes = (size_t)(d->n / 4);
    const int quarter = bitnet__quarter(d->rows);
    int r, c, k, len;
    for (c = 0; c < d->cols; c++) {
        const int8_t *q = d->q + (size_t)c * d->q_stride;
        int32_t *out = d->out + (size_t)c * d->stride;
        for (k = 0; k < d->n; k += len) {
            const uint8_t *row = d->w + k / 4;
            len = d->n - k < BITNET__DEPTH ? d->n - k : BITNET__DEPTH;
            bitnet__prepare_simd128(q + k, len, &act);
            for (r = 0; r < quarter; r++, row += row_bytes) {
                bitnet__tile_simd128(row, row_bytes, &act, len, d->rows - r, quarter,
                                     k ? 0 : d->sums + c, out + r);
            }
        }
    }
}

BITNET__DEFINE_I2S(simd128, BITNET__FEW_SIMD128)

/* ---- 4 bits: tiles of 4 rows and 1 or 2 columns ---- */

/* 8 weights of 4 bits as words: the upper or lower halves of bytes. */
BITNET__INLINE v128_t bitnet__load_u4_wasm(const uint8_t *w, const int lower) {
    const v128_t v = wasm_u16x8_load8x8(w);
    return lower ? wasm_v128_and(v, wasm_i8x16_const_splat(15)) : wasm_u16x8_shr(v, 4);
}

/* 64 bytes are 128 weights, multiplied as words. */
BITNET__INLINE void bitnet__tile_u4_wasm(const bitnet__dots *d, int apart, const int tile_cols) {
    v128_t dot[2][4], v[4], a;
    const uint8_t *row[4];
    const int8_t *col[2];
    int left = d->n / 2, r, c, h, lower;
    BITNET__UNROLL for (r = 0; r < 4; r++) {
        row[r] = d->w + bitnet__clamp(r * apart, d->rows) * (size_t)left;
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) dot[c][r] = wasm_i32x4_const_splat(0);
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) col[c] = d->q + (size_t)c * d->q_stride;
    for (; left > 0; left -= 32) {
        BITNET__UNROLL for (h = 0; h < 64; h += 8) {
            const int at = h % 32;
            lower = h / 32;
            BITNET__UNROLL for (r = 0; r < 4; r++)
                v[r] = bitnet__load_u4_wasm(row[r] + at, lower);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                a = wasm_i16x8_load8x8(col[c] + at + 64 * lower);
                BITNET__UNROLL for (r = 0; r < 4; r++)
                    dot[c][r] = wasm_i32x4_add(dot[c][r], wasm_i32x4_dot_i16x8(v[r], a));
            }
        }
        BITNET__UNROLL for (r = 0; r < 4; r++) row[r] += 32;
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) col[c] += left % 64 ? 96 : 32;
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        const int32_t less = 8 * d->sums[c];
        bitnet__put_apart_wasm(d->out + (size_t)c * d->stride, bitnet__fold4_wasm(dot[c]),
                               d->rows, apart, &less);
    }
}

BITNET__APART void bitnet__tiles_u4_wasm(const bitnet__dots *d) {
    const size_t row_bytes = (size_t)(d->n / 2);
    const int quarter = bitnet__quarter(d->rows);
    int r, c, taken;
    for (r = 0; r < quarter; r++) {
        bitnet__touch_wasm(d->w + row_bytes * (size_t)r, row_bytes, row_bytes * (size_t)quarter,
                           d->w + row_bytes * (size_t)d->rows);
        for (c = 0; c < d->cols; c += taken) {
            const bitnet__dots patch = bitnet__dots_from(d, row_bytes * (size_t)r, r, c);
            taken = patch.cols >= 2 ? 2 : 1;
            if (taken == 2) bitnet__tile_u4_wasm(&patch, quarter, 2);
            else bitnet__tile_u4_wasm(&patch, quarter, 1);
        }
    }
}

/* 4 vectors for 16 bytes of 4 bits, all for sums that are 16 times too large: of the bytes with
   even numbers, lower halves, then upper ones; then of the others. */
static void bitnet__prepare_u4_simd128(const int8_t *q, int len, v128_t *act) {
    int i, h;
    for (i = 0; i < len; i += 128) {
        for (h = 0; h < 64; h += 16, act += 4) {
            const v128_t lower = wasm_v128_load(q + i + 64 + h), upper = wasm_v128_load(q + i + h);
            act[0] = wasm_i16x8_shr(wasm_i16x8_shl(lower, 8), 4);
            act[1] = wasm_i16x8_shr(wasm_i16x8_shl(upper, 8), 8);
            act[2] = wasm_i16x8_shl(wasm_i16x8_shr(lower, 8), 4);
            act[3] = wasm_i16x8_shr(upper, 8);
        }
    }
}

/* One column: halves of bytes are masked in place, as words. */
BITNET__INLINE void bitnet__tile_u4_simd128(const uint8_t *w, size_t row_bytes, const v128_t *act,
                                            int len, int rows, int apart, const int32_t *sum,
                                            int32_t *out) {
    v128_t dot[4], v[4], mask[2];
    const uint8_t *row[4];
    int r, i;
    mask[0] = bitnet__kept_wasm(BITNET__HALF0);
    mask[1] = bitnet__kept_wasm(BITNET__HALF1);
    BITNET__UNROLL for (r = 0; r < 4; r++) {
        row[r] = w + bitnet__clamp(r * apart, rows) * row_bytes;
        dot[r] = wasm_i32x4_const_splat(0);
    }
    for (; len > 0; len -= 32, act += 4) {
        BITNET__UNROLL for (r = 0; r < 4; r++) v[r] = wasm_v128_load(row[r]);
        BITNET__UNROLL for (i = 0; i < 4; i++) {
            if (i == 2) {
                BITNET__UNROLL for (r = 0; r < 4; r++) v[r] = wasm_u16x8_shr(v[r], 8);
            }
            BITNET__UNROLL for (r = 0; r < 4; r++)
                dot[r] = wasm_i32x4_add(
                    dot[r], wasm_i32x4_dot_i16x8(wasm_v128_and(v[r], mask[i % 2]), act[i]));
        }
        BITNET__UNROLL for (r = 0; r < 4; r++) row[r] += 16;
    }
    bitnet__put_apart_wasm(out, wasm_i32x4_shr(bitnet__fold4_wasm(dot), 4), rows, apart, sum);
}

BITNET__APART void bitnet__tiles_u4_simd128(const bitnet__dots *d) {
    v128_t act[BITNET__DEPTH / 8];
    const size_t row_bytes = (size_t)(d->n / 2);
    const int32_t less = 8 * *d->sums;
    const int quarter = bitnet__quarter(d->rows);
    int r, k, len;
    for (k = 0; k < d->n; k += len) {
        const uint8_t *row = d->w + k / 2;
        len = d->n - k < BITNET__DEPTH ? d->n - k : BITNET__DEPTH;
        bitnet__prepare_u4_simd128(d->q + k, len, act);
        for (r = 0; r < quarter; r++, row += row_bytes) {
            bitnet__tile_u4_simd128(row, row_bytes, act, len, d->rows - r, quarter,
                                    k ? 0 : &less, d->out + r);
        }
    }
}

static void bitnet__dotrows_u4_simd128(const bitnet__dots *d) {
    if (d->cols == 1) bitnet__tiles_u4_simd128(d);
    else bitnet__tiles_u4_wasm(d);
}

#if BITNET__RELAXED
/* ---- relaxed SIMD: how the engine computes it ---- */

/* Does it take sums of two products, which saturate in int16? Four products tell, whose operands
   have 8 bits. These are volatile because Binaryen 120 aborts on a relaxed operation with
   constants. */
static int bitnet__relaxed_halves(void) {
    static volatile int8_t ones = -1, most = 127;
    const int32_t sum = wasm_i32x4_extract_lane(
        wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i8x16_splat(most), wasm_i8x16_splat(ones),
                                               wasm_i32x4_const_splat(0)), 0);
    return sum != 4 * 127 * -1 && sum != 4 * 127 * 255;    /* exact: signed, unsigned */
}

/* Whether the engine is right. The baseline compiler of Node 20 is not: it takes the other operand
   as the one of 7 bits. */
static int bitnet__relaxed_correct(void) {
    static volatile int8_t minus = -128, three = 3;
    const v128_t product = wasm_f32x4_relaxed_madd(
        wasm_f32x4_splat((float)minus), wasm_f32x4_splat((float)three), wasm_f32x4_splat(1.0f));
    const v128_t dot = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(
        wasm_i8x16_splat(minus), wasm_i8x16_splat(three), wasm_i32x4_splat(minus));
    const v128_t halves = wasm_i16x8_relaxed_dot_i8x16_i7x16(wasm_i8x16_splat(minus),
                                                             wasm_i8x16_splat(three));
    return wasm_i32x4_extract_lane(dot, 0) == 4 * -128 * 3 - 128 &&
           wasm_i32x4_extract_lane(dot, 3) == 4 * -128 * 3 - 128 &&
           wasm_i16x8_extract_lane(halves, 0) == 2 * -128 * 3 &&
           wasm_i16x8_extract_lane(halves, 7) == 2 * -128 * 3 &&
           wasm_f32x4_extract_lane(product, 0) == 1 + -128 * 3;
}

/* Adds pairs of products as int16: of a, and of the fields that `mask` has once v is moved down. */
BITNET__INLINE v128_t bitnet__add_halves(v128_t sum, v128_t v, const int down, v128_t mask,
                                         v128_t a) {
    v = wasm_v128_and(wasm_u16x8_shr(v, (uint32_t)down), mask);
    return wasm_i16x8_add(sum, wasm_i16x8_relaxed_dot_i8x16_i7x16(a, v));
}

/* ---- I2_S and 4 bits, few columns, relaxed SIMD ----
   Tiles of 4 rows, a quarter of the call's rows apart. A row at a time would be one stream of
   memory: an Intel Xeon reads that at half the speed. Pages are touched as above only for dots of
   four products: an Intel Xeon with AVX-VNNI writes up to 5 % faster with it. With dots of two
   products AMD's Zen 1 writes 7 % slower with it, and an Intel Xeon showed no clear difference. A
   row has one int16 sum, or two of int32, so that all of them stay in registers. For dots of two
   products the halves of a block are apart, as V8 has no registers for the activations of both.

   How near AVX2 this can come: by V8 (Node 20), 64 weights of a row are 4 PMADDUBSW, 4 additions,
   4 masks and 3 shifts of 128 bits. AVX2's have 256, so while both only compute, the same
   operations give half at most. Zen 3 at 2.8 GHz: 37 and 88 weights/ns from L2, but 25 and 42 from
   memory. Fields in place with sums of 4 codes, 13.9 for these 15, were not faster.
   Looked-up sums: 18 vector loads for 512 products, 2 a cycle at most, are 57 products a cycle. 32
   were measured; of a k-step of 640 rows and 128 columns that is three quarters, and the rest are
   tables, sums and addresses. Products by 2 rows and 4 columns would not be faster: on a
   Zen 3, PMADDUBSW and addition in registers alone make 76 products/ns in Node 20; looked-up sums,
   640 rows by 128 columns, make 88, tables and all, and AVX2's 120 in the same run. Zen 4: 114
   and 154. */
enum {
    BITNET__HALVES_BLOCKS2 = 5,        /* of fields of 2 bits, whose sums fit int16 */
    BITNET__HALVES_BLOCKS4 = 1         /* of 4 bits */
};

/* By relaxed dots of two products, for engines whose relaxed dot is PMADDUBSW. Fields of
   2 or 4 bits are moved to the lowest bits. Writes the dots of 4 rows. */
BITNET__INLINE void bitnet__dot_halves(const uint8_t *const *row, const int8_t *q, int n,
                                       const int bits, v128_t *dot) {
    const int fields = 8 / bits, most = 128 * (bits == 2 ? BITNET__HALVES_BLOCKS2
                                                         : BITNET__HALVES_BLOCKS4);
    const v128_t mask = bitnet__kept_wasm(bits == 2 ? BITNET__BITS2 : BITNET__BITS4);
    v128_t partial[4], v;
    size_t at = 0;
    int i, r, h, k, len;
    BITNET__UNROLL for (r = 0; r < 4; r++) dot[r] = wasm_i32x4_const_splat(0);
    for (; n > 0; n -= len) {
        len = n < most ? n : most;
        BITNET__UNROLL for (r = 0; r < 4; r++) partial[r] = wasm_i32x4_const_splat(0);
        BITNET__ROLLED for (k = 0; k < len; k += 128, q += 128, at += 16 * (size_t)bits) {
            BITNET__ROLLED for (h = 0; h < bits; h++) {
                BITNET__UNROLL for (r = 0; r < 4; r++) {
                    v = wasm_v128_load(row[r] + at + 16 * h);
                    BITNET__UNROLL for (i = 0; i < fields; i++)
                        partial[r] = bitnet__add_halves(
                            partial[r], v, bits * i, mask,
                            wasm_v128_load(q + 16 * (h + bits * (fields - 1 - i))));
                }
            }
        }
        BITNET__UNROLL for (r = 0; r < 4; r++)
            dot[r] = wasm_i32x4_add(dot[r],
                                    wasm_i32x4_dot_i16x8(partial[r], wasm_i16x8_const_splat(1)));
    }
}

/* By relaxed dots of four products. Fields of 4 bits are moved, and so are pairs of fields of 2
   bits: the upper field of a pair has sums of 4 times the codes. */
BITNET__INLINE void bitnet__dot_fours(const uint8_t *const *row, const int8_t *q, int n,
                                      const int bits, v128_t *dot) {
    const int fields = 8 / bits;
    v128_t partial[4][2], mask[2], v;
    size_t at;
    int i, r, h;
    mask[0] = bitnet__kept_wasm(bits == 2 ? BITNET__BITS2 : BITNET__BITS4);
    mask[1] = wasm_i32x4_shl(mask[0], 2);
    BITNET__UNROLL for (r = 0; r < 4; r++)
        partial[r][0] = partial[r][1] = wasm_i32x4_const_splat(0);
    BITNET__ROLLED for (at = 0; n > 0; n -= 128, q += 128, at += 16 * (size_t)bits) {
        BITNET__UNROLL for (h = 0; h < bits; h++) {
            BITNET__UNROLL for (r = 0; r < 4; r++) {
                v = wasm_v128_load(row[r] + at + 16 * h);
                BITNET__UNROLL for (i = 0; i < fields; i++) {
                    if (i == fields / 2) v = wasm_u16x8_shr(v, 4);
                    partial[r][i % 2] = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(
                        wasm_v128_load(q + 16 * (h + bits * (fields - 1 - i))),
                        wasm_v128_and(v, mask[bits == 2 ? i % 2 : 0]), partial[r][i % 2]);
                }
            }
        }
    }
    BITNET__UNROLL for (r = 0; r < 4; r++)
        dot[r] = wasm_i32x4_add(partial[r][0],
                                bits == 2 ? wasm_i32x4_shr(partial[r][1], 2) : partial[r][1]);
}

/* All rows and columns. n is a multiple of 128. */
BITNET__INLINE void bitnet__rows_relaxed(const bitnet__dots *d, const int bits, const int halves) {
    const size_t row_bytes = (size_t)(d->n / 8 * bits);
    const uint8_t *const end = d->w + row_bytes * (size_t)d->rows, *w = d->w, *row[4];
    const int quarter = bitnet__quarter(d->rows);
    v128_t dot[4];
    int r, c, i;
    for (r = 0; r < quarter; r++, w += row_bytes) {
        BITNET__UNROLL for (i = 0; i < 4; i++)
            row[i] = w + bitnet__clamp(i * quarter, d->rows - r) * row_bytes;
        if (!halves) bitnet__touch_wasm(w, row_bytes, row_bytes * (size_t)quarter, end);
        for (c = 0; c < d->cols; c++) {
            const int8_t *col = d->q + (size_t)c * d->q_stride;
            const int32_t less = d->sums[c] * (bits == 2 ? 1 : 8);
            if (halves) bitnet__dot_halves(row, col, d->n, bits, dot);
            else bitnet__dot_fours(row, col, d->n, bits, dot);
            bitnet__put_apart_wasm(d->out + (size_t)c * d->stride + (size_t)r,
                                   bitnet__fold4_wasm(dot), d->rows - r, quarter, &less);
        }
    }
}

BITNET__APART void bitnet__tiles_relaxed16(const bitnet__dots *d) {
    bitnet__rows_relaxed(d, 2, 1);
}

BITNET__DEFINE_I2S(relaxed16, BITNET__FEW_RELAXED16)

BITNET__APART void bitnet__tiles_relaxed32(const bitnet__dots *d) {
    bitnet__rows_relaxed(d, 2, 0);
}

BITNET__DEFINE_I2S(relaxed32, BITNET__FEW_RELAXED32)

static void bitnet__dotrows_i2s_relaxed(const bitnet__dots *d) {
    if (bitnet__relaxed_halves()) bitnet__dotrows_i2s_relaxed16(d);
    else bitnet__dotrows_i2s_relaxed32(d);
}

static void bitnet__dotrows_u4_relaxed16(const bitnet__dots *d) {
    bitnet__rows_relaxed(d, 4, 1);
}

/* 4 bits are the same, signed or unsigned. */
static void bitnet__dotrows_u4_relaxed32(const bitnet__dots *d) {
    bitnet__rows_relaxed(d, 4, 0);
}

static void bitnet__dotrows_u4_relaxed(const bitnet__dots *d) {
    if (bitnet__relaxed_halves()) bitnet__dotrows_u4_relaxed16(d);
    else bitnet__dotrows_u4_relaxed32(d);
}
#endif

#ifndef BITNET_NO_KV_I8
/* ---- an int8 cache ----
   bitnet.h has the layout: rows of words of 4 bytes, of 64 positions (keys) or of n elements
   (values). Each word meets the same 4 bytes of a column, which is a query or the weights of 64
   positions. A tile is 2 or 4 registers of 4 words with 1 or 2 columns. Its 8 sums stay in
   registers for the whole length. Keys are bytes plus 128, used as they are; 128 times the sum of
   the query is subtracted at the end.

       word          0             1             2             3
       keys          position 4j   4j + 1        4j + 2        4j + 3
       values        element 4j    4j + 1        4j + 2        4j + 3
       column        4 bytes       the same      the same      the same

   DOT_BYTES multiplies bytes by the relaxed dot: weights of positions have 7 bits. Otherwise bytes
   become int16, two words to a register, and a sum has two lanes for each word. */
enum { BITNET__KEYS, BITNET__VALUES, BITNET__VALUES_DOT_BYTES };

typedef struct bitnet__words {
    const uint8_t *w;                  /* the first row of words */
    size_t w_stride;                   /* bytes from a row to the next */
    const int8_t *q;                   /* columns of n bytes */
    size_t q_stride;
    const int32_t *sums;               /* keys: of each column */
    int n;                             /* a multiple of 4 */
    const float *scales;               /* of each position (keys) or column (values) */
    size_t scale_stride;               /* from a column's to the next one's; with keys 0 */
    float *out;
    size_t out_stride;
} bitnet__words;

/* 2 words, or with DOT_BYTES 4. */
BITNET__INLINE v128_t bitnet__load_words_wasm(const uint8_t *w, const int kind) {
    return kind == BITNET__KEYS     ? wasm_u16x8_load8x8(w)
           : kind == BITNET__VALUES ? wasm_i16x8_load8x8(w)
                                    : wasm_v128_load(w);
}

/* 4 bytes of a column, as often as a register has words. */
BITNET__INLINE v128_t bitnet__repeat_wasm(const int8_t *q, const int kind) {
    const v128_t a = wasm_v128_load32_splat(q);
    return kind == BITNET__VALUES_DOT_BYTES ? a : wasm_i16x8_extend_low_i8x16(a);
}

BITNET__INLINE v128_t bitnet__dot_words_wasm(v128_t sum, v128_t w, v128_t a, const int kind) {
#if BITNET__RELAXED
    if (kind == BITNET__VALUES_DOT_BYTES) return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w, a, sum);
#endif
    (void)kind;
    return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(w, a));
}

/* The sums of 4 words with column c, times what they are worth. */
BITNET__INLINE void bitnet__put_words_wasm(const bitnet__words *p, int c, int word,
                                           const v128_t *sum, const int kind) {
    float *to = p->out + (size_t)c * p->out_stride + word;
    v128_t v = sum[0];
    if (kind != BITNET__VALUES_DOT_BYTES) v = bitnet__fold2_wasm(sum[0], sum[1]);
    if (kind == BITNET__KEYS) {
        v = wasm_i32x4_sub(v, wasm_i32x4_splat(128 * p->sums[c]));
        v = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(v), wasm_v128_load(p->scales + word));
    } else {
        v = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(v),
                           wasm_v128_load32_splat(p->scales + (size_t)c * p->scale_stride));
        v = wasm_f32x4_add(wasm_v128_load(to), v);
    }
    wasm_v128_store(to, v);
}

/* 4 * regs words from number `word` on. */
BITNET__INLINE void bitnet__tile_words_wasm(const bitnet__words *p, int word, const int regs,
                                            const int cols, const int kind) {
    const int halves = kind == BITNET__VALUES_DOT_BYTES ? 1 : 2;
    const uint8_t *w = p->w + 4 * (size_t)word;
    v128_t sum[2][4][2], v[4][2], a;
    int c, j, h, k;
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++)
            sum[c][j][0] = sum[c][j][1] = wasm_i32x4_const_splat(0);
    }
    for (k = 0; k < p->n; k += 4, w += p->w_stride) {
        BITNET__UNROLL for (j = 0; j < regs; j++) {
            BITNET__UNROLL for (h = 0; h < halves; h++)
                v[j][h] = bitnet__load_words_wasm(w + 16 * j + 8 * h, kind);
        }
        BITNET__UNROLL for (c = 0; c < cols; c++) {
            a = bitnet__repeat_wasm(p->q + (size_t)c * p->q_stride + k, kind);
            BITNET__UNROLL for (j = 0; j < regs; j++) {
                BITNET__UNROLL for (h = 0; h < halves; h++)
                    sum[c][j][h] = bitnet__dot_words_wasm(sum[c][j][h], v[j][h], a, kind);
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++)
            bitnet__put_words_wasm(p, c, word + 4 * j, sum[c][j], kind);
    }
}

/* `count` words of each row, a multiple of 16, with all columns. */
BITNET__INLINE void bitnet__all_words_wasm(bitnet__words p, int count, int cols, const int kind) {
    const int regs = kind == BITNET__VALUES_DOT_BYTES ? 4 : 2;
    int c, i, taken;
    for (c = 0; c < cols; c += taken) {
        taken = cols - c >= 2 ? 2 : 1;
        if (taken == 2)
            for (i = 0; i < count; i += 4 * regs) bitnet__tile_words_wasm(&p, i, regs, 2, kind);
        else for (i = 0; i < count; i += 16) bitnet__tile_words_wasm(&p, i, 4, 1, kind);
        p.q += (size_t)taken * p.q_stride;
        if (kind == BITNET__KEYS) p.sums += taken;
        p.scales += (size_t)taken * p.scale_stride;
        p.out += (size_t)taken * p.out_stride;
    }
}

static void bitnet__scores_i8_wasm(const uint8_t *w, const int8_t *q, const int32_t *sums, int n,
                                   int rows, int cols, float *out, size_t out_stride) {
    bitnet__words p = {0, BITNET__KV_SCALES, q, (size_t)n, sums, n, 0, 0, out, out_stride};
    int r;
    for (r = 0; r < rows; r += 64, w += bitnet__kv_block_bytes(n), p.out += 64) {
        p.w = w + BITNET__KV_SCALES;
        p.scales = (const float *)(const void *)w;
        bitnet__all_words_wasm(p, 64, cols, BITNET__KEYS);
    }
}

BITNET__INLINE void bitnet__sumrows_i8_wasm(const uint8_t *w, const uint8_t *p,
                                            const float *scales, size_t p_stride, int n, int first,
                                            int count, int rows, int cols, float *out,
                                            const int kind) {
    bitnet__words v = {w + BITNET__KV_SCALES + 4 * (size_t)first, 4 * (size_t)n, (const int8_t *)p,
                       p_stride, 0, 64, scales, p_stride / 64, out, (size_t)count};
    int r;
    if (count % 16) {
        bitnet__sumrows_i8_scalar(w, p, scales, p_stride, n, first, count, rows, cols, out);
        return;
    }
    for (r = 0; r < rows; r += 64, v.w += bitnet__kv_block_bytes(n), v.q += 64, v.scales++)
        bitnet__all_words_wasm(v, count, cols, kind);
}

#define BITNET__DEFINE_SUMROWS_I8(isa, kind) \
    static void bitnet__sumrows_i8_##isa(const uint8_t *w, const uint8_t *p, const float *scales, \
                                         size_t p_stride, int n, int first, int count, int rows, \
                                         int cols, float *out) { \
        bitnet__sumrows_i8_wasm(w, p, scales, p_stride, n, first, count, rows, cols, out, kind); \
    }
BITNET__DEFINE_SUMROWS_I8(simd128, BITNET__VALUES)
#if BITNET__RELAXED
BITNET__DEFINE_SUMROWS_I8(relaxed, BITNET__VALUES_DOT_BYTES)
#endif
#endif

/* ---- floats ----
   Four registers hold 16 floats, so that element i of a sum stays in lane i % 16 by itself: lane
   4 j + l is lane l of register j. The scalar twin takes lengths that are not a multiple of 16,
   which models avoid. */

#define BITNET__V(x) bitnet__##x##_wasm
#define BITNET__TARGET
#define BITNET__HOT static

/* Eight halves, each in both halves of a word. V8 knows these shuffles; of one that takes zeros in
   place of the lower halves, it makes a dozen instructions. */
BITNET__INLINE void bitnet__spread_wasm(v128_t halves, v128_t *v) {
    v[0] = wasm_i16x8_shuffle(halves, halves, 0, 8, 1, 9, 2, 10, 3, 11);
    v[1] = wasm_i16x8_shuffle(halves, halves, 4, 12, 5, 13, 6, 14, 7, 15);
}

/* Eight elements of F32 or BF16. */
BITNET__INLINE void bitnet__load8_wasm(v128_t *v, const uint8_t *p, const int kind) {
    v[0] = wasm_v128_load(p);
    if (BITNET__ROW_BYTES(kind) == 4) v[1] = wasm_v128_load(p + 16);
    else {
        const v128_t upper = bitnet__kept_wasm(BITNET__UPPER_HALF);
        bitnet__spread_wasm(v[0], v);
        v[0] = wasm_v128_and(v[0], upper);
        v[1] = wasm_v128_and(v[1], upper);
    }
}

/* sum + a * b; at once where the product is exact. */
BITNET__INLINE v128_t bitnet__add_product_wasm(v128_t sum, v128_t a, v128_t b, const int kind) {
#if BITNET__RELAXED
    if (kind >= BITNET__ROWS_CACHE) return wasm_f32x4_relaxed_madd(a, b, sum);
#endif
    (void)kind;
    return wasm_f32x4_add(sum, wasm_f32x4_mul(a, b));
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
                            bitnet__add_product_wasm(sum[r][c][j + k], v[r][k], a, kind);
                }
            }
        }
    }
    BITNET__UNROLL for (r = 0; r < tile_rows; r++) {
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            if (r < rows) out[(size_t)c * out_stride + (size_t)r] = bitnet__fold_wasm(sum[r][c]);
    }
}

/* The same for four products at once, whose four registers are `apart` vectors apart: lane i is of
   the product at sum[i]. */
BITNET__INLINE v128_t bitnet__fold_four_wasm(const v128_t *sum, size_t apart) {
    v128_t s[4], even, odd;
    int i;
    BITNET__UNROLL for (i = 0; i < 4; i++, sum++)
        s[i] = wasm_f32x4_add(wasm_f32x4_add(sum[0], sum[2 * apart]),
                              wasm_f32x4_add(sum[apart], sum[3 * apart]));
    even = wasm_f32x4_add(wasm_i32x4_shuffle(s[0], s[1], 0, 4, 1, 5),
                          wasm_i32x4_shuffle(s[0], s[1], 2, 6, 3, 7));
    odd = wasm_f32x4_add(wasm_i32x4_shuffle(s[2], s[3], 0, 4, 1, 5),
                         wasm_i32x4_shuffle(s[2], s[3], 2, 6, 3, 7));
    return wasm_f32x4_add(wasm_i64x2_shuffle(even, odd, 0, 2),
                          wasm_i64x2_shuffle(even, odd, 1, 3));
}

/* Two rows of floats and 4 columns. Each of the four registers of 16 floats by itself, so that the
   sums of all 8 products are in registers: the loads of an iteration, which come first, leave no
   more. */
BITNET__INLINE void bitnet__tile_dots8_wasm(const float *w, const float *x, int n, int rows,
                                            float *out, size_t out_stride, const int kind) {
    v128_t partial[4][2][4], sum[2][4], a, v[2];
    const float *row = w + bitnet__clamp(1, rows) * (size_t)n;
    int r, c, i, j;
    for (j = 0; j < 4; j++) {
        BITNET__UNROLL for (r = 0; r < 2; r++) {
            BITNET__UNROLL for (c = 0; c < 4; c++) sum[r][c] = wasm_f32x4_const_splat(0.0f);
        }
        BITNET__ROLLED for (i = 4 * j; i < n; i += BITNET__LANES) {
            v[0] = wasm_v128_load(w + i);
            v[1] = wasm_v128_load(row + i);
            BITNET__UNROLL for (c = 0; c < 4; c++) {
                a = wasm_v128_load(x + (size_t)c * (size_t)n + i);
                BITNET__UNROLL for (r = 0; r < 2; r++)
                    sum[r][c] = bitnet__add_product_wasm(sum[r][c], v[r], a, kind);
            }
        }
        BITNET__UNROLL for (r = 0; r < 2; r++) {
            BITNET__UNROLL for (c = 0; c < 4; c++) partial[j][r][c] = sum[r][c];
        }
    }
    BITNET__UNROLL for (r = 0; r < 2; r++) {
        a = bitnet__fold_four_wasm(partial[0][r], 8);
        if (r == rows) return;
        wasm_v128_store32_lane(out + r, a, 0);
        wasm_v128_store32_lane(out + out_stride + r, a, 1);
        wasm_v128_store32_lane(out + 2 * out_stride + r, a, 2);
        wasm_v128_store32_lane(out + 3 * out_stride + r, a, 3);
    }
}

/* Rows are in the outer loop because they are the longer array. */
BITNET__INLINE void bitnet__dots_in_place_wasm(const uint8_t *w, const float *x, int n, int rows,
                                               int cols, float *out, size_t out_stride,
                                               const int kind) {
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

/* ---- F16 ----
   Halves become floats as if they were finite: the sign is copied down, a mask keeps the fields,
   which are 2^112 too small then, subnormals too. In the same pass the largest one tells whether
   there is an infinity or a NaN. Then the scalar code computes these rows again.

   For several columns rows are converted once, in runs of up to 16 KB, which stay in the L1 cache.
   One column takes a row at a time: of 16 products, its four sums wait less for each other than
   they take. */
enum { BITNET__WIDE = 4096 };

typedef struct bitnet__f16_parts { v128_t fields, scale, absolute, most; } bitnet__f16_parts;

BITNET__INLINE bitnet__f16_parts bitnet__get_f16_parts(void) {
    bitnet__f16_parts p;
    p.fields = bitnet__kept_wasm(BITNET__FIELDS_F16);
    p.scale = bitnet__kept_wasm(BITNET__SCALE_F16);
    p.absolute = bitnet__kept_wasm(BITNET__ABS_F16);
    p.most = wasm_i32x4_const_splat(0);
    return p;
}

/* Four halves, each in the upper half of a word, whatever the lower has. */
BITNET__INLINE v128_t bitnet__from_f16_wasm(v128_t halves, const bitnet__f16_parts *p) {
    return wasm_f32x4_mul(wasm_v128_and(wasm_i32x4_shr(halves, 3), p->fields), p->scale);
}

/* Eight elements. */
BITNET__INLINE void bitnet__load8_f16_wasm(v128_t *v, const uint8_t *w, bitnet__f16_parts *p) {
    const v128_t halves = wasm_v128_load(w);
    p->most = wasm_u16x8_max(p->most, wasm_v128_and(halves, p->absolute));
    bitnet__spread_wasm(halves, v);
    v[0] = bitnet__from_f16_wasm(v[0], p);
    v[1] = bitnet__from_f16_wasm(v[1], p);
}

BITNET__INLINE int bitnet__was_finite_wasm(const bitnet__f16_parts *p) {
    return !wasm_v128_any_true(wasm_i16x8_gt(p->most, wasm_i16x8_const_splat(0x7bff)));
}

/* Returns 0 if a row is not finite. */
static int bitnet__widen_wasm(const uint8_t *w, size_t w_stride, int n, int rows, float *wide) {
    bitnet__f16_parts parts = bitnet__get_f16_parts();
    v128_t v[2];
    int r, i;
    for (r = 0; r < rows; r++, w += w_stride * 2, wide += n) {
        for (i = 0; i < n; i += 8) {
            bitnet__load8_f16_wasm(v, w + 2 * (size_t)i, &parts);
            wasm_v128_store(wide + i, v[0]);
            wasm_v128_store(wide + i + 4, v[1]);
        }
    }
    return bitnet__was_finite_wasm(&parts);
}

/* One row and one column. Returns 0 if the row is not finite. */
BITNET__INLINE int bitnet__dot_f16_wasm(const uint8_t *w, const float *x, int n, float *out,
                                        const int kind) {
    bitnet__f16_parts parts = bitnet__get_f16_parts();
    v128_t sum[4], v[2];
    int i, j, k;
    BITNET__UNROLL for (j = 0; j < 4; j++) sum[j] = wasm_f32x4_const_splat(0.0f);
    BITNET__ROLLED for (i = 0; i < n; i += BITNET__LANES, w += 2 * BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < 4; j += 2) {
            bitnet__load8_f16_wasm(v, w + 4 * j * 2, &parts);
            BITNET__UNROLL for (k = 0; k < 2; k++)
                sum[j + k] = bitnet__add_product_wasm(
                    sum[j + k], v[k], wasm_v128_load(x + i + 4 * (j + k)), kind);
        }
    }
    *out = bitnet__fold_wasm(sum);
    return bitnet__was_finite_wasm(&parts);
}

BITNET__INLINE void bitnet__dots_f16_wasm(const uint8_t *w, const float *x, int n, int rows,
                                          int cols, float *out, size_t out_stride,
                                          const int kind) {
    const int wide_kind = kind == BITNET__ROWS_CACHE ? BITNET__ROWS_WIDE : BITNET__ROWS_F32;
    const int at_once = cols > 1 && n <= BITNET__WIDE;
    float wide[BITNET__WIDE];
    int r, c, i, count, taken;
    for (r = 0; r < rows; r += count, w += (size_t)count * (size_t)n * 2) {
        float *to = out + r;
        int finite = 1;
        count = !at_once ? 1 : rows - r < BITNET__WIDE / n ? rows - r : BITNET__WIDE / n;
        if (at_once) finite = bitnet__widen_wasm(w, (size_t)n, n, count, wide);
        for (c = 0; finite && c < cols; c += taken) {   /* columns outside: the longer array */
            const float *col = x + (size_t)c * (size_t)n;
            taken = !at_once ? 1 : cols - c >= 4 && count > 1 ? 4 : cols - c >= 2 ? 2 : 1;
            if (!at_once) finite = bitnet__dot_f16_wasm(w, col, n, to, kind);
            else if (taken < 4)
                bitnet__dots_in_place_wasm((const uint8_t *)wide, col, n, count, taken, to,
                                           out_stride, wide_kind);
            else for (i = 0; i < count; i += 2)
                bitnet__tile_dots8_wasm(wide + (size_t)i * (size_t)n, col, n, count - i, to + i,
                                        out_stride, wide_kind);
            to += (size_t)taken * out_stride;
        }
        if (!finite) bitnet__dotrows_f16_scalar(w, x, n, count, cols, out + r, out_stride);
    }
}

BITNET__INLINE void bitnet__dots_wasm(const uint8_t *w, const float *x, int n, int rows, int cols,
                                      float *out, size_t out_stride, const int kind) {
    if (kind == BITNET__ROWS_F32 || kind == BITNET__ROWS_BF16)
        bitnet__dots_in_place_wasm(w, x, n, rows, cols, out, out_stride, kind);
    else bitnet__dots_f16_wasm(w, x, n, rows, cols, out, out_stride, kind);
}

BITNET__ROW_DOTS(dotrows_f32, f32, BITNET__ROWS_F32)
BITNET__ROW_DOTS(dotrows_f16, f16, BITNET__ROWS_F16)
BITNET__ROW_DOTS(dotrows_bf16, bf16, BITNET__ROWS_BF16)
#if BITNET__RELAXED
BITNET__ROW_DOTS(scores_f16, f16, BITNET__ROWS_CACHE)
#endif

/* A tile of the weighted sums over all rows of a run: 1 or 2 columns of 4 registers each. out
   carries the sums from one run to the next, so the order of additions stays the same. */
BITNET__INLINE void bitnet__tile_mix_wasm(const uint8_t *w, size_t row_bytes, const float *p,
                                          size_t p_stride, int n, int rows, float *out,
                                          const int tile_cols, const int kind) {
    const size_t bytes = BITNET__ROW_BYTES(kind);
    v128_t sum[2][4], v[2], a[2];
    int r, c, j, k;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (j = 0; j < 4; j++)
            sum[c][j] = wasm_v128_load(out + (size_t)c * (size_t)n + 4 * j);
    }
    for (r = 0; r < rows; r++, w += row_bytes) {
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            a[c] = wasm_v128_load32_splat(p + (size_t)c * p_stride + r);
        BITNET__UNROLL for (j = 0; j < 4; j += 2) {
            bitnet__load8_wasm(v, w + (size_t)j * 4 * bytes, kind);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                BITNET__UNROLL for (k = 0; k < 2; k++)
                    sum[c][j + k] = bitnet__add_product_wasm(sum[c][j + k], a[c], v[k], kind);
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (j = 0; j < 4; j++)
            wasm_v128_store(out + (size_t)c * (size_t)n + 4 * j, sum[c][j]);
    }
}

BITNET__INLINE void bitnet__mix_wasm(const uint8_t *w, size_t row_bytes, const float *p,
                                     size_t p_stride, int n, int rows, int cols, float *out,
                                     const int kind) {
    int c, i, taken;
    for (c = 0; c < cols; c += taken) {
        taken = cols - c >= 2 ? 2 : 1;
        for (i = 0; i < n; i += BITNET__LANES) {
            const uint8_t *from = w + (size_t)i * BITNET__ROW_BYTES(kind);
            if (taken == 2)
                bitnet__tile_mix_wasm(from, row_bytes, p, p_stride, n, rows, out + i, 2, kind);
            else
                bitnet__tile_mix_wasm(from, row_bytes, p, p_stride, n, rows, out + i, 1, kind);
        }
        p += (size_t)taken * p_stride;
        out += (size_t)taken * (size_t)n;
    }
}

BITNET__ROW_SUMS_F32

BITNET__INLINE void bitnet__mix_f16_wasm(const uint8_t *w, size_t w_stride, const float *p,
                                         size_t p_stride, int n, int rows, int cols, float *out,
                                         const int kind) {
    const int wide_kind = kind == BITNET__ROWS_CACHE ? BITNET__ROWS_WIDE : BITNET__ROWS_F32;
    float wide[BITNET__WIDE];
    int r, count;
    if (n % BITNET__LANES || n > BITNET__WIDE) {   /* a head has hardly more than 256 */
        bitnet__sumrows_f16_scalar(w, w_stride, p, p_stride, n, rows, cols, out);
        return;
    }
    for (r = 0; r < rows; r += count, w += (size_t)count * w_stride * 2) {
        count = rows - r < BITNET__WIDE / n ? rows - r : BITNET__WIDE / n;
        if (bitnet__widen_wasm(w, w_stride, n, count, wide))
            bitnet__mix_wasm((const uint8_t *)wide, (size_t)n * 4, p + r, p_stride, n, count, cols,
                             out, wide_kind);
        else bitnet__sumrows_f16_scalar(w, w_stride, p + r, p_stride, n, count, cols, out);
    }
}

#define BITNET__DEFINE_SUMROWS_F16(isa, kind) \
    static void bitnet__sumrows_f16_##isa(const uint8_t *w, size_t w_stride, const float *p, \
                                          size_t p_stride, int n, int rows, int cols, \
                                          float *out) { \
        bitnet__mix_f16_wasm(w, w_stride, p, p_stride, n, rows, cols, out, kind); \
    }
BITNET__DEFINE_SUMROWS_F16(simd128, BITNET__ROWS_F16)
#if BITNET__RELAXED
BITNET__DEFINE_SUMROWS_F16(relaxed, BITNET__ROWS_CACHE)
#endif

#ifndef BITNET_NO_GROUPS
/* ---- a scale per group ----
   Few columns: tiles of 16 rows, a 16th of the call's rows apart, so that the CPU's prefetcher sees
   16 streams: of 16 neighbouring rows, which share pages, it makes none, and that took twice the
   time. A tile reads the blocks in place, a scale group at a time. It has a row of each of 16
   strips, which count in fours: row (i, j) is of strip 4 i + j. */
enum {
    BITNET__RECORDS = 3216,            /* vectors of what a column's activations become: 51 KB */
    BITNET__BAND_COLS = 32             /* of LOOK_ROWS rows, whose float sums are kept at a time */
};

/* Writes a column's sums, but not of rows before `first`. Lane j of sum[4 * r + i] is of row r of
   strip 4 i + j. */
static void bitnet__put_strips_wasm(const bitnet__grouped *x, int c, int first,
                                    const v128_t *sum) {
    const int strip = x->rows / 16;
    float *y = x->out + (size_t)c * x->stride, four[4];
    int r, i, j, row;
    for (r = 0; r < strip; r++)
        for (i = 0; i < 4; i++) {
            wasm_v128_store(four, sum[4 * r + i]);
            for (j = 0; j < 4; j++) {
                row = (4 * i + j) * strip + r;
                if (row >= first) y[row] = x->add ? y[row] + four[j] : four[j];
            }
        }
}

BITNET__INLINE v128_t bitnet__add_group_wasm(v128_t sum, v128_t dot, v128_t d, v128_t scale) {
    const v128_t f = wasm_f32x4_mul(d, scale);
    return wasm_f32x4_add(sum, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(dot), f));
}

/* The scales of four rows, which are finite. */
BITNET__INLINE v128_t bitnet__scales4_wasm(const uint8_t *w, size_t apart,
                                           const bitnet__f16_parts *p) {
    v128_t v = wasm_i32x4_const_splat(0);
    v = wasm_v128_load16_lane(w, v, 1);
    v = wasm_v128_load16_lane(w + apart, v, 3);
    v = wasm_v128_load16_lane(w + 2 * apart, v, 5);
    v = wasm_v128_load16_lane(w + 3 * apart, v, 7);
    return bitnet__from_f16_wasm(v, p);
}

/* The activations of 16 words of codes, as 16 bytes of a row meet them: a[t] for bits 2 t and
   2 t + 1. */
BITNET__INLINE void bitnet__turn_words_wasm(const int8_t *q, v128_t *a) {
    v128_t w[4], b[4];
    int i;
    BITNET__UNROLL for (i = 0; i < 4; i++) w[i] = wasm_v128_load(q + 16 * i);
    BITNET__UNROLL for (i = 0; i < 4; i += 2) {
        b[i] = wasm_i32x4_shuffle(w[i], w[i + 1], 0, 4, 1, 5);
        b[i + 1] = wasm_i32x4_shuffle(w[i], w[i + 1], 2, 6, 3, 7);
    }
    BITNET__UNROLL for (i = 0; i < 2; i++) {
        a[2 * i] = wasm_i64x2_shuffle(b[i], b[i + 2], 0, 2);
        a[2 * i + 1] = wasm_i64x2_shuffle(b[i], b[i + 2], 1, 3);
    }
}

/* What a table does with a scale group. prepare makes `act` of the activations, and returns what is
   added to the dots of four rows (i, j). dots computes those of a tile: lane j of dot[i]. w: the
   codes of row (0, 0); apart: from a row to the next one. */
typedef v128_t bitnet__prepare_fn(const int8_t *q, int group, int32_t sum, v128_t *act);
typedef void bitnet__dots16_fn(const uint8_t *w, size_t apart, int group, const v128_t *act,
                               v128_t *dot);

/* Up to LOOK_ROWS rows, a multiple of 16. A group's record is what is added to dots, the
   activations' scale four times, and act, of `per` vectors for 64 weights. */
BITNET__INLINE void bitnet__strips_wasm(const bitnet__grouped *x, int first,
                                        bitnet__prepare_fn *prepare, bitnet__dots16_fn *dots,
                                        const int per) {
    const bitnet__blocks *b = x->blocks;
    const int group = b->group, size = group / 64 * per, groups = x->n / group;
    const int most = BITNET__RECORDS / (size + 2), bytes = b->bytes;
    const int to_scale = b->scale_at - b->codes_at;
    const size_t row_bytes = (size_t)groups * (size_t)bytes;
    const size_t apart = row_bytes * (size_t)(x->rows / 16);
    const bitnet__f16_parts parts = bitnet__get_f16_parts();
    v128_t sum[BITNET__LOOK_ROWS / 4], records[BITNET__RECORDS], total[4], dot[4], d, *p;
    const uint8_t *w;
    int c, k, g, r, i, count;
    for (c = 0; c < x->cols; c++) {
        for (r = 0; r < x->rows / 4; r++) sum[r] = wasm_f32x4_const_splat(0.0f);
        for (k = 0; k < groups; k += count) {
            const size_t at = (size_t)c * (size_t)groups + (size_t)k;
            count = groups - k < most ? groups - k : most;
            for (g = 0, p = records; g < count; g++, p += size + 2) {
                p[0] = prepare(x->q + (at + (size_t)g) * (size_t)group, group,
                               x->sums[at + (size_t)g], p + 2);
                p[1] = wasm_f32x4_splat(x->scales[at + (size_t)g]);
            }
            for (r = 0; r < x->rows / 16; r++) {
                w = x->w + row_bytes * (size_t)r + (size_t)(k * bytes + b->codes_at);
                BITNET__UNROLL for (i = 0; i < 4; i++) total[i] = sum[4 * r + i];
                for (g = 0, p = records; g < count; g++, p += size + 2, w += bytes) {
                    const uint8_t *scales = w + to_scale;
                    dots(w, apart, group, p + 2, dot);
                    BITNET__UNROLL for (i = 0; i < 4; i++) {
                        d = bitnet__scales4_wasm(scales + (size_t)(4 * i) * apart, apart, &parts);
                        total[i] = bitnet__add_group_wasm(
                            total[i], wasm_i32x4_add(dot[i], p[0]), d, p[1]);
                    }
                }
                BITNET__UNROLL for (i = 0; i < 4; i++) sum[4 * r + i] = total[i];
            }
        }
        bitnet__put_strips_wasm(x, c, first, sum);
    }
}

typedef void bitnet__strips_fn(const bitnet__grouped *x, int first);

/* Up to LOOK_ROWS rows. Those that are left over are computed with others before them. If there are
   fewer than 16, which may be the last ones of a layer, the scalar code takes them. */
static void bitnet__tiles_groups_wasm(const bitnet__grouped *x, bitnet__strips_fn *strips) {
    const int left = x->rows % 16;
    bitnet__grouped patch = *x;
    patch.rows -= left;
    if (patch.rows) strips(&patch, 0);
    if (!left) return;
    if (!patch.rows) {
        bitnet__dotrows_groups_scalar(x);
        return;
    }
    patch = bitnet__grouped_from(x, x->rows - 16, 0);
    strips(&patch, 16 - left);
}

/* As for I2_S. */
BITNET__INLINE v128_t bitnet__prepare_group_simd128(const int8_t *q, int group, int32_t sum,
                                                    v128_t *act) {
    bitnet__pair_sums s = {wasm_i32x4_const_splat(0), wasm_i32x4_const_splat(0)};
    v128_t a[4];
    int32_t less;
    int i;
    for (i = 0; i < group; i += 64, act += 10) {
        bitnet__turn_words_wasm(q + i, a);
        bitnet__prepare_pair_wasm(a[0], a[1], act, &s);
        bitnet__prepare_pair_wasm(a[2], a[3], act + 5, &s);
    }
    less = -bitnet__sum4_wasm(s.less) - sum;
    sum = bitnet__sum4_wasm(s.more) - sum;
    return wasm_i32x4_make(less, sum, less, sum);
}

BITNET__INLINE void bitnet__dots16_simd128(const uint8_t *w, size_t apart, int group,
                                           const v128_t *act, v128_t *dot) {
    const bitnet__pair_masks masks = bitnet__get_pair_masks();
    v128_t part[8], low, all;
    int i, r;
    BITNET__ROLLED for (r = 0; r < 8; r++, w += 2 * apart) {
        low = all = wasm_i32x4_const_splat(0);
        BITNET__ROLLED for (i = 0; i < group / 64; i++)
            bitnet__dot_pair_simd128(wasm_v128_load(w + 16 * i), wasm_v128_load(w + apart + 16 * i),
                                     act + 10 * i, &masks, &low, &all);
        part[r] = bitnet__fold2_wasm(wasm_i32x4_shr(low, 2),
                                     wasm_i32x4_shr(wasm_i32x4_sub(all, low), 14));
    }
    BITNET__UNROLL for (r = 0; r < 4; r++)
        dot[r] = bitnet__fold2_wasm(part[2 * r], part[2 * r + 1]);
}

BITNET__APART void bitnet__strips_simd128(const bitnet__grouped *x, int first) {
    bitnet__strips_wasm(x, first, bitnet__prepare_group_simd128, bitnet__dots16_simd128, 10);
}

#if BITNET__RELAXED
BITNET__INLINE v128_t bitnet__prepare_group_relaxed(const int8_t *q, int group, int32_t sum,
                                                    v128_t *act) {
    int i;
    for (i = 0; i < group; i += 64, act += 4) bitnet__turn_words_wasm(q + i, act);
    return wasm_i32x4_splat(-sum);
}

/* Dots of two products, which are added as int16, or of four. The upper field of half a byte has
   sums of 4 times the codes. Two rows and 64 weights at a time, whose sums are in registers; more
   would not be. */
BITNET__INLINE void bitnet__dots16_relaxed(const uint8_t *w, size_t apart, int group,
                                           const v128_t *act, v128_t *dot, const int halves) {
    v128_t part[8], sum[2][2], row[2], mask[2], a[4], v, b;
    const uint8_t *p;
    int i, r, j, t;
    mask[0] = bitnet__kept_wasm(BITNET__BITS2);
    mask[1] = wasm_i32x4_shl(mask[0], 2);
    BITNET__UNROLL for (r = 0; r < 8; r++) part[r] = wasm_i32x4_const_splat(0);
    BITNET__ROLLED for (i = 0; i < group / 64; i++) {
        BITNET__UNROLL for (t = 0; t < 4; t++) a[t] = act[4 * i + t];
        BITNET__ROLLED for (r = 0, p = w + 16 * i; r < 8; r++, p += 2 * apart) {
            BITNET__UNROLL for (j = 0; j < 2; j++) {
                v = wasm_v128_load(p + (size_t)j * apart);
                BITNET__UNROLL for (t = 0; t < 4; t++) {
                    b = wasm_v128_and(t < 2 ? v : wasm_u16x8_shr(v, 4), mask[t % 2]);
                    if (halves) {
                        b = wasm_i16x8_relaxed_dot_i8x16_i7x16(a[t], b);
                        sum[j][t % 2] = t < 2 ? b : wasm_i16x8_add(sum[j][t % 2], b);
                    } else sum[j][t % 2] = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(
                        a[t], b, t < 2 ? wasm_i32x4_const_splat(0) : sum[j][t % 2]);
                }
                row[j] = halves ? wasm_i16x8_add(sum[j][0], wasm_i16x8_shr(sum[j][1], 2))
                                : wasm_i32x4_add(sum[j][0], wasm_i32x4_shr(sum[j][1], 2));
            }
            v = halves ? wasm_i16x8_add(wasm_i64x2_shuffle(row[0], row[1], 0, 2),
                                        wasm_i64x2_shuffle(row[0], row[1], 1, 3))
                       : bitnet__fold2_wasm(row[0], row[1]);
            part[r] = halves ? wasm_i16x8_add(part[r], v) : wasm_i32x4_add(part[r], v);
        }
    }
    BITNET__UNROLL for (r = 0; r < 4; r++) {
        if (halves) {
            part[2 * r] = wasm_i32x4_dot_i16x8(part[2 * r], wasm_i16x8_const_splat(1));
            part[2 * r + 1] = wasm_i32x4_dot_i16x8(part[2 * r + 1], wasm_i16x8_const_splat(1));
        }
        dot[r] = bitnet__fold2_wasm(part[2 * r], part[2 * r + 1]);
    }
}

BITNET__INLINE void bitnet__dots16_halves(const uint8_t *w, size_t apart, int group,
                                          const v128_t *act, v128_t *dot) {
    bitnet__dots16_relaxed(w, apart, group, act, dot, 1);
}

BITNET__INLINE void bitnet__dots16_words(const uint8_t *w, size_t apart, int group,
                                         const v128_t *act, v128_t *dot) {
    bitnet__dots16_relaxed(w, apart, group, act, dot, 0);
}

BITNET__APART void bitnet__strips_relaxed16(const bitnet__grouped *x, int first) {
    bitnet__strips_wasm(x, first, bitnet__prepare_group_relaxed, bitnet__dots16_halves, 4);
}

BITNET__APART void bitnet__strips_relaxed32(const bitnet__grouped *x, int first) {
    bitnet__strips_wasm(x, first, bitnet__prepare_group_relaxed, bitnet__dots16_words, 4);
}
#endif

/* ---- codes of one bit, few columns ----
   See SUMS OF FOUR BITS. */

/* Two tables of 16 for each half of a byte: of the sum of those activations whose bits are 1, plus
   512, the lowest 5 bits, and the others. A word of codes has 8 halves. */
static void bitnet__prepare_word_wasm(const int8_t *q, v128_t *to) {
    const v128_t bit0 = wasm_i16x8_const(0, -1, 0, -1, 0, -1, 0, -1);
    const v128_t bit1 = wasm_i16x8_const(0, 0, -1, -1, 0, 0, -1, -1);
    const v128_t bit2 = wasm_i16x8_const(0, 0, 0, 0, -1, -1, -1, -1);
    const v128_t low5 = wasm_i16x8_const_splat(31);
    v128_t a, b;
    int i, h;
    for (i = 0; i < 4; i++, q++) {
        for (h = 0; h < 16; h += 8, to += 2) {     /* bit 2 t + o of byte i is at 16 o + 4 t + i */
            a = wasm_i16x8_add(wasm_v128_and(wasm_i16x8_splat(q[h]), bit0),
                               wasm_v128_and(wasm_i16x8_splat(q[h + 16]), bit1));
            b = wasm_i16x8_add(wasm_v128_and(wasm_i16x8_splat(q[h + 4]), bit2),
                               wasm_i16x8_const_splat(512));
            a = wasm_i16x8_add(a, b);
            b = wasm_i16x8_add(a, wasm_i16x8_splat(q[h + 20]));
            to[0] = wasm_u8x16_narrow_i16x8(wasm_v128_and(a, low5), wasm_v128_and(b, low5));
            to[1] = wasm_u8x16_narrow_i16x8(wasm_u16x8_shr(a, 5), wasm_u16x8_shr(b, 5));
        }
    }
}

/* Entries of a table of bytes; all numbers are below 16. */
BITNET__INLINE v128_t bitnet__pick_wasm(v128_t table, v128_t at) {
#if BITNET__RELAXED
    return wasm_i8x16_relaxed_swizzle(table, at);
#else
    return wasm_i8x16_swizzle(table, at);
#endif
}

/* Byte i of each of the four, then byte i + 1. */
BITNET__INLINE void bitnet__zip4_wasm(const v128_t *v, v128_t *to) {
    const v128_t low0 = bitnet__zip_low_wasm(v[0], v[2]), low1 = bitnet__zip_low_wasm(v[1], v[3]);
    const v128_t high0 = bitnet__zip_high_wasm(v[0], v[2]);
    const v128_t high1 = bitnet__zip_high_wasm(v[1], v[3]);
    to[0] = bitnet__zip_low_wasm(low0, low1);
    to[1] = bitnet__zip_high_wasm(low0, low1);
    to[2] = bitnet__zip_low_wasm(high0, high1);
    to[3] = bitnet__zip_high_wasm(high0, high1);
}

BITNET__INLINE v128_t bitnet__prepare_bits_wasm(const int8_t *q, int group, int32_t sum,
                                                v128_t *act) {
    int i;
    for (i = 0; i < group; i += 32) bitnet__prepare_word_wasm(q + i, act + i / 2);
    return wasm_i32x4_splat(-32768 - sum);
}

BITNET__INLINE void bitnet__dots16_bits(const uint8_t *w, size_t apart, int group,
                                        const v128_t *a, v128_t *dot) {
    const v128_t mask = bitnet__kept_wasm(BITNET__BITS4);
    volatile v128_t half[2];           /* Stored, so that V8 loads the second half of the tables
                                          later: it has no registers for all. */
    v128_t turned[4][4], sum[2], odd[2], v[4], part[2], at;
    int i, j, h;
    (void)group;
    BITNET__ROLLED for (i = 0; i < 4; i++, w += 4 * apart) {
        BITNET__UNROLL for (j = 0; j < 4; j++) v[j] = wasm_v128_load(w + (size_t)j * apart);
        bitnet__zip4_wasm(v, turned[i]);
    }
    sum[0] = sum[1] = odd[0] = odd[1] = wasm_i32x4_const_splat(0);
    BITNET__ROLLED for (i = 0; i < 4; i++, a += 16) {
        BITNET__UNROLL for (j = 0; j < 4; j++) v[j] = turned[j][i];
        bitnet__zip4_wasm(v, v);
        BITNET__UNROLL for (j = 0; j < 8; j++) {
            at = wasm_v128_and(j % 2 ? wasm_u16x8_shr(v[j / 2], 4) : v[j / 2], mask);
            BITNET__UNROLL for (h = 0; h < 2; h++) {
                if (j == 4) {
                    half[h] = part[h];
                    part[h] = half[h];
                }
                part[h] = j ? wasm_i8x16_add(part[h], bitnet__pick_wasm(a[2 * j + h], at))
                            : bitnet__pick_wasm(a[h], at);
            }
        }
        BITNET__UNROLL for (h = 0; h < 2; h++) {
            sum[h] = wasm_i16x8_add(sum[h], part[h]);
            odd[h] = wasm_i16x8_add(odd[h], wasm_u16x8_shr(part[h], 8));
        }
    }
    odd[0] = wasm_i16x8_add(odd[0], wasm_i16x8_shl(odd[1], 5));
    sum[0] = wasm_i16x8_sub(wasm_i16x8_add(sum[0], wasm_i16x8_shl(sum[1], 5)),
                            wasm_i16x8_shl(odd[0], 8));
    BITNET__UNROLL for (i = 0; i < 4; i++) {       /* twice a word's lower or upper half */
        at = i % 2 ? odd[0] : sum[0];
        dot[i] = i < 2 ? wasm_u32x4_shr(wasm_i32x4_shl(at, 16), 15)
                       : wasm_i32x4_shl(wasm_u32x4_shr(at, 16), 1);
    }
}

BITNET__APART void bitnet__strips_bits_wasm(const bitnet__grouped *x, int first) {
    bitnet__strips_wasm(x, first, bitnet__prepare_bits_wasm, bitnet__dots16_bits, 32);
}

/* ---- a scale per group, looked up ---- */

/* The entries of a k-step's rows, whose codes have one bit. */
static void bitnet__find_bits_wasm(const uint8_t *w, size_t row_bytes, int rows,
                                   const v128_t *table, uint32_t *at) {
    const v128_t mask = wasm_i8x16_const_splat((int8_t)0xaa);
    v128_t v;
    int r;
    for (r = 0; r < rows; r += 2, w += 2 * row_bytes, at += 16) {
        v = wasm_v128_load32_lane(r + 1 < rows ? w + row_bytes : w, wasm_v128_load32_zero(w), 1);
        bitnet__find_wasm(wasm_i32x4_shuffle(wasm_v128_and(wasm_i32x4_shl(v, 1), mask),
                                             wasm_v128_and(v, mask), 0, 4, 1, 5), table, at);
    }
}

/* The scales of rows at distances of row_bytes. */
static void bitnet__scales_wasm(const uint8_t *w, size_t row_bytes, int rows, float *d) {
    const bitnet__f16_parts parts = bitnet__get_f16_parts();
    int r;
    for (r = 0; r < rows; r += 4) {
        if (r > rows - 4) r = rows - 4;            /* there are at least LOOK_LEAST */
        wasm_v128_store(d + r, bitnet__scales4_wasm(w + row_bytes * (size_t)r, row_bytes, &parts));
    }
}

/* Adds the sums of a group, and `more` of them if that is not null, to the totals of 8 columns. */
BITNET__INLINE void bitnet__add_groups_wasm(const v128_t *sum, const v128_t *more, const float *d,
                                            const float *scales, int rows, v128_t *total) {
    const v128_t scale0 = wasm_v128_load(scales), scale1 = wasm_v128_load(scales + 4);
    int r;
    for (r = 0; r < rows; r++, total += BITNET__BAND_COLS / 4) {
        const v128_t own = wasm_v128_load32_splat(d + r);
        v128_t low = wasm_i32x4_extend_low_i16x8(sum[2 * r]);
        v128_t high = wasm_i32x4_extend_high_i16x8(sum[2 * r]);
        if (more) {
            low = wasm_i32x4_add(low, wasm_i32x4_extend_low_i16x8(more[2 * r]));
            high = wasm_i32x4_add(high, wasm_i32x4_extend_high_i16x8(more[2 * r]));
        }
        total[0] = bitnet__add_group_wasm(total[0], low, own, scale0);
        total[1] = bitnet__add_group_wasm(total[1], high, own, scale1);
    }
}

/* Writes the sums of rows r to r + 3 of column c, as far as they are there. */
BITNET__INLINE void bitnet__put_groups_wasm(const bitnet__grouped *x, int r, int c,
                                            v128_t sum) {
    float four[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float *to = x->out + (size_t)c * x->stride + (size_t)r;
    if (r >= x->rows) return;
    if (x->add) {
        bitnet__put(four, to, x->rows - r);
        sum = wasm_f32x4_add(wasm_v128_load(four), sum);
    }
    wasm_v128_store(four, sum);
    bitnet__put(to, four, x->rows - r);
}

/* Writes the totals of columns c to c + cols - 1. */
static void bitnet__put_totals_wasm(const bitnet__grouped *x, int c, int cols,
                                    const v128_t *total) {
    int r, i;
    for (r = 0; r < x->rows; r += 4) {
        for (i = 0; i < cols; i++) {
            const float *from = (const float *)(total + r * BITNET__BAND_COLS / 4) + i;
            bitnet__put_groups_wasm(x, r, c + i, wasm_f32x4_make(
                from[0], from[BITNET__BAND_COLS], from[2 * BITNET__BAND_COLS],
                from[3 * BITNET__BAND_COLS]));
        }
    }
}

/* Up to LOOK_ROWS rows without a code 3, with up to BAND_COLS columns at a time, whose totals are
   in memory, but in out only at the end: with add, that has terms of its own, which come last. The
   sums of a group of 256 do not fit int16, those of its halves do. */
BITNET__APART void bitnet__look_up_groups_wasm(const bitnet__grouped *x) {
    v128_t table[BITNET__LOOK_TABLE], sum[2][BITNET__LOOK_ROWS * 2];
    v128_t total[(BITNET__LOOK_ROWS + 3) * BITNET__BAND_COLS / 4];
    bitnet__look at[BITNET__LOOK_K_STEPS];
    float d[BITNET__LOOK_ROWS], scales[BITNET__LOOK_COLS];
    const bitnet__blocks *b = x->blocks;
    const size_t groups = (size_t)(x->n / b->group), row_bytes = groups * (size_t)b->bytes;
    const int halves = b->group > 128 ? 2 : 1, rows = x->rows;
    const int half = b->group / 32 / halves;           /* k-steps */
    size_t g;
    int band, c, i, cols;
    for (band = 0; band < x->cols; band += BITNET__BAND_COLS) {
        cols = x->cols - band < BITNET__BAND_COLS ? x->cols - band : BITNET__BAND_COLS;
        memset(total, 0, (size_t)rows * BITNET__BAND_COLS * sizeof(float));
        for (g = 0; g < groups; g++) {
            const uint8_t *w = x->w + g * (size_t)b->bytes;
            bitnet__scales_wasm(w + b->scale_at, row_bytes, rows, d);
            for (i = 0; i < half * halves; i++) {
                if (b->bits == 2)
                    bitnet__find_i2s_wasm(w + b->codes_at + 8 * i, row_bytes, rows, table, at[i]);
                else bitnet__find_bits_wasm(w + b->codes_at + 4 * i, row_bytes, rows, table, at[i]);
            }
            for (c = 0; c < cols; c += BITNET__LOOK_COLS) {
                for (i = 0; i < halves; i++)
                    bitnet__look_up_columns_wasm(x->q + (size_t)band * (size_t)x->n, (size_t)x->n,
                                                 c, cols, (int)g * b->group + 128 * i, half, 1,
                                                 at + half * i, rows, table, sum[i]);
                for (i = 0; i < BITNET__LOOK_COLS; i++)
                    scales[i] = x->scales[g + groups * ((size_t)band +
                                                        bitnet__clamp(c + i, cols))];
                for (i = 0; i < 2 && c + 8 * i < cols; i++)
                    bitnet__add_groups_wasm(sum[0] + i, halves == 2 ? sum[1] + i : 0, d,
                                            scales + 8 * i, rows, total + c / 4 + 2 * i);
            }
        }
        bitnet__put_totals_wasm(x, band, cols, total);
    }
}

/* Is there a code 3? */
BITNET__APART int bitnet__groups_have_code3_wasm(const bitnet__grouped *x) {
    const bitnet__blocks *b = x->blocks;
    const uint8_t *w = x->w + b->codes_at;
    const uint8_t *const end = w + bitnet__blocks_bytes(b, x->n, x->rows);
    v128_t threes = wasm_i32x4_const_splat(0), v;
    int i;
    if (b->bits == 1 || b->group == 256) return 0;
    for (; w < end; w += b->bytes)
        for (i = 0; i < b->group / 4; i += 16) {
            v = wasm_v128_load(w + i);
            threes = wasm_v128_or(threes, wasm_v128_and(v, wasm_u16x8_shr(v, 1)));
        }
    return wasm_v128_any_true(wasm_v128_and(threes, wasm_i8x16_const_splat(0x55)));
}

/* The table entry. */
#define BITNET__DEFINE_GROUPS(isa, min_cols) \
    static void bitnet__dotrows_groups_##isa(const bitnet__grouped *x) { \
        bitnet__grouped patch; \
        int r = 0; \
        if (!x->blocks->bits) { \
            bitnet__dotrows_groups_scalar(x);      /* models have no digits: choose_plan */ \
            return; \
        } \
        for (; r < x->rows; r += patch.rows) { \
            patch = bitnet__grouped_from(x, r, 0); \
            patch.rows = bitnet__share(patch.rows, BITNET__LOOK_ROWS); \
            if (x->cols >= (x->blocks->bits == 1 ? BITNET__FEW_BITS : min_cols) && \
                patch.rows >= BITNET__LOOK_LEAST && !bitnet__groups_have_code3_wasm(&patch)) \
                bitnet__look_up_groups_wasm(&patch); \
            else bitnet__tiles_groups_wasm(&patch, x->blocks->bits == 1 \
                     ? bitnet__strips_bits_wasm : bitnet__strips_##isa); \
        } \
    }

BITNET__DEFINE_GROUPS(simd128, BITNET__FEW_SIMD128)

#if BITNET__RELAXED
BITNET__DEFINE_GROUPS(relaxed16, BITNET__FEW_RELAXED16)
BITNET__DEFINE_GROUPS(relaxed32, BITNET__FEW_GROUPS32)

static void bitnet__dotrows_groups_relaxed(const bitnet__grouped *x) {
    if (bitnet__relaxed_halves()) bitnet__dotrows_groups_relaxed16(x);
    else bitnet__dotrows_groups_relaxed32(x);
}
#endif
#endif

/* ---- row kernels: what those of bitnet.h are made of ----
   pmax(a, b) is a < b ? b : a, and pmin(a, b) is b < a ? b : a: if one is a NaN, they return a. */

#define BITNET__FLOATS v128_t
#define BITNET__PER_VECTOR 4
#define BITNET__COUNTS v128_t
#define BITNET__UNROLL64 BITNET__ROLLED
#define BITNET__ROUND_AT_ONCE 0
#define BITNET__LEAVE() ((void)0)

#define BITNET__OPERATION(op) \
    BITNET__INLINE v128_t bitnet__##op##_wasm(v128_t a, v128_t b) { \
        return wasm_f32x4_##op(a, b); \
    }
BITNET__OPERATION(add) BITNET__OPERATION(sub) BITNET__OPERATION(mul) BITNET__OPERATION(div)
#undef BITNET__OPERATION

BITNET__INLINE v128_t bitnet__min_wasm(v128_t a, v128_t b) { return wasm_f32x4_pmin(b, a); }
BITNET__INLINE v128_t bitnet__max_wasm(v128_t a, v128_t b) { return wasm_f32x4_pmax(b, a); }
BITNET__INLINE v128_t bitnet__splat_wasm(float x) { return wasm_f32x4_splat(x); }
BITNET__INLINE v128_t bitnet__load_f32_wasm(const void *p) { return wasm_v128_load(p); }
BITNET__INLINE void bitnet__store_wasm(float *p, v128_t v) { wasm_v128_store(p, v); }
BITNET__INLINE v128_t bitnet__load_i32_wasm(const int32_t *p) {
    return wasm_f32x4_convert_i32x4(wasm_v128_load(p));
}

BITNET__INLINE v128_t bitnet__limit_wasm(v128_t v, float most) {
    v = wasm_f32x4_pmax(v, wasm_f32x4_splat(-most));
    return wasm_f32x4_pmin(v, wasm_f32x4_splat(most));
}

BITNET__INLINE v128_t bitnet__positive_wasm(v128_t v) {
    return bitnet__max_wasm(v, wasm_f32x4_const_splat(0.0f));
}

BITNET__INLINE v128_t bitnet__top_wasm(v128_t a, v128_t v) {
    return wasm_u32x4_max(a, wasm_v128_and(v, wasm_i32x4_const_splat(0x7fffffff)));
}

BITNET__INLINE v128_t bitnet__flip_wasm(v128_t v, const int h) {
    return h == 1 ? wasm_i32x4_shuffle(v, v, 1, 0, 3, 2) : wasm_i32x4_shuffle(v, v, 2, 3, 0, 1);
}

BITNET__INLINE v128_t bitnet__zero_tiny_wasm(v128_t x, v128_t y) {
    return wasm_v128_andnot(y, wasm_f32x4_lt(wasm_f32x4_abs(x),
                                             wasm_f32x4_const_splat(7.8886091e-31f)));
}

BITNET__INLINE v128_t bitnet__add_shifted_wasm(v128_t p, v128_t t) {
    return wasm_i32x4_add(p, wasm_i32x4_shl(t, 23));
}

BITNET__INLINE float bitnet__largest_wasm(v128_t v) {
    float lanes[4], top;
    int i;
    wasm_v128_store(lanes, v);
    for (i = 1, top = lanes[0]; i < 4; i++) top = lanes[i] > top ? lanes[i] : top;
    return top;
}

BITNET__INLINE float bitnet__tree_wasm(const v128_t *v) { return bitnet__fold_wasm(v); }
BITNET__INLINE double bitnet__root_wasm(double x) { return __builtin_sqrt(x); }     /* f64.sqrt */

/* 16 floats of -128 to 127, rounded to bytes at q. Adds them to *total. */
BITNET__INLINE void bitnet__round_wasm(void *q, const v128_t *v, v128_t *total) {
    const v128_t magic = wasm_f32x4_const_splat(12582912.0f);
    v128_t r[4];
    int j;
    BITNET__UNROLL for (j = 0; j < 4; j++) {
        r[j] = wasm_i32x4_sub(wasm_f32x4_add(v[j], magic), magic);
        *total = wasm_i32x4_add(*total, r[j]);
    }
    wasm_v128_store(q, wasm_i8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4(r[0], r[1]),
                                               wasm_i16x8_narrow_i32x4(r[2], r[3])));
}

BITNET__INLINE v128_t bitnet__between_wasm(v128_t v, float least) {
    v = bitnet__max_wasm(v, wasm_f32x4_splat(least));
    return bitnet__min_wasm(v, wasm_f32x4_const_splat(127.0f));
}

BITNET__INLINE v128_t bitnet__no_counts_wasm(void) { return wasm_i32x4_const_splat(0); }

BITNET__INLINE int32_t bitnet__counted_wasm(v128_t total, int n) {
    (void)n;
    return bitnet__sum4_wasm(total);
}

BITNET__INLINE void bitnet__put_i8_wasm(int8_t *q, const v128_t *v, v128_t *total) {
    v128_t r[4];
    int j;
    BITNET__UNROLL for (j = 0; j < 4; j++) r[j] = bitnet__between_wasm(v[j], -128.0f);
    bitnet__round_wasm(q, r, total);
}

BITNET__INLINE void bitnet__put_u8_wasm(uint8_t *q, const v128_t *v) {
    v128_t r[4], unused = wasm_i32x4_const_splat(0);
    int j;
    BITNET__UNROLL for (j = 0; j < 4; j++) r[j] = bitnet__between_wasm(v[j], 0.0f);
    bitnet__round_wasm(q, r, &unused);
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

/* Eight at a time: V8 has registers for no more. */
BITNET__INLINE void bitnet__put_f16_wasm(uint8_t *p, const float *x) {
    int j;
    BITNET__ROLLED for (j = 0; j < 16; j += 8)
        wasm_v128_store(p + 2 * j,
                        wasm_u16x8_narrow_i32x4(bitnet__to_f16_wasm(wasm_v128_load(x + j)),
                                                bitnet__to_f16_wasm(wasm_v128_load(x + j + 4))));
}

#define BITNET__ROW_KERNELS
#include "bitnet.h"

/* ---- what the module and the engine support ---- */

static uint32_t bitnet__cpu_features(void) {
    uint32_t features = BITNET_CPU_SIMD128;
#if BITNET__RELAXED
    if (bitnet__relaxed_correct()) features |= BITNET_CPU_RELAXED;
#endif
    return features;
}

/* ---- the tables ---- */

/* scores: of an F16 cache. */
#define BITNET__TABLE(isa, scores) \
    BITNET__LAYOUT_I2S, bitnet__quantize_wasm, bitnet__dotrows_i2s_##isa, \
    BITNET__ENTRY_GROUPS(isa), bitnet__dotrows_f32_wasm, bitnet__dotrows_f16_wasm, \
    bitnet__dotrows_bf16_wasm, scores, bitnet__sumrows_f32_wasm, bitnet__sumrows_f16_##isa, \
    bitnet__softmax_wasm, bitnet__rope_wasm, bitnet__store_f16_wasm, bitnet__dequantize_wasm, \
    bitnet__relu2_gate_wasm, bitnet__sigmoid_gate_wasm, bitnet__rmsnorm_wasm, \
    bitnet__dotrows_u4_##isa, bitnet__dotrows_i2s_##isa, \
    BITNET__ENTRIES_I8(wasm, wasm, isa), BITNET__ENTRIES_STATE(wasm)

#if BITNET__SIMD128
static const bitnet_kernels bitnet__kernels_simd128 = {
    "simd128", BITNET_CPU_SIMD128, BITNET__TABLE(simd128, bitnet__dotrows_f16_wasm)
};
#endif
#if BITNET__RELAXED
static const bitnet_kernels bitnet__kernels_relaxed = {
    "relaxed-simd", BITNET_CPU_SIMD128 | BITNET_CPU_RELAXED,
    BITNET__TABLE(relaxed, bitnet__scores_f16_wasm)
};
#endif
#define BITNET__KERNEL_TABLES \
    BITNET__LISTED(BITNET__RELAXED, relaxed) BITNET__LISTED(BITNET__SIMD128, simd128)
#ifdef BITNET_SMALL
  BITNET_SMALL
#endif
