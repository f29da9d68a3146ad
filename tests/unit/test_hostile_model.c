/* Bad models in good GGUF: numbers, tensors, tokens and weights that no network can have, each
   refused by its name and place, and files that change while they are read. What test_gguf.c,
   test_tokenizer.c, test_sentencepiece.c and test_ternary_formats.c have is not here again. Uses
   the helpers of test_gguf.c and test_model.c. */

#include "gguf_helpers.h"
#include "model_helpers.h"
#include <time.h>

/* Loads in both ways, with the promises of try_load, and within a second; the result must be code,
   the text must hold the two words. Takes the model over. */
static void hm_expect(gb_model *m, bitnet_result code, const char *word, const char *word2) {
    const clock_t start = clock();
    int way;
    if (!m->data) gb_make_model(m);
    for (way = 0; way < 2; way++) {
        const int got = try_load(m->data, m->size, way, 0, word ? word : "loads", 0);
        if (got && got != (code == BITNET_OK ? 2 : 1))
            test_fail(__FILE__, __LINE__, "%s %s, way %d: it %s", word ? word : "",
                      word2 ? word2 : "", way, got == 2 ? "loads" : "is refused");
    }
    if ((double)(clock() - start) / CLOCKS_PER_SEC > (test_quick() ? 20 : 2))
        test_fail(__FILE__, __LINE__, "%s takes long", word ? word : "it");
    expect(m, code, word, word2);
}

/* ---- weights: code 3 ---- */

static void hm_set_code(uint8_t *w, bitnet_i2s_packing layout, size_t n, size_t i, int code) {
    int shift;
    const size_t at = gb_code_at(layout, n, i, &shift);
    w[at] = (uint8_t)((w[at] & ~(3 << shift)) | code << shift);
}

/* The first of some codes 3 is found, in the order of rows and columns, however many threads there
   are; and none where there is none. */
static void test_code_3_places(void) {
    static const int shapes[][2] = {{128, 4}, {384, 8}, {192, 8}, {96, 8}, {66, 64}, {2304, 36}};
    uint64_t seed = 17;
    size_t s;
    int layout, round, rounds = test_quick() ? 6 : 40;
    for (s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (layout = 0; layout < 3; layout++)
            for (round = 0; round < rounds; round++) {
                const size_t n = (size_t)shapes[s][0], total = n * (size_t)shapes[s][1];
                uint8_t *w = (uint8_t *)gb_malloc(total / 4);  /* exact: ASan sees one byte more */
                bitnet_model m;
                bitnet__packing p;
                bitnet__linear l;
                size_t i, first = total;
                int k, bad = 0;
                memset(&m, 0, sizeof m);
                memset(&p, 0, sizeof p);
                memset(&l, 0, sizeof l);
                for (i = 0; i < total; i++)
                    hm_set_code(w, (bitnet_i2s_packing)layout, n, i, (int)(gb_random(&seed) % 3));
                for (k = 0; k < round % 4; k++) {
                    i = gb_random(&seed) % total;
                    if (round % 8 == 1) i = total - 1;
                    if (i < first) first = i;
                    hm_set_code(w, (bitnet_i2s_packing)layout, n, i, 3);
                }
                l.w = w;
                l.file.type = BITNET_TENSOR_I2_S;
                l.file.i2s_packing = (bitnet_i2s_packing)layout;
                l.file.n = shapes[s][0];
                l.file.rows = l.n_out = shapes[s][1];
                l.n_in = bitnet__padded_row(l.file.n);
                m.kernels = bitnet__kernels_scalar;
                l.plan = bitnet__choose_plan(&m, &l);
                p.m = &m;
                p.linear = &l;
                p.unit = 4;
                p.out = (uint8_t *)gb_malloc((size_t)l.n_in * (size_t)l.n_out / 4);
                for (p.jobs = 1; p.jobs <= 16; p.jobs += 1 + p.jobs / 4) {
                    const bitnet__unpacked *f = 0;
                    for (k = p.jobs - 1; k >= 0; k--) {
                        bitnet__pack_job(&p, k, 0);
                        if (p.found[k].invalid) f = &p.found[k];
                    }
                    if (!f) bad += first < total;
                    else bad += (size_t)f->row != first / n || (size_t)f->column != first % n ||
                                f->value != 3;
                }
                free(w);
                free(p.out);
                CHECK_MSG(bad == 0, "shape %d, packing %d, round %d", (int)s, layout, round);
            }
}

/* In a file: every table that can run, every packing, and rows that are filled up; what lies behind
   the codes is no weight. */
static void hm_code_3(int dim, int packing, const bitnet_kernels *k) {
    gb_model g = {.ffn = 192, .layers = 2, .heads = 2, .kv_heads = 1, .seed = 6};
    bitnet_model_params p;
    bitnet_model *m = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    uint64_t seed = (uint64_t)(dim + packing);
    uint8_t *w;
    bitnet_result r;
    char where[64];
    size_t i, n;
    g.dim = dim;
    g.packing = (bitnet_i2s_packing)packing;
    gb_make_model(&g);
    memset(&p, 0, sizeof p);
    p.kernels = k;
    p.i2s_packing = g.packing;
    r = bitnet_model_load_memory(g.data, g.size, &p, &m, &err);
    CHECK_MSG(r == BITNET_OK, "%s", err.text);
    w = g.data + bitnet__find_tensor(&m->gguf, "blk.1.ffn_gate.weight")->offset;
    bitnet_model_free(m);
    n = (size_t)dim * 192;
    i = gb_random(&seed) % n;
    memset(w + n / 4 + 4, 0xff, 28);
    r = bitnet_model_load_memory(g.data, g.size, &p, &m, &err);
    CHECK_MSG(r == BITNET_OK, "3 behind the scale: %s", err.text);
    bitnet_model_free(m);
    hm_set_code(w, g.packing, (size_t)dim, i, 3);
    snprintf(where, sizeof where, "(I2_S): invalid code 3 at row %d, column %d",
             (int)(i / (size_t)dim), (int)(i % (size_t)dim));
    r = bitnet_model_load_memory(g.data, g.size, &p, &m, &err);
    gb_free_model(&g);
    CHECK_MSG(r == BITNET_ERR_FORMAT && !m && strstr(err.text, "'blk.1.ffn_gate.weight'") &&
              strstr(err.text, where), "%s, packing %d, %d wide: %s", k->name, packing, dim,
              err.text);
}

static void test_code_3_files(void) {
    int i, packing;
    for (i = 0; i < bitnet_kernels_count(); i++)
        for (packing = 0; packing < 3 && bitnet_kernels_usable(bitnet_kernels_get(i)); packing++) {
            hm_code_3(128, packing, bitnet_kernels_get(i));
            hm_code_3(192, packing, bitnet_kernels_get(i));
        }
}

/* No tensor of any layer is left out, its last byte neither; and what is wrong with the tokenizer
   is said first. */
static void test_code_3_tensors(void) {
    static const char *const parts[] = {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate",
                                        "ffn_up", "ffn_down"};
    gb_model g = {.dim = 128, .ffn = 192, .layers = 8, .heads = 2, .kv_heads = 1, .seed = 7};
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_gguf *file = 0;
    bitnet_model *m = 0;
    size_t i;
    int k;
    gb_make_model(&g);
    CHECK_MSG(!bitnet_model_load_memory(g.data, g.size, 0, &m, &err), "%s", err.text);
    bitnet_model_free(m);
    CHECK(!bitnet_gguf_open_memory(g.data, g.size, 0, &file, &err));
    for (k = 0; k < 8 * 7; k++) {
        const bitnet__tensor *t;
        uint8_t *w, kept;
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", k / 7, parts[k % 7]);
        t = bitnet__find_tensor(&file->file, name);
        w = g.data + t->offset + (k % 2 ? (size_t)t->size - 33 : (size_t)k);   /* the last, too */
        kept = *w;
        *w = (uint8_t)(kept | 3 << k % 4 * 2);
        CHECK_MSG(bitnet_model_load_memory(g.data, g.size, 0, &m, &err) == BITNET_ERR_FORMAT &&
                  !m && strstr(err.text, name), "%s: %s", name, err.text);
        if (k < 8 * 7 - 1) *w = kept;
    }
    bitnet_gguf_close(file);
    for (i = 0; i < g.size && memcmp(g.data + i, "gpt2", 4); i++) { }
    g.data[i] = 'G';                   /* what is wrong with the tokenizer is said first */
    CHECK_MSG(bitnet_model_load_memory(g.data, g.size, 0, &m, &err) == BITNET_ERR_UNSUPPORTED &&
              !m && strstr(err.text, "'Gpt2'"), "%s", err.text);
    gb_free_model(&g);
}

/* ---- weights: scales, norms, missing bytes ---- */

/* A tensor's bytes in a built model. */
static uint8_t *hm_bytes(gb_model *g, const char *name, uint64_t *size) {
    bitnet_gguf_tensor t;
    bitnet_gguf *f = 0;
    if (!g->data) gb_make_model(g);
    if (bitnet_gguf_open_memory(g->data, g->size, 0, &f, 0) ||
        bitnet_gguf_find_tensor(f, name, &t)) exit(3);
    if (size) *size = t.size;
    bitnet_gguf_close(f);
    return g->data + t.offset;
}

static void hm_put_u32(uint8_t *p, uint32_t u) {
    int i;
    for (i = 0; i < 4; i++) p[i] = (uint8_t)(u >> (8 * i));
}

static void test_odd_scales(void) {
    static const struct { uint32_t bits; bitnet_result code; } scales[] = {
        {0x7fc00000u, BITNET_ERR_FORMAT}, {0xffc00001u, BITNET_ERR_FORMAT},     /* NaN */
        {0x7f800000u, BITNET_ERR_FORMAT}, {0xff800000u, BITNET_ERR_FORMAT},     /* infinities */
        {0x7149f2cau, BITNET_OK}, {0x7149f2cbu, BITNET_ERR_FORMAT},             /* 1e30 and above */
        {0, BITNET_ERR_FORMAT}, {0x80000000u, BITNET_ERR_FORMAT},               /* zeros */
        {0xbf800000u, BITNET_ERR_FORMAT}, {1, BITNET_OK}                        /* -1, 1e-45 */
    };
    size_t i;
    for (i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        gb_model m = tiny();
        uint64_t size;
        uint8_t *p = hm_bytes(&m, "blk.0.attn_k.weight", &size);
        hm_put_u32(p + size - 32, scales[i].bits);
        hm_expect(&m, scales[i].code, "scale of tensor 'blk.0.attn_k.weight'", "positive");
    }
}

static void test_odd_norms(void) {
    static const char *const norms[] = {"blk.0.attn_norm.weight", "blk.0.attn_sub_norm.weight",
        "blk.0.ffn_norm.weight", "blk.0.ffn_sub_norm.weight", "output_norm.weight"};
    static const uint32_t wild[] = {0x7fc00000u, 0x7f800000u, 0xff800000u, 0xff800001u};
    int i, k;
    for (i = 0; i < 5; i++)
        for (k = 0; k < 5; k++) {
            gb_model m = tiny();
            char where[64];
            uint8_t *p = hm_bytes(&m, norms[i], 0);
            hm_put_u32(p + 4 * (21 * k % 64), k < 4 ? wild[k] : 0xff7fffffu);  /* the lowest */
            snprintf(where, sizeof where, "element %d of tensor '%s'", 21 * k % 64, norms[i]);
            hm_expect(&m, k < 4 ? BITNET_ERR_FORMAT : BITNET_OK, where, "not finite");
        }
}

/* The file ends where a last tensor's scale begins, or inside it. */
static void test_no_scale(void) {
    size_t cut;
    for (cut = 0; cut <= 33; cut++) {
        gb_model m = tiny();
        m.file.omit = "output_norm.weight";
        gb_make_model(&m);
        m.size -= cut;
        if (cut) hm_expect(&m, BITNET_ERR_TRUNCATED, "'blk.0.ffn_down.weight'", "past the end");
        else hm_expect(&m, BITNET_ERR_FORMAT, "'output_norm.weight' is missing", 0);
    }
}

/* ---- shapes ---- */

static const char *const hm_tensors[] = {"token_embd.weight", "output_norm.weight",
    "output.weight", "blk.0.attn_norm.weight", "blk.0.attn_sub_norm.weight",
    "blk.0.ffn_norm.weight", "blk.0.ffn_sub_norm.weight", "blk.0.attn_q.weight",
    "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight",
    "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"};
enum { HM_TENSORS = (int)(sizeof hm_tensors / sizeof hm_tensors[0]) };

static int hm_shape;
static const char *hm_tensor;
static int hm_reshape(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                      uint64_t *offset) {
    (void)type, (void)offset;
    if (strcmp(name, hm_tensor)) return 0;
    switch (hm_shape) {
        case 0: dims[0] /= 2; break;
        case 1: *n_dims = 2, dims[1] = dims[1] ? dims[1] - 1 : 2, dims[0] /= 2; break;
        case 2: *n_dims = 3, dims[1] += dims[1] == 0, dims[2] = 2, dims[0] /= 2; break;
        case 3: *n_dims = 1, dims[0] = 32; break;
        case 4: dims[0] *= 8192; break;                    /* more than the file has */
        default: *n_dims = 4, dims[1] += dims[1] == 0, dims[2] = 512, dims[3] = 16; break;
    }
    return 0;
}

/* Every tensor of a network, in each wrong shape, by its name; larger than the data, too: no tensor
   is taken for the end of the list. Missing ones: gguf/missing. */
static void test_odd_shapes(void) {
    int i;
    for (i = 0; i < HM_TENSORS; i++)
        for (hm_shape = 0; hm_shape < 6; hm_shape++) {
            gb_model m = {.dim = 128, .ffn = 256, .layers = 1, .heads = 2, .kv_heads = 1,
                          .head_type = GB_TENSOR_F16, .untied = 1, .seed = 8};
            char name[64];
            m.file.tensor_hook = hm_reshape;
            hm_tensor = hm_tensors[i];
            snprintf(name, sizeof name, "ensor '%s'", hm_tensors[i]);
            hm_expect(&m, hm_shape < 4 ? BITNET_ERR_FORMAT : BITNET_ERR_TRUNCATED, name,
                      hm_shape < 4 ? "the metadata wants" : "past the end");
        }
}

/* ---- numbers ---- */

static void test_odd_numbers(void) {
    static const uint32_t bad_eps[] = {0, 0x80000000u, 0xb727c5acu, 0x7fc00000u, 0x7f800000u,
                                       0xff800000u, 0x40000000u};
    static const uint32_t bad_theta[] = {0, 0x80000000u, 0xc8f42400u, 0x7fc00000u, 0x7f800000u,
                                         0xff800000u, 0x3f000000u};
    static const struct { const char *name; uint64_t low, high, beyond; } sizes[] = {
        {"block_count", 1, 1, 2}, {"context_length", 1, 1 << 20, (1 << 20) + 1},
        {"attention.head_count", 2, 2, 4097}, {"attention.head_count_kv", 1, 1, 3},
        {"rope.dimension_count", 2, 32, 34}};
    char name[96];
    gb_model m;
    size_t i;
    for (i = 0; i < 7; i++) {
        number("bitnet-b1.58.attention.layer_norm_rms_epsilon", GB_F32, bad_eps[i], 4,
               BITNET_ERR_FORMAT);
        number("bitnet-b1.58.rope.freq_base", GB_F32, bad_theta[i], 4, BITNET_ERR_FORMAT);
    }
    for (i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "bitnet-b1.58.%s", sizes[i].name);
        number(name, GB_U32, sizes[i].low, 4, BITNET_OK);
        number(name, GB_U32, sizes[i].high, 4, BITNET_OK);
        number(name, GB_U32, 0, 4, BITNET_ERR_FORMAT);
        number(name, GB_U32, sizes[i].beyond, 4, BITNET_ERR_FORMAT);
        number(name, GB_U32, (uint64_t)1 << 31, 4, BITNET_ERR_FORMAT);
        number(name, GB_I32, (uint64_t)1 << 31, 4, BITNET_ERR_FORMAT);
        number(name, GB_U64, (uint64_t)1 << 63, 8, BITNET_ERR_FORMAT);
    }
    for (i = 3; i < 6; i++) {          /* 4 heads; 3 do not divide them, and 5 are too many */
        m = tiny();
        m.heads = 4;
        m.kv_heads = i == 4 ? 4 : (int)i;
        m.head_dim = 32;
        hm_expect(&m, i == 4 ? BITNET_OK : BITNET_ERR_FORMAT, "attention.head_count_kv'", 0);
    }
    m = tiny();
    m.n_rot = 31;
    hm_expect(&m, BITNET_ERR_FORMAT, "'bitnet-b1.58.rope.dimension_count'", "31");
}

/* ---- vocabularies ---- */

static struct { const char *key; uint32_t element; uint64_t count; int bytes; } hm_array;
static void hm_add_array(gb_file *f) {
    const char *const omitted = f->omit;
    int i;
    f->omit = 0;
    gb_key_array(f, hm_array.key, hm_array.element, hm_array.count);
    for (i = 0; i < hm_array.bytes; i++) gb_uint(&f->keys, hm_array.element == GB_I32 && i % 4 == 0,
                                                 1);
    f->omit = omitted;
}

/* A key becomes an array of so many elements, of zeros, or of ones if they are I32. */
static void hm_arrays(const char *key, uint32_t element, uint64_t count, int bytes,
                      bitnet_result code, const char *word) {
    gb_model m = tiny();
    m.file.omit = key;
    m.file.add_keys = hm_add_array;
    hm_array.key = key;
    hm_array.element = element;
    hm_array.count = count;
    hm_array.bytes = bytes;
    hm_expect(&m, code, key, word);
}

static void test_odd_arrays(void) {
    static const char type[] = "tokenizer.ggml.token_type", scores[] = "tokenizer.ggml.scores",
                      tokens[] = "tokenizer.ggml.tokens", merges[] = "tokenizer.ggml.merges";
    static const char each[] = "for each token";
    hm_arrays(type, GB_I32, 259, 4 * 259, BITNET_OK, 0);
    hm_arrays(type, GB_I32, 258, 4 * 258, BITNET_ERR_FORMAT, each);
    hm_arrays(type, GB_I32, 260, 4 * 260, BITNET_ERR_FORMAT, each);
    hm_arrays(type, GB_I32, 0, 0, BITNET_ERR_FORMAT, each);
    hm_arrays(type, GB_F32, 259, 4 * 259, BITNET_ERR_FORMAT, each);
    hm_arrays(type, GB_U8, 259, 259, BITNET_ERR_FORMAT, each);
    hm_arrays(type, GB_I64, 259, 8 * 259, BITNET_ERR_FORMAT, each);
    hm_arrays(type, GB_STR, 259, 8 * 259, BITNET_ERR_FORMAT, each);
    hm_arrays(scores, GB_F32, 259, 4 * 259, BITNET_OK, 0);     /* which byte-level BPE ignores */
    hm_arrays(scores, GB_F32, 258, 4 * 258, BITNET_ERR_FORMAT, each);
    hm_arrays(scores, GB_F32, 260, 4 * 260, BITNET_ERR_FORMAT, each);
    hm_arrays(scores, GB_F32, 0, 0, BITNET_ERR_FORMAT, each);
    hm_arrays(scores, GB_I32, 259, 4 * 259, BITNET_ERR_FORMAT, each);
    hm_arrays(scores, GB_F64, 259, 8 * 259, BITNET_ERR_FORMAT, each);
    hm_arrays(tokens, GB_STR, (uint64_t)1 << 31, 64, BITNET_ERR_TRUNCATED, "offset ");
    hm_arrays(tokens, GB_I32, 259, 4 * 259, BITNET_ERR_FORMAT, "strings");
    hm_arrays(merges, GB_STR, 0, 0, BITNET_OK, 0);
    hm_arrays(merges, GB_STR, (uint64_t)1 << 31, 64, BITNET_ERR_TRUNCATED, "offset ");
    hm_arrays(merges, GB_I32, 4, 16, BITNET_ERR_FORMAT, "strings");
}

static void test_odd_tokens(void) {
    static const char *const twice[] = {"ab", "ab"}, *const merge[] = {"a b"};
    static const char *const none[] = {"a c"};
    const char *big[1];
    char *text = (char *)gb_malloc((1 << 20) + 1);
    static const uint8_t control[] = {3};
    gb_model m = tiny();
    bitnet_model *model = 0;
    bitnet_token t[2];
    int n, found;
    m.words = twice;
    m.n_words = 2;
    m.merges = merge;
    m.n_merges = 1;
    gb_make_model(&m);                                     /* the first of two counts */
    CHECK(!bitnet_model_load_memory(m.data, m.size, 0, &model, 0));
    n = bitnet_tokenize(model, "ab", 2, 0, t, 2);
    found = token_named(model, "ab");
    bitnet_model_free(model);
    hm_expect(&m, BITNET_OK, 0, 0);
    CHECK(n == 1 && t[0] == 256 && found == 256);
    m = tiny();
    m.words = twice;
    m.n_words = 2;
    m.merges = none;
    m.n_merges = 1;
    hm_expect(&m, BITNET_ERR_FORMAT, "merge 0", "its result is not a token");
    memset(text, 'x', 1 << 20);
    text[1 << 20] = 0;
    big[0] = text;
    m = tiny();
    m.words = big;
    m.n_words = 1;
    m.word_types = control;
    hm_expect(&m, BITNET_ERR_LIMIT, "token 256", "over 1024 bytes");
    free(text);
}

/* A normal token of 1 MB: a text becomes it, and it becomes text. */
static void hm_put_long_vocab(gb_model *m) {
    gb_file *f = &m->file;
    int i, n = 0;
    gb_key_str(f, "tokenizer.ggml.model", "gpt2");
    gb_key_array(f, "tokenizer.ggml.tokens", GB_STR, 257);
    for (i = 0; i < 256; i++) {
        char c = (char)i;
        gb_spelled(&f->keys, &c, 1);
    }
    gb_uint(&f->keys, 1 << 20, 8);
    for (i = 0; i < 1 << 20; i++) gb_uint(&f->keys, 'x', 1);
    gb_key_array(f, "tokenizer.ggml.merges", GB_STR, (uint64_t)n);
}
static void test_long_token(void) {
    gb_model m = tiny();
    bitnet_model *model = 0;
    bitnet_token t[2] = {0, 0};
    bitnet_error err = {BITNET_OK, "", {0}};
    char *text = (char *)gb_malloc(1 << 20);
    int n, back;
    memset(text, 'x', 1 << 20);
    m.no_specials = 1;
    m.n_words = 1;
    m.put_vocab = hm_put_long_vocab;
    gb_make_model(&m);
    CHECK_MSG(!bitnet_model_load_memory(m.data, m.size, 0, &model, &err), "%s", err.text);
    n = bitnet_tokenize(model, text, 1 << 20, 0, t, 2);
    back = bitnet_detokenize(model, t, 1, text, 1 << 20);
    bitnet_model_free(model);
    free(text);
    hm_expect(&m, BITNET_OK, 0, 0);
    CHECK(n == 1 && t[0] == 256 && back == 1 << 20);
}

static void hm_special(const char *key, uint64_t id, bitnet_result code) {
    number(key, GB_U32, id, 4, code);
    if (id >> 31) number(key, GB_I32, id, 4, code);
}

static void test_special_ids(void) {
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id"};
    static const uint64_t beyond[] = {259, 260, (uint64_t)1 << 31, UINT32_MAX};
    gb_model m = tiny();
    bitnet_model *model = 0;
    bitnet_token t[4];
    int i, k, n;
    for (i = 0; i < 3; i++) {
        hm_special(keys[i], 258, BITNET_OK);
        hm_special(keys[i], 0, BITNET_OK);
        for (k = 0; k < 4; k++) hm_special(keys[i], beyond[k], BITNET_ERR_FORMAT);
    }
    m.no_specials = 1;                 /* no keys, nor anything to stand for them */
    gb_make_model(&m);
    CHECK(!bitnet_model_load_memory(m.data, m.size, 0, &model, 0));
    n = bitnet_tokenize(model, "a", 1, BITNET_ADD_BOS, t, 4);
    i = model->vocab.bos == -1 && model->vocab.eos == -1 && model->vocab.eot == -1 &&
        !model->vocab.add_bos;
    k = bitnet_token_is_end(model, -1) || bitnet_token_is_end(model, 255);
    bitnet_model_free(model);
    hm_expect(&m, BITNET_OK, 0, 0);
    CHECK(i && !k && n == 1 && t[0] == 97);
    m = tiny();                        /* an id of a row that has no text */
    m.spare_rows = 40;
    m.file.omit = "tokenizer.ggml.bos_token_id";
    m.file.add_keys = add_number;
    number_name = m.file.omit;
    number_type = GB_U32;
    number_value = 290;
    number_bytes = 4;
    hm_expect(&m, BITNET_OK, 0, 0);
}

/* ---- numbers that are not finite ---- */

/* Each number of a row is looked at, wherever it lies; the largest and the smallest pass. */
static void test_each_number(void) {
    static const uint32_t wild[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u, ~0u};
    static const uint32_t good[] = {0x7f7fffffu, 0xff7fffffu, 0x80000000u, 0x00000001u};
    uint32_t bits[19] = {0};
    float x[19];
    int n, at, i, j;
    for (n = 1; n <= 19; n++)
        for (j = 0; j < 4; j++) {
            for (i = 0; i < n; i++) bits[i] = good[j];
            memcpy(x, bits, sizeof x);
            CHECK(bitnet__all_finite(x, n));
            for (at = 0; at < n; at++)
                for (i = 0; i < 5; i++) {
                    memcpy(x, bits, sizeof x);
                    memcpy(&x[at], &wild[i], 4);
                    CHECK_MSG(!bitnet__all_finite(x, n), "%x at %d of %d", (unsigned)wild[i], at,
                              n);
                }
        }
}

static gb_model hm_floats(void) {
    gb_model m = {.dim = 64, .ffn = 128, .layers = 2, .heads = 2, .kv_heads = 1, .n_ctx = 16,
                  .embed_type = GB_TENSOR_F32, .seed = 12};
    return m;
}

static const bitnet_token hm_tokens[6] = {7, 42, 5, 9, 3, 5};

/* Evaluates the six tokens behind one other, with every table, thread count and batch: the error
   names a place, the context is as before, and goes on as if nothing had happened. */
static void hm_eval_fails(const gb_model *g, bitnet_kv_type kv, const char *where) {
    const int step = test_quick() ? 3 : 1;
    int i, threads, batch;
    for (i = 0; i < bitnet_kernels_count(); i++)
        for (threads = 1; threads < 4 && bitnet_kernels_usable(bitnet_kernels_get(i)); threads++)
            for (batch = 1; batch < 7; batch += step) {
                bitnet_ctx_params p = ctx_params(8, batch, threads, kv);
                bitnet_model *m = load(g->data, g->size, bitnet_kernels_get(i));
                bitnet_ctx *c = create(m, &p), *fresh = create(m, &p);
                bitnet_error err = {BITNET_OK, "", {0}};
                bitnet_token first = 11;
                bitnet_result r = BITNET_OK;
                int ok = c && fresh && !bitnet_eval(c, 0, &first, 1, 1, 0) &&
                         bitnet_logits(c, 0, NULL);
                if (ok) r = bitnet_eval(c, 0, hm_tokens, 6, threads % 2 ? 6 : 1, &err);
                ok = ok && r == BITNET_ERR_FORMAT && strstr(err.text, where) &&
                     bitnet_seq_length(c, 0) == 1 && !bitnet_logits(c, -1, NULL) &&
                     bitnet_sample(c, -1, 0, NULL) == BITNET_ERR_ARG;
                ok = ok && !bitnet_eval(c, 0, hm_tokens, 2, 1, 0) &&
                     !bitnet_eval(fresh, 0, &first, 1, 1, 0) &&
                     !bitnet_eval(fresh, 0, hm_tokens, 2, 1, 0) &&
                     !memcmp(bitnet_logits(c, -1, NULL), bitnet_logits(fresh, -1, NULL),
                             (size_t)g->n_vocab * 4);
                bitnet_ctx_free(c);
                bitnet_ctx_free(fresh);
                bitnet_model_free(m);
                CHECK_MSG(ok, "%s, %d threads, batches of %d: not '%s' but %s (%d)",
                          bitnet_kernels_get(i)->name, threads, batch, where, err.text, (int)r);
            }
}

static void test_wild_embedding(void) {
    static const uint32_t wild[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u};
    int i, type;
    for (type = 0; type < 3; type++)
        for (i = 0; i < 4; i++) {
            gb_model g = hm_floats();
            const size_t at = 5 * 64 + (size_t)(i * 21);
            uint8_t *p;
            if (type == 1) g.embed_type = GB_TENSOR_F16;
            if (type == 2) g.embed_type = GB_TENSOR_BF16;
            p = hm_bytes(&g, "token_embd.weight", 0);
            if (type == 0) hm_put_u32(p + 4 * at, wild[i]);
            else {                     /* -infinity, and in F16 NaNs after it */
                p[2 * at + 1] = type == 1 ? 0xfc : 0xff;
                p[2 * at] = (uint8_t)(type == 1 ? i : 0x80);
            }
            if (i == 0 || !test_quick())
                hm_eval_fails(&g, i % 2 ? BITNET_KV_F16 : BITNET_KV_I8,
                              "token 5 at position 3: its embedding");
            gb_free_model(&g);
        }
}

/* Token 5 is made to fit the weights of a value's first row, so well that it does not fit F16 any
   more: an infinity in layer 0. The embedding of token 9 after it is worse, but comes later. */
static void hm_fit(gb_model *g, int later) {
    uint64_t size;
    uint8_t *embed = hm_bytes(g, "token_embd.weight", 0), *v;
    uint32_t u;
    float scale = 2700.0f, x;
    int i;
    for (i = 0; i < 64; i++) {
        x = (float)g->layer[0].v.w[i];
        memcpy(&u, &x, 4);
        hm_put_u32(embed + 4 * (5 * 64 + i), u);
    }
    if (later) hm_put_u32(embed + 4 * (9 * 64), 0x7fc00000u);
    v = hm_bytes(g, "blk.0.attn_v.weight", &size);
    memcpy(&u, &scale, 4);
    hm_put_u32(v + size - 32, u);
}

static void test_wild_layers(void) {
    gb_model g = hm_floats();
    bitnet_ctx_params p = ctx_params(8, 0, 1, BITNET_KV_F32);
    float *logits;
    hm_fit(&g, 0);
    hm_eval_fails(&g, BITNET_KV_F16, "token 5 at position 3: the output of layer 0");
    logits = logits_of(g.data, g.size, &bitnet__kernels_scalar, &p, hm_tokens, 6, 6);
    CHECK(logits);                     /* in F32 it fits */
    free(logits);
    gb_free_model(&g);
    g = hm_floats();
    hm_fit(&g, 1);
    hm_eval_fails(&g, BITNET_KV_F16, "token 5 at position 3: the output of layer 0");
    hm_eval_fails(&g, BITNET_KV_F32, "token 9 at position 4: its embedding");
    gb_free_model(&g);
}

/* Numbers so large that their product is none, in layer 1, at the first token, so that nothing at
   all can be evaluated: of gate and up, where only int8 comes after it, in which a NaN is a number;
   and behind down, where nothing comes after the last layer. */
static void hm_overflow(int down) {
    gb_model g = hm_floats();
    const char *const names[] = {down ? "blk.1.ffn_down.weight" : "blk.1.ffn_gate.weight",
                                 "blk.1.ffn_up.weight"};
    int i, threads;
    for (i = 0; i < 2 - down; i++) {
        uint64_t size;
        uint8_t *w = hm_bytes(&g, names[i], &size);
        hm_put_u32(w + size - 32, 0x7149f2cau);            /* 1e30 */
    }
    for (i = 0; i < 128 && down; i++)
        hm_put_u32(hm_bytes(&g, "blk.1.ffn_sub_norm.weight", 0) + 4 * i, 0x4cbebc20u);  /* 1e8 */
    for (threads = 1; threads < 3; threads++)
        for (i = 1; i < 4; i++) {
            bitnet_ctx_params p = ctx_params(8, i, threads, BITNET_KV_F16);
            bitnet_model *m = load(g.data, g.size, 0);
            bitnet_ctx *c = create(m, &p);
            bitnet_error err = {BITNET_OK, "", {0}};
            bitnet_result r = c ? bitnet_eval(c, 0, hm_tokens, 6, 1, &err) : BITNET_OK;
            const int length = c ? bitnet_seq_length(c, 0) : -1;
            bitnet_ctx_free(c);
            bitnet_model_free(m);
            CHECK_MSG(r == BITNET_ERR_FORMAT && length == 0 &&
                      strstr(err.text, "token 7 at position 0: the output of layer 1"), "%d: %s",
                      down, err.text);
        }
    gb_free_model(&g);
}
static void test_overflow(void) {
    hm_overflow(0);
    hm_overflow(1);
}

/* Evaluates 6 tokens with a model, which it frees. length: what the sequence holds then. */
static bitnet_result hm_eval(gb_model *g, int kv, int batch, int threads, int *length,
                             bitnet_error *err) {
    const bitnet_ctx_params p = ctx_params(8, batch, threads, (bitnet_kv_type)kv);
    bitnet_model *m = load(g->data, g->size, 0);
    bitnet_ctx *c = create(m, &p);
    const bitnet_result r = c ? bitnet_eval(c, 0, hm_tokens, 6, 1, err) : BITNET_ERR_ARG;
    *length = c ? bitnet_seq_length(c, 0) : -1;
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(g);
    return r;
}

/* Queries, keys or values of layer 1 that overflow: in int8 an infinity would be a number, and so
   would a NaN. The error has the first token, and the layer. */
static void test_wild_attention(void) {
    static const char *const names[] = {"blk.1.attn_q.weight", "blk.1.attn_k.weight",
                                        "blk.1.attn_v.weight"};
    int i, j, kv, batch, length;
    for (i = 0; i < 3; i++)
        for (kv = BITNET_KV_F16; kv <= BITNET_KV_I8; kv++)
            for (batch = 1; batch <= 6; batch += 5) {
                gb_model g = hm_floats();
                bitnet_error err = {BITNET_OK, "", {0}};
                bitnet_result r;
                uint64_t size;
                uint8_t *w = hm_bytes(&g, names[i], &size);
                hm_put_u32(w + size - 32, 0x7149f2cau);            /* 1e30 */
                w = hm_bytes(&g, "blk.1.attn_norm.weight", 0);
                for (j = 0; j < 64; j++) hm_put_u32(w + 4 * j, 0x5d5e0b6bu);   /* 1e18 */
                r = hm_eval(&g, kv, batch, 1 + i % 2, &length, &err);
                CHECK_MSG(r == BITNET_ERR_FORMAT && length == 0 &&
                          strstr(err.text, "token 7 at position 0: the output of layer 1"),
                          "%s, kv_type %d: %s", names[i], kv, err.text);
            }
}

/* Queries or keys so large that scores could overflow, and keys too large for F16: softmax would
   make weights of that which look like any others. Where they fit they pass. */
static void test_wild_scores(void) {
    static const struct { const char *name; uint32_t scale; } wild[] = {
        {"blk.1.attn_k.weight", 0x49742400u},              /* 1e6 */
        {"blk.1.attn_q.weight", 0x68454e3du}, {"blk.1.attn_k.weight", 0x68454e3du} /* 3.7e24 */
    };
    int i, kv, batch, length;
    for (i = 0; i < 3; i++)
        for (kv = BITNET_KV_F16; kv <= BITNET_KV_I8; kv++)
            for (batch = 1; batch <= 6; batch += 5) {
                const int fits = i == 0 && kv != BITNET_KV_F16;
                gb_model g = hm_floats();
                bitnet_error err = {BITNET_OK, "", {0}};
                bitnet_result r;
                uint64_t size;
                uint8_t *w = hm_bytes(&g, wild[i].name, &size);
                hm_put_u32(w + size - 32, wild[i].scale);
                r = hm_eval(&g, kv, batch, 1 + i % 2, &length, &err);
                CHECK_MSG(fits ? r == BITNET_OK && length == 6
                               : r == BITNET_ERR_FORMAT && length == 0 &&
                                 strstr(err.text, "token 7 at position 0: the output of layer 1"),
                          "%s, kv_type %d: %s", wild[i].name, kv, err.text);
            }
}

/* Nothing but zeros: defined, and the same with every table. */
static void test_zeros(void) {
    gb_model g = hm_floats();
    const bitnet_token t = 5;
    int i, k, bad = 0, n = 0;
    memset(hm_bytes(&g, "token_embd.weight", 0) + 4 * 5 * 64, 0, 4 * 64);
    for (i = 0; i < bitnet_kernels_count(); i++) {
        bitnet_ctx_params p = ctx_params(8, 0, 1, BITNET_KV_F16);
        bitnet_model *m;
        bitnet_ctx *c;
        const float *logits;
        if (!bitnet_kernels_usable(bitnet_kernels_get(i))) continue;
        m = load(g.data, g.size, bitnet_kernels_get(i));
        c = create(m, &p);
        logits = c && !bitnet_eval(c, 0, &t, 1, 1, 0) ? bitnet_logits(c, 0, NULL) : 0;
        for (k = 0; logits && k < g.n_vocab; k++) bad += logits[k] != 0.0f;
        bad += !logits || bitnet_sample(c, -1, 0, NULL) != 0;
        n++;
        bitnet_ctx_free(c);
        bitnet_model_free(m);
    }
    gb_free_model(&g);
    CHECK(bad == 0 && n > 0);
}

/* A guess that cannot be evaluated does not show: token 5, which follows in the context, has become
   a NaN. */
static uint8_t *hm_row;
static int hm_spoil(void *ud, const char *text, size_t n, bitnet_token t) {
    bitnet_token *out = (bitnet_token *)ud;
    (void)text, (void)n;
    hm_put_u32(hm_row, 0x7fc00000u);
    while (*out >= 0) out++;
    *out = t;
    return 0;
}
static void test_wild_guess(void) {
    static const bitnet_token prompt[] = {10, 11, 12, 5, 10, 11};
    const bitnet_logit_bias force = {12, 1e6f};
    gb_model g = hm_floats();
    bitnet_model *m;
    uint32_t keep;
    int i;
    gb_make_model(&g);
    hm_row = hm_bytes(&g, "token_embd.weight", 0) + 4 * 5 * 64;
    keep = bitnet__get_u32(hm_row);
    m = load(g.data, g.size, 0);
    CHECK(m);
    for (i = 0; i < 2; i++) {
        bitnet_token got[8] = {-2, -2, -2, -2, -2, -2, -2, -2};
        bitnet_ctx_params p = ctx_params(16, 0, 1, BITNET_KV_F16);
        bitnet_generate_params gen;
        bitnet_sampler s;
        bitnet_error err = {BITNET_OK, "", {0}};
        bitnet_result r;
        bitnet_ctx *c;
        p.n_logits = 5;
        c = create(m, &p);
        memset(&gen, 0, sizeof gen);
        memset(&s, 0, sizeof s);
        s.bias = &force;
        s.n_bias = 1;
        gen.tokens = prompt;
        gen.n_tokens = 6;
        gen.max_tokens = 4;
        gen.lookup = 4 * i;
        gen.sampler = &s;
        gen.text_fn = hm_spoil;
        gen.text_ud = got;
        hm_put_u32(hm_row, keep);
        memset(got, 0xff, sizeof got);
        r = c ? bitnet_generate(c, &gen, 0, &err) : BITNET_ERR_MEMORY;
        bitnet_ctx_free(c);
        CHECK_MSG(r == BITNET_OK && got[0] == 12 && got[3] == 12 && got[4] == -1, "lookup %d: %s",
                  4 * i, err.text);
        CHECK_MSG(err.code == BITNET_OK && !err.text[0], "lookup %d, no failure: %s", 4 * i,
                  err.text);
    }
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* A prompt that cannot be evaluated, in its first batch or later, leaves what was there, pending
   token included; a new token that cannot be is pending. */
static void test_wild_prompt(void) {
    static const bitnet_token prompt[] = {10, 11, 12}, more[] = {13, 14, 5}, good[] = {13};
    static const bitnet_token all[] = {10, 11, 12, 12, 12, 13};
    bitnet_logit_bias force = {12, 1e6f};
    gb_model g = hm_floats();
    const size_t size = (size_t)g.n_vocab * sizeof(float);
    bitnet_model *m;
    uint32_t keep;
    int batch;
    hm_row = hm_bytes(&g, "token_embd.weight", 0) + 4 * 5 * 64;
    keep = bitnet__get_u32(hm_row);
    m = load(g.data, g.size, 0);
    CHECK(m);
    for (batch = 1; batch < 6; batch++) {
        bitnet_ctx_params p = ctx_params(16, batch, 1, BITNET_KV_F16);
        bitnet_ctx *c = create(m, &p), *other = create(m, &p);
        bitnet_token got[4] = {-1, -1, -1, -1};
        bitnet_generate_params gen;
        bitnet_sampler s;
        bitnet_error err = {BITNET_OK, "", {0}};
        CHECK(c && other);
        memset(&gen, 0, sizeof gen);
        memset(&s, 0, sizeof s);
        s.bias = &force;
        s.n_bias = 1;
        gen.tokens = prompt;
        gen.n_tokens = 3;
        gen.max_tokens = 2;
        gen.sampler = &s;
        force.token = 12;
        hm_put_u32(hm_row, 0x7fc00000u);
        CHECK(!bitnet_generate(c, &gen, 0, 0));
        gen.tokens = more;
        CHECK(bitnet_generate(c, &gen, 0, &err) == BITNET_ERR_FORMAT &&
              strstr(err.text, "token 5 at position 7"));
        CHECK(bitnet_seq_length(c, 0) == 4 && bitnet_seq_pending(c, 0) == 12 &&
              !bitnet_logits(c, -1, NULL));
        CHECK(bitnet_eval(c, 0, more, 3, 1, 0) == BITNET_ERR_FORMAT);
        CHECK(bitnet_seq_length(c, 0) == 4 && bitnet_seq_pending(c, 0) == 12 &&
              !bitnet_logits(c, -1, NULL));
        gen.tokens = 0;                /* on from 12; then comes 5 */
        gen.max_tokens = 3;
        gen.text_fn = hm_spoil;
        gen.text_ud = got;
        force.token = 5;
        hm_put_u32(hm_row, keep);
        CHECK(bitnet_generate(c, &gen, 0, &err) == BITNET_ERR_FORMAT &&
              strstr(err.text, "token 5 at position 5"));
        CHECK(bitnet_seq_length(c, 0) == 5 && bitnet_seq_pending(c, 0) == 5 && got[1] == -1);
        CHECK(bitnet_generate(c, &gen, 0, &err) == BITNET_ERR_FORMAT);
        CHECK(bitnet_seq_length(c, 0) == 5 && bitnet_seq_pending(c, 0) == 5);
        CHECK(!bitnet_seq_rewind(c, 0, 5, NULL) && bitnet_seq_pending(c, 0) == -1);
        CHECK(!bitnet_eval(c, 0, good, 1, 1, 0) && !bitnet_eval(other, 0, all, 6, 1, 0));
        CHECK(!memcmp(bitnet_logits(c, -1, NULL), bitnet_logits(other, -1, NULL), size));
        bitnet_ctx_free(c);
        bitnet_ctx_free(other);
    }
    bitnet_model_free(m);
    gb_free_model(&g);
}

/* ---- files that change ---- */

#ifndef BITNET_NO_STDIO
static char hm_path[512];

static int hm_write(const void *p, size_t n) {
    FILE *f = fopen(hm_path, "wb");
    const int ok = f && fwrite(p, 1, n, f) == n;
    return f && fclose(f) == 0 && ok;
}

static int hm_shrink_at;
static int hm_shrink(void *ud, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    if (hm_shrink_at-- == 0) hm_write(ud, 100);
    return 0;
}

/* Copied, a model does not care about its file any more; a file that gets shorter meanwhile ends
   the load, wherever that happens. */
static void test_copy(void) {
    gb_model g = tiny();
    bitnet_ctx_params cp = ctx_params(8, 0, 1, BITNET_KV_F16);
    float *want, *got = (float *)gb_malloc(3 * 259 * sizeof *got);
    bitnet_model_info info[2];
    bitnet_model_params p;
    bitnet_model *m = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    gb_counter count;
    bitnet_ctx *c;
    int i, same, refused = 0;
    g.file.alignment = GB_SPREAD;
    gb_make_model(&g);
    snprintf(hm_path, sizeof hm_path, "%.500s", test_path("copy.gguf"));
    if (!hm_write(g.data, g.size)) SKIP("cannot write %s", hm_path);
    want = logits_of(g.data, g.size, 0, &cp, hm_tokens, 3, 3);
    memset(&p, 0, sizeof p);
    for (i = 0; i < 2; i++) {
        p.copy = i;
        bitnet_model_load_file(hm_path, &p, &m, &err);
        CHECK_MSG(m, "%s", err.text);
        bitnet_model_get_info(m, &info[i]);
        if (i) hm_write("gone", 4);
        c = create(m, &cp);
        same = want && c && all_logits(c, hm_tokens, 3, 3, got) &&
               !memcmp(got, want, 3 * 259 * sizeof *got);
        bitnet_ctx_free(c);
        bitnet_model_free(m);
        CHECK_MSG(same, "copy %d", i);
    }
    free(want);
    free(got);
#if !defined(BITNET_NO_MMAP) && !defined(__EMSCRIPTEN__)     /* there every file is read */
    CHECK(info[1].own_bytes > info[0].own_bytes + 2 * 259 * 64);       /* the embedding */
#endif
    CHECK(info[1].file_bytes == g.size);
    p.progress_fn = hm_shrink;
    p.progress_ud = g.data;
    p.allocator = gb_counting(&count);
    for (i = 0; i < 100; i++) {
        hm_write(g.data, g.size);
        hm_shrink_at = i;
        m = (bitnet_model *)(void *)&p;
        if (bitnet_model_load_file(hm_path, &p, &m, &err) == BITNET_OK) break;
        CHECK_MSG(err.code == BITNET_ERR_TRUNCATED && !m && strstr(err.text, "reading tensor '") &&
                  strstr(err.text, "offset"), "%d: %s", i, err.text);
        refused++;
        CHECK(count.live == 0);
    }
    bitnet_model_free(m);
    remove(hm_path);
    gb_free_model(&g);
    CHECK_MSG(count.live == 0 && i < 100 && refused > 0, "%d, %d refused", i, refused);
}
#endif

extern const test_case hostile_model_tests[];
const test_case hostile_model_tests[] = {
    {"hostile_model/code_3_places", test_code_3_places},
    {"hostile_model/code_3_files", test_code_3_files},
    {"hostile_model/code_3_tensors", test_code_3_tensors},
    {"hostile_model/odd_scales", test_odd_scales},
    {"hostile_model/odd_norms", test_odd_norms},
    {"hostile_model/no_scale", test_no_scale},
    {"hostile_model/odd_shapes", test_odd_shapes},
    {"hostile_model/odd_numbers", test_odd_numbers},
    {"hostile_model/odd_arrays", test_odd_arrays},
    {"hostile_model/odd_tokens", test_odd_tokens},
    {"hostile_model/long_token", test_long_token},
    {"hostile_model/special_ids", test_special_ids},
    {"hostile_model/each_number", test_each_number},
    {"hostile_model/wild_embedding", test_wild_embedding},
    {"hostile_model/wild_layers", test_wild_layers},
    {"hostile_model/overflow", test_overflow},
    {"hostile_model/wild_attention", test_wild_attention},
    {"hostile_model/wild_scores", test_wild_scores},
    {"hostile_model/zeros", test_zeros},
    {"hostile_model/wild_guess", test_wild_guess},
    {"hostile_model/wild_prompt", test_wild_prompt},
#ifndef BITNET_NO_STDIO
    {"hostile_model/copy", test_copy},
#endif
    {0, 0}
};
