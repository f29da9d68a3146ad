/* Vocabularies for the targets that need one: a description of a few bytes becomes a GGUF file that
   has only a tokenizer. */
#ifndef FUZZ_VOCAB_H
#define FUZZ_VOCAB_H
#include "fuzz.h"

enum { VOCAB_LLAMA_BPE, VOCAB_FALCON_E, VOCAB_SPM, VOCAB_QWEN2, VOCAB_KINDS };
enum { VOCAB_MAX = 256 + 64 + 64 + 8, VOCAB_TEXT = 64 };

typedef struct vocab_spec {
    int kind, n;
    char text[VOCAB_MAX][VOCAB_TEXT];  /* raw bytes, or a name */
    uint8_t len[VOCAB_MAX], type[VOCAB_MAX], score[VOCAB_MAX];
    int n_merges;
    int left[64], right[64];
} vocab_spec;

static int vocab_add(vocab_spec *v, int type, const void *p, size_t n, int score) {
    memcpy(v->text[v->n], p, n);
    v->len[v->n] = (uint8_t)n;
    v->type[v->n] = (uint8_t)type;
    v->score[v->n] = (uint8_t)score;
    return v->n++;
}

/* A token that a byte names: one of the bytes' own, printable more often, or a later one. */
static int vocab_pick(const vocab_spec *v, uint32_t x) {
    if (x < 128 || v->n <= 256) return (int)(x & 127);
    return 256 + (int)((x - 128) % (uint32_t)(v->n - 256));
}

/* All bytes, tokens of given types and texts, and what merges make of two. */
static void vocab_describe(vocab_spec *v, fuzz_input *in) {
    static const uint8_t types[] = {1, 1, 1, 1, 3, 4, 3, 5, 0, 2, 6, 7};
    static const char *const names[] = {"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"};
    int i, n, n_merges;
    memset(v, 0, sizeof *v);
    v->kind = fuzz_range(in, 0, VOCAB_KINDS - 1);
    for (i = 0; i < 256; i++) {
        uint8_t b = (uint8_t)i;
        vocab_add(v, v->kind == VOCAB_SPM ? 6 : 1, &b, 1, 0);
    }
    for (i = 0; i < 3; i++) vocab_add(v, 3, names[i], strlen(names[i]), 0);
    n = fuzz_range(in, 0, 63);
    for (i = 0; i < n; i++) {
        const int type = types[fuzz_range(in, 0, 11)];
        size_t len = (size_t)fuzz_range(in, 0, 15);
        const uint8_t *p = fuzz_bytes(in, &len);
        if (type == 6 && v->kind == VOCAB_SPM && len != 15) continue;      /* else refused */
        vocab_add(v, type, len ? (const void *)p : "", len, fuzz_range(in, 0, 255));
    }
    n_merges = fuzz_range(in, 0, 63);
    for (i = 0; i < n_merges; i++) {
        const int a = vocab_pick(v, fuzz_uint(in, 1)), b = vocab_pick(v, fuzz_uint(in, 1));
        char both[2 * VOCAB_TEXT];
        if (v->type[a] == 3 || v->type[b] == 3 || v->len[a] + v->len[b] > VOCAB_TEXT) continue;
        memcpy(both, v->text[a], v->len[a]);
        memcpy(both + v->len[a], v->text[b], v->len[b]);
        v->left[v->n_merges] = a;
        v->right[v->n_merges++] = b;
        vocab_add(v, 1, both, (size_t)v->len[a] + v->len[b], 64 - i);
    }
}

/* A token's text as the file has it. */
static void vocab_put_text(gb_buf *out, const vocab_spec *v, int t) {
    char byte[8];
    gb_buf text = {0, 0, 0};
    int i;
    if (v->kind != VOCAB_SPM) {
        if (v->type[t] == 1 || v->type[t] == 6) gb_spelled(out, v->text[t], v->len[t]);
        else gb_string(out, v->text[t], v->len[t]);
        return;
    }
    if (t < 256) {
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)t);
        gb_string(out, byte, 6);
        return;
    }
    for (i = 0; i < v->len[t]; i++)
        if (v->text[t][i] == ' ' && v->type[t] == 1) gb_put(&text, "\xE2\x96\x81", 3);
        else gb_put(&text, &v->text[t][i], 1);
    gb_string(out, text.n ? (const char *)text.p : "", text.n);
    free(text.p);
}

/* The file. flags: 1 no types, 2 no space in front, 4 BOS wanted, 8 architecture llama, 16 names
   its special tokens, 32 no names of a kind, 64 qwen35 in the place of qwen2. */
static uint8_t *vocab_file(const vocab_spec *v, uint32_t flags, size_t *size) {
    static const char *const pre[] = {"llama-bpe", "falcon_e", "default", "qwen2"};
    gb_file f;
    gb_buf both = {0, 0, 0};
    int i;
    memset(&f, 0, sizeof f);
    gb_start(&f);
    gb_key_str(&f, "general.architecture", flags & 8 ? "llama" : "bitnet-b1.58");
    gb_key_str(&f, "tokenizer.ggml.model", v->kind == VOCAB_SPM ? "llama" : "gpt2");
    if (!(flags & 32))
        gb_key_str(&f, "tokenizer.ggml.pre",
                   flags & 64 && v->kind == VOCAB_QWEN2 ? "qwen35" : pre[v->kind]);
    gb_key_array(&f, "tokenizer.ggml.tokens", GB_STR, (uint64_t)v->n);
    for (i = 0; i < v->n; i++) vocab_put_text(&f.keys, v, i);
    if (!(flags & 1) || v->kind == VOCAB_SPM) {
        gb_key_array(&f, "tokenizer.ggml.token_type", GB_I32, (uint64_t)v->n);
        for (i = 0; i < v->n; i++) gb_uint(&f.keys, v->type[i], 4);
    }
    if (v->kind == VOCAB_SPM) {
        gb_key_array(&f, "tokenizer.ggml.scores", GB_F32, (uint64_t)v->n);
        for (i = 0; i < v->n; i++) gb_float(&f.keys, (float)v->score[i] - 100.0f);
        gb_key_uint(&f, "tokenizer.ggml.add_space_prefix", GB_BOOL, !(flags & 2), 1);
    } else {
        gb_key_array(&f, "tokenizer.ggml.merges", GB_STR, (uint64_t)v->n_merges);
        for (i = 0; i < v->n_merges; i++) {    /* two spellings and a blank, of which the second */
            gb_buf right = {0, 0, 0};          /* length is left out, and the first is of both */
            both.n = 0;
            gb_spelled(&both, v->text[v->left[i]], v->len[v->left[i]]);
            gb_uint(&both, ' ', 1);
            gb_spelled(&right, v->text[v->right[i]], v->len[v->right[i]]);
            gb_put(&both, right.p + 8, right.n - 8);
            gb_string(&f.keys, (const char *)both.p + 8, both.n - 8);
            free(right.p);
        }
    }
    if (flags & 16) {
        gb_key_u32(&f, "tokenizer.ggml.bos_token_id", 256);
        gb_key_u32(&f, "tokenizer.ggml.eos_token_id", 257);
    }
    gb_key_uint(&f, "tokenizer.ggml.add_bos_token", GB_BOOL, (flags & 4) != 0, 1);
    free(both.p);
    return gb_finish(&f, size, 0);
}

/* What the input's first bytes describe. The file stays with the caller: the model borrows it. */
static bitnet_result vocab_load(fuzz_input *in, bitnet_model *m, uint8_t **file, size_t *size,
                                const bitnet_allocator *a, bitnet_error *err) {
    static vocab_spec v;
    uint32_t flags, n, i;
    vocab_describe(&v, in);
    flags = fuzz_uint(in, 1);
    *file = vocab_file(&v, flags, size);
    n = fuzz_uint(in, 1);              /* damage */
    for (i = 0; i < (n > 252 ? n - 252 : 0); i++) {
        const uint32_t at = fuzz_uint(in, 2);
        (*file)[at % *size] = (uint8_t)fuzz_uint(in, 1);
    }
    return fuzz_load_vocab(m, *file, *size, a, err);
}

#endif
