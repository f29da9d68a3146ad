/* Many sequences in one context: the logits of each are the same bits as alone, whatever is
   evaluated beside it; copies share memory; what runs out is said before anything changes. */
#include "model_helpers.h"
#include "test.h"

enum { N_SEQS = 7, N_TOKENS = 150 };

typedef struct mix {
    gb_model g;
    bitnet_model *m;
    bitnet_token tokens[N_SEQS][N_TOKENS];
    float *want[N_SEQS];                   /* [N_TOKENS][n_vocab], each evaluated alone */
    uint64_t seed;
} mix;

static int below(mix *x, int n) { return (int)(gb_random(&x->seed) % (unsigned)n); }

/* Sequences of random tokens; 1 to 6 begin as 0 does, so that parts can be copied. */
static void make_tokens(mix *x) {
    int s, i;
    for (s = 0; s < N_SEQS; s++)
        for (i = 0; i < N_TOKENS; i++)
            x->tokens[s][i] = s > 0 && i < 20 * s ? x->tokens[0][i] : below(x, x->m->n_vocab);
}

static int set_up(mix *x, const bitnet_kernels *k, bitnet_kv_type kv) {
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
    for (s = 0; s < N_SEQS; s++) {
        x->want[s] = logits_of(x->g.data, x->g.size, &bitnet__kernels_scalar, &p, x->tokens[s],
                               N_TOKENS, N_TOKENS);
        if (!x->want[s]) return 0;
    }
    return 1;
}

static void tear_down(mix *x) {
    int s;
    for (s = 0; s < N_SEQS; s++) free(x->want[s]);
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
            const float *row = bitnet_logits(c, in[i].row + k);
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
    bitnet_error err = {BITNET_OK, ""};
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
    if (below(x, 3)) return !bitnet_seq_rewind(c, s, below(x, bitnet_seq_length(c, s) + 1));
    return !bitnet_seq_copy(c, 0, s, below(x, most + 1)) &&
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

/* Every table, several thread counts, both caches. */
static void test_mixes(void) {
    int k, t;
    for (k = 0; k < bitnet_kernels_count(); k++)
        for (t = 1; t <= 3 && bitnet_kernels_usable(bitnet_kernels_get(k)); t++)
            if (!test_quick() || (k + t) % 3 == 0)
                run_mix(bitnet_kernels_get(k), t, (bitnet_kv_type)((k + t) % 2),
                        test_quick() ? 25 : 60);
}

extern const test_case sequences_tests[];
const test_case sequences_tests[] = {
    {"sequences/mixes", test_mixes},
    {0, 0}
};
