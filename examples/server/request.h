/* request.h - the bodies of OpenAI's API: what a client asks for, as texts of the engine

   https://platform.openai.com/docs/api-reference/chat, /completions and /embeddings describe the
   fields. Those that are not known are ignored, as clients expect. What is known and cannot be is
   refused.

   request.c owns the order in which a body is read, the sampler's options, inputs of embeddings,
   and /tokenize and /detokenize. A row of endpoint.h calls it. Behind it are fields.h,
   with the values of fields and the table of those that are refused; tokens.h, with prompts;
   messages.h, with chats; and rules.h, with structured output and tools. What the engine writes is
   collected by choice.h. Bodies of other APIs become these first: see translate.h. */
#ifndef SERVER_REQUEST_H
#define SERVER_REQUEST_H

#include "engine.h"
#include "buffer.h"

/* What texts of all requests share. */
typedef struct service {
    const bitnet_model *model;
    bitnet_model_info info;
    int32_t n_ctx;                     /* tokens that a text may have, with its prompt */
    char name[128];                    /* the model's */
    char fingerprint[64];              /* version and model */
    bitnet_grammar *vocabulary;        /* see service_vocabulary; 0: not made yet */
    uint64_t seed;                     /* of texts that name none; advances */
    int32_t n_best_of;                 /* most texts of a request */
} service;

bitnet_result service_open(service *s, const bitnet_model *model, const char *path, int32_t n_ctx,
                           bitnet_error *err);
void service_close(service *s);
/* What shares its table of the vocabulary with all grammars; made when it is needed first. Requests
   may be read on several threads at once. */
bitnet_result service_vocabulary(service *s, const bitnet_grammar **out, bitnet_error *err);

/* A failure as a client sees it. */
typedef struct http_error {
    int status;                        /* 400 ...; 0: none */
    char text[200], param[64];
    const char *code;                  /* OpenAI's name for it; 0: it has none */
} http_error;

enum { MOST_STOP_BYTES = 16 << 10 };   /* of all stop strings of a request */

/* How a body is read and its answer written; see endpoint.h. */
typedef struct endpoint endpoint;

typedef struct request {
    service *service;
    const endpoint *endpoint;
    char id[48];
    int64_t created;
    int is_chat, stream, include_usage, echo;
    int has_ids;                       /* the answer has the tokens' numbers */
    int has_items;                     /* each text in it has the log-probabilities of its own
                                          tokens, also where a stream ends */
    int32_t logprobs;                  /* as text.logprobs */
    int32_t n_texts;                   /* n for each prompt */
    int32_t n;
    engine_text *texts;                       /* [n_texts]; text i / n belongs to prompt i */
    bitnet_token **prompts;            /* [n_prompts] of texts or embed */
    int32_t n_prompts;
    engine_embed embed;                /* of /v1/embeddings; n is 0 in all others */
    int is_base64;
    bitnet_logit_bias *bias;
    bitnet_text *stops;
    int32_t n_stops;
    size_t *stop_links;                /* see choice_stop_links; 0: the engine searches for them */
    bitnet_grammar *grammar;
    bitnet_chat_params chat;           /* how the messages were written */
    char *tools;                       /* chat.tools */
    int one_call, must_call;           /* a reply ends behind a call; it must have one */
    int binds_calls;                   /* the grammar says what a call is: each becomes complete */
    char *begun;                       /* what the reply begins with, which is not its text; or 0 */
    char *repeats;                     /* fields that the answer repeats, JSON; or 0 */
    struct ranking *ranking;           /* of rerank.c */
} request;

/* Reads a body, which is taken over: size bytes and a NUL from malloc. name is for errors. seed 0:
   the service's next one. All texts, or embed, have their tokens and options; the caller adds
   piece_fn, end_fn, ud and client. request_free must follow, even on failure. */
http_error request_parse(request *r, service *s, const endpoint *from, const char *name, char *body,
                         size_t size, uint64_t seed);
void request_free(request *r);

/* splitmix64: numbers that follow each other become ones that have nothing in common. */
uint64_t request_mix(uint64_t x);

/* /tokenize {"content": "...", "add_special": false, "parse_special": true} and /detokenize
   {"tokens": [...]}, as llama.cpp's server has them: the answer is added to out. */
http_error request_tokenize(service *s, const endpoint *how, char *body, size_t size, buffer *out);
http_error request_detokenize(service *s, const endpoint *how, char *body, size_t size,
                              buffer *out);

#endif
