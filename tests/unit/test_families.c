/* The other families of ternary networks: 1bitLLM's (architecture bitnet: SiLU), LLaMA-shaped ones
   (architecture llama: SiLU, adjacent pairs, no sub-norms, a head of their own) and BitCPM-CANN
   (architecture minicpm: the same with three factors). Small models of each are compared with a
   forward pass in double that is written here from FORMATS.md, then with themselves: kernels,
   threads and batches give the same bits. What a file may say beyond that is refused by name. Uses
   the helpers of test_model.c. */

#include "gguf_helpers.h"
#include "model_helpers.h"
#include "slow_model.h"
#include "ternary_builder.h"

/* ---- the reference ---- */

typedef struct family {                /* how the reference computes */
    int silu, adjacent;
    double rope_factor;                /* 0: 1 */
    const float *rope_own;             /* [n_rot / 2] or 0 */
    const double *scales;              /* of the embedding, what layers add, and the logits; or 0 */
} family;

/* Pair i of v turns by pos * theta^(-2i / n_rot), divided by the factors. */
static void family_rope(const slow *s, const family *f, double *v, int pos) {
    int i, half = s->n_rot / 2;
    for (i = 0; i < half; i++) {
        double angle = pos * pow(s->theta, -2.0 * i / s->n_rot);
        double *a = f->adjacent ? v + 2 * i : v + i, *b = f->adjacent ? a + 1 : v + half + i;
        double x, y;
        if (f->rope_factor > 0) angle /= f->rope_factor;
        if (f->rope_own) angle /= (double)f->rope_own[i];
        x = *a * cos(angle) - *b * sin(angle);
        y = *a * sin(angle) + *b * cos(angle);
        *a = x;
        *b = y;
    }
}

static double family_gate(const family *f, double g) {
    if (f->silu) return g / (1.0 + exp(-g));
    return g > 0 ? g * g : 0;
}

/* x through one layer at position pos. A norm that the file lacks is none at all. */
static void family_layer(slow *s, const family *f, int layer, int pos, double *x) {
    const gb_model *m = s->m;
    const double added = f->scales ? f->scales[1] : 1;
    const gb_layer *l = &m->layer[layer];
    size_t q_dim = (size_t)(m->heads * s->hd), kv_dim = (size_t)(m->kv_heads * s->hd);
    size_t wide = (size_t)(m->dim + m->ffn) + q_dim, at, i;
    double *h = (double *)gb_malloc(4 * wide * sizeof *h), *q = h + wide, *o = q + wide;
    double *u = o + wide;
    double *k = s->keys + ((size_t)layer * (size_t)s->n + (size_t)pos) * kv_dim;
    double *v = s->values + ((size_t)layer * (size_t)s->n + (size_t)pos) * kv_dim;
    int head;
    slow_norm(s, x, l->attn_norm, m->dim, h);
    slow_linear(&l->q, h, q);
    slow_linear(&l->k, h, k);
    slow_linear(&l->v, h, v);
    for (head = 0; head < m->kv_heads; head++) family_rope(s, f, k + head * s->hd, pos);
    for (head = 0; head < m->heads; head++) {
        at = (size_t)(head * s->hd);
        family_rope(s, f, q + at, pos);
        slow_attention(s, layer, q + at, head / (m->heads / m->kv_heads), pos, o + at);
    }
    if (l->attn_sub_norm) slow_norm(s, o, l->attn_sub_norm, (int)q_dim, o);
    slow_linear(&l->o, o, h);
    for (i = 0; i < (size_t)m->dim; i++) x[i] += added * h[i];
    slow_norm(s, x, l->ffn_norm, m->dim, h);
    slow_linear(&l->gate, h, q);
    slow_linear(&l->up, h, u);
    for (i = 0; i < (size_t)m->ffn; i++) q[i] = family_gate(f, q[i]) * u[i];
    if (l->ffn_sub_norm) slow_norm(s, q, l->ffn_sub_norm, m->ffn, q);
    slow_linear(&l->down, q, h);
    for (i = 0; i < (size_t)m->dim; i++) x[i] += added * h[i];
    free(h);
}

/* Logits [n][n_vocab]. */
static float *family_forward(const gb_model *m, const family *f, const bitnet_token *tokens,
                             int n) {
    slow s;
    double *x = (double *)gb_malloc(2 * (size_t)m->dim * sizeof *x), *h = x + m->dim;
    float *out = (float *)gb_malloc((size_t)n * (size_t)m->n_vocab * sizeof *out);
    size_t kv;
    int t, i, r;
    s.m = m;
    s.hd = m->head_dim ? m->head_dim : m->dim / m->heads;
    s.n_rot = m->n_rot ? m->n_rot : s.hd;
    s.n = n;
    s.eps = (double)m->eps;
    s.theta = m->freq_base > 0 ? (double)m->freq_base : 10000.0;
    kv = (size_t)m->layers * (size_t)n * (size_t)(m->kv_heads * s.hd);
    s.keys = (double *)gb_malloc(2 * kv * sizeof *s.keys);
    s.values = s.keys + kv;
    for (t = 0; t < n; t++) {
        for (i = 0; i < m->dim; i++)
            x[i] = (double)m->embed[(size_t)tokens[t] * (size_t)m->dim + (size_t)i] *
                   (f->scales ? f->scales[0] : 1);
        for (i = 0; i < m->layers; i++) family_layer(&s, f, i, t, x);
        slow_norm(&s, x, m->output_norm, m->dim, h);
        for (r = 0; r < m->n_vocab; r++) {
            const float *row = m->head + (size_t)r * (size_t)m->dim;
            double sum = 0;
            for (i = 0; i < m->dim; i++) sum += (double)row[i] * h[i];
            if (f->scales) sum /= f->scales[2];
            out[(size_t)t * (size_t)m->n_vocab + (size_t)r] = (float)sum;
        }
    }
    free(s.keys);
    free(x);
    return out;
}

/* ---- models against it ---- */

enum { FAMILY_TOKENS = 19 };           /* of architecture llama's 4 heads on 2: two blocks attend */

static void family_tokens(const gb_model *m, bitnet_token *tokens) {
    uint64_t seed = 99;
    int i;
    for (i = 0; i < FAMILY_TOKENS; i++)
        tokens[i] = (bitnet_token)(gb_random(&seed) % (uint32_t)m->n_vocab);
}

/* The largest and the middle NRMSE of the rows, and whether some row has another argmax. */
typedef struct family_error { double worst, median; int argmax; } family_error;

static family_error family_compare(const float *got, const float *want, int n_vocab) {
    family_error e = {0, 0, 0};
    double sorted[FAMILY_TOKENS];
    int i, j;
    for (i = 0; i < FAMILY_TOKENS; i++) {
        size_t at = (size_t)i * (size_t)n_vocab;
        double d = nrmse(got + at, want + at, (size_t)n_vocab);
        if (!(d >= 0)) d = 1e9;                            /* NaN */
        if (largest(got + at, n_vocab) != largest(want + at, n_vocab)) e.argmax = 1;
        for (j = i; j > 0 && sorted[j - 1] > d; j--) sorted[j] = sorted[j - 1];
        sorted[j] = d;
    }
    e.worst = sorted[FAMILY_TOKENS - 1];
    e.median = sorted[FAMILY_TOKENS / 2];
    return e;
}

/* Builds the model; its logits (F32 cache) must be the reference's, and not those that the same
   file would give with the other gate or the other pairs; then all variants, in bits. */
static void check_family(gb_model *m, family f, int variants) {
    bitnet_token tokens[FAMILY_TOKENS];
    bitnet_ctx_params p = ctx_params(FAMILY_TOKENS, 0, 1, BITNET_KV_F32);
    family other_gate = f, other_pairs = f;
    float *want, *got;
    family_error e = {0, 0, 0}, gate = e, pairs = e;
    gb_make_model(m);
    family_tokens(m, tokens);
    other_gate.silu = !f.silu;
    other_pairs.adjacent = !f.adjacent;
    got = logits_of(m->data, m->size, 0, &p, tokens, FAMILY_TOKENS, FAMILY_TOKENS);
    if (got) {
        want = family_forward(m, &f, tokens, FAMILY_TOKENS);
        e = family_compare(got, want, m->n_vocab);
        free(want);
        want = family_forward(m, &other_gate, tokens, FAMILY_TOKENS);
        gate = family_compare(got, want, m->n_vocab);
        free(want);
        want = family_forward(m, &other_pairs, tokens, FAMILY_TOKENS);
        pairs = family_compare(got, want, m->n_vocab);
        free(want);
        if (variants)
            check_variants(m->data, m->size, tokens, FAMILY_TOKENS, m->n_vocab, 0);
    }
    free(got);
    gb_free_model(m);
    if (!got) return;
    CHECK_MSG(e.worst <= 2e-2 && e.median <= 1e-5 && !e.argmax,
              "NRMSE %.3g at worst, median %.3g%s", e.worst, e.median,
              e.argmax ? ", another argmax" : "");
    CHECK_MSG(gate.median > 0.1 && pairs.median > 0.1,
              "the test can't tell gates (%.3g) or pairs (%.3g) apart", gate.median, pairs.median);
}

/* The seeds are such that no rounding to int8 falls on an edge (FORMATS.md, "How close is close");
   about one in ten has one, and 2 % in the rows behind it. */
#define FAMILY(name, is_silu, is_adjacent, ...) \
    static void name(void) { \
        gb_model m = {__VA_ARGS__}; \
        family f = {is_silu, is_adjacent, 0, 0, 0}; \
        check_family(&m, f, 1); \
    }
/* freq_base without a key: 10000, here and below where none is given. */
FAMILY(test_family_bitnet, 1, 0, .arch = "bitnet", .dim = 192, .ffn = 320, .layers = 2, .heads = 4,
       .kv_heads = 4, .eps = 1e-6f, .scale_suffix = ".scale", .embed_type = GB_TENSOR_F16,
       .seed = 21)
FAMILY(test_family_bitnet_untied, 1, 0, .arch = "bitnet", .dim = 128, .ffn = 256, .layers = 2,
       .heads = 2, .kv_heads = 1, .eps = 1e-5f, .freq_base = 5000.0f, .scale_suffix = "_scale",
       .untied = 1, .head_type = GB_TENSOR_F32, .seed = 22)
FAMILY(test_family_llama, 1, 1, .arch = "llama", .dim = 256, .ffn = 384, .layers = 2, .heads = 4,
       .kv_heads = 2, .eps = 1e-5f, .freq_base = 500000.0f, .no_sub_norms = 1, .untied = 1,
       .embed_type = GB_TENSOR_F16, .head_type = GB_TENSOR_F16, .seed = 23)
/* Heads wider together than the network, partly turned, one KV head for all; a tied head. */
FAMILY(test_family_llama_wide, 1, 1, .arch = "llama", .dim = 128, .ffn = 192, .layers = 3,
       .heads = 4, .kv_heads = 1, .head_dim = 48, .n_rot = 26, .eps = 1e-6f, .no_sub_norms = 1,
       .embed_type = GB_TENSOR_BF16, .seed = 4)
FAMILY(test_family_llama_heads, 1, 1, .arch = "llama", .dim = 192, .ffn = 128, .layers = 2,
       .heads = 6, .kv_heads = 6, .eps = 1e-5f, .no_sub_norms = 1, .untied = 1,
       .head_type = GB_TENSOR_BF16, .spare_rows = 5, .seed = 5)

/* Weights with a scale per group, of each kind, in families that have no such models so far; rows
   that are whole blocks of 64 but not of 128, and norms that come between. */
static void test_family_groups(void) {
    static const struct { uint32_t type; const char *arch; int silu, adjacent; } cases[] = {
        {IMP_Q2, "llama", 1, 1}, {IMP_PQ2, "bitnet", 1, 0}, {IMP_TQ1, "bitnet-b1.58", 0, 0},
        {IMP_TQ2, "llama", 1, 1}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int tq = cases[i].type < IMP_I2S, q2 = cases[i].type == IMP_Q2;
        family f = {cases[i].silu, cases[i].adjacent, 0, 0, 0};
        gb_model m = {.dim = tq ? 256 : q2 ? 192 : 384, .ffn = tq ? 512 : q2 ? 320 : 640,
                      .layers = 2, .heads = tq ? 4 : 3, .kv_heads = 1, .eps = 1e-5f,
                      .freq_base = 10000.0f, .embed_type = GB_TENSOR_F16, .encode = imp_encode,
                      .seed = 31 + i};
        m.arch = cases[i].arch;
        m.no_sub_norms = !strcmp(m.arch, "llama");
        imp = (struct imp_setting){cases[i].type, {0, 0, 0}, 0, 0, 1, 0};
        check_family(&m, f, i % 2 == 0 || !test_quick());
    }
}

/* An untied head is read at all: with the embedding in its place all is different. */
static void test_family_head(void) {
    gb_model m = {.arch = "llama", .dim = 128, .ffn = 128, .layers = 1, .heads = 2, .kv_heads = 2,
                  .eps = 1e-5f, .no_sub_norms = 1, .untied = 1, .seed = 26};
    family f = {1, 1, 0, 0, 0};
    bitnet_token tokens[FAMILY_TOKENS];
    bitnet_ctx_params p = ctx_params(FAMILY_TOKENS, 0, 1, BITNET_KV_F32);
    float *got, *want, *head;
    family_error e = {0, 0, 0};
    gb_make_model(&m);
    family_tokens(&m, tokens);
    got = logits_of(m.data, m.size, 0, &p, tokens, FAMILY_TOKENS, FAMILY_TOKENS);
    head = m.head;
    m.head = m.embed;
    want = family_forward(&m, &f, tokens, FAMILY_TOKENS);
    m.head = head;
    if (got) e = family_compare(got, want, m.n_vocab);
    free(got);
    free(want);
    gb_free_model(&m);
    CHECK(e.median > 0.1);
}

/* A profile runs norm and quantize apart, and without a norm no step is called so. */
static void family_step(void *ud, const char *part, int thread, int begin) {
    (void)thread;
    if (begin && !strcmp(part, "norm")) *(int *)ud += 1;
}

static void test_family_profile(void) {
    gb_model m = {.arch = "llama", .dim = 128, .ffn = 128, .layers = 2, .heads = 2, .kv_heads = 2,
                  .eps = 1e-5f, .no_sub_norms = 1, .seed = 27};
    bitnet_token tokens[FAMILY_TOKENS];
    bitnet_ctx_params p = ctx_params(FAMILY_TOKENS, 0, 1, BITNET_KV_F16);
    float *want, *got;
    int norms = 0, same = 0;
    gb_make_model(&m);
    family_tokens(&m, tokens);
    want = logits_of(m.data, m.size, 0, &p, tokens, FAMILY_TOKENS, FAMILY_TOKENS);
    p.hooks.step_fn = family_step;
    p.hooks.step_ud = &norms;
    got = logits_of(m.data, m.size, 0, &p, tokens, FAMILY_TOKENS, FAMILY_TOKENS);
    if (want && got) same = !memcmp(want, got, FAMILY_TOKENS * (size_t)m.n_vocab * sizeof *got);
    free(want);
    free(got);
    gb_free_model(&m);
    CHECK(same);
    CHECK_MSG(norms == 2 * 2, "%d norms in two layers", norms);
}

/* ---- longer contexts ---- */

static const char *rope_type, *rope_key;
static float rope_value;
static void add_rope_keys(gb_file *f) {
    if (rope_type) gb_key_str(f, "llama.rope.scaling.type", rope_type);
    if (rope_key) gb_key_f32(f, rope_key, rope_value);
}

static gb_model rope_model(const char *type, const char *key, float value) {
    gb_model m = {.arch = "llama", .dim = 128, .ffn = 128, .layers = 2, .heads = 2, .kv_heads = 2,
                  .eps = 1e-5f, .no_sub_norms = 1, .seed = 28};
    rope_type = type;
    rope_key = key;
    rope_value = value;
    m.file.add_keys = add_rope_keys;
    return m;
}

static void test_family_linear_rope(void) {
    static const struct { const char *type, *key; float value; double factor; } cases[] = {
        {"linear", "llama.rope.scaling.factor", 4.0f, 4.0},
        {0, "llama.rope.scaling.factor", 0.5f, 0.5},       /* linear is the default */
        {0, "llama.rope.scale_linear", 3.0f, 3.0},
        {"none", "llama.rope.scaling.factor", 8.0f, 1.0},
        {"linear", 0, 0, 1.0},
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gb_model m = rope_model(cases[i].type, cases[i].key, cases[i].value);
        family f = {1, 1, 0, 0, 0};
        f.rope_factor = cases[i].factor;
        check_family(&m, f, 0);
    }
}

/* Each pair's own factor, as converters write it for LLaMA 3.1. */
static float rope_own[32];
static void add_rope_own(gb_file *f) {
    gb_put_matrix(f, "rope_freqs.weight", GB_TENSOR_F32, rope_own, 32, 0);
}

static void test_family_own_rope(void) {
    gb_model m = rope_model(0, 0, 0);
    family f = {1, 1, 0, rope_own, 0};
    int i;
    for (i = 0; i < 32; i++) rope_own[i] = i < 10 ? 1.0f : 1.0f + (float)(i - 9) / 3.0f;
    m.file.add_keys = add_rope_own;
    check_family(&m, f, 0);
    rope_own[31] = 0.0f;
    m = rope_model(0, 0, 0);
    m.file.add_keys = add_rope_own;
    expect(&m, BITNET_ERR_FORMAT, "rope_freqs.weight", "31");
}

static struct { const char *name; uint32_t type; double value; const char *text; } extra_key;
static void add_extra_key(gb_file *f) {
    if (extra_key.type == GB_F32) gb_key_f32(f, extra_key.name, (float)extra_key.value);
    else if (extra_key.type == GB_STR)
        gb_key_str(f, extra_key.name, extra_key.text ? extra_key.text : "text");
    else if (extra_key.type == GB_BOOL)
        gb_key_uint(f, extra_key.name, GB_BOOL, extra_key.value > 0, 1);
    else gb_key_u32(f, extra_key.name, (uint32_t)extra_key.value);
}

/* ---- minicpm ---- */

/* Keys of scales, which are left out if they are 0, and the tensors of longrope. */
static struct { float value[3]; uint32_t original; } minicpm;
static const char *const minicpm_keys[] = {
    "minicpm.embedding_scale", "minicpm.residual_scale", "minicpm.logit_scale"
};
static float rope_short[64], rope_long[64];

static void add_scales(gb_file *f) {
    int i;
    for (i = 0; i < 3; i++)
        if (minicpm.value[i] < 0 || minicpm.value[i] > 0)
            gb_key_f32(f, minicpm_keys[i], minicpm.value[i]);
}

static void add_scales_and_key(gb_file *f) {
    add_scales(f);
    add_extra_key(f);
}

static gb_model minicpm_model(float embedding, float residual, float logit) {
    gb_model m = {.arch = "minicpm", .dim = 192, .ffn = 256, .layers = 3, .heads = 3, .kv_heads = 1,
                  .eps = 1e-4f, .no_sub_norms = 1, .seed = 41};
    minicpm.value[0] = embedding;
    minicpm.value[1] = residual;
    minicpm.value[2] = logit;
    m.file.add_keys = add_scales;
    return m;
}

/* The three scales, and what they are if the file has no keys. eps is large enough to be seen. */
static void test_family_minicpm(void) {
    static const double given[] = {3.0, 0.5, 1.5};
    const double absent[] = {12.0, 1.4 / sqrt(3.0), 192.0 / 256.0};
    const double no_logit[] = {3.0, 0.5, 192.0 / 256.0};
    family f = {1, 1, 0, 0, 0};
    gb_model m = minicpm_model(3.0f, 0.5f, 1.5f);
    f.scales = given;
    m.untied = 1;
    m.head_type = GB_TENSOR_F16;
    check_family(&m, f, 1);
    m = minicpm_model(0, 0, 0);                            /* a tied head is not multiplied by 12 */
    f.scales = absent;
    check_family(&m, f, 1);
    m = minicpm_model(3.0f, 0.5f, 0);
    f.scales = no_logit;
    check_family(&m, f, 0);
}

/* Logits are those of the hidden state, and whatever samples sees them divided. */
static void test_family_logit_scale(void) {
    float *logits[2] = {0, 0};
    float p[2] = {0, 0};
    int i, k, n_vocab = 0;
    for (i = 0; i < 2; i++) {
        gb_model m = minicpm_model(1.0f, 0.5f, i ? 8.0f : 1.0f);
        bitnet_ctx_params params = ctx_params(8, 0, 1, BITNET_KV_F32);
        bitnet_token tokens[3] = {5, 6, 7};
        bitnet_logprob best;
        bitnet_model *model;
        bitnet_ctx *c;
        gb_make_model(&m);
        model = load(m.data, m.size, 0);
        c = create(model, &params);
        if (c && !bitnet_eval(c, 0, tokens, 3, 1, 0) &&
            !bitnet_logprobs(c, -1, &best, 1, 0)) p[i] = best.logprob;
        n_vocab = m.n_vocab;
        logits[i] = (float *)gb_malloc((size_t)n_vocab * sizeof(float));
        if (c) memcpy(logits[i], bitnet_logits(c, -1, 0), (size_t)n_vocab * sizeof(float));
        bitnet_ctx_free(c);
        bitnet_model_free(model);
        gb_free_model(&m);
    }
    for (k = 0; k < n_vocab; k++) logits[1][k] *= 8.0f;
    CHECK(!memcmp(logits[0], logits[1], (size_t)n_vocab * sizeof(float)));
    CHECK_MSG(p[1] < p[0] - 0.1f, "log probability %g, divided %g", (double)p[0], (double)p[1]);
    free(logits[0]);
    free(logits[1]);
}

static void test_family_scales_refused(void) {
    static const float bad[] = {-1.0f, 1e-4f, 1e30f, INFINITY, NAN};
    size_t i, k;
    for (k = 0; k < 3; k++) {
        gb_model m;
        for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            m = minicpm_model(1.0f, 1.0f, 1.0f);
            minicpm.value[k] = 0;
            extra_key.name = minicpm_keys[k];
            extra_key.type = GB_F32;
            extra_key.value = (double)bad[i];
            m.file.add_keys = add_scales_and_key;
            expect(&m, BITNET_ERR_FORMAT, minicpm_keys[k], "is not an F32 from 0.001");
        }
        m = minicpm_model(1.0f, 1.0f, 1.0f);
        minicpm.value[k] = 0;
        extra_key.type = GB_U32;
        extra_key.value = 1;
        m.file.add_keys = add_scales_and_key;
        expect(&m, BITNET_ERR_FORMAT, minicpm_keys[k], "is not an F32");
    }
}

/* Two tables, of which n_ctx chooses one. */
static const char *long_arch, *long_omit;
static int long_length[2];
static void add_longrope(gb_file *f) {
    char name[100];
    if (!strcmp(long_arch, "minicpm")) add_scales(f);
    snprintf(name, sizeof name, "%s.rope.scaling.type", long_arch);
    gb_key_str(f, name, "longrope");
    snprintf(name, sizeof name, "%s.rope.scaling.original_context_length", long_arch);
    if (minicpm.original) gb_key_u32(f, name, minicpm.original);
    if (extra_key.name) add_extra_key(f);
    if (!long_omit || strcmp(long_omit, "short"))
        gb_put_matrix(f, "rope_factors_short.weight", GB_TENSOR_F32, rope_short, long_length[0], 0);
    if (!long_omit || strcmp(long_omit, "long"))
        gb_put_matrix(f, "rope_factors_long.weight", GB_TENSOR_F32, rope_long, long_length[1], 0);
}

static gb_model long_model(const char *arch, uint32_t original) {
    gb_model m = minicpm_model(2.0f, 0.5f, 2.0f);
    int i;
    for (i = 0; i < 32; i++) {
        rope_short[i] = 1.0f + 0.0625f * (float)i;
        rope_long[i] = 3.0f + 0.125f * (float)i;
    }
    long_arch = m.arch = arch;
    long_omit = 0;
    long_length[0] = long_length[1] = 32;
    minicpm.original = original;
    extra_key.name = 0;
    m.file.add_keys = add_longrope;
    return m;
}

static void test_family_longrope(void) {
    static const double scales[] = {2.0, 0.5, 2.0};
    static const struct { const char *arch; uint32_t original; int n_ctx; } cases[] = {
        {"minicpm", 0, 0}, {"minicpm", FAMILY_TOKENS, 0}, {"minicpm", FAMILY_TOKENS - 1, 1},
        {"llama", 0, 0}, {"llama", FAMILY_TOKENS - 1, 1}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gb_model m = long_model(cases[i].arch, cases[i].original);
        family f = {1, 1, 0, rope_short, 0};
        if (cases[i].n_ctx) f.rope_own = rope_long;
        if (!strcmp(cases[i].arch, "minicpm")) f.scales = scales;
        check_family(&m, f, i == 2);
    }
}

/* What is saved with one table's keys cannot be loaded where the other one is used. */
static void test_family_longrope_state(void) {
    gb_model m = long_model("minicpm", 16);
    bitnet_token tokens[4] = {1, 2, 3, 4};
    uint8_t *saved = 0;
    uint64_t size = 0;
    bitnet_model *model;
    bitnet_error err = {BITNET_OK, "", {0}};
    int i, results[4];
    gb_make_model(&m);
    model = load(m.data, m.size, 0);
    for (i = 0; i < 4; i++) {          /* n_ctx 16: saves, n_ctx 8, 17, 64: load */
        static const int n_ctx[] = {16, 8, 17, 64};
        bitnet_ctx_params p = ctx_params(n_ctx[i], 0, 1, BITNET_KV_F16);
        bitnet_ctx *c = create(model, &p);
        if (i == 0) {
            results[0] = bitnet_eval(c, 0, tokens, 4, 0, 0);
            size = bitnet_seq_state_bytes(c, 0);
            saved = (uint8_t *)gb_malloc((size_t)size);
            if (!results[0]) results[0] = bitnet_seq_save_memory(c, 0, saved, (size_t)size, 0);
        } else results[i] = bitnet_seq_load_memory(c, 0, saved, (size_t)size, &err);
        bitnet_ctx_free(c);
    }
    bitnet_model_free(model);
    gb_free_model(&m);
    free(saved);
    CHECK(results[0] == BITNET_OK && results[1] == BITNET_OK);
    CHECK(results[2] == BITNET_ERR_UNSUPPORTED && results[3] == BITNET_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "longrope"), "%s", err.text);
}

static void test_family_longrope_refused(void) {
    static const float bad[] = {0.0f, -1.0f, NAN, INFINITY, 1e7f};
    gb_model m;
    size_t i;
    for (i = 0; i < 10; i++) {
        float *factors = i % 2 ? rope_long : rope_short;
        m = long_model("minicpm", 0);
        factors[31] = bad[i / 2];
        expect(&m, BITNET_ERR_FORMAT, i % 2 ? "rope_factors_long.weight"
                                            : "rope_factors_short.weight", "31");
    }
    for (i = 0; i < 8; i++) {          /* of half the head, of all of it, and one off */
        static const int lengths[] = {16, 64, 33, 31};
        m = long_model(i < 4 ? "minicpm" : "llama", 0);
        long_length[i % 2] = lengths[i / 2];
        expect(&m, BITNET_ERR_FORMAT, i % 2 ? "rope_factors_long.weight"
                                            : "rope_factors_short.weight", "wants 32 x 1");
    }
    for (i = 0; i < 2; i++) {
        m = long_model("minicpm", 0);
        long_omit = i ? "long" : "short";
        expect(&m, BITNET_ERR_FORMAT, i ? "rope_factors_long.weight"
                                        : "rope_factors_short.weight", "missing");
        m = long_model("minicpm", 0);
        extra_key.name = i ? "minicpm.rope.scaling.factor" : "minicpm.rope.scale_linear";
        extra_key.type = GB_F32;
        extra_key.value = 4;
        expect(&m, BITNET_ERR_FORMAT, extra_key.name, "from 1 to 1");
    }
    m = long_model("minicpm", 0);
    extra_key.name = "minicpm.rope.scaling.original_context_length";
    extra_key.type = GB_U32;
    extra_key.value = 0;
    expect(&m, BITNET_ERR_FORMAT, extra_key.name, "from 1 to");
    m = long_model("minicpm", 0);      /* factors of a scaling that the file does not name */
    m.file.omit = "minicpm.rope.scaling.type";
    expect(&m, BITNET_ERR_UNSUPPORTED, "rope_factors_", "not part of");
    m = rope_model("longrope", 0, 0);  /* neither is there */
    expect(&m, BITNET_ERR_FORMAT, "rope_factors_short.weight", "missing");
}

/* ---- what is refused ---- */

static void refused_rope(const char *type, const char *key, float value, bitnet_result code,
                         const char *word) {
    gb_model m = rope_model(type, key, value);
    expect(&m, code, word, type);
}

static void test_family_rope_refused(void) {
    refused_rope("su", 0, 0, BITNET_ERR_UNSUPPORTED, "llama.rope.scaling.type");
    refused_rope("llama3", 0, 0, BITNET_ERR_UNSUPPORTED, "yarn and longrope");
    refused_rope(0, "llama.rope.scaling.factor", 0.0f, BITNET_ERR_FORMAT, "rope.scaling.factor");
    refused_rope(0, "llama.rope.scaling.factor", -2.0f, BITNET_ERR_FORMAT, "rope.scaling.factor");
    refused_rope(0, "llama.rope.scale_linear", 1e30f, BITNET_ERR_FORMAT, "rope.scale_linear");
}

static const char *family_tensor;
static void add_family_tensor(gb_file *f) {
    static const float ones[128];
    gb_put_matrix(f, family_tensor, GB_TENSOR_F32, ones, 128, 0);
}

/* Networks that call themselves llama and are others: biases, experts, norms. */
static void test_family_leftovers(void) {
    static const char *const others[] = {
        "blk.0.attn_q.bias", "blk.1.ffn_gate_exps.weight", "blk.0.attn_sub_norm.weight",
        "blk.1.ffn_sub_norm.weight", "blk.0.attn_q_norm.weight", "blk.2.attn_norm.weight"
    };
    static const char *const of_minicpm[] = {          /* with experts, biases, other norms */
        "blk.0.ffn_gate_inp.weight", "blk.1.ffn_down_exps.weight", "blk.0.attn_k.bias",
        "blk.2.attn_sub_norm.weight", "blk.0.attn_q_norm.weight", "rope_factors_long.weight"
    };
    size_t i;
    for (i = 0; i < sizeof others / sizeof others[0]; i++) {
        gb_model m = rope_model(0, 0, 0);
        family_tensor = others[i];
        m.file.add_keys = add_family_tensor;
        expect(&m, BITNET_ERR_UNSUPPORTED, others[i], "'llama'");
        if (strstr(others[i], "sub_norm")) continue;       /* which these have */
        memset(&m, 0, sizeof m);
        m.arch = i % 2 ? "bitnet" : "bitnet-b1.58";
        m.dim = m.ffn = 64;
        m.layers = m.heads = m.kv_heads = 1;
        m.eps = 1e-5f;
        m.file.add_keys = add_family_tensor;
        expect(&m, BITNET_ERR_UNSUPPORTED, others[i], "not part of");
    }
    for (i = 0; i < sizeof of_minicpm / sizeof of_minicpm[0]; i++) {
        gb_model m = minicpm_model(0, 0, 0);
        family_tensor = of_minicpm[i];
        m.file.add_keys = add_family_tensor;
        expect(&m, BITNET_ERR_UNSUPPORTED, of_minicpm[i], "'minicpm'");
    }
}

static void add_value_length(gb_file *f) { gb_key_u32(f, "llama.attention.value_length", 32); }

static void test_family_shapes(void) {
    static const char *const parts[] = {"attn_sub_norm", "ffn_sub_norm"};
    static const char *const families[] = {"bitnet-b1.58", "bitnet-25", "bitnet"};
    gb_model m = rope_model(0, 0, 0);
    char name[64];
    int i, j;
    m.file.add_keys = add_value_length;
    expect(&m, BITNET_ERR_UNSUPPORTED, "64", "32");
    m = rope_model(0, 0, 0);
    m.eps = 0;
    expect(&m, BITNET_ERR_FORMAT, "llama.attention.layer_norm_rms_epsilon", "missing");
    for (i = 0; i < 3; i++)                                /* sub-norms don't go missing there */
        for (j = 0; j < 2; j++) {
            memset(&m, 0, sizeof m);
            m.arch = families[i];
            m.dim = m.ffn = 64;
            m.layers = m.heads = m.kv_heads = 1;
            m.eps = 1e-5f;
            snprintf(name, sizeof name, "blk.0.%s.weight", parts[j]);
            m.file.omit = name;
            expect(&m, BITNET_ERR_FORMAT, name, "missing");
        }
    memset(&m, 0, sizeof m);                               /* all that there are are named */
    m.arch = "qwen2";
    m.dim = m.ffn = 64;
    m.layers = m.heads = m.kv_heads = 1;
    gb_make_model(&m);
    {
        bitnet_model *model = 0;
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet_result r = bitnet_model_load_memory(m.data, m.size, 0, &model, &err);
        gb_free_model(&m);
        CHECK(r == BITNET_ERR_UNSUPPORTED && !model && strstr(err.text, "'qwen2'"));
        CHECK_MSG(strstr(err.text, ": bitnet-b1.58, bitnet-25, bitnet, llama"), "%s", err.text);
    }
}

/* ---- the gate that a file names ---- */

/* Models with references: two of llama.cpp's kind, architecture bitnet, whose key says relu2;
   minicpm with longrope; weights of one bit, and Q2_0 with weights of +2. */
static void test_family_models(void) {
    static const struct { const char *name; int n, n_vocab; } models[] = {
        {"mb", 24, 1040}, {"relu2", 16, 1040}, {"mc", 24, 1200}, {"q1", 24, 1562},
        {"q2t", 24, 1562}
    };
    size_t k;
    for (k = 0; k < sizeof models / sizeof models[0]; k++) {
        const int n = models[k].n, n_vocab = models[k].n_vocab;
        bitnet_ctx_params p = ctx_params(n, 0, 1, BITNET_KV_F32);
        bitnet_token tokens[24];
        char path[40];
        size_t size = 0, want_size = 0;
        void *data;
        uint8_t *raw;
        float *got, *want = (float *)gb_malloc((size_t)(n * n_vocab) * sizeof *want);
        double error = 1;
        int i, wrong = 0;
        for (i = 0; i < n; i++) tokens[i] = 11 + 37 * i;
        snprintf(path, sizeof path, "models/%s.gguf", models[k].name);
        data = test_read_file(test_shared(path), &size);
        snprintf(path, sizeof path, "models/%s.logits.f32", models[k].name);
        raw = (uint8_t *)test_read_file(test_shared(path), &want_size);
        got = data && raw ? logits_of(data, size, 0, &p, tokens, n, n) : 0;
        for (i = 0; raw && i < n * n_vocab; i++) want[i] = bitnet__load_f32(raw + 4 * i);
        if (got) error = nrmse(got, want, (size_t)(n * n_vocab));
        for (i = 0; got && i < n; i++)
            wrong += largest(got + i * n_vocab, n_vocab) != largest(want + i * n_vocab, n_vocab);
        free(raw);
        free(want);
        free(got);
        free(data);
        if (!data) SKIP("%s is not in BITNET_TEST_DATA", models[k].name);
        CHECK_MSG(error <= 1e-4 && !wrong, "%s: NRMSE %.3g, %d of %d argmax differ",
                  models[k].name, error, wrong, n);
    }
}

static const char *gate_key, *gate_name;
static void add_gate(gb_file *f) {
    if (gate_name) gb_key_str(f, gate_key, gate_name);
    else gb_key_u32(f, gate_key, 1);
}

static gb_model gate_model(const char *arch, const char *key, const char *name) {
    gb_model m = {.dim = 128, .ffn = 256, .layers = 2, .heads = 2, .kv_heads = 1, .eps = 1e-5f,
                  .freq_base = 10000.0f, .seed = 33};
    m.arch = arch;
    m.no_sub_norms = !strcmp(arch, "llama");
    gate_key = key;
    gate_name = name;
    m.file.add_keys = add_gate;
    return m;
}

static void test_family_gates(void) {
    static const char key[] = "bitnet.hidden_activation";
    static const char official[] = "bitnet-25.hidden_activation";
    static const struct { const char *arch, *key, *name; int silu, adjacent; } fine[] = {
        {"bitnet", key, "relu2", 0, 0}, {"bitnet", key, "silu", 1, 0},
        {"bitnet", key, "swish", 1, 0}, {"bitnet", key, "swiglu", 1, 0},
        {"bitnet-25", official, "relu2", 0, 0}, {"llama", "llama.hidden_activation", "silu", 1, 1},
        {"bitnet-25", key, "silu", 0, 0}                   /* another architecture's key */
    };
    static const struct { const char *arch, *key, *name; } bad[] = {
        {"bitnet", key, "relu"}, {"bitnet", key, ""}, {"bitnet", key, "RELU2"},
        {"bitnet-25", official, "silu"}, {"bitnet-25", official, "gelu"},
        {"llama", "llama.hidden_activation", "relu2"},
        {"llama", "llama.hidden_activation", "gelu_pytorch_tanh"}
    };
    gb_model m;
    size_t i;
    for (i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        family f = {fine[i].silu, fine[i].adjacent, 0, 0, 0};
        m = gate_model(fine[i].arch, fine[i].key, fine[i].name);
        check_family(&m, f, i == 0);
    }
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char named[40];
        snprintf(named, sizeof named, "'%s'", bad[i].name);
        m = gate_model(bad[i].arch, bad[i].key, bad[i].name);
        expect(&m, BITNET_ERR_UNSUPPORTED, bad[i].key, named);
    }
    m = gate_model("bitnet", key, 0);
    expect(&m, BITNET_ERR_FORMAT, key, "not a string");
}

static int gate_lines;
static void count_gate_lines(void *ud, bitnet_log_level level, const char *text) {
    (void)ud;
    (void)level;
    gate_lines += strstr(text, "relu2") != 0;
}

/* Without a key, the sizes of BitNet b1.58-2B-4T mean its gate, and the log says so. */
static void test_family_gate_sizes(void) {
    static const struct { int arch, layers, dim, ffn, relu2, lines; } cases[] = {
        {2, 30, 2560, 6912, 1, 1}, {2, 29, 2560, 6912, 0, 0}, {2, 30, 2048, 6912, 0, 0},
        {2, 30, 2560, 6911, 0, 0}, {0, 30, 2560, 6912, 1, 0}, {3, 30, 2560, 6912, 0, 0}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bitnet_model m;
        bitnet__key none;
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet__meta meta = {0, 0, BITNET_OK};
        meta.m = &m;
        meta.err = &err;
        memset(&m, 0, sizeof m);
        m.gguf.keys = &none;                               /* [0] */
        m.family = &bitnet__families[cases[i].arch];
        m.n_layers = cases[i].layers;
        m.dim = cases[i].dim;
        m.ffn_dim = cases[i].ffn;
        m.params.log_fn = count_gate_lines;
        gate_lines = 0;
        bitnet__load_gate(&meta);
        CHECK(meta.result == BITNET_OK);
        CHECK_MSG((m.gate_a < 0.0f) == !cases[i].relu2 && gate_lines == cases[i].lines,
                  "%s of %d layers: gate %g, %d lines", m.family->arch, cases[i].layers,
                  (double)m.gate_a, gate_lines);
    }
}

/* ---- keys ---- */

/* A small model of any architecture, with a key besides. Its heads have 64 elements. */
static gb_model key_model(const char *arch, const char *suffix, uint32_t type, double value) {
    static char name[100];
    gb_model m = {.dim = 128, .ffn = 128, .layers = 1, .heads = 2, .kv_heads = 2, .eps = 1e-5f,
                  .freq_base = 10000.0f, .seed = 34};
    m.arch = arch;
    m.no_sub_norms = !strcmp(arch, "llama");
    snprintf(name, sizeof name, "%s%s", *suffix == '.' ? arch : "", suffix);
    extra_key.name = name;
    extra_key.type = type;
    extra_key.value = value;
    m.file.add_keys = add_extra_key;
    return m;
}

/* What could change the numbers and is not read is refused, unless it says what is done anyway. */
static void test_family_keys(void) {
    static const char *const archs[] = {"bitnet-b1.58", "bitnet-25", "bitnet", "llama"};
    static const struct { const char *name; uint32_t type; double fine, bad; } cases[] = {
        {".attention.causal", GB_BOOL, 1, 0},
        {".attention.max_alibi_bias", GB_F32, 0, 8},
        {".attention.clamp_kqv", GB_F32, 0, 8},
        {".attention.scale", GB_F32, 0.125, 0.1249},
        {".attention.sliding_window", GB_U32, 0, 7},
        {".attention.sliding_window", GB_U32, 1 << 20, 16},
        {".attention.key_length_swa", GB_U32, 64, 32},
        {".attention.value_length_swa", GB_U32, 64, 128},
        {".attention.shared_kv_layers", GB_U32, 0, 1},
        {".rope.dimension_count_swa", GB_U32, 64, 62},
        {".rope.scaling.yarn_log_multiplier", GB_F32, 0, 0.1},
        {".embedding_length_out", GB_U32, 128, 64},
        {".embedding_scale", GB_F32, 1, 12},
        {".residual_scale", GB_F32, 1, 0.25},
        {".logit_scale", GB_F32, 1, 16},
        {".attn_logit_softcapping", GB_F32, 0, 50},
        {".final_logit_softcapping", GB_F32, 0, 30},
        {".use_parallel_residual", GB_BOOL, 0, 1},
        {".expert_count", GB_U32, 0, 8},
        {".expert_used_count", GB_U32, 0, 2},
        {".nextn_predict_layers", GB_U32, 0, 1},
        {"tokenizer.ggml.add_sep_token", GB_BOOL, 0, 1},
        {"tokenizer.ggml.remove_extra_whitespaces", GB_BOOL, 0, 1}
    };
    static const char *const unknown[] = {
        ".hidden_act", ".swin_norm", ".attention.layer_norm_epsilon", ".rope.dimension_sections",
        ".rope.scaling.alpha", ".x", ".", ".vocab_size.x", "tokenizer.ggml.precompiled_charsmap",
        "tokenizer.ggml.normalizer.lowercase"
    };
    static const char *const fine[] = {         /* of texts; other keys mean nothing */
        "tokenizer.chat_templates", "tokenizer.chat_template.tool_use",
        "tokenizer.huggingface.json", "general.anything", "quantize.imatrix.file", "x",
        "llamas.x", "bitnet-b1.58x", "a.llama.x"
    };
    gb_model m;
    size_t i, k;
    for (k = 0; k < 4; k++) {
        for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            m = key_model(archs[k], cases[i].name, cases[i].type, cases[i].bad);
            expect(&m, BITNET_ERR_UNSUPPORTED, extra_key.name, "is supported here");
            m = key_model(archs[k], cases[i].name, GB_STR, 0);
            expect(&m, BITNET_ERR_UNSUPPORTED, extra_key.name, "is supported here");
            m = key_model(archs[k], cases[i].name, cases[i].type, cases[i].fine);
            expect(&m, BITNET_OK, 0, 0);
        }
        for (i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
            m = key_model(archs[k], unknown[i], GB_U32, 0);
            expect(&m, BITNET_ERR_UNSUPPORTED, extra_key.name, "is not known");
        }
        for (i = 0; i < sizeof fine / sizeof fine[0]; i++) {
            m = key_model(archs[k], fine[i], GB_STR, 0);
            expect(&m, BITNET_OK, 0, 0);
        }
        for (i = 0; i < 4; i++) {
            static const char *const layouts[] = {"", "reference", "Meta AI original pth",
                                                  "jploski"};
            extra_key.text = layouts[i];
            m = key_model(archs[k], ".tensor_data_layout", GB_STR, 0);
            if (i < 3) expect(&m, BITNET_OK, 0, 0);
            else expect(&m, BITNET_ERR_UNSUPPORTED, extra_key.name, "is 'jploski'");
        }
        extra_key.text = 0;
    }
}

/* The factor of cosines and sines counts in every kind of scaling, as in llama.cpp. */
static void test_family_rope_length(void) {
    static const char *const types[] = {0, "none", "linear"};
    size_t i;
    for (i = 0; i < 3; i++) {
        gb_model m = rope_model(types[i], "llama.rope.scaling.attn_factor", 0.5f);
        bitnet_model *model;
        gb_make_model(&m);
        model = load(m.data, m.size, 0);
        CHECK(model && fabs(model->rope_length - 0.5) < 1e-9);
        bitnet_model_free(model);
        gb_free_model(&m);
        m = rope_model(types[i], "llama.rope.scaling.yarn_attn_factor", 0.5f);
        expect(&m, BITNET_ERR_FORMAT, "yarn_attn_factor", "from 1 to 1");
    }
}

/* ---- a part of a split file ---- */

static uint32_t split_no, split_count;
static void add_split(gb_file *f) {
    gb_key_uint(f, "split.no", GB_U16, split_no, 2);
    gb_key_uint(f, "split.count", GB_U16, split_count, 2);
}

static void test_family_split(void) {
    gb_model m = key_model("llama", ".x", GB_U32, 0);
    split_no = 0;
    split_count = 3;
    m.file.add_keys = add_split;
    m.file.omit = "blk.0.attn_q.weight";
    expect(&m, BITNET_ERR_UNSUPPORTED, "part 1 of a model", "into 3 files");
    m = key_model("llama", ".x", GB_U32, 0);
    m.file.add_keys = add_split;
    m.file.omit = "general.architecture";                  /* only the first part has it */
    split_no = 2;
    expect(&m, BITNET_ERR_UNSUPPORTED, "part 3 of a model", "into 3 files");
    m = key_model("llama", ".x", GB_U32, 0);
    m.file.add_keys = add_split;
    split_no = 0;
    split_count = 1;
    expect(&m, BITNET_OK, 0, 0);
}

/* ---- no pooling ---- */

/* A pooling_type of 0 is that of a model that writes text, with its tied head. */
static void test_family_no_pooling(void) {
    gb_model m = key_model("llama", ".pooling_type", GB_U32, 0);
    bitnet_model_info info = {0};
    bitnet_model *model = 0;
    gb_make_model(&m);
    bitnet_model_load_memory(m.data, m.size, 0, &model, 0);
    bitnet_model_get_info(model, &info);
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK(info.has_head && info.pooling == BITNET_POOLING_MODEL);
}

/* ---- layers of zeros ---- */

static char zero_lines[1000];
static void keep_zero_lines(void *ud, bitnet_log_level level, const char *text) {
    (void)ud;
    if (level != BITNET_LOG_WARNING || !strstr(text, "zero")) return;
    strcat(strcat(zero_lines, text), "\n");
}

/* Makes a tensor's weights zeros: by their codes, or by the scales of its blocks. */
static void zero_tensor(gb_model *m, const char *name, int by_scale) {
    bitnet_gguf *g = 0;
    bitnet_gguf_tensor t;
    bitnet_error err;
    uint64_t i;
    if (bitnet_gguf_open_memory(m->data, m->size, 0, &g, &err) ||
        bitnet_gguf_find_tensor(g, name, &t)) test_fail(__FILE__, __LINE__, "%s", name);
    else if (t.type == BITNET_TENSOR_I2_S)
        memset(m->data + t.offset, 0x55, (size_t)(t.dims[0] * t.dims[1] / 4));
    else
        for (i = 0; i < t.size; i += 18) {                 /* Q2_0 */
            if (by_scale) memset(m->data + t.offset + i, 0, 2);
            else memset(m->data + t.offset + i + 2, 0x55, 16);
        }
    bitnet_gguf_close(g);
}

static void check_zeros(gb_model *m, const char *want) {
    bitnet_model_params p;
    bitnet_model *model = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    memset(&p, 0, sizeof p);
    p.log_fn = keep_zero_lines;
    zero_lines[0] = 0;
    bitnet_model_load_memory(m->data, m->size, &p, &model, &err);
    CHECK_MSG(model && !strcmp(zero_lines, want), "%s\n%s", err.text, zero_lines);
    bitnet_model_free(model);
}

static void test_family_zeros(void) {
    gb_model m = {.arch = "llama", .dim = 128, .ffn = 128, .layers = 6, .heads = 2, .kv_heads = 2,
                  .eps = 1e-5f, .no_sub_norms = 1, .seed = 28};
    gb_make_model(&m);
    check_zeros(&m, "");
    zero_tensor(&m, "blk.0.ffn_gate.weight", 0);
    zero_tensor(&m, "blk.1.ffn_gate.weight", 0);
    zero_tensor(&m, "blk.2.ffn_gate.weight", 0);
    zero_tensor(&m, "blk.4.ffn_gate.weight", 0);
    zero_tensor(&m, "blk.5.attn_output.weight", 0);
    check_zeros(&m, "all weights of attn_output are zero in layers 5\n"
                    "all weights of ffn_gate are zero in layers 0-2, 4\n");
    gb_free_model(&m);
    {
        gb_model g = {.arch = "llama", .dim = 192, .ffn = 320, .layers = 3, .heads = 3,
                      .kv_heads = 1, .eps = 1e-5f, .no_sub_norms = 1, .encode = imp_encode,
                      .seed = 31};
        imp = (struct imp_setting){IMP_Q2, {0, 0, 0}, 0, 0, 1, 0};
        gb_make_model(&g);
        check_zeros(&g, "");
        zero_tensor(&g, "blk.1.ffn_down.weight", 1);
        zero_tensor(&g, "blk.2.ffn_down.weight", 0);
        check_zeros(&g, "all weights of ffn_down are zero in layers 1-2\n");
        gb_free_model(&g);
    }
}

/* ---- texts ---- */

static const char *family_pre;
static void add_family_pre(gb_file *f) { gb_key_str(f, "tokenizer.ggml.pre", family_pre); }

/* Loads a small model of an architecture; counts the warnings. */
static bitnet_model *family_load(gb_model *m, const char *arch, const char *pre) {
    bitnet_model_params p;
    bitnet_model *model = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    m->arch = arch;
    m->dim = m->ffn = 64;
    m->layers = m->heads = m->kv_heads = 1;
    m->eps = 1e-5f;
    m->no_sub_norms = !strcmp(arch, "llama");
    family_pre = pre;
    if (pre) m->file.add_keys = add_family_pre;
    gb_make_model(m);
    memset(&p, 0, sizeof p);
    p.log_fn = count_warnings;
    warnings = 0;
    if (bitnet_model_load_memory(m->data, m->size, &p, &model, &err))
        test_fail(__FILE__, __LINE__, "%s %s: %s", arch, pre ? pre : "", err.text);
    return model;
}

/* A missing pre-tokenizer is no news in BitNet files; elsewhere it is. */
static void test_family_pre(void) {
    static const char *const names[] = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon_e",
                                        "qwen2", "qwen35"};
    static const struct { const char *arch, *pre; int warnings; } cases[] = {
        {"bitnet-b1.58", 0, 0}, {"bitnet-25", 0, 0}, {"bitnet", 0, 0}, {"llama", 0, 1},
        {"llama", "llama-bpe", 0}, {"bitnet", "default", 0}, {"bitnet-b1.58", "gpt-2", 0}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gb_model m = {0};
        bitnet_model *model = family_load(&m, cases[i].arch, cases[i].pre);
        bitnet_model_free(model);
        gb_free_model(&m);
        CHECK_MSG(model && warnings == cases[i].warnings, "%s: %d warnings", cases[i].arch,
                  warnings);
    }
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        gb_model m = {0};
        bitnet_model *model = family_load(&m, "llama", names[i]);
        bitnet_model_free(model);
        gb_free_model(&m);
        CHECK(model && !warnings);
    }
    {
        gb_model m = rope_model(0, 0, 0);
        family_pre = "gpt-2";
        m.file.add_keys = add_family_pre;
        expect(&m, BITNET_ERR_UNSUPPORTED, "tokenizer.ggml.pre", "'gpt-2'");
    }
}

/* Lengths in bytes of the pieces that the regular expression of LLaMA 3 cuts, found by Python's
   regex module. */
static const struct { const char *text; int lengths[16]; } falcon3_cases[] = {
    {"The year 2024 was Falcon3's, isn't it?", {3, 5, 1, 3, 1, 4, 7, 1, 2, 1, 4, 2, 3, 1}},
    {"<|user|>\nHello!!\n\n<|assistant|>\n", {2, 4, 3, 5, 4, 2, 9, 3}},
    {"  x =  1234567;\t// caf\xC3\xA9\r\n\r\n  end",
     {1, 2, 2, 1, 1, 3, 3, 1, 1, 1, 2, 6, 4, 1, 4}},
    {"\xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7 \xD8\xA8\xD9\x83 123\xD9\xA1\xD9\xA2",
     {10, 5, 1, 3, 4}},
    {"I'LL don'T\xC2\xA0\xC2\xBD \xF0\x9F\xA6\x85\xF0\x9F\xA6\x85.\n \n x ",
     {1, 3, 4, 2, 2, 2, 11, 2, 2, 1}}
};

/* A vocabulary of the bytes and of these pieces, without merges: any other piece would come out as
   bytes. */
static void test_family_falcon3(void) {
    enum { CASES = (int)(sizeof falcon3_cases / sizeof falcon3_cases[0]) };
    char pieces[CASES * 16][32];
    const char *words[CASES * 16];
    gb_model m = {0};
    bitnet_model *model;
    int i, k, n_words = 0;
    char bad[100] = "";
    for (i = 0; i < CASES; i++) {
        const char *p = falcon3_cases[i].text;
        for (k = 0; falcon3_cases[i].lengths[k]; p += falcon3_cases[i].lengths[k++]) {
            if (falcon3_cases[i].lengths[k] < 2) continue;
            snprintf(pieces[n_words], sizeof pieces[0], "%.*s", falcon3_cases[i].lengths[k], p);
            words[n_words] = pieces[n_words];
            n_words++;
        }
    }
    m.words = words;
    m.n_words = n_words;
    model = family_load(&m, "llama", "falcon3");
    for (i = 0; i < CASES && model && !bad[0]; i++) {
        bitnet_token got[64];
        const char *text = falcon3_cases[i].text;
        int n = bitnet_tokenize(model, text, strlen(text), 0, got, 64);
        for (k = 0; k < n && n <= 64 && !bad[0]; k++)
            if (bitnet_detokenize(model, got + k, 1, 0, 0) != falcon3_cases[i].lengths[k])
                snprintf(bad, sizeof bad, "text %d: piece %d", i, k);
        if (n > 64 || falcon3_cases[i].lengths[n]) snprintf(bad, sizeof bad, "text %d: %d", i, n);
    }
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK_MSG(!bad[0], "%s", bad);
}

/* Lengths in bytes of falcon_e's pieces, by its three regular expressions, one after the other in
   Python's regex module. */
static const struct { const char *text; int lengths[24]; } falcon_e_cases[] = {
    {"The year 2024 was Falcon-E's, isn't it?",
     {3, 5, 1, 1, 1, 1, 1, 4, 7, 1, 1, 1, 1, 1, 4, 1, 1, 3, 1}},
    {"<|user|>\nHello!!\n\n<|assistant|>\n", {2, 4, 2, 1, 5, 2, 2, 2, 9, 2, 1}},
    {"  x =  12;\t// caf\xC3\xA9\r\n\r\n  end",
     {1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 6, 5, 4}},
    {"\xD9\x85\xD8\xB1 \xD8\xA8\xD9\x83\xD8\x9F 1\xD9\xA1\xD9\xA2 \xC2\xBD" "2x",
     {4, 5, 2, 1, 1, 4, 3, 1, 1}},
    {"a   !  \xE2\x82\xAC\xCC\x81\xE3\x80\x82$ \n", {1, 3, 1, 1, 6, 4, 2}}
};

/* As falcon3's, but here the merges have to make what no piece may be; in words without a merge
   that makes them, nothing is one token. */
static void test_family_falcon_e(void) {
    static const char *const words[] = {"12", "!!", " !", "ab"};
    static const char *const merges[] = {"1 2", "! !", "\xC4\xA0 !"};
    static const struct { const char *pre, *text; int tokens; } cases[] = {
        {"llama3", "12", 1}, {"falcon_e", "12", 2}, {"llama3", " !", 1}, {"falcon_e", " !", 2},
        {"llama3", "!!", 1}, {"falcon_e", "!!", 1}, {"llama3", "ab", 1}, {"falcon_e", "ab", 2}
    };
    size_t i;
    for (i = 0; i < sizeof falcon_e_cases / sizeof falcon_e_cases[0]; i++) {
        const uint8_t *p = (const uint8_t *)falcon_e_cases[i].text, *end = p + strlen((char *)p);
        int k;
        for (k = 0; p < end; p += falcon_e_cases[i].lengths[k++])
            CHECK_MSG(bitnet__falcon_length(p, end) == (size_t)falcon_e_cases[i].lengths[k],
                      "text %d: piece %d", (int)i, k);
        CHECK(!falcon_e_cases[i].lengths[k]);
    }
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gb_model m = {.words = words, .n_words = 4, .merges = merges, .n_merges = 3};
        bitnet_model_info info = {0};
        bitnet_model *model;
        int n;
        m.file.omit = "tokenizer.ggml.add_bos_token";
        model = family_load(&m, "llama", cases[i].pre);
        n = model ? bitnet_tokenize(model, cases[i].text, 2, 0, 0, 0) : 0;
        if (model) bitnet_model_get_info(model, &info);
        bitnet_model_free(model);
        gb_free_model(&m);
        CHECK_MSG(n == cases[i].tokens, "%s: '%s': %d", cases[i].pre, cases[i].text, n);
        CHECK(info.add_bos == !strcmp(cases[i].pre, "llama3") && !warnings);
    }
}

/* The built-in chat template belongs to the official model; the others' are not known. */
static void test_family_chat(void) {
    static const bitnet_message hello = MESSAGE("user", "hello");
    static const struct { const char *arch; int chat; } cases[] = {
        {"bitnet-b1.58", 1}, {"bitnet-25", 1}, {"bitnet", 0}, {"llama", 0}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gb_model m = {0};
        bitnet_model *model = family_load(&m, cases[i].arch, "llama-bpe");
        int n = model ? bitnet_chat_tokenize(model, 0, &hello, 1, BITNET_CHAT_OPEN_REPLY, 0, 0,
                                             NULL)
                      : 0;
        bitnet_model_free(model);
        gb_free_model(&m);
        CHECK_MSG(cases[i].chat ? n > 0 : n == BITNET_ERR_UNSUPPORTED, "%s: %d", cases[i].arch, n);
    }
}

static void add_eot(gb_file *f) { gb_key_u32(f, "tokenizer.ggml.eot_token_id", 'E'); }

/* What ends a turn: the file's key, or the token's name. */
static void test_family_end(void) {
    static const char *const words[] = {"<|im_end|>"};
    static const uint8_t types[] = {3};
    gb_model m = {.words = words, .n_words = 1, .word_types = types, .no_specials = 1};
    bitnet_model *model = family_load(&m, "llama", "llama3");
    int ends = model && bitnet_token_is_end(model, 256) && !bitnet_token_is_end(model, 'E');
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK(ends);
    memset(&m, 0, sizeof m);                               /* <|eot_id|> is token 258 */
    model = family_load(&m, "llama", "llama3");
    ends = model && bitnet_token_is_end(model, 258) && bitnet_token_is_end(model, 257);
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK(ends);
    memset(&m, 0, sizeof m);
    m.file.add_keys = add_eot;
    model = family_load(&m, "llama", 0);
    ends = model && bitnet_token_is_end(model, 'E') && !bitnet_token_is_end(model, 258);
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK(ends);
}

/* More tokens that end a text: the end of a message, and a list. */
static uint32_t more_ends[2];
static void add_more_ends(gb_file *f) {
    gb_key_u32(f, "tokenizer.ggml.eom_token_id", 'M');
    gb_key_array(f, "tokenizer.ggml.eos_token_ids", GB_U32, 2);
    gb_uint(&f->keys, more_ends[0], 4);
    gb_uint(&f->keys, more_ends[1], 4);
}

static void test_family_more_ends(void) {
    gb_model m = {.file = {.add_keys = add_more_ends}};
    bitnet_model *model;
    int ends;
    more_ends[0] = 'X';
    more_ends[1] = 'Y';
    model = family_load(&m, "llama", 0);
    ends = model && bitnet_token_is_end(model, 'M') && bitnet_token_is_end(model, 'X') &&
           bitnet_token_is_end(model, 'Y') && !bitnet_token_is_end(model, 'Z');
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK(ends);
    m = key_model("llama", "x", GB_U32, 0);
    m.file.add_keys = add_more_ends;
    more_ends[1] = 1 << 30;
    expect(&m, BITNET_ERR_FORMAT, "eos_token_ids", "vocabulary lacks");
}

/* ---- SiLU itself ---- */

/* Every gate from -2^30 to 2^30 in steps that grow, against double. e^-g is at most e^88: below
   -88 the result is g / e^88, where the truth is smaller still. */
static void test_family_silu(void) {
    const float f = 1.0f / 65536.0f;
    double worst = 0;
    int32_t i;
    for (i = -(1 << 24); i <= 1 << 24; i += 997) {
        const float gate = (float)i * f, up = 0.75f;
        double g = (double)gate, want = g / (1.0 + exp(-g)) * 0.75;
        float got;
        bitnet__sigmoid_gate_scalar(&gate, &up, -1.0f, 0.0f, 1, &got);
        if (g < -80.0) {
            CHECK(got <= 0.0f && got > -1e-30f);
            continue;
        }
        if (g < -64.0 || g > 60.0) {                       /* expf's clamp at -64: 1 + e^-64 is 1 */
            CHECK(fabs((double)got - want) <= fabs(want) * 1e-5);
            continue;
        }
        if (i && fabs(((double)got - want) / want) > worst)
            worst = fabs(((double)got - want) / want);
    }
    CHECK_MSG(worst <= 1e-6, "relative error %.3g", worst);
}

/* ---- hostile files ---- */

static void test_family_damage(void) {
    gb_model m = rope_model("linear", "llama.rope.scaling.factor", 2.0f);
    damage(&m);
    m = long_model("minicpm", 16);
    m.dim = m.ffn = 64;
    m.heads = m.layers = 1;
    damage(&m);
}

const test_case families_tests[] = {
    {"families/silu", test_family_silu},
    {"families/bitnet", test_family_bitnet},
    {"families/bitnet_untied", test_family_bitnet_untied},
    {"families/llama", test_family_llama},
    {"families/llama_wide", test_family_llama_wide},
    {"families/llama_heads", test_family_llama_heads},
    {"families/groups", test_family_groups},
    {"families/head", test_family_head},
    {"families/profile", test_family_profile},
    {"families/linear_rope", test_family_linear_rope},
    {"families/own_rope", test_family_own_rope},
    {"families/minicpm", test_family_minicpm},
    {"families/logit_scale", test_family_logit_scale},
    {"families/scales_refused", test_family_scales_refused},
    {"families/longrope", test_family_longrope},
    {"families/longrope_state", test_family_longrope_state},
    {"families/longrope_refused", test_family_longrope_refused},
    {"families/rope_refused", test_family_rope_refused},
    {"families/leftovers", test_family_leftovers},
    {"families/models", test_family_models},
    {"families/gates", test_family_gates},
    {"families/gate_sizes", test_family_gate_sizes},
    {"families/keys", test_family_keys},
    {"families/rope_length", test_family_rope_length},
    {"families/split", test_family_split},
    {"families/no_pooling", test_family_no_pooling},
    {"families/zeros", test_family_zeros},
    {"families/shapes", test_family_shapes},
    {"families/pre", test_family_pre},
    {"families/chat", test_family_chat},
    {"families/end", test_family_end},
    {"families/more_ends", test_family_more_ends},
    {"families/falcon3", test_family_falcon3},
    {"families/falcon_e", test_family_falcon_e},
    {"families/damage", test_family_damage},
    {0, 0}
};
