#include "bits.h"
#include <math.h>
#include <string.h>

enum { MOST_ELEMENTS = 1 << 20 };

size_t bits_bytes(int32_t n, int bits) {
    if (n < 1 || n > MOST_ELEMENTS || (bits != 8 && bits != 4 && bits != 2 && bits != 1)) return 0;
    return ((size_t)n * (size_t)bits + 7) / 8;
}

/* What is stored for x / step, in 1, 2 or 4 bits: half the levels are below 0. */
static int code_of(double x, int bits) {
    const double half = (double)(1 << (bits - 1));
    if (bits == 1) return x >= 0.0;
    return x < -half ? 0 : x >= half ? 2 * (int)half - 1 : (int)(floor(x) + half);
}

int bits_pack(const float *x, int32_t n, int bits, void *out) {
    uint8_t *to = (uint8_t *)out;
    double sum = 0.0, top = 0.0, step;
    int32_t i;
    if (!bits_bytes(n, bits)) return 0;
    for (i = 0; i < n; i++) {
        if (!isfinite(x[i])) return 0;
        sum += (double)x[i] * (double)x[i];    /* exact, so an FMA gives the same sum */
        top = fmax(top, fabs((double)x[i]));
    }
    step = sqrt(sum / (double)n) * (bits == 4 ? 0.3352 : 0.9957);
    memset(to, 0, bits_bytes(n, bits));
    for (i = 0; i < n; i++) {
        const double v = (double)x[i];
        if (bits == 8) to[i] = (uint8_t)(int)nearbyint(top > 0.0 ? v * (127.0 / top) : 0.0);
        else to[(size_t)i * (size_t)bits / 8] |=
            (uint8_t)(code_of(step > 0.0 ? v / step : 0.0, bits) << (i * bits % 8));
    }
    return 1;
}

/* u of element i. */
static int level_of(const uint8_t *p, int32_t i, int bits) {
    const int code = p[(size_t)i * (size_t)bits / 8] >> (i * bits % 8) & ((1 << bits) - 1);
    return bits == 8 ? (int8_t)p[i] : 2 * code + 1 - (1 << bits);
}

double bits_cosine(const void *a, const void *b, int32_t n, int bits) {
    int64_t dot = 0, aa = 0, bb = 0;   /* at most 2^14 * 2^20 */
    int32_t i;
    if (!bits_bytes(n, bits)) return 0.0;
    for (i = 0; i < n; i++) {
        const int u = level_of((const uint8_t *)a, i, bits);
        const int v = level_of((const uint8_t *)b, i, bits);
        dot += u * v;
        aa += u * u;
        bb += v * v;
    }
    return aa && bb ? (double)dot / sqrt((double)aa * (double)bb) : 0.0;
}
