#include "embeddings.h"
#include "limits.h"
#include "model.h"
#include "report.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TABLES = 16, N_RUNS = 6, MANY = 256, SHORTEST = 16, LONGEST_OF_MANY = 64 };
enum { SEQUENCES = 64, BATCH = 512 };

/* One text of so many tokens; 0: the many short ones. The last one is with a cache of int8. */
static const int32_t run_tokens[N_RUNS] = {16, 128, 512, LONGEST, 0, LONGEST};
enum { INT8_RUN = N_RUNS - 1 };

typedef struct table {
    const bitnet_kernels *k;
    bitnet_model *model;
    bitnet_ctx *one, *many, *i8;       /* with one sequence, and with SEQUENCES */
    double load_s, peak[MAX_ROUNDS], speed[N_RUNS][MAX_ROUNDS];
} table;

static table tables[MAX_TABLES];
static int n_tables;
static bitnet_token tokens[LONGEST + LONGEST_OF_MANY];
static bitnet_embed_input texts[MANY];
static double cosine[N_RUNS], mb[3];   /* mb: of the three contexts */
static float *vectors;                 /* [MANY][dim] */

/* ---- texts ---- */

static void make_texts(void) {
    uint32_t r = 1;
    int i;
    if (vectors) return;
    for (i = 0; i < LONGEST + LONGEST_OF_MANY; i++)
        tokens[i] = (bitnet_token)((r = r * 1664525u + 1013904223u) >> 8) % info.n_vocab;
    for (i = 0; i < MANY; i++) {
        r = r * 1664525u + 1013904223u;
        texts[i].tokens = tokens + (r >> 8) % LONGEST;
        texts[i].n_tokens = SHORTEST + (int32_t)((r >> 20) % (LONGEST_OF_MANY - SHORTEST + 1));
    }
    vectors = (float *)malloc(MANY * (size_t)info.dim * sizeof *vectors);
    if (!vectors) fail(1, "no memory for vectors");
}

/* How many tokens a run reads: n, or for n = 0 those of the many texts. */
static int32_t tokens_of(int32_t n) {
    int32_t sum = 0;
    int i;
    if (n > 0) return n;
    for (i = 0; i < MANY; i++) sum += texts[i].n_tokens;
    return sum;
}

/* One text of n tokens, or for n = 0 the many. */
static void embed(bitnet_ctx *c, int32_t n) {
    bitnet_embed_input one = {0};
    bitnet_error err;
    one.tokens = tokens;
    one.n_tokens = n;
    if (bitnet_embed(c, n ? &one : texts, n ? 1 : MANY, 0, vectors, &err)) fail(1, "%s", err.text);
}

/* ---- measuring ---- */

double embed_speed(bitnet_ctx *c, int32_t n) {
    const double start = seconds();
    int again = 0;
    do embed(c, n);                    /* a short text more than once */
    while (++again < 512 / (tokens_of(n) + 1));
    return again * tokens_of(n) / (seconds() - start);
}

static bitnet_ctx *new_ctx(const bitnet_model *m, int many, int n_threads, bitnet_kv_type kv,
                           double *size) {
    bitnet_ctx_params p = {0};
    bitnet_ctx *c;
    bitnet_error err;
    p.n_ctx = many ? LONGEST_OF_MANY : LONGEST;
    if (p.n_ctx > info.ctx_train) p.n_ctx = info.ctx_train;
    p.n_seqs = many ? SEQUENCES : 1;
    p.n_batch = BATCH;
    p.n_threads = n_threads;
    p.kv_type = kv;
    p.no_head_copy = 1;
    if (bitnet_ctx_create(m, &p, &c, &err)) fail(1, "%s", err.text);
    if (size) *size = (double)bitnet_ctx_bytes(m, &p) * 1e-6;
    return c;
}

bitnet_ctx *open_embedder(const bitnet_model *m, int n_threads) {
    make_texts();
    return new_ctx(m, 0, n_threads, BITNET_KV_F16, 0);
}

static int fits(int run, int quick) {
    return run_tokens[run] <= info.ctx_train && !(quick && run_tokens[run] == LONGEST);
}

static void open_table(const bitnet_kernels *k, int n_threads) {
    table *t = &tables[n_tables++];
    const double start = seconds();
    t->k = k;
    t->model = load_model(k);
    t->load_s = seconds() - start;
    t->one = new_ctx(t->model, 0, n_threads, BITNET_KV_F16, &mb[0]);
    t->many = new_ctx(t->model, 1, n_threads, BITNET_KV_F16, &mb[1]);
    t->i8 = new_ctx(t->model, 0, n_threads, BITNET_KV_I8, &mb[2]);
}

static bitnet_ctx *ctx_of(const table *t, int run) {
    return run == INT8_RUN ? t->i8 : run_tokens[run] ? t->one : t->many;
}

static void open_tables(const char *kernel, int n_threads) {
    int i;
    for (i = 0; i < bitnet_kernels_count() && n_tables < MAX_TABLES; i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        const int slow = n_tables > 0 && !strncmp(bitnet_kernels_name(k), "scalar", 6);
        if (bitnet_kernels_usable(k) && !(kernel ? strcmp(bitnet_kernels_name(k), kernel) : slow))
            open_table(k, n_threads);
    }
}

static void measure_table(table *t, int r, int quick) {
    int i;
    t->peak[r] = measure_peak(bitnet_ctx_threads(t->one), t->k);
    for (i = 0; i < N_RUNS; i++)
        if (fits(i, quick)) t->speed[i][r] = embed_speed(ctx_of(t, i), run_tokens[i]);
}

/* The cosine of the last vector of each run with that of an F32 cache; the tables agree. */
static void measure_cosine(const table *t, int quick) {
    const size_t dim = (size_t)info.dim;
    float *other = (float *)malloc(dim * sizeof *other);
    bitnet_ctx *c[2];
    size_t i, at;
    int run;
    if (!other) fail(1, "no memory for vectors");
    for (run = 0; run < 2; run++)
        c[run] = new_ctx(t->model, run, bitnet_ctx_threads(t->one), BITNET_KV_F32, 0);
    for (run = 0; run < N_RUNS; run++) {
        if (!fits(run, quick)) continue;
        at = run_tokens[run] ? 0 : (MANY - 1) * dim;
        embed(ctx_of(t, run), run_tokens[run]);
        memcpy(other, vectors + at, dim * sizeof *other);
        embed(c[run_tokens[run] == 0], run_tokens[run]);
        for (i = 0; i < dim; i++) cosine[run] += (double)other[i] * (double)vectors[at + i];
    }
    for (run = 0; run < 2; run++) bitnet_ctx_free(c[run]);
    free(other);
}

/* ---- the report ---- */

static void report_run(table *t, int run, int rounds) {
    double *v = t->speed[run], speed = median(v, rounds);
    const double gmac = speed * layer_weights() * 1e-9, peak = median(t->peak, rounds);
    begin_row();
    show_text("kernel", bitnet_kernels_name(t->k), -15);
    show_text("kv", run == INT8_RUN ? "i8" : "f16", -4);
    show("texts", run_tokens[run] ? 1 : MANY, 5, 0);
    show("tokens", tokens_of(run_tokens[run]), 7, 0);
    show("tok_s", speed, 9, 1);
    show("spread_percent", spread_percent(v, rounds), 6, 1);
    show("gmac_s", gmac, 8, 1);
    show("limit", peak, 8, 1);
    show("limit_percent", peak > 0 ? gmac / peak * 100 : -1, 8, 1);
    show("ratio", speed / median(t->speed[2], rounds), 8, 2);
    show("cosine", cosine[run], 9, 5);
    end_row();
}

static void report(int rounds, int quick) {
    int i, run;
    if (as_json) printf("{");
    else puts("threads  rounds  M weights  file MB  ctx MB  many MB    i8 MB  most MB");
    show("n_threads", bitnet_ctx_threads(tables[0].one), 7, 0);
    show("rounds", rounds, 8, 0);
    show("million_weights", (double)info.n_params * 1e-6, 11, 1);
    show("file_mb", (double)info.file_bytes * 1e-6, 9, 1);
    show("ctx_mb", mb[0], 8, 1);
    show("many_mb", mb[1], 9, 1);
    show("i8_mb", mb[2], 9, 1);
    show("most_mb", most_mb(), 9, 1);
    if (!as_json) puts("");
    begin_list("kernels", "kernels        layout   load s  own MB");
    for (i = 0; i < n_tables; i++) {
        bitnet_model_get_info(tables[i].model, &info);
        begin_row();
        show_text("kernel", bitnet_kernels_name(tables[i].k), -15);
        show_text("layout", info.layout, 6);
        show("load_s", tables[i].load_s, 9, 3);
        show("own_mb", (double)info.own_bytes * 1e-6, 8, 1);
        end_row();
    }
    end_list();
    begin_list("embeddings", "kernels        kv   texts tokens     tok/s  +- %  GMAC/s   limit"
               " % of it  to 512   cosine");
    for (i = 0; i < n_tables; i++)
        for (run = 0; run < N_RUNS; run++)
            if (fits(run, quick)) report_run(&tables[i], run, rounds);
    end_list();
    if (as_json) puts("\n}");
    if (fflush(stdout) || ferror(stdout)) fail(1, "cannot write");
}

void bench_embeddings(const char *kernel, int n_threads, int rounds, int quick) {
    int i, r;
    make_texts();
    open_tables(kernel, n_threads);
    for (r = 0; r < rounds; r++) {
        fprintf(stderr, "bench: embeddings, round %d of %d\n", r + 1, rounds);
        for (i = 0; i < n_tables; i++) measure_table(&tables[i], r, quick);
    }
    measure_cosine(&tables[0], quick);
    report(rounds, quick);
    for (i = 0; i < n_tables; i++) {
        bitnet_ctx_free(tables[i].one);
        bitnet_ctx_free(tables[i].many);
        bitnet_ctx_free(tables[i].i8);
        bitnet_model_free(tables[i].model);
    }
    free(vectors);
}
