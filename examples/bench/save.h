/* save.h - --save writes the model to a file, the random one or, as they are, MODEL's bytes, and
   says on stderr how many MB they are. Nothing is measured then, except with --ask.

   The file is PATH.PID-N.part until it is complete. What is no file, such as a pipe, is written to
   as it is. */
#ifndef BENCH_SAVE_H
#define BENCH_SAVE_H

/* model: the file of the model, which may not be the same; 0: it is a random one. */
void save_file(const char *path, const char *model);

#endif
