#define _DEFAULT_SOURCE 1              /* clock_gettime, also with -std=c99 */
#include "search.h"
#include "../threads.h"
#include "npy.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHARE = 8192, MAX_THREADS = 256 };      /* rows that a thread takes */

/* ---- the k best hits: a heap whose first element is the worst of them ---- */

typedef struct top { hit *hits; int32_t n, k; } top;

/* Is a before b in the result? */
static int is_better(hit a, hit b) {
    return a.score > b.score || (a.score == b.score && a.row < b.row);
}

/* Puts the element at i, which may be better than those below it, in its place. */
static void sink(top *t, int32_t i) {
    const hit moved = t->hits[i];
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= t->n) break;
        if (child + 1 < t->n && is_better(t->hits[child], t->hits[child + 1])) child++;
        if (!is_better(moved, t->hits[child])) break;
        t->hits[i] = t->hits[child];
        i = child;
    }
    t->hits[i] = moved;
}

static void top_add(top *t, hit h) {
    int32_t i;
    if (t->n < t->k) {
        for (i = t->n++; i > 0 && is_better(t->hits[(i - 1) / 2], h); i = (i - 1) / 2)
            t->hits[i] = t->hits[(i - 1) / 2];
        t->hits[i] = h;
    } else if (is_better(h, t->hits[0])) {
        t->hits[0] = h;
        sink(t, 0);
    }
}

/* What a hit must reach to be among the k. */
static double top_least(const top *t) {
    return t->n < t->k ? -INFINITY : t->hits[0].score;
}

/* Sorts, the best first. */
static void top_sort(top *t) {
    const int32_t n = t->n;
    while (t->n > 1) {
        const hit worst = t->hits[0];
        t->hits[0] = t->hits[--t->n];
        sink(t, 0);
        t->hits[t->n] = worst;
    }
    t->n = n;
}

/* ---- a pass over all rows, by several threads ---- */

typedef struct pass pass;
struct pass {
    const vectors *v;
    const query *q;
    /* Rows [from, to); returns 0 to end the pass. */
    int (*work)(pass *p, uint64_t from, uint64_t to, top *mine);
    float *high;                       /* [n] upper bounds, a little widened; 0: there are none */
    double least;                      /* rows whose upper bound is under it are passed over */
    int32_t k;
    thread_lock lock;              /* of what follows */
    uint64_t next, exact, bad_row;
    const char *wrong;
    top best;
};

static void say_wrong(pass *p, const char *wrong, uint64_t row) {
    thread_take(&p->lock);
    if (!p->wrong || row < p->bad_row) p->bad_row = row;
    p->wrong = wrong;
    thread_give(&p->lock);
}

/* Takes the next rows; 0: there are no more. */
static int take_share(pass *p, uint64_t *from, uint64_t *to) {
    thread_take(&p->lock);
    *from = p->next;
    *to = p->v->n - *from > SHARE ? *from + SHARE : p->v->n;
    p->next = *to;
    thread_give(&p->lock);
    return *from < *to;
}

static THREAD_FN(run_thread, ud) {
    pass *p = (pass *)ud;
    top mine = {0, 0, 0};
    uint64_t from, to;
    int32_t i;
    mine.k = p->k;
    mine.hits = (hit *)malloc((size_t)p->k * sizeof *mine.hits);
    if (!mine.hits) say_wrong(p, "there is no memory", UINT64_MAX);
    while (mine.hits && take_share(p, &from, &to) && p->work(p, from, to, &mine)) {}
    thread_take(&p->lock);
    for (i = 0; i < mine.n; i++) top_add(&p->best, mine.hits[i]);
    thread_give(&p->lock);
    free(mine.hits);
    return 0;
}

/* Runs a pass on n threads; the calling one works, too, and alone if no other can be had. */
static void run_pass(pass *p, int n, int (*work)(pass *, uint64_t, uint64_t, top *)) {
    thread threads[MAX_THREADS];
    int i, started = 0;
    p->work = work;
    p->next = 0;
    p->best.n = 0;
    while (started < n - 1 && started < MAX_THREADS &&
           thread_start(&threads[started], run_thread, p)) started++;
    run_thread(p);
    for (i = 0; i < started; i++) thread_join(threads[i]);
}

/* ---- the two passes ---- */

/* h.u and h.v of a row. Bound: 64 products of at most 128 * 64 are under 2^20, those of a row of
   BOUNDS_MAX_DIM at most 2^29. */
static void dot_row(const uint8_t *codes, const query *q, int32_t width, int32_t *hu, int32_t *hv) {
    const int16_t *u = q->uv, *v = q->uv + width;
    int32_t i, j;
    *hu = *hv = 0;
    for (i = 0; i < width; i += 64) {
        int32_t su = 0, sv = 0;
        for (j = 0; j < 64; j++) {     /* compilers make this SIMD */
            const int16_t h = (int16_t)(codes[i + j] - 128);
            su += h * u[i + j];
            sv += h * v[i + j];
        }
        *hu += su;
        *hv += sv;
    }
}

static int bound_rows(pass *p, uint64_t from, uint64_t to, top *mine) {
    const vectors *v = p->v;
    const int32_t width = bounds_width(v->dim);
    uint64_t i;
    for (i = from; i < to; i++) {
        const double a = (double)npy_float(v->floats + 4 * i);
        const double r = (double)npy_float(v->floats + 4 * (v->n + i));
        const double distance = bounds_distance(p->q, r);
        double middle;
        hit low = {0, i};
        int32_t hu, hv;
        dot_row(v->codes + i * (uint64_t)width, p->q, width, &hu, &hv);
        middle = bounds_middle(p->q, a, hu, hv);
        low.score = middle - distance;
        p->high[i] = (float)(middle + distance + 1e-6);        /* a float is rounded */
        if (low.score >= top_least(mine)) top_add(mine, low);  /* not if it is a NaN */
    }
    return 1;
}

/* The cosine of a row, in doubles and always in the same order. NaN: the row is not finite. */
static double cosine(const uint8_t *row, const query *q) {
    double dot[4] = {0}, norm[4] = {0}, sum;
    int32_t i, j;
    for (i = 0; i + 4 <= q->dim; i += 4)
        for (j = 0; j < 4; j++) {
            const double w = (double)npy_float(row + 4 * (size_t)(i + j));
            dot[j] += w * (double)q->x[i + j];
            norm[j] += w * w;
        }
    for (; i < q->dim; i++) {
        const double w = (double)npy_float(row + 4 * (size_t)i);
        dot[0] += w * (double)q->x[i];
        norm[0] += w * w;
    }
    sum = (norm[0] + norm[1]) + (norm[2] + norm[3]);
    if (!(sum <= DBL_MAX)) return NAN;
    return sum == 0.0 ? 0.0 : ((dot[0] + dot[1]) + (dot[2] + dot[3])) / (sqrt(sum) * q->norm);
}

/* Is the cosine between its bounds? If not, the copies are those of other vectors. */
static int is_bounded(const pass *p, uint64_t row, double score) {
    const double high = (double)p->high[row];
    const double r = (double)npy_float(p->v->floats + 4 * (p->v->n + row));
    return score <= high && score >= high - 2.0 * bounds_distance(p->q, r) - 4e-6;
}

static int score_rows(pass *p, uint64_t from, uint64_t to, top *mine) {
    const vectors *v = p->v;
    uint64_t i, exact = 0;
    for (i = from; i < to; i++) {
        hit h;
        if (p->high && ((double)p->high[i] < p->least || (double)p->high[i] < top_least(mine)))
            continue;
        h.row = i;
        h.score = cosine(v->rows + i * 4 * (uint64_t)v->dim, p->q);
        exact++;
        if (isnan(h.score)) {
            say_wrong(p, "it has a NaN or an infinity", i);
            return 0;
        }
        if (p->high && !is_bounded(p, i, h.score)) {
            say_wrong(p, "its int8 copy is that of another vector", i);
            return 0;
        }
        top_add(mine, h);
    }
    thread_take(&p->lock);
    p->exact += exact;
    thread_give(&p->lock);
    return 1;
}

const char *search_top(const vectors *v, const query *q, int32_t k, int n_threads, hit *out,
                       int32_t *n, uint64_t *exact, uint64_t *row) {
    pass p;
    memset(&p, 0, sizeof p);
    p.v = v;
    p.q = q;
    p.k = v->n < (uint64_t)k ? (int32_t)v->n : k;
    p.best.hits = out;
    p.best.k = p.k;
    p.bad_row = UINT64_MAX;
    p.least = -INFINITY;
    thread_lock_init(&p.lock);
    *n = 0;
    *exact = 0;
    if (p.k > 0 && v->codes) {
        p.high = (float *)malloc((size_t)v->n * sizeof *p.high);
        if (!p.high) p.wrong = "there is no memory";
        else run_pass(&p, n_threads, bound_rows);
        p.least = top_least(&p.best);
    }
    if (p.k > 0 && !p.wrong) run_pass(&p, n_threads, score_rows);
    top_sort(&p.best);
    free(p.high);
    thread_lock_free(&p.lock);
    *n = p.best.n;
    *exact = p.exact;
    *row = p.bad_row;
    return p.wrong;
}
