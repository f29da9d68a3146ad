/* bench_report.h - a part of bench.c: errors, medians, and rows that are columns of text or, with
   --json, objects in lists. */
enum { MAX_ROUNDS = 101 };

static int json;

static void fail(int code, const char *what, const char *which) {
    fprintf(stderr, "bench: %s%s\n", what, which);
    exit(code);
}

static int ascending(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(double *v, int n) {                  /* leaves v sorted */
    qsort(v, (size_t)n, sizeof *v, ascending);
    return (v[n / 2] + v[(n - 1) / 2]) / 2;
}

static double most_mb(void) {          /* in memory so far; -1 where /proc does not tell */
    char line[256];
    double mb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmHWM:", 6)) mb = atof(line + 6) * 1024e-6;
    if (f) fclose(f);
    return mb;
}

/* ---- rows ---- */

static const char *comma = "";         /* before the next JSON key */

static void show_key(const char *key) {
    printf("%s\"%s\": ", comma, key);
    comma = ", ";
}

/* width < 0: to the left. */
static void show_text(const char *key, const char *text, int width) {
    if (json) show_key(key);
    if (json) printf("\"%s\"", text);
    else printf("%*s", width, text);
}

/* JSON has two more digits, except for whole numbers (digits 0). v < 0: there is no number. */
static void show(const char *key, double v, int width, int digits) {
    if (json) show_key(key);
    if (v < 0) printf("%*s", json ? 0 : width, json ? "null" : "-");
    else printf("%*.*f", json ? 0 : width, json && digits ? digits + 2 : digits, v);
}

static void begin_list(const char *key, const char *heading) {
    if (json) printf(",\n\"%s\": [", key);
    else printf("\n%s\n", heading);
    comma = "";
}

static void begin_row(void) {
    if (json) printf("%s\n{", comma);
    comma = "";
}

static void end_row(void) {
    printf(json ? "}" : "\n");
    comma = ",";
}

static void end_list(void) {
    if (json) printf("]");
}
