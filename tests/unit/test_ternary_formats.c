/* Ternary weights in the other types that files have: TL1 and TL2 in tiles, TL2_R16, TQ1_0 and
   TQ2_0 in blocks. A model written so must give the bits of the same model in I2_S, and what is
   wrong with it must be said. The encoders here go by the formats' definitions, place by place. */
#include "ternary_helpers.h"
#include "test.h"
#include "../../examples/convert/pack.h"

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
        n = files[i].tile.rows == 192 ? 656 : 1040;        /* b's vocabulary, and a's */
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
        imp = (struct imp_setting){IMP_TL1, tiles[i], 0, 0, 0, 0};
        imp_compare(0, "TL1");
    }
    imp = (struct imp_setting){IMP_TL1, {32, 64, 32}, 0, 0, 0, 0};
    imp_compare(1, "TL1 of filled-up rows");
    imp = (struct imp_setting){IMP_TL1, {32, 32, 16}, 0, 0, 0, 0};
    imp_compare(1, "TL1 of filled-up rows");
}

static void test_import_tl2(void) {
    static const bitnet_tile tiles[] = {{64, 96, 32}, {32, 96, 32}, {64, 192, 32}};
    size_t i;
    for (i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        imp = (struct imp_setting){IMP_TL2, tiles[i], 0, 0, 0, 0};
        imp_compare(0, "TL2");
    }
    imp = (struct imp_setting){IMP_TL2, {32, 96, 32}, 0, 0, 0, 0};
    imp_compare(1, "TL2 of filled-up rows");
}

static void test_import_tl2_r16(void) {
    static const int shapes[] = {0, 1, 3, 4};
    size_t i;
    for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char what[40];
        snprintf(what, sizeof what, "TL2_R16, shape %d", shapes[i]);
        imp = (struct imp_setting){IMP_TL2R, {0, 0, 0}, 0, 0, 0, 0};
        imp_compare(shapes[i], what);
    }
}

/* A table whose layout it is uses the file's bytes, of the default tables too, and then the model
   owns no more than with I2_S in place. Every other one repacks it, and rows that are not whole
   blocks of 128 (shape 3) are filled up, of I2_S too. */
static void test_import_tl2_r16_in_place(void) {
    static const int shapes[] = {0, 4, 3};
    int i, t, k;
    for (i = 0; i < 3; i++) {
        uint64_t own = 0;
        gb_model g;
        imp = (struct imp_setting){IMP_I2S, {0, 0, 0}, 0, 0, 0, 0};
        g = imp_model(shapes[i]);
        for (t = -3; t < bitnet_kernels_count(); t++) {
            const bitnet_kernels *table = bitnet_kernels_get(t);
            bitnet_model_params p;
            bitnet_model_info info;
            bitnet_model *m = 0;
            bitnet_error err = {BITNET_OK, "", {0}};
            int reads, within = 1;
            if (t == -1) {
                gb_free_model(&g);
                imp.type = IMP_TL2R;
                g = imp_model(shapes[i]);
            }
            if (table && !bitnet_kernels_usable(table)) continue;
            memset(&p, 0, sizeof p);
            p.kernels = t == -2 ? &bitnet__kernels_scalar : table;
            CHECK_MSG(!bitnet_model_load_memory(g.data, g.size, &p, &m, &err), "%s", err.text);
            if (!m) continue;
            bitnet_model_get_info(m, &info);
            if (t == -3) {
                CHECK(!strcmp(info.kernels_name, bitnet_kernels_default()->name));
                bitnet_model_free(m);
                continue;
            }
            reads = !strcmp(info.layout, "TL2_R16") || t == -2;
            if (t == -1)
                for (k = 0; k < bitnet_kernels_count(); k++)       /* the best that reads it */
                    if (bitnet_kernels_usable(bitnet_kernels_get(k)) &&
                        bitnet__reads_tl2_r16(bitnet_kernels_get(k))) {
                        CHECK(!strcmp(info.kernels_name, bitnet_kernels_get(k)->name));
                        break;
                    }
            for (k = 0; k < BITNET__LINEARS; k++) {
                const bitnet__linear *l = &m->layers[0].linear[k];
                const int inside = l->w >= g.data && l->w < g.data + g.size;
                if (!l->w) continue;           /* a layer of this kind has no such matrix */
                within &= inside;
                if (inside && t != -2)         /* so the rows need not be checked one by one */
                    CHECK(!bitnet__any_bad_triple(&l->file, l->w, 0, l->n_out));
            }
            CHECK_MSG(within == (reads && shapes[i] != 3), "shape %d, kernels %s: in place %d",
                      shapes[i], info.kernels_name, within);
            if (t == -2) own = info.own_bytes;
            CHECK_MSG(shapes[i] == 3 || (info.own_bytes == own) == within,
                      "shape %d, kernels %s: %lu, of I2_S %lu", shapes[i], info.kernels_name,
                      (unsigned long)info.own_bytes, (unsigned long)own);
            bitnet_model_free(m);
        }
        gb_free_model(&g);
    }
}

/* A copy of a file in which some bits of a byte of a tensor are others must be refused by every
   table, with the same words. */
static void refused_by_all(const gb_model *g, size_t at, int mask, int bits, const char *where) {
    char first[200] = "";
    int t;
    for (t = 0; t < bitnet_kernels_count(); t++) {
        uint8_t *p;
        bitnet_model_params params;
        bitnet_model *m = 0;
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet_result r;
        if (!bitnet_kernels_usable(bitnet_kernels_get(t))) continue;
        p = imp_copy(g);
        memset(&params, 0, sizeof params);
        params.kernels = bitnet_kernels_get(t);
        p[at] = (uint8_t)((p[at] & ~mask) | bits);
        r = bitnet_model_load_memory(p, g->size, &params, &m, &err);
        bitnet_model_free(m);
        free(p);
        CHECK_MSG(r == BITNET_ERR_FORMAT &&
                  strstr(err.text, "blk.0.ffn_down.weight' (TL2_R16): ") &&
                  strstr(err.text, where), "kernels %s: \"%s\" lacks '%s'", params.kernels->name,
                  err.text, where);
        if (!first[0]) snprintf(first, sizeof first, "%s", err.text);
        CHECK_MSG(!strcmp(first, err.text), "\"%s\", \"%s\"", first, err.text);
    }
}

/* Each of the five values that stand for nothing, wherever in a block it is; codes behind a row;
   fifths of no triple. */
static void test_import_tl2_r16_flaws(void) {
    static const int shapes[] = {3, 4}, invalid[] = {15, 31, 20, 25, 30};
    int i, j, place, at;
    for (i = 0; i < 2; i++) {
        gb_model g;
        const gb_linear *l;
        size_t data, byte;
        char where[80];
        imp = (struct imp_setting){IMP_TL2R, {0, 0, 0}, 0, 0, 0, 0};
        g = imp_model(shapes[i]);
        l = &g.layer[0].down;          /* 192 rows of 13 24 + 16 weights, or 256 of 16 24 */
        data = imp_offset(&g, "blk.0.ffn_down.weight");
        CHECK(data);
        for (j = 0; j < 5; j++)
            for (place = 0; place < 9; place++) {          /* all of a block; the last */
                const int m = place == 8 ? l->n_out - 1 : 2 * place;
                const int k = place == 8 ? (l->n_in - 24) / 12 * 12 + 3 : 12 * place + place % 4;
                gb_model bad = g;
                bad.data = imp_copy(&g);
                byte = data + imp_fifth_at(l, m, k, &at);
                bad.data[byte] = (uint8_t)((bad.data[byte] & ~(1 << at)) | invalid[j] / 16 << at);
                byte = data + imp_nibble_at(l, m, k, &at);
                snprintf(where, sizeof where, "invalid triple %d at row %d, column %d", invalid[j],
                         m, k);
                refused_by_all(&bad, byte, 15 << at, invalid[j] % 16 << at, where);
                free(bad.data);
            }
        if (shapes[i] == 3) {
            byte = data + imp_nibble_at(l, 5, 328 - 328 % 24 + 12, &at);    /* 324, 328 and 332 */
            refused_by_all(&g, byte, 15 << at, 5 << at, "invalid padding 1 at row 5, column 328");
            byte = data + imp_fifth_at(l, 191, 327, &at);
            refused_by_all(&g, byte, 1 << 4, 1 << 4, "invalid unused fifths");
            refused_by_all(&g, byte, 1 << 7, 1 << 7, "at row 191, column 328");
        }
        gb_free_model(&g);
    }
}

/* The last row of a matrix is repeated to the end of its group. */
static void test_import_tl2_r16_rows(void) {
    gb_model g;
    const gb_linear *l;
    size_t data, byte;
    int m, at, t;
    imp = (struct imp_setting){IMP_TL2R, {0, 0, 0}, 0, 0, 0, 0};
    g = imp_model(4);
    l = &g.layer[0].k;                 /* 20 rows of 256 */
    data = imp_offset(&g, "blk.0.attn_k.weight");
    CHECK(data && l->n_out == 20 && l->n_in == 256);
    for (m = 20; m < 32; m += 11)
        for (t = 0; t < bitnet_kernels_count(); t++) {
            uint8_t *p = imp_copy(&g);
            bitnet_model_params params;
            bitnet_model *model = 0;
            bitnet_error err = {BITNET_OK, "", {0}};
            char where[80];
            byte = data + imp_nibble_at(l, m, 255, &at);
            p[byte] = (uint8_t)(p[byte] ^ 1 << at);
            memset(&params, 0, sizeof params);
            params.kernels = bitnet_kernels_get(t);
            snprintf(where, sizeof where, "invalid repetition of the last row %d at row %d, column "
                     "192", p[byte], m);
            if (bitnet_kernels_usable(params.kernels)) {
                bitnet_model_load_memory(p, g.size, &params, &model, &err);
                CHECK_MSG(strstr(err.text, where), "kernels %s: \"%s\" lacks '%s'",
                          params.kernels->name, err.text, where);
            }
            bitnet_model_free(model);
            free(p);
        }
    gb_free_model(&g);
}

/* Each shape has its own tile, and .tile is of none of them. A file loads with a wrong one that
   fits, but has other logits; one that does not fit is named. */
static void test_import_shapes(void) {
    static const bitnet_shape_tile tl1[] = {
        {384, 384, {64, 64, 32}}, {192, 384, {32, 32, 16}}, {640, 384, {64, 64, 64}},
        {384, 640, {32, 64, 16}}, {384, 640, {64, 64, 32}}};     /* the last is never reached */
    static const bitnet_shape_tile tl2[] = {
        {384, 384, {64, 96, 32}}, {192, 384, {32, 96, 0}}, {640, 384, {64, 192, 32}},
        {384, 640, {128, 96, 32}}};
    static const bitnet_tile other = {96, 24, 32};
    bitnet_shape_tile wrong[4];
    bitnet_model_params p;
    bitnet_model *m = 0;
    bitnet_error err;
    float *want, *got;
    gb_model g;
    imp_shapes.tiles = tl1;
    imp_shapes.n = 4;                  /* the builder takes the last that fits */
    imp = (struct imp_setting){IMP_TL1, other, 0, 0, 0, 0};
    imp_compare(0, "TL1, a tile for each shape");
    imp_shapes.tiles = tl2;
    imp = (struct imp_setting){IMP_TL2, other, 0, 0, 0, 0};
    imp_compare(0, "TL2, a tile for each shape");
    imp_shapes.tiles = tl1;
    imp = (struct imp_setting){IMP_TL1, other, 0, 0, 0, 0};
    g = imp_model(0);
    want = imp_logits(g.data, g.size, 0, other, 0, &err);
    imp_shapes.n = 5;
    got = imp_logits(g.data, g.size, 0, other, 0, &err);
    CHECK(want && got && !memcmp(want, got, 3 * (size_t)g.n_vocab * sizeof *want));
    free(got);
    memcpy(wrong, tl1, sizeof wrong);
    wrong[1].tile.group = 32;
    imp_shapes.tiles = wrong;
    imp_shapes.n = 4;
    got = imp_logits(g.data, g.size, 0, other, 0, &err);
    CHECK(want && got && memcmp(want, got, 3 * (size_t)g.n_vocab * sizeof *want));
    free(got);
    free(want);
    memset(&p, 0, sizeof p);
    p.tiles = wrong;
    p.n_tiles = 3;                     /* none for the last shape */
    CHECK(bitnet_model_load_memory(g.data, g.size, &p, &m, &err) == BITNET_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "384 rows of 640"), "%s", err.text);
    p.n_tiles = 4;
    wrong[3].tile.cols = 48;
    CHECK(bitnet_model_load_memory(g.data, g.size, &p, &m, &err) == BITNET_ERR_FORMAT);
    CHECK_MSG(strstr(err.text, "'blk.0.ffn_down.weight'") && strstr(err.text, "32,48,16"), "%s",
              err.text);
    wrong[3].tile.cols = 0;
    CHECK(bitnet_model_load_memory(g.data, g.size, &p, &m, &err) == BITNET_ERR_ARG);
    p.n_tiles = -1;
    CHECK(bitnet_model_load_memory(g.data, g.size, &p, &m, &err) == BITNET_ERR_ARG);
    p.tiles = 0;
    p.n_tiles = 1;
    CHECK(bitnet_model_load_memory(g.data, g.size, &p, &m, &err) == BITNET_ERR_ARG);
    gb_free_model(&g);
    imp_shapes.tiles = 0;
    imp_shapes.n = 0;
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
    imp = (struct imp_setting){IMP_TL2, tile, 0, 0, 0, 0};
    g = imp_model(0);
    bytes = 3 * (size_t)g.n_vocab * sizeof *want;
    want = imp_logits(g.data, g.size, 0, tile, 0, &err);
    CHECK(want);
    for (tile.rows = 32; tile.rows <= 384; tile.rows += 32)
        for (tile.cols = 24; tile.cols <= 768; tile.cols += 24) {
            int divides = 384 % tile.rows == 0 && 192 % tile.rows == 0 && 640 % tile.rows == 0;
            int split = 1, same;
            float *got = imp_logits(g.data, g.size, 0, tile, 0, &err);
            for (i = 0; i < 2; i++) {
                divides = divides && columns[i] % tile.cols % 32 == 0 &&
                          columns[i] % tile.cols <= 256;
                split = split && columns[i] % tile.cols == columns[i] % 96;
            }
            same = got && !memcmp(got, want, bytes);
            free(got);
            CHECK_MSG((got != 0) == (divides && split), "tile %d,%d: %s", (int)tile.rows,
                      (int)tile.cols, got ? "loads" : err.text);
            CHECK_MSG(same == (tile.rows == 64 && tile.cols == 96), "tile %d,%d: logits",
                      (int)tile.rows, (int)tile.cols);
            if (got) loaded++;
            else {
                char name[32];
                snprintf(name, sizeof name, "tile %d,%d,32", (int)tile.rows, (int)tile.cols);
                CHECK_MSG(strstr(err.text, name) && strstr(err.text, "'blk.0.") &&
                          strstr(err.text, divides ? "(TL2): " : "cannot have"), "%s: \"%s\"",
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
        snprintf(name, sizeof name, "tile %d,%d,%d", (int)tiles[i].rows, (int)tiles[i].cols,
                 (int)tiles[i].group);
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
    imp = (struct imp_setting){IMP_TL2, tile, 0, 0, 0, 0};
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
        snprintf(where, sizeof where, "invalid index %d at row %d, column %d", i ? 15 : 14, m, k);
        imp_refused(p, g.size, tile, BITNET_ERR_FORMAT, down, where);
        for (m = i ? 383 : 0, k = i ? 573 : 0;
             l->w[m * 640 + k] || l->w[m * 640 + k + 1] || l->w[m * 640 + k + 2];)
            m += i ? -1 : 1;
        p = imp_copy(&g);
        end = imp_sign_at(l, m, k, &bit);
        p[at + end + (size_t)(bit > 7)] |= (uint8_t)(1 << bit % 8);
        snprintf(where, sizeof where, "invalid negative index 0 at row %d, column %d", m, k);
        imp_refused(p, g.size, tile, BITNET_ERR_FORMAT, down, where);
        p = imp_copy(&g);
        m = i ? 383 : 0, k = i ? 638 : 576;
        end = imp_pair_at(l, m, k, &bit);
        p[at + end] |= (uint8_t)(15 << bit);
        snprintf(where, sizeof where, "at row %d, column %d", m, k / 4 * 4);
        imp_refused(p, g.size, tile, BITNET_ERR_FORMAT, "invalid pairs", where);
        p = imp_copy(&g);
        end = i ? imp_tl2_size(l) - 33 : 384 * k3 / 6 + 384 * k3 / 24 + 384 * 64 / 4;
        p[at + end] = 1;
        imp_refused(p, g.size, tile, BITNET_ERR_FORMAT, down, "padding");
    }
    gb_free_model(&g);
    imp = (struct imp_setting){IMP_TL1, {64, 64, 32}, 0, 0, 0, 0};
    g = imp_model(0);
    at = imp_offset(&g, down);
    g.data[at + 384 * 640 / 4 - 1] = 0x49;
    imp_refused(imp_copy(&g), g.size, imp.tile, BITNET_ERR_FORMAT, down,
                "invalid pairs 73 at row 383");
    g.data[at + 384 * 640 / 4 - 1] = 0x94;
    imp_refused(imp_copy(&g), g.size, imp.tile, BITNET_ERR_FORMAT, down,
                "invalid pairs 148 at row 383");
    gb_free_model(&g);
}

/* The published tiles, by family as they were published. */
static void test_import_published(void) {
    static const struct { int M, K, rows, BK1, bm1, BK2; } shapes[] = {
        {1536, 4096, 256, 128, 32, 96}, {1536, 1536, 128, 64, 64, 192},
        {4096, 1536, 256, 128, 32, 96},
        {3200, 8640, 160, 64, 32, 96}, {3200, 3200, 320, 128, 64, 96},
        {8640, 3200, 320, 64, 32, 96},
        {14336, 4096, 256, 128, 32, 96}, {4096, 14336, 128, 64, 64, 96},
        {1024, 4096, 256, 128, 32, 96}, {4096, 4096, 128, 64, 64, 96}};
    bitnet_error err;
    bitnet_ternary t;
    size_t i;
    memset(&t, 0, sizeof t);           /* no tile is given */
    for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        t.rows = shapes[i].M;
        t.n = shapes[i].K;
        t.type = IMP_TL1;
        memset(&t.tile, 0, sizeof t.tile);
        CHECK_MSG(bitnet_ternary_check(&t, "x", &err) == BITNET_OK, "%s", err.text);
        CHECK(t.tile.rows == shapes[i].rows && t.tile.cols == shapes[i].BK1 &&
              t.tile.group == shapes[i].bm1);
        t.type = IMP_TL2;
        memset(&t.tile, 0, sizeof t.tile);
        CHECK_MSG(bitnet_ternary_check(&t, "x", &err) == BITNET_OK, "%s", err.text);
        CHECK(t.tile.rows == shapes[i].rows && t.tile.cols == shapes[i].BK2 && t.tile.group == 32);
        t.rows += 32;
        memset(&t.tile, 0, sizeof t.tile);
        CHECK(bitnet_ternary_check(&t, "x", &err) == BITNET_ERR_UNSUPPORTED);
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
    imp = (struct imp_setting){IMP_TL1, {64, 64, 32}, 0, 0, 0, 0};
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
        imp = (struct imp_setting){types[i], imp_none, 0, 0, 0, 0};
        imp_compare(2, "scale in the blocks");
        imp = (struct imp_setting){types[i], imp_none, 1.0f, 1, 0, 0};
        imp_compare(2, "scale beside");
        imp = (struct imp_setting){types[i], imp_none, 0.7001953125f, 1, 0, 0};
        imp_compare(2, "both");
    }
}

/* Every byte that TQ1_0's definition makes of five digits, and of four. */
static void test_import_tq1_bytes(void) {
    static uint8_t block[54];
    static int8_t codes[256];
    bitnet_ternary t;
    int v, i, j, bad = 0;
    memset(&t, 0, sizeof t);
    t.type = IMP_TQ1;
    t.n = 256;
    t.rows = 1;
    imp.type = IMP_TQ1;
    for (v = 0; v < 243; v++) {
        static const int power[5] = {81, 27, 9, 3, 1};
        int8_t w[256];
        for (i = 0; i < 256; i++) {
            j = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
            w[i] = (int8_t)(v / power[j] % 3 - 1);
        }
        memset(block, 0, sizeof block);
        imp_block(imp.type, w, block);
        if (bitnet_ternary_unpack(&t, block, 0, 1, codes, 0)) bad++;
        for (i = 0; i < 256; i++) bad += codes[i] != w[i];
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
        bitnet_error err = {BITNET_OK, "", {0}};
        float got = 0;
        uint8_t *p;
        imp.type = t.type;
        memset(want, 0, sizeof want);
        memset(data, 0xee, sizeof data);
        for (k = 0; k < BLOCKS; k++) {
            p = want + (size_t)k * block;
            imp_block(imp.type, w + 256 * k, p);
            p[block - 2] = p[block - 1] = 0xee;
        }
        CHECK_MSG(!bitnet_ternary_check(&t, "t", &err), "%s", err.text);
        CHECK(!pack_ternary(&t, w + 2 * N, 2, ROWS - 2, data, &err));
        CHECK(!pack_ternary(&t, w, 0, 2, data, &err));
        CHECK(!memcmp(want, data, BLOCKS * block));
        CHECK(pack_scale(&t, 0.1f, data, &err) == BITNET_ERR_UNSUPPORTED);
        CHECK_MSG(strstr(err.text, "0.1") && strstr(err.text, "F16"), "%s", err.text);
        CHECK(pack_scale(&t, 1e5f, data, &err) == BITNET_ERR_UNSUPPORTED);
        CHECK(!memcmp(want, data, BLOCKS * block));
        CHECK_MSG(!pack_scale(&t, scale, data, &err), "%s", err.text);
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
        CHECK(!pack_ternary(&t, back, 0, ROWS, data, &err));
        CHECK(!bitnet_ternary_scale(&t, data, &got, &err) && got == 1.0f);
        CHECK(bitnet_ternary_scale(&t, 0, &got, &err) == BITNET_ERR_ARG);
        CHECK(bitnet_ternary_scale(&t, data, 0, &err) == BITNET_ERR_ARG);
        CHECK(pack_scale(&t, 1, 0, &err) == BITNET_ERR_ARG);
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
        imp = (struct imp_setting){i ? IMP_TQ2 : IMP_TQ1, imp_none, 0, 0, 0, 0};
        g = imp_model(2);
        at = imp_offset(&g, up);       /* 512 rows of one block */
        g.data[at + 511 * block + block - 2] ^= 1;         /* groups: see test_groups.c */
        imp_grouped(&g, 256);
        g.data[at + 511 * block + block - 2] ^= 1;
        g.data[at + 1 * block + block - 1] ^= 0x80;
        imp_grouped(&g, 256);
        g.data[at + 1 * block + block - 1] ^= 0x80;
        imp_grouped(&g, 0);
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
                        "invalid code 3 at row 0, column 255");
        }
        gb_free_model(&g);
    }
}

/* ---- tests: any type ---- */

/* Rows are filled up to whole blocks of 128 with weight 0; 1096 columns are more than are unpacked
   at a time. */
static void test_import_fill(void) {
    static uint8_t w[32 * 1096 / 4], out[32 * 1152 / 4 + 1];
    bitnet__unpacked u;
    bitnet_ternary t;
    size_t i, bad = 0;
    memset(&t, 0, sizeof t);
    memset(&u, 0, sizeof u);
    t.type = IMP_TL1;
    t.tile.rows = 32, t.tile.cols = 8, t.tile.group = 32;
    t.n = 1096;
    t.rows = 32;
    memset(w, 0x44, sizeof w);
    memset(out, 0xee, sizeof out);
    CHECK(bitnet__repack_rows(&t, w, 0, 32, out, &u));
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
        {40, "NVFP4"}, {43, "unknown"}, {1u << 31, "unknown"}};
    size_t i;
    for (i = 0; i < sizeof types / sizeof types[0]; i++) {
        const int known = types[i].type != 37 && strcmp(types[i].name, "unknown");
        gb_model g;
        uint8_t *longer;
        char text[100];
        g = (gb_model){.dim = 256, .ffn = 256, .layers = 1, .heads = 2, .kv_heads = 1,
                       .n_ctx = 16, .seed = 1};
        imp_hook_type = types[i].type;
        g.file.tensor_hook = imp_hook;
        gb_make_model(&g);
        longer = (uint8_t *)gb_malloc(g.size + 1100000);   /* F64 takes more than the file has */
        memset(longer + g.size, 0, 1100000);
        memcpy(longer, g.data, g.size);
        snprintf(text, sizeof text, "unsupported tensor type %lu (%s)%s",
                 (unsigned long)types[i].type, types[i].name,
                 known ? "; it is not ternary: a linear layer needs I2_S" : "");
        imp_refused(longer, g.size + 1100000, imp_none, BITNET_ERR_UNSUPPORTED,
                    "'blk.0.ffn_down.weight'", text);
        gb_free_model(&g);
    }
}

/* Type 39 with the bytes of MXFP4, in a file that says it is BitNet's. */
static void test_import_mxfp4(void) {
    gb_model g;
    imp = (struct imp_setting){IMP_MXFP4, {64, 96, 32}, 0, 0, 0, 0};
    g = imp_model(0);
    imp_refused(imp_copy(&g), g.size, imp.tile, BITNET_ERR_UNSUPPORTED, "'blk.0.attn_q.weight'",
                "unsupported tensor type 39 (MXFP4)");
    gb_free_model(&g);
}

/* No more memory than what repacking I2_S takes; every allocation may fail. */
static void test_import_memory(void) {
    static const uint32_t types[] = {IMP_TL1, IMP_TL2, IMP_TQ1, IMP_TQ2, IMP_TL2R};
    const bitnet_tile tile = {32, 128, 32}, tile2 = {32, 96, 32};
    int i, j;
    for (i = 0; i < 5; i++)
        for (j = 0; j < 2; j++) {
            const int shape = i < 2 || i == 4 ? 0 : 2;
            const int in_place = i == 4 && j && bitnet_kernels_find("scalar-tl2");
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
                bitnet_error err = {BITNET_OK, "", {0}};
                long calls = 0;
                imp = (struct imp_setting){way ? types[i] : (uint32_t)IMP_I2S,
                                           i == 1 ? tile2 : tile, 0, 0, 0, 0};
                g = imp_model(shape);
                io = gb_io(&reader, g.data, g.size);
                memset(&p, 0, sizeof p);
                p.kernels = bitnet_kernels_find(j ? "scalar-tl2" : "scalar");
                p.tile = imp.tile;
                p.i2s_packing = way ? BITNET_I2S_128 : BITNET_I2S_64;
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
            CHECK_MSG(own[0] == own[1] || in_place, "type %u: %lu bytes are kept, of I2_S %lu",
                      (unsigned)types[i], (unsigned long)own[1], (unsigned long)own[0]);
            /* TQ2_0 takes 66 bytes where I2_S takes 64 */
            CHECK_MSG(peak[1] <= peak[0] / 64 * 66, "type %u, %s: %lu bytes, over the %lu of I2_S",
                      (unsigned)types[i], j ? "TL2" : "I2_S", (unsigned long)peak[1],
                      (unsigned long)peak[0]);
        }
}

/* Random bytes for weights, any length of the file, wild shapes: an error or a model. */
static void test_import_damage(void) {
    static const uint32_t types[] = {IMP_TL1, IMP_TL2, IMP_TQ1, IMP_TQ2, IMP_TL2R};
    static const int shapes[] = {1, 1, 2, 2, 4};
    const int rounds = test_quick() ? 20 : 100;
    uint64_t seed = 99;
    int i, k;
    for (i = 0; i < 5; i++) {
        gb_model g;
        imp = (struct imp_setting){types[i], {32, i ? 96 : 64, 32}, 0, 0, 0, 0};
        g = imp_model(shapes[i]);
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

extern const test_case ternary_formats_tests[];
const test_case ternary_formats_tests[] = {
    {"ternary_formats/files", test_import_files},
    {"ternary_formats/tl1", test_import_tl1},
    {"ternary_formats/tl2", test_import_tl2},
    {"ternary_formats/tl2_r16", test_import_tl2_r16},
    {"ternary_formats/tl2_r16_in_place", test_import_tl2_r16_in_place},
    {"ternary_formats/tl2_r16_flaws", test_import_tl2_r16_flaws},
    {"ternary_formats/tl2_r16_rows", test_import_tl2_r16_rows},
    {"ternary_formats/shapes", test_import_shapes},
    {"ternary_formats/wrong_tiles", test_import_wrong_tiles},
    {"ternary_formats/wrong_tiles_files", test_import_wrong_tiles_files},
    {"ternary_formats/flaws", test_import_flaws},
    {"ternary_formats/published", test_import_published},
    {"ternary_formats/tile_arguments", test_import_tile_arguments},
    {"ternary_formats/tq", test_import_tq},
    {"ternary_formats/tq1_bytes", test_import_tq1_bytes},
    {"ternary_formats/tq_files", test_import_tq_files},
    {"ternary_formats/scales", test_import_scales},
    {"ternary_formats/fill", test_import_fill},
    {"ternary_formats/names", test_import_names},
    {"ternary_formats/mxfp4", test_import_mxfp4},
    {"ternary_formats/memory", test_import_memory},
    {"ternary_formats/damage", test_import_damage},
    {0, 0}
};
