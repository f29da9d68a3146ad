/* Models of ternary weights in other types: logits, places in the file, what must be refused. */
#ifndef TERNARY_HELPERS_H
#define TERNARY_HELPERS_H

#include "library.h"
#include "ternary_builder.h"

static const bitnet_tile imp_none = {0, 0, 0};

/* The logits of three tokens; 0 and err filled if it does not load. */
static inline float *imp_logits(const void *data, size_t size, const bitnet_kernels *k,
                                bitnet_tile tile, int through_io, bitnet_error *err) {
    static const bitnet_token tokens[3] = {7, 42, 99};
    gb_reader reader;
    bitnet_io io = gb_io(&reader, data, size);
    bitnet_model_params p;
    bitnet_ctx_params cp;
    bitnet_model_info info;
    bitnet_model *m = 0;
    bitnet_ctx *c = 0;
    float *out = 0;
    memset(&p, 0, sizeof p);
    memset(&cp, 0, sizeof cp);
    memset(err, 0, sizeof *err);
    p.kernels = k;
    p.tile = tile;
    p.tiles = imp_shapes.tiles;
    p.n_tiles = imp_shapes.n;
    cp.n_ctx = cp.n_logits = 3;
    cp.n_threads = 1;
    if (!(through_io ? bitnet_model_load_io(&io, &p, &m, err)
                     : bitnet_model_load_memory(data, size, &p, &m, err)) &&
        !bitnet_ctx_create(m, &cp, &c, err) && !bitnet_eval(c, 0, tokens, 3, 3, err)) {
        size_t n;
        int i;
        bitnet_model_get_info(m, &info);
        n = (size_t)info.n_vocab;
        out = (float *)gb_malloc(3 * n * sizeof *out);
        for (i = 0; i < 3; i++)
            memcpy(out + (size_t)i * n, bitnet_logits(c, i, 0), n * sizeof *out);
    }
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    return out;
}

/* Every usable table, from memory and through callbacks: the bits of want. */
static inline void imp_check(const void *data, size_t size, bitnet_tile tile, const float *want,
                             size_t n_vocab, const char *what) {
    bitnet_error err;
    int i, io;
    for (i = 0; i < bitnet_kernels_count(); i++)
        for (io = 0; io < 2; io++) {
            const bitnet_kernels *k = bitnet_kernels_get(i);
            float *got;
            int same;
            if (!bitnet_kernels_usable(k)) continue;
            got = imp_logits(data, size, k, tile, io, &err);
            same = got && !memcmp(got, want, 3 * n_vocab * sizeof *got);
            free(got);
            CHECK_MSG(got, "%s, kernels %s: %s", what, k->name, err.text);
            CHECK_MSG(same, "%s, kernels %s: other bits", what, k->name);
        }
}

/* Loads a file that must be refused with a text that has the two words. Takes the file over. */
static inline void imp_refused(uint8_t *data, size_t size, bitnet_tile tile, bitnet_result code,
                               const char *word, const char *word2) {
    bitnet_model_params p;
    bitnet_model *m = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r;
    memset(&p, 0, sizeof p);
    p.tile = tile;
    r = bitnet_model_load_memory(data, size, &p, &m, &err);
    bitnet_model_free(m);
    free(data);
    CHECK_MSG(r == code, "%s instead of %s: %s (%s, %s)", bitnet_result_text(r),
              bitnet_result_text(code), err.text, word, word2);
    CHECK_MSG(strstr(err.text, word) && strstr(err.text, word2), "\"%s\" lacks '%s' or '%s'",
              err.text, word, word2);
}

/* Loads a file whose layers must have this group. */
static inline void imp_grouped(const gb_model *g, int group) {
    bitnet_model_info info;
    bitnet_model *m = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    memset(&info, 0xff, sizeof info);
    if (!bitnet_model_load_memory(g->data, g->size, 0, &m, &err)) bitnet_model_get_info(m, &info);
    bitnet_model_free(m);
    CHECK_MSG(!err.code && info.group == group, "group %d instead of %d: %s", (int)info.group,
              group, err.text);
}

static inline uint8_t *imp_copy(const gb_model *g) {
    uint8_t *p = (uint8_t *)gb_malloc(g->size);
    memcpy(p, g->data, g->size);
    return p;
}

/* Where a tensor's bytes begin in the file. */
static inline size_t imp_offset(const gb_model *g, const char *name) {
    bitnet_allocator a;
    const bitnet__tensor *t;
    bitnet__gguf f;
    size_t at = 0;
    memset(&a, 0, sizeof a);
    memset(&f, 0, sizeof f);
    f.src.data = g->data;
    f.src.size = f.src.have = g->size;
    if (bitnet__gguf_parse(&f, &a, 0) == BITNET_OK) {
        t = bitnet__find_tensor(&f, name);
        at = t ? (size_t)t->offset : 0;
    }
    bitnet__free(&a, f.keys);
    bitnet__free(&a, f.tensors);
    return at;
}

#endif
