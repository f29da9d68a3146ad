/* bits.h - vectors in fewer bits, which models of embeddings are trained to survive

       bits    bytes of n    of 1024    element x becomes
       8       n             1024       round(x (127 / max|x|)), halves to even, as int8
       4       n / 2         512        u = 2 floor(x / (0.3352 r)) + 1, within -15 .. 15
       2       n / 4         256        u = 2 floor(x / (0.9957 r)) + 1, within -3 .. 3
       1       n / 8         128        u = 1 for x >= 0, else -1

   r is the root of the mean square of x; the steps are those of the best uniform quantizer of a
   Gaussian (Max 1960). Of u, (u + 2^bits - 1) / 2 is stored: element i in byte i * bits / 8, from
   bit i * bits % 8 on. There is no scale: only directions can be compared, and the length of x does
   not matter. bits.c and this file need nothing else, so other programs can have them. */
#ifndef EMBED_BITS_H
#define EMBED_BITS_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of a vector of n elements, at most 2^20. 0: n is out of range, or there are no such
   bits. */
size_t bits_bytes(int32_t n, int bits);

/* Packs x [n] into out [bits_bytes]. Returns 0 if there are no such vectors, or x has a NaN or an
   infinity. */
int bits_pack(const float *x, int32_t n, int bits, void *out);

/* The cosine of the angle between two packed vectors: sum(u v) / sqrt(sum(u u) sum(v v)), with
   exact sums, so the same on every machine. 0: a vector is all zeros, or there are no such vectors.
   embed itself does not need it; programs that read its packed vectors do. */
double bits_cosine(const void *a, const void *b, int32_t n, int bits);

#endif
