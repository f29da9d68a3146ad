#define _DEFAULT_SOURCE 1              /* clock_gettime, also with -std=c99 */
#include "chunks.h"
#include "../embed/say.h"
#include "../threads.h"
#include <stdlib.h>
#include <string.h>

enum { LOGITS_BYTES = 64 << 20 };      /* of a piece, about */

static int32_t smaller(int64_t a, int64_t b) { return (int32_t)(a < b ? a : b); }

int32_t chunks_side_by_side(const plan *p, const settings *s) {
    const long n = s->stride ? 1 : s->n_batch / p->n_ctx;
    return n < 1 ? 1 : smaller(n, 4096);
}

int evaluator_open(evaluator *e, const plan *p, const bitnet_model *model, const settings *s) {
    bitnet_ctx_params params;
    bitnet_model_info info;
    bitnet_error err;
    memset(e, 0, sizeof *e);
    memset(&params, 0, sizeof params);
    bitnet_model_get_info(model, &info);
    e->plan = p;
    e->n_vocab = info.n_vocab;
    e->n_seqs = smaller(chunks_side_by_side(p, s), p->n_chunks);
    e->n_rows = smaller(s->n_ubatch, LOGITS_BYTES / (4 * (int64_t)info.n_vocab));
    e->n_rows = smaller(e->n_rows, (int64_t)e->n_seqs * plan_rows(p));
    if (e->n_rows < 1) e->n_rows = 1;
    e->tokens = (bitnet_token *)calloc((size_t)e->n_seqs * (size_t)p->n_ctx, sizeof *e->tokens);
    e->next = (bitnet_token *)calloc((size_t)e->n_rows, sizeof *e->next);
    e->inputs = (bitnet_input *)calloc((size_t)e->n_seqs, sizeof *e->inputs);
    if (!e->tokens || !e->next || !e->inputs) return fail(FAILED, "there is no memory");
    params.n_ctx = p->n_ctx;
    params.n_batch = (int32_t)s->n_ubatch;
    params.n_seqs = e->n_seqs;
    params.n_logits = e->n_rows;
    params.n_threads = s->n_threads > 0 ? (int32_t)s->n_threads : 0;
    params.kv_type = s->kv_type;
    params.no_head_copy = 1;           /* it is of use only where few logits are needed */
    params.hooks.cancel_fn = stop_is_asked;
    if (bitnet_ctx_create(model, &params, &e->ctx, &err))
        return fail(FAILED, "%s: %s", s->model, err.text);
    return DONE;
}

void evaluator_close(evaluator *e) {
    bitnet_ctx_free(e->ctx);
    free(e->tokens);
    free(e->next);
    free(e->inputs);
    memset(e, 0, sizeof *e);
}

/* Copies the tokens of n chunks from chunk `at` on, with BOS where the model wants it. */
static void take_tokens(evaluator *e, int32_t at, int32_t n) {
    const plan *p = e->plan;
    int32_t i;
    for (i = 0; i < n; i++) {
        bitnet_token *to = e->tokens + (size_t)i * (size_t)p->n_ctx;
        memcpy(to, p->tokens + (size_t)(at + i) * (size_t)p->step, (size_t)p->n_ctx * sizeof *to);
        if (p->bos >= 0) to[0] = p->bos;
    }
}

/* Lets sequence seq go on with n tokens of its chunk from position `from` on. */
static bitnet_input input_of(const evaluator *e, int32_t seq, int32_t from, int32_t n) {
    bitnet_input in;
    memset(&in, 0, sizeof in);
    in.seq = seq;
    in.n_tokens = n;
    in.tokens = e->tokens + (size_t)seq * (size_t)e->plan->n_ctx + from;
    return in;
}

static int evaluate(evaluator *e, int32_t n_inputs) {
    bitnet_error err;
    const bitnet_result r = bitnet_eval_many(e->ctx, e->inputs, n_inputs, &err);
    if (r == BITNET_ERR_CANCELLED) return STOPPED;
    return r == BITNET_OK ? DONE : fail(FAILED, "%s", err.text);
}

/* What comes before the rows that count, of n chunks. */
static int evaluate_beginnings(evaluator *e, int32_t n) {
    int32_t i;
    for (i = 0; i < n; i++) e->inputs[i] = input_of(e, i, 0, e->plan->first);
    return e->plan->first > 0 ? evaluate(e, n) : DONE;
}

/* Evaluates rows from .. to - 1, counted through the chunks that are side by side. */
static int evaluate_rows(evaluator *e, int32_t from, int32_t to, piece *out) {
    const int32_t of_chunk = plan_rows(e->plan);
    int32_t n_inputs = 0, at = from;
    int code;
    while (at < to) {
        const int32_t seq = at / of_chunk, row = at % of_chunk;
        const int32_t n = smaller(of_chunk - row, to - at);
        bitnet_input in = input_of(e, seq, e->plan->first + row, n);
        in.n_logits = n;
        memcpy(e->next + (at - from), in.tokens + 1, (size_t)n * sizeof *e->next);
        e->inputs[n_inputs++] = in;
        at += n;
    }
    if ((code = evaluate(e, n_inputs)) != DONE) return code;
    out->logits = bitnet_logits(e->ctx, 0, NULL);            /* the rows follow each other */
    out->next = e->next;
    out->n = to - from;
    return out->logits ? DONE : fail(FAILED, "there are no logits");
}

/* After the first piece of n chunks, which has taken so many seconds. */
static void note_duration(const evaluator *e, int32_t n, int32_t rows, double seconds) {
    const plan *p = e->plan;
    const double share = ((double)n * p->first + rows) / ((double)n * (p->n_ctx - 1));
    const double pass = seconds / share;
    note("%.2f seconds per pass - ETA %.2f minutes", pass, pass * p->n_chunks / n / 60.0);
}

/* n chunks side by side, from chunk `at` on. */
static int run_chunks(evaluator *e, int32_t at, int32_t n, piece_fn fn, void *ud) {
    const int32_t n_rows = n * plan_rows(e->plan);
    const double begun = thread_clock();
    int32_t i, row, to;
    int code;
    take_tokens(e, at, n);
    code = evaluate_beginnings(e, n);
    for (row = 0; code == DONE && row < n_rows; row = to) {
        piece p;
        to = smaller((int64_t)row + e->n_rows, n_rows);
        code = evaluate_rows(e, row, to, &p);
        if (code == DONE && at == 0 && row == 0) note_duration(e, n, to, thread_clock() - begun);
        if (code == DONE) code = fn(ud, &p);
        if (code == DONE && stop_is_asked(0)) code = STOPPED;
    }
    for (i = 0; i < n; i++) bitnet_seq_rewind(e->ctx, i, 0, NULL);
    return code;
}

int evaluator_run(evaluator *e, piece_fn fn, void *ud) {
    int32_t at = 0, n;
    int code = DONE;
    for (; code == DONE && at < e->plan->n_chunks; at += n) {
        n = smaller(e->n_seqs, e->plan->n_chunks - at);
        code = run_chunks(e, at, n, fn, ud);
    }
    return code;
}
