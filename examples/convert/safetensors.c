#include "safetensors.h"
#include "files.h"
#include "../json/text.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A header of the largest model that hf.h allows, 1000 layers, has under 10 MB. One that consists
   of nothing but "[[[[..." takes 21 times its size in memory. */
enum { ST_MAX_HEADER = 16 << 20, ST_MAX_FILES = 1000 };

/* ---- files ---- */

bitnet_result st_read(const st_model *m, const st_tensor *t, uint64_t at, void *out,
                      size_t n, bitnet_error *err) {
    const st_file *file = &m->files[t->file];
    int reason;
    errno = 0;
    if (!file_seek(file->f, t->offset + at) && fread(out, 1, n, file->f) == n) return BITNET_OK;
    reason = feof(file->f) ? 0 : errno;
    return set_error(err, BITNET_ERR_IO, "%s: tensor '%.*s' cannot be read at offset %llu: %s",
                     file->header.name, (int)t->name_len, t->name,
                     (unsigned long long)(t->offset + at),
                     reason ? strerror(reason) : "the file has become shorter");
}

void st_close(st_model *m) {
    uint32_t i;
    for (i = 0; i < m->n_files; i++) {
        if (m->files[i].f) fclose(m->files[i].f);
        json_free(&m->files[i].header);
    }
    json_free(&m->index);
    free(m->files);
    free(m->tensors);
    memset(m, 0, sizeof *m);
}

/* ---- a file's header ---- */

bitnet_result st_fail(const st_model *m, const st_tensor *t, const char *what,
                      bitnet_error *err) {
    const st_file *file = &m->files[t->file];
    return set_error(err, BITNET_ERR_FORMAT, "%s: tensor '%.*s' at offset %llu: %s",
                     file->header.name, t->name_len < 64 ? (int)t->name_len : 64, t->name,
                     (unsigned long long)t->offset, what);
}

/* The size of an element; 0: an unknown type. */
static uint32_t st_item(const char *dtype) {
    static const char sizes[][12] = {
        "1BOOL", "1U8", "1I8", "1F8_E4M3", "1F8_E5M2", "1F8_E8M0", "2U16", "2I16", "2F16", "2BF16",
        "4U32", "4I32", "4F32", "8U64", "8I64", "8F64", "8C64"
    };
    size_t i;
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!strcmp(dtype, sizes[i] + 1)) return (uint32_t)(sizes[i][0] - '0');
    return 0;
}

/* Reads a header's entry: an object with exactly dtype, shape and data_offsets. */
static bitnet_result st_add_tensor(st_model *m, const json *j, uint32_t key, st_tensor *t,
                                   bitnet_error *err) {
    const st_file *file = &m->files[t->file];
    const uint32_t value = key + 1, dtype = json_get(j, value, "dtype");
    const uint32_t shape = json_get(j, value, "shape"), range = json_get(j, value, "data_offsets");
    const uint64_t space = file->size - file->data;
    uint64_t from, to, product = 1;
    uint32_t i;
    t->name = j->text + j->nodes[key].at;
    t->name_len = j->nodes[key].len;
    t->offset = j->nodes[key].at + 7;  /* of its entry, until its data's is known: 8 less a quote */
    if (!dtype || !shape || !range || j->nodes[value].n != 3 ||
        j->nodes[dtype].type != JSON_STRING || j->nodes[shape].type != JSON_ARRAY ||
        j->nodes[range].type != JSON_ARRAY || j->nodes[range].n != 2)
        return st_fail(m, t, "it must have dtype, shape and data_offsets, and nothing else", err);
    snprintf(t->dtype, sizeof t->dtype, "%.*s", (int)j->nodes[dtype].len,
             j->text + j->nodes[dtype].at);
    if (!(t->item = json_is(j, dtype, t->dtype) ? st_item(t->dtype) : 0))
        return set_error(err, BITNET_ERR_UNSUPPORTED, "%s: tensor '%.*s': dtype '%s' is not "
                         "supported", j->name, t->name_len < 64 ? (int)t->name_len : 64, t->name,
                         t->dtype);
    t->n_dims = j->nodes[shape].n;
    if (t->n_dims > ST_MAX_DIMS) return st_fail(m, t, "more than 8 dimensions", err);
    for (i = 0; i < t->n_dims; i++) {
        if (!json_uint(j, shape + 1 + i, &t->dims[i]))
            return st_fail(m, t, "a dimension is not an integer of 64 bits", err);
        if (t->dims[i] && product > UINT64_MAX / 8 / t->dims[i])
            return st_fail(m, t, "its shape is too large", err);
        product *= t->dims[i];
    }
    if (!json_uint(j, range + 1, &from) || !json_uint(j, range + 2, &to))
        return st_fail(m, t, "an offset is not an integer of 64 bits", err);
    if (from > to || to > space) return st_fail(m, t, "its data is outside the file", err);
    t->n = product;
    t->size = to - from;
    t->offset = file->data + from;
    if (product * t->item != t->size)
        return st_fail(m, t, "the size of its data does not match its shape and dtype", err);
    return BITNET_OK;
}

static int st_by_offset(const void *a, const void *b) {
    const st_tensor *x = (const st_tensor *)a, *y = (const st_tensor *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;           /* empty ones first */
}

static int st_compare(const st_tensor *t, const char *name, uint32_t len) {
    const int c = memcmp(t->name, name, t->name_len < len ? t->name_len : len);
    return c ? c : t->name_len < len ? -1 : t->name_len > len;
}

static int st_by_name(const void *a, const void *b) {
    const st_tensor *y = (const st_tensor *)b;
    return st_compare((const st_tensor *)a, y->name, y->name_len);
}

/* Opens the file of that name in the folder and adds its tensors. */
static bitnet_result st_add_file(st_model *m, const char *name, bitnet_error *err) {
    st_file *file = &m->files[m->n_files];
    json *j = &file->header;
    uint8_t length[8];
    uint32_t i, node = JSON_ROOT + 1, first = m->n_tensors;
    uint64_t end, n;
    bitnet_result r;
    memset(file, 0, sizeof *file);
    if ((r = file_open(m->dir, name, 0, &file->f, &file->size, err))) return r;
    m->n_files++;
    setvbuf(file->f, 0, _IONBF, 0);
    if (file->size < 8 || fread(length, 1, 8, file->f) != 8)
        return set_error(err, BITNET_ERR_TRUNCATED, "%s is not a safetensors file", name);
    for (i = 8, n = 0; i-- > 0;) n = n << 8 | length[i];
    if (n > file->size - 8 || n > ST_MAX_HEADER)
        return set_error(err, BITNET_ERR_FORMAT, "%s: offset 0: a header of %llu bytes is "
                         "longer than %s", name, (unsigned long long)n,
                         n > ST_MAX_HEADER ? "16 MB" : "the file");
    file->data = end = 8 + n;
    if ((r = file_parse(file->f, name, 8, n, j, err))) return r;
    if (j->nodes[JSON_ROOT].type != JSON_OBJECT || j->text[0] != '{')
        return json_fail(j, 0, "the header does not begin with '{'", err);
    for (i = 0; i < j->nodes[JSON_ROOT].n; i++, node = j->nodes[node + 1].next) {
        st_tensor *t;
        if (json_is(j, node, "__metadata__")) continue;
        if (m->n_tensors == m->cap) {
            const uint32_t cap = m->cap ? 2 * m->cap : 512;
            st_tensor *more = (st_tensor *)realloc(m->tensors, cap * sizeof *more);
            if (!more) return set_error(err, BITNET_ERR_MEMORY, "no memory for tensors");
            m->tensors = more;
            m->cap = cap;
        }
        t = &m->tensors[m->n_tensors++];
        memset(t, 0, sizeof *t);
        t->file = m->n_files - 1;
        if ((r = st_add_tensor(m, j, node, t, err))) return r;
    }
    if (m->n_tensors > first)          /* without any, tensors is 0 */
        qsort(m->tensors + first, m->n_tensors - first, sizeof *m->tensors, st_by_offset);
    for (i = first; i < m->n_tensors; end = m->tensors[i].offset + m->tensors[i].size, i++)
        if (m->tensors[i].offset != end)
            return st_fail(m, &m->tensors[i], m->tensors[i].offset < end
                           ? "its data overlaps another tensor's"
                           : "there is a hole before its data", err);
    if (end != file->size)
        return set_error(err, BITNET_ERR_FORMAT, "%s: no tensor owns the bytes from offset %llu on",
                         name, (unsigned long long)end);
    return BITNET_OK;
}

/* ---- all files ---- */

st_tensor *st_find(const st_model *m, const char *name, uint32_t len) {
    uint32_t low = 0, high = m->n_tensors;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int c = st_compare(&m->tensors[middle], name, len);
        if (c == 0) return &m->tensors[middle];
        if (c < 0) low = middle + 1; else high = middle;
    }
    return 0;
}

/* Sorts the tensors by name; a name must be unique. */
static bitnet_result st_sort(st_model *m, bitnet_error *err) {
    uint32_t i;
    if (m->n_tensors) qsort(m->tensors, m->n_tensors, sizeof *m->tensors, st_by_name);
    for (i = 1; i < m->n_tensors; i++)
        if (!st_by_name(&m->tensors[i - 1], &m->tensors[i]))
            return st_fail(m, &m->tensors[i], "it is also in another file", err);
    return BITNET_OK;
}

/* Finds the shard that an entry of weight_map names; opens it the first time. */
static bitnet_result st_shard(st_model *m, uint32_t value, uint32_t *file, bitnet_error *err) {
    const json *j = &m->index;
    const json_node *s = &j->nodes[value];
    char name[128];
    uint32_t i;
    snprintf(name, sizeof name, "%.*s", (int)s->len, j->text + s->at);
    if (!json_is(j, value, name) || !s->len || strpbrk(name, "/\\:") || name[0] == '.')
        return json_fail(j, s->at, "this is not the name of a file in the same folder", err);
    for (i = 0; i < m->n_files; i++) {                           /* most often the last one */
        *file = m->n_files - 1 - i;
        if (!strcmp(m->files[*file].header.name, name)) return BITNET_OK;
    }
    if (m->n_files == ST_MAX_FILES) return json_fail(j, s->at, "more than 1000 shards", err);
    *file = m->n_files;
    return st_add_file(m, name, err);
}

/* Neither model.safetensors nor its index. What else is there says why. */
static bitnet_result st_fail_missing(const st_model *m, bitnet_error *err) {
    static const struct { const char *file, *why; } others[] = {
        {"adapter_config.json", ", but adapter_config.json: an adapter has to be merged into its "
         "model first"},
        {"pytorch_model.bin", ", but pytorch_model.bin, which is not read; save the model as "
         "safetensors"},
        {"pytorch_model.bin.index.json", ", but pytorch_model.bin.index.json, whose files are not "
         "read; save the model as safetensors"}
    };
    const char *why = "";
    size_t i;
    for (i = 0; i < sizeof others / sizeof others[0] && !*why; i++)
        if (file_exists(m->dir, others[i].file)) why = others[i].why;
    return set_error(err, BITNET_ERR_IO, "there is neither model.safetensors nor "
                     "model.safetensors.index.json%s", why);
}

static bitnet_result st_open_shards(st_model *m, bitnet_error *err) {
    json *j = &m->index;
    uint32_t map, node, i, file = 0, pass;
    bitnet_result r = file_load_json(m->dir, "model.safetensors.index.json", 1, j, err);
    if (r) return r;
    if (!j->n_nodes) return st_fail_missing(m, err);
    map = json_get(j, JSON_ROOT, "weight_map");
    if (!map || j->nodes[map].type != JSON_OBJECT) return json_fail(j, 0, "no weight_map", err);
    for (pass = 0; pass < 2; pass++) {                           /* 0 opens, 1 compares */
        for (i = 0, node = map + 1; i < j->nodes[map].n; i++, node = j->nodes[node + 1].next) {
            const json_node *key = &j->nodes[node];
            st_tensor *t;
            if ((r = st_shard(m, node + 1, &file, err))) return r;
            if (!pass) continue;
            t = st_find(m, j->text + key->at, key->len);
            if (!t || t->file != file)
                return set_error(err, BITNET_ERR_FORMAT, "%s: offset %u: tensor '%.*s' is not "
                                 "in %s", j->name, (unsigned)key->at - 1,
                                 key->len < 64 ? (int)key->len : 64, j->text + key->at,
                                 m->files[file].header.name);
            t->mapped = 1;
        }
        if (!pass && (r = st_sort(m, err))) return r;
    }
    for (i = 0; i < m->n_tensors; i++)
        if (!m->tensors[i].mapped)
            return st_fail(m, &m->tensors[i], "it is missing in weight_map", err);
    return BITNET_OK;
}

bitnet_result st_open(st_model *m, const char *dir, bitnet_error *err) {
    uint64_t size;
    FILE *f;
    bitnet_result r;
    memset(m, 0, sizeof *m);
    m->dir = dir;
    if (!(m->files = (st_file *)calloc(ST_MAX_FILES, sizeof *m->files)))
        return set_error(err, BITNET_ERR_MEMORY, "no memory for a list of files");
    if ((r = file_open(dir, "model.safetensors", 1, &f, &size, err))) return r;
    if (!f) return st_open_shards(m, err);
    fclose(f);
    r = st_add_file(m, "model.safetensors", err);
    return r ? r : st_sort(m, err);
}
