#include "hf.h"
#include "files.h"
#include "pack.h"
#include "pooling.h"
#include "../json/text.h"
#include <stdlib.h>
#include <string.h>

enum { HF_SLICE = 1 << 20 };           /* elements in memory at a time */

/* ---- families and their tensors ---- */

enum {
    HF_BITNET = 1, HF_QWEN3 = 2, HF_GEMMA3 = 4, HF_LLAMA = 8, HF_GROUPS = 16, HF_DELTA = 32,
    HF_FULL = 64, HF_EMBED = HF_QWEN3 | HF_GEMMA3, HF_HYBRID = HF_DELTA | HF_FULL, HF_PLAIN = 31,
    HF_ALL = HF_PLAIN | HF_HYBRID
};

typedef struct hf_family {
    const char *model_type;            /* of config.json; 0: it is a BitNetForCausalLM */
    const char *class_name;            /* the only one of architectures; 0: any */
    const char *arch;
    const char *act_key, *act;
    int tensors;                       /* HF_BITNET and so on: those that it has; of a hybrid, a
                                          layer has those of HF_DELTA or of HF_FULL */
    uint32_t norms;                    /* their type */
    float shift;                       /* what is added to norms that are not of a linear layer */
    const char *eos;                   /* always put behind a text; 0: as the tokenizer says */
    float theta;                       /* rope_theta where the file does not say; 0: it must */
    int adjacent;                      /* 1: GGUF's rotary pairs are neighbours, so the rows of q
                                          and k are reordered */
    int masters;                       /* 1: floats are what the network rounds to ternary weights;
                                          0: only if quantization_mode is online */
    int scaled;                        /* 1: MiniCPM's factors: see hf_read_scales */
    const char *text;                  /* the object of config.json that has all this; 0: itself */
} hf_family;

/* The official model; 1bitLLM's; Microsoft's embeddings; Llama3-8B-1.58, Falcon3-1.58, Falcon-E;
   BitCPM-CANN; Ternary Bonsai, and that of 27B with and without vision. */
static const hf_family hf_families[] = {
    {0, 0, "bitnet-b1.58", "hidden_act", "relu2", HF_BITNET, BITNET_TENSOR_F32, 0, 0, 0, 0, 1, 0,
     0},
    {0, 0, "bitnet", "hidden_act", "silu", HF_BITNET, BITNET_TENSOR_F32, 0, 0, 0, 0, 1, 0, 0},
    {"qwen3", 0, "qwen3", "hidden_act", "silu", HF_QWEN3, BITNET_TENSOR_F16, 0, "<|endoftext|>", 0,
     0, 1, 0, 0},
    {"gemma3_text", 0, "gemma3", "hidden_activation", "gelu_pytorch_tanh", HF_GEMMA3,
     BITNET_TENSOR_F16, 1.0f, 0, 0, 0, 1, 0, 0},
    {"llama", "LlamaForCausalLM", "llama", "hidden_act", "silu", HF_LLAMA, BITNET_TENSOR_F32, 0, 0,
     10000.0f, 1, 0, 0, 0},
    {"minicpm", "MiniCPMForCausalLM", "minicpm", "hidden_act", "silu", HF_LLAMA, BITNET_TENSOR_F32,
     0, 0, 10000.0f, 1, 0, 1, 0},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", "hidden_act", "silu", HF_GROUPS, BITNET_TENSOR_F32, 0, 0,
     0, 0, 0, 0, 0},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", "qwen35", "hidden_act", "silu", HF_HYBRID,
     BITNET_TENSOR_F32, 1.0f, 0, 0, 0, 0, 0, 0},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen35", "hidden_act", "silu", HF_HYBRID,
     BITNET_TENSOR_F32, 1.0f, 0, 0, 0, 0, 0, "text_config"}
};
enum { HF_FAMILIES = sizeof hf_families / sizeof hf_families[0] };

/* What is special about a tensor of a layer. */
enum {
    HF_SHIFTED = 1,                    /* it gets the family's shift */
    HF_ROTATED = 2,                    /* its rows are rotated by RoPE */
    HF_TILED = 4,                      /* its value heads are reordered: rows, of in_proj_qkv and
                                          conv1d the last ones, or columns */
    HF_NARROW = 8,                     /* its weights may be no ternary ones */
    HF_DECAY = 16,                     /* -exp(x) of its numbers x */
    HF_BARE = 32,                      /* its names have no ".weight" */
    HF_FLOATS = 64                     /* it is a matrix in F32 */
};

/* The tensors of a layer. rows HF_ONE: a norm, or another vector. */
static const struct hf_layer_part {
    const char *name, *hf, *other;     /* other: an older name */
    int tensors, rows, cols, special;
} hf_layer_parts[] = {
    {"attn_norm", "input_layernorm", 0, HF_ALL, HF_ONE, HF_DIM, HF_SHIFTED},
    {"attn_q_norm_in", "self_attn.q_proj.norm", 0, HF_EMBED, HF_ONE, HF_DIM, 0},
    {"attn_q", "self_attn.q_proj", 0, HF_PLAIN, HF_Q, HF_DIM, HF_ROTATED},
    {"attn_q", "self_attn.q_proj", 0, HF_FULL, HF_GATED, HF_DIM, 0},
    {"attn_k_norm_in", "self_attn.k_proj.norm", 0, HF_EMBED, HF_ONE, HF_DIM, 0},
    {"attn_k", "self_attn.k_proj", 0, HF_PLAIN | HF_FULL, HF_KV, HF_DIM, HF_ROTATED},
    {"attn_v_norm_in", "self_attn.v_proj.norm", 0, HF_EMBED, HF_ONE, HF_DIM, 0},
    {"attn_v", "self_attn.v_proj", 0, HF_PLAIN | HF_FULL, HF_KV, HF_DIM, 0},
    {"attn_q_norm", "self_attn.q_norm", 0, HF_EMBED | HF_GROUPS | HF_FULL, HF_ONE, HF_HEAD,
     HF_SHIFTED},
    {"attn_k_norm", "self_attn.k_norm", 0, HF_EMBED | HF_GROUPS | HF_FULL, HF_ONE, HF_HEAD,
     HF_SHIFTED},
    {"attn_sub_norm", "self_attn.attn_sub_norm", "self_attn.inner_attn_ln", HF_BITNET, HF_ONE,
     HF_Q, HF_SHIFTED},
    {"attn_output_norm_in", "self_attn.o_proj.norm", 0, HF_EMBED, HF_ONE, HF_Q, 0},
    {"attn_output", "self_attn.o_proj", 0, HF_PLAIN | HF_FULL, HF_DIM, HF_Q, 0},
    {"attn_qkv", "linear_attn.in_proj_qkv", 0, HF_DELTA, HF_MIXED, HF_DIM, HF_TILED},
    {"attn_gate", "linear_attn.in_proj_z", 0, HF_DELTA, HF_INNER, HF_DIM, HF_TILED},
    {"ssm_alpha", "linear_attn.in_proj_a", 0, HF_DELTA, HF_HEADS, HF_DIM, HF_TILED | HF_NARROW},
    {"ssm_beta", "linear_attn.in_proj_b", 0, HF_DELTA, HF_HEADS, HF_DIM, HF_TILED | HF_NARROW},
    {"ssm_conv1d", "linear_attn.conv1d", 0, HF_DELTA, HF_MIXED, HF_TAPS, HF_TILED | HF_FLOATS},
    {"ssm_dt.bias", "linear_attn.dt_bias", 0, HF_DELTA, HF_ONE, HF_HEADS, HF_TILED | HF_BARE},
    {"ssm_a", "linear_attn.A_log", 0, HF_DELTA, HF_ONE, HF_HEADS, HF_TILED | HF_BARE | HF_DECAY},
    {"ssm_norm", "linear_attn.norm", 0, HF_DELTA, HF_ONE, HF_STATE, 0},
    {"ssm_out", "linear_attn.out_proj", 0, HF_DELTA, HF_DIM, HF_INNER, HF_TILED},
    {"post_attention_norm", "post_attention_layernorm", 0, HF_GEMMA3 | HF_HYBRID, HF_ONE, HF_DIM,
     HF_SHIFTED},
    {"ffn_norm", "post_attention_layernorm", 0, HF_BITNET | HF_QWEN3 | HF_LLAMA | HF_GROUPS, HF_ONE,
     HF_DIM, HF_SHIFTED},
    {"ffn_norm", "pre_feedforward_layernorm", 0, HF_GEMMA3, HF_ONE, HF_DIM, HF_SHIFTED},
    {"ffn_gate_norm_in", "mlp.gate_proj.norm", 0, HF_EMBED, HF_ONE, HF_DIM, 0},
    {"ffn_gate", "mlp.gate_proj", 0, HF_ALL, HF_FFN, HF_DIM, 0},
    {"ffn_up_norm_in", "mlp.up_proj.norm", 0, HF_EMBED, HF_ONE, HF_DIM, 0},
    {"ffn_up", "mlp.up_proj", 0, HF_ALL, HF_FFN, HF_DIM, 0},
    {"ffn_sub_norm", "mlp.ffn_sub_norm", "mlp.ffn_layernorm", HF_BITNET, HF_ONE, HF_FFN,
     HF_SHIFTED},
    {"ffn_down_norm_in", "mlp.down_proj.norm", 0, HF_EMBED, HF_ONE, HF_FFN, 0},
    {"ffn_down", "mlp.down_proj", 0, HF_ALL, HF_DIM, HF_FFN, 0},
    {"post_ffw_norm", "post_feedforward_layernorm", 0, HF_GEMMA3, HF_ONE, HF_DIM, HF_SHIFTED}
};
enum { HF_LAYER_PARTS = sizeof hf_layer_parts / sizeof hf_layer_parts[0] };

/* Qwen3 is a model of text embeddings, or, with a type for groups, one of Ternary Bonsai. */
static int hf_is_wanted(const hf_model *h, const hf_family *family) {
    return !(family->tensors & (h->options.group_type ? HF_EMBED : HF_GROUPS));
}

static int hf_embeds(const hf_model *h) { return (h->family->tensors & HF_EMBED) != 0; }
static int hf_is_hybrid(const hf_model *h) { return (h->family->tensors & HF_HYBRID) != 0; }

void hf_close(hf_model *h) {
    json_free(&h->config);
    tok_free(&h->tokens);
    st_close(&h->tensors);
    free(h->parts);
    free(h->rope_factors);
    free(h->floats);
    free(h->bytes);
    free(h->out);
    memset(h, 0, sizeof *h);
}

/* ---- config.json ---- */

static bitnet_result hf_bad(const hf_model *h, const char *key, const char *what,
                            bitnet_error *err) {
    return set_error(err, BITNET_ERR_FORMAT, "%s: '%s' %s", h->config.name, key, what);
}

/* Reads an integer from 1 to high. If *out is not 0, it is the default of a missing key. */
static bitnet_result hf_get_uint(const hf_model *h, const char *key, uint64_t high, uint64_t *out,
                                 bitnet_error *err) {
    const uint32_t node = json_get(&h->config, h->text, key);
    if (!node && *out) return BITNET_OK;
    if (!node) return hf_bad(h, key, "is missing", err);
    if (json_uint(&h->config, node, out) && *out >= 1 && *out <= high) return BITNET_OK;
    return set_error(err, BITNET_ERR_FORMAT, "%s: '%s' is not an integer from 1 to %llu",
                     h->config.name, key, (unsigned long long)high);
}

/* A number; 0: the node is none. */
static double hf_number(const hf_model *h, uint32_t node) {
    const json *j = &h->config;
    return json_kind(j, node) == JSON_NUMBER ? strtod(j->text + j->nodes[node].at, 0) : 0;
}

/* Reads a positive number. If *out is not 0, it is the default of a missing key. */
static bitnet_result hf_get_float(const hf_model *h, uint32_t object, const char *key, float *out,
                                  bitnet_error *err) {
    const uint32_t node = json_get(&h->config, object, key);
    if (!node && *out > 0) return BITNET_OK;
    if (!node) return hf_bad(h, key, "is missing", err);
    *out = (float)hf_number(h, node);
    return *out > 0 && *out < 1e30f ? BITNET_OK : hf_bad(h, key, "is not a positive number", err);
}

/* The error of a setting that the library cannot compute; known says what it can. */
static bitnet_result hf_unsupported(const hf_model *h, const char *key, uint32_t node,
                                    const char *known, bitnet_error *err) {
    char value[80];
    json_describe(&h->config, node, value, sizeof value);
    return set_error(err, BITNET_ERR_UNSUPPORTED, "%s: %s %s is not supported; %s", h->config.name,
                     key, value, known);
}

/* The family: that of model_type, or BitNet's; of two, the one with this activation. */
static bitnet_result hf_read_family(hf_model *h, bitnet_error *err) {
    const json *j = &h->config;
    const uint32_t type = json_get(j, JSON_ROOT, "model_type");
    const uint32_t archs = json_get(j, JSON_ROOT, "architectures");
    const char *wanted = 0;            /* the model_type of the table */
    const char *acts[2] = {0, 0}, *key = 0;
    char known[64];
    uint32_t act = 0;
    int i;
    for (i = 0; i < HF_FAMILIES; i++)
        if (hf_families[i].model_type && hf_is_wanted(h, &hf_families[i]) &&
            json_is(j, type, hf_families[i].model_type))
            wanted = hf_families[i].model_type;
    if (!wanted && (json_kind(j, archs) != JSON_ARRAY || j->nodes[archs].n != 1))
        return hf_bad(h, "architectures", "must name one architecture", err);
    if (!wanted && !json_is(j, archs + 1, "BitNetForCausalLM") &&
        !json_is(j, archs + 1, "BitnetForCausalLM"))
        return hf_unsupported(h, "architecture", archs + 1, "BitNetForCausalLM is, and model_type "
                              "llama, minicpm, qwen3, qwen3_5 and gemma3_text are", err);
    for (i = 0; i < HF_FAMILIES; i++) {
        if (hf_families[i].model_type != wanted || !hf_is_wanted(h, &hf_families[i])) continue;
        if (hf_families[i].text) h->text = json_get(j, JSON_ROOT, hf_families[i].text);
        key = hf_families[i].act_key;
        act = json_get(j, h->text, key);
        acts[acts[0] != 0] = hf_families[i].act;
        if (json_is(j, act, hf_families[i].act)) h->family = &hf_families[i];
    }
    if (h->family && h->family->class_name && archs &&
        (json_kind(j, archs) != JSON_ARRAY || j->nodes[archs].n != 1 ||
         !json_is(j, archs + 1, h->family->class_name)))
        return set_error(err, BITNET_ERR_UNSUPPORTED, "%s: of model_type %s only %s is supported",
                         j->name, h->family->model_type, h->family->class_name);
    if (h->family && hf_is_hybrid(h) && !h->options.group_type)
        return set_error(err, BITNET_ERR_UNSUPPORTED, "%s: the weights of %s have a scale per "
                         "group, which needs --to q2_0 or another such type", j->name,
                         h->family->class_name);
    if (h->family) return BITNET_OK;
    if (!act) return hf_bad(h, key, "is missing", err);
    snprintf(known, sizeof known, acts[1] ? "%s and %s are" : "%s is", acts[0], acts[1]);
    return hf_unsupported(h, key, act, known, err);
}

/* Fields that would make the network another one, and the value that does not. A missing field or
   null means the same. */
static const struct hf_fixed { const char *key, *value; } hf_fixed_fields[] = {
    {"attention_bias", "false"}, {"mlp_bias", "false"}, {"use_bias", "false"}, {"bias", "false"},
    {"qkv_bias", "false"}, {"use_sliding_window", "false"},
    {"use_bidirectional_attention", "false"}, {"use_qk_norm", "false"}, {"qk_layernorm", "false"},
    {"alibi", "false"}, {"parallel_attn", "false"}, {"rope_interleaved", "false"},
    {"partial_rotary_factor", "1"}, {"rotary_pct", "1"}, {"attn_logit_softcapping", "null"},
    {"final_logit_softcapping", "null"}, {"logit_scale", "1"}, {"logits_scaling", "1"},
    {"embedding_multiplier", "1"}, {"residual_multiplier", "1"}, {"attention_multiplier", "null"},
    {"scale_emb", "1"}, {"scale_depth", "null"}, {"clip_qkv", "null"},
    {"attention_chunk_size", "null"}, {"num_experts", "0"}, {"num_local_experts", "0"},
    {"n_routed_experts", "0"}, {"num_kv_shared_layers", "0"}, {"no_rope_layers", "null"},
    {"altup_num_inputs", "null"}, {"weight_bits", "1"}, {"input_bits", "8"}
};

/* Is it the value of the table, as a number or as a word? */
static int hf_is_fixed(const json *j, uint32_t node, const char *value) {
    const char *text = j->text + j->nodes[node].at;
    if (json_kind(j, node) != JSON_NUMBER)
        return json_kind(j, node) == JSON_FALSE && !strcmp(value, "false");
    return *value >= '0' && *value <= '9' && strtod(text, 0) >= strtod(value, 0) &&
           strtod(text, 0) <= strtod(value, 0);
}

/* Each layer of so many is full_attention, and the others are linear_attention. */
static bitnet_result hf_read_interval(hf_model *h, bitnet_error *err) {
    const json *j = &h->config;
    const uint32_t types = json_get(j, h->text, "layer_types");
    uint32_t node = types + 1, i;
    bitnet_result r;
    h->interval = 4;
    if ((r = hf_get_uint(h, "full_attention_interval", 1000, &h->interval, err)) || !types)
        return r;
    if (json_kind(j, types) != JSON_ARRAY || j->nodes[types].n != h->n_layers)
        return hf_bad(h, "layer_types", "is not an array of num_hidden_layers", err);
    for (i = 0; i < h->n_layers; i++, node = j->nodes[node].next)
        if (!json_is(j, node, (i + 1) % h->interval ? "linear_attention" : "full_attention"))
            return hf_unsupported(h, "layer_types", node, "only a full_attention in each place "
                                  "that full_attention_interval says, and linear_attention, are",
                                  err);
    return BITNET_OK;
}

/* Layers that see only some positions, or are no attention at all. Gemma's window is read
   elsewhere. */
static bitnet_result hf_check_layers(const hf_model *h, bitnet_error *err) {
    const json *j = &h->config;
    const uint32_t types = json_get(j, h->text, "layer_types");
    uint32_t node = types + 1, i;
    if (hf_is_hybrid(h)) return BITNET_OK;             /* it has read them */
    if (types && json_kind(j, types) != JSON_ARRAY)
        return hf_bad(h, "layer_types", "is not an array", err);
    for (i = 0; types && i < j->nodes[types].n; i++, node = j->nodes[node].next)
        if (!json_is(j, node, "full_attention") &&
            !(h->family->tensors == HF_GEMMA3 && json_is(j, node, "sliding_attention")))
            return hf_unsupported(h, "layer_types", node, "full_attention is", err);
    return BITNET_OK;
}

static bitnet_result hf_check_network(hf_model *h, bitnet_error *err) {
    const json *j = &h->config;
    const uint32_t scalar = json_get(j, h->text, "query_pre_attn_scalar");
    uint64_t v;
    size_t i;
    for (i = 0; i < sizeof hf_fixed_fields / sizeof hf_fixed_fields[0]; i++) {
        const struct hf_fixed *f = &hf_fixed_fields[i];
        const uint32_t node = json_get(j, h->text, f->key);
        char known[48];
        if (!node || hf_is_fixed(j, node, f->value)) continue;
        if (h->family->scaled && !strncmp(f->key, "scale_", 6)) continue;
        if (hf_is_hybrid(h) && !strcmp(f->key, "partial_rotary_factor")) continue;
        snprintf(known, sizeof known, "only %s is", f->value);
        return hf_unsupported(h, f->key, node, known, err);
    }
    if (scalar && (!json_uint(j, scalar, &v) || v != h->sizes[HF_HEAD]))
        return hf_unsupported(h, "query_pre_attn_scalar", scalar, "only head_dim is", err);
    return hf_check_layers(h, err);
}

/* The object of that name; 0 if it is missing, null or empty, which say the same. */
static uint32_t hf_object(const hf_model *h, const char *key) {
    const json *j = &h->config;
    const uint32_t node = json_get(j, h->text, key);
    return node && json_kind(j, node) == JSON_OBJECT && !j->nodes[node].n ? 0 : node;
}

/* The factors of longrope: for contexts up to the original length, and for longer ones. In a model
   that was trained for longer ones, cosines and sines are longer, too; there is none so far. */
static bitnet_result hf_read_longrope(hf_model *h, uint32_t scaling, bitnet_error *err) {
    static const char *const lists[] = {"long_factor", "short_factor"};
    static const struct hf_fixed fixed[] = {{"factor", "1"}, {"attention_factor", "1"}};
    static const char original[] = "original_max_position_embeddings";
    const json *j = &h->config;
    const uint32_t length = json_get(j, scaling, original);
    const uint64_t n = h->sizes[HF_HEAD] / 2;
    uint64_t v = h->context;
    uint32_t i, node, k;
    for (i = 0; i < 2; i++) {
        node = json_get(j, scaling, fixed[i].key);
        if (node && !hf_is_fixed(j, node, fixed[i].value))
            return hf_unsupported(h, fixed[i].key, node, "in longrope, only 1 is", err);
    }
    if (length && (!json_uint(j, length, &v) || v != h->context))
        return hf_unsupported(h, original, length, "only max_position_embeddings is", err);
    if (!(h->rope_factors = (float *)malloc(2 * (size_t)n * sizeof *h->rope_factors)))
        return set_error(err, BITNET_ERR_MEMORY, "no memory for the factors of RoPE");
    for (i = 0; i < 2; i++) {
        node = json_get(j, scaling, lists[i]);
        if (json_kind(j, node) != JSON_ARRAY || j->nodes[node].n != n)
            return hf_bad(h, lists[i], "is not an array of half as many numbers as a head has",
                          err);
        for (k = 0, node++; k < n; k++, node = j->nodes[node].next) {
            float *out = &h->rope_factors[i * n + k];
            *out = (float)hf_number(h, node);
            if (!(*out >= 1e-3f && *out <= 1e6f))
                return hf_bad(h, lists[i], "has what is not a number from 1e-3 to 1e6", err);
        }
    }
    return BITNET_OK;
}

/* How much of a head is rotated, and which positions its pairs take: all are equal in a text. */
static bitnet_result hf_read_rotated(hf_model *h, uint32_t rope, bitnet_error *err) {
    const json *j = &h->config;
    const uint32_t list = json_get(j, rope, "mrope_section");
    uint64_t v, pairs;
    float share = 0.25f;
    uint32_t i, node = list + 1;
    bitnet_result r;
    if ((r = hf_get_float(h, json_get(j, rope, "partial_rotary_factor") ? rope : h->text,
                          "partial_rotary_factor", &share, err))) return r;
    pairs = share <= 1 ? (uint64_t)(share * (float)h->sizes[HF_HEAD]) / 2 : 0;
    if (pairs < 1) return hf_bad(h, "partial_rotary_factor", "is not from 2 / head_dim to 1", err);
    h->rotated = 2 * pairs;
    h->sections[0] = (int32_t)pairs;
    if (!list) return BITNET_OK;
    if (json_kind(j, list) != JSON_ARRAY || j->nodes[list].n != 3)
        return hf_bad(h, "mrope_section", "is not an array of three numbers", err);
    for (i = 0; i < 3; i++, node = j->nodes[node].next) {
        if (!json_uint(j, node, &v) || v > pairs)
            return hf_bad(h, "mrope_section", "has what is no number of pairs", err);
        h->sections[i] = (int32_t)v;
    }
    return BITNET_OK;
}

/* RoPE. Newer files have rope_parameters, which may be those of each kind of layer; others have
   rope_theta in the root, and rope_scaling for the rest. */
static bitnet_result hf_read_rope(hf_model *h, bitnet_error *err) {
    static const char *const kinds[] = {"default", "linear", "llama3", "yarn",     /* HF_ROPE_* */
                                        "longrope"};
    static const char *const others[] = {"attention_factor", "mscale", "mscale_all_dim",
                                         "truncate"};
    const json *j = &h->config;
    hf_rope *rope = &h->rope;
    const uint32_t newer = hf_object(h, "rope_parameters"), older = hf_object(h, "rope_scaling");
    const uint32_t full = json_get(j, newer, "full_attention");
    const uint32_t scaling = full ? full : newer ? newer : older;
    const int theta_inside = newer && json_get(j, scaling, "rope_theta");
    const uint32_t part = json_get(j, scaling, "partial_rotary_factor");
    uint32_t type = json_get(j, scaling, "rope_type");
    const int plain = hf_embeds(h) || hf_is_hybrid(h);
    int n = plain ? 1 : (int)(sizeof kinds / sizeof kinds[0]);
    size_t i;
    bitnet_result r;
    if (!type) type = json_get(j, scaling, "type");      /* the older name */
    if (newer && older)
        return hf_bad(h, "rope_scaling", "and rope_parameters are both there", err);
    if (!newer && scaling && !type) return hf_bad(h, "rope_scaling", "has no rope_type", err);
    while (type && n > 0 && !json_is(j, type, kinds[n - 1])) n--;
    if (type && n == 0)
        return hf_unsupported(h, "rope_type", type, plain ? "default is"
                              : "default, linear, llama3, yarn and longrope are", err);
    rope->kind = type ? n - 1 : HF_ROPE_DEFAULT;
    if (hf_is_hybrid(h)) {
        if ((r = hf_read_rotated(h, scaling, err))) return r;
    } else if (part && !hf_is_fixed(j, part, "1"))
        return hf_unsupported(h, "partial_rotary_factor", part, "only 1 is", err);
    h->theta = h->family->theta;
    if ((r = hf_get_float(h, theta_inside ? scaling : h->text, "rope_theta", &h->theta, err)) ||
        rope->kind == HF_ROPE_DEFAULT) return r;
    if (rope->kind == HF_ROPE_LONG) return hf_read_longrope(h, scaling, err);
    if ((r = hf_get_float(h, scaling, "factor", &rope->factor, err)) ||
        rope->kind == HF_ROPE_LINEAR) return r;
    if (!json_uint(j, json_get(j, scaling, "original_max_position_embeddings"), &rope->original) ||
        rope->original < 1 || rope->original > 1 << 30)
        return hf_bad(h, "original_max_position_embeddings", "of its scaling is not an integer "
                      "from 1 to 2^30", err);
    if (rope->kind == HF_ROPE_YARN) {
        rope->fast = 32;
        rope->slow = 1;
        for (i = 0; i < sizeof others / sizeof others[0]; i++)
            if (json_get(j, scaling, others[i]))
                return hf_bad(h, others[i], "is not supported", err);
        r = hf_get_float(h, scaling, "beta_fast", &rope->fast, err);
        return r ? r : hf_get_float(h, scaling, "beta_slow", &rope->slow, err);
    }
    if ((r = hf_get_float(h, scaling, "low_freq_factor", &rope->low, err)) ||
        (r = hf_get_float(h, scaling, "high_freq_factor", &rope->high, err))) return r;
    return rope->high > rope->low
           ? BITNET_OK : hf_bad(h, "high_freq_factor", "is not over low_freq_factor", err);
}

/* Gemma's sliding window: 5 of 6 layers see only so many positions, and rotate with base 10000. The
   published files lack it. */
static bitnet_result hf_read_window(hf_model *h, bitnet_error *err) {
    const json *j = &h->config;
    const uint32_t types = json_get(j, h->text, "layer_types");
    const uint32_t rope = json_get(j, json_get(j, h->text, "rope_parameters"),
                                   "sliding_attention");
    const char *base_key = rope ? "rope_theta" : "rope_local_base_freq";
    uint64_t step = 6, i;
    uint32_t node = types + 1;
    float base = 10000.0f;
    bitnet_result r;
    if (!(h->family->tensors & HF_GEMMA3) || !json_get(j, h->text, "sliding_window"))
        return h->options.window ? hf_bad(h, "sliding_window", "is missing, for --window", err)
                                 : BITNET_OK;
    if ((r = hf_get_uint(h, "sliding_window", 1 << 30, &h->window, err)) ||
        (r = hf_get_uint(h, "sliding_window_pattern", 1000, &step, err))) return r;
    if (!h->options.window) return BITNET_OK;
    if (step != 6) return hf_bad(h, "sliding_window_pattern", "is not 6", err);
    for (i = 0; types && i < j->nodes[types].n; i++, node = j->nodes[node].next)
        if (!json_is(j, node, (i + 1) % 6 ? "sliding_attention" : "full_attention"))
            return hf_bad(h, "layer_types", "does not have a full_attention in each sixth place",
                          err);
    if ((rope || json_get(j, h->text, base_key)) &&
        (r = hf_get_float(h, rope ? rope : h->text, base_key, &base, err))) return r;
    return base < 10000.0f || base > 10000.0f
           ? hf_bad(h, base_key, "is not 10000 where layers slide", err) : BITNET_OK;
}

static bitnet_result hf_read_quantization(hf_model *h, bitnet_error *err) {
    const json *j = &h->config;
    const uint32_t q = json_get(j, JSON_ROOT, "quantization_config");
    const uint32_t method = json_get(j, q, "quant_method"), norm = json_get(j, q, "use_rms_norm");
    const uint32_t linear = json_get(j, q, "linear_class");
    const uint32_t mode = json_get(j, q, "quantization_mode");
    const uint32_t kept = json_get(j, q, "modules_to_not_convert");
    uint32_t i, node = kept + 1;
    h->masters = h->family->masters;
    if (!q) return BITNET_OK;
    if (!json_is(j, method, "bitnet"))
        return hf_unsupported(h, "quant_method", method, "bitnet is", err);
    if (norm && json_kind(j, norm) != JSON_FALSE)
        return hf_unsupported(h, "use_rms_norm", norm, "only false is", err);
    for (i = 0; kept && i < j->nodes[kept].n; i++, node = j->nodes[node].next)
        if (!json_is(j, node, "lm_head"))              /* a layer that is not ternary */
            return hf_unsupported(h, "modules_to_not_convert", node, "only lm_head is", err);
    if (linear && !json_is(j, linear, "bitlinear") && !json_is(j, linear, "autobitlinear"))
        return hf_unsupported(h, "linear_class", linear, "bitlinear and autobitlinear are", err);
    h->divides = !json_is(j, linear, "autobitlinear");
    h->masters |= !h->divides && json_is(j, mode, "online");
    h->quantized = 1;
    return BITNET_OK;
}

/* The layers of a hybrid. The state of a head is a square. */
static bitnet_result hf_read_hybrid(hf_model *h, bitnet_error *err) {
    static const char gate[] = "attn_output_gate", kind[] = "output_gate_type";
    const json *j = &h->config;
    const uint32_t gated = json_get(j, h->text, gate), type = json_get(j, h->text, kind);
    uint64_t *s = h->sizes, keys = 0, size = 128;
    bitnet_result r;
    if (!hf_is_hybrid(h)) return BITNET_OK;
    if (gated && json_kind(j, gated) != JSON_TRUE)
        return hf_unsupported(h, gate, gated, "only true is", err);
    if (type && !json_is(j, type, "swish") && !json_is(j, type, "silu"))
        return hf_unsupported(h, kind, type, "swish is", err);
    s[HF_STATE] = 128;
    s[HF_TAPS] = 4;
    if ((r = hf_get_uint(h, "linear_key_head_dim", HF_SLICE, &s[HF_STATE], err)) ||
        (r = hf_get_uint(h, "linear_value_head_dim", HF_SLICE, &size, err)) ||
        (r = hf_get_uint(h, "linear_num_key_heads", 4096, &keys, err)) ||
        (r = hf_get_uint(h, "linear_num_value_heads", 4096, &s[HF_HEADS], err)) ||
        (r = hf_get_uint(h, "linear_conv_kernel_dim", 64, &s[HF_TAPS], err))) return r;
    if (size != s[HF_STATE])
        return hf_bad(h, "linear_value_head_dim", "is not linear_key_head_dim", err);
    if (s[HF_HEADS] % keys)
        return hf_bad(h, "linear_num_value_heads", "is no multiple of linear_num_key_heads", err);
    h->key_heads = keys;
    s[HF_INNER] = s[HF_HEADS] * size;
    s[HF_MIXED] = 2 * keys * size + s[HF_INNER];
    s[HF_GATED] = 2 * s[HF_Q];
    if (s[HF_INNER] > HF_SLICE || s[HF_GATED] > 2 * HF_SLICE)
        return hf_bad(h, "linear_num_value_heads", "or num_attention_heads is too large", err);
    return hf_read_interval(h, err);
}

static bitnet_result hf_read_shape(hf_model *h, bitnet_error *err) {
    uint64_t *s = h->sizes;
    bitnet_result r;
    if ((r = hf_get_float(h, h->text, "rms_norm_eps", &h->eps, err)) ||
        (r = hf_get_uint(h, "num_hidden_layers", 1000, &h->n_layers, err)) ||
        (r = hf_get_uint(h, "hidden_size", HF_SLICE, &s[HF_DIM], err)) ||
        (r = hf_get_uint(h, "intermediate_size", HF_SLICE, &s[HF_FFN], err)) ||
        (r = hf_get_uint(h, "num_attention_heads", 4096, &h->heads, err)) ||
        (r = hf_get_uint(h, "max_position_embeddings", 1 << 30, &h->context, err)) ||
        (r = hf_get_uint(h, "vocab_size", TOK_MAX, &h->vocab, err))) return r;
    h->kv_heads = h->heads;
    if ((r = hf_get_uint(h, "num_key_value_heads", h->heads, &h->kv_heads, err))) return r;
    s[HF_HEAD] = hf_is_hybrid(h) ? 256 : s[HF_DIM] / h->heads;
    if ((!hf_embeds(h) && !hf_is_hybrid(h) && s[HF_DIM] % h->heads) || h->heads % h->kv_heads)
        return hf_bad(h, "num_attention_heads", "does not fit hidden_size or num_key_value_heads",
                      err);
    if ((r = hf_get_uint(h, "head_dim", HF_SLICE, &s[HF_HEAD], err))) return r;
    s[HF_Q] = s[HF_HEAD] * h->heads;
    s[HF_KV] = s[HF_HEAD] * h->kv_heads;
    if (h->family->tensors == HF_BITNET && s[HF_Q] != s[HF_DIM])
        return hf_bad(h, "head_dim", "is not hidden_size / num_attention_heads", err);
    if (s[HF_HEAD] % 2) return hf_bad(h, "head_dim", "is odd, and RoPE rotates pairs", err);
    return s[HF_Q] <= HF_SLICE ? BITNET_OK : hf_bad(h, "head_dim", "is too large", err);
}

/* The x with x^n = 1 / v, for v >= 1: by bisection, to the last bit. */
static double hf_root(double v, uint64_t n) {
    double low = 0, high = 1, x = 0.5;
    int i;
    for (i = 0; i < 120; i++) {
        double power = 1;
        uint64_t k;
        x = low + (high - low) / 2;
        for (k = 0; k < n; k++) power *= x;
        if (power * v < 1) low = x;
        else high = x;
    }
    return x;
}

/* MiniCPM's factors, as its GGUF names them: of the embedding, of what a layer adds, and what
   divides the logits. */
static bitnet_result hf_read_scales(hf_model *h, bitnet_error *err) {
    static const char *const keys[] = {"scale_emb", "scale_depth", "dim_model_base"};
    double v[3];
    int i;
    for (i = 0; i < 3 && h->family->scaled; i++) {
        const uint32_t node = json_get(&h->config, h->text, keys[i]);
        v[i] = hf_number(h, node);
        if (!(v[i] > 0 && v[i] < 1e6))
            return hf_bad(h, keys[i], node ? "is not a positive number" : "is missing", err);
    }
    if (!h->family->scaled) return BITNET_OK;
    h->scales[0] = (float)v[0];
    h->scales[1] = (float)(v[1] * hf_root((double)h->n_layers, 2));
    h->scales[2] = (float)((double)h->sizes[HF_DIM] / v[2]);
    return BITNET_OK;
}

static bitnet_result hf_read_config(hf_model *h, const char *dir, bitnet_error *err) {
    bitnet_result r;
    if ((r = file_load_json(dir, "config.json", 0, &h->config, err)) ||
        (r = hf_read_family(h, err)) || (r = hf_read_shape(h, err)) ||
        (r = hf_read_hybrid(h, err)) ||
        (r = hf_check_network(h, err)) || (r = hf_read_rope(h, err)) ||
        (r = hf_read_scales(h, err)) ||
        (r = hf_read_quantization(h, err)) || (r = hf_read_window(h, err))) return r;
    h->pooling = h->options.pooling;
    if (hf_embeds(h)) return h->pooling ? BITNET_OK : pooling_read(dir, &h->pooling, err);
    return h->pooling ? hf_bad(h, "model_type", "is not that of a model of embeddings, for "
                               "--pooling", err) : BITNET_OK;
}

/* ---- which tensors ---- */

static st_tensor *hf_find(const hf_model *h, const char *name) {
    return st_find(&h->tensors, name, (uint32_t)strlen(name));
}

static int hf_is_float(const st_tensor *t) {
    return !strcmp(t->dtype, "BF16") || !strcmp(t->dtype, "F16") || !strcmp(t->dtype, "F32");
}

/* Adds a tensor of rows x cols (rows 0: a vector), called hf or other, which may be 0, in the
   folder, where the suffix follows. The convolution's has the shape [rows, 1, cols]. */
static bitnet_result hf_add(hf_model *h, const char *name, const char *hf, const char *other,
                            uint32_t type, uint64_t rows, uint64_t cols, bitnet_error *err) {
    hf_part *p = &h->parts[h->n_parts++];
    char path[160], scale[168];
    st_tensor *t;
    int packed, deep;
    snprintf(path, sizeof path, "%s%s%s", h->prefix, other ? other : hf, h->suffix);
    if (other && !hf_find(h, path)) other = 0;
    if (!other) snprintf(path, sizeof path, "%s%s%s", h->prefix, hf, h->suffix);
    t = hf_find(h, path);
    if (!t)
        return set_error(err, BITNET_ERR_FORMAT, "tensor '%s' is missing%s", path,
                         strstr(name, "_norm_in") ? ", which text embeddings have; --to q2_0 is "
                         "for weights with a scale per group" : "");
    packed = !hf_is_float(t);
    deep = t->n_dims == 3 && t->dims[1] == 1;
    snprintf(p->name, sizeof p->name, "%s%s", name, h->suffix);
    snprintf(scale, sizeof scale, "%s_scale", path);
    p->t = t;
    p->type = type;
    p->rows = rows ? rows : 1;
    p->cols = cols;
    t->used = 1;
    if (type == BITNET_TENSOR_I2_S) p->scale = hf_find(h, scale);
    if (packed && (type != BITNET_TENSOR_I2_S || strcmp(t->dtype, "U8")))
        return st_fail(&h->tensors, t, "its dtype is not supported here", err);
    if (packed && !h->quantized)
        return st_fail(&h->tensors, t, "it is packed, but config.json has no quantization_config",
                       err);
    if (packed != (p->scale != 0))
        return st_fail(&h->tensors, t, packed ? "its weight_scale is missing"
                                              : "it is not packed, but has a weight_scale", err);
    if (packed && rows % 4)
        return st_fail(&h->tensors, t, "the number of its rows is not a multiple of 4", err);
    if (t->n_dims != (rows ? deep ? 3u : 2u : 1u) || t->dims[t->n_dims - 1] != cols ||
        (rows && t->dims[0] != (packed ? rows / 4 : rows)))
        return st_fail(&h->tensors, t, "its shape is not what config.json says", err);
    if (type == BITNET_TENSOR_I2_S && rows * cols % 128)
        return st_fail(&h->tensors, t, "its weights are not whole blocks of 128", err);
    if (!bitnet_tensor_size(type, 1, &cols))
        return st_fail(&h->tensors, t, "its rows are not whole blocks of the type", err);
    if (!p->scale) return BITNET_OK;
    p->scale->used = 1;
    return hf_is_float(p->scale) && p->scale->n == 1
           ? BITNET_OK : st_fail(&h->tensors, p->scale, "it is not one float", err);
}

static bitnet_result hf_weights(hf_model *h, const hf_part *p, uint64_t at, size_t n,
                                bitnet_error *err);

static uint32_t hf_float_type(const st_tensor *t) {
    return t->dtype[0] == 'B' ? BITNET_TENSOR_BF16 : t->dtype[1] == '1' ? BITNET_TENSOR_F16
           : BITNET_TENSOR_F32;
}

/* The type of a matrix that may not be ternary: for groups if each holds -s, 0 and s, or that of
   the folder. */
static bitnet_result hf_find_type(hf_model *h, hf_part *p, bitnet_error *err) {
    bitnet_ternary t;
    bitnet_error why = {0};
    uint64_t row;
    memset(&t, 0, sizeof t);
    t.type = h->options.group_type;
    t.n = (int32_t)p->cols;
    p->type = p->cols % (uint64_t)pack_group(t.type) ? hf_float_type(p->t) : t.type;
    for (row = 0; row < p->rows && p->type == t.type; row++) {
        const bitnet_result r = hf_weights(h, p, row * p->cols, (size_t)p->cols, err);
        if (r) return r;
        if (pack_rows(&t, h->floats, (int32_t)row, 1, (int8_t *)h->bytes, 0, &why))
            p->type = hf_float_type(p->t);
    }
    return BITNET_OK;
}

/* Value heads are along the rows of a matrix, behind others or not, or along columns. */
static void hf_tile(const hf_model *h, const struct hf_layer_part *part, hf_part *p) {
    p->in_columns = part->rows == HF_ONE || part->cols == HF_INNER;
    p->head = part->rows == HF_HEADS || part->cols == HF_HEADS ? 1 : h->sizes[HF_STATE];
    p->first = part->rows == HF_MIXED ? h->sizes[HF_MIXED] - h->sizes[HF_INNER] : 0;
    p->key_heads = h->key_heads;
    p->each = h->sizes[HF_HEADS] / h->key_heads;
}

static bitnet_result hf_add_layer(hf_model *h, unsigned i, bitnet_error *err) {
    const int other_kind = !hf_is_hybrid(h) ? 0 : (i + 1) % h->interval ? HF_FULL : HF_DELTA;
    char name[64], hf[128], other[128];
    bitnet_result r = BITNET_OK;
    int k;
    for (k = 0; k < HF_LAYER_PARTS && !r; k++) {
        const struct hf_layer_part *part = &hf_layer_parts[k];
        const uint32_t type = !part->rows ? h->family->norms
                              : part->special & (HF_FLOATS | HF_NARROW) ? BITNET_TENSOR_F32
                              : h->options.group_type ? h->options.group_type : BITNET_TENSOR_I2_S;
        hf_part *p;
        if (!(part->tensors & h->family->tensors & ~other_kind)) continue;
        snprintf(name, sizeof name, "blk.%u.%s", i, part->name);
        snprintf(hf, sizeof hf, "layers.%u.%s", i, part->hf);
        snprintf(other, sizeof other, "layers.%u.%s", i, part->other ? part->other : "");
        h->suffix = part->special & HF_BARE ? "" : ".weight";
        r = hf_add(h, name, hf, part->other ? other : 0, type, h->sizes[part->rows],
                   h->sizes[part->cols], err);
        h->suffix = ".weight";
        p = &h->parts[h->n_parts - 1];
        if (part->special & HF_SHIFTED) p->shift = h->family->shift;
        if (part->special & HF_ROTATED && h->family->adjacent) p->half = h->sizes[HF_HEAD] / 2;
        if (part->special & HF_TILED) hf_tile(h, part, p);
        p->decays = (part->special & HF_DECAY) != 0;
        if (!r && part->special & HF_NARROW) r = hf_find_type(h, p, err);
    }
    return r;
}

static void hf_log(const hf_model *h, const char *text) {
    if (h->options.log_fn) h->options.log_fn(h->options.ud, text);
}

/* Of embedding and head. */
static uint32_t hf_head_type(const hf_model *h) {
    return h->options.group_type && !h->options.wants_head ? h->options.group_type
                                                           : h->options.head_type;
}

/* The output head. A model of embeddings never computes it. */
static bitnet_result hf_add_head(hf_model *h, bitnet_error *err) {
    const uint32_t whole = json_get(&h->config, JSON_ROOT, "tie_word_embeddings");
    const uint32_t tie = whole ? whole : json_get(&h->config, h->text, "tie_word_embeddings");
    const int tied = json_kind(&h->config, tie) == JSON_TRUE;
    const char *prefix = h->prefix;
    st_tensor *output = hf_find(h, "lm_head.weight");
    bitnet_result r;
    if (output && hf_embeds(h) && !tied)
        hf_log(h, "lm_head.weight is left out: a model of embeddings has no head");
    if (tied || hf_embeds(h)) {
        if (output) output->used = 1;  /* a copy of the embedding */
        return BITNET_OK;
    }
    if (!output && !tie) return BITNET_OK;
    h->prefix = "";
    r = hf_add(h, "output", "lm_head", 0, hf_head_type(h), h->vocab, h->sizes[HF_DIM], err);
    h->prefix = prefix;
    return r;
}

/* Adds factors of RoPE, one for each pair. */
static void hf_add_factors(hf_model *h, const char *name, const float *factors) {
    hf_part *p = &h->parts[h->n_parts++];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->own = factors;
    p->type = BITNET_TENSOR_F32;
    p->rows = 1;
    p->cols = h->sizes[HF_HEAD] / 2;
}

/* LLaMA 3.1's scaling divides the frequency of pair i, theta ^ (-2 i / head_dim), by a factor: 1
   for wave lengths up to original / high, `factor` from original / low on, and between them what
   makes the frequency's share rise linearly with original / length. bitnet.h reads one for each
   pair. */
static bitnet_result hf_add_rope(hf_model *h, bitnet_error *err) {
    const hf_rope *rope = &h->rope;
    const uint64_t n = h->sizes[HF_HEAD] / 2;
    const double step = hf_root((double)h->theta, n), tau = 6.283185307179586;
    double frequency = 1;
    uint64_t i;
    if (rope->kind == HF_ROPE_LONG) {
        hf_add_factors(h, "rope_factors_long.weight", h->rope_factors);
        hf_add_factors(h, "rope_factors_short.weight", h->rope_factors + n);
    }
    if (rope->kind != HF_ROPE_LLAMA3) return BITNET_OK;
    if (!(h->rope_factors = (float *)malloc((size_t)n * sizeof *h->rope_factors)))
        return set_error(err, BITNET_ERR_MEMORY, "no memory for the factors of RoPE");
    for (i = 0; i < n; i++, frequency *= step) {
        const double turns = (double)rope->original * frequency / tau;    /* original / length */
        const double low = (double)rope->low, high = (double)rope->high;
        const double share = turns <= low ? 0 : turns >= high ? 1 : (turns - low) / (high - low);
        h->rope_factors[i] = (float)(1 / ((1 - share) / (double)rope->factor + share));
    }
    hf_add_factors(h, "rope_freqs.weight", h->rope_factors);
    return BITNET_OK;
}

#define HF_TEXT_PREFIX "model.language_model."

/* Is it of a part that reads images, or that predicts tokens behind the next one? */
static int hf_is_left_out(const hf_model *h, const st_tensor *t) {
    static const char *const prefixes[] = {"model.visual.", "visual.", "mtp."};
    size_t i, n;
    for (i = 0; i < 3 && hf_is_hybrid(h); i++) {
        n = strlen(prefixes[i]);
        if (t->name_len > n && !memcmp(t->name, prefixes[i], n)) return 1;
    }
    return 0;
}

static bitnet_result hf_add_all(hf_model *h, bitnet_error *err) {
    const uint64_t dim = h->sizes[HF_DIM];
    bitnet_result r;
    uint32_t i;
    h->parts = (hf_part *)calloc((size_t)(5 + HF_LAYER_PARTS * h->n_layers), sizeof *h->parts);
    if (!h->parts) return set_error(err, BITNET_ERR_MEMORY, "no memory for a list of tensors");
    h->suffix = ".weight";
    h->prefix = hf_find(h, "embed_tokens.weight") ? ""
                : hf_find(h, HF_TEXT_PREFIX "embed_tokens.weight") ? HF_TEXT_PREFIX : "model.";
    r = hf_add(h, "token_embd", "embed_tokens", 0, hf_head_type(h), h->vocab, dim, err);
    for (i = 0; i < h->n_layers && !r; i++) r = hf_add_layer(h, i, err);
    if (!r) r = hf_add(h, "output_norm", "norm", 0, h->family->norms, 0, dim, err);
    if (r) return r;
    h->parts[h->n_parts - 1].shift = h->family->shift;
    if ((r = hf_add_head(h, err)) || (r = hf_add_rope(h, err))) return r;
    for (i = 0; i < h->tensors.n_tensors; i++) {
        const st_tensor *t = &h->tensors.tensors[i];
        static const char rope[] = ".rotary_emb.inv_freq";       /* computed from rope_theta */
        const size_t n = sizeof rope - 1;
        if (t->used || (t->name_len > n && !memcmp(t->name + t->name_len - n, rope, n))) continue;
        if (hf_is_left_out(h, t)) {
            h->n_left_out++;
            continue;
        }
        return st_fail(&h->tensors, t, "the model has no place for it", err);
    }
    return BITNET_OK;
}

/* What is put around a text. Embeddings end with a token of their own, whose row becomes the
   vector. Falcon's tokenizers put nothing in front, and their files say nothing about it. */
static bitnet_result hf_read_ends(hf_model *h, bitnet_error *err) {
    tok *t = &h->tokens;
    if (h->family->tensors == HF_LLAMA && tok_is_bpe(t) && !t->says_bos) t->add_bos = 0;
    if (h->family->eos) {
        if (!t->ends) t->eos = tok_find(t, h->family->eos);
        t->add_eos = 1;
    }
    if (t->add_eos && t->eos < 0)
        return set_error(err, BITNET_ERR_FORMAT, "%s: no token is '%s', which ends a text",
                         t->j.name, h->family->eos ? h->family->eos : "eos_token");
    return BITNET_OK;
}

/* Says what the folder has and the file will not. */
static void hf_log_left_out(const hf_model *h) {
    char text[256];
    uint32_t i;
    if (h->tokens.n_beyond) {
        snprintf(text, sizeof text, "%s: %u added tokens are left out: their ids are over the "
                 "vocab_size of config.json", h->tokens.j.name, (unsigned)h->tokens.n_beyond);
        hf_log(h, text);
    }
    for (i = 0; i < h->tokens.n_notes; i++) hf_log(h, h->tokens.notes[i]);
    if (h->n_left_out) {
        snprintf(text, sizeof text, "left out are parts that read images or predict further tokens "
                 "(visual, mtp): %u tensor%s", (unsigned)h->n_left_out,
                 h->n_left_out == 1 ? "" : "s");
        hf_log(h, text);
    }
    if (h->window && !h->options.window) {
        snprintf(text, sizeof text, "sliding_window %u is left out, as in the published file: all "
                 "layers see all positions; --window writes it", (unsigned)h->window);
        hf_log(h, text);
    }
    if (h->pooling == BITNET_POOLING_LAST && !h->tokens.add_eos)
        hf_log(h, "the last token becomes the vector, and the tokenizer puts no EOS there");
}

bitnet_result hf_open(hf_model *h, const char *dir, const hf_options *options,
                      bitnet_error *err) {
    bitnet_result r;
    memset(h, 0, sizeof *h);
    h->options = *options;
    h->text = JSON_ROOT;
    file_base_name(dir, h->name, sizeof h->name);
    if (!(h->floats = (float *)malloc(2 * sizeof *h->floats * HF_SLICE)) ||
        !(h->bytes = (uint8_t *)malloc(4 * (size_t)HF_SLICE)) ||
        !(h->out = (uint8_t *)malloc(4 * (size_t)HF_SLICE)))
        return set_error(err, BITNET_ERR_MEMORY, "no memory for a slice of a tensor");
    if ((r = hf_read_config(h, dir, err)) || (r = st_open(&h->tensors, dir, err)) ||
        (r = tok_open(&h->tokens, dir, &h->config, h->vocab, options->pre, err)) ||
        (r = hf_read_ends(h, err)) || (r = hf_add_all(h, err))) return r;
    hf_log_left_out(h);
    return BITNET_OK;
}

/* ---- reading floats, writing bytes ---- */

/* Reads n elements of a tensor of floats, from element at on. */
static bitnet_result hf_floats(hf_model *h, const st_tensor *t, uint64_t at, size_t n, float *out,
                               bitnet_error *err) {
    bitnet_result r = st_read(&h->tensors, t, at * t->item, h->bytes, n * t->item, err);
    return r ? r : bitnet_floats_unpack(hf_float_type(t), h->bytes, (int32_t)n, out, err);
}

/* An error at element i of a tensor of floats. */
static bitnet_result hf_fail_float(const hf_model *h, const st_tensor *t, uint64_t i, float x,
                                   const char *what, bitnet_error *err) {
    return set_error(err, BITNET_ERR_FORMAT, "%s: tensor '%.*s' at offset %llu: %g %s",
                     h->tensors.files[t->file].header.name, (int)t->name_len, t->name,
                     (unsigned long long)(t->offset + i * t->item), (double)x, what);
}

/* Writes n bytes to the file. */
static bitnet_result hf_put(gguf_writer *w, const void *p, size_t n, bitnet_error *err) {
    const bitnet_result r = gguf_write_data(w, p, n);
    if (r && err) *err = w->err;
    return r;
}

static size_t hf_slice(uint64_t left, uint64_t most) {
    return (size_t)(left < most ? left : most);
}

/* ---- linear layers ---- */

/* Where element at of the output is in the input, and how many follow it there in the same order.
   GGUF's llama rotates the pairs (2i, 2i + 1) of a head, Hugging Face's (i, half + i):

       row of a head    0    1       2    3         ...
       is its row       0    half    1    half + 1  ... */
static uint64_t hf_place_rotated(const hf_part *p, uint64_t at, uint64_t *run) {
    const uint64_t row = at / p->cols, column = at % p->cols;
    const uint64_t in_head = p->half ? row % (2 * p->half) : 0;
    *run = p->half ? p->cols - column : p->rows * p->cols - at;
    if (!p->half) return at;
    return (row - in_head + in_head % 2 * p->half + in_head / 2) * p->cols + column;
}

/* The same of row or column i where value heads are reordered; hf.h draws how. */
static uint64_t hf_untile(const hf_part *p, uint64_t i, uint64_t *run) {
    const uint64_t head = i < p->first ? 0 : (i - p->first) / p->head;
    const uint64_t inside = i < p->first ? 0 : (i - p->first) % p->head;
    *run = i < p->first ? p->first - i : p->head - inside;
    if (i < p->first) return i;
    return p->first + (head % p->key_heads * p->each + head / p->key_heads) * p->head + inside;
}

/* The same of any element. */
static uint64_t hf_place(const hf_part *p, uint64_t at, uint64_t *run) {
    const uint64_t row = at / p->cols, column = at % p->cols;
    if (p->head) {
        const uint64_t from = hf_untile(p, p->in_columns ? column : row, run);
        if (p->in_columns) return row * p->cols + from;
        *run = *run * p->cols - column;
        return from * p->cols + column;
    }
    return hf_place_rotated(p, at, run);
}

/* Reads n weights of the output, from at on, which are floats in the input. */
static bitnet_result hf_weights(hf_model *h, const hf_part *p, uint64_t at, size_t n,
                                bitnet_error *err) {
    size_t k, len;
    bitnet_result r;
    for (k = 0; k < n; k += len) {
        uint64_t run, from = hf_place(p, at + k, &run);
        len = hf_slice(run, n - k);
        if ((r = hf_floats(h, p->t, from, len, h->floats + k, err))) return r;
    }
    return BITNET_OK;
}

/* Writes n codes, whole blocks of 128, as I2_S; PACKINGS in bitnet.h draws it. */
static bitnet_result hf_put_codes(const hf_model *h, gguf_writer *w, const uint8_t *codes,
                                  size_t n, bitnet_error *err) {
    size_t i, j;
    for (i = 0; i < n; i += 128, codes += 128)
        for (j = 0; j < 32; j++)
            h->out[i / 4 + j] = (uint8_t)(codes[j] << 6 | codes[32 + j] << 4 | codes[64 + j] << 2 |
                                          codes[96 + j]);
    return hf_put(w, h->out, n / 4, err);
}

static bitnet_result hf_put_scale(gguf_writer *w, float scale, bitnet_error *err) {
    uint8_t tail[32] = {0};
    pack_floats(BITNET_TENSOR_F32, &scale, 1, tail, 0);
    return hf_put(w, tail, sizeof tail, err);
}

/* Weight e of the input is in its byte e % (n / 4), so each byte is read four times. */
static bitnet_result hf_write_packed(hf_model *h, const hf_part *p, gguf_writer *w,
                                     bitnet_error *err) {
    const uint64_t n = p->rows * p->cols, block = n / 4;
    uint64_t at = 0;
    float scale = 0;
    bitnet_result r = hf_floats(h, p->scale, 0, 1, &scale, err);
    if (r) return r;
    if (h->divides) scale = 1 / scale;
    if (!(scale >= 1e-30f && scale <= 1e30f))
        return st_fail(&h->tensors, p->scale, "it is not usable as a scale", err);
    while (at < n) {
        const size_t len = hf_slice(n - at, HF_SLICE);
        size_t k, part, i;
        for (k = 0; k < len; k += part) {
            uint64_t run, e = hf_place(p, at + k, &run), from = e % block;
            const int shift = 2 * (int)(e / block);
            part = hf_slice(block - from, hf_slice(run, len - k));
            if ((r = st_read(&h->tensors, p->t, from, h->bytes + k, part, err))) return r;
            for (i = k; i < k + part; i++) {
                h->bytes[i] = (uint8_t)(h->bytes[i] >> shift & 3);
                if (h->bytes[i] == 3)
                    return set_error(err, BITNET_ERR_FORMAT, "%s: tensor '%.*s' at offset %llu: "
                                     "invalid code 3",
                                     h->tensors.files[p->t->file].header.name,
                                     (int)p->t->name_len, p->t->name,
                                     (unsigned long long)(p->t->offset + from + i - k));
            }
        }
        if ((r = hf_put_codes(h, w, h->bytes, len, err))) return r;
        at += len;
    }
    return hf_put_scale(w, scale, err);
}

/* mean|w|. HF_SLICE is a multiple of 16, so the partial sums continue from slice to slice. */
static bitnet_result hf_absmean(hf_model *h, const hf_part *p, float *out, bitnet_error *err) {
    const uint64_t n = p->rows * p->cols;
    double sums[16] = {0}, sum = 0;
    uint64_t at;
    size_t len, i, j;
    for (at = 0; at < n; at += len) {
        bitnet_result r;
        len = hf_slice(n - at, HF_SLICE);
        if ((r = hf_floats(h, p->t, at, len, h->floats, err))) return r;
        for (i = 0; i < len; i += 16)                            /* n is a multiple of 128 */
            for (j = 0; j < 16; j++) {
                const double x = (double)h->floats[i + j];
                sums[j] += x < 0 ? -x : x;
            }
    }
    for (j = 0; j < 16; j++) sum += sums[j];
    sum /= (double)n;
    if (!(sum <= 1e30)) return st_fail(&h->tensors, p->t, "a weight is not a usable number", err);
    *out = (float)(sum < 1e-5 ? 1e-5 : sum);
    return BITNET_OK;
}

/* The s of weights that are -s, 0 and s; 1 if all are 0. */
static bitnet_result hf_exact_scale(hf_model *h, const hf_part *p, float *out, bitnet_error *err) {
    const uint64_t n = p->rows * p->cols;
    float scale = 0;
    uint64_t at;
    size_t len, i;
    for (at = 0; at < n; at += len) {
        bitnet_result r;
        len = hf_slice(n - at, HF_SLICE);
        if ((r = hf_floats(h, p->t, at, len, h->floats, err))) return r;
        for (i = 0; i < len; i++) {
            const float x = h->floats[i] < 0 ? -h->floats[i] : h->floats[i];
            if (x - x == 0 && !(x > 0)) continue;
            if (scale == 0 && x >= 1e-30f && x <= 1e30f) scale = x;
            if (!(x >= scale && x <= scale && scale > 0))
                return hf_fail_float(h, p->t, at + i, h->floats[i], "is none of -s, 0 and s, and "
                                     "quantization_mode is not online", err);
        }
    }
    *out = scale > 0 ? scale : 1.0f;
    return BITNET_OK;
}

/* Floats become 1 if they are over half of the scale, -1 under minus that. For masters that is
   round(w / scale), limited to -1 .. 1, because a tie goes to 0; halving a scale of at least 1e-5
   is exact. */
static bitnet_result hf_write_rounded(hf_model *h, const hf_part *p, gguf_writer *w,
                                      bitnet_error *err) {
    const uint64_t n = p->rows * p->cols;
    float scale = 0, half;
    uint64_t at;
    size_t len, i;
    bitnet_result r = h->masters ? hf_absmean(h, p, &scale, err)
                                 : hf_exact_scale(h, p, &scale, err);
    half = r ? 0 : scale / 2;
    for (at = 0; at < n && !r; at += len) {
        len = hf_slice(n - at, HF_SLICE);
        if ((r = hf_weights(h, p, at, len, err))) return r;
        for (i = 0; i < len; i++)
            h->bytes[i] = (uint8_t)(1 + (h->floats[i] > half) - (h->floats[i] < -half));
        r = hf_put_codes(h, w, h->bytes, len, err);
    }
    return r ? r : hf_put_scale(w, scale, err);
}

/* Floats with a scale for each block of a row. */
static bitnet_result hf_write_groups(hf_model *h, const hf_part *p, gguf_writer *w,
                                     bitnet_error *err) {
    const uint64_t row_dims[1] = {p->cols};
    const size_t row_bytes = (size_t)bitnet_tensor_size(p->type, 1, row_dims);
    bitnet_error why = {0};
    bitnet_ternary t;
    uint64_t at;
    size_t rows;
    memset(&t, 0, sizeof t);
    t.type = p->type;
    t.n = (int32_t)p->cols;
    for (at = 0; at < p->rows; at += rows) {
        bitnet_result r;
        rows = hf_slice(p->rows - at, HF_SLICE / p->cols);
        if ((r = hf_weights(h, p, at * p->cols, rows * (size_t)p->cols, err))) return r;
        if (pack_rows(&t, h->floats, (int32_t)at, (int32_t)rows, (int8_t *)h->bytes, h->out, &why))
            return st_fail(&h->tensors, p->t, why.text, err);
        if ((r = hf_put(w, h->out, rows * row_bytes, err))) return r;
    }
    return BITNET_OK;
}

/* ---- embedding, head and norms ---- */

/* e^x, of numbers as they are in models: (e^(x / 1024))^1024. Others become 0 or infinite. */
static double hf_exp(double x) {
    double y = 1, term = 1;
    int i;
    if (x < -1000) return 0;
    if (x > 1000) x = 1000;
    for (i = 1; i < 14; i++) y += term *= x / 1024 / i;
    for (i = 0; i < 10; i++) y *= y;
    return y;
}

/* Packs n floats, which begin at element at of p's tensor, into h->out. Counts those that are
   rounded, if the type has no blocks. */
static bitnet_result hf_pack(hf_model *h, const hf_part *p, uint64_t at, size_t n,
                             uint64_t *rounded, bitnet_error *err) {
    const int plain = p->type == BITNET_TENSOR_F32 || p->type == BITNET_TENSOR_F16 ||
                      p->type == BITNET_TENSOR_BF16;
    float *x = h->floats, *back = h->floats + HF_SLICE;
    bitnet_error why;
    size_t i;
    for (i = 0; i < n; i++) {
        if (p->shift > 0) x[i] += p->shift;
        if (p->decays) x[i] = -(float)hf_exp((double)x[i]);
        if (!(x[i] - x[i] == 0)) return hf_fail_float(h, p->t, at + i, x[i], "is not finite", err);
        if (p->type == BITNET_TENSOR_F16 && !(x[i] < 65520.0f && x[i] > -65520.0f))
            return hf_fail_float(h, p->t, at + i, x[i], "is too large for F16; BF16 could hold it",
                                 err);
    }
    if (pack_floats(p->type, x, (int32_t)n, h->out, &why))
        return st_fail(&h->tensors, p->t, why.text, err);
    if (!plain) return BITNET_OK;
    bitnet_floats_unpack(p->type, h->out, (int32_t)n, back, 0);
    for (i = 0; i < n; i++) *rounded += x[i] != back[i];
    return BITNET_OK;
}

static void hf_log_rounded(const hf_model *h, const char *name, uint64_t rounded, uint64_t n) {
    char text[160];
    if (!rounded) return;
    snprintf(text, sizeof text, "%s: %llu of %llu numbers are rounded", name,
             (unsigned long long)rounded, (unsigned long long)n);
    hf_log(h, text);
}

static bitnet_result hf_write_floats(hf_model *h, const hf_part *p, gguf_writer *w,
                                     bitnet_error *err) {
    const uint64_t cols = p->cols, row_dims[1] = {cols};
    const size_t row_bytes = (size_t)bitnet_tensor_size(p->type, 1, row_dims);
    uint64_t at, rounded = 0;
    size_t rows;
    for (at = 0; at < p->rows; at += rows) {
        bitnet_result r;
        rows = hf_slice(p->rows - at, HF_SLICE / cols);
        if ((r = hf_weights(h, p, at * cols, rows * (size_t)cols, err)) ||
            (r = hf_pack(h, p, at * cols, rows * (size_t)cols, &rounded, err)) ||
            (r = hf_put(w, h->out, rows * row_bytes, err))) return r;
    }
    if (p->t->n_dims == 1) {           /* there are hundreds of norms */
        h->rounded += rounded;
        h->n_norms += cols;
    } else hf_log_rounded(h, p->name, rounded, p->rows * cols);
    return BITNET_OK;
}

/* ---- the file ---- */

static void hf_add_key(gguf_writer *w, const char *arch, const char *key, uint64_t v) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    gguf_add_u32(w, name, (uint32_t)v);
}

static void hf_add_float_key(gguf_writer *w, const char *arch, const char *key, float v) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    gguf_add_f32(w, name, v);
}

static void hf_add_tokenizer(const hf_model *h, gguf_writer *w) {
    const tok *t = &h->tokens;
    const struct { const char *key; int64_t id; } ids[] = {
        {"bos", t->bos}, {"eos", t->eos}, {"padding", t->pad}, {"unknown", t->unk}
    };
    char name[64];
    size_t i;
    tok_write_keys(t, t->pre, w);
    for (i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        snprintf(name, sizeof name, "tokenizer.ggml.%s_token_id", ids[i].key);
        if (ids[i].id >= 0) gguf_add_u32(w, name, (uint32_t)ids[i].id);
    }
    if (t->n_end_ids > 1)
        gguf_add_i32s(w, "tokenizer.ggml.eos_token_ids", t->end_ids, t->n_end_ids);
    gguf_add_bool(w, "tokenizer.ggml.add_bos_token", t->add_bos);
    if (t->add_eos || hf_embeds(h)) gguf_add_bool(w, "tokenizer.ggml.add_eos_token", t->add_eos);
    if (!tok_is_bpe(t)) gguf_add_bool(w, "tokenizer.ggml.add_space_prefix", t->space_prefix);
    if (t->template_text) gguf_add_string(w, "tokenizer.chat_template", t->template_text);
}

static void hf_add_hybrid_keys(const hf_model *h, gguf_writer *w) {
    const char *arch = h->family->arch;
    const uint64_t *s = h->sizes;
    gguf_add_i32s(w, "qwen35.rope.dimension_sections", h->sections, 4);
    hf_add_key(w, arch, "full_attention_interval", h->interval);
    hf_add_key(w, arch, "ssm.conv_kernel", s[HF_TAPS]);
    hf_add_key(w, arch, "ssm.state_size", s[HF_STATE]);
    hf_add_key(w, arch, "ssm.group_count", h->key_heads);
    hf_add_key(w, arch, "ssm.time_step_rank", s[HF_HEADS]);
    hf_add_key(w, arch, "ssm.inner_size", s[HF_INNER]);
}

static void hf_add_keys(const hf_model *h, gguf_writer *w) {
    static const char *const scales[] = {"embedding_scale", "residual_scale", "logit_scale"};
    static const char *const types[] = {0, "linear", 0, "yarn", "longrope"};       /* HF_ROPE_* */
    const char *arch = h->family->arch;
    const uint32_t group = h->options.group_type;
    int i;
    gguf_add_string(w, "general.architecture", arch);
    gguf_add_string(w, "general.name", h->options.name ? h->options.name : h->name);
    if (!hf_is_hybrid(h)) hf_add_key(w, arch, "vocab_size", h->vocab);
    hf_add_key(w, arch, "context_length", h->context);
    hf_add_key(w, arch, "embedding_length", h->sizes[HF_DIM]);
    hf_add_key(w, arch, "block_count", h->n_layers);
    hf_add_key(w, arch, "feed_forward_length", h->sizes[HF_FFN]);
    hf_add_key(w, arch, "rope.dimension_count", h->rotated ? h->rotated : h->sizes[HF_HEAD]);
    hf_add_key(w, arch, "attention.head_count", h->heads);
    hf_add_key(w, arch, "attention.head_count_kv", h->kv_heads);
    if ((h->family->tensors & (HF_EMBED | HF_GROUPS | HF_HYBRID)) ||
        h->sizes[HF_Q] != h->sizes[HF_DIM]) {
        hf_add_key(w, arch, "attention.key_length", h->sizes[HF_HEAD]);
        hf_add_key(w, arch, "attention.value_length", h->sizes[HF_HEAD]);
    }
    if (hf_embeds(h)) {
        if (h->options.window) hf_add_key(w, arch, "attention.sliding_window", h->window);
        hf_add_key(w, arch, "pooling_type", h->pooling);
    }
    hf_add_float_key(w, arch, "attention.layer_norm_rms_epsilon", h->eps);
    hf_add_float_key(w, arch, "rope.freq_base", h->theta);
    for (i = 0; i < 3 && h->family->scaled; i++)
        hf_add_float_key(w, arch, scales[i], h->scales[i]);
    if (types[h->rope.kind]) {
        char name[96];
        snprintf(name, sizeof name, "%s.rope.scaling.type", arch);
        gguf_add_string(w, name, types[h->rope.kind]);
    }
    if (h->rope.kind == HF_ROPE_LINEAR || h->rope.kind == HF_ROPE_YARN)
        hf_add_float_key(w, arch, "rope.scaling.factor", h->rope.factor);
    if (h->rope.kind == HF_ROPE_YARN) {
        hf_add_key(w, arch, "rope.scaling.original_context_length", h->rope.original);
        hf_add_float_key(w, arch, "rope.scaling.yarn_beta_fast", h->rope.fast);
        hf_add_float_key(w, arch, "rope.scaling.yarn_beta_slow", h->rope.slow);
    }
    if (hf_is_hybrid(h)) hf_add_hybrid_keys(h, w);
    if (!strcmp(arch, "bitnet"))       /* there it is one of two */
        gguf_add_string(w, "bitnet.hidden_activation", h->family->act);
    gguf_add_u32(w, "general.file_type", group == BITNET_TENSOR_PTQ1_0 ? 129
                                         : group && group != BITNET_TENSOR_Q1_0 ? 41 : 40);
    if (!hf_embeds(h)) gguf_add_u32(w, "general.quantization_version", 2);
}

/* Writes the data of a tensor. */
static bitnet_result hf_write_part(hf_model *h, const hf_part *p, gguf_writer *w,
                                   bitnet_error *err) {
    uint64_t i;
    if (p->own) {
        for (i = 0; i < p->cols; i++) pack_floats(p->type, p->own + i, 1, h->out + 4 * i, 0);
        return hf_put(w, h->out, 4 * (size_t)p->cols, err);
    }
    if (pack_group(p->type)) return hf_write_groups(h, p, w, err);
    if (p->type != BITNET_TENSOR_I2_S) return hf_write_floats(h, p, w, err);
    return p->scale ? hf_write_packed(h, p, w, err) : hf_write_rounded(h, p, w, err);
}

bitnet_result hf_write(hf_model *h, gguf_writer *w, bitnet_error *err) {
    bitnet_result r;
    uint32_t i;
    hf_add_keys(h, w);
    hf_add_tokenizer(h, w);
    for (i = 0; i < h->n_parts; i++) {
        const hf_part *p = &h->parts[i];
        const uint64_t dims[2] = {p->cols, p->rows};
        gguf_add_tensor_as(w, p->name, p->type, pack_group(p->type) ? h->options.group_number
                           : p->type, p->t && p->t->n_dims > 1 ? 2 : 1, dims);
    }
    if ((r = gguf_write_header(w)) != BITNET_OK && err) *err = w->err;
    for (i = 0; i < h->n_parts && !r; i++) r = hf_write_part(h, &h->parts[i], w, err);
    if (!r) hf_log_rounded(h, "norms", h->rounded, h->n_norms);
    if (!r && (r = gguf_write_end(w)) != BITNET_OK && err) *err = w->err;
    gguf_writer_free(w);
    return r;
}
