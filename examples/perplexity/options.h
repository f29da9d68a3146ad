/* options.h - what the command line asks for */
#ifndef PERPLEXITY_OPTIONS_H
#define PERPLEXITY_OPTIONS_H

#include "../../bitnet.h"


/* Texts that were not given are 0. */
typedef struct settings {
    const char *model, *file, *prompt, *base, *kernel;
    bitnet_kv_type kv_type;
    long n_ctx;                        /* 0: not given */
    long n_batch, n_ubatch, n_threads;
    long n_chunks;                     /* -1: all */
    long stride;                       /* 0: chunks do not overlap */
    long output_type;
    int compare;                       /* 1: --kl-divergence */
} settings;

/* Fills s. Returns 0 to go on, or an exit code + 1: after --help or an error. */
int settings_read(int argc, char **argv, settings *s);

#endif
