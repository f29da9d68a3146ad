#include "commands.h"
#include "output.h"
#include "pack.h"
#include <stdlib.h>
#include <string.h>

/* ---- header ---- */

static uint32_t type_out(const bitnet_gguf_tensor *t, const repack_options *o) {
    if (!t->size)
        fail(1, "tensor '%s': unsupported tensor type %u (%s)", t->name, (unsigned)t->type,
             t->type_name ? t->type_name : "unknown");
    if (is_ternary(t)) return o->to.type;
    if (!is_head(t) || !o->wants_head) return t->type;
    if (!is_float(t))
        fail(1, "tensor '%s': --head cannot read type %u (%s)", t->name, (unsigned)t->type,
             t->type_name);
    return o->head_type;
}

/* Copies the keys. Sets general.file_type for a new packing (its numbers differ from the tensor
   types'), and adds a tokenizer.ggml.pre that is missing. */
static void add_keys(const bitnet_gguf *g, int has_ternary, uint32_t type) {
    const uint32_t file_type = type == BITNET_TENSOR_I2_S ? 40 : in_blocks(type) ? type + 2 : type;
    bitnet_gguf_key k, other;
    uint64_t i;
    for (i = 0; !bitnet_gguf_get_key(g, i, &k); i++) {
        if (has_ternary && !strcmp(k.name, "general.file_type"))
            gguf_add_u32(&writer, k.name, file_type);
        else gguf_add_value(&writer, k.name, &k.value);
        if (!strcmp(k.name, "tokenizer.ggml.model") && means_llama_bpe(g) &&
            bitnet_gguf_find_key(g, "tokenizer.ggml.pre", &other))
            gguf_add_string(&writer, "tokenizer.ggml.pre", "llama-bpe");
    }
    if (has_ternary && bitnet_gguf_find_key(g, "general.file_type", &k))
        gguf_add_u32(&writer, "general.file_type", file_type);
}

/* ---- data ---- */

static void write_bytes(const void *p, uint64_t n) {
    if (gguf_write_data(&writer, p, (size_t)n)) fail(1, "%s", writer.err.text);
}

static void write_copy(const bitnet_gguf *g, const bitnet_gguf_tensor *t) {
    uint64_t at, n;
    bytes_in = (uint8_t *)grow(bytes_in, PIECE);
    for (at = 0; at < t->size; at += n) {
        n = t->size - at < PIECE ? t->size - at : PIECE;
        read_bytes(g, t, at, bytes_in, n);
        write_bytes(bytes_in, n);
    }
}

/* Except in blocks, the last 32 bytes contain the scale and are the same in all packings. A scale
   in a tensor of its own is copied with that tensor: then the scale in blocks must be 1. */
static void write_scale(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                        const bitnet_ternary *from, const bitnet_ternary *to, uint64_t size) {
    const int own = has_own_scale(g, t->name);
    bitnet_error err = {BITNET_OK, ""};
    float scale = 1;
    if (!in_blocks(from->type) && !in_blocks(to->type)) {
        memcpy(bytes_out + size - 32, bytes_in + t->size - 32, 32);
        return;
    }
    if (in_blocks(from->type) || !own) scale = scale_of(from, t->name, bytes_in);
    if (in_blocks(from->type) && !in_blocks(to->type) && own && scale != 1)
        fail(1, "tensor '%s': its blocks have the scale %g, and another tensor has a second one; "
             "%s stores only one", t->name, (double)scale, bitnet_tensor_type_name(to->type));
    if (pack_scale(to, scale, bytes_out, &err))
        fail(1, "tensor '%s': %s", t->name, err.text);
}

static void write_ternary(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                          const repack_options *o) {
    const bitnet_ternary from = ternary_of(t, t->type, &o->from);
    const bitnet_ternary to = ternary_of(t, o->to.type, &o->to);
    const uint64_t size = bitnet_tensor_size(to.type, t->n_dims, t->dims);
    bitnet_error err = {BITNET_OK, ""};
    int32_t row, n;
    bytes_in = (uint8_t *)grow(bytes_in, t->size);
    bytes_out = (uint8_t *)grow(bytes_out, size);
    read_bytes(g, t, 0, bytes_in, t->size);
    memset(bytes_out, 0, (size_t)size);
    for (row = 0; row < to.rows; row += n) {
        n = to.rows - row < ROWS ? to.rows - row : ROWS;
        unpack(&from, t->name, bytes_in, row, n, &weights[0]);
        if (pack_ternary(&to, weights[0], row, n, bytes_out, &err))
            fail(1, "tensor '%s': %s", t->name, err.text);
    }
    write_scale(g, t, &from, &to, size);
    write_bytes(bytes_out, size);
}

static void write_head(const bitnet_gguf *g, const bitnet_gguf_tensor *t, uint32_t type) {
    const uint64_t dims[1] = {t->dims[0]};
    const uint64_t row_in = bitnet_tensor_size(t->type, 1, dims);
    const uint64_t row_out = bitnet_tensor_size(type, 1, dims);
    bitnet_error err = {BITNET_OK, ""};
    const int32_t n = (int32_t)t->dims[0];
    float *x = (float *)grow(0, t->dims[0] * sizeof *x);
    uint64_t row, rows = t->dims[1] * t->dims[2] * t->dims[3];
    bytes_in = (uint8_t *)grow(bytes_in, row_in);
    bytes_out = (uint8_t *)grow(bytes_out, row_out);
    for (row = 0; row < rows; row++) {
        read_bytes(g, t, row * row_in, bytes_in, row_in);
        if (bitnet_floats_unpack(t->type, bytes_in, n, x, &err) ||
            pack_floats(type, x, n, bytes_out, &err))
            fail(1, "tensor '%s', row %.0f: %s", t->name, (double)row, err.text);
        write_bytes(bytes_out, row_out);
    }
    free(x);
}

void repack(const char *in, const char *out, const repack_options *o) {
    bitnet_gguf *g = open_input(in);
    bitnet_gguf_tensor t;
    int has_ternary = 0, has_head = 0;
    uint64_t i;
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++) {
        has_ternary |= is_ternary(&t);
        has_head |= is_head(&t);
        if (is_ternary(&t)) ternary_of(&t, o->to.type, &o->to);  /* may fail: better now */
    }
    if (o->wants_ternary && !has_ternary)
        fail(1, "%s: it has no ternary weights", in);
    if (o->wants_head && !has_head)
        fail(1, "%s: --head finds neither token_embd.weight nor output.weight", in);
    output_open(out, in, o->force);
    add_keys(g, has_ternary, o->to.type);
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++)
        gguf_add_tensor(&writer, t.name, type_out(&t, o), t.n_dims, t.dims);
    if (gguf_write_header(&writer)) fail(1, "%s: %s", in, writer.err.text);
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++) {
        const uint32_t type = type_out(&t, o);
        if (is_ternary(&t)) write_ternary(g, &t, o);
        else if (type != t.type) write_head(g, &t, type);
        else write_copy(g, &t);
    }
    bitnet_gguf_close(g);
    if (gguf_write_end(&writer)) fail(1, "%s: %s", out, writer.err.text);
    output_close(o->force);
}
