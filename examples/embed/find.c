#define _DEFAULT_SOURCE 1              /* sysconf, also with -std=c99 */
#include "../server/buffer.h"
#include "../threads.h"
#include "file.h"
#include "index.h"
#include "model.h"
#include "npy.h"
#include "say.h"
#include "search.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The files of an index. NAME.jsonl and NAME.i8.npy may be missing. */
typedef struct found {
    const settings *s;
    mapped rows, copies, lines;
    vectors v;
    int has_mark;                      /* the rows are those of an index, and this is their mark */
    uint64_t mark;
    float *x;                          /* the query [dim] */
    query q;
    hit *hits;                         /* [n_hits] */
    int32_t n_hits;
} found;

/* ---- opening ---- */

static int open_rows(found *f, const char *path) {
    npy_array a;
    const int wrong = file_map(&f->rows, path);
    const char *what = wrong ? strerror(wrong) : npy_read(&a, f->rows.p, f->rows.size, "<f4");
    if (what) return fail(FAILED, "%s: %s", path, what);
    if (a.cols > BOUNDS_MAX_DIM)
        return fail(FAILED, "%s: a row has more than %d numbers", path, (int)BOUNDS_MAX_DIM);
    f->v.rows = a.data;
    f->v.n = a.rows;
    f->v.dim = (int32_t)a.cols;
    f->has_mark = npy_read_mark(f->rows.p + a.end, f->rows.size - a.end, &f->mark);
    return DONE;
}

/* The arrays of NAME.i8.npy. Returns 0, or what is wrong. */
static const char *read_copies(found *f) {
    npy_array codes, floats;
    uint64_t mark;
    size_t end;
    const char *wrong = npy_read(&codes, f->copies.p, f->copies.size, "|u1");
    if (wrong) return wrong;
    wrong = npy_read(&floats, f->copies.p + codes.end, f->copies.size - codes.end, "<f4");
    if (wrong) return wrong;
    end = codes.end + floats.end;
    if (!npy_read_mark(f->copies.p + end, f->copies.size - end, &mark))
        return "it is damaged, or that of an older version";
    if ((f->has_mark && mark != f->mark) || codes.rows != f->v.n ||
        codes.cols != (uint64_t)bounds_width(f->v.dim) || floats.rows != 2 ||
        floats.cols != f->v.n) return "it is that of another file";
    f->v.codes = codes.data;
    f->v.floats = floats.data;
    return 0;
}

static int open_copies(found *f, const char *npy) {
    char *path = index_path(npy, ".i8.npy");
    const int wrong = path && !f->s->all ? file_map(&f->copies, path) : ENOENT;
    const char *what = wrong && wrong != ENOENT ? strerror(wrong) : wrong ? 0 : read_copies(f);
    int code = DONE;
    if (what) code = fail(FAILED, "%s: %s; embed index %s makes it again", path, what, npy);
    else if (wrong && !f->s->all)
        note("there is no %s, so every score is computed; embed index %s makes it",
             path ? path : "int8 copy", npy);
    free(path);
    return code;
}

/* ---- lines of NAME.jsonl ---- */

/* Parses the line at *at and goes to the next. Returns 0, with j empty, if it is no object. */
static int parse_line(const mapped *m, size_t *at, json *j) {
    const uint8_t *p, *end;
    bitnet_error err;
    size_t n;
    memset(j, 0, sizeof *j);
    if (*at >= m->size) return 0;
    p = m->p + *at;
    end = (const uint8_t *)memchr(p, '\n', m->size - *at);
    n = end ? (size_t)(end - p) : m->size - *at;
    j->size = n;
    j->text = (char *)malloc(n + 1);
    if (!j->text) return 0;
    memcpy(j->text, p, n);
    j->text[n] = 0;
    *at += n + (end != 0);
    return json_parse(j, &err) == BITNET_OK && json_kind(j, JSON_ROOT) == JSON_OBJECT;
}

/* A hit's row, and its place among the hits. */
typedef struct place { uint64_t row; int32_t i; } place;

static int by_row(const void *a, const void *b) {
    const uint64_t x = ((const place *)a)->row, y = ((const place *)b)->row;
    return (x > y) - (x < y);
}

/* Where each hit's line begins; the file's size if it has none. Rows are sorted, so that the lines
   are counted once for all of them. */
static size_t *find_lines(const found *f) {
    size_t *at = (size_t *)malloc(((size_t)f->n_hits + 1) * sizeof *at), from = 0;
    place *p = (place *)malloc(((size_t)f->n_hits + 1) * sizeof *p);
    uint64_t line = 0;
    int32_t i;
    if (!at || !p) {
        free(at);
        free(p);
        return 0;
    }
    for (i = 0; i < f->n_hits; i++) {
        at[i] = f->lines.size;
        p[i].row = f->hits[i].row;
        p[i].i = i;
    }
    qsort(p, (size_t)f->n_hits, sizeof *p, by_row);
    for (i = 0; i < f->n_hits && from < f->lines.size; line++) {
        const uint8_t *end = (const uint8_t *)memchr(f->lines.p + from, '\n', f->lines.size - from);
        if (p[i].row + 1 == line) at[p[i++].i] = from;           /* line 0 says what made it */
        if (!end) break;
        from = (size_t)(end - f->lines.p) + 1;
    }
    free(p);
    return at;
}

/* Is the value the hash, in hexadecimal digits? */
static int is_hash(const json *j, const char *key, uint64_t hash) {
    char digits[24];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)hash);
    return json_is(j, json_get(j, JSON_ROOT, key), digits);
}

static const char no_maker[] = "its first line does not say what made it";

/* Compares the lines with their first one, and that with the rows. Returns 0, or what is wrong. */
static const char *check_lines(const found *f, const json *first, size_t at) {
    uint64_t version = 0, rows = 0, n = 0, hash = 0;
    if (!json_uint(first, json_get(first, JSON_ROOT, "index"), &version)) return no_maker;
    if (version != INDEX_VERSION)
        return "it is that of another version of embed, which this one cannot check";
    for (; at < f->lines.size; n++) {
        const uint8_t *p = f->lines.p + at;
        const uint8_t *end = (const uint8_t *)memchr(p, '\n', f->lines.size - at);
        const size_t size = end ? (size_t)(end - p) + 1 : f->lines.size - at;
        hash = npy_hash(hash, p, size);
        at += size;
    }
    if (!json_uint(first, json_get(first, JSON_ROOT, "rows"), &rows) || n != rows ||
        !is_hash(first, "passages", hash)) return "its lines are not those that were written";
    if (rows != f->v.n || !f->has_mark || !is_hash(first, "vectors", f->mark))
        return "it is not of the same run as the rows";
    return 0;
}

static int open_lines(found *f, const char *npy) {
    char *path = index_path(npy, ".jsonl");
    const int wrong = path ? file_map(&f->lines, path) : ENOMEM;
    const char *what = 0;
    size_t at = 0;
    json first;
    int code = DONE;
    if (!wrong) {
        what = parse_line(&f->lines, &at, &first) ? check_lines(f, &first, at) : no_maker;
        json_free(&first);
    }
    if (what) code = fail(FAILED, "%s: %s; embed index FOLDER makes it again", path, what);
    else if (wrong && wrong != ENOENT)
        code = fail(FAILED, "%s: %s", path ? path : npy, strerror(wrong));
    free(path);
    return code;
}

/* ---- the query ---- */

/* Compares the model with that of the index. */
static int check_model(found *f, embedder *e) {
    size_t at = 0;
    uint64_t probe;
    json j;
    int code = embedder_probe(e, &probe);
    if (code != DONE || !f->lines.p) return code;
    if (!parse_line(&f->lines, &at, &j)) code = fail(FAILED, "there is no memory");
    else if (!is_hash(&j, "probe", probe)) {
        const uint32_t name = json_get(&j, JSON_ROOT, "model");
        code = fail(FAILED, "the index was made with another model (%s; this is %s), or with "
                    "another --pooling or --kv-type",
                    json_kind(&j, name) == JSON_STRING ? j.text + j.nodes[name].at : "unknown",
                    e->name);
    }
    json_free(&j);
    return code;
}

static int embed_query(found *f, embedder *e) {
    text t;
    int code;
    memset(&t, 0, sizeof t);
    t.n = strlen(f->s->words[1]);
    t.p = (char *)malloc(t.n + 1);
    if (t.p) memcpy(t.p, f->s->words[1], t.n + 1);
    if (!t.p || (f->s->task && !add_task(&t, f->s->task)))
        code = fail(FAILED, "there is no memory");
    else code = embedder_run(e, &t, 1, f->x);
    if (code == DONE && t.error[0]) code = fail(FAILED, "the query: %s", t.error);
    text_free(&t);
    return code;
}

static int read_query(found *f) {
    embedder e;
    int code = embedder_open(&e, f->s, f->s->cut);
    if (code == DONE && e.info.dim != f->v.dim)
        code = fail(FAILED, "the index was made with another model: its vectors have %d numbers, "
                    "and those of this model %d", (int)f->v.dim, (int)e.info.dim);
    if (code == DONE) code = check_model(f, &e);
    if (code == DONE) code = embed_query(f, &e);
    embedder_close(&e);
    return code;
}

/* The first row of an .npy file. */
static int read_vector(found *f) {
    const char *path = f->s->vector;
    mapped m;
    npy_array a;
    const int wrong = file_map(&m, path);
    const char *what = wrong ? strerror(wrong) : npy_read(&a, m.p, m.size, "<f4");
    int32_t i;
    int code = DONE;
    if (what) code = fail(FAILED, "%s: %s", path, what);
    else if (a.rows < 1 || a.cols != (uint64_t)f->v.dim)
        code = fail(FAILED, "%s: a row of %d numbers is needed", path, (int)f->v.dim);
    else for (i = 0; i < f->v.dim; i++) f->x[i] = npy_float(a.data + 4 * (size_t)i);
    file_unmap(&m);
    return code;
}

/* ---- results ---- */

/* 0.812345  notes/a.txt:1200  its first words */
static void print_line(const found *f, hit h, size_t at) {
    char name[512] = "", words[512] = "";
    unsigned long long offset = 0;
    uint64_t number = 0;
    json j;
    if (at >= f->lines.size) {
        printf("%9.6f  row %llu\n", h.score, (unsigned long long)h.row);
        return;
    }
    if (parse_line(&f->lines, &at, &j)) {
        const uint32_t file = json_get(&j, JSON_ROOT, "file");
        const uint32_t own = json_get(&j, JSON_ROOT, "text");
        const json_node *v = j.nodes;
        if (json_uint(&j, json_get(&j, JSON_ROOT, "offset"), &number)) offset = number;
        if (json_kind(&j, file) == JSON_STRING)
            bitnet_clean_text(j.text + v[file].at, v[file].len, name, sizeof name);
        if (json_kind(&j, own) == JSON_STRING)
            bitnet_clean_text(j.text + v[own].at, v[own].len, words, sizeof words);
    }
    json_free(&j);
    printf("%9.6f  %s:%llu  %s\n", h.score, name, offset, words);
}

/* {"row":7,"score":0.8,"file":...}, with all that the line has. */
static int print_json(const found *f, hit h, size_t at, int is_first) {
    buffer b = {0};
    json j;
    uint32_t key, i;
    buffer_format(&b, "%s\n{\"row\":%llu,\"score\":%.15g", is_first ? "" : ",",
                  (unsigned long long)h.row, h.score);
    if (at < f->lines.size) {
        if (parse_line(&f->lines, &at, &j))
            for (i = 0, key = JSON_ROOT + 1; i < j.nodes[JSON_ROOT].n; i++) {
                buffer_text(&b, ",");
                buffer_value(&b, &j, key);
                buffer_text(&b, ":");
                buffer_value(&b, &j, key + 1);
                key = j.nodes[key + 1].next;
            }
        json_free(&j);
    }
    buffer_text(&b, "}");
    if (!b.failed) fwrite(b.p, 1, b.n, stdout);
    i = (uint32_t)b.failed;
    buffer_free(&b);
    return i ? fail(FAILED, "there is no memory") : DONE;
}

static int print_hits(const found *f) {
    size_t *at = find_lines(f);
    int32_t i;
    int code = DONE;
    if (!at) return fail(FAILED, "there is no memory");
    if (f->s->json) fputs("{\"results\":[", stdout);
    for (i = 0; code == DONE && i < f->n_hits; i++) {
        if (f->s->json) code = print_json(f, f->hits[i], at[i], i == 0);
        else print_line(f, f->hits[i], at[i]);
    }
    if (f->s->json) fputs("\n]}\n", stdout);
    free(at);
    return code;
}

/* ---- the command ---- */

static int find(found *f) {
    const char *path = f->s->words[0];
    const int threads = f->s->n_threads > 0 ? (int)f->s->n_threads : thread_processors();
    const char *what = query_split(&f->q, f->x, f->v.dim);
    uint64_t exact, row;
    double began;
    if (what) return fail(FAILED, "the query's vector: %s", what);
    began = thread_clock();
    what = search_top(&f->v, &f->q, (int32_t)f->s->k, threads, f->hits, &f->n_hits, &exact, &row);
    if (what && row != UINT64_MAX)
        return fail(FAILED, "%s: row %llu: %s", path, (unsigned long long)row, what);
    if (what) return fail(FAILED, "%s: %s", path, what);
    note("%llu rows in %.0f ms, %llu of them computed exactly", (unsigned long long)f->v.n,
         1000.0 * (thread_clock() - began), (unsigned long long)exact);
    return DONE;
}

static int open_index(found *f) {
    const char *path = f->s->words[0];
    int code = open_rows(f, path);
    if (code == DONE) code = open_copies(f, path);
    if (code == DONE) code = open_lines(f, path);
    if (code != DONE) return code;
    f->x = (float *)malloc((size_t)f->v.dim * sizeof *f->x);
    f->hits = (hit *)malloc((size_t)f->s->k * sizeof *f->hits);
    return f->x && f->hits ? DONE : fail(FAILED, "there is no memory");
}

int run_search(const settings *s) {
    found f;
    int code;
    memset(&f, 0, sizeof f);
    f.s = s;
    code = open_index(&f);
    if (code == DONE) code = s->vector ? read_vector(&f) : read_query(&f);
    if (code == DONE) code = find(&f);
    errno = 0;
    if (code == DONE) code = print_hits(&f);
    if ((fflush(stdout) || ferror(stdout)) && code == DONE)
        code = fail(FAILED, "cannot write to standard output: %s", strerror(errno ? errno : EIO));
    query_free(&f.q);
    free(f.x);
    free(f.hits);
    file_unmap(&f.rows);
    file_unmap(&f.copies);
    file_unmap(&f.lines);
    return code;
}
