/* bounds.h - int8 copies of vectors, which bound every cosine

   A row w of floats becomes w / |w| = a h + e: h are 8-bit integers, a is a scale, e the residual
   with r = |e|. A query x becomes b (128 u + v) + f, with u and v in [-64, 64]. Then

       cosine = (w / |w|) . (x / |x|) = a b (128 h.u + h.v) / |x| + (a h.f + e.x) / |x|

   The first part is computed from exact integers. By Cauchy-Schwarz the second is at most
   ((1 + r) |f| + r |x|) / |x|, since |a h| <= 1 + r. All is computed in doubles, whose rounding the
   slack of 1e-9 covers many times. For vectors of 1024 normal numbers the bounds are 0.015 apart.

   NAME.i8.npy holds three arrays: h + 128 as bytes [rows][width], where width is dim rounded up to
   64 and the rest of a row is 128, for 0; then floats [2][rows], first a, then r; then the mark of
   the rows (npy.h). */
#ifndef EMBED_BOUNDS_H
#define EMBED_BOUNDS_H

#include "../../bitnet.h"
#include "file.h"

enum { BOUNDS_MAX_DIM = 65536 };       /* see dot_row in search.c */

int32_t bounds_width(int32_t dim);

/* Makes the copy of a row of little-endian floats: codes [width], a and r. Returns 0 if the row is
   not finite. A row of zeros has a = r = 0. */
int bounds_row(const uint8_t *row, int32_t dim, uint8_t *codes, float *a, float *r);

/* Writes the copy of the rows in the file at path to a file that was created, and ends that.
   file_name is left to the caller. Returns an exit code. */
int bounds_write(written *to, const char *path);

typedef struct query {
    const float *x;                    /* [dim] */
    int32_t dim;
    int16_t *uv;                       /* [2][width] */
    double norm;                       /* |x| */
    double scale, rest;                /* b / |x| and |f| / |x| */
} query;

/* Splits x [dim], which must live as long as q. Returns 0, or what is wrong. query_free follows. */
const char *query_split(query *q, const float *x, int32_t dim);
void query_free(query *q);

/* From h.u and h.v: the middle of the bounds, and how far both are from it. */
static inline double bounds_middle(const query *q, double a, int32_t hu, int32_t hv) {
    return a * q->scale * (128.0 * (double)hu + (double)hv);
}
static inline double bounds_distance(const query *q, double r) {
    return (1.0 + r) * q->rest + r + 1e-9;
}

#endif
