/* crosscheck_report.h - a part of crosscheck.c: values, their hash, the lines of a report, and what
   compares two reports.

       bitnet.h crosscheck 1                          version of the format and of the inputs
       note TEXT                                      compared, but no difference by itself
       WHAT | TABLE | TYPES HASH | VALUE VALUE ...
       end N                                              so many lines are before it

   TABLE is scalar, a kernel table that differs from it, or model. TYPES counts elements by type, as
   b33i1f1: b int8, h F16, i int32, f float; products are in order [cols][rows]. HASH is FNV-1a over
   the elements, each as its little-endian bytes. VALUE is an element's bits in hex; the values may
   be left out. */
#define REPORT_HEAD "bitnet.h crosscheck "
#define REPORT_VERSION "1"

static void fail(int code, const char *format, ...) {     /* one line on stderr, and out */
    va_list args;
    fputs("crosscheck: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(code);
}

/* ---- values ---- */

typedef struct value { char type; uint32_t bits; } value;
typedef struct values { value *v; size_t n, room; } values;

static void *grow(void *p, size_t bytes) {
    p = realloc(p, bytes);
    if (!p) fail(1, "out of memory");
    return p;
}

static void put(values *out, char type, uint32_t bits) {
    if (out->n == out->room) {
        out->room = 2 * out->room + 1024;
        out->v = (value *)grow(out->v, out->room * sizeof *out->v);
    }
    out->v[out->n].type = type;
    out->v[out->n++].bits = bits;
}

static void put_ints(values *out, const int32_t *x, size_t n) {
    size_t i;
    for (i = 0; i < n; i++) put(out, 'i', (uint32_t)x[i]);
}

static uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void put_floats(values *out, const float *x, size_t n) {
    size_t i;
    for (i = 0; i < n; i++) put(out, 'f', float_bits(x[i]));
}

static int type_bytes(char type) { return type == 'b' ? 1 : type == 'h' ? 2 : 4; }

#define HASH_START (((uint64_t)0xcbf29ce4 << 32) | 0x84222325)

static uint64_t hash_bits(uint64_t h, uint32_t bits, int n_bytes) {
    for (; n_bytes > 0; n_bytes--, bits >>= 8) h = (h ^ (bits & 255)) * (((uint64_t)1 << 40) + 435);
    return h;
}

static double half_value(uint32_t h) {     /* of an F16; 65536 for its infinity */
    int e = (int)(h >> 10 & 31);
    double v = (double)(h & 1023) + (e ? 1024 : 0);
    for (e = e ? e - 25 : -24; e < 0; e++) v /= 2;
    for (; e > 0; e--) v *= 2;
    return h & 0x8000 ? -v : v;
}

/* A value for people: the number and its bits. One of four buffers in turn. */
static const char *show_value(char type, uint32_t bits) {
    static char buffers[4][64];
    static int turn;
    char *s = buffers[turn = (turn + 1) % 4];
    float f;
    int32_t i;
    memcpy(&f, &bits, sizeof f);
    memcpy(&i, &bits, sizeof i);
    if (type == 'b') i = bits & 128 ? (int32_t)(bits & 255) - 256 : (int32_t)(bits & 255);
    if (type == 'f' || type == 'h')
        snprintf(s, sizeof buffers[0], "%.9g (0x%0*lx)", type == 'f' ? (double)f : half_value(bits),
                 2 * type_bytes(type), (unsigned long)bits);
    else snprintf(s, sizeof buffers[0], "%ld", (long)i);
    return s;
}

/* The first place where two lists differ; both's length if they don't. */
static size_t first_difference(const values *a, const values *b) {
    size_t i;
    for (i = 0; i < a->n && i < b->n; i++)
        if (a->v[i].type != b->v[i].type || a->v[i].bits != b->v[i].bits) break;
    return i;
}

/* ---- writing ---- */

static int leave_values_out;               /* --short */
static unsigned long n_lines;              /* written so far */

static void write_hash(const char *what, const char *table, const char *types, uint64_t h) {
    printf("%s | %s | %s %08lx%08lx", what, table, types, (unsigned long)(h >> 32),
           (unsigned long)(h & 0xffffffff));
    n_lines++;
}

static void write_line(const char *what, const char *table, const values *v) {
    char types[128] = "";
    uint64_t h = HASH_START;
    size_t i, since = 0;
    for (i = 0; i < v->n; i++) {
        h = hash_bits(h, v->v[i].bits, type_bytes(v->v[i].type));
        if (i + 1 < v->n && v->v[i + 1].type == v->v[i].type) continue;
        snprintf(types + strlen(types), sizeof types - strlen(types), "%c%lu", v->v[i].type,
                 (unsigned long)(i + 1 - since));
        since = i + 1;
    }
    write_hash(what, table, types, h);
    if (!leave_values_out) fputs(" |", stdout);
    for (i = 0; i < v->n && !leave_values_out; i++)
        printf(" %0*lx", 2 * type_bytes(v->v[i].type), (unsigned long)v->v[i].bits);
    putchar('\n');
}

/* ---- reading and comparing ---- */

typedef struct line { char *what, *table, *result, *values; } line;   /* values may be 0 */
typedef struct report { const char *path; char *text; line *lines; size_t n, at; } report;

static char *cut(char *s, const char *at) {            /* ends s there; what follows, or 0 */
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
        fail(2, "%s: line %lu is none of a report", r->path, (unsigned long)number);
    r->lines[r->n++] = l;
}

static char *read_text(const char *path, size_t *size) {   /* with a 0 behind it */
    size_t room = 1 << 16, n;
    char *text = (char *)grow(0, room);
    FILE *f = fopen(path, "rb");
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
    char *s, *next, *end;
    r.path = path;
    r.text = read_text(path, &size);
    if (strncmp(r.text, REPORT_HEAD, head) || strlen(r.text) != size)
        fail(2, "%s: this is no report of crosscheck", path);
    for (s = r.text; (s = strchr(s, '\n')) != 0; s++) {
        if (s > r.text && s[-1] == '\r') s[-1] = ' ';      /* came through a text mode */
        count++;
    }
    r.lines = (line *)grow(0, (count + 1) * sizeof *r.lines);
    for (s = r.text, count = 0; (next = cut(s, "\n")) != 0; s = next, count++) {
        for (end = s + strlen(s); end > s && end[-1] == ' ';) *--end = 0;
        if (count == 0 && strcmp(s + head, REPORT_VERSION))
            fail(2, "%s: a report of version %.20s; this program compares version "
                 REPORT_VERSION, path, s + head);
        if (!strncmp(s, "end ", 4)) break;
        if (count > 0) add_line(&r, s, count + 1);
    }
    if (!next || *next || strtoul(s + 4, 0, 10) != count)
        fail(2, "%s: the report is truncated: its last line is missing or counts other lines than "
             "its %lu", path, (unsigned long)count);
    return r;
}

static int is_note(const line *l) { return !l->table; }

/* The next line that counts; 0: the end. */
static const line *next_line(report *r) {
    while (r->at < r->n && is_note(&r->lines[r->at])) r->at++;
    return r->at < r->n ? &r->lines[r->at++] : 0;
}

static void print_notes(const report *a, const report *b) {    /* those that only a has */
    size_t i, j;
    for (i = 0; i < a->n; i++) {
        if (!is_note(&a->lines[i])) continue;
        for (j = 0; j < b->n && strcmp(a->lines[i].what, b->lines[j].what); j++) {}
        if (j == b->n) printf("%s: %s\n", a->path, a->lines[i].what);
    }
}

/* Products are [cols][rows]; mixed rows are [cols][n]. */
static void show_place(const char *what, unsigned long i) {
    int mixed = !strncmp(what, "mixrows", 7);
    const char *rows = strstr(what, mixed ? " n=" : " rows=");
    unsigned long n = rows ? strtoul(strchr(rows, '=') + 1, 0, 10) : 0;
    if (n && strstr(what, " cols="))
        printf(" (%s %lu, column %lu)", mixed ? "place" : "row", i % n, i / n);
}

/* Where two lines' values differ first, and the values; an and bn say whose they are. */
static void explain(const line *a, const char *an, const line *b, const char *bn) {
    char *types = a->result, *x = a->values, *y = b->values;
    unsigned long i = 0, left = 0, p = 0, q = 0;
    int same_types = !strncmp(a->result, b->result, strcspn(a->result, " ") + 1);
    char type = 0;
    while (same_types && x && y && *x && *y && p == q) {
        if (!left) type = *types, left = strtoul(types + 1, &types, 10);
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

/* A kernel table's line of its own, right behind the scalar one it differs from. */
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

/* Equal, or equal as far as a report without values says. */
static int same_line(const line *x, const line *y) {
    return !strcmp(x->what, y->what) && !strcmp(x->table, y->table) &&
           !strcmp(x->result, y->result) && (!x->values || !y->values ||
                                             !strcmp(x->values, y->values));
}

static int compare_reports(const char *path_a, const char *path_b) {   /* the exit code */
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
