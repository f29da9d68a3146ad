/* serve_llama.h - addresses of llama.cpp's server, and counts of tokens

   serve_llama.c owns what is answered at once there: what the server can do, what its slots do, and
   what a chat's body would become. /completion is an endpoint; see llama.h. */
#ifndef SERVER_SERVE_LLAMA_H
#define SERVER_SERVE_LLAMA_H

#include "serve_http.h"

answer answer_props(job *j);
answer answer_slots(job *j);

/* On a reader's thread; see job. */
http_error read_template(job *j);
http_error read_tokenize(job *j);
http_error read_detokenize(job *j);
/* The tokens of a body of the route's endpoint. */
http_error read_count(job *j);

#endif
