/* Writes GGUF files in memory, and small random BitNet models whose weights stay at hand, so that a
   test can compute what the library should say. Exits on lack of memory: tests need no more.

   A file: gb_start, gb_key_*, gb_tensor, gb_finish. A model: fill a gb_model (zero means default),
   gb_make_model. Two hooks change what gets written, for tests of bad files. */
#ifndef GGUF_BUILDER_H
#define GGUF_BUILDER_H

#include "test.h"
#include <math.h>

enum {
    GB_U8, GB_I8, GB_U16, GB_I16, GB_U32, GB_I32, GB_F32, GB_BOOL, GB_STR, GB_ARR, GB_U64, GB_I64,
    GB_F64
};
enum {
    GB_TENSOR_F32 = 0, GB_TENSOR_F16 = 1, GB_TENSOR_Q4_0 = 2, GB_TENSOR_Q5_0 = 6,
    GB_TENSOR_Q8_0 = 8, GB_TENSOR_Q2_K = 10, GB_TENSOR_Q3_K = 11, GB_TENSOR_Q4_K = 12,
    GB_TENSOR_Q5_K = 13, GB_TENSOR_Q6_K = 14, GB_TENSOR_BF16 = 30, GB_TENSOR_I2_S = 36
};

/* ---- bytes ---- */

typedef struct gb_buf { uint8_t *p; size_t n, cap; } gb_buf;

static inline void *gb_malloc(size_t n) {
    void *p = malloc(n ? n : 1);
    if (!p) exit(3);
    return p;
}

static inline void gb_put(gb_buf *b, const void *p, size_t n) {
    if (n > b->cap - b->n) {
        uint8_t *bigger;
        b->cap = 2 * (b->n + n);
        bigger = (uint8_t *)realloc(b->p, b->cap);
        if (!bigger) exit(3);
        b->p = bigger;
    }
    if (n) memcpy(b->p + b->n, p, n);
    b->n += n;
}

static inline void gb_uint(gb_buf *b, uint64_t v, int bytes) {
    int i;
    for (i = 0; i < bytes; i++) {
        uint8_t x = (uint8_t)(v >> (8 * i));
        gb_put(b, &x, 1);
    }
}

static inline void gb_float(gb_buf *b, float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    gb_uint(b, u, 4);
}

static inline void gb_string(gb_buf *b, const char *s, size_t n) {
    gb_uint(b, n, 8);
    gb_put(b, s, n);
}

static inline void gb_pad(gb_buf *b, size_t alignment) {
    while (b->n % alignment) gb_uint(b, 0, 1);
}

/* ---- files ---- */

/* An alignment with which small models are read tensor by tensor: others are read at once. */
enum { GB_SPREAD = 32768 };

typedef struct gb_file {
    uint32_t version, alignment;       /* gb_start sets 3 and 32 */
    uint64_t n_keys, n_tensors;
    gb_buf keys, dir, data;
    size_t tokens_at, tokens_end; /* set by gb_make_model: where in the file the vocabulary is */
    /* changes: a key or tensor to leave out; a function that adds keys; one that sees each tensor
       and returns 1 to leave its data out */
    const char *omit;
    uint64_t experts;                  /* matrices in a tensor whose name ends with _exps.weight */
    void (*add_keys)(struct gb_file *f);
    int (*tensor_hook)(const char *name, uint32_t *type, uint32_t *n_dims, uint64_t dims[8],
                       uint64_t *offset);
} gb_file;

static inline int gb_omitted(const gb_file *f, const char *name) {
    return f->omit && !strcmp(f->omit, name);
}

static inline void gb_start(gb_file *f) {
    f->version = 3;
    if (!f->alignment) f->alignment = 32;
}

/* The head of a key; its value goes into f->keys behind it. */
static inline void gb_key(gb_file *f, const char *name, uint32_t type) {
    gb_string(&f->keys, name, strlen(name));
    gb_uint(&f->keys, type, 4);
    f->n_keys++;
}

static inline void gb_key_uint(gb_file *f, const char *name, uint32_t type, uint64_t v, int bytes) {
    if (gb_omitted(f, name)) return;
    gb_key(f, name, type);
    gb_uint(&f->keys, v, bytes);
}

static inline void gb_key_u32(gb_file *f, const char *name, uint32_t v) {
    gb_key_uint(f, name, GB_U32, v, 4);
}

static inline void gb_key_f32(gb_file *f, const char *name, float v) {
    if (gb_omitted(f, name)) return;
    gb_key(f, name, GB_F32);
    gb_float(&f->keys, v);
}

static inline void gb_key_str(gb_file *f, const char *name, const char *v) {
    if (gb_omitted(f, name)) return;
    gb_key(f, name, GB_STR);
    gb_string(&f->keys, v, strlen(v));
}

static inline void gb_key_array(gb_file *f, const char *name, uint32_t element, uint64_t n) {
    gb_key(f, name, GB_ARR);
    gb_uint(&f->keys, element, 4);
    gb_uint(&f->keys, n, 8);
}

/* n_rows 0: one dimension. */
static inline void gb_tensor(gb_file *f, const char *name, uint32_t type, uint64_t n_cols,
                             uint64_t n_rows, const void *bytes, size_t size) {
    uint64_t dims[8] = {0}, offset;
    uint32_t n_dims = n_rows ? 2 : 1, i;
    if (gb_omitted(f, name)) return;
    gb_pad(&f->data, f->alignment);
    offset = f->data.n;
    dims[0] = n_cols;
    dims[1] = n_rows;
    if (f->experts && strstr(name, "_exps.weight")) {
        dims[1] = n_rows / f->experts;
        dims[2] = f->experts;
        n_dims = 3;
    }
    if (f->tensor_hook && f->tensor_hook(name, &type, &n_dims, dims, &offset)) size = 0;
    gb_string(&f->dir, name, strlen(name));
    gb_uint(&f->dir, n_dims, 4);
    for (i = 0; i < n_dims && i < 8; i++) gb_uint(&f->dir, dims[i], 8);
    gb_uint(&f->dir, type, 4);
    gb_uint(&f->dir, offset, 8);
    gb_put(&f->data, bytes, size);
    f->n_tensors++;
}

/* The whole file in an exact-size block; *header (if wanted) is where the data begins. */
static inline uint8_t *gb_finish(gb_file *f, size_t *size, size_t *header) {
    gb_buf out = {0};
    uint8_t *exact;
    gb_put(&out, "GGUF", 4);
    gb_uint(&out, f->version, 4);
    gb_uint(&out, f->n_tensors, 8);
    gb_uint(&out, f->n_keys, 8);
    gb_put(&out, f->keys.p, f->keys.n);
    gb_put(&out, f->dir.p, f->dir.n);
    if (f->n_tensors) gb_pad(&out, f->alignment);
    if (header) *header = out.n;
    gb_put(&out, f->data.p, f->data.n);
    exact = (uint8_t *)gb_malloc(out.n);
    memcpy(exact, out.p, out.n);
    *size = out.n;
    free(out.p);
    free(f->keys.p);
    free(f->dir.p);
    free(f->data.p);
    return exact;
}

/* ---- random numbers ---- */

static inline uint32_t gb_random(uint64_t *state) {        /* xorshift64* */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (uint32_t)((*state * 0x2545f4914f6cdd1dULL) >> 32);
}

static inline double gb_uniform(uint64_t *state, double low, double high) {
    return low + (high - low) * ((double)gb_random(state) / 4294967296.0);
}

/* ---- models ---- */

typedef struct gb_linear {
    int8_t *w;
    int n_in, n_out;
    float scale;
    int group;                         /* 0: none; else scale is not used, but */
    float *scales;                     /* [n_out][n_in / group] */
} gb_linear;
typedef struct gb_layer {
    float *attn_norm, *attn_sub_norm, *ffn_norm, *ffn_sub_norm;
    float *q_norm, *k_norm, *router;   /* of layers with experts, whose matrices are below others */
    gb_linear q, k, v, o, gate, up, down;
} gb_layer;

enum { GB_MAX_LAYERS = 12 };
typedef struct gb_model {
    /* what the caller asks for; zero: the default in parentheses */
    const char *arch;                  /* ("bitnet-b1.58") */
    int dim, ffn, layers, heads, kv_heads;
    int head_dim;                      /* (dim / heads, and no key) */
    int n_rot;                         /* (head_dim, and no key) */
    int n_ctx;                         /* (64) */
    int spare_rows; /* vocab_size beyond the tokens, as padded files have it (0) */
    uint32_t embed_type;               /* (F32) */
    int no_sub_norms;                  /* 1: as architecture llama has it */
    int no_in_norms;                   /* 1: qwen3 has no norm in front of each layer */
    int untied;                        /* 1: output.weight of head_type */
    uint32_t head_type;
    const uint8_t *embed_raw, *head_raw;   /* the matrix as it is stored (0: made of the floats) */
    size_t embed_raw_size, head_raw_size;
    bitnet_i2s_packing packing;         /* (the 128 packing) */
    /* what linear tensors are written as (0: I2_S): a heap block; may change the scale */
    uint8_t *(*encode)(gb_linear *l, uint32_t *type, size_t *size);
    const char *scale_suffix;          /* "_scale" or ".scale": a tensor of its own (0: in place) */
    int identity; /* 1: attn_output and ffn_down are all zeros: layers do nothing */
    float eps, freq_base;              /* (1e-5 and 500000, and no keys) */
    const char *const *words;          /* more tokens behind the 256 bytes: raw bytes */
    int n_words;
    const char *const *merges;         /* "a b" in GPT-2's spelling */
    int n_merges;
    const uint8_t *word_types;         /* [n_words] (all normal) */
    int no_specials;                   /* 1: no control tokens at all */
    void (*put_vocab)(struct gb_model *m);     /* writes another vocabulary of the same size */
    uint64_t seed;
    gb_file file;                      /* hooks */
    /* results; free with gb_free_model */
    int n_vocab, bos, eos, eot;
    float *embed, *head;               /* [n_vocab][dim]; the same if tied */
    float *output_norm;
    gb_layer layer[GB_MAX_LAYERS];
    uint8_t *data;                     /* the file */
    size_t size, header;
} gb_model;

/* GPT-2's spelling of one byte, as code point: encoder.py's bytes_to_unicode. */
static inline uint32_t gb_spell_byte(int b) {
    int i, n = 0;
    if ((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174) return (uint32_t)b;
    for (i = 0; i < b; i++)
        if (!((i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174)) n++;
    return 256 + (uint32_t)n;
}

static inline void gb_spelled(gb_buf *out, const char *raw, size_t n) {
    char text[2048];
    size_t at = 0, i;
    for (i = 0; i < n && at + 2 < sizeof text; i++) {
        uint32_t cp = gb_spell_byte((uint8_t)raw[i]);
        if (cp < 128) text[at++] = (char)cp;
        else {
            text[at++] = (char)(0xC0 | cp >> 6);
            text[at++] = (char)(0x80 | (cp & 63));
        }
    }
    gb_string(out, text, at);
}

/* F16 of a number that F16 holds exactly, normal or 0. */
static inline uint16_t gb_f16(float x) {
    int e;
    float m = (float)frexp(fabs((double)x), &e);           /* x = m * 2^e, m in [0.5, 1) */
    if (m == 0.0f) return 0;
    return (uint16_t)((x < 0 ? 0x8000 : 0) | (e + 14) << 10 | ((int)(m * 2048.0f) - 1024));
}

/* Random numbers that F32, F16 and BF16 hold exactly: 8 bits, about uniform in +-2 sqrt(3) /
   sqrt(n). */
static inline float *gb_random_matrix(uint64_t *seed, int n, size_t count) {
    float *p = (float *)gb_malloc(count * sizeof *p), unit = 1.0f;
    size_t i;
    while ((double)unit * 128.0 > 3.5 / sqrt((double)n)) unit *= 0.5f;
    for (i = 0; i < count; i++) p[i] = ((float)(gb_random(seed) % 255) - 127.0f) * unit;
    return p;
}

static inline void gb_put_matrix(gb_file *f, const char *name, uint32_t type, const float *w,
                                 int n_cols, int n_rows) {
    gb_buf b = {0};
    size_t i, n = (size_t)n_cols * (size_t)(n_rows ? n_rows : 1);
    for (i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &w[i], 4);
        if (type == GB_TENSOR_F16) gb_uint(&b, gb_f16(w[i]), 2);
        else if (type == GB_TENSOR_BF16) gb_uint(&b, u >> 16, 2);
        else gb_uint(&b, u, 4);
    }
    gb_tensor(f, name, type, (uint64_t)n_cols, (uint64_t)n_rows, b.p, b.n);
    free(b.p);
}

static inline float *gb_make_norm(gb_model *m, const char *name, int n) {
    float *p = (float *)gb_malloc((size_t)n * sizeof *p);
    int i;
    for (i = 0; i < n; i++) p[i] = (float)gb_uniform(&m->seed, 0.5, 1.5);
    gb_put_matrix(&m->file, name, GB_TENSOR_F32, p, n, 0);
    return p;
}

/* Where the code of weight i is: the byte, and in *shift its lowest bit. Blocks are in flat order:
   of the 128 packing byte j holds weights j, 32+j, 64+j, 96+j from the top, of the 64 packing j,
   16+j, 32+j, 48+j; a byte of the 4-row packing holds one column of four rows. */
static inline size_t gb_code_at(bitnet_i2s_packing packing, size_t n_in, size_t i, int *shift) {
    const size_t row = i / n_in, quarter = packing == BITNET_I2S_64 ? 16 : 32;
    if (packing == BITNET_I2S_4ROW) {
        *shift = 6 - 2 * (int)(row % 4);
        return row / 4 * n_in + i % n_in;
    }
    *shift = 6 - 2 * (int)(i / quarter % 4);
    return i / (4 * quarter) * quarter + i % quarter;
}

static inline void gb_make_linear(gb_model *m, const char *name, int n_in, int n_out, int silent,
                                  gb_linear *l) {
    size_t n = (size_t)n_in * (size_t)n_out, size = n / 4 + 32, i, at;
    uint32_t type = GB_TENSOR_I2_S;
    int shift;
    uint8_t *bytes = (uint8_t *)gb_malloc(size);
    char scale_name[128];
    memset(l, 0, sizeof *l);
    l->n_in = n_in;
    l->n_out = n_out;
    l->scale = (float)(gb_uniform(&m->seed, 0.8, 1.6) * sqrt(2.0 / n_in));
    l->w = (int8_t *)gb_malloc(n);
    memset(bytes, 0, n / 4 + 32);
    for (i = 0; i < n; i++) {
        uint32_t r = gb_random(&m->seed) >> 30;
        l->w[i] = (int8_t)(silent ? 0 : r == 0 ? -1 : r == 1 ? 1 : 0);
        at = gb_code_at(m->packing, (size_t)n_in, i, &shift);
        bytes[at] |= (uint8_t)((l->w[i] + 1) << shift);
    }
    if (!m->scale_suffix) {
        gb_buf b = {0};
        gb_float(&b, l->scale);
        memcpy(bytes + n / 4, b.p, 4);
        free(b.p);
    } else {
        memset(bytes + n / 4, 0x44, 4);                    /* not what must be used */
    }
    if (m->encode) {
        free(bytes);
        bytes = m->encode(l, &type, &size);
    }
    gb_tensor(&m->file, name, type, (uint64_t)n_in, (uint64_t)n_out, bytes, size);
    free(bytes);
    if (m->scale_suffix) {
        size_t stem = strlen(name) - (m->scale_suffix[0] == '.' ? strlen(".weight") : 0);
        snprintf(scale_name, sizeof scale_name, "%.*s%s", (int)stem, name, m->scale_suffix);
        gb_put_matrix(&m->file, scale_name, GB_TENSOR_F32, &l->scale, 1, 0);
    }
}

static inline void gb_put_vocab(gb_model *m) {
    static const char *const specials[] = {"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"};
    gb_file *f = &m->file;
    int i, n_special = m->no_specials ? 0 : 3, n = 256 + m->n_words + n_special;
    m->n_vocab = n + m->spare_rows;
    m->bos = m->no_specials ? -1 : 256 + m->n_words;
    m->eos = m->no_specials ? -1 : m->bos + 1;
    m->eot = m->no_specials ? -1 : m->bos + 2;
    if (m->put_vocab) {
        m->put_vocab(m);
        return;
    }
    gb_key_str(f, "tokenizer.ggml.model", "gpt2");
    f->tokens_at = 24 + f->keys.n;
    if (!gb_omitted(f, "tokenizer.ggml.tokens")) {
        gb_key_array(f, "tokenizer.ggml.tokens", GB_STR, (uint64_t)n);
        for (i = 0; i < 256; i++) {
            char c = (char)i;
            gb_spelled(&f->keys, &c, 1);
        }
        for (i = 0; i < m->n_words; i++) {
            if (m->word_types && m->word_types[i] != 1)
                gb_string(&f->keys, m->words[i], strlen(m->words[i]));
            else gb_spelled(&f->keys, m->words[i], strlen(m->words[i]));
        }
        for (i = 0; i < n_special; i++) gb_string(&f->keys, specials[i], strlen(specials[i]));
    }
    if (!gb_omitted(f, "tokenizer.ggml.token_type")) {
        gb_key_array(f, "tokenizer.ggml.token_type", GB_I32, (uint64_t)n);
        for (i = 0; i < n; i++)
            gb_uint(&f->keys, i >= n - n_special ? 3u :
                    i >= 256 && m->word_types ? m->word_types[i - 256] : 1u, 4);
    }
    f->tokens_end = 24 + f->keys.n;
    if (!gb_omitted(f, "tokenizer.ggml.merges")) {
        gb_key_array(f, "tokenizer.ggml.merges", GB_STR, (uint64_t)m->n_merges);
        for (i = 0; i < m->n_merges; i++)
            gb_string(&f->keys, m->merges[i], strlen(m->merges[i]));
    }
    if (!m->no_specials) {
        gb_key_u32(f, "tokenizer.ggml.bos_token_id", (uint32_t)m->bos);
        gb_key_u32(f, "tokenizer.ggml.eos_token_id", (uint32_t)m->eos);
    }
    gb_key_uint(f, "tokenizer.ggml.add_bos_token", GB_BOOL, 1, 1);
}

static inline void gb_put_sizes(gb_model *m) {
    const struct { const char *name; int value; } sizes[] = {
        {"context_length", m->n_ctx}, {"embedding_length", m->dim}, {"block_count", m->layers},
        {"feed_forward_length", m->ffn}, {"attention.head_count", m->heads},
        {"attention.head_count_kv", m->kv_heads}, {"attention.key_length", m->head_dim},
        {"rope.dimension_count", m->n_rot}, {"vocab_size", m->spare_rows ? m->n_vocab : 0}
    };
    char name[128];
    size_t i;
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        snprintf(name, sizeof name, "%s.%s", m->arch, sizes[i].name);
        if (sizes[i].value) gb_key_u32(&m->file, name, (uint32_t)sizes[i].value);
    }
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", m->arch);
    if (m->eps > 0) gb_key_f32(&m->file, name, m->eps);
    snprintf(name, sizeof name, "%s.rope.freq_base", m->arch);
    if (m->freq_base > 0) gb_key_f32(&m->file, name, m->freq_base);
}

/* The norms of qwen3 and gemma3 that other families lack; nobody looks at them later. */
static inline void gb_put_more_norms(gb_model *m, int i, int hd) {
    const int gemma = !strcmp(m->arch, "gemma3"), q_dim = m->heads * hd;
    const struct { const char *name; int n; } norms[] = {
        {"attn_q_norm_in", m->dim}, {"attn_k_norm_in", m->dim}, {"attn_v_norm_in", m->dim},
        {"attn_output_norm_in", q_dim}, {"ffn_gate_norm_in", m->dim}, {"ffn_up_norm_in", m->dim},
        {"ffn_down_norm_in", m->ffn}, {"attn_q_norm", hd}, {"attn_k_norm", hd},
        {"post_attention_norm", m->dim}, {"post_ffw_norm", m->dim}
    };
    char name[64];
    int k;
    for (k = m->no_in_norms ? 7 : 0; k < (gemma ? 11 : 9); k++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, norms[k].name);
        free(gb_make_norm(m, name, norms[k].n));
    }
}

/* Architecture maple has head norms, and experts in place of an FFN. */
static inline void gb_make_experts(gb_model *m, int i, int hd) {
    const int n = (int)m->file.experts;
    gb_layer *l = &m->layer[i];
    char name[64];
#define GB_NAME(what) (snprintf(name, sizeof name, "blk.%d." what ".weight", i), name)
    l->q_norm = gb_make_norm(m, GB_NAME("attn_q_norm"), hd);
    l->k_norm = gb_make_norm(m, GB_NAME("attn_k_norm"), hd);
    l->router = gb_random_matrix(&m->seed, m->dim, (size_t)n * (size_t)m->dim);
    gb_put_matrix(&m->file, GB_NAME("ffn_gate_inp"), GB_TENSOR_F32, l->router, m->dim, n);
    gb_make_linear(m, GB_NAME("ffn_gate_exps"), m->dim, n * m->ffn, 0, &l->gate);
    gb_make_linear(m, GB_NAME("ffn_up_exps"), m->dim, n * m->ffn, 0, &l->up);
    gb_make_linear(m, GB_NAME("ffn_down_exps"), m->ffn, n * m->dim, 0, &l->down);
#undef GB_NAME
}

static inline void gb_make_layer(gb_model *m, int i, int hd) {
    gb_layer *l = &m->layer[i];
    char name[64];
#define GB_NAME(what) (snprintf(name, sizeof name, "blk.%d." what ".weight", i), name)
    l->attn_norm = gb_make_norm(m, GB_NAME("attn_norm"), m->dim);
    gb_make_linear(m, GB_NAME("attn_q"), m->dim, m->heads * hd, 0, &l->q);
    gb_make_linear(m, GB_NAME("attn_k"), m->dim, m->kv_heads * hd, 0, &l->k);
    gb_make_linear(m, GB_NAME("attn_v"), m->dim, m->kv_heads * hd, 0, &l->v);
    if (!m->no_sub_norms)
        l->attn_sub_norm = gb_make_norm(m, GB_NAME("attn_sub_norm"), m->heads * hd);
    gb_make_linear(m, GB_NAME("attn_output"), m->heads * hd, m->dim, m->identity, &l->o);
    l->ffn_norm = gb_make_norm(m, GB_NAME("ffn_norm"), m->dim);
    if (m->file.experts) {
        gb_make_experts(m, i, hd);
        return;
    }
    gb_make_linear(m, GB_NAME("ffn_gate"), m->dim, m->ffn, 0, &l->gate);
    gb_make_linear(m, GB_NAME("ffn_up"), m->dim, m->ffn, 0, &l->up);
    if (!m->no_sub_norms) l->ffn_sub_norm = gb_make_norm(m, GB_NAME("ffn_sub_norm"), m->ffn);
    gb_make_linear(m, GB_NAME("ffn_down"), m->ffn, m->dim, m->identity, &l->down);
    if (!strcmp(m->arch, "qwen3") || !strcmp(m->arch, "gemma3")) gb_put_more_norms(m, i, hd);
#undef GB_NAME
}

/* embed and head may be set before (heap blocks, [n_vocab][dim]); else they are random. */
static inline void gb_make_model(gb_model *m) {
    gb_file *f = &m->file;
    int i, hd = m->head_dim ? m->head_dim : m->dim / m->heads;
    size_t count;
    gb_start(f);
    if (!m->arch) m->arch = "bitnet-b1.58";
    if (!m->n_ctx) m->n_ctx = 64;
    m->seed = m->seed * 2 + 1;
    m->n_vocab = 256 + m->n_words + (m->no_specials ? 0 : 3) + m->spare_rows;
    gb_key_str(f, "general.architecture", m->arch);
    gb_put_sizes(m);
    gb_put_vocab(m);
    if (f->alignment != 32) gb_key_u32(f, "general.alignment", f->alignment);
    if (f->add_keys) f->add_keys(f);
    count = (size_t)m->n_vocab * (size_t)m->dim;
    if (!m->embed) m->embed = gb_random_matrix(&m->seed, m->dim, count);
    if (!m->embed_raw)
        gb_put_matrix(f, "token_embd.weight", m->embed_type, m->embed, m->dim, m->n_vocab);
    else
        gb_tensor(f, "token_embd.weight", m->embed_type, (uint64_t)m->dim, (uint64_t)m->n_vocab,
                  m->embed_raw, m->embed_raw_size);
    for (i = 0; i < m->layers; i++) gb_make_layer(m, i, hd);
    m->output_norm = gb_make_norm(m, "output_norm.weight", m->dim);
    if (m->untied) {
        if (!m->head) m->head = gb_random_matrix(&m->seed, m->dim, count);
        if (!m->head_raw)
            gb_put_matrix(f, "output.weight", m->head_type, m->head, m->dim, m->n_vocab);
        else
            gb_tensor(f, "output.weight", m->head_type, (uint64_t)m->dim, (uint64_t)m->n_vocab,
                      m->head_raw, m->head_raw_size);
    } else {
        m->head = m->embed;
    }
    m->data = gb_finish(f, &m->size, &m->header);
}

static inline void gb_free_linear(gb_linear *l) {
    free(l->w);
    free(l->scales);
}

static inline void gb_free_model(gb_model *m) {
    int i;
    for (i = 0; i < m->layers && i < GB_MAX_LAYERS; i++) {
        gb_layer *l = &m->layer[i];
        free(l->attn_norm);
        free(l->attn_sub_norm);
        free(l->ffn_norm);
        free(l->ffn_sub_norm);
        free(l->q_norm);
        free(l->k_norm);
        free(l->router);
        gb_free_linear(&l->q);
        gb_free_linear(&l->k);
        gb_free_linear(&l->v);
        gb_free_linear(&l->o);
        gb_free_linear(&l->gate);
        gb_free_linear(&l->up);
        gb_free_linear(&l->down);
    }
    if (m->head != m->embed) free(m->head);
    free(m->embed);
    free(m->output_norm);
    free(m->data);
}

/* ---- an allocator that counts, and fails on request ---- */

enum { GB_FRONT = 64 };    /* bytes in front of each allocation, where the library keeps its size */

typedef struct gb_counter {
    size_t total, live_bytes, peak;    /* bytes ever asked for, held now, held at most */
    size_t peak_own;                   /* held at most, without what is in front */
    long live, calls, fail_at; /* blocks held; calls; the call that fails (gb_counting: none) */
} gb_counter;

static inline void *gb_count_alloc(void *ud, size_t size, size_t align) {
    gb_counter *c = (gb_counter *)ud;
    char *raw, *p;
    size_t back, own;
    if (c->calls++ == c->fail_at) return 0;
    /* Exact at the end, so that ASan sees an overrun; the size and the way back stand in front. */
    raw = (char *)malloc(size + align + 2 * sizeof(size_t));
    if (!raw) return 0;
    p = raw + 2 * sizeof(size_t);
    p += (align - ((uintptr_t)p & (align - 1))) & (align - 1);
    back = (size_t)(p - raw);
    memcpy(p - sizeof back, &back, sizeof back);
    memcpy(p - 2 * sizeof back, &size, sizeof size);
    c->total += size;
    c->live_bytes += size;
    c->live++;
    if (c->live_bytes > c->peak) c->peak = c->live_bytes;
    own = c->live_bytes - (size_t)c->live * GB_FRONT;
    if (own > c->peak_own) c->peak_own = own;
    return p;
}

/* What is freed with another size than it was allocated with stays counted, as a leak. */
static inline void gb_count_free(void *ud, void *p, size_t given) {
    gb_counter *c = (gb_counter *)ud;
    size_t back, size;
    memcpy(&back, (char *)p - sizeof back, sizeof back);
    memcpy(&size, (char *)p - 2 * sizeof back, sizeof size);
    if (given == size) {
        c->live--;
        c->live_bytes -= size;
    }
    free((char *)p - back);
}

static inline bitnet_allocator gb_counting(gb_counter *c) {
    bitnet_allocator a;
    memset(c, 0, sizeof *c);
    memset(&a, 0, sizeof a);
    c->fail_at = -1;
    a.alloc_fn = gb_count_alloc;
    a.free_fn = gb_count_free;
    a.ud = c;
    return a;
}

/* ---- reading a block of memory through callbacks ---- */

typedef struct gb_reader {
    const uint8_t *data;
    size_t size;
    long calls, fail_at;               /* -1: never */
    bitnet_result code;                /* what failing returns */
    int past_end;                      /* 1: somebody asked for bytes that are not there */
} gb_reader;

static inline bitnet_result gb_read(void *ud, uint64_t offset, void *dst, size_t n) {
    gb_reader *r = (gb_reader *)ud;
    if (r->calls++ == r->fail_at) return r->code;
    if (offset > r->size || n > r->size - offset) {
        r->past_end = 1;
        return BITNET_ERR_IO;
    }
    memcpy(dst, r->data + offset, n);
    return BITNET_OK;
}

static inline bitnet_io gb_io(gb_reader *r, const void *data, size_t size) {
    bitnet_io io;
    memset(&io, 0, sizeof io);
    r->data = (const uint8_t *)data;
    r->size = size;
    r->calls = 0;
    r->fail_at = -1;
    r->code = BITNET_ERR_IO;
    r->past_end = 0;
    io.size = size;
    io.read_fn = gb_read;
    io.ud = r;
    return io;
}

#endif
