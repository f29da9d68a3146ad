/* serve_answers.h - the addresses of OpenAI's API, and of llama.cpp's server

   serve_answers.c owns what becomes of a request there: a job for the engine, whose answer comes
   later, or an answer at once. */
#ifndef SERVER_SERVE_ANSWERS_H
#define SERVER_SERVE_ANSWERS_H

#include "serve_http.h"

/* A request of the route's endpoint. */
answer answer_request(job *j);
answer answer_tokenize(job *j);
answer answer_detokenize(job *j);
answer answer_models(job *j);
/* The model by the name in the address. */
answer answer_model(job *j);

/* A connection that was suspended goes on: its texts have ended. */
answer answer_ended(job *j);

#endif
