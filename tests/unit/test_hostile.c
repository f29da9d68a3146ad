/* Files made to hurt whoever parses them, one class after the other: counts, lengths, arrays,
   names, alignments, shapes, places, cuts, types. Each is refused with its own code and a text that
   names the key or tensor and where it stands, the same in every way to open it, at once, without
   leaking or holding over four times the file's size; and each has a twin that is right and passes.
   Comes behind test_gguf.c and test_gguf_writer.c, whose helpers it uses. */

#include "gguf_helpers.h"
#include <stdarg.h>
#include <time.h>

/* ---- helpers ---- */

/* The file that is tried, in a block of its exact size: a sanitizer sees one byte beyond. */
static uint8_t *hx_bytes;
static size_t hx_size;

enum {                                 /* ways to open it */
    LOAD_MEMORY = 1, LOAD_IO = 2, OPEN_MEMORY = 4, OPEN_IO = 8, LOADS = 3, OPENS = 12, ALL = 15
};

/* One way to open the file, with what all ways promise. */
static bitnet_result try_way(int way, bitnet_error *err, const char *what) {
    static const char *const names[9] = {"", "load_memory", "load_io", "", "open_memory", "", "",
                                         "", "open_io"};
    gb_counter count;
    gb_reader reader;
    bitnet_io io = gb_io(&reader, hx_bytes, hx_size);
    bitnet_model_params p;
    bitnet_model *m = (bitnet_model *)(void *)&p;
    bitnet_gguf *g = (bitnet_gguf *)(void *)&p;
    const char *broken = 0;
    clock_t start = clock();
    double seconds, handle = way & LOADS ? sizeof(bitnet_model) : sizeof(bitnet_gguf);
    bitnet_result r;
    memset(&p, 0, sizeof p);
    memset(err, 0, sizeof *err);
    p.allocator = gb_counting(&count);
    r = way == LOAD_MEMORY ? bitnet_model_load_memory(hx_bytes, hx_size, &p, &m, err)
      : way == LOAD_IO ? bitnet_model_load_io(&io, &p, &m, err)
      : way == OPEN_MEMORY ? bitnet_gguf_open_memory(hx_bytes, hx_size, &p.allocator, &g, err)
      : bitnet_gguf_open_io(&io, &p.allocator, &g, err);
    seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    if ((way & LOADS ? m != 0 : g != 0) != (r == BITNET_OK)) broken = "*out is not as the result";
    if (way & LOADS) bitnet_model_free(m);
    else bitnet_gguf_close(g);
    if (err->code != r || (r && !clean_text(err->text))) broken = "the error is not filled in";
    if (count.live) broken = "it leaks";
    if ((double)count.peak_own - handle > 4.0 * (double)hx_size)
        broken = "it holds over 4 x the file";
    if (count.peak > 4 * hx_size + 4096) broken = "it holds more than SECURITY in the manual says";
    if (reader.past_end) broken = "it reads past the end";
    if (seconds > (test_quick() ? 20.0 : 1.0)) broken = "it takes too long";
    if (broken)
        test_fail(__FILE__, __LINE__, "%s, %s: %s (%lu of %lu bytes, %.2f s) %s", what, names[way],
                  broken, (unsigned long)count.peak, (unsigned long)hx_size, seconds, err->text);
    return r;
}

/* Tries the ways; all others of OPENS have to succeed. Each must be refused with code and a text
   that holds the formatted one, or be accepted (BITNET_OK). Frees the file. */
static void hx_refused(int ways, bitnet_result code, const char *format, ...) {
    bitnet_error err, first;
    char want[256];
    va_list args;
    int way;
    va_start(args, format);
    vsnprintf(want, sizeof want, format, args);
    va_end(args);
    first.text[0] = 0;
    for (way = 1; way <= OPEN_IO; way *= 2) {
        const bitnet_result wanted = way & ways ? code : BITNET_OK, r = way & (ways | OPENS)
                                   ? try_way(way, &err, want) : wanted;
        if (r != wanted)
            test_fail(__FILE__, __LINE__, "way %d: %s instead of %s (%s): %s", way,
                      bitnet_result_text(r), bitnet_result_text(wanted), want, err.text);
        if (r == BITNET_OK) continue;
        if (!strstr(err.text, want))
            test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", err.text, want);
        if (first.text[0] && strcmp(first.text, err.text))
            test_fail(__FILE__, __LINE__, "\"%s\", way %d: \"%s\"", first.text, way, err.text);
        first = err;
    }
    free(hx_bytes);
    hx_bytes = 0;
}

static void hx_accepted(const char *what) { hx_refused(0, BITNET_OK, "%s", what); }

/* Refused in all ways, by the key or tensor (what) of that name, at place. */
static void hx_named(bitnet_result code, const char *what, const char *name, size_t place,
                     const char *why) {
    hx_refused(ALL, code, "GGUF %s '%s' at offset %lu: %s", what, name, (unsigned long)place, why);
}

/* A file of each kind of value and some tensors. more adds keys, hook changes tensors. */
static void (*box_more)(gb_file *f);
static int (*box_hook)(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                       uint64_t *offset);
static uint32_t box_alignment;

static void box(void) {
    static const uint8_t data[64] = {0};
    gb_file f = {0};
    f.alignment = box_alignment;
    f.tensor_hook = box_hook;
    gb_start(&f);
    gb_key_str(&f, "general.architecture", "box");
    gb_key_u32(&f, "k.one", 7);
    gb_key_str(&f, "k.text", "some text");
    gb_key_array(&f, "k.list", GB_U16, 3);
    gb_uint(&f.keys, 0x000300020001, 6);
    gb_key_array(&f, "k.words", GB_STR, 2);
    gb_string(&f.keys, "ab", 2);
    gb_string(&f.keys, "cde", 3);
    if (box_more) box_more(&f);
    gb_tensor(&f, "t.floats", GB_TENSOR_F32, 8, 2, data, 64);
    gb_tensor(&f, "t.codes", GB_TENSOR_I2_S, 128, 0, data, 64);
    gb_tensor(&f, "t.last", GB_TENSOR_F16, 16, 0, data, 32);
    hx_bytes = gb_finish(&f, &hx_size, 0);
}

/* Where a text is in the file: names are all different, and none begins another. */
static size_t hx_at(const char *text) {
    size_t i, n = strlen(text);
    for (i = 0; i + n <= hx_size; i++)
        if (!memcmp(hx_bytes + i, text, n)) return i;
    return 0;
}

static size_t hx_after(const char *text) { return hx_at(text) + strlen(text); }

static void hx_put(size_t place, uint64_t v, int bytes) {
    int i;
    for (i = 0; i < bytes; i++) hx_bytes[place + (size_t)i] = (uint8_t)(v >> (8 * i));
}

static unsigned long hx_ul(size_t n) { return (unsigned long)n; }

/* ---- 1: counts ---- */

static void test_counts(void) {
    static const uint64_t values[] = {UINT64_MAX, (uint64_t)1 << 63, (uint64_t)1 << 32, 8193, 100};
    int i, which;
    for (i = 0; i < 5; i++)
        for (which = 0; which < 2; which++) {
            box();
            hx_put(which ? 16 : 8, values[i], 8);
            hx_refused(ALL, values[i] > 8192 ? BITNET_ERR_LIMIT : BITNET_ERR_TRUNCATED,
                       "GGUF header at offset %d: it names more", which ? 16 : 8);
        }
    box();
    hx_accepted("box");
    for (which = 0; which < 2; which++) /* more than are read, and room for them */
        for (i = 0; i < 2; i++) {
            hx_size = 8193 * 33 + 24;
            hx_bytes = (uint8_t *)calloc(hx_size, 1);
            if (!hx_bytes) exit(3);
            memcpy(hx_bytes, "GGUF\3", 5);
            hx_put(which ? 16 : 8, 8193 - (uint64_t)i, 8);
            if (i) hx_refused(ALL, BITNET_ERR_FORMAT, "GGUF %s 0 at", which ? "key" : "tensor");
            else
                hx_refused(ALL, BITNET_ERR_LIMIT, "GGUF header at offset %d: it names more",
                           which ? 16 : 8);
        }
}

/* One key or tensor more or less than there is, with every length of the padding. One more: what
   comes next is no key, or no tensor. One key less: it is no tensor. One tensor less: it is no
   padding, and if it takes the place of none, then behind the last tensor comes what is no padding;
   the untied head is the last, without which the model would be a tied one. */
static uint32_t filler;
static void add_filler(gb_file *f) {
    char text[80];
    memset(text, 'x', sizeof text);
    text[filler] = 0;
    gb_key_str(f, "filler", text);
}

static void test_one_off(void) {
    static const struct { int at; int64_t by; const char *word; } cases[] = {
        {16, 1, "GGUF tensor 0 at offset "}, {16, -1, "GGUF tensor 'filler' at offset "},
        {8, 1, "GGUF tensor 14 at offset "}, {8, -1, "does the directory lack "}
    };
    static const uint32_t alignments[] = {1, 32, 64, 4096};
    int i, k, n_shifted = 0;
    for (k = 0; k < 4; k++)
        for (filler = 0; filler < (k == 3 ? 3u : 64u); filler += test_quick() ? 8 : k ? 1 : 16)
            for (i = 0; i < 4; i++) {
                gb_model m = tiny();
                int shifted;
                m.untied = 1;
                m.head_type = GB_TENSOR_F16;
                m.file.alignment = alignments[k];
                m.file.add_keys = add_filler;
                gb_make_model(&m);
                hx_bytes = m.data;
                hx_size = m.size;
                m.data = 0;
                hx_put((size_t)cases[i].at, (uint64_t)((cases[i].at == 8 ? (int64_t)m.file.n_tensors
                                                     : (int64_t)m.file.n_keys) + cases[i].by), 8);
                shifted = i == 3 && (hx_after("output_norm.weight") + 24) % alignments[k] == 0;
                if (shifted)           /* where the last entry begins, the data seems to */
                    hx_refused(LOADS, BITNET_ERR_FORMAT, "%s", "");
                else
                    hx_refused(ALL, BITNET_ERR_FORMAT, "%s", cases[i].word);
                n_shifted += shifted;
                gb_free_model(&m);
            }
    CHECK(n_shifted > 0);
}

/* Bytes behind the last tensor: zeros, however many, or one that is none. */
static void test_end(void) {
    static const size_t more[] = {0, 1, 31, 32, 4096, 4097, 9000};
    int i;
    for (i = 0; i < 7; i++) {
        gb_model m = tiny();
        bitnet_model *model = 0;
        gb_make_model(&m);
        hx_size = m.size + more[i];
        hx_bytes = (uint8_t *)calloc(hx_size, 1);
        if (!hx_bytes) exit(3);
        memcpy(hx_bytes, m.data, m.size);
        bitnet_model_load_memory(hx_bytes, hx_size, 0, &model, 0);
        bitnet_model_free(model);
        CHECK_MSG(model, "%lu zeros", hx_ul(more[i]));
        hx_accepted("zeros");
        if (more[i] > 0) {             /* hx_accepted has taken the bytes */
            hx_bytes = (uint8_t *)calloc(hx_size = m.size + more[i], 1);
            if (!hx_bytes) exit(3);
            memcpy(hx_bytes, m.data, m.size);
            hx_bytes[hx_size - 1] = 1;
            hx_refused(LOADS, BITNET_ERR_FORMAT, "the bytes at offset %lu, behind the last tensor "
                       "'output_norm.weight', belong to none", hx_ul(m.size + more[i] - 1));
        }
        gb_free_model(&m);
    }
}

/* ---- 2: lengths of strings ---- */

static void test_lengths(void) {
    const uint64_t values[] = {UINT64_MAX, (uint64_t)1 << 63, (uint64_t)1 << 32, 0, 1};
    int i, which;
    for (i = 0; i < 5; i++)
        for (which = 0; which < 5; which++) {
            uint64_t v = values[i];
            size_t place;
            box();
            place = which == 0 ? hx_at("k.text") - 8 : which == 1 ? hx_at("t.codes") - 8
                  : which == 2 ? hx_after("k.text") + 4
                  : hx_at(which == 3 ? "ab" : "cde") - 8;
            if (v == 0) v = hx_size + 1;                  /* longer than the file */
            if (v == 1) v = hx_size - place - 8 + 1;      /* than what is left of it */
            hx_put(place, v, 8);
            if (which < 2)
                hx_refused(ALL, BITNET_ERR_FORMAT, "GGUF %s %d at offset %lu: its name is too long",
                        which ? "tensor" : "key", which ? 1 : 2, hx_ul(place + 8));
            else
                hx_named(BITNET_ERR_TRUNCATED, "key", which == 2 ? "k.text" : "k.words", place + 8,
                         "the file ends inside it");
        }
}

/* ---- 3: arrays ---- */

static uint32_t hx_type;
static uint64_t hx_count;
static size_t hx_there;              /* that are there */
static void add_list(gb_file *f) {
    size_t i;
    gb_key_array(f, "k.more", hx_type, hx_count);
    for (i = 0; i < hx_there; i++) gb_uint(&f->keys, 0, 1);
}

/* An array of each type with counts whose bytes wrap, or that are too many by one; and with as many
   as there are. */
static void test_arrays(void) {
    static const uint8_t sizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
    uint32_t type;
    int i;
    box_more = add_list;
    for (type = 0; type < 13; type++) {
        const uint64_t size = sizes[type], wraps = UINT64_MAX / size + 1;
        const uint64_t counts[] = {UINT64_MAX, (uint64_t)1 << 63, wraps, wraps + 1, 0, 0};
        hx_type = type;
        hx_there = 24;
        for (i = 0; i < 6; i++) {
            size_t place;
            hx_count = counts[i];
            box();
            place = hx_after("k.more") + 16;
            hx_count = (hx_size - place) / size + (i == 5);
            if (i >= 4) hx_put(place - 8, hx_count, 8);
            if (i == 4) {              /* just fits, but then there is no room for tensors */
                hx_refused(ALL, BITNET_ERR_TRUNCATED, "GGUF ");
                continue;
            }
            if (size == 1 && (i == 2 || i == 3)) {         /* nothing wraps */
                free(hx_bytes);
                continue;
            }
            hx_named(BITNET_ERR_TRUNCATED, "key", "k.more", place,
                     "the array is longer than the file");
        }
        hx_count = 24 / size;
        box();
        hx_accepted("an array that fits");
    }
    for (i = 0; i < 3; i++) {
        hx_type = (uint32_t[]){13, 99, UINT32_MAX}[i];
        hx_count = (uint64_t)(i != 0);
        box();
        hx_named(BITNET_ERR_UNSUPPORTED, "key", "k.more", hx_after("k.more") + 16,
                 "an array of an unknown type");
    }
    box_more = 0;
}

/* An array of arrays, in bytes; levels > 0: of that many arrays, one in the other. */
static int nest_levels;
static uint32_t nest_type;
static uint64_t nest_count;
static void add_nested(gb_file *f) {
    int i;
    gb_key_array(f, "k.more", GB_ARR, nest_levels ? 1 : 3);
    for (i = 1; i < nest_levels; i++) gb_uint(&f->keys, GB_ARR, 4), gb_uint(&f->keys, 1, 8);
    if (!nest_levels) {
        gb_uint(&f->keys, GB_U16, 4), gb_uint(&f->keys, 2, 8), gb_uint(&f->keys, 0x00050004, 4);
        gb_uint(&f->keys, GB_ARR, 4), gb_uint(&f->keys, 0, 8);
        gb_uint(&f->keys, GB_STR, 4), gb_uint(&f->keys, 1, 8), gb_string(&f->keys, "in", 2);
    } else {
        gb_uint(&f->keys, nest_type, 4), gb_uint(&f->keys, nest_count, 8);
        gb_uint(&f->keys, 0, 8);
    }
    gb_key_u32(f, "k.behind", 8);      /* is read only if all was stepped over */
}

/* What the views make of the twin: 3 arrays, of 2, 0 and 1; then a copy of it. */
static void view_nested(const bitnet_gguf *g) {
    bitnet_gguf_value e = {0, 0, 0, 0, 0}, in = {0, 0, 0, 0, 0};
    gguf_writer w;
    bitnet_gguf_key k;
    char text[8];
    int i;
    CHECK(!bitnet_gguf_find_key(g, "k.behind", &k) && bitnet_gguf_text(&k.value, text, 8) == 1);
    CHECK(!bitnet_gguf_find_key(g, "k.more", &k) && k.value.count == 3 && k.value.size == 50);
    CHECK(k.value.type == GB_ARR && k.value.element == GB_ARR);
    CHECK(bitnet_gguf_next(&k.value, &e) && e.type == GB_ARR && e.element == GB_U16);
    CHECK(e.count == 2);
    CHECK(bitnet_gguf_next(&e, &in) && bitnet_gguf_text(&in, text, 8) == 1 && text[0] == '4');
    CHECK(bitnet_gguf_next(&e, &in) && bitnet_gguf_text(&in, text, 8) == 1 && text[0] == '5');
    CHECK(!bitnet_gguf_next(&e, &in));
    CHECK(bitnet_gguf_next(&k.value, &e) && e.type == GB_ARR && e.count == 0 && e.size == 0);
    memset(&in, 0, sizeof in);
    CHECK(!bitnet_gguf_next(&e, &in));
    CHECK(bitnet_gguf_next(&k.value, &e) && e.element == GB_STR && e.count == 1);
    CHECK(bitnet_gguf_next(&e, &in) && in.type == GB_STR && !memcmp(in.data, "in", 2) &&
          in.size == 2);
    CHECK(!bitnet_gguf_next(&e, &in) && !bitnet_gguf_next(&k.value, &e));
    memset(&w, 0, sizeof w);
    w.write_fn = sink_write;
    CHECK(!gguf_add_value(&w, "k.more", &k.value));
    for (i = 0; i < 2; i++) {          /* breaks its type: an array too few, a byte too few */
        bitnet_gguf_value v = k.value;
        if (i) v.size--;
        else v.count--;
        gguf_writer_free(&w);
        memset(&w, 0, sizeof w);
        w.write_fn = sink_write;
        CHECK(gguf_add_value(&w, "k.more", &v) == BITNET_ERR_ARG);
    }
    gguf_writer_free(&w);
}

static void test_nested(void) {
    gb_reader reader;
    bitnet_gguf *g = 0;
    bitnet_io io;
    int way;
    box_more = add_nested;
    nest_levels = 0;
    for (way = 0; way < 2; way++) {
        box();
        io = gb_io(&reader, hx_bytes, hx_size);
        if (way) bitnet_gguf_open_io(&io, 0, &g, 0);
        else bitnet_gguf_open_memory(hx_bytes, hx_size, 0, &g, 0);
        CHECK(g);
        view_nested(g);
        bitnet_gguf_close(g);
        hx_accepted("arrays in an array");
    }
    nest_type = GB_U8;
    nest_count = 8;
    for (nest_levels = 1; nest_levels <= 8; nest_levels++) {
        box();
        hx_accepted("arrays in arrays");
    }
    for (; nest_levels < 40; nest_levels += 10) {
        box();
        hx_named(BITNET_ERR_LIMIT, "key", "k.more", hx_after("k.more") + 16 + 8 * 12,
                 "its arrays are nested too deep");
    }
    nest_levels = 3;
    nest_type = 13;
    box();
    hx_named(BITNET_ERR_UNSUPPORTED, "key", "k.more", hx_after("k.more") + 16 + 3 * 12,
             "an array of an unknown type");
    nest_type = GB_U64;
    for (way = 0; way < 4; way++) {
        const uint64_t wraps = (uint64_t)1 << 61;
        nest_count = way == 0 ? UINT64_MAX : way == 1 ? wraps : way == 2 ? wraps + 1 : 4000;
        box();
        hx_named(BITNET_ERR_TRUNCATED, "key", "k.more", hx_after("k.more") + 16 + 3 * 12,
                 "the array is longer than the file");
    }
    nest_type = GB_STR;                /* the string's length is in another array's place */
    nest_count = 2;
    box();
    hx_refused(ALL, BITNET_ERR_FORMAT, "GGUF key 6 at offset ");
    box_more = 0;
}

/* 2^60 empty arrays in few bytes, and as many as there are bytes for: time follows the size. */
static void add_empties(gb_file *f) {
    uint64_t i, n = test_quick() ? 20000 : 200000;
    gb_key_array(f, "k.more", GB_ARR, n);
    for (i = 0; i < n; i++) gb_uint(&f->keys, i % 2 ? GB_ARR : GB_U8, 4), gb_uint(&f->keys, 0, 8);
}

static void test_many_arrays(void) {
    box_more = add_empties;
    box();
    hx_accepted("empty arrays");
    box();
    hx_put(hx_after("k.more") + 8, (uint64_t)1 << 60, 8);
    hx_named(BITNET_ERR_TRUNCATED, "key", "k.more", hx_after("k.more") + 16,
             "the array is longer than the file");
    box();
    hx_put(hx_after("k.more") + 16 + 12 * 999 + 4, (uint64_t)1 << 60, 8);
    hx_named(BITNET_ERR_TRUNCATED, "key", "k.more", hx_after("k.more") + 16 + 12 * 1000,
             "the array is longer than the file");
    box_more = 0;
}

/* ---- 4: dimensions ---- */

static void test_n_dims(void) {
    static const uint32_t values[] = {0, 5, 6, 1u << 31, UINT32_MAX};
    int i;
    for (i = 0; i < 5; i++) {
        box();
        hx_put(hx_after("t.codes"), values[i], 4);
        hx_named(BITNET_ERR_FORMAT, "tensor", "t.codes", hx_after("t.codes") + 4,
                 "it must have 1 to 4 dimensions");
    }
}

/* ---- 5: what it begins with ---- */

static void test_preamble(void) {
    static const struct {
        size_t at;
        const char *bytes;
        bitnet_result code;
        const char *why;               /* from the offset on */
    } cases[] = {
        {0, "FUGG", BITNET_ERR_FORMAT, "0: this is not a GGUF file"},
        {0, "GGUf", BITNET_ERR_FORMAT, "0: this is not a GGUF file"},
        {0, "GGML", BITNET_ERR_FORMAT, "0: this is not a GGUF file"},
        {4, "\0\0\0\0", BITNET_ERR_UNSUPPORTED, "4: unknown version; 2 and 3 are known"},
        {4, "\1\0\0\0", BITNET_ERR_UNSUPPORTED, "4: version 1; convert the file"},
        {4, "\4\0\0\0", BITNET_ERR_UNSUPPORTED, "4: unknown version; 2 and 3 are known"},
        {4, "\0\0\0\2", BITNET_ERR_UNSUPPORTED, "4: a big-endian file"},
        {4, "\0\0\0\3", BITNET_ERR_UNSUPPORTED, "4: a big-endian file"},
        {4, "\2\0\0\0", BITNET_OK, "version 2"}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        box();
        memcpy(hx_bytes + cases[i].at, cases[i].bytes, 4);
        if (!cases[i].code) hx_accepted(cases[i].why);
        else hx_refused(ALL, cases[i].code, "GGUF header at offset %s", cases[i].why);
    }
}

/* ---- 6: names ---- */

#define NO_UTF8 "its name is not UTF-8"
#define HAS_NUL "its name holds a NUL"
static const struct { const char *name; size_t n; const char *flaw; } hx_names[] = {
    {"", 0, "it has no name"}, {"\0", 1, HAS_NUL}, {"a\0b", 3, HAS_NUL}, {"ab\0", 3, HAS_NUL},
    {"\xff", 1, NO_UTF8}, {"ab\xC3", 3, NO_UTF8}, {"\xC0\x80", 2, NO_UTF8},
    {"a\xED\xA0\x80z", 5, NO_UTF8}, {"\xF4\x90\x80\x80", 4, NO_UTF8}, {"\x80 ", 2, NO_UTF8},
    {"\xF0\x9F\x98", 3, NO_UTF8},
    {"\xC3\xA9t\xC3\xA9", 5, 0}, {"\xF0\x9F\x98\x80", 4, 0}, {" ", 1, 0}, {"a\x1b[1m", 5, 0}
};
#undef NO_UTF8
#undef HAS_NUL
static char long_name[300];
static const char *new_name;
static size_t new_name_size;

static void add_named(gb_file *f) {
    gb_string(&f->keys, new_name, new_name_size);
    gb_uint(&f->keys, GB_U8, 4);
    gb_uint(&f->keys, 1, 1);
    f->n_keys++;
}

static void add_named_tensor(gb_file *f) { /* before the others, with a place behind them */
    gb_string(&f->dir, new_name, new_name_size);
    gb_uint(&f->dir, 1, 4);
    gb_uint(&f->dir, 4, 8);
    gb_uint(&f->dir, GB_TENSOR_F16, 4);
    gb_uint(&f->dir, 160, 8);
    f->n_tensors++;
}

static void box_named(int tensor) {
    static const uint8_t some[8] = {0};
    box_more = tensor ? add_named_tensor : add_named;
    box();
    box_more = 0;
    if (tensor) {                      /* 8 bytes more of data */
        gb_buf b = {0};
        gb_put(&b, hx_bytes, hx_size);
        gb_put(&b, some, 8);
        free(hx_bytes);
        hx_size = b.n;
        hx_bytes = (uint8_t *)gb_malloc(hx_size);
        memcpy(hx_bytes, b.p, hx_size);
        free(b.p);
    }
}

static void test_bad_names(void) {
    size_t i;
    int tensor;
    memset(long_name, 'n', sizeof long_name);
    for (tensor = 0; tensor < 2; tensor++) {
        const char *what = tensor ? "tensor" : "key";
        const size_t most = tensor ? 64 : 256;
        for (i = 0; i < sizeof hx_names / sizeof hx_names[0]; i++) {
            new_name = hx_names[i].name;
            new_name_size = hx_names[i].n;
            box_named(tensor);
            if (hx_names[i].flaw) hx_refused(ALL, BITNET_ERR_FORMAT, hx_names[i].flaw);
            else hx_accepted(new_name);
        }
        new_name = long_name;
        for (new_name_size = most - 1; new_name_size <= most + 2; new_name_size++) {
            box_named(tensor);
            if (new_name_size <= most) hx_accepted("the longest name");
            else
                hx_refused(ALL, BITNET_ERR_FORMAT, "GGUF %s at offset %lu: its name is too long",
                           tensor ? "tensor 0" : "key 5", hx_ul(hx_at("nnnn")));
        }
        new_name = "a\xFF";            /* both name and place, once */
        new_name_size = 2;
        box_named(tensor);
        hx_named(BITNET_ERR_FORMAT, what, "a?", hx_at("a\xFF"), "its name is not UTF-8");
        new_name = "";
        new_name_size = 0;
        box_named(tensor);
        hx_refused(ALL, BITNET_ERR_FORMAT, "GGUF %s at offset %lu: it has no name",
                   tensor ? "tensor 0" : "key 5", hx_ul(hx_at("t.floats") - 8 - (tensor ? 24 : 5)));
    }
}

/* The writer takes no name that the reader refuses. */
static void test_written_names(void) {
    static const uint64_t dims[] = {1};
    size_t i;
    int tensor;
    memset(long_name, 'n', sizeof long_name);
    for (tensor = 0; tensor < 2; tensor++)
        for (i = 0; i < 4; i++) {
            gguf_writer w;
            const size_t n = i < 2 ? (tensor ? 64u : 256u) + i : 5;
            char name[300];
            sink out;
            snprintf(name, sizeof name, "%.*s", (int)n, long_name);
            if (i > 1) memcpy(name, i == 2 ? "\xC3\xA9" : "\xC3n", 2);
            start_writer(&w, &out);
            if (tensor) gguf_add_tensor(&w, name, GB_TENSOR_F32, 1, dims);
            else gguf_add_u32(&w, name, 1);
            CHECK_MSG(i % 2 ? strstr(w.err.text, "name must have") != 0 : !w.err.code, "%d %d: %s",
                      tensor, (int)i, w.err.text);
            gguf_writer_free(&w);
            free(out.p);
        }
}

static void test_twins(void) {
    static const char *const keys[] = {"k.one", "k.words", "general.architecture"};
    static const char *const tensors[] = {"t.last", "t.floats"};
    char why[64];
    size_t i, first;
    for (i = 0; i < 3; i++) {
        new_name = keys[i];
        new_name_size = strlen(new_name);
        box_named(0);
        first = hx_at(keys[i]);
        snprintf(why, sizeof why, "the same name is at offset %lu", hx_ul(first));
        hx_named(BITNET_ERR_FORMAT, "key", keys[i], hx_at("t.floats") - 8 - 5 - new_name_size, why);
    }
    for (i = 0; i < 2; i++) {
        new_name = tensors[i];
        new_name_size = strlen(new_name);
        box_named(1);
        first = hx_at(tensors[i]);
        hx_bytes[first] = 'x';         /* the new one comes first */
        first = hx_at(tensors[i]);     /* the box's own */
        memcpy(hx_bytes + hx_at("x."), "t.", 2);
        snprintf(why, sizeof why, "the same name is at offset %lu", hx_ul(hx_at(tensors[i])));
        hx_named(BITNET_ERR_FORMAT, "tensor", tensors[i], first, why);
    }
    new_name = "k.ones";               /* one begins the other: no twins */
    new_name_size = 6;
    box_named(0);
    hx_accepted(new_name);
    new_name = "t.last";               /* nor are a key and a tensor of one name */
    box_named(0);
    hx_accepted(new_name);
}

/* As many names as can be, alike but for the last bytes, in the worst orders; then two the same. */
static void test_many_names(void) {
    const int n = test_quick() ? 1000 : 8192;
    int i, k, order, same;
    for (k = 0; k < 2; k++)
        for (order = 0; order < 3; order++)
            for (same = 0; same < 2; same++) {
                gb_file f = {0};
                gb_buf *b = k ? &f.dir : &f.keys;
                gb_start(&f);
                for (i = 0; i < n; i++) {
                    const int id = order == 0 ? i : order == 1 ? n - 1 - i : (i * 911) % n;
                    memset(long_name, 'n', 256);
                    snprintf(long_name + (k ? 57 : 249), 8, "%07u",
                             (unsigned)(same && id == 5 ? n - 5 : id) % 10000000);
                    gb_string(b, long_name, k ? 64 : 256);
                    if (k) {
                        gb_uint(b, 1, 4), gb_uint(b, 1, 8);
                        gb_uint(b, GB_TENSOR_F32, 4), gb_uint(b, (uint64_t)i * 32, 8);
                        gb_pad(&f.data, 32), gb_float(&f.data, 1.0f);
                    } else {
                        gb_uint(b, GB_U8, 4), gb_uint(b, 1, 1);
                    }
                }
                *(k ? &f.n_tensors : &f.n_keys) = (uint64_t)n;
                hx_bytes = gb_finish(&f, &hx_size, 0);
                if (same) hx_refused(ALL, BITNET_ERR_FORMAT, "the same name");
                else hx_accepted("many names");
            }
}

/* ---- 7: alignment ---- */

static uint32_t align_type;
static uint64_t align_value;
static void add_alignment(gb_file *f) {
    static const int bytes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 8, 8, 8, 8};
    gb_key_uint(f, "general.alignment", align_type, align_value, bytes[align_type]);
    if (align_type == GB_ARR) gb_uint(&f->keys, 0, 4);
}

static void test_alignments(void) {
    static const uint32_t values[] = {0, 3, 13, 33, 96, 131072, 1u << 31, UINT32_MAX};
    size_t i;
    box_more = add_alignment;
    for (i = 0; i < 8 + 13; i++) {
        align_type = i < 8 ? GB_U32 : (uint32_t)(i - 8);
        align_value = i < 8 ? values[i] : align_type == GB_STR || align_type == GB_ARR ? 0 : 32;
        if (i >= 8 && align_type == GB_U32) continue;
        box();
        hx_named(BITNET_ERR_FORMAT, "key", "general.alignment", hx_after("general.alignment") + 4 +
                 (align_type == GB_STR ? 8 : align_type == GB_ARR ? 12 : 0),
                 "it must be a power of two up to 65536, as U32");
    }
    align_type = GB_U32;
    for (i = 1; i <= 65536; i *= 2) {
        box_alignment = (uint32_t)i;
        align_value = i;
        box();
        hx_accepted("alignment");
    }
    box_alignment = 0;
    box_more = 0;
}

/* Keys that the network needs, each of a type that it cannot have. */
static void add_wrong(gb_file *f) {
    f->omit = 0;
    gb_key_uint(f, new_name, align_type, 0, 8);
    if (align_type == GB_F32) f->keys.n -= 4;
}

static void test_wrong_types(void) {
    static const struct { const char *name; uint32_t type; const char *why; } keys[] = {
        {"general.architecture", GB_F32, "is not a string of under 32 bytes"},
        {"bitnet-b1.58.context_length", GB_F32, "is not an integer from 1 to "},
        {"bitnet-b1.58.block_count", GB_STR, "is not an integer from 1 to "},
        {"bitnet-b1.58.attention.layer_norm_rms_epsilon", GB_U64, "is not an F32 from "},
        {"tokenizer.ggml.tokens", GB_U64, "is not an array of strings"}
    };
    size_t i;
    for (i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        gb_model m = tiny();
        new_name = keys[i].name;
        align_type = keys[i].type;
        m.file.omit = new_name;
        m.file.add_keys = add_wrong;
        gb_make_model(&m);
        hx_bytes = m.data;
        hx_size = m.size;
        m.data = 0;
        hx_refused(LOADS, BITNET_ERR_FORMAT, "GGUF key '%s' at offset %lu %s", new_name,
                   hx_ul(hx_after(new_name) + (align_type == GB_STR ? 12 : 4)), keys[i].why);
        gb_free_model(&m);
    }
}

/* ---- 8: shapes ---- */

static void test_shapes(void) {
    static const struct { uint32_t n; uint64_t dims[4]; uint32_t type; } cases[] = {
        {1, {0}, 0}, {2, {8, 0}, 0}, {4, {8, 1, 1, 0}, 0}, {1, {UINT64_MAX}, 0},
        {1, {(uint64_t)1 << 63}, 0}, {2, {8, (uint64_t)1 << 63}, 0},
        {1, {((uint64_t)1 << 42) + 1}, 0}, {2, {1, ((uint64_t)1 << 42) + 1}, 36},
        {2, {(uint64_t)1 << 32, (uint64_t)1 << 32}, 0},            /* 2^64 wraps to 0 */
        {4, {4, 1073741823, 1073741825, 1}, 0},                    /* 2^62 - 4; times 4 wraps */
        {4, {4, 1073741823, 1073741825, 2}, 1},
        {4, {1073741823, 4, 1, 1073741825}, 30},
        {4, {16, 1073741823, 1073741825, 1}, 24},                  /* wraps to -16: padding */
        {4, {65536, 65536, 65536, 65536}, 0},
        {3, {3, 6148914691236517206u, 1}, 0},                      /* wraps to 2 */
        {2, {128, UINT64_MAX / 128 + 2}, 36}, {2, {256, UINT64_MAX / 256 + 1}, 39}
    };
    size_t i;
    uint32_t d;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gb_file f = {0};
        gb_start(&f);
        gb_key_u32(&f, "k", 1);
        gb_string(&f.dir, "t.shape", 7);
        gb_uint(&f.dir, cases[i].n, 4);
        for (d = 0; d < cases[i].n; d++) gb_uint(&f.dir, cases[i].dims[d], 8);
        gb_uint(&f.dir, cases[i].type, 4);
        gb_uint(&f.dir, 0, 8);
        gb_uint(&f.data, 0, 8);
        f.n_tensors = 1;
        hx_bytes = gb_finish(&f, &hx_size, 0);
        hx_refused(ALL, BITNET_ERR_LIMIT, "GGUF tensor 't.shape' at offset ");
    }
}

/* ---- 9: places ---- */

static const char *moved;
static uint64_t moved_to;
static uint32_t moved_type;
static int move(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                uint64_t *offset) {
    (void)n_dims, (void)dims;
    if (!strcmp(name, moved)) {
        *offset = moved_to;
        *type = moved_type;
    }
    return 0;
}

static void moved_refused(const char *name, uint64_t to, uint32_t type, bitnet_result code,
                          const char *other, const char *word) {
    char why[96];
    moved = name;
    moved_to = to;
    moved_type = type;
    box_hook = move;
    box();
    box_hook = 0;
    snprintf(why, sizeof why, "its data %s", word);
    if (!code) hx_accepted(word);
    else hx_named(code, "tensor", other, hx_at(other), why);
}

/* In the box t.floats has bytes 0 to 63, t.codes 64 to 127 and t.last 128 to 159 of the data. */
static void test_places(void) {
    static const uint64_t past[] = {160, 192, (uint64_t)1 << 32, (uint64_t)1 << 40,
        (uint64_t)1 << 62, (uint64_t)1 << 63, UINT64_MAX - 31, UINT64_MAX - 63};
    static const uint64_t unaligned[] = {1, 31, 129, 144, UINT64_MAX};
    size_t i;
    for (i = 0; i < 8; i++)
        moved_refused("t.last", past[i], GB_TENSOR_F16, BITNET_ERR_TRUNCATED, "t.last", "at ");
    moved_refused("t.last", 160, GB_TENSOR_F16, BITNET_ERR_TRUNCATED, "t.last",
                  "at 160, 32 bytes, lies past the end of the file");
    moved_refused("t.last", UINT64_MAX - 31, GB_TENSOR_F16, BITNET_ERR_TRUNCATED, "t.last",
                  "at 18446744073709551584, 32 bytes, lies past the end of the file");
    for (i = 0; i < 5; i++)
        moved_refused("t.last", unaligned[i], GB_TENSOR_F16, BITNET_ERR_FORMAT, "t.last", "at ");
    moved_refused("t.last", 144, GB_TENSOR_F16, BITNET_ERR_FORMAT, "t.last",
                  "at 144 is not aligned to 32");
    moved_refused("t.last", 0, GB_TENSOR_F16, BITNET_ERR_FORMAT, "t.last", "overlaps 't.floats'");
    moved_refused("t.last", 32, GB_TENSOR_F16, BITNET_ERR_FORMAT, "t.last", "overlaps 't.floats'");
    moved_refused("t.last", 96, GB_TENSOR_F16, BITNET_ERR_FORMAT, "t.last", "overlaps 't.codes'");
    moved_refused("t.codes", 32, GB_TENSOR_I2_S, BITNET_ERR_FORMAT, "t.codes",
                  "overlaps 't.floats'");
    moved_refused("t.codes", 96, GB_TENSOR_I2_S, BITNET_ERR_FORMAT, "t.last", "overlaps 't.codes'");
    moved_refused("t.floats", 64, GB_TENSOR_F32, BITNET_ERR_FORMAT, "t.codes",
                  "overlaps 't.floats'");
    /* types of unknown size have a byte at least; one of known size must not run over it */
    moved_refused("t.last", 96, 99, BITNET_ERR_FORMAT, "t.last", "overlaps 't.codes'");
    moved_refused("t.last", 64, 99, BITNET_ERR_FORMAT, "t.last", "overlaps 't.codes'");
    moved_refused("t.codes", 32, 37, BITNET_ERR_FORMAT, "t.codes", "overlaps 't.floats'");
    moved_refused("t.codes", 128, 37, BITNET_ERR_FORMAT, "t.last", "overlaps 't.codes'");
    moved_refused("t.last", 160, 99, BITNET_ERR_TRUNCATED, "t.last", "at 160");
    moved_refused("t.last", 128, 99, BITNET_OK, "t.last", "unknown, the last");
    moved_refused("t.codes", 64, 37, BITNET_OK, "t.codes", "unknown, in the middle");
}

/* Sizes that are each in the file, but wrap or run over it together: the second overlaps. */
static void test_sums(void) {
    enum { N = 70 };
    gb_file f = {0};
    char name[16];
    int i;
    gb_start(&f);
    for (i = 0; i < N; i++) {
        snprintf(name, sizeof name, "t.%02d", i);
        gb_string(&f.dir, name, 4);
        gb_uint(&f.dir, 1, 4), gb_uint(&f.dir, 512, 8);
        gb_uint(&f.dir, 0, 4), gb_uint(&f.dir, 0, 8);
        f.n_tensors++;
    }
    for (i = 0; i < 512; i++) gb_float(&f.data, 1.0f);
    hx_bytes = gb_finish(&f, &hx_size, 0);
    hx_named(BITNET_ERR_FORMAT, "tensor", "t.01", hx_at("t.01"), "its data overlaps 't.00'");
}

/* As many tensors as can be, all in one place, of type 39, whose size depends on the next one. */
static void test_many_places(void) {
    const int n = test_quick() ? 500 : 8192;
    int i, apart;
    for (apart = 0; apart < 2; apart++) {
        gb_file f = {0};
        char name[16];
        gb_start(&f);
        for (i = 0; i < n; i++) {
            snprintf(name, sizeof name, "t.%04d", i);
            gb_string(&f.dir, name, 6);
            gb_uint(&f.dir, 1, 4), gb_uint(&f.dir, 32, 8);
            gb_uint(&f.dir, 39, 4), gb_uint(&f.dir, apart ? (uint64_t)(n - 1 - i) * 32 : 0, 8);
            gb_pad(&f.data, 32), gb_uint(&f.data, 0, 8), gb_uint(&f.data, 0, 8);
            gb_uint(&f.data, 0, 1);
            f.n_tensors++;
        }
        hx_bytes = gb_finish(&f, &hx_size, 0);
        if (apart) hx_accepted("MXFP4, backwards");
        else hx_named(BITNET_ERR_FORMAT, "tensor", "t.0001", hx_at("t.0001"),
                      "its data overlaps 't.0000'");
    }
}

/* ---- 10: cuts ---- */

static void add_words(gb_file *f) {
    char word[32];
    int i;
    gb_key_array(f, "k.more", GB_STR, 16000);
    for (i = 0; i < 16000; i++) {
        snprintf(word, sizeof word, "word number %05d", i);
        gb_string(&f->keys, word, strlen(word));
    }
}

static int cut_refused(size_t n, int way) {
    const size_t whole = hx_size;
    uint8_t *all = hx_bytes;
    bitnet_error err;
    bitnet_result r;
    hx_bytes = (uint8_t *)gb_malloc(n);
    hx_size = n;
    memcpy(hx_bytes, all, n);
    r = try_way(way, &err, "cut");
    free(hx_bytes);
    hx_bytes = all;
    hx_size = whole;
    if (r == BITNET_ERR_TRUNCATED || r == BITNET_ERR_LIMIT) return strstr(err.text, "offset ") != 0;
    return 0;
}

/* A header of several portions of those that callbacks are asked for: the bytes of its first 64 KB,
   the ends of the portions, and each place where something begins or ends. */
static void test_cuts(void) {
    size_t places[96], n = 0, i, k;
    bitnet_gguf *g = 0;
    int ok = 1;
    box_more = add_words;
    box();
    box_more = 0;
    for (i = 0; i < 65536 && ok; i += test_quick() ? 61 : 1)
        ok = cut_refused(i, OPEN_MEMORY);
    CHECK_MSG(ok, "cut at %lu", hx_ul(i));
    CHECK(!bitnet_gguf_open_memory(hx_bytes, hx_size, 0, &g, 0) && hx_size > 262144 + 65536);
    for (k = 0; k < 5; k++) {
        const bitnet__key *key = &g->file.keys[k];
        places[n++] = (size_t)key->name.at - 8;
        places[n++] = (size_t)key->name.at;
        places[n++] = (size_t)key->name.at + key->name.len;
        places[n++] = (size_t)bitnet__value_offset(key);
        places[n++] = (size_t)(bitnet__value_offset(key) + key->size);
    }
    for (k = 0; k < 3; k++) {
        const bitnet__tensor *t = &g->file.tensors[k];
        const size_t end = (size_t)t->name.at + t->name.len;
        const size_t more[] = {(size_t)t->name.at - 8, (size_t)t->name.at, end, end + 4, end + 12,
                               end + (k ? 16 : 24), end + (k ? 24 : 32), (size_t)t->offset,
                               (size_t)(t->offset + t->size)};
        for (i = 0; i < 9; i++) places[n++] = more[i];
    }
    for (i = 65536; i < hx_size; i *= 2) places[n++] = i;
    bitnet_gguf_close(g);
    for (i = 0; i < n; i++)
        for (k = 0; k < 3; k++) {
            const size_t cut = places[i] + k - 1;
            int way;
            for (way = 1; way <= OPEN_IO && cut < hx_size; way *= 2)
                CHECK_MSG(cut_refused(cut, way), "cut at %lu, way %d", hx_ul(cut), way);
        }
    hx_accepted("uncut");
}

/* What small keys cost: most in files that hold little else. The last one is nothing. */
static void test_small_keys(void) {
    static const int counts[] = {1, 20, 126, 500, 4000, 7000, 8191, 8191};
    size_t end;
    int i, k;
    for (k = 0; k < 8; k++) {
        gb_file f = {0};
        gb_start(&f);
        for (i = 0; i < counts[k]; i++) {
            const char name[2] = {(char)(1 + i % 127), (char)(1 + i / 127 % 127)};
            gb_string(&f.keys, name, i < 127 ? 1 : 2);
            gb_uint(&f.keys, GB_U8, 4), gb_uint(&f.keys, 1, 1);
        }
        f.n_keys = (uint64_t)counts[k] + 1;
        end = 24 + f.keys.n;
        for (i = 0; i < 14 || (k == 7 && f.keys.n < 300000); i++) gb_uint(&f.keys, 0, 1);
        hx_bytes = gb_finish(&f, &hx_size, 0);
        hx_refused(ALL, BITNET_ERR_FORMAT, "GGUF key %d at offset %lu: it has no name", counts[k],
                   hx_ul(end + 8));
    }
}

/* ---- 11: types ---- */

/* A type that may take more bytes gets a place of its own. */
static int retype(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                  uint64_t *offset) {
    (void)n_dims, (void)dims;
    if (!strcmp(name, moved)) *type = moved_type, *offset = 65536;
    return 0;
}

static void test_types(void) {
    static const struct { uint32_t type; const char *name; } types[] = {
        {4, "Q4_2"}, {5, "Q4_3"}, {31, "Q4_0_4_4"}, {32, "Q4_0_4_8"}, {33, "Q4_0_8_8"},
        {37, "I8_S"}, {43, "unknown"}, {99, "unknown"}, {UINT32_MAX, "unknown"}
    };
    static const char *const some[] = {"token_embd.weight", "blk.0.attn_q.weight",
                                       "blk.0.ffn_norm.weight", "output_norm.weight"};
    size_t i, k;
    for (i = 0; i < sizeof types / sizeof types[0]; i++)
        for (k = 0; k < 4; k++) {
            gb_model m = tiny();
            moved = some[k];
            moved_type = types[i].type;
            m.file.tensor_hook = retype;
            gb_make_model(&m);
            hx_size = m.header + 65536 + 16384;
            hx_bytes = (uint8_t *)calloc(hx_size, 1);
            if (!hx_bytes) exit(3);
            memcpy(hx_bytes, m.data, m.size);
            hx_refused(LOADS, BITNET_ERR_UNSUPPORTED, "tensor '%s' at offset %lu: unsupported "
                       "tensor type %lu (%s)", some[k], hx_ul(m.header + 65536),
                       (unsigned long)types[i].type, types[i].name);
            gb_free_model(&m);
        }
}

/* Type 39 is BitNet's TL2 or ggml's MXFP4, in whose bytes it comes here: in a file that says
   nothing of BitNet, and in one that does. */
static uint8_t *mxfp4_bytes(gb_linear *l, uint32_t *type, size_t *size) {
    *type = 39;
    *size = (size_t)l->n_in * (size_t)l->n_out / 32 * 17;
    return (uint8_t *)calloc(*size, 1);
}

static void test_type_39(void) {
    int i;
    for (i = 0; i < 2; i++) {
        gb_model m = {.arch = i ? "bitnet-b1.58" : "llama", .dim = 256, .ffn = 256, .layers = 1,
                      .heads = 2, .kv_heads = 2, .eps = 1e-5f, .no_sub_norms = !i, .seed = 4};
        m.encode = mxfp4_bytes;
        gb_make_model(&m);
        hx_bytes = m.data;
        hx_size = m.size;
        m.data = 0;
        hx_refused(LOADS, BITNET_ERR_UNSUPPORTED, "tensor 'blk.0.attn_q.weight' at offset %lu: "
                   "unsupported tensor type 39 (MXFP4)", hx_ul(m.header + 259 * 256 * 4 + 256 * 4));
        gb_free_model(&m);
    }
}

/* If its bytes are neither's, the file type says which it is where the architecture does not. */
static uint8_t *neither_bytes(gb_linear *l, uint32_t *type, size_t *size) {
    *type = 39;
    *size = (size_t)l->n_in * (size_t)l->n_out;
    return (uint8_t *)calloc(*size, 1);
}

static uint32_t file_type;

static void add_file_type(gb_file *f) { gb_key_u32(f, "general.file_type", file_type); }

static void test_file_type_39(void) {
    for (file_type = 38; file_type < 40; file_type++) {
        gb_model m = {.arch = "llama", .dim = 256, .ffn = 256, .layers = 1, .heads = 2,
                      .kv_heads = 2, .eps = 1e-5f, .no_sub_norms = 1, .seed = 4};
        m.encode = neither_bytes;
        m.file.add_keys = add_file_type;
        gb_make_model(&m);
        hx_bytes = m.data;
        hx_size = m.size;
        m.data = 0;
        hx_refused(LOADS, BITNET_ERR_UNSUPPORTED, "%s", file_type == 39 ? "' is TL2 of 256 rows"
                   : "unsupported tensor type 39 (MXFP4)");
        gb_free_model(&m);
    }
}

extern const test_case hostile_tests[];
const test_case hostile_tests[] = {
    {"hostile/counts", test_counts},
    {"hostile/one_off", test_one_off},
    {"hostile/end", test_end},
    {"hostile/lengths", test_lengths},
    {"hostile/arrays", test_arrays},
    {"hostile/nested", test_nested},
    {"hostile/many_arrays", test_many_arrays},
    {"hostile/n_dims", test_n_dims},
    {"hostile/preamble", test_preamble},
    {"hostile/names", test_bad_names},
    {"hostile/written_names", test_written_names},
    {"hostile/twins", test_twins},
    {"hostile/many_names", test_many_names},
    {"hostile/alignments", test_alignments},
    {"hostile/wrong_types", test_wrong_types},
    {"hostile/shapes", test_shapes},
    {"hostile/places", test_places},
    {"hostile/sums", test_sums},
    {"hostile/many_places", test_many_places},
    {"hostile/cuts", test_cuts},
    {"hostile/small_keys", test_small_keys},
    {"hostile/types", test_types},
    {"hostile/type_39", test_type_39},
    {"hostile/file_type_39", test_file_type_39},
    {0, 0}
};
