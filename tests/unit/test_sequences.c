/* Many sequences in one context: the logits of each are the same bits as alone, whatever is
   evaluated beside it; copies share memory; what runs out is said before anything changes. */
#include <time.h>
#include "model_helpers.h"
#include "test.h"

enum { N_SEQS = 7, N_TOKENS = 150 };

typedef struct mix {
    gb_model g;
    bitnet_model *m;
    bitnet_token tokens[N_SEQS][N_TOKENS];
    float **want;                          /* [N_SEQS] of [N_TOKENS][n_vocab], each alone */
    uint64_t seed;
} mix;

static int countdown(void *ud) { return --*(int *)ud < 0; }

static int below(mix *x, int n) { return (int)(gb_random(&x->seed) % (unsigned)n); }

/* Sequences of random tokens; 1 to 6 begin as 0 does, so that parts can be copied. */
static void make_tokens(mix *x) {
    int s, i;
    for (s = 0; s < N_SEQS; s++)
        for (i = 0; i < N_TOKENS; i++)
            x->tokens[s][i] = s > 0 && i < 20 * s ? x->tokens[0][i] : below(x, x->m->n_vocab);
}

/* The model and the tokens are always the same: what is expected is computed once. */
static int set_up(mix *x, const bitnet_kernels *k, bitnet_kv_type kv) {
    static float *wanted[3][N_SEQS];
    bitnet_ctx_params p = ctx_params(N_TOKENS, 0, 1, kv);
    int s;
    memset(x, 0, sizeof *x);
    x->seed = 11;
    x->g.dim = 128, x->g.ffn = 256, x->g.layers = 2, x->g.heads = 4, x->g.kv_heads = 2;
    x->g.embed_type = GB_TENSOR_F16, x->g.n_ctx = N_TOKENS, x->g.seed = 78;
    gb_make_model(&x->g);
    x->m = load(x->g.data, x->g.size, k);
    if (!x->m) return 0;
    make_tokens(x);
    x->want = wanted[kv];
    for (s = 0; s < N_SEQS; s++) {
        if (!x->want[s])
            x->want[s] = logits_of(x->g.data, x->g.size, &bitnet__kernels_scalar, &p, x->tokens[s],
                                   N_TOKENS, N_TOKENS);
        if (!x->want[s]) return 0;
    }
    return 1;
}

static void tear_down(mix *x) {
    bitnet_model_free(x->m);
    gb_free_model(&x->g);
}

/* Are the rows of a call what each sequence had alone? */
static int rows_equal(const mix *x, bitnet_ctx *c, const bitnet_input *in, int n) {
    const size_t vocab = (size_t)x->m->n_vocab;
    int i, k;
    for (i = 0; i < n; i++)
        for (k = 0; k < in[i].n_logits; k++) {
            const int at = bitnet_seq_length(c, in[i].seq) - in[i].n_logits + k;
            const float *row = bitnet_logits(c, in[i].row + k, NULL);
            if (!row || memcmp(row, x->want[in[i].seq] + (size_t)at * vocab, vocab * sizeof *row)) {
                test_fail(__FILE__, __LINE__, "sequence %d, position %d: other bits",
                          (int)in[i].seq, at);
                return 0;
            }
        }
    return 1;
}

/* One call with a random choice of sequences, lengths and kept rows. Returns 0 on failure. */
static int random_call(mix *x, bitnet_ctx *c) {
    bitnet_input in[N_SEQS];
    bitnet_error err = {BITNET_OK, "", {0}};
    int s, n = 0, long_one = below(x, N_SEQS);
    for (s = N_SEQS; s-- > 0;) {
        const int have = bitnet_seq_length(c, s), left = N_TOKENS - have;
        int count = s == long_one ? 1 + below(x, 60) : 1 + below(x, 3);
        if (left == 0 || below(x, 4) == 0) continue;
        if (count > left) count = left;
        memset(&in[n], 0, sizeof in[n]);
        in[n].seq = s;
        in[n].tokens = x->tokens[s] + have;
        in[n].n_tokens = count;
        in[n].n_logits = below(x, 3) ? 1 : below(x, count + 1);
        n++;
    }
    if (n == 0) return 1;
    if (bitnet_eval_many(c, in, n, &err)) {
        test_fail(__FILE__, __LINE__, "eval: %s", err.text);
        return 0;
    }
    return rows_equal(x, c, in, n);
}

/* Copies and rewinds between calls. Sequence s agrees with 0 in its first 20 s tokens. */
static int random_change(mix *x, bitnet_ctx *c) {
    const int s = 1 + below(x, N_SEQS - 1), have = bitnet_seq_length(c, 0);
    const int most = have < 20 * s ? have : 20 * s;
    if (below(x, 3)) return !bitnet_seq_rewind(c, s, below(x, bitnet_seq_length(c, s) + 1), NULL);
    return !bitnet_seq_copy(c, 0, s, below(x, most + 1), NULL) &&
           !memcmp(bitnet_seq_tokens(c, s), x->tokens[s],
                   (size_t)bitnet_seq_length(c, s) * sizeof(bitnet_token));
}

static void run_mix(const bitnet_kernels *k, int threads, bitnet_kv_type kv, int rounds) {
    static mix x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 0, threads, kv);
    bitnet_ctx *c = 0;
    int i, ok = set_up(&x, k, kv);
    p.n_seqs = N_SEQS;
    p.n_logits = N_SEQS * N_TOKENS;
    p.n_batch = threads % 2 ? 16 : 200;
    if (ok) c = create(x.m, &p);
    for (i = 0; i < rounds && ok && c; i++) {
        ok = random_call(&x, c);
        if (ok && below(&x, 3) == 0) ok = random_change(&x, c);
    }
    if (!ok) test_fail(__FILE__, __LINE__, "round %d, kernels %s, %d threads", i,
                       x.m ? x.m->kernels.name : "?", threads);
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* Every table, several thread counts, all kinds of caches. */
static void test_mixes(void) {
    int k, t;
    for (k = 0; k < bitnet_kernels_count(); k++) {
        const bitnet_kernels *table = bitnet_kernels_get(k);
        const int slow = !table->needs;                /* plain C */
        for (t = 1; t <= 3 && bitnet_kernels_usable(table); t++)
            if (!test_quick() || (k + t) % 2 == 0)
                run_mix(table, t, (bitnet_kv_type)((k + t / 2) % 3),
                        test_quick() || slow ? 10 : 60);
    }
}

/* ---- generations ---- */

enum { N_GENS = 6, MOST_NEW = 30 };

/* What one generation has written. */
typedef struct script {
    char text[8192];
    size_t n_text;
    bitnet_token tokens[MOST_NEW + 8];
    int n_tokens;
    bitnet_stop why;
} script;

static int add_piece(script *x, const bitnet_gen *g) {
    bitnet_piece piece;
    bitnet_gen_piece(g, &piece);
    if (piece.text.size) memcpy(x->text + x->n_text, piece.text.data, piece.text.size);
    x->n_text += piece.text.size;
    memcpy(x->tokens + x->n_tokens, piece.tokens,
           (size_t)piece.n_tokens * sizeof *piece.tokens);
    x->n_tokens += piece.n_tokens;
    x->why = piece.why;
    return piece.ended;
}

static int add_text(void *ud, const char *text, size_t n, bitnet_token t) {
    script *x = (script *)ud;
    memcpy(x->text + x->n_text, text, n);
    x->n_text += n;
    if (t >= 0) x->tokens[x->n_tokens++] = t;
    return 0;
}

static int same_script(const script *a, const script *b) {
    return a->n_text == b->n_text && !memcmp(a->text, b->text, a->n_text) && a->why == b->why &&
           a->n_tokens == b->n_tokens &&
           !memcmp(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof *a->tokens);
}

/* Different prompts, samplers, stop strings and lookups, by number. */
static void make_params(mix *x, int i, bitnet_generate_params *p, bitnet_sampler *s) {
    static const bitnet_text stops[] = {BITNET_TEXT("ab"), BITNET_TEXT("zz"), BITNET_TEXT("the"),
                                        BITNET_TEXT("q")};
    memset(p, 0, sizeof *p);
    memset(s, 0, sizeof *s);
    s->temperature = i % 3 ? 0.9f : 0.0f;
    s->top_k = i % 2 ? 20 : 0;
    s->repeat_penalty = i == 4 ? 1.2f : 0.0f;
    s->rng = (uint64_t)(100 + i);
    p->tokens = x->tokens[i];
    p->n_tokens = i == 2 ? 90 : 3 + 7 * i;
    p->max_tokens = MOST_NEW - i;
    p->ignore_end = i % 2;
    p->lookup = i % 3 == 1 ? 4 : 0;
    p->sampler = s;
    p->stop_strings = stops;
    p->n_stop_strings = i == 3 ? 4 : 0;
}

/* The last token of a greedy generation is the best of the row that its piece names. */
static int drawn_from_row(bitnet_ctx *c, const bitnet_gen *g) {
    bitnet_piece piece;
    bitnet_logprob best;
    bitnet_gen_piece(g, &piece);
    return piece.n_tokens == 0 || (!bitnet_logprobs(c, piece.row, &best, 1, NULL) &&
                                   best.token == piece.tokens[piece.n_tokens - 1]);
}

/* Several generations in the same passes write what each writes alone; some begin late. */
static void check_gens(int threads, int n_batch) {
    static mix x;
    static script alone[N_GENS], together[N_GENS];
    bitnet_ctx_params cp = ctx_params(N_TOKENS, n_batch, threads, BITNET_KV_F16);
    bitnet_generate_params p[N_GENS];
    bitnet_sampler s[N_GENS];
    bitnet_gen *gens[N_GENS] = {0}, *list[N_GENS], *other;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_ctx *c = 0;
    int i, n, pass, ended = 0, done[N_GENS] = {0};
    memset(alone, 0, sizeof alone);
    memset(together, 0, sizeof together);
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    c = create(x.m, &cp);
    for (i = 0; i < N_GENS; i++) {
        make_params(&x, i, &p[i], &s[i]);
        p[i].text_fn = add_text;
        p[i].text_ud = &alone[i];
        CHECK(!bitnet_seq_rewind(c, 0, 0, NULL) && !bitnet_generate(c, &p[i], &alone[i].why, &err));
    }
    bitnet_ctx_free(c);
    cp.n_seqs = N_GENS;
    cp.n_logits = 2 * N_TOKENS;
    c = create(x.m, &cp);
    for (pass = 0; ended < N_GENS && pass < 1000; pass++) {
        for (i = n = 0; i < N_GENS; i++) {
            if (pass == 3 * i) {
                make_params(&x, i, &p[i], &s[i]);
                p[i].seq = N_GENS - 1 - i;
                CHECK_MSG(!bitnet_gen_begin(c, &p[i], &gens[i], &err), "%s", err.text);
                CHECK(bitnet_gen_begin(c, &p[i], &other, &err) == BITNET_ERR_BUSY);
                CHECK(bitnet_seq_rewind(c, p[i].seq, 0, NULL) == BITNET_ERR_BUSY);
            }
            if (gens[i]) list[n++] = gens[i];
        }
        CHECK_MSG(!bitnet_gen_next(list, n, &err), "%s", err.text);
        for (i = 0; i < N_GENS; i += 3)          /* 0 and 3 are greedy */
            CHECK_MSG(!gens[i] || drawn_from_row(c, gens[i]), "generation %d", i);
        for (i = 0; i < N_GENS; i++)
            if (gens[i] && add_piece(&together[i], gens[i]) && !done[i]) done[i] = 1, ended++;
    }
    for (i = 0; i < N_GENS; i++) {
        CHECK(!bitnet_gen_end(gens[i]));
        CHECK_MSG(same_script(&alone[i], &together[i]), "generation %d: %d and %d tokens, stops "
                  "%d and %d", i, alone[i].n_tokens, together[i].n_tokens, (int)alone[i].why,
                  (int)together[i].why);
        CHECK(bitnet_seq_pending(c, N_GENS - 1 - i) ==
              together[i].tokens[together[i].n_tokens - 1]);
    }
    bitnet_ctx_free(c);
    tear_down(&x);
}

static void test_gens(void) {
    check_gens(1, 0);
    check_gens(2, 5);
    check_gens(3, 64);
}

/* A generation that is ended while it reads its prompt leaves the sequence as it was. */
static void test_take_back(void) {
    static mix x;
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 8, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_gen *g = 0;
    bitnet_piece piece;
    bitnet_token pending;
    bitnet_ctx *c;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    c = create(x.m, &cp);
    make_params(&x, 2, &p, &s);
    p.max_tokens = 2;
    p.n_tokens = 5;
    CHECK(!bitnet_generate(c, &p, 0, 0) && bitnet_seq_length(c, 0) == 6);
    pending = bitnet_seq_pending(c, 0);
    CHECK(pending >= 0 && pending != 5);
    p.n_tokens = 50;
    CHECK(!bitnet_gen_begin(c, &p, &g, 0) && !bitnet_gen_next(&g, 1, 0));
    bitnet_gen_piece(g, &piece);
    CHECK(piece.n_read == 8 && piece.n_prompt == 51 && piece.n_tokens == 0 && !piece.ended);
    CHECK(!bitnet_gen_end(g));
    CHECK(bitnet_seq_length(c, 0) == 6 && bitnet_seq_pending(c, 0) == pending);
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* Beside one that has ended, a prompt is read as if it were alone: in parts of n_batch. */
static void test_parts(void) {
    static mix x;
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 50, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_gen *g[2] = {0, 0};
    bitnet_piece piece;
    bitnet_ctx *c;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    cp.n_seqs = 2;
    c = create(x.m, &cp);
    make_params(&x, 2, &p, &s);
    p.max_tokens = 1;
    CHECK(!bitnet_gen_begin(c, &p, &g[0], 0));
    p.seq = 1;
    CHECK(!bitnet_gen_begin(c, &p, &g[1], 0) && !bitnet_gen_next(&g[0], 1, 0) &&
          !bitnet_gen_next(g, 2, 0));
    bitnet_gen_piece(g[1], &piece);
    CHECK_MSG(piece.n_read == 32, "%d", (int)piece.n_read);
    CHECK(!bitnet_gen_next(&g[0], 1, 0));
    bitnet_gen_piece(g[0], &piece);
    CHECK(piece.ended && !bitnet_gen_next(g, 2, 0));
    bitnet_gen_piece(g[1], &piece);
    CHECK_MSG(piece.n_read == 82, "%d", (int)piece.n_read);
    CHECK(!bitnet_gen_end(g[0]) && !bitnet_gen_end(g[1]));
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* Odd tokens only, and at most `most` of them. */
typedef struct odd { bitnet_token tokens[MOST_NEW]; int n, most; } odd;

static void allow_odd(void *ud, uint32_t *allowed) {
    const odd *x = (const odd *)ud;
    int i;
    for (i = 0; i < 8 && x->n < x->most; i++) allowed[i] = 0xaaaaaaaau;
}

static void note_odd(void *ud, bitnet_token t) {
    odd *x = (odd *)ud;
    x->tokens[x->n++] = t;
}

/* A mask holds in a generation, with drafts too; each token is told once; where nothing is allowed
   the text ends, and it can go on later. */
static void test_mask(void) {
    static mix x;
    static script got;
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 0, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_figures stats;
    bitnet_sampler s;
    bitnet_ctx *c;
    odd rule;
    int i, lookup, length;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    c = create(x.m, &cp);
    for (lookup = 0; lookup <= 4; lookup += 4) {
        memset(&p, 0, sizeof p);
        memset(&s, 0, sizeof s);
        memset(&got, 0, sizeof got);
        memset(&rule, 0, sizeof rule);
        rule.most = 20;
        s.mask_fn = allow_odd;
        s.chosen_fn = note_odd;
        s.mask_ud = s.chosen_ud = &rule;
        p.tokens = x.tokens[0];
        p.n_tokens = 48;
        p.max_tokens = MOST_NEW;
        p.ignore_end = 1;
        p.lookup = lookup;
        p.sampler = &s;
        p.text_fn = add_text;
        p.text_ud = &got;
        CHECK(!bitnet_seq_rewind(c, 0, 0, NULL) && !bitnet_generate(c, &p, &got.why, 0));
        CHECK_MSG(got.why == BITNET_STOP_MASK && got.n_tokens == 20 && rule.n == 20,
                  "stop %d after %d tokens", (int)got.why, got.n_tokens);
        for (i = 0; i < 20; i++) CHECK(got.tokens[i] % 2 == 1 && rule.tokens[i] == got.tokens[i]);
        length = bitnet_seq_length(c, 0);
        CHECK(length == 48 + 20 && bitnet_seq_pending(c, 0) == -1 &&
              bitnet_sample(c, -1, 0, NULL) >= 0);
        bitnet_seq_figures(c, 0, &stats);
        CHECK((stats.accepted > 0) == (lookup > 0));
    }
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* ---- removing ---- */

/* What is left of a sequence has the bits of one that never held the rest. */
static void check_remove(bitnet_kv_type kv) {
    static mix x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 32, 1, kv);
    bitnet_input in = {.n_tokens = N_TOKENS, .n_logits = 1};
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_token kept[N_TOKENS];
    bitnet_generate_params gen;
    bitnet_ctx *c;
    size_t bytes;
    int round, from, to, left = 0;
    CHECK(set_up(&x, 0, kv));
    p.n_seqs = 2;
    p.hooks.cancel_fn = countdown;
    p.hooks.cancel_ud = &left;
    memset(&gen, 0, sizeof gen);
    gen.tokens = x.tokens[1];
    gen.n_tokens = 3;
    gen.max_tokens = gen.ignore_end = 1;
    c = create(x.m, &p);
    bytes = (size_t)x.m->n_vocab * sizeof(float);
    for (round = 0; round < 12; round++) {
        float *logits = (float *)malloc(bytes);
        left = INT_MAX;
        from = below(&x, N_TOKENS);
        to = round ? from + below(&x, N_TOKENS - from) : N_TOKENS;
        memcpy(kept, x.tokens[0], (size_t)from * sizeof *kept);
        memcpy(kept + from, x.tokens[0] + to, (size_t)(N_TOKENS - to) * sizeof *kept);
        in.tokens = x.tokens[0];
        CHECK(!bitnet_seq_sync(c, 1, kept, N_TOKENS - to + from, 0, &err));
        memcpy(logits, bitnet_logits(c, -1, NULL), bytes);
        CHECK(!bitnet_seq_rewind(c, 0, 0, NULL) && !bitnet_eval_many(c, &in, 1, &err));
        CHECK_MSG(!bitnet_seq_remove(c, 0, from, to, &err), "%s", err.text);
        CHECK(bitnet_seq_length(c, 0) == N_TOKENS - to + from &&
              !memcmp(bitnet_seq_tokens(c, 0), kept, (size_t)(N_TOKENS - to + from) * 4));
        if (to == N_TOKENS) CHECK(!bitnet_logits(c, -1, NULL));
        else CHECK(!memcmp(bitnet_logits(c, -1, NULL), logits, bytes));
        free(logits);
    }
    CHECK(!bitnet_seq_rewind(c, 0, 0, NULL) && !bitnet_eval_many(c, &in, 1, &err));
    CHECK(bitnet_seq_remove(c, 0, 5, N_TOKENS + 1, &err) == BITNET_ERR_ARG && err.text[0]);
    CHECK(bitnet_seq_remove(c, 0, 6, 5, 0) == BITNET_ERR_ARG);
    CHECK(bitnet_seq_remove(c, 0, -1, 5, 0) == BITNET_ERR_ARG);
    CHECK(bitnet_seq_remove(c, 2, 0, 0, 0) == BITNET_ERR_ARG);
    CHECK(bitnet_seq_length(c, 0) == N_TOKENS && bitnet_logits(c, -1, NULL));
    CHECK(!bitnet_seq_rewind(c, 0, 20, NULL) && !bitnet_generate(c, &gen, 0, 0));
    to = bitnet_seq_pending(c, 0);        /* it stays */
    CHECK(to >= 0 && !bitnet_seq_remove(c, 0, 3, 9, 0) && bitnet_seq_pending(c, 0) == to &&
          bitnet_seq_length(c, 0) == 17);
    CHECK(!bitnet_seq_remove(c, 0, 15, 17, 0) && bitnet_seq_pending(c, 0) == to);
    left = 3;
    CHECK(bitnet_seq_remove(c, 0, 5, 9, &err) == BITNET_ERR_CANCELLED);
    CHECK(bitnet_seq_length(c, 0) == 5 && bitnet_seq_pending(c, 0) == -1);
    bitnet_ctx_free(c);
    tear_down(&x);
}

static void test_remove(void) {
    check_remove(BITNET_KV_F16);
    check_remove(BITNET_KV_I8);
}

/* ---- memory ---- */

/* Pages come when they are needed, and go back when a sequence is shortened; copies share them. */
static void test_pages(void) {
    gb_counter count;
    bitnet_model_params mp;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 0, 1, BITNET_KV_F16);
    bitnet_input in = {.n_tokens = 100, .n_logits = 1};
    bitnet_error err = {BITNET_OK, "", {0}};
    static mix x;
    bitnet_model *m = 0;
    bitnet_ctx *c;
    long calls;
    int i;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    memset(&mp, 0, sizeof mp);
    mp.allocator = gb_counting(&count);
    CHECK(!bitnet_model_load_memory(x.g.data, x.g.size, &mp, &m, 0));
    p.n_seqs = 50;
    p.n_logits = 50;
    p.n_kv = 4 * 64;                   /* 4 pages; 50 sequences of 150 would need 150 */
    c = create(m, &p);
    CHECK(c);
    calls = count.calls;
    in.tokens = x.tokens[0];
    CHECK(!bitnet_eval_many(c, &in, 1, &err) && count.calls == calls + 2);
    for (i = 1; i < 50; i++)
        CHECK(!bitnet_seq_copy(c, 0, i, 99, NULL) && bitnet_seq_length(c, i) == 99);
    CHECK(count.calls == calls + 2);
    in.n_tokens = 1;                   /* two more copies of the second page */
    for (i = 1; i < 50; i++) {
        in.seq = i;
        in.tokens = &x.tokens[0][99];
        if (i <= 2) CHECK(!bitnet_eval_many(c, &in, 1, &err));
        else CHECK(bitnet_eval_many(c, &in, 1, &err) == BITNET_ERR_FULL &&
                   strstr(err.text, "n_kv") && bitnet_seq_length(c, i) == 99);
    }
    CHECK(count.calls == calls + 4 && !bitnet_seq_rewind(c, 1, 64, NULL) &&
          !bitnet_seq_rewind(c, 3, 0, NULL));
    in.seq = 4;
    in.tokens = &x.tokens[0][99];
    CHECK(!bitnet_eval_many(c, &in, 1, &err) && count.calls == calls + 4);
    CHECK(!memcmp(bitnet_logits(c, -1, NULL), x.want[0] + (size_t)99 * (size_t)m->n_vocab,
                  (size_t)m->n_vocab * sizeof(float)));
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    CHECK(count.live == 0);
    tear_down(&x);
}

/* Two sequences that share their last page grow in one call: one copy is enough. */
static void test_last_sharer(void) {
    static mix x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 0, 1, BITNET_KV_F16);
    bitnet_input in[2] = {{.n_tokens = 20, .n_logits = 1}, {.seq = 1, .n_logits = 1}};
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_ctx *c;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    p.n_seqs = 2;
    p.n_kv = 2 * 64;
    c = create(x.m, &p);
    in[0].tokens = x.tokens[0];
    CHECK(c && !bitnet_eval_many(c, in, 1, &err) && !bitnet_seq_copy(c, 0, 1, 20, NULL));
    in[0].n_tokens = in[1].n_tokens = 1;
    in[0].tokens = in[1].tokens = &x.tokens[0][20];
    CHECK_MSG(!bitnet_eval_many(c, in, 2, &err), "%s", err.text);
    CHECK(!memcmp(bitnet_logits(c, 0, NULL), bitnet_logits(c, 1, NULL),
                  (size_t)x.m->n_vocab * sizeof(float)));
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* ---- cancelling ---- */

/* Whenever it is cancelled, the sequences are as before, and the call can be repeated. */
static void test_cancel(void) {
    static mix x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 40, 2, BITNET_KV_F16);
    bitnet_input in[2] = {{.n_tokens = 60, .n_logits = 1},
                          {.seq = 1, .n_tokens = 3, .n_logits = 1}};
    bitnet_ctx *c;
    int left = 0, at = 0, cancelled = 0;
    bitnet_result r;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    p.n_seqs = 2;
    p.hooks.cancel_fn = countdown;
    p.hooks.cancel_ud = &left;
    c = create(x.m, &p);
    in[0].tokens = x.tokens[0];
    in[1].tokens = x.tokens[1];
    do {
        left = at;
        at += at / 8 + 1;
        r = bitnet_eval_many(c, in, 2, 0);
        cancelled += r == BITNET_ERR_CANCELLED;
        CHECK(r == BITNET_OK || (r == BITNET_ERR_CANCELLED && bitnet_seq_length(c, 0) == 0 &&
                                 bitnet_seq_length(c, 1) == 0 && !bitnet_logits(c, -1, NULL)));
    } while (r != BITNET_OK);
    CHECK_MSG(cancelled > 10 && rows_equal(&x, c, in, 2), "cancelled %d times", cancelled);
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* cancel_fn says so once: also a pass with a draft is cancelled, and it has no piece. Nothing is
   lost or written twice, and drafts that were wrong keep no pages. */
static int once_at(void *ud) { return --*(int *)ud == 0; }

static void test_cancel_pass(void) {
    static mix x;
    static script plain, got;
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 0, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_error err;
    bitnet_gen *g = 0;
    bitnet_figures stats;
    bitnet_ctx *c;
    int left = 0, cancelled = 0, pass, ended = 0;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    cp.hooks.cancel_fn = once_at;
    cp.hooks.cancel_ud = &left;
    c = create(x.m, &cp);
    memset(&p, 0, sizeof p);
    memset(&plain, 0, sizeof plain);
    memset(&got, 0, sizeof got);
    p.tokens = x.tokens[0];
    p.n_tokens = 48;
    p.max_tokens = MOST_NEW;
    p.ignore_end = 1;
    p.lookup = 4;
    p.text_fn = add_text;
    p.text_ud = &plain;
    CHECK(!bitnet_generate(c, &p, &plain.why, 0));
    bitnet_seq_figures(c, 0, &stats);
    CHECK(stats.drafts > 0 && !bitnet_seq_rewind(c, 0, 0, NULL));
    p.text_fn = 0;
    CHECK(!bitnet_gen_begin(c, &p, &g, 0));
    for (pass = 0; !ended && pass < 200; pass++) {
        bitnet_result r;
        left = pass % 2 ? 3 : 0;
        memset(&err, 0, sizeof err);
        r = bitnet_gen_next(&g, 1, &err);
        CHECK_MSG(r == (pass % 2 ? BITNET_ERR_CANCELLED : BITNET_OK) && err.code == r, "pass %d: "
                  "%d %s", pass, (int)r, err.text);
        CHECK(c->seqs[0].n_pages == bitnet__pages_for(c, bitnet_seq_length(c, 0)));
        cancelled += r != BITNET_OK;
        ended = add_piece(&got, g);
    }
    CHECK_MSG(cancelled > 3 && same_script(&plain, &got), "%d and %d tokens", plain.n_tokens,
              got.n_tokens);
    CHECK(!bitnet_gen_end(g));
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* Four layers, so that there is something between them. */
static int set_up_deep(mix *x) {
    memset(x, 0, sizeof *x);
    x->seed = 12;
    x->g.dim = 128, x->g.ffn = 256, x->g.layers = 4, x->g.heads = 4, x->g.kv_heads = 2;
    x->g.embed_type = GB_TENSOR_F16, x->g.n_ctx = N_TOKENS, x->g.seed = 79;
    gb_make_model(&x->g);
    x->m = load(x->g.data, x->g.size, 0);
    if (!x->m) return 0;
    make_tokens(x);
    return 1;
}

static int always_pause(void *ud) { return !ud; }

static const bitnet_piece *piece_of(const bitnet_gen *g, bitnet_piece *piece) {
    bitnet_gen_piece(g, piece);
    return piece;
}

/* ---- what a generation keeps ---- */

/* The caller's sampler, bias, stop strings and tokens may change or go as soon as it has begun; its
   sampler's state is in the pieces. */
static void test_copied(void) {
    static mix x;
    static script alone, got;
    const bitnet_logit_bias list[3] = {{7, -3.0f}, {100, 2.0f}, {9, -50.0f}};
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 16, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_gen *g = 0;
    bitnet_piece piece;
    bitnet_ctx *c;
    bitnet_logit_bias *bias = (bitnet_logit_bias *)gb_malloc(sizeof list);
    bitnet_text *stops = (bitnet_text *)gb_malloc(2 * sizeof *stops);
    bitnet_token *tokens = (bitnet_token *)gb_malloc(50 * sizeof *tokens);
    char *bytes = (char *)gb_malloc(2);
    uint64_t rng = 0;
    int round, ended;
    size_t i;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    c = create(x.m, &cp);
    memcpy(bias, list, sizeof list);
    memcpy(tokens, x.tokens[1], 50 * sizeof *tokens);
    stops[0].data = bytes, stops[0].size = 1;
    stops[1].data = bytes + 1, stops[1].size = 1;
    for (round = 0; round < 3; round++) {  /* to find a stop string, alone, and changed */
        CHECK(!bitnet_seq_rewind(c, 0, 0, NULL));
        make_params(&x, 1, &p, &s);
        s.bias = bias;
        s.n_bias = 3;
        s.frequency_penalty = 0.3f;
        p.tokens = tokens;
        p.n_tokens = 50;
        p.stop_strings = stops;
        p.n_stop_strings = round ? 2 : 0;
        if (round < 2) {
            memset(&alone, 0, sizeof alone);
            p.text_fn = add_text;
            p.text_ud = &alone;
            CHECK(!bitnet_generate(c, &p, &alone.why, 0) && alone.n_tokens > 5 && s.rng != 101);
            CHECK(round == 0 || alone.why == BITNET_STOP_STRING);
            rng = s.rng;
            for (i = alone.n_text / 2; (uint8_t)alone.text[i] > 127; i++) CHECK(i < alone.n_text);
            if (round == 0) memset(bytes, alone.text[i], 2);
            continue;
        }
        memset(&got, 0, sizeof got);
        CHECK(!bitnet_gen_begin(c, &p, &g, 0));
        memset(&p, 0x5a, sizeof p);
        memset(&s, 0x5a, sizeof s);
        memset(bias, 0x5a, sizeof list), memset(stops, 0x5a, 2 * sizeof *stops);
        memset(tokens, 0x5a, 50 * sizeof *tokens), memset(bytes, 0x5a, 2);
        free(bias), free(stops), free(tokens), free(bytes);
        bitnet_gen_piece(g, &piece);
        CHECK(piece.rng == 101 && !piece.n_tokens);
        do {
            CHECK(!bitnet_gen_next(&g, 1, 0));
            ended = add_piece(&got, g);
        } while (!ended);
        bitnet_gen_piece(g, &piece);
        CHECK(same_script(&alone, &got) && piece.rng == rng && s.rng == 0x5a5a5a5a5a5a5a5au);
        CHECK(!bitnet_gen_end(g));
    }
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* 20 tokens and 20 more, with the sampler's state of the first piece, are the 40 of one generation.
   */
static void test_gen_goes_on(void) {
    static mix x;
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 16, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_token tokens[2][40];
    bitnet_piece piece;
    bitnet_gen *g = 0;
    bitnet_ctx *c;
    int way, part, n;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    c = create(x.m, &cp);
    for (way = 0; way < 2; way++) {
        make_params(&x, 1, &p, &s);
        p.lookup = 0;
        p.max_tokens = way ? 20 : 40;
        CHECK(!bitnet_seq_rewind(c, 0, 0, NULL));
        for (part = n = 0; part < 1 + way; part++) {
            CHECK(!bitnet_gen_begin(c, &p, &g, 0));
            do {
                CHECK(!bitnet_gen_next(&g, 1, 0));
                bitnet_gen_piece(g, &piece);
                if (piece.n_tokens) tokens[way][n++] = piece.tokens[0];
            } while (!piece.ended);
            CHECK(s.rng == (part ? s.rng : 101) && piece.rng != s.rng);
            s.rng = piece.rng;
            CHECK(!bitnet_gen_end(g));
            p.tokens = 0;
        }
        CHECK(n == 40);
    }
    CHECK(!memcmp(tokens[0], tokens[1], sizeof tokens[0]));
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* The figures of a sequence are those of its text. */
static void test_figures(void) {
    static mix x;
    static script got;
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 16, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_figures f;
    bitnet_gen *g = 0;
    bitnet_piece piece;
    bitnet_ctx *c;
    int lookup, passes, read;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    cp.n_seqs = 2;
    cp.n_logits = 10;
    c = create(x.m, &cp);
    memset(&p, 0, sizeof p);
    p.seq = 1;
    p.tokens = x.tokens[0];
    p.n_tokens = 40;
    p.max_tokens = MOST_NEW;
    p.ignore_end = 1;
    for (lookup = 0; lookup <= 4; lookup += 4) {
        int drafts = 0, accepted = 0;
        memset(&got, 0, sizeof got);
        p.lookup = lookup;
        CHECK(!bitnet_seq_rewind(c, 1, 0, NULL) && !bitnet_gen_begin(c, &p, &g, 0));
        bitnet_seq_figures(c, 1, &f);
        CHECK(f.n_prompt == 40 && !f.n_read && !f.n_written && !f.n_passes && !f.read_ns);
        for (passes = read = 0, piece.ended = 0; !piece.ended; passes++) {
            CHECK(!bitnet_gen_next(&g, 1, 0));
            bitnet_gen_piece(g, &piece);
            add_piece(&got, g);
            read += piece.n_tokens == 0 || passes == 2;
            if (piece.n_tokens > 1) accepted += piece.n_tokens - 1, drafts++;
            bitnet_seq_figures(c, 1, &f);
            CHECK(f.n_read == piece.n_read && f.n_written == got.n_tokens);
            CHECK(f.n_passes == passes + 1 && f.accepted == accepted && f.drafts >= drafts);
        }
        CHECK(read == 3 && f.n_read == 40 && f.n_written == MOST_NEW);
        CHECK((lookup > 0) == (f.accepted > 0) && f.drafted >= f.accepted);
        CHECK(f.drafted <= 4 * f.drafts && (lookup > 0) == (f.drafts > 0));
#if TEST_THREADS
        CHECK(f.read_ns > 0 && f.write_ns > 0);
#endif
        CHECK(!bitnet_gen_end(g));
        memset(&f, 0, sizeof f);
        bitnet_seq_figures(c, 1, &f);              /* of the one that had it last */
        CHECK(f.n_written == MOST_NEW);
        bitnet_seq_figures(c, 0, &f);
        CHECK(!f.n_prompt && !f.n_passes);
    }
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* n_batch of a generation is what a pass reads of its prompt, alone and beside others, be it less
   or more than the context's. */
static void test_gen_batch(void) {
    static const int batches[] = {1, 7, 40, 64, N_TOKENS};
    static mix x;
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 50, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_error err;
    bitnet_piece piece;
    bitnet_ctx *c;
    size_t i;
    int beside;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    cp.n_seqs = 2;
    c = create(x.m, &cp);
    for (i = 0; i < sizeof batches / sizeof batches[0]; i++)
        for (beside = 0; beside < 2; beside++) {
            const int most = batches[i] < 90 ? batches[i] : 90;
            bitnet_gen *g[2] = {0, 0};
            make_params(&x, 2, &p, &s);            /* 90 tokens */
            p.n_batch = batches[i];
            CHECK(!bitnet_gen_begin(c, &p, &g[0], 0));
            make_params(&x, 5, &p, &s);
            p.seq = 1;
            CHECK(!bitnet_gen_begin(c, &p, &g[1], 0) && !bitnet_gen_next(g, 1 + beside, 0));
            bitnet_gen_piece(g[0], &piece);
            CHECK_MSG(piece.n_read == most, "n_batch %d: %d", batches[i], (int)piece.n_read);
            bitnet_gen_piece(g[1], &piece);
            CHECK(piece.n_read == (beside ? 32 : 0));
            CHECK(!bitnet_gen_next(g, 1, 0));
            bitnet_gen_piece(g[0], &piece);
            CHECK(piece.n_read == (2 * most < 90 ? 2 * most : 90));
            CHECK(!bitnet_gen_end(g[0]) && !bitnet_gen_end(g[1]));
            CHECK(!bitnet_seq_rewind(c, 0, 0, NULL) && !bitnet_seq_rewind(c, 1, 0, NULL));
        }
    p.n_batch = -1;
    CHECK(bitnet_generate(c, &p, 0, &err) == BITNET_ERR_ARG && strstr(err.text, "n_batch"));
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* A layer that takes 3 ms of the processor, which is less than what a clock would say. */
static void take_time(void *ud, int layer, const float *x, int n_tokens) {
    const clock_t start = clock();
    (void)layer, (void)x, (void)n_tokens;
    while (*(int *)ud && clock() - start < CLOCKS_PER_SEC * 3 / 1000) {}
}

static int n_read(const bitnet_gen *g) {
    bitnet_piece piece;
    bitnet_gen_piece(g, &piece);
    return piece.n_read;
}

/* Passes with one text that is written and one or two prompts: how far each prompt is after each
   pass. With an hour between tokens prompts go on by more and more tokens; from pass `late` on it
   is a millisecond, which every pass exceeds, and after the first of these they go on by 8. */
static void check_gap(const mix *x, int late, int readers, const int *want, int passes) {
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 50, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_gen *g[3] = {0, 0, 0};
    bitnet_ctx *c;
    int slow = 0, i, k;
    cp.n_seqs = 3;
    cp.gap_ms = 3600000;
    cp.hooks.layer_fn = take_time;
    cp.hooks.layer_ud = &slow;
    c = create(x->m, &cp);
    for (i = 0; i <= readers; i++) {
        make_params((mix *)(uintptr_t)x, i ? 2 : 5, &p, &s);       /* 38 tokens, or 90 */
        p.seq = i;
        CHECK(!bitnet_gen_begin(c, &p, &g[i], 0));
        if (i == 0) CHECK(!bitnet_gen_next(g, 1, 0) && n_read(g[0]) == 38);
    }
    for (k = 0; k < passes; k++) {
        slow = k >= late;
        c->p.gap_ms = slow ? 1 : 3600000;
        CHECK(!bitnet_gen_next(g, 1 + readers, 0));
        for (i = 1; i <= readers; i++)
            CHECK_MSG(n_read(g[i]) == want[k], "slow from pass %d, %d prompts, pass %d: %d tokens",
                      late, readers, k, n_read(g[i]));
    }
    for (i = 0; i <= readers; i++) CHECK(!bitnet_gen_end(g[i]));
    bitnet_ctx_free(c);
}

static void test_gap(void) {
    static mix x;
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 50, 1, BITNET_KV_F16);
    bitnet_error err;
    bitnet_ctx *c;
#if !TEST_THREADS                      /* there is no clock */
    static const int by_32[] = {32, 64, 90};
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    check_gap(&x, 9, 2, by_32, 3);
#else
    static const int fast[] = {8, 24, 56, 90}, two_fast[] = {4, 12, 28, 53, 78, 90},
                     slower[] = {8, 24, 56, 64, 72}, two_slower[] = {4, 12, 28, 32, 36};
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    check_gap(&x, 9, 1, fast, 4);
    check_gap(&x, 9, 2, two_fast, 6);
    check_gap(&x, 2, 1, slower, 5);
    check_gap(&x, 2, 2, two_slower, 5);
#endif
    cp.gap_ms = -1;
    CHECK(bitnet_ctx_create(x.m, &cp, &c, &err) == BITNET_ERR_ARG && strstr(err.text, "gap_ms"));
    tear_down(&x);
}

/* ---- freeing ---- */

/* A model lives as long as its contexts, a context as long as its generations: whatever goes first,
   the rest can be used, and the last one leaves nothing. */
static void free_in_order(const mix *x, int order, int passes) {
    gb_counter count;
    bitnet_model_params mp;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 8, 2, BITNET_KV_F16);
    bitnet_generate_params gen;
    bitnet_model *m = 0;
    bitnet_ctx *c[2] = {0, 0};
    bitnet_gen *g[2] = {0, 0};
    bitnet_piece piece;
    bitnet_error err;
    int i;
    memset(&mp, 0, sizeof mp);
    mp.allocator = gb_counting(&count);
    CHECK(!bitnet_model_load_memory(x->g.data, x->g.size, &mp, &m, 0));
    p.n_seqs = 2;
    if (order & 8) p.hooks.pause_fn = always_pause;
    for (i = 0; i < 2; i++) CHECK(!bitnet_ctx_create(m, &p, &c[i], 0));
    if (order & 1) bitnet_model_free(m);
    memset(&gen, 0, sizeof gen);
    gen.tokens = x->tokens[0];
    gen.n_tokens = 20;
    for (gen.seq = 0; gen.seq < 2; gen.seq++) CHECK(!bitnet_gen_begin(c[0], &gen, &g[gen.seq], 0));
    for (i = 0; i < passes; i++) CHECK(!bitnet_gen_next(g, 2, 0));
    CHECK(!bitnet_ctx_free(c[0]));
    CHECK(bitnet_gen_next(g, 2, &err) == BITNET_ERR_ARG && strstr(err.text, "freed"));
    bitnet_gen_piece(g[order >> 1 & 1], &piece);
    CHECK(piece.n_prompt == 20 && !piece.ended && (passes == 0 || piece.text.data));
    CHECK(!bitnet_gen_end(g[order >> 1 & 1]));
    bitnet_gen_piece(g[~order >> 1 & 1], &piece);
    CHECK(piece.n_prompt == 20 && count.live > 0);
    if (order & 4) CHECK(!bitnet_ctx_free(c[1]));
    CHECK(!bitnet_gen_end(g[~order >> 1 & 1]));
    if (!(order & 4)) {
        CHECK(bitnet_ctx_model(c[1]) == m && !bitnet_eval(c[1], 0, x->tokens[0], 9, 1, 0));
        CHECK(!memcmp(bitnet_logits(c[1], 0, NULL), x->want[0] + (size_t)8 * (size_t)m->n_vocab,
                      (size_t)m->n_vocab * sizeof(float)));
        CHECK(!bitnet_ctx_free(c[1]));
    }
    if (!(order & 1)) {
        CHECK(count.live > 0);
        bitnet_model_free(m);
    }
    CHECK_MSG(count.live == 0, "order %d: %ld blocks are left", order, count.live);
}

static void test_free_order(void) {
    static mix x;
    int order, passes;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    for (order = 0; order < 16; order++)
        for (passes = 0; passes < 4; passes++) free_in_order(&x, order, passes);
    tear_down(&x);
}

/* ---- cancelling one of several ---- */

/* Its cancel_fn ends one generation of a pass, whenever it says so; the call tells, and the others
   write what they write alone. */
static void test_cancel_one(void) {
    static mix x;
    static script alone[3], got[3];
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 16, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_error err;
    bitnet_ctx *c;
    int i, at, left = 0, of_prompt = 0, of_text = 0, cancelled = 1;
    memset(alone, 0, sizeof alone);
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    cp.n_seqs = 3;
    cp.n_logits = 20;
    c = create(x.m, &cp);
    for (i = 0; i < 3; i++) {
        make_params(&x, i, &p, &s);
        p.text_fn = add_text;
        p.text_ud = &alone[i];
        CHECK(!bitnet_generate(c, &p, &alone[i].why, 0) && !bitnet_seq_rewind(c, 0, 0, NULL));
    }
    for (at = 1; cancelled; at += 1 + at / 8) {
        bitnet_gen *g[3] = {0, 0, 0};
        bitnet_piece piece;
        int open = 3, pass, done[3] = {0, 0, 0};
        cancelled = 0;
        memset(got, 0, sizeof got);
        left = at;
        for (i = 0; i < 3; i++) {
            make_params(&x, i, &p, &s);
            p.seq = i;
            if (i == 2) p.cancel_fn = once_at, p.cancel_ud = &left;    /* the long prompt */
            CHECK(!bitnet_gen_begin(c, &p, &g[i], 0));
        }
        for (pass = 0; open > 0 && pass < 200; pass++) {
            const bitnet_result r = bitnet_gen_next(g, 3, &err);
            if (r != BITNET_OK) {
                CHECK_MSG(r == BITNET_ERR_CANCELLED && !cancelled && left <= 0, "%s", err.text);
                bitnet_gen_piece(g[2], &piece);
                CHECK(piece.ended && !piece.n_tokens);
                CHECK(strstr(err.text, got[2].n_tokens ? "the text was" : "the prompt was"));
                cancelled = 1;
                of_prompt += got[2].n_tokens == 0;
                of_text += got[2].n_tokens > 0;
            }
            for (i = 0; i < 3; i++)
                if (add_piece(&got[i], g[i]) && !done[i]) done[i] = 1, open--;
        }
        for (i = 0; i < 3 - cancelled; i++)
            CHECK_MSG(same_script(&alone[i], &got[i]), "cancelled at %d: generation %d", at, i);
        CHECK(!memcmp(got[2].tokens, alone[2].tokens,
                      (size_t)got[2].n_tokens * sizeof(bitnet_token)));
        for (i = 0; i < 3; i++) CHECK(!bitnet_gen_end(g[i]));
        if (cancelled) {
            const int n = got[2].n_tokens;
            CHECK(bitnet_seq_length(c, 2) == (n ? 90 + n - 1 : 0));
            CHECK(bitnet_seq_pending(c, 2) == (n ? got[2].tokens[n - 1] : -1));
        }
        for (i = 0; i < 3; i++) CHECK(!bitnet_seq_rewind(c, i, 0, NULL));
    }
    CHECK_MSG(of_prompt > 2 && of_text > 2, "%d and %d cancelled", of_prompt, of_text);
    left = 3;                          /* of bitnet_generate, too */
    make_params(&x, 2, &p, &s);
    p.cancel_fn = once_at, p.cancel_ud = &left;
    CHECK(bitnet_generate(c, &p, 0, &err) == BITNET_ERR_CANCELLED && bitnet_seq_length(c, 0) == 0);
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* A pass that fails says why, even if its list still has a generation that was cancelled before. */
static void test_cancelled_before(void) {
    static mix x;
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 16, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_error err;
    bitnet_gen *g[2];
    bitnet_ctx *c;
    int left = 1;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    cp.n_seqs = 2;
    cp.n_kv = 64;
    c = create(x.m, &cp);
    make_params(&x, 0, &p, &s);
    p.cancel_fn = once_at, p.cancel_ud = &left;
    CHECK(!bitnet_gen_begin(c, &p, &g[0], 0));
    CHECK(bitnet_gen_next(g, 1, &err) == BITNET_ERR_CANCELLED && err.code == BITNET_ERR_CANCELLED);
    make_params(&x, 2, &p, &s);        /* 90 tokens */
    p.seq = 1;
    p.n_batch = 90;
    CHECK(!bitnet_gen_begin(c, &p, &g[1], 0));
    CHECK_MSG(bitnet_gen_next(g, 2, &err) == BITNET_ERR_FULL && err.code == BITNET_ERR_FULL &&
              strstr(err.text, "n_kv"), "%s", err.text);
    CHECK(!bitnet_gen_end(g[0]) && !bitnet_gen_end(g[1]));
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* ---- pausing ---- */

/* Says so each time, or at random; and the order in which it was asked. */
typedef struct pauser { int one_in, asked, said; uint64_t seed; } pauser;

static int pause_some(void *ud) {
    pauser *p = (pauser *)ud;
    p->asked++;
    p->said = p->one_in && gb_random(&p->seed) % (unsigned)p->one_in == 0;
    return p->said;
}

/* A digest of a row of logits; 0: there is none. */
static uint64_t row_digest(bitnet_ctx *c, int32_t row) {
    const float *logits = bitnet_logits(c, row, NULL);
    uint64_t h = 14695981039346656037u;
    int32_t i;
    for (i = 0; logits && i < c->m->n_vocab; i++)
        h = (h ^ bitnet__float_bits(logits[i])) * 1099511628211u;
    return logits ? h : 0;
}

/* A script, and the rows that its tokens are from; 0: not known. */
typedef struct paused {
    script x;
    uint64_t rows[MOST_NEW + 8];
    bitnet_ctx *c;
} paused;

static int add_text_and_row(void *ud, const char *text, size_t n, bitnet_token t) {
    paused *p = (paused *)ud;
    if (t >= 0) p->rows[p->x.n_tokens] = row_digest(p->c, -1);
    return add_text(&p->x, text, n, t);
}

static int same_rows(const paused *a, const paused *b) {
    int i;
    for (i = 0; i < a->x.n_tokens; i++)
        if (b->rows[i] && a->rows[i] != b->rows[i]) return 0;
    return 1;
}

/* Calls between two parts of a pass: all but the first drop what was computed. */
enum { NOTHING, REWIND, EVAL, LOGITS, BEGIN, FEWER, END, THREADS, HOOKS, SAVE, N_BETWEEN };

/* Makes the call. spare is a sequence that no generation has, but for *victim. */
static int call_between(mix *x, bitnet_ctx *c, int what, bitnet_gen **list, int n, int spare,
                        bitnet_gen **victim) {
    const bitnet_hooks hooks = c->p.hooks;
    static uint8_t saved[1 << 16];
    bitnet_generate_params p;
    bitnet_gen *g = 0;
    memset(&p, 0, sizeof p);
    p.seq = spare;
    p.tokens = x->tokens[1];
    p.n_tokens = 5;
    switch (what) {
        case REWIND: return !bitnet_seq_rewind(c, spare, 0, 0);
        case EVAL:
            return !bitnet_eval(c, spare, x->tokens[2], 3, 1, 0) &&
                   !bitnet_seq_rewind(c, spare, 0, 0);
        case LOGITS: return !bitnet_logits(c, -1, 0);
        case BEGIN: return !bitnet_gen_begin(c, &p, &g, 0) && !bitnet_gen_end(g);
        case FEWER: return bitnet_gen_next(list, n > 1 ? n - 1 : n, 0) == BITNET_OK;
        case END:
            g = *victim;
            *victim = 0;
            return !bitnet_gen_end(g) && !bitnet_seq_rewind(c, spare, 0, 0);
        case THREADS: return !bitnet_ctx_set_threads(c, 1, 0);
        case HOOKS: return !bitnet_ctx_set_hooks(c, &hooks, 0);
        case SAVE: return !bitnet_seq_save_memory(c, spare, saved, sizeof saved, 0);
        default: return 1;
    }
}

/* What the sequences hold, to see that a paused pass shows nothing. */
typedef struct shown { int length[N_GENS + 1]; bitnet_token pending[N_GENS + 1]; } shown;

static shown look(const bitnet_ctx *c) {
    shown s;
    int i;
    for (i = 0; i <= N_GENS; i++) {
        s.length[i] = bitnet_seq_length(c, i);
        s.pending[i] = bitnet_seq_pending(c, i);
    }
    return s;
}

/* The generations of all kinds, in passes that are paused after each layer (one_in 1) or some of
   them; with a call of this kind in some of the pauses. */
static void check_paused(mix *x, const paused *alone, int threads, int n_batch, int one_in,
                         int between) {
    static paused got[N_GENS];
    bitnet_ctx_params cp = ctx_params(N_TOKENS, n_batch, threads, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_gen *gens[N_GENS] = {0}, *list[N_GENS + 1], *victim = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_piece piece;
    pauser pauses = {0, 0, 0, 17};
    bitnet_ctx *c;
    int i, n, pass, ended = 0, paused_passes = 0, made = 0, done[N_GENS] = {0};
    memset(got, 0, sizeof got);
    cp.n_seqs = N_GENS + 1;
    cp.n_logits = 2 * N_TOKENS;
    cp.hooks.pause_fn = pause_some;
    cp.hooks.pause_ud = &pauses;
    pauses.one_in = one_in;
    c = create(x->m, &cp);
    c->min_task = 200;                 /* so that the head has few parts */
    for (pass = 0; ended < N_GENS && pass < 20000; pass++) {
        const shown before = look(c);
        shown after;
        for (i = n = 0; i < N_GENS; i++) {
            if (pass == 3 * i) {
                make_params(x, i, &p, &s);
                p.seq = i;
                CHECK(!bitnet_gen_begin(c, &p, &gens[i], &err));
            }
            if (gens[i]) list[n++] = gens[i];
        }
        if (between == END && !victim) {
            make_params(x, 2, &p, &s);
            p.seq = N_GENS;
            p.tokens = x->tokens[1];
            CHECK(!bitnet_gen_begin(c, &p, &victim, &err));
        }
        if (victim) list[n++] = victim;
        pauses.said = 0;
        CHECK_MSG(!bitnet_gen_next(list, n, &err), "%s", err.text);
        if (pauses.said) {
            paused_passes++;
            for (i = 0; i < n; i++) {
                bitnet_gen_piece(list[i], &piece);
                CHECK(!piece.n_tokens && !piece.text.size);
            }
            after = look(c);
            CHECK(!memcmp(&before, &after, sizeof before));
            if (between && gb_random(&x->seed) % 16 == 0) {
                made++;
                pauses.one_in = 0;
                CHECK_MSG(call_between(x, c, between, list, n, N_GENS, &victim), "call %d",
                          between);
                pauses.one_in = one_in;
                after = look(c);
                CHECK(between == FEWER || between == END ||
                      !memcmp(&before, &after, sizeof before));
            }
            if (between != FEWER) continue;
        }
        for (i = 0; i < N_GENS; i++) {
            if (!gens[i]) continue;
            bitnet_gen_piece(gens[i], &piece);
            if (!done[i] && add_piece(&got[i].x, gens[i])) done[i] = 1, ended++;
            if (!pauses.said && piece.n_tokens > 0 && got[i].x.n_tokens <= MOST_NEW)
                got[i].rows[got[i].x.n_tokens - 1] = row_digest(c, piece.row);
        }
    }
    CHECK_MSG(ended == N_GENS && (one_in > 1 || paused_passes > 100),
              "call %d, one in %d: %d ended after %d passes, %d of them paused", between, one_in,
              ended, pass, paused_passes);
    CHECK_MSG(!between || made > 3, "only %d calls between", made);
    for (i = 0; i < N_GENS; i++) {
        CHECK(!bitnet_gen_end(gens[i]));
        CHECK_MSG(same_script(&alone[i].x, &got[i].x) && same_rows(&alone[i], &got[i]),
                  "call %d, one in %d, n_batch %d: generation %d, %d and %d tokens", between,
                  one_in, n_batch, i, alone[i].x.n_tokens, got[i].x.n_tokens);
        CHECK(bitnet_seq_pending(c, i) == got[i].x.tokens[got[i].x.n_tokens - 1]);
    }
    CHECK(!bitnet_gen_end(victim));
    bitnet_ctx_free(c);
}

/* What is paused gives the same texts, tokens and logits as what is not. */
static void test_pause(void) {
    static mix x;
    static paused alone[N_GENS];
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 0, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_ctx *c;
    int i;
    memset(alone, 0, sizeof alone);
    CHECK(set_up_deep(&x));
    c = create(x.m, &cp);
    for (i = 0; i < N_GENS; i++) {
        make_params(&x, i, &p, &s);
        p.text_fn = add_text_and_row;
        p.text_ud = &alone[i];
        alone[i].c = c;
        CHECK(!bitnet_generate(c, &p, &alone[i].x.why, 0) && !bitnet_seq_rewind(c, 0, 0, NULL));
    }
    bitnet_ctx_free(c);
    check_paused(&x, alone, 1, 0, 1, NOTHING);
    check_paused(&x, alone, 2, 20, 1, NOTHING);
    check_paused(&x, alone, 1, 5, 3, NOTHING);
    check_paused(&x, alone, 3, 64, 2, NOTHING);
    for (i = REWIND; i < N_BETWEEN; i++) {
        check_paused(&x, alone, 1 + i % 2, i % 3 ? 20 : 0, 1 + i % 3, i);
        if (!test_quick()) check_paused(&x, alone, 1, i % 3 ? 0 : 7, 1, i);
    }
    tear_down(&x);
}

/* Only the generations of a paused pass say so. */
static void test_pause_apart(void) {
    static mix x;
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 16, 1, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_gen *g[2];
    bitnet_piece piece;
    pauser pauses = {0, 0, 0, 3};
    int i;
    bitnet_ctx *c;
    CHECK(set_up(&x, 0, BITNET_KV_F16));
    cp.n_seqs = 2;
    cp.n_logits = 20;
    cp.hooks.pause_fn = pause_some;
    cp.hooks.pause_ud = &pauses;
    c = create(x.m, &cp);
    for (i = 0; i < 2; i++) {
        make_params(&x, 0, &p, &s);
        p.seq = i;
        CHECK(!bitnet_gen_begin(c, &p, &g[i], 0));
    }
    CHECK(!bitnet_gen_next(&g[0], 1, 0));
    pauses.one_in = 1;
    CHECK(!bitnet_gen_next(&g[1], 1, 0));
    for (i = 0; i < 2; i++) {
        bitnet_gen_piece(g[i], &piece);
        CHECK_MSG(piece.paused == i && piece.n_tokens == 1 - i, "generation %d", i);
    }
    for (i = 0; i < 2; i++) CHECK(!bitnet_gen_end(g[i]));
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* It is asked between layers, in bitnet_gen_next alone; and what was paused can be cancelled. */
static void test_pause_asks(void) {
    static mix x;
    bitnet_ctx_params cp = ctx_params(N_TOKENS, 16, 2, BITNET_KV_F16);
    bitnet_generate_params p;
    bitnet_sampler s;
    pauser pauses = {1, 0, 0, 17};
    bitnet_error err;
    bitnet_gen *g = 0;
    bitnet_piece piece;
    bitnet_ctx *c;
    int left = INT_MAX, calls, asked;
    CHECK(set_up_deep(&x));
    cp.hooks.pause_fn = pause_some;
    cp.hooks.cancel_fn = countdown;
    cp.hooks.cancel_ud = &left;
    cp.hooks.pause_ud = &pauses;
    c = create(x.m, &cp);
    make_params(&x, 2, &p, &s);
    p.max_tokens = 3;
    CHECK(!bitnet_eval(c, 0, x.tokens[0], 20, 1, 0) && !bitnet_generate(c, &p, 0, 0));
    CHECK(pauses.asked == 0 && !bitnet_seq_rewind(c, 0, 0, 0) && !bitnet_gen_begin(c, &p, &g, 0));
    for (calls = 1; !piece_of(g, &piece)->ended && calls < 1000; calls++)
        CHECK(!bitnet_gen_next(&g, 1, 0));
    /* 4 layers have 3 places between them, and the head has others; 6 chunks of the prompt, then 2
       tokens */
    asked = pauses.asked;
    CHECK_MSG(calls - 1 == asked + 6 + 2 && asked >= (6 + 2) * 3, "%d calls, asked %d times",
              calls - 1, asked);
    CHECK(!bitnet_gen_end(g) && !bitnet_seq_rewind(c, 0, 0, 0));
    CHECK(!bitnet_eval(c, 0, x.tokens[0], 20, 1, 0) && pauses.asked == asked);
    CHECK(!bitnet_seq_rewind(c, 0, 0, 0) && !bitnet_gen_begin(c, &p, &g, 0));
    for (calls = 0; calls < 6; calls++) CHECK(!bitnet_gen_next(&g, 1, 0));
    CHECK(bitnet_seq_length(c, 0) == 16 && piece_of(g, &piece)->n_read == 16);
    left = 1;
    CHECK(bitnet_gen_next(&g, 1, &err) == BITNET_ERR_CANCELLED && bitnet_seq_length(c, 0) == 16);
    left = INT_MAX;
    CHECK(!bitnet_ctx_set_hooks(c, 0, 0) && !bitnet_gen_next(&g, 1, 0));
    CHECK(bitnet_seq_length(c, 0) == 32 && !bitnet_gen_end(g) && bitnet_seq_length(c, 0) == 0);
    bitnet_ctx_free(c);
    tear_down(&x);
}

/* ---- layers whose state has a fixed size ---- */

/* A kind that no model has: half of what it saw before is added to each token. */
static size_t fading_state(const bitnet_model *m) { return (size_t)m->dim; }

static void fading_forward(bitnet__step *s, int32_t layer) {
    const bitnet_model *m = s->c->m;
    int t, i;
    for (t = 0; t < s->n_tokens; t++) {
        float *state = bitnet__seq_state(s->c, s->c->places[t].seq) + m->layers[layer].state;
        float *x = s->c->x + (size_t)t * (size_t)m->dim;
        for (i = 0; i < m->dim; i++) {
            x[i] += 0.5f * state[i];
            state[i] = x[i];
        }
        if (s->c->places[t].mark) bitnet__mark_state(s, t, state, m->dim);
    }
}

static const bitnet__layer_kind fading = {0, 0, fading_state, fading_forward};

/* Two layers of this kind, each with one of attention behind it. */
static int set_up_fading(mix *x) {
    int i;
    if (!set_up_deep(x)) return 0;
    x->m->n_caches = 0;
    for (i = 0; i < 4; i++)
        bitnet__set_kind(x->m, &x->m->layers[i], i % 2 ? x->m->layers[i].kind : &fading);
    return x->m->n_caches == 2 && x->m->n_state == 256 && x->m->layers[3].cache == 1;
}

/* Appends tokens [from, to) of sequence 0 to a sequence, `step` at a time. Do the logits of the
   last one have the bits of row to - 1 of want? */
static int goes_on(const mix *x, bitnet_ctx *c, int seq, int from, int to, int step,
                   const float *want) {
    const size_t vocab = (size_t)x->m->n_vocab;
    bitnet_input in;
    memset(&in, 0, sizeof in);
    in.seq = seq;
    in.n_logits = 1;
    for (; from < to; from += in.n_tokens) {
        in.tokens = x->tokens[0] + from;
        in.n_tokens = to - from < step ? to - from : step;
        if (bitnet_eval_many(c, &in, 1, 0)) return 0;
    }
    return bitnet_seq_length(c, seq) == to &&
           !memcmp(bitnet_logits(c, -1, NULL), want + (size_t)(to - 1) * vocab,
                   vocab * sizeof *want);
}

/* A sequence that was rewound, or copied in part, goes on with the same bits. */
static void check_fading_cuts(const mix *x, bitnet_ctx *c, const float *want) {
    CHECK(goes_on(x, c, 0, 0, 70, 70, want) && goes_on(x, c, 1, 0, 50, 1, want));
    CHECK(!bitnet_seq_copy(c, 1, 2, 20, NULL) && goes_on(x, c, 2, 20, 30, 3, want));
    CHECK(!bitnet_seq_rewind(c, 1, 20, NULL) && goes_on(x, c, 1, 20, 50, 4, want));
    CHECK(!bitnet_seq_rewind(c, 1, 50, NULL) && !bitnet_seq_copy(c, 1, 2, 50, NULL));
    CHECK(goes_on(x, c, 2, 50, 60, 7, want) && goes_on(x, c, 1, 50, 60, 3, want));
    CHECK(!bitnet_seq_copy(c, 1, 2, 0, NULL) && goes_on(x, c, 2, 0, 9, 4, want));
    CHECK(!bitnet_seq_rewind(c, 1, 0, NULL) && goes_on(x, c, 1, 0, 30, 30, want));
    CHECK(goes_on(x, c, 0, 70, 80, 5, want));
}

/* What sync and remove leave has the bits of a sequence that never held the rest. */
static void check_fading_changes(const mix *x, bitnet_ctx *c, const float *want) {
    const bitnet_token *tokens = x->tokens[0];
    bitnet_token other[40];
    int32_t kept = -1;
    CHECK(!bitnet_seq_rewind(c, 1, 0, NULL) && goes_on(x, c, 1, 0, 30, 30, want));
    CHECK(!bitnet_seq_sync(c, 1, tokens, 40, &kept, 0) && kept == 30 &&
          goes_on(x, c, 1, 40, 41, 1, want));
    CHECK(!bitnet_seq_sync(c, 1, tokens, 35, &kept, 0) && kept > 17 &&
          goes_on(x, c, 1, 35, 36, 1, want));
    memcpy(other, tokens, sizeof other);
    memmove(other + 13, other + 10, 20 * sizeof *other);
    CHECK(!bitnet_seq_sync(c, 1, other, 33, 0, 0) && !bitnet_seq_remove(c, 1, 10, 13, 0) &&
          goes_on(x, c, 1, 30, 31, 1, want));
    CHECK(!bitnet_seq_remove(c, 1, 25, 31, 0) && goes_on(x, c, 1, 25, 26, 1, want));
    CHECK(!bitnet_seq_remove(c, 1, 0, 26, 0) && goes_on(x, c, 1, 0, 5, 2, want));
}

/* After a failed evaluation a sequence goes on, and so does a saved one. */
static void check_fading_failures(const mix *x, bitnet_ctx *c, int *left, const float *want) {
    const size_t bytes = 52 + 30 * (4 + 2 * 2 * 2 * 64) + 256 * 4;     /* of 30 tokens */
    uint8_t *saved = (uint8_t *)malloc(bytes);
    bitnet_generate_params gen;
    bitnet_gen *g = 0;
    bitnet_piece piece;
    bitnet_input in;
    memset(&in, 0, sizeof in);
    in.seq = 1;
    in.tokens = x->tokens[0];
    in.n_tokens = 40;
    CHECK(!bitnet_seq_rewind(c, 1, 0, NULL) && goes_on(x, c, 1, 0, 30, 30, want));
    CHECK(bitnet_seq_state_bytes(c, 1) == bytes && !bitnet_seq_save_memory(c, 1, saved, bytes, 0));
    *left = 4;
    CHECK(bitnet_eval_many(c, &in, 1, 0) == BITNET_ERR_CANCELLED && bitnet_seq_length(c, 1) == 30);
    *left = INT_MAX;
    CHECK(goes_on(x, c, 1, 30, 40, 4, want));
    CHECK(!bitnet_seq_load_memory(c, 2, saved, bytes, 0) && goes_on(x, c, 2, 30, 40, 5, want));
    memset(&gen, 0, sizeof gen);       /* a generation whose pass fails goes on, too */
    gen.seq = 2;
    gen.tokens = x->tokens[0] + 40;
    gen.n_tokens = 3;
    gen.max_tokens = 9;
    gen.ignore_end = 1;
    CHECK(!bitnet_gen_begin(c, &gen, &g, 0) && !bitnet_gen_next(&g, 1, 0));
    *left = 4;
    CHECK(bitnet_gen_next(&g, 1, 0) == BITNET_ERR_CANCELLED && bitnet_seq_length(c, 2) == 43);
    *left = INT_MAX;
    bitnet_gen_piece(g, &piece);
    CHECK(!piece.ended && !bitnet_gen_next(&g, 1, 0) && bitnet_seq_length(c, 2) == 44);
    CHECK(!bitnet_gen_end(g) && !bitnet_seq_rewind(c, 2, 43, 0));
    CHECK(goes_on(x, c, 2, 43, 50, 7, want));
    free(saved);
}

static void test_fixed_state(void) {
    static mix x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 16, 2, BITNET_KV_F16);
    bitnet_generate_params gen;
    bitnet_figures stats;
    bitnet_token plain[N_TOKENS];
    bitnet_ctx *c;
    float *want;
    int left = INT_MAX, i;
    CHECK(set_up_fading(&x));
    p.n_seqs = 3;
    p.n_logits = N_TOKENS;
    p.hooks.cancel_fn = countdown;
    p.hooks.cancel_ud = &left;
    c = create(x.m, &p);
    want = (float *)malloc((size_t)N_TOKENS * (size_t)x.m->n_vocab * sizeof *want);
    for (i = 0; i < N_TOKENS; i++) {
        CHECK(!bitnet_eval(c, 0, x.tokens[0] + i, 1, 1, 0));
        memcpy(want + (size_t)i * (size_t)x.m->n_vocab, bitnet_logits(c, -1, NULL),
               (size_t)x.m->n_vocab * sizeof *want);
    }
    CHECK(!bitnet_seq_rewind(c, 0, 0, NULL));
    check_fading_cuts(&x, c, want);
    check_fading_changes(&x, c, want);
    check_fading_failures(&x, c, &left, want);
    memset(&gen, 0, sizeof gen);       /* a text that repeats itself, with and without lookup */
    for (i = 0; i < 60; i++) x.tokens[1][i] = x.tokens[0][i % 6];
    gen.tokens = x.tokens[1];
    gen.n_tokens = 60;
    gen.max_tokens = 60;
    gen.ignore_end = 1;
    for (gen.lookup = 0; gen.lookup <= 4; gen.lookup += 4) {
        CHECK(!bitnet_seq_rewind(c, 0, 0, NULL) && !bitnet_generate(c, &gen, 0, 0));
        if (gen.lookup == 0) memcpy(plain, bitnet_seq_tokens(c, 0), 119 * sizeof *plain);
    }
    CHECK(bitnet_seq_length(c, 0) == 119 &&
          !memcmp(plain, bitnet_seq_tokens(c, 0), 119 * sizeof *plain));
    bitnet_seq_figures(c, 0, &stats);
    CHECK(stats.drafts == 0);
    free(want);
    bitnet_ctx_free(c);
    tear_down(&x);
}

extern const test_case sequences_tests[];
const test_case sequences_tests[] = {
    {"sequences/mixes", test_mixes},
    {"sequences/gens", test_gens},
    {"sequences/take_back", test_take_back},
    {"sequences/parts", test_parts},
    {"sequences/mask", test_mask},
    {"sequences/remove", test_remove},
    {"sequences/fixed_state", test_fixed_state},
    {"sequences/pages", test_pages},
    {"sequences/last_sharer", test_last_sharer},
    {"sequences/cancel", test_cancel},
    {"sequences/cancel_pass", test_cancel_pass},
    {"sequences/copied", test_copied},
    {"sequences/gen_goes_on", test_gen_goes_on},
    {"sequences/figures", test_figures},
    {"sequences/gen_batch", test_gen_batch},
    {"sequences/gap", test_gap},
    {"sequences/free_order", test_free_order},
    {"sequences/cancel_one", test_cancel_one},
    {"sequences/cancelled_before", test_cancelled_before},
    {"sequences/pause", test_pause},
    {"sequences/pause_apart", test_pause_apart},
    {"sequences/pause_asks", test_pause_asks},
    {0, 0}
};
