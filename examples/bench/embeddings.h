/* embeddings.h - how fast a model turns texts into vectors: one text of some length, and many short
   ones that share passes */
#ifndef BENCH_EMBEDDINGS_H
#define BENCH_EMBEDDINGS_H

#include "../../bitnet.h"

/* Measures and reports all tables, or the one of this name. */
void bench_embeddings(const char *kernel, int n_threads, int rounds, int quick);

#endif
