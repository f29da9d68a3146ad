#include "serve_log.h"
#include "serve.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static FILE *file;

int log_open(void) {
    if (!settings.log_path) return 0;
    file = strcmp(settings.log_path, "-") ? fopen(settings.log_path, "a") : stdout;
    if (file) setvbuf(file, 0, _IOLBF, 1 << 16);       /* others see whole lines */
    else fprintf(stderr, "serve: --log %s: %s\n", settings.log_path, strerror(errno));
    return file ? 0 : 2;
}

void log_body(job *j) {
    if (file && settings.log_prompts) buffer_add(&j->logged, j->body.p, j->body.n);
}

static void add_time(buffer *out) {
    struct timespec t;
    struct tm parts;
    char text[32] = "";
    clock_gettime(CLOCK_REALTIME, &t);
    if (gmtime_r(&t.tv_sec, &parts)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    buffer_format(out, "{\"time\":\"%s.%03dZ\"", text, (int)(t.tv_nsec / 1000000));
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
    if (!file || is_probe(j)) return;
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
    if (!out.failed) fwrite(out.p, 1, out.n, file);    /* a whole line: FILE has its own lock */
    buffer_free(&out);
}
