/* What loading through callbacks holds at a time, and what it asks for: every byte once, in the
   order of the file. */
#include "hybrid_builder.h"
#include "model_helpers.h"
#include "ternary_helpers.h"
#include "test.h"

/* Reads as from a stream: what lies in front of the last read is gone. */
typedef struct stream { gb_reader reader; uint64_t at; int back; } stream;

static bitnet_result read_on(void *ud, uint64_t offset, void *dst, size_t n) {
    stream *s = (stream *)ud;
    if (offset < s->at) s->back = 1;
    s->at = offset + n;
    return gb_read(&s->reader, offset, dst, n);
}

static bitnet_io stream_of(stream *s, const void *data, size_t size) {
    bitnet_io io = gb_io(&s->reader, data, size);
    s->at = 0;
    s->back = 0;
    io.read_fn = read_on;
    return io;
}

/* The bytes in the file of the layer that has most of them. */
static uint64_t largest_layer(const bitnet_model *m) {
    uint64_t largest = 0, bytes, i;
    int32_t layer;
    for (layer = 0; layer < m->n_layers; layer++) {
        for (i = bytes = 0; i < m->gguf.n_tensors; i++)
            if (bitnet__layer_of(m, &m->gguf.tensors[i]) == layer) bytes += m->gguf.tensors[i].size;
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

/* Loads a file with every table. At most, memory holds what the model keeps, a layer as it is in
   the file or a slice of the head, and some KB. What it keeps may be larger than the file's
   weights, as digits become codes of 2 bits, but it is not both. */
static void check_peak(const uint8_t *data, size_t size, uint64_t slice, const char *what) {
    int k;
    for (k = 0; k < bitnet_kernels_count(); k++) {
        const bitnet_kernels *table = bitnet_kernels_get(k);
        gb_counter count;
        stream s;
        const bitnet_io io = stream_of(&s, data, size);
        bitnet_model_params p;
        bitnet_model *m = 0;
        bitnet_error err = {BITNET_OK, "", {0}};
        uint64_t extra;
        if (!bitnet_kernels_usable(table)) continue;
        memset(&p, 0, sizeof p);
        p.allocator = gb_counting(&count);
        p.kernels = table;
        p.tile = imp.tile;
        if (bitnet_model_load_io(&io, &p, &m, &err)) {
            test_fail(__FILE__, __LINE__, "%s, %s: %s", what, table->name, err.text);
            return;
        }
        extra = largest_layer(m) > slice ? largest_layer(m) : slice;
        CHECK_MSG(count.peak <= count.live_bytes + extra + 65536 && !s.back,
                  "%s, %s: at most %lu bytes, %lu in the end; a layer or slice has %lu; back: %d",
                  what, table->name, (unsigned long)count.peak, (unsigned long)count.live_bytes,
                  (unsigned long)extra, s.back);
        CHECK(s.at == size && size > 8 * 65536);
        CHECK_MSG((double)count.live_bytes < 1.3 * (double)size + 65536, "%s, %s: %lu bytes stay "
                  "of %lu", what, table->name, (unsigned long)count.live_bytes,
                  (unsigned long)size);
        bitnet_model_free(m);
        CHECK(!count.live);
    }
}

static void test_peak(void) {
    static const struct { uint32_t type; int shape, differ; } cases[] = {
        {IMP_I2S, 0, 0}, {IMP_TL1, 0, 0}, {IMP_TL2, 1, 0}, {IMP_TQ1, 2, 0}, {IMP_TQ1, 2, 1},
        {IMP_TQ2, 2, 0}, {IMP_TQ2, 2, 1}, {IMP_Q1, 2, 1}, {IMP_Q2, 2, 1}, {IMP_PQ2, 2, 1},
        {IMP_PTQ1, 2, 1}};
    static const int sizes[3][5] = {
        {384, 640, 4, 2, 96}, {320, 448, 2, 1, 160}, {256, 512, 4, 2, 64}};
    const bitnet_tile tile = {32, 96, 32};
    hybrid h = small_hybrid();
    char what[40];
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int *n = sizes[cases[i].shape];
        gb_model g = {.dim = n[0], .ffn = n[1], .layers = 6, .heads = n[2], .kv_heads = n[3],
                      .head_dim = n[4], .embed_type = GB_TENSOR_F16, .n_ctx = 16, .seed = 31,
                      .encode = imp_encode};
        imp = (struct imp_setting){cases[i].type, tile, 0, 0, cases[i].differ, 0};
        if (cases[i].type == IMP_TL1) imp.tile.cols = 64;
        gb_make_model(&g);
        snprintf(what, sizeof what, "type %u, scales %d", (unsigned)cases[i].type, cases[i].differ);
        check_peak(g.data, g.size, 0, what);
        gb_free_model(&g);
    }
    h.dim = 256;
    h.ffn = 512;
    make_hybrid(&h);
    check_peak(h.data, h.size, 0, "hybrid");
    free_hybrid(&h);
}

/* ---- a large head ---- */

enum { HEAD_DIM = 512, HEAD_ROWS = 40000, HEAD_SLICE = 4 << 20 };

/* A header of 11.5 MB, for which 16 MB are read: over 4 MB of the embedding, but not all. */
static void add_long_keys(gb_file *f) {
    char name[40], text[100001];
    int i;
    memset(text, 'x', 100000);
    text[100000] = 0;
    for (i = 0; i < 115; i++) {
        snprintf(name, sizeof name, "general.note.%d", i);
        gb_key_str(f, name, text);
    }
}

/* One layer, and a head in blocks: the embedding, or (how 1) one of its own. how 2: the header is
   long. */
static gb_model large_head(uint32_t type, int how, uint8_t **raw) {
    gb_model g = {.arch = "llama", .dim = HEAD_DIM, .ffn = 256, .layers = 1, .heads = 4,
                  .kv_heads = 2, .head_dim = 64, .eps = 1e-5f, .no_sub_norms = 1, .n_ctx = 16,
                  .spare_rows = HEAD_ROWS - 259, .embed_type = GB_TENSOR_F16, .seed = 3,
                  .encode = imp_encode};
    const size_t n = (size_t)HEAD_ROWS * HEAD_DIM, blocks = n / (size_t)imp_shape_of(type).weights;
    int8_t *w = (int8_t *)gb_malloc(n);
    float *scales = (float *)gb_malloc(blocks * sizeof *scales);
    uint64_t random = 9;
    size_t i, size;
    imp = (struct imp_setting){IMP_Q2, {0, 0, 0}, 0, 0, 1, 0};
    for (i = 0; i < n; i++) w[i] = (int8_t)(gb_random(&random) % 3) - 1;
    for (i = 0; i < blocks; i++) scales[i] = (float)gb_uniform(&random, 0.001, 0.01);
    *raw = imp_blocks(type, w, n, scales, &size);
    if (how == 2) g.file.add_keys = add_long_keys;
    if (how == 1) {
        g.untied = 1;
        g.head_type = type;
        g.head_raw = *raw;
        g.head_raw_size = size;
    } else {
        g.embed_type = type;
        g.embed_raw = *raw;
        g.embed_raw_size = size;
    }
    gb_make_model(&g);
    free(w);
    free(scales);
    return g;
}

/* A head is packed as it comes, to what it is when all of it is there; what is wrong in it is found
   at its place. */
static void test_head(void) {
    static const uint32_t types[] = {IMP_Q2, IMP_PTQ1, IMP_Q2};
    static const bitnet_token tokens[] = {7, 42, 39000};
    const bitnet_ctx_params cp = ctx_params(4, 0, 1, BITNET_KV_F16);
    int i;
    for (i = 0; i < 3; i++) {
        uint8_t *raw;
        gb_model g = large_head(types[i], i, &raw);
        const imp_shape shape = imp_shape_of(types[i]);
        const size_t row = HEAD_DIM / (size_t)shape.weights * (size_t)shape.bytes;
        const size_t at = imp_offset(&g, i == 1 ? "output.weight" : "token_embd.weight");
        const size_t all = 3 * (size_t)HEAD_ROWS * sizeof(float);
        float *want = logits_of(g.data, g.size, 0, &cp, tokens, 3, 3);
        float *got = (float *)gb_malloc(all);
        bitnet_model *m = 0;
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet_ctx *c;
        stream s;
        bitnet_io io = stream_of(&s, g.data, g.size);
        char place[64];
        if (i < 2) check_peak(g.data, g.size, HEAD_SLICE, i ? "output" : "tied head");
        CHECK_MSG(!bitnet_model_load_io(&io, 0, &m, &err), "%s", err.text);
        c = create(m, &cp);
        CHECK(want && c && all_logits(c, tokens, 3, 3, got) && !memcmp(want, got, all));
        bitnet_ctx_free(c);
        bitnet_model_free(m);
        g.data[at + 39001 * row + 2 * (size_t)shape.bytes + (size_t)shape.scale_at + 1] = 0x7c;
        snprintf(place, sizeof place, "row 39001, column %d", 2 * shape.weights);
        io = stream_of(&s, g.data, g.size);
        CHECK(bitnet_model_load_io(&io, 0, &m, &err) == BITNET_ERR_FORMAT);
        CHECK_MSG(strstr(err.text, place), "%s", err.text);
        free(want);
        free(got);
        free(raw);
        gb_free_model(&g);
    }
}

/* ---- the end ---- */

/* Zeros behind the last tensor are read to the end, and nothing else may be there. */
static void test_tail(void) {
    const size_t more = 3 * 65536 + 7;
    gb_model g = {.dim = 64, .ffn = 64, .layers = 1, .heads = 2, .kv_heads = 1, .n_ctx = 16,
                  .embed_type = GB_TENSOR_F16, .seed = 5, .file = {.alignment = GB_SPREAD}};
    uint8_t *longer;
    size_t places[3], i;
    gb_make_model(&g);
    longer = (uint8_t *)gb_malloc(g.size + more);
    memset(longer, 0, g.size + more);
    memcpy(longer, g.data, g.size);
    places[0] = g.size + 33;
    places[1] = g.size + more / 2;
    places[2] = g.size + more - 1;
    for (i = 0; i < 4; i++) {
        gb_counter count;
        stream s;
        const bitnet_io io = stream_of(&s, longer, g.size + more);
        bitnet_model_params p;
        bitnet_model *m = 0;
        bitnet_error err = {BITNET_OK, "", {0}};
        char place[64];
        memset(&p, 0, sizeof p);
        p.allocator = gb_counting(&count);
        if (i < 3) longer[places[i]] = 1;
        CHECK_MSG(bitnet_model_load_io(&io, &p, &m, &err) ==
                  (i < 3 ? BITNET_ERR_FORMAT : BITNET_OK), "%s", err.text);
        snprintf(place, sizeof place, "offset %lu,", (unsigned long)places[i % 3]);
        CHECK_MSG(i == 3 || strstr(err.text, place), "%s", err.text);
        CHECK(!s.back && !s.reader.past_end && (i < 3 || s.at == g.size + more));
        bitnet_model_free(m);
        CHECK(!count.live);
        if (i < 3) longer[places[i]] = 0;
    }
    free(longer);
    gb_free_model(&g);
}

extern const test_case load_tests[];
const test_case load_tests[] = {
    {"load/peak", test_peak},
    {"load/head", test_head},
    {"load/tail", test_tail},
    {0, 0}
};
