/* ask.h - options for tests/web/bench.mjs and other programs. --save writes the model to a file,
   the random one or, as they are, MODEL's bytes, and says on stderr how many MB they are. Nothing
   is measured then, except with --ask, of the same model.

   --ask measures on demand, so that this program can take turns with others: it prints a line with
   the names of the usable kernels, then answers each line "KERNEL THREADS" on stdin with one line:
   the tokens per second of a prompt of 128 tokens, and of the 32 tokens written after it; of a
   model of embeddings, those of a text of 128 tokens and of one of 512. */
#ifndef BENCH_ASK_H
#define BENCH_ASK_H

void save_file(const char *path);
void answer_questions(void);

#endif
