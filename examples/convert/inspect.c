#include "commands.h"
#include "check.h"
#include "output.h"
#include "pack.h"
#include "../json/text.h"
#include <stdlib.h>
#include <string.h>

static const char *const value_types[] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool",
                                          "string", "array", "u64", "i64", "f64"};

static void print_value(const bitnet_gguf_value *v) {
    char text[128];
    int n;
    if (v->type == BITNET_GGUF_STRING) {
        putchar('"');
        print_clean((const char *)v->data, v->size < INT32_MAX ? (int)v->size : INT32_MAX);
        putchar('"');
    } else if (v->type == BITNET_GGUF_ARRAY) {
        printf("%s[%.0f]", value_types[v->element], (double)v->count);
    } else {
        n = bitnet_gguf_text(v, text, sizeof text);
        printf("%s", n < 0 ? "?" : text);
    }
}

static void print_key(const bitnet_gguf_key *k) {
    bitnet_gguf_value e = {0, 0, 0, 0, 0};
    int i;
    printf("key     ");
    print_clean(k->name, (int)strlen(k->name));
    if (k->value.type != BITNET_GGUF_ARRAY) {
        printf(" (%s) = ", value_types[k->value.type]);
        print_value(&k->value);
    } else {
        printf(" (");
        print_value(&k->value);
        printf(") =");
        for (i = 0; i < 4 && bitnet_gguf_next(&k->value, &e); i++) {
            putchar(' ');
            print_value(&e);
        }
        if (k->value.count > 4) printf(" ...");
    }
    putchar('\n');
}

/* FNV-1a of the tensor's bytes. For I2_S, *threes counts the invalid codes 3. */
static uint64_t checksum(const bitnet_gguf *g, const bitnet_gguf_tensor *t, uint64_t *threes) {
    uint64_t h = 0xcbf29ce484222325u, at, n, i;
    bytes_in = (uint8_t *)grow(bytes_in, PIECE);
    for (at = 0; at < t->size; at += n) {
        n = t->size - at < PIECE ? t->size - at : PIECE;
        read_bytes(g, t, at, bytes_in, n);
        for (i = 0; i < n; i++) {
            const uint8_t b = bytes_in[i];
            int both = b & b >> 1 & 0x55;
            h = (h ^ b) * 0x100000001b3u;
            for (; both && at + i + 32 < t->size; both &= both - 1) ++*threes;
        }
    }
    return h;
}

static int n_warnings;

static void warn(const char *format, ...) {
    va_list args;
    n_warnings++;
    printf("warning ");
    va_start(args, format);
    print_line(stdout, format, args);
    va_end(args);
}

/* The scales of blocks, those of zeros apart: from low to high, by size. *twos gets the number of
   weights that are 2. */
static void inspect_blocks(const bitnet_gguf *g, const bitnet_gguf_tensor *t, float *low,
                           float *high, uint64_t *twos, bitnet_error *err) {
    const int32_t group = pack_group(t->type), n = (int32_t)t->dims[0];
    const uint64_t dims[1] = {t->dims[0]}, rows = t->dims[1] * t->dims[2] * t->dims[3];
    const uint64_t size = bitnet_tensor_size(t->type, 1, dims);
    float *x = (float *)grow(0, t->dims[0] * sizeof *x);
    bitnet_ternary m;
    uint64_t row;
    int32_t k, i;
    memset(&m, 0, sizeof m);
    m.type = t->type;
    m.n = n;
    *low = *high = 0;
    bytes_in = (uint8_t *)grow(bytes_in, size);
    for (row = 0; row < rows && !err->code; row++) {
        read_bytes(g, t, row * size, bytes_in, size);
        if (bitnet_floats_unpack(t->type, bytes_in, n, x, err)) break;
        for (k = 0; k < n; k += group) {
            const float d = pack_block_scale(&m, bytes_in, 0, k / group), a = d < 0 ? -d : d;
            float most = 0;
            for (i = k; i < k + group; i++) {
                const float b = x[i] < 0 ? -x[i] : x[i];
                if (b > most) most = b;
                *twos += b > a;
            }
            if (!(most > 0)) continue;
            if (a < *low || !(*high > 0)) *low = a;
            if (a > *high) *high = a;
        }
    }
    free(x);
}

/* What is known of a tensor's scale or scales. */
static void inspect_scale(const bitnet_gguf *g, const bitnet_gguf_tensor *t, bitnet_error *err) {
    float low = 0, high = 0;
    uint64_t twos = 0;
    if (in_blocks(t->type)) {
        printf(", blocks of %d", (int)pack_group(t->type));
        if (t->stored_type != t->type) printf(" under number %u", (unsigned)t->stored_type);
        inspect_blocks(g, t, &low, &high, &twos, err);
    } else low = high = read_scale(g, t, err);
    if (err->code) return;
    if (high > low) printf(", scales %.9g to %.9g", (double)low, (double)high);
    else printf(", scale %.9g", (double)low);
    if (twos) printf(", %.0f weight%s of 2", (double)twos, twos == 1 ? "" : "s");
    if (!in_blocks(t->type) && has_own_scale(g, t->name)) return;
    if ((low >= 1e-6f && high <= 1e3f) || (in_blocks(t->type) && !(high > 0))) return;
    set_error(err, BITNET_ERR_FORMAT, "the scale %g is unusual",
              (double)(low >= 1e-6f ? high : low));
}

static void inspect_tensor(const bitnet_gguf *g, const bitnet_gguf_tensor *t) {
    uint64_t threes = 0, h = checksum(g, t, &threes);
    bitnet_error err = {0};
    int i;
    printf("tensor  ");
    print_clean(t->name, (int)strlen(t->name));
    printf(" %s [", t->type_name ? t->type_name : "?");
    for (i = 0; i < t->n_dims; i++) printf("%s%.0f", i ? ", " : "", (double)t->dims[i]);
    printf("] at %.0f, %.0f bytes, fnv %08lx%08lx", (double)t->offset, (double)t->size,
           (unsigned long)(h >> 32), (unsigned long)(h & 0xffffffff));
    if (t->size && t->dims[0] <= INT32_MAX && (is_ternary(t) || in_blocks(t->type)))
        inspect_scale(g, t, &err);
    putchar('\n');
    if (!t->size)
        warn("tensor '%s': unsupported tensor type %u (%s)", t->name, (unsigned)t->type,
             t->type_name ? t->type_name : "unknown");
    if (is_type(t, BITNET_TENSOR_I2_S) && threes)
        warn("tensor '%s': %.0f invalid codes (3)", t->name, (double)threes);
    if (err.code) warn("tensor '%s': %s", t->name, err.text);
}

static int has_text(const bitnet_gguf_value *v, const char *text) {
    uint64_t i, n = strlen(text);
    for (i = 0; v->size >= n && i <= v->size - n; i++)
        if (!memcmp(v->data + i, text, (size_t)n)) return 1;
    return 0;
}

/* A linear layer whose weights are not ternary cannot run, but in a hybrid. */
static void inspect_layers(const bitnet_gguf *g) {
    bitnet_gguf_tensor t, first;
    uint64_t i, all = 0, others = 0;
    if (key_is(g, "general.architecture", "qwen35")) return;
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++) {
        if (!is_layer(&t)) continue;
        all++;
        if (is_ternary(&t) || !t.size) continue;
        if (!others++) first = t;
    }
    if (others)
        warn("%.0f of %.0f matrices of layers are not ternary, '%s' (%s) and others: bitnet.h "
             "cannot run them", (double)others, (double)all, first.name, first.type_name);
}

/* Warnings about the file as a whole. */
static void inspect_model(const bitnet_gguf *g) {
    static const char arch[] = "general.architecture", sub_norm[] = "blk.0.attn_sub_norm.weight";
    const int is_2b = key_is(g, arch, "bitnet-b1.58") || key_is(g, arch, "bitnet-25");
    bitnet_gguf_key k;
    bitnet_gguf_tensor t;
    if (bitnet_gguf_find_key(g, "tokenizer.ggml.pre", &k) &&
        !key_is(g, "tokenizer.ggml.model", "llama"))
        warn("key 'tokenizer.ggml.pre' is missing%s",
             means_llama_bpe(g) ? ": it means llama-bpe" : "");
    if (!is_2b) return;
    if (!bitnet_gguf_find_key(g, "tokenizer.chat_template", &k) &&
        !(has_text(&k.value, "capitalize") && has_text(&k.value, "Assistant: ")))
        warn("key 'tokenizer.chat_template' differs from the published template");
    bitnet_gguf_find_key(g, arch, &k);
    if (key_is(g, "tokenizer.ggml.model", "llama"))
        warn("architecture '%.*s' with a SentencePiece tokenizer: 1bitLLM's models have one, but "
             "their architecture is 'bitnet'", (int)k.value.size, (const char *)k.value.data);
    if (!bitnet_gguf_find_tensor(g, "blk.0.attn_q.weight", &t) &&
        bitnet_gguf_find_tensor(g, sub_norm, &t))
        warn("architecture '%.*s' without %s: these are the tensors of 'llama'", (int)k.value.size,
             (const char *)k.value.data, sub_norm);
}

void inspect(const char *path) {
    bitnet_gguf *g = open_input(path);
    bitnet_gguf_key k;
    bitnet_gguf_tensor t;
    packing p;                         /* what a file does not say */
    bitnet_error err;
    char text[160];
    uint64_t i;
    for (i = 0; !bitnet_gguf_get_key(g, i, &k); i++) print_key(&k);
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++) inspect_tensor(g, &t);
    inspect_layers(g);
    inspect_model(g);
    memset(&p, 0, sizeof p);
    check_zeros(g, &p, warn);
    if (is_part(g, text)) warn("%s", text);
    else if (check_load(path, &p, &err)) warn("bitnet.h does not load it: %s", err.text);
    printf("%d warning%s\n", n_warnings, n_warnings == 1 ? "" : "s");
    bitnet_gguf_close(g);
}
