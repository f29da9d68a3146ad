/* endpoint.h - the addresses that take requests, a row each: how a body is read, and how what it
   asks for is written

   A new one is a file with its functions and a row here. The rows are in endpoint.c. */
#ifndef SERVER_ENDPOINT_H
#define SERVER_ENDPOINT_H

#include "choice.h"
#include "fields.h"

struct endpoint {
    const char *path;
    const char *id;                    /* what the ids of its answers begin with */
    /* Reads the fields of a body, an object. seed 0: the service's next one. */
    void (*read)(reader *in, uint64_t seed);

    /* Adds the whole answer: n_texts choices, none where a request has vectors. 0: vector does. */
    void (*whole)(buffer *out, const request *r, choice *choices);
    /* Adds an event with what choice i holds, and empties it; nothing if it holds nothing. 0: it
       has no streams. */
    void (*event)(buffer *out, const request *r, int32_t i, choice *c);
    /* The last event of a choice, whose text has ended. */
    void (*last_event)(buffer *out, const request *r, int32_t i, choice *c);
    /* The end of the stream. */
    void (*done)(buffer *out, const request *r, choice *choices);
    /* A failure as the whole answer, and in the middle of a stream, which it ends. */
    void (*error)(buffer *out, const http_error *error);
    void (*error_event)(buffer *out, const request *r, choice *choices, const http_error *error);

    /* Takes the vector of input embed.n_done; 0: there are none. */
    void (*vector)(buffer *out, const request *r, const float *vector);
};

extern const endpoint endpoint_chat, endpoint_completions, endpoint_responses, endpoint_messages,
                      endpoint_messages_count, endpoint_llama, endpoint_embeddings, endpoint_rerank;

#endif
