#include "figures.h"
#include "../json/json.h"
#include "command.h"
#include "report.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1000000, MAX_CELLS = 256, MOST_IN_FORM = MAX_FIGURES / MAX_FORMS };

/* ---- the names of tests ---- */

/* A number after a word, and after blanks before it; 0 if they are not there. */
static int number_after(const char **at, const char *word) {
    const char *s = *at + strspn(*at, " ");
    char *end;
    long n;
    if (strncmp(s, word, strlen(word))) return 0;
    s += strlen(word);
    s += strspn(s, " ");
    if (!isdigit((unsigned char)*s)) return 0;
    n = strtol(s, &end, 10);
    if (n < 1 || n > MOST_TOKENS) return 0;
    *at = end;
    return (int)n;
}

/* Reads a test's name; 0 if it is none. Older versions write "pp 512", and ik_llama.cpp
   "tg128@pp4096" for what others call "tg128 @ d4096". */
static int read_name(const char *name, figure *f) {
    memset(f, 0, sizeof *f);
    f->n_prompt = number_after(&name, "pp");
    f->n_gen = number_after(&name, f->n_prompt ? "+tg" : "tg");
    if (!f->n_prompt && !f->n_gen) return 0;
    f->n_depth = number_after(&name, "@ d");
    if (!f->n_depth) f->n_depth = number_after(&name, "@pp");
    return name[strspn(name, " ")] == 0;
}

void figure_name(const figure *f, char name[64]) {
    char prompt[16] = "", gen[16] = "", depth[16] = "";
    if (f->n_prompt) snprintf(prompt, sizeof prompt, "pp%d", f->n_prompt);
    if (f->n_gen) snprintf(gen, sizeof gen, "%stg%d", f->n_prompt ? "+" : "", f->n_gen);
    if (f->n_depth) snprintf(depth, sizeof depth, " @ d%d", f->n_depth);
    snprintf(name, 64, "%s%s%s", prompt, gen, depth);
}

/* ---- what llama-bench prints: rows whose cells have names ---- */

enum { TEST, N_PROMPT, N_GEN, N_DEPTH, THREADS, SPEED, N_FIELDS };
static const char *const fields[N_FIELDS][2] = {  /* in json and csv; in md */
    {"test", "test"}, {"n_prompt", ""}, {"n_gen", ""}, {"n_depth", ""}, {"n_threads", "threads"},
    {"avg_ts", "t/s"}
};

typedef struct found {
    figure *out;
    int n;
} found;

static int whole(const char *text) {
    const long n = text ? strtol(text, 0, 10) : 0;
    return n > 0 && n <= MOST_TOKENS ? (int)n : 0;
}

static void add_figure(const figure *f, const char *speed, found *to) {
    if (!(f->tok_s > 0 && f->tok_s < 1e9))
        fail(1, "the command of --compare has a speed that is none: %s", speed);
    if (to->n == MAX_FIGURES) fail(1, "the command of --compare has too many tests");
    to->out[to->n++] = *f;
}

/* Adds a row: the text of each field, or 0. Rows without a speed are something else. */
static void add_row(const char *const row[N_FIELDS], found *to) {
    char name[64], speed[64];
    figure f = {0, 0, 0, 0, 0};
    if (!row[SPEED]) return;
    if (row[TEST]) {
        bitnet_clean_text(row[TEST], strlen(row[TEST]), name, sizeof name);
        if (!read_name(row[TEST], &f))
            fail(1, "the command of --compare has an unknown test: %s", name);
    } else {
        f.n_prompt = whole(row[N_PROMPT]);
        f.n_gen = whole(row[N_GEN]);
        f.n_depth = whole(row[N_DEPTH]);
        if (!f.n_prompt && !f.n_gen)
            fail(1, "the command of --compare has a test of no tokens");
    }
    f.n_threads = whole(row[THREADS]);
    f.tok_s = strtod(row[SPEED], 0);
    bitnet_clean_text(row[SPEED], strcspn(row[SPEED], ",\n}"), speed, sizeof speed);
    add_figure(&f, speed, to);
}

/* Cuts a line into cells: of "| a | b |" without the blanks, of "a","b" without the quotes. */
static int split(char *line, char separator, char *cells[MAX_CELLS]) {
    int n = 0;
    if (separator == '|') line++;
    while (n < MAX_CELLS && line && *line) {
        char *end, *to;
        if (separator == '|') line += strspn(line, " ");
        cells[n++] = to = line;
        if (separator == ',' && *line == '"')
            for (line++; *line && (*line != '"' || *++line == '"'); line++) *to++ = *line;
        else while (*line && *line != separator) *to++ = *line++;
        end = strchr(line, separator);
        line = end ? end + 1 : 0;
        while (separator == '|' && to > cells[n - 1] && to[-1] == ' ') to--;
        *to = 0;
    }
    return n;
}

/* Rows of cells; the line with a speed's name is the heading of those behind it. */
static void read_table(char *text, char separator, found *to) {
    int column[N_FIELDS], n, i, k, has_heading = 0;
    char *cells[MAX_CELLS], *next;
    for (; text; text = next) {
        next = strchr(text, '\n');
        if (next) *next++ = 0;
        text[strcspn(text, "\r")] = 0;
        if (separator == '|' ? *text != '|' : !strchr(text, ',')) {
            has_heading = 0;
            continue;
        }
        n = split(text, separator, cells);
        for (i = 0; i < n; i++)
            if (!strcmp(cells[i], fields[SPEED][separator == '|'])) break;
        if (i < n) {
            has_heading = 1;
            for (k = 0; k < N_FIELDS; k++)
                for (column[k] = n, i = 0; i < n; i++)
                    if (!strcmp(cells[i], fields[k][separator == '|'])) column[k] = i;
        } else if (has_heading && n > 0 && strspn(cells[0], "-:") < strlen(cells[0])) {
            const char *row[N_FIELDS];
            for (k = 0; k < N_FIELDS; k++) row[k] = column[k] < n ? cells[column[k]] : 0;
            add_row(row, to);
        }
    }
}

/* A text of JSON: an object, or an array of them. Other JSON, or none, has no figures. */
static void read_json(const char *text, size_t n, found *to) {
    json doc = {0};
    uint32_t node;
    int k;
    doc.text = (char *)malloc(n + 1);
    if (!doc.text) fail(1, "no memory for what the command prints");
    memcpy(doc.text, text, n);
    doc.text[n] = 0;
    doc.size = n;
    if (json_parse(&doc, 0)) doc.n_nodes = 0;
    for (node = JSON_ROOT; node < doc.n_nodes; node++) {
        const char *row[N_FIELDS];
        for (k = 0; k < N_FIELDS; k++) {
            const uint32_t v = json_get(&doc, node, fields[k][0]);
            const json_type type = json_kind(&doc, v);
            row[k] = v && (type == JSON_NUMBER || type == JSON_STRING) ? doc.text + doc.nodes[v].at
                                                                       : 0;
        }
        add_row(row, to);
    }
    json_free(&doc);
}

/* json begins at a line with [ and ends at the last ]; of jsonl each line is an object. */
static void read_objects(const char *text, found *to) {
    const char *line, *end = strrchr(text, ']');
    for (line = text; *line; line += *line != 0) {
        const size_t n = strcspn(line, "\n");
        if (*line == '[' && end > line) {
            read_json(line, (size_t)(end - line) + 1, to);
            if (to->n) return;
        } else if (*line == '{') read_json(line, n, to);
        line += n;
    }
}

/* ---- forms ---- */

static const char *forms[MAX_FORMS];
static int n_forms;

/* Reads the placeholder that follows a {, and returns what follows it; 0 if it is none. */
static const char *placeholder(const char *form, figure *f) {
    char name[64];
    const size_t n = strcspn(form, "}");
    if (n >= sizeof name || form[n] != '}') return 0;
    memcpy(name, form, n);
    name[n] = 0;
    return read_name(name, f) ? form + n + 1 : 0;
}

int add_form(const char *form) {
    const char *at;
    int n = 0;
    for (at = form; (at = strchr(at, '{')) != 0; n++) {
        figure f;
        at = placeholder(at + 1, &f);
        if (!at) n = MOST_IN_FORM;
        if (!at) at = "";
    }
    if (n == 0 || n > MOST_IN_FORM)
        fail(2, "--compare-form needs placeholders such as {pp512}, {tg128} or {tg128 @ d4096} for "
             "the tokens per second, not %s", form);
    if (n_forms == MAX_FORMS) fail(2, "too many forms: %s", form);
    forms[n_forms++] = form;
    return 1;
}

/* Reads a number: digits, perhaps with a point. Not the rest of one, nor a part of 1,234. */
static const char *read_number(const char *text, const char *line, double *v) {
    char *end;
    const char before = text > line ? text[-1] : ' ';
    if (!isdigit((unsigned char)*text) || isdigit((unsigned char)before) || before == '.' ||
        (before == ',' && text - line > 1 && isdigit((unsigned char)text[-2])))
        return 0;
    *v = strtod(text, &end);
    return *end == ',' && isdigit((unsigned char)end[1]) ? 0 : end;
}

/* Does the form fit a part of the line? Then out has its figures, *n of them. When a character does
   not fit, the text that the last * stands for becomes longer. */
static int fits_line(const char *form, const char *line, figure *out, int *n) {
    const char *f = form, *s = line, *star = form, *from = line;
    int n_star = 0;
    *n = 0;
    while (*f) {
        const char *after = 0;
        if (*f == '*') {
            star = ++f;
            from = s;
            n_star = *n;
        } else if (*f == '{') {
            f = placeholder(f + 1, &out[*n]);
            if (!f) return 0;          /* add_form has seen to that */
            after = read_number(s, line, &out[*n].tok_s);
            *n += after != 0;
        } else if (*f == ' ') {
            f += strspn(f, " ");
            after = *s == ' ' || *s == '\t' ? s + strspn(s, " \t") : 0;
        } else after = *s == *f++ ? s + 1 : 0;
        if (after) s = after;
        else if (f != star || s != from) {
            if (!*from) return 0;
            s = ++from;
            f = star;
            *n = n_star;
        }
    }
    return 1;
}

static void read_forms(char *text, found *to) {
    int i, k;
    for (i = 0; i < n_forms; i++) {
        figure last[MOST_IN_FORM], some[MOST_IN_FORM];
        char *line, *next;
        int n = 0, n_last = 0;
        for (line = text; line; line = next) {
            next = strchr(line, '\n');
            if (next) *next = 0;
            if (fits_line(forms[i], line, some, &n)) memcpy(last, some, sizeof last);
            else n = 0;
            if (n) n_last = n;
            if (next) *next++ = '\n';
        }
        if (!n_last) fail_command("printed no line that fits the form ", forms[i], text);
        for (k = 0; k < n_last; k++) add_figure(&last[k], forms[i], to);
    }
}

int read_figures(char *text, figure out[MAX_FIGURES]) {
    found to = {0, 0};
    char *copy = (char *)malloc(strlen(text) + 1);
    int table;
    if (!copy) fail(1, "no memory for what the command prints");
    to.out = out;
    if (n_forms) read_forms(text, &to);
    else read_objects(text, &to);
    for (table = 0; table < 2 && !to.n; table++) {
        strcpy(copy, text);
        read_table(copy, ",|"[table], &to);
    }
    free(copy);
    if (!to.n)
        fail_command("printed no speed in a form that is known: llama-bench's md, csv, json or "
                     "jsonl, or that of --compare-form", "", text);
    return to.n;
}
