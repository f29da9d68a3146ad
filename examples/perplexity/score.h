/* score.h - what rows of logits say of the tokens that follow */
#ifndef PERPLEXITY_SCORE_H
#define PERPLEXITY_SCORE_H

#include "chunks.h"

typedef struct score {
    double nll;                        /* -ln p of the token; a NaN or infinite: bad logits */
    /* Only with SCORE_COMPARE. The base's p(t) of a token t are pb(t). */
    double nll_base;                   /* -ln pb of the token */
    double kld;                        /* the sum of pb(t) (ln pb(t) - ln p(t)), without e^-16 */
    double p_diff;                     /* p - pb of the token */
    int same_top;                      /* 1: both find the same token most likely */
} score;

typedef enum score_kind {
    SCORE_ONLY,
    SCORE_SAVE,                        /* writes rows of a base */
    SCORE_COMPARE                      /* reads them */
} score_kind;

typedef struct scorer {
    score_kind kind;
    int32_t n_vocab;
    int n_threads;
    uint8_t *rows;                     /* of base.h, [n]; 0 with SCORE_ONLY */
} scorer;

/* Scores all rows of a piece to out [n]. The threads do not change the results. */
void score_piece(const scorer *s, const piece *p, score *out);

#endif
