#include "input.h"
#include "files.h"
#include "output.h"
#include "pack.h"
#include <stdlib.h>
#include <string.h>

uint8_t *bytes_in, *bytes_out;
int8_t *weights[2];

void free_buffers(void) {
    free(bytes_in);
    free(bytes_out);
    free(weights[0]);
    free(weights[1]);
}

bitnet_gguf *open_input(const char *path) {
    bitnet_error err = {0};
    bitnet_gguf *g = 0;
    if (is_not_a_file(path)) fail(1, "%s: this is not a file", path);
    if (bitnet_gguf_open_file(path, 0, &g, &err)) {
        if (strstr(err.text, path)) fail(1, "%s", err.text);   /* it could not be opened */
        if (file_is_pointer(path)) fail(1, "%s: %s", path, FILE_POINTER);
        fail(1, "%s: %s", path, err.text);
    }
    file_note_read(path);
    return g;
}

/* A key that is a small number; -1: it is missing. */
static long small_number(const bitnet_gguf *g, const char *name) {
    bitnet_gguf_key k;
    char text[128];
    if (bitnet_gguf_find_key(g, name, &k) || k.value.type == BITNET_GGUF_STRING ||
        k.value.type == BITNET_GGUF_ARRAY || bitnet_gguf_text(&k.value, text, sizeof text) < 0)
        return -1;
    return strtol(text, 0, 10);
}

int is_part(const bitnet_gguf *g, char text[160]) {
    const long count = small_number(g, "split.count"), no = small_number(g, "split.no");
    if (count <= 1) return 0;
    snprintf(text, 160, "this is part %ld of a file split in %ld (keys split.no and split.count); "
             "join them first: llama-gguf-split --merge", no + 1, count);
    return 1;
}

bitnet_gguf *open_whole(const char *path) {
    bitnet_gguf *g = open_input(path);
    char text[160];
    if (is_part(g, text)) fail(1, "%s: %s", path, text);
    return g;
}

void read_bytes(const bitnet_gguf *g, const bitnet_gguf_tensor *t, uint64_t at, void *to,
                uint64_t n) {
    bitnet_error err = {0};
    stop_if_interrupted();
    if (bitnet_gguf_read(g, t, at, to, (size_t)n, &err)) fail(1, "%s", err.text);
}

int is_type(const bitnet_gguf_tensor *t, uint32_t type) {
    return t->type == type && t->type_name &&
           !strcmp(t->type_name, bitnet_tensor_type_name(type));
}

int in_blocks(uint32_t type) { return pack_group(type) > 0; }

int is_float(const bitnet_gguf_tensor *t) {
    const uint8_t none = 0;
    float x;
    return bitnet_floats_unpack(t->type, &none, 0, &x, 0) == BITNET_OK;
}

int is_head(const bitnet_gguf_tensor *t) {
    return !strcmp(t->name, "token_embd.weight") || !strcmp(t->name, "output.weight");
}

/* The embedding of other programs' files may also be in blocks. */
int is_ternary(const bitnet_gguf_tensor *t) {
    return !is_head(t) && (is_type(t, BITNET_TENSOR_I2_S) || is_type(t, BITNET_TENSOR_TL1) ||
                           is_type(t, BITNET_TENSOR_TL2) || is_type(t, BITNET_TENSOR_TL2_R16) ||
                           in_blocks(t->type));
}

int is_layer(const bitnet_gguf_tensor *t) {
    static const char *const names[] = {
        "attn_q", "attn_k", "attn_v", "attn_output", "attn_qkv", "attn_gate", "ssm_out", "ffn_gate",
        "ffn_up", "ffn_down"
    };
    const char *p = t->name + 4;
    size_t i, n;
    if (strncmp(t->name, "blk.", 4) || *p < '0' || *p > '9') return 0;
    while (*p >= '0' && *p <= '9') p++;
    for (i = 0; *p == '.' && i < sizeof names / sizeof names[0]; i++) {
        n = strlen(names[i]);
        if (!strncmp(p + 1, names[i], n) && !strcmp(p + 1 + n, ".weight")) return 1;
    }
    return 0;
}

int key_is(const bitnet_gguf *g, const char *name, const char *text) {
    bitnet_gguf_key k;
    size_t n = strlen(text);
    const int begins = text[n - 1] == '*';
    n -= begins ? 1 : 0;
    return !bitnet_gguf_find_key(g, name, &k) && k.value.type == BITNET_GGUF_STRING &&
           (begins ? k.value.size >= n : k.value.size == n) && !memcmp(k.value.data, text, n);
}

int means_llama_bpe(const bitnet_gguf *g) {
    return key_is(g, "general.architecture", "bitnet*") &&
           key_is(g, "tokenizer.ggml.model", "gpt2");
}

/* The library names a field of its parameters, where the user has an option. */
static void fail_with_hint(const char *text, const packing *p) {
    static const char *const fields[] = {"(see tile)", "(see i2s_packing)"};
    int i;
    for (i = 0; i < 2; i++) {
        const char *at = strstr(text, fields[i]), *option = i ? p->i2s_option : p->tile_option;
        if (at && option)
            fail(1, "%.*s(see %s)%s", (int)(at - text), text, option, at + strlen(fields[i]));
    }
    fail(1, "%s", text);
}

bitnet_ternary ternary_of(const bitnet_gguf_tensor *t, uint32_t type, const packing *p) {
    bitnet_error err = {0};
    bitnet_ternary m;
    const uint64_t rows = t->dims[1] * t->dims[2] * t->dims[3];
    memset(&m, 0, sizeof m);
    if (t->dims[0] > INT32_MAX || rows > INT32_MAX) fail(1, "tensor '%s' is too large", t->name);
    m.type = type;
    m.n = (int32_t)t->dims[0];
    m.rows = (int32_t)rows;
    m.i2s_packing = type == BITNET_TENSOR_I2_S ? p->i2s_packing : BITNET_I2S_128;
    if (type == BITNET_TENSOR_TL1 || type == BITNET_TENSOR_TL2)
        m.tile = tiles_find(&p->tiles, m.rows, m.n);
    if (bitnet_ternary_check(&m, t->name, &err)) fail_with_hint(err.text, p);
    return m;
}

void unpack(const bitnet_ternary *m, const packing *p, const char *name, const uint8_t *data,
            int32_t row, int32_t n, int8_t **out) {
    char text[sizeof(bitnet_error) + 256];
    bitnet_error err = {0};
    *out = (int8_t *)grow(*out, (uint64_t)ROWS * (uint64_t)m->n);
    if (!bitnet_ternary_unpack(m, data, row, n, *out, &err)) {
        pack_clear(m, data, row, n, *out);
        return;
    }
    snprintf(text, sizeof text, "tensor '%s': %s", name, err.text);
    fail_with_hint(text, p);
}

int has_own_scale(const bitnet_gguf *g, const char *name) {
    bitnet_gguf_tensor t;
    char other[300];
    const int n = (int)strlen(name) - 7;               /* without ".weight" */
    if (n < 0 || strcmp(name + n, ".weight")) return 0;
    snprintf(other, sizeof other, "%.*s.scale", n, name);
    if (!bitnet_gguf_find_tensor(g, other, &t)) return 1;
    snprintf(other, sizeof other, "%s_scale", name);
    return !bitnet_gguf_find_tensor(g, other, &t);
}

float read_scale(const bitnet_gguf *g, const bitnet_gguf_tensor *t, bitnet_error *err) {
    const uint64_t size = in_blocks(t->type) ? t->size : 32;
    float scale = 0;
    bytes_in = (uint8_t *)grow(bytes_in, size);
    read_bytes(g, t, t->size - size, bytes_in, size);
    if (in_blocks(t->type)) {
        packing unused;
        bitnet_ternary m;
        memset(&unused, 0, sizeof unused);
        m = ternary_of(t, t->type, &unused);
        pack_find_scale(&m, bytes_in, &scale, err);
    } else bitnet_floats_unpack(BITNET_TENSOR_F32, bytes_in, 1, &scale, err);
    return scale;
}

float scale_of(const bitnet_ternary *m, const char *name, const uint8_t *data) {
    bitnet_error err = {0};
    float scale = 0;
    if (in_blocks(m->type) ? pack_find_scale(m, data, &scale, &err)
                           : bitnet_ternary_scale(m, data, &scale, &err))
        fail(1, "tensor '%s': %s", name, err.text);
    return scale;
}
