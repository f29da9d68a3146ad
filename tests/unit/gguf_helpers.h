/* Loading GGUF files that are good, damaged or hostile, and checking what loading promises: the
   right error, in clean text, without a leak, within the bounds on memory. And a sink for what the
   writer writes. */
#ifndef GGUF_HELPERS_H
#define GGUF_HELPERS_H

#include "gguf_builder.h"
#include "../../examples/convert/gguf_write.h"

/* A model of some 46 KB whose rows of 64 begin inside a block. */
static inline gb_model tiny(void) {
    gb_model m = {.dim = 64, .ffn = 64, .layers = 1, .heads = 2, .kv_heads = 1,
                  .embed_type = GB_TENSOR_F16, .n_ctx = 16, .seed = 5};
    return m;
}

/* One line that no terminal chokes on, and that reads as what it is: no control characters, neither
   C0 nor C1, nothing invisible, nothing that turns the direction of writing, in valid UTF-8. */
static inline int clean_text(const char *s) {
    const uint8_t *p = (const uint8_t *)s, *end = p + strlen(s);
    while (p < end) {
        uint32_t cp, n = bitnet__utf8_decode(p, end, &cp);
        if (n == 0 || cp < 32 || (cp >= 127 && cp < 160) || (cp >= 0x200B && cp <= 0x200F) ||
            cp == 0x61C || cp == 0xFEFF || (cp >= 0x2028 && cp <= 0x202E) ||
            (cp >= 0x2066 && cp <= 0x2069) || (cp >= 0xE0000 && cp < 0xE1000)) return 0;
        p += n;
    }
    return s[0] != 0;
}

/* Does a bit of everything with a model that a damaged file gave: must only not crash, nor take
   long. */
static inline void use_model(const bitnet_model *m) {
    static const char text[] = "Hello, W\xC3\xB6rld \xFF 1234 <|eot_id|>\n";
    static const char *const keys[] = {"general.architecture", "tokenizer.ggml.tokens",
                                       "tokenizer.ggml.bos_token_id",
                                       "bitnet-b1.58.rope.freq_base"};
    bitnet_model_info info;
    bitnet_message msg = {BITNET_TEXT("user"), BITNET_TEXT(" hi <|eot_id|> "), {0, 0}};
    bitnet_ctx_params p;
    bitnet_sampler sampler;
    bitnet_generate_params gen;
    bitnet_token tokens[64], pair[2];
    bitnet_detok detok;
    bitnet_ctx *c = 0;
    char buf[8192];
    int i, n;
    bitnet_model_get_info(m, &info);
    for (i = 0; i < 4; i++) bitnet_model_get_meta(m, keys[i], buf, 16);
    n = bitnet_tokenize(m, text, sizeof text - 1, BITNET_ADD_BOS | BITNET_PARSE_SPECIAL, tokens,
                        64);
    bitnet_tokenize(m, text, sizeof text - 1, 0, 0, 0);
    memset(&detok, 0, sizeof detok);
    bitnet_detokenize(m, tokens, n < 0 ? 0 : n > 64 ? 64 : n, buf, sizeof buf);
    for (i = 0; i < n && i < 64; i++) bitnet_detok_push(m, &detok, tokens[i], buf, sizeof buf);
    bitnet_chat_tokenize(m, 0, &msg, 1, BITNET_CHAT_BEGIN | BITNET_CHAT_OPEN_REPLY, tokens, 64, 0);
    bitnet_token_is_end(m, bitnet_token_find(m, "<|eot_id|>", 10));
    memset(&p, 0, sizeof p);
    p.n_ctx = 4;
    p.n_batch = 2;
    p.n_logits = 2;
    p.n_threads = 1;
    if (bitnet_ctx_create(m, &p, &c, 0) != BITNET_OK) return;
    pair[0] = 0;
    pair[1] = info.n_vocab - 1;
    bitnet_eval(c, 0, pair, 2, 2, 0);
    bitnet_logits(c, 0, 0);
    memset(&sampler, 0, sizeof sampler);
    sampler.temperature = 1.0f;
    sampler.top_p = 0.9f;
    sampler.repeat_penalty = 1.1f;
    memset(&gen, 0, sizeof gen);
    gen.tokens = pair;
    gen.n_tokens = 1;
    gen.max_tokens = 2;
    gen.sampler = &sampler;
    bitnet_generate(c, &gen, 0, 0);
    bitnet_ctx_free(c);
}

static double worst_ratio;              /* bytes held at most while loading, by the file's size */

/* Loads size bytes in one of two ways. Returns 1 if it is refused, 2 if it loads, or 0, with a
   failure recorded, if any promise is broken. The handle itself (3 KB whatever the file) and
   what is in front of allocations is not counted: nothing could report an error without it. */
static inline int try_load(const uint8_t *data, size_t size, int through_io, int use,
                           const char *what, unsigned long where) {
    gb_counter count;
    gb_reader reader;
    bitnet_io io = gb_io(&reader, data, size);
    bitnet_model_params p;
    bitnet_model *m = (bitnet_model *)(void *)&p;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r;
    const char *broken = 0;
    double ratio;
    memset(&p, 0, sizeof p);
    p.allocator = gb_counting(&count);
    r = through_io ? bitnet_model_load_io(&io, &p, &m, &err)
                   : bitnet_model_load_memory(data, size, &p, &m, &err);
    ratio = size ? ((double)count.peak_own - (double)sizeof(bitnet_model)) / (double)size : 0.0;
    if (ratio > worst_ratio) worst_ratio = ratio;
    if (ratio > 4.0) broken = "besides the model it holds more than 4 times the file's size";
    if (count.peak > 4 * size + 4096) broken = "it holds more than SECURITY in the manual says";
    if ((r == BITNET_OK) != (m != 0)) broken = "*out does not fit the result";
    if (r != BITNET_OK && (err.code != r || !err.text[0])) broken = "the error is not filled in";
    if (reader.past_end) broken = "it reads past the end";
    if (m && use) use_model(m);
    bitnet_model_free(m);
    if (count.live) broken = "it leaks";
    if (broken)
        test_fail(__FILE__, __LINE__, "%s at %lu, %s: %s (%s, ratio %.2f)", what, where,
                  through_io ? "load_io" : "load_memory", broken, r ? err.text : "loads", ratio);
    return broken ? 0 : r == BITNET_OK ? 2 : 1;
}

/* Loads a built model and frees it; the result must be code, the text must hold the two words. */
static inline void expect(gb_model *m, bitnet_result code, const char *word, const char *word2) {
    bitnet_model *model = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r;
    if (!m->data) gb_make_model(m);
    r = bitnet_model_load_memory(m->data, m->size, 0, &model, &err);
    if (r != code || (model != 0) != (code == BITNET_OK))
        test_fail(__FILE__, __LINE__, "%s instead of %s for %s %s: %s", bitnet_result_text(r),
                  bitnet_result_text(code), word ? word : "", word2 ? word2 : "", err.text);
    else if (code && ((word && !strstr(err.text, word)) || (word2 && !strstr(err.text, word2))))
        test_fail(__FILE__, __LINE__, "\"%s\" lacks '%s' or '%s'", err.text, word,
                  word2 ? word2 : "");
    else if (code && (!clean_text(err.text) || err.code != code))
        test_fail(__FILE__, __LINE__, "\"%s\" is not clean", err.text);
    if (model) use_model(model);
    bitnet_model_free(model);
    gb_free_model(m);
    memset(m, 0, sizeof *m);
}

/* Flips bits of the header, and cuts the file; see the promises in test_gguf.c. */
static inline void damage(gb_model *m) {
    size_t at, step = test_quick() ? 37 : 7;
    int ok = 1, bit;
    gb_make_model(m);
    for (at = 0; at < m->header && ok; at += step)
        for (bit = 0; bit < 9 && ok; bit += 1 + (int)(at % 3)) {
            uint8_t mask = (uint8_t)(bit < 8 ? 1 << bit : 255);
            m->data[at] ^= mask;
            ok = try_load(m->data, m->size, bit == 0, bit == 8, "flip", (unsigned long)at);
            m->data[at] ^= mask;
        }
    for (at = 0; at < m->size && ok; at += 3 * step) {
        uint8_t *cut = (uint8_t *)gb_malloc(at);           /* exact size: ASan sees a byte more */
        memcpy(cut, m->data, at);
        ok = try_load(cut, at, at % 2 == 0, 1, "cut", (unsigned long)at);
        if (ok == 2) {
            test_fail(__FILE__, __LINE__, "it loads when cut at %lu", (unsigned long)at);
            ok = 0;
        }
        free(cut);
    }
    gb_free_model(m);
}

static int warnings;

static inline void count_warnings(void *ud, bitnet_log_level level, const char *text) {
    (void)ud, (void)text;
    warnings += level == BITNET_LOG_WARNING;
}

/* ---- one number of the metadata ---- */

/* One number of the metadata gets another type or value. */
static const char *number_name;

static uint32_t number_type;

static uint64_t number_value;

static int number_bytes;

static inline void add_number(gb_file *f) {
    f->omit = 0;
    gb_key_uint(f, number_name, number_type, number_value, number_bytes);
}

static inline void number(const char *name, uint32_t type, uint64_t value, int bytes,
                          bitnet_result code) {
    gb_model m = tiny();
    m.file.omit = name;
    m.file.add_keys = add_number;
    number_name = name;
    number_type = type;
    number_value = value;
    number_bytes = bytes;
    expect(&m, code, name, 0);
}

/* ---- the writer ---- */

typedef struct sink {                  /* what a writer wrote; it fails at byte limit, if set */
    uint8_t *p;
    size_t n, room, limit;
} sink;

static inline int sink_write(void *ud, const void *p, size_t n) {
    sink *s = (sink *)ud;
    if (s->limit && s->n + n > s->limit) return 1;
    if (s->n + n > s->room) {
        s->room = 2 * (s->n + n) + 1024;
        s->p = (uint8_t *)realloc(s->p, s->room);
        if (!s->p) return 1;
    }
    memcpy(s->p + s->n, p, n);
    s->n += n;
    return 0;
}

static inline void start_writer(gguf_writer *w, sink *s) {
    memset(s, 0, sizeof *s);
    memset(w, 0, sizeof *w);
    w->write_fn = sink_write;
    w->ud = s;
}

#endif
