#include "serve_log.h"
#include "serve.h"
#include "serve_system.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int file = -1;
static thread_lock writing = THREAD_LOCK;      /* guards it once it is open */

static void complain(void) {
    serve_say("--log %s: %s", settings.log_path, strerror(errno));
}

static int open_file(void) {
    const int fd = system_open_log(settings.log_path);
    if (fd < 0) complain();
    return fd;
}

int log_is_file(void) { return settings.log_path && strcmp(settings.log_path, "-"); }

int log_open(void) {
    if (!settings.log_path) return 0;
    file = log_is_file() ? open_file() : 1;
    return file < 0 ? 2 : 0;
}

void log_reopen(void) {
    const int fd = log_is_file() ? open_file() : -1;
    if (fd < 0) return;                /* it stays where it is */
    thread_take(&writing);
    system_close_file(file);
    file = fd;
    thread_give(&writing);
}

/* Lines of several threads do not mix. Where there is no room they are lost, and stderr says so
   once. The next line after a torn one begins with a line end. */
static void write_line(const buffer *line) {
    static int is_torn, is_lost;
    size_t n = 0;
    int64_t more = 1;
    thread_take(&writing);
    if (is_torn) is_torn = system_write(file, "\n", 1) != 1;
    while (n < line->n && !is_torn && (more > 0 || (more < 0 && errno == EINTR))) {
        more = system_write(file, line->p + n, line->n - n);
        if (more > 0) n += (size_t)more;
    }
    if (n > 0) is_torn = n < line->n;
    if (n < line->n && !is_lost) complain();
    is_lost = n < line->n;
    thread_give(&writing);
}

void log_body(job *j) {
    if (settings.log_path && settings.log_prompts) buffer_add(&j->logged, j->body.p, j->body.n);
}

static void add_time(buffer *out) {
    struct tm parts;
    char text[32] = "";
    int milliseconds;
    if (system_utc(&parts, &milliseconds)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    buffer_format(out, "{\"time\":\"%s.%03dZ\"", text, milliseconds);
}

static void add_text(buffer *out, const char *name, const char *text) {
    if (!*text) return;
    buffer_format(out, ",\"%s\":", name);
    buffer_json(out, text, strlen(text));
}

/* What the engine did. */
static void add_work(buffer *out, const job *j) {
    add_text(out, "id", j->request.id);
    if (j->request.n_texts > 0)
        buffer_format(out, ",\"stream\":%s,\"texts\":%d", j->request.stream ? "true" : "false",
                      (int)j->request.n_texts);
    if (j->first > 0) buffer_format(out, ",\"first_token_seconds\":%.3f", j->first - j->begun);
    buffer_format(out, ",\"prompt_tokens\":%lld,\"cached_tokens\":%lld,\"completion_tokens\":%lld",
                  j->tokens.prompt, j->tokens.cached, j->tokens.written);
}

/* Probes that went well come every few seconds, and say nothing. */
static int is_probe(const job *j) {
    return j->status == 200 && (!strcmp(j->path, "/health") || !strcmp(j->path, "/metrics"));
}

void log_job(const job *j) {
    buffer out = {0};
    if (!settings.log_path || is_probe(j)) return;
    add_time(&out);
    add_text(&out, "client", j->client.address);
    if (j->client.key) buffer_format(&out, ",\"key\":%d", j->client.key);
    add_text(&out, "method", j->method);
    add_text(&out, "path", j->path);
    buffer_format(&out, ",\"status\":%d,\"seconds\":%.3f", j->status, serve_now() - j->arrived);
    if (j->is_read) add_work(&out, j);
    if (j->is_gone || !j->status) buffer_text(&out, ",\"left\":true");
    add_text(&out, "error", j->error.text);
    if (j->logged.n) {
        buffer_text(&out, ",\"body\":");
        buffer_json(&out, j->logged.p, j->logged.n);
    }
    buffer_text(&out, "}\n");
    if (!out.failed) write_line(&out);
    buffer_free(&out);
}
