/* A pass that is paused in the head, while that is read in slices, gives the same tokens, whatever
   its sampler reads of the head. tests/unit/test_sequences.c has pauses between layers. */
#include "model_helpers.h"
#include "test.h"

enum { N_KINDS = 8, MASK = 6, LOOKUP = 7, MOST_NEW = 12 };

static int always(void *ud) {
    ++*(int *)ud;
    return 1;
}

static void allow_odd(void *ud, uint32_t *allowed) {
    memset(allowed, 0xaa, (size_t)(*(const int *)ud + 31) / 32 * 4);
}

/* What a sampler of this kind needs: the largest logit; the 40 largest; all, three times; the
   largest beside some that bias and penalty change; and what a mask allows. */
static void make_sampler(int kind, bitnet_sampler *s, int *n_vocab) {
    static const bitnet_logit_bias bias[] = {{7, 3.0f}, {900, 5.0f}, {1700, -1.0f}};
    memset(s, 0, sizeof *s);
    s->rng = (uint64_t)kind;
    s->temperature = kind >= 1 && kind <= 4 ? 0.8f : 0.0f;
    s->top_k = kind == 1 ? 40 : kind == 3 ? 1000 : 0;
    s->top_p = kind == 4 ? 0.9f : 0.0f;
    if (kind == 5) {
        s->bias = bias;
        s->n_bias = 3;
        s->repeat_penalty = 1.5f;
    }
    if (kind == MASK) {
        s->mask_fn = allow_odd;
        s->mask_ud = n_vocab;
    }
}

/* The tokens of two generations beside each other, each with a model of its own, so that the copy
   of the head is filled in, too. Returns the calls that it took; 0: it failed. */
static int write_texts(const gb_model *g, int kind, const bitnet_ctx_params *params, int min_task,
                       bitnet_token out[2][MOST_NEW], uint64_t rng[2]) {
    static const bitnet_token prompt[] = {5, 80, 33, 80, 5, 80, 33};
    bitnet_model *m = load(g->data, g->size, 0);
    bitnet_ctx *c = create(m, params);
    bitnet_gen *gens[2] = {0, 0};
    bitnet_generate_params p;
    bitnet_sampler s;
    bitnet_piece piece;
    int calls, i, k, open = 2, n[2] = {0, 0}, n_vocab = m ? m->n_vocab : 0;
    if (!c) return 0;
    c->min_task = min_task;
    make_sampler(kind, &s, &n_vocab);
    memset(&p, 0, sizeof p);
    p.n_tokens = 7;
    p.max_tokens = MOST_NEW;
    p.ignore_end = 1;
    p.lookup = kind == LOOKUP ? 3 : 0;
    p.tokens = prompt;
    p.sampler = &s;
    for (i = 0; i < 2; i++) {
        p.seq = i;
        p.n_tokens -= i;
        if (bitnet_gen_begin(c, &p, &gens[i], 0)) open = 0;
    }
    for (calls = 0; open && calls < 100000; calls++) {
        if (bitnet_gen_next(gens, 2, 0)) break;
        for (i = open = 0; i < 2; i++) {
            bitnet_gen_piece(gens[i], &piece);
            for (k = 0; k < piece.n_tokens && n[i] < MOST_NEW; k++)
                out[i][n[i]++] = piece.tokens[k];
            rng[i] = piece.rng;
            open += !piece.ended;
        }
    }
    for (i = 0; i < 2; i++) bitnet_gen_end(gens[i]);
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    return n[0] == MOST_NEW && n[1] == MOST_NEW ? calls : 0;
}

static void check_kind(const gb_model *g, int kind) {
    bitnet_token want[2][MOST_NEW], got[2][MOST_NEW];
    bitnet_ctx_params cp = ctx_params(40, 0, 1, BITNET_KV_F16);
    uint64_t want_rng[2], got_rng[2];
    int i, calls, asked, passes;
    cp.n_seqs = 2;
    cp.n_logits = 8;
    passes = write_texts(g, kind, &cp, 1, want, want_rng);
    CHECK_MSG(passes > 0, "kind %d", kind);
    for (i = 0; i < 6; i++) {          /* slices of one item or several; with and without a copy */
        cp.n_threads = 1 + i % 2;
        cp.no_head_copy = i / 4;
        cp.hooks.pause_fn = always;
        cp.hooks.pause_ud = &asked;
        asked = 0;
        calls = write_texts(g, kind, &cp, i / 2 % 2 ? 500 : 1, got, got_rng);
        CHECK_MSG(calls > 0 && !memcmp(want, got, sizeof want) &&
                  !memcmp(want_rng, got_rng, sizeof want_rng), "kind %d, case %d", kind, i);
        /* a pass has two layers, and behind them slices */
        CHECK_MSG(calls == passes + asked && asked >= (kind == MASK ? 2 : 9) * passes,
                  "kind %d, case %d: %d passes, %d pauses", kind, i, passes, asked);
    }
}

static void test_slices(void) {
    static gb_model g;
    int kind;
    memset(&g, 0, sizeof g);
    g.dim = 128, g.ffn = 256, g.layers = 2, g.heads = 4, g.kv_heads = 2;
    g.n_ctx = 64, g.spare_rows = 1700, g.embed_type = GB_TENSOR_F16, g.seed = 5;
    gb_make_model(&g);
    for (kind = 0; kind < N_KINDS; kind++) check_kind(&g, kind);
    gb_free_model(&g);
}

extern const test_case pauses_head_tests[];
const test_case pauses_head_tests[] = {
    {"pauses_head/slices", test_slices},
    {0, 0}
};
