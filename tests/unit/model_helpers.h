/* Loading models, evaluating tokens, and comparing logits: with a tolerance, and bit for bit
   between kernels, threads and batches. */
#ifndef MODEL_HELPERS_H
#define MODEL_HELPERS_H

#include "gguf_builder.h"
#include "library.h"

/* Root mean square of the difference, relative to that of want. NaN if anything is. */
static inline double nrmse(const float *got, const float *want, size_t n) {
    double error = 0, norm = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        error += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(error / norm);
}

static inline int largest(const float *x, int n) {
    int i, best = 0;
    for (i = 1; i < n; i++) if (x[i] > x[best]) best = i;
    return best;
}

static inline bitnet_model *load(const void *data, size_t size, const bitnet_kernels *k) {
    bitnet_model_params p;
    bitnet_model *m = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    memset(&p, 0, sizeof p);
    p.kernels = k;
    if (bitnet_model_load_memory(data, size, &p, &m, &err))
        test_fail(__FILE__, __LINE__, "load: %s", err.text);
    return m;
}

static inline bitnet_ctx_params ctx_params(int n_ctx, int n_batch, int n_threads,
                                           bitnet_kv_type kv) {
    bitnet_ctx_params p;
    memset(&p, 0, sizeof p);
    p.n_ctx = p.n_logits = n_ctx;
    p.n_batch = n_batch;
    p.n_threads = n_threads;
    p.kv_type = kv;
    return p;
}

static inline bitnet_ctx *create(const bitnet_model *m, const bitnet_ctx_params *p) {
    bitnet_ctx *c = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    if (m && bitnet_ctx_create(m, p, &c, &err)) test_fail(__FILE__, __LINE__, "ctx: %s", err.text);
    if (c) test_share(c);
    return c;
}

/* Evaluates n tokens in calls of `step` and keeps all logits in out [n][n_vocab]. 1: done. */
static inline int all_logits(bitnet_ctx *c, const bitnet_token *tokens, int n, int step,
                             float *out) {
    bitnet_error err = {BITNET_OK, "", {0}};
    size_t n_vocab = (size_t)c->m->n_vocab;
    int i, j;
    for (i = 0; i < n; i += step) {
        int count = n - i < step ? n - i : step;
        if (bitnet_eval(c, 0, tokens + i, count, count, &err)) {
            test_fail(__FILE__, __LINE__, "eval: %s", err.text);
            return 0;
        }
        for (j = 0; j < count; j++) {
            const float *row = bitnet_logits(c, j, 0);
            if (!row) {
                test_fail(__FILE__, __LINE__, "no logits of row %d", j);
                return 0;
            }
            memcpy(out + (size_t)(i + j) * n_vocab, row, n_vocab * sizeof *out);
        }
    }
    return 1;
}

/* Load, make a context, evaluate, free: all logits, or 0 after a recorded failure. */
static inline float *logits_of(const void *data, size_t size, const bitnet_kernels *k,
                               const bitnet_ctx_params *p, const bitnet_token *tokens, int n,
                               int step) {
    bitnet_model *m = load(data, size, k);
    bitnet_ctx *c = create(m, p);
    float *out = 0;
    if (c) {
        out = (float *)gb_malloc((size_t)n * (size_t)m->n_vocab * sizeof *out);
        if (!all_logits(c, tokens, n, step, out)) {
            free(out);
            out = 0;
        }
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    return out;
}

/* ---- equal bits ---- */

typedef struct variant {
    const bitnet_kernels *kernels;
    int threads, batch, step;
    void (*parallel_fn)(void *ud, int jobs, void (*job)(void *arg, int i), void *arg);
} variant;

/* Compares a variant's logits with the plain ones; names what differs. */
static inline int same_logits(const void *data, size_t size, const variant *v, bitnet_kv_type kv,
                              const bitnet_token *tokens, int n, int n_vocab, const float *want) {
    bitnet_ctx_params p = ctx_params(n, v->batch, v->threads, kv);
    int calls = 0, i, row = -1;
    float *got;
    p.parallel_fn = v->parallel_fn;
    p.parallel_ud = &calls;
    got = logits_of(data, size, v->kernels, &p, tokens, n, v->step);
    if (!got) return 0;
    for (i = n - 1; i >= 0; i--)
        if (memcmp(got + (size_t)i * (size_t)n_vocab, want + (size_t)i * (size_t)n_vocab,
                   (size_t)n_vocab * sizeof *got)) row = i;
    free(got);
    if (row >= 0)
        test_fail(__FILE__, __LINE__,
                  "other bits from token %d on: kernels %s, %d threads, n_batch %d, "
                  "calls of %d, %s cache%s",
                  row, v->kernels ? v->kernels->name : "best", v->threads, v->batch, v->step,
                  kv == BITNET_KV_F32 ? "F32" : kv == BITNET_KV_I8 ? "I8" : "F16",
                  v->parallel_fn ? ", caller's pool" : "");
    if (v->parallel_fn && v->threads > 1 && !calls)
        test_fail(__FILE__, __LINE__, "the caller's pool was not used");
    return row < 0;
}

/* Not all sizes of heads can be kept as int8. */
static inline int takes_kv(const void *data, size_t size, bitnet_kv_type kv) {
    bitnet_model *m = load(data, size, &bitnet__kernels_scalar);
    const int takes = m && bitnet__check_kv_type(m, kv, 0) == BITNET_OK;
    bitnet_model_free(m);
    return takes;
}

/* Every kernel table, thread count and batch split, all kinds of caches. Of tables in plain C,
   which are slow, one split for each kind of cache. */
static inline void check_variants(const void *data, size_t size, const bitnet_token *tokens, int n,
                                  int n_vocab, int thorough) {
    int kv, k, t, b;
    const int batches[3][2] = {{1, 1}, {7, 7}, {0, n}};
    for (kv = 0; kv < 3; kv++) {
        bitnet_ctx_params p = ctx_params(n, 0, 1, (bitnet_kv_type)kv);
        float *want;
        int ok;
        if (!takes_kv(data, size, p.kv_type)) continue;
        want = logits_of(data, size, &bitnet__kernels_scalar, &p, tokens, n, n);
        ok = want != 0;
        for (k = 0; k < bitnet_kernels_count() && ok; k++) {
            variant v;
            memset(&v, 0, sizeof v);
            v.kernels = bitnet_kernels_get(k);
            if (!bitnet_kernels_usable(v.kernels)) continue;
            for (t = 1; t <= 3 && ok; t++)
                for (b = 0; b < 3 && ok; b++) {
                    const int slow = !v.kernels->needs, all = thorough && !slow;
                    if (!all && (t + b + k) % 3) continue;
                    if (slow && (t + kv + k) % 3) continue;
                    v.threads = t;
                    v.batch = batches[b][0];
                    v.step = batches[b][1];
                    if (all || (t + kv) % 2)
                        ok = same_logits(data, size, &v, (bitnet_kv_type)kv, tokens, n, n_vocab,
                                         want);
                    v.step = batches[(b + 1) % 3][1];      /* n_batch and calls that don't match */
                    if (ok && (all || (t + kv) % 2 == 0))
                        ok = same_logits(data, size, &v, (bitnet_kv_type)kv, tokens, n, n_vocab,
                                         want);
                }
        }
        free(want);
        if (!ok) return;
    }
}

#endif
