/* check.h - what is said of a whole file: which tensors are zero, and does the library load it? */
#ifndef CONVERT_CHECK_H
#define CONVERT_CHECK_H

#include "input.h"

/* Names the tensors of which all numbers are zero: say or warn gets one line, or none. A file that
   was cut off or not filled before it was converted looks like that. The packing is that of its
   ternary weights; those whose tile is unknown are passed over. */
void check_zeros(const bitnet_gguf *g, const packing *p, void (*tell)(const char *format, ...));
/* BITNET_OK if the library loads the file; else err has why not. */
bitnet_result check_load(const char *path, const packing *p, bitnet_error *err);
/* Fails unless the library loads the file, which out is to become; hint follows the library's
   words. loads 0: only zeros are named. */
void check_output(const char *path, const char *out, const packing *p, int loads,
                  const char *hint);

#endif
