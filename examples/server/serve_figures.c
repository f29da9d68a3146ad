#include "serve_figures.h"
#include "serve.h"
#include <string.h>

struct figures figures;

static const double bounds[N_BOUNDS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
                                        60};

void figures_observe(histogram *h, double x) {
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

void figures_count_answer(int status) {
    thread_take(&serve_lock);
    if (status >= 100 && status < 600) figures.answers[status / 100]++;
    figures.full += status == 429;
    thread_give(&serve_lock);
}

answer answer_health(job *j) {
    static const char fine[] = "{\"status\":\"ok\"}\n", loading[] = "{\"status\":\"loading\"}\n",
                      stopping[] = "{\"status\":\"stopping\"}\n";
    const char *text = serve_is_stopping() ? stopping : serve_is_ready() ? fine : loading;
    return http_send_text(j->connection, text == fine ? 200 : 503, HTTP_JSON, text,
                          strlen(text));
}

answer answer_metrics(job *j) {
    buffer out = {0};
    int i;
    thread_take(&serve_lock);
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
               (unsigned long long)settings.n_slots);
    add_figure(&out, "bitnet_slots_busy", "gauge", "Texts that are being written",
               (unsigned long long)figures.busy_slots);
    add_figure(&out, "bitnet_texts_waiting", "gauge", "Texts that wait for a slot or a vector",
               (unsigned long long)figures.waiting_texts);
    add_figure(&out, "bitnet_held_tokens", "gauge", "Tokens in all slots",
               (unsigned long long)figures.held_tokens);
    add_histogram(&out, "bitnet_first_token_seconds", "From a request to its first token",
                  &figures.first_token);
    add_histogram(&out, "bitnet_token_seconds", "From a token to the next", &figures.per_token);
    thread_give(&serve_lock);
    return http_send_buffer(j->connection, "text/plain; version=0.0.4", &out);
}
