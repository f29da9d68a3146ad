/* How fast a model loads, reads a prompt and writes, with every kernel table that this CPU can run.

       cc -O2 examples/bench.c -o bench -lpthread
       ./bench MODEL.gguf [-t THREADS] [-r ROUNDS]

   The tables take turns in every round, so that a noisy machine is noisy for all of them alike;
   the medians are printed. Scalar is left out for models of over 100 million weights unless
   nothing else is usable: it would take minutes. */
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"

#include <stdio.h>
#include <time.h>

enum { MAX_TABLES = 8, MAX_ROUNDS = 101, N_PROMPT = 128, N_DECODE = 24 };

static double seconds(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}

static void fail(const char *what) {
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

/* The resident memory of this process in MB, or 0 where /proc does not tell. */
static double resident_mb(void) {
    char line[256];
    double kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmRSS:", 6)) kb = atof(line + 6);
    if (f) fclose(f);
    return kb / 1024;
}

/* One round: tokens per second of a prompt of N_PROMPT tokens and of N_DECODE greedy ones. */
static void measure(bitnet_ctx *c, double *prefill, double *decode) {
    bitnet_token tokens[N_PROMPT], t;
    bitnet_error err;
    double start;
    int i;
    for (i = 0; i < N_PROMPT; i++) tokens[i] = i * 7 % 256;
    bitnet_ctx_rewind(c, 0);
    start = seconds();
    if (bitnet_eval(c, tokens, N_PROMPT, 0, &err)) fail(err.text);
    *prefill = N_PROMPT / (seconds() - start);
    t = bitnet_sample(c, 0);
    start = seconds();
    for (i = 0; i < N_DECODE; i++) {
        if (bitnet_eval(c, &t, 1, 0, &err)) fail(err.text);
        t = bitnet_sample(c, 0);
    }
    *decode = N_DECODE / (seconds() - start);
}

int main(int argc, char **argv) {
    static double prefill[MAX_TABLES][MAX_ROUNDS], decode[MAX_TABLES][MAX_ROUNDS];
    const char *path = argc > 1 ? argv[1] : "examples/tiny.gguf";
    bitnet_model *models[MAX_TABLES] = {0};
    bitnet_ctx *contexts[MAX_TABLES] = {0};
    bitnet_ctx_params cp = {0};
    bitnet_model_info info;
    bitnet_error err;
    int i, r, n = 0, rounds = 5;
    for (i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "-t")) cp.n_threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-r")) rounds = atoi(argv[i + 1]);
        else fail("usage: bench MODEL.gguf [-t THREADS] [-r ROUNDS]");
    }
    if (i < argc || rounds < 1 || rounds > MAX_ROUNDS)
        fail("usage: bench MODEL.gguf [-t N] [-r N]");
    cp.n_ctx = N_PROMPT + N_DECODE;
    for (i = 0; i < bitnet_kernels_count() && n < MAX_TABLES; i++) {
        bitnet_model_params mp = {0};
        double start = seconds();
        mp.kernels = bitnet_kernels_get(i);
        if (!bitnet_kernels_usable(mp.kernels)) continue;
        if (bitnet_model_load_file(path, &mp, &models[n], &err)) fail(err.text);
        if (n == 0)
            printf("load %.3f s, then %.0f MB resident\n", seconds() - start, resident_mb());
        bitnet_model_get_info(models[n], &info);
        if (n > 0 && info.n_params > 100000000 && !strcmp(mp.kernels->name, "scalar")) {
            bitnet_model_free(models[n]);
            continue;
        }
        if (bitnet_ctx_create(models[n], &cp, &contexts[n], &err)) fail(err.text);
        n++;
    }
    for (r = 0; r < rounds; r++)
        for (i = 0; i < n; i++) measure(contexts[i], &prefill[i][r], &decode[i][r]);
    printf("%.0f MB resident after the runs\n", resident_mb());
    printf("%-12s %18s %18s   (medians of %d)\n", "kernels", "prefill tok/s", "decode tok/s",
           rounds);
    for (i = 0; i < n; i++) {
        bitnet_model_get_info(models[i], &info);
        printf("%-12s %18.1f %18.1f\n", info.kernels, median(prefill[i], rounds),
               median(decode[i], rounds));
        bitnet_ctx_free(contexts[i]);
        bitnet_model_free(models[i]);
    }
    return 0;
}
