/* search.h - the k rows of the largest cosine with a query, exactly

   With int8 copies (bounds.h) one pass over them, which reads a quarter of the bytes, bounds all
   cosines. The k-th largest lower bound is a limit: rows whose upper bound is under it cannot be
   among the k best. The cosines of the others are computed from the floats. Rows with equal cosines
   come in their order. The result is the same as without the copies. */
#ifndef EMBED_SEARCH_H
#define EMBED_SEARCH_H

#include "bounds.h"

typedef struct vectors {
    const uint8_t *rows;               /* [n][dim] little-endian floats */
    uint64_t n;
    int32_t dim;
    const uint8_t *codes;              /* [n][width]; 0: there are no copies */
    const uint8_t *floats;             /* [2][n] a and r */
} vectors;

typedef struct hit { double score; uint64_t row; } hit;

/* Fills out [k] with *n hits, the best first. *exact is how many cosines were computed from floats.
   Returns 0, or what is wrong; *row then says where, if it is a row. */
const char *search_top(const vectors *v, const query *q, int32_t k, int n_threads, hit *out,
                       int32_t *n, uint64_t *exact, uint64_t *row);

#endif
