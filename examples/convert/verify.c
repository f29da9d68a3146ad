#include "commands.h"
#include "fold.h"
#include "output.h"
#include "../values.h"
#include <stdlib.h>
#include <string.h>

static int n_different, n_near;
static fold fold_a, fold_b;
static int n_i2s, n_i2s_same;          /* I2_S in both files; of these, with the same weights */

static void different(const char *name, const char *format, ...) {
    va_list args;
    n_different++;
    printf("differs ");
    print_clean(name, (int)strlen(name));
    printf(": ");
    va_start(args, format);
    print_line(stdout, format, args);
    va_end(args);
}

static void print_note(const char *format, ...) {
    va_list args;
    printf("note: ");
    va_start(args, format);
    print_line(stdout, format, args);
    va_end(args);
}

/* The scale that is part of the tensor. One in a tensor of its own is compared with that tensor. */
static float inner_scale(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                         const bitnet_ternary *m, const uint8_t *data) {
    return !in_blocks(t->type) && has_own_scale(g, t->name) ? 1 : scale_of(m, t->name, data);
}

/* Prints the first place where the numbers of two tensors differ. The zeros of layers and of blocks
   have no sign. */
static int same_numbers(const bitnet_gguf_tensor *a, const bitnet_gguf_tensor *b, uint64_t row,
                        const float *x, const float *y) {
    const int unsigned_zeros = is_layer(a) || in_blocks(a->type) || in_blocks(b->type);
    uint64_t i;
    for (i = 0; i < a->dims[0] && (!memcmp(&x[i], &y[i], sizeof *x) ||
                                   (!(x[i] < 0 || x[i] > 0) && !(y[i] < 0 || y[i] > 0) &&
                                    x[i] - x[i] == 0 && y[i] - y[i] == 0 && unsigned_zeros));
         i++) {}
    if (i == a->dims[0]) return 1;
    different(a->name, "row %.0f, column %.0f is %.9g and %.9g (%s, %s)", (double)row, (double)i,
              (double)x[i], (double)y[i], a->type_name, b->type_name);
    return 0;
}

/* The numbers of a row: of floats and blocks as they are, of other ternary weights times the scale,
   for which data is the whole tensor. */
static void row_numbers(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const packing *p,
                        const uint8_t *data, uint64_t row, int8_t **codes, float *x) {
    const uint64_t dims[1] = {t->dims[0]}, size = bitnet_tensor_size(t->type, 1, dims);
    bitnet_error err = {0};
    bitnet_ternary m;
    uint64_t i;
    float scale;
    if (is_float(t)) {
        if (bitnet_floats_unpack(t->type, data + row * size, (int32_t)dims[0], x, &err))
            fail(1, "tensor '%s': %s", t->name, err.text);
        return;
    }
    m = ternary_of(t, t->type, p);
    scale = inner_scale(g, t, &m, data);
    unpack(&m, p, t->name, data, (int32_t)row, 1, codes);
    for (i = 0; i < dims[0]; i++) x[i] = scale * (float)(*codes)[i];
}

static int same_floats(const bitnet_gguf *ga, const bitnet_gguf_tensor *a, const packing *pack_a,
                       const bitnet_gguf *gb, const bitnet_gguf_tensor *b, const packing *pack_b) {
    const uint64_t rows = a->dims[1] * a->dims[2] * a->dims[3];
    float *x = (float *)grow(0, a->dims[0] * sizeof *x);
    float *y = (float *)grow(0, a->dims[0] * sizeof *y);
    uint64_t row;
    int same = 1;
    bytes_in = (uint8_t *)grow(bytes_in, a->size);
    bytes_out = (uint8_t *)grow(bytes_out, b->size);
    read_bytes(ga, a, 0, bytes_in, a->size);
    read_bytes(gb, b, 0, bytes_out, b->size);
    for (row = 0; row < rows && same; row++) {
        row_numbers(ga, a, pack_a, bytes_in, row, &weights[0], x);
        row_numbers(gb, b, pack_b, bytes_out, row, &weights[1], y);
        same = same_numbers(a, b, row, x, y);
    }
    free(x);
    free(y);
    return same;
}

static int same_ternary(const bitnet_gguf *ga, const bitnet_gguf_tensor *a, const packing *pack_a,
                        const bitnet_gguf *gb, const bitnet_gguf_tensor *b,
                        const packing *pack_b) {
    const bitnet_ternary ma = ternary_of(a, a->type, pack_a);
    const bitnet_ternary mb = ternary_of(b, b->type, pack_b);
    float scale_a, scale_b;
    const int both_i2s = a->type == BITNET_TENSOR_I2_S && b->type == BITNET_TENSOR_I2_S;
    int32_t row, n, i;
    int any = 0;                       /* is a weight other than 0? */
    n_i2s += both_i2s;
    bytes_in = (uint8_t *)grow(bytes_in, a->size);
    bytes_out = (uint8_t *)grow(bytes_out, b->size);
    read_bytes(ga, a, 0, bytes_in, a->size);
    read_bytes(gb, b, 0, bytes_out, b->size);
    for (row = 0; row < ma.rows; row += n) {
        n = ma.rows - row < ROWS ? ma.rows - row : ROWS;
        unpack(&ma, pack_a, a->name, bytes_in, row, n, &weights[0]);
        unpack(&mb, pack_b, b->name, bytes_out, row, n, &weights[1]);
        for (i = 0; i < n * ma.n && weights[0][i] == weights[1][i]; i++) any |= weights[0][i];
        if (i == n * ma.n) continue;
        different(a->name, "row %d, column %d is %d and %d", (int)(row + i / ma.n),
                  (int)(i % ma.n), weights[0][i], weights[1][i]);
        return 0;
    }
    n_i2s_same += both_i2s;
    if (in_blocks(a->type) && in_blocks(b->type)) return same_floats(ga, a, pack_a, gb, b, pack_b);
    scale_a = inner_scale(ga, a, &ma, bytes_in);
    scale_b = inner_scale(gb, b, &mb, bytes_out);
    if (!any || !memcmp(&scale_a, &scale_b, sizeof scale_a)) return 1;
    different(a->name, "the scale is %.9g and %.9g", (double)scale_a, (double)scale_b);
    return 0;
}

static int same_bytes(const bitnet_gguf *ga, const bitnet_gguf_tensor *a, const bitnet_gguf *gb,
                      const bitnet_gguf_tensor *b) {
    uint64_t at, n, i;
    bytes_in = (uint8_t *)grow(bytes_in, PIECE);
    bytes_out = (uint8_t *)grow(bytes_out, PIECE);
    for (at = 0; at < a->size; at += n) {
        n = a->size - at < PIECE ? a->size - at : PIECE;
        read_bytes(ga, a, at, bytes_in, n);
        read_bytes(gb, b, at, bytes_out, n);
        for (i = 0; i < n && bytes_in[i] == bytes_out[i]; i++) {}
        if (i == n) continue;
        different(a->name, "byte %.0f of %s", (double)(at + i), a->type_name);
        return 0;
    }
    return 1;
}

/* How far a type's numbers may be off, in parts of the largest: a half of its last bit, and that of
   a scale. What is folded and what is not is compared so. */
static float rounding_of(uint32_t type) {
    return type == BITNET_TENSOR_F16 ? 0.0005f : type == BITNET_TENSOR_BF16 ? 0.004f
           : type == BITNET_TENSOR_F32 || in_blocks(type) ? 1e-6f
           : type == BITNET_TENSOR_Q8_0 ? 0.006f : 0.12f;
}

/* Reads a row in the plain basis. */
static void read_plain(const bitnet_gguf *g, const bitnet_gguf_tensor *t, const fold *f,
                       uint64_t row, float *x) {
    const uint64_t dims[1] = {t->dims[0]}, size = bitnet_tensor_size(t->type, 1, dims);
    bitnet_error err = {0};
    bytes_in = (uint8_t *)grow(bytes_in, size);
    read_bytes(g, t, row * size, bytes_in, size);
    if (bitnet_floats_unpack(t->type, bytes_in, (int32_t)dims[0], x, &err))
        fail(1, "tensor '%s': %s", t->name, err.text);
    if (fold_has(f, t->name)) fold_undo(f, t->name, x, (int32_t)dims[0]);
}

static int is_finite(float x) { return x - x == 0; }

/* The weights of matrices in different bases, which are rounded in one of them. What is not finite
   ends the search: no number is further off. */
static void verify_plain(const bitnet_gguf *ga, const bitnet_gguf_tensor *a, const bitnet_gguf *gb,
                         const bitnet_gguf_tensor *b) {
    const float ra = rounding_of(a->type), rb = rounding_of(b->type), most = ra > rb ? ra : rb;
    float *x = (float *)grow(0, a->dims[0] * sizeof *x), *y, largest = 0, off = 0;
    uint64_t row, i, at_row = 0, at = 0;
    y = (float *)grow(0, a->dims[0] * sizeof *y);
    for (row = 0; row < a->dims[1] * a->dims[2] * a->dims[3] && is_finite(off); row++) {
        read_plain(ga, a, &fold_a, row, x);
        read_plain(gb, b, &fold_b, row, y);
        for (i = 0; i < a->dims[0] && is_finite(off); i++) {
            const float size = x[i] < 0 ? -x[i] : x[i], d = x[i] > y[i] ? x[i] - y[i] : y[i] - x[i];
            if (!(size <= largest)) largest = size;
            if (d <= off) continue;
            off = d;
            at_row = row;
            at = i;
        }
    }
    if (!is_finite(off))
        different(a->name, "unfolded, row %.0f, column %.0f is %.9g and %.9g (%s, %s)",
                  (double)at_row, (double)at, (double)x[at], (double)y[at], a->type_name,
                  b->type_name);
    else if (off <= most * largest) {
        n_near++;
        printf("near    ");
        print_clean(a->name, (int)strlen(a->name));
        printf(": unfolded, off by up to %.1e of the largest weight (%s, %s)\n",
               largest > 0 ? (double)(off / largest) : 0, a->type_name, b->type_name);
    } else
        different(a->name, "unfolded, row %.0f, column %.0f is off by %.1e of the largest weight "
                  "(%s, %s)", (double)at_row, (double)at, (double)(off / largest), a->type_name,
                  b->type_name);
    free(x);
    free(y);
}

/* The likeliest reason why no I2_S is the same, whatever its scale. */
static void explain_packing(const char *path_a, const packing *pack_a, const char *path_b,
                            const packing *pack_b) {
    if (!n_i2s || n_i2s_same) return;
    print_note("a file does not say how its I2_S is packed; %s was read as %s (see --from-layout), "
               "%s as %s (see --i2s)", path_a, packing_name(pack_a->i2s_packing), path_b,
               packing_name(pack_b->i2s_packing));
}

static void verify_tensor(const bitnet_gguf *ga, const bitnet_gguf_tensor *a,
                          const packing *pack_a, const bitnet_gguf *gb,
                          const bitnet_gguf_tensor *b, const packing *pack_b) {
    int same;
    if (memcmp(a->dims, b->dims, sizeof a->dims)) {
        different(a->name, "its shape");
        return;
    }
    if (!fold_is_same(&fold_a, &fold_b, a->name, (int64_t)a->dims[0]) && is_float(a) &&
        is_float(b) && a->dims[0] <= INT32_MAX) {
        verify_plain(ga, a, gb, b);
        return;
    }
    if (is_ternary(a) && is_ternary(b)) same = same_ternary(ga, a, pack_a, gb, b, pack_b);
    else if ((is_float(a) || is_ternary(a)) && (is_float(b) || is_ternary(b)) &&
             a->dims[0] <= INT32_MAX) same = same_floats(ga, a, pack_a, gb, b, pack_b);
    else if (a->size && a->size == b->size && a->type == b->type) same = same_bytes(ga, a, gb, b);
    else {
        different(a->name, "%s and %s cannot be compared", a->type_name ? a->type_name : "?",
                  b->type_name ? b->type_name : "?");
        return;
    }
    if (!same) return;
    printf("same    ");
    print_clean(a->name, (int)strlen(a->name));
    putchar('\n');
}

int verify(const char *path_a, const packing *pack_a, const char *path_b, const packing *pack_b) {
    bitnet_gguf *ga = open_whole(path_a), *gb = open_whole(path_b);
    bitnet_gguf_tensor a, b;
    uint64_t i;
    fold_read(&fold_a, ga, path_a);
    fold_read(&fold_b, gb, path_b);
    fold_check(&fold_a, ga, path_a);
    fold_check(&fold_b, gb, path_b);
    for (i = 0; !bitnet_gguf_get_tensor(ga, i, &a); i++) {
        if (!bitnet_gguf_find_tensor(gb, a.name, &b)) verify_tensor(ga, &a, pack_a, gb, &b, pack_b);
        else different(a.name, "only in %s", path_a);
    }
    for (i = 0; !bitnet_gguf_get_tensor(gb, i, &b); i++)
        if (bitnet_gguf_find_tensor(ga, b.name, &a)) different(b.name, "only in %s", path_b);
    printf("%d difference%s", n_different, n_different == 1 ? "" : "s");
    if (n_near) printf(", %d tensors in another basis", n_near);
    putchar('\n');
    explain_packing(path_a, pack_a, path_b, pack_b);
    fold_free(&fold_a);
    fold_free(&fold_b);
    bitnet_gguf_close(ga);
    bitnet_gguf_close(gb);
    return n_different > 0;
}
