/* convert_gguf.h - a part of convert.c: from one GGUF file to another. */

/* How ternary weights are packed: in the input (or --verify's A), in the output (or B). */
typedef struct packing {
    uint32_t type;
    bitnet_i2s_layout i2s_layout;
    bitnet_tile tile;
} packing;

static packing packing_in = {BITNET_TENSOR_I2_S, BITNET_I2S_128, {0, 0, 0}};
static packing packing_out = {BITNET_TENSOR_I2_S, BITNET_I2S_128, {0, 0, 0}};
static uint32_t head_type;
static int converts_ternary, converts_head;    /* asked for in so many words */
static uint8_t *bytes_in, *bytes_out;  /* a tensor's, or some rows'; they grow */
static int8_t *weights[2];             /* [ROWS][n]; --verify uses both */
enum { ROWS = 32, PIECE = 1 << 20 };

static void *grow(void *p, uint64_t size) {
    p = size < SIZE_MAX ? realloc(p, size ? (size_t)size : 1) : 0;
    if (!p) fail(1, "out of memory");
    return p;
}

static bitnet_gguf *open_input(const char *path) {
    bitnet_error err = {BITNET_OK, ""};
    bitnet_gguf *g = 0;
    if (is_no_file(path)) fail(1, "%s: that is no file", path);
    if (bitnet_gguf_open_file(path, 0, &g, &err)) {
        if (strstr(err.text, path)) fail(1, "%s", err.text);   /* it cannot be opened */
        fail(1, "%s: %s", path, err.text);
    }
    return g;
}

static void read_bytes(const bitnet_gguf *g, const bitnet_gguf_tensor *t, uint64_t at, void *to,
                       uint64_t n) {
    bitnet_error err = {BITNET_OK, ""};
    stop_if_interrupted();
    if (bitnet_gguf_read(g, t, at, to, (size_t)n, &err)) fail(1, "%s", err.text);
}

static int is_type(const bitnet_gguf_tensor *t, uint32_t type) {
    return t->type == type && t->type_name &&
           !strcmp(t->type_name, bitnet_tensor_type_name(type));     /* 39: TL2, or MXFP4 */
}

static int in_blocks(uint32_t type) {
    return type == BITNET_TENSOR_TQ1_0 || type == BITNET_TENSOR_TQ2_0;
}

static int is_float(const bitnet_gguf_tensor *t) {
    switch (t->type) {
        case BITNET_TENSOR_F32: case BITNET_TENSOR_F16: case BITNET_TENSOR_BF16:
        case BITNET_TENSOR_Q4_0: case BITNET_TENSOR_Q8_0: case BITNET_TENSOR_Q6_K: return 1;
        default: return 0;
    }
}

static int is_head(const bitnet_gguf_tensor *t) {
    return !strcmp(t->name, "token_embd.weight") || !strcmp(t->name, "output.weight");
}

/* A layer's weights; the embedding of other programs' files may be in such blocks, too. */
static int is_ternary(const bitnet_gguf_tensor *t) {
    return !is_head(t) && (is_type(t, BITNET_TENSOR_I2_S) || is_type(t, BITNET_TENSOR_TL1) ||
                           is_type(t, BITNET_TENSOR_TL2) || in_blocks(t->type));
}

/* Is that key this text? Or, with a star at its end, does it begin so? */
static int key_is(const bitnet_gguf *g, const char *name, const char *text) {
    bitnet_gguf_key k;
    size_t n = strlen(text);
    const int begins = text[n - 1] == '*';
    n -= begins ? 1 : 0;
    return !bitnet_gguf_find_key(g, name, &k) && k.value.type == BITNET_GGUF_STRING &&
           (begins ? k.value.size >= n : k.value.size == n) && !memcmp(k.value.data, text, n);
}

/* What files of these architectures without tokenizer.ggml.pre mean; SentencePiece has none. */
static int means_llama_bpe(const bitnet_gguf *g) {
    return key_is(g, "general.architecture", "bitnet*") &&
           key_is(g, "tokenizer.ggml.model", "gpt2");
}

/* The matrix t in that packing, but of type; checked, with its tile. */
static bitnet_ternary ternary(const bitnet_gguf_tensor *t, uint32_t type, const packing *p) {
    bitnet_error err = {BITNET_OK, ""};
    bitnet_ternary m;
    const uint64_t rows = t->dims[1] * t->dims[2] * t->dims[3];
    memset(&m, 0, sizeof m);
    if (t->dims[0] > INT32_MAX || rows > INT32_MAX) fail(1, "tensor '%s' is too large", t->name);
    m.type = type;
    m.n = (int32_t)t->dims[0];
    m.rows = (int32_t)rows;
    m.i2s_layout = type == BITNET_TENSOR_I2_S ? p->i2s_layout : BITNET_I2S_128;
    if (type == BITNET_TENSOR_TL1 || type == BITNET_TENSOR_TL2) m.tile = p->tile;
    if (bitnet_ternary_check(&m, t->name, &err)) fail(1, "%s", err.text);
    return m;
}

static void unpack(const bitnet_ternary *m, const char *name, const uint8_t *data, int32_t row,
                   int32_t n, int8_t **out) {
    bitnet_error err = {BITNET_OK, ""};
    *out = (int8_t *)grow(*out, (uint64_t)ROWS * (uint64_t)m->n);
    if (bitnet_ternary_unpack(m, data, row, n, *out, &err))
        fail(1, "tensor '%s': %s", name, err.text);
}

/* A scale of its own, as older converters wrote it: the one behind the weights means nothing, and
   those in blocks multiply it. */
static int has_own_scale(const bitnet_gguf *g, const char *name) {
    bitnet_gguf_tensor t;
    char other[300];
    const int n = (int)strlen(name) - 7;               /* less ".weight" */
    if (n < 0 || strcmp(name + n, ".weight")) return 0;
    snprintf(other, sizeof other, "%.*s.scale", n, name);
    if (!bitnet_gguf_find_tensor(g, other, &t)) return 1;
    snprintf(other, sizeof other, "%s_scale", name);
    return !bitnet_gguf_find_tensor(g, other, &t);
}

/* What is in the tensor itself. */
static float scale_of(const bitnet_ternary *m, const char *name, const uint8_t *data) {
    bitnet_error err = {BITNET_OK, ""};
    float scale = 0;
    if (bitnet_ternary_scale(m, data, &scale, &err)) fail(1, "tensor '%s': %s", name, err.text);
    return scale;
}

static int32_t at_most(int32_t n, int32_t most) { return n < most ? n : most; }

/* ---- header ---- */

static uint32_t type_out(const bitnet_gguf_tensor *t) {
    if (!t->size)
        fail(1, "tensor '%s': unsupported tensor type %u (%s)", t->name, (unsigned)t->type,
             t->type_name ? t->type_name : "unknown");
    if (is_ternary(t)) return packing_out.type;
    if (!is_head(t) || !converts_head) return t->type;
    if (!is_float(t))
        fail(1, "tensor '%s': --head cannot read type %u (%s)", t->name, (unsigned)t->type,
             t->type_name);
    return head_type;
}

/* All keys as they are; what the packing says of itself is set, what is missing is added. */
static void add_keys(const bitnet_gguf *g, int has_ternary) {
    const uint32_t type = packing_out.type;            /* numbers of two lists */
    const uint32_t file_type = type == BITNET_TENSOR_I2_S ? 40 : in_blocks(type) ? type + 2 : type;
    bitnet_gguf_key k, other;
    uint64_t i;
    for (i = 0; !bitnet_gguf_get_key(g, i, &k); i++) {
        if (has_ternary && !strcmp(k.name, "general.file_type"))
            bitnet_gguf_add_u32(&writer, k.name, file_type);
        else bitnet_gguf_add_value(&writer, k.name, &k.value);
        if (!strcmp(k.name, "tokenizer.ggml.model") && means_llama_bpe(g) &&
            bitnet_gguf_find_key(g, "tokenizer.ggml.pre", &other))
            bitnet_gguf_add_string(&writer, "tokenizer.ggml.pre", "llama-bpe");
    }
    if (has_ternary && bitnet_gguf_find_key(g, "general.file_type", &k))
        bitnet_gguf_add_u32(&writer, "general.file_type", file_type);
}

/* ---- data ---- */

static void write_bytes(const void *p, uint64_t n) {
    if (bitnet_gguf_write_data(&writer, p, (size_t)n)) fail(1, "%s", writer.err.text);
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

/* The last 32 bytes, with the scale, are the same in all packings but those in blocks. A scale
   beside the weights is copied like any tensor: then one in blocks can only be 1. */
static void write_scale(const bitnet_gguf *g, const bitnet_gguf_tensor *t,
                        const bitnet_ternary *from, const bitnet_ternary *to, uint64_t size) {
    const int beside = has_own_scale(g, t->name);
    bitnet_error err = {BITNET_OK, ""};
    float scale = 1;
    if (!in_blocks(from->type) && !in_blocks(to->type)) {
        memcpy(bytes_out + size - 32, bytes_in + t->size - 32, 32);
        return;
    }
    if (in_blocks(from->type) || !beside) scale = scale_of(from, t->name, bytes_in);
    if (in_blocks(from->type) && !in_blocks(to->type) && beside && scale != 1)
        fail(1, "tensor '%s': its blocks have the scale %g, and there is another beside it; %s "
             "takes one", t->name, (double)scale, bitnet_tensor_type_name(to->type));
    if (bitnet_ternary_set_scale(to, scale, bytes_out, &err))
        fail(1, "tensor '%s': %s", t->name, err.text);
}

static void write_ternary(const bitnet_gguf *g, const bitnet_gguf_tensor *t) {
    const bitnet_ternary from = ternary(t, t->type, &packing_in);
    const bitnet_ternary to = ternary(t, packing_out.type, &packing_out);
    const uint64_t size = bitnet_tensor_size(to.type, t->n_dims, t->dims);
    bitnet_error err = {BITNET_OK, ""};
    int32_t row, n;
    bytes_in = (uint8_t *)grow(bytes_in, t->size);
    bytes_out = (uint8_t *)grow(bytes_out, size);
    read_bytes(g, t, 0, bytes_in, t->size);
    memset(bytes_out, 0, (size_t)size);
    for (row = 0; row < to.rows; row += n) {
        n = at_most(to.rows - row, ROWS);
        unpack(&from, t->name, bytes_in, row, n, &weights[0]);
        if (bitnet_ternary_pack(&to, weights[0], row, n, bytes_out, &err))
            fail(1, "tensor '%s': %s", t->name, err.text);
    }
    write_scale(g, t, &from, &to, size);
    write_bytes(bytes_out, size);
}

static void write_head(const bitnet_gguf *g, const bitnet_gguf_tensor *t) {
    const uint64_t dims[1] = {t->dims[0]};
    const uint64_t row_in = bitnet_tensor_size(t->type, 1, dims);
    const uint64_t row_out = bitnet_tensor_size(head_type, 1, dims);
    bitnet_error err = {BITNET_OK, ""};
    const int32_t n = (int32_t)t->dims[0];
    float *x = (float *)grow(0, t->dims[0] * sizeof *x);
    uint64_t row, rows = t->dims[1] * t->dims[2] * t->dims[3];
    bytes_in = (uint8_t *)grow(bytes_in, row_in);
    bytes_out = (uint8_t *)grow(bytes_out, row_out);
    for (row = 0; row < rows; row++) {
        read_bytes(g, t, row * row_in, bytes_in, row_in);
        if (bitnet_floats_unpack(t->type, bytes_in, n, x, &err) ||
            bitnet_floats_pack(head_type, x, n, bytes_out, &err))
            fail(1, "tensor '%s', row %.0f: %s", t->name, (double)row, err.text);
        write_bytes(bytes_out, row_out);
    }
    free(x);
}

static void convert_gguf(const char *in, const char *out, int force) {
    bitnet_gguf *g = open_input(in);
    bitnet_gguf_tensor t;
    int has_ternary = 0, has_head = 0;
    uint64_t i;
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++) {
        has_ternary |= is_ternary(&t);
        has_head |= is_head(&t);
        if (is_ternary(&t)) ternary(&t, packing_out.type, &packing_out);   /* it may fail */
    }
    if (converts_ternary && !has_ternary)
        fail(1, "%s: there are no ternary weights to be packed", in);
    if (converts_head && !has_head)
        fail(1, "%s: there is no token_embd.weight or output.weight for --head", in);
    open_output(out, in, force);
    add_keys(g, has_ternary);
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++)
        bitnet_gguf_add_tensor(&writer, t.name, type_out(&t), t.n_dims, t.dims);
    if (bitnet_gguf_write_header(&writer)) fail(1, "%s: %s", in, writer.err.text);
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++) {
        if (is_ternary(&t)) write_ternary(g, &t);
        else if (type_out(&t) != t.type) write_head(g, &t);
        else write_copy(g, &t);
    }
    bitnet_gguf_close(g);
    if (bitnet_gguf_write_end(&writer)) fail(1, "%s: %s", out, writer.err.text);
    close_output(force);
}
