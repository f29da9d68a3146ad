#include "report.h"
#include "../../bitnet.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int as_json;

void fail(int code, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    bitnet_clean_text(line, strlen(line), line, sizeof line);
    fprintf(stderr, "bench: %s\n", line);
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

double spread_percent(const double *v, int n) {
    return n > 1 ? (v[n - 1] - v[0]) / (v[n / 2] + v[(n - 1) / 2]) * 100 : -1;
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
    if (!as_json) printf("%*s", width, text);
    else {
        show_key(key);
        for (putchar('"'); *text; text++)
            if (*text == '"' || *text == '\\') printf("\\%c", *text);
            else if ((unsigned char)*text < ' ') printf("\\u%04x", (unsigned)*text);
            else putchar(*text);
        putchar('"');
    }
}

void show(const char *key, double v, int width, int digits) {
    if (as_json) show_key(key);
    if (v < 0) printf("%*s", as_json ? 0 : width, as_json ? "null" : "-");
    else printf("%*.*f", as_json ? 0 : width, as_json && digits ? digits + 2 : digits, v);
}

void begin_list(const char *key, const char *heading) {
    in_list = key != 0;
    if (!as_json) printf("\n%s\n", heading);
    else if (in_list) printf(",\n\"%s\": [", key);
    comma = "";
}

void begin_row(void) {
    if (as_json) printf("%s%s{", in_list ? comma : "", in_list ? "\n" : "");
    comma = "";
}

void end_row(void) {
    printf(!as_json ? "\n" : in_list ? "}" : "}\n");
    comma = ",";
}

void end_list(void) {
    if (as_json && in_list) printf("]");
}
