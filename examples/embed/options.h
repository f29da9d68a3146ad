/* options.h - what the command line asks for */
#ifndef EMBED_OPTIONS_H
#define EMBED_OPTIONS_H

#include "../../bitnet.h"

typedef enum command { EMBED = 1, INDEX = 2, SEARCH = 4 } command;

typedef enum format {
    FORMAT_JSON,                       /* OpenAI's, one document */
    FORMAT_JSONL,                      /* an object in each line */
    FORMAT_ARRAY,                      /* llama-embedding's: [[...],[...]] */
    FORMAT_CSV,
    FORMAT_TEXT,                       /* llama-embedding's raw: numbers with blanks between */
    FORMAT_NPY,
    FORMAT_RAW                         /* little-endian floats or packed vectors */
} format;

/* Texts that were not given are 0. */
typedef struct settings {
    command command;
    const char *words[2];              /* what is no option */
    int n_words;
    const char *model, *prompt, *file, *tokens, *task, *output, *separator, *vector;
    format format;
    bitnet_pooling pooling;
    bitnet_kv_type kv_type;
    long n_ctx, n_batch, n_threads, n_seqs, bits, normalize, k;
    int jsonl, cut, json, all, no_special;
} settings;

/* Fills s. Returns 0 to go on, or an exit code + 1: after --help or an error. */
int settings_read(int argc, char **argv, settings *s);

#endif
