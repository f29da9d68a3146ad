/* Ternary weights in each packing: bytes become weights and the same bytes again, or are refused
   with their place; what the loader makes of them multiplies as the weights do, in every kernel
   table. The input: type, shape and tile, then bytes. */
#include "fuzz.h"
#include "../../examples/convert/pack.h"

enum { IMPORT_MAX = 768 * 64, IMPORT_WORK = 6000 };        /* weights: at most, and most often */

typedef struct import_matrix {
    bitnet_ternary t;
    size_t n, size;                    /* weights, bytes */
    uint8_t *data, *mask;              /* mask: the bits that are weights */
    int8_t *w, *again;                 /* [n] */
} import_matrix;

/* Is the type one of blocks that always have a scale each? */
static int import_is_grouped(const bitnet_ternary *t) {
    return bitnet__type_info(t->type)->keeps_scales;
}

/* Some digits have several bytes, and in Q1_0 the weights say something about the scale. */
static int import_has_twins(const bitnet_ternary *t) {
    return t->type == BITNET_TENSOR_TQ1_0 || t->type == BITNET_TENSOR_PTQ1_0 ||
           t->type == BITNET_TENSOR_Q1_0;
}

/* A weight that the type has, of any byte. */
static int8_t import_weight(const bitnet_ternary *t, uint8_t byte) {
    if (t->type == BITNET_TENSOR_Q1_0) return byte % 2 ? 1 : -1;
    return (int8_t)(byte % (bitnet__type_info(t->type)->most + 1) - 1);
}

/* A shape and a tile, most often ones that fit each other. */
static void import_shape(fuzz_input *in, bitnet_ternary *t) {
    static const uint32_t types[] = {BITNET_TENSOR_I2_S, BITNET_TENSOR_TL1, BITNET_TENSOR_TL2,
                                     BITNET_TENSOR_TQ1_0, BITNET_TENSOR_TQ2_0,
                                     BITNET_TENSOR_TL2_R16, BITNET_TENSOR_Q1_0,
                                     BITNET_TENSOR_Q2_0, BITNET_TENSOR_PQ2_0,
                                     BITNET_TENSOR_PTQ1_0};
    static const int tiles[] = {32, 16, 64, 96, 128, 24, 192, 256, 48, 0};
    static const int units[] = {256, 64, 32, 1};
    memset(t, 0, sizeof *t);
    t->type = types[fuzz_range(in, 0, 9)];
    t->i2s_packing = (bitnet_i2s_packing)fuzz_range(in, 0, 2);
    t->n = units[fuzz_range(in, 0, 3)];
    t->n *= fuzz_range(in, 1, 768 / t->n < 255 ? 768 / t->n : 255);
    if (t->type == BITNET_TENSOR_TL1 || t->type == BITNET_TENSOR_TL2) {
        t->tile.rows = tiles[fuzz_range(in, 0, 9)];
        t->tile.cols = tiles[fuzz_range(in, 0, 9)];
        t->tile.group = t->type == BITNET_TENSOR_TL1 ? tiles[fuzz_range(in, 0, 9)] : 32;
    }
    t->rows = t->tile.rows > 0 && t->tile.rows <= 64
                  ? t->tile.rows * fuzz_range(in, 1, 64 / t->tile.rows)
                  : fuzz_range(in, 1, 64);
    while (t->rows > (t->tile.rows ? t->tile.rows : 4) && t->rows * t->n > IMPORT_WORK)
        t->rows -= t->tile.rows ? t->tile.rows : 4;
}

/* Packs the same weights over zeros and over ones: what differs is no weight's. */
static void import_find_mask(import_matrix *m) {
    size_t i;
    bitnet_error err = {BITNET_OK, "", {0}};
    memset(m->data, 0, m->size);
    memset(m->mask, 0xFF, m->size);
    FUZZ_CHECK_MSG(!pack_ternary(&m->t, m->w, 0, m->t.rows, m->data, &err), "%s", err.text);
    FUZZ_CHECK(!pack_ternary(&m->t, m->w, 0, m->t.rows, m->mask, 0));
    for (i = 0; i < m->size; i++)
        m->mask[i] = m->t.type == BITNET_TENSOR_Q1_0 ? (i % 18 < 2 ? 0 : 255)
                                                     : (uint8_t)~(m->mask[i] ^ m->data[i]);
    FUZZ_CHECK(!bitnet_ternary_unpack(&m->t, m->data, 0, m->t.rows, m->again, 0));
    FUZZ_CHECK(!memcmp(m->again, m->w, m->n));
}

/* The weights, packed over the inverse of their bytes, are those bytes; the rest stays inverse. */
static void import_pack_again(import_matrix *m) {
    uint8_t *p = (uint8_t *)gb_malloc(m->size);
    size_t i;
    for (i = 0; i < m->size; i++) p[i] = (uint8_t)~m->data[i];
    FUZZ_CHECK(!pack_ternary(&m->t, m->w, 0, m->t.rows, p, 0));
    for (i = 0; i < m->size; i++) {
        if (m->t.type != BITNET_TENSOR_Q1_0)
            FUZZ_CHECK_MSG(((p[i] ^ m->data[i]) & ~m->mask[i] & 0xFF) == (~m->mask[i] & 0xFF),
                           "%lu", (unsigned long)i);
        if (!import_has_twins(&m->t))
            FUZZ_CHECK_MSG(!((p[i] ^ m->data[i]) & m->mask[i]), "%lu", (unsigned long)i);
    }
    FUZZ_CHECK(!bitnet_ternary_unpack(&m->t, p, 0, m->t.rows, m->again, 0));
    FUZZ_CHECK(!memcmp(m->again, m->w, m->n));
    free(p);
}

/* A few rows are those of the whole. */
static void import_rows(import_matrix *m, fuzz_input *in) {
    const int32_t row = fuzz_range(in, 0, m->t.rows - 1);
    const int32_t n = fuzz_range(in, 0, m->t.rows - row), k = m->t.n;
    int8_t *some = (int8_t *)gb_malloc((size_t)n * (size_t)k);
    uint8_t *p = (uint8_t *)gb_malloc(m->size);
    bitnet_error err = {BITNET_OK, "", {0}};
    FUZZ_CHECK(!bitnet_ternary_unpack(&m->t, m->data, row, n, some, &err));
    FUZZ_CHECK(!memcmp(some, m->w + (size_t)row * (size_t)k, (size_t)n * (size_t)k));
    memcpy(p, m->data, m->size);
    FUZZ_CHECK(!pack_ternary(&m->t, some, row, n, p, &err));
    FUZZ_CHECK(import_has_twins(&m->t) || !memcmp(p, m->data, m->size));
    FUZZ_CHECK(bitnet_ternary_unpack(&m->t, p, row, m->t.rows - row + 1, some, &err) ==
               BITNET_ERR_ARG);
    free(p);
    free(some);
}

static void import_scale(import_matrix *m, float wanted) {
    bitnet_error err = {BITNET_OK, "", {0}};
    float scale = 0, again = 0;
    bitnet_result r = bitnet_ternary_scale(&m->t, m->data, &scale, &err);
    fuzz_check_error(r, &err);
    if (r == BITNET_OK) wanted = wanted > 0 ? wanted : scale;
    r = pack_scale(&m->t, wanted, m->data, &err);
    fuzz_check_error(r, &err);
    if (r != BITNET_OK) return;
    r = m->t.type == BITNET_TENSOR_Q1_0 ? pack_find_scale(&m->t, m->data, &again, &err)
                                        : bitnet_ternary_scale(&m->t, m->data, &again, &err);
    FUZZ_CHECK_MSG(r == BITNET_OK, "%s", err.text);
    if (!pack_group(m->t.type))
        FUZZ_CHECK(fuzz_same_floats(&again, &wanted, 1));
    else FUZZ_CHECK(again == wanted || again == 1.0f);         /* 1: nothing but zeros */
}

/* The products of row r with activations in order, as @kernels defines them; NaN: a scale is not
   finite. */
static float import_product(const import_matrix *m, int r, const int8_t *q) {
    const bitnet__type *type = bitnet__type_info(m->t.type);
    const int8_t *w = m->w + (size_t)r * (size_t)m->t.n;
    float y = 0.0f;
    int k, i;
    for (k = 0; k < m->t.n; k += type->block) {
        const float d = bitnet__load_f16(bitnet__block_at(&m->t, m->data, r, k) + type->scale_at);
        int32_t dot = 0;
        if (d - d != 0.0f) return d - d;
        for (i = k; i < k + type->block; i++) dot += w[i] * q[i];
        y += (float)dot * d;
    }
    return y;
}

/* As a layer with a scale per group is loaded, then multiplied with activations of step 1. */
static void import_load_groups(import_matrix *m, fuzz_input *in) {
    static bitnet_model stub;
    static bitnet__packing p;
    const int n = m->t.n, block = bitnet__type_info(m->t.type)->block, groups = n / block;
    int8_t *q = (int8_t *)gb_malloc((size_t)n), *ordered = (int8_t *)gb_malloc((size_t)n);
    int32_t *sums = (int32_t *)gb_malloc((size_t)groups * sizeof *sums);
    float *ones = (float *)gb_malloc((size_t)groups * sizeof *ones);
    float *y = (float *)gb_malloc((size_t)m->t.rows * sizeof *y);
    uint8_t *out = (uint8_t *)gb_malloc(m->n + 16 * (size_t)n);    /* under a byte for a weight */
    uint8_t *rows = (uint8_t *)gb_malloc(64 * (size_t)n);
    int i, k, r, finite = 1;
    memset(q, 0, (size_t)n);
    fuzz_fill(in, q, (size_t)n);
    for (k = 0; k < groups; k++) {
        ones[k] = 1.0f;
        for (i = 0, sums[k] = 0; i < block; i++) sums[k] += q[k * block + i];
    }
    for (r = 0; r < m->t.rows; r++) {
        const float y0 = import_product(m, r, q);
        finite &= y0 - y0 == 0.0f;
    }
    for (i = 0; i < bitnet_kernels_count(); i++) {
        const bitnet_kernels *kernels = fuzz_kernel_table(i);
        bitnet__linear l;
        if (!kernels) continue;
        memset(&l, 0, sizeof l);
        l.w = m->data;
        l.file = m->t;
        l.n_out = m->t.rows;
        bitnet__set_group(&l);
        stub.kernels = *kernels;
        stub.params.in_place = m->t.rows % 2;
        p.m = &stub;
        p.linear = &l;
        p.jobs = 1;
        p.unit = 64;
        p.out = out;
        p.rows = rows;
        p.row_room = 64 * (size_t)n;
        l.plan = bitnet__choose_plan(&stub, &l);
        bitnet__pack_job(&p, 0, 0);
        FUZZ_CHECK((p.found[0].invalid == 0) == (finite != 0));
        if (!finite) continue;
        for (k = 0; k < n; k += block) l.blocks->order(q + k, block, ordered + k);
        kernels->dotrows_groups(&(bitnet__grouped){l.plan == BITNET__AS_IT_IS ? m->data : out,
                                                   l.blocks, ordered, sums, ones, n, m->t.rows, 1,
                                                   0, y, (size_t)m->t.rows,
                                                   l.plan == BITNET__TO_PACKS});
        for (r = 0; r < m->t.rows; r++) {
            const float want = import_product(m, r, q);
            FUZZ_CHECK_MSG(fuzz_same_floats(y + r, &want, 1), "%s, row %d: %g, not %g",
                           kernels->name, r, (double)y[r], (double)want);
        }
    }
    free(q);
    free(ordered);
    free(sums);
    free(ones);
    free(y);
    free(out);
    free(rows);
}

/* As a layer is loaded: packed for a kernel table, then multiplied with activations. */
static void import_load(import_matrix *m, fuzz_input *in, bitnet_result unpacked) {
    static bitnet_model stub;
    const size_t padded = (size_t)bitnet__padded_row(m->t.n);
    bitnet__linear l;
    int8_t *q = (int8_t *)gb_malloc(padded);
    int32_t *dots = (int32_t *)gb_malloc((size_t)m->t.rows * sizeof *dots), sum = 0, want;
    int i, k, r;
    memset(&l, 0, sizeof l);
    l.w = m->data;
    l.file = m->t;
    l.n_in = (int32_t)padded;
    l.n_out = m->t.rows;
    memset(q, 0, padded);
    fuzz_fill(in, q, (size_t)m->t.n);
    for (i = 0; i < m->t.n; i++) sum += q[i];
    for (i = 0; i < bitnet_kernels_count(); i++) {
        const bitnet_kernels *kernels = fuzz_kernel_table(i);
        static bitnet__packing p;
        const uint8_t *w = m->data;
        size_t n_out;
        uint8_t *out, *rows;
        if (!kernels) continue;
        stub.kernels = *kernels;
        p.m = &stub;
        p.linear = &l;
        p.jobs = 1;
        l.plan = bitnet__choose_plan(&stub, &l);
        p.unit = stub.kernels.pack_rows > 64 ? stub.kernels.pack_rows : 64;
        n_out = stub.kernels.packed_bytes(l.n_in, m->t.rows);
        out = (uint8_t *)gb_malloc(n_out);
        rows = (uint8_t *)gb_malloc(bitnet__i2s_bytes(l.n_in, p.unit));
        p.out = out;
        p.rows = stub.kernels.pack ? rows : 0;
        p.found[0].invalid = 0;
        bitnet__pack_job(&p, 0, 0);
        if (l.plan != BITNET__AS_IT_IS) w = out;
        FUZZ_CHECK(!p.found[0].invalid == !unpacked);
        if (!unpacked && !p.found[0].invalid) {
            stub.kernels.dotrows_ternary(&(bitnet__dots){w, q, &sum, l.n_in, m->t.rows, 1, dots,
                                                         (size_t)l.n_in, 1});
            for (r = 0; r < m->t.rows; r++) {
                const int8_t *row = m->w + (size_t)r * (size_t)m->t.n;
                for (k = 0, want = 0; k < m->t.n; k++) want += row[k] * q[k];
                FUZZ_CHECK_MSG(dots[r] == want, "%s, row %d: %d, not %d", kernels->name, r,
                               (int)dots[r], (int)want);
            }
        }
        free(out);
        free(rows);
    }
    free(q);
    free(dots);
}

FUZZ_TARGET(import) {
    fuzz_input in = {data, size};
    import_matrix m;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r;
    uint64_t dims[2];
    uint32_t damage, i;
    float scale;
    import_shape(&in, &m.t);
    r = bitnet_ternary_check(&m.t, "x", &err);
    fuzz_check_error(r, &err);
    if (r != BITNET_OK) return;
    dims[0] = (uint64_t)m.t.n;
    dims[1] = (uint64_t)m.t.rows;
    m.n = (size_t)m.t.n * (size_t)m.t.rows;
    m.size = (size_t)bitnet_tensor_size(m.t.type, 2, dims);
    FUZZ_CHECK(m.n <= IMPORT_MAX && m.size > 0);
    m.data = (uint8_t *)gb_malloc(m.size);
    m.mask = (uint8_t *)gb_malloc(m.size);
    m.w = (int8_t *)gb_malloc(m.n);
    m.again = (int8_t *)gb_malloc(m.n);
    damage = fuzz_uint(&in, 1);
    scale = bitnet__float_from_bits(fuzz_uint(&in, 2) << 16);
    /* the weights are the input's bytes; those of the tensor come from them, or are the input's */
    fuzz_fill(&in, m.w, m.n);
    for (i = 0; i < m.n; i++) m.w[i] = import_weight(&m.t, (uint8_t)m.w[i]);
    import_find_mask(&m);
    if (damage & 1) fuzz_fill(&in, m.data, m.size);
    else import_scale(&m, scale);
    for (i = 0; i < damage >> 6; i++) {
        const uint32_t at = fuzz_uint(&in, 2) % (uint32_t)m.size;
        m.data[at] = (uint8_t)fuzz_uint(&in, 1);
    }
    memset(m.w, 0x55, m.n);
    r = bitnet_ternary_unpack(&m.t, m.data, 0, m.t.rows, m.w, &err);
    fuzz_check_error(r, &err);
    FUZZ_CHECK(r == BITNET_OK || (r == BITNET_ERR_FORMAT && strstr(err.text, "at row ")));
    if (r == BITNET_OK) {
        for (i = 0; i < m.n; i++)
            FUZZ_CHECK(m.w[i] >= -1 && m.w[i] < bitnet__type_info(m.t.type)->most);
        import_pack_again(&m);
        import_rows(&m, &in);
    }
    if (import_is_grouped(&m.t)) import_load_groups(&m, &in);
    else import_load(&m, &in, r);
    if (r == BITNET_OK) import_scale(&m, 0);
    free(m.data);
    free(m.mask);
    free(m.w);
    free(m.again);
}
