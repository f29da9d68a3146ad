/* Lookup decoding: whatever is guessed, nobody can tell from the text or from the context. */
#include "gguf_builder.h"
#include "test.h"

/* ---- helpers ---- */

/* Everything that text_fn is told, and what it sees of the context meanwhile. */
typedef struct trace {
    bitnet_ctx *c;
    char bytes[65536];
    size_t n;
    bitnet_token last;
    int calls, stop_at;                /* stop_at: text_fn stops at this call; -1: never */
} trace;

static void note(trace *t, const void *p, size_t n) {
    if (n > sizeof t->bytes - t->n) n = sizeof t->bytes - t->n;
    memcpy(t->bytes + t->n, p, n);
    t->n += n;
}

static int listen(void *ud, const char *text, size_t n, bitnet_token token) {
    trace *t = (trace *)ud;
    int32_t length = bitnet_seq_length(t->c, 0);
    note(t, &token, sizeof token);
    note(t, &length, sizeof length);
    note(t, text, n);
    if (token >= 0) t->last = token;
    if (t->calls % 16 == 0) note(t, bitnet_logits(t->c, -1, NULL), 64 * sizeof(float));
    return t->calls++ == t->stop_at;
}

/* The same conversation twice: [0] plain, [1] with lookup; and what came of its drafts. */
typedef struct contexts {
    trace t[2];
    bitnet_figures stats;
} contexts;

static void add_figures(bitnet_figures *sum, const bitnet_figures *f) {
    sum->drafts += f->drafts;
    sum->drafted += f->drafted;
    sum->accepted += f->accepted;
}

static int start_pair(contexts *p, const bitnet_model *m, bitnet_ctx_params cp, int lookup) {
    int i;
    memset(p, 0, sizeof *p);
    for (i = 0; i < 2; i++) {
        cp.n_logits = i ? lookup + 1 : 1;
        if (cp.n_ctx && cp.n_logits > cp.n_ctx) cp.n_logits = cp.n_ctx;
        p->t[i].stop_at = -1;
        if (bitnet_ctx_create(m, &cp, &p->t[i].c, 0)) return 0;
        test_share(p->t[i].c);
    }
    return 1;
}

static void end_pair(contexts *p) {
    bitnet_ctx_free(p->t[0].c);
    bitnet_ctx_free(p->t[1].c);
}

/* One generation in both; what differs, or 0. */
static const char *differs(contexts *p, const bitnet_generate_params *params, int lookup,
                           bitnet_stop *why) {
    bitnet_stop stop[2] = {BITNET_STOP_END, BITNET_STOP_END};
    bitnet_sampler s[2];
    bitnet_result r[2];
    const bitnet_ctx *c[2];
    const float *logits[2];
    bitnet_figures f;
    int i;
    for (i = 0; i < 2; i++) {
        bitnet_generate_params g = *params;
        if (g.sampler) s[i] = *g.sampler;
        else memset(&s[i], 0, sizeof s[i]);
        g.sampler = &s[i];
        g.lookup = i ? lookup : 0;
        g.text_fn = listen;
        g.text_ud = &p->t[i];
        p->t[i].n = 0;
        p->t[i].calls = 0;
        c[i] = p->t[i].c;
        r[i] = bitnet_generate(p->t[i].c, &g, &stop[i], 0);
        logits[i] = bitnet_logits(p->t[i].c, -1, NULL);
    }
    bitnet_seq_figures(c[0], 0, &f);
    if (f.drafts || f.drafted || f.accepted) return "drafts without lookup";
    bitnet_seq_figures(c[1], 0, &f);
    add_figures(&p->stats, &f);
    if (why) *why = stop[0];
    if (r[0] || r[0] != r[1]) return "result";
    if (stop[0] != stop[1]) return "reason to stop";
    if (p->t[0].calls != p->t[1].calls) return "number of tokens";
    if (p->t[0].n != p->t[1].n || memcmp(p->t[0].bytes, p->t[1].bytes, p->t[0].n))
        return "what text_fn saw";
    if (bitnet_seq_length(c[0], 0) != bitnet_seq_length(c[1], 0)) return "length";
    if (memcmp(bitnet_seq_tokens(c[0], 0), bitnet_seq_tokens(c[1], 0),
               (size_t)bitnet_seq_length(c[0], 0) * sizeof(bitnet_token)))
        return "tokens in the context";
    if (s[0].rng != s[1].rng) return "rng";
    if (memcmp(logits[0], logits[1], (size_t)c[0]->m->n_vocab * sizeof(float))) return "logits";
    if (params->sampler) *params->sampler = s[0];
    return 0;
}

/* A model in which 'a' leads to 'b', and so on to 'h', which leads to the end of turn, and that to
   'a' again. Its layers do nothing. */
static bitnet_model *make_chain(gb_model *g) {
    enum { DIM = 384, EOT = 258 };
    bitnet_model *m = 0;
    int i;
    memset(g, 0, sizeof *g);
    g->dim = DIM, g->ffn = 128, g->layers = 1, g->heads = 3, g->kv_heads = 1;
    g->identity = g->untied = 1;
    g->seed = 4;
    g->embed = (float *)calloc((size_t)(EOT + 1) * DIM, sizeof(float));
    g->head = (float *)calloc((size_t)(EOT + 1) * DIM, sizeof(float));
    if (!g->embed || !g->head) exit(3);
    for (i = 0; i <= EOT; i++) {
        int next = i == 'h' ? EOT : i >= 'a' && i < 'h' ? i + 1 : 'a';
        g->embed[i * DIM + i] = 1.0f;
        g->head[next * DIM + i] = 1.0f;
    }
    gb_make_model(g);
    if (bitnet_model_load_memory(g->data, g->size, 0, &m, 0) || g->eot != EOT) return 0;
    return m;
}

static bitnet_model *load_tiny(void) {
    bitnet_model *m;
    bitnet_error err = {BITNET_OK, "", {0}};
    char path[512];
    snprintf(path, sizeof path, "%s/../../examples/tiny.gguf", test_data(""));
    if (bitnet_model_load_file(path, 0, &m, &err)) test_fail(__FILE__, __LINE__, "%s", err.text);
    return m;
}

/* ---- tests ---- */

/* Where the guess must be and what must come of it: the chain's prompt holds one whole round. */
static void test_chain(void) {
    static const bitnet_token prompt[] = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 258, 'a', 'b'};
    gb_model g;
    bitnet_model *m = make_chain(&g);
    bitnet_generate_params p = {0};
    bitnet_ctx_params cp = {0};
    bitnet_stop why;
    const char *bad;
    contexts two;
    int lookup, n, n_ctx;
    CHECK(m);
    p.tokens = prompt;
    p.n_tokens = 11;
    cp.n_threads = 1;
    cp.n_ctx = 64;
    for (lookup = 1; lookup <= 64; lookup += lookup < 12 ? 1 : 13) {     /* the end in a guess */
        CHECK(start_pair(&two, m, cp, lookup));
        bad = differs(&two, &p, lookup, &why);
        CHECK_MSG(!bad, "lookup %d: %s", lookup, bad);
        CHECK(why == BITNET_STOP_END && two.t[1].calls == 7);
        CHECK(bitnet_seq_length(two.t[1].c, 0) == 11 + 6);
        if (lookup >= 6) {
            CHECK_MSG(two.stats.drafts == 1 && two.stats.accepted == 5 &&
                      two.stats.drafted == (lookup < 52 ? lookup : 52), "lookup %d: %d, %d, %d",
                      lookup, two.stats.drafts, two.stats.drafted,
                      two.stats.accepted);
            CHECK(bitnet_logits(two.t[1].c, 5, NULL) != NULL);
            CHECK(!bitnet_logits(two.t[1].c, 6, NULL));    /* its token was dropped */
        }
        p.tokens = 0;                                      /* on from the pending token */
        bad = differs(&two, &p, lookup, &why);
        CHECK_MSG(!bad && why == BITNET_STOP_END, "lookup %d, resumed: %s", lookup, bad);
        CHECK(bitnet_seq_length(two.t[1].c, 0) == 11 + 6 + 9);
        p.tokens = prompt;
        end_pair(&two);
    }
    p.ignore_end = 1;
    for (n = 1; n < 24; n += test_quick() ? 5 : 1) {       /* max_tokens */
        CHECK(start_pair(&two, m, cp, 5));
        p.max_tokens = n;
        bad = differs(&two, &p, 5, &why);
        CHECK_MSG(!bad && why == BITNET_STOP_LENGTH && two.t[1].calls == n, "%d: %s", n, bad);
        CHECK_MSG(two.stats.accepted >= n * 4 / 5 - 4, "%d: %d", n, two.stats.accepted);
        end_pair(&two);
    }
    p.max_tokens = 0;
    for (n_ctx = 11; n_ctx < 32; n_ctx += test_quick() ? 3 : 1) {   /* its end, small batches */
        cp.n_ctx = n_ctx;
        cp.n_batch = n_ctx % 4;
        CHECK(start_pair(&two, m, cp, 15));
        bad = differs(&two, &p, 15, &why);
        CHECK_MSG(!bad && why == BITNET_STOP_LENGTH, "n_ctx %d: %s", n_ctx, bad);
        CHECK(bitnet_seq_length(two.t[1].c, 0) == n_ctx && two.t[1].calls == n_ctx - 10);
        end_pair(&two);
    }
    cp.n_ctx = 64;
    cp.n_batch = 0;
    for (n = 0; n < 20; n += test_quick() ? 6 : 1) {       /* text_fn stops */
        CHECK(start_pair(&two, m, cp, 7));
        two.t[0].stop_at = two.t[1].stop_at = n;
        bad = differs(&two, &p, 7, &why);
        CHECK_MSG(!bad && why == BITNET_STOP_CALLBACK && two.t[1].calls == n + 1, "%d: %s", n, bad);
        end_pair(&two);
    }
    for (n = 0; n < 8; n++) {                              /* a stop string ends at step n */
        static const char *const texts[] = {"c", "d", "de", "f", "efg", "h", "ha", "b"};
        const bitnet_text stop = text_of(texts[n]);
        p.stop_strings = &stop;
        p.n_stop_strings = 1;
        CHECK(start_pair(&two, m, cp, 7));
        bad = differs(&two, &p, 7, &why);
        CHECK_MSG(!bad && why == BITNET_STOP_STRING, "'%s': %s", texts[n], bad);
        end_pair(&two);
    }
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* The guess itself, against its definition by trying every place and length. */
static void test_guess(void) {
    bitnet_token history[80], want[17];
    bitnet__seq q;
    uint64_t seed = 5;
    int round, i, at, n, most, best;
    memset(&q, 0, sizeof q);
    q.history = history;
    for (round = 0; round < 20000; round++) {
        int got;
        n = 1 + (int)(gb_random(&seed) % 60);
        for (i = 0; i < n; i++) history[i] = (int)(gb_random(&seed) % (2 + (unsigned)round % 9));
        q.pending = history[n] = (int)(gb_random(&seed) % 3);
        most = 1 + (int)(gb_random(&seed) % 16);
        for (at = 0, best = 0, i = 2; i <= 3; i++) {       /* the last 3, the last 2 tokens */
            int place;
            for (place = i - 1; place < n; place++)
                if (n >= i - 1 && !memcmp(history + place + 1 - i, history + n + 1 - i,
                                          (size_t)i * sizeof *history))
                    best = i, at = place + 1;
        }
        for (i = 0; i < most; i++) want[i] = at + i <= n ? history[at + i] : want[at + i - n - 1];
        history[n] = -1;               /* bitnet__queue_draft puts the pending token there */
        q.n_past = n;
        got = bitnet__queue_draft(&q, most);
        CHECK_MSG(got == (best ? most : 0), "round %d: %d tokens", round, got);
        CHECK_MSG(history[n] == q.pending && !memcmp(history + n + 1, want, (size_t)got * 4),
                  "round %d: other tokens", round);
    }
}

/* A trained model and every kind of sampler; prompts that make it repeat itself, so that guesses
   are both right and wrong. */
static void test_samplers(void) {
    static const char *const prompts[] = {
        "Once upon a time there was a little girl. Once upon a time there was a little girl. Once",
        "The capital of France is Paris. The capital of Japan is Tokyo. The capital of",
        "One day a fox met a fox",
    };
    static const bitnet_logit_bias bias[] = {{300, 3.0f}, {301, -50.0f}, {20, 1.5f}};
    bitnet_model *m = load_tiny();
    bitnet_ctx_params cp = {0};
    bitnet_figures all = {0};
    int kind, i, lookup, least, longest = 0;
    if (!m) return;
    cp.n_ctx = 256;
    cp.n_threads = 2;
    for (kind = 0; kind < 8; kind++) {
        for (i = 0; i < 3; i++) {
            static const bitnet_text stops[] = {BITNET_TEXT(" the end"), BITNET_TEXT(". The"),
                                                BITNET_TEXT("!")};
            bitnet_generate_params p = {0};
            bitnet_sampler s = {0};
            bitnet_stop why;
            const char *bad;
            contexts two;
            if (test_quick() && (i != kind % 3 || kind % 3 == 1)) continue;
            lookup = kind % 2 ? 4 : 20;                    /* over and under what is screened */
            s.rng = (uint64_t)(100 * kind + i);
            s.temperature = kind == 0 || kind == 5 ? 0.0f : 0.4f;
            if (kind == 2 || kind == 6) s.top_k = 40;
            if (kind == 3) s.top_p = 0.9f;
            if (kind >= 4) s.repeat_penalty = kind == 4 ? 1.05f : 0.98f;
            if (kind >= 5) s.repeat_window = kind == 5 ? -1 : 3;
            if (kind == 7) s.bias = bias, s.n_bias = 3;
            cp.no_head_copy = kind == 6;
            p.sampler = &s;
            p.text = text_of(prompts[i]);
            p.max_tokens = test_quick() ? 60 : 120;
            p.ignore_end = 1;
            if (kind == 1) p.stop_strings = stops, p.n_stop_strings = 3;
            CHECK(start_pair(&two, m, cp, lookup));
            bad = differs(&two, &p, lookup, &why);
            CHECK_MSG(!bad, "sampler %d, prompt %d: %s", kind, i, bad);
            p.text = text_of(0);
            p.tokens = &two.t[1].last;
            p.n_tokens = 1;
            p.max_tokens = 40;
            bad = differs(&two, &p, lookup, &why);
            CHECK_MSG(!bad, "sampler %d, prompt %d, resumed: %s", kind, i, bad);
            longest += 2 * lookup;                         /* the first of each generation */
            add_figures(&all, &two.stats);
            end_pair(&two);
        }
    }
    bitnet_model_free(m);
    printf("%d guesses, %d of %d tokens right ... ", all.drafts, all.accepted,
           all.drafted);
    least = test_quick() ? 10 : 100;
    CHECK(all.accepted > least && all.drafted > all.accepted + least);
    CHECK(all.drafted <= longest + 2 * all.accepted + all.drafts);
}

static void test_bad_lookup(void) {
    gb_model g;
    bitnet_model *m = make_chain(&g);
    bitnet_generate_params p = {0};
    bitnet_figures stats;
    bitnet_error err;
    contexts two;
    bitnet_ctx_params cp = {0};
    CHECK(m && start_pair(&two, m, cp, 4));
    p.text = text_of("a");
    p.max_tokens = 1;
    p.lookup = -1;
    CHECK(bitnet_generate(two.t[1].c, &p, 0, &err) == BITNET_ERR_ARG && strstr(err.text, "0..64"));
    p.lookup = 65;
    CHECK(bitnet_generate(two.t[1].c, &p, 0, &err) == BITNET_ERR_ARG);
    p.lookup = 5;                                          /* n_logits is 5 */
    CHECK(bitnet_generate(two.t[1].c, &p, 0, &err) == BITNET_ERR_LIMIT);
    CHECK(strstr(err.text, "n_logits 6") && bitnet_seq_length(two.t[1].c, 0) == 0);
    p.lookup = 4;
    CHECK(!bitnet_generate(two.t[1].c, &p, 0, &err));
    bitnet_seq_figures(two.t[1].c, 0, &stats);
    CHECK(stats.drafts == 0 && stats.drafted == 0 && stats.accepted == 0);
    if (sizeof(size_t) < 8) {          /* a token as long as only a hostile file has it */
        m->vocab.longest_token = 300000000;
        CHECK(bitnet_generate(two.t[1].c, &p, 0, &err) == BITNET_ERR_MEMORY);
        m->vocab.longest_token = 1;
    }
    end_pair(&two);
    cp.n_ctx = 4;                      /* a short context: no more than it has positions */
    cp.n_logits = 3;
    CHECK(!bitnet_ctx_create(m, &cp, &two.t[0].c, 0));
    p.lookup = 8;
    CHECK(bitnet_generate(two.t[0].c, &p, 0, &err) == BITNET_ERR_LIMIT);
    CHECK_MSG(strstr(err.text, "n_logits 4;"), "%s", err.text);
    bitnet_ctx_free(two.t[0].c);
    bitnet_model_free(m);
    gb_free_model(&g);
}

extern const test_case lookup_tests[];
const test_case lookup_tests[] = {
    {"lookup/guess", test_guess},
    {"lookup/chain", test_chain},
    {"lookup/samplers", test_samplers},
    {"lookup/bad", test_bad_lookup},
    {0, 0}
};
