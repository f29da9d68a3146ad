/* text.h - the tokens of the text */
#ifndef PERPLEXITY_TEXT_H
#define PERPLEXITY_TEXT_H

#include "options.h"

typedef struct text {
    bitnet_token *tokens;              /* [n], with BOS in front if the model wants it */
    int32_t n;
    const char *name;                  /* of the file */
} text;

/* Reads and tokenizes -f or -p. Special tokens in the text are plain text. Returns an exit code and
   says what failed. text_free must follow, even after an error. */
int text_read(text *t, const bitnet_model *model, const settings *s);
void text_free(text *t);

#endif
