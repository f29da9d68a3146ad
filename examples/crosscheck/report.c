#include "report.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fail(int code, const char *format, ...) {
    va_list args;
    fputs("crosscheck: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(code);
}

/* ---- values ---- */

void *grow(void *p, size_t bytes) {
    p = realloc(p, bytes);
    if (!p) fail(1, "out of memory");
    return p;
}

void put(values *out, char type, uint32_t bits) {
    if (out->n == out->room) {
        out->room = 2 * out->room + 1024;
        out->v = (value *)grow(out->v, out->room * sizeof *out->v);
    }
    out->v[out->n].type = type;
    out->v[out->n++].bits = bits;
}

void put_ints(values *out, const int32_t *x, size_t n) {
    size_t i;
    for (i = 0; i < n; i++) put(out, 'i', (uint32_t)x[i]);
}

uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

void put_floats(values *out, const float *x, size_t n) {
    size_t i;
    for (i = 0; i < n; i++) put(out, 'f', float_bits(x[i]));
}

static int type_bytes(char type) { return type == 'b' ? 1 : type == 'h' ? 2 : 4; }

uint64_t hash_bits(uint64_t h, uint32_t bits, int n_bytes) {
    for (; n_bytes > 0; n_bytes--, bits >>= 8) h = (h ^ (bits & 255)) * 0x100000001b3u;
    return h;
}

/* The value of an F16; 65536 for infinity. */
static double half_value(uint32_t h) {
    int e = (int)(h >> 10 & 31);
    double v = (double)(h & 1023) + (e ? 1024 : 0);
    for (e = e ? e - 25 : -24; e < 0; e++) v /= 2;
    for (; e > 0; e--) v *= 2;
    return h & 0x8000 ? -v : v;
}

const char *show_value(char type, uint32_t bits) {
    static char buffers[4][64];
    static int turn;
    char *s = buffers[turn = (turn + 1) % 4];
    float f;
    int32_t i;
    memcpy(&f, &bits, sizeof f);
    memcpy(&i, &bits, sizeof i);
    if (type == 'b') i = bits & 128 ? (int32_t)(bits & 255) - 256 : (int32_t)(bits & 255);
    if (type == 'f' || type == 'h')
        snprintf(s, sizeof buffers[0], "%.9g (0x%0*lx)", type == 'f' ? (double)f : half_value(bits),
                 2 * type_bytes(type), (unsigned long)bits);
    else snprintf(s, sizeof buffers[0], "%ld", (long)i);
    return s;
}

size_t first_difference(const values *a, const values *b) {
    size_t i;
    for (i = 0; i < a->n && i < b->n; i++)
        if (a->v[i].type != b->v[i].type || a->v[i].bits != b->v[i].bits) break;
    return i;
}

/* ---- writing ---- */

int leave_values_out;
unsigned long n_lines;

void write_hash(const char *what, const char *table, const char *types, uint64_t h) {
    printf("%s | %s | %s %08lx%08lx", what, table, types, (unsigned long)(h >> 32),
           (unsigned long)(h & 0xffffffff));
    n_lines++;
}

void write_line(const char *what, const char *table, const values *v) {
    char types[128] = "";
    uint64_t h = HASH_START;
    size_t i, since = 0;
    for (i = 0; i < v->n; i++) {
        h = hash_bits(h, v->v[i].bits, type_bytes(v->v[i].type));
        if (i + 1 < v->n && v->v[i + 1].type == v->v[i].type) continue;
        snprintf(types + strlen(types), sizeof types - strlen(types), "%c%lu", v->v[i].type,
                 (unsigned long)(i + 1 - since));
        since = i + 1;
    }
    write_hash(what, table, types, h);
    if (!leave_values_out) fputs(" |", stdout);
    for (i = 0; i < v->n && !leave_values_out; i++)
        printf(" %0*lx", 2 * type_bytes(v->v[i].type), (unsigned long)v->v[i].bits);
    putchar('\n');
}
