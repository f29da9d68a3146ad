/* The screened head: whatever the hidden state and the head hold, the draw is the full head's. */
#include "gguf_builder.h"
#include "test.h"

#include <math.h>

enum { DIM = 192, HEAD_ROWS = 2600 };

typedef struct bench {
    gb_model g;
    bitnet_model *m;
    bitnet_ctx *c;
    float full[HEAD_ROWS];                  /* all logits of the hidden state */
    uint64_t seed;
    long draws, exact, fine;           /* how many were screened, their exact rows, and how many
                                          read both planes */
} bench;

static float normal(uint64_t *seed) {  /* about: the sum of 12 uniform numbers */
    double sum = 0;
    int i;
    for (i = 0; i < 12; i++) sum += gb_uniform(seed, -0.5, 0.5);
    return (float)sum;
}

static uint8_t *head_row(bench *b, int r) {
    size_t row = (size_t)DIM * (b->m->head.type == BITNET_TENSOR_F32 ? 4u : 2u);
    return b->g.data + (b->m->head.data - b->g.data) + (size_t)r * row;
}

/* A head with equal rows, rows that differ in a last bit, zeros, and (wild) NaN and infinities. */
static int set_up(bench *b, uint32_t type, int wild) {
    bitnet_ctx_params p = {0};
    size_t row = (size_t)DIM * (type == BITNET_TENSOR_F32 ? 4u : 2u);
    int i;
    memset(b, 0, sizeof *b);
    b->seed = 77 + type;
    b->g.dim = DIM, b->g.ffn = 128, b->g.layers = 1, b->g.heads = 2, b->g.kv_heads = 1;
    b->g.n_ctx = 64, b->g.seed = 3, b->g.embed_type = type;
    b->g.spare_rows = HEAD_ROWS - 259;
    gb_make_model(&b->g);
    p.n_threads = 2;
    if (bitnet_model_load_memory(b->g.data, b->g.size, 0, &b->m, 0)) return 0;
    for (i = 1000; i < 1200; i++) memcpy(head_row(b, i), head_row(b, i - 500), row);
    for (i = 1200; i < 1400; i++) {
        memcpy(head_row(b, i), head_row(b, i - 500), row);
        head_row(b, i)[0] ^= 1;
    }
    for (i = 1400; i < 1410; i++) memset(head_row(b, i), 0, row);
    for (i = 1410; wild && i < 1416; i++) {
        uint8_t *end = head_row(b, i) + row;
        end[-1] = i % 2 ? 0x7f : 0xff; /* the largest exponent: NaN, or infinity below */
        end[-2] = type == BITNET_TENSOR_F16 ? 0x7c : i % 3 ? 0x80 : 0xc0;
    }
    if (bitnet_ctx_create(b->m, &p, &b->c, 0)) return 0;
    test_share(b->c);
    return b->m->n_vocab == HEAD_ROWS;
}

static void tear_down(bench *b) {
    bitnet_ctx_free(b->c);
    bitnet_model_free(b->m);
    gb_free_model(&b->g);
}

/* A hidden state of one of many kinds, and all its logits. */
static void make_hidden(bench *b, int kind, float *x) {
    int i, row = (int)(gb_random(&b->seed) % HEAD_ROWS);
    float scale = kind == 5 ? 1e15f : kind == 6 ? 1e-20f : kind == 7 ? 1e-42f : 3.0f;
    for (i = 0; i < DIM; i++) x[i] = normal(&b->seed) * scale;
    if (kind == 1) for (i = 0; i < DIM; i++) x[i] = i == row % DIM ? 5.0f : 0.0f;
    if (kind == 2 || kind == 3) bitnet__matrix_row(&b->m->head, row, x);
    if (kind == 3) for (i = 0; i < DIM; i++) x[i] += normal(&b->seed) * 0.01f;
    if (kind == 4) memset(x, 0, DIM * sizeof *x);
    if (kind == 8) x[row % DIM] = 1e6f;        /* one outlier leaves 8 bits little for the others */
    if (kind == 9) x[row % DIM] = bitnet__float_from_bits(row % 2 ? 0x7fc00000u : 0xff800000u);
    bitnet__head_rows(b->c, 0, HEAD_ROWS, x, 1, b->full, HEAD_ROWS, 0);
}

/* Rows as bitnet_eval leaves them. */
static void show_rows(bitnet_ctx *c, int n) {
    int i;
    c->n_rows = n;
    c->row = n - 1;
    c->seqs[0].n_past = 20;
    for (i = 0; i < n; i++) {
        c->row_places[i].seq = 0;
        c->row_places[i].pos = 19;
    }
}

/* Puts it where bitnet_eval would leave it. */
static void set_hidden(bench *b, int kind) {
    bitnet__forget_rows(b->c);
    make_hidden(b, kind, b->c->hidden);
    show_rows(b->c, 1);
}

static void set_sampler(bench *b, int kind, bitnet_sampler *s, bitnet_logit_bias *bias) {
    int i;
    memset(s, 0, sizeof *s);
    s->rng = gb_random(&b->seed);
    s->temperature = kind == 0 || kind == 5 ? 0.0f : 0.9f;
    s->top_k = kind == 1 ? 1 : kind == 2 ? 40 : 7;
    if (kind == 3) s->top_p = 0.8f, s->min_p = 0.01f;
    if (kind >= 4) s->repeat_penalty = kind == 4 ? 1.3f : 0.5f;
    for (i = 0; i < 3; i++) {
        bias[i].token = (int)(gb_random(&b->seed) % HEAD_ROWS);
        bias[i].bias = (float)gb_uniform(&b->seed, -20.0, 20.0);
    }
    if (kind >= 5) s->bias = bias, s->n_bias = 3;
    b->c->seqs[0].n_past = 20;
    for (i = 0; i < 64; i++) b->c->seqs[0].history[i] = (int)(gb_random(&b->seed) % HEAD_ROWS);
}

/* Draws through the screen and from all logits; 0 if they differ in the token or in any bit. */
static int same_draw(bench *b, const bitnet_sampler *sampler) {
    bitnet_sampler one = *sampler, all = *sampler;
    bitnet_token t = bitnet_sample(b->c, -1, &one, NULL), expected;
    int i, n = bitnet_ctx_exact_logits(b->c);
    if (n < HEAD_ROWS) {
        b->draws++;
        b->exact += n;
        b->fine += b->c->head->fine;
        for (i = 0; i < n && !sampler->n_bias && !(sampler->repeat_penalty > 0.0f); i++) {
            const bitnet__candidate *x = &b->c->head->candidates[i];
            float logit = b->full[x->token];
            if (logit == logit && memcmp(&x->logit, &logit, 4)) return 0;
        }
    }
    b->c->head->n_ready = 0;
    expected = bitnet_sample_logits(b->c, b->full, b->c->seqs[0].history, 20, &all, NULL);
    return t == expected && one.rng == all.rng;
}

static void run_screen(uint32_t type, int wild) {
    static bench b;
    int round, ok = 1, rounds = test_quick() ? 150 : 3000;
    CHECK(set_up(&b, type, wild));
    for (round = 0; round < rounds && ok; round++) {
        bitnet_sampler s;
        bitnet_logit_bias bias[3];
        set_hidden(&b, round % 10);
        set_sampler(&b, round / 10 % 7, &s, bias);
        ok = same_draw(&b, &s);
    }
    printf("%ld of %d draws screened, %ld by both planes, %.1f of %d rows exact ... ", b.draws,
           round, b.fine, (double)b.exact / (double)(b.draws ? b.draws : 1), (int)HEAD_ROWS);
    round--;
    tear_down(&b);
    CHECK_MSG(ok, "hidden %d, sampler %d, round %d", round % 10, round / 10 % 7, round);
    CHECK_MSG(b.draws > rounds / 2, "only %ld draws were screened", b.draws);
    CHECK_MSG(b.fine > rounds / 20 && b.draws - b.fine > rounds / 20, "%ld of %ld by both planes",
              b.fine, b.draws);
}

static void test_f16(void) { run_screen(BITNET_TENSOR_F16, 0); }
static void test_f32(void) { run_screen(BITNET_TENSOR_F32, 0); }
static void test_bf16(void) { run_screen(BITNET_TENSOR_BF16, 0); }
static void test_wild_f16(void) { run_screen(BITNET_TENSOR_F16, 1); }
static void test_wild_f32(void) { run_screen(BITNET_TENSOR_F32, 1); }

/* What the copy says of a weight. */
static double copied_weight(const bench *b, int row, int i, int fine) {
    const struct bitnet__head_copy *t = b->m->copy;
    const size_t first = (size_t)row * (size_t)bitnet__padded_row(DIM);
    const int both = t->high[first / 2 + (size_t)(i / 128 * 64 + i % 64)];
    const int high = i % 128 < 64 ? both >> 4 : both & 15;
    const int low = t->low[first / 4 + (size_t)(i / 128 * 32 + i % 32)] >> (6 - i / 32 % 4 * 2) & 3;
    const double h = fine ? 16.0 * (high - 8) + 4.0 * (low - 1) + 5.5 : 16.0 * (high - 8) + 7.5;
    return 2 * (double)t->scale[row] * h;
}

/* A hidden state along what the copy leaves of a row, or against it; or one whose own rest has the
   signs of a row. b is then 1. */
static void make_tight(bench *b, int round, int of, int fine, int with_v, float *x) {
    float row[DIM];
    int i;
    bitnet__matrix_row(&b->m->head, of, row);
    for (i = 0; i < DIM; i++) {
        const float rest = with_v ? 0.45f : fine ? 4.45f : 17.0f, sign = row[i] > 0 ? 1.0f : -1.0f;
        const int v = with_v ? (int)(60.0f * sign) : 0;    /* so it misses all of the low plane */
        if (round % 2) x[i] = (float)(((int)(gb_random(&b->seed) % 3) - 1) * 128 + v) + rest * sign;
        else
            x[i] = (float)((double)row[i] - copied_weight(b, of, i, fine)) *
                   (round % 4 ? 1.0f : -1000.0f);
    }
    if (round % 2) x[0] = 16256.0f;    /* where these rows have all of their rest */
}

/* The bounds themselves, where they are tight: of the high plane and of both, with u alone and, if
   v matters, with u and v; also of two hidden states. */
static void test_bounds(void) {
    static const char *const names[] = {"coarse", "fine", "coarse with v", "fine with v"};
    static bench b;
    bitnet_ctx_params p = {0};
    bitnet_sampler greedy;
    int round, kind, r, i, bad = 0;
    double tightest[4] = {0, 0, 0, 0};
    CHECK(set_up(&b, BITNET_TENSOR_F32, 0));
    bitnet_ctx_free(b.c);
    p.n_logits = p.n_threads = 2;
    CHECK(!bitnet_ctx_create(b.m, &p, &b.c, 0));
    for (r = 0; r < 100; r++)          /* up to 127/64, the others exact in one plane or in both */
        for (i = 0; i < DIM; i++) {
            const int negative = gb_random(&b.seed) % 2 == 0;
            float w = negative ? -120.5f : 119.5f;
            if (r >= 50) w = negative ? -126.5f : 125.5f;
            w = (i == 0 ? 127.0f : w) / 64.0f;
            memcpy(head_row(&b, r) + 4 * i, &w, 4);
        }
    set_hidden(&b, 0);
    memset(&greedy, 0, sizeof greedy);
    CHECK(bitnet_sample(b.c, -1, &greedy, NULL) >= 0 && bitnet_ctx_exact_logits(b.c) < HEAD_ROWS);
    for (round = 0; round < 600; round++) {
        bitnet__head *t = b.c->head;
        float *x = b.c->hidden;
        int of = (int)(gb_random(&b.seed) % (round % 2 ? 50 : 2000)) + (round % 2 ? 0 : 100);
        const int fine = round / 4 % 2, with_v = round / 8 % 2 && round % 2;
        kind = fine + 2 * with_v;
        of += round % 2 && fine ? 50 : 0;
        make_tight(&b, round, of, fine, with_v, x);
        memcpy(x + DIM, x, DIM * sizeof *x);
        b.c->head->n_ready = t->n_bound = 0;
        t->n_fine = fine;
        show_rows(b.c, 1 + round % 3 % 2);
        CHECK(bitnet__bound_logits(b.c, 0) && t->n_bound == b.c->n_rows);
        CHECK(t->fine == fine);
        CHECK(t->with_v == with_v || round % 2 == 0);      /* there both occur */
        bitnet__head_rows(b.c, 0, HEAD_ROWS, x, 1, b.full, HEAD_ROWS, 0);
        for (r = 0; r < HEAD_ROWS * t->n_bound; r++) {
            const int state = r / HEAD_ROWS, row = r % HEAD_ROWS, at = state * t->n_strips;
            const int chunk = at + row / BITNET__STRIP;
            const double low = (double)t->low[at * BITNET__STRIP + row];
            const double high = (double)t->high[at * BITNET__STRIP + row];
            const double full = (double)b.full[row], off = fabs(full - (low + high) / 2);
            bad += !(full >= low && full <= high);
            bad += !((double)t->max_low[chunk] >= low && (double)t->max_high[chunk] >= high);
            if (row == of && off / ((high - low) / 2) > tightest[kind])
                tightest[kind] = off / ((high - low) / 2);
        }
    }
    printf("within %.2f, %.2f, %.2f and %.2f of the bound ... ", tightest[0], tightest[1],
           tightest[2], tightest[3]);
    tear_down(&b);
    CHECK_MSG(bad == 0, "%d logits lie outside their bounds", bad);
    for (kind = 0; kind < 4; kind++)
        CHECK_MSG(tightest[kind] > 0.8, "%s: only within %.2f", names[kind], tightest[kind]);
}

/* A search leaves no more rows than the exact logit of the row with the largest middle does. Rows
   differ in length, so that the largest lower bound is often another row's. */
static void test_middles(void) {
    static bench b;
    bitnet_sampler greedy;
    int round, r, i, n, count, other = 0;
    CHECK(set_up(&b, BITNET_TENSOR_F32, 0));
    for (r = 0; r < HEAD_ROWS; r++)
        for (i = 0; i < DIM; i++) {
            const float w = normal(&b.seed) * (r % 3 ? 0.5f : 2.0f) * (i ? 1.0f : 9.0f);
            memcpy(head_row(&b, r) + 4 * i, &w, 4);
        }
    set_hidden(&b, 0);
    memset(&greedy, 0, sizeof greedy);
    CHECK(bitnet_sample(b.c, -1, &greedy, NULL) >= 0 && bitnet_ctx_exact_logits(b.c) < HEAD_ROWS);
    for (round = 0; round < 40; round++) {
        const bitnet__head *t = b.c->head;
        float *x = b.c->hidden;
        int middle = 0, lowest = 0;
        for (i = 0; i < DIM; i++) x[i] = normal(&b.seed);
        b.c->head->n_ready = b.c->head->n_bound = 0;
        b.c->head->n_fine = 1;
        CHECK(bitnet__bound_logits(b.c, 0));
        bitnet__head_rows(b.c, 0, HEAD_ROWS, x, 1, b.full, HEAD_ROWS, 0);
        for (r = 1; r < HEAD_ROWS; r++) {
            if (t->low[r] + t->high[r] > t->low[middle] + t->high[middle]) middle = r;
            if (t->low[r] > t->low[lowest]) lowest = r;
        }
        for (r = count = 0; r < HEAD_ROWS; r++) count += t->high[r] >= b.full[middle];
        n = bitnet__select_rows(b.c, 0, 1);
        for (r = i = 0; r < HEAD_ROWS; r++) i += t->high[r] >= b.full[lowest];
        other += i > count && i >= 72;
        CHECK_MSG(n <= (count > 72 ? count : 72), "round %d: %d rows, not %d", round, n, count);
    }
    tear_down(&b);
    CHECK_MSG(other > 0, "the largest lower bound was always as good");
}

/* v is multiplied where it matters: after a search in both planes that left many rows, for some
   passes. With it there are fewer rows, and the same token. */
static void test_many_rows(void) {
    static bench b;
    bitnet_sampler s;
    int round, taken = 0, rows[2] = {0, 0}, passes[2] = {0, 0};
    CHECK(set_up(&b, BITNET_TENSOR_F16, 0));
    memset(&s, 0, sizeof s);
    s.temperature = 1.0f;
    s.top_k = 40;
    for (round = 0; round < 200; round++) {
        bitnet__head *t = b.c->head;
        set_hidden(&b, 0);
        t->n_fine = 1;
        CHECK(same_draw(&b, &s));
        if (round < 2 || !t->fine || t->needs_v != 1) continue;
        rows[t->with_v] += t->exact_logits;
        passes[t->with_v]++;
        taken = t->with_v ? taken + 1 : 0;
        CHECK(taken < 64);
    }
    tear_down(&b);
    printf("%d passes with v, %d without ... ", passes[1], passes[0]);
    CHECK(passes[0] > 0 && passes[1] > passes[0]);
    CHECK(rows[1] / passes[1] < rows[0] / passes[0]);
}

/* ---- the sampler's hooks ---- */

typedef struct rules {
    uint32_t allowed[HEAD_ROWS / 32 + 1];
    int n_allowed, calls;
    bitnet_token chosen;
} rules;

static void show_mask(void *ud, uint32_t *allowed) {
    rules *x = (rules *)ud;
    int i;
    for (i = 0; i < HEAD_ROWS / 32 + 1; i++)
        if (allowed[i]) x->calls = -1000;      /* it must be all zero */
    memcpy(allowed, x->allowed, sizeof x->allowed);
    allowed[HEAD_ROWS / 32] |= ~0u << HEAD_ROWS % 32;      /* no tokens: ignored */
    x->calls++;
}

static void tilt(void *ud, float *logits, int32_t n_vocab) {
    int32_t i;
    (void)ud;
    for (i = 0; i < n_vocab; i++) logits[i] += (float)(i % 7) - 3.0f;
}

static void take(void *ud, bitnet_token t) { ((rules *)ud)->chosen = t; }

/* Allows each token with this probability, and always one. A bias list forbids the others. */
static int random_rules(bench *b, rules *x, double p, const bitnet_sampler *s,
                        bitnet_logit_bias *bias) {
    const int must = (int)(gb_random(&b->seed) % HEAD_ROWS);
    int i, n = s->n_bias;
    memset(x, 0, sizeof *x);
    for (i = 0; i < n; i++) bias[i] = s->bias[i];
    for (i = 0; i < HEAD_ROWS; i++) {
        if (i == must || gb_uniform(&b->seed, 0.0, 1.0) < p) {
            x->allowed[i / 32] |= 1u << i % 32;
            x->n_allowed++;
        } else {
            bias[n].token = i;
            bias[n++].bias = -INFINITY;
        }
    }
    return n;
}

/* Whatever is allowed: the token and the random state are those of all logits, with a bias of minus
   infinity for what is not allowed. Only allowed tokens are computed. */
static void test_mask(void) {
    static const double odds[] = {0.0, 0.003, 0.05, 0.08, 0.5, 0.99, 1.0};
    static bench b;
    static bitnet_logit_bias forbidden[HEAD_ROWS + 3];
    static rules x;
    int round, few = 0, screened = 0;
    CHECK(set_up(&b, BITNET_TENSOR_F16, 0));
    for (round = 0; round < (test_quick() ? 300 : 2500); round++) {
        bitnet_logit_bias bias[3];
        bitnet_sampler s, all;
        bitnet_token t, expected;
        int n_exact;
        set_hidden(&b, round % 9); /* 9 is not finite */
        set_sampler(&b, round / 10 % 7, &s, bias);
        if (round % 3 == 0) s.top_k = 0;
        all = s;
        all.n_bias = random_rules(&b, &x, odds[round % 7], &s, forbidden);
        all.bias = forbidden;
        s.mask_fn = show_mask;
        s.chosen_fn = take;
        s.mask_ud = s.chosen_ud = &x;
        t = bitnet_sample(b.c, -1, &s, NULL);
        n_exact = bitnet_ctx_exact_logits(b.c);
        few += n_exact == x.n_allowed && n_exact <= HEAD_ROWS / 16;
        screened += n_exact < x.n_allowed;
        CHECK(n_exact <= x.n_allowed || n_exact == HEAD_ROWS);
        CHECK(x.calls == 1 && x.chosen == t);
        b.c->head->n_ready = 0;
        expected = bitnet_sample_logits(b.c, b.full, b.c->seqs[0].history, 20, &all, NULL);
        CHECK_MSG(t == expected && s.rng == all.rng, "round %d: %d, not %d", round, (int)t,
                  (int)expected);
        all = s;                       /* of one's own logits, too */
        all.rng = s.rng = 5;
        CHECK(bitnet_sample_logits(b.c, b.full, b.c->seqs[0].history, 20, &all, NULL) ==
              bitnet_sample(b.c, -1, &s, NULL) && all.rng == s.rng);
    }
    memset(&x, 0, sizeof x);
    x.chosen = 7;
    b.c->head->n_ready = 0;
    {
        bitnet_sampler s;
        memset(&s, 0, sizeof s);
        s.mask_fn = show_mask;
        s.chosen_fn = take;
        s.mask_ud = s.chosen_ud = &x;
        CHECK(bitnet_sample(b.c, -1, &s, NULL) == BITNET_ERR_NOT_FOUND && x.chosen == 7);
        CHECK(bitnet_sample_logits(b.c, b.full, 0, 0, &s, NULL) == BITNET_ERR_NOT_FOUND &&
              x.chosen == 7);
    }
    printf("%d with all that is allowed, %d screened ... ", few, screened);
    tear_down(&b);
    CHECK_MSG(few > 50 && screened > 50, "%d with all that is allowed, %d screened", few, screened);
}

/* rewrite_fn sees all logits and changes a copy; a mask comes after it. */
static void test_rewrite(void) {
    static bench b;
    static float tilted[HEAD_ROWS];
    static bitnet_logit_bias forbidden[HEAD_ROWS + 3];
    static rules x;
    int round;
    CHECK(set_up(&b, BITNET_TENSOR_F16, 0));
    for (round = 0; round < 100; round++) {
        bitnet_logit_bias bias[3];
        bitnet_sampler s, all;
        bitnet_token t;
        set_hidden(&b, round % 3);
        set_sampler(&b, round % 7, &s, bias);
        memcpy(tilted, b.full, sizeof tilted);
        tilt(0, tilted, HEAD_ROWS);
        all = s;
        s.rewrite_fn = tilt;
        if (round % 2) {
            all.n_bias = random_rules(&b, &x, 0.3, &s, forbidden);
            all.bias = forbidden;
            s.mask_fn = show_mask;
            s.mask_ud = &x;
        }
        t = bitnet_sample(b.c, -1, &s, NULL);
        CHECK(!memcmp(bitnet_logits(b.c, -1, NULL), b.full, sizeof b.full));
        CHECK(bitnet_sample_logits(b.c, tilted, b.c->seqs[0].history, 20, &all, NULL) == t &&
              s.rng == all.rng);
    }
    tear_down(&b);
}

/* Several hidden states, some of them wild, which are sampled one by one. */
static void test_ahead(void) {
    static bench b;
    static float full[24][HEAD_ROWS];
    bitnet_ctx_params p = {0};
    int round, i, widest = 0;
    CHECK(set_up(&b, BITNET_TENSOR_F16, 1));
    bitnet_ctx_free(b.c);
    p.n_logits = 24;
    p.n_threads = 2;
    CHECK(!bitnet_ctx_create(b.m, &p, &b.c, 0));
    test_share(b.c);
    for (round = 0; round < 150; round += test_quick() ? 11 : 1) {
        int n = 2 + round % 23, kind = (int)(gb_random(&b.seed) % 10);
        bitnet_logit_bias bias[3];
        bitnet_sampler s;
        bitnet__forget_rows(b.c);
        for (i = 0; i < n; i++) {
            make_hidden(&b, (int)(gb_random(&b.seed) % 60) ? kind % 7 : 9, b.c->hidden + i * DIM);
            memcpy(full[i], b.full, sizeof b.full);
        }
        set_sampler(&b, round % 7, &s, bias);
        show_rows(b.c, n);
        for (i = 0; i < n; i++) {
            b.c->row = i;
            memcpy(b.full, full[i], sizeof b.full);
            CHECK_MSG(same_draw(&b, &s), "round %d, row %d of %d", round, i, n);
            s.rng++;
            if (b.c->head->n_bound > widest) widest = b.c->head->n_bound;
        }
    }
    tear_down(&b);
    CHECK_MSG(widest == BITNET__BOUND_STATES, "at most %d rows in a pass", widest);
    CHECK_MSG(b.draws > (test_quick() ? 80 : 900), "only %ld draws were screened", b.draws);
}

/* Generated text with and without the screen, and the switch. */
static void test_switch(void) {
    static bench b;
    bitnet_ctx_params p = {0};
    bitnet_model_info info;
    bitnet_ctx *full;
    bitnet_token t = 5, u = 5;
    int i;
    CHECK(set_up(&b, BITNET_TENSOR_F16, 0));
    p.no_head_copy = 1;
    p.n_threads = 1;
    CHECK(!bitnet_ctx_create(b.m, &p, &full, 0));
    bitnet_model_get_info(b.m, &info);
    CHECK(info.head_copy_bytes > HEAD_ROWS * DIM && info.own_bytes > info.head_copy_bytes);
    for (i = 0; i < 40; i++) {
        CHECK(!bitnet_eval(b.c, 0, &t, 1, 1, 0) && !bitnet_eval(full, 0, &u, 1, 1, 0));
        t = bitnet_sample(b.c, -1, 0, NULL);
        u = bitnet_sample(full, -1, 0, NULL);
        CHECK_MSG(t == u, "token %d at %d, without the screen %d", (int)t, i, (int)u);
        CHECK(bitnet_ctx_exact_logits(b.c) < HEAD_ROWS);
        CHECK(bitnet_ctx_exact_logits(full) == HEAD_ROWS);
        CHECK(bitnet_ctx_head_bytes(b.c) > HEAD_ROWS * DIM / 2);
        CHECK(bitnet_ctx_head_bytes(b.c) < bitnet_ctx_head_bytes(full));
        CHECK(bitnet_ctx_head_bytes(full) == info.head_bytes);
        CHECK(bitnet_logits(b.c, -1, NULL)[t] == bitnet_logits(full, -1, NULL)[t]);
        CHECK(bitnet_sample(b.c, -1, 0, NULL) == t && bitnet_ctx_exact_logits(b.c) == HEAD_ROWS);
    }
    bitnet_ctx_free(full);
    tear_down(&b);
}

/* The copy of a large head is filled in by the first samples, which compute all logits meanwhile;
   another context finds it where they left it. */
static void test_parts(void) {
    enum { ROWS = (1 << 17) + 1000 };      /* of 128: one part is 2^17 */
    gb_model g;
    bitnet_ctx_params p = {0};
    bitnet_model *m;
    bitnet_ctx *c[3];
    bitnet_token t[3];
    int round, i;
    memset(&g, 0, sizeof g);
    g.dim = g.ffn = 128, g.layers = 1, g.heads = 2, g.kv_heads = 1;
    g.n_ctx = 64, g.seed = 5, g.embed_type = BITNET_TENSOR_F16;
    g.spare_rows = ROWS - 259;
    gb_make_model(&g);
    CHECK(!bitnet_model_load_memory(g.data, g.size, 0, &m, 0) && m->n_vocab == ROWS);
    p.n_threads = 2;
    for (i = 0; i < 3; i++) {
        p.no_head_copy = i == 2;
        CHECK(!bitnet_ctx_create(m, &p, &c[i], 0));
        t[i] = 5;
    }
    for (round = 0; round < 8; round++) {
        for (i = 0; i < 3; i++) {
            CHECK(!bitnet_eval(c[i], 0, &t[i], 1, 1, 0));
            t[i] = bitnet_sample(c[i], -1, 0, NULL);
            CHECK((bitnet_ctx_exact_logits(c[i]) == ROWS) == (i == 2 || (round == 0 && i == 0)));
            CHECK(m->copy->n_built == (round > 0 || i > 0 ? ROWS : 1 << 17));
        }
        CHECK_MSG(t[0] == t[2] && t[1] == t[2], "round %d: %d and %d, not %d", round, (int)t[0],
                  (int)t[1], (int)t[2]);
    }
    for (i = 0; i < ROWS; i++)
        CHECK_MSG(m->copy->norm[i] > 0 && m->copy->fine[i] > 0, "row %d is not filled in", i);
    for (i = 0; i < 3; i++) bitnet_ctx_free(c[i]);
    bitnet_model_free(m);
    gb_free_model(&g);
}

typedef struct last_layer { float x[3 * DIM]; int n; } last_layer;

static void keep_last(void *ud, int layer, const float *x, int n_tokens) {
    last_layer *l = (last_layer *)ud;
    if (layer == 0) memcpy(l->x, x, (size_t)n_tokens * DIM * sizeof *x), l->n = n_tokens;
}

/* The hidden states are the last layer's, after the last norm, and the head times them the logits.
   */
static void test_hidden(void) {
    static bench b;
    static last_layer l;
    bitnet_ctx_params p = {0};
    const bitnet_token tokens[3] = {5, 6, 7};
    float want[DIM];
    bitnet_error err;
    int i, row;
    CHECK(set_up(&b, BITNET_TENSOR_F32, 0));
    CHECK(!bitnet_hidden(b.c, -1, &err) && err.code == BITNET_ERR_ARG);
    bitnet_ctx_free(b.c);
    p.n_logits = 2;
    p.hooks.layer_fn = keep_last;
    p.hooks.layer_ud = &l;
    CHECK(!bitnet_ctx_create(b.m, &p, &b.c, 0));
    CHECK(!bitnet_eval(b.c, 0, tokens, 3, 2, 0) && l.n == 3);
    for (i = 0; i < 2; i++) {
        const float *logits = bitnet_logits(b.c, i, 0), *hidden = bitnet_hidden(b.c, i, 0);
        const float *head = (const float *)(const void *)b.m->head.data;
        CHECK(logits && hidden && (i == 0 || hidden == bitnet_hidden(b.c, -1, 0)));
        bitnet__kernels_scalar.rmsnorm(l.x + (1 + i) * DIM, b.m->output_norm, DIM, b.m->eps, want);
        CHECK(!memcmp(hidden, want, sizeof want));
        for (row = 0; row < HEAD_ROWS; row++) {
            double sum = 0, size = 1e-3;
            int k;
            for (k = 0; k < DIM; k++) {
                const double part = (double)hidden[k] * (double)head[row * DIM + k];
                sum += part;
                size += fabs(part);
            }
            CHECK_MSG(fabs(sum - (double)logits[row]) < 1e-5 * size, "row %d: %g, not %g", row,
                      (double)logits[row], sum);
        }
    }
    CHECK(!bitnet_hidden(b.c, 2, &err) && err.code == BITNET_ERR_ARG);
    CHECK(!bitnet_seq_rewind(b.c, 0, 2, 0) && bitnet_hidden(b.c, 0, 0) &&
          !bitnet_hidden(b.c, 1, 0));
    tear_down(&b);
}

extern const test_case head_tests[];
const test_case head_tests[] = {
    {"head/f16", test_f16},
    {"head/f32", test_f32},
    {"head/middles", test_middles},
    {"head/many_rows", test_many_rows},
    {"head/bf16", test_bf16},
    {"head/wild_f16", test_wild_f16},
    {"head/wild_f32", test_wild_f32},
    {"head/bounds", test_bounds},
    {"head/mask", test_mask},
    {"head/rewrite", test_rewrite},
    {"head/ahead", test_ahead},
    {"head/switch", test_switch},
    {"head/parts", test_parts},
    {"head/hidden", test_hidden},
    {0, 0}
};
