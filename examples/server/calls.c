#include "calls.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int calls_are_xml(const service *s) {
    const bitnet_chat_template *t = bitnet_model_chat_template(s->model);
    return t && t->call_form == BITNET_CALL_XML;
}

int calls_have_name(const char *name) { return name[0] && !strpbrk(name, "<>\n"); }

/* ---- what values a schema allows ---- */

enum {
    STRINGS = 1 << JSON_STRING,
    ALL_KINDS = (1 << (JSON_OBJECT + 1)) - 1,
    QUOTED = 1 << 8,                   /* also strings in quotes: the schema was not found */
    DEEPEST = 8,                       /* schemas in each other, references counted */
    MOST = 1000                        /* schemas that are looked at for a value, or a function
                                          and 16 more for each of its parameters: with references,
                                          eight levels can stand for billions */
};

/* The schema that this one refers to: itself, if it does not; 0: it is elsewhere. */
static uint32_t referred(const json *j, uint32_t root, uint32_t schema) {
    static const struct { const char *prefix, *key; } places[] = {
        {"#/$defs/", "$defs"}, {"#/definitions/", "definitions"}, {"#/properties/", "properties"}};
    const uint32_t node = json_get(j, schema, "$ref");
    const char *ref = node && json_kind(j, node) == JSON_STRING ? j->text + j->nodes[node].at : "";
    size_t i;
    if (!node) return schema;
    for (i = 0; i < sizeof places / sizeof places[0]; i++) {
        const size_t n = strlen(places[i].prefix);
        if (!strncmp(ref, places[i].prefix, n) && !strpbrk(ref + n, "/~%"))
            return json_get(j, json_get(j, root, places[i].key), ref + n);
    }
    return 0;
}

/* The list of schemas of which a value keeps one; 0: there is none. */
static uint32_t alternatives(const json *j, uint32_t schema) {
    const uint32_t any = json_get(j, schema, "anyOf"),
                   list = any ? any : json_get(j, schema, "oneOf");
    return list && json_kind(j, list) == JSON_ARRAY && j->nodes[list].n > 0 ? list : 0;
}

/* The kinds that a name of `type` stands for. */
static int kinds_of_type(const json *j, uint32_t node) {
    static const struct { const char *name; int kinds; } types[] = {
        {"string", STRINGS}, {"number", 1 << JSON_NUMBER}, {"integer", 1 << JSON_NUMBER},
        {"boolean", 1 << JSON_TRUE | 1 << JSON_FALSE}, {"null", 1 << JSON_NULL},
        {"object", 1 << JSON_OBJECT}, {"array", 1 << JSON_ARRAY}};
    size_t i;
    for (i = 0; i < sizeof types / sizeof types[0]; i++)
        if (json_is(j, node, types[i].name)) return types[i].kinds;
    return ALL_KINDS;
}

/* The kinds of values that a schema allows, as bits 1 << kind. root: where references begin. left:
   of the schemas that may be looked at; this counts it down. */
static int kinds_of(const json *j, uint32_t root, uint32_t schema, int depth, int *left) {
    const uint32_t target = referred(j, root, schema), type = json_get(j, target, "type"),
                   listed = json_get(j, target, "enum"), only = json_get(j, target, "const");
    uint32_t list = alternatives(j, target), at, i;
    int kinds = 0;
    if (!target || depth == DEEPEST || (*left)-- <= 0) return ALL_KINDS | QUOTED;
    if (only) return 1 << json_kind(j, only);
    if (listed && json_kind(j, listed) == JSON_ARRAY) list = listed;
    else if (!list && type && json_kind(j, type) == JSON_ARRAY) list = type;
    for (i = 0, at = list + 1; list && i < j->nodes[list].n; i++, at = j->nodes[at].next)
        kinds |= list == listed ? 1 << json_kind(j, at)
                 : list == type ? kinds_of_type(j, at) : kinds_of(j, root, at, depth + 1, left);
    return list ? kinds : type ? kinds_of_type(j, type) : ALL_KINDS;
}

/* The schema of a parameter; 0: the function names none of this name. */
static uint32_t parameter_of(const json *j, uint32_t parameters, const char *name) {
    return json_get(j, json_get(j, parameters, "properties"), name);
}

/* ---- writing ---- */

static void write_value(buffer *out, const json *j, uint32_t node) {
    if (json_kind(j, node) == JSON_STRING)
        buffer_add(out, j->text + j->nodes[node].at, j->nodes[node].len);
    else buffer_spaced(out, j, node);
}

void calls_write(buffer *out, const char *name, const json *j, uint32_t arguments) {
    uint32_t at = arguments + 1, i;
    buffer_format(out, "<function=%s>\n", name);
    for (i = 0; i < j->nodes[arguments].n; i++, at = j->nodes[at + 1].next) {
        buffer_format(out, "<parameter=%s>\n", j->text + j->nodes[at].at);
        write_value(out, j, at + 1);
        buffer_text(out, "\n</parameter>\n");
    }
    buffer_text(out, "</function>");
}

/* ---- reading ---- */

static const char *skip_blanks(const char *p) { return p + strspn(p, " \t\r\n"); }

/* Reads a tag with a name, <function=NAME>. Returns what is behind it; 0: there is none. */
static const char *read_tag(const char *p, const char *tag, buffer *name) {
    const size_t n = strlen(tag), size = strcspn(strncmp(p, tag, n) ? "" : p + n, ">\n");
    name->n = 0;
    if (size == 0 || p[n + size] != '>') return 0;
    buffer_add(name, p + n, size);
    return p + n + size + 1;
}

/* Where a value ends: at the first </parameter> behind which the call goes on; as a pattern in
   JSON. */
#define END_OF_VALUE "\"</parameter>[ \\t\\r\\n]*(<parameter=|</function>)\""
static const char *end_of_value(const char *p) {
    static const char close[] = "</parameter>";
    for (; (p = strstr(p, close)) != 0; p++) {
        const char *next = skip_blanks(p + sizeof close - 1);
        if (!strncmp(next, "<parameter=", 11) || !strncmp(next, "</function>", 11)) return p;
    }
    return 0;
}

int calls_are_open(const char *text) {
    while ((text = strstr(text, "<parameter=")) != 0)
        if (!(text = end_of_value(text))) return 1;
    return 0;
}

static int parse_bytes(json *j, const char *text, size_t n) {
    memset(j, 0, sizeof *j);
    j->size = n;
    j->text = (char *)malloc(n + 1);
    if (!j->text || n == 0) return 0;
    memcpy(j->text, text, n);
    j->text[n] = 0;
    return json_parse(j, 0) == BITNET_OK;
}

/* Adds a value of one of these kinds as JSON. */
static void add_value(buffer *out, const char *p, size_t n, int kinds) {
    json j;
    const int is_json = kinds != STRINGS && parse_bytes(&j, p, n);
    const json_type kind = is_json ? json_kind(&j, JSON_ROOT) : JSON_STRING;
    if (is_json && (kind != JSON_STRING || kinds & QUOTED) &&
        (kinds & 1 << kind || !(kinds & STRINGS)))
        buffer_value(out, &j, JSON_ROOT);
    else buffer_json(out, p, n);
    if (kinds != STRINGS) json_free(&j);
}

/* The parameters of the function of this name among tools, in j, which must be freed; 0: it has
   none. */
static uint32_t find_function(json *j, const char *tools, const char *name) {
    while (*tools) {
        const size_t n = strcspn(tools, "\n");
        if (parse_bytes(j, tools, n)) {
            const uint32_t function = json_get(j, JSON_ROOT, "function");
            if (json_is(j, json_get(j, function, "name"), name))
                return json_get(j, function, "parameters");
        }
        json_free(j);
        memset(j, 0, sizeof *j);
        tools += n + (tools[n] == '\n');
    }
    return 0;
}

/* Of a parameter that the function does not name, objects and lists are JSON, and all else text. */
enum { OF_UNKNOWN = STRINGS | 1 << JSON_OBJECT | 1 << JSON_ARRAY };

static const char *read_parameters(const char *p, const json *tool, uint32_t parameters,
                                   buffer *arguments) {
    buffer name = {0};
    buffer_text(arguments, "{");
    while (p && strncmp(p = skip_blanks(p), "</function>", 11)) {
        const char *end;
        uint32_t schema;
        int left = MOST;
        p = read_tag(p, "<parameter=", &name);
        end = p ? end_of_value(p) : 0;
        if (!end) {
            p = 0;
            break;
        }
        if (arguments->n > 1) buffer_text(arguments, ",");
        buffer_json(arguments, name.p, name.n);
        buffer_text(arguments, ":");
        p += *p == '\n';
        schema = parameter_of(tool, parameters, name.p);
        add_value(arguments, p, (size_t)(end - p) - (end > p && end[-1] == '\n'),
                  schema ? kinds_of(tool, parameters, schema, 0, &left) : OF_UNKNOWN);
        p = end + 12;
    }
    buffer_text(arguments, "}");
    arguments->failed |= name.failed;
    buffer_free(&name);
    return p ? skip_blanks(p + 11) : 0;
}

int calls_read(const char *text, size_t n, const char *tools, buffer *name, buffer *arguments) {
    char *copy = (char *)malloc(n + 1);
    const char *p = 0;
    json tool;
    memset(&tool, 0, sizeof tool);
    name->failed |= !copy;
    if (copy && !memchr(text, 0, n)) {
        memcpy(copy, text, n);
        copy[n] = 0;
        p = read_tag(skip_blanks(copy), "<function=", name);
    }
    if (p) {
        const uint32_t parameters = find_function(&tool, tools ? tools : "", name->p);
        p = read_parameters(p, &tool, parameters, arguments);
    }
    n = p ? strlen(p) : 1;
    json_free(&tool);
    free(copy);
    return n == 0;
}

/* ---- grammars ---- */

/* What one function's rules are made of. */
typedef struct form {
    reader *in;
    uint32_t root;                     /* its parameters */
    const char *id;                    /* their $id */
    unsigned function, n_defs;
    int left;                          /* schemas that may be looked at */
    rules *out;
} form;

static void add_pointer(buffer *out, const char *key) {
    buffer_text(out, "/");
    for (; *key; key++) {
        const unsigned char c = (unsigned char)*key;
        if (c == '~' || c == '/') buffer_text(out, c == '~' ? "~0" : "~1");
        else if (c < 0x21 || c > 0x7e || strchr("\"%<>\\^`{|}", c)) buffer_format(out, "%%%02X", c);
        else buffer_add(out, key, 1);
    }
}

/* A value of a schema that is at this path of the parameters, or of those that something leaves. It
   is a schema of the document, which refers to the place. */
static void add_value_rule(form *f, const char *kind, const char *path, const char *more) {
    buffer ref = {0}, *defs = &f->out->defs;
    buffer_format(&ref, "%s#%s", f->id, path);
    buffer_format(defs, ",\"%u-%u\":{\"$ref\":", f->function, f->n_defs);
    buffer_json(defs, ref.p ? ref.p : "", ref.n);
    buffer_format(defs, "%s}", more);
    buffer_format(&f->out->calls, "%s-%u-%u", kind, f->function, f->n_defs++);
    defs->failed |= ref.failed;
    buffer_free(&ref);
}

/* The text of a string that keeps to its schema, and in which no value seems to end. Beside that
   each length is states of its own, which would be very many: where nothing else binds it, only
   that it may not be empty is kept. */
static void add_text_of(form *f, uint32_t schema, const char *path) {
    static const char *const binds[] = {"pattern", "format", "enum", "const", "anyOf", "oneOf",
                                        "allOf", "not", "if"};
    const json *j = &f->in->j;
    const uint32_t target = referred(j, f->root, schema), least = json_get(j, target, "minLength");
    int is_free = json_get(j, target, "maxLength") ||
                  (least && json_kind(j, least) == JSON_NUMBER && node_number(j, least) > 1);
    size_t i;
    for (i = 0; i < sizeof binds / sizeof *binds; i++) is_free &= !json_get(j, target, binds[i]);
    if (is_free) buffer_text(&f->out->calls, "xml-text");
    else add_value_rule(f, "raw", path, ",\"not\":{\"pattern\":" END_OF_VALUE "}");
}

/* The value of a parameter: the text of a string, or JSON. */
static void add_value_of(form *f, uint32_t schema, const char *path) {
    const int kinds = kinds_of(&f->in->j, f->root, schema, 0, &f->left);
    buffer *out = &f->out->calls;
    if (!(kinds & STRINGS) || kinds & QUOTED) add_value_rule(f, "def", path, "");
    else if (kinds == STRINGS) add_text_of(f, schema, path);
    else {
        buffer_text(out, "(");
        add_text_of(f, schema, path);
        buffer_text(out, " | ");
        add_value_rule(f, "def", path, ",\"not\":{\"type\":\"string\"}");
        buffer_text(out, ")");
    }
}

static int is_required(const json *j, uint32_t parameters, const char *name) {
    const uint32_t list = json_get(j, parameters, "required");
    uint32_t at = list + 1, i;
    for (i = 0; list && i < j->nodes[list].n; i++, at = j->nodes[at].next)
        if (json_is(j, at, name)) return 1;
    return 0;
}

static void add_parameter(form *f, const char *name, uint32_t schema) {
    buffer front = {0}, path = {0};
    const int must = is_required(&f->in->j, f->root, name);
    buffer *out = &f->out->calls;
    buffer_format(&front, "<parameter=%s>\n", name);
    buffer_text(&path, "/properties");
    add_pointer(&path, name);
    if (!calls_have_name(name) && !failed(f->in))
        f->in->error = refuse(400, "tools", "tools[%u].function.parameters: #%s: this model's "
                              "calls have no <, > or newline in a parameter's name", f->function,
                              path.p ? path.p : "");
    buffer_text(out, must ? " " : " (");
    rules_add_literal(out, front.p ? front.p : "");
    buffer_text(out, " ");
    add_value_of(f, schema, path.p ? path.p : "");
    buffer_text(out, must ? " \"\\n</parameter>\\n\"" : " \"\\n</parameter>\\n\")?");
    out->failed |= front.failed | path.failed;
    buffer_free(&front);
    buffer_free(&path);
}

void calls_add_rules(reader *in, uint32_t function, unsigned n, int keeps, const char *id,
                     rules *out) {
    const json *j = &in->j;
    const uint32_t parameters = json_get(j, function, "parameters"),
                   own = json_get(j, parameters, "properties"),
                   properties = json_kind(j, own) == JSON_OBJECT ? own : 0,
                   name = json_get(j, function, "name");
    form f = {0};
    buffer front = {0};
    uint32_t at = properties + 1, i;
    f.in = in;
    f.root = parameters;
    f.id = id;
    f.function = n;
    f.left = MOST + (properties ? 16 * (int)j->nodes[properties].n : 0);
    f.out = out;
    if (out->calls.n) buffer_text(&out->calls, " | ");
    buffer_format(&front, "<function=%s>\n", j->text + j->nodes[name].at);
    rules_add_literal(&out->calls, front.p ? front.p : "");
    if (keeps && properties)
        for (i = 0; i < j->nodes[properties].n; i++, at = j->nodes[at + 1].next)
            add_parameter(&f, j->text + j->nodes[at].at, at + 1);
    else if (!keeps || parameters) buffer_text(&out->calls, " xml-any*");
    buffer_text(&out->calls, " \"</function>\"");
    out->calls.failed |= front.failed;
    buffer_free(&front);
}

void calls_add_common(buffer *out) {
    buffer_text(out, "xml-text ::= raw-xml\nxml-any ::= \"<parameter=\" [^>\\n]+ \">\\n\" xml-text "
                     "\"\\n</parameter>\\n\"\n");
}

void calls_add_defs(buffer *out) {
    buffer_text(out, ",\"xml\":{\"type\":\"string\",\"not\":{\"pattern\":" END_OF_VALUE "}}");
}
