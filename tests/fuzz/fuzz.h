/* What the fuzz targets share: the library with its private parts visible, a reader that takes an
   input apart, checks that stop the program, files for code that wants paths.

   A target is a function of bytes. It is deterministic, says nothing, keeps within some KB, and
   aborts if a promise is broken; all.c has the list. Sanitizers see the rest. The library has no
   threads here: an input is to do the same thing each time. */
#ifndef FUZZ_H
#define FUZZ_H

#define _DEFAULT_SOURCE 1              /* mkdir and getpid, also with -std=c99 */
#define BITNET_STATIC
#define BITNET_IMPLEMENTATION
#define BITNET_NO_THREADS
#include "../unit/gguf_builder.h"
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define FUZZ_CHECK(cond) FUZZ_CHECK_MSG(cond, "%s", "")
#define FUZZ_CHECK_MSG(cond, ...) \
    do { \
        if (!(cond)) { \
            fprintf(stderr, "%s:%d: this does not hold: %s ", __FILE__, __LINE__, #cond); \
            fprintf(stderr, __VA_ARGS__); \
            fputc('\n', stderr); \
            abort(); \
        } \
    } while (0)

/* ---- an input, from its first byte to its last; behind that all is 0 ---- */

typedef struct fuzz_input { const uint8_t *p; size_t n; } fuzz_input;

static uint32_t fuzz_uint(fuzz_input *in, int bytes) {
    uint32_t v = 0;
    int i;
    for (i = 0; i < bytes && in->n > 0; i++, in->n--) v |= (uint32_t)*in->p++ << 8 * i;
    return v;
}

/* A number from low to high, of one byte or two. */
static int fuzz_range(fuzz_input *in, int low, int high) {
    return low + (int)fuzz_uint(in, high - low < 256 ? 1 : 2) % (high - low + 1);
}

/* The next n bytes, or what there is of them. */
static const uint8_t *fuzz_bytes(fuzz_input *in, size_t *n) {
    const uint8_t *p = in->p;
    if (*n > in->n) *n = in->n;
    in->p += *n;
    in->n -= *n;
    return p;
}

/* Fills n bytes by repeating what is left of the input, which the number of the round changes, so
   that a short input is no period of a matrix. */
static void fuzz_fill(fuzz_input *in, void *out, size_t n) {
    uint8_t *to = (uint8_t *)out;
    size_t i;
    for (i = 0; i < n; i++)
        to[i] = (uint8_t)(in->n ? in->p[i % in->n] + 29 * (i / in->n) : i * 157 >> 3);
}

/* ---- promises that many targets check ---- */

/* Equal bits, or both NaN, whose payload is free. */
static int fuzz_same_floats(const float *a, const float *b, size_t n) {
    size_t i;
    for (i = 0; i < n; i++)
        if (bitnet__float_bits(a[i]) != bitnet__float_bits(b[i]) &&
            !(a[i] != a[i] && b[i] != b[i])) return 0;
    return 1;
}

/* Whole code points only. */
static int fuzz_is_utf8(const char *s, size_t n) {
    const uint8_t *p = (const uint8_t *)s, *end = p + n;
    while (p < end) {
        uint32_t cp, length = bitnet__utf8_decode(p, end, &cp);
        if (!length) return 0;
        p += length;
    }
    return 1;
}

/* A failure has a text, of one line that no terminal chokes on. */
static void fuzz_check_error(bitnet_result r, const bitnet_error *err) {
    const char *s = err->text;
    if (r == BITNET_OK) return;
    FUZZ_CHECK_MSG(err->code == r && s[0] && strlen(s) < sizeof err->text, "%d '%s'", (int)r, s);
    FUZZ_CHECK_MSG(fuzz_is_utf8(s, strlen(s)), "%s", s);
    for (; *s; s++) FUZZ_CHECK((uint8_t)*s >= 32 && *s != 127);
}

/* Kernel table i; 0: it cannot run here. Asking the CPU is slow in virtual machines. */
static const bitnet_kernels *fuzz_kernel_table(int i) {
    static const bitnet_kernels *tables[32];
    static int asked;
    int k;
    for (k = 0; !asked && k < bitnet_kernels_count(); k++)
        if (bitnet_kernels_usable(bitnet_kernels_get(k)))
            tables[k] = bitnet_kernels_get(k);
    asked = 1;
    return tables[i];
}

/* ---- files ---- */

/* The path of a file in a folder of this process, below TMPDIR; they go when the program ends. */
static const char *fuzz_path(const char *name) {
    static char paths[12][256];
    char dir[128];
    int i;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%.80s/bitnet-fuzz-%ld", tmp && tmp[0] ? tmp : "/tmp",
             (long)getpid());
    if (!paths[0][0]) FUZZ_CHECK(!mkdir(dir, 0700) || access(dir, W_OK) == 0);
    if (!name) {                       /* the end: remove all */
        for (i = 0; i < 12; i++)
            if (paths[i][0]) remove(paths[i]);
        remove(dir);
        return 0;
    }
    snprintf(dir + strlen(dir), sizeof dir - strlen(dir), "/%s", name);
    for (i = 0; i < 11 && paths[i][0] && strcmp(paths[i], dir); i++) {}
    snprintf(paths[i], sizeof paths[i], "%s", dir);
    return paths[i];
}

static void fuzz_remove_files(void) { fuzz_path(0); }

/* Writes a file of that name; p 0: removes it. Returns its path. */
static const char *fuzz_put_file(const char *name, const void *p, size_t n) {
    static int registered;
    const char *path = fuzz_path(name);
    FILE *f;
    if (!registered) atexit(fuzz_remove_files);
    registered = 1;
    if (!p) {
        remove(path);
        return path;
    }
    f = fopen(path, "wb");
    FUZZ_CHECK_MSG(f && fwrite(p, 1, n, f) == n, "cannot write %s", path);
    FUZZ_CHECK(!fclose(f));
    return path;
}

/* ---- a model that is only a tokenizer: enough for text, and quickly made ---- */

static bitnet_result fuzz_load_vocab(bitnet_model *m, const uint8_t *data, size_t size,
                                     const bitnet_allocator *a, bitnet_error *err) {
    bitnet__meta x;
    bitnet_result r;
    memset(m, 0, sizeof *m);
    if (a) m->params.allocator = *a;
    m->gguf.src = bitnet__source_memory(data, size, err);
    if ((r = m->gguf.src.result) ||
        (r = bitnet__gguf_parse(&m->gguf, &m->params.allocator, err))) return r;
    x.m = m;
    x.err = err;
    x.result = BITNET_OK;
    bitnet__load_family(&x);
    if (x.result != BITNET_OK) return x.result;
    return bitnet__load_tokenizer(m, err);
}

static void fuzz_free_vocab(bitnet_model *m) {
    bitnet__vocab_free(&m->vocab, &m->params.allocator);
    bitnet__gguf_free(&m->gguf, &m->params.allocator);
}

#endif
