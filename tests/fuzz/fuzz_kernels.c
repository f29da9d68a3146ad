/* Every usable kernel table against the scalar one: the same bits from the same bytes, in blocks of
   exactly their size and at any address. The input: entry, shape, offset, then bytes. */
#include "fuzz.h"

enum {
    KERNELS_QUANTIZE, KERNELS_TERNARY, KERNELS_F32, KERNELS_F16, KERNELS_BF16, KERNELS_KEYS,
    KERNELS_MIX_F32, KERNELS_MIX_F16, KERNELS_SOFTMAX, KERNELS_ROPE, KERNELS_STORE,
    KERNELS_DEQUANTIZE, KERNELS_RELU2, KERNELS_SIGMOID, KERNELS_RMSNORM, KERNELS_U4,
    KERNELS_GROUPS, KERNELS_CACHED_KEYS, KERNELS_WEIGH, KERNELS_CACHED_VALUES,
    KERNELS_GATE, KERNELS_HADAMARD, KERNELS_DELTA, KERNELS_I2S, KERNELS_Q4_K, KERNELS_ENTRIES,
    KERNELS_WORK = 12000               /* products at most, or nearly; more of an int8 cache */
};

/* A call's arguments; weights at an odd address if need be. */
typedef struct kernels_call {
    int entry, n, rows, cols, spare, flag;     /* spare: elements between rows of results */
    int group;                         /* of KERNELS_GROUPS; else n */
    const bitnet__blocks *blocks;      /* of KERNELS_GROUPS */
    int first, from, to;               /* of an int8 cache: an element, positions */
    uint8_t *w_block, *w;
    float *x;                          /* [cols][n], and as much again */
    int8_t *q;                         /* [cols][n] */
    int32_t *sums, *dots;              /* [cols][n / group]; [n] */
    float f;
} kernels_call;

/* Results of one table: floats and integers, with what lies between them. */
typedef struct kernels_results { float *y; int32_t *dots; int8_t *q; size_t n; float scale; }
kernels_results;

static uint8_t *kernels_pack(const bitnet_kernels *k, const kernels_call *a) {
    const size_t size = k->packed_bytes(a->n, a->rows);
    uint8_t *packed = (uint8_t *)gb_malloc(size), *ours = (uint8_t *)gb_malloc(size);
    const int bad = k->pack(a->w, a->n, a->rows, packed);
#if BITNET__TL2
    FUZZ_CHECK(bad == bitnet__pack_tl2_scalar(a->w, a->n, a->rows, ours));
#endif
    free(ours);
    if (!bad) return packed;
    free(packed);
    return 0;
}

/* 0: the table is to read the blocks themselves. */
static uint8_t *kernels_pack_groups(const bitnet_kernels *k, const kernels_call *a) {
    const size_t row = bitnet__blocks_bytes(a->blocks, a->n, 1);
    uint8_t *packed;
    int r;
    if (!k->pack_groups || !a->blocks->bits || a->spare % 2) return 0;
    packed = (uint8_t *)gb_malloc((size_t)(a->rows + 15) / 16 * 16 * row);
    for (r = 0; r < a->rows; r += 16)
        k->pack_groups(a->blocks, a->w + (size_t)r * row, a->n,
                       a->rows - r < 16 ? a->rows - r : 16, packed + (size_t)r * row);
    return packed;
}

/* y: a state of n keys and `rows` values, then what its `cols` tokens read. x has of each token the
   query, the key, the values, the decay and beta. With flag 1 the state is of small floats. */
static void kernels_delta(const bitnet_kernels *k, const kernels_call *a, float *y) {
    bitnet__delta d;
    int i;
    d.n_keys = a->n;
    d.n_values = a->rows;
    d.n_tokens = a->cols;
    d.stride = d.gate_stride = (size_t)(2 * a->n + a->rows + 2);
    d.out_stride = (size_t)(a->rows + a->spare);
    d.q = a->x;
    d.k = d.q + a->n;
    d.v = d.k + a->n;
    d.decay = d.v + a->rows;
    d.beta = d.decay + 1;
    d.state = y;
    d.out = y + a->n * a->rows;
    memcpy(y, a->w, (size_t)(a->n * a->rows) * sizeof *y);
    for (i = 0; a->flag && i < a->n * a->rows; i++)
        y[i] = (float)((int32_t)bitnet__float_bits(y[i]) >> 8) * (1.0f / 65536.0f);
    k->delta_rule(&d);
}

static void kernels_run(const bitnet_kernels *k, const kernels_call *a, kernels_results *r) {
    const size_t stride = (size_t)(a->rows + a->spare);
    bitnet__dots d = {a->w, a->q, a->sums, a->n, a->rows, a->cols, r->dots, (size_t)a->n, stride};
    uint8_t *packed = 0;
    int c;
    switch (a->entry) {
        case KERNELS_QUANTIZE: r->scale = k->quantize(a->x, a->n, r->q, r->dots); break;
        case KERNELS_TERNARY:
            if (k->pack && !(packed = kernels_pack(k, a))) {   /* a code 3: scalar's instead */
                bitnet__dotrows_i2s_scalar(&d);
                break;
            }
            if (packed) d.w = packed;
            k->dotrows_ternary(&d);
            free(packed);
            break;
        case KERNELS_I2S: k->dotrows_i2s(&d); break;
        case KERNELS_F32: k->dotrows_f32(a->w, a->x, a->n, a->rows, a->cols, r->y, stride); break;
        case KERNELS_F16: k->dotrows_f16(a->w, a->x, a->n, a->rows, a->cols, r->y, stride); break;
        case KERNELS_BF16: k->dotrows_bf16(a->w, a->x, a->n, a->rows, a->cols, r->y, stride); break;
        case KERNELS_Q4_K:             /* a table may have none */
            (k->dotrows_q4_k ? k->dotrows_q4_k : bitnet__dotrows_q4_k_scalar)(
                a->w, a->x, a->n, a->rows, a->cols, r->y, stride);
            break;
        case KERNELS_KEYS: k->scores_f16(a->w, a->x, a->n, a->rows, a->cols, r->y, stride); break;
        case KERNELS_MIX_F32:
        case KERNELS_MIX_F16:
            memcpy(r->y, a->x, (size_t)a->n * (size_t)a->cols * sizeof *r->y);
            (a->entry == KERNELS_MIX_F32 ? k->sumrows_f32 : k->sumrows_f16)(
                a->w, (size_t)a->n, a->x, (size_t)a->rows, a->n, a->rows, a->cols, r->y);
            break;
        case KERNELS_SOFTMAX:
            memcpy(r->y, a->x, (size_t)a->n * sizeof *r->y);
            k->softmax(r->y, a->n, a->f, a->flag);
            break;
        case KERNELS_ROPE: k->rope(a->x, a->x + a->n, a->rows % (a->n + 1) / 2 * 2, a->n, a->flag,
                                   r->y); break;
        case KERNELS_STORE: k->store_f16(a->x, a->n, (uint8_t *)r->y); break;
        case KERNELS_DEQUANTIZE:
            memcpy(r->y, a->x, (size_t)a->n * sizeof *r->y);
            k->dequantize(a->dots, a->f, a->n, a->flag, r->y);
            break;
        case KERNELS_RELU2: k->relu2_gate(a->x, a->x + a->n, a->n, r->y); break;
        case KERNELS_SIGMOID:
            k->sigmoid_gate(a->x, a->x + a->n, a->flag ? -1.6f : -1.0f, a->flag ? -0.07f : 0.0f,
                            a->n, r->y);
            break;
        case KERNELS_GATE: k->sigmoid(a->x, a->x + a->n, a->n, r->y); break;
        case KERNELS_HADAMARD:
            memcpy(r->y, a->x, (size_t)(a->n * a->cols) * sizeof *r->y);
            k->hadamard(r->y, a->n * a->cols, a->n);
            break;
        case KERNELS_DELTA: kernels_delta(k, a, r->y); break;
        case KERNELS_RMSNORM: k->rmsnorm(a->x, a->x + a->n, a->n, 1e-5f, r->y); break;
        case KERNELS_GROUPS:
            packed = kernels_pack_groups(k, a);
            k->dotrows_groups(&(bitnet__grouped){packed ? packed : a->w, a->blocks, a->q, a->sums,
                                                 a->x, a->n, a->rows, a->cols, a->flag, r->y,
                                                 stride, packed != 0});
            free(packed);
            break;
        case KERNELS_CACHED_KEYS:
            k->scores_i8(a->w, a->q, a->sums, a->n, a->rows, a->cols, r->y, stride);
            break;
        case KERNELS_WEIGH:
            k->weigh_i8(a->x, a->w, a->n, a->rows, a->from, a->to, (uint8_t *)r->q, r->y);
            break;
        case KERNELS_CACHED_VALUES:
            memcpy(r->y, a->x + a->rows * a->cols / 64,
                   (size_t)(a->n - a->first) * (size_t)a->cols * sizeof *r->y);
            k->sumrows_i8(a->w, (const uint8_t *)a->q, a->x, (size_t)a->rows, a->n, a->first,
                          a->n - a->first, a->rows, a->cols, r->y);
            break;
        default: k->dotrows_u4(&d); break;
    }
    for (c = 0; a->entry == KERNELS_STORE && c < a->n; c++) {
        const float h = bitnet__load_f16((const uint8_t *)r->y + 2 * c);
        if (h != h) memset((uint8_t *)r->y + 2 * c, 0xFF, 2);  /* the payload of a NaN is free */
    }
}

static kernels_results kernels_room(const kernels_call *a) {
    kernels_results r;
    const size_t rows = (size_t)(a->rows + a->spare) * (size_t)a->cols;
    const size_t n = (size_t)a->n * (size_t)a->cols;
    r.n = rows > n ? rows : n;         /* weigh_i8 has a result for each row and each 64 of them */
    if (a->entry == KERNELS_DELTA) r.n = rows + (size_t)(a->n * a->rows);
    r.y = (float *)gb_malloc(r.n * sizeof *r.y);
    r.dots = (int32_t *)gb_malloc(r.n * sizeof *r.dots);
    r.q = (int8_t *)gb_malloc(r.n);
    r.scale = 0;
    memset(r.y, 0x4A, r.n * sizeof *r.y);
    memset(r.dots, 0x4A, r.n * sizeof *r.dots);
    memset(r.q, 0x4A, r.n);
    return r;
}

static void kernels_free(kernels_results *r) {
    free(r->y);
    free(r->dots);
    free(r->q);
}

/* Blocks have finite scales, and those of 256 weights no code 3. */
static void kernels_prepare_groups(kernels_call *a) {
    const bitnet__blocks *b = a->blocks;
    uint8_t *w = a->w;
    int g, i;
    for (g = 0; g < a->rows * (a->n / b->group); g++, w += b->bytes) {
        for (i = 0; b->group == 256 && i < b->bytes; i++)
            w[i] ^= (uint8_t)(w[i] & w[i] >> 1 & 0x55);
        if ((w[b->scale_at + 1] & 0x7c) == 0x7c) w[b->scale_at + 1] ^= 0x40;
    }
}

/* What the entries ask of their arguments. */
static void kernels_prepare(kernels_call *a, size_t x_size) {
    const int n = a->n * a->cols;
    int i, c;
    for (i = 0; i < (int)x_size && (a->entry == KERNELS_KEYS || a->entry == KERNELS_MIX_F16); i++) {
        a->x[i] = bitnet__to_f13(a->x[i]);
        if (a->x[i] != a->x[i]) a->x[i] = 0;
    }
    if (a->entry == KERNELS_GROUPS) kernels_prepare_groups(a);
    for (i = 0; i < n && a->entry == KERNELS_CACHED_KEYS; i++) a->q[i] |= a->q[i] == -128;
    for (i = 0; i < a->rows * a->cols && a->entry == KERNELS_CACHED_VALUES; i++) a->q[i] &= 127;
    for (c = 0; c < n / a->group; c++)
        for (i = 0, a->sums[c] = 0; i < a->group; i++) a->sums[c] += a->q[c * a->group + i];
}

/* The bytes of rows * n weights of the entry's type. */
static size_t kernels_weight_bytes(const kernels_call *a) {
    const size_t n = (size_t)a->n * (size_t)a->rows;
    switch (a->entry) {
        case KERNELS_GROUPS: return n / (size_t)a->group * (size_t)a->blocks->bytes;
        case KERNELS_TERNARY: case KERNELS_I2S: return n / 4;
        case KERNELS_Q4_K: return n / 256 * 144;
        case KERNELS_U4: return n / 2;
        case KERNELS_F32: case KERNELS_MIX_F32: case KERNELS_DELTA: return 4 * n;
        default: return 2 * n;
    }
}

FUZZ_TARGET(kernels) {
    static const uint32_t blocks[] = {BITNET_TENSOR_Q2_0, BITNET_TENSOR_PQ2_0, BITNET_TENSOR_TQ2_0,
                                      BITNET_TENSOR_Q1_0, BITNET_TENSOR_PTQ1_0};
    fuzz_input in = {data, size};
    kernels_call a;
    kernels_results want, got;
    size_t offset, w_size, x_size, q_size;
    int i, tame, cached;
    a.entry = fuzz_range(&in, 0, KERNELS_ENTRIES - 1);
    a.n = a.entry == KERNELS_TERNARY || a.entry == KERNELS_U4 || a.entry == KERNELS_I2S
              ? 128 * fuzz_range(&in, 1, 10) : fuzz_range(&in, 1, 300);
    if (a.entry == KERNELS_Q4_K) a.n = 256 * (1 + a.n % 4);
    a.group = a.n;
    a.blocks = 0;
    if (a.entry == KERNELS_GROUPS) {
        a.blocks = bitnet__type_info(blocks[a.n < 250 ? a.n % 4 : 4])->groups;
        a.group = a.blocks->group;
        a.n = a.group * (1 + a.n / 4 % 4);
    }
    cached = a.entry == KERNELS_CACHED_KEYS || a.entry == KERNELS_WEIGH ||
             a.entry == KERNELS_CACHED_VALUES;
    if (cached) a.n = a.group = (a.n + 3) / 4 * 4;
    a.rows = fuzz_range(&in, 1, 40);
    a.cols = fuzz_range(&in, 1, 12);
    if (a.entry == KERNELS_HADAMARD) a.n = a.group = 1 << a.n % 9;
    if (a.entry == KERNELS_DELTA && a.rows > 32) a.rows = a.rows % 2 ? 16 : 32;
    a.spare = fuzz_range(&in, 0, 3);
    a.flag = fuzz_range(&in, 0, 1);
    offset = (size_t)fuzz_range(&in, 0, 3);
    tame = fuzz_range(&in, 0, 3);
    a.first = a.n * (a.rows % 3) / 4;
    a.from = a.rows * 7 - 60;
    a.to = 200 - a.cols * a.spare * 9;
    if (cached) a.rows = 64 * (1 + a.rows % 3);
    while (!cached && a.rows > 1 && a.rows * a.cols * a.n > KERNELS_WORK) a.rows = a.rows * 2 / 3;
    a.f = bitnet__float_from_bits(fuzz_uint(&in, 4));
    x_size = (2 * (size_t)a.n + (size_t)a.rows + 2) * (size_t)a.cols;
    q_size = (size_t)a.cols * (size_t)(a.n > a.rows ? a.n : a.rows);
    w_size = cached ? (size_t)a.rows * (size_t)(4 + a.n) : kernels_weight_bytes(&a);
    a.w_block = (uint8_t *)gb_malloc(w_size + offset);
    a.w = a.w_block + offset;
    a.x = (float *)gb_malloc(x_size * sizeof *a.x);
    a.q = (int8_t *)gb_malloc(q_size);
    a.sums = (int32_t *)gb_malloc((size_t)(a.cols * (a.n / a.group)) * sizeof *a.sums);
    a.dots = (int32_t *)gb_malloc(2 * (size_t)a.n * sizeof *a.dots);
    fuzz_fill(&in, a.w, w_size);
    fuzz_fill(&in, a.x, x_size * sizeof *a.x);
    fuzz_fill(&in, a.q, q_size);
    fuzz_fill(&in, a.dots, 2 * (size_t)a.n * sizeof *a.dots);
    for (i = 0; tame && i < (int)x_size; i++) {    /* most bits make wild floats */
        const int32_t v = (int32_t)bitnet__float_bits(a.x[i]);
        a.x[i] = (float)(v >> 8) * (1.0f / 65536.0f);
    }
    for (i = 0; tame > 1 && a.entry == KERNELS_TERNARY && i < (int)w_size; i++)
        a.w[i] ^= (uint8_t)(a.w[i] & a.w[i] >> 1 & 0x55);      /* no code 3 */
    for (i = 0; tame > 1 && (a.entry == KERNELS_F16 || a.entry == KERNELS_KEYS ||
                             a.entry == KERNELS_MIX_F16) && i < (int)w_size / 2; i++)
        a.w[2 * i + 1] &= 0xBF;        /* below 2 */
    kernels_prepare(&a, x_size);
    want = kernels_room(&a);
    kernels_run(fuzz_kernel_table(bitnet_kernels_count() - 1), &a, &want);
    for (i = 0; i < bitnet_kernels_count(); i++) {
        const bitnet_kernels *k = fuzz_kernel_table(i);
        if (!k) continue;
        got = kernels_room(&a);
        kernels_run(k, &a, &got);
        FUZZ_CHECK_MSG(!memcmp(got.dots, want.dots, want.n * sizeof *want.dots) &&
                       !memcmp(got.q, want.q, want.n) &&
                       fuzz_same_floats(&got.scale, &want.scale, 1) &&
                       fuzz_same_floats(got.y, want.y, want.n), "%s, entry %d, %d x %d x %d",
                       k->name, a.entry, a.n, a.rows, a.cols);
        kernels_free(&got);
    }
    kernels_free(&want);
    free(a.w_block);
    free(a.x);
    free(a.q);
    free(a.sums);
    free(a.dots);
}
