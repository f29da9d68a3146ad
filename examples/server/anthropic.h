/* anthropic.h - Anthropic's Messages API: bodies, answers, streams with their events, and errors

   https://docs.anthropic.com/en/api/messages describes it. anthropic.c makes a chat's body of one.
   Fields that are not known, such as those of betas, are ignored. */
#ifndef SERVER_ANTHROPIC_H
#define SERVER_ANTHROPIC_H

#include "endpoint.h"

/* See endpoint.h. */
void anthropic_read(reader *in, uint64_t seed);
/* The same of a body whose tokens are only counted: it may lack max_tokens. */
void anthropic_read_counted(reader *in, uint64_t seed);
void anthropic_whole(buffer *out, const request *r, choice *choices);
void anthropic_event(buffer *out, const request *r, int32_t i, choice *c);
void anthropic_last_event(buffer *out, const request *r, int32_t i, choice *c);
void anthropic_done(buffer *out, const request *r, choice *choices);
void anthropic_error(buffer *out, const http_error *error);
void anthropic_error_event(buffer *out, const request *r, choice *choices, const http_error *error);

#endif
