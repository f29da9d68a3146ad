/* serve.c - a server with OpenAI's API, for many clients at once

       serve -m MODEL [options]; --help lists them. README.md has examples.

   libmicrohttpd speaks HTTP, on a thread of its own. It reads a request, makes texts of it
   (request.h) and suspends the connection. The main thread runs the engine (engine.h): a pass
   writes a token of each text, and what a connection waits for resumes it. `lock` guards all that
   both threads see. */
#define _GNU_SOURCE 1                  /* POLLRDHUP */
#include "options.h"
#include "reply.h"
#include "../streams.h"
#include "../utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEADER_BYTES = 32 << 10, ALIVE_SECONDS = 15, SMALL_BODY = 64 << 10, MOST_BODIES = 8,
       PAGE_NAME = 400, MOST_UNREAD = 64 << 20, MOST_VECTORS = 8192 };

#define JSON "application/json; charset=utf-8"   /* some clients read Latin-1 without a charset */

/* ---- options ---- */

static const char *model_path, *host = "127.0.0.1", *api_key, *allowed_origin, *page, *alias,
                  *kv_name;
static long port = 8080, n_slots = 4, n_ctx = 0, n_kv = 0, n_threads = 0, queue_length = 64,
            idle_seconds = 60, grace_seconds = 10, body_megabytes = 16, n_connections = 512;
static int open_to_all;
static bitnet_kv_type kv_type;

static const option options[] = {
    {"--model", "-m", "FILE", "the model, a GGUF file", &model_path, 0, 0, 0, 0, 0},
    {"--host", 0, "ADDRESS", "where to listen (127.0.0.1)", &host, 0, 0, 0, 0, 0},
    {"--port", 0, "N", "the port (8080); 0: any that is free", 0, &port, 0, 65535, 0, 0},
    {"--parallel", "-np", "N", "texts that are written at the same time (4)", 0, &n_slots, 1, 1024,
     0, 0},
    {"--ctx-size", "-c", "N", "tokens of a text with its prompt (4096, or what the model was "
     "trained for)", 0, &n_ctx, 16, 1 << 20, 0, 0},
    {"--kv-tokens", 0, "N", "tokens that all texts hold together at most; bounds the memory", 0,
     &n_kv, 64, 1L << 40, 0, 0},
    {"--kv-type", 0, "TYPE", "keys and values as f16, f32 or i8, which takes half the memory (f16)",
     &kv_name, 0, 0, 0, 0, 0},
    {"--threads", "-t", "N", "threads that compute (all processors)", 0, &n_threads, 1, 256, 0, 0},
    {"--queue", 0, "N", "texts that wait; then clients get 429 (64)", 0, &queue_length, 0, 1 << 20,
     0, 0},
    {"--api-key", 0, "KEY", "what clients must send; also from BITNET_API_KEY", &api_key, 0, 0, 0,
     0, 0},
    {"--no-key", 0, 0, "listens on other addresses than this machine's without a key", 0, 0, 0, 0,
     0, &open_to_all},
    {"--allow-origin", 0, "ORIGIN", "lets pages of this origin in, or of all (*)", &allowed_origin,
     0, 0, 0, 0, 0},
    {"--page", 0, "FOLDER", "files to serve at / (the folder web beside this program)", &page, 0, 0,
     0, 0, 0},
    {"--alias", 0, "NAME", "the model's name for clients", &alias, 0, 0, 0, 0, 0},
    {"--connections", 0, "N", "connections at the same time (512)", 0, &n_connections, 1, 1 << 16,
     0, 0},
    {"--max-body", 0, "MB", "the largest request (16)", 0, &body_megabytes, 1, 256, 0, 0},
    {"--idle-timeout", 0, "S", "seconds after which a silent connection ends (60); a request has "
     "twice as long to arrive", 0, &idle_seconds, 1, 86400, 0, 0},
    {"--grace", 0, "S", "seconds that texts may go on after SIGTERM (10)", 0, &grace_seconds, 0,
     86400, 0, 0},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static void fail(const char *format, const char *a, const char *b) {
    fputs("serve: ", stderr);
    fprintf(stderr, format, a, b);
    fputs("\n", stderr);
}

/* The page that `./build.sh web` has put beside this program, if it has. */
static void find_page(const char *program) {
    static char name[PAGE_NAME];
    const char *slash = strrchr(program, '/');
    const size_t n = slash ? (size_t)(slash - program) : 0;
    struct stat st;
    if (page || !slash || n > PAGE_NAME - sizeof "/web/index.html") return;
    snprintf(name, sizeof name, "%.*s/web/index.html", (int)n, program);
    if (stat(name, &st)) return;
    *strrchr(name, '/') = 0;
    page = name;
}

/* Returns 0, or an exit code + 1. */
static int check_options(void) {
    struct stat st;
    if (!api_key) api_key = getenv("BITNET_API_KEY");
    if (api_key && !*api_key) api_key = 0;
    if (!model_path) {
        fail("-m MODEL is needed; --help lists all options%s%s", "", "");
        return 3;
    }
    if (page && (strlen(page) > PAGE_NAME || stat(page, &st) || !S_ISDIR(st.st_mode))) {
        fail("--page %s: there is no such folder%s", page, "");
        return 3;
    }
    return 0;
}

/* The same. */
static int read_options(int argc, char **argv) {
    int code = options_read(argc, argv, "serve", options, N_OPTIONS,
                            "serve -m MODEL [options]: a server with OpenAI's API", "");
    if (!code) code = options_kv_type("serve", kv_name, &kv_type);
    find_page(argv[0]);
    return code ? code : check_options();
}

/* ---- jobs: the requests that become texts ---- */

typedef struct job {
    struct MHD_Connection *connection;
    const struct route *route;
    char name[sizeof ((service *)0)->name + 1];  /* what the address has behind its route */
    buffer body;                       /* of the request */
    size_t n_body;                     /* of it, in body_bytes */
    int is_submitted;
    uint64_t client;                   /* see client_of */

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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static job *inbox, **inbox_end = &inbox;         /* for the engine */
static job *running, **running_end = &running;   /* what the engine has */
static long n_texts, n_jobs;                     /* that have not ended; that HTTP knows */
static long n_vectors;                           /* of the requests for embeddings among them */
static int ready_flag, stopping_flag;
static volatile sig_atomic_t signalled;

static engine *eng;
static service serving;
static struct MHD_Daemon *http;

static int is_ready(void) { return __atomic_load_n(&ready_flag, __ATOMIC_ACQUIRE); }
static int is_stopping(void) { return __atomic_load_n(&stopping_flag, __ATOMIC_ACQUIRE); }
static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
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

/* With the lock. The connection's handler, or its reader, runs again. */
static void wake(job *j) {
    if (!j->is_suspended) return;
    j->is_suspended = 0;
    MHD_resume_connection(j->connection);
}

/* ---- figures for /metrics ---- */

static const double bounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
enum { N_BOUNDS = sizeof bounds / sizeof bounds[0] };
typedef struct histogram { unsigned long long count[N_BOUNDS + 1]; double sum; } histogram;

static struct {
    unsigned long long answers[6];     /* 2: 2xx ... */
    unsigned long long full, gone, prompt, reused, written, embedded, embedded_tokens;
    histogram first_token, per_token;
} figures;
static int32_t busy_slots, waiting_texts;
static int64_t held_tokens;

static void observe(histogram *h, double x) {
    int i = 0;
    while (i < N_BOUNDS && x > bounds[i]) i++;
    h->count[i]++;
    h->sum += x;
}

static void add_histogram(buffer *out, const char *name, const char *says, const histogram *h) {
    unsigned long long n = 0;
    int i;
    buffer_format(out, "# HELP %s %s\n# TYPE %s histogram\n", name, says, name);
    for (i = 0; i <= N_BOUNDS; i++) {
        n += h->count[i];
        if (i < N_BOUNDS) buffer_format(out, "%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], n);
    }
    buffer_format(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.9g\n%s_count %llu\n", name, n, name,
                  h->sum, name, n);
}

static void add_figure(buffer *out, const char *name, const char *type, const char *says,
                       unsigned long long value) {
    buffer_format(out, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, says, name, type, name,
                  value);
}

/* ---- the engine's side; all of it on the main thread ---- */

/* Is the client of a suspended connection gone? libmicrohttpd does not look at it meanwhile. The
   client may have sent more before, hence poll where it sees the end behind that. */
static int has_left(const job *j) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(j->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
#ifdef POLLRDHUP
    struct pollfd p;
    p.fd = info ? info->connect_fd : -1;
    p.events = POLLRDHUP;
    p.revents = 0;
    return poll(&p, 1, 0) == 1;
#else
    char c;
    const ssize_t n = info ? recv(info->connect_fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) : 1;
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
#endif
}

/* With the lock. */
static void mark_gone(job *j) {
    if (!j->is_gone) figures.gone++;
    j->is_gone = 1;
}

static void cancel(job *j) {
    int32_t i;
    for (i = 0; i < j->request.n_texts; i++) text_cancel(&j->request.texts[i]);
    embed_cancel(&j->request.embed);
}

/* Cancels the texts of clients that have left. Returns how many jobs that are. */
static int look_for_the_gone(void) {
    int n = 0;
    job *j;
    pthread_mutex_lock(&lock);
    for (j = running; j; j = j->next) {
        if (!j->is_gone && j->is_suspended && has_left(j)) mark_gone(j);
        if (!j->is_gone) continue;
        n++;
        cancel(j);
    }
    pthread_mutex_unlock(&lock);
    return n;
}

/* All texts that are left end with an error. */
static void cancel_all(void) {
    job *j;
    pthread_mutex_lock(&lock);
    for (j = running; j; j = j->next) {
        if (!j->error.status) {
            j->error.status = 503;
            strcpy(j->error.text, "the server is shutting down");
        }
        cancel(j);
    }
    pthread_mutex_unlock(&lock);
}

/* After a signal no new text begins; --grace later all end. Returns 1 if they do. */
static int should_end(void) {
    static double end;
    if (signalled && !is_stopping()) {
        pthread_mutex_lock(&lock);
        set(&stopping_flag);
        pthread_mutex_unlock(&lock);
        end = now() + (double)grace_seconds;
        fprintf(stderr, "serve: stopping\n");
    }
    if (!is_stopping() || now() < end) return 0;
    cancel_all();
    return 1;
}

/* Asked during a pass, at least every 20 ms but perhaps every microsecond; it looks every 5 ms. */
static int should_cancel(void *ud) {
    static double last;
    const double time = now();
    (void)ud;
    if (time - last < 0.005) return 0;
    last = time;
    return (look_for_the_gone() > 0) | should_end();
}

static void on_piece(engine_text *t, const char *piece, size_t n, const token_info *token) {
    job *j = (job *)t->ud;
    const int32_t i = (int32_t)(t - j->request.texts);
    const double time = now();
    choice_add(&j->choices[i], &j->request, t, piece, n, token);
    pthread_mutex_lock(&lock);
    if (j->first <= 0) observe(&figures.first_token, time - j->begun);
    else if (j->request.n_texts == 1) observe(&figures.per_token, time - j->last);
    if (j->first <= 0) j->first = time;
    j->last = time;
    if (j->request.stream) {
        reply_event(&j->out, &j->request, i, &j->choices[i]);
        if (j->out.n > MOST_UNREAD) mark_gone(j);      /* it does not read */
        wake(j);
    }
    pthread_mutex_unlock(&lock);
}

/* With the lock: the last of a job's texts has ended. */
static void finish(job *j) {
    job **at = &running;
    while (*at != j) at = &(*at)->next;
    *at = j->next;
    if (!j->next) running_end = at;
    j->is_done = 1;
    j->has_engine = 0;
    if (j->request.stream && j->error.status) reply_error_event(&j->out, &j->error);
    else if (j->request.stream) reply_done(&j->out, &j->request);
    else if (!j->error.status && !j->request.embed.n)
        reply_whole(&j->out, &j->request, j->choices);
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
    pthread_mutex_lock(&lock);
    n_texts--;
    figures.prompt += (unsigned long long)(t->n_read - t->n_reused);
    figures.reused += (unsigned long long)t->n_reused;
    figures.written += (unsigned long long)t->n_new;
    if (t->err.code && !j->error.status) j->error = reply_failure(&t->err);
    if (j->request.stream && !j->error.status)
        reply_last_event(&j->out, &j->request, i, &j->choices[i]);
    if (++j->n_ended == j->request.n_texts) finish(j);
    else if (j->request.stream) wake(j);
    pthread_mutex_unlock(&lock);
}

/* Until the last vector nobody else looks at the answer. */
static void on_vector(engine_embed *t, const float *vector) {
    job *j = (job *)t->ud;
    reply_vector(&j->out, &j->request, vector);
    pthread_mutex_lock(&lock);
    figures.embedded++;
    figures.embedded_tokens += (unsigned long long)t->inputs[t->n_done].n_tokens;
    pthread_mutex_unlock(&lock);
}

static void on_embedded(engine_embed *t) {
    job *j = (job *)t->ud;
    pthread_mutex_lock(&lock);
    n_texts--;
    n_vectors -= t->n;
    if (t->err.code && !j->error.status) j->error = reply_failure(&t->err);
    finish(j);
    pthread_mutex_unlock(&lock);
}

/* A comment, so that proxies and clients know that a stream lives. With the lock. */
static void show_life(job *j, double time) {
    if (!j->request.stream || time - j->last < ALIVE_SECONDS) return;
    j->last = time;
    buffer_text(&j->out, ": still here\n\n");
    wake(j);
}

/* ---- connections: none takes for ever to send its request ---- */

typedef struct peer {
    int fd;
    double since;                      /* its last answer, or its begin; 0: a request is here */
    struct peer *next, **at;           /* at: what points to it */
} peer;
static peer *peers;

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode what) {
    const union MHD_ConnectionInfo *info;
    peer *l = (peer *)*context;
    (void)cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (!info || !(l = (peer *)calloc(1, sizeof *l))) return;
        l->fd = info->connect_fd;
        l->since = now();
        *context = l;
        pthread_mutex_lock(&lock);
        l->next = peers;
        l->at = &peers;
        if (peers) peers->at = &l->next;
        peers = l;
        pthread_mutex_unlock(&lock);
    } else if (l) {
        pthread_mutex_lock(&lock);
        *l->at = l->next;
        if (l->next) l->next->at = l->at;
        pthread_mutex_unlock(&lock);
        *context = 0;
        free(l);
    }
}

/* since: see peer. */
static void set_since(struct MHD_Connection *c, double since) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    peer *l = info ? (peer *)info->socket_context : 0;
    if (!l) return;
    pthread_mutex_lock(&lock);
    l->since = since;
    pthread_mutex_unlock(&lock);
}

/* With the lock. libmicrohttpd's timeout begins anew with each byte, so that a client could keep a
   connection with a byte in a minute. */
static void end_slow_connections(double time) {
    static double last;
    const peer *l;
    if (time - last < 0.25) return;
    last = time;
    for (l = peers; l; l = l->next)
        if (l->since > 0 && time - l->since > 2 * (double)idle_seconds) shutdown(l->fd, SHUT_RDWR);
}

/* ---- the main loop ---- */

/* Waits for work. Hands what has arrived to the engine. */
static void take_inbox(int is_idle) {
    struct timespec until;
    const double time = now();
    job *j, **at;
    int32_t i;
    pthread_mutex_lock(&lock);
    if (is_idle && !inbox && !signalled) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&arrived, &lock, &until);
    }
    at = running_end;
    *at = inbox;                       /* moves to the end of running, in this order */
    if (inbox) running_end = inbox_end;
    inbox = 0;
    inbox_end = &inbox;
    for (j = *at; j; j = j->next) {
        for (i = 0; i < j->request.n_texts; i++) engine_add(eng, &j->request.texts[i]);
        if (j->request.embed.n) engine_add_embed(eng, &j->request.embed);
    }
    busy_slots = engine_busy(eng);
    waiting_texts = engine_waiting(eng);
    held_tokens = engine_held(eng);
    for (j = running; j; j = j->next) show_life(j, time);
    end_slow_connections(time);
    pthread_mutex_unlock(&lock);
}

static void run_engine(void) {
    int n = 0;
    for (;;) {
        take_inbox(n == 0);
        look_for_the_gone();
        should_end();
        n = engine_pass(eng);
        if (!is_stopping() || n) continue;
        pthread_mutex_lock(&lock);
        n = running || inbox;
        pthread_mutex_unlock(&lock);
        if (!n) return;
    }
}

/* ---- HTTP ---- */

typedef enum MHD_Result answer;

static void count_answer(int status) {
    pthread_mutex_lock(&lock);
    if (status >= 100 && status < 600) figures.answers[status / 100]++;
    figures.full += status == 429;
    pthread_mutex_unlock(&lock);
}

static answer send_response(struct MHD_Connection *c, int status, struct MHD_Response *r,
                            const char *type) {
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
    answer result;
    if (!r) return MHD_NO;
    if (type) MHD_add_response_header(r, "Content-Type", type);
    if (allowed_origin && origin) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin",
                                strcmp(allowed_origin, "*") ? allowed_origin : "*");
        MHD_add_response_header(r, "Vary", "Origin");
    }
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (is_stopping()) MHD_add_response_header(r, "Connection", "close");
    if (status == 429 || status == 503) MHD_add_response_header(r, "Retry-After", "2");
    if (status == 401) MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    count_answer(status);
    result = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return result;
}

static answer send_text(struct MHD_Connection *c, int status, const char *type, const char *text,
                        size_t n) {
    return send_response(c, status, MHD_create_response_from_buffer(n, (void *)(size_t)text,
                                                                    MHD_RESPMEM_MUST_COPY), type);
}

static answer send_error(struct MHD_Connection *c, http_error error) {
    buffer out = {0};
    answer result;
    reply_error(&out, &error);
    result = out.failed ? MHD_NO
                        : send_text(c, error.status, JSON, out.p, out.n);
    buffer_free(&out);
    return result;
}

static http_error error_of(int status, const char *text) {
    http_error e;
    memset(&e, 0, sizeof e);
    e.status = status;
    snprintf(e.text, sizeof e.text, "%s", text);
    return e;
}

/* Sends and frees what was written, unless there was no memory for all of it. */
static answer send_buffer(struct MHD_Connection *c, const char *type, buffer *b) {
    const answer result = b->failed ? send_error(c, error_of(503, "no memory"))
                                    : send_text(c, 200, type, b->p ? b->p : "", b->n);
    buffer_free(b);
    return result;
}

/* ---- who may come in ---- */

/* The same time for any wrong key. */
static int same_key(const char *given) {
    const size_t n = strlen(api_key), m = strlen(given);
    unsigned difference = n != m;
    size_t i;
    for (i = 0; i < m; i++) difference |= (unsigned)(given[i] ^ api_key[n ? i % n : 0]);
    return !difference;
}

static int is_this_machine(const char *name) {
    const char *const names[] = {"localhost", "127.0.0.1", "[::1]", host};
    size_t i;
    for (i = 0; i < 4; i++) {
        const size_t n = strlen(names[i]);
        if (!strncasecmp(name, names[i], n) && (!name[n] || name[n] == ':')) return 1;
    }
    return 0;
}

/* A page of another site can send requests to this machine by name or by address. Without a key,
   the names in its requests give it away. */
static http_error check_client(struct MHD_Connection *c, int needs_key) {
    const char *key = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
    const char *name = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    const char *site = origin ? strstr(origin, "://") : 0;
    if (api_key && needs_key && (!key || strncasecmp(key, "Bearer ", 7) || !same_key(key + 7)))
        return error_of(401, "the API key is missing or wrong: send Authorization: Bearer KEY");
    if (api_key || open_to_all) return error_of(0, "");
    if (name && !is_this_machine(name))
        return error_of(403, "this server is for this machine only: its name is localhost");
    if (origin && allowed_origin &&
        (!strcmp(allowed_origin, "*") || !strcmp(allowed_origin, origin))) return error_of(0, "");
    if (origin && (!site || !is_this_machine(site + 3)))
        return error_of(403, "pages of this origin are not let in: see --allow-origin");
    return error_of(0, "");
}

/* Whose request it is, so that slots are shared out fairly. */
static uint64_t client_of(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const char *key = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    char name[64] = "";
    uint64_t h = 0xcbf29ce484222325u;
    const char *p;
    if (info) getnameinfo(info->client_addr, info->client_addr->sa_family == AF_INET6
                          ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in), name,
                          sizeof name, 0, 0, NI_NUMERICHOST);
    for (p = name; *p; p++) h = (h ^ (uint8_t)*p) * 0x100000001b3u;
    for (p = key ? key : ""; *p; p++) h = (h ^ (uint8_t)*p) * 0x100000001b3u;
    return h;
}

/* ---- texts ---- */

/* Gives libmicrohttpd what is there of a stream. */
static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max) {
    job *j = (job *)cls;
    ssize_t n;
    (void)pos;
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    return n;
}

static answer send_stream(job *j) {
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, read_stream, j, 0);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");       /* nginx would hold it back */
    return send_response(j->connection, 200, r, "text/event-stream; charset=utf-8");
}

static void name_request(request *r) {
    static unsigned long long number;
    pthread_mutex_lock(&lock);
    number++;
    snprintf(r->id, sizeof r->id, "%s-%llx%05llx", r->is_chat ? "chatcmpl" : "cmpl",
             (unsigned long long)time(0), number);
    pthread_mutex_unlock(&lock);
}

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
    const long most = n_slots + queue_length;
    if (is_stopping()) return error_of(503, "the server is shutting down");
    if (r->n_texts > most)
        return error_of(400, "these are more texts than the server can take at once");
    if (is_full(j, n_texts + places_of(r), most, n_slots) ||
        is_full(j, n_vectors + r->embed.n, MOST_VECTORS, MOST_VECTORS))
        return error_of(429, "all places are taken: try again");
    return error_of(0, "");
}

/* Hands a job to the engine, or says why not. */
static http_error submit(job *j) {
    request *r = &j->request;
    http_error e;
    int32_t i;
    j->client = client_of(j->connection);
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
    pthread_mutex_lock(&lock);
    e = find_place(j);
    if (!e.status) {
        n_texts += places_of(r);
        n_vectors += r->embed.n;
        j->begun = j->last = now();
        j->has_engine = j->is_submitted = 1;
        *inbox_end = j;
        inbox_end = &j->next;
        if (!r->stream) {
            j->is_suspended = 1;
            MHD_suspend_connection(j->connection);
        }
        pthread_cond_signal(&arrived);
    }
    pthread_mutex_unlock(&lock);
    return e;
}

/* Of all requests that are being received; only libmicrohttpd's thread sees it. */
static size_t body_bytes;

static void forget_body(job *j) {
    body_bytes -= j->n_body;
    j->n_body = 0;
}

/* The body belongs to the parser from here on. */
static char *take_body(job *j, size_t *size) {
    char *p;
    forget_body(j);
    buffer_add(&j->body, "", 0);
    p = j->body.p;
    *size = j->body.n;
    memset(&j->body, 0, sizeof j->body);
    return p;
}

static answer answer_texts(job *j, int is_chat) {
    size_t size;
    char *body = take_body(j, &size);
    http_error e = body ? request_parse(&j->request, &serving, is_chat, "the body", body, size, 0)
                        : error_of(503, "no memory");
    if (!e.status) {
        j->choices = (choice *)calloc((size_t)j->request.n_texts, sizeof *j->choices);
        if (!j->choices) e = error_of(503, "no memory");
    }
    if (!e.status) {
        name_request(&j->request);
        e = submit(j);
    }
    if (e.status) return send_error(j->connection, e);
    return j->request.stream ? send_stream(j) : MHD_YES;
}

static answer answer_chat(job *j) { return answer_texts(j, 1); }
static answer answer_completion(job *j) { return answer_texts(j, 0); }

static answer answer_embeddings(job *j) {
    size_t size;
    char *body = take_body(j, &size);
    http_error e = body ? request_parse_embeddings(&j->request, &serving, "the body", body, size)
                        : error_of(503, "no memory");
    if (!e.status) e = submit(j);
    return e.status ? send_error(j->connection, e) : MHD_YES;
}

/* A connection that was suspended goes on: its texts have ended. */
static answer answer_ended(job *j) {
    int is_done;
    pthread_mutex_lock(&lock);
    is_done = j->is_done && !j->is_gone;
    pthread_mutex_unlock(&lock);
    if (!is_done) return MHD_NO;
    if (j->error.status) return send_error(j->connection, j->error);
    return send_text(j->connection, 200, JSON, j->out.p, j->out.n);
}

/* ---- the other addresses ---- */

static answer answer_tokens(job *j, http_error (*make)(service *, char *, size_t, buffer *)) {
    buffer out = {0};
    size_t size;
    char *body = take_body(j, &size);
    const http_error e = body ? make(&serving, body, size, &out) : error_of(503, "no memory");
    if (!e.status) return send_buffer(j->connection, JSON, &out);
    buffer_free(&out);
    return send_error(j->connection, e);
}

static answer answer_tokenize(job *j) { return answer_tokens(j, request_tokenize); }
static answer answer_detokenize(job *j) { return answer_tokens(j, request_detokenize); }

static answer answer_health(job *j) {
    static const char fine[] = "{\"status\":\"ok\"}\n", loading[] = "{\"status\":\"loading\"}\n",
                      stopping[] = "{\"status\":\"stopping\"}\n";
    const char *text = is_stopping() ? stopping : is_ready() ? fine : loading;
    return send_text(j->connection, text == fine ? 200 : 503, JSON, text,
                     strlen(text));
}

static void add_model(buffer *out) {
    const bitnet_model_info *info = &serving.info;
    buffer_text(out, "{\"id\":");
    buffer_json(out, serving.name, strlen(serving.name));
    buffer_format(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"bitnet.h\","
                  "\"capabilities\":[%s%s%s],\"meta\":"
                  "{\"n_ctx\":%d,\"n_ctx_train\":%d,\"n_vocab\":%d,\"n_embd\":%d,\"n_layers\":%d,"
                  "\"n_params\":%llu,\"size\":%llu,"
                  "\"kernels\":\"%s\"}}", (long long)time(0),
                  info->has_head ? "\"completion\"" : "",
                  info->has_head && info->pooling ? "," : "",
                  info->pooling ? "\"embedding\"" : "", (int)serving.n_ctx, (int)info->ctx_train,
                  (int)info->n_vocab, (int)info->dim, (int)info->n_layers,
                  (unsigned long long)info->n_params, (unsigned long long)info->file_bytes,
                  info->kernels);
}

static answer answer_models(job *j) {
    buffer out = {0};
    buffer_text(&out, "{\"object\":\"list\",\"data\":[");
    add_model(&out);
    buffer_text(&out, "]}");
    return send_buffer(j->connection, JSON, &out);
}

/* The model by the name in the address. */
static answer answer_model(job *j) {
    buffer out = {0};
    http_error e = error_of(404, "there is no model of this name: /v1/models has those that are");
    e.code = "model_not_found";
    if (strcmp(j->name, serving.name)) return send_error(j->connection, e);
    add_model(&out);
    return send_buffer(j->connection, JSON, &out);
}

static answer answer_metrics(job *j) {
    buffer out = {0};
    int i;
    pthread_mutex_lock(&lock);
    buffer_text(&out, "# HELP bitnet_answers_total Answers by the first digit of their status\n"
                      "# TYPE bitnet_answers_total counter\n");
    for (i = 1; i < 6; i++)
        buffer_format(&out, "bitnet_answers_total{status=\"%dxx\"} %llu\n", i, figures.answers[i]);
    add_figure(&out, "bitnet_refused_total", "counter", "Requests that found no place (429)",
               figures.full);
    add_figure(&out, "bitnet_left_total", "counter", "Clients that left before their answer's end",
               figures.gone);
    add_figure(&out, "bitnet_prompt_tokens_total", "counter", "Prompt tokens that were evaluated",
               figures.prompt);
    add_figure(&out, "bitnet_reused_tokens_total", "counter",
               "Prompt tokens that a slot already held", figures.reused);
    add_figure(&out, "bitnet_written_tokens_total", "counter", "Tokens that were written",
               figures.written);
    add_figure(&out, "bitnet_embedded_texts_total", "counter", "Texts that became vectors",
               figures.embedded);
    add_figure(&out, "bitnet_embedded_tokens_total", "counter", "Their tokens",
               figures.embedded_tokens);
    add_figure(&out, "bitnet_slots", "gauge", "Texts that can be written at the same time",
               (unsigned long long)n_slots);
    add_figure(&out, "bitnet_slots_busy", "gauge", "Texts that are being written",
               (unsigned long long)busy_slots);
    add_figure(&out, "bitnet_texts_waiting", "gauge", "Texts that wait for a slot or a vector",
               (unsigned long long)waiting_texts);
    add_figure(&out, "bitnet_held_tokens", "gauge", "Tokens in all slots",
               (unsigned long long)held_tokens);
    add_histogram(&out, "bitnet_first_token_seconds", "From a request to its first token",
                  &figures.first_token);
    add_histogram(&out, "bitnet_token_seconds", "From a token to the next", &figures.per_token);
    pthread_mutex_unlock(&lock);
    return send_buffer(j->connection, "text/plain; version=0.0.4", &out);
}

static const char *type_of(const char *path) {
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"}, {".js", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"}, {".json", JSON},
        {".svg", "image/svg+xml"}, {".png", "image/png"}, {".wasm", "application/wasm"},
        {".txt", "text/plain; charset=utf-8"}
    };
    const char *dot = strrchr(path, '.');
    size_t i;
    for (i = 0; dot && i < sizeof types / sizeof types[0]; i++)
        if (!strcmp(dot, types[i][0])) return types[i][1];
    return "application/octet-stream";
}

static answer send_to(struct MHD_Connection *c, const char *place) {
    struct MHD_Response *r = MHD_create_response_from_buffer(0, (void *)(size_t)"",
                                                             MHD_RESPMEM_PERSISTENT);
    if (r) MHD_add_response_header(r, "Location", place);
    return send_response(c, 302, r, 0);
}

/* Why a file was not opened: it is none that is served, or the server has no room for it now. */
static http_error no_file(int error) {
    if (error == EMFILE || error == ENFILE || error == ENOMEM)
        return error_of(503, "the server cannot open more files now: try again");
    return error_of(404, "there is nothing at this address");
}

/* A file of --page. Names that begin with a dot are none. */
static answer answer_file(struct MHD_Connection *c, const char *path) {
    static const char about[] = "This is a server with OpenAI's API. Its addresses: /v1/models, "
        "/v1/chat/completions, /v1/completions, /v1/embeddings, /tokenize, /detokenize, /health, "
        "/metrics.\n"
        "There is no page to chat here: --page FOLDER gives one, which ./build.sh web makes.\n";
    char name[1024];
    struct MHD_Response *r;
    struct stat st;
    int fd, error;
    if (page && !strcmp(path, "/") &&
        !MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "server"))
        return send_to(c, "/?server=1");       /* so the page knows that it has one to talk to */
    if (!page && !strcmp(path, "/"))
        return send_text(c, 200, "text/plain; charset=utf-8", about, sizeof about - 1);
    if (!page || path[0] != '/' || strstr(path, "/.") || strlen(path) > 512)
        return send_error(c, no_file(ENOENT));
    snprintf(name, sizeof name, "%s%s%s", page, path, strcmp(path, "/") ? "" : "index.html");
    fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);   /* a pipe would block */
    error = fd < 0 || fstat(fd, &st) ? errno : S_ISREG(st.st_mode) ? 0 : ENOENT;
    if (error) {
        if (fd >= 0) close(fd);
        return send_error(c, no_file(error));
    }
    r = MHD_create_response_from_fd64((uint64_t)st.st_size, fd);
    if (!r) close(fd);
    else {
        MHD_add_response_header(r, "Cross-Origin-Opener-Policy", "same-origin");
        MHD_add_response_header(r, "Cross-Origin-Embedder-Policy", "require-corp");
        MHD_add_response_header(r, "Cache-Control", "no-cache");
    }
    return send_response(c, 200, r, type_of(name));
}

/* ---- which address does what ---- */

/* A path that ends with / stands for all that begin so. */
static const struct route {
    const char *method, *path;
    answer (*run)(job *j);
    int needs_key, needs_model;
} routes[] = {
    {"POST", "/v1/chat/completions", answer_chat, 1, 1},
    {"POST", "/v1/completions", answer_completion, 1, 1},
    {"POST", "/v1/embeddings", answer_embeddings, 1, 1},
    {"POST", "/tokenize", answer_tokenize, 1, 1},
    {"POST", "/detokenize", answer_detokenize, 1, 1},
    {"GET", "/v1/models", answer_models, 1, 1},
    {"GET", "/v1/models/", answer_model, 1, 1},
    {"GET", "/metrics", answer_metrics, 1, 0},
    {"GET", "/health", answer_health, 0, 0},
};

/* OpenAI's client sends a dozen headers of its own, so all are allowed. */
static answer answer_preflight(struct MHD_Connection *c) {
    struct MHD_Response *r = MHD_create_response_from_buffer(0, (void *)(size_t)"",
                                                             MHD_RESPMEM_PERSISTENT);
    const char *wanted = MHD_lookup_connection_value(c, MHD_HEADER_KIND,
                                                     "Access-Control-Request-Headers");
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST");
    MHD_add_response_header(r, "Access-Control-Allow-Headers",
                            wanted && *wanted ? wanted : "Authorization, Content-Type");
    MHD_add_response_header(r, "Access-Control-Max-Age", "86400");
    return send_response(c, 204, r, 0);
}

static answer refuse_method(struct MHD_Connection *c, const char *method) {
    http_error e = error_of(405, "this address has another method: ");
    buffer out = {0};
    struct MHD_Response *r;
    strcat(e.text, method);
    reply_error(&out, &e);
    r = out.failed ? 0 : MHD_create_response_from_buffer(out.n, out.p, MHD_RESPMEM_MUST_COPY);
    buffer_free(&out);
    if (r) MHD_add_response_header(r, "Allow", strcmp(method, "GET") ? method : "GET, HEAD");
    return send_response(c, 405, r, JSON);
}

static int is_get(const char *method) { return !strcmp(method, "GET") || !strcmp(method, "HEAD"); }

static int is_path_of(const struct route *r, const char *path) {
    const size_t n = strlen(r->path);
    return r->path[n - 1] == '/' ? !strncmp(path, r->path, n) : !strcmp(path, r->path);
}

/* 0: there is none. */
static const struct route *find_route(const char *method, const char *path) {
    size_t i;
    for (i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (is_path_of(&routes[i], path) &&
            !strcmp(is_get(method) ? "GET" : method, routes[i].method)) return &routes[i];
    return 0;
}

/* An answer to a request that has no route. */
static answer answer_other(struct MHD_Connection *c, const char *method, const char *path) {
    size_t i;
    if (!strcmp(method, "OPTIONS") && allowed_origin) return answer_preflight(c);
    for (i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (is_path_of(&routes[i], path)) return refuse_method(c, routes[i].method);
    if (is_get(method)) return answer_file(c, path);
    return send_error(c, error_of(404, "there is nothing at this address"));
}

/* What is wrong with a request, as far as one can see before its body comes. */
static http_error check_head(struct MHD_Connection *c, const struct route *route) {
    const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
    const http_error e = check_client(c, route && route->needs_key);
    if (e.status) return e;
    if (route && route->needs_model && !is_ready())
        return error_of(503, "the model is being loaded");
    if (length && strtoull(length, 0, 10) > (unsigned long long)body_megabytes << 20)
        return error_of(413, "the body is too large: see --max-body");
    return e;
}

/* Before the body comes. Who has asked whether to send it is refused here. All others get their
   answer behind the body: those who still send would not see it, and the connection would end. */
static answer begin_request(struct MHD_Connection *c, const char *method, const char *path,
                            void **con_cls) {
    const struct route *route = find_route(method, path);
    const http_error e = check_head(c, route);
    job *j;
    if (e.status && MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Expect"))
        return send_error(c, e);
    if (!(j = (job *)calloc(1, sizeof *j))) return send_error(c, error_of(503, "no memory"));
    j->connection = c;
    j->route = route;
    if (route) snprintf(j->name, sizeof j->name, "%s", path + strlen(route->path));
    j->has_http = 1;
    j->error = e;
    *con_cls = j;
    pthread_mutex_lock(&lock);
    n_jobs++;
    pthread_mutex_unlock(&lock);
    return MHD_YES;
}

/* A part of the body. What nobody will read is thrown away. */
static void take_part(job *j, const char *data, size_t size) {
    const size_t most = (size_t)body_megabytes << 20, n = j->body.n + size;
    if (j->error.status || !j->route) return;
    if (n > most) j->error = error_of(413, "the body is too large: see --max-body");
    else if (n > SMALL_BODY && body_bytes + size > MOST_BODIES * most)
        j->error = error_of(503, "too many large requests come in");
    if (j->error.status) {
        forget_body(j);
        buffer_free(&j->body);
        return;
    }
    buffer_add(&j->body, data, size);
    j->n_body += size;
    body_bytes += size;
}

static answer on_request(void *cls, struct MHD_Connection *c, const char *path, const char *method,
                         const char *version, const char *data, size_t *size, void **con_cls) {
    job *j = (job *)*con_cls;
    (void)cls;
    (void)version;
    if (!j) return begin_request(c, method, path, con_cls);
    if (*size > 0) {
        take_part(j, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (j->is_submitted) return answer_ended(j);
    set_since(c, 0);
    if (j->error.status) return send_error(c, j->error);
    if (j->body.failed) return send_error(c, error_of(503, "no memory"));
    return j->route ? j->route->run(j) : answer_other(c, method, path);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **con_cls,
                         enum MHD_RequestTerminationCode why) {
    job *j = (job *)*con_cls;
    int is_free;
    (void)cls;
    (void)why;
    set_since(c, now());
    if (!j) return;
    forget_body(j);
    pthread_mutex_lock(&lock);
    n_jobs--;
    j->has_http = 0;
    j->is_suspended = 0;
    if (j->has_engine) mark_gone(j);
    is_free = !j->has_engine;
    pthread_cond_signal(&arrived);
    pthread_mutex_unlock(&lock);
    *con_cls = 0;
    if (is_free) free_job(j);
}

/* ---- beginning and ending ---- */

static int is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24) == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

/* Returns 0, or an exit code. */
static int start_http(void) {
    struct addrinfo hints, *found = 0;
    const union MHD_DaemonInfo *info;
    char number[16];
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    snprintf(number, sizeof number, "%ld", port);
    if (getaddrinfo(host, number, &hints, &found) || !found) {
        fail("--host %s: there is no such address%s", host, "");
        return 2;
    }
    if (!is_loopback(found->ai_addr) && !api_key && !open_to_all) {
        fail("--host %s: other machines can come in. Set --api-key, or --no-key to let all in%s",
             host, "");
        freeaddrinfo(found);
        return 2;
    }
    errno = 0;
    http = MHD_start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
            (found->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0),
        (uint16_t)port, 0, 0, on_request, (void *)0, MHD_OPTION_SOCK_ADDR, found->ai_addr,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)n_connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)idle_seconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, (void *)0, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, (void *)0, MHD_OPTION_END);
    freeaddrinfo(found);
    if (!http) {
        fprintf(stderr, "serve: cannot listen on %s, port %ld: %s\n", host, port, strerror(errno));
        return 1;
    }
    info = MHD_get_daemon_info(http, MHD_DAEMON_INFO_BIND_PORT);
    if (info && info->port) port = info->port;
    return 0;
}

static int asked_to_stop(void *ud, uint64_t done, uint64_t total) {
    (void)ud;
    (void)done;
    (void)total;
    return signalled;
}

static bitnet_result load(bitnet_model **model, bitnet_error *err) {
    static char program[] = "serve";
    bitnet_model_params mp;
    engine_params p;
    bitnet_result r;
    memset(&mp, 0, sizeof mp);
    mp.progress_fn = asked_to_stop;
    mp.log_fn = options_warning;
    mp.ud = program;
    r = bitnet_model_load_file(model_path, &mp, model, err);
    if (r) return r;
    memset(&p, 0, sizeof p);
    p.n_slots = (int32_t)n_slots;
    p.n_ctx = (int32_t)n_ctx;
    p.n_kv = n_kv;
    p.n_threads = (int32_t)n_threads;
    p.kv_type = kv_type;
    p.cancel_fn = should_cancel;
    if (!(eng = engine_create(*model, &p, err))) return err->code;
    r = service_open(&serving, *model, model_path, engine_ctx(eng), err);
    if (alias) snprintf(serving.name, sizeof serving.name, "%s", alias);
    return r;
}

static void on_signal(int number) {
    (void)number;
    signalled = 1;
}

/* Lets the last answers reach their clients. */
static void stop_http(void) {
    const double end = now() + 2;
    struct timespec pause = {0, 10000000};
    long left = 1;
    MHD_quiesce_daemon(http);
    while (left && now() < end) {
        pthread_mutex_lock(&lock);
        left = n_jobs;
        pthread_mutex_unlock(&lock);
        if (left) nanosleep(&pause, 0);
    }
    MHD_stop_daemon(http);
}

static void say_template(const bitnet_model *model) {
    const bitnet_chat_template *t = bitnet_model_chat_template(model);
    char text[2];
    if (t) fprintf(stderr, "serve: chats have the template %s\n", t->name);
    else fprintf(stderr, "serve: chats are refused: the file's chat template is %s\n",
                 bitnet_model_get_meta(model, "tokenizer.chat_template", text, sizeof text) > 0
                 ? "not known" : "missing");
}

int main(int argc, char **argv) {
    bitnet_model *model = 0;
    bitnet_error err;
    struct sigaction action;
    int code;
    if (!streams_fill()) return 1;
    if ((code = read_options(argc, argv)) != 0) return code - 1;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, 0);
    sigaction(SIGTERM, &action, 0);
    signal(SIGPIPE, SIG_IGN);
    if ((code = start_http()) != 0) return code;
    if (load(&model, &err)) {
        code = !signalled;             /* while it was loaded */
        if (code) fail("%s: %s", model_path, err.text);
    } else {
        set(&ready_flag);
        fprintf(stderr, strchr(host, ':') ? "serve: %s on http://[%s]:%ld" :
                "serve: %s on http://%s:%ld", serving.name, host, port);
        fprintf(stderr, ", %d texts of %d tokens at the same time%s%s\n", (int)engine_most(eng),
                (int)serving.n_ctx, page ? ", with the page " : "", page ? page : "");
        if (serving.info.has_head) say_template(model);
        run_engine();
    }
    stop_http();
    engine_free(eng);
    if (model) service_close(&serving);
    bitnet_model_free(model);
    return code;
}
