#include "serve_jobs.h"
#include "reply.h"
#include "serve.h"
#include "serve_figures.h"
#include "serve_http.h"
#include "serve_log.h"
#include "serve_peers.h"
#include <stdlib.h>
#include <string.h>

enum { ALIVE_SECONDS = 15, MOST_VECTORS = 8192, SMALL_BODY = 64 << 10, MOST_BODIES = 8,
       MOST_ANSWER = 64 << 20, MOST_ANSWERS = 8,
       LEAST_RATE = 64 << 10 };        /* bytes a second */

static thread_signal arrived = THREAD_SIGNAL;
static thread_signal to_read = THREAD_SIGNAL;
static job *inbox, **inbox_end = &inbox;         /* for the engine */
static job *running, *last_running;              /* what the engine has */
static long n_texts;                             /* places that are taken */
static long n_jobs, n_busy;                      /* that HTTP knows; that others have */
static long n_gone;                              /* running ones whose client has left */
static long n_vectors;                           /* of the requests for embeddings among them */
static size_t body_bytes, answer_bytes;          /* of all jobs */

/* How many jobs a client has that have not ended: of all clients with the same last digits, which
   are seldom two. */
enum { CLIENTS = 65536 };
static int32_t served[CLIENTS];
static int32_t *served_of(const job *j) { return &served[j->client.id % CLIENTS]; }

/* ---- who knows a job ---- */

job *job_create(struct MHD_Connection *c) {
    job *j = (job *)calloc(1, sizeof *j);
    if (!j) return 0;
    j->connection = c;
    j->has_http = 1;
    j->arrived = serve_now();
    thread_take(&serve_lock);
    n_jobs++;
    thread_give(&serve_lock);
    return j;
}

/* Without the lock: who knows it last does that. */
static void free_job(job *j) {
    int32_t i;
    log_job(j);
    for (i = 0; j->choices && i < j->request.n_texts; i++) choice_free(&j->choices[i]);
    free(j->choices);
    buffer_free(&j->body);
    buffer_free(&j->logged);
    buffer_free(&j->out);
    request_free(&j->request);
    free(j);
}

/* With the lock, of one that is read. */
static void cancel(job *j) {
    int32_t i;
    for (i = 0; i < j->request.n_texts; i++) text_cancel(&j->request.texts[i]);
    embed_cancel(&j->request.embed);
}

void job_has_left(job *j) {
    if (j->is_gone || !j->is_busy) return;
    figures.gone++;
    n_gone++;
    j->is_gone = 1;
    if (j->is_read) cancel(j);         /* else a reader still writes the request */
}

/* libmicrohttpd's timeout begins anew with each byte that a client takes. */
int job_is_overdue(const job *j, double time) {
    const double seconds = 2 * (double)settings.idle_seconds + (double)j->to_fetch / LEAST_RATE;
    return j->is_done && time - j->done > seconds;
}

/* With the lock. */
static void count_answer(job *j) {
    const size_t held = j->is_busy || j->has_http ? j->in_choices + j->out.n : 0;
    answer_bytes += held - j->held;
    j->held = held;
}

static void count_choice(job *j, choice *c) {
    const size_t n = choice_bytes(c);
    j->in_choices += n - c->counted;
    c->counted = n;
    count_answer(j);
}

/* With the lock. Answers have a bound, one by itself and all together. Status 0: this one keeps
   it. */
static http_error check_answer(const job *j) {
    if (j->held > MOST_ANSWER)
        return refuse(400, 0, "the answer has more than 64 MB: use a stream, or ask for less");
    if (answer_bytes > (size_t)MOST_ANSWERS * MOST_ANSWER && j->held > MOST_ANSWER / 64)
        return refuse(503, 0, "the answers of all clients have more than 512 MB together: try "
                      "again");
    return refuse_none();
}

void job_leave(job *j) {
    int is_free;
    thread_take(&serve_lock);
    n_jobs--;
    j->has_http = 0;
    j->is_suspended = 0;
    job_has_left(j);
    is_free = !j->is_busy;
    if (is_free) count_answer(j);
    body_bytes -= j->n_body;
    j->n_body = 0;
    thread_send(&arrived);
    thread_give(&serve_lock);
    if (is_free) free_job(j);
}

long jobs_of_http(void) {
    long n;
    thread_take(&serve_lock);
    n = n_jobs;
    thread_give(&serve_lock);
    return n;
}

int jobs_are_busy(void) {
    int n;
    thread_take(&serve_lock);
    n = n_busy > 0;
    thread_give(&serve_lock);
    return n;
}

/* With the lock. The connection's handler, or its reader, runs again. */
static void wake(job *j) {
    if (!j->is_suspended) return;
    j->is_suspended = 0;
    MHD_resume_connection(j->connection);
}

/* With the lock: nobody but HTTP knows it any more. Returns it if it is to be freed. */
static job *end_busy(job *j) {
    j->is_done = 1;
    j->done = serve_now();
    j->to_fetch = j->out.n;
    j->is_busy = 0;
    n_busy--;
    n_gone -= j->is_gone;
    n_texts -= j->places;
    j->places = 0;
    --*served_of(j);
    wake(j);
    count_answer(j);
    return j->has_http ? 0 : j;
}

/* ---- places ---- */

/* With the lock. Are n more than all may have? Some are only for clients that have none, so that
   one who fills the queue does not shut out all others. */
static int is_full(const job *j, long n, long most, long more) {
    return n > most && (n > most + more || *served_of(j) > j->is_busy);
}

/* With the lock. Is there room for so many more texts, or for a request with so many vectors? */
static http_error find_place(const job *j, long texts, long vectors) {
    const long most = settings.n_slots + settings.queue_length;
    if (serve_is_stopping()) return refuse(503, 0, "the server is shutting down");
    if (j->places + texts > most)
        return refuse(400, 0, "these are more texts than the server can take at once");
    if ((texts && is_full(j, n_texts + texts, most, settings.n_slots)) ||
        (vectors && is_full(j, n_vectors + vectors, MOST_VECTORS, MOST_VECTORS)))
        return refuse(429, 0, "all places are taken: try again");
    return refuse_none();
}

http_error job_has_place(const job *j) {
    http_error e;
    thread_take(&serve_lock);
    e = find_place(j, j->needs_place, 0);
    thread_give(&serve_lock);
    return e;
}

/* ---- bodies ---- */

void job_take_part(job *j, const char *data, size_t size) {
    const size_t most = (size_t)settings.body_megabytes << 20, n = j->body.n + size;
    if (j->error.status || !j->route) return;
    thread_take(&serve_lock);
    if (n > most) j->error = refuse(413, 0, "the body is too large: see --max-body");
    else if (n > SMALL_BODY && body_bytes + size > MOST_BODIES * most)
        j->error = refuse(503, 0, "too many large requests come in");
    if (!j->error.status) {
        j->n_body += size;
        body_bytes += size;
    } else {
        body_bytes -= j->n_body;
        j->n_body = 0;
    }
    thread_give(&serve_lock);
    if (j->error.status) buffer_free(&j->body);
    else buffer_add(&j->body, data, size);
}

char *job_take_body(job *j, size_t *size) {
    char *p;
    buffer_add(&j->body, "", 0);
    log_body(j);
    p = j->body.failed ? 0 : j->body.p;
    *size = j->body.n;
    if (!p) buffer_free(&j->body);
    memset(&j->body, 0, sizeof j->body);
    return p;
}

/* ---- readers ---- */

/* Jobs that wait for a reader, by clients. The next one is of the lane that has had the least of
   the readers' time: so who sends bodies that take long waits for himself. */
enum { LANES = 256 };
typedef struct lane {
    job *first, *last;
    double spent;                      /* seconds */
} lane;
static lane lanes[LANES];
static double turn;                    /* `spent` of the lane that was last chosen */
static long n_to_read;
static int readers_end;

static lane *lane_of(const job *j) { return &lanes[j->client.id % LANES]; }

/* With the lock. */
static void add_to_read(job *j) {
    lane *l = lane_of(j);
    if (!l->first) {
        l->first = j;
        if (l->spent < turn) l->spent = turn;    /* who was away has saved nothing up */
    } else l->last->next = j;
    l->last = j;
    n_to_read++;
    thread_send(&to_read);
}

/* With the lock; 0: there is none. */
static job *next_to_read(void) {
    lane *best = 0;
    job *j;
    int i;
    for (i = 0; i < LANES && n_to_read; i++)
        if (lanes[i].first && (!best || lanes[i].spent < best->spent)) best = &lanes[i];
    if (!best) return 0;
    j = best->first;
    best->first = j->next;
    j->next = 0;
    turn = best->spent;
    n_to_read--;
    return j;
}

static void on_piece(engine_text *t, const char *piece, size_t n, const token_info *token);
static void on_end(engine_text *t);
static void on_vector(engine_embed *t, const float *vector);
static void on_embedded(engine_embed *t);

static http_error read_job(job *j) {
    const http_error e = j->read(j);
    request *r = &j->request;
    int32_t i;
    if (e.status || !r->n_texts) return e;
    j->choices = (choice *)calloc((size_t)r->n_texts, sizeof *j->choices);
    for (i = 0; i < r->n_texts; i++) {
        r->texts[i].client = j->client.id;
        r->texts[i].piece_fn = on_piece;
        r->texts[i].end_fn = on_end;
        r->texts[i].ud = j;
    }
    return j->choices ? e : refuse_memory();
}

/* With the lock. Hands a request to the engine, or says that there is no place for all of it. */
static http_error add_to_inbox(job *j) {
    request *r = &j->request;
    const long texts = r->embed.n ? 0 : r->n_texts - 1;    /* it has one place already */
    http_error e = find_place(j, texts, r->embed.n);
    if (!e.status && j->is_gone) e = refuse(503, 0, "its client has left");
    if (e.status) return e;
    r->embed.client = j->client.id;
    r->embed.vector_fn = on_vector;
    r->embed.end_fn = on_embedded;
    r->embed.ud = j;
    n_texts += texts;
    j->places += texts;
    n_vectors += r->embed.n;
    j->last = serve_now();
    j->is_read = 1;
    *inbox_end = j;
    inbox_end = &j->next;
    thread_send(&arrived);
    if (r->stream) wake(j);            /* it begins */
    return e;
}

int jobs_read_one(int wait) {
    double seconds = serve_thread_time();
    http_error e;
    job *j, *gone = 0;
    thread_take(&serve_lock);
    while (!(j = next_to_read()) && wait && !readers_end) thread_wait(&to_read, &serve_lock);
    e = j && serve_is_stopping() ? refuse(503, 0, "the server is shutting down")
                                 : refuse_none();
    thread_give(&serve_lock);
    if (!j) return 0;
    if (!e.status) e = read_job(j);
    seconds = serve_thread_time() - seconds;
    thread_take(&serve_lock);
    lane_of(j)->spent += seconds;
    body_bytes -= j->n_body;
    j->n_body = 0;
    if (!e.status && (j->request.n_texts || j->request.embed.n)) e = add_to_inbox(j);
    else if (!e.status) {              /* the reader has written the answer */
        count_answer(j);
        e = check_answer(j);
    }
    if (e.status) buffer_free(&j->out);
    j->error = e;
    if (!j->is_read) gone = end_busy(j);
    thread_give(&serve_lock);
    if (gone) free_job(gone);
    return 1;
}

void jobs_end_readers(void) {
    thread_take(&serve_lock);
    readers_end = 1;
    thread_send_all(&to_read);
    thread_give(&serve_lock);
}

http_error job_submit(job *j) {
    http_error e;
    thread_take(&serve_lock);
    e = find_place(j, j->needs_place, 0);
    if (!e.status) {
        j->is_busy = j->is_submitted = j->is_suspended = 1;
        j->places = j->needs_place;
        j->begun = serve_now();
        n_busy++;
        n_texts += j->places;
        ++*served_of(j);
        MHD_suspend_connection(j->connection);
        add_to_read(j);
    }
    thread_give(&serve_lock);
    return e;
}

/* ---- the engine's side; all of it on the main thread ---- */

int jobs_look_for_the_gone(void) {
    int n;
    thread_take(&serve_lock);
    peers_look(serve_now());
    n = n_gone > 0;
    thread_give(&serve_lock);
    return n;
}

/* With the lock: ends a job with an error. */
static void fail(job *j, int status, const char *text) {
    if (!j->error.status) j->error = refuse(status, 0, "%s", text);
    cancel(j);
}

void jobs_cancel_all(void) {
    job *j;
    thread_take(&serve_lock);
    for (j = running; j; j = j->next) fail(j, 503, "the server is shutting down");
    thread_give(&serve_lock);
}

/* With the lock. */
static void bound_answer(job *j) {
    const http_error e = check_answer(j);
    if (j->held > MOST_ANSWER && j->request.stream) job_has_left(j);     /* it does not read */
    else if (e.status) fail(j, e.status, e.text);
}

static void on_piece(engine_text *t, const char *piece, size_t n, const token_info *token) {
    job *j = (job *)t->ud;
    const int32_t i = (int32_t)(t - j->request.texts);
    choice *c = &j->choices[i];
    const double time = serve_now();
    choice_add(c, &j->request, t, piece, n, token);
    thread_take(&serve_lock);
    if (j->first <= 0) figures_observe(&figures.first_token, time - j->begun);
    else if (j->request.n_texts == 1) figures_observe(&figures.per_token, time - j->last);
    if (j->first <= 0) j->first = time;
    j->last = time;
    if (j->request.stream) j->request.endpoint->event(&j->out, &j->request, i, c);
    if (j->request.stream) j->out.failed |= choice_has_failed(c);        /* a part is missing */
    count_choice(j, c);
    bound_answer(j);
    if (j->request.stream) wake(j);
    thread_give(&serve_lock);
}

/* With the lock: the last of a job's texts has ended. Returns it if it is to be freed. */
static job *finish(job *j) {
    const endpoint *how = j->request.endpoint;
    *(j->before ? &j->before->next : &running) = j->next;
    *(j->next ? &j->next->before : &last_running) = j->before;
    if (j->request.stream && j->error.status)
        how->error_event(&j->out, &j->request, j->choices, &j->error);
    else if (j->request.stream) how->done(&j->out, &j->request, j->choices);
    else if (!j->error.status && how->whole) how->whole(&j->out, &j->request, j->choices);
    if (j->out.failed && !j->error.status)
        j->error = refuse(503, 0, "the server has no memory for this answer");
    return end_busy(j);
}

static void on_end(engine_text *t) {
    job *j = (job *)t->ud, *gone = 0;
    const int32_t i = (int32_t)(t - j->request.texts);
    thread_take(&serve_lock);
    figures.prompt += (unsigned long long)(t->n_read - t->n_reused);
    figures.reused += (unsigned long long)t->n_reused;
    figures.written += (unsigned long long)t->n_new;
    if (i % j->request.n == 0) {       /* texts of one prompt read it once */
        j->tokens.prompt += t->n_prompt;
        j->tokens.cached += t->n_cached;
    }
    j->tokens.written += t->n_new;
    if (t->err.code && !j->error.status) j->error = reply_failure(&t->err);
    if (j->request.stream && !j->error.status)
        j->request.endpoint->last_event(&j->out, &j->request, i, &j->choices[i]);
    if (j->request.stream) j->out.failed |= choice_has_failed(&j->choices[i]);
    if (++j->n_ended == j->request.n_texts) gone = finish(j);
    else {
        n_texts--;
        j->places--;
        if (j->request.stream) wake(j);
    }
    thread_give(&serve_lock);
    if (gone) free_job(gone);
}

/* Until the last vector nobody else looks at the answer. */
static void on_vector(engine_embed *t, const float *vector) {
    job *j = (job *)t->ud;
    j->request.endpoint->vector(&j->out, &j->request, vector);
    thread_take(&serve_lock);
    figures.embedded++;
    figures.embedded_tokens += (unsigned long long)t->inputs[t->n_done].n_tokens;
    j->tokens.prompt += t->inputs[t->n_done].n_tokens;
    count_answer(j);
    bound_answer(j);
    thread_give(&serve_lock);
}

static void on_embedded(engine_embed *t) {
    job *j = (job *)t->ud, *gone;
    thread_take(&serve_lock);
    n_vectors -= t->n;
    if (t->err.code && !j->error.status) j->error = reply_failure(&t->err);
    gone = finish(j);
    thread_give(&serve_lock);
    if (gone) free_job(gone);
}

/* Comments, so that proxies and clients know that their streams live. With the lock. */
static void show_life(double time) {
    static double last;
    job *j;
    if (time - last < 1) return;
    last = time;
    for (j = running; j; j = j->next) {
        if (!j->request.stream || time - j->last < ALIVE_SECONDS) continue;
        j->last = time;
        buffer_text(&j->out, ": still here\n\n");
        wake(j);
    }
}

/* With the lock. Hands all of the inbox to the engine, in its order. */
static void empty_inbox(engine *e) {
    int32_t i;
    job *j;
    while ((j = inbox) != 0) {
        inbox = j->next;
        j->next = 0;
        j->before = last_running;
        *(last_running ? &last_running->next : &running) = j;
        last_running = j;
        for (i = 0; i < j->request.n_texts; i++) engine_add(e, &j->request.texts[i]);
        if (j->request.embed.n) engine_add_embed(e, &j->request.embed);
    }
    inbox_end = &inbox;
}

void jobs_take(engine *e, int is_idle) {
    static double last_wake;
    int wakes;
    thread_take(&serve_lock);
    if (is_idle && !inbox) thread_wait_for(&arrived, &serve_lock, 0.1);
    empty_inbox(e);
    figures.busy_slots = engine_busy(e);
    figures.waiting_texts = engine_waiting(e);
    figures.held_tokens = engine_held(e);
    show_life(serve_now());
    wakes = peers_are_many() && serve_now() - last_wake >= 1;
    thread_give(&serve_lock);
    if (!wakes) return;
    last_wake = serve_now();
    http_wake();
}

/* ---- HTTP's side ---- */

ssize_t job_read_stream(void *cls, uint64_t pos, char *buf, size_t max) {
    job *j = (job *)cls;
    ssize_t n;
    (void)pos;
    thread_take(&serve_lock);
    n = (ssize_t)(j->out.n - j->sent < max ? j->out.n - j->sent : max);
    if (n > 0) memcpy(buf, j->out.p + j->sent, (size_t)n);
    j->sent += (size_t)n;
    if (j->sent > j->out.n / 2) {      /* each byte is moved once at most, on average */
        memmove(j->out.p, j->out.p + j->sent, j->out.n - j->sent);
        j->out.n -= j->sent;
        j->sent = 0;
        count_answer(j);
    }
    if (j->out.failed) n = MHD_CONTENT_READER_END_WITH_ERROR;
    else if (n == 0 && j->is_done) n = MHD_CONTENT_READER_END_OF_STREAM;
    else if (n == 0) {
        j->is_suspended = 1;
        MHD_suspend_connection(j->connection);
    }
    thread_give(&serve_lock);
    return n;
}
