/* fold.h - matrices whose inputs a Hadamard matrix turns (keys prism.hadamard.*; Ternary Bonsai 2)

   Such a file has rows of weights in another basis, in which they are ternary. Its network computes
   W H(s * x) where another one computes w x. H turns each block of columns on its own, s is a
   vector of signs for each width:

       H[i][j] = (-1)^(number of ones in i & j) / sqrt(block)      its own inverse
       w = s * H(row),  row = H(s * w)

   The embedding's rows are the inputs of the network: s * H(row), the same. With gdn_v_grouped the
   columns of ssm_out keep the value heads of a key head together, in H and in s; without a fold
   GGUF takes one of each key head in turn (see hf.h). */
#ifndef CONVERT_FOLD_H
#define CONVERT_FOLD_H

#include "input.h"

enum { FOLD_WIDTHS = 8 };

typedef struct fold {
    int32_t block;                     /* columns that are turned together; 0: nothing is folded */
    int grouped;
    int64_t key_heads, value_heads;
    bitnet_gguf_value names[2];        /* of folded matrices: strings */
    int n_widths;                      /* 0: all signs are + */
    int64_t widths[FOLD_WIDTHS];
    int8_t *signs[FOLD_WIDTHS];
} fold;

/* Reads the keys of a file, which must be known ones. fold_free must follow. */
void fold_read(fold *f, const bitnet_gguf *g, const char *path);
void fold_free(fold *f);
/* Is it a key of a fold? */
int fold_is_key(const char *name);
/* Is the matrix of that name folded? */
int fold_has(const fold *f, const char *name);
/* Fails unless every folded matrix is among the file's, and has rows that can be turned. */
void fold_check(const fold *f, const bitnet_gguf *g, const char *path);
/* Are the rows of a matrix of that name and width the same in both, folded or not? */
int fold_is_same(const fold *a, const fold *b, const char *name, int64_t width);
/* Turns a row of a folded matrix into the plain basis, and back. */
void fold_undo(const fold *f, const char *name, float *row, int32_t n);
void fold_do(const fold *f, const char *name, float *row, int32_t n);

#endif
