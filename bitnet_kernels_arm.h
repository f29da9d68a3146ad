/* bitnet_kernels_arm.h - NEON kernels for bitnet.h: ARMv8, dotprod, i8mm; MIT licence, see there

   Put this file beside bitnet.h, which includes it by name. Every entry gives the same bits as its
   scalar twin in bitnet.h. The comments there say what is computed; those here say only how.

   INSTRUCTIONS
       neon          Any ARMv8. Integer dot products use SMULL and SMLAL (products of int8 added
                     into int16) and SADALP (pairs of int16 added into int32). On ARMv7-A only
                     integer dot products use NEON: vectors there flush subnormals to zero, so all
                     floats are scalar, also those of a scale per group and of an int8 cache.
       neon-dotprod  SDOT: four products of int8 added into int32. Most CPUs since 2018.
       neon-i8mm     SDOT, and SMMLA or USMMLA for many columns: 2 x 2 dot products of 8. Most
                     since 2021.
       All           Floats use multiplications and additions, with 16 partial sums in four
                     registers. FMLA is used only in attention over an F16 cache, where products
                     are exact. F16 is converted by FCVTL and FCVTN.
   bitnet__cpu_features asks the system which instructions there are. Each function names its target
   in an attribute, so no -m flag is needed.

   WEIGHTS: I2_S, the 128 packing, read in place
       A row of n weights is n / 4 bytes. A block of 128 weights is 32 of them, two registers.
       Code = weight + 1. Code 3 is invalid, but counts as 3 here as in the scalar code.

           byte of the block      0     1     2   ...  31       with activations   as multiplied
           bits 7-6, weight       0     1     2   ...  31         0 ..  31         >> 6     code
           bits 5-4, weight      32    33    34   ...  63        32 ..  63         & 0x30   16 code
           bits 3-2, weight      64    65    66   ...  95        64 ..  95         & 0x0c   4 code
           bits 1-0, weight      96    97    98   ... 127        96 .. 127         & 0x03   code

       Each field takes one instruction for 16 codes, because it is not shifted to bit 0. A field
       left at a higher place has its own sum, which is scaled down by its power of 4 at the end.
       Shifting would cost two more instructions for every 64 codes, and most cores shift vectors
       in only one of two pipes. The kernels sum code * q and subtract sums[c], the sum of q.

   WEIGHTS with a scale per group and an int8 cache are drawn below, where their kernels are.

   SPEED
       With two vector pipes that both run SDOT, a core takes at most 16 weights (4 bytes) a cycle
       in a tile of one column. That is more than its share of the memory bandwidth. With SMLAL,
       which runs in one pipe, it takes 8. Instructions and cycles of each loop for prompts:
       python3 tests/checks/inner_loops.py table aarch64-linux-gnu-gcc

   WHY THERE IS NO TL2
       TL2 (see bitnet_kernels_x86.h) stores 3 weights in 5 bits, 5/6 of the bytes of I2_S. 16
       bytes of nibbles are 32 triples in 4 rows. 16 of these triples, 48 weights, take 12
       instructions: 3 to join nibble and fifth, 3 TBL of two registers for the codes (2 uops each
       on a Cortex-A76), and 3 SDOT. That is 0.25 a weight, twice as many as of I2_S. TBL of one
       register, with masks for the fifth, takes as many. TL2 could win only where all cores
       together wait for the memory at half the speed, and then by 6 %.
       Published TL1 and TL2 kernels look up sums of activations instead of codes. For exact results
       that takes tables of both bytes of 16 sums of two weights. 64 weights in 16 rows then take 2
       instructions to split the nibbles, 4 TBL, 4 to join bytes and 4 additions: 0.22 a weight, and
       no column can use the tables of another. SMLAL takes 0.20.

   BOUNDS, for codes up to 3 and q from -128 to 127, n <= 2^20: 8192 blocks
       SMLAL, int16       A product is at most 384 (code), 1536 (4 code) or 6144 (16 code). A lane
                          gets two of a field's 32 products, twice a block. Tile: 16 code reaches
                          4 * 6144 = 24576 and is emptied after each block. code gets 8 * 384, and
                          24576 / 16 = 1536 from 16 code: 4608 a block, 23040 in 5. 4 code gets
                          4 * 1536 = 6144 a block, 30720 in 5. Then code + 4 code / 4 <= 30720.
                          Panel: 5 blocks are 80 products, 30720.
       SMLAL, int32       2 * 30720 to a lane each time that the int16 sums are emptied.
       SDOT, tile         All lanes together: 16 code, n / 4 products of 6144, 1536 n, at most
                          1610612736; 4 code, a quarter of that; code, n / 2 products of 384.
       SDOT, SMMLA        Panel: all products of a row and a column in one lane, 384 n.
       all, int32         All lanes together 384 n, at most 402653184; before or after the sum of q,
                          at most 128 n = 2^27, is subtracted. int32 goes to 2^31.
       dotrows_u4         |w - 8| <= 8: a product is at most 1024, all lanes together 2^30.
       groups             128 weights of codes up to 3 or 256 up to 2: |sum of code * q| <= 65536.
                          SMLAL: an int16 gets every fourth product of a row, 64 of 256 or 32 of
                          384: 16384. SDOT, SMMLA: a lane gets all products of a row, 65536; of 16
                          code 64 products of 4096, 262144. Minus the sum of q: at most 32768, as
                          |code - 1| is at most 2 and 1. Exact as a float.
       digits             128 weights. SMLAL: an int16 gets every fourth product of a row, 32 of
                          |digit - 1| * |q| <= 128: 4096. SDOT: all products of a row are |s * q| <=
                          16384, together 2^21; 3 times that minus another at most 2^23.
       int8 cache         SMLAL: a product is at most 128 * 127 = 16256, of a key minus 128 or a
                          value. An int16 gets two before it is emptied, 32512. All lanes together
                          16256 n for keys, n <= 2^16: 1065353216; for values 64 products, 1040384.
                          SDOT, SMMLA: the same. USMMLA: keys as they are, 255 * 127 n = 32385 n, at
                          most 2122383360, minus 128 times the sum of q, at most 1065353216. */

#if BITNET__KERNEL_ABI != 13
  #error "bitnet_kernels_arm.h and bitnet.h are of different releases"
#endif
#define BITNET__HAVE_SIMD
#define BITNET__PACKS_neon 0
#define BITNET__PACKS_dotprod 0
#define BITNET__PACKS_i8mm 0

#ifdef __cplusplus
}   /* the compiler's headers set their own linkage */
#endif
#if defined(_MSC_VER) && !defined(__clang__)
  #include <intrin.h>
#endif
#include <arm_neon.h>
#if defined(__linux__) && defined(__has_include)
  #if __has_include(<sys/auxv.h>)
    #include <sys/auxv.h>
    #define BITNET__AUXV
  #endif
#elif defined(__APPLE__)
  #include <sys/sysctl.h>
#endif
#ifdef __cplusplus
extern "C" {
#endif

/* Which tables the compiler can build. gcc has SDOT since version 8 and SMMLA since 10. It inlines
   their intrinsics only into functions of its armv8.2-a target, so a command line that adds other
   extensions but not dotprod (A64FX) gets none of these tables. clang's arm_neon.h hides the
   intrinsics until version 16 (Apple: 15) unless the whole file is compiled for them, but its
   assembler knows the instructions since version 12. MSVC needs no options; it has no SMMLA yet. */
#if defined(__clang__) && defined(__apple_build_version__)
  #define BITNET__CLANG (__clang_major__ + (__clang_major__ > 14))
#elif defined(__clang__)
  #define BITNET__CLANG __clang_major__
#else
  #define BITNET__CLANG 0
#endif
#if defined(__arm__) || defined(BITNET_NO_DOTPROD) || (BITNET__CLANG && BITNET__CLANG < 12) || \
    (!BITNET__CLANG && defined(__GNUC__) && __GNUC__ < 8) || \
    (!BITNET__CLANG && defined(__GNUC__) && !defined(__ARM_FEATURE_DOTPROD) && \
     (defined(__ARM_FEATURE_SVE) || defined(__ARM_FEATURE_FP16_SCALAR_ARITHMETIC) || \
      defined(__ARM_FEATURE_JCVT))) || \
    (!BITNET__CLANG && defined(_MSC_VER) && _MSC_VER < 1930)
  #define BITNET__DOTPROD 0
#else
  #define BITNET__DOTPROD 1
#endif
#if !BITNET__DOTPROD || defined(BITNET_NO_I8MM) || \
    (!BITNET__CLANG && defined(__GNUC__) && __GNUC__ < 10) || \
    (!BITNET__CLANG && defined(_MSC_VER))
  #define BITNET__I8MM 0
#else
  #define BITNET__I8MM 1
#endif
#ifdef BITNET_NO_NEON
  #define BITNET__NEON 0
#else
  #define BITNET__NEON 1
#endif

/* Inline assembly where the intrinsics are hidden, and for gcc, which moves sums between registers
   when it uses the intrinsics: 11 moves beside 87 instructions in the most important loop. */
#if (BITNET__CLANG && BITNET__CLANG < 16) || (!BITNET__CLANG && defined(__GNUC__))
  #define BITNET__SDOT(sum, w, a) \
      __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(a))
  #define BITNET__SDOT_LANE(sum, w, a, i) \
      __asm__("sdot %0.4s, %1.16b, %2.4b[" #i "]" : "+w"(sum) : "w"(w), "w"(a))
  #define BITNET__SMMLA(sum, a, w) \
      __asm__("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(a), "w"(w))
  #define BITNET__USMMLA(sum, w, a) \
      __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(a))
#else
  #define BITNET__SDOT(sum, w, a) ((sum) = vdotq_s32(sum, w, a))
  #define BITNET__SDOT_LANE(sum, w, a, i) ((sum) = vdotq_laneq_s32(sum, w, a, i))
  #define BITNET__SMMLA(sum, a, w) ((sum) = vmmlaq_s32(sum, a, w))
  #define BITNET__USMMLA(sum, w, a) ((sum) = vusmmlaq_s32(sum, w, a))
#endif

/* sum + v * lane i of a, rounded once. Inline assembly for gcc, which would first copy the lane to
   all of a vector, if several products need it. */
#if defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__)
  #define BITNET__FMLA_LANE(sum, v, a, i) \
      __asm__("fmla %0.4s, %1.4s, %2.s[" #i "]" : "+w"(sum) : "w"(v), "w"(a))
#else
  #define BITNET__FMLA_LANE(sum, v, a, i) ((sum) = vfmaq_laneq_f32(sum, v, a, i))
#endif

/* The products of the lower and of the upper 8 bytes; a is the same 4 bytes four times. Inline
   assembly for gcc: see above. */
#if defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__)
  #define BITNET__SMLAL(sum, w, a) \
      __asm__("smlal %0.8h, %1.8b, %2.8b" : "+w"(sum) : "w"(w), "w"(a))
  #define BITNET__SMLAL2(sum, w, a) \
      __asm__("smlal2 %0.8h, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(a))
#else
  #define BITNET__SMLAL(sum, w, a) ((sum) = vmlal_s8(sum, vget_low_s8(w), vget_low_s8(a)))
  #ifdef __arm__
    #define BITNET__SMLAL2(sum, w, a) ((sum) = vmlal_s8(sum, vget_high_s8(w), vget_low_s8(a)))
  #else
    #define BITNET__SMLAL2(sum, w, a) ((sum) = vmlal_high_s8(sum, w, a))
  #endif
#endif

#if defined(__arm__) && !defined(__ARM_NEON)
  #define BITNET__TARGET_neon __attribute__((target("fpu=neon")))
#else
  #define BITNET__TARGET_neon
#endif
#if defined(__clang__)
  #define BITNET__TARGET_dotprod __attribute__((target("dotprod")))
  #define BITNET__TARGET_i8mm __attribute__((target("dotprod,i8mm")))
#elif defined(__GNUC__) && defined(__ARM_FEATURE_DOTPROD)
  #define BITNET__TARGET_dotprod
  #define BITNET__TARGET_i8mm __attribute__((target("+i8mm")))
#elif defined(__GNUC__) && defined(__ARM_FEATURE_CRYPTO)
  #define BITNET__TARGET_dotprod __attribute__((target("arch=armv8.2-a+crypto+dotprod")))
  #define BITNET__TARGET_i8mm __attribute__((target("arch=armv8.2-a+crypto+dotprod+i8mm")))
#elif defined(__GNUC__)
  #define BITNET__TARGET_dotprod __attribute__((target("arch=armv8.2-a+dotprod")))
  #define BITNET__TARGET_i8mm __attribute__((target("arch=armv8.2-a+dotprod+i8mm")))
#else
  #define BITNET__TARGET_dotprod
  #define BITNET__TARGET_i8mm
#endif

/* IN_PLACE: gcc carries sums from one iteration to the next through a second set of registers,
   unless a statement may have changed them. NO_AHEAD: both compilers move loads far ahead and spill
   sums for that, but not past a statement that may have changed memory. DONE: and neither is this
   sum computed later, so that the registers of its products are free again. */
#if defined(__GNUC__) || defined(__clang__)
  #define BITNET__IN_PLACE(sum) __asm__("" : "+w"(sum))
  #define BITNET__NO_AHEAD() __asm__ volatile("" : : : "memory")
  #define BITNET__DONE(sum) __asm__ volatile("" : : "w"(sum) : "memory")
#else
  #define BITNET__IN_PLACE(sum) ((void)0)
  #define BITNET__NO_AHEAD() ((void)0)
  #define BITNET__DONE(sum) ((void)0)
#endif

/* Prefetches the cache line `distance` bytes after p. It may be past the end, where a prefetch
   does nothing. */
#if defined(__GNUC__) || defined(__clang__)
  #define BITNET__PREFETCH(p, distance) \
      __builtin_prefetch((const void *)((uintptr_t)(p) + (uintptr_t)(distance)))
#else
  #define BITNET__PREFETCH(p, distance) \
      __prefetch((const void *)((uintptr_t)(p) + (uintptr_t)(distance)))
#endif

/* ---- what the CPU and the system support ---- */

#ifdef __APPLE__
static int bitnet__sysctl_flag(const char *name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, 0, 0) == 0 && value;
}
#endif

static uint32_t bitnet__cpu_features(void) {
    uint32_t features = BITNET_CPU_NEON;
#if defined(__arm__) && !defined(__ARM_NEON)
    features = 0;
  #ifdef BITNET__AUXV
    if (getauxval(16) >> 12 & 1) features |= BITNET_CPU_NEON;       /* AT_HWCAP, NEON */
  #endif
#elif defined(__arm__)                      /* NEON, as the command line promises */
#elif defined(BITNET__AUXV)                 /* Linux and Android; numbers for old headers */
    if (getauxval(16) >> 20 & 1) features |= BITNET_CPU_DOTPROD;    /* AT_HWCAP, ASIMDDP */
    if (getauxval(26) >> 13 & 1) features |= BITNET_CPU_I8MM;       /* AT_HWCAP2, I8MM */
#elif defined(__APPLE__)
    if (bitnet__sysctl_flag("hw.optional.arm.FEAT_DotProd")) features |= BITNET_CPU_DOTPROD;
    if (bitnet__sysctl_flag("hw.optional.arm.FEAT_I8MM")) features |= BITNET_CPU_I8MM;
#elif defined(_WIN32)
    if (IsProcessorFeaturePresent(43)) features |= BITNET_CPU_DOTPROD;   /* PF_ARM_V82_DP_... */
  #ifdef PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE
    if (IsProcessorFeaturePresent(PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE))
        features |= BITNET_CPU_I8MM;
  #endif
#else                                       /* no system to ask: as the command line promises */
  #ifdef __ARM_FEATURE_DOTPROD
    features |= BITNET_CPU_DOTPROD;
  #endif
  #ifdef __ARM_FEATURE_MATMUL_INT8
    features |= BITNET_CPU_I8MM;
  #endif
#endif
    return features;
}

/* ---- dot products of 16 bytes ----
   They are added to a sum of 4 lanes of int32 or, where `halves` is set, 8 lanes of int16. `clear`:
   the sum counts as 0 and is not read. */
typedef int32x4_t bitnet__dot_fn(int32x4_t sum, int8x16_t w, int8x16_t a, int clear);

BITNET__INLINE BITNET__TARGET_neon int16x8_t bitnet__dot16_neon(int16x8_t sum, int8x16_t w,
                                                                int8x16_t a, int clear) {
    sum = clear ? vmull_s8(vget_low_s8(w), vget_low_s8(a))
                : vmlal_s8(sum, vget_low_s8(w), vget_low_s8(a));
#ifdef __arm__
    return vmlal_s8(sum, vget_high_s8(w), vget_high_s8(a));
#else
    return vmlal_high_s8(sum, w, a);
#endif
}

BITNET__INLINE BITNET__TARGET_neon int32x4_t bitnet__dot_neon(int32x4_t sum, int8x16_t w,
                                                              int8x16_t a, int clear) {
    return vreinterpretq_s32_s16(bitnet__dot16_neon(vreinterpretq_s16_s32(sum), w, a, clear));
}

/* Halves of bytes: the products of each 16 bytes go into int32 at once. */
BITNET__INLINE BITNET__TARGET_neon int32x4_t bitnet__dot_u4_neon(int32x4_t sum, int8x16_t w,
                                                                 int8x16_t a, int clear) {
    (void)clear;
    return vpadalq_s16(sum, bitnet__dot16_neon(vdupq_n_s16(0), w, a, 1));
}

#if BITNET__DOTPROD
BITNET__INLINE BITNET__TARGET_dotprod int32x4_t bitnet__dot_dotprod(int32x4_t sum, int8x16_t w,
                                                                    int8x16_t a, int clear) {
    (void)clear;
    BITNET__SDOT(sum, w, a);
    return sum;
}
#endif

/* Calls `dot`, a constant, inline. MSVC does not inline calls through a pointer; but it needs no
   target attributes, so there each function can be called by its name. */
BITNET__INLINE BITNET__TARGET_neon int32x4_t bitnet__dot(bitnet__dot_fn *dot, int32x4_t sum,
                                                         int8x16_t w, int8x16_t a,
                                                         const int clear) {
#if defined(_MSC_VER) && !defined(__clang__)
    if (dot == bitnet__dot_neon) return bitnet__dot_neon(sum, w, a, clear);
    if (dot == bitnet__dot_u4_neon) return bitnet__dot_u4_neon(sum, w, a, clear);
  #if BITNET__DOTPROD
    if (dot == bitnet__dot_dotprod) return bitnet__dot_dotprod(sum, w, a, clear);
  #endif
#endif
    return dot(sum, w, a, clear);
}

/* ---- I2_S, tiles ----
   A tile is 4 rows and 1 to 3 columns. With 1 column it takes all 4 rows at once, with more 2 at a
   time: 12 to 18 sums, all in registers, so that no addition waits for the one before. Each row and
   column has three partial sums, of code, 4 code and 16 code, by the place where a field is used.
   They are exact until bitnet__add_partials scales and adds them. As int16 they are added into
   int32 after BITNET__FOLD blocks: 6 would reach 36864 for 4 code, and 36864 in a panel; see
   BOUNDS. */
enum { BITNET__FOLD = 5, BITNET__TILE = 4 };

/* Rows that a tile of one column takes at once. 32-bit ARM has half as many registers. */
#ifdef __arm__
  enum { BITNET__AT_ONCE = 2 };
#else
  enum { BITNET__AT_ONCE = 4 };
#endif

/* The field for activations 32 i to 32 i + 31: its codes times 1, 16, 4 and 1. mask: 0x03, 0x0c and
   0x30. */
BITNET__INLINE BITNET__TARGET_neon int8x16_t bitnet__field_neon(uint8x16_t v,
                                                                const uint8x16_t *mask,
                                                                const int i) {
    return vreinterpretq_s8_u8(i == 0 ? vshrq_n_u8(v, 6) : vandq_u8(v, mask[3 - i]));
}

/* The same field as codes. */
BITNET__INLINE BITNET__TARGET_neon uint8x16_t bitnet__codes_neon(uint8x16_t v, const int i) {
    const uint8x16_t low = vdupq_n_u8(3);
    return i == 0   ? vshrq_n_u8(v, 6)
           : i == 1 ? vandq_u8(vshrq_n_u8(v, 4), low)
           : i == 2 ? vandq_u8(vshrq_n_u8(v, 2), low)
                    : vandq_u8(v, low);
}

/* v[x] becomes words x of v[0] to v[3]. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__transpose_neon(uint32x4_t *v) {
    const uint32x4x2_t even = vzipq_u32(v[0], v[2]), odd = vzipq_u32(v[1], v[3]);
    const uint32x4x2_t low = vzipq_u32(even.val[0], odd.val[0]);
    const uint32x4x2_t high = vzipq_u32(even.val[1], odd.val[1]);
    v[0] = low.val[0];
    v[1] = low.val[1];
    v[2] = high.val[0];
    v[3] = high.val[1];
}

/* Lane r is the sum of the lanes of v[r]. */
BITNET__INLINE BITNET__TARGET_neon int32x4_t bitnet__fold4_neon(const int32x4_t *v) {
#ifdef __arm__
    int32x2_t two[4];
    int r;
    BITNET__UNROLL for (r = 0; r < 4; r++)
        two[r] = vpadd_s32(vget_low_s32(v[r]), vget_high_s32(v[r]));
    return vcombine_s32(vpadd_s32(two[0], two[1]), vpadd_s32(two[2], two[3]));
#else
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
#endif
}

/* Writes the dots of a column with `rows` rows, at most 4 of them, minus *sum. If sum is null, adds
   the dots to what is there. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__put_dots_neon(int32_t *to, int32x4_t dots,
                                                              int rows, const int32_t *sum) {
    int32_t four[4] = {0};
    if (rows <= 0) return;
    if (sum) dots = vsubq_s32(dots, vdupq_n_s32(*sum));
    else {
        bitnet__put(four, to, rows);
        dots = vaddq_s32(dots, vld1q_s32(four));
    }
    vst1q_s32(four, dots);
    bitnet__put(to, four, rows);
}

/* After every block: int16 sums of 16 code would soon wrap. The next block clears them. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__end_block(int32x4_t *partial, const int halves) {
    if (halves) {
        partial[0] = vreinterpretq_s32_s16(vsraq_n_s16(vreinterpretq_s16_s32(partial[0]),
                                                       vreinterpretq_s16_s32(partial[2]), 4));
        BITNET__IN_PLACE(partial[0]);
        BITNET__NO_AHEAD();
    }
}

BITNET__INLINE BITNET__TARGET_neon int32x4_t bitnet__add_partials(int32x4_t sum,
                                                                  const int32x4_t *partial,
                                                                  const int halves) {
    if (halves)
        return vpadalq_s16(sum, vsraq_n_s16(vreinterpretq_s16_s32(partial[0]),
                                            vreinterpretq_s16_s32(partial[1]), 2));
    return vsraq_n_s32(vsraq_n_s32(vaddq_s32(sum, partial[0]), partial[1], 2), partial[2], 4);
}

BITNET__INLINE BITNET__TARGET_neon void bitnet__block_i2s(
    int32x4_t (*partial)[3], const uint8x16_t *mask, const uint8_t *const *row, const int8_t *q,
    size_t q_stride, size_t b, const int tile_rows, const int tile_cols, const int halves,
    bitnet__dot_fn *dot) {
    uint8x16_t v[BITNET__TILE];
    int8x16_t field, a[3];
    int r, c, i, h;
    BITNET__UNROLL for (h = 0; h < 2; h++) {
        BITNET__UNROLL for (r = 0; r < tile_rows; r++)
            v[r] = vld1q_u8(row[r] + b * 32 + (size_t)h * 16);
        BITNET__UNROLL for (i = 0; i < 4; i++) {
            const int at = i == 1 ? 2 : i == 2 ? 1 : 0;
            BITNET__UNROLL for (c = 0; c < tile_cols; c++)
                a[c] = vld1q_s8(q + (size_t)c * q_stride + b * 128 + (size_t)(i * 32 + h * 16));
            BITNET__UNROLL for (r = 0; r < tile_rows; r++) {
                field = bitnet__field_neon(v[r], mask, i);
                BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                    int32x4_t *p = &partial[c * tile_rows + r][at];
                    *p = bitnet__dot(dot, *p, field, a[c], halves && i == 1 && h == 0);
                    BITNET__IN_PLACE(*p);
                }
            }
            BITNET__NO_AHEAD();
        }
    }
    BITNET__UNROLL for (r = 0; r < tile_rows * tile_cols; r++)
        bitnet__end_block(partial[r], halves);
}

BITNET__INLINE BITNET__TARGET_neon void bitnet__tile_i2s_shaped(
    const bitnet__dots *d, const int tile_rows, const int tile_cols, const int halves,
    bitnet__dot_fn *dot) {
    const int depth = halves ? BITNET__FOLD : BITNET__MAX_ROW / 128;
    int32x4_t partial[6][3], sum[3][BITNET__TILE];
    const uint8_t *row[BITNET__TILE];
    uint8x16_t mask[3];
    int r, c, b, end, first;
    BITNET__UNROLL for (r = 0; r < 3; r++) {
        mask[r] = vdupq_n_u8((uint8_t)(3 << 2 * r));
        BITNET__IN_PLACE(mask[r]);
    }
    for (first = 0; first < BITNET__TILE; first += tile_rows) {
        BITNET__UNROLL for (r = 0; r < tile_rows; r++) {
            row[r] = d->w + bitnet__clamp(first + r, d->rows) * (size_t)(d->n / 4);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) sum[c][first + r] = vdupq_n_s32(0);
        }
        for (b = 0; b < d->n / 128; b = end) {
            end = d->n / 128 - b < depth ? d->n / 128 : b + depth;
            BITNET__UNROLL for (r = 0; r < tile_rows * tile_cols; r++)
                partial[r][0] = partial[r][1] = partial[r][2] = vdupq_n_s32(0);
            for (; b < end; b++) {
                if (tile_cols == 1) {                  /* the next tile's rows */
                    BITNET__PREFETCH(d->w, d->n + b * 128);
                    BITNET__PREFETCH(d->w, d->n + b * 128 + 64);
                }
                bitnet__block_i2s(partial, mask, row, d->q, d->q_stride, (size_t)b, tile_rows,
                                  tile_cols, halves, dot);
            }
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                BITNET__UNROLL for (r = 0; r < tile_rows; r++)
                    sum[c][first + r] =
                        bitnet__add_partials(sum[c][first + r], partial[c * tile_rows + r], halves);
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++)
        bitnet__put_dots_neon(d->out + (size_t)c * d->stride, bitnet__fold4_neon(sum[c]), d->rows,
                              d->sums + c);
}

/* Takes up to 3 columns and returns how many. */
BITNET__INLINE BITNET__TARGET_neon int bitnet__tile_i2s_any(const bitnet__dots *d, const int halves,
                                                            bitnet__dot_fn *dot) {
    const int taken = bitnet__share(d->cols, 3);
    if (taken == 1) bitnet__tile_i2s_shaped(d, BITNET__AT_ONCE, 1, halves, dot);
    else if (taken == 2) bitnet__tile_i2s_shaped(d, 2, 2, halves, dot);
    else bitnet__tile_i2s_shaped(d, 2, 3, halves, dot);
    return taken;
}

/* ---- 4 bits: tiles of 4 rows and 1, 2 or 4 columns ---- */

/* 16 weights: the upper or lower halves of bytes, minus 8. */
BITNET__INLINE BITNET__TARGET_neon int8x16_t bitnet__u4_weights(uint8x16_t v, const int lower) {
    v = lower ? vandq_u8(v, vdupq_n_u8(15)) : vshrq_n_u8(v, 4);
    return vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8(8));
}

BITNET__INLINE BITNET__TARGET_neon void bitnet__tile_u4_shaped(const bitnet__dots *d,
                                                               const int tile_cols,
                                                               bitnet__dot_fn *dot) {
    int32x4_t sum[BITNET__TILE][BITNET__TILE];
    uint8x16_t both[BITNET__TILE];
    int8x16_t v[BITNET__TILE], a;
    const uint8_t *row[BITNET__TILE];
    const int8_t *col[BITNET__TILE];
    const int32_t none = 0;
    const int row_bytes = d->n / 2;
    int r, c, i, lower;
    BITNET__UNROLL for (r = 0; r < BITNET__TILE; r++)
        row[r] = d->w + bitnet__clamp(r, d->rows) * (size_t)row_bytes;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        col[c] = d->q + bitnet__clamp(c, d->cols) * d->q_stride;
        BITNET__UNROLL for (r = 0; r < BITNET__TILE; r++) sum[c][r] = vdupq_n_s32(0);
    }
    for (i = 0; i < row_bytes; i += 16) {      /* 64 bytes are 128 weights */
        const int first = 2 * i - i % 64;
        BITNET__PREFETCH(d->w, 4 * (size_t)row_bytes + 4 * (size_t)i);
        BITNET__UNROLL for (r = 0; r < BITNET__TILE; r++) both[r] = vld1q_u8(row[r] + i);
        BITNET__UNROLL for (lower = 0; lower < 2; lower++) {
            BITNET__UNROLL for (r = 0; r < BITNET__TILE; r++)
                v[r] = bitnet__u4_weights(both[r], lower);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                a = vld1q_s8(col[c] + first + 64 * lower);
                BITNET__UNROLL for (r = 0; r < BITNET__TILE; r++) {
                    sum[c][r] = bitnet__dot(dot, sum[c][r], v[r], a, 0);
                    BITNET__IN_PLACE(sum[c][r]);
                }
                BITNET__NO_AHEAD();
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++)
        if (c < d->cols)
            bitnet__put_dots_neon(d->out + (size_t)c * d->stride, bitnet__fold4_neon(sum[c]),
                                  d->rows, &none);
}

/* Takes up to 4 columns and returns how many. */
BITNET__INLINE BITNET__TARGET_neon int bitnet__tile_u4_any(const bitnet__dots *d,
                                                           bitnet__dot_fn *dot) {
    if (d->cols == 1) bitnet__tile_u4_shaped(d, 1, dot);
    else if (d->cols == 2) bitnet__tile_u4_shaped(d, 2, dot);
    else bitnet__tile_u4_shaped(d, 4, dot);
    return d->cols < 4 ? d->cols : 4;
}

/* The table entries for tiles; bitnet.h has the loops around them. */
#define BITNET__DEFINE_TILES(isa, halves, dot_u4) \
    BITNET__INLINE BITNET__TARGET_##isa int bitnet__tile_i2s_##isa(const bitnet__dots *d) { \
        return bitnet__tile_i2s_any(d, halves, bitnet__dot_##isa); \
    } \
    BITNET__APART BITNET__TARGET_##isa void bitnet__tiles_##isa(const bitnet__dots *d) { \
        bitnet__tiles(d, bitnet__tile_i2s_##isa, BITNET__TILE, (size_t)d->n); \
    } \
    BITNET__INLINE BITNET__TARGET_##isa int bitnet__tile_u4_##isa(const bitnet__dots *d) { \
        return bitnet__tile_u4_any(d, dot_u4); \
    } \
    static BITNET__TARGET_##isa void bitnet__dotrows_u4_##isa(const bitnet__dots *d) { \
        bitnet__tiles(d, bitnet__tile_u4_##isa, BITNET__TILE, 2 * (size_t)d->n); \
    }

/* The table entry for ternary weights: panels of panel_rows rows and panel_cols columns, from
   min_cols columns on; else tiles. */
#define BITNET__DEFINE_PANELS(isa, tiles, panel_rows, panel_cols, depth, min_cols) \
    BITNET__APART BITNET__TARGET_##isa void bitnet__panels_##isa(const bitnet__dots *d) { \
        uint8x16_t panel[(panel_rows) * (depth) / 16]; \
        bitnet__panels(d, panel, bitnet__unpack_##isa, bitnet__multiply_##isa, panel_rows, depth, \
                       panel_cols); \
    } \
    static BITNET__TARGET_##isa void bitnet__dotrows_i2s_##isa(const bitnet__dots *d) { \
        bitnet__tiles_and_panels(d, tiles, bitnet__panels_##isa, panel_cols, min_cols, \
                                 bitnet__i2s_bytes); \
    }

/* ---- I2_S, panels, any ARMv8 ---- */

/* A panel is 4 rows, one after the other, in the order of the activations. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__unpack_neon(const bitnet__dots *d, int first, int k,
                                                            int len, void *panel) {
    int r, quad, i;
    for (r = 0; r < 4; r++) {
        const uint8_t *row = d->w + k / 4 + bitnet__clamp(first + r, d->rows) * (size_t)(d->n / 4);
        for (quad = 0; quad < len / 64; quad++) {
            const uint8x16_t v = vld1q_u8(row + (size_t)quad * 16);
            uint8x16_t *to = (uint8x16_t *)panel + r * (len / 16) + quad / 2 * 8 + quad % 2;
            BITNET__UNROLL for (i = 0; i < 4; i++) to[i * 2] = bitnet__codes_neon(v, i);
        }
    }
}

/* 16 partial sums, 4 vectors of weights, 1 of activations: 8 loads for 32 SMLAL. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__multiply_neon(void *panel, int from, int len,
                                                              const bitnet__dots *d) {
    int32x4_t sum[4][4];
    int16x8_t partial[4][4];
    int8x16_t v[4], a;
    const uint8x16_t *row[4];
    const int8_t *col[4];
    int r, c, k, end;
    BITNET__UNROLL for (c = 0; c < 4; c++) {
        row[c] = (const uint8x16_t *)panel + c * (len / 16);
        col[c] = d->q + bitnet__clamp(c, d->cols) * d->q_stride + from;
        BITNET__UNROLL for (r = 0; r < 4; r++) sum[c][r] = vdupq_n_s32(0);
    }
    for (k = 0; k < len / 16; k = end) {
        end = len / 16 - k < BITNET__FOLD * 8 ? len / 16 : k + BITNET__FOLD * 8;
        BITNET__UNROLL for (c = 0; c < 4; c++) {
            BITNET__UNROLL for (r = 0; r < 4; r++) partial[c][r] = vdupq_n_s16(0);
        }
        for (; k < end; k++) {
            BITNET__UNROLL for (r = 0; r < 4; r++) v[r] = vreinterpretq_s8_u8(row[r][k]);
            BITNET__UNROLL for (c = 0; c < 4; c++) {
                a = vld1q_s8(col[c] + (size_t)k * 16);
                BITNET__UNROLL for (r = 0; r < 4; r++) {
                    partial[c][r] = bitnet__dot16_neon(partial[c][r], v[r], a, 0);
                    BITNET__IN_PLACE(partial[c][r]);
                }
            }
        }
        BITNET__UNROLL for (c = 0; c < 4; c++) {
            BITNET__UNROLL for (r = 0; r < 4; r++)
                sum[c][r] = vpadalq_s16(sum[c][r], partial[c][r]);
        }
    }
    BITNET__UNROLL for (c = 0; c < 4; c++)
        if (c < d->cols)
            bitnet__put_dots_neon(d->out + (size_t)c * d->stride, bitnet__fold4_neon(sum[c]),
                                  d->rows, from ? 0 : d->sums + c);
}

#if BITNET__NEON
BITNET__DEFINE_TILES(neon, 1, bitnet__dot_u4_neon)
BITNET__DEFINE_PANELS(neon, bitnet__tiles_neon, 4, 4, BITNET__FOLD * 256, 8)
#endif

#if BITNET__DOTPROD
/* ---- I2_S, panels, SDOT ---- */

/* A panel is 8 rows. 4 weights of each row lie side by side, so that no sum goes across lanes:

       vector 2 k + half    lane        0            1            2            3
                            row      4 half     4 half + 1   4 half + 2   4 half + 3
                            weights  4k .. 4k+3   4k .. 4k+3   4k .. 4k+3   4k .. 4k+3

   A block's 32 bytes are two quads of 4 words. Transposing the 4 x 4 words of 4 rows puts word d
   of all of them into one vector. Its bits 7-6 belong to k = 4 * quad + d of the block, bits 5-4
   to that k plus 8, bits 3-2 to k plus 16, bits 1-0 to k plus 24. */
BITNET__INLINE BITNET__TARGET_dotprod void bitnet__unpack_dotprod(const bitnet__dots *d, int first,
                                                                  int k, int len, void *panel) {
    const size_t row_bytes = (size_t)(d->n / 4);
    const uint8_t *w = d->w + k / 4;
    int half, quad, r, x, i;
    for (half = 0; half < 2; half++) {
        for (quad = 0; quad < len / 64; quad++) {
            uint8x16_t *to = (uint8x16_t *)panel + (quad / 2 * 32 + quad % 2 * 4) * 2 + half;
            uint32x4_t v[4];
            BITNET__UNROLL for (r = 0; r < 4; r++)
                v[r] = vreinterpretq_u32_u8(
                    vld1q_u8(w + bitnet__clamp(first + half * 4 + r, d->rows) * row_bytes +
                             (size_t)quad * 16));
            bitnet__transpose_neon(v);
            BITNET__UNROLL for (x = 0; x < 4; x++) {
                BITNET__UNROLL for (i = 0; i < 4; i++)
                    to[(x + 8 * i) * 2] = bitnet__codes_neon(vreinterpretq_u8_u32(v[x]), i);
            }
        }
    }
}

/* 16 sums, 8 vectors of activations, 2 of weights: 16 loads for 64 SDOT, because one vector of
   activations serves four k-steps, a lane each. The lane must be a literal, hence the macro. */
#define BITNET__K_STEP(s) \
    w0 = vreinterpretq_s8_u8(v[(k + (s)) * 2]); \
    w1 = vreinterpretq_s8_u8(v[(k + (s)) * 2 + 1]); \
    BITNET__UNROLL for (c = 0; c < 8; c++) { \
        BITNET__SDOT_LANE(sum[c][0], w0, a[c], s); \
        BITNET__SDOT_LANE(sum[c][1], w1, a[c], s); \
    }
BITNET__INLINE BITNET__TARGET_dotprod void bitnet__multiply_dotprod(void *panel, int from, int len,
                                                                    const bitnet__dots *d) {
    const uint8x16_t *v = (const uint8x16_t *)panel;
    int32x4_t sum[8][2];
    int8x16_t a[8], w0, w1;
    const int8_t *col[8];
    int c, k;
    BITNET__UNROLL for (c = 0; c < 8; c++) {
        col[c] = d->q + bitnet__clamp(c, d->cols) * d->q_stride + from;
        sum[c][0] = sum[c][1] = vdupq_n_s32(0);
    }
    for (k = 0; k < len / 4; k += 4) {
        BITNET__UNROLL for (c = 0; c < 8; c++) a[c] = vld1q_s8(col[c] + (size_t)k * 4);
        BITNET__K_STEP(0)
        BITNET__K_STEP(1)
        BITNET__K_STEP(2)
        BITNET__K_STEP(3)
    }
    BITNET__UNROLL for (c = 0; c < 8; c++) {
        int32_t *to = d->out + (size_t)c * d->stride;
        if (c >= d->cols) continue;
        bitnet__put_dots_neon(to, sum[c][0], d->rows, from ? 0 : d->sums + c);
        bitnet__put_dots_neon(to + 4, sum[c][1], d->rows - 4, from ? 0 : d->sums + c);
    }
}
#undef BITNET__K_STEP

BITNET__DEFINE_TILES(dotprod, 0, bitnet__dot_dotprod)
BITNET__DEFINE_PANELS(dotprod, bitnet__tiles_dotprod, 8, 8, 1024, 16)
#endif

#if BITNET__I8MM
/* ---- I2_S, panels, SMMLA ----
   A panel is 16 rows, two to a vector, 8 weights of each:

       vector 8 k + pair    bytes    0 .. 7            8 .. 15
                            row      2 pair            2 pair + 1
                            weights  8k .. 8k+7        8k .. 8k+7

   SMMLA multiplies this by 8 activations of two columns: 2 x 2 dot products. */
BITNET__INLINE BITNET__TARGET_i8mm void bitnet__unpack_i8mm(const bitnet__dots *d, int first, int k,
                                                            int len, void *panel) {
    const size_t row_bytes = (size_t)(d->n / 4);
    const uint8_t *w = d->w + k / 4;
    int pair, quad, i;
    for (pair = 0; pair < 8; pair++) {
        const uint8_t *row0 = w + bitnet__clamp(first + 2 * pair, d->rows) * row_bytes;
        const uint8_t *row1 = w + bitnet__clamp(first + 2 * pair + 1, d->rows) * row_bytes;
        for (quad = 0; quad < len / 64; quad++) {
            uint8x16_t *to = (uint8x16_t *)panel + (quad / 2 * 16 + quad % 2 * 2) * 8 + pair;
            const uint64x2_t v0 = vreinterpretq_u64_u8(vld1q_u8(row0 + (size_t)quad * 16));
            const uint64x2_t v1 = vreinterpretq_u64_u8(vld1q_u8(row1 + (size_t)quad * 16));
            const uint8x16_t lo = vreinterpretq_u8_u64(vtrn1q_u64(v0, v1));
            const uint8x16_t hi = vreinterpretq_u8_u64(vtrn2q_u64(v0, v1));
            BITNET__UNROLL for (i = 0; i < 4; i++) {
                to[i * 32] = bitnet__codes_neon(lo, i);
                to[i * 32 + 8] = bitnet__codes_neon(hi, i);
            }
        }
    }
}

/* 16 sums, 4 vectors of activations, 1 of weights: 20 loads and 4 transpositions for 32 SMMLA.
   A sum's lanes: rows 2 pair and 2 pair + 1 with the first column, then with the second. */
BITNET__INLINE BITNET__TARGET_i8mm void bitnet__multiply_i8mm(void *panel, int from, int len,
                                                              const bitnet__dots *d) {
    const uint8x16_t *v = (const uint8x16_t *)panel;
    int32x4_t sum[2][8], dots;
    int8x16_t a[2][2], w;
    const int8_t *col[4];
    int c, k, p, h;
    BITNET__UNROLL for (c = 0; c < 4; c++)
        col[c] = d->q + bitnet__clamp(c, d->cols) * d->q_stride + from;
    BITNET__UNROLL for (c = 0; c < 2; c++) {
        BITNET__UNROLL for (p = 0; p < 8; p++) sum[c][p] = vdupq_n_s32(0);
    }
    for (k = 0; k < len; k += 16, v += 16) {
        BITNET__UNROLL for (c = 0; c < 2; c++) {
            const int64x2_t a0 = vreinterpretq_s64_s8(vld1q_s8(col[2 * c] + k));
            const int64x2_t a1 = vreinterpretq_s64_s8(vld1q_s8(col[2 * c + 1] + k));
            a[0][c] = vreinterpretq_s8_s64(vtrn1q_s64(a0, a1));
            a[1][c] = vreinterpretq_s8_s64(vtrn2q_s64(a0, a1));
        }
        BITNET__UNROLL for (h = 0; h < 2; h++) {
            BITNET__UNROLL for (p = 0; p < 8; p++) {
                w = vreinterpretq_s8_u8(v[h * 8 + p]);
                BITNET__UNROLL for (c = 0; c < 2; c++) BITNET__SMMLA(sum[c][p], a[h][c], w);
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < 4; c++) {
        const int32x4_t *s = sum[c / 2];
        if (c >= d->cols) continue;
        BITNET__UNROLL for (p = 0; p < 8; p += 2) {
            dots = c % 2 ? vcombine_s32(vget_high_s32(s[p]), vget_high_s32(s[p + 1]))
                         : vcombine_s32(vget_low_s32(s[p]), vget_low_s32(s[p + 1]));
            bitnet__put_dots_neon(d->out + (size_t)c * d->stride + 2 * p, dots, d->rows - 2 * p,
                                  from ? 0 : d->sums + c);
        }
    }
}

BITNET__DEFINE_PANELS(i8mm, bitnet__tiles_dotprod, 16, 4, 1024, 8)
#endif

/* Columns of a tile with SMLAL. */
#ifdef __arm__
  #define BITNET__MOST 2
#else
  #define BITNET__MOST 4
#endif

/* Four activations, four times. If clang knew that, it would swap the halves of the weights, so as
   to use SMLAL for SMLAL2. */
BITNET__INLINE BITNET__TARGET_neon int8x16_t bitnet__repeat_neon(const int8_t *q) {
    int32x4_t v;
    int32_t four;
    memcpy(&four, q, 4);
    v = vdupq_n_s32(four);
#ifdef __clang__
    BITNET__IN_PLACE(v);
#endif
    return vreinterpretq_s8_s32(v);
}

/* The sums of neighbouring lanes. */
BITNET__INLINE BITNET__TARGET_neon int32x4_t bitnet__add_pairs(const int32x4_t *two) {
#ifdef __arm__
    return vcombine_s32(vpadd_s32(vget_low_s32(two[0]), vget_high_s32(two[0])),
                        vpadd_s32(vget_low_s32(two[1]), vget_high_s32(two[1])));
#else
    return vpaddq_s32(two[0], two[1]);
#endif
}

#ifndef BITNET_NO_GROUPS
/* ---- ternary weights with a scale per group ----
   bitnet.h has the layouts of a file's blocks and of the row packs that are made of them. A
   register of a pack is 16 bytes, a word of 4 bytes from each of 4 rows:

       word                   0            1            2            3
       row                   4j         4j + 1       4j + 2       4j + 3
       bits 2s+1 and 2s    weights 4s .. 4s+3 of each row's 16, one in each byte

   Packs of 16 rows and up to 512 weights, 2.3 KB, are made in the L1 cache for up to 64 columns.
   For a column alone that would take 56 % of the cycles of all the rest (llvm-mca, Neoverse N1), so
   the words are transposed in registers and not stored, for 26 %. Digits of PTQ1_0 are transposed
   before they are taken apart: a register is the same 4 bytes of each of 4 rows.
   A tile is 4 or 2 such registers, 16 or 8 rows, and 1 to 8 columns, exactly as many as there are:
   its sums of integers stay in registers for a scale group. Then they become floats, and the sums
   of floats, which are needed once a scale group, wait in memory. Rows past the end are computed
   and dropped. */
enum {
    BITNET__GROUP_COLS = 8,
    BITNET__PASS_COLS = 64,
    BITNET__REGS = BITNET__MOST / 2,           /* registers of a tile without packs */
    BITNET__DIGITS = -1,                       /* in place of the bits of a code */
    BITNET__STRETCH = 512,
    BITNET__STRETCH_BYTES = BITNET__STRETCH / 64 * (BITNET__PACK_SCALES + 4 * 64),
    BITNET__PANEL_BYTES = BITNET__STRETCH / 64 * (BITNET__PACK_SCALES + 16 * 64)
};

/* Reads 16 bytes of codes of each row of a tile. t[j][x]: words x of the rows of register j. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__load_rows(uint32x4_t (*t)[4],
                                                          const uint8_t *const *row, size_t at,
                                                          const int regs) {
    int j, r;
    BITNET__UNROLL for (j = 0; j < regs; j++) {
        BITNET__UNROLL for (r = 0; r < 4; r++)
            t[j][r] = vreinterpretq_u32_u8(vld1q_u8(row[4 * j + r] + at));
        bitnet__transpose_neon(t[j]);
    }
}

/* Words x of a pack, of what bitnet__load_rows read. */
BITNET__INLINE BITNET__TARGET_neon uint8x16_t bitnet__word_of(const uint32x4_t *t, const int x,
                                                              const int bits) {
    const uint8x16_t v = vreinterpretq_u8_u32(t[bits == 2 ? x : x / 2]);
    return bits == 2 ? v : vandq_u8(x % 2 ? v : vshlq_n_u8(v, 1), vdupq_n_u8(0xaa));
}

/* ---- the digits of a block of PTQ1_0 ----
   x[j][i] is 4 bytes of each of the 4 rows of register j, minus `less`: first bytes 4 i to 4 i + 3
   of the block, and later 12 + 4 i to 15 + 4 i. STEP(i, v, lane) takes a digit of each, those of
   weights 16 v + 4 lane to 16 v + 4 lane + 3, and multiplies x[j][i] by 3. Bytes 24 and 25 give two
   digits at a time. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__load_digits(uint8x16_t (*x)[4],
                                                            const uint8_t *const *row, size_t at,
                                                            const int regs, const uint8_t less) {
    uint32x4_t t[2][4];
    int i, j;
    bitnet__load_rows(t, row, at, regs);
    BITNET__UNROLL for (j = 0; j < regs; j++) {
        BITNET__UNROLL for (i = 0; i < 4; i++)
            x[j][i] = vsubq_u8(vreinterpretq_u8_u32(t[j][i]), vdupq_n_u8(less));
    }
}

/* x[j][3], bytes 24 to 27, becomes bytes 24, 25 and 3 times these. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__last_digits(uint8x16_t (*x)[4], const int regs) {
    static const uint8_t times[16] = {1, 1, 3, 3, 1, 1, 3, 3, 1, 1, 3, 3, 1, 1, 3, 3};
    int j;
    BITNET__UNROLL for (j = 0; j < regs; j++) {
        const uint16x8_t v = vreinterpretq_u16_u8(x[j][3]);
        x[j][3] = vmulq_u8(vreinterpretq_u8_u16(vtrnq_u16(v, v).val[0]), vld1q_u8(times));
    }
}

/* `three` is hidden from gcc, which would add twice instead. */
#define BITNET__ALL_DIGITS(STEP, regs, less) \
    BITNET__IN_PLACE(three); \
    bitnet__load_digits(x, row, at, regs, less); \
    for (v = 0; v < 5; v++) { \
        STEP(0, v, 0) \
        STEP(1, v, 1) \
        STEP(2, v, 2) \
        STEP(3, v, 3) \
    } \
    bitnet__load_digits(x, row, at + 12, regs, less); \
    bitnet__last_digits(x, regs); \
    for (; v < 7; v++) { \
        STEP(1, v, 0) \
        STEP(2, v, 1) \
        STEP(1, v, 2) \
        STEP(2, v, 3) \
    } \
    STEP(1, v, 0) \
    STEP(2, v, 1) \
    STEP(3, v, 2) \
    BITNET__UNROLL for (j = 0; j < regs; j++) x[j][3] = vmulq_u8(x[j][3], three); \
    STEP(3, v, 3)

/* The words of 4 rows of a pack. The digit is in the upper 2 bits of (x + x / 2) / 2. */
#define BITNET__PACK_STEP(i, v, lane) \
    digit[lane] = vhaddq_u8(x[0][i], vshrq_n_u8(x[0][i], 1)); \
    x[0][i] = vmulq_u8(x[0][i], three); \
    if ((lane) == 3) \
        vst1q_u8(to + 64 * (v), vsriq_n_u8(vsriq_n_u8(vsriq_n_u8(digit[3], digit[2], 2), \
                                                      digit[1], 4), digit[0], 6));
BITNET__INLINE BITNET__TARGET_neon void bitnet__pack_digits(const uint8_t *const *row, size_t at,
                                                            uint8_t *to) {
    uint8x16_t x[1][4], digit[4], three = vdupq_n_u8(3);
    int v, j;
    BITNET__ALL_DIGITS(BITNET__PACK_STEP, 1, 0)
}
#undef BITNET__PACK_STEP

/* Makes the packs of `count` scale groups of 16 rows, which begin `from` bytes into each row. Past
   the last row it repeats that row. Prefetches the same blocks of the next 16 rows. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__pack_blocks(const bitnet__grouped *p, size_t from,
                                                            int count, uint8_t *pack,
                                                            const int bits) {
    const bitnet__blocks b = *p->blocks;
    const size_t row_bytes = bitnet__blocks_bytes(&b, p->n, 1);
    const size_t bytes = bits > 0 ? (size_t)(b.group * bits / 8) : 0;
    const size_t scale = (size_t)(b.scale_at - b.codes_at);
    const uint8_t *row[4];
    uint32x4_t t[1][4];
    size_t at, end;
    int quad, g, r, x;
    for (quad = 0; quad < BITNET__PACK_ROWS; quad += 4) {
        uint8_t *to = pack;
        BITNET__UNROLL for (r = 0; r < 4; r++)
            row[r] = p->w + bitnet__clamp(quad + r, p->rows) * row_bytes;
        at = from + (size_t)b.codes_at;
        for (g = 0; g < count; g++, at += (size_t)b.bytes - bytes) {
            BITNET__UNROLL for (r = 0; r < 4; r++) {
                BITNET__PREFETCH(row[r], at + BITNET__PACK_ROWS * row_bytes);
                memcpy(to + 2 * (quad + r), row[r] + (at + scale), 2);
            }
            to += BITNET__PACK_SCALES;
            if (bits == BITNET__DIGITS) {
                bitnet__pack_digits(row, at, to + 4 * quad);
                to += 4 * 128;
            }
            for (end = at + bytes; at < end; at += 16, to += 512 / bits) {
                bitnet__load_rows(t, row, at, 1);
                BITNET__UNROLL for (x = 0; x < 8 / bits; x++)
                    vst1q_u8(to + 64 * x + 4 * quad, bitnet__word_of(t[0], x, bits));
            }
        }
    }
}

#if BITNET__NEON || BITNET__DOTPROD
BITNET__APART BITNET__TARGET_neon void bitnet__pack_groups_neon(const bitnet__grouped *p,
                                                                size_t from, int count,
                                                                uint8_t *pack) {
    if (p->blocks->bits == 2) bitnet__pack_blocks(p, from, count, pack, 2);
    else if (p->blocks->bits == 1) bitnet__pack_blocks(p, from, count, pack, 1);
    else bitnet__pack_blocks(p, from, count, pack, BITNET__DIGITS);
}
#endif

/* dots[c][j]: those of the rows of register j with column c over a scale group, whose activations
   are at q. Its codes begin `at` bytes after row[0 .. 4 regs - 1], rows of a file with `bits` bits
   a code; or if bits is 0 its words after row[0], in a pack. */
typedef void bitnet__group_fn(const uint8_t *const *row, size_t at, const int8_t *q, int n,
                              int group, int32x4_t (*dots)[4], const int regs, const int cols,
                              const int bits);

/* SMLAL multiplies 8 bytes of a field, which are two rows, by the same 4 activations, twice. An
   int16 gets a product for every 4 weights, at most 64 in a scale group; see BOUNDS. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__group_neon(
    const uint8_t *const *row, size_t at, const int8_t *q, int n, int group, int32x4_t (*dots)[4],
    const int regs, const int cols, const int bits) {
    const int words = bits ? 8 / bits : 1;
    uint32x4_t t[2][4];
    int16x8_t sum[4][4][2];
    uint8x16_t v[4];
    int8x16_t field[4], a;
    int32x4_t two[2];
    int c, j, k, s, x;
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++) sum[c][j][0] = sum[c][j][1] = vdupq_n_s16(0);
    }
    for (k = 0; k < group; k += 16 * words) {
        if (bits) bitnet__load_rows(t, row, at + (size_t)(k * bits / 8), regs);
        BITNET__UNROLL for (x = 0; x < words; x++) {
            BITNET__UNROLL for (j = 0; j < regs; j++)
                v[j] = bits ? bitnet__word_of(t[j], x, bits)
                            : vld1q_u8(row[0] + at + 4 * k + 16 * j);
            BITNET__UNROLL for (s = 0; s < 4; s++) {
                BITNET__UNROLL for (j = 0; j < regs; j++)
                    field[j] = vreinterpretq_s8_u8(bitnet__codes_neon(v[j], 3 - s));
                BITNET__UNROLL for (c = 0; c < cols; c++) {
                    a = bitnet__repeat_neon(q + (size_t)c * (size_t)n + k + 16 * x + 4 * s);
                    BITNET__UNROLL for (j = 0; j < regs; j++) {
                        BITNET__SMLAL(sum[c][j][0], field[j], a);
                        BITNET__SMLAL2(sum[c][j][1], field[j], a);
                        BITNET__IN_PLACE(sum[c][j][0]);
                        BITNET__IN_PLACE(sum[c][j][1]);
                    }
                }
                BITNET__NO_AHEAD();
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++) {
            two[0] = vpaddlq_s16(sum[c][j][0]);
            two[1] = vpaddlq_s16(sum[c][j][1]);
            dots[c][j] = bitnet__add_pairs(two);
        }
    }
}

/* Digits by one column. dots get the sums of (digit - 1) * q, where digit - 1 is -1 if x - 128 is
   below -42, and 1 if it is above 42. */
#define BITNET__DIGIT_STEP(i, v, lane) \
    a = bitnet__repeat_neon(q + 16 * (v) + 4 * (lane)); \
    BITNET__UNROLL for (j = 0; j < regs; j++) { \
        const int8x16_t s = vreinterpretq_s8_u8(x[j][i]); \
        const int8x16_t w = vreinterpretq_s8_u8( \
            vsubq_u8(vcltq_s8(s, vdupq_n_s8(-42)), vcgtq_s8(s, vdupq_n_s8(42)))); \
        x[j][i] = vmulq_u8(x[j][i], three); \
        BITNET__SMLAL(sum[j][0], w, a); \
        BITNET__SMLAL2(sum[j][1], w, a); \
    }
BITNET__INLINE BITNET__TARGET_neon void bitnet__digits_neon(
    const uint8_t *const *row, size_t at, const int8_t *q, int n, int group, int32x4_t (*dots)[4],
    const int regs, const int cols, const int bits) {
    uint8x16_t x[2][4], three = vdupq_n_u8(3);
    int16x8_t sum[2][2];
    int32x4_t two[2];
    int8x16_t a;
    int v, j;
    (void)n, (void)group, (void)cols, (void)bits;
    BITNET__UNROLL for (j = 0; j < regs; j++) sum[j][0] = sum[j][1] = vdupq_n_s16(0);
    BITNET__ALL_DIGITS(BITNET__DIGIT_STEP, regs, 128)
    BITNET__UNROLL for (j = 0; j < regs; j++) {
        two[0] = vpaddlq_s16(sum[j][0]);
        two[1] = vpaddlq_s16(sum[j][1]);
        dots[0][j] = bitnet__add_pairs(two);
    }
}
#undef BITNET__DIGIT_STEP

#if BITNET__DOTPROD
/* The same without digits, from the sums of s * q and of the next s * q: see bitnet.h. */
#define BITNET__DIGIT_STEP(i, v, lane) \
    if ((lane) == 0) a = vld1q_s8(q + 16 * (v)); \
    BITNET__UNROLL for (j = 0; j < regs; j++) { \
        BITNET__SDOT_LANE(sum[j][0], vreinterpretq_s8_u8(x[j][i]), a, lane); \
        x[j][i] = vmulq_u8(x[j][i], three); \
        BITNET__SDOT_LANE(sum[j][1], vreinterpretq_s8_u8(x[j][i]), a, lane); \
    }
BITNET__INLINE BITNET__TARGET_dotprod void bitnet__digits_dotprod(
    const uint8_t *const *row, size_t at, const int8_t *q, int n, int group, int32x4_t (*dots)[4],
    const int regs, const int cols, const int bits) {
    uint8x16_t x[2][4], three = vdupq_n_u8(3);
    int32x4_t sum[2][2];
    int8x16_t a = vdupq_n_s8(0);
    int v, j;
    (void)n, (void)group, (void)cols, (void)bits;
    BITNET__UNROLL for (j = 0; j < regs; j++) sum[j][0] = sum[j][1] = vdupq_n_s32(0);
    BITNET__ALL_DIGITS(BITNET__DIGIT_STEP, regs, 128)
    BITNET__UNROLL for (j = 0; j < regs; j++) {
        sum[j][0] = vsubq_s32(vmulq_n_s32(sum[j][0], 3), sum[j][1]);
        dots[0][j] = vshrq_n_s32(sum[j][0], 8);
    }
}
#undef BITNET__DIGIT_STEP

/* A field of 4 rows by a lane of a column's activations: 4 products of each row. For up to 2
   columns, which use a field so seldom, fields are not shifted and have sums of their own, as in
   tiles of I2_S. A lane must be a literal, hence the macro. */
#define BITNET__K_STEP(s) \
    BITNET__UNROLL for (j = 0; j < regs; j++) \
        field[j] = has_partials ? bitnet__field_neon(v[j], mask, 3 - (s)) \
                         : vreinterpretq_s8_u8(bitnet__codes_neon(v[j], 3 - (s))); \
    BITNET__UNROLL for (c = 0; c < cols; c++) { \
        BITNET__UNROLL for (j = 0; j < regs; j++) \
            BITNET__SDOT_LANE(partial[c][j][has_partials ? (s) % 3 : 0], field[j], a[c], s); \
    }
BITNET__INLINE BITNET__TARGET_dotprod void bitnet__group_dotprod(
    const uint8_t *const *row, size_t at, const int8_t *q, int n, int group, int32x4_t (*dots)[4],
    const int regs, const int cols, const int bits) {
    const int has_partials = cols <= 2, words = bits ? 8 / bits : 1;
    int32x4_t partial[BITNET__GROUP_COLS][4][3];
    uint32x4_t t[2][4];
    uint8x16_t v[4], mask[3];
    int8x16_t field[4], a[BITNET__GROUP_COLS];
    int c, j, k, x;
    BITNET__UNROLL for (j = 0; j < 3; j++) {
        mask[j] = vdupq_n_u8((uint8_t)(3 << 2 * j));
        BITNET__IN_PLACE(mask[j]);
    }
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++)
            partial[c][j][0] = partial[c][j][1] = partial[c][j][2] = vdupq_n_s32(0);
    }
    for (k = 0; k < group; k += 16 * words) {
        if (bits) bitnet__load_rows(t, row, at + (size_t)(k * bits / 8), regs);
        BITNET__UNROLL for (x = 0; x < words; x++) {
            BITNET__UNROLL for (j = 0; j < regs; j++)
                v[j] = bits ? bitnet__word_of(t[j], x, bits)
                            : vld1q_u8(row[0] + at + 4 * k + 16 * j);
            BITNET__UNROLL for (c = 0; c < cols; c++)
                a[c] = vld1q_s8(q + (size_t)c * (size_t)n + k + 16 * x);
            BITNET__K_STEP(0)
            BITNET__K_STEP(1)
            BITNET__K_STEP(2)
            BITNET__K_STEP(3)
            if (bits) BITNET__NO_AHEAD();
        }
    }
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++)
            dots[c][j] = has_partials ? bitnet__add_partials(vdupq_n_s32(0), partial[c][j], 0)
                                      : partial[c][j][0];
    }
}
#undef BITNET__K_STEP
#endif

#if BITNET__I8MM
/* ---- packs for SMMLA ----
   SMMLA takes 8 weights of a row at a time. Taking the codes of a pack apart for each tile would
   cost 5 operations for 8 SMMLA; so the packs of a stretch become bytes first, 8.5 KB, for up to 64
   columns. 16 weights of 16 rows are 16 vectors:

       vector 8 half + pair    bytes    0 .. 7                       8 .. 15
                               row      2 pair                       2 pair + 1
                               weights  8 half .. 8 half + 7         the same

   Words of a register v of a pack and of v >> 2, in turn, are

       register    word 0         1                2             3
       z[0]        v of row 4j    v >> 2 of 4j     v of 4j + 1   v >> 2 of 4j + 1
       z[1]        4j + 2         4j + 2           4j + 3        4j + 3

   Bits 1-0 of that are weights 0 .. 7 of two rows, and bits 5-4 weights 8 .. 15. */
BITNET__APART BITNET__TARGET_i8mm void bitnet__widen_groups_i8mm(const uint8_t *pack, int count,
                                                                  int group, uint8_t *to) {
    const uint8x16_t mask = vdupq_n_u8(3);
    uint8x16_t v, fields;
    uint32x4_t word, next;
    int g, j, k, h;
    for (g = 0; g < count; g++) {
        memcpy(to, pack, BITNET__PACK_SCALES);
        pack += BITNET__PACK_SCALES;
        to += BITNET__PACK_SCALES;
        for (k = 0; k < group; k += 16, pack += 64, to += 256) {
            BITNET__UNROLL for (j = 0; j < 4; j++) {
                v = vld1q_u8(pack + 16 * j);
                word = vreinterpretq_u32_u8(v);
                next = vreinterpretq_u32_u8(vshrq_n_u8(v, 2));
                BITNET__UNROLL for (h = 0; h < 2; h++) {
                    fields = vreinterpretq_u8_u32(h ? vzip2q_u32(word, next)
                                                    : vzip1q_u32(word, next));
                    vst1q_u8(to + 16 * (2 * j + h), vandq_u8(fields, mask));
                    vst1q_u8(to + 16 * (8 + 2 * j + h), vandq_u8(vshrq_n_u8(fields, 4), mask));
                }
            }
        }
    }
}

/* Adds `count` scale groups, from group g on, of 16 rows to the sums of 4 columns: 16 sums, 4
   vectors of activations, 1 of weights, as in panels of I2_S. A vector of sums, and of totals:
   two rows with the first of two columns, then with the second. Sums begin with what is taken off
   them, minus the sum of the column's activations: at most 256 * 128, and products add 3 times that
   at most. */
BITNET__INLINE BITNET__TARGET_i8mm void bitnet__add_bytes_i8mm(const bitnet__grouped *p,
                                                               const uint8_t *pack, int g,
                                                               int count, float *total) {
    const int group = p->blocks->group;
    const size_t groups = (size_t)(p->n / group);
    const int32_t *sums = p->sums + g;
    const float *scales = p->scales + g;
    int32x4_t sum[2][8], less;
    int8x16_t a[2][2], w;
    float32x4_t d[8], scale, v;
    int c, i, j, h, k;
    for (i = 0; i < count; i++, sums++, scales++) {
        const uint8_t *row_scales = pack;
        BITNET__UNROLL for (c = 0; c < 2; c++) {
            less = vcombine_s32(vdup_n_s32(-sums[(size_t)(2 * c) * groups]),
                                vdup_n_s32(-sums[(size_t)(2 * c + 1) * groups]));
            BITNET__UNROLL for (j = 0; j < 8; j++) sum[c][j] = less;
        }
        pack += BITNET__PACK_SCALES;
        for (k = i * group; k < (i + 1) * group; k += 16, pack += 256) {
            BITNET__UNROLL for (c = 0; c < 2; c++) {
                const int8_t *col = p->q + g * group + (size_t)(2 * c) * (size_t)p->n + k;
                const int64x2_t a0 = vreinterpretq_s64_s8(vld1q_s8(col));
                const int64x2_t a1 = vreinterpretq_s64_s8(vld1q_s8(col + p->n));
                a[0][c] = vreinterpretq_s8_s64(vtrn1q_s64(a0, a1));
                a[1][c] = vreinterpretq_s8_s64(vtrn2q_s64(a0, a1));
            }
            BITNET__UNROLL for (h = 0; h < 2; h++) {
                BITNET__UNROLL for (j = 0; j < 8; j++) {
                    w = vreinterpretq_s8_u8(vld1q_u8(pack + 128 * h + 16 * j));
                    BITNET__UNROLL for (c = 0; c < 2; c++) BITNET__SMMLA(sum[c][j], a[h][c], w);
                }
            }
        }
        BITNET__NO_AHEAD();
        BITNET__UNROLL for (j = 0; j < 8; j += 2) {
            const float64x2_t rows = vreinterpretq_f64_f32(
                vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(row_scales + 4 * j))));
            d[j] = vreinterpretq_f32_f64(vdupq_laneq_f64(rows, 0));
            d[j + 1] = vreinterpretq_f32_f64(vdupq_laneq_f64(rows, 1));
        }
        BITNET__UNROLL for (c = 0; c < 2; c++) {
            scale = vcombine_f32(vdup_n_f32(scales[(size_t)(2 * c) * groups]),
                                 vdup_n_f32(scales[(size_t)(2 * c + 1) * groups]));
            BITNET__UNROLL for (j = 0; j < 8; j++) {
                float *to = total + 32 * c + 4 * j;
                v = vmulq_f32(vcvtq_f32_s32(sum[c][j]), vmulq_f32(d[j], scale));
                vst1q_f32(to, vaddq_f32(vld1q_f32(to), v));
            }
        }
    }
}
#endif

/* Calls `dot`, a constant, inline; see bitnet__dot. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__group(
    bitnet__group_fn *dot, const uint8_t *const *row, size_t at, const int8_t *q, int n, int group,
    int32x4_t (*dots)[4], const int regs, const int cols, const int bits) {
#if defined(_MSC_VER) && !defined(__clang__)
    if (dot == bitnet__group_neon) {
        bitnet__group_neon(row, at, q, n, group, dots, regs, cols, bits);
        return;
    }
    if (dot == bitnet__digits_neon) {
        bitnet__digits_neon(row, at, q, n, group, dots, regs, cols, bits);
        return;
    }
  #if BITNET__DOTPROD
    if (dot == bitnet__group_dotprod) {
        bitnet__group_dotprod(row, at, q, n, group, dots, regs, cols, bits);
        return;
    }
    if (dot == bitnet__digits_dotprod) {
        bitnet__digits_dotprod(row, at, q, n, group, dots, regs, cols, bits);
        return;
    }
  #endif
#endif
    dot(row, at, q, n, group, dots, regs, cols, bits);
}

/* total[c] += (dots - sum) * (d * scale); the rows' d are at w, as F16. On AArch32 floats are
   scalar; see INSTRUCTIONS. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__add_group(
    float (*total)[BITNET__PACK_ROWS], int32x4_t (*dots)[4], const uint8_t *w,
    const int32_t *sums, const float *scales, size_t groups, int first, const int regs,
    const int cols) {
    int c, j;
#ifdef __arm__
    float d[BITNET__PACK_ROWS];
    int32_t four[4];
    int r;
    for (r = 0; r < 4 * regs; r++) d[r] = bitnet__load_f16(w + 2 * (first + r));
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++) {
            vst1q_s32(four, dots[c][j]);
            for (r = 0; r < 4; r++)
                total[c][first + 4 * j + r] += (float)(four[r] - sums[(size_t)c * groups]) *
                                               (d[4 * j + r] * scales[(size_t)c * groups]);
        }
    }
#else
    float32x4_t d[4], v;
    BITNET__UNROLL for (j = 0; j < regs; j++)
        d[j] = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(w + 2 * first + 8 * j)));
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        const int32x4_t sum = vdupq_n_s32(sums[(size_t)c * groups]);
        const float32x4_t scale = vdupq_n_f32(scales[(size_t)c * groups]);
        BITNET__UNROLL for (j = 0; j < regs; j++) {
            float *to = total[c] + first + 4 * j;
            v = vmulq_f32(vcvtq_f32_s32(vsubq_s32(dots[c][j], sum)), vmulq_f32(d[j], scale));
            vst1q_f32(to, vaddq_f32(vld1q_f32(to), v));
        }
    }
#endif
}

/* Adds `count` scale groups, from group g on, to the sums of `cols` columns. Weights are in packs
   at `pack`, or if bits is not 0 in the rows of the file. */
BITNET__INLINE BITNET__TARGET_neon int bitnet__add_groups(
    const bitnet__grouped *p, const uint8_t *pack, int g, int count,
    float (*total)[BITNET__PACK_ROWS], const int regs, const int cols, const int bits,
    bitnet__group_fn *dot) {
    const bitnet__blocks b = *p->blocks;
    const size_t groups = (size_t)(p->n / b.group), row_bytes = groups * (size_t)b.bytes;
    const size_t bytes = bits ? (size_t)b.bytes : BITNET__PACK_SCALES + 4 * (size_t)b.group;
    const size_t scale = (size_t)(b.scale_at - b.codes_at);
    const int rows = bits ? 4 * regs : 0;
    const int32_t no_sum = 0;
    int32x4_t dots[BITNET__GROUP_COLS][4];
    uint8_t scales[BITNET__PACK_SCALES];
    const uint8_t *row[8];
    int first, r;
    size_t i, at;
    for (first = 0; first < BITNET__PACK_ROWS && first < p->rows; first += 4 * regs) {
        if (!bits) row[0] = pack + BITNET__PACK_SCALES + 4 * first;
        BITNET__UNROLL for (r = 0; r < rows; r++)
            row[r] = p->w + bitnet__clamp(first + r, p->rows) * row_bytes;
        at = bits ? (size_t)(g * b.bytes + b.codes_at) : 0;
        for (i = (size_t)g; i < (size_t)(g + count); i++, at += bytes) {
            BITNET__UNROLL for (r = 0; r < rows; r++) {
                BITNET__PREFETCH(row[r], at + 4 * (size_t)regs * row_bytes);
                memcpy(scales + 2 * (first + r), row[r] + (at + scale), 2);
            }
            bitnet__group(dot, row, at, p->q + i * (size_t)b.group, p->n, b.group, dots, regs, cols,
                          bits);
            bitnet__add_group(total, dots, bits ? scales : pack + at,
                              bits == BITNET__DIGITS ? &no_sum : p->sums + i, p->scales + i, groups,
                              first, regs, cols);
        }
    }
    return cols;
}

#undef BITNET__ALL_DIGITS

/* All groups of the first 16 rows and a column alone, which needs no packs. */
typedef void bitnet__column_fn(const bitnet__grouped *x, float (*total)[BITNET__PACK_ROWS]);
#define BITNET__DEFINE_COLUMN(isa) \
    BITNET__APART BITNET__TARGET_##isa void bitnet__column_##isa( \
        const bitnet__grouped *x, float (*total)[BITNET__PACK_ROWS]) { \
        const int n = x->n / x->blocks->group; \
        if (x->blocks->bits == 2) \
            bitnet__add_groups(x, 0, 0, n, total, BITNET__REGS, 1, 2, bitnet__group_##isa); \
        else if (x->blocks->bits == 1) \
            bitnet__add_groups(x, 0, 0, n, total, BITNET__REGS, 1, 1, bitnet__group_##isa); \
        else bitnet__add_groups(x, 0, 0, n, total, BITNET__REGS, 1, BITNET__DIGITS, \
                                bitnet__digits_##isa); \
    }

/* The first 16 rows and 64 columns, or as many as there are: 8, 4, 2 or 1 columns at a time, at
   most `most`. widen: 0, or makes packs of bytes, for 4 columns at a time. */
typedef void bitnet__widen_fn(const uint8_t *pack, int count, int group, uint8_t *to);
typedef void bitnet__wide_fn(const bitnet__grouped *p, const uint8_t *pack, int g, int count,
                              float *total);
BITNET__INLINE BITNET__TARGET_neon void bitnet__tile_groups(const bitnet__grouped *x,
                                                            const int most,
                                                            bitnet__column_fn *column,
                                                            bitnet__group_fn *dot,
                                                            bitnet__widen_fn *widen,
                                                            bitnet__wide_fn *add_bytes) {
    const int group = x->blocks->group, groups = x->n / group;
    const int cols = x->cols < BITNET__PASS_COLS ? x->cols : BITNET__PASS_COLS;
    const int wide = widen ? cols / 4 * 4 : 0;         /* columns by packs of bytes */
    uint8x16_t packs[BITNET__STRETCH_BYTES / 16], panel[BITNET__PANEL_BYTES / 16];
    uint8_t *w = (uint8_t *)packs, *bytes = (uint8_t *)panel;
    float total[BITNET__PASS_COLS][BITNET__PACK_ROWS], *y, *from;
    int r, c, g, n;
    memset(total, 0, (size_t)cols * sizeof total[0]);
    if (cols == 1) column(x, total);
    for (g = 0; g < groups && cols > 1; g += n) {
        n = groups - g < BITNET__STRETCH / group ? groups - g : BITNET__STRETCH / group;
        bitnet__pack_groups_neon(x, (size_t)(g * x->blocks->bytes), n, w);
        if (wide) widen(w, n, group, bytes);
        for (c = 0; c < cols;) {
            const bitnet__grouped p = bitnet__grouped_from(x, 0, c);
            float (*to)[BITNET__PACK_ROWS] = total + c;
            const int left = cols - c;
            if (c < wide) add_bytes(&p, bytes, g, n, total[c]), c += 4;
            else if (most >= 8 && left >= 8) c += bitnet__add_groups(&p, w, g, n, to, 2, 8, 0, dot);
            else if (most >= 4 && left >= 4) c += bitnet__add_groups(&p, w, g, n, to, 2, 4, 0, dot);
            else if (left >= 2) c += bitnet__add_groups(&p, w, g, n, to, 2, 2, 0, dot);
            else c += bitnet__add_groups(&p, w, g, n, to, 4, 1, 0, dot);
        }
    }
    for (c = 0; c < cols; c++) {
        y = x->out + (size_t)c * x->stride;
        for (r = 0; r < BITNET__PACK_ROWS && r < x->rows; r++) {
            from = c < wide ? total[c / 2 * 2] + r / 2 * 4 + c % 2 * 2 + r % 2 : total[c] + r;
            y[r] = x->add ? y[r] + *from : *from;
        }
    }
}

/* All columns before the next 16 rows: weights are the longer array. */
#define BITNET__DEFINE_GROUPS(isa, most, column, dot, widen, add_bytes) \
    static BITNET__TARGET_##isa void bitnet__dotrows_groups_##isa(const bitnet__grouped *x) { \
        int r, c; \
        for (r = 0; r < x->rows; r += BITNET__PACK_ROWS) { \
            for (c = 0; c < x->cols; c += BITNET__PASS_COLS) { \
                const bitnet__grouped p = bitnet__grouped_from(x, r, c); \
                bitnet__tile_groups(&p, most, column, dot, widen, add_bytes); \
            } \
        } \
    }
#if BITNET__NEON
BITNET__DEFINE_COLUMN(neon)
BITNET__DEFINE_GROUPS(neon, BITNET__MOST, bitnet__column_neon, bitnet__group_neon, 0, 0)
#endif
#if BITNET__DOTPROD
BITNET__DEFINE_COLUMN(dotprod)
BITNET__DEFINE_GROUPS(dotprod, 8, bitnet__column_dotprod, bitnet__group_dotprod, 0, 0)
#endif
#if BITNET__I8MM
BITNET__DEFINE_GROUPS(i8mm, 2, bitnet__column_dotprod, bitnet__group_dotprod,
                      bitnet__widen_groups_i8mm, bitnet__add_bytes_i8mm)
#endif
#endif

#ifndef BITNET_NO_KV_I8
/* ---- an int8 cache ----
   bitnet.h has the layout: rows of words of 4 bytes, of 64 positions (keys) or of n elements
   (values). A register has 4 words, and each word meets the same 4 bytes of a column, which is a
   query or the weights of 64 positions:

       word            0                1                2                3
       keys            position 4j      4j + 1           4j + 2           4j + 3
       values          element 4j       4j + 1           4j + 2           4j + 3
       column          4 bytes          the same         the same         the same

   A tile is 2 or 4 such registers and 1, 2, 4 or 8 columns, exactly as many as there are. Its sums
   stay in registers for the whole length. Keys are bytes minus 128, which is the byte with its sign
   bit flipped. Or they are used as they are, and 128 times the sum of the query is subtracted at
   the end. The scalar functions take heads, and stretches of heads, whose sizes are not multiples
   of 16. */
typedef struct bitnet__words {
    const uint8_t *w;                  /* the first row of words */
    size_t w_stride;                   /* bytes from a row to the next */
    const int8_t *q;                   /* columns of n bytes */
    size_t q_stride;
    const int32_t *sums;               /* of each column; with values 0 */
    int n;                             /* a multiple of 16 */
    const uint8_t *scales;             /* floats: of each position (keys) or column (values) */
    size_t scale_stride;               /* bytes from a column's to the next one's; with keys 0 */
    float *out;
    size_t out_stride;
} bitnet__words;

/* dots[c][j]: the words of register j of all n / 4 rows with column c. */
typedef void bitnet__words_fn(const bitnet__words *p, int32x4_t (*dots)[4], const int regs,
                              const int cols, const int keys);

BITNET__INLINE BITNET__TARGET_neon int8x16_t bitnet__load_words(const uint8_t *w, const int keys) {
    const uint8x16_t v = vld1q_u8(w);
    return vreinterpretq_s8_u8(keys ? veorq_u8(v, vdupq_n_u8(128)) : v);
}

/* v[j]: register j of two rows; a: 4 bytes of a column for each. Two products fit int16. SADALP
   adds the pairs of a word to two lanes of int32. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__add_words_neon(int32x4_t (*sum)[2],
                                                               int8x16_t (*v)[2],
                                                               const int8x16_t *a) {
    int16x8_t low[2], high[2];
    int j;
    BITNET__UNROLL for (j = 0; j < 2; j++) {
        low[j] = vmull_s8(vget_low_s8(v[j][0]), vget_low_s8(a[0]));
#ifdef __arm__
        high[j] = vmull_s8(vget_high_s8(v[j][0]), vget_low_s8(a[0]));
#else
        high[j] = vmull_high_s8(v[j][0], a[0]);
#endif
    }
    BITNET__UNROLL for (j = 0; j < 2; j++) {
        low[j] = vmlal_s8(low[j], vget_low_s8(v[j][1]), vget_low_s8(a[1]));
#ifdef __arm__
        high[j] = vmlal_s8(high[j], vget_high_s8(v[j][1]), vget_low_s8(a[1]));
#else
        high[j] = vmlal_high_s8(high[j], v[j][1], a[1]);
#endif
    }
    BITNET__UNROLL for (j = 0; j < 2; j++) {
        sum[j][0] = vpadalq_s16(sum[j][0], low[j]);
        sum[j][1] = vpadalq_s16(sum[j][1], high[j]);
        BITNET__IN_PLACE(sum[j][0]);
        BITNET__IN_PLACE(sum[j][1]);
    }
    BITNET__UNROLL for (j = 0; j < 2; j++) {
        BITNET__DONE(sum[j][0]);
        BITNET__DONE(sum[j][1]);
    }
}

BITNET__INLINE BITNET__TARGET_neon void bitnet__words_neon(const bitnet__words *p,
                                                           int32x4_t (*dots)[4], const int regs,
                                                           const int cols, const int keys) {
    const uint8_t *w = p->w;
    int32x4_t sum[4][4][2];
    int8x16_t v[4][2], a[2];
    int c, j, h, k;
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++) sum[c][j][0] = sum[c][j][1] = vdupq_n_s32(0);
    }
    for (k = 0; k < p->n; k += 8) {
        BITNET__UNROLL for (h = 0; h < 2; h++, w += p->w_stride) {
            BITNET__UNROLL for (j = 0; j < regs; j++)
                v[j][h] = bitnet__load_words(w + 16 * j, keys);
        }
        BITNET__UNROLL for (c = 0; c < cols; c++) {
            BITNET__UNROLL for (h = 0; h < 2; h++)
                a[h] = bitnet__repeat_neon(p->q + (size_t)c * p->q_stride + k + 4 * h);
            BITNET__UNROLL for (j = 0; j < regs; j += 2)
                bitnet__add_words_neon(sum[c] + j, v + j, a);
        }
    }
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++) dots[c][j] = bitnet__add_pairs(sum[c][j]);
    }
}

#if BITNET__DOTPROD
/* A lane of a column's 16 bytes for each of 4 rows. It must be a literal, hence the macro. */
#define BITNET__K_STEP(s) \
    BITNET__UNROLL for (j = 0; j < regs; j++) v[j] = bitnet__load_words(w + 16 * j, keys); \
    BITNET__UNROLL for (c = 0; c < cols; c++) { \
        BITNET__UNROLL for (j = 0; j < regs; j++) BITNET__SDOT_LANE(dots[c][j], v[j], a[c], s); \
    } \
    w += p->w_stride; \
    BITNET__NO_AHEAD();
BITNET__INLINE BITNET__TARGET_dotprod void bitnet__words_dotprod(const bitnet__words *p,
                                                                 int32x4_t (*dots)[4],
                                                                 const int regs, const int cols,
                                                                 const int keys) {
    const uint8_t *w = p->w;
    int8x16_t v[4], a[8];
    int c, j, k;
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++) dots[c][j] = vdupq_n_s32(0);
    }
    for (k = 0; k < p->n; k += 16) {
        BITNET__UNROLL for (c = 0; c < cols; c++)
            a[c] = vld1q_s8(p->q + (size_t)c * p->q_stride + k);
        BITNET__K_STEP(0)
        BITNET__K_STEP(1)
        BITNET__K_STEP(2)
        BITNET__K_STEP(3)
    }
}
#undef BITNET__K_STEP
#endif

#if BITNET__I8MM
/* Words of two rows in turn are 8 bytes of a position, or element. SMMLA and, for keys as they
   are, USMMLA multiply two of these by 8 bytes of two columns. A sum's lanes: the first position
   with the first column and with the second, then the next position. */
BITNET__INLINE BITNET__TARGET_i8mm void bitnet__words_i8mm(const bitnet__words *p,
                                                           int32x4_t (*dots)[4], const int regs,
                                                           const int cols, const int keys) {
    const uint8_t *w = p->w;
    int32x4_t sum[4][4][2], less;
    int8x16_t a[4][2];
    uint8x16_t two[2];
    int c, j, h, i, k;
    BITNET__UNROLL for (c = 0; c < cols / 2; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++) sum[c][j][0] = sum[c][j][1] = vdupq_n_s32(0);
    }
    for (k = 0; k < p->n; k += 16) {
        BITNET__UNROLL for (c = 0; c < cols / 2; c++) {
            const int8_t *from = p->q + (size_t)(2 * c) * p->q_stride + k;
            const int64x2_t a0 = vreinterpretq_s64_s8(vld1q_s8(from));
            const int64x2_t a1 = vreinterpretq_s64_s8(vld1q_s8(from + p->q_stride));
            a[c][0] = vreinterpretq_s8_s64(vtrn1q_s64(a0, a1));
            a[c][1] = vreinterpretq_s8_s64(vtrn2q_s64(a0, a1));
            BITNET__IN_PLACE(a[c][1]);
        }
        BITNET__UNROLL for (h = 0; h < 2; h++, w += 2 * p->w_stride) {
            BITNET__UNROLL for (j = 0; j < regs; j++) {
                const uint32x4_t w0 = vreinterpretq_u32_u8(vld1q_u8(w + 16 * j));
                const uint32x4_t w1 = vreinterpretq_u32_u8(vld1q_u8(w + p->w_stride + 16 * j));
                two[0] = vreinterpretq_u8_u32(vzip1q_u32(w0, w1));
                two[1] = vreinterpretq_u8_u32(vzip2q_u32(w0, w1));
                BITNET__UNROLL for (c = 0; c < cols / 2; c++) {
                    BITNET__UNROLL for (i = 0; i < 2; i++) {
                        if (keys) BITNET__USMMLA(sum[c][j][i], two[i], a[c][h]);
                        else BITNET__SMMLA(sum[c][j][i], vreinterpretq_s8_u8(two[i]), a[c][h]);
                    }
                }
                BITNET__NO_AHEAD();
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < cols; c++) {
        less = vdupq_n_s32(keys ? 128 * p->sums[c] : 0);
        BITNET__UNROLL for (j = 0; j < regs; j++) {
            const int32x4_t *s = sum[c / 2][j];
            dots[c][j] = vsubq_s32(c % 2 ? vuzp2q_s32(s[0], s[1]) : vuzp1q_s32(s[0], s[1]), less);
        }
    }
}
#endif

/* Calls `dot`, a constant, inline; see bitnet__dot. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__dot_words(bitnet__words_fn *dot,
                                                          const bitnet__words *p,
                                                          int32x4_t (*dots)[4], const int regs,
                                                          const int cols, const int keys) {
#if defined(_MSC_VER) && !defined(__clang__)
    if (dot == bitnet__words_neon) {
        bitnet__words_neon(p, dots, regs, cols, keys);
        return;
    }
  #if BITNET__DOTPROD
    if (dot == bitnet__words_dotprod) {
        bitnet__words_dotprod(p, dots, regs, cols, keys);
        return;
    }
  #endif
#endif
    dot(p, dots, regs, cols, keys);
}

/* Keys: to = dots * (the scale of each). Values: to += dots * *scale. On AArch32 floats are scalar;
   see INSTRUCTIONS. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__put_words(float *to, int32x4_t dots,
                                                          const uint8_t *scales, const int keys) {
#ifdef __arm__
    int32_t four[4];
    int r;
    vst1q_s32(four, dots);
    for (r = 0; r < 4; r++) {
        const float x = (float)four[r] * bitnet__load_f32(scales + (keys ? 4 * r : 0));
        to[r] = keys ? x : to[r] + x;
    }
#else
    const float32x4_t v = vcvtq_f32_s32(dots);
    if (keys) vst1q_f32(to, vmulq_f32(v, vreinterpretq_f32_u8(vld1q_u8(scales))));
    else {
        const float32x4_t scale = vdupq_n_f32(bitnet__load_f32(scales));
        vst1q_f32(to, vaddq_f32(vld1q_f32(to), vmulq_f32(v, scale)));
    }
#endif
}

/* `count` words of a row, a multiple of 16, with the first `cols` columns. */
BITNET__INLINE BITNET__TARGET_neon int bitnet__tile_words(bitnet__words p, int count,
                                                          const int regs, const int cols,
                                                          const int keys, bitnet__words_fn *dot) {
    int32x4_t dots[8][4];
    int i, c, j;
    for (i = 0; i < count; i += 4 * regs) {
        bitnet__dot_words(dot, &p, dots, regs, cols, keys);
        BITNET__UNROLL for (c = 0; c < cols; c++) {
            BITNET__UNROLL for (j = 0; j < regs; j++)
                bitnet__put_words(p.out + (size_t)c * p.out_stride + 4 * j, dots[c][j],
                                  p.scales + (keys ? (size_t)(16 * j) : (size_t)c * p.scale_stride),
                                  keys);
        }
        p.w += 16 * regs;
        p.scales += keys ? 16 * regs : 0;
        p.out += 4 * regs;
    }
    return cols;
}

/* All columns, 8, 4, 2 or 1 at a time, at most `most`. one: for 1 column. */
BITNET__INLINE BITNET__TARGET_neon void bitnet__all_words(bitnet__words p, int count, int cols,
                                                          const int keys, const int most,
                                                          bitnet__words_fn *one,
                                                          bitnet__words_fn *many) {
    const int regs = most < 8 ? 2 : 4;
    int c, taken;
    for (c = 0; c < cols; c += taken) {
        if (most >= 8 && cols - c >= 8) taken = bitnet__tile_words(p, count, 2, 8, keys, many);
        else if (most >= 4 && cols - c >= 4)
            taken = bitnet__tile_words(p, count, regs, 4, keys, many);
        else if (cols - c >= 2) taken = bitnet__tile_words(p, count, regs, 2, keys, many);
        else taken = bitnet__tile_words(p, count, most < 4 ? 2 : 4, 1, keys, one);
        p.q += (size_t)taken * p.q_stride;
        if (keys) p.sums += taken;
        p.scales += (size_t)taken * p.scale_stride;
        p.out += (size_t)taken * p.out_stride;
    }
}

/* KV blocks. */
#define BITNET__DEFINE_I8(isa, most, one, many) \
    static BITNET__TARGET_##isa void bitnet__scores_i8_##isa( \
        const uint8_t *w, const int8_t *q, const int32_t *sums, int n, int rows, int cols, \
        float *out, size_t out_stride) { \
        const size_t bytes = bitnet__kv_block_bytes(n), at = BITNET__KV_SCALES; \
        bitnet__words p = {w + at, at, q, (size_t)n, sums, n, w, 0, out, out_stride}; \
        int r; \
        if (n % 16) bitnet__scores_i8_scalar(w, q, sums, n, rows, cols, out, out_stride); \
        else for (r = 0; r < rows; r += 64, p.w += bytes, p.scales += bytes, p.out += 64) \
            bitnet__all_words(p, 64, cols, 1, most, one, many); \
    } \
    static BITNET__TARGET_##isa void bitnet__sumrows_i8_##isa( \
        const uint8_t *w, const uint8_t *p, const float *scales, size_t p_stride, int n, \
        int first, int count, int rows, int cols, float *out) { \
        bitnet__words v = {w + BITNET__KV_SCALES + 4 * (size_t)first, 4 * (size_t)n, \
                           (const int8_t *)p, p_stride, 0, 64, (const uint8_t *)scales, \
                           p_stride / 16, out, (size_t)count}; \
        int r; \
        if (count % 16) \
            bitnet__sumrows_i8_scalar(w, p, scales, p_stride, n, first, count, rows, cols, out); \
        else for (r = 0; r < rows; r += 64, v.w += bitnet__kv_block_bytes(n), v.q += 64, \
                                   v.scales += 4) \
            bitnet__all_words(v, count, cols, 0, most, one, many); \
    }
#if BITNET__NEON
BITNET__DEFINE_I8(neon, BITNET__MOST, bitnet__words_neon, bitnet__words_neon)
#endif
#if BITNET__DOTPROD
BITNET__DEFINE_I8(dotprod, 8, bitnet__words_dotprod, bitnet__words_dotprod)
#endif
#if BITNET__I8MM
BITNET__DEFINE_I8(i8mm, 8, bitnet__words_dotprod, bitnet__words_i8mm)
#endif
#endif
#undef BITNET__MOST

#ifndef __arm__

/* ---- floats ----
   Four registers hold 16 floats, so that element i of a sum stays in lane i % 16 by itself: lane
   4 j + l is lane l of register j. The scalar twin takes lengths that are not a multiple of 16,
   which models avoid. Where a product must be rounded, vmulq and then vaddq compute it; bitnet.h
   keeps compilers from contracting them. vfmaq is used only where the product is exact. */

#define BITNET__V(x) bitnet__##x##_neon
#define BITNET__TARGET
#define BITNET__HOT static

/* Eight elements. */
BITNET__INLINE void bitnet__load8_neon(float32x4_t *v, const uint8_t *p, const int kind) {
    if (BITNET__ROW_BYTES(kind) == 4) {
        v[0] = vreinterpretq_f32_u8(vld1q_u8(p));
        v[1] = vreinterpretq_f32_u8(vld1q_u8(p + 16));
    } else if (kind == BITNET__ROWS_BF16) {
        const uint16x8_t bits = vreinterpretq_u16_u8(vld1q_u8(p));
        v[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16));
        v[1] = vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16));
    } else {
        const float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(p));
        v[0] = vcvt_f32_f16(vget_low_f16(halves));
        v[1] = vcvt_high_f32_f16(halves);
    }
}

BITNET__INLINE float32x4_t bitnet__mul_add_neon(float32x4_t a, float32x4_t b, float32x4_t sum,
                                                const int kind) {
    return kind >= BITNET__ROWS_CACHE ? vfmaq_f32(sum, a, b) : vaddq_f32(sum, vmulq_f32(a, b));
}

/* Adds the 16 partial sums in the order of bitnet__sum_lanes. */
BITNET__INLINE float bitnet__fold_neon(const float32x4_t *sum) {
    float32x4_t s = vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3]));
    s = vaddq_f32(s, vextq_f32(s, s, 2));
    return vgetq_lane_f32(vpaddq_f32(s, s), 0);
}

/* A tile is 4 dot products, whose sums take 16 registers: 4 rows and 1 column, or 2 and 2. Past the
   last row it repeats that row and drops the result. */
BITNET__INLINE void bitnet__tile_dots_neon(const uint8_t *w, const float *x, int n, int rows,
                                           float *out, size_t out_stride, const int tile_cols,
                                           const int kind) {
    const size_t bytes = BITNET__ROW_BYTES(kind);
    const int tile_rows = 4 / tile_cols;
    float32x4_t sum[4][2][4], v[4][2], a;
    const uint8_t *row[4];
    const float *col[2];
    int r, c, i, j, k;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) col[c] = x + (size_t)c * (size_t)n;
    BITNET__UNROLL for (r = 0; r < tile_rows; r++) {
        row[r] = w + bitnet__clamp(r, rows) * (size_t)n * bytes;
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            BITNET__UNROLL for (j = 0; j < 4; j++) sum[r][c][j] = vdupq_n_f32(0.0f);
        }
    }
    for (i = 0; i < n; i += BITNET__LANES) {
        BITNET__UNROLL for (r = 0; r < tile_rows; r++)
            if ((size_t)i * bytes % 64 == 0) BITNET__PREFETCH(row[r], 4096);
        BITNET__UNROLL for (j = 0; j < 4; j += 2) {
            BITNET__NO_AHEAD();
            BITNET__UNROLL for (r = 0; r < tile_rows; r++, row[r - 1] += 8 * bytes)
                bitnet__load8_neon(v[r], row[r], kind);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++, col[c - 1] += 8) {
                BITNET__UNROLL for (k = 0; k < 2; k++) {
                    a = vld1q_f32(col[c] + 4 * k);
                    BITNET__UNROLL for (r = 0; r < tile_rows; r++)
                        sum[r][c][j + k] = bitnet__mul_add_neon(v[r][k], a, sum[r][c][j + k], kind);
                }
            }
        }
    }
    BITNET__UNROLL for (r = 0; r < tile_rows; r++) {
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            if (r < rows) out[(size_t)c * out_stride + (size_t)r] = bitnet__fold_neon(sum[r][c]);
    }
}

/* Rows are in the outer loop because they are the longer array. */
BITNET__INLINE void bitnet__dots_neon(const uint8_t *w, const float *x, int n, int rows, int cols,
                                      float *out, size_t out_stride, const int kind) {
    const size_t row_bytes = (size_t)n * BITNET__ROW_BYTES(kind);
    int r, c;
    for (; rows > 0; rows -= 4, w += 4 * row_bytes, out += 4) {
        const float *col = x;
        float *to = out;
        for (c = cols; c >= 2; c -= 2, col += 2 * (size_t)n, to += 2 * out_stride)
            for (r = 0; r < 4 && r < rows; r += 2)
                bitnet__tile_dots_neon(w + (size_t)r * row_bytes, col, n, rows - r, to + r,
                                       out_stride, 2, kind);
        if (c) bitnet__tile_dots_neon(w, col, n, rows, to, out_stride, 1, kind);
    }
}

BITNET__ROW_DOTS(dotrows_f32, f32, BITNET__ROWS_F32)
BITNET__ROW_DOTS(dotrows_f16, f16, BITNET__ROWS_F16)
BITNET__ROW_DOTS(dotrows_bf16, bf16, BITNET__ROWS_BF16)

/* Attention converts the F16 rows of the cache to floats in runs of up to 16 KB, which then stay
   in the L1 cache for all columns. For up to BITNET__FEW columns that does not pay, and they read
   F16. */
enum { BITNET__WIDE = 4096, BITNET__FEW = 6 };

static void bitnet__widen_neon(const uint8_t *w, size_t w_stride, int n, int rows, float *wide) {
    float32x4_t v[2];
    int r, i;
    for (r = 0; r < rows; r++, w += w_stride * 2) {
        for (i = 0; i < n; i += 8, wide += 8) {
            bitnet__load8_neon(v, w + 2 * (size_t)i, BITNET__ROWS_CACHE);
            vst1q_f32(wide, v[0]);
            vst1q_f32(wide + 4, v[1]);
        }
    }
}

/* Four columns of x, element by element: to[i] has element i of each. If there are fewer, the last
   one is repeated. */
BITNET__INLINE void bitnet__turn_neon(const float *x, size_t stride, int n, int cols,
                                      float (*to)[4]) {
    const float *col[4];
    float32x4x4_t v;
    int c, i;
    BITNET__UNROLL for (c = 0; c < 4; c++) col[c] = x + bitnet__clamp(c, cols) * stride;
    for (i = 0; i + 4 <= n; i += 4) {
        BITNET__UNROLL for (c = 0; c < 4; c++) v.val[c] = vld1q_f32(col[c] + i);
        vst4q_f32(to[i], v);
    }
    for (; i < n; i++) {
        BITNET__UNROLL for (c = 0; c < 4; c++) to[i][c] = col[c][i];
    }
}

/* sum[l] += v[l * step] * lane l of a. */
BITNET__INLINE void bitnet__add_by_lane_neon(float32x4_t *sum, const float32x4_t *v, int step,
                                             float32x4_t a, const int kind) {
    if (kind >= BITNET__ROWS_CACHE) {
        BITNET__FMLA_LANE(sum[0], v[0], a, 0);
        BITNET__FMLA_LANE(sum[1], v[step], a, 1);
        BITNET__FMLA_LANE(sum[2], v[2 * step], a, 2);
        BITNET__FMLA_LANE(sum[3], v[3 * step], a, 3);
    } else {
        sum[0] = vaddq_f32(sum[0], vmulq_laneq_f32(v[0], a, 0));
        sum[1] = vaddq_f32(sum[1], vmulq_laneq_f32(v[step], a, 1));
        sum[2] = vaddq_f32(sum[2], vmulq_laneq_f32(v[2 * step], a, 2));
        sum[3] = vaddq_f32(sum[3], vmulq_laneq_f32(v[3 * step], a, 3));
    }
}

/* ---- scores of many columns ----
   A tile is 4 keys by 4 columns. The columns are turned first, so that a vector has an element of
   each, and lane l of 4 elements of a key multiplies the vector of the element 4 j + l. Then sum[l]
   is lane 4 j + l of the 16 whose tree is the dot product, for 4 columns at once: the tree needs
   additions alone, and 16 products load 8 vectors. TURNED: elements of 4 columns that are turned at
   a time, for all keys; 64 columns of heads of 128. */
enum { BITNET__TURNED = 2048 };

BITNET__INLINE void bitnet__tile_scores_neon(const float *wide, const float (*x)[4], int n,
                                             int rows, int cols, float *out, size_t out_stride) {
    float32x4_t sum[4][4], lane[4][4][4], q[4];
    float32x4x4_t dots;
    const float *key[4];
    float turned[4][4];
    int r, c, l, i, j;
    BITNET__UNROLL for (r = 0; r < 4; r++) key[r] = wide + bitnet__clamp(r, rows) * (size_t)n;
    for (j = 0; j < 4; j++) {
        BITNET__UNROLL for (r = 0; r < 4; r++) {
            BITNET__UNROLL for (l = 0; l < 4; l++) sum[r][l] = vdupq_n_f32(0.0f);
        }
        for (i = 4 * j; i < n; i += BITNET__LANES) {
            BITNET__UNROLL for (l = 0; l < 4; l++) q[l] = vld1q_f32(x[i + l]);
            BITNET__UNROLL for (r = 0; r < 4; r++)
                bitnet__add_by_lane_neon(sum[r], q, 1, vld1q_f32(key[r] + i), BITNET__ROWS_WIDE);
        }
        BITNET__UNROLL for (r = 0; r < 4; r++) {
            BITNET__UNROLL for (l = 0; l < 4; l++) lane[j][r][l] = sum[r][l];
        }
    }
    BITNET__UNROLL for (r = 0; r < 4; r++) {       /* in the order of bitnet__sum_lanes */
        BITNET__UNROLL for (l = 0; l < 4; l++)
            sum[r][l] = vaddq_f32(vaddq_f32(lane[0][r][l], lane[2][r][l]),
                                  vaddq_f32(lane[1][r][l], lane[3][r][l]));
        dots.val[r] = vaddq_f32(vaddq_f32(sum[r][0], sum[r][2]), vaddq_f32(sum[r][1], sum[r][3]));
    }
    vst4q_f32(turned[0], dots);
    for (c = 0; c < 4 && c < cols; c++, out += out_stride) {
        if (rows >= 4) vst1q_f32(out, vld1q_f32(turned[c]));
        else memcpy(out, turned[c], (size_t)rows * 4);
    }
}

BITNET__APART void bitnet__many_scores_neon(const uint8_t *w, const float *x, int n, int rows,
                                            int cols, float *out, size_t out_stride) {
    float wide[BITNET__WIDE], turned[BITNET__TURNED][4];
    int r, c, i, count;
    for (c = 0; c < cols; c += 4)
        bitnet__turn_neon(x + (size_t)c * (size_t)n, (size_t)n, n, cols - c, turned + c / 4 * n);
    for (r = 0; r < rows; r += count) {
        count = rows - r < BITNET__WIDE / n ? rows - r : BITNET__WIDE / n;
        bitnet__widen_neon(w + (size_t)r * (size_t)n * 2, (size_t)n, n, count, wide);
        for (c = 0; c < cols; c += 4) {            /* columns outside: they are the longer array */
            for (i = 0; i < count; i += 4)
                bitnet__tile_scores_neon(wide + i * n, (const float (*)[4])turned + c / 4 * n, n,
                                         count - i, cols - c,
                                         out + (size_t)c * out_stride + (size_t)(r + i),
                                         out_stride);
        }
    }
}

static void bitnet__scores_f16_neon(const uint8_t *w, const float *x, int n, int rows, int cols,
                                    float *out, size_t out_stride) {
    const int most = n > 0 ? BITNET__TURNED / n * 4 : 0;
    int c, count;
    if (n % BITNET__LANES) bitnet__dotrows_f16_scalar(w, x, n, rows, cols, out, out_stride);
    else if (cols <= BITNET__FEW || most == 0)
        bitnet__dots_neon(w, x, n, rows, cols, out, out_stride, BITNET__ROWS_CACHE);
    else for (c = 0; c < cols; c += count) {
        count = cols - c < most ? cols - c : most;
        bitnet__many_scores_neon(w, x + (size_t)c * (size_t)n, n, rows, count,
                                 out + (size_t)c * out_stride, out_stride);
    }
}

/* A tile of the weighted sums over all rows of a run: 1 or 2 columns of `regs` registers each. out
   carries the sums from one run to the next, so the order of additions stays the same. */
BITNET__INLINE void bitnet__tile_mix_neon(const uint8_t *w, size_t row_bytes, const float *p,
                                          size_t p_stride, int n, int rows, float *out,
                                          const int regs, const int tile_cols, const int kind) {
    const size_t bytes = BITNET__ROW_BYTES(kind);
    float32x4_t sum[2][16], v[2], a[2];
    int r, c, j, k;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j += 2)
            bitnet__load8_neon(sum[c] + j, (const uint8_t *)(out + (size_t)c * (size_t)n + 4 * j),
                               BITNET__ROWS_WIDE);
    }
    for (r = 0; r < rows; r++, w += row_bytes) {
        if (kind != BITNET__ROWS_WIDE) BITNET__PREFETCH(w, 4096);
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            a[c] = vdupq_n_f32(p[(size_t)c * p_stride + (size_t)r]);
        BITNET__UNROLL for (j = 0; j < regs; j += 2) {
            bitnet__load8_neon(v, w + (size_t)j * 4 * bytes, kind);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                BITNET__UNROLL for (k = 0; k < 2; k++)
                    sum[c][j + k] = bitnet__mul_add_neon(a[c], v[k], sum[c][j + k], kind);
            }
            BITNET__NO_AHEAD();
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        float *to = out + (size_t)c * (size_t)n;
        BITNET__UNROLL for (j = 0; j < regs; j += 2) {
            vst1q_f32(to + 4 * j, sum[c][j]);
            vst1q_f32(to + 4 * j + 4, sum[c][j + 1]);
        }
    }
}

/* The same for 4 columns of 4 registers each. p has been turned. */
BITNET__INLINE void bitnet__tile_mix4_neon(const uint8_t *w, size_t row_bytes, const float (*p)[4],
                                           int n, int rows, float *out, const int kind) {
    const size_t bytes = BITNET__ROW_BYTES(kind);
    float32x4_t sum[4][4], v[2], a;                /* sum[register][column] */
    int r, c, j;
    BITNET__UNROLL for (j = 0; j < 4; j++) {
        BITNET__UNROLL for (c = 0; c < 4; c++)
            sum[j][c] = vld1q_f32(out + (size_t)c * (size_t)n + 4 * j);
    }
    for (r = 0; r < rows; r++, w += row_bytes) {
        if (kind != BITNET__ROWS_WIDE) BITNET__PREFETCH(w, 4096);
        a = vld1q_f32(p[r]);
        BITNET__UNROLL for (j = 0; j < 4; j += 2) {
            bitnet__load8_neon(v, w + (size_t)j * 4 * bytes, kind);
            bitnet__add_by_lane_neon(sum[j], v, 0, a, kind);
            bitnet__add_by_lane_neon(sum[j + 1], v + 1, 0, a, kind);
            BITNET__NO_AHEAD();
        }
    }
    BITNET__UNROLL for (j = 0; j < 4; j++) {
        BITNET__UNROLL for (c = 0; c < 4; c++)
            vst1q_f32(out + (size_t)c * (size_t)n + 4 * j, sum[j][c]);
    }
}

/* There are at most WIDE / n rows, or 32. */
BITNET__INLINE void bitnet__mix_neon(const uint8_t *w, size_t row_bytes, const float *p,
                                     size_t p_stride, int n, int rows, int cols, float *out,
                                     const int kind) {
    float turned[BITNET__WIDE / BITNET__LANES][4];
    int c, i, taken;
    for (c = 0; c < cols; c += taken) {
        taken = cols - c >= 4 ? 4 : cols - c >= 2 ? 2 : 1;
        if (taken == 4) bitnet__turn_neon(p, p_stride, rows, 4, turned);
        for (i = 0; i < n; i += BITNET__LANES) {
            const uint8_t *from = w + (size_t)i * BITNET__ROW_BYTES(kind);
            float *to = out + i;
            if (taken == 4)
                bitnet__tile_mix4_neon(from, row_bytes, (const float (*)[4])turned, n, rows, to,
                                       kind);
            else if (taken == 2)
                bitnet__tile_mix_neon(from, row_bytes, p, p_stride, n, rows, to, 4, 2, kind);
            else if (i + 4 * BITNET__LANES > n)
                bitnet__tile_mix_neon(from, row_bytes, p, p_stride, n, rows, to, 4, 1, kind);
            else {
                bitnet__tile_mix_neon(from, row_bytes, p, p_stride, n, rows, to, 16, 1, kind);
                i += 3 * BITNET__LANES;
            }
        }
        p += (size_t)taken * p_stride;
        out += (size_t)taken * (size_t)n;
    }
}

BITNET__ROW_SUMS_F32

static void bitnet__sumrows_f16_neon(const uint8_t *w, size_t w_stride, const float *p,
                                     size_t p_stride, int n, int rows, int cols, float *out) {
    float wide[BITNET__WIDE];
    int r, count;
    if (n % BITNET__LANES) {
        bitnet__sumrows_f16_scalar(w, w_stride, p, p_stride, n, rows, cols, out);
        return;
    }
    for (r = 0; r < rows; r += count, w += (size_t)count * w_stride * 2) {
        if (cols <= BITNET__FEW || n > BITNET__WIDE) {
            count = rows - r < 32 ? rows - r : 32;
            bitnet__mix_neon(w, w_stride * 2, p + r, p_stride, n, count, cols, out,
                             BITNET__ROWS_CACHE);
        } else {
            count = rows - r < BITNET__WIDE / n ? rows - r : BITNET__WIDE / n;
            bitnet__widen_neon(w, w_stride, n, count, wide);
            bitnet__mix_neon((const uint8_t *)wide, (size_t)n * 4, p + r, p_stride, n, count, cols,
                             out, BITNET__ROWS_WIDE);
        }
    }
}

/* ---- row kernels: what those of bitnet.h are made of ----
   Of a number and a quiet NaN, FMAXNM and FMINNM return the number, where FMAX and FMIN return the
   NaN. A product or a difference is never a signalling NaN. The sign of a zero does not matter. */

#define BITNET__FLOATS float32x4_t
#define BITNET__PER_VECTOR 4
#define BITNET__COUNTS int32x4_t
#define BITNET__UNROLL64 BITNET__UNROLL
#define BITNET__ROUND_AT_ONCE 1
#define BITNET__LEAVE() ((void)0)

#define BITNET__OPERATION(op, intrinsic) \
    BITNET__INLINE float32x4_t bitnet__##op##_neon(float32x4_t a, float32x4_t b) { \
        return intrinsic(a, b); \
    }
BITNET__OPERATION(add, vaddq_f32) BITNET__OPERATION(sub, vsubq_f32)
BITNET__OPERATION(mul, vmulq_f32) BITNET__OPERATION(div, vdivq_f32)
BITNET__OPERATION(min, vminnmq_f32) BITNET__OPERATION(max, vmaxnmq_f32)
#undef BITNET__OPERATION

BITNET__INLINE float32x4_t bitnet__splat_neon(float x) { return vdupq_n_f32(x); }
BITNET__INLINE float32x4_t bitnet__load_i32_neon(const int32_t *p) {
    return vcvtq_f32_s32(vld1q_s32(p));
}
BITNET__INLINE float32x4_t bitnet__load_f32_neon(const void *p) {
    return vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p));
}
BITNET__INLINE void bitnet__store_neon(float *p, float32x4_t v) { vst1q_f32(p, v); }

BITNET__INLINE float32x4_t bitnet__limit_neon(float32x4_t v, float most) {
    return vminq_f32(vmaxq_f32(v, vdupq_n_f32(-most)), vdupq_n_f32(most));
}

BITNET__INLINE float32x4_t bitnet__positive_neon(float32x4_t v) {
    const uint32x4_t above = vcgtq_f32(v, vdupq_n_f32(0.0f));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), above));
}

BITNET__INLINE float32x4_t bitnet__top_neon(float32x4_t a, float32x4_t v) {
    return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a),
                                           vreinterpretq_u32_f32(vabsq_f32(v))));
}

BITNET__INLINE float32x4_t bitnet__flip_neon(float32x4_t v, const int h) {
    return h == 1 ? vrev64q_f32(v) : vextq_f32(v, v, 2);
}

BITNET__INLINE float32x4_t bitnet__zero_tiny_neon(float32x4_t x, float32x4_t y) {
    const uint32x4_t tiny = vcaltq_f32(x, vdupq_n_f32(7.8886091e-31f));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), tiny));
}

BITNET__INLINE float32x4_t bitnet__add_shifted_neon(float32x4_t p, float32x4_t t) {
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p),
                                           vshlq_n_u32(vreinterpretq_u32_f32(t), 23)));
}

BITNET__INLINE float bitnet__largest_neon(float32x4_t v) { return vmaxnmvq_f32(v); }
BITNET__INLINE float bitnet__tree_neon(const float32x4_t *v) { return bitnet__fold_neon(v); }

BITNET__INLINE double bitnet__root_neon(double x) {
    return vget_lane_f64(vsqrt_f64(vdup_n_f64(x)), 0);
}

BITNET__INLINE int32x4_t bitnet__no_counts_neon(void) { return vdupq_n_s32(0); }

BITNET__INLINE int32_t bitnet__counted_neon(int32x4_t total, int n) {
    (void)n;
    return vaddvq_s32(total);
}

/* FCVTNS and FCVTNU round to nearest, ties to even, and saturate; so does the narrowing. Both
   bounds are integers, so saturating after rounding gives the same as clamping before. Only a NaN,
   which becomes 0, needs the comparison with -128. Bound: 16 bytes add at most 4 * 128 to a lane of
   *total; n is at most 2^20. */
BITNET__INLINE void bitnet__put_i8_neon(int8_t *q, const float32x4_t *v, int32x4_t *total) {
    int16x4_t words[4];
    int8x16_t bytes;
    int j;
    BITNET__UNROLL for (j = 0; j < 4; j++)
        words[j] = vqmovn_s32(vcvtnq_s32_f32(vmaxnmq_f32(v[j], vdupq_n_f32(-128.0f))));
    bytes = vcombine_s8(vqmovn_s16(vcombine_s16(words[0], words[1])),
                        vqmovn_s16(vcombine_s16(words[2], words[3])));
    vst1q_s8(q, bytes);
    *total = vpadalq_s16(*total, vpaddlq_s8(bytes));
}

/* What is negative, or a NaN, becomes 0. The largest is 127. */
BITNET__INLINE void bitnet__put_u8_neon(uint8_t *q, const float32x4_t *v) {
    uint16x4_t words[4];
    int j;
    BITNET__UNROLL for (j = 0; j < 4; j++) words[j] = vmovn_u32(vcvtnq_u32_f32(v[j]));
    vst1q_u8(q, vcombine_u8(vmovn_u16(vcombine_u16(words[0], words[1])),
                            vmovn_u16(vcombine_u16(words[2], words[3]))));
}

BITNET__INLINE void bitnet__put_f16_neon(uint8_t *p, const float *x) {
    int j;
    BITNET__UNROLL for (j = 0; j < 16; j += 8) {
        const float16x4_t low = vcvt_f16_f32(vld1q_f32(x + j));
        const float16x8_t halves = vcvt_high_f16_f32(low, vld1q_f32(x + j + 4));
        vst1q_u8(p + 2 * j, vreinterpretq_u8_f16(halves));
    }
}

#define BITNET__ROW_KERNELS
#include "bitnet.h"
#endif

/* ---- the tables ---- */

/* On AArch32 vectors always flush subnormals to zero, so all floats are scalar there. */
#ifdef __arm__
  #define BITNET__TABLE(integers, panels) \
      BITNET__LAYOUT_I2S, \
      BITNET__ENTRIES(scalar, integers, panels, bitnet__dotrows_i2s_##panels)
#else
  #define BITNET__TABLE(integers, panels) \
      BITNET__LAYOUT_I2S, \
      BITNET__ENTRIES(neon, integers, panels, bitnet__dotrows_i2s_##panels)
#endif

#if BITNET__NEON
static const bitnet_kernels bitnet__kernels_neon = {
    "neon", BITNET_CPU_NEON, BITNET__TABLE(neon, neon)
};
#endif
#if BITNET__DOTPROD
static const bitnet_kernels bitnet__kernels_dotprod = {
    "neon-dotprod", BITNET_CPU_NEON | BITNET_CPU_DOTPROD, BITNET__TABLE(dotprod, dotprod)
};
#endif
#if BITNET__I8MM
static const bitnet_kernels bitnet__kernels_i8mm = {
    "neon-i8mm", BITNET_CPU_NEON | BITNET_CPU_DOTPROD | BITNET_CPU_I8MM,
    BITNET__TABLE(dotprod, i8mm)
};
#endif

/* Best first. */
#define BITNET__KERNEL_TABLES \
    BITNET__LISTED(BITNET__I8MM, i8mm) BITNET__LISTED(BITNET__DOTPROD, dotprod) \
    BITNET__LISTED(BITNET__NEON, neon)
