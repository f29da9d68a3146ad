#include "model.h"
#include "../utf8.h"
#include "../values.h"
#include "limits.h"
#include "report.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bitnet_model_info info;
bitnet_kv_type kv_type;
uint8_t *file;
size_t file_size;
static const char *model_name = "the random model";   /* or the file's path */

/* Without an error of the system's, `otherwise` is why: the file has ended too early. */
static void cannot_read(FILE *f, const char *otherwise) {
    const int reason = f && feof(f) ? 0 : errno;
    fail(1, "cannot read %s: %s", model_name, reason ? strerror(reason) : otherwise);
}

void read_file(const char *path) {
    long n = 0;
    FILE *f;
    model_name = path;
    errno = 0;
    f = utf8_fopen(path, "rb");
    if (!f || fgetc(f) == EOF || fseek(f, 0, SEEK_END) || (n = ftell(f)) <= 0)
        cannot_read(f, "it is empty, or no file");
    file_size = (size_t)n;
    file = (uint8_t *)malloc(file_size);
    if (!file) fail(1, "no memory for %s", path);
    if (fseek(f, 0, SEEK_SET) || fread(file, 1, file_size, f) != file_size)
        cannot_read(f, "it has become shorter");
    fclose(f);
}

/* ---- a random model: its file is written twice, the first time only to find its size ---- */

/* Appends to the file; only counts while file is 0. */
static void put_bytes(const void *p, size_t n) {
    if (file) memcpy(file + file_size, p, n);
    file_size += n;
}

/* Appends a GGUF string (s), an int as 32 (i) or 64 bits (q), or a size_t as 64 (z),
   little-endian. */
static void put(const char *types, ...) {
    va_list args;
    va_start(args, types);
    for (; *types; types++) {
        const char *s = *types == 's' ? va_arg(args, const char *) : 0;
        uint64_t v = s ? strlen(s) : *types == 'z' ? va_arg(args, size_t)
                                                   : (uint32_t)va_arg(args, int);
        uint8_t b[8];
        int i;
        for (i = 0; i < 8; i++) b[i] = (uint8_t)(v >> 8 * i);
        put_bytes(b, *types == 'i' ? 4 : 8);
        if (s) put_bytes(s, (size_t)v);
    }
    va_end(args);
}

enum { F32 = 0, F16 = 1, Q4_K = 12, Q6_K = 14, TQ2_0 = 35, I2_S = 36, Q1_0 = 41, PQ2_0 = 142,
       NORM = -1,
       LINEAR = -2 };
enum { U32 = 4, FLOAT32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };

/* The families: a random model has one's published shapes. */
enum { ONE, DIM, FFN, Q, KV, HEAD, EXPERTS, USED, WINDOW, SIZES };
enum { BITNET = 1, QWEN = 2, GEMMA = 4, GROUPS = 8, MAPLE = 16, EMBEDS = QWEN | GEMMA,
       HEAD_NORMS = EMBEDS | GROUPS | MAPLE, ALL = BITNET | HEAD_NORMS, DENSE = ALL & ~MAPLE };
static const struct family {
    const char *name, *arch;
    int bit, norm_type, linear_type, n_vocab, n_layers, n_ctx;
    uint32_t freq_base;                /* the bits of a float */
    int size[SIZES];
} families[] = {
    {"bitnet", "bitnet-b1.58", BITNET, F32, I2_S, 128256, 30, 4096, 0x48f42400,
     {1, 2560, 6912, 2560, 640, 128, 0, 0, 0}},
    {"qwen3-embedding", "qwen3", QWEN, F16, I2_S, 151936, 28, 32768, 0x49742400,
     {1, 1024, 3072, 2048, 1024, 128, 0, 0, 0}},
    {"gemma3-embedding", "gemma3", GEMMA, F16, I2_S, 262144, 18, 32768, 0x461c4000,
     {1, 640, 2048, 1024, 256, 256, 0, 0, 0}},
    {"qwen3-q2", "qwen3", GROUPS, F32, PQ2_0, 151936, 28, 32768, 0x49742400,
     {1, 2048, 6144, 2048, 1024, 128, 0, 0, 0}},
    {"qwen3-q1", "qwen3", GROUPS, F32, Q1_0, 151936, 28, 32768, 0x49742400,
     {1, 2048, 6144, 2048, 1024, 128, 0, 0, 0}},
    {"maple", "maple", MAPLE, F32, TQ2_0, 151936, 24, 131072, 0x461c4000,
     {1, 2048, 512, 2048, 512, 128, 256, 8, 512}}
};
static const struct family *family = &families[0];

void set_family(const char *name) {
    size_t i;
    for (i = 0; i < sizeof families / sizeof families[0]; i++)
        if (!strcmp(name, families[i].name)) {
            family = &families[i];
            return;
        }
    fail(2, "the families are bitnet, qwen3-embedding, gemma3-embedding, qwen3-q2, qwen3-q1 and "
         "maple, not %s", name);
}

/* The first three are of the model, the others of each layer. Those whose names end with _exps have
   such a matrix for each expert. */
enum { MODEL_PARTS = 3 };
static const struct part { const char *name; int families, type, cols, rows; } parts[] = {
    {"token_embd", ALL, F16, DIM, ONE}, {"output", MAPLE, Q4_K, DIM, ONE},
    {"output_norm", ALL, NORM, DIM, ONE},
    {"attn_norm", ALL, NORM, DIM, ONE}, {"attn_q_norm_in", EMBEDS, NORM, DIM, ONE},
    {"attn_q", ALL, LINEAR, DIM, Q}, {"attn_k_norm_in", EMBEDS, NORM, DIM, ONE},
    {"attn_k", ALL, LINEAR, DIM, KV}, {"attn_v_norm_in", EMBEDS, NORM, DIM, ONE},
    {"attn_v", ALL, LINEAR, DIM, KV}, {"attn_q_norm", HEAD_NORMS, NORM, HEAD, ONE},
    {"attn_k_norm", HEAD_NORMS, NORM, HEAD, ONE}, {"attn_sub_norm", BITNET, NORM, Q, ONE},
    {"attn_output_norm_in", EMBEDS, NORM, Q, ONE}, {"attn_output", ALL, LINEAR, Q, DIM},
    {"post_attention_norm", GEMMA, NORM, DIM, ONE}, {"ffn_norm", ALL, NORM, DIM, ONE},
    {"ffn_gate_norm_in", EMBEDS, NORM, DIM, ONE}, {"ffn_gate", DENSE, LINEAR, DIM, FFN},
    {"ffn_up_norm_in", EMBEDS, NORM, DIM, ONE}, {"ffn_up", DENSE, LINEAR, DIM, FFN},
    {"ffn_sub_norm", BITNET, NORM, FFN, ONE}, {"ffn_down_norm_in", EMBEDS, NORM, FFN, ONE},
    {"ffn_down", DENSE, LINEAR, FFN, DIM}, {"post_ffw_norm", GEMMA, NORM, DIM, ONE},
    {"ffn_gate_inp", MAPLE, F32, DIM, EXPERTS}, {"ffn_gate_exps", MAPLE, LINEAR, DIM, FFN},
    {"ffn_up_exps", MAPLE, LINEAR, DIM, FFN}, {"ffn_down_exps", MAPLE, LINEAR, FFN, DIM}
};
enum { N_PARTS = sizeof parts / sizeof parts[0] };

/* The types of weights: n of them take so many bytes, of which those from `scale` on are so many
   F16 scales with this exponent. (Q4_K and Q6_K multiply theirs with others.) Blocks that follow
   each other, `alike` of them, have equal ones, as those of a row. A pattern is `units` of these: a
   prime number, which makes rows differ. */
static const struct weights {
    int type, n, bytes, scale, scales, exponent, alike, units;
} weights[] = {
    {F32, 1, 4, 0, 0, 0, 1, 524287}, {F16, 1, 2, 0, 0, 0, 1, 524287},
    {I2_S, 8, 2, 0, 0, 0, 1, 524287}, {PQ2_0, 128, 34, 0, 1, 9, 1, 30829},
    {Q1_0, 128, 18, 0, 1, 9, 1, 58243}, {TQ2_0, 256, 66, 64, 1, 9, 8, 7919},
    {Q4_K, 256, 144, 0, 2, 2, 1, 7919}, {Q6_K, 256, 210, 208, 1, 2, 1, 7919}
};
enum { N_WEIGHTS = sizeof weights / sizeof weights[0] };

static const struct weights *weights_of(int type) {
    const struct weights *w = weights;
    while (w->type != type) w++;
    return w;
}

/* Random weights in two bytes: of floats in +-2^-10 to 2^-6; codes 0, 1, 1, 2; or anything. */
static uint32_t two_bytes(int type, uint32_t v, int upper) {
    if (type == F32) return upper ? (v & 0x8000) | (117 + (v >> 16 & 3)) << 7 : v & 0xffff;
    if (type == F16) return (v & 0x83ff) | (5 + (v >> 16 & 3)) << 10;
    return type == Q4_K || type == Q6_K || type == Q1_0 ? v & 0xffff
           : (v & 0x5555) | (v & ~(v << 1) & 0xaaaa);
}

/* One pattern again and again. */
static void put_weights(const struct weights *w, size_t bytes) {
    static uint8_t *patterns[N_WEIGHTS];
    const int unit = w->bytes * w->alike, length = w->units * unit;
    uint8_t **p = &patterns[w - weights];
    uint32_t v, r = 1, scale = 0;
    int i, at;
    if (!*p) {
        *p = (uint8_t *)malloc((size_t)length);
        if (!*p) fail(1, "no memory for a random model");
        for (i = 0; i < length; i += 2) {
            v = (r = r * 1664525u + 1013904223u) >> 12;
            if (i % unit == 0) scale = (uint32_t)w->exponent << 10 | (v & 0x3ff);
            at = i % w->bytes - w->scale;
            v = at >= 0 && at < 2 * w->scales ? scale : two_bytes(w->type, v, i % 4);
            (*p)[i] = (uint8_t)v;
            (*p)[i + 1] = (uint8_t)(v >> 8);
        }
    }
    for (; bytes > (size_t)length; bytes -= (size_t)length) put_bytes(*p, (size_t)length);
    put_bytes(*p, bytes);
    if (w->type == I2_S) put("iiqqq", 0x3ca3d70a, 0, 0, 0, 0);           /* the scale, 0.02 */
}

/* A norm's gains, all 1. */
static void put_ones(size_t bytes) {
    for (; bytes > 0; bytes -= 4) put("i", family->norm_type == F32 ? 0x3f800000 : 0x3c003c00);
}

/* A tensor: its entry in the directory, or its bytes. Sizes are multiples of 32. */
static void put_tensor(const struct part *part, int layer, int directory, size_t *at) {
    const int cols = family->size[part->cols];
    const int rows = part < parts + 2 ? family->n_vocab : family->size[part->rows];
    const int experts = strstr(part->name, "_exps") ? family->size[EXPERTS] : 0;
    const int type = part->type == NORM ? family->norm_type : part->type == LINEAR
                                        ? family->linear_type : part->type;
    const struct weights *w = weights_of(family->bit == GROUPS && part->type == F16
                                         ? family->linear_type : type);
    const size_t n = (size_t)cols * (size_t)rows * (size_t)(experts ? experts : 1);
    const size_t bytes = n / (size_t)w->n * (size_t)w->bytes;
    char name[64];
    if (layer < 0) snprintf(name, sizeof name, "%s.weight", part->name);
    else snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part->name);
    if (directory && experts) put("siqqqiz", name, 3, cols, rows, experts, w->type, *at);
    else if (directory) put("siqqiz", name, 2, cols, rows, w->type, *at);
    else if (part->type == NORM) put_ones(bytes);
    else put_weights(w, bytes);
    *at += bytes + (w->type == I2_S ? 32 : 0);
}

/* All tensors; returns their number. */
static int put_tensors(int directory) {
    size_t at = 0;
    int layer, k, n = 0;
    for (layer = -1; layer < family->n_layers; layer++)
        for (k = layer < 0 ? 0 : MODEL_PARTS; k < (layer < 0 ? MODEL_PARTS : N_PARTS); k++) {
            if (!(parts[k].families & family->bit)) continue;
            put_tensor(&parts[k], layer, directory, &at);
            n++;
        }
    return n;
}

/* The 256 bytes in GPT-2's spelling (some as themselves, the rest from U+0100 on), then fillers. */
static void put_vocabulary(void) {
    unsigned i, shifted = 256;
    put("siiq", "tokenizer.ggml.tokens", ARRAY, STRING, family->n_vocab);
    for (i = 0; i < (unsigned)family->n_vocab; i++) {
        unsigned u = (i >= 33 && i <= 126) || (i >= 161 && i != 173) ? i : shifted++;
        char text[16] = {(char)(0xc0 | (u >> 6 & 31)), (char)(0x80 | (u & 63)), 0};
        if (u < 128 || i > 255) snprintf(text, sizeof text, i < 256 ? "%c" : "x%u", u);
        put("s", text);
    }
    put("siiqs", "tokenizer.ggml.merges", ARRAY, STRING, 1, "x2560 0");
}

/* A key of the architecture's, with 32 bits. */
static void put_key(const char *name, int type, uint32_t value) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", family->arch, name);
    put("sii", key, type, (int)value);
}

/* The keys of a model with experts: 7. */
static void put_expert_keys(void) {
    const uint8_t slides[4] = {1, 1, 1, 0};
    int i;
    put_key("expert_count", U32, (uint32_t)family->size[EXPERTS]);
    put_key("expert_used_count", U32, (uint32_t)family->size[USED]);
    put_key("expert_feed_forward_length", U32, (uint32_t)family->size[FFN]);
    put_key("rope.dimension_count", U32, (uint32_t)family->size[HEAD] / 2);
    put_key("attention.layer_norm_rms_epsilon", FLOAT32, 0x358637bd);     /* 1e-6 */
    put_key("attention.sliding_window", U32, (uint32_t)family->size[WINDOW]);
    put_key("attention.sliding_window_pattern", ARRAY, BOOL);
    put("q", family->n_layers);
    for (i = 0; i < family->n_layers; i += 4) put_bytes(slides, 4);
}

/* n_tensors is known when the file is written for the second time. */
static int put_model(int n_tensors) {
    const int embeds = (family->bit & EMBEDS) != 0;
    file_size = 0;
    put_bytes("GGUF\3\0\0", 8);
    put("qq", n_tensors, 13 + embeds + 7 * (family->bit == MAPLE));       /* tensors and keys */
    put("sis", "general.architecture", STRING, family->arch);
    put_key("context_length", U32, (uint32_t)family->n_ctx);
    put_key("embedding_length", U32, (uint32_t)family->size[DIM]);
    put_key("block_count", U32, (uint32_t)family->n_layers);
    put_key("feed_forward_length", U32, (uint32_t)family->size[FFN]);
    put_key("attention.head_count", U32, (uint32_t)(family->size[Q] / family->size[HEAD]));
    put_key("attention.head_count_kv", U32, (uint32_t)(family->size[KV] / family->size[HEAD]));
    put_key("attention.key_length", U32, (uint32_t)family->size[HEAD]);
    put_key("rope.freq_base", FLOAT32, family->freq_base);
    if (embeds) put_key("pooling_type", U32, 3);
    if (family->bit == MAPLE) put_expert_keys();
    put("sis", "tokenizer.ggml.model", STRING, "gpt2");
    put("sis", "tokenizer.ggml.pre", STRING, "llama-bpe");
    put_vocabulary();
    n_tensors = put_tensors(1);
    while (file_size % 32) put_bytes("", 1);
    put_tensors(0);
    return n_tensors;
}

void make_model(void) {
    const int n_tensors = put_model(0);
    file = (uint8_t *)malloc(file_size);
    if (!file) fail(1, "no memory for a random model");
    put_model(n_tensors);
}

/* ---- reading and writing ---- */

/* What the file says of layers that see only so many positions, and of the bits of a weight. */
static double window;
static int n_sliding, one_bit;

static void read_layers(void) {
    char name[128];
    bitnet_gguf *g = 0;
    bitnet_gguf_key key;
    bitnet_gguf_tensor t;
    bitnet_gguf_value one = {0};
    if (bitnet_gguf_open_memory(file, file_size, 0, &g, 0)) return;
    n_sliding = 0;
    one_bit = !bitnet_gguf_find_tensor(g, "blk.0.attn_q.weight", &t) && t.type == Q1_0;
    snprintf(name, sizeof name, "%s.attention.sliding_window", info.arch);
    if (!bitnet_gguf_find_key(g, name, &key) && bitnet_gguf_text(&key.value, name, 64) > 0)
        window = strtod(name, 0);
    snprintf(name, sizeof name, "%s.attention.sliding_window_pattern", info.arch);
    if (!bitnet_gguf_find_key(g, name, &key))
        while (bitnet_gguf_next(&key.value, &one)) n_sliding += one.data[0] != 0;
    bitnet_gguf_close(g);
}

int in_place;

bitnet_model *load_model(const bitnet_kernels *k) {
    bitnet_model_params mp = {0};
    bitnet_model *m;
    bitnet_error err;
    mp.kernels = k;
    mp.in_place = mp.prefault = in_place;    /* no page is to be fetched while it measures */
    if (bitnet_model_load_memory(file, file_size, &mp, &m, &err))
        fail(1, "%s: %s", model_name, err.text);
    bitnet_model_get_info(m, &info);
    read_layers();
    return m;
}

double layer_weights(void) {
    double q = (double)info.n_heads * info.head_dim, kv = (double)info.n_kv_heads * info.head_dim;
    double ffn = 3.0 * info.ffn_dim * (info.n_experts ? info.n_experts_used : 1);
    return info.n_layers * (double)info.dim * (2 * q + 2 * kv + ffn);
}

/* 2 bits for each weight, or 5/3; or 2 or 1, and 16 for each group. n tokens that choose experts at
   random read those that any of them has chosen, and the router in F32. */
double layer_bytes(const bitnet_kernels *k, int n) {
    const double each = info.group > 0 ? (one_bit ? 0.125 : 0.25) + 2.0 / info.group
                      : strstr(bitnet_kernels_name(k), "-tl2") ? 1 / 4.8 : 0.25;
    const double one = 3.0 * info.ffn_dim * info.dim * info.n_layers;
    double unread = 1;
    if (!info.n_experts) return layer_weights() * each;
    for (; n > 0; n--) unread *= 1 - (double)info.n_experts_used / info.n_experts;
    return (layer_weights() + (info.n_experts * (1 - unread) - info.n_experts_used) * one) * each +
           4.0 * info.n_experts * info.dim * info.n_layers;
}

double token_bytes(const bitnet_kernels *k, int n, double head_bytes, double positions) {
    const double head = (double)kv_head_bytes(kv_type, info.head_dim);
    const double kv = 2 * head * info.n_kv_heads;
    const double seen = window > 0 && positions > window ? window : positions;
    return layer_bytes(k, n) + head_bytes +
           kv * n * (positions * (info.n_layers - n_sliding) + seen * n_sliding);
}

void eval_random(bitnet_ctx *c, int32_t n) {
    static bitnet_token tokens[LONGEST];
    bitnet_error err;
    uint32_t r = 1;
    int32_t i, some;
    for (i = 0; i < LONGEST && i < n; i++)
        tokens[i] = (bitnet_token)((r = r * 1664525u + 1013904223u) >> 8) % info.n_vocab;
    for (; n > 0; n -= some) {
        some = n < LONGEST ? n : LONGEST;
        if (bitnet_eval(c, 0, tokens, some, 1, &err)) fail(1, "%s", err.text);
    }
}

bitnet_ctx *open_ctx(const bitnet_model *m, int32_t n_ctx, int n_threads,
                     void (*step_fn)(void *, const char *, int, int), double *screen_s,
                     double *first_s, double *mb) {
    bitnet_ctx_params cp = {0};
    bitnet_ctx *c;
    bitnet_error err;
    double start, all = 0;
    int i;
    cp.n_ctx = n_ctx < info.ctx_train ? n_ctx : info.ctx_train;
    cp.n_threads = n_threads;
    cp.hooks.step_fn = step_fn;
    cp.kv_type = kv_type;
    if (bitnet_ctx_create(m, &cp, &c, &err)) fail(1, "%s", err.text);
    for (i = 0; i < 8 && (i == 0 || bitnet_ctx_exact_logits(c) == info.n_vocab); i++) {
        eval_random(c, 1);
        start = seconds();
        bitnet_sample(c, -1, 0, NULL);
        all += seconds() - start;
        if (i == 0 && first_s) *first_s = seconds();
    }
    if (screen_s) *screen_s = all;
    if (mb) *mb = (double)bitnet_ctx_bytes(m, &cp) * 1e-6;
    return c;
}

void prefill(bitnet_ctx *c, int32_t n) {
    bitnet_seq_rewind(c, 0, 0, NULL);
    eval_random(c, n);
}

void fill(bitnet_ctx *c, int32_t length) {
    eval_random(c, length - bitnet_seq_length(c, 0));
    bitnet_seq_rewind(c, 0, length, NULL);
}

void go_back(bitnet_ctx *c, int32_t context) { fill(c, context ? context - N_DECODE : 0); }

static bitnet_token largest_logit(bitnet_ctx *c) {
    const float *logits = bitnet_logits(c, -1, NULL);
    bitnet_token i, best = 0;
    for (i = 1; i < info.n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

void decode(bitnet_ctx *c, int n, int full, head_use *use) {
    double *rows = (double *)malloc(((size_t)n + 1) * sizeof *rows), bytes = 0;
    bitnet_token token = 0;
    bitnet_error err;
    int i;
    if (!rows) fail(1, "no memory for decoding");
    for (i = 0; i < n; i++) {
        if (bitnet_eval(c, 0, &token, 1, 1, &err)) fail(1, "%s", err.text);
        token = full ? largest_logit(c) : bitnet_sample(c, -1, 0, NULL);
        rows[i] = full ? info.n_vocab : bitnet_ctx_exact_logits(c);
        bytes += full ? (double)info.head_bytes : (double)bitnet_ctx_head_bytes(c);
    }
    if (use && n > 0) {
        use->exact_logits = median(rows, n);
        use->bytes = bytes / n;
    }
    free(rows);
}

double prefill_speed(bitnet_ctx *c, int32_t n) {
    const double start = seconds();
    prefill(c, n);
    return n / (seconds() - start);
}

double decode_speed(bitnet_ctx *c, int32_t context, int full, head_use *use) {
    double start;
    go_back(c, context);
    start = seconds();
    decode(c, N_DECODE, full, use);
    start = seconds() - start;
    return N_DECODE / start;
}
