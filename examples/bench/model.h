/* model.h - the model in memory, a file's or a random one of a family's published shapes, and how
   fast it reads and writes text */
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#include "../../bitnet.h"
#include <stdio.h>

enum { LONGEST = 4096, N_DECODE = 16 };   /* tokens of the longest prompt; written at a time */

extern bitnet_model_info info;         /* of the model loaded last */
extern uint8_t *file;                  /* borrowed by all models */
extern size_t file_size;

void read_file(const char *path);        /* maps it, where that is possible */
void release_file(void);
/* A random model instead, of a family: bitnet (BitNet b1.58-2B-4T, the default), qwen3-embedding
   (0.6B), gemma3-embedding (270M), qwen3-q2 (Ternary Bonsai 1.7B), qwen3-q1 (1-bit Bonsai 1.7B),
   maple (20B, with experts), or Ternary Bonsai 27B: bonsai-27b and bonsai-27b-ptq (version 2 in
   PQ2_0 and PTQ1_0, whose inputs are turned), bonsai-27b-q2 (version 1 in Q2_0). layers 0: all. */
void set_family(const char *name, int layers);
extern bitnet_kv_type kv_type;         /* what contexts keep keys and values as */
void make_model(void);
/* Writes the random model without keeping it in memory; 0: it cannot be written. */
int write_model(FILE *f);

/* Loads the file for these kernels and fills info. */
extern int in_place;                   /* 1: load_model does not pack weights in blocks */
bitnet_model *load_model(const bitnet_kernels *k);
/* The ternary weights that a token is multiplied with, and the bytes that the layers of a pass of n
   tokens read in these kernels' layout. */
double layer_weights(void);
double layer_bytes(const bitnet_kernels *k, int n);
/* Bytes to read for n sequences that write a token each: the layers; what they need of the head and
   its copy; for each, keys and values of that many positions. */
double token_bytes(const bitnet_kernels *k, int n, double head_bytes, double positions);
/* A context whose copy of the output head is built: the first samples do that, part by part.
   *screen_s is how long they took, *first_s the clock after the first of them, *mb the context's
   size; all may be 0. */
bitnet_ctx *open_ctx(const bitnet_model *m, int32_t n_ctx, int n_threads,
                     void (*step_fn)(void *, const char *, int, int), double *screen_s,
                     double *first_s, double *mb);

/* Appends n random tokens, if n > 0. */
void eval_random(bitnet_ctx *c, int32_t n);
/* Evaluates a prompt of n tokens in an empty context. */
void prefill(bitnet_ctx *c, int32_t n);
/* Makes the context so long: forgets its end, or appends random tokens. */
void fill(bitnet_ctx *c, int32_t length);
/* Goes to where decoding that ends at this context starts; 0: to the start. The first time it fills
   the context. */
void go_back(bitnet_ctx *c, int32_t context);
/* What tokens need of the head: logits that are computed exactly, the median; and bytes, of the
   head and its copy, the mean. */
typedef struct head_use { double exact_logits, bytes; } head_use;

/* Writes n tokens, with all logits or with the exact top k. use may be 0. */
void decode(bitnet_ctx *c, int n, int full, head_use *use);

/* Tokens per second. */
double prefill_speed(bitnet_ctx *c, int32_t n);
double decode_speed(bitnet_ctx *c, int32_t context, int full, head_use *use);

#endif
