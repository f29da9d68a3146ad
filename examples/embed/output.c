#define _DEFAULT_SOURCE 1              /* isatty, also with -std=c99 */
#include "output.h"
#include "bits.h"
#include "npy.h"
#include "say.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t row_bytes(const output *o) {
    return o->s->bits ? bits_bytes(o->dim, (int)o->s->bits) : 4 * (size_t)o->dim;
}

static const char *npy_type(const output *o) {
    return !o->s->bits ? "<f4" : o->s->bits == 8 ? "|i1" : "|u1";
}

static void put_header(const output *o, char header[NPY_HEADER]) {
    npy_header(header, npy_type(o), o->rows, row_bytes(o));
    if (!o->s->bits) npy_header(header, npy_type(o), o->rows, (uint64_t)o->dim);
}

int output_open(output *o, const settings *s, int32_t dim) {
    const int is_binary = s->format == FORMAT_NPY || s->format == FORMAT_RAW;
    char header[NPY_HEADER];
    int code;
    memset(o, 0, sizeof *o);
    o->s = s;
    o->dim = dim;
    o->bytes = (uint8_t *)malloc(4 * (size_t)dim);
    if (!o->bytes) return fail(FAILED, "there is no memory");
    if (file_is_same(s->output, s->model)) return fail(USAGE, "-o %s: it is the model", s->output);
    if (file_is_same(s->output, s->file))
        return fail(USAGE, "-o %s: it is the input", s->output);
    if ((code = file_create(&o->to, s->output, 1)) != DONE) return code;
    if (is_binary && !s->output && isatty(1))
        return fail(USAGE, "--format npy and raw are no text: -o FILE, or > FILE");
    if (s->format == FORMAT_NPY && !file_can_seek(&o->to))
        return fail(USAGE, "--format npy has the number of rows in front, so it needs a file that "
                    "can be written twice: -o FILE, or > FILE");
    put_header(o, header);
    if (s->format == FORMAT_NPY) fwrite(header, 1, sizeof header, o->to.f);
    if (s->format == FORMAT_JSON) fputs("{\"object\":\"list\",\"data\":[", o->to.f);
    if (s->format == FORMAT_ARRAY) fputs("[", o->to.f);
    return file_check(&o->to);
}

/* Numbers from which the same floats can be read. */
static void add_numbers(buffer *b, const float *x, int32_t n, const char *between) {
    char number[32];
    int32_t i;
    for (i = 0; i < n; i++) {
        const int size = snprintf(number, sizeof number, "%s%.9g", i ? between : "", (double)x[i]);
        buffer_add(b, number, (size_t)size);
    }
}

/* {"object":"embedding","index":0,"id":...,"embedding":[...]} */
static void add_object(const output *o, buffer *b, const text *t, const float *x) {
    buffer_format(b, "{\"object\":\"%s\",\"index\":%llu", t->error[0] ? "error" : "embedding",
                  (unsigned long long)o->rows);
    if (t->id) buffer_text(b, ",\"id\":"), buffer_text(b, t->id);
    if (t->error[0]) {
        buffer_text(b, ",\"error\":");
        buffer_json(b, t->error, strlen(t->error));
    } else {
        buffer_text(b, ",\"embedding\":[");
        add_numbers(b, x, o->dim, ",");
        buffer_text(b, "]");
    }
    buffer_text(b, "}");
}

/* The id is the first field, in quotes, with each quote of its own doubled. */
static void add_csv(const output *o, buffer *b, const text *t, const float *x) {
    const char *p = t->id ? t->id : "";
    if (o->s->jsonl) {
        buffer_text(b, "\"");
        for (; *p; p++) buffer_add(b, *p == '"' ? "\"\"" : p, *p == '"' ? 2 : 1);
        buffer_text(b, "\",");
    }
    add_numbers(b, x, o->dim, ",");
    buffer_text(b, "\n");
}

static void add_array(const output *o, buffer *b, const text *t, const float *x) {
    if (o->rows) buffer_text(b, ",\n");
    if (t->error[0]) buffer_text(b, "null");
    else {
        buffer_text(b, "[");
        add_numbers(b, x, o->dim, ",");
        buffer_text(b, "]");
    }
}

/* The bytes of a vector; a packed one that is not finite is all zeros. */
static void add_bytes(output *o, const float *x) {
    int32_t i;
    memset(o->bytes, 0, row_bytes(o));
    if (o->s->bits) bits_pack(x, o->dim, (int)o->s->bits, o->bytes);
    else for (i = 0; i < o->dim; i++) npy_put_float(o->bytes + 4 * (size_t)i, x[i]);
    buffer_add(&o->row, (const char *)o->bytes, row_bytes(o));
}

static void add_row(output *o, const text *t, const float *x) {
    buffer *b = &o->row;
    b->n = 0;
    switch (o->s->format) {
        case FORMAT_JSON:
            buffer_text(b, o->rows ? ",\n" : "\n");
            add_object(o, b, t, x);
            break;
        case FORMAT_JSONL:
            add_object(o, b, t, x);
            buffer_text(b, "\n");
            break;
        case FORMAT_ARRAY: add_array(o, b, t, x); break;
        case FORMAT_CSV: add_csv(o, b, t, x); break;
        case FORMAT_TEXT:
            add_numbers(b, x, o->dim, " ");
            buffer_text(b, "\n");
            break;
        case FORMAT_NPY:
        case FORMAT_RAW: add_bytes(o, x); break;
    }
    o->rows++;
}

int output_add(output *o, const text *texts, int32_t n, const float *vectors) {
    int32_t i;
    for (i = 0; i < n; i++) {
        add_row(o, &texts[i], vectors + (size_t)i * (size_t)o->dim);
        if (o->row.failed) return fail(FAILED, "there is no memory");
        fwrite(o->row.p, 1, o->row.n, o->to.f);
    }
    return file_check(&o->to);
}

int output_end(output *o) {
    char header[NPY_HEADER];
    int code = DONE;
    put_header(o, header);
    if (o->s->format == FORMAT_NPY) code = file_replace_start(&o->to, header, sizeof header);
    if (o->s->format == FORMAT_JSON) fputs("\n]}\n", o->to.f);
    if (o->s->format == FORMAT_ARRAY) fputs("]\n", o->to.f);
    if (code == DONE) code = file_end(&o->to);
    return code == DONE ? file_name(&o->to) : code;
}

void output_free(output *o) {
    written_free(&o->to);
    buffer_free(&o->row);
    free(o->bytes);
}
