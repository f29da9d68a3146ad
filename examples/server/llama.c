#include "llama.h"
#include "translate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static const struct { const char *name, *value; } defaults[] = {
    {"temperature", "0.8"}, {"top_p", "0.95"}, {"n_predict", "-1"}
};
enum { N_DEFAULTS = sizeof defaults / sizeof defaults[0] };

/* logit_bias may be pairs of a token and a number, or false for never: they become an object. */
static void read_bias_pairs(reader *in, translation *t) {
    const uint32_t node = field_get(in, "logit_bias");
    uint32_t at = node + 1, i;
    if (!node || json_kind(&in->j, node) != JSON_ARRAY) {
        translate_value(t, "logit_bias", node);
        return;
    }
    translate_name(t, "logit_bias");
    buffer_text(&t->body, "{");
    for (i = 0; i < in->j.nodes[node].n && !failed(in); i++, at = in->j.nodes[at].next) {
        const int is_pair = json_kind(&in->j, at) == JSON_ARRAY && in->j.nodes[at].n == 2;
        const uint32_t token = is_pair ? at + 1 : 0, bias = is_pair ? in->j.nodes[token].next : 0;
        if (json_kind(&in->j, token) != JSON_NUMBER)
            refuse_field(in, "logit_bias", "pairs of a token's number and a bias are needed");
        else {
            buffer_text(&t->body, i ? ",\"" : "\"");
            buffer_value(&t->body, &in->j, token);
            buffer_text(&t->body, "\":");
            if (json_kind(&in->j, bias) == JSON_FALSE) buffer_text(&t->body, "-100");
            else buffer_value(&t->body, &in->j, bias);
        }
    }
    buffer_text(&t->body, "}");
}

void llama_read(reader *in, uint64_t seed) {
    static const char *const taken[] = {    /* read here, or without a meaning there */
        "logit_bias", "n_probs", "logprobs", "top_logprobs", "n_cmpl", "n", "best_of", "echo",
        "return_tokens", "grammar", "stream_options", 0
    };
    static const renamed names[] = {{"logprobs", "n_probs"}, {"n", "n_cmpl"}};
    const uint32_t probs = field_get(in, "n_probs"), grammar = field_get(in, "grammar"),
                   n = field_get(in, "n_cmpl");
    translation t;
    int i;
    in->r->has_ids = 1;
    translate_begin(&t, in, taken);
    t.names = names;
    t.n_names = n ? 2 : 1;             /* the client may have written n itself */
    for (i = 0; i < N_DEFAULTS; i++) {
        if (field_get(in, defaults[i].name) || (i == 2 && field_get(in, "max_tokens"))) continue;
        translate_name(&t, defaults[i].name);
        buffer_text(&t.body, defaults[i].value);
    }
    read_bias_pairs(in, &t);
    if (probs && (json_kind(&in->j, probs) != JSON_NUMBER || node_number(&in->j, probs) != 0))
        translate_value(&t, "logprobs", probs);
    if (!json_is(&in->j, grammar, "")) translate_value(&t, "grammar", grammar);
    translate_value(&t, "n", n ? n : field_get(in, "n"));
    translate_read(&t, request_read_completion, seed);
}

/* ---- answers ---- */

static void add_float(buffer *out, const char *name, double x) {
    buffer_format(out, ",\"%s\":%.6g", name, isfinite(x) ? x : 0.0);
}

/* The settings of a text, an object. */
static void add_settings(buffer *out, const request *r, const bitnet_sampler *s,
                         int32_t max_tokens) {
    int32_t i;
    buffer_format(out, "{\"n_ctx\":%d,\"n_predict\":%d,\"max_tokens\":%d,\"seed\":%llu,"
                  "\"top_k\":%d,\"repeat_last_n\":%d,\"n_probs\":%d,\"stream\":%s",
                  (int)r->service->n_ctx, (int)max_tokens, (int)max_tokens,
                  (unsigned long long)s->rng, (int)s->top_k, (int)s->repeat_window,
                  r->logprobs > 0 ? (int)r->logprobs : 0, r->stream ? "true" : "false");
    add_float(out, "temperature", (double)s->temperature);
    add_float(out, "top_p", (double)s->top_p);
    add_float(out, "min_p", (double)s->min_p);
    add_float(out, "repeat_penalty", s->repeat_penalty > 0 ? (double)s->repeat_penalty : 1);
    add_float(out, "presence_penalty", (double)s->presence_penalty);
    add_float(out, "frequency_penalty", (double)s->frequency_penalty);
    buffer_text(out, ",\"stop\":[");
    for (i = 0; i < r->n_stops; i++) {
        if (i) buffer_text(out, ",");
        buffer_json(out, r->stops[i].data, r->stops[i].size);
    }
    buffer_text(out, "]}");
}

void llama_add_defaults(buffer *out, service *s) {
    request r;
    char *body = s->info.has_head ? strdup("{\"prompt\":\"x\",\"seed\":0}") : 0;
    if (!body) {
        buffer_text(out, "{}");
        return;
    }
    if (!request_parse(&r, s, &endpoint_llama, "", body, strlen(body), 0).status)
        add_settings(out, &r, &r.texts[0].sampler, r.texts[0].max_tokens);
    else buffer_text(out, "{}");
    request_free(&r);
}

static void add_pace(buffer *out, const char *name, int32_t n, double seconds) {
    const double ms = 1000 * seconds;
    buffer_format(out, "\"%s_n\":%d,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.6g,"
                  "\"%s_per_second\":%.6g", name, (int)n, name, ms, name, n > 0 ? ms / n : 0,
                  name, seconds > 0 ? n / seconds : 0);
}

void llama_add_timings(buffer *out, const request *r) {
    const engine_text *t = &r->texts[0];
    const double end = t->first_at > 0 ? t->first_at : t->begun_at;
    if (r->n_texts != 1 || t->begun_at <= 0) return;
    buffer_format(out, ",\"timings\":{\"cache_n\":%d,", (int)t->n_cached);
    add_pace(out, "prompt", t->n_prompt - t->n_cached, end - t->begun_at);
    buffer_text(out, ",");
    add_pace(out, "predicted", t->n_new, t->n_new ? t->last_at - t->first_at : 0);
    buffer_text(out, "}");
}

static void add_news(buffer *out, const choice *c, int32_t i) {
    buffer_format(out, "{\"index\":%d,\"content\":", (int)i);
    buffer_json(out, c->text.n ? c->text.p : "", c->text.n);
    buffer_format(out, ",\"tokens\":[%s]", c->ids.n ? c->ids.p : "");
    if (c->tokens.n) buffer_format(out, ",\"completion_probabilities\":[%s]", c->tokens.p);
    out->failed |= choice_has_failed(c);
}

static void add_end(buffer *out, const request *r, int32_t i, const choice *c) {
    const engine_text *t = &r->texts[i];
    const int32_t stop = t->why == BITNET_STOP_STRING ? choice_stop(c, r) : -1;
    bitnet_sampler sampler = t->sampler;
    sampler.rng = t->rng;
    buffer_format(out, ",\"id_slot\":%d,\"stop\":true,\"model\":", (int)t->slot);
    buffer_json(out, r->service->name, strlen(r->service->name));
    buffer_format(out, ",\"tokens_predicted\":%d,\"tokens_evaluated\":%d,\"tokens_cached\":%d,"
                  "\"truncated\":%s,\"stop_type\":\"%s\",\"stopping_word\":", (int)t->n_new,
                  (int)t->n_prompt, (int)t->n_cached,
                  t->why == BITNET_STOP_LENGTH && t->n_new != t->max_tokens ? "true" : "false",
                  t->why == BITNET_STOP_LENGTH ? "limit" : stop >= 0 ? "word" : "eos");
    if (stop >= 0) buffer_json(out, r->stops[stop].data, r->stops[stop].size);
    else buffer_text(out, "\"\"");
    buffer_text(out, ",\"generation_settings\":");
    add_settings(out, r, &sampler, t->max_tokens);
    llama_add_timings(out, r);
    buffer_text(out, "}");
}

void llama_whole(buffer *out, const request *r, choice *choices) {
    int32_t i;
    if (r->n_texts > 1) buffer_text(out, "[");
    for (i = 0; i < r->n_texts; i++) {
        if (i) buffer_text(out, ",");
        add_news(out, &choices[i], i);
        add_end(out, r, i, &choices[i]);
    }
    if (r->n_texts > 1) buffer_text(out, "]");
}

void llama_event(buffer *out, const request *r, int32_t i, choice *c) {
    const engine_text *t = &r->texts[i];
    if (!choice_has_news(c) && !c->ids.n) return;
    buffer_text(out, "data: ");
    add_news(out, c, i);
    buffer_format(out, ",\"stop\":false,\"id_slot\":%d,\"tokens_predicted\":%d,"
                  "\"tokens_evaluated\":%d}\n\n", (int)t->slot, (int)t->n_new, (int)t->n_prompt);
    choice_told(c);
}

void llama_last_event(buffer *out, const request *r, int32_t i, choice *c) {
    choice_end(c, r);
    llama_event(out, r, i, c);
    buffer_text(out, "data: ");
    add_news(out, c, i);
    add_end(out, r, i, c);
    buffer_text(out, "\n\n");
}

/* There is no [DONE]: the last event of each text has "stop": true. */
void llama_done(buffer *out, const request *r, choice *choices) {
    (void)out;
    (void)r;
    (void)choices;
}

/* ---- answers at once ---- */

/* The text of tokens; BOS, which whoever reads it again puts in front, is left out. */
static void add_text(buffer *out, const service *s, const bitnet_token *tokens, int32_t n) {
    int32_t i = n > 0 && s->info.add_bos && tokens[0] == s->info.bos;
    buffer all = {0};
    for (; i < n; i++) {
        size_t size;
        const char *text = bitnet_token_text(s->model, tokens[i], &size);
        buffer_add(&all, text ? text : "", size);
    }
    buffer_json(out, all.n ? all.p : "", all.n);
    out->failed |= all.failed;
    buffer_free(&all);
}

/* Reads a body and lets `add` make the answer of it. */
static http_error answer(service *s, const endpoint *how, char *body, size_t size, buffer *out,
                         void (*add)(buffer *out, const request *r)) {
    request r;
    const http_error e = request_parse(&r, s, how, "the body", body, size, 1);
    if (!e.status) add(out, &r);
    request_free(&r);
    return e;
}

static void add_prompt(buffer *out, const request *r) {
    buffer_text(out, "{\"prompt\":");
    add_text(out, r->service, r->texts[0].prompt, r->texts[0].n_prompt);
    buffer_text(out, "}");
}

static void add_count(buffer *out, const request *r) {
    if (r->endpoint != &endpoint_messages_count)
        buffer_text(out, "{\"object\":\"response.input_tokens\",");
    else buffer_text(out, "{");
    buffer_format(out, "\"input_tokens\":%d}", (int)r->texts[0].n_prompt);
}

http_error llama_template(service *s, const endpoint *how, char *body, size_t size, buffer *out) {
    return answer(s, how, body, size, out, add_prompt);
}

http_error llama_count(service *s, const endpoint *how, char *body, size_t size, buffer *out) {
    return answer(s, how, body, size, out, add_count);
}
