#include "reply.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a text has given ---- */

static void empty(choice *c) {
    c->text.n = c->tokens.n = c->values.n = c->best.n = c->offsets.n = 0;
    c->thinking.n = c->calls.n = 0;
}

void choice_free(choice *c) {
    buffer_free(&c->text);
    buffer_free(&c->thinking);
    buffer_free(&c->calls);
    buffer_free(&c->raw);
    buffer_free(&c->tokens);
    buffer_free(&c->values);
    buffer_free(&c->best);
    buffer_free(&c->offsets);
}

/* A token in quotes. Where it is only a part of a character, the bytes as OpenAI spells them:
   bytes:\xe2\x96. So tokens with other bytes never look the same. */
static void add_token_text(buffer *out, const request *r, bitnet_token t) {
    size_t n, i;
    const char *s = bitnet_token_text(r->service->model, t, &n);
    if (!s || buffer_is_utf8(s, n)) {
        buffer_json(out, s ? s : "", n);
        return;
    }
    buffer_text(out, "\"bytes:");
    for (i = 0; i < n; i++) {
        const uint8_t c = (uint8_t)s[i];
        const int is_plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        buffer_format(out, is_plain ? "%c" : "\\\\x%02x", c);
    }
    buffer_text(out, "\"");
}

/* JSON has no infinity; OpenAI's clients know -9999 for what is impossible. */
static void add_logprob(buffer *out, float x) {
    if (x >= -9999.0f && x <= 0.01f) buffer_format(out, "%.9g", (double)x);
    else buffer_text(out, "-9999.0");
}

/* Of chat: "token": "a", "logprob": -1, "bytes": [97]. Special tokens are no bytes of the text. */
static void add_chat_token(buffer *out, const request *r, bitnet_token t, float logprob) {
    size_t n, i;
    const char *s = bitnet_token_text(r->service->model, t, &n);
    buffer_text(out, "\"token\":");
    add_token_text(out, r, t);
    buffer_text(out, ",\"logprob\":");
    add_logprob(out, logprob);
    buffer_text(out, ",\"bytes\":");
    if (bitnet_token_is_special(r->service->model, t)) {
        buffer_text(out, "null");
        return;
    }
    buffer_text(out, "[");
    for (i = 0; i < n; i++) buffer_format(out, i ? ",%d" : "%d", (uint8_t)s[i]);
    buffer_text(out, "]");
}

static void add_chat_logprobs(choice *c, const request *r, const token_info *token) {
    int32_t i;
    if (c->tokens.n) buffer_text(&c->tokens, ",");
    buffer_text(&c->tokens, "{");
    add_chat_token(&c->tokens, r, token->token, token->logprob);
    buffer_text(&c->tokens, ",\"top_logprobs\":[");
    for (i = 0; i < token->n_best; i++) {
        buffer_text(&c->tokens, i ? ",{" : "{");
        add_chat_token(&c->tokens, r, token->best[i].token, token->best[i].logprob);
        buffer_text(&c->tokens, "}");
    }
    buffer_text(&c->tokens, "]}");
}

/* An object of tokens and values. Tokens may have the same bytes, such as SentencePiece's <0x41>
   and A: then the second one's key is its number. */
static void add_best(buffer *out, const request *r, const token_info *token) {
    const bitnet_model *m = r->service->model;
    int32_t i, k;
    buffer_text(out, "{");
    for (i = 0; i < token->n_best; i++) {
        size_t n, size;
        const char *s = bitnet_token_text(m, token->best[i].token, &n), *other;
        for (k = 0; k < i; k++) {
            other = bitnet_token_text(m, token->best[k].token, &size);
            if (size == n && (n == 0 || !memcmp(other, s, n))) break;
        }
        if (i) buffer_text(out, ",");
        if (k < i) buffer_format(out, "\"token_id:%d\"", (int)token->best[i].token);
        else add_token_text(out, r, token->best[i].token);
        buffer_text(out, ":");
        add_logprob(out, token->best[i].logprob);
    }
    buffer_text(out, "}");
}

/* Of completions: four lists of the same length. The first token of a prompt has no value. */
static void add_lists(choice *c, const request *r, const token_info *token) {
    const char *comma = c->tokens.n ? "," : "";
    buffer_text(&c->tokens, comma);
    add_token_text(&c->tokens, r, token->token);
    buffer_text(&c->values, comma);
    buffer_text(&c->best, comma);
    if (token->has_logprobs) {
        add_logprob(&c->values, token->logprob);
        add_best(&c->best, r, token);
    } else {
        buffer_text(&c->values, "null");
        buffer_text(&c->best, "null");
    }
    buffer_format(&c->offsets, "%s%llu", comma, (unsigned long long)c->length);
}

/* Adds a call that the model has written. arguments: node of an object; 0: there are none. */
static void tell_call(choice *c, const request *r, int32_t number, const json *j, uint32_t name,
                      uint32_t arguments) {
    const char *id = strchr(r->id, '-');
    buffer text = {0};
    if (arguments) buffer_value(&text, j, arguments);
    else buffer_text(&text, "{}");
    buffer_format(&c->calls, "%s{\"index\":%d,\"id\":\"call%s-%d-%d\",\"type\":\"function\","
                  "\"function\":{\"name\":", c->calls.n ? "," : "", (int)c->n_calls, id ? id : "",
                  (int)number, (int)c->n_calls);
    buffer_json(&c->calls, j->text + j->nodes[name].at, j->nodes[name].len);
    buffer_text(&c->calls, ",\"arguments\":");
    buffer_json(&c->calls, text.p ? text.p : "", text.n);
    buffer_text(&c->calls, "}}");
    c->calls.failed |= text.failed;
    c->n_calls++;
    buffer_free(&text);
}

/* Is it {"name": "...", "arguments": {...}}, or the same with parameters, as Llama 3 writes it? The
   arguments may be missing, but then there is nothing else that might be them. */
static int is_call(const json *j, uint32_t *name, uint32_t *arguments) {
    const uint32_t parameters = json_get(j, JSON_ROOT, "parameters");
    uint32_t i, at = JSON_ROOT + 1;
    *name = json_get(j, JSON_ROOT, "name");
    *arguments = json_get(j, JSON_ROOT, "arguments");
    if (!*name || json_kind(j, *name) != JSON_STRING || !j->nodes[*name].len) return 0;
    if (*arguments && parameters) return 0;
    if (!*arguments) *arguments = parameters;
    if (*arguments) return json_kind(j, *arguments) == JSON_OBJECT;
    for (i = 0; i < j->nodes[JSON_ROOT].n; i++, at = j->nodes[at + 1].next)
        if (at + 1 != *name && !json_is(j, at, "arguments") && !json_is(j, at, "parameters"))
            return 0;
    return 1;
}

/* The text between the tags of a call. Returns 0 if it is none. */
static int add_call(choice *c, const request *r, int32_t number, const char *text, size_t n) {
    json j;
    uint32_t name, arguments;
    int ok;
    memset(&j, 0, sizeof j);
    j.size = n;
    j.text = (char *)malloc(n + 1);
    if (!j.text) c->text.failed = 1;
    if (!j.text || n == 0) {
        free(j.text);
        return 0;
    }
    memcpy(j.text, text, n);
    j.text[n] = 0;
    ok = json_parse(&j, 0) == BITNET_OK && json_kind(&j, JSON_ROOT) == JSON_OBJECT &&
         is_call(&j, &name, &arguments);
    if (ok) tell_call(c, r, number, &j, name, arguments);
    json_free(&j);
    return ok;
}

/* What seemed to be a call, or the beginning of one, is text as it was written, to the byte. */
static void be_text(choice *c) {
    const size_t told = c->n_told < c->raw.n ? c->n_told : c->raw.n;
    buffer_add(&c->text, c->raw.n ? c->raw.p + told : "", c->raw.n - told);
    c->text.failed |= c->raw.failed;
    c->raw.n = c->n_told = 0;
    c->parts.part = BITNET_REPLY_TEXT;
    c->parts.n_held = c->parts.n_newlines = c->parts.skips = 0;
}

/* A call has ended. Newlines behind it stay where a text follows, and none of it is text. */
static void end_call(choice *c, const request *r, int32_t number) {
    const size_t end = c->raw.n - strlen("</tool_call>");
    if (!add_call(c, r, number, c->raw.p + c->inside, end - c->inside)) {
        be_text(c);
        return;
    }
    c->raw.n = c->n_told = 0;
    c->parts.skips = 0;
    c->is_behind_call = 1;
    c->is_closed = r->one_call;
}

/* Forgets what is no longer held back. */
static void trim_raw(choice *c) {
    const size_t held = (size_t)c->parts.n_newlines + (size_t)c->parts.n_held;
    if (held >= c->raw.n) return;
    memmove(c->raw.p, c->raw.p + (c->raw.n - held), held);
    c->raw.n = held;
}

static int is_blank(char b) { return b == ' ' || b == '\t' || b == '\n' || b == '\r'; }

/* Gives a byte of a reply to the buffer of its part. Since bytes come one by one, it is known what
   belongs to a tag and to the newlines around it, which the library leaves out: where there is no
   call they are text. */
static void divide_byte(choice *c, const request *r, int32_t number, const char *byte) {
    const bitnet_reply_part before = c->parts.part;
    const char *p = byte, *text;
    bitnet_reply_part part;
    size_t n = 1, size;
    if (before == BITNET_REPLY_TOOL_CALL && !c->is_object && !is_blank(*byte)) {
        c->is_object = *byte == '{';
        if (!c->is_object) be_text(c);         /* a text that mentions the tag */
    }
    buffer_add(&c->raw, byte, 1);
    while (bitnet_reply_next(&c->parts, &p, &n, &part, &text, &size)) {
        if (part == BITNET_REPLY_TOOL_CALL) continue;
        buffer_add(part == BITNET_REPLY_TEXT ? &c->text : &c->thinking, text, size);
        c->is_behind_call = 0;
    }
    if (c->raw.failed) return;
    if (c->parts.part != BITNET_REPLY_TOOL_CALL) {
        if (before == BITNET_REPLY_TOOL_CALL && c->is_object) end_call(c, r, number);
        else trim_raw(c);
        c->is_object = 0;
    } else if (before != BITNET_REPLY_TOOL_CALL) {
        c->inside = c->raw.n;
        c->is_object = 0;
    }
}

static void divide(choice *c, const request *r, int32_t number, const char *piece, size_t n) {
    size_t i;
    for (i = 0; i < n && !c->is_closed; i++) divide_byte(c, r, number, piece + i);
    c->text.failed |= c->raw.failed;
}

/* Where it begins with a text of the client's, that comes first. */
static void begin_parts(choice *c, const request *r, int32_t number) {
    c->is_divided = 1;
    bitnet_reply_begin(&c->parts, r->service->model, &r->chat);
    if (r->begun) divide(c, r, number, r->begun, strlen(r->begun));
    c->text.n = c->thinking.n = c->calls.n = 0;
    c->n_calls = c->parts.n_held = c->parts.n_newlines = 0;
    c->is_behind_call = c->is_closed = 0;
    if (c->parts.part == BITNET_REPLY_TOOL_CALL) c->n_told = c->raw.n;
    else c->raw.n = 0;
}

/* The text of a choice has ended: what was held back belongs to it. */
static void end_choice(choice *c, const request *r) {
    const char *none = 0, *text;
    bitnet_reply_part part;
    size_t size;
    if (!r->is_chat || !c->is_divided || c->is_closed) return;
    if (c->parts.part == BITNET_REPLY_TOOL_CALL) be_text(c);     /* it was cut */
    if (c->is_behind_call && !c->parts.n_held) c->parts.n_newlines = 0;
    while (bitnet_reply_next(&c->parts, &none, &size, &part, &text, &size))
        buffer_add(part == BITNET_REPLY_THINKING ? &c->thinking : &c->text, text, size);
}

/* The characters that begin in a text. OpenAI's clients count these, and not bytes. */
static size_t count_characters(const char *p, size_t n) {
    size_t i, count = 0;
    for (i = 0; i < n; i++) count += ((uint8_t)p[i] & 0xc0) != 0x80;
    return count;
}

void choice_add(choice *c, const request *r, engine_text *t, const char *piece, size_t n,
                const token_info *token) {
    const int echoed = token && t->n_new == 0;
    if (token && r->logprobs >= 0 && r->is_chat) add_chat_logprobs(c, r, token);
    else if (token && r->logprobs >= 0) add_lists(c, r, token);
    if (echoed && t->n_echoed > t->n_unspelled)
        piece = bitnet_token_text(r->service->model, token->token, &n);
    if (!piece) return;
    c->length += count_characters(piece, n);
    if (!r->is_chat) buffer_add(&c->text, piece, n);
    else {
        if (!c->is_divided) begin_parts(c, r, (int32_t)(t - r->texts));
        divide(c, r, (int32_t)(t - r->texts), piece, n);
        t->is_enough = c->is_closed;
    }
}

static void add_logprobs(buffer *out, const request *r, const choice *c) {
    if (c->text.failed || c->thinking.failed || c->calls.failed || c->tokens.failed ||
        c->values.failed || c->best.failed || c->offsets.failed)
        out->failed = 1;               /* rather no answer than one with gaps */
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

static void add_usage(buffer *out, const request *r) {
    long long prompt = 0, reused = 0, written = 0;
    int32_t i;
    for (i = 0; i < r->n_texts; i++) {
        if (i % r->n == 0) {           /* texts of one prompt read it once */
            prompt += r->texts[i].n_prompt;
            reused += r->texts[i].n_reused;
        }
        written += r->texts[i].n_new;
    }
    buffer_format(out, "\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
                  "\"total_tokens\":%lld,\"prompt_tokens_details\":{\"cached_tokens\":%lld}}",
                  prompt, written, prompt + written, reused);
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
static void add_delta(buffer *out, const choice *c) {
    if (c->thinking.n) {
        buffer_text(out, "\"reasoning_content\":");
        buffer_json(out, c->thinking.p, c->thinking.n);
    }
    if (c->text.n || (!c->thinking.n && !c->calls.n)) {
        buffer_text(out, c->thinking.n ? ",\"content\":" : "\"content\":");
        buffer_json(out, c->text.n ? c->text.p : "", c->text.n);
    }
    if (c->calls.n)
        buffer_format(out, "%s\"tool_calls\":[%s]", c->thinking.n || c->text.n ? "," : "",
                      c->calls.p);
}

/* delta or text, which is JSON, with logprobs of c, which may be 0. */
static void add_choice(buffer *out, const request *r, int32_t i, const choice *c,
                       const char *finish) {
    buffer_format(out, ",\"choices\":[{\"index\":%d,", (int)i);
    if (r->is_chat) buffer_text(out, "\"delta\":{");
    if (!c && r->is_chat && !finish)
        buffer_text(out, "\"role\":\"assistant\",\"content\":\"\",\"refusal\":null");
    else if (c && r->is_chat) add_delta(out, c);
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
    if (c->text.n == 0 && c->thinking.n == 0 && c->calls.n == 0 && c->tokens.n == 0) return;
    add_event(out, r, i, c, 0);
    empty(c);
}

void reply_last_event(buffer *out, const request *r, int32_t i, choice *c) {
    end_choice(c, r);
    reply_event(out, r, i, c);
    add_event(out, r, i, 0, finish_reason(&r->texts[i], c));
}

void reply_done(buffer *out, const request *r) {
    if (r->include_usage) {
        begin_event(out, r);
        buffer_text(out, ",\"choices\":[],");
        add_usage(out, r);
        buffer_text(out, "}\n\n");
    }
    buffer_text(out, "data: [DONE]\n\n");
}

void reply_error_event(buffer *out, const http_error *error) {
    buffer_text(out, "data: ");
    reply_error(out, error);
    buffer_text(out, "\n\ndata: [DONE]\n\n");
}

/* ---- whole answers ---- */

static void add_message(buffer *out, const choice *c) {
    buffer_text(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (c->text.n == 0 && c->calls.n) buffer_text(out, "null");
    else buffer_json(out, c->text.n ? c->text.p : "", c->text.n);
    buffer_text(out, ",\"refusal\":null");
    if (c->thinking.n) {
        buffer_text(out, ",\"reasoning_content\":");
        buffer_json(out, c->thinking.p, c->thinking.n);
    }
    if (c->calls.n) buffer_format(out, ",\"tool_calls\":[%s]", c->calls.p);
    buffer_text(out, "}");
}

void reply_whole(buffer *out, const request *r, choice *choices) {
    int32_t i;
    add_head(out, r, r->is_chat ? "chat.completion" : "text_completion");
    buffer_text(out, ",\"choices\":[");
    for (i = 0; i < r->n_texts; i++) {
        choice *c = &choices[i];
        buffer_format(out, "%s{\"index\":%d,", i ? "," : "", (int)i);
        end_choice(c, r);
        if (r->is_chat) add_message(out, c);
        else {
            buffer_text(out, "\"text\":");
            buffer_json(out, c->text.n ? c->text.p : "", c->text.n);
        }
        buffer_text(out, ",\"logprobs\":");
        add_logprobs(out, r, c);
        buffer_format(out, ",\"finish_reason\":\"%s\"}", finish_reason(&r->texts[i], c));
    }
    buffer_text(out, "],");
    add_usage(out, r);
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
    const size_t size = (size_t)n * sizeof *v;
    uint32_t bits = 0;
    size_t i;
    char four[4];
    buffer_text(out, "\"");
    for (i = 0; i < size + 2 && i - i % 3 < size; i++) {
        uint32_t word = 0;
        if (i < size) memcpy(&word, &v[i / 4], sizeof word);
        bits = bits << 8 | (word >> 8 * (i % 4) & 255);
        if (i % 3 < 2) continue;
        four[0] = digits[bits >> 18 & 63];
        four[1] = digits[bits >> 12 & 63];
        four[2] = i > size ? '=' : digits[bits >> 6 & 63];
        four[3] = i >= size ? '=' : digits[bits & 63];
        buffer_add(out, four, 4);
    }
    buffer_text(out, "\"");
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
    http_error e;
    memset(&e, 0, sizeof e);
    e.status = err->code == BITNET_ERR_MEMORY || err->code == BITNET_ERR_FULL ||
               err->code == BITNET_ERR_CANCELLED ? 503 : 500;
    snprintf(e.text, sizeof e.text, "%s", err->text);
    return e;
}
