/* hf.h - a model in Hugging Face's form (config.json, safetensors, tokenizer.json) as GGUF with the
   official file's keys and names, its linear layers as I2_S

   Linear layers come in two forms. Packed: uint8 [out / 4, in] and a weight_scale of one element. A
   byte holds four weights of one column, from four blocks of rows, as code = weight + 1:

       bits of byte (r, c)     1-0        3-2              5-4              7-6
       weight                  (r, c)     (out/4 + r, c)   (out/2 + r, c)   (3*out/4 + r, c)

   A layer computes dot * weight_scale if quantization_config.linear_class is autobitlinear, and
   dot / weight_scale if it is bitlinear or missing. I2_S stores the factor.

   Not packed (BF16, F16 or F32): scale = mean|w|, at least 1e-5, and weight = w / scale rounded to
   nearest, ties to even, limited to -1 .. 1. The sum is one of doubles: element i is added to
   partial sum i % 16, and these are added in order; the scale is then rounded to F32. The rows of q
   and k keep their order: both sides rotate pairs (i, i + head_size / 2).

   LlamaForCausalLM (Llama3-8B-1.58, Falcon3-1.58, Falcon-E) becomes "llama", where the pairs are
   neighbours: the rows of q and k are reordered. Its floats must be -s, 0 and s, and s is the
   scale, unless quantization_config says that the network rounds them (autobitlinear, online).
   RoPE's scaling becomes keys (linear, yarn), rope_freqs.weight (llama3), or rope_factors_long and
   _short (longrope). MiniCPMForCausalLM (BitCPM-CANN) becomes "minicpm" in the same way, with keys
   for its three factors.

   With group_type the weights are floats of which each block of a row, embedding and head included,
   holds -s, 0 and s, for an s of its own that is an F16 (Ternary and 1-bit Bonsai, each a
   Qwen3ForCausalLM). They are packed exactly or not at all: in Q1_0 a group holds -s and s, or only
   zeros.

   Microsoft's text embeddings (model_type qwen3 and gemma3_text) become what their published files
   are: norms are F16, the head is left out, and a pooling_type is added. Gemma's norms multiply by
   1 + w, so these get + 1; the norms in front of linear layers are not Gemma's and do not.

   Qwen3_5ForCausalLM and the text part of Qwen3_5ForConditionalGeneration (Ternary Bonsai 27B)
   become "qwen35", with group_type. Three of four layers are gated delta nets. Their norms get
   + 1, too, but for linear_attn.norm; A_log becomes -exp(A_log). Of n value heads and k key heads
   Hugging Face keeps the n / k value heads of a key head together, and GGUF takes one of each key
   head in turn:

       value head of GGUF          0    1        2          ...    k    k + 1
       is Hugging Face's           0    n / k    2 n / k    ...    1    n / k + 1

   That reorders rows (of v in in_proj_qkv and conv1d, of in_proj_z, in_proj_a and in_proj_b),
   columns (out_proj) and vectors (A_log, dt_bias). in_proj_a and in_proj_b keep the folder's floats
   if they are not ternary. Tensors of images and of predicted tokens are left out. */
#ifndef HF_H
#define HF_H

#include "gguf_write.h"
#include "safetensors.h"
#include "tokenizer.h"

typedef struct hf_options {
    const char *name;                  /* general.name; 0: the folder's */
    const char *pre;                   /* tokenizer.ggml.pre; 0: found in tokenizer.json */
    uint32_t head_type;                /* BITNET_TENSOR_* of embedding and head; 0: F32 */
    int wants_head;                    /* 1: also with group_type, which they have otherwise */
    uint32_t group_type;               /* BITNET_TENSOR_Q1_0, _Q2_0, _PQ2_0 or _PTQ1_0 of all
                                          matrices, whose groups hold -s, 0 and s; 0: I2_S */
    uint32_t group_number;             /* the number of group_type in the file */
    uint32_t pooling;                  /* BITNET_POOLING_*; 0: as modules.json says */
    int window;                        /* 1: Gemma's sliding window is written too */
    void (*log_fn)(void *ud, const char *text);   /* may be 0 */
    void *ud;
} hf_options;

typedef struct hf_part {               /* a tensor of the GGUF file */
    char name[64];
    st_tensor *t, *scale;              /* scale: of packed weights; else 0 */
    const float *own;                  /* [cols] instead of t: what is computed from config.json */
    uint32_t type;
    uint64_t rows, cols;
    float shift;                       /* added to each number */
    int decays;                        /* 1: a number x becomes -exp(x) */
    uint64_t half;                     /* the rows of half a head, if they are reordered; else 0 */
    uint64_t head, first;              /* the rows, or columns, of a value head, if those from
                                          `first` on are reordered; else 0 */
    int in_columns;
    uint64_t key_heads, each;          /* value heads of each key head */
} hf_part;

enum { HF_ROPE_DEFAULT, HF_ROPE_LINEAR, HF_ROPE_LLAMA3, HF_ROPE_YARN, HF_ROPE_LONG };

typedef struct hf_rope {               /* how RoPE is scaled */
    int kind;                          /* HF_ROPE_* */
    float factor, low, high;           /* the last two of llama3 */
    uint64_t original;                 /* the context before scaling, of llama3 and yarn */
    float fast, slow;                  /* yarn's beta_fast and beta_slow */
} hf_rope;

/* The sizes that tensors have; HF_ONE: a vector has no rows. */
enum { HF_ONE, HF_DIM, HF_Q, HF_KV, HF_FFN, HF_HEAD, HF_GATED, HF_MIXED, HF_INNER, HF_HEADS,
       HF_STATE, HF_TAPS, HF_SIZES };

typedef struct hf_model {
    hf_options options;
    char name[128];                    /* the folder's */
    json config;
    tok tokens;
    st_model tensors;
    hf_part *parts;                    /* [n_parts] */
    uint32_t n_parts;
    const struct hf_family *family;
    uint32_t text;                     /* the node of config.json that has the text model */
    const char *prefix, *suffix;       /* of the tensors' names: "model." or nothing; ".weight" */
    uint64_t n_layers, heads, kv_heads, context, vocab, window, sizes[HF_SIZES];
    uint64_t key_heads, interval, rotated;       /* of a hybrid: of a head are rotated */
    int32_t sections[4];
    float eps, theta;
    hf_rope rope;
    float *rope_factors;               /* [head_dim / 2], of longrope [2], the long ones first; or
                                          0 */
    float scales[3];                   /* MiniCPM's: see hf_read_scales */
    uint32_t pooling;
    uint32_t n_left_out;               /* tensors of other parts of the model */
    uint64_t rounded, n_norms;         /* numbers of norms: that are rounded; all */
    int divides, quantized;            /* how weight_scale works; is there a quantization_config? */
    int masters;                       /* 1: floats are rounded by absmean; 0: they are -s, 0, s */
    float *floats;                     /* [HF_SLICE] */
    uint8_t *bytes, *out;              /* [4 * HF_SLICE] each */
} hf_model;

/* Opens the model of a folder and checks all but the weights' values. hf_close must follow even
   after an error. */
bitnet_result hf_open(hf_model *h, const char *dir, const hf_options *options, bitnet_error *err);
/* Writes the whole file. Only write_fn and ud of the writer are set. */
bitnet_result hf_write(hf_model *h, gguf_writer *w, bitnet_error *err);
void hf_close(hf_model *h);

#endif
