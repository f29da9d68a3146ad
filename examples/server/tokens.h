/* tokens.h - the texts of a request as tokens

   tokens.c owns what becomes a prompt of the engine's texts: strings, tokens that clients have made
   themselves, the prompts of completions, and the limits, checked before a text is tokenized. */
#ifndef SERVER_TOKENS_H
#define SERVER_TOKENS_H

#include "fields.h"

/* The tokens of a string, *n of them, for free; 0: refused. */
bitnet_token *tokens_of_text(reader *in, const char *name, uint32_t node, int flags, int32_t *n);
/* The same of a text that has to fit the context. */
bitnet_token *tokens_that_fit(reader *in, const char *name, uint32_t node, int flags, int32_t *n);
/* Those that the client has made itself. */
bitnet_token *tokens_of_list(reader *in, const char *name, uint32_t list, int32_t *n);

/* The fewest bytes that the tokens of a text can have together. */
size_t tokens_least_bytes(const char *p, size_t n);
/* Refuses what cannot fit: texts of so many bytes, whose tokens have at least `least`. */
int tokens_too_long(reader *in, const char *name, size_t bytes, size_t least);

/* What the model wants around a text that is not written on. */
int tokens_flags(const bitnet_model_info *info);
/* Whether special tokens that a text spells are tokens, as a flag: as in llama.cpp's server they
   are, unless parse_special is false. So programs may render a chat template themselves. */
int tokens_special(reader *in);

/* A field that is a text, tokens, or a list of texts or of lists of tokens: how many, and the first
   of them. 0: refused. */
uint32_t tokens_count_parts(reader *in, const char *name, uint32_t *at);
/* Room for n texts of each prompt. */
void tokens_make_texts(reader *in, uint32_t n_prompts);
/* tokens[n] of a prompt that the texts of this number have. */
void tokens_set_prompt(reader *in, int32_t number, bitnet_token *tokens, int32_t n);
/* The field prompt, of completions. */
void tokens_read_prompt(reader *in);

#endif
