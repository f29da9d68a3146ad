/* convert_hf.h - a part of convert.c: a model in Hugging Face's form (config.json, safetensors,
   tokenizer.json) as GGUF with the official file's keys and names, its linear layers as I2_S.

   Those come in two forms. Packed: uint8 [out / 4, in] and a weight_scale of one element; a byte
   holds four weights of one column, from four blocks of rows, code = weight + 1:

       bits of byte (r, c)     1-0        3-2              5-4              7-6
       weight                  (r, c)     (out/4 + r, c)   (out/2 + r, c)   (3*out/4 + r, c)

   A layer gives dot * weight_scale if quantization_config.linear_class is autobitlinear, and
   dot / weight_scale if it is bitlinear, which is also what its absence means; I2_S has the factor.
   Not packed (bf16, f16 or f32): scale = mean|w|, at least 1e-5, and weight = w / scale rounded to
   nearest, ties to even, limited to -1 .. 1. The sum is one of doubles, element i into partial sum
   i % 16, these added in order; the scale is then rounded to F32. The rows of q and k stay as they
   are: both sides rotate pairs (i, i + head_size / 2). */

enum { HF_SLICE = 1 << 20 };           /* elements in memory at a time */

typedef struct hf_options {
    const char *name;                  /* general.name; 0: the folder's */
    const char *pre;                   /* tokenizer.ggml.pre; 0: recognised */
    uint32_t head_type;                /* BITNET_TENSOR_* of embedding and head; 0: F32 */
    /* Makes a row of n floats one of head_type; 0: for F32, F16 and BF16 */
    void (*quantize_fn)(uint32_t type, const float *x, uint64_t n, uint8_t *out);
    void (*log_fn)(void *ud, const char *text);   /* may be 0 */
    void *ud;
} hf_options;

typedef struct hf_part {               /* a tensor of the GGUF file */
    char name[64];
    st_tensor *t, *scale;              /* scale: of packed weights; else 0 */
    uint32_t type;
    uint64_t rows, cols;
} hf_part;

typedef struct hf_model {
    hf_options options;
    json config;
    tok tokens;
    st_model tensors;
    hf_part *parts;                    /* [n_parts] */
    uint32_t n_parts;
    const char *arch;
    uint64_t n_layers, dim, ffn, heads, kv_heads, context, vocab;
    float eps, theta;
    int divides, quantized;            /* how weight_scale works; there is a quantization_config */
    float *floats;                     /* [HF_SLICE] each */
    uint8_t *bytes, *out;              /* bytes: [4 * HF_SLICE], as out */
} hf_model;

/* Whatever hf_open gave back. */
static void hf_close(hf_model *h) {
    json_free(&h->config);
    tok_free(&h->tokens);
    st_close(&h->tensors);
    free(h->parts);
    free(h->floats);
    free(h->bytes);
    free(h->out);
    memset(h, 0, sizeof *h);
}

/* ---- config.json ---- */

static bitnet_result hf_bad(const hf_model *h, const char *key, const char *what,
                            bitnet_error *err) {
    return bitnet__fail(err, BITNET_ERR_FORMAT, "%s: '%s' %s", h->config.name, key, what);
}

/* An integer from 1 to high; *out is what it is where the key is missing, 0: it must be there. */
static bitnet_result hf_get_uint(const hf_model *h, const char *key, uint64_t high, uint64_t *out,
                                 bitnet_error *err) {
    const uint32_t node = json_get(&h->config, JSON_ROOT, key);
    if (!node && *out) return BITNET_OK;
    if (!node) return hf_bad(h, key, "is missing", err);
    if (json_uint(&h->config, node, out) && *out >= 1 && *out <= high) return BITNET_OK;
    return bitnet__fail(err, BITNET_ERR_FORMAT, "%s: '%s' is not an integer from 1 to %llu",
                        h->config.name, key, (unsigned long long)high);
}

static bitnet_result hf_get_float(const hf_model *h, uint32_t object, const char *key, float *out,
                                  bitnet_error *err) {
    const json *j = &h->config;
    const uint32_t node = json_get(j, object, key);
    if (!node) return hf_bad(h, key, "is missing", err);
    *out = json_kind(j, node) == JSON_NUMBER ? (float)strtod(j->text + j->nodes[node].at, 0) : 0;
    return *out > 0 && *out < 1e30f ? BITNET_OK : hf_bad(h, key, "is no positive number", err);
}

/* Something else than what the library computes. */
static bitnet_result hf_unsupported(const hf_model *h, const char *key, uint32_t node,
                                    const char *known, bitnet_error *err) {
    const json_node *s = &h->config.nodes[node];
    return bitnet__fail(err, BITNET_ERR_UNSUPPORTED, "%s: %s '%.*s' is not supported; %s",
                        h->config.name, key, s->len < 64 ? (int)s->len : 64,
                        h->config.text + s->at, known);
}

static bitnet_result hf_read_kind(hf_model *h, bitnet_error *err) {
    const json *j = &h->config;
    uint32_t archs = json_get(j, JSON_ROOT, "architectures"), act, bias, rope, type;
    if (json_kind(j, archs) != JSON_ARRAY || j->nodes[archs].n != 1)
        return hf_bad(h, "architectures", "does not name one", err);
    if (!json_is(j, archs + 1, "BitNetForCausalLM") && !json_is(j, archs + 1, "BitnetForCausalLM"))
        return hf_unsupported(h, "architecture", archs + 1, "BitNetForCausalLM is", err);
    act = json_get(j, JSON_ROOT, "hidden_act");
    h->arch = json_is(j, act, "relu2") ? "bitnet-b1.58" : json_is(j, act, "silu") ? "bitnet" : 0;
    if (!h->arch) return hf_unsupported(h, "hidden_act", act, "relu2 and silu are", err);
    bias = json_get(j, JSON_ROOT, "attention_bias");
    if (bias && json_kind(j, bias) != JSON_FALSE)
        return hf_bad(h, "attention_bias", "is not false", err);
    if (json_get(j, JSON_ROOT, "rope_scaling"))
        return hf_bad(h, "rope_scaling", "is not supported", err);
    rope = json_get(j, JSON_ROOT, "rope_parameters");            /* where newer files have it */
    type = json_get(j, rope, "rope_type");
    if (type && !json_is(j, type, "default"))
        return hf_unsupported(h, "rope_type", type, "default is", err);
    return hf_get_float(h, rope ? rope : JSON_ROOT, "rope_theta", &h->theta, err);
}

static bitnet_result hf_read_quantization(hf_model *h, bitnet_error *err) {
    const json *j = &h->config;
    const uint32_t q = json_get(j, JSON_ROOT, "quantization_config");
    const uint32_t method = json_get(j, q, "quant_method"), norm = json_get(j, q, "use_rms_norm");
    const uint32_t linear = json_get(j, q, "linear_class");
    if (!q) return BITNET_OK;
    if (!json_is(j, method, "bitnet"))
        return hf_unsupported(h, "quant_method", method, "bitnet is", err);
    if (norm && json_kind(j, norm) != JSON_FALSE)
        return hf_bad(h, "use_rms_norm", "is not supported", err);
    if (linear && !json_is(j, linear, "bitlinear") && !json_is(j, linear, "autobitlinear"))
        return hf_unsupported(h, "linear_class", linear, "bitlinear and autobitlinear are", err);
    h->divides = !json_is(j, linear, "autobitlinear");
    h->quantized = 1;
    return BITNET_OK;
}

static bitnet_result hf_read_config(hf_model *h, const char *dir, bitnet_error *err) {
    uint64_t head;
    bitnet_result r;
    if ((r = file_load_json(dir, "config.json", 0, &h->config, err)) ||
        (r = hf_read_kind(h, err)) || (r = hf_read_quantization(h, err)) ||
        (r = hf_get_float(h, JSON_ROOT, "rms_norm_eps", &h->eps, err)) ||
        (r = hf_get_uint(h, "num_hidden_layers", 1000, &h->n_layers, err)) ||
        (r = hf_get_uint(h, "hidden_size", HF_SLICE, &h->dim, err)) ||
        (r = hf_get_uint(h, "intermediate_size", HF_SLICE, &h->ffn, err)) ||
        (r = hf_get_uint(h, "num_attention_heads", 4096, &h->heads, err)) ||
        (r = hf_get_uint(h, "max_position_embeddings", 1 << 30, &h->context, err)) ||
        (r = hf_get_uint(h, "vocab_size", TOK_MAX, &h->vocab, err))) return r;
    h->kv_heads = h->heads;
    if ((r = hf_get_uint(h, "num_key_value_heads", h->heads, &h->kv_heads, err))) return r;
    head = h->dim / h->heads;
    if (head * h->heads != h->dim || h->heads % h->kv_heads)
        return hf_bad(h, "num_attention_heads", "does not divide what it should", err);
    if ((r = hf_get_uint(h, "head_dim", HF_SLICE, &head, err))) return r;
    return head * h->heads == h->dim ? BITNET_OK
                                     : hf_bad(h, "head_dim", "is not hidden_size / heads", err);
}

/* ---- which tensors ---- */

static st_tensor *hf_find(const hf_model *h, const char *name) {
    return st_find(&h->tensors, name, (uint32_t)strlen(name));
}

static int hf_is_float(const st_tensor *t) {
    return !strcmp(t->dtype, "BF16") || !strcmp(t->dtype, "F16") || !strcmp(t->dtype, "F32");
}

/* Declares the tensor hf, or else other, of rows x cols; rows 0: a vector. */
static bitnet_result hf_add(hf_model *h, const char *name, const char *hf, const char *other,
                            uint32_t type, uint64_t rows, uint64_t cols, bitnet_error *err) {
    hf_part *p = &h->parts[h->n_parts++];
    st_tensor *t = hf_find(h, hf);
    const int packed = t && !hf_is_float(t);
    char scale[160];
    if (!t && other) t = hf_find(h, other);
    if (!t) return bitnet__fail(err, BITNET_ERR_FORMAT, "tensor '%s' is missing", hf);
    snprintf(p->name, sizeof p->name, "%s", name);
    snprintf(scale, sizeof scale, "%s_scale", hf);
    p->t = t;
    p->type = type;
    p->rows = rows ? rows : 1;
    p->cols = cols;
    t->used = 1;
    if (type == BITNET_TENSOR_I2_S) p->scale = hf_find(h, scale);
    if (packed && (type != BITNET_TENSOR_I2_S || strcmp(t->dtype, "U8")))
        return st_fail(&h->tensors, t, "its dtype is not supported here", err);
    if (packed && !h->quantized)
        return st_fail(&h->tensors, t, "packed, but config.json has no quantization_config", err);
    if (packed != (p->scale != 0))
        return st_fail(&h->tensors, t, packed ? "its weight_scale is missing"
                                              : "not packed, but with a weight_scale", err);
    if (packed && rows % 4) return st_fail(&h->tensors, t, "rows that are not in fours", err);
    if (t->n_dims != (rows ? 2u : 1u) || t->dims[t->n_dims - 1] != cols ||
        (rows && t->dims[0] != (packed ? rows / 4 : rows)))
        return st_fail(&h->tensors, t, "its shape is not what config.json says", err);
    if (type == BITNET_TENSOR_I2_S && rows * cols % 128)
        return st_fail(&h->tensors, t, "no whole blocks of 128 weights", err);
    if (!p->scale) return BITNET_OK;
    p->scale->used = 1;
    return hf_is_float(p->scale) && p->scale->n == 1
           ? BITNET_OK : st_fail(&h->tensors, p->scale, "it is not one float", err);
}

static bitnet_result hf_add_layer(hf_model *h, unsigned i, bitnet_error *err) {
    const uint64_t d = h->dim, f = h->ffn, kv = h->dim / h->heads * h->kv_heads;
    const struct { const char *name, *hf, *other; uint64_t rows, cols; } parts[] = {
        {"attn_norm", "input_layernorm", 0, 0, d},
        {"attn_q", "self_attn.q_proj", 0, d, d},
        {"attn_k", "self_attn.k_proj", 0, kv, d},
        {"attn_v", "self_attn.v_proj", 0, kv, d},
        {"attn_sub_norm", "self_attn.attn_sub_norm", "self_attn.inner_attn_ln", 0, d},
        {"attn_output", "self_attn.o_proj", 0, d, d},
        {"ffn_norm", "post_attention_layernorm", 0, 0, d},
        {"ffn_gate", "mlp.gate_proj", 0, f, d},
        {"ffn_up", "mlp.up_proj", 0, f, d},
        {"ffn_sub_norm", "mlp.ffn_sub_norm", "mlp.ffn_layernorm", 0, f},
        {"ffn_down", "mlp.down_proj", 0, d, f},
    };
    char name[64], hf[128], other[128];
    bitnet_result r = BITNET_OK;
    size_t k;
    for (k = 0; k < sizeof parts / sizeof parts[0] && !r; k++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", i, parts[k].name);
        snprintf(hf, sizeof hf, "model.layers.%u.%s.weight", i, parts[k].hf);
        snprintf(other, sizeof other, "model.layers.%u.%s.weight", i,
                 parts[k].other ? parts[k].other : "");
        r = hf_add(h, name, hf, other, parts[k].rows ? BITNET_TENSOR_I2_S : BITNET_TENSOR_F32,
                   parts[k].rows, parts[k].cols, err);
    }
    return r;
}

static bitnet_result hf_add_all(hf_model *h, bitnet_error *err) {
    const uint32_t tie = json_get(&h->config, JSON_ROOT, "tie_word_embeddings");
    const uint32_t head = h->options.head_type;
    st_tensor *output = hf_find(h, "lm_head.weight");
    bitnet_result r;
    uint32_t i;
    h->parts = (hf_part *)calloc((size_t)(3 + 11 * h->n_layers), sizeof *h->parts);
    if (!h->parts) return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a list of tensors");
    r = hf_add(h, "token_embd.weight", "model.embed_tokens.weight", 0, head, h->vocab, h->dim, err);
    for (i = 0; i < h->n_layers && !r; i++) r = hf_add_layer(h, i, err);
    if (!r) r = hf_add(h, "output_norm.weight", "model.norm.weight", 0, BITNET_TENSOR_F32, 0,
                       h->dim, err);
    if (r) return r;
    if (json_kind(&h->config, tie) == JSON_TRUE) {
        if (output) output->used = 1;  /* the embedding, once more */
    } else if (output || tie) {
        r = hf_add(h, "output.weight", "lm_head.weight", 0, head, h->vocab, h->dim, err);
        if (r) return r;
    }
    for (i = 0; i < h->tensors.n_tensors; i++) {
        const st_tensor *t = &h->tensors.tensors[i];
        static const char rope[] = ".rotary_emb.inv_freq";       /* follows from rope_theta */
        const size_t n = sizeof rope - 1;
        if (t->used || (t->name_len > n && !memcmp(t->name + t->name_len - n, rope, n))) continue;
        return st_fail(&h->tensors, t, "the model has no place for it", err);
    }
    return BITNET_OK;
}

/* Opens the model of a folder and checks all but the weights' values. hf_close afterwards, whatever
   came back. */
static bitnet_result hf_open(hf_model *h, const char *dir, const hf_options *options,
                             bitnet_error *err) {
    bitnet_result r;
    memset(h, 0, sizeof *h);
    h->options = *options;
    if (!(h->floats = (float *)malloc(sizeof *h->floats * HF_SLICE)) ||
        !(h->bytes = (uint8_t *)malloc(4 * (size_t)HF_SLICE)) ||
        !(h->out = (uint8_t *)malloc(4 * (size_t)HF_SLICE)))
        return bitnet__fail(err, BITNET_ERR_MEMORY, "no memory for a slice of a tensor");
    if ((r = hf_read_config(h, dir, err)) || (r = st_open(&h->tensors, dir, err)) ||
        (r = tok_open(&h->tokens, dir, &h->config, h->vocab, options->pre, err))) return r;
    return hf_add_all(h, err);
}
