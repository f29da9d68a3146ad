/* model.h - texts to vectors, many in one call; a text that fails does not stop the others */
#ifndef EMBED_MODEL_H
#define EMBED_MODEL_H

#include "options.h"

enum { BATCH = 256 };                  /* texts that are read before they are embedded */

/* A text of p [n] or, if p is 0, of tokens. What it points to is from malloc. */
typedef struct text {
    char *p;
    size_t n;
    bitnet_token *tokens;              /* of p, once it is embedded */
    int32_t n_tokens;
    char *id;                          /* JSON, or 0 */
    uint64_t line;                     /* where it begins in the input, from 1 */
    char error[200];                   /* why it has no vector, or "" */
} text;

typedef struct embedder {
    bitnet_model *model;
    bitnet_ctx *ctx;
    bitnet_model_info info;
    const settings *s;
    bitnet_embed_params params;
    char name[128];                    /* the model's: general.name, or that of the file */
    int32_t n_ctx;
    bitnet_embed_input *inputs;        /* [BATCH] */
    float *vectors;                    /* [BATCH][dim] */
} embedder;

void text_free(text *t);

/* Loads the model. Returns an exit code. embedder_close must follow even after an error. */
int embedder_open(embedder *e, const settings *s, int cut);
void embedder_close(embedder *e);

/* The vectors of n texts, at most BATCH, in out [n][dim]. Texts that fail get an error, and NaN.
   Returns an exit code; unless it is DONE, out holds anything. */
int embedder_run(embedder *e, text *texts, int32_t n, float *out);

/* Puts "Instruct: TASK\nQuery: " in front of a text. Returns 0 without memory. */
int add_task(text *t, const char *task);

/* 64 bits of the vector of a fixed text: the same on every machine, others with another model,
   pooling or kv_type. Returns an exit code. */
int embedder_probe(embedder *e, uint64_t *out);

#endif
