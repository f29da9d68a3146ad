/* A program of a later version, whose header has a field `later` where today's has its first
   reserved word. It sets the field, and then each word behind it, in each struct of parameters.

       later MODEL old     with today's library, which refuses all and says which struct it is
       later MODEL new     with the later one: the field has an effect, the words are refused */
#include "bitnet.h"
#include <stdio.h>
#include <string.h>

static struct {
    bitnet_allocator allocator;
    bitnet_io io;
    bitnet_model_params model;
    bitnet_hooks hooks;
    bitnet_ctx_params ctx;
    bitnet_input input;
    bitnet_sampler sampler;
    bitnet_message message;
    bitnet_chat_template form;
    bitnet_chat_params chat;
    bitnet_generate_params generate;
    bitnet_embed_input embed_input;
    bitnet_embed_params embed;
} s;

static const char *path;
static bitnet_model *model;
static bitnet_ctx *ctx;
static unsigned char file[1 << 22];
static uint64_t file_size, state_size;
static unsigned char state[1 << 16];

static bitnet_result read_file(void *ud, uint64_t offset, void *dst, size_t n) {
    memcpy(dst, (const unsigned char *)ud + offset, n);
    return BITNET_OK;
}

static bitnet_result write_state(void *ud, const void *data, size_t n) {
    (void)ud;
    (void)data;
    (void)n;
    return BITNET_OK;
}

/* Parameters with which every call here succeeds. */
static void clear(void) {
    const bitnet_chat_template *form = bitnet_model_chat_template(model);
    static const bitnet_token token = 1;
    memset(&s, 0, sizeof s);
    s.io.size = file_size;
    s.io.read_fn = read_file;
    s.io.write_fn = write_state;
    s.io.ud = file;
    s.ctx.n_ctx = 64;
    s.input.tokens = &token;
    s.input.n_tokens = s.input.n_logits = 1;
    s.message.role = bitnet_text_of("user");
    s.message.content = bitnet_text_of("Hello!");
    if (form) s.form = *form;
    s.chat.chat_template = &s.form;
    s.generate.messages = &s.message;
    s.generate.n_messages = 1;
    s.generate.chat = &s.chat;
    s.generate.sampler = &s.sampler;
    s.generate.max_tokens = 1;
    s.embed_input.text = bitnet_text_of("Hello!");
    s.embed.pooling = BITNET_POOLING_MEAN;
}

/* The calls that take such structs. */
typedef enum call {
    LOAD_FILE, LOAD_IO, GGUF_FILE, GGUF_IO, CREATE, SET_HOOKS, EVAL_MANY, SAMPLE, SAMPLE_LOGITS,
    GENERATE, GEN_BEGIN, TOKENIZE, EMBED, SAVE, LOAD_STATE
} call;
static const char *const call_names[] = {
    "model_load_file", "model_load_io", "gguf_open_file", "gguf_open_io", "ctx_create",
    "ctx_set_hooks", "eval_many", "sample", "sample_logits", "generate", "gen_begin",
    "chat_tokenize", "embed", "seq_save_io", "seq_load_io"};

static int make(call what, bitnet_error *err) {
    static float numbers[1 << 16];
    bitnet_token token = 1;
    bitnet_model *m = NULL;
    bitnet_gguf *g = NULL;
    bitnet_ctx *c = NULL;
    bitnet_gen *gen = NULL;
    int r = -100;
    bitnet_seq_rewind(ctx, 0, 0, NULL);
    if (what == SAMPLE) bitnet_eval(ctx, 0, &token, 1, 1, NULL);
    switch (what) {
        case LOAD_FILE: r = bitnet_model_load_file(path, &s.model, &m, err); break;
        case LOAD_IO: r = bitnet_model_load_io(&s.io, &s.model, &m, err); break;
        case GGUF_FILE: r = bitnet_gguf_open_file(path, &s.allocator, &g, err); break;
        case GGUF_IO: r = bitnet_gguf_open_io(&s.io, &s.allocator, &g, err); break;
        case CREATE: r = bitnet_ctx_create(model, &s.ctx, &c, err); break;
        case SET_HOOKS: r = bitnet_ctx_set_hooks(ctx, &s.hooks, err); break;
        case EVAL_MANY: r = bitnet_eval_many(ctx, &s.input, 1, err); break;
        case SAMPLE: r = bitnet_sample(ctx, -1, &s.sampler, err); break;
        case SAMPLE_LOGITS:
            r = bitnet_sample_logits(ctx, numbers, &token, 1, &s.sampler, err);
            break;
        case GENERATE: r = bitnet_generate(ctx, &s.generate, NULL, err); break;
        case GEN_BEGIN: r = bitnet_gen_begin(ctx, &s.generate, &gen, err); break;
        case TOKENIZE:
            r = bitnet_chat_tokenize(model, &s.chat, &s.message, 1, 0, NULL, 0, err);
            break;
        case EMBED: r = bitnet_embed(ctx, &s.embed_input, 1, &s.embed, numbers, err); break;
        case SAVE: r = bitnet_seq_save_io(ctx, 0, &s.io, err); break;
        case LOAD_STATE:
            s.io.ud = state;
            s.io.size = state_size;
            r = bitnet_seq_load_io(ctx, 0, &s.io, err);
            break;
    }
    bitnet_gen_end(gen);
    bitnet_ctx_free(c);
    bitnet_gguf_close(g);
    bitnet_model_free(m);
    return r;
}

#define CASE(type, place, what) \
    {#type, (char *)&s.place.later, sizeof s.place - offsetof(type, later), what}
static const struct {
    const char *type;
    char *words;
    size_t size;
    call what;
} cases[] = {
    CASE(bitnet_allocator, allocator, GGUF_FILE),
    CASE(bitnet_allocator, model.allocator, LOAD_FILE),
    CASE(bitnet_io, io, LOAD_IO),
    CASE(bitnet_io, io, GGUF_IO),
    CASE(bitnet_io, io, SAVE),
    CASE(bitnet_io, io, LOAD_STATE),
    CASE(bitnet_model_params, model, LOAD_FILE),
    CASE(bitnet_model_params, model, LOAD_IO),
    CASE(bitnet_hooks, hooks, SET_HOOKS),
    CASE(bitnet_hooks, ctx.hooks, CREATE),
    CASE(bitnet_ctx_params, ctx, CREATE),
    CASE(bitnet_input, input, EVAL_MANY),
    CASE(bitnet_sampler, sampler, SAMPLE),
    CASE(bitnet_sampler, sampler, SAMPLE_LOGITS),
    CASE(bitnet_sampler, sampler, GENERATE),
    CASE(bitnet_message, message, TOKENIZE),
    CASE(bitnet_message, message, GENERATE),
    CASE(bitnet_chat_template, form, TOKENIZE),
    CASE(bitnet_chat_template, form, GENERATE),
    CASE(bitnet_chat_params, chat, TOKENIZE),
    CASE(bitnet_chat_params, chat, GENERATE),
    CASE(bitnet_generate_params, generate, GENERATE),
    CASE(bitnet_generate_params, generate, GEN_BEGIN),
    CASE(bitnet_embed_input, embed_input, EMBED),
    CASE(bitnet_embed_params, embed, EMBED),
};

static int n_bad;

static void expect(int good, size_t i, size_t word, const char *what, const char *text) {
    if (good) return;
    n_bad++;
    printf("%s of bitnet_%s, word %d: %s: %s\n", cases[i].type, call_names[cases[i].what],
           (int)word, what, text);
}

/* One word of a struct: 0 is accepted, 7 is refused as it should be. */
static void try_word(size_t i, size_t word, int code) {
    const uint64_t seven = 7;
    bitnet_error err;
    int r;
    memset(&err, 0, sizeof err);
    clear();
    r = make(cases[i].what, &err);
    expect(r >= 0, i, word, "0 is refused", err.text);
    clear();
    memcpy(cases[i].words + word * sizeof seven, &seven, sizeof seven);
    r = make(cases[i].what, &err);
    expect(r == code, i, word, bitnet_result_text((bitnet_result)r), err.text);
    expect(strstr(err.text, cases[i].type) != NULL, i, word, "the struct is not named", err.text);
}

/* What results have in the field: 0 from a library that does not know it. */
static void try_results(uint64_t wanted) {
    bitnet_model_info info;
    bitnet_figures figures;
    bitnet_piece piece;
    bitnet_error err;
    memset(&info, 0xff, sizeof info);
    memset(&figures, 0xff, sizeof figures);
    memset(&piece, 0xff, sizeof piece);
    memset(&err, 0xff, sizeof err);
    bitnet_model_get_info(model, &info);
    bitnet_seq_figures(ctx, 0, &figures);
    bitnet_gen_piece(NULL, &piece);
    bitnet_model_load_file("", NULL, NULL, &err);
    if (info.later != wanted || figures.later || piece.later || err.later) {
        n_bad++;
        printf("results: %lx %lx %lx %lx\n", (unsigned long)info.later,
               (unsigned long)figures.later, (unsigned long)piece.later,
               (unsigned long)err.later);
    }
}

int main(int argc, char **argv) {
    const int is_new = argc > 2 && strcmp(argv[2], "new") == 0;
    bitnet_ctx_params params;
    bitnet_error err;
    bitnet_token token = 1;
    FILE *f;
    size_t i, word;
    memset(&params, 0, sizeof params);
    params.n_ctx = 64;
    path = argc > 1 ? argv[1] : "";
    f = fopen(path, "rb");
    if (!f) return 2;
    file_size = fread(file, 1, sizeof file, f);
    fclose(f);
    if (bitnet_model_load_file(path, NULL, &model, &err) ||
        bitnet_ctx_create(model, &params, &ctx, &err) ||
        bitnet_eval(ctx, 0, &token, 1, 1, &err) ||
        bitnet_seq_save_memory(ctx, 0, state, sizeof state, &err)) {
        printf("%s\n", err.text);
        return 2;
    }
    state_size = bitnet_seq_state_bytes(ctx, 0);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (word = 0; word < cases[i].size / 8; word++)
            try_word(i, word, is_new && word == 0 ? BITNET_ERR_FULL : BITNET_ERR_ARG);
    try_results(is_new ? 41 : 0);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    printf("%d cases, %d bad\n", (int)i, n_bad);
    return n_bad != 0;
}
