/* report.h - errors, medians, and rows that are columns of text or, with --json, objects in lists
   */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

enum { MAX_ROUNDS = 101 };

#ifdef __GNUC__                        /* the compiler checks the arguments */
  #define FAILS __attribute__((noreturn, format(printf, 2, 3)))
#else
  #define FAILS
#endif

/* One line on stderr, cleaned, since names of files may contain anything; then exit. */
FAILS void fail(int code, const char *format, ...);

/* A qsort comparison of doubles. */
int ascending(const void *x, const void *y);
/* Leaves v sorted. */
double median(double *v, int n);
/* Half the range of v, which median has sorted, over the median; -1 if there is only one. */
double spread_percent(const double *v, int n);
/* The most MB of memory used so far; -1 if the system has no /proc that says it. */
double most_mb(void);

extern int as_json;                    /* --json */
/* key 0: with --json each row is a line of its own, in no list. */
void begin_list(const char *key, const char *heading);
void end_list(void);
void begin_row(void);
void end_row(void);
/* width < 0: aligned left */
void show_text(const char *key, const char *text, int width);
/* v < 0: there is no number. JSON has two more digits, except for whole numbers (digits 0). */
void show(const char *key, double v, int width, int digits);

#endif
