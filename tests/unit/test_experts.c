/* Layers with experts (architecture maple): a router chooses some of many FFNs for each token.
   Small models are compared with a forward pass in double that is written here from the description
   of the network, and with a reference of another program; then with themselves: kernels, threads,
   batches and neighbours give the same bits. What a file may say beyond that is refused. */

#include "gguf_helpers.h"
#include "model_helpers.h"
#include "slow_model.h"
#include "ternary_builder.h"

/* ---- models ---- */

/* What the keys say. The pattern is [slides, slides, all, slides ...]. */
typedef struct expert_keys {
    uint32_t used, window;
    int n_clamps;                      /* -1: one for all; 0: no key, and it is 7 */
    float clamp[GB_MAX_LAYERS];
    int n_sizes;                       /* -1: no key; 0: one for all */
    uint32_t size;
    int n_pattern, pattern_type;       /* -1: no key */
    const char *key;                   /* one more: */
    uint32_t key_type, key_value;
} expert_keys;

static expert_keys keys;
static int key_layers, key_experts;

static int slides(int layer) { return layer % 3 != 2; }

static void add_expert_keys(gb_file *f) {
    int i;
    gb_key_u32(f, "maple.expert_count", (uint32_t)key_experts);
    gb_key_u32(f, "maple.expert_used_count", keys.used);
    if (keys.n_sizes == 0) gb_key_u32(f, "maple.expert_feed_forward_length", keys.size);
    if (keys.n_sizes > 0) {
        gb_key_array(f, "maple.expert_feed_forward_length", GB_U32, (uint64_t)keys.n_sizes);
        for (i = 0; i < keys.n_sizes; i++) gb_uint(&f->keys, keys.size, 4);
    }
    gb_key_u32(f, "maple.attention.sliding_window", keys.window);
    if (keys.n_pattern >= 0) {
        const int type = keys.pattern_type ? keys.pattern_type : GB_BOOL;
        gb_key_array(f, "maple.attention.sliding_window_pattern", (uint32_t)type,
                     (uint64_t)keys.n_pattern);
        for (i = 0; i < keys.n_pattern; i++)
            gb_uint(&f->keys, slides(i) != 0, type == GB_BOOL ? 1 : 4);
    }
    if (keys.n_clamps < 0) gb_key_f32(f, "maple.swiglu_clamp_exp", keys.clamp[0]);
    if (keys.n_clamps > 0) {
        gb_key_array(f, "maple.swiglu_clamp_exp", GB_F32, (uint64_t)keys.n_clamps);
        for (i = 0; i < keys.n_clamps; i++) gb_float(&f->keys, keys.clamp[i]);
    }
    if (keys.key) gb_key_uint(f, keys.key, keys.key_type, keys.key_value, 4);
}

/* A model that is not made yet; used and window stand in keys. */
static gb_model expert_model(int experts, int used, uint64_t seed) {
    gb_model m = {.arch = "maple", .dim = 256, .ffn = 256, .layers = 3, .heads = 4, .kv_heads = 2,
                  .head_dim = 64, .n_rot = 32, .eps = 1e-6f, .freq_base = 10000.0f,
                  .no_sub_norms = 1, .untied = 1, .embed_type = GB_TENSOR_F16,
                  .head_type = GB_TENSOR_F16, .encode = imp_encode};
    m.seed = seed;
    m.file.experts = (uint64_t)experts;
    m.file.add_keys = add_expert_keys;
    memset(&keys, 0, sizeof keys);
    keys.used = (uint32_t)used;
    keys.window = 5;
    keys.size = (uint32_t)m.ffn;
    keys.n_pattern = key_layers = m.layers;
    key_experts = experts;
    imp = (struct imp_setting){IMP_TQ2, {0, 0, 0}, 0, 0, 1, 0};
    return m;
}

enum { EXPERT_TOKENS = 22 };

static void expert_tokens(const gb_model *m, bitnet_token *tokens) {
    uint64_t seed = 5;
    int i;
    for (i = 0; i < EXPERT_TOKENS; i++)
        tokens[i] = (bitnet_token)(gb_random(&seed) % (uint32_t)m->n_vocab);
}

/* ---- the reference ---- */

/* The matrix of one expert. */
static gb_linear expert_of(const gb_linear *l, int e, int rows) {
    const size_t first = (size_t)e * (size_t)rows * (size_t)l->n_in;
    gb_linear one = *l;
    one.n_out = rows;
    one.w += first;
    if (l->group) one.scales += first / (size_t)l->group;
    return one;
}

/* Pairs (j, j + n_rot / 2) of the first n_rot numbers. */
static void slow_rope(const slow *s, double *v, int pos) {
    int i, half = s->n_rot / 2;
    for (i = 0; i < half; i++) {
        const double angle = pos * pow(s->theta, -2.0 * i / s->n_rot), x = v[i], y = v[half + i];
        v[i] = x * cos(angle) - y * sin(angle);
        v[half + i] = x * sin(angle) + y * cos(angle);
    }
}

/* A layer that slides sees the last `window` positions, its own among them: as if its sequence
   began with them, since their keys are rotated already. */
static void slow_window(const slow *s, int layer, const double *q, int g, int pos, double *o) {
    const int first = slides(layer) && pos >= (int)keys.window ? pos - (int)keys.window + 1 : 0;
    const size_t skip = (size_t)first * (size_t)(s->m->kv_heads * s->hd);
    slow part = *s;
    part.keys += skip;
    part.values += skip;
    slow_attention(&part, layer, q, g, pos - first, o);
}

/* y = the sum of the chosen experts for h. */
static void slow_experts(const slow *s, int layer, const double *h, double *y) {
    const gb_model *m = s->m;
    const gb_layer *l = &m->layer[layer];
    const int n = key_experts, used = (int)keys.used;
    double *p = (double *)gb_malloc(((size_t)n + 2 * (size_t)m->ffn + (size_t)m->dim) * sizeof *p);
    double *g = p + n, *u = g + m->ffn, *d = u + m->ffn, w[64], top = -1e300, sum = 0, chosen = 0;
    double clamp = keys.n_clamps == 0 ? 7.0 : (double)keys.clamp[keys.n_clamps < 0 ? 0 : layer];
    int best[64], e, i, k;
    if (clamp <= 1e-6) clamp = 1e300;
    for (e = 0; e < n; e++) {
        for (i = 0, p[e] = 0; i < m->dim; i++)
            p[e] += (double)l->router[(size_t)e * (size_t)m->dim + (size_t)i] * h[i];
        if (p[e] > top) top = p[e];
    }
    for (e = 0; e < n; e++) sum += p[e] = exp(p[e] - top);
    for (k = 0; k < used; k++) {
        for (e = 1, best[k] = 0; e < n; e++) if (p[e] > p[best[k]]) best[k] = e;
        w[k] = p[best[k]] / sum;
        chosen += w[k];
        p[best[k]] = -1;
    }
    for (i = 0; i < m->dim; i++) y[i] = 0;
    for (k = 0; k < used; k++) {
        const gb_linear gate = expert_of(&l->gate, best[k], m->ffn);
        const gb_linear up = expert_of(&l->up, best[k], m->ffn);
        const gb_linear down = expert_of(&l->down, best[k], m->dim);
        slow_linear(&gate, h, g);
        slow_linear(&up, h, u);
        for (i = 0; i < m->ffn; i++) {
            g[i] = fmin(g[i], clamp);
            g[i] = g[i] / (1.0 + exp(-g[i])) * fmax(fmin(u[i], clamp), -clamp);
        }
        slow_linear(&down, g, d);
        for (i = 0; i < m->dim; i++) y[i] += w[k] / fmax(chosen, 6.103515625e-5) * d[i];
    }
    free(p);
}

static void slow_layer(slow *s, int layer, int pos, double *x) {
    const gb_model *m = s->m;
    const gb_layer *l = &m->layer[layer];
    const size_t kv_dim = (size_t)(m->kv_heads * s->hd);
    const size_t at = ((size_t)layer * (size_t)s->n + (size_t)pos) * kv_dim;
    double h[512], q[512], o[512], *k = s->keys + at, *v = s->values + at;
    int i;
    slow_norm(s, x, l->attn_norm, m->dim, h);
    slow_linear(&l->q, h, q);
    slow_linear(&l->k, h, k);
    slow_linear(&l->v, h, v);
    for (i = 0; i < m->kv_heads; i++) {
        slow_norm(s, k + i * s->hd, l->k_norm, s->hd, k + i * s->hd);
        if (slides(layer)) slow_rope(s, k + i * s->hd, pos);
    }
    for (i = 0; i < m->heads; i++) {
        double *head = q + i * s->hd;
        slow_norm(s, head, l->q_norm, s->hd, head);
        if (slides(layer)) slow_rope(s, head, pos);
        slow_window(s, layer, head, i / (m->heads / m->kv_heads), pos, o + i * s->hd);
    }
    slow_linear(&l->o, o, h);
    for (i = 0; i < m->dim; i++) x[i] += h[i];
    slow_norm(s, x, l->ffn_norm, m->dim, h);
    slow_experts(s, layer, h, q);
    for (i = 0; i < m->dim; i++) x[i] += q[i];
}

/* Logits [EXPERT_TOKENS][n_vocab]. */
static float *slow_forward(const gb_model *m, const bitnet_token *tokens) {
    const size_t kv = (size_t)m->layers * EXPERT_TOKENS * (size_t)(m->kv_heads * m->head_dim);
    float *out = (float *)gb_malloc(EXPERT_TOKENS * (size_t)m->n_vocab * sizeof *out), *to = out;
    slow s = {m, m->head_dim, m->n_rot, EXPERT_TOKENS, (double)m->eps, (double)m->freq_base, 0, 0};
    double x[512], h[512];
    int t, i, r;
    s.keys = (double *)gb_malloc(2 * kv * sizeof *s.keys);
    s.values = s.keys + kv;
    for (t = 0; t < EXPERT_TOKENS; t++) {
        for (i = 0; i < m->dim; i++)
            x[i] = (double)m->embed[(size_t)tokens[t] * (size_t)m->dim + (size_t)i];
        for (i = 0; i < m->layers; i++) slow_layer(&s, i, t, x);
        slow_norm(&s, x, m->output_norm, m->dim, h);
        for (r = 0; r < m->n_vocab; r++) {
            const float *row = m->head + (size_t)r * (size_t)m->dim;
            double sum = 0;
            for (i = 0; i < m->dim; i++) sum += (double)row[i] * h[i];
            *to++ = (float)sum;
        }
    }
    free(s.keys);
    return out;
}

/* Makes the model and compares its logits (F32 cache) with the reference; then, with variants, all
   kernels, threads and batches with each other. Frees it. */
static void check_experts(gb_model *m, int variants, const char *what) {
    bitnet_ctx_params p = ctx_params(EXPERT_TOKENS, 0, 2, BITNET_KV_F32);
    bitnet_token tokens[EXPERT_TOKENS];
    double worst = 0;
    float *want, *got;
    int t, argmax = 0;
    gb_make_model(m);
    expert_tokens(m, tokens);
    got = logits_of(m->data, m->size, 0, &p, tokens, EXPERT_TOKENS, EXPERT_TOKENS);
    want = slow_forward(m, tokens);
    for (t = 0; t < EXPERT_TOKENS && got; t++) {
        const size_t at = (size_t)t * (size_t)m->n_vocab;
        const double d = nrmse(got + at, want + at, (size_t)m->n_vocab);
        if (!(d <= worst)) worst = d;
        argmax |= largest(got + at, m->n_vocab) != largest(want + at, m->n_vocab);
    }
    if (got && variants)
        check_variants(m->data, m->size, tokens, EXPERT_TOKENS, m->n_vocab, variants > 1);
    free(want);
    free(got);
    gb_free_model(m);
    CHECK_MSG(got && worst <= 1e-5 && !argmax, "%s: NRMSE %.3g%s", what, worst,
              argmax ? ", another argmax" : "");
}

/* Each type of weights, with a scale for each block and with one; the seeds are such that no
   rounding to int8 falls on an edge. */
static void test_expert_types(void) {
    static const struct { const char *what; uint32_t type; int differ; uint64_t seed; } cases[] = {
        {"TQ2_0", IMP_TQ2, 1, 1}, {"TQ2_0, one scale", IMP_TQ2, 0, 2}, {"TQ1_0", IMP_TQ1, 1, 3},
        {"TQ1_0, one scale", IMP_TQ1, 0, 10}, {"Q2_0", IMP_Q2, 1, 105}, {"PQ2_0", IMP_PQ2, 1, 6},
        {"I2_S", IMP_I2S, 0, 107}, {"TL2_R16", IMP_TL2R, 0, 108}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gb_model m = expert_model(7, 3, cases[i].seed);
        imp.type = cases[i].type;
        imp.differ = cases[i].differ;
        check_experts(&m, i < 1 || !test_quick(), cases[i].what);
    }
}

/* One expert, all experts, many; an expert of another size than the rows that threads take. */
static void test_expert_shapes(void) {
    static const struct { const char *what; int experts, used, ffn, dim, seed; } cases[] = {
        {"one of one", 1, 1, 256, 256, 11}, {"all of 5", 5, 5, 256, 256, 12},
        {"one of 9", 9, 1, 512, 256, 13}, {"8 of 40", 40, 8, 256, 256, 14},
        {"20 of 33", 33, 20, 256, 512, 15}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gb_model m = expert_model(cases[i].experts, cases[i].used, (uint64_t)cases[i].seed);
        m.ffn = cases[i].ffn;
        m.dim = cases[i].dim;
        keys.size = (uint32_t)m.ffn;
        keys.n_sizes = i % 2 ? m.layers : 0;
        check_experts(&m, !test_quick(), cases[i].what);
    }
}

/* The clamp: none, one, one for each layer. (Without a key it is 7, which these never reach.) */
static void test_expert_clamp(void) {
    int i;
    for (i = 0; i < 3; i++) {
        gb_model m = expert_model(6, 2, (uint64_t)(27 + i));
        keys.n_clamps = i < 2 ? -1 : m.layers;
        keys.clamp[0] = i == 0 ? 0.25f : i == 1 ? 1e-6f : 0.5f;
        keys.clamp[1] = 0.0f;
        keys.clamp[2] = 0.125f;
        check_experts(&m, 0, i == 0 ? "clamp 0.25" : i == 1 ? "no clamp" : "a clamp a layer");
    }
}

/* More threads than rows of anything; a caller's pool. */
static void run_jobs(void *ud, int jobs, void (*job)(void *arg, int i), void *arg) {
    int i;
    ++*(int *)ud;
    for (i = jobs - 1; i >= 0; i--) job(arg, i);
}

static void test_expert_threads(void) {
    gb_model m = expert_model(12, 4, 31);
    bitnet_ctx_params p = ctx_params(EXPERT_TOKENS, 0, 1, BITNET_KV_F16);
    bitnet_token tokens[EXPERT_TOKENS];
    const int threads[4] = {1, 2, 3, 7}, batches[4] = {0, 1, 5, 16};
    float *want;
    int t, b, k, ok = 1;
    gb_make_model(&m);
    expert_tokens(&m, tokens);
    want = logits_of(m.data, m.size, 0, &p, tokens, EXPERT_TOKENS, EXPERT_TOKENS);
    for (t = 0; t < 4 && want && ok; t++)
        for (b = 0; b < 4 && ok; b++)
            for (k = 0; k < 2 && ok; k++) {
                variant v = {0, threads[t], batches[b], batches[b] ? batches[b] : EXPERT_TOKENS,
                             k ? run_jobs : 0};
                ok = same_logits(m.data, m.size, &v, BITNET_KV_F16, tokens, EXPERT_TOKENS,
                                 m.n_vocab, want);
            }
    free(want);
    gb_free_model(&m);
    CHECK(want && ok);
}

/* ---- neighbours ---- */

/* Sequences in one pass: each has the logits that it has alone. */
static void test_expert_sequences(void) {
    gb_model m = expert_model(9, 3, 32);
    bitnet_ctx_params p = ctx_params(EXPERT_TOKENS, 0, 2, BITNET_KV_I8);
    bitnet_token tokens[EXPERT_TOKENS];
    bitnet_input in[4];
    bitnet_model *model;
    bitnet_ctx *alone, *all;
    int i, round, same = 1;
    gb_make_model(&m);
    expert_tokens(&m, tokens);
    model = load(m.data, m.size, 0);
    alone = create(model, &p);
    p.n_seqs = 4;
    all = create(model, &p);
    for (round = 0; round < 2 && alone && all; round++) {
        memset(in, 0, sizeof in);
        for (i = 0; i < 4; i++) {
            in[i].seq = i;
            in[i].tokens = tokens + 3 * i + round;
            in[i].n_tokens = round ? 1 : 1 + 3 * i;
            in[i].n_logits = 1;
        }
        same = same && !bitnet_eval_many(all, in, 4, 0);
        for (i = 0; i < 4 && same; i++) {
            const float *got = bitnet_logits(all, in[i].row, 0), *want;
            bitnet_seq_rewind(alone, 0, 0, 0);
            if (round) same = !bitnet_eval(alone, 0, tokens + 3 * i, 1 + 3 * i, 1, 0);
            same = same && !bitnet_eval(alone, 0, in[i].tokens, in[i].n_tokens, 1, 0);
            want = bitnet_logits(alone, -1, 0);
            same = same && got && want &&
                   !memcmp(got, want, (size_t)m.n_vocab * sizeof *got);
        }
    }
    bitnet_ctx_free(alone);
    bitnet_ctx_free(all);
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK(same && round == 2);
}

/* A saved sequence goes on with the same bits. */
static void test_expert_state(void) {
    gb_model m = expert_model(5, 2, 33);
    bitnet_ctx_params p = ctx_params(EXPERT_TOKENS, 0, 1, BITNET_KV_F16);
    bitnet_token tokens[EXPERT_TOKENS];
    bitnet_model *model;
    bitnet_ctx *a, *b;
    uint8_t *state = 0;
    const float *x = 0, *y = 0;
    uint64_t n;
    int same = 0;
    gb_make_model(&m);
    expert_tokens(&m, tokens);
    model = load(m.data, m.size, 0);
    a = create(model, &p);
    b = create(model, &p);
    if (a && b && !bitnet_eval(a, 0, tokens, 12, 1, 0)) {
        n = bitnet_seq_state_bytes(a, 0);
        state = (uint8_t *)gb_malloc((size_t)n);
        if (!bitnet_seq_save_memory(a, 0, state, (size_t)n, 0) &&
            !bitnet_seq_load_memory(b, 0, state, (size_t)n, 0) &&
            !bitnet_eval(a, 0, tokens + 12, 5, 1, 0) && !bitnet_eval(b, 0, tokens + 12, 5, 1, 0)) {
            x = bitnet_logits(a, -1, 0);
            y = bitnet_logits(b, -1, 0);
        }
        same = x && y && !memcmp(x, y, (size_t)m.n_vocab * sizeof *x);
    }
    free(state);
    bitnet_ctx_free(a);
    bitnet_ctx_free(b);
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK(same);
}

/* A context takes what bitnet_ctx_bytes says. */
static void test_expert_memory(void) {
    gb_model m = expert_model(11, 6, 34);
    bitnet_model_params mp;
    bitnet_ctx_params p = ctx_params(EXPERT_TOKENS, 9, 3, BITNET_KV_F16);
    bitnet_model *model = 0;
    bitnet_ctx *c = 0;
    gb_counter count;
    size_t before = 0, taken = 0, said = 0;
    memset(&mp, 0, sizeof mp);
    p.no_head_copy = 1;                /* which is the model's */
    gb_make_model(&m);
    mp.allocator = gb_counting(&count);
    if (!bitnet_model_load_memory(m.data, m.size, &mp, &model, 0)) {
        before = count.live_bytes - (size_t)count.live * GB_FRONT;
        said = (size_t)bitnet_ctx_bytes(model, &p);
        bitnet_ctx_create(model, &p, &c, 0);
        taken = count.live_bytes - (size_t)count.live * GB_FRONT - before;
    }
    bitnet_ctx_free(c);
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK(c && count.live == 0);
    CHECK_MSG(taken <= said && said - taken < 4096, "%u bytes, and not %u", (unsigned)taken,
              (unsigned)said);
}

/* ---- what the router says ---- */

typedef struct chosen_log { bitnet_ctx *c; int32_t experts[64], n; int layer; } chosen_log;

static void log_chosen(void *ud, int layer, const float *x, int n_tokens) {
    chosen_log *log = (chosen_log *)ud;
    (void)x;
    if (layer != log->layer) return;
    log->n = n_tokens * log->c->m->n_used;
    memcpy(log->experts, log->c->chosen, (size_t)log->n * sizeof *log->experts);
}

/* Where all experts are alike, those with the lowest numbers are chosen. */
static void equal_router(float *router, int dim, int n) {
    int e, i;
    for (e = 1; e < n; e++)
        for (i = 0; i < dim; i++) router[e * dim + i] = router[i];
}

/* Finds the router of a layer in a file. */
static uint8_t *find_router(gb_model *m, int layer) {
    char name[64];
    bitnet_gguf *g = 0;
    bitnet_gguf_tensor t;
    uint8_t *at = 0;
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", layer);
    if (!bitnet_gguf_open_memory(m->data, m->size, 0, &g, 0) &&
        !bitnet_gguf_find_tensor(g, name, &t)) at = m->data + t.offset;
    bitnet_gguf_close(g);
    return at;
}

static void test_expert_ties(void) {
    gb_model m = expert_model(20, 4, 35);
    bitnet_ctx_params p = ctx_params(4, 0, 2, BITNET_KV_F16);
    const bitnet_token tokens[4] = {9, 8, 7, 6};
    bitnet_model *model;
    chosen_log log = {0, {0}, 0, 1};
    uint8_t *router;
    int i, ok = 1;
    gb_make_model(&m);
    equal_router(m.layer[1].router, m.dim, 20);
    router = find_router(&m, 1);
    for (i = 0; i < 20 * m.dim; i++)
        bitnet__put_u32(router + 4 * i, bitnet__float_bits(m.layer[1].router[i]));
    model = load(m.data, m.size, 0);
    p.hooks.layer_fn = log_chosen;
    p.hooks.layer_ud = &log;
    log.c = create(model, &p);
    ok = log.c && !bitnet_eval(log.c, 0, tokens, 4, 1, 0) && log.n == 16;
    for (i = 0; i < log.n && ok; i++) ok = log.experts[i] == i % 4;
    bitnet_ctx_free(log.c);
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK(ok);
}

/* A router with a NaN or an infinity ends the evaluation with an error, which names the token and
   the layer; the sequence is as before. Until then each token has as many experts as ever. */
static int are_experts(const chosen_log *log, int used, int n) {
    int i, k;
    for (i = 0; i < log->n; i++) {
        if (log->experts[i] < 0 || log->experts[i] >= n) return 0;
        for (k = i - i % used; k < i; k++)
            if (log->experts[k] == log->experts[i]) return 0;
    }
    return log->n > 0;
}

static void test_expert_nan(void) {
    static const uint32_t bad[] = {0x7fc00000u, 0x7f800000u, 0xff800000u};
    const bitnet_token tokens[6] = {9, 8, 7, 6, 5, 4};
    size_t i;
    int t, e;
    for (i = 0; i < 3; i++)
        for (e = 0; e < 2; e++)
            for (t = 1; t <= 3; t += 2) {
                gb_model m = expert_model(5, 5 - e, 36);
                bitnet_ctx_params p = ctx_params(8, 0, t, BITNET_KV_F16);
                bitnet_error err = {BITNET_OK, "", {0}};
                bitnet_model *model;
                chosen_log log = {0, {0}, 0, 1};
                bitnet_result r = BITNET_OK;
                int length = 0;
                gb_make_model(&m);
                bitnet__put_u32(find_router(&m, 1) + 4 * (300 + 256 * e), bad[i]);
                model = load(m.data, m.size, 0);
                p.hooks.layer_fn = log_chosen;
                p.hooks.layer_ud = &log;
                log.c = create(model, &p);
                if (log.c) {
                    r = bitnet_eval(log.c, 0, tokens, 6, 1, &err);
                    length = bitnet_seq_length(log.c, 0);
                }
                bitnet_ctx_free(log.c);
                bitnet_model_free(model);
                gb_free_model(&m);
                CHECK(are_experts(&log, 5 - e, 5));
                CHECK_MSG(r == BITNET_ERR_FORMAT && length == 0 &&
                          strstr(err.text, "token 9 at position 0: the output of layer 1"),
                          "%s", err.text);
            }
}

/* Cancelling at any moment leaves the sequence as it was. */
static int asked, allowed;
static int cancel_late(void *ud) {
    (void)ud;
    return ++asked > allowed;
}

static void test_expert_cancel(void) {
    gb_model m = expert_model(6, 3, 37);
    bitnet_ctx_params p = ctx_params(16, 0, 2, BITNET_KV_F16);
    const bitnet_token tokens[9] = {9, 8, 7, 6, 5, 4, 3, 2, 1};
    bitnet_model *model;
    bitnet_ctx *c;
    bitnet_result r = BITNET_ERR_CANCELLED;
    int ok = 1;
    gb_make_model(&m);
    model = load(m.data, m.size, 0);
    p.hooks.cancel_fn = cancel_late;
    c = create(model, &p);
    for (allowed = 0; c && r == BITNET_ERR_CANCELLED && ok; allowed++) {
        asked = 0;
        r = bitnet_eval(c, 0, tokens, 9, 1, 0);
        ok = bitnet_seq_length(c, 0) == (r == BITNET_OK ? 9 : 0);
    }
    bitnet_ctx_free(c);
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK_MSG(ok && r == BITNET_OK && allowed > 20, "%d, after %d questions", (int)r, allowed);
}

/* ---- steps, and what is said of a model ---- */

static void count_steps(void *ud, const char *op, int thread, int begin) {
    int *n = (int *)ud;
    (void)thread;
    if (!begin) return;
    n[0] += !strcmp(op, "router");
    n[1] += !strcmp(op, "experts");
}

static char logged[600];
static void keep_log(void *ud, bitnet_log_level level, const char *text) {
    (void)ud, (void)level;
    snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s\n", text);
}

static void test_expert_info(void) {
    gb_model m = expert_model(6, 3, 38);
    bitnet_model_params mp;
    bitnet_model_info info;
    bitnet_ctx_params p = ctx_params(4, 0, 1, BITNET_KV_F16);
    const bitnet_token token = 1;
    bitnet_model *model = 0;
    bitnet_ctx *c = 0;
    const uint64_t layer = 2 * 256 * 256 + 2 * 256 * 128 + 2 * 64 + 2 * 256 + 6 * 256 +
                           6 * 3 * 256 * 256;
    int steps[2] = {0, 0};
    memset(&mp, 0, sizeof mp);
    memset(&info, 0, sizeof info);
    gb_make_model(&m);
    mp.log_fn = keep_log;
    logged[0] = 0;
    bitnet_model_load_memory(m.data, m.size, &mp, &model, 0);
    bitnet_model_get_info(model, &info);
    p.hooks.step_fn = count_steps;
    p.hooks.step_ud = steps;
    if (model && !bitnet_ctx_create(model, &p, &c, 0)) bitnet_eval(c, 0, &token, 1, 1, 0);
    bitnet_ctx_free(c);
    bitnet_model_free(model);
    gb_free_model(&m);
    CHECK(info.n_experts == 6 && info.n_experts_used == 3 && info.ffn_dim == 256);
    CHECK_MSG(info.n_params == 3 * layer + 256 + 2 * (uint64_t)m.n_vocab * 256, "%u parameters",
              (unsigned)info.n_params);
    CHECK_MSG(strstr(logged, "6 experts a layer, of which each token uses 3"), "%s", logged);
    CHECK_MSG(steps[0] == 2 * 3 && steps[1] == 2 * 3, "%d and %d steps", steps[0], steps[1]);
}

/* ---- files that are refused ---- */

static void test_expert_keys(void) {
    static const struct { const char *name; uint32_t type, fine, bad; } extra[] = {
        {"maple.expert_shared_count", GB_U32, 0, 1}, {"maple.expert_gating_func", GB_U32, 1, 2},
        {"maple.expert_weights_norm", GB_U32, 1, 0},
        {"maple.expert_weights_scale", GB_F32, 0x3f800000u, 0x40200000u},
        {"maple.leading_dense_block_count", GB_U32, 0, 1},
        {"maple.feed_forward_length", GB_U32, 4096, UINT32_MAX}
    };
    static const char *const needed[] = {
        "maple.expert_count", "maple.expert_used_count", "maple.attention.sliding_window"
    };
    gb_model m;
    size_t i;
    for (i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        m = expert_model(4, 2, 41);
        m.file.omit = needed[i];
        expect(&m, BITNET_ERR_FORMAT, needed[i], "is missing");
    }
    for (i = 0; i < sizeof extra / sizeof extra[0]; i++) {
        m = expert_model(4, 2, 41);
        keys.key = extra[i].name;
        keys.key_type = extra[i].type;
        keys.key_value = extra[i].fine;
        if (strcmp(keys.key, "maple.feed_forward_length")) expect(&m, BITNET_OK, 0, 0);
        if (extra[i].bad == UINT32_MAX) continue;
        m = expert_model(4, 2, 41);
        keys.key = extra[i].name;
        keys.key_type = extra[i].type;
        keys.key_value = extra[i].bad;
        expect(&m, BITNET_ERR_UNSUPPORTED, extra[i].name, "is supported here");
    }
}

/* Counts of experts, and arrays of another length than the layers. */
static void test_expert_counts(void) {
    static const struct { uint32_t experts, used; const char *word; } counts[] = {
        {0, 0, "maple.expert_count"}, {4, 0, "maple.expert_used_count"},
        {4, 5, "maple.expert_used_count"}, {UINT32_MAX, 1, "maple.expert_count"},
        {1025, 1, "maple.expert_count"}, {3, 2, "ffn_gate_inp"}, {1024, 1024, "ffn_gate_inp"}
    };
    gb_model m;
    size_t i;
    for (i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        m = expert_model(4, (int)counts[i].used, 41);
        key_experts = (int)counts[i].experts;
        expect(&m, BITNET_ERR_FORMAT, counts[i].word, "");
    }
    for (i = 0; i < 2; i++) {
        m = expert_model(4, 2, 41);
        keys.n_pattern = i ? 2 : 4;
        expect(&m, BITNET_ERR_FORMAT, "sliding_window_pattern", "one bool for each layer");
        m = expert_model(4, 2, 41);
        keys.n_clamps = i ? 2 : 4;
        expect(&m, BITNET_ERR_FORMAT, "swiglu_clamp_exp", "one F32 for each layer");
        m = expert_model(4, 2, 41);
        keys.n_sizes = i ? 2 : 4;
        expect(&m, BITNET_ERR_FORMAT, "expert_feed_forward_length", "one for each layer");
    }
    m = expert_model(4, 2, 41);
    keys.n_pattern = -1;
    expect(&m, BITNET_ERR_FORMAT, "sliding_window_pattern", "is missing");
    m = expert_model(4, 2, 41);
    keys.pattern_type = GB_U32;
    expect(&m, BITNET_ERR_FORMAT, "sliding_window_pattern", "one bool for each layer");
    m = expert_model(4, 2, 41);
    keys.n_sizes = -1;
    expect(&m, BITNET_ERR_FORMAT, "expert_feed_forward_length", "is missing");
    m = expert_model(4, 2, 41);
    keys.n_clamps = -1;
    keys.clamp[0] = INFINITY;
    expect(&m, BITNET_ERR_FORMAT, "swiglu_clamp_exp", "is not finite");
    m = expert_model(4, 2, 41);
    m.ffn = 96;
    imp.type = IMP_I2S;
    keys.size = 96;
    expect(&m, BITNET_ERR_UNSUPPORTED, "experts of 96 rows of 256", "multiples of");
}

/* Tensors of other dimensions and types, fused ones, shared experts; a tied head. */
static const char *changed;
static int change;
static int change_tensor(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                         uint64_t *offset) {
    uint64_t swap;
    (void)offset;
    if (strcmp(name, changed)) return 0;
    if (change == 0) {                 /* [rows][experts] in the other order */
        swap = dims[1];
        dims[1] = dims[2];
        dims[2] = swap;
    }
    if (change == 1) {                 /* as one matrix */
        dims[1] *= dims[2];
        *n_dims = 2;
    }
    if (change == 2) dims[2]--;
    if (change == 3) *type = GB_TENSOR_F16;
    return 0;
}

static void add_another(gb_file *f) {
    static const float ones[256];
    const uint64_t experts = f->experts;
    add_expert_keys(f);
    f->experts = 0;
    gb_put_matrix(f, changed, GB_TENSOR_F32, ones, 256, 0);
    f->experts = experts;
}

static void test_expert_tensors(void) {
    static const char *const others[] = {
        "blk.0.ffn_gate_up_exps.weight", "blk.0.ffn_gate_shexp.weight", "blk.0.ffn_gate.weight",
        "blk.1.exp_probs_b.bias", "blk.0.ffn_gate_inp_shexp.weight", "rope_freqs.weight",
        "blk.0.ffn_sub_norm.weight", "blk.2.ffn_gate_inp.bias"
    };
    static const char *const needed[] = {
        "output.weight", "blk.1.ffn_gate_inp.weight", "blk.0.ffn_up_exps.weight",
        "blk.2.ffn_down_exps.weight", "blk.1.ffn_norm.weight", "blk.0.attn_k_norm.weight"
    };
    static const struct { const char *name; int change; bitnet_result code; } cases[] = {
        {"blk.1.ffn_gate_exps.weight", 0, BITNET_ERR_FORMAT},
        {"blk.1.ffn_down_exps.weight", 1, BITNET_ERR_FORMAT},
        {"blk.0.ffn_up_exps.weight", 2, BITNET_ERR_FORMAT},
        {"blk.0.ffn_gate_inp.weight", 3, BITNET_ERR_UNSUPPORTED}
    };
    gb_model m;
    size_t i;
    for (i = 0; i < sizeof others / sizeof others[0]; i++) {
        m = expert_model(4, 2, 41);
        m.file.add_keys = add_another;
        changed = others[i];
        expect(&m, BITNET_ERR_UNSUPPORTED, others[i], "not part of");
    }
    for (i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        m = expert_model(4, 2, 41);
        m.file.omit = needed[i];
        expect(&m, BITNET_ERR_FORMAT, needed[i], "missing");
    }
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        m = expert_model(4, 2, 41);
        m.file.tensor_hook = change_tensor;
        changed = cases[i].name;
        change = cases[i].change;
        expect(&m, cases[i].code, cases[i].name, "");
    }
    m = expert_model(4, 2, 41);
    m.file.tensor_hook = 0;
    keys.key = "maple.rope.scaling.factor";
    keys.key_type = GB_F32;
    keys.key_value = 0x40000000u;
    expect(&m, BITNET_ERR_UNSUPPORTED, "rope.scaling", "not scaled");
}

/* ---- against the reference of another program ---- */

/* The next integer of a text; *at moves behind it. */
static int next_number(const char **at) {
    while (**at && (**at < '0' || **at > '9')) ++*at;
    return (int)strtol(*at, (char **)(uintptr_t)at, 10);
}

typedef struct expert_reference {
    bitnet_ctx *c;
    const char *experts;               /* of the next layer */
    float *streams;
    int wrong;
} expert_reference;

enum { REFERENCE_TOKENS = 24 };

static void keep_layer(void *ud, int layer, const float *x, int n_tokens) {
    expert_reference *r = (expert_reference *)ud;
    const bitnet_model *m = r->c->m;
    const size_t n = (size_t)n_tokens * (size_t)m->dim;
    int i;
    memcpy(r->streams + (size_t)(layer + 1) * n, x, n * sizeof *x);
    for (i = 0; layer >= 0 && i < n_tokens * m->n_used; i++)
        r->wrong += next_number(&r->experts) != r->c->chosen[i];
}

static float *read_floats(const char *name, size_t n) {
    const char *path = test_shared(name);
    size_t size = 0, i;
    uint8_t *raw = path ? (uint8_t *)test_read_file(path, &size) : 0;
    float *x = (float *)gb_malloc(n * sizeof *x);
    for (i = 0; i < n; i++) x[i] = raw && size == 4 * n ? bitnet__load_f32(raw + 4 * i) : 0.0f;
    free(raw);
    return x;
}

static void test_expert_reference(void) {
    const size_t n_streams = 5 * REFERENCE_TOKENS * 256, n_logits = REFERENCE_TOKENS * 1050;
    const char *path = test_shared("models/mp.json");
    bitnet_ctx_params p = ctx_params(REFERENCE_TOKENS, 0, 2, BITNET_KV_F32);
    bitnet_token tokens[REFERENCE_TOKENS];
    expert_reference r = {0, 0, 0, 0};
    bitnet_model *model;
    float *want_streams, *want, *got;
    char *data, *json;
    size_t size, n;
    double streams = 1, logits = 1;
    int i, argmax = 0;
    if (!path) SKIP("models/mp.json is not in BITNET_TEST_DATA");
    json = (char *)test_read_file(path, &n);
    json[n - 1] = 0;
    data = (char *)test_read_file(test_shared("models/mp.gguf"), &size);
    r.experts = strstr(json, "\"experts\"");
    r.streams = (float *)gb_malloc(n_streams * sizeof *r.streams);
    want_streams = read_floats("models/mp.hidden.f32", n_streams);
    want = read_floats("models/mp.logits.f32", n_logits);
    got = (float *)gb_malloc(n_logits * sizeof *got);
    for (i = 0; i < REFERENCE_TOKENS; i++) tokens[i] = 11 + 37 * i;
    p.hooks.layer_fn = keep_layer;
    p.hooks.layer_ud = &r;
    model = load(data, size, 0);
    r.c = create(model, &p);
    if (r.c && model->n_vocab == 1050 &&
        all_logits(r.c, tokens, REFERENCE_TOKENS, REFERENCE_TOKENS, got)) {
        streams = nrmse(r.streams, want_streams, n_streams);
        logits = nrmse(got, want, n_logits);
        for (i = 0; i < REFERENCE_TOKENS; i++)
            argmax |= largest(got + 1050 * i, 1050) != largest(want + 1050 * i, 1050);
    }
    bitnet_ctx_free(r.c);
    bitnet_model_free(model);
    free(got);
    free(want);
    free(want_streams);
    free(r.streams);
    free(data);
    free(json);
    CHECK_MSG(logits <= 1e-5 && streams <= 1e-5 && !argmax, "NRMSE %.3g, of layers %.3g%s", logits,
              streams, argmax ? ", another argmax" : "");
    CHECK_MSG(!r.wrong, "%d other experts", r.wrong);
}

const test_case experts_tests[] = {
    {"experts/reference", test_expert_reference},
    {"experts/types", test_expert_types},
    {"experts/shapes", test_expert_shapes},
    {"experts/clamp", test_expert_clamp},
    {"experts/threads", test_expert_threads},
    {"experts/sequences", test_expert_sequences},
    {"experts/state", test_expert_state},
    {"experts/memory", test_expert_memory},
    {"experts/ties", test_expert_ties},
    {"experts/nan", test_expert_nan},
    {"experts/cancel", test_expert_cancel},
    {"experts/info", test_expert_info},
    {"experts/keys", test_expert_keys},
    {"experts/counts", test_expert_counts},
    {"experts/tensors", test_expert_tensors},
    {0, 0}
};
