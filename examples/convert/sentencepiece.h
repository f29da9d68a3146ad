/* sentencepiece.h - tokenizer.model, SentencePiece's file: a message of protocol buffers

   A message is a list of fields, each a number, a wire type and a value:

       key         varint: number << 3 | wire type
       0 varint    7 bits a byte, the lowest first; the highest bit: another byte follows
       1, 5        8 and 4 bytes
       2           varint n, then n bytes: a string, or another message

   Of these fields the rest of the program needs to know; others are skipped:

       ModelProto      1 pieces, one message each    2 trainer_spec    3 normalizer_spec
       piece           1 text    2 score (F32)    3 type (default 1), numbered as GGUF's
       trainer_spec    3 model_type (1 unigram, 2 BPE)    24 treat_whitespace_as_suffix
                       40, 41, 42, 43 ids of unk (0), bos (1), eos (2), pad (-1)
       normalizer_spec 2 precompiled_charsmap    3 add_dummy_prefix (1)
                       4 remove_extra_whitespaces (1)    5 escape_whitespaces (1)

   The file may be hostile. Memory is at most 9 times its size. */
#ifndef SENTENCEPIECE_H
#define SENTENCEPIECE_H

#include "../../bitnet.h"

typedef struct spm_piece {
    const char *text;                  /* valid UTF-8, not empty, ends with a NUL */
    float score;
    int32_t type;                      /* 1 .. 6, as tokenizer.ggml.token_type */
} spm_piece;

typedef struct spm_model {
    char *bytes;                       /* the file, with the texts of the pieces */
    spm_piece *pieces;                 /* [n_pieces] */
    uint32_t n_pieces;
    int64_t unk, bos, eos, pad;        /* ids; -1: there is none */
    int space_prefix;                  /* 1: a space is put in front of a text */
} spm_model;

/* Parses bytes[n], memory from malloc that the model takes over, also after an error. name is the
   file's, for errors. What bitnet.h cannot do, such as unigram models and normalization, is
   BITNET_ERR_UNSUPPORTED. spm_free must follow even after an error. */
bitnet_result spm_parse(spm_model *m, const char *name, char *bytes, size_t n, bitnet_error *err);
void spm_free(spm_model *m);

#endif
