/* pack.h - packs weights into the types of a file: the inverse of bitnet_ternary_unpack,
   bitnet_ternary_scale and bitnet_floats_unpack */
#ifndef PACK_H
#define PACK_H

#include "../../bitnet.h"

/* Can the type of t hold weights [n_rows][t->n], rows from `row` on? Only Q2_0 and PQ2_0 hold a 2,
   and Q1_0 holds a 0 only in blocks of zeros, whose scale is 0. BITNET_ERR_ARG: no; err names a
   place. */
bitnet_result pack_fits(const bitnet_ternary *t, const int8_t *weights, int32_t row,
                        int32_t n_rows, bitnet_error *err);
/* Packs such weights as rows [row, row + n_rows) of data, the whole tensor. t must have passed
   bitnet_ternary_check. Padding and the scale stay as they are. In Q1_0, however, the scale of a
   block of zeros becomes 0, and that of another block 1 if it was 0. */
bitnet_result pack_ternary(const bitnet_ternary *t, const int8_t *weights, int32_t row,
                           int32_t n_rows, uint8_t *data, bitnet_error *err);
/* Sets the scale of a tensor whose rows are all packed. TQ1_0, TQ2_0, PTQ1_0, Q1_0, Q2_0 and PQ2_0
   store it as an F16 in each block: a scale that is not exactly an F16 is BITNET_ERR_UNSUPPORTED.
   Blocks of zeros get 0, as ggml's quantizer writes it. */
bitnet_result pack_scale(const bitnet_ternary *t, float scale, uint8_t *data, bitnet_error *err);
/* How many weights share a scale in a block of this type; 0: it has no such blocks. */
int32_t pack_group(uint32_t type);
/* The scale of a block; the blocks of a row are counted from 0. */
float pack_block_scale(const bitnet_ternary *t, const uint8_t *data, int32_t row, int32_t block);
/* weights [n_rows][n] are those of a tensor's rows from `row` on. Sets them to 0 where their block
   has the scale 0. */
void pack_clear(const bitnet_ternary *t, const uint8_t *data, int32_t row, int32_t n_rows,
                int8_t *weights);
/* Like bitnet_ternary_scale, of a tensor in blocks; one whose scale is 0 counts as zeros, too. */
bitnet_result pack_find_scale(const bitnet_ternary *t, const uint8_t *data, float *out,
                              bitnet_error *err);
/* Gives the blocks of out, rows of `to`, the scales of data, the tensor `from` in blocks of another
   size: those of the blocks that lie in them. weights [n_rows][n] are those of both. out may be 0,
   to check. BITNET_ERR_UNSUPPORTED: blocks become one, but their scales differ, and neither is all
   zeros. */
bitnet_result pack_scales(const bitnet_ternary *to, uint8_t *out, const bitnet_ternary *from,
                          const uint8_t *data, const int8_t *weights, int32_t row, int32_t n_rows,
                          bitnet_error *err);
/* Packs floats x [n_rows][n], rows from `row` on of a tensor in blocks, to data, these rows' own
   bytes. Each block holds -s, 0 and s for an s of its own that is an F16; else
   BITNET_ERR_UNSUPPORTED. What does not fit is BITNET_ERR_ARG, as in pack_ternary. weights gets
   [n_rows][n]. data may be 0, to check. */
bitnet_result pack_rows(const bitnet_ternary *t, const float *x, int32_t row, int32_t n_rows,
                        int8_t *weights, uint8_t *data, bitnet_error *err);
/* The nearest F16; an infinity if it is too large. */
float pack_half(float x);
/* Packs n floats, in whole blocks, as F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q4_K or Q5_0. A NaN or a
   value out of the type's range is BITNET_ERR_FORMAT. */
bitnet_result pack_floats(uint32_t type, const float *x, int32_t n, uint8_t *out,
                          bitnet_error *err);

#endif
