#define _DEFAULT_SOURCE 1              /* clock_gettime, also with -std=c99 */
#include "score.h"
#include "../threads.h"
#include "base.h"
#include <math.h>
#include <string.h>

/* The sum of exp(logit - largest), in double. */
static double sum_of_exps(const float *logits, int32_t n, float *largest) {
    double sum = 0.0;
    int32_t i;
    *largest = logits[0];
    for (i = 1; i < n; i++)
        if (logits[i] > *largest) *largest = logits[i];
    for (i = 0; i < n; i++) sum += exp((double)logits[i] - (double)*largest);
    return sum;
}

/* The first of the most likely tokens. */
static int32_t top_of_logits(const float *logits, int32_t n) {
    int32_t i, top = 0;
    for (i = 1; i < n; i++)
        if (logits[i] > logits[top]) top = i;
    return top;
}

static int32_t top_of_row(const uint8_t *row, int32_t n) {
    int32_t i, top = 0;
    unsigned best = base_code(row, 0);
    for (i = 1; i < n; i++) {
        const unsigned code = base_code(row, i);
        if (code > best) best = code, top = i;
    }
    return top;
}

/* ln p(t) is logits[t] - log_total. */
static void compare(const float *logits, double log_total, const uint8_t *row, int32_t n,
                    bitnet_token next, score *out) {
    const double scale = (double)base_get_float(row), smallest = (double)base_get_float(row + 4);
    int32_t i;
    out->nll_base = -(smallest + scale * base_code(row, next));
    out->p_diff = exp(-out->nll) - exp(-out->nll_base);
    out->same_top = top_of_logits(logits, n) == top_of_row(row, n);
    for (i = 0; i < n; i++) {
        const double log_base = smallest + scale * base_code(row, i);
        if (log_base > -16.0)
            out->kld += exp(log_base) * (log_base - ((double)logits[i] - log_total));
    }
}

static void score_row(const scorer *s, const piece *p, int32_t i, score *out) {
    const float *logits = p->logits + (size_t)i * (size_t)s->n_vocab;
    uint8_t *row;
    float largest;
    const double log_sum = log(sum_of_exps(logits, s->n_vocab, &largest));
    const double log_total = (double)largest + log_sum;
    memset(out, 0, sizeof *out);
    out->nll = log_total - (double)logits[p->next[i]];
    if (s->kind == SCORE_ONLY || !isfinite(out->nll)) return;
    row = s->rows + (size_t)i * base_row_bytes(s->n_vocab);
    if (s->kind == SCORE_SAVE) base_row_pack(logits, s->n_vocab, log_sum, row);
    if (s->kind == SCORE_COMPARE) compare(logits, log_total, row, s->n_vocab, p->next[i], out);
}

/* ---- threads: thread k of n scores the rows k, k + n, k + 2 n ... ---- */

typedef struct worker {
    const scorer *s;
    const piece *p;
    score *out;
    int first, step;
    thread id;
    int runs;
} worker;

static THREAD_FN(work, arg) {
    const worker *w = (const worker *)arg;
    int32_t i;
    for (i = w->first; i < w->p->n; i += w->step) score_row(w->s, w->p, i, &w->out[i]);
    return 0;
}

void score_piece(const scorer *s, const piece *p, score *out) {
    worker workers[256];
    const int most = s->n_threads < 256 ? s->n_threads : 256;
    const int n = most < 1 ? 1 : most < p->n ? most : p->n;
    int k;
    for (k = 0; k < n; k++) {
        worker *w = &workers[k];
        memset(w, 0, sizeof *w);
        w->s = s;
        w->p = p;
        w->out = out;
        w->first = k;
        w->step = n;
        w->runs = k > 0 && thread_start(&w->id, work, w);
    }
    for (k = 0; k < n; k++)
        if (!workers[k].runs) work(&workers[k]);
    for (k = 0; k < n; k++)
        if (workers[k].runs) thread_join(workers[k].id);
}
