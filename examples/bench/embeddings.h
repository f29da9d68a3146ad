/* embeddings.h - how fast a model turns texts into vectors: one text of some length, and many short
   ones that share passes */
#ifndef BENCH_EMBEDDINGS_H
#define BENCH_EMBEDDINGS_H

#include "../../bitnet.h"

/* Measures and reports all tables, or the one of this name. */
void bench_embeddings(const char *kernel, int n_threads, int rounds, int quick);

/* A context for one text of up to LONGEST tokens, of a model without a head that load_model has
   loaded last; and the tokens per second of a text of n tokens, of at most 512 more than once. */
bitnet_ctx *open_embedder(const bitnet_model *m, int n_threads);
double embed_speed(bitnet_ctx *c, int32_t n);

#endif
