#include "npy.h"
#include <stdio.h>
#include <string.h>

float npy_float(const uint8_t *p) {
    const uint32_t bits = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void npy_put_float(uint8_t *p, float x) {
    uint32_t bits, i;
    memcpy(&bits, &x, sizeof bits);
    for (i = 0; i < 4; i++) p[i] = (uint8_t)(bits >> 8 * i);
}

void npy_header(char out[NPY_HEADER], const char *type, uint64_t rows, uint64_t cols) {
    int n;
    memset(out, ' ', NPY_HEADER);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = NPY_HEADER - 10;
    out[9] = 0;
    n = snprintf(out + 10, NPY_HEADER - 10,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%llu, %llu), }", type,
                 (unsigned long long)rows, (unsigned long long)cols);
    out[10 + n] = ' ';
    out[NPY_HEADER - 1] = '\n';
}

/* ---- the header, a dictionary of Python ---- */

typedef struct reader { const char *at, *end; } reader;

/* The next character that is no blank, which is not taken; 0 at the end. */
static char peek(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t')) r->at++;
    return r->at < r->end ? *r->at : (char)0;
}

static int take(reader *r, char c) {
    if (peek(r) != c) return 0;
    r->at++;
    return 1;
}

/* A string without escapes, of less than size bytes. */
static int take_string(reader *r, char *out, size_t size) {
    const char quote = peek(r);
    size_t n = 0;
    if (quote != '\'' && quote != '"') return 0;
    for (r->at++; r->at < r->end && *r->at != quote; r->at++) {
        if (n + 1 == size || *r->at == '\\') return 0;
        out[n++] = *r->at;
    }
    out[n] = 0;
    return take(r, quote);
}

static int take_word(reader *r, const char *word) {
    const size_t n = strlen(word);
    peek(r);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n)) return 0;
    r->at += n;
    return 1;
}

static int take_number(reader *r, uint64_t *out) {
    const char *from;
    peek(r);
    for (*out = 0, from = r->at; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        const uint64_t digit = (uint64_t)(*r->at - '0');
        if (*out > (UINT64_MAX - digit) / 10) return 0;
        *out = *out * 10 + digit;
    }
    return r->at > from;
}

/* (n,) or (rows, cols) */
static int take_shape(reader *r, npy_array *a) {
    a->rows = 1;
    if (!take(r, '(') || !take_number(r, &a->cols) || !take(r, ',')) return 0;
    if (take(r, ')')) return 1;
    a->rows = a->cols;
    if (!take_number(r, &a->cols)) return 0;
    take(r, ',');
    return take(r, ')');
}

/* Reads the dictionary. Each key comes once, in any order. */
static const char *read_header(npy_array *a, reader *r) {
    char key[16];
    int seen_type = 0, seen_order = 0, seen_shape = 0;
    if (!take(r, '{')) return "its header is no dictionary";
    while (!take(r, '}')) {
        if (!take_string(r, key, sizeof key) || !take(r, ':')) return "its header is damaged";
        if (!strcmp(key, "descr")) {
            if (seen_type++ || !take_string(r, a->type, sizeof a->type))
                return "the type of its elements is not supported";
        } else if (!strcmp(key, "fortran_order")) {
            if (take_word(r, "True")) return "it is in Fortran's order";
            if (seen_order++ || !take_word(r, "False")) return "its header is damaged";
        } else if (!strcmp(key, "shape")) {
            if (seen_shape++ || !take_shape(r, a)) return "its shape is not (rows, columns)";
        } else return "its header has an unknown key";
        if (!take(r, ',') && peek(r) != '}') return "its header is damaged";
    }
    return seen_type && seen_order && seen_shape ? 0 : "its header lacks a key";
}

const char *npy_read(npy_array *a, const uint8_t *p, size_t size, const char *type) {
    size_t start = 10, length, width;
    const char *wrong;
    reader r;
    memset(a, 0, sizeof *a);
    if (size < 12 || memcmp(p, "\x93NUMPY", 6)) return "this is no .npy file";
    if (p[6] < 1 || p[6] > 3) return "its version is unknown";
    length = p[8] | (size_t)p[9] << 8;
    if (p[6] > 1) {
        length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
        start = 12;
    }
    if (length > size - start) return "it is truncated";
    r.at = (const char *)p + start;
    r.end = r.at + length;
    start += length;
    if ((wrong = read_header(a, &r)) != 0) return wrong;
    if (strcmp(a->type, type)) return "its elements are of another type";
    width = type[2] == '4' ? 4 : 1;
    if (a->cols == 0) return "its rows are empty";
    if (a->rows > (size - start) / width / a->cols) return "it is truncated";
    a->data = p + start;
    a->end = start + (size_t)(a->rows * a->cols) * width;
    return 0;
}

/* ---- marks ---- */

void npy_put_mark(uint8_t out[NPY_MARK], uint64_t mark) {
    char header[NPY_HEADER];
    int i;
    npy_header(header, "|u1", 1, 8);
    memcpy(out, header, NPY_HEADER);
    for (i = 0; i < 8; i++) out[NPY_HEADER + i] = (uint8_t)(mark >> 8 * i);
}

int npy_read_mark(const uint8_t *p, size_t size, uint64_t *mark) {
    npy_array a;
    int i;
    if (size == 0 || npy_read(&a, p, size, "|u1") || a.rows != 1 || a.cols != 8 || a.end != size)
        return 0;
    for (*mark = 0, i = 0; i < 8; i++) *mark |= (uint64_t)a.data[i] << 8 * i;
    return 1;
}

uint64_t npy_hash(uint64_t hash, const void *p, size_t n) {
    const uint8_t *bytes = (const uint8_t *)p;
    size_t i, k;
    hash += n;
    for (i = 0; i < n; i += 8) {
        uint64_t word = 0;
        for (k = 0; k < 8 && i + k < n; k++) word |= (uint64_t)bytes[i + k] << 8 * k;
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}
