/* An int8 cache in a model: how far attention is from that with F32, with a bound for each way to
   be wrong; the same bits whatever computes them, over several blocks of 64 positions; what a block
   held before does not matter. test_kernels.c tests the kernels; the tests of models, sequences and
   saved sequences go through all kinds of caches. */
#include "model_helpers.h"
#include "test.h"

enum { I8_TOKENS = 200 };

/* ---- how close ---- */

/* What attention gives in the only layer, before anything else: [I8_TOKENS][q_dim]. factor changes
   the scale of scores. */
static float *attention_of(bitnet_model *m, bitnet_kv_type kv, double factor) {
    bitnet_ctx_params p = ctx_params(I8_TOKENS, I8_TOKENS, 1, kv);
    bitnet_ctx *c = create(m, &p);
    const size_t n = I8_TOKENS * (size_t)m->q_dim;
    bitnet_token tokens[I8_TOKENS];
    float *out = 0, scale = m->score_scale;
    uint64_t seed = 5;
    int i;
    for (i = 0; i < I8_TOKENS; i++)
        tokens[i] = (bitnet_token)(gb_random(&seed) % (uint32_t)m->n_vocab);
    m->score_scale = (float)((double)scale * factor);
    if (c && !bitnet_eval(c, 0, tokens, I8_TOKENS, I8_TOKENS ? I8_TOKENS : 1, 0)) {
        out = (float *)gb_malloc(n * sizeof *out);
        memcpy(out, c->o, n * sizeof *out);
    }
    m->score_scale = scale;
    bitnet_ctx_free(c);
    return out;
}

static double product(const float *a, const float *b, size_t n) {
    double sum = 0;
    size_t i;
    for (i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* A code of a head's numbers is off by up to half a step, evenly: by step / sqrt(12) in the root
   mean square, where step is the largest number / 127. In these heads of 64 the largest number is
   2 to 3.5 times the root mean square r, so codes are off by d = 0.5 % to 0.8 % of r. Each of query
   and key moves a score by d of what scores are, here up to about 1: sqrt(2) d. Each value is off
   by d, each weight by 1 / 127 / sqrt(12) of the block's largest, which is a few times the others:
   again about d. The four are independent: together 2.2 d, at most 1.8 %.

   These errors have no direction. So whatever is wrong by a factor shows long before: `values` is
   the part of the result along the right one, less 1; `scores` the part along what a larger scale
   of scores would change. Both are near 0, and near 1/127 if 127 should have been 128 somewhere. */
static void test_error(void) {
    gb_model g = {.dim = 256, .ffn = 128, .layers = 1, .heads = 4, .kv_heads = 2,
                  .n_ctx = I8_TOKENS, .embed_type = GB_TENSOR_F16, .seed = 31};
    const double step = 1.0 / 64;
    bitnet_model *m;
    float *want, *got, *more, *half;
    double values = 1, scores = 1, error = 1, half_error = 1;
    size_t i, n;
    gb_make_model(&g);
    m = load(g.data, g.size, 0);
    CHECK(m);
    n = I8_TOKENS * (size_t)m->q_dim;
    want = attention_of(m, BITNET_KV_F32, 1);
    half = attention_of(m, BITNET_KV_F16, 1);
    got = attention_of(m, BITNET_KV_I8, 1);
    more = attention_of(m, BITNET_KV_F32, 1 + step);
    if (want && got && more && half) {
        error = nrmse(got, want, n);
        half_error = nrmse(half, want, n);
        values = product(got, want, n) / product(want, want, n) - 1;
        for (i = 0; i < n; i++) {
            more[i] = (more[i] - want[i]) * 64.0f;
            got[i] -= want[i];
        }
        scores = product(got, more, n) / product(more, more, n);
    }
    free(want);
    free(got);
    free(more);
    free(half);
    bitnet_model_free(m);
    gb_free_model(&g);
    CHECK_MSG(error <= 1.8e-2, "NRMSE %.3g", error);
    CHECK_MSG(error > half_error, "NRMSE %.3g, that of F16 is %.3g", error, half_error);
    CHECK_MSG(fabs(values) < 2e-3, "values are off by the factor 1 + %.3g", values);
    CHECK_MSG(fabs(scores) < 2e-3, "scores are off by the factor 1 + %.3g", scores);
}

/* What is saved of one layer's keys and values, in two types: header and tokens, then for each head
   keys and values of all positions. Keys' codes are bytes less 128. */
static void test_codes(void) {
    enum { N = 100, HEAD = 64, HEADS = 2 };
    gb_model g = {.dim = 256, .ffn = 128, .layers = 1, .heads = 4, .kv_heads = HEADS, .seed = 32};
    bitnet_token tokens[N];
    uint8_t *file[2] = {0, 0}, *p, *f;
    size_t size[2] = {0, 0};
    bitnet_model *m;
    double worst = 0;
    int kv, i, row, wrong = -1, written = 0;
    gb_make_model(&g);
    m = load(g.data, g.size, 0);
    for (i = 0; i < N; i++) tokens[i] = (bitnet_token)(i * 37 % g.n_vocab);
    for (kv = 0; kv < 2; kv++) {
        bitnet_ctx_params params = ctx_params(N, 0, 1, kv ? BITNET_KV_I8 : BITNET_KV_F32);
        bitnet_ctx *c = create(m, &params);
        if (c && !bitnet_eval(c, 0, tokens, N, 1, 0)) {
            size[kv] = (size_t)bitnet_seq_state_bytes(c, 0);
            file[kv] = (uint8_t *)gb_malloc(size[kv]);
            written += bitnet_seq_save_memory(c, 0, file[kv], size[kv], 0) == BITNET_OK;
        }
        bitnet_ctx_free(c);
    }
    if (written == 2 && size[0] == 52 + N * (4 + 4 * HEADS * 2 * HEAD) &&
        size[1] == 52 + N * (4 + HEADS * 2 * (4 + HEAD))) {
        f = file[0] + 44 + 4 * N;
        p = file[1] + 44 + 4 * N;
        for (row = 0; row < 2 * HEADS * N; row++, f += 4 * HEAD, p += 4 + HEAD) {
            const double step = (double)bitnet__load_f32(p);
            double top = 0;
            for (i = 0; i < HEAD; i++) {
                const int code = row / N % 2 ? (int8_t)p[4 + i] : p[4 + i] - 128;
                const double x = (double)bitnet__load_f32(f + 4 * i), off = fabs(code * step - x);
                if (fabs(x) > top) top = fabs(x);
                if (off / step > worst) worst = off / step;
            }
            if (fabs(step / (top / 127) - 1) > 1e-6) wrong = row;
        }
    } else wrong = 0;
    free(file[0]);
    free(file[1]);
    bitnet_model_free(m);
    gb_free_model(&g);
    CHECK_MSG(wrong < 0, "row %d: its step is not its largest number / 127", wrong);
    CHECK_MSG(worst <= 0.5001 && worst > 0.49, "a code is off by %g steps", worst);
}

/* ---- the same bits ---- */

static void random_tokens(bitnet_token *tokens, int n, int n_vocab, uint64_t seed) {
    int i;
    for (i = 0; i < n; i++) tokens[i] = (bitnet_token)(gb_random(&seed) % (uint32_t)n_vocab);
}

/* Heads of 256 and of 20; several queries for a key, and one; pairs that are adjacent; heads that
   are rotated in part. 150 positions are two blocks and a part. */
static const gb_model i8_models[] = {
    {.dim = 128, .ffn = 128, .layers = 2, .heads = 2, .kv_heads = 1, .head_dim = 256, .seed = 41},
    {.dim = 160, .ffn = 128, .layers = 2, .heads = 8, .kv_heads = 2, .seed = 42},
    {.arch = "llama", .dim = 128, .ffn = 128, .layers = 2, .heads = 2, .kv_heads = 2, .eps = 1e-5f,
     .no_sub_norms = 1, .seed = 43},
    {.dim = 144, .ffn = 128, .layers = 1, .heads = 4, .kv_heads = 4, .n_rot = 18, .seed = 44}
};

/* A table has 15 ways to split the work: one of them for tables in plain C, which are slow. */
static void test_same_bits(void) {
    enum { N = 150 };
    static const int batches[][2] = {{1, 1}, {7, 150}, {64, 64}, {0, 100}, {0, 150}};
    size_t i;
    int k, t, b, turn = 0, every;
    for (i = 0; i < sizeof i8_models / sizeof i8_models[0]; i++) {
        gb_model g = i8_models[i];
        bitnet_ctx_params p = ctx_params(N, 0, 1, BITNET_KV_I8);
        bitnet_token tokens[N];
        float *want;
        int ok;
        gb_make_model(&g);
        random_tokens(tokens, N, g.n_vocab, 45 + i);
        want = logits_of(g.data, g.size, &bitnet__kernels_scalar, &p, tokens, N, N);
        ok = want != 0;
        for (k = 0; k < bitnet_kernels_count() && ok; k++)
            for (t = 1; t <= 3 && ok && bitnet_kernels_usable(bitnet_kernels_get(k)); t++)
                for (b = 0; b < 5 && ok; b++, turn++) {
                    const variant v = {bitnet_kernels_get(k), t, batches[b][0], batches[b][1], 0};
                    every = !v.kernels->needs ? 15 : test_quick() ? 8 : 2;
                    if ((turn + 4 * (k + (int)i)) % every) continue;
                    ok = same_logits(g.data, g.size, &v, BITNET_KV_I8, tokens, N, g.n_vocab, want);
                }
        free(want);
        gb_free_model(&g);
    }
}

/* ---- what was there before ---- */

static int logits_like(bitnet_ctx *c, const bitnet_token *tokens, int from, int n,
                       const float *want) {
    const size_t n_vocab = (size_t)c->m->n_vocab;
    float *got = (float *)gb_malloc((size_t)n * n_vocab * sizeof *got);
    const int same = all_logits(c, tokens + from, n - from, 50, got) &&
                     !memcmp(got, want + (size_t)from * n_vocab,
                             (size_t)(n - from) * n_vocab * sizeof *got);
    free(got);
    return same;
}

/* All bytes of the first sequence's pages from position `from` on become 0xff: steps that are NaN,
   codes that are -1 or 127. Returns 0 if it is not alone. */
static void spoil(bitnet_ctx *c, int from) {
    const size_t size = (size_t)bitnet__page_bytes(c->m, &c->p);
    int i;
    for (i = 0; i < c->seqs[0].n_pages; i++)
        if (i * c->page_len >= from) memset((uint8_t *)c->seqs[0].pages[i] + 64, 0xff, size - 64);
}

/* A text after a rewind is the text alone, whether the rest of the block has another text's keys or
   bytes that are no numbers. */
static void test_stale(void) {
    enum { N = 150 };
    static const int kept[] = {0, 1, 63, 64, 65, 100, 128, 149};
    gb_model g = i8_models[1];
    bitnet_ctx_params p = ctx_params(N, 0, 1, BITNET_KV_I8);
    bitnet_token tokens[N], others[N];
    bitnet_model *m;
    float *want;
    int seqs, bad = -1;
    size_t i;
    gb_make_model(&g);
    random_tokens(tokens, N, g.n_vocab, 51);
    random_tokens(others, N, g.n_vocab, 52);
    m = load(g.data, g.size, 0);
    want = logits_of(g.data, g.size, 0, &p, tokens, N, N);
    for (seqs = 1; seqs <= 2 && m && want; seqs++) {
        bitnet_ctx *c;
        p.n_seqs = seqs;
        c = create(m, &p);
        if (!c || bitnet_eval(c, 0, tokens, N, 1, 0)) bad = 1000;
        for (i = 0; i < sizeof kept / sizeof kept[0] && bad < 0; i++) {
            const int n = kept[i];
            if (bitnet_seq_rewind(c, 0, n, NULL) || bitnet_eval(c, 0, others + n, N - n, 1, 0) ||
                bitnet_seq_rewind(c, 0, n, NULL) || !logits_like(c, tokens, n, N, want)) bad = n;
        }
        if (bad < 0 && (bitnet_seq_rewind(c, 0, 0, NULL) || bitnet_eval(c, 0, tokens, N, 1, 0)))
            bad = 1001;
        if (bad < 0) {                 /* the pages are there, and the text is not */
            spoil(c, 0);
            c->seqs[0].n_past = 0;
            if (!logits_like(c, tokens, 0, N, want)) bad = 1002;
        }
        bitnet_ctx_free(c);
    }
    free(want);
    bitnet_model_free(m);
    gb_free_model(&g);
    CHECK_MSG(bad < 0, "after %d positions are kept", bad);
}

/* A copy shares pages, and what is written to either is not seen by the other. */
static void test_copies(void) {
    enum { N = 150 };
    static const int at[] = {1, 63, 64, 65, 127, 128, 140};
    gb_model g = i8_models[0];
    bitnet_ctx_params p = ctx_params(N, 0, 2, BITNET_KV_I8);
    bitnet_token texts[2][N];
    bitnet_input in[2];
    bitnet_model *m;
    float *want[2];
    int s, bad = 0;
    size_t i;
    gb_make_model(&g);
    for (s = 0; s < 2; s++) random_tokens(texts[s], N, g.n_vocab, 61 + (uint64_t)s);
    m = load(g.data, g.size, 0);
    for (i = 0; i < sizeof at / sizeof at[0] && m && !bad; i++) {
        bitnet_ctx *c;
        p.n_seqs = 1;
        memcpy(texts[1], texts[0], (size_t)at[i] * sizeof **texts);
        for (s = 0; s < 2; s++) want[s] = logits_of(g.data, g.size, 0, &p, texts[s], N, N);
        p.n_seqs = 2;
        c = create(m, &p);
        if (!c || bitnet_eval(c, 0, texts[0], at[i], 1, 0) ||
            bitnet_seq_copy(c, 0, 1, at[i], NULL)) bad = 1;
        memset(in, 0, sizeof in);
        for (s = 0; s < 2; s++) {      /* side by side */
            in[s].seq = s;
            in[s].tokens = texts[s] + at[i];
            in[s].n_tokens = N - at[i];
            in[s].n_logits = 1;
        }
        if (!bad && bitnet_eval_many(c, in, 2, 0)) bad = 2;
        for (s = 0; s < 2 && !bad && want[s]; s++)
            if (memcmp(bitnet_logits(c, in[s].row, NULL),
                       want[s] + (size_t)(N - 1) * (size_t)g.n_vocab, (size_t)g.n_vocab * 4))
                bad = 3 + s;
        bitnet_ctx_free(c);
        free(want[0]);
        free(want[1]);
        CHECK_MSG(!bad, "copied at %d: check %d", at[i], bad);
    }
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- what it takes, and what it does not take ---- */

static void test_sizes(void) {
    static const struct { int head_dim, ok; } cases[] = {
        {6, 0}, {10, 0}, {4, 1}, {12, 1}, {256, 1}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gb_model g = {.dim = 128, .ffn = 128, .layers = 3, .heads = 64, .kv_heads = 16, .seed = 71};
        bitnet_ctx_params p = ctx_params(1024, 1, 1, BITNET_KV_I8);
        bitnet_model *m;
        bitnet_ctx *c = 0;
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet_result r;
        uint64_t more = 0;
        g.head_dim = cases[i].head_dim;
        gb_make_model(&g);
        m = load(g.data, g.size, 0);
        r = m ? bitnet_ctx_create(m, &p, &c, &err) : BITNET_ERR_ARG;
        if (cases[i].ok && m) {        /* 1024 positions more */
            more = bitnet__page_bytes(m, &p);
            p.n_ctx = 2048;
            more = bitnet__page_bytes(m, &p) - more;
        }
        bitnet_ctx_free(c);
        bitnet_model_free(m);
        gb_free_model(&g);
        if (cases[i].ok)
            CHECK_MSG(r == BITNET_OK && more == 1024u * 2 * 3 * 16 * (unsigned)(g.head_dim + 4),
                      "heads of %d: %s, %lu bytes", g.head_dim, err.text, (unsigned long)more);
        else
            CHECK_MSG(r == BITNET_ERR_UNSUPPORTED && strstr(err.text, "BITNET_KV_I8") &&
                      strstr(err.text, g.head_dim == 6 ? "is 6" : "is 10"), "heads of %d: %d '%s'",
                      g.head_dim, (int)r, err.text);
    }
}

extern const test_case kv_i8_tests[];
const test_case kv_i8_tests[] = {
    {"kv_i8/error", test_error},
    {"kv_i8/codes", test_codes},
    {"kv_i8/same_bits", test_same_bits},
    {"kv_i8/stale", test_stale},
    {"kv_i8/copies", test_copies},
    {"kv_i8/sizes", test_sizes},
    {0, 0}
};
