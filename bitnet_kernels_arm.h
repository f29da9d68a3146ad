/* bitnet_kernels_arm.h - NEON kernels for bitnet.h: ARMv8, dotprod, i8mm; MIT licence, see there

   Lay this file beside bitnet.h, which includes it by name. Every entry gives the same bits as its
   scalar twin in bitnet.h, whose code says what is computed; here stands only how. */

#if BITNET__KERNEL_ABI != 3
  #error "bitnet_kernels_arm.h and bitnet.h are of different releases"
#endif
#define BITNET__HAVE_SIMD

#ifdef __cplusplus
}   /* the compiler's headers bring their own linkage */
#endif
#include <arm_neon.h>
#if defined(__linux__)
  #include <sys/auxv.h>
#elif defined(__APPLE__)
  #include <sys/sysctl.h>
#endif
#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
  #define BITNET__INLINE static inline __attribute__((always_inline))
  #define BITNET__APART static __attribute__((noinline))
#else
  #define BITNET__INLINE static __forceinline
  #define BITNET__APART static __declspec(noinline)
#endif

/* ---- what the CPU and the system allow ---- */

static uint32_t bitnet__cpu_features(void) {
    uint32_t features = BITNET_CPU_NEON;
#if defined(__linux__)
    if (getauxval(16) >> 20 & 1) features |= BITNET_CPU_DOTPROD;    /* AT_HWCAP, ASIMDDP */
    if (getauxval(26) >> 13 & 1) features |= BITNET_CPU_I8MM;       /* AT_HWCAP2, I8MM */
#endif
    return features;
}

/* ---- I2_S ---- */

/* ---- floats ----
   Four registers hold 16 floats, so that element i of a sum stays in lane i % 16 by itself: lane
   4 j + l is lane l of register j. Lengths that are no multiple of 16 (models avoid them) go to the
   scalar twin. Products that have to be rounded are vmulq and then vaddq, which the rule against
   contraction in bitnet.h keeps apart; vfmaq stands only where the product is exact. */

/* Before loops over the sums of a tile: only without the loop are these registers. */
#if defined(__clang__)
  #define BITNET__UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
  #define BITNET__UNROLL _Pragma("GCC unroll 16")
#else
  #define BITNET__UNROLL
#endif

/* gcc 12 would load all that a step needs before it multiplies, and run out of registers: no load
   passes this. */
#if defined(__GNUC__) && !defined(__clang__)
  #define BITNET__IN_TURN() __asm__ volatile("" : : : "memory")
#else
  #define BITNET__IN_TURN() ((void)0)
#endif

/* For rows that come from memory, once for 64 bytes. An address past the end does no harm. */
#if defined(__GNUC__) || defined(__clang__)
  #define BITNET__AHEAD(p) __builtin_prefetch((const void *)((uintptr_t)(p) + 4096))
#else
  #define BITNET__AHEAD(p) __prefetch((const void *)((uintptr_t)(p) + 4096))
#endif

/* What rows are made of. CACHE is F16, WIDE a block of it as floats; both meet shortened floats,
   whose products with them are exact. */
enum { BITNET__ROWS_F32, BITNET__ROWS_F16, BITNET__ROWS_BF16, BITNET__ROWS_CACHE,
       BITNET__ROWS_WIDE };
#define BITNET__ROW_BYTES(kind) \
    ((kind) == BITNET__ROWS_F32 || (kind) == BITNET__ROWS_WIDE ? (size_t)4 : (size_t)2)

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

/* The tree. */
BITNET__INLINE float bitnet__fold_neon(const float32x4_t *sum) {
    float32x4_t s = vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3]));
    s = vaddq_f32(s, vextq_f32(s, s, 2));
    return vgetq_lane_f32(vpaddq_f32(s, s), 0);
}

/* A tile is 4 dot products, whose sums take 16 registers: 4 rows and 1 column (token), or 2 and 2.
   Past the last row it repeats that one and drops the copies. */
BITNET__INLINE void bitnet__tile_neon(const uint8_t *w, const float *x, int n, int rows, float *out,
                                      size_t out_stride, const int tile_cols, const int kind) {
    const size_t bytes = BITNET__ROW_BYTES(kind);
    const int tile_rows = 4 / tile_cols;
    float32x4_t sum[4][2][4], v[4][2], a;
    const uint8_t *row[4];
    const float *col[2];
    int r, c, i, j, k;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) col[c] = x + (size_t)c * (size_t)n;
    BITNET__UNROLL for (r = 0; r < tile_rows; r++) {
        row[r] = w + (size_t)(r < rows ? r : rows - 1) * (size_t)n * bytes;
        BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
            BITNET__UNROLL for (j = 0; j < 4; j++) sum[r][c][j] = vdupq_n_f32(0.0f);
        }
    }
    for (i = 0; i < n; i += BITNET__LANES) {
        BITNET__UNROLL for (r = 0; r < tile_rows; r++)
            if (kind != BITNET__ROWS_WIDE && (size_t)i * bytes % 64 == 0) BITNET__AHEAD(row[r]);
        BITNET__UNROLL for (j = 0; j < 4; j += 2) {
            BITNET__IN_TURN();
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

/* Rows are in the outer loop, for they are the longer array. */
BITNET__INLINE void bitnet__dots_neon(const uint8_t *w, const float *x, int n, int rows, int cols,
                                      float *out, size_t out_stride, const int kind) {
    const size_t row_bytes = (size_t)n * BITNET__ROW_BYTES(kind);
    int r, c;
    for (; rows > 0; rows -= 4, w += 4 * row_bytes, out += 4) {
        const float *col = x;
        float *to = out;
        for (c = cols; c >= 2; c -= 2, col += 2 * (size_t)n, to += 2 * out_stride)
            for (r = 0; r < 4 && r < rows; r += 2)
                bitnet__tile_neon(w + (size_t)r * row_bytes, col, n, rows - r, to + r, out_stride,
                                  2, kind);
        if (c) bitnet__tile_neon(w, col, n, rows, to, out_stride, 1, kind);
    }
}

#define BITNET__DEFINE_DOTROWS_NEON(type, kind) \
    static void bitnet__dotrows_##type##_neon(const uint8_t *w, const float *x, int n, int rows, \
                                              int cols, float *out, size_t out_stride) { \
        if (n % BITNET__LANES) \
            bitnet__dotrows_##type##_scalar(w, x, n, rows, cols, out, out_stride); \
        else bitnet__dots_neon(w, x, n, rows, cols, out, out_stride, kind); \
    }
BITNET__DEFINE_DOTROWS_NEON(f32, BITNET__ROWS_F32)
BITNET__DEFINE_DOTROWS_NEON(f16, BITNET__ROWS_F16)
BITNET__DEFINE_DOTROWS_NEON(bf16, BITNET__ROWS_BF16)

/* Attention takes the F16 rows of the cache in blocks of up to 16 KB, as floats, which then serve
   all columns from the L1 cache. For few columns that does not pay: those take the rows as they
   are. */
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

static void bitnet__keys_f16_neon(const uint8_t *w, const float *x, int n, int rows, int cols,
                                  float *out, size_t out_stride) {
    float wide[BITNET__WIDE];
    int r, c, count, step;
    if (n % BITNET__LANES) {
        bitnet__dotrows_f16_scalar(w, x, n, rows, cols, out, out_stride);
        return;
    }
    if (cols <= BITNET__FEW || n > BITNET__WIDE) {
        bitnet__dots_neon(w, x, n, rows, cols, out, out_stride, BITNET__ROWS_CACHE);
        return;
    }
    for (r = 0; r < rows; r += count) {
        count = rows - r < BITNET__WIDE / n ? rows - r : BITNET__WIDE / n;
        bitnet__widen_neon(w + (size_t)r * (size_t)n * 2, (size_t)n, n, count, wide);
        for (c = 0; c < cols; c += step) {     /* here the columns are the longer array */
            step = cols - c >= 2 ? 2 : 1;
            bitnet__dots_neon((const uint8_t *)wide, x + (size_t)c * (size_t)n, n, count, step,
                              out + (size_t)c * out_stride + (size_t)r, out_stride,
                              BITNET__ROWS_WIDE);
        }
    }
}

/* A tile of the weighted sums across all rows of a block: 1, 2 or 4 columns of `regs` registers
   each. out carries the sums from one block to the next, so each element's sum keeps its order. */
BITNET__INLINE void bitnet__tile_mix_neon(const uint8_t *w, size_t w_stride, const float *p,
                                          size_t p_stride, int n, int rows, float *out,
                                          const int regs, const int tile_cols, const int kind) {
    const size_t bytes = BITNET__ROW_BYTES(kind);
    float32x4_t sum[4][16], v[2], a[4];
    int r, c, j, k;
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++)
            sum[c][j] = vld1q_f32(out + (size_t)c * (size_t)n + 4 * j);
    }
    for (r = 0; r < rows; r++, w += w_stride * bytes) {
        if (kind != BITNET__ROWS_WIDE) BITNET__AHEAD(w);
        BITNET__UNROLL for (c = 0; c < tile_cols; c++)
            a[c] = vdupq_n_f32(p[(size_t)c * p_stride + (size_t)r]);
        BITNET__UNROLL for (j = 0; j < regs; j += 2) {
            bitnet__load8_neon(v, w + (size_t)j * 4 * bytes, kind);
            BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
                BITNET__UNROLL for (k = 0; k < 2; k++)
                    sum[c][j + k] = bitnet__mul_add_neon(a[c], v[k], sum[c][j + k], kind);
            }
        }
    }
    BITNET__UNROLL for (c = 0; c < tile_cols; c++) {
        BITNET__UNROLL for (j = 0; j < regs; j++)
            vst1q_f32(out + (size_t)c * (size_t)n + 4 * j, sum[c][j]);
    }
}

BITNET__INLINE void bitnet__mix_neon(const uint8_t *w, size_t w_stride, const float *p,
                                     size_t p_stride, int n, int rows, int cols, float *out,
                                     const int kind) {
    int c, i, step;
    for (c = 0; c < cols; c += step) {
        step = cols - c >= 4 ? 4 : cols - c >= 2 ? 2 : 1;
        for (i = 0; i < n; i += BITNET__LANES) {
            const uint8_t *from = w + (size_t)i * BITNET__ROW_BYTES(kind);
            float *to = out + i;
            if (step == 4)
                bitnet__tile_mix_neon(from, w_stride, p, p_stride, n, rows, to, 4, 4, kind);
            else if (step == 2)
                bitnet__tile_mix_neon(from, w_stride, p, p_stride, n, rows, to, 4, 2, kind);
            else if (i + 4 * BITNET__LANES > n)
                bitnet__tile_mix_neon(from, w_stride, p, p_stride, n, rows, to, 4, 1, kind);
            else {
                bitnet__tile_mix_neon(from, w_stride, p, p_stride, n, rows, to, 16, 1, kind);
                i += 3 * BITNET__LANES;
            }
        }
        p += (size_t)step * p_stride;
        out += (size_t)step * (size_t)n;
    }
}

/* Blocks of rows, so that the tiles side by side find them in the L1 cache. */
static void bitnet__mixrows_f32_neon(const uint8_t *w, size_t w_stride, const float *p,
                                     size_t p_stride, int n, int rows, int cols, float *out) {
    int r, count;
    if (n % BITNET__LANES) {
        bitnet__mixrows_f32_scalar(w, w_stride, p, p_stride, n, rows, cols, out);
        return;
    }
    for (r = 0; r < rows; r += count) {
        count = rows - r < 32 ? rows - r : 32;
        bitnet__mix_neon(w + (size_t)r * w_stride * 4, w_stride, p + r, p_stride, n, count, cols,
                         out, BITNET__ROWS_F32);
    }
}

static void bitnet__mixrows_f16_neon(const uint8_t *w, size_t w_stride, const float *p,
                                     size_t p_stride, int n, int rows, int cols, float *out) {
    float wide[BITNET__WIDE];
    int r, count;
    if (n % BITNET__LANES) {
        bitnet__mixrows_f16_scalar(w, w_stride, p, p_stride, n, rows, cols, out);
        return;
    }
    for (r = 0; r < rows; r += count, w += (size_t)count * w_stride * 2) {
        if (cols <= BITNET__FEW || n > BITNET__WIDE) {
            count = rows - r < 32 ? rows - r : 32;
            bitnet__mix_neon(w, w_stride, p + r, p_stride, n, count, cols, out, BITNET__ROWS_CACHE);
        } else {
            count = rows - r < BITNET__WIDE / n ? rows - r : BITNET__WIDE / n;
            bitnet__widen_neon(w, w_stride, n, count, wide);
            bitnet__mix_neon((const uint8_t *)wide, (size_t)n, p + r, p_stride, n, count, cols, out,
                             BITNET__ROWS_WIDE);
        }
    }
}

/* FMAXNM and FMINNM take the number where FMAX takes the NaN, if the NaN is quiet, and that of a
   product or a difference is: so they do what the scalar comparisons do, which let a NaN fall
   through to the constant. Which zero comes out does not matter anywhere below.

   FCVTNS rounds to nearest, ties to even, as the scalar addition of 1.5 * 2^23 does. It saturates,
   and so does the narrowing; to saturate after rounding is to clamp before it, for both bounds are
   integers. Only a NaN, of which FCVTNS makes 0, needs the comparison with -128. */
static float bitnet__quantize_neon(const float *x, int n, int8_t *q, int32_t *sum) {
    uint32x4_t tops = vdupq_n_u32(0);
    int32x4_t total = vdupq_n_s32(0);      /* bound: 4 * 128 for 16 elements; n is at most 2^20 */
    int16x4_t words[4];
    int8x16_t bytes;
    float32x4_t v;
    float a, s;
    int i, j;
    if (n % BITNET__LANES) return bitnet__quantize_scalar(x, n, q, sum);
    for (i = 0; i < n; i += 4)
        tops = vmaxq_u32(tops, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
    a = bitnet__float_from_bits(vmaxvq_u32(tops));
    a = a > 1e-5f ? a : 1e-5f;
    s = 127.0f / a;
    for (i = 0; i < n; i += BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < 4; j++) {
            v = vmulq_f32(vld1q_f32(x + i + 4 * j), vdupq_n_f32(s));
            v = vmaxnmq_f32(v, vdupq_n_f32(-128.0f));
            words[j] = vqmovn_s32(vcvtnq_s32_f32(v));
        }
        bytes = vcombine_s8(vqmovn_s16(vcombine_s16(words[0], words[1])),
                            vqmovn_s16(vcombine_s16(words[2], words[3])));
        vst1q_s8(q + i, bytes);
        total = vpadalq_s16(total, vpaddlq_s8(bytes));
    }
    *sum = vaddvq_s32(total);
    return s;
}

BITNET__INLINE float32x4_t bitnet__horner_neon(float32x4_t p, float32x4_t x, float next) {
    return vaddq_f32(vmulq_f32(p, x), vdupq_n_f32(next));
}

BITNET__INLINE float32x4_t bitnet__expf_neon(float32x4_t x) {
    float32x4_t t, n, r, p;
    x = vmaxnmq_f32(x, vdupq_n_f32(-64.0f));
    x = vminnmq_f32(x, vdupq_n_f32(88.0f));
    t = bitnet__horner_neon(x, vdupq_n_f32(1.44269504f), 12582912.0f);
    n = vsubq_f32(t, vdupq_n_f32(12582912.0f));
    r = vsubq_f32(x, vmulq_f32(n, vdupq_n_f32(0.693359375f)));
    r = vsubq_f32(r, vmulq_f32(n, vdupq_n_f32(-2.12194440e-4f)));
    p = bitnet__horner_neon(r, vdupq_n_f32(1.0f / 720.0f), 1.0f / 120.0f);
    p = bitnet__horner_neon(p, r, 1.0f / 24.0f);
    p = bitnet__horner_neon(p, r, 1.0f / 6.0f);
    p = bitnet__horner_neon(p, r, 0.5f);
    p = bitnet__horner_neon(p, r, 1.0f);
    p = bitnet__horner_neon(p, r, 1.0f);
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p),
                                           vshlq_n_u32(vreinterpretq_u32_f32(t), 23)));
}

BITNET__INLINE float32x4_t bitnet__round13_neon(float32x4_t x) {
    float32x4_t t = vmulq_f32(x, vdupq_n_f32(2049.0f));
    return vsubq_f32(t, vsubq_f32(t, x));
}

/* FMAX and FMIN: here a NaN stays. */
BITNET__INLINE float32x4_t bitnet__shorten_neon(float32x4_t x) {
    const uint32x4_t tiny = vcaltq_f32(x, vdupq_n_f32(7.8886091e-31f));
    x = vmaxq_f32(x, vdupq_n_f32(-1.2676506e30f));
    x = bitnet__round13_neon(vminq_f32(x, vdupq_n_f32(1.2676506e30f)));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), tiny));
}

/* n is the context's length: the elements after the last 16 go through registers too, filled up
   with the largest, which are left out of the sum. */
static void bitnet__softmax_neon(float *x, int n, float scale, int shorten) {
    float32x4_t v, sum[4], tops = vdupq_n_f32(-3.4e38f);
    float lanes[BITNET__LANES], rest[BITNET__LANES], top, inv;
    int i, j, whole = n - n % BITNET__LANES;
    for (i = 0; i < whole; i += 4) {
        v = vmulq_f32(vld1q_f32(x + i), vdupq_n_f32(scale));
        tops = vmaxnmq_f32(v, tops);
        vst1q_f32(x + i, v);
    }
    top = vmaxnmvq_f32(tops);
    for (i = whole; i < n; i++) {
        x[i] *= scale;
        top = x[i] > top ? x[i] : top;
    }
    BITNET__UNROLL for (j = 0; j < 4; j++) sum[j] = vdupq_n_f32(0.0f);
    for (i = 0; i < whole; i += BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < 4; j++) {
            v = vsubq_f32(vld1q_f32(x + i + 4 * j), vdupq_n_f32(top));
            v = bitnet__expf_neon(v);
            sum[j] = vaddq_f32(sum[j], v);
            vst1q_f32(x + i + 4 * j, v);
        }
    }
    for (i = 0; i < BITNET__LANES; i++) rest[i] = whole + i < n ? x[whole + i] : top;
    for (j = 0; j < 4; j++) {
        v = vsubq_f32(vld1q_f32(rest + 4 * j), vdupq_n_f32(top));
        vst1q_f32(rest + 4 * j, bitnet__expf_neon(v));
        vst1q_f32(lanes + 4 * j, sum[j]);
    }
    memcpy(x + whole, rest, (size_t)(n - whole) * sizeof *x);
    for (i = 0; whole + i < n; i++) lanes[i] += rest[i];
    inv = 1.0f / bitnet__sum_lanes(lanes);
    for (i = 0; i < whole; i += 4) {
        v = vmulq_f32(vld1q_f32(x + i), vdupq_n_f32(inv));
        vst1q_f32(x + i, shorten ? bitnet__round13_neon(v) : v);
    }
    for (i = whole; i < n; i++) x[i] = shorten ? bitnet__round13(x[i] * inv) : x[i] * inv;
}

static void bitnet__rope_neon(const float *x, const float *cos_sin, int n_rot, int n, int shorten,
                              float *y) {
    const int half = n_rot / 2;
    float32x4_t a, b, cs, sn, v;
    int i;
    if (n_rot % 8 || n % 4) {
        bitnet__rope_scalar(x, cos_sin, n_rot, n, shorten, y);
        return;
    }
    for (i = 0; i < half; i += 4) {
        a = vld1q_f32(x + i);
        b = vld1q_f32(x + half + i);
        cs = vld1q_f32(cos_sin + i);
        sn = vld1q_f32(cos_sin + half + i);
        v = vsubq_f32(vmulq_f32(a, cs), vmulq_f32(b, sn));
        vst1q_f32(y + i, shorten ? bitnet__shorten_neon(v) : v);
        v = vaddq_f32(vmulq_f32(b, cs), vmulq_f32(a, sn));
        vst1q_f32(y + half + i, shorten ? bitnet__shorten_neon(v) : v);
    }
    for (i = n_rot; i < n; i += 4) {
        v = vld1q_f32(x + i);
        vst1q_f32(y + i, shorten ? bitnet__shorten_neon(v) : v);
    }
}

static void bitnet__store_f16_neon(const float *x, int n, uint8_t *out) {
    int i, whole = n - n % 8;
    for (i = 0; i < whole; i += 8) {
        const float16x4_t low = vcvt_f16_f32(vld1q_f32(x + i));
        const float16x8_t halves = vcvt_high_f16_f32(low, vld1q_f32(x + i + 4));
        vst1q_u8(out + 2 * (size_t)i, vreinterpretq_u8_f16(halves));
    }
    bitnet__store_f16_scalar(x + whole, n - whole, out + 2 * (size_t)whole);
}

/* Four dots as floats, times f. */
BITNET__INLINE float32x4_t bitnet__scaled_neon(const int32_t *dots, float f) {
    return vmulq_f32(vcvtq_f32_s32(vld1q_s32(dots)), vdupq_n_f32(f));
}

static void bitnet__dequantize_neon(const int32_t *dots, float f, int n, int add, float *y) {
    int i, whole = n - n % 4;
    for (i = 0; i < whole; i += 4) {
        float32x4_t v = bitnet__scaled_neon(dots + i, f);
        vst1q_f32(y + i, add ? vaddq_f32(vld1q_f32(y + i), v) : v);
    }
    bitnet__dequantize_scalar(dots + whole, f, n - whole, add, y + whole);
}

static void bitnet__relu2_gate_neon(const int32_t *gate, float gate_f, const int32_t *up,
                                    float up_f, int n, float *y) {
    int i, whole = n - n % 4;
    for (i = 0; i < whole; i += 4) {
        float32x4_t g = bitnet__scaled_neon(gate + i, gate_f);
        g = vmaxnmq_f32(g, vdupq_n_f32(0.0f));
        vst1q_f32(y + i, vmulq_f32(vmulq_f32(g, g), bitnet__scaled_neon(up + i, up_f)));
    }
    bitnet__relu2_gate_scalar(gate + whole, gate_f, up + whole, up_f, n - whole, y + whole);
}

static void bitnet__rmsnorm_neon(const float *x, const float *gain, int n, float eps, float *y) {
    float32x4_t v, sum[4];
    float lanes[BITNET__LANES], mean, inv;
    int i, j;
    if (n % BITNET__LANES) {
        bitnet__rmsnorm_scalar(x, gain, n, eps, y);
        return;
    }
    BITNET__UNROLL for (j = 0; j < 4; j++) sum[j] = vdupq_n_f32(0.0f);
    for (i = 0; i < n; i += BITNET__LANES) {
        BITNET__UNROLL for (j = 0; j < 4; j++) {
            v = vld1q_f32(x + i + 4 * j);
            sum[j] = vaddq_f32(sum[j], vmulq_f32(v, v));
        }
    }
    for (j = 0; j < 4; j++) vst1q_f32(lanes + 4 * j, sum[j]);
    mean = bitnet__sum_lanes(lanes) / (float)n;
    inv = (float)(1.0 / bitnet__sqrt((double)mean + (double)eps));
    for (i = 0; i < n; i += 4) {
        v = vmulq_f32(vld1q_f32(x + i), vdupq_n_f32(inv));
        vst1q_f32(y + i, vmulq_f32(v, vld1q_f32(gain + i)));
    }
}

/* ---- the tables ---- */

#define BITNET__KERNEL_ENTRIES(ternary, u8) \
    bitnet__quantize_neon, ternary, bitnet__dotrows_f32_neon, bitnet__dotrows_f16_neon, \
    bitnet__dotrows_bf16_neon, bitnet__keys_f16_neon, bitnet__mixrows_f32_neon, \
    bitnet__mixrows_f16_neon, bitnet__softmax_neon, bitnet__rope_neon, bitnet__store_f16_neon, \
    bitnet__dequantize_neon, bitnet__relu2_gate_neon, bitnet__rmsnorm_neon, u8

static const bitnet_kernels bitnet__kernels_neon = {
    "neon", BITNET_CPU_NEON, 0, 0, 0,
    BITNET__KERNEL_ENTRIES(bitnet__dotrows_i2s_scalar, bitnet__dotrows_u8_scalar)
};
static const bitnet_kernels bitnet__kernels_dotprod = {
    "neon-dotprod", BITNET_CPU_NEON | BITNET_CPU_DOTPROD, 0, 0, 0,
    BITNET__KERNEL_ENTRIES(bitnet__dotrows_i2s_scalar, bitnet__dotrows_u8_scalar)
};
static const bitnet_kernels bitnet__kernels_i8mm = {
    "neon-i8mm", BITNET_CPU_NEON | BITNET_CPU_DOTPROD | BITNET_CPU_I8MM, 0, 0, 0,
    BITNET__KERNEL_ENTRIES(bitnet__dotrows_i2s_scalar, bitnet__dotrows_u8_scalar)
};

#define BITNET__KERNEL_TABLES \
    &bitnet__kernels_i8mm, &bitnet__kernels_dotprod, &bitnet__kernels_neon,

#undef BITNET__INLINE
#undef BITNET__APART
#undef BITNET__KERNEL_ENTRIES
#undef BITNET__UNROLL
#undef BITNET__AHEAD
#undef BITNET__IN_TURN
#undef BITNET__ROW_BYTES
#undef BITNET__DEFINE_DOTROWS_NEON
