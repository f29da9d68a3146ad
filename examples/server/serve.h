/* serve.h - what all parts of the server share: its options, its model, its lock and its life

   serve.c owns all of this. The other parts are serve_http.h, what comes in and goes out;
   serve_clients.h, who may come in; serve_peers.h, connections; serve_jobs.h, requests until their
   answers end; serve_answers.h, the addresses of the API; serve_llama.h, those of llama.cpp's
   server; serve_figures.h, /metrics and /health; serve_files.h, the page; serve_log.h, the log; and
   serve_system.h, what POSIX and Windows do in different ways. */
#ifndef SERVER_SERVE_H
#define SERVER_SERVE_H

#include "request.h"
#include "../threads.h"

/* What the options say; see --help. */
extern struct settings {
    const char *model_path, *host, *api_key, *key_file, *trusted_proxy, *allowed_origin, *page,
        *alias, *log_path;
    long port, n_slots, n_ctx, n_kv, n_threads, queue_length, idle_seconds, grace_seconds,
         body_megabytes, n_connections, n_peer_connections, gap_ms;
    int open_to_all, log_prompts, in_place, health;
    bitnet_kv_type kv_type;
} settings;

extern service serving;                /* complete once the server is ready */
extern thread_lock serve_lock;     /* guards all that several threads see */

int serve_is_ready(void);
int serve_is_stopping(void);
double serve_now(void);                /* seconds since some time */
double serve_thread_time(void);        /* seconds of a processor that this thread has had */
/* A line on stderr. */
#ifdef __GNUC__                        /* the compiler checks the arguments */
__attribute__((format(printf, 1, 2)))
#endif
void serve_say(const char *format, ...);

#endif
