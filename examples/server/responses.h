/* responses.h - OpenAI's Responses API: bodies, answers, and streams with their events

   https://platform.openai.com/docs/api-reference/responses describes it. Nothing is stored: a body
   holds the whole conversation, and what would need a store is refused. responses.c makes a chat's
   body of it. */
#ifndef SERVER_RESPONSES_H
#define SERVER_RESPONSES_H

#include "endpoint.h"

/* See endpoint.h. */
void responses_read(reader *in, uint64_t seed);
void responses_whole(buffer *out, const request *r, choice *choices);
void responses_event(buffer *out, const request *r, int32_t i, choice *c);
void responses_last_event(buffer *out, const request *r, int32_t i, choice *c);
void responses_done(buffer *out, const request *r, choice *choices);
void responses_error_event(buffer *out, const request *r, choice *choices, const http_error *error);

#endif
