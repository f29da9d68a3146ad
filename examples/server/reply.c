#include "reply.h"
#include "llama.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what all answers begin and end with ---- */

static void add_head(buffer *out, const request *r, const char *object) {
    buffer_format(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", r->id,
                  object, (long long)r->created);
    buffer_json(out, r->service->name, strlen(r->service->name));
    buffer_format(out, ",\"system_fingerprint\":\"%s\"", r->service->fingerprint);
}

static const char *finish_reason(const engine_text *t, const choice *c) {
    return t->why == BITNET_STOP_LENGTH ? "length" : c->n_calls > 0 ? "tool_calls" : "stop";
}

static void add_usage(buffer *out, const request *r, const choice *choices) {
    long long prompt = 0, cached = 0, made = 0, thinking = 0;
    int32_t i;
    for (i = 0; i < r->n_texts; i++) {
        if (i % r->n == 0) {           /* texts of one prompt read it once */
            prompt += r->texts[i].n_prompt;
            cached += r->texts[i].n_cached;
        }
        made += r->texts[i].n_new;
        thinking += choices[i].n_thinking;
    }
    buffer_format(out, "\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
                  "\"total_tokens\":%lld,\"prompt_tokens_details\":{\"cached_tokens\":%lld},"
                  "\"completion_tokens_details\":{\"reasoning_tokens\":%lld}}",
                  prompt, made, prompt + made, cached, thinking);
}

/* Calls of choice i from number k on, without brackets. */
static void add_calls(buffer *out, const request *r, int32_t i, const choice *c, int32_t k) {
    const int32_t first = k;
    for (; k < c->n_calls; k++) {
        buffer_format(out, "%s{\"index\":%d,\"id\":\"", k > first ? "," : "", (int)k);
        choice_call_id(out, r, i, k);
        buffer_text(out, "\",\"type\":\"function\",\"function\":{\"name\":");
        buffer_json(out, c->calls[k].name.p, c->calls[k].name.n);
        buffer_text(out, ",\"arguments\":");
        buffer_json(out, c->calls[k].arguments.p, c->calls[k].arguments.n);
        buffer_text(out, "}}");
    }
}

static void add_logprobs(buffer *out, const request *r, const choice *c) {
    out->failed |= choice_has_failed(c);
    if (r->logprobs < 0) buffer_text(out, "null");
    else if (r->is_chat)
        buffer_format(out, "{\"content\":[%s],\"refusal\":null}", c->tokens.n ? c->tokens.p : "");
    else if (c->tokens.n == 0)
        buffer_text(out, "{\"tokens\":[],\"token_logprobs\":[],\"top_logprobs\":[],"
                         "\"text_offset\":[]}");
    else buffer_format(out, "{\"tokens\":[%s],\"token_logprobs\":[%s],\"top_logprobs\":[%s],"
                            "\"text_offset\":[%s]}", c->tokens.p, c->values.p, c->best.p,
                       c->offsets.p);
}

/* ---- events ---- */

static void begin_event(buffer *out, const request *r) {
    buffer_text(out, "data: ");
    add_head(out, r, r->is_chat ? "chat.completion.chunk" : "text_completion");
}

static void end_event(buffer *out, const request *r) {
    buffer_format(out, "%s}\n\n", r->include_usage ? ",\"usage\":null" : "");
}

/* What is new of thinking, text and calls. */
static void add_delta(buffer *out, const request *r, int32_t i, const choice *c) {
    const int has_calls = c->n_told_calls < c->n_calls;
    if (c->thinking.n) {
        buffer_text(out, "\"reasoning_content\":");
        buffer_json(out, c->thinking.p, c->thinking.n);
    }
    if (c->text.n || (!c->thinking.n && !has_calls)) {
        buffer_text(out, c->thinking.n ? ",\"content\":" : "\"content\":");
        buffer_json(out, c->text.n ? c->text.p : "", c->text.n);
    }
    if (!has_calls) return;
    buffer_text(out, c->thinking.n || c->text.n ? ",\"tool_calls\":[" : "\"tool_calls\":[");
    add_calls(out, r, i, c, c->n_told_calls);
    buffer_text(out, "]");
}

/* delta or text, which is JSON, with logprobs of c, which may be 0. */
static void add_choice(buffer *out, const request *r, int32_t i, const choice *c,
                       const char *finish) {
    buffer_format(out, ",\"choices\":[{\"index\":%d,", (int)i);
    if (r->is_chat) buffer_text(out, "\"delta\":{");
    if (!c && r->is_chat && !finish)
        buffer_text(out, "\"role\":\"assistant\",\"content\":\"\",\"refusal\":null");
    else if (c && r->is_chat) add_delta(out, r, i, c);
    else if (!r->is_chat) {
        buffer_text(out, "\"text\":");
        buffer_json(out, c && c->text.n ? c->text.p : "", c ? c->text.n : 0);
    }
    if (r->is_chat) buffer_text(out, "}");
    buffer_text(out, ",\"logprobs\":");
    if (c) add_logprobs(out, r, c);
    else buffer_text(out, "null");
    if (finish) buffer_format(out, ",\"finish_reason\":\"%s\"}]", finish);
    else buffer_text(out, ",\"finish_reason\":null}]");
}

static void add_event(buffer *out, const request *r, int32_t i, const choice *c,
                      const char *finish) {
    begin_event(out, r);
    add_choice(out, r, i, c, finish);
    end_event(out, r);
}

void reply_event(buffer *out, const request *r, int32_t i, choice *c) {
    if (r->is_chat && !c->begun) add_event(out, r, i, 0, 0);
    c->begun = 1;
    if (!choice_has_news(c)) return;
    add_event(out, r, i, c, 0);
    choice_told(c);
}

void reply_last_event(buffer *out, const request *r, int32_t i, choice *c) {
    choice_end(c, r);
    reply_event(out, r, i, c);
    begin_event(out, r);
    add_choice(out, r, i, 0, finish_reason(&r->texts[i], c));
    if (!r->include_usage) llama_add_timings(out, r);
    end_event(out, r);
}

void reply_done(buffer *out, const request *r, choice *choices) {
    if (r->include_usage) {
        begin_event(out, r);
        buffer_text(out, ",\"choices\":[],");
        add_usage(out, r, choices);
        llama_add_timings(out, r);
        buffer_text(out, "}\n\n");
    }
    buffer_text(out, "data: [DONE]\n\n");
}

void reply_error_event(buffer *out, const request *r, choice *choices, const http_error *error) {
    (void)r;
    (void)choices;
    buffer_text(out, "data: ");
    reply_error(out, error);
    buffer_text(out, "\n\ndata: [DONE]\n\n");
}

/* ---- whole answers ---- */

static void add_message(buffer *out, const request *r, int32_t i, const choice *c) {
    buffer_text(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (c->text.n == 0 && c->n_calls) buffer_text(out, "null");
    else buffer_json(out, c->text.n ? c->text.p : "", c->text.n);
    buffer_text(out, ",\"refusal\":null");
    if (c->thinking.n) {
        buffer_text(out, ",\"reasoning_content\":");
        buffer_json(out, c->thinking.p, c->thinking.n);
    }
    if (c->n_calls) {
        buffer_text(out, ",\"tool_calls\":[");
        add_calls(out, r, i, c, 0);
        buffer_text(out, "]");
    }
    buffer_text(out, "}");
}

void reply_whole(buffer *out, const request *r, choice *choices) {
    int32_t i;
    add_head(out, r, r->is_chat ? "chat.completion" : "text_completion");
    buffer_text(out, ",\"choices\":[");
    for (i = 0; i < r->n_texts; i++) {
        choice *c = &choices[i];
        buffer_format(out, "%s{\"index\":%d,", i ? "," : "", (int)i);
        choice_end(c, r);
        if (r->is_chat) add_message(out, r, i, c);
        else {
            buffer_text(out, "\"text\":");
            buffer_json(out, c->text.n ? c->text.p : "", c->text.n);
        }
        buffer_text(out, ",\"logprobs\":");
        add_logprobs(out, r, c);
        buffer_format(out, ",\"finish_reason\":\"%s\"}", finish_reason(&r->texts[i], c));
    }
    buffer_text(out, "],");
    add_usage(out, r, choices);
    llama_add_timings(out, r);
    buffer_text(out, "}");
}

/* ---- vectors ---- */

/* Nine digits give the same float back. JSON has no infinity. */
static void add_floats(buffer *out, const float *v, int32_t n) {
    int32_t i;
    for (i = 0; i < n; i++) {
        buffer_text(out, i ? "," : "[");
        if (isfinite(v[i])) buffer_format(out, "%.9g", (double)v[i]);
        else buffer_text(out, "null");
    }
    buffer_text(out, "]");
}

/* The bytes of the floats, the least significant one first, in base64. */
static void add_base64(buffer *out, const float *v, int32_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    buffer bytes = {0};
    int32_t i, k;
    for (i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &v[i], sizeof word);
        for (k = 0; k < 4; k++) {
            const char byte = (char)(uint8_t)(word >> 8 * k);
            buffer_add(&bytes, &byte, 1);
        }
    }
    buffer_text(out, "\"");
    buffer_base64(out, bytes.p, bytes.n, digits);
    buffer_text(out, bytes.n % 3 == 0 ? "\"" : bytes.n % 3 == 1 ? "==\"" : "=\"");
    out->failed |= bytes.failed;
    buffer_free(&bytes);
}

static int64_t count_tokens(const engine_embed *t) {
    int64_t n = 0;
    int32_t i;
    for (i = 0; i < t->n; i++) n += t->inputs[i].n_tokens;
    return n;
}

void reply_vector(buffer *out, const request *r, const float *vector) {
    const engine_embed *t = &r->embed;
    const int32_t dim = r->service->info.dim;
    long long n;
    if (t->n_done == 0) buffer_text(out, "{\"object\":\"list\",\"data\":[");
    buffer_format(out, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":",
                  t->n_done ? "," : "", (int)t->n_done);
    if (r->is_base64) add_base64(out, vector, dim);
    else add_floats(out, vector, dim);
    buffer_text(out, "}");
    if (t->n_done < t->n - 1) return;
    n = count_tokens(t);
    buffer_text(out, "],\"model\":");
    buffer_json(out, r->service->name, strlen(r->service->name));
    buffer_format(out, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}", n, n);
}

void reply_error(buffer *out, const http_error *error) {
    const char *type = error->status == 401 ? "authentication_error"
                       : error->status == 429 ? "rate_limit_error"
                       : error->status == 404 ? "not_found_error"
                       : error->status >= 500 ? "server_error" : "invalid_request_error";
    buffer_text(out, "{\"error\":{\"message\":");
    buffer_json(out, error->text, strlen(error->text));
    buffer_format(out, ",\"type\":\"%s\",\"param\":", type);
    if (error->param[0]) buffer_json(out, error->param, strlen(error->param));
    else buffer_text(out, "null");
    if (error->code) buffer_format(out, ",\"code\":\"%s\"}}", error->code);
    else buffer_text(out, ",\"code\":null}}");
}

http_error reply_failure(const bitnet_error *err) {
    const int is_busy = err->code == BITNET_ERR_MEMORY || err->code == BITNET_ERR_FULL ||
                        err->code == BITNET_ERR_CANCELLED;
    return refuse(is_busy ? 503 : 500, 0, "%s", err->text);
}
