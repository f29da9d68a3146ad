/* village.c - characters of a game: each is a sequence of one context, and all speak at once

       cc -O2 examples/village.c -o village -lpthread
       ./village MODEL.gguf ["What has happened."]

   The story so far is read once and shared. Each pass over the weights writes a word of every
   character. Then each takes one of the game's own actions: a mask leaves the model no other
   words. */
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"
#include <stdio.h>
#include <string.h>

enum { N_CHARACTERS = 3, N_ACTIONS = 3, MOST_TOKENS = 16, STORY = N_CHARACTERS };

static const char *const names[N_CHARACTERS] = {"mother", "boy", "dog"};
static const char *const actions[N_ACTIONS] = {" ran away", " stayed at home", " went to sleep"};

/* The tokens of the actions, and what a character has said of one. */
typedef struct choice {
    bitnet_token tokens[N_ACTIONS][MOST_TOKENS], said[MOST_TOKENS];
    int n[N_ACTIONS], n_said;
} choice;

static int begins(const choice *c, int action) {
    return c->n_said <= c->n[action] &&
           !memcmp(c->tokens[action], c->said, (size_t)c->n_said * sizeof *c->said);
}

/* A mask_fn: the next token of each action that begins with what was said. Nothing is left after a
   whole action, which ends the text. */
static void allow_actions(void *ud, uint32_t *allowed) {
    const choice *c = (const choice *)ud;
    int i;
    for (i = 0; i < N_ACTIONS; i++)
        if (begins(c, i) && c->n_said < c->n[i]) {
            const bitnet_token t = c->tokens[i][c->n_said];
            allowed[t / 32] |= 1u << t % 32;
        }
}

/* A chosen_fn. */
static void note_word(void *ud, bitnet_token t) {
    choice *c = (choice *)ud;
    c->said[c->n_said++] = t;
}

static int fail(const char *what, const char *why) {
    fprintf(stderr, "village: %s: %s\n", what, why);
    return 1;
}

/* Lets all characters go on from these texts, together; texts[i] becomes what they write. */
static bitnet_result speak(bitnet_ctx *ctx, char texts[][400], bitnet_sampler *samplers,
                           int max_tokens, bitnet_error *err) {
    static const bitnet_text stops[] = {BITNET_TEXT("."), BITNET_TEXT("\n")};
    bitnet_gen *gens[N_CHARACTERS] = {0};
    bitnet_generate_params p;
    bitnet_piece piece;
    bitnet_result r = BITNET_OK;
    int i, open = N_CHARACTERS;
    memset(&p, 0, sizeof p);
    p.max_tokens = max_tokens;
    p.stop_strings = stops;
    p.n_stop_strings = 2;
    for (i = 0; i < N_CHARACTERS && r == BITNET_OK; i++) {
        p.seq = i;
        p.text.data = texts[i];
        p.text.size = strlen(texts[i]);
        p.sampler = &samplers[i];
        r = bitnet_gen_begin(ctx, &p, &gens[i], err);
        texts[i][0] = 0;
    }
    while (open > 0 && r == BITNET_OK) {
        r = bitnet_gen_next(gens, N_CHARACTERS, err);
        for (i = open = 0; i < N_CHARACTERS && r == BITNET_OK; i++) {
            const size_t n = strlen(texts[i]);
            bitnet_gen_piece(gens[i], &piece);
            if (piece.text.size < 400 - n) {
                memcpy(texts[i] + n, piece.text.data, piece.text.size);
                texts[i][n + piece.text.size] = 0;
            }
            open += !piece.ended;
        }
    }
    for (i = 0; i < N_CHARACTERS; i++) bitnet_gen_end(gens[i]);
    return r;
}

static bitnet_result play(const bitnet_model *model, bitnet_ctx *ctx, bitnet_error *err) {
    static char texts[N_CHARACTERS][400];
    static choice choices[N_CHARACTERS];
    bitnet_sampler samplers[N_CHARACTERS];
    bitnet_result r;
    int i, k;
    memset(samplers, 0, sizeof samplers);
    for (i = 0; i < N_CHARACTERS; i++) {
        samplers[i].temperature = 0.7f;
        samplers[i].top_k = 40;
        samplers[i].rng = (uint64_t)i;
        snprintf(texts[i], sizeof texts[i], " The %s wanted to", names[i]);
        r = bitnet_seq_copy(ctx, STORY, i, bitnet_seq_length(ctx, STORY), err);
        if (r != BITNET_OK) return r;
    }
    r = speak(ctx, texts, samplers, 25, err);
    for (i = 0; i < N_CHARACTERS && r == BITNET_OK; i++) {
        printf("The %s wanted to%s.\n", names[i], texts[i]);
        snprintf(texts[i], sizeof texts[i], ". So the %s", names[i]);
        for (k = 0; k < N_ACTIONS; k++)
            choices[i].n[k] = bitnet_tokenize(model, actions[k], strlen(actions[k]), 0,
                                              choices[i].tokens[k], MOST_TOKENS);
        samplers[i].mask_fn = allow_actions;
        samplers[i].chosen_fn = note_word;
        samplers[i].mask_ud = samplers[i].chosen_ud = &choices[i];
    }
    if (r == BITNET_OK) r = speak(ctx, texts, samplers, MOST_TOKENS, err);
    for (i = 0; i < N_CHARACTERS && r == BITNET_OK; i++)
        for (k = 0; k < N_ACTIONS; k++)        /* what the game's rules would go on with */
            if (choices[i].n_said == choices[i].n[k] && begins(&choices[i], k))
                printf("The %s takes action %d:%s.\n", names[i], k, actions[k]);
    return r;
}

int main(int argc, char **argv) {
    const char *story = argc > 2 ? argv[2] : "Once upon a time there was a bear. It came to the "
                                             "house of a family.";
    bitnet_model *model = 0;
    bitnet_ctx *ctx = 0;
    bitnet_ctx_params cp;
    bitnet_error err;
    bitnet_token tokens[400];
    int code = 0, n;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s MODEL.gguf [\"What has happened.\"]\n", argv[0]);
        return 2;
    }
    if (bitnet_model_load_file(argv[1], 0, &model, &err)) return fail(argv[1], err.text);
    memset(&cp, 0, sizeof cp);
    cp.n_ctx = 512;
    cp.n_seqs = N_CHARACTERS + 1;
    n = bitnet_tokenize(model, story, strlen(story), BITNET_ADD_BOS, tokens, 400);
    if (n < 0 || n > 400) code = fail("the story", n < 0 ? "it cannot be read" : "it is too long");
    else if (bitnet_ctx_create(model, &cp, &ctx, &err) ||
             bitnet_seq_sync(ctx, STORY, tokens, n, 0, &err) || play(model, ctx, &err))
        code = fail(argv[1], err.text);
    bitnet_ctx_free(ctx);
    bitnet_model_free(model);
    return code || fflush(stdout) || ferror(stdout);
}
