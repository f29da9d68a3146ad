#include "profile.h"
#include "limits.h"
#include "model.h"
#include "report.h"
#include "sequences.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOTAL, NORM, QUANTIZE, MATMUL, ATTENTION, RECURRENT, ROUTER, EXPERTS, HEAD, EMBED, WAITING,
       REST, N_PROFILED };
static const char *const profiled[N_PROFILED] = {
    "total", "norm", "quantize", "matmul", "attention", "recurrent", "router", "experts", "head",
    "embed", "waiting", "rest"
};

enum { MAX_LOGGED = 1 << 20 };         /* about 100 for each layer and token written */

typedef struct logged {
    const char *part;
    double begin, end;
} logged;

typedef struct run_log {
    logged *runs;
    int n;
    char pad[128 - sizeof(void *) - sizeof(int)];         /* no two threads in one cache line */
} run_log;

static run_log logs[MAX_THREADS];

static void start_logs(int n_threads) {
    int i;
    for (i = 0; i < n_threads; i++) {
        logs[i].runs = (logged *)malloc(MAX_LOGGED * sizeof(logged));
        if (!logs[i].runs) fail(1, "no memory for a profile");
    }
}

static void stop_logs(int n_threads) {
    int i;
    for (i = 0; i < n_threads; i++) free(logs[i].runs);
}

static void clear_logs(int n_threads) {
    int i;
    for (i = 0; i < n_threads; i++) logs[i].n = 0;
}

/* A step_fn. */
static void log_run(void *ud, const char *part, int i, int begin) {
    run_log *l = &logs[i];
    logged *r = &l->runs[l->n];
    (void)ud;
    if (begin) {
        r->part = part;
        r->begin = seconds();
    } else {
        r->end = seconds();
        if (l->n < MAX_LOGGED - 1) l->n++;
    }
}

/* Seconds of all steps: from the start of each of the caller's runs to the last end of a run before
   the caller's next one starts. So the time between its runs of one step does not count. */
static double add_steps(int n_threads) {
    int done[MAX_THREADS] = {0}, k, i;
    double sum = 0;
    for (k = 0; k < logs[0].n; k++) {
        const logged *r = &logs[0].runs[k];
        double end = r->end;
        for (i = 1; i < n_threads; i++)
            for (; done[i] < logs[i].n; done[i]++) {
                double e = logs[i].runs[done[i]].end;
                if (k + 1 < logs[0].n && e > r[1].begin) break;
                if (e > end) end = e;
            }
        sum += end - r->begin;
    }
    return sum;
}

/* Adds the logs of wall seconds to sums, as averages over the threads. */
static void add_logs(int n_threads, double wall, double sums[N_PROFILED]) {
    double steps = add_steps(n_threads), busy = 0;
    int i, k, part;
    for (i = 0; i < n_threads; i++) {
        if (logs[i].n == MAX_LOGGED - 1) fail(1, "too many steps for a profile");
        for (k = 0; k < logs[i].n; k++) {
            const logged *r = &logs[i].runs[k];
            double t = (r->end - r->begin) / n_threads;
            for (part = NORM; part < WAITING && strcmp(r->part, profiled[part]); part++) {}
            if (part == WAITING) fail(1, "the profile has no column for this part: %s", r->part);
            sums[part] += t;
            busy += t;
        }
    }
    sums[WAITING] += steps - busy;
    sums[REST] += wall - steps;
    sums[TOTAL] += wall;
}

/* ---- what is profiled ---- */

enum { N_PROFILES = 6, N_ALONE = 4 };  /* the last two: so many sequences write together */
static const struct { const char *what; int32_t tokens; } profiled_runs[N_PROFILES] = {
    {"prefill", 128}, {"prefill", 512}, {"decode", 0}, {"decode", 1024}, {"together", 8},
    {"together", 16}
};
static double profiles[N_PROFILES][MAX_ROUNDS][N_PROFILED];   /* seconds */

static int is_profiled(int i) { return profiled_runs[i].tokens <= info.ctx_train; }

static void profile_together(writers *w, int n_threads, double sums[N_PROFILED]) {
    double start;
    clear_logs(n_threads);
    start = seconds();
    write_together(w, N_DECODE, 0);
    add_logs(n_threads, seconds() - start, sums);
}

static void profile_run(bitnet_ctx *c, int i, int n_threads, double sums[N_PROFILED]) {
    double start;
    int32_t tokens = profiled_runs[i].tokens;
    int is_decode = profiled_runs[i].what[0] == 'd';
    if (is_decode) go_back(c, tokens);
    clear_logs(n_threads);
    start = seconds();
    if (is_decode) decode(c, N_DECODE, 0, 0);
    else prefill(c, tokens);
    add_logs(n_threads, seconds() - start, sums);
}

void measure_profile(const bitnet_model *m, int n_threads, int rounds) {
    bitnet_ctx *c;
    writers w[N_PROFILES];
    int i, r;
    start_logs(n_threads);
    c = open_ctx(m, 1024, n_threads, log_run, 0, 0, 0);
    for (i = N_ALONE; i < N_PROFILES; i++)
        open_writers(&w[i], m, profiled_runs[i].tokens, 0, n_threads, log_run);
    prefill(c, 512 < info.ctx_train ? 512 : info.ctx_train);   /* the first pass waits for memory */
    for (r = 0; r < rounds; r++) {
        fprintf(stderr, "bench: profile, round %d of %d\n", r + 1, rounds);
        for (i = 0; i < N_ALONE; i++)
            if (is_profiled(i)) profile_run(c, i, n_threads, profiles[i][r]);
        for (; i < N_PROFILES; i++) profile_together(&w[i], n_threads, profiles[i][r]);
    }
    for (i = N_ALONE; i < N_PROFILES; i++) close_writers(&w[i]);
    bitnet_ctx_free(c);
    stop_logs(n_threads);
}

void report_profile(int rounds) {
    int i, part, percent;
    begin_list("profile", "run      tokens    unit    total     norm quantize   matmul attention"
               " recurrent  router  experts     head    embed  waiting     rest");
    for (i = 0; i < N_PROFILES; i++)
        for (percent = 0; percent < 2 && is_profiled(i); percent++) {
            const double *sums = profiles[i][rounds / 2];
            double ms = 1e3 / (profiled_runs[i].what[0] == 'p' ? 1 : N_DECODE);
            qsort(profiles[i], (size_t)rounds, sizeof *profiles[i], ascending);   /* by TOTAL */
            begin_row();
            show_text("run", profiled_runs[i].what, -8);
            show("tokens", profiled_runs[i].tokens, 7, 0);
            show_text("unit", percent ? "percent" : "ms", 8);
            for (part = 0; part < N_PROFILED; part++)
                show(profiled[part], sums[part] * (percent ? 100 / sums[TOTAL] : ms), 9,
                     percent ? 1 : 3);
            end_row();
        }
    end_list();
}
