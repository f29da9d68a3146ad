#include "divergence.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct estimate { double value, uncertainty; } estimate;

int divergence_open(divergence *d, uint64_t most) {
    memset(d, 0, sizeof *d);
    if (most > SIZE_MAX / sizeof(double)) return 0;
    d->klds = (double *)malloc((size_t)most * sizeof *d->klds);
    d->p_diffs = (double *)malloc((size_t)most * sizeof *d->p_diffs);
    return d->klds && d->p_diffs;
}

void divergence_free(divergence *d) {
    free(d->klds);
    free(d->p_diffs);
    memset(d, 0, sizeof *d);
}

void divergence_add(divergence *d, const score *s) {
    const double p_diff2 = s->p_diff * s->p_diff;
    d->klds[d->n] = s->kld;
    d->p_diffs[d->n++] = s->p_diff;
    d->nll += s->nll;
    d->nll2 += s->nll * s->nll;
    d->nll_base += s->nll_base;
    d->nll_base2 += s->nll_base * s->nll_base;
    d->nll_nll_base += s->nll * s->nll_base;
    d->kld += s->kld;
    d->kld2 += s->kld * s->kld;
    d->p_diff += s->p_diff;
    d->p_diff2 += p_diff2;
    d->p_diff4 += p_diff2 * p_diff2;
    d->same_top += (uint64_t)s->same_top;
}

/* ---- estimates ---- */

/* The square root of a variance, which rounding can put under 0. */
static double root(double variance) { return variance > 0.0 ? sqrt(variance) : 0.0; }

/* Of few values (10 or less) the uncertainty is said to be 0. */
static estimate mean(double sum, double sum2, uint64_t n) {
    estimate e;
    e.value = sum / (double)n;
    e.uncertainty = n > 10 ? root((sum2 / (double)n - e.value * e.value) / (double)(n - 1)) : 0.0;
    return e;
}

static double covariance_of_logs(const divergence *d) {
    const double n = (double)d->n;
    return d->n < 10 ? 0.0 : (d->nll_nll_base / n - d->nll / n * (d->nll_base / n)) / (n - 1);
}

/* e to the power of an estimate. */
static estimate power(estimate e) {
    estimate out;
    out.value = exp(e.value);
    out.uncertainty = out.value * e.uncertainty;
    return out;
}

static estimate difference(estimate a, estimate b, double covariance) {
    estimate out;
    out.value = a.value - b.value;
    out.uncertainty = root(a.uncertainty * a.uncertainty + b.uncertainty * b.uncertainty -
                           2.0 * covariance);
    return out;
}

static estimate log_ppl(const divergence *d) { return mean(d->nll, d->nll2, d->n); }
static estimate log_ppl_base(const divergence *d) { return mean(d->nll_base, d->nll_base2, d->n); }
static estimate log_ratio(const divergence *d) {
    return difference(log_ppl(d), log_ppl_base(d), covariance_of_logs(d));
}

/* The root of the mean square of p - pb. */
static estimate p_diff_rms(const divergence *d) {
    const estimate square = mean(d->p_diff2, d->p_diff4, d->n);
    estimate out;
    out.value = root(square.value);
    out.uncertainty = out.value > 0.0 ? 0.5 / out.value * square.uncertainty : 0.0;
    return out;
}

static estimate same_top(const divergence *d) {
    estimate out;
    out.value = (double)d->same_top / (double)d->n;
    out.uncertainty = d->n > 1 ? root(out.value * (1.0 - out.value) / (double)(d->n - 1)) : 0.0;
    return out;
}

static estimate percent(estimate e) {
    e.value *= 100.0;
    e.uncertainty *= 100.0;
    return e;
}

/* ---- printing ---- */

void divergence_print_head(void) {
    puts("\nchunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence"
         "              Δp RMS            Same top p");
}

void divergence_print_chunk(const divergence *d, int32_t i) {
    const estimate ppl = power(log_ppl(d)), ratio = log_ratio(d), kld = mean(d->kld, d->kld2, d->n);
    const estimate rms = percent(p_diff_rms(d)), same = percent(same_top(d));
    printf("%4d    %9.4f ± %9.4f    %10.5f ± %10.5f    %10.5f ± %10.5f    %6.3f ± %6.3f %%    "
           "%6.3f ± %6.3f %%\n", (int)i, ppl.value, ppl.uncertainty, ratio.value,
           ratio.uncertainty, kld.value, kld.uncertainty, rms.value, rms.uncertainty, same.value,
           same.uncertainty);
}

static void print(const char *name, estimate e) {
    printf("%s: %10.6f ± %10.6f\n", name, e.value, e.uncertainty);
}

static void print_percent(const char *name, estimate e) {
    e = percent(e);
    printf("%s: %6.3f ± %5.3f %%\n", name, e.value, e.uncertainty);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between the two sorted values around the place fraction * (n - 1). */
static double percentile(const double *sorted, uint64_t n, double fraction) {
    const double place = fraction * (double)(n - 1);
    const uint64_t i = (uint64_t)place, j = i + 1 < n ? i + 1 : n - 1;
    const double weight = place - (double)i;
    return (1.0 - weight) * sorted[i] + weight * sorted[j];
}

typedef struct place { const char *name; double fraction; int only_p_diff; } place;
static const place places[] = {
    {"Maximum", 1.0, 0}, {"99.9%  ", 0.999, 0}, {"99.0%  ", 0.99, 0}, {"95.0%  ", 0.95, 0},
    {"90.0%  ", 0.9, 0}, {"75.0%  ", 0.75, 1},  {"Median ", 0.5, 0},  {"25.0%  ", 0.25, 1},
    {"10.0%  ", 0.1, 0}, {" 5.0%  ", 0.05, 0},  {" 1.0%  ", 0.01, 0}, {" 0.1%  ", 0.001, 0},
    {"Minimum", 0.0, 0}};
enum { N_PLACES = sizeof places / sizeof places[0] };

static void print_perplexities(const divergence *d) {
    const estimate log_q = log_ppl(d), log_base = log_ppl_base(d);
    const estimate q = power(log_q), of_base = power(log_base), ratio = log_ratio(d);
    const double covariance = covariance_of_logs(d);
    const double product = log_q.uncertainty * log_base.uncertainty;
    puts("====== Perplexity statistics ======");
    print("Mean PPL(Q)                   ", q);
    print("Mean PPL(base)                ", of_base);
    printf("Cor(ln(PPL(Q)), ln(PPL(base))): %6.2f%%\n",
           product > 0.0 ? 100.0 * covariance / product : 0.0);
    print("Mean ln(PPL(Q)/PPL(base))     ", ratio);
    print("Mean PPL(Q)/PPL(base)         ", power(ratio));
    print("Mean PPL(Q)-PPL(base)         ",
          difference(q, of_base, q.value * of_base.value * covariance));
}

static void print_klds(divergence *d) {
    int i;
    qsort(d->klds, (size_t)d->n, sizeof *d->klds, by_size);
    puts("\n====== KL divergence statistics ======");
    print("Mean    KLD", mean(d->kld, d->kld2, d->n));
    for (i = 0; i < N_PLACES; i++)
        if (!places[i].only_p_diff)
            printf("%s KLD: %10.6f\n", places[i].name,
                   percentile(d->klds, d->n, places[i].fraction));
}

static void print_p_diffs(divergence *d) {
    int i;
    qsort(d->p_diffs, (size_t)d->n, sizeof *d->p_diffs, by_size);
    puts("\n====== Token probability statistics ======");
    print_percent("Mean    Δp", mean(d->p_diff, d->p_diff2, d->n));
    for (i = 0; i < N_PLACES; i++)
        printf("%s Δp: %6.3f%%\n", places[i].name,
               100.0 * percentile(d->p_diffs, d->n, places[i].fraction));
    print_percent("RMS Δp    ", p_diff_rms(d));
    print_percent("Same top p", same_top(d));
}

void divergence_print(divergence *d) {
    putchar('\n');
    print_perplexities(d);
    print_klds(d);
    print_p_diffs(d);
}
