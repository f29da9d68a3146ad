/* kernels.h - every entry of every usable kernel table on fixed inputs */
#ifndef CROSSCHECK_KERNELS_H
#define CROSSCHECK_KERNELS_H

#include "../../bitnet.h"

/* Reports what the scalar entries give, and what others give where it differs. Returns how many
   results differ. only: the one other table to run; 0: all. */
int check_kernels(const bitnet_kernels *only);

/* In place, by the scalar table. */
void softmax(float *p, int n);

#endif
