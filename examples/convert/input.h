/* input.h - reading a GGUF file: its tensors, their kinds and their weights. Every failure ends the
   program. */
#ifndef CONVERT_INPUT_H
#define CONVERT_INPUT_H

#include "tiles.h"

/* How ternary weights are packed. */
typedef struct packing {
    uint32_t type;                     /* BITNET_TENSOR_* */
    bitnet_i2s_packing i2s_packing;
    tile_set tiles;
    const char *tile_option, *i2s_option;      /* what the user says them with */
} packing;

enum { ROWS = 32, PIECE = 1 << 20 };   /* rows unpacked together; bytes copied together */

/* Buffers for a tensor or some of its rows, which grow as needed; free_buffers frees them. */
extern uint8_t *bytes_in, *bytes_out;
extern int8_t *weights[2];             /* [ROWS][n] */
void free_buffers(void);

bitnet_gguf *open_input(const char *path);
/* Is it one part of a split file? Then text says which. */
int is_part(const bitnet_gguf *g, char text[160]);
/* The same as open_input, for a file that may be no part. */
bitnet_gguf *open_whole(const char *path);
void read_bytes(const bitnet_gguf *g, const bitnet_gguf_tensor *t, uint64_t at, void *to,
                uint64_t n);

/* ggml's number 39 means TL2 or MXFP4, so this also compares the names. */
int is_type(const bitnet_gguf_tensor *t, uint32_t type);
/* Can bitnet_floats_unpack read it? */
int is_float(const bitnet_gguf_tensor *t);
/* The embedding or the output head. */
int is_head(const bitnet_gguf_tensor *t);
/* Ternary weights of a layer. */
int is_ternary(const bitnet_gguf_tensor *t);
/* Is it the matrix of a linear layer, by its name? Only ternary ones can run, but in a hybrid. */
int is_layer(const bitnet_gguf_tensor *t);
/* TQ1_0, TQ2_0, PTQ1_0, Q1_0, Q2_0 or PQ2_0, which have a scale in each block. */
int in_blocks(uint32_t type);

/* Is the key this string? With a star at the end of text: does it begin with the rest? */
int key_is(const bitnet_gguf *g, const char *name, const char *text);
/* Files of BitNet's architectures with a BPE tokenizer but without tokenizer.ggml.pre mean
   llama-bpe. SentencePiece's tokenizer has no such key. */
int means_llama_bpe(const bitnet_gguf *g);
/* Is the weights' scale in a tensor of its own, as older converters wrote it? Then the scale after
   the weights is meaningless, and scales in blocks are multiplied by it. */
int has_own_scale(const bitnet_gguf *g, const char *name);

/* The matrix t in a packing, but of this type; checked, and with its tile. */
bitnet_ternary ternary_of(const bitnet_gguf_tensor *t, uint32_t type, const packing *p);
/* Unpacks n <= ROWS rows into *out, which grows. data is the whole tensor, in packing p. Blocks
   whose scale is 0 hold zeros. */
void unpack(const bitnet_ternary *m, const packing *p, const char *name, const uint8_t *data,
            int32_t row, int32_t n, int8_t **out);
/* The scale in the tensor itself; in blocks, the one of all that hold more than zeros. */
float scale_of(const bitnet_ternary *m, const char *name, const uint8_t *data);
/* The same, read from the file; err if there is none. The tile need not be known. */
float read_scale(const bitnet_gguf *g, const bitnet_gguf_tensor *t, bitnet_error *err);

#endif
