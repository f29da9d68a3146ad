/* The file reader: what it refuses and in which words, what it lets pass, and that no file at all
   makes it crash, leak, run away or hold more than four times the file's size and 4 KB. */

#include "gguf_helpers.h"
#include <time.h>

/* ---- helpers ---- */

/* ---- hostile files ---- */

static void test_cut_everywhere(void) {
    gb_model m = tiny();
    size_t n;
    int ok = 1;
    gb_make_model(&m);
    for (n = 0; n < m.size && ok; n += test_quick() ? 5 : 1) {
        uint8_t *cut = (uint8_t *)gb_malloc(n); /* exact size: ASan sees one byte beyond */
        memcpy(cut, m.data, n);
        ok = 1;
        if (n < m.header + 256 || n % 16 == 0) ok = try_load(cut, n, 1, 1, "cut", (unsigned long)n);
        if (ok) ok = try_load(cut, n, 0, 1, "cut", (unsigned long)n);
        if (ok == 2) { /* output_norm's last byte is the file's */
            test_fail(__FILE__, __LINE__, "it loads when cut at %lu", (unsigned long)n);
            ok = 0;
        }
        free(cut);
    }
    if (ok)
        ok = try_load(m.data, m.size, 0, 1, "whole", 0) &&
             try_load(m.data, m.size, 1, 1, "whole", 0);
    gb_free_model(&m);
}

/* Every 4 and 8 bytes of the header, aligned or not, replaced by numbers that hurt. The
   vocabulary's strings are most of the header and much alike: there, callbacks and use_model get
   only samples. */
static void test_fields(void) {
    static const uint64_t patterns[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, (uint64_t)1 << 31,
                                        (uint64_t)1 << 63, (uint64_t)UINT32_MAX};
    gb_model m = tiny();
    size_t at;
    int i, wide, ok = 1;
    gb_make_model(&m);
    for (at = 0; at + 4 <= m.header && ok; at += test_quick() ? 5 : 1) {
        int vocab = at > m.file.tokens_at + 64 && at < m.file.tokens_end;
        for (wide = 0; wide < 2 && ok; wide++) {
            uint8_t keep[8];
            size_t n = wide ? 8 : 4;
            if (at + n > m.size) continue;
            memcpy(keep, m.data + at, n);
            for (i = 0; i < (wide ? 7 : 5) && ok; i++) {
                size_t j;
                for (j = 0; j < n; j++) m.data[at + j] = (uint8_t)(patterns[i] >> (8 * j));
                ok = try_load(m.data, m.size, 0, !vocab || at % 16 == 0, "field",
                              (unsigned long)at);
                if (ok && (!vocab || at % 16 == 5))
                    ok = try_load(m.data, m.size, 1, at % 4 == 0, "field", (unsigned long)at);
            }
            memcpy(m.data + at, keep, n);
        }
    }
    gb_free_model(&m);
}

static void test_flips(void) {
    gb_model m = tiny();
    size_t at;
    int bit, ok = 1;
    gb_make_model(&m);
    for (at = 0; at < m.header && ok; at += test_quick() ? 5 : 1) {
        int vocab = at > m.file.tokens_at + 64 && at < m.file.tokens_end;
        for (bit = 0; bit < 9 && ok; bit++) {
            uint8_t mask = (uint8_t)(bit < 8 ? 1 << bit : 255);
            if (vocab && bit != 8 && bit != (int)(at % 8)) continue;
            m.data[at] ^= mask;
            ok = try_load(m.data, m.size, 0, bit == 8 && at % 4 == 0, "flip", (unsigned long)at);
            if (ok && !vocab) ok = try_load(m.data, m.size, 1, bit == 8, "flip", (unsigned long)at);
            m.data[at] ^= mask;
        }
    }
    gb_free_model(&m);
}

/* Several random bytes at once, sometimes small numbers (they reach deeper), sometimes cut as
   well. */
static void test_random_damage(void) {
    gb_model m = tiny();
    uint8_t *copy;
    uint64_t seed = 20261121;
    unsigned long round;
    int ok = 1;
    gb_make_model(&m);
    for (round = 0; round < (test_quick() ? 1200 : 6000) && ok; round++) {
        uint32_t n = 1 + gb_random(&seed) % 8, i;
        size_t size = m.size, at;
        if (gb_random(&seed) % 8 == 0) size = gb_random(&seed) % m.size;
        copy = (uint8_t *)gb_malloc(size);
        memcpy(copy, m.data, size);
        for (i = 0; i < n && size > 0; i++) {
            size_t reach = gb_random(&seed) % 10 ? m.header : size;
            at = gb_random(&seed) % (reach < size ? reach : size);
            if (at >= 24 && at > m.file.tokens_at + 64 && at < m.file.tokens_end &&
                gb_random(&seed) % 4) at = at % 24 + m.file.tokens_end % size;
            if (at < size)
                copy[at] =
                    (uint8_t)(gb_random(&seed) % 2 ? gb_random(&seed) % 4 : gb_random(&seed));
        }
        ok = try_load(copy, size, (int)(round % 2), 1, "random damage", round);
        free(copy);
    }
    gb_free_model(&m);
}

/* Puts wild numbers into a part of [p, end), in words of 4 or 2 bytes; of 4 bytes only finite ones.
   */
static void make_wild(uint8_t *p, const uint8_t *end, int bytes, uint32_t share, uint64_t *seed) {
    static const uint32_t wild[] = {0x7f7fffffu, 0xff7fffffu, 1u,          0x80000000u,
                                    0x7f800000u, 0xff800000u, 0x7fc00000u};
    for (; p + bytes <= end; p += bytes) {
        uint32_t u = wild[gb_random(seed) % (bytes == 4 ? 4 : 7)];
        int i;
        if (gb_random(seed) % 16 >= share) continue;
        if (bytes == 2) u = (u >> 16 & 0x8000) | (u >> 13 & 0x7fff);
        for (i = 0; i < bytes; i++) p[i] = (uint8_t)(u >> (8 * i));
    }
}

/* Infinities, NaNs and huge numbers in all of the embedding but token 1, and any weights; then in
   the norms, too, as far as they are finite. No crash; sampling gives tokens of the vocabulary;
   what is not finite on the way is an error. */
static void test_wild_weights(void) {
    gb_model m = tiny();
    uint64_t seed = 3, i;
    int round, ok = 1, sampled = 0;
    gb_make_model(&m);
    for (round = 0; round < 60 && ok; round++) {
        const uint32_t share = (uint32_t)round % 16;
        bitnet_model *model = 0;
        bitnet_gguf *f = 0;
        bitnet_gguf_tensor tensor;
        if (bitnet_gguf_open_memory(m.data, m.size, 0, &f, 0)) exit(3);
        for (i = 0; !bitnet_gguf_get_tensor(f, i, &tensor); i++) {
            uint8_t *p = m.data + tensor.offset, *end = p + tensor.size;
            if (!strcmp(tensor.name, "token_embd.weight")) {
                make_wild(p, p + 128, 2, share, &seed);
                make_wild(p + 256, end, 2, share, &seed);
            } else if (tensor.type == BITNET_TENSOR_I2_S) {
                for (; p < end - 32; p++) {
                    *p = (uint8_t)gb_random(&seed);
                    *p = (uint8_t)(*p & ~(*p >> 1 & 0x55));        /* without codes 3 */
                }
            } else if (round >= 30) {
                make_wild(p, end, 4, share, &seed);
            }
        }
        bitnet_gguf_close(f);
        ok = try_load(m.data, m.size, 0, 1, "wild weights", (unsigned long)round);
        if (ok && !bitnet_model_load_memory(m.data, m.size, 0, &model, 0)) {
            bitnet_ctx_params p;
            bitnet_ctx *c = 0;
            bitnet_sampler s;
            bitnet_token t = 1;
            memset(&p, 0, sizeof p);
            p.n_ctx = 4;
            p.n_threads = 1;
            memset(&s, 0, sizeof s);
            s.temperature = (float)(round % 3);
            s.top_k = round % 5 * 7;
            s.min_p = round % 2 ? 0.05f : 0.0f;
            if (!bitnet_ctx_create(model, &p, &c, 0) && !bitnet_eval(c, 0, &t, 1, 1, 0)) {
                t = bitnet_sample(c, -1, &s, NULL);
                ok = t >= 0 && t < m.n_vocab;
                sampled++;
            }
            bitnet_ctx_free(c);
            bitnet_model_free(model);
            if (!ok) test_fail(__FILE__, __LINE__, "round %d samples token %d", round, (int)t);
        }
    }
    gb_free_model(&m);
    CHECK_MSG(!ok || sampled >= 30, "only %d rounds came to sample", sampled);
}

/* ---- hostile sizes: files made to get much memory for few bytes ---- */

/* The preamble promises as many keys and as many tensors as fit, each without the other. */
static void test_budget_counts(void) {
    size_t size = 200000, i;
    uint8_t *data = (uint8_t *)gb_malloc(size);
    int way;
    memset(data, 0, size);
    memcpy(data, "GGUF\3", 5);
    for (i = 0; i < 8; i++) {
        data[8 + i] = (uint8_t)((size - 24) / 33 >> (8 * i));
        data[16 + i] = (uint8_t)((size - 24) / 13 >> (8 * i));
    }
    for (way = 0; way < 2; way++) try_load(data, size, way, 0, "counts", 0);
    free(data);
}

/* Rows of two weights: padding each to a block of 128 takes 64 times the space. */
static void test_budget_narrow_rows(void) {
    gb_model m = {.dim = 2, .ffn = 8192, .layers = 1, .heads = 1, .kv_heads = 1, .head_dim = 8192,
                  .embed_type = GB_TENSOR_F16, .seed = 5};
    int way;
    gb_make_model(&m);
    for (way = 0; way < 2; way++) try_load(m.data, m.size, way, 0, "narrow rows", 0);
    gb_free_model(&m);
}

/* All layers share the bytes of the first one's tensors. */
static uint64_t shared_offsets[16];
static const char *const layer_parts[] = {"attn_norm", "attn_sub_norm", "ffn_norm", "ffn_sub_norm",
    "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"};
static int share_tensors(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                         uint64_t *offset) {
    int i;
    (void)type, (void)n_dims, (void)dims;
    for (i = 0; i < 11 && !strncmp(name, "blk.", 4); i++) {
        size_t n = strlen(layer_parts[i]);
        if (strncmp(name + 6, layer_parts[i], n) || name[6 + n] != '.') continue;
        if (name[4] == '0') shared_offsets[i] = *offset;
        else *offset = shared_offsets[i];
        return name[4] != '0';
    }
    return 0;
}
static void test_budget_shared(void) {
    gb_model m = {.dim = 128, .ffn = 4096, .layers = 8, .heads = 1, .kv_heads = 1,
                  .embed_type = GB_TENSOR_F16, .seed = 5};
    int way;
    m.file.tensor_hook = share_tensors;
    gb_make_model(&m);
    for (way = 0; way < 2; way++) try_load(m.data, m.size, way, 0, "shared tensors", 0);
    gb_free_model(&m);
}

/* What honest files cost: the worst ratio over some shapes. */
static void test_budget_honest(void) {
    static const char *const words[] = {"he", "ll", "llo"}, *const merges[] = {"h e", "l l",
                                                                               "ll o"};
    int i, way;
    for (i = 0; i < 4; i++) {
        gb_model m = tiny();
        if (i == 1) m.dim = 192, m.ffn = 320, m.heads = 3, m.layers = 3;
        if (i == 2) m.words = words, m.n_words = 3, m.merges = merges, m.n_merges = 3;
        if (i == 3)
            m.dim = 128, m.ffn = 256, m.layers = 4, m.untied = 1, m.head_type = GB_TENSOR_BF16;
        gb_make_model(&m);
        for (way = 0; way < 2; way++)
            try_load(m.data, m.size, way, 1, "honest file", (unsigned long)i);
        gb_free_model(&m);
    }
}

/* A frequency base under 1 would make angles that no integer holds. */
static void test_small_freq_base(void) {
    static const float bases[] = {1e-38f, 1e-10f, 0.5f, 1.0f, 1e15f, 3e15f, 3e38f};
    int i;
    for (i = 0; i < 7; i++) {
        gb_model m = tiny();
        m.freq_base = bases[i];
        gb_make_model(&m);
        try_load(m.data, m.size, 0, 1, "freq_base", (unsigned long)i);
        if (i == 3 || i == 4) expect(&m, BITNET_OK, 0, 0);
        else if (i == 0 || i == 6) expect(&m, BITNET_ERR_FORMAT, "freq_base", 0);
        else gb_free_model(&m);
    }
}

/* ---- versions ---- */

static void patched(size_t at, const char *bytes, size_t n, bitnet_result code, const char *word,
                    const char *word2) {
    gb_model m = tiny();
    gb_make_model(&m);
    memcpy(m.data + at, bytes, n);
    expect(&m, code, word, word2);
}

static void test_versions(void) {
    patched(4, "\1\0\0\0", 4, BITNET_ERR_UNSUPPORTED, "version 1", "offset 4");
    patched(4, "\2\0\0\0", 4, BITNET_OK, 0, 0);
    patched(4, "\3\0\0\0", 4, BITNET_OK, 0, 0);
    patched(4, "\4\0\0\0", 4, BITNET_ERR_UNSUPPORTED, "version", 0);
    patched(4, "\0\0\0\0", 4, BITNET_ERR_UNSUPPORTED, "version", 0);
    patched(4, "\0\0\0\3", 4, BITNET_ERR_UNSUPPORTED, "big-endian", 0);
    patched(4, "\0\0\0\2", 4, BITNET_ERR_UNSUPPORTED, "big-endian", 0);
    patched(0, "FUGG", 4, BITNET_ERR_FORMAT, "not a GGUF", "offset 0");
    patched(3, "X", 1, BITNET_ERR_FORMAT, "not a GGUF", 0);
    patched(0, "\x89PNG", 4, BITNET_ERR_FORMAT, "not a GGUF", 0);
    patched(8, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, BITNET_ERR_LIMIT, "more keys or tensors", 0);
    patched(16, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, BITNET_ERR_LIMIT, "more keys or tensors", 0);
}

static void test_no_file(void) {
    bitnet_model *m = (bitnet_model *)(void *)&m;
    bitnet_error err;
    bitnet_io io;
    CHECK(bitnet_model_load_memory("", 0, 0, &m, &err) == BITNET_ERR_TRUNCATED && !m);
    CHECK(bitnet_model_load_memory("GG", 2, 0, &m, &err) == BITNET_ERR_TRUNCATED && !m);
    CHECK(bitnet_model_load_memory(0, 5, 0, &m, &err) == BITNET_ERR_ARG && !m);
    CHECK(bitnet_model_load_memory("GGUF", 4, 0, 0, &err) == BITNET_ERR_ARG);
    CHECK(bitnet_model_load_memory("GGUF", 4, 0, &m, 0) == BITNET_ERR_TRUNCATED && !m);
    memset(&io, 0, sizeof io);
    CHECK(bitnet_model_load_io(&io, 0, &m, &err) == BITNET_ERR_ARG && !m);
    CHECK(bitnet_model_load_io(0, 0, &m, &err) == BITNET_ERR_ARG && !m);
    CHECK(bitnet_model_load_io(&io, 0, 0, &err) == BITNET_ERR_ARG);
}

/* ---- metadata ---- */

static void without(const char *name, bitnet_result code) {
    gb_model m = tiny();
    m.file.omit = name;
    expect(&m, code, name, 0);
}

static void test_missing(void) {
    char name[64];
    int i;
    without("general.architecture", BITNET_ERR_FORMAT);
    without("bitnet-b1.58.context_length", BITNET_ERR_FORMAT);
    without("bitnet-b1.58.embedding_length", BITNET_ERR_FORMAT);
    without("bitnet-b1.58.block_count", BITNET_ERR_FORMAT);
    without("bitnet-b1.58.feed_forward_length", BITNET_ERR_FORMAT);
    without("bitnet-b1.58.attention.head_count", BITNET_ERR_FORMAT);
    without("tokenizer.ggml.model", BITNET_ERR_FORMAT);
    without("token_embd.weight", BITNET_ERR_FORMAT);
    without("output_norm.weight", BITNET_ERR_FORMAT);
    for (i = 0; i < 11; i++) {
        snprintf(name, sizeof name, "blk.0.%s.weight", layer_parts[i]);
        without(name, BITNET_ERR_FORMAT);
    }
}

static void test_missing_tokens(void) {
    without("tokenizer.ggml.tokens", BITNET_ERR_FORMAT);
    without("tokenizer.ggml.merges", BITNET_ERR_FORMAT);
}

static void test_architectures(void) {
    static const char *const others[] = {"llama4", "bitnet-", "bitnet-b1.58x", "BITNET-B1.58"};
    int i;
    for (i = 0; i < 4; i++) {
        gb_model m = tiny();
        m.arch = others[i];
        expect(&m, BITNET_ERR_UNSUPPORTED, others[i], "architecture");
    }
    for (i = 0; i < 2; i++) {
        gb_model m = tiny();
        m.arch = i ? "bitnet-25" : "bitnet-b1.58";
        expect(&m, BITNET_OK, 0, 0);
    }
}

/* Every optional key is absent: the definition's defaults. */
static void test_defaults(void) {
    gb_model g = tiny();
    bitnet_model *m = 0;
    bitnet_model_info info;
    bitnet_error err = {BITNET_OK, "", {0}};
    g.kv_heads = 2;
    g.file.omit = "bitnet-b1.58.attention.head_count_kv";
    gb_make_model(&g);
    CHECK_MSG(!bitnet_model_load_memory(g.data, g.size, 0, &m, &err), "%s", err.text);
    bitnet_model_get_info(m, &info);
    CHECK(info.n_kv_heads == 2 && info.n_heads == 2 && info.head_dim == 32 && m->n_rot == 32);
    CHECK(info.n_vocab == 259 && m->freq_base == 500000.0f && m->eps == 1e-5f);
    CHECK(!strcmp(info.arch, "bitnet-b1.58") && info.n_layers == 1 && info.dim == 64);
    CHECK(info.ffn_dim == 64 && info.ctx_train == 16 && info.file_bytes == g.size);
    CHECK(info.bos == 256 && info.eos == 257 && info.eot == 258 && info.add_bos == 1);
    /* embedding (tied), 4 * 64 x 64 attention, 3 * 64 x 64 FFN, five norms of 64 */
    CHECK(info.n_params == 259 * 64 + 7 * 4096 + 5 * 64);
    CHECK(bitnet_kernels_find(info.kernels_name) &&
          bitnet_kernels_usable(bitnet_kernels_find(info.kernels_name)));
    bitnet_model_free(m);
    gb_free_model(&g);
    without("tokenizer.ggml.token_type", BITNET_OK);
    without("tokenizer.ggml.bos_token_id", BITNET_OK);
    without("tokenizer.ggml.eos_token_id", BITNET_OK);
    without("tokenizer.ggml.add_bos_token", BITNET_OK);
}

/* own_bytes is what the model allocated, to 10 % (the allocator's blocks have headers). */
static void test_own_bytes(void) {
    int way;
    for (way = 0; way < 2; way++) {
        gb_model g = tiny();
        gb_counter count;
        gb_reader reader;
        bitnet_io io;
        bitnet_model_params p;
        bitnet_model *m = 0;
        bitnet_model_info info;
        memset(&p, 0, sizeof p);
        p.allocator = gb_counting(&count);
        gb_make_model(&g);
        io = gb_io(&reader, g.data, g.size);
        if (way) bitnet_model_load_io(&io, &p, &m, 0);
        else bitnet_model_load_memory(g.data, g.size, &p, &m, 0);
        CHECK(m);
        bitnet_model_get_info(m, &info);
        CHECK_MSG((double)info.own_bytes > 0.9 * (double)count.live_bytes &&
                  (double)info.own_bytes < 1.1 * (double)count.live_bytes,
                  "%s: %lu said, %lu allocated", way ? "load_io" : "load_memory",
                  (unsigned long)info.own_bytes, (unsigned long)count.live_bytes);
        bitnet_model_free(m);
        gb_free_model(&g);
    }
}

/* Keys that replace or join the model's own. */
static const char *extra_text;
static void add_pre(gb_file *f) { gb_key_str(f, "tokenizer.ggml.pre", extra_text); }
static void add_omitted(gb_file *f) {
    const char *name = f->omit;
    f->omit = 0;
    gb_key_str(f, name, extra_text);
}

/* An empty name is there. */
static void test_empty_names(void) {
    static const char *const names[] = {"general.architecture", "tokenizer.ggml.model"};
    size_t i;
    for (i = 0; i < 2; i++) {
        gb_model m = tiny();
        extra_text = "";
        m.file.omit = names[i];
        m.file.add_keys = add_omitted;
        expect(&m, BITNET_ERR_FORMAT, names[i], "is empty");
        m = tiny();
        m.file.omit = names[i];
        expect(&m, BITNET_ERR_FORMAT, names[i], "is missing");
    }
}

static void test_tokenizer_kinds(void) {
    gb_model m = tiny();
    bitnet_model_params p;
    bitnet_model *model = 0;
    m.file.omit = "tokenizer.ggml.model";
    m.file.add_keys = add_omitted;
    extra_text = "bert";
    expect(&m, BITNET_ERR_UNSUPPORTED, "tokenizer.ggml.model", "'bert'");
    m = tiny();
    m.file.omit = "tokenizer.ggml.model";
    m.file.add_keys = add_omitted;
    extra_text = "llama";
    expect(&m, BITNET_ERR_FORMAT, "tokenizer.ggml.scores", 0);
    m = tiny();
    m.file.add_keys = add_pre;
    extra_text = "deepseek-llm";
    expect(&m, BITNET_ERR_UNSUPPORTED, "tokenizer.ggml.pre", "'deepseek-llm'");
    m = tiny();
    m.file.add_keys = add_pre;
    extra_text = "llama-bpe";
    expect(&m, BITNET_OK, 0, 0);
    m = tiny();                                            /* missing 'pre': not a word */
    gb_make_model(&m);
    memset(&p, 0, sizeof p);
    p.log_fn = count_warnings;
    warnings = 0;
    CHECK(!bitnet_model_load_memory(m.data, m.size, &p, &model, 0) && warnings == 0);
    bitnet_model_free(model);
    gb_free_model(&m);
}

static void test_numbers(void) {
    static const char *const sizes[] = {"context_length", "embedding_length", "block_count",
        "feed_forward_length", "attention.head_count", "attention.head_count_kv",
        "rope.dimension_count", "attention.key_length"};
    char name[96];
    int i;
    for (i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "bitnet-b1.58.%s", sizes[i]);
        number(name, GB_U32, 0, 4, BITNET_ERR_FORMAT);
        number(name, GB_U32, UINT32_MAX, 4, BITNET_ERR_FORMAT);
        number(name, GB_I32, UINT32_MAX, 4, BITNET_ERR_FORMAT);
        number(name, GB_U64, (uint64_t)1 << 32 | 64, 8, BITNET_ERR_FORMAT);
        number(name, GB_F32, 0x42800000u, 4, BITNET_ERR_FORMAT);
        number(name, GB_STR, 0, 8, BITNET_ERR_FORMAT);
    }
    number("bitnet-b1.58.context_length", GB_U64, 16, 8,
           BITNET_OK); /* any integer type will do */
    number("bitnet-b1.58.context_length", GB_I64, 16, 8, BITNET_OK);
    number("bitnet-b1.58.context_length", GB_U16, 16, 2, BITNET_OK);
    number("bitnet-b1.58.context_length", GB_I16, 16, 2, BITNET_OK);
    number("bitnet-b1.58.context_length", GB_U8, 16, 1, BITNET_OK);
    number("bitnet-b1.58.context_length", GB_I8, 16, 1, BITNET_OK);
    number("bitnet-b1.58.context_length", GB_I32, 16, 4, BITNET_OK);
    number("bitnet-b1.58.context_length", GB_I8, 0xF0, 1, BITNET_ERR_FORMAT);
    number("bitnet-b1.58.context_length", GB_I16, 0xFFF0, 2, BITNET_ERR_FORMAT);
    number("bitnet-b1.58.rope.dimension_count", GB_U32, 33, 4, BITNET_ERR_FORMAT);
    number("bitnet-b1.58.rope.dimension_count", GB_U32, 34, 4, BITNET_ERR_FORMAT);
    number("bitnet-b1.58.rope.dimension_count", GB_U32, 2, 4, BITNET_OK);
    number("bitnet-b1.58.vocab_size", GB_U32, 258, 4, BITNET_ERR_FORMAT);
    number("bitnet-b1.58.vocab_size", GB_U32, 259, 4, BITNET_OK);
    number("tokenizer.ggml.bos_token_id", GB_U32, 259, 4, BITNET_ERR_FORMAT);
    number("tokenizer.ggml.eos_token_id", GB_U32, UINT32_MAX, 4, BITNET_ERR_FORMAT);
    number("tokenizer.ggml.bos_token_id", GB_U32, 258, 4, BITNET_OK);
    number("bitnet-b1.58.attention.layer_norm_rms_epsilon", GB_F32, 0, 4, BITNET_ERR_FORMAT);
    number("bitnet-b1.58.attention.layer_norm_rms_epsilon", GB_F32, 0x7fc00000u, 4,
           BITNET_ERR_FORMAT);
    number("bitnet-b1.58.attention.layer_norm_rms_epsilon", GB_F32, 0xbf800000u, 4,
           BITNET_ERR_FORMAT);
    number("bitnet-b1.58.rope.freq_base", GB_F32, 0x7f800000u, 4, BITNET_ERR_FORMAT);
    number("bitnet-b1.58.rope.freq_base", GB_U32, 10000, 4, BITNET_ERR_FORMAT);
    number("tokenizer.ggml.tokens", GB_U32, 1, 4, BITNET_ERR_FORMAT);
    number("tokenizer.ggml.merges", GB_U32, 1, 4, BITNET_ERR_FORMAT);
    number("tokenizer.ggml.token_type", GB_U32, 1, 4, BITNET_ERR_FORMAT);
    number("general.alignment", GB_U32, 0, 4, BITNET_ERR_FORMAT);
    number("general.alignment", GB_U32, 3, 4, BITNET_ERR_FORMAT);
    number("general.alignment", GB_U32, 131072, 4, BITNET_ERR_FORMAT);
    number("general.alignment", GB_U64, 32, 8, BITNET_ERR_FORMAT);
    number("general.alignment", GB_U32, 32, 4, BITNET_OK);
}

static void test_rope_divides(void) {
    gb_model m = tiny();
    m.n_rot = 31;
    expect(&m, BITNET_ERR_FORMAT, "31", 0);
    m = tiny();
    m.heads = 4;
    m.kv_heads = 3;
    m.head_dim = 32;
    expect(&m, BITNET_ERR_FORMAT, "4 heads", "3 KV heads");
}

static void test_alignment(void) {
    static const uint32_t alignments[] = {1, 8, 64, 4096, 65536};
    int i;
    for (i = 0; i < 5; i++) {
        gb_model m = tiny();
        m.file.alignment = alignments[i];
        expect(&m, BITNET_OK, 0, 0);
    }
    {
        gb_model m = tiny(); /* all offsets are multiples of it, but it is no power of 2 */
        m.file.alignment = 96;
        expect(&m, BITNET_ERR_FORMAT, "general.alignment", "power of two");
    }
}

/* Values that are broken in themselves: each with the key's name and an offset in the text. */
static int value_case;
static void add_value(gb_file *f) {
    gb_key(f, "odd.key", value_case < 6 ? (uint32_t[]){13, GB_ARR, GB_ARR, GB_ARR, GB_STR, GB_ARR}
                                              [value_case] : GB_ARR);
    switch (value_case) {
        case 0: gb_uint(&f->keys, 0, 8); break;                                /* no such type */
        case 1: gb_uint(&f->keys, GB_ARR, 4), gb_uint(&f->keys, 1, 8); /* array of such arrays */
                gb_uint(&f->keys, 13, 4), gb_uint(&f->keys, 0, 8); break;
        case 2: gb_uint(&f->keys, 99, 4), gb_uint(&f->keys, 0, 8); break;
        case 3: gb_uint(&f->keys, GB_U64, 4), gb_uint(&f->keys, (uint64_t)1 << 61, 8); break;
        case 4: gb_uint(&f->keys, (uint64_t)1 << 40, 8); break; /* a string's length */
        case 5: gb_uint(&f->keys, GB_STR, 4), gb_uint(&f->keys, 2, 8);         /* and in an array */
                gb_uint(&f->keys, 0, 8), gb_uint(&f->keys, UINT64_MAX, 8); break;
        default: gb_uint(&f->keys, GB_U8, 4), gb_uint(&f->keys, UINT64_MAX, 8); break;
    }
}
static void test_values(void) {
    static const bitnet_result codes[] = {BITNET_ERR_FORMAT, BITNET_ERR_UNSUPPORTED,
        BITNET_ERR_UNSUPPORTED, BITNET_ERR_TRUNCATED, BITNET_ERR_TRUNCATED, BITNET_ERR_TRUNCATED,
        BITNET_ERR_TRUNCATED};
    for (value_case = 0; value_case < 7; value_case++) {
        gb_model m = tiny();
        m.file.add_keys = add_value;
        expect(&m, codes[value_case], "'odd.key'", "offset ");
    }
}

/* Names: none, too long, or full of what terminals obey. */
static const char *odd_name;
static size_t odd_name_size;
static void add_odd_name(gb_file *f) {
    gb_string(&f->keys, odd_name, odd_name_size);
    gb_uint(&f->keys, 77, 4); /* no such type: the error names the key */
    f->n_keys++;
}
static void named(const char *name, size_t n, const char *word) {
    gb_model m = tiny();
    m.file.add_keys = add_odd_name;
    odd_name = name;
    odd_name_size = n;
    expect(&m, BITNET_ERR_FORMAT, word, "offset ");
}

static void test_names(void) {
    char longest[257];
    memset(longest, 'n', sizeof longest);
    named("", 0, "no name");
    named(longest, 257, "too long");
    named(longest, 256, "nnnn");
    named("a\x1b[31mred\r\n\t\x7f!", 13, "a?[31mred");
    named("a\0b", 3, "'a");
}

/* The text is one line of UTF-8 even if the name is not, or is cut inside a character. */
static void test_names_utf8(void) {
    char accents[64 * 2 + 1];
    int i;
    for (i = 0; i < 64; i++) memcpy(accents + 1 + 2 * i, "\xC3\xA9", 2);
    accents[0] = 'x';
    named("a\xC2\x9B" "31m", 6, "'a");                     /* CSI in one character */
    named("a\xFF\xFE\xC3", 4, "'a");
    named(accents, sizeof accents, "'x");
}

static void test_escapes_in_values(void) {
    gb_model m = tiny();
    m.arch = "evil\x1b]0;title\x07\n";
    expect(&m, BITNET_ERR_UNSUPPORTED, "evil", 0);
    m = tiny();
    m.file.omit = "tokenizer.ggml.model";
    m.file.add_keys = add_omitted;
    extra_text = "x\n\x1b[2J";
    expect(&m, BITNET_ERR_UNSUPPORTED, "tokenizer.ggml.model", "x??[2J");
}

/* ---- tensors ---- */

static const char *odd_tensor;
static int odd_case;
static int make_odd(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                    uint64_t *offset) {
    if (strcmp(name, odd_tensor)) return 0;
    switch (odd_case) {
        case 0: *type = 39; break;
        case 1: *type = 0xFFFFFFFFu; break;
        case 2: *type = GB_TENSOR_F32, dims[0] = 1, dims[1] = 1; break;
        case 3: *type = GB_TENSOR_I2_S; break;
        case 4: dims[0] /= 2; break;
        case 5:
            if (dims[1]) dims[1] /= 2;
            else dims[0] /= 2, dims[1] = 2, *n_dims = 2;
            break;
        case 6: *offset += 1; break;
        case 7: *offset += 16; break;
        case 8: *offset = (uint64_t)1 << 62; break;
        case 9: *offset = UINT64_MAX - 31; break;
        case 10: *n_dims = 0; break;
        case 11: *n_dims = 5; dims[2] = dims[3] = dims[4] = 1; break;
        case 12: dims[0] = (uint64_t)1 << 63; break;
        case 13: dims[0] = dims[1] = (uint64_t)1 << 32, *n_dims = 2; break;
        case 14: dims[0] = 0; break;
        case 15:
            *n_dims = 4, dims[2] = dims[3] = 1, dims[1] += dims[1] == 0;
            break;                   /* harmless */
        default: *offset = 0; break; /* shares bytes */
    }
    return 0;
}
static void odd(const char *name, int which, bitnet_result code, const char *word) {
    gb_model m = tiny();
    m.file.tensor_hook = make_odd;
    odd_tensor = name;
    odd_case = which;
    expect(&m, code, name, word);
}

static void test_tensors(void) {
    static const char *const some[] = {"token_embd.weight", "blk.0.attn_q.weight",
                                       "blk.0.attn_sub_norm.weight", "blk.0.ffn_down.weight",
                                       "output_norm.weight"};
    int i;
    for (i = 0; i < 5; i++) {
        odd(some[i], 0, BITNET_ERR_UNSUPPORTED, "unsupported tensor type 39 (MXFP4)");
        odd(some[i], 1, BITNET_ERR_UNSUPPORTED, "unsupported tensor type 4294967295 (unknown)");
        odd(some[i], 4, BITNET_ERR_FORMAT, i == 0 ? "32 x 259" : "32 x");
        odd(some[i], 5, BITNET_ERR_FORMAT,
            i == 2 || i == 4 ? "32 x 2"
            : i == 0         ? "64 x 129"
                             : "64 x 32");
        odd(some[i], 6, BITNET_ERR_FORMAT, "not aligned");
        odd(some[i], 7, BITNET_ERR_FORMAT, "not aligned");
        odd(some[i], 8, BITNET_ERR_TRUNCATED, "past the end");
        odd(some[i], 9, BITNET_ERR_TRUNCATED, "past the end");
        odd(some[i], 10, BITNET_ERR_FORMAT, "1 to 4 dimensions");
        odd(some[i], 11, BITNET_ERR_FORMAT, "1 to 4 dimensions");
        odd(some[i], 12, BITNET_ERR_LIMIT, "offset ");
        odd(some[i], 13, BITNET_ERR_LIMIT, "offset ");
        odd(some[i], 14, BITNET_ERR_LIMIT, "dimension is 0");
        odd(some[i], 15, BITNET_OK, 0);
    }
    odd("blk.0.attn_q.weight", 2, BITNET_ERR_FORMAT, "1 x 1");
    odd("token_embd.weight", 3, BITNET_ERR_UNSUPPORTED, "I2_S");
    odd("output_norm.weight", 16, BITNET_ERR_FORMAT, "overlaps");
}

static int make_f32(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                    uint64_t *offset) {
    (void)n_dims, (void)dims;
    if (!strcmp(name, "blk.0.ffn_up.weight")) *type = GB_TENSOR_F32, *offset = 65536;
    return 0;
}
static int make_many_layers(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                            uint64_t *offset) {
    (void)type, (void)n_dims, (void)offset;
    if (!strcmp(name, "blk.0.attn_k.weight")) dims[0] = 63, dims[1] = 31;
    return 0;
}
static int make_i2_s(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                     uint64_t *offset) {
    (void)n_dims, (void)dims, (void)offset;
    if (!strcmp(name, "token_embd.weight")) *type = BITNET_TENSOR_I2_S;
    return 0;
}
static void test_linear_types(void) {
    gb_model m = tiny();
    uint8_t *longer;
    m.file.tensor_hook = make_i2_s;
    expect(&m, BITNET_ERR_UNSUPPORTED, "token_embd.weight", "I2_S");
    m = tiny();
    m.file.tensor_hook = make_f32;
    gb_make_model(&m);
    longer = (uint8_t *)gb_malloc(m.size + 65536); /* F32 takes more bytes than it has */
    memset(longer + m.size, 0, 65536);
    memcpy(longer, m.data, m.size);
    free(m.data);
    m.data = longer;
    m.size += 65536;
    expect(&m, BITNET_ERR_UNSUPPORTED, "blk.0.ffn_up.weight", "I2_S");
    m = tiny();
    m.file.tensor_hook = make_many_layers;
    expect(&m, BITNET_ERR_FORMAT, "blk.0.attn_k.weight", "63 x 31");
}

/* A scale that is not a number, in place and as a tensor of its own. */
static void test_scales(void) {
    gb_model m = tiny();
    size_t i, n = 0;
    uint8_t scale[4];
    uint32_t u;
    gb_make_model(&m);
    memcpy(&u, &m.layer[0].down.scale, 4);
    for (i = 0; i < 4; i++) scale[i] = (uint8_t)(u >> (8 * i));
    for (i = m.header; i + 4 <= m.size; i++)
        if (!memcmp(m.data + i, scale, 4)) {
            memcpy(m.data + i, "\0\0\xC0\x7F", 4);
            n++;
        }
    CHECK(n == 1);
    expect(&m, BITNET_ERR_FORMAT, "blk.0.ffn_down.weight", "scale");
    m = tiny();
    m.scale_suffix = "_scale";
    m.file.tensor_hook = make_odd;
    odd_tensor = "blk.0.attn_v.weight_scale";
    odd_case = 1;
    expect(&m, BITNET_ERR_UNSUPPORTED, "blk.0.attn_v.weight_scale", "type");
    m = tiny();
    m.scale_suffix = "_scale";
    m.file.tensor_hook = make_odd;
    odd_case = 15;
    expect(&m, BITNET_OK, 0, 0);
}

/* ---- bitnet_model_get_meta ---- */

static void add_all_types(gb_file *f) {
    gb_key_uint(f, "t.u8", GB_U8, 200, 1);
    gb_key_uint(f, "t.i8", GB_I8, 0x80, 1);
    gb_key_uint(f, "t.u16", GB_U16, 65535, 2);
    gb_key_uint(f, "t.i16", GB_I16, 0x8000, 2);
    gb_key_uint(f, "t.u32", GB_U32, 4294967295u, 4);
    gb_key_uint(f, "t.i32", GB_I32, 0x80000000u, 4);
    gb_key_f32(f, "t.f32", 0.1f);
    gb_key_f32(f, "t.f32b", -1099511627776.0f);
    gb_key_uint(f, "t.true", GB_BOOL, 1, 1);
    gb_key_uint(f, "t.false", GB_BOOL, 0, 1);
    gb_key_uint(f, "t.u64", GB_U64, UINT64_MAX, 8);
    gb_key_uint(f, "t.i64", GB_I64, (uint64_t)1 << 63, 8);
    gb_key_uint(f, "t.f64", GB_F64, 0x3fb999999999999aULL, 8);
    gb_key_str(f, "t.str", "h\xC3\xA9llo");
    gb_key_str(f, "t.empty", "");
    gb_key_array(f, "t.array", GB_U8, 2);
    gb_uint(&f->keys, 0, 2);
}
static void test_get_meta(void) {
    static const char *const values[][2] = {{"t.u8", "200"},
                                            {"t.i8", "-128"},
                                            {"t.u16", "65535"},
                                            {"t.i16", "-32768"},
                                            {"t.u32", "4294967295"},
                                            {"t.i32", "-2147483648"},
                                            {"t.f32", "0.100000001"},
                                            {"t.f32b", "-1.09951163e+12"},
                                            {"t.true", "true"},
                                            {"t.false", "false"},
                                            {"t.u64", "18446744073709551615"},
                                            {"t.i64", "-9223372036854775808"},
                                            {"t.f64", "0.10000000000000001"},
                                            {"t.str", "h\xC3\xA9llo"},
                                            {"t.empty", ""},
                                            {"general.architecture", "bitnet-b1.58"},
                                            {"bitnet-b1.58.context_length", "16"}};
    gb_model g = tiny();
    bitnet_model *m = 0;
    size_t i, cap;
    char buf[40];
    int way;
    g.file.add_keys = add_all_types;
    gb_make_model(&g);
    for (way = 0; way < 2; way++) {
        gb_reader reader;
        bitnet_io io = gb_io(&reader, g.data, g.size);
        if (way) bitnet_model_load_io(&io, 0, &m, 0);
        else bitnet_model_load_memory(g.data, g.size, 0, &m, 0);
        CHECK(m);
        for (i = 0; i < sizeof values / sizeof values[0]; i++) {
            size_t n = strlen(values[i][1]);
            for (cap = 0; cap < sizeof buf; cap++) {
                memset(buf, 'x', sizeof buf);
                CHECK_MSG(bitnet_model_get_meta(m, values[i][0], cap ? buf : 0, cap) == (int)n,
                          "%s: length", values[i][0]);
                CHECK_MSG(!cap || (buf[n < cap ? n : cap - 1] == 0 &&
                                   !memcmp(buf, values[i][1], n < cap ? n : cap - 1)),
                          "%s in %lu bytes: %s", values[i][0], (unsigned long)cap, buf);
                CHECK(buf[cap] == 'x');
            }
        }
        CHECK(bitnet_model_get_meta(m, "t.array", buf, sizeof buf) == BITNET_ERR_UNSUPPORTED);
        CHECK(bitnet_model_get_meta(m, "tokenizer.ggml.tokens", buf, 4) == BITNET_ERR_UNSUPPORTED);
        CHECK(bitnet_model_get_meta(m, "t.none", buf, sizeof buf) == BITNET_ERR_NOT_FOUND);
        CHECK(bitnet_model_get_meta(m, "", buf, sizeof buf) == BITNET_ERR_NOT_FOUND);
        CHECK(bitnet_model_get_meta(m, "t.u", buf, sizeof buf) == BITNET_ERR_NOT_FOUND);
        CHECK(bitnet_model_get_meta(m, 0, buf, sizeof buf) == BITNET_ERR_ARG);
        bitnet_model_free(m);
        m = 0;
    }
    gb_free_model(&g);
}

/* ---- reading ---- */

/* The n-th read fails, for every n: its code comes back, nothing leaks. */
static void test_read_failures(void) {
    static const bitnet_result codes[] = {BITNET_ERR_IO, BITNET_ERR_CANCELLED, (bitnet_result)-77};
    gb_model g = tiny();
    size_t i;
    long n = 0;
    int done = 0;
    g.file.alignment = GB_SPREAD;
    gb_make_model(&g);
    for (i = 0; i < 3; i++)
        for (n = 0, done = 0; n < 100 && !done; n++) {
            gb_counter count;
            gb_reader reader;
            bitnet_io io = gb_io(&reader, g.data, g.size);
            bitnet_model_params p;
            bitnet_model *m = (bitnet_model *)(void *)&p;
            bitnet_error err = {BITNET_OK, "", {0}};
            bitnet_result r;
            memset(&p, 0, sizeof p);
            p.allocator = gb_counting(&count);
            reader.fail_at = n;
            reader.code = codes[i];
            r = bitnet_model_load_io(&io, &p, &m, &err);
            done = r == BITNET_OK;
            CHECK((m != 0) == done);
            bitnet_model_free(m);
            CHECK_MSG(done || (r == codes[i] && err.code == r && strstr(err.text, "offset")),
                      "read %ld: %d, %s", n, (int)r, err.text);
            CHECK_MSG(count.live == 0, "read %ld: it leaks", n);
            CHECK(done || reader.calls == n + 1);          /* no reading on after a failure */
        }
    CHECK(done && n > 8);
    gb_free_model(&g);
}

/* A header larger than the reader's first portion of 64 KB: it grows, and the strings stay right.
   */
static void test_long_header(void) {
    static char *words[9000];
    gb_model m = tiny();
    gb_reader reader;
    bitnet_io io;
    bitnet_model *model = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    char buf[40];
    int i, found = 0;
    for (i = 0; i < 9000; i++) {
        words[i] = (char *)gb_malloc(24);
        snprintf(words[i], 24, "word number %d", i);
    }
    m.words = (const char *const *)words;
    m.n_words = 9000;
    gb_make_model(&m);
    io = gb_io(&reader, m.data, m.size);
    if (!bitnet_model_load_io(&io, 0, &model, &err) &&
        token_named(model, "word number 8999") == 256 + 8999 &&
        bitnet_model_get_meta(model, "tokenizer.ggml.bos_token_id", buf, sizeof buf) == 4 &&
        !strcmp(buf, "9256"))
        found = 1;
    bitnet_model_free(model);
    if (found) try_load(m.data, m.size, 1, 1, "long header", 0);
    for (i = 0; i < 9000; i++) free(words[i]);
    gb_free_model(&m);
    CHECK_MSG(found, "%s", err.text);
    CHECK(m.header > 200000);
}

#ifndef BITNET_NO_STDIO
static void test_bad_paths(void) {
    char path[512];
    bitnet_model *m = (bitnet_model *)(void *)path;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r;
    FILE *f;
    CHECK(bitnet_model_load_file("/no/such/\x1b[2J/file.gguf", 0, &m, &err) == BITNET_ERR_IO && !m);
    CHECK(err.code == BITNET_ERR_IO && strstr(err.text, "/no/such/") && clean_text(err.text));
    m = (bitnet_model *)(void *)path;
    CHECK(bitnet_model_load_file(0, 0, &m, &err) == BITNET_ERR_ARG && !m);
    CHECK(bitnet_model_load_file("x", 0, 0, &err) == BITNET_ERR_ARG);
    m = (bitnet_model *)(void *)path;
    err.text[0] = 0;
    r = bitnet_model_load_file(test_data("."), 0, &m, &err);
    CHECK_MSG(r == BITNET_ERR_IO && !m, "a directory: %s (%s)", err.text, bitnet_result_text(r));
    snprintf(path, sizeof path, "%.500s", test_path("no.gguf"));
    f = fopen(path, "wb");
    if (!f) SKIP("cannot write %s", path);
    fclose(f);
    m = (bitnet_model *)(void *)path;
    r = bitnet_model_load_file(path, 0, &m, &err);
    remove(path);
    CHECK_MSG(r == BITNET_ERR_TRUNCATED && !m && clean_text(err.text), "an empty file: %s",
              err.text);
}
#endif

/* The manual: what a result is called. */
static void test_result_texts(void) {
    int i;
    for (i = 0; i >= -10; i--) {
        const char *text = bitnet_result_text((bitnet_result)i);
        CHECK(text && text[0] && strcmp(text, bitnet_result_text((bitnet_result)-99)));
    }
    CHECK(!strcmp(bitnet_version(), BITNET_VERSION));
    CHECK(bitnet_version_number() == BITNET_VERSION_NUMBER);
}

static void check_meta_keys(const bitnet_model *m, const bitnet_gguf *f) {
    bitnet_gguf_key key;
    char name[300], value[300], want[300];
    int i, n, arrays = 0;
    for (i = 0; !bitnet_gguf_get_key(f, (uint64_t)i, &key); i++) {
        n = bitnet_model_meta_key(m, i, name, sizeof name);
        CHECK_MSG(n == (int)strlen(key.name) && !strcmp(name, key.name), "key %d: %d", i, n);
        CHECK(bitnet_model_meta_key(m, i, 0, 0) == n);
        CHECK(bitnet_model_meta_key(m, i, value, 4) == n && strlen(value) == 3 &&
              !memcmp(value, name, 3));
        n = bitnet_model_get_meta(m, name, value, sizeof value);
        CHECK(n == bitnet_gguf_text(&key.value, want, sizeof want));
        CHECK(n >= 0 ? !strcmp(value, want) : n == BITNET_ERR_UNSUPPORTED);
        arrays += n < 0;
    }
    CHECK(i > 10 && arrays > 1);
    CHECK(bitnet_model_meta_key(m, i, name, sizeof name) == BITNET_ERR_NOT_FOUND);
    CHECK(bitnet_model_meta_key(m, INT32_MAX, name, sizeof name) == BITNET_ERR_NOT_FOUND);
    CHECK(bitnet_model_meta_key(m, -1, name, sizeof name) < 0);
}

/* The keys of a model are those of the file, in its order, and each has a value or is an array. */
static void test_meta_keys(void) {
    gb_model g = tiny();
    bitnet_model *m[2] = {0, 0};
    bitnet_gguf *f = 0;
    gb_reader reader;
    bitnet_io io;
    int i;
    gb_make_model(&g);
    io = gb_io(&reader, g.data, g.size);
    CHECK(!bitnet_model_load_memory(g.data, g.size, 0, &m[0], 0) &&
          !bitnet_model_load_io(&io, 0, &m[1], 0) &&
          !bitnet_gguf_open_memory(g.data, g.size, 0, &f, 0));
    for (i = 0; i < 2; i++) {
        check_meta_keys(m[i], f);
        bitnet_model_free(m[i]);
    }
    bitnet_gguf_close(f);
    gb_free_model(&g);
}

/* ---- a vocabulary alone, and files that are read ahead ---- */

/* The furthest byte that was asked for. */
typedef struct far_reader { gb_reader reader; uint64_t end; } far_reader;

static bitnet_result read_far(void *ud, uint64_t offset, void *dst, size_t n) {
    far_reader *r = (far_reader *)ud;
    if (offset + n > r->end) r->end = offset + n;
    return gb_read(&r->reader, offset, dst, n);
}

/* The tokenizer of a file of any architecture, with or without weights, of which none is read. */
static void test_vocab_only(void) {
    static const char *const archs[] = {"bitnet-b1.58", "llama4"};
    const char *path = test_shared("tokenizer/qwen3-vocab.gguf");
    bitnet_token want[40], got[40];
    bitnet_model_params p;
    bitnet_model_info info;
    bitnet_model *whole = 0, *m;
    bitnet_error err;
    bitnet_ctx *c;
    int i, n;
    memset(&p, 0, sizeof p);
    p.vocab_only = 1;
    for (i = 0; i < 2; i++) {
        gb_model g = tiny();
        far_reader ahead;
        bitnet_io io;
        g.arch = archs[i];
        g.ffn = 8192;                  /* of a small file all is read at once */
        gb_make_model(&g);
        io = gb_io(&ahead.reader, g.data, g.size);
        io.read_fn = read_far;
        ahead.end = 0;
        CHECK(!bitnet_model_load_memory(g.data, g.size, 0, &whole, 0) == (i == 0));
        CHECK_MSG(!bitnet_model_load_io(&io, &p, &m, &err), "%s", err.text);
        CHECK(ahead.end > 0 && ahead.end < g.size / 3);
        bitnet_model_get_info(m, &info);
        CHECK(!strcmp(info.arch, archs[i]) && info.n_vocab == 259 && info.bos == 256);
        CHECK(!info.has_head && !info.n_layers && !info.n_params && !info.head_copy_bytes);
        CHECK(!strcmp(info.embed_type, "none") && !strcmp(info.head_type, "none"));
        n = bitnet_tokenize(m, "a word <|eot_id|>", 17, BITNET_ADD_BOS | BITNET_PARSE_SPECIAL, got,
                            40);
        CHECK(n > 2 && got[0] == 256 && got[n - 1] == 258);
        CHECK(i > 0 || bitnet_tokenize(whole, "a word <|eot_id|>", 17,
                                       BITNET_ADD_BOS | BITNET_PARSE_SPECIAL, want, 40) == n);
        CHECK(i > 0 || !memcmp(want, got, (size_t)n * sizeof *got));
        CHECK(bitnet_ctx_create(m, 0, &c, &err) == BITNET_ERR_UNSUPPORTED && !c);
        CHECK(strstr(err.text, "vocab_only") && !bitnet_ctx_bytes(m, 0));
        bitnet_model_free(m);
        bitnet_model_free(whole);
        gb_free_model(&g);
    }
    if (!path) return;
    CHECK(bitnet_model_load_file(path, 0, &m, 0) != BITNET_OK);
    CHECK_MSG(!bitnet_model_load_file(path, &p, &m, &err), "%s", err.text);
    n = bitnet_tokenize(m, "<|im_start|>", 12, BITNET_PARSE_SPECIAL, got, 40);
    CHECK(n == 1 && got[0] == bitnet_token_find(m, "<|im_start|>", 12));
    bitnet_model_free(m);
}

typedef struct loaded { uint64_t done, total; int calls, stop_at; } loaded;

static int note_loaded(void *ud, uint64_t done, uint64_t total) {
    loaded *l = (loaded *)ud;
    if (done < l->done || done > total) l->total = 0;      /* it goes forward */
    else if (!l->calls) l->total = total;
    l->done = done;
    return ++l->calls == l->stop_at;
}

/* All that is mapped is read while loading, and progress tells. */
static void test_prefault(void) {
    gb_model g = tiny();
    bitnet_model_params p;
    bitnet_model *m = 0;
    bitnet_error err;
    loaded l[2];
    int i, calls;
    gb_make_model(&g);
    memset(&p, 0, sizeof p);
    memset(l, 0, sizeof l);
    p.progress_fn = note_loaded;
    for (i = 0; i < 2; i++) {
        p.prefault = i;
        p.progress_ud = &l[i];
        CHECK_MSG(!bitnet_model_load_memory(g.data, g.size, &p, &m, &err), "%s", err.text);
        CHECK(l[i].total == g.size && l[i].done == g.size);
        bitnet_model_free(m);
    }
    CHECK(l[1].calls >= l[0].calls + 9);               /* each tensor is reported */
    calls = l[1].calls;
    for (i = 1; i <= calls; i++) {
        memset(&l[1], 0, sizeof l[1]);
        l[1].stop_at = i;
        CHECK(bitnet_model_load_memory(g.data, g.size, &p, &m, &err) == BITNET_ERR_CANCELLED);
    }
    gb_free_model(&g);
}

/* A file without tensors needs no padding behind its keys. */
static void test_no_tensors(void) {
    gb_file f;
    size_t size, n;
    uint8_t *data;
    int ok = 1;
    memset(&f, 0, sizeof f);
    gb_start(&f);
    gb_key_u32(&f, "a.b", 7);
    data = gb_finish(&f, &size, 0);
    for (n = size - 1; n <= size + 32 && ok; n++) {
        uint8_t *own = (uint8_t *)calloc(n, 1);     /* exact size: ASan sees one byte beyond */
        bitnet_gguf *g = 0;
        bitnet_gguf_key key;
        bitnet_result r;
        memcpy(own, data, n < size ? n : size);
        r = bitnet_gguf_open_memory(own, n, 0, &g, 0);
        ok = n < size ? r == BITNET_ERR_TRUNCATED
                      : !r && !bitnet_gguf_find_key(g, "a.b", &key) && *key.value.data == 7;
        bitnet_gguf_close(g);
        free(own);
    }
    free(data);
    CHECK_MSG(ok, "%d of %d bytes", (int)n - 1, (int)size);
}

extern const test_case gguf_tests[];
const test_case gguf_tests[] = {
    {"gguf/cut_everywhere", test_cut_everywhere},
    {"gguf/fields", test_fields},
    {"gguf/flips", test_flips},
    {"gguf/random_damage", test_random_damage},
    {"gguf/wild_weights", test_wild_weights},
    {"gguf/budget_honest", test_budget_honest},
    {"gguf/budget_counts", test_budget_counts},
    {"gguf/budget_narrow_rows", test_budget_narrow_rows},
    {"gguf/budget_shared", test_budget_shared},
    {"gguf/small_freq_base", test_small_freq_base},
    {"gguf/versions", test_versions},
    {"gguf/no_file", test_no_file},
    {"gguf/missing", test_missing},
    {"gguf/missing_tokens", test_missing_tokens},
    {"gguf/empty_names", test_empty_names},
    {"gguf/architectures", test_architectures},
    {"gguf/defaults", test_defaults},
    {"gguf/own_bytes", test_own_bytes},
    {"gguf/tokenizer_kinds", test_tokenizer_kinds},
    {"gguf/numbers", test_numbers},
    {"gguf/rope_divides", test_rope_divides},
    {"gguf/alignment", test_alignment},
    {"gguf/values", test_values},
    {"gguf/names", test_names},
    {"gguf/names_utf8", test_names_utf8},
    {"gguf/escapes_in_values", test_escapes_in_values},
    {"gguf/tensors", test_tensors},
    {"gguf/linear_types", test_linear_types},
    {"gguf/scales", test_scales},
    {"gguf/get_meta", test_get_meta},
    {"gguf/read_failures", test_read_failures},
    {"gguf/long_header", test_long_header},
    {"gguf/meta_keys", test_meta_keys},
    {"gguf/vocab_only", test_vocab_only},
    {"gguf/no_tensors", test_no_tensors},
    {"gguf/prefault", test_prefault},
#ifndef BITNET_NO_STDIO
    {"gguf/bad_paths", test_bad_paths},
#endif
    {"gguf/result_texts", test_result_texts},
    {0, 0}
};
