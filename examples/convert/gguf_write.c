#include "gguf_write.h"
#include "../json/text.h"
#include <stdlib.h>
#include <string.h>

enum {                                 /* the limits of bitnet.h, which is to read the file */
    GGUF_MAX_ENTRIES = 8192,           /* keys; tensors */
    GGUF_MAX_KEY_NAME = 256, GGUF_MAX_TENSOR_NAME = 64,
    GGUF_MAX_NESTING = 8,              /* arrays of arrays */
    GGUF_MAX_ALIGNMENT = 65536
};

typedef struct gguf_bytes { uint8_t *p; size_t n, room; } gguf_bytes;

/* A key or a tensor: the place of its name in the section's bytes. For a tensor also its size, and
   the place of its data's offset. */
typedef struct gguf_entry {
    size_t name, name_len, offset_at;
    uint64_t size;
} gguf_entry;

/* All keys, or all tensors, as the file has them. */
typedef struct gguf_section {
    gguf_bytes bytes;
    gguf_entry *entries;               /* [n] */
    size_t n, room;
} gguf_section;

struct gguf_header {
    gguf_section keys, tensors;
    uint64_t alignment, total;         /* total: bytes of the file; 0 until the header is written */
    uint64_t left;                     /* bytes that the current tensor still lacks */
    size_t current;
};

static uint64_t gguf_align(uint64_t n, uint64_t alignment) {
    return (n + alignment - 1) / alignment * alignment;
}

/* ---- building the header in memory ---- */

/* Appends n bytes for the caller to fill; 0 if the writer has failed, or fails now. */
static uint8_t *gguf_append(gguf_writer *w, gguf_bytes *b, uint64_t n) {
    if (w->err.code) return 0;
    if (n > b->room - b->n) {
        const size_t room = n < SIZE_MAX / 4 && b->n < SIZE_MAX / 4 ? 2 * (b->n + (size_t)n) + 1024
                                                                    : 0;
        uint8_t *p = room ? (uint8_t *)realloc(b->p, room) : 0;
        if (!p) {
            set_error(&w->err, BITNET_ERR_MEMORY, "no memory for a header of %llu bytes",
                      (unsigned long long)b->n + n);
            return 0;
        }
        b->p = p;
        b->room = room;
    }
    b->n += (size_t)n;
    return b->p + (b->n - (size_t)n);
}

/* The lowest n bytes of v, little-endian. */
static void gguf_store(uint8_t *p, uint64_t v, int n) {
    for (; n > 0; n--, v >>= 8) *p++ = (uint8_t)v;
}

static uint64_t gguf_load(const uint8_t *p, int n) {
    uint64_t v = 0;
    while (n-- > 0) v = v << 8 | p[n];
    return v;
}

static void gguf_append_int(gguf_writer *w, gguf_bytes *b, uint64_t v, int n) {
    uint8_t *p = gguf_append(w, b, (uint64_t)n);
    if (p) gguf_store(p, v, n);
}

static void gguf_append_text(gguf_writer *w, gguf_bytes *b, const void *text, size_t n) {
    uint8_t *p;
    gguf_append_int(w, b, n, 8);
    p = gguf_append(w, b, n);
    if (p && n) memcpy(p, text, n);
}

static int gguf_is_name(const char *name, size_t n, size_t most) {
    size_t step;
    if (n == 0 || n > most) return 0;
    for (; n > 0; n -= step, name += step) {
        step = bitnet_utf8_decode(name, n, 0);
        if (step == 0) return 0;
    }
    return 1;
}

static bitnet_result gguf_begin(gguf_writer *w) {
    if (w->header) return BITNET_OK;
    if (!w->write_fn) return set_error(&w->err, BITNET_ERR_ARG, "the writer has no write_fn");
    w->header = (struct gguf_header *)calloc(1, sizeof *w->header);
    if (!w->header) return set_error(&w->err, BITNET_ERR_MEMORY, "no memory for a header");
    w->header->alignment = 32;
    return BITNET_OK;
}

/* Starts a key or a tensor with its name. Returns its entry; 0 if the writer has failed. */
static gguf_entry *gguf_add_entry(gguf_writer *w, int is_key, const char *name) {
    const char *what = is_key ? "key" : "tensor";
    const size_t len = name ? strlen(name) : 0;
    const size_t most = is_key ? GGUF_MAX_KEY_NAME : GGUF_MAX_TENSOR_NAME;
    gguf_section *s;
    gguf_entry *e;
    size_t i;
    if (gguf_begin(w)) return 0;
    if (!gguf_is_name(name, len, most)) {
        set_error(&w->err, BITNET_ERR_ARG, "a %s's name must have 1 to %d bytes, in UTF-8", what,
                  (int)most);
        return 0;
    }
    s = is_key ? &w->header->keys : &w->header->tensors;
    if (w->header->total || s->n == GGUF_MAX_ENTRIES) {
        set_error(&w->err, BITNET_ERR_ARG, w->header->total
                  ? "%s '%.64s' comes after the header" : "%s '%.64s' is one too many", what, name);
        return 0;
    }
    for (i = 0; i < s->n; i++) {
        e = &s->entries[i];
        if (e->name_len != len || memcmp(s->bytes.p + e->name, name, len)) continue;
        set_error(&w->err, BITNET_ERR_ARG, "there is already a %s '%.64s'", what, name);
        return 0;
    }
    if (s->n == s->room) {
        const size_t room = 2 * s->room + 64;
        e = (gguf_entry *)realloc(s->entries, room * sizeof *e);
        if (!e) {
            set_error(&w->err, BITNET_ERR_MEMORY, "no memory for %d names", (int)room);
            return 0;
        }
        s->entries = e;
        s->room = room;
    }
    gguf_append_text(w, &s->bytes, name, len);
    if (w->err.code) return 0;
    e = &s->entries[s->n++];
    memset(e, 0, sizeof *e);
    e->name = s->bytes.n - len;
    e->name_len = len;
    return e;
}

/* The state of the writer before a call does anything. */
static bitnet_result gguf_state(const gguf_writer *w) { return w ? w->err.code : BITNET_ERR_ARG; }

/* ---- keys ---- */

/* The size of a number or bool, or of the fields in front of a string's bytes or an array's
   elements; 0: the type is unknown. */
static uint32_t gguf_value_size(uint32_t type) {
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
    return type < sizeof sizes ? sizes[type] : 0;
}

/* Moves *at over count elements; 0 if they do not fit into size bytes or have an unknown type. */
static int gguf_skip_elements(uint32_t element, uint64_t count, const uint8_t *p, uint64_t *at,
                              uint64_t size, int depth) {
    const uint32_t fixed = gguf_value_size(element);
    if (!fixed || count > (size - *at) / fixed) return 0;
    if (element != BITNET_GGUF_STRING && element != BITNET_GGUF_ARRAY) {
        *at += count * fixed;
        return 1;
    }
    if (element == BITNET_GGUF_ARRAY && depth == GGUF_MAX_NESTING) return 0;
    for (; count > 0; count--) {
        const uint8_t *head = p + *at;
        if (fixed > size - *at) return 0;
        *at += fixed;
        if (element == BITNET_GGUF_STRING) {
            const uint64_t n = gguf_load(head, 8);
            if (n > size - *at) return 0;
            *at += n;
        } else {
            const uint32_t type = (uint32_t)gguf_load(head, 4);
            if (!gguf_skip_elements(type, gguf_load(head + 4, 8), p, at, size, depth + 1)) return 0;
        }
    }
    return 1;
}

/* Is the value complete, and are its types known? An array's elements must fill it exactly. */
static int gguf_is_value(const bitnet_gguf_value *v) {
    uint64_t at = 0;
    if (!v || !gguf_value_size(v->type) || (!v->data && v->size)) return 0;
    if (v->type == BITNET_GGUF_STRING) return 1;
    if (v->type != BITNET_GGUF_ARRAY) return v->size == gguf_value_size(v->type);
    return gguf_skip_elements(v->element, v->count, v->data, &at, v->size, 0) && at == v->size;
}

/* Starts a key: its name and type, and an array's element type and count. Returns where its data
   goes; 0 if the writer has failed. */
static gguf_bytes *gguf_add_key(gguf_writer *w, const char *name, uint32_t type, uint32_t element,
                                uint64_t count) {
    gguf_bytes *b;
    if (!gguf_add_entry(w, 1, name)) return 0;
    b = &w->header->keys.bytes;
    gguf_append_int(w, b, type, 4);
    if (type == BITNET_GGUF_ARRAY) {
        gguf_append_int(w, b, element, 4);
        gguf_append_int(w, b, count, 8);
    }
    return b;
}

static bitnet_result gguf_set_alignment(gguf_writer *w, const bitnet_gguf_value *v) {
    const uint64_t n = v->type == BITNET_GGUF_U32 ? gguf_load(v->data, 4) : 0;
    if (!n || (n & (n - 1)) || n > GGUF_MAX_ALIGNMENT)
        return set_error(&w->err, BITNET_ERR_ARG, "key 'general.alignment' must be a power of two "
                         "up to %d (U32)", (int)GGUF_MAX_ALIGNMENT);
    w->header->alignment = n;
    return BITNET_OK;
}

bitnet_result gguf_add_value(gguf_writer *w, const char *name, const bitnet_gguf_value *value) {
    gguf_bytes *b;
    uint8_t *p;
    if (gguf_state(w)) return gguf_state(w);
    if (!gguf_is_value(value))
        return set_error(&w->err, BITNET_ERR_ARG, "the value of key '%.64s' does not fit its type",
                         name ? name : "");
    b = gguf_add_key(w, name, value->type, value->element, value->count);
    if (!b) return w->err.code;
    if (!strcmp(name, "general.alignment") && gguf_set_alignment(w, value)) return w->err.code;
    if (value->type == BITNET_GGUF_STRING) gguf_append_int(w, b, value->size, 8);
    p = gguf_append(w, b, value->size);
    /* Only an empty value has no data. NOLINTNEXTLINE */
    if (p && value->size) memcpy(p, value->data, (size_t)value->size);
    return w->err.code;
}

static bitnet_result gguf_add_scalar(gguf_writer *w, const char *name, uint32_t type,
                                     uint32_t bits) {
    bitnet_gguf_value v;
    uint8_t data[4];
    gguf_store(data, bits, 4);
    v.type = type;
    v.element = 0;
    v.count = 1;
    v.size = gguf_value_size(type);
    v.data = data;
    return gguf_add_value(w, name, &v);
}

bitnet_result gguf_add_u32(gguf_writer *w, const char *name, uint32_t v) {
    return gguf_add_scalar(w, name, BITNET_GGUF_U32, v);
}

bitnet_result gguf_add_f32(gguf_writer *w, const char *name, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return gguf_add_scalar(w, name, BITNET_GGUF_F32, bits);
}

bitnet_result gguf_add_bool(gguf_writer *w, const char *name, int v) {
    return gguf_add_scalar(w, name, BITNET_GGUF_BOOL, v != 0);
}

bitnet_result gguf_add_string(gguf_writer *w, const char *name, const char *text) {
    bitnet_gguf_value v;
    v.type = BITNET_GGUF_STRING;
    v.element = 0;
    v.count = 1;
    v.size = text ? strlen(text) : 1;  /* a size without data is refused */
    v.data = (const uint8_t *)text;
    return gguf_add_value(w, name, &v);
}

/* An array of n 32-bit numbers. */
static bitnet_result gguf_add_words(gguf_writer *w, const char *name, uint32_t element,
                                    const void *v, uint64_t n) {
    const uint8_t *from = (const uint8_t *)v;
    gguf_bytes *b;
    uint32_t bits;
    uint8_t *p;
    if (gguf_state(w)) return gguf_state(w);
    if ((!v && n) || n > SIZE_MAX / 8)
        return set_error(&w->err, BITNET_ERR_ARG, "key '%.64s' has no values", name ? name : "");
    b = gguf_add_key(w, name, BITNET_GGUF_ARRAY, element, n);
    p = b ? gguf_append(w, b, n * 4) : 0;
    for (; p && n > 0; n--, p += 4, from += 4) {
        memcpy(&bits, from, 4);
        gguf_store(p, bits, 4);
    }
    return w->err.code;
}

bitnet_result gguf_add_i32s(gguf_writer *w, const char *name, const int32_t *v, uint64_t n) {
    return gguf_add_words(w, name, BITNET_GGUF_I32, v, n);
}

bitnet_result gguf_add_f32s(gguf_writer *w, const char *name, const float *v, uint64_t n) {
    return gguf_add_words(w, name, BITNET_GGUF_F32, v, n);
}

bitnet_result gguf_add_strings(gguf_writer *w, const char *name, const char *const *texts,
                               const size_t *lengths, uint64_t n) {
    gguf_bytes *b;
    uint64_t i;
    if (gguf_state(w)) return gguf_state(w);
    for (i = 0; i < n && texts && texts[i]; i++) {}
    if (i < n)
        return set_error(&w->err, BITNET_ERR_ARG, "key '%.64s' has no string %llu",
                         name ? name : "", (unsigned long long)i);
    b = gguf_add_key(w, name, BITNET_GGUF_ARRAY, BITNET_GGUF_STRING, n);
    for (i = 0; b && i < n && !w->err.code; i++)
        gguf_append_text(w, b, texts[i], lengths ? lengths[i] : strlen(texts[i]));
    return w->err.code;
}

/* ---- tensors ---- */

bitnet_result gguf_add_tensor(gguf_writer *w, const char *name, uint32_t type, int32_t n_dims,
                              const uint64_t *dims) {
    return gguf_add_tensor_as(w, name, type, type, n_dims, dims);
}

bitnet_result gguf_add_tensor_as(gguf_writer *w, const char *name, uint32_t type, uint32_t number,
                                 int32_t n_dims, const uint64_t *dims) {
    const uint64_t size = bitnet_tensor_size(type, n_dims, dims);
    const char *type_name = bitnet_tensor_type_name(type);
    gguf_bytes *b;
    gguf_entry *e;
    int32_t i;
    if (gguf_state(w)) return gguf_state(w);
    if (size == 0)
        return set_error(&w->err, BITNET_ERR_ARG, "tensor '%.64s': type %u (%s) cannot have its "
                         "shape", name ? name : "", (unsigned)type,
                         type_name ? type_name : "unknown");
    e = gguf_add_entry(w, 0, name);
    if (!e) return w->err.code;
    b = &w->header->tensors.bytes;
    e->size = size;
    gguf_append_int(w, b, (uint64_t)n_dims, 4);
    for (i = 0; i < n_dims; i++) gguf_append_int(w, b, dims[i], 8);
    gguf_append_int(w, b, number, 4);
    e->offset_at = b->n;
    gguf_append_int(w, b, 0, 8);
    return w->err.code;
}

/* ---- writing ---- */

static bitnet_result gguf_write(gguf_writer *w, const void *p, size_t n) {
    if (!w->err.code && n > 0 && w->write_fn(w->ud, p, n))
        return set_error(&w->err, BITNET_ERR_IO, "write_fn could not write %llu bytes",
                         (unsigned long long)n);
    return w->err.code;
}

/* Zeros after n bytes, up to the next multiple of the alignment. */
static void gguf_write_padding(gguf_writer *w, uint64_t n) {
    static const uint8_t zeros[256] = {0};
    uint64_t pad = gguf_align(n, w->header->alignment) - n;
    while (pad > 0 && !w->err.code) {
        const size_t part = pad < sizeof zeros ? (size_t)pad : sizeof zeros;
        gguf_write(w, zeros, part);
        pad -= part;
    }
}

bitnet_result gguf_write_header(gguf_writer *w) {
    struct gguf_header *h = w ? w->header : 0;
    uint8_t head[24];
    uint64_t size, at = 0;
    size_t i;
    if (gguf_state(w)) return gguf_state(w);
    if (!h) return set_error(&w->err, BITNET_ERR_ARG, "the header has neither keys nor tensors");
    if (h->total) return set_error(&w->err, BITNET_ERR_ARG, "the header is written already");
    for (i = 0; i < h->tensors.n; i++) {
        const gguf_entry *e = &h->tensors.entries[i];
        gguf_store(h->tensors.bytes.p + e->offset_at, at, 8);
        at += gguf_align(e->size, h->alignment);
    }
    size = sizeof head + h->keys.bytes.n + h->tensors.bytes.n;
    h->total = gguf_align(size, h->alignment) + at;
    memcpy(head, "GGUF\3\0\0", 8);
    gguf_store(head + 8, h->tensors.n, 8);
    gguf_store(head + 16, h->keys.n, 8);
    gguf_write(w, head, sizeof head);
    gguf_write(w, h->keys.bytes.p, h->keys.bytes.n);
    gguf_write(w, h->tensors.bytes.p, h->tensors.bytes.n);
    gguf_write_padding(w, size);
    h->left = h->tensors.n ? h->tensors.entries[0].size : 0;
    return w->err.code;
}

/* Reports that the current tensor, which lacks h->left bytes, got n. */
static bitnet_result gguf_fail_data(gguf_writer *w, size_t n) {
    const struct gguf_header *h = w->header;
    const gguf_entry *e;
    if (h->current == h->tensors.n)
        return set_error(&w->err, BITNET_ERR_ARG, "all tensors are complete, but %llu more bytes "
                         "came", (unsigned long long)n);
    e = &h->tensors.entries[h->current];
    return set_error(&w->err, BITNET_ERR_ARG, "tensor '%.*s' lacks %llu bytes; %llu came",
                     (int)e->name_len, (const char *)h->tensors.bytes.p + e->name,
                     (unsigned long long)h->left, (unsigned long long)n);
}

bitnet_result gguf_write_data(gguf_writer *w, const void *p, size_t n) {
    struct gguf_header *h = w ? w->header : 0;
    if (gguf_state(w)) return gguf_state(w);
    if (!h || !h->total) return set_error(&w->err, BITNET_ERR_ARG, "data comes before the header");
    if (n > h->left || (!p && n)) return gguf_fail_data(w, n);
    gguf_write(w, p, n);
    h->left -= n;
    if (h->left || w->err.code || !n) return w->err.code;
    gguf_write_padding(w, h->tensors.entries[h->current++].size);
    if (h->current < h->tensors.n) h->left = h->tensors.entries[h->current].size;
    return w->err.code;
}

bitnet_result gguf_write_end(gguf_writer *w) {
    const struct gguf_header *h = w ? w->header : 0;
    if (!w) return BITNET_ERR_ARG;
    if (!w->err.code && (!h || !h->total))
        set_error(&w->err, BITNET_ERR_ARG, "no header was written");
    else if (!w->err.code && h->left) gguf_fail_data(w, 0);
    gguf_writer_free(w);
    return w->err.code;
}

void gguf_writer_free(gguf_writer *w) {
    if (!w || !w->header) return;
    free(w->header->keys.bytes.p);
    free(w->header->keys.entries);
    free(w->header->tensors.bytes.p);
    free(w->header->tensors.entries);
    free(w->header);
    w->header = 0;
}

uint64_t gguf_writer_total(const gguf_writer *w) {
    return w && w->header ? w->header->total : 0;
}
