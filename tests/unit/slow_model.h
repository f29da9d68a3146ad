/* The parts of a second forward pass, in double, straight from FORMATS.md. */
#ifndef SLOW_MODEL_H
#define SLOW_MODEL_H

#include "gguf_builder.h"

typedef struct slow {
    const gb_model *m;
    int hd, n_rot, n;                  /* head size, rotated dimensions, tokens */
    double eps, theta;
    double *keys, *values;             /* [layer][n][kv_heads * hd] */
} slow;

static inline void slow_norm(const slow *s, const double *x, const float *gain, int n, double *y) {
    double sum = 0, inv;
    int i;
    for (i = 0; i < n; i++) sum += x[i] * x[i];
    inv = 1.0 / sqrt(sum / n + s->eps);
    for (i = 0; i < n; i++) y[i] = x[i] * inv * (double)gain[i];
}

/* y = bitlinear(l, x), each group by itself if it has groups; quantizing is float, as in every
   engine, the rest double. */
static inline void slow_linear(const gb_linear *l, const double *x, double *y) {
    const int group = l->group ? l->group : l->n_in;
    int *q = (int *)gb_malloc((size_t)group * sizeof *q);
    int from, i, r;
    for (r = 0; r < l->n_out; r++) y[r] = 0;
    for (from = 0; from < l->n_in; from += group, x += group) {
        float a = 1e-5f;
        for (i = 0; i < group; i++) if (fabsf((float)x[i]) > a) a = fabsf((float)x[i]);
        for (i = 0; i < group; i++) q[i] = (int)rintf((float)x[i] * (127.0f / a));
        for (r = 0; r < l->n_out; r++) {
            const size_t at = (size_t)r * (size_t)l->n_in + (size_t)from;
            const float d = l->group ? l->scales[at / (size_t)group] : l->scale;
            long dot = 0;
            for (i = 0; i < group; i++) dot += q[i] * l->w[at + (size_t)i];
            y[r] += (double)dot * (double)a / 127.0 * (double)d;
        }
    }
    free(q);
}

/* o = attention of one query head at position pos on the keys and values of KV head g. */
static inline void slow_attention(const slow *s, int layer, const double *q, int g, int pos,
                                  double *o) {
    size_t kv_dim = (size_t)(s->m->kv_heads * s->hd), first = (size_t)layer * (size_t)s->n;
    double *p = (double *)gb_malloc((size_t)(pos + 1) * sizeof *p), top = -1e300, sum = 0;
    int t, i;
    for (t = 0; t <= pos; t++) {
        const double *k = s->keys + (first + (size_t)t) * kv_dim + (size_t)(g * s->hd);
        for (i = 0, p[t] = 0; i < s->hd; i++) p[t] += q[i] * k[i];
        p[t] /= sqrt((double)s->hd);
        if (p[t] > top) top = p[t];
    }
    for (t = 0; t <= pos; t++) sum += p[t] = exp(p[t] - top);
    for (i = 0; i < s->hd; i++)
        for (t = 0, o[i] = 0; t <= pos; t++)
            o[i] += p[t] / sum * s->values[(first + (size_t)t) * kv_dim + (size_t)(g * s->hd + i)];
    free(p);
}

#endif
