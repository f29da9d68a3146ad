/* Ternary weights with a scale per group, of 64, 128 or 256: Q1_0, Q2_0 in both kinds, PTQ1_0,
   TQ1_0 and TQ2_0 whose blocks differ; ternary embeddings and heads; and what else such models
   bring along: YaRN, and qwen3 without norms in front of each layer. Models s64, s128 and s128p
   of BITNET_TEST_DATA come from an independent program, with reference results in float64;
   others are built here. */

#include "gguf_helpers.h"
#include "model_helpers.h"
#include "slow_model.h"
#include "ternary_helpers.h"
#include "test.h"

/* ---- models s64, s128, s128p against the float64 reference ---- */

enum { S_LAYERS = 3, S_DIM = 256, S_VOCAB = 2074, S_TOKENS = 24 };

static void s_tokens(bitnet_token *tokens) {
    int i;
    for (i = 0; i < S_TOKENS; i++) tokens[i] = 11 + 37 * i;        /* of the references */
}

static void *s_read(const char *name, const char *suffix, size_t *size) {
    char path[60];
    snprintf(path, sizeof path, "models/%s%s", name, suffix);
    return test_read_file(test_shared(path), size);
}

static float *s_floats(const char *name, const char *suffix, size_t n) {
    size_t size = 0, i;
    uint8_t *raw = (uint8_t *)s_read(name, suffix, &size);
    float *x = raw && size == n * 4 ? (float *)gb_malloc(n * sizeof *x) : 0;
    for (i = 0; x && i < n; i++) x[i] = bitnet__load_f32(raw + 4 * i);
    free(raw);
    return x;
}

#define NEED_MODELS() \
    do { \
        if (!test_shared("models/s64.gguf")) SKIP("models/s64.gguf is not in BITNET_TEST_DATA"); \
    } while (0)

/* A number that lies on the edge between two integers to within float's precision may be rounded
   otherwise than in float64 (FORMATS.md, "How close is close"), and spoils its token and slightly
   those behind it. So the kernel that rounds also notes which elements lie there, and rounds those
   of a list the other way: with the right few of them, every token must be right to 1e-5. */
enum { MAX_FLIPS = 3, MAX_EDGES = 256 };

typedef struct edge { int call, i, token; } edge;

static struct {
    int call, token;
    int n_flips, n_edges;
    edge flips[MAX_FLIPS], edges[MAX_EDGES];
} rounding;

static float flipping_quantize(const float *x, int n, int8_t *q, int32_t *sum) {
    const float s = bitnet__quantize_scalar(x, n, q, sum);
    double a = 1e-5;
    int i, k;
    for (i = 0; i < n; i++)
        if (fabs((double)x[i]) > a) a = fabs((double)x[i]);
    for (i = 0; i < n; i++) {
        const double t = (double)x[i] * 127.0 / a, low = floor(t);
        if (fabs(t - low - 0.5) > 2e-4) continue;
        if (rounding.n_edges < MAX_EDGES) {
            const edge e = {rounding.call, i, rounding.token};
            rounding.edges[rounding.n_edges++] = e;
        }
        for (k = 0; k < rounding.n_flips; k++)
            if (rounding.flips[k].call == rounding.call && rounding.flips[k].i == i) {
                const int way = q[i] == (int8_t)low ? 1 : -1;
                q[i] = (int8_t)(q[i] + way);
                *sum += way;
            }
    }
    rounding.call++;
    return s;
}

typedef struct s_run {                 /* one token after the other, on one thread */
    const float *hidden, *logits;      /* the reference's */
    int seen;                          /* calls of s_layer for this token */
    double errors[S_TOKENS];           /* the worst NRMSE of a token's streams and logits */
} s_run;

static void s_note(s_run *r, const float *got, const float *want, size_t n) {
    const double e = nrmse(got, want, n);
    if (!(e <= r->errors[rounding.token])) r->errors[rounding.token] = e >= 0 ? e : 1e9;
}

static void s_layer(void *ud, int layer, const float *x, int n_tokens) {
    s_run *r = (s_run *)ud;
    const int at = (layer + 1) * S_TOKENS + rounding.token;
    (void)n_tokens;
    s_note(r, x, r->hidden + (size_t)at * S_DIM, S_DIM);
    r->seen++;
}

static int s_evaluate(const bitnet_model *m, s_run *r) {
    bitnet_ctx_params p = ctx_params(S_TOKENS, 1, 1, BITNET_KV_F32);
    bitnet_token tokens[S_TOKENS];
    bitnet_ctx *c;
    int i, ok;
    s_tokens(tokens);
    memset(r->errors, 0, sizeof r->errors);
    rounding.call = rounding.n_edges = 0;
    p.hooks.layer_fn = s_layer;
    p.hooks.layer_ud = r;
    c = create(m, &p);
    for (i = 0, ok = c != 0; i < S_TOKENS && ok; i++) {
        const float *logits;
        rounding.token = i;
        r->seen = 0;
        ok = !bitnet_eval(c, 0, tokens + i, 1, 1, 0) && (logits = bitnet_logits(c, 0, NULL)) != 0;
        if (ok) s_note(r, logits, r->logits + (size_t)i * S_VOCAB, S_VOCAB);
        ok = ok && r->seen == S_LAYERS + 1;
    }
    bitnet_ctx_free(c);
    return ok;
}

static int s_first_wrong(const s_run *r) {
    int i = 0;
    while (i < S_TOKENS && r->errors[i] <= 1e-5) i++;
    return i;
}

/* Finds the element on an edge whose other rounding makes token `wrong` right. */
static int s_mend(const bitnet_model *m, s_run *r, int wrong) {
    edge tried[MAX_EDGES];
    const int n = rounding.n_edges;
    int i;
    if (rounding.n_flips == MAX_FLIPS) return 0;
    memcpy(tried, rounding.edges, sizeof tried);
    rounding.n_flips++;
    for (i = 0; i < n; i++) {
        if (tried[i].token != wrong) continue;
        rounding.flips[rounding.n_flips - 1] = tried[i];
        if (!s_evaluate(m, r)) return 0;
        if (s_first_wrong(r) > wrong) return 1;
    }
    rounding.n_flips--;
    return 0;
}

static void check_s_model(const char *name) {
    bitnet_kernels k = *bitnet_kernels_default();
    s_run r;
    size_t size;
    void *data = s_read(name, ".gguf", &size);
    float *hidden = s_floats(name, ".hidden.f32", (S_LAYERS + 1) * S_TOKENS * S_DIM);
    float *logits = s_floats(name, ".logits.f32", S_TOKENS * S_VOCAB);
    bitnet_model *m;
    int ok, wrong = 0;
    double error = 0;
    k.quantize = flipping_quantize;
    rounding.n_flips = 0;
    r.hidden = hidden;
    r.logits = logits;
    m = data ? load(data, size, &k) : 0;
    ok = m && hidden && logits && m->dim == S_DIM && m->n_layers == S_LAYERS &&
         m->n_vocab == S_VOCAB && s_evaluate(m, &r);
    while (ok && (wrong = s_first_wrong(&r)) < S_TOKENS) {
        error = r.errors[wrong];
        if (error > 2e-2 || !s_mend(m, &r, wrong)) break;
    }
    bitnet_model_free(m);
    free(data);
    free(hidden);
    free(logits);
    CHECK(ok);
    CHECK_MSG(wrong == S_TOKENS, "token %d: NRMSE %.3g, with %d elements rounded the other way",
              wrong, error, rounding.n_flips);
}

static void test_s64(void) {
    NEED_MODELS();
    check_s_model("s64");
}
static void test_s128(void) {
    NEED_MODELS();
    check_s_model("s128");
}
static void test_s128p(void) {
    NEED_MODELS();
    check_s_model("s128p");
}

/* What rounding activations to int8 costs, in all. */
static void test_s_exact(void) {
    static const char *const names[] = {"s64", "s128"};
    bitnet_token tokens[S_TOKENS];
    bitnet_ctx_params p = ctx_params(S_TOKENS, 0, 2, BITNET_KV_F32);
    int i;
    NEED_MODELS();
    s_tokens(tokens);
    for (i = 0; i < 2; i++) {
        size_t size;
        void *data = s_read(names[i], ".gguf", &size);
        float *want = s_floats(names[i], ".exact.logits.f32", S_TOKENS * S_VOCAB);
        float *got = logits_of(data, size, 0, &p, tokens, S_TOKENS, S_TOKENS);
        const double e = got && want ? nrmse(got, want, S_TOKENS * S_VOCAB) : 1;
        free(data);
        free(want);
        free(got);
        CHECK_MSG(e <= 4e-2, "%s: NRMSE %.3g", names[i], e);
    }
}

/* ---- the same bits ---- */

static void test_s_variants(void) {
    static const char *const names[] = {"s64", "s128"};
    bitnet_token tokens[S_TOKENS];
    int i;
    NEED_MODELS();
    s_tokens(tokens);
    for (i = 0; i < 2; i++) {
        size_t size;
        void *data = s_read(names[i], ".gguf", &size);
        check_variants(data, size, tokens, S_TOKENS, S_VOCAB, i == 0 && !test_quick());
        free(data);
    }
}

/* Three texts at once, in passes that hold parts of several, against each alone. */
static void test_s_sequences(void) {
    enum { SEQS = 3 };
    static const int lengths[SEQS] = {24, 7, 15};
    bitnet_token tokens[S_TOKENS];
    bitnet_ctx_params p = ctx_params(S_TOKENS, 0, 1, BITNET_KV_F16);
    float *want[SEQS];
    char bad[100] = "";
    size_t size;
    void *data;
    int i, k;
    NEED_MODELS();
    s_tokens(tokens);
    data = s_read("s128p", ".gguf", &size);
    for (i = 0; i < SEQS; i++)
        want[i] = logits_of(data, size, &bitnet__kernels_scalar, &p, tokens + i, lengths[i],
                            lengths[i]);
    for (k = 0; k < bitnet_kernels_count() && !bad[0]; k++) {
        const bitnet_kernels *table = bitnet_kernels_get(k);
        bitnet_model *m = bitnet_kernels_usable(table) ? load(data, size, table) : 0;
        bitnet_input in[SEQS];
        bitnet_ctx *c;
        if (!m) continue;
        p = ctx_params(64, 10 + k, 1 + k % 3, BITNET_KV_F16);
        p.n_seqs = SEQS;
        c = create(m, &p);
        memset(in, 0, sizeof in);
        for (i = 0; i < SEQS; i++) {
            in[i].seq = SEQS - 1 - i;
            in[i].tokens = tokens + i;
            in[i].n_tokens = in[i].n_logits = lengths[i];
        }
        if (!c || bitnet_eval_many(c, in, SEQS, 0)) snprintf(bad, sizeof bad, "eval_many");
        for (i = 0; i < SEQS && !bad[0]; i++) {
            int t;
            for (t = 0; t < lengths[i] && want[i]; t++) {
                const float *row = bitnet_logits(c, in[i].row + t, NULL);
                if (!row || memcmp(row, want[i] + (size_t)t * S_VOCAB, S_VOCAB * sizeof *row))
                    snprintf(bad, sizeof bad, "kernels %s: text %d, token %d", table->name, i, t);
            }
        }
        bitnet_ctx_free(c);
        bitnet_model_free(m);
    }
    free(data);
    for (i = 0; i < SEQS; i++) free(want[i]);
    CHECK_MSG(!bad[0], "%s", bad);
}

/* ---- one product, from the definition ---- */

enum { W_RANDOM, W_PLUS, W_MINUS, W_TWO, W_KINDS };
enum { D_RANDOM, D_TINY, D_ZERO, D_MINUS, D_LARGE, D_KINDS };
enum { Q_RANDOM, Q_127, Q_MINUS_128, Q_KINDS };

static int8_t product_weight(uint64_t *seed, int kind) {
    return (int8_t)(kind == W_PLUS ? 1 : kind == W_MINUS ? -1 : kind == W_TWO ? 2
                                                              : (int)(gb_random(seed) % 3) - 1);
}

/* A weight that the type can hold: Q1_0 has no 0, and only Q2_0 has +2. */
static int8_t stored_weight(uint32_t type, int8_t w) {
    const int two = type == IMP_Q2 || type == IMP_PQ2;
    return (type == IMP_Q1 && w == 0) || (w == 2 && !two) ? 1 : w;
}

/* A scale that F16 holds: any, subnormal, 0 or -0, negative, the largest. */
static float product_scale(uint64_t *seed, int kind) {
    const uint32_t r = gb_random(seed);
    return bitnet__f16_to_f32((uint16_t)(
        kind == D_RANDOM  ? 0x1400 + r % 0x2800
        : kind == D_TINY  ? 1 + r % 1023
        : kind == D_ZERO  ? r % 2 << 15
        : kind == D_MINUS ? 0x9400 + r % 0x2800 : 0x7bff));
}

/* y of row r and column c in double, and the sum of all magnitudes, for the rounding error. */
static double product_slow(const bitnet_ternary *t, int group, const int8_t *w, const float *d,
                           const int8_t *q, const float *steps, int r, int c, double *magnitude) {
    const int groups = t->n / group;
    double y = 0;
    int g, i;
    *magnitude = 0;
    for (g = 0; g < groups; g++) {
        long dot = 0;
        for (i = g * group; i < (g + 1) * group; i++)
            dot += w[(size_t)r * (size_t)t->n + (size_t)i] * q[c * t->n + i];
        y += (double)dot * (double)d[r * groups + g] * (double)steps[c * groups + g];
        *magnitude += fabs((double)dot * (double)d[r * groups + g] * (double)steps[c * groups + g]);
    }
    return y;
}

typedef struct product { uint32_t type; int n, rows, cols, w, d, q, add; } product;

/* The tensor as kernels read it when a model is loaded, times q, by every table. */
static int check_product(const product *p, uint64_t seed) {
    const int group = imp_shape_of(p->type).weights, groups = p->n / group, stride = p->rows + 3;
    const size_t n_weights = (size_t)p->n * (size_t)p->rows, n_out = (size_t)(stride * p->cols);
    bitnet_ternary t = {p->type, p->n, p->rows, BITNET_I2S_128, {0, 0, 0}};
    int8_t *w = (int8_t *)gb_malloc(n_weights), *q = (int8_t *)gb_malloc((size_t)(p->cols * p->n));
    float *d = (float *)gb_malloc((size_t)(p->rows * groups) * sizeof *d);
    float *steps = (float *)gb_malloc((size_t)(p->cols * groups) * sizeof *steps);
    float *y = (float *)gb_malloc(n_out * sizeof *y);
    int32_t *sums = (int32_t *)gb_malloc((size_t)(p->cols * groups) * sizeof *sums);
    int8_t *ordered = (int8_t *)gb_malloc((size_t)(p->cols * p->n));
    uint8_t *packed = (uint8_t *)gb_malloc(n_weights), *data;
    const bitnet__type *type = bitnet__type_info(p->type);
    const size_t row = bitnet__blocks_bytes(type->groups, p->n, 1);
    uint8_t *packs = (uint8_t *)gb_malloc((size_t)(p->rows + 15) / 16 * 16 * row);
    bitnet__unpacked u;
    size_t size, i;
    int r, c, k, ok, packing;
    for (i = 0; i < n_weights; i++) w[i] = stored_weight(p->type, product_weight(&seed, p->w));
    for (r = 0; r < p->rows * groups; r++) d[r] = product_scale(&seed, p->d);
    for (c = 0; c < p->cols * groups; c++) {
        steps[c] = (float)gb_uniform(&seed, 1e-3, 1.0);
        for (r = 0, sums[c] = 0; r < group; r++) {
            const int x = p->q == Q_127 ? 127 : p->q == Q_MINUS_128 ? -128
                                              : (int)(gb_random(&seed) & 255) - 128;
            q[c * group + r] = (int8_t)x;
            sums[c] += x;
        }
    }
    for (i = 0; i < (size_t)(p->cols * p->n); i += (size_t)group)
        type->groups->order(q + i, group, ordered + i);
    data = imp_blocks(p->type, w, n_weights, d, &size);
    memset(&u, 0, sizeof u);
    ok = bitnet__check_blocks(&t, data, 0, p->rows, &u);
    if (type->bytes != type->groups->bytes)
        ok &= bitnet__repack_blocks(&t, data, 0, p->rows, type->groups, packed, &u);
    else memcpy(packed, data, size);
    for (k = 0; k < bitnet_kernels_count() && ok; k++) {
        const bitnet_kernels *table = bitnet_kernels_get(k);
        if (!bitnet_kernels_usable(table)) continue;
        for (i = 0; i < n_out; i++) y[i] = 0.5f + (float)i;
        packing = table->pack_groups && type->groups->bits;
        for (r = 0; r < p->rows && packing; r += 16)
            table->pack_groups(type->groups, packed + (size_t)r * row, p->n,
                               p->rows - r < 16 ? p->rows - r : 16, packs + (size_t)r * row);
        table->dotrows_groups(&(bitnet__grouped){packing ? packs : packed, type->groups,
                                                 ordered, sums, steps, p->n, p->rows, p->cols,
                                                 p->add, y, (size_t)stride, packing});
        for (i = 0; i < n_out && ok; i++) {
            const double before = 0.5 + (double)i;
            double magnitude, want;
            r = (int)i % stride;
            c = (int)i / stride;
            want = r < p->rows ? product_slow(&t, group, w, d, q, steps, r, c, &magnitude) : before;
            if (r >= p->rows) magnitude = 0;
            else if (p->add) want += before;
            if (p->add || r >= p->rows) magnitude += before;
            ok = fabs((double)y[i] - want) <= magnitude * (groups + 3) * 6e-8;
            if (!ok)
                test_fail(__FILE__, __LINE__, "kernels %s, type %d, n %d, %d rows, %d columns, "
                          "contents %d %d %d, add %d: row %d, column %d: %g, not %g", table->name,
                          (int)p->type, p->n, p->rows, p->cols, p->w, p->d, p->q, p->add, r, c,
                          (double)y[i], want);
        }
    }
    free(w), free(q), free(d), free(steps), free(y), free(sums), free(packed), free(data);
    free(ordered), free(packs);
    return ok;
}

static void test_products(void) {
    static const uint32_t types[] = {IMP_Q2, IMP_PQ2, IMP_TQ1, IMP_TQ2, IMP_Q1, IMP_PTQ1};
    static const int row_counts[] = {1, 15, 16, 17, 33, 70};
    int i, kind, turn = 0;
    for (i = 0; i < 6; i++) {
        const int group = imp_shape_of(types[i]).weights;
        for (kind = 0; kind < W_KINDS * D_KINDS * Q_KINDS; kind++, turn++) {
            const product p = {types[i], group * (1 + turn % 5), row_counts[turn % 6], 1 + turn % 4,
                               kind % W_KINDS, kind / W_KINDS % D_KINDS,
                               kind / W_KINDS / D_KINDS, turn % 2};
            if (!check_product(&p, 1000 + (uint64_t)turn)) return;
        }
    }
}

/* Rows as codes and as floats. */
static void test_floats(void) {
    static const uint32_t types[] = {IMP_Q2, IMP_PQ2, IMP_TQ1, IMP_TQ2, IMP_Q1, IMP_PTQ1};
    enum { N = 768, ROWS = 19 };
    static int8_t w[N * ROWS], codes[N * ROWS];
    static float d[N * ROWS / 64], got[N * ROWS];
    int i, k, bad;
    uint64_t seed = 5;
    for (i = 0; i < 6; i++) {
        const int group = imp_shape_of(types[i]).weights;
        bitnet_ternary t = {types[i], N, ROWS, BITNET_I2S_128, {0, 0, 0}};
        bitnet_error err = {BITNET_OK, "", {0}};
        uint8_t *data;
        size_t size;
        for (k = 0; k < N * ROWS; k++)
            w[k] = stored_weight(types[i], product_weight(&seed, W_RANDOM));
        for (k = 0; k < N * ROWS / group; k++) d[k] = product_scale(&seed, k % D_KINDS);
        data = imp_blocks(types[i], w, N * ROWS, d, &size);
        CHECK(!bitnet_ternary_unpack(&t, data, 0, ROWS, codes, &err) &&
              !memcmp(codes, w, sizeof w));
        CHECK(!bitnet_floats_unpack(types[i], data, N * ROWS, got, &err));
        for (k = 0, bad = 0; k < N * ROWS; k++) bad += got[k] != d[k / group] * (float)w[k];
        CHECK_MSG(!bad, "type %d: %d floats", (int)types[i], bad);
        CHECK(bitnet_floats_unpack(types[i], data, group / 2, got, &err) == BITNET_ERR_ARG);
        free(data);
    }
}

/* Every byte of PTQ1_0, also the 13 of no five digits, in every place, by the rule for one digit;
   and a block that the publisher's program wrote. */
static void test_digits(void) {
    static const uint8_t known[28] = {
        0x96, 0xc1, 0x43, 0xc8, 0x57, 0x06, 0x10, 0x32, 0x96, 0xc2, 0x47, 0xd5, 0x81, 0x82,
        0x87, 0x96, 0x20, 0x21, 0x2f, 0xa2, 0xb4, 0x51, 0xd2, 0x60, 0x5f, 0xe4, 0x00, 0x3e};
    static const uint32_t power[5] = {1, 3, 9, 27, 81};
    bitnet_ternary t = {IMP_PTQ1, 128, 1, BITNET_I2S_128, {0, 0, 0}};
    uint8_t block[28];
    int8_t got[128];
    float x[128];
    int v, k, bad = 0;
    for (v = 0; v < 256; v++) {
        memset(block, 0, sizeof block);
        block[27] = 0x40;              /* 2 */
        for (k = 0; k < 26; k++) block[k] = (uint8_t)(v + 37 * k);
        CHECK(!bitnet_ternary_unpack(&t, block, 0, 1, got, 0) &&
              !bitnet_floats_unpack(IMP_PTQ1, block, 128, x, 0));
        for (k = 0; k < 128; k++) {
            const int byte = k < 80 ? k % 16 : k < 120 ? 16 + (k - 80) % 8 : 24 + k % 2;
            const int n = k < 80 ? k / 16 : k < 120 ? (k - 80) / 8 : (k - 120) / 2;
            const int digit = (uint8_t)(block[byte] * power[n]) * 3 >> 8;
            bad += got[k] != digit - 1 || x[k] != 2.0f * (float)(digit - 1);
        }
    }
    CHECK_MSG(!bad, "%d weights are wrong", bad);
    CHECK(!bitnet_floats_unpack(IMP_PTQ1, known, 128, x, 0));
    for (k = 0; k < 128; k++) bad += x[k] != 1.5f * (float)((k * k + 3 * k + 7) / 5 % 3 - 1);
    CHECK_MSG(!bad, "%d weights of the publisher's program are wrong", bad);
}

/* ---- models built here ---- */

typedef struct grouped {
    gb_model g;
    gb_linear embed, head;             /* w of ternary ones, else empty */
    uint8_t *raw[2];
} grouped;

/* A random ternary matrix of the vocabulary: the file's bytes, and the floats it stands for. */
static uint8_t *vocab_matrix(const gb_model *g, uint32_t type, uint64_t seed, gb_linear *l,
                             float **floats, size_t *size) {
    const size_t rows = 259, n = rows * (size_t)g->dim;
    const int group = imp_shape_of(type).weights;
    size_t i;
    memset(l, 0, sizeof *l);
    l->n_in = g->dim;
    l->n_out = (int)rows;
    l->group = group;
    l->w = (int8_t *)gb_malloc(n);
    l->scales = (float *)gb_malloc(n / (size_t)group * sizeof *l->scales);
    *floats = (float *)gb_malloc(n * sizeof **floats);
    for (i = 0; i < n / (size_t)group; i++)
        l->scales[i] = imp_cut((float)gb_uniform(&seed, 0.02, 0.06));
    for (i = 0; i < n; i++) {
        l->w[i] = stored_weight(type, product_weight(&seed, W_RANDOM));
        (*floats)[i] = (float)l->w[i] * l->scales[i / (size_t)group];
    }
    return imp_blocks(type, l->w, n, l->scales, size);
}

static uint32_t stored_number(uint32_t type) {
    return imp.number && imp_shape_of(type).weights < 256 ? imp.number : type;
}

/* A qwen3 of two layers of `layers`, I2_S or a type with blocks that differ; its embedding of type
   embed (F16 or one with blocks), and its head of type head (0: tied). gb_make_model comes next.
   Set imp.number before. */
static void start_grouped(grouped *x, uint32_t layers, uint32_t embed, uint32_t head) {
    gb_model *g = &x->g;
    memset(x, 0, sizeof *x);
    imp.type = layers;
    imp.tile.rows = 0;
    imp.block = 0;
    imp.separate = 0;
    imp.differ = 1;
    g->arch = "qwen3";
    g->no_in_norms = g->no_sub_norms = 1;
    g->dim = 256, g->ffn = 512, g->layers = 2, g->heads = 4, g->kv_heads = 2;
    g->n_ctx = 64;
    g->eps = 1e-6f;
    g->seed = 40;
    g->encode = imp_encode;
    g->embed_type = embed;
    if (imp_shape_of(embed).weights) {
        x->raw[0] = vocab_matrix(g, embed, 3, &x->embed, &g->embed, &g->embed_raw_size);
        g->embed_raw = x->raw[0];
        g->embed_type = stored_number(embed);
    }
    g->untied = head > 0;
    g->head_type = head;
    if (imp_shape_of(head).weights) {
        x->raw[1] = vocab_matrix(g, head, 4, &x->head, &g->head, &g->head_raw_size);
        g->head_raw = x->raw[1];
        g->head_type = stored_number(head);
    }
}

static grouped make_grouped(uint32_t layers, uint32_t embed, uint32_t head) {
    grouped x;
    imp.number = 0;
    start_grouped(&x, layers, embed, head);
    gb_make_model(&x.g);
    return x;
}

static void free_grouped(grouped *x) {
    gb_free_model(&x->g);
    gb_free_linear(&x->embed);
    gb_free_linear(&x->head);
    free(x->raw[0]);
    free(x->raw[1]);
}

static bitnet_result load_blocks(const void *data, size_t size, int block, bitnet_model **m,
                                 bitnet_error *err) {
    bitnet_model_params p;
    memset(&p, 0, sizeof p);
    memset(err, 0, sizeof *err);
    p.q2_0_block = block;
    return bitnet_model_load_memory(data, size, &p, m, err);
}

/* Refused with this code and these words; takes nothing over. */
static void check_refused(const uint8_t *data, size_t size, int block, bitnet_result code,
                          const char *word, const char *word2) {
    bitnet_model *m = 0;
    bitnet_error err;
    const bitnet_result r = load_blocks(data, size, block, &m, &err);
    bitnet_model_free(m);
    CHECK_MSG(r == code && strstr(err.text, word) && strstr(err.text, word2) &&
              clean_text(err.text), "%s: \"%s\" instead of %s with '%s', '%s'",
              bitnet_result_text(r), err.text, bitnet_result_text(code), word, word2);
}

/* ---- Q2_0: blocks of 64 or of 128 ---- */

static const uint8_t *view_of(const grouped *x, uint32_t type, uint32_t stored) {
    bitnet_gguf *f = 0;
    bitnet_gguf_tensor t;
    bitnet_error err = {BITNET_OK, "", {0}};
    const imp_shape s = imp_shape_of(type);
    const uint64_t n = 256 * 512;
    const uint8_t *data = 0;
    memset(&t, 0, sizeof t);
    if (bitnet_gguf_open_memory(x->g.data, x->g.size, 0, &f, &err) ||
        bitnet_gguf_find_tensor(f, "blk.1.ffn_down.weight", &t))
        test_fail(__FILE__, __LINE__, "%s", err.text);
    else if (t.type != type || t.stored_type != stored ||
             strcmp(t.type_name, type == IMP_Q2 ? "Q2_0" : "PQ2_0") ||
             t.size != n / (uint64_t)s.weights * (uint64_t)s.bytes ||
             t.size != bitnet_tensor_size(type, t.n_dims, t.dims))
        test_fail(__FILE__, __LINE__, "type %d (%d, %s), %d bytes", (int)t.type,
                  (int)t.stored_type, t.type_name, (int)t.size);
    else data = t.data;
    bitnet_gguf_close(f);
    return data;
}

/* Each kind under each number, with small and large gaps between tensors. */
static void test_blocks(void) {
    static const struct { uint32_t type, number; } cases[] = {{IMP_Q2, 42}, {IMP_PQ2, 42},
                                                              {IMP_PQ2, 142}};
    float *want[3] = {0, 0, 0};
    size_t i;
    int wide;
    for (wide = 0; wide < 2; wide++)
        for (i = 0; i < 3; i++) {
            const int block = imp_shape_of(cases[i].type).weights, other = 192 - block;
            const int told = cases[i].number == 142 || !wide;
            bitnet_ctx_params p = ctx_params(3, 0, 1, BITNET_KV_F16);
            const bitnet_token tokens[3] = {7, 42, 99};
            bitnet_error err;
            bitnet_model *m = 0;
            bitnet_model_info info;
            bitnet_ctx *c;
            float *got = (float *)gb_malloc(3 * 259 * sizeof *got);
            grouped x;
            imp.number = cases[i].number;
            start_grouped(&x, cases[i].type, cases[i].type, 0);
            if (wide) x.g.file.alignment = 16384;
            gb_make_model(&x.g);
            memset(&info, 0, sizeof info);
            if (!told) {
                check_refused(x.g.data, x.g.size, 0, BITNET_ERR_FORMAT, "token_embd.weight",
                              "q2_0_block");
            } else {
                const uint8_t *data = view_of(&x, cases[i].type, cases[i].number);
                CHECK(data && !memcmp(data, x.g.data + imp_offset(&x.g, "blk.1.ffn_down.weight"),
                                      100));
                CHECK_MSG(!load_blocks(x.g.data, x.g.size, 0, &m, &err), "%s", err.text);
                bitnet_model_free(m);
            }
            CHECK_MSG(!load_blocks(x.g.data, x.g.size, block, &m, &err), "%s", err.text);
            bitnet_model_get_info(m, &info);
            CHECK(info.group == block && !strcmp(info.layout, "GROUPS"));
            CHECK(!strcmp(info.embed_type, block == 64 ? "Q2_0" : "PQ2_0") &&
                  !strcmp(info.head_type, info.embed_type));
            CHECK(info.head_bytes == (uint64_t)(259 * 256 / block * (block / 4 + 2)));
            c = create(m, &p);
            CHECK(c && all_logits(c, tokens, 3, 3, got));
            bitnet_ctx_free(c);
            bitnet_model_free(m);
            if (cases[i].number == 42 && !wide)
                check_refused(x.g.data, x.g.size, other, BITNET_ERR_FORMAT, "weight'",
                              other == 64 ? "of 64 weights" : "of 128 weights");
            if (cases[i].number == 142)
                CHECK(!load_blocks(x.g.data, x.g.size, other, &m, &err));
            if (cases[i].number == 142) bitnet_model_free(m);
            if (!wide) want[i] = got;
            else CHECK(!memcmp(got, want[i], 3 * 259 * sizeof *got));
            if (wide) free(got);
            free_grouped(&x);
        }
    CHECK(!memcmp(want[1], want[2], 3 * 259 * sizeof *want[1]));
    CHECK(memcmp(want[0], want[1], 3 * 259 * sizeof *want[1]));
    for (i = 0; i < 3; i++) free(want[i]);
    {
        grouped x = make_grouped(IMP_Q2, IMP_Q2, 0);
        check_refused(x.g.data, x.g.size, 32, BITNET_ERR_ARG, "q2_0_block", "32");
        check_refused(x.g.data, x.g.size, -64, BITNET_ERR_ARG, "q2_0_block", "-64");
        free_grouped(&x);
    }
}

/* ffn_down in blocks of 128, all else in blocks of 64. */
static uint8_t *encode_both(gb_linear *l, uint32_t *type, size_t *size) {
    uint8_t *p;
    imp.type = l->n_in == 512 ? IMP_PQ2 : IMP_Q2;
    p = imp_encode(l, type, size);
    imp.type = IMP_Q2;
    return p;
}

static void test_blocks_both(void) {
    grouped x;
    imp.number = 42;
    start_grouped(&x, IMP_Q2, GB_TENSOR_F16, 0);
    x.g.encode = encode_both;
    gb_make_model(&x.g);
    check_refused(x.g.data, x.g.size, 0, BITNET_ERR_FORMAT, "blk.0.ffn_down.weight",
                  "64 or of 128");
    check_refused(x.g.data, x.g.size, 64, BITNET_ERR_FORMAT, "blk.0.ffn_down.weight",
                  "of 64 weights");
    check_refused(x.g.data, x.g.size, 128, BITNET_ERR_FORMAT, "blk.0.attn_q.weight",
                  "of 128 weights");
    free_grouped(&x);
    imp.number = 0;                    /* under their own numbers they may be in one file */
    start_grouped(&x, IMP_Q2, GB_TENSOR_F16, 0);
    x.g.encode = encode_both;
    gb_make_model(&x.g);
    imp_grouped(&x.g, 64);
    free_grouped(&x);
}

/* The last tensor ends with the file, or with padding, or with anything, or the file is cut. */
static void test_blocks_last(void) {
    int i;
    for (i = 0; i < 2; i++) {
        const uint32_t type = i ? IMP_PQ2 : IMP_Q2;
        const imp_shape small = imp_shape_of(IMP_PQ2);
        size_t at, k, more[] = {0, 1, 31, 32, 1000, 40000};
        uint8_t *longer;
        grouped x;
        imp.number = 42;
        start_grouped(&x, type, GB_TENSOR_F16, type);
        gb_make_model(&x.g);
        at = imp_offset(&x.g, "output.weight");
        CHECK(at > 0 && at + x.g.head_raw_size == x.g.size && x.g.size % 32);
        longer = (uint8_t *)gb_malloc(x.g.size + 40000);
        memset(longer + x.g.size, 0, 40000);
        memcpy(longer, x.g.data, x.g.size);
        for (k = 0; k < sizeof more / sizeof more[0]; k++) {
            bitnet_error err;
            bitnet_model *m = 0;
            bitnet_model_info info;
            memset(&info, 0, sizeof info);
            CHECK_MSG(!load_blocks(longer, x.g.size + more[k], 0, &m, &err), "%d more: %s",
                      (int)more[k], err.text);
            bitnet_model_get_info(m, &info);
            bitnet_model_free(m);
            CHECK(info.group == imp_shape_of(type).weights);
        }
        for (k = at; k < x.g.size; k += test_quick() ? 97 : 3) {
            const size_t as_128 = (size_t)(259 * 256 / 128 * small.bytes), room = k - at;
            uint8_t *cut = (uint8_t *)gb_malloc(k);
            memcpy(cut, x.g.data, k);
            if (i == 0 && room >= as_128 && room - as_128 < 32)
                check_refused(cut, k, 0, BITNET_ERR_FORMAT, "output.weight", "64 or of 128");
            else check_refused(cut, k, 0, BITNET_ERR_TRUNCATED, "output.weight", "past the end");
            free(cut);
        }
        free(longer);
        free_grouped(&x);
    }
}

static void test_damage(void) {
    static const uint32_t types[] = {IMP_Q2, IMP_PQ2, IMP_PTQ1, IMP_TQ2};
    int i;
    for (i = 0; i < 4; i++) {
        grouped x;
        imp.number = i == 1 ? 42 : 0;
        start_grouped(&x, types[i], types[i], types[3 - i]);
        damage(&x.g);
        memset(&x.g, 0, sizeof x.g);
        free_grouped(&x);
    }
}

/* ---- what a tensor may not hold ---- */

/* Column c of a row becomes code 3; bytes: the tensor's. */
static void put_code_3(uint32_t type, uint8_t *bytes, int n, int row, int c) {
    const imp_shape s = imp_shape_of(type);
    uint8_t *block = bytes + (size_t)(row * (n / s.weights) + c / s.weights) * (size_t)s.bytes;
    const int i = c % s.weights;
    if (type == IMP_TQ2) block[i / 128 * 32 + i % 32] |= (uint8_t)(3 << i % 128 / 32 * 2);
    else block[2 + i / 4] |= (uint8_t)(3 << 2 * (i % 4));
}

static void put_scale(uint32_t type, uint8_t *bytes, int n, int row, int c, unsigned half) {
    const imp_shape s = imp_shape_of(type);
    uint8_t *block = bytes + (size_t)(row * (n / s.weights) + c / s.weights) * (size_t)s.bytes;
    block[s.scale_at] = (uint8_t)half;
    block[s.scale_at + 1] = (uint8_t)(half >> 8);
}

static void test_contents(void) {
    static const struct { uint32_t type, head; const char *name; int row, column; } cases[] = {
        {IMP_Q2, 0, "blk.1.attn_k.weight", 100, 255}, {IMP_PQ2, 0, "blk.0.ffn_down.weight", 3, 385},
        {IMP_TQ2, 0, "blk.0.ffn_up.weight", 511, 77}, {IMP_Q2, 0, "token_embd.weight", 258, 64},
        {IMP_PQ2, 0, "token_embd.weight", 64, 0}, {IMP_TQ2, 0, "token_embd.weight", 65, 130},
        {IMP_Q2, IMP_PQ2, "token_embd.weight", 258, 191}, {IMP_PQ2, 1, "token_embd.weight", 7, 1},
        {IMP_TQ2, IMP_TQ1, "token_embd.weight", 200, 255}, {IMP_Q2, IMP_Q2, "output.weight", 0, 2},
        {IMP_PQ2, IMP_PQ2, "output.weight", 258, 255},
        {IMP_PTQ1, 0, "blk.1.attn_v.weight", 5, 200}, {IMP_PTQ1, IMP_Q2, "token_embd.weight", 9, 3}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        grouped x = make_grouped(cases[i].type, cases[i].type, cases[i].head);
        const int own = cases[i].head && !strcmp(cases[i].name, "token_embd.weight");
        const int n = strstr(cases[i].name, "down") ? 512 : 256, at = (int)cases[i].column;
        const int block = imp_shape_of(cases[i].type).weights;
        uint8_t *bytes = x.g.data + imp_offset(&x.g, cases[i].name), *copy;
        char place[60];
        unsigned half;
        CHECK(bytes > x.g.data);
        copy = imp_copy(&x.g);
        if (cases[i].type != IMP_PTQ1)             /* which has none */
            put_code_3(cases[i].type, bytes, n, cases[i].row, at);
        snprintf(place, sizeof place, "code 3 at row %d, column %d", cases[i].row, at);
        if (cases[i].type == IMP_TQ2)  /* elsewhere it is +2 */
            check_refused(x.g.data, x.g.size, 0, BITNET_ERR_FORMAT, cases[i].name, place);
        for (half = 0x7c00; half < 0x7f00; half += 0x280) {    /* infinity, NaN */
            memcpy(x.g.data, copy, x.g.size);
            put_scale(cases[i].type, bytes, n, cases[i].row, at, half ^ (at % 2 ? 0x8000 : 0));
            snprintf(place, sizeof place, "row %d, column %d", cases[i].row, at / block * block);
            if (!own) {
                check_refused(x.g.data, x.g.size, 0, BITNET_ERR_FORMAT, cases[i].name, place);
                check_refused(x.g.data, x.g.size, 0, BITNET_ERR_FORMAT, "scale", "not finite");
            } else {                   /* only read when its token comes */
                bitnet_model *m = load(x.g.data, x.g.size, 0);
                bitnet_ctx_params p = ctx_params(8, 0, 1, BITNET_KV_F16);
                bitnet_ctx *c = create(m, &p);
                bitnet_token other = 1, bad = cases[i].row;
                CHECK(c && !bitnet_eval(c, 0, &other, 1, 1, 0));
                CHECK(bitnet_eval(c, 0, &bad, 1, 1, 0) == BITNET_ERR_FORMAT);
                CHECK(!bitnet_eval(c, 0, &other, 1, 1, 0));
                bitnet_ctx_free(c);
                bitnet_model_free(m);
            }
        }
        free(copy);
        free_grouped(&x);
    }
}

/* ---- ways to load, and memory that runs out ---- */

static void test_ways(void) {
    grouped x = make_grouped(IMP_Q2, IMP_PQ2, IMP_TQ1);
    const bitnet_token tokens[5] = {7, 42, 99, 0, 258};
    bitnet_ctx_params p = ctx_params(5, 0, 1, BITNET_KV_F16);
    float *want = logits_of(x.g.data, x.g.size, 0, &p, tokens, 5, 5);
    float *got = (float *)gb_malloc(5 * 259 * sizeof *got);
    uint8_t *shifted = (uint8_t *)gb_malloc(x.g.size + 3);
    char path[1024];
    FILE *f;
    int i, differs = -1;
    snprintf(path, sizeof path, "%s", test_path("groups.gguf"));
    f = fopen(path, "wb");
    CHECK(f && fwrite(x.g.data, 1, x.g.size, f) == x.g.size && !fclose(f));
    for (i = 0; i < 6; i++) {
        gb_reader reader;
        bitnet_io io = gb_io(&reader, x.g.data, x.g.size);
        bitnet_model_params mp;
        bitnet_model *m = 0;
        bitnet_ctx *c;
        bitnet_error err = {BITNET_OK, "", {0}};
        memset(&mp, 0, sizeof mp);
        mp.copy = i == 1;
        memcpy(shifted + i % 4, x.g.data, x.g.size);
        if (i < 2) bitnet_model_load_file(path, &mp, &m, &err);
        else if (i == 2) bitnet_model_load_io(&io, &mp, &m, &err);
        else bitnet_model_load_memory(shifted + i % 4, x.g.size, &mp, &m, &err);
        c = create(m, &p);
        if (!c || !all_logits(c, tokens, 5, 2, got) || memcmp(got, want, 5 * 259 * sizeof *got))
            differs = i;
        bitnet_ctx_free(c);
        bitnet_model_free(m);
    }
    remove(path);
    free(want);
    free(got);
    free(shifted);
    free_grouped(&x);
    CHECK_MSG(differs < 0, "way %d", differs);
}

/* Weights that stay in the file: the same bits from every table, one token at a time and together,
   and less memory where packs would be made. */
static void test_in_place(void) {
    static const uint32_t types[] = {IMP_Q1, IMP_Q2, IMP_PQ2, IMP_TQ2, IMP_TQ1, IMP_PTQ1};
    const bitnet_token tokens[7] = {7, 42, 99, 0, 258, 1, 7};
    size_t i;
    int k;
    for (i = 0; i < sizeof types / sizeof *types; i++) {
        grouped x = make_grouped(types[i], IMP_Q2, types[i]);
        bitnet_ctx_params p = ctx_params(7, 0, 1, BITNET_KV_F16);
        float *want = logits_of(x.g.data, x.g.size, &bitnet__kernels_scalar, &p, tokens, 7, 7);
        float *got = (float *)gb_malloc(7 * 259 * sizeof *got);
        for (k = 0; k < bitnet_kernels_count(); k++) {
            const bitnet_kernels *table = bitnet_kernels_get(k);
            uint64_t bytes[2] = {0, 0};
            int in_place, batch;
            for (in_place = 0; in_place < 2 && bitnet_kernels_usable(table); in_place++)
                for (batch = 1; batch < 8; batch += 3) {
                    bitnet_model_params mp;
                    bitnet_model_info info;
                    bitnet_model *m = 0;
                    bitnet_ctx *c;
                    memset(&mp, 0, sizeof mp);
                    mp.kernels = table;
                    mp.in_place = in_place;
                    bitnet_model_load_memory(x.g.data, x.g.size, &mp, &m, 0);
                    c = create(m, &p);
                    CHECK_MSG(c && all_logits(c, tokens, 7, batch, got) &&
                              !memcmp(got, want, 7 * 259 * sizeof *got),
                              "%s, type %u, in place %d, %d tokens at a time", table->name,
                              types[i], in_place, batch);
                    bitnet_model_get_info(m, &info);
                    bytes[in_place] = info.own_bytes;
                    bitnet_ctx_free(c);
                    bitnet_model_free(m);
                }
            CHECK_MSG(table->pack_groups && bitnet_kernels_usable(table) ? bytes[1] < bytes[0]
                                                                         : bytes[1] == bytes[0],
                      "%s: %llu and %llu bytes", table->name, (unsigned long long)bytes[0],
                      (unsigned long long)bytes[1]);
        }
        free(want);
        free(got);
        free_grouped(&x);
    }
}

/* Each allocation of loading fails once, and all give their memory back. */
static void test_load_memory(void) {
    static const uint32_t heads[] = {0, IMP_TQ2};
    int way;
    for (way = 0; way < 4; way++) {
        grouped x = make_grouped(IMP_PQ2, IMP_Q2, heads[way / 2]);
        int done = 0;
        long k;
        for (k = 0; k < 1000 && !done; k++) {
            gb_counter count;
            gb_reader reader;
            bitnet_io io = gb_io(&reader, x.g.data, x.g.size);
            bitnet_model_params p;
            bitnet_model *m = 0;
            bitnet_error err = {BITNET_OK, "", {0}};
            bitnet_result r;
            memset(&p, 0, sizeof p);
            p.allocator = gb_counting(&count);
            count.fail_at = k;
            r = way % 2 ? bitnet_model_load_io(&io, &p, &m, &err)
                        : bitnet_model_load_memory(x.g.data, x.g.size, &p, &m, &err);
            done = r == BITNET_OK;
            CHECK_MSG(done == (m != 0) && done == (count.calls <= k), "allocation %ld", k);
            bitnet_model_free(m);
            CHECK_MSG(done || (r == BITNET_ERR_MEMORY && err.text[0]), "allocation %ld: %s", k,
                      err.text);
            CHECK_MSG(count.live == 0, "%ld blocks leak when allocation %ld fails", count.live, k);
        }
        free_grouped(&x);
        CHECK(done && k > 6);
    }
}

/* ---- TQ1_0 and TQ2_0: one scale, or groups of 256 ---- */

/* The seven layers in the file's order; what the one `odd_one` becomes. */
static struct { int next, one; uint32_t type, other; int separate; } odd;

static uint8_t *encode_odd(gb_linear *l, uint32_t *type, size_t *size) {
    uint8_t *p;
    imp.type = odd.next % 7 == odd.one ? odd.other : odd.type;
    odd.next++;
    p = imp_encode(l, type, size);
    if (imp.type == IMP_I2S) l->group = 0;
    return p;
}

static grouped make_odd(uint32_t type, int one, uint32_t other, int differ) {
    grouped x;
    imp.number = 0;
    start_grouped(&x, type, GB_TENSOR_F16, 0);
    imp.differ = differ;
    x.g.encode = encode_odd;
    odd.next = 0;
    odd.one = one;
    odd.type = type;
    odd.other = other;
    gb_make_model(&x.g);
    return x;
}

/* One block of one matrix gets a scale that is the next number to all others'. So little changes,
   but each matrix that reads the same input is now in groups. The rest is as in I2_S. */
static void test_one_differs(void) {
    static const struct { const char *name; int groups[7]; } cases[] = {
        {"blk.0.attn_q.weight", {256, 256, 256, 0, 0, 0, 0}},
        {"blk.0.attn_v.weight", {256, 256, 256, 0, 0, 0, 0}},
        {"blk.0.attn_output.weight", {0, 0, 0, 256, 0, 0, 0}},
        {"blk.0.ffn_up.weight", {0, 0, 0, 0, 256, 256, 0}},
        {"blk.0.ffn_down.weight", {0, 0, 0, 0, 0, 0, 256}}
    };
    int i, k, type;
    for (type = IMP_TQ1; type <= IMP_TQ2; type++)
        for (i = 0; i < 5; i++) {
            const imp_shape s = imp_shape_of((uint32_t)type);
            grouped x = make_odd((uint32_t)type, -1, 0, 0);
            bitnet_error err;
            float *plain = imp_logits(x.g.data, x.g.size, 0, imp_none, 0, &err), *want;
            bitnet_model *m;
            double e;
            int wrong = 0;
            imp_grouped(&x.g, 0);
            x.g.data[imp_offset(&x.g, cases[i].name) + (size_t)(9 * s.bytes + s.scale_at)] ^= 1;
            imp_grouped(&x.g, 256);
            want = imp_logits(x.g.data, x.g.size, &bitnet__kernels_scalar, imp_none, 0, &err);
            CHECK_MSG(plain && want, "%s", err.text);
            e = nrmse(want, plain, 3 * 259);
            CHECK_MSG(e < 2e-2, "%s: %g", cases[i].name, e);
            imp_check(x.g.data, x.g.size, imp_none, want, 259, cases[i].name);
            m = load(x.g.data, x.g.size, 0);
            for (k = 0; k < 7; k++) wrong += m->layers[0].linear[k].group != cases[i].groups[k];
            for (k = 0; k < 7; k++) wrong += m->layers[1].linear[k].group != 0;
            CHECK_MSG(!wrong && !strcmp(bitnet__layout(m), "GROUPS"), "%s: %d layers are wrong",
                      cases[i].name, wrong);
            bitnet_model_free(m);
            free(plain);
            free(want);
            free_grouped(&x);
        }
}

static void test_mixed(void) {
    static const struct { uint32_t type; int one; uint32_t other; const char *a, *b; } cases[] = {
        {IMP_TQ2, 1, IMP_I2S, "'blk.0.attn_q.weight'", "'blk.0.attn_k.weight'"},
        {IMP_TQ1, 0, IMP_I2S, "'blk.0.attn_q.weight'", "'blk.0.attn_k.weight'"},
        {IMP_I2S, 2, IMP_TQ1, "'blk.0.attn_q.weight'", "'blk.0.attn_v.weight'"},
        {IMP_Q2, 5, IMP_PQ2, "'blk.0.ffn_gate.weight'", "'blk.0.ffn_up.weight'"},
        {IMP_Q2, 4, IMP_I2S, "'blk.0.ffn_gate.weight'", "'blk.0.ffn_up.weight'"},
        {IMP_Q2, 2, IMP_TQ2, "among 64 and 256", "'blk.0.attn_v.weight'"},
        {IMP_PTQ1, 1, IMP_Q1, "'blk.0.attn_q.weight' (PTQ1_0) and", "'blk.0.attn_k.weight' (Q1_0)"}
    };
    static const struct { int one; uint32_t other; int group; } fine[] = {
        {3, IMP_I2S, 64}, {6, IMP_TQ1, 64}, {3, IMP_PQ2, 64}, {6, IMP_PTQ1, 64}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        grouped x = make_odd(cases[i].type, cases[i].one, cases[i].other, 1);
        check_refused(x.g.data, x.g.size, 0, BITNET_ERR_UNSUPPORTED, cases[i].a, cases[i].b);
        free_grouped(&x);
    }
    for (i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        grouped x = make_odd(IMP_Q2, fine[i].one, fine[i].other, 1);
        bitnet_error err;
        float *want = imp_logits(x.g.data, x.g.size, &bitnet__kernels_scalar, imp_none, 0, &err);
        imp_grouped(&x.g, fine[i].group);
        CHECK_MSG(want, "%s", err.text);
        imp_check(x.g.data, x.g.size, imp_none, want, 259, "mixed");
        free(want);
        free_grouped(&x);
    }
}

/* The weights and scales of PQ2_0 in PTQ1_0: the same bits, from each kernel table. */
static void test_two_types(void) {
    bitnet_token tokens[20];
    grouped x = make_grouped(IMP_PQ2, IMP_PQ2, IMP_PQ2);
    bitnet_ctx_params p = ctx_params(20, 0, 1, BITNET_KV_F16);
    float *want;
    int i;
    for (i = 0; i < 20; i++) tokens[i] = (bitnet_token)(i * 41 % 259);
    want = logits_of(x.g.data, x.g.size, &bitnet__kernels_scalar, &p, tokens, 20, 20);
    free_grouped(&x);
    x = make_grouped(IMP_PTQ1, IMP_PTQ1, IMP_PTQ1);
    for (i = 0; i < bitnet_kernels_count() && want; i++) {
        float *got;
        if (!bitnet_kernels_usable(bitnet_kernels_get(i))) continue;
        got = logits_of(x.g.data, x.g.size, bitnet_kernels_get(i), &p, tokens, 20, 20);
        CHECK_MSG(got && !memcmp(got, want, 20 * 259 * sizeof *got), "kernels %s",
                  bitnet_kernels_get(i)->name);
        free(got);
    }
    free(want);
    check_variants(x.g.data, x.g.size, tokens, 20, 259, 0);
    free_grouped(&x);
}

/* A scale per block, and one more in a tensor of its own. */
static void test_separate(void) {
    static const uint32_t types[] = {IMP_Q2, IMP_PQ2, IMP_TQ1, IMP_TQ2, IMP_PTQ1};
    static const char *const suffixes[] = {".scale", "_scale"};
    int i;
    for (i = 0; i < 10; i++) {
        grouped x;
        imp.number = 0;
        start_grouped(&x, types[i / 2], GB_TENSOR_F16, 0);
        x.g.scale_suffix = suffixes[i % 2];
        gb_make_model(&x.g);
        check_refused(x.g.data, x.g.size, 0, BITNET_ERR_UNSUPPORTED, "'blk.0.attn_q.weight'",
                      "scale for each block and another one");
        free_grouped(&x);
    }
}

/* With a norm in front of each layer, three inputs are rounded one by one. Rows of 128 have no
   group of 256, which attn_output has: this leaves them as they were. */
static uint8_t *encode_wide(gb_linear *l, uint32_t *type, size_t *size) {
    imp.type = l->n_in == 256 ? IMP_TQ2 : IMP_I2S;
    return imp_encode(l, type, size);
}

static void test_narrow(void) {
    grouped x;
    bitnet_token tokens[16];
    bitnet_error err;
    float *plain;
    double e;
    int i;
    imp.number = 0;
    start_grouped(&x, IMP_TQ2, GB_TENSOR_F16, 0);
    imp.differ = 0;
    x.g.no_in_norms = 0;
    x.g.dim = x.g.ffn = 128;
    x.g.head_dim = 64;
    x.g.encode = encode_wide;
    gb_make_model(&x.g);
    plain = imp_logits(x.g.data, x.g.size, 0, imp_none, 0, &err);
    x.g.data[imp_offset(&x.g, "blk.0.attn_output.weight") + 5 * 66 + 64] ^= 1;
    x.g.data[imp_offset(&x.g, "blk.1.attn_output.weight") + 5 * 66 + 64] ^= 1;
    imp_grouped(&x.g, 256);
    {
        float *got = imp_logits(x.g.data, x.g.size, 0, imp_none, 0, &err);
        CHECK_MSG(plain && got, "%s", err.text);
        e = nrmse(got, plain, 3 * 259);
        free(got);
    }
    for (i = 0; i < 16; i++) tokens[i] = 3 + 11 * i;
    check_variants(x.g.data, x.g.size, tokens, 16, 259, 0);
    free(plain);
    free_grouped(&x);
    CHECK_MSG(e < 2e-2, "NRMSE %g", e);
}

/* ---- embeddings and heads ---- */

enum { HEAD_TOKENS = 9 };

typedef struct head_streams { float x[2][HEAD_TOKENS * 256]; int last; } head_streams;

static void head_layer(void *ud, int layer, const float *x, int n_tokens) {
    head_streams *s = (head_streams *)ud;
    if (layer != -1 && layer != s->last) return;
    memcpy(s->x[layer >= 0], x, (size_t)n_tokens * 256 * sizeof *x);
}

/* The rows of the embedding, and logits computed from the last stream, in double. */
static void check_head(uint32_t layers, uint32_t embed, uint32_t head) {
    static const bitnet_token tokens[HEAD_TOKENS] = {0, 258, 16, 15, 17, 100, 31, 200, 33};
    bitnet_ctx_params p = ctx_params(HEAD_TOKENS, 0, 2, BITNET_KV_F32);
    grouped x = make_grouped(layers, embed, head);
    const gb_linear *ternary = head ? &x.head : &x.embed;
    head_streams *s = (head_streams *)gb_malloc(sizeof *s);
    float *got = (float *)gb_malloc(HEAD_TOKENS * 259 * sizeof *got);
    float *want = (float *)gb_malloc(259 * sizeof *want);
    double h[256], y[259], worst = 0;
    int wrong_rows = 0, argmax = 0, ok, t, r, i;
    slow shape;
    bitnet_model *m = load(x.g.data, x.g.size, 0);
    bitnet_model_info info;
    bitnet_ctx *c;
    memset(&shape, 0, sizeof shape);
    shape.eps = (double)x.g.eps;
    bitnet_model_get_info(m, &info);
    p.hooks.layer_fn = head_layer;
    p.hooks.layer_ud = s;
    s->last = 1;
    c = create(m, &p);
    ok = c && all_logits(c, tokens, HEAD_TOKENS, HEAD_TOKENS, got);
    for (t = 0; t < HEAD_TOKENS && ok; t++) {
        double stream[256], e;
        for (i = 0; i < 256; i++) {
            wrong_rows += s->x[0][t * 256 + i] != x.g.embed[tokens[t] * 256 + i];
            stream[i] = (double)s->x[1][t * 256 + i];
        }
        slow_norm(&shape, stream, x.g.output_norm, 256, h);
        if (ternary->w) slow_linear(ternary, h, y);
        else
            for (r = 0; r < 259; r++)
                for (i = 0, y[r] = 0; i < 256; i++)
                    y[r] += (double)x.g.head[r * 256 + i] * h[i];
        for (r = 0; r < 259; r++) want[r] = (float)y[r];
        e = nrmse(got + t * 259, want, 259);
        if (!(e <= worst)) worst = e;
        argmax += largest(got + t * 259, 259) != largest(want, 259);
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    free(s);
    free(want);
    free(got);
    free_grouped(&x);
    CHECK(ok && !wrong_rows);
    CHECK_MSG(worst <= 1e-5 && !argmax, "layers %d, embedding %d, head %d: NRMSE %.3g",
              (int)layers, (int)embed, (int)head, worst);
    CHECK(!strcmp(info.embed_type, bitnet_tensor_type_name(embed)) &&
          !strcmp(info.head_type, bitnet_tensor_type_name(head ? head : embed)));
}

static void test_heads(void) {
    static const uint32_t cases[][3] = {
        {IMP_Q2, IMP_Q2, 0}, {IMP_PQ2, IMP_TQ1, 0}, {IMP_Q2, IMP_Q2, IMP_Q2},
        {IMP_PQ2, IMP_Q2, IMP_PQ2}, {IMP_I2S, IMP_TQ2, 0}, {IMP_I2S, GB_TENSOR_F16, IMP_TQ1},
        {IMP_Q2, GB_TENSOR_F16, 0}, {IMP_Q2, IMP_PQ2, GB_TENSOR_F16}, {IMP_TQ2, IMP_Q2, IMP_TQ2},
        {IMP_I2S, IMP_Q1, 0}, {IMP_PQ2, IMP_TQ1, IMP_Q1}, {IMP_PTQ1, IMP_PTQ1, 0},
        {IMP_PTQ1, IMP_Q2, IMP_PTQ1}, {IMP_I2S, IMP_PTQ1, 0}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_head(cases[i][0], cases[i][1], cases[i][2]);
}

/* More rows of logits than tokens fit a batch, with I2_S layers beside. */
static void test_head_batches(void) {
    static const uint32_t layers[] = {IMP_Q2, IMP_I2S};
    bitnet_token tokens[50];
    int i, k;
    for (i = 0; i < 50; i++) tokens[i] = (bitnet_token)((i * 41) % 259);
    for (k = 0; k < 2; k++) {
        grouped x = make_grouped(layers[k], IMP_PQ2, k ? 0 : IMP_Q2);
        bitnet_ctx_params p = ctx_params(50, 0, 1, BITNET_KV_F16);
        float *want = logits_of(x.g.data, x.g.size, &bitnet__kernels_scalar, &p, tokens, 50, 50);
        for (i = 1; i <= 3 && want; i++) {
            const variant v = {0, i, 3 + 8 * i, 50, 0}, one = {0, i, 1, 1, 0};
            same_logits(x.g.data, x.g.size, &v, BITNET_KV_F16, tokens, 50, 259, want);
            same_logits(x.g.data, x.g.size, &one, BITNET_KV_F16, tokens, 50, 259, want);
        }
        free(want);
        check_variants(x.g.data, x.g.size, tokens, 20, 259, 0);
        free_grouped(&x);
    }
}

static int asked, cancel_from;
static int cancel_later(void *ud) {
    (void)ud;
    return asked++ >= cancel_from;
}

/* Logits are computed when somebody asks: then nothing is cancelled, and an evaluation that was
   cancelled before leaves nothing behind. */
/* A mask that allows few tokens: rows of a ternary head are not in the file's order. */
static void six_tokens(void *ud, uint32_t *mask) {
    (void)ud;
    mask[1] |= 0x3f;
}

static void test_masked_head(void) {
    static const uint32_t heads[] = {IMP_Q2, IMP_PQ2, IMP_PTQ1, IMP_TQ1, IMP_TQ2,
                                     GB_TENSOR_F16};
    bitnet_sampler s;
    size_t way;
    bitnet_token i, t;
    memset(&s, 0, sizeof s);
    s.mask_fn = six_tokens;
    for (way = 0; way < sizeof heads / sizeof heads[0]; way++) {
        grouped x = make_grouped(IMP_Q2, heads[way], 0);
        bitnet_model *m = load(x.g.data, x.g.size, 0);
        bitnet_ctx_params p = ctx_params(8, 0, 1, BITNET_KV_F16);
        bitnet_ctx *c = create(m, &p);
        for (t = 0; t < 20; t++) {
            const bitnet_token got = bitnet_eval(c, 0, &t, 1, 1, 0) ? -1
                                     : bitnet_sample(c, -1, &s, NULL);
            const float *logits = bitnet_logits(c, -1, NULL);
            bitnet_token best = 32;
            for (i = 33; logits && i < 38; i++)
                if (logits[i] > logits[best]) best = i;
            CHECK_MSG(got == best, "head %d, token %d: %d, not %d", (int)way, (int)t, (int)got,
                      (int)best);
            bitnet_seq_rewind(c, 0, 0, NULL);
        }
        bitnet_ctx_free(c);
        bitnet_model_free(m);
        free_grouped(&x);
    }
}

static void test_cancelled(void) {
    grouped x = make_grouped(IMP_Q2, IMP_Q2, 0);
    const bitnet_token tokens[6] = {7, 42, 99, 0, 258, 5};
    bitnet_ctx_params p = ctx_params(12, 0, 2, BITNET_KV_F16);
    float *want = logits_of(x.g.data, x.g.size, 0, &p, tokens, 6, 6);
    bitnet_model *m = load(x.g.data, x.g.size, 0);
    bitnet_ctx *c;
    int i, at, cancelled = 0, bad = 0;
    p.hooks.cancel_fn = cancel_later;
    c = create(m, &p);
    for (at = 0; at < 40 && c && want && !bad; at++) {
        bitnet_result r;
        cancel_from = 1 << 30;
        if (bitnet_seq_rewind(c, 0, 0, NULL) || bitnet_eval(c, 0, tokens, 3, 3, 0)) bad = 1;
        cancel_from = asked = 0;                   /* from now on, always */
        for (i = 0; i < 3 && !bad && at % 2; i++)
            if (memcmp(bitnet_logits(c, i, NULL), want + i * 259, 259 * sizeof *want)) bad = 2;
        cancel_from = at;
        asked = 0;
        r = bitnet_eval(c, 0, tokens + 3, 3, 3, 0);
        if (r != BITNET_OK && r != BITNET_ERR_CANCELLED) bad = 3;
        cancelled += r == BITNET_ERR_CANCELLED;
        if (r == BITNET_ERR_CANCELLED) {
            const float *row = bitnet_logits(c, 0, NULL);
            if (row && memcmp(row, want, 259 * sizeof *want)) bad = 4;
            if (bitnet_seq_length(c, 0) != 3) bad = 5;
            cancel_from = 1 << 30;
            if (bitnet_eval(c, 0, tokens + 3, 3, 3, 0)) bad = 6;
        }
        for (i = 0; i < 3 && !bad; i++)
            if (memcmp(bitnet_logits(c, i, NULL), want + (3 + i) * 259, 259 * sizeof *want))
                bad = 7;
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    free(want);
    free_grouped(&x);
    CHECK_MSG(!bad && cancelled > 3, "at check %d, %d cancelled", bad, cancelled);
}

static void pooling_key(gb_file *f) { gb_key_u32(f, "qwen3.pooling_type", 3); }

/* Vectors of texts: the last stream of the last token, normalised. Such a file has no head. */
static void test_embedding(void) {
    static const uint32_t embeds[] = {GB_TENSOR_F16, IMP_Q2, IMP_TQ1, IMP_PTQ1};
    static const bitnet_token tokens[HEAD_TOKENS] = {0, 258, 16, 15, 17, 100, 31, 200, 33};
    int k, i;
    for (k = 0; k < 4; k++) {
        bitnet_ctx_params p = ctx_params(HEAD_TOKENS, 0, 2, BITNET_KV_F32);
        bitnet_embed_input in[2];
        float got[2][256];
        double h[256], stream[256], length = 0, error = 0;
        head_streams *s = (head_streams *)gb_malloc(sizeof *s);
        slow shape;
        grouped x;
        bitnet_model *m;
        bitnet_model_info info;
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet_ctx *c;
        imp.number = 0;
        start_grouped(&x, IMP_Q2, embeds[k], 0);
        x.g.file.add_keys = pooling_key;
        gb_make_model(&x.g);
        memset(&shape, 0, sizeof shape);
        shape.eps = (double)x.g.eps;
        m = load(x.g.data, x.g.size, 0);
        bitnet_model_get_info(m, &info);
        p.hooks.layer_fn = head_layer;
        p.hooks.layer_ud = s;
        s->last = 1;
        c = create(m, &p);
        memset(in, 0, sizeof in);
        in[0].tokens = in[1].tokens = tokens;
        in[0].n_tokens = in[1].n_tokens = HEAD_TOKENS;
        CHECK_MSG(c && !bitnet_embed(c, in, 1, 0, got[0], &err), "%s", err.text);
        for (i = 0; i < 256; i++) stream[i] = (double)s->x[1][(HEAD_TOKENS - 1) * 256 + i];
        CHECK(s->x[0][300] == x.g.embed[258 * 256 + 300 - 256]);
        bitnet_ctx_free(c);
        p.hooks.layer_fn = 0;
        p.n_seqs = 2;
        c = create(m, &p);                         /* two of them at once */
        CHECK(c && !bitnet_embed(c, in, 2, 0, got[0], &err) && !memcmp(got[0], got[1], 1024));
        slow_norm(&shape, stream, x.g.output_norm, 256, h);
        for (i = 0; i < 256; i++) length += h[i] * h[i];
        for (i = 0; i < 256; i++) error += fabs(h[i] / sqrt(length) - (double)got[0][i]);
        CHECK_MSG(error < 256 * 1e-6, "off by %g", error);
        CHECK(!info.has_head && info.group == 64 && !strcmp(info.head_type, "none"));
        CHECK(!strcmp(info.embed_type, bitnet_tensor_type_name(embeds[k])));
        bitnet_ctx_free(c);
        bitnet_model_free(m);
        free(s);
        free_grouped(&x);
    }
}

/* ---- saved sequences ---- */

/* A model knows its own by the scales of its groups: the same file but for one of them refuses. */
static void test_state(void) {
    grouped x = make_grouped(IMP_Q2, IMP_Q2, 0);
    const bitnet_token tokens[6] = {7, 42, 99, 0, 258, 5};
    bitnet_ctx_params p = ctx_params(12, 0, 1, BITNET_KV_F16);
    uint8_t *saved = 0;
    size_t size = 0;
    int way;
    for (way = 0; way < 4; way++) {
        const bitnet_kernels *table = way == 1 ? &bitnet__kernels_scalar : 0;
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet_model *m;
        bitnet_ctx *c;
        bitnet_result r;
        if (way == 2) put_scale(IMP_Q2, x.g.data + imp_offset(&x.g, "blk.1.ffn_up.weight"), 256, 3,
                                192, 0x2801);
        if (way == 3) {                            /* another training of this shape */
            free_grouped(&x);
            imp.number = 0;
            start_grouped(&x, IMP_Q2, IMP_Q2, 0);
            x.g.seed = 41;
            gb_make_model(&x.g);
        }
        m = load(x.g.data, x.g.size, table);
        c = create(m, &p);
        CHECK(c);
        if (way == 0) {
            CHECK(!bitnet_eval(c, 0, tokens, 6, 6, 0));
            size = (size_t)bitnet_seq_state_bytes(c, 0);
            saved = (uint8_t *)gb_malloc(size);
            CHECK(!bitnet_seq_save_memory(c, 0, saved, size, &err));
        } else {
            r = bitnet_seq_load_memory(c, 0, saved, size, &err);
            CHECK_MSG(way == 1 ? !r && bitnet_seq_length(c, 0) == 6
                               : r == BITNET_ERR_UNSUPPORTED &&
                                     strstr(err.text, "another model"),
                      "way %d: %s, %s", way, bitnet_result_text(r), err.text);
        }
        bitnet_ctx_free(c);
        bitnet_model_free(m);
    }
    free(saved);
    free_grouped(&x);
}

/* ---- YaRN ---- */

typedef struct yarn { float factor, fast, slow, attention, base; int original; } yarn;
static yarn yarn_keys;
static const char *yarn_omit, *yarn_extra;

/* Betas and the factor of the length are left out where they are 0. */
static void add_yarn(gb_file *f) {
    f->omit = yarn_omit;
    gb_key_str(f, "qwen3.rope.scaling.type", "yarn");
    gb_key_f32(f, "qwen3.rope.scaling.factor", yarn_keys.factor);
    gb_key_u32(f, "qwen3.rope.scaling.original_context_length", (uint32_t)yarn_keys.original);
    if (yarn_keys.fast > 0)
        gb_key_f32(f, "qwen3.rope.scaling.yarn_beta_fast", yarn_keys.fast);
    if (yarn_keys.slow > 0)
        gb_key_f32(f, "qwen3.rope.scaling.yarn_beta_slow", yarn_keys.slow);
    if (yarn_keys.attention > 0)
        gb_key_f32(f, "qwen3.rope.scaling.attn_factor", yarn_keys.attention);
    if (yarn_extra) gb_key_f32(f, yarn_extra, 0.5f);
    f->omit = 0;
}

static grouped yarn_model(const yarn *y, int n_rot) {
    grouped x;
    yarn_keys = *y;
    imp.number = 0;
    start_grouped(&x, IMP_Q2, GB_TENSOR_F16, 0);
    x.g.freq_base = y->base;
    x.g.n_rot = n_rot;
    x.g.file.add_keys = add_yarn;
    return x;
}

/* The pair, not a whole number, that turns `beta` times in the original length. */
static double yarn_at(const yarn *y, int n_rot, double beta) {
    return n_rot * log(y->original / (beta * 2 * acos(-1.0))) / (2 * log((double)y->base));
}

static double yarn_frequency(const yarn *y, int n_rot, int i) {
    const double turns_fast = y->fast > 0 ? (double)y->fast : 32;
    const double turns_slow = y->slow > 0 ? (double)y->slow : 1;
    const double freq = pow((double)y->base, -2.0 * i / n_rot);
    double low = floor(yarn_at(y, n_rot, turns_fast)), ramp;
    double high = ceil(yarn_at(y, n_rot, turns_slow));
    if (low < 0) low = 0;
    if (high > n_rot - 1) high = n_rot - 1;
    ramp = (i - low) / (high - low > 0.001 ? high - low : 0.001);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return freq / (double)y->factor * ramp + freq * (1 - ramp);
}

static void test_yarn(void) {
    static const yarn cases[] = {
        {4, 0, 0, 0, 1e6f, 64}, {2, 0, 0, 0, 5e6f, 32768}, {8, 16, 2, 0.8f, 1e7f, 8192},
        {0.5f, 0, 0, 0, 1e6f, 64}, {1, 0, 0, 2, 1e6f, 1024}, {4, 0, 0, 0, 1e4f, 1 << 20},
        {32, 0, 0, 0, 1e6f, 16}, {3, 8, 8, 0, 1e6f, 512}, {16, 64, 0.25f, 1, 5e5f, 4096}
    };
    size_t i;
    for (i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        const yarn *y = &cases[i / 2];
        const int n_rot = i % 2 ? 64 : 48;
        const double attention = y->attention > 0 ? (double)y->attention : 1;
        const double length = attention * (y->factor > 1 ? 1 + 0.1 * log((double)y->factor) : 1);
        grouped x = yarn_model(y, n_rot);
        float cos_sin[64];
        bitnet_model *m;
        double worst = 0, e;
        int k, bad = 0;
        gb_make_model(&x.g);
        m = load(x.g.data, x.g.size, 0);
        if (m) {
            bitnet__rotations(m, m->rope_freq[0], m->rope_length, 1000, cos_sin);
            for (k = 0; k < n_rot / 2; k++) {
                const double want = yarn_frequency(y, n_rot, k);
                e = fabs(m->rope_freq[0][k] - want) / want;
                if (!(e <= worst)) worst = e;
                bad += !(fabs((double)cos_sin[k] - length * cos(1000 * want)) < 1e-6);
                bad += !(fabs((double)cos_sin[n_rot / 2 + k] - length * sin(1000 * want)) < 1e-6);
            }
        }
        bitnet_model_free(m);
        free_grouped(&x);
        CHECK_MSG(m && worst < 1e-12 && !bad, "case %d: off by %g, %d angles", (int)i, worst, bad);
    }
}

static void test_yarn_refused(void) {
    static const yarn plain = {4, 0, 0, 0, 1e6f, 64};
    static const struct { const char *omit, *extra; yarn y; const char *word, *word2; } cases[] = {
        {"qwen3.rope.scaling.original_context_length", 0, {4, 0, 0, 0, 1e6f, 64},
         "original_context_length", "missing"},
        {0, 0, {4, 0, 0, 0, 1e6f, 0}, "original_context_length", "0"},
        {0, 0, {0, 0, 0, 0, 1e6f, 64}, "rope.scaling.factor", "0"},
        {0, 0, {4, 1e9f, 0, 0, 1e6f, 64}, "yarn_beta_fast", "0.001 to"},
        {0, 0, {4, 0, 0, 1e9f, 1e6f, 64}, "attn_factor", "0.001 to 1000"},
        {0, "qwen3.rope.scaling.yarn_ext_factor", {4, 0, 0, 0, 1e6f, 64}, "yarn_ext_factor", "1"},
        {0, "qwen3.rope.scaling.yarn_attn_factor", {4, 0, 0, 0, 1e6f, 64}, "yarn_attn_factor", "1"}
    };
    grouped x = yarn_model(&plain, 0);
    size_t i;
    yarn_extra = 0;
    yarn_omit = "qwen3.rope.scaling.factor";       /* then it is 1 */
    gb_make_model(&x.g);
    imp_grouped(&x.g, 64);
    free_grouped(&x);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        x = yarn_model(&cases[i].y, 0);
        yarn_omit = cases[i].omit;
        yarn_extra = cases[i].extra;
        gb_make_model(&x.g);
        check_refused(x.g.data, x.g.size, 0, BITNET_ERR_FORMAT, cases[i].word, cases[i].word2);
        free_grouped(&x);
    }
    yarn_omit = yarn_extra = 0;
}

/* A context of 65536 and a large base, as these models have them. */
static void test_long(void) {
    static const yarn y = {4, 0, 0, 0, 5e6f, 16384};
    const bitnet_token tokens[5] = {7, 42, 99, 0, 258};
    grouped x = yarn_model(&y, 0);
    bitnet_ctx_params p = ctx_params(5, 0, 1, BITNET_KV_F16);
    bitnet_model_info info;
    bitnet_model *m;
    bitnet_ctx *c;
    float *want, got[5 * 259];
    int same;
    x.g.n_ctx = 65536;
    x.g.heads = 2;
    x.g.kv_heads = 1;
    x.g.head_dim = 64;
    gb_make_model(&x.g);
    want = logits_of(x.g.data, x.g.size, 0, &p, tokens, 5, 5);
    m = load(x.g.data, x.g.size, 0);
    bitnet_model_get_info(m, &info);
    p.n_ctx = 65536;
    c = create(m, &p);
    same = c && want && bitnet_ctx_capacity(c) == 65536 && all_logits(c, tokens, 5, 5, got) &&
           !memcmp(got, want, sizeof got);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    free(want);
    free_grouped(&x);
    CHECK(same && info.ctx_train == 65536);
}

/* ---- what is refused by its name ---- */

static void test_refused_arch(void) {
    static const struct { const char *arch, *why; } cases[] = {
        {"qwen35moe", "linear attention"}, {"qwen3next", "linear attention"},
        {"qwen3moe", "experts"}
    };
    static const char *const all[] = {"bitnet-b1.58", "bitnet-25", "bitnet", "llama", "minicpm",
                                      "qwen3", "gemma3", "maple", "qwen35"};
    const size_t n_all = sizeof all / sizeof all[0];
    bitnet_error err;
    bitnet_model *m = 0;
    char list[300], *word;
    size_t i, n = 0;
    grouped x;
    for (i = 0; i <= sizeof cases / sizeof cases[0]; i++) {
        const int known = i < sizeof cases / sizeof cases[0];
        imp.number = 0;
        start_grouped(&x, IMP_Q2, IMP_Q2, 0);
        x.g.arch = known ? cases[i].arch : "qwen2";
        gb_make_model(&x.g);
        check_refused(x.g.data, x.g.size, 0, BITNET_ERR_UNSUPPORTED, x.g.arch,
                      known ? cases[i].why : "these are");
        if (!known) load_blocks(x.g.data, x.g.size, 0, &m, &err);
        free_grouped(&x);
    }
    CHECK(!m && strstr(err.text, "are: "));
    snprintf(list, sizeof list, "%s", strstr(err.text, "are: ") + 5);
    for (word = strtok(list, ", "); word; word = strtok(0, ", "), n++)
        CHECK_MSG(n < n_all && !strcmp(word, all[n]), "%s", err.text);
    CHECK_MSG(n == n_all, "%s", err.text);
}

static const char *hadamard_key;
static void add_hadamard(gb_file *f) { gb_key_u32(f, hadamard_key, 128); }

static void test_hadamard(void) {
    static const char *const keys[] = {
        "prism.hadamard.block_size", "prism.hadamard.", "prism.hadamard.\x1b[31mred",
        "prism.hadamard.a.name.that.is.much.longer.than.the.text.of.an.error.may.be.a.name.that.is"
        ".much.longer.than.the.text.of.an.error.may.be.a.name.that.is.much.longer.than.the.text.of"
        ".an.error.may.be"
    };
    static const char *const fine[] = {"prism.hadamard", "prism.hadamards.size",
                                       "a.prism.hadamard.b"};
    size_t i;
    for (i = 0; i < 7; i++) {
        grouped x;
        imp.number = 0;
        start_grouped(&x, IMP_Q2, IMP_Q2, 0);
        hadamard_key = i < 4 ? keys[i] : fine[i - 4];
        x.g.file.add_keys = add_hadamard;
        gb_make_model(&x.g);
        if (i == 0)
            check_refused(x.g.data, x.g.size, 0, BITNET_ERR_FORMAT, "prism.hadamard.version",
                          "is missing");
        else if (i < 4)
            check_refused(x.g.data, x.g.size, 0, BITNET_ERR_UNSUPPORTED, "prism.hadamard.",
                          i < 3 ? "is not known, and could change the results" : "GGUF key");
        else imp_grouped(&x.g, 64);
        free_grouped(&x);
    }
    {
        gb_model g = tiny();                       /* with norms in front of other matrices */
        hadamard_key = keys[0];
        g.file.add_keys = add_hadamard;
        expect(&g, BITNET_ERR_UNSUPPORTED, keys[0], "folded");
    }
}

const test_case groups_tests[] = {
    {"groups/s64", test_s64},
    {"groups/s128", test_s128},
    {"groups/s128p", test_s128p},
    {"groups/exact", test_s_exact},
    {"groups/variants", test_s_variants},
    {"groups/sequences", test_s_sequences},
    {"groups/products", test_products},
    {"groups/floats", test_floats},
    {"groups/digits", test_digits},
    {"groups/blocks", test_blocks},
    {"groups/blocks_both", test_blocks_both},
    {"groups/blocks_last", test_blocks_last},
    {"groups/damage", test_damage},
    {"groups/contents", test_contents},
    {"groups/ways", test_ways},
    {"groups/in_place", test_in_place},
    {"groups/load_memory", test_load_memory},
    {"groups/one_differs", test_one_differs},
    {"groups/mixed", test_mixed},
    {"groups/two_types", test_two_types},
    {"groups/separate", test_separate},
    {"groups/narrow", test_narrow},
    {"groups/heads", test_heads},
    {"groups/head_batches", test_head_batches},
    {"groups/masked_head", test_masked_head},
    {"groups/cancelled", test_cancelled},
    {"groups/embedding", test_embedding},
    {"groups/state", test_state},
    {"groups/yarn", test_yarn},
    {"groups/yarn_refused", test_yarn_refused},
    {"groups/long", test_long},
    {"groups/refused_arch", test_refused_arch},
    {"groups/hadamard", test_hadamard},
    {0, 0}
};
