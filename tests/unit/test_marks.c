/* Marks: hybrid networks have a state that cannot be cut back. Whatever is rewound, copied,
   synchronised, taken out, cancelled or paused, a sequence goes on with the bits that it would have
   if it had been read from its beginning; bitnet_seq_again says what is read again; and marks keep
   to their memory. */

#include "gguf_helpers.h"
#include "hybrid_builder.h"
#include "model_helpers.h"

enum { N_STREAMS = 3, N_TOKENS = 160, N_SEQS = 3 };

/* Texts that begin alike, and the logits of each token where it is read one by one. */
typedef struct marked {
    hybrid h;
    gb_counter count;
    bitnet_model *m;
    bitnet_ctx *c;
    bitnet_token tokens[N_STREAMS][N_TOKENS];
    float *want;                       /* [N_STREAMS][N_TOKENS][n_vocab] */
    int left;                          /* cancel_fn: questions until it says so */
    uint64_t seed;
} marked;

static const int begins_alike[N_STREAMS] = {N_TOKENS, 30, 64};    /* with the first text */

static int countdown(void *ud) { return --*(int *)ud < 0; }

static int set_up(marked *x, const bitnet_ctx_params *p) {
    bitnet_ctx_params plain = ctx_params(N_TOKENS, 16, 1, p->kv_type);
    bitnet_model_params mp;
    int s, i;
    memset(x, 0, sizeof *x);
    x->h = foldable();
    x->h.head_dim = 32;
    x->seed = 3;
    make_hybrid(&x->h);
    memset(&mp, 0, sizeof mp);
    mp.allocator = gb_counting(&x->count);
    if (bitnet_model_load_memory(x->h.data, x->h.size, &mp, &x->m, 0)) return 0;
    plain.mark_bytes = -1;
    x->want = (float *)gb_malloc((size_t)(N_STREAMS * N_TOKENS * x->h.n_vocab) * sizeof(float));
    for (s = 0; s < N_STREAMS; s++) {
        bitnet_ctx *c = create(x->m, &plain);
        for (i = 0; i < N_TOKENS; i++)
            x->tokens[s][i] = (3 + 29 * i + (i < begins_alike[s] ? 0 : 41 * s)) % 250;
        if (!c || !all_logits(c, x->tokens[s], N_TOKENS, 1,
                              x->want + s * N_TOKENS * x->h.n_vocab)) return 0;
        bitnet_ctx_free(c);
    }
    plain = *p;
    plain.hooks.cancel_fn = countdown;
    plain.hooks.cancel_ud = &x->left;
    x->left = INT_MAX;
    x->c = create(x->m, &plain);
    return x->c != 0;
}

/* Returns the blocks that are still allocated. */
static long tear_down(marked *x) {
    bitnet_ctx_free(x->c);
    bitnet_model_free(x->m);
    free(x->want);
    free_hybrid(&x->h);
    return x->count.live;
}

/* Has the last row the logits of a text's token number n - 1? */
static int is_like(const marked *x, int stream, int n) {
    const size_t vocab = (size_t)x->h.n_vocab;
    const float *got = bitnet_logits(x->c, -1, 0);
    return got && !memcmp(got, x->want + (size_t)(stream * N_TOKENS + n - 1) * vocab,
                          vocab * sizeof *got);
}

/* Appends tokens [from, to) of a text in calls of `step`, each with one row of logits. */
static int goes_on(const marked *x, int seq, int stream, int from, int to, int step) {
    while (from < to) {
        const int n = to - from < step ? to - from : step;
        if (bitnet_seq_length(x->c, seq) != from ||
            bitnet_eval(x->c, seq, x->tokens[stream] + from, n, 1, 0)) return 0;
        from += n;
        if (!is_like(x, stream, from)) return 0;
    }
    return bitnet_seq_length(x->c, seq) == to;
}

/* Rewinds a sequence that holds this text: does it then read so many tokens again? */
static int reads_again(const marked *x, int seq, int length, int again) {
    return !bitnet_seq_rewind(x->c, seq, length, 0) && bitnet_seq_length(x->c, seq) == length &&
           bitnet_seq_again(x->c, seq) == again;
}

static void test_ends(void) {
    static marked x;
    const bitnet_ctx_params p = ctx_params(N_TOKENS, 16, 2, BITNET_KV_F16);
    CHECK(set_up(&x, &p));
    CHECK(bitnet_seq_again(x.c, 0) == 0 && bitnet_seq_again(x.c, 1) == 0 &&
          bitnet_seq_again(0, 0) == 0);
    /* a prompt, of which a mark is 8 tokens before its end, and what was written */
    CHECK(goes_on(&x, 0, 0, 0, 50, 50) && goes_on(&x, 0, 0, 50, 90, 1));
    CHECK(reads_again(&x, 0, 49, 7) && goes_on(&x, 0, 0, 49, 70, 1));
    CHECK(reads_again(&x, 0, 42, 0) && goes_on(&x, 0, 0, 42, 90, 1));
    /* the next prompt: a mark at its beginning, too */
    CHECK(goes_on(&x, 0, 0, 90, 120, 30) && goes_on(&x, 0, 0, 120, 130, 1));
    CHECK(reads_again(&x, 0, 119, 7) && goes_on(&x, 0, 0, 119, 125, 1));
    CHECK(reads_again(&x, 0, 111, 21) && reads_again(&x, 0, 90, 0) && goes_on(&x, 0, 0, 90, 91, 1));
    /* another text; then the first one's mark serves again */
    CHECK(reads_again(&x, 0, 64, 22) && goes_on(&x, 0, 2, 64, 100, 36));
    CHECK(reads_again(&x, 0, 64, 0) && goes_on(&x, 0, 0, 64, 110, 1));
    /* a place without a mark has one when it was read again */
    CHECK(reads_again(&x, 0, 30, 30) && reads_again(&x, 0, 30, 30) && goes_on(&x, 0, 1, 30, 31, 1));
    CHECK(reads_again(&x, 0, 30, 0) && goes_on(&x, 0, 0, 30, 60, 7));
    CHECK(reads_again(&x, 0, 29, 29) && reads_again(&x, 0, 0, 0));
    CHECK(tear_down(&x) == 0);
}

/* Tokens that are evaluated with all their logits are no prompt. */
static void test_measured(void) {
    static marked x;
    const bitnet_ctx_params p = ctx_params(N_TOKENS, 16, 2, BITNET_KV_F16);
    CHECK(set_up(&x, &p));
    CHECK(!bitnet_eval(x.c, 0, x.tokens[0], 50, 50, 0) && x.c->n_marks == 0);
    CHECK(!bitnet_eval(x.c, 0, x.tokens[0] + 50, 50, 0, 0) && x.c->n_marks == 2);
    CHECK(reads_again(&x, 0, 95, 3) && reads_again(&x, 0, 50, 0) && reads_again(&x, 0, 49, 49));
    CHECK(tear_down(&x) == 0);
}

/* A mark of a pass that does not end is none, and leaves its place to others. */
static void test_cancelled(void) {
    static marked x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 16, 2, BITNET_KV_F16);
    int k, i, done = 0;
    CHECK(set_up(&x, &p));
    p.hooks.cancel_fn = countdown;
    p.hooks.cancel_ud = &x.left;
    for (k = 0; !done; k += test_quick() ? 11 : 3) {
        bitnet_ctx_free(x.c);
        CHECK((x.c = create(x.m, &p)) != 0);
        x.left = k;
        done = !bitnet_eval(x.c, 0, x.tokens[0], 50, 1, 0);
        x.left = INT_MAX;
        if (done) break;
        for (i = 0; i < x.c->n_marks; i++) CHECK_MSG(!x.c->marks[i]->is_open, "%d", k);
        CHECK_MSG(bitnet_seq_length(x.c, 0) == 0 && goes_on(&x, 0, 0, 0, 45, 1), "%d", k);
        CHECK_MSG((reads_again(&x, 0, 44, 44) || reads_again(&x, 0, 44, 2)) &&
                      goes_on(&x, 0, 0, 44, 50, 1), "%d", k);
    }
    CHECK(k > 30 && tear_down(&x) == 0);
}

static void test_copies(void) {
    static marked x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 16, 2, BITNET_KV_F16);
    uint8_t *saved;
    size_t bytes;
    int32_t kept = -1;
    p.n_seqs = N_SEQS;
    CHECK(set_up(&x, &p));
    CHECK(goes_on(&x, 0, 0, 0, 120, 120));
    CHECK(!bitnet_seq_copy(x.c, 0, 1, 30, 0) && bitnet_seq_again(x.c, 1) == 30);
    CHECK(!bitnet_seq_copy(x.c, 1, 2, 30, 0) && bitnet_seq_again(x.c, 2) == 30);
    CHECK(goes_on(&x, 1, 1, 30, 60, 30));
    CHECK(!bitnet_seq_copy(x.c, 0, 2, 30, 0) && bitnet_seq_again(x.c, 2) == 0);
    CHECK(goes_on(&x, 2, 0, 30, 50, 1) && goes_on(&x, 0, 0, 120, 130, 1));
    /* one that is behind is saved whole */
    CHECK(!bitnet_seq_copy(x.c, 0, 2, 64, 0) && bitnet_seq_again(x.c, 2) == 34);
    bytes = (size_t)bitnet_seq_state_bytes(x.c, 2);
    saved = (uint8_t *)gb_malloc(bytes);
    x.left = 2;
    CHECK(bitnet_seq_save_memory(x.c, 2, saved, bytes, 0) == BITNET_ERR_CANCELLED);
    x.left = INT_MAX;
    CHECK(bitnet_seq_again(x.c, 2) == 34 && !bitnet_seq_save_memory(x.c, 2, saved, bytes, 0) &&
          bitnet_seq_again(x.c, 2) == 0 && goes_on(&x, 2, 0, 64, 70, 2));
    CHECK(!bitnet_seq_load_memory(x.c, 1, saved, bytes, 0) && bitnet_seq_again(x.c, 1) == 0 &&
          goes_on(&x, 1, 2, 64, 99, 35));
    free(saved);
    /* what sync keeps, and remove */
    CHECK(!bitnet_seq_sync(x.c, 1, x.tokens[0], 80, &kept, 0) && kept == 64 && is_like(&x, 0, 80));
    CHECK(!bitnet_seq_sync(x.c, 1, x.tokens[0], 80, &kept, 0) && kept == 64 && is_like(&x, 0, 80));
    CHECK(!bitnet_seq_sync(x.c, 1, x.tokens[1], 80, &kept, 0) && kept == 30 && is_like(&x, 1, 80));
    CHECK(!bitnet_seq_rewind(x.c, 1, 0, 0) && goes_on(&x, 1, 0, 0, 40, 40));
    CHECK(!bitnet_eval(x.c, 1, x.tokens[0] + 7, 5, 1, 0) &&
          !bitnet_eval(x.c, 1, x.tokens[0] + 40, 40, 1, 0));
    CHECK(!bitnet_seq_remove(x.c, 1, 40, 45, 0) && is_like(&x, 0, 80) &&
          bitnet_seq_length(x.c, 1) == 80 && goes_on(&x, 1, 0, 80, 99, 1));
    CHECK(tear_down(&x) == 0);
}

/* Generations: their figures, a long text that is read again beside one that writes, and a prompt
   that is taken back. */
static bitnet_gen *begin(const marked *x, int seq, int from, int to, int n_batch) {
    bitnet_generate_params p;
    bitnet_gen *g = 0;
    memset(&p, 0, sizeof p);
    p.seq = seq;
    p.tokens = x->tokens[0] + from;
    p.n_tokens = to - from;
    p.n_batch = n_batch;
    p.max_tokens = 20;
    p.ignore_end = 1;
    return bitnet_gen_begin(x->c, &p, &g, 0) ? 0 : g;
}

static void test_generations(void) {
    static marked x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 16, 2, BITNET_KV_F16);
    bitnet_token plain[2][N_TOKENS];
    bitnet_gen *g[2];
    bitnet_piece piece;
    int i, again;
    p.n_seqs = N_SEQS;
    p.mark_bytes = -1;                 /* everything is read again */
    CHECK(set_up(&x, &p));
    for (again = 0; again < 2; again++) {
        CHECK((g[0] = begin(&x, 0, 0, 12, 0)) && (g[1] = begin(&x, 1, again ? 90 : 0, 100, 8)));
        for (i = 0; !i || !piece.ended; i++) {
            CHECK(!bitnet_gen_next(g, 2, 0));
            bitnet_gen_piece(g[0], &piece);
            CHECK(piece.ended || piece.n_tokens == 1);         /* it does not wait */
            CHECK(bitnet_seq_again(x.c, 1) == (again && i < 11 ? 90 - 8 * (i + 1) : 0));
            if (i == 4) {              /* what is cancelled is read again, which can be cancelled */
                const int32_t length = bitnet_seq_length(x.c, 1);
                x.left = 3;
                CHECK(bitnet_gen_next(g, 2, 0) == BITNET_ERR_CANCELLED &&
                      bitnet_seq_length(x.c, 1) == length && bitnet_seq_again(x.c, 1) == length);
                x.left = INT_MAX;
                break;
            }
        }
        CHECK(!bitnet_gen_end(g[0]) && !bitnet_gen_end(g[1]));
        i = again ? 90 : 0;
        CHECK(bitnet_seq_length(x.c, 1) == i && goes_on(&x, 1, 0, i, 100, 9));
        CHECK(!bitnet_seq_rewind(x.c, 0, 0, 0) && !bitnet_seq_rewind(x.c, 1, 90, 0));
    }
    for (again = 0; again < 2; again++) {      /* to the end */
        CHECK(!bitnet_seq_rewind(x.c, 0, 0, 0) && !bitnet_seq_rewind(x.c, 1, again ? 90 : 0, 0));
        CHECK((g[0] = begin(&x, 0, 0, 12, 0)) && (g[1] = begin(&x, 1, again ? 90 : 0, 100, 8)));
        for (i = 0, piece.ended = 0; !piece.ended; i++) {
            if (again && i == 25) {    /* it is cancelled while it writes, with its neighbour */
                x.left = 5;
                CHECK(bitnet_gen_next(g, 2, 0) == BITNET_ERR_CANCELLED);
                x.left = INT_MAX;
                CHECK(bitnet_seq_again(x.c, 1) == bitnet_seq_length(x.c, 1));
            }
            CHECK(!bitnet_gen_next(g, 2, 0));
            bitnet_gen_piece(g[1], &piece);
        }
        CHECK(bitnet_seq_length(x.c, 0) == 31 && bitnet_seq_length(x.c, 1) == 119);
        for (i = 0; i < 2; i++) {
            const size_t n = (size_t)bitnet_seq_length(x.c, i) * sizeof plain[i][0];
            if (!again) memcpy(plain[i], bitnet_seq_tokens(x.c, i), n);
            else CHECK(!memcmp(plain[i], bitnet_seq_tokens(x.c, i), n));
            CHECK(!bitnet_gen_end(g[i]));
        }
    }
    CHECK(tear_down(&x) == 0);
}

/* A pass that is paused, and one that another call drops. */
static int pauses(void *ud) { return ++*(int *)ud % 3 == 0; }

static void test_pauses(void) {
    static marked x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 16, 1, BITNET_KV_F16);
    bitnet_hooks hooks;
    bitnet_token plain[N_TOKENS];
    bitnet_piece piece;
    bitnet_gen *g;
    int asked = 0, drops, n, i, n_paused = 0;
    p.n_seqs = N_SEQS;
    CHECK(set_up(&x, &p));
    memset(&hooks, 0, sizeof hooks);
    for (drops = -1; drops < 4; drops++) {
        CHECK(!bitnet_seq_rewind(x.c, 0, 0, 0) && (g = begin(&x, 0, 0, 50, 0)) != 0);
        hooks.pause_fn = drops < 0 ? 0 : pauses;
        hooks.pause_ud = &asked;
        CHECK(!bitnet_ctx_set_hooks(x.c, &hooks, 0));
        for (i = n = 0, piece.ended = 0; !piece.ended; i++) {
            CHECK(!bitnet_gen_next(&g, 1, 0));
            bitnet_gen_piece(g, &piece);
            n_paused += piece.paused;
            if (piece.paused && drops > 0 && i % (5 * drops) == 3 && n++ < 9)
                CHECK(!bitnet_seq_rewind(x.c, 1, 0, 0));
        }
        CHECK(!bitnet_gen_end(g) && bitnet_seq_length(x.c, 0) == 69);
        if (drops < 0) memcpy(plain, bitnet_seq_tokens(x.c, 0), 69 * sizeof *plain);
        CHECK_MSG(!memcmp(plain, bitnet_seq_tokens(x.c, 0), 69 * sizeof *plain), "%d", drops);
        CHECK(drops < 1 || n > 1);
    }
    CHECK(n_paused > 50 && tear_down(&x) == 0);
}

/* ---- whatever happens ---- */

static int pick(marked *x, int n) { return (int)(gb_uniform(&x->seed, 0, 1) * n) % n; }

/* What a sequence holds: the beginning of a text. */
typedef struct held { int stream, n; } held;

/* Goes on with any text that begins as what is held. */
static int append_some(marked *x, held *at, int seq) {
    int most = N_TOKENS - at[seq].n, n = pick(x, 3) ? 1 + pick(x, 4) : 1 + pick(x, 60);
    const int stream = pick(x, N_STREAMS);
    const int alike = begins_alike[stream] < begins_alike[at[seq].stream]
                          ? begins_alike[stream] : begins_alike[at[seq].stream];
    if (stream == at[seq].stream || at[seq].n <= alike) at[seq].stream = stream;
    if (n > most) n = most;
    if (n == 0) return 1;
    x->left = pick(x, 4) ? INT_MAX : pick(x, 30);
    if (!bitnet_eval(x->c, seq, x->tokens[at[seq].stream] + at[seq].n, n, 1, 0)) {
        at[seq].n += n;
        if (!is_like(x, at[seq].stream, at[seq].n)) return 0;
    }
    x->left = INT_MAX;
    return bitnet_seq_length(x->c, seq) == at[seq].n;
}

static int change_some(marked *x, held *at, int n_seqs, uint8_t *room, size_t size) {
    const int seq = pick(x, n_seqs), other = pick(x, n_seqs), n = pick(x, at[seq].n + 1);
    int32_t kept = 0;
    switch (pick(x, 8)) {
        case 0:
            at[seq].n = n;
            return !bitnet_seq_rewind(x->c, seq, n, 0);
        case 1:
            if (seq == other) return 1;
            at[other].stream = at[seq].stream;
            at[other].n = n;
            return !bitnet_seq_copy(x->c, seq, other, n, 0);
        case 2:
            at[other] = at[seq];
            return !bitnet_seq_save_memory(x->c, seq, room, size, 0) &&
                   !bitnet_seq_load_memory(x->c, other, room,
                                           (size_t)bitnet_seq_state_bytes(x->c, seq), 0) &&
                   bitnet_seq_again(x->c, other) == 0;
        case 3:
            at[seq].stream = pick(x, N_STREAMS);
            at[seq].n = 1 + pick(x, N_TOKENS);
            return !bitnet_seq_sync(x->c, seq, x->tokens[at[seq].stream], at[seq].n, &kept, 0) &&
                   kept < at[seq].n && is_like(x, at[seq].stream, at[seq].n);
        case 4:
            if (n == 0) return 1;
            return !bitnet_seq_rewind(x->c, seq, at[seq].n = n, 0) && append_some(x, at, seq);
        default: return append_some(x, at, seq);
    }
}

/* How many marks there may be: 0: as many as by default. */
static void check_any(int n_seqs, int n_marks, bitnet_kv_type kv) {
    static marked x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 16, 2, kv);
    held at[N_SEQS] = {{0, 0}, {0, 0}, {0, 0}};
    const int rounds = test_quick() ? 75 : 1500;
    uint64_t promised;
    size_t size, before;
    uint8_t *room;
    long blocks;
    int i;
    p.n_seqs = n_seqs;
    p.mark_bytes = n_marks;
    CHECK(set_up(&x, &p));
    promised = bitnet_ctx_bytes(x.m, &x.c->p);
    if (n_marks > 0) {
        bitnet_ctx_free(x.c);
        p.mark_bytes = (n_marks + 1) * bitnet__mark_bytes(x.m, &p) - 1;
        p.hooks.cancel_fn = countdown;
        p.hooks.cancel_ud = &x.left;
        before = x.count.live_bytes;
        blocks = x.count.live;
        CHECK((x.c = create(x.m, &p)) && x.c->max_marks == n_marks);
        CHECK(promised < bitnet_ctx_bytes(x.m, &p));
        promised = bitnet_ctx_bytes(x.m, &p);
    } else {
        before = 0;
        blocks = 0;
    }
    size = 52 + N_TOKENS * (4 + 2 * 2 * 2 * 4 * 32) + x.m->n_state * 4;
    room = (uint8_t *)gb_malloc(size);
    for (i = 0; i < rounds; i++)
        CHECK_MSG(change_some(&x, at, n_seqs, room, size), "%d sequences, %d marks: round %d",
                  n_seqs, n_marks, i);
    free(room);
    CHECK(n_marks == 0 || x.c->n_marks == (n_marks < 0 ? 0 : n_marks));
    if (n_seqs == 1 && n_marks > 0)    /* a page more is no part of it */
        CHECK(x.count.live_bytes - before <=
              promised + 64 * (size_t)(x.count.live - blocks));
    CHECK(tear_down(&x) == 0);
}

static void test_any(void) {
    check_any(1, 0, BITNET_KV_F16);
    check_any(N_SEQS, 0, BITNET_KV_F32);
    check_any(N_SEQS, 1, BITNET_KV_F16);
    check_any(1, 3, BITNET_KV_F16);
    check_any(N_SEQS, 4, BITNET_KV_F16);
    check_any(N_SEQS, -1, BITNET_KV_F16);
#ifndef BITNET_NO_KV_I8
    check_any(N_SEQS, 3, BITNET_KV_I8);
#endif
}

/* ---- memory ---- */

/* Which marks stay: those that many tokens are read for and that are used. */
static void test_value(void) {
    static marked x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 16, 1, BITNET_KV_F16);
    int i;
    p.n_seqs = N_SEQS;
    CHECK(set_up(&x, &p));
    bitnet_ctx_free(x.c);
    p.mark_bytes = 3 * bitnet__mark_bytes(x.m, &p);
    CHECK((x.c = create(x.m, &p)) != 0);
    CHECK(goes_on(&x, 0, 0, 0, 100, 100));
    CHECK(!bitnet_seq_copy(x.c, 0, 1, 64, 0) && goes_on(&x, 1, 2, 64, 80, 16));
    for (i = 0; i < 5; i++) {          /* chats that begin with the same 64 tokens */
        CHECK(!bitnet_seq_copy(x.c, 0, 1, 64, 0) && bitnet_seq_again(x.c, 1) == 0);
        CHECK(goes_on(&x, 1, 2, 64, 96, 32) && goes_on(&x, 1, 2, 96, 100, 1) &&
              goes_on(&x, 1, 2, 100, 140, 20));
        CHECK(reads_again(&x, 1, 139, 7));
    }
    CHECK(x.c->n_marks == 3 && tear_down(&x) == 0);
}

/* Without memory for a mark more is read again, and nothing fails; without memory for a page the
   sequences are as they were. */
static void test_no_memory(void) {
    static marked x;
    bitnet_ctx_params p = ctx_params(N_TOKENS, 16, 1, BITNET_KV_F16);
    int n_seqs, refused, done;
    for (n_seqs = 1; n_seqs <= N_SEQS; n_seqs += 2)
        for (refused = done = 0; !done; refused++) {
            p.n_seqs = n_seqs;
            CHECK(set_up(&x, &p));
            x.count.fail_at = x.count.calls + refused;
            if (bitnet_eval(x.c, 0, x.tokens[0], 50, 1, 0)) {
                CHECK(n_seqs > 1 && bitnet_seq_length(x.c, 0) == 0);
                CHECK(goes_on(&x, 0, 0, 0, 50, 50));
            } else CHECK(is_like(&x, 0, 50));
            CHECK(!bitnet_seq_rewind(x.c, 0, 49, 0));
            CHECK(bitnet_seq_again(x.c, 0) == (x.c->n_marks ? 7 : 49));
            if (bitnet_eval(x.c, 0, x.tokens[0] + 49, 60, 1, 0)) {
                CHECK(n_seqs > 1 && bitnet_seq_length(x.c, 0) == 49);
                CHECK(goes_on(&x, 0, 0, 49, 109, 60));
            } else CHECK(is_like(&x, 0, 109));
            CHECK(!bitnet_seq_rewind(x.c, 0, 64, 0) && goes_on(&x, 0, 2, 64, 99, 9));
            done = x.count.calls <= x.count.fail_at;
            CHECK(tear_down(&x) == 0);
        }
    CHECK(refused > 4);
}

extern const test_case marks_tests[];
const test_case marks_tests[] = {
    {"marks/ends", test_ends},
    {"marks/measured", test_measured},
    {"marks/cancelled", test_cancelled},
    {"marks/copies", test_copies},
    {"marks/generations", test_generations},
    {"marks/pauses", test_pauses},
    {"marks/any", test_any},
    {"marks/value", test_value},
    {"marks/no_memory", test_no_memory},
    {0, 0}
};
