/* serve_figures.h - how the server does

   serve_figures.c owns the figures, and the addresses that show them: /metrics and /health. */
#ifndef SERVER_SERVE_FIGURES_H
#define SERVER_SERVE_FIGURES_H

#include "serve_http.h"

enum { N_BOUNDS = 13 };                /* of a histogram's intervals */
typedef struct histogram { unsigned long long count[N_BOUNDS + 1]; double sum; } histogram;

/* The lock guards them. */
extern struct figures {
    unsigned long long answers[6];     /* 2: 2xx ... */
    unsigned long long full, gone, prompt, reused, written, embedded, embedded_tokens;
    histogram first_token, per_token;
    int32_t busy_slots, waiting_texts;
    int64_t held_tokens;
} figures;
/* With the lock. */
void figures_observe(histogram *h, double x);

/* Without the lock. */
void figures_count_answer(int status);

answer answer_health(job *j);
answer answer_metrics(job *j);

#endif
