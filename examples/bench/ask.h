/* ask.h - --ask, for tests/web/bench.mjs and other programs, measures on demand, so that this
   program can take turns with others: it prints a line with the names of the usable kernels, then
   answers each line "KERNEL THREADS" on stdin with one line: the tokens per second of a prompt of
   128 tokens, and of the 32 tokens written after it; of a model of embeddings, those of a text of
   128 tokens and of one of 512. */
#ifndef BENCH_ASK_H
#define BENCH_ASK_H

void answer_questions(void);

#endif
