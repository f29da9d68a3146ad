#include "serve_peers.h"
#include "serve.h"
#include "serve_clients.h"
#include "serve_system.h"
#include <stdlib.h>
#include <string.h>

typedef struct peer {
    system_socket socket;
    uint64_t address;                  /* see client_of_address */
    double since;                      /* its last answer, or its begin; 0: a request is here */
    double left;                       /* when it was seen to have left; 0: it has not */
    job *job;
    struct peer *next, **at;           /* at: what points to it */
} peer;

/* With the lock. */
static peer *peers;
static size_t n_peers;

/* How many connections an address has, or several with the same last digits, which are seldom. */
enum { ADDRESSES = 65536 };
static int32_t n_of_address[ADDRESSES];

enum MHD_Result peers_accept(void *cls, const struct sockaddr *a, socklen_t n) {
    const uint64_t address = client_of_address(a);
    int is_full;
    (void)cls;
    (void)n;
    if (a && a->sa_family == AF_UNSPEC) return MHD_YES;
    thread_take(&serve_lock);
    is_full = n_peers >= (size_t)settings.n_connections;
    if (address && n_of_address[address % ADDRESSES] >= settings.n_peer_connections) is_full = 1;
    thread_give(&serve_lock);
    return is_full ? MHD_NO : MHD_YES;
}

static peer *peer_of(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? (peer *)info->socket_context : 0;
}

static void begin(struct MHD_Connection *c, void **context) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    peer *l = info && !http_is_bell(c) ? (peer *)calloc(1, sizeof *l) : 0;
    if (!l) return;
    l->socket = info->connect_fd;
    info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    l->address = client_of_address(info ? info->client_addr : 0);
    l->since = serve_now();
    *context = l;
    thread_take(&serve_lock);
    l->next = peers;
    l->at = &peers;
    if (peers) peers->at = &l->next;
    peers = l;
    n_peers++;
    n_of_address[l->address % ADDRESSES]++;
    thread_give(&serve_lock);
}

static void end(peer *l, void **context) {
    thread_take(&serve_lock);
    *l->at = l->next;
    if (l->next) l->next->at = l->at;
    n_peers--;
    n_of_address[l->address % ADDRESSES]--;
    thread_give(&serve_lock);
    *context = 0;
    free(l);
}

void peers_notify(void *cls, struct MHD_Connection *c, void **context,
                  enum MHD_ConnectionNotificationCode what) {
    (void)cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) begin(c, context);
    else if (*context) end((peer *)*context, context);
}

void peer_has_job(struct MHD_Connection *c, job *j) {
    peer *l = peer_of(c);
    thread_take(&serve_lock);
    if (l) l->job = j;
    thread_give(&serve_lock);
}

job *peer_job(struct MHD_Connection *c) {
    const peer *l = peer_of(c);
    return l ? l->job : 0;
}

static void set_since(struct MHD_Connection *c, double since) {
    peer *l = peer_of(c);
    thread_take(&serve_lock);
    if (l) l->since = since;
    thread_give(&serve_lock);
}

void peer_has_request(struct MHD_Connection *c) { set_since(c, 0); }
void peer_has_answer(struct MHD_Connection *c) { set_since(c, serve_now()); }

/* The wake-up is an event, too. */
int peers_are_many(void) { return n_peers >= 127; }

/* ---- who has left ---- */

static void look_at(peer *l, int is_gone, double time) {
    if (is_gone && l->left <= 0) l->left = time;
    if (is_gone && l->since <= 0 && l->job) job_has_left(l->job);
    if (l->since <= 0) {
        if (l->job && job_is_overdue(l->job, time)) system_shut(l->socket);
        return;
    }
    /* what it sent before it left may be a whole request, which libmicrohttpd reads meanwhile */
    if ((is_gone && time - l->left > 0.25) ||
        time - l->since > 2 * (double)settings.idle_seconds) system_shut(l->socket);
}

void peers_look(double time) {
    static struct pollfd *polled;
    static size_t room;
    static double last;
    size_t n = 0, i = 0;
    peer *l;
    if (time - last < 0.005 + 1e-5 * (double)n_peers) return;
    last = time;
    if (n_peers > room) {
        struct pollfd *more = (struct pollfd *)realloc(polled, 2 * n_peers * sizeof *more);
        if (!more) return;             /* another time */
        polled = more;
        room = 2 * n_peers;
    }
    for (l = peers; l; l = l->next, n++) system_watch(&polled[n], l->socket);
    if (n && !system_ask(polled, n)) return;
    for (l = peers; l; l = l->next, i++) look_at(l, system_has_left(&polled[i]), time);
}
