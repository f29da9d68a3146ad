/* npy.h - arrays in NumPy's .npy form: a header, then rows of numbers

       \x93NUMPY  1 0  length  {'descr': '<f4', 'fortran_order': False, 'shape': (3, 256), }

   Files may be hostile. Several arrays may follow each other in a file; numpy.load reads one after
   the other from an open file. */
#ifndef EMBED_NPY_H
#define EMBED_NPY_H

#include <stddef.h>
#include <stdint.h>

enum { NPY_HEADER = 128 };             /* bytes of a header that is written here */

typedef struct npy_array {
    const uint8_t *data;               /* [rows][cols] */
    uint64_t rows, cols;               /* an array of one dimension is a row */
    char type[8];                      /* '<f4', '|i1', '|u1' ... */
    size_t end;                        /* where the array ends in the bytes that were read */
} npy_array;

/* Reads the array that begins at p [size] and has elements of this type. Returns 0, or what is
   wrong. */
const char *npy_read(npy_array *a, const uint8_t *p, size_t size, const char *type);

/* Writes a header. */
void npy_header(char out[NPY_HEADER], const char *type, uint64_t rows, uint64_t cols);

/* A file of rows, and that of their copies, may end with a mark: an array of 8 bytes, a hash of the
   rows. Files of one index have the same. Writes it into out. */
enum { NPY_MARK = NPY_HEADER + 8 };
void npy_put_mark(uint8_t out[NPY_MARK], uint64_t mark);
/* Is there a mark at p [size], and nothing behind it? */
int npy_read_mark(const uint8_t *p, size_t size, uint64_t *mark);

/* Adds p [n] to a hash, which begins with 0. It is the same on any machine. */
uint64_t npy_hash(uint64_t hash, const void *p, size_t n);

/* Little-endian floats on any machine. */
float npy_float(const uint8_t *p);
void npy_put_float(uint8_t *p, float x);

#endif
