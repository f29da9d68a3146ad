#include "index.h"
#include "../server/buffer.h"
#include "../utf8.h"
#include "bounds.h"
#include "file.h"
#include "model.h"
#include "npy.h"
#include "passages.h"
#include "say.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 64 << 20, DEPTH = 64, FIRST_WORDS = 120 };

char *index_path(const char *npy, const char *ending) {
    const size_t n = strlen(npy), cut = n > 4 && !strcmp(npy + n - 4, ".npy") ? 4 : 0;
    char *path = (char *)malloc(n + strlen(ending) + 1);
    if (!path) return 0;
    memcpy(path, npy, n - cut);
    strcpy(path + n - cut, ending);
    return path;
}

/* An index that is being made. */
typedef struct maker {
    const settings *s;
    embedder e;
    written rows, copies, lines;       /* NAME.npy, NAME.i8.npy, NAME.jsonl */
    uint64_t probe;                    /* of the model */
    uint64_t rows_hash, lines_hash;
    text texts[BATCH];
    int32_t n_texts;
    buffer text_lines;                 /* of NAME.jsonl, for texts */
    uint8_t *bytes;                    /* [4 * dim] */
    float *vectors;                    /* [BATCH][dim] */
    uint64_t n_rows, n_files, n_hidden;
    int is_trial;                      /* nothing is read yet, only what can be is looked for */
    uint64_t n_unread;                 /* files and folders that cannot be read */
} maker;

/* ---- writing ---- */

/* Writes the first line of NAME.jsonl, which is always as long. */
static int write_first_line(maker *m) {
    buffer b = {0};
    int code;
    buffer_format(&b, "{\"index\":%d,\"model\":", (int)INDEX_VERSION);
    buffer_json(&b, m->e.name, strlen(m->e.name));
    buffer_format(&b, ",\"dim\":%d,\"probe\":\"%016llx\",\"rows\":%20llu,\"vectors\":\"%016llx\","
                  "\"passages\":\"%016llx\"}\n", (int)m->e.info.dim,
                  (unsigned long long)m->probe, (unsigned long long)m->n_rows,
                  (unsigned long long)m->rows_hash, (unsigned long long)m->lines_hash);
    code = b.failed ? fail(FAILED, "there is no memory")
                    : file_replace_start(&m->lines, b.p, b.n);
    buffer_free(&b);
    return code;
}

static int write_header(maker *m) {
    char header[NPY_HEADER];
    npy_header(header, "<f4", m->n_rows, (uint64_t)m->e.info.dim);
    return file_replace_start(&m->rows, header, sizeof header);
}

/* Embeds the texts that wait, and writes their rows and lines. */
static int flush(maker *m) {
    const size_t dim = (size_t)m->e.info.dim;
    int code = embedder_run(&m->e, m->texts, m->n_texts, m->vectors);
    int32_t i;
    size_t k;
    for (i = 0; code == DONE && i < m->n_texts; i++) {
        if (m->texts[i].error[0]) code = fail(FAILED, "a passage: %s", m->texts[i].error);
        for (k = 0; k < dim; k++) npy_put_float(m->bytes + 4 * k, m->vectors[(size_t)i * dim + k]);
        fwrite(m->bytes, 4, dim, m->rows.f);
        m->rows_hash = npy_hash(m->rows_hash, m->bytes, 4 * dim);
        text_free(&m->texts[i]);
        m->n_rows++;
    }
    m->n_texts = 0;
    if (m->text_lines.failed) code = fail(FAILED, "there is no memory");
    if (code == DONE && m->text_lines.n)
        fwrite(m->text_lines.p, 1, m->text_lines.n, m->lines.f);
    m->text_lines.n = 0;
    if (code == DONE) code = file_check(&m->rows);
    if (code == DONE) code = file_check(&m->lines);
    progress("%llu files, %llu passages", (unsigned long long)m->n_files,
             (unsigned long long)m->n_rows);
    return code;
}

/* Is it a byte of a character behind its first one? */
static int is_inside(char c) { return ((uint8_t)c & 0xC0) == 0x80; }

/* Adds a passage of UTF-8, with its first words in one line. */
static int add_passage(maker *m, const char *path, const char *file, size_t at, size_t n) {
    text *t = &m->texts[m->n_texts++];
    buffer *line = &m->text_lines;
    const size_t begin = line->n;
    char words[FIRST_WORDS + 1];
    size_t i, used = 0;
    for (i = 0; i < n && used < FIRST_WORDS; i++) {
        const char c = file[at + i];
        const int is_white = strchr(" \t\r\n\v\f", c) != 0;
        if (!is_white || (used && words[used - 1] != ' ')) words[used++] = is_white ? ' ' : c;
    }
    if (i < n && is_inside(file[at + i])) {            /* no part of a character */
        while (is_inside(words[used - 1])) used--;
        used--;
    }
    memset(t, 0, sizeof *t);
    t->p = (char *)malloc(n);
    t->n = n;
    if (!t->p) return fail(FAILED, "there is no memory");
    memcpy(t->p, file + at, n);
    buffer_text(line, "{\"file\":");
    buffer_json(line, path, strlen(path));
    buffer_format(line, ",\"offset\":%llu,\"length\":%llu,\"text\":",
                  (unsigned long long)at, (unsigned long long)n);
    buffer_json(line, words, used);
    buffer_text(line, "}\n");
    if (!line->failed) m->lines_hash = npy_hash(m->lines_hash, line->p + begin, line->n - begin);
    return m->n_texts == BATCH ? flush(m) : DONE;
}

/* ---- the folder ---- */

static int is_at(const file_facts *st, const char *path) {
    file_facts own;
    return !file_look(&own, path, 1) && own.number == st->number && own.device == st->device;
}

/* Is this the index that is made, or the one that it replaces? */
static int is_own(const maker *m, const file_facts *st) {
    return is_at(st, m->rows.path) || is_at(st, m->rows.part) || is_at(st, m->copies.path) ||
           is_at(st, m->copies.part) || is_at(st, m->lines.path) || is_at(st, m->lines.part);
}

/* Is it an unfinished index of another run? Its texts are those of other files. */
static int is_leftover(const maker *m, const char *path) {
    const char *name = file_last_name(path);
    return written_is_leftover(m->rows.path, name, 0) ||
           written_is_leftover(m->copies.path, name, 0) ||
           written_is_leftover(m->lines.path, name, 0);
}

/* Why a file is no text; 0: it is one. */
static const char *not_text(const mapped *f) {
    size_t i, size;
    for (i = 0; i < f->size; i += size) {
        size = bitnet_utf8_decode((const char *)f->p + i, f->size - i, 0);
        if (!size || !f->p[i]) return "it is not UTF-8 text";
    }
    return 0;
}

/* Names what is no part of the index. */
static int skip(const maker *m, const char *path, const char *why) {
    if (!m->is_trial) note("skipped %s: %s", path, why);
    return DONE;
}

/* An index without a file that is there would look complete. The trial names all such files. */
static int cannot_read(maker *m, const char *path, int wrong) {
    if (wrong == ENOENT) return skip(m, path, "it is not there any more");
    m->n_unread++;
    say("cannot read %s: %s", path, strerror(wrong));
    return m->is_trial ? DONE : FAILED;
}

/* Adds the passages of a file that was read. */
static int add_passages(maker *m, const char *path, const mapped *f) {
    const char *why = not_text(f), *p = (const char *)f->p;
    size_t at = utf8_mark(p, f->size), n;
    int code = DONE;
    if (why) return skip(m, path, why);
    m->n_files++;
    while (code == DONE && (n = passage_next(p, f->size, &at)) > 0) {
        code = add_passage(m, path, p, at, n);
        at += n;
    }
    return code;
}

static int add_file(maker *m, const char *path, const file_facts *st) {
    mapped f;
    char why[64];
    int code, wrong;
    if (is_own(m, st)) return DONE;
    if (is_leftover(m, path))
        return skip(m, path, "it is an index that another run has not finished");
    snprintf(why, sizeof why, "it has more than %d MB", FILE_BYTES >> 20);
    if (st->size > FILE_BYTES) return skip(m, path, why);
    if (m->is_trial) return (wrong = file_try(path)) != 0 ? cannot_read(m, path, wrong) : DONE;
    if ((wrong = file_read(&f, path, FILE_BYTES)) != 0) code = cannot_read(m, path, wrong);
    else code = add_passages(m, path, &f);
    file_forget(&f);
    return code;
}

static int add_folder(maker *m, const char *folder, int depth);

static int add_entry(maker *m, const char *path, int depth) {
    file_facts st;
    const int wrong = file_look(&st, path, 0);
    if (wrong) return cannot_read(m, path, wrong);
    if (st.is_folder) return add_folder(m, path, depth + 1);
    if (st.is_file) return add_file(m, path, &st);
    return skip(m, path, "it is neither a file nor a folder");
}

static int add_folder(maker *m, const char *folder, int depth) {
    file_names list;
    size_t i;
    int wrong, code = DONE;
    char why[64];
    snprintf(why, sizeof why, "it is more than %d folders deep", (int)DEPTH);
    if (depth > DEPTH) return skip(m, folder, why);
    if ((wrong = file_list(&list, folder)) != 0) {
        file_forget_names(&list);
        if (depth == 0) return fail(FAILED, "cannot read %s: %s", folder, strerror(wrong));
        return cannot_read(m, folder, wrong);
    }
    for (i = 0; i < list.n; i++) {
        const char *name = list.p[i];
        buffer path = {0};
        if (name[0] == '.') m->n_hidden += !m->is_trial;
        else if (code == DONE) {
            const size_t end = strlen(folder);
            buffer_text(&path, folder);
            if (end && folder[end - 1] != '/') buffer_text(&path, "/");
            buffer_text(&path, name);
            code = path.failed ? fail(FAILED, "there is no memory") : add_entry(m, path.p, depth);
        }
        buffer_free(&path);
    }
    file_forget_names(&list);
    return code;
}

/* ---- the command ---- */

/* Fails unless the file that is replaced, if there is one, is part of an index, too. One of the
   user's own would be lost, and its text would not be in the index. */
static int check_replaced(const written *w, const char *begins) {
    const size_t n = strlen(begins);
    mapped old;
    const int wrong = file_map(&old, w->path);
    const int is_other = !wrong && (old.size < n || memcmp(old.p, begins, n) != 0);
    file_unmap(&old);
    if (wrong && wrong != ENOENT)
        return fail(FAILED, "cannot read %s, which would be replaced: %s", w->path,
                    strerror(wrong));
    return is_other ? fail(FAILED, "cannot write to %s: what is there is no index", w->path) : DONE;
}

static int create_file(written *w, const char *name, const char *ending) {
    char *path = index_path(name, ending);
    int code = path ? file_create(w, path, 0) : fail(FAILED, "there is no memory");
    if (code == DONE)
        code = check_replaced(w, strcmp(ending, ".jsonl") ? "\x93NUMPY" : "{\"index\":");
    free(path);
    return code;
}

static int open_maker(maker *m) {
    int code = embedder_open(&m->e, m->s, 1);
    if (code != DONE) return code;
    m->bytes = (uint8_t *)malloc(4 * (size_t)m->e.info.dim);
    m->vectors = (float *)malloc(4 * BATCH * (size_t)m->e.info.dim);
    if (!m->bytes || !m->vectors) return fail(FAILED, "there is no memory");
    code = create_file(&m->rows, m->s->output, ".npy");
    if (code == DONE) code = create_file(&m->copies, m->s->output, ".i8.npy");
    if (code == DONE) code = create_file(&m->lines, m->s->output, ".jsonl");
    return code;
}

static int begin_files(maker *m) {
    int code = embedder_probe(&m->e, &m->probe);
    if (code == DONE) code = write_header(m);
    return code == DONE ? write_first_line(m) : code;
}

/* Completes the three files, then gives them their names. Names come one after the other; what they
   say of each other shows a search that not all of them have theirs. */
static int end_files(maker *m) {
    uint8_t mark[NPY_MARK];
    int code;
    npy_put_mark(mark, m->rows_hash);
    fwrite(mark, 1, sizeof mark, m->rows.f);
    code = write_header(m);
    if (code == DONE) code = write_first_line(m);
    if (code == DONE) code = file_end(&m->rows);
    if (code == DONE) code = file_end(&m->lines);
    if (code == DONE) code = bounds_write(&m->copies, m->rows.part);
    if (code == DONE) code = file_name(&m->copies);
    if (code == DONE) code = file_name(&m->rows);
    return code == DONE ? file_name(&m->lines) : code;
}

/* Looks for what cannot be read before hours of work. */
static int try_folder(maker *m) {
    int code;
    m->is_trial = 1;
    code = add_folder(m, m->s->words[0], 0);
    m->is_trial = 0;
    if (code == DONE && m->n_unread)
        code = fail(FAILED, "%llu files or folders cannot be read, so there is no new index",
                    (unsigned long long)m->n_unread);
    return code;
}

static int index_folder(maker *m) {
    int code = open_maker(m);
    if (code == DONE) code = try_folder(m);
    if (code == DONE) code = begin_files(m);
    if (code == DONE) code = add_folder(m, m->s->words[0], 0);
    if (code == DONE) code = flush(m);
    if (code == DONE && !m->n_rows)
        code = fail(FAILED, "%s: there is no text in it", m->s->words[0]);
    if (code == DONE) code = end_files(m);
    if (code != DONE) return code;
    if (m->n_hidden)
        note("skipped %llu hidden files and folders", (unsigned long long)m->n_hidden);
    note("%llu passages of %llu files", (unsigned long long)m->n_rows,
         (unsigned long long)m->n_files);
    return DONE;
}

/* Makes the copies alone. */
static int index_npy(const char *npy) {
    written copies;
    int code;
    memset(&copies, 0, sizeof copies);
    code = create_file(&copies, npy, ".i8.npy");
    if (code == DONE) code = bounds_write(&copies, npy);
    if (code == DONE) code = file_name(&copies);
    written_free(&copies);
    return code;
}

int run_index(const settings *s) {
    maker *m;
    int32_t i;
    int code;
    if (!s->model) return index_npy(s->words[0]);
    m = (maker *)calloc(1, sizeof *m);
    if (!m) return fail(FAILED, "there is no memory");
    m->s = s;
    code = index_folder(m);
    for (i = 0; i < m->n_texts; i++) text_free(&m->texts[i]);
    written_free(&m->rows);
    written_free(&m->copies);
    written_free(&m->lines);
    buffer_free(&m->text_lines);
    free(m->bytes);
    free(m->vectors);
    embedder_close(&m->e);
    free(m);
    return code;
}
