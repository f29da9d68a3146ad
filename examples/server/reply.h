/* reply.h - the answers of OpenAI's API, whole or as server-sent events */
#ifndef SERVER_REPLY_H
#define SERVER_REPLY_H

#include "request.h"

/* What one text of a request has given, and the client has not been told yet; all zero to begin. */
typedef struct choice {
    buffer text, thinking;
    buffer calls;                            /* tool calls, a list of JSON without brackets */
    bitnet_reply parts;
    int is_divided;                          /* parts is ready */
    buffer raw;                              /* as it was written: what parts holds back, or a call
                                                that is being written, with its tag */
    size_t n_told;                           /* of raw: the client has written it itself */
    size_t inside;                           /* where in raw the call's tag ends */
    int is_object;                           /* the call's text begins with { */
    int is_behind_call;                      /* no text has come since a call */
    int is_closed;                           /* nothing more belongs to it */
    int32_t n_calls;                         /* complete ones, told or not */
    buffer tokens, values, best, offsets;    /* lists of log-probabilities, without brackets */
    size_t length;                           /* characters of all text so far, for text_offset */
    int begun;                               /* the first event was sent */
} choice;

void choice_free(choice *c);
/* What the engine said; see text_piece_fn. */
void choice_add(choice *c, const request *r, engine_text *t, const char *piece, size_t n,
                const token_info *token);

/* Adds an event with what choice number i holds, and empties it; nothing if it holds nothing. */
void reply_event(buffer *out, const request *r, int32_t i, choice *c);
/* The last event of a choice, whose text has ended. */
void reply_last_event(buffer *out, const request *r, int32_t i, choice *c);
/* The end of the stream: usage, if it was asked for, and [DONE]. */
void reply_done(buffer *out, const request *r);
/* An error in the middle of a stream, which ends it. */
void reply_error_event(buffer *out, const http_error *error);

/* The whole answer: n_texts choices. */
void reply_whole(buffer *out, const request *r, choice *choices);
/* Adds what the vector of input embed.n_done makes of the answer: the first also its beginning, the
   last also its end. */
void reply_vector(buffer *out, const request *r, const float *vector);
/* {"error": {...}}. */
void reply_error(buffer *out, const http_error *error);
/* Why the engine has ended a text. */
http_error reply_failure(const bitnet_error *err);

#endif
