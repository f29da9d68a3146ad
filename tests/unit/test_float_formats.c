/* Embedding and head in blocks of integers: what a block means, and that a model with them gives
   the bits of one that holds the same weights in F32. */
#include "gguf_helpers.h"
#include "model_helpers.h"
#include "test.h"

typedef struct head_type {
    const char *name;
    uint32_t type;
    int block, bytes, codes;           /* weights and bytes of a block; codes of a weight */
    int zero;                          /* the code of 0 */
    int d_at, dmin_at;                 /* where in a block; dmin_at 0: it has none */
    int sub, sub_at, sub_bytes;        /* weights that share a scale; 0: they have none but d */
    int scales, zero_scale, leasts;    /* how many there are of either; the code of scale 0 */
    int e, e_min;                      /* exponents of d and dmin, for weights under 1 */
} head_type;
static const head_type head_types[] = {
    {"Q8_0", GB_TENSOR_Q8_0, 32, 34, 256, 0, 0, 0, 0, 0, 0, 1, 0, 1, 5, 0},
    {"Q4_0", GB_TENSOR_Q4_0, 32, 18, 16, 8, 0, 0, 0, 0, 0, 1, 0, 1, 9, 0},
    {"Q6_K", GB_TENSOR_Q6_K, 256, 210, 64, 32, 208, 0, 16, 192, 16, 256, 0, 1, 1, 0},
    {"Q4_K", GB_TENSOR_Q4_K, 256, 144, 16, 0, 0, 2, 32, 4, 12, 64, 0, 64, 3, 5},
    {"Q5_K", GB_TENSOR_Q5_K, 256, 176, 32, 0, 0, 2, 32, 4, 12, 64, 0, 64, 2, 5},
    {"Q5_0", GB_TENSOR_Q5_0, 32, 22, 32, 16, 0, 0, 0, 0, 0, 1, 0, 1, 8, 0},
    {"Q3_K", GB_TENSOR_Q3_K, 256, 110, 8, 4, 108, 0, 16, 96, 12, 64, 32, 1, 6, 0},
    {"Q2_K", GB_TENSOR_Q2_K, 256, 84, 4, 0, 80, 82, 16, 0, 16, 16, 0, 16, 7, 8}};
enum { HEAD_TYPES = sizeof head_types / sizeof head_types[0] };

static const head_type *head_type_of(uint32_t type) {    /* 0: a type of floats */
    int i;
    for (i = 0; i < HEAD_TYPES; i++)
        if (head_types[i].type == type) return &head_types[i];
    return 0;
}

/* ---- the formats, weight by weight, as ggml-common.h declares them ---- */

static double head_f16(const uint8_t *p) {
    int h = p[0] | p[1] << 8, e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? (double)NAN : (double)INFINITY)
                       : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -x : x;
}

/* Bits of a block that make a number: some of p[at] from bit `shift`, more at p[high_at]. */
typedef struct code_place { int at, shift, bits, high_at, high_shift, high_bits; } code_place;

/* Those of weight i's code. */
static code_place place_of(const head_type *t, int i) {
    const int half = i / 128, quarter = i % 128 / 32, eighth = i / 32, j = i % 32;
    code_place c = {2 + i, 0, 8, 0, 0, 0};
    switch (t->type) {
        case GB_TENSOR_Q4_0: return (code_place){2 + i % 16, i / 16 * 4, 4, 0, 0, 0};
        case GB_TENSOR_Q5_0: return (code_place){6 + i % 16, i / 16 * 4, 4, 2 + i / 8, i % 8, 1};
        case GB_TENSOR_Q2_K: return (code_place){16 + 32 * half + j, 2 * quarter, 2, 0, 0, 0};
        case GB_TENSOR_Q3_K: return (code_place){32 + 32 * half + j, 2 * quarter, 2, j, eighth, 1};
        case GB_TENSOR_Q4_K:
            return (code_place){16 + eighth / 2 * 32 + j, eighth % 2 * 4, 4, 0, 0, 0};
        case GB_TENSOR_Q5_K:
            return (code_place){48 + eighth / 2 * 32 + j, eighth % 2 * 4, 4, 16 + j, eighth, 1};
        case GB_TENSOR_Q6_K:
            return (code_place){64 * half + i % 64, quarter / 2 * 4, 4, 128 + 32 * half + j,
                                2 * quarter, 2};
        default: return c;
    }
}

/* Those of the scale of sub-block s, or with least of its minimum. */
static code_place scale_place(const head_type *t, int s, int least) {
    code_place c = {t->sub_at + s, 0, 8, 0, 0, 0};
    switch (t->type) {
        case GB_TENSOR_Q2_K: return (code_place){s, 4 * least, 4, 0, 0, 0};
        case GB_TENSOR_Q3_K:
            return (code_place){96 + s % 8, s / 8 * 4, 4, 104 + s % 4, s / 4 * 2, 2};
        case GB_TENSOR_Q4_K: case GB_TENSOR_Q5_K:
            if (s < 4) return (code_place){4 + s + 4 * least, 0, 6, 0, 0, 0};
            return (code_place){8 + s, 4 * least, 4, s + 4 * least, 6, 2};
        default: return c;
    }
}

static int get_bits(const uint8_t *block, code_place c) {
    int high = block[c.high_at] >> c.high_shift & ((1 << c.high_bits) - 1);
    return (block[c.at] >> c.shift & ((1 << c.bits) - 1)) | high << c.bits;
}

static void put_some(uint8_t *p, int shift, int bits, int value) {
    const int mask = ((1 << bits) - 1) << shift;
    *p = (uint8_t)((*p & ~mask) | (value << shift & mask));
}

static void put_bits(uint8_t *block, code_place c, int value) {
    put_some(block + c.at, c.shift, c.bits, value);
    put_some(block + c.high_at, c.high_shift, c.high_bits, value >> c.bits);
}

static int get_code(const head_type *t, const uint8_t *block, int i) {
    return get_bits(block, place_of(t, i));
}

static void put_code(const head_type *t, uint8_t *block, int i, int code) {
    put_bits(block, place_of(t, i), code);
}

static void put_f16(uint8_t *p, int bits) {
    p[0] = (uint8_t)bits;
    p[1] = (uint8_t)(bits >> 8);
}

static void put_d(const head_type *t, uint8_t *block, int d) { put_f16(block + t->d_at, d); }

/* In double, where all is exact; so the float is rounded once. */
static float head_weight(const head_type *t, const uint8_t *block, int i) {
    const double d = head_f16(block + t->d_at);
    int code = get_code(t, block, i) - t->zero, scale;
    if (t->type == GB_TENSOR_Q8_0 && code >= 128) code -= 256;
    if (!t->sub) return (float)(d * code);
    scale = get_bits(block, scale_place(t, i / t->sub, 0)) - t->zero_scale;
    if (t->type == GB_TENSOR_Q6_K && scale >= 128) scale -= 256;
    if (!t->dmin_at) return (float)(d * scale * code);
    return (float)(d * scale * code - head_f16(block + t->dmin_at) *
                                          get_bits(block, scale_place(t, i / t->sub, 1)));
}

static void head_row_of(const head_type *t, const uint8_t *p, int n, float *out) {
    int i;
    for (i = 0; i < n; i++) out[i] = head_weight(t, p + i / t->block * t->bytes, i % t->block);
}

/* The number of a weight that bitnet__matrix_row has wrong, or -1; the blocks lie unaligned in a
   block of memory that is no larger. */
static int wrong_head_weight(const head_type *t, const uint8_t *blocks, int n, const float *want) {
    bitnet__matrix a;
    size_t size = (size_t)(n / t->block * t->bytes);
    uint8_t *copy = (uint8_t *)gb_malloc(size + 1);
    float *got = (float *)gb_malloc((size_t)n * sizeof *got);
    int i, wrong = -1;
    memset(&a, 0, sizeof a);
    memcpy(copy + 1, blocks, size);
    a.data = copy + 1;
    a.type = t->type;
    a.n_cols = n;
    a.n_rows = 1;
    a.row_bytes = size;
    bitnet__matrix_row(&a, 0, got);
    for (i = n - 1; i >= 0; i--)
        if (bitnet__float_bits(got[i]) != bitnet__float_bits(want[i]) &&
            !(got[i] != got[i] && want[i] != want[i])) wrong = i;
    free(copy);
    free(got);
    return wrong;
}

/* Blocks that another implementation of the formats has read, with d and dmin 1: the sums of each
   type's weights, each times the square of its number + 1. Byte k of a block is the top byte of
   (k + 1) * 2654435761, but for d and dmin. */
static void test_heads_golden(void) {
    static const int64_t sums[HEAD_TYPES] = {-2554, -9726, 685690163, 1291854658, 2868498034, 12327,
                                             -1547083, 18869759};
    uint8_t block[210];
    float want[256];
    int k, i, wrong;
    for (k = 0; k < HEAD_TYPES; k++) {
        const head_type *t = &head_types[k];
        int64_t sum = 0;
        for (i = 0; i < t->bytes; i++)
            block[i] = (uint8_t)(((uint32_t)i + 1) * 2654435761u >> 24);
        put_d(t, block, 0x3c00);
        if (t->dmin_at) put_f16(block + t->dmin_at, 0x3c00);
        for (i = 0; i < t->block; i++) {
            want[i] = head_weight(t, block, i);        /* which knows the sign of a 0, too */
            sum += (int64_t)want[i] * (i * i + 1);
        }
        CHECK_MSG(sum == sums[k], "this test's own %s: %.0f", t->name, (double)sum);
        wrong = wrong_head_weight(t, block, t->block, want);
        CHECK_MSG(wrong < 0, "%s: weight %d is not %g", t->name, wrong, (double)want[wrong]);
    }
}

/* The vectors of ../shared/blocks: 64 blocks of random bytes. */
static void test_heads_blocks(void) {
    int k, i, wrong;
    for (k = 0; k < HEAD_TYPES; k++) {
        const head_type *t = &head_types[k];
        char name[2][32];
        const char *path[2];
        uint8_t *data[2];
        float *want;
        size_t size[2];
        for (i = 0; i < 2; i++) {
            size_t at;
            snprintf(name[i], sizeof name[i], "blocks/%s.%s", t->name, i ? "f32" : "bin");
            for (at = strlen("blocks/"); name[i][at] != '.'; at++)
                if (name[i][at] == 'Q' || name[i][at] == 'K') name[i][at] |= 0x20;
            path[i] = test_shared(name[i]);
            if (!path[i]) SKIP("%s is not in BITNET_TEST_DATA", name[i]);
            data[i] = (uint8_t *)test_read_file(path[i], &size[i]);
        }
        CHECK(data[0] && data[1] && size[0] == 64 * (size_t)t->bytes &&
              size[1] == 64 * (size_t)t->block * 4);
        want = (float *)gb_malloc(size[1]);
        for (i = 0; i < 64 * t->block; i++) want[i] = bitnet__load_f32(data[1] + 4 * i);
        wrong = wrong_head_weight(t, data[0], 64 * t->block, want);
        free(data[0]);
        free(data[1]);
        free(want);
        CHECK_MSG(wrong < 0, "%s: weight %d", t->name, wrong);
    }
}

/* Every code in some place, with every d there is: negative, subnormal, infinite, NaN; and every
   dmin, with another d. The scales of Q6_K's 8 blocks are 128 of the 256. */
static void test_heads_every_d(void) {
    static uint8_t blocks[16 * 210];
    static float want[16 * 256];
    int k, i, d;
    for (k = 0; k < HEAD_TYPES; k++) {
        const head_type *t = &head_types[k];
        int n_blocks = t->sub ? 2 : 8, n = n_blocks * t->block, n_seen = 0;
        memset(blocks, 0, sizeof blocks);
        for (i = 0; i < n; i++)
            put_code(t, blocks + i / t->block * t->bytes, i % t->block, i * 5 % t->codes);
        for (i = 0; i < n_blocks * t->sub_bytes; i++)
            blocks[i / t->sub_bytes * t->bytes + t->sub_at + i % t->sub_bytes] =
                (uint8_t)(i < 4 ? 126 + i : i < 8 ? i + 250 : i * 43);
        for (i = 0; i < t->codes; i++) {
            int j;
            for (j = 0; j < n; j++)
                if (get_code(t, blocks + j / t->block * t->bytes, j % t->block) == i) break;
            n_seen += j < n;
        }
        CHECK_MSG(n_seen == t->codes, "%s: %d codes of %d", t->name, n_seen, t->codes);
        for (d = 0; d < 65536; d++) {
            if (test_quick() && d % 29 && d % 1024) continue;
            for (i = 0; i < n_blocks; i++) {
                put_d(t, blocks + i * t->bytes, d);
                if (t->dmin_at)
                    put_f16(blocks + i * t->bytes + t->dmin_at, (d ^ d << 7 ^ 0x1234) & 0xffff);
            }
            head_row_of(t, blocks, n, want);
            i = wrong_head_weight(t, blocks, n, want);
            CHECK_MSG(i < 0, "%s, d %04x: weight %d is not %g", t->name, (unsigned)d, i,
                      (double)want[i]);
        }
    }
}

/* Every scale with every code, and every minimum, for the largest, smallest, usual and strangest
   d. */
static void test_heads_every_scale(void) {
    static const int some_d[] = {0x3c00, 0x7bff, 0xfbff, 0x0001, 0x83ff, 0, 0x8000, 0x7c00, 0xfc00,
                                 0x7e01, 0xfdff};
    enum { N_D = sizeof some_d / sizeof some_d[0] };
    static uint8_t blocks[64 * 210];
    static float want[64 * 256];
    int i, k, j;
    for (j = 0; j < HEAD_TYPES; j++) {
        const head_type *t = &head_types[j];
        const int per = t->sub && t->codes > t->sub ? t->codes / t->sub : 1;   /* for all codes */
        const int n = t->sub * t->scales * per, n_blocks = n / t->block;
        memset(blocks, 0, sizeof blocks);
        for (i = 0; i < n; i++) {
            uint8_t *block = blocks + i / t->block * t->bytes;
            const int s = i / t->sub / per;
            put_code(t, block, i % t->block, i % (t->sub * per) % t->codes);
            put_bits(block, scale_place(t, i % t->block / t->sub, 0), s);
            if (t->dmin_at)
                put_bits(block, scale_place(t, i % t->block / t->sub, 1),
                         (s * 37 + 11) % t->leasts);
        }
        for (k = 0; k < N_D && n > 0; k++) {
            for (i = 0; i < n_blocks; i++) {
                put_d(t, blocks + i * t->bytes, some_d[k]);
                if (t->dmin_at)
                    put_f16(blocks + i * t->bytes + t->dmin_at, some_d[(k * 3 + 1) % N_D]);
            }
            head_row_of(t, blocks, n, want);
            i = wrong_head_weight(t, blocks, n, want);
            CHECK_MSG(i < 0, "%s, d %04x: weight %d is not %g", t->name, (unsigned)some_d[k], i,
                      (double)want[i]);
        }
    }
}

/* ---- models ---- */

/* Two models of the same weights: one as its types say, the other with blocks as F32. */
typedef struct head_pair { gb_model blocks, floats; } head_pair;

/* Random blocks of weights of about 1/16 to 1; d may be negative, subnormal or 0, and with wild in
   some rows infinite or NaN. Floats: what they mean. */
static uint8_t *random_head_blocks(const head_type *t, uint64_t *seed, int rows, int dim, int wild,
                                   float **floats, size_t *size) {
    size_t row = (size_t)(dim / t->block * t->bytes), i;
    uint8_t *p = (uint8_t *)gb_malloc(row * (size_t)rows);
    int r, k;
    *size = row * (size_t)rows;
    *floats = (float *)gb_malloc((size_t)rows * (size_t)dim * sizeof **floats);
    for (i = 0; i < *size; i++) p[i] = (uint8_t)gb_random(seed);
    for (r = 0; r < rows; r++)
        for (k = 0; k < dim / t->block; k++) {
            uint8_t *block = p + (size_t)r * row + k * t->bytes;
            uint32_t x = gb_random(seed);
            int d = (int)(x & 0x83ff) | (t->e + (int)(x >> 16 & 1)) << 10;
            int dmin = (int)(gb_random(seed) & 0x83ff) | t->e_min << 10;
            if (x >> 20 == 0) d = (int)(x & 0x83ff);
            if (x >> 20 == 1) d = 0x8000;
            if (wild && r % 50 == 7 && k == 0) d = r % 100 == 7 ? 0xfc00 : 0x7d01;
            if (wild && r % 50 == 9 && k == 0) dmin = r % 100 == 9 ? 0xfc00 : 0x7d01;
            put_d(t, block, d);
            if (t->dmin_at) put_f16(block + t->dmin_at, dmin);
        }
    for (r = 0; r < rows; r++)
        head_row_of(t, p + (size_t)r * row, dim, *floats + (size_t)r * (size_t)dim);
    return p;
}

/* One of the matrices, into both models. */
static uint8_t *fill_head_matrix(uint32_t type, uint64_t *seed, int rows, int dim, int wild,
                                 float **a, float **b, size_t *size) {
    const head_type *t = head_type_of(type);
    size_t n = (size_t)rows * (size_t)dim;
    uint8_t *raw = 0;
    if (t) raw = random_head_blocks(t, seed, rows, dim, wild, a, size);
    else *a = gb_random_matrix(seed, dim, n);
    *b = (float *)gb_malloc(n * sizeof **b);
    memcpy(*b, *a, n * sizeof **b);
    return raw;
}

enum { HEAD_TIED = 0xffff };
static void make_head_pair(head_pair *h, uint32_t embed, uint32_t head, int spare_rows, int wild) {
    uint64_t seed = 17 + embed * 64 + head;
    gb_model *a = &h->blocks, *b = &h->floats;
    uint8_t *embed_raw, *head_raw = 0;
    int rows = 259 + spare_rows;
    memset(h, 0, sizeof *h);
    a->dim = 256, a->ffn = 128, a->layers = 2, a->heads = 4, a->kv_heads = 2, a->seed = 5;
    a->spare_rows = spare_rows;
    a->untied = head != HEAD_TIED;
    *b = *a;
    a->embed_type = b->embed_type = embed;
    a->head_type = b->head_type = head;
    embed_raw = fill_head_matrix(embed, &seed, rows, a->dim, wild && !a->untied, &a->embed,
                                 &b->embed, &a->embed_raw_size);
    if (a->untied)
        head_raw = fill_head_matrix(head, &seed, rows, a->dim, wild, &a->head, &b->head,
                                    &a->head_raw_size);
    a->embed_raw = embed_raw;
    a->head_raw = head_raw;
    if (embed_raw) b->embed_type = GB_TENSOR_F32;
    if (head_raw) b->head_type = GB_TENSOR_F32;
    gb_make_model(a);
    gb_make_model(b);
    free(embed_raw);
    free(head_raw);
}

static void free_head_pair(head_pair *h) {
    gb_free_model(&h->blocks);
    gb_free_model(&h->floats);
}

/* All logits, tied and not, mixed with floats: those of the F32 model; then the same from every
   kernel table, in every split. */
static void test_heads_logits(void) {
    static const uint32_t kinds[][2] = {
        {GB_TENSOR_Q8_0, HEAD_TIED}, {GB_TENSOR_Q4_0, HEAD_TIED}, {GB_TENSOR_Q6_K, HEAD_TIED},
        {GB_TENSOR_Q6_K, GB_TENSOR_Q8_0}, {GB_TENSOR_F16, GB_TENSOR_Q6_K},
        {GB_TENSOR_Q4_0, GB_TENSOR_BF16}, {GB_TENSOR_Q8_0, GB_TENSOR_Q4_0},
        {GB_TENSOR_Q4_K, GB_TENSOR_Q6_K}, {GB_TENSOR_Q5_K, GB_TENSOR_Q4_K},
        {GB_TENSOR_Q4_K, HEAD_TIED}, {GB_TENSOR_Q5_0, GB_TENSOR_Q5_K},
        {GB_TENSOR_Q2_K, GB_TENSOR_Q3_K}, {GB_TENSOR_Q3_K, GB_TENSOR_Q2_K},
        {GB_TENSOR_F16, GB_TENSOR_Q5_0}};
    enum { N = 9 };
    bitnet_token tokens[N];
    int i, k;
    for (i = 0; i < N; i++) tokens[i] = (i * 71 + 3) % 259;
    for (k = 0; k < (int)(sizeof kinds / sizeof kinds[0]); k++) {
        bitnet_ctx_params p = ctx_params(N, 0, 1, BITNET_KV_F16);
        const bitnet_kernels *plain = &bitnet__kernels_scalar;
        size_t bytes = N * 259 * sizeof(float);
        head_pair h;
        float *want, *got;
        int same;
        make_head_pair(&h, kinds[k][0], kinds[k][1], 0, 0);
        want = logits_of(h.floats.data, h.floats.size, plain, &p, tokens, N, N);
        got = logits_of(h.blocks.data, h.blocks.size, plain, &p, tokens, N, N);
        same = want && got && !memcmp(want, got, bytes);
        for (i = 0; i < N * 259 && same; i++) same = want[i] > -1e9f && want[i] < 1e9f;
        if (same && !(test_quick() && k % 4))
            check_variants(h.blocks.data, h.blocks.size, tokens, N, 259, k == 2 && !test_quick());
        free(want);
        free(got);
        free_head_pair(&h);
        CHECK_MSG(same, "embedding of type %u, head of type %u", (unsigned)kinds[k][0],
                  (unsigned)kinds[k][1]);
    }
}

enum { HEAD_DRAWS = 24 };

/* What the head of the floats gives: the tokens drawn one after the other, the logits before each
   draw, and the generator's state after it. */
typedef struct {
    float *logits[HEAD_DRAWS];
    bitnet_token tokens[HEAD_DRAWS];
    uint64_t rng[HEAD_DRAWS];
} head_draws;

static bitnet_ctx *head_drawer(const bitnet_model *m, int threads, int no_copy, int top_k,
                               bitnet_sampler *s) {
    bitnet_ctx_params p = ctx_params(64, 0, threads, BITNET_KV_F16);
    p.n_logits = 1;
    p.no_head_copy = no_copy;
    memset(s, 0, sizeof *s);
    if (top_k) s->temperature = 0.8f, s->top_k = top_k, s->rng = 99;
    return create(m, &p);
}

static void make_head_draws(head_draws *d, const head_pair *h, int top_k) {
    bitnet_model *m = load(h->floats.data, h->floats.size, &bitnet__kernels_scalar);
    size_t bytes = (size_t)m->n_vocab * sizeof(float);
    bitnet_sampler s;
    bitnet_ctx *c = head_drawer(m, 1, 1, top_k, &s);
    bitnet_token t = 5;
    int i;
    for (i = 0; i < HEAD_DRAWS; i++) {
        bitnet_eval(c, 0, &t, 1, 1, 0);
        d->logits[i] = (float *)memcpy(gb_malloc(bytes), bitnet_logits(c, -1, NULL), bytes);
        d->tokens[i] = t = bitnet_sample(c, -1, &s, NULL);
        d->rng[i] = s.rng;
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
}

/* The head of the blocks screened, that of the floats whole: draw by draw the same token, all
   logits within their bounds, and the candidates' logits those of all. Returns the draws that were
   screened; negative: something differs. */
static int compare_head_draws(const head_pair *h, const head_draws *whole, const bitnet_kernels *k,
                              int threads, int top_k) {
    bitnet_model *m = load(h->blocks.data, h->blocks.size, k);
    bitnet_sampler s;
    bitnet_ctx *c = head_drawer(m, threads, 0, top_k, &s);
    bitnet_token t = 5;
    int i, j, n_screened = 0;
    for (i = 0; i < HEAD_DRAWS && n_screened >= 0; i++) {
        bitnet_eval(c, 0, &t, 1, 1, 0);
        t = bitnet_sample(c, -1, &s, NULL);
        if (bitnet_ctx_exact_logits(c) < m->n_vocab) {
            n_screened++;
            for (j = 0; j < bitnet_ctx_exact_logits(c); j++) {
                const bitnet__candidate *x = &c->head->candidates[j];
                float logit = whole->logits[i][x->token];
                if (top_k == 0 && logit == logit && memcmp(&x->logit, &logit, 4)) n_screened = -99;
            }
            for (j = 0; j < m->n_vocab; j++) {
                const float logit = whole->logits[i][j];
                if (logit < c->head->low[j] || logit > c->head->high[j]) n_screened = -99;
            }
        }
        if (t != whole->tokens[i] || s.rng != whole->rng[i]) n_screened = -99;
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    return n_screened;
}

static void run_heads_screened(int wild) {
    int i, k, threads, top_k;
    for (i = 0; i < HEAD_TYPES; i++) {
        const head_type *t = &head_types[i];
        head_pair h;
        make_head_pair(&h, t->type, wild ? t->type : (uint32_t)HEAD_TIED, 1400, wild);
        for (top_k = 0; top_k <= 20; top_k += 20) {
            head_draws whole;
            make_head_draws(&whole, &h, top_k);
            for (k = 0; k < bitnet_kernels_count(); k++)
                for (threads = 1; threads <= 3 && bitnet_kernels_usable(bitnet_kernels_get(k));
                     threads++) {
                    int n;
                    if (test_quick() && (k + threads + top_k / 20 + i) % 7) continue;
                    n = compare_head_draws(&h, &whole, bitnet_kernels_get(k), threads, top_k);
                    CHECK_MSG(n >= 12, "%s, kernels %s, %d threads, top_k %d: %s", t->name,
                              bitnet_kernels_get(k)->name, threads, top_k,
                              n < 0 ? "other draws, or wrong bounds" : "hardly a draw screened");
                }
            for (k = 0; k < HEAD_DRAWS; k++) free(whole.logits[k]);
        }
        free_head_pair(&h);
    }
}
static void test_heads_screened(void) { run_heads_screened(0); }
static void test_heads_screened_wild(void) { run_heads_screened(1); }

/* Through callbacks the same bits; and evaluating allocates nothing, screened or not. */
static void test_heads_loading(void) {
    enum { N = 5 };
    static const bitnet_token tokens[N] = {1, 200, 33, 4, 99};
    int i;
    for (i = 0; i < HEAD_TYPES; i++) {
        bitnet_ctx_params p = ctx_params(N + 3, 0, 2, BITNET_KV_F16);
        bitnet_model_params mp;
        bitnet_model_info info;
        bitnet_model *m = 0;
        bitnet_ctx *c = 0;
        gb_counter count;
        gb_reader reader;
        bitnet_io io;
        head_pair h;
        float *want;
        long calls;
        int same;
        make_head_pair(&h, GB_TENSOR_F16, head_types[i].type, 0, 0);
        want = logits_of(h.floats.data, h.floats.size, 0, &p, tokens, N, N);
        io = gb_io(&reader, h.blocks.data, h.blocks.size);
        memset(&mp, 0, sizeof mp);
        mp.allocator = gb_counting(&count);
        CHECK(want && !bitnet_model_load_io(&io, &mp, &m, 0) && !reader.past_end);
        bitnet_model_get_info(m, &info);
        CHECK(!strcmp(info.embed_type, "F16") && !strcmp(info.head_type, head_types[i].name));
        CHECK(info.head_bytes ==
              (uint64_t)(259 * (256 / head_types[i].block) * head_types[i].bytes));
        CHECK(!bitnet_ctx_create(m, &p, &c, 0));
        calls = count.calls;
        CHECK(!bitnet_eval(c, 0, tokens, N - 1, N - 1, 0) && bitnet_sample(c, -1, 0, NULL) >= 0);
        bitnet_seq_rewind(c, 0, 0, NULL);
        CHECK(!bitnet_eval(c, 0, tokens, N, N, 0) && bitnet_logits(c, 0, NULL));
        same = !memcmp(want, bitnet_logits(c, 0, NULL), N * 259 * sizeof *want);
        CHECK_MSG(count.calls == calls, "%s: %ld allocations", head_types[i].name,
                  count.calls - calls);
        bitnet_ctx_free(c);
        bitnet_model_free(m);
        free(want);
        free_head_pair(&h);
        CHECK_MSG(same && count.live == 0, "%s", head_types[i].name);
    }
}

/* ---- files that are wrong ---- */

static const char *head_hook_tensor;
static uint32_t head_hook_type;
static uint64_t head_hook_rows;
static int head_change_type(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                       uint64_t *offset) {
    (void)n_dims, (void)offset;
    if (strcmp(name, head_hook_tensor)) return 0;
    *type = head_hook_type;
    if (head_hook_rows) dims[1] = head_hook_rows;
    return 0;
}

/* A model of floats whose tensor says that it is of another type. */
static void retyped_head(int dim, int untied, const char *name, uint32_t type, uint64_t rows,
                    bitnet_result code, const char *word) {
    gb_model m = {.ffn = 128, .layers = 1, .heads = 2, .kv_heads = 1, .seed = 4};
    m.dim = dim;
    m.untied = untied;
    m.file.tensor_hook = head_change_type;
    head_hook_tensor = name;
    head_hook_type = type;
    head_hook_rows = rows;
    expect(&m, code, name, word);
}

static void test_heads_refused(void) {
    static const char *const matrices[] = {"token_embd.weight", "output.weight"};
    int i, k;
    for (i = 0; i < 2; i++) {
        for (k = 0; k < HEAD_TYPES; k++) {     /* 80 and 160 are no whole blocks */
            const head_type *t = &head_types[k];
            retyped_head(t->block == 32 ? 80 : 160, i, matrices[i], t->type, 0, BITNET_ERR_FORMAT,
                         t->block == 32 ? "rows of 80 weights, which are not whole blocks of 32"
                                        : "rows of 160 weights, which are not whole blocks of 256");
            if (i == 0) retyped_head(256, i, matrices[i], t->type, 0, BITNET_OK, 0);
            else               /* the file's last tensor: smaller, it leaves bytes to nobody */
                retyped_head(256, i, matrices[i], t->type, 0, BITNET_ERR_FORMAT,
                             "behind the last tensor 'output.weight'");
            retyped_head(256, i, matrices[i], t->type, 0xffffffffu, BITNET_ERR_TRUNCATED,
                         "past the end");
            retyped_head(256, i, matrices[i], t->type, (uint64_t)1 << 33, BITNET_ERR_LIMIT,
                         "offset ");
            retyped_head(256, i, matrices[i], t->type, 258, BITNET_ERR_FORMAT, "256 x 258");
        }
        retyped_head(256, i, matrices[i], 3, 0, BITNET_ERR_UNSUPPORTED,
                     "type 3 (Q4_1); F32, F16, BF16");
        retyped_head(256, i, matrices[i], 14 + 1, 0, BITNET_ERR_UNSUPPORTED, "type 15 (Q8_K)");
        retyped_head(256, i, matrices[i], 26, 0, BITNET_ERR_UNSUPPORTED, "type 26 (I32)");
        retyped_head(256, i, matrices[i], 36, 0, BITNET_ERR_UNSUPPORTED, "type 36 (I2_S)");
    }
    for (i = 0; i < 2; i++)
        for (k = 0; k < HEAD_TYPES; k++) {
            const head_type *t = &head_types[k];
            char word[64];
            snprintf(word, sizeof word, "type %u (%s); a norm needs F32", (unsigned)t->type,
                     t->name);
            retyped_head(256, 0, i ? "output_norm.weight" : "blk.0.attn_norm.weight", t->type, 0,
                         BITNET_ERR_UNSUPPORTED, word);
        }
}

/* The head is the file's last tensor: wherever in it the file ends, it is refused. */
static void test_heads_cut(void) {
    int i, k;
    for (k = 0; k < HEAD_TYPES; k++) {
        head_pair h;
        make_head_pair(&h, GB_TENSOR_F16, head_types[k].type, 0, 0);
        for (i = 0; i < 60; i++) {
            size_t gone = i < 20 ? (size_t)i : (size_t)i * (size_t)i * 7;
            size_t size = h.blocks.size - gone;
            uint8_t *exact = (uint8_t *)gb_malloc(size);
            int loaded;
            memcpy(exact, h.blocks.data, size);
            loaded = try_load(exact, size, i % 2, 0, "a head cut off", (unsigned long)gone);
            free(exact);
            CHECK_MSG(loaded == (gone ? 1 : 2), "%s: %d bytes less", head_types[k].name, (int)gone);
        }
        free_head_pair(&h);
    }
}

extern const test_case float_formats_tests[];
const test_case float_formats_tests[] = {
    {"float_formats/golden", test_heads_golden},
    {"float_formats/blocks", test_heads_blocks},
    {"float_formats/every_d", test_heads_every_d},
    {"float_formats/every_scale", test_heads_every_scale},
    {"float_formats/logits", test_heads_logits},
    {"float_formats/screened", test_heads_screened},
    {"float_formats/screened_wild", test_heads_screened_wild},
    {"float_formats/loading", test_heads_loading},
    {"float_formats/refused", test_heads_refused},
    {"float_formats/cut", test_heads_cut},
    {0, 0}
};
