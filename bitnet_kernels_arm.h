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

/* ---- floats ---- */

/* ---- the tables ---- */

#define BITNET__KERNEL_ENTRIES(ternary, u8) \
    bitnet__quantize_scalar, ternary, bitnet__dotrows_f32_scalar, bitnet__dotrows_f16_scalar, \
    bitnet__dotrows_bf16_scalar, bitnet__dotrows_f16_scalar, bitnet__mixrows_f32_scalar, \
    bitnet__mixrows_f16_scalar, bitnet__softmax_scalar, bitnet__rope_scalar, \
    bitnet__store_f16_scalar, bitnet__dequantize_scalar, bitnet__relu2_gate_scalar, \
    bitnet__rmsnorm_scalar, u8

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
