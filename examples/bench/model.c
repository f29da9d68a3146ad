#define _DEFAULT_SOURCE 1              /* mmap and fileno, also with -std=c99 */
#include "model.h"
#include "../utf8.h"
#include "../values.h"
#include "limits.h"
#include "report.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#if defined(__unix__) || defined(__APPLE__)
  #include <sys/mman.h>
  #define MAPS 1
#else
  #define MAPS 0
#endif

bitnet_model_info info;
bitnet_kv_type kv_type;
uint8_t *file;
size_t file_size;
static const char *model_name = "the random model";   /* or the file's path */
#if MAPS
static int is_mapped;
#endif

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
#if MAPS                               /* as users' programs do */
    file = (uint8_t *)mmap(0, file_size, PROT_READ, MAP_PRIVATE, fileno(f), 0);
    if (file == MAP_FAILED) cannot_read(f, "it cannot be mapped");
    is_mapped = 1;
#else
    file = (uint8_t *)malloc(file_size);
    if (!file) fail(1, "no memory for %s", path);
    if (fseek(f, 0, SEEK_SET) || fread(file, 1, file_size, f) != file_size)
        cannot_read(f, "it has become shorter");
#endif
    fclose(f);
}

void release_file(void) {
#if MAPS
    if (is_mapped) {
        munmap(file, file_size);
        return;
    }
#endif
    free(file);
}

/* ---- a random model: its file is written twice, the first time only to find its size ---- */

static FILE *disk;                     /* where to write it; 0: to memory */
static int disk_fails;

/* Appends to the file; only counts while there is neither disk nor memory for it. */
static void put_bytes(const void *p, size_t n) {
    if (disk) disk_fails |= fwrite(p, 1, n, disk) != n;
    else if (file) memcpy(file + file_size, p, n);
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

enum { F32 = 0, F16 = 1, Q4_K = 12, Q6_K = 14, BF16 = 30, TQ2_0 = 35, I2_S = 36, Q1_0 = 41,
       Q2_0 = 42, PQ2_0 = 142, PTQ1_0 = 143 };
/* What the family says the type of. BIAS and DECAY have names of their own. */
enum { NORM = -1, LINEAR = -2, NARROW = -3, TAPS = -4, BIAS = -5, DECAY = -6 };
enum { U32 = 4, I32 = 5, FLOAT32 = 6, BOOL_TYPE = 7, STRING = 8, ARRAY = 9 };

/* The families: a random model has one's published shapes. A hybrid has two kinds of layers: DELTA
   layers of a gated delta net, and every fourth one a FULL layer of attention. */
enum { ONE, DIM, FFN, Q, KV, HEAD, EXPERTS, USED, WINDOW, STATE, HEADS, INNER, MIXED, GATED, TAP,
       SIZES, VOCAB = SIZES };
enum { BITNET = 1, QWEN = 2, GEMMA = 4, GROUPS = 8, MAPLE = 16, DELTA = 32, FULL = 64,
       FOLDED = 128, HYBRID = DELTA | FULL, EMBEDS = QWEN | GEMMA, BLOCKS = GROUPS | HYBRID,
       PLAIN = BITNET | EMBEDS | GROUPS | MAPLE, HEAD_NORMS = EMBEDS | GROUPS | MAPLE | FULL,
       ALL = PLAIN | HYBRID, DENSE = ALL & ~MAPLE };
#define BONSAI_27B {1, 5120, 17408, 6144, 1024, 256, 0, 0, 0, 128, 48, 6144, 10240, 12288, 4}
static const struct family {
    const char *name, *arch;
    int bits, norm_type, linear_type, n_vocab, n_layers, n_ctx;
    uint32_t freq_base;                /* the bits of a float */
    int size[SIZES];
} families[] = {
    {"bitnet", "bitnet-b1.58", BITNET, F32, I2_S, 128256, 30, 4096, 0x48f42400,
     {1, 2560, 6912, 2560, 640, 128}},
    {"bitnet-tq2", "bitnet", BITNET, F32, TQ2_0, 128256, 30, 4096, 0x48f42400,
     {1, 2560, 6912, 2560, 640, 128}},   /* which llama.cpp reads, too */
    {"qwen3-embedding", "qwen3", QWEN, F16, I2_S, 151936, 28, 32768, 0x49742400,
     {1, 1024, 3072, 2048, 1024, 128}},
    {"gemma3-embedding", "gemma3", GEMMA, F16, I2_S, 262144, 18, 32768, 0x461c4000,
     {1, 640, 2048, 1024, 256, 256}},
    {"qwen3-q2", "qwen3", GROUPS, F32, PQ2_0, 151936, 28, 32768, 0x49742400,
     {1, 2048, 6144, 2048, 1024, 128}},
    {"qwen3-q1", "qwen3", GROUPS, F32, Q1_0, 151936, 28, 32768, 0x49742400,
     {1, 2048, 6144, 2048, 1024, 128}},
    {"maple", "maple", MAPLE, F32, TQ2_0, 151936, 24, 131072, 0x461c4000,
     {1, 2048, 512, 2048, 512, 128, 256, 8, 512}},
    {"bonsai-27b", "qwen35", HYBRID | FOLDED, F32, PQ2_0, 248320, 64, 262144, 0x4b189680,
     BONSAI_27B},
    {"bonsai-27b-ptq", "qwen35", HYBRID | FOLDED, F32, PTQ1_0, 248320, 64, 262144, 0x4b189680,
     BONSAI_27B},
    {"bonsai-27b-q2", "qwen35", HYBRID, F32, Q2_0, 248320, 64, 262144, 0x4b189680, BONSAI_27B}
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };
static const struct family *family = &families[0];
static int n_layers;                   /* 0: as many as are published */

void set_family(const char *name, int layers) {
    char all[256] = "";
    size_t i;
    n_layers = layers;
    for (i = 0; name && i < N_FAMILIES; i++) {
        if (!strcmp(name, families[i].name)) {
            family = &families[i];
            return;
        }
        strcat(all, i == 0 ? "" : i + 1 < N_FAMILIES ? ", " : " and ");
        strcat(all, families[i].name);
    }
    if (name) fail(2, "the families are %s, not %s", all, name);
}

/* Those before MODEL_PARTS are of the model, the others of each layer. Those whose names end with
   _exps have such a matrix for each expert. */
enum { MODEL_PARTS = 5 };
static const struct part { const char *name; int families, type, cols, rows; } parts[] = {
    {"token_embd", ALL & ~BLOCKS, F16, DIM, VOCAB}, {"token_embd", BLOCKS, LINEAR, DIM, VOCAB},
    {"output", MAPLE, Q4_K, DIM, VOCAB}, {"output", HYBRID, LINEAR, DIM, VOCAB},
    {"output_norm", ALL, NORM, DIM, ONE},
    {"attn_norm", ALL, NORM, DIM, ONE}, {"attn_q_norm_in", EMBEDS, NORM, DIM, ONE},
    {"attn_q", PLAIN, LINEAR, DIM, Q}, {"attn_q", FULL, LINEAR, DIM, GATED},
    {"attn_k_norm_in", EMBEDS, NORM, DIM, ONE},
    {"attn_k", PLAIN | FULL, LINEAR, DIM, KV}, {"attn_v_norm_in", EMBEDS, NORM, DIM, ONE},
    {"attn_v", PLAIN | FULL, LINEAR, DIM, KV}, {"attn_q_norm", HEAD_NORMS, NORM, HEAD, ONE},
    {"attn_k_norm", HEAD_NORMS, NORM, HEAD, ONE}, {"attn_sub_norm", BITNET, NORM, Q, ONE},
    {"attn_output_norm_in", EMBEDS, NORM, Q, ONE}, {"attn_output", PLAIN | FULL, LINEAR, Q, DIM},
    {"attn_qkv", DELTA, LINEAR, DIM, MIXED}, {"attn_gate", DELTA, LINEAR, DIM, INNER},
    {"ssm_alpha", DELTA, NARROW, DIM, HEADS}, {"ssm_beta", DELTA, NARROW, DIM, HEADS},
    {"ssm_conv1d", DELTA, TAPS, TAP, MIXED}, {"ssm_dt.bias", DELTA, BIAS, HEADS, ONE},
    {"ssm_a", DELTA, DECAY, HEADS, ONE}, {"ssm_norm", DELTA, NORM, STATE, ONE},
    {"ssm_out", DELTA, LINEAR, INNER, DIM},
    {"post_attention_norm", GEMMA | HYBRID, NORM, DIM, ONE}, {"ffn_norm", PLAIN, NORM, DIM, ONE},
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
   each other, `alike` of them, have equal ones, as those of a row; BitNet has one scale. A pattern
   is `units` of these: a prime number, which makes rows differ. */
static const struct weights {
    int type, n, bytes, scale, scales, exponent, alike, units;
} weights[] = {
    {F32, 1, 4, 0, 0, 0, 1, 524287}, {F16, 1, 2, 0, 0, 0, 1, 524287},
    {BF16, 1, 2, 0, 0, 0, 1, 524287}, {I2_S, 8, 2, 0, 0, 0, 1, 524287},
    {Q1_0, 128, 18, 0, 1, 9, 1, 58243}, {Q2_0, 64, 18, 0, 1, 9, 1, 58243},
    {PQ2_0, 128, 34, 0, 1, 9, 1, 30829}, {PTQ1_0, 128, 28, 26, 1, 9, 1, 37447},
    {TQ2_0, 256, 66, 64, 1, 9, 8, 7919},
    {Q4_K, 256, 144, 0, 2, 2, 1, 7919}, {Q6_K, 256, 210, 208, 1, 2, 1, 7919}
};
enum { N_WEIGHTS = sizeof weights / sizeof weights[0] };

static const struct weights *weights_of(int type) {
    const struct weights *w = weights;
    while (w->type != type) w++;
    return w;
}

static uint32_t draw(uint32_t *r) { return (*r = *r * 1664525u + 1013904223u) >> 12; }

/* A byte of n ternary codes, of which 32.8 % are zeros as in the published models: 2 bits for each
   (Q2_0, PQ2_0), or a number of five digits of base 3 in 256ths of 243 (PTQ1_0). */
static uint32_t ternary_byte(int type, int n, uint32_t *r) {
    uint32_t pairs = 0, digits = 0;
    int i;
    for (i = 0; i < 5; i++) {
        const uint32_t v = i < n ? draw(r) & 127 : 1, code = v < 42 ? 1 : v & 1 ? 2 : 0;
        if (i < n) pairs = pairs << 2 | code;
        digits = 3 * digits + (i < n ? code : 0);
    }
    return type == PTQ1_0 ? (digits * 256 + 242) / 243 : pairs;
}

/* Random weights in two bytes, the byte `at` of a block and the next one: of floats in +-2^-10 to
   2^-6; codes 0, 1, 1, 2; or anything. */
static uint32_t two_bytes(int type, int at, uint32_t v, uint32_t *r) {
    const int n = type == PTQ1_0 && at < 24 ? 5 : 4;
    if (type == Q2_0 || type == PQ2_0 || type == PTQ1_0)
        return ternary_byte(type, n, r) | ternary_byte(type, n, r) << 8;
    if (type == BF16 || (type == F32 && at)) return (v & 0x8000) | (117 + (v >> 16 & 3)) << 7;
    if (type == F16) return (v & 0x83ff) | (5 + (v >> 16 & 3)) << 10;
    return type == F32 || type == Q4_K || type == Q6_K || type == Q1_0 ? v & 0xffff
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
            v = draw(&r);
            if (i % unit == 0)
                scale = (uint32_t)w->exponent << 10 | (family->bits & BITNET ? 0 : v & 0x3ff);
            at = i % w->bytes;
            v = at >= w->scale && at < w->scale + 2 * w->scales ? scale
                : two_bytes(w->type, at, v, &r);
            (*p)[i] = (uint8_t)v;
            (*p)[i + 1] = (uint8_t)(v >> 8);
        }
    }
    for (; bytes > (size_t)length; bytes -= (size_t)length) put_bytes(*p, (size_t)length);
    put_bytes(*p, bytes);
    if (w->type == I2_S) put("iiqqq", 0x3ca3d70a, 0, 0, 0, 0);           /* the scale, 0.02 */
}

/* Number i of a part that is no matrix, in ranges of trained models: the taps of the convolution,
   what is added to the step size and the decay of each head; the gains of norms are 1. */
static float number_of(int type, int i) {
    return type == TAPS ? 0.15f * (float)(5 * i % 11 - 5)
           : type == BIAS ? 0.1f * (float)(7 * i % 48) - 4
           : type == DECAY ? -0.25f * (float)(i + 1) : 1;
}

static void put_numbers(int type, size_t bytes) {
    int32_t bits;
    size_t i;
    for (i = 0; i < bytes / 4; i++) {
        const float x = number_of(type, (int)i);
        memcpy(&bits, &x, sizeof bits);
        put("i", type == NORM && family->norm_type == F16 ? 0x3c003c00 : bits);
    }
}

static int type_of(const struct part *part) {
    const int folded = (family->bits & FOLDED) != 0;
    if (part->type == LINEAR || (part->type == NARROW && !folded)) return family->linear_type;
    return part->type == NARROW ? BF16 : part->type == NORM ? family->norm_type
           : part->type < 0 ? F32 : part->type;
}

static void name_part(const struct part *part, int layer, char name[64]) {
    const char *end = part->type == BIAS || part->type == DECAY ? "" : ".weight";
    if (layer < 0) snprintf(name, 64, "%s%s", part->name, end);
    else snprintf(name, 64, "blk.%d.%s%s", layer, part->name, end);
}

/* What is written of all tensors: their names, of those that multiply a folded input; their entries
   in the directory; their bytes. */
typedef enum aspect { FOLDED_NAMES, ENTRIES, DATA } aspect;

/* Sizes are multiples of 32. */
static void put_tensor(const struct part *part, int layer, aspect a, size_t *at) {
    const int cols = family->size[part->cols];
    const int rows = part->rows == VOCAB ? family->n_vocab : family->size[part->rows];
    const int experts = strstr(part->name, "_exps") ? family->size[EXPERTS] : 0;
    const struct weights *w = weights_of(type_of(part));
    const size_t n = (size_t)cols * (size_t)rows * (size_t)(experts ? experts : 1);
    const size_t bytes = n / (size_t)w->n * (size_t)w->bytes;
    char name[64];
    name_part(part, layer, name);
    if (a == FOLDED_NAMES) put("s", name);
    else if (a == DATA && part->type < 0 && part->type != LINEAR && part->type != NARROW)
        put_numbers(part->type, bytes);
    else if (a == DATA) put_weights(w, bytes);
    else {
        put("siq", name, experts ? 3 : rows > 1 ? 2 : 1, cols);
        if (rows > 1) put("q", rows);
        if (experts) put("q", experts);
        put("iz", w->type, *at);
    }
    *at += bytes + (w->type == I2_S ? 32 : 0);
}

static int layer_count(void) { return n_layers ? n_layers : family->n_layers; }

/* Returns the number of tensors. */
static int put_tensors(aspect a) {
    size_t at = 0;
    int layer, k, n = 0;
    for (layer = -1; layer < layer_count(); layer++) {
        const int other = layer < 0 || !(family->bits & HYBRID) ? 0
                          : layer % 4 == 3 ? DELTA : FULL;
        for (k = layer < 0 ? 0 : MODEL_PARTS; k < (layer < 0 ? MODEL_PARTS : N_PARTS); k++) {
            const struct part *part = &parts[k];
            if (!(part->families & family->bits & ~other) ||
                (a == FOLDED_NAMES && (part->type != LINEAR || !strcmp(part->name, "token_embd"))))
                continue;
            put_tensor(part, layer, a, &at);
            n++;
        }
    }
    return n;
}

/* ---- the keys ---- */

/* How many there are; the first pass finds that out. */
static int n_keys, n_tensors, n_folded;

static void put_name(const char *name, int type) {
    put("si", name, type);
    n_keys++;
}

static void put_text(const char *name, const char *text) {
    put_name(name, STRING);
    put("s", text);
}

static void put_array(const char *name, int type, int n) {
    put_name(name, ARRAY);
    put("iq", type, n);
}

/* The 256 bytes in GPT-2's spelling (some as themselves, the rest from U+0100 on), then fillers. */
static void put_vocabulary(void) {
    unsigned i, shifted = 256;
    put_array("tokenizer.ggml.tokens", STRING, family->n_vocab);
    for (i = 0; i < (unsigned)family->n_vocab; i++) {
        unsigned u = (i >= 33 && i <= 126) || (i >= 161 && i != 173) ? i : shifted++;
        char text[16] = {(char)(0xc0 | (u >> 6 & 31)), (char)(0x80 | (u & 63)), 0};
        if (u < 128 || i > 255) snprintf(text, sizeof text, i < 256 ? "%c" : "x%u", u);
        put("s", text);
    }
    put_array("tokenizer.ggml.merges", STRING, 1);
    put("s", "x2560 0");
}

/* A key of the architecture's, with 32 bits. */
static void put_key(const char *name, int type, uint32_t value) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", family->arch, name);
    put_name(key, type);
    put("i", (int)value);
}

static void put_size(const char *name, int size) {
    put_key(name, U32, (uint32_t)family->size[size]);
}

/* The keys of a model with experts. */
static void put_expert_keys(void) {
    int i;
    put_size("expert_count", EXPERTS);
    put_size("expert_used_count", USED);
    put_size("expert_feed_forward_length", FFN);
    put_key("rope.dimension_count", U32, (uint32_t)family->size[HEAD] / 2);
    put_size("attention.sliding_window", WINDOW);
    put_key("attention.sliding_window_pattern", ARRAY, BOOL_TYPE);
    put("q", layer_count());
    for (i = 0; i < layer_count(); i++) put_bytes(i % 4 < 3 ? "\1" : "", 1);
}

/* The keys of a model with two kinds of layers. */
static void put_hybrid_keys(void) {
    static const int sections[4] = {11, 11, 10, 0};
    int i;
    put_size("attention.value_length", HEAD);
    put_key("rope.dimension_count", U32, (uint32_t)family->size[HEAD] / 4);
    put_key("rope.dimension_sections", ARRAY, I32);
    put("q", 4);
    for (i = 0; i < 4; i++) put("i", sections[i]);
    put_key("full_attention_interval", U32, 4);
    put_size("ssm.conv_kernel", TAP);
    put_size("ssm.state_size", STATE);
    put_key("ssm.group_count", U32, (uint32_t)family->size[HEADS] / 3);
    put_size("ssm.time_step_rank", HEADS);
    put_size("ssm.inner_size", INNER);
}

/* Which inputs are to be turned by a Hadamard matrix, after which signs. */
static void put_fold_keys(void) {
    const int widths[3] = {family->size[DIM], family->size[INNER], family->size[FFN]};
    uint32_t r = 1;
    int i;
    put_name("prism.hadamard.version", U32);
    put("i", 1);
    put_name("prism.hadamard.block_size", U32);
    put("i", 1024);
    put_text("prism.hadamard.transform", "normalized-sylvester-walsh-hadamard");
    put_text("prism.hadamard.axis", "input-last-dimension");
    put_text("prism.hadamard.sign_mode", "explicit");
    put_array("prism.hadamard.sign_widths", I32, 3);
    for (i = 0; i < 3; i++) put("i", widths[i]);
    put_array("prism.hadamard.sign_values", I32, widths[0] + widths[1] + widths[2]);
    for (i = 0; i < widths[0] + widths[1] + widths[2]; i++) put("i", draw(&r) & 1 ? 1 : -1);
    put_array("prism.hadamard.weight_names", STRING, n_folded);
    n_folded = put_tensors(FOLDED_NAMES);
    put_array("prism.hadamard.inverse_weight_names", STRING, 1);
    put("s", "token_embd.weight");
    put_name("prism.hadamard.gdn_v_grouped", BOOL_TYPE);
    put_bytes("\1", 1);
}

static void put_model(void) {
    file_size = 0;
    put_bytes("GGUF\3\0\0", 8);
    put("qq", n_tensors, n_keys);
    n_keys = 0;
    put_text("general.architecture", family->arch);
    put_key("context_length", U32, (uint32_t)family->n_ctx);
    put_size("embedding_length", DIM);
    put_key("block_count", U32, (uint32_t)layer_count());
    put_size("feed_forward_length", FFN);
    put_key("attention.head_count", U32, (uint32_t)(family->size[Q] / family->size[HEAD]));
    put_key("attention.head_count_kv", U32, (uint32_t)(family->size[KV] / family->size[HEAD]));
    put_size("attention.key_length", HEAD);
    put_key("attention.layer_norm_rms_epsilon", FLOAT32,
            family->bits & BITNET ? 0x3727c5ac : 0x358637bd);    /* 1e-5, 1e-6 */
    put_key("rope.freq_base", FLOAT32, family->freq_base);
    if (family->bits & EMBEDS) put_key("pooling_type", U32, 3);
    if (family->bits & MAPLE) put_expert_keys();
    if (family->bits & HYBRID) put_hybrid_keys();
    if (family->bits & FOLDED) put_fold_keys();
    put_text("tokenizer.ggml.model", "gpt2");
    put_text("tokenizer.ggml.pre", "llama-bpe");
    put_vocabulary();
    n_tensors = put_tensors(ENTRIES);
    while (file_size % 32) put_bytes("", 1);
    put_tensors(DATA);
}

/* Page by page where that is possible, so that weights lie as in a file that is mapped. */
void make_model(void) {
    put_model();
#if MAPS
    file = (uint8_t *)mmap(0, file_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                           0);
    if (file == MAP_FAILED) file = 0;
    is_mapped = 1;
#else
    file = (uint8_t *)malloc(file_size);
#endif
    if (!file) fail(1, "no memory for a random model");
    put_model();
}

int write_model(FILE *f) {
    put_model();
    disk = f;
    put_model();
    disk = 0;
    return !disk_fails;
}

/* ---- reading and writing ---- */

/* What the file says of the layers: ternary weights, and those of all experts, with the bytes of a
   code; bytes of other tensors; how many layers keep keys and values, of which some see only a
   window; bytes of the states of the others. */
static struct {
    double weights, of_experts, code_bytes, other_bytes, window, state_bytes;
    int attending, sliding;
} layers;

/* A key of the architecture's, which is a number; 0: it is missing. */
static double number_at(const bitnet_gguf *g, const char *name) {
    char text[128];
    bitnet_gguf_key key;
    snprintf(text, sizeof text, "%s.%s", info.arch, name);
    return bitnet_gguf_find_key(g, text, &key) || bitnet_gguf_text(&key.value, text, 64) <= 0
           ? 0 : strtod(text, 0);
}

static void read_tensor(const bitnet_gguf_tensor *t) {
    const double n = (double)t->dims[0] * (double)t->dims[1] * (double)t->dims[2];
    const char *part = strncmp(t->name, "blk.", 4) ? 0 : strchr(t->name + 4, '.');
    if (!part || strtol(t->name + 4, 0, 10) >= info.n_layers) return;
    layers.attending += !strcmp(part, ".attn_k.weight");
    if (t->type == F32 || t->type == F16 || t->type == BF16) layers.other_bytes += (double)t->size;
    else if (t->dims[2] > 1) layers.of_experts += n;
    else layers.weights += n;
    if (t->type == Q1_0) layers.code_bytes = 0.125;
    if (t->type == PTQ1_0) layers.code_bytes = 26.0 / 128;
}

static void read_layers(void) {
    char name[128];
    bitnet_gguf *g = 0;
    bitnet_gguf_key key;
    bitnet_gguf_tensor t;
    bitnet_gguf_value one = {0};
    uint64_t i;
    memset(&layers, 0, sizeof layers);
    layers.code_bytes = 0.25;
    if (bitnet_gguf_open_memory(file, file_size, 0, &g, 0)) return;
    for (i = 0; !bitnet_gguf_get_tensor(g, i, &t); i++) read_tensor(&t);
    layers.window = number_at(g, "attention.sliding_window");
    snprintf(name, sizeof name, "%s.attention.sliding_window_pattern", info.arch);
    if (!bitnet_gguf_find_key(g, name, &key))
        while (bitnet_gguf_next(&key.value, &one)) layers.sliding += one.data[0] != 0;
    layers.state_bytes = 4 * number_at(g, "ssm.state_size") * number_at(g, "ssm.inner_size") *
                         (info.n_layers - layers.attending);
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
    return layers.weights + (info.n_experts ? layers.of_experts * info.n_experts_used /
                             info.n_experts : 0);
}

/* The bytes of a code for each weight, 5/24 with TL2; or those of the file, and a scale for each
   group. n tokens that choose experts at random read those that any of them has chosen. */
double layer_bytes(const bitnet_kernels *k, int n) {
    const double each = info.group > 0 ? layers.code_bytes + 2.0 / info.group
                      : strstr(bitnet_kernels_name(k), "-tl2") ? 1 / 4.8 : 0.25;
    double unread = 1;
    for (; n > 0 && info.n_experts; n--) unread *= 1 - (double)info.n_experts_used / info.n_experts;
    return (layers.weights + layers.of_experts * (1 - unread)) * each + layers.other_bytes;
}

/* A state is read and written. */
double token_bytes(const bitnet_kernels *k, int n, double head_bytes, double positions) {
    const double head = (double)kv_head_bytes(kv_type, info.head_dim);
    const double kv = 2 * head * info.n_kv_heads, most = layers.window;
    const double seen = most > 0 && positions > most ? most : positions;
    return layer_bytes(k, n) + head_bytes + 2 * layers.state_bytes * n +
           kv * n * (positions * (layers.attending - layers.sliding) + seen * layers.sliding);
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
    if (!bitnet_seq_rewind(c, 0, length, NULL) && !bitnet_seq_again(c, 0)) return;
    bitnet_seq_rewind(c, 0, 0, NULL);                  /* its state cannot go back there */
    eval_random(c, length);
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
