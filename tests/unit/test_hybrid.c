/* Hybrid networks (architecture qwen35): gated delta nets, and attention with a gate every few
   layers, maybe folded by a Hadamard matrix. Small models are compared with a forward pass in
   double that is written here from the description of the network, and with references of another
   program; then with themselves: kernels, threads, batches and neighbours give the same bits. What
   a file may say beyond that is refused. */

#include "gguf_helpers.h"
#include "hybrid_builder.h"
#include "model_helpers.h"

enum { MAX_N = 40 };

/* ---- the forward pass in double ---- */

typedef struct pass {
    hybrid *h;
    int layer, t, n;
    double *keys, *values;             /* [layers][n][kv_heads * head_dim] */
    double *s;                         /* [layers][value_heads][d values][d keys] */
    double *u;                         /* [layers][n][channels] */
} pass;

static const float *part(const pass *p, const char *what) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", p->layer, what);
    return weight_of(p->h, name)->w;
}

static void slow_product(const float *w, const double *x, int n_in, int n_out, double *y) {
    int r, i;
    for (r = 0; r < n_out; r++)
        for (i = 0, y[r] = 0; i < n_in; i++) y[r] += (double)w[r * n_in + i] * x[i];
}

static void slow_rms(const double *x, const float *gain, int n, double *y) {
    double sum = 0;
    int i;
    for (i = 0; i < n; i++) sum += x[i] * x[i];
    for (i = 0; i < n; i++) y[i] = x[i] / sqrt(sum / n + (double)1e-6f) * (double)gain[i];
}

static double silu(double x) { return x / (1 + exp(-x)); }

static void slow_gdn(const pass *p, const double *x, double *y) {
    const hybrid *h = p->h;
    const int d = h->d, keys = h->key_heads * d, values = h->value_heads * d;
    const int channels = 2 * keys + values;
    double *u = p->u + (p->layer * p->n + p->t) * channels, c[512], z[512], o[512], a[16], b[16];
    const float *w = part(p, "ssm_conv1d.weight");
    int i, j, k;
    slow_product(part(p, "attn_qkv.weight"), x, h->dim, channels, u);
    slow_product(part(p, "attn_gate.weight"), x, h->dim, values, z);
    slow_product(part(p, "ssm_alpha.weight"), x, h->dim, h->value_heads, a);
    slow_product(part(p, "ssm_beta.weight"), x, h->dim, h->value_heads, b);
    for (i = 0; i < channels; i++) {
        double sum = 0;
        for (k = 0; k < h->taps; k++) {
            const int t = p->t - h->taps + 1 + k;
            if (t >= 0)
                sum += (double)w[i * h->taps + k] * p->u[(p->layer * p->n + t) * channels + i];
        }
        c[i] = silu(sum);
    }
    for (i = 0; i < 2 * keys; i += d) {
        double sum = 0;
        for (j = 0; j < d; j++) sum += c[i + j] * c[i + j];
        for (j = 0; j < d; j++) c[i + j] /= sqrt(sum) > 1e-6 ? sqrt(sum) : 1e-6;
    }
    for (i = 0; i < h->value_heads; i++) {
        const double *q = c + i % h->key_heads * d, *key = q + keys, *v = c + 2 * keys + i * d;
        const double bias = a[i] + (double)part(p, "ssm_dt.bias")[i];
        const double decay = exp((double)part(p, "ssm_a")[i] * log(1 + exp(bias)));
        double *s = p->s + (p->layer * h->value_heads + i) * d * d;
        for (j = 0; j < d; j++) {
            double e = 0, sum = 0;
            for (k = 0; k < d; k++) e += (s[j * d + k] *= decay) * key[k];
            e = (v[j] - e) / (1 + exp(-b[i]));
            for (k = 0; k < d; k++) sum += (s[j * d + k] += e * key[k]) * q[k];
            o[i * d + j] = sum / sqrt((double)d);
        }
        slow_rms(o + i * d, part(p, "ssm_norm.weight"), d, o + i * d);
        for (j = 0; j < d; j++) o[i * d + j] *= silu(z[i * d + j]);
    }
    slow_product(part(p, "ssm_out.weight"), o, values, h->dim, y);
}

static void slow_rope(const hybrid *h, int t, double *x) {
    const int half = h->n_rot / 2;
    int i;
    for (i = 0; i < half; i++) {
        const double angle = t * pow(10000.0, -2.0 * i / h->n_rot), a = x[i], b = x[half + i];
        x[i] = a * cos(angle) - b * sin(angle);
        x[half + i] = b * cos(angle) + a * sin(angle);
    }
}

static void slow_gated(const pass *p, const double *x, double *y) {
    const hybrid *h = p->h;
    const int hd = h->head_dim, row = h->kv_heads * hd, per_kv = h->heads / h->kv_heads;
    double *keys = p->keys + p->layer * p->n * row, *values = p->values + p->layer * p->n * row;
    double q[512], o[256], score[MAX_N];
    int i, j, t;
    slow_product(part(p, "attn_q.weight"), x, h->dim, 2 * h->heads * hd, q);
    slow_product(part(p, "attn_k.weight"), x, h->dim, row, keys + p->t * row);
    slow_product(part(p, "attn_v.weight"), x, h->dim, row, values + p->t * row);
    for (i = 0; i < h->kv_heads; i++) {
        double *k = keys + p->t * row + i * hd;
        slow_rms(k, part(p, "attn_k_norm.weight"), hd, k);
        slow_rope(h, p->t, k);
    }
    for (i = 0; i < h->heads; i++) {
        double *query = q + 2 * i * hd, sum = 0, top = -1e300;
        slow_rms(query, part(p, "attn_q_norm.weight"), hd, query);
        slow_rope(h, p->t, query);
        for (t = 0; t <= p->t; t++) {
            for (j = 0, score[t] = 0; j < hd; j++)
                score[t] += query[j] * keys[t * row + i / per_kv * hd + j];
            score[t] /= sqrt((double)hd);
            if (score[t] > top) top = score[t];
        }
        for (t = 0; t <= p->t; t++) sum += score[t] = exp(score[t] - top);
        for (j = 0; j < hd; j++) {
            double *out = &o[i * hd + j];
            for (t = 0, *out = 0; t <= p->t; t++)
                *out += score[t] / sum * values[t * row + i / per_kv * hd + j];
            *out /= 1 + exp(-query[hd + j]);
        }
    }
    slow_product(part(p, "attn_output.weight"), o, h->heads * hd, h->dim, y);
}

/* All logits [n][n_vocab]. */
static float *slow_logits(hybrid *h, const bitnet_token *tokens, int n) {
    const int row = h->kv_heads * h->head_dim;
    const int channels = (2 * h->key_heads + h->value_heads) * h->d;
    const size_t all = (size_t)(h->layers * n);
    const weight *head = weight_of(h, h->tied ? "token_embd.weight" : "output.weight");
    float *logits = (float *)gb_malloc((size_t)n * (size_t)h->n_vocab * sizeof *logits);
    double x[256], y[256], up[512], gate[512], *out;
    pass p;
    int i;
    p.h = h;
    p.n = n;
    p.keys = (double *)calloc(all * (size_t)row, sizeof(double));
    p.values = (double *)calloc(all * (size_t)row, sizeof(double));
    p.u = (double *)calloc(all * (size_t)channels, sizeof(double));
    p.s = (double *)calloc((size_t)(h->layers * h->value_heads * h->d * h->d), sizeof(double));
    out = (double *)gb_malloc((size_t)h->n_vocab * sizeof *out);
    for (p.t = 0; p.t < n; p.t++) {
        for (i = 0; i < h->dim; i++) x[i] = (double)h->weights[0].w[tokens[p.t] * h->dim + i];
        for (p.layer = 0; p.layer < h->layers; p.layer++) {
            double mixed[256];
            slow_rms(x, part(&p, "attn_norm.weight"), h->dim, y);
            (is_attention(h, p.layer) ? slow_gated : slow_gdn)(&p, y, mixed);
            for (i = 0; i < h->dim; i++) x[i] += mixed[i];
            slow_rms(x, part(&p, "post_attention_norm.weight"), h->dim, y);
            slow_product(part(&p, "ffn_gate.weight"), y, h->dim, h->ffn, gate);
            slow_product(part(&p, "ffn_up.weight"), y, h->dim, h->ffn, up);
            for (i = 0; i < h->ffn; i++) up[i] *= silu(gate[i]);
            slow_product(part(&p, "ffn_down.weight"), up, h->ffn, h->dim, mixed);
            for (i = 0; i < h->dim; i++) x[i] += mixed[i];
        }
        slow_rms(x, weight_of(h, "output_norm.weight")->w, h->dim, y);
        slow_product(head->w, y, h->dim, h->n_vocab, out);
        for (i = 0; i < h->n_vocab; i++) logits[p.t * h->n_vocab + i] = (float)out[i];
    }
    free(p.keys);
    free(p.values);
    free(p.u);
    free(p.s);
    free(out);
    return logits;
}

/* Makes the model, and compares its logits with the pass in double. */
static void check_slow(hybrid *h, const char *what) {
    bitnet_ctx_params p = ctx_params(MAX_N, 9, 2, BITNET_KV_F32);
    bitnet_token tokens[MAX_N];
    float *want, *got;
    int i;
    make_hybrid(h);
    for (i = 0; i < MAX_N; i++) tokens[i] = (5 + 31 * i) % h->n_vocab;
    got = logits_of(h->data, h->size, 0, &p, tokens, MAX_N, MAX_N);
    want = slow_logits(h, tokens, MAX_N);
    if (got) {
        const double error = nrmse(got, want, (size_t)(MAX_N * h->n_vocab));
        CHECK_MSG(error < 3e-6, "%s: NRMSE %.3g", what, error);
    }
    free(want);
    free(got);
    free_hybrid(h);
}

static void test_slow(void) {
    hybrid h = small_hybrid();
    check_slow(&h, "F32");
    h.type = GB_TENSOR_F16;
    h.small_type = GB_TENSOR_BF16;
    h.tied = 1;
    check_slow(&h, "F16, tied");
    h = small_hybrid();
    h.type = GB_TENSOR_BF16;
    h.every = 3;
    h.layers = 5;
    h.taps = 2;
    h.d = 48;                          /* a slice of 32 values and one of 16 */
    h.value_heads = 2;
    check_slow(&h, "BF16, heads of 48, 2 taps");
    h = small_hybrid();
    h.taps = 8;
    h.d = 13;
    h.key_heads = 1;
    h.value_heads = 5;
    h.heads = h.kv_heads = 3;
    check_slow(&h, "heads of 13, 8 taps");
    h = small_hybrid();
    h.every = 1;
    check_slow(&h, "only attention");
    h = small_hybrid();
    h.every = 9;
    check_slow(&h, "no attention");
}

static void test_folds(void) {
    int i;
    for (i = 0; i < 8; i++) {
        hybrid h = foldable();
        char what[60];
        h.ffn = 160;
        h.block = i == 7 ? 1 : i % 4 == 3 ? 8 : 32;
        h.identity = i == 2 || i == 5;
        h.grouped = i % 2;
        h.tied = i / 4;
        h.seed += (uint64_t)i;
        snprintf(what, sizeof what, "fold %d", i);
        check_slow(&h, what);
    }
}

/* Layers behind the last one are not read, whatever their types are. */
static void add_skipped(hybrid *h) {
    uint8_t bytes[34 * 2] = {1};
    gb_key_u32(&h->m.file, "qwen35.nextn_predict_layers", 1);
    gb_tensor(&h->m.file, "blk.4.attn_q.weight", GB_TENSOR_Q8_0, 32, 2, bytes, sizeof bytes);
    gb_tensor(&h->m.file, "blk.4.nextn.eh_proj.weight", 77, 5, 3, bytes, 64);
    gb_tensor(&h->m.file, "blk.4.nextn.enorm.weight", GB_TENSOR_F32, 17, 0, bytes, 68);
}

/* A list of layers stands in place of the interval; it may also have the layers behind the last. */
static void add_list(hybrid *h) {
    int i;
    gb_key_array(&h->m.file, "qwen35.attention.recurrent_layers", GB_BOOL, (uint64_t)h->layers);
    for (i = 0; i < h->layers; i++) gb_uint(&h->m.file.keys, !is_attention(h, i), 1);
}

static void test_skipped(void) {
    hybrid h = small_hybrid();
    h.key = "block_count";
    h.value = 5;
    h.late = add_skipped;
    check_slow(&h, "layers behind the last");
    h = small_hybrid();
    h.key = "full_attention_interval";
    h.value = 3;
    h.late = add_list;
    check_slow(&h, "a list of layers");
}

/* ---- sequences ---- */

enum { N_SEQS = 3 };

typedef struct shared { hybrid h; bitnet_model *m; bitnet_ctx *c; float *want; int left; } shared;

static int countdown(void *ud) { return --*(int *)ud < 0; }
static bitnet_token token_of(int seq, int i) { return (3 + 29 * i + 41 * seq) % 250; }

/* Three sequences, and what each token's logits are where it stands alone in a context. */
static int set_up(shared *x, int block) {
    bitnet_ctx_params p = ctx_params(MAX_N, 16, 2, BITNET_KV_F16);
    bitnet_token tokens[MAX_N];
    int s, i;
    x->h = foldable();
    x->h.block = block;
    x->left = INT_MAX;
    make_hybrid(&x->h);
    x->m = load(x->h.data, x->h.size, 0);
    if (!x->m) return 0;
    x->want = (float *)gb_malloc((size_t)(N_SEQS * MAX_N * x->h.n_vocab) * sizeof *x->want);
    for (s = 0; s < N_SEQS; s++) {
        bitnet_ctx *c = create(x->m, &p);
        for (i = 0; i < MAX_N; i++) tokens[i] = token_of(s, i);
        if (!c || !all_logits(c, tokens, MAX_N, 1, x->want + s * MAX_N * x->h.n_vocab)) return 0;
        bitnet_ctx_free(c);
    }
    p.n_seqs = N_SEQS;
    p.hooks.cancel_fn = countdown;
    p.hooks.cancel_ud = &x->left;
    x->c = create(x->m, &p);
    return x->c != 0;
}

static void tear_down(shared *x) {
    bitnet_ctx_free(x->c);
    bitnet_model_free(x->m);
    free(x->want);
    free_hybrid(&x->h);
}

/* Appends tokens of these numbers of `as` to a sequence; do all logits have the bits of want? */
static int appends(shared *x, int seq, int as, int from, int to) {
    const size_t vocab = (size_t)x->h.n_vocab;
    bitnet_token tokens[MAX_N];
    int i;
    for (i = from; i < to; i++) tokens[i - from] = token_of(as, i);
    if (bitnet_eval(x->c, seq, tokens, to - from, to - from, 0)) return 0;
    for (i = from; i < to; i++)
        if (memcmp(bitnet_logits(x->c, i - from, 0), x->want + (size_t)(as * MAX_N + i) * vocab,
                   vocab * sizeof(float))) return 0;
    return bitnet_seq_length(x->c, seq) == to;
}

/* All sequences in one batch, each with another number of tokens. */
static void check_together(shared *x) {
    const size_t vocab = (size_t)x->h.n_vocab;
    bitnet_token tokens[N_SEQS][MAX_N];
    bitnet_input in[N_SEQS];
    int done[N_SEQS] = {0}, round, s, i;
    for (round = 0; round < 3; round++) {
        memset(in, 0, sizeof in);
        for (s = 0; s < N_SEQS; s++) {
            in[s].seq = s;
            in[s].n_tokens = in[s].n_logits = round == 1 ? 1 : 1 + (round + s) * 3 % 11;
            in[s].tokens = tokens[s];
            for (i = 0; i < in[s].n_tokens; i++) tokens[s][i] = token_of(s, done[s] + i);
        }
        CHECK(!bitnet_eval_many(x->c, in, N_SEQS, 0));
        for (s = 0; s < N_SEQS; s++)
            for (i = 0; i < in[s].n_tokens; i++, done[s]++)
                CHECK_MSG(!memcmp(bitnet_logits(x->c, in[s].row + i, 0),
                                  x->want + (size_t)(s * MAX_N + done[s]) * vocab,
                                  vocab * sizeof(float)),
                          "sequence %d, token %d", s, done[s]);
    }
    for (s = 0; s < N_SEQS; s++) CHECK(!bitnet_seq_rewind(x->c, s, 0, 0));
}

static void check_copies(shared *x) {
    uint8_t *saved;
    uint64_t bytes;
    CHECK(appends(x, 0, 0, 0, 20) && appends(x, 1, 1, 0, 7));
    CHECK(!bitnet_seq_copy(x->c, 0, 2, 10, 0) && appends(x, 2, 0, 10, 20));
    CHECK(!bitnet_seq_rewind(x->c, 0, 19, 0) && appends(x, 0, 0, 19, 20));
    CHECK(!bitnet_seq_copy(x->c, 0, 2, 20, 0) && appends(x, 2, 0, 20, 30) &&
          appends(x, 0, 0, 20, 21) && appends(x, 1, 1, 7, 9));
    bytes = bitnet_seq_state_bytes(x->c, 2);
    CHECK(bytes == 52 + 30 * (4 + 2 * 2 * 2 * 2 * 16) + x->m->n_state * 4);
    saved = (uint8_t *)gb_malloc((size_t)bytes);
    CHECK(!bitnet_seq_save_memory(x->c, 2, saved, (size_t)bytes, 0) && appends(x, 2, 0, 30, 33));
    CHECK(!bitnet_seq_load_memory(x->c, 1, saved, (size_t)bytes, 0) && appends(x, 1, 0, 30, 40));
    CHECK(!bitnet_seq_rewind(x->c, 1, 0, 0) && bitnet_seq_state_bytes(x->c, 1) == 52);
    CHECK(!bitnet_seq_save_memory(x->c, 1, saved, 52, 0) &&
          !bitnet_seq_load_memory(x->c, 2, saved, 52, 0) && appends(x, 2, 2, 0, 9));
    free(saved);
}

/* A batch that is cancelled in any of its steps leaves its sequences as they were. */
static void check_cancelled(shared *x) {
    bitnet_token tokens[12];
    int i, k, done = 0;
    for (i = 0; i < 12; i++) tokens[i] = token_of(0, 10 + i);
    CHECK(!bitnet_seq_rewind(x->c, 1, 0, 0) && appends(x, 1, 1, 0, 11));
    for (k = 0; !done; k += 5) {
        CHECK(!bitnet_seq_rewind(x->c, 0, 0, 0) && appends(x, 0, 0, 0, 10));
        x->left = k;
        done = !bitnet_eval(x->c, 0, tokens, 12, 1, 0);
        x->left = INT_MAX;
        CHECK_MSG(bitnet_seq_length(x->c, 0) == (done ? 22 : 10), "%d", k);
        CHECK_MSG(done || appends(x, 0, 0, 10, 13), "%d", k);
    }
    CHECK_MSG(k > 30 && appends(x, 0, 0, 22, 25) && appends(x, 1, 1, 11, 14), "%d", k);
}

static void test_sequences(void) {
    int block;
    for (block = 0; block <= 32; block += 32) {
        static shared x;
        memset(&x, 0, sizeof x);
        if (set_up(&x, block)) {
            check_together(&x);
            check_copies(&x);
            check_cancelled(&x);
        } else CHECK(0);
        tear_down(&x);
    }
}

/* A saved sequence is refused where only a weight differs, in a matrix of floats. */
static void change_weight(hybrid *h) { weight_of(h, "blk.2.attn_qkv.weight")->w[1] *= 0.5f; }
static void test_identity(void) {
    hybrid a = small_hybrid(), b = small_hybrid();
    bitnet_ctx_params p = ctx_params(8, 8, 1, BITNET_KV_F16);
    const bitnet_token tokens[3] = {1, 2, 3};
    uint8_t *saved;
    size_t bytes;
    bitnet_error err;
    bitnet_model *m, *other;
    bitnet_ctx *c, *d;
    b.late = change_weight;
    make_hybrid(&a);
    make_hybrid(&b);
    m = load(a.data, a.size, 0);
    other = load(b.data, b.size, 0);
    c = create(m, &p);
    d = create(other, &p);
    CHECK(c && d && !bitnet_eval(c, 0, tokens, 3, 1, 0));
    bytes = (size_t)bitnet_seq_state_bytes(c, 0);
    saved = (uint8_t *)gb_malloc(bytes);
    CHECK(!bitnet_seq_save_memory(c, 0, saved, bytes, 0));
    CHECK(!bitnet_seq_load_memory(c, 0, saved, bytes, 0));
    CHECK(bitnet_seq_load_memory(d, 0, saved, bytes, &err) == BITNET_ERR_UNSUPPORTED &&
          strstr(err.text, "another model"));
    bitnet_ctx_free(c);
    bitnet_ctx_free(d);
    bitnet_model_free(m);
    bitnet_model_free(other);
    free(saved);
    free_hybrid(&a);
    free_hybrid(&b);
}

/* Numbers that are not finite are found wherever they arise: the error names the layer. */
static void blow_up(hybrid *h) { weight_of(h, "blk.2.ssm_alpha.weight")->w[3] = 3e38f; }
static void blow_norm(hybrid *h) { weight_of(h, "blk.2.ssm_norm.weight")->w[0] = 3e38f; }
static void test_nonfinite(void) {
    int i;
    for (i = 0; i < 2; i++) {
        hybrid h = small_hybrid();
        bitnet_ctx_params p = ctx_params(8, 8, 1, BITNET_KV_F16);
        const bitnet_token tokens[3] = {1, 2, 3};
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet_model *m;
        bitnet_ctx *c;
        h.late = i ? blow_norm : blow_up;
        make_hybrid(&h);
        m = load(h.data, h.size, 0);
        c = create(m, &p);
        CHECK_MSG(c && bitnet_eval(c, 0, tokens, 3, 1, &err) == BITNET_ERR_FORMAT &&
                      strstr(err.text, "layer 2") && bitnet_seq_length(c, 0) == 0,
                  "%s", err.text);
        bitnet_ctx_free(c);
        bitnet_model_free(m);
        free_hybrid(&h);
    }
}

/* The head of a folded model, by its copy in 6 bits, whose first samples fill it in: the token with
   the largest logit. Hidden states are not turned: they are those of the unfolded model. */
static void test_head(void) {
    int tied;
    for (tied = 0; tied < 2; tied++) {
        hybrid folded = foldable(), plain = foldable();
        hybrid *const h[2] = {&folded, &plain};
        bitnet_ctx_params p = ctx_params(MAX_N, 8, 1, BITNET_KV_F32);
        bitnet_model *m[2];
        bitnet_ctx *c[2];
        bitnet_sampler greedy;
        int i, k;
        memset(&greedy, 0, sizeof greedy);
        folded.block = 32;
        folded.tied = plain.tied = tied;
        for (k = 0; k < 2; k++) {
            make_hybrid(h[k]);
            m[k] = load(h[k]->data, h[k]->size, 0);
            c[k] = create(m[k], &p);
        }
        for (i = 0; i < 30 && c[0] && c[1]; i++) {
            const bitnet_token t = token_of(0, i);
            bitnet_token got;
            CHECK(!bitnet_eval(c[0], 0, &t, 1, 1, 0) && !bitnet_eval(c[1], 0, &t, 1, 1, 0));
            got = bitnet_sample(c[0], -1, &greedy, 0);
            CHECK_MSG(got == largest(bitnet_logits(c[0], -1, 0), folded.n_vocab), "token %d", i);
            CHECK(nrmse(bitnet_hidden(c[0], -1, 0), bitnet_hidden(c[1], -1, 0), 64) < 1e-5);
        }
        CHECK(c[0] && bitnet_ctx_exact_logits(c[0]) < folded.n_vocab / 2);
        for (k = 0; k < 2; k++) {
            bitnet_ctx_free(c[k]);
            bitnet_model_free(m[k]);
            free_hybrid(h[k]);
        }
    }
}

/* ---- what is refused ---- */

static void expect_hybrid(hybrid *h, bitnet_result code, const char *word, const char *what) {
    bitnet_model *m = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r;
    make_hybrid(h);
    r = bitnet_model_load_memory(h->data, h->size, 0, &m, &err);
    CHECK_MSG(r == code && !m == (code != BITNET_OK) && (r == BITNET_OK || strstr(err.text, word)),
              "%s: %d, %s", what, (int)r, err.text);
    if (r) try_load(h->data, h->size, 1, 1, what, 0);
    bitnet_model_free(m);
    free_hybrid(h);
}

static void test_fold_faults(void) {
    static const struct { int fault; bitnet_result code; const char *word; } faults[] = {
        {NO_FAULT, BITNET_OK, ""}, {NO_VERSION, BITNET_ERR_FORMAT, "hadamard.version' is missing"},
        {VERSION_3, BITNET_ERR_FORMAT, "hadamard.version"},
        {NOT_TIED, BITNET_ERR_FORMAT, "hadamard.version"},
        {IS_TIED, BITNET_ERR_FORMAT, "hadamard.version"},
        {NO_BLOCK, BITNET_ERR_FORMAT, "block_size' is missing"},
        {BLOCK_24, BITNET_ERR_FORMAT, "power of two"}, {BLOCK_0, BITNET_ERR_FORMAT, "block_size"},
        {BLOCK_256, BITNET_ERR_FORMAT, "blocks of 256"},
        {TRANSFORM, BITNET_ERR_UNSUPPORTED, "transform"},
        {NO_TRANSFORM, BITNET_ERR_UNSUPPORTED, "transform"}, {AXIS, BITNET_ERR_UNSUPPORTED, "axis"},
        {MODE, BITNET_ERR_UNSUPPORTED, "sign_mode"}, {NO_WIDTHS, BITNET_ERR_FORMAT, "sign_widths"},
        {NO_VALUES, BITNET_ERR_FORMAT, "sign_values"},
        {WIDTH_TWICE, BITNET_ERR_FORMAT, "a width twice"},
        {WIDTH_LACKS, BITNET_ERR_FORMAT, "has no width 128"},
        {WIDTH_0, BITNET_ERR_FORMAT, "sign_widths"}, {SIGN_2, BITNET_ERR_FORMAT, "sign_values"},
        {SIGN_SHORT, BITNET_ERR_FORMAT, "sign_values"},
        {SIGN_LONG, BITNET_ERR_FORMAT, "sign_values"},
        {SIGN_FLOATS, BITNET_ERR_FORMAT, "sign_values"},
        {NAME_LACKS, BITNET_ERR_FORMAT, "'blk.9.attn_q.weight'"},
        {NAME_OTHER, BITNET_ERR_UNSUPPORTED, "'blk.0.ssm_beta.weight'"},
        {ONE_NAME_LESS, BITNET_ERR_UNSUPPORTED, "only one of them is folded"},
        {INVERSE_OTHER, BITNET_ERR_UNSUPPORTED, "'output_norm.weight'"},
        {UNKNOWN_KEY, BITNET_ERR_UNSUPPORTED, "hadamard.sign_order"},
        {NAMES_NUMBER, BITNET_ERR_FORMAT, "weight_names"},
        {VERSION_TEXT, BITNET_ERR_FORMAT, "hadamard.version"},
        {WIDTH_HUGE, BITNET_ERR_FORMAT, "sign_values"}, {MANY_NAMES, BITNET_ERR_FORMAT, "names"},
        {INVERSE_LONGER, BITNET_ERR_FORMAT, "'token_embd.weight'"}
    };
    size_t i;
    CHECK(sizeof faults / sizeof faults[0] == FOLD_FAULTS);
    for (i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        hybrid h = foldable();
        char what[40];
        h.block = 32;
        h.fault = faults[i].fault;
        h.tied = h.fault == NOT_TIED;
        snprintf(what, sizeof what, "fault %d", faults[i].fault);
        expect_hybrid(&h, faults[i].code, faults[i].word, what);
    }
}

static void test_shapes(void) {
    static const struct {
        const char *key;
        uint32_t type;
        uint64_t value;
        const char *word;
    } bad[] = {
        {"full_attention_interval", 0, 0, "full_attention_interval"},
        {"full_attention_interval", GB_I32, 0xffffffffu, "full_attention_interval"},
        {"full_attention_interval", 0, 4, "blk.1.attn_qkv.weight"},
        {"ssm.state_size", 0, 0, "ssm.state_size"}, {"ssm.state_size", 0, 32, "ssm.inner_size"},
        {"ssm.state_size", 0, 1 << 20, "ssm.state_size"},
        {"ssm.group_count", 0, 0, "ssm.group_count"},
        {"ssm.group_count", 0, 3, "ssm.time_step_rank"},
        {"ssm.group_count", 0, 8, "ssm.time_step_rank"},
        {"ssm.group_count", GB_ARR, 0, "ssm.group_count"},
        {"ssm.time_step_rank", 0, 0, "ssm.time_step_rank"},
        {"ssm.time_step_rank", 0, 6, "ssm.inner_size"},
        {"ssm.time_step_rank", 0, 0xffffffffu, "ssm.time_step_rank"},
        {"ssm.inner_size", 0, 63, "ssm.inner_size"}, {"ssm.inner_size", GB_ARR, 0, "inner_size"},
        {"ssm.conv_kernel", 0, 0, "ssm.conv_kernel"}, {"ssm.conv_kernel", 0, 1, "ssm.conv_kernel"},
        {"ssm.conv_kernel", 0, 9, "ssm.conv_kernel"},
        {"ssm.conv_kernel", 0, 0xffffffffu, "ssm.conv_kernel"},
        {"ssm.conv_kernel", 0, 3, "blk.0.ssm_conv1d.weight"},
        {"rope.dimension_count", 0, 34, "rope.dimension_count"},
        {"rope.dimension_count", 0, 15, "rope.dimension_count"},
        {"attention.head_count_kv", 0, 3, "attention.head_count_kv"},
        {"block_count", 0, 3, "blk.3."}, {"block_count", 0, 5, "block_count"}
    };
    size_t i;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hybrid h = small_hybrid();
        bitnet_result code = strstr(bad[i].word, "blk.3.") ? BITNET_ERR_UNSUPPORTED
                                                           : BITNET_ERR_FORMAT;
        h.key = bad[i].key;
        h.key_type = bad[i].type;
        h.value = bad[i].value;
        expect_hybrid(&h, code, bad[i].word, bad[i].key);
    }
}

static int late_value;
static void late_change(hybrid *h) {
    gb_file *f = &h->m.file;
    switch (late_value) {
        case 0: weight_of(h, "blk.0.ssm_a")->w[1] = 1e-3f; break;
        case 1: weight_of(h, "blk.0.ssm_a")->w[2] = (float)NAN; break;
        case 2: weight_of(h, "blk.2.ssm_dt.bias")->w[0] = (float)INFINITY; break;
        case 3: weight_of(h, "blk.0.ssm_conv1d.weight")->w[5] = (float)NAN; break;
        case 4: strcpy(weight_of(h, "blk.0.ssm_dt.bias")->name, "blk.0.ssm_dt.weight"); break;
        case 5: strcpy(weight_of(h, "blk.1.post_attention_norm.weight")->name,
                       "blk.1.ffn_norm.weight"); break;
        case 6: gb_key_str(f, "qwen35.rope.scaling.type", "yarn"); break;
        case 7:
        case 8:
        case 9:
            gb_key_array(f, "qwen35.attention.recurrent_layers", GB_BOOL, late_value == 7 ? 3 : 4);
            gb_uint(&f->keys, late_value == 8 ? 0x00010203 : 0x01000100,
                    late_value == 7 ? 3 : 4);
            break;
        case 10: gb_key_uint(f, "qwen35.attention.recurrent_layers", GB_BOOL, 1, 1); break;
        case 11: gb_key_u32(f, "qwen35.nextn_predict_layers", 4); break;
        case 12: gb_key_u32(f, "qwen35.ssm.dt_rank", 1); break;
        default: break;
    }
}

static void test_tensors(void) {
    static const char *const words[] = {
        "must not be positive", "'blk.0.ssm_a' is not finite", "'blk.2.ssm_dt.bias' is not finite",
        "'blk.0.ssm_conv1d.weight' is not finite", "'blk.0.ssm_dt.bias' is missing",
        "'blk.1.post_attention_norm.weight' is missing", "rope.scaling.type", "recurrent_layers",
        "recurrent_layers", "blk.0.attn_q_norm.weight", "recurrent_layers", "nextn_predict_layers",
        "ssm.dt_rank"
    };
    for (late_value = 0; late_value < 13; late_value++) {
        hybrid h = small_hybrid();
        char what[20];
        h.late = late_change;
        snprintf(what, sizeof what, "case %d", late_value);
        expect_hybrid(&h, late_value == 6 || late_value == 12 ? BITNET_ERR_UNSUPPORTED
                                                              : BITNET_ERR_FORMAT,
                      words[late_value], what);
    }
}

/* A state of gigabytes is refused before any tensor is looked for. */
static void test_huge_state(void) {
    hybrid h = small_hybrid();
    bitnet_model *m = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    char name[20];
    int i;
    h.d = 1024;
    h.value_heads = 130;
    h.layers = 2;
    h.every = 9;
    h.m.arch = "qwen35";
    gb_start(&h.m.file);
    put_keys(&h);
    gb_put_vocab(&h.m);
    for (i = 0; i < 30; i++) {         /* as many tensors as the layers need */
        snprintf(name, sizeof name, "x.%d", i);
        put_weight(&h, name, 8, 0, 0, 1);
        write_weight(&h, &h.weights[i], 1);
    }
    h.data = gb_finish(&h.m.file, &h.size, 0);
    CHECK_MSG(bitnet_model_load_memory(h.data, h.size, 0, &m, &err) == BITNET_ERR_LIMIT && !m &&
                  strstr(err.text, "ssm.*") && strstr(err.text, "1043 MB"), "%s", err.text);
    free_hybrid(&h);
}

/* ---- models with references ---- */

static void *shared_model(const char *name, const char *suffix, size_t *size) {
    char path[60];
    snprintf(path, sizeof path, "models/%s%s", name, suffix);
    return test_read_file(test_shared(path), size);
}

static float *shared_floats(const char *name, const char *suffix, size_t n) {
    size_t size = 0, i;
    uint8_t *raw = (uint8_t *)shared_model(name, suffix, &size);
    float *x = raw && size == n * 4 ? (float *)gb_malloc(n * sizeof *x) : 0;
    for (i = 0; x && i < n; i++) x[i] = bitnet__load_f32(raw + 4 * i);
    free(raw);
    return x;
}

enum { N_TOKENS = 24 };

/* The tokens of all references, in a vocabulary of n_vocab of which the last 6 are special. */
static void reference_tokens(int n_vocab, bitnet_token *tokens) {
    int i;
    for (i = 0; i < N_TOKENS; i++) tokens[i] = (11 + 37 * i) % (n_vocab - 6);
}

typedef struct residual { bitnet_ctx *c; float *x; } residual;

static void keep_residual(void *ud, int32_t layer, const float *x, int32_t n) {
    const residual *r = (const residual *)ud;
    const size_t row = (size_t)r->c->m->dim;
    int t;
    for (t = 0; t < n; t++)
        memcpy(r->x + ((size_t)(layer + 1) * N_TOKENS + (size_t)r->c->places[t].pos) * row,
               x + (size_t)t * row, row * sizeof *x);
}

/* A sequence's state in the order of references: what the convolutions remember, oldest first,
   [layers][n_taps - 1][n_channels], and S [layers][heads][values][keys]. */
static void state_of(const bitnet_ctx *c, float *conv, float *s) {
    const bitnet_model *m = c->m;
    const int d = m->state_dim, taps = m->n_taps - 1, past = c->seqs[0].n_past;
    int layer, head, r, v, k;
    for (layer = 0; layer < m->n_layers; layer++) {
        const float *p = bitnet__seq_state(c, 0) + m->layers[layer].state;
        if (!m->layers[layer].kind->n_state) continue;
        for (head = 0; head < m->n_value_heads; head++, p += d * d, s += d * d)
            for (v = 0; v < d; v++)
                for (k = 0; k < d; k++) {
                    const int first = v / 32 * 32, width = d - first < 32 ? d - first : 32;
                    s[v * d + k] = p[first * d + k * width + v - first];
                }
        for (r = 0; r < taps; r++, conv += m->n_channels)
            memcpy(conv, p + (past + r) % taps * m->n_channels,
                   (size_t)m->n_channels * sizeof *conv);
    }
}

/* The NRMSE of the keys and values in an F32 cache of the one layer that has any, the last one;
   references are [keys, values][tokens][KV heads][head size]. */
static double cache_error(const bitnet_ctx *c, const char *name) {
    const bitnet_model *m = c->m;
    const size_t n = 2 * N_TOKENS * (size_t)m->kv_dim, hd = (size_t)m->head_dim;
    float *want = shared_floats(name, ".kv.f32", n), *got = (float *)gb_malloc(n * sizeof *got);
    double error = 1;
    int what, head;
    size_t t, i;
    for (what = 0; what < 2; what++)
        for (head = 0; head < m->n_kv_heads; head++) {
            const bitnet__cells cells = bitnet__cache_cells(c, 0, &m->layers[m->n_layers - 1], head,
                                                            what, 0, N_TOKENS);
            for (t = 0; t < N_TOKENS; t++) {
                float *to = got + (((size_t)what * N_TOKENS + t) * (size_t)m->n_kv_heads +
                                   (size_t)head) * hd;
                for (i = 0; i < hd; i++) to[i] = bitnet__load_f32(cells.at + 4 * (t * hd + i));
            }
        }
    if (want) error = nrmse(got, want, n);
    free(want);
    free(got);
    return error;
}

/* Models with references: logits of the first tokens are right to 1e-5, and all to `most`. hx
   rounds nothing. In the others a number that lies on the edge between two integers may be rounded
   the other way, but not in the first tokens. */
typedef struct reference { const char *name; int n_vocab, dim, d, first; double most; } reference;

static void check_references(const reference *x) {
    const char *name = x->name;
    const size_t vocab = (size_t)x->n_vocab, d = (size_t)x->d;
    const size_t n_logits = vocab * N_TOKENS, n_hidden = 5 * N_TOKENS * (size_t)x->dim;
    const size_t n_conv = 3 * 3 * 10 * d, n_state = 3 * 6 * d * d;
    float *logits = shared_floats(name, ".logits.f32", n_logits);
    float *hidden = shared_floats(name, ".hidden.f32", n_hidden);
    float *conv = shared_floats(name, ".conv.f32", n_conv);
    float *state = shared_floats(name, ".state.f32", n_state);
    float *got = (float *)gb_malloc(n_logits * 4), *got_conv = (float *)gb_malloc(n_conv * 4);
    float *got_state = (float *)gb_malloc(n_state * 4);
    bitnet_ctx_params p = ctx_params(N_TOKENS, 7, 1, BITNET_KV_F32);
    bitnet_token tokens[N_TOKENS];
    size_t size = 0, first = vocab * (size_t)x->first;
    void *data = shared_model(name, ".gguf", &size);
    bitnet_model *m = data ? load(data, size, 0) : 0;
    residual r;
    if (!data) SKIP("%s is not in BITNET_TEST_DATA", name);
    reference_tokens(x->n_vocab, tokens);
    r.x = (float *)gb_malloc(n_hidden * 4);
    p.hooks.layer_fn = keep_residual;
    p.hooks.layer_ud = &r;
    r.c = create(m, &p);
    if (r.c && logits && hidden && conv && state &&
        all_logits(r.c, tokens, N_TOKENS, N_TOKENS, got)) {
        const double some = nrmse(got, logits, first), all = nrmse(got, logits, n_logits);
        const double h = nrmse(r.x, hidden, n_hidden), most = x->most, kv = cache_error(r.c, name);
        double s, u;
        state_of(r.c, got_conv, got_state);
        s = nrmse(got_state, state, n_state);
        u = nrmse(got_conv, conv, n_conv);
        CHECK_MSG(some < 1e-5 && all < most && h < most && s < most && u < most && kv < most,
                  "%s: logits %.3g, first ones %.3g, hidden %.3g, states %.3g, %.3g, keys and "
                  "values %.3g", name, all, some, h, s, u, kv);
    } else CHECK_MSG(0, "%s: its references are not as expected", name);
    bitnet_ctx_free(r.c);
    bitnet_model_free(m);
    free(r.x);
    free(data);
    free(logits);
    free(hidden);
    free(conv);
    free(state);
    free(got);
    free(got_conv);
    free(got_state);
}

static void test_references(void) {
    static const reference models[] = {
        {"hx", 326, 128, 32, N_TOKENS, 1e-5}, {"h2", 2074, 256, 64, 14, 3e-2},
        {"hp", 2074, 256, 64, 12, 3e-2}, {"ht", 2074, 256, 64, 10, 3e-2}
    };
    size_t i;
    for (i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (i == 3 && !bitnet__is_ternary(bitnet__type_info(143))) break;      /* PTQ1_0 */
        check_references(&models[i]);
    }
}

static void test_variants(void) {
    static const char *const names[] = {"hx", "h2", "hp"};
    bitnet_token tokens[N_TOKENS];
    size_t i;
    for (i = 0; i < 3; i++) {
        const int n_vocab = i ? 2074 : 326;
        size_t size = 0;
        void *data = shared_model(names[i], ".gguf", &size);
        if (!data) SKIP("%s is not in BITNET_TEST_DATA", names[i]);
        reference_tokens(n_vocab, tokens);
        check_variants(data, size, tokens, N_TOKENS, n_vocab, i == 0 && !test_quick());
        free(data);
    }
}

const test_case hybrid_tests[] = {
    {"hybrid/slow", test_slow},
    {"hybrid/folds", test_folds},
    {"hybrid/skipped", test_skipped},
    {"hybrid/sequences", test_sequences},
    {"hybrid/identity", test_identity},
    {"hybrid/nonfinite", test_nonfinite},
    {"hybrid/head", test_head},
    {"hybrid/fold_faults", test_fold_faults},
    {"hybrid/shapes", test_shapes},
    {"hybrid/tensors", test_tensors},
    {"hybrid/huge_state", test_huge_state},
    {"hybrid/references", test_references},
    {"hybrid/variants", test_variants},
    {0, 0}
};
