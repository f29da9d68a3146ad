/* Files of any kind: the input is one. From memory, through callbacks and as a file the verdict is
   the same, in the same words; whatever opens can be walked, and written again. */
#include "fuzz.h"
#include "../../examples/convert/gguf_write.h"

static int gguf_put(void *ud, const void *p, size_t n) {
    gb_put((gb_buf *)ud, p, n);
    return 0;
}

/* A value as text of any capacity, and its elements. */
static void gguf_check_value(const bitnet_gguf_value *v) {
    bitnet_gguf_value e;
    char text[64], cut[64];
    uint64_t n = 0;
    int len = bitnet_gguf_text(v, 0, 0), cap;
    FUZZ_CHECK(len >= 0 || (v->type == BITNET_GGUF_ARRAY && len == BITNET_ERR_UNSUPPORTED));
    if (len >= 0) {
        FUZZ_CHECK(bitnet_gguf_text(v, text, sizeof text) == len);
        for (cap = 1; cap < 64; cap = 2 * cap + 1) {
            FUZZ_CHECK(bitnet_gguf_text(v, cut, (size_t)cap) == len);
            FUZZ_CHECK(!memcmp(cut, text, (size_t)(len < cap ? len : cap - 1)));
            FUZZ_CHECK(!cut[len < cap ? len : cap - 1]);
        }
    }
    memset(&e, 0, sizeof e);
    while (bitnet_gguf_next(v, &e)) {
        FUZZ_CHECK(e.type == v->element && e.data >= v->data &&
                   e.size <= v->size - (uint64_t)(e.data - v->data));
        if (n++ < 3) bitnet_gguf_text(&e, text, sizeof text);
    }
    FUZZ_CHECK(n == (v->type == BITNET_GGUF_ARRAY ? v->count : 0));
}

/* What loading asks of a key; nothing may go wrong, whatever is there. */
static void gguf_ask(const bitnet_gguf *g, const char *name) {
    static bitnet_model m;
    bitnet__strings strings;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet__meta x;
    uint64_t v;
    float f;
    char text[48];
    int i;
    m.gguf = g->file;
    bitnet_model_get_meta(&m, name, text, sizeof text);
    for (i = 0; i < 4; i++) {
        x.m = &m;
        x.err = &err;
        x.result = BITNET_OK;
        if (i == 0) {
            v = bitnet__meta_uint(&x, name, 7, 1, 1000);
            FUZZ_CHECK(v >= 1 && v <= 1000);
        } else if (i == 1) {
            f = bitnet__meta_float(&x, name, 0.5f, 0.1f, 10.0f);
            FUZZ_CHECK(f >= 0.1f && f <= 10.0f);
        } else if (i == 2) {
            strings = bitnet__meta_strings(&x, name);
            FUZZ_CHECK(x.result == BITNET_OK || !strings.count);
        } else {
            bitnet__meta_text(&x, name, text, sizeof text);
            FUZZ_CHECK(strlen(text) < sizeof text);
        }
        fuzz_check_error(x.result, &err);
    }
}

/* Keys by number and name, tensors likewise. Returns 0 if the writer would refuse the file: it
   takes no name twice, and only tensors of types whose size it knows. */
static int gguf_walk(const bitnet_gguf *g, const uint8_t *data, size_t size) {
    bitnet_gguf_key k, same_k;
    bitnet_gguf_tensor t, same_t;
    bitnet_error err = {BITNET_OK, "", {0}};
    uint8_t bytes[16];
    uint64_t i;
    int plain = 1;
    for (i = 0; bitnet_gguf_get_key(g, i, &k) == BITNET_OK; i++) {
        gguf_check_value(&k.value);
        FUZZ_CHECK(bitnet_gguf_find_key(g, k.name, &same_k) == BITNET_OK);
        plain &= same_k.value.data == k.value.data;
        if (i < 40) gguf_ask(g, k.name);
    }
    for (i = 0; bitnet_gguf_get_tensor(g, i, &t) == BITNET_OK; i++) {
        const size_t n = t.size < sizeof bytes ? (size_t)t.size : sizeof bytes;
        const uint64_t at = t.size - n;
        FUZZ_CHECK(bitnet_gguf_find_tensor(g, t.name, &same_t) == BITNET_OK);
        FUZZ_CHECK(t.offset <= size && t.size <= size - t.offset);
        FUZZ_CHECK(bitnet_gguf_read(g, &t, at, bytes, n, &err) == BITNET_OK);
        FUZZ_CHECK(!memcmp(bytes, data + t.offset + at, n));
        FUZZ_CHECK(bitnet_gguf_read(g, &t, at + 1, bytes, n, &err) == BITNET_ERR_ARG || !n);
        FUZZ_CHECK(t.n_dims >= 1 && t.n_dims <= 4);
        plain &= !strcmp(same_t.name, t.name) && same_t.offset == t.offset &&
                 t.type != BITNET_TENSOR_TL2 &&
                 t.size == bitnet_tensor_size(t.type, t.n_dims, t.dims) && t.size > 0;
    }
    return plain && (i > 0 || bitnet_gguf_get_key(g, 0, &k) == BITNET_OK);
}

/* Every key and tensor written to another file, which then has the same ones. */
static void gguf_write_again(const bitnet_gguf *g) {
    gguf_writer w;
    bitnet_gguf *again = 0;
    bitnet_gguf_key k, k2;
    bitnet_gguf_tensor t, t2;
    bitnet_error err = {BITNET_OK, "", {0}};
    gb_buf out = {0, 0, 0};
    uint64_t i;
    memset(&w, 0, sizeof w);
    w.write_fn = gguf_put;
    w.ud = &out;
    for (i = 0; bitnet_gguf_get_key(g, i, &k) == BITNET_OK; i++)
        gguf_add_value(&w, k.name, &k.value);
    for (i = 0; bitnet_gguf_get_tensor(g, i, &t) == BITNET_OK; i++)
        if (gguf_add_tensor(&w, t.name, t.type, t.n_dims, t.dims)) break;
    gguf_write_header(&w);
    i = gguf_writer_total(&w);
    if (w.err.code == BITNET_OK && i < 1 << 20) {      /* padding to a large alignment is long */
        for (i = 0; bitnet_gguf_get_tensor(g, i, &t) == BITNET_OK; i++)
            gguf_write_data(&w, t.data, (size_t)t.size);
        i = gguf_writer_total(&w);
        FUZZ_CHECK_MSG(gguf_write_end(&w) == BITNET_OK, "%s", w.err.text);
        FUZZ_CHECK(out.n == i);
        FUZZ_CHECK_MSG(!bitnet_gguf_open_memory(out.p, out.n, 0, &again, &err), "%s", err.text);
        for (i = 0; bitnet_gguf_get_key(g, i, &k) == BITNET_OK; i++) {
            FUZZ_CHECK(bitnet_gguf_get_key(again, i, &k2) == BITNET_OK && !strcmp(k.name, k2.name));
            FUZZ_CHECK(k.value.type == k2.value.type && k.value.element == k2.value.element &&
                       k.value.count == k2.value.count && k.value.size == k2.value.size);
            FUZZ_CHECK(!memcmp(k.value.data, k2.value.data, (size_t)k.value.size));
        }
        for (i = 0; bitnet_gguf_get_tensor(g, i, &t) == BITNET_OK; i++) {
            FUZZ_CHECK(!bitnet_gguf_get_tensor(again, i, &t2) && !strcmp(t.name, t2.name));
            FUZZ_CHECK(t.type == t2.type && !memcmp(t.dims, t2.dims, sizeof t.dims));
            FUZZ_CHECK(t.size == t2.size && !memcmp(t.data, t2.data, (size_t)t.size));
        }
        FUZZ_CHECK(bitnet_gguf_get_tensor(again, i, &t2) == BITNET_ERR_NOT_FOUND);
    } else {
        FUZZ_CHECK_MSG(w.err.code == BITNET_OK, "%s", w.err.text);
        gguf_writer_free(&w);
    }
    bitnet_gguf_close(again);
    free(out.p);
}

/* Sources that are no files. */
static void gguf_odd_sources(void) {
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_gguf *g;
    FUZZ_CHECK(bitnet_gguf_open_memory(0, 1, 0, &g, &err) == BITNET_ERR_ARG && !g);
    FUZZ_CHECK(bitnet_gguf_open_memory("", 0, 0, 0, &err) == BITNET_ERR_ARG);
    FUZZ_CHECK(bitnet_gguf_open_io(0, 0, &g, &err) == BITNET_ERR_ARG && !g);
    FUZZ_CHECK(bitnet_gguf_open_file(0, 0, &g, &err) == BITNET_ERR_ARG && !g);
    FUZZ_CHECK(bitnet_gguf_open_file(fuzz_path("none"), 0, &g, &err) == BITNET_ERR_IO && !g);
    FUZZ_CHECK(bitnet_gguf_open_file("/", 0, &g, &err) == BITNET_ERR_IO && !g);
    FUZZ_CHECK(bitnet_gguf_open_file("/dev/null", 0, &g, &err) && !g);
}

/* Opens in one of three ways: 0 memory, 1 callbacks, 2 a file. */
static bitnet_result gguf_open(int how, const uint8_t *data, size_t size, bitnet_allocator *a,
                               gb_reader *reader, bitnet_gguf **g, bitnet_error *err) {
    bitnet_io io = gb_io(reader, data, size);
    err->text[0] = 0;
    if (how == 0) return bitnet_gguf_open_memory(data, size, a, g, err);
    if (how == 1) return bitnet_gguf_open_io(&io, a, g, err);
    return bitnet_gguf_open_file(fuzz_put_file("x.gguf", data, size), a, g, err);
}

FUZZ_TARGET(gguf) {
    bitnet_error err[3];
    bitnet_result r[3];
    bitnet_gguf *g;
    gb_counter count;
    gb_reader reader;
    bitnet_allocator a;
    long calls = 0, fail;
    int how, plain;
    if (size == 0) gguf_odd_sources();
    for (how = 0; how < (size % 16 == 1 ? 3 : 2); how++) {     /* files are slow */
        a = gb_counting(&count);
        r[how] = gguf_open(how, data, size, &a, &reader, &g, &err[how]);
        fuzz_check_error(r[how], &err[how]);
        FUZZ_CHECK((r[how] == BITNET_OK) == (g != 0));
        FUZZ_CHECK(!reader.past_end);
        FUZZ_CHECK_MSG(count.peak <= 4 * size + 1024, "%lu bytes", (unsigned long)count.peak);
        if (g) {
            plain = gguf_walk(g, data, size);
            if (plain && how == 0) gguf_write_again(g);
            bitnet_gguf_close(g);
        }
        FUZZ_CHECK(count.live == 0);
        FUZZ_CHECK_MSG(r[how] == r[0] && !strcmp(err[how].text, err[0].text), "%d: %s / %s", how,
                       err[0].text, err[how].text);
        calls = count.calls;
    }
    fail = (long)(size % 5);                  /* an allocation or a read that fails */
    for (how = 0; how < 2; how++) {
        bitnet_io io;
        a = gb_counting(&count);
        io = gb_io(&reader, data, size);
        if (how) reader.fail_at = 0;
        else count.fail_at = fail;
        r[0] = bitnet_gguf_open_io(&io, &a, &g, &err[0]);
        fuzz_check_error(r[0], &err[0]);
        FUZZ_CHECK(how ? r[0] != BITNET_OK : r[0] != BITNET_OK || fail >= calls);
        bitnet_gguf_close(g);
        FUZZ_CHECK(count.live == 0);
    }
}
