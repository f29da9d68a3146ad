/* scheduler.c - who gets a place, is read, is written and is told when, with a clock of the test's

       scheduler examples/tiny.gguf

   It is linked with serve_jobs.c, serve_peers.c, the engine and the readers of requests. Instead of
   libmicrohttpd and serve.c there is what stands here. Nothing sleeps. */
#include "../../examples/server/serve_clients.h"
#include "../../examples/server/serve_figures.h"
#include "../../examples/server/serve_log.h"
#include "../../examples/server/serve_peers.h"
#include "../../examples/server/serve.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- in place of the server ---- */

struct settings settings;
struct figures figures;
service serving;
thread_lock serve_lock = THREAD_LOCK;
static double now = 1000, thread_time;
static int stopping;

double serve_now(void) { return now; }
double serve_thread_time(void) { return thread_time; }
int serve_is_stopping(void) { return stopping; }
void figures_observe(histogram *h, double x) { h->sum += x; }
void log_body(job *j) { (void)j; }
static int n_freed;
void log_job(const job *j) {
    (void)j;
    n_freed++;                         /* the last thing that becomes of a job */
}
uint64_t client_of_address(const struct sockaddr *a) { return a ? 7 : 0; }

/* ---- in place of libmicrohttpd: a connection is this ---- */

struct MHD_Connection {
    int suspended, resumed, fd;
    void *context;
    const struct sockaddr *from;
};
void MHD_suspend_connection(struct MHD_Connection *c) { c->suspended++; }
void MHD_resume_connection(struct MHD_Connection *c) { c->resumed++; }
void http_wake(void) {}
int http_is_bell(struct MHD_Connection *c) {
    (void)c;
    return 0;
}
const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *c,
                                                        enum MHD_ConnectionInfoType type, ...) {
    static union MHD_ConnectionInfo info;
    memset(&info, 0, sizeof info);
    if (type == MHD_CONNECTION_INFO_CONNECTION_FD) info.connect_fd = c->fd;
    else if (type == MHD_CONNECTION_INFO_SOCKET_CONTEXT) info.socket_context = c->context;
    else info.client_addr = (struct sockaddr *)(size_t)c->from;
    return &info;
}

/* ---- cases ---- */

static int n_passed, n_failed;
static const char *in_case;

#define CHECK(x) check((x) != 0, #x, __LINE__)
static void check(int holds, const char *what, int line) {
    if (holds) return;
    printf("FAIL scheduler/%s: line %d: %s\n", in_case, line, what);
    n_failed++;
}

static http_error read_body(job *j) {
    size_t size;
    char *body = job_take_body(j, &size);
    return request_parse(&j->request, &serving, &endpoint_completions, "the body", body, size, 0);
}
/* One that takes ten seconds of the processor. */
static http_error read_slowly(job *j) {
    thread_time += 10;
    return read_body(j);
}

static const struct route { int nothing; } a_route;

/* A request of a client, which is not submitted yet. */
static job *make(uint64_t client, const char *body) {
    struct MHD_Connection *c = (struct MHD_Connection *)calloc(1, sizeof *c);
    job *j = job_create(c);
    j->client.id = client;
    j->read = read_body;
    j->needs_place = 1;
    j->route = &a_route;
    job_take_part(j, body, strlen(body));
    return j;
}

static const char a_text[] = "{\"prompt\":\"Once\",\"max_tokens\":3,\"temperature\":0}";

/* HTTP has sent the answer. */
static void leave(job *j) {
    struct MHD_Connection *c = j->connection;
    job_leave(j);
    free(c);
}

static engine *eng;
static void pass(void) {
    jobs_take(eng, 0);
    engine_pass(eng);
}

/* Until nobody but HTTP has any job. */
static void run_all(void) {
    int i;
    while (jobs_read_one(0)) {}
    for (i = 0; i < 10000 && jobs_are_busy(); i++) pass();
    CHECK(i < 10000);
}

static void a_full_queue_refuses_before_any_work(void) {
    job *all[3], *more, *other;
    int i;
    for (i = 0; i < 3; i++) {
        all[i] = make(1, a_text);
        CHECK(!job_has_place(all[i]).status && !job_submit(all[i]).status);
        CHECK(all[i]->connection->suspended == 1);
    }
    more = make(1, a_text);
    CHECK(job_has_place(more).status == 429 && job_submit(more).status == 429);
    CHECK(more->body.n == strlen(a_text));         /* nobody has read it */
    other = make(2, a_text);                       /* some are kept for who has none */
    CHECK(!job_submit(other).status);
    run_all();
    CHECK(!other->error.status && other->is_done && other->connection->resumed == 1);
    CHECK(!job_has_place(more).status);
    for (i = 0; i < 3; i++) leave(all[i]);
    leave(more);
    leave(other);
}

static void texts_of_a_request_need_places_too(void) {
    job *one = make(1, a_text), *many = make(1, "{\"prompt\":\"x\",\"n\":3,\"max_tokens\":1}"),
        *too_many = make(3, "{\"prompt\":\"x\",\"n\":4,\"max_tokens\":1}");
    CHECK(!job_submit(one).status && !job_submit(many).status && !job_submit(too_many).status);
    run_all();
    CHECK(!one->error.status && many->error.status == 429 && too_many->error.status == 400);
    leave(one);
    leave(many);
    leave(too_many);
}

/* With two slots: when one is free, it is for who has none. */
static void a_client_with_many_texts_lets_others_in(void) {
    job *mine[3], *other;
    int i;
    CHECK(!job_submit(mine[0] = make(1, a_text)).status);
    for (i = 1; i < 3; i++)
        CHECK(!job_submit(mine[i] = make(1, "{\"prompt\":\"Once\",\"max_tokens\":9}")).status);
    while (jobs_read_one(0)) {}
    pass();                                        /* the first two have the slots */
    CHECK(!job_submit(other = make(2, a_text)).status);
    while (jobs_read_one(0)) {}
    for (i = 0; i < 10000 && other->first <= 0; i++) pass();
    CHECK(mine[0]->is_done && mine[1]->first > 0 && other->first > 0 && mine[2]->first <= 0);
    run_all();
    for (i = 0; i < 3; i++) leave(mine[i]);
    leave(other);
}

/* Each byte of it can be read in very many ways: its mask takes 10 passes. */
static job *make_with_a_hostile_grammar(uint64_t client) {
    static char body[4000];
    size_t n = (size_t)sprintf(body, "{\"prompt\":\"x\",\"max_tokens\":2,\"temperature\":0,"
                               "\"grammar\":\"root ::= r*\\nr ::= [^a]");
    int i;
    for (i = 0; i < 60; i++)
        n += (size_t)sprintf(body + n, " | [\\\\x%02x-\\\\x%02x] r{0,%d}", 32 + i % 40, 64 + i, i);
    strcpy(body + n, "\"}");
    return make(client, body);
}

static void a_hostile_grammar_delays_its_own_text_alone(void) {
    job *hostile = make_with_a_hostile_grammar(1), *alone = make_with_a_hostile_grammar(1),
        *other = make(2, a_text);
    const buffer *a, *b;
    int i;
    CHECK(!job_submit(hostile).status && !job_submit(other).status);
    while (jobs_read_one(0)) {}
    for (i = 0; i < 4; i++) pass();
    CHECK(other->is_done && !hostile->error.status && hostile->first <= 0);
    run_all();
    CHECK(!job_submit(alone).status);
    run_all();
    CHECK(hostile->first > 0 && !hostile->error.status && alone->first > 0);
    a = &hostile->choices[0].text;
    b = &alone->choices[0].text;
    CHECK(a->n > 0 && a->n == b->n && !memcmp(a->p, b->p, a->n));
    leave(hostile);
    leave(other);
    leave(alone);
}

static void who_takes_the_readers_time_waits_for_himself(void) {
    job *slow[2], *quick;
    slow[0] = make(1, a_text);
    slow[1] = make(1, a_text);
    slow[0]->read = slow[1]->read = read_slowly;
    CHECK(!job_submit(slow[0]).status && !job_submit(slow[1]).status);
    CHECK(jobs_read_one(0) && slow[0]->is_read);
    CHECK(!job_submit(quick = make(2, a_text)).status);
    CHECK(jobs_read_one(0) && quick->is_read && !slow[1]->is_read);
    run_all();
    leave(slow[0]);
    leave(slow[1]);
    leave(quick);
}

static void a_stream_that_waits_says_that_it_lives(void) {
    job *first = make(1, a_text),
        *j = make(2, "{\"prompt\":\"Once\",\"max_tokens\":3,\"stream\":true}");
    char got[64] = "";
    int i;
    CHECK(!job_submit(first).status && !job_submit(j).status);
    while (jobs_read_one(0)) {}
    CHECK(j->connection->resumed == 1);            /* its answer may begin */
    jobs_take(eng, 0);
    CHECK(job_read_stream(j, 0, got, sizeof got) == 0 && j->connection->suspended == 2);
    now += 14;
    jobs_take(eng, 0);
    CHECK(j->out.n == 0);
    now += 2;
    jobs_take(eng, 0);
    CHECK(job_read_stream(j, 0, got, sizeof got) > 0 && !strcmp(got, ": still here\n\n"));
    CHECK(j->connection->resumed == 2);
    now += 2;
    jobs_take(eng, 0);
    CHECK(j->out.n == 0);
    CHECK(job_read_stream(j, 0, got, sizeof got) == 0 && j->connection->suspended == 3);
    for (i = 0; i < 10000 && j->first <= 0; i++) pass();
    CHECK(j->connection->resumed == 3 && !j->is_done);     /* its first piece is there */
    run_all();
    leave(first);
    leave(j);
}

static void an_answer_has_a_bound(void) {
    static char piece[1 << 20];
    job *whole = make(1, a_text), *stream = make(2, "{\"prompt\":\"x\",\"stream\":true}");
    engine_text *t;
    int i;
    memset(piece, 'x', sizeof piece);
    CHECK(!job_submit(whole).status && !job_submit(stream).status);
    while (jobs_read_one(0)) {}
    jobs_take(eng, 0);
    t = &whole->request.texts[0];
    for (i = 0; i < 64; i++) t->piece_fn(t, piece, sizeof piece, 0);
    CHECK(!whole->error.status);
    t->piece_fn(t, piece, 1, 0);
    CHECK(whole->error.status == 400);
    t = &stream->request.texts[0];
    for (i = 0; i < 65; i++) t->piece_fn(t, piece, sizeof piece, 0);
    CHECK(stream->is_gone);                        /* its client does not read */
    run_all();
    CHECK(whole->is_done && whole->error.status == 400 && stream->is_done);
    leave(whole);
    leave(stream);
}

static void a_stream_that_lacks_a_part_breaks_off(void) {
    job *j = make(1, "{\"prompt\":\"Once\",\"max_tokens\":3,\"stream\":true}");
    char got[256];
    CHECK(!job_submit(j).status);
    while (jobs_read_one(0)) {}
    jobs_take(eng, 0);
    j->choices[0].text.failed = 1;                 /* there is no memory for it */
    run_all();
    CHECK(job_read_stream(j, 0, got, sizeof got) == MHD_CONTENT_READER_END_WITH_ERROR);
    leave(j);
}

static void a_client_that_leaves_before_it_is_read_gets_no_slot(void) {
    job *j = make(1, a_text);
    const int freed = n_freed;
    struct MHD_Connection *c = j->connection;
    CHECK(!job_submit(j).status);
    job_leave(j);
    CHECK(n_freed == freed);                       /* it is in a reader's list */
    CHECK(jobs_read_one(0) && n_freed == freed + 1 && !jobs_are_busy());
    free(c);
}

static void the_end_refuses_what_is_not_read_and_cancels_the_rest(void) {
    job *j = make(1, a_text), *late = make(2, a_text), *later = make(3, a_text);
    CHECK(!job_submit(j).status && jobs_read_one(0));
    jobs_take(eng, 0);
    CHECK(!job_submit(late).status);
    stopping = 1;
    CHECK(job_submit(later).status == 503);
    CHECK(jobs_read_one(0) && late->is_done && late->error.status == 503);
    jobs_cancel_all();
    engine_pass(eng);
    CHECK(j->is_done && j->error.status == 503 && !jobs_are_busy());
    stopping = 0;
    leave(j);
    leave(late);
    leave(later);
}

/* ---- connections ---- */

/* A connection, and the client's end of it in *client. */
static struct MHD_Connection *join(int *client) {
    struct MHD_Connection *c = (struct MHD_Connection *)calloc(1, sizeof *c);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) abort();
    c->fd = ends[0];
    *client = ends[1];
    peers_notify(0, c, &c->context, MHD_CONNECTION_NOTIFY_STARTED);
    return c;
}

static void part(struct MHD_Connection *c, int client) {
    peers_notify(0, c, &c->context, MHD_CONNECTION_NOTIFY_CLOSED);
    close(c->fd);
    if (client >= 0) close(client);
    free(c);
}

/* Has the server shut it down? Then the client sees its end. */
static int is_shut(int client) {
    char byte;
    return recv(client, &byte, 1, MSG_DONTWAIT) == 0;
}

static void look(double later) {
    now += later;
    jobs_look_for_the_gone();
}

static void a_closed_half_request_frees_its_connection_within_a_second(void) {
    int client, half;
    struct MHD_Connection *c = join(&client), *d = join(&half);
    look(1);
    CHECK(!is_shut(client) && !is_shut(half));
    shutdown(half, SHUT_WR);
    look(0.1);
    CHECK(!is_shut(half));                         /* a whole request may be on its way */
    look(0.5);
    CHECK(is_shut(half) && !is_shut(client));
    part(c, client);
    part(d, half);
}

static void a_slow_request_ends_after_twice_the_idle_time(void) {
    int slow, whole;
    struct MHD_Connection *c = join(&slow), *d = join(&whole);
    peer_has_request(d);
    look(2 * (double)settings.idle_seconds - 1);
    CHECK(!is_shut(slow));
    look(2);
    CHECK(is_shut(slow) && !is_shut(whole));
    peer_has_answer(d);                            /* from here on it is idle */
    look(2 * (double)settings.idle_seconds + 1);
    CHECK(is_shut(whole));
    part(c, slow);
    part(d, whole);
}

static void who_leaves_ends_the_text(void) {
    int client;
    struct MHD_Connection *c = join(&client);
    job *j = make(1, "{\"prompt\":\"Once\",\"max_tokens\":-1,\"ignore_eos\":true}");
    free(j->connection);
    j->connection = c;
    peer_has_job(c, j);
    peer_has_request(c);
    CHECK(!job_submit(j).status && jobs_read_one(0));
    pass();
    look(1);
    CHECK(!j->is_gone);
    close(client);
    look(1);
    CHECK(j->is_gone);
    pass();
    CHECK(j->is_done && !jobs_are_busy() && c->resumed == 1);
    peer_has_job(c, 0);
    job_leave(j);
    part(c, -1);
}

static void an_answer_that_is_fetched_too_slowly_ends(void) {
    int client;
    struct MHD_Connection *c = join(&client);
    job *j = make(1, a_text);
    free(j->connection);
    j->connection = c;
    peer_has_job(c, j);
    peer_has_request(c);
    CHECK(!job_submit(j).status);
    look(1000);                                    /* it may wait for as long as it takes */
    CHECK(!is_shut(client));
    run_all();
    look(2 * (double)settings.idle_seconds - 1);
    CHECK(j->is_done && !is_shut(client));
    look(2);
    CHECK(is_shut(client));
    peer_has_job(c, 0);
    job_leave(j);
    part(c, client);
}

static void an_address_has_only_so_many_connections(void) {
    static struct sockaddr a, none;
    int clients[3], others[3], i;
    struct MHD_Connection *c[3], *d[3];
    a.sa_family = AF_INET;
    none.sa_family = AF_UNSPEC;
    for (i = 0; i < 3; i++) {
        CHECK(peers_accept(0, &a, sizeof a) == MHD_YES);
        c[i] = join(&clients[i]);
        c[i]->from = &a;
        peers_notify(0, c[i], &c[i]->context, MHD_CONNECTION_NOTIFY_CLOSED);   /* now with it */
        peers_notify(0, c[i], &c[i]->context, MHD_CONNECTION_NOTIFY_STARTED);
    }
    CHECK(peers_accept(0, &a, sizeof a) == MHD_NO);
    for (i = 0; i < 3; i++) d[i] = join(&others[i]);
    CHECK(peers_accept(0, 0, 0) == MHD_YES);       /* these are of no one address */
    settings.n_connections = 6;
    CHECK(peers_accept(0, 0, 0) == MHD_NO);
    CHECK(peers_accept(0, &none, sizeof none) == MHD_YES);     /* the bell has a place of its own */
    settings.n_connections = 512;
    for (i = 0; i < 3; i++) part(d[i], others[i]);
    part(c[0], clients[0]);
    CHECK(peers_accept(0, &a, sizeof a) == MHD_YES);
    part(c[1], clients[1]);
    part(c[2], clients[2]);
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } cases[] = {
#define CASE(name) {#name, name}
        CASE(a_full_queue_refuses_before_any_work),
        CASE(texts_of_a_request_need_places_too),
        CASE(a_client_with_many_texts_lets_others_in),
        CASE(a_hostile_grammar_delays_its_own_text_alone),
        CASE(who_takes_the_readers_time_waits_for_himself),
        CASE(a_stream_that_waits_says_that_it_lives),
        CASE(an_answer_has_a_bound),
        CASE(a_stream_that_lacks_a_part_breaks_off),
        CASE(a_client_that_leaves_before_it_is_read_gets_no_slot),
        CASE(the_end_refuses_what_is_not_read_and_cancels_the_rest),
        CASE(a_closed_half_request_frees_its_connection_within_a_second),
        CASE(a_slow_request_ends_after_twice_the_idle_time),
        CASE(who_leaves_ends_the_text),
        CASE(an_answer_that_is_fetched_too_slowly_ends),
        CASE(an_address_has_only_so_many_connections)
    };
    bitnet_model *model = 0;
    bitnet_error err;
    engine_params p;
    size_t i;
    memset(&p, 0, sizeof p);
    p.n_slots = 2;
    p.n_threads = 1;
    settings.n_slots = 2;
    settings.queue_length = 1;
    settings.idle_seconds = 60;
    settings.body_megabytes = 1;
    settings.n_connections = 512;
    settings.n_peer_connections = 3;
    if (argc < 2 || bitnet_model_load_file(argv[1], 0, &model, &err) ||
        !(eng = engine_create(model, &p, &err)) ||
        service_open(&serving, model, argv[1], engine_ctx(eng), &err)) {
        printf("FAIL scheduler: %s\n", argc < 2 ? "MODEL is needed" : err.text);
        return 1;
    }
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int before = n_failed;
        in_case = cases[i].name;
        cases[i].run();
        CHECK(jobs_of_http() == 0 && !jobs_are_busy());
        n_passed += before == n_failed;
        if (before == n_failed) printf("ok scheduler/%s\n", in_case);
    }
    engine_free(eng);
    service_close(&serving);
    bitnet_model_free(model);
    n_failed = (int)i - n_passed;
    printf("scheduler: %d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed != 0;
}
