/* Files: opening any GGUF, and writing one. tests/tools/test_convert.sh has what convert makes of
   it. */
#include "gguf_helpers.h"
#include "../../examples/convert/pack.h"

/* ---- helpers ---- */

/* The whole of a file once more, data in pieces of so many bytes. */
static bitnet_result copy_file(const bitnet_gguf *g, gguf_writer *w, size_t piece) {
    static uint8_t buf[4096];
    bitnet_gguf_key k;
    bitnet_gguf_tensor t;
    uint64_t i, at;
    for (i = 0; !bitnet_gguf_get_key(g, i, &k); i++) gguf_add_value(w, k.name, &k.value);
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++)
        gguf_add_tensor(w, t.name, t.type, t.n_dims, t.dims);
    gguf_write_header(w);
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++)
        for (at = 0; at < t.size; at += piece) {
            const size_t n = t.size - at < piece ? (size_t)(t.size - at) : piece;
            if (bitnet_gguf_read(g, &t, at, buf, n, 0)) return BITNET_ERR_IO;
            gguf_write_data(w, buf, n);
        }
    return gguf_write_end(w);
}

static bitnet_result memory_read(void *ud, uint64_t offset, void *dst, size_t n) {
    memcpy(dst, (const uint8_t *)ud + offset, n);
    return BITNET_OK;
}

/* ---- tests ---- */

static void test_copy_file(void) {
    static const char *const names[] = {"a.gguf", "b.gguf"};
    int i, how;
    for (i = 0; i < 2; i++) for (how = 0; how < 3; how++) {
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet_gguf *g = 0;
        gguf_writer w;
        sink s;
        size_t size;
        int same;
        uint8_t *data = (uint8_t *)test_read_file(test_data(names[i]), &size);
        bitnet_io io;
        CHECK(data);
        memset(&io, 0, sizeof io);
        io.size = size;
        io.read_fn = memory_read;
        io.ud = data;
        if (how == 0) bitnet_gguf_open_file(test_data(names[i]), 0, &g, &err);
        if (how == 1) bitnet_gguf_open_memory(data, size, 0, &g, &err);
        if (how == 2) bitnet_gguf_open_io(&io, 0, &g, &err);
        CHECK_MSG(g, "%s, way %d: %s", names[i], how, err.text);
        start_writer(&w, &s);
        copy_file(g, &w, how == 1 ? 4096 : 97);
        same = s.n == size && !memcmp(s.p, data, size);
        bitnet_gguf_close(g);
        free(s.p);
        free(data);
        CHECK_MSG(!w.err.code, "%s, way %d: %s", names[i], how, w.err.text);
        CHECK_MSG(same, "%s, way %d: another file", names[i], how);
    }
}

/* Every kind of key, read back; then views of a file that has them. */
static void test_write_values(void) {
    static const char *const words[] = {"", "one", "two words"};
    static const int32_t ints[] = {-1, 0, 2147483647};
    static const float floats[] = {0.5f, -3.0f};
    static const uint64_t dims[] = {3, 2};
    static const uint8_t data[24] = {1, 2, 3};
    static const char *const texts[] = {"7", "0.5", "true", "some text"};
    static const char *const names[] = {"u32", "f32", "bool", "string"};
    gguf_writer w;
    bitnet_gguf *g = 0;
    bitnet_gguf_key k;
    bitnet_gguf_tensor t;
    bitnet_gguf_value e;
    char text[32];
    sink s;
    int i, n;
    start_writer(&w, &s);
    gguf_add_u32(&w, "u32", 7);
    gguf_add_f32(&w, "f32", 0.5f);
    gguf_add_bool(&w, "bool", 5);
    gguf_add_string(&w, "string", "some text");
    gguf_add_i32s(&w, "ints", ints, 3);
    gguf_add_f32s(&w, "floats", floats, 2);
    gguf_add_strings(&w, "words", words, 0, 3);
    gguf_add_strings(&w, "none", 0, 0, 0);
    gguf_add_u32(&w, "general.alignment", 64);
    gguf_add_tensor(&w, "t", BITNET_TENSOR_F32, 2, dims);
    CHECK(!gguf_write_header(&w));
    n = (int)gguf_writer_total(&w);
    CHECK(!gguf_write_data(&w, data, 24) && !gguf_write_end(&w) && s.n == (size_t)n);
    CHECK(!bitnet_gguf_open_memory(s.p, s.n, 0, &g, 0) && s.n % 64 == 0);
    for (i = 0; i < 12; i++) {         /* also with the decimal points of other locales */
        test_point = i < 4 ? 0 : i < 8 ? "," : "\xd9\xab";
        CHECK(!bitnet_gguf_get_key(g, (uint64_t)i % 4, &k) && !strcmp(k.name, names[i % 4]));
        n = bitnet_gguf_text(&k.value, text, sizeof text);
        CHECK_MSG(n == (int)strlen(texts[i % 4]) && !strcmp(text, texts[i % 4]), "%s", text);
    }
    test_point = 0;
    k.value.type = (bitnet_gguf_type)99;
    k.value.size = 0;
    CHECK(bitnet_gguf_text(&k.value, text, sizeof text) == BITNET_ERR_ARG);
    CHECK(!bitnet_gguf_find_key(g, "words", &k) && k.value.count == 3);
    memset(&e, 0, sizeof e);
    for (i = 0; bitnet_gguf_next(&k.value, &e); i++)
        CHECK(i < 3 && e.size == strlen(words[i]) && !memcmp(e.data, words[i], (size_t)e.size));
    CHECK(i == 3 && bitnet_gguf_text(&k.value, text, 1) == BITNET_ERR_UNSUPPORTED);
    CHECK(!bitnet_gguf_find_key(g, "none", &k) && k.value.count == 0);
    memset(&e, 0, sizeof e);
    CHECK(!bitnet_gguf_next(&k.value, &e));
    CHECK(!bitnet_gguf_find_key(g, "ints", &k));
    memset(&e, 0, sizeof e);
    CHECK(bitnet_gguf_next(&k.value, &e) && bitnet_gguf_text(&e, text, sizeof text) == 2);
    CHECK(!strcmp(text, "-1") && bitnet_gguf_find_key(g, "nowhere", &k) == BITNET_ERR_NOT_FOUND);
    CHECK(bitnet_gguf_get_key(g, 9, &k) == BITNET_ERR_NOT_FOUND);
    CHECK(bitnet_gguf_find_tensor(g, "u", &t) == BITNET_ERR_NOT_FOUND);
    CHECK(bitnet_gguf_find_key(g, 0, &k) == BITNET_ERR_ARG);
    CHECK(bitnet_gguf_get_key(g, 0, 0) == BITNET_ERR_ARG);
    CHECK(!bitnet_gguf_find_tensor(g, "t", &t) && t.size == 24 && t.offset % 64 == 0);
    CHECK(t.n_dims == 2 && t.dims[0] == 3 && t.dims[1] == 2 && t.dims[2] == 1 && t.dims[3] == 1);
    CHECK(!memcmp(t.data, data, 24) && !bitnet_gguf_read(g, &t, 1, text, 2, 0) && text[0] == 2);
    CHECK(bitnet_gguf_read(g, &t, 23, text, 2, 0) == BITNET_ERR_ARG);
    CHECK(bitnet_gguf_get_tensor(g, 1, &t) == BITNET_ERR_NOT_FOUND);
    bitnet_gguf_close(g);
    free(s.p);
}

/* A writer that is used wrongly says so, from then on, and lets go of what it holds. */
static void test_write_misuse(void) {
    static const uint64_t dims[] = {32, 2}, odd[] = {33, 2}, huge[] = {1 << 30, 1 << 30};
    static const char *const words[] = {
        "name must have", "name must have", "already a key", "already a tensor", "cannot have",
        "cannot have", "unknown", "cannot have", "does not fit its type", "no string",
        "power of two",
        "neither keys", "before the header", "lacks 68 bytes; 69 came", "lacks 67 bytes",
        "written already", "after the header", "no header", "all tensors are complete"
    };
    static const uint8_t data[69] = {0};
    char long_name[258];
    int i;
    memset(long_name, 'x', 257);
    long_name[257] = 0;
    for (i = 0; i < (int)(sizeof words / sizeof words[0]); i++) {
        static const bitnet_gguf_value bad = {BITNET_GGUF_STRING, 0, 1, 3, 0};
        gguf_writer w;
        sink s;
        start_writer(&w, &s);
        if (i >= 13 && i < 17) {
            gguf_add_tensor(&w, "t", BITNET_TENSOR_Q8_0, 2, dims);
            gguf_write_header(&w);
        }
        switch (i) {
            case 0: gguf_add_u32(&w, "", 0); break;
            case 1: gguf_add_u32(&w, long_name, 0); break;
            case 2: gguf_add_u32(&w, "k", 0); gguf_add_f32(&w, "k", 0); break;
            case 3:
                gguf_add_tensor(&w, "t", BITNET_TENSOR_F16, 2, dims);
                gguf_add_tensor(&w, "t", BITNET_TENSOR_F16, 2, dims);
                break;
            case 4: gguf_add_tensor(&w, "t", BITNET_TENSOR_Q8_0, 2, odd); break;
            case 5: gguf_add_tensor(&w, "t", BITNET_TENSOR_F32, 2, huge); break;
            case 6: gguf_add_tensor(&w, "t", 77, 2, dims); break;
            case 7: gguf_add_tensor(&w, "t", BITNET_TENSOR_F32, 5, dims); break;
            case 8: gguf_add_value(&w, "k", &bad); break;
            case 9: gguf_add_strings(&w, "k", 0, 0, 1); break;
            case 10: gguf_add_u32(&w, "general.alignment", 48); break;
            case 11: gguf_write_header(&w); break;
            case 12: gguf_add_u32(&w, "k", 0); gguf_write_data(&w, data, 1); break;
            case 13: gguf_write_data(&w, data, 69); break;
            case 14: gguf_write_data(&w, data, 1); break;
            case 15: gguf_write_header(&w); break;
            case 16: gguf_add_u32(&w, "k", 0); break;
            case 17: break;
            default:
                gguf_add_u32(&w, "k", 0);
                gguf_write_header(&w);
                gguf_write_data(&w, data, 1);
        }
        CHECK_MSG(gguf_write_end(&w) == BITNET_ERR_ARG, "case %d: no error", i);
        CHECK_MSG(strstr(w.err.text, words[i]), "case %d: %s", i, w.err.text);
        CHECK(gguf_add_u32(&w, "k", 0) == BITNET_ERR_ARG && !w.header);
        free(s.p);
    }
    {                                  /* a string that is longer than its array */
        static const uint8_t strings[12] = {5, 0, 0, 0, 0, 0, 0, 0, 'f', 'o', 'u', 'r'};
        const bitnet_gguf_value v = {BITNET_GGUF_ARRAY, BITNET_GGUF_STRING, 1, 12, strings};
        bitnet_gguf_value e = {0, 0, 0, 0, 0};
        CHECK(!bitnet_gguf_next(&v, &e));
    }
    CHECK(gguf_add_u32(0, "k", 0) == BITNET_ERR_ARG);
    CHECK(gguf_write_end(0) == BITNET_ERR_ARG);
    bitnet_gguf_close(0);
    gguf_writer_free(0);
}

/* write_fn fails at each kilobyte: always an error, and nothing is left in memory (ASan). */
static void test_full_sink(void) {
    size_t size, limit;
    void *data = test_read_file(test_data("a.gguf"), &size);
    bitnet_gguf *g = 0;
    CHECK(data && !bitnet_gguf_open_memory(data, size, 0, &g, 0));
    for (limit = 1; limit < size; limit += 64 * 1024) {
        gguf_writer w;
        sink s;
        start_writer(&w, &s);
        s.limit = limit;
        copy_file(g, &w, 4096);
        free(s.p);
        CHECK_MSG(w.err.code == BITNET_ERR_IO, "limit %lu: %s", (unsigned long)limit, w.err.text);
    }
    bitnet_gguf_close(g);
    free(data);
}

/* Every prefix of a small file, and every byte of its header changed: an error or a file, never
   more (the sanitizers look on). */
static void test_hostile_files(void) {
    static const uint64_t dims[] = {64, 4};
    static const char *const words[] = {"a", "b"};
    static const uint8_t data[96] = {0};
    gguf_writer w;
    bitnet_gguf_tensor t;
    bitnet_gguf_key k;
    bitnet_gguf *g;
    sink s;
    size_t i, n;
    uint8_t *copy;
    int bit;
    start_writer(&w, &s);
    gguf_add_strings(&w, "w", words, 0, 2);
    gguf_add_string(&w, "s", "x");
    gguf_add_tensor(&w, "t", BITNET_TENSOR_I2_S, 2, dims);
    gguf_write_header(&w);
    gguf_write_data(&w, data, 96);
    CHECK(!gguf_write_end(&w));
    for (n = 0; n < s.n; n++) {
        copy = (uint8_t *)malloc(n ? n : 1);
        CHECK(copy);
        memcpy(copy, s.p, n);
        CHECK_MSG(bitnet_gguf_open_memory(copy, n, 0, &g, 0) && !g, "%lu bytes", (unsigned long)n);
        free(copy);
    }
    copy = (uint8_t *)malloc(s.n);
    CHECK(copy);
    for (n = 0; n < s.n - 96; n++)
        for (bit = 0; bit < 8; bit++) {
            memcpy(copy, s.p, s.n);
            copy[n] = (uint8_t)(copy[n] ^ 1 << bit);
            if (bitnet_gguf_open_memory(copy, s.n, 0, &g, 0)) continue;
            for (i = 0; !bitnet_gguf_get_key(g, i, &k); i++) {
                bitnet_gguf_value e = {0, 0, 0, 0, 0};
                while (bitnet_gguf_next(&k.value, &e)) bitnet_gguf_text(&e, 0, 0);
            }
            for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++) {
                uint8_t last;
                CHECK(t.size == 0 || !bitnet_gguf_read(g, &t, t.size - 1, &last, 1, 0));
            }
            bitnet_gguf_close(g);
        }
    free(copy);
    free(s.p);
}

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Random weights in each packing, whole and in pieces, and back. */
static void test_ternary_files(void) {
    static const bitnet_ternary shapes[] = {
        {BITNET_TENSOR_I2_S, 256, 64, BITNET_I2S_128, {0, 0, 0}},
        {BITNET_TENSOR_I2_S, 96, 20, BITNET_I2S_128, {0, 0, 0}},   /* groups run over rows */
        {BITNET_TENSOR_I2_S, 96, 20, BITNET_I2S_64, {0, 0, 0}},
        {BITNET_TENSOR_I2_S, 77, 20, BITNET_I2S_4ROW, {0, 0, 0}},
        {BITNET_TENSOR_I2_S, 1, 128, BITNET_I2S_128, {0, 0, 0}},
        {BITNET_TENSOR_TL1, 256, 128, BITNET_I2S_128, {64, 64, 32}},
        {BITNET_TENSOR_TL1, 256, 128, BITNET_I2S_128, {128, 128, 64}},
        {BITNET_TENSOR_TL2, 256, 128, BITNET_I2S_128, {64, 96, 32}},
        {BITNET_TENSOR_TL2, 576, 96, BITNET_I2S_128, {32, 192, 0}},    /* no pairs */
        {BITNET_TENSOR_TL2, 1024, 64, BITNET_I2S_128, {64, 96, 32}},
        {BITNET_TENSOR_TL2_R16, 256, 64, BITNET_I2S_128, {0, 0, 0}},
        {BITNET_TENSOR_TL2_R16, 77, 20, BITNET_I2S_128, {0, 0, 0}},    /* no whole set, no group */
        {BITNET_TENSOR_TL2_R16, 1, 33, BITNET_I2S_128, {0, 0, 0}}
    };
    static int8_t w[64 * 1024], back[64 * 1024];
    static uint8_t data[2][32 * 1024];
    uint32_t seed = 7;
    int i, k;
    for (i = 0; i < (int)(sizeof shapes / sizeof shapes[0]); i++) {
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet_ternary t = shapes[i];
        const uint64_t dims[2] = {(uint64_t)t.n, (uint64_t)t.rows};
        const uint64_t size = bitnet_tensor_size(t.type, 2, dims);
        const int half = t.rows / 3;
        float scale = 0;
        size_t end;
        CHECK(size > 0 && size <= sizeof data[0] && t.n * t.rows <= (int)sizeof w);
        CHECK_MSG(!bitnet_ternary_check(&t, "t", &err), "shape %d: %s", i, err.text);
        for (k = 0; k < t.n * t.rows; k++) w[k] = (int8_t)(draw(&seed) % 3) - 1;
        memset(data[0], 0, sizeof data[0]);
        memset(data[1], 0xff, sizeof data[1]);         /* of all rows nothing is left */
        CHECK(!pack_ternary(&t, w, 0, t.rows, data[0], 0));
        CHECK(!pack_ternary(&t, w + half * t.n, half, t.rows - half, data[1], 0));
        CHECK(!pack_ternary(&t, w, 0, half, data[1], 0));
        CHECK_MSG(data[1][size - 32] == 0xff && data[0][size - 32] == 0, "shape %d: the scale", i);
        end = t.type == BITNET_TENSOR_TL2 ? bitnet__tl2_split(&t).end
                                          : (size_t)size - 32;
        for (k = 0; k < (int)end && data[1][k] == data[0][k]; k++) {}
        CHECK_MSG(k == (int)end, "shape %d: byte %d of %d", i, k, (int)end);
        CHECK_MSG(!bitnet_ternary_unpack(&t, data[0], 0, t.rows, back, &err), "%s", err.text);
        CHECK_MSG(!memcmp(w, back, (size_t)(t.n * t.rows)), "shape %d: other weights", i);
        CHECK(!pack_scale(&t, 0.1f, data[0], 0) && data[0][size - 32] == 0xcd);
        CHECK(!bitnet_ternary_scale(&t, data[0], &scale, 0) && scale == 0.1f);
        CHECK(!bitnet_ternary_unpack(&t, data[0], t.rows - 1, 1, back, 0));
        CHECK(!memcmp(w + (t.rows - 1) * t.n, back, (size_t)t.n));
        w[t.n + 0] = 2;
        CHECK(pack_ternary(&t, w, 0, t.rows, data[0], &err) == BITNET_ERR_ARG);
        w[t.n + 0] = -2;
        CHECK(pack_ternary(&t, w, 0, t.rows, data[0], &err) == BITNET_ERR_ARG);
        CHECK(strstr(err.text, "row 1, column 0 is the weight -2"));
        CHECK(bitnet_ternary_unpack(&t, data[0], 1, t.rows, back, &err) == BITNET_ERR_ARG);
        CHECK(bitnet_ternary_unpack(&t, data[0], -1, 1, back, &err) == BITNET_ERR_ARG);
        CHECK(bitnet_ternary_unpack(&t, 0, 0, 1, back, &err) == BITNET_ERR_ARG);
        memset(data[0], 0xff, (size_t)size);           /* no weights in any packing */
        CHECK(bitnet_ternary_unpack(&t, data[0], 0, 1, back, &err) == BITNET_ERR_FORMAT);
        CHECK_MSG(strstr(err.text, "row 0, column 0"), "shape %d: %s", i, err.text);
    }
}

static void test_no_ternary(void) {
    static const bitnet_ternary shapes[] = {
        {BITNET_TENSOR_F16, 256, 64, BITNET_I2S_128, {0, 0, 0}},
        {BITNET_TENSOR_I2_S, 96, 21, BITNET_I2S_128, {0, 0, 0}},
        {BITNET_TENSOR_I2_S, 256, 63, BITNET_I2S_4ROW, {0, 0, 0}},
        {BITNET_TENSOR_I2_S, 256, 64, (bitnet_i2s_packing)7, {0, 0, 0}},
        {BITNET_TENSOR_I2_S, 0, 64, BITNET_I2S_128, {0, 0, 0}},
        {BITNET_TENSOR_I2_S, 256, -1, BITNET_I2S_128, {0, 0, 0}},
        {BITNET_TENSOR_TL1, 256, 128, BITNET_I2S_128, {0, 0, 0}},      /* none was published */
        {BITNET_TENSOR_TL1, 256, 128, BITNET_I2S_128, {96, 64, 32}},
        {BITNET_TENSOR_TL2, 256, 128, BITNET_I2S_128, {128, 95, 32}},
        {BITNET_TENSOR_TL2, 128, 128, BITNET_I2S_128, {128, 24, 32}},
        {BITNET_TENSOR_TL2, 256, 128, BITNET_I2S_128, {-32, -24, 32}},
        {BITNET_TENSOR_TL2, 256, 128, BITNET_I2S_128, {32, 0, 32}},
        {BITNET_TENSOR_TQ1_0, 384, 64, BITNET_I2S_128, {0, 0, 0}},
        {BITNET_TENSOR_TQ2_0, 128, 64, BITNET_I2S_128, {0, 0, 0}},
        {BITNET_TENSOR_PTQ1_0, 192, 64, BITNET_I2S_128, {0, 0, 0}}
    };
    bitnet_error err;
    int i;
    for (i = 0; i < (int)(sizeof shapes / sizeof shapes[0]); i++) {
        bitnet_ternary t = shapes[i];
        err.code = BITNET_OK;
        CHECK_MSG(bitnet_ternary_check(&t, "t", &err) && err.code, "case %d: no error", i);
        CHECK(bitnet_ternary_unpack(&t, (const uint8_t *)"", 0, 0, (int8_t *)&err, 0));
    }
    CHECK(bitnet_ternary_check(0, "t", &err) == BITNET_ERR_ARG);
}

/* What is on a type's grid comes back; what is not, as near as the type can. */
static void test_floats(void) {
    static const uint32_t types[] = {BITNET_TENSOR_F32, BITNET_TENSOR_F16, BITNET_TENSOR_BF16,
                                     BITNET_TENSOR_Q8_0, BITNET_TENSOR_Q6_K, BITNET_TENSOR_Q5_0,
                                     BITNET_TENSOR_Q5_K, BITNET_TENSOR_Q4_K};
    enum { N_TYPES = sizeof types / sizeof types[0] };
    /* of numbers up to 1: nothing; half of 2^-11, of 2^-8; half a step of 1 / 127, d's rounding;
       a step of 1 / 32, for 1 where -1 is the -32nd; one of 1 / 16, d's rounding; a step of 2 / 31
       and of 2 / 15, whose scale and minimum are rounded to 6 bits. Squares, in the mean: an even
       spread over a step is its 1 / sqrt(12)th; the largest of 16 or 32 numbers is less than 1, and
       a search finds better steps */
    static const double most[] = {0,        1.0 / 4096, 1.0 / 512, 0.0046,
                                  1.0 / 32, 0.0630,     2.0 / 31,  2.0 / 15};
    static const double rms[] = {0, 0.0002, 0.0016, 0.0024, 0.0078, 0.0166, 0.0162, 0.0323};
    static const float bad[] = {65520.0f, 3.4e38f, 1e7f, 1e10f, 1e7f, 1e10f, 1e10f};
    static float x[512], y[512];
    static uint8_t data[2048];
    uint32_t seed = 3;
    bitnet_error err;
    int i, k, round, widest;
    for (i = 0; i < N_TYPES; i++) {
        const uint32_t type = types[i];
        const int half = type == BITNET_TENSOR_Q5_0 ? 16 : 32;
        const int has_grid = type != BITNET_TENSOR_Q8_0 && type != BITNET_TENSOR_Q5_K &&
                             type != BITNET_TENSOR_Q4_K;
        double sum = 0, worst = 0;
        for (k = 0; k < 512; k++)      /* -32 .. 31 in each 16 weights, times 2^-10 */
            x[k] = (float)((k % 16 ? (int)(draw(&seed) % 64) % (2 * half) : 0) - half) / 1024;
        CHECK(!pack_floats(type, x, 512, data, 0));
        CHECK(!bitnet_floats_unpack(type, data, 512, y, 0));
        if (has_grid) CHECK_MSG(!memcmp(x, y, sizeof x), "type %u: grid", type);
        for (round = 0; round < 20; round++) {
            for (k = 0; k < 512; k++) x[k] = (float)draw(&seed) / 8388608.0f - 1;
            CHECK(!pack_floats(type, x, 512, data, 0));
            CHECK(!bitnet_floats_unpack(type, data, 512, y, 0));
            for (k = 0, widest = 0; k < 32; k++)
                if (abs((int8_t)data[2 + k]) > widest) widest = abs((int8_t)data[2 + k]);
            CHECK(type != BITNET_TENSOR_Q8_0 || widest == 127);
            for (k = 0; k < 512; k++) {
                const double d = x[k] > y[k] ? x[k] - y[k] : y[k] - x[k];
                sum += d * d;
                worst = d > worst ? d : worst;
            }
        }
        CHECK_MSG(worst <= most[i] && sum <= rms[i] * rms[i] * 512 * 20,
                  "type %u: errors up to %g, sum of squares %g", type, worst, sum);
        memset(x, 0, sizeof x);
        CHECK(!pack_floats(type, x, 512, data, 0));
        CHECK(!bitnet_floats_unpack(type, data, 512, y, 0) && !memcmp(x, y, sizeof x));
        for (k = 0; k < 512; k++) x[k] = 1e-40f * (float)(k % 7);      /* no step of F16 */
        CHECK(!pack_floats(type, x, 512, data, 0));
        CHECK(!bitnet_floats_unpack(type, data, 512, y, 0) && y[300] >= 0 && y[300] < 1e-30f);
        if (i > 0) {
            x[300] = bad[i - 1];
            CHECK(pack_floats(type, x, 512, data, &err) == BITNET_ERR_FORMAT);
        }
        x[300] = bitnet__float_from_bits(0x7fc00000u);
        CHECK(pack_floats(type, x, 512, data, &err) == BITNET_ERR_FORMAT);
        x[300] = bitnet__float_from_bits(0xff800000u);
        CHECK(pack_floats(type, x, 512, data, &err) == BITNET_ERR_FORMAT);
        CHECK(pack_floats(type, 0, 512, data, &err) == BITNET_ERR_ARG);
        if (i > 2) CHECK(pack_floats(type, x, 33, data, &err) == BITNET_ERR_ARG);
        if (i > 2) CHECK(bitnet_floats_unpack(type, data, 33, x, &err) == BITNET_ERR_ARG);
    }
    CHECK(pack_floats(BITNET_TENSOR_Q4_0, x, 32, data, &err) == BITNET_ERR_UNSUPPORTED);
    CHECK(bitnet_floats_unpack(BITNET_TENSOR_I2_S, data, 32, x, &err) == BITNET_ERR_UNSUPPORTED);
    CHECK(bitnet_floats_unpack(99, data, 32, x, &err) == BITNET_ERR_UNSUPPORTED);
}

/* ---- weights with a scale per group ---- */

enum { GROUP_ROWS = 3, GROUP_N = 512, GROUP_MOST = 400 * GROUP_ROWS };

/* A block by the format's definition: an F16, then weight j in bits 2 (j % 4) of byte j / 4. */
static size_t put_group(uint8_t *out, float d, const int8_t *w, int n) {
    const uint16_t half = bitnet__f32_to_f16(d);
    int j;
    out[0] = (uint8_t)half;
    out[1] = (uint8_t)(half >> 8);
    for (j = 0; j < n / 4; j++) out[2 + j] = 0;
    for (j = 0; j < n; j++) out[2 + j / 4] |= (uint8_t)((w[j] + 1) << 2 * (j % 4));
    return 2 + (size_t)n / 4;
}

/* Weights and their groups' scales, as bytes and as floats. */
static size_t make_groups(int group, const float *scales, const int8_t *w, uint8_t *out, float *x) {
    size_t at = 0;
    int i;
    for (i = 0; i < GROUP_ROWS * GROUP_N; i++) x[i] = scales[i / group] * (float)w[i];
    for (i = 0; i < GROUP_ROWS * GROUP_N; i += group)
        at += put_group(out + at, scales[i / group], w + i, group);
    return at;
}

static bitnet_ternary group_matrix(uint32_t type) {
    bitnet_ternary t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.n = GROUP_N;
    t.rows = GROUP_ROWS;
    return t;
}

static void test_groups(void) {
    static int8_t w[GROUP_ROWS * GROUP_N], got[GROUP_ROWS * GROUP_N];
    static float x[GROUP_ROWS * GROUP_N], scales[2][GROUP_ROWS * GROUP_N / 64];
    static uint8_t want[2][GROUP_MOST], data[GROUP_MOST];
    const bitnet_ternary t[2] = {group_matrix(BITNET_TENSOR_Q2_0),
                                 group_matrix(BITNET_TENSOR_PQ2_0)};
    bitnet_error err = {BITNET_OK, "", {0}};
    size_t size[2];
    int i, k;
    for (i = 0; i < GROUP_ROWS * GROUP_N; i++) w[i] = (int8_t)(i * 7 % 11 % 3 - 1);
    for (i = 0; i < GROUP_ROWS * GROUP_N / 64; i++) {
        scales[0][i] = (float)(1 + i / 2) / 64;
        scales[1][i / 2] = scales[0][i];
    }
    for (k = 0; k < 2; k++) {          /* blocks of 64 and of 128: floats, bytes, weights */
        CHECK(pack_group(t[k].type) == 64 << k);
        size[k] = make_groups(64 << k, scales[k], w, want[k], x);
        memset(data, 0xcd, sizeof data);
        CHECK(!pack_rows(&t[k], x, 0, GROUP_ROWS, got, data, &err));
        CHECK(!memcmp(data, want[k], size[k]) && data[size[k]] == 0xcd);
        CHECK(!bitnet_ternary_unpack(&t[k], data, 0, GROUP_ROWS, got, 0));
        CHECK(!memcmp(got, w, sizeof w));
        CHECK(!pack_rows(&t[k], x + GROUP_N, 1, 1, got, data, &err));
        CHECK(!memcmp(data, want[k] + size[k] / GROUP_ROWS, size[k] / GROUP_ROWS));
    }
    for (k = 0; k < 2; k++) {          /* each from the other */
        memset(data, 0, sizeof data);
        CHECK(!pack_ternary(&t[k], w, 0, GROUP_ROWS, data, 0));
        CHECK(!pack_scales(&t[k], data, &t[!k], want[!k], w, 0, GROUP_ROWS, &err));
        CHECK(!memcmp(data, want[k], size[k]));
    }
    scales[0][9] = 3;                  /* row 1, columns 64 to 127, unlike those before */
    make_groups(64, scales[0], w, want[0], x);
    CHECK(pack_scales(&t[1], 0, &t[0], want[0], w, 0, GROUP_ROWS, &err) == BITNET_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "row 1") && strstr(err.text, "column 64"), "%s", err.text);
    CHECK(!pack_scales(&t[1], 0, &t[0], want[0], w, 0, 1, &err));
    for (k = 0; k < 2; k++) {          /* but not if either half is all zeros */
        memset(w + GROUP_N + 64 * k, 0, 64);
        make_groups(64, scales[0], w, want[0], x);
        CHECK(!pack_scales(&t[1], want[1], &t[0], want[0], w, 0, GROUP_ROWS, &err));
        bitnet_floats_unpack(BITNET_TENSOR_F16, want[1] + size[1] / 3, 32, x, 0);
        CHECK(x[0] >= scales[0][k ? 8 : 9] && x[0] <= scales[0][k ? 8 : 9]);
        for (i = 0; i < 64; i++) w[GROUP_N + 64 * k + i] = (int8_t)(i % 3 - 1);
    }
    x[5] = 0.1f;                       /* not an F16, in a group where it is the only weight */
    for (i = 0; i < 128; i++) x[i] = i == 5 ? 0.1f : 0;
    CHECK(pack_rows(&t[0], x, 7, 1, got, 0, &err) == BITNET_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "row 7, columns 0 to 63: their scale is not"), "%s", err.text);
    x[5] = 0.5f;
    x[6] = -0.25f;
    CHECK(pack_rows(&t[0], x, 0, 1, got, 0, &err) == BITNET_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "they are not -s, 0 and s"), "%s", err.text);
}

/* Q1_0: an F16, then weight j in bit j % 8 of byte j / 8. A block of zeros has the scale 0. */
static void test_one_bit(void) {
    static int8_t w[2 * 256], got[2 * 256];
    static float x[2 * 256];
    uint8_t want[4 * 18], data[4 * 18];
    bitnet_ternary t = {BITNET_TENSOR_Q1_0, 256, 2, BITNET_I2S_128, {0, 0, 0}};
    bitnet_error err = {BITNET_OK, "", {0}};
    float scale = 0;
    int i;
    memset(want, 0, sizeof want);
    for (i = 0; i < 512; i++) {
        w[i] = (int8_t)(i / 128 == 2 ? 0 : i * 7 % 11 % 2 ? 1 : -1);
        x[i] = 0.5f * (float)w[i];
        if (w[i] >= 0) want[i / 128 * 18 + 2 + i % 128 / 8] |= (uint8_t)(1 << i % 8);
    }
    for (i = 0; i < 4; i++) want[18 * i + 1] = i == 2 ? 0 : 0x38;      /* 0.5 */
    CHECK(!pack_rows(&t, x, 0, 2, got, data, &err) && !memcmp(data, want, sizeof data));
    memset(data, 0xcd, sizeof data);
    CHECK(!pack_ternary(&t, w, 0, 2, data, &err));
    CHECK(data[0] == 0xcd && data[36] == 0 && data[37] == 0 && data[54] == 0xcd);
    memset(data, 0, sizeof data);
    CHECK(!pack_ternary(&t, w, 0, 2, data, &err) && !pack_find_scale(&t, data, &scale, &err));
    CHECK(scale == 1);
    CHECK(!pack_scale(&t, 0.5f, data, &err) && !memcmp(data, want, sizeof data));
    CHECK(!pack_find_scale(&t, data, &scale, &err) && scale == 0.5f);
    CHECK(!bitnet_ternary_unpack(&t, data, 0, 2, got, &err) && got[256] == 1);
    pack_clear(&t, data, 0, 2, got);
    CHECK(!memcmp(got, w, sizeof w));
    data[18] ^= 1;
    CHECK(pack_find_scale(&t, data, &scale, &err) == BITNET_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "(row 0, column 0)") && strstr(err.text, "(row 0, column 128)"),
              "%s", err.text);
    w[256 + 200] = 0;
    x[256 + 200] = 0;
    CHECK(pack_ternary(&t, w, 0, 2, data, &err) == BITNET_ERR_ARG);
    CHECK_MSG(strstr(err.text, "row 1, column 200 is the weight 0, which Q1_0 cannot hold beside"),
              "%s", err.text);
    CHECK(pack_rows(&t, x, 5, 2, got, 0, &err) == BITNET_ERR_ARG);
    CHECK_MSG(strstr(err.text, "row 6, column 200"), "%s", err.text);
    memset(w, 0, sizeof w);
    CHECK(!pack_ternary(&t, w, 0, 2, data, &err) && !pack_find_scale(&t, data, &scale, &err));
    CHECK(scale == 1);
}

/* The weight 2, which Q2_0 and PQ2_0 alone hold. */
static void test_two(void) {
    static const uint32_t types[] = {BITNET_TENSOR_Q2_0, BITNET_TENSOR_PQ2_0, BITNET_TENSOR_Q1_0,
                                     BITNET_TENSOR_TQ1_0, BITNET_TENSOR_TQ2_0, BITNET_TENSOR_I2_S,
                                     BITNET_TENSOR_TL2_R16, BITNET_TENSOR_PTQ1_0};
    static int8_t w[256], got[256];
    static uint8_t data[4096];
    bitnet_error err = {BITNET_OK, "", {0}};
    int i;
    for (i = 0; i < 256; i++) w[i] = (int8_t)(i % 2 ? -1 : 1);
    w[131] = 2;
    for (i = 0; i < 8; i++) {
        bitnet_ternary t = {types[i], 256, 1, BITNET_I2S_128, {0, 0, 0}};
        memset(data, 0, sizeof data);
        if (i < 2) {
            CHECK(!pack_ternary(&t, w, 0, 1, data, &err));
            CHECK(!bitnet_ternary_unpack(&t, data, 0, 1, got, &err) && !memcmp(w, got, sizeof w));
            continue;
        }
        CHECK(pack_ternary(&t, w, 0, 1, data, &err) == BITNET_ERR_ARG);
        CHECK_MSG(strstr(err.text, "row 0, column 131 is the weight 2, which ") &&
                  strstr(err.text, bitnet_tensor_type_name(t.type)), "%s", err.text);
    }
}

/* Blocks of 128 under the number 42, which only the room in the file tells from those of 64. */
static void test_group_number(void) {
    static const uint64_t dims[2] = {GROUP_N, GROUP_ROWS};
    static uint8_t zeros[GROUP_MOST];
    bitnet_gguf_tensor t;
    bitnet_error err = {BITNET_OK, "", {0}};
    int k;
    for (k = 0; k < 3; k++) {
        const uint32_t type = k ? BITNET_TENSOR_PQ2_0 : BITNET_TENSOR_Q2_0;
        const uint32_t number = k == 2 ? BITNET_TENSOR_PQ2_0 : BITNET_TENSOR_Q2_0;
        bitnet_gguf *g = 0;
        gguf_writer w;
        sink s;
        start_writer(&w, &s);
        gguf_add_tensor_as(&w, "t", type, number, 2, dims);
        gguf_write_header(&w);
        gguf_write_data(&w, zeros, (size_t)bitnet_tensor_size(type, 2, dims));
        CHECK(!gguf_write_end(&w));
        CHECK_MSG(!bitnet_gguf_open_memory(s.p, s.n, 0, &g, &err), "%s", err.text);
        CHECK(!bitnet_gguf_get_tensor(g, 0, &t));
        CHECK(t.type == type && t.stored_type == number);
        bitnet_gguf_close(g);
        free(s.p);
    }
}

extern const test_case gguf_writer_tests[];
const test_case gguf_writer_tests[] = {
    {"gguf_writer/copy", test_copy_file},
    {"gguf_writer/values", test_write_values},
    {"gguf_writer/misuse", test_write_misuse},
    {"gguf_writer/full_sink", test_full_sink},
    {"gguf_writer/hostile", test_hostile_files},
    {"gguf_writer/ternary", test_ternary_files},
    {"gguf_writer/no_ternary", test_no_ternary},
    {"gguf_writer/floats", test_floats},
    {"gguf_writer/groups", test_groups},
    {"gguf_writer/group_number", test_group_number},
    {"gguf_writer/one_bit", test_one_bit},
    {"gguf_writer/two", test_two},
    {0, 0}
};
