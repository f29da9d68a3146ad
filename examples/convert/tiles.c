#include "tiles.h"
#include "files.h"
#include "../json/text.h"
#include "../utf8.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TILES_BYTES = 1 << 16, TILES_LARGEST = 1 << 24 };    /* of a file; a number in it */

/* A number from 1 to high at p; *end is behind it, or p if there is none. */
static int32_t tiles_number(char *p, long high, char **end) {
    const long n = *p >= '0' && *p <= '9' ? strtol(p, end, 10) : 0;
    if (n >= 1 && n <= high) return (int32_t)n;
    *end = p;
    return 0;
}

/* "BM,BK,bm" or "BM,BK"; 0: it is neither. */
static int tiles_parse_one(const char *text, bitnet_tile *out) {
    char copy[64], *p = copy, *end;
    int32_t v[3] = {0, 0, 0};
    int i;
    if (strlen(text) >= sizeof copy) return 0;
    strcpy(copy, text);
    for (i = 0; i < 3; i++) {
        v[i] = tiles_number(p, 65536, &end);
        if (end == p) return 0;
        p = end + 1;
        if (!*end) break;
        if (*end != ',') return 0;
    }
    if (i == 3 || !v[1]) return 0;
    out->rows = v[0];
    out->cols = v[1];
    out->group = v[2];
    return 1;
}

/* ---- kernel_config.ini ---- */

typedef struct tiles_file {
    const char *name;
    int line;
    int32_t v[5];                      /* of the section; 0: missing */
} tiles_file;

static bitnet_result tiles_fail(const tiles_file *f, const char *what, bitnet_error *err) {
    return set_error(err, BITNET_ERR_FORMAT, "%s: line %d: %s", f->name, f->line, what);
}

/* Adds the section that ends here, if there was one. */
static bitnet_result tiles_add(const tiles_file *f, tile_set *out, int in_section,
                               bitnet_error *err) {
    bitnet_shape_tile *t = &out->shapes[out->n_shapes];
    int i;
    if (!in_section) return BITNET_OK;
    for (i = 0; i < 5; i++)
        if (!f->v[i])
            return tiles_fail(f, "the section that ends here lacks one of m, k, bm, bk, bmm", err);
    for (i = 0; i < out->n_shapes; i++)
        if (out->shapes[i].rows == f->v[0] && out->shapes[i].n == f->v[1])
            return tiles_fail(f, "two sections have the same m and k", err);
    if (out->n_shapes == TILES_MAX) return tiles_fail(f, "more than 64 sections", err);
    t->rows = f->v[0];
    t->n = f->v[1];
    t->tile.rows = f->v[2];
    t->tile.cols = f->v[3];
    t->tile.group = f->v[4];
    out->n_shapes++;
    return BITNET_OK;
}

/* "key = number" */
static bitnet_result tiles_read_value(tiles_file *f, char *line, bitnet_error *err) {
    static const char *const keys[] = {"m", "k", "bm", "bk", "bmm"};
    char *equals = strchr(line, '='), *p, *end;
    int i;
    if (!equals) return tiles_fail(f, "this is neither a [section] nor key = number", err);
    *equals = 0;
    line[strcspn(line, " \t")] = 0;
    for (i = 0; i < 5 && strcmp(line, keys[i]); i++) {}
    if (i == 5) return tiles_fail(f, "this key is none of m, k, bm, bk, bmm", err);
    if (f->v[i]) return tiles_fail(f, "this key occurs twice in its section", err);
    p = equals + 1 + strspn(equals + 1, " \t");
    f->v[i] = tiles_number(p, TILES_LARGEST, &end);
    if (end == p || *end) return tiles_fail(f, "this is not a number from 1 to 16777216", err);
    return BITNET_OK;
}

static bitnet_result tiles_parse_file(tiles_file *f, char *text, tile_set *out,
                                      bitnet_error *err) {
    int in_section = 0;
    bitnet_result r;
    for (f->line = 1; text; f->line++) {
        char *line = text + strspn(text, " \t"), *end = line + strcspn(line, "\n");
        text = *end ? end + 1 : 0;
        while (end > line && strchr(" \t\r\n", end[-1])) end--;
        *end = 0;
        if (!*line || *line == '#' || *line == ';') continue;
        if (*line == '[') {
            if ((r = tiles_add(f, out, in_section, err))) return r;
            memset(f->v, 0, sizeof f->v);
            in_section = 1;
        } else if (!in_section) return tiles_fail(f, "no [section] is in front of this", err);
        else if ((r = tiles_read_value(f, line, err))) return r;
    }
    f->line--;                         /* the last one */
    if (!in_section) return tiles_fail(f, "there is no [section]", err);
    return tiles_add(f, out, in_section, err);
}

bitnet_result tiles_read(tile_set *out, const char *text, bitnet_error *err) {
    static char bytes[TILES_BYTES];
    tiles_file f = {0, 0, {0, 0, 0, 0, 0}};
    size_t n;
    FILE *file;
    int bad;
    memset(out, 0, sizeof *out);
    if (tiles_parse_one(text, &out->all)) return BITNET_OK;
    errno = 0;
    if (is_not_a_file(text) || !(file = utf8_fopen(text, "rb")))
        return set_error(err, BITNET_ERR_ARG, "'%.80s' is not a tile such as 128,96,32, and no "
                         "kernel_config.ini either: %s", text,
                         errno ? strerror(errno) : "it is not a file");
    file_note_read(text);
    n = fread(bytes, 1, sizeof bytes, file);
    bad = ferror(file);
    fclose(file);
    if (bad || n == sizeof bytes)
        return set_error(err, BITNET_ERR_IO, "%s: %s", text,
                         bad ? "cannot be read" : "too long for a kernel_config.ini");
    bytes[n] = 0;
    f.name = text;
    return tiles_parse_file(&f, bytes + utf8_mark(bytes, n), out, err);
}

bitnet_tile tiles_find(const tile_set *set, int32_t rows, int32_t n) {
    int i;
    for (i = 0; i < set->n_shapes; i++)
        if (set->shapes[i].rows == rows && set->shapes[i].n == n) return set->shapes[i].tile;
    return set->all;
}
