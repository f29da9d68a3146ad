/* input.h - the texts of a file, a pipe or the command line, as lines or as objects of JSON */
#ifndef EMBED_INPUT_H
#define EMBED_INPUT_H

#include "../server/buffer.h"
#include "model.h"
#include <stdio.h>

enum { TEXT_BYTES = 4 << 20 };         /* longer texts are refused: tokenizing takes 80 times it */

typedef struct input {
    const settings *s;
    FILE *f;                           /* 0: what -p says */
    const char *at, *end;              /* what is left of it */
    const char *name;
    const char *separator;
    buffer piece;                      /* between two separators */
    uint64_t line, n_empty;
    int too_long, has_begun, ended;
} input;

/* Returns an exit code. input_close must follow. */
int input_open(input *in, const settings *s);
void input_close(input *in);

/* Reads up to BATCH texts; after the last one *n is 0. A text that is not valid has an error. Lines
   of white space are counted and passed over. Returns an exit code. */
int input_read(input *in, text *texts, int32_t *n);

#endif
