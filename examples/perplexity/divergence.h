/* divergence.h - statistics of a model against a base, with the names of llama-perplexity

   Q is the model, base the one that saved the rows. A mean has the uncertainty sqrt(variance /
   (n - 1)); that of what is computed from means follows by error propagation. */
#ifndef PERPLEXITY_DIVERGENCE_H
#define PERPLEXITY_DIVERGENCE_H

#include "score.h"

typedef struct divergence {
    uint64_t n;
    double nll, nll2, nll_base, nll_base2, nll_nll_base;       /* sums, of squares and products */
    double kld, kld2, p_diff, p_diff2, p_diff4;
    uint64_t same_top;
    double *klds, *p_diffs;            /* [n] of them */
} divergence;

/* For at most so many rows. Returns 0 without memory. divergence_free follows. */
int divergence_open(divergence *d, uint64_t most);
void divergence_free(divergence *d);
void divergence_add(divergence *d, const score *s);

/* Prints the head of a table, and its line after chunk i, with all chunks so far. */
void divergence_print_head(void);
void divergence_print_chunk(const divergence *d, int32_t i);

/* Prints all statistics, and sorts what was added. */
void divergence_print(divergence *d);

#endif
