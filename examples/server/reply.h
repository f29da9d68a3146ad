/* reply.h - the answers of OpenAI's chats, completions and embeddings, whole or as server-sent
   events */
#ifndef SERVER_REPLY_H
#define SERVER_REPLY_H

#include "endpoint.h"

/* See endpoint.h. */
void reply_event(buffer *out, const request *r, int32_t i, choice *c);
void reply_last_event(buffer *out, const request *r, int32_t i, choice *c);
/* usage, if it was asked for, and [DONE]. */
void reply_done(buffer *out, const request *r, choice *choices);
void reply_error_event(buffer *out, const request *r, choice *choices, const http_error *error);
void reply_whole(buffer *out, const request *r, choice *choices);
/* {"error": {...}}. */
void reply_error(buffer *out, const http_error *error);

/* Adds what the vector of input embed.n_done makes of the answer: the first also its beginning, the
   last also its end. */
void reply_vector(buffer *out, const request *r, const float *vector);
/* Why the engine has ended a text. */
http_error reply_failure(const bitnet_error *err);

#endif
