/* report.h - values, their hash and the lines of a report

       bitnet.h crosscheck 2                          version of the format and of the inputs
       note TEXT                                      shown if the other report does not have it
       WHAT | TABLE | TYPES HASH | VALUE VALUE ...
       end N                                          N lines precede this one

   TABLE is scalar, a kernel table that differs from it, or model. TYPES counts elements by type,
   such as b33i1f1: b int8, h F16, i int32, f float; products are in the order [cols][rows]. HASH is
   FNV-1a over the elements, each as its little-endian bytes. VALUE is an element's bits in hex; the
   values may be left out. */
#ifndef CROSSCHECK_REPORT_H
#define CROSSCHECK_REPORT_H

#include <stddef.h>
#include <stdint.h>

#define REPORT_HEAD "bitnet.h crosscheck "
#define REPORT_VERSION "2"

/* One line on stderr, then exit. */
#ifdef __GNUC__
__attribute__((noreturn))
#endif
void fail(int code, const char *format, ...);
/* realloc, or fail. */
void *grow(void *p, size_t bytes);

/* ---- values ---- */

typedef struct value { char type; uint32_t bits; } value;
typedef struct values { value *v; size_t n, room; } values;

void put(values *out, char type, uint32_t bits);
void put_ints(values *out, const int32_t *x, size_t n);
void put_floats(values *out, const float *x, size_t n);

uint32_t float_bits(float x);
/* A value for people: the number and its bits, in one of four buffers in turn. */
const char *show_value(char type, uint32_t bits);
/* The first index at which two lists differ; their length if they are equal. */
size_t first_difference(const values *a, const values *b);

#define HASH_START 0xcbf29ce484222325u
uint64_t hash_bits(uint64_t h, uint32_t bits, int n_bytes);

/* ---- writing ---- */

extern int leave_values_out;           /* --short */
extern unsigned long n_lines;          /* written so far */

void write_line(const char *what, const char *table, const values *v);
/* A line without values: the caller ends it. */
void write_hash(const char *what, const char *table, const char *types, uint64_t h);

/* ---- comparing ---- */

/* Prints the first difference of two reports. Returns the program's exit code. */
int compare_reports(const char *path_a, const char *path_b);

#endif
