/* bitnet_kernels_x86.h - AVX2, AVX-VNNI, AVX-512, AMX kernels for bitnet.h; MIT licence, see there

   Put this file beside bitnet.h, which includes it by name. Every entry gives the same bits as the
   scalar function of that name in bitnet.h, which says what is computed; this file says how.

   INSTRUCTIONS
       avx2        AVX2, FMA and F16C. Integer dots by vpmaddubsw (unsigned code times signed
                   activation, pairs added into int16) and vpmaddwd (pairs of int16 added into
                   int32).
       avxvnni     AVX-VNNI as well. Integer dots by vpdpbusd (unsigned code times signed
                   activation, four products added into int32) in its VEX form, on ymm; the rest
                   is shared with avx2.
       avx512vnni  AVX-512 F, BW, DQ, VL and VNNI. Integer dots by vpdpbusd on zmm.
       avx512vbmi  VBMI as well: vpermb looks codes up in a table of 64. Only for one column of TL2.
       amx         AMX with int8 as well, for many columns: TDPBSUD multiplies tiles of 16 rows of
                   64 bytes, 8 times as many products a cycle as vpdpbusd. Only on Linux, x86-64.
       All         vcvtph2ps for F16. Floats are multiplied, then added: an FMA would round once
                   where the scalar code rounds twice. It is used only where the products are
                   exact, in attention over an F16 cache.
   bitnet__cpu_features asks CPUID for the instructions and XGETBV whether the system saves the wide
   registers; for AMX it also asks Linux for permission. Each function names its target in an
   attribute, so no -m flag is needed.

   TWO HALVES OF THE FILE
       The front has what depends on the instruction set. The body, at the end, has the loops that
       need a vector only by the name of its type. The front includes this file again for each
       register width and instruction set, which compiles the body for it. That gives plain
       functions to step through, where C has no other way to write one function for vectors of two
       types.

   WEIGHTS: I2_S, the 128 packing, read in place
       A row of n weights is n / 4 bytes; a block of 128 weights is 32 of them, one ymm register.
       Code = weight + 1. Code 3 is invalid, but counts the same here as in the scalar code.

           byte of the block      0     1     2   ...  31       with activations
           bits 7-6, weight       0     1     2   ...  31         0 ..  31
           bits 5-4, weight      32    33    34   ...  63        32 ..  63
           bits 3-2, weight      64    65    66   ...  95        64 ..  95
           bits 1-0, weight      96    97    98   ... 127        96 .. 127

       So a mask gives the codes of 32 neighbours, in the order of their activations, after a shift
       or times a power of 4. The kernels sum code * q and subtract sums[c], the sum of q.

   WEIGHTS: TL2_R16, without BITNET_NO_TL2; drawn in bitnet.h, the twin in plain C is below
       Read in place, or made by pack from I2_S. 64 bytes are 16 rows by 4 triples of codes, the
       three in a nibble and a fifth bit. Uops for 64 triples, 192 weights, and one column:

                    nibble, fifth   codes   products    weights a cycle
           vbmi     1.9             3       3           2 ports: 49
           vnni     1.5 + 1         5       3           2 ports: 37
           avx2     2 * 3.4         2 * 6   2 * 6       3 ports: 19

   LOOKED-UP SUMS, AVX2 with many columns, on CPUs that multiply 32 bytes once a cycle
       A byte of weights has four codes: 81 values without code 3. For each place of a byte in a row
       and 16 columns, the 81 possible sums of (code - 1) * q are computed once, as int16. A row
       then adds, for each of its bytes, one of them: 64 products for a load and an addition.

           k-step   8 bytes of each row, 32 weights: a table [8][81][16] of int16, 20 KB, in L1
           entry    27 c0 + 9 c1 + 3 c2 + c3 of a byte with the codes c0 (bits 7-6) to c3 (1-0)

       The table costs about as much as looking up 80 rows; 256 share it. That takes 46 KB of the
       stack. Zen 1 reads a prompt of 128 at 1.5 times the speed of panels of 4 columns. Zen 3,
       which multiplies twice a cycle, reads it at 0.87 times the speed of panels of 6: so
       bitnet__suit_cpu asks the CPU. Panels still multiply few rows, rows with a code 3, and TL2.
       Cycles of each loop for prompts: python3 tests/checks/inner_loops.py table gcc

   BOUNDS, for codes up to 3 and q from -128 to 127, n <= 2^20: 8192 blocks
       avx2, int16        Tile: lo, of 4 * code, 2 * 12 * 128 = 3072 from a vpmaddubsw, far from its
                          saturation, two a block, 24576 in 4 blocks; hi a quarter of that. Then
                          lo / 4 + hi <= 12288. Panel: 32 k-steps of 768 are 24576.
       avx2, int32        2 * 24576 = 49152 to a lane each time that the int16 are emptied.
       VNNI, int32        Tile: 4 * 12 * 128 = 6144 to a lane from a vpdpbusd, two a block, together
                          100663296. Panel: 4 * 3 * 128 = 1536 to a lane a k-step.
       looked-up sums     int16: no code 3, so 128 weights are at most 128 * 128 = 16384.
       TL2                Codes up to 2. avx2, int16: 2 * 2 * 128 = 512 from a vpmaddubsw, 24 of
                          them, a block, 12288. avx512: 4 * 2 * 128 = 1024 to a lane from a
                          vpdpbusd, all of a row in one lane: 256 n, within the next line's.
       AMX                4 * 3 * 128 = 1536 to an element of C for 4 weights, and 128 n less at the
                          beginning, minus the sum of q: within the next line's.
       all, int32         All lanes together 384 n, at most 402653184; before or after that minus
                          the sum of q, at most 128 n = 2^27. int32 goes to 2^31.
       quantize           The sum of q + 128: at most 255 n < 2^28.
       dotrows_u4         A vpmaddubsw gives at most 2 * 15 * 128 = 3840, 4 of them in int16 15360.
                          All lanes together 1920 n, for n <= 2^20 under 2^31; then minus 8 times
                          the sum of q, 1024 n. */

#ifndef BITNET__ISA

#if BITNET__KERNEL_ABI != 13
  #error "bitnet_kernels_x86.h and bitnet.h are of different releases"
#endif
#define BITNET__HAVE_SIMD
#define BITNET__PACK_BYTES(group, bits) (BITNET__PACK_SCALES + 2 * (bits) * (group))
#define BITNET__PACKS_avx2 bitnet__pack_groups_avx2
#define BITNET__PACKS_avxvnni bitnet__pack_groups_avxvnni
#define BITNET__PACKS_avx512vnni bitnet__pack_groups_avx512vnni
#define BITNET__PACKS_amx bitnet__pack_groups_avx512vnni

#ifdef __cplusplus
}   /* the compiler's headers have their own linkage */
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

/* gcc has VNNI from version 8; clang-cl's immintrin.h hides what no option has enabled; MSVC for 32
   bits cannot pass structures of vectors (C2719). */
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

/* AMX: gcc from 11, clang from 12. It needs the permission of Linux. */
#if !BITNET__AVX512 || defined(BITNET_NO_AMX) || !defined(__x86_64__) || !defined(__linux__) || \
    (defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 11) || \
    (defined(__clang__) && __clang_major__ < 12)
  #define BITNET__AMX 0
#else
  #define BITNET__AMX 1
#endif

#if defined(__GNUC__) || defined(__clang__)
  #define BITNET__TARGET_avx2 __attribute__((target("avx2,fma,f16c")))
  #define BITNET__TARGET_avxvnni __attribute__((target("avx2,fma,f16c,avxvnni")))
  #define BITNET__TARGET_avx512vnni \
      __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
  #define BITNET__TARGET_avx512vbmi \
      __attribute__(( \
          target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi")))
  #define BITNET__TARGET_amx \
      __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni," \
                            "amx-tile,amx-int8")))
#else
  #define BITNET__TARGET_avx2
  #define BITNET__TARGET_avxvnni
  #define BITNET__TARGET_avx512vnni
  #define BITNET__TARGET_avx512vbmi
#endif

/* gcc 12 carries the sums of vpdpbusd from one iteration to the next through a second set of
   registers, and the copies take a third of the time; a statement that may have changed a sum
   prevents that. A sum that grows by an addition needs ADDED: gcc would put it where the term was,
   or make all terms first and keep a sum in memory for them, as clang does. The statement reads the
   term after the addition, so the term keeps its register until then. NO_AHEAD prevents early loads
   by clang: no load moves across a statement that may have changed memory. */
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
   may have changed a vector makes it load the vector. clang 19 does so without it. */
#if defined(__clang__) && __clang_major__ < 19
  #define BITNET__WHOLE(v) __asm__("" : "+x"(v))
#else
  #define BITNET__WHOLE(v) ((void)0)
#endif

/* Functions with the hottest loops. Where in a cache line a loop begins changes its time by up to
   10 % on Zen 3. They begin with a line, so a change elsewhere does not move their loops. */
#if defined(__GNUC__) || defined(__clang__)
  #define BITNET__HOT static __attribute__((noinline, aligned(64)))
#else
  #define BITNET__HOT static
#endif

/* Before plain C is called from a kernel. Until the upper halves of the wide registers are zero
   again, SSE instructions wait for them. Compilers see to that where a kernel returns, but gcc 12
   forgets it where a kernel ends with a call: dequantize alone made a prompt 16 % slower so. */
#define BITNET__LEAVE() _mm256_zeroupper()

/* Prefetches for arrays that are read from start to end. Only a few lines at a time can be on their
   way into L1, so a line goes into L2 `far` bytes before it is needed, and into L1 `near` bytes
   before. Once for each 64 bytes, spread over the work: TL2's tiles of AVX-512 are 10 to 20 %
   faster than with all of a block's at once. An address past the end does no harm. STREAM_BLOCK is
   for AVX2's block of TL2; STREAM_VALUES for the cache's values, where a shorter way is 5 to 20 %
   faster. */
#define BITNET__AHEAD(p, far, near) \
    (_mm_prefetch((const char *)((uintptr_t)(p) + (far)), _MM_HINT_T1), \
     _mm_prefetch((const char *)((uintptr_t)(p) + (near)), _MM_HINT_T0))
#define BITNET__STREAM(p) BITNET__AHEAD(p, 16384, 4096)
#define BITNET__STREAM_VALUES(p) BITNET__AHEAD(p, 4096, 1024)
#define BITNET__STREAM_BLOCK(p) \
    (BITNET__STREAM(p), BITNET__STREAM((p) + 64), BITNET__STREAM((p) + 128), \
     BITNET__STREAM((p) + 192), BITNET__STREAM((p) + 256))

/* Weights that come into the L2 cache while the panel before them is multiplied: a line of each of
   some rows, then the next line of each. */
typedef struct bitnet__ahead {
    uintptr_t at, end;                 /* of the first row: its next line, and behind its last */
    size_t stride;                     /* from row to row */
    int row, rows;                     /* the next one, and how many there are */
} bitnet__ahead;

/* A line of each page at once: so the CPU looks up several addresses at a time. One by one each
   would keep the multiplication waiting. */
BITNET__INLINE bitnet__ahead bitnet__make_ahead(const uint8_t *first, size_t offset, int bytes,
                                                int rows, size_t stride) {
    bitnet__ahead a;
    size_t page;
    a.at = (uintptr_t)first + offset;
    for (page = 0; page < (size_t)rows * stride; page += 4096)
        _mm_prefetch((const char *)(a.at + page), _MM_HINT_T1);
    a.end = a.at + (size_t)bytes;
    a.stride = stride;
    a.row = 0;
    a.rows = rows;
    return a;
}

/* One line. If all were asked for at once, the unpacking that follows would wait for them: few can
   be on their way into the L1 cache and past it at a time. */
BITNET__INLINE void bitnet__fetch_line(bitnet__ahead *a) {
    if (a->at >= a->end) return;
    _mm_prefetch((const char *)(a->at + (size_t)a->row * a->stride), _MM_HINT_T1);
    if (++a->row < a->rows) return;
    a->row = 0;
    a->at += 64;
}

/* What the body compiles: functions of a register width, integer dots of an instruction set, its
   k-steps through a panel by vpdpbusd, its TL2, its tiles of TL2 as AVX-512 has them. */
#define BITNET__WIDTH 1
#define BITNET__DOTS 2
#define BITNET__VNNI_STEPS 4
#ifndef BITNET_NO_TL2
  #define BITNET__TL2 8
  #define BITNET__TL2_ZMM 16
#else
  #define BITNET__TL2 0
  #define BITNET__TL2_ZMM 0
#endif
#define BITNET__NAME2(name, isa) name##isa
#define BITNET__NAME(name, isa) BITNET__NAME2(name, isa)
#define BITNET__V(x) BITNET__NAME(bitnet__##x##_, BITNET__BASE)
#define BITNET__I(x) BITNET__NAME(bitnet__##x##_, BITNET__ISA)
#define BITNET__TARGET BITNET__NAME(BITNET__TARGET_, BITNET__ISA)

/* For the row kernels of bitnet.h. */
#define BITNET__FLOATS BITNET__V(v16)
#define BITNET__PER_VECTOR 16
#define BITNET__COUNTS __m128i
#define BITNET__UNROLL64 BITNET__UNROLL
#define BITNET__ROUND_AT_ONCE 0

/* Tiles are 4 rows and up to 4 columns (tokens) or so: the sums stay in registers, each weight,
   once loaded and unpacked, serves all columns, each activation 4 rows, and no addition waits for
   the one before. Past the last row or column a tile repeats the last one and drops the copies.

   Two vectors of L lanes of int32 hold the dots of a panel's 2 L rows with one column, each row in
   a lane of its own, so no sum goes across lanes. For that the codes lie crosswise, 4 of each row
   side by side:

       panel[k][half]    lane           0           1       ...      L - 1
                         row         half L    half L + 1   ...   half L + L - 1
                         weights   4k .. 4k+3   4k .. 4k+3  ...    4k .. 4k+3      a code a byte

   K-step k multiplies this by activations 4k .. 4k+3 of a column, repeated in all lanes. PANEL
   k-steps of zmm are 32 KB. TL2 has panels of whole blocks of TL2 (24 k-steps) and of I2_S (32).
   WIDE floats of values are what attention converts at a time; with few columns it takes MIX_ROWS
   rows of F16. */
enum { BITNET__TILE = 4, BITNET__PANEL = 256, BITNET__PANEL_TL2 = 192, BITNET__WIDE = 4096,
       BITNET__MIX_ROWS = 16 };

#ifndef BITNET_NO_TL2
/* ---- TL2, in plain C: the twin of the -tl2 tables, and what they share ---- */

static const uint8_t bitnet__tl2_codes[3][32] = {   /* a, b, c; by nibble, then fifth 0 and 1 */
    {0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 0,
     0, 1, 2, 2, 1, 0, 1, 2, 2, 1, 0, 1, 2, 2, 1, 0},
    {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0,
     0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0},
    {0, 0, 0, 2, 2, 0, 0, 0, 2, 2, 0, 0, 0, 2, 2, 0,
     1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 0}
};
static const uint8_t bitnet__tl2_pack[2][16] = {    /* the way back: m, s by a + 4 c */
    {0, 1, 2, 0, 0, 1, 2, 0, 3, 4, 3, 0, 0, 0, 0, 0},
    {0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0}
};

static size_t bitnet__packed_bytes_tl2(int n, int rows) {
    return (size_t)((rows + 15) / 16) * bitnet__tl2_bytes((n + 23) / 24);
}

/* Code i of a row of I2_S; 0 past its end. */
static uint32_t bitnet__i2s_code(const uint8_t *row, int n, int i) {
    return i < n ? (uint32_t)row[i / 128 * 32 + i % 32] >> (6 - 2 * (i % 128 / 32)) & 3u : 0u;
}

static int bitnet__pack_tl2_scalar(const uint8_t *i2s, int n, int rows, uint8_t *out) {
    const int count = (n + 23) / 24;
    uint32_t bad = 0;
    int r, i, x;
    memset(out, 0, bitnet__packed_bytes_tl2(n, rows));
    for (r = 0; r < (rows + 15) / 16 * 16; r++) {
        const uint8_t *row = i2s + (size_t)(r < rows ? r : rows - 1) * (size_t)(n / 4);
        uint8_t *pack = out + (size_t)(r / 16) * bitnet__tl2_bytes(count) + r % 16 * 4;
        for (i = 0; i < count; i++) {
            uint8_t *block = pack + (size_t)(i / 4) * BITNET__TL2_BLOCK;
            for (x = 0; x < 8; x++) {  /* h = x / 4, t = x % 4 */
                const int at = 24 * i + x / 4 * 12 + x % 4;
                const uint32_t a = bitnet__i2s_code(row, n, at);
                const uint32_t b = bitnet__i2s_code(row, n, at + 4);
                const uint32_t c = bitnet__i2s_code(row, n, at + 8);
                const uint32_t nibble = (5 * b + bitnet__tl2_pack[0][a + 4 * c]) & 15;
                const uint32_t fifth = bitnet__tl2_pack[1][a + 4 * c];
                bad |= (a & a >> 1) | (b & b >> 1) | (c & c >> 1);
                block[64 + i % 4 * 64 + x % 4] |= (uint8_t)(nibble << x / 4 * 4);
                block[x % 4] |= (uint8_t)(fifth << (i % 4 * 2 + x / 4));
            }
        }
    }
    return bad != 0;
}

/* Bound: as for I2_S, with codes up to 2. */
static void bitnet__dotrows_tl2_scalar(const bitnet__dots *d) {
    const int count = (d->n + 23) / 24;
    int r, c, i, x, k, at;
    for (r = 0; r < d->rows; r++) {
        const uint8_t *pack = d->w + (size_t)(r / 16) * bitnet__tl2_bytes(count) + r % 16 * 4;
        for (c = 0; c < d->cols; c++) {
            const int8_t *a = d->q + (size_t)c * d->q_stride;
            int32_t dot = 0;
            for (i = 0; i < count; i++) {
                const uint8_t *block = pack + (size_t)(i / 4) * BITNET__TL2_BLOCK;
                for (x = 0; x < 8; x++) {
                    const int nibble = block[64 + i % 4 * 64 + x % 4] >> x / 4 * 4 & 15;
                    const int fifth = block[x % 4] >> (i % 4 * 2 + x / 4) & 1;
                    for (k = 0, at = 24 * i + x / 4 * 12 + x % 4; k < 3 && at < d->n; k++, at += 4)
                        dot += bitnet__tl2_codes[k][nibble + 16 * fifth] * a[at];
                }
            }
            d->out[(size_t)c * d->stride + (size_t)r] = dot - d->sums[c];
        }
    }
}

static const bitnet_kernels bitnet__kernels_scalar_tl2 = {
    "scalar-tl2", 0, "TL2_R16", BITNET__TL2_ROWS, bitnet__packed_bytes_tl2, bitnet__pack_tl2_scalar,
    BITNET__SCALAR_ENTRIES(bitnet__dotrows_tl2_scalar)
};
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

/* The registers that the system saves: bits 1 and 2 for xmm and ymm, 5 to 7 for opmask and zmm, 17
   and 18 for tiles. */
static uint32_t bitnet__saved_registers(void) {
#ifdef _MSC_VER
    return (uint32_t)_xgetbv(0);
#else
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
#endif
}

#if BITNET__AMX
/* Whether Linux lets this process use tiles of AMX: ARCH_REQ_XCOMP_PERM for XFEATURE_XTILEDATA.
   Permission holds until the process ends. It may be asked for any number of times. */
static int bitnet__may_use_tiles(void) {
    enum { arch_prctl = 158, request_permission = 0x1023, tile_data = 18 };
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"((long)arch_prctl), "D"((long)request_permission), "S"((long)tile_data)
                     : "rcx", "r11", "memory");
    return result == 0;
}
#endif

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
#if BITNET__AMX
    if ((leaf7[3] >> 24 & 3) == 3 && (saved >> 17 & 3) == 3 && bitnet__may_use_tiles())
        features |= BITNET_CPU_AMX;
#endif
    return features;
}

#if BITNET__AVX2 || BITNET__AVX512
/* The last two levels of the trees of 4 rows; lanes 8 and 4 apart are already added. Transposing
   puts lane j of row r into lane r of register j. */
BITNET__INLINE BITNET__TARGET_avx2 void bitnet__end_column(__m128 s0, __m128 s1, __m128 s2,
                                                           __m128 s3, int rows, float *out) {
    float dots[4];
    _MM_TRANSPOSE4_PS(s0, s1, s2, s3);
    _mm_storeu_ps(dots, _mm_add_ps(_mm_add_ps(s0, s2), _mm_add_ps(s1, s3)));
    bitnet__put(out, dots, rows);
}

BITNET__INLINE BITNET__TARGET_avx2 float bitnet__largest_of_4(__m128 v) {
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
}

/* The same for one tree. */
BITNET__INLINE BITNET__TARGET_avx2 float bitnet__fold_to_1(__m128 s) {
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
#endif

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
BITNET__V16(add) BITNET__V16(sub) BITNET__V16(mul) BITNET__V16(div) BITNET__V16(min)
BITNET__V16(max)
#undef BITNET__V16

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

BITNET__FN bitnet__v16_avx2 bitnet__flip_avx2(bitnet__v16_avx2 v, const int h) {
    const bitnet__v16_avx2 x = v;
    if (h == 8) {
        v.lo = x.hi;
        v.hi = x.lo;
        return v;
    }
    v.lo = h == 1 ? _mm256_permute_ps(x.lo, 0xb1) : h == 2 ? _mm256_permute_ps(x.lo, 0x4e)
                  : _mm256_permute2f128_ps(x.lo, x.lo, 1);
    v.hi = h == 1 ? _mm256_permute_ps(x.hi, 0xb1) : h == 2 ? _mm256_permute_ps(x.hi, 0x4e)
                  : _mm256_permute2f128_ps(x.hi, x.hi, 1);
    return v;
}

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

BITNET__FN bitnet__v16_avx2 bitnet__from_f16_avx2(__m256i v) {
    bitnet__v16_avx2 f;
    f.lo = _mm256_cvtph_ps(_mm256_castsi256_si128(v));
    f.hi = _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1));
    return f;
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

BITNET__FN void bitnet__store256_avx2(void *p, __m256i v) {
    _mm256_storeu_si256((__m256i *)p, v);
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

/* The largest element. */
BITNET__FN float bitnet__largest_avx2(bitnet__v16_avx2 v) {
    const __m256 m = _mm256_max_ps(v.lo, v.hi);
    return bitnet__largest_of_4(_mm_max_ps(_mm256_castps256_ps128(m),
                                           _mm256_extractf128_ps(m, 1)));
}

/* Rounded, ties to even. The first pack works in each half: the order of 8s is 0 2 1 3, undone. */
BITNET__FN __m128i bitnet__to_int8_avx2(bitnet__v16_avx2 v) {
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(v.lo), _mm256_cvtps_epi32(v.hi));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
BITNET__FN void bitnet__end_tile_avx2(bitnet__v16_avx2 (*sum)[4], int rows, int cols, float *out,
                                      size_t out_stride, const int tile_cols) {
    int c;
    for (c = 0; c < tile_cols && c < cols; c++)
        bitnet__end_column(bitnet__fold_avx2(sum[c][0]), bitnet__fold_avx2(sum[c][1]),
                           bitnet__fold_avx2(sum[c][2]), bitnet__fold_avx2(sum[c][3]), rows,
                           out + (size_t)c * out_stride);
}

/* Dots of many columns. A tile of 4 by 4 has no registers here: one of 4 rows, 2 columns and half
   of the lanes goes through a run of elements, which stay in L1 for the other half. The runs of 8
   rows, and their sums with 32 columns, stay there as well, so that L2 has time to bring the
   columns. */
enum { BITNET__RUN_AVX2 = 256, BITNET__RUN_ROWS_AVX2 = 8, BITNET__RUN_COLS_AVX2 = 32 };

BITNET__FN void bitnet__half_run_avx2(const uint8_t *const *row, const float *x, size_t second,
                                      int n, bitnet__v16_avx2 (*sum)[4], const int upper) {
    __m256 to[2][4], a[2], w;
    int i, r, c;
    BITNET__UNROLL for (c = 0; c < 2; c++) {
        BITNET__UNROLL for (r = 0; r < 4; r++) to[c][r] = upper ? sum[c][r].hi : sum[c][r].lo;
    }
    for (i = 8 * upper; i < n; i += 16) {
        BITNET__UNROLL for (c = 0; c < 2; c++) a[c] = _mm256_loadu_ps(x + (c ? second : 0) + i);
        BITNET__UNROLL for (r = 0; r < 4; r++) {
            w = _mm256_loadu_ps((const float *)(const void *)row[r] + i);
            BITNET__UNROLL for (c = 0; c < 2; c++)
                to[c][r] = _mm256_add_ps(to[c][r], _mm256_mul_ps(w, a[c]));
        }
    }
    BITNET__UNROLL for (c = 0; c < 2; c++) {
        BITNET__UNROLL for (r = 0; r < 4; r++) *(upper ? &sum[c][r].hi : &sum[c][r].lo) = to[c][r];
    }
}

/* At most 8 rows and 32 columns. */
BITNET__HOT BITNET__TARGET_avx2 void bitnet__some_dots_avx2(const uint8_t *w, const float *x, int n,
                                                            int rows, int cols, float *out,
                                                            size_t out_stride) {
    bitnet__v16_avx2 sum[BITNET__RUN_ROWS_AVX2 / 4][BITNET__RUN_COLS_AVX2][4];
    const uint8_t *row[BITNET__RUN_ROWS_AVX2];
    int c, r, k;
    memset(sum, 0, sizeof sum);
    for (k = 0; k < n; k += BITNET__RUN_AVX2) {
        const int len = n - k < BITNET__RUN_AVX2 ? n - k : BITNET__RUN_AVX2;
        for (r = 0; r < BITNET__RUN_ROWS_AVX2; r++)
            row[r] = w + 4 * (bitnet__clamp(r, rows) * (size_t)n + (size_t)k);
        for (c = 0; c < cols; c += 2) {            /* an odd last column twice */
            const float *a = x + (size_t)c * (size_t)n + k;
            const size_t second = c + 1 < cols ? (size_t)n : 0;
            for (r = 0; r < rows; r += 4) {
                bitnet__half_run_avx2(row + r, a, second, len, sum[r / 4] + c, 0);
                bitnet__half_run_avx2(row + r, a, second, len, sum[r / 4] + c, 1);
            }
        }
    }
    for (r = 0; r < rows; r += 4)
        bitnet__end_tile_avx2(sum[r / 4], rows - r, cols, out + r, out_stride,
                              BITNET__RUN_COLS_AVX2);
}

BITNET__FN void bitnet__many_dots_avx2(const uint8_t *w, const float *x, int n, int rows, int cols,
                                       float *out, size_t out_stride) {
    int r, c;
    for (c = 0; c < cols; c += BITNET__RUN_COLS_AVX2)
        for (r = 0; r < rows; r += BITNET__RUN_ROWS_AVX2) {
            const int some = rows - r < BITNET__RUN_ROWS_AVX2 ? rows - r : BITNET__RUN_ROWS_AVX2;
            const int few = cols - c < BITNET__RUN_COLS_AVX2 ? cols - c : BITNET__RUN_COLS_AVX2;
            bitnet__some_dots_avx2(w + 4 * (size_t)r * (size_t)n, x + (size_t)c * (size_t)n, n,
                                   some, few, out + (size_t)c * out_stride + r, out_stride);
        }
}

/* Vectors of int32, and pairs of sums. With 4 columns, a tile has 8 sums, 2 vectors of weights, 2
   masks and 2 products. */
typedef __m256i bitnet__i32_avx2;
typedef struct bitnet__pair_avx2 { __m256i lo, hi; } bitnet__pair_avx2;
enum { bitnet__lanes_avx2 = 8, bitnet__key_cols_avx2 = 1, bitnet__mix_vectors_avx2 = 1,
       bitnet__key_vectors_avx2 = 1, bitnet__wide_cols_avx2 = 4, bitnet__many_from_avx2 = 8,
       bitnet__together_avx2 = 1, bitnet__few_together_avx2 = 1, bitnet__tile_cols_avx2 = 4,
       bitnet__depth_avx2 = 4, bitnet__group_cols_avx2 = 4,
       bitnet__panel_cols_avx2 = 6, bitnet__panels_from_avx2 = 12, bitnet__u4_cols_avx2 = 8,
       bitnet__tl2_cols_avx2 = 4, bitnet__key_offset_avx2 = 0,
       bitnet__score_cols_avx2 = 3 };

#define BITNET__I32(op) \
    BITNET__FN __m256i bitnet__##op##_avx2(__m256i a, __m256i b) { return _mm256_##op(a, b); }
BITNET__I32(add_epi32) BITNET__I32(sub_epi32)
BITNET__I32(unpacklo_epi32) BITNET__I32(unpackhi_epi32)
BITNET__I32(unpacklo_epi64) BITNET__I32(unpackhi_epi64)
#undef BITNET__I32

BITNET__FN __m256i bitnet__splat_i32_avx2(int32_t x) { return _mm256_set1_epi32(x); }
BITNET__FN __m256i bitnet__load_i_avx2(const void *p) { return bitnet__load256_avx2(p); }
BITNET__FN void bitnet__store_i_avx2(void *p, __m256i v) { _mm256_storeu_si256((__m256i *)p, v); }

/* 16 bytes at p, and as many `apart` bytes on. */
BITNET__FN __m256i bitnet__load_lanes_avx2(const uint8_t *p, size_t apart) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(bitnet__load128_avx2(p)),
                                   bitnet__load128_avx2(p + apart), 1);
}

/* 32 bytes at at[0] + offset, or 28 and 4 zeros, or 16 there and at at[1] + offset. */
BITNET__FN __m256i bitnet__load_parts_avx2(const uint8_t *const *at, size_t offset,
                                           const int bytes) {
    if (bytes == 28)
        return _mm256_maskload_epi32((const int *)(const void *)(at[0] + offset),
                                     _mm256_setr_epi32(-1, -1, -1, -1, -1, -1, -1, 0));
    if (bytes == 32) return bitnet__load256_avx2(at[0] + offset);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(bitnet__load128_avx2(at[0] + offset)),
                                   bitnet__load128_avx2(at[1] + offset), 1);
}

/* The sums of pairs of lanes of two vectors, in order of lanes within 128 bits: a, a, b, b. A sum
   fits int16. */
BITNET__FN __m256i bitnet__pair_sums_avx2(__m256i a, __m256i b) {
    return _mm256_madd_epi16(_mm256_packs_epi32(a, b), _mm256_set1_epi16(1));
}

/* The sums of a block's lanes of 128 bits: v[0] has them all, or the first 4 blocks, and v[1] the
   others. */
BITNET__FN __m256i bitnet__fold_lanes_avx2(const __m256i *v, const int count) {
    if (count == 1) return v[0];
    return _mm256_add_epi32(_mm256_permute2x128_si256(v[0], v[1], 0x20),
                            _mm256_permute2x128_si256(v[0], v[1], 0x31));
}

/* 4 activations in all lanes. */
BITNET__FN __m256i bitnet__repeat4_avx2(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, 4);
    return _mm256_set1_epi32(four);
}

/* The bits of mask, after a shift. */
BITNET__FN __m256i bitnet__masked_avx2(__m256i v, const int shift, __m256i mask) {
    return _mm256_and_si256(shift ? _mm256_srli_epi32(v, shift) : v, mask);
}

/* Codes number i of a word's bytes, in the order of activations. Of one bit: even bits, then odd
   ones, as codes 0 and 2. */
BITNET__FN __m256i bitnet__pack_codes_avx2(__m256i v, const int i, const int bits) {
    if (bits == 2) return bitnet__masked_avx2(v, 2 * i, _mm256_set1_epi8(3));
    return bitnet__masked_avx2(i ? v : _mm256_add_epi32(v, v),
                               i ? (i < 4 ? 2 * i - 1 : 2 * i - 8) : 0, _mm256_set1_epi8(2));
}

BITNET__FN __m256i bitnet__shift_right_avx2(__m256i v, int count) {
    return _mm256_srl_epi32(v, _mm_cvtsi32_si128(count));
}

/* Masks the first count lanes. */
BITNET__FN __m256i bitnet__first_avx2(int count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
}

/* A whole vector needs no mask: on AMD a masked store takes as long as some 40 instructions. */
BITNET__FN __m256i bitnet__load_first_avx2(const int32_t *p, int count) {
    return count < 8 ? _mm256_maskload_epi32(p, bitnet__first_avx2(count)) :
                       bitnet__load256_avx2(p);
}

BITNET__FN void bitnet__store_first_avx2(int32_t *p, int count, __m256i v) {
    if (count < 8) _mm256_maskstore_epi32(p, bitnet__first_avx2(count), v);
    else bitnet__store256_avx2(p, v);
}

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

/* 16 bytes each of every 4th row of 8. */
BITNET__FN __m256i bitnet__every4_avx2(const uint8_t *w, size_t row_bytes) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(bitnet__load128_avx2(w)),
                                   bitnet__load128_avx2(w + 4 * row_bytes), 1);
}

BITNET__FN __m256i bitnet__codes_avx2(__m256i v, int shift) {
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8(3));
}

/* A k-step of a panel: 4 weights of 16 rows times 4 activations of 6 columns, at most 768 to a
   lane. 12 sums, 2 vectors of weights, 1 of activations and 1 of products: 16 registers. */
BITNET__FN void bitnet__k_step_avx2(__m256i (*partial)[2], const __m256i *weights,
                                    const int8_t *const *col, size_t at) {
    const __m256i w0 = weights[0], w1 = weights[1];
    int c;
    BITNET__UNROLL for (c = 0; c < bitnet__panel_cols_avx2; c++) {
        const __m256i a = bitnet__repeat4_avx2(col[c] + at);
        __m256i p = _mm256_maddubs_epi16(w0, a);
        partial[c][0] = _mm256_add_epi16(partial[c][0], p);
        BITNET__ADDED(partial[c][0], p);
        p = _mm256_maddubs_epi16(w1, a);
        partial[c][1] = _mm256_add_epi16(partial[c][1], p);
        BITNET__ADDED(partial[c][1], p);
        BITNET__NO_AHEAD();
    }
}

/* The 32 k-steps of a block are added in int16, at most 24576, and then go into int32: 12 sums of
   16 bits are what the registers hold. Also a line of the next panel's weights for every 8. */
BITNET__FN void bitnet__k_steps_avx2(const __m256i (*panel)[2], int k_steps,
                                     const int8_t *const *col, __m256i (*sum)[2],
                                     bitnet__ahead *ahead) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i partial[bitnet__panel_cols_avx2][2];
    int c, k, i, j;
    for (k = 0; k < k_steps; k += 32) {
        for (i = 0; i < 4; i++) bitnet__fetch_line(ahead);
        BITNET__UNROLL for (c = 0; c < bitnet__panel_cols_avx2; c++)
            partial[c][0] = partial[c][1] = _mm256_setzero_si256();
        for (i = k; i < k + 32; i += 4) {
            BITNET__UNROLL for (j = i; j < i + 4; j++)
                bitnet__k_step_avx2(partial, panel[j], col, (size_t)j * 4);
        }
        BITNET__UNROLL for (c = 0; c < bitnet__panel_cols_avx2; c++) {
            sum[c][0] = _mm256_add_epi32(sum[c][0], _mm256_madd_epi16(partial[c][0], ones));
            sum[c][1] = _mm256_add_epi32(sum[c][1], _mm256_madd_epi16(partial[c][1], ones));
        }
    }
}

#ifndef BITNET_NO_GROUPS
/* A scale group of a row pack with some columns, all of it in int16. A k-step has 8 sums, 2 vectors
   of codes as they lie, 2 of codes, 1 of activations, 2 of products and a mask.

   Bound: an int16 gets group / 2 products of at most 128 times a code: with codes up to 2 and 256
   weights -32768 to 32512, with codes up to 3 and 128 weights 24576 either way. */
BITNET__FN void bitnet__group_avx2(const uint8_t *w, const int8_t *q, int n, int group,
                                   const int bits, __m256i (*dots)[2], const int tile_cols) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int in_byte = 8 / bits;
    __m256i partial[4][2], w0, w1;
    int c, i, s;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++)
        partial[c][0] = partial[c][1] = _mm256_setzero_si256();
    for (i = 0; i < group; i += 4 * in_byte, w += 64, q += 4 * in_byte) {
        const __m256i v0 = bitnet__load256_avx2(w), v1 = bitnet__load256_avx2(w + 32);
        BITNET__STREAM(w);
        BITNET__UNROLL for (s = 0; s < in_byte; s++) {
            w0 = bitnet__pack_codes_avx2(v0, s, bits);
            w1 = bitnet__pack_codes_avx2(v1, s, bits);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                const __m256i a = bitnet__repeat4_avx2(q + (size_t)c * (size_t)n + 4 * s);
                const __m256i p0 = _mm256_maddubs_epi16(w0, a), p1 = _mm256_maddubs_epi16(w1, a);
                partial[c][0] = _mm256_add_epi16(partial[c][0], p0);
                partial[c][1] = _mm256_add_epi16(partial[c][1], p1);
                BITNET__ADDED(partial[c][0], p0);
                BITNET__ADDED(partial[c][1], p1);
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        dots[c][0] = _mm256_madd_epi16(partial[c][0], ones);
        dots[c][1] = _mm256_madd_epi16(partial[c][1], ones);
    }
}
#endif

/* 16 integers as floats, each minus less. */
BITNET__FN bitnet__v16_avx2 bitnet__minus_avx2(const __m256i *dots, int32_t less) {
    const __m256i v = _mm256_set1_epi32(less);
    bitnet__v16_avx2 y;
    y.lo = _mm256_cvtepi32_ps(_mm256_sub_epi32(dots[0], v));
    y.hi = _mm256_cvtepi32_ps(_mm256_sub_epi32(dots[1], v));
    return y;
}

/* 16 integers as floats, each minus its less. */
BITNET__FN bitnet__v16_avx2 bitnet__minus_each_avx2(const __m256i *dots, const int32_t *less) {
    bitnet__v16_avx2 y;
    y.lo = _mm256_cvtepi32_ps(_mm256_sub_epi32(dots[0], bitnet__load256_avx2(less)));
    y.hi = _mm256_cvtepi32_ps(_mm256_sub_epi32(dots[1], bitnet__load256_avx2(less + 8)));
    return y;
}

/* 3 times bytes, modulo 256; the digit that goes out is that and carry, which come of doubling and
   of adding once more. */
BITNET__FN __m256i bitnet__tripled_avx2(__m256i v) {
    return _mm256_add_epi8(_mm256_add_epi8(v, v), v);
}
BITNET__FN __m256i bitnet__digit_avx2(__m256i v, __m256i tripled) {
    const __m256i one = _mm256_set1_epi8(1);
    const __m256i none = _mm256_cmpeq_epi8(_mm256_max_epu8(tripled, v), tripled);
    return _mm256_add_epi8(_mm256_and_si256(_mm256_srli_epi16(v, 7), one),
                           _mm256_add_epi8(none, one));
}
BITNET__FN __m256i bitnet__shifted_up_avx2(__m256i v, int count) {
    return _mm256_sll_epi32(v, _mm_cvtsi32_si128(count));
}
BITNET__FN __m256i bitnet__down8_avx2(__m256i v) { return _mm256_srai_epi32(v, 8); }
BITNET__FN __m256i bitnet__down6_avx2(__m256i v) { return _mm256_srai_epi32(v, 6); }

BITNET__FN __m256i bitnet__products_avx2(__m256i sum, __m256i w, __m256i a) {
    const __m256i pairs = _mm256_maddubs_epi16(w, a);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* Bytes of keys times a query: the sum of two products would not fit 16 bits. So the sign of a key
   goes to the query: 2 * 128 * 127 fits. Then nothing is to be subtracted: key_offset, which
   elsewhere is 128 times the sum of q, is 0. */
BITNET__FN __m256i bitnet__key_products_avx2(__m256i sum, __m256i w, __m256i a) {
    const __m256i k = _mm256_xor_si256(w, _mm256_set1_epi8((char)-128));
    return bitnet__products_avx2(sum, _mm256_abs_epi8(k), _mm256_sign_epi8(a, k));
}

#ifndef BITNET_NO_TL2
/* ---- TL2, AVX2 ---- */

typedef struct bitnet__tl2_avx2 { __m256i a, b, c, low, one; } bitnet__tl2_avx2;

BITNET__FN __m256i bitnet__repeat16_avx2(const uint8_t *table) {
    return _mm256_broadcastsi128_si256(bitnet__load128_avx2(table));
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
BITNET__FN void bitnet__half_tl2_avx2(const bitnet__tl2_avx2 *t, __m256i fifths,
                                      const uint8_t *nibbles, const int i, const int h,
                                      __m256i codes[3]) {
    const __m256i v = bitnet__load256_avx2(nibbles);
    const __m256i nibble = _mm256_and_si256(_mm256_srli_epi32(v, 4 * h), t->low);
    const __m256i s = _mm256_and_si256(_mm256_srli_epi32(fifths, 2 * i + h), t->one);
    const __m256i c = _mm256_shuffle_epi8(t->c, nibble);
    codes[0] = _mm256_add_epi8(_mm256_shuffle_epi8(t->a, nibble), _mm256_sign_epi8(c, s));
    codes[1] = _mm256_shuffle_epi8(t->b, nibble);
    codes[2] = _mm256_max_epu8(c, s);
}

BITNET__FN void bitnet__triples_tl2_avx2(const bitnet__tl2_avx2 *t, __m256i fifths,
                                         const uint8_t *nibbles, const int i,
                                         __m256i codes[2][3]) {
    bitnet__half_tl2_avx2(t, fifths, nibbles, i, 0, codes[0]);
    bitnet__half_tl2_avx2(t, fifths, nibbles, i, 1, codes[1]);
}

/* 12 weights of 8 rows, three times: half h of nibbles i. */
BITNET__FN void bitnet__dots12_tl2_avx2(const bitnet__tl2_avx2 *t, __m256i fifths,
                                        const uint8_t *nibbles, const int i, const int h,
                                        const int8_t *const *col, size_t at, __m256i *partial,
                                        const int tile_cols) {
    __m256i codes[3];
    int c, x;
    bitnet__half_tl2_avx2(t, fifths, nibbles, i, h, codes);
    BITNET__UNROLL for (x = 0; x < 3; x++) {
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            const __m256i p =
                _mm256_maddubs_epi16(codes[x], bitnet__repeat4_avx2(col[c] + at + x * 4));
            partial[c] = _mm256_add_epi16(partial[c], p);
            BITNET__ADDED(partial[c], p);
        }
    }
}

/* A block of 8 rows. */
BITNET__FN void bitnet__block_tl2_avx2(const bitnet__tl2_avx2 *t, const uint8_t *block,
                                       const int8_t *const *col, size_t at, __m256i *sum,
                                       const int tile_cols) {
    __m256i partial[4];
    int c, i;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) partial[c] = _mm256_setzero_si256();
    if (tile_cols == 1 || tile_cols == 4) {        /* unrolled: 4 to 7 % faster */
        BITNET__UNROLL for (i = 0; i < 8; i++)
            bitnet__dots12_tl2_avx2(t, bitnet__load256_avx2(block), block + 64 + i / 2 * 64, i / 2,
                                    i % 2, col, at + (size_t)i * 12, partial, tile_cols);
    } else {
        __m256i fifths = bitnet__load256_avx2(block);
        for (i = 0; i < 4; i++, fifths = _mm256_srli_epi32(fifths, 2)) {
            const uint8_t *nibbles = block + 64 + i * 64;
            const size_t first = at + (size_t)i * 24;
            bitnet__dots12_tl2_avx2(t, fifths, nibbles, 0, 0, col, first, partial, tile_cols);
            bitnet__dots12_tl2_avx2(t, fifths, nibbles, 0, 1, col, first + 12, partial, tile_cols);
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++)
        sum[c] = _mm256_add_epi32(sum[c], _mm256_madd_epi16(partial[c], _mm256_set1_epi16(1)));
}

/* The weights of a row pack after its last whole block, for up to 4 columns. */
BITNET__APART BITNET__TARGET_avx2 void bitnet__rest_tl2_avx2(const uint8_t *w, const int8_t *q,
                                                             size_t q_stride, int n, int cols,
                                                             __m256i (*sum)[4]) {
    const bitnet__tl2_avx2 t = bitnet__start_tl2_avx2();
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i codes[2][3];
    int8_t end[4][96];
    int c, i, x, half;
    for (c = 0; c < cols; c++) {
        memset(end[c], 0, 96);
        memcpy(end[c], q + (size_t)c * q_stride + n / 96 * 96, (size_t)(n % 96));
    }
    for (half = 0; half < 2; half++, w += 32) {
        const __m256i fifths = bitnet__load256_avx2(w);
        for (i = 0; i < (n % 96 + 23) / 24; i++) {
            bitnet__triples_tl2_avx2(&t, bitnet__shift_right_avx2(fifths, 2 * i), w + 64 + i * 64,
                                     0, codes);
            for (c = 0; c < cols; c++) {
                __m256i partial = _mm256_setzero_si256();
                BITNET__UNROLL for (x = 0; x < 6; x++)
                    partial = _mm256_add_epi16(partial, _mm256_maddubs_epi16(
                        codes[x / 3][x % 3], bitnet__repeat4_avx2(end[c] + i * 24 + x * 4)));
                sum[half][c] = _mm256_add_epi32(sum[half][c], _mm256_madd_epi16(partial, ones));
            }
        }
    }
}

/* Each half of a row pack on its own: the registers hold no more. */
BITNET__FN void bitnet__tile_tl2_avx2(const bitnet__dots *d, const int tile_cols) {
    const bitnet__tl2_avx2 t = bitnet__start_tl2_avx2();
    const int8_t *col[4];
    __m256i sum[4], dots[2][4];
    int c, b, half;
    for (c = 0; c < tile_cols; c++) dots[0][c] = dots[1][c] = _mm256_set1_epi32(-d->sums[c]);
    if (d->n % 96)
        bitnet__rest_tl2_avx2(d->w + (size_t)(d->n / 96) * BITNET__TL2_BLOCK, d->q, d->q_stride,
                              d->n, tile_cols, dots);
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) col[c] = d->q + (size_t)c * d->q_stride;
    for (half = 0; half < 2 && half * 8 < d->rows; half++) {
        const uint8_t *p = d->w + half * 32;
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) sum[c] = dots[half][c];
        for (b = 0; b < d->n / 96; b++, p += BITNET__TL2_BLOCK) {
            bitnet__block_tl2_avx2(&t, p, col, (size_t)b * 96, sum, tile_cols);
            BITNET__STREAM_BLOCK(p);
        }
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            bitnet__store_first_avx2(d->out + (size_t)c * d->stride + half * 8, d->rows - half * 8,
                                     sum[c]);
    }
}
#endif

#define BITNET__ISA avx2
#define BITNET__BASE avx2
#define BITNET__PARTS (BITNET__WIDTH | BITNET__DOTS | BITNET__TL2)
#include "bitnet_kernels_x86.h"

/* ---- I2_S, AVX2: looked-up sums, for many columns ----
   See LOOKED-UP SUMS above. A k-step is 8 bytes of every row, 32 weights, and 16 columns. */
enum {
    BITNET__SUMS = 81,                 /* that a byte of weights can select, without a code 3 */
    BITNET__LOOK_ROWS = 256,           /* that share the sums of a k-step, at most */
    BITNET__LOOK_LEAST = 64,           /* and at least: for fewer, the sums would take most time */
    BITNET__LOOK_K_STEPS = 4,          /* at a time: a block, so that their entries have 16 KB */
    BITNET__LOOK_COLS = 16,
    BITNET__LOOK_FROM = 48             /* columns; Zen 1 gains from 14 on */
};

/* The entries of a k-step's rows, as bytes from the table on. */
typedef uint16_t bitnet__look[BITNET__LOOK_ROWS * 8];

/* 8 bytes of 16 columns become 8 vectors of 16 columns. */
BITNET__FN void bitnet__turn_avx2(const int8_t *const *col, int k, __m128i *to) {
    __m128i a[8], b[8];
    int i, round;
    BITNET__UNROLL for (i = 0; i < 8; i++)
        a[i] = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)(const void *)(col[i] + k)),
                                 _mm_loadl_epi64((const __m128i *)(const void *)(col[i + 8] + k)));
    BITNET__UNROLL for (round = 0; round < 3; round++) {
        BITNET__UNROLL for (i = 0; i < 4; i++) {
            b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 4]);
            b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 4]);
        }
        BITNET__UNROLL for (i = 0; i < 8; i++) a[i] = b[i];
    }
    BITNET__UNROLL for (i = 0; i < 8; i++) to[i] = a[i];
}

/* The sums of (code - 1) * q for the codes of one byte and 16 columns, q0 for bits 7-6. */
BITNET__FN void bitnet__sums_avx2(__m256i q0, __m256i q1, __m256i q2, __m256i q3, __m256i *to) {
    __m256i low[9], sum, high = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_add_epi16(q0, q1));
    int i, j, l;
    low[0] = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_add_epi16(q2, q3));
    low[1] = _mm256_add_epi16(low[0], q3);
    low[2] = _mm256_add_epi16(low[1], q3);
    BITNET__UNROLL for (l = 3; l < 9; l++) low[l] = _mm256_add_epi16(low[l - 3], q2);
    for (i = 0; i < 3; i++, high = _mm256_add_epi16(high, q0)) {
        for (j = 0, sum = high; j < 3; j++, sum = _mm256_add_epi16(sum, q1), to += 9) {
            BITNET__UNROLL for (l = 0; l < 8; l++) to[l] = _mm256_add_epi16(sum, low[l]);
            to[8] = _mm256_add_epi16(sum, low[8]);
        }
    }
}

/* The table of the k-step that begins with weight k. */
static BITNET__TARGET_avx2 void bitnet__table_avx2(const int8_t *const *col, int k,
                                                   __m256i *table) {
    __m128i q[4][8];
    int i, j;
    k = k / 128 * 128 + k % 128 / 4;
    for (i = 0; i < 4; i++) bitnet__turn_avx2(col, k + i * 32, q[i]);
    for (j = 0; j < 8; j++, table += BITNET__SUMS)
        bitnet__sums_avx2(_mm256_cvtepi8_epi16(q[0][j]), _mm256_cvtepi8_epi16(q[1][j]),
                          _mm256_cvtepi8_epi16(q[2][j]), _mm256_cvtepi8_epi16(q[3][j]), table);
}

/* The entries that a block of each row selects, 8 bytes for a k-step. The codes of a byte are a
   number of base 4; half a byte, 4 a + b, becomes 3 a + b, and the whole, 16 a + b, 9 a + b. */
static BITNET__TARGET_avx2 void bitnet__find_avx2(const uint8_t *w, size_t row_bytes, int rows,
                                                  bitnet__look *at) {
    const int place = BITNET__SUMS * 32;
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_mullo_epi16(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7), _mm_set1_epi16((short)place)));
    int r, i;
    for (r = 0; r < 8 * rows; r += 8, w += row_bytes) {
        __m256i v = bitnet__load256_avx2(w), half[2];
        v = _mm256_sub_epi8(v, _mm256_and_si256(_mm256_srli_epi16(v, 2), _mm256_set1_epi8(0x33)));
        v = _mm256_add_epi8(
            _mm256_sub_epi8(v, _mm256_and_si256(_mm256_srli_epi16(v, 1), _mm256_set1_epi8(0x78))),
            _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(0x0f)));
        half[0] = _mm256_unpacklo_epi8(v, _mm256_setzero_si256());     /* k-steps 0 and 2 */
        half[1] = _mm256_unpackhi_epi8(v, _mm256_setzero_si256());     /* 1 and 3 */
        BITNET__UNROLL for (i = 0; i < 2; i++) {
            const __m256i e = _mm256_add_epi16(first, _mm256_slli_epi16(half[i], 5));
            _mm_storeu_si128((__m128i *)(void *)(at[i] + r), _mm256_castsi256_si128(e));
            _mm_storeu_si128((__m128i *)(void *)(at[i + 2] + r), _mm256_extracti128_si256(e, 1));
        }
    }
}

/* Adds to the sums of each row what its 8 bytes select; `add` 0: to 0. Four entries are loaded at a
   time: two of 32 bytes can be loaded in a cycle, and hardly more than that. */
BITNET__FN void bitnet__look_up_avx2(const uint16_t *at, int rows, const __m256i *table,
                                     const int add, __m256i *sum) {
    int r, i, j;
    for (r = 0; r < rows; r++, at += 8) {
        __m256i s = add ? sum[r] : _mm256_setzero_si256();
        BITNET__UNROLL for (i = 0; i < 8; i += 4) {
            uint64_t four;
            memcpy(&four, at + i, sizeof four);
            BITNET__UNROLL for (j = 0; j < 4; j++)
                s = _mm256_add_epi16(s, bitnet__load256_avx2((const uint8_t *)table +
                                                             (uint16_t)(four >> 16 * j)));
        }
        sum[r] = s;
    }
}

/* Half 0 or 1 of a vector in memory. */
BITNET__FN __m128i bitnet__half_avx2(const __m256i *v, int half) {
    return bitnet__load128_avx2((const uint8_t *)(const void *)v + 16 * half);
}

/* Writes the sums of 8 rows and 8 columns; or adds them, with add. `half`: of the 16 columns. */
BITNET__FN void bitnet__put_sums_avx2(const __m256i *sum, int half, const int add, int32_t *out,
                                      size_t out_stride) {
    __m128i a[8], b[8];
    int i, round;
    BITNET__UNROLL for (i = 0; i < 4; i++) {
        const __m128i low = bitnet__half_avx2(sum + i, half);
        const __m128i high = bitnet__half_avx2(sum + i + 4, half);
        a[2 * i] = _mm_unpacklo_epi16(low, high);
        a[2 * i + 1] = _mm_unpackhi_epi16(low, high);
    }
    BITNET__UNROLL for (round = 1; round < 3; round++) {
        BITNET__UNROLL for (i = 0; i < 4; i++) {
            b[2 * i] = _mm_unpacklo_epi16(a[i], a[i + 4]);
            b[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + 4]);
        }
        BITNET__UNROLL for (i = 0; i < 8; i++) a[i] = b[i];
    }
    BITNET__UNROLL for (i = 0; i < 8; i++, out += out_stride) {
        __m256i v = _mm256_cvtepi16_epi32(a[i]);
        if (add) v = _mm256_add_epi32(v, bitnet__load256_avx2(out));
        bitnet__store256_avx2(out, v);
    }
}

/* The same for fewer rows or columns. */
BITNET__APART BITNET__TARGET_avx2 void bitnet__put_few_sums_avx2(const __m256i *sum, int half,
                                                                 int rows, int cols, int add,
                                                                 int32_t *out, size_t out_stride) {
    const size_t bytes = (size_t)(rows < 8 ? rows : 8) * sizeof *out;
    int32_t tail[64] = {0};
    int c;
    for (c = 0; add && c < 8 && c < cols; c++)
        memcpy(tail + 8 * c, out + (size_t)c * out_stride, bytes);
    bitnet__put_sums_avx2(sum, half, 1, tail, 8);
    for (c = 0; c < 8 && c < cols; c++) memcpy(out + (size_t)c * out_stride, tail + 8 * c, bytes);
}

/* The sums of all rows and up to 8 columns. */
BITNET__APART BITNET__TARGET_avx2 void bitnet__put_all_sums_avx2(const __m256i *sum, int half,
                                                                 int rows, int cols, int add,
                                                                 int32_t *out, size_t out_stride) {
    for (; rows > 0; rows -= 8, sum += 8, out += 8) {
        if (rows < 8 || cols < 8)
            bitnet__put_few_sums_avx2(sum, half, rows, cols, add, out, out_stride);
        else if (add) bitnet__put_sums_avx2(sum, half, 1, out, out_stride);
        else bitnet__put_sums_avx2(sum, half, 0, out, out_stride);
    }
}

/* Up to LOOK_ROWS rows without a code 3, a block of each at a time. */
BITNET__APART BITNET__TARGET_avx2 void bitnet__look_up_i2s_avx2(const bitnet__dots *d) {
    const int n = d->n, rows = d->rows, cols = d->cols;
    __m256i table[8 * BITNET__SUMS], sum[BITNET__LOOK_ROWS + 7];
    bitnet__look at[BITNET__LOOK_K_STEPS];
    const int8_t *col[BITNET__LOOK_COLS];
    int k, c, i, half;
    for (k = 0; k < n; k += 32 * BITNET__LOOK_K_STEPS) {
        bitnet__find_avx2(d->w + k / 4, (size_t)(n / 4), rows, at);
        for (c = 0; c < cols; c += BITNET__LOOK_COLS) {
            for (i = 0; i < BITNET__LOOK_COLS; i++)
                col[i] = d->q + bitnet__clamp(c + i, cols) * d->q_stride;
            for (i = 0; i < BITNET__LOOK_K_STEPS; i++) {
                bitnet__table_avx2(col, k + 32 * i, table);
                if (i) bitnet__look_up_avx2(at[i], rows, table, 1, sum);
                else bitnet__look_up_avx2(at[i], rows, table, 0, sum);
            }
            for (half = 0; half < 2 && c + 8 * half < cols; half++)
                bitnet__put_all_sums_avx2(sum, half, rows, cols - c - 8 * half, k > 0,
                                          d->out + (size_t)(c + 8 * half) * d->stride, d->stride);
        }
    }
}

/* Is there a code 3? n is a multiple of 32. */
static BITNET__TARGET_avx2 int bitnet__has_code3_avx2(const uint8_t *w, size_t n) {
    __m256i threes = _mm256_setzero_si256(), v;
    size_t i;
    for (i = 0; i < n; i += 32) {
        v = bitnet__load256_avx2(w + i);
        threes = _mm256_or_si256(threes, _mm256_and_si256(v, _mm256_srli_epi16(v, 1)));
    }
    return !_mm256_testz_si256(threes, _mm256_set1_epi8(0x55));
}

/* Few rows, or those with a code 3, go to panels. */
static BITNET__TARGET_avx2 void bitnet__sums_i2s_avx2(const bitnet__dots *d) {
    if (d->rows < BITNET__LOOK_LEAST ||
        bitnet__has_code3_avx2(d->w, bitnet__i2s_bytes(d->n, d->rows)))
        bitnet__panels_i2s_avx2(d);
    else bitnet__look_up_i2s_avx2(d);
}

static BITNET__TARGET_avx2 void bitnet__dotrows_looked_up_avx2(const bitnet__dots *d) {
    if (d->cols < BITNET__LOOK_FROM) bitnet__dotrows_i2s_avx2(d);
    else
        bitnet__tiles_and_panels(d, bitnet__tiles_i2s_avx2, bitnet__sums_i2s_avx2,
                                 BITNET__LOOK_COLS, BITNET__LOOK_FROM, bitnet__i2s_bytes);
}

/* Does the CPU start two multiplications of 32 bytes in a cycle? Then AVX2 looks up nothing. Zen 3
   does, and is the first of AMD with VAES; Intel's CPUs with VAES have better tables. */
static int bitnet__multiplies_twice(void) {
    uint32_t leaf7[4];
    bitnet__cpuid(7, 0, leaf7);
    return leaf7[2] >> 9 & 1;
}

/* k is a copy of a table. If it is AVX2's, and the CPU multiplies slowly, it looks sums up. */
static void bitnet__suit_cpu(bitnet_kernels *k) {
    if (k->dotrows_i2s != bitnet__dotrows_i2s_avx2 || bitnet__multiplies_twice()) return;
    if (k->dotrows_ternary == k->dotrows_i2s) k->dotrows_ternary = bitnet__dotrows_looked_up_avx2;
    k->dotrows_i2s = bitnet__dotrows_looked_up_avx2;
}
#define BITNET__SUIT_CPU bitnet__suit_cpu

/* ---- rows of Q4_K, of the head ----
   A weight is unpacked in a register: its code in 32 bits, to a float, and one FMA, which rounds
   once where the scalar code does, because the product is exact (see @formats). An upper half stays
   where it is, 16 times its code, and the scale is a 16th, which is exact, too. The sums are those
   of dotrows_f32. AVX-512's tables use this function, too. */

/* The scales of the 8 sub-blocks of a block, then their minima. */
BITNET__FN void bitnet__scales_q4_k_avx2(const uint8_t *p, float *f) {
    const uint32_t a = bitnet__get_u32(p + 4), b = bitnet__get_u32(p + 8);
    const uint32_t c = bitnet__get_u32(p + 12), six = 0x3f3f3f3fu, four = 0x0f0f0f0fu;
    const uint32_t upper = 0x30303030u;
    const __m128 d = _mm_cvtph_ps(_mm_cvtsi32_si128((int)bitnet__get_u32(p)));
    const __m128i sub = _mm_set_epi32((int)((c >> 4 & four) | (b >> 2 & upper)), (int)(b & six),
                                      (int)((c & four) | (a >> 2 & upper)), (int)(a & six));
    const __m256i least = _mm256_cvtepu8_epi32(_mm_srli_si128(sub, 8));
    _mm256_storeu_ps(f, _mm256_mul_ps(_mm256_broadcastss_ps(d),
                                      _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(sub))));
    _mm256_storeu_ps(f + 8, _mm256_mul_ps(_mm256_broadcastss_ps(_mm_shuffle_ps(d, d, 0x55)),
                                          _mm256_cvtepi32_ps(least)));
}

/* The 32 weights of a sub-block times x, added to sum. */
BITNET__FN void bitnet__add_q4_k_avx2(const __m256i *q, float scale, float least, const float *x,
                                      bitnet__v16_avx2 *sum) {
    const __m256 f = _mm256_set1_ps(scale), g = _mm256_set1_ps(least);
    __m256 w[4];
    int j;
    BITNET__UNROLL for (j = 0; j < 4; j++)
        w[j] = _mm256_mul_ps(_mm256_fmsub_ps(f, _mm256_cvtepi32_ps(q[j]), g),
                             _mm256_loadu_ps(x + 8 * j));
    sum->lo = _mm256_add_ps(_mm256_add_ps(sum->lo, w[0]), w[2]);
    sum->hi = _mm256_add_ps(_mm256_add_ps(sum->hi, w[1]), w[3]);
}

BITNET__HOT BITNET__TARGET_avx2 void bitnet__tile_q4_k_avx2(const uint8_t *w, const float *x, int n,
                                                            int rows, float *out) {
    const __m256i low = _mm256_set1_epi32(15), high = _mm256_set1_epi32(0xf0);
    bitnet__v16_avx2 sum[1][4];
    float f[16];
    __m256i q[4], half[4];
    int r, i, j, s;
    for (r = 0; r < 4; r++) {          /* one after the other, as memory lies */
        const uint8_t *p = w + bitnet__clamp(r, rows) * ((size_t)n / 256 * 144);
        bitnet__v16_avx2 total;
        const float *a = x;
        total.lo = total.hi = _mm256_setzero_ps();
        for (i = 0; i < n; i += 256) {
            bitnet__scales_q4_k_avx2(p, f);
            p += 16;
            for (s = 0; s < 8; s += 2, p += 32, a += 64) {
                if (s % 4 == 0) BITNET__STREAM(p);
                BITNET__UNROLL for (j = 0; j < 4; j++)
                    q[j] = _mm256_cvtepu8_epi32(
                        _mm_loadl_epi64((const __m128i *)(const void *)(p + 8 * j)));
                BITNET__UNROLL for (j = 0; j < 4; j++) half[j] = _mm256_and_si256(q[j], low);
                bitnet__add_q4_k_avx2(half, f[s], f[8 + s], a, &total);
                BITNET__UNROLL for (j = 0; j < 4; j++) half[j] = _mm256_and_si256(q[j], high);
                bitnet__add_q4_k_avx2(half, f[s + 1] * 0.0625f, f[9 + s], a + 32, &total);
            }
        }
        sum[0][r] = total;
    }
    bitnet__end_tile_avx2(sum, rows, 1, out, 0, 1);
}

static BITNET__TARGET_avx2 void bitnet__dotrows_q4_k_avx2(const uint8_t *w, const float *x, int n,
                                                          int rows, int cols, float *out,
                                                          size_t out_stride) {
    int r, c;
    for (r = 0; r < rows; r += 4, w += 4 * ((size_t)n / 256 * 144))
        for (c = 0; c < cols; c++)
            bitnet__tile_q4_k_avx2(w, x + (size_t)c * (size_t)n, n, rows - r,
                                   out + (size_t)c * out_stride + (size_t)r);
}
#define BITNET__Q4_K_avx2 bitnet__dotrows_q4_k_avx2

static const bitnet_kernels bitnet__kernels_avx2 = {
    "avx2", BITNET_CPU_AVX2 | BITNET_CPU_F16C, BITNET__LAYOUT_I2S,
    BITNET__ENTRIES(avx2, avx2, avx2, bitnet__dotrows_i2s_avx2)
};

#ifndef BITNET_NO_TL2
/* Packs TL2 from panels of I2_S: k-steps 3 j, 3 j + 1 and 3 j + 2 hold the codes a, b and c of 4
   triples of each row. The panel is padded with zeros to whole 24 weights. */
static BITNET__TARGET_avx2 int bitnet__pack_tl2_avx2(const uint8_t *i2s, int n, int rows,
                                                     uint8_t *out) {
    const size_t pack_bytes = bitnet__tl2_bytes((n + 23) / 24);
    const __m256i ms = bitnet__repeat16_avx2(bitnet__tl2_pack[0]);
    const __m256i ss = bitnet__repeat16_avx2(bitnet__tl2_pack[1]);
    const __m256i zero = _mm256_setzero_si256();
    bitnet__panel_avx2 panel;
    bitnet__dots d;
    __m256i bad = zero;
    int r, k, k_steps, half, i, h;
    memset(&d, 0, sizeof d);
    d.w = i2s;
    d.n = n;
    d.rows = rows;
    for (r = 0; r < rows; r += 16) {
        for (k = 0; k < n / 4; k += k_steps) {
            k_steps = n / 4 - k < BITNET__PANEL_TL2 ? n / 4 - k : BITNET__PANEL_TL2;
            bitnet__unpack_i2s_avx2(&d, r, 4 * k, 4 * k_steps, &panel);
            for (i = k_steps; i % 6; i++) panel.codes[i][0] = panel.codes[i][1] = zero;
            for (half = 0; half < 2; half++) {
                uint8_t *block = out + (size_t)(r / 16) * pack_bytes + half * 32 +
                                 (size_t)(k / 24) * BITNET__TL2_BLOCK;
                __m256i fifths = zero, bit = zero;
                for (i = 0; i * 6 < k_steps; i++) {
                    __m256i nibbles[2];
                    if (i % 4 == 0) {
                        fifths = zero;
                        bit = _mm256_set1_epi8(1);
                    }
                    BITNET__UNROLL for (h = 0; h < 2; h++) {
                        const __m256i a = panel.codes[6 * i + 3 * h][half];
                        const __m256i b = panel.codes[6 * i + 3 * h + 1][half];
                        const __m256i c = panel.codes[6 * i + 3 * h + 2][half];
                        const __m256i ac = _mm256_or_si256(a, _mm256_slli_epi32(c, 2));
                        const __m256i s = _mm256_shuffle_epi8(ss, ac);
                        bad = _mm256_or_si256(bad, _mm256_and_si256(a, _mm256_srli_epi32(a, 1)));
                        bad = _mm256_or_si256(bad, _mm256_and_si256(b, _mm256_srli_epi32(b, 1)));
                        bad = _mm256_or_si256(bad, _mm256_and_si256(c, _mm256_srli_epi32(c, 1)));
                        nibbles[h] = _mm256_add_epi8(b, _mm256_slli_epi32(b, 2));
                        nibbles[h] = _mm256_add_epi8(nibbles[h], _mm256_shuffle_epi8(ms, ac));
                        fifths = _mm256_or_si256(
                            fifths, _mm256_and_si256(bit, _mm256_sub_epi8(zero, s)));
                        bit = _mm256_add_epi8(bit, bit);
                    }
                    nibbles[1] = _mm256_slli_epi32(nibbles[1], 4);
                    bitnet__store256_avx2(block + 64 + i % 4 * 64,
                                          _mm256_or_si256(nibbles[0], nibbles[1]));
                    if (i % 4 == 3 || i * 6 + 6 >= k_steps) {
                        bitnet__store256_avx2(block, fifths);
                        block += BITNET__TL2_BLOCK;
                    }
                }
            }
        }
    }
    return !_mm256_testz_si256(bad, bad);
}

static const bitnet_kernels bitnet__kernels_avx2_tl2 = {
    "avx2-tl2", BITNET_CPU_AVX2 | BITNET_CPU_F16C,
    "TL2_R16", BITNET__TL2_ROWS, bitnet__packed_bytes_tl2, bitnet__pack_tl2_avx2,
    BITNET__ENTRIES(avx2, avx2, avx2, bitnet__dotrows_tl2_avx2)
};
#endif
#define BITNET__PACK_TL2 bitnet__pack_tl2_avx2
#undef BITNET__FN
#else
#define BITNET__PACK_TL2 bitnet__pack_tl2_scalar
#endif

#if BITNET__AVXVNNI
/* ---- AVX-VNNI: vpdpbusd on ymm; what is not a dot of integers is AVX2's ---- */

#define BITNET__FN BITNET__INLINE BITNET__TARGET_avxvnni

/* A tile of 6 columns has 12 sums, 2 vectors of weights and 2 masks: 16 registers; a k-step of a
   panel has 12 sums, 2 vectors of weights and 1 of activations. 12 sums hide a latency of 5 or 6;
   so 1 and 2 columns take two rows at a time. A thread of Zen 5 reaches 155 to 169 GMAC/s with 8
   columns and rows of 2560 weights, and 146 with weights of 4 bits. Tiles of 2 rows by 3 columns
   reach 140 to 145, since gcc keeps two of their sums in memory, and tiles of 2 columns with 4 bits
   reach 80. */
enum { bitnet__together_avxvnni = 1, bitnet__few_together_avxvnni = 2,
       bitnet__tile_cols_avxvnni = 6, bitnet__depth_avxvnni = BITNET__MAX_ROW / 128,
       bitnet__panel_cols_avxvnni = 6, bitnet__k_steps_at_once_avxvnni = 1,
       bitnet__panels_from_avxvnni = 12, bitnet__group_cols_avxvnni = 4,
       bitnet__group_panels_from_avxvnni = 12, bitnet__u4_cols_avxvnni = 8,
       bitnet__key_offset_avxvnni = 128, bitnet__score_cols_avxvnni = 4 };

BITNET__FN __m256i bitnet__products_avxvnni(__m256i sum, __m256i w, __m256i a) {
    return _mm256_dpbusd_avx_epi32(sum, w, a);
}

BITNET__FN __m256i bitnet__key_products_avxvnni(__m256i sum, __m256i w, __m256i a) {
    sum = bitnet__products_avxvnni(sum, w, a);
    BITNET__IN_PLACE(sum);
    return sum;
}

BITNET__FN bitnet__pair_avx2 bitnet__dot_avxvnni(bitnet__pair_avx2 sum, bitnet__pair_avx2 w,
                                                 const int8_t *a) {
    sum.lo = bitnet__products_avxvnni(sum.lo, w.lo, bitnet__load256_avx2(a));
    sum.hi = bitnet__products_avxvnni(sum.hi, w.hi, bitnet__load256_avx2(a + 32));
    BITNET__IN_PLACE(sum.lo);
    BITNET__IN_PLACE(sum.hi);
    return sum;
}

BITNET__FN __m256i bitnet__settle_avxvnni(bitnet__pair_avx2 sum) {
    return _mm256_add_epi32(_mm256_srai_epi32(sum.lo, 2), sum.hi);
}

#define BITNET__ISA avxvnni
#define BITNET__BASE avx2
#define BITNET__PARTS (BITNET__DOTS | BITNET__VNNI_STEPS)
#include "bitnet_kernels_x86.h"

static const bitnet_kernels bitnet__kernels_avxvnni = {
    "avxvnni", BITNET_CPU_AVX2 | BITNET_CPU_F16C | BITNET_CPU_AVXVNNI, BITNET__LAYOUT_I2S,
    BITNET__ENTRIES(avx2, avxvnni, avxvnni, bitnet__dotrows_i2s_avxvnni)
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
BITNET__V16(add) BITNET__V16(sub) BITNET__V16(mul) BITNET__V16(div) BITNET__V16(min)
BITNET__V16(max)
#undef BITNET__V16

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

BITNET__FN __m512 bitnet__flip_avx512vnni(__m512 v, const int h) {
    return h == 1 ? _mm512_permute_ps(v, 0xb1) : h == 2 ? _mm512_permute_ps(v, 0x4e)
         : h == 4 ? _mm512_shuffle_f32x4(v, v, 0xb1) : _mm512_shuffle_f32x4(v, v, 0x4e);
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

BITNET__FN __m512 bitnet__from_f16_avx512vnni(__m256i v) { return _mm512_cvtph_ps(v); }

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

BITNET__FN float bitnet__largest_avx512vnni(__m512 v) {
    const __m256 m = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return bitnet__largest_of_4(_mm_max_ps(_mm256_castps256_ps128(m),
                                           _mm256_extractf128_ps(m, 1)));
}

BITNET__FN __m128i bitnet__to_int8_avx512vnni(__m512 v) {
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v));
}

/* 16 trees at once, one level in each round. A round makes one register of two: shuffles bring the
   halves that are to be added into the same lanes. The last register has all 16 sums. */
BITNET__FN void bitnet__end_tile_avx512vnni(__m512 (*sum)[4], int rows, int cols, float *out,
                                            size_t out_stride, const int tile_cols) {
    const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512 v[4], s01, s23;
    float dots[16];
    int c;
    if (tile_cols == 1) {
        bitnet__end_column(bitnet__fold_avx512vnni(sum[0][0]), bitnet__fold_avx512vnni(sum[0][1]),
                           bitnet__fold_avx512vnni(sum[0][2]), bitnet__fold_avx512vnni(sum[0][3]),
                           rows, out);
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

/* A tile of 6 columns, of I2_S or 4 bits, has 24 sums, 4 vectors of weights, 1 of activations and a
   mask: 10 loads for 24 vpdpbusd. A k-step of a panel has 16 sums, 2 vectors of weights and 1 of
   activations: 10 loads for 16. An iteration has 4 k-steps, since the loop's own instructions would
   take ports from vpdpbusd. Only its weights are unpacked once for all columns. That pays late
   where vpdpbusd can start in two of four ports (Zen 4, Zen 5), as in tiles the codes then take
   ports that are idle. Zen 4, as shares of its peak in tiles and panels: 24 columns 83 and 78 %
   with rows of 2560 weights, 88 and 76 % with 6912; 32 columns 83 and 86, 88 and 86. With a scale
   per group and 16 columns, which an expert of Maple gets of a prompt of 512, 94 and 81. An Intel
   Xeon (Emerald Rapids), where the codes take the same two ports: 24 columns 72 and 83, 76 and 80;
   with weights from memory both are equally fast. */
typedef __m512i bitnet__i32_avx512vnni, bitnet__pair_avx512vnni;
enum { bitnet__lanes_avx512vnni = 16, bitnet__key_cols_avx512vnni = 4,
       bitnet__mix_vectors_avx512vnni = 4,
       bitnet__key_vectors_avx512vnni = 2, bitnet__wide_cols_avx512vnni = 8,
       bitnet__many_from_avx512vnni = 16,
       bitnet__together_avx512vnni = 4, bitnet__few_together_avx512vnni = 4,
       bitnet__tile_cols_avx512vnni = 6, bitnet__depth_avx512vnni = BITNET__MAX_ROW / 128,
       bitnet__panel_cols_avx512vnni = 8, bitnet__k_steps_at_once_avx512vnni = 4,
       bitnet__panels_from_avx512vnni = 32,
       bitnet__u4_cols_avx512vnni = 6, bitnet__group_cols_avx512vnni = 8,
       bitnet__group_panels_from_avx512vnni = 24, bitnet__tl2_cols_avx512vnni = 8,
       bitnet__key_offset_avx512vnni = 128, bitnet__score_cols_avx512vnni = 4 };

#define BITNET__I32(op) \
    BITNET__FN __m512i bitnet__##op##_avx512vnni(__m512i a, __m512i b) { \
        return _mm512_##op(a, b); \
    }
BITNET__I32(add_epi32) BITNET__I32(sub_epi32)
BITNET__I32(unpacklo_epi32) BITNET__I32(unpackhi_epi32)
BITNET__I32(unpacklo_epi64) BITNET__I32(unpackhi_epi64)
#undef BITNET__I32

/* 16 integers as floats, each minus less. */
BITNET__FN __m512 bitnet__minus_avx512vnni(const __m512i *dots, int32_t less) {
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(*dots, _mm512_set1_epi32(less)));
}

BITNET__FN __m512i bitnet__splat_i32_avx512vnni(int32_t x) { return _mm512_set1_epi32(x); }
BITNET__FN __m512i bitnet__load_i_avx512vnni(const void *p) { return _mm512_loadu_si512(p); }
BITNET__FN void bitnet__store_i_avx512vnni(void *p, __m512i v) { _mm512_storeu_si512(p, v); }

/* 16 bytes at each of four places, `apart` bytes from one to the next. */
BITNET__FN __m512i bitnet__load_lanes_avx512vnni(const uint8_t *p, size_t apart) {
    __m512i v = _mm512_castsi128_si512(bitnet__load128_avx512vnni(p));
    v = _mm512_inserti32x4(v, bitnet__load128_avx512vnni(p + apart), 1);
    v = _mm512_inserti32x4(v, bitnet__load128_avx512vnni(p + 2 * apart), 2);
    return _mm512_inserti32x4(v, bitnet__load128_avx512vnni(p + 3 * apart), 3);
}
/* 64 bytes at at[0] + offset, or 32, or 28 and 4 zeros, there and at at[1] + offset, or 16 at each
   of four. */
BITNET__FN __m512i bitnet__load_parts_avx512vnni(const uint8_t *const *at, size_t offset,
                                                 const int bytes) {
    __m512i v;
    if (bytes == 64) return _mm512_loadu_si512(at[0] + offset);
    if (bytes == 28)
        return _mm512_inserti64x4(
            _mm512_castsi256_si512(_mm256_maskz_loadu_epi32(0x7f, at[0] + offset)),
            _mm256_maskz_loadu_epi32(0x7f, at[1] + offset), 1);
    if (bytes == 32)
        return _mm512_inserti64x4(
            _mm512_castsi256_si512(bitnet__load256_avx512vnni(at[0] + offset)),
            bitnet__load256_avx512vnni(at[1] + offset), 1);
    v = _mm512_castsi128_si512(bitnet__load128_avx512vnni(at[0] + offset));
    v = _mm512_inserti32x4(v, bitnet__load128_avx512vnni(at[1] + offset), 1);
    v = _mm512_inserti32x4(v, bitnet__load128_avx512vnni(at[2] + offset), 2);
    return _mm512_inserti32x4(v, bitnet__load128_avx512vnni(at[3] + offset), 3);
}

BITNET__FN __m512i bitnet__pair_sums_avx512vnni(__m512i a, __m512i b) {
    return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}

/* The sums of a block's lanes of 128 bits: v[i] has blocks 4 i to 4 i + 3 in four lanes, or, if
   count is 2, blocks 8 i to 8 i + 7 in two, or v[0] all in one. */
BITNET__FN __m512i bitnet__fold_lanes_avx512vnni(const __m512i *v, const int count) {
    __m512i a = v[0], b = v[count > 1];
    if (count == 1) return a;
    if (count == 4) {
        a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x44),
                             _mm512_shuffle_i32x4(v[0], v[1], 0xee));
        b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[count - 1], 0x44),
                             _mm512_shuffle_i32x4(v[2], v[count - 1], 0xee));
    }
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* 16 integers as floats, each minus its less. */
BITNET__FN __m512 bitnet__minus_each_avx512vnni(const __m512i *dots, const int32_t *less) {
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(*dots, _mm512_loadu_si512(less)));
}

BITNET__FN __m512i bitnet__tripled_avx512vnni(__m512i v) {
    return _mm512_add_epi8(_mm512_add_epi8(v, v), v);
}
BITNET__FN __m512i bitnet__digit_avx512vnni(__m512i v, __m512i tripled) {
    const __m512i one = _mm512_set1_epi8(1);
    const __m512i doubling = _mm512_and_si512(_mm512_srli_epi16(v, 7), one);
    return _mm512_mask_add_epi8(doubling, _mm512_cmplt_epu8_mask(tripled, v), doubling, one);
}
BITNET__FN __m512i bitnet__shifted_up_avx512vnni(__m512i v, int count) {
    return _mm512_sll_epi32(v, _mm_cvtsi32_si128(count));
}
BITNET__FN __m512i bitnet__down8_avx512vnni(__m512i v) { return _mm512_srai_epi32(v, 8); }
BITNET__FN __m512i bitnet__down6_avx512vnni(__m512i v) { return _mm512_srai_epi32(v, 6); }
BITNET__FN __m512i bitnet__no_pair_avx512vnni(void) { return _mm512_setzero_si512(); }

BITNET__FN __m512i bitnet__repeat4_avx512vnni(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, 4);
    return _mm512_set1_epi32(four);
}

BITNET__FN __m512i bitnet__masked_avx512vnni(__m512i v, const int shift, __m512i mask) {
    return _mm512_and_si512(shift ? _mm512_srli_epi32(v, (unsigned)shift) : v, mask);
}

BITNET__FN __m512i bitnet__pack_codes_avx512vnni(__m512i v, const int i, const int bits) {
    if (bits == 2) return bitnet__masked_avx512vnni(v, 2 * i, _mm512_set1_epi8(3));
    return bitnet__masked_avx512vnni(i ? v : _mm512_add_epi32(v, v),
                                     i ? (i < 4 ? 2 * i - 1 : 2 * i - 8) : 0, _mm512_set1_epi8(2));
}

BITNET__FN __m512i bitnet__shift_right_avx512vnni(__m512i v, int count) {
    return _mm512_srl_epi32(v, _mm_cvtsi32_si128(count));
}

/* Masks the first count lanes. */
BITNET__FN __mmask16 bitnet__first_avx512vnni(int count) {
    return (__mmask16)(count >= 16 ? 0xffff : count > 0 ? (1 << count) - 1 : 0);
}

BITNET__FN __m512i bitnet__load_first_avx512vnni(const int32_t *p, int count) {
    return _mm512_maskz_loadu_epi32(bitnet__first_avx512vnni(count), p);
}

BITNET__FN void bitnet__store_first_avx512vnni(int32_t *p, int count, __m512i v) {
    _mm512_mask_storeu_epi32(p, bitnet__first_avx512vnni(count), v);
}

/* lower in the lower 32 bytes, upper in the others. */
BITNET__FN __m512i bitnet__halves_avx512vnni(int lower, int upper) {
    return _mm512_inserti64x4(_mm512_set1_epi32(lower), _mm256_set1_epi32(upper), 1);
}

BITNET__FN __m512i bitnet__spread_avx512vnni(const uint8_t *p, const int i) {
    const __m512i mask = bitnet__halves_avx512vnni(0x0c0c0c0c, 0x03030303);
    const __m512i v = _mm512_broadcast_i64x4(bitnet__load256_avx512vnni(p));
    return _mm512_and_si512(i == 0 ? _mm512_srli_epi16(v, 4) : v, mask);
}

BITNET__FN __m512i bitnet__products_avx512vnni(__m512i sum, __m512i w, __m512i a) {
    return _mm512_dpbusd_epi32(sum, w, a);
}

BITNET__FN __m512i bitnet__key_products_avx512vnni(__m512i sum, __m512i w, __m512i a) {
    sum = bitnet__products_avx512vnni(sum, w, a);
    BITNET__IN_PLACE(sum);
    return sum;
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

/* 16 bytes each of every 4th row of 16. */
BITNET__FN __m512i bitnet__every4_avx512vnni(const uint8_t *w, size_t row_bytes) {
    __m512i v = _mm512_castsi128_si512(bitnet__load128_avx512vnni(w));
    v = _mm512_inserti32x4(v, bitnet__load128_avx512vnni(w + 4 * row_bytes), 1);
    v = _mm512_inserti32x4(v, bitnet__load128_avx512vnni(w + 8 * row_bytes), 2);
    return _mm512_inserti32x4(v, bitnet__load128_avx512vnni(w + 12 * row_bytes), 3);
}

BITNET__FN __m512i bitnet__codes_avx512vnni(__m512i v, unsigned shift) {
    return _mm512_and_si512(_mm512_srli_epi32(v, shift), _mm512_set1_epi8(3));
}

#ifndef BITNET_NO_TL2
/* ---- TL2, AVX-512 ---- */

typedef struct bitnet__tl2_avx512vnni { __m512i a, b, c, low, one; } bitnet__tl2_avx512vnni;

BITNET__FN __m512i bitnet__repeat16_avx512vnni(const uint8_t *table) {
    return _mm512_broadcast_i32x4(bitnet__load128_avx512vnni(table));
}

BITNET__FN bitnet__tl2_avx512vnni bitnet__start_tl2_avx512vnni(void) {
    bitnet__tl2_avx512vnni t;
    t.a = bitnet__repeat16_avx512vnni(bitnet__tl2_codes[0]);
    t.b = bitnet__repeat16_avx512vnni(bitnet__tl2_codes[1]);
    t.c = bitnet__repeat16_avx512vnni(bitnet__tl2_codes[2]);
    t.low = _mm512_set1_epi8(15);
    t.one = _mm512_set1_epi8(1);
    return t;
}

/* Codes of the nibbles whose fifths are in bits 2 i and 2 i + 1. The tables give the codes for
   s = 0. Under the mask of s = 1, where c is 0 it becomes 1; where it is 2, a becomes 2. */
BITNET__FN void bitnet__triples_tl2_avx512vnni(const bitnet__tl2_avx512vnni *t, __m512i fifths,
                                               const uint8_t *nibbles, const int i,
                                               __m512i codes[2][3]) {
    const __m512i v = _mm512_loadu_si512(nibbles);
    int h;
    BITNET__UNROLL for (h = 0; h < 2; h++) {
        const __m512i nibble = _mm512_and_si512(h ? _mm512_srli_epi32(v, 4) : v, t->low);
        const __m512i bit = _mm512_set1_epi8((char)(1 << (2 * i + h)));
        const __mmask64 s = _mm512_test_epi8_mask(fifths, bit);
        const __m512i a = _mm512_shuffle_epi8(t->a, nibble), c = _mm512_shuffle_epi8(t->c, nibble);
        codes[h][0] = _mm512_mask_max_epu8(a, s, a, c);
        codes[h][1] = _mm512_shuffle_epi8(t->b, nibble);
        codes[h][2] = _mm512_mask_max_epu8(c, s, c, t->one);
    }
}

/* vpermb looks a code up in a table of 64. The index has 6 bits: the nibble in bits 3-0, and the
   fifth in bit 4 (even, for any bit 5) or in bit 5 (odd, for any bit 4). */
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
    const bitnet__tl2_avx512vbmi *t, __m512i fifths, const uint8_t *nibbles, const int i,
    __m512i codes[2][3]) {
    const __m512i v = _mm512_loadu_si512(nibbles);
    const __m512i two = i == 0   ? _mm512_slli_epi32(fifths, 4)
                        : i == 1 ? _mm512_slli_epi32(fifths, 2)
                        : i == 2 ? fifths
                                 : _mm512_srli_epi32(fifths, 2);
    const __m512i even = _mm512_ternarylogic_epi32(v, two, t->low, 0xe4);   /* low ? v : two */
    const __m512i odd = _mm512_ternarylogic_epi32(_mm512_srli_epi32(v, 4), two, t->low, 0xe4);
    int k;
    BITNET__UNROLL for (k = 0; k < 3; k++) {
        codes[0][k] = _mm512_permutexvar_epi8(even, t->even[k]);
        codes[1][k] = _mm512_permutexvar_epi8(odd, t->odd[k]);
    }
}
#endif

#define BITNET__ISA avx512vnni
#define BITNET__BASE avx512vnni
#define BITNET__PARTS \
    (BITNET__WIDTH | BITNET__DOTS | BITNET__VNNI_STEPS | BITNET__TL2 | BITNET__TL2_ZMM)
#include "bitnet_kernels_x86.h"

/* As dotrows_q4_k_avx2 says. */
#if BITNET__AVX2
  #define BITNET__Q4_K_avx512vnni bitnet__dotrows_q4_k_avx2
#else
  #define BITNET__Q4_K_avx512vnni 0
#endif

static const bitnet_kernels bitnet__kernels_avx512vnni = {
    "avx512vnni", BITNET_CPU_AVX2 | BITNET_CPU_F16C | BITNET_CPU_AVX512 | BITNET_CPU_AVX512VNNI,
    BITNET__LAYOUT_I2S,
    BITNET__ENTRIES(avx512vnni, avx512vnni, avx512vnni, bitnet__dotrows_i2s_avx512vnni)
};

#ifndef BITNET_NO_TL2
#define BITNET__ISA avx512vbmi
#define BITNET__BASE avx512vnni
#define BITNET__PARTS BITNET__TL2_ZMM
#include "bitnet_kernels_x86.h"

/* VBMI for one column, where the codes are most of the work; more columns as in VNNI. */
BITNET__INLINE BITNET__TARGET_avx512vbmi int bitnet__tile_tl2_cols_avx512vbmi(
    const bitnet__dots *d) {
    bitnet__tile_tl2_avx512vbmi(d, 1);
    return 1;
}

static BITNET__TARGET_avx512vbmi void bitnet__dotrows_tl2_avx512vbmi(const bitnet__dots *d) {
    if (d->cols > 1) bitnet__dotrows_tl2_avx512vnni(d);
    else
        bitnet__tiles(d, bitnet__tile_tl2_cols_avx512vbmi, BITNET__TL2_ROWS,
                      bitnet__tl2_bytes((d->n + 23) / 24));
}

static const bitnet_kernels bitnet__kernels_avx512vnni_tl2 = {
    "avx512vnni-tl2",
    BITNET_CPU_AVX2 | BITNET_CPU_F16C | BITNET_CPU_AVX512 | BITNET_CPU_AVX512VNNI,
    "TL2_R16", BITNET__TL2_ROWS, bitnet__packed_bytes_tl2, BITNET__PACK_TL2,
    BITNET__ENTRIES(avx512vnni, avx512vnni, avx512vnni, bitnet__dotrows_tl2_avx512vnni)
};
static const bitnet_kernels bitnet__kernels_avx512vbmi_tl2 = {
    "avx512vbmi-tl2",
    BITNET_CPU_AVX2 | BITNET_CPU_F16C | BITNET_CPU_AVX512 | BITNET_CPU_AVX512VNNI |
        BITNET_CPU_AVX512VBMI,
    "TL2_R16", BITNET__TL2_ROWS, bitnet__packed_bytes_tl2, BITNET__PACK_TL2,
    BITNET__ENTRIES(avx512vnni, avx512vnni, avx512vnni, bitnet__dotrows_tl2_avx512vbmi)
};
#endif
#undef BITNET__FN
#endif

#if BITNET__AMX
/* ---- AMX: panels by tiles; what is not a panel is AVX-512's ----
   A tile register has up to 16 rows of 64 bytes. TDPBSUD multiplies a tile A, 16 columns (tokens)
   by 64 activations, by a tile B, 16 k-steps of a panel's half, and adds the dots to a tile C,
   int32:

       C[column][row] += sum over i of A[column][i] * B[i / 4][4 * row + i % 4]

   So A is read from the activations as they lie, B from the unpacked panel, and C is written once.
   Two halves of a panel and two tiles of columns make four C; each A and B serves two of them. 64
   weights of 32 rows times 32 columns are 64 cycles, in which the tiles are loaded, too.

   Each function that shapes the tiles releases them before it returns, so that the system need not
   save them when it changes threads, and calls of other libraries find none. */

#define BITNET__FN BITNET__INLINE BITNET__TARGET_amx

/* TILE_COLS: of two tiles A. PANEL_COLS: what a panel is multiplied by before the next one. A unit
   of a panel is what is unpacked at a time: 128 weights of I2_S, or 192 of TL2, of 32 rows. It has
   a part for every 32 weights. PANELS_FROM: for fewer columns AVX-512 is faster. AWAKE: on a Xeon 6
   a tile that is stored more than some 2300 cycles after the last one takes 1000 cycles; after so
   many weights one is stored that nobody reads. */
enum { bitnet__tile_cols_amx = 32, bitnet__panel_cols_amx = 128, bitnet__panels_from_amx = 4,
       bitnet__tl2_panels_from_amx = 2, bitnet__awake_amx = 768 };

/* Unpacks one part of the unit that begins with weight k of the 32 rows from row r on. */
typedef void bitnet__part_fn_amx(const bitnet__dots *d, int r, int k, const int part,
                                 __m512i (*to)[2]);

/* The next panel is fetched while the tiles multiply this one: `step` bytes of each of its halves,
   `half` bytes apart, with each part. A processor waits for so few lines at once that many would
   keep the activations from coming. */
typedef struct bitnet__ahead_amx { uintptr_t from, step, half; } bitnet__ahead_amx;

BITNET__FN bitnet__ahead_amx bitnet__fetch_amx(bitnet__ahead_amx a) {
    uintptr_t line = (a.from + 63) / 64 * 64;
    for (a.from += a.step; line < a.from; line += 64) {
        _mm_prefetch((const char *)line, _MM_HINT_T1);
        _mm_prefetch((const char *)(line + a.half), _MM_HINT_T1);
    }
    return a;
}

/* The shapes of the tile registers: 0 to 3 are C, 4 and 5 A, 6 and 7 B. */
typedef struct bitnet__tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];                /* in a row */
    uint8_t rows[16];
} bitnet__tile_shapes;

/* C and A for `first` and `second` columns, 1 to 16 each. */
BITNET__FN void bitnet__shape_tiles(int first, int second) {
    bitnet__tile_shapes s;
    int i;
    memset(&s, 0, sizeof s);
    s.palette = 1;
    for (i = 0; i < 8; i++) {
        s.bytes[i] = 64;
        s.rows[i] = 16;
    }
    s.rows[0] = s.rows[1] = s.rows[4] = (uint8_t)first;
    s.rows[2] = s.rows[3] = s.rows[5] = (uint8_t)second;
    BITNET__NO_AHEAD();                /* to gcc the next line reads only 8 bytes of s */
    _tile_loadconfig(&s);
}

/* For up to 32 columns. With up to 16, the second C and A are not used; they get one column, since
   no shape may be empty. */
BITNET__FN void bitnet__shape_columns(int cols) {
    bitnet__shape_tiles(cols < 16 ? cols : 16, cols > 16 ? cols - 16 : 1);
}

/* For activations that are not needed again before the next 32 rows: a load that streams keeps them
   from driving the panel out of the L1 cache. Those of a scale group are few, and stay. */
#define BITNET__LOAD_COLUMNS(tile, q, stride, streams) \
    do { \
        if (streams) _tile_stream_loadd(tile, q, stride); \
        else _tile_loadd(tile, q, stride); \
    } while (0)

/* 64 weights of 16 rows times up to 16 columns, or with `two` up to 32. half: of the panel's rows;
   the second one finds the columns in the tiles A. */
BITNET__FN void bitnet__half_step_amx(const void *codes, const int8_t *q, size_t q_stride,
                                      const int half, const int two, const int streams) {
    if (half == 0) {
        _tile_loadd(6, codes, 128);
        BITNET__LOAD_COLUMNS(4, q, q_stride, streams);
        _tile_dpbsud(0, 4, 6);
        if (two) {
            BITNET__LOAD_COLUMNS(5, q + 16 * q_stride, q_stride, streams);
            _tile_dpbsud(2, 5, 6);
        }
    } else {
        _tile_loadd(7, (const char *)codes + 64, 128);
        _tile_dpbsud(1, 4, 7);
        if (two) _tile_dpbsud(3, 5, 7);
    }
}

BITNET__FN void bitnet__k_step_amx(const void *codes, const int8_t *q, size_t q_stride,
                                   const int two, const int streams) {
    bitnet__half_step_amx(codes, q, q_stride, 0, two, streams);
    bitnet__half_step_amx(codes, q, q_stride, 1, two, streams);
}

/* 32 rows from row r on times as many columns as the tiles have been shaped for: d->q and d->out
   begin with the first of them. The dots of column c begin with minus[c], minus its sum.

   While the tiles multiply a unit, the next one is unpacked, a part after each half of a k-step:
   the processor sees some 500 instructions ahead, and must find work for both in them. For the next
   columns each unit is unpacked again. To keep a panel and carry the dots costs more: a line that
   goes back to the L2 cache takes 6 cycles, and unpacking 64 weights of 32 rows takes 40. */
BITNET__INLINE BITNET__TARGET_amx void bitnet__multiply_amx(
    const bitnet__dots *d, bitnet__part_fn_amx *part, int r, int32_t (*minus)[16],
    bitnet__ahead_amx ahead, const int wide, const int two) {
    const size_t q_stride = d->q_stride, dots = 4 * d->stride;
    int32_t *out = d->out + r;
    __m512i panel[2][48][2], unread[16];
    int k, i, unit = 0, awake = bitnet__awake_amx;
    BITNET__UNROLL for (i = 0; i < wide / 32; i++) {
        part(d, r, 0, i, panel[0]);
        ahead = bitnet__fetch_amx(ahead);
    }
    BITNET__NO_AHEAD();                /* the intrinsics do not say that they read memory */
    _tile_loadd(0, minus, 64);
    _tile_loadd(1, minus, 64);
    if (two) {
        _tile_loadd(2, minus + 16, 64);
        _tile_loadd(3, minus + 16, 64);
    }
    for (k = 0; k + wide < d->n; k += wide, unit ^= 1) {
        BITNET__UNROLL for (i = 0; i < wide / 32; i++) {
            bitnet__half_step_amx(panel[unit] + i / 2 * 16, d->q + k + i / 2 * 64, q_stride, i % 2,
                                  two, 1);
            part(d, r, k + wide, i, panel[!unit]);
            ahead = bitnet__fetch_amx(ahead);
            BITNET__NO_AHEAD();
        }
        if ((awake -= wide) <= 0) {
            awake = bitnet__awake_amx;
            _tile_stored(7, unread, 64);
        }
    }
    for (i = 0; k + i < d->n; i += 64)
        bitnet__k_step_amx(panel[unit] + i / 4, d->q + k + i, q_stride, two, 1);
    _tile_stored(0, out, dots);
    _tile_stored(1, out + 16, dots);
    if (two) {
        _tile_stored(2, out + 16 * d->stride, dots);
        _tile_stored(3, out + 16 * d->stride + 16, dots);
    }
    BITNET__NO_AHEAD();
}

/* Up to `panel_cols` columns with whole panels of rows. bytes: those of so many rows. */
BITNET__INLINE BITNET__TARGET_amx void bitnet__panels_amx(const bitnet__dots *d,
                                                          bitnet__part_fn_amx *part,
                                                          size_t (*bytes)(int n, int rows),
                                                          const int wide) {
    const int groups = (d->cols + bitnet__tile_cols_amx - 1) / bitnet__tile_cols_amx;
    const int parts = d->n / 32;
    int32_t minus[bitnet__panel_cols_amx][16];
    bitnet__ahead_amx ahead;
    int c, r, i, count, shape = 0;
    ahead.half = bytes(d->n, 16);
    ahead.step = (ahead.half - 1) / (uintptr_t)(parts * groups) + 1;
    for (i = 0; i < d->cols; i++)
        _mm512_storeu_si512(minus[i], _mm512_set1_epi32(-d->sums[i]));
    for (r = 0; r < d->rows; r += 32) {
        ahead.from = (uintptr_t)d->w + bytes(d->n, r + 32);
        for (c = 0; c < d->cols; c += count, ahead.from += ahead.step * (uintptr_t)parts) {
            const bitnet__dots cols = bitnet__dots_from(d, 0, 0, c);
            count = bitnet__share(d->cols - c, bitnet__tile_cols_amx);
            if (shape != count) bitnet__shape_columns(shape = count);
            if (count > 16) bitnet__multiply_amx(&cols, part, r, minus + c, ahead, wide, 1);
            else bitnet__multiply_amx(&cols, part, r, minus + c, ahead, wide, 0);
        }
    }
    _tile_release();
}

/* Part 2 half + quad of a unit of I2_S, as unpack_i2s makes it of whole rows. */
BITNET__FN void bitnet__part_i2s_amx(const bitnet__dots *d, int r, int k, const int part,
                                     __m512i (*to)[2]) {
    const size_t row = (size_t)(d->n / 4);
    const uint8_t *p = d->w + (size_t)(r + part / 2 * 16) * row + (size_t)(k / 4);
    __m512i v[4];
    int i;
    p += part % 2 * 16;
    BITNET__UNROLL for (i = 0; i < 4; i++, p += row) v[i] = bitnet__every4_avx512vnni(p, row);
    bitnet__put_quad_avx512vnni(v, to + part % 2 * 4, part / 2);
}

BITNET__HOT BITNET__TARGET_amx void bitnet__panels_i2s_amx(const bitnet__dots *d) {
    bitnet__panels_amx(d, bitnet__part_i2s_amx, bitnet__i2s_bytes, 128);
}

/* `rest`, of AVX-512, takes the rows that are no whole panel, and fewer columns than `from`. bytes:
   those of so many rows. */
BITNET__INLINE BITNET__TARGET_amx void bitnet__panels_and_rest_amx(
    const bitnet__dots *d, int from, bitnet__dots_fn *panels, bitnet__dots_fn *rest,
    size_t (*bytes)(int n, int rows)) {
    const int whole = d->cols < from ? 0 : d->rows - d->rows % 32;
    bitnet__dots patch;
    int c;
    for (c = 0; whole && c < d->cols; c += patch.cols) {
        patch = bitnet__dots_from(d, 0, 0, c);
        patch.rows = whole;
        patch.cols = bitnet__share(patch.cols, bitnet__panel_cols_amx);
        panels(&patch);
    }
    patch = bitnet__dots_from(d, bytes(d->n, whole), whole, 0);
    if (patch.rows) rest(&patch);
}

static BITNET__TARGET_amx void bitnet__dotrows_i2s_amx(const bitnet__dots *d) {
    bitnet__panels_and_rest_amx(d, bitnet__panels_from_amx, bitnet__panels_i2s_amx,
                                bitnet__dotrows_i2s_avx512vnni, bitnet__i2s_bytes);
}

#ifndef BITNET_NO_TL2
/* Part of a unit of TL2, which is two blocks: a third of the 8 runs of triples of 16 rows. */
BITNET__FN void bitnet__part_tl2_amx(const bitnet__dots *d, int r, int k, const int part,
                                     __m512i (*to)[2]) {
    const size_t pack_bytes = bitnet__tl2_bytes((d->n + 23) / 24);
    const uint8_t *p = d->w + (size_t)(r / 16 + part / 3) * pack_bytes +
                       (size_t)(k / 96) * BITNET__TL2_BLOCK;
    const int runs = d->n - k < 192 ? (d->n - k + 23) / 24 : 8;
    const int end = part % 3 == 2 ? 8 : part % 3 * 3 + 3;
    const bitnet__tl2_avx512vnni t = bitnet__start_tl2_avx512vnni();
    __m512i codes[2][3];
    int i, x;
    for (i = part % 3 * 3; i < end && i < runs; i++) {
        const uint8_t *block = p + i / 4 * BITNET__TL2_BLOCK;
        const __m512i fifths = _mm512_srli_epi32(_mm512_loadu_si512(block), (unsigned)(i % 4 * 2));
        bitnet__triples_tl2_avx512vnni(&t, fifths, block + 64 + i % 4 * 64, 0, codes);
        BITNET__UNROLL for (x = 0; x < 6; x++) to[6 * i + x][part / 3] = codes[x / 3][x % 3];
    }
}

BITNET__HOT BITNET__TARGET_amx void bitnet__panels_tl2_amx(const bitnet__dots *d) {
    bitnet__panels_amx(d, bitnet__part_tl2_amx, bitnet__packed_bytes_tl2, 192);
}

/* Few columns go to avx512vbmi's function: the table needs VBMI, too. */
static BITNET__TARGET_amx void bitnet__dotrows_tl2_amx(const bitnet__dots *d) {
    bitnet__panels_and_rest_amx(d, bitnet__tl2_panels_from_amx, bitnet__panels_tl2_amx,
                                bitnet__dotrows_tl2_avx512vbmi, bitnet__packed_bytes_tl2);
}
#endif

#ifndef BITNET_NO_GROUPS
/* ---- a scale per group ---- */

/* y += the products of a scale group of a panel's weights with up to 32 columns. */
BITNET__FN void bitnet__multiply_group_amx(const __m512i (*panel)[2], const __m512 *d,
                                           const int8_t *q, const int32_t *sums,
                                           const float *scales, int n, int group, int cols,
                                           __m512 (*y)[2]) {
    const size_t groups = (size_t)(n / group);
    int32_t dots[32][32];
    int c, p, k;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    BITNET__NO_AHEAD();                /* the intrinsics do not say that they read memory */
    for (k = 0; k < group; k += 64) {
        if (cols > 16) bitnet__k_step_amx(panel + k / 4, q + k, (size_t)n, 1, 0);
        else bitnet__k_step_amx(panel + k / 4, q + k, (size_t)n, 0, 0);
    }
    _tile_stored(0, dots, 128);
    _tile_stored(1, dots[0] + 16, 128);
    if (cols > 16) {
        _tile_stored(2, dots[16], 128);
        _tile_stored(3, dots[16] + 16, 128);
    }
    BITNET__NO_AHEAD();
    for (c = 0; c < cols; c++) {
        const size_t at = (size_t)c * groups;
        BITNET__UNROLL for (p = 0; p < 2; p++) {
            const __m512i dot = _mm512_sub_epi32(_mm512_loadu_si512(dots[c] + 16 * p),
                                                 _mm512_set1_epi32(sums[at]));
            const __m512 f = _mm512_mul_ps(d[p], _mm512_set1_ps(scales[at]));
            y[c][p] = _mm512_add_ps(y[c][p], _mm512_mul_ps(_mm512_cvtepi32_ps(dot), f));
        }
    }
}

enum { bitnet__group_wide_amx = 128, bitnet__group_panels_from_amx = 8 };

/* 32 rows with at most `group_wide` columns. */
BITNET__HOT BITNET__TARGET_amx void bitnet__panel_groups_amx(const bitnet__grouped *x) {
    const int n = x->n, group = x->blocks->group, bits = x->blocks->bits, cols = x->cols;
    const size_t groups = (size_t)(n / group), second = bitnet__blocks_bytes(x->blocks, n, 16);
    const uint8_t *w = x->w;
    float *out = x->out;
    __m512i panel[64][2];              /* a scale group has at most 256 weights */
    __m512 y[bitnet__group_wide_amx][2], d[2];
    const uint8_t *half[2];
    size_t g;
    int c, count, shape = 0;
    for (c = 0; c < cols; c++) y[c][0] = y[c][1] = _mm512_setzero_ps();
    for (g = 0; g < groups; g++, w += BITNET__PACK_BYTES(group, bits)) {
        half[0] = w + BITNET__PACK_SCALES;
        half[1] = half[0] + second;
        d[0] = bitnet__load_f16_avx512vnni(w);
        d[1] = bitnet__load_f16_avx512vnni(w + second);
        if (bits == 2) bitnet__unpack_group_avx512vnni(half, group, 2, panel);
        else bitnet__unpack_group_avx512vnni(half, group, 1, panel);
        for (c = 0; c < cols; c += count) {
            const size_t at = (size_t)c * groups + g;
            count = bitnet__share(cols - c, bitnet__tile_cols_amx);
            if (shape != count) bitnet__shape_columns(shape = count);
            bitnet__multiply_group_amx((const __m512i (*)[2])panel, d, x->q + at * (size_t)group,
                                       x->sums + at, x->scales + at, n, group, count, y + c);
        }
    }
    _tile_release();
    for (c = 0; c < cols; c++, out += x->stride) {
        if (x->add) {
            y[c][0] = _mm512_add_ps(_mm512_loadu_ps(out), y[c][0]);
            y[c][1] = _mm512_add_ps(_mm512_loadu_ps(out + 16), y[c][1]);
        }
        _mm512_storeu_ps(out, y[c][0]);
        _mm512_storeu_ps(out + 16, y[c][1]);
    }
}

static BITNET__TARGET_amx void bitnet__dotrows_groups_amx(const bitnet__grouped *x) {
    enum { wide = bitnet__group_wide_amx };
    const int whole = x->cols < bitnet__group_panels_from_amx ? 0 : x->rows - x->rows % 32;
    bitnet__grouped patch;
    int r, c;
    if (!x->packed) {
        bitnet__dotrows_in_place_avx512vnni(x, bitnet__dotrows_groups_amx);
        return;
    }
    for (c = 0; c < x->cols; c += wide) {
        for (r = 0; r < whole; r += 32) {
            patch = bitnet__grouped_from(x, r, c);
            if (patch.cols > wide) patch.cols = wide;
            bitnet__panel_groups_amx(&patch);
        }
    }
    patch = bitnet__grouped_from(x, whole, 0);
    if (patch.rows) bitnet__dotrows_groups_avx512vnni(&patch);
}
#endif

#ifndef BITNET_NO_KV_I8
/* ---- an int8 cache ----
   64 elements of a KV block are four tiles B as they lie: of keys one for 16 positions each, of
   values one for 16 elements each. The four C are for up to 16 columns. */

enum { bitnet__cache_cols_amx = 16, bitnet__cache_from_amx = 4 };

BITNET__FN void bitnet__store_tiles_amx(int32_t (*dots)[64]) {
    _tile_stored(0, dots[0], 256);
    _tile_stored(1, dots[0] + 16, 256);
    _tile_stored(2, dots[0] + 32, 256);
    _tile_stored(3, dots[0] + 48, 256);
    BITNET__NO_AHEAD();
}

BITNET__FN void bitnet__zero_tiles_amx(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    BITNET__NO_AHEAD();                /* the intrinsics do not say that they read memory */
}

/* The scores of a KV block. */
BITNET__FN void bitnet__block_scores_amx(const uint8_t *w, const int8_t *q, const int32_t *sums,
                                         int n, int cols, float *out, size_t out_stride) {
    const uint8_t *keys = w + BITNET__KV_SCALES;
    int32_t dots[bitnet__cache_cols_amx][64];
    int c, i;
    bitnet__zero_tiles_amx();
    for (i = 0; i < n; i += 64, keys += 64 * BITNET__KV_BLOCK) {
        _tile_loadd(4, q + i, (size_t)n);
        _tile_loadd(6, keys, 256);
        _tile_dpbsud(0, 4, 6);
        _tile_loadd(7, keys + 64, 256);
        _tile_dpbsud(1, 4, 7);
        _tile_loadd(6, keys + 128, 256);
        _tile_dpbsud(2, 4, 6);
        _tile_loadd(7, keys + 192, 256);
        _tile_dpbsud(3, 4, 7);
    }
    bitnet__store_tiles_amx(dots);
    for (c = 0; c < cols; c++, out += out_stride) {
        BITNET__UNROLL for (i = 0; i < 64; i += 16) {
            const __m512i dot = _mm512_sub_epi32(_mm512_loadu_si512(dots[c] + i),
                                                 _mm512_set1_epi32(128 * sums[c]));
            _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_cvtepi32_ps(dot),
                                                    _mm512_loadu_ps(w + 4 * (size_t)i)));
        }
    }
}

BITNET__HOT BITNET__TARGET_amx void bitnet__scores_i8_amx(const uint8_t *w, const int8_t *q,
                                                          const int32_t *sums, int n, int rows,
                                                          int cols, float *out,
                                                          size_t out_stride) {
    int c, r, count;
    if (n % 64 || cols < bitnet__cache_from_amx) {
        bitnet__scores_i8_avx512vnni(w, q, sums, n, rows, cols, out, out_stride);
        return;
    }
    for (c = 0; c < cols; c += count) {
        count = bitnet__share(cols - c, bitnet__cache_cols_amx);
        bitnet__shape_tiles(count, count);
        for (r = 0; r < rows; r += 64)
            bitnet__block_scores_amx(w + (size_t)(r / 64) * bitnet__kv_block_bytes(n),
                                     q + (size_t)c * (size_t)n, sums + c, n, count,
                                     out + (size_t)c * out_stride + r, out_stride);
    }
    _tile_release();
}

/* 64 elements of the values of a KV block. */
BITNET__FN void bitnet__block_values_amx(const uint8_t *v, const uint8_t *p, const float *scales,
                                         size_t p_stride, int n, int cols, float *out,
                                         int count) {
    const size_t row = 4 * (size_t)n;
    int32_t dots[bitnet__cache_cols_amx][64];
    int c, i;
    bitnet__zero_tiles_amx();
    _tile_loadd(4, p, p_stride);
    _tile_loadd(6, v, row);
    _tile_dpbusd(0, 4, 6);
    _tile_loadd(7, v + 64, row);
    _tile_dpbusd(1, 4, 7);
    _tile_loadd(6, v + 128, row);
    _tile_dpbusd(2, 4, 6);
    _tile_loadd(7, v + 192, row);
    _tile_dpbusd(3, 4, 7);
    bitnet__store_tiles_amx(dots);
    for (c = 0; c < cols; c++, out += count, scales += p_stride / 64) {
        BITNET__UNROLL for (i = 0; i < 64; i += 16) {
            const __m512 x = _mm512_cvtepi32_ps(_mm512_loadu_si512(dots[c] + i));
            _mm512_storeu_ps(out + i,
                             _mm512_add_ps(_mm512_loadu_ps(out + i),
                                           _mm512_mul_ps(x, _mm512_set1_ps(*scales))));
        }
    }
}

BITNET__HOT BITNET__TARGET_amx void bitnet__sumrows_i8_amx(const uint8_t *w, const uint8_t *p,
                                                           const float *scales, size_t p_stride,
                                                           int n, int first, int count, int rows,
                                                           int cols, float *out) {
    int c, i, r, some;
    if (count % 64 || cols < bitnet__cache_from_amx) {
        bitnet__sumrows_i8_avx512vnni(w, p, scales, p_stride, n, first, count, rows, cols, out);
        return;
    }
    for (c = 0; c < cols; c += some) {
        const size_t col = (size_t)c;
        some = bitnet__share(cols - c, bitnet__cache_cols_amx);
        bitnet__shape_tiles(some, some);
        for (i = 0; i < count; i += 64) {
            const uint8_t *v = w + BITNET__KV_SCALES + 4 * (size_t)(first + i);
            for (r = 0; r < rows; r += 64, v += bitnet__kv_block_bytes(n))
                bitnet__block_values_amx(v, p + col * p_stride + r,
                                         scales + col * (p_stride / 64) + r / 64, p_stride, n,
                                         some, out + col * (size_t)count + i, count);
        }
    }
    _tile_release();
}
#endif

#define BITNET__NEEDS_AMX \
    (BITNET_CPU_AVX2 | BITNET_CPU_F16C | BITNET_CPU_AVX512 | BITNET_CPU_AVX512VNNI | \
     BITNET_CPU_AMX)

static const bitnet_kernels bitnet__kernels_amx = {
    "amx", BITNET__NEEDS_AMX, BITNET__LAYOUT_I2S,
    BITNET__ENTRIES(avx512vnni, avx512vnni, amx, bitnet__dotrows_i2s_amx)
};

#ifndef BITNET_NO_TL2
static const bitnet_kernels bitnet__kernels_amx_tl2 = {
    "amx-tl2", BITNET__NEEDS_AMX | BITNET_CPU_AVX512VBMI, "TL2_R16",
    BITNET__TL2_ROWS, bitnet__packed_bytes_tl2, BITNET__PACK_TL2,
    BITNET__ENTRIES(avx512vnni, avx512vnni, amx, bitnet__dotrows_tl2_amx)
};
#endif
#undef BITNET__LOAD_COLUMNS
#undef BITNET__FN
#endif

/* Best first. */
#ifndef BITNET_NO_TL2
  #define BITNET__TABLES_TL2 \
      BITNET__LISTED(BITNET__AMX, amx_tl2) BITNET__LISTED(BITNET__AVX512, avx512vbmi_tl2) \
      BITNET__LISTED(BITNET__AVX512, avx512vnni_tl2) BITNET__LISTED(BITNET__AVX2, avx2_tl2) \
      BITNET__LISTED(1, scalar_tl2)
#else
  #define BITNET__TABLES_TL2
#endif
#define BITNET__KERNEL_TABLES \
    BITNET__LISTED(BITNET__AMX, amx) BITNET__LISTED(BITNET__AVX512, avx512vnni) \
    BITNET__LISTED(BITNET__AVXVNNI, avxvnni) BITNET__LISTED(BITNET__AVX2, avx2) BITNET__TABLES_TL2

#if defined(__GNUC__) && !defined(__clang__)
  #pragma GCC diagnostic pop
#endif

#else /* BITNET__ISA */
/* =============================================================================================
   The body: included by the front, once for each register width or instruction set.
   V(x) is the function or type x of the width, I(x) that of the instruction set.
   ============================================================================================= */

#if BITNET__PARTS & BITNET__WIDTH
/* ---- floats ----
   A v16 is a vector of 16 floats, so element i is added in lane i % 16. Lengths that are not
   multiples of 16 (models avoid them) go to the scalar functions, so no load passes the end of an
   array. Tiles have 4 rows and 4 columns, or 1 column: two are cheaper one by one. */

BITNET__INLINE BITNET__TARGET BITNET__V(v16) BITNET__V(load)(const void *p, const int kind) {
    if (BITNET__ROW_BYTES(kind) == 4) return BITNET__V(load_f32)(p);
    return kind == BITNET__ROWS_BF16 ? BITNET__V(load_bf16)(p) : BITNET__V(load_f16)(p);
}

/* The same elements of 4 rows. */
BITNET__INLINE BITNET__TARGET void BITNET__V(load4)(BITNET__V(v16) *v, const uint8_t *const *row,
                                                    size_t at, const int kind) {
    int r;
    BITNET__UNROLL for (r = 0; r < 4; r++) v[r] = BITNET__V(load)(row[r] + at, kind);
}

/* An FMA rounds once where the scalar code rounds twice: only for exact products. */
BITNET__INLINE BITNET__TARGET BITNET__V(v16) BITNET__V(mul_add)(
    BITNET__V(v16) a, BITNET__V(v16) b, BITNET__V(v16) sum, const int kind) {
    return kind >= BITNET__ROWS_CACHE ? BITNET__V(fma)(a, b, sum)
                                      : BITNET__V(add)(sum, BITNET__V(mul)(a, b));
}

BITNET__INLINE BITNET__TARGET void BITNET__V(tile_dots)(
    const uint8_t *w, const float *x, int n, int rows, int cols, float *out, size_t out_stride,
    const int tile_cols, const int kind, const int fixed) {
    const size_t bytes = BITNET__ROW_BYTES(kind);
    BITNET__V(v16) sum[BITNET__TILE][4], dots[BITNET__TILE][4], v[4], a;
    const uint8_t *row[4];
    const float *col[BITNET__TILE];
    int r, c, i;
    BITNET__UNROLL for (r = 0; r < 4; r++)
        row[r] = w + bitnet__clamp(r, rows) * (size_t)n * bytes;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        col[c] = x + bitnet__clamp(c, cols) * (size_t)n;
        BITNET__UNROLL for (r = 0; r < 4; r++) sum[c][r] = BITNET__V(splat)(0.0f);
    }
    for (i = 0; i < n; i += BITNET__LANES) {
        const size_t at = (size_t)i * bytes;
        BITNET__UNROLL for (r = 0; r < 4; r++)
            if (kind != BITNET__ROWS_WIDE && at % 64 == 0) BITNET__STREAM(row[r] + at);
        if (fixed) {                               /* each row is loaded when it is needed */
        } else if (kind == BITNET__ROWS_F16) BITNET__V(load4)(v, row, at, BITNET__ROWS_F16);
        else BITNET__V(load4)(v, row, at, BITNET__ROWS_BF16);
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            a = BITNET__V(load_f32)(col[c] + i);
            BITNET__UNROLL for (r = 0; r < 4; r++) {
                if (fixed && c == 0) v[r] = BITNET__V(load)(row[r] + at, kind);
                sum[c][r] = BITNET__V(mul_add)(v[r], a, sum[c][r], fixed ? kind : 0);
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (r = 0; r < 4; r++) dots[c][r] = sum[c][r];
    }
    BITNET__V(end_tile)(dots, rows, cols, out, out_stride, tile_cols);
}

/* The tile of 4 columns, once for both kinds of two bytes. */
BITNET__HOT BITNET__TARGET void BITNET__V(tile_dots4)(const uint8_t *w, const float *x, int n,
                                                      int rows, int cols, float *out,
                                                      size_t out_stride, int kind) {
    BITNET__V(tile_dots)(w, x, n, rows, cols, out, out_stride, 4, kind, 0);
}

/* Rows are in the outer loop: they are the longer array. */
BITNET__INLINE BITNET__TARGET void BITNET__V(dots)(const uint8_t *w, const float *x, int n,
                                                   int rows, int cols, float *out,
                                                   size_t out_stride, const int kind) {
    int r, c, taken;
#if BITNET__AVX2
    if (BITNET__V(lanes) == 8 && kind == BITNET__ROWS_F32 && cols > 2) {
        bitnet__many_dots_avx2(w, x, n, rows, cols, out, out_stride);
        return;
    }
#endif
    for (r = 0; r < rows; r += 4, w += 4 * (size_t)n * BITNET__ROW_BYTES(kind)) {
        for (c = 0; c < cols; c += taken) {
            const float *col = x + (size_t)c * (size_t)n;
            float *to = out + (size_t)c * out_stride + (size_t)r;
            taken = cols - c > 2 ? BITNET__TILE : 1;
            if (taken == 1)
                BITNET__V(tile_dots)(w, col, n, rows - r, 1, to, out_stride, 1, kind, 1);
            else if (kind == BITNET__ROWS_F32)
                BITNET__V(tile_dots)(w, col, n, rows - r, cols - c, to, out_stride, 4, kind, 1);
            else BITNET__V(tile_dots4)(w, col, n, rows - r, cols - c, to, out_stride, kind);
        }
    }
}

BITNET__ROW_DOTS(dotrows_f32, f32, BITNET__ROWS_F32)
BITNET__ROW_DOTS(dotrows_f16, f16, BITNET__ROWS_F16)
BITNET__ROW_DOTS(dotrows_bf16, bf16, BITNET__ROWS_BF16)

/* The scores of a row of keys, each element of which is converted once for all columns. Vectors of
   8 floats have no registers for more rows; the sums of a row alone hide the latency of an FMA. */
BITNET__INLINE BITNET__TARGET void BITNET__V(row_scores)(const uint8_t *w, const float *x, int n,
                                                         float *out, size_t out_stride,
                                                         const int cols) {
    BITNET__V(v16) sum[4], v;
    float dots[4];
    int c, i;
    BITNET__UNROLL for (c = 0; c < 4; c++) sum[c] = BITNET__V(splat)(0.0f);
    for (i = 0; i < n; i += BITNET__LANES) {
        const float *a = x + i;
        if (i % 32 == 0) BITNET__STREAM(w + 2 * (size_t)i);
        v = BITNET__V(load_f16)(w + 2 * (size_t)i);
        BITNET__UNROLL for (c = 0; c < cols; c++)
            sum[c] = BITNET__V(fma)(v, BITNET__V(load_f32)(a + (size_t)c * (size_t)n), sum[c]);
    }
    bitnet__end_column(BITNET__V(fold)(sum[0]), BITNET__V(fold)(sum[1]), BITNET__V(fold)(sum[2]),
                       BITNET__V(fold)(sum[3]), 4, dots);
    BITNET__UNROLL for (c = 0; c < cols; c++) out[(size_t)c * out_stride] = dots[c];
}

/* ---- scores of many columns ----
   The sums of the 16 lanes of one key must be added in a tree. Where they are lanes of a vector,
   that takes as many shuffles and additions as a third of the products. So 16 keys are transposed
   first, and then lie side by side in each vector:

       wide[lane][i / 16][key] = key[i],  lane = i % 16

   A lane's sums of 16 keys are then one vector, and the tree needs additions alone. Transposing
   pays from MANY_FROM columns on. A tile is KEY_VECTORS such vectors by WIDE_COLS columns. Keys of
   more than `widest` elements are rare and stay as they are. */
enum { BITNET__V(keys) = 16 * BITNET__V(key_vectors), BITNET__V(widest) = 256 };
typedef BITNET__V(v16) BITNET__V(key_sums)[BITNET__V(wide_cols)][BITNET__V(key_vectors)];

/* Transposes 16 keys from row `first` on; `to` is wide + their place among the tile's keys. Where
   the rows end, the last one is repeated. */
BITNET__APART BITNET__TARGET void BITNET__V(transpose_keys)(const uint8_t *w, int n, int first,
                                                            int rows, float *to) {
    const size_t row = 2 * (size_t)n, lane = (size_t)n / 16 * BITNET__V(keys);
    const uint8_t *p[16];
    __m256i a[8], b[8];
    int i, r;
    for (r = 0; r < 16; r++) p[r] = w + bitnet__clamp(first + r, rows) * row;
    for (i = 0; i < n; i += 8) {
        float *at = to + (size_t)(i % 16) * lane + (size_t)(i / 16) * BITNET__V(keys);
        BITNET__UNROLL for (r = 0; r < 8; r++)       /* 8 elements of keys r and r + 8 */
            a[r] = _mm256_inserti128_si256(
                _mm256_castsi128_si256(BITNET__V(load128)(p[r] + 2 * (size_t)i)),
                BITNET__V(load128)(p[r + 8] + 2 * (size_t)i), 1);
        BITNET__UNROLL for (r = 0; r < 4; r++) {     /* elements 0 to 3, and 4 to 7, of 2 keys */
            b[2 * r] = _mm256_unpacklo_epi16(a[2 * r], a[2 * r + 1]);
            b[2 * r + 1] = _mm256_unpackhi_epi16(a[2 * r], a[2 * r + 1]);
        }
        BITNET__UNROLL for (r = 0; r < 4; r++) {     /* elements 2r and 2r + 1 of 4 keys, twice */
            const __m256i *two = b + r / 2, *next = two + 4;
            a[r] = r % 2 ? _mm256_unpackhi_epi32(two[0], two[2])
                         : _mm256_unpacklo_epi32(two[0], two[2]);
            a[r + 4] = r % 2 ? _mm256_unpackhi_epi32(next[0], next[2])
                             : _mm256_unpacklo_epi32(next[0], next[2]);
        }
        BITNET__UNROLL for (r = 0; r < 4; r++, at += 2 * lane) {
            BITNET__V(store)(at, BITNET__V(from_f16)(_mm256_unpacklo_epi64(a[r], a[r + 4])));
            BITNET__V(store)(at + lane, BITNET__V(from_f16)(_mm256_unpackhi_epi64(a[r], a[r + 4])));
        }
    }
}

/* A tile's sums of one lane. */
BITNET__INLINE BITNET__TARGET void BITNET__V(lane_sums)(
    const float *wide, const float *const *col, int n, int lane, BITNET__V(key_sums) sum) {
    const float *keys = wide + (size_t)lane * (size_t)n / 16 * BITNET__V(keys);
    BITNET__V(v16) v[BITNET__V(key_vectors)], x;
    int i, c, k;
    BITNET__UNROLL for (c = 0; c < BITNET__V(wide_cols); c++) {
        BITNET__UNROLL for (k = 0; k < BITNET__V(key_vectors); k++)
            sum[c][k] = BITNET__V(splat)(0.0f);
    }
    for (i = lane; i < n; i += 16, keys += BITNET__V(keys)) {
        BITNET__UNROLL for (k = 0; k < BITNET__V(key_vectors); k++)
            v[k] = BITNET__V(load_f32)(keys + 16 * k);
        BITNET__UNROLL for (c = 0; c < BITNET__V(wide_cols); c++) {
            x = BITNET__V(splat)(col[c][i]);
            BITNET__UNROLL for (k = 0; k < BITNET__V(key_vectors); k++)
                sum[c][k] = BITNET__V(fma)(v[k], x, sum[c][k]);
        }
    }
}

/* Sums go to memory as [WIDE_COLS][keys]. */
BITNET__INLINE BITNET__TARGET void BITNET__V(add_kept)(BITNET__V(key_sums) sum,
                                                       const float *kept) {
    int c, k;
    BITNET__UNROLL for (c = 0; c < BITNET__V(wide_cols); c++, kept += BITNET__V(keys)) {
        BITNET__UNROLL for (k = 0; k < BITNET__V(key_vectors); k++)
            sum[c][k] = BITNET__V(add)(BITNET__V(load_f32)(kept + 16 * k), sum[c][k]);
    }
}

BITNET__INLINE BITNET__TARGET void BITNET__V(keep)(BITNET__V(key_sums) sum, float *to) {
    int c, k;
    BITNET__UNROLL for (c = 0; c < BITNET__V(wide_cols); c++, to += BITNET__V(keys)) {
        BITNET__UNROLL for (k = 0; k < BITNET__V(key_vectors); k++)
            BITNET__V(store)(to + 16 * k, sum[c][k]);
    }
}

/* The tree in the order of sum_lanes: lanes 8 apart, 4 apart, 2 apart, 1 apart. Behind the keys in
   `wide` are six arrays of sums: one for each l, and two that are needed within an l. */
BITNET__HOT BITNET__TARGET void BITNET__V(key_tile)(float *wide, const float *x, int n, int rows,
                                                    int cols, float *out, size_t out_stride) {
    const int most = BITNET__V(wide_cols), keys = BITNET__V(keys), size = most * keys;
    float *const kept = wide + n * keys;
    BITNET__V(key_sums) sum;
    const float *col[BITNET__V(wide_cols)];
    int c, k, l;
    BITNET__UNROLL for (c = 0; c < most; c++) col[c] = x + bitnet__clamp(c, cols) * (size_t)n;
    for (l = 0; l < 4; l++) {
        BITNET__V(lane_sums)(wide, col, n, l, sum);
        BITNET__V(keep)(sum, kept + 4 * size);
        BITNET__V(lane_sums)(wide, col, n, l + 8, sum);
        BITNET__V(add_kept)(sum, kept + 4 * size);
        BITNET__V(keep)(sum, kept + 5 * size);
        BITNET__V(lane_sums)(wide, col, n, l + 4, sum);
        BITNET__V(keep)(sum, kept + 4 * size);
        BITNET__V(lane_sums)(wide, col, n, l + 12, sum);
        BITNET__V(add_kept)(sum, kept + 4 * size);
        BITNET__V(add_kept)(sum, kept + 5 * size);
        BITNET__V(keep)(sum, kept + l * size);
    }
    for (c = 0; c < cols && c < most; c++, out += out_stride) {
        float *const quarter = kept + c * keys, *to = rows < keys ? quarter : out;
        BITNET__UNROLL for (k = 0; k < keys; k += 16)
            BITNET__V(store)(to + k, BITNET__V(add)(
                BITNET__V(add)(BITNET__V(load_f32)(quarter + k),
                               BITNET__V(load_f32)(quarter + k + 2 * size)),
                BITNET__V(add)(BITNET__V(load_f32)(quarter + k + size),
                               BITNET__V(load_f32)(quarter + k + 3 * size))));
        if (rows < keys) memcpy(out, to, (size_t)rows * 4);
    }
}

static BITNET__TARGET void BITNET__V(many_scores)(const uint8_t *w, const float *x, int n, int rows,
                                                  int cols, float *out, size_t out_stride) {
    enum { keys = BITNET__V(keys) };
    float room[256 * keys + 6 * 16 * BITNET__V(key_vectors) * BITNET__V(wide_cols) + 16];
    float *const wide = room + (0 - (uintptr_t)room) % 64 / 4;         /* whole cache lines */
    int r, c, k;
    for (r = 0; r < rows; r += keys) {
        for (k = 0; k < keys; k += 16)
            BITNET__V(transpose_keys)(w, n, r + k, rows, wide + k);
        for (c = 0; c < cols; c += BITNET__V(wide_cols))
            BITNET__V(key_tile)(wide, x + (size_t)c * (size_t)n, n, rows - r, cols - c,
                                out + (size_t)c * out_stride + (size_t)r, out_stride);
    }
}

/* Up to 4 columns. Only one of the loops runs. */
BITNET__HOT BITNET__TARGET void BITNET__V(few_scores)(const uint8_t *w, const float *x, int n,
                                                      int rows, int cols, float *out,
                                                      size_t out_stride) {
    const int tile_cols = BITNET__V(key_cols);
    int r;
    for (r = 0; tile_cols == 1 && cols > 1 && r < rows; r++, w += 2 * (size_t)n, out++) {
        if (cols == 2) BITNET__V(row_scores)(w, x, n, out, out_stride, 2);
        else if (cols == 3) BITNET__V(row_scores)(w, x, n, out, out_stride, 3);
        else BITNET__V(row_scores)(w, x, n, out, out_stride, 4);
    }
    for (; r < rows; r += 4, w += 4 * (size_t)n * 2, out += 4) {
        if (tile_cols > 1 && cols == 1)
            BITNET__V(tile_dots)(w, x, n, rows - r, 1, out, out_stride, 1, BITNET__ROWS_CACHE, 1);
        else
            BITNET__V(tile_dots)(w, x, n, rows - r, cols, out, out_stride, tile_cols,
                                 BITNET__ROWS_CACHE, 1);
    }
}

static BITNET__TARGET void BITNET__V(scores_f16)(const uint8_t *w, const float *x, int n, int rows,
                                                 int cols, float *out, size_t out_stride) {
    int c;
    if (n % BITNET__LANES) BITNET__V(dotrows_f16)(w, x, n, rows, cols, out, out_stride);
    else if (cols >= BITNET__V(many_from) && n <= BITNET__V(widest))
        BITNET__V(many_scores)(w, x, n, rows, cols, out, out_stride);
    else {
        for (c = 0; c < cols; c += 4)
            BITNET__V(few_scores)(w, x + (size_t)c * (size_t)n, n, rows,
                                  cols - c < 4 ? cols - c : 4, out + (size_t)c * out_stride,
                                  out_stride);
    }
}

/* Attention converts the F16 values of the cache to floats, in runs of up to 16 KB that then serve
   all columns from the L1 cache. For the columns of one tile that does not pay, and memory would be
   idle meanwhile: they use the F16 rows directly. */
static BITNET__TARGET void BITNET__V(widen)(const uint8_t *w, size_t w_stride, int n, int rows,
                                            float *wide) {
    int r, i;
    for (r = 0; r < rows; r++, w += w_stride * 2, wide += n)
        for (i = 0; i < n; i += BITNET__LANES)
            BITNET__V(store)(wide + i, BITNET__V(load_f16)(w + 2 * (size_t)i));
}

/* A tile of the weighted sums: 4 columns, or 1, of some vectors across all rows of a run. out
   carries the sums from one run to the next, so each element's sum keeps its order. */
BITNET__INLINE BITNET__TARGET void BITNET__V(tile_mix)(
    const uint8_t *w, size_t row_bytes, const float *p, size_t p_stride, int n, int rows, int cols,
    float *out, const int vectors, const int tile_cols, const int kind) {
    const size_t bytes = BITNET__ROW_BYTES(kind);
    BITNET__V(v16) sum[BITNET__TILE][4], v[4], a;
    int r, c, k;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (k = 0; k < vectors; k++)
            sum[c][k] = BITNET__V(load_f32)(out + bitnet__clamp(c, cols) * (size_t)n +
                                            k * BITNET__LANES);
    }
    for (r = 0; r < rows; r++, w += row_bytes) {
        if (kind == BITNET__ROWS_CACHE) BITNET__STREAM_VALUES(w);
        if (kind == BITNET__ROWS_CACHE && vectors > 2) BITNET__STREAM_VALUES(w + 64);
        BITNET__UNROLL for (k = 0; k < vectors; k++)
            v[k] = BITNET__V(load)(w + (size_t)k * BITNET__LANES * bytes, kind);
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            a = BITNET__V(splat)(p[bitnet__clamp(c, cols) * p_stride + (size_t)r]);
            BITNET__UNROLL for (k = 0; k < vectors; k++)
                sum[c][k] = BITNET__V(mul_add)(a, v[k], sum[c][k], kind);
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (k = 0; k < vectors; k++)
            BITNET__V(store)(out + bitnet__clamp(c, cols) * (size_t)n + k * BITNET__LANES,
                             sum[c][k]);
    }
}

/* The last elements of rows that are not a multiple of mix_vectors. */
BITNET__APART BITNET__TARGET void BITNET__V(mix_rest)(const uint8_t *w, size_t row_bytes,
                                                      const float *p, size_t p_stride, int n,
                                                      int rows, int cols, int i, float *out,
                                                      int kind) {
    for (; i < n; i += BITNET__LANES)
        BITNET__V(tile_mix)(w + (size_t)i * BITNET__ROW_BYTES(kind), row_bytes, p, p_stride, n,
                            rows, cols, out + i, 1, BITNET__TILE, kind);
}

BITNET__INLINE BITNET__TARGET void BITNET__V(mix)(
    const uint8_t *w, size_t row_bytes, const float *p, size_t p_stride, int n, int rows, int cols,
    float *out, const int kind) {
    const int vectors = BITNET__V(mix_vectors), wide = vectors * BITNET__LANES;
    int c, i, taken;
    for (c = 0; c < cols; c += taken, p += (size_t)taken * p_stride) {
        const int few = kind != BITNET__ROWS_WIDE && cols - c <= 2;
        float *to = out + (size_t)c * (size_t)n;
        taken = few ? 1 : BITNET__TILE;
        for (i = 0; i + wide <= n; i += wide) {
            const uint8_t *from = w + (size_t)i * BITNET__ROW_BYTES(kind);
            if (few)
                BITNET__V(tile_mix)(from, row_bytes, p, p_stride, n, rows, 1, to + i, vectors, 1,
                                    kind);
            else
                BITNET__V(tile_mix)(from, row_bytes, p, p_stride, n, rows, cols - c, to + i,
                                    vectors, BITNET__TILE, kind);
        }
        if (vectors > 1 && i < n)
            BITNET__V(mix_rest)(w, row_bytes, p, p_stride, n, rows, few ? 1 : cols - c, i, to,
                                kind);
    }
}

/* A function of its own: inlined, its strides do not stay in registers. */
BITNET__HOT BITNET__TARGET void BITNET__V(mix_cache)(const uint8_t *w, size_t row_bytes,
                                                     const float *p, size_t p_stride, int n,
                                                     int rows, int cols, float *out) {
    BITNET__V(mix)(w, row_bytes, p, p_stride, n, rows, cols, out, BITNET__ROWS_CACHE);
}

/* A tile of one column, or 4, reads a stretch of each row. So runs are short: the next stretch
   is then still in the L1 cache, and memory, which only the first stretch of a line reads, is not
   idle for long. */
static BITNET__TARGET void BITNET__V(sumrows_f16)(const uint8_t *w, size_t w_stride,
                                                  const float *p, size_t p_stride, int n, int rows,
                                                  int cols, float *out) {
    float wide[BITNET__WIDE];
    const int most = n > 0 ? BITNET__WIDE / n : 0;
    const int few = cols <= BITNET__TILE, run = few ? BITNET__MIX_ROWS : most;
    int r, count;
    if (n % BITNET__LANES || most == 0) {
        bitnet__sumrows_f16_scalar(w, w_stride, p, p_stride, n, rows, cols, out);
        return;
    }
    for (r = 0; r < rows; r += count) {
        const uint8_t *from = w + (size_t)r * w_stride * 2;
        count = rows - r < run ? rows - r : run;
        if (few) {
            BITNET__V(mix_cache)(from, w_stride * 2, p + r, p_stride, n, count, cols, out);
            continue;
        }
        BITNET__V(widen)(from, w_stride, n, count, wide);
        BITNET__V(mix)((const uint8_t *)wide, (size_t)n * 4, p + r, p_stride, n, count, cols, out,
                       BITNET__ROWS_WIDE);
    }
}

BITNET__ROW_SUMS_F32

/* ---- row kernels: the rest of what those of bitnet.h are made of ---- */

BITNET__INLINE BITNET__TARGET BITNET__V(v16) BITNET__V(limit)(BITNET__V(v16) v, float most) {
    v = BITNET__V(max)(BITNET__V(splat)(-most), v);
    return BITNET__V(min)(BITNET__V(splat)(most), v);
}

BITNET__INLINE BITNET__TARGET BITNET__V(v16) BITNET__V(positive)(BITNET__V(v16) v) {
    return BITNET__V(max)(v, BITNET__V(splat)(0.0f));
}

BITNET__INLINE BITNET__TARGET float BITNET__V(tree)(const BITNET__V(v16) *v) {
    return bitnet__fold_to_1(BITNET__V(fold)(*v));
}

BITNET__INLINE BITNET__TARGET double BITNET__V(root)(double x) {
    const __m128d v = _mm_set_sd(x);
    return _mm_cvtsd_f64(_mm_sqrt_sd(v, v));
}

BITNET__INLINE BITNET__TARGET __m128i BITNET__V(bytes_from)(BITNET__V(v16) v, float least) {
    v = BITNET__V(max)(v, BITNET__V(splat)(least));
    return BITNET__V(to_int8)(BITNET__V(min)(v, BITNET__V(splat)(127.0f)));
}

/* Flipping the sign bit gives q + 128, unsigned; vpsadbw adds eight of these. */
BITNET__INLINE BITNET__TARGET void BITNET__V(put_i8)(int8_t *q, const BITNET__V(v16) *v,
                                                     __m128i *total) {
    __m128i bytes = BITNET__V(bytes_from)(*v, -128.0f);
    _mm_storeu_si128((__m128i *)(void *)q, bytes);
    bytes = _mm_xor_si128(bytes, _mm_set1_epi8((char)-128));
    *total = _mm_add_epi64(*total, _mm_sad_epu8(bytes, _mm_setzero_si128()));
}

BITNET__INLINE BITNET__TARGET __m128i BITNET__V(no_counts)(void) { return _mm_setzero_si128(); }

BITNET__INLINE BITNET__TARGET int32_t BITNET__V(counted)(__m128i total, int n) {
    total = _mm_add_epi64(total, _mm_unpackhi_epi64(total, total));
    return _mm_cvtsi128_si32(total) - 128 * n;
}

BITNET__INLINE BITNET__TARGET void BITNET__V(put_u8)(uint8_t *q, const BITNET__V(v16) *v) {
    _mm_storeu_si128((__m128i *)(void *)q, BITNET__V(bytes_from)(*v, 0.0f));
}

BITNET__INLINE BITNET__TARGET void BITNET__V(put_f16)(uint8_t *p, const float *x) {
    _mm256_storeu_si256((__m256i *)(void *)p, BITNET__V(to_f16)(BITNET__V(load_f32)(x)));
}

#define BITNET__ROW_KERNELS
#include "bitnet.h"

typedef struct BITNET__V(panel) {
    BITNET__V(i32) codes[BITNET__PANEL][2];
    bitnet__ahead ahead;               /* of the next one's weights */
} BITNET__V(panel);

/* ---- I2_S, panels ----
   A block's 32 bytes are two quads of 4 words. A vector takes the quad of every 4th row: i,
   i + 4 and so on; four vectors have all rows of the half. Transposing 4 x 4 words in each 16
   bytes leaves word d of all rows in one vector, in order. Its bits 7-6 belong to k-step
   4 * quad + d of the block, bits 5-4 to the k-step 8 further on, then 16, then 24. */
BITNET__INLINE BITNET__TARGET void BITNET__V(put_quad)(const BITNET__V(i32) *v,
                                                       BITNET__V(i32) (*to)[2], int half) {
    const BITNET__V(i32) t0 = BITNET__V(unpacklo_epi32)(v[0], v[1]);
    const BITNET__V(i32) t1 = BITNET__V(unpackhi_epi32)(v[0], v[1]);
    const BITNET__V(i32) t2 = BITNET__V(unpacklo_epi32)(v[2], v[3]);
    const BITNET__V(i32) t3 = BITNET__V(unpackhi_epi32)(v[2], v[3]);
    BITNET__V(i32) word[4];
    int d;
    word[0] = BITNET__V(unpacklo_epi64)(t0, t2);
    word[1] = BITNET__V(unpackhi_epi64)(t0, t2);
    word[2] = BITNET__V(unpacklo_epi64)(t1, t3);
    word[3] = BITNET__V(unpackhi_epi64)(t1, t3);
    BITNET__UNROLL for (d = 0; d < 4; d++) {
        to[d][half] = BITNET__V(codes)(word[d], 6);
        to[d + 8][half] = BITNET__V(codes)(word[d], 4);
        to[d + 16][half] = BITNET__V(codes)(word[d], 2);
        to[d + 24][half] = BITNET__V(codes)(word[d], 0);
    }
}

BITNET__APART BITNET__TARGET void BITNET__V(unpack_i2s)(const bitnet__dots *d, int at, int k,
                                                        int len, void *to_panel) {
    enum { lanes = BITNET__V(lanes), depth = BITNET__PANEL };     /* of a row, in bytes */
    BITNET__V(panel) *panel = (BITNET__V(panel) *)to_panel;
    size_t row_bytes = (size_t)(d->n / 4);
    const uint8_t *p = d->w + (size_t)at * row_bytes + (size_t)(k / 4);
    uint8_t some[2 * lanes * depth];
    BITNET__V(i32) v[4];
    int r, half, quad;
    panel->ahead = bitnet__make_ahead(p, 2 * lanes * row_bytes, len / 4, 2 * lanes, row_bytes);
    if (d->rows - at < 2 * lanes) {            /* the last row again for those that are not there */
        for (r = 0; r < 2 * lanes; r++)
            memcpy(some + r * depth, p + bitnet__clamp(r, d->rows - at) * row_bytes,
                   (size_t)len / 4);
        p = some;
        row_bytes = depth;
    }
    for (half = 0; half < 2; half++) {
        for (quad = 0; quad < len / 64; quad++) {
            BITNET__V(i32) (*to)[2] = panel->codes + quad / 2 * 32 + quad % 2 * 4;
            const uint8_t *from = p + (size_t)half * lanes * row_bytes + quad * 16;
            BITNET__UNROLL for (r = 0; r < 4; r++)
                v[r] = BITNET__V(every4)(from + (size_t)r * row_bytes, row_bytes);
            BITNET__V(put_quad)(v, to, half);
        }
    }
}

/* The dots of a tile's 4 rows with a column, each minus the column's sum. */
BITNET__INLINE BITNET__TARGET void BITNET__V(end_column_i32)(const BITNET__V(i32) *sum,
                                                             const int32_t *sums, int rows,
                                                             int32_t *out) {
    int32_t four[4];
    _mm_storeu_si128((__m128i *)(void *)four,
                     _mm_sub_epi32(BITNET__V(fold4)(sum), _mm_set1_epi32(*sums)));
    bitnet__put(out, four, rows);
}

BITNET__APART BITNET__TARGET void BITNET__V(end_dots)(BITNET__V(i32) (*sum)[4],
                                                      const int32_t *sums, int rows, int cols,
                                                      int32_t *out, size_t stride) {
    int c;
    for (c = 0; c < cols; c++, out += stride)
        BITNET__V(end_column_i32)(sum[c], sums + c, rows, out);
}

#endif /* BITNET__WIDTH */

#if BITNET__PARTS & BITNET__DOTS
/* ---- I2_S, tiles ----
   spread makes two pairs of a block (32 bytes): 0 for the first 64 activations, 1 for the rest. A
   pair has two halves of 32 codes, each at its place in the byte:

       0: bytes >> 4, 1: bytes     & 0x0c: lower half, 4 * code    & 0x03: upper half, code

   So one shift is enough for four fields. The dots of lower halves are 4 times too large, exactly,
   until settle, after at most `depth` blocks, adds both halves into int32. `together` rows of the
   4 are computed at a time, and `few_together` with 1 or 2 columns: as many as the registers have
   room for. If that is all 4, their codes come first, and then each column is loaded once for the 4
   rows; else the codes of a row come just before its products, which take the columns from memory.
   One column, where few_together is 1, is column_i2s instead. */
BITNET__INLINE BITNET__TARGET void BITNET__I(block_i2s)(
    BITNET__V(pair) (*partial)[BITNET__TILE], const uint8_t *const *row, const int8_t *q,
    size_t q_stride, size_t b, const int tile_cols, const int together) {
    const int at_once = together > 2 ? together : 1;
    BITNET__V(pair) w[BITNET__TILE];
    int r, c, i, first;
    BITNET__UNROLL for (i = 0; i < 2; i++) {
        BITNET__UNROLL for (first = 0; first < together; first += at_once) {
            BITNET__UNROLL for (r = 0; r < at_once; r++)
                w[r] = BITNET__V(spread)(row[first + r] + b * 32, i);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                BITNET__UNROLL for (r = 0; r < at_once; r++)
                    partial[c][first + r] = BITNET__I(dot)(
                        partial[c][first + r], w[r],
                        q + (size_t)c * q_stride + b * 128 + (size_t)i * 64);
            }
            BITNET__NO_AHEAD();
        }
    }
}

BITNET__INLINE BITNET__TARGET void BITNET__I(tile_i2s)(const bitnet__dots *d, const int tile_cols) {
    enum { most = BITNET__I(tile_cols), depth = BITNET__I(depth) };
    const int together = tile_cols > 2 ? BITNET__I(together) : BITNET__I(few_together);
    const int whole = together > 2;            /* all rows at once, all blocks in int32 */
    const int block_cols = whole ? 0 : tile_cols;  /* whose sums end with each run of blocks */
    const int at_once = tile_cols < 5 ? 2 : 1;    /* blocks at a time: more would be much code */
    BITNET__V(pair) partial[most][BITNET__TILE], kept[most][BITNET__TILE];
    BITNET__V(i32) sum[most][BITNET__TILE];
    const uint8_t *row[BITNET__TILE];
    int r, c, b, end, first;
    for (first = 0; first < BITNET__TILE; first += together) {
        BITNET__UNROLL for (r = 0; r < together; r++) {
            row[r] = d->w + bitnet__clamp(first + r, d->rows) * (size_t)(d->n / 4);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                sum[c][first + r] = BITNET__V(splat_i32)(0);
                if (whole) partial[c][r] = BITNET__V(no_pair)();
            }
        }
        for (b = 0; b < d->n / 128; b = end) {
            end = d->n / 128 - b < depth ? d->n / 128 : b + depth;
            BITNET__UNROLL for (c = 0; c < block_cols; c++) {
                BITNET__UNROLL for (r = 0; r < together; r++) partial[c][r] = BITNET__V(no_pair)();
            }
            for (; b < end; b += at_once) {
                BITNET__UNROLL for (r = 0; r < together; r++)
                    if (at_once == 2 || b % 2 == 0)    /* a cache line of each row */
                        BITNET__STREAM(row[r] + (size_t)b * 32);
                BITNET__I(block_i2s)(partial, row, d->q, d->q_stride, (size_t)b, tile_cols,
                                     together);
                if (at_once == 2 && b + 1 < end)
                    BITNET__I(block_i2s)(partial, row, d->q, d->q_stride, (size_t)b + 1,
                                         tile_cols, together);
            }
            BITNET__UNROLL for (c = 0; c < block_cols; c++) {
                BITNET__UNROLL for (r = 0; r < together; r++)
                    sum[c][first + r] = BITNET__V(add_epi32)(sum[c][first + r],
                                                             BITNET__I(settle)(partial[c][r]));
            }
        }
        BITNET__UNROLL for (c = 0; c < tile_cols - block_cols; c++) {
            BITNET__UNROLL for (r = 0; r < together; r++) kept[c][first + r] = partial[c][r];
        }
    }
    for (c = 0; c < tile_cols - block_cols; c++) {
        BITNET__UNROLL for (r = 0; r < BITNET__TILE; r++)
            sum[c][r] = BITNET__I(settle)(kept[c][r]);
    }
    if (tile_cols == 1) BITNET__V(end_column_i32)(sum[0], d->sums, d->rows, d->out);
    else BITNET__V(end_dots)(sum, d->sums, d->rows, tile_cols, d->out, d->stride);
}

/* The dots of a row with a column, `depth` blocks at a time. Each block is loaded only when the one
   before it is done: gcc would load all of them first, which is 5 to 10 % slower from memory. */
BITNET__INLINE BITNET__TARGET BITNET__V(i32) BITNET__I(row_i2s)(const uint8_t *w, const int8_t *q,
                                                                int n) {
    enum { depth = BITNET__I(depth) };
    const uint8_t *const end = w + n / 4;
    BITNET__V(i32) sum = BITNET__V(splat_i32)(0);
    BITNET__V(pair) partial;
    int i;
    for (; end - w >= 32 * depth; w += 32 * depth, q += 128 * depth) {
        partial = BITNET__V(no_pair)();
        BITNET__UNROLL for (i = 0; i < 2 * depth; i++) {
            if (i % 4 == 0) BITNET__STREAM(w + 16 * i);
            partial = BITNET__I(dot)(partial, BITNET__V(spread)(w + i / 2 * 32, i % 2), q + 64 * i);
            if (i % 2) BITNET__NO_AHEAD();
        }
        sum = BITNET__V(add_epi32)(sum, BITNET__I(settle)(partial));
    }
    partial = BITNET__V(no_pair)();
    for (; w < end; w += 32, q += 128) {           /* fewer than depth */
        BITNET__STREAM(w);
        partial = BITNET__I(dot)(partial, BITNET__V(spread)(w, 0), q);
        partial = BITNET__I(dot)(partial, BITNET__V(spread)(w, 1), q + 64);
    }
    return BITNET__V(add_epi32)(sum, BITNET__I(settle)(partial));
}

/* The dots of 4 rows with a column. */
BITNET__INLINE BITNET__TARGET void BITNET__I(column_i2s)(const bitnet__dots *d) {
    BITNET__V(i32) sum[BITNET__TILE];
    int r;
    for (r = 0; r < BITNET__TILE; r++)
        sum[r] = BITNET__I(row_i2s)(d->w + bitnet__clamp(r, d->rows) * (size_t)(d->n / 4), d->q,
                                    d->n);
    BITNET__V(end_column_i32)(sum, d->sums, d->rows, d->out);
}

BITNET__INLINE BITNET__TARGET int BITNET__I(tile_i2s_cols)(const bitnet__dots *d) {
    const int most = BITNET__I(tile_cols), count = bitnet__share(d->cols, most);
    if (count == 1) {
        if (BITNET__I(few_together) == 1) BITNET__I(column_i2s)(d);
        else BITNET__I(tile_i2s)(d, 1);
    } else if (count == 2) BITNET__I(tile_i2s)(d, 2);
    else if (count == 3) BITNET__I(tile_i2s)(d, 3);
    else if (most > 3 && count == 4) BITNET__I(tile_i2s)(d, 4);
    else if (most > 4 && count == 5) BITNET__I(tile_i2s)(d, 5);
    else if (most > 5) BITNET__I(tile_i2s)(d, 6);
    return count;
}

BITNET__HOT BITNET__TARGET void BITNET__I(tiles_i2s)(const bitnet__dots *d) {
    bitnet__tiles(d, BITNET__I(tile_i2s_cols), BITNET__TILE, (size_t)d->n);
}

/* ---- I2_S, panels ---- */

#if BITNET__PARTS & BITNET__VNNI_STEPS
/* 4 weights of a panel's rows times 4 activations of its columns. */
BITNET__INLINE BITNET__TARGET void BITNET__I(k_step)(BITNET__V(i32) (*sum)[2],
                                                     const BITNET__V(i32) *weights,
                                                     const int8_t *const *col, size_t at) {
    const BITNET__V(i32) w0 = weights[0], w1 = weights[1];
    int c;
    BITNET__UNROLL for (c = 0; c < BITNET__I(panel_cols); c++) {
        const BITNET__V(i32) a = BITNET__V(repeat4)(col[c] + at);
        sum[c][0] = BITNET__I(products)(sum[c][0], w0, a);
        sum[c][1] = BITNET__I(products)(sum[c][1], w1, a);
        BITNET__ADDED(sum[c][0], a);
        BITNET__ADDED(sum[c][1], a);
    }
}

/* A multiple of 8 k-steps, and a line of the next panel's weights for every 8. */
BITNET__INLINE BITNET__TARGET void BITNET__I(k_steps)(const BITNET__V(i32) (*panel)[2], int k_steps,
                                                      const int8_t *const *col,
                                                      BITNET__V(i32) (*sum)[2],
                                                      bitnet__ahead *ahead) {
    int k, i, j;
    for (k = 0; k < k_steps; k += 8) {
        if (ahead) bitnet__fetch_line(ahead);
        for (i = k; i < k + 8; i += BITNET__I(k_steps_at_once)) {
            BITNET__UNROLL for (j = i; j < i + BITNET__I(k_steps_at_once); j++)
                BITNET__I(k_step)(sum, panel[j], col, (size_t)j * 4);
        }
    }
}
#endif

/* The sums begin with minus the columns' sums, or with what is in out. */
BITNET__HOT BITNET__TARGET void BITNET__I(multiply)(void *panel, int k, int len,
                                                    const bitnet__dots *d) {
    enum { most = BITNET__I(panel_cols), lanes = BITNET__V(lanes) };
    const int rows = d->rows, cols = d->cols;
    BITNET__V(i32) sum[most][2];
    const int8_t *col[most];
    int32_t *out[most];
    int c;
    BITNET__UNROLL for (c = 0; c < most; c++) {
        col[c] = d->q + bitnet__clamp(c, cols) * d->q_stride + k;
        out[c] = d->out + bitnet__clamp(c, cols) * d->stride;
        if (k == 0)
            sum[c][0] = sum[c][1] = BITNET__V(splat_i32)(-d->sums[bitnet__clamp(c, cols)]);
        else {
            sum[c][0] = BITNET__V(load_first)(out[c], rows);
            sum[c][1] = BITNET__V(load_first)(out[c] + lanes, rows - lanes);
        }
    }
    BITNET__I(k_steps)((const BITNET__V(i32) (*)[2])panel, len / 4, col, sum,
                       &((BITNET__V(panel) *)panel)->ahead);
    BITNET__UNROLL for (c = 0; c < most; c++) {
        if (c < cols) {
            BITNET__V(store_first)(out[c], rows, sum[c][0]);
            BITNET__V(store_first)(out[c] + lanes, rows - lanes, sum[c][1]);
        }
    }
}

BITNET__APART BITNET__TARGET void BITNET__I(panels_i2s)(const bitnet__dots *d) {
    BITNET__V(panel) panel;
    bitnet__panels(d, &panel, BITNET__V(unpack_i2s), BITNET__I(multiply), 2 * BITNET__V(lanes),
                   4 * BITNET__PANEL, BITNET__I(panel_cols));
}

static BITNET__TARGET void BITNET__I(dotrows_i2s)(const bitnet__dots *d) {
    bitnet__tiles_and_panels(d, BITNET__I(tiles_i2s), BITNET__I(panels_i2s), BITNET__I(panel_cols),
                             BITNET__I(panels_from), bitnet__i2s_bytes);
}

#ifndef BITNET_NO_GROUPS
/* ---- a scale per group ---- */

#if BITNET__PARTS & BITNET__VNNI_STEPS
/* A scale group of a row pack with some columns. With few columns a sum is shared out among
   several, since vpdpbusd takes 4 or 5 cycles, and two can start in a cycle. */
BITNET__INLINE BITNET__TARGET void BITNET__I(group)(
    const uint8_t *w, const int8_t *q, int n, int group, const int bits,
    BITNET__V(i32) (*dots)[16 / BITNET__V(lanes)], const int tile_cols) {
    enum { halves = 16 / BITNET__V(lanes) };
    const int chains = halves * tile_cols < 3 ? 4 : 3 - halves, in_byte = 8 / bits;
    BITNET__V(i32) sum[BITNET__I(group_cols)][halves][4], v[halves];
    int c, h, i, s;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (h = 0; h < halves; h++) {
            BITNET__UNROLL for (s = 0; s < chains; s++) sum[c][h][s] = BITNET__V(splat_i32)(0);
        }
    }
    for (i = 0; i < group; i += 4 * in_byte, w += 64, q += 4 * in_byte) {
        BITNET__STREAM(w);
        BITNET__UNROLL for (h = 0; h < halves; h++) v[h] = BITNET__V(load_i)(w + 64 / halves * h);
        BITNET__UNROLL for (s = 0; s < in_byte; s++) {
            BITNET__V(i32) codes[halves];
            BITNET__UNROLL for (h = 0; h < halves; h++)
                codes[h] = BITNET__V(pack_codes)(v[h], s, bits);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                const BITNET__V(i32) a = BITNET__V(repeat4)(q + (size_t)c * (size_t)n + 4 * s);
                BITNET__UNROLL for (h = 0; h < halves; h++) {
                    BITNET__V(i32) *to = &sum[c][h][s % chains];
                    *to = BITNET__I(products)(*to, codes[h], a);
                    BITNET__IN_PLACE(*to);
                }
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (h = 0; h < halves; h++) {
            dots[c][h] = sum[c][h][0];
            BITNET__UNROLL for (s = 1; s < chains; s++)
                dots[c][h] = BITNET__V(add_epi32)(dots[c][h], sum[c][h][s]);
        }
    }
}
#endif

/* 16 rows, or those that are left, with some columns. */
BITNET__INLINE BITNET__TARGET void BITNET__I(tile_groups)(const bitnet__grouped *x,
                                                          const int bits, const int tile_cols) {
    enum { most = BITNET__I(group_cols), halves = 16 / BITNET__V(lanes) };
    const int n = x->n, group = x->blocks->group, rows = x->rows, add = x->add;
    const size_t groups = (size_t)(n / group);
    const uint8_t *w = x->w;
    const int8_t *q = x->q;
    float *out = x->out;
    BITNET__V(v16) y[most];
    float last[16];
    size_t g;
    int c, r;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) y[c] = BITNET__V(splat)(0.0f);
    for (g = 0; g < groups; g++, w += BITNET__PACK_BYTES(group, bits), q += group) {
        const BITNET__V(v16) d = BITNET__V(load_f16)(w);
        BITNET__V(i32) dots[most][halves];
        BITNET__I(group)(w + BITNET__PACK_SCALES, q, n, group, bits, dots, tile_cols);
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            const size_t at = (size_t)c * groups + g;
            const BITNET__V(v16) f = BITNET__V(mul)(d, BITNET__V(splat)(x->scales[at]));
            y[c] = BITNET__V(add)(y[c],
                                  BITNET__V(mul)(BITNET__V(minus)(dots[c], x->sums[at]), f));
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++, out += x->stride) {
        if (rows >= 16) {
            if (add) y[c] = BITNET__V(add)(BITNET__V(load_f32)(out), y[c]);
            BITNET__V(store)(out, y[c]);
            continue;
        }
        BITNET__V(store)(last, y[c]);
        for (r = 0; r < rows; r++) out[r] = add ? out[r] + last[r] : last[r];
    }
}

#if BITNET__PARTS & BITNET__VNNI_STEPS
/* With many columns, panels: their codes are unpacked once for all columns, and each activation,
   once loaded, serves twice as many rows. A panel of 2 L rows is one row pack, or two. */
enum { BITNET__I(group_wide) = 16 * BITNET__I(panel_cols) };       /* columns at a time */

/* The codes of a scale group: w[half] begins with those of the half's rows. */
BITNET__INLINE BITNET__TARGET void BITNET__I(unpack_group)(const uint8_t *const *w, int group,
                                                           const int bits,
                                                           BITNET__V(i32) (*panel)[2]) {
    const int in_byte = 8 / bits;          /* codes */
    int i, h, s;
    for (i = 0; i < group / (4 * in_byte); i++, panel += in_byte) {
        BITNET__UNROLL for (h = 0; h < 2; h++) {
            const BITNET__V(i32) v = BITNET__V(load_i)(w[h] + 64 * i);
            BITNET__STREAM(w[h] + 64 * i);
            BITNET__UNROLL for (s = 0; s < in_byte; s++)
                panel[s][h] = BITNET__V(pack_codes)(v, s, bits);
        }
    }
}

/* y += the products of a scale group of a panel's weights with a tile of columns, whose groups lie
   `groups` apart in sums and scales. The activations of the tile that comes next are at `next`. All
   of a panel's columns do not fit in L1, and what is read of each is too short for the processor to
   see that it goes on: without these prefetches a prompt of 512 waits for 12 % of its time. */
BITNET__INLINE BITNET__TARGET void BITNET__I(multiply_group)(
    const BITNET__V(i32) (*panel)[2], const BITNET__V(v16) *d, const int8_t *q, const int8_t *next,
    const int32_t *sums, const float *scales, int n, int group,
    BITNET__V(v16) (*y)[BITNET__V(lanes) / 8]) {
    enum { most = BITNET__I(panel_cols), packs = BITNET__V(lanes) / 8 };
    const size_t groups = (size_t)(n / group);
    BITNET__V(i32) sum[most][2], dots[2];
    const int8_t *col[most];
    int c, p;
    BITNET__UNROLL for (c = 0; c < most; c++) {
        col[c] = q + (size_t)c * (size_t)n;
        sum[c][0] = sum[c][1] = BITNET__V(splat_i32)(0);
    }
    for (p = 0; p < group; p += 64) {
        BITNET__UNROLL for (c = 0; c < most; c++)
            _mm_prefetch((const char *)((uintptr_t)next + (size_t)c * (size_t)n + (size_t)p),
                         _MM_HINT_T0);
    }
    BITNET__I(k_steps)(panel, group / 4, col, sum, 0);
    BITNET__UNROLL for (c = 0; c < most; c++) {
        const size_t at = (size_t)c * groups;
        dots[0] = sum[c][0];
        dots[1] = sum[c][1];
        BITNET__UNROLL for (p = 0; p < packs; p++) {
            const BITNET__V(v16) f = BITNET__V(mul)(d[p], BITNET__V(splat)(scales[at]));
            const BITNET__V(v16) dot = BITNET__V(minus)(dots + (packs == 2 ? p : 0), sums[at]);
            y[c][p] = BITNET__V(add)(y[c][p], BITNET__V(mul)(dot, f));
        }
    }
}

/* The same as a function of its own, for avxvnni. Where it is inlined, gcc keeps the scales d in
   registers and one of the 12 sums in memory, which is 30 % slower. */
BITNET__APART BITNET__TARGET void BITNET__I(multiply_group_apart)(
    const BITNET__V(i32) (*panel)[2], const BITNET__V(v16) *d, const int8_t *q, const int8_t *next,
    const int32_t *sums, const float *scales, int n, int group,
    BITNET__V(v16) (*y)[BITNET__V(lanes) / 8]) {
    BITNET__I(multiply_group)(panel, d, q, next, sums, scales, n, group, y);
}

/* A panel, or the rows that are left, with some whole tiles of columns, at most `group_wide`. */
BITNET__HOT BITNET__TARGET void BITNET__I(panel_groups)(const bitnet__grouped *x) {
    enum { packs = BITNET__V(lanes) / 8, tile = BITNET__I(panel_cols) };   /* row packs; columns */
    const int bits = x->blocks->bits;
    const int n = x->n, group = x->blocks->group, rows = x->rows, cols = x->cols, add = x->add;
    const size_t groups = (size_t)(n / group);
    const size_t second = rows > 16 ? bitnet__blocks_bytes(x->blocks, n, 16) : 0;
    const uint8_t *w = x->w;
    float *out = x->out;
    BITNET__V(i32) panel[64][2];                       /* a scale group has at most 256 weights */
    BITNET__V(v16) y[BITNET__I(group_wide)][packs], d[packs];
    const uint8_t *half[2];
    float last[16];
    size_t g;
    int c, p, r;
    for (c = 0; c < cols; c++) {
        BITNET__UNROLL for (p = 0; p < packs; p++) y[c][p] = BITNET__V(splat)(0.0f);
    }
    for (g = 0; g < groups; g++, w += BITNET__PACK_BYTES(group, bits)) {
        BITNET__UNROLL for (p = 0; p < packs; p++)
            d[p] = BITNET__V(load_f16)(w + (p ? second : 0));
        half[0] = w + BITNET__PACK_SCALES;
        half[1] = half[0] + (packs == 2 ? second : 32);           /* or its rows 8 to 15 */
        if (bits == 2) BITNET__I(unpack_group)(half, group, 2, panel);
        else BITNET__I(unpack_group)(half, group, 1, panel);
        for (c = 0; c < cols; c += tile) {
            const size_t at = (size_t)c * groups + g;
            const size_t next = c + tile < cols ? at + tile * groups : g + 1;
            const BITNET__V(i32) (*codes)[2] = (const BITNET__V(i32) (*)[2])panel;
            const int8_t *q = x->q + at * (size_t)group, *ahead = x->q + next * (size_t)group;
            if (BITNET__V(lanes) == 8 && (BITNET__PARTS & BITNET__VNNI_STEPS) != 0)
                BITNET__I(multiply_group_apart)(codes, d, q, ahead, x->sums + at, x->scales + at,
                                                n, group, y + c);
            else
                BITNET__I(multiply_group)(codes, d, q, ahead, x->sums + at, x->scales + at, n,
                                          group, y + c);
        }
    }
    for (c = 0; c < cols; c++, out += x->stride) {
        for (p = 0; p < packs && 16 * p < rows; p++) {
            float *to = out + 16 * p;
            if (rows - 16 * p >= 16) {
                if (add) y[c][p] = BITNET__V(add)(BITNET__V(load_f32)(to), y[c][p]);
                BITNET__V(store)(to, y[c][p]);
                continue;
            }
            BITNET__V(store)(last, y[c][p]);
            for (r = 0; r < rows - 16 * p; r++) to[r] = add ? to[r] + last[r] : last[r];
        }
    }
}

/* Whole tiles of columns; returns how many they are. */
static BITNET__TARGET int BITNET__I(panels_groups)(const bitnet__grouped *x) {
    enum { tall = 2 * BITNET__V(lanes), wide = BITNET__I(group_wide) };
    const int whole = x->cols - x->cols % BITNET__I(panel_cols);
    int r, c;
    for (c = 0; c < whole; c += wide) {
        for (r = 0; r < x->rows; r += tall) {
            bitnet__grouped patch = bitnet__grouped_from(x, r, c);
            if (patch.rows > tall) patch.rows = tall;
            patch.cols = whole - c < wide ? whole - c : wide;
            BITNET__I(panel_groups)(&patch);
        }
    }
    return whole;
}
#endif

BITNET__INLINE BITNET__TARGET void BITNET__I(some_groups)(const bitnet__grouped *x, const int bits,
                                                          const int count) {
    const int most = BITNET__I(group_cols);
    if (count == 1) BITNET__I(tile_groups)(x, bits, 1);
    else if (count == 2) BITNET__I(tile_groups)(x, bits, 2);
    else if (count == 3) BITNET__I(tile_groups)(x, bits, 3);
    else if (count == 4 || most == 4) BITNET__I(tile_groups)(x, bits, 4);
    else if (count == 6) BITNET__I(tile_groups)(x, bits, 6);
    else BITNET__I(tile_groups)(x, bits, most);
}

/* 4 words of 16 rows: their rows become words of all rows. p: the first row's. */
BITNET__INLINE BITNET__TARGET void BITNET__I(pack_words)(const uint8_t *p, size_t row_bytes,
                                                         uint8_t *to) {
    enum { lanes = BITNET__V(lanes) };
    BITNET__V(i32) v[4], t[4];
    int h, i;
    BITNET__UNROLL for (h = 0; h < 16 / lanes; h++) {
        BITNET__UNROLL for (i = 0; i < 4; i++)
            v[i] = BITNET__V(load_lanes)(p + (size_t)(lanes * h + i) * row_bytes, 4 * row_bytes);
        BITNET__UNROLL for (i = 0; i < 2; i++) {
            t[i] = BITNET__V(unpacklo_epi32)(v[2 * i], v[2 * i + 1]);
            t[2 + i] = BITNET__V(unpackhi_epi32)(v[2 * i], v[2 * i + 1]);
        }
        BITNET__UNROLL for (i = 0; i < 4; i += 2) {
            v[i] = BITNET__V(unpacklo_epi64)(t[i], t[i + 1]);
            v[i + 1] = BITNET__V(unpackhi_epi64)(t[i], t[i + 1]);
        }
        BITNET__UNROLL for (i = 0; i < 4; i++)
            BITNET__V(store_i)(to + 64 * i + 4 * lanes * h, v[i]);
    }
}

/* A row pack of the digits of 16 rows, as codes of 2 bits. raw has 7 words of each row. */
static BITNET__TARGET void BITNET__I(pack_digits)(const uint8_t *w, size_t row_bytes,
                                                  uint8_t *pack) {
    enum { lanes = BITNET__V(lanes) };
    const BITNET__V(i32) low = BITNET__V(splat_i32)(0xffff);
    BITNET__V(i32) word[8], v, next, d;
    uint8_t raw[7 * 64];
    int h, i, n;
    BITNET__I(pack_words)(w, row_bytes, raw);
    BITNET__I(pack_words)(w + 12, row_bytes, raw + 3 * 64);
    for (i = 0; i < 16; i++) memcpy(pack + 2 * i, w + (size_t)i * row_bytes + 26, 2);
    for (h = 0; h < 64; h += 4 * lanes) {
        for (n = 0; n < 8; n++) word[n] = BITNET__V(splat_i32)(0);
        for (i = 0; i < 7; i++) {
            v = BITNET__V(load_i)(raw + 64 * i + h);
            for (n = 0; n < (i < 6 ? 5 : 4); n++, v = next) {
                const int to = i < 4 ? n : i < 6 ? 5 + n / 2 : 7;
                const int turn = i < 4 ? i : i < 6 ? n % 2 * 2 + i - 4 : 2 + n / 2;
                next = BITNET__V(tripled)(v);
                d = BITNET__V(digit)(v, next);
                if (i == 6) d = BITNET__V(shifted_up)(BITNET__V(masked)(d, 0, low), n % 2 * 16);
                word[to] = BITNET__V(add_epi32)(word[to], BITNET__V(shifted_up)(d, 2 * turn));
            }
        }
        for (n = 0; n < 8; n++)
            BITNET__V(store_i)(pack + BITNET__PACK_SCALES + 64 * n + h, word[n]);
    }
}

/* 16 rows, or those that are left: a pack for each scale group. The last row is repeated. */
static BITNET__TARGET void BITNET__I(pack_groups)(const bitnet__blocks *b, const uint8_t *w, int n,
                                                  int rows, uint8_t *out) {
    const size_t row_bytes = bitnet__blocks_bytes(b, n, 1);
    const int end = b->codes_at + b->group * b->bits / 8;
    int g, i, r;
    for (g = 0; g < n / b->group && !b->bits; g++, w += b->bytes) {
        if (rows == 16) BITNET__I(pack_digits)(w, row_bytes, out);
        else bitnet__pack_group(b, w, row_bytes, rows, out);
        out += BITNET__PACK_BYTES(128, 2);
    }
    for (g = 0; g < n / b->group && b->bits; g++, w += b->bytes) {
        for (r = 0; r < 16; r++, out += 2)
            memcpy(out, w + b->scale_at + bitnet__clamp(r, rows) * row_bytes, 2);
        for (i = b->codes_at; i < end && rows == 16; i += 16, out += 256)
            BITNET__I(pack_words)(w + i, row_bytes, out);
        for (; i < end; i += 4)
            for (r = 0; r < 16; r++, out += 4)
                memcpy(out, w + i + bitnet__clamp(r, rows) * row_bytes, 4);
    }
}

/* ---- blocks as they lie in a file, with one column ----
   A vector of codes, shifted by t codes, meets the activations of its plane t. A unit is 16 blocks
   in 4 quads. As a rule they are a row's scale groups one after the other: block j of quad L is
   number 4 L + j. For the scale groups that are left they are of 16 rows: block j of quad L is that
   of row 4 L + j. A vector has the codes of block j of one or more quads, with zmm:

       bytes of codes           16                  32                 64
       its blocks               j, 4 + j,           j, 4 + j, then     j, then 4 + j,
                                8 + j, 12 + j       8 + j, 12 + j      8 + j, 12 + j
       lanes of 128 bits        1 each              2 each             4 each

   The sums of four vectors, j = 0 to 3, are folded to one: element j of a lane of 128 bits is that
   lane's sum of block j. Then a block's lanes are added. So the dots come in the order of the
   blocks.

   Bound: an element has 16 products of a code up to 3, at most 6144 together, or with two vectors a
   block (AVX2, TQ2_0) 32 of a code up to 2, 8192. Of bits it has 32, doubled at most 8192. Two of
   them fit int16, as folding asks. */
enum { BITNET__I(plane_room) = 61440 / (4 * BITNET__V(lanes)) };       /* vectors */

/* The codes of a vector's bytes come in turns. Those of 2 bits are shifted down. With vpdpbusd,
   single bits are shifted up by an addition: there are four ports for that, and two for shifts. So
   the uppermost comes first, as 128. Before sums are folded, a bit counts 2, since it means -1 or
   +1. */
#if BITNET__PARTS & BITNET__VNNI_STEPS
BITNET__INLINE int BITNET__I(bit_turn)(const int t, const int bits) {
    return bits == 1 ? 7 - t : t;
}
BITNET__INLINE BITNET__TARGET BITNET__V(i32) BITNET__I(turn_codes)(BITNET__V(i32) *v, const int t,
                                                                   const int bits) {
    const BITNET__V(i32) now = *v;
    if (bits == 2) return BITNET__V(masked)(now, 2 * t, BITNET__V(splat_i32)(0x03030303));
    *v = BITNET__V(add_epi32)(now, now);
    return BITNET__V(masked)(now, 0, BITNET__V(splat_i32)((int32_t)0x80808080u));
}
BITNET__INLINE BITNET__TARGET BITNET__V(i32) BITNET__I(turn_products)(BITNET__V(i32) sum,
                                                                      BITNET__V(i32) codes,
                                                                      BITNET__V(i32) a) {
    return BITNET__I(products)(sum, codes, a);
}
BITNET__INLINE BITNET__TARGET BITNET__V(i32) BITNET__I(turn_sums)(BITNET__V(i32) sum,
                                                                  const int bits) {
    return bits == 2 ? sum : BITNET__V(down6)(sum);
}
#else
BITNET__INLINE int BITNET__I(bit_turn)(const int t, const int bits) { return (void)bits, t; }
BITNET__INLINE BITNET__TARGET BITNET__V(i32) BITNET__I(turn_codes)(BITNET__V(i32) *v, const int t,
                                                                   const int bits) {
    const int32_t mask = bits == 2 ? 0x03030303 : 0x01010101;
    return BITNET__V(masked)(*v, bits * t, BITNET__V(splat_i32)(mask));
}
BITNET__INLINE BITNET__TARGET BITNET__V(i32) BITNET__I(turn_products)(BITNET__V(i32) sum,
                                                                      BITNET__V(i32) codes,
                                                                      BITNET__V(i32) a) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, a));
}
BITNET__INLINE BITNET__TARGET BITNET__V(i32) BITNET__I(turn_sums)(BITNET__V(i32) sum,
                                                                  const int bits) {
    return _mm256_madd_epi16(sum, _mm256_set1_epi16((short)(3 - bits)));
}
#endif

/* The sums of a vector's digits. A byte y gives the next one, y' = 3 y mod 256, and the digit
   (3 y - y') / 256. So vpdpbusd needs no digits: 256 times their sum is 3 times that of y less that
   of y'.
   Bound: the sums of y have 20 products of at most 255 * 128, three times that is 1958400. */
#if BITNET__PARTS & BITNET__VNNI_STEPS
BITNET__INLINE BITNET__TARGET BITNET__V(i32) BITNET__I(digit_sums)(BITNET__V(i32) v,
                                                                   const BITNET__V(i32) *planes) {
    BITNET__V(i32) now = BITNET__V(splat_i32)(0), next = now;
    int t;
    BITNET__UNROLL for (t = 0; t < 5; t++) {
        now = BITNET__I(products)(now, v, planes[t]);
        v = BITNET__V(tripled)(v);
        next = BITNET__I(products)(next, v, planes[t]);
    }
    return BITNET__V(down8)(BITNET__V(sub_epi32)(
        BITNET__V(add_epi32)(BITNET__V(add_epi32)(now, now), now), next));
}
#else
BITNET__INLINE BITNET__TARGET BITNET__V(i32) BITNET__I(digit_sums)(BITNET__V(i32) v,
                                                                   const BITNET__V(i32) *planes) {
    BITNET__V(i32) sum = BITNET__V(splat_i32)(0), next;
    int t;
    BITNET__UNROLL for (t = 0; t < 5; t++) {
        next = BITNET__V(tripled)(v);
        sum = BITNET__I(turn_products)(sum, BITNET__V(digit)(v, next), planes[t]);
        v = next;
    }
    return BITNET__I(turn_sums)(sum, 2);
}
#endif

/* The activations q of a block that `part` bytes of its codes meet at a turn. */
BITNET__INLINE void BITNET__I(copy_plane)(const int8_t *q, int turn, const int part, const int bits,
                                          uint8_t *to) {
    int m;
    if (!bits) {
        memset(to + 24, 0, 8);         /* the scale, and what lies behind the block */
        memcpy(to, q + 16 * turn, 16);
        memcpy(to + 16, q + 80 + 8 * turn, 8);
        if (turn < 4) memcpy(to + 24, q + 120 + 2 * turn, 2);
        return;
    }
    q += bits == 2 ? 4 * turn : turn % 2 * 16 + turn / 2 * 4;
    BITNET__UNROLL for (m = 0; m < part; m += 4) memcpy(to + m, q + m * (8 / bits), 4);
}

/* The planes of a column: of whole units, then of each scale group that is left, repeated to fill
   vectors. */
BITNET__INLINE BITNET__TARGET void BITNET__I(make_planes)(const int8_t *q, int groups,
                                                          const int bytes, const int bits,
                                                          const int along,
                                                          BITNET__V(i32) *planes) {
    enum { lanes = BITNET__V(lanes), wide = 4 * lanes };
    const int part = bytes < wide ? bytes : wide, parts = bytes / part;
    const int turns = bits ? 8 / bits : 5, group = bits ? bytes * turns : 128;
    const int quads = wide / part, whole = along * (groups / 16);
    uint8_t *to = (uint8_t *)planes;
    int g, f, j, k, t, i;
    for (g = 0; g < groups; g += g < whole ? 16 : 1) {
        const int all = g < whole;
        for (f = 0; f < (all ? 4 / quads : 1); f++)
            for (j = 0; j < (all ? 4 : 1); j++)
                for (k = 0; k < parts; k++) {
                    BITNET__UNROLL for (t = 0; t < turns; t++) {
                        for (i = 0; i < quads; i++, to += part) {
                            const int block = g + (all ? 4 * (f * quads + i) + j : 0);
                            BITNET__I(copy_plane)(q + (size_t)block * (size_t)group +
                                                      k * part * turns,
                                                  BITNET__I(bit_turn)(t, bits), part, bits, to);
                        }
                    }
                }
    }
}

/* A run of units: y = (dot - less) * (scale of the block * scale), all [units][16]. The codes of
   the first one's block i are at p + i * stride, their planes at plane. With in_row 1 the units lie
   in a row, else across rows, from one scale group to the next, and blocks share their planes. */
typedef struct BITNET__I(run) {
    const uint8_t *p;
    const BITNET__V(i32) *plane;
    size_t stride;
    const int32_t *less;
    const float *scales;
    float *y;
} BITNET__I(run);

BITNET__INLINE BITNET__TARGET void BITNET__I(run_units)(const BITNET__I(run) *x, int units,
                                                        const int bytes, const int bits,
                                                        const int in_row) {
    enum { lanes = BITNET__V(lanes), wide = 4 * lanes };
    const int part = bytes < wide ? bytes : wide, parts = bytes / part;
    const int turns = bits ? 8 / bits : 5, block = bits ? bytes + 2 : 28;
    const int quads = wide / part, folds = lanes / 4 / quads;
    const int to_scale = !bits ? 26 : bytes == 64 ? 64 : -2;
    const size_t stride = in_row ? (size_t)block : x->stride;
    const size_t next = in_row ? 16 * stride : (size_t)block;
    const size_t step = in_row ? (size_t)(parts * turns) : 0;
    const size_t planes = (size_t)(parts * turns * (in_row ? 16 / quads : 1));
    const uint8_t *p = x->p;
    int u, h, f, i, j, k, t;
    for (u = 0; u < units; u++, p += next) {
        const BITNET__V(i32) *plane = x->plane + (size_t)u * planes;
        BITNET__V(i32) sum[4], folded[4], dots[16 / lanes], v;
        const uint8_t *at[4];
        uint16_t d[16];
        if (in_row) {
            BITNET__UNROLL for (i = 0; i < 16 * block; i += 64) BITNET__STREAM(p + i);
        }
        BITNET__UNROLL for (i = 0; i < 16; i++) memcpy(d + i, p + to_scale + (size_t)i * stride, 2);
        BITNET__UNROLL for (i = 0; i < 4; i++) at[i] = p + (size_t)(4 * i) * stride;
        BITNET__UNROLL for (h = 0; h < 16 / lanes; h++) {
            BITNET__UNROLL for (f = 0; f < folds; f++) {
                BITNET__UNROLL for (j = 0; j < 4; j++, plane += step) {
                    sum[j] = BITNET__V(splat_i32)(0);
                    if (!bits) {
                        v = BITNET__V(load_parts)(at + (h * folds + f) * quads,
                                                  (size_t)j * stride, block);
                        sum[j] = BITNET__I(digit_sums)(v, plane);
                        continue;
                    }
                    BITNET__UNROLL for (k = 0; k < parts; k++) {
                        v = BITNET__V(load_parts)(at + (h * folds + f) * quads,
                                                  (size_t)j * stride + (size_t)(k * part), part);
                        BITNET__UNROLL for (t = 0; t < turns; t++)
                            sum[j] = BITNET__I(turn_products)(
                                sum[j], BITNET__I(turn_codes)(&v, t, bits), plane[k * turns + t]);
                    }
                    sum[j] = BITNET__I(turn_sums)(sum[j], bits);
                }
                folded[f] = BITNET__V(pair_sums)(BITNET__V(pair_sums)(sum[0], sum[1]),
                                                 BITNET__V(pair_sums)(sum[2], sum[3]));
            }
            dots[h] = BITNET__V(fold_lanes)(folded, folds);
        }
        BITNET__V(store)(x->y + 16 * u,
                         BITNET__V(mul)(BITNET__V(minus_each)(dots, x->less + 16 * u),
                                        BITNET__V(mul)(BITNET__V(load_f16)(d),
                                                       BITNET__V(load_f32)(x->scales + 16 * u))));
    }
}

#define BITNET__ALONG(bytes, bits) \
    BITNET__HOT BITNET__TARGET void BITNET__I(run_##bytes##_##bits)(const BITNET__I(run) *x, \
                                                                    int units) { \
        BITNET__I(run_units)(x, units, bytes, bits, 1); \
    }
#define BITNET__A_FORM(bytes, bits) \
    BITNET__HOT BITNET__TARGET void BITNET__I(rest_##bytes##_##bits)(const BITNET__I(run) *x, \
                                                                     int units) { \
        BITNET__I(run_units)(x, units, bytes, bits, 0); \
    } \
    static BITNET__TARGET void BITNET__I(planes_##bytes##_##bits)(const int8_t *q, int groups, \
                                                                  BITNET__V(i32) *planes) { \
        BITNET__I(make_planes)(q, groups, bytes, bits, bytes < 64 ? 16 : 0, planes); \
    }
BITNET__A_FORM(16, 1)
BITNET__A_FORM(16, 2)
BITNET__A_FORM(32, 2)
BITNET__A_FORM(64, 2)
BITNET__A_FORM(32, 0)
BITNET__ALONG(16, 1)
BITNET__ALONG(16, 2)
BITNET__ALONG(32, 2)
BITNET__ALONG(32, 0)
#undef BITNET__A_FORM
#undef BITNET__ALONG

/* What all rows meet of a column: its planes; and sums and scales, 16 times each, of the scale
   groups that are read across rows. */
typedef struct BITNET__I(column) {
    BITNET__V(i32) planes[BITNET__I(plane_room)];
    int32_t less[16 * 160];
    float scales[16 * 160];
} BITNET__I(column);

typedef struct BITNET__I(form) {
    int group, bits, bytes, turns;     /* bytes of codes, that is of a block's planes */
    int along;                         /* 16: whole units lie in rows; 0: all lie across rows */
    void (*planes)(const int8_t *q, int groups, BITNET__V(i32) *planes);
    void (*run)(const BITNET__I(run) *x, int units);           /* in a row */
    void (*rest)(const BITNET__I(run) *x, int units);          /* across rows */
} BITNET__I(form);

/* 16 rows. The products of units in rows are turned before they are added. */
static BITNET__TARGET void BITNET__I(rows_in_place)(const bitnet__grouped *x,
                                                    const BITNET__I(column) *column,
                                                    const BITNET__I(form) *form) {
    enum { most = 64 };
    const bitnet__blocks *const b = x->blocks;
    const int groups = x->n / b->group, whole = form->along * (groups / 16);
    const int block_planes = form->bytes * form->turns / BITNET__V(lanes);         /* quarters */
    const int unit_planes = 4 * block_planes;
    const int group_planes = form->bytes > 4 * BITNET__V(lanes) ? block_planes / 4 : form->turns;
    const size_t row_bytes = (size_t)groups * (size_t)b->bytes;
    const int left = whole * b->bytes;
    float products[16][most], turned[64];
    BITNET__V(v16) y = BITNET__V(splat)(0.0f);
    BITNET__I(run) u;
    int g, r, i, k, count;
    for (g = 0; g < whole; g += count) {
        count = whole - g < most ? whole - g : most;
        u.plane = column->planes + g / 16 * unit_planes;
        u.less = x->sums + g;
        u.scales = x->scales + g;
        u.stride = (size_t)b->bytes;
        u.p = x->w + b->codes_at + (size_t)g * u.stride;
        for (r = 0; r < 16; r++, u.p += row_bytes) {
            u.y = products[r];
            form->run(&u, count / 16);
            for (i = left; g + count == whole && i < (int)row_bytes; i += 64)
                BITNET__STREAM(x->w + (size_t)r * row_bytes + i);
        }
        for (i = 0; i < count; i += 4) {
            BITNET__I(pack_words)((const uint8_t *)(products[0] + i), sizeof products[0],
                                  (uint8_t *)turned);
            BITNET__UNROLL for (k = 0; k < 64; k += 16)
                y = BITNET__V(add)(y, BITNET__V(load_f32)(turned + k));
        }
    }
    u.plane = column->planes + g / 16 * unit_planes;
    u.stride = row_bytes;
    u.p = x->w + b->codes_at + (size_t)g * (size_t)b->bytes;
    u.y = products[0];
    for (; g < groups; g += count, u.p += count * b->bytes) {
        count = groups - g < most ? groups - g : most;
        u.less = column->less + 16 * (g - whole);
        u.scales = column->scales + 16 * (g - whole);
        form->rest(&u, count);
        u.plane += count * group_planes;
        for (i = 0; i < count; i++)
            y = BITNET__V(add)(y, BITNET__V(load_f32)(products[0] + 16 * i));
    }
    if (x->add) y = BITNET__V(add)(BITNET__V(load_f32)(x->out), y);
    BITNET__V(store)(x->out, y);
}

/* One column, with whole packs of rows; returns how many rows they are. */
BITNET__APART BITNET__TARGET int BITNET__I(column_in_place)(const bitnet__grouped *x) {
    static const BITNET__I(form) forms[] = {
        {128, 1, 16, 8, 16, BITNET__I(planes_16_1), BITNET__I(run_16_1), BITNET__I(rest_16_1)},
        {64, 2, 16, 4, 16, BITNET__I(planes_16_2), BITNET__I(run_16_2), BITNET__I(rest_16_2)},
        {128, 2, 32, 4, 16, BITNET__I(planes_32_2), BITNET__I(run_32_2), BITNET__I(rest_32_2)},
        {256, 2, 64, 4, 0, BITNET__I(planes_64_2), 0, BITNET__I(rest_64_2)},
        {128, 0, 32, 5, 16, BITNET__I(planes_32_0), BITNET__I(run_32_0), BITNET__I(rest_32_0)},
    };
    const int groups = x->n / x->blocks->group;
    const BITNET__I(form) *form = forms;
    BITNET__I(column) column;
    int r, i, whole;
    if (x->n > 40960) return 0;        /* planes take 5/4 of that, and 512 for each group left */
    while (form->group != x->blocks->group || form->bits != x->blocks->bits) form++;
    whole = form->along * (groups / 16);
    form->planes(x->q, groups, column.planes);
    for (i = 0; i < 16 * (groups - whole); i++) {
        column.less[i] = x->sums[whole + i / 16];
        column.scales[i] = x->scales[whole + i / 16];
    }
    for (r = 0; r + 16 <= x->rows; r += 16) {
        const bitnet__grouped patch = bitnet__grouped_from(x, r, 0);
        BITNET__I(rows_in_place)(&patch, &column, form);
    }
    return r;
}

/* Stacks of threads may have only 128 KB, as musl's do, and `packed` needs up to 40. */
enum { BITNET__I(strip_room) = 81920 };

/* Rows are packed 32 or 16 at a time, as when a model is loaded; `packed` multiplies these. b: of
   the packs, with `row` bytes a row. */
BITNET__APART BITNET__TARGET void BITNET__I(strips_in_place)(
        const bitnet__grouped *x, const bitnet__blocks *b, size_t row,
        void (*packed)(const bitnet__grouped *)) {
    const int most = row * 32 <= BITNET__I(strip_room) ? 32 : 16;
    uint8_t strip[BITNET__I(strip_room)];
    bitnet__grouped patch;
    int r, i;
    for (r = 0; r < x->rows; r += most) {
        patch = bitnet__grouped_from(x, r, 0);
        if (patch.rows > most) patch.rows = most;
        for (i = 0; i < patch.rows; i += 16)
            BITNET__I(pack_groups)(
                x->blocks, patch.w + bitnet__blocks_bytes(x->blocks, x->n, i), x->n,
                patch.rows - i < 16 ? patch.rows - i : 16, strip + (size_t)i * row);
        patch.w = strip;
        patch.blocks = b;
        patch.packed = 1;
        packed(&patch);
    }
}

/* One column, or each for itself where 16 rows are too long for a strip; the rest in strips. */
static BITNET__TARGET void BITNET__I(dotrows_in_place)(const bitnet__grouped *x,
                                                       void (*packed)(const bitnet__grouped *)) {
    const bitnet__blocks *const b = x->blocks->bits ? x->blocks : &bitnet__blocks_pq2_0;
    const size_t row = bitnet__blocks_bytes(b, x->n, 1);
    const int is_long = row * 16 > BITNET__I(strip_room);
    bitnet__grouped patch;
    int c, r = 0;
    for (c = 0; c < x->cols && (is_long || x->cols == 1); c++) {
        patch = bitnet__grouped_from(x, 0, c);
        patch.cols = 1;
        r = BITNET__I(column_in_place)(&patch);
    }
    patch = bitnet__grouped_from(x, r, 0);
    if (is_long) bitnet__dotrows_groups_scalar(&patch);
    else BITNET__I(strips_in_place)(&patch, b, row, packed);
}

/* Runs of rows that stay in the L2 cache, or in L1 if a row is short: for each tile of columns,
   which stay in L1, all rows of the run. */
BITNET__HOT BITNET__TARGET void BITNET__I(dotrows_groups)(const bitnet__grouped *x) {
    const size_t bytes = bitnet__blocks_bytes(x->blocks, x->n, 16);
    const int run = bytes < 65536 ? 131072 / (int)bytes * 16 : 16;
    int r, c, i, end, count, first = 0;
    if (!x->packed) {
        BITNET__I(dotrows_in_place)(x, BITNET__I(dotrows_groups));
        return;
    }
#if BITNET__PARTS & BITNET__VNNI_STEPS
    if (x->cols >= BITNET__I(group_panels_from))
        first = BITNET__I(panels_groups)(x);
#endif
    for (r = 0; r < x->rows && first < x->cols; r = end) {
        end = x->rows - r < run ? x->rows : r + run;
        for (c = first; c < x->cols; c += count) {
            count = bitnet__share(x->cols - c, BITNET__I(group_cols));
            count = count == 5 ? 3 : count == 7 ? 4 : count;       /* and as many again, but one */
            for (i = r; i < end; i += 16) {
                const bitnet__grouped patch = bitnet__grouped_from(x, i, c);
                if (x->blocks->bits == 2) BITNET__I(some_groups)(&patch, 2, count);
                else BITNET__I(some_groups)(&patch, 1, count);
            }
        }
    }
}
#endif

#ifndef BITNET_NO_KV_I8
/* ---- an int8 cache ----
   A tile is 64 positions, or elements of values, with ymm 16, and up to 4 columns (keys with AVX2:
   3, since the signs of the keys take registers, too). */

BITNET__INLINE BITNET__TARGET void BITNET__I(tile_scores)(
    const uint8_t *w, int at, const int8_t *q, const int32_t *sums, int n, int cols, float *out,
    size_t out_stride, const int tile_cols) {
    enum { halves = 16 / BITNET__V(lanes), units = halves == 1 ? 4 : 1, all = units * halves };
    const uint8_t *keys = w + BITNET__KV_SCALES + 4 * (size_t)at;
    const int8_t *col[4];
    BITNET__V(i32) sum[4][all], k[all];
    int c, i, j;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        col[c] = q + bitnet__clamp(c, cols) * (size_t)n;
        BITNET__UNROLL for (j = 0; j < all; j++) sum[c][j] = BITNET__V(splat_i32)(0);
    }
    for (i = 0; i < n; i += 4, keys += 4 * BITNET__KV_BLOCK) {
        BITNET__UNROLL for (j = 0; j < all; j++)
            k[j] = BITNET__V(load_i)(keys + 64 / halves * j);
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            const BITNET__V(i32) a = BITNET__V(repeat4)(col[c] + i);
            BITNET__UNROLL for (j = 0; j < all; j++)
                sum[c][j] = BITNET__I(key_products)(sum[c][j], k[j], a);
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        const size_t column = bitnet__clamp(c, cols);
        const int32_t less = BITNET__I(key_offset) * sums[column];
        BITNET__UNROLL for (j = 0; j < units; j++)
            BITNET__V(store)(out + column * out_stride + (size_t)at + 16 * j,
                             BITNET__V(mul)(BITNET__V(minus)(sum[c] + j * halves, less),
                                            BITNET__V(load_f32)(w + 4 * (size_t)at + 64 * j)));
    }
}

BITNET__HOT BITNET__TARGET void BITNET__I(scores_i8)(const uint8_t *w, const int8_t *q,
                                                     const int32_t *sums, int n, int rows,
                                                     int cols, float *out, size_t out_stride) {
    enum { positions = BITNET__V(lanes) == 16 ? 64 : 16, most = BITNET__I(score_cols) };
    int r, c, at;
    for (r = 0; r < rows; r += 64, w += bitnet__kv_block_bytes(n), out += 64) {
        for (c = 0; c < cols; c += most) {
            const int8_t *col = q + (size_t)c * (size_t)n;
            float *to = out + (size_t)c * out_stride;
            for (at = 0; at < 64; at += positions) {
                if (cols - c == 1)
                    BITNET__I(tile_scores)(w, at, col, sums + c, n, 1, to, out_stride, 1);
                else if (cols - c == 2)
                    BITNET__I(tile_scores)(w, at, col, sums + c, n, 2, to, out_stride, 2);
                else
                    BITNET__I(tile_scores)(w, at, col, sums + c, n, cols - c, to, out_stride, most);
            }
        }
    }
}

/* The sums of 64 positions, added to out. v: the first elements of the KV block's values. */
BITNET__INLINE BITNET__TARGET void BITNET__I(tile_values)(
    const uint8_t *v, const uint8_t *p, const float *scales, size_t p_stride, int n, int cols,
    float *out, int count, const int units, const int tile_cols) {
    enum { halves = 16 / BITNET__V(lanes) };
    const uint8_t *col[4];
    BITNET__V(i32) sum[4][4], w[4];
    int c, r, j;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        col[c] = p + bitnet__clamp(c, cols) * p_stride;
        BITNET__UNROLL for (j = 0; j < units * halves; j++)
            sum[c][j] = BITNET__V(splat_i32)(0);
    }
    for (r = 0; r < 64; r += 4, v += 4 * (size_t)n) {
        BITNET__UNROLL for (j = 0; j < units * halves; j++)
            w[j] = BITNET__V(load_i)(v + 64 / halves * j);
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            const BITNET__V(i32) a = BITNET__V(repeat4)((const int8_t *)col[c] + r);
            BITNET__UNROLL for (j = 0; j < units * halves; j++) {
                sum[c][j] = BITNET__I(products)(sum[c][j], a, w[j]);
                BITNET__IN_PLACE(sum[c][j]);
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        const size_t column = bitnet__clamp(c, cols);
        const BITNET__V(v16) scale = BITNET__V(splat)(scales[column * (p_stride / 64)]);
        float *to = out + column * (size_t)count;
        if (c < cols) {
            BITNET__UNROLL for (j = 0; j < units; j++) {
                const BITNET__V(v16) x = BITNET__V(minus)(sum[c] + j * halves, 0);
                BITNET__V(store)(to + 16 * j, BITNET__V(add)(BITNET__V(load_f32)(to + 16 * j),
                                                             BITNET__V(mul)(x, scale)));
            }
        }
    }
}

BITNET__HOT BITNET__TARGET void BITNET__I(sumrows_i8)(const uint8_t *w, const uint8_t *p,
                                                      const float *scales, size_t p_stride, int n,
                                                      int first, int count, int rows, int cols,
                                                      float *out) {
    const int most = BITNET__V(lanes) == 16 ? 4 : 1;
    int r, c, i, units;
    if (count % 16) {
        bitnet__sumrows_i8_scalar(w, p, scales, p_stride, n, first, count, rows, cols, out);
        return;
    }
    for (r = 0; r < rows; r += 64, w += bitnet__kv_block_bytes(n), p += 64, scales++) {
        for (c = 0; c < cols; c += 4) {
            const size_t column = (size_t)c;
            for (i = 0; i < count; i += 16 * units) {
                const uint8_t *v = w + BITNET__KV_SCALES + 4 * (size_t)(first + i);
                units = count - i < 16 * most ? 1 : most;
#define BITNET__TILE_OF(units, tile_cols) \
    BITNET__I(tile_values)(v, p + column * p_stride, scales + column * (p_stride / 64), p_stride, \
                           n, cols - c, out + column * (size_t)count + i, count, units, tile_cols)
                if (most > 1 && units == 1) BITNET__TILE_OF(1, 4);
                else if (cols - c == 1) BITNET__TILE_OF(most, 1);
                else if (cols - c == 2) BITNET__TILE_OF(most, 2);
                else BITNET__TILE_OF(most, 4);
#undef BITNET__TILE_OF
            }
        }
    }
}
#endif

/* ---- 4 bits ----
   Weights are halves of bytes minus 8. A tile has 4 rows and some columns. */

/* Adds the products of tile_rows rows side by side. AVX2's tiles have one row after the other, as
   memory lies: on Zen 3 that reads 1.8 times as many bytes a second as four rows at once. */
BITNET__INLINE BITNET__TARGET void BITNET__I(sums_u4)(const uint8_t *const *row,
                                                      const int8_t *const *col, int n,
                                                      BITNET__V(i32) (*sum)[4], const int tile_rows,
                                                      const int tile_cols) {
    enum { wide = 4 * BITNET__V(lanes) };
    const BITNET__V(i32) mask = BITNET__V(splat_i32)(0x0f0f0f0f);
    BITNET__V(i32) h[4];
    int r, c, i, j;
    for (i = 0; i < n; i += 128) {             /* 64 bytes: upper halves, then lower ones */
        BITNET__UNROLL for (j = 0; j < 128; j += wide) {
            BITNET__UNROLL for (r = 0; r < tile_rows; r++) {
                const uint8_t *p = row[r] + i / 2;
                h[r] = BITNET__V(masked)(BITNET__V(load_i)(p + j % 64), j < 64 ? 4 : 0, mask);
                if (j == 0) BITNET__STREAM(p);
            }
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                const BITNET__V(i32) a = BITNET__V(load_i)(col[c] + i + j);
                BITNET__UNROLL for (r = 0; r < tile_rows; r++) {
                    sum[c][r] = BITNET__I(products)(sum[c][r], h[r], a);
                    if (tile_cols > 2) BITNET__IN_PLACE(sum[c][r]);
                    else BITNET__ADDED(sum[c][r], h[r]);   /* gcc 12 then copies no sums */
                }
            }
            BITNET__NO_AHEAD();
        }
    }
}

/* The same of one row, without vpdpbusd and with many columns: products are added before they are
   widened, four to a lane of 16 bits, at most 4 * 3840. */
#if !(BITNET__PARTS & BITNET__VNNI_STEPS)
BITNET__INLINE BITNET__TARGET void BITNET__I(row_u4)(const uint8_t *row, const int8_t *const *col,
                                                     int n, BITNET__V(i32) (*sum)[4],
                                                     const int tile_cols) {
    const BITNET__V(i32) mask = BITNET__V(splat_i32)(0x0f0f0f0f), ones = _mm256_set1_epi16(1);
    BITNET__V(i32) h[4], products;
    int c, i, j;
    for (i = 0; i < n; i += 128, row += 64) {
        BITNET__STREAM(row);
        BITNET__UNROLL for (j = 0; j < 4; j++)
            h[j] = BITNET__V(masked)(BITNET__V(load_i)(row + j % 2 * 32), j < 2 ? 4 : 0, mask);
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            products = _mm256_maddubs_epi16(h[0], BITNET__V(load_i)(col[c] + i));
            BITNET__UNROLL for (j = 1; j < 4; j++)
                products = _mm256_add_epi16(
                    products, _mm256_maddubs_epi16(h[j], BITNET__V(load_i)(col[c] + i + 32 * j)));
            sum[c][0] = BITNET__V(add_epi32)(sum[c][0], _mm256_madd_epi16(products, ones));
            BITNET__IN_PLACE(sum[c][0]);
        }
        BITNET__NO_AHEAD();
    }
}
#endif

BITNET__INLINE BITNET__TARGET void BITNET__I(tile_u4)(const bitnet__dots *d, const int tile_cols) {
    enum { most = BITNET__I(u4_cols), side = BITNET__V(lanes) == 8 ? 1 : 4 };
    BITNET__V(i32) sum[most][4], some[most][4];
    int32_t dots[most][4];
    const uint8_t *row[4];
    const int8_t *col[most];
    int r, c, i;
    BITNET__UNROLL for (r = 0; r < 4; r++)
        row[r] = d->w + bitnet__clamp(r, d->rows) * (size_t)(d->n / 2);
    BITNET__UNROLL for (c = 0; c < tile_cols; c++)
        col[c] = d->q + bitnet__clamp(c, d->cols) * d->q_stride;
    for (r = 0; r < 4; r += side) {
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            BITNET__UNROLL for (i = 0; i < side; i++) some[c][i] = BITNET__V(splat_i32)(0);
#if BITNET__PARTS & BITNET__VNNI_STEPS
        BITNET__I(sums_u4)(row + r, col, d->n, some, side, tile_cols);
#else
        if (tile_cols > 2) BITNET__I(row_u4)(row[r], col, d->n, some, tile_cols);
        else BITNET__I(sums_u4)(row + r, col, d->n, some, side, tile_cols);
#endif
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            BITNET__UNROLL for (i = 0; i < side; i++) sum[c][r + i] = some[c][i];
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++)
        _mm_storeu_si128((__m128i *)(void *)dots[c],
                         _mm_sub_epi32(BITNET__V(fold4)(sum[c]),
                                       _mm_set1_epi32(8 * d->sums[bitnet__clamp(c, d->cols)])));
    for (c = 0; c < tile_cols && c < d->cols; c++)
        bitnet__put(d->out + (size_t)c * d->stride, dots[c], d->rows);
}

/* Also one column: a text that is written alone. */
BITNET__INLINE BITNET__TARGET int BITNET__I(tile_u4_cols)(const bitnet__dots *d) {
    const int most = BITNET__I(u4_cols);
    const int count = d->cols > 4 ? most : d->cols > 2 && most > 2 ? 4 : d->cols > 1 ? 2 : 1;
    if (count == 1) BITNET__I(tile_u4)(d, 1);
    else if (count == 2) BITNET__I(tile_u4)(d, 2);
    else if (count == 4 && most > 4)
        BITNET__I(tile_u4)(d, 4);
    else BITNET__I(tile_u4)(d, most);
    return count;
}

BITNET__HOT BITNET__TARGET void BITNET__I(dotrows_u4)(const bitnet__dots *d) {
    bitnet__tiles(d, BITNET__I(tile_u4_cols), 4, 2 * (size_t)d->n);
}
#endif /* BITNET__DOTS */

#if BITNET__PARTS & BITNET__TL2
/* ---- TL2, panels: those of I2_S ---- */

BITNET__APART BITNET__TARGET void BITNET__V(unpack_tl2)(const bitnet__dots *d, int at, int k,
                                                        int len, void *to_panel) {
    const size_t pack_bytes = bitnet__tl2_bytes((d->n + 23) / 24);
    const BITNET__V(tl2) t = BITNET__V(start_tl2)();
    const int count = (len + 23) / 24;
    BITNET__V(panel) *panel = (BITNET__V(panel) *)to_panel;
    BITNET__V(i32) codes[2][3];
    int half, i, x;
    panel->ahead = bitnet__make_ahead(
        d->w, (size_t)((at + 2 * BITNET__V(lanes)) / 16) * pack_bytes +
                  (size_t)(k / 96) * BITNET__TL2_BLOCK,
        (count + 3) / 4 * BITNET__TL2_BLOCK, BITNET__V(lanes) / 8, pack_bytes);
    for (half = 0; half < 2; half++) {
        const int row = at + half * BITNET__V(lanes) < d->rows ? at + half * BITNET__V(lanes) : at;
        const uint8_t *p = d->w + (size_t)(row / 16) * pack_bytes + row % 16 * 4 +
                           (size_t)(k / 96) * BITNET__TL2_BLOCK;
        BITNET__V(i32) (*to)[2] = panel->codes;
        for (i = 0; i < count; i++, to += 6) {
            const BITNET__V(i32) fifths = BITNET__V(load_i)(p);
            const uint8_t *nibbles = p + 64 + i % 4 * 64;
            BITNET__V(triples_tl2)(&t, BITNET__V(shift_right)(fifths, i % 4 * 2), nibbles, 0,
                                   codes);
            BITNET__UNROLL for (x = 0; x < 6; x++) to[x][half] = codes[x / 3][x % 3];
            if (i % 4 == 3) p += BITNET__TL2_BLOCK;
        }
    }
}

BITNET__APART BITNET__TARGET void BITNET__V(panels_tl2)(const bitnet__dots *d) {
    BITNET__V(panel) panel;
    bitnet__panels(d, &panel, BITNET__V(unpack_tl2), BITNET__V(multiply), 2 * BITNET__V(lanes),
                   4 * BITNET__PANEL_TL2, BITNET__V(panel_cols));
}
#endif

#if BITNET__PARTS & BITNET__TL2_ZMM
/* ---- TL2, tiles of AVX-512 ---- */

/* 24 weights of a block. Two vpdpbusd can start in a cycle, and each takes five cycles: so a column
   has several sums where there are few columns. */
BITNET__INLINE BITNET__TARGET void BITNET__I(dots24_tl2)(const BITNET__I(tl2) *t, __m512i fifths,
                                                         const uint8_t *nibbles, const int i,
                                                         const int8_t *const *col, size_t at,
                                                         __m512i (*sum)[6], const int tile_cols) {
    const int chains = tile_cols < 3 ? 6 : tile_cols < 5 ? 3 : 2;
    __m512i codes[2][3];
    int c, x;
    BITNET__I(triples_tl2)(t, fifths, nibbles, i, codes);
    BITNET__UNROLL for (x = 0; x < 6; x++) {
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            __m512i *to = &sum[c][x % chains];
            *to = bitnet__products_avx512vnni(*to, codes[x / 3][x % 3],
                                              bitnet__repeat4_avx512vnni(col[c] + at + x * 4));
            BITNET__IN_PLACE(*to);
        }
    }
}

/* The weights after the last whole block, for up to 8 columns. */
#if BITNET__PARTS & BITNET__WIDTH
BITNET__APART BITNET__TARGET void BITNET__I(rest_tl2)(const uint8_t *w, const int8_t *q,
                                                      size_t q_stride, int n, int cols,
                                                      __m512i *sum) {
    const BITNET__I(tl2) t = BITNET__I(start_tl2)();
    __m512i fifths = _mm512_loadu_si512(w), codes[2][3];
    int8_t end[8][96];
    int c, i, x;
    for (c = 0; c < cols; c++) {
        memset(end[c], 0, 96);
        memcpy(end[c], q + (size_t)c * q_stride + n / 96 * 96, (size_t)(n % 96));
    }
    BITNET__STREAM(w);
    for (i = 0; i < (n % 96 + 23) / 24; i++, fifths = _mm512_srli_epi32(fifths, 2)) {
        BITNET__STREAM(w + 64 + i * 64);
        BITNET__I(triples_tl2)(&t, fifths, w + 64 + i * 64, 0, codes);
        for (c = 0; c < cols; c++) {
            BITNET__UNROLL for (x = 0; x < 6; x++)
                sum[c] = bitnet__products_avx512vnni(
                    sum[c], codes[x / 3][x % 3],
                    bitnet__repeat4_avx512vnni(end[c] + i * 24 + x * 4));
        }
    }
}
#endif

BITNET__INLINE BITNET__TARGET void BITNET__I(tile_tl2)(const bitnet__dots *d, const int tile_cols) {
    const BITNET__I(tl2) t = BITNET__I(start_tl2)();
    const uint8_t *w = d->w;
    const int8_t *col[8];
    __m512i sum[8][6], dots[8];
    int c, b, i, x;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        col[c] = d->q + (size_t)c * d->q_stride;
        sum[c][0] = _mm512_set1_epi32(-d->sums[c]);
        BITNET__UNROLL for (x = 1; x < 6; x++) sum[c][x] = _mm512_setzero_si512();
    }
    for (b = 0; b < d->n / 96; b++, w += BITNET__TL2_BLOCK) {
        __m512i fifths = _mm512_loadu_si512(w);
        BITNET__STREAM(w);
        if (tile_cols == 1) {
            BITNET__UNROLL for (i = 0; i < 4; i++) {
                BITNET__STREAM(w + 64 + i * 64);
                BITNET__I(dots24_tl2)(&t, fifths, w + 64 + i * 64, i, col,
                                      (size_t)b * 96 + (size_t)i * 24, sum, 1);
                BITNET__NO_AHEAD();    /* else all prefetches would come at once */
            }
        } else {
            for (i = 0; i < 4; i++, fifths = _mm512_srli_epi32(fifths, 2)) {
                BITNET__STREAM(w + 64 + i * 64);
                BITNET__I(dots24_tl2)(&t, fifths, w + 64 + i * 64, 0, col,
                                      (size_t)b * 96 + (size_t)i * 24, sum, tile_cols);
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        dots[c] = sum[c][0];
        BITNET__UNROLL for (x = 1; x < 6; x++) dots[c] = _mm512_add_epi32(dots[c], sum[c][x]);
    }
    if (d->n % 96) BITNET__V(rest_tl2)(w, d->q, d->q_stride, d->n, tile_cols, dots);
    for (c = 0; c < tile_cols; c++)
        bitnet__store_first_avx512vnni(d->out + (size_t)c * d->stride, d->rows, dots[c]);
}
#endif

#if BITNET__PARTS & BITNET__TL2
/* ---- TL2 ----
   4 bytes of a vector belong to one row: a lane of int32, so no sum goes across lanes, and 12
   weights of each row are three vpdpbusd (or vpmaddubsw) with 4 activations in all lanes. How three
   codes come out of a nibble and a fifth depends on the instruction set: triples_tl2 does it for 24
   weights. A tile is a row pack (some 9 to 23 KB) and 1 to 4 columns, or 8. */
BITNET__INLINE BITNET__TARGET int BITNET__I(tile_tl2_cols)(const bitnet__dots *d) {
    const int most = BITNET__V(tl2_cols);
    const int count = d->cols >= most ? most : d->cols < 4 ? d->cols : 4;
    if (count == 1) BITNET__I(tile_tl2)(d, 1);
    else if (count == 2) BITNET__I(tile_tl2)(d, 2);
    else if (count == 3) BITNET__I(tile_tl2)(d, 3);
    else if (most > 4 && count == 4) BITNET__I(tile_tl2)(d, 4);
    else BITNET__I(tile_tl2)(d, most);
    return count;
}

BITNET__HOT BITNET__TARGET void BITNET__I(tiles_tl2)(const bitnet__dots *d) {
    bitnet__tiles(d, BITNET__I(tile_tl2_cols), BITNET__TL2_ROWS,
                  bitnet__tl2_bytes((d->n + 23) / 24));
}

static BITNET__TARGET void BITNET__I(dotrows_tl2)(const bitnet__dots *d) {
    bitnet__tiles_and_panels(d, BITNET__I(tiles_tl2), BITNET__V(panels_tl2), BITNET__V(panel_cols),
                             16, bitnet__packed_bytes_tl2);
}
#endif

#undef BITNET__ISA
#undef BITNET__BASE
#undef BITNET__PARTS
#endif /* BITNET__ISA */
