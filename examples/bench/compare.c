#include "compare.h"
#include "command.h"
#include "figures.h"
#include "limits.h"
#include "model.h"
#include "report.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct test {
    figure f;
    double theirs[MAX_ROUNDS];         /* tok/s */
    double ours[2][MAX_ROUNDS], ratio[2][MAX_ROUNDS];      /* of each head */
    head_use head[2];
} test;

static test tests[MAX_FIGURES];
static int n_tests, rounds;
static const bitnet_kernels *kernels;
static const char *command;
static double bandwidth[MAX_ROUNDS], peak[MAX_ROUNDS];    /* GB/s and GMAC/s */

/* A test that writes has two heads: screened, and (1) full. */
static int heads_of(const test *t) { return t->f.n_gen ? 2 : 1; }

static double own_speed(bitnet_ctx *c, const figure *f, int full, head_use *use) {
    double start;
    fill(c, f->n_depth);
    start = seconds();
    eval_random(c, f->n_prompt);
    decode(c, f->n_gen, full, use);
    start = seconds() - start;
    return (f->n_prompt + f->n_gen) / start;
}

/* Runs the command. The first round says which tests there are, and the others must repeat them. */
static void measure_command(int round, int limit_s) {
    static figure found[MAX_FIGURES];
    char *text = run_command(command, limit_s), name[64];
    const int n = read_figures(text, found);
    int i;
    if (round == 0) n_tests = n;
    if (n != n_tests) fail_command("has another number of tests than at first", "", text);
    for (i = 0; i < n; i++) {
        const double tok_s = found[i].tok_s;
        found[i].tok_s = 0;
        if (round == 0) tests[i].f = found[i];
        figure_name(&found[i], name);
        if (memcmp(&tests[i].f, &found[i], sizeof found[i]))
            fail_command("has another test than at first: ", name, text);
        tests[i].theirs[round] = tok_s;
    }
    free(text);
}

/* A context that is long enough for all tests. */
static bitnet_ctx *open_tests(const bitnet_model *m, int n_threads) {
    int32_t longest = 0;
    int i;
    char name[64], says[128];
    for (i = 0; i < n_tests; i++) {
        const figure *f = &tests[i].f;
        const int32_t n = f->n_depth + f->n_prompt + f->n_gen;
        figure_name(f, name);
        snprintf(says, sizeof says, " needs a context of %d; the model has %d", (int)n,
                 (int)info.ctx_train);
        if (n > info.ctx_train) fail(1, "%s%s", name, says);
        if (f->n_threads && f->n_threads != n_threads)
            fprintf(stderr, "bench: %s has %d threads, we have %d (-t)\n", name, f->n_threads,
                    n_threads);
        if (n > longest) longest = n;
    }
    return open_ctx(m, longest, n_threads, 0, 0, 0, 0);
}

void compare(const char *a_command, int limit_s, const bitnet_model *m, const bitnet_kernels *k,
             int n_threads, int n_rounds) {
    bitnet_ctx *c = 0;
    int r, i, full;
    command = a_command;
    kernels = k;
    rounds = n_rounds;
    for (r = 0; r < rounds; r++) {
        fprintf(stderr, "bench: comparison, round %d of %d\n", r + 1, rounds);
        bandwidth[r] = measure_bandwidth(n_threads, file, file_size);
        peak[r] = measure_peak(n_threads, k);
        measure_command(r, limit_s);
        if (!c) c = open_tests(m, n_threads);
        for (i = 0; i < n_tests; i++) {
            test *t = &tests[i];
            for (full = 0; full < heads_of(t); full++) {
                t->ours[full][r] = own_speed(c, &t->f, full, &t->head[full]);
                t->ratio[full][r] = t->ours[full][r] / t->theirs[r];
            }
        }
    }
    bitnet_ctx_free(c);
}

/* ---- the report ---- */

/* The share of the limit: of bandwidth when the test only writes, of arithmetic when it only
   reads. */
static void show_limit(const test *t, int full, double tok_s) {
    const figure *f = &t->f;
    const double positions = f->n_depth + (f->n_gen + 1) / 2.0;
    double limit = -1, reached = 0;
    if (!f->n_prompt) {
        limit = median(bandwidth, rounds);
        reached = tok_s * token_bytes(kernels, 1, t->head[full].bytes, positions) * 1e-9;
    } else if (!f->n_gen) {
        limit = median(peak, rounds);
        reached = tok_s * layer_weights() * 1e-9;
    }
    show("limit", limit, 8, 1);
    show("limit_percent", limit > 0 ? reached / limit * 100 : -1, 8, 1);
}

static void report_test(test *t, int full) {
    char name[64];
    const double tok_s = median(t->ours[full], rounds);
    figure_name(&t->f, name);
    begin_row();
    show_text("test", name, -16);
    show_text("head", !t->f.n_gen ? "-" : full ? "full" : "screened", 9);
    show("tok_s", tok_s, 9, 1);
    show("spread_percent", spread_percent(t->ours[full], rounds), 6, 1);
    show("their_tok_s", median(t->theirs, rounds), 11, 1);
    show("their_spread_percent", spread_percent(t->theirs, rounds), 6, 1);
    show("ratio", median(t->ratio[full], rounds), 7, 2);
    show_limit(t, full, tok_s);
    show("their_threads", t->f.n_threads ? t->f.n_threads : -1, 8, 0);
    end_row();
}

void report_comparison(void) {
    int i, full;
    if (as_json) {
        show_text("kernel", bitnet_kernels_name(kernels), 0);
        show_text("command", command, 0);
    } else printf("\nours: kernels %s; theirs: %s", bitnet_kernels_name(kernels), command);
    begin_list("comparison", "test                 head     ours  +- %     theirs  +- %  ratio"
               "   limit % of it threads");
    for (i = 0; i < n_tests; i++)
        for (full = 0; full < heads_of(&tests[i]); full++) report_test(&tests[i], full);
    end_list();
}
