#include "model.h"
#include "../utf8.h"
#include "limits.h"
#include "report.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bitnet_model_info info;
uint8_t *file;
size_t file_size;

void read_file(const char *path) {
    long n = 0;
    FILE *f = utf8_fopen(path, "rb");
    if (!f || fgetc(f) == EOF || fseek(f, 0, SEEK_END) || (n = ftell(f)) <= 0)
        fail(1, "cannot read ", path);
    file_size = (size_t)n;
    file = (uint8_t *)malloc(file_size);
    if (!file) fail(1, "no memory for ", path);
    if (fseek(f, 0, SEEK_SET) || fread(file, 1, file_size, f) != file_size)
        fail(1, "cannot read ", path);
    fclose(f);
}

/* ---- a random model: its file is written twice, the first time only to find its size ---- */

/* Appends to the file; only counts while file is 0. */
static void put_bytes(const void *p, size_t n) {
    if (file) memcpy(file + file_size, p, n);
    file_size += n;
}

/* Appends a GGUF string (s) or an int as 32 (i) or 64 bits (q), little-endian. */
static void put(const char *types, ...) {
    va_list args;
    va_start(args, types);
    for (; *types; types++) {
        const char *s = *types == 's' ? va_arg(args, const char *) : 0;
        uint32_t v = s ? (uint32_t)strlen(s) : (uint32_t)va_arg(args, int);
        uint8_t b[8] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
        put_bytes(b, *types == 'i' ? 4 : 8);
        if (s) put_bytes(s, v);
    }
    va_end(args);
}

enum { N_VOCAB = 128256, DIM = 2560, FFN = 6912, KV = 640, N_LAYERS = 30, N_PARTS = 11 };
enum { F32 = 0, F16 = 1, I2_S = 36, U32 = 4, STRING = 8, ARRAY = 9 };

/* One pattern again and again. Its length, a prime number of F16, makes rows differ. */
static void put_weights(int type, int bytes) {
    enum { PATTERN = 2 * 524287 };
    static uint8_t patterns[2][PATTERN];
    uint8_t *p = patterns[type == F16];
    uint32_t i, v, r = 1;
    for (; type == F32 && bytes > 0; bytes -= 4) put("i", 0x3f800000);   /* norms: 1.0 */
    for (i = 0; i < PATTERN && bytes && file && p[PATTERN - 1] == 0; i += 2) {
        v = (r = r * 1664525u + 1013904223u) >> 12;
        if (type == F16) v = (v & 0x83ff) | (5 + (v >> 16 & 3)) << 10;   /* +-2^-10 to 2^-6 */
        else v = (v & 0x5555) | (v & ~(v << 1) & 0xaaaa);                /* codes 0, 1, 1, 2 */
        p[i] = (uint8_t)v;
        p[i + 1] = (uint8_t)(v >> 8);
    }
    for (; bytes > PATTERN; bytes -= PATTERN) put_bytes(p, PATTERN);
    put_bytes(p, (size_t)bytes);
    if (type == I2_S) put("iiqqq", 0x3ca3d70a, 0, 0, 0, 0);              /* the scale, 0.02 */
}

/* All tensors: their entries in the directory, or their bytes. Sizes are multiples of 32. */
static void put_tensors(int directory) {
    static const struct { const char *name; int type, cols, n_rows; } parts[2 + N_PARTS] = {
        {"token_embd", F16, DIM, N_VOCAB}, {"output_norm", F32, DIM, 1},
        {"attn_norm", F32, DIM, 1}, {"attn_sub_norm", F32, DIM, 1}, {"attn_q", I2_S, DIM, DIM},
        {"attn_k", I2_S, DIM, KV}, {"attn_v", I2_S, DIM, KV}, {"attn_output", I2_S, DIM, DIM},
        {"ffn_norm", F32, DIM, 1}, {"ffn_sub_norm", F32, FFN, 1}, {"ffn_gate", I2_S, DIM, FFN},
        {"ffn_up", I2_S, DIM, FFN}, {"ffn_down", I2_S, FFN, DIM}
    };
    char name[64];
    int i, at = 0;
    for (i = 0; i < 2 + N_LAYERS * N_PARTS; i++) {
        int k = i < 2 ? i : 2 + (i - 2) % N_PARTS, type = parts[k].type;
        int n = parts[k].cols * parts[k].n_rows;
        int bytes = type == F32 ? 4 * n : type == F16 ? 2 * n : n / 4;
        if (i < 2) snprintf(name, sizeof name, "%s.weight", parts[k].name);
        else snprintf(name, sizeof name, "blk.%d.%s.weight", (i - 2) / N_PARTS, parts[k].name);
        if (directory) put("siqqiq", name, 2, parts[k].cols, parts[k].n_rows, type, at);
        else put_weights(type, bytes);
        at += bytes + (type == I2_S ? 32 : 0);
    }
}

/* The 256 bytes in GPT-2's spelling (some as themselves, the rest from U+0100 on), then fillers. */
static void put_vocabulary(void) {
    unsigned i, shifted = 256;
    put("siiq", "tokenizer.ggml.tokens", ARRAY, STRING, N_VOCAB);
    for (i = 0; i < N_VOCAB; i++) {
        unsigned u = (i >= 33 && i <= 126) || (i >= 161 && i != 173) ? i : shifted++;
        char text[16] = {(char)(0xc0 | (u >> 6 & 31)), (char)(0x80 | (u & 63)), 0};
        if (u < 128 || i > 255) snprintf(text, sizeof text, i < 256 ? "%c" : "x%u", u);
        put("s", text);
    }
    put("siiqs", "tokenizer.ggml.merges", ARRAY, STRING, 1, "x2560 0");
}

static void put_model(void) {
    file_size = 0;
    put_bytes("GGUF\3\0\0", 8);
    put("qq", 2 + N_LAYERS * N_PARTS, 10);                /* tensors and keys */
    put("sis", "general.architecture", STRING, "bitnet-b1.58");
    put("sii", "bitnet-b1.58.context_length", U32, 4096);
    put("sii", "bitnet-b1.58.embedding_length", U32, DIM);
    put("sii", "bitnet-b1.58.block_count", U32, N_LAYERS);
    put("sii", "bitnet-b1.58.feed_forward_length", U32, FFN);
    put("sii", "bitnet-b1.58.attention.head_count", U32, DIM / 128);
    put("sii", "bitnet-b1.58.attention.head_count_kv", U32, KV / 128);
    put("sis", "tokenizer.ggml.model", STRING, "gpt2");
    put_vocabulary();
    put_tensors(1);
    while (file_size % 32) put_bytes("", 1);
    put_tensors(0);
}

void make_model(void) {
    put_model();
    file = (uint8_t *)malloc(file_size);
    if (!file) fail(1, "no memory for a random model", "");
    put_model();
}

/* ---- reading and writing ---- */

bitnet_model *load_model(const bitnet_kernels *k) {
    bitnet_model_params mp = {0};
    bitnet_model *m;
    bitnet_error err;
    mp.kernels = k;
    if (bitnet_model_load_memory(file, file_size, &mp, &m, &err)) fail(1, err.text, "");
    bitnet_model_get_info(m, &info);
    return m;
}

double layer_weights(void) {
    double q = (double)info.n_heads * info.head_dim, kv = (double)info.n_kv_heads * info.head_dim;
    return info.n_layers * (double)info.dim * (2 * q + 2 * kv + 3.0 * info.ffn_dim);
}

/* 2 bits for each weight, or 5/3. */
double layer_bytes(const bitnet_kernels *k) { return layer_weights() / (k->pack ? 4.8 : 4); }

static void eval_random(bitnet_ctx *c, int32_t n) {
    static bitnet_token tokens[LONGEST];
    bitnet_error err;
    uint32_t r = 1;
    int32_t i;
    for (i = 0; i < n; i++)
        tokens[i] = (bitnet_token)((r = r * 1664525u + 1013904223u) >> 8) % info.n_vocab;
    if (n > 0 && bitnet_eval(c, tokens, n, 0, &err)) fail(1, err.text, "");
}

bitnet_ctx *open_ctx(const bitnet_model *m, int32_t n_ctx, int n_threads,
                     void (*step_fn)(void *, const char *, int, int), double *screen_s,
                     double *mb) {
    bitnet_ctx_params cp = {0};
    bitnet_ctx *c;
    bitnet_error err;
    double start;
    cp.n_ctx = n_ctx < info.ctx_train ? n_ctx : info.ctx_train;
    cp.n_threads = n_threads;
    cp.step_fn = step_fn;
    if (bitnet_ctx_create(m, &cp, &c, &err)) fail(1, err.text, "");
    eval_random(c, 1);
    start = seconds();
    bitnet_sample(c, 0);
    if (screen_s) *screen_s = seconds() - start;
    if (mb) *mb = (double)bitnet_ctx_bytes(m, &cp) * 1e-6;
    return c;
}

void prefill(bitnet_ctx *c, int32_t n) {
    bitnet_ctx_rewind(c, 0);
    eval_random(c, n);
}

void go_back(bitnet_ctx *c, int32_t context) {
    int32_t from = context ? context - N_DECODE : 0;
    eval_random(c, from - bitnet_ctx_length(c));
    bitnet_ctx_rewind(c, from);
}

static bitnet_token largest_logit(bitnet_ctx *c) {
    const float *logits = bitnet_logits(c, -1);
    bitnet_token i, best = 0;
    for (i = 1; i < info.n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

void decode(bitnet_ctx *c, int full, double exact_logits[N_DECODE]) {
    bitnet_token token = 0;
    bitnet_error err;
    int i;
    for (i = 0; i < N_DECODE; i++) {
        if (bitnet_eval(c, &token, 1, 0, &err)) fail(1, err.text, "");
        token = full ? largest_logit(c) : bitnet_sample(c, 0);
        exact_logits[i] = full ? info.n_vocab : bitnet_ctx_exact_logits(c);
    }
}

double prefill_speed(bitnet_ctx *c, int32_t n) {
    const double start = seconds();
    prefill(c, n);
    return n / (seconds() - start);
}

double decode_speed(bitnet_ctx *c, int32_t context, int full, double *exact_logits) {
    double rows[N_DECODE], start;
    go_back(c, context);
    start = seconds();
    decode(c, full, rows);
    start = seconds() - start;
    *exact_logits = median(rows, N_DECODE);
    return N_DECODE / start;
}
