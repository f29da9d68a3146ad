/* values.h - values of options that several programs take: numbers, names of types, tiles

   Functions return 0 if the text is no such value; what is said then is the program's. */
#ifndef EXAMPLES_VALUES_H
#define EXAMPLES_VALUES_H

#include "../bitnet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A whole number from low to high. */
static inline int value_number(const char *text, long long low, long long high, long long *to) {
    char *end;
    const long long n = strtoll(text, &end, 10);
    if (end == text || *end || *text <= ' ' || n < low || n > high) return 0;
    *to = n;
    return 1;
}

/* A decimal number; strtod alone would take 0x1p2, inf and nan as well. */
static inline int value_real(const char *text, double *to) {
    char *end;
    if (text[strspn(text, "0123456789+-.eE")]) return 0;
    *to = strtod(text, &end);
    return end > text && !*end;
}

/* How keys and values are kept. The names are in the order of bitnet_kv_type. */
#define KV_TYPES "f16, f32 or i8"
static inline int value_kv_type(const char *text, bitnet_kv_type *to) {
    static const char *const names[] = {"f16", "f32", "i8"};
    int i = 0;
    while (i < 3 && strcmp(text, names[i])) i++;
    if (i < 3) *to = (bitnet_kv_type)i;
    return i < 3;
}

/* The bytes that the keys, or the values, of a head and a position take. */
static inline int64_t kv_head_bytes(bitnet_kv_type type, int32_t head_dim) {
    return type == BITNET_KV_I8    ? head_dim + 4
           : type == BITNET_KV_F32 ? 4 * (int64_t)head_dim : 2 * (int64_t)head_dim;
}

/* How a file packs I2_S weights. The names are in the order of bitnet_i2s_packing. */
#define I2S_PACKINGS "128, 64 or 4row"
static inline const char *packing_name(bitnet_i2s_packing p) {
    static const char *const names[] = {"128", "64", "4row"};
    return names[p];
}
static inline int value_packing(const char *text, bitnet_i2s_packing *to) {
    int i = 0;
    while (i < 3 && strcmp(text, packing_name((bitnet_i2s_packing)i))) i++;
    if (i < 3) *to = (bitnet_i2s_packing)i;
    return i < 3;
}

/* BM,BK,bm: the tile of TL1 or TL2 weights. */
static inline int value_tile(const char *text, bitnet_tile *to) {
    char more;
    return sscanf(text, "%6d,%6d,%6d%c", &to->rows, &to->cols, &to->group, &more) == 3;
}

#endif
