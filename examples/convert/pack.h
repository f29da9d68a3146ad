/* pack.h - packs weights into the types of a file: the inverse of bitnet_ternary_unpack,
   bitnet_ternary_scale and bitnet_floats_unpack */
#ifndef PACK_H
#define PACK_H

#include "../../bitnet.h"

/* Packs weights [n_rows][t->n], each -1, 0 or 1, as rows [row, row + n_rows) of data, the whole
   tensor. t must have passed bitnet_ternary_check. Padding and the scale stay as they are. */
bitnet_result pack_ternary(const bitnet_ternary *t, const int8_t *weights, int32_t row,
                           int32_t n_rows, uint8_t *data, bitnet_error *err);
/* Sets the scale of a tensor whose rows are all packed. TQ1_0 and TQ2_0 store it as an F16 in each
   block: a scale that is not exactly an F16 is BITNET_ERR_UNSUPPORTED. Blocks of zeros get 0, as
   ggml's quantizer writes it. */
bitnet_result pack_scale(const bitnet_ternary *t, float scale, uint8_t *data, bitnet_error *err);
/* Packs n floats, in whole blocks, as F32, F16, BF16, Q8_0 or Q6_K. A NaN or a value out of the
   type's range is BITNET_ERR_FORMAT. */
bitnet_result pack_floats(uint32_t type, const float *x, int32_t n, uint8_t *out,
                          bitnet_error *err);

#endif
