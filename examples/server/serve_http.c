#define _GNU_SOURCE 1                  /* POLLRDHUP */
#include "serve_http.h"
#include "serve.h"
#include "serve_answers.h"
#include "serve_figures.h"
#include "serve_files.h"
#include "serve_llama.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEADER_BYTES = 32 << 10, SMALL_BODY = 64 << 10, MOST_BODIES = 8 };

/* ---- answers ---- */

answer http_send(struct MHD_Connection *c, int status, struct MHD_Response *r, const char *type) {
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
    answer result;
    if (!r) return MHD_NO;
    if (type) MHD_add_response_header(r, "Content-Type", type);
    if (settings.allowed_origin && origin) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin",
                                strcmp(settings.allowed_origin, "*") ? settings.allowed_origin
                                                                     : "*");
        MHD_add_response_header(r, "Vary", "Origin");
    }
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (serve_is_stopping()) MHD_add_response_header(r, "Connection", "close");
    if (status == 429 || status == 503) MHD_add_response_header(r, "Retry-After", "2");
    if (status == 401) MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    figures_count_answer(status);
    result = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return result;
}

answer http_send_text(struct MHD_Connection *c, int status, const char *type, const char *text,
                      size_t n) {
    return http_send(c, status, MHD_create_response_from_buffer(n, (void *)(size_t)text,
                                                                MHD_RESPMEM_MUST_COPY), type);
}

answer http_send_error(struct MHD_Connection *c, const endpoint *how, http_error error) {
    buffer out = {0};
    answer result;
    (how ? how->error : reply_error)(&out, &error);
    result = out.failed ? MHD_NO
                        : http_send_text(c, error.status, HTTP_JSON, out.p, out.n);
    buffer_free(&out);
    return result;
}

http_error http_error_of(int status, const char *text) {
    http_error e;
    memset(&e, 0, sizeof e);
    e.status = status;
    snprintf(e.text, sizeof e.text, "%s", text);
    return e;
}

answer http_send_buffer(struct MHD_Connection *c, const char *type, buffer *b) {
    const answer result = b->failed ? http_send_error(c, 0, http_error_of(503, "no memory"))
                                    : http_send_text(c, 200, type, b->p ? b->p : "", b->n);
    buffer_free(b);
    return result;
}

/* ---- who may come in ---- */

/* The same time for any wrong key. */
static int same_key(const char *given) {
    const size_t n = strlen(settings.api_key), m = strlen(given);
    unsigned difference = n != m;
    size_t i;
    for (i = 0; i < m; i++) difference |= (unsigned)(given[i] ^ settings.api_key[n ? i % n : 0]);
    return !difference;
}

static int is_this_machine(const char *name) {
    const char *const names[] = {"localhost", "127.0.0.1", "[::1]", settings.host};
    size_t i;
    for (i = 0; i < 4; i++) {
        const size_t n = strlen(names[i]);
        if (!strncasecmp(name, names[i], n) && (!name[n] || name[n] == ':')) return 1;
    }
    return 0;
}

/* The key that a client sends, as OpenAI's clients do or as Anthropic's; 0: none. */
static const char *key_of(struct MHD_Connection *c) {
    const char *key = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    if (key && !strncasecmp(key, "Bearer ", 7)) return key + 7;
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, "x-api-key");
}

/* A page of another site can send requests to this machine by name or by address. Without a key,
   the names in its requests give it away. */
static http_error check_client(struct MHD_Connection *c, int needs_key) {
    const char *key = key_of(c);
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
    const char *name = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    const char *site = origin ? strstr(origin, "://") : 0;
    if (settings.api_key && needs_key && (!key || !same_key(key)))
        return http_error_of(401,
                             "the API key is missing or wrong: send Authorization: Bearer KEY");
    if (settings.api_key || settings.open_to_all) return http_error_of(0, "");
    if (name && !is_this_machine(name))
        return http_error_of(403, "this server is for this machine only: its name is localhost");
    if (origin && settings.allowed_origin &&
        (!strcmp(settings.allowed_origin, "*") || !strcmp(settings.allowed_origin, origin)))
        return http_error_of(0, "");
    if (origin && (!site || !is_this_machine(site + 3)))
        return http_error_of(403, "pages of this origin are not let in: see --allow-origin");
    return http_error_of(0, "");
}

uint64_t http_client_of(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const char *key = key_of(c);
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
        l->since = serve_now();
        *context = l;
        pthread_mutex_lock(&serve_lock);
        l->next = peers;
        l->at = &peers;
        if (peers) peers->at = &l->next;
        peers = l;
        pthread_mutex_unlock(&serve_lock);
    } else if (l) {
        pthread_mutex_lock(&serve_lock);
        *l->at = l->next;
        if (l->next) l->next->at = l->at;
        pthread_mutex_unlock(&serve_lock);
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
    pthread_mutex_lock(&serve_lock);
    l->since = since;
    pthread_mutex_unlock(&serve_lock);
}

/* libmicrohttpd's timeout begins anew with each byte, so that a client could keep a connection with
   a byte in a minute. */
void http_end_slow(double time) {
    static double last;
    const peer *l;
    if (time - last < 0.25) return;
    last = time;
    for (l = peers; l; l = l->next)
        if (l->since > 0 && time - l->since > 2 * (double)settings.idle_seconds)
            shutdown(l->fd, SHUT_RDWR);
}

/* The client may have sent more before, hence poll where it sees the end behind that. */
int http_has_left(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
#ifdef POLLRDHUP
    struct pollfd p;
    p.fd = info ? info->connect_fd : -1;
    p.events = POLLRDHUP;
    p.revents = 0;
    return poll(&p, 1, 0) == 1;
#else
    char next;
    const ssize_t n = info ? recv(info->connect_fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) : 1;
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
#endif
}

/* ---- bodies ---- */

/* Of all requests that are being received; only libmicrohttpd's thread sees it. */
static size_t body_bytes;

static void forget_body(job *j) {
    body_bytes -= j->n_body;
    j->n_body = 0;
}

char *http_take_body(job *j, size_t *size) {
    char *p;
    forget_body(j);
    buffer_add(&j->body, "", 0);
    p = j->body.p;
    *size = j->body.n;
    memset(&j->body, 0, sizeof j->body);
    return p;
}

/* A part of the body. What nobody will read is thrown away. */
static void take_part(job *j, const char *data, size_t size) {
    const size_t most = (size_t)settings.body_megabytes << 20, n = j->body.n + size;
    if (j->error.status || !j->route) return;
    if (n > most) j->error = http_error_of(413, "the body is too large: see --max-body");
    else if (n > SMALL_BODY && body_bytes + size > MOST_BODIES * most)
        j->error = http_error_of(503, "too many large requests come in");
    if (j->error.status) {
        forget_body(j);
        buffer_free(&j->body);
        return;
    }
    buffer_add(&j->body, data, size);
    j->n_body += size;
    body_bytes += size;
}

/* ---- which address does what ---- */

/* A path that ends with / stands for all that begin so. The /v1 in front of one may be missing, as
   in llama.cpp's server, whose own /completions comes before that of OpenAI. */
static const struct route {
    const char *method, *path;
    answer (*run)(job *j);
    int needs_key, needs_model;
    const endpoint *endpoint;
} routes[] = {
    {"POST", "/completion", answer_request, 1, 1, &endpoint_llama},
    {"POST", "/completions", answer_request, 1, 1, &endpoint_llama},
    {"POST", "/v1/chat/completions", answer_request, 1, 1, &endpoint_chat},
    {"POST", "/v1/chat/completions/input_tokens", answer_count, 1, 1, &endpoint_chat},
    {"POST", "/v1/completions", answer_request, 1, 1, &endpoint_completions},
    {"POST", "/v1/responses", answer_request, 1, 1, &endpoint_responses},
    {"POST", "/v1/responses/input_tokens", answer_count, 1, 1, &endpoint_responses},
    {"POST", "/v1/messages", answer_request, 1, 1, &endpoint_messages},
    {"POST", "/v1/messages/count_tokens", answer_count, 1, 1, &endpoint_messages_count},
    {"POST", "/v1/embeddings", answer_request, 1, 1, &endpoint_embeddings},
    {"POST", "/v1/rerank", answer_request, 1, 1, &endpoint_rerank},
    {"POST", "/v1/reranking", answer_request, 1, 1, &endpoint_rerank},
    {"POST", "/apply-template", answer_template, 1, 1, &endpoint_chat},
    {"POST", "/tokenize", answer_tokenize, 1, 1, 0},
    {"POST", "/detokenize", answer_detokenize, 1, 1, 0},
    {"GET", "/v1/models", answer_models, 1, 1, 0},
    {"GET", "/v1/models/", answer_model, 1, 1, 0},
    {"GET", "/props", answer_props, 1, 1, 0},
    {"GET", "/slots", answer_slots, 1, 1, 0},
    {"GET", "/metrics", answer_metrics, 1, 0, 0},
    {"GET", "/health", answer_health, 0, 0, 0},
};

const endpoint *route_endpoint(const struct route *r) { return r ? r->endpoint : 0; }

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
    return http_send(c, 204, r, 0);
}

static answer refuse_method(struct MHD_Connection *c, const char *method) {
    http_error e = http_error_of(405, "this address has another method: ");
    buffer out = {0};
    struct MHD_Response *r;
    strcat(e.text, method);
    reply_error(&out, &e);
    r = out.failed ? 0 : MHD_create_response_from_buffer(out.n, out.p, MHD_RESPMEM_MUST_COPY);
    buffer_free(&out);
    if (r) MHD_add_response_header(r, "Allow", strcmp(method, "GET") ? method : "GET, HEAD");
    return http_send(c, 405, r, HTTP_JSON);
}

static int is_get(const char *method) { return !strcmp(method, "GET") || !strcmp(method, "HEAD"); }

/* What a path has behind a beginning; 0: it begins otherwise. */
static const char *behind(const char *path, const char *beginning) {
    const size_t n = strlen(beginning);
    return strncmp(path, beginning, n) ? 0 : path + n;
}

/* What a path has behind that of a route, which is nothing unless that ends with /; 0: it has
   another route. */
static const char *rest_of(const struct route *r, const char *path) {
    const char *short_path = behind(r->path, "/v1");
    const char *rest = behind(path, r->path);
    if (!rest && short_path) rest = behind(path, short_path);
    return rest && (!*rest || r->path[strlen(r->path) - 1] == '/') ? rest : 0;
}

/* 0: there is none. */
static const struct route *find_route(const char *method, const char *path) {
    size_t i;
    for (i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (rest_of(&routes[i], path) &&
            !strcmp(is_get(method) ? "GET" : method, routes[i].method)) return &routes[i];
    return 0;
}

/* An answer to a request that has no route. */
static answer answer_other(struct MHD_Connection *c, const char *method, const char *path) {
    size_t i;
    if (!strcmp(method, "OPTIONS") && settings.allowed_origin) return answer_preflight(c);
    for (i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (rest_of(&routes[i], path)) return refuse_method(c, routes[i].method);
    if (is_get(method)) return answer_file(c, path);
    return http_send_error(c, 0, http_error_of(404, "there is nothing at this address"));
}

/* What is wrong with a request, as far as one can see before its body comes. */
static http_error check_head(struct MHD_Connection *c, const struct route *route) {
    const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
    const http_error e = check_client(c, route && route->needs_key);
    if (e.status) return e;
    if (route && route->needs_model && !serve_is_ready())
        return http_error_of(503, "the model is being loaded");
    if (length && strtoull(length, 0, 10) > (unsigned long long)settings.body_megabytes << 20)
        return http_error_of(413, "the body is too large: see --max-body");
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
        return http_send_error(c, route_endpoint(route), e);
    if (!(j = job_create(c))) return http_send_error(c, 0, http_error_of(503, "no memory"));
    j->route = route;
    if (route) snprintf(j->name, sizeof j->name, "%s", rest_of(route, path));
    j->error = e;
    *con_cls = j;
    return MHD_YES;
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
    if (j->error.status) return http_send_error(c, route_endpoint(j->route), j->error);
    if (j->body.failed) return http_send_error(c, 0, http_error_of(503, "no memory"));
    return j->route ? j->route->run(j) : answer_other(c, method, path);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **con_cls,
                         enum MHD_RequestTerminationCode why) {
    job *j = (job *)*con_cls;
    (void)cls;
    (void)why;
    set_since(c, serve_now());
    if (!j) return;
    forget_body(j);
    *con_cls = 0;
    job_leave(j);
}

/* ---- beginning and ending ---- */

static struct MHD_Daemon *http;

static int is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24) == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

int http_start(void) {
    struct addrinfo hints, *found = 0;
    const union MHD_DaemonInfo *info;
    char number[16];
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    snprintf(number, sizeof number, "%ld", settings.port);
    if (getaddrinfo(settings.host, number, &hints, &found) || !found) {
        serve_fail("--host %s: there is no such address%s", settings.host, "");
        return 2;
    }
    if (!is_loopback(found->ai_addr) && !settings.api_key && !settings.open_to_all) {
        serve_fail("--host %s: other machines can come in. Set --api-key, or --no-key to let all "
                   "in%s", settings.host, "");
        freeaddrinfo(found);
        return 2;
    }
    errno = 0;
    http = MHD_start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
            (found->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0),
        (uint16_t)settings.port, 0, 0, on_request, (void *)0, MHD_OPTION_SOCK_ADDR, found->ai_addr,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)settings.n_connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)settings.idle_seconds,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, (void *)0, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, (void *)0, MHD_OPTION_END);
    freeaddrinfo(found);
    if (!http) {
        fprintf(stderr, "serve: cannot listen on %s, port %ld: %s\n", settings.host, settings.port,
                strerror(errno));
        return 1;
    }
    info = MHD_get_daemon_info(http, MHD_DAEMON_INFO_BIND_PORT);
    if (info && info->port) settings.port = info->port;
    return 0;
}

void http_stop(void) {
    const double end = serve_now() + 2;
    struct timespec pause = {0, 10000000};
    long left = 1;
    MHD_quiesce_daemon(http);
    while (left && serve_now() < end) {
        left = jobs_of_http();
        if (left) nanosleep(&pause, 0);
    }
    MHD_stop_daemon(http);
}
