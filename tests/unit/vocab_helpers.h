/* Small models with vocabularies of their own: a few words for BPE, and one of SentencePiece. */
#ifndef VOCAB_HELPERS_H
#define VOCAB_HELPERS_H

#include "gguf_builder.h"

static const char *const words[] = {"he", "ll", "hell", "hello", " w", "\xC3\xA9", "\xE2\x82"};

static const char *const merges[] = {"h e", "l l", "he ll", "hell o", "\xC4\xA0 w"};

enum { N_WORDS = 7, N_MERGES = 5 };

static inline gb_model word_model(void) {
    gb_model m = {.dim = 64,
                  .ffn = 64,
                  .layers = 1,
                  .heads = 2,
                  .kv_heads = 1,
                  .n_ctx = 32,
                  .seed = 9,
                  .embed_type = GB_TENSOR_F16,
                  .words = words,
                  .n_words = N_WORDS,
                  .merges = merges,
                  .n_merges = N_MERGES};
    return m;
}

static inline bitnet_model *load_built(const gb_model *g) {
    bitnet_model *m = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    if (bitnet_model_load_memory(g->data, g->size, 0, &m, &err))
        test_fail(__FILE__, __LINE__, "load: %s", err.text);
    return m;
}

static inline bitnet_ctx *new_ctx(const bitnet_model *m, int n_ctx, int n_batch) {
    bitnet_ctx_params p;
    bitnet_ctx *c = 0;
    memset(&p, 0, sizeof p);
    p.n_ctx = n_ctx;
    p.n_batch = n_batch;
    p.n_threads = 1;
    if (!m || bitnet_ctx_create(m, &p, &c, 0)) test_fail(__FILE__, __LINE__, "no context");
    return c;
}

/* ---- SentencePiece ---- */

static const char *const spm_pieces[150] = {   /* tokens 259 to 408; scores 0, -1, ... -149 */
    "it", "\xE2\x96\x81t", "he", "ne", "\xE2\x96\x81" "a", "\xE2\x96\x81the", "in",
    "\xE2\x96\x81o", "at", "bit", "de", "\xE2\x96\x81" "c", "net", "bitnet", "\xE2\x96\x81s", "er",
    "\xE2\x96\x81w", "re", "\xE2\x96\x81`", "nd", "ode", "le", "mode", "model", "\xE2\x96\x81-",
    "\xE2\x96\x81n", "ge", "al", "\xE2\x96\x81" "f", "ex", "la", "\xE2\x96\x81" "and", "gg", "is",
    "\xE2\x96\x81" "bitnet", "ar", "ro", "\xE2\x96\x81in", "\xE2\x96\x81p", "\xE2\x96\x81of", "am",
    "ct", "st", "\xE2\x96\x81(", "\xE2\x96\x81" "b", "\xE2\x96\x81r", "ate", "ext",
    "\xE2\x96\x81no", "\xE2\x96\x81re", "lo", "se", "\xE2\x96\x81m", "ing", "ner",
    "\xE2\x96\x81" "ar", "fi", "on", "ou", "uf", "\xE2\x96\x81#", "\xE2\x96\x81&", "\xE2\x96\x81=",
    "\xE2\x96\x81" "e", "hat", "ith", "lan", "\xE2\x96\x81``", "\xE2\x96\x81is", "\xE2\x96\x81on",
    "gguf", "\xE2\x96\x81```", "gener", "\xE2\x96\x81with", "\xE2\x96\x81model", "generate", "ad",
    "or", "un", "\xE2\x96\x81\"", "\xE2\x96\x81*", "\xE2\x96\x81v", "ctx", "\xE2\x96\x81it",
    "text", "an", "as", "ce", "do", "ed", "il", "sh", "ts", "ve", "\xE2\x96\x81", "e", "t", "n",
    "a", "i", "r", "o", "s", "l", "h", "d", "m", "c", "g", "u", "-", "f", "b", ",", ".", "`", "p",
    "w", "x", "_", "v", "2", "(", ")", "y", ";", "1", "/", "\"", "#", "0", "&", "6", "8", "k", "4",
    ":", "=", "\xC3\xA9", "*", "5", "3", "<", "[", "]", "{", "}", "!", ">", "I"
};

enum { SPM_TOKENS = 409 };

static const char *spm_last;                               /* the last piece instead of I, or 0 */

/* Token 0 is unknown, 1 and 2 are control, then the 256 bytes and the pieces. */
static inline void spm_put_tokens(gb_buf *b) {
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    char name[8];
    int i;
    for (i = 0; i < 3; i++) gb_string(b, first[i], strlen(first[i]));
    for (i = 0; i < 256; i++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        gb_string(b, name, 6);
    }
    for (i = 0; i < 150; i++) {
        const char *piece = i == 149 && spm_last ? spm_last : spm_pieces[i];
        gb_string(b, piece, strlen(piece));
    }
}

static inline void spm_put_types(gb_buf *b) {
    int i;
    for (i = 0; i < SPM_TOKENS; i++) gb_uint(b, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1, 4);
}

static inline void spm_put_scores(gb_buf *b) {
    int i;
    for (i = 0; i < SPM_TOKENS; i++) gb_float(b, i < 259 ? 0.0f : (float)(259 - i));
}

/* A whole file. */
static int spm_prefix, spm_scores;

static inline void spm_put_vocab(gb_model *m) {
    gb_file *f = &m->file;
    gb_key_str(f, "tokenizer.ggml.model", "llama");
    gb_key_str(f, "tokenizer.ggml.pre", "default");
    gb_key_array(f, "tokenizer.ggml.tokens", GB_STR, SPM_TOKENS);
    spm_put_tokens(&f->keys);
    gb_key_array(f, "tokenizer.ggml.token_type", GB_I32, SPM_TOKENS);
    spm_put_types(&f->keys);
    gb_key_array(f, "tokenizer.ggml.scores", GB_F32, (uint64_t)spm_scores);
    spm_put_scores(&f->keys);
    f->keys.n -= 4 * (size_t)(SPM_TOKENS - spm_scores);
    if (spm_prefix >= 0)
        gb_key_uint(f, "tokenizer.ggml.add_space_prefix", GB_BOOL, (uint64_t)spm_prefix, 1);
}

static inline gb_model spm_model(int prefix, int scores) {
    gb_model m = {.arch = "bitnet", .dim = 64, .ffn = 64, .layers = 1, .heads = 2, .kv_heads = 2,
                  .eps = 1e-5f, .n_words = 150};
    m.put_vocab = spm_put_vocab;
    spm_prefix = prefix;
    spm_scores = scores;
    return m;
}

#endif
