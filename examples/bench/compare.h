/* compare.h - another program's benchmark in turns with the same tests of ours; see bench.c */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include "../../bitnet.h"

/* In each round: the limits, the command, and the tests that it has named. Each of its runs may
   take limit_s seconds. */
void compare(const char *command, int limit_s, const bitnet_model *m, const bitnet_kernels *k,
             int n_threads, int rounds);
void report_comparison(void);

#endif
