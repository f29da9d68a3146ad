#define _DEFAULT_SOURCE 1              /* clock_gettime, also with -std=c99 */
#include "limits.h"
#include "report.h"
#include <string.h>
#include <time.h>
#if defined(__unix__) || defined(__APPLE__)
  #include <pthread.h>
  typedef pthread_t thread;
  #define START(id, fn, arg) pthread_create(&(id), 0, fn, arg)
  #define JOIN(id) pthread_join(id, 0)
#else                                  /* here the limits are those of one thread */
  #define WIN32_LEAN_AND_MEAN
  #define NOMINMAX
  #include <windows.h>
  typedef int thread;
  #define START(id, fn, arg) ((id) = (fn)(arg) != 0)
  #define JOIN(id) (void)(id)
#endif

double seconds(void) {
#ifdef _WIN32
    LARGE_INTEGER ticks, per_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&per_second);
    return (double)ticks.QuadPart / (double)per_second.QuadPart;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
#endif
}

/* ---- what each thread does ---- */

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

typedef struct probe {
    const char *name;                  /* of the tables that begin with it */
    void (*read)(job *), (*peak)(job *);
    double macs;                       /* in one pass of peak */
} probe;

/* In assembly, because a compiler would remove code whose result is unused. Each sum has its own
   register, and there are enough of them to hide the latency. Wide loads read up to twice as fast
   as plain C does. */
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
/* The same with VEX prefixes (AVX-VNNI), as bytes because older assemblers do not know it. x and m
   are the bytes with the sum's number: vpdpbusd %ymm0, %ymm1, %ymm2 to %ymm13. */
#define VEX_DP(x, m) ".byte 0xc4, " #x ", 0x75, 0x50, " #m "\n"
PEAK(avxvnni, "avx2", VEX_DP(0xe2, 0xd0) VEX_DP(0xe2, 0xd8) VEX_DP(0xe2, 0xe0) VEX_DP(0xe2, 0xe8)
     VEX_DP(0xe2, 0xf0) VEX_DP(0xe2, 0xf8) VEX_DP(0x62, 0xc0) VEX_DP(0x62, 0xc8)
     VEX_DP(0x62, 0xd0) VEX_DP(0x62, 0xd8) VEX_DP(0x62, 0xe0) VEX_DP(0x62, 0xe8))
#define MADD(t, s) "vpmaddubsw %%ymm0, %%ymm1, %%ymm" #t "\n" \
    "vpaddw %%ymm" #t ", %%ymm" #s ", %%ymm" #s "\n"
#define MADD4 MADD(6, 2) MADD(7, 3) MADD(8, 4) MADD(9, 5)
/* As in the kernel: int16 sums of 32 products, then vpmaddwd widens them. */
PEAK(avx2, "avx2", MADD4 MADD4 MADD4 MADD4 MADD4 MADD4 MADD4 MADD4
     "vpmaddwd %%ymm0, %%ymm2, %%ymm10\nvpaddd %%ymm10, %%ymm11, %%ymm11\n")
/* Four tiles of sums, two of each factor. Opcodes as bytes because older assemblers do not know
   them: TDPBSUD of tile s by a and b is c4 e2 (v) 5e (m). */
#define TILE_DP(v, m) ".byte 0xc4, 0xe2, " #v ", 0x5e, " #m "\n"
static void peak_amx(job *j) {
    static const uint8_t shapes[64] = {
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,        /* palette */
        64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0,        /* bytes of a row */
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        16, 16, 16, 16, 16, 16, 16, 16};                       /* rows */
    uint64_t n = j->passes / 16;
    __asm__ volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0x01\n"    /* ldtilecfg (%rcx) */
                     "1:\n" TILE_DP(0x4a, 0xc4) TILE_DP(0x42, 0xcc) TILE_DP(0x4a, 0xd5)
                     TILE_DP(0x42, 0xdd)
                     "dec %0\njnz 1b\n"
                     ".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0\n"    /* tilerelease */
                     : "+r"(n) : "c"(shapes) : "cc", "memory");
}
#define X86_PROBES {"amx", read_avx512f, peak_amx, 4 * 1024}, \
    {"avx512vnni", read_avx512f, peak_avx512vnni, 12 * 64}, \
    {"avx512vbmi", read_avx512f, peak_avx512vnni, 12 * 64}, \
    {"avxvnni", read_avx2, peak_avxvnni, 12 * 32}, \
    {"avx2", read_avx2, peak_avx2, 32 * 32},
#else
#define X86_PROBES
#endif
static const probe probes[] = {X86_PROBES {"", read_plain, 0, 0}};

/* The probe of a table, or (k = 0) the first that this CPU can run. */
static const probe *find_probe(const bitnet_kernels *k) {
    const probe *p;
    for (p = probes; p->name[0]; p++) {
        const bitnet_kernels *own = bitnet_kernels_find(p->name);
        if (k ? !strncmp(bitnet_kernels_name(k), p->name, strlen(p->name))
              : own && bitnet_kernels_usable(own))
            break;
    }
    return p;
}

/* ---- all threads at once ---- */

static void *run_job(void *p) {
    ((job *)p)->fn((job *)p);
    return 0;
}

/* Systems take away memory that is not used for a while. The head's rows, most of which a pass does
   not read, are such memory, and a read that waits for their pages is no measure. */
static void fetch_pages(const uint8_t *data, size_t size) {
    const volatile uint8_t *p = data;
    size_t i;
    for (i = 0; i < size; i += 4096) (void)p[i];
}

/* Seconds that fn takes on n threads, each with its share of data. */
static double time_jobs(void (*fn)(job *), int n, uint64_t passes, const uint8_t *data,
                        size_t share) {
    static job jobs[MAX_THREADS];
    thread ids[MAX_THREADS];
    double start = seconds();
    int i;
    for (i = 0; i < n; i++) {
        jobs[i].fn = fn;
        jobs[i].p = data + (size_t)i * share;
        jobs[i].n = share;
        jobs[i].passes = passes;
        if (i > 0 && START(ids[i], run_job, &jobs[i])) fail(1, "cannot start a thread");
    }
    run_job(&jobs[0]);
    for (i = 1; i < n; i++) JOIN(ids[i]);
    return seconds() - start;
}

double measure_bandwidth(int n, const uint8_t *data, size_t size) {
    size_t share = size / (size_t)n / 128 * 128;
    double bytes = (double)share * n;
    uint64_t passes = 1 + (uint64_t)(1e9 / (bytes + 1));
    if (share == 0) return -1;
    fetch_pages(data, size);
    return bytes * (double)passes / time_jobs(find_probe(0)->read, n, passes, data, share) * 1e-9;
}

double measure_peak(int n, const bitnet_kernels *k) {
    const probe *p = find_probe(k);
    const uint8_t no_data[1] = {0};
    const uint32_t passes = 1 << 24;
    return p->peak ? p->macs * passes * n / time_jobs(p->peak, n, passes, no_data, 0) * 1e-9 : -1;
}
