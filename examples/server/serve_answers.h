/* serve_answers.h - the addresses of OpenAI's API, and of llama.cpp's server

   serve_answers.c owns what becomes of a request there: a job for the engine, or an answer. */
#ifndef SERVER_SERVE_ANSWERS_H
#define SERVER_SERVE_ANSWERS_H

#include "serve_http.h"

/* On a reader's thread; see job. A request of the route's endpoint is for the engine. */
http_error read_request(job *j);
/* A connection that was suspended goes on: the answer is there, or its stream begins. */
answer answer_read(job *j);

/* On HTTP's thread. */
answer answer_models(job *j);
/* The model by the name in the address. */
answer answer_model(job *j);

#endif
