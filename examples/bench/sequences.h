/* sequences.h - sequences that write together in one context, one token each in a pass, and a
   prompt that another one reads beside them, some tokens in each pass */
#ifndef BENCH_SEQUENCES_H
#define BENCH_SEQUENCES_H

#include "../../bitnet.h"

typedef struct writers {
    bitnet_ctx *ctx;
    int n;
    bitnet_input *inputs;              /* [n + 1]  the last is the prompt beside them */
    bitnet_token *tokens;              /* [n]      to be evaluated next */
    double head_bytes;                 /* that a pass reads of the head and its copy */
    double start;                      /* when the first pass began */
} writers;

/* A context with n writers, which begin alike and then differ, and one sequence more for the prompt
   if chunk > 0: the most tokens of it that a pass reads. */
void open_writers(writers *w, const bitnet_model *m, int n, int chunk, int n_threads,
                  void (*step_fn)(void *, const char *, int, int));
void close_writers(writers *w);
/* Each writer goes back to the beginning and writes a token in each pass, greedily. A pass also
   reads `chunk` tokens of the prompt. */
void write_together(writers *w, int passes, int chunk);

/* Read the list that follows the option a[0], and return more than 0: numbers of writers; sizes of
   the chunks in which 8 writers have a prompt beside them. */
int list_sequences(char **a);
int list_chunks(char **a);
/* What is measured without these options. */
void list_all(int quick);
void measure_sequences(const bitnet_model *m, const bitnet_kernels *k, int n_threads, int rounds);
/* lines 1: with --json each row is an object in a line of its own, and in no list. */
void report_sequences(int rounds, int lines);

#endif
