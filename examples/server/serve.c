/* serve.c - a server with OpenAI's and Anthropic's APIs, for many clients at once

       serve -m MODEL [options]; --help lists them. README.md has examples.

   libmicrohttpd speaks HTTP, on a thread of its own. It collects a request and suspends the
   connection. A reader's thread makes texts of the body (request.h). The main thread runs the
   engine (engine.h): a pass writes a token of each text, and what a connection waits for resumes
   it. serve_lock guards all that several threads see. serve.h names the parts; here are the
   options, and the server's life. */
#include "serve.h"
#include "serve_clients.h"
#include "serve_health.h"
#include "serve_log.h"
#include "serve_system.h"
#include "memory.h"
#include "../options.h"
#include "../streams.h"
#include "../utf8.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

enum { PAGE_NAME = 400, SHORTEST = 64 };

struct settings settings = {
    .host = "127.0.0.1", .port = 8080, .n_slots = 4, .queue_length = 64, .idle_seconds = 60,
    .grace_seconds = 10, .body_megabytes = 16, .n_connections = 512
};

static const option options[] = {
    {"-m --model", "FILE", "the model, a GGUF file", .text = &settings.model_path},
    {"--host", "ADDRESS", "where to listen (127.0.0.1); ::, all addresses; a path with a slash, a "
     "Unix socket", .text = &settings.host},
    {"--port", "N", "the port (8080); 0: any that is free", .number = {&settings.port, 0, 65535}},
    {"-np --parallel", "N", "texts that are written at the same time (4)",
     .number = {&settings.n_slots, 1, 1024}},
    {"-c --ctx-size", "N", "tokens of a text with its prompt (4096, or what the model was "
     "trained for)", .number = {&settings.n_ctx, 16, 1 << 20}},
    {"--kv-tokens", "N", "tokens that all texts hold together at most (all that they may have, or "
     "what fits into the memory that is left)",
     .number = {&settings.n_kv, 64, MEMORY_MOST_TOKENS}},
    {"--kv-type", "TYPE", "keys and values as " KV_TYPES ", which takes half the memory (f16)",
     .kv_type = &settings.kv_type},
    {"-t --threads", "N", "threads that compute (all processors)",
     .number = {&settings.n_threads, 1, 256}},
    {"--gap", "MS", "milliseconds from one token of a text to the next, at most, where others' "
     "prompts are read (as long as 32 tokens of each prompt take)",
     .number = {&settings.gap_ms, 1, 3600000}},
    {"--queue", "N", "texts that wait; then clients get 429 (64)",
     .number = {&settings.queue_length, 0, 1 << 20}},
    {"--api-key", "KEY", "what clients must send; also from BITNET_API_KEY",
     .text = &settings.api_key},
    {"--api-key-file", "FILE", "more keys, one a line; places are shared out by key",
     .text = &settings.key_file},
    {"--trusted-proxy", "ADDRESS", "a proxy, or several with commas between, whose X-Forwarded-For "
     "says who its clients are", .text = &settings.trusted_proxy},
    {"--no-key", 0, "listens on other addresses than this machine's without a key",
     .flag = &settings.open_to_all},
    {"--allow-origin", "ORIGIN", "lets pages of this origin in, or of all (*)",
     .text = &settings.allowed_origin},
    {"--page", "FOLDER", "files to serve at / (the folder web or page beside this program)",
     .text = &settings.page},
    {"--alias", "NAME", "the model's name for clients", .text = &settings.alias},
    {"--connections", "N", "connections at the same time (512)",
     .number = {&settings.n_connections, 1, 1 << 16}},
    {"--peer-connections", "N", "of them from one address (half of all); not of this machine's or "
     "of a trusted proxy's", .number = {&settings.n_peer_connections, 1, 1 << 16}},
    {"--max-body", "MB", "the largest request (16)", .number = {&settings.body_megabytes, 1, 256}},
    {"--idle-timeout", "S", "seconds after which a silent connection ends (60); a request has "
     "twice as long to arrive", .number = {&settings.idle_seconds, 1, 86400}},
    {"--grace", "S", "seconds that texts may go on after SIGTERM (10)",
     .number = {&settings.grace_seconds, 0, 86400}},
    {"--log", "FILE", "adds a line of JSON for each request to a file, which SIGHUP opens again; "
     "-: on stdout", .text = &settings.log_path},
    {"-nr --no-repack", 0, "weights in blocks stay where the file is mapped: half of the memory, "
     "but several texts at once are slower", .flag = &settings.in_place},
    {"--health", 0, "asks the server at --host and --port whether it is ready, and exits with 0 "
     "or 1; for health checks of containers", .flag = &settings.health},
    {"--log-prompts", 0, "the log also has the bodies of requests", .flag = &settings.log_prompts},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

void serve_say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("serve: ", stderr);
    vfprintf(stderr, format, args);
    fputs("\n", stderr);
    va_end(args);
}

/* The page beside this program: what `./build.sh web` makes, or `./build.sh server`. A release has
   its folder page, too. */
static void find_page(const char *program) {
    static const char *const folders[] = {"web", "page"};
    static char name[PAGE_NAME];
    const char *slash = strrchr(program, '/');
    const size_t n = slash ? (size_t)(slash - program) : 0;
    size_t i;
    if (settings.page || !slash || n > PAGE_NAME - sizeof "/page/index.html") return;
    for (i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%.*s/%s/index.html", (int)n, program, folders[i]);
        if (!system_is_there(name)) continue;
        *strrchr(name, '/') = 0;
        settings.page = name;
        return;
    }
}

/* Returns 0, or an exit code + 1. */
static int check_options(void) {
    if (!settings.n_peer_connections)
        settings.n_peer_connections = (settings.n_connections + 1) / 2;
    if (!settings.model_path && !settings.health) {
        serve_say("-m MODEL is needed; --help lists all options");
        return 3;
    }
    if (settings.page && (strlen(settings.page) > PAGE_NAME || !system_is_folder(settings.page))) {
        serve_say("--page %s: there is no such folder", settings.page);
        return 3;
    }
    return 0;
}

/* The same. */
static int read_options(int argc, char **argv) {
    static const char usage[] =
        "serve -m MODEL [options]: a server with OpenAI's and Anthropic's APIs\n";
    int code = options_read(argc, argv, "serve", options, N_OPTIONS, usage, "");
    find_page(system_program(argv[0]));
    return code ? code : check_options();
}

/* ---- the server's life ---- */

service serving;
thread_lock serve_lock = THREAD_LOCK;
static engine *eng;
static int ready_flag, stopping_flag;
static volatile sig_atomic_t signalled, hung_up;

int serve_is_ready(void) { return __atomic_load_n(&ready_flag, __ATOMIC_ACQUIRE); }
int serve_is_stopping(void) { return __atomic_load_n(&stopping_flag, __ATOMIC_ACQUIRE); }
static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }

double serve_now(void) { return thread_clock(); }
double serve_thread_time(void) { return thread_own_clock(); }

/* After a signal no new text begins; --grace later all end. Returns 1 if they do. */
static int should_end(void) {
    static double end;
    if (signalled && !serve_is_stopping()) {
        thread_take(&serve_lock);
        set(&stopping_flag);
        thread_give(&serve_lock);
        end = serve_now() + (double)settings.grace_seconds;
        serve_say("stopping");
    }
    if (!serve_is_stopping() || serve_now() < end) return 0;
    jobs_cancel_all();
    return 1;
}

/* Asked during a pass, at least every 20 ms but perhaps every microsecond; it looks every 5 ms. */
static int should_cancel(void *ud) {
    static double last;
    const double time = serve_now();
    (void)ud;
    if (time - last < 0.005) return 0;
    last = time;
    return (jobs_look_for_the_gone() > 0) | should_end();
}

static void run_engine(void) {
    int n = 0;
    for (;;) {
        if (hung_up) {
            hung_up = 0;
            log_reopen();
        }
        jobs_take(eng, n == 0 && !signalled);
        jobs_look_for_the_gone();
        should_end();
        n = engine_pass(eng);
        if (!serve_is_stopping() || n) continue;
        if (!jobs_are_busy()) return;
    }
}

/* ---- readers ---- */

/* Bodies are read beside the engine, whose threads need all processors, so readers come after them.
   A second one is there for small bodies while the first one has a large one. */
enum { READERS = 2 };
static thread readers[READERS];
static int n_readers;

static THREAD_FN(run_reader, ud) {
    (void)ud;
    thread_be_nice();
    while (jobs_read_one(1)) {}
    return 0;
}

static int start_readers(void) {
    while (n_readers < READERS && thread_start(&readers[n_readers], run_reader, 0))
        n_readers++;
    if (!n_readers) serve_say("there is no thread to read requests");
    return n_readers > 0;
}

static void stop_readers(void) {
    jobs_end_readers();
    while (n_readers > 0) thread_join(readers[--n_readers]);
}

/* ---- loading ---- */

static int asked_to_stop(void *ud, uint64_t done, uint64_t total) {
    (void)ud;
    (void)done;
    (void)total;
    return signalled;
}

/* Without --kv-tokens texts may hold what the memory has room for, if that is not all. */
static void choose_room(const bitnet_model *model, int has_head, engine_params *p) {
    const memory m = memory_look("");
    const memory_need need = memory_needed(model, p);
    const int64_t fit = memory_tokens(&m, &need),
                  all = has_head ? (int64_t)p->n_slots * p->n_ctx : 1;
    char text[MEMORY_TEXT];
    if (fit >= (p->n_kv && p->n_kv < all ? p->n_kv : all)) return;
    serve_say("%s", memory_describe(&m, &need, text));
    if (p->n_kv) return;
    p->n_kv = fit > SHORTEST ? fit : SHORTEST;
    if (memory_can_do(&need, m.left))
        serve_say("so all texts hold %lld tokens together (--kv-tokens)", (long long)p->n_kv);
    else serve_say("that is too little for this model: expect it to be killed or very slow");
}

static bitnet_result load(bitnet_model **model, bitnet_error *err) {
    static char program[] = "serve";
    bitnet_model_params mp;
    bitnet_model_info info;
    engine_params p;
    bitnet_result r;
    memset(&mp, 0, sizeof mp);
    mp.progress_fn = asked_to_stop;
    mp.in_place = settings.in_place;
    mp.log_fn = options_warning;
    mp.log_ud = program;
    r = bitnet_model_load_file(settings.model_path, &mp, model, err);
    if (r) return r;
    memset(&p, 0, sizeof p);
    p.n_slots = (int32_t)settings.n_slots;
    bitnet_model_get_info(*model, &info);
    p.n_ctx = settings.n_ctx ? (int32_t)settings.n_ctx
              : info.ctx_train > 0 && info.ctx_train < 4096 ? info.ctx_train : 4096;
    p.n_kv = settings.n_kv;
    p.n_threads = (int32_t)settings.n_threads;
    p.kv_type = settings.kv_type;
    p.gap_ms = settings.gap_ms;
    p.cancel_fn = should_cancel;
    choose_room(*model, info.has_head, &p);
    p.now_fn = serve_now;
    if (!(eng = engine_create(*model, &p, err))) return err->code;
    r = service_open(&serving, *model, settings.model_path, engine_ctx(eng), err);
    if (settings.alias) snprintf(serving.name, sizeof serving.name, "%s", settings.alias);
    return r;
}

static void on_end(int number) {
    (void)number;
    signalled = 1;
}

static void on_hang_up(int number) {
    (void)number;
    hung_up = 1;
}

static void say_template(const bitnet_model *model) {
    const bitnet_chat_template *t = bitnet_model_chat_template(model);
    char text[2];
    if (t) serve_say("chats have the template %s", t->name);
    else serve_say("chats are refused: the file's chat template is %s",
                   bitnet_model_get_meta(model, "tokenizer.chat_template", text, sizeof text) > 0
                   ? "not known" : "missing");
}

int main(int argc, char **argv) {
    bitnet_model *model = 0;
    bitnet_error err;
    int code;
    if (!streams_fill()) return 1;
    streams_binary();
    if (!system_begin()) {
        serve_say("the system gives no sockets");
        return 1;
    }
    argv = utf8_arguments(&argc, argv);
    if ((code = read_options(argc, argv)) != 0) return code - 1;
    if (settings.health) return serve_health();
    system_on_signals(on_end, log_is_file() ? on_hang_up : 0);
    if ((code = clients_read_keys()) != 0 || (code = clients_check_proxies()) != 0 ||
        (code = log_open()) != 0 || (code = http_start()) != 0) return code;
    if (!start_readers()) code = 1;
    else if (load(&model, &err)) {
        code = !signalled;             /* while it was loaded */
        if (code) serve_say("%s: %s", settings.model_path, err.text);
    } else {
        set(&ready_flag);
        fprintf(stderr, http_is_socket() ? "serve: %s on the socket %s" :
                strchr(settings.host, ':') ? "serve: %s on http://[%s]:%ld" :
                "serve: %s on http://%s:%ld", serving.name, settings.host, settings.port);
        fprintf(stderr, ", %d texts of %d tokens at the same time%s%s\n", (int)engine_most(eng),
                (int)serving.n_ctx, settings.page ? ", with the page " : "",
                settings.page ? settings.page : "");
        if (serving.info.has_head) say_template(model);
        run_engine();
    }
    stop_readers();
    http_stop();
    engine_free(eng);
    if (model) service_close(&serving);
    bitnet_model_free(model);
    return code;
}
