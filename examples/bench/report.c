#include "report.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int json;

void fail(int code, const char *what, const char *which) {
    fprintf(stderr, "bench: %s%s\n", what, which);
    exit(code);
}

int ascending(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, ascending);
    return (v[n / 2] + v[(n - 1) / 2]) / 2;
}

double most_mb(void) {
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
static int in_list;                    /* JSON rows are separated by commas */

static void show_key(const char *key) {
    printf("%s\"%s\": ", comma, key);
    comma = ", ";
}

void show_text(const char *key, const char *text, int width) {
    if (json) {
        show_key(key);
        printf("\"%s\"", text);
    } else printf("%*s", width, text);
}

void show(const char *key, double v, int width, int digits) {
    if (json) show_key(key);
    if (v < 0) printf("%*s", json ? 0 : width, json ? "null" : "-");
    else printf("%*.*f", json ? 0 : width, json && digits ? digits + 2 : digits, v);
}

void begin_list(const char *key, const char *heading) {
    in_list = key != 0;
    if (!json) printf("\n%s\n", heading);
    else if (in_list) printf(",\n\"%s\": [", key);
    comma = "";
}

void begin_row(void) {
    if (json) printf("%s%s{", in_list ? comma : "", in_list ? "\n" : "");
    comma = "";
}

void end_row(void) {
    printf(!json ? "\n" : in_list ? "}" : "}\n");
    comma = ",";
}

void end_list(void) {
    if (json && in_list) printf("]");
}
