/* Hybrid networks (architecture qwen35): gated delta nets, and attention with a gate every few
   layers, maybe folded by a Hadamard matrix. Models are compared with references of another
   program; then with themselves: kernels, threads, batches and neighbours give the same bits. */

#include "gguf_helpers.h"
#include "model_helpers.h"

/* ---- models with references ---- */

static void *shared_model(const char *name, const char *suffix, size_t *size) {
    char path[60];
    snprintf(path, sizeof path, "models/%s%s", name, suffix);
    return test_read_file(test_shared(path), size);
}

static float *shared_floats(const char *name, const char *suffix, size_t n) {
    size_t size = 0, i;
    uint8_t *raw = (uint8_t *)shared_model(name, suffix, &size);
    float *x = raw && size == n * 4 ? (float *)gb_malloc(n * sizeof *x) : 0;
    for (i = 0; x && i < n; i++) x[i] = bitnet__load_f32(raw + 4 * i);
    free(raw);
    return x;
}

enum { N_TOKENS = 24 };

/* The tokens of all references, in a vocabulary of n_vocab of which the last 6 are special. */
static void reference_tokens(int n_vocab, bitnet_token *tokens) {
    int i;
    for (i = 0; i < N_TOKENS; i++) tokens[i] = (11 + 37 * i) % (n_vocab - 6);
}

typedef struct residual { bitnet_ctx *c; float *x; } residual;

static void keep_residual(void *ud, int32_t layer, const float *x, int32_t n) {
    const residual *r = (const residual *)ud;
    const size_t row = (size_t)r->c->m->dim;
    int t;
    for (t = 0; t < n; t++)
        memcpy(r->x + ((size_t)(layer + 1) * N_TOKENS + (size_t)r->c->places[t].pos) * row,
               x + (size_t)t * row, row * sizeof *x);
}

/* A sequence's state in the order of references: what the convolutions remember, oldest first,
   [layers][n_taps - 1][n_channels], and S [layers][heads][values][keys]. */
static void state_of(const bitnet_ctx *c, float *conv, float *s) {
    const bitnet_model *m = c->m;
    const int d = m->state_dim, taps = m->n_taps - 1, past = c->seqs[0].n_past;
    int layer, head, r, v, k;
    for (layer = 0; layer < m->n_layers; layer++) {
        const float *p = bitnet__seq_state(c, 0) + m->layers[layer].state;
        if (!m->layers[layer].kind->n_state) continue;
        for (head = 0; head < m->n_value_heads; head++, p += d * d, s += d * d)
            for (v = 0; v < d; v++)
                for (k = 0; k < d; k++) {
                    const int first = v / 32 * 32, width = d - first < 32 ? d - first : 32;
                    s[v * d + k] = p[first * d + k * width + v - first];
                }
        for (r = 0; r < taps; r++, conv += m->n_channels)
            memcpy(conv, p + (past + r) % taps * m->n_channels,
                   (size_t)m->n_channels * sizeof *conv);
    }
}

/* hx rounds nothing. In the others a number that lies on the edge between two integers may be
   rounded the other way, but not in the first tokens. */
static void test_references(void) {
    static const struct { const char *name; int n_vocab, dim, d, first; double most; } models[] = {
        {"hx", 326, 128, 32, N_TOKENS, 1e-5}, {"h2", 2074, 256, 64, 14, 3e-2},
        {"hp", 2074, 256, 64, 12, 3e-2}
    };
    size_t i;
    for (i = 0; i < sizeof models / sizeof models[0]; i++) {
        const char *name = models[i].name;
        const size_t vocab = (size_t)models[i].n_vocab, d = (size_t)models[i].d;
        const size_t n_logits = vocab * N_TOKENS, n_hidden = 5 * N_TOKENS * (size_t)models[i].dim;
        const size_t n_conv = 3 * 3 * 10 * d, n_state = 3 * 6 * d * d;
        float *logits = shared_floats(name, ".logits.f32", n_logits);
        float *hidden = shared_floats(name, ".hidden.f32", n_hidden);
        float *conv = shared_floats(name, ".conv.f32", n_conv);
        float *state = shared_floats(name, ".state.f32", n_state);
        float *got = (float *)gb_malloc(n_logits * 4), *got_conv = (float *)gb_malloc(n_conv * 4);
        float *got_state = (float *)gb_malloc(n_state * 4);
        bitnet_ctx_params p = ctx_params(N_TOKENS, 7, 1, BITNET_KV_F32);
        bitnet_token tokens[N_TOKENS];
        size_t size = 0, first = vocab * (size_t)models[i].first;
        void *data = shared_model(name, ".gguf", &size);
        bitnet_model *m = data ? load(data, size, 0) : 0;
        residual r;
        if (!data) SKIP("%s is not in BITNET_TEST_DATA", name);
        reference_tokens(models[i].n_vocab, tokens);
        r.x = (float *)gb_malloc(n_hidden * 4);
        p.hooks.layer_fn = keep_residual;
        p.hooks.layer_ud = &r;
        r.c = create(m, &p);
        if (r.c && logits && hidden && conv && state &&
            all_logits(r.c, tokens, N_TOKENS, N_TOKENS, got)) {
            const double some = nrmse(got, logits, first), all = nrmse(got, logits, n_logits);
            const double x = nrmse(r.x, hidden, n_hidden);
            double s, u;
            state_of(r.c, got_conv, got_state);
            s = nrmse(got_state, state, n_state);
            u = nrmse(got_conv, conv, n_conv);
            CHECK_MSG(some < 1e-5 && all < models[i].most && x < models[i].most &&
                          s < models[i].most && u < models[i].most,
                      "%s: logits %.3g, first ones %.3g, hidden %.3g, states %.3g, %.3g", name, all,
                      some, x, s, u);
        } else CHECK_MSG(0, "%s: its references are not as expected", name);
        bitnet_ctx_free(r.c);
        bitnet_model_free(m);
        free(r.x);
        free(data);
        free(logits);
        free(hidden);
        free(conv);
        free(state);
        free(got);
        free(got_conv);
        free(got_state);
    }
}

static void test_variants(void) {
    static const char *const names[] = {"hx", "h2", "hp"};
    bitnet_token tokens[N_TOKENS];
    size_t i;
    for (i = 0; i < 3; i++) {
        const int n_vocab = i ? 2074 : 326;
        size_t size = 0;
        void *data = shared_model(names[i], ".gguf", &size);
        if (!data) SKIP("%s is not in BITNET_TEST_DATA", names[i]);
        reference_tokens(n_vocab, tokens);
        check_variants(data, size, tokens, N_TOKENS, n_vocab, i == 0);
        free(data);
    }
}

const test_case hybrid_tests[] = {
    {"hybrid/references", test_references},
    {"hybrid/variants", test_variants},
    {0, 0}
};
