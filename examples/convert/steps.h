/* steps.h - the steps of tokenizer.json, each of which is known or refused

   Hugging Face's tokenizers run a normalizer, a pre_tokenizer, a model, a post_processor and a
   decoder, each of them one step or a Sequence of steps. GGUF has a name for the whole. So the
   steps must be those of a tokenizer that bitnet.h has, field by field; a step or a field that is
   not known is refused with its path and its value, because it could change the tokens. Truncation
   and padding are not read: transformers switches both off unless it is asked for them. */
#ifndef STEPS_H
#define STEPS_H

#include "../json/json.h"

/* Tokenizers of byte-level BPE, then those with byte fallback. */
typedef enum steps_kind {
    STEPS_LLAMA3, STEPS_QWEN, STEPS_QWEN35, STEPS_FALCON_E, STEPS_GEMMA, STEPS_LLAMA2
} steps_kind;

/* Whose steps tokenizer.json has. With named, the user has said that normalizer and pre_tokenizer
   are known, and *kind is what the caller sets. */
bitnet_result steps_check(const json *j, int named, steps_kind *kind, bitnet_error *err);
/* Checks the flags of an added token, which is at path. */
bitnet_result steps_check_added(const json *j, uint32_t token, const char *path, steps_kind kind,
                                bitnet_error *err);
/* The array `single` of the TemplateProcessing step, which puts tokens around a text, and the
   object special_tokens beside it; 0: there is none. */
uint32_t steps_find_frame(const json *j, uint32_t *specials);

#endif
