/* tokenizer.h - tokenizer.json and tokenizer_config.json as GGUF's arrays: byte-level BPE with
   LLaMA 3's pre-tokenizer; any other kind is an error that names it */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "../json/json.h"

enum { TOK_MAX = 1 << 20 };

typedef struct tok {
    json j, config;                    /* config has no nodes if the file is missing */
    const char **tokens, **merges;     /* [n_tokens], [n_merges]: in j's text, or in pads */
    int32_t *types;                    /* [n_tokens]: GGUF's token_type */
    char (*pads)[16];                  /* [PAD123]: ids of the model that no token has */
    uint32_t n_tokens, n_merges;
    int64_t bos, eos, pad;             /* -1: none */
    int add_bos;
    const char *pre, *template_text;   /* template_text 0: there is no template */
    char *template_file;
} tok;

/* Reads the tokenizer of a model with n_vocab rows, whose config.json is model. pre names the
   pre-tokenizer; if it is 0, the file's must be a known one. tok_free must follow even after an
   error. */
bitnet_result tok_open(tok *t, const char *dir, const json *model, uint64_t n_vocab,
                       const char *pre, bitnet_error *err);
void tok_free(tok *t);

#endif
