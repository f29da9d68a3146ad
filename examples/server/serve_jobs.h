/* serve_jobs.h - requests, from their first byte to the last of their answer

   serve_jobs.c owns what waits for the engine, what the engine has and what is gone, the places
   that are left, and streams. HTTP's thread makes jobs and submits them; the main thread hands them
   to the engine, which fills their answers. Who knows a job last frees it. */
#ifndef SERVER_SERVE_JOBS_H
#define SERVER_SERVE_JOBS_H

#include "reply.h"
#include <sys/types.h>

typedef struct job {
    struct MHD_Connection *connection;
    const struct route *route;
    char name[sizeof ((service *)0)->name + 1];  /* what the address has behind its route */
    buffer body;                       /* of the request */
    size_t n_body;                     /* of it, in body_bytes */
    int is_submitted;
    uint64_t client;                   /* see http_client_of */

    request request;
    choice *choices;                   /* [request.n_texts] */
    int32_t n_ended;
    buffer out;                        /* what the client has not got yet */
    size_t sent;                       /* bytes of out that are with the HTTP library */
    int is_done;                       /* nothing more will come */
    int is_suspended;
    int is_gone;                       /* the client has left */
    int has_engine, has_http;          /* who still knows it */
    http_error error;                  /* in place of an answer */
    double begun, first, last;         /* seconds; 0: not yet */
    struct job *next;
} job;

/* ---- on HTTP's thread ---- */

/* 0: there is no memory. */
job *job_create(struct MHD_Connection *c);
/* HTTP does not know it any more. */
void job_leave(job *j);
/* Hands a job to the engine, or says why not. */
http_error job_submit(job *j);
/* Gives libmicrohttpd what is there of a stream; cls is the job. */
ssize_t job_read(void *cls, uint64_t pos, char *buf, size_t max);

/* ---- on the main thread ---- */

/* Hands what has arrived to the engine; is_idle: waits for it, but not for long. */
void jobs_take(engine *e, int is_idle);
/* Cancels the texts of clients that have left. Returns how many jobs that are. */
int jobs_look_for_the_gone(void);
/* All texts that are left end with an error. */
void jobs_cancel_all(void);
/* How many jobs HTTP knows. */
long jobs_of_http(void);
/* Has the engine any, or is it to get any? */
int jobs_of_engine(void);

#endif
