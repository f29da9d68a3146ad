#include "../utf8.h"
#include "report.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

typedef struct line { char *what, *table, *result, *values; } line;   /* values may be 0 */
typedef struct report { const char *path; char *text; line *lines; size_t n, at; } report;

/* Ends s before at and returns what follows at; 0 if s is 0 or has no at. */
static char *cut(char *s, const char *at) {
    char *found = s ? strstr(s, at) : 0;
    if (!found) return 0;
    *found = 0;
    return found + strlen(at);
}

/* A note is a line without a table. */
static void add_line(report *r, char *s, size_t number) {
    line l;
    l.what = s;
    l.table = cut(s, " | ");
    l.result = cut(l.table, " | ");
    l.values = cut(l.result, " | ");
    if (!strncmp(s, "note ", 5) ? l.table != 0 : !l.result || !strchr(l.result, ' '))
        fail(2, "%s: line %lu does not belong in a report", r->path, (unsigned long)number);
    r->lines[r->n++] = l;
}

/* A whole file, with a 0 after it. */
static char *read_text(const char *path, size_t *size) {
    size_t room = 1 << 16, n;
    char *text = (char *)grow(0, room);
    FILE *f = utf8_fopen(path, "rb");
    if (!f) fail(2, "%s: cannot open: %s", path, strerror(errno));
    for (*size = 0; (n = fread(text + *size, 1, room - *size - 1, f)) > 0;) {
        *size += n;
        if (*size + 1 == room) text = (char *)grow(text, room *= 2);
    }
    if (ferror(f)) fail(2, "%s: cannot read: %s", path, strerror(errno));
    fclose(f);
    text[*size] = 0;
    return text;
}

static report read_report(const char *path) {
    report r = {0};
    size_t size, count = 0, head = strlen(REPORT_HEAD);
    char *s, *next, *end, *first;
    r.path = path;
    r.text = read_text(path, &size);
    first = r.text + utf8_mark(r.text, size);
    if (strncmp(first, REPORT_HEAD, head) || strlen(r.text) != size)
        fail(2, "%s: this is not a report of crosscheck", path);
    for (s = first; (s = strchr(s, '\n')) != 0; s++) {
        if (s > r.text && s[-1] == '\r') s[-1] = ' ';      /* it was written in a text mode */
        count++;
    }
    r.lines = (line *)grow(0, (count + 1) * sizeof *r.lines);
    for (s = first, count = 0; (next = cut(s, "\n")) != 0; s = next, count++) {
        for (end = s + strlen(s); end > s && end[-1] == ' ';) *--end = 0;
        if (count == 0 && strcmp(s + head, REPORT_VERSION))
            fail(2, "%s: a report of version %.20s; this program compares version "
                 REPORT_VERSION, path, s + head);
        if (!strncmp(s, "end ", 4)) break;
        if (count > 0) add_line(&r, s, count + 1);
    }
    if (!next || *next || strtoul(s + 4, 0, 10) != count)
        fail(2, "%s: the report is truncated: its last line is missing, or its count is not %lu",
             path, (unsigned long)count);
    return r;
}

/* ---- comparing ---- */

static int is_note(const line *l) { return !l->table; }

/* The next line that is not a note; 0: the end. */
static const line *next_line(report *r) {
    while (r->at < r->n && is_note(&r->lines[r->at])) r->at++;
    return r->at < r->n ? &r->lines[r->at++] : 0;
}

/* Prints the notes that only a has. */
static void print_notes(const report *a, const report *b) {
    size_t i, j;
    for (i = 0; i < a->n; i++) {
        if (!is_note(&a->lines[i])) continue;
        for (j = 0; j < b->n && strcmp(a->lines[i].what, b->lines[j].what); j++) {}
        if (j == b->n) printf("%s: %s\n", a->path, a->lines[i].what);
    }
}

/* Products are [cols][rows]; mixed rows are [cols][n]. */
static void show_place(const char *what, unsigned long i) {
    const int mixed = !strncmp(what, "sumrows", 7);
    const char *rows = strstr(what, mixed ? " n=" : " rows=");
    unsigned long n = rows ? strtoul(strchr(rows, '=') + 1, 0, 10) : 0;
    if (n && strstr(what, " cols="))
        printf(" (%s %lu, column %lu)", mixed ? "place" : "row", i % n, i / n);
}

/* Prints the first two values that differ, of lines that belong to an and bn. */
static void explain(const line *a, const char *an, const line *b, const char *bn) {
    char *types = a->result, *x = a->values, *y = b->values;
    unsigned long i = 0, left = 0, p = 0, q = 0;
    const int same_types = !strncmp(a->result, b->result, strcspn(a->result, " ") + 1);
    char type = 0;
    while (same_types && x && y && *x && *y && p == q) {
        if (!left) {
            type = *types;
            left = strtoul(types + 1, &types, 10);
        }
        p = strtoul(x, &x, 16);
        q = strtoul(y, &y, 16);
        i++;
        left -= left > 0;
    }
    if (p != q) {
        printf("  element %lu of %.*s", i - 1, (int)strcspn(a->result, " "), a->result);
        show_place(a->what, i - 1);
        printf(": %s %s, %s %s\n", an, show_value(type, (uint32_t)p), bn,
               show_value(type, (uint32_t)q));
    } else printf("  the elements' values are not in both reports; types and hash: %s %s, %s %s\n",
                an, a->result, bn, b->result);
}

/* Is it the line of a kernel table that differs from the scalar line before it? */
static int is_wrong_kernel(const report *r, const line *l) {
    return l && l > r->lines && strcmp(l->table, "scalar") && !strcmp(l[-1].what, l->what);
}

static void tell_difference(const report *a, const line *x, const report *b, const line *y) {
    const report *bad = is_wrong_kernel(a, x) ? a : b;
    const line *wrong = bad == a ? x : y;
    if (x && y && !strcmp(x->what, y->what) && !strcmp(x->table, y->table)) {
        printf("first difference: %s, %s%s\n", x->what, strcmp(x->table, "model") ? "kernel " : "",
               x->table);
        explain(x, a->path, y, b->path);
    } else if (is_wrong_kernel(bad, wrong)) {
        const line *scalar = wrong;
        while (strcmp(scalar->table, "scalar") && scalar > bad->lines) scalar--;
        printf("first difference: %s, kernel %s, only in %s\n", wrong->what, wrong->table,
               bad->path);
        explain(scalar, "scalar", wrong, wrong->table);
    } else printf("first difference: the reports are of different runs:\n  %s: %s\n  %s: %s\n",
                  a->path, x ? x->what : "(ends here)", b->path, y ? y->what : "(ends here)");
}

/* Values are compared only if both reports have them. */
static int same_line(const line *x, const line *y) {
    return !strcmp(x->what, y->what) && !strcmp(x->table, y->table) &&
           !strcmp(x->result, y->result) && (!x->values || !y->values ||
                                             !strcmp(x->values, y->values));
}

int compare_reports(const char *path_a, const char *path_b) {
    report a = read_report(path_a), b = read_report(path_b);
    const line *x, *y;
    unsigned long count = 0;
    print_notes(&a, &b);
    print_notes(&b, &a);
    for (;;) {
        x = next_line(&a);
        y = next_line(&b);
        if (!x || !y || !same_line(x, y)) break;
        count++;
    }
    if (x || y) tell_difference(&a, x, &b, y);
    else printf("same: %lu lines\n", count);
    free(a.lines);
    free(a.text);
    free(b.lines);
    free(b.text);
    return x || y ? 1 : 0;
}
