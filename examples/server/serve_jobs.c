#include "serve_jobs.h"
#include "serve.h"
#include "serve_figures.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALIVE_SECONDS = 15, MOST_UNREAD = 64 << 20, MOST_VECTORS = 8192 };

static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static job *inbox, **inbox_end = &inbox;         /* for the engine */
static job *running, **running_end = &running;   /* what the engine has */
static long n_texts, n_jobs;                     /* that have not ended; that HTTP knows */
static long n_vectors;                           /* of the requests for embeddings among them */

/* ---- who knows a job ---- */

job *job_create(struct MHD_Connection *c) {
    job *j = (job *)calloc(1, sizeof *j);
    if (!j) return 0;
    j->connection = c;
    j->has_http = 1;
    pthread_mutex_lock(&serve_lock);
    n_jobs++;
    pthread_mutex_unlock(&serve_lock);
    return j;
}

static void free_job(job *j) {
    int32_t i;
    for (i = 0; j->choices && i < j->request.n_texts; i++) choice_free(&j->choices[i]);
    free(j->choices);
    buffer_free(&j->body);
    buffer_free(&j->out);
    request_free(&j->request);
    free(j);
}

/* With the lock. */
static void mark_gone(job *j) {
    if (!j->is_gone) figures.gone++;
    j->is_gone = 1;
}

void job_leave(job *j) {
    int is_free;
    pthread_mutex_lock(&serve_lock);
    n_jobs--;
    j->has_http = 0;
    j->is_suspended = 0;
    if (j->has_engine) mark_gone(j);
    is_free = !j->has_engine;
    pthread_cond_signal(&arrived);
    pthread_mutex_unlock(&serve_lock);
    if (is_free) free_job(j);
}

long jobs_of_http(void) {
    long n;
    pthread_mutex_lock(&serve_lock);
    n = n_jobs;
    pthread_mutex_unlock(&serve_lock);
    return n;
}

int jobs_of_engine(void) {
    int n;
    pthread_mutex_lock(&serve_lock);
    n = running || inbox;
    pthread_mutex_unlock(&serve_lock);
    return n;
}

/* ---- the engine's side; all of it on the main thread ---- */

/* With the lock. The connection's handler, or its reader, runs again. */
static void wake(job *j) {
    if (!j->is_suspended) return;
    j->is_suspended = 0;
    MHD_resume_connection(j->connection);
}

static void cancel(job *j) {
    int32_t i;
    for (i = 0; i < j->request.n_texts; i++) text_cancel(&j->request.texts[i]);
    embed_cancel(&j->request.embed);
}

int jobs_look_for_the_gone(void) {
    int n = 0;
    job *j;
    pthread_mutex_lock(&serve_lock);
    for (j = running; j; j = j->next) {
        if (!j->is_gone && j->is_suspended && http_has_left(j->connection)) mark_gone(j);
        if (!j->is_gone) continue;
        n++;
        cancel(j);
    }
    pthread_mutex_unlock(&serve_lock);
    return n;
}

void jobs_cancel_all(void) {
    job *j;
    pthread_mutex_lock(&serve_lock);
    for (j = running; j; j = j->next) {
        if (!j->error.status) {
            j->error.status = 503;
            strcpy(j->error.text, "the server is shutting down");
        }
        cancel(j);
    }
    pthread_mutex_unlock(&serve_lock);
}

static void on_piece(engine_text *t, const char *piece, size_t n, const token_info *token) {
    job *j = (job *)t->ud;
    const int32_t i = (int32_t)(t - j->request.texts);
    const double time = serve_now();
    choice_add(&j->choices[i], &j->request, t, piece, n, token);
    pthread_mutex_lock(&serve_lock);
    if (j->first <= 0) figures_observe(&figures.first_token, time - j->begun);
    else if (j->request.n_texts == 1) figures_observe(&figures.per_token, time - j->last);
    if (j->first <= 0) j->first = time;
    j->last = time;
    if (j->request.stream) {
        j->request.endpoint->event(&j->out, &j->request, i, &j->choices[i]);
        if (j->out.n > MOST_UNREAD) mark_gone(j);      /* it does not read */
        wake(j);
    }
    pthread_mutex_unlock(&serve_lock);
}

/* With the lock: the last of a job's texts has ended. */
static void finish(job *j) {
    const endpoint *how = j->request.endpoint;
    job **at = &running;
    while (*at != j) at = &(*at)->next;
    *at = j->next;
    if (!j->next) running_end = at;
    j->is_done = 1;
    j->has_engine = 0;
    if (j->request.stream && j->error.status)
        how->error_event(&j->out, &j->request, j->choices, &j->error);
    else if (j->request.stream) how->done(&j->out, &j->request, j->choices);
    else if (!j->error.status && how->whole) how->whole(&j->out, &j->request, j->choices);
    if (j->out.failed && !j->error.status) {
        j->error.status = 503;
        strcpy(j->error.text, "the server has no memory for this answer");
    }
    wake(j);
    if (!j->has_http) free_job(j);
}

static void on_end(engine_text *t) {
    job *j = (job *)t->ud;
    const int32_t i = (int32_t)(t - j->request.texts);
    pthread_mutex_lock(&serve_lock);
    n_texts--;
    figures.prompt += (unsigned long long)(t->n_read - t->n_reused);
    figures.reused += (unsigned long long)t->n_reused;
    figures.written += (unsigned long long)t->n_new;
    if (t->err.code && !j->error.status) j->error = reply_failure(&t->err);
    if (j->request.stream && !j->error.status)
        j->request.endpoint->last_event(&j->out, &j->request, i, &j->choices[i]);
    if (++j->n_ended == j->request.n_texts) finish(j);
    else if (j->request.stream) wake(j);
    pthread_mutex_unlock(&serve_lock);
}

/* Until the last vector nobody else looks at the answer. */
static void on_vector(engine_embed *t, const float *vector) {
    job *j = (job *)t->ud;
    j->request.endpoint->vector(&j->out, &j->request, vector);
    pthread_mutex_lock(&serve_lock);
    figures.embedded++;
    figures.embedded_tokens += (unsigned long long)t->inputs[t->n_done].n_tokens;
    pthread_mutex_unlock(&serve_lock);
}

static void on_embedded(engine_embed *t) {
    job *j = (job *)t->ud;
    pthread_mutex_lock(&serve_lock);
    n_texts--;
    n_vectors -= t->n;
    if (t->err.code && !j->error.status) j->error = reply_failure(&t->err);
    finish(j);
    pthread_mutex_unlock(&serve_lock);
}

/* A comment, so that proxies and clients know that a stream lives. With the lock. */
static void show_life(job *j, double time) {
    if (!j->request.stream || time - j->last < ALIVE_SECONDS) return;
    j->last = time;
    buffer_text(&j->out, ": still here\n\n");
    wake(j);
}

void jobs_take(engine *e, int is_idle) {
    struct timespec until;
    const double time = serve_now();
    job *j, **at;
    int32_t i;
    pthread_mutex_lock(&serve_lock);
    if (is_idle && !inbox) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&arrived, &serve_lock, &until);
    }
    at = running_end;
    *at = inbox;                       /* moves to the end of running, in this order */
    if (inbox) running_end = inbox_end;
    inbox = 0;
    inbox_end = &inbox;
    for (j = *at; j; j = j->next) {
        for (i = 0; i < j->request.n_texts; i++) engine_add(e, &j->request.texts[i]);
        if (j->request.embed.n) engine_add_embed(e, &j->request.embed);
    }
    figures.busy_slots = engine_busy(e);
    figures.waiting_texts = engine_waiting(e);
    figures.held_tokens = engine_held(e);
    for (j = running; j; j = j->next) show_life(j, time);
    http_end_slow(time);
    pthread_mutex_unlock(&serve_lock);
}

/* ---- HTTP's side ---- */

/* With the lock. Has a client any texts that have not ended? */
static int is_served(uint64_t client) {
    const job *j;
    for (j = running; j; j = j->next)
        if (j->client == client) return 1;
    for (j = inbox; j; j = j->next)
        if (j->client == client) return 1;
    return 0;
}

/* A request for embeddings is one text here, whatever the number of its inputs. */
static long places_of(const request *r) { return r->embed.n ? 1 : r->n_texts; }

/* With the lock. Are n more than all may have? Some are only for clients that have none, so that
   one who fills the queue does not shut out all others. */
static int is_full(const job *j, long n, long most, long more) {
    return n > most && (n > most + more || is_served(j->client));
}

/* With the lock. Is there a place for a request? */
static http_error find_place(const job *j) {
    const request *r = &j->request;
    const long most = settings.n_slots + settings.queue_length;
    if (serve_is_stopping()) return http_error_of(503, "the server is shutting down");
    if (r->n_texts > most)
        return http_error_of(400, "these are more texts than the server can take at once");
    if (is_full(j, n_texts + places_of(r), most, settings.n_slots) ||
        is_full(j, n_vectors + r->embed.n, MOST_VECTORS, MOST_VECTORS))
        return http_error_of(429, "all places are taken: try again");
    return http_error_of(0, "");
}

http_error job_submit(job *j) {
    request *r = &j->request;
    http_error e;
    int32_t i;
    j->client = http_client_of(j->connection);
    for (i = 0; i < r->n_texts; i++) {
        r->texts[i].client = j->client;
        r->texts[i].piece_fn = on_piece;
        r->texts[i].end_fn = on_end;
        r->texts[i].ud = j;
    }
    r->embed.client = j->client;
    r->embed.vector_fn = on_vector;
    r->embed.end_fn = on_embedded;
    r->embed.ud = j;
    pthread_mutex_lock(&serve_lock);
    e = find_place(j);
    if (!e.status) {
        n_texts += places_of(r);
        n_vectors += r->embed.n;
        j->begun = j->last = serve_now();
        j->has_engine = j->is_submitted = 1;
        *inbox_end = j;
        inbox_end = &j->next;
        if (!r->stream) {
            j->is_suspended = 1;
            MHD_suspend_connection(j->connection);
        }
        pthread_cond_signal(&arrived);
    }
    pthread_mutex_unlock(&serve_lock);
    return e;
}

ssize_t job_read(void *cls, uint64_t pos, char *buf, size_t max) {
    job *j = (job *)cls;
    ssize_t n;
    (void)pos;
    pthread_mutex_lock(&serve_lock);
    n = (ssize_t)(j->out.n - j->sent < max ? j->out.n - j->sent : max);
    if (n > 0) memcpy(buf, j->out.p + j->sent, (size_t)n);
    j->sent += (size_t)n;
    if (j->sent > j->out.n / 2) {      /* each byte is moved once at most, on average */
        memmove(j->out.p, j->out.p + j->sent, j->out.n - j->sent);
        j->out.n -= j->sent;
        j->sent = 0;
    }
    if (j->out.failed) n = MHD_CONTENT_READER_END_WITH_ERROR;
    else if (n == 0 && j->is_done) n = MHD_CONTENT_READER_END_OF_STREAM;
    else if (n == 0) {
        j->is_suspended = 1;
        MHD_suspend_connection(j->connection);
    }
    pthread_mutex_unlock(&serve_lock);
    return n;
}
