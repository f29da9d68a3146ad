#include "rules.h"
#include "messages.h"
#include <stdio.h>
#include <string.h>

/* ---- structured output ---- */

/* Returns 0 if there are rules already. */
static int begin_rules(reader *in, rules *out, const char *field, int is_schema) {
    if (failed(in)) return 0;
    if (out->field) {
        in->error = refuse(400, field, "%s and %s exclude each other", out->field, field);
        return 0;
    }
    out->field = field;
    out->is_schema = is_schema;
    return 1;
}

static void take_object(reader *in, rules *out, const char *field) {
    if (begin_rules(in, out, field, 1)) buffer_text(&out->text, "{\"type\": \"object\"}");
}

/* A schema, which some clients write as JSON in a string. */
static void take_schema(reader *in, rules *out, const char *field, uint32_t node) {
    const char *text = node_string(in, node);
    const json_type kind = json_kind(&in->j, node);
    if (!text && kind != JSON_OBJECT && kind != JSON_TRUE && kind != JSON_FALSE)
        refuse_field(in, field, "a JSON schema is needed");
    else if (!begin_rules(in, out, field, 1)) return;
    else if (text) buffer_text(&out->text, text);
    else buffer_value(&out->text, &in->j, node);
}

static void take_grammar(reader *in, rules *out, const char *field, uint32_t node) {
    const char *text = node_string(in, node);
    if (!text) refuse_field(in, field, "a string without NUL is needed");
    else if (begin_rules(in, out, field, 0)) buffer_text(&out->text, text);
}

/* A string in a grammar. */
static void add_literal(buffer *out, const char *p) {
    buffer_text(out, "\"");
    for (; *p; p++) {
        const uint8_t c = (uint8_t)*p;
        if (c < 0x20 || c == 0x7f || c == '"' || c == '\\') buffer_format(out, "\\x%02X", c);
        else buffer_add(out, p, 1);
    }
    buffer_text(out, "\"");
}

/* One of these texts. */
static void take_choice(reader *in, rules *out, const char *field, uint32_t node) {
    const uint32_t n = json_kind(&in->j, node) == JSON_ARRAY ? in->j.nodes[node].n : 0;
    uint32_t at = node + 1, i;
    if (n == 0) refuse_field(in, field, "a list of texts is needed");
    if (!begin_rules(in, out, field, 0)) return;
    buffer_text(&out->text, "root ::= ");
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        const char *text = node_string(in, at);
        if (i) buffer_text(&out->text, " | ");
        if (text) add_literal(&out->text, text);
        else refuse_field(in, field, "a list of strings without NUL is needed");
    }
}

/* OpenAI's, where llama.cpp's server also takes a schema beside the type, of json_object too. */
static void take_format(reader *in, rules *out, const char *name, uint32_t node) {
    const uint32_t type = json_get(&in->j, node, "type"),
                   format = json_get(&in->j, node, "json_schema"),
                   beside = json_get(&in->j, node, "schema"),
                   schema = beside ? beside : json_get(&in->j, format, "schema");
    const int is_object = json_is(&in->j, type, "json_object");
    if (json_is(&in->j, type, "text")) return;
    if (beside && format) refuse_field(in, name, "schema and json_schema exclude each other");
    else if (!is_object && !json_is(&in->j, type, "json_schema"))
        refuse_field(in, name, "its type must be text, json_object or json_schema");
    else if (schema) take_schema(in, out, name, schema);
    else if (is_object && !format) take_object(in, out, name);
    else refuse_field(in, name, "json_schema: {\"schema\": ...} is needed");
}

/* vLLM's: an object with one of json, json_object and choice. */
static void take_structured(reader *in, rules *out, const char *name, uint32_t node) {
    const uint32_t n = json_kind(&in->j, node) == JSON_OBJECT ? in->j.nodes[node].n : 0;
    uint32_t at = node + 1, i;
    if (json_kind(&in->j, node) != JSON_OBJECT) refuse_field(in, name, "an object is needed");
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at + 1].next) {
        const json_type kind = json_kind(&in->j, at + 1);
        if (kind == JSON_NULL || kind == JSON_FALSE) continue;
        if (json_is(&in->j, at, "json")) take_schema(in, out, name, at + 1);
        else if (json_is(&in->j, at, "choice")) take_choice(in, out, name, at + 1);
        else if (json_is(&in->j, at, "json_object") && kind == JSON_TRUE)
            take_object(in, out, name);
        else refuse_field(in, name, "only json, json_object: true and choice are possible; the "
                          "field grammar takes llama.cpp's GBNF");
    }
}

/* Ollama's: json, or a schema. */
static void take_ollama(reader *in, rules *out, const char *name, uint32_t node) {
    if (json_is(&in->j, node, "json")) take_object(in, out, name);
    else if (json_kind(&in->j, node) == JSON_OBJECT) take_schema(in, out, name, node);
    else if (!json_is(&in->j, node, ""))
        refuse_field(in, name, "\"json\" or a JSON schema is needed");
}

/* All fields that can say it. */
static const struct rule_field {
    const char *name;
    void (*take)(reader *in, rules *out, const char *name, uint32_t node);
} rule_fields[] = {
    {"response_format", take_format}, {"grammar", take_grammar}, {"json_schema", take_schema},
    {"guided_json", take_schema}, {"guided_choice", take_choice},
    {"structured_outputs", take_structured}, {"format", take_ollama}
};

void rules_read(reader *in, rules *out) {
    size_t i;
    for (i = 0; i < sizeof rule_fields / sizeof rule_fields[0] && !failed(in); i++) {
        const uint32_t node = field_get(in, rule_fields[i].name);
        if (node) rule_fields[i].take(in, out, rule_fields[i].name, node);
    }
    buffer_add(&out->text, "", 0);
    if (out->text.failed && !failed(in)) in->error = refuse_memory();
}

/* ---- tools ---- */

/* A function that the model may call: {"type": "function", "function": {"name": ...}}. */
static void read_tool(reader *in, uint32_t node, buffer *out) {
    const uint32_t function = json_get(&in->j, node, "function");
    const char *name = node_string(in, json_get(&in->j, function, "name"));
    if (!json_is(&in->j, json_get(&in->j, node, "type"), "function"))
        refuse_field(in, "tools", "only tools of the type function are possible");
    else if (!name || !name[0]) refuse_field(in, "tools", "a function needs a name");
    else {
        if (out->n) buffer_text(out, "\n");
        buffer_spaced(out, &in->j, node);
    }
}

/* Where a schema's values are names or data, and no schemas. */
static int is_map(const json *j, uint32_t key) {
    return json_is(j, key, "properties") || json_is(j, key, "patternProperties") ||
           json_is(j, key, "$defs") || json_is(j, key, "definitions") ||
           json_is(j, key, "dependentSchemas");
}

static int is_data(const json *j, uint32_t key) {
    return json_is(j, key, "const") || json_is(j, key, "enum") || json_is(j, key, "default") ||
           json_is(j, key, "examples") || json_is(j, key, "example");
}

/* A schema as a part of another one, where `root` is its place: its references begin there. names:
   the keys of an object are not keywords. Values nest at most JSON_DEPTH deep. */
static void put_schema(buffer *out, const json *j, uint32_t node, const char *root, int names) {
    const json_node *v = &j->nodes[node];
    const int is_object = v->type == JSON_OBJECT;
    uint32_t at = node + 1, i;
    if (!is_object && v->type != JSON_ARRAY) {
        buffer_value(out, j, node);
        return;
    }
    buffer_text(out, is_object ? "{" : "[");
    for (i = 0; i < v->n; i++, at = j->nodes[at].next) {
        const uint32_t key = is_object && !names ? at : 0;
        const char *text;
        if (i) buffer_text(out, ",");
        if (is_object) {
            buffer_value(out, j, at++);
            buffer_text(out, ":");
        }
        text = json_kind(j, at) == JSON_STRING ? j->text + j->nodes[at].at : "";
        if (key && json_is(j, key, "$ref") && text[0] == '#') {
            buffer ref = {0};
            buffer_text(&ref, root);
            buffer_add(&ref, text + 1, j->nodes[at].len - 1);
            buffer_json(out, ref.p ? ref.p : "", ref.n);
            out->failed |= ref.failed;
            buffer_free(&ref);
        } else if (key && is_data(j, key)) buffer_value(out, j, at);
        else put_schema(out, j, at, root, key && is_map(j, key));
    }
    buffer_text(out, is_object ? "}" : "]");
}

/* What calls of a function keep to, as alternative n of the rules: the name, and arguments that
   are an object with the function's parameters. */
static void add_function(reader *in, uint32_t function, unsigned n, buffer *out) {
    const uint32_t name = json_get(&in->j, function, "name"),
                   parameters = json_get(&in->j, function, "parameters"),
                   type = json_get(&in->j, parameters, "type");
    const int is_open = !type && !json_get(&in->j, parameters, "$ref") &&
                        !json_get(&in->j, parameters, "anyOf") &&
                        !json_get(&in->j, parameters, "oneOf") &&
                        !json_get(&in->j, parameters, "allOf");
    buffer schema = {0};
    char root[64];
    if (parameters && json_kind(&in->j, parameters) != JSON_OBJECT)
        refuse_field(in, "tools", "parameters must be a JSON schema");
    else if (type && !json_is(&in->j, type, "object"))
        refuse_field(in, "tools", "parameters must have the type object");
    snprintf(root, sizeof root, "#/anyOf/%u/properties/arguments", n);
    if (parameters) put_schema(&schema, &in->j, parameters, root, 0);
    else buffer_text(&schema, "{\"properties\":{}}");     /* there are no parameters, says OpenAI */
    buffer_text(out, n ? "," : "{\"anyOf\":[");
    buffer_text(out, "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":");
    buffer_value(out, &in->j, name);
    buffer_text(out, "},\"arguments\":{");
    if (is_open) buffer_text(out, schema.n > 2 ? "\"type\":\"object\"," : "\"type\":\"object\"");
    buffer_add(out, schema.p ? schema.p + 1 : "", schema.n ? schema.n - 1 : 0);
    buffer_text(out, "},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}");
    out->failed |= schema.failed;
    buffer_free(&schema);
}

typedef struct tool_choice {
    int is_none, must;                 /* the model does not see them; it must call */
    const char *name;                  /* this one; 0: any */
} tool_choice;

static tool_choice read_choice(reader *in) {
    const uint32_t choice = field_get(in, "tool_choice");
    tool_choice c = {0, 0, 0};
    c.name = node_string(in, json_get(&in->j, json_get(&in->j, choice, "function"), "name"));
    c.is_none = json_is(&in->j, choice, "none");
    c.must = c.name || json_is(&in->j, choice, "required");
    if ((c.name && !json_is(&in->j, json_get(&in->j, choice, "type"), "function")) ||
        (choice && !c.must && !c.is_none && !json_is(&in->j, choice, "auto")))
        refuse_field(in, "tool_choice", "none, auto, required or {\"type\": \"function\", "
                     "\"function\": {\"name\": ...}} is needed");
    return c;
}

/* The rules of a reply that must call. */
static void force_call(reader *in, uint32_t tools, const char *only, rules *out) {
    const uint32_t n = in->j.nodes[tools].n;
    uint32_t at = tools + 1, i;
    unsigned count = 0;
    if (!begin_rules(in, out, "tool_choice", 1)) return;
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        const uint32_t function = json_get(&in->j, at, "function");
        if (!only || json_is(&in->j, json_get(&in->j, function, "name"), only))
            add_function(in, function, count++, &out->text);
    }
    buffer_text(&out->text, "]}");
    if (count == 0) refuse_field(in, "tool_choice", "tools has no function of this name");
    in->r->must_call = 1;
}

void rules_read_tools(reader *in, rules *keeps_to) {
    const uint32_t node = field_get(in, "tools"), old = field_get(in, "functions");
    const int many = field_bool_or_true(in, "parallel_tool_calls");
    const tool_choice choice = read_choice(in);
    const bitnet_chat_template *t = messages_template(in);
    uint32_t at = node + 1, i;
    buffer out = {0};
    if (old && json_kind(&in->j, old) != JSON_ARRAY)
        refuse_field(in, "functions", "a list is needed");
    else if (old && in->j.nodes[old].n > 0)
        refuse_field(in, "functions", "this was replaced by tools");
    if (node && json_kind(&in->j, node) != JSON_ARRAY)
        refuse_field(in, "tools", "a list is needed");
    if (choice.must && !failed(in) && (!node || in->j.nodes[node].n == 0))
        refuse_field(in, "tool_choice", "there are no tools");
    if (!node || failed(in) || in->j.nodes[node].n == 0) return;
    if (!in->r->is_chat) refuse_field(in, "tools", "only chats have tools");
    else if (!t || !t->tools_before.data)
        refuse_field(in, "tools", "the chat template of this model has no tools");
    for (i = 0; i < in->j.nodes[node].n && !failed(in); i++, at = in->j.nodes[at].next)
        read_tool(in, at, &out);
    if (out.failed) in->error = refuse_memory();
    if (choice.must && !failed(in)) force_call(in, node, choice.name, keeps_to);
    if (failed(in) || choice.is_none) {
        buffer_free(&out);
        return;
    }
    in->r->one_call = !many || choice.name;
    in->r->tools = out.p;
    in->r->chat.tools = bitnet_text_of(out.p);
}

/* ---- the grammar ---- */

/* Does the reply begin inside of thinking? */
static int begins_in_thought(const request *r) {
    const char *text = r->begun ? r->begun : "", *part_text;
    size_t n = strlen(text), size;
    bitnet_reply parts;
    bitnet_reply_part part;
    bitnet_reply_begin(&parts, r->service->model, &r->chat);
    while (bitnet_reply_next(&parts, &text, &n, &part, &part_text, &size)) {}
    return parts.part == BITNET_REPLY_THINKING;
}

/* A tag of a call: the token, where it is one. */
static const char *tag_of(const request *r, const char *tag, char room[24]) {
    const int is_token = bitnet_token_find(r->service->model, tag, strlen(tag)) >= 0;
    snprintf(room, 24, is_token ? "%s" : "\"%s\"", tag);
    return room;
}

/* What stands around the rules in the reply: thinking in front, and the tags of calls. */
static void add_around(const request *r, buffer *out) {
    const int thinks = r->is_chat && begins_in_thought(r);
    char open[24], close[24];
    if (thinks) buffer_text(out, BITNET_GRAMMAR_THOUGHT);
    buffer_format(out, "text ::= %s%s", thinks ? "thought \"\\n\\n\" " : "",
                  !r->must_call ? "root\n" : r->one_call ? "call\n" : "call (\"\\n\" call)*\n");
    if (r->must_call)
        buffer_format(out, "call ::= %s \"\\n\" root \"\\n\" %s\n",
                      tag_of(r, "<tool_call>", open), tag_of(r, "</tool_call>", close));
    buffer_add(out, "", 1);
}

void rules_compile(reader *in, const rules *from) {
    request *r = in->r;
    service *s = r->service;
    bitnet_grammar_params params;
    bitnet_error err = {0};
    bitnet_result code = BITNET_OK;
    buffer around = {0};
    if (r->must_call && r->begun)
        refuse_field(in, "tool_choice", "a reply that has begun cannot be made to call");
    if (!from->field || failed(in)) return;
    add_around(r, &around);
    memset(&params, 0, sizeof params);
    code = service_vocabulary(s, &params.like, &err);
    params.around = bitnet_text_of(around.p);
    if (from->text.failed || around.failed) in->error = refuse_memory();
    else if (code == BITNET_OK)
        code = (from->is_schema ? bitnet_grammar_json_schema : bitnet_grammar_gbnf)
                   (s->model, from->text.p, from->text.n, &params, &r->grammar, &err);
    if (code) in->error = refuse(code == BITNET_ERR_MEMORY ? 503 : 400, from->field, "%s: %s",
                                 from->field, err.text);
    buffer_free(&around);
}
