/* perplexity.c - how well a model predicts a text, with llama-perplexity's chunks and output

       cc -O2 examples/perplexity/[a-z]*.c examples/embed/file.c examples/embed/say.c \
           -o perplexity -lm -lpthread
       ./perplexity -m MODEL -f TEXT                                 the perplexity of a text
       ./perplexity -m MODEL -f TEXT --kl-divergence-base FILE       and saves what it has computed
       ./perplexity -m OTHER --kl-divergence-base FILE --kl-divergence      compares with that

   README.md has more. Exit codes: 0 success, 1 a text or a file failed, 2 wrong usage, 3 the model
   was refused, 130 Ctrl-C. */
#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
#include "../embed/say.h"
#include "../streams.h"
#include "../utf8.h"
#include "base.h"
#include "divergence.h"
#include "text.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    const settings *s;
    bitnet_model *model;
    bitnet_model_info info;
    text text;
    plan plan;
    evaluator e;
    scorer scorer;
    score *scores;                     /* [e.n_rows] */
    base base;                         /* that is read */
    written saved;                     /* the one that is written */
    divergence d;
    double nll, nll2;                  /* sums of -ln p and of its squares */
    uint64_t n;                        /* of them */
} run;

static int load(run *r) {
    bitnet_model_params params;
    bitnet_error err;
    memset(&params, 0, sizeof params);
    params.log_fn = note_warning;
    if (r->s->kernel) {
        params.kernels = bitnet_kernels_find(r->s->kernel);
        if (!params.kernels)
            return fail(USAGE, "--kernel: there is no '%s' here", r->s->kernel);
        if (!bitnet_kernels_usable(params.kernels))
            return fail(USAGE, "--kernel: this machine cannot run '%s'", r->s->kernel);
    }
    if (bitnet_model_load_file(r->s->model, &params, &r->model, &err))
        return fail(MODEL_REFUSED, "%s: %s", r->s->model, err.text);
    bitnet_model_get_info(r->model, &r->info);
    if (!r->info.has_head)
        return fail(MODEL_REFUSED, "%s: this model makes embeddings; it predicts no text",
                    r->s->model);
    return DONE;
}

/* ---- the plan ---- */

static int32_t at_most(long most, int64_t n) {
    return (int32_t)(most >= 0 && most < n ? most : n);
}

/* Chunks of the text, which follow each other or with --ppl-stride overlap. */
static int plan_text(run *r) {
    const settings *s = r->s;
    const int32_t n_ctx = s->n_ctx ? (int32_t)s->n_ctx : 512, stride = (int32_t)s->stride;
    plan *p = &r->plan;
    p->tokens = r->text.tokens;
    p->n_ctx = n_ctx + stride / 2;
    p->bos = stride || !r->info.add_bos ? -1 : r->info.bos;
    p->step = stride ? stride : n_ctx;
    p->first = stride ? p->n_ctx - stride - 1 : n_ctx / 2;
    if (p->first < 0)
        return fail(USAGE, "--ppl-stride %d is too large for -c %d", (int)stride, (int)n_ctx);
    if (r->text.n < 2 * (int64_t)p->n_ctx)
        return fail(FAILED, "%s has only %d tokens; chunks of %d need at least %d (-c makes them "
                    "shorter)", r->text.name, (int)r->text.n, (int)p->n_ctx, 2 * (int)p->n_ctx);
    p->n_chunks = stride ? (r->text.n - p->n_ctx + stride - 1) / stride : r->text.n / n_ctx;
    p->n_chunks = at_most(s->n_chunks, p->n_chunks);
    return DONE;
}

/* Is the base of this text? */
static int check_text(const run *r) {
    const base *b = &r->base;
    const int64_t n = (int64_t)b->n_chunks * b->n_ctx;
    int64_t i;
    if (r->text.n < n)
        return fail(FAILED, "%s has only %d tokens, %s has %lld: it is of another text",
                    r->text.name, (int)r->text.n, b->path, (long long)n);
    for (i = 0; i < n; i++)
        if (r->text.tokens[i] != b->tokens[i])
            return fail(FAILED, "token %lld is %d in %s, but %d in %s: another text or tokenizer",
                        (long long)i, (int)r->text.tokens[i], r->text.name, (int)b->tokens[i],
                        b->path);
    return DONE;
}

/* The chunks of a base. */
static int plan_base(run *r) {
    const settings *s = r->s;
    plan *p = &r->plan;
    int code = base_open(&r->base, s->base, r->info.n_vocab);
    if (code != DONE) return code;
    if (s->n_ctx && s->n_ctx < r->base.n_ctx)
        return fail(FAILED, "%s has chunks of %d tokens, more than -c %ld", s->base,
                    (int)r->base.n_ctx, s->n_ctx);
    p->tokens = r->base.tokens;
    p->n_ctx = p->step = r->base.n_ctx;
    p->first = p->n_ctx / 2;
    p->bos = r->info.add_bos ? r->info.bos : -1;
    p->n_chunks = at_most(s->n_chunks, r->base.n_chunks);
    if (!s->file && !s->prompt) return DONE;
    code = text_read(&r->text, r->model, s);
    return code == DONE ? check_text(r) : code;
}

static int make_plan(run *r) {
    int code;
    if (r->s->compare) return plan_base(r);
    code = text_read(&r->text, r->model, r->s);
    return code == DONE ? plan_text(r) : code;
}

/* ---- results ---- */

/* The mean of -ln p, and the uncertainty of that mean. */
static double mean_nll(const run *r, double *uncertainty) {
    const double n = (double)r->n, mean = r->nll / n;
    const double variance = r->nll2 / n - mean * mean;
    *uncertainty = r->n > 1 && variance > 0.0 ? sqrt(variance / (n - 1.0)) : 0.0;
    return mean;
}

/* After chunk i, counted from 0. */
static void print_chunk(run *r, int32_t i) {
    double uncertainty;
    const double mean = mean_nll(r, &uncertainty);
    if (r->s->compare) divergence_print_chunk(&r->d, i + 1);
    else if (r->s->output_type == 0) printf("[%d]%.4f,", (int)i + 1, exp(mean));
    else
        printf("%8lld  %.4f  %4f  %4f\n", (long long)i * r->plan.step, exp(mean), mean,
               uncertainty);
}

/* Adds a row. Returns an exit code. */
static int add(run *r, const score *x) {
    const uint64_t rows = (uint64_t)plan_rows(&r->plan), chunk = r->n / rows;
    if (!isfinite(x->nll) || !isfinite(x->kld))
        return fail(FAILED, "%s: the logits after token %llu of chunk %llu are no numbers",
                    r->s->model, (unsigned long long)(r->n % rows) + (unsigned)r->plan.first,
                    (unsigned long long)chunk + 1);
    r->nll += x->nll;
    r->nll2 += x->nll * x->nll;
    r->n++;
    if (r->s->compare) divergence_add(&r->d, x);
    if (r->n % rows == 0) print_chunk(r, (int32_t)chunk);
    return DONE;
}

static int check_output(void) {
    if (!fflush(stdout) && !ferror(stdout)) return DONE;
    return fail(FAILED, "cannot write to standard output: %s", strerror(errno ? errno : EIO));
}

/* A piece_fn. */
static int on_piece(void *ud, const piece *p) {
    run *r = (run *)ud;
    int32_t i;
    int code = DONE;
    if (r->s->compare) code = base_read(&r->base, r->scorer.rows, p->n);
    if (code != DONE) return code;
    score_piece(&r->scorer, p, r->scores);
    for (i = 0; code == DONE && i < p->n; i++) code = add(r, &r->scores[i]);
    if (code == DONE && r->saved.f) {
        fwrite(r->scorer.rows, base_row_bytes(r->info.n_vocab), (size_t)p->n, r->saved.f);
        code = file_check(&r->saved);
    }
    return code == DONE ? check_output() : code;
}

static int print_results(run *r) {
    double uncertainty;
    const double ppl = exp(mean_nll(r, &uncertainty));
    if (!r->s->compare) {
        if (r->s->output_type == 0) putchar('\n');
        printf("Final estimate: PPL = %.4f +/- %.5f\n", ppl, uncertainty * ppl);
    } else if (r->d.n >= 100) divergence_print(&r->d);
    else note("there are no statistics of so few tokens; 100 are needed");
    return check_output();
}

/* ---- the run ---- */

/* Buffers and files, once the plan is there. */
static int prepare(run *r) {
    const int32_t n_vocab = r->info.n_vocab;
    int code = evaluator_open(&r->e, &r->plan, r->model, r->s);
    if (code != DONE) return code;
    r->scorer.kind = r->s->compare ? SCORE_COMPARE : r->s->base ? SCORE_SAVE : SCORE_ONLY;
    r->scorer.n_vocab = n_vocab;
    r->scorer.n_threads = bitnet_ctx_threads(r->e.ctx);
    r->scores = (score *)calloc((size_t)r->e.n_rows, sizeof *r->scores);
    if (r->s->base)
        r->scorer.rows = (uint8_t *)calloc((size_t)r->e.n_rows, base_row_bytes(n_vocab));
    if (!r->scores || (r->s->base && !r->scorer.rows)) return fail(FAILED, "there is no memory");
    if (r->s->compare &&
        !divergence_open(&r->d, (uint64_t)r->plan.n_chunks * (uint64_t)plan_rows(&r->plan)))
        return fail(FAILED, "there is no memory");
    if (r->scorer.kind != SCORE_SAVE) return DONE;
    if (file_is_same(r->s->base, r->s->model) || file_is_same(r->s->base, r->s->file))
        return fail(USAGE, "--kl-divergence-base %s: it is the model, or the text", r->s->base);
    note("saving all logits to %s", r->s->base);
    return base_create(&r->saved, r->s->base, &r->plan, n_vocab);
}

static void note_plan(const run *r) {
    const plan *p = &r->plan;
    const int32_t n_seqs = chunks_side_by_side(p, r->s);
    if (r->info.ctx_train > 0 && p->n_ctx > r->info.ctx_train)
        note("the model was trained with %d tokens, and chunks have %d", (int)r->info.ctx_train,
             (int)p->n_ctx);
    note("calculating perplexity over %d chunks, n_ctx=%d, batch_size=%ld, n_seq=%d",
         (int)p->n_chunks, (int)p->n_ctx,
         r->s->n_batch < p->n_ctx ? r->s->n_batch : (long)n_seqs * p->n_ctx, (int)n_seqs);
}

static int run_all(run *r) {
    int code = load(r);
    if (code == DONE) code = make_plan(r);
    if (code == DONE) note_plan(r);
    if (code == DONE) code = prepare(r);
    if (code != DONE) return code;
    if (r->s->compare) divergence_print_head();
    code = evaluator_run(&r->e, on_piece, r);
    if (code != DONE && !r->s->compare && r->s->output_type == 0 && r->n) putchar('\n');
    if (code == STOPPED)
        say("stopped after %llu of %d chunks",
            (unsigned long long)(r->n / (uint64_t)plan_rows(&r->plan)), (int)r->plan.n_chunks);
    if (code == DONE) code = print_results(r);
    if (code == DONE && r->saved.f) code = file_end(&r->saved);
    return code == DONE ? file_name(&r->saved) : code;
}

static void run_free(run *r) {
    divergence_free(&r->d);
    written_free(&r->saved);
    base_close(&r->base);
    free(r->scorer.rows);
    free(r->scores);
    evaluator_close(&r->e);
    text_free(&r->text);
    bitnet_model_free(r->model);
}

int main(int argc, char **argv) {
    settings s;
    run r;
    int code;
    if (!streams_fill()) return FAILED;
    streams_binary();
    say_name = "perplexity";
    argv = utf8_arguments(&argc, argv);
    if ((code = settings_read(argc, argv, &s)) != 0) return code - 1;
    stop_when_asked();
#ifndef _WIN32
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);          /* too large a file is an error like a full disk */
#endif
    memset(&r, 0, sizeof r);
    r.s = &s;
    code = run_all(&r);
    run_free(&r);
    return code;
}
