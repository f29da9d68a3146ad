#include "serve_http.h"
#include "reply.h"
#include "serve.h"
#include "serve_answers.h"
#include "serve_clients.h"
#include "serve_figures.h"
#include "serve_files.h"
#include "serve_llama.h"
#include "serve_peers.h"
#include "serve_system.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEADER_BYTES = 32 << 10 };

/* ---- answers ---- */

answer http_send(struct MHD_Connection *c, int status, struct MHD_Response *r, const char *type) {
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
    job *j = peer_job(c);
    answer result;
    if (!r) return MHD_NO;
    if (j) j->status = status;
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

/* header 0: none more. */
static answer send_error_with(struct MHD_Connection *c, const endpoint *how, const http_error *e,
                              const char *header, const char *value) {
    buffer out = {0};
    struct MHD_Response *r;
    (how ? how->error : reply_error)(&out, e);
    r = out.failed ? 0 : MHD_create_response_from_buffer(out.n, out.p, MHD_RESPMEM_MUST_COPY);
    buffer_free(&out);
    if (r && header) MHD_add_response_header(r, header, value);
    return http_send(c, e->status, r, HTTP_JSON);
}

answer http_send_error(struct MHD_Connection *c, const endpoint *how, http_error error) {
    return send_error_with(c, how, &error, 0, 0);
}

answer http_send_buffer(struct MHD_Connection *c, const char *type, buffer *b) {
    const answer result = b->failed ? http_send_error(c, 0, refuse_memory())
                                    : http_send_text(c, 200, type, b->p ? b->p : "", b->n);
    buffer_free(b);
    return result;
}

/* ---- which address does what ---- */

/* A path that ends with / stands for all that begin so. The /v1 in front of one may be missing, as
   in llama.cpp's server, whose own /completions comes before that of OpenAI. */
static const struct route {
    const char *method, *path;
    answer (*run)(job *j);             /* answers at once; 0: after `read` (see job) */
    http_error (*read)(job *j);
    int needs_key, needs_model;
    const endpoint *endpoint;
} routes[] = {
    {"POST", "/completion", 0, read_request, 1, 1, &endpoint_llama},
    {"POST", "/completions", 0, read_request, 1, 1, &endpoint_llama},
    {"POST", "/v1/chat/completions", 0, read_request, 1, 1, &endpoint_chat},
    {"POST", "/v1/chat/completions/input_tokens", 0, read_count, 1, 1, &endpoint_chat},
    {"POST", "/v1/completions", 0, read_request, 1, 1, &endpoint_completions},
    {"POST", "/v1/responses", 0, read_request, 1, 1, &endpoint_responses},
    {"POST", "/v1/responses/input_tokens", 0, read_count, 1, 1, &endpoint_responses},
    {"POST", "/v1/messages", 0, read_request, 1, 1, &endpoint_messages},
    {"POST", "/v1/messages/count_tokens", 0, read_count, 1, 1, &endpoint_messages_count},
    {"POST", "/v1/embeddings", 0, read_request, 1, 1, &endpoint_embeddings},
    {"POST", "/v1/rerank", 0, read_request, 1, 1, &endpoint_rerank},
    {"POST", "/v1/reranking", 0, read_request, 1, 1, &endpoint_rerank},
    {"POST", "/v2/rerank", 0, read_request, 1, 1, &endpoint_rerank},       /* Cohere's */
    {"POST", "/apply-template", 0, read_template, 1, 1, &endpoint_chat},
    {"POST", "/tokenize", 0, read_tokenize, 1, 1, 0},
    {"POST", "/detokenize", 0, read_detokenize, 1, 1, 0},
    {"GET", "/v1/models", answer_models, 0, 1, 1, 0},
    {"GET", "/v1/models/", answer_model, 0, 1, 1, 0},
    {"GET", "/props", answer_props, 0, 1, 1, 0},
    {"GET", "/slots", answer_slots, 0, 1, 1, 0},
    {"GET", "/metrics", answer_metrics, 0, 1, 0, 0},
    {"GET", "/health", answer_health, 0, 0, 0, 0},
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
    const http_error e = refuse(405, 0, "this address has another method: %s", method);
    return send_error_with(c, 0, &e, "Allow", strcmp(method, "GET") ? method : "GET, HEAD");
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

/* The path of a request, which a proxy may send as http://HOST/PATH: RFC 9112, section 3.2.2. */
static const char *path_of(const char *target) {
    const char *host = strncasecmp(target, "http", 4) ? 0 : strstr(target, "://"), *path;
    if (!host) return target;
    path = strchr(host + 3, '/');
    return path ? path : "/";
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
    return http_send_error(c, 0, refuse(404, 0, "there is nothing at this address"));
}

/* ---- a request's head ---- */

/* Does a name begin with another one, but is longer? libmicrohttpd takes a value that stands on the
   next line for a part of the name. */
static int is_longer(const char *name, const char *than) {
    const size_t n = strlen(than);
    return !strncasecmp(name, than, n) && name[n];
}

/* What says how long a body is. */
typedef struct framing { int lengths, codings, is_chunked, is_odd; } framing;

static enum MHD_Result look_at_field(void *cls, enum MHD_ValueKind kind, const char *name,
                                     const char *value) {
    framing *f = (framing *)cls;
    (void)kind;
    if (strpbrk(name, " \t")) f->is_odd = 1;     /* a blank before the colon */
    if (is_longer(name, "Content-Length") || is_longer(name, "Transfer-Encoding")) f->is_odd = 1;
    if (!strcasecmp(name, "Content-Length")) {
        f->lengths++;
        if (!value || !*value || value[strspn(value, "0123456789")]) f->is_odd = 1;
    }
    if (strcasecmp(name, "Transfer-Encoding")) return MHD_YES;
    f->codings++;
    f->is_chunked = value && !strcasecmp(value, "chunked");
    return MHD_YES;
}

/* Where a proxy and this server would disagree on where a request ends, a client could hide one in
   another: RFC 9112, section 6.3. */
static int is_badly_framed(struct MHD_Connection *c) {
    framing f = {0, 0, 0, 0};
    MHD_get_connection_values(c, MHD_HEADER_KIND, look_at_field, &f);
    return f.is_odd || f.lengths + f.codings > 1 || (f.codings && !f.is_chunked);
}

/* What is wrong with a request, as far as one can see before its body comes. */
static http_error check_head(struct MHD_Connection *c, const struct route *route, const job *j) {
    const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
    const char *coding = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Encoding");
    const http_error e = client_check(c, route && route->needs_key);
    if (e.status) return e;
    if (coding && strcasecmp(coding, "identity"))
        return refuse(415, 0, "Content-Encoding: a body must not be compressed");
    if (route && route->needs_model && !serve_is_ready())
        return refuse(503, 0, "the model is being loaded");
    if (length && strtoull(length, 0, 10) > (unsigned long long)settings.body_megabytes << 20)
        return refuse(413, 0, "the body is too large: see --max-body");
    return j->needs_place ? job_has_place(j) : e;
}

static answer refuse_framing(struct MHD_Connection *c, const endpoint *how) {
    const http_error e = refuse(400, 0, "Content-Length and Transfer-Encoding: one of them is "
                                "needed, once, and the only encoding is chunked");
    return send_error_with(c, how, &e, "Connection", "close");
}

/* Before the body comes. Who has asked whether to send it is refused here. All others get their
   answer behind the body: those who still send would not see it, and the connection would end. */
static answer begin_request(struct MHD_Connection *c, const char *method, const char *path,
                            void **con_cls) {
    const struct route *route = find_route(method, path);
    job *j = job_create(c);
    if (!j) return http_send_error(c, route_endpoint(route), refuse_memory());
    *con_cls = j;
    peer_has_job(c, j);
    j->route = route;
    j->read = route ? route->read : 0;
    j->needs_place = j->read == read_request;
    if (route) snprintf(j->name, sizeof j->name, "%s", rest_of(route, path));
    snprintf(j->method, sizeof j->method, "%s", method);
    snprintf(j->path, sizeof j->path, "%s", path);
    client_identify(c, &j->client);
    if (is_badly_framed(c)) return refuse_framing(c, route_endpoint(route));
    j->error = check_head(c, route, j);
    if (j->error.status && MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Expect"))
        return http_send_error(c, route_endpoint(route), j->error);
    return MHD_YES;
}

/* The whole request is here. */
static answer take_request(job *j, const char *method, const char *path) {
    struct MHD_Connection *c = j->connection;
    const endpoint *how = route_endpoint(j->route);
    http_error e = j->error;
    peer_has_request(c);
    if (!e.status && j->body.failed) e = refuse_memory();
    if (!e.status && j->read) {
        e = job_submit(j);
        if (!e.status) return MHD_YES;       /* from here on the job is a reader's */
    }
    if (e.status) {
        j->error = e;
        return http_send_error(c, how, e);
    }
    return j->route ? j->route->run(j) : answer_other(c, method, path);
}

/* ---- the bell ----
   When epoll gives libmicrohttpd 128 events at once, it waits for another event before it looks at
   them (0.9.75), perhaps until the idle timeout. A connection that is resumed is such an event. The
   bell is a connection of our own, whose request is suspended until http_wake. A new connection
   would be an event, too, but if a client takes the last place meanwhile, libmicrohttpd never gives
   a lock back. With poll() the library would look at all events, but then a stream beside 9000 idle
   connections takes 6 s, not 0.4. */
static struct MHD_Daemon *http;
static int bell_ends[2] = {-1, -1};    /* libmicrohttpd's and ours; -1: there is none */
static struct MHD_Connection *held;    /* with the lock: what http_wake lets go on */
static int is_stopping;                /* with the lock */

int http_is_bell(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info =
        bell_ends[0] < 0 ? 0 : MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info && info->connect_fd == (system_socket)bell_ends[0];
}

static answer wait_for_wake(struct MHD_Connection *c) {
    answer is_kept;
    thread_take(&serve_lock);
    is_kept = is_stopping ? MHD_NO : MHD_YES;
    if (is_kept) {
        held = c;
        MHD_suspend_connection(c);
    }
    thread_give(&serve_lock);
    return is_kept;
}

void http_wake(void) {
    thread_take(&serve_lock);
    if (held) MHD_resume_connection(held);
    held = 0;
    thread_give(&serve_lock);
}

/* Without a bell nothing wakes libmicrohttpd. */
static void make_bell(void) {
    static const char ask[] = "GET / HTTP/1.1\r\nHost: bell\r\n\r\n";
    if (system_pair(bell_ends) ||
        system_send((system_socket)bell_ends[1], ask, sizeof ask - 1) < 0) bell_ends[0] = -1;
}

/* Clients may come in already, but peers_accept keeps a place for what has no address. Without one
   the bell would be refused, or libmicrohttpd would find no place when it takes the bell over, and
   keep its lock. */
static void hang_bell(void) {
    struct sockaddr none;
    if (bell_ends[0] < 0) return;
    memset(&none, 0, sizeof none);
    none.sa_family = AF_UNSPEC;
    if (MHD_add_connection(http, bell_ends[0], &none, sizeof none) != MHD_YES) bell_ends[0] = -1;
}

static void end_bell(void) {
    thread_take(&serve_lock);
    is_stopping = 1;
    thread_give(&serve_lock);
    http_wake();
}

static answer on_request(void *cls, struct MHD_Connection *c, const char *path, const char *method,
                         const char *version, const char *data, size_t *size, void **con_cls) {
    job *j = (job *)*con_cls;
    (void)cls;
    (void)version;
    if (http_is_bell(c)) return wait_for_wake(c);
    path = path_of(path);
    if (!j) return begin_request(c, method, path, con_cls);
    if (*size > 0) {
        job_take_part(j, data, *size);
        *size = 0;
        return MHD_YES;
    }
    return j->is_submitted ? answer_read(j) : take_request(j, method, path);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **con_cls,
                         enum MHD_RequestTerminationCode why) {
    job *j = (job *)*con_cls;
    (void)cls;
    (void)why;
    peer_has_answer(c);
    if (!j) return;
    peer_has_job(c, 0);
    *con_cls = 0;
    job_leave(j);
}

/* ---- beginning and ending ---- */

int http_is_socket(void) { return strchr(settings.host, '/') != 0; }

static int is_any(const struct sockaddr *a) {
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24) == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

/* fd < 0: at the address. On Windows another program could listen on the same port, unless that is
   denied. */
static void start_daemon(const struct sockaddr *address, int fd) {
    const int is_v6 = address && address->sa_family == AF_INET6;
    struct MHD_OptionItem where[] = {
        {MHD_OPTION_SOCK_ADDR, 0, (void *)(size_t)address},
        {SYSTEM_IS_WINDOWS ? MHD_OPTION_LISTENING_ADDRESS_REUSE : MHD_OPTION_END, 0, 0},
        {MHD_OPTION_END, 0, 0}
    };
    if (fd >= 0) {
        where[0].option = MHD_OPTION_LISTEN_SOCKET;
        where[0].value = fd;
    }
    make_bell();
    http = MHD_start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
            (is_v6 && is_any(address) ? MHD_USE_DUAL_STACK : is_v6 ? MHD_USE_IPv6 : 0),
        (uint16_t)settings.port, peers_accept, (void *)0, on_request, (void *)0,
        MHD_OPTION_ARRAY, where,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)settings.n_connections + (bell_ends[0] >= 0),
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)settings.idle_seconds,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
        MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, (void *)0, MHD_OPTION_NOTIFY_CONNECTION,
        peers_notify, (void *)0, MHD_OPTION_END);
    if (http) hang_bell();
}

/* Returns 0, or an exit code. */
static int start_at_address(void) {
    struct addrinfo hints, *found = 0;
    const union MHD_DaemonInfo *info;
    char number[16];
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    snprintf(number, sizeof number, "%ld", settings.port);
    if (getaddrinfo(settings.host, number, &hints, &found) || !found) {
        serve_say("--host %s: there is no such address", settings.host);
        return 2;
    }
    if ((!is_loopback(found->ai_addr) || settings.trusted_proxy) && !clients_have_keys() &&
        !settings.open_to_all) {
        serve_say("--%s: other machines can come in. Set --api-key, or --no-key to let all in",
                  settings.trusted_proxy ? "trusted-proxy" : "host");
        freeaddrinfo(found);
        return 2;
    }
    system_forget_error();
    start_daemon(found->ai_addr, -1);
    freeaddrinfo(found);
    if (!http) {
        serve_say("cannot listen on %s, port %ld: %s", settings.host, settings.port,
                  system_socket_error());
        return 1;
    }
    info = MHD_get_daemon_info(http, MHD_DAEMON_INFO_BIND_PORT);
    if (info && info->port) settings.port = info->port;
    return 0;
}

int http_start(void) {
    int fd;
    if (!http_is_socket()) return start_at_address();
    fd = system_listen_at(settings.host);
    if (fd < 0) return 1;
    start_daemon(0, fd);
    if (!http) {
        serve_say("cannot start on the socket %s", settings.host);
        system_close((system_socket)fd);
    }
    return !http;
}

void http_stop(void) {
    const double end = serve_now() + 2;
    long left = 1;
    MHD_quiesce_daemon(http);
    while (left && serve_now() < end) {
        left = jobs_of_http();
        if (left) thread_sleep(0.01);
    }
    end_bell();
    MHD_stop_daemon(http);
    if (http_is_socket()) system_unlink(settings.host);
}
