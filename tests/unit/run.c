/* The test runner: runs the tables of the other files and counts.

   run [--list] [--times] [--data DIR] [--require NAME,NAME...] [FILTER...]

   A filter is any part of a test's name; without one, all run. --require fails if a test of
   exactly that name did not run to its end (left out by a filter, skipped, or no such test).
   --times adds each test's processor time. --data is where tests/data is (default: TEST_DATA_DIR,
   compiled in, or tests/data). The environment variable BITNET_TEST_DATA names the directory of
   the larger data (default ../shared).

   BITNET_TEST_QUICK=1 in the environment is for emulators, where a test takes ten times as long,
   and for further compilers.
   Every test still runs and can fail, with fewer repetitions: each third combination of threads and
   batches (model/variants, hybrid/variants, embed/packing a seventh), 400 draws in place of 4000
   (text/distribution), a twentieth of the hidden states (head/), a twentieth of the changes and
   each 11th place to cancel (marks/), one type of experts in all variants (experts/types), each
   29th scale and each seventh combination (float_formats/), a tenth of
   the random texts (tokenizer/roundtrip), one prompt for each of five samplers, half as long
   (lookup/samplers), each third to sixth length (lookup/chain), each fifth place of a damaged file
   (gguf/), an eighth of the most that a file can hold (hostile/), two batches of six
   (hostile_model/), each wish refused alone or with all after it (faults/..._refused), 100 of
   10000 cycles (faults/cycles) and each eighth document (tiny/perplexity). */

#include "check.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32
  #include <process.h>
  #define getpid _getpid
#else
  #include <unistd.h>
#endif

#ifndef TEST_FILES
  #error TEST_FILES must name the test files that are linked: X(model) X(text) for test_model.c ...
#endif
#ifndef TEST_DATA_DIR
  #define TEST_DATA_DIR "tests/data"
#endif

#define X(name) extern const test_case name##_tests[];     /* of test_NAME.c; ends with {0, 0} */
TEST_FILES
#undef X
#define X(name) name##_tests,
static const test_case *const suites[] = {TEST_FILES 0};
#undef X

enum { OK, FAILED, SKIPPED };
static int outcome;                     /* of the test that runs now */
static char message[1024];
static const char *data_dir = TEST_DATA_DIR;

/* ---- what test.h promises ---- */

void test_fail(const char *file, int line, const char *format, ...) {
    va_list args;
    size_t n;
    if (outcome == FAILED) return;      /* the first failure is the one to look at */
    outcome = FAILED;
    snprintf(message, sizeof message, "%.200s:%d ", file, line);
    n = strlen(message);
    va_start(args, format);
    vsnprintf(message + n, sizeof message - n, format, args);
    va_end(args);
}

void test_skip(const char *format, ...) {
    va_list args;
    if (outcome != OK) return;
    outcome = SKIPPED;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
}

/* Four paths can be in use at a time. */
static const char *join(const char *dir, const char *name) {
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%.500s/%.500s", dir, name);
    return path;
}

const char *test_data(const char *name) { return join(data_dir, name); }

const char *test_shared(const char *name) {
    const char *dir = getenv("BITNET_TEST_DATA");
    const char *path = join(dir && dir[0] ? dir : "../shared", name);
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    fclose(f);
    return path;
}

/* The process's number keeps two programs that run at the same time apart. */
const char *test_path(const char *name) {
    char own[512];
    const char *dir = getenv("TMPDIR");
    snprintf(own, sizeof own, "bitnet-%ld-%.400s", (long)getpid(), name);
    return join(dir && dir[0] ? dir : "/tmp", own);
}

int test_quick(void) {
    const char *quick = getenv("BITNET_TEST_QUICK");
    return quick && quick[0] == '1';
}

void *test_read_file(const char *path, size_t *size) {
    FILE *f = path ? fopen(path, "rb") : 0;
    char *p = 0, *bigger;
    size_t n = 0, cap = 65536, got;
    if (size) *size = 0;
    if (!f) return 0;
    while ((bigger = (char *)realloc(p, cap)) != 0) {
        p = bigger;
        got = fread(p + n, 1, cap - n, f);
        n += got;
        if (got == 0) break;
        if (n == cap) cap *= 2;
    }
    if (!bigger || ferror(f)) {
        free(p);
        p = 0;
    } else if ((bigger = (char *)realloc(p, n ? n : 1)) != 0) {
        p = bigger;                     /* exact size: a sanitizer sees reads beyond it */
    }
    fclose(f);
    if (p && size) *size = n;
    return p;
}

/* ---- the runner ---- */

static int wanted(const char *name, int n_filters, char **filters) {
    int i;
    for (i = 0; i < n_filters; i++)
        if (strstr(name, filters[i])) return 1;
    return n_filters == 0;
}

/* Whether the comma-separated list holds name. */
static int in_list(const char *list, const char *name) {
    size_t n = strlen(name);
    const char *p;
    for (p = list; p; p = strchr(p, ','), p = p ? p + 1 : 0)
        if (!strncmp(p, name, n) && (p[n] == 0 || p[n] == ',')) return 1;
    return 0;
}

/* Every name of the list that is not in done is one failure. */
static int check_required(const char *list, const char *done) {
    int missing = 0;
    while (list && *list) {
        char name[256];
        size_t n = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, list);
        if (n && !in_list(done, name)) {
            printf("%s ... FAIL required, but it did not run\n", name);
            missing++;
        }
        list += n + (list[n] == ',');
    }
    return missing;
}

static int usage(void) {
    fprintf(stderr, "usage: run [--list] [--times] [--data DIR] [--require NAME,NAME...] "
                    "[FILTER...]\n");
    return 2;
}

int main(int argc, char **argv) {
    const char *required = "";
    char *done = (char *)calloc(1, 65536);      /* names of the tests that ran, with commas */
    int counts[3] = {0, 0, 0}, list = 0, times = 0, n_filters = 0, i, s;
    if (!done) return 3;
    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--list")) list = 1;
        else if (!strcmp(argv[i], "--times")) times = 1;
        else if (!strcmp(argv[i], "--require") && i + 1 < argc) required = argv[++i];
        else if (!strcmp(argv[i], "--data") && i + 1 < argc) data_dir = argv[++i];
        else if (argv[i][0] == '-') return free(done), usage();
        else argv[n_filters++] = argv[i];
    }
    for (s = 0; suites[s]; s++) {
        const test_case *t;
        for (t = suites[s]; t->name; t++) {
            clock_t start = clock();
            if (!wanted(t->name, n_filters, argv)) continue;
            printf("%s%s", t->name, list ? "\n" : " ... ");
            if (list) continue;
            fflush(stdout);                     /* a crash shows which test it was */
            outcome = OK;
            message[0] = 0;
            t->run();
            counts[outcome]++;
            printf("%s%s", outcome == OK ? "ok" : outcome == FAILED ? "FAIL " : "skip ", message);
            if (times) printf(" (%.2f s)", (double)(clock() - start) / CLOCKS_PER_SEC);
            printf("\n");
            fflush(stdout);
            if (outcome != SKIPPED && strlen(done) + strlen(t->name) < 65000) {
                strcat(done, t->name);
                strcat(done, ",");
            }
        }
    }
    if (!list) {
        int ran = counts[OK] + counts[FAILED] + counts[SKIPPED];
        if (n_filters && !ran) printf("no test has such a name\n");
        counts[FAILED] += check_required(required, done);
        printf("%d passed, %d failed, %d skipped\n", counts[OK], counts[FAILED], counts[SKIPPED]);
        if (n_filters && !ran) counts[FAILED]++;
    }
    free(done);
    return counts[FAILED] > 0;
}
