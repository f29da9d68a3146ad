#include "anthropic.h"
#include "translate.h"
#include <stdio.h>
#include <string.h>

/* ---- reading: messages ---- */

/* What the type of a block is; 0: it has none. */
static const char *type_of(const reader *in, uint32_t block) {
    return node_string(in, json_get(&in->j, block, "type"));
}

static void refuse_block(reader *in, const char *field, const char *type) {
    const int is_known = type && (!strcmp(type, "text") || !strcmp(type, "thinking"));
    char what[128];
    snprintf(what, sizeof what, is_known ? "a block of the type %.40s needs its text, without NUL" :
             "blocks of the type %.40s are not possible: the model reads text",
             type ? type : "that is missing");
    refuse_field(in, field, what);
}

/* Adds a text: a string, or blocks of text, each of which begins a line. */
static void read_text(reader *in, chat_writer *w, const char *field, uint32_t content) {
    const char *text = node_string(in, content);
    uint32_t at = content + 1, i;
    if (text) chat_add(w, text, "\n");
    else if (json_kind(&in->j, content) != JSON_ARRAY)
        refuse_field(in, field, "a string without NUL, or a list of blocks, is needed");
    else for (i = 0; i < in->j.nodes[content].n && !failed(in); i++, at = in->j.nodes[at].next) {
        text = node_string(in, json_get(&in->j, at, "text"));
        if (!json_is(&in->j, json_get(&in->j, at, "type"), "text") || !text)
            refuse_block(in, field, type_of(in, at));
        else chat_add(w, text, "\n");
    }
}

/* Claude Code begins its system prompt with a line of its own, in which a stamp (cch=a5145;)
   differs each time. It says nothing to a model, and nothing behind it would be found in a slot. */
static void drop_stamp(reader *in, uint32_t node) {
    static const char begin[] = "x-anthropic-billing-header:";
    const char *text = node_string(in, node);
    char *stamp, *end;
    if (!text || strncmp(text, begin, sizeof begin - 1)) return;
    stamp = strstr(in->j.text + in->j.nodes[node].at, "cch=");
    end = stamp ? strchr(stamp, ';') : 0;
    if (!end) return;
    memmove(stamp, end + 1, strlen(end + 1) + 1);
    in->j.nodes[node].len -= (uint32_t)(end + 1 - stamp);
}

static void read_system(reader *in, chat_writer *w, uint32_t node) {
    const uint32_t n = json_kind(&in->j, node) == JSON_ARRAY ? in->j.nodes[node].n : 0;
    uint32_t at = node + 1, i;
    drop_stamp(in, node);
    for (i = 0; i < n; i++, at = in->j.nodes[at].next)
        drop_stamp(in, json_get(&in->j, at, "text"));
    chat_open(w, "system", 0, CHAT_TEXT);
    read_text(in, w, "system", node);
}

static void read_tool_use(reader *in, chat_writer *w, uint32_t block) {
    const char *id = node_string(in, json_get(&in->j, block, "id"));
    const char *name = node_string(in, json_get(&in->j, block, "name"));
    const uint32_t input = json_get(&in->j, block, "input");
    buffer arguments = {0};
    if (!id || !name || json_kind(&in->j, input) != JSON_OBJECT) {
        refuse_field(in, "messages", "a tool_use needs an id, a name, and an object as input");
        return;
    }
    buffer_value(&arguments, &in->j, input);
    chat_open(w, "assistant", 0, CHAT_CALL);
    chat_call(w, id, name, arguments.failed ? "" : arguments.p);
    w->calls.failed |= arguments.failed;
    buffer_free(&arguments);
}

/* A result may lack its content. */
static void read_tool_result(reader *in, chat_writer *w, uint32_t block) {
    const char *id = node_string(in, json_get(&in->j, block, "tool_use_id"));
    const uint32_t content = json_get(&in->j, block, "content");
    if (!id) refuse_field(in, "messages", "a tool_result needs a tool_use_id");
    chat_open(w, "tool", id, CHAT_TEXT);
    if (content) read_text(in, w, "messages", content);
}

/* is_open: a message with this role has begun, and this block belongs to it. */
static void read_block(reader *in, chat_writer *w, const char *role, uint32_t block, int *is_open) {
    const char *type = type_of(in, block);
    const char *text = node_string(in, json_get(&in->j, block, "text"));
    const char *thinking = node_string(in, json_get(&in->j, block, "thinking"));
    const int is_reply = !strcmp(role, "assistant");
    if (type && !strcmp(type, "text") && text) {
        if (!*is_open || is_reply) chat_open(w, role, 0, CHAT_TEXT);
        *is_open = 1;
        chat_add(w, text, "\n");
    } else if (type && !strcmp(type, "thinking") && is_reply && thinking) {
        chat_open(w, role, 0, CHAT_THOUGHT);
        chat_add(w, thinking, "\n");
    } else if (type && !strcmp(type, "tool_use") && is_reply) read_tool_use(in, w, block);
    else if (type && !strcmp(type, "tool_result") && !is_reply) {
        read_tool_result(in, w, block);
        *is_open = 0;
    } else if (!type || strcmp(type, "redacted_thinking"))
        refuse_block(in, "messages", type);
}

static void read_blocks(reader *in, chat_writer *w, uint32_t node) {
    const char *role = node_string(in, json_get(&in->j, node, "role"));
    const uint32_t content = json_get(&in->j, node, "content");
    const char *text = node_string(in, content);
    uint32_t at = content + 1, i;
    int is_open = 0;
    if (!role || (strcmp(role, "user") && strcmp(role, "assistant") && strcmp(role, "system")))
        refuse_field(in, "messages", "the role must be user or assistant");
    else if (text) {
        chat_open(w, role, 0, CHAT_TEXT);
        chat_add(w, text, "\n");
    } else if (!content || json_kind(&in->j, content) != JSON_ARRAY)
        refuse_field(in, "messages", "a content must be a string without NUL, or a list of blocks");
    else for (i = 0; i < in->j.nodes[content].n && !failed(in); i++, at = in->j.nodes[at].next)
        read_block(in, w, role, at, &is_open);
}

static void read_messages(reader *in, translation *t) {
    const uint32_t node = field_get(in, "messages"), says = field_get(in, "system");
    const uint32_t n = node && json_kind(&in->j, node) == JSON_ARRAY ? in->j.nodes[node].n : 0;
    uint32_t at = node + 1, i;
    chat_writer w;
    memset(&w, 0, sizeof w);
    if (n == 0) refuse_field(in, "messages", "a list of messages is needed");
    if (says) read_system(in, &w, says);
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) read_blocks(in, &w, at);
    chat_end(&w, t);
}

/* ---- reading: tools and options ---- */

static void read_schemas(reader *in, translation *t) {
    const uint32_t node = field_get(in, "tools");
    const uint32_t n = node && json_kind(&in->j, node) == JSON_ARRAY ? in->j.nodes[node].n : 0;
    uint32_t at = node + 1, i;
    char what[128];
    if (node && json_kind(&in->j, node) != JSON_ARRAY)
        refuse_field(in, "tools", "a list is needed");
    if (n == 0) return;
    translate_name(t, "tools");
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        const uint32_t name = json_get(&in->j, at, "name"),
                       about = json_get(&in->j, at, "description"),
                       schema = json_get(&in->j, at, "input_schema"),
                       strict = json_get(&in->j, at, "strict");
        if (!name || !schema) {
            snprintf(what, sizeof what, "a tool needs a name and an input_schema: others, such as "
                     "%.40s, are not possible", type_of(in, at) ? type_of(in, at) : "this one");
            refuse_field(in, "tools", what);
            break;
        }
        buffer_text(&t->body, i ? ",{\"type\":\"function\",\"function\":{\"name\":"
                                : "[{\"type\":\"function\",\"function\":{\"name\":");
        buffer_value(&t->body, &in->j, name);
        if (about) buffer_text(&t->body, ",\"description\":");
        if (about) buffer_value(&t->body, &in->j, about);
        buffer_text(&t->body, ",\"parameters\":");
        buffer_value(&t->body, &in->j, schema);
        if (strict) buffer_text(&t->body, ",\"strict\":");
        if (strict) buffer_value(&t->body, &in->j, strict);
        buffer_text(&t->body, "}}");
    }
    buffer_text(&t->body, "]");
}

static void read_typed_choice(reader *in, translation *t) {
    const uint32_t node = field_get(in, "tool_choice"), type = json_get(&in->j, node, "type"),
                   name = json_get(&in->j, node, "name");
    if (!node) return;
    translate_name(t, "tool_choice");
    if (json_is(&in->j, type, "tool") && name) {
        buffer_text(&t->body, "{\"type\":\"function\",\"function\":{\"name\":");
        buffer_value(&t->body, &in->j, name);
        buffer_text(&t->body, "}}");
    } else if (json_is(&in->j, type, "any")) buffer_text(&t->body, "\"required\"");
    else if (json_is(&in->j, type, "auto")) buffer_text(&t->body, "\"auto\"");
    else if (json_is(&in->j, type, "none")) buffer_text(&t->body, "\"none\"");
    else refuse_field(in, "tool_choice", "its type must be auto, any, none, or tool with a name");
    if (!field_bool(in, node, "disable_parallel_tool_use")) return;
    translate_name(t, "parallel_tool_calls");
    buffer_text(&t->body, "false");
}

/* A model's thinking has no budget here: max_tokens bounds all of it. */
static void read_thinking(reader *in, translation *t) {
    const uint32_t node = field_get(in, "thinking"), type = json_get(&in->j, node, "type");
    if (!node) return;
    if (json_kind(&in->j, type) != JSON_STRING)
        refuse_field(in, "thinking", "a type, such as enabled or disabled, is needed");
    translate_name(t, "enable_thinking");
    buffer_text(&t->body, json_is(&in->j, type, "disabled") ? "false" : "true");
}

/* output_config: effort, and format or output_format as that was called first. */
static void read_output_config(reader *in, translation *t) {
    const uint32_t options = field_get(in, "output_config"),
                   config = json_get(&in->j, options, "format"),
                   format = config ? config : field_get(in, "output_format"),
                   schema = json_get(&in->j, format, "schema");
    if (options && json_kind(&in->j, options) != JSON_OBJECT)
        refuse_field(in, "output_config", "an object is needed");
    translate_value(t, "reasoning_effort", json_get(&in->j, options, "effort"));
    if (!format) return;
    if (!schema || !json_is(&in->j, json_get(&in->j, format, "type"), "json_schema")) {
        refuse_field(in, config ? "output_config" : "output_format",
                     "the format must have the type json_schema, and a schema");
        return;
    }
    translate_name(t, "response_format");
    buffer_text(&t->body, "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":");
    buffer_value(&t->body, &in->j, schema);
    buffer_text(&t->body, "}}");
}

static void read_body(reader *in, uint64_t seed, int is_counted) {
    static const char *const taken[] = {    /* read here, or without a meaning in a message */
        "messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format",
        "stop_sequences", "stop", "n", "best_of", "logprobs", "top_logprobs", "stream_options",
        "parallel_tool_calls", "enable_thinking", "reasoning_effort", "functions", 0
    };
    static const renamed names[] = {
        {"stop", "stop_sequences"}, {"response_format", "output_config"},
        {"enable_thinking", "thinking"}, {"reasoning_effort", "output_config.effort"}
    };
    const uint32_t servers = field_get(in, "mcp_servers");
    translation t;
    if (!is_counted && !field_get(in, "max_tokens"))
        refuse_field(in, "max_tokens", "a number is needed");
    if (servers && in->j.nodes[servers].n > 0)
        refuse_field(in, "mcp_servers", "this server calls no others");
    translate_begin(&t, in, taken);
    t.names = names;
    t.n_names = sizeof names / sizeof names[0];
    t.parameters = ".input_schema";
    read_messages(in, &t);
    read_schemas(in, &t);
    read_typed_choice(in, &t);
    read_thinking(in, &t);
    read_output_config(in, &t);
    translate_value(&t, "stop", field_get(in, "stop_sequences"));
    translate_read(&t, request_read_chat, seed);
}

void anthropic_read(reader *in, uint64_t seed) { read_body(in, seed, 0); }
void anthropic_read_counted(reader *in, uint64_t seed) { read_body(in, seed, 1); }

/* ---- answers ---- */

enum { THINKING = 1, TEXT = 2 };

/* Clients send thinking back only with a signature, and nobody here checks one. */
#define SIGNATURE "unsigned"

/* What has been read of a prompt before counts apart. */
static void add_message_usage(buffer *out, const request *r, int32_t n_new) {
    const engine_text *t = &r->texts[0];
    buffer_format(out, "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,"
                  "\"cache_read_input_tokens\":%d,\"output_tokens\":%d}",
                  (int)(t->n_prompt - t->n_cached), (int)t->n_cached, (int)n_new);
}

/* The message without its content, and what follows that. */
static void add_message_head(buffer *out, const request *r) {
    const char *own = strchr(r->id, '-');
    buffer_format(out, "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":",
                  own ? own + 1 : "");
    buffer_json(out, r->service->name, strlen(r->service->name));
}

static void add_stop(buffer *out, const request *r, const choice *c) {
    const engine_text *t = &r->texts[0];
    const int32_t stop = t->why == BITNET_STOP_STRING && !c->is_closed ? choice_stop(c, r) : -1;
    buffer_format(out, "\"stop_reason\":\"%s\",\"stop_sequence\":",
                  t->why == BITNET_STOP_LENGTH ? "max_tokens" : stop >= 0 ? "stop_sequence" :
                  c->n_calls ? "tool_use" : "end_turn");
    if (stop >= 0) buffer_json(out, r->stops[stop].data, r->stops[stop].size);
    else buffer_text(out, "null");
}

static void add_block(buffer *out, int kind, const char *p, size_t n) {
    buffer_text(out, kind == TEXT ? "{\"type\":\"text\",\"text\":"
                                  : "{\"type\":\"thinking\",\"thinking\":");
    buffer_json(out, n ? p : "", n);
    if (kind == THINKING) buffer_format(out, ",\"signature\":\"%s\"", n ? SIGNATURE : "");
    buffer_text(out, "}");
}

static void add_tool_use(buffer *out, const request *r, const choice *c, int32_t k,
                         int has_input) {
    buffer_text(out, "{\"type\":\"tool_use\",\"id\":\"");
    choice_call_id(out, r, 0, k);
    buffer_text(out, "\",\"name\":");
    buffer_json(out, c->calls[k].name.p, c->calls[k].name.n);
    buffer_format(out, ",\"input\":%s}", has_input ? c->calls[k].arguments.p : "{}");
}

void anthropic_whole(buffer *out, const request *r, choice *choices) {
    choice *c = &choices[0];
    int32_t k, n = 0;
    choice_end(c, r);
    add_message_head(out, r);
    buffer_text(out, ",\"content\":[");
    if (c->thinking.n) {
        add_block(out, THINKING, c->thinking.p, c->thinking.n);
        n++;
    }
    for (k = 0; k <= c->n_calls; k++) {
        const text_part text = choice_text(c, k);
        if (text.n || (k == c->n_calls && !n)) {
            buffer_text(out, n++ ? "," : "");
            add_block(out, TEXT, text.p, text.n);
        }
        if (k == c->n_calls) break;
        buffer_text(out, n++ ? "," : "");
        add_tool_use(out, r, c, k, 1);
    }
    buffer_text(out, "],");
    add_stop(out, r, c);
    buffer_text(out, ",");
    add_message_usage(out, r, r->texts[0].n_new);
    buffer_text(out, "}");
    out->failed |= choice_has_failed(c);
}

/* ---- streams ---- */

static void begin_named(buffer *out, const char *type) {
    buffer_format(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void end_named(buffer *out) { buffer_text(out, "}\n\n"); }

static void begin_message(buffer *out, const request *r, choice *c) {
    if (c->begun) return;
    c->begun = 1;
    begin_named(out, "message_start");
    buffer_text(out, ",\"message\":");
    add_message_head(out, r);
    buffer_text(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    add_message_usage(out, r, 0);
    buffer_text(out, "}");
    end_named(out);
    begin_named(out, "ping");
    end_named(out);
}

static void begin_delta(buffer *out, const choice *c, const char *type, const char *field) {
    begin_named(out, "content_block_delta");
    buffer_format(out, ",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":", (int)(c->n_items - 1),
                  type, field);
}

static void end_delta(buffer *out) {
    buffer_text(out, "}");
    end_named(out);
}

static void begin_block(buffer *out, choice *c) {
    begin_named(out, "content_block_start");
    buffer_format(out, ",\"index\":%d,\"content_block\":", (int)c->n_items++);
}

static void end_block(buffer *out, const choice *c) {
    begin_named(out, "content_block_stop");
    buffer_format(out, ",\"index\":%d", (int)(c->n_items - 1));
    end_named(out);
}

static void open_block(buffer *out, choice *c, int kind) {
    c->open = kind;
    begin_block(out, c);
    add_block(out, kind, "", 0);
    end_named(out);
}

static void close_block(buffer *out, choice *c) {
    if (!c->open) return;
    if (c->open == THINKING) {
        begin_delta(out, c, "signature_delta", "signature");
        buffer_text(out, "\"" SIGNATURE "\"");
        end_delta(out);
    }
    end_block(out, c);
    c->open = 0;
}

static void add_block_delta(buffer *out, choice *c, int kind, const char *p, size_t n) {
    if (c->open != kind) {
        close_block(out, c);
        open_block(out, c, kind);
    }
    begin_delta(out, c, kind == TEXT ? "text_delta" : "thinking_delta",
                kind == TEXT ? "text" : "thinking");
    buffer_json(out, p, n);
    end_delta(out);
}

/* A call is told when it is complete. */
static void add_tool_events(buffer *out, const request *r, choice *c, int32_t k) {
    begin_block(out, c);
    add_tool_use(out, r, c, k, 0);
    end_named(out);
    begin_delta(out, c, "input_json_delta", "partial_json");
    buffer_json(out, c->calls[k].arguments.p, c->calls[k].arguments.n);
    end_delta(out);
    end_block(out, c);
}

void anthropic_event(buffer *out, const request *r, int32_t i, choice *c) {
    int32_t k;
    (void)i;
    begin_message(out, r, c);
    if (!choice_has_news(c)) return;
    if (c->thinking.n) add_block_delta(out, c, THINKING, c->thinking.p, c->thinking.n);
    for (k = c->n_told_calls; k <= c->n_calls; k++) {
        const text_part text = choice_text(c, k);
        if (text.n) add_block_delta(out, c, TEXT, text.p, text.n);
        if (k == c->n_calls) break;
        close_block(out, c);
        add_tool_events(out, r, c, k);
    }
    out->failed |= choice_has_failed(c);
    choice_told(c);
}

void anthropic_last_event(buffer *out, const request *r, int32_t i, choice *c) {
    choice_end(c, r);
    anthropic_event(out, r, i, c);
    if (c->n_items == 0) open_block(out, c, TEXT);
    close_block(out, c);
    begin_named(out, "message_delta");
    buffer_text(out, ",\"delta\":{");
    add_stop(out, r, c);
    buffer_text(out, "},");
    add_message_usage(out, r, r->texts[0].n_new);
    end_named(out);
}

void anthropic_done(buffer *out, const request *r, choice *choices) {
    (void)r;
    (void)choices;
    begin_named(out, "message_stop");
    end_named(out);
}

/* ---- errors ---- */

void anthropic_error(buffer *out, const http_error *error) {
    static const struct { int status; const char *type; } types[] = {
        {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
        {413, "request_too_large"}, {429, "rate_limit_error"}, {503, "overloaded_error"}
    };
    const char *type = error->status >= 500 ? "api_error" : "invalid_request_error";
    size_t i;
    for (i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].status == error->status) type = types[i].type;
    buffer_format(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type);
    buffer_json(out, error->text, strlen(error->text));
    buffer_text(out, "}}");
}

void anthropic_error_event(buffer *out, const request *r, choice *choices,
                           const http_error *error) {
    (void)r;
    (void)choices;
    buffer_text(out, "event: error\ndata: ");
    anthropic_error(out, error);
    buffer_text(out, "\n\n");
}
