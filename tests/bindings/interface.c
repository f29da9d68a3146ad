/* A user of the declarations alone, in C89 and in C++17 at once. test_bindings.sh compiles it with
   the warnings of people who want none from a header. It has a struct, an enum, a callback and a
   macro of each kind. */
#include "bitnet.h"
#include <string.h>

#ifdef __cplusplus
  #define NONE nullptr
  #define TO(type, p) static_cast<type>(p)
#else
  #define NONE NULL
  #define TO(type, p) (p)
#endif

struct lines { size_t size; int n; };

int read_all(bitnet_ctx *ctx, const bitnet_embed_input *input, float *vector);
int run(const char *path);

static int count(void *ud, const char *text, size_t n, bitnet_token t) {
    struct lines *l = TO(struct lines *, ud);
    l->size += n;
    if (t >= 0 && n && memchr(text, '\n', n)) l->n++;
    return l->n > 3;
}

static int is_late(void *ud) {
    const struct lines *l = TO(const struct lines *, ud);
    return l->size > 1000;
}

static void allow_all(void *ud, uint32_t *allowed) {
    const uint32_t *all = TO(const uint32_t *, ud);
    *allowed = *all;
}

int read_all(bitnet_ctx *ctx, const bitnet_embed_input *input, float *vector) {
    bitnet_embed_params params;
    bitnet_error err;
    memset(&params, 0, sizeof params);
    params.pooling = BITNET_POOLING_MEAN;
    return bitnet_embed(ctx, input, 1, &params, vector, &err) == BITNET_OK ? 0 : 1;
}

int run(const char *path) {
    const bitnet_text stops[2] = {BITNET_TEXT("\n\n"), BITNET_TEXT("a\0b")};
    uint32_t all = 0xffffffffu;
    bitnet_model_params model_params;
    bitnet_ctx_params ctx_params;
    bitnet_generate_params gen;
    bitnet_sampler sampler;
    bitnet_message messages[1];
    bitnet_chat_params chat;
    bitnet_model_info info;
    bitnet_model *model = NONE;
    bitnet_ctx *ctx = NONE;
    bitnet_gen *writing = NONE;
    bitnet_piece piece;
    bitnet_error err;
    bitnet_result r;
    struct lines lines;
    memset(&lines, 0, sizeof lines);
    memset(&model_params, 0, sizeof model_params);
    memset(&ctx_params, 0, sizeof ctx_params);
    memset(&gen, 0, sizeof gen);
    memset(&sampler, 0, sizeof sampler);
    memset(messages, 0, sizeof messages);
    memset(&chat, 0, sizeof chat);
    ctx_params.kv_type = BITNET_KV_I8;
    ctx_params.hooks.cancel_fn = is_late;
    ctx_params.hooks.cancel_ud = &lines;
    sampler.temperature = 0.7f;
    sampler.mask_fn = allow_all;
    sampler.mask_ud = &all;
    chat.thinking = BITNET_THINK_OFF;
    messages[0].role = bitnet_text_of("user");
    messages[0].content = stops[1];
    gen.messages = messages;
    gen.n_messages = 1;
    gen.chat = &chat;
    gen.sampler = &sampler;
    gen.stop_strings = stops;
    gen.n_stop_strings = 2;
    gen.text_fn = count;
    gen.text_ud = &lines;
    r = bitnet_model_load_file(path, &model_params, &model, &err);
    if (r == BITNET_OK) r = bitnet_ctx_create(model, &ctx_params, &ctx, &err);
    if (r == BITNET_OK) r = bitnet_gen_begin(ctx, &gen, &writing, &err);
    if (r == BITNET_OK) r = bitnet_gen_next(&writing, 1, &err);
    bitnet_gen_piece(writing, &piece);
    bitnet_model_get_info(model, &info);
    r = bitnet_gen_end(writing) == BITNET_ERR_BUSY ? BITNET_ERR_BUSY : r;
    r = bitnet_ctx_free(ctx) == BITNET_ERR_BUSY ? BITNET_ERR_BUSY : r;
    bitnet_model_free(model);
    return r == BITNET_OK && piece.ended ? info.n_vocab : -1;
}
