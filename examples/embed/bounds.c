#include "bounds.h"
#include "npy.h"
#include "say.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int32_t bounds_width(int32_t dim) { return (dim + 63) / 64 * 64; }

/* A float that is at least x >= 0. */
static float rounded_up(double x) {
    return (float)(x * (1.0 + 1e-6) + 1e-12);
}

int bounds_row(const uint8_t *row, int32_t dim, uint8_t *codes, float *a, float *r) {
    double sum = 0.0, top = 0.0, norm, inverse, residual = 0.0;
    int32_t i;
    for (i = 0; i < dim; i++) {
        const double w = (double)npy_float(row + 4 * (size_t)i), magnitude = fabs(w);
        sum += w * w;                  /* of floats: neither overflow nor 0 by underflow */
        top = magnitude > top ? magnitude : top;
    }
    for (i = 0; i < bounds_width(dim); i++) codes[i] = 128;
    *a = *r = 0.0f;
    if (!(sum <= DBL_MAX)) return 0;
    if (sum == 0.0) return 1;
    norm = sqrt(sum);
    *a = (float)(top / norm / 127.0);
    inverse = 1.0 / (double)*a / norm;
    for (i = 0; i < dim; i++) {
        const double w = (double)npy_float(row + 4 * (size_t)i);
        const double level = floor(w * inverse + 0.5);
        const double h = level > 127.0 ? 127.0 : level < -127.0 ? -127.0 : level;
        const double e = w / norm - (double)*a * h;
        codes[i] = (uint8_t)(128 + (int)h);
        residual += e * e;
    }
    *r = rounded_up(sqrt(residual));
    return 1;
}

/* ---- the file of copies ---- */

/* Writes the codes of all rows, and keeps a and r in floats [2][rows]. */
static int write_codes(written *to, const npy_array *from, const char *name, uint8_t *codes,
                       uint8_t *floats, uint64_t *mark) {
    const int32_t dim = (int32_t)from->cols;
    uint64_t i;
    for (*mark = i = 0; i < from->rows; i++) {
        const uint8_t *row = from->data + i * 4 * from->cols;
        float a, r;
        *mark = npy_hash(*mark, row, 4 * (size_t)dim);
        if (!bounds_row(row, dim, codes, &a, &r))
            return fail(FAILED, "%s: row %llu has a NaN or an infinity", name,
                        (unsigned long long)i);
        npy_put_float(floats + 4 * i, a);
        npy_put_float(floats + 4 * (from->rows + i), r);
        fwrite(codes, 1, (size_t)bounds_width(dim), to->f);
        if (i % 1024 == 0) {
            const int code = file_check(to);
            if (code != DONE) return code;
            progress("int8 copies: %llu of %llu rows", (unsigned long long)i,
                     (unsigned long long)from->rows);
        }
    }
    return DONE;
}

static int write_all(written *to, const npy_array *from, const char *name, uint64_t *mark) {
    const uint64_t width = (uint64_t)bounds_width((int32_t)from->cols);
    char header[NPY_HEADER];
    uint8_t end[NPY_MARK];
    uint8_t *codes = (uint8_t *)malloc((size_t)width);
    uint8_t *floats = (uint8_t *)calloc((size_t)from->rows, 8);
    int code;
    npy_header(header, "|u1", from->rows, width);
    fwrite(header, 1, sizeof header, to->f);
    if (codes && floats) {
        code = write_codes(to, from, name, codes, floats, mark);
        npy_header(header, "<f4", 2, from->rows);
        fwrite(header, 1, sizeof header, to->f);
        fwrite(floats, 1, (size_t)(8 * from->rows), to->f);
        npy_put_mark(end, *mark);
        fwrite(end, 1, sizeof end, to->f);
    } else code = fail(FAILED, "there is no memory");
    free(codes);
    free(floats);
    return code == DONE ? file_end(to) : code;
}

int bounds_write(written *to, const char *path) {
    mapped m;
    npy_array from;
    uint64_t mark = 0, own;
    const int wrong = file_map(&m, path);
    const char *what = wrong ? strerror(wrong) : npy_read(&from, m.p, m.size, "<f4");
    int code;
    if (what) code = fail(FAILED, "%s: %s", path, what);
    else if (from.cols > BOUNDS_MAX_DIM || from.rows == 0)
        code = fail(FAILED, "%s: 1 to %d columns and some rows are needed", path,
                    (int)BOUNDS_MAX_DIM);
    else code = write_all(to, &from, path, &mark);
    if (code == DONE && npy_read_mark(m.p + from.end, m.size - from.end, &own) && own != mark)
        code = fail(FAILED, "%s: it is damaged: its rows are not those that were written", path);
    file_unmap(&m);
    return code;
}

/* ---- queries ---- */

const char *query_split(query *q, const float *x, int32_t dim) {
    const int32_t width = bounds_width(dim);
    double sum = 0.0, top = 0.0, b, rest = 0.0;
    int32_t i;
    memset(q, 0, sizeof *q);
    q->x = x;
    q->dim = dim;
    q->uv = (int16_t *)calloc(2, (size_t)width * sizeof *q->uv);
    if (!q->uv) return "there is no memory";
    for (i = 0; i < dim; i++) {
        const double magnitude = fabs((double)x[i]);
        sum += magnitude * magnitude;
        top = magnitude > top ? magnitude : top;
    }
    if (!(sum <= DBL_MAX)) return "it has a NaN or an infinity";
    if (sum == 0.0) return "it is all zeros";
    q->norm = sqrt(sum);
    b = top / 8192.0;
    for (i = 0; i < dim; i++) {
        const int n = (int)floor((double)x[i] / b + 0.5);      /* -8192 .. 8192 */
        const int u = (n + 64 + 128 * 128) / 128 - 128;        /* floor((n + 64) / 128) */
        const double f = (double)x[i] - b * (double)n;
        q->uv[i] = (int16_t)u;
        q->uv[width + i] = (int16_t)(n - 128 * u);
        rest += f * f;
    }
    q->scale = b / q->norm;
    q->rest = sqrt(rest) / q->norm;
    return 0;
}

void query_free(query *q) {
    free(q->uv);
    memset(q, 0, sizeof *q);
}
