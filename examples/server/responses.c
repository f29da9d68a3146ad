#include "responses.h"
#include "translate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_METADATA = 16, MOST_METADATA_KEY = 64, MOST_METADATA_VALUE = 512 };
enum { MOST_ID = 1 << 20, MOST_REPEATED = 256 << 10 };

/* ---- ids of calls ----
   Clients that believe in a store send the id of an item in place of the item: {"type":
   "item_reference", "id": ...}, as the AI SDK does. A call's id says all of it, so that it can be
   sent like this: fc_ and its JSON in base64url. Texts are sent while they are written, and their
   ids come first; so these cannot. */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* The bytes of an id, and a NUL, for free; 0: it is none. */
static char *bytes_of(const char *text, size_t *n) {
    const size_t size = strlen(text);
    char *out = size <= MOST_ID ? (char *)malloc(size + 1) : 0;
    uint32_t bits = 0;
    int left = 0;
    *n = 0;
    for (; out && *text; text++) {
        const char *at = strchr(digits, *text);
        if (!at) {
            free(out);
            return 0;
        }
        bits = bits << 6 | (uint32_t)(at - digits);
        left += 6;
        if (left >= 8) out[(*n)++] = (char)(uint8_t)(bits >> (left -= 8) & 255);
    }
    if (out) out[*n] = 0;
    return out;
}

/* ---- reading: the input ---- */

/* Adds the text of a content: a string, or parts of text. */
static void read_item_text(reader *in, chat_writer *w, uint32_t content) {
    const char *text = node_string(in, content);
    uint32_t at = content + 1, i;
    char what[128];
    if (text) chat_add(w, text, "");
    else if (!content || json_kind(&in->j, content) != JSON_ARRAY)
        refuse_field(in, "input", "a content must be a string without NUL, or a list of parts");
    else for (i = 0; i < in->j.nodes[content].n && !failed(in); i++, at = in->j.nodes[at].next) {
        const uint32_t type = json_get(&in->j, at, "type");
        const char *name = node_string(in, type);
        text = node_string(in, json_get(&in->j, at, json_is(&in->j, type, "refusal") ? "refusal"
                                                                                     : "text"));
        if (text) chat_add(w, text, "");
        else {
            snprintf(what, sizeof what, "only parts with a text are possible, not %.40s",
                     name ? name : "those without a type");
            refuse_field(in, "input", what);
        }
    }
}

/* What the model thought: the content, or else its summary. */
static void read_reasoning(reader *in, chat_writer *w, uint32_t item) {
    const uint32_t content = json_get(&in->j, item, "content"),
                   summary = json_get(&in->j, item, "summary");
    const uint32_t list = content && in->j.nodes[content].n ? content : summary;
    if (!list || in->j.nodes[list].n == 0) return;         /* it is encrypted, or was not told */
    chat_open(w, "assistant", 0, CHAT_THOUGHT);
    read_item_text(in, w, list);
}

static void read_call_item(reader *in, chat_writer *w, uint32_t item) {
    const char *id = node_string(in, json_get(&in->j, item, "call_id"));
    const char *name = node_string(in, json_get(&in->j, item, "name"));
    const char *arguments = node_string(in, json_get(&in->j, item, "arguments"));
    if (!id || !name || !arguments) {
        refuse_field(in, "input", "a function_call needs a call_id, a name and arguments, as "
                     "strings");
        return;
    }
    chat_open(w, "assistant", 0, CHAT_CALL);
    chat_call(w, id, name, arguments);
}

/* What the call's own id says. */
static int read_call_of_id(chat_writer *w, const char *id) {
    reader own = {0};
    size_t n;
    char *text = bytes_of(id, &n);
    int ok = 0;
    if (!text) return 0;
    own.j.text = text;
    own.j.size = n;
    if (n > 0 && !json_parse(&own.j, 0)) {
        read_call_item(&own, w, JSON_ROOT);
        ok = !failed(&own);
    }
    json_free(&own.j);
    return ok;
}

/* What a model thought before is not needed to go on. */
static void read_reference(reader *in, chat_writer *w, uint32_t item) {
    const char *id = node_string(in, json_get(&in->j, item, "id"));
    if (id && !strncmp(id, "rs_", 3)) return;
    if (id && !strncmp(id, "fc_", 3) && read_call_of_id(w, id + 3)) return;
    refuse_field(in, "input", "no responses are stored here, so an item_reference cannot be "
                 "followed: send the item itself (AI SDK: providerOptions.openai.store false)");
}

static void read_item(reader *in, chat_writer *w, uint32_t item) {
    const uint32_t type = json_get(&in->j, item, "type");
    const char *role = node_string(in, json_get(&in->j, item, "role")),
               *name = node_string(in, type);
    char what[128];
    if (role && (!type || json_is(&in->j, type, "message"))) {
        chat_open(w, !strcmp(role, "developer") ? "system" : role, 0, CHAT_TEXT);
        read_item_text(in, w, json_get(&in->j, item, "content"));
    } else if (json_is(&in->j, type, "reasoning")) read_reasoning(in, w, item);
    else if (json_is(&in->j, type, "function_call")) read_call_item(in, w, item);
    else if (json_is(&in->j, type, "function_call_output")) {
        const char *id = node_string(in, json_get(&in->j, item, "call_id"));
        if (!id) refuse_field(in, "input", "a function_call_output needs a call_id");
        chat_open(w, "tool", id, CHAT_TEXT);
        read_item_text(in, w, json_get(&in->j, item, "output"));
    } else if (json_is(&in->j, type, "item_reference") || (!type && !role)) {
        read_reference(in, w, item);
    } else {
        snprintf(what, sizeof what, "items of the type %.40s are not possible",
                 name ? name : "that is no string");
        refuse_field(in, "input", what);
    }
}

static int is_system(const reader *in, uint32_t item) {
    const uint32_t role = json_get(&in->j, item, "role");
    return json_is(&in->j, role, "system") || json_is(&in->j, role, "developer");
}

/* instructions, and system messages behind them, are one: many chat templates take only that. */
static void read_items(reader *in, translation *t) {
    const uint32_t node = field_get(in, "input"), says = field_get(in, "instructions");
    const char *text = node_string(in, node), *instructions = node_string(in, says);
    const uint32_t n = node && json_kind(&in->j, node) == JSON_ARRAY ? in->j.nodes[node].n : 0;
    uint32_t at = node + 1, i = 0;
    chat_writer w;
    memset(&w, 0, sizeof w);
    if (says && !instructions)
        refuse_field(in, "instructions", "a string without NUL is needed");
    if (!text && n == 0) refuse_field(in, "input", "a string or a list of items is needed");
    if (instructions || (n && is_system(in, at))) chat_open(&w, "system", 0, CHAT_TEXT);
    if (instructions) chat_add(&w, instructions, "");
    for (; i < n && is_system(in, at) && !failed(in); i++, at = in->j.nodes[at].next) {
        if (w.text.n) buffer_text(&w.text, "\n\n");
        read_item_text(in, &w, json_get(&in->j, at, "content"));
    }
    for (; i < n && !failed(in); i++, at = in->j.nodes[at].next) read_item(in, &w, at);
    if (text) {
        chat_open(&w, "user", 0, CHAT_TEXT);
        chat_add(&w, text, "");
    }
    chat_end(&w, t);
}

/* ---- reading: tools and formats ---- */

static int is_function(const json *j, uint32_t tool) {
    return json_is(j, json_get(j, tool, "type"), "function");
}

/* {"type": "function", "name": ...}, whose fields are those of a chat's function. Others, such as
   web_search, which OpenAI's servers run and Codex always offers, are left out. */
static void read_flat_tools(reader *in, translation *t) {
    const uint32_t node = field_get(in, "tools");
    const uint32_t n = node && json_kind(&in->j, node) == JSON_ARRAY ? in->j.nodes[node].n : 0;
    uint32_t at = node + 1, i, k;
    int n_tools = 0;
    if (node && json_kind(&in->j, node) != JSON_ARRAY)
        refuse_field(in, "tools", "a list is needed");
    if (n == 0) return;
    translate_name(t, "tools");
    buffer_text(&t->body, "[");
    for (i = 0; i < n; i++, at = in->j.nodes[at].next) {
        uint32_t pair = at + 1;
        int n_pairs = 0;
        if (!node_string(in, json_get(&in->j, at, "type")))
            refuse_field(in, "tools", "a tool needs a type");
        if (!is_function(&in->j, at)) continue;
        buffer_text(&t->body, n_tools++ ? ",{\"type\":\"function\",\"function\":{"
                                        : "{\"type\":\"function\",\"function\":{");
        for (k = 0; k < in->j.nodes[at].n; k++, pair = in->j.nodes[pair + 1].next) {
            if (json_is(&in->j, pair, "type") || json_kind(&in->j, pair + 1) == JSON_NULL) continue;
            if (n_pairs++) buffer_text(&t->body, ",");
            buffer_value(&t->body, &in->j, pair);
            buffer_text(&t->body, ":");
            buffer_value(&t->body, &in->j, pair + 1);
        }
        buffer_text(&t->body, "}}");
    }
    buffer_text(&t->body, "]");
}

static void add_function_named(buffer *out, const json *j, uint32_t node) {
    buffer_text(out, "{\"type\":\"function\",\"function\":{\"name\":");
    buffer_value(out, j, json_get(j, node, "name"));
    buffer_text(out, "}}");
}

/* Tools that are no functions are left out of allowed ones, too. */
static void read_flat_allowed(reader *in, translation *t, uint32_t node) {
    const uint32_t list = json_get(&in->j, node, "tools"), mode = json_get(&in->j, node, "mode");
    const uint32_t n = list && json_kind(&in->j, list) == JSON_ARRAY ? in->j.nodes[list].n : 0;
    uint32_t at = list + 1, i;
    int n_tools = 0;
    translate_name(t, "tool_choice");
    buffer_text(&t->body, "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":");
    if (mode) buffer_value(&t->body, &in->j, mode);
    buffer_text(&t->body, mode ? ",\"tools\":[" : "null,\"tools\":[");
    for (i = 0; i < n; i++, at = in->j.nodes[at].next) {
        if (!is_function(&in->j, at) || !json_get(&in->j, at, "name")) continue;
        if (n_tools++) buffer_text(&t->body, ",");
        add_function_named(&t->body, &in->j, at);
    }
    buffer_text(&t->body, "]}}");
}

static void read_flat_choice(reader *in, translation *t) {
    const uint32_t node = field_get(in, "tool_choice"), name = json_get(&in->j, node, "name"),
                   type = json_get(&in->j, node, "type");
    if (!node) return;
    if (json_kind(&in->j, node) == JSON_STRING) translate_value(t, "tool_choice", node);
    else if (json_is(&in->j, type, "allowed_tools")) read_flat_allowed(in, t, node);
    else if (json_is(&in->j, type, "function") && name) {
        translate_name(t, "tool_choice");
        add_function_named(&t->body, &in->j, node);
    } else refuse_field(in, "tool_choice", "none, auto, required or {\"type\": \"function\", "
                        "\"name\": ...} is needed");
}

static void read_text_format(reader *in, translation *t) {
    const uint32_t text = field_get(in, "text"), format = json_get(&in->j, text, "format");
    if (text && json_kind(&in->j, text) != JSON_OBJECT)
        refuse_field(in, "text", "an object is needed");
    translate_value(t, "verbosity", json_get(&in->j, text, "verbosity"));
    if (!format) return;
    translate_name(t, "response_format");
    if (json_is(&in->j, json_get(&in->j, format, "type"), "json_schema")) {
        buffer_text(&t->body, "{\"type\":\"json_schema\",\"json_schema\":");
        buffer_value(&t->body, &in->j, format);
        buffer_text(&t->body, "}");
    } else buffer_value(&t->body, &in->j, format);
}

static void read_reasoning_options(reader *in, translation *t) {
    const uint32_t node = field_get(in, "reasoning");
    if (node && json_kind(&in->j, node) != JSON_OBJECT)
        refuse_field(in, "reasoning", "an object is needed");
    translate_value(t, "reasoning_effort", json_get(&in->j, node, "effort"));
}

/* Log-probabilities are told where `include` or top_logprobs asks for them. */
static void read_include(reader *in, translation *t) {
    const uint32_t list = field_get(in, "include"), top = field_get(in, "top_logprobs");
    const uint32_t n = list && json_kind(&in->j, list) == JSON_ARRAY ? in->j.nodes[list].n : 0;
    uint32_t at = list + 1, i;
    int wanted = top && (json_kind(&in->j, top) != JSON_NUMBER || node_number(&in->j, top) != 0);
    if (list && json_kind(&in->j, list) != JSON_ARRAY)
        refuse_field(in, "include", "a list is needed");
    for (i = 0; i < n; i++, at = in->j.nodes[at].next)
        wanted |= json_is(&in->j, at, "message.output_text.logprobs");
    if (!wanted) return;
    translate_name(t, "logprobs");
    buffer_text(&t->body, "true");
    translate_value(t, "top_logprobs", top);
}

/* ---- reading: all of it ---- */

/* What needs a store, or somebody who waits for it. */
static void refuse_stored(reader *in) {
    static const char *const names[] = {"previous_response_id", "conversation", "prompt"};
    size_t i;
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if (field_get(in, names[i]))
            refuse_field(in, names[i], "nothing is stored here: send the whole conversation as "
                         "input");
    if (field_bool(in, JSON_ROOT, "background"))
        refuse_field(in, "background", "nothing is stored here, so a response has to be waited "
                     "for");
}

/* The limits are OpenAI's, so that an answer which repeats it stays small. */
static void check_metadata(reader *in) {
    const uint32_t node = field_get(in, "metadata");
    uint32_t at = node + 1, i, n;
    if (!node) return;
    n = json_kind(&in->j, node) == JSON_OBJECT ? in->j.nodes[node].n : MOST_METADATA + 1;
    if (n > MOST_METADATA) {
        refuse_field(in, "metadata", "an object of at most 16 strings is needed");
        return;
    }
    for (i = 0; i < n; i++, at = in->j.nodes[at + 1].next)
        if (json_kind(&in->j, at + 1) != JSON_STRING || in->j.nodes[at].len > MOST_METADATA_KEY ||
            in->j.nodes[at + 1].len > MOST_METADATA_VALUE)
            refuse_field(in, "metadata", "strings of at most 512 bytes are needed, with names of "
                         "at most 64");
}

/* Those that the model is told of. */
static void keep_tools(buffer *out, const json *j, uint32_t list) {
    const uint32_t n = json_kind(j, list) == JSON_ARRAY ? j->nodes[list].n : 0;
    uint32_t at = list + 1, i;
    int n_tools = 0;
    buffer_text(out, "[");
    for (i = 0; i < n; i++, at = j->nodes[at].next) {
        if (!is_function(j, at)) continue;
        if (n_tools++) buffer_text(out, ",");
        buffer_value(out, j, at);
    }
    buffer_text(out, "]");
}

/* A value that the answer repeats, in each event that has all of it; too large: otherwise. */
static void keep_value(buffer *out, const json *j, const char *name, uint32_t node,
                       const char *otherwise) {
    size_t before;
    buffer_format(out, ",\"%s\":", name);
    before = out->n;
    if (node && !strcmp(name, "tools")) keep_tools(out, j, node);
    else if (node) buffer_value(out, j, node);
    if (node && out->n - before <= MOST_REPEATED) return;
    out->n = before;
    buffer_text(out, otherwise);
}

/* The fields that an answer repeats. */
static void keep_fields(reader *in) {
    const json *j = &in->j;
    const uint32_t text = field_get(in, "text"), reasoning = field_get(in, "reasoning");
    buffer out = {0};
    static const struct { const char *name, *otherwise; } fields[] = {
        {"instructions", "null"}, {"max_output_tokens", "null"}, {"metadata", "{}"},
        {"parallel_tool_calls", "true"}, {"temperature", "1"}, {"tool_choice", "\"auto\""},
        {"tools", "[]"}, {"top_logprobs", "0"}, {"top_p", "1"}
    };
    size_t i;
    for (i = 0; i < sizeof fields / sizeof fields[0]; i++)
        keep_value(&out, j, fields[i].name, field_get(in, fields[i].name), fields[i].otherwise);
    buffer_text(&out, ",\"reasoning\":{\"generate_summary\":null");
    keep_value(&out, j, "effort", json_get(j, reasoning, "effort"), "null");
    keep_value(&out, j, "summary", json_get(j, reasoning, "summary"), "null");
    buffer_text(&out, "},\"text\":{\"verbosity\":\"medium\"");
    keep_value(&out, j, "format", json_get(j, text, "format"), "{\"type\":\"text\"}");
    buffer_text(&out, "}");
    if (out.failed && !failed(in)) in->error = refuse_memory();
    in->r->repeats = out.p;
}

void responses_read(reader *in, uint64_t seed) {
    static const char *const taken[] = {    /* read here, or without a meaning in a response */
        "input", "instructions", "messages", "tools", "tool_choice", "text", "reasoning",
        "include", "top_logprobs", "logprobs", "max_output_tokens", "previous_response_id",
        "conversation", "prompt", "background", "metadata", "store", "truncation", "n", "best_of",
        "stream_options", "verbosity", "reasoning_effort", "functions", 0
    };
    static const renamed names[] = {
        {"messages", "input"}, {"max_completion_tokens", "max_output_tokens"},
        {"response_format", "text.format"}, {"reasoning_effort", "reasoning.effort"},
        {"verbosity", "text.verbosity"}
    };
    translation t;
    in->r->has_items = 1;
    refuse_stored(in);
    check_metadata(in);
    translate_begin(&t, in, taken);
    t.names = names;
    t.n_names = sizeof names / sizeof names[0];
    t.parameters = ".parameters";
    read_items(in, &t);
    read_flat_tools(in, &t);
    read_flat_choice(in, &t);
    read_text_format(in, &t);
    read_reasoning_options(in, &t);
    read_include(in, &t);
    translate_value(&t, "max_completion_tokens", field_get(in, "max_output_tokens"));
    if (!failed(in)) keep_fields(in);
    translate_read(&t, request_read_chat, seed);
}

/* ---- answers ---- */

enum { REASONING = 1, REPLY = 2 };

/* An id that has the request's in it. */
static void add_id(buffer *out, const char *kind, const request *r, int32_t number) {
    const char *own = strchr(r->id, '-');
    buffer_format(out, "\"%s_%s", kind, own ? own + 1 : "");
    if (number >= 0) buffer_format(out, "_%d", (int)number);
    buffer_text(out, "\"");
}

static void add_item_id(buffer *out, const request *r, int kind, int32_t number) {
    add_id(out, kind == REASONING ? "rs" : "msg", r, number);
}

static void add_token_list(buffer *out, const text_part *text) {
    buffer_text(out, ",\"logprobs\":[");
    buffer_add(out, text->tokens, text->n_tokens);
    buffer_text(out, "]");
}

/* A part of an item. */
static void add_part(buffer *out, const char *type, const text_part *text) {
    buffer_format(out, "{\"type\":\"%s\",\"text\":", type);
    buffer_json(out, text->p, text->n);
    if (!strcmp(type, "output_text")) {
        buffer_text(out, ",\"annotations\":[]");
        add_token_list(out, text);
    }
    buffer_text(out, "}");
}

/* The part of an item whose text a stream tells. */
static const char *told_part(int kind) { return kind == REPLY ? "output_text" : "summary_text"; }

/* An item with its text; 0: it has none yet. Thinking is its own summary, which is what
   clients show, and reasoning_text, as vLLM and llama.cpp's server have it. */
static void add_item(buffer *out, const request *r, int kind, int32_t number, const char *status,
                     const text_part *text) {
    buffer_text(out, "{\"id\":");
    add_item_id(out, r, kind, number);
    if (kind == REPLY) buffer_text(out, ",\"type\":\"message\",\"role\":\"assistant\"");
    else buffer_text(out, ",\"type\":\"reasoning\",\"encrypted_content\":null,\"summary\":[");
    if (kind == REASONING && text) add_part(out, "summary_text", text);
    buffer_format(out, "%s,\"status\":\"%s\",\"content\":[", kind == REASONING ? "]" : "", status);
    if (text) add_part(out, kind == REPLY ? "output_text" : "reasoning_text", text);
    buffer_text(out, "]}");
}

/* {"call_id": ..., "name": ..., "arguments": ...} without its braces. */
static void add_call_fields(buffer *out, const request *r, const choice *c, int32_t k,
                            int has_arguments) {
    const call *one = &c->calls[k];
    buffer_text(out, "\"call_id\":\"");
    choice_call_id(out, r, 0, k);
    buffer_text(out, "\",\"name\":");
    buffer_json(out, one->name.p, one->name.n);
    buffer_text(out, ",\"arguments\":");
    buffer_json(out, has_arguments ? one->arguments.p : "", has_arguments ? one->arguments.n : 0);
}

static void add_call_id(buffer *out, const request *r, const choice *c, int32_t k) {
    buffer all = {0};
    buffer_text(&all, "{");
    add_call_fields(&all, r, c, k, 1);
    buffer_text(&all, "}");
    buffer_text(out, "\"fc_");
    if (!all.failed) buffer_base64(out, all.p, all.n, digits);
    buffer_text(out, "\"");
    out->failed |= all.failed;
    buffer_free(&all);
}

static void add_call_item(buffer *out, const request *r, const choice *c, int32_t k,
                          int is_complete) {
    buffer_text(out, "{\"id\":");
    add_call_id(out, r, c, k);
    buffer_format(out, ",\"type\":\"function_call\",\"status\":\"%s\",",
                  is_complete ? "completed" : "in_progress");
    add_call_fields(out, r, c, k, is_complete);
    buffer_text(out, "}");
}

static int is_cut(const request *r) { return r->texts[0].why == BITNET_STOP_LENGTH; }

static void add_response_usage(buffer *out, const request *r, const choice *c) {
    const engine_text *t = &r->texts[0];
    buffer_format(out, "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d},"
                  "\"output_tokens\":%d,\"output_tokens_details\":{\"reasoning_tokens\":%d},"
                  "\"total_tokens\":%d}", (int)t->n_prompt, (int)t->n_cached, (int)t->n_new,
                  (int)c->n_thinking, (int)(t->n_prompt + t->n_new));
}

/* The response with the items of `output`, without brackets. */
static void add_response(buffer *out, const request *r, const choice *c, const char *status,
                         const buffer *output, const http_error *error) {
    const int is_ended = strcmp(status, "in_progress") != 0;
    buffer_text(out, "{\"id\":");
    add_id(out, "resp", r, -1);
    buffer_format(out, ",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\","
                  "\"background\":false,\"error\":", (long long)r->created, status);
    if (error) {
        buffer_text(out, "{\"code\":\"server_error\",\"message\":");
        buffer_json(out, error->text, strlen(error->text));
        buffer_text(out, "}");
    } else buffer_text(out, "null");
    buffer_text(out, ",\"incomplete_details\":");
    buffer_text(out, !strcmp(status, "incomplete") ? "{\"reason\":\"max_output_tokens\"}" : "null");
    buffer_text(out, ",\"model\":");
    buffer_json(out, r->service->name, strlen(r->service->name));
    buffer_format(out, ",\"output\":[%s],\"previous_response_id\":null,\"store\":false,"
                  "\"truncation\":\"disabled\"", output->n ? output->p : "");
    buffer_text(out, r->repeats ? r->repeats : "");
    buffer_text(out, ",\"usage\":");
    if (is_ended && !error) add_response_usage(out, r, c);
    else buffer_text(out, "null");
    buffer_text(out, "}");
    out->failed |= choice_has_failed(c) | output->failed;
}

static const char *status_of(const request *r) { return is_cut(r) ? "incomplete" : "completed"; }

/* A text with its log-probabilities that has been collected. */
static text_part part_of(const buffer *text, const buffer *tokens) {
    text_part part;
    part.n = text->n;
    part.n_tokens = tokens ? tokens->n : 0;
    part.p = part.n ? text->p : "";
    part.tokens = part.n_tokens ? tokens->p : "";
    return part;
}

void responses_whole(buffer *out, const request *r, choice *choices) {
    choice *c = &choices[0];
    buffer *items = &c->items;
    text_part text;
    int32_t k;
    choice_end(c, r);
    if (c->thinking.n) {
        const char *status = c->text.n || c->n_calls ? "completed" : status_of(r);
        text = part_of(&c->thinking, 0);
        add_item(items, r, REASONING, c->n_items++, status, &text);
    }
    for (k = 0; k <= c->n_calls; k++) {
        const int is_last = k == c->n_calls;
        text = choice_text(c, k);
        if (text.n || (is_last && !c->n_items)) {
            if (c->n_items) buffer_text(items, ",");
            add_item(items, r, REPLY, c->n_items++, is_last ? status_of(r) : "completed", &text);
        }
        if (is_last) break;
        if (c->n_items++) buffer_text(items, ",");
        add_call_item(items, r, c, k, 1);
    }
    add_response(out, r, c, status_of(r), items, 0);
}

/* ---- streams ---- */

static void begin_numbered(buffer *out, choice *c, const char *type) {
    buffer_format(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%d", type, type,
                  (int)c->n_events++);
}

static void end_numbered(buffer *out) { buffer_text(out, "}\n\n"); }

static void add_response_event(buffer *out, const request *r, choice *c, const char *type,
                               const char *status, const http_error *error) {
    begin_numbered(out, c, type);
    buffer_text(out, ",\"response\":");
    add_response(out, r, c, status, &c->items, error);
    end_numbered(out);
}

/* Which item an event is about, the one that has begun last. */
static void add_place(buffer *out, const request *r, const choice *c) {
    buffer_text(out, ",\"item_id\":");
    add_item_id(out, r, c->open, c->n_items - 1);
    buffer_format(out, ",\"output_index\":%d,\"%s\":0", (int)(c->n_items - 1),
                  c->open == REASONING ? "summary_index" : "content_index");
}

/* What the events of an item are called: of its part, and of its text. */
static const char *part_event(const choice *c, int is_done) {
    static const char *const names[] = {
        "response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
        "response.content_part.added", "response.content_part.done"
    };
    return names[2 * (c->open == REPLY) + is_done];
}

static const char *text_event(const choice *c, int is_done) {
    static const char *const names[] = {
        "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
        "response.output_text.delta", "response.output_text.done"
    };
    return names[2 * (c->open == REPLY) + is_done];
}

static void add_item_event(buffer *out, const request *r, choice *c, int is_done,
                           const char *status) {
    const text_part text = part_of(&c->said, &c->said_tokens);
    begin_numbered(out, c, is_done ? "response.output_item.done" : "response.output_item.added");
    buffer_format(out, ",\"output_index\":%d,\"item\":", (int)(c->n_items - 1));
    add_item(out, r, c->open, c->n_items - 1, status, is_done ? &text : 0);
    end_numbered(out);
}

static void open_item(buffer *out, const request *r, choice *c, int kind) {
    const text_part none = {"", "", 0, 0};
    c->open = kind;
    c->n_items++;
    c->said.n = c->said_tokens.n = 0;
    add_item_event(out, r, c, 0, "in_progress");
    begin_numbered(out, c, part_event(c, 0));
    add_place(out, r, c);
    buffer_text(out, ",\"part\":");
    add_part(out, told_part(kind), &none);
    end_numbered(out);
}

static void close_item(buffer *out, const request *r, choice *c, const char *status) {
    const text_part text = part_of(&c->said, &c->said_tokens);
    if (!c->open) return;
    begin_numbered(out, c, text_event(c, 1));
    add_place(out, r, c);
    buffer_text(out, ",\"text\":");
    buffer_json(out, text.p, text.n);
    if (c->open == REPLY) add_token_list(out, &text);
    end_numbered(out);
    begin_numbered(out, c, part_event(c, 1));
    add_place(out, r, c);
    buffer_text(out, ",\"part\":");
    add_part(out, told_part(c->open), &text);
    end_numbered(out);
    add_item_event(out, r, c, 1, status);
    if (c->items.n) buffer_text(&c->items, ",");
    add_item(&c->items, r, c->open, c->n_items - 1, status, &text);
    c->open = 0;
}

static void add_item_delta(buffer *out, const request *r, choice *c, int kind, text_part text) {
    if (c->open != kind) {
        close_item(out, r, c, "completed");
        open_item(out, r, c, kind);
    }
    buffer_add(&c->said, text.p, text.n);
    if (c->said_tokens.n && text.n_tokens) buffer_text(&c->said_tokens, ",");
    buffer_add(&c->said_tokens, text.tokens, text.n_tokens);
    begin_numbered(out, c, text_event(c, 0));
    add_place(out, r, c);
    buffer_text(out, ",\"delta\":");
    buffer_json(out, text.p, text.n);
    if (kind == REPLY) add_token_list(out, &text);
    end_numbered(out);
}

/* A call is told when it is complete. */
static void add_call_events(buffer *out, const request *r, choice *c, int32_t k) {
    static const char *const types[] = {
        "response.output_item.added", "response.function_call_arguments.delta",
        "response.function_call_arguments.done", "response.output_item.done"
    };
    const int32_t index = c->n_items++;
    int i;
    for (i = 0; i < 4; i++) {
        begin_numbered(out, c, types[i]);
        buffer_format(out, ",\"output_index\":%d,", (int)index);
        if (i == 0 || i == 3) {
            buffer_text(out, "\"item\":");
            add_call_item(out, r, c, k, i == 3);
        } else {
            buffer_text(out, "\"item_id\":");
            add_call_id(out, r, c, k);
            if (i == 2) {
                buffer_text(out, ",\"name\":");
                buffer_json(out, c->calls[k].name.p, c->calls[k].name.n);
            }
            buffer_text(out, i == 1 ? ",\"delta\":" : ",\"arguments\":");
            buffer_json(out, c->calls[k].arguments.p, c->calls[k].arguments.n);
        }
        end_numbered(out);
    }
    if (c->items.n) buffer_text(&c->items, ",");
    add_call_item(&c->items, r, c, k, 1);
}

static void begin_response(buffer *out, const request *r, choice *c) {
    if (c->begun) return;
    c->begun = 1;
    add_response_event(out, r, c, "response.created", "in_progress", 0);
    add_response_event(out, r, c, "response.in_progress", "in_progress", 0);
}

void responses_event(buffer *out, const request *r, int32_t i, choice *c) {
    int32_t k;
    (void)i;
    begin_response(out, r, c);
    if (!choice_has_news(c)) return;
    if (c->thinking.n) add_item_delta(out, r, c, REASONING, part_of(&c->thinking, 0));
    for (k = c->n_told_calls; k <= c->n_calls; k++) {
        const text_part text = choice_text(c, k);
        if (text.n || (text.n_tokens && (c->open == REPLY || !c->n_items)))    /* the end's */
            add_item_delta(out, r, c, REPLY, text);
        if (k == c->n_calls) break;
        close_item(out, r, c, "completed");
        add_call_events(out, r, c, k);
    }
    choice_told(c);
}

void responses_last_event(buffer *out, const request *r, int32_t i, choice *c) {
    choice_end(c, r);
    responses_event(out, r, i, c);
    if (c->n_items == 0) open_item(out, r, c, REPLY);
    close_item(out, r, c, status_of(r));
}

void responses_done(buffer *out, const request *r, choice *choices) {
    add_response_event(out, r, &choices[0], is_cut(r) ? "response.incomplete"
                                                      : "response.completed", status_of(r), 0);
}

/* The AI SDK looks for the object error, as other endpoints have it; OpenAI's types have its fields
   in the event. */
void responses_error_event(buffer *out, const request *r, choice *choices,
                           const http_error *error) {
    choice *c = &choices[0];
    begin_response(out, r, c);
    begin_numbered(out, c, "error");
    buffer_text(out, ",\"code\":\"server_error\",\"message\":");
    buffer_json(out, error->text, strlen(error->text));
    buffer_text(out, ",\"param\":null,\"error\":{\"type\":\"server_error\",\"code\":"
                     "\"server_error\",\"message\":");
    buffer_json(out, error->text, strlen(error->text));
    buffer_text(out, ",\"param\":null}");
    end_numbered(out);
    add_response_event(out, r, c, "response.failed", "failed", error);
}
