/* Sequences: any order of evaluating, copying, rewinding, removing, saving and generating, with
   wrong arguments, passes that are cancelled or paused, and memory that runs out. The input is the
   list of operations. What fails changes nothing; in the end each sequence gives the logits that
   its tokens give alone. */
#include "fuzz.h"
#include "../unit/hybrid_builder.h"

/* The model is that of fuzz_state.c, or for an input in 4 a hybrid one, with few marks or many. */
enum { SEQS = 4, SEQS_CTX = STATE_CTX, SEQS_OPS = 48 };

typedef struct seqs_shadow {
    bitnet_token tokens[SEQS_CTX];
    int n;
    bitnet_token pending;
} seqs_shadow;

typedef struct seqs_state {
    bitnet_model *m;
    bitnet_ctx *c, *alone;
    seqs_shadow s[SEQS];               /* what each sequence must hold */
    bitnet_gen *gens[SEQS];
    bitnet_sampler samplers[SEQS];
    gb_counter count;
    long cancel_at;                    /* calls of cancel_fn until it says so; -1: never */
    int pause_every, pauses;           /* each so many calls of pause_fn say so (0: none); calls */
    uint32_t mask;
    fuzz_input in;
} seqs_state;

static int seqs_cancel(void *ud) {
    seqs_state *x = (seqs_state *)ud;
    return x->cancel_at >= 0 && x->cancel_at-- == 0;
}

static int seqs_pause(void *ud) {
    seqs_state *x = (seqs_state *)ud;
    return x->pause_every && ++x->pauses % x->pause_every == 0;
}

static void seqs_mask(void *ud, uint32_t *allowed) {
    const seqs_state *x = (const seqs_state *)ud;
    int i;
    for (i = 0; i < 8; i++) allowed[i] = x->mask;
}

static void seqs_look(const seqs_state *x, int i, seqs_shadow *s) {
    s->n = bitnet_seq_length(x->c, i);
    s->pending = bitnet_seq_pending(x->c, i);
    memcpy(s->tokens, bitnet_seq_tokens(x->c, i), (size_t)s->n * sizeof *s->tokens);
}

static void seqs_same(const seqs_state *x, int i) {
    seqs_shadow now;
    seqs_look(x, i, &now);
    FUZZ_CHECK(now.n == x->s[i].n && now.pending == x->s[i].pending);
    FUZZ_CHECK(!memcmp(now.tokens, x->s[i].tokens, (size_t)now.n * sizeof *now.tokens));
}

/* A sequence's row of logits, from the tokens alone. */
static void seqs_row(seqs_state *x, const float *row, const seqs_shadow *s, int n) {
    const size_t bytes = (size_t)x->m->n_vocab * sizeof *row;
    FUZZ_CHECK(row && !bitnet_seq_sync(x->alone, 0, s->tokens, n, 0, 0));
    FUZZ_CHECK(!memcmp(row, bitnet_logits(x->alone, -1, NULL), bytes));
}

static bitnet_token seqs_token(seqs_state *x) {
    const int t = fuzz_range(&x->in, 0, 255);
    return t < 250 ? t : t == 255 ? -1 : x->m->n_vocab - 1 + (t == 254);
}

static void seqs_append(seqs_shadow *s, const bitnet_token *tokens, int n) {
    if (s->pending >= 0) s->tokens[s->n++] = s->pending;
    memcpy(s->tokens + s->n, tokens, (size_t)n * sizeof *tokens);
    s->n += n;
    s->pending = -1;
}

static void seqs_eval(seqs_state *x, bitnet_error *err) {
    bitnet_token tokens[3][40];
    bitnet_input in[3];
    const int n = fuzz_range(&x->in, 0, 3);
    bitnet_result r;
    int i, k;
    memset(in, 0, sizeof in);
    for (i = 0; i < n; i++) {
        in[i].seq = fuzz_range(&x->in, 0, SEQS);
        in[i].n_tokens = fuzz_range(&x->in, 0, 7) ? fuzz_range(&x->in, 1, 3)
                                                 : fuzz_range(&x->in, 0, 40);
        in[i].tokens = tokens[i];
        in[i].n_logits = fuzz_range(&x->in, 0, 3);
        in[i].row = -7;
        for (k = 0; k < in[i].n_tokens; k++) tokens[i][k] = seqs_token(x);
    }
    r = bitnet_eval_many(x->c, in, n, err);
    fuzz_check_error(r, err);
    for (i = 0; i < n && r == BITNET_OK; i++) {
        seqs_shadow *s = &x->s[in[i].seq];
        seqs_append(s, in[i].tokens, in[i].n_tokens);
        for (k = 0; k < in[i].n_logits; k++)
            seqs_row(x, bitnet_logits(x->c, in[i].row + k, NULL), s, s->n - in[i].n_logits + k + 1);
    }
}

/* Saves one sequence and loads it into another. */
static void seqs_carry(seqs_state *x, int from, int to, bitnet_error *err) {
    const size_t n = (size_t)bitnet_seq_state_bytes(x->c, from);
    uint8_t *p = (uint8_t *)gb_malloc(n);
    bitnet_result r;
    if (!bitnet_seq_save_memory(x->c, from, p, n, 0)) {
        r = bitnet_seq_load_memory(x->c, to, p, n, err);
        fuzz_check_error(r, err);
        if (r == BITNET_OK) x->s[to] = x->s[from];
    }
    free(p);
}

static void seqs_sync(seqs_state *x, int i, bitnet_error *err) {
    bitnet_token tokens[SEQS_CTX + 1];
    const int n = fuzz_range(&x->in, 0, SEQS_CTX + 1), kept = fuzz_range(&x->in, 0, SEQS_CTX);
    bitnet_result r;
    int32_t n_kept = 0, same = 0;
    int k;
    for (k = 0; k < n; k++)
        tokens[k] = k < kept && k < x->s[i].n ? x->s[i].tokens[k] : seqs_token(x);
    r = bitnet_seq_sync(x->c, i, tokens, n, &n_kept, err);
    fuzz_check_error(r, err);
    if (r == BITNET_ERR_ARG || r == BITNET_ERR_BUSY || n > SEQS_CTX) return;
    while (same < n - 1 && same < x->s[i].n && tokens[same] == x->s[i].tokens[same]) same++;
    FUZZ_CHECK(x->m->n_state ? n_kept <= same : n_kept == same);
    x->s[i].n = same;
    x->s[i].pending = -1;
    if (r == BITNET_OK) seqs_append(&x->s[i], tokens + same, n - same);
}

static void seqs_remove(seqs_state *x, int i, int from, int to, bitnet_error *err) {
    seqs_shadow *s = &x->s[i];
    const bitnet_result r = bitnet_seq_remove(x->c, i, from, to, err);
    fuzz_check_error(r, err);
    if (r == BITNET_ERR_ARG || r == BITNET_ERR_BUSY || from == to) return;
    if (r == BITNET_OK) {
        memmove(s->tokens + from, s->tokens + to, (size_t)(s->n - to) * sizeof *s->tokens);
        s->n -= to - from;
    } else {
        s->n = from;
        s->pending = -1;
    }
}

/* ---- generations: what is read or written is checked by the logits in the end ---- */

static void seqs_begin(seqs_state *x, int i, bitnet_error *err) {
    static const bitnet_text stops[] = {BITNET_TEXT("a"), BITNET_TEXT("zz")};
    static const bitnet_text hello = BITNET_TEXT("hello hell hello hell"), one = BITNET_TEXT("x");
    bitnet_token prompt[64];
    bitnet_generate_params p;
    bitnet_sampler *s = &x->samplers[i];
    const int what = fuzz_range(&x->in, 0, 255);
    bitnet_gen *g;
    int k;
    if (x->gens[i]) {
        memset(&p, 0, sizeof p);
        p.seq = i;
        p.text = one;
        x->count.fail_at = -1;
        FUZZ_CHECK(bitnet_gen_begin(x->c, &p, &g, 0) == BITNET_ERR_BUSY);
        return;
    }
    memset(&p, 0, sizeof p);
    memset(s, 0, sizeof *s);
    p.seq = i;
    p.n_tokens = what & 1 ? fuzz_range(&x->in, 1, 60) : fuzz_range(&x->in, 0, 4);
    for (k = 0; k < p.n_tokens; k++) prompt[k] = seqs_token(x);
    if (what & 2) p.text = hello;
    else p.tokens = prompt;
    p.max_tokens = fuzz_range(&x->in, 0, 9);
    p.ignore_end = what >> 2 & 1;
    p.lookup = what & 8 ? 3 : 0;
    s->temperature = what & 16 ? 0.8f : 0.0f;
    s->top_k = what & 32 ? 5 : 0;
    if (what & 64) s->mask_fn = seqs_mask;
    s->mask_ud = x;
    p.sampler = s;
    p.stop_strings = stops;
    p.n_stop_strings = what >> 7;
    fuzz_check_error(bitnet_gen_begin(x->c, &p, &x->gens[i], err), err);
}

static void seqs_next(seqs_state *x, bitnet_error *err) {
    const int which = fuzz_range(&x->in, 0, 15);
    bitnet_gen *list[SEQS];
    bitnet_piece piece;
    bitnet_result r;
    int i, k, n = 0, of[SEQS];
    x->mask = fuzz_range(&x->in, 0, 7) ? 0x12345678u : 0;
    for (i = 0; i < SEQS; i++)
        if (x->gens[i] && !(which >> i & 1)) of[n] = i, list[n++] = x->gens[i];
    r = bitnet_gen_next(list, n, err);
    fuzz_check_error(r, err);
    for (i = 0; i < n; i++) {
        seqs_shadow before = x->s[of[i]], *s = &x->s[of[i]];
        bitnet_gen_piece(list[i], &piece);
        FUZZ_CHECK(fuzz_is_utf8(piece.text.data, piece.text.size) &&
                   piece.n_read <= piece.n_prompt);
        for (k = 0; k < piece.n_tokens; k++)
            FUZZ_CHECK(piece.tokens[k] >= 0 && piece.tokens[k] < x->m->n_vocab);
        seqs_look(x, of[i], s);
        FUZZ_CHECK(s->n >= before.n && s->n <= SEQS_CTX);
        FUZZ_CHECK(!memcmp(s->tokens, before.tokens, (size_t)before.n * sizeof *s->tokens));
        if (r != BITNET_OK)
            FUZZ_CHECK(s->n == before.n && s->pending == before.pending && !piece.n_tokens);
    }
}

static void seqs_end(seqs_state *x, int i) {
    FUZZ_CHECK(!bitnet_gen_end(x->gens[i]));
    if (x->gens[i]) seqs_look(x, i, &x->s[i]);     /* a prompt may be taken back */
    x->gens[i] = 0;
}

static void seqs_operation(seqs_state *x) {
    const int what = fuzz_range(&x->in, 0, 15), i = fuzz_range(&x->in, 0, SEQS - 1);
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r;
    int a, b;
    if (what > 3 && what < 8) {
        a = fuzz_range(&x->in, 0, SEQS);
        b = fuzz_range(&x->in, 0, SEQS_CTX + 1);
        if (what == 4) {
            r = bitnet_seq_copy(x->c, a, i, b, NULL);
            if (r == BITNET_OK) {
                x->s[i].n = b;
                x->s[i].pending = -1;
                memcpy(x->s[i].tokens, x->s[a].tokens, (size_t)b * sizeof *x->s[i].tokens);
            }
        } else if (what == 5) {
            if (!bitnet_seq_rewind(x->c, i, b, NULL)) x->s[i].n = b, x->s[i].pending = -1;
        } else if (what == 6) seqs_remove(x, i, a, b, &err);
        else seqs_carry(x, i, a % SEQS, &err);
    } else switch (what) {
        case 8: seqs_sync(x, i, &err); break;
        case 9: seqs_begin(x, i, &err); break;
        case 10: case 11: case 12: seqs_next(x, &err); break;
        case 13: seqs_end(x, i); break;
        case 14:
            x->cancel_at = fuzz_range(&x->in, 0, 20);
            x->pause_every = fuzz_range(&x->in, 0, 3);
            break;
        case 15: x->count.fail_at = x->count.calls + fuzz_range(&x->in, 0, 3); break;
        default: seqs_eval(x, &err);
    }
}

static const hybrid *seqs_hybrid(void) {
    static hybrid h;
    if (h.data) return &h;
    h = small_hybrid();
    make_hybrid(&h);
    return &h;
}

static void seqs_open(seqs_state *x) {
    const int n_batch = fuzz_range(&x->in, 1, 40), n_kv = fuzz_range(&x->in, 2, 2 * SEQS);
    const int what = fuzz_range(&x->in, 0, 7), is_hybrid = what > 5;
    const uint8_t *file = is_hybrid ? seqs_hybrid()->data : state_model()->data;
    bitnet_model_params mp;
    bitnet_ctx_params p;
    memset(&mp, 0, sizeof mp);
    mp.allocator = gb_counting(&x->count);
    mp.kernels = &bitnet__kernels_scalar;
    FUZZ_CHECK(!bitnet_model_load_memory(
        file, is_hybrid ? seqs_hybrid()->size : state_model()->size, &mp, &x->m, 0));
    memset(&p, 0, sizeof p);
    p.n_ctx = SEQS_CTX;
    p.n_threads = 1;
    p.mark_bytes = -1;
    FUZZ_CHECK(!bitnet_ctx_create(x->m, &p, &x->alone, 0));
    p.n_batch = n_batch;
    p.n_seqs = SEQS;
    p.n_kv = 64 * n_kv;
    p.n_logits = 16;
    p.no_head_copy = what & 1;
    p.mark_bytes = (n_batch + n_kv) % 5 * bitnet__mark_bytes(x->m, &p) - (n_kv == 2);
    p.hooks.cancel_fn = seqs_cancel;
    p.hooks.pause_fn = seqs_pause;
    p.hooks.cancel_ud = p.hooks.pause_ud = x;
    FUZZ_CHECK(!bitnet_ctx_create(x->m, &p, &x->c, 0));
}

FUZZ_TARGET(sequences) {
    static seqs_state x;
    bitnet_error err = {BITNET_OK, "", {0}};
    int i, ops;
    memset(&x, 0, sizeof x);
    x.in.p = data;
    x.in.n = size;
    x.cancel_at = -1;
    seqs_open(&x);
    for (i = 0; i < SEQS; i++) x.s[i].pending = -1;
    for (ops = 0; ops < SEQS_OPS && x.in.n > 0; ops++) {
        seqs_operation(&x);
        for (i = 0; i < SEQS; i++) seqs_same(&x, i);
    }
    x.cancel_at = -1;
    x.count.fail_at = -1;
    for (i = 0; i < SEQS; i++) seqs_end(&x, i);
    for (i = 0; i < SEQS; i++) {
        const seqs_shadow s = x.s[i];
        if (s.n == 0) continue;
        if (bitnet_seq_sync(x.c, i, s.tokens, s.n, 0, 0)) {        /* a page that is shared */
            FUZZ_CHECK(!bitnet_seq_rewind(x.c, (i + 1) % SEQS, 0, NULL));
            x.s[(i + 1) % SEQS].n = 0;
            continue;
        }
        seqs_row(&x, bitnet_logits(x.c, -1, NULL), &s, s.n);
    }
    for (i = 0; i < SEQS; i++) seqs_begin(&x, i, &err);    /* their contexts and model go first */
    if (x.gens[0]) fuzz_check_error(bitnet_gen_next(x.gens, 1, &err), &err);
    bitnet_model_free(x.m);
    FUZZ_CHECK(!bitnet_ctx_free(x.alone) && !bitnet_ctx_free(x.c));
    for (i = 0; i < SEQS; i++) FUZZ_CHECK(!bitnet_gen_end(x.gens[i]));
    FUZZ_CHECK(x.count.live == 0);
}
