/* output.h - vectors in the forms of --format, a row after the other */
#ifndef EMBED_OUTPUT_H
#define EMBED_OUTPUT_H

#include "../server/buffer.h"
#include "file.h"
#include "model.h"

typedef struct output {
    const settings *s;
    written to;
    int32_t dim;
    uint64_t rows;
    buffer row;                        /* the text of a row */
    uint8_t *bytes;                    /* [4 * dim] of a row */
} output;

/* These return exit codes and say what failed. output_free must follow, even after an error. */
int output_open(output *o, const settings *s, int32_t dim);
/* Adds n texts with their vectors [n][dim]. A text with an error gives a row of NaN, with --bits of
   zero bytes; in JSON it has the error in place of the vector. */
int output_add(output *o, const text *texts, int32_t n, const float *vectors);
int output_end(output *o);
void output_free(output *o);

#endif
