/* tokenizer.h - tokenizer.json, or without it tokenizer.model, and tokenizer_config.json as GGUF's
   arrays: byte-level BPE with the pre-tokenizer of LLaMA 3, Qwen or Falcon-E, and SentencePiece's
   BPE with byte fallback, LLaMA's or Gemma's; any other kind is an error that names it

   The latter have scores in the place of merges. In tokenizer.json, where SentencePiece's scores
   were turned into merges, they are minus the rank of the first merge that makes the token. */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "gguf_write.h"
#include "sentencepiece.h"
#include "steps.h"
#include "../json/json.h"

enum { TOK_MAX = 1 << 20, TOK_ENDS = 4 };       /* TOK_ENDS: as many as the library takes */

typedef struct tok_kind {
    const char *model, *pre;           /* tokenizer.ggml.model, .pre */
    const char *scores;                /* tokenizer.ggml.scores are "zeros", "ranks", or those of
                                          the "model"; 0: none */
    int looks;                         /* 1: an added token that looks like <x> or [x] is a control
                                          token, even if the file does not call it special */
    int add_bos;                       /* where the files do not say */
    int whole;                         /* 1: a piece that is a token is not merged, whatever its
                                          merges make of it */
} tok_kind;

typedef struct tok {
    json j, config, generation, added; /* without nodes if the file is missing, or not needed */
    spm_model model;                   /* tokenizer.model, if it is needed */
    const tok_kind *kind;
    steps_kind steps;                  /* of tokenizer.json */
    const char **tokens, **merges;     /* [n_tokens], [n_merges]: in j's text, or in pads */
    int32_t *types;                    /* [n_tokens]: GGUF's token_type */
    float *scores;                     /* [n_tokens] */
    char (*pads)[16];                  /* [PAD123]: ids of the model that no token has */
    uint32_t n_tokens, n_merges;
    uint32_t n_beyond;                 /* added tokens beyond the model's rows: left out */
    int64_t bos, eos, pad, unk;        /* -1: none */
    int32_t end_ids[TOK_ENDS];         /* [n_end_ids]: where the files list what ends a text */
    uint32_t n_end_ids;
    int add_bos, add_eos, space_prefix;
    int says_bos;                      /* 1: the files say whether BOS is added */
    int ends;                          /* 1: tokenizer.json puts eos behind a text */
    const char *pre, *template_text;   /* template_text 0: there is no template */
    char *template_file;
    const char *notes[4];              /* [n_notes]: what the user should hear */
    uint32_t n_notes;
} tok;

/* Reads the tokenizer of a model with n_vocab rows, whose config.json is model. pre names the
   pre-tokenizer; if it is 0, the file's must be a known one. tok_free must follow even after an
   error. */
bitnet_result tok_open(tok *t, const char *dir, const json *model, uint64_t n_vocab,
                       const char *pre, bitnet_error *err);
void tok_free(tok *t);
/* Adds the keys of its arrays, with this tokenizer.ggml.pre. */
void tok_write_keys(const tok *t, const char *pre, gguf_writer *w);
/* Is it byte-level BPE? Otherwise SentencePiece's. */
int tok_is_bpe(const tok *t);
/* The first token with this text; -1: none. */
int64_t tok_find(const tok *t, const char *text);

#endif
