/* Tests of bitnet.h's `@embed` section and of the networks that it is for, qwen3 and gemma3:
   against the float64 references, for equal bits whatever is packed with a text, and for what is
   refused. The models q, g and gw are in the shared test data; gw has a window of 8 positions. */
#include "test.h"

#include "../../examples/embed/bits.h"
#include "gguf_helpers.h"
#include "model_helpers.h"

typedef struct embed_model { const char *name; int n_layers, dim; } embed_model;
static const embed_model embed_models[] = {{"q", 3, 256}, {"g", 7, 384}, {"gw", 7, 384}};
enum { EMBED_TOKENS = 24 };

static bitnet_token embed_token(int i) { return 11 + 37 * i; }     /* of the references */

static void *embed_read(const embed_model *e, const char *suffix, size_t *size) {
    char name[60];
    const char *path;
    snprintf(name, sizeof name, "models/%s%s", e->name, suffix);
    path = test_shared(name);
    return path ? test_read_file(path, size) : 0;
}

static float *embed_floats(const embed_model *e, const char *suffix, size_t n) {
    size_t size = 0, i;
    uint8_t *raw = (uint8_t *)embed_read(e, suffix, &size);
    float *x = raw && size == n * 4 ? (float *)gb_malloc(n * sizeof *x) : 0;
    for (i = 0; x && i < n; i++) x[i] = bitnet__load_f32(raw + 4 * i);
    free(raw);
    return x;
}

#define NEED_MODEL(e) \
    do { \
        if (!test_shared("models/gw.gguf")) \
            SKIP("models/%s.gguf is not in BITNET_TEST_DATA", (e)->name); \
    } while (0)

/* ---- against the references ---- */

typedef struct streams { float *x; int dim, at; } streams;

static void keep_stream(void *ud, int layer, const float *x, int n_tokens) {
    streams *s = (streams *)ud;
    (void)layer;
    memcpy(s->x + (size_t)s->at * (size_t)s->dim, x, (size_t)n_tokens * (size_t)s->dim * sizeof *x);
    s->at += n_tokens;
}

/* The worst token of all layers, and the vector, with an F32 cache. */
static void check_embed_reference(const embed_model *e) {
    const size_t n = (size_t)(e->n_layers + 1) * EMBED_TOKENS * (size_t)e->dim;
    bitnet_ctx_params p = ctx_params(EMBED_TOKENS, 0, 2, BITNET_KV_F32);
    bitnet_token tokens[EMBED_TOKENS];
    bitnet_embed_input in = {.n_tokens = EMBED_TOKENS};
    size_t size;
    void *data = embed_read(e, ".gguf", &size);
    float *want = embed_floats(e, ".hidden.f32", n), got_vector[400];
    float *want_vector = embed_floats(e, ".embedding.f32", (size_t)e->dim);
    streams s = {0, 0, 0};
    double worst = 0, of_vector = 1, length = 0;
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_error err = {BITNET_OK, "", {0}};
    int i;
    for (i = 0; i < EMBED_TOKENS; i++) tokens[i] = embed_token(i);
    in.tokens = tokens;
    s.x = (float *)gb_malloc(n * sizeof *s.x);
    s.dim = e->dim;
    p.hooks.layer_fn = keep_stream;
    p.hooks.layer_ud = &s;
    m = data ? load(data, size, 0) : 0;
    c = create(m, &p);
    if (c && want && want_vector && m->dim == e->dim && m->n_layers == e->n_layers &&
        bitnet_embed(c, &in, 1, 0, got_vector, &err) == BITNET_OK) {
        for (i = 0; i < (e->n_layers + 1) * EMBED_TOKENS; i++) {
            const size_t at = (size_t)i * (size_t)e->dim;
            const double error = nrmse(s.x + at, want + at, (size_t)e->dim);
            if (!(error <= worst)) worst = error;
        }
        of_vector = nrmse(got_vector, want_vector, (size_t)e->dim);
        for (i = 0; i < e->dim; i++) length += (double)got_vector[i] * (double)got_vector[i];
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    free(data);
    free(want);
    free(want_vector);
    free(s.x);
    CHECK_MSG(err.code == BITNET_OK, "%s", err.text);
    CHECK(s.at == (e->n_layers + 1) * EMBED_TOKENS);
    CHECK_MSG(worst <= 1e-5, "NRMSE of a token %.3g", worst);
    CHECK_MSG(of_vector <= 1e-5, "NRMSE of the vector %.3g", of_vector);
    CHECK(fabs(length - 1) < 1e-6);
}

static void test_embed_q(void) {
    NEED_MODEL(&embed_models[0]);
    check_embed_reference(&embed_models[0]);
}
static void test_embed_g(void) {
    NEED_MODEL(&embed_models[1]);
    check_embed_reference(&embed_models[1]);
}
static void test_embed_gw(void) {
    NEED_MODEL(&embed_models[2]);
    check_embed_reference(&embed_models[2]);
}

/* ---- the same bits, whatever is beside a text ---- */

/* Texts of 1 to 90 tokens, longer than a page and than gw's window. */
enum { N_TEXTS = 9 };
static const int text_lengths[N_TEXTS] = {1, 70, 3, 24, 90, 8, 9, 2, 17};
static bitnet_token text_tokens[N_TEXTS][90];

static void make_texts(bitnet_embed_input *in, int32_t n_vocab) {
    int i, k;
    memset(in, 0, N_TEXTS * sizeof *in);
    for (i = 0; i < N_TEXTS; i++) {
        for (k = 0; k < text_lengths[i]; k++)
            text_tokens[i][k] = (bitnet_token)((i * 311 + k * 37 + k * k) % n_vocab);
        in[i].tokens = text_tokens[i];
        in[i].n_tokens = text_lengths[i];
    }
}

/* One text after the other, one thread and one pass. */
static int embed_plainly(const void *data, size_t size, bitnet_kv_type kv, bitnet_pooling pooling,
                         float *out) {
    bitnet_ctx_params p = ctx_params(128, 128, 1, kv);
    bitnet_embed_params how;
    bitnet_embed_input in[N_TEXTS];
    bitnet_model *m = load(data, size, 0);
    bitnet_ctx *c = create(m, &p);
    int i, ok = c != 0;
    memset(&how, 0, sizeof how);
    how.pooling = pooling;
    if (ok) make_texts(in, m->n_vocab);
    for (i = 0; ok && i < N_TEXTS; i++)
        ok = bitnet_embed(c, &in[i], 1, &how, out + (size_t)i * (size_t)m->dim, 0) == BITNET_OK;
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    return ok;
}

enum { N_WAYS = 7 };

static void check_packing(const embed_model *e, bitnet_kv_type kv, bitnet_pooling pooling) {
    static const struct { int seqs, batch, threads, n_kv; } ways[N_WAYS] = {
        {1, 0, 1, 0}, {1, 5, 2, 0}, {4, 0, 3, 0}, {4, 33, 1, 0}, {16, 512, 2, 0}, {3, 1, 1, 0},
        {16, 64, 2, 192}               /* of plain C, which is slow, only this one, with the first
                                          model; of the others but the first table, a third,
                                          in quick tests a seventh */
    };
    const size_t n = N_TEXTS * (size_t)e->dim;
    float *want = (float *)gb_malloc(n * sizeof *want), *got = (float *)gb_malloc(n * sizeof *got);
    bitnet_embed_input in[N_TEXTS];
    bitnet_embed_params how;
    char bad[100] = "";
    size_t size;
    void *data = embed_read(e, ".gguf", &size);
    int ok = embed_plainly(data, size, kv, pooling, want), k;
    memset(&how, 0, sizeof how);
    how.pooling = pooling;
    for (k = 0; ok && k < bitnet_kernels_count() && !bad[0]; k++) {
        const bitnet_kernels *table = bitnet_kernels_get(k);
        bitnet_model *m = bitnet_kernels_usable(table) ? load(data, size, table) : 0;
        size_t w;
        for (w = 0; m && w < N_WAYS && !bad[0]; w++) {
            bitnet_ctx_params p = ctx_params(128, ways[w].batch, ways[w].threads, kv);
            bitnet_ctx *c;
            if (table->needs ? (k > 0 || test_quick()) && (w + (size_t)k) % (test_quick() ? 7 : 3)
                             : e != embed_models || w + 1 < N_WAYS)
                continue;
            p.n_seqs = ways[w].seqs;
            p.n_kv = ways[w].n_kv;
            c = create(m, &p);
            make_texts(in, m->n_vocab);
            memset(got, 0x4A, n * sizeof *got);
            if (!c || bitnet_embed(c, in, N_TEXTS, &how, got, 0) != BITNET_OK ||
                memcmp(want, got, n * sizeof *got))
                snprintf(bad, sizeof bad, "kernels %s, way %d", table->name, (int)w);
            if (c && (bitnet_seq_length(c, 0) || c->seqs[0].n_queued))
                snprintf(bad, sizeof bad, "a sequence is not empty");
            bitnet_ctx_free(c);
        }
        bitnet_model_free(m);
    }
    free(want);
    free(got);
    free(data);
    CHECK(ok);
    CHECK_MSG(!bad[0], "%s: %s", e->name, bad);
}

static void test_embed_packing(void) {
    NEED_MODEL(&embed_models[0]);
    check_packing(&embed_models[0], BITNET_KV_F16, BITNET_POOLING_MODEL);
    check_packing(&embed_models[2], BITNET_KV_I8, BITNET_POOLING_LAST);
    if (test_quick()) return;
    check_packing(&embed_models[1], BITNET_KV_F16, BITNET_POOLING_FIRST);
    check_packing(&embed_models[2], BITNET_KV_F16, BITNET_POOLING_MODEL);
    check_packing(&embed_models[0], BITNET_KV_F32, BITNET_POOLING_MEAN);
    check_packing(&embed_models[2], BITNET_KV_F32, BITNET_POOLING_MEAN);
}

/* ---- layers that slide ---- */

static int slide_window, slide_pattern;
static float slide_base;

static void slide_keys(gb_file *f) {
    gb_key_u32(f, "gemma3.pooling_type", 3);
    if (slide_base > 0) gb_key_f32(f, "gemma3.rope.freq_base_swa", slide_base);
    if (slide_pattern)
        gb_key_u32(f, "gemma3.attention.sliding_window_pattern", (uint32_t)slide_pattern);
    if (slide_window) gb_key_u32(f, "gemma3.attention.sliding_window", (uint32_t)slide_window);
}

/* The last row of 12 tokens in a random gemma3 of `layers` layers, into out [64]. */
static int slide_vector(int layers, int window, float freq_base, float *out) {
    gb_model g;
    bitnet_ctx_params p = ctx_params(16, 0, 1, BITNET_KV_F32);
    bitnet_embed_input in = {.n_tokens = 12};
    bitnet_model *m;
    bitnet_ctx *c;
    int ok;
    memset(&g, 0, sizeof g);
    g.arch = "gemma3";
    g.dim = g.ffn = 64;
    g.heads = 2;
    g.kv_heads = 1;
    g.layers = layers;
    g.eps = 1e-6f;
    g.freq_base = freq_base;
    g.no_sub_norms = 1;
    g.file.add_keys = slide_keys;
    slide_window = window;
    gb_make_model(&g);
    m = load(g.data, g.size, 0);
    c = create(m, &p);
    in.tokens = text_tokens[1];
    ok = c && bitnet_embed(c, &in, 1, 0, out, 0) == BITNET_OK;
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
    return ok;
}

/* A model without a head has hidden states after bitnet_eval: the vectors of bitnet_embed as they
   are. */
static void test_embed_hidden(void) {
    gb_model g = {.arch = "gemma3", .dim = 64, .ffn = 64, .heads = 2, .kv_heads = 1, .layers = 2,
                  .eps = 1e-6f, .freq_base = 1e6f, .no_sub_norms = 1, .file.add_keys = slide_keys};
    bitnet_ctx_params p = ctx_params(16, 5, 1, BITNET_KV_F16);
    bitnet_embed_params how = {.pooling = BITNET_POOLING_LAST, .raw = 1};
    bitnet_embed_input in[N_TEXTS];
    float rows[12][64], got[64];
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_model *m;
    bitnet_ctx *c;
    int i, same = 0, none;
    make_texts(in, 256);
    slide_window = 4;
    gb_make_model(&g);
    m = load(g.data, g.size, 0);
    c = create(m, &p);
    for (i = 0; c && i < 12; i++) {
        in[1].n_tokens = i + 1;
        if (bitnet_embed(c, &in[1], 1, &how, rows[i], &err)) break;
    }
    none = c && !bitnet_hidden(c, -1, &err) && err.code == BITNET_ERR_ARG;
    if (i == 12 && !bitnet_eval(c, 0, text_tokens[1], 12, 7, &err))
        for (i = 0; i < 7; i++) {
            const float *row = bitnet_hidden(c, i, &err);
            same += row && !memcmp(row, rows[5 + i], sizeof got);
        }
    none = none && !bitnet_hidden(c, 7, &err) && err.code == BITNET_ERR_ARG &&
           bitnet_hidden(c, -1, 0) == bitnet_hidden(c, 6, 0) && !bitnet_logits(c, 6, &err) &&
           err.code == BITNET_ERR_UNSUPPORTED;
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
    CHECK_MSG(same == 7 && none, "%d of 7 rows: %s", same, err.text);
}

/* Layers 0 to 4 slide: they rotate with base 10000, whatever the file says of the others. Layer 5
   does not slide. A window of all positions is no window, but for that base. */
static void test_embed_slides(void) {
    float a[64], b[64];
    bitnet_embed_input in[N_TEXTS];
    make_texts(in, 256);
    CHECK(slide_vector(5, 4, 10000.0f, a) && slide_vector(5, 4, 1e6f, b));
    CHECK(!memcmp(a, b, sizeof a));
    CHECK(slide_vector(6, 4, 10000.0f, a) && slide_vector(6, 4, 1e6f, b));
    CHECK(memcmp(a, b, sizeof a));
    CHECK(slide_vector(5, 0, 10000.0f, a) && slide_vector(5, 0, 1e6f, b));
    CHECK(memcmp(a, b, sizeof a));
    CHECK(slide_vector(5, 12, 10000.0f, b) && !memcmp(a, b, sizeof a));
    CHECK(slide_vector(5, 11, 10000.0f, b) && memcmp(a, b, sizeof a));
}

/* The base of the layers that slide can be given; which of them slide is known. */
static void test_embed_slide_keys(void) {
    float a[64], b[64];
    bitnet_embed_input in[N_TEXTS];
    make_texts(in, 256);
    CHECK(slide_vector(5, 4, 1e6f, a));
    slide_base = 10000.0f;
    slide_pattern = 6;
    CHECK(slide_vector(5, 4, 1e6f, b) && !memcmp(a, b, sizeof a));
    slide_base = 20000.0f;
    CHECK(slide_vector(5, 4, 1e6f, b) && memcmp(a, b, sizeof a));
    slide_base = 0;
    {
        gb_model g = {.arch = "gemma3", .dim = 64, .ffn = 64, .heads = 2, .kv_heads = 1,
                      .layers = 1, .eps = 1e-6f, .freq_base = 1e6f, .no_sub_norms = 1};
        slide_pattern = 4;
        g.file.add_keys = slide_keys;
        expect(&g, BITNET_ERR_UNSUPPORTED, "sliding_window_pattern", "only 6 is supported");
    }
    slide_pattern = 0;
}

/* ---- what it is given ---- */

static int slow_pool(bitnet_ctx *c, const bitnet_embed_input *in, bitnet_pooling pooling, int raw,
                     float *out) {
    bitnet_embed_params how;
    memset(&how, 0, sizeof how);
    how.pooling = pooling;
    how.raw = raw;
    return bitnet_embed(c, in, 1, &how, out, 0) == BITNET_OK;
}

/* Mean, first and last against the rows themselves, which come as the vectors of the beginnings of
   the text: the last row of a beginning does not see what follows. */
static void test_embed_pooling(void) {
    enum { N = 5 };
    const embed_model *e = &embed_models[0];
    bitnet_token tokens[N];
    bitnet_embed_input in = {.n_tokens = N};
    float rows[N][256], got[256], unit[256];
    double worst = 0, length = 0;
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_ctx_params p = ctx_params(64, 0, 1, BITNET_KV_F32);
    size_t size;
    void *data;
    int i, k, ok, same_first, same_last;
    NEED_MODEL(e);
    data = embed_read(e, ".gguf", &size);
    m = load(data, size, 0);
    c = create(m, &p);
    for (i = 0; i < N; i++) tokens[i] = embed_token(i);
    in.tokens = tokens;
    ok = c != 0;
    for (i = 0; ok && i < N; i++) {
        in.n_tokens = i + 1;
        ok = slow_pool(c, &in, BITNET_POOLING_LAST, 1, rows[i]);
    }
    in.n_tokens = N;
    ok = ok && slow_pool(c, &in, BITNET_POOLING_FIRST, 1, got);
    same_first = ok && !memcmp(got, rows[0], sizeof got);
    ok = ok && slow_pool(c, &in, BITNET_POOLING_MODEL, 1, got);
    same_last = ok && !memcmp(got, rows[N - 1], sizeof got);
    ok = ok && slow_pool(c, &in, BITNET_POOLING_MEAN, 1, got) &&
         slow_pool(c, &in, BITNET_POOLING_MEAN, 0, unit);
    for (k = 0; ok && k < 256; k++) {
        double mean = 0;
        for (i = 0; i < N; i++) mean += (double)rows[i][k] / N;
        if (fabs(mean - (double)got[k]) > worst) worst = fabs(mean - (double)got[k]);
        length += (double)got[k] * (double)got[k];
    }
    for (k = 0; ok && k < 256; k++)
        if (fabs((double)got[k] / sqrt(length) - (double)unit[k]) > 1e-6) ok = 0;
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    free(data);
    CHECK(ok && same_first && same_last);
    CHECK_MSG(worst < 1e-6, "mean is off by %g", worst);
}

/* Texts get BOS and EOS as the file says, may hold a NUL, and lose their end if that is asked. */
static void test_embed_text(void) {
    static const bitnet_text text = BITNET_TEXT("A text of some words,\0 and more of them.");
    const embed_model *e = &embed_models[1];       /* BOS and EOS */
    bitnet_embed_params how;
    bitnet_embed_input in[2];
    bitnet_token tokens[200];
    float *got, *want;
    bitnet_error err = {BITNET_OK, "", {0}}, full = {BITNET_OK, "", {0}};
    bitnet_ctx_params p = ctx_params(6, 0, 1, BITNET_KV_F16);
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_result r[4];
    size_t size, n;
    void *data;
    int count, same, cut, again;
    NEED_MODEL(e);
    data = embed_read(e, ".gguf", &size);
    m = load(data, size, 0);
    n = (size_t)m->dim;
    got = (float *)gb_malloc(2 * n * sizeof *got);
    want = (float *)gb_malloc(2 * n * sizeof *want);
    memset(&how, 0, sizeof how);
    memset(in, 0, sizeof in);
    in[0].text = text;
    count = bitnet_tokenize(m, text.data, text.size, BITNET_ADD_BOS | BITNET_ADD_EOS, tokens, 200);
    in[1].tokens = tokens;
    in[1].n_tokens = count;
    c = create(m, &p);                             /* too short */
    r[0] = bitnet_embed(c, in, 2, &how, got, &full);
    again = !bitnet_eval(c, 0, tokens, 1, 0, &err) && !bitnet_seq_rewind(c, 0, 0, &err);
    how.cut = 1;
    r[1] = bitnet_embed(c, in, 1, &how, got, &err);
    tokens[5] = 1;                                 /* EOS stays the last */
    in[1].n_tokens = 6;
    r[2] = bitnet_embed(c, in + 1, 1, &how, want, &err);
    cut = !memcmp(got, want, n * sizeof *got);
    bitnet_ctx_free(c);
    p.n_ctx = p.n_logits = 200;
    c = create(m, &p);
    how.cut = 0;
    bitnet_tokenize(m, text.data, text.size, BITNET_ADD_BOS | BITNET_ADD_EOS, tokens, 200);
    in[1].n_tokens = count;
    r[3] = bitnet_embed(c, in, 2, &how, got, &err);
    same = !memcmp(got, got + n, n * sizeof *got);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    free(data);
    free(got);
    free(want);
    CHECK(count > 8 && tokens[0] == 2 && tokens[count - 1] == 1);
    CHECK_MSG(r[0] == BITNET_ERR_FULL && strstr(full.text, "input 0") && strstr(full.text, "6"),
              "%s", full.text);
    CHECK_MSG(again && r[1] == BITNET_OK && r[2] == BITNET_OK && r[3] == BITNET_OK, "%s", err.text);
    CHECK(cut && same);
}

/* A text whose pages another one still has waits for it. */
static void test_embed_waits(void) {
    bitnet_token tokens[100];
    bitnet_embed_input in[2] = {{.tokens = tokens, .n_tokens = 100},
                                {.tokens = tokens, .n_tokens = 100}};
    bitnet_ctx_params p = ctx_params(128, 16, 1, BITNET_KV_F16);
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_result r;
    size_t size, n, i;
    void *data;
    float *out;
    int same;
    NEED_MODEL(embed_models);
    data = embed_read(embed_models, ".gguf", &size);
    m = load(data, size, 0);
    p.n_seqs = 2;
    p.n_kv = 128;
    c = create(m, &p);
    n = (size_t)m->dim;
    out = (float *)gb_malloc(2 * n * sizeof *out);
    for (i = 0; i < 100; i++) tokens[i] = 5 + (bitnet_token)i;
    r = bitnet_embed(c, in, 2, 0, out, &err);
    same = !r && !memcmp(out, out + n, n * sizeof *out);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    free(data);
    free(out);
    CHECK_MSG(same, "%s", err.text);
}

static int stop_at_once(void *ud, uint64_t done, uint64_t total) {
    *(uint64_t *)ud = done * 1000 + total;
    return 1;
}

static int fails_as(bitnet_ctx *c, const bitnet_embed_input *in, int n,
                    const bitnet_embed_params *how, float *out, bitnet_result r,
                    const char *says) {
    bitnet_error err = {BITNET_OK, "", {0}};
    const bitnet_result got = bitnet_embed(c, in, n, how, out, &err);
    if (got == r && strstr(err.text, says) && bitnet_seq_length(c, 0) == 0) return 1;
    test_fail(__FILE__, __LINE__, "%d instead of %d, '%s': '%s'", (int)got, (int)r, says, err.text);
    return 0;
}

static void test_embed_errors(void) {
    const embed_model *e = &embed_models[0];
    bitnet_embed_input in[N_TEXTS];
    bitnet_embed_params how;
    bitnet_generate_params gen;
    bitnet_token bad = 1 << 20;
    bitnet_ctx_params p = ctx_params(128, 16, 1, BITNET_KV_F16);
    float *out, *logits;
    uint64_t seen = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_model_info info;
    bitnet_result r;
    bitnet_model *m;
    bitnet_ctx *c;
    size_t size;
    void *data;
    int ok;
    NEED_MODEL(e);
    data = embed_read(e, ".gguf", &size);
    m = load(data, size, 0);
    p.n_seqs = 2;
    c = create(m, &p);
    out = (float *)gb_malloc(N_TEXTS * (size_t)e->dim * sizeof *out);
    make_texts(in, m->n_vocab);
    memset(&how, 0, sizeof how);
    how.pooling = (bitnet_pooling)7;
    ok = fails_as(c, in, 1, &how, out, BITNET_ERR_ARG, "pooling 7");
    how.pooling = BITNET_POOLING_MODEL;
    m->pooling = 0;
    ok = fails_as(c, in, 1, &how, out, BITNET_ERR_ARG, "pooling_type") && ok;
    m->pooling = BITNET_POOLING_LAST;
    ok = fails_as(c, in, 1, &how, 0, BITNET_ERR_ARG, "out is 0") && ok;
    in[2].tokens = &bad;
    in[2].n_tokens = 1;
    ok = fails_as(c, in, 3, &how, out, BITNET_ERR_ARG, "input 2: token 1048576") && ok;
    in[2].n_tokens = 0;
    ok = fails_as(c, in, 3, &how, out, BITNET_ERR_ARG, "input 2: ") && ok;
    make_texts(in, m->n_vocab);
    how.progress_fn = stop_at_once;
    how.progress_ud = &seen;
    ok = fails_as(c, in, N_TEXTS, &how, out, BITNET_ERR_CANCELLED, "of 9 inputs") && ok;
    how.progress_fn = 0;
    ok = bitnet_embed(c, in, N_TEXTS, &how, out, 0) == BITNET_OK && ok;
    ok = bitnet_embed(c, in, 0, &how, 0, 0) == BITNET_OK && ok;
    ok = bitnet_eval(c, 0, text_tokens[1], 3, 1, 0) == BITNET_OK && ok;
    r = bitnet_embed(c, in, 1, &how, out, &err);
    bitnet_model_get_info(m, &info);
    logits = (float *)calloc((size_t)info.n_vocab, sizeof *logits);
    CHECK(r == BITNET_ERR_ARG && strstr(err.text, "sequence 0"));
    CHECK(!bitnet_logits(c, -1, &err) && err.code == BITNET_ERR_UNSUPPORTED &&
          bitnet_sample(c, -1, 0, NULL) == BITNET_ERR_UNSUPPORTED &&
          bitnet_sample_logits(c, logits, 0, 0, 0, NULL) == BITNET_ERR_UNSUPPORTED);
    free(logits);
    memset(&gen, 0, sizeof gen);
    gen.text = text_of("Once");
    r = bitnet_generate(c, &gen, 0, &err);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    free(data);
    free(out);
    CHECK(ok && seen == N_TEXTS + 1000 * 1);
    CHECK_MSG(r == BITNET_ERR_UNSUPPORTED && strstr(err.text, "no output head"), "%s", err.text);
    CHECK(!info.has_head && info.add_eos && !info.add_bos && info.pooling == BITNET_POOLING_LAST);
    CHECK(!strcmp(info.head_type, "none") && info.head_bytes == 0 && info.head_copy_bytes == 0);
}

/* A file whose tensor names are changed one by one: what is missing or extra is named. */
static void test_embed_tensors(void) {
    static const char *const names[] = {
        "blk.0.attn_q_norm_in.weight", "blk.1.ffn_down_norm_in.weight", "blk.2.attn_k_norm.weight",
        "blk.6.post_ffw_norm.weight", "blk.3.post_attention_norm.weight", "output_norm.weight"
    };
    const embed_model *e = &embed_models[1];
    uint8_t *data;
    size_t size, i, k;
    int missing = 1, extra = 1;
    NEED_MODEL(e);
    data = (uint8_t *)embed_read(e, ".gguf", &size);
    for (i = 0; i < sizeof names / sizeof names[0] && missing; i++) {
        const size_t n = strlen(names[i]);
        bitnet_model *m = 0;
        bitnet_error err = {BITNET_OK, "", {0}};
        for (k = 0; k + n < size && memcmp(data + k, names[i], n); k++) {}
        data[k + n - 1] = 'T';         /* "...weighT": one is missing, and one is extra */
        missing = bitnet_model_load_memory(data, size, 0, &m, &err) == BITNET_ERR_FORMAT &&
                  strstr(err.text, names[i]) != 0;
        if (!missing) test_fail(__FILE__, __LINE__, "%s: %s", names[i], err.text);
        data[k + n - 1] = 't';
        bitnet_model_free(m);
    }
    free(data);
    data = (uint8_t *)embed_read(&embed_models[0], ".gguf", &size);
    {                                  /* three layers in a file that says two */
        bitnet_model *m = 0;
        bitnet_error err = {BITNET_OK, "", {0}};
        for (k = 0; k + 17 < size && memcmp(data + k, "qwen3.block_count", 17); k++) {}
        data[k + 17 + 4] = 2;
        extra = bitnet_model_load_memory(data, size, 0, &m, &err) == BITNET_ERR_UNSUPPORTED &&
                strstr(err.text, "blk.2.") != 0;
        if (!extra) test_fail(__FILE__, __LINE__, "extra: %s", err.text);
        bitnet_model_free(m);
    }
    free(data);
    CHECK(missing && extra);
}

/* Each allocation of bitnet_embed fails once. */
static void test_embed_memory(void) {
    const embed_model *e = &embed_models[2];
    bitnet_embed_input in[N_TEXTS];
    bitnet_embed_params how;
    bitnet_model_params mp;
    bitnet_ctx_params p = ctx_params(128, 64, 1, BITNET_KV_F16);
    gb_counter counter;
    bitnet_model *m = 0;
    bitnet_ctx *c = 0;
    float *out;
    size_t size;
    void *data;
    int at, ok = 1, failures = 0;
    NEED_MODEL(e);
    data = embed_read(e, ".gguf", &size);
    out = (float *)gb_malloc(N_TEXTS * (size_t)e->dim * sizeof *out);
    memset(&mp, 0, sizeof mp);
    mp.allocator = gb_counting(&counter);
    memset(&how, 0, sizeof how);
    how.pooling = BITNET_POOLING_MEAN;
    p.n_seqs = 3;
    if (bitnet_model_load_memory(data, size, &mp, &m, 0) == BITNET_OK &&
        bitnet_ctx_create(m, &p, &c, 0) == BITNET_OK) {
        make_texts(in, m->n_vocab);
        in[3].text = text_of("some text, which is tokenized, with wordsthatareverylong");
        for (at = 0; ok; at++) {
            bitnet_error err = {BITNET_OK, "", {0}};
            bitnet_result r;
            counter.fail_at = counter.calls + at;
            r = bitnet_embed(c, in, N_TEXTS, &how, out, &err);
            counter.fail_at = -1;
            if (r == BITNET_OK) break;
            failures++;
            ok = r == BITNET_ERR_MEMORY && err.text[0];
        }
        ok = ok && bitnet_embed(c, in, N_TEXTS, &how, out, 0) == BITNET_OK;
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    free(out);
    free(data);
    CHECK(ok && failures >= 3 && counter.live == 0);
}

/* ---- packed vectors ---- */

/* Every element against the definition in the manual, and the cosine against a sum in double. */
static void test_embed_vectors(void) {
    static const int all[] = {8, 4, 2, 1};
    enum { N = 67 };
    float x[2][N];
    uint8_t packed[2][N];
    uint64_t seed = 3;
    int b, i, v;
    for (v = 0; v < 2; v++)
        for (i = 0; i < N; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            x[v][i] = (float)((double)(seed >> 40) / 8388608.0 - 1.0) * (i % 11 ? 1.0f : 4.0f);
        }
    x[0][5] = 0;
    for (b = 0; b < 4; b++) {
        const int bits = all[b], top = (1 << bits) - 1;
        double levels[2][N], dot = 0, aa = 0, bb = 0, got;
        for (v = 0; v < 2; v++) {
            double rms = 0, most = 0;
            for (i = 0; i < N; i++) {
                rms += (double)x[v][i] * (double)x[v][i] / N;
                if (fabs((double)x[v][i]) > most) most = fabs((double)x[v][i]);
            }
            rms = sqrt(rms);
            CHECK(bits_pack(x[v], N, bits, packed[v]));
            for (i = 0; i < N; i++) {
                const int code = packed[v][i * bits / 8] >> (i * bits % 8) & top;
                const double step = rms * (bits == 4 ? 0.3352 : 0.9957);
                double want = 2 * floor((double)x[v][i] / step) + 1;
                double is = bits == 8 ? (double)(int8_t)packed[v][i] : 2.0 * code - top;
                if (bits == 8) want = nearbyint((double)x[v][i] * (127 / most));
                else if (bits == 1) want = x[v][i] >= 0 ? 1 : -1;
                else want = want > top ? top : want < -top ? -top : want;
                CHECK_MSG(is == want, "%d bits, element %d: %g for %g", bits, i, is, want);
                levels[v][i] = is;
            }
        }
        for (i = 0; i < N; i++) {
            dot += levels[0][i] * levels[1][i];
            aa += levels[0][i] * levels[0][i];
            bb += levels[1][i] * levels[1][i];
        }
        got = bits_cosine(packed[0], packed[1], N, bits);
        CHECK_MSG(fabs(got - dot / sqrt(aa * bb)) < 1e-14, "%d bits: %g", bits, got);
        CHECK(fabs(bits_cosine(packed[0], packed[0], N, bits) - 1) < 1e-14);
        CHECK(bits_bytes(N, bits) == (size_t)(N * bits + 7) / 8);
    }
    memset(x[0], 0, sizeof x[0]);
    CHECK(bits_pack(x[0], N, 8, packed[0]));
    CHECK(bits_cosine(packed[0], packed[1], N, 8) == 0);
    x[0][3] = INFINITY;
    CHECK(!bits_pack(x[0], N, 4, packed[0]));
    CHECK(!bits_pack(x[1], N, 3, packed[0]));
    CHECK(!bits_pack(x[1], 0, 8, packed[0]));
    CHECK(bits_bytes(1 << 20, 1) == 1 << 17 && bits_bytes((1 << 20) + 1, 1) == 0);
    for (b = 0; b < 5; b++) {
        static const int none[] = {0, -1, 3, 5, 16};
        CHECK(bits_bytes(N, none[b]) == 0 && bits_bytes(-b, 8) == 0);
    }
}

const test_case embed_tests[] = {
    {"embed/q", test_embed_q},
    {"embed/g", test_embed_g},
    {"embed/gw", test_embed_gw},
    {"embed/packing", test_embed_packing},
    {"embed/slides", test_embed_slides},
    {"embed/hidden", test_embed_hidden},
    {"embed/slide_keys", test_embed_slide_keys},
    {"embed/pooling", test_embed_pooling},
    {"embed/text", test_embed_text},
    {"embed/waits", test_embed_waits},
    {"embed/errors", test_embed_errors},
    {"embed/tensors", test_embed_tensors},
    {"embed/memory", test_embed_memory},
    {"embed/vectors", test_embed_vectors},
    {0, 0}
};
