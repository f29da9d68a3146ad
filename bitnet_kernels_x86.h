/* bitnet_kernels_x86.h - AVX2, AVX-VNNI and AVX-512 kernels for bitnet.h; MIT licence, see there

   Lay this file beside bitnet.h, which includes it by name. Every entry gives the same bits as its
   scalar twin in bitnet.h, whose code says what is computed; here stands only how.

   INSTRUCTIONS
       avx2        AVX2, FMA and F16C. Integer dots by vpmaddubsw (unsigned code times signed
                   activation, pairs added into int16) and vpmaddwd (pairs of int16 added into
                   int32).
       avxvnni     That and AVX-VNNI. Integer dots by vpdpbusd (unsigned code times signed
                   activation, four products added into int32) in its VEX form, on ymm; the rest
                   is that of avx2.
       avx512vnni  AVX-512 F, BW, DQ, VL and VNNI. Integer dots by vpdpbusd on zmm.
       avx512vbmi  The same and VBMI: vpermb looks codes up in a table of 64. Only for TL2.
       All         vcvtph2ps for F16. Floats are multiplied, then added: an FMA would round once
                   where the scalar code rounds twice. Only where the products are exact, in
                   attention over an F16 cache, is it the same, and used.
   bitnet__cpu_features asks CPUID for the instructions and XGETBV for the system's consent to the
   wide registers. Each function names its target in an attribute, so no -m flag is needed.

   WEIGHTS: I2_S, 128-group, read in place
       A row of n weights is n / 4 bytes; a block of 128 weights is 32 of them, one ymm register.
       Code = weight + 1. Code 3 is in no valid file, but it counts the same here as in scalar.

           byte of the block      0     1     2   ...  31       with activations
           bits 7-6, weight       0     1     2   ...  31         0 ..  31
           bits 5-4, weight      32    33    34   ...  63        32 ..  63
           bits 3-2, weight      64    65    66   ...  95        64 ..  95
           bits 1-0, weight      96    97    98   ... 127        96 .. 127

       So a mask gives the codes of 32 neighbours, in the order of their activations, after a shift
       or times a power of 4. The kernels sum code * q and subtract sums[c], the sum of q.

   WEIGHTS: TL2, drawn in bitnet.h
       Made by pack from I2_S. 64 bytes are 16 rows by 4 triples of codes, the three in a nibble and
       a fifth bit. Uops for 64 triples, 192 weights, and one column:

                    nibble, fifth   codes   products    weights a cycle
           vbmi     1.9             3       3           2 ports: 49
           vnni     1.5 + 1         5       3           2 ports: 37
           avx2     2 * 3.4         2 * 6   2 * 6       3 ports: 19

   CYCLES of an iteration of the loops for prompts, as gcc 12 makes them at -O2, by llvm-mca 19:
       python3 tests/loops.py table gcc
                                                     instructions   cycles   ports   bound
           panel, AVX2            Zen 2                        48     16.1    16.0    16.1
             2 steps              Zen 3, Zen 4                 48     12.1     8.0    12.1
                                  Ice Lake                     48     10.7     8.0    10.7
           panel, AVX-VNNI        Alder Lake                   24      6.0     6.0     6.0
           panel, AVX-512 VNNI    Ice Lake                     34     10.1    10.0    10.0
                                  Zen 4                        34     40.0    32.0    32.0
       ports: what ports and width allow by themselves. Of AVX2, bound is the same loop without its
       chain of sums, which shows whether the chain limits it; in these models additions seem to
       take ports that the multiplications need. A Zen 3 reaches 87 to 97 % of its vpmaddubsw peak
       in this loop, which is 8.2 to 9.2 cycles. In Zen 4's model broadcasts take vpdpbusd's ports.

   BOUNDS, for codes up to 3 and q from -128 to 127, n <= 2^20: 8192 blocks
       avx2, int16        Tile: lo, of 4 * code, 2 * 12 * 128 = 3072 from a vpmaddubsw, far from its
                          saturation, two a block, 24576 in 4 blocks; hi a quarter of that. Then
                          lo / 4 + hi <= 12288. Panel: 32 single steps of 768 are 24576.
       avx2, int32        2 * 24576 = 49152 to a lane each time that the int16 are emptied.
       VNNI, int32        Tile: 4 * 12 * 128 = 6144 to a lane from a vpdpbusd, two a block, together
                          100663296. Panel: 4 * 3 * 128 = 1536 to a lane a step.
       TL2                Codes up to 2. avx2, int16: 2 * 2 * 128 = 512 from a vpmaddubsw, 24 of
                          them, a block, 12288. avx512: 4 * 2 * 128 = 1024 to a lane from a
                          vpdpbusd, a row's all in one lane: 256 n, within the next line's.
       all, int32         All lanes together 384 n, at most 402653184; before or after that minus
                          the sum of q, at most 128 n = 2^27. int32 goes to 2^31.
       quantize           The sum of q + 128: at most 255 n < 2^28.
       dotrows_u8         |q| <= 64, so a vpmaddubsw gives at most 2 * 255 * 64 = 32640 and does not
                          saturate. All lanes together 16320 n, for n <= 2^16 under 2^31; then
                          minus 128 times the sum of q, at most 8192 n. */

#if BITNET__KERNEL_ABI != 4
  #error "bitnet_kernels_x86.h and bitnet.h are of different releases"
#endif
#define BITNET__HAVE_SIMD

#ifdef __cplusplus
}   /* the compiler's headers bring their own linkage */
#endif
#ifdef _MSC_VER
  #include <intrin.h>
#else
  #include <cpuid.h>
#endif
#include <immintrin.h>
#ifdef __cplusplus
extern "C" {
#endif

/* gcc's own intrinsics start from a register that is undefined on purpose, and it warns of that. */
#if defined(__GNUC__) && !defined(__clang__)
  #pragma GCC diagnostic push
  #pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
  #pragma GCC diagnostic ignored "-Wuninitialized"
#endif

/* gcc knows VNNI from version 8 on; clang-cl's immintrin.h hides what no option has enabled; MSVC
   for 32 bits cannot pass structures of vectors (C2719). */
#if defined(BITNET_NO_AVX2) || (defined(_MSC_VER) && defined(__clang__) && !defined(__AVX2__)) || \
    (defined(_M_IX86) && !defined(__clang__))
  #define BITNET__AVX2 0
#else
  #define BITNET__AVX2 1
#endif
#if defined(BITNET_NO_AVX512) || (defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 8) || \
    (defined(_MSC_VER) && defined(__clang__) && !defined(__AVX512VBMI__)) || \
    (defined(_M_IX86) && !defined(__clang__))
  #define BITNET__AVX512 0
#else
  #define BITNET__AVX512 1
#endif

/* AVX-VNNI: gcc from 11, clang from 12 (Apple counts one more), MSVC from 2022. Its table shares
   the float kernels of avx2. */
#if !BITNET__AVX2 || defined(BITNET_NO_AVXVNNI) || \
    (defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 11) || \
    (defined(__clang__) && __clang_major__ < (defined(__apple_build_version__) ? 13 : 12)) || \
    (defined(_MSC_VER) && !defined(__clang__) && _MSC_VER < 1930) || \
    (defined(_MSC_VER) && defined(__clang__) && !defined(__AVXVNNI__))
  #define BITNET__AVXVNNI 0
#else
  #define BITNET__AVXVNNI 1
#endif

/* APART: a function of its own, so that nothing around its loop claims the registers. */
#if defined(__GNUC__) || defined(__clang__)
  #define BITNET__INLINE static inline __attribute__((always_inline))
  #define BITNET__APART static __attribute__((noinline))
  #define BITNET__TARGET_avx2 __attribute__((target("avx2,fma,f16c")))
  #define BITNET__TARGET_avxvnni __attribute__((target("avx2,fma,f16c,avxvnni")))
  #define BITNET__TARGET_avx512vnni \
      __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
  #define BITNET__TARGET_avx512vbmi \
      __attribute__(( \
          target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi")))
#else
  #define BITNET__INLINE static __forceinline
  #define BITNET__APART static __declspec(noinline)
  #define BITNET__TARGET_avx2
  #define BITNET__TARGET_avxvnni
  #define BITNET__TARGET_avx512vnni
  #define BITNET__TARGET_avx512vbmi
#endif

/* Before loops over the sums of a tile: only without the loop are these registers. */
#if defined(__clang__)
  #define BITNET__UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
  #define BITNET__UNROLL _Pragma("GCC unroll 8")
#else
  #define BITNET__UNROLL
#endif

/* gcc 12 carries the sums of vpdpbusd from one step to the next through a second set of
   registers, and the copies take a third of the time; a statement that may have changed a sum
   ends that. A sum that grows by an addition needs ADDED: gcc would put it where the term was, or
   make all terms first and keep a sum in memory for them, as clang does. The statement reads the
   term after the addition, so the term keeps its register until then. NO_AHEAD ends what clang
   loads ahead: no load goes past a statement that may have changed memory. */
#if defined(__GNUC__) && !defined(__clang__)
  #define BITNET__IN_PLACE(sum) __asm__("" : "+v"(sum))
#else
  #define BITNET__IN_PLACE(sum) ((void)0)
#endif
#if defined(__GNUC__) || defined(__clang__)
  #define BITNET__ADDED(sum, term) __asm__("" : "+v"(sum) : "v"(term))
  #define BITNET__NO_AHEAD() __asm__ volatile("" : : : "memory")
#else
  #define BITNET__ADDED(sum, term) ((void)0)
  #define BITNET__NO_AHEAD() ((void)0)
#endif

/* clang 14 loads the F16 of a row one by one, and a row takes five times as long; a statement that
   may have changed a vector makes it load the vector. clang 19 does by itself. */
#if defined(__clang__) && __clang_major__ < 19
  #define BITNET__WHOLE(v) __asm__("" : "+x"(v))
#else
  #define BITNET__WHOLE(v) ((void)0)
#endif

/* ---- what the CPU and the system allow ---- */

static void bitnet__cpuid(uint32_t leaf, uint32_t subleaf, uint32_t *regs) {   /* eax to edx */
#ifdef _MSC_VER
    int r[4], i;
    __cpuidex(r, (int)leaf, (int)subleaf);
    for (i = 0; i < 4; i++) regs[i] = (uint32_t)r[i];
#else
    __cpuid_count(leaf, subleaf, regs[0], regs[1], regs[2], regs[3]);
#endif
}

/* The registers that the system saves: bits 1 and 2 for xmm and ymm, 5 to 7 for opmask and zmm. */
static uint32_t bitnet__saved_registers(void) {
#ifdef _MSC_VER
    return (uint32_t)_xgetbv(0);
#else
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
#endif
}

static uint32_t bitnet__cpu_features(void) {
    const uint32_t ymm = 0x06, zmm = 0xe6;
    const uint32_t f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    uint32_t leaf0[4], leaf1[4], leaf7[4], more7[4] = {0}, saved, features = 0;
    bitnet__cpuid(0, 0, leaf0);
    if (leaf0[0] < 7) return 0;
    bitnet__cpuid(1, 0, leaf1);
    bitnet__cpuid(7, 0, leaf7);
    if (leaf7[0] >= 1) bitnet__cpuid(7, 1, more7);
    if (!(leaf1[2] >> 27 & 1) || !(leaf1[2] >> 28 & 1)) return 0;   /* OSXSAVE: XGETBV works; AVX */
    saved = bitnet__saved_registers();
    if ((saved & ymm) != ymm) return 0;
    if ((leaf7[1] >> 5 & 1) && (leaf1[2] >> 12 & 1)) features |= BITNET_CPU_AVX2;   /* and FMA */
    if (leaf1[2] >> 29 & 1) features |= BITNET_CPU_F16C;
    if (more7[0] >> 4 & 1) features |= BITNET_CPU_AVXVNNI;
    if ((saved & zmm) != zmm || (leaf7[1] & f_dq_bw_vl) != f_dq_bw_vl) return features;
    features |= BITNET_CPU_AVX512;
    if (leaf7[2] >> 11 & 1) features |= BITNET_CPU_AVX512VNNI;
    if (leaf7[2] >> 1 & 1) features |= BITNET_CPU_AVX512VBMI;
    return features;
}

/* ---- tiles ----
   Dot products are made in tiles of 4 rows and 4 columns (tokens), or 1 column: 16 or 4 sums that
   stay in registers. Each weight, once loaded and unpacked, serves all columns, each activation 4
   rows, and no addition waits for the one before. Past the last row or column a tile repeats the
   last one and drops the copies, so there is one shape of code for all sizes; two columns left
   over are cheaper one by one. I2_S, whose weights cost more to unpack than floats, has a tile for
   each small number of columns. */
#define BITNET__TILE 4
#define BITNET__TILE_COLS(left) ((left) > 2 ? BITNET__TILE : 1)
#define BITNET__CLAMP(i, count) ((size_t)((i) < (count) ? (i) : (count) - 1))

/* For what is read from end to end: into L2 well ahead, for only few lines at a time can be on
   their way into L1, and from there into L1. Once for 64 bytes: more of them cost time. An address
   past the end does no harm: nothing is read there. */
#define BITNET__STREAM(p) \
    (_mm_prefetch((const char *)((uintptr_t)(p) + 16384), _MM_HINT_T1), \
     _mm_prefetch((const char *)((uintptr_t)(p) + 4096), _MM_HINT_T0))

/* The same for a block of TL2, five cache lines. */
#define BITNET__STREAM_BLOCK(p) \
    (BITNET__STREAM(p), BITNET__STREAM((p) + 64), BITNET__STREAM((p) + 128), \
     BITNET__STREAM((p) + 192), BITNET__STREAM((p) + 256))

/* Of `left` columns, how many the next tile takes if it can take most. */
#define BITNET__SHARE(left, most) \
    ((left) <= (most) ? (left) : (left) < 2 * (most) ? ((left) + 1) / 2 : (most))

/* Writes the results of a tile's column: 4, or fewer at the end, of 4 bytes each. */
BITNET__INLINE void bitnet__put(void *to, const void *four, int count) {
    if (count >= 4) memcpy(to, four, 16);
    else memcpy(to, four, (size_t)count * 4);
}

/* ---- I2_S ----
   Few columns: tiles, straight from the packed rows, which come from memory. From 24 columns on:
   panels of rows, unpacked once for all columns. Two vectors of L lanes of int32 hold the dots of
   a panel's 2 L rows with one column, each row in a lane of its own, so no sum goes across lanes.
   For that the codes lie crosswise, 4 of each row side by side:

       panel[k][half]    lane           0           1       ...      L - 1
                         row         half L    half L + 1   ...   half L + L - 1
                         weights   4k .. 4k+3   4k .. 4k+3  ...    4k .. 4k+3      a code a byte

   Step k multiplies this by activations 4k .. 4k+3 of a column, repeated in all lanes. A panel is
   at most 256 steps deep, 32 KB of zmm, to stay in the L1 cache; out carries the sums from one
   depth to the next. Activations of that depth (512 KB for 512 columns) stay in the L2 cache
   while 256 rows go by. Past the last column the last is repeated: both copies write the same. */
#define BITNET__PANEL 256

/* Of a block (32 bytes) spread makes two pairs: 0 for the first 64 activations, 1 for the others. A
   pair has two halves of 32 codes, where they lay in their bytes:

       0: bytes >> 4, 1: bytes     & 0x0c: lower half, 4 * code    & 0x03: upper half, code

   So one shift does for four fields. The dots of lower halves are 4 times too large, exactly, until
   settle, after at most `depth` blocks, adds both halves into int32. A tile takes 4 rows, together,
   two by two or one by one, whatever number of sums the registers hold, and up to `most` columns,
   evenly: 8 of at most 5 are 4 and 4. What the next tile reads of its 4 rows still lies in the L1
   cache. */
#define BITNET__DEFINE_TILES_I2S(isa, base, together, most, depth) \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__block_##isa( \
        bitnet__pair_##base (*part)[together], const uint8_t *const *row, const int8_t *q, int n, \
        size_t b, const int tile_cols) { \
        int r, c, i; \
        BITNET__UNROLL for (r = 0; r < (together); r++) { \
            BITNET__UNROLL for (i = 0; i < 2; i++) { \
                const bitnet__pair_##base w = bitnet__spread_##base(row[r] + b * 32, i); \
                BITNET__UNROLL for (c = 0; c < tile_cols; c++) \
                    part[c][r] = bitnet__dot_##isa( \
                        part[c][r], w, q + (size_t)c * (size_t)n + b * 128 + (size_t)i * 64); \
                BITNET__NO_AHEAD(); \
            } \
        } \
    } \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__tile_i2s_##isa( \
        const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows, int32_t *out, \
        size_t out_stride, const int tile_cols) { \
        bitnet__pair_##base part[most][together]; \
        bitnet__i32_##base sum[most][BITNET__TILE]; \
        const uint8_t *row[together]; \
        int r, c, b, end, first; \
        for (first = 0; first < BITNET__TILE; first += (together)) { \
            BITNET__UNROLL for (r = 0; r < (together); r++) { \
                row[r] = w + BITNET__CLAMP(first + r, rows) * (size_t)(n / 4); \
                BITNET__UNROLL for (c = 0; c < tile_cols; c++) \
                    sum[c][first + r] = bitnet__none_##base(); \
            } \
            for (b = 0; b < n / 128; b = end) { \
                end = n / 128 - b < (depth) ? n / 128 : b + (depth); \
                BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
                    BITNET__UNROLL for (r = 0; r < (together); r++) \
                        part[c][r] = bitnet__no_pair_##base(); \
                } \
                for (; b < end; b += 2) {               /* a cache line of each row */ \
                    BITNET__UNROLL for (r = 0; r < (together); r++) \
                        BITNET__STREAM(row[r] + (size_t)b * 32); \
                    bitnet__block_##isa(part, row, q, n, (size_t)b, tile_cols); \
                    if (b + 1 < end) \
                        bitnet__block_##isa(part, row, q, n, (size_t)b + 1, tile_cols); \
                } \
                BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
                    BITNET__UNROLL for (r = 0; r < (together); r++) \
                        sum[c][first + r] = bitnet__add_epi32_##base( \
                            sum[c][first + r], bitnet__settle_##isa(part[c][r])); \
                } \
            } \
        } \
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
            __m128i dots = bitnet__fold4_##base(sum[c]); \
            int32_t four[4]; \
            dots = _mm_sub_epi32(dots, _mm_set1_epi32(sums[c])); \
            _mm_storeu_si128((__m128i *)(void *)four, dots); \
            bitnet__put(out + (size_t)c * out_stride, four, rows); \
        } \
    } \
    BITNET__APART BITNET__TARGET_##isa void bitnet__tiles_i2s_##isa( \
        const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows, int cols, \
        int32_t *out, size_t out_stride) { \
        int r, c, step; \
        for (r = 0; r < rows; r += BITNET__TILE) { \
            const uint8_t *row = w + (size_t)r * (size_t)(n / 4); \
            for (c = 0; c < cols; c += step) { \
                const int8_t *col = q + (size_t)c * (size_t)n; \
                int32_t *to = out + (size_t)c * out_stride + (size_t)r; \
                step = BITNET__SHARE(cols - c, most); \
                if (step == 1) \
                    bitnet__tile_i2s_##isa(row, col, sums + c, n, rows - r, to, out_stride, 1); \
                else if (step == 2) \
                    bitnet__tile_i2s_##isa(row, col, sums + c, n, rows - r, to, out_stride, 2); \
                else if (step == 3) \
                    bitnet__tile_i2s_##isa(row, col, sums + c, n, rows - r, to, out_stride, 3); \
                else if ((most) > 3 && step == 4) \
                    bitnet__tile_i2s_##isa(row, col, sums + c, n, rows - r, to, out_stride, 4); \
                else if ((most) > 4) \
                    bitnet__tile_i2s_##isa(row, col, sums + c, n, rows - r, to, out_stride, 5); \
            } \
        } \
    }

/* A block's 32 bytes are two pieces of 4 words. A vector takes the piece of every 4th row: i,
   i + 4 and so on; four vectors have all rows of the half. Transposing 4 x 4 words in each 16
   bytes leaves word d of all rows in one vector, in order. Its bits 7-6 belong to step
   4 * piece + d of the block, bits 5-4 to the step 8 further on, then 16, then 24. */
#define BITNET__DEFINE_UNPACK(isa, lanes) \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__unpack_##isa( \
        const uint8_t *w, size_t row_bytes, int rows, int blocks, \
        bitnet__i32_##isa (*panel)[2]) { \
        const uint8_t *row[2 * (lanes)]; \
        bitnet__i32_##isa v[4], t[4]; \
        int r, half, piece, d; \
        for (r = 0; r < 2 * (lanes); r++) { \
            row[r] = w + BITNET__CLAMP(r, rows) * row_bytes; \
            for (d = 0; d < 32 * blocks; d += 64)          /* the next panel's */ \
                _mm_prefetch((const char *)((uintptr_t)row[r] + 2 * (lanes) * row_bytes + \
                                            (uintptr_t)d), _MM_HINT_T1); \
        } \
        for (half = 0; half < 2; half++) { \
            for (piece = 0; piece < 2 * blocks; piece++) { \
                bitnet__i32_##isa (*to)[2] = panel + piece / 2 * 32 + piece % 2 * 4; \
                BITNET__UNROLL for (r = 0; r < 4; r++) \
                    v[r] = bitnet__every4_##isa(row + half * (lanes) + r, (size_t)piece * 16); \
                t[0] = bitnet__unpacklo_epi32_##isa(v[0], v[1]); \
                t[1] = bitnet__unpackhi_epi32_##isa(v[0], v[1]); \
                t[2] = bitnet__unpacklo_epi32_##isa(v[2], v[3]); \
                t[3] = bitnet__unpackhi_epi32_##isa(v[2], v[3]); \
                v[0] = bitnet__unpacklo_epi64_##isa(t[0], t[2]); \
                v[1] = bitnet__unpackhi_epi64_##isa(t[0], t[2]); \
                v[2] = bitnet__unpacklo_epi64_##isa(t[1], t[3]); \
                v[3] = bitnet__unpackhi_epi64_##isa(t[1], t[3]); \
                BITNET__UNROLL for (d = 0; d < 4; d++) { \
                    to[d][half] = bitnet__codes_##isa(v[d], 6); \
                    to[d + 8][half] = bitnet__codes_##isa(v[d], 4); \
                    to[d + 16][half] = bitnet__codes_##isa(v[d], 2); \
                    to[d + 24][half] = bitnet__codes_##isa(v[d], 0); \
                } \
            } \
        } \
    }

#define BITNET__DEFINE_DOTROWS_I2S(isa, base, lanes, wide, from) \
    BITNET__APART BITNET__TARGET_##isa void bitnet__panels_i2s_##isa( \
        const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows, int cols, \
        int32_t *out, size_t out_stride) { \
        const size_t row_bytes = (size_t)(n / 4); \
        bitnet__i32_##base panel[BITNET__PANEL][2]; \
        int r, k, c, steps; \
        for (k = 0; k < n / 4; k += steps) { \
            steps = n / 4 - k < BITNET__PANEL ? n / 4 - k : BITNET__PANEL; \
            for (r = 0; r < rows; r += 2 * (lanes)) { \
                bitnet__unpack_##base(w + (size_t)r * row_bytes + (size_t)k, row_bytes, rows - r, \
                                      steps / 32, panel); \
                for (c = 0; c < cols; c += (wide)) { \
                    const int8_t *col = q + (size_t)c * (size_t)n + (size_t)k * 4; \
                    int32_t *to = out + (size_t)c * out_stride + (size_t)r; \
                    bitnet__multiply_##isa(panel, steps, col, n, k ? 0 : sums + c, rows - r, \
                                           cols - c, to, out_stride); \
                } \
            } \
        } \
    } \
    static BITNET__TARGET_##isa void bitnet__dotrows_i2s_##isa( \
        const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows, int cols, \
        int32_t *out, size_t out_stride) { \
        const int rest = cols % (wide) > (wide) / 2 ? 0 : cols % (wide); \
        const int some = cols < (from) ? 0 : cols - rest; \
        int count; \
        for (; rows > 0; rows -= count) { \
            count = rows < 256 ? rows : 256; \
            if (some) bitnet__panels_i2s_##isa(w, q, sums, n, count, some, out, out_stride); \
            if (some < cols) \
                bitnet__tiles_i2s_##isa(w, q + (size_t)some * (size_t)n, sums + some, n, count, \
                                        cols - some, out + (size_t)some * out_stride, \
                                        out_stride); \
            w += (size_t)count * (size_t)(n / 4); \
            out += count; \
        } \
    }

/* ---- TL2 ----
   The layout is drawn in bitnet.h. 4 bytes of a vector belong to one row: a lane of int32, so no
   sum goes across lanes, and 12 weights of each of its rows are three vpdpbusd (or vpmaddubsw)
   with 4 activations in all lanes. What differs between the instruction sets is how three codes
   come out of a nibble and a fifth: bitnet__triples_tl2 does it for 24 weights, from byte vectors
   of fifths and of nibbles number i.

   Few columns: a group (some 9 to 23 KB) at a time for all columns, up to 8 in one pass. From 16
   columns on: unpacked into the panels of I2_S, which have the same lanes. 192 steps are whole
   blocks of TL2 (24) and of I2_S (32). */
#define BITNET__PANEL_TL2 192

/* As many columns as there are: with a tile of 8 for 5, three eighths of the work would be lost. */
#define BITNET__TILE_CASE(isa, cols) \
    bitnet__tile_tl2_##isa(w, col, sums + c, n, rows - r, to, out_stride, cols); \
    break;
#define BITNET__CASES_TO_3(isa) \
    case 1: BITNET__TILE_CASE(isa, 1) \
    case 2: BITNET__TILE_CASE(isa, 2) \
    case 3: BITNET__TILE_CASE(isa, 3)
#define BITNET__CASES_TO_7(isa) \
    BITNET__CASES_TO_3(isa) \
    case 4: BITNET__TILE_CASE(isa, 4) \
    case 5: BITNET__TILE_CASE(isa, 5) \
    case 6: BITNET__TILE_CASE(isa, 6) \
    case 7: BITNET__TILE_CASE(isa, 7)

/* most: the columns of a tile's pass, and of multiply's. Unpacks up to count times 24 weights to 6
   steps each. */
#define BITNET__DEFINE_DOTROWS_TL2(isa, base, lanes, most, cases) \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__unpack_tl2_##isa( \
        const uint8_t *w, size_t group_bytes, int rows, int count, \
        bitnet__i32_##base (*panel)[2]) { \
        const bitnet__tl2_##isa t = bitnet__start_tl2_##isa(); \
        bitnet__i32_##base codes[2][3]; \
        int half, i, j, k; \
        for (half = 0; half < 2; half++) { \
            const int row = half * (lanes) < rows ? half * (lanes) : 0; \
            const uint8_t *p = w + (size_t)(row / 16) * group_bytes + row % 16 * 4; \
            for (i = 0; i < count; i += 4, p += BITNET__TL2_BLOCK) { \
                BITNET__UNROLL for (j = 0; j < 4; j++) { \
                    bitnet__i32_##base (*to)[2] = panel + 6 * (i + j); \
                    if (i + j >= count) continue; \
                    bitnet__triples_tl2_##isa(&t, p, p + 64 + j * 64, j, codes); \
                    BITNET__UNROLL for (k = 0; k < 3; k++) { \
                        to[k][half] = codes[0][k]; \
                        to[k + 3][half] = codes[1][k]; \
                    } \
                } \
            } \
        } \
    } \
    BITNET__APART BITNET__TARGET_##isa void bitnet__panels_tl2_##isa( \
        const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows, int cols, \
        int32_t *out, size_t out_stride) { \
        const size_t group_bytes = bitnet__tl2_bytes((n + 23) / 24); \
        bitnet__i32_##base panel[BITNET__PANEL_TL2][2]; \
        int r, k, c, steps; \
        for (k = 0; k < n / 4; k += steps) { \
            steps = n / 4 - k < BITNET__PANEL_TL2 ? n / 4 - k : BITNET__PANEL_TL2; \
            for (r = 0; r < rows; r += 2 * (lanes)) { \
                bitnet__unpack_tl2_##isa(w + (size_t)(r / 16) * group_bytes + \
                                             (size_t)(k / 24) * BITNET__TL2_BLOCK, \
                                         group_bytes, rows - r, (steps + 5) / 6, panel); \
                for (c = 0; c < cols; c += (most)) { \
                    const int8_t *col = q + (size_t)c * (size_t)n + (size_t)k * 4; \
                    int32_t *to = out + (size_t)c * out_stride + (size_t)r; \
                    bitnet__multiply_##base(panel, steps, col, n, k ? 0 : sums + c, rows - r, \
                                            cols - c, to, out_stride); \
                } \
            } \
        } \
    } \
    BITNET__APART BITNET__TARGET_##isa void bitnet__tiles_tl2_##isa( \
        const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows, int cols, \
        int32_t *out, size_t out_stride) { \
        int r, c, step; \
        for (r = 0; r < rows; r += 16, w += bitnet__tl2_bytes((n + 23) / 24)) { \
            for (c = 0; c < cols; c += step) { \
                const int8_t *col = q + (size_t)c * (size_t)n; \
                int32_t *to = out + (size_t)c * out_stride + (size_t)r; \
                step = cols - c < (most) ? cols - c : (most); \
                switch (step) { \
                    cases(isa) \
                    default: BITNET__TILE_CASE(isa, most) \
                } \
            } \
        } \
    } \
    static BITNET__TARGET_##isa void bitnet__dotrows_tl2_##isa( \
        const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows, int cols, \
        int32_t *out, size_t out_stride) { \
        const int rest = cols % (most) > (most) / 2 ? 0 : cols % (most); \
        const int some = cols < 16 ? 0 : cols - rest; \
        int count; \
        for (; rows > 0; rows -= count) { \
            count = rows < 256 ? rows : 256; \
            if (some) bitnet__panels_tl2_##isa(w, q, sums, n, count, some, out, out_stride); \
            if (some < cols) \
                bitnet__tiles_tl2_##isa(w, q + (size_t)some * (size_t)n, sums + some, n, count, \
                                        cols - some, out + (size_t)some * out_stride, \
                                        out_stride); \
            w += bitnet__packed_bytes_tl2(n, count); \
            out += count; \
        } \
    }

/* From I2_S by way of its panels: steps 3 j, 3 j + 1 and 3 j + 2 hold the codes a, b and c of 4
   triples of each row. The panel goes on with zeros where the row ends within 24 weights. */
#define BITNET__DEFINE_PACK_TL2(isa, lanes, mm, si) \
    static BITNET__TARGET_##isa int bitnet__pack_tl2_##isa(const uint8_t *i2s, int n, int rows, \
                                                           uint8_t *out) { \
        const size_t row_bytes = (size_t)(n / 4), group_bytes = bitnet__tl2_bytes((n + 23) / 24); \
        const bitnet__i32_##isa ms = bitnet__repeat16_##isa(bitnet__tl2_pack[0]); \
        const bitnet__i32_##isa ss = bitnet__repeat16_##isa(bitnet__tl2_pack[1]); \
        const bitnet__i32_##isa zero = mm##_setzero_##si(); \
        bitnet__i32_##isa panel[BITNET__PANEL_TL2][2], bad = zero; \
        uint8_t bytes[64] = {0}; \
        int r, k, steps, half, i, h; \
        for (r = 0; r < rows; r += 2 * (lanes)) { \
            for (k = 0; k < n / 4; k += steps) { \
                steps = n / 4 - k < BITNET__PANEL_TL2 ? n / 4 - k : BITNET__PANEL_TL2; \
                bitnet__unpack_##isa(i2s + (size_t)r * row_bytes + (size_t)k, row_bytes, rows - r, \
                                     steps / 32, panel); \
                for (i = steps; i % 6; i++) panel[i][0] = panel[i][1] = zero; \
                for (half = 0; half < 2; half++) { \
                    const int row = r + half * (lanes); \
                    uint8_t *block = out + (size_t)(row / 16) * group_bytes + row % 16 * 4 + \
                                     (size_t)(k / 24) * BITNET__TL2_BLOCK; \
                    bitnet__i32_##isa fifths = zero, bit = zero; \
                    if (row / 16 > (rows - 1) / 16) break; \
                    for (i = 0; i * 6 < steps; i++) { \
                        bitnet__i32_##isa nibbles[2]; \
                        if (i % 4 == 0) { \
                            fifths = zero; \
                            bit = mm##_set1_epi8(1); \
                        } \
                        BITNET__UNROLL for (h = 0; h < 2; h++) { \
                            const bitnet__i32_##isa a = panel[6 * i + 3 * h][half]; \
                            const bitnet__i32_##isa b = panel[6 * i + 3 * h + 1][half]; \
                            const bitnet__i32_##isa c = panel[6 * i + 3 * h + 2][half]; \
                            const bitnet__i32_##isa ac = mm##_or_##si(a, mm##_slli_epi32(c, 2)); \
                            const bitnet__i32_##isa s = mm##_shuffle_epi8(ss, ac); \
                            bad = mm##_or_##si(bad, mm##_and_##si(a, mm##_srli_epi32(a, 1))); \
                            bad = mm##_or_##si(bad, mm##_and_##si(b, mm##_srli_epi32(b, 1))); \
                            bad = mm##_or_##si(bad, mm##_and_##si(c, mm##_srli_epi32(c, 1))); \
                            nibbles[h] = mm##_add_epi8(b, mm##_slli_epi32(b, 2)); \
                            nibbles[h] = mm##_add_epi8(nibbles[h], mm##_shuffle_epi8(ms, ac)); \
                            fifths = mm##_or_##si( \
                                fifths, mm##_and_##si(bit, mm##_sub_epi8(zero, s))); \
                            bit = mm##_add_epi8(bit, bit); \
                        } \
                        nibbles[1] = mm##_slli_epi32(nibbles[1], 4); \
                        bitnet__store_i32_##isa(block + 64 + i % 4 * 64, \
                                                mm##_or_##si(nibbles[0], nibbles[1])); \
                        if (i % 4 == 3 || i * 6 + 6 >= steps) { \
                            bitnet__store_i32_##isa(block, fifths); \
                            block += BITNET__TL2_BLOCK; \
                        } \
                    } \
                } \
            } \
        } \
        bitnet__store_i32_##isa(bytes, bad); \
        for (i = 1; i < 64; i++) bytes[0] |= bytes[i]; \
        return bytes[0] != 0; \
    }

/* Bytes less 128. Columns come in pairs, the two halves of a hidden state; a tile has 4 rows, as
   above, and up to most columns, so that a weight is loaded once for several pairs. 4 rows stay in
   the L1 cache for the tiles after the first. The end of a row that is no multiple of 64 goes to
   the scalar twin with all of it. */
#define BITNET__DEFINE_DOTROWS_U8(isa, most) \
    static BITNET__TARGET_##isa void bitnet__dotrows_u8_##isa( \
        const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows, int cols, \
        int32_t *out, size_t out_stride) { \
        int r, c, step; \
        if (n % 64) { \
            bitnet__dotrows_u8_scalar(w, q, sums, n, rows, cols, out, out_stride); \
            return; \
        } \
        for (r = 0; r < rows; r += BITNET__TILE) { \
            for (c = 0; c < cols; c += step) { \
                const uint8_t *row = w + (size_t)r * (size_t)n; \
                const int8_t *col = q + (size_t)c * (size_t)n; \
                int32_t *to = out + (size_t)c * out_stride + (size_t)r; \
                step = (most) == 2 || cols - c <= 2 ? 2 : cols - c <= 4 ? 4 : 6; \
                if (step == 2) \
                    bitnet__tile_u8_##isa(row, col, sums + c, n, rows - r, cols - c, to, \
                                          out_stride, 2); \
                else if (step == 4) \
                    bitnet__tile_u8_##isa(row, col, sums + c, n, rows - r, cols - c, to, \
                                          out_stride, (most) == 2 ? 2 : 4); \
                else \
                    bitnet__tile_u8_##isa(row, col, sums + c, n, rows - r, cols - c, to, \
                                          out_stride, most); \
            } \
        } \
    }

/* ---- floats ----
   Written once for both instruction sets, in terms of v16, a vector of 16 floats, which keeps
   element i of a sum in lane i % 16 by itself. Lengths that are no multiple of 16 (models avoid
   them) go to the scalar twin, so no load ever passes the end of an array. */

/* The end of a tile: the trees of 4 rows end together. Lanes 8 and 4 apart are added in each row,
   then a transposition puts lane j of row r into lane r of register j. */
#define BITNET__DEFINE_END_COLUMN(isa) \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__end_column_##isa( \
        const bitnet__v16_##isa *sum, int rows, float *out) { \
        __m128 s0 = bitnet__fold_##isa(sum[0]), s1 = bitnet__fold_##isa(sum[1]); \
        __m128 s2 = bitnet__fold_##isa(sum[2]), s3 = bitnet__fold_##isa(sum[3]); \
        float dots[4]; \
        _MM_TRANSPOSE4_PS(s0, s1, s2, s3); \
        _mm_storeu_ps(dots, _mm_add_ps(_mm_add_ps(s0, s2), _mm_add_ps(s1, s3))); \
        bitnet__put(out, dots, rows); \
    }

/* Rows are in the outer loop, for they are the longer array. */
#define BITNET__DEFINE_DOTROWS_V16(isa, type, bytes) \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__tile_##type##_##isa( \
        const uint8_t *w, const float *x, int n, int rows, int cols, float *out, \
        size_t out_stride, const int tile_cols) { \
        bitnet__v16_##isa sum[BITNET__TILE][4], v[4], a; \
        const uint8_t *row[4]; \
        const float *col[BITNET__TILE]; \
        int r, c, i; \
        BITNET__UNROLL for (r = 0; r < 4; r++) \
            row[r] = w + BITNET__CLAMP(r, rows) * (size_t)n * (bytes); \
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
            col[c] = x + BITNET__CLAMP(c, cols) * (size_t)n; \
            BITNET__UNROLL for (r = 0; r < 4; r++) sum[c][r] = bitnet__splat_##isa(0.0f); \
        } \
        for (i = 0; i < n; i += BITNET__LANES) { \
            BITNET__UNROLL for (r = 0; r < 4; r++) { \
                const uint8_t *p = row[r] + (size_t)i * (bytes); \
                if (i * (bytes) % 64 == 0) BITNET__STREAM(p); \
                v[r] = bitnet__load_##type##_##isa(p); \
            } \
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
                a = bitnet__load_f32_##isa(col[c] + i); \
                BITNET__UNROLL for (r = 0; r < 4; r++) \
                    sum[c][r] = bitnet__add_##isa(sum[c][r], bitnet__mul_##isa(v[r], a)); \
            } \
        } \
        bitnet__end_tile_##isa(sum, rows, cols, out, out_stride, tile_cols); \
    } \
    static BITNET__TARGET_##isa void bitnet__dotrows_##type##_##isa( \
        const uint8_t *w, const float *x, int n, int rows, int cols, float *out, \
        size_t out_stride) { \
        int r, c, step; \
        if (n % BITNET__LANES) { \
            bitnet__dotrows_##type##_scalar(w, x, n, rows, cols, out, out_stride); \
            return; \
        } \
        for (r = 0; r < rows; r += BITNET__TILE) { \
            const uint8_t *row = w + (size_t)r * (size_t)n * (bytes); \
            for (c = 0; c < cols; c += step) { \
                const float *col = x + (size_t)c * (size_t)n; \
                float *to = out + (size_t)c * out_stride + (size_t)r; \
                step = BITNET__TILE_COLS(cols - c); \
                if (step == 1) \
                    bitnet__tile_##type##_##isa(row, col, n, rows - r, 1, to, out_stride, 1); \
                else \
                    bitnet__tile_##type##_##isa(row, col, n, rows - r, cols - c, to, out_stride, \
                                                BITNET__TILE); \
            } \
        } \
    }

/* Attention takes the F16 rows of the cache in blocks of up to 16 KB, as floats, which then serve
   all columns from the L1 cache. For the columns of one tile that does not pay, and memory would
   idle meanwhile: those take the rows as they are. Their products with shortened floats are exact,
   so FMA. */
#define BITNET__WIDE 4096

#define BITNET__DEFINE_KEYS(isa, whole_cols) \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__widen_##isa( \
        const uint8_t *w, size_t w_stride, int n, int rows, float *wide) { \
        int r, i; \
        for (r = 0; r < rows; r++, w += w_stride * 2, wide += n) \
            for (i = 0; i < n; i += BITNET__LANES) \
                bitnet__store_##isa(wide + i, bitnet__load_f16_##isa(w + 2 * (size_t)i)); \
    } \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__tile_keys_##isa( \
        const uint8_t *w, const float *x, int n, int rows, int cols, float *out, \
        size_t out_stride, const int tile_cols, const size_t bytes) { \
        bitnet__v16_##isa sum[BITNET__TILE][4], v[4], a; \
        const uint8_t *row[4]; \
        const float *col[BITNET__TILE]; \
        int r, c, i; \
        BITNET__UNROLL for (r = 0; r < 4; r++) \
            row[r] = w + BITNET__CLAMP(r, rows) * (size_t)n * bytes; \
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
            col[c] = x + BITNET__CLAMP(c, cols) * (size_t)n; \
            BITNET__UNROLL for (r = 0; r < 4; r++) sum[c][r] = bitnet__splat_##isa(0.0f); \
        } \
        for (i = 0; i < n; i += BITNET__LANES) { \
            BITNET__UNROLL for (r = 0; r < 4; r++) { \
                const uint8_t *p = row[r] + (size_t)i * bytes; \
                if (bytes == 2 && i % 32 == 0) BITNET__STREAM(p); \
                v[r] = bytes == 2 ? bitnet__load_f16_##isa(p) : bitnet__load_f32_##isa(p); \
            } \
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
                a = bitnet__load_f32_##isa(col[c] + i); \
                BITNET__UNROLL for (r = 0; r < 4; r++) \
                    sum[c][r] = bitnet__fma_##isa(v[r], a, sum[c][r]); \
            } \
        } \
        bitnet__end_tile_##isa(sum, rows, cols, out, out_stride, tile_cols); \
    } \
    static BITNET__TARGET_##isa void bitnet__keys_f16_##isa( \
        const uint8_t *w, const float *x, int n, int rows, int cols, float *out, \
        size_t out_stride) { \
        float wide[BITNET__WIDE]; \
        const int most = n > 0 ? BITNET__WIDE / n / 4 * 4 : 0; \
        int r, c, k, count, step; \
        if (n % BITNET__LANES || most == 0) { \
            bitnet__dotrows_f16_##isa(w, x, n, rows, cols, out, out_stride); \
            return; \
        } \
        if (cols <= (whole_cols)) { \
            for (r = 0; r < rows; r += 4, w += 4 * (size_t)n * 2) { \
                if (cols == 1) \
                    bitnet__tile_keys_##isa(w, x, n, rows - r, 1, out + r, out_stride, 1, 2); \
                else \
                    bitnet__tile_keys_##isa(w, x, n, rows - r, cols, out + r, out_stride, \
                                            whole_cols, 2); \
            } \
            return; \
        } \
        for (r = 0; r < rows; r += count) { \
            count = rows - r < most ? rows - r : most; \
            bitnet__widen_##isa(w + (size_t)r * (size_t)n * 2, (size_t)n, n, count, wide); \
            for (c = 0; c < cols; c += step) { \
                step = (whole_cols) == 1 ? 1 : BITNET__TILE_COLS(cols - c); \
                for (k = 0; k < count; k += 4) { \
                    const uint8_t *row = (const uint8_t *)(wide + (size_t)k * (size_t)n); \
                    const float *col = x + (size_t)c * (size_t)n; \
                    float *to = out + (size_t)c * out_stride + (size_t)(r + k); \
                    if (step == 1) \
                        bitnet__tile_keys_##isa(row, col, n, count - k, 1, to, out_stride, 1, 4); \
                    else \
                        bitnet__tile_keys_##isa(row, col, n, count - k, cols - c, to, out_stride, \
                                                whole_cols, 4); \
                } \
            } \
        } \
    }

/* A tile of the weighted sums: 4 columns, or 1, of some vectors across all rows of a block. out
   carries the sums from one block to the next, so each element's sum keeps its order. */
#define BITNET__DEFINE_MIX(isa, most_vectors) \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__tile_mix_##isa( \
        const uint8_t *w, size_t row_bytes, const float *p, size_t p_stride, int n, int rows, \
        int cols, float *out, const int vectors, const int tile_cols, const size_t bytes, \
        const int exact) { \
        bitnet__v16_##isa sum[BITNET__TILE][4], v[4], a; \
        int r, c, k; \
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
            BITNET__UNROLL for (k = 0; k < vectors; k++) \
                sum[c][k] = bitnet__load_f32_##isa(out + BITNET__CLAMP(c, cols) * (size_t)n + \
                                                   k * BITNET__LANES); \
        } \
        for (r = 0; r < rows; r++, w += row_bytes) { \
            if (bytes == 2) BITNET__STREAM(w); \
            if (bytes == 2 && vectors > 2) BITNET__STREAM(w + 64); \
            BITNET__UNROLL for (k = 0; k < vectors; k++) { \
                const uint8_t *from = w + (size_t)k * BITNET__LANES * bytes; \
                v[k] = bytes == 2 ? bitnet__load_f16_##isa(from) : bitnet__load_f32_##isa(from); \
            } \
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
                a = bitnet__splat_##isa(p[BITNET__CLAMP(c, cols) * p_stride + (size_t)r]); \
                BITNET__UNROLL for (k = 0; k < vectors; k++) \
                    sum[c][k] = exact ? bitnet__fma_##isa(a, v[k], sum[c][k]) \
                                      : bitnet__add_##isa(sum[c][k], bitnet__mul_##isa(a, v[k])); \
            } \
        } \
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
            BITNET__UNROLL for (k = 0; k < vectors; k++) \
                bitnet__store_##isa(out + BITNET__CLAMP(c, cols) * (size_t)n + k * BITNET__LANES, \
                                    sum[c][k]); \
        } \
    } \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__mix_##isa( \
        const uint8_t *w, size_t row_bytes, const float *p, size_t p_stride, int n, int rows, \
        int cols, float *out, const size_t bytes, const int exact) { \
        const int wide = (most_vectors) * BITNET__LANES; \
        int c, i, step; \
        for (c = 0; c < cols; c += step, p += (size_t)step * p_stride) { \
            float *to = out + (size_t)c * (size_t)n; \
            step = BITNET__TILE_COLS(cols - c); \
            for (i = 0; i < n;) { \
                const uint8_t *from = w + (size_t)i * bytes; \
                if (step == 1 && i + wide <= n) \
                    bitnet__tile_mix_##isa(from, row_bytes, p, p_stride, n, rows, 1, to + i, \
                                           most_vectors, 1, bytes, exact); \
                else if (step == 1) \
                    bitnet__tile_mix_##isa(from, row_bytes, p, p_stride, n, rows, 1, to + i, \
                                           1, 1, bytes, exact); \
                else if (i + wide <= n) \
                    bitnet__tile_mix_##isa(from, row_bytes, p, p_stride, n, rows, cols - c, \
                                           to + i, most_vectors, BITNET__TILE, bytes, exact); \
                else \
                    bitnet__tile_mix_##isa(from, row_bytes, p, p_stride, n, rows, cols - c, \
                                           to + i, 1, BITNET__TILE, bytes, exact); \
                i += i + wide <= n ? wide : BITNET__LANES; \
            } \
        } \
    } \
    static BITNET__TARGET_##isa void bitnet__mixrows_f16_##isa( \
        const uint8_t *w, size_t w_stride, const float *p, size_t p_stride, int n, int rows, \
        int cols, float *out) { \
        float wide[BITNET__WIDE]; \
        const int most = n > 0 ? BITNET__WIDE / n : 0; \
        int r, count; \
        if (n % BITNET__LANES || most == 0) { \
            bitnet__mixrows_f16_scalar(w, w_stride, p, p_stride, n, rows, cols, out); \
            return; \
        } \
        if (cols <= BITNET__TILE) { \
            bitnet__mix_##isa(w, w_stride * 2, p, p_stride, n, rows, cols, out, 2, 1); \
            return; \
        } \
        for (r = 0; r < rows; r += count) { \
            count = rows - r < most ? rows - r : most; \
            bitnet__widen_##isa(w + (size_t)r * w_stride * 2, w_stride, n, count, wide); \
            bitnet__mix_##isa((const uint8_t *)wide, (size_t)n * 4, p + r, p_stride, n, count, \
                              cols, out, 4, 1); \
        } \
    } \
    static BITNET__TARGET_##isa void bitnet__mixrows_f32_##isa( \
        const uint8_t *w, size_t w_stride, const float *p, size_t p_stride, int n, int rows, \
        int cols, float *out) { \
        int r, count; \
        if (n % BITNET__LANES) { \
            bitnet__mixrows_f32_scalar(w, w_stride, p, p_stride, n, rows, cols, out); \
            return; \
        } \
        for (r = 0; r < rows; r += count) { \
            count = rows - r < 32 ? rows - r : 32; \
            bitnet__mix_##isa(w + (size_t)r * w_stride * 4, w_stride * 4, p + r, p_stride, n, \
                              count, cols, out, 4, 0); \
        } \
    }

/* All float kernels. min and max give their second operand if one is a NaN, as the comparisons in
   the scalar code do. */
#define BITNET__DEFINE_FLOATS(isa, tile_cols, vectors) \
    BITNET__DEFINE_DOTROWS_V16(isa, f32, 4) \
    BITNET__DEFINE_DOTROWS_V16(isa, f16, 2) \
    BITNET__DEFINE_DOTROWS_V16(isa, bf16, 2) \
    BITNET__DEFINE_KEYS(isa, tile_cols) \
    BITNET__DEFINE_MIX(isa, vectors) \
    \
    static BITNET__TARGET_##isa float bitnet__quantize_##isa(const float *x, int n, int8_t *q, \
                                                             int32_t *sum) { \
        bitnet__v16_##isa v, tops = bitnet__splat_##isa(0.0f); \
        __m128i bytes, total = _mm_setzero_si128(); \
        float lanes[BITNET__LANES], a, s; \
        uint32_t top = 0, bits; \
        int i; \
        if (n % BITNET__LANES) return bitnet__quantize_scalar(x, n, q, sum); \
        for (i = 0; i < n; i += BITNET__LANES) \
            tops = bitnet__top_##isa(tops, bitnet__load_f32_##isa(x + i)); \
        bitnet__store_##isa(lanes, tops); \
        for (i = 0; i < BITNET__LANES; i++) { \
            bits = bitnet__float_bits(lanes[i]); \
            top = bits > top ? bits : top; \
        } \
        a = bitnet__float_from_bits(top); \
        a = a > 1e-5f ? a : 1e-5f; \
        s = 127.0f / a; \
        for (i = 0; i < n; i += BITNET__LANES) { \
            v = bitnet__mul_##isa(bitnet__load_f32_##isa(x + i), bitnet__splat_##isa(s)); \
            v = bitnet__max_##isa(v, bitnet__splat_##isa(-128.0f)); \
            v = bitnet__min_##isa(v, bitnet__splat_##isa(127.0f)); \
            bytes = bitnet__to_int8_##isa(v); \
            _mm_storeu_si128((__m128i *)(void *)(q + i), bytes); \
            /* With its sign bit turned, q is q + 128, unsigned; vpsadbw adds eights of those. */ \
            bytes = _mm_xor_si128(bytes, _mm_set1_epi8((char)-128)); \
            total = _mm_add_epi64(total, _mm_sad_epu8(bytes, _mm_setzero_si128())); \
        } \
        total = _mm_add_epi64(total, _mm_unpackhi_epi64(total, total)); \
        *sum = _mm_cvtsi128_si32(total) - 128 * n; \
        return s; \
    } \
    \
    BITNET__INLINE BITNET__TARGET_##isa bitnet__v16_##isa bitnet__horner_##isa( \
        bitnet__v16_##isa p, bitnet__v16_##isa x, float next) { \
        return bitnet__add_##isa(bitnet__mul_##isa(p, x), bitnet__splat_##isa(next)); \
    } \
    BITNET__INLINE BITNET__TARGET_##isa bitnet__v16_##isa bitnet__expf_##isa( \
        bitnet__v16_##isa x) { \
        bitnet__v16_##isa t, n, r, p; \
        x = bitnet__max_##isa(x, bitnet__splat_##isa(-64.0f)); \
        x = bitnet__min_##isa(x, bitnet__splat_##isa(88.0f)); \
        t = bitnet__horner_##isa(x, bitnet__splat_##isa(1.44269504f), 12582912.0f); \
        n = bitnet__sub_##isa(t, bitnet__splat_##isa(12582912.0f)); \
        r = bitnet__sub_##isa(x, bitnet__mul_##isa(n, bitnet__splat_##isa(0.693359375f))); \
        r = bitnet__sub_##isa(r, bitnet__mul_##isa(n, bitnet__splat_##isa(-2.12194440e-4f))); \
        p = bitnet__horner_##isa(r, bitnet__splat_##isa(1.0f / 720.0f), 1.0f / 120.0f); \
        p = bitnet__horner_##isa(p, r, 1.0f / 24.0f); \
        p = bitnet__horner_##isa(p, r, 1.0f / 6.0f); \
        p = bitnet__horner_##isa(p, r, 0.5f); \
        p = bitnet__horner_##isa(p, r, 1.0f); \
        p = bitnet__horner_##isa(p, r, 1.0f); \
        return bitnet__add_shifted_##isa(p, t); \
    } \
    BITNET__INLINE BITNET__TARGET_##isa bitnet__v16_##isa bitnet__round13_##isa( \
        bitnet__v16_##isa x) { \
        bitnet__v16_##isa t = bitnet__mul_##isa(x, bitnet__splat_##isa(2049.0f)); \
        return bitnet__sub_##isa(t, bitnet__sub_##isa(t, x)); \
    } \
    BITNET__INLINE BITNET__TARGET_##isa bitnet__v16_##isa bitnet__shorten_##isa( \
        bitnet__v16_##isa x) { \
        bitnet__v16_##isa v = bitnet__max_##isa(bitnet__splat_##isa(-1.2676506e30f), x); \
        v = bitnet__min_##isa(bitnet__splat_##isa(1.2676506e30f), v); \
        return bitnet__zero_tiny_##isa(x, bitnet__round13_##isa(v)); \
    } \
    /* n is the context's length: the elements after the last 16 go through a vector too, filled \
       up with the largest, which are left out of the sum. */ \
    static BITNET__TARGET_##isa void bitnet__softmax_##isa(float *x, int n, float scale, \
                                                           int shorten) { \
        bitnet__v16_##isa v, tops = bitnet__splat_##isa(-3.4e38f); \
        bitnet__v16_##isa sum = bitnet__splat_##isa(0.0f), inv; \
        float lanes[BITNET__LANES], rest[BITNET__LANES], top = -3.4e38f; \
        int i, whole = n - n % BITNET__LANES; \
        for (i = 0; i < whole; i += BITNET__LANES) { \
            v = bitnet__mul_##isa(bitnet__load_f32_##isa(x + i), bitnet__splat_##isa(scale)); \
            tops = bitnet__max_##isa(v, tops); \
            bitnet__store_##isa(x + i, v); \
        } \
        bitnet__store_##isa(lanes, tops); \
        for (i = 0; i < BITNET__LANES; i++) top = lanes[i] > top ? lanes[i] : top; \
        for (i = whole; i < n; i++) { \
            x[i] *= scale; \
            top = x[i] > top ? x[i] : top; \
        } \
        for (i = 0; i < whole; i += BITNET__LANES) { \
            v = bitnet__sub_##isa(bitnet__load_f32_##isa(x + i), bitnet__splat_##isa(top)); \
            v = bitnet__expf_##isa(v); \
            sum = bitnet__add_##isa(sum, v); \
            bitnet__store_##isa(x + i, v); \
        } \
        bitnet__store_##isa(lanes, sum); \
        for (i = 0; i < BITNET__LANES; i++) rest[i] = whole + i < n ? x[whole + i] : top; \
        v = bitnet__sub_##isa(bitnet__load_f32_##isa(rest), bitnet__splat_##isa(top)); \
        bitnet__store_##isa(rest, bitnet__expf_##isa(v)); \
        for (i = 0; i < n - whole; i++) lanes[i] += rest[i]; \
        inv = bitnet__splat_##isa(1.0f / bitnet__sum_lanes(lanes)); \
        for (i = 0; i < whole; i += BITNET__LANES) { \
            v = bitnet__mul_##isa(bitnet__load_f32_##isa(x + i), inv); \
            bitnet__store_##isa(x + i, shorten ? bitnet__round13_##isa(v) : v); \
        } \
        v = bitnet__mul_##isa(bitnet__load_f32_##isa(rest), inv); \
        bitnet__store_##isa(rest, shorten ? bitnet__round13_##isa(v) : v); \
        memcpy(x + whole, rest, (size_t)(n - whole) * sizeof *x); \
    } \
    \
    static BITNET__TARGET_##isa void bitnet__rope_##isa(const float *x, const float *cos_sin, \
                                                        int n_rot, int n, int shorten, float *y) { \
        const int half = n_rot / 2; \
        bitnet__v16_##isa a, b, cs, sn; \
        int i; \
        if (half % BITNET__LANES || n % BITNET__LANES) { \
            bitnet__rope_scalar(x, cos_sin, n_rot, n, shorten, y); \
            return; \
        } \
        for (i = 0; i < half; i += BITNET__LANES) { \
            a = bitnet__load_f32_##isa(x + i); \
            b = bitnet__load_f32_##isa(x + half + i); \
            cs = bitnet__load_f32_##isa(cos_sin + i); \
            sn = bitnet__load_f32_##isa(cos_sin + half + i); \
            bitnet__store_##isa(y + i, bitnet__sub_##isa(bitnet__mul_##isa(a, cs), \
                                                         bitnet__mul_##isa(b, sn))); \
            bitnet__store_##isa(y + half + i, bitnet__add_##isa(bitnet__mul_##isa(b, cs), \
                                                                bitnet__mul_##isa(a, sn))); \
        } \
        for (i = n_rot; i < n; i += BITNET__LANES) \
            bitnet__store_##isa(y + i, bitnet__load_f32_##isa(x + i)); \
        for (i = 0; i < n && shorten; i += BITNET__LANES) \
            bitnet__store_##isa(y + i, bitnet__shorten_##isa(bitnet__load_f32_##isa(y + i))); \
    } \
    \
    static BITNET__TARGET_##isa void bitnet__store_f16_##isa(const float *x, int n, \
                                                             uint8_t *out) { \
        int i, whole = n - n % BITNET__LANES; \
        for (i = 0; i < whole; i += BITNET__LANES) \
            _mm256_storeu_si256((__m256i *)(void *)(out + 2 * (size_t)i), \
                                bitnet__to_f16_##isa(bitnet__load_f32_##isa(x + i))); \
        bitnet__store_f16_scalar(x + whole, n - whole, out + 2 * (size_t)whole); \
    } \
    \
    static BITNET__TARGET_##isa void bitnet__dequantize_##isa(const int32_t *dots, float f, int n, \
                                                              int add, float *y) { \
        int i, whole = n - n % BITNET__LANES; \
        bitnet__v16_##isa v; \
        for (i = 0; i < whole; i += BITNET__LANES) { \
            v = bitnet__mul_##isa(bitnet__load_i32_##isa(dots + i), bitnet__splat_##isa(f)); \
            if (add) v = bitnet__add_##isa(bitnet__load_f32_##isa(y + i), v); \
            bitnet__store_##isa(y + i, v); \
        } \
        bitnet__dequantize_scalar(dots + whole, f, n - whole, add, y + whole); \
    } \
    \
    static BITNET__TARGET_##isa void bitnet__relu2_gate_##isa( \
        const int32_t *gate, float gate_f, const int32_t *up, float up_f, int n, float *y) { \
        int i, whole = n - n % BITNET__LANES; \
        bitnet__v16_##isa g, u; \
        for (i = 0; i < whole; i += BITNET__LANES) { \
            g = bitnet__mul_##isa(bitnet__load_i32_##isa(gate + i), bitnet__splat_##isa(gate_f)); \
            u = bitnet__mul_##isa(bitnet__load_i32_##isa(up + i), bitnet__splat_##isa(up_f)); \
            g = bitnet__max_##isa(g, bitnet__splat_##isa(0.0f)); \
            bitnet__store_##isa(y + i, bitnet__mul_##isa(bitnet__mul_##isa(g, g), u)); \
        } \
        bitnet__relu2_gate_scalar(gate + whole, gate_f, up + whole, up_f, n - whole, y + whole); \
    } \
    \
    static BITNET__TARGET_##isa void bitnet__rmsnorm_##isa(const float *x, const float *gain, \
                                                           int n, float eps, float *y) { \
        bitnet__v16_##isa v, sum = bitnet__splat_##isa(0.0f); \
        float lanes[BITNET__LANES], mean, inv; \
        int i; \
        if (n % BITNET__LANES) { \
            bitnet__rmsnorm_scalar(x, gain, n, eps, y); \
            return; \
        } \
        for (i = 0; i < n; i += BITNET__LANES) { \
            v = bitnet__load_f32_##isa(x + i); \
            sum = bitnet__add_##isa(sum, bitnet__mul_##isa(v, v)); \
        } \
        bitnet__store_##isa(lanes, sum); \
        mean = bitnet__sum_lanes(lanes) / (float)n; \
        inv = (float)(1.0 / bitnet__sqrt((double)mean + (double)eps)); \
        for (i = 0; i < n; i += BITNET__LANES) { \
            v = bitnet__mul_##isa(bitnet__load_f32_##isa(x + i), bitnet__splat_##isa(inv)); \
            v = bitnet__mul_##isa(v, bitnet__load_f32_##isa(gain + i)); \
            bitnet__store_##isa(y + i, v); \
        } \
    }

/* Float kernels of base, dotrows_u8 of isa. */
#define BITNET__KERNEL_ENTRIES(isa, base, ternary) \
    bitnet__quantize_##base, ternary, bitnet__dotrows_f32_##base, \
    bitnet__dotrows_f16_##base, bitnet__dotrows_bf16_##base, bitnet__keys_f16_##base, \
    bitnet__mixrows_f32_##base, bitnet__mixrows_f16_##base, bitnet__softmax_##base, \
    bitnet__rope_##base, bitnet__store_f16_##base, bitnet__dequantize_##base, \
    bitnet__relu2_gate_##base, bitnet__rmsnorm_##base, bitnet__dotrows_u8_##isa

#if BITNET__AVX2
/* ---- AVX2: a v16 is two ymm ---- */

typedef struct bitnet__v16_avx2 { __m256 lo, hi; } bitnet__v16_avx2;

#define BITNET__FN BITNET__INLINE BITNET__TARGET_avx2
#define BITNET__V16(op) \
    BITNET__FN bitnet__v16_avx2 bitnet__##op##_avx2(bitnet__v16_avx2 a, bitnet__v16_avx2 b) { \
        a.lo = _mm256_##op##_ps(a.lo, b.lo); \
        a.hi = _mm256_##op##_ps(a.hi, b.hi); \
        return a; \
    }
BITNET__V16(add) BITNET__V16(sub) BITNET__V16(mul) BITNET__V16(min) BITNET__V16(max)

BITNET__FN bitnet__v16_avx2 bitnet__join_avx2(__m256i lo, __m256i hi) {
    bitnet__v16_avx2 v;
    v.lo = _mm256_castsi256_ps(lo);
    v.hi = _mm256_castsi256_ps(hi);
    return v;
}

BITNET__FN bitnet__v16_avx2 bitnet__splat_avx2(float x) {
    bitnet__v16_avx2 v;
    v.lo = v.hi = _mm256_set1_ps(x);
    return v;
}

BITNET__FN __m128i bitnet__load128_avx2(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

BITNET__FN __m256i bitnet__load256_avx2(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

BITNET__FN bitnet__v16_avx2 bitnet__load_f32_avx2(const void *p) {
    return bitnet__join_avx2(bitnet__load256_avx2(p),
                             bitnet__load256_avx2((const uint8_t *)p + 32));
}

BITNET__FN bitnet__v16_avx2 bitnet__load_i32_avx2(const int32_t *p) {
    bitnet__v16_avx2 v;
    v.lo = _mm256_cvtepi32_ps(bitnet__load256_avx2(p));
    v.hi = _mm256_cvtepi32_ps(bitnet__load256_avx2(p + 8));
    return v;
}

BITNET__FN bitnet__v16_avx2 bitnet__fma_avx2(bitnet__v16_avx2 a, bitnet__v16_avx2 b,
                                             bitnet__v16_avx2 c) {
    c.lo = _mm256_fmadd_ps(a.lo, b.lo, c.lo);
    c.hi = _mm256_fmadd_ps(a.hi, b.hi, c.hi);
    return c;
}

/* y, but 0 where |x| < 2^-100. */
BITNET__FN bitnet__v16_avx2 bitnet__zero_tiny_avx2(bitnet__v16_avx2 x, bitnet__v16_avx2 y) {
    const __m256 sign = _mm256_set1_ps(-0.0f), tiny = _mm256_set1_ps(7.8886091e-31f);
    y.lo = _mm256_andnot_ps(_mm256_cmp_ps(_mm256_andnot_ps(sign, x.lo), tiny, _CMP_LT_OQ), y.lo);
    y.hi = _mm256_andnot_ps(_mm256_cmp_ps(_mm256_andnot_ps(sign, x.hi), tiny, _CMP_LT_OQ), y.hi);
    return y;
}

BITNET__FN __m256i bitnet__to_f16_avx2(bitnet__v16_avx2 v) {
    __m128i lo = _mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT);
    __m128i hi = _mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
}

BITNET__FN bitnet__v16_avx2 bitnet__load_f16_avx2(const void *p) {
    __m128i lo = bitnet__load128_avx2(p), hi = bitnet__load128_avx2((const uint8_t *)p + 16);
    bitnet__v16_avx2 v;
    BITNET__WHOLE(lo);
    BITNET__WHOLE(hi);
    v.lo = _mm256_cvtph_ps(lo);
    v.hi = _mm256_cvtph_ps(hi);
    return v;
}

BITNET__FN bitnet__v16_avx2 bitnet__load_bf16_avx2(const void *p) {
    __m256i lo = _mm256_cvtepu16_epi32(bitnet__load128_avx2(p));
    __m256i hi = _mm256_cvtepu16_epi32(bitnet__load128_avx2((const uint8_t *)p + 16));
    return bitnet__join_avx2(_mm256_slli_epi32(lo, 16), _mm256_slli_epi32(hi, 16));
}

BITNET__FN void bitnet__store_avx2(float *p, bitnet__v16_avx2 v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}

/* The first half of the tree: lanes 8 apart, then 4. */
BITNET__FN __m128 bitnet__fold_avx2(bitnet__v16_avx2 v) {
    __m256 s = _mm256_add_ps(v.lo, v.hi);
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

/* The end of bitnet__expf: the bits of p plus those of t << 23. */
BITNET__FN bitnet__v16_avx2 bitnet__add_shifted_avx2(bitnet__v16_avx2 p, bitnet__v16_avx2 t) {
    __m256i lo = _mm256_slli_epi32(_mm256_castps_si256(t.lo), 23);
    __m256i hi = _mm256_slli_epi32(_mm256_castps_si256(t.hi), 23);
    return bitnet__join_avx2(_mm256_add_epi32(_mm256_castps_si256(p.lo), lo),
                             _mm256_add_epi32(_mm256_castps_si256(p.hi), hi));
}

/* The larger of top and |x|, compared as integers. */
BITNET__FN bitnet__v16_avx2 bitnet__top_avx2(bitnet__v16_avx2 top, bitnet__v16_avx2 x) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i lo = _mm256_and_si256(_mm256_castps_si256(x.lo), magnitude);
    __m256i hi = _mm256_and_si256(_mm256_castps_si256(x.hi), magnitude);
    return bitnet__join_avx2(_mm256_max_epi32(_mm256_castps_si256(top.lo), lo),
                             _mm256_max_epi32(_mm256_castps_si256(top.hi), hi));
}

/* Rounded, ties to even. The first pack works in each half: the order of 8s is 0 2 1 3, undone. */
BITNET__FN __m128i bitnet__to_int8_avx2(bitnet__v16_avx2 v) {
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(v.lo), _mm256_cvtps_epi32(v.hi));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

BITNET__DEFINE_END_COLUMN(avx2)

BITNET__FN void bitnet__end_tile_avx2(bitnet__v16_avx2 (*sum)[4], int rows, int cols, float *out,
                                      size_t out_stride, const int tile_cols) {
    int c;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++)
        if (c < cols) bitnet__end_column_avx2(sum[c], rows, out + (size_t)c * out_stride);
}

BITNET__DEFINE_FLOATS(avx2, 1, 1)

typedef __m256i bitnet__i32_avx2;
typedef struct bitnet__pair_avx2 { __m256i lo, hi; } bitnet__pair_avx2;

#define BITNET__I32(op) \
    BITNET__FN __m256i bitnet__##op##_avx2(__m256i a, __m256i b) { return _mm256_##op(a, b); }
BITNET__I32(add_epi32)
BITNET__I32(unpacklo_epi32) BITNET__I32(unpackhi_epi32)
BITNET__I32(unpacklo_epi64) BITNET__I32(unpackhi_epi64)
#undef BITNET__I32

BITNET__FN __m256i bitnet__none_avx2(void) { return _mm256_setzero_si256(); }

BITNET__FN bitnet__pair_avx2 bitnet__no_pair_avx2(void) {
    bitnet__pair_avx2 v;
    v.lo = v.hi = _mm256_setzero_si256();
    return v;
}

BITNET__FN bitnet__pair_avx2 bitnet__spread_avx2(const uint8_t *p, const int i) {
    const __m256i bytes = bitnet__load256_avx2(p);
    const __m256i v = i == 0 ? _mm256_srli_epi16(bytes, 4) : bytes;
    bitnet__pair_avx2 w;
    w.lo = _mm256_and_si256(v, _mm256_set1_epi8(0x0c));
    w.hi = _mm256_and_si256(v, _mm256_set1_epi8(0x03));
    return w;
}

/* Sums of int16: to a lane at most 3072 in lo and 768 in hi, two each in a block, 4 blocks. */
BITNET__FN bitnet__pair_avx2 bitnet__dot_avx2(bitnet__pair_avx2 sum, bitnet__pair_avx2 w,
                                              const int8_t *a) {
    __m256i lo = _mm256_maddubs_epi16(w.lo, bitnet__load256_avx2(a));
    __m256i hi = _mm256_maddubs_epi16(w.hi, bitnet__load256_avx2(a + 32));
    sum.lo = _mm256_add_epi16(sum.lo, lo);
    sum.hi = _mm256_add_epi16(sum.hi, hi);
    BITNET__ADDED(sum.lo, lo);
    BITNET__ADDED(sum.hi, hi);
    return sum;
}

BITNET__FN __m256i bitnet__settle_avx2(bitnet__pair_avx2 sum) {
    __m256i both = _mm256_add_epi16(_mm256_srai_epi16(sum.lo, 2), sum.hi);
    return _mm256_madd_epi16(both, _mm256_set1_epi16(1));
}

/* vphaddd adds neighbours: after two, each half holds the 4 sums of that half. */
BITNET__FN __m128i bitnet__fold4_avx2(const __m256i *sum) {
    __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[0], sum[1]),
                                  _mm256_hadd_epi32(sum[2], sum[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

/* 16 bytes each of row[0], row[4] ... */
BITNET__FN __m256i bitnet__every4_avx2(const uint8_t *const *row, size_t at) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(bitnet__load128_avx2(row[0] + at)),
                                   bitnet__load128_avx2(row[4] + at), 1);
}

BITNET__FN __m256i bitnet__codes_avx2(__m256i v, int shift) {
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8(3));
}

/* Masks the first count lanes. */
BITNET__FN __m256i bitnet__first_avx2(int count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
}

/* A step of a panel: 4 weights of 16 rows times 4 activations of 4 columns, at most 768 to a lane.
   8 sums, 2 vectors of weights, 1 of activations and 2 of products: 13 registers. */
BITNET__FN void bitnet__step_avx2(__m256i (*part)[2], const __m256i *weights,
                                  const int8_t *const *col, size_t at) {
    const __m256i w0 = weights[0], w1 = weights[1];
    int c;
    BITNET__UNROLL for (c = 0; c < 4; c++) {
        int32_t four;
        __m256i a, p0, p1;
        memcpy(&four, col[c] + at, 4);
        a = _mm256_set1_epi32(four);
        p0 = _mm256_maddubs_epi16(w0, a);
        p1 = _mm256_maddubs_epi16(w1, a);
        part[c][0] = _mm256_add_epi16(part[c][0], p0);
        part[c][1] = _mm256_add_epi16(part[c][1], p1);
        BITNET__ADDED(part[c][0], p0);
        BITNET__ADDED(part[c][1], p1);
    }
}

/* A block's 32 steps are added in int16, at most 24576, and then go into int32: 8 sums of 16 bits
   are what the registers hold. Two steps an iteration, for the loop's own instructions are a tenth
   of one step's. */
BITNET__APART BITNET__TARGET_avx2 void bitnet__multiply_avx2(
    __m256i (*panel)[2], int steps, const int8_t *q, int n, const int32_t *sums, int rows,
    int cols, int32_t *out, size_t out_stride) {
    const __m256i rows0 = bitnet__first_avx2(rows), rows1 = bitnet__first_avx2(rows - 8);
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[4][2], part[4][2];
    const int8_t *col[4];
    int32_t *to[4];
    int c, k, i;
    BITNET__UNROLL for (c = 0; c < 4; c++) {
        const size_t at = BITNET__CLAMP(c, cols);
        col[c] = q + at * (size_t)n;
        to[c] = out + at * out_stride;
        if (sums) {
            sum[c][0] = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_set1_epi32(sums[at]));
            sum[c][1] = sum[c][0];
        } else {
            sum[c][0] = _mm256_maskload_epi32(to[c], rows0);
            sum[c][1] = _mm256_maskload_epi32(to[c] + 8, rows1);
        }
    }
    for (k = 0; k < steps; k += 32) {
        BITNET__UNROLL for (c = 0; c < 4; c++) part[c][0] = part[c][1] = _mm256_setzero_si256();
        for (i = k; i < k + 32; i += 2) {
            bitnet__step_avx2(part, panel[i], col, (size_t)i * 4);
            bitnet__step_avx2(part, panel[i + 1], col, (size_t)i * 4 + 4);
        }
        BITNET__UNROLL for (c = 0; c < 4; c++) {
            sum[c][0] = _mm256_add_epi32(sum[c][0], _mm256_madd_epi16(part[c][0], ones));
            sum[c][1] = _mm256_add_epi32(sum[c][1], _mm256_madd_epi16(part[c][1], ones));
        }
    }
    BITNET__UNROLL for (c = 0; c < 4; c++) {
        _mm256_maskstore_epi32(to[c], rows0, sum[c][0]);
        _mm256_maskstore_epi32(to[c] + 8, rows1, sum[c][1]);
    }
}

/* With 4 columns: 8 sums, 2 of weights, 2 masks and 2 of products. */
BITNET__DEFINE_TILES_I2S(avx2, avx2, 1, 4, 4)
BITNET__DEFINE_UNPACK(avx2, 8)
BITNET__DEFINE_DOTROWS_I2S(avx2, avx2, 8, 4, 24)

/* ---- TL2, AVX2 ---- */

typedef struct bitnet__tl2_avx2 { __m256i a, b, c, low, one; } bitnet__tl2_avx2;

BITNET__FN __m256i bitnet__repeat16_avx2(const uint8_t *table) {
    return _mm256_broadcastsi128_si256(bitnet__load128_avx2(table));
}

BITNET__FN void bitnet__store_i32_avx2(void *p, __m256i v) {
    _mm256_storeu_si256((__m256i *)p, v);
}

BITNET__FN bitnet__tl2_avx2 bitnet__start_tl2_avx2(void) {
    bitnet__tl2_avx2 t;
    t.a = bitnet__repeat16_avx2(bitnet__tl2_codes[0]);
    t.b = bitnet__repeat16_avx2(bitnet__tl2_codes[1]);
    t.c = bitnet__repeat16_avx2(bitnet__tl2_codes[2]);
    t.low = _mm256_set1_epi8(15);
    t.one = _mm256_set1_epi8(1);
    return t;
}

/* Half of a vector of nibbles, its lower bits (h = 0) or its upper ones: the registers do not hold
   both and the sums. The tables give the codes for s = 0. Where c is 0 then, it is s; where it is
   2, a grows by 2 s (vpsignb keeps c where s is 1, and makes it 0 where s is 0). */
BITNET__FN void bitnet__half_tl2_avx2(const bitnet__tl2_avx2 *t, const uint8_t *fifths,
                                      const uint8_t *nibbles, const int i, const int h,
                                      __m256i codes[3]) {
    const __m256i f = bitnet__load256_avx2(fifths), v = bitnet__load256_avx2(nibbles);
    const __m256i nibble = _mm256_and_si256(_mm256_srli_epi32(v, 4 * h), t->low);
    const __m256i s = _mm256_and_si256(_mm256_srli_epi32(f, 2 * i + h), t->one);
    const __m256i c = _mm256_shuffle_epi8(t->c, nibble);
    codes[0] = _mm256_add_epi8(_mm256_shuffle_epi8(t->a, nibble), _mm256_sign_epi8(c, s));
    codes[1] = _mm256_shuffle_epi8(t->b, nibble);
    codes[2] = _mm256_max_epu8(c, s);
}

BITNET__FN void bitnet__triples_tl2_avx2(const bitnet__tl2_avx2 *t, const uint8_t *fifths,
                                         const uint8_t *nibbles, const int i,
                                         __m256i codes[2][3]) {
    bitnet__half_tl2_avx2(t, fifths, nibbles, i, 0, codes[0]);
    bitnet__half_tl2_avx2(t, fifths, nibbles, i, 1, codes[1]);
}

/* A block of 8 rows, or of less than 96 weights. */
BITNET__FN void bitnet__block_tl2_avx2(const bitnet__tl2_avx2 *t, const uint8_t *block,
                                       const int8_t *const *col, size_t at, int count,
                                       __m256i *sum, const int tile_cols) {
    __m256i codes[3], part[4];
    int c, i, x;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) part[c] = _mm256_setzero_si256();
    BITNET__UNROLL for (i = 0; i < 8; i++) {
        if (i / 2 >= count) continue;
        bitnet__half_tl2_avx2(t, block, block + 64 + i / 2 * 64, i / 2, i % 2, codes);
        BITNET__UNROLL for (x = 0; x < 3; x++) {
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                int32_t four;
                __m256i p;
                memcpy(&four, col[c] + at + i * 12 + x * 4, 4);
                p = _mm256_maddubs_epi16(codes[x], _mm256_set1_epi32(four));
                part[c] = _mm256_add_epi16(part[c], p);
                BITNET__ADDED(part[c], p);
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++)
        sum[c] = _mm256_add_epi32(sum[c], _mm256_madd_epi16(part[c], _mm256_set1_epi16(1)));
}

/* Each half of a group for itself: the registers hold no more. */
BITNET__FN void bitnet__tile_tl2_avx2(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                      int n, int rows, int32_t *out, size_t out_stride,
                                      const int tile_cols) {
    const bitnet__tl2_avx2 t = bitnet__start_tl2_avx2();
    const int8_t *col[4], *last[4];
    int8_t end[4][96];
    __m256i sum[4];
    int c, b, half;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        col[c] = q + (size_t)c * (size_t)n;
        last[c] = end[c];
        memset(end[c], 0, 96);
        memcpy(end[c], col[c] + n / 96 * 96, (size_t)(n % 96));
    }
    for (half = 0; half < 2 && half * 8 < rows; half++) {
        const uint8_t *p = w + half * 32;
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            sum[c] = _mm256_set1_epi32(-sums[c]);
        for (b = 0; b < n / 96; b++, p += BITNET__TL2_BLOCK) {
            bitnet__block_tl2_avx2(&t, p, col, (size_t)b * 96, 4, sum, tile_cols);
            BITNET__STREAM_BLOCK(p);
        }
        if (n % 96) bitnet__block_tl2_avx2(&t, p, last, 0, (n % 96 + 23) / 24, sum, tile_cols);
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            _mm256_maskstore_epi32(out + (size_t)c * out_stride + half * 8,
                                   bitnet__first_avx2(rows - half * 8), sum[c]);
    }
}

BITNET__DEFINE_DOTROWS_TL2(avx2, avx2, 8, 4, BITNET__CASES_TO_3)
BITNET__DEFINE_PACK_TL2(avx2, 8, _mm256, si256)

BITNET__FN void bitnet__tile_u8_avx2(const uint8_t *w, const int8_t *q, const int32_t *sums, int n,
                                     int rows, int cols, int32_t *out, size_t out_stride,
                                     const int tile_cols) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[2][4];
    int r, c, i;
    (void)tile_cols;
    BITNET__UNROLL for (c = 0; c < 2; c++) {
        BITNET__UNROLL for (r = 0; r < 4; r++) sum[c][r] = _mm256_setzero_si256();
    }
    for (i = 0; i < n; i += 32) {
        const __m256i q0 = bitnet__load256_avx2(q + i);
        const __m256i q1 = bitnet__load256_avx2(q + BITNET__CLAMP(1, cols) * (size_t)n + i);
        BITNET__UNROLL for (r = 0; r < 4; r++) {
            const uint8_t *p = w + BITNET__CLAMP(r, rows) * (size_t)n + i;
            const __m256i h = bitnet__load256_avx2(p);
            const __m256i d0 = _mm256_madd_epi16(_mm256_maddubs_epi16(h, q0), ones);
            const __m256i d1 = _mm256_madd_epi16(_mm256_maddubs_epi16(h, q1), ones);
            if (i % 64 == 0) BITNET__STREAM(p);
            sum[0][r] = _mm256_add_epi32(sum[0][r], d0);
            sum[1][r] = _mm256_add_epi32(sum[1][r], d1);
        }
    }
    for (c = 0; c < 2 && c < cols; c++) {
        __m128i dots = _mm_sub_epi32(bitnet__fold4_avx2(sum[c]), _mm_set1_epi32(128 * sums[c]));
        int32_t four[4];
        _mm_storeu_si128((__m128i *)(void *)four, dots);
        bitnet__put(out + (size_t)c * out_stride, four, rows);
    }
}

BITNET__DEFINE_DOTROWS_U8(avx2, 2)

static const bitnet_kernels bitnet__kernels_avx2 = {
    "avx2", BITNET_CPU_AVX2 | BITNET_CPU_F16C, 0, 0, 0, 0,
    BITNET__KERNEL_ENTRIES(avx2, avx2, bitnet__dotrows_i2s_avx2)
};
static const bitnet_kernels bitnet__kernels_avx2_tl2 = {
    "avx2-tl2", BITNET_CPU_AVX2 | BITNET_CPU_F16C,
    "TL2", BITNET__TL2_ROWS, bitnet__packed_bytes_tl2, bitnet__pack_tl2_avx2,
    BITNET__KERNEL_ENTRIES(avx2, avx2, bitnet__dotrows_tl2_avx2)
};
#undef BITNET__V16
#undef BITNET__FN
#endif

#if BITNET__AVXVNNI
/* ---- AVX-VNNI: vpdpbusd on ymm; what is not a dot of integers is AVX2's ---- */

#define BITNET__FN BITNET__INLINE BITNET__TARGET_avxvnni

BITNET__FN bitnet__pair_avx2 bitnet__dot_avxvnni(bitnet__pair_avx2 sum, bitnet__pair_avx2 w,
                                                 const int8_t *a) {
    sum.lo = _mm256_dpbusd_avx_epi32(sum.lo, w.lo, bitnet__load256_avx2(a));
    sum.hi = _mm256_dpbusd_avx_epi32(sum.hi, w.hi, bitnet__load256_avx2(a + 32));
    BITNET__IN_PLACE(sum.lo);
    BITNET__IN_PLACE(sum.hi);
    return sum;
}

BITNET__FN __m256i bitnet__settle_avxvnni(bitnet__pair_avx2 sum) {
    return _mm256_add_epi32(_mm256_srai_epi32(sum.lo, 2), sum.hi);
}

/* 12 sums, 2 of weights and 1 of activations: 15 registers; 12 sums hide a latency of 5 or 6. */
BITNET__APART BITNET__TARGET_avxvnni void bitnet__multiply_avxvnni(
    __m256i (*panel)[2], int steps, const int8_t *q, int n, const int32_t *sums, int rows,
    int cols, int32_t *out, size_t out_stride) {
    const __m256i rows0 = bitnet__first_avx2(rows), rows1 = bitnet__first_avx2(rows - 8);
    __m256i sum[6][2];
    const int8_t *col[6];
    int32_t *to[6];
    int c, k;
    BITNET__UNROLL for (c = 0; c < 6; c++) {
        const size_t at = BITNET__CLAMP(c, cols);
        col[c] = q + at * (size_t)n;
        to[c] = out + at * out_stride;
        if (sums) {
            sum[c][0] = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_set1_epi32(sums[at]));
            sum[c][1] = sum[c][0];
        } else {
            sum[c][0] = _mm256_maskload_epi32(to[c], rows0);
            sum[c][1] = _mm256_maskload_epi32(to[c] + 8, rows1);
        }
    }
    for (k = 0; k < steps; k++) {
        const __m256i w0 = panel[k][0], w1 = panel[k][1];
        BITNET__UNROLL for (c = 0; c < 6; c++) {
            int32_t four;
            __m256i a;
            memcpy(&four, col[c] + (size_t)k * 4, 4);
            a = _mm256_set1_epi32(four);
            sum[c][0] = _mm256_dpbusd_avx_epi32(sum[c][0], w0, a);
            sum[c][1] = _mm256_dpbusd_avx_epi32(sum[c][1], w1, a);
            BITNET__IN_PLACE(sum[c][0]);
            BITNET__IN_PLACE(sum[c][1]);
        }
    }
    BITNET__UNROLL for (c = 0; c < 6; c++) {
        _mm256_maskstore_epi32(to[c], rows0, sum[c][0]);
        _mm256_maskstore_epi32(to[c] + 8, rows1, sum[c][1]);
    }
}

BITNET__DEFINE_TILES_I2S(avxvnni, avx2, 2, 3, BITNET__MAX_ROW / 128)
BITNET__DEFINE_DOTROWS_I2S(avxvnni, avx2, 8, 6, 24)

BITNET__FN void bitnet__tile_u8_avxvnni(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                        int n, int rows, int cols, int32_t *out,
                                        size_t out_stride, const int tile_cols) {
    __m256i sum[2][4];
    int r, c, i;
    (void)tile_cols;
    BITNET__UNROLL for (c = 0; c < 2; c++) {
        BITNET__UNROLL for (r = 0; r < 4; r++) sum[c][r] = _mm256_setzero_si256();
    }
    for (i = 0; i < n; i += 32) {
        const __m256i q0 = bitnet__load256_avx2(q + i);
        const __m256i q1 = bitnet__load256_avx2(q + BITNET__CLAMP(1, cols) * (size_t)n + i);
        BITNET__UNROLL for (r = 0; r < 4; r++) {
            const uint8_t *p = w + BITNET__CLAMP(r, rows) * (size_t)n + i;
            const __m256i h = bitnet__load256_avx2(p);
            if (i % 64 == 0) BITNET__STREAM(p);
            sum[0][r] = _mm256_dpbusd_avx_epi32(sum[0][r], h, q0);
            sum[1][r] = _mm256_dpbusd_avx_epi32(sum[1][r], h, q1);
        }
    }
    for (c = 0; c < 2 && c < cols; c++) {
        __m128i dots = _mm_sub_epi32(bitnet__fold4_avx2(sum[c]), _mm_set1_epi32(128 * sums[c]));
        int32_t four[4];
        _mm_storeu_si128((__m128i *)(void *)four, dots);
        bitnet__put(out + (size_t)c * out_stride, four, rows);
    }
}

BITNET__DEFINE_DOTROWS_U8(avxvnni, 2)

static const bitnet_kernels bitnet__kernels_avxvnni = {
    "avxvnni", BITNET_CPU_AVX2 | BITNET_CPU_F16C | BITNET_CPU_AVXVNNI, 0, 0, 0, 0,
    BITNET__KERNEL_ENTRIES(avxvnni, avx2, bitnet__dotrows_i2s_avxvnni)
};
#undef BITNET__FN
#endif

#if BITNET__AVX512
/* ---- AVX-512 VNNI: a v16 is a zmm ---- */

typedef __m512 bitnet__v16_avx512vnni;

#define BITNET__FN BITNET__INLINE BITNET__TARGET_avx512vnni
#define BITNET__V16(op) \
    BITNET__FN __m512 bitnet__##op##_avx512vnni(__m512 a, __m512 b) { \
        return _mm512_##op##_ps(a, b); \
    }
BITNET__V16(add) BITNET__V16(sub) BITNET__V16(mul) BITNET__V16(min) BITNET__V16(max)

BITNET__FN __m512 bitnet__splat_avx512vnni(float x) { return _mm512_set1_ps(x); }

BITNET__FN __m128i bitnet__load128_avx512vnni(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

BITNET__FN __m256i bitnet__load256_avx512vnni(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

BITNET__FN __m512 bitnet__load_f32_avx512vnni(const void *p) { return _mm512_loadu_ps(p); }

BITNET__FN __m512 bitnet__load_i32_avx512vnni(const int32_t *p) {
    return _mm512_cvtepi32_ps(_mm512_loadu_si512(p));
}

BITNET__FN __m512 bitnet__fma_avx512vnni(__m512 a, __m512 b, __m512 c) {
    return _mm512_fmadd_ps(a, b, c);
}

/* y, but 0 where |x| < 2^-100. */
BITNET__FN __m512 bitnet__zero_tiny_avx512vnni(__m512 x, __m512 y) {
    const __m512 tiny = _mm512_set1_ps(7.8886091e-31f);
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(x), tiny, _CMP_NLT_UQ), y);
}

BITNET__FN __m256i bitnet__to_f16_avx512vnni(__m512 v) {
    /* All lanes by a mask: without one, gcc -O0 has a macro that -Wconversion complains of. */
    return _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT);
}

BITNET__FN __m512 bitnet__load_f16_avx512vnni(const void *p) {
    __m256i v = bitnet__load256_avx512vnni(p);
    BITNET__WHOLE(v);
    return _mm512_cvtph_ps(v);
}

BITNET__FN __m512 bitnet__load_bf16_avx512vnni(const void *p) {
    __m512i bits = _mm512_cvtepu16_epi32(bitnet__load256_avx512vnni(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

BITNET__FN void bitnet__store_avx512vnni(float *p, __m512 v) { _mm512_storeu_ps(p, v); }

BITNET__FN __m128 bitnet__fold_avx512vnni(__m512 v) {
    __m256 s = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

BITNET__FN __m512 bitnet__add_shifted_avx512vnni(__m512 p, __m512 t) {
    __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), n));
}

BITNET__FN __m512 bitnet__top_avx512vnni(__m512 top, __m512 x) {
    __m512i bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(top), bits));
}

BITNET__FN __m128i bitnet__to_int8_avx512vnni(__m512 v) {
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v));
}

BITNET__DEFINE_END_COLUMN(avx512vnni)

/* 16 trees at once, a level a step. Two registers hold the halves of what they add in each other's
   other half; so each step halves the registers until one has all 16 sums. */
BITNET__FN void bitnet__end_tile_avx512vnni(__m512 (*sum)[4], int rows, int cols, float *out,
                                            size_t out_stride, const int tile_cols) {
    const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512 v[4], s01, s23;
    float dots[16];
    int c;
    if (tile_cols == 1) {
        bitnet__end_column_avx512vnni(sum[0], rows, out);
        return;
    }
    BITNET__UNROLL for (c = 0; c < 4; c++) {           /* 8 apart, 4 apart: rows in quarters */
        s01 = _mm512_add_ps(_mm512_shuffle_f32x4(sum[c][0], sum[c][1], 0x44),
                            _mm512_shuffle_f32x4(sum[c][0], sum[c][1], 0xee));
        s23 = _mm512_add_ps(_mm512_shuffle_f32x4(sum[c][2], sum[c][3], 0x44),
                            _mm512_shuffle_f32x4(sum[c][2], sum[c][3], 0xee));
        v[c] = _mm512_add_ps(_mm512_shuffle_f32x4(s01, s23, 0x88),
                             _mm512_shuffle_f32x4(s01, s23, 0xdd));
    }
    s01 = _mm512_add_ps(_mm512_shuffle_ps(v[0], v[1], 0x44), _mm512_shuffle_ps(v[0], v[1], 0xee));
    s23 = _mm512_add_ps(_mm512_shuffle_ps(v[2], v[3], 0x44), _mm512_shuffle_ps(v[2], v[3], 0xee));
    s01 = _mm512_add_ps(_mm512_shuffle_ps(s01, s23, 0x88), _mm512_shuffle_ps(s01, s23, 0xdd));
    _mm512_storeu_ps(dots, _mm512_permutexvar_ps(turn, s01));
    for (c = 0; c < 4 && c < cols; c++)
        bitnet__put(out + (size_t)c * out_stride, dots + 4 * c, rows);
}

BITNET__DEFINE_FLOATS(avx512vnni, 4, 4)

typedef __m512i bitnet__i32_avx512vnni, bitnet__pair_avx512vnni;

#define BITNET__I32(op) \
    BITNET__FN __m512i bitnet__##op##_avx512vnni(__m512i a, __m512i b) { \
        return _mm512_##op(a, b); \
    }
BITNET__I32(add_epi32)
BITNET__I32(unpacklo_epi32) BITNET__I32(unpackhi_epi32)
BITNET__I32(unpacklo_epi64) BITNET__I32(unpackhi_epi64)
#undef BITNET__I32

BITNET__FN __m512i bitnet__none_avx512vnni(void) { return _mm512_setzero_si512(); }
BITNET__FN __m512i bitnet__no_pair_avx512vnni(void) { return _mm512_setzero_si512(); }

/* lower in the lower 32 bytes, upper in the others. */
BITNET__FN __m512i bitnet__halves_avx512vnni(int lower, int upper) {
    return _mm512_inserti64x4(_mm512_set1_epi32(lower), _mm256_set1_epi32(upper), 1);
}

BITNET__FN __m512i bitnet__spread_avx512vnni(const uint8_t *p, const int i) {
    const __m512i mask = bitnet__halves_avx512vnni(0x0c0c0c0c, 0x03030303);
    const __m512i v = _mm512_broadcast_i64x4(bitnet__load256_avx512vnni(p));
    return _mm512_and_si512(i == 0 ? _mm512_srli_epi16(v, 4) : v, mask);
}

BITNET__FN __m512i bitnet__dot_avx512vnni(__m512i sum, __m512i w, const int8_t *a) {
    sum = _mm512_dpbusd_epi32(sum, w, _mm512_loadu_si512(a));
    BITNET__IN_PLACE(sum);
    return sum;
}

BITNET__FN __m512i bitnet__settle_avx512vnni(__m512i sum) {
    return _mm512_srav_epi32(sum, bitnet__halves_avx512vnni(2, 0));
}

/* As in AVX2, with unpacks: each quarter ends up with the 4 sums of that quarter. */
BITNET__FN __m128i bitnet__fold4_avx512vnni(const __m512i *sum) {
    __m512i s01 = _mm512_add_epi32(_mm512_unpacklo_epi32(sum[0], sum[1]),
                                   _mm512_unpackhi_epi32(sum[0], sum[1]));
    __m512i s23 = _mm512_add_epi32(_mm512_unpacklo_epi32(sum[2], sum[3]),
                                   _mm512_unpackhi_epi32(sum[2], sum[3]));
    __m512i s = _mm512_add_epi32(_mm512_unpacklo_epi64(s01, s23),
                                 _mm512_unpackhi_epi64(s01, s23));
    __m256i h = _mm256_add_epi32(_mm512_castsi512_si256(s), _mm512_extracti64x4_epi64(s, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

/* 16 bytes each of row[0], row[4] ... */
BITNET__FN __m512i bitnet__every4_avx512vnni(const uint8_t *const *row, size_t at) {
    __m512i v = _mm512_castsi128_si512(bitnet__load128_avx512vnni(row[0] + at));
    v = _mm512_inserti32x4(v, bitnet__load128_avx512vnni(row[4] + at), 1);
    v = _mm512_inserti32x4(v, bitnet__load128_avx512vnni(row[8] + at), 2);
    return _mm512_inserti32x4(v, bitnet__load128_avx512vnni(row[12] + at), 3);
}

BITNET__FN __m512i bitnet__codes_avx512vnni(__m512i v, unsigned shift) {
    return _mm512_and_si512(_mm512_srli_epi32(v, shift), _mm512_set1_epi8(3));
}

/* Masks the first count lanes. */
BITNET__FN __mmask16 bitnet__first_avx512vnni(int count) {
    return (__mmask16)(count >= 16 ? 0xffff : count > 0 ? (1 << count) - 1 : 0);
}

/* 16 sums, 2 of weights and 1 of activations: 19 registers; 10 loads for 16 vpdpbusd. */
BITNET__APART BITNET__TARGET_avx512vnni void bitnet__multiply_avx512vnni(
    __m512i (*panel)[2], int steps, const int8_t *q, int n, const int32_t *sums, int rows,
    int cols, int32_t *out, size_t out_stride) {
    const __mmask16 rows0 = bitnet__first_avx512vnni(rows);
    const __mmask16 rows1 = bitnet__first_avx512vnni(rows - 16);
    __m512i sum[8][2];
    const int8_t *col[8];
    int32_t *to[8];
    int c, k;
    BITNET__UNROLL for (c = 0; c < 8; c++) {
        const size_t at = BITNET__CLAMP(c, cols);
        col[c] = q + at * (size_t)n;
        to[c] = out + at * out_stride;
        if (sums) {
            sum[c][0] = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_set1_epi32(sums[at]));
            sum[c][1] = sum[c][0];
        } else {
            sum[c][0] = _mm512_maskz_loadu_epi32(rows0, to[c]);
            sum[c][1] = _mm512_maskz_loadu_epi32(rows1, to[c] + 16);
        }
    }
    for (k = 0; k < steps; k++) {
        const __m512i w0 = panel[k][0], w1 = panel[k][1];
        BITNET__UNROLL for (c = 0; c < 8; c++) {
            int32_t four;
            __m512i a;
            memcpy(&four, col[c] + (size_t)k * 4, 4);
            a = _mm512_set1_epi32(four);
            sum[c][0] = _mm512_dpbusd_epi32(sum[c][0], w0, a);
            sum[c][1] = _mm512_dpbusd_epi32(sum[c][1], w1, a);
            BITNET__IN_PLACE(sum[c][0]);
            BITNET__IN_PLACE(sum[c][1]);
        }
    }
    BITNET__UNROLL for (c = 0; c < 8; c++) {
        _mm512_mask_storeu_epi32(to[c], rows0, sum[c][0]);
        _mm512_mask_storeu_epi32(to[c] + 16, rows1, sum[c][1]);
    }
}

BITNET__DEFINE_TILES_I2S(avx512vnni, avx512vnni, 4, 5, BITNET__MAX_ROW / 128)
BITNET__DEFINE_UNPACK(avx512vnni, 16)
BITNET__DEFINE_DOTROWS_I2S(avx512vnni, avx512vnni, 16, 8, 24)

/* ---- TL2, AVX-512 ---- */

BITNET__FN __m512i bitnet__repeat16_avx512vnni(const uint8_t *table) {
    return _mm512_broadcast_i32x4(bitnet__load128_avx512vnni(table));
}

BITNET__FN void bitnet__store_i32_avx512vnni(void *p, __m512i v) { _mm512_storeu_si512(p, v); }

typedef struct bitnet__tl2_avx512vnni { __m512i a, b, c, low, one; } bitnet__tl2_avx512vnni;

BITNET__FN bitnet__tl2_avx512vnni bitnet__start_tl2_avx512vnni(void) {
    bitnet__tl2_avx512vnni t;
    t.a = bitnet__repeat16_avx512vnni(bitnet__tl2_codes[0]);
    t.b = bitnet__repeat16_avx512vnni(bitnet__tl2_codes[1]);
    t.c = bitnet__repeat16_avx512vnni(bitnet__tl2_codes[2]);
    t.low = _mm512_set1_epi8(15);
    t.one = _mm512_set1_epi8(1);
    return t;
}

/* The tables give the codes for s = 0. Under the mask of s = 1, where c is 0 it becomes 1; where
   it is 2, a becomes 2. */
BITNET__FN void bitnet__triples_tl2_avx512vnni(const bitnet__tl2_avx512vnni *t,
                                               const uint8_t *fifths, const uint8_t *nibbles,
                                               const int i, __m512i codes[2][3]) {
    const __m512i f = _mm512_loadu_si512(fifths), v = _mm512_loadu_si512(nibbles);
    int h;
    BITNET__UNROLL for (h = 0; h < 2; h++) {
        const __m512i nibble = _mm512_and_si512(h ? _mm512_srli_epi32(v, 4) : v, t->low);
        const __mmask64 s = _mm512_test_epi8_mask(f, _mm512_set1_epi8((char)(1 << (2 * i + h))));
        const __m512i a = _mm512_shuffle_epi8(t->a, nibble), c = _mm512_shuffle_epi8(t->c, nibble);
        codes[h][0] = _mm512_mask_max_epu8(a, s, a, c);
        codes[h][1] = _mm512_shuffle_epi8(t->b, nibble);
        codes[h][2] = _mm512_mask_max_epu8(c, s, c, t->one);
    }
}

/* vpermb takes a code from a table of 64 by 6 bits: nibble and fifth in bit 4, whatever bit 5
   (even), or in bit 5, whatever bit 4 (odd). */
typedef struct bitnet__tl2_avx512vbmi { __m512i even[3], odd[3], low; } bitnet__tl2_avx512vbmi;

BITNET__INLINE BITNET__TARGET_avx512vbmi bitnet__tl2_avx512vbmi bitnet__start_tl2_avx512vbmi(
    void) {
    bitnet__tl2_avx512vbmi t;
    int k;
    BITNET__UNROLL for (k = 0; k < 3; k++) {
        t.even[k] = _mm512_broadcast_i64x4(bitnet__load256_avx512vnni(bitnet__tl2_codes[k]));
        t.odd[k] = _mm512_shuffle_i32x4(t.even[k], t.even[k], 0x50);   /* quarters 0 0 1 1 */
    }
    t.low = _mm512_set1_epi8(15);
    return t;
}

/* One shift brings two fifths to bits 4 and 5; one vpternlog puts the nibble below them. */
BITNET__INLINE BITNET__TARGET_avx512vbmi void bitnet__triples_tl2_avx512vbmi(
    const bitnet__tl2_avx512vbmi *t, const uint8_t *fifths, const uint8_t *nibbles, const int i,
    __m512i codes[2][3]) {
    const __m512i f = _mm512_loadu_si512(fifths), v = _mm512_loadu_si512(nibbles);
    const __m512i two = i == 0   ? _mm512_slli_epi32(f, 4)
                        : i == 1 ? _mm512_slli_epi32(f, 2)
                        : i == 2 ? f
                                 : _mm512_srli_epi32(f, 2);
    const __m512i even = _mm512_ternarylogic_epi32(v, two, t->low, 0xe4);   /* low ? v : two */
    const __m512i odd = _mm512_ternarylogic_epi32(_mm512_srli_epi32(v, 4), two, t->low, 0xe4);
    int k;
    BITNET__UNROLL for (k = 0; k < 3; k++) {
        codes[0][k] = _mm512_permutexvar_epi8(even, t->even[k]);
        codes[1][k] = _mm512_permutexvar_epi8(odd, t->odd[k]);
    }
}

/* A vpdpbusd may begin each half cycle and takes five: with few columns each has several sums. */
#define BITNET__SUMS_TL2(tile_cols) ((tile_cols) < 3 ? 6 : (tile_cols) < 5 ? 3 : 2)

#define BITNET__DEFINE_TILE_TL2(isa) \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__block_tl2_##isa( \
        const bitnet__tl2_##isa *t, const uint8_t *block, const int8_t *const *col, size_t at, \
        int count, __m512i (*sum)[6], const int tile_cols) { \
        __m512i codes[2][3]; \
        int c, i, x; \
        BITNET__UNROLL for (i = 0; i < 4; i++) { \
            if (i >= count) continue; \
            bitnet__triples_tl2_##isa(t, block, block + 64 + i * 64, i, codes); \
            BITNET__UNROLL for (x = 0; x < 6; x++) { \
                BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
                    __m512i *to = &sum[c][x % BITNET__SUMS_TL2(tile_cols)]; \
                    int32_t four; \
                    memcpy(&four, col[c] + at + i * 24 + x * 4, 4); \
                    *to = _mm512_dpbusd_epi32(*to, codes[x / 3][x % 3], _mm512_set1_epi32(four)); \
                    BITNET__IN_PLACE(*to); \
                } \
            } \
        } \
    } \
    BITNET__INLINE BITNET__TARGET_##isa void bitnet__tile_tl2_##isa( \
        const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows, int32_t *out, \
        size_t out_stride, const int tile_cols) { \
        const bitnet__tl2_##isa t = bitnet__start_tl2_##isa(); \
        const int8_t *col[8]; \
        int8_t end[8][96]; \
        __m512i sum[8][6]; \
        int c, b, x; \
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
            col[c] = q + (size_t)c * (size_t)n; \
            sum[c][0] = _mm512_set1_epi32(-sums[c]); \
            BITNET__UNROLL for (x = 1; x < 6; x++) sum[c][x] = _mm512_setzero_si512(); \
        } \
        for (b = 0; b < n / 96; b++, w += BITNET__TL2_BLOCK) { \
            BITNET__STREAM_BLOCK(w); \
            bitnet__block_tl2_##isa(&t, w, col, (size_t)b * 96, 4, sum, tile_cols); \
        } \
        if (n % 96) { \
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
                memset(end[c], 0, 96); \
                memcpy(end[c], col[c] + n / 96 * 96, (size_t)(n % 96)); \
                col[c] = end[c]; \
            } \
            bitnet__block_tl2_##isa(&t, w, col, 0, (n % 96 + 23) / 24, sum, tile_cols); \
        } \
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) { \
            BITNET__UNROLL for (x = 1; x < 6; x++) \
                sum[c][0] = _mm512_add_epi32(sum[c][0], sum[c][x]); \
            _mm512_mask_storeu_epi32(out + (size_t)c * out_stride, \
                                     bitnet__first_avx512vnni(rows), sum[c][0]); \
        } \
    }

BITNET__DEFINE_TILE_TL2(avx512vnni)
BITNET__DEFINE_TILE_TL2(avx512vbmi)
BITNET__DEFINE_DOTROWS_TL2(avx512vnni, avx512vnni, 16, 8, BITNET__CASES_TO_7)
BITNET__DEFINE_DOTROWS_TL2(avx512vbmi, avx512vnni, 16, 8, BITNET__CASES_TO_7)
BITNET__DEFINE_PACK_TL2(avx512vnni, 16, _mm512, si512)

/* 24 sums, 4 of weights and 1 of activations: 29 registers; 10 loads for 24 vpdpbusd. */
BITNET__FN void bitnet__tile_u8_avx512vnni(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                           int n, int rows, int cols, int32_t *out,
                                           size_t out_stride, const int tile_cols) {
    __m512i sum[6][4], h[4];
    const uint8_t *row[4];
    const int8_t *col[6];
    int r, c, i;
    BITNET__UNROLL for (r = 0; r < 4; r++) row[r] = w + BITNET__CLAMP(r, rows) * (size_t)n;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        col[c] = q + BITNET__CLAMP(c, cols) * (size_t)n;
        BITNET__UNROLL for (r = 0; r < 4; r++) sum[c][r] = _mm512_setzero_si512();
    }
    for (i = 0; i < n; i += 64) {
        BITNET__UNROLL for (r = 0; r < 4; r++) {
            h[r] = _mm512_loadu_si512(row[r] + i);
            BITNET__STREAM(row[r] + i);
        }
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            const __m512i a = _mm512_loadu_si512(col[c] + i);
            BITNET__UNROLL for (r = 0; r < 4; r++) {
                sum[c][r] = _mm512_dpbusd_epi32(sum[c][r], h[r], a);
                BITNET__IN_PLACE(sum[c][r]);
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        if (c < cols) {
            __m128i dots = bitnet__fold4_avx512vnni(sum[c]);
            int32_t four[4];
            dots = _mm_sub_epi32(dots, _mm_set1_epi32(128 * sums[c]));
            _mm_storeu_si128((__m128i *)(void *)four, dots);
            bitnet__put(out + (size_t)c * out_stride, four, rows);
        }
    }
}

BITNET__DEFINE_DOTROWS_U8(avx512vnni, 6)

static const bitnet_kernels bitnet__kernels_avx512vnni = {
    "avx512vnni",
    BITNET_CPU_AVX2 | BITNET_CPU_F16C | BITNET_CPU_AVX512 | BITNET_CPU_AVX512VNNI, 0, 0, 0, 0,
    BITNET__KERNEL_ENTRIES(avx512vnni, avx512vnni, bitnet__dotrows_i2s_avx512vnni)
};
static const bitnet_kernels bitnet__kernels_avx512vnni_tl2 = {
    "avx512vnni-tl2",
    BITNET_CPU_AVX2 | BITNET_CPU_F16C | BITNET_CPU_AVX512 | BITNET_CPU_AVX512VNNI,
    "TL2", BITNET__TL2_ROWS, bitnet__packed_bytes_tl2, bitnet__pack_tl2_avx512vnni,
    BITNET__KERNEL_ENTRIES(avx512vnni, avx512vnni, bitnet__dotrows_tl2_avx512vnni)
};
static const bitnet_kernels bitnet__kernels_avx512vbmi_tl2 = {
    "avx512vbmi-tl2",
    BITNET_CPU_AVX2 | BITNET_CPU_F16C | BITNET_CPU_AVX512 | BITNET_CPU_AVX512VNNI |
        BITNET_CPU_AVX512VBMI,
    "TL2", BITNET__TL2_ROWS, bitnet__packed_bytes_tl2, bitnet__pack_tl2_avx512vnni,
    BITNET__KERNEL_ENTRIES(avx512vnni, avx512vnni, bitnet__dotrows_tl2_avx512vbmi)
};
#undef BITNET__V16
#undef BITNET__FN
#endif

/* Best first; bitnet.h undefines this one, the rest are ours. */
#if BITNET__AVX512 && BITNET__AVX2
  #if BITNET__AVXVNNI
    #define BITNET__KERNEL_TABLES \
        &bitnet__kernels_avx512vnni, &bitnet__kernels_avxvnni, &bitnet__kernels_avx2, \
        &bitnet__kernels_avx512vbmi_tl2, &bitnet__kernels_avx512vnni_tl2, \
        &bitnet__kernels_avx2_tl2,
  #else
    #define BITNET__KERNEL_TABLES \
        &bitnet__kernels_avx512vnni, &bitnet__kernels_avx2, &bitnet__kernels_avx512vbmi_tl2, \
        &bitnet__kernels_avx512vnni_tl2, &bitnet__kernels_avx2_tl2,
  #endif
#elif BITNET__AVX512
  #define BITNET__KERNEL_TABLES \
      &bitnet__kernels_avx512vnni, &bitnet__kernels_avx512vbmi_tl2, \
      &bitnet__kernels_avx512vnni_tl2,
#elif BITNET__AVXVNNI
  #define BITNET__KERNEL_TABLES \
      &bitnet__kernels_avxvnni, &bitnet__kernels_avx2, &bitnet__kernels_avx2_tl2,
#elif BITNET__AVX2
  #define BITNET__KERNEL_TABLES &bitnet__kernels_avx2, &bitnet__kernels_avx2_tl2,
#else
  #define BITNET__KERNEL_TABLES
#endif

#undef BITNET__AVX2
#undef BITNET__AVX512
#undef BITNET__AVXVNNI
#undef BITNET__INLINE
#undef BITNET__APART
#undef BITNET__TARGET_avx2
#undef BITNET__TARGET_avxvnni
#undef BITNET__TARGET_avx512vnni
#undef BITNET__TARGET_avx512vbmi
#undef BITNET__UNROLL
#undef BITNET__IN_PLACE
#undef BITNET__ADDED
#undef BITNET__NO_AHEAD
#undef BITNET__WHOLE
#undef BITNET__TILE
#undef BITNET__TILE_COLS
#undef BITNET__CLAMP
#undef BITNET__STREAM
#undef BITNET__SHARE
#undef BITNET__DEFINE_TILES_I2S
#undef BITNET__DEFINE_UNPACK
#undef BITNET__STREAM_BLOCK
#undef BITNET__DEFINE_DOTROWS_I2S
#undef BITNET__PANEL
#undef BITNET__PANEL_TL2
#undef BITNET__SUMS_TL2
#undef BITNET__TILE_CASE
#undef BITNET__CASES_TO_3
#undef BITNET__CASES_TO_7
#undef BITNET__DEFINE_TILE_TL2
#undef BITNET__DEFINE_DOTROWS_TL2
#undef BITNET__DEFINE_PACK_TL2
#undef BITNET__DEFINE_DOTROWS_U8
#undef BITNET__DEFINE_DOTROWS_V16
#undef BITNET__DEFINE_END_COLUMN
#undef BITNET__DEFINE_KEYS
#undef BITNET__DEFINE_MIX
#undef BITNET__WIDE
#undef BITNET__DEFINE_FLOATS
#undef BITNET__KERNEL_ENTRIES

#if defined(__GNUC__) && !defined(__clang__)
  #pragma GCC diagnostic pop
#endif
