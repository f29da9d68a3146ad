/* limits.h - a clock, and the two limits of this machine: how fast its threads read memory, and how
   much the kernels' instructions multiply and accumulate in registers */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include "../../bitnet.h"

enum { MAX_THREADS = 256 };

double seconds(void);
/* GB/s with which n threads read data, at least 1 GB in all; -1 if there is too little data. */
double measure_bandwidth(int n, const uint8_t *data, size_t size);
/* GMAC/s of n threads with the instruction of these kernels; -1 if there is no probe for it. */
double measure_peak(int n, const bitnet_kernels *k);

#endif
