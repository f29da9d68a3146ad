/* Ternary weights in the other types that files have: TL1 and TL2 in tiles, TQ1_0 and TQ2_0 in
   blocks. A model written so must give the bits of the same model in I2_S, and what is wrong with
   it must be said. The encoders here go by the formats' definitions, place by place. */
#include "gguf_builder.h"
#include "test.h"

enum { IMP_TQ1 = 34, IMP_TQ2 = 35, IMP_I2S = 36, IMP_TL1 = 38, IMP_TL2 = 39, IMP_MXFP4 = 1000 };

/* ---- writing ---- */

static struct imp_setting {
    uint32_t type;
    bitnet_tile tile;
    float block;                       /* TQ: every block's scale; 0: the tensor's, cut to F16 */
    int separate;                      /* 1: the block's scale times a tensor of its own */
} imp;

static int imp_pair(const int8_t *w) { return 3 * w[0] + w[1] + 4; }

static void imp_tl1(const gb_linear *l, uint8_t *out) {
    const int K = l->n_in, BM = imp.tile.BM, BY = imp.tile.BK, bm = imp.tile.bm;
    const int by = 256 / bm;
    int m, p;
    for (m = 0; m < l->n_out; m++)
        for (p = 0; p < K / 2; p += 2) {
            const int k = 2 * p, tm = m / BM, mb = m % BM / bm, mg = m % bm / 16, ml = m % 16;
            const int kb = k / BY, pb = k % BY / by, pq = k % by / 4;
            const int8_t *w = l->w + (size_t)m * (size_t)K + k;
            const int at = (((((tm * (K / BY) + kb) * (BM / bm) + mb) * (BY / by) + pb) *
                             (bm / 16) + mg) * (by / 4) + pq) * 16 + ml;
            out[at] = (uint8_t)(imp_pair(w) << 4 | imp_pair(w + 2));
        }
}

/* Where things of weight (m, k) are in a TL2 tensor; *bit counts from a word's lowest. */
static size_t imp_index_at(const gb_linear *l, int m, int k, int *shift) {
    static const int back[4] = {0, 2, 1, 3};             /* P is its own inverse */
    const int BM = imp.tile.BM, BY = imp.tile.BK, K3 = l->n_in / BY * BY, t = k / 3;
    const int kb = t / (BY / 3), pb = t % (BY / 3) / 2, x = back[m % 32 / 8] * 8 + m % 8;
    *shift = t % 2 ? 0 : 4;
    return (size_t)((((m / BM * (K3 / BY) + kb) * (BM / 32) + m % BM / 32) * (BY / 6) + pb) * 32 +
                    x);
}
static size_t imp_sign_at(const gb_linear *l, int m, int k, int *bit) {
    const int BM = imp.tile.BM, BY = imp.tile.BK, K3 = l->n_in / BY * BY, t = k / 3;
    const int kb = t / (BY / 3), sb = t % (BY / 3) / 8, j = t % 8, h = m % 32 / 16, c = m % 16;
    const int block = ((m / BM * (K3 / BY) + kb) * (BM / 32) + m % BM / 32) * (BY / 24) + sb;
    *bit = 15 - (2 * j + h);
    return (size_t)(l->n_out * K3 / 6 + 32 * block + 2 * c);
}
static size_t imp_pair_at(const gb_linear *l, int m, int k, int *shift) {
    static const int back[4] = {0, 2, 1, 3};
    const int BM = imp.tile.BM, BY = imp.tile.BK, K3 = l->n_in / BY * BY, K2 = l->n_in - K3;
    const int p = (k - K3) / 2, kb = p / 16, pb = p % 16 / 2, x = back[m % 32 / 8] * 8 + m % 8;
    *shift = p % 2 ? 0 : 4;
    return (size_t)(l->n_out * K3 / 6 + l->n_out * K3 / 24 +
                    (((m / BM * (K2 / 32) + kb) * (BM / 32) + m % BM / 32) * 8 + pb) * 32 + x);
}

static size_t imp_tl2_size(const gb_linear *l) {
    size_t n = (size_t)(l->n_in - 256) * (size_t)l->n_out / 3 * 5 / 8 +
               256 * (size_t)l->n_out / 2 * 4 / 8;
    return (n + 31) / 32 * 32 + 32;
}

static void imp_tl2(const gb_linear *l, uint8_t *out) {
    const int K3 = l->n_in / imp.tile.BK * imp.tile.BK;
    int m, k, at;
    for (m = 0; m < l->n_out; m++) {
        const int8_t *w = l->w + (size_t)m * (size_t)l->n_in;
        for (k = 0; k < K3; k += 3) {
            const int n = 9 * w[k] + 3 * w[k + 1] + w[k + 2];
            size_t byte = imp_index_at(l, m, k, &at);
            out[byte] |= (uint8_t)((n < 0 ? -n : n) << at);
            byte = imp_sign_at(l, m, k, &at);
            if (n < 0) out[byte + (at > 7)] |= (uint8_t)(1 << at % 8);
        }
        for (; k < l->n_in; k += 2) {
            const size_t byte = imp_pair_at(l, m, k, &at);
            out[byte] |= (uint8_t)(imp_pair(w + k) << at);
        }
    }
}

/* One block of 256 weights. TQ1_0: digits in base 3, most significant first, of a number that is
   then scaled from 243 to 256, rounded up. */
static void imp_tq(const int8_t *w, uint8_t *out) {
    int i, j, n;
    if (imp.type == IMP_TQ2)
        for (i = 0; i < 64; i++)
            for (j = 0; j < 4; j++)
                out[i] |= (uint8_t)((w[i / 32 * 128 + i % 32 + 32 * j] + 1) << 2 * j);
    else
        for (i = 0; i < 52; i++) {
            for (n = 0, j = 0; j < 5; j++) {
                const int at = i < 32 ? i + 32 * j : i < 48 ? 160 + i - 32 + 16 * j
                                                            : 240 + i - 48 + 4 * j;
                n = 3 * n + (i >= 48 && j == 4 ? 0 : w[at] + 1);
            }
            out[i] = (uint8_t)((n * 256 + 242) / 243);
        }
}

static float imp_cut(float x) { return bitnet__f16_to_f32(bitnet__f32_to_f16(x)); }

static uint8_t *imp_encode(gb_linear *l, uint32_t *type, size_t *size) {
    const size_t n = (size_t)l->n_in * (size_t)l->n_out;
    const int tq = imp.type == IMP_TQ1 || imp.type == IMP_TQ2;
    const size_t block = imp.type == IMP_TQ1 ? 54 : 66;
    uint16_t half;
    uint8_t *out;
    size_t i;
    int shift;
    *type = imp.type == IMP_MXFP4 ? IMP_TL2 : imp.type;
    *size = tq ? n / 256 * block : imp.type == IMP_TL2 ? imp_tl2_size(l)
          : imp.type == IMP_MXFP4 ? n / 32 * 17 : n / 4 + 32;
    out = (uint8_t *)calloc(*size, 1);
    if (!out) exit(3);
    if (!imp.separate && imp.block == 0.0f) l->scale = imp_cut(l->scale);
    if (imp.type == IMP_TL1) imp_tl1(l, out);
    if (imp.type == IMP_TL2) imp_tl2(l, out);
    for (i = 0; imp.type == IMP_I2S && i < n; i++) {
        const size_t at = gb_code_at(BITNET_I2S_128, (size_t)l->n_in, i, &shift);
        out[at] |= (uint8_t)((l->w[i] + 1) << shift);
    }
    half = bitnet__f32_to_f16(imp.block == 0.0f ? l->scale : imp.block);
    for (i = 0; tq && i < n / 256; i++) {
        imp_tq(l->w + 256 * i, out + block * i);
        out[block * i + block - 2] = (uint8_t)half;
        out[block * i + block - 1] = (uint8_t)(half >> 8);
    }
    if (!tq && imp.type != IMP_MXFP4) {
        gb_buf b = {0};
        gb_float(&b, imp.type == IMP_I2S && imp.separate ? imp.block * l->scale : l->scale);
        memcpy(out + (imp.type == IMP_TL2 ? *size - 32 : n / 4), b.p, 4);
        free(b.p);
    }
    return out;
}

/* Shape 0 and 1 are for tiles, 0 with rows of whole 128-groups and several tiles each way; 2 is for
   blocks. */
static gb_model imp_model(int shape) {
    static const int sizes[3][5] = {
        {384, 640, 4, 2, 96}, {320, 448, 2, 1, 160}, {256, 512, 4, 2, 64}};
    gb_model g = {.dim = sizes[shape][0], .ffn = sizes[shape][1], .layers = 1,
                  .heads = sizes[shape][2], .kv_heads = sizes[shape][3],
                  .head_dim = sizes[shape][4], .embed_type = GB_TENSOR_F16, .n_ctx = 16,
                  .seed = 31};
    g.encode = imp_encode;
    if (imp.type < IMP_I2S && imp.separate) g.scale_suffix = ".scale";
    gb_make_model(&g);
    return g;
}

/* ---- reading ---- */

/* The logits of three tokens; 0 and err filled if it does not load. */
static float *imp_logits(const void *data, size_t size, const bitnet_kernels *k, bitnet_tile tile,
                         int through_io, bitnet_error *err) {
    static const bitnet_token tokens[3] = {7, 42, 99};
    gb_reader reader;
    bitnet_io io = gb_io(&reader, data, size);
    bitnet_model_params p;
    bitnet_ctx_params cp;
    bitnet_model_info info;
    bitnet_model *m = 0;
    bitnet_ctx *c = 0;
    float *out = 0;
    memset(&p, 0, sizeof p);
    memset(&cp, 0, sizeof cp);
    memset(err, 0, sizeof *err);
    p.kernels = k;
    p.tile = tile;
    cp.n_ctx = cp.n_logits = 3;
    cp.n_threads = 1;
    if (!(through_io ? bitnet_model_load_io(&io, &p, &m, err)
                     : bitnet_model_load_memory(data, size, &p, &m, err)) &&
        !bitnet_ctx_create(m, &cp, &c, err) && !bitnet_eval(c, tokens, 3, 1, err)) {
        size_t n;
        int i;
        bitnet_model_get_info(m, &info);
        n = (size_t)info.n_vocab;
        out = (float *)gb_malloc(3 * n * sizeof *out);
        for (i = 0; i < 3; i++) memcpy(out + (size_t)i * n, bitnet_logits(c, i), n * sizeof *out);
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    return out;
}

/* Every usable table, from memory and through callbacks: the bits of want. */
static void imp_check(const void *data, size_t size, bitnet_tile tile, const float *want,
                      size_t n_vocab, const char *what) {
    bitnet_error err;
    int i, io;
    for (i = 0; i < bitnet_kernels_count(); i++)
        for (io = 0; io < 2; io++) {
            const bitnet_kernels *k = bitnet_kernels_get(i);
            float *got;
            int same;
            if (!bitnet_kernels_usable(k)) continue;
            got = imp_logits(data, size, k, tile, io, &err);
            same = got && !memcmp(got, want, 3 * n_vocab * sizeof *got);
            free(got);
            CHECK_MSG(got, "%s, kernels %s: %s", what, k->name, err.text);
            CHECK_MSG(same, "%s, kernels %s: other bits", what, k->name);
        }
}

/* The model of imp's setting against the same in I2_S. */
static void imp_compare(int shape, const char *what) {
    const struct imp_setting setting = imp;
    gb_model g;
    bitnet_error err;
    float *want;
    imp.type = IMP_I2S;
    g = imp_model(shape);
    want = imp_logits(g.data, g.size, &bitnet__kernels_scalar, setting.tile, 0, &err);
    gb_free_model(&g);
    CHECK_MSG(want, "%s", err.text);
    imp = setting;
    g = imp_model(shape);
    imp_check(g.data, g.size, imp.tile, want, (size_t)g.n_vocab, what);
    gb_free_model(&g);
    free(want);
}

/* Loads a file that must be refused with a text that has the two words. Takes the file over. */
static void imp_refused(uint8_t *data, size_t size, bitnet_tile tile, bitnet_result code,
                        const char *word, const char *word2) {
    bitnet_model_params p;
    bitnet_model *m = 0;
    bitnet_error err = {BITNET_OK, ""};
    bitnet_result r;
    memset(&p, 0, sizeof p);
    p.tile = tile;
    r = bitnet_model_load_memory(data, size, &p, &m, &err);
    bitnet_model_free(m);
    free(data);
    CHECK_MSG(r == code, "%s instead of %s: %s (%s, %s)", bitnet_result_text(r),
              bitnet_result_text(code), err.text, word, word2);
    CHECK_MSG(strstr(err.text, word) && strstr(err.text, word2), "\"%s\" lacks '%s' or '%s'",
              err.text, word, word2);
}

static uint8_t *imp_copy(const gb_model *g) {
    uint8_t *p = (uint8_t *)gb_malloc(g->size);
    memcpy(p, g->data, g->size);
    return p;
}

/* Where a tensor's bytes begin in the file. */
static size_t imp_offset(const gb_model *g, const char *name) {
    bitnet_allocator a = {0, 0, 0};
    const bitnet__tensor *t;
    bitnet__gguf f;
    size_t at = 0;
    memset(&f, 0, sizeof f);
    f.src.data = g->data;
    f.src.size = f.src.have = g->size;
    if (bitnet__gguf_parse(&f, &a, 0) == BITNET_OK) {
        t = bitnet__find_tensor(&f, name);
        at = t ? (size_t)t->offset : 0;
    }
    bitnet__free(&a, f.keys);
    bitnet__free(&a, f.tensors);
    return at;
}

static const bitnet_tile imp_none = {0, 0, 0};

/* ---- tests: tiles ---- */

/* Files that an independent program wrote, against the I2_S files that it made them of. */
static void test_import_files(void) {
    static const struct { const char *name, *of; bitnet_tile tile; } files[] = {
        {"models/a-tl1.gguf", "models/a.gguf", {128, 64, 32}},
        {"models/a-tl2.gguf", "models/a.gguf", {128, 96, 32}},
        {"models/b-tl2.gguf", "models/b.gguf", {192, 96, 0}}};
    const char *missing = 0;
    size_t i, size, n;
    for (i = 0; i < 3 && !missing; i++) {
        const char *path = test_shared(files[i].name), *of = test_shared(files[i].of);
        void *plain = of ? test_read_file(of, &size) : 0, *data;
        bitnet_error err;
        float *want = plain ? imp_logits(plain, size, &bitnet__kernels_scalar, imp_none, 0, &err)
                            : 0;
        free(plain);
        data = path ? test_read_file(path, &size) : 0;
        n = files[i].tile.BM == 192 ? 656 : 1040;        /* b's vocabulary, and a's */
        if (data && want) imp_check(data, size, files[i].tile, want, n, files[i].name);
        else missing = files[i].name;
        free(data);
        free(want);
    }
    if (missing) SKIP("%s is not in BITNET_TEST_DATA", missing);
}

static void test_import_tl1(void) {
    static const bitnet_tile tiles[] = {
        {64, 64, 32}, {64, 128, 32}, {32, 32, 32}, {64, 64, 64}, {32, 64, 16}, {64, 128, 64}};
    size_t i;
    for (i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        imp = (struct imp_setting){IMP_TL1, tiles[i], 0, 0};
        imp_compare(0, "TL1");
    }
    imp = (struct imp_setting){IMP_TL1, {32, 64, 32}, 0, 0};
    imp_compare(1, "TL1 of filled-up rows");
    imp = (struct imp_setting){IMP_TL1, {32, 32, 16}, 0, 0};
    imp_compare(1, "TL1 of filled-up rows");
}

static void test_import_tl2(void) {
    static const bitnet_tile tiles[] = {{64, 96, 32}, {32, 96, 32}, {64, 192, 32}};
    size_t i;
    for (i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        imp = (struct imp_setting){IMP_TL2, tiles[i], 0, 0};
        imp_compare(0, "TL2");
    }
    imp = (struct imp_setting){IMP_TL2, {32, 96, 32}, 0, 0};
    imp_compare(1, "TL2 of filled-up rows");
}

/* Of all tiles of TL2, those that divide the shapes into the same triplets and pairs load: the
   others are found out. Those that load are a permutation of the right rows and columns, which
   nothing in the file contradicts, but other logits. */
static void test_import_wrong_tiles(void) {
    static const int columns[2] = {384, 640};
    bitnet_error err;
    bitnet_tile tile = {64, 96, 32};
    int loaded = 0, refused = 0, i;
    size_t bytes;
    gb_model g;
    float *want;
    imp = (struct imp_setting){IMP_TL2, tile, 0, 0};
    g = imp_model(0);
    bytes = 3 * (size_t)g.n_vocab * sizeof *want;
    want = imp_logits(g.data, g.size, 0, tile, 0, &err);
    CHECK(want);
    for (tile.BM = 32; tile.BM <= 384; tile.BM += 32)
        for (tile.BK = 24; tile.BK <= 768; tile.BK += 24) {
            int divides = 384 % tile.BM == 0 && 192 % tile.BM == 0 && 640 % tile.BM == 0;
            int split = 1, same;
            float *got = imp_logits(g.data, g.size, 0, tile, 0, &err);
            for (i = 0; i < 2; i++) {
                divides = divides && columns[i] % tile.BK % 32 == 0 &&
                          columns[i] % tile.BK <= 256;
                split = split && columns[i] % tile.BK == columns[i] % 96;
            }
            same = got && !memcmp(got, want, bytes);
            free(got);
            CHECK_MSG((got != 0) == (divides && split), "tile %d,%d: %s", (int)tile.BM,
                      (int)tile.BK, got ? "loads" : err.text);
            CHECK_MSG(same == (tile.BM == 64 && tile.BK == 96), "tile %d,%d: logits", (int)tile.BM,
                      (int)tile.BK);
            if (got) loaded++;
            else {
                char name[32];
                snprintf(name, sizeof name, "tile %d,%d,32", (int)tile.BM, (int)tile.BK);
                CHECK_MSG(strstr(err.text, name) && strstr(err.text, "'blk.0.") &&
                          strstr(err.text, divides ? "is no TL2" : "cannot have"), "%s: \"%s\"",
                          name, err.text);
                refused += divides;
            }
        }
    /* BM 32 and 64 (no other divides), BK 96 and 192; others split the rows another way. */
    CHECK_MSG(loaded == 4 && refused >= 4, "%d load, %d are found out by the bytes", loaded,
              refused);
    free(want);
    gb_free_model(&g);
}

/* The files of an independent program with every tile of the right kind but a wrong split. */
static void test_import_wrong_tiles_files(void) {
    static const bitnet_tile tiles[] = {
        {128, 288, 32}, {128, 384, 32}, {64, 288, 32}, {32, 384, 32}, {128, 480, 32},
        {128, 672, 32}, {64, 576, 32}, {160, 96, 32}, {320, 96, 32}, {256, 96, 32}, {128, 48, 32},
        {128, 24, 32}, {128, 120, 32}, {128, 768, 32}, {128, 96, 64}, {128, 95, 32}, {100, 96, 32}};
    const char *path = test_shared("models/a-tl2.gguf");
    size_t size, i;
    uint8_t *data = path ? (uint8_t *)test_read_file(path, &size) : 0;
    if (!data) SKIP("models/a-tl2.gguf is not in BITNET_TEST_DATA");
    for (i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        uint8_t *copy = (uint8_t *)gb_malloc(size);
        char name[40];
        memcpy(copy, data, size);
        snprintf(name, sizeof name, "tile %d,%d,%d", (int)tiles[i].BM, (int)tiles[i].BK,
                 (int)tiles[i].bm);
        imp_refused(copy, size, tiles[i], BITNET_ERR_FORMAT, name, "tensor 'blk.0.");
    }
    free(data);
}

/* Each thing that a packer never writes, at the first and the last place where it could be. */
static void test_import_flaws(void) {
    static const char down[] = "blk.0.ffn_down.weight";
    const bitnet_tile tile = {64, 96, 32};
    gb_model g;
    const gb_linear *l;
    size_t at, k3 = 576, end;          /* end: of what is before the place that is changed */
    int m, k, bit, i;
    imp = (struct imp_setting){IMP_TL2, tile, 0, 0};
    g = imp_model(0);
    l = &g.layer[0].down;              /* 384 rows of 576 + 64 */
    at = imp_offset(&g, down);
    CHECK(at);
    for (i = 0; i < 2; i++) {
        uint8_t *p = imp_copy(&g);
        char where[48];
        m = i ? 383 : 0, k = i ? 573 : 0;
        end = imp_index_at(l, m, k, &bit);
        p[at + end] = (uint8_t)((p[at + end] & ~(15 << bit)) | (i ? 15 : 14) << bit);
        snprintf(where, sizeof where, "no index, 0x0%c, at row %d, column %d", i ? 'f' : 'e', m, k);
        imp_refused(p, g.size, tile, BITNET_ERR_FORMAT, down, where);
        for (m = i ? 383 : 0, k = i ? 573 : 0;
             l->w[m * 640 + k] || l->w[m * 640 + k + 1] || l->w[m * 640 + k + 2];)
            m += i ? -1 : 1;
        p = imp_copy(&g);
        end = imp_sign_at(l, m, k, &bit);
        p[at + end + (size_t)(bit > 7)] |= (uint8_t)(1 << bit % 8);
        snprintf(where, sizeof where, "negative zero, 0x00, at row %d, column %d", m, k);
        imp_refused(p, g.size, tile, BITNET_ERR_FORMAT, down, where);
        p = imp_copy(&g);
        m = i ? 383 : 0, k = i ? 638 : 576;
        end = imp_pair_at(l, m, k, &bit);
        p[at + end] |= (uint8_t)(15 << bit);
        snprintf(where, sizeof where, "at row %d, column %d", m, k / 4 * 4);
        imp_refused(p, g.size, tile, BITNET_ERR_FORMAT, "no pairs", where);
        p = imp_copy(&g);
        end = i ? imp_tl2_size(l) - 33 : 384 * k3 / 6 + 384 * k3 / 24 + 384 * 64 / 4;
        p[at + end] = 1;
        imp_refused(p, g.size, tile, BITNET_ERR_FORMAT, down, "padding");
    }
    gb_free_model(&g);
    imp = (struct imp_setting){IMP_TL1, {64, 64, 32}, 0, 0};
    g = imp_model(0);
    at = imp_offset(&g, down);
    g.data[at + 384 * 640 / 4 - 1] = 0x49;
    imp_refused(imp_copy(&g), g.size, imp.tile, BITNET_ERR_FORMAT, down,
                "no pairs, 0x49, at row 383");
    g.data[at + 384 * 640 / 4 - 1] = 0x94;
    imp_refused(imp_copy(&g), g.size, imp.tile, BITNET_ERR_FORMAT, down,
                "no pairs, 0x94, at row 383");
    gb_free_model(&g);
}

/* The published tiles, by family as they were published. */
static void test_import_published(void) {
    static const struct { int M, K, BM, BK1, bm1, BK2; } shapes[] = {
        {1536, 4096, 256, 128, 32, 96}, {1536, 1536, 128, 64, 64, 192},
        {4096, 1536, 256, 128, 32, 96},
        {3200, 8640, 160, 64, 32, 96}, {3200, 3200, 320, 128, 64, 96},
        {8640, 3200, 320, 64, 32, 96},
        {14336, 4096, 256, 128, 32, 96}, {4096, 14336, 128, 64, 64, 96},
        {1024, 4096, 256, 128, 32, 96}, {4096, 4096, 128, 64, 64, 96}};
    static bitnet_model m;             /* all 0: no tile is given */
    bitnet_error err;
    bitnet__linear l;
    size_t i;
    memset(&l, 0, sizeof l);
    for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        l.n_out = shapes[i].M;
        l.n_file = shapes[i].K;
        l.type = IMP_TL1;
        CHECK_MSG(bitnet__load_tile(m.params.tile, "x", &l, &err) == BITNET_OK, "%s", err.text);
        CHECK(l.tile.BM == shapes[i].BM && l.tile.BK == shapes[i].BK1 &&
              l.tile.bm == shapes[i].bm1);
        l.type = IMP_TL2;
        CHECK_MSG(bitnet__load_tile(m.params.tile, "x", &l, &err) == BITNET_OK, "%s", err.text);
        CHECK(l.tile.BM == shapes[i].BM && l.tile.BK == shapes[i].BK2 && l.tile.bm == 32);
        l.n_out += 32;
        CHECK(bitnet__load_tile(m.params.tile, "x", &l, &err) == BITNET_ERR_UNSUPPORTED);
    }
    CHECK_MSG(strstr(err.text, "4128 rows of 4096") && strstr(err.text, "tile"), "%s", err.text);
}

/* Tiles that are none, and files without one. */
static void test_import_tile_arguments(void) {
    static const bitnet_tile bad[] = {{-1, 96, 32}, {64, -96, 32}, {64, 96, -1}, {64, 0, 0},
                                      {0, 96, 32}, {0, 0, 32}};
    static const bitnet_tile wrong[] = {{64, 64, 8}, {64, 64, 48}, {64, 64, 128}, {64, 100, 32},
                                        {96, 64, 64}, {64, 36, 64}, {INT32_MAX, INT32_MAX, 32}};
    gb_model g;
    size_t i;
    imp = (struct imp_setting){IMP_TL1, {64, 64, 32}, 0, 0};
    g = imp_model(0);
    imp_refused(imp_copy(&g), g.size, imp_none, BITNET_ERR_UNSUPPORTED, "'blk.0.attn_q.weight'",
                "TL1 of 384 rows of 384");
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        imp_refused(imp_copy(&g), g.size, bad[i], BITNET_ERR_ARG, "tile", "needed");
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        imp_refused(imp_copy(&g), g.size, wrong[i], BITNET_ERR_FORMAT, "'blk.0.", "cannot have");
    gb_free_model(&g);
}

/* ---- tests: blocks ---- */

/* The scale in the blocks, in a tensor beside blocks of 1, and the product of both. */
static void test_import_tq(void) {
    static const uint32_t types[] = {IMP_TQ1, IMP_TQ2};
    int i;
    for (i = 0; i < 2; i++) {
        imp = (struct imp_setting){types[i], imp_none, 0, 0};
        imp_compare(2, "scale in the blocks");
        imp = (struct imp_setting){types[i], imp_none, 1.0f, 1};
        imp_compare(2, "scale beside");
        imp = (struct imp_setting){types[i], imp_none, 0.7001953125f, 1};
        imp_compare(2, "both");
    }
}

/* Every byte that TQ1_0's definition makes of five digits, and of four. */
static void test_import_tq1_bytes(void) {
    static uint8_t block[54], codes[768];
    bitnet__findings f;
    bitnet__linear l;
    int v, i, j, bad = 0;
    memset(&l, 0, sizeof l);
    l.type = IMP_TQ1;
    l.w = block;
    l.n_file = l.n_in = 256;
    l.n_out = 1;
    imp.type = IMP_TQ1;
    for (v = 0; v < 243; v++) {
        static const int power[5] = {81, 27, 9, 3, 1};
        int8_t w[256];
        for (i = 0; i < 256; i++) {
            j = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
            w[i] = (int8_t)(v / power[j] % 3 - 1);
        }
        memset(block, 0, sizeof block);
        memset(&f, 0, sizeof f);
        f.scale_row = -1;
        imp_tq(w, block);
        if (!bitnet__unpack_tq(&l, 0, 0, 256, codes, &f)) bad++;
        for (i = 0; i < 256; i++) bad += codes[i] != w[i] + 1;
    }
    CHECK_MSG(bad == 0, "%d codes are wrong", bad);
}

/* Packing is the definition's bytes; the scale stands in each block that has weights, and has to be
   the same in all of these. */
static void test_import_tq_files(void) {
    enum { N = 768, ROWS = 5, BLOCKS = N / 256 * ROWS };
    static int8_t w[N * ROWS], back[N * ROWS];
    static uint8_t want[BLOCKS * 66], data[BLOCKS * 66];
    const uint16_t half = bitnet__f32_to_f16(0.0625f + 1.0f / 4096);
    const float scale = bitnet__f16_to_f32(half);
    uint64_t seed = 11;
    int i, k;
    for (k = 0; k < N * ROWS; k++) w[k] = (int8_t)((int)(gb_random(&seed) % 3) - 1);
    memset(w + 4 * 256, 0, 256);       /* row 1, column 256 */
    for (i = 0; i < 2; i++) {
        const size_t block = i ? 66 : 54;
        bitnet_ternary t = {i ? IMP_TQ2 : IMP_TQ1, N, ROWS, BITNET_I2S_128, {0, 0, 0}};
        bitnet_error err = {BITNET_OK, ""};
        float got = 0;
        uint8_t *p;
        imp.type = t.type;
        memset(want, 0, sizeof want);
        memset(data, 0xee, sizeof data);
        for (k = 0; k < BLOCKS; k++) {
            p = want + (size_t)k * block;
            imp_tq(w + 256 * k, p);
            p[block - 2] = p[block - 1] = 0xee;
        }
        CHECK_MSG(!bitnet_ternary_check(&t, "t", &err), "%s", err.text);
        CHECK(!bitnet_ternary_pack(&t, w + 2 * N, 2, ROWS - 2, data, &err));
        CHECK(!bitnet_ternary_pack(&t, w, 0, 2, data, &err));
        CHECK(!memcmp(want, data, BLOCKS * block));
        CHECK(bitnet_ternary_set_scale(&t, 0.1f, data, &err) == BITNET_ERR_UNSUPPORTED);
        CHECK_MSG(strstr(err.text, "0.1") && strstr(err.text, "F16"), "%s", err.text);
        CHECK(bitnet_ternary_set_scale(&t, 1e5f, data, &err) == BITNET_ERR_UNSUPPORTED);
        CHECK(!memcmp(want, data, BLOCKS * block));
        CHECK_MSG(!bitnet_ternary_set_scale(&t, scale, data, &err), "%s", err.text);
        for (k = 0; k < BLOCKS; k++) {
            want[(size_t)(k + 1) * block - 2] = (uint8_t)(k == 4 ? 0 : half);
            want[(size_t)(k + 1) * block - 1] = (uint8_t)(k == 4 ? 0 : half >> 8);
        }
        CHECK(!memcmp(want, data, BLOCKS * block));
        CHECK_MSG(!bitnet_ternary_scale(&t, data, &got, &err) && got == scale, "%g: %s",
                  (double)got, err.text);
        CHECK_MSG(!bitnet_ternary_unpack(&t, data, 0, ROWS, back, &err), "%s", err.text);
        CHECK(!memcmp(w, back, sizeof w));
        data[14 * block + block - 2] ^= 1;             /* row 4, column 512 */
        CHECK(bitnet_ternary_scale(&t, data, &got, &err) == BITNET_ERR_UNSUPPORTED);
        CHECK_MSG(strstr(err.text, "(row 0, column 0)") && strstr(err.text, "(row 4, column 512)"),
                  "%s", err.text);
        memset(back, 7, sizeof back);  /* weights are weights, whatever their scale */
        CHECK(!bitnet_ternary_unpack(&t, data, 3, 2, back, &err));
        CHECK(!memcmp(w + 3 * N, back, 2 * N) && back[2 * N] == 7);
        if (i) {
            data[8 * block + 63] |= 0xc0;              /* row 2, column 512 + 255 */
            CHECK(bitnet_ternary_unpack(&t, data, 2, 1, back, &err) == BITNET_ERR_FORMAT);
            CHECK_MSG(strstr(err.text, "at row 2, column 767"), "%s", err.text);
            CHECK(bitnet_ternary_scale(&t, data, &got, &err) == BITNET_ERR_FORMAT);
        }
        memset(back, 0, sizeof back);
        CHECK(!bitnet_ternary_pack(&t, back, 0, ROWS, data, &err));
        CHECK(!bitnet_ternary_scale(&t, data, &got, &err) && got == 1.0f);
        CHECK(bitnet_ternary_scale(&t, 0, &got, &err) == BITNET_ERR_ARG);
        CHECK(bitnet_ternary_scale(&t, data, 0, &err) == BITNET_ERR_ARG);
        CHECK(bitnet_ternary_set_scale(&t, 1, 0, &err) == BITNET_ERR_ARG);
    }
}

/* One layer, one scale: blocks without weights need not have it. */
static void test_import_scales(void) {
    static const char up[] = "blk.0.ffn_up.weight";
    int i;
    for (i = 0; i < 2; i++) {
        const size_t block = i ? 66 : 54;
        const uint8_t zero = i ? 0x55 : 128;
        gb_model g;
        size_t at, k;
        float *want, *got;
        bitnet_error err;
        uint8_t *p;
        imp = (struct imp_setting){i ? IMP_TQ2 : IMP_TQ1, imp_none, 0, 0};
        g = imp_model(2);
        at = imp_offset(&g, up);       /* 512 rows of one block */
        p = imp_copy(&g);
        p[at + 511 * block + block - 2] ^= 1;
        imp_refused(p, g.size, imp_none, BITNET_ERR_UNSUPPORTED, up, "(row 511, column 0)");
        p = imp_copy(&g);
        p[at + 1 * block + block - 1] ^= 0x80;
        imp_refused(p, g.size, imp_none, BITNET_ERR_UNSUPPORTED, "(row 0, column 0)",
                    "(row 1, column 0)");
        p = imp_copy(&g);              /* perhaps where another thread begins */
        for (k = 256; k < 512; k++) p[at + k * block + block - 2] ^= 1;
        imp_refused(p, g.size, imp_none, BITNET_ERR_UNSUPPORTED, up, "(row 256, column 0)");
        p = imp_copy(&g);
        for (k = 0; k < 512; k++) {    /* NaN everywhere */
            p[at + k * block + block - 2] = 0;
            p[at + k * block + block - 1] = 0x7e;
        }
        imp_refused(p, g.size, imp_none, BITNET_ERR_FORMAT, up, "scale");
        memset(g.data + at + 3 * block, zero, block - 2);          /* a block of zeros */
        memset(g.data + at, zero, block - 2);
        want = imp_logits(g.data, g.size, 0, imp_none, 0, &err);
        memset(g.data + at + 4 * block - 2, 0x7f, 2);
        memset(g.data + at + block - 2, 0xff, 2);
        got = imp_logits(g.data, g.size, 0, imp_none, 0, &err);
        CHECK_MSG(want && got, "%s", err.text);
        CHECK(!memcmp(want, got, 3 * (size_t)g.n_vocab * sizeof *got));
        free(want);
        free(got);
        for (k = 0; k < 512; k++) memset(g.data + at + k * block, zero, block - 2);
        got = imp_logits(g.data, g.size, 0, imp_none, 0, &err);
        CHECK_MSG(got, "%s", err.text);
        CHECK(got[0] == got[0]);       /* a tensor of nothing but zeros */
        free(got);
        if (i) {
            p = imp_copy(&g);
            p[at + 63] |= 0xc0;        /* weight 255 */
            imp_refused(p, g.size, imp_none, BITNET_ERR_FORMAT, up,
                        "no weight, 3, at row 0, column 255");
        }
        gb_free_model(&g);
    }
}

/* ---- tests: any type ---- */

/* Rows are filled up to whole 128-groups with weight 0; 1096 columns are more than are unpacked at
   a time. */
static void test_import_fill(void) {
    static uint8_t w[32 * 1096 / 4], out[32 * 1152 / 4 + 1];
    bitnet__findings f;
    bitnet__linear l;
    size_t i, bad = 0;
    memset(&l, 0, sizeof l);
    memset(&f, 0, sizeof f);
    l.type = IMP_TL1;
    l.tile.BM = 32, l.tile.BK = 8, l.tile.bm = 32;
    l.w = w;
    l.n_file = 1096;
    l.n_in = 1152;
    l.n_out = 32;
    memset(w, 0x44, sizeof w);
    memset(out, 0xee, sizeof out);
    CHECK(bitnet__unpack_rows(&l, 0, 32, out, &f));
    for (i = 0; i < 32 * 1152 / 4; i++) bad += out[i] != 0x55;
    CHECK_MSG(bad == 0 && out[i] == 0xee, "%lu bytes are wrong", (unsigned long)bad);
}

static uint32_t imp_hook_type;
static int imp_hook(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                    uint64_t *offset) {
    (void)n_dims, (void)dims;
    if (!strcmp(name, "blk.0.ffn_down.weight")) *type = imp_hook_type, *offset = 524288;
    return 0;
}

/* Every type that a linear layer cannot have, by its name. */
static void test_import_names(void) {
    static const struct { uint32_t type; const char *name; } types[] = {
        {0, "F32"}, {1, "F16"}, {2, "Q4_0"}, {3, "Q4_1"}, {6, "Q5_0"}, {7, "Q5_1"}, {8, "Q8_0"},
        {9, "Q8_1"}, {10, "Q2_K"}, {11, "Q3_K"}, {12, "Q4_K"}, {13, "Q5_K"}, {14, "Q6_K"},
        {15, "Q8_K"}, {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
        {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"}, {24, "I8"}, {25, "I16"},
        {26, "I32"}, {27, "I64"}, {28, "F64"}, {29, "IQ1_M"}, {30, "BF16"}, {37, "I8_S"},
        {40, "NVFP4"}, {42, "unknown"}, {1u << 31, "unknown"}};
    size_t i;
    for (i = 0; i < sizeof types / sizeof types[0]; i++) {
        gb_model g;
        uint8_t *longer;
        char text[80];
        g = (gb_model){.dim = 256, .ffn = 256, .layers = 1, .heads = 2, .kv_heads = 1,
                       .n_ctx = 16, .seed = 1};
        imp_hook_type = types[i].type;
        g.file.tensor_hook = imp_hook;
        gb_make_model(&g);
        longer = (uint8_t *)gb_malloc(g.size + 1100000);   /* F64 takes more than the file has */
        memset(longer + g.size, 0, 1100000);
        memcpy(longer, g.data, g.size);
        snprintf(text, sizeof text, "unsupported tensor type %lu (%s)",
                 (unsigned long)types[i].type, types[i].name);
        imp_refused(longer, g.size + 1100000, imp_none, BITNET_ERR_UNSUPPORTED,
                    "'blk.0.ffn_down.weight'", text);
        gb_free_model(&g);
    }
}

/* Type 39 with the bytes of MXFP4, in a file that says it is BitNet's. */
static void test_import_mxfp4(void) {
    gb_model g;
    imp = (struct imp_setting){IMP_MXFP4, {64, 96, 32}, 0, 0};
    g = imp_model(0);
    imp_refused(imp_copy(&g), g.size, imp.tile, BITNET_ERR_UNSUPPORTED, "'blk.0.attn_q.weight'",
                "unsupported tensor type 39 (MXFP4)");
    gb_free_model(&g);
}

/* No more memory than what repacking I2_S takes; every allocation may fail. */
static void test_import_memory(void) {
    static const uint32_t types[] = {IMP_TL1, IMP_TL2, IMP_TQ1, IMP_TQ2};
    const bitnet_tile tile = {32, 128, 32}, tile2 = {32, 96, 32};
    int i, j;
    for (i = 0; i < 4; i++)
        for (j = 0; j < 2; j++) {
            const int shape = i < 2 ? 0 : 2;
            size_t peak[2];
            uint64_t own[2] = {0, 0};
            int way;
            for (way = 0; way < 2; way++) {
                gb_counter count;
                gb_reader reader;
                gb_model g;
                bitnet_io io;
                bitnet_model_params p;
                bitnet_model *m = 0;
                bitnet_error err = {BITNET_OK, ""};
                long calls = 0;
                imp = (struct imp_setting){way ? types[i] : (uint32_t)IMP_I2S,
                                           i == 1 ? tile2 : tile, 0, 0};
                g = imp_model(shape);
                io = gb_io(&reader, g.data, g.size);
                memset(&p, 0, sizeof p);
                p.kernels = bitnet_kernels_find(j ? "scalar-tl2" : "scalar");
                p.tile = imp.tile;
                p.i2s_layout = way ? BITNET_I2S_128 : BITNET_I2S_64;
                for (calls = way ? 0 : 10000; calls <= 10000 && !m; calls++) {
                    p.allocator = gb_counting(&count);
                    count.fail_at = calls;
                    bitnet_model_load_io(&io, &p, &m, &err);
                    if (!m && count.live) break;
                }
                peak[way] = count.peak;
                if (m) own[way] = m->own_bytes;
                bitnet_model_free(m);
                gb_free_model(&g);
                CHECK_MSG(m, "%s, allocation %ld", err.text, calls);
                CHECK(count.live == 0);
            }
            CHECK_MSG(own[0] == own[1], "type %u: %lu bytes are kept, of I2_S %lu",
                      (unsigned)types[i], (unsigned long)own[1], (unsigned long)own[0]);
            /* TQ2_0 takes 66 bytes where I2_S takes 64 */
            CHECK_MSG(peak[1] <= peak[0] / 64 * 66, "type %u, %s: %lu bytes, over the %lu of I2_S",
                      (unsigned)types[i], j ? "TL2" : "I2_S", (unsigned long)peak[1],
                      (unsigned long)peak[0]);
        }
}

/* Random bytes for weights, any length of the file, wild shapes: an error or a model. */
static void test_import_damage(void) {
    static const uint32_t types[] = {IMP_TL1, IMP_TL2, IMP_TQ1, IMP_TQ2};
    const int rounds = test_quick() ? 20 : 100;
    uint64_t seed = 99;
    int i, k;
    for (i = 0; i < 4; i++) {
        gb_model g;
        imp = (struct imp_setting){types[i], {32, i ? 96 : 64, 32}, 0, 0};
        g = imp_model(i < 2 ? 1 : 2);
        for (k = 0; k < rounds; k++) {
            size_t size = k % 4 == 3 ? g.header + gb_random(&seed) % (g.size - g.header) : g.size;
            size_t n = k % 4 == 3 ? 0 : 1 + gb_random(&seed) % 40, from;
            uint8_t *p = (uint8_t *)gb_malloc(size);
            bitnet_error err;
            memcpy(p, g.data, size);
            from = k % 4 == 2 ? 0 : g.header;              /* in the header too */
            for (; n > 0; n--)
                p[from + gb_random(&seed) % (size - from)] = (uint8_t)gb_random(&seed);
            free(imp_logits(p, size, 0, imp.tile, k % 2, &err));
            free(p);
        }
        gb_free_model(&g);
    }
}

extern const test_case import_tests[];
const test_case import_tests[] = {
    {"import/files", test_import_files},
    {"import/tl1", test_import_tl1},
    {"import/tl2", test_import_tl2},
    {"import/wrong_tiles", test_import_wrong_tiles},
    {"import/wrong_tiles_files", test_import_wrong_tiles_files},
    {"import/flaws", test_import_flaws},
    {"import/published", test_import_published},
    {"import/tile_arguments", test_import_tile_arguments},
    {"import/tq", test_import_tq},
    {"import/tq1_bytes", test_import_tq1_bytes},
    {"import/tq_files", test_import_tq_files},
    {"import/scales", test_import_scales},
    {"import/fill", test_import_fill},
    {"import/names", test_import_names},
    {"import/mxfp4", test_import_mxfp4},
    {"import/memory", test_import_memory},
    {"import/damage", test_import_damage},
    {0, 0}
};
