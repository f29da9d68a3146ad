/* serve_jobs.h - requests, from their first byte to the last of their answer

   serve_jobs.c owns what waits to be read, what the engine has and what is gone, the places that
   are left, and streams. HTTP's thread makes jobs and submits them. Readers, on threads of their
   own, read bodies: parsing, tokenizing and compiling take up to seconds, in which HTTP and the
   engine go on. The main thread hands what was read to the engine, which fills the answers. Who
   knows a job last frees it. */
#ifndef SERVER_SERVE_JOBS_H
#define SERVER_SERVE_JOBS_H

#include "endpoint.h"
#include <sys/types.h>

enum { CLIENT_ADDRESS = 64 };
typedef struct client {
    uint64_t id;                       /* places are shared out by it */
    char address[CLIENT_ADDRESS];      /* as text */
    int key;                           /* the number of its key, from 1 on; 0: none */
} client;

typedef struct job job;
struct job {
    struct MHD_Connection *connection;
    const struct route *route;
    /* Reads the body, and either makes a request for the engine or the whole answer in out. On a
       reader's thread. 0: there is nothing to read. */
    http_error (*read)(job *j);
    char name[sizeof ((service *)0)->name + 1];  /* what the address has behind its route */
    char method[8], path[128];         /* for the log */
    client client;
    buffer body;                       /* of the request */
    buffer logged;                     /* a copy of it for the log */
    size_t n_body;                     /* what the bodies of all requests count of it */

    request request;
    choice *choices;                   /* [request.n_texts] */
    int32_t n_ended;
    int needs_place;                   /* it is to become texts or vectors */
    long places;                       /* that it has */
    buffer out;                        /* what the client has not got yet */
    size_t sent;                       /* bytes of out that are with the HTTP library */
    size_t in_choices, held;           /* bytes of all choices; of these and out, as all answers
                                          together count them */
    int is_submitted;                  /* a reader or the engine has it, or had it */
    int is_busy;                       /* one of them has it now */
    int is_read;                       /* its stream may begin */
    int is_done;                       /* nothing more will come */
    int is_suspended;
    int is_gone;                       /* the client has left */
    int has_http;                      /* HTTP still knows it */
    http_error error;                  /* in place of an answer */
    double arrived, begun, first, last, done;    /* seconds; 0: not yet */
    size_t to_fetch;                   /* bytes of out when it was done */
    struct { long long prompt, cached, written; } tokens;
    int status;                        /* of the answer; 0: none was sent */
    job *next, *before;
};

/* ---- on HTTP's thread ---- */

/* 0: there is no memory. */
job *job_create(struct MHD_Connection *c);
/* HTTP does not know it any more. */
void job_leave(job *j);
/* Would a request of this client get a place now? */
http_error job_has_place(const job *j);
/* Hands a job to the readers, or says why not. The connection is suspended until there is
   something to say: it has ended, or its stream begins. */
http_error job_submit(job *j);
/* Gives libmicrohttpd what is there of a stream; cls is the job. */
ssize_t job_read_stream(void *cls, uint64_t pos, char *buf, size_t max);

/* A part of the body. What nobody will read is thrown away. */
void job_take_part(job *j, const char *data, size_t size);
/* The body belongs to the caller from here on. 0: there is no memory. */
char *job_take_body(job *j, size_t *size);

/* ---- on a reader's thread ---- */

/* Reads one job; waits for it if `wait`. Returns 0 if there is none, or none will come. */
int jobs_read_one(int wait);
/* The readers end. */
void jobs_end_readers(void);

/* ---- on the main thread ---- */

/* Hands what was read to the engine; is_idle: waits for it, but not for long. */
void jobs_take(engine *e, int is_idle);
/* Cancels the texts of clients that have left. Returns how many jobs that are. */
int jobs_look_for_the_gone(void);
/* With the lock: the client of a job has left. */
void job_has_left(job *j);
/* With the lock: has its client had long enough to fetch the whole answer? */
int job_is_overdue(const job *j, double time);
/* All texts that are left end with an error. */
void jobs_cancel_all(void);
/* How many jobs HTTP knows. */
long jobs_of_http(void);
/* Has anybody jobs, but HTTP? */
int jobs_are_busy(void);

#endif
