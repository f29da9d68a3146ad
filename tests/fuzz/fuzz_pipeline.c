/* A whole model, damaged, from loading to text. The input chooses one of a few small models and
   lists changes of places that the file's own directory names: whatever loads has to run, the same
   in two kernel tables, within its memory and without a leak. */
#include "fuzz.h"
#include "../../examples/convert/pack.h"
#include "../unit/hybrid_builder.h"
#include "../unit/ternary_builder.h"

/* The first 12 are small. One input in 9 has another one: 4 whose embedding and head are in blocks,
   5 whose weights have a scale per group, of which one is a minicpm with longrope, one has weights
   of one bit and one has weights of 2, one whose layer has experts, and the last one, a folded
   hybrid network. */
enum { PIPELINE_SMALL = 12, PIPELINE_GROUPED = 16, PIPELINE_MINICPM = 18, PIPELINE_ONE_BIT,
       PIPELINE_TWO, PIPELINE_EXPERTS, PIPELINE_HYBRID, PIPELINE_MODELS };

typedef struct pipeline_model {
    gb_model g;
    bitnet_tile tile;
    bitnet_gguf *file;                 /* the undamaged one: where things are */
    uint64_t n_keys, n_tensors;
} pipeline_model;

/* The ternary type that pipeline_encode writes, and its tile. */
static uint32_t pipeline_type;
static bitnet_tile pipeline_tile;

static uint8_t *pipeline_encode(gb_linear *l, uint32_t *type, size_t *size) {
    bitnet_ternary t;
    uint64_t dims[2];
    uint8_t *p;
    memset(&t, 0, sizeof t);
    t.type = *type = pipeline_type;
    t.n = l->n_in;
    t.rows = l->n_out;
    t.tile = pipeline_tile;
    FUZZ_CHECK(!bitnet_ternary_check(&t, "x", 0));
    dims[0] = (uint64_t)t.n;
    dims[1] = (uint64_t)t.rows;
    *size = (size_t)bitnet_tensor_size(t.type, 2, dims);
    p = (uint8_t *)gb_malloc(*size);
    memset(p, 0, *size);
    l->scale = 0.125f;                 /* an F16, too */
    FUZZ_CHECK(!pack_ternary(&t, l->w, 0, t.rows, p, 0));
    FUZZ_CHECK(!pack_scale(&t, l->scale, p, 0));
    return p;
}

/* Of ternary weights, without a 0 what Q1_0 holds, or with some 2 what Q2_0 holds. */
static void pipeline_widen(int8_t *w, size_t n, uint32_t type) {
    size_t i;
    for (i = 0; i < n; i++)
        if (type == IMP_Q1) w[i] = (int8_t)(w[i] > 0 ? 1 : -1);
        else if (i % 13 == 5) w[i] = 2;
}

static uint8_t *pipeline_encode_wide(gb_linear *l, uint32_t *type, size_t *size) {
    pipeline_widen(l->w, (size_t)l->n_in * (size_t)l->n_out, imp.type);
    return imp_encode(l, type, size);
}

/* Layers and a vocabulary's matrix of TQ2_0, Q1_0, or Q2_0, under number 42, whatever their blocks.
   Returns what to free when the file is made. */
static uint8_t *pipeline_groups(gb_model *g, uint32_t type, int wide) {
    const size_t n = 260 * (size_t)g->dim;         /* 256 bytes, a word, 3 special tokens */
    float *scales = (float *)gb_malloc(n * sizeof *scales);
    int8_t *w = (int8_t *)gb_malloc(n);
    size_t i, size;
    uint8_t *raw;
    imp.type = type;
    imp.number = type == IMP_TQ2 || type == IMP_Q1 ? 0 : IMP_Q2;
    imp.differ = 1;
    g->encode = wide ? pipeline_encode_wide : imp_encode;
    g->no_in_norms = 1;
    for (i = 0; i < n; i++) {
        w[i] = (int8_t)((int)(i * 7 % 11 % 3) - 1);
        scales[i] = 0.03125f * (float)(1 + i % 3);
    }
    if (wide) pipeline_widen(w, n, type);
    raw = imp_blocks(type, w, n, scales, &size);
    if (g->untied) g->head_raw = raw, g->head_raw_size = size;
    else g->embed_raw = raw, g->embed_raw_size = size;
    free(scales);
    free(w);
    return raw;
}

/* A vocabulary's matrix of such blocks of floats; 0: of floats themselves. All bytes are low, so
   that the F16 numbers, wherever they are, are under 0.5. */
static uint8_t *pipeline_blocks(const gb_model *g, uint32_t type, size_t *size) {
    uint64_t dims[2];
    uint8_t *raw;
    size_t i;
    dims[0] = (uint64_t)g->dim;
    dims[1] = 260;                     /* 256 bytes, a word, 3 special tokens */
    if (bitnet__is_float(type)) return 0;
    *size = (size_t)bitnet_tensor_size(type, 2, dims);
    raw = (uint8_t *)gb_malloc(*size);
    for (i = 0; i < *size; i++) raw[i] = (uint8_t)(i * 7 % 0x38);
    return raw;
}

static void pipeline_pooling(gb_file *f) { gb_key_u32(f, "qwen3.pooling_type", 3); }
static void pipeline_window(gb_file *f) {
    gb_key_u32(f, "gemma3.pooling_type", 1);
    gb_key_u32(f, "gemma3.attention.sliding_window", 2);
}

/* The contexts here are over its original length. */
static void pipeline_longrope(gb_file *f) {
    float factors[64];
    int i;
    for (i = 0; i < 64; i++) factors[i] = 1.0f + 0.25f * (float)i;
    gb_key_f32(f, "minicpm.embedding_scale", 12.0f);
    gb_key_f32(f, "minicpm.residual_scale", 0.5f);
    gb_key_f32(f, "minicpm.logit_scale", 2.0f);
    gb_key_str(f, "minicpm.rope.scaling.type", "longrope");
    gb_key_u32(f, "minicpm.rope.scaling.original_context_length", 4);
    gb_put_matrix(f, "rope_factors_long.weight", GB_TENSOR_F32, factors, 64, 0);
    gb_put_matrix(f, "rope_factors_short.weight", GB_TENSOR_F32, factors, 64, 0);
}

static void pipeline_experts(gb_file *f) {
    gb_key_u32(f, "maple.expert_count", (uint32_t)f->experts);
    gb_key_u32(f, "maple.expert_used_count", 2);
    gb_key_array(f, "maple.expert_feed_forward_length", GB_U32, 2);
    gb_uint(&f->keys, 64, 4);
    gb_uint(&f->keys, 64, 4);
    gb_key_u32(f, "maple.attention.sliding_window", 2);
    gb_key_array(f, "maple.attention.sliding_window_pattern", GB_BOOL, 2);
    gb_uint(&f->keys, 1, 2);           /* the first slides */
    gb_key_array(f, "maple.swiglu_clamp_exp", GB_F32, 2);
    gb_float(&f->keys, 0.0f);
    gb_float(&f->keys, 0.5f);
}

static void pipeline_hybrid(pipeline_model *m) {
    static hybrid h;
    h = foldable();
    h.layers = 2;
    h.block = 32;
    h.grouped = 1;
    make_hybrid(&h);
    m->g.data = h.data;
    m->g.size = h.size;
}

/* Built when first asked for, and kept. */
static pipeline_model *pipeline_get(int i) {
    static pipeline_model models[PIPELINE_MODELS];
    static const struct {
        const char *arch;
        int dim, heads, kv_heads, layers, untied, pre;
        uint32_t embed, head, type;
        bitnet_i2s_packing packing;
        bitnet_tile tile;
    } kinds[PIPELINE_MODELS] = {
        {0, 64, 2, 1, 1, 0, 0, 1, 0, 0, BITNET_I2S_128, {0, 0, 0}},
        {0, 64, 1, 1, 1, 0, 0, 0, 0, 0, BITNET_I2S_64, {0, 0, 0}},
        {"bitnet", 64, 2, 2, 2, 0, 0, 30, 0, 0, BITNET_I2S_4ROW, {0, 0, 0}},
        {"llama", 64, 4, 2, 1, 0, 0, 1, 0, 0, BITNET_I2S_128, {0, 0, 0}},
        {"llama", 64, 2, 1, 1, 1, 0, 30, 1, BITNET_TENSOR_TL1, BITNET_I2S_128, {32, 64, 32}},
        {0, 96, 3, 1, 1, 0, 0, 1, 0, 0, BITNET_I2S_4ROW, {0, 0, 0}},
        {"bitnet-25", 64, 2, 1, 1, 0, 0, 1, 0, BITNET_TENSOR_TL1, BITNET_I2S_128, {16, 32, 16}},
        {"bitnet", 128, 2, 1, 1, 0, 0, 1, 0, 0, BITNET_I2S_128, {0, 0, 0}},
        {0, 64, 2, 1, 1, 0, 0, 1, 0, 0, BITNET_I2S_128, {0, 0, 0}},
        {"qwen3", 64, 2, 1, 1, 0, 0, 1, 0, 0, BITNET_I2S_128, {0, 0, 0}},
        {"gemma3", 64, 2, 2, 2, 0, 0, 1, 0, 0, BITNET_I2S_128, {0, 0, 0}},
        {"qwen3", 128, 4, 2, 1, 1, 0, 1, 1, 0, BITNET_I2S_64, {0, 0, 0}},      /* with a head */
        {0, 256, 2, 1, 1, 0, 0, BITNET_TENSOR_Q4_K, 0, BITNET_TENSOR_TQ2_0, BITNET_I2S_128,
         {0, 0, 0}},
        {0, 256, 2, 1, 1, 1, 0, BITNET_TENSOR_Q5_K, BITNET_TENSOR_Q6_K, BITNET_TENSOR_TQ1_0,
         BITNET_I2S_128, {0, 0, 0}},
        {0, 256, 2, 2, 1, 1, 0, BITNET_TENSOR_Q3_K, BITNET_TENSOR_Q2_K, BITNET_TENSOR_TL2,
         BITNET_I2S_128, {32, 192, 32}},
        {0, 128, 2, 1, 1, 0, 0, BITNET_TENSOR_Q5_0, 0, BITNET_TENSOR_TL2_R16, BITNET_I2S_128,
         {0, 0, 0}},
        {"llama", 128, 2, 1, 1, 0, 0, 42, 0, IMP_Q2, BITNET_I2S_128, {0, 0, 0}},
        {"qwen3", 128, 2, 1, 1, 1, 0, 1, 42, IMP_PQ2, BITNET_I2S_128, {0, 0, 0}},
        {"minicpm", 256, 2, 1, 1, 0, 0, IMP_TQ2, 0, IMP_TQ2, BITNET_I2S_128, {0, 0, 0}},
        {"llama", 128, 2, 1, 1, 0, 0, IMP_Q1, 0, IMP_Q1, BITNET_I2S_128, {0, 0, 0}},
        {"qwen3", 128, 2, 1, 1, 1, 0, 1, 42, IMP_Q2, BITNET_I2S_128, {0, 0, 0}},
        {"maple", 64, 2, 1, 2, 1, 0, 1, 1, IMP_Q2, BITNET_I2S_128, {0, 0, 0}},
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, BITNET_I2S_128, {0, 0, 0}}
    };
    static const char *const words[] = {"the", " a"}, *const merges[] = {"t h", "h e", "th e"};
    pipeline_model *m = &models[i];
    gb_model *g = &m->g;
    bitnet_gguf_key k;
    bitnet_gguf_tensor t;
    uint8_t *raw = 0, *head_raw = 0;
    if (m->file) return m;
    g->arch = kinds[i].arch;
    g->dim = g->ffn = kinds[i].dim;
    g->heads = kinds[i].heads;
    g->kv_heads = kinds[i].kv_heads;
    g->layers = kinds[i].layers;
    g->untied = kinds[i].untied;
    g->embed_type = kinds[i].embed;
    g->head_type = kinds[i].head;
    g->packing = kinds[i].packing;
    g->no_sub_norms = g->arch && strncmp(g->arch, "bitnet", 6);
    if (g->arch && !g->untied && !strcmp(g->arch, "qwen3")) g->file.add_keys = pipeline_pooling;
    if (g->arch && !strcmp(g->arch, "gemma3")) g->file.add_keys = pipeline_window;
    if (i == PIPELINE_MINICPM) g->file.add_keys = pipeline_longrope;
    if (i == PIPELINE_EXPERTS) {
        g->file.experts = 3;
        g->file.add_keys = pipeline_experts;
        imp.type = imp.number = IMP_Q2;
        imp.differ = 1;
        g->encode = imp_encode;
    }
    g->n_ctx = 16;
    g->eps = 1e-5f;
    g->freq_base = 10000.0f;
    g->scale_suffix = i == 8 ? "_scale" : i == 3 ? ".scale" : 0;
    g->words = words;
    g->n_words = 1;                    /* "the"; merges of it only where they can be */
    g->merges = merges;
    g->n_merges = 0;
    g->seed = (uint64_t)i;
    pipeline_type = kinds[i].type;
    pipeline_tile = m->tile = kinds[i].tile;
    if (i >= PIPELINE_GROUPED && i < PIPELINE_EXPERTS)
        raw = pipeline_groups(g, pipeline_type, i >= PIPELINE_ONE_BIT);
    else {
        if (pipeline_type && i < PIPELINE_GROUPED) g->encode = pipeline_encode;
        g->embed_raw = raw = pipeline_blocks(g, g->embed_type, &g->embed_raw_size);
        if (g->untied)
            g->head_raw = head_raw = pipeline_blocks(g, g->head_type, &g->head_raw_size);
    }
    if (i == PIPELINE_HYBRID) pipeline_hybrid(m);
    else gb_make_model(g);
    free(raw);
    free(head_raw);
    FUZZ_CHECK(!bitnet_gguf_open_memory(g->data, g->size, 0, &m->file, 0));
    while (!bitnet_gguf_get_key(m->file, m->n_keys, &k)) m->n_keys++;
    while (!bitnet_gguf_get_tensor(m->file, m->n_tensors, &t)) m->n_tensors++;
    return m;
}

/* Numbers that hurt. */
static uint64_t pipeline_number(fuzz_input *in) {
    static const uint64_t numbers[] = {
        0, 1, 2, 3, 5, 31, 63, 64, 65, 96, 127, 128, 255, 256, 257, 65535, 65536, 1 << 20, 1 << 24,
        0x7fffffff, 0x80000000, 0xffffffff, (uint64_t)1 << 32, (uint64_t)1 << 40,
        (uint64_t)1 << 62, (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 31,
        0x7f800000, 0x7fc00000, 0x7c00, 0x7e00          /* infinities and NaN of F32 and F16 */
    };
    const int i = fuzz_range(in, 0, 39);
    return i < 32 ? numbers[i] : fuzz_uint(in, 4);
}

/* One change. Returns how long the file is then. */
static size_t pipeline_change(fuzz_input *in, const pipeline_model *m, uint8_t *p, size_t size) {
    const int what = fuzz_range(in, 0, 15);
    bitnet_gguf_key k;
    bitnet_gguf_tensor t;
    uint64_t at = 0, v;
    int bytes = 4, i;
    FUZZ_CHECK(!bitnet_gguf_get_key(m->file, (uint64_t)fuzz_range(in, 0, 255) % m->n_keys, &k));
    FUZZ_CHECK(!bitnet_gguf_get_tensor(m->file, (uint64_t)fuzz_range(in, 0, 255) % m->n_tensors,
                                       &t));
    v = pipeline_number(in);
    if (what < 8 && k.value.type == BITNET_GGUF_ARRAY) at = (uint64_t)fuzz_uint(in, 2) * 4;
    switch (what) {
        case 0: case 1: case 2: case 3:            /* a value, or an element of an array */
            at = (uint64_t)(k.value.data - m->g.data) + (k.value.size > 4 ? at % (k.value.size - 3)
                                                                           : 0);
            bytes = k.value.size < 4 ? (int)k.value.size : 4;
            break;
        case 4: at = (uint64_t)(k.value.data - m->g.data) - 8; bytes = 8; break;   /* a count */
        case 5: at = (uint64_t)(k.value.data - m->g.data) - 4; break;              /* a type */
        case 6: at = 8 + 8 * (v & 1); bytes = 8; v = pipeline_number(in); break;   /* a preamble */
        case 7: return (size_t)(v % (size + 1));                                    /* a cut */
        case 8: case 9: case 10: case 11: {        /* a tensor's dimensions, type, place */
            const uint8_t *name = m->g.data;
            const size_t n = strlen(t.name);
            while (memcmp(name, t.name, n) || bitnet__get_u32(name + n) != (uint32_t)t.n_dims)
                name++;
            at = (uint64_t)(name - m->g.data) + n + (what == 8 ? 0 : what == 9 ? 4 : 4 + 8u *
                 (uint32_t)t.n_dims + (what == 10 ? 0 : 4));
            bytes = what == 8 || what == 10 ? 4 : 8;
            break;
        }
        case 12: case 13:                          /* weights, most often scales */
            at = t.offset + (v & 1 ? fuzz_uint(in, 2) % t.size : t.size - (t.size < 32 ? 4 : 32));
            bytes = (int)(t.size < 4 ? t.size : 4);
            v = pipeline_number(in);
            break;
        default: at = fuzz_uint(in, 2); bytes = 1; break;      /* anything of the header */
    }
    for (i = 0; i < bytes && at + (uint64_t)i < size; i++)
        p[at + (uint64_t)i] = (uint8_t)(v >> 8 * i);
    return size;
}

/* Vectors of both tables, of texts that are cut. */
static void pipeline_embed(bitnet_ctx *const *c, const bitnet_model_info *info) {
    static const bitnet_token three[3] = {1, 2, 3};
    bitnet_embed_input in[2];
    const size_t n = 2 * (size_t)info->dim;
    float *x = (float *)gb_malloc(2 * n * sizeof *x);
    bitnet_embed_params how;
    bitnet_error err;
    bitnet_result r[2];
    int i;
    memset(&how, 0, sizeof how);
    how.cut = 1;
    memset(in, 0, sizeof in);
    in[0].text.data = "the \xFF";
    in[0].text.size = 5;
    in[1].tokens = three;
    in[1].n_tokens = 3;
    for (i = 0; i < 2; i++) {
        bitnet_seq_rewind(c[i], 0, 0, NULL);
        r[i] = bitnet_embed(c[i], in, 2, &how, x + (size_t)i * n, &err);
        fuzz_check_error(r[i], &err);
    }
    FUZZ_CHECK(r[0] == r[1]);
    if (r[0] == BITNET_OK) FUZZ_CHECK(fuzz_same_floats(x, x + n, n));
    free(x);
}

/* Text, logits of both tables, a few tokens. */
static void pipeline_use(bitnet_model *const *m) {
    static const char text[] = "the tht <|eot_id|> \xFF";
    bitnet_model_info info;
    bitnet_ctx_params p;
    bitnet_ctx *c[2] = {0, 0};
    bitnet_generate_params gen;
    bitnet_sampler s;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_token tokens[8], pair[2];
    bitnet_result r[2];
    int i, n, k;
    bitnet_model_get_info(m[0], &info);
    n = bitnet_tokenize(m[0], text, sizeof text - 1, BITNET_ADD_BOS, tokens, 8);
    for (i = 0; i < n && i < 8; i++) FUZZ_CHECK(tokens[i] >= 0 && tokens[i] < info.n_vocab);
    FUZZ_CHECK(info.bos < info.n_vocab && info.eos < info.n_vocab && info.eot < info.n_vocab);
    if (info.n_vocab > 2000 || info.n_layers > 4) return;      /* no time for it */
    memset(&p, 0, sizeof p);
    p.n_ctx = 6;
    p.n_batch = p.n_logits = 2;
    p.n_threads = 1;
    pair[0] = 't';
    pair[1] = info.n_vocab - 1;
    for (i = 0; i < 2; i++) {
        r[i] = bitnet_ctx_create(m[i], &p, &c[i], &err);
        fuzz_check_error(r[i], &err);
        if (r[i] == BITNET_OK) r[i] = bitnet_eval(c[i], 0, pair, 2, 2, &err);
        fuzz_check_error(r[i], &err);
    }
    FUZZ_CHECK(r[0] == r[1]);
    for (k = 0; k < 2 && r[0] == BITNET_OK && info.has_head; k++) {
        const float *a = bitnet_logits(c[0], k, NULL), *b = bitnet_logits(c[1], k, NULL);
        FUZZ_CHECK(a && b && fuzz_same_floats(a, b, (size_t)info.n_vocab));
    }
    memset(&s, 0, sizeof s);
    s.temperature = 1.0f;
    s.top_k = 5;
    memset(&gen, 0, sizeof gen);
    gen.tokens = tokens;
    gen.n_tokens = n < 2 ? n : 2;
    gen.sampler = &s;
    if (r[0] == BITNET_OK) {
        bitnet_token t = bitnet_sample(c[0], -1, &s, NULL);
        FUZZ_CHECK(info.has_head ? t >= 0 && t < info.n_vocab
                                 : t == BITNET_ERR_UNSUPPORTED);
        fuzz_check_error(bitnet_generate(c[0], &gen, 0, &err), &err);
    }
    if (r[0] == BITNET_OK) pipeline_embed(c, &info);
    bitnet_ctx_free(c[0]);
    bitnet_ctx_free(c[1]);
}

FUZZ_TARGET(pipeline) {
    fuzz_input in = {data, size};
    const int chosen = fuzz_range(&in, 0, 255), fail = fuzz_range(&in, 0, 95);
    const pipeline_model *m = pipeline_get(
        chosen < 228   ? chosen % PIPELINE_SMALL
        : chosen < 232 ? PIPELINE_ONE_BIT
        : chosen < 236 ? PIPELINE_TWO
        : chosen < 240 ? PIPELINE_EXPERTS
        : chosen < 248 ? PIPELINE_GROUPED + chosen % 2
        : chosen < 250 ? PIPELINE_MINICPM
        : chosen < 252 ? PIPELINE_HYBRID : PIPELINE_SMALL + chosen % 4);
    const int other = fuzz_range(&in, 0, 15) % bitnet_kernels_count();
    size_t n = m->g.size;
    uint8_t *file = (uint8_t *)gb_malloc(n);
    gb_counter count[2];
    gb_reader reader;
    bitnet_model *models[2] = {0, 0};
    bitnet_error err[2] = {{BITNET_OK, "", {0}}, {BITNET_OK, "", {0}}};
    bitnet_result r[2] = {BITNET_OK, BITNET_OK};
    int i;
    memcpy(file, m->g.data, n);
    for (i = 0; i < 8 && in.n > 0; i++) n = pipeline_change(&in, m, file, n);
    if (n < m->g.size) {               /* a block of exactly that size */
        uint8_t *exact = (uint8_t *)gb_malloc(n);
        memcpy(exact, file, n);
        free(file);
        file = exact;
    }
    for (i = 0; i < 2; i++) {
        const bitnet_io io = gb_io(&reader, file, n);
        bitnet_model_params p;
        memset(&p, 0, sizeof p);
        p.allocator = gb_counting(&count[i]);
        p.i2s_packing = m->g.packing;
        p.tile = m->tile;
        p.kernels = i && fuzz_kernel_table(other) ? bitnet_kernels_get(other)
                                                  : bitnet_kernels_find("scalar");
        r[i] = i ? bitnet_model_load_io(&io, &p, &models[i], &err[i])
                 : bitnet_model_load_memory(file, n, &p, &models[i], &err[i]);
        fuzz_check_error(r[i], &err[i]);
        FUZZ_CHECK((r[i] == BITNET_OK) == (models[i] != 0));
        FUZZ_CHECK_MSG(count[i].peak <= 4 * n + sizeof(bitnet_model) + 1024, "%lu for %lu: %s",
                       (unsigned long)count[i].peak, (unsigned long)n, err[i].text);
    }
    FUZZ_CHECK(!reader.past_end);
    /* packing kernels alone refuse a code 3; else all is the same, in the same words */
    if (!strstr(err[1].text, "cannot pack it"))
        FUZZ_CHECK_MSG(r[0] == r[1] && !strcmp(err[0].text, err[1].text), "%s / %s", err[0].text,
                       err[1].text);
    if (models[0] && models[1]) pipeline_use(models);
    for (i = 0; i < 2; i++) {
        bitnet_model_free(models[i]);
        FUZZ_CHECK(count[i].live == 0);
    }
    if (fail < 24) {                   /* an allocation that fails */
        bitnet_model_params p;
        memset(&p, 0, sizeof p);
        p.allocator = gb_counting(&count[0]);
        p.i2s_packing = m->g.packing;
        p.tile = m->tile;
        p.kernels = bitnet_kernels_find("scalar");
        count[0].fail_at = fail;
        fuzz_check_error(bitnet_model_load_memory(file, n, &p, &models[0], &err[0]), &err[0]);
        bitnet_model_free(models[0]);
        FUZZ_CHECK(count[0].live == 0);
    }
    free(file);
}
