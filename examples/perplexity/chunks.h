/* chunks.h - the logits of a text that is cut into chunks, in the order of the text

   Chunk i begins with token i * step of the text and has n_ctx tokens. Only the rows of logits from
   `first` on count, so that each has some text before it; row p is about token p + 1:

       position   0             first                       n_ctx - 1
       token      BOS  t1  ...  t_first   ...   ...         t_last
       row                      r_first   ...   r_last-1

   BOS takes the place of the chunk's first token, if the model wants one. */
#ifndef PERPLEXITY_CHUNKS_H
#define PERPLEXITY_CHUNKS_H

#include "options.h"

typedef struct plan {
    const bitnet_token *tokens;        /* the text's */
    int32_t n_ctx, first, step, n_chunks;
    bitnet_token bos;                  /* -1: chunks keep their first token */
} plan;

/* The rows of a chunk that count. */
static inline int32_t plan_rows(const plan *p) { return p->n_ctx - 1 - p->first; }

/* Rows that follow each other in the text, perhaps of several chunks. */
typedef struct piece {
    const float *logits;               /* [n][n_vocab] */
    const bitnet_token *next;          /* [n], the tokens that they are about */
    int32_t n;
} piece;

/* Takes the next piece. Returns an exit code; any but DONE ends the run. */
typedef int (*piece_fn)(void *ud, const piece *p);

typedef struct evaluator {
    const plan *plan;
    bitnet_ctx *ctx;
    int32_t n_vocab;
    int32_t n_seqs;                    /* chunks side by side */
    int32_t n_rows;                    /* of a piece, at most */
    bitnet_token *tokens;              /* [n_seqs][n_ctx] of these chunks, with BOS */
    bitnet_token *next;                /* [n_rows] */
    bitnet_input *inputs;              /* [n_seqs] */
} evaluator;

/* How many chunks are evaluated side by side. */
int32_t chunks_side_by_side(const plan *p, const settings *s);

/* Makes a context for chunks of this model. Returns an exit code and says what failed.
   evaluator_close must follow, even after an error. */
int evaluator_open(evaluator *e, const plan *p, const bitnet_model *model, const settings *s);
void evaluator_close(evaluator *e);

/* Passes all rows to fn. Returns an exit code. */
int evaluator_run(evaluator *e, piece_fn fn, void *ud);

#endif
