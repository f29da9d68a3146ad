/* The inner loops: the scalar ones against definitions written down again here, every other table
   against the scalar one, bit for bit. Arrays are blocks of exactly their size, at odd addresses
   where the type allows it, so that a step past their ends is seen.

   BITNET_TEST_SEED (a number) changes the random inputs; failures name it. */

#include <math.h>
#ifdef __SSE2__
  #include <emmintrin.h>
#endif

#include "test.h"
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
  #include <cpuid.h>
#endif

/* ---- random numbers and memory ---- */

static uint64_t seed = 1, state;

static void restart(void) {
    const char *s = getenv("BITNET_TEST_SEED");
    if (s && s[0]) seed = strtoull(s, 0, 10);
    state = seed;
}

static uint32_t random_bits(void) {                      /* splitmix64 */
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

static float random_unit(void) { return (float)(int32_t)random_bits() / 2147483648.0f; }

#if (defined(__unix__) || defined(__APPLE__)) && !defined(__EMSCRIPTEN__) && \
    !defined(__SANITIZE_ADDRESS__)
/* size bytes that end `offset` bytes before a page of no access: a step past their end ends the
   program where no sanitizer runs, as in an emulator. */
typedef struct guard { void *memory, *page; size_t size; } guard;

static void *block(size_t size, size_t offset) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    guard g = {malloc(sizeof g + size + offset + 2 * page), 0, page};
    uintptr_t end = (uintptr_t)g.memory + sizeof g + size + offset + page - 1;
    uint8_t *p;
    end -= end % page;
    g.page = (void *)end;
    if (!g.memory || mprotect(g.page, page, PROT_NONE)) exit(3);
    p = (uint8_t *)g.page - offset - size;
    memcpy(p - sizeof g, &g, sizeof g);
    return p;
}

static void release(void *p, size_t offset) {
    guard g;
    (void)offset;
    memcpy(&g, (uint8_t *)p - sizeof g, sizeof g);
    mprotect(g.page, g.size, PROT_READ | PROT_WRITE);
    free(g.memory);
}
#else
/* size bytes that begin `offset` bytes into a block that ends with them. */
static void *block(size_t size, size_t offset) {
    uint8_t *p = (uint8_t *)malloc(size + offset);
    if (!p) exit(3);
    return p + offset;
}

static void release(void *p, size_t offset) { free((uint8_t *)p - offset); }
#endif

/* Results go into arrays full of this byte, so that a write between rows of results shows. */
#define UNTOUCHED 0xa5

static void *results(size_t size) { return memset(block(size, 0), UNTOUCHED, size); }

/* Equal bits, or both NaN, whose payload is free. */
static int same_float(float a, float b) {
    return bitnet__float_bits(a) == bitnet__float_bits(b) || (a != a && b != b);
}

/* The first difference of two arrays, or -1. */
static int first_difference(const float *a, const float *b, size_t n) {
    size_t i;
    for (i = 0; i < n; i++)
        if (!same_float(a[i], b[i])) return (int)i;
    return -1;
}

/* ---- tables ---- */

static const bitnet_kernels *scalar(void) {
    return bitnet_kernels_get(bitnet_kernels_count() - 1);
}

/* Relaxed SIMD has two kernels for some entries, of which the engine decides; a test may ask for
   those here. */
static bitnet_kernels other;

/* A copy of the table of that name; or a skip. */
#define USE_TABLE(k, table) \
    bitnet_kernels k; \
    if (!bitnet_kernels_find(table)) SKIP("%s is not compiled in", table); \
    if (!bitnet_kernels_usable(bitnet_kernels_find(table))) \
        SKIP("%s is compiled in, but this CPU or system cannot run it", table); \
    k = *bitnet_kernels_find(table); \
    if (other.dotrows_ternary) k.dotrows_ternary = other.dotrows_ternary; \
    if (other.dotrows_groups) k.dotrows_groups = other.dotrows_groups; \
    if (other.dotrows_u4) k.dotrows_u4 = other.dotrows_u4; \
    restart()

/* What scalar gives, which takes longer than what is compared with it. Every table meets the same
   cases: the state of the random numbers and a case's own numbers decide what is in it. */
typedef struct known_case {
    struct known_case *next;
    const void *what;                   /* blocks, or 0: I2_S */
    uint64_t state;
    int numbers[9];
    void *want;                         /* 0: to be computed, and kept here */
} known_case;

static known_case *find_case(const void *what, const int *numbers) {
    static known_case *lists[1024];
    known_case **list = &lists[state >> 54], *one;
    for (one = *list; one; one = one->next)
        if (one->state == state && one->what == what &&
            !memcmp(one->numbers, numbers, sizeof one->numbers)) return one;
    one = (known_case *)calloc(1, sizeof *one);
    if (!one) exit(3);
    one->next = *list;
    one->what = what;
    one->state = state;
    memcpy(one->numbers, numbers, sizeof one->numbers);
    return *list = one;
}

static void *copy_of(const void *p, size_t size) {
    void *copy = malloc(size);
    if (!copy) exit(3);
    return memcpy(copy, p, size);
}

/* ---- I2_S ---- */

enum { ALL_PLUS, ALL_MINUS, ALL_ZERO, ALL_THREE, VALID, ONE_THREE, ANY_BYTES, N_WEIGHTS };
static const char *const weight_names[] = {
    "all +1", "all -1", "all 0", "all code 3", "random", "random, one code 3", "random bytes"
};
enum { ALL_127, ALL_MINUS_128, ALTERNATING, PERIOD_251, RANDOM, N_ACTIVATIONS };
static const char *const activation_names[] = {
    "all 127", "all -128", "alternating", "period 251", "random"
};

static void fill_weights(uint8_t *w, size_t n, int kind) {
    size_t i;
    for (i = 0; i < n; i++) {
        uint32_t r = random_bits();
        uint32_t valid = r % 3 | r / 3 % 3 << 2 | r / 9 % 3 << 4 | r / 27 % 3 << 6;
        w[i] = (uint8_t)(kind == ALL_PLUS    ? 0xaa
                         : kind == ALL_MINUS ? 0x00
                         : kind == ALL_ZERO  ? 0x55
                         : kind == ALL_THREE ? 0xff
                         : kind == ANY_BYTES ? r & 0xff
                                             : valid);
    }
    if (kind == ONE_THREE) w[random_bits() % n] |= (uint8_t)(3 << random_bits() % 4 * 2);
}

static void fill_activations(int8_t *q, size_t n, int kind) {
    size_t i;
    for (i = 0; i < n; i++)
        q[i] = (int8_t)(kind == ALL_127         ? 127
                        : kind == ALL_MINUS_128 ? -128
                        : kind == ALTERNATING   ? (i % 2 ? -128 : 127)
                        : kind == PERIOD_251    ? (int)(i % 251) - 125
                                                : (int)(random_bits() & 0xff) - 128);
}

static void sum_columns(const int8_t *q, int n, int cols, int32_t *sums) {
    int c, i;
    for (c = 0; c < cols; c++)
        for (i = 0, sums[c] = 0; i < n; i++) sums[c] += q[(size_t)c * (size_t)n + (size_t)i];
}

/* Weight i of a row, straight from the table in FORMATS: -1, 0 or 1 (2 for code 3). */
static int weight_at(const uint8_t *row, int i) {
    int within = i % 128;
    return (row[i / 128 * 32 + within % 32] >> (6 - 2 * (within / 32)) & 3) - 1;
}

static const int lengths[] = {128, 256, 384, 2560, 6912};
static const int row_counts[] = {1, 2, 3, 5, 7, 8, 17, 33};
static const int col_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 17, 27, 30};
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Compares one product with scalar's of I2_S; where k packs, its weights are packed by scalar-tl2.
   0 and a recorded failure if they differ. */
static int compare_ternary(const bitnet_kernels *k, int n, int rows, int cols, int weights,
                       int activations, size_t offset) {
    size_t w_size = (size_t)rows * (size_t)(n / 4), q_size = (size_t)cols * (size_t)n;
    size_t stride = (size_t)rows + (offset & 3), size = ((size_t)cols - 1) * stride + (size_t)rows;
    size_t packed_size = k->pack ? k->packed_bytes(n, rows) : w_size;
    uint8_t *w = (uint8_t *)block(w_size, offset), *packed = (uint8_t *)block(packed_size, offset);
    int8_t *q = (int8_t *)block(q_size, offset ^ 2);
    int32_t *sums = (int32_t *)block((size_t)cols * 4, 4);
    int32_t *got = (int32_t *)results(size * 4);
    known_case *known = find_case(
        0, (const int[9]){n, rows, cols, weights, activations, (int)offset});
    int same = 1;
    fill_weights(w, w_size, weights);
    fill_activations(q, q_size, activations);
    sum_columns(q, n, cols, sums);
    if (!known->want) {
        known->want = copy_of(got, size * 4);
        scalar()->dotrows_ternary(&(bitnet__dots){w, q, sums, n, rows, cols, (int32_t *)known->want,
                                                  (size_t)n, stride});
    }
#if BITNET__TL2
    if (k->pack) same = !bitnet__pack_tl2_scalar(w, n, rows, packed);
#endif
    if (!k->pack) memcpy(packed, w, w_size);
    k->dotrows_ternary(&(bitnet__dots){packed, q, sums, n, rows, cols, got, (size_t)n, stride});
    same &= memcmp(known->want, got, size * 4) == 0;
    if (!same)
        test_fail(__FILE__, __LINE__,
                  "%s: n %d, %d rows, %d columns, weights %s, activations %s, offset %d, seed %llu",
                  k->name, n, rows, cols, weight_names[weights], activation_names[activations],
                  (int)offset, (unsigned long long)seed);
    release(w, offset);
    release(packed, offset);
    release(q, offset ^ 2);
    release(sums, 4);
    release(got, 0);
    return same;
}

/* Around the depths that sums and panels have in some table. */
static const int depths[] = {512, 640, 768, 1024, 1152, 1280, 1408, 2048};
static const int depth_cols[] = {1, 2, 3, 9, 16, 24};

/* As many columns as AVX2 asks for before it looks sums up. */
static int many_columns(const bitnet_kernels *k) {
    static const int rows[] = {63, 64, 65, 71, 100, 256, 257, 330};
    int weights, activations, cols, pair = 0;
    size_t r;
    for (r = 0; r < COUNT(rows); r++)
        for (cols = 47; cols < 66; cols += 6, pair++) {
            weights = pair % 5 ? pair % 2 ? VALID : ALL_PLUS : ONE_THREE;
            activations = weights == VALID ? RANDOM : ALL_MINUS_128;
            if (!compare_ternary(k, depths[pair % 5], rows[r], cols, weights, activations,
                                 (size_t)(pair % 9)))
                return 0;
        }
    return 1;
}

static void dotrows_i2s(const char *table) {
    size_t n, r, c;
    int weights, activations, pair = 0;
    USE_TABLE(k, table);
    if (!k.dotrows_ternary) return;
    /* Every pair of contents at every length ... */
    for (n = 0; n < COUNT(lengths); n++)
        for (weights = 0; weights < N_WEIGHTS; weights++)
            for (activations = 0; activations < N_ACTIVATIONS; activations++)
                if (!compare_ternary(&k, lengths[n], 3, 5, weights, activations, 1)) return;
    /* ... and every shape, with contents in turn. */
    for (n = 0; n < COUNT(lengths); n++)
        for (r = 0; r < COUNT(row_counts); r++)
            for (c = 0; c < COUNT(col_counts); c++, pair++) {
                weights = pair % 2 ? ANY_BYTES : pair / 2 % N_WEIGHTS;
                activations = pair % 2 ? RANDOM : pair / 2 % N_ACTIVATIONS;
                if (!compare_ternary(&k, lengths[n], row_counts[r], col_counts[c], weights,
                                 activations, (size_t)(pair % 9)))
                    return;
            }
    /* One block more is where a sum that is emptied too late goes wrong. */
    for (n = 0; n < COUNT(depths); n++)
        for (c = 0; c < COUNT(depth_cols); c++)
            for (activations = ALL_127; activations <= ALL_MINUS_128; activations++)
                if (!compare_ternary(&k, depths[n], 5, depth_cols[c], ALL_THREE, activations, 1))
                    return;
    /* Enough rows to share sums that are looked up, unless there is a code 3. */
    for (n = 0; n < COUNT(depths); n++)
        for (c = 0; c < COUNT(depth_cols); c++)
            for (weights = 0; weights < N_WEIGHTS; weights++, pair++) {
                activations = pair % 2 ? ALL_MINUS_128 : pair / 2 % N_ACTIVATIONS;
                if (!compare_ternary(&k, depths[n], 33 + pair % 9, depth_cols[c], weights,
                                     activations, (size_t)(pair % 9)))
                    return;
            }
    if (!many_columns(&k)) return;
    /* More rows than the kernels take at a time. */
    if (!compare_ternary(&k, 384, 1041, 9, VALID, RANDOM, 3)) return;
    if (!compare_ternary(&k, 128, 659, 5, ANY_BYTES, RANDOM, 3)) return;
    if (!compare_ternary(&k, 1152, 659, 29, ANY_BYTES, RANDOM, 3)) return;
    /* More activations than those whose depths follow each other, and as many as just do. */
    if (!compare_ternary(&k, 3200, 35, 43, ANY_BYTES, RANDOM, 3)) return;
    if (!compare_ternary(&k, 4096, 35, 32, ANY_BYTES, RANDOM, 3)) return;
    /* More columns than AMX multiplies a panel by. */
    if (!compare_ternary(&k, 384, 67, 131, ANY_BYTES, RANDOM, 3)) return;
    if (!compare_ternary(&k, 256, 32, 257, ANY_BYTES, RANDOM, 3)) return;
}

/* Weight i of a row. */
static int u4_weight(const uint8_t *row, size_t i) {
    const int both = row[i / 128 * 64 + i % 64];
    return (i % 128 < 64 ? both >> 4 : both & 15) - 8;
}

/* Weights of 4 bits against the definition at every shape, the largest sums at the longest row
   included. */
static int compare_u4(const bitnet_kernels *k, int n, int rows, int cols, int activations,
                      int extreme, size_t offset) {
    size_t row_size = (size_t)n / 2, w_size = (size_t)rows * row_size;
    size_t q_size = (size_t)cols * (size_t)n, i;
    size_t stride = (size_t)rows + (offset & 3), size = ((size_t)cols - 1) * stride + (size_t)rows;
    uint8_t *w = (uint8_t *)block(w_size, offset);
    int8_t *q = (int8_t *)block(q_size, offset ^ 2);
    int32_t *sums = (int32_t *)block((size_t)cols * 4, 4);
    int32_t *got = (int32_t *)results(size * 4);
    int same = 1, row, c;
    for (i = 0; i < w_size; i++)
        w[i] = (uint8_t)(extreme ? (extreme == 1 ? 0 : 255) : random_bits());
    fill_activations(q, q_size, activations);
    sum_columns(q, n, cols, sums);
    k->dotrows_u4(&(bitnet__dots){w, q, sums, n, rows, cols, got, (size_t)n, stride});
    for (c = 0; c < cols; c++)
        for (row = 0; row < rows; row++) {
            int64_t want = 0;
            for (i = 0; i < (size_t)n; i++)
                want += u4_weight(w + (size_t)row * row_size, i) * q[(size_t)c * (size_t)n + i];
            same &= got[(size_t)c * stride + (size_t)row] == want;
        }
    if (!same)
        test_fail(__FILE__, __LINE__,
                  "%s: 4 bits, n %d, %d rows, %d columns, activations %s, bytes %s", k->name, n,
                  rows, cols, activation_names[activations],
                  extreme == 1 ? "0" : extreme ? "255" : "random");
    release(w, offset);
    release(q, offset ^ 2);
    release(sums, 4);
    release(got, 0);
    return same;
}

static void dotrows_u4(const char *table) {
    static const int u4_lengths[] = {128, 256, 384, 2560};
    size_t n, r, c;
    int turn = 0;
    USE_TABLE(k, table);
    for (n = 0; n < COUNT(u4_lengths); n++)
        for (r = 0; r < COUNT(row_counts); r++)
            for (c = 0; c < COUNT(col_counts); c++, turn++)
                if (!compare_u4(&k, u4_lengths[n], row_counts[r], col_counts[c],
                                turn % N_ACTIVATIONS, turn % 7 < 3 ? turn % 7 : 0,
                                (size_t)(turn % 9)))
                    return;
    for (turn = 0; turn < 6; turn++)
        if (!compare_u4(&k, 1 << 20, 2, 2, turn % 2 ? ALL_MINUS_128 : ALL_127, turn % 3, 1))
            return;
}

/* ---- a scale per group ---- */

enum { SCALE_NORMAL, SCALE_SUBNORMAL, SCALE_EXTREME, N_SCALES };
static const char *const scale_names[] = {"normal", "subnormal", "extreme"};

/* F16, of either sign: 2^-5 to 2, below 2^-14 or 0, and from the least to the largest at once. */
static uint32_t group_scale(int kind) {
    const uint32_t r = random_bits(), sign = r & 0x8000;
    if (kind == SCALE_SUBNORMAL) return sign | (r & (r & 0x10000 ? 0x3ff : 0));
    if (kind == SCALE_EXTREME) return sign | (r & 0x10000 ? 0x7bff : r & 0x20000 ? 1 : 0);
    return sign | (0x2800 + r % 0x1800);
}

/* As files have them: a scale and a string of codes for each block. */
static void fill_groups(uint8_t *w, const bitnet__blocks *b, size_t count, int weights,
                        int scales) {
    for (; count > 0; count--, w += b->bytes) {
        fill_weights(w, (size_t)b->bytes, weights);
        bitnet__put_u16(w + b->scale_at, group_scale(scales));
    }
}

/* Codes 3 are +2 in groups of 64 and 128. */
static const bitnet__blocks *const group_blocks[] = {
    &bitnet__blocks_q2_0, &bitnet__blocks_pq2_0, &bitnet__blocks_tq2_0, &bitnet__blocks_q1_0,
    &bitnet__blocks_ptq1_0
};

/* What dotrows_groups of a table also reads, if it can pack. */
static uint8_t *pack_groups(const bitnet_kernels *k, const bitnet__blocks *b, const uint8_t *w,
                            int n, int rows) {
    const size_t row = bitnet__blocks_bytes(b, n, 1);
    uint8_t *packed;
    int r;
    if (!k->pack_groups) return 0;
    packed = (uint8_t *)block((size_t)(rows + 15) / 16 * 16 * row, 0);
    for (r = 0; r < rows; r += 16)
        k->pack_groups(b, w + (size_t)r * row, n, rows - r < 16 ? rows - r : 16,
                       packed + (size_t)r * row);
    return packed;
}

typedef struct groups_shape {
    const bitnet__blocks *blocks;
    int n, rows, cols, weights, activations, scales, add, packed;
} groups_shape;

/* 0 and a recorded failure if the results are not scalar's, or something beside them changes. */
static int compare_groups(const bitnet_kernels *k, const groups_shape *g, size_t offset) {
    const int group = g->blocks->group;
    const size_t w_size = bitnet__blocks_bytes(g->blocks, g->n, g->rows);
    const size_t q_size = (size_t)g->cols * (size_t)g->n, n_sums = q_size / (size_t)group;
    const size_t stride = (size_t)g->rows + (offset & 3);
    const size_t size = ((size_t)g->cols - 1) * stride + (size_t)g->rows;
    uint8_t *w = (uint8_t *)block(w_size, offset);
    int8_t *q = (int8_t *)block(q_size, offset ^ 2);
    int32_t *sums = (int32_t *)block(n_sums * 4, 4);
    float *scales = (float *)block(n_sums * 4, 4);
    float *got = (float *)results(size * 4);
    known_case *known = find_case(
        g->blocks, (const int[9]){g->n, g->rows, g->cols, g->weights, g->activations, g->scales,
                                  g->add, g->packed, (int)offset});
    uint8_t *packed;
    size_t i;
    int same;
    fill_groups(w, g->blocks, w_size / (size_t)g->blocks->bytes, g->weights, g->scales);
    fill_activations(q, q_size, g->activations);
    sum_columns(q, group, (int)n_sums, sums);
    for (i = 0; i < n_sums; i++)
        scales[i] = fabsf(random_unit()) * (random_bits() % 8 ? 0.1f : 1e-34f);
    for (i = 0; i < size && g->add; i++) got[i] = random_unit() * 9.0f;
    if (!known->want) {
        known->want = copy_of(got, size * 4);
        scalar()->dotrows_groups(&(bitnet__grouped){w, g->blocks, q, sums, scales, g->n, g->rows,
                                                    g->cols, g->add, (float *)known->want, stride,
                                                    0});
    }
    packed = g->packed ? pack_groups(k, g->blocks, w, g->n, g->rows) : 0;
    k->dotrows_groups(&(bitnet__grouped){packed ? packed : w, g->blocks, q, sums, scales, g->n,
                                         g->rows, g->cols, g->add, got, stride, packed != 0});
    if (packed) release(packed, 0);
    same = memcmp(known->want, got, size * 4) == 0;
    if (!same)
        test_fail(__FILE__, __LINE__,
                  "%s: groups of %d, %d bits, n %d, %d rows, %d columns, weights %s, activations "
                  "%s, scales %s, add %d, offset %d: result %d, seed %llu", k->name, group,
                  g->blocks->bits, g->n, g->rows,
                  g->cols, weight_names[g->weights], activation_names[g->activations],
                  scale_names[g->scales], g->add, (int)offset,
                  first_difference((const float *)known->want, got, size),
                  (unsigned long long)seed);
    release(w, offset);
    release(q, offset ^ 2);
    release(sums, 4);
    release(scales, 4);
    release(got, 0);
    return same;
}

/* Shapes and contents of blocks, packed or as they lie in a file, where one column has ways of its
   own for whole units of 16 blocks and for the scale groups that are left. */
static void groups_of(const bitnet_kernels *k, const bitnet__blocks *blocks, int packed) {
    static const int kinds[][4] = {{ALL_PLUS, ALL_MINUS, ALL_ZERO, VALID},
                                   {ALL_THREE, ALL_MINUS, ANY_BYTES, VALID}};
    static const int group_rows[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 65, 70};
    static const int group_counts[] = {1, 2, 3, 4, 5, 7, 12, 16, 17, 48, 83};
    const int group = blocks->group, *kind = kinds[group < 256];
    const groups_shape large[] = {      /* long rows, and more rows and columns at once */
        {blocks, 12288, 35, 3, VALID, RANDOM, SCALE_NORMAL, 1, packed},
        {blocks, 40960, 17, 1, VALID, RANDOM, SCALE_NORMAL, 1, packed},
        {blocks, 1 << 20, 2, 1, ALL_PLUS, ALL_MINUS_128, SCALE_NORMAL, 0, packed},
        {blocks, 512, 659, 29, VALID, RANDOM, SCALE_NORMAL, 0, packed},
        {blocks, 512, 49, 283, VALID, RANDOM, SCALE_NORMAL, 1, packed},
        {blocks, 256, 33, 25, ALL_PLUS, ALL_MINUS_128, SCALE_EXTREME, 1, packed}
    };
    size_t i, r, c;
    int turn = 0;
    /* Every triple of contents, with and without a sum before ... */
    for (i = 0; i < 4 * N_ACTIVATIONS * N_SCALES * 2; i++) {
        const groups_shape g = {blocks, (packed ? 3 : 19) * group, 19, packed ? 3 : 1, kind[i % 4],
                                (int)(i / 4 % N_ACTIVATIONS),
                                (int)(i / 4 / N_ACTIVATIONS % N_SCALES),
                                i >= 4 * N_ACTIVATIONS * N_SCALES, packed};
        if (!compare_groups(k, &g, i % 9)) return;
    }
    /* ... and every shape, with contents in turn. */
    for (i = 0; i < COUNT(group_counts); i++)
        for (r = 0; r < COUNT(group_rows); r++)
            for (c = 0; c < COUNT(col_counts); c++, turn++) {
                const groups_shape g = {blocks, group * group_counts[i], group_rows[r],
                                        col_counts[c], kind[turn % 3 ? 3 : turn % 4],
                                        turn % 2 ? RANDOM : turn % N_ACTIVATIONS,
                                        turn % 5 % N_SCALES, turn % 7 % 2, packed};
                if (test_quick() && (i + r + c) % 3) continue;
                if (i > 6 && c && (i + r + c) % 9) continue;
                if (!compare_groups(k, &g, (size_t)(turn % 9))) return;
            }
    for (i = 0; i < COUNT(large); i++)
        if (!compare_groups(k, &large[i], 3)) return;
}

static void dotrows_groups(const char *table) {
    int b, packed;
    USE_TABLE(k, table);
    if (!k.dotrows_groups) return;
    for (b = 0; b < (int)COUNT(group_blocks); b++)
        for (packed = 0; packed <= (k.pack_groups && group_blocks[b]->bits); packed++)
            groups_of(&k, group_blocks[b], packed);
}

/* Weight i of a block, straight from the tables in @formats. */
static int block_weight(const uint8_t *p, int blocks, int i) {
    if (blocks == 3) return p[2 + i / 8] >> i % 8 & 1 ? 1 : -1;
    if (blocks == 4) {
        const int at = i < 80 ? i % 16 : i < 120 ? 16 + (i - 80) % 8 : 24 + i % 2;
        int k = i < 80 ? i / 16 : i < 120 ? (i - 80) / 8 : (i - 120) / 2, x = p[at];
        for (; k > 0; k--) x = x * 3 & 255;
        return (x * 3 >> 8) - 1;
    }
    if (blocks == 2) return (p[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1;
    return (p[2 + i / 4] >> (i % 4 * 2) & 3) - 1;
}

/* The scalar code against the drawings: whole numbers, so that no sum is rounded. */
static void groups_definition(void) {
    enum { ROWS = 37, COLS = 3, GROUPS = 5 };
    int r, c, i, b, ok = 1;
    restart();
    for (b = 0; b < (int)COUNT(group_blocks); b++) {
        const bitnet__blocks *blocks = group_blocks[b];
        const int group = blocks->group, n = GROUPS * group;
        const size_t bytes = bitnet__blocks_bytes(blocks, n, ROWS);
        uint8_t *w = (uint8_t *)block(bytes, 1);
        int8_t *q = (int8_t *)block((size_t)(COLS * n), 1);
        int8_t *ordered = (int8_t *)block((size_t)(COLS * n), 1);
        int32_t sums[COLS * GROUPS];
        float scales[COLS * GROUPS], out[COLS * (ROWS + 1)];
        fill_groups(w, blocks, ROWS * GROUPS, group < 256 ? ANY_BYTES : VALID, SCALE_NORMAL);
        fill_activations(q, (size_t)(COLS * n), RANDOM);
        for (i = 0; i < COLS * n; i += group) blocks->order(q + i, group, ordered + i);
        sum_columns(q, group, COLS * GROUPS, sums);
        for (i = 0; i < COLS * GROUPS; i++) scales[i] = (float)(1 + i % 4);
        for (r = 0; r < ROWS * GROUPS; r++)        /* scales of -2, -1, 0, 1, 2 */
            bitnet__put_u16(w + r * blocks->bytes + blocks->scale_at,
                            bitnet__f32_to_f16((float)(r % 5 - 2)));
        for (i = 0; i < COLS * (ROWS + 1); i++) out[i] = 7.0f;
        scalar()->dotrows_groups(&(bitnet__grouped){w, blocks, ordered, sums, scales, n, ROWS, COLS,
                                                    1, out, ROWS + 1, 0});
        for (c = 0; c < COLS; c++)
            for (r = 0; r <= ROWS; r++) {
                int64_t want = 7;
                for (i = 0; i < n && r < ROWS; i++) {
                    const int at = r * GROUPS + i / group;
                    want += (int64_t)block_weight(w + at * blocks->bytes, b, i % group) *
                            q[c * n + i] * (at % 5 - 2) * (1 + (c * GROUPS + i / group) % 4);
                }
                if (out[c * (ROWS + 1) + r] != (float)want) ok = 0;
            }
        CHECK_MSG(ok, "blocks %d", b);
        release(w, 1);
        release(q, 1);
        release(ordered, 1);
    }
}

/* What a copy of AVX2's tables has on CPUs that multiply slowly. */
static void looked_up_avx2(void) {
#ifdef BITNET__SUIT_CPU
    bitnet_kernels suited;
    USE_TABLE(k, "avx2");
    suited = k;
    bitnet__suit_cpu(&suited);
    CHECK((suited.dotrows_ternary == bitnet__dotrows_looked_up_avx2) ==
          !bitnet__multiplies_twice());
    CHECK(suited.dotrows_ternary == suited.dotrows_i2s);
    k.dotrows_ternary = bitnet__dotrows_looked_up_avx2;
    many_columns(&k);
#else
    SKIP("avx2 is not compiled in");
#endif
}

/* The longest row, with contents that make the largest sums: their values are known. */
static void dotrows_i2s_longest(const char *table) {
    static const int32_t known[N_WEIGHTS][2] = {   /* with 127, with -128; over 2^20 */
        {127, -128}, {-127, 128}, {0, 0}, {254, -256}, {0, 0}, {0, 0}
    };
    static const int counts[] = {1, 4, 5, 26};     /* tiles; panels and a tile */
    const int n = 1 << 20, rows = 2, most = 26;
    int weights, activations, cols, i, ok = 1;
    size_t count;
    uint8_t *w;
    int8_t *q;
    int32_t sums[26], out[52];
    USE_TABLE(k, table);
    if (!k.dotrows_ternary) return;
    w = (uint8_t *)block((size_t)rows * (size_t)(n / 4), 1);
    q = (int8_t *)block((size_t)most * (size_t)n, 1);
    for (activations = ALL_127; activations <= ALL_MINUS_128; activations++) {
        fill_activations(q, (size_t)most * (size_t)n, activations);
        sum_columns(q, n, most, sums);
        for (weights = ALL_PLUS; weights <= ALL_THREE; weights++) {
            fill_weights(w, (size_t)rows * (size_t)(n / 4), weights);
            for (count = 0; count < COUNT(counts); count++) {
                cols = counts[count];
                if (cols > 5 && weights != ALL_THREE) continue;
                memset(out, UNTOUCHED, sizeof out);
                k.dotrows_ternary(&(bitnet__dots){w, q, sums, n, rows, cols, out, (size_t)n,
                                                  (size_t)rows});
                for (i = 0; i < rows * cols; i++)
                    ok &= out[i] == known[weights][activations] * (1 << 20);
            }
        }
    }
    release(w, 1);
    release(q, 1);
    CHECK_MSG(ok, "%s: a row of 2^20 weights, all sums as large as they get", table);
    if (!compare_ternary(&k, n, 2, 1, ALL_THREE, ALTERNATING, 1)) return;
    compare_ternary(&k, n, 2, 1, ANY_BYTES, RANDOM, 1);
}

/* The scalar code against the format's table and 64-bit sums. */
static void i2s_definition(void) {
    size_t which;
    int r, c, i, ok = 1;
    restart();
    for (which = 0; which < COUNT(lengths) * N_WEIGHTS; which++) {
        const int n = lengths[which % COUNT(lengths)], rows = 3, cols = 2;
        const size_t w_size = (size_t)rows * (size_t)n / 4, q_size = (size_t)cols * (size_t)n;
        uint8_t *w = (uint8_t *)block(w_size, 1);
        int8_t *q = (int8_t *)block(q_size, 1);
        int32_t sums[2], out[2 * 4];
        fill_weights(w, w_size, (int)which % N_WEIGHTS);
        fill_activations(q, q_size, which % 2 ? RANDOM : PERIOD_251);
        sum_columns(q, n, cols, sums);
        scalar()->dotrows_ternary(&(bitnet__dots){w, q, sums, n, rows, cols, out, (size_t)n, 4});
        for (c = 0; c < cols; c++)
            for (r = 0; r < rows; r++) {
                int64_t sum = 0;
                for (i = 0; i < n; i++)
                    sum += weight_at(w + (size_t)r * (size_t)n / 4, i) * q[c * n + i];
                ok &= out[c * 4 + r] == sum;
            }
        release(w, 1);
        release(q, 1);
    }
    CHECK_MSG(ok, "seed %llu", (unsigned long long)seed);
}

/* ---- TL2 ---- */
#if BITNET__TL2

static const int tl2_rows[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 70};
static const int tl2_cols[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33};

/* Code i of a row in TL2, straight from the drawing in bitnet_kernels_x86.h. */
static int tl2_code_at(const uint8_t *packed, int n, int row, int i) {
    const int step = i / 4 % 3, h = i / 12 % 2, t = i % 4, in_block = i / 24 % 4;
    const size_t units = (size_t)(n + 23) / 24, whole = units / 4, rest = units % 4;
    const size_t group = whole * 320 + (rest ? 64 + 64 * rest : 0);
    const uint8_t *block = packed + (size_t)(row / 16) * group + (size_t)(i / 96) * 320;
    const int at = 4 * (row % 16) + t;
    const int nibble = block[64 + 64 * in_block + at] >> 4 * h & 15;
    const int fifth = block[at] >> (2 * in_block + h) & 1, m = nibble % 5;
    if (step == 1) return nibble / 5;
    if (m < 3) return step == 0 ? m : fifth;
    return step == 2 ? 2 : m == 3 ? 2 * fifth : 1;
}

/* What pack makes of valid weights: the codes that went in, scalar's bytes, not a byte more. */
static void pack(const char *table) {
    size_t n, r;
    int turn = 0, i, row;
    USE_TABLE(k, table);
    for (n = 0; n < COUNT(lengths); n++)
        for (r = 0; r < COUNT(tl2_rows); r++, turn++) {
            const int len = lengths[n], rows = tl2_rows[r];
            const size_t size = (size_t)rows * (size_t)len / 4, packed = k.packed_bytes(len, rows);
            const int bad = (int)(random_bits() % (uint32_t)(rows * len));
            uint8_t *w = (uint8_t *)block(size, 1);
            uint8_t *want = (uint8_t *)results(packed), *got = (uint8_t *)block(packed, 3);
            int same = 1, refused;
            fill_weights(w, size, turn % 4 == 3 ? turn / 4 % 3 : VALID);
            memset(got, UNTOUCHED, packed);
            same &= !k.pack(w, len, rows, got);
            same &= !bitnet__pack_tl2_scalar(w, len, rows, want) && !memcmp(want, got, packed);
            for (row = 0; row < rows; row++)
                for (i = 0; i < len; i++)
                    same &= tl2_code_at(got, len, row, i) ==
                            weight_at(w + (size_t)row * (size_t)len / 4, i) + 1;
            /* One code 3, anywhere. */
            w[bad / 4] |= (uint8_t)(3 << bad % 4 * 2);
            refused = k.pack(w, len, rows, got);
            release(w, 1);
            release(got, 3);
            release(want, 0);
            CHECK_MSG(same, "%s: n %d, %d rows, seed %llu", table, len, rows,
                      (unsigned long long)seed);
            CHECK_MSG(refused, "%s: n %d, %d rows, code 3 at %d", table, len, rows, bad);
        }
}

static const int tl2_weights[] = {ALL_PLUS, ALL_MINUS, ALL_ZERO, VALID};

static void dotrows_tl2(const char *table) {
    size_t n, r, c, weights;
    int activations, turn = 0;
    USE_TABLE(k, table);
    /* Every pair of contents at every length, by tiles and by panels ... */
    for (n = 0; n < COUNT(lengths); n++)
        for (weights = 0; weights < COUNT(tl2_weights); weights++)
            for (activations = 0; activations < N_ACTIVATIONS; activations++)
                for (c = 0; c < 2; c++) {
                    if (test_quick() && (n + weights + (size_t)activations + c) % 2) continue;
                    if (!compare_ternary(&k, lengths[n], 18, c ? 16 : 6, tl2_weights[weights],
                                     activations, 1)) return;
                }
    /* ... and every shape, with contents in turn; 640 and 1152 end in 2 and 0 thirds of a block. */
    for (n = 0; n < COUNT(lengths) + 2; n++)
        for (r = 0; r < COUNT(tl2_rows); r++)
            for (c = 0; c < COUNT(tl2_cols); c++, turn++) {
                const int len = n < COUNT(lengths) ? lengths[n] : n == COUNT(lengths) ? 640 : 1152;
                if (len > 2000 && turn % 5) continue;
                if (!compare_ternary(&k, len, tl2_rows[r], tl2_cols[c],
                                 turn % 2 ? VALID : tl2_weights[turn / 2 % 4],
                                 turn % 2 ? RANDOM : turn / 2 % N_ACTIVATIONS, (size_t)(turn % 9)))
                    return;
            }
    /* More rows than the kernels take at a time. */
    if (!compare_ternary(&k, 1152, 523, 5, VALID, RANDOM, 3)) return;
    if (!compare_ternary(&k, 1152, 523, 19, VALID, RANDOM, 3)) return;
    /* More columns than AMX multiplies a panel by. */
    if (!compare_ternary(&k, 640, 67, 131, VALID, RANDOM, 3)) return;
}

/* The longest row, whose largest sums are known. */
static void dotrows_tl2_longest(const char *table) {
    const int n = 1 << 20;
    int cols, weights, activations, i;
    USE_TABLE(k, table);
    for (cols = 1; cols <= 17; cols += 16)
        for (weights = ALL_PLUS; weights <= ALL_MINUS; weights++)
            for (activations = test_quick() ? ALL_MINUS_128 : ALL_127;
                 activations <= ALL_MINUS_128; activations++) {
                const int known = (weights == ALL_PLUS ? 1 : -1) *
                                  (activations == ALL_127 ? 127 : -128) * n;
                uint8_t *w = (uint8_t *)block((size_t)n / 4, 1);
                uint8_t *packed = (uint8_t *)block(k.packed_bytes(n, 1), 1);
                int8_t *q = (int8_t *)block((size_t)cols * (size_t)n, 1);
                int32_t sums[17], out[17];
                int ok;
                fill_weights(w, (size_t)n / 4, weights);
                fill_activations(q, (size_t)cols * (size_t)n, activations);
                for (i = 0; i < cols; i++) sums[i] = n * (activations == ALL_127 ? 127 : -128);
                ok = !k.pack(w, n, 1, packed);
                k.dotrows_ternary(&(bitnet__dots){packed, q, sums, n, 1, cols, out,
                                                  (size_t)n, 1});
                for (i = 0; i < cols; i++) ok &= out[i] == known;
                release(w, 1);
                release(packed, 1);
                release(q, 1);
                CHECK_MSG(ok, "%s: %d columns, a row of 2^20 weights %s", table, cols,
                          weight_names[weights]);
            }
}
#endif /* BITNET__TL2 */

/* ---- quantize ---- */

enum { Q_RANDOM, Q_ZEROS, Q_TIES, Q_DENORMAL, Q_HUGE, Q_NAN, Q_INF, Q_BITS, N_QUANTIZE };

static void fill_quantize(float *x, int n, int kind) {
    int i;
    for (i = 0; i < n; i++) {
        float u = random_unit();
        x[i] = kind == Q_ZEROS      ? (i % 2 ? -0.0f : 0.0f)
               : kind == Q_TIES     ? (float)(int)(u * 127.0f) + 0.5f
               : kind == Q_DENORMAL ? bitnet__float_from_bits(random_bits() & 0x807fffff)
               : kind == Q_HUGE     ? u * 3.4e38f
               : kind == Q_BITS     ? bitnet__float_from_bits(random_bits())
                                    : u * 3.0f;
    }
    i = (int)(random_bits() % (uint32_t)n);
    if (kind == Q_TIES) x[i] = random_bits() % 2 ? 127.0f : -127.0f;   /* the scale is 1 */
    if (kind == Q_NAN) x[i] = random_bits() % 2 ? NAN : -NAN;
    if (kind == Q_INF) x[i] = random_bits() % 2 ? INFINITY : -INFINITY;
}

static int quantize_length(int i) { return i <= 70 ? i : i == 71 ? 2560 : 6912; }

static void quantize(const char *table) {
    int i, kind, round;
    USE_TABLE(k, table);
    if (!k.quantize) return;
    for (i = 1; i <= 72; i++)
        for (kind = 0; kind < N_QUANTIZE; kind++)
            for (round = 0; round < 3; round++) {
                const int n = quantize_length(i);
                float *x = (float *)block((size_t)n * 4, 4), s_want, s_got;
                int8_t *want = (int8_t *)block((size_t)n, 0);
                int8_t *got = (int8_t *)block((size_t)n, 3);
                int32_t sum_want = 0, sum_got = 1;
                int same;
                fill_quantize(x, n, kind);
                s_want = scalar()->quantize(x, n, want, &sum_want);
                s_got = k.quantize(x, n, got, &sum_got);
                same = bitnet__float_bits(s_want) == bitnet__float_bits(s_got) &&
                       sum_want == sum_got && memcmp(want, got, (size_t)n) == 0;
                release(x, 4);
                release(got, 3);
                release(want, 0);
                CHECK_MSG(same, "%s: n %d, kind %d, seed %llu", table, n, kind,
                          (unsigned long long)seed);
            }
}

/* The scalar code against its contract, in the C library's functions. */
static void quantize_definition(void) {
    static float x[2560];
    static int8_t q[2560];
    int i, kind, round;
    restart();
    for (kind = 0; kind < N_QUANTIZE; kind++)
        for (round = 0; round < 20; round++) {
            const int n = round ? 1 + (int)(random_bits() % 2560) : 2560;
            float top = 0.0f, s;
            int32_t sum, total = 0;
            int any_nan = 0;
            fill_quantize(x, n, kind);
            s = scalar()->quantize(x, n, q, &sum);
            for (i = 0; i < n; i++) {
                any_nan |= x[i] != x[i];
                if (fabsf(x[i]) > top) top = fabsf(x[i]);
            }
            if (any_nan || top < 1e-5f) top = 1e-5f;     /* a NaN counts as no maximum at all */
            CHECK(s == 127.0f / top);
            for (i = 0; i < n; i++) {
                float t = x[i] * s;
                int want = t != t || t < -128.0f ? -128 : t > 127.0f ? 127 : (int)lrintf(t);
                CHECK_MSG(q[i] == want, "x %a, scale %a: %d, not %d", (double)x[i], (double)s, q[i],
                          want);
                total += q[i];
            }
            CHECK(sum == total);
        }
}

/* ---- float rows ---- */

enum { F32, F16, BF16, N_TYPES };
static const char *const type_names[] = {"f32", "f16", "bf16", "keys"};
enum { F_RANDOM, F_FINITE_BITS, F_ANY_BITS, F_SMALL, N_FLOATS };

static float random_float(int kind) {
    uint32_t bits = random_bits();
    if (kind == F_RANDOM) return random_unit();
    if (kind == F_SMALL) return bitnet__float_from_bits(bits & 0x83ffffff);  /* denormals */
    if (kind == F_FINITE_BITS && (bits >> 23 & 0xff) == 0xff) bits ^= 0x800000;
    return bitnet__float_from_bits(bits);
}

static void fill_floats(float *x, size_t n, int kind) {
    size_t i;
    for (i = 0; i < n; i++) x[i] = random_bits() % 16 ? random_float(kind) : -0.0f;
}

static size_t type_size(int type) { return type == F32 ? 4 : 2; }

static void fill_rows(uint8_t *w, size_t n, int type, int kind) {
    size_t i;
    for (i = 0; i < n; i++) {
        float x = random_float(kind);
        uint32_t bits = bitnet__float_bits(x);
        uint16_t half = (uint16_t)(bits >> 16);
        if (type == F16) {
            half = kind == F_RANDOM ? bitnet__f32_to_f16(x) : (uint16_t)bits;
            if (kind == F_SMALL) half &= 0x87ff;                              /* subnormals too */
            if (kind == F_FINITE_BITS && (half & 0x7c00) == 0x7c00) half ^= 0x400;
        }
        if (type == F32) memcpy(w + 4 * i, &bits, 4);
        else memcpy(w + 2 * i, &half, 2);
    }
}

typedef void (*dotrows_fn)(const uint8_t *w, const float *x, int n, int rows, int cols, float *out,
                           size_t out_stride);
typedef void (*sumrows_fn)(const uint8_t *w, size_t w_stride, const float *p, size_t p_stride,
                           int n, int rows, int cols, float *out);

/* scores_f16 is a type of its own here: F16 rows, and floats that are shortened first. */
enum { KEYS = 3 };

static dotrows_fn dotrows_of(const bitnet_kernels *k, int type) {
    return type == F32 ? k->dotrows_f32 : type == F16 ? k->dotrows_f16 :
           type == KEYS ? k->scores_f16 : k->dotrows_bf16;
}

static void to_f13(float *x, size_t n) {
    size_t i;
    for (i = 0; i < n; i++) x[i] = bitnet__to_f13(x[i]);
}

static sumrows_fn sumrows_of(const bitnet_kernels *k, int type) {
    return type == F32 ? k->sumrows_f32 : k->sumrows_f16;
}

/* Which product of a float matrix is compared. */
typedef struct float_rows { int type, n, rows, cols, kind; } float_rows;

/* Compares the size results of a table with the scalar ones, reports the first that differs, and
   frees both. */
static int same_results(const bitnet_kernels *k, float_rows f, float *want, float *got,
                        size_t size) {
    const int at = first_difference(want, got, size);
    if (at >= 0)
        test_fail(__FILE__, __LINE__,
                  "%s %s: n %d, %d rows, %d columns, kind %d: [%d] is %a, not %a, seed %llu",
                  k->name, type_names[f.type], f.n, f.rows, f.cols, f.kind, at, (double)got[at],
                  (double)want[at], (unsigned long long)seed);
    release(want, 0);
    release(got, 0);
    return at < 0;
}

static int compare_dotrows(const bitnet_kernels *k, int type, int n, int rows, int cols,
                           int kind) {
    size_t w_count = (size_t)rows * (size_t)n, w_size = w_count * type_size(type);
    size_t x_count = (size_t)cols * (size_t)n, stride = (size_t)rows + (size_t)(n % 3);
    size_t size = ((size_t)cols - 1) * stride + (size_t)rows;
    uint8_t *w = (uint8_t *)block(w_size, 1);
    float *x = (float *)block(x_count * 4, 4);
    float *want = (float *)results(size * 4), *got = (float *)results(size * 4);
    fill_rows(w, w_count, type == KEYS ? F16 : type, kind);
    fill_floats(x, x_count, kind);
    if (type == KEYS) to_f13(x, x_count);
    dotrows_of(scalar(), type)(w, x, n, rows, cols, want, stride);
    dotrows_of(k, type)(w, x, n, rows, cols, got, stride);
    release(w, 1);
    release(x, 4);
    return same_results(k, (float_rows){type, n, rows, cols, kind}, want, got, size);
}

static void dotrows_float(const char *table, int type) {
    int n, kind, i;
    size_t r, c;
    USE_TABLE(k, table);
    if (!dotrows_of(&k, type)) return;
    for (kind = 0; kind < N_FLOATS; kind++) {
        for (n = 1; n <= 70; n++)
            if (!compare_dotrows(&k, type, n, 1 + n % 9, 1 + n % 7, kind)) return;
        for (r = 0; r < COUNT(row_counts); r++)
            for (c = 0; c < COUNT(col_counts); c++)
                if (!compare_dotrows(&k, type, 64, row_counts[r], col_counts[c], kind)) return;
        for (i = 0; i < 4; i++)
            if (!compare_dotrows(&k, type, i % 2 ? 128 : 2560, 5 + i, 1 + i % 3 * 3, kind))
                return;
        if (!compare_dotrows(&k, type, 4112, 3, 2, kind)) return;   /* longer than runs of floats */
        if (!compare_dotrows(&k, type, 528, 11, 35, kind)) return;  /* as AVX2 cuts many columns */
        for (i = 15; i < 50; i++)                  /* keys side by side: the ends of tiles */
            if (!compare_dotrows(&k, type, i % 16 * 16 + 16, i, 8 + i % 17, kind)) return;
        if (!compare_dotrows(&k, type, 272, 33, 17, kind)) return;  /* too long to be transposed */
    }
}

static void dotrows_f32(const char *table) { dotrows_float(table, F32); }
static void dotrows_f16(const char *table) { dotrows_float(table, F16); }
static void dotrows_bf16(const char *table) { dotrows_float(table, BF16); }
static void scores_f16(const char *table) { dotrows_float(table, KEYS); }

/* Q4_K against its definition: unpacked, then dotrows_f32. The scales of a block are small numbers,
   any finite ones, or any bytes. */
static int compare_q4_k(const bitnet_kernels *k, int n, int rows, int cols, int kind) {
    const size_t blocks = (size_t)rows * (size_t)n / 256, count = (size_t)cols * (size_t)n;
    const size_t stride = (size_t)rows + 2, size = ((size_t)cols - 1) * stride + (size_t)rows;
    uint8_t *w = (uint8_t *)block(blocks * 144, 1);
    float *wide = (float *)block(blocks * 1024, 4), *x = (float *)block(count * 4, 4);
    float *want = (float *)results(size * 4), *got = (float *)results(size * 4);
    const float_rows f = {0, n, rows, cols, kind};
    size_t i, j;
    for (i = 0; i < blocks * 144; i++) w[i] = (uint8_t)random_bits();
    for (i = 0; i < blocks && kind < 2; i++)
        for (j = 1; j < 4; j += 2) {
            uint8_t *high = w + i * 144 + j;
            if (kind == 0) *high = (uint8_t)((*high & 0x8f) | 0x20);
            else if ((*high & 0x7c) == 0x7c) *high ^= 4;
        }
    fill_floats(x, count, kind == 2 ? F_ANY_BITS : F_RANDOM);
    if (bitnet_floats_unpack(BITNET_TENSOR_Q4_K, w, (int32_t)(blocks * 256), wide, 0))
        test_fail(__FILE__, __LINE__, "Q4_K is not unpacked");
    scalar()->dotrows_f32((const uint8_t *)wide, x, n, rows, cols, want, stride);
    k->dotrows_q4_k(w, x, n, rows, cols, got, stride);
    release(w, 1);
    release(wide, 4);
    release(x, 4);
    return same_results(k, f, want, got, size);
}

static void dotrows_q4_k(const char *table) {
    int n, rows, kind;
    USE_TABLE(k, table);
    if (!k.dotrows_q4_k) return;
    for (kind = 0; kind < 3; kind++)
        for (n = 256; n <= 2048; n += n < 768 ? 256 : 1280)
            for (rows = 1; rows <= 9; rows++)
                if (!compare_q4_k(&k, n, rows, 1 + rows % 3, kind) ||
                    !compare_q4_k(scalar(), n, rows, 1 + rows % 3, kind))
                    return;
}

static int compare_sumrows(const bitnet_kernels *k, int type, int n, int rows, int cols,
                           int kind) {
    size_t w_stride = (size_t)n + (size_t)(rows % 2 * 24), stride = (size_t)rows + (size_t)(n % 3);
    size_t w_count = rows ? ((size_t)rows - 1) * w_stride + (size_t)n : 0;
    size_t w_size = w_count * type_size(type);
    size_t p_count = ((size_t)cols - 1) * stride + (size_t)rows, size = (size_t)cols * (size_t)n;
    uint8_t *w = (uint8_t *)block(w_size, 1);
    float *p = (float *)block(p_count * 4, 4);
    float *want = (float *)results(size * 4), *got = (float *)results(size * 4);
    fill_rows(w, w_count, type, kind);
    fill_floats(p, p_count, kind);
    if (type == F16) to_f13(p, p_count);
    fill_floats(want, size, kind);     /* they are added to */
    memcpy(got, want, size * 4);
    sumrows_of(scalar(), type)(w, w_stride, p, stride, n, rows, cols, want);
    sumrows_of(k, type)(w, w_stride, p, stride, n, rows, cols, got);
    release(w, 1);
    release(p, 4);
    return same_results(k, (float_rows){type, n, rows, cols, kind}, want, got, size);
}

static void sumrows_float(const char *table, int type) {
    static const int counts[] = {0, 1, 2, 3, 31, 32, 33, 130, 300};
    static const int widths[] = {16, 64, 128, 144};
    int n, kind, cols;
    size_t r;
    USE_TABLE(k, table);
    if (!sumrows_of(&k, type)) return;
    for (kind = 0; kind < N_FLOATS; kind++) {
        for (n = 1; n <= 70; n++)
            if (!compare_sumrows(&k, type, n, n % 11, 1 + n % 7, kind)) return;
        for (r = 0; r < COUNT(counts); r++)
            for (cols = 1; cols <= 9; cols++)
                if (!compare_sumrows(&k, type, widths[r % 4], counts[r], cols, kind)) return;
        if (!compare_sumrows(&k, type, 4112, 3, 2, kind)) return;
    }
}

static void sumrows_f32(const char *table) { sumrows_float(table, F32); }
static void sumrows_f16(const char *table) { sumrows_float(table, F16); }

/* The scalar rows against sums in the order of the definition. In double a product is exact, so
   rounding it to float is the product's one rounding. */
static void rows_definition(void) {
    enum { N = 53, ROWS = 3 };
    float x[N], w[ROWS * N], lanes[16], out[ROWS], mixed[N];
    uint8_t bytes[ROWS * N * 4];
    int r, i, step;
    restart();
    fill_floats(x, N, F_RANDOM);
    fill_floats(w, ROWS * N, F_RANDOM);
    for (i = 0; i < ROWS * N * 4; i++)                     /* little-endian, as in a file */
        bytes[i] = (uint8_t)(bitnet__float_bits(w[i / 4]) >> i % 4 * 8);
    scalar()->dotrows_f32(bytes, x, N, ROWS, 1, out, ROWS);
    memset(mixed, 0, sizeof mixed);
    scalar()->sumrows_f32(bytes, N, x, ROWS, N, ROWS, 1, mixed);
    for (r = 0; r < ROWS; r++) {
        memset(lanes, 0, sizeof lanes);
        for (i = 0; i < N; i++) lanes[i % 16] += (float)((double)w[r * N + i] * (double)x[i]);
        for (step = 8; step; step /= 2)
            for (i = 0; i < step; i++) lanes[i] = lanes[i] + lanes[i + step];
        CHECK(same_float(out[r], lanes[0]));
    }
    for (i = 0; i < N; i++) {
        float sum = 0.0f;
        for (r = 0; r < ROWS; r++) sum += (float)((double)x[r] * (double)w[r * N + i]);
        CHECK(same_float(mixed[i], sum));
    }
}

/* What lets scores_f16 and sumrows_f16 use fused multiply-adds: the product of an F16 and a
   float rounded to 13 bits is a float, so double, which holds any product of floats, agrees. */
static void shortened(void) {
    static const float edges[] = {
        0.0f, -0.0f, 1.0f, 1.9999999f, 3e38f, -3e38f, 1.2676506e30f, 1.2676507e30f, 7.8886091e-31f,
        7.8886085e-31f, 1e-38f, 1e-45f, -1.00006103515625f, 1.000061f, 1.0001831f
    };
    int i, h;
    restart();
    for (i = 0; i < 3000; i++) {
        float x = i < (int)COUNT(edges) ? edges[i] : bitnet__float_from_bits(random_bits());
        float y = bitnet__to_f13(x), magnitude = fabsf(x);
        if (x != x) {
            CHECK(y != y);
            continue;
        }
        CHECK((bitnet__float_bits(y) & 0x7ff) == 0);
        if (magnitude < 7.888609052210118e-31f) CHECK(bitnet__float_bits(y) == 0);
        else if (magnitude > 1.2676506e30f) CHECK(fabsf(y) == 1.2676506e30f && y * x > 0);
        else CHECK(fabs((double)y - (double)x) <= (double)magnitude / 8192);
        for (h = 0; h < 0x10000; h += 1 + (int)(random_bits() % 97)) {
            float f = bitnet__f16_to_f32((uint16_t)h);
            if ((h & 0x7c00) == 0x7c00) continue;          /* infinity, NaN */
            CHECK((double)(y * f) == (double)y * (double)f);
        }
    }
    CHECK(bitnet__to_f13(INFINITY) == 1.2676506e30f);
}

/* The smallest probability that softmax gives is as short and as large as the above needs. */
static void softmax_floor(void) {
    enum { N = 1 << 20 };
    float *x = (float *)block(N * sizeof *x, 0);
    int i;
    for (i = 0; i < N; i++) x[i] = i == 7 ? -1e30f : 1.0f;
    scalar()->softmax(x, N, 1.0f, 1);
    CHECK(x[7] >= 9.629649721936179e-35f && bitnet__to_f13(1.0f + x[0]) == 1.0f);
    CHECK((bitnet__float_bits(x[7]) & 0x7ff) == 0 && (double)(x[7] * 5.9604645e-8f) ==
                                                        (double)x[7] * 5.9604644775390625e-8);
    release(x, 0);
}

/* ---- an int8 cache ---- */

enum { CODES_RANDOM, CODES_0, CODES_255, CODES_128, CODES_127, N_CODES };
static const char *const code_names[] = {"random", "all 0", "all 255", "all 128", "all 127"};
enum { KEY_CODES, VALUE_CODES };
enum { GUARD = 16 };                   /* floats, or bytes, behind results */

/* From 0 to 1; if special, now and then one that only a hostile file has, or a broken model. */
static float cache_float(int special) {
    static const float numbers[] = {
        NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f, -1.0f, 3.4e38f, 1e38f, 1e-30f, 9.9e-31f,
        1e-38f, 1e-40f, 1e-45f
    };
    if (special && random_bits() % 4 == 0) return numbers[random_bits() % COUNT(numbers)];
    return fabsf(random_unit());
}

/* What is in front of and behind blocks: nothing. So a step beyond them shows. */
static uint8_t *make_cache(int n, int rows, int codes, int special) {
    const size_t size = (size_t)rows * (size_t)(4 + n);
    uint8_t *w = (uint8_t *)block(size, 1);
    size_t i;
    int r;
    for (i = 0; i < size; i++)
        w[i] = (uint8_t)(codes == CODES_0 ? 0 : codes == CODES_255 ? 255 : codes == CODES_128 ? 128
                         : codes == CODES_127 ? 127 : random_bits() & 255);
    for (r = 0; r < rows; r++)
        bitnet__put_u32(w + (size_t)(r / 64 * 64) * (size_t)(4 + n) + r % 64 * 4,
                        bitnet__float_bits(cache_float(special)));
    return w;
}

/* Goes through the bytes in their order, as drawn in @kernels: scales [rows], codes [rows][n]. */
static void read_cache(const uint8_t *w, int n, int rows, int what, float *scales, int *codes) {
    int r, i, b;
    for (; rows > 0; rows -= 64, scales += 64, codes += 64 * n) {
        for (r = 0; r < 64; r++, w += 4) scales[r] = bitnet__load_f32(w);
        if (what == KEY_CODES) {
            for (i = 0; i < n; i += 4)
                for (r = 0; r < 64; r++)
                    for (b = 0; b < 4; b++) codes[r * n + i + b] = *w++ - 128;
        } else for (r = 0; r < 64; r += 4)
            for (i = 0; i < n; i++)
                for (b = 0; b < 4; b++) codes[(r + b) * n + i] = (int8_t)*w++;
    }
}

static int check_scores_i8(const bitnet_kernels *k, int n, int rows, int cols, int codes,
                           int queries, int special) {
    const size_t stride = (size_t)rows + (size_t)(cols % 3), q_size = (size_t)cols * (size_t)n;
    const size_t size = ((size_t)cols - 1) * stride + (size_t)rows + GUARD;
    uint8_t *w = make_cache(n, rows, codes, special);
    int8_t *q = (int8_t *)block(q_size, 3);
    int32_t *sums = (int32_t *)block((size_t)cols * 4, 4);
    float *scales = (float *)block((size_t)rows * 4, 0);
    int *keys = (int *)block((size_t)rows * (size_t)n * sizeof *keys, 0), c, r, i, at;
    float *want = (float *)results(size * 4), *got = (float *)results(size * 4);
    fill_activations(q, q_size, queries);
    for (i = 0; i < (int)q_size; i++) q[i] = (int8_t)(q[i] == -128 ? -127 : q[i]);
    sum_columns(q, n, cols, sums);
    read_cache(w, n, rows, KEY_CODES, scales, keys);
    for (c = 0; c < cols; c++)
        for (r = 0; r < rows; r++) {
            int64_t dot = 0;
            for (i = 0; i < n; i++) dot += (int64_t)keys[r * n + i] * q[c * n + i];
            want[(size_t)c * stride + (size_t)r] = (float)dot * scales[r];
        }
    k->scores_i8(w, q, sums, n, rows, cols, got, stride);
    at = first_difference(want, got, size);
    if (at >= 0)
        test_fail(__FILE__, __LINE__, "%s: n %d, %d rows, %d columns, codes %s, queries %s: [%d] "
                  "is %a, not %a, seed %llu", k->name, n, rows, cols, code_names[codes],
                  activation_names[queries], at, (double)got[at], (double)want[at],
                  (unsigned long long)seed);
    release(w, 1);
    release(q, 3);
    release(sums, 4);
    release(scales, 0);
    release(keys, 0);
    release(want, 0);
    release(got, 0);
    return at < 0;
}

static const int cache_lengths[] = {4, 8, 12, 16, 20, 36, 64, 80, 100, 128, 256};
static const int cache_cols[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 32};

static void scores_i8(const char *table) {
    size_t n, c;
    int rows, turn = 0;
    USE_TABLE(k, table);
    if (!k.scores_i8) return;
    for (n = 0; n < COUNT(cache_lengths); n++)
        for (c = 0; c < COUNT(cache_cols); c++)
            for (rows = 64; rows <= 192; rows += 64, turn++)
                if (!check_scores_i8(&k, cache_lengths[n], rows, cache_cols[c],
                                     turn % 2 ? CODES_RANDOM : turn / 2 % N_CODES,
                                     turn % 2 ? RANDOM : turn / 2 % N_ACTIVATIONS, turn % 3 == 2))
                    return;
    for (turn = 0; turn < N_CODES * 2; turn++)         /* the largest sums */
        if (!check_scores_i8(&k, 65536, 64, 1 + turn % 3, turn / 2,
                             turn % 2 ? ALL_127 : ALL_MINUS_128, 0)) return;
}

/* One block of 64 positions, as bitnet_kernels says; t: p times scales, or 0 outside the range. */
static float weigh_block(const float *t, uint8_t *q) {
    float top = 1e-30f;
    int r;
    for (r = 0; r < 64; r++)
        if (t[r] > top) top = t[r];
    for (r = 0; r < 64; r++) {
        const float x = t[r] * (127.0f / top);
        q[r] = (uint8_t)(x != x || x < 0.0f ? 0 : x > 127.0f ? 127 : lrintf(x));
    }
    return top / 127.0f;
}

static int check_weigh_i8(const bitnet_kernels *k, int n, int rows, int from, int to,
                          int special) {
    const size_t size = (size_t)rows;
    uint8_t *w = make_cache(n, rows, CODES_RANDOM, special), *want_q = (uint8_t *)results(size);
    uint8_t *got_q = (uint8_t *)results(size + GUARD);
    float *p = (float *)block(size * 4, 4), *got = (float *)results(size / 64 * 4 + GUARD * 4);
    float *want = (float *)results(size / 64 * 4 + GUARD * 4);
    const int tiny = random_bits() % 4 == 0;
    int r, i, same = 1;
    for (r = 0; r < rows; r++) p[r] = cache_float(special) * (tiny ? 4e-30f : 1.0f);
    for (r = 0; r < rows; r += 64) {
        float t[64];
        for (i = 0; i < 64; i++) {
            const uint8_t *step = w + (size_t)r * (size_t)(4 + n) + 4 * i;
            t[i] = r + i >= from && r + i < to ? p[r + i] * bitnet__load_f32(step) : 0.0f;
        }
        want[r / 64] = weigh_block(t, want_q + r);
    }
    k->weigh_i8(p, w, n, rows, from, to, got_q, got);
    same = first_difference(want, got, size / 64 + GUARD) < 0 && !memcmp(want_q, got_q, size);
    for (i = 0; i < GUARD; i++) same &= got_q[size + (size_t)i] == UNTOUCHED;
    if (!same)
        test_fail(__FILE__, __LINE__, "%s: n %d, %d rows, [%d, %d), special %d, seed %llu", k->name,
                  n, rows, from, to, special, (unsigned long long)seed);
    release(w, 1);
    release(p, 4);
    release(want_q, 0);
    release(got_q, 0);
    release(want, 0);
    release(got, 0);
    return same;
}

static void weigh_i8(const char *table) {
    static const int ends[] = {
        -70, -1, 0, 1, 15, 16, 63, 64, 65, 100, 127, 128, 191, 192, 193, 300
    };
    size_t from, to;
    int rows, turn = 0;
    USE_TABLE(k, table);
    if (!k.weigh_i8) return;
    for (rows = 64; rows <= 192; rows += 64)
        for (from = 0; from < COUNT(ends); from++)
            for (to = 0; to < COUNT(ends); to++, turn++)
                if (!check_weigh_i8(&k, 4 * (1 + turn % 40), rows, ends[from], ends[to], turn % 2))
                    return;
    for (turn = 0; turn < 400; turn++)
        if (!check_weigh_i8(&k, 8, 64, 0, 64, turn % 4 != 0)) return;
}

static int check_sumrows_i8(const bitnet_kernels *k, int n, int first, int count, int rows,
                            int cols, int codes, int special) {
    const size_t stride = (size_t)rows + 64 * (size_t)(cols % 2);
    const size_t p_size = ((size_t)cols - 1) * stride + (size_t)rows;
    const size_t size = (size_t)cols * (size_t)count, s_size = p_size / 64;
    uint8_t *w = make_cache(n, rows, codes, 0), *p = (uint8_t *)block(p_size, 1);
    float *scales = (float *)block(s_size * 4, 4), *unused = (float *)block((size_t)rows * 4, 0);
    float *want = (float *)results(size * 4 + GUARD * 4), *got;
    int *v = (int *)block((size_t)rows * (size_t)n * sizeof *v, 0), c, i, r, at;
    size_t j;
    for (j = 0; j < p_size; j++) p[j] = (uint8_t)(codes ? 127 : random_bits() & 127);
    for (j = 0; j < s_size; j++) scales[j] = cache_float(special);
    for (j = 0; j < size; j++) want[j] = random_unit();
    got = (float *)memcpy(results(size * 4 + GUARD * 4), want, size * 4);
    read_cache(w, n, rows, VALUE_CODES, unused, v);
    for (c = 0; c < cols; c++)
        for (i = 0; i < count; i++)
            for (r = 0; r < rows; r += 64) {
                const size_t b = ((size_t)c * stride + (size_t)r) / 64;
                int64_t dot = 0;
                float y;
                for (at = r; at < r + 64; at++)
                    dot += (int64_t)p[(size_t)c * stride + (size_t)at] * v[at * n + first + i];
                y = (float)dot * scales[b];
                want[c * count + i] += y;
            }
    k->sumrows_i8(w, p, scales, stride, n, first, count, rows, cols, got);
    at = first_difference(want, got, size + GUARD);
    if (at >= 0)
        test_fail(__FILE__, __LINE__, "%s: n %d, elements %d + %d, %d rows, %d columns, codes %s: "
                  "[%d] is %a, not %a, seed %llu", k->name, n, first, count, rows, cols,
                  code_names[codes], at, (double)got[at], (double)want[at],
                  (unsigned long long)seed);
    release(w, 1);
    release(p, 1);
    release(scales, 4);
    release(unused, 0);
    release(v, 0);
    release(want, 0);
    release(got, 0);
    return at < 0;
}

static void sumrows_i8(const char *table) {
    size_t n, c;
    int rows, turn = 0;
    USE_TABLE(k, table);
    if (!k.sumrows_i8) return;
    for (n = 0; n < COUNT(cache_lengths); n++)
        for (c = 0; c < COUNT(cache_cols); c++)
            for (rows = 64; rows <= 192; rows += 64, turn++) {
                const int all = cache_lengths[n], special = turn % 3 == 2;
                const int some = all > 16 ? 16 * (1 + turn % (all / 16)) : all;   /* any part */
                const int codes = turn % 2 ? CODES_RANDOM : turn / 2 % N_CODES;
                const int few = 1 + (int)(random_bits() % (uint32_t)all);
                const int at = (int)(random_bits() % (uint32_t)(all - some + 1));
                if (!check_sumrows_i8(&k, all, 0, all, rows, cache_cols[c], codes, special) ||
                    !check_sumrows_i8(&k, all, at, some, rows, cache_cols[c], codes, special) ||
                    !check_sumrows_i8(&k, all, all - few, few, rows, cache_cols[c], codes,
                                      special)) return;
            }
}

/* ---- softmax, rmsnorm ---- */

static int vector_length(int i) { return i <= 70 ? i : i == 71 ? 1000 : i == 72 ? 2560 : 4099; }

static void softmax(const char *table) {
    int i, kind, round;
    USE_TABLE(k, table);
    if (!k.softmax) return;
    for (i = 1; i <= 73; i++)
        for (kind = 0; kind < N_FLOATS; kind++)
            for (round = 0; round < 6; round++) {
                const int n = vector_length(i);
                const float scale = round / 2 == 0 ? 0.088388346f : round / 2 == 1 ? 30.0f : -1.0f;
                float *want = (float *)block((size_t)n * 4, 0);
                float *got = (float *)block((size_t)n * 4, 4);
                int at;
                fill_floats(want, (size_t)n, kind);
                memcpy(got, want, (size_t)n * 4);
                scalar()->softmax(want, n, scale, round % 2);
                k.softmax(got, n, scale, round % 2);
                at = first_difference(want, got, (size_t)n);
                release(want, 0);
                release(got, 4);
                CHECK_MSG(at < 0, "%s: n %d, kind %d, scale %g: [%d], seed %llu", table, n, kind,
                          (double)scale, at, (unsigned long long)seed);
            }
}

static void softmax_definition(void) {
    enum { N = 777 };
    static float x[N], y[N];
    double top = -1e300, sum = 0;
    int i;
    restart();
    for (i = 0; i < N; i++) {
        x[i] = y[i] = 20.0f * random_unit();
        if ((double)(x[i] * 0.7f) > top) top = (double)(x[i] * 0.7f);
    }
    for (i = 0; i < N; i++) sum += exp((double)(x[i] * 0.7f) - top);
    scalar()->softmax(y, N, 0.7f, 0);
    for (i = 0; i < N; i++) {
        double want = exp((double)(x[i] * 0.7f) - top) / sum;
        CHECK(fabs((double)y[i] - want) <= 2e-6 * want);
    }
}

static void rmsnorm(const char *table) {
    int i, kind, round;
    USE_TABLE(k, table);
    if (!k.rmsnorm) return;
    for (i = 1; i <= 73; i++)
        for (kind = 0; kind < N_FLOATS; kind++)
            /* The root hides most wrong last bits of the sum: many rounds at 16 and 32. */
            for (round = 0; round < (i == 16 || i == 32 ? 200 : 2); round++) {
                const int n = vector_length(i), in_place = round % 2;
                const size_t size = (size_t)n * 4;
                float *x = (float *)block(size, 4), *gain = (float *)block(size, 4);
                float *want = (float *)block(size, 0), *got = (float *)block(size, 4);
                int at;
                fill_floats(x, (size_t)n, kind);
                fill_floats(gain, (size_t)n, kind == F_ANY_BITS ? F_ANY_BITS : F_RANDOM);
                memcpy(got, x, size);
                scalar()->rmsnorm(x, gain, n, 1e-5f, want);
                k.rmsnorm(in_place ? got : x, gain, n, 1e-5f, got);
                at = first_difference(want, got, (size_t)n);
                release(x, 4);
                release(gain, 4);
                release(want, 0);
                release(got, 4);
                CHECK_MSG(at < 0, "%s: n %d, kind %d: [%d], seed %llu", table, n, kind, at,
                          (unsigned long long)seed);
            }
}

static void rmsnorm_definition(void) {
    enum { N = 640 };
    static float x[N], gain[N], y[N];
    double sum = 0;
    int i;
    restart();
    for (i = 0; i < N; i++) {
        x[i] = random_unit();
        gain[i] = 1.0f + 0.1f * random_unit();
        sum += (double)x[i] * (double)x[i];
    }
    scalar()->rmsnorm(x, gain, N, 1e-5f, y);
    for (i = 0; i < N; i++) {
        double want = (double)x[i] * (double)gain[i] / sqrt(sum / (int)N + 1e-5);
        CHECK(fabs((double)y[i] - want) <= 1e-6 * fabs(want));
    }
}

/* ---- from one step to the next: rope, store_f16, dequantize, relu2_gate ---- */

static void rope(const char *table) {
    static const int rotated[][2] = {{2, 2}, {6, 10}, {32, 32}, {32, 48}, {64, 80}, {128, 128},
                                     {0, 128}};    /* of a layer without RoPE */
    int i, kind, round;
    USE_TABLE(k, table);
    if (!k.rope) return;
    for (i = 0; i < (int)COUNT(rotated); i++)
        for (kind = 0; kind < N_FLOATS; kind++)
            for (round = 0; round < 4; round++) {
                const int n_rot = rotated[i][0], n = rotated[i][1], in_place = round % 2;
                const size_t size = (size_t)n * 4;
                float *x = (float *)block(size, 4), *angles = (float *)block((size_t)n_rot * 4, 4);
                float *want = (float *)results(size), *got = (float *)block(size, 4);
                int at;
                fill_floats(x, (size_t)n, kind);
                fill_floats(angles, (size_t)n_rot, F_RANDOM);
                if (n > n_rot) {                /* copied, then shortened: 2^-100 stays */
                    x[n - 1] = 7.8886091e-31f;
                    x[n - 2] = -7.8886085e-31f;
                }
                memcpy(got, x, size);
                scalar()->rope(x, angles, n_rot, n, round / 2, want);
                k.rope(in_place ? got : x, angles, n_rot, n, round / 2, got);
                at = first_difference(want, got, (size_t)n);
                release(x, 4);
                release(angles, 4);
                release(want, 0);
                release(got, 4);
                CHECK_MSG(at < 0, "%s: %d of %d, kind %d: [%d], seed %llu", table, n_rot, n, kind,
                          at, (unsigned long long)seed);
            }
}

static void store_f16(const char *table) {
    int i, kind;
    USE_TABLE(k, table);
    if (!k.store_f16) return;
    for (i = 1; i <= 73; i++)
        for (kind = 0; kind < N_FLOATS; kind++) {
            const size_t n = (size_t)vector_length(i);
            float *x = (float *)block(n * 4, 4);
            uint8_t *want = (uint8_t *)results(n * 2), *got = (uint8_t *)results(n * 2);
            int same;
            fill_floats(x, n, kind);
            scalar()->store_f16(x, (int)n, want);
            k.store_f16(x, (int)n, got);
            same = !memcmp(want, got, n * 2);
            release(x, 4);
            release(want, 0);
            release(got, 0);
            CHECK_MSG(same, "%s: n %d, kind %d, seed %llu", table, (int)n, kind,
                      (unsigned long long)seed);
        }
}

/* y of dequantize (which 0, 1: add), relu2_gate (2) and sigmoid_gate (3: SiLU, 4: GELU). x: n gates
   and n ups; dots: n integers. */
static void from_products(const bitnet_kernels *k, int which, const int32_t *dots, float f,
                          const float *x, int n, float *y) {
    if (which < 2) k->dequantize(dots, f, n, which, y);
    else if (which == 2) k->relu2_gate(x, x + n, n, y);
    else
        k->sigmoid_gate(x, x + n, which == 3 ? -1.0f : -1.59576912f,
                        which == 3 ? 0.0f : -0.0713548163f, n, y);
}

static void products(const char *table) {
    int i, kind, which;
    USE_TABLE(k, table);
    for (i = 1; i <= 73; i++)
        for (kind = 0; kind < N_FLOATS; kind++)
            for (which = 0; which < 5; which++) {
                const int n = vector_length(i);
                const size_t size = (size_t)n * 4;
                const float f = kind == F_ANY_BITS && i % 16 == 0 ? NAN : random_float(kind);
                int32_t *dots = (int32_t *)block(size, 4);
                float *x = (float *)block(2 * size, 4);
                float *want = (float *)block(size, 4), *got = (float *)block(size, 0);
                int at, j;
                for (j = 0; j < n; j++) dots[j] = (int32_t)random_bits() >> (j % 24);
                fill_floats(x, 2 * (size_t)n, kind);
                fill_floats(want, (size_t)n, kind);
                memcpy(got, want, size);
                from_products(scalar(), which, dots, f, x, n, want);
                from_products(&k, which, dots, f, x, n, got);
                at = first_difference(want, got, (size_t)n);
                release(dots, 4);
                release(x, 4);
                release(want, 4);
                release(got, 0);
                CHECK_MSG(at < 0, "%s: %d: n %d, kind %d: [%d], seed %llu", table, which, n, kind,
                          at, (unsigned long long)seed);
            }
}

/* ---- F16, BF16 ---- */

/* What a float16 stands for, from the definition of the format. */
static double f16_value(unsigned h) {
    int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
    double v = exponent == 31  ? (mantissa ? (double)NAN : (double)INFINITY)
               : exponent == 0 ? ldexp(mantissa, -24)
                               : ldexp(1024 + mantissa, exponent - 25);
    return h & 0x8000 ? -v : v;
}

/* x rounded to 11 significant bits, the last never worth less than 2^-24; ties to even. */
static double f16_rounded(double x) {
    int exponent;
    double last;
    if (x != x || fabs(x) == (double)INFINITY || x == 0) return x;
    frexp(x, &exponent);                                  /* |x| in [2^(exponent-1), 2^exponent) */
    last = ldexp(1, exponent - 11 > -24 ? exponent - 11 : -24);
    x = nearbyint(x / last) * last;
    return fabs(x) >= 65536 ? copysign((double)INFINITY, x) : x;
}

static int f16_rounds_well(float x) {
    double want = f16_rounded((double)x);
    uint16_t h = bitnet__f32_to_f16(x);
    if (x != x) return (h & 0x7e00) == 0x7e00 && (h >> 15) == (bitnet__float_bits(x) >> 31);
    return f16_value(h) == want && (h >> 15) == (bitnet__float_bits(x) >> 31);
}

static void f16_all(void) {
    unsigned h;
    for (h = 0; h < 65536; h++) {
        float x = bitnet__f16_to_f32((uint16_t)h);
        double want = f16_value(h);
        unsigned nan = (h & 0x7fff) > 0x7c00;
        if (nan)        /* quiet, payload kept */
            CHECK_MSG(bitnet__float_bits(x) == ((h & 0x8000) << 16 | 0x7fc00000 | (h & 1023) << 13),
                      "NaN %04x is %08x", h, (unsigned)bitnet__float_bits(x));
        else CHECK_MSG((double)x == want, "%04x is %a, not %a", h, (double)x, want);
        CHECK_MSG(bitnet__float_bits(x) >> 31 == h >> 15, "sign of %04x", h);
        CHECK_MSG(bitnet__f32_to_f16(x) == (nan ? h | 0x200 : h), "%04x comes back as %04x", h,
                  bitnet__f32_to_f16(x));
        /* Halfway to the next one, and the floats on both sides of that. */
        if ((h & 0x7fff) < 0x7c00) {
            double next = (h & 0x7fff) < 0x7bff ? f16_value(h + 1) : want > 0 ? 65536.0 : -65536.0;
            uint32_t middle = bitnet__float_bits((float)((want + next) / 2));
            CHECK_MSG(f16_rounds_well(bitnet__float_from_bits(middle)), "tie after %04x", h);
            CHECK_MSG(f16_rounds_well(bitnet__float_from_bits(middle - 1)), "before tie %04x", h);
            CHECK_MSG(f16_rounds_well(bitnet__float_from_bits(middle + 1)), "after tie %04x", h);
        }
    }
}

static void f16_rounding(void) {
    int i;
    restart();
    for (i = 0; i < 1000000; i++) {
        uint32_t bits = random_bits();
        float x;
        if (i % 2) bits = (bits & 0x87ffffff) + 0x30000000;   /* half of them where F16 lives */
        x = bitnet__float_from_bits(bits);
        CHECK_MSG(f16_rounds_well(x), "%a, bits %08x", (double)x, (unsigned)bits);
    }
}

static void bf16_all(void) {
    unsigned h;
    for (h = 0; h < 65536; h++) {
        uint8_t bytes[2];
        bytes[0] = (uint8_t)(h & 255);
        bytes[1] = (uint8_t)(h >> 8);
        CHECK(bitnet__float_bits(bitnet__load_bf16(bytes)) == (uint32_t)h << 16);
    }
}

/* ---- math ---- */

static double relative_error(double got, double want) {
    return want == 0 ? fabs(got) : fabs(got - want) / fabs(want);
}

static void math_exp(void) {
    double worst = 0, worst_f = 0;
    int i;
    restart();
    for (i = 0; i < 200000; i++) {
        double u = (double)random_unit();
        double x = u * (i % 2 ? 700 : 1), e = relative_error(bitnet__exp(x), exp(x));
        float f = (float)(u * (u < 0 ? 64 : 87)), got = bitnet__expf(f);
        if (e > worst) worst = e;
        e = relative_error((double)got, exp((double)f));
        if (e > worst_f) worst_f = e;
    }
    CHECK_MSG(worst < 1e-15, "exp: %g", worst);
    CHECK_MSG(worst_f < 2.6e-7, "expf: %g", worst_f);
    CHECK(bitnet__exp(0) == 1 && bitnet__expf(0.0f) == 1.0f && bitnet__expf(-0.0f) == 1.0f);
    CHECK(bitnet__expf(-1000.0f) == bitnet__expf(-64.0f));
    CHECK(bitnet__expf(1000.0f) == bitnet__expf(88.0f));
    CHECK(bitnet__expf(NAN) == bitnet__expf(-64.0f));
    CHECK(bitnet__expf(-64.0f) > 1e-28f && bitnet__expf(88.0f) < 1.7e38f);
}

/* As IEEE 754 rounds it. MinGW's sqrt rounds twice. */
static double true_sqrt(double x) {
#ifdef __SSE2__
    return _mm_cvtsd_f64(_mm_sqrt_sd(_mm_set_sd(x), _mm_set_sd(x)));
#else
    return sqrt(x);
#endif
}

static void math_log_sqrt(void) {
    double worst_log = 0, e;
    int i, exact = 1;
    restart();
    for (i = 0; i < 200000; i++) {
        /* Any exponent, and the neighbourhood of 1, where log passes 0. */
        double u = (double)random_unit();
        double x = i % 2 ? ldexp(1.5 + 0.49 * u, (int)(random_bits() % 2000) - 1000) : 1 + 0.3 * u;
        e = relative_error(bitnet__log(x), log(x));
        if (e > worst_log) worst_log = e;
        if (bitnet__sqrt(x) != true_sqrt(x)) exact = 0;
    }
    CHECK_MSG(worst_log < 1e-15, "log: %g", worst_log);
    CHECK(exact);
    for (i = 1; i < 3000; i++)                 /* numbers beside a square, and beside 1 and 4 */
        if (bitnet__sqrt((double)i * i) != i ||
            bitnet__sqrt(nextafter((double)i * i, 0)) != true_sqrt(nextafter((double)i * i, 0)) ||
            bitnet__sqrt(nextafter((double)i * i, 1e9)) != true_sqrt(nextafter((double)i * i, 1e9)))
            exact = 0;
    CHECK(exact);
    CHECK(bitnet__log(1) == 0 && bitnet__sqrt(0) == 0 && bitnet__sqrt(INFINITY) == INFINITY);
    CHECK(bitnet__sqrt(NAN) != bitnet__sqrt(NAN));
}

static void math_sincos(void) {
#ifdef _WIN32                          /* its sin and cos know pi to 66 bits only */
    const double widest = 16384.0;
#else
    const double widest = 1048575.0;
#endif
    double worst = 0, s, c;
    int i;
    restart();
    for (i = 0; i < 200000; i++) {
        double x = (double)random_unit() * (i % 3 ? i % 3 == 1 ? widest : 100.0 : 1.0);
        bitnet__sincos(x, &s, &c);
        if (fabs(s - sin(x)) > worst) worst = fabs(s - sin(x));
        if (fabs(c - cos(x)) > worst) worst = fabs(c - cos(x));
    }
    CHECK_MSG(worst < 1e-15, "sin, cos: %g", worst);
    bitnet__sincos(0, &s, &c);
    CHECK(s == 0 && c == 1);
}

static void math_round(void) {
    int i;
    restart();
    for (i = -100; i <= 100; i++)
        CHECK(bitnet__round(i / 4.0) == nearbyint(i / 4.0));
    for (i = 0; i < 100000; i++) {
        double x = (double)random_unit() * ldexp(1, (int)(random_bits() % 50));
        CHECK(bitnet__round(x) == nearbyint(x));
    }
}

/* ---- the choice of a table ---- */

/* Every table that is compiled in must be one that is tested below, and stand in this order: of
   those that read the same layout, the fastest first. */
static void tables(void) {
    static const char *const tested[] = {
        "amx", "avx512vnni", "avxvnni", "avx2", "amx-tl2", "avx512vbmi-tl2", "avx512vnni-tl2",
        "avx2-tl2",
        "neon-i8mm", "neon-dotprod", "neon", "relaxed-simd", "simd128", "scalar-tl2", "scalar"
    };
    int i, n = bitnet_kernels_count();
    size_t t, next = 0;
    for (i = 0; i < n; i++)
        printf("%s%s ", bitnet_kernels_get(i)->name,
               bitnet_kernels_usable(bitnet_kernels_get(i)) ? "" : " (not usable here)");
    for (i = 0; i < n; i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        for (t = 0; t < COUNT(tested) && strcmp(tested[t], k->name); t++) {}
        CHECK_MSG(t < COUNT(tested), "no test for the kernel table %s", k->name);
        CHECK_MSG(t >= next, "the kernel table %s stands behind %s", k->name, tested[next - 1]);
        next = t + 1;
        CHECK(bitnet_kernels_find(k->name) == k);        /* names are unique */
    }
}

static void dispatch(void) {
    bitnet_kernels fake = *scalar();
    const bitnet_kernels *chosen = bitnet_kernels_default();
    uint32_t features = bitnet__cpu_features();
    int i, n = bitnet_kernels_count();
    CHECK(bitnet_kernels_find("no such table") == 0);
    CHECK(bitnet_kernels_find("") == 0);
    CHECK(bitnet_kernels_find("avx") == 0);
    CHECK(bitnet_kernels_find(0) == 0);
    CHECK(bitnet_kernels_get(-1) == 0);
    CHECK(bitnet_kernels_get(n) == 0);
    CHECK(n >= 1 && !strcmp(scalar()->name, "scalar"));
    CHECK(scalar()->needs == 0 && bitnet_kernels_usable(scalar()));
    CHECK(scalar()->quantize && scalar()->dotrows_ternary && scalar()->dotrows_f32);
    CHECK(scalar()->dotrows_f16 && scalar()->dotrows_bf16 && scalar()->sumrows_f32);
    CHECK(scalar()->sumrows_f16 && scalar()->softmax && scalar()->rmsnorm);
    CHECK(scalar()->scores_f16 && scalar()->rope && scalar()->store_f16);
    CHECK(scalar()->dequantize && scalar()->relu2_gate && scalar()->sigmoid_gate);
    CHECK(scalar()->scores_i8 && scalar()->weigh_i8 && scalar()->sumrows_i8);
    CHECK(!bitnet_kernels_usable(0) && !bitnet_kernels_name(0));
    for (i = 0; i < n; i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        CHECK(bitnet_kernels_usable(k) == ((k->needs & features) == k->needs));
        CHECK(i >= n - 2 || k->needs != 0);
        CHECK(!strcmp(k->layout, k->pack ? "TL2_R16" : "I2_S"));
        CHECK(k->pack_rows >= 1 && k->pack_rows <= BITNET__MAX_PACK_ROWS);
        CHECK(!(k->pack_rows & (k->pack_rows - 1)));
        CHECK(!strcmp(bitnet_kernels_name(k), k->name));
    }
    /* The default reads I2_S in place; of such tables it is the first that is usable. */
    CHECK(bitnet_kernels_usable(chosen) && !strcmp(chosen->layout, "I2_S"));
    for (i = 0; bitnet_kernels_get(i) != chosen; i++)
        CHECK(bitnet_kernels_get(i)->pack || !bitnet_kernels_usable(bitnet_kernels_get(i)));
    /* One bit that is missing is enough, whatever else is there. */
    for (i = 0; i < 32; i++) {
        fake.needs = (uint32_t)1 << i;
        CHECK(bitnet_kernels_usable(&fake) == (int)(features >> i & 1));
        fake.needs |= features;
        CHECK(bitnet_kernels_usable(&fake) == (int)(features >> i & 1));
    }
}

/* Against the compiler's own detection, which also asks the system. */
static void cpu_features(void) {
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    uint32_t f = bitnet__cpu_features();
    int avx2, avx512, vnni, vbmi;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (bitnet_kernels_count() == 2) SKIP("only scalar is compiled in");
    __builtin_cpu_init();
    avx2 = __builtin_cpu_supports("avx2") != 0;
    avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    vnni = __builtin_cpu_supports("avx512vnni") != 0;
    vbmi = __builtin_cpu_supports("avx512vbmi") != 0;
    CHECK(avx2 == !!(f & BITNET_CPU_AVX2));
    CHECK(avx512 == !!(f & BITNET_CPU_AVX512));
    CHECK((avx512 && vnni) == !!(f & BITNET_CPU_AVX512VNNI));
    CHECK((avx512 && vbmi) == !!(f & BITNET_CPU_AVX512VBMI));
    CHECK(!(f & (BITNET_CPU_AVX512VNNI | BITNET_CPU_AVX512VBMI)) || (f & BITNET_CPU_AVX512));
    CHECK(!(f & BITNET_CPU_AVX512) || (f & BITNET_CPU_AVX2));
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
#ifdef BITNET__SUIT_CPU
    if (avx2) CHECK(bitnet__multiplies_twice() == (int)(c >> 9 & 1));      /* VAES */
#endif
    if (a >= 1) __cpuid_count(7, 1, a, b, c, d);
    else a = 0;
    CHECK((avx2 && (a >> 4 & 1)) == !!(f & BITNET_CPU_AVXVNNI));
    __cpuid(1, a, b, c, d);
    CHECK(!avx2 || (c >> 29 & 1) == !!(f & BITNET_CPU_F16C));
#elif defined(__linux__) && (defined(__aarch64__) || defined(__arm__))
    /* Against what the system left in the process's memory: pairs of a name and a value. */
    uint32_t f = bitnet__cpu_features();
    unsigned long pair[2], hwcap = 0, hwcap2 = 0;
    FILE *file;
    if (bitnet_kernels_count() == 2) SKIP("only scalar is compiled in");
    file = fopen("/proc/self/auxv", "rb");
    if (!file) SKIP("no /proc/self/auxv");
    while (fread(pair, sizeof pair, 1, file) == 1) {
        if (pair[0] == 16) hwcap = pair[1];
        if (pair[0] == 26) hwcap2 = pair[1];
    }
    fclose(file);
    CHECK_MSG(hwcap != 0, "AT_HWCAP is %lx, AT_HWCAP2 %lx", hwcap, hwcap2);
    CHECK(!(f & ~(uint32_t)(BITNET_CPU_NEON | BITNET_CPU_DOTPROD | BITNET_CPU_I8MM)));
  #ifdef __arm__
    CHECK((hwcap >> 12 & 1) == (unsigned long)!!(f & BITNET_CPU_NEON));
    CHECK(!(f & (BITNET_CPU_DOTPROD | BITNET_CPU_I8MM)));
  #else
    CHECK((hwcap >> 1 & 1) == (unsigned long)!!(f & BITNET_CPU_NEON));        /* ASIMD */
    CHECK((hwcap >> 20 & 1) == (unsigned long)!!(f & BITNET_CPU_DOTPROD));
    CHECK((hwcap2 >> 13 & 1) == (unsigned long)!!(f & BITNET_CPU_I8MM));
  #endif
#elif defined(__wasm_simd128__)
    /* What the module was compiled with is there, but for an engine whose relaxed dot is wrong. */
    const uint32_t f = bitnet__cpu_features();
    if (bitnet_kernels_count() == 2) SKIP("only scalar is compiled in");
    CHECK((f & ~(uint32_t)BITNET_CPU_RELAXED) == BITNET_CPU_SIMD128);
    CHECK(!(f & BITNET_CPU_RELAXED) || bitnet_kernels_find("relaxed-simd") != 0);
#else
    SKIP("needs x86 with gcc or clang, ARM with Linux, or WebAssembly with SIMD");
#endif
}

/* Linux lists the tiles of AMX only if it would let programs use them. */
static void amx_permission(void) {
#ifdef __linux__
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[4096];
    int tiles = 0, int8 = 0;
    if (!bitnet_kernels_find("amx")) {
        if (f) fclose(f);
        SKIP("amx is not compiled in");
    }
    if (!f) SKIP("no /proc/cpuinfo");
    while (fgets(line, sizeof line, f)) {
        tiles |= strstr(line, " amx_tile") != 0;
        int8 |= strstr(line, " amx_int8") != 0;
    }
    fclose(f);
    CHECK(!!(bitnet__cpu_features() & BITNET_CPU_AMX) == (tiles && int8));
    CHECK(bitnet_kernels_usable(bitnet_kernels_find("amx")) == (tiles && int8));
#else
    SKIP("not Linux");
#endif
}

/* ---- the list ---- */

#define TABLE_TEST(entry, table) \
    static void entry##_##table(void) { entry(#table); }
#define TABLE_ROW(entry, table) {"kernels/" #table "/" #entry, entry##_##table},
#define NEON_TEST(entry, isa) \
    static void entry##_neon_##isa(void) { entry("neon-" #isa); }
#define NEON_ROW(entry, isa) {"kernels/neon-" #isa "/" #entry, entry##_neon_##isa},
#define RELAXED_TEST(entry, table) \
    static void entry##_##table##_simd(void) { entry(#table "-simd"); }
#define RELAXED_ROW(entry, table) {"kernels/" #table "-simd/" #entry, entry##_##table##_simd},
#define EACH_ENTRY(X, table) \
    X(quantize, table) \
    X(dotrows_i2s, table) \
    X(dotrows_i2s_longest, table) \
    X(dotrows_u4, table) \
    X(dotrows_groups, table) \
    X(dotrows_f32, table) \
    X(dotrows_f16, table) \
    X(dotrows_bf16, table) \
    X(dotrows_q4_k, table) \
    X(scores_f16, table) \
    X(sumrows_f32, table) \
    X(sumrows_f16, table) \
    X(scores_i8, table) \
    X(weigh_i8, table) \
    X(sumrows_i8, table) \
    X(softmax, table) \
    X(rmsnorm, table) \
    X(rope, table) \
    X(store_f16, table) \
    X(products, table)

#if defined(__wasm_relaxed_simd__) && !defined(BITNET_NO_RELAXED) && !defined(BITNET_NO_SIMD)
  #define RELAXED_SUMS_TEST(bits) \
    static void relaxed_sums_##bits(void) { \
        other.dotrows_ternary = bitnet__dotrows_i2s_relaxed##bits; \
        other.dotrows_groups = bitnet__dotrows_groups_relaxed##bits; \
        other.dotrows_u4 = bitnet__dotrows_u4_relaxed##bits; \
        dotrows_i2s("relaxed-simd"); \
        dotrows_i2s_longest("relaxed-simd"); \
        dotrows_groups("relaxed-simd"); \
        dotrows_u4("relaxed-simd"); \
        memset(&other, 0, sizeof other); \
    }
#else
  #define RELAXED_SUMS_TEST(bits) \
    static void relaxed_sums_##bits(void) { SKIP("relaxed-simd is not compiled in"); }
#endif
RELAXED_SUMS_TEST(16)
RELAXED_SUMS_TEST(32)

#if BITNET__TL2
  #define TL2_TEST(entry, isa) \
      static void entry##_##isa(void) { entry(#isa "-tl2"); }
#else
  #define TL2_TEST(entry, isa) \
      static void entry##_##isa(void) { SKIP("%s-tl2 is not compiled in", #isa); }
#endif
#define TL2_ROW(entry, isa) {"kernels/" #isa "-tl2/" #entry, entry##_##isa},
#define EACH_TL2(X, isa) \
    X(pack, isa) \
    X(dotrows_tl2, isa) \
    X(dotrows_tl2_longest, isa)

TABLE_TEST(dotrows_i2s_longest, scalar)
TABLE_TEST(dotrows_u4, scalar)
TABLE_TEST(scores_i8, scalar)
TABLE_TEST(weigh_i8, scalar)
TABLE_TEST(sumrows_i8, scalar)
EACH_ENTRY(TABLE_TEST, avx2)
EACH_ENTRY(TABLE_TEST, avxvnni)
EACH_ENTRY(TABLE_TEST, avx512vnni)
EACH_ENTRY(TABLE_TEST, amx)
EACH_ENTRY(TABLE_TEST, neon)
EACH_ENTRY(NEON_TEST, dotprod)
EACH_ENTRY(NEON_TEST, i8mm)
EACH_ENTRY(TABLE_TEST, simd128)
EACH_ENTRY(RELAXED_TEST, relaxed)
EACH_TL2(TL2_TEST, scalar)
EACH_TL2(TL2_TEST, avx2)
EACH_TL2(TL2_TEST, avx512vnni)
EACH_TL2(TL2_TEST, avx512vbmi)
EACH_TL2(TL2_TEST, amx)

extern const test_case kernels_tests[];
const test_case kernels_tests[] = {
    {"kernels/tables", tables},
    {"kernels/dispatch", dispatch},
    {"kernels/cpu_features", cpu_features},
    {"kernels/amx_permission", amx_permission},
    {"kernels/avx2/looked_up", looked_up_avx2},
    {"kernels/math/exp", math_exp},
    {"kernels/math/log_sqrt", math_log_sqrt},
    {"kernels/math/sincos", math_sincos},
    {"kernels/math/round", math_round},
    {"kernels/f16/all", f16_all},
    {"kernels/f16/rounding", f16_rounding},
    {"kernels/bf16/all", bf16_all},
    {"kernels/scalar/quantize", quantize_definition},
    {"kernels/scalar/dotrows_i2s", i2s_definition},
    TABLE_ROW(dotrows_i2s_longest, scalar)
    TABLE_ROW(dotrows_u4, scalar)
    TABLE_ROW(scores_i8, scalar)
    TABLE_ROW(weigh_i8, scalar)
    TABLE_ROW(sumrows_i8, scalar)
    {"kernels/scalar/dotrows_groups", groups_definition},
    {"kernels/scalar/rows", rows_definition},
    {"kernels/scalar/softmax", softmax_definition},
    {"kernels/scalar/softmax_floor", softmax_floor},
    {"kernels/scalar/shortened", shortened},
    {"kernels/scalar/rmsnorm", rmsnorm_definition},
    EACH_ENTRY(TABLE_ROW, avx2)
    EACH_ENTRY(TABLE_ROW, avxvnni)
    EACH_ENTRY(TABLE_ROW, avx512vnni)
    EACH_ENTRY(TABLE_ROW, amx)
    EACH_ENTRY(TABLE_ROW, neon)
    EACH_ENTRY(NEON_ROW, dotprod)
    EACH_ENTRY(NEON_ROW, i8mm)
    EACH_ENTRY(TABLE_ROW, simd128)
    EACH_ENTRY(RELAXED_ROW, relaxed)
    {"kernels/relaxed-simd/sums_16", relaxed_sums_16},
    {"kernels/relaxed-simd/sums_32", relaxed_sums_32},
    EACH_TL2(TL2_ROW, scalar)
    EACH_TL2(TL2_ROW, avx2)
    EACH_TL2(TL2_ROW, avx512vnni)
    EACH_TL2(TL2_ROW, avx512vbmi)
    EACH_TL2(TL2_ROW, amx)
    {0, 0}
};
