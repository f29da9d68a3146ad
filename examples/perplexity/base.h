/* base.h - files of log-probabilities: the format of llama-perplexity --kl-divergence-base

   All numbers are little-endian, whatever the machine:

       "_logits_"                      8 bytes
       n_ctx, n_vocab, n_chunks        3 x int32
       tokens                          [n_chunks][n_ctx] x int32, without the BOS of later chunks
       rows                            [n_chunks][n_ctx - 1 - n_ctx / 2]

   A row is what a model says of the next token, after token n_ctx / 2 of its chunk and those behind
   it but the last. It has 16 bits for each token of the vocabulary:

       byte   0        4          8          10
              scale    smallest   code 0     code 1  ...  (an even number of them)
              F32      F32        uint16     uint16

       ln p(t) = smallest + scale * code t

   The codes span the 16 below the largest logit; what is less likely than that has code 0. */
#ifndef PERPLEXITY_BASE_H
#define PERPLEXITY_BASE_H

#include "../embed/file.h"
#include "chunks.h"

/* ---- rows ---- */

size_t base_row_bytes(int32_t n_vocab);

/* Writes a row from logits [n_vocab] and the logarithm of the sum of exp(logit - largest). */
void base_row_pack(const float *logits, int32_t n_vocab, double log_sum, uint8_t *row);

/* Can these be logarithms of probabilities? A row that is damaged, or of another place, has a scale
   that is no number, or probabilities over 1. */
int base_row_is_sound(const uint8_t *row, int32_t n_vocab);

static inline uint32_t base_get_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
float base_get_float(const uint8_t *p);
static inline unsigned base_code(const uint8_t *row, int32_t token) {
    const uint8_t *p = row + 8 + 2 * (size_t)token;
    return (unsigned)p[0] | (unsigned)p[1] << 8;
}

/* ---- files ---- */

/* Begins a base as PATH.PID-N.part. Returns an exit code; written_free must follow. */
int base_create(written *w, const char *path, const plan *p, int32_t n_vocab);

typedef struct base {
    FILE *f;
    const char *path;
    int32_t n_ctx, n_vocab, n_chunks;
    bitnet_token *tokens;              /* [n_chunks][n_ctx] */
    uint64_t n_read;                   /* rows */
} base;

/* Opens a base that was made with a vocabulary of n_vocab tokens, and reads all but its rows.
   Returns an exit code and says what is wrong. base_close must follow, even after an error. */
int base_open(base *b, const char *path, int32_t n_vocab);
void base_close(base *b);

/* Reads and checks the next n rows. Returns an exit code. */
int base_read(base *b, uint8_t *rows, int32_t n);

#endif
