#define _DEFAULT_SOURCE 1              /* scandir and lstat, also with -std=c99 */
#define _FILE_OFFSET_BITS 64
#include "index.h"
#include "../json/text.h"
#include "../server/buffer.h"
#include "bounds.h"
#include "file.h"
#include "model.h"
#include "npy.h"
#include "passages.h"
#include "say.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
    written npy, jsonl;
    char *i8;                          /* the path of the int8 copies */
    text texts[BATCH];
    int32_t n_texts;
    buffer lines;                      /* of NAME.jsonl, for texts */
    uint8_t *bytes;                    /* [4 * dim] */
    float *vectors;                    /* [BATCH][dim] */
    uint64_t rows, n_files, n_hidden;
} maker;

/* ---- writing ---- */

static int write_first_line(maker *m) {
    uint64_t probe;
    const int code = embedder_probe(&m->e, &probe);
    if (code != DONE) return code;
    buffer_text(&m->lines, "{\"index\":1,\"model\":");
    buffer_json(&m->lines, m->e.name, strlen(m->e.name));
    buffer_format(&m->lines, ",\"dim\":%d,\"probe\":\"%016llx\"}\n", (int)m->e.info.dim,
                  (unsigned long long)probe);
    return DONE;
}

static int begin_rows(maker *m) {
    char header[NPY_HEADER];
    npy_header(header, "<f4", m->rows, (uint64_t)m->e.info.dim);
    if (m->rows) return file_replace_start(&m->npy, header, sizeof header);
    fwrite(header, 1, sizeof header, m->npy.f);
    return file_check(&m->npy);
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
        fwrite(m->bytes, 4, dim, m->npy.f);
        text_free(&m->texts[i]);
        m->rows++;
    }
    m->n_texts = 0;
    if (m->lines.failed) code = fail(FAILED, "there is no memory");
    if (code == DONE && m->lines.n) fwrite(m->lines.p, 1, m->lines.n, m->jsonl.f);
    m->lines.n = 0;
    if (code == DONE) code = file_check(&m->npy);
    if (code == DONE) code = file_check(&m->jsonl);
    progress("%llu files, %llu passages", (unsigned long long)m->n_files,
             (unsigned long long)m->rows);
    return code;
}

/* Is it a byte of a character behind its first one? */
static int is_inside(char c) { return ((uint8_t)c & 0xC0) == 0x80; }

/* Adds a passage of UTF-8, with its first words in one line. */
static int add_passage(maker *m, const char *path, const char *file, size_t at, size_t n) {
    text *t = &m->texts[m->n_texts++];
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
    buffer_text(&m->lines, "{\"file\":");
    buffer_json(&m->lines, path, strlen(path));
    buffer_format(&m->lines, ",\"offset\":%zu,\"length\":%zu,\"text\":", at, n);
    buffer_json(&m->lines, words, used);
    buffer_text(&m->lines, "}\n");
    return m->n_texts == BATCH ? flush(m) : DONE;
}

/* ---- the folder ---- */

/* Is this the index that is made, or the one that it replaces? */
static int is_own(const maker *m, const struct stat *st) {
    const char *all[5];
    struct stat own;
    int i;
    all[0] = m->npy.path;
    all[1] = m->npy.part;
    all[2] = m->jsonl.path;
    all[3] = m->jsonl.part;
    all[4] = m->i8;
    for (i = 0; i < 5; i++)
        if (!stat(all[i], &own) && own.st_ino == st->st_ino && own.st_dev == st->st_dev) return 1;
    return 0;
}

/* Is it an unfinished index of another run? Its texts are those of other files. */
static int is_leftover(const maker *m, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return file_is_leftover(&m->npy, name) || file_is_leftover(&m->jsonl, name);
}

/* Why a file is no text; 0: it is one. */
static const char *not_text(const mapped *f) {
    size_t i, size;
    for (i = 0; i < f->size; i += size) {
        size = utf8_size(f->p + i, f->size - i);
        if (!size || !f->p[i]) return "it is not UTF-8 text";
    }
    return 0;
}

static int add_file(maker *m, const char *path, const struct stat *st) {
    mapped f;
    size_t at = 0, n;
    const char *why = 0;
    int code = DONE, wrong;
    if (is_own(m, st)) return DONE;
    if (is_leftover(m, path)) {
        note("skipped %s: it is an index that another run has not finished", path);
        return DONE;
    }
    if (st->st_size > FILE_BYTES) {
        note("skipped %s: it has more than %d MB", path, FILE_BYTES >> 20);
        return DONE;
    }
    wrong = file_read(&f, path, FILE_BYTES);
    why = wrong ? strerror(wrong) : not_text(&f);
    if (why) note("skipped %s: %s", path, why);
    else m->n_files++;
    while (!why && code == DONE && (n = passage_next((const char *)f.p, f.size, &at)) > 0) {
        code = add_passage(m, path, (const char *)f.p, at, n);
        at += n;
    }
    file_forget(&f);
    return code;
}

static int add_folder(maker *m, const char *folder, int depth);

static int add_entry(maker *m, const char *path, int depth) {
    struct stat st;
    if (lstat(path, &st)) note("skipped %s: %s", path, strerror(errno));
    else if (S_ISDIR(st.st_mode)) return add_folder(m, path, depth + 1);
    else if (S_ISREG(st.st_mode)) return add_file(m, path, &st);
    else note("skipped %s: it is neither a file nor a folder", path);
    return DONE;
}

/* In the order of the names' bytes, so that the same files give the same index. */
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_folder(maker *m, const char *folder, int depth) {
    struct dirent **list = 0;
    int i, n, code = DONE;
    if (depth > DEPTH) {
        note("skipped %s: it is more than %d folders deep", folder, (int)DEPTH);
        return DONE;
    }
    n = scandir(folder, &list, 0, by_name);
    if (n < 0 && depth == 0) return fail(FAILED, "cannot read %s: %s", folder, strerror(errno));
    if (n < 0) note("skipped %s: %s", folder, strerror(errno));
    for (i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        buffer path = {0};
        if (name[0] == '.') m->n_hidden += strcmp(name, ".") && strcmp(name, "..");
        else if (code == DONE) {
            const size_t end = strlen(folder);
            buffer_text(&path, folder);
            if (end && folder[end - 1] != '/') buffer_text(&path, "/");
            buffer_text(&path, name);
            code = path.failed ? fail(FAILED, "there is no memory") : add_entry(m, path.p, depth);
        }
        buffer_free(&path);
        free(list[i]);
    }
    free(list);
    return code;
}

/* ---- the command ---- */

static int open_maker(maker *m) {
    char *npy = index_path(m->s->output, ".npy"), *jsonl = index_path(m->s->output, ".jsonl");
    int code;
    m->i8 = index_path(m->s->output, ".i8.npy");
    if (npy && jsonl && m->i8) code = embedder_open(&m->e, m->s, 1);
    else code = fail(FAILED, "there is no memory");
    if (code == DONE) {
        m->bytes = (uint8_t *)malloc(4 * (size_t)m->e.info.dim);
        m->vectors = (float *)malloc(4 * BATCH * (size_t)m->e.info.dim);
        if (!m->bytes || !m->vectors) code = fail(FAILED, "there is no memory");
    }
    if (code == DONE) code = file_create(&m->npy, npy);
    if (code == DONE) code = file_create(&m->jsonl, jsonl);
    if (code == DONE) code = begin_rows(m);
    if (code == DONE) code = write_first_line(m);
    free(npy);
    free(jsonl);
    return code;
}

/* Gives the three files their names. */
static int close_maker(maker *m) {
    int code = begin_rows(m);
    if (code == DONE) code = file_end(&m->npy);
    if (code == DONE) code = file_end(&m->jsonl);
    if (code == DONE) code = bounds_write(m->npy.part, m->i8);
    if (code == DONE) code = file_name(&m->npy);
    if (code == DONE) code = file_name(&m->jsonl);
    return code;
}

static int index_folder(maker *m) {
    int code = open_maker(m);
    if (code == DONE) code = add_folder(m, m->s->words[0], 0);
    if (code == DONE) code = flush(m);
    if (code == DONE && !m->rows)
        code = fail(FAILED, "%s: there is no text in it", m->s->words[0]);
    if (code == DONE) code = close_maker(m);
    if (code != DONE) return code;
    if (m->n_hidden)
        note("skipped %llu hidden files and folders", (unsigned long long)m->n_hidden);
    note("%llu passages of %llu files", (unsigned long long)m->rows,
         (unsigned long long)m->n_files);
    return DONE;
}

static int index_npy(const char *npy) {
    char *i8 = index_path(npy, ".i8.npy");
    const int code = i8 ? bounds_write(npy, i8) : fail(FAILED, "there is no memory");
    free(i8);
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
    file_free(&m->npy);
    file_free(&m->jsonl);
    buffer_free(&m->lines);
    free(m->i8);
    free(m->bytes);
    free(m->vectors);
    embedder_close(&m->e);
    free(m);
    return code;
}
