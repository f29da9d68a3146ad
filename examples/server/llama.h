/* llama.h - what llama.cpp's server has beside OpenAI's API: /completion, /apply-template, counts
   of tokens, and the times of an answer

   https://github.com/ggml-org/llama.cpp/tree/master/tools/server describes them. llama.c makes a
   completion's body of one of /completion, whose defaults are others. */
#ifndef SERVER_LLAMA_H
#define SERVER_LLAMA_H

#include "endpoint.h"

/* See endpoint.h. */
void llama_read(reader *in, uint64_t seed);
void llama_whole(buffer *out, const request *r, choice *choices);
void llama_event(buffer *out, const request *r, int32_t i, choice *c);
void llama_last_event(buffer *out, const request *r, int32_t i, choice *c);
void llama_done(buffer *out, const request *r, choice *choices);

/* The settings that /completion has where a body says nothing. */
void llama_add_defaults(buffer *out, service *s);
/* Adds ,"timings":{...} of a request's only text, if it has times. */
void llama_add_timings(buffer *out, const request *r);

/* Answers at once: the prompt that a chat's body makes, and how many tokens it has. */
http_error llama_template(service *s, const endpoint *how, char *body, size_t size, buffer *out);
http_error llama_count(service *s, const endpoint *how, char *body, size_t size, buffer *out);

#endif
