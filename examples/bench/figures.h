/* figures.h - finds in what another program has printed how fast it read and wrote text

   A test has the name that llama-bench gives it: "pp512" is reading a prompt of 512 tokens, "tg128"
   writing 128, "pp512+tg128" one after the other; "tg128 @ d4096" is behind 4096 tokens that were
   read before. A speed is the test's tokens per second. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

enum { MAX_FIGURES = 64, MAX_FORMS = 8 };

typedef struct figure {
    int n_prompt, n_gen, n_depth;
    int n_threads;                     /* 0: it does not say */
    double tok_s;
} figure;

/* Keeps a form: a part of a line with placeholders for speeds, as in "prompt: {pp512} tokens/s".
   A * stands for any text, a blank for one or more. Fails if the form is a bad one. form must
   stay. Returns 1. */
int add_form(const char *form);
/* Reads the figures in a text, which it changes for a while: those of the forms, if there are
   some, in the last line that fits each; else those of llama-bench's json, jsonl, csv or md.
   Returns how many; never 0, for it fails if there are none. */
int read_figures(char *text, figure out[MAX_FIGURES]);
void figure_name(const figure *f, char name[64]);

#endif
