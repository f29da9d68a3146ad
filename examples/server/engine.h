/* engine.h - continuous batching: many texts, which begin and end at any time, in the same passes

   A text gets a sequence of the context ("slot") when one is free. Each pass over the weights then
   reads a part of its prompt or writes its next token, together with all others. A slot keeps what
   it holds when its text has ended, so the next text with the same beginning need not read that
   again. Where all slots together may hold less than they could (n_kv) and it is full, what is kept
   goes first; then a text that has not written anything, or may begin again, waits until another
   one has ended.

   Embeddings need no slots: texts of many jobs become vectors in the same pass, and each client
   gets as many tokens as any other.

   All calls come from one thread, that of the engine. */
#ifndef SERVER_ENGINE_H
#define SERVER_ENGINE_H

#include "../../bitnet.h"
#include "../../bitnet_grammar.h"

typedef struct engine engine;
typedef struct engine_text engine_text;

/* A token of a text, with the logarithm of its probability before the sampler, and the best. */
typedef struct token_info {
    bitnet_token token;
    int has_logprobs;                  /* the first token of a prompt has none */
    float logprob;
    const bitnet_logprob *best;        /* [n_best], the best first */
    int32_t n_best;
} token_info;

/* What the engine tells the owner of a text, from within its calls. piece is new text, perhaps
   none, that became certain with `token`; token 0: only text that was held back. */
typedef void (*text_piece_fn)(engine_text *t, const char *piece, size_t n, const token_info *token);
typedef void (*text_end_fn)(engine_text *t);
typedef void (*text_again_fn)(engine_text *t);

/* One text. The caller sets the first part, all else zero; it lives until end_fn is called. */
struct engine_text {
    const bitnet_token *prompt;        /* [n_prompt] */
    int32_t n_prompt;                  /* 1 or more, and less than the context */
    int32_t max_tokens;                /* 0: only the prompt is read; < 0: until the slot is full */
    bitnet_sampler sampler;            /* without mask */
    const bitnet_text *stops;
    int32_t n_stops;
    const bitnet_grammar *grammar;     /* 0: any text */
    int32_t logprobs;                  /* so many best tokens with each, 0 .. 20; < 0: none */
    int echo;                          /* piece_fn also gets the prompt's tokens */
    int32_t n_unspelled;               /* the first so many of these are not text of the client's */
    const engine_text *first;          /* 0, or one with this prompt, which is to be read first */
    uint64_t client;                   /* whose it is: slots are shared out fairly */
    text_piece_fn piece_fn;
    text_end_fn end_fn;
    text_again_fn again_fn;            /* 0, or: where others need its room it begins again later
                                          (this is called) rather than end. So BITNET_ERR_FULL
                                          means that it has no room even alone. */
    void *ud;

    int is_enough;                     /* piece_fn may set it: the text ends here, as by a stop */

    /* set by the engine */
    int32_t n_reused, n_read;          /* of the prompt: found in a slot and not read again, as
                                          recurrent layers may need; and had in all */
    int32_t n_cached;                  /* of n_reused: what texts of the same client have left; of
                                          others' it must not be told, since that would tell it
                                          what they have asked. So with several clients it counts
                                          what is read again, too: others may have spared that */
    int32_t n_new;                     /* tokens written */
    bitnet_stop why;                   /* why it ended, if err.code is BITNET_OK */
    bitnet_error err;                  /* BITNET_ERR_CANCELLED after text_cancel */
    double begun_at, first_at, last_at;      /* seconds: when it got a slot, and wrote its first
                                                and last token; 0 without now_fn */

    /* the engine's own */
    int32_t slot;
    uint64_t rng;                      /* sampler.rng at its beginning */
    int32_t n_echoed;
    int closed;
    bitnet_gen *gen;
    bitnet_matcher *matcher;
    int32_t mask_steps;                /* that it has left for masks; < 0: it has taken more */
    int has_mask;                      /* of its next token */
    engine_text *next;
    engine *owner;
    int cancelled;                     /* set by any thread */
};

/* Texts that become vectors, one after the other. The caller sets the first part, all else zero; it
   lives until end_fn is called. */
typedef struct engine_embed engine_embed;
typedef void (*embed_vector_fn)(engine_embed *t, const float *vector);     /* of input n_done */
typedef void (*embed_end_fn)(engine_embed *t);
struct engine_embed {
    bitnet_embed_input *inputs;        /* [n] tokens, each within the context */
    int32_t n;                         /* 1 or more */
    uint64_t client;                   /* whose they are */
    embed_vector_fn vector_fn;
    embed_end_fn end_fn;
    void *ud;

    /* set by the engine */
    int32_t n_done;
    bitnet_error err;                  /* BITNET_ERR_CANCELLED after embed_cancel */

    /* the engine's own */
    int32_t n_begun;
    engine_embed *next;
    int cancelled;                     /* set by any thread */
};

/* cancel_fn is asked during a pass, at least every 20 ms; nonzero: some text has been cancelled. A
   pass stops only if all of its texts have: those who come and go do not hold up the others. */
typedef struct engine_params {
    int32_t n_slots;
    int32_t n_ctx;                     /* of each slot; 0: the default */
    int32_t n_threads;                 /* 0: the default */
    int64_t n_kv;                      /* tokens that all slots may hold together; 0: all */
    int64_t gap_ms;                    /* see bitnet_ctx_params */
    bitnet_kv_type kv_type;
    bitnet_cancel_fn cancel_fn;
    void *ud;
    double (*now_fn)(void);            /* seconds; 0: texts have no times */
} engine_params;
/* Bytes that each token of a text takes, and those of all else that the engine allocates, but for
   what all contexts of the model share. n_ctx is not 0, and n_kv does not matter. */
uint64_t engine_token_bytes(const bitnet_model *model, const engine_params *params);
uint64_t engine_bytes(const bitnet_model *model, const engine_params *params);
/* For a model that writes text, or makes embeddings, or both. Returns 0, and err says why. */
engine *engine_create(const bitnet_model *model, const engine_params *params, bitnet_error *err);
/* Ends all texts as cancelled. */
void engine_free(engine *e);

/* Adds a text, which waits until a slot is free. */
void engine_add(engine *e, engine_text *t);
/* The text ends with the next pass; from any thread. */
void text_cancel(engine_text *t);
/* The same for texts that become vectors, if the model makes embeddings. */
void engine_add_embed(engine *e, engine_embed *t);
void embed_cancel(engine_embed *t);
/* One pass. Returns how many texts it had, and so 0 when there is nothing to do. */
int engine_pass(engine *e);

int32_t engine_ctx(const engine *e);             /* tokens that a slot can hold */
int32_t engine_busy(const engine *e);            /* texts that have a slot */
int32_t engine_waiting(const engine *e);         /* texts that have none, or have no vector yet */
int32_t engine_most(const engine *e);            /* texts that a pass can have */
int64_t engine_held(const engine *e);            /* tokens in all slots */

#endif
