/* Ternary weights with a scale per group, of 64, 128 or 256: Q2_0 in both kinds, TQ1_0 and TQ2_0
   whose blocks differ; ternary embeddings and heads; and what else such models bring along: YaRN,
   and qwen3 without norms in front of each layer. Models s64, s128 and s128p of BITNET_TEST_DATA
   come from an independent program, with reference results in float64; others are built here. */

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
    p.layer_fn = s_layer;
    p.layer_ud = r;
    c = create(m, &p);
    for (i = 0, ok = c != 0; i < S_TOKENS && ok; i++) {
        const float *logits;
        rounding.token = i;
        r->seen = 0;
        ok = !bitnet_eval(c, tokens + i, 1, 1, 0) && (logits = bitnet_logits(c, 0)) != 0;
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
    for (k = 0; k < all_tables_count() && !bad[0]; k++) {
        const bitnet_kernels *table = all_tables(k);
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
                const float *row = bitnet_logits(c, in[i].row + t);
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

enum { W_RANDOM, W_PLUS, W_MINUS, W_KINDS };
enum { D_RANDOM, D_TINY, D_ZERO, D_MINUS, D_LARGE, D_KINDS };
enum { Q_RANDOM, Q_127, Q_MINUS_128, Q_KINDS };

static int8_t product_weight(uint64_t *seed, int kind) {
    return (int8_t)(kind == W_PLUS ? 1 : kind == W_MINUS ? -1 : (int)(gb_random(seed) % 3) - 1);
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

/* y of row r and column c in double, and the sum of all magnitudes, for the rounding that is due. */
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

/* The tensor as a file has it, repacked as a model is loaded, times q, by every table. */
static int check_product(const product *p, uint64_t seed) {
    const int group = imp_shape_of(p->type).weights, groups = p->n / group, stride = p->rows + 3;
    const size_t n_weights = (size_t)p->n * (size_t)p->rows, n_out = (size_t)(stride * p->cols);
    bitnet_ternary t = {p->type, p->n, p->rows, BITNET_I2S_128, {0, 0, 0}};
    int8_t *w = (int8_t *)gb_malloc(n_weights), *q = (int8_t *)gb_malloc((size_t)(p->cols * p->n));
    float *d = (float *)gb_malloc((size_t)(p->rows * groups) * sizeof *d);
    float *steps = (float *)gb_malloc((size_t)(p->cols * groups) * sizeof *steps);
    float *y = (float *)gb_malloc(n_out * sizeof *y);
    int32_t *sums = (int32_t *)gb_malloc((size_t)(p->cols * groups) * sizeof *sums);
    uint8_t *packed = (uint8_t *)gb_malloc(bitnet__groups_bytes(p->n, group, p->rows)), *data;
    bitnet__unpacked u;
    size_t size, i;
    int r, c, k, ok;
    for (i = 0; i < n_weights; i++) w[i] = product_weight(&seed, p->w);
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
    data = imp_blocks(p->type, w, n_weights, d, &size);
    memset(&u, 0, sizeof u);
    ok = bitnet__repack_groups(&t, data, 0, p->rows, packed, &u);
    for (k = 0; k < all_tables_count() && ok; k++) {
        const bitnet_kernels full = bitnet__fill_kernels(all_tables(k));
        if (!bitnet_kernels_usable(&full)) continue;
        for (i = 0; i < n_out; i++) y[i] = 0.5f + (float)i;
        full.dotrows_groups(packed, q, sums, steps, p->n, group, p->rows, p->cols, p->add, y,
                            (size_t)stride);
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
                          "contents %d %d %d, add %d: row %d, column %d: %g, not %g", full.name,
                          (int)p->type, p->n, p->rows, p->cols, p->w, p->d, p->q, p->add, r, c,
                          (double)y[i], want);
        }
    }
    free(w), free(q), free(d), free(steps), free(y), free(sums), free(packed), free(data);
    return ok;
}

static void test_products(void) {
    static const uint32_t types[] = {IMP_Q2, IMP_PQ2, IMP_TQ1, IMP_TQ2};
    static const int row_counts[] = {1, 15, 16, 17, 33, 70};
    int i, kind, turn = 0;
    for (i = 0; i < 4; i++) {
        const int group = imp_shape_of(types[i]).weights;
        for (kind = 0; kind < W_KINDS * D_KINDS * Q_KINDS; kind++, turn++) {
            const product p = {types[i], group * (1 + turn % 5), row_counts[turn % 6], 1 + turn % 4,
                               kind % W_KINDS, kind / W_KINDS % D_KINDS,
                               kind / W_KINDS / D_KINDS, turn % 2};
            if (!check_product(&p, 1000 + (uint64_t)turn)) return;
        }
    }
}

/* Rows as floats: of a tensor in the file, and of one that is repacked. */
static void test_floats(void) {
    static const uint32_t types[] = {IMP_Q2, IMP_PQ2, IMP_TQ1, IMP_TQ2};
    enum { N = 768, ROWS = 19 };
    static int8_t w[N * ROWS], codes[N * ROWS];
    static float d[N * ROWS / 64], got[N * ROWS];
    int i, k, bad;
    uint64_t seed = 5;
    for (i = 0; i < 4; i++) {
        const int group = imp_shape_of(types[i]).weights;
        bitnet_ternary t = {types[i], N, ROWS, BITNET_I2S_128, {0, 0, 0}};
        uint8_t *packed = (uint8_t *)gb_malloc(bitnet__groups_bytes(N, group, ROWS)), *data;
        bitnet_error err = {BITNET_OK, ""};
        bitnet__linear l;
        bitnet__unpacked u;
        size_t size;
        for (k = 0; k < N * ROWS; k++) w[k] = product_weight(&seed, W_RANDOM);
        for (k = 0; k < N * ROWS / group; k++) d[k] = product_scale(&seed, k % D_KINDS);
        data = imp_blocks(types[i], w, N * ROWS, d, &size);
        CHECK(!bitnet_ternary_unpack(&t, data, 0, ROWS, codes, &err) &&
              !memcmp(codes, w, sizeof w));
        CHECK(!bitnet_floats_unpack(types[i], data, N * ROWS, got, &err));
        for (k = 0, bad = 0; k < N * ROWS; k++) bad += got[k] != d[k / group] * (float)w[k];
        CHECK_MSG(!bad, "type %d: %d floats", (int)types[i], bad);
        CHECK(bitnet_floats_unpack(types[i], data, group / 2, got, &err) == BITNET_ERR_ARG);
        memset(&u, 0, sizeof u);
        memset(&l, 0, sizeof l);
        CHECK(bitnet__repack_groups(&t, data, 0, ROWS, packed, &u));
        l.w = packed;
        l.n_in = N;
        l.group = group;
        for (k = 0; k < ROWS; k++) bitnet__groups_row(&l, k, got + k * N);
        for (k = 0, bad = 0; k < N * ROWS; k++) bad += got[k] != d[k / group] * (float)w[k];
        CHECK_MSG(!bad, "type %d: %d floats of rows", (int)types[i], bad);
        free(packed);
        free(data);
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
    {0, 0}
};
