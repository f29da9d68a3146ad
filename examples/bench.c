/* How close to this machine's limits a model reads a prompt and writes, with every kernel table.

       cc -O2 examples/bench.c -o bench -lpthread
       ./bench [MODEL] [-t N] [-r ROUNDS] [--kernel NAME] [--json] [--quick]

   Without MODEL: a random one in memory, of BitNet b1.58-2B-4T's shapes. --quick leaves out the
   context of 4096. Limits and speeds are measured in the same rounds, on as many threads, the
   tables in turn, so that a noisy machine is noisy for all alike. Printed are medians; +- is half
   the way from the slowest round to the fastest.
   Decode at a context writes its last N_DECODE positions (0: the first ones), greedily. Its limit
   is read bandwidth: a token needs all ternary weights (2 bits each), the head, and the keys and
   values before it. Prefill is bitnet_eval of a prompt, without the head. Its limit is what the
   kernels' instructions multiply and accumulate in registers; ternary weights are the work. */
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"

#include <stdio.h>
#include <time.h>
#if defined(__unix__) || defined(__APPLE__)
  #include <pthread.h>
  typedef pthread_t thread;
  #define START(id, fn, arg) pthread_create(&(id), 0, fn, arg)
  #define JOIN(id) pthread_join(id, 0)
  #define CLOCK(t) clock_gettime(CLOCK_MONOTONIC, t)
#else                                  /* the limits are then those of one thread */
  typedef int thread;
  #define START(id, fn, arg) ((id) = (fn)(arg) != 0)
  #define JOIN(id) (void)(id)
  #define CLOCK(t) timespec_get(t, TIME_UTC)
#endif

enum { MAX_TABLES = 16, MAX_ROUNDS = 101, MAX_THREADS = 256, N_DECODE = 16, LONGEST = 4096 };
enum { N_RUNS = 6, FIRST_DECODE = 3 };

static const struct { const char *what; int32_t tokens; } runs[N_RUNS] = {
    {"prefill", 32}, {"prefill", 128}, {"prefill", 512},
    {"decode", 0}, {"decode", 1024}, {"decode", LONGEST}
};

typedef struct table {                 /* one kernel table */
    const bitnet_kernels *k;
    bitnet_model *model;
    bitnet_ctx *ctx[3];                /* for short runs; for decode at 1024 and at LONGEST */
    double peak[MAX_ROUNDS], speed[N_RUNS][MAX_ROUNDS];   /* GMAC/s; tok/s */
} table;

static table tables[MAX_TABLES];
static int n_tables, rounds = 5, threads, json, quick;
static const char *path, *kernel;
static uint8_t *file;                  /* the model; all tables borrow it */
static size_t file_size;
static bitnet_model_info info;
static double bandwidth[MAX_TABLES * MAX_ROUNDS];         /* GB/s */

static double seconds(void) {
    struct timespec t;
    CLOCK(&t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(int code, const char *what, const char *which) {
    fprintf(stderr, "bench: %s%s\n", what, which);
    exit(code);
}

static int ascending(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(double *v, int n) {                  /* leaves v sorted */
    qsort(v, (size_t)n, sizeof *v, ascending);
    return (v[n / 2] + v[(n - 1) / 2]) / 2;
}

static double resident_mb(void) {                         /* -1 where /proc does not tell */
    char line[256];
    double mb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmRSS:", 6)) mb = atof(line + 6) / 1024;
    if (f) fclose(f);
    return mb;
}

/* ---- the model: a file, or random weights ---- */

static void read_file(void) {
    long n = 0;
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) <= 0) fail(1, "cannot read ", path);
    file_size = (size_t)n;
    file = (uint8_t *)malloc(file_size);
    if (!file) fail(1, "no memory for ", path);
    if (fseek(f, 0, SEEK_SET) || fread(file, 1, file_size, f) != file_size)
        fail(1, "cannot read ", path);
    fclose(f);
}

static void put_bytes(const void *p, size_t n) {          /* only counts until there is memory */
    if (file) memcpy(file + file_size, p, n);
    file_size += n;
}

/* Appends a GGUF string (s) or an int as 32 (i) or 64 bits (q), little-endian. */
static void put(const char *types, ...) {
    va_list args;
    va_start(args, types);
    for (; *types; types++) {
        const char *s = *types == 's' ? va_arg(args, const char *) : 0;
        uint32_t v = s ? (uint32_t)strlen(s) : (uint32_t)va_arg(args, int);
        uint8_t b[8] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
        put_bytes(b, *types == 'i' ? 4 : 8);
        if (s) put_bytes(s, v);
    }
    va_end(args);
}

enum { N_VOCAB = 128256, DIM = 2560, FFN = 6912, KV = 640, N_LAYERS = 30, N_PARTS = 11 };
enum { F32 = 0, F16 = 1, I2_S = 36, U32 = 4, STRING = 8, ARRAY = 9 };

/* One pattern over and over, of a prime number of F16, so that rows differ. */
static void put_weights(int type, int bytes) {
    enum { PATTERN = 2 * 524287 };
    static uint8_t patterns[2][PATTERN];
    uint8_t *p = patterns[type == F16];
    uint32_t i, v, r = 1;
    for (; type == F32 && bytes > 0; bytes -= 4) put("i", 0x3f800000);   /* norms: 1.0 */
    for (i = 0; i < PATTERN && bytes && file && p[PATTERN - 1] == 0; i += 2) {
        v = (r = r * 1664525u + 1013904223u) >> 12;
        if (type == F16) v = (v & 0x83ff) | (5 + (v >> 16 & 3)) << 10;   /* +-2^-10 to 2^-6 */
        else v = (v & 0x5555) | (v & ~(v << 1) & 0xaaaa);                /* codes 0, 1, 1, 2 */
        p[i] = (uint8_t)v;
        p[i + 1] = (uint8_t)(v >> 8);
    }
    for (; bytes > PATTERN; bytes -= PATTERN) put_bytes(p, PATTERN);
    put_bytes(p, (size_t)bytes);
    if (type == I2_S) put("iiqqq", 0x3ca3d70a, 0, 0, 0, 0);              /* the scale, 0.02 */
}

/* All tensors: their entries in the directory, or their bytes; sizes are multiples of 32. */
static void put_tensors(int directory) {
    static const struct { const char *name; int type, cols, n_rows; } parts[2 + N_PARTS] = {
        {"token_embd", F16, DIM, N_VOCAB}, {"output_norm", F32, DIM, 1},
        {"attn_norm", F32, DIM, 1}, {"attn_sub_norm", F32, DIM, 1}, {"attn_q", I2_S, DIM, DIM},
        {"attn_k", I2_S, DIM, KV}, {"attn_v", I2_S, DIM, KV}, {"attn_output", I2_S, DIM, DIM},
        {"ffn_norm", F32, DIM, 1}, {"ffn_sub_norm", F32, FFN, 1}, {"ffn_gate", I2_S, DIM, FFN},
        {"ffn_up", I2_S, DIM, FFN}, {"ffn_down", I2_S, FFN, DIM}
    };
    char name[64];
    int i, at = 0;
    for (i = 0; i < 2 + N_LAYERS * N_PARTS; i++) {
        int k = i < 2 ? i : 2 + (i - 2) % N_PARTS, type = parts[k].type;
        int n = parts[k].cols * parts[k].n_rows;
        int bytes = type == F32 ? 4 * n : type == F16 ? 2 * n : n / 4;
        if (i < 2) snprintf(name, sizeof name, "%s.weight", parts[k].name);
        else snprintf(name, sizeof name, "blk.%d.%s.weight", (i - 2) / N_PARTS, parts[k].name);
        if (directory) put("siqqiq", name, 2, parts[k].cols, parts[k].n_rows, type, at);
        else put_weights(type, bytes);
        at += bytes + (type == I2_S ? 32 : 0);
    }
}

/* The bytes in GPT-2's spelling (some as themselves, the rest from U+0100 on), then fillers. */
static void put_vocabulary(void) {
    unsigned i, shifted = 256;
    put("siiq", "tokenizer.ggml.tokens", ARRAY, STRING, N_VOCAB);
    for (i = 0; i < N_VOCAB; i++) {
        unsigned u = (i >= 33 && i <= 126) || (i >= 161 && i != 173) ? i : shifted++;
        char text[16] = {(char)(0xc0 | (u >> 6 & 31)), (char)(0x80 | (u & 63)), 0};
        if (u < 128 || i > 255) snprintf(text, sizeof text, i < 256 ? "%c" : "x%u", u);
        put("s", text);
    }
    put("siiqs", "tokenizer.ggml.merges", ARRAY, STRING, 1, "x2560 0");
}

static void put_model(void) {
    file_size = 0;
    put_bytes("GGUF\3\0\0", 8);
    put("qq", 2 + N_LAYERS * N_PARTS, 10);                /* tensors and keys */
    put("sis", "general.architecture", STRING, "bitnet-b1.58");
    put("sii", "bitnet-b1.58.context_length", U32, LONGEST);
    put("sii", "bitnet-b1.58.embedding_length", U32, DIM);
    put("sii", "bitnet-b1.58.block_count", U32, N_LAYERS);
    put("sii", "bitnet-b1.58.feed_forward_length", U32, FFN);
    put("sii", "bitnet-b1.58.attention.head_count", U32, DIM / 128);
    put("sii", "bitnet-b1.58.attention.head_count_kv", U32, KV / 128);
    put("sis", "tokenizer.ggml.model", STRING, "gpt2");
    put_vocabulary();
    put_tensors(1);
    while (file_size % 32) put_bytes("", 1);
    put_tensors(0);
}

static void make_model(void) {
    put_model();
    file = (uint8_t *)malloc(file_size);
    if (!file) fail(1, "no memory for a random model", "");
    put_model();
}

/* ---- the limits ---- */

typedef struct job {
    void (*fn)(struct job *);
    const uint8_t *volatile p;         /* volatile: each pass is a read of its own */
    size_t n;                          /* bytes, a multiple of 128 */
    uint64_t passes, sum;
} job;

static void read_plain(job *j) {
    uint64_t sum[4] = {0, 0, 0, 0}, pass;
    size_t i;
    for (pass = 0; pass < j->passes; pass++) {
        const uint64_t *p = (const uint64_t *)(const void *)j->p;
        for (i = 0; i < j->n / 8; i++) sum[i % 4] += p[i];
    }
    j->sum = sum[0] + sum[1] + sum[2] + sum[3];
}

typedef struct probe {                 /* for the tables whose names begin so */
    const char *name;
    void (*read)(job *), (*peak)(job *);
    double macs;                       /* in a pass of peak */
} probe;

/* In assembly, because a compiler would see that nothing comes of it. Each sum has a register of
   its own, enough of them to hide the latency. Wide loads read up to twice what plain C does. */
#if defined(__x86_64__) && defined(__GNUC__)
#define CLOBBERED "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", \
    "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13"
#define READ(isa, load) __attribute__((target(#isa))) static void read_##isa(job *j) { \
    uint64_t pass; \
    for (pass = 0; pass < j->passes; pass++) { \
        const uint8_t *p = j->p, *end = p + j->n; \
        __asm__ volatile("1:\nprefetcht0 4096(%0)\nprefetcht0 4160(%0)\n" load \
            "sub $-128, %0\ncmp %1, %0\njb 1b\nvzeroupper" : "+r"(p) : "r"(end) : CLOBBERED); \
    } }
#define PEAK(name, isa, body) __attribute__((target(isa))) static void peak_##name(job *j) { \
    uint64_t n = j->passes; \
    __asm__ volatile("1:\n" body "dec %0\njnz 1b\nvzeroupper" : "+r"(n) : : CLOBBERED); }
READ(avx512f, "vmovdqu64 (%0), %%zmm0\nvmovdqu64 64(%0), %%zmm1\n")
READ(avx2, "vmovdqu (%0), %%ymm0\nvmovdqu 32(%0), %%ymm1\nvmovdqu 64(%0), %%ymm2\n"
     "vmovdqu 96(%0), %%ymm3\n")
#define DP(r) "vpdpbusd %%zmm0, %%zmm1, %%zmm" #r "\n"
PEAK(avx512vnni, "avx512f,avx512vnni", DP(2) DP(3) DP(4) DP(5) DP(6) DP(7) DP(8) DP(9) DP(10)
     DP(11) DP(12) DP(13))
#if __GNUC__ >= 11 || (defined(__clang__) && __clang_major__ >= 12)
#define DPY(r) "%{vex%} vpdpbusd %%ymm0, %%ymm1, %%ymm" #r "\n"
PEAK(avxvnni, "avx2", DPY(2) DPY(3) DPY(4) DPY(5) DPY(6) DPY(7) DPY(8) DPY(9) DPY(10) DPY(11)
     DPY(12) DPY(13))
#define AVXVNNI_PROBE {"avxvnni", read_avx2, peak_avxvnni, 12 * 32},
#else
#define AVXVNNI_PROBE
#endif
#define MADD(t, s) "vpmaddubsw %%ymm0, %%ymm1, %%ymm" #t "\n" \
    "vpaddw %%ymm" #t ", %%ymm" #s ", %%ymm" #s "\n"
#define MADD4 MADD(6, 2) MADD(7, 3) MADD(8, 4) MADD(9, 5)
/* As in the kernel: 32 products are added in int16, then vpmaddwd widens the sum. */
PEAK(avx2, "avx2", MADD4 MADD4 MADD4 MADD4 MADD4 MADD4 MADD4 MADD4
     "vpmaddwd %%ymm0, %%ymm2, %%ymm10\nvpaddd %%ymm10, %%ymm11, %%ymm11\n")
#define X86_PROBES {"avx512vnni", read_avx512f, peak_avx512vnni, 12 * 64}, \
    AVXVNNI_PROBE {"avx2", read_avx2, peak_avx2, 32 * 32},
#else
#define X86_PROBES
#endif
static const probe probes[] = {X86_PROBES {"", read_plain, 0, 0}};

/* The probe of a table, or (k = 0) the first that this CPU can run. */
static const probe *find_probe(const bitnet_kernels *k) {
    const probe *p;
    for (p = probes; p->name[0]; p++) {
        const bitnet_kernels *own = bitnet_kernels_find(p->name);
        if (k ? !strncmp(k->name, p->name, strlen(p->name)) : own && bitnet_kernels_usable(own))
            break;
    }
    return p;
}

static void *run_job(void *p) {
    ((job *)p)->fn((job *)p);
    return 0;
}

/* Seconds that fn takes on all threads, each with its share of the file. */
static double time_jobs(void (*fn)(job *), uint64_t passes, size_t share) {
    static job jobs[MAX_THREADS];
    thread ids[MAX_THREADS];
    double start = seconds();
    int i;
    for (i = 0; i < threads; i++) {
        job j = {0, 0, 0, 0, 0};
        j.fn = fn, j.p = file + (size_t)i * share, j.n = share, j.passes = passes;
        jobs[i] = j;
        if (i > 0 && START(ids[i], run_job, &jobs[i])) fail(1, "cannot start a thread", "");
    }
    run_job(&jobs[0]);
    for (i = 1; i < threads; i++) JOIN(ids[i]);
    return seconds() - start;
}

static double measure_bandwidth(void) {                   /* GB/s */
    size_t share = file_size / (size_t)threads / 128 * 128;
    double bytes = (double)share * threads;
    uint64_t passes = 1 + (uint64_t)(1e9 / (bytes + 1));
    if (share == 0) return -1;
    return bytes * (double)passes / time_jobs(find_probe(0)->read, passes, share) * 1e-9;
}

static double measure_peak(const bitnet_kernels *k) {     /* GMAC/s */
    const probe *p = find_probe(k);
    const double passes = 1 << 22;
    return p->peak ? p->macs * passes * threads / time_jobs(p->peak, 1 << 22, 0) * 1e-9 : -1;
}

/* ---- the model's speed ---- */

static void eval_random(bitnet_ctx *c, int32_t n) {
    static bitnet_token tokens[LONGEST];
    bitnet_error err;
    uint32_t r = 1;
    int32_t i;
    for (i = 0; i < n; i++)
        tokens[i] = (bitnet_token)((r = r * 1664525u + 1013904223u) >> 8) % info.n_vocab;
    if (n > 0 && bitnet_eval(c, tokens, n, 0, &err)) fail(1, err.text, "");
}

static double measure(table *t, int run) {                /* tok/s */
    bitnet_ctx *c = t->ctx[run <= FIRST_DECODE ? 0 : run - FIRST_DECODE];
    int32_t i, from = run <= FIRST_DECODE ? 0 : runs[run].tokens - N_DECODE;
    bitnet_token token = 0;
    bitnet_error err;
    double start;
    eval_random(c, from - bitnet_ctx_length(c));          /* the first round fills the context */
    bitnet_ctx_rewind(c, from);
    start = seconds();
    if (run < FIRST_DECODE) {
        eval_random(c, runs[run].tokens);
        return runs[run].tokens / (seconds() - start);
    }
    for (i = 0; i < N_DECODE; i++) {
        if (bitnet_eval(c, &token, 1, 0, &err)) fail(1, err.text, "");
        token = bitnet_sample(c, 0);
    }
    return N_DECODE / (seconds() - start);
}

static int is_skipped(int run) {
    return runs[run].tokens > info.ctx_train || (quick && runs[run].tokens == LONGEST);
}

static double ternary_weights(void) {
    double q = (double)info.n_heads * info.head_dim, kv = (double)info.n_kv_heads * info.head_dim;
    return info.n_layers * (double)info.dim * (2 * q + 2 * kv + 3.0 * info.ffn_dim);
}

/* What must be read for a token. The interface does not tell the type of the head; but the file
   is little else than ternary weights and either one or two matrices of its size. */
static double token_bytes(int run) {
    double matrix = (double)info.n_vocab * info.dim, ternary = ternary_weights();
    double n = (double)info.n_params - ternary > 1.5 * matrix ? 2 : 1;
    double cell = ((double)info.file_bytes - ternary / 4) / (n * matrix) > 3.5 ? 4 : 2;
    double last = runs[run].tokens ? runs[run].tokens : N_DECODE;
    double kv = 4.0 * info.n_layers * info.n_kv_heads * info.head_dim;   /* F16, a position */
    return ternary / 4 + matrix * cell + kv * (last - (N_DECODE - 1) / 2.0);
}

/* ---- the report ---- */

/* A number, or - where there is none (-1): as a column, or with a key in JSON. */
static void show(const char *key, double v, int width, int digits) {
    if (json && v < 0) printf(", \"%s\": null", key);
    else if (json) printf(", \"%s\": %.*f", key, digits + 2, v);
    else if (v < 0) printf("%*s", width, "-");
    else printf("%*.*f", width, digits, v);
}

static void report_run(table *t, int run, double limit) {
    int decode = run >= FIRST_DECODE;
    double *v = t->speed[run], speed = median(v, rounds);
    double gb = decode ? speed * token_bytes(run) * 1e-9 : -1;
    double gmac = speed * ternary_weights() * 1e-9;
    printf(json ? "{\"kernel\": \"%s\", \"run\": \"%s\", \"tokens\": %d" : "%-12s %-8s %6d",
           t->k->name, runs[run].what, (int)runs[run].tokens);
    show("tok_s", speed, 10, 1);
    show("spread_percent", (v[rounds - 1] - v[0]) / speed * 50, 7, 0);
    show("gb_s", gb, 9, 1);
    show("gmac_s", gmac, 9, 1);
    show("limit", limit, 9, 1);
    show("limit_percent", limit > 0 ? (decode ? gb : gmac) / limit * 100 : -1, 9, 0);
    printf(json ? "}" : "\n");
}

static void report(double load_s, double loaded_mb) {
    double read_gb = median(bandwidth, rounds * n_tables);
    int i, run, n = 0;
    printf(json ? "{\"random_model\": %d, \"threads\": %d, \"rounds\": %d"
                : "random model %d, threads %d, rounds %d\nM weights   file MB    load s "
                  " MB loaded MB at end read GB/s\n", !path, threads, rounds);
    show("million_weights", (double)info.n_params * 1e-6, 9, 0);
    show("file_mb", (double)info.file_bytes * 1e-6, 10, 0);
    show("load_s", load_s, 10, 3);
    show("loaded_mb", loaded_mb, 11, 0);
    show("resident_mb", resident_mb(), 10, 0);
    show("read_gb_s", read_gb, 10, 1);
    printf(json ? ",\n\"runs\": [" : "\n\nkernels      run      tokens     tok/s    +- %%     "
           "GB/s   GMAC/s    limit  %% of it\n");
    for (i = 0; i < n_tables; i++)
        for (run = 0; run < N_RUNS; run++) {
            if (is_skipped(run)) continue;
            if (json && n++) printf(",\n ");
            report_run(&tables[i], run,
                       run < FIRST_DECODE ? median(tables[i].peak, rounds) : read_gb);
        }
    if (json) puts("]}");
}

/* ---- setting up ---- */

static int number(char **a, long high) {                  /* the value of flag a[0] */
    char text[128], *end = text;
    long n = a[1] ? strtol(a[1], &end, 10) : 0;
    snprintf(text, sizeof text, " wants a number from 1 to %ld", high);
    if (!a[1] || end == a[1] || *end || n < 1 || n > high) fail(2, a[0], text);
    return (int)n;
}

static void parse_flags(char **a) {                       /* ends with 0 */
    for (; *a; a++) {
        if (!strcmp(*a, "--json")) json = 1;
        else if (!strcmp(*a, "--quick")) quick = 1;
        else if (!strcmp(*a, "-t")) threads = number(a++, MAX_THREADS);
        else if (!strcmp(*a, "-r")) rounds = number(a++, MAX_ROUNDS);
        else if (!strcmp(*a, "--kernel") && a[1]) kernel = *++a;
        else if (**a != '-' && !path) path = *a;
        else fail(2, "not [MODEL] [-t N] [-r ROUNDS] [--kernel NAME] [--json] [--quick]: ", *a);
    }
    if (kernel && !bitnet_kernels_find(kernel)) fail(2, "this build has no kernels ", kernel);
    if (kernel && !bitnet_kernels_usable(bitnet_kernels_find(kernel)))
        fail(1, "this machine cannot run the kernels ", kernel);
}

static void add_table(const bitnet_kernels *k, double *load_s) {
    table *t = &tables[n_tables++];
    bitnet_model_params mp = {0};
    bitnet_ctx_params cp = {0};
    bitnet_error err;
    double start = seconds();
    int i;
    mp.kernels = t->k = k;
    if (bitnet_model_load_memory(file, file_size, &mp, &t->model, &err)) fail(1, err.text, "");
    if (load_s) *load_s = seconds() - start;
    bitnet_model_get_info(t->model, &info);
    cp.n_threads = threads;
    cp.full_head = 1;                  /* token_bytes counts all of it */
    for (i = 0; i < 3; i++) {
        cp.n_ctx = i ? runs[FIRST_DECODE + i].tokens : 512;
        if (!is_skipped(FIRST_DECODE + i) &&
            bitnet_ctx_create(t->model, &cp, &t->ctx[i], &err)) fail(1, err.text, "");
    }
    threads = bitnet_ctx_threads(t->ctx[0]);
}

static void measure_round(int r) {
    int i, run;
    fprintf(stderr, "bench: round %d of %d\n", r + 1, rounds);
    for (i = 0; i < n_tables; i++) {
        bandwidth[r * n_tables + i] = measure_bandwidth();
        tables[i].peak[r] = measure_peak(tables[i].k);
        for (run = 0; run < N_RUNS; run++)
            if (!is_skipped(run)) tables[i].speed[run][r] = measure(&tables[i], run);
    }
}

int main(int argc, char **argv) {
    double load_s = 0, loaded_mb;
    int i, r;
    (void)argc;
    parse_flags(argv + 1);
    if (path) read_file();
    else make_model();
    for (i = 0; i < bitnet_kernels_count() && n_tables < MAX_TABLES; i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        int minutes = n_tables > 0 && info.n_params > 100000000 && !strncmp(k->name, "scalar", 6);
        if (!bitnet_kernels_usable(k) || (kernel && strcmp(k->name, kernel)) || minutes) continue;
        add_table(k, n_tables ? 0 : &load_s);
    }
    loaded_mb = resident_mb();
    for (r = 0; r < rounds; r++) measure_round(r);
    report(load_s, loaded_mb);
    for (i = 0; i < n_tables; i++) {
        for (r = 0; r < 3; r++) bitnet_ctx_free(tables[i].ctx[r]);
        bitnet_model_free(tables[i].model);
    }
    free(file);
    return 0;
}
