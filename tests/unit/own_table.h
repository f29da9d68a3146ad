/* A caller's own kernel table: its layout is I2_S with the bytes of each row in reverse order, and
   the last group filled up with zeros. It tests on every CPU what loads weights for such tables. */
#ifndef OWN_TABLE_H
#define OWN_TABLE_H

#include "library.h"

static int own_group;

static inline size_t own_bytes(int n, int rows) {
    return (size_t)((rows + own_group - 1) / own_group * own_group) * (size_t)(n / 4);
}

static inline int own_pack(const uint8_t *i2s, int n, int rows, uint8_t *out) {
    const size_t row = (size_t)(n / 4), bytes = (size_t)rows * row;
    size_t i;
    for (i = 0; i < bytes; i++) out[i / row * row + row - 1 - i % row] = i2s[i];
    memset(out + bytes, 0, own_bytes(n, rows) - bytes);
    return bitnet__any_code_3(i2s, bytes);
}

/* Bound: codes are at most 3, so a dot is at most 384 n, plus 128 n for sums: under 2^31 for
   n <= 2^20. */
static inline void own_dotrows(const uint8_t *w, const int8_t *q, const int32_t *sums, int n,
                               int rows, int cols, int32_t *out, size_t out_stride) {
    int r, c, i;
    for (r = 0; r < rows; r++, w += n / 4)
        for (c = 0; c < cols; c++) {
            const int8_t *a = q + (size_t)c * (size_t)n;
            int32_t dot = 0;
            for (i = 0; i < n / 4; i++) {
                const int x = w[n / 4 - 1 - i], at = i / 32 * 128 + i % 32;
                dot += (x >> 6) * a[at] + (x >> 4 & 3) * a[at + 32] + (x >> 2 & 3) * a[at + 64] +
                       (x & 3) * a[at + 96];
            }
            out[(size_t)c * out_stride + (size_t)r] = dot - sums[c];
        }
}

static inline bitnet_kernels own_kernels(int group) {
    bitnet_kernels k;
    memset(&k, 0, sizeof k);
    k.name = "own";
    k.layout = "rows from back to front";
    k.row_group = own_group = group;
    k.packed_bytes = own_bytes;
    k.pack = own_pack;
    k.dotrows_ternary = own_dotrows;
    return k;
}

/* The library's tables, and as the last one this, in groups of 16 rows. */
static inline int all_tables_count(void) { return bitnet_kernels_count() + 1; }
static inline const bitnet_kernels *all_tables(int i) {
    static bitnet_kernels own;
    if (i < bitnet_kernels_count()) return bitnet_kernels_get(i);
    own = own_kernels(16);
    return &own;
}
/* name 0: the default. */
static inline const bitnet_kernels *table_called(const char *name) {
    if (name && !strcmp(name, "own")) return all_tables(bitnet_kernels_count());
    return name ? bitnet_kernels_find(name) : 0;
}

#endif
