/* Text and the choice of tokens: the public tokenizing functions, the chat template, the sampler
   against a sort-based second one, and bitnet_generate on a model whose every next token the test
   decides. */

#include "vocab_helpers.h"

/* ---- helpers ---- */

/* ---- tokenize, detokenize, find ---- */

static void test_tokenize(void) {
    static const char text[] = "hello hell w\xC3\xA9\xFF<|eot_id|>";
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_token all[64], part[64];
    int flags, i, n;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    for (flags = 0; flags < 4; flags++) {
        size_t cap;
        n = bitnet_tokenize(m, text, sizeof text - 1, flags, all, 64);
        CHECK(n > 0 && n < 64);
        CHECK(bitnet_tokenize(m, text, sizeof text - 1, flags, 0, 0) == n);
        CHECK(bitnet_tokenize(m, text, sizeof text - 1, flags, 0, 64) == n);
        CHECK((all[0] == g.bos) == ((flags & BITNET_ADD_BOS) != 0));
        CHECK((all[n - 1] == g.eot) == ((flags & BITNET_PARSE_SPECIAL) != 0));
        for (i = 0; i < n - 1; i++) CHECK(all[i] != g.eot && (i == 0 || all[i] != g.bos));
        for (cap = 0; cap < 64; cap++) {
            memset(part, 0x55, sizeof part);
            CHECK(bitnet_tokenize(m, text, sizeof text - 1, flags, part, cap) == n);
            for (i = 0; i < 64; i++)
                CHECK(part[i] == ((size_t)i < cap && i < n ? all[i] : 0x55555555));
        }
    }
    /* the pieces "hello", " hell" (no token: merged) and " w" with the accented e */
    n = bitnet_tokenize(m, text, 14, BITNET_ADD_BOS, all, 64);
    CHECK(n == 7 && all[0] == g.bos && all[1] == 259 && all[2] == ' ' && all[3] == 258 &&
          all[4] == 260);
    CHECK(all[5] == 0xC3 && all[6] == 0xA9);               /* a token, but no merge makes it */
    CHECK(bitnet_tokenize(m, "\xC3\xA9", 2, 0, all, 64) == 1 && all[0] == 261);
    CHECK(bitnet_tokenize(m, "\xFF", 1, 0, all, 64) == 1 && all[0] == 255);
    CHECK(bitnet_tokenize(m, "a\0b", 3, 0, all, 64) == 3 && all[1] == 0 && all[2] == 'b');
    CHECK(bitnet_tokenize(m, "", 0, 0, all, 64) == 0 && bitnet_tokenize(m, 0, 0, 0, all, 64) == 0);
    CHECK(bitnet_tokenize(m, "", 0, BITNET_ADD_BOS, all, 64) == 1 && all[0] == g.bos);
    CHECK(bitnet_tokenize(m, 0, 5, 0, all, 64) == BITNET_ERR_ARG);
    bitnet_model_free(m);
    gb_free_model(&g);
    memset(&g, 0, sizeof g);
    g = word_model();                                      /* a vocabulary without BOS: no BOS */
    g.no_specials = 1;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m && bitnet_tokenize(m, "h", 1, BITNET_ADD_BOS, all, 64) == 1 && all[0] == 'h');
    bitnet_model_free(m);
    gb_free_model(&g);
}

static void test_detokenize(void) {
    static const char want[] = "hello w\xC3\xA9\xE2\x82\xAC<|eot_id|>!";
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_token t[8];
    char buf[64];
    size_t cap, i, n = sizeof want - 1;
    g.spare_rows = 3;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    t[0] = 259, t[1] = 260, t[2] = 261, t[3] = 262, t[4] = 0xAC, t[5] = g.eot, t[6] = '!';
    for (cap = 0; cap < sizeof buf; cap++) {
        memset(buf, '#', sizeof buf);
        CHECK(bitnet_detokenize(m, t, 7, cap ? buf : 0, cap) == (int)n);
        for (i = 0; i < sizeof buf; i++) CHECK(buf[i] == (i < cap && i < n ? want[i] : '#'));
    }
    CHECK(bitnet_detokenize(m, t, 0, buf, 64) == 0 && bitnet_detokenize(m, 0, 0, 0, 0) == 0);
    t[1] = g.n_vocab;
    CHECK(bitnet_detokenize(m, t, 2, buf, 64) == BITNET_ERR_ARG);
    t[1] = -1;
    CHECK(bitnet_detokenize(m, t, 2, buf, 64) == BITNET_ERR_ARG);
    t[1] = g.n_vocab - 1;                                  /* a row of the head that has no text */
    CHECK(bitnet_detokenize(m, t, 2, buf, 64) == 5);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* The stream: whole code points, U+FFFD for what cannot be one, nothing for control tokens. */
static void test_detok_push(void) {
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_detok d = {0};
    char buf[64];
    g.spare_rows = 3;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
#define PUSH(t, text)                                                                            \
    do {                                                                                         \
        size_t n_text = strlen(text);                                                            \
        memset(buf, '#', sizeof buf);                                                            \
        CHECK_MSG(bitnet_detok_push(m, &d, (t), buf, 60) == (int)n_text &&                       \
                      !memcmp(buf, text, n_text),                                                \
                  "token %d", (int)(t));                                                         \
        CHECK(buf[60] == '#');                                                                   \
    } while (0)
    PUSH(259, "hello");
    PUSH(0xE2, "");
    PUSH(0x82, "");
    PUSH(0xAC, "\xE2\x82\xAC");
    PUSH(262, ""); /* the first two bytes of the euro sign */
    PUSH(0xAC, "\xE2\x82\xAC");
    PUSH(262, "");
    PUSH(g.eot, "\xEF\xBF\xBD");                           /* a control token ends it */
    PUSH(g.eot, "");
    PUSH(262, "");
    PUSH(g.n_vocab - 1, "\xEF\xBF\xBD");                   /* so does one without text */
    PUSH(262, "");
    PUSH('x', "\xEF\xBF\xBDx");
    PUSH(0xFF, "\xEF\xBF\xBD");
    PUSH(0xF0, "");
    PUSH(-1, "\xEF\xBF\xBD");                              /* the end */
    PUSH(-1, "");
    CHECK(bitnet_detok_push(m, &d, g.n_vocab, buf, 60) == BITNET_ERR_ARG);
    CHECK(bitnet_detok_push(m, &d, -2, buf, 60) == BITNET_ERR_ARG);
    CHECK(bitnet_detok_push(m, &d, 259, buf, 17) == BITNET_ERR_ARG);   /* 3 + 3 * 5 */
    CHECK(bitnet_detok_push(m, &d, 259, buf, 18) == 5);
    CHECK(bitnet_detok_push(m, &d, -1, buf, 2) == BITNET_ERR_ARG);
    bitnet_model_free(m);
    gb_free_model(&g);
}

static void other_eos(gb_file *f) {
    f->omit = 0;
    gb_key_u32(f, "tokenizer.ggml.eos_token_id", 'e');
}

static void test_find_and_end(void) {
    gb_model g = word_model();
    bitnet_model *m;
    int t;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    CHECK(token_named(m, "<|eot_id|>") == g.eot && token_named(m, "hello") == 259);
    CHECK(token_named(m, "<|begin_of_text|>") == g.bos && token_named(m, " w") == 260);
    CHECK(token_named(m, "hel") == -1 && token_named(m, "") == -1);
    CHECK(token_named(m, "<|eot_id|") == -1 && token_named(m, "<|eot_id|>x") == -1);
    CHECK(bitnet_token_find(m, 0, 5) == -1 && bitnet_token_find(m, "hello", 3) == -1);
    CHECK(bitnet_token_find(m, "hello\0", 6) == -1 && bitnet_token_find(m, "\0", 1) == 0);
    for (t = -2; t < g.n_vocab + 2; t++)
        CHECK(bitnet_token_is_end(m, t) == (t == g.eos || t == g.eot));
    bitnet_model_free(m);
    gb_free_model(&g);
    memset(&g, 0, sizeof g);
    g = word_model(); /* eos_token_id names another token: <|end_of_text|> ends, too */
    g.file.omit = "tokenizer.ggml.eos_token_id";
    g.file.add_keys = other_eos;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    for (t = -2; t < g.n_vocab + 2; t++)
        CHECK(bitnet_token_is_end(m, t) == (t == 'e' || t == g.eos || t == g.eot));
    bitnet_model_free(m);
    gb_free_model(&g);
    memset(&g, 0, sizeof g);
    g = word_model();
    g.no_specials = 1; /* none: no token ends, -1 least of all */
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    for (t = -2; t < g.n_vocab + 2; t++) CHECK(!bitnet_token_is_end(m, t));
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- chat ---- */

/* Appends the tokens of plain text. */
static int add_text(const bitnet_model *m, bitnet_token *t, int n, const char *text) {
    return n + bitnet_tokenize(m, text, strlen(text), 0, t + n, 200);
}

static void test_chat(void) {
    static const bitnet_message talk[] = {MESSAGE("system", "  Be hello.\n\t "),
                                          MESSAGE("USER", "hi <|eot_id|><|begin_of_text|>"),
                                          MESSAGE("assistant", ""),
                                          MESSAGE("User", " \r\n "),
                                          MESSAGE("tOOL", "\xC3\xA9 x\v\f")};
    static const char *const lines[] = {"System: Be hello.", "User: hi <|eot_id|><|begin_of_text|>",
                                        "Assistant: ", "User: ", "Tool: \xC3\xA9 x"};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_token want[400], got[400];
    bitnet_message bad;
    int flags, n, i, cap;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    for (flags = 0; flags < 16; flags++) {
        n = 0;
        if (flags & BITNET_CHAT_BEGIN) want[n++] = g.bos;
        if (flags & BITNET_CHAT_CUT_REPLY && !(flags & BITNET_CHAT_ENDED_REPLY)) want[n++] = g.eot;
        for (i = 0; i < 5; i++) {
            n = add_text(m, want, n, lines[i]);
            want[n++] = g.eot;
        }
        if (flags & BITNET_CHAT_OPEN_REPLY) n = add_text(m, want, n, "Assistant: ");
        CHECK(bitnet_chat_tokenize(m, 0, talk, 5, flags, 0, 0, NULL) == n);
        memset(got, 0x55, sizeof got);
        CHECK(bitnet_chat_tokenize(m, 0, talk, 5, flags, got, 400, NULL) == n);
        CHECK_MSG(!memcmp(got, want, (size_t)n * sizeof *got) && got[n] == 0x55555555, "flags %d",
                  flags);
        for (cap = 0; cap < n; cap += 3) {
            memset(got, 0x55, sizeof got);
            CHECK(bitnet_chat_tokenize(m, 0, talk, 5, flags, got, (size_t)cap, NULL) == n);
            CHECK(!memcmp(got, want, (size_t)cap * sizeof *got) && got[cap] == 0x55555555);
        }
    }
    CHECK(bitnet_chat_tokenize(m, 0, 0, 0, 0, got, 400, NULL) == 0);
    CHECK(bitnet_chat_tokenize(m, 0, 0, 0, BITNET_CHAT_BEGIN, got, 400, NULL) == 1 &&
          got[0] == g.bos);
    memset(&bad, 0, sizeof bad);
    bad.content = text_of("x");
    CHECK(bitnet_chat_tokenize(m, 0, &bad, 1, 0, got, 400, NULL) == BITNET_ERR_ARG);
    bad.role = text_of("");
    CHECK(bitnet_chat_tokenize(m, 0, &bad, 1, 0, got, 400, NULL) == BITNET_ERR_ARG);
    bad.role = text_of("user"), bad.content = text_of(0);
    CHECK(bitnet_chat_tokenize(m, 0, &bad, 1, 0, got, 400, NULL) == BITNET_ERR_ARG);
    bitnet_model_free(m);
    gb_free_model(&g);
    memset(&g, 0, sizeof g);
    g = word_model();
    g.no_specials = 1;
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m && bitnet_chat_tokenize(m, 0, talk, 2, 0, got, 400, NULL) == BITNET_ERR_UNSUPPORTED);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- sampler ---- */

enum { V = 256 + N_WORDS + 3 };
static const double infinite = HUGE_VAL;

/* Random logits; style 1: many ties; 2: some minus infinities and NaNs; 3: a wide range. */
static void random_logits(float *x, int style, uint64_t *seed) {
    int i;
    for (i = 0; i < V; i++) {
        x[i] = (float)gb_uniform(seed, -4.0, 4.0);
        if (style == 1) x[i] = (float)(gb_random(seed) % 5);
        if (style == 2 && gb_random(seed) % 3 == 0)
            x[i] = gb_random(seed) % 2 ? (float)-infinite : (float)(infinite - infinite);
        if (style == 3) x[i] *= 300.0f;
    }
}

typedef struct pick { double logit, p; int token, in; } pick;

static int pick_order(const void *a, const void *b) {
    const pick *x = (const pick *)a, *y = (const pick *)b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

/* The definition, by sorting: NaN counts as -inf; top-k; top-p and min-p on the softmax of the
   kept ones at temperature 1; then weights at the temperature. p is the probability of each
   token. Sums run best first, as the library's do where only the order of adding could change a
   cut. */
static void slow_sampler(const float *logits, const bitnet_sampler *s, double p[V]) {
    pick all[V];
    double total = 0, sum = 0;
    int i, kept = s->top_k > 0 && s->top_k < V ? s->top_k : V, n;
    for (i = 0; i < V; i++) {
        all[i].logit = logits[i] == logits[i] ? (double)logits[i] : -infinite;
        all[i].token = i;
        p[i] = 0;
    }
    qsort(all, V, sizeof all[0], pick_order);
    for (i = 0; i < V; i++) {
        all[i].p = all[i].logit == -infinite ? 0 : exp(all[i].logit - all[0].logit);
        if (i < kept) total += all[i].p;
    }
    for (n = 0; n < kept; n++) {
        if (n > 0 && s->min_p > 0 && all[n].p < (double)s->min_p) break;
        if (n > 0 && s->top_p > 0 && s->top_p < 1 && sum >= (double)s->top_p * total) break;
        sum += all[n].p;
    }
    for (i = 0, total = 0; i < n; i++) {
        all[i].p = all[i].logit == -infinite ? 0 :
                   exp((all[i].logit - all[0].logit) / (double)s->temperature);
        total += all[i].p;
    }
    for (i = 0; i < n; i++) p[all[i].token] = all[i].p / total;
}

static void test_greedy(void) {
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_sampler s;
    float x[V];
    uint64_t seed = 11;
    int round, i, best;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    CHECK(c && g.n_vocab == V);
    for (round = 0; round < 400; round++) {
        random_logits(x, round % 4, &seed);
        best = -1;
        for (i = 0; i < V; i++) if (x[i] == x[i] && (best < 0 || x[i] > x[best])) best = i;
        memset(&s, 0, sizeof s);
        s.rng = 42;
        s.top_p = 0.5f;
        s.temperature = round % 3 == 0   ? 0.0f
                        : round % 3 == 1 ? -1.0f
                                         : (float)(infinite - infinite);
        CHECK_MSG(bitnet_sample_logits(c, x, 0, 0, &s, NULL) == best, "round %d", round);
        CHECK(s.rng == 42);                                /* greedy draws nothing */
        s.temperature = 1.0f;
        s.top_k = 1;
        s.rng = (uint64_t)round;
        CHECK_MSG(bitnet_sample_logits(c, x, 0, 0, &s, NULL) == best, "top-k 1, round %d", round);
        s.top_k = 0;
        s.top_p = 1e-9f;
        CHECK_MSG(bitnet_sample_logits(c, x, 0, 0, &s, NULL) == best, "top-p 0, round %d", round);
        s.top_p = 0;
        s.min_p = 1.0f;
        if (round % 4 != 1)
            CHECK_MSG(bitnet_sample_logits(c, x, 0, 0, &s, NULL) == best, "min-p 1, round %d",
                      round);
    }
    for (i = 0; i < V; i++) x[i] = (float)-infinite;       /* nothing is left: the lowest id */
    CHECK(bitnet_sample_logits(c, x, 0, 0, &s, NULL) == 0);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* Draws with fixed seeds: only what the definition keeps, and as often as it says (chi-square
   over the tokens expected 5 times or more; the bound is 5 standard deviations). Each draw steps
   rng once. */
static void test_distribution(void) {
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    uint64_t seed = 12;
    const int draws = test_quick() ? 400 : 4000;
    int round, i, bad = 0;
    static int counts[V];
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    CHECK(c);
    for (round = 0; round < 40 && !bad; round++) {
        float x[V];
        double p[V], chi = 0, rest = 0, rest_count = 0;
        int cells = 0;
        bitnet_sampler s;
        uint64_t rng = (uint64_t)round * 1000;
        random_logits(x, round % 4, &seed);
        memset(&s, 0, sizeof s);
        s.rng = rng;
        s.temperature = round % 5 == 0 ? 1.0f : (float)gb_uniform(&seed, 0.3, 2.0);
        if (round & 1) s.top_k = 1 + (int32_t)(gb_random(&seed) % (round & 16 ? 8 : V + 20));
        if (round & 2) s.top_p = (float)gb_uniform(&seed, 0.05, 1.05);
        if (round & 4) s.min_p = (float)gb_uniform(&seed, 0.0, 0.3);
        slow_sampler(x, &s, p);
        memset(counts, 0, sizeof counts);
        for (i = 0; i < draws && !bad; i++) {
            int t = bitnet_sample_logits(c, x, 0, 0, &s, NULL);
            rng += 0x9e3779b97f4a7c15u;
            if (t < 0 || t >= V || s.rng != rng) bad = 1;
            else if (p[t] == 0) bad = 2;
            else counts[t]++;
        }
        for (i = 0; i < V; i++) {
            double expected = p[i] * draws, d = counts[i] - expected;
            if (expected >= 5) chi += d * d / expected, cells++;
            else rest += expected, rest_count += counts[i];
        }
        if (rest >= 5) chi += (rest_count - rest) * (rest_count - rest) / rest, cells++;
        if (!bad && cells > 1 && chi > cells - 1 + 5 * sqrt(2.0 * (cells - 1))) bad = 3;
        if (!bad && rest < 5 && rest_count > rest + 8 * sqrt(rest) + 8) bad = 4;
        if (bad)
            test_fail(__FILE__, __LINE__,
                      "round %d: %s (temperature %g, top_k %d, top_p %g, min_p %g; "
                      "chi-square %.1f of %d cells)",
                      round,
                      bad == 1   ? "no token, or rng"
                      : bad == 2 ? "a token that is cut off"
                                 : "other odds",
                      (double)s.temperature, (int)s.top_k, (double)s.top_p, (double)s.min_p, chi,
                      cells);
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

static void all_candidates(bitnet_ctx *c, const float *x) {
    int i;
    for (i = 0; i < V; i++) c->head->candidates[i].token = i, c->head->candidates[i].logit = x[i];
}

/* A sample that looks only at the largest logits, against one that looks at all of them: with a
   mask, bias and penalties that lift tokens and push them down, equal logits, NaN, infinities. */
static void test_few_candidates(void) {
    static const bitnet_token history[] = {5, 6, 5, 7, 5, 8};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    uint64_t seed = 23;
    int round, fewer = 0;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    CHECK(c && !bitnet_eval(c, 0, history, 6, 1, 0));
    for (round = 0; round < 6000; round++) {
        const bitnet__tokens before = bitnet__row_tokens(c, 0);
        bitnet_logit_bias bias[3];
        bitnet_sampler s, all;
        bitnet_token few, want;
        float x[V];
        int i, n = 0;
        random_logits(x, round % 4, &seed);
        for (i = 0; i < V && round % 5 == 0; i++) x[i] = floorf(x[i]); /* many are equal */
        for (i = 0; i < 3; i++) {
            bias[i].token = (int32_t)(gb_random(&seed) % (V + 2)) - 1;
            bias[i].bias = (float)gb_uniform(&seed, -20, 20);
        }
        memset(&s, 0, sizeof s);
        s.temperature = round % 7 ? 1.0f : 0.0f;
        s.top_k = 1 + (int32_t)(gb_random(&seed) % 20);
        s.rng = gb_random(&seed);
        s.bias = bias;
        s.n_bias = (int32_t)(gb_random(&seed) % 4);
        s.repeat_window = (int32_t)(gb_random(&seed) % 6) + 1;
        if (gb_random(&seed) % 2) s.top_p = (float)gb_uniform(&seed, 0.01, 0.999);
        if (gb_random(&seed) % 2) s.repeat_penalty = (float)gb_uniform(&seed, 0.2, 3.0);
        if (gb_random(&seed) % 2) s.presence_penalty = (float)gb_uniform(&seed, -9, 9);
        c->head->n_allowed = -1;
        memset(c->head->mask, 0, (V + 31) / 32 * 4);
        if (gb_random(&seed) % 2)
            for (i = c->head->n_allowed = 0; i < V; i++)
                if (gb_random(&seed) % 3 || (i == V - 1 && c->head->n_allowed == 0))
                    c->head->mask[i / 32] |= 1u << i % 32, c->head->n_allowed++;
        all = s;
        fewer += bitnet__fill_candidates(c, &s, before, x) < V / 2;
        few = bitnet__sample_logits(c, &s, before, x);
        for (i = 0; i < V; i++)
            if (bitnet__is_allowed(c, i))
                c->head->candidates[n].token = i, c->head->candidates[n++].logit = x[i];
        want = bitnet__sample_candidates(c, &all, before, n);
        CHECK_MSG(few == want && s.rng == all.rng, "round %d: token %d for %d", round, few, want);
    }
    CHECK_MSG(fewer > 2000, "only %d samples looked at few", fewer);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* The cut sets themselves, against sorting: which candidates bitnet__truncate keeps, best first. */
static void test_cut_sets(void) {
    const bitnet__tokens no_tokens = {0, 0};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    uint64_t seed = 13;
    int round;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    CHECK(c);
    for (round = 0; round < 3000; round++) {
        float x[V];
        double p[V];
        bitnet_sampler s;
        int i, kept, expected = 0, zero = 0;
        random_logits(x, round % 4, &seed);
        memset(&s, 0, sizeof s);
        s.temperature = 1.0f;
        if (gb_random(&seed) % 2) s.top_k = 1 + (int32_t)(gb_random(&seed) % (V + 3));
        if (gb_random(&seed) % 2) s.top_p = (float)gb_uniform(&seed, 0.01, 0.999);
        if (gb_random(&seed) % 2) s.min_p = (float)gb_uniform(&seed, 0.0001, 0.9);
        slow_sampler(x, &s, p);
        all_candidates(c, x);
        bitnet__adjust(c, &s, no_tokens, c->m->n_vocab);
        kept = bitnet__truncate(c->head->candidates, V, &s);
        CHECK(kept >= 1 && kept <= V);
        for (i = 0; i < kept; i++) {
            const bitnet__candidate *a = &c->head->candidates[V - 1 - i];
            CHECK(i == 0 || bitnet__candidate_before(0, a + 1, a));
            if (p[a->token] == 0) zero++;                  /* weight 0: cannot be drawn */
        }
        for (i = 0; i < V; i++) expected += p[i] > 0;
        CHECK_MSG(kept - zero == expected && (s.min_p <= 0 || !zero),
                  "round %d: %d kept, %d of them nothing, for %d", round, kept, zero, expected);
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* The sampler whose first draw after this state is the largest number below 1. SplitMix64 undone.
   */
static uint64_t state_before(uint64_t z) {
    int i;
    uint64_t inverse;
    z = z ^ z >> 31 ^ z >> 62;
    for (inverse = 1, i = 0; i < 6; i++) inverse *= 2 - 0x94d049bb133111ebu * inverse;
    z *= inverse;
    z = z ^ z >> 27 ^ z >> 54;
    for (inverse = 1, i = 0; i < 6; i++) inverse *= 2 - 0xbf58476d1ce4e5b9u * inverse;
    z *= inverse;
    z = z ^ z >> 30 ^ z >> 60;
    return z - 0x9e3779b97f4a7c15u;
}

/* The ends of [0, 1): a forbidden token is not drawn even if rounding leaves something over. */
static void test_extreme_draws(void) {
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    uint64_t seed = 14, low = state_before(0), high = state_before(UINT64_MAX), check;
    int round, bad = -1;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    CHECK(c);
    check = low;
    CHECK(bitnet__random(&check) == 0.0);
    check = high;
    CHECK(bitnet__random(&check) == 1.0 - 1.0 / 9007199254740992.0);
    for (round = 0; round < 2000; round++) {
        float x[V];
        int i, t;
        bitnet_sampler s;
        random_logits(x, 0, &seed);
        for (i = 0; i < 3; i++) x[i] = x[V - 1 - i] = (float)-infinite;
        memset(&s, 0, sizeof s);
        s.temperature = 0.7f;
        if (round % 3 == 1) s.top_k = V - 2;
        if (round % 3 == 2) s.min_p = 1e-30f, s.top_k = V - 1;
        s.rng = round % 2 ? low : high;
        t = bitnet_sample_logits(c, x, 0, 0, &s, NULL);
        if (t < 3 || t >= V - 3) bad = round;
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
    CHECK_MSG(bad < 0, "round %d draws a token of probability 0", bad);
}

/* The context's tokens get their penalty once each; the window counts from the end. */
static void test_repeat_penalty(void) {
    static const bitnet_token history[] = {5, 6, 5, 7, 5, 8};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_sampler s;
    float x[V];
    int i, window;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    CHECK(c && !bitnet_eval(c, 0, history, 6, 1, 0));
    for (window = -1; window <= 9; window++) {
        int from = window == 0 || window == -1 || window > 6 ? 0 : 6 - window;
        memset(&s, 0, sizeof s);
        s.repeat_penalty = 2.0f;
        s.repeat_window = window;
        for (i = 0; i < V; i++) x[i] = (float)(i % 2 ? i + 1 : -i - 1);
        x[6] = 0.0f;
        all_candidates(c, x);
        bitnet__adjust(c, &s, bitnet__row_tokens(c, 0), c->m->n_vocab);
        for (i = 0; i < V; i++) {
            int j, repeated = 0;
            float want;
            for (j = from; j < 6; j++) repeated |= history[j] == i;
            want = !repeated ? x[i] : x[i] > 0 ? x[i] / 2 : x[i] * 2;
            CHECK_MSG(c->head->candidates[i].logit == want && c->head->candidates[i].token == i,
                      "window %d, token %d", window, i);
        }
    }
    for (i = 0; i < 3; i++) { /* 0 and 1: off; a penalty under 1 favours */
        s.repeat_penalty = i == 0 ? 0.0f : i == 1 ? 1.0f : 0.5f;
        s.repeat_window = 0;
        for (window = 0; window < V; window++) x[window] = 1.0f;
        all_candidates(c, x);
        bitnet__adjust(c, &s, bitnet__row_tokens(c, 0), c->m->n_vocab);
        CHECK(c->head->candidates[5].logit == (i == 2 ? 2.0f : 1.0f) &&
              c->head->candidates[9].logit == 1.0f);
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

static void test_logit_bias(void) {
    const bitnet_token one = 1;
    bitnet_logit_bias bias[4] = {{7, 0}, {9, 0.25f}, {V, 100.0f}, {-1, 100.0f}};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_sampler s;
    float x[V];
    int i, t;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    CHECK(c && !bitnet_eval(c, 0, &one, 1, 1, 0));
    bias[0].bias = (float)-infinite;
    memset(&s, 0, sizeof s);
    s.bias = bias;
    s.n_bias = 4; /* ids outside the vocabulary do nothing */
    for (i = 0; i < V; i++) x[i] = 0.0f;
    x[7] = 50.0f;
    CHECK(bitnet_sample_logits(c, x, 0, 0, &s, NULL) == 9);
    s.temperature = 1.0f;
    for (i = 0; i < 3000; i++) {
        s.top_k = i % 3 == 1 ? V : 0;
        s.top_p = i % 3 == 2 ? 0.9999f : 0.0f;
        t = bitnet_sample_logits(c, x, 0, 0, &s, NULL);
        CHECK(t != 7 && t >= 0 && t < V);
    }
    s.repeat_penalty = 2.0f;                               /* a bias comes before the penalty */
    bias[0].token = 1;
    bias[0].bias = 3.0f;
    all_candidates(c, x);
    bitnet__adjust(c, &s, bitnet__row_tokens(c, 0), c->m->n_vocab);
    CHECK(c->head->candidates[1].logit == 1.5f);
    bias[1].token = 1;                                     /* two for one token add up */
    all_candidates(c, x);
    bitnet__adjust(c, &s, bitnet__row_tokens(c, 0), c->m->n_vocab);
    CHECK(c->head->candidates[1].logit == 1.625f);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* Frequency and presence penalties, alone and after the others, by their definition. */
static void test_subtracted_penalties(void) {
    static const bitnet_token history[] = {5, 6, 5, 7, 5, 8};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_sampler s;
    float x[V];
    uint64_t seed = 21;
    int round, i, j;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    CHECK(c && !bitnet_eval(c, 0, history, 6, 1, 0));
    for (round = 0; round < 64; round++) {
        const int window = round % 8 ? round % 8 : -1;
        const int from = window < 0 || window > 6 ? 0 : 6 - window;
        random_logits(x, 0, &seed);
        memset(&s, 0, sizeof s);
        s.repeat_window = window;
        if (round & 8) s.frequency_penalty = round & 32 ? -0.5f : 0.25f;
        if (round & 16) s.presence_penalty = round & 32 ? 1.0f : -2.0f;
        if (round % 3 == 1) s.repeat_penalty = 2.0f;
        if (round == 63) s.frequency_penalty = s.presence_penalty = (float)(infinite - infinite);
        all_candidates(c, x);
        bitnet__adjust(c, &s, bitnet__row_tokens(c, 0), c->m->n_vocab);
        for (i = 0; i < V; i++) {
            float want = x[i];
            int count = 0;
            for (j = from; j < 6; j++) count += history[j] == i;
            if (count && s.repeat_penalty > 0.0f) want = want > 0 ? want / 2 : want * 2;
            if (count && round != 63) want -= s.presence_penalty;
            for (j = 0; j < count && round != 63; j++) want -= s.frequency_penalty;
            CHECK_MSG(c->head->candidates[i].logit == want && c->head->candidates[i].token == i,
                      "round %d, token %d", round, i);
        }
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* The best tokens and their probabilities, against sorting all of them in double. */
static void test_logprobs(void) {
    static const bitnet_token tokens[] = {5, 6, 5, 7};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_logprob best[V], all[V];
    bitnet_ctx_params p;
    int n, i, row;
    gb_make_model(&g);
    m = load_built(&g);
    memset(&p, 0, sizeof p);
    p.n_ctx = 8;
    p.n_logits = 4;
    CHECK(m && !bitnet_ctx_create(m, &p, &c, 0) && !bitnet_eval(c, 0, tokens, 4, 4, 0));
    for (row = 0; row < 4; row++) {
        const float *logits = bitnet_logits(c, row, NULL);
        double sum = 0;
        CHECK(logits && !bitnet_logprobs(c, row, all, V, NULL));
        for (i = 0; i < V; i++) sum += exp((double)logits[i]);
        for (i = 0; i < V; i++) {
            const double want = (double)logits[all[i].token] - log(sum);
            CHECK_MSG(fabs((double)all[i].logprob - want) < 1e-5, "row %d, place %d", row, i);
            CHECK(i == 0 || logits[all[i].token] < logits[all[i - 1].token] ||
                  (logits[all[i].token] == logits[all[i - 1].token] &&
                   all[i].token > all[i - 1].token));
        }
        for (n = 1; n < 40; n += 5)
            CHECK(!bitnet_logprobs(c, row, best, n, NULL) &&
                  !memcmp(best, all, (size_t)n * sizeof *best));
    }
    CHECK(bitnet_logprobs(c, 4, best, 1, NULL) == BITNET_ERR_ARG);
    CHECK(bitnet_logprobs(c, 0, best, 0, NULL) == BITNET_ERR_ARG);
    CHECK(bitnet_logprobs(c, 0, best, V + 1, NULL) == BITNET_ERR_ARG);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* What the functions about a token say, against the vocabulary as it was built. */
static void test_token_facts(void) {
    gb_model g = word_model();
    bitnet_model_info info;
    bitnet_model *m;
    bitnet_token t;
    size_t n = 7, longest = 0;
    int n_special = 0;
    char buf[256];
    gb_make_model(&g);
    m = load_built(&g);
    CHECK(m);
    for (t = 0; t < g.n_vocab; t++) {
        const char *text = bitnet_token_text(m, t, &n);
        const int length = bitnet_detokenize(m, &t, 1, buf, sizeof buf);
        CHECK_MSG(text && length == (int)n && !memcmp(text, buf, n), "token %d", (int)t);
        CHECK(bitnet_token_text(m, t, 0) == text);
        if (n > longest) longest = n;
        if (!bitnet_token_is_special(m, t)) continue;
        n_special++;
        CHECK(bitnet_tokenize(m, text, n, BITNET_PARSE_SPECIAL, &t, 1) == 1);
        CHECK(bitnet_tokenize(m, text, n, 0, 0, 0) > 1);
    }
    bitnet_model_get_info(m, &info);
    CHECK(info.longest_token == (int)longest && n_special > 0);
    CHECK(!bitnet_token_text(m, -1, &n) && n == 0 && !bitnet_token_text(m, g.n_vocab, &n));
    CHECK(!bitnet_token_is_special(m, -1) && !bitnet_token_is_special(m, INT32_MAX));
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* A bias of plus infinity forces its token, at any temperature. */
static void test_forcing_bias(void) {
    bitnet_logit_bias bias = {9, 0};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    float x[V];
    int i, wrong = -1;
    uint64_t seed = 15;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    CHECK(c);
    bias.bias = (float)infinite;
    for (i = 0; i < 6; i++) {
        bitnet_sampler s;
        memset(&s, 0, sizeof s);
        s.bias = &bias;
        s.n_bias = 1;
        s.temperature = i ? 0.8f : 0.0f;
        s.top_k = i == 2 ? 40 : 0;
        s.top_p = i == 3 ? 0.9f : 0.0f;
        s.min_p = i == 4 ? 0.1f : 0.0f;
        random_logits(x, 0, &seed);
        if (bitnet_sample_logits(c, x, 0, 0, &s, NULL) != 9) wrong = i;
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
    CHECK_MSG(wrong < 0, "case %d (0: greedy, 1: plain, 2: top-k, 3: top-p, 4: min-p)", wrong);
}

/* The state is all there is: saved and put back, it gives the same tokens. */
static void test_replay(void) {
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_sampler s;
    float x[V];
    uint64_t seed = 16, saved = 0;
    int first[50], i, round;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    CHECK(c);
    random_logits(x, 0, &seed);
    memset(&s, 0, sizeof s);
    s.temperature = 1.0f;
    s.rng = 2026;
    for (round = 0; round < 2; round++) {
        if (round) s.rng = saved;
        for (i = 0; i < 50; i++) {
            int t = bitnet_sample_logits(c, x, 0, 0, &s, NULL);
            if (i == 10 && !round) saved = s.rng;          /* after 11 draws */
            if (!round) first[i] = t;
            else if (i < 39) CHECK(t == first[i + 11]);
        }
    }
    for (i = 1; i < 50; i++) if (first[i] != first[0]) break;
    CHECK(i < 50);                                         /* and it does draw */
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* bitnet_sample: the last row, 0 is greedy. */
static void test_sample(void) {
    static const bitnet_token tokens[] = {1, 2, 3};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_sampler s;
    const float *x;
    int i, best = 0;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    CHECK(c && bitnet_sample(c, -1, 0, NULL) == BITNET_ERR_ARG);
    CHECK(!bitnet_eval(c, 0, tokens, 3, 1, 0));
    x = bitnet_logits(c, -1, NULL);
    for (i = 1; i < V; i++) if (x[i] > x[best]) best = i;
    CHECK(bitnet_sample(c, -1, 0, NULL) == best);
    memset(&s, 0, sizeof s);
    CHECK(bitnet_sample(c, -1, &s, NULL) == best);
    s.temperature = 1e-6f;
    CHECK(bitnet_sample(c, -1, &s, NULL) == best);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- generate: a model that recites a script ---- Its layers do nothing; the embedding of token
   t is the unit vector t, and row n of the head has a 1 at the place of the token that n follows.
   Script step i is a token of its own, so texts can repeat. */

enum { MAX_STEPS = 24, START = 'S' };
typedef struct script {
    gb_model g;
    bitnet_model *m;
    bitnet_ctx *c;
    /* what came out */
    char text[1024];
    size_t n_text;
    int calls, flush_calls, stop_at, broken, progress_calls, cancel_at;
    bitnet_token seen[64];
} script;

/* end: token that follows the last step: 0 <|eot_id|>, 1 <|end_of_text|>, 2 the first step again.
   */
static int start_script(script *s, const char *const *steps, int n, int end, int n_ctx,
                        int n_batch) {
    int i, v, first = 256, next;
    gb_model *g = &s->g;
    memset(s, 0, sizeof *s);
    g->dim = 384;
    g->ffn = 128;
    g->layers = 1;
    g->heads = 3;
    g->kv_heads = 1;
    g->identity = 1;
    g->untied = 1;
    g->words = steps;
    g->n_words = n;
    g->seed = 4;
    v = 256 + n + 3;
    g->embed = (float *)calloc((size_t)v * 384, sizeof(float));
    g->head = (float *)calloc((size_t)v * 384, sizeof(float));
    if (!g->embed || !g->head || n > MAX_STEPS) exit(3);
    for (i = 0; i < v; i++) g->embed[i * 384 + i] = 1.0f;
    for (i = 0; i < v; i++) {
        if (i < first) next = first;                       /* any byte leads to the first step */
        else if (i < first + n - 1) next = i + 1;
        else next = end == 0 ? v - 1 : end == 1 ? v - 2 : first;
        g->head[next * 384 + i] = 1.0f;
    }
    gb_make_model(g);
    s->m = load_built(g);
    s->c = new_ctx(s->m, n_ctx, n_batch);
    s->stop_at = s->cancel_at = -1;
    return s->c != 0;
}

static void end_script(script *s) {
    bitnet_ctx_free(s->c);
    bitnet_model_free(s->m);
    gb_free_model(&s->g);
}

/* Collects, and checks the contract: whole code points, one call for each token, t = -1 only at
   last. */
static int collect(void *ud, const char *text, size_t n, bitnet_token t) {
    script *s = (script *)ud;
    const uint8_t *p = (const uint8_t *)text, *end = p + n;
    while (p < end) {
        uint32_t cp, length = bitnet__utf8_decode(p, end, &cp);
        if (length == 0) {
            s->broken = 1;
            break;
        }
        p += length;
    }
    if (s->flush_calls) s->broken = 2;
    if (t == -1) s->flush_calls++;
    else if (s->calls < 64) s->seen[s->calls++] = t;
    if (s->n_text + n < sizeof s->text) {
        memcpy(s->text + s->n_text, text, n);
        s->n_text += n;
    }
    s->text[s->n_text] = 0;
    return s->calls - 1 == s->stop_at && t != -1;
}

static int count_prompt(void *ud, uint64_t done, uint64_t total) {
    script *s = (script *)ud;
    if (done < 1 || done > total) s->broken = 3;
    return s->progress_calls++ == s->cancel_at;
}

static bitnet_generate_params start_params(script *s) {
    static const bitnet_token prompt[] = {'a', 'b', START};
    bitnet_generate_params p;
    memset(&p, 0, sizeof p);
    p.tokens = prompt;
    p.n_tokens = 3;
    p.text_fn = collect;
    p.progress_fn = count_prompt;
    p.text_ud = p.progress_ud = s;
    return p;
}

static void restart_script(script *s) {
    s->n_text = 0;
    s->text[0] = 0;
    s->calls = s->flush_calls = s->broken = s->progress_calls = 0;
    s->stop_at = s->cancel_at = -1;
    bitnet_seq_rewind(s->c, 0, 0, NULL);
}

static void test_generate_ends(void) {
    static const char *const steps[] = {"Once", " upon", " a", " time"};
    script s;
    bitnet_generate_params p;
    bitnet_stop why = BITNET_STOP_CALLBACK;
    bitnet_error err = {BITNET_OK, "", {0}};
    int end, n;
    for (end = 0; end < 2; end++) {
        CHECK(start_script(&s, steps, 4, end, 64, 0));
        p = start_params(&s);
        CHECK_MSG(!bitnet_generate(s.c, &p, &why, &err), "%s", err.text);
        CHECK_MSG(why == BITNET_STOP_END && !strcmp(s.text, "Once upon a time") && !s.broken,
                  "%d: %s", (int)why, s.text);
        CHECK(s.calls == 5 && s.seen[0] == 256 && s.seen[3] == 259 && !s.flush_calls);
        CHECK(s.seen[4] == (end ? s.g.eos : s.g.eot));
        CHECK(bitnet_seq_length(s.c, 0) == 3 + 4);            /* the end token is not evaluated */
        restart_script(&s);                                /* on past the end: 'any byte' follows */
        p.ignore_end = 1;
        p.max_tokens = 7;
        CHECK(!bitnet_generate(s.c, &p, &why, &err) && why == BITNET_STOP_LENGTH && s.calls == 7);
        for (n = 1; n <= 6; n++) {                         /* max_tokens */
            restart_script(&s);
            p.ignore_end = 0;
            p.max_tokens = n;
            CHECK(!bitnet_generate(s.c, &p, &why, &err));
            CHECK(s.calls == (n < 5 ? n : 5));
            CHECK(why == (n < 5 ? BITNET_STOP_LENGTH : BITNET_STOP_END));
            CHECK(bitnet_seq_length(s.c, 0) == 3 + s.calls - 1);
        }
        end_script(&s);
    }
}

/* The context fills up: the last token is still given out. */
static void test_generate_full(void) {
    static const char *const steps[] = {"x", "y"};
    script s;
    bitnet_generate_params p;
    bitnet_stop why = BITNET_STOP_END;
    int n_ctx;
    for (n_ctx = 3; n_ctx < 9; n_ctx++) {
        CHECK(start_script(&s, steps, 2, 2, n_ctx, 2));
        p = start_params(&s);
        CHECK(!bitnet_generate(s.c, &p, &why, 0) && why == BITNET_STOP_LENGTH);
        CHECK_MSG(s.calls == n_ctx - 3 + 1 && bitnet_seq_length(s.c, 0) == n_ctx, "%d calls",
                  s.calls);
        CHECK(s.n_text == (size_t)s.calls && s.text[0] == 'x' && (s.calls < 2 || s.text[1] == 'y'));
        end_script(&s);
    }
}

static void test_generate_prompt(void) {
    static const char *const steps[] = {"x", "y"};
    static const bitnet_token bad[] = {1, 2, 99999};
    script s;
    bitnet_generate_params p;
    bitnet_stop why;
    bitnet_error err = {BITNET_OK, "", {0}};
    const bitnet_token *t;
    int i;
    CHECK(start_script(&s, steps, 2, 0, 8, 2));
    p = start_params(&s);
    p.n_tokens = 0;
    CHECK(bitnet_generate(s.c, &p, &why, &err) == BITNET_ERR_ARG && err.text[0] && s.calls == 0);
    p.tokens = 0;
    CHECK(bitnet_generate(s.c, &p, &why, &err) == BITNET_ERR_ARG);
    p.tokens = bad;
    p.n_tokens = 3;
    CHECK(bitnet_generate(s.c, &p, 0, 0) == BITNET_ERR_ARG);
    /* As text: BOS first in an empty context, not later. */
    restart_script(&s);
    p.tokens = 0;
    p.text = text_of("hi<|eot_id|>");
    CHECK(bitnet_generate(s.c, &p, &why, &err) == BITNET_ERR_FULL);
    p.text = text_of("hiS");
    p.max_tokens = 1;
    CHECK(!bitnet_generate(s.c, &p, &why, &err) && bitnet_seq_length(s.c, 0) == 4);
    t = bitnet_seq_tokens(s.c, 0);
    CHECK(t[0] == s.g.bos && t[3] == START && !strcmp(s.text, "x"));
    CHECK(!bitnet_generate(s.c, &p, &why, &err) && bitnet_seq_length(s.c, 0) == 8);
    CHECK(t[4] == 256 && t[5] == 'h' && !strcmp(s.text, "xx"));
    /* One too many, with the pending token: an error, and the context is as it was. */
    CHECK(!bitnet_seq_rewind(s.c, 0, 3, NULL));
    p.text = text_of("S");
    CHECK(!bitnet_generate(s.c, &p, &why, &err) && bitnet_seq_length(s.c, 0) == 4);
    p.text = text_of("abcd");
    CHECK(bitnet_generate(s.c, &p, &why, &err) == BITNET_ERR_FULL && strstr(err.text, "5 tokens"));
    CHECK(strstr(err.text, "with the pending one"));
    CHECK(bitnet_seq_length(s.c, 0) == 4 && bitnet_seq_pending(s.c, 0) == 256);
    CHECK(bitnet_sample(s.c, -1, 0, NULL) == 256 && s.calls == 3);
    p.text = text_of("abc");
    CHECK(!bitnet_generate(s.c, &p, &why, &err) && bitnet_seq_length(s.c, 0) == 8);
    /* The prompt's progress, and cancelling it: nothing of it stays. */
    for (i = -1; i < 2; i++) {
        restart_script(&s);
        p = start_params(&s);
        s.cancel_at = i;
        if (i < 0) {
            CHECK(!bitnet_generate(s.c, &p, &why, &err) && s.progress_calls == 2 && !s.broken);
        } else {
            CHECK(bitnet_generate(s.c, &p, &why, &err) == BITNET_ERR_CANCELLED && s.calls == 0);
            CHECK(bitnet_seq_length(s.c, 0) == 0 && err.code == BITNET_ERR_CANCELLED);
            CHECK(strstr(err.text, i ? "3 of 3" : "2 of 3") && bitnet_seq_pending(s.c, 0) == -1);
        }
    }
    end_script(&s);
}

static void test_generate_callback(void) {
    static const char *const steps[] = {"a", "b", "c"};
    script s;
    bitnet_generate_params p;
    bitnet_stop why;
    int i;
    CHECK(start_script(&s, steps, 3, 2, 32, 0));
    p = start_params(&s);
    for (i = 0; i < 5; i++) {
        restart_script(&s);
        s.stop_at = i;
        CHECK(!bitnet_generate(s.c, &p, &why, 0) && why == BITNET_STOP_CALLBACK);
        CHECK(s.calls == i + 1 && !s.flush_calls && bitnet_seq_length(s.c, 0) == 3 + i);
    }
    restart_script(&s); /* without text_fn it works just as well */
    p.text_fn = 0;
    p.max_tokens = 4;
    CHECK(!bitnet_generate(s.c, &p, 0, 0) && bitnet_seq_length(s.c, 0) == 6);
    end_script(&s);
}

/* Runs the script with stop strings; compares text, reason and number of text_fn calls with a
   token. */
static void stops(const char *const *steps, int n, const char *stop, const char *stop2,
                  const char *text, bitnet_stop want, int calls) {
    script s;
    bitnet_text strings[2];
    bitnet_generate_params p;
    bitnet_stop why = BITNET_STOP_CALLBACK;
    bitnet_result r;
    strings[0] = text_of(stop);
    strings[1] = text_of(stop2);
    if (!start_script(&s, steps, n, 0, 64, 0)) return;
    p = start_params(&s);
    p.stop_strings = strings;
    p.n_stop_strings = stop2 ? 2 : stop ? 1 : 0;
    r = bitnet_generate(s.c, &p, &why, 0);
    if (r || why != want || strcmp(s.text, text) || s.calls != calls || s.broken)
        test_fail(__FILE__, __LINE__,
                  "stop '%s': \"%s\" instead of \"%s\", reason %d instead of %d, %d calls "
                  "instead of %d, contract %d",
                  stop ? stop : "", s.text, text, (int)why, (int)want, s.calls, calls, s.broken);
    end_script(&s);
}

static void test_stop_strings(void) {
    static const char *const a[] = {"Hello", " wor", "ld", "!\n", "Us", "er:", " more"};
    static const char *const b[] = {"aab", "aaa", "bab", "c"};
    static const char *const c[] = {"x", "STOP", "y"};
    stops(a, 7, 0, 0, "Hello world!\nUser: more", BITNET_STOP_END, 8);
    stops(a, 7, "User:", 0, "Hello world!\n", BITNET_STOP_STRING, 6);
    stops(a, 7, "\nUser:", 0, "Hello world!", BITNET_STOP_STRING, 6);
    stops(a, 7, "world", 0, "Hello ", BITNET_STOP_STRING, 3);
    stops(a, 7, "Hello", 0, "", BITNET_STOP_STRING, 1);
    stops(a, 7, "o wo", 0, "Hell", BITNET_STOP_STRING, 2);
    stops(a, 7, " more", 0, "Hello world!\nUser:", BITNET_STOP_STRING, 7);
    stops(a, 7, " more!", 0, "Hello world!\nUser: more", BITNET_STOP_END,
          8); /* held back, given out */
    stops(a, 7, "User: more or less", 0, "Hello world!\nUser: more", BITNET_STOP_END, 8);
    stops(a, 7, "nothing", "ld!", "Hello wor", BITNET_STOP_STRING, 4);
    stops(a, 7, "wor", "o wor", "Hell", BITNET_STOP_STRING, 2);    /* the one that begins first */
    stops(b, 4, "aaab", 0, "aab", BITNET_STOP_STRING, 3);
    stops(b, 4, "abab", 0, "aabaa", BITNET_STOP_STRING, 3);        /* overlaps what was held back */
    stops(b, 4, "aabaaabb", "bc", "aabaaaba", BITNET_STOP_STRING, 4);
    stops(c, 3, "STOP", 0, "x", BITNET_STOP_STRING, 2);
    stops(c, 3, "xSTOPz", 0, "xSTOPy", BITNET_STOP_END, 4);
}

/* The two questions to the search, answered by trying all strings at all places. */
static int64_t first_stop(const char *text, size_t n, const bitnet_text *strings, int n_strings) {
    size_t at;
    int i;
    for (at = 0; at < n; at++)
        for (i = 0; i < n_strings; i++)
            if (strings[i].size <= n - at &&
                !memcmp(text + at, strings[i].data, strings[i].size))
                return (int64_t)at;
    return -1;
}

static size_t longest_begun(const char *text, size_t n, const bitnet_text *strings,
                            int n_strings) {
    size_t longest = 0;
    int i;
    for (i = 0; i < n_strings; i++) {
        size_t k = strings[i].size - 1;
        for (k = k < n ? k : n; k > longest; k--)
            if (!memcmp(text + n - k, strings[i].data, k)) longest = k;
    }
    return longest;
}

/* Random strings, many of which begin alike, are equal or end in others, with NULs in them, and
   texts in pieces of a few bytes, against that. */
static void test_stop_search(void) {
    enum { MOST = 40, LONGEST = 24 };
    static char strings[MOST][LONGEST];
    bitnet_text stop[MOST];
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    uint64_t seed = 11;
    int round, i, rounds = test_quick() ? 2000 : 20000, stopped = 0, long_hold = 0;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 8, 0);
    for (round = 0; round < rounds; round++) {
        const unsigned letters = 1 + (unsigned)(gb_random(&seed) % 4);
        const int n = 1 + (int)(gb_random(&seed) % (round % 8 ? 6 : MOST));
        bitnet_generate_params p;
        bitnet_gen gen;
        int64_t at = -1;
        int fed = 0;
        for (i = 0; i < n; i++) {
            const int from = i ? (int)(gb_random(&seed) % (unsigned)i) : 0;
            size_t length = 1 + (size_t)(gb_random(&seed) % LONGEST), k = 0;
            if (round % 3 == 0) length = 1 + length / 6;
            if (i && gb_random(&seed) % 2)     /* begins as an earlier one, or is a part of it */
                for (k = (size_t)(gb_random(&seed) % (stop[from].size + 1)), length += k;
                     length > LONGEST; length--) {}
            if (k > length) k = length;
            if (k) memmove(strings[i], strings[from] + (gb_random(&seed) % 4 ? 0 :
                                                        stop[from].size - k), k);
            for (; k < length; k++)
                strings[i][k] = "ab\0\xC3"[gb_random(&seed) % letters];
            stop[i].data = strings[i];
            stop[i].size = length;
        }
        memset(&p, 0, sizeof p);
        p.stop_strings = stop;
        p.n_stop_strings = n;
        CHECK(!bitnet__gen_alloc(&gen, c, &p, 0));
        while (at < 0 && fed < 120) {
            const size_t before = gen.n_text, begun = (size_t)(gb_random(&seed) % 7);
            size_t hold;
            for (i = 0; (size_t)i < begun; i++, fed++)
                gen.text[gen.n_text++] = "ab\0\xC3"[gb_random(&seed) % letters];
            at = bitnet__find_stop(&gen, before);
            CHECK_MSG(at == first_stop(gen.text, gen.n_text, stop, n), "round %d: stop at %ld",
                      round, (long)at);
            if (at >= 0) break;
            hold = gen.begun;
            CHECK_MSG(hold == longest_begun(gen.text, gen.n_text, stop, n),
                      "round %d: holds %lu bytes", round, (unsigned long)hold);
            long_hold += hold > 8;
            memmove(gen.text, gen.text + gen.n_text - hold, hold);
            gen.n_text = hold;
        }
        stopped += at >= 0;
        bitnet__gen_free(&gen);
    }
    CHECK_MSG(stopped > rounds / 4 && stopped < rounds && long_hold > rounds / 10,
              "%d of %d stop, %d hold back much", stopped, rounds, long_hold);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

static void test_bad_stop_strings(void) {
    static const char *const steps[] = {"x"};
    static const bitnet_text strings[] = {BITNET_TEXT("ok"), BITNET_TEXT("")};
    static const bitnet_text cuts[] = {BITNET_TEXT("\x98\x80"), BITNET_TEXT("x\xE2\x82")};
    script s;
    bitnet_generate_params p;
    bitnet_error err;
    int i;
    CHECK(start_script(&s, steps, 1, 0, 8, 0));
    p = start_params(&s);
    p.stop_strings = strings;
    p.n_stop_strings = 2;
    CHECK(bitnet_generate(s.c, &p, 0, 0) == BITNET_ERR_ARG && s.calls == 0);
    p.n_stop_strings = 1;
    for (i = 0; i < 2; i++) {          /* would stop inside of a character */
        p.stop_strings = &cuts[i];
        CHECK(bitnet_generate(s.c, &p, 0, &err) == BITNET_ERR_ARG && strstr(err.text, "UTF-8"));
    }
    CHECK(bitnet_seq_length(s.c, 0) == 0);
    end_script(&s);
}

/* Characters that tokens cut in two come out whole, or as U+FFFD at the end. */
static void test_generate_utf8(void) {
    static const char *const a[] = {"\xE2", "\x82", "\xAC", "\xF0\x9F", "\x98\x80!", "\xC3"};
    static const char *const b[] = {"\xE2\x82", "x", "\xC3\xA9\xC3", "\xA9"};
    stops(a, 6, 0, 0, "\xE2\x82\xAC\xF0\x9F\x98\x80!\xEF\xBF\xBD", BITNET_STOP_END, 7);
    stops(b, 4, 0, 0, "\xEF\xBF\xBDx\xC3\xA9\xC3\xA9", BITNET_STOP_END, 5);
    stops(b, 4, "\xC3\xA9\xC3\xA9", 0, "\xEF\xBF\xBDx", BITNET_STOP_STRING, 4);
    stops(b, 4, "\xC3\xA9\xC3\xA9\xC3\xA9", 0, "\xEF\xBF\xBDx\xC3\xA9\xC3\xA9", BITNET_STOP_END, 5);
}

/* A new token that cannot be evaluated ends the text with an error, but what was held back of the
   text comes out: the beginning of a stop string, and of a character. */
static void test_generate_fails(void) {
    static const char *const steps[] = {"a", "b", "\xC3", "x"};
    static const bitnet_text stop[] = {BITNET_TEXT("bx")};
    int i;
    for (i = 0; i < 2; i++) {
        script s;
        bitnet_generate_params p;
        bitnet_error err;
        CHECK(start_script(&s, steps, 4, 0, 64, 0));
        memset((uint8_t *)(uintptr_t)s.m->embed.data + (size_t)(257 + i) * s.m->embed.row_bytes,
               0xff, s.m->embed.row_bytes);    /* NaNs, after the checks of loading */
        p = start_params(&s);
        p.stop_strings = stop;
        p.n_stop_strings = 1;
        CHECK(bitnet_generate(s.c, &p, 0, &err) == BITNET_ERR_FORMAT);
        CHECK_MSG(strstr(err.text, i ? "token 258 at" : "token 257 at"), "%s", err.text);
        CHECK_MSG(!strcmp(s.text, i ? "ab\xEF\xBF\xBD" : "ab"), "'%s'", s.text);
        CHECK(s.calls == 2 + i && s.flush_calls == 1 && !s.broken);
        CHECK(bitnet_seq_pending(s.c, 0) == 257 + i && bitnet_seq_length(s.c, 0) == 4 + i);
        end_script(&s);
    }
}

static int after_two(void *ud) { return ((const script *)ud)->calls == 2; }

/* The same where a cancel_fn ends the text, the generation's own or the context's. */
static void test_generate_cancelled(void) {
    static const char *const steps[] = {"a", "b", "c"};
    static const bitnet_text stop[] = {BITNET_TEXT("bx")};
    script s;
    bitnet_hooks hooks;
    bitnet_error err;
    int own;
    CHECK(start_script(&s, steps, 3, 0, 64, 0));
    memset(&hooks, 0, sizeof hooks);
    hooks.cancel_fn = after_two;
    hooks.cancel_ud = &s;
    for (own = 0; own < 2; own++) {
        bitnet_generate_params p = start_params(&s);
        p.stop_strings = stop;
        p.n_stop_strings = 1;
        if (own) p.cancel_fn = after_two, p.cancel_ud = &s;
        CHECK(!bitnet_ctx_set_hooks(s.c, own ? 0 : &hooks, NULL));
        CHECK(bitnet_generate(s.c, &p, 0, &err) == BITNET_ERR_CANCELLED);
        CHECK_MSG(!strcmp(s.text, "ab") && bitnet_seq_pending(s.c, 0) == 257, "'%s'", s.text);
        CHECK(!bitnet_ctx_set_hooks(s.c, 0, NULL));
        restart_script(&s);
    }
    end_script(&s);
}

/* A generation in two calls is the same as in one, wherever it is cut: tokens, logits and the
   sampler's rng, with any n_batch, with and without lookup. */
static void test_generate_resumes(void) {
    enum { NEW = 20 };
    static const bitnet_token prompt[] = {1, 2, 3};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_token whole[NEW];
    uint64_t rng = 0;
    float *logits;
    int first, batch, lookup;
    gb_make_model(&g);
    m = load_built(&g);
    logits = (float *)gb_malloc((size_t)g.n_vocab * sizeof *logits);
    for (batch = 1; batch < 4; batch += 2)
        for (lookup = 0; lookup <= 4; lookup += 4)
            for (first = 0; first < NEW; first += first ? 3 : 1) {   /* 0: in one call */
                bitnet_ctx *c = 0;
                bitnet_ctx_params cp;
                bitnet_generate_params p;
                bitnet_sampler s;
                script parts;
                memset(&cp, 0, sizeof cp);
                cp.n_ctx = 32;
                cp.n_batch = batch;
                cp.n_logits = 5;
                CHECK(m && !bitnet_ctx_create(m, &cp, &c, 0) && bitnet_seq_pending(c, 0) == -1);
                memset(&parts, 0, sizeof parts);
                parts.stop_at = parts.cancel_at = -1;
                memset(&s, 0, sizeof s);
                s.temperature = 1.5f;
                s.repeat_penalty = 1.3f;
                s.rng = 7;
                memset(&p, 0, sizeof p);
                p.tokens = prompt;
                p.n_tokens = 3;
                p.max_tokens = first ? first : NEW;
                p.lookup = lookup;
                p.ignore_end = 1;
                p.sampler = &s;
                p.text_fn = collect;
                p.text_ud = &parts;
                CHECK(!bitnet_generate(c, &p, 0, 0) && parts.calls == p.max_tokens);
                if (first) {
                    CHECK(bitnet_seq_length(c, 0) == 3 + first - 1);
                    CHECK(bitnet_seq_pending(c, 0) == parts.seen[first - 1]);
                    p.tokens = 0;
                    p.text = text_of(first % 2 ? "" : 0);
                    p.max_tokens = NEW - first;
                    parts.flush_calls = 0;
                    CHECK(!bitnet_generate(c, &p, 0, 0));
                }
                CHECK(parts.calls == NEW && bitnet_seq_length(c, 0) == 3 + NEW - 1);
                CHECK(bitnet_seq_pending(c, 0) == parts.seen[NEW - 1]);
                if (!first && batch == 1 && !lookup) {
                    memcpy(whole, parts.seen, sizeof whole);
                    memcpy(logits, bitnet_logits(c, -1, NULL), (size_t)g.n_vocab * sizeof *logits);
                    rng = s.rng;
                    CHECK(rng == 7 + NEW * 0x9e3779b97f4a7c15u);
                }
                CHECK_MSG(!memcmp(whole, parts.seen, sizeof whole) && s.rng == rng,
                          "other tokens after %d, batch %d, lookup %d", first, batch, lookup);
                CHECK(!memcmp(logits, bitnet_logits(c, -1, NULL),
                              (size_t)g.n_vocab * sizeof *logits));
                bitnet_ctx_free(c);
            }
    free(logits);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* What a context holds, pending token included, against tokens that are evaluated by hand in
   another: the same tokens and the same logits. */
static int holds(bitnet_ctx *c, bitnet_ctx *other, const bitnet_token *want, int n) {
    const size_t size = (size_t)c->m->n_vocab * sizeof(float);
    if (bitnet_seq_rewind(other, 0, 0, NULL) || bitnet_eval(other, 0, want, n, 1, 0)) return 0;
    return bitnet_seq_length(c, 0) == n &&
           !memcmp(bitnet_seq_tokens(c, 0), want, (size_t)n * sizeof *want) &&
           bitnet_logits(c, -1, NULL) &&
           !memcmp(bitnet_logits(c, -1, NULL), bitnet_logits(other, -1, NULL), size);
}

/* Whatever is appended comes after the pending token, which ends, however the text did: at an end
   token, at max_tokens, at a stop string, by text_fn. */
static void test_pending(void) {
    static const char *const steps[] = {"Once", " upon", " a", " time"};
    static const bitnet_text stop[] = {BITNET_TEXT("n a")};
    static const bitnet_token more[] = {'a', 'b'};
    static const int known[] = {5, 2, 3, 1};               /* tokens, as bitnet_stop counts */
    bitnet_token want[16] = {'a', 'b', START};
    script s;
    bitnet_ctx *other;
    bitnet_generate_params p;
    bitnet_stop why;
    int way, next, n;
    CHECK(start_script(&s, steps, 4, 0, 16, 2));
    other = new_ctx(s.m, 16, 0);
    for (way = BITNET_STOP_END; way <= BITNET_STOP_CALLBACK; way++)
        for (next = 0; next < 4; next++) {
            restart_script(&s);
            p = start_params(&s);
            if (way == BITNET_STOP_LENGTH) p.max_tokens = 2;
            if (way == BITNET_STOP_STRING) p.stop_strings = stop, p.n_stop_strings = 1;
            if (way == BITNET_STOP_CALLBACK) s.stop_at = 0;
            CHECK(!bitnet_generate(s.c, &p, &why, 0) && (int)why == way);
            n = known[way];
            CHECK(s.calls == n && bitnet_seq_length(s.c, 0) == 3 + n - 1);
            memcpy(want + 3, s.seen, (size_t)n * sizeof *want);
            CHECK(bitnet_seq_pending(s.c, 0) == want[3 + n - 1]);
            CHECK(holds(s.c, other, want, 3 + n - 1));
            memcpy(want + 3 + n, more, sizeof more);
            p.tokens = 0;
            p.n_stop_strings = 0;
            p.max_tokens = 1;
            s.flush_calls = 0;
            s.stop_at = -1;
            if (next == 0) p.tokens = more, p.n_tokens = 2;
            if (next == 1) p.text = text_of("ab");                /* and no BOS */
            if (next < 2) CHECK(!bitnet_generate(s.c, &p, &why, 0));
            if (next == 2) CHECK(!bitnet_eval(s.c, 0, more, 2, 1, 0));
            if (next == 3) CHECK(!bitnet_seq_rewind(s.c, 0, 3 + n - 1, NULL));
            CHECK(bitnet_seq_pending(s.c, 0) == (next < 2 ? s.seen[n] : -1));
            CHECK(holds(s.c, other, want, next < 3 ? 3 + n + 2 : 3 + n - 1));
        }
    restart_script(&s);                /* where it alone is left, it is the first token */
    p = start_params(&s);
    p.max_tokens = 1;
    CHECK(!bitnet_generate(s.c, &p, &why, 0) && !bitnet_seq_remove(s.c, 0, 0, 3, NULL));
    want[0] = s.seen[0], want[1] = 'a', want[2] = 'b';
    p.tokens = 0;
    p.text = text_of("ab");
    CHECK(!bitnet_generate(s.c, &p, &why, 0) && holds(s.c, other, want, 3));
    bitnet_ctx_free(other);
    end_script(&s);
}

/* bitnet_eval with a pending token: rows of logits are those of its own tokens, in any batches;
   what it refuses leaves the pending token. */
static void test_pending_eval(void) {
    static const char *const steps[] = {"x", "y"};
    static const bitnet_token more[] = {'q', 'r', 's', 't', 'u'}, bad[] = {'q', 99999};
    script s;
    bitnet_generate_params p;
    bitnet_ctx_params cp;
    bitnet_ctx *c, *other;
    bitnet_error err;
    const size_t size = (256 + 2 + 3) * sizeof(float);
    int batch, i;
    CHECK(start_script(&s, steps, 2, 2, 8, 0));
    for (batch = 1; batch <= 8; batch++) {
        bitnet_token all[6] = {0, 'q', 'r', 's', 't', 'u'};
        memset(&cp, 0, sizeof cp);
        cp.n_ctx = 8;
        cp.n_batch = batch;
        cp.n_logits = 6;
        CHECK(!bitnet_ctx_create(s.m, &cp, &c, 0) && !bitnet_ctx_create(s.m, &cp, &other, 0));
        p = start_params(&s);
        p.n_tokens = 2;
        p.max_tokens = 1;
        restart_script(&s);
        CHECK(!bitnet_generate(c, &p, 0, 0) && bitnet_seq_pending(c, 0) == 256);
        CHECK(bitnet_eval(c, 0, bad, 2, 1, &err) == BITNET_ERR_ARG);
        CHECK(bitnet_eval(c, 0, more, 0, 1, &err) == BITNET_ERR_ARG);
        CHECK(bitnet_seq_length(c, 0) == 2 && bitnet_seq_pending(c, 0) == 256);
        CHECK(!bitnet_eval(c, 0, more, 5, 5, &err) && bitnet_seq_pending(c, 0) == -1);
        CHECK(bitnet_seq_length(c, 0) == 8 && !bitnet_logits(c, 5, NULL));
        all[0] = 256;
        CHECK(!bitnet_eval(other, 0, p.tokens, 2, 1, 0) && !bitnet_eval(other, 0, all, 6, 6, 0));
        for (i = 0; i < 5; i++)
            CHECK(!memcmp(bitnet_logits(c, i, NULL), bitnet_logits(other, i + 1, NULL), size));
        CHECK(!memcmp(bitnet_logits(c, -1, NULL), bitnet_logits(other, 5, NULL), size));
        /* 8 positions: 3, the pending token and 5 are one too many; then the context is full. */
        CHECK(!bitnet_seq_rewind(c, 0, 0, NULL));
        p.n_tokens = 3;
        CHECK(!bitnet_generate(c, &p, 0, 0) && bitnet_seq_length(c, 0) == 3);
        CHECK(bitnet_eval(c, 0, more, 5, 5, &err) == BITNET_ERR_FULL &&
              strstr(err.text, "6 tokens"));
        CHECK(bitnet_seq_length(c, 0) == 3 && bitnet_seq_pending(c, 0) == 256);
        CHECK(!bitnet_eval(c, 0, more, 4, 4, &err) && !bitnet_seq_rewind(c, 0, 7, NULL));
        p.max_tokens = 0;
        p.n_tokens = 1;
        CHECK(!bitnet_generate(c, &p, 0, 0) && bitnet_seq_length(c, 0) == 8);
        p.tokens = 0;
        CHECK(bitnet_seq_pending(c, 0) >= 0 && bitnet_generate(c, &p, 0, &err) == BITNET_ERR_FULL);
        CHECK(strstr(err.text, "1 token") && bitnet_seq_pending(c, 0) >= 0);
        bitnet_ctx_free(c);
        bitnet_ctx_free(other);
    }
    end_script(&s);
}

/* Messages, against the sequence made by hand: BOS first in an empty context alone, the end of a
   reply that was cut, the template, the reply opened; the text of a message never becomes a special
   token. */
static void test_generate_messages(void) {
    static const char *const steps[] = {"Once", " upon"};
    static const bitnet_message talk[] = {
        MESSAGE("system", " Be brief. "), MESSAGE("user", "<|eot_id|>x"), MESSAGE("user", "more"),
        MESSAGE("", "x"), {BITNET_TEXT("user"), {0, 0}, {0, 0}}};
    script s;
    bitnet_ctx *other;
    bitnet_generate_params p;
    bitnet_token want[256], last;
    bitnet_error err;
    bitnet_stop why;
    int n, cut, begun;
    CHECK(start_script(&s, steps, 2, 0, 256, 4));
    other = new_ctx(s.m, 256, 0);
    for (begun = 0; begun < 2; begun++)
        for (cut = 0; cut < 2; cut++) {
            restart_script(&s);
            p = start_params(&s);
            p.tokens = 0;
            n = 0;
            if (begun) {               /* a position is there already: no BOS */
                want[n++] = 'b';
                CHECK(!bitnet_eval(s.c, 0, want, 1, 1, 0));
            } else want[n++] = s.g.bos;
            p.messages = talk;
            p.n_messages = 2;
            p.max_tokens = cut ? 1 : 0;
            CHECK_MSG(!bitnet_generate(s.c, &p, &why, &err), "%s", err.text);
            CHECK(why == (cut ? BITNET_STOP_LENGTH : BITNET_STOP_END) && s.calls == (cut ? 1 : 3));
            n += bitnet_chat_tokenize(s.m, 0, talk, 2, BITNET_CHAT_OPEN_REPLY, want + n,
                                      (size_t)(256 - n), NULL);
            memcpy(want + n, s.seen, (size_t)s.calls * sizeof *want);
            n += s.calls;
            CHECK(holds(s.c, other, want, n - 1) && bitnet_seq_pending(s.c, 0) == want[n - 1]);
            if (cut) want[n++] = s.g.eot;
            CHECK(want[n - 1] == s.g.eot);
            n += bitnet_chat_tokenize(s.m, 0, talk + 2, 1, BITNET_CHAT_OPEN_REPLY, want + n,
                                      (size_t)(256 - n), NULL);
            p.messages = talk + 2;
            p.n_messages = 1;
            p.max_tokens = 1;
            s.flush_calls = 0;
            CHECK(!bitnet_generate(s.c, &p, &why, &err) && holds(s.c, other, want, n));
        }
    /* What is wrong with them says so, and changes nothing. */
    last = bitnet_seq_pending(s.c, 0);
    n = bitnet_seq_length(s.c, 0);
    p.messages = talk + 2;
    p.n_messages = 2;
    CHECK(bitnet_generate(s.c, &p, 0, &err) == BITNET_ERR_ARG && strstr(err.text, "1 has no role"));
    p.messages = talk + 4;
    p.n_messages = 1;
    CHECK(bitnet_generate(s.c, &p, 0, &err) == BITNET_ERR_ARG && strstr(err.text, "0 has no text"));
    p.messages = talk;
    p.n_messages = 0;
    CHECK(bitnet_generate(s.c, &p, 0, &err) == BITNET_ERR_ARG &&
          strstr(err.text, "n_messages is 0"));
    p.n_messages = 1;
    p.text = text_of("x");
    CHECK(bitnet_generate(s.c, &p, 0, &err) == BITNET_ERR_ARG && strstr(err.text, "only one"));
    p.messages = 0;
    p.tokens = want;
    p.n_tokens = 1;
    CHECK(bitnet_generate(s.c, &p, 0, &err) == BITNET_ERR_ARG && strstr(err.text, "only one"));
    p.text = text_of(0);
    p.messages = talk;
    CHECK(bitnet_generate(s.c, &p, 0, &err) == BITNET_ERR_ARG && strstr(err.text, "only one"));
    CHECK(bitnet_seq_length(s.c, 0) == n && bitnet_seq_pending(s.c, 0) == last);
    p.tokens = 0;
    for (p.n_messages = 2; !bitnet_generate(s.c, &p, 0, &err); s.flush_calls = 0)
        n = bitnet_seq_length(s.c, 0), last = bitnet_seq_pending(s.c, 0);
    CHECK(err.code == BITNET_ERR_FULL && strstr(err.text, "do not fit"));
    CHECK(bitnet_seq_length(s.c, 0) == n && bitnet_seq_pending(s.c, 0) == last && last >= 0);
    bitnet_ctx_free(other);
    end_script(&s);
}

/* In text_fn, bitnet_logits shows what its token was drawn from: greedy, the largest. */
typedef struct drawn { bitnet_ctx *c; bitnet_token last; int calls, wrong; } drawn;

static int check_drawn(void *ud, const char *text, size_t n, bitnet_token t) {
    drawn *d = (drawn *)ud;
    const float *logits = bitnet_logits(d->c, -1, NULL);
    int i, best = 0;
    (void)text, (void)n;
    for (i = 1; logits && i < d->c->m->n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    if (t >= 0) d->last = t, d->calls++;
    if (!logits || best != d->last || bitnet_seq_pending(d->c, 0) != d->last) d->wrong++;
    return 0;
}

static void test_drawn_from(void) {
    static const bitnet_token prompt[] = {7, 42, 99, 3, 7, 42, 99, 3, 7, 42};
    gb_model g = word_model();
    bitnet_model *m;
    int lookup;
    gb_make_model(&g);
    m = load_built(&g);
    for (lookup = 0; lookup <= 4; lookup += 4) {
        bitnet_generate_params p;
        bitnet_ctx_params cp;
        drawn d = {0, -1, 0, 0};
        memset(&cp, 0, sizeof cp);
        cp.n_ctx = 64;
        cp.n_logits = 5;
        CHECK(m && !bitnet_ctx_create(m, &cp, &d.c, 0));
        memset(&p, 0, sizeof p);
        p.tokens = prompt;
        p.n_tokens = 10;
        p.max_tokens = 40;
        p.ignore_end = 1;
        p.lookup = lookup;
        p.text_fn = check_drawn;
        p.text_ud = &d;
        CHECK(!bitnet_generate(d.c, &p, 0, 0) && d.calls == 40);
        CHECK_MSG(!d.wrong, "lookup %d: %d tokens were not the likeliest", lookup, d.wrong);
        bitnet_ctx_free(d.c);
    }
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- a NUL is a character like others ---- */

/* Allows the next byte of a text alone. */
typedef struct forced { const char *text; int at; } forced;

static void force_next(void *ud, uint32_t *allowed) {
    forced *f = (forced *)ud;
    const unsigned t = (uint8_t)f->text[f->at++];
    allowed[t / 32] |= 1u << t % 32;
}

static void test_nul(void) {
    static const bitnet_text text = BITNET_TEXT("he\0llo\0"), stop = BITNET_TEXT("a\0b"),
                             never = BITNET_TEXT("a\0c"), line = BITNET_TEXT("Us\0er: he\0llo");
    static const bitnet_message msg = {BITNET_TEXT("us\0er"), BITNET_TEXT(" he\0llo"), {0, 0}};
    gb_model g = word_model();
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_token want[64], got[64];
    script out;
    bitnet_stop why;
    int n, stops;
    gb_make_model(&g);
    m = load_built(&g);
    c = new_ctx(m, 32, 0);
    CHECK(c);
    memset(&p, 0, sizeof p);
    p.text = text;
    p.max_tokens = 1;
    n = bitnet_tokenize(m, text.data, text.size, BITNET_ADD_BOS, want, 64);
    CHECK(n > 4 && !bitnet_generate(c, &p, 0, 0) && bitnet_seq_length(c, 0) == n);
    CHECK(!memcmp(bitnet_seq_tokens(c, 0), want, (size_t)n * sizeof *want));
    n = bitnet_tokenize(m, line.data, line.size, 0, want, 63);
    want[n++] = g.eot;
    CHECK(bitnet_chat_tokenize(m, 0, &msg, 1, 0, got, 64, NULL) == n &&
          !memcmp(got, want, (size_t)n * sizeof *got));
    for (stops = 0; stops < 2; stops++) {
        forced f = {"xa\0by", 0};
        memset(&out, 0, sizeof out);
        memset(&s, 0, sizeof s);
        out.stop_at = -1;
        s.mask_fn = force_next;
        s.mask_ud = &f;
        p.sampler = &s;
        p.max_tokens = 5;
        p.stop_strings = stops ? &stop : &never;
        p.n_stop_strings = 1;
        p.text_fn = collect;
        p.text_ud = &out;
        CHECK(!bitnet_seq_rewind(c, 0, 0, NULL) && !bitnet_generate(c, &p, &why, 0));
        CHECK(why == (stops ? BITNET_STOP_STRING : BITNET_STOP_LENGTH));
        CHECK(out.n_text == (stops ? 1u : 5u) && !memcmp(out.text, "xa\0by", out.n_text));
        CHECK(out.calls == (stops ? 4 : 5) && !out.broken);
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* Memory that runs out during a generation: an error, no leak, and text_fn has not been called. */
static void test_generate_memory(void) {
    gb_model g = word_model();
    gb_counter count;
    bitnet_model_params mp;
    bitnet_model *m = 0;
    bitnet_ctx *c;
    long k, live;
    int done = 0;
    gb_make_model(&g);
    memset(&mp, 0, sizeof mp);
    mp.allocator = gb_counting(&count);
    CHECK(!bitnet_model_load_memory(g.data, g.size, &mp, &m, 0));
    c = new_ctx(m, 16, 0);
    CHECK(c);
    live = count.live;
    for (k = 0; k < 10 && !done; k++) {
        script s;
        bitnet_generate_params p;
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet_result r;
        memset(&s, 0, sizeof s);
        s.stop_at = -1;
        memset(&p, 0, sizeof p);
        p.text = text_of("hello");
        p.max_tokens = 2;
        p.text_fn = collect;
        p.text_ud = &s;
        bitnet_seq_rewind(c, 0, 0, NULL);
        count.calls = 0;
        count.fail_at = k;
        r = bitnet_generate(c, &p, 0, &err);
        done = r == BITNET_OK;
        CHECK_MSG(done || (r == BITNET_ERR_MEMORY && err.code == r && !s.calls),
                  "allocation %ld: %d", k, (int)r);
        CHECK(count.live == live);
    }
    CHECK(done && k >= 1);
    count.calls = 0;
    count.fail_at = 0;                                     /* the chat template allocates as well */
    {
        bitnet_message msg = MESSAGE("user", "hello");
        CHECK(bitnet_chat_tokenize(m, 0, &msg, 1, 0, 0, 0, NULL) == BITNET_ERR_MEMORY);
        CHECK(count.live == live);
    }
    count.fail_at = -1;
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    CHECK(count.live == 0);
    gb_free_model(&g);
}

extern const test_case text_tests[];
const test_case text_tests[] = {
    {"text/tokenize", test_tokenize},
    {"text/detokenize", test_detokenize},
    {"text/detok_push", test_detok_push},
    {"text/find_and_end", test_find_and_end},
    {"text/chat", test_chat},
    {"text/greedy", test_greedy},
    {"text/distribution", test_distribution},
    {"text/few_candidates", test_few_candidates},
    {"text/cut_sets", test_cut_sets},
    {"text/extreme_draws", test_extreme_draws},
    {"text/repeat_penalty", test_repeat_penalty},
    {"text/subtracted_penalties", test_subtracted_penalties},
    {"text/logprobs", test_logprobs},
    {"text/token_facts", test_token_facts},
    {"text/logit_bias", test_logit_bias},
    {"text/forcing_bias", test_forcing_bias},
    {"text/replay", test_replay},
    {"text/sample", test_sample},
    {"text/generate_ends", test_generate_ends},
    {"text/generate_full", test_generate_full},
    {"text/generate_prompt", test_generate_prompt},
    {"text/generate_callback", test_generate_callback},
    {"text/stop_strings", test_stop_strings},
    {"text/stop_search", test_stop_search},
    {"text/bad_stop_strings", test_bad_stop_strings},
    {"text/generate_utf8", test_generate_utf8},
    {"text/generate_fails", test_generate_fails},
    {"text/generate_cancelled", test_generate_cancelled},
    {"text/generate_resumes", test_generate_resumes},
    {"text/drawn_from", test_drawn_from},
    {"text/pending", test_pending},
    {"text/pending_eval", test_pending_eval},
    {"text/generate_messages", test_generate_messages},
    {"text/nul", test_nul},
    {"text/generate_memory", test_generate_memory},
    {0, 0}
};
