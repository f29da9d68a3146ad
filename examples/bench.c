/* How close to this machine's limits a model reads a prompt and writes, with every kernel table.

       cc -O2 examples/bench.c -o bench -lpthread
       ./bench [MODEL.gguf] [-t THREADS] [-r ROUNDS] [--kernel NAME] [--json] [--quick]

   Without MODEL: a random one in memory, with the shapes of BitNet b1.58-2B-4T. The limits are
   measured in the same rounds as the speeds, with as many threads, and the tables take turns, so
   that a noisy machine is noisy for all alike; what is printed are medians.
   Decode at a context of C positions writes the last N_DECODE of them (C = 0: the first), greedily.
   It is set against read bandwidth: each token needs every ternary weight (2 bits), the whole head
   and the cached keys and values. Prefill is bitnet_eval of a prompt, without the head, set against
   the multiply-accumulate peak of the table's instruction; only ternary weights count as work. */
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"

#include <stdio.h>
#include <time.h>
#if defined(__unix__) || defined(__APPLE__)
  #define POSIX 1
  #include <pthread.h>
  #include <sys/mman.h>
#else
  #define POSIX 0
#endif

enum { MAX_TABLES = 16, MAX_ROUNDS = 101, MAX_THREADS = 256, N_DECODE = 16, ROWS = 6 };

static const struct { const char *what; int32_t tokens; } rows[ROWS] = {
    {"prefill", 32}, {"prefill", 128}, {"prefill", 512},
    {"decode", 0}, {"decode", 1024}, {"decode", 4096}
};
#define IS_DECODE(row) ((row) >= 3)

/* One kernel table: contexts for everything short, decode at 1024 and decode at 4096. */
typedef struct table {
    bitnet_model *model;
    bitnet_ctx *ctx[3];
    const char *name;
    double load_s, peak[MAX_ROUNDS], speed[ROWS][MAX_ROUNDS];
} table;

typedef struct blob { uint8_t *data; size_t size; } blob;

static struct {
    blob file;
    table tables[MAX_TABLES];
    int n_tables, rounds, threads, json, quick;
    const char *path, *kernel;
    bitnet_model_info info;
    double read_gb[MAX_ROUNDS * MAX_TABLES], loaded_mb;
} b = {{0, 0}, {{0, {0, 0, 0}, 0, 0, {0}, {{0}}}}, 0, 5, 0, 0, 0, 0, 0,
       {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {0}, 0};

static double seconds(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *x, const void *y) {
    double a = *(const double *)x, c = *(const double *)y;
    return (a > c) - (a < c);
}

static double median(double *v, int n) {   /* leaves v sorted */
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void fail(int code, const char *what, const char *which) {
    fprintf(stderr, "bench: %s%s\n", what, which);
    exit(code);
}

/* The resident memory of this process in MB, or -1 where /proc does not tell. */
static double resident_mb(void) {
    char line[256];
    double mb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmRSS:", 6)) mb = atof(line + 6) / 1024;
    if (f) fclose(f);
    return mb;
}
