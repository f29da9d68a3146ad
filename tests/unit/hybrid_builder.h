/* Writes small hybrid models (architecture qwen35) whose weights stay at hand; they may be folded
   by a Hadamard matrix, and wrong in a chosen way. */
#ifndef HYBRID_BUILDER_H
#define HYBRID_BUILDER_H

#include "gguf_builder.h"

enum { HYBRID_MAX_WEIGHTS = 96 };

typedef struct weight { char name[64]; int n_in, n_out; float *w; } weight;

/* What a model is made of. Folding multiplies the weights of the file, not those in `weights`. */
typedef struct hybrid {
    int layers, every;                 /* the last of each `every` layers has attention */
    int dim, ffn, heads, kv_heads, head_dim, n_rot, key_heads, value_heads, d, taps;
    uint32_t type, small_type;         /* of matrices; of ssm_alpha and ssm_beta */
    int tied;
    int block, identity, grouped;      /* of folds; block 0: none */
    /* What is wrong: a key's value; one of the faults below; what `late` changes. */
    const char *key;
    uint32_t key_type;
    uint64_t value;
    int fault;
    void (*late)(struct hybrid *h);    /* adds tensors or changes weights in the end */
    uint64_t seed;
    gb_model m;                        /* its file, and vocabulary */
    weight weights[HYBRID_MAX_WEIGHTS];
    int n_weights, n_vocab;
    uint8_t *data;
    size_t size;
} hybrid;

static inline hybrid small_hybrid(void) {
    hybrid h;
    memset(&h, 0, sizeof h);
    h.layers = 4;
    h.every = 2;
    h.dim = 64;
    h.ffn = 128;
    h.heads = 4;
    h.kv_heads = 2;
    h.head_dim = 32;
    h.n_rot = 16;
    h.key_heads = 2;
    h.value_heads = 4;
    h.d = 16;
    h.taps = 4;
    h.type = h.small_type = GB_TENSOR_F32;
    h.seed = 7;
    return h;
}

/* Rows of 96, of six heads, three for each key head, as long as those of attention. */
static inline hybrid foldable(void) {
    hybrid h = small_hybrid();
    h.value_heads = h.heads = 6;
    h.head_dim = 16;
    h.n_rot = 8;
    return h;
}

static inline void put_int(hybrid *h, const char *name, uint64_t v) {
    char full[80];
    const int changed = h->key && !strcmp(h->key, name);
    snprintf(full, sizeof full, "qwen35.%s", name);
    if (changed && h->key_type == GB_ARR) return;      /* left out */
    gb_key_uint(&h->m.file, full, changed && h->key_type ? h->key_type : GB_U32,
                changed ? h->value : v, 4);
}

static inline void put_keys(hybrid *h) {
    gb_key_str(&h->m.file, "general.architecture", "qwen35");
    put_int(h, "block_count", (uint64_t)h->layers);
    put_int(h, "context_length", 64);
    put_int(h, "embedding_length", (uint64_t)h->dim);
    put_int(h, "feed_forward_length", (uint64_t)h->ffn);
    put_int(h, "attention.head_count", (uint64_t)h->heads);
    put_int(h, "attention.head_count_kv", (uint64_t)h->kv_heads);
    put_int(h, "attention.key_length", (uint64_t)h->head_dim);
    put_int(h, "attention.value_length", (uint64_t)h->head_dim);
    put_int(h, "rope.dimension_count", (uint64_t)h->n_rot);
    put_int(h, "full_attention_interval", (uint64_t)h->every);
    put_int(h, "ssm.conv_kernel", (uint64_t)h->taps);
    put_int(h, "ssm.state_size", (uint64_t)h->d);
    put_int(h, "ssm.group_count", (uint64_t)h->key_heads);
    put_int(h, "ssm.time_step_rank", (uint64_t)h->value_heads);
    put_int(h, "ssm.inner_size", (uint64_t)(h->value_heads * h->d));
    gb_key_f32(&h->m.file, "qwen35.attention.layer_norm_rms_epsilon", 1e-6f);
    gb_key_f32(&h->m.file, "qwen35.rope.freq_base", 10000.0f);
}

static inline weight *weight_of(hybrid *h, const char *name) {
    int i;
    for (i = 0; i < h->n_weights; i++)
        if (!strcmp(h->weights[i].name, name)) return &h->weights[i];
    return 0;
}

static inline int sign_of(const hybrid *h, int n, int i) {
    return h->identity || (i * 7919 + n) % 5 < 3 ? 1 : -1;
}

/* Is its input turned? The embedding's rows are, too. */
static inline int is_folded(const hybrid *h, const char *name) {
    static const char *const not_folded[] = {"norm", "ssm_a", "ssm_b", "ssm_conv", "ssm_dt"};
    size_t i;
    for (i = 0; i < 5; i++)
        if (strstr(name, not_folded[i])) return 0;
    return h->block > 0;
}

/* One row, from w to what the file has: signs, H, and the order of value heads. */
static inline void fold_row(const hybrid *h, const weight *x, const float *w, float *out) {
    const int n = x->n_in, per_key = h->value_heads / h->key_heads;
    const int regroups = h->grouped && strstr(x->name, "ssm_out");
    double *v = (double *)gb_malloc((size_t)n * sizeof *v);
    int i, j;
    for (i = 0; i < n; i++) {
        const int head = i / h->d;     /* g * per_key + r, for r * key_heads + g */
        const int tiled = head % per_key * h->key_heads + head / per_key;
        v[i] = (double)w[regroups ? tiled * h->d + i % h->d : i] * sign_of(h, n, i);
    }
    for (i = 0; i < n; i++) {
        double sum = 0;
        for (j = 0; j < h->block; j++) {
            int bits = i % h->block & j, odd = 0;
            for (; bits; bits &= bits - 1) odd ^= 1;
            sum += (odd ? -1 : 1) * v[i / h->block * h->block + j];
        }
        out[i] = (float)(sum / sqrt((double)h->block));
    }
    free(v);
}

/* Makes a tensor of random numbers from low to high; or, if low is high, a matrix. */
static inline void put_weight(hybrid *h, const char *name, int n_in, int n_out, double low,
                              double high) {
    const size_t n = (size_t)n_in * (size_t)(n_out ? n_out : 1);
    weight *x = &h->weights[h->n_weights++];
    snprintf(x->name, sizeof x->name, "%s", name);
    x->n_in = n_in;
    x->n_out = n_out ? n_out : 1;
    if (low < high) {
        size_t i;
        x->w = (float *)gb_malloc(n * sizeof *x->w);
        for (i = 0; i < n; i++) x->w[i] = (float)gb_uniform(&h->seed, low, high);
    } else x->w = gb_random_matrix(&h->seed, n_in, n);
}

static inline void write_weight(hybrid *h, const weight *x, int is_vector) {
    const int folds = is_folded(h, x->name) && !is_vector;
    const uint32_t type = is_vector ? GB_TENSOR_F32
                          : strstr(x->name, "alpha") || strstr(x->name, "beta") ? h->small_type
                                                                                 : h->type;
    const size_t n = (size_t)x->n_in * (size_t)x->n_out;
    float *w = (float *)gb_malloc(n * sizeof *w);
    int r;
    memcpy(w, x->w, n * sizeof *w);
    for (r = 0; r < x->n_out && folds; r++)
        fold_row(h, x, x->w + r * x->n_in, w + r * x->n_in);
    gb_put_matrix(&h->m.file, x->name, type, w, x->n_in, is_vector && x->n_out == 1 ? 0 : x->n_out);
    free(w);
}

/* Names of tensors, as an array of strings; what 0: folded ones, 1: all but the first, 2: with one
   that is not there, 3: with one that cannot be folded, 4: twice. */
static inline void put_names(hybrid *h, const char *key, int what) {
    int i, n = 0;
    for (i = 0; i < h->n_weights; i++)
        n += is_folded(h, h->weights[i].name) && strcmp(h->weights[i].name, "token_embd.weight");
    n = what == 1 ? n - 1 : what == 4 ? 2 * n : what ? n + 1 : n;
    gb_key_array(&h->m.file, key, GB_STR, (uint64_t)n);
    for (i = n = 0; i < (what == 4 ? 2 : 1) * h->n_weights; i++) {
        const char *name = h->weights[i % h->n_weights].name;
        if (!is_folded(h, name) || !strcmp(name, "token_embd.weight")) continue;
        if (n++ || what != 1) gb_string(&h->m.file.keys, name, strlen(name));
    }
    if (what == 2) gb_string(&h->m.file.keys, "blk.9.attn_q.weight", 19);
    if (what == 3) gb_string(&h->m.file.keys, "blk.0.ssm_beta.weight", 21);
}

/* Faults of the keys of folds: what each is stands in fold_faults, below. */
enum {
    NO_FAULT, NO_VERSION, VERSION_3, NOT_TIED, IS_TIED, NO_BLOCK, BLOCK_24, BLOCK_0, BLOCK_256,
    TRANSFORM, NO_TRANSFORM, AXIS, MODE, NO_WIDTHS, NO_VALUES, WIDTH_TWICE, WIDTH_LACKS, WIDTH_0,
    SIGN_2, SIGN_SHORT, SIGN_LONG, SIGN_FLOATS, NAME_LACKS, NAME_OTHER, ONE_NAME_LESS,
    INVERSE_OTHER, UNKNOWN_KEY, NAMES_NUMBER, VERSION_TEXT, WIDTH_HUGE, MANY_NAMES, INVERSE_LONGER,
    FOLD_FAULTS
};

static inline void put_fold(hybrid *h) {
#define FOLD(name) "prism.hadamard." name
    const int widths[3] = {h->dim, h->value_heads * h->d, h->ffn}, fault = h->fault;
    const int n_widths = fault == WIDTH_LACKS ? 2 : 3;
    const uint32_t type = fault == SIGN_FLOATS ? GB_F32 : h->seed % 2 ? GB_I8 : GB_I32;
    const int version = fault == VERSION_3 ? 3 : h->tied != (fault == NOT_TIED) ? 2 : 1;
    gb_file *f = &h->m.file;
    int i, j, n = 0;
    if (fault == VERSION_TEXT) gb_key_str(f, FOLD("version"), "1");
    else if (fault != NO_VERSION) gb_key_u32(f, FOLD("version"), (uint32_t)version);
    if (h->tied || fault == IS_TIED) gb_key_uint(f, FOLD("tied_output"), GB_BOOL, 1, 1);
    if (fault != NO_BLOCK)
        gb_key_u32(f, FOLD("block_size"), fault == BLOCK_24 ? 24 : fault == BLOCK_0 ? 0 :
                   fault == BLOCK_256 ? 256 : (uint32_t)h->block);
    if (fault != NO_TRANSFORM)
        gb_key_str(f, FOLD("transform"),
                   fault == TRANSFORM ? "walsh" : "normalized-sylvester-walsh-hadamard");
    gb_key_str(f, FOLD("axis"), fault == AXIS ? "output" : "input-last-dimension");
    gb_key_str(f, FOLD("sign_mode"), fault == MODE ? "random" : h->identity ? "identity"
                                                                            : "explicit");
    if (h->grouped) gb_key_uint(f, FOLD("gdn_v_grouped"), GB_BOOL, 1, 1);
    if (!h->identity && fault != NO_WIDTHS) {
        gb_key_array(f, FOLD("sign_widths"), GB_I32, (uint64_t)n_widths);
        for (i = 0; i < n_widths; i++)
            gb_uint(&f->keys, fault == WIDTH_0 ? 0 : fault == WIDTH_HUGE ? 1 << 20 :
                    (uint64_t)widths[fault == WIDTH_TWICE && i == 2 ? 0 : i], 4);
    }
    for (i = 0; i < n_widths; i++) n += widths[i];
    n += (fault == SIGN_LONG) - (fault == SIGN_SHORT);
    if (!h->identity && fault != NO_VALUES) {
        gb_key_array(f, FOLD("sign_values"), type, (uint64_t)n);
        for (i = 0; i < n_widths; i++)
            for (j = 0; j < widths[i] && n > 0; j++, n--)
                gb_uint(&f->keys, fault == SIGN_2 && n == 9 ? 2
                                  : (uint64_t)(int64_t)sign_of(h, widths[i], j),
                        type == GB_I8 ? 1 : 4);
        if (fault == SIGN_LONG) gb_uint(&f->keys, 1, type == GB_I8 ? 1 : 4);
    }
    if (fault == NAMES_NUMBER) gb_key_u32(f, FOLD("weight_names"), 1);
    else put_names(h, FOLD("weight_names"), fault == ONE_NAME_LESS ? 1 : fault == NAME_LACKS ? 2 :
                   fault == NAME_OTHER ? 3 : fault == MANY_NAMES ? 4 : 0);
    gb_key_array(f, FOLD("inverse_weight_names"), GB_STR, 1);
    gb_string(&f->keys, fault == INVERSE_OTHER ? "output_norm.weight" : "token_embd.weight",
              fault == INVERSE_OTHER || fault == INVERSE_LONGER ? 18 : 17);     /* 18: with a 0 */
    if (fault == UNKNOWN_KEY) gb_key_u32(f, FOLD("sign_order"), 1);
#undef FOLD
}

static inline int is_attention(const hybrid *h, int layer) { return (layer + 1) % h->every == 0; }

static inline void make_layer(hybrid *h, int i) {
    const int values = h->value_heads * h->d, channels = values + 2 * h->key_heads * h->d;
    char name[64];
#define NAMED(what) (snprintf(name, sizeof name, "blk.%d." what, i), name)
    put_weight(h, NAMED("attn_norm.weight"), h->dim, 0, 0.5, 1.5);
    if (is_attention(h, i)) {
        put_weight(h, NAMED("attn_q.weight"), h->dim, 2 * h->heads * h->head_dim, 0, 0);
        put_weight(h, NAMED("attn_k.weight"), h->dim, h->kv_heads * h->head_dim, 0, 0);
        put_weight(h, NAMED("attn_v.weight"), h->dim, h->kv_heads * h->head_dim, 0, 0);
        put_weight(h, NAMED("attn_q_norm.weight"), h->head_dim, 0, 0.5, 1.5);
        put_weight(h, NAMED("attn_k_norm.weight"), h->head_dim, 0, 0.5, 1.5);
        put_weight(h, NAMED("attn_output.weight"), h->heads * h->head_dim, h->dim, 0, 0);
    } else {
        put_weight(h, NAMED("attn_qkv.weight"), h->dim, channels, 0, 0);
        put_weight(h, NAMED("attn_gate.weight"), h->dim, values, 0, 0);
        put_weight(h, NAMED("ssm_alpha.weight"), h->dim, h->value_heads, 0, 0);
        put_weight(h, NAMED("ssm_beta.weight"), h->dim, h->value_heads, 0, 0);
        put_weight(h, NAMED("ssm_conv1d.weight"), h->taps, channels, -0.9, 0.9);
        put_weight(h, NAMED("ssm_dt.bias"), h->value_heads, 0, -4.0, 24.0);
        put_weight(h, NAMED("ssm_a"), h->value_heads, 0, -0.2, 0.0);
        put_weight(h, NAMED("ssm_norm.weight"), h->d, 0, 0.5, 1.5);
        put_weight(h, NAMED("ssm_out.weight"), values, h->dim, 0, 0);
    }
    put_weight(h, NAMED("post_attention_norm.weight"), h->dim, 0, 0.5, 1.5);
    put_weight(h, NAMED("ffn_gate.weight"), h->dim, h->ffn, 0, 0);
    put_weight(h, NAMED("ffn_up.weight"), h->dim, h->ffn, 0, 0);
    put_weight(h, NAMED("ffn_down.weight"), h->ffn, h->dim, 0, 0);
#undef NAMED
}

static inline void make_hybrid(hybrid *h) {
    int i;
    memset(&h->m, 0, sizeof h->m);
    h->n_weights = 0;
    h->m.arch = "qwen35";
    gb_start(&h->m.file);
    put_keys(h);
    gb_put_vocab(&h->m);
    gb_key_str(&h->m.file, "tokenizer.ggml.pre", "qwen2");
    h->n_vocab = h->m.n_vocab;
    put_weight(h, "token_embd.weight", h->dim, h->n_vocab, 0, 0);
    put_weight(h, "output_norm.weight", h->dim, 0, 0.5, 1.5);
    for (i = 0; i < h->layers; i++) make_layer(h, i);
    if (!h->tied) put_weight(h, "output.weight", h->dim, h->n_vocab, 0, 0);
    if (h->block) put_fold(h);
    if (h->late) h->late(h);
    for (i = 0; i < h->n_weights; i++) {
        const weight *x = &h->weights[i];
        if (x->w)
            write_weight(h, x, x->n_out == 1 || strstr(x->name, "conv1d") != 0);
    }
    h->data = gb_finish(&h->m.file, &h->size, 0);
}

static inline void free_hybrid(hybrid *h) {
    int i;
    for (i = 0; i < h->n_weights; i++) free(h->weights[i].w);
    free(h->data);
}

#endif
