#include "rules.h"
#include "calls.h"
#include "messages.h"
#include <stdio.h>
#include <stdlib.h>
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

void rules_add_literal(buffer *out, const char *p) {
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
        if (text) rules_add_literal(&out->text, text);
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

enum { MOST_ALLOWED = 128 };           /* each is looked for among all tools */

/* A function that the model may call: {"type": "function", "function": {"name": ...}}. */
static void read_tool(reader *in, uint32_t node, buffer *out) {
    const uint32_t function = json_get(&in->j, node, "function");
    const char *name = node_string(in, json_get(&in->j, function, "name"));
    if (!json_is(&in->j, json_get(&in->j, node, "type"), "function"))
        refuse_field(in, "tools", "only tools of the type function are possible");
    else if (!name || !name[0]) refuse_field(in, "tools", "a function needs a name");
    else if (calls_are_xml(in->r->service) && !calls_have_name(name))
        refuse_field(in, "tools", "this model's calls have no <, > or newline in a function's "
                     "name");
    else {
        if (out->n) buffer_text(out, "\n");
        buffer_spaced(out, &in->j, node);
    }
}

/* A schema, an object, as one of several in a document. Its references begin at itself, since it
   has an $id there: its own, or one of ours. `more` are keywords that it also gets. */
static void put_schema(buffer *out, const json *j, uint32_t node, const char *name,
                       const char *more) {
    buffer schema = {0};
    buffer_value(&schema, j, node);
    buffer_text(out, "{");
    if (!json_get(j, node, "$id")) buffer_format(out, "\"$id\":\"urn:of:%s\",", name);
    buffer_text(out, more);
    if (schema.n > 2) buffer_add(out, schema.p + 1, schema.n - 1);
    else {
        out->n--;                      /* nothing follows the comma */
        buffer_text(out, "}");
    }
    out->failed |= schema.failed;
    buffer_free(&schema);
}

/* The schema of a function's arguments, which are an object; it will be #/$defs/n. */
static void add_parameters(reader *in, uint32_t function, unsigned n, buffer *out) {
    const uint32_t parameters = json_get(&in->j, function, "parameters"),
                   type = json_get(&in->j, parameters, "type");
    const int is_open = !type && !json_get(&in->j, parameters, "$ref") &&
                        !json_get(&in->j, parameters, "anyOf") &&
                        !json_get(&in->j, parameters, "oneOf") &&
                        !json_get(&in->j, parameters, "allOf");
    char name[16];
    if (parameters && json_kind(&in->j, parameters) != JSON_OBJECT)
        refuse_field(in, "tools", "parameters must be a JSON schema");
    else if (type && !json_is(&in->j, type, "object"))
        refuse_field(in, "tools", "parameters must have the type object");
    snprintf(name, sizeof name, "%u", n);
    if (failed(in)) return;
    if (parameters)
        put_schema(out, &in->j, parameters, name, is_open ? "\"type\":\"object\"," : "");
    else                               /* there are no parameters, says OpenAI */
        buffer_text(out, "{\"type\":\"object\",\"properties\":{}}");
}

/* Function number n as an alternative of calls. keeps: its arguments keep to its parameters, rather
   than being any object. */
static void add_function(reader *in, uint32_t function, unsigned n, int keeps, rules *out) {
    const uint32_t name = json_get(&in->j, function, "name");
    buffer front = {0};
    buffer_format(&out->defs, "%s\"%u\":", out->defs.n ? "," : "", n);
    if (keeps) add_parameters(in, function, n, &out->defs);
    else buffer_text(&out->defs, "{\"type\":\"object\"}");
    if (calls_are_xml(in->r->service)) {
        const uint32_t own = json_get(&in->j, json_get(&in->j, function, "parameters"), "$id");
        char id[32];
        snprintf(id, sizeof id, "urn:of:%u", n);
        if (!failed(in))
            calls_add_rules(in, function, n, keeps, own ? in->j.text + in->j.nodes[own].at : id,
                            out);
        return;
    }
    buffer_text(&front, "{\"name\": ");
    buffer_value(&front, &in->j, name);
    buffer_text(&front, ", \"arguments\": ");
    if (out->calls.n) buffer_text(&out->calls, " | ");
    rules_add_literal(&out->calls, front.p ? front.p : "");
    buffer_format(&out->calls, " def-%u \"}\"", n);
    out->calls.failed |= front.failed;
    buffer_free(&front);
}

typedef struct tool_choice {
    int is_none, must;                 /* the model does not see them; it must call */
    const char *name;                  /* this one; 0: any */
    uint32_t allowed;                  /* or one of this list; 0: any */
} tool_choice;

static uint32_t function_name(const reader *in, uint32_t tool) {
    return json_get(&in->j, json_get(&in->j, tool, "function"), "name");
}

/* Does a list of functions have one of this name? */
static int names_function(const reader *in, uint32_t list, const char *name) {
    uint32_t at = list + 1, i;
    for (i = 0; list && i < in->j.nodes[list].n; i++, at = in->j.nodes[at].next)
        if (json_is(&in->j, function_name(in, at), name)) return 1;
    return 0;
}

/* {"mode": "auto", "tools": [...]}: the model sees all tools, and calls are of these. */
static void read_allowed(reader *in, uint32_t node, tool_choice *c) {
    const uint32_t mode = json_get(&in->j, node, "mode"), list = json_get(&in->j, node, "tools");
    const uint32_t n = list && json_kind(&in->j, list) == JSON_ARRAY ? in->j.nodes[list].n : 0;
    uint32_t at = list + 1, i;
    c->must = json_is(&in->j, mode, "required");
    if (!c->must && !json_is(&in->j, mode, "auto"))
        refuse_field(in, "tool_choice", "the mode of allowed_tools must be auto or required");
    if (n == 0 || n > MOST_ALLOWED)
        refuse_field(in, "tool_choice", "allowed_tools needs tools, a list of 1 to 128 functions");
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        const char *name = node_string(in, function_name(in, at));
        if (!name || !json_is(&in->j, json_get(&in->j, at, "type"), "function"))
            refuse_field(in, "tool_choice", "only functions can be in allowed_tools");
        else if (!names_function(in, field_get(in, "tools"), name))
            refuse_field(in, "tool_choice", "tools has no function of this name");
    }
    c->allowed = list;
}

static tool_choice read_choice(reader *in) {
    const uint32_t choice = field_get(in, "tool_choice"),
                   type = json_get(&in->j, choice, "type"),
                   word = type ? type : choice;            /* Cursor sends {"type": "auto"} */
    tool_choice c = {0, 0, 0, 0};
    if (json_is(&in->j, type, "allowed_tools")) {
        read_allowed(in, json_get(&in->j, choice, "allowed_tools"), &c);
        return c;
    }
    c.name = node_string(in, function_name(in, choice));
    c.is_none = json_is(&in->j, word, "none");
    c.must = c.name || json_is(&in->j, word, "required");
    if ((c.name && !json_is(&in->j, type, "function")) ||
        (choice && !c.must && !c.is_none && !json_is(&in->j, word, "auto")))
        refuse_field(in, "tool_choice", "none, auto, required or {\"type\": \"function\", "
                     "\"function\": {\"name\": ...}} is needed");
    return c;
}

/* What calls of the tools keep to. */
static void add_functions(reader *in, uint32_t tools, const tool_choice *choice, rules *out) {
    const uint32_t n = in->j.nodes[tools].n;
    uint32_t at = tools + 1, i;
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        const uint32_t function = json_get(&in->j, at, "function");
        const uint32_t name = function_name(in, at);
        const int is_strict = field_bool(in, function, "strict");
        if (choice->name && !json_is(&in->j, name, choice->name)) continue;
        if (choice->allowed &&
            !names_function(in, choice->allowed, in->j.text + in->j.nodes[name].at)) continue;
        if (is_strict || choice->allowed) out->strict = is_strict ? "strict" : "tool_choice";
        add_function(in, function, (unsigned)i, is_strict || choice->must, out);
    }
    if (out->defs.n == 0)
        refuse_field(in, "tool_choice", "tools has no function of this name");
    if ((out->defs.failed || out->calls.failed) && !failed(in)) in->error = refuse_memory();
}

void rules_read_tools(reader *in, rules *keeps_to) {
    const uint32_t node = field_get(in, "tools"), old = field_get(in, "functions");
    const int many = field_bool_or_true(in, "parallel_tool_calls");
    tool_choice choice;
    uint32_t at = node + 1, i;
    buffer out = {0};
    if (old && json_kind(&in->j, old) != JSON_ARRAY)
        refuse_field(in, "functions", "a list is needed");
    else if (old && in->j.nodes[old].n > 0)
        refuse_field(in, "functions", "this was replaced by tools");
    if (node && json_kind(&in->j, node) != JSON_ARRAY)
        refuse_field(in, "tools", "a list is needed");
    choice = read_choice(in);
    if (choice.must && !failed(in) && (!node || in->j.nodes[node].n == 0))
        refuse_field(in, "tool_choice", "there are no tools");
    if (!node || failed(in) || in->j.nodes[node].n == 0) return;
    if (!in->r->is_chat) refuse_field(in, "tools", "only chats have tools");
    for (i = 0; i < in->j.nodes[node].n && !failed(in); i++, at = in->j.nodes[at].next)
        read_tool(in, at, &out);
    if (out.failed) in->error = refuse_memory();
    if (!failed(in) && !choice.is_none) add_functions(in, node, &choice, keeps_to);
    if (failed(in) || choice.is_none) {
        buffer_free(&out);
        return;
    }
    in->r->must_call = choice.must;
    in->r->one_call = !many || choice.name;
    in->r->tools = out.p;
    in->r->chat.tools = bitnet_text_of(out.p);
}

/* ---- the grammar ---- */

/* How the reply begins: what the client has written of it is divided. */
static bitnet_reply begin_reply(const request *r) {
    const char *text = r->begun ? r->begun : "", *part_text;
    size_t n = strlen(text), size;
    bitnet_reply parts;
    bitnet_reply_part part;
    bitnet_reply_begin(&parts, r->service->model, &r->chat);
    while (bitnet_reply_next(&parts, &text, &n, &part, &part_text, &size)) {}
    return parts;
}

static int is_token(const request *r, const char *tag) {
    return bitnet_token_find(r->service->model, tag, strlen(tag)) >= 0;
}

/* A tag of a call: the token, where it is one. */
static const char *tag_of(const request *r, const char *tag, char room[24]) {
    snprintf(room, 24, is_token(r, tag) ? "%s" : "\"%s\"", tag);
    return room;
}

/* Any text without a tag. Each < may begin it, so as much of it as there may be (free-part) stands
   before the end, the next <, or a character with which it is no tag (free-on):

       free ::= ([^<] | free-part* free-on)* free-part*
       free-part ::= "<" ("t" ("o" ...)?)?
       free-on ::= "<" [^<t] | "<t" [^<o] | ... */
static void add_free(buffer *out) {
    static const char tag[] = "<tool_call>";
    const size_t n = sizeof tag - 1;
    size_t i;
    buffer_text(out, "free ::= ([^<] | free-part* free-on)* free-part*\nfree-part ::= \"<\"");
    for (i = 1; i + 1 < n; i++) buffer_format(out, " (\"%c\"", tag[i]);
    for (i = 1; i + 1 < n; i++) buffer_text(out, ")?");
    buffer_text(out, "\nfree-on ::= ");
    for (i = 1; i < n; i++)
        buffer_format(out, "%s\"%.*s\" [^<%c]", i > 1 ? " | " : "", (int)i, tag, tag[i]);
    buffer_text(out, "\n");
}

/* Does the reply keep to what calls have to be? If text has a schema, it is that or calls. */
static int binds_calls(const request *r, const rules *from) {
    return from->calls.n && (r->must_call || from->strict || (from->field && from->is_schema));
}

/* The rules around the schemas: what thinking, text and calls may follow each other. */
static void add_around(const request *r, const rules *from, buffer *out) {
    const bitnet_reply parts = begin_reply(r);
    const int binds = binds_calls(r, from), is_free = binds && !r->must_call && !from->field,
              thinks = r->is_chat && parts.part == BITNET_REPLY_THINKING,
              may_think = is_free && parts.thinks && !parts.begun && !thinks &&
                          is_token(r, "<think>") && is_token(r, "</think>");
    char open[24], close[24];
    if (!thinks && !binds) return;     /* only the text itself, whose errors name its own places */
    if (thinks || may_think) buffer_text(out, BITNET_GRAMMAR_THOUGHT);
    buffer_text(out, "text ::= ");
    if (thinks) buffer_text(out, is_free ? "thought " : "thought \"\\n\\n\" ");
    if (may_think) buffer_text(out, "(<think> thought)? ");
    buffer_text(out, is_free ? "free calls?\n" : !binds ? "root\n" : r->must_call ? "calls\n" :
                     "(def-text | calls)\n");
    if (!binds) return;
    if (is_free) add_free(out);
    if (calls_are_xml(r->service)) calls_add_common(out);
    buffer_format(out, "calls ::= %s\ncall ::= %s \"\\n\" (%s) \"\\n\" %s\n",
                  r->one_call ? "call" : "call (\"\\n\" call)*", tag_of(r, "<tool_call>", open),
                  from->calls.p, tag_of(r, "</tool_call>", close));
}

/* The schemas of the text and of calls, as $defs of one. */
static void add_document(reader *in, const rules *from, buffer *out) {
    json j;
    bitnet_error err;
    memset(&j, 0, sizeof j);
    buffer_format(out, "{\"$defs\":{%s", from->defs.p);
    if (calls_are_xml(in->r->service)) calls_add_defs(out);
    if (from->field && !in->r->must_call) {
        buffer_text(out, ",\"text\":");
        j.size = from->text.n;
        j.text = strdup(from->text.p);
        if (!j.text) in->error = refuse_memory();
        else if (j.size == 0 || json_parse(&j, &err))
            refuse_field(in, from->field, "a JSON schema is needed");
        else if (json_kind(&j, JSON_ROOT) == JSON_OBJECT)
            put_schema(out, &j, JSON_ROOT, "text", "");
        else buffer_value(out, &j, JSON_ROOT);
        json_free(&j);
    }
    buffer_text(out, "}}");
    if (out->failed && !failed(in)) in->error = refuse_memory();
}

/* Why the rules are no grammar. Where a schema is to blame, its own pointer tells the place:
   #/$defs/0/items: ... becomes tools[0].function.parameters: #/items: ... */
static http_error refuse_rules(const request *r, const rules *from, bitnet_result code,
                               const char *text) {
    static const char defs[] = "#/$defs/", own[] = "#/$defs/text";
    const int status = code == BITNET_ERR_MEMORY ? 503 : 400;
    const char *at = binds_calls(r, from) ? strstr(text, defs) : 0,
               *param = r->must_call ? "tool_choice" : from->strict ? "tools" : from->field;
    size_t n;
    if (!at) return refuse(status, param, "%s: %s", param, text);
    if (from->field && !strncmp(at, own, sizeof own - 1))
        return refuse(status, from->field, "%s: #%s", from->field, at + sizeof own - 1);
    at += sizeof defs - 1;
    n = strspn(at, "0123456789");
    return refuse(status, param, "tools[%.*s].function.parameters: #%s", (int)n, at,
                  at + strspn(at, "-0123456789"));
}

/* What cannot be together. */
static void check_rules(reader *in, const rules *from) {
    const request *r = in->r;
    const char *what = r->must_call ? "tool_choice" : from->strict;
    bitnet_reply parts;
    if (!r->must_call && !from->strict) return;
    parts = begin_reply(r);
    if (from->field && !from->is_schema)
        in->error = refuse(400, from->field, "%s and %s exclude each other", what, from->field);
    else if (r->must_call && r->begun)
        refuse_field(in, "tool_choice", "a reply that has begun cannot be made to call");
    else if (parts.part == BITNET_REPLY_TOOL_CALL || parts.n_held)
        refuse_field(in, "tools", "a call that has begun cannot be made strict");
}

void rules_compile(reader *in, const rules *from) {
    request *r = in->r;
    service *s = r->service;
    bitnet_grammar_params params;
    bitnet_error err = {0};
    bitnet_result code = BITNET_OK;
    buffer around = {0}, document = {0};
    const int binds = r->binds_calls = binds_calls(r, from);
    const buffer *text = binds ? &document : &from->text;
    if (failed(in) || (!from->field && !binds)) return;
    check_rules(in, from);
    if (!failed(in)) add_around(r, from, &around);
    if (!failed(in) && binds) add_document(in, from, &document);
    memset(&params, 0, sizeof params);
    if (!failed(in)) code = service_vocabulary(s, &params.like, &err);
    params.around = bitnet_text_of(around.p);
    if (around.failed && !failed(in)) in->error = refuse_memory();
    else if (code == BITNET_OK && !failed(in))
        code = (binds || from->is_schema ? bitnet_grammar_json_schema : bitnet_grammar_gbnf)
                   (s->model, text->p, text->n, &params, &r->grammar, &err);
    if (code) in->error = refuse_rules(r, from, code, err.text);
    buffer_free(&around);
    buffer_free(&document);
}

void rules_free(rules *r) {
    buffer_free(&r->text);
    buffer_free(&r->defs);
    buffer_free(&r->calls);
}
