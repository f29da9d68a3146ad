/* serve.c - a server with OpenAI's API, for many clients at once

       serve -m MODEL [options]; --help lists them. README.md has examples.

   libmicrohttpd speaks HTTP, on a thread of its own. It reads a request, makes texts of it
   (request.h) and suspends the connection. The main thread runs the engine (engine.h): a pass
   writes a token of each text, and what a connection waits for resumes it. serve_lock guards all
   that both threads see. serve.h names the parts; here are the options, and the server's life. */
#include "serve.h"
#include "serve_http.h"
#include "../options.h"
#include "../streams.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* ---- options ---- */

enum { PAGE_NAME = 400 };

struct settings settings = {
    .host = "127.0.0.1", .port = 8080, .n_slots = 4, .queue_length = 64, .idle_seconds = 60,
    .grace_seconds = 10, .body_megabytes = 16, .n_connections = 512
};

static const option options[] = {
    {"-m --model", "FILE", "the model, a GGUF file", .text = &settings.model_path},
    {"--host", "ADDRESS", "where to listen (127.0.0.1)", .text = &settings.host},
    {"--port", "N", "the port (8080); 0: any that is free", .number = {&settings.port, 0, 65535}},
    {"-np --parallel", "N", "texts that are written at the same time (4)",
     .number = {&settings.n_slots, 1, 1024}},
    {"-c --ctx-size", "N", "tokens of a text with its prompt (4096, or what the model was "
     "trained for)", .number = {&settings.n_ctx, 16, 1 << 20}},
    {"--kv-tokens", "N", "tokens that all texts hold together at most; bounds the memory",
     .number = {&settings.n_kv, 64, 1L << 40}},
    {"--kv-type", "TYPE", "keys and values as " KV_TYPES ", which takes half the memory (f16)",
     .kv_type = &settings.kv_type},
    {"-t --threads", "N", "threads that compute (all processors)",
     .number = {&settings.n_threads, 1, 256}},
    {"--queue", "N", "texts that wait; then clients get 429 (64)",
     .number = {&settings.queue_length, 0, 1 << 20}},
    {"--api-key", "KEY", "what clients must send; also from BITNET_API_KEY",
     .text = &settings.api_key},
    {"--no-key", 0, "listens on other addresses than this machine's without a key",
     .flag = &settings.open_to_all},
    {"--allow-origin", "ORIGIN", "lets pages of this origin in, or of all (*)",
     .text = &settings.allowed_origin},
    {"--page", "FOLDER", "files to serve at / (the folder web beside this program)",
     .text = &settings.page},
    {"--alias", "NAME", "the model's name for clients", .text = &settings.alias},
    {"--connections", "N", "connections at the same time (512)",
     .number = {&settings.n_connections, 1, 1 << 16}},
    {"--max-body", "MB", "the largest request (16)", .number = {&settings.body_megabytes, 1, 256}},
    {"--idle-timeout", "S", "seconds after which a silent connection ends (60); a request has "
     "twice as long to arrive", .number = {&settings.idle_seconds, 1, 86400}},
    {"--grace", "S", "seconds that texts may go on after SIGTERM (10)",
     .number = {&settings.grace_seconds, 0, 86400}},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

void serve_fail(const char *format, const char *a, const char *b) {
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
    if (settings.page || !slash || n > PAGE_NAME - sizeof "/web/index.html") return;
    snprintf(name, sizeof name, "%.*s/web/index.html", (int)n, program);
    if (stat(name, &st)) return;
    *strrchr(name, '/') = 0;
    settings.page = name;
}

/* Returns 0, or an exit code + 1. */
static int check_options(void) {
    struct stat st;
    if (!settings.api_key) settings.api_key = getenv("BITNET_API_KEY");
    if (settings.api_key && !*settings.api_key) settings.api_key = 0;
    if (!settings.model_path) {
        serve_fail("-m MODEL is needed; --help lists all options%s%s", "", "");
        return 3;
    }
    if (settings.page && (strlen(settings.page) > PAGE_NAME || stat(settings.page, &st) ||
                          !S_ISDIR(st.st_mode))) {
        serve_fail("--page %s: there is no such folder%s", settings.page, "");
        return 3;
    }
    return 0;
}

/* The same. */
static int read_options(int argc, char **argv) {
    int code = options_read(argc, argv, "serve", options, N_OPTIONS,
                            "serve -m MODEL [options]: a server with OpenAI's API\n", "");
    find_page(argv[0]);
    return code ? code : check_options();
}

/* ---- the server's life ---- */

service serving;
pthread_mutex_t serve_lock = PTHREAD_MUTEX_INITIALIZER;
static engine *eng;
static int ready_flag, stopping_flag;
static volatile sig_atomic_t signalled;

int serve_is_ready(void) { return __atomic_load_n(&ready_flag, __ATOMIC_ACQUIRE); }
int serve_is_stopping(void) { return __atomic_load_n(&stopping_flag, __ATOMIC_ACQUIRE); }
static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }

double serve_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* After a signal no new text begins; --grace later all end. Returns 1 if they do. */
static int should_end(void) {
    static double end;
    if (signalled && !serve_is_stopping()) {
        pthread_mutex_lock(&serve_lock);
        set(&stopping_flag);
        pthread_mutex_unlock(&serve_lock);
        end = serve_now() + (double)settings.grace_seconds;
        fprintf(stderr, "serve: stopping\n");
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
        jobs_take(eng, n == 0 && !signalled);
        jobs_look_for_the_gone();
        should_end();
        n = engine_pass(eng);
        if (!serve_is_stopping() || n) continue;
        n = jobs_of_engine();
        if (!n) return;
    }
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
    mp.log_ud = program;
    r = bitnet_model_load_file(settings.model_path, &mp, model, err);
    if (r) return r;
    memset(&p, 0, sizeof p);
    p.n_slots = (int32_t)settings.n_slots;
    p.n_ctx = (int32_t)settings.n_ctx;
    p.n_kv = settings.n_kv;
    p.n_threads = (int32_t)settings.n_threads;
    p.kv_type = settings.kv_type;
    p.cancel_fn = should_cancel;
    p.now_fn = serve_now;
    if (!(eng = engine_create(*model, &p, err))) return err->code;
    r = service_open(&serving, *model, settings.model_path, engine_ctx(eng), err);
    if (settings.alias) snprintf(serving.name, sizeof serving.name, "%s", settings.alias);
    return r;
}

static void on_signal(int number) {
    (void)number;
    signalled = 1;
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
    if ((code = http_start()) != 0) return code;
    if (load(&model, &err)) {
        code = !signalled;             /* while it was loaded */
        if (code) serve_fail("%s: %s", settings.model_path, err.text);
    } else {
        set(&ready_flag);
        fprintf(stderr, strchr(settings.host, ':') ? "serve: %s on http://[%s]:%ld" :
                "serve: %s on http://%s:%ld", serving.name, settings.host, settings.port);
        fprintf(stderr, ", %d texts of %d tokens at the same time%s%s\n", (int)engine_most(eng),
                (int)serving.n_ctx, settings.page ? ", with the page " : "",
                settings.page ? settings.page : "");
        if (serving.info.has_head) say_template(model);
        run_engine();
    }
    http_stop();
    engine_free(eng);
    if (model) service_close(&serving);
    bitnet_model_free(model);
    return code;
}
