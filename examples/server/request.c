#include "request.h"
#include "../json/text.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_STOPS = 64, MOST_STOP_BYTES = 16 << 10, MOST_TEXTS = 128, MOST_MESSAGES = 65536,
       MOST_INPUTS = 2048, MOST_FIELDS = 1024, MOST_ENDS = 64, MOST_TOKENIZED = 1 << 20,
       MOST_TOGETHER = 4 << 20 };

/* ---- failures ---- */

static http_error fine(void) {
    http_error e;
    memset(&e, 0, sizeof e);
    return e;
}

static http_error refuse(int status, const char *param, const char *format, ...) {
    http_error e = fine();
    bitnet_error clean;
    va_list args;
    char text[sizeof clean.text];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    set_error(&clean, BITNET_ERR_ARG, "%s", text);
    e.status = status;
    memcpy(e.text, clean.text, sizeof e.text);
    if (param) snprintf(e.param, sizeof e.param, "%s", param);
    return e;
}

static http_error no_memory(void) { return refuse(503, 0, "the server has no memory for this"); }

static http_error of_library(bitnet_result r, const char *param, const char *text) {
    return refuse(r == BITNET_ERR_MEMORY ? 503 : 400, param, "%s", text);
}

/* ---- the service ---- */

/* A name for the model: its general.name, or that of its file. */
static void name_model(service *s, const char *path) {
    const char *slash = strrchr(path, '/');
    char *end;
    if (bitnet_model_get_meta(s->model, "general.name", s->name, sizeof s->name) > 0 && s->name[0])
        return;
    snprintf(s->name, sizeof s->name, "%s", slash ? slash + 1 : path);
    end = strrchr(s->name, '.');
    if (end && end != s->name) *end = 0;
}

static uint64_t hash_bytes(uint64_t h, const void *p, size_t n) {      /* FNV-1a */
    const uint8_t *s = (const uint8_t *)p;
    while (n-- > 0) h = (h ^ *s++) * 0x100000001b3u;
    return h;
}

bitnet_result service_open(service *s, const bitnet_model *model, const char *path, int32_t n_ctx,
                           bitnet_error *err) {
    bitnet_ctx_params cp;
    bitnet_ctx *c = 0;
    uint8_t state[64];
    uint64_t size;
    bitnet_result r;
    memset(s, 0, sizeof *s);
    s->model = model;
    s->n_ctx = n_ctx;
    s->n_best_of = MOST_TEXTS;
    s->seed = (uint64_t)time(0) << 20;
    bitnet_model_get_info(model, &s->info);
    name_model(s, path);
    memset(&cp, 0, sizeof cp);         /* an empty saved sequence says which model it is of */
    cp.n_ctx = cp.n_batch = cp.n_threads = cp.no_head_copy = 1;
    r = bitnet_ctx_create(model, &cp, &c, err);
    size = r ? 0 : bitnet_seq_state_bytes(c, 0);
    if (r == BITNET_OK) r = bitnet_seq_save_memory(c, 0, state, sizeof state, err);
    bitnet_ctx_free(c);
    snprintf(s->fingerprint, sizeof s->fingerprint, "bitnet.h-%s-%016llx", bitnet_version(),
             (unsigned long long)hash_bytes(0xcbf29ce484222325u, state, (size_t)size));
    return r;
}

void service_close(service *s) { bitnet_grammar_free(s->vocabulary); }

/* ---- fields ---- */

typedef struct reader {
    json j;
    request *r;
    http_error error;                  /* the first one */
    size_t n_bytes;                    /* of all texts that were tokenized */
} reader;

static int failed(const reader *in) { return in->error.status != 0; }

static void refuse_field(reader *in, const char *field, const char *what) {
    if (!failed(in)) in->error = refuse(400, field, "%s: %s", field, what);
}

static uint32_t field(const reader *in, const char *name) {
    return json_get(&in->j, JSON_ROOT, name);
}

/* The body ends with a NUL, and behind a number is what ends it. strtod wants the point of the
   locale "C", in which a program is that never calls setlocale, as these. */
static double number_of(const json *j, uint32_t node) {
    return strtod(j->text + j->nodes[node].at, 0);
}

/* A number from low to high, or what it was if the field is missing. */
static void read_number(reader *in, const char *name, double low, double high, double *out) {
    const uint32_t node = field(in, name);
    char what[96];
    double v;
    if (!node) return;
    v = json_kind(&in->j, node) == JSON_NUMBER ? number_of(&in->j, node) : NAN;
    if (v >= low && v <= high) *out = v;
    else {
        snprintf(what, sizeof what, "a number from %.0f to %.0f is needed", low, high);
        refuse_field(in, name, what);
    }
}

static void read_float(reader *in, const char *name, double low, double high, float *out) {
    double v = (double)*out;
    read_number(in, name, low, high, &v);
    *out = (float)v;
}

static void read_int(reader *in, const char *name, int32_t low, int32_t high, int32_t *out) {
    double v = *out;
    read_number(in, name, low, high, &v);
    if (v != floor(v)) refuse_field(in, name, "a whole number is needed");
    else *out = (int32_t)v;
}

static int read_bool(reader *in, uint32_t object, const char *name) {
    const uint32_t node = json_get(&in->j, object, name);
    const json_type type = json_kind(&in->j, node);
    if (node && type != JSON_TRUE && type != JSON_FALSE)
        refuse_field(in, name, "true or false is needed");
    return node && type == JSON_TRUE;
}

/* The same of one that is true where it is missing. */
static int read_bool_or_true(reader *in, const char *name) {
    return !field(in, name) || read_bool(in, JSON_ROOT, name);
}

/* The text of a string, which has no NUL inside; 0 if it is none. */
static const char *string_of(const reader *in, uint32_t node) {
    const json_node *v = &in->j.nodes[node];
    if (!node || v->type != JSON_STRING || memchr(in->j.text + v->at, 0, v->len)) return 0;
    return in->j.text + v->at;
}

/* ---- what cannot be ---- */

enum { CHATS = 1, COMPLETIONS = 2, TEXTS = CHATS | COMPLETIONS, EMBEDDINGS = 4, ALL = 7 };

/* Fields of OpenAI, llama.cpp's server and others that would change the result, and are not
   possible here: they are refused unless they say what is so anyway. `as_is` are such values, in
   JSON, with blanks between. Fields that are neither here nor read change nothing. */
static const struct impossible {
    const char *name;
    int where;
    const char *as_is, *instead;       /* instead 0: there is nothing like it */
} impossibles[] = {
    {"audio", CHATS, "", 0},
    {"echo", CHATS, "false", "/v1/completions has it"},
    {"function_call", CHATS, "\"none\" \"auto\"", "this was replaced by tool_choice"},
    {"modalities", CHATS, "[\"text\"]", 0},
    {"prompt", CHATS, "", "/v1/completions has it"},
    {"verbosity", CHATS, "\"medium\"", "say it in a message"},
    {"web_search_options", CHATS, "", 0},
    {"messages", COMPLETIONS, "", "/v1/chat/completions has them"},
    {"suffix", COMPLETIONS, "\"\"", "the model cannot fill in"},
    {"top_logprobs", COMPLETIONS, "0", "completions have a number in logprobs"},

    /* llama.cpp's */
    {"add_generation_prompt", CHATS, "true", 0},
    {"chat_template", CHATS, "", "/v1/completions takes the text that it makes"},
    {"dry_multiplier", TEXTS, "0", 0},
    {"dynatemp_range", TEXTS, "0", 0},
    {"embd_normalize", EMBEDDINGS, "2", 0},
    {"grammar_lazy", TEXTS, "false", 0},
    {"input_extra", TEXTS, "[]", 0},
    {"input_prefix", TEXTS, "\"\"", 0},
    {"input_suffix", TEXTS, "\"\"", 0},
    {"lora", TEXTS, "[]", 0},
    {"min_keep", TEXTS, "0 1", 0},
    {"mirostat", TEXTS, "0", 0},
    {"n_cmpl", TEXTS, "1", "n has it"},
    {"n_indent", TEXTS, "0", 0},
    {"n_probs", TEXTS, "0", "logprobs has it"},
    {"post_sampling_probs", TEXTS, "false", 0},
    {"reasoning_format", CHATS, "\"auto\" \"deepseek\"", 0},
    {"response_fields", TEXTS, "[]", 0},
    {"return_tokens", TEXTS, "false", 0},
    {"samplers", TEXTS, "", 0},
    {"t_max_predict_ms", TEXTS, "0 -1", 0},
    {"thinking_budget_tokens", CHATS, "-1", 0},
    {"top_n_sigma", TEXTS, "-1 0", 0},
    {"typical_p", TEXTS, "1", 0},
    {"xtc_probability", TEXTS, "0", 0},

    /* vLLM's, SGLang's and Ollama's */
    {"add_special_tokens", COMPLETIONS | EMBEDDINGS, "true", "give the tokens"},
    {"add_special_tokens", CHATS, "false", 0},
    {"allowed_token_ids", TEXTS, "[]", "logit_bias or grammar may do"},
    {"bad_words", TEXTS, "[]", "logit_bias may do"},
    {"ebnf", TEXTS, "\"\"", "grammar has it, in llama.cpp's GBNF"},
    {"guided_grammar", TEXTS, "\"\"", "grammar has it, in llama.cpp's GBNF"},
    {"guided_regex", TEXTS, "\"\"", "grammar may do, in llama.cpp's GBNF"},
    {"guided_whitespace_pattern", TEXTS, "", 0},
    {"include_stop_str_in_output", TEXTS, "false", 0},
    {"length_penalty", TEXTS, "1", 0},
    {"min_tokens", TEXTS, "0", 0},
    {"options", ALL, "{}", "its fields stand in the body"},
    {"prompt_logprobs", TEXTS, "", "echo with logprobs gives them, in /v1/completions"},
    {"regex", TEXTS, "\"\"", "grammar may do, in llama.cpp's GBNF"},
    {"repetition_penalty", TEXTS, "1", "repeat_penalty with repeat_last_n -1 has it"},
    {"skip_special_tokens", TEXTS, "true", 0},
    {"stop_token_ids", TEXTS, "[]", "stop may do"},
    {"structural_tag", TEXTS, "", 0},
    {"think", CHATS, "", "enable_thinking has it"},
    {"truncate_prompt_tokens", ALL, "", 0},
    {"use_beam_search", TEXTS, "false", 0}
};

/* Is a value one of those in text? Numbers may be written in another way. */
static int is_as_is(const json *j, uint32_t node, const char *text) {
    buffer value = {0};
    int found = 0;
    buffer_value(&value, j, node);
    while (*text && !found && !value.failed) {
        const size_t n = strcspn(text, " ");
        found = value.n == n && !memcmp(value.p, text, n);
        if (json_kind(j, node) == JSON_NUMBER && strchr("-0123456789", text[0]))
            found = number_of(j, node) == strtod(text, 0);
        text += n + (text[n] == ' ');
    }
    buffer_free(&value);
    return found;
}

static void refuse_fields(reader *in, int where) {
    size_t i;
    for (i = 0; i < sizeof impossibles / sizeof impossibles[0] && !failed(in); i++) {
        const struct impossible *f = &impossibles[i];
        const uint32_t node = f->where & where ? field(in, f->name) : 0;
        if (!node || is_as_is(&in->j, node, f->as_is)) continue;
        in->error = refuse(400, f->name, "%s: %s%s is possible here%s%s", f->name,
                           f->as_is[0] ? "only " : "nothing of this", f->as_is,
                           f->instead ? ": " : "", f->instead ? f->instead : "");
    }
}

/* ---- options ---- */

static void read_stops(reader *in) {
    const uint32_t node = field(in, "stop");
    const int is_list = node && json_kind(&in->j, node) == JSON_ARRAY;
    const uint32_t n = !node ? 0 : is_list ? in->j.nodes[node].n : 1;
    uint32_t at = is_list ? node + 1 : node, i;
    size_t bytes = 0;
    request *r = in->r;
    if (n > MOST_STOPS) {
        refuse_field(in, "stop", "too many strings");
        return;
    }
    if (n > 0 && !(r->stops = (char **)calloc(n, sizeof *r->stops))) in->error = no_memory();
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        const char *s = string_of(in, at);
        bytes += s ? in->j.nodes[at].len : 0;
        if (!s || !s[0])
            refuse_field(in, "stop", "a string without NUL that is not empty, or a list of these, "
                         "is needed");
        else if (bytes > MOST_STOP_BYTES)        /* each text searches for them by tables */
            in->error = refuse(400, "stop", "stop: the strings have more than %d bytes together",
                               MOST_STOP_BYTES);
        else if (!(r->stops[i] = strdup(s))) in->error = no_memory();
        else r->n_stops++;
    }
}

/* The token whose number a key is, or -1. */
static bitnet_token token_of(const service *s, const char *key) {
    char *end;
    const long t = strtol(key, &end, 10);
    return key[0] && !*end && t >= 0 && t < s->info.n_vocab ? (bitnet_token)t : -1;
}

/* ignore_eos, as llama.cpp's server has it: the tokens that end a text are not chosen. */
static void forbid_ends(request *r, bitnet_sampler *s) {
    const int32_t most = s->n_bias + MOST_ENDS;
    bitnet_token t;
    for (t = 0; t < r->service->info.n_vocab && s->n_bias < most; t++)
        if (bitnet_token_is_end(r->service->model, t)) {
            r->bias[s->n_bias].token = t;
            r->bias[s->n_bias++].bias = -INFINITY;
        }
}

static void read_bias(reader *in, bitnet_sampler *s) {
    const uint32_t node = field(in, "logit_bias");
    const int has_end = !read_bool(in, JSON_ROOT, "ignore_eos");
    const uint32_t n = node ? in->j.nodes[node].n : 0;
    uint32_t at = node + 1, i;
    request *r = in->r;
    if (!node && has_end) return;
    if (node && json_kind(&in->j, node) != JSON_OBJECT) {
        refuse_field(in, "logit_bias", "an object of tokens and numbers is needed");
        return;
    }
    r->bias = (bitnet_logit_bias *)calloc(n + MOST_ENDS, sizeof *r->bias);
    if (!r->bias) in->error = no_memory();
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at + 1].next) {
        const char *key = string_of(in, at);
        const bitnet_token token = key ? token_of(r->service, key) : -1;
        const int is_number = json_kind(&in->j, at + 1) == JSON_NUMBER;
        const double bias = is_number ? number_of(&in->j, at + 1) : NAN;
        if (token < 0)
            refuse_field(in, "logit_bias", "a key is no token of the vocabulary");
        else if (!(bias >= -100 && bias <= 100))
            refuse_field(in, "logit_bias", "a number from -100 to 100 is needed");
        else {
            r->bias[i].token = token;
            r->bias[i].bias = bias == -100 ? -INFINITY : (float)bias;
            s->n_bias++;
        }
    }
    if (!has_end && !failed(in)) forbid_ends(r, s);
    s->bias = r->bias;
}

static void read_logprobs(reader *in) {
    request *r = in->r;
    const uint32_t node = field(in, "logprobs");
    int32_t n = 0;
    r->logprobs = -1;
    if (!r->is_chat) {
        if (!node || json_kind(&in->j, node) == JSON_FALSE) return;
        read_int(in, "logprobs", 0, 20, &n);
        r->logprobs = n;
    } else if (read_bool(in, JSON_ROOT, "logprobs")) {
        read_int(in, "top_logprobs", 0, 20, &n);
        r->logprobs = n;
    } else {
        read_int(in, "top_logprobs", 0, 20, &n);
        if (n > 0) refuse_field(in, "top_logprobs", "it needs logprobs: true");
    }
}

/* ---- what the reply has to keep to ---- */

/* A JSON schema or a grammar, and the field that it came from, of which there can be one. */
typedef struct rules {
    const char *field;                 /* 0: none yet */
    buffer text;
    int is_schema;
} rules;

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
    const char *text = string_of(in, node);
    const json_type kind = json_kind(&in->j, node);
    if (!text && kind != JSON_OBJECT && kind != JSON_TRUE && kind != JSON_FALSE)
        refuse_field(in, field, "a JSON schema is needed");
    else if (!begin_rules(in, out, field, 1)) return;
    else if (text) buffer_text(&out->text, text);
    else buffer_value(&out->text, &in->j, node);
}

static void take_grammar(reader *in, rules *out, const char *field, uint32_t node) {
    const char *text = string_of(in, node);
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
        const char *text = string_of(in, at);
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

static void read_rules(reader *in, rules *out) {
    size_t i;
    for (i = 0; i < sizeof rule_fields / sizeof rule_fields[0] && !failed(in); i++) {
        const uint32_t node = field(in, rule_fields[i].name);
        if (node) rule_fields[i].take(in, out, rule_fields[i].name, node);
    }
    buffer_add(&out->text, "", 0);
    if (out->text.failed && !failed(in)) in->error = no_memory();
}

/* ---- tools and thinking ---- */

static const bitnet_chat_template *template_of(const reader *in) {
    return bitnet_model_chat_template(in->r->service->model);
}

/* A function that the model may call: {"type": "function", "function": {"name": ...}}. */
static void read_tool(reader *in, uint32_t node, buffer *out) {
    const uint32_t function = json_get(&in->j, node, "function");
    const char *name = string_of(in, json_get(&in->j, function, "name"));
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
    const uint32_t choice = field(in, "tool_choice");
    tool_choice c = {0, 0, 0};
    c.name = string_of(in, json_get(&in->j, json_get(&in->j, choice, "function"), "name"));
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

static void read_tools(reader *in, rules *keeps_to) {
    const uint32_t node = field(in, "tools"), old = field(in, "functions");
    const int many = read_bool_or_true(in, "parallel_tool_calls");
    const tool_choice choice = read_choice(in);
    const bitnet_chat_template *t = template_of(in);
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
    else if (!t || !t->tools_before)
        refuse_field(in, "tools", "the chat template of this model has no tools");
    for (i = 0; i < in->j.nodes[node].n && !failed(in); i++, at = in->j.nodes[at].next)
        read_tool(in, at, &out);
    if (out.failed) in->error = no_memory();
    if (choice.must && !failed(in)) force_call(in, node, choice.name, keeps_to);
    if (failed(in) || choice.is_none) {
        buffer_free(&out);
        return;
    }
    in->r->one_call = !many || choice.name;
    in->r->tools = out.p;
    in->r->chat.tools = out.p;
}

/* What a client says of thinking: enable_thinking, in chat_template_kwargs or as a field, as vLLM
   and llama.cpp's server have it, or OpenAI's reasoning_effort. 1: yes, 0: no, -1: nothing. */
static int wants_thinking(reader *in) {
    static const char name[] = "enable_thinking", effort[] = "reasoning_effort";
    const uint32_t options = field(in, "chat_template_kwargs"), node = field(in, effort);
    if (options && json_kind(&in->j, options) != JSON_OBJECT)
        refuse_field(in, "chat_template_kwargs", "an object is needed");
    else if (json_get(&in->j, options, name)) return read_bool(in, options, name);
    if (field(in, name)) return read_bool(in, JSON_ROOT, name);
    if (!node) return -1;
    if (json_is(&in->j, node, "none")) return 0;
    if (!json_is(&in->j, node, "minimal") && !json_is(&in->j, node, "low") &&
        !json_is(&in->j, node, "medium") && !json_is(&in->j, node, "high") &&
        !json_is(&in->j, node, "xhigh"))
        refuse_field(in, effort, "none, minimal, low, medium, high or xhigh is needed");
    return 1;
}

/* With yes, Qwen3's template leaves it to the model. */
static void read_thinking(reader *in) {
    const bitnet_chat_template *t = template_of(in);
    const int wanted = wants_thinking(in);
    if (failed(in) || !t || wanted < 0) return;
    if (wanted == 0 && t->think && !t->no_think)
        refuse_field(in, field(in, "reasoning_effort") ? "reasoning_effort" : "enable_thinking",
                     "this model always thinks");
    if (wanted == 0) in->r->chat.thinking = BITNET_THINK_OFF;
    else if (t->think && t->thinking == BITNET_THINK_OFF) in->r->chat.thinking = BITNET_THINK_ON;
}

/* The defaults are OpenAI's: temperature 1 and top_p 1; top_k and min_p are those of generate. */
static void read_sampler(reader *in, bitnet_sampler *s) {
    memset(s, 0, sizeof *s);
    s->temperature = s->top_p = 1;
    s->top_k = 40;
    s->min_p = 0.05f;
    read_float(in, "temperature", 0, 100, &s->temperature);
    read_float(in, "top_p", 0, 1, &s->top_p);
    read_float(in, "min_p", 0, 1, &s->min_p);
    read_float(in, "repeat_penalty", 0, 100, &s->repeat_penalty);
    read_float(in, "frequency_penalty", -2, 2, &s->frequency_penalty);
    read_float(in, "presence_penalty", -2, 2, &s->presence_penalty);
    read_int(in, "top_k", -1, INT32_MAX, &s->top_k);
    read_int(in, "repeat_last_n", -1, INT32_MAX, &s->repeat_window);
    if (field(in, "repeat_last_n") && s->repeat_window == 0)     /* no token counts */
        s->repeat_penalty = s->frequency_penalty = s->presence_penalty = 0;
    read_bias(in, s);
}

/* ---- prompts ---- */

/* The fewest bytes that the tokens of a text can have together. Tokenizers lose no byte, but two of
   them make some texts shorter first: SentencePiece's makes U+2581, 3 bytes, a blank, and Qwen2's
   brings a text to NFC, which at the most makes 2 bytes of 7 (U+1FBE U+0308 U+0301). ASCII alone
   stays as it is. With ASCII as 1 and all other bytes as a quarter, no code points count for more
   than the bytes that NFC makes of them; this was computed over all of Unicode. */
static size_t least_bytes(const char *p, size_t n) {
    size_t i, ascii = 0;
    for (i = 0; i < n; i++) ascii += (uint8_t)p[i] < 0x80;
    return ascii + (n - ascii) / 4;
}

/* Refuses what cannot fit, before it is tokenized: that takes a second for each MB, in which the
   thread of HTTP does nothing else. No token has more than longest_token bytes. */
static int is_too_long(reader *in, const char *name, size_t bytes, size_t least) {
    const service *s = in->r->service;
    const int is_prompt = !strcmp(name, "prompt") || !strcmp(name, "messages");
    const uint64_t most = (uint64_t)s->n_ctx * (uint64_t)s->info.longest_token;
    if (failed(in)) return 1;
    in->n_bytes += bytes;
    if (least <= most && (in->n_bytes <= MOST_TOGETHER || in->n_bytes <= most)) return 0;
    if (least <= most) {
        in->error = refuse(400, name, "%s: all texts of a request have at most %d MB together",
                           name, MOST_TOGETHER >> 20);
        return 1;
    }
    in->error = refuse(400, name, "%s has %llu bytes, more than the context of %d tokens can hold",
                       is_prompt ? "the prompt" : name, (unsigned long long)bytes,
                       (int)s->n_ctx);
    in->error.code = "context_length_exceeded";
    return 1;
}

/* tokens[n] of a prompt that the texts of this number have. */
static void set_prompt(reader *in, int32_t number, bitnet_token *tokens, int32_t n) {
    request *r = in->r;
    int32_t i;
    r->prompts[number] = tokens;
    if (n < 1) refuse_field(in, r->is_chat ? "messages" : "prompt", "it is empty");
    else if (n >= r->service->n_ctx && !failed(in)) {
        in->error = refuse(400, r->is_chat ? "messages" : "prompt", "the prompt has %d tokens, but "
                           "the context holds %d with the reply", (int)n, (int)r->service->n_ctx);
        in->error.code = "context_length_exceeded";
    }
    for (i = number * r->n; i < (number + 1) * r->n; i++) {
        r->texts[i].prompt = tokens;
        r->texts[i].n_prompt = n;
    }
}

/* A text that begins with BOS, or ends with EOS, does not get it twice. */
static int drop_double_ends(const bitnet_model_info *info, int flags, bitnet_token *tokens, int n) {
    if ((flags & BITNET_ADD_BOS) && n > 1 && tokens[0] == info->bos && tokens[1] == info->bos)
        memmove(tokens, tokens + 1, (size_t)--n * sizeof *tokens);
    if ((flags & BITNET_ADD_EOS) && n > 1 && tokens[n - 1] == info->eos &&
        tokens[n - 2] == info->eos) n--;
    return n;
}

/* The tokens of a string, *n of them, for free; 0: refused. */
static bitnet_token *tokens_of_text(reader *in, const char *name, uint32_t node, int flags,
                                    int32_t *n) {
    const service *s = in->r->service;
    const json_node *v = &in->j.nodes[node];
    const char *text = in->j.text + v->at;
    bitnet_token *tokens;
    int count;
    *n = 0;
    count = bitnet_tokenize(s->model, text, v->len, flags, 0, 0);
    tokens = (bitnet_token *)malloc(((size_t)(count > 0 ? count : 0) + 1) * sizeof *tokens);
    if (count >= 0 && tokens &&        /* the second time may lack memory that the first had */
        bitnet_tokenize(s->model, text, v->len, flags, tokens, (size_t)count) == count) {
        *n = drop_double_ends(&s->info, flags, tokens, count);
        return tokens;
    }
    free(tokens);
    in->error = count < 0 ? of_library((bitnet_result)count, name,
                                       bitnet_result_text((bitnet_result)count)) : no_memory();
    return 0;
}

/* The same of a text that has to fit the context. */
static bitnet_token *tokens_that_fit(reader *in, const char *name, uint32_t node, int flags,
                                     int32_t *n) {
    const json_node *v = &in->j.nodes[node];
    *n = 0;
    if (is_too_long(in, name, v->len, least_bytes(in->j.text + v->at, v->len))) return 0;
    return tokens_of_text(in, name, node, flags, n);
}

/* Those that the client has made itself. */
static bitnet_token *tokens_of_list(reader *in, const char *name, uint32_t list, int32_t *n) {
    const uint32_t count = in->j.nodes[list].n;
    bitnet_token *tokens = (bitnet_token *)malloc(((size_t)count + 1) * sizeof *tokens);
    uint32_t at = list + 1, i;
    uint64_t v = 0;
    *n = (int32_t)count;
    if (!tokens) in->error = no_memory();
    for (i = 0; i < count && !failed(in); i++, at = in->j.nodes[at].next) {
        if (!json_uint(&in->j, at, &v) || v >= (uint64_t)in->r->service->info.n_vocab)
            refuse_field(in, name, "a number is no token of the vocabulary");
        tokens[i] = (bitnet_token)v;
    }
    if (!failed(in)) return tokens;
    free(tokens);
    return 0;
}

/* What the model wants around a text that is not written on. */
static int flags_of(const bitnet_model_info *info) {
    return (info->add_bos ? BITNET_ADD_BOS : 0) | (info->add_eos ? BITNET_ADD_EOS : 0);
}

/* Whether special tokens that a text spells are tokens: as in llama.cpp's server they are, unless
   parse_special is false. So programs may render a chat template themselves. */
static int read_special(reader *in) {
    return read_bool_or_true(in, "parse_special") ? BITNET_PARSE_SPECIAL : 0;
}

/* Texts that are echoed leave out a BOS that the client has not spelled. */
static void set_unspelled(reader *in, int32_t number, int is_spelled) {
    request *r = in->r;
    int32_t i;
    for (i = number * r->n; i < (number + 1) * r->n && !failed(in); i++)
        r->texts[i].n_unspelled =
            !is_spelled && r->texts[i].prompt[0] == r->service->info.bos;
}

static void tokenize_prompt(reader *in, int32_t number, uint32_t node) {
    const bitnet_model_info *info = &in->r->service->info;
    const json_node *v = &in->j.nodes[node];
    const int flags = (info->add_bos ? BITNET_ADD_BOS : 0) | read_special(in);
    size_t size = 0;
    const char *bos = bitnet_token_text(in->r->service->model, info->bos, &size);
    int32_t n;
    bitnet_token *tokens = failed(in) ? 0 : tokens_that_fit(in, "prompt", node, flags, &n);
    if (!tokens) return;
    if (n == 0 && info->bos >= 0) tokens[n++] = info->bos;
    set_prompt(in, number, tokens, n);
    set_unspelled(in, number, bos && size > 0 && v->len >= size &&
                              !memcmp(in->j.text + v->at, bos, size));
}

static void take_tokens(reader *in, int32_t number, uint32_t list) {
    int32_t n;
    bitnet_token *tokens = tokens_of_list(in, "prompt", list, &n);
    if (!tokens) return;
    set_prompt(in, number, tokens, n);
    set_unspelled(in, number, 0);
}

static void make_texts(reader *in, uint32_t n_prompts) {
    request *r = in->r;
    if ((uint64_t)n_prompts * (uint64_t)r->n > (uint64_t)r->service->n_best_of) {
        in->error = refuse(400, "n", "at most %d texts are possible", (int)r->service->n_best_of);
        return;
    }
    r->n_texts = (int32_t)n_prompts * r->n;
    r->n_prompts = (int32_t)n_prompts;
    r->texts = (engine_text *)calloc((size_t)r->n_texts + 1, sizeof *r->texts);
    r->prompts = (bitnet_token **)calloc((size_t)n_prompts + 1, sizeof *r->prompts);
    if (!r->texts || !r->prompts) in->error = no_memory();
}

/* A field that is a text, tokens, or a list of texts or of lists of tokens: how many, and the first
   of them. 0: refused. */
static uint32_t count_parts(reader *in, const char *name, uint32_t *at) {
    const uint32_t node = field(in, name);
    const json_type kind = json_kind(&in->j, node);
    const json_type first = node && kind == JSON_ARRAY && in->j.nodes[node].n > 0
                            ? json_kind(&in->j, node + 1) : JSON_NULL;
    const int is_one = kind == JSON_STRING || first == JSON_NUMBER;
    *at = is_one ? node : node + 1;
    if (node && (is_one || first == JSON_STRING || first == JSON_ARRAY))
        return is_one ? 1 : in->j.nodes[node].n;
    refuse_field(in, name, "a string, tokens, or a list of these is needed");
    return 0;
}

static void read_prompt(reader *in) {
    uint32_t at, i;
    const uint32_t n = count_parts(in, "prompt", &at);
    if (n > 0) make_texts(in, n);
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        if (json_kind(&in->j, at) == JSON_STRING) tokenize_prompt(in, (int32_t)i, at);
        else if (json_kind(&in->j, at) == JSON_ARRAY) take_tokens(in, (int32_t)i, at);
        else refuse_field(in, "prompt", "its parts must be of one kind");
    }
}

/* The content of a message: a string, or parts whose texts are joined. */
static void read_content(reader *in, uint32_t content, buffer *out) {
    uint32_t at = content + 1, i;
    const char *s;
    if (!content) refuse_field(in, "messages", "a content is missing");
    else if ((s = string_of(in, content)) != 0) buffer_text(out, s);
    else if (json_kind(&in->j, content) != JSON_ARRAY)
        refuse_field(in, "messages", "a content must be a string, or a list of texts, without NUL");
    else for (i = 0; i < in->j.nodes[content].n && !failed(in); i++, at = in->j.nodes[at].next) {
        s = string_of(in, json_get(&in->j, at, "text"));
        if (!json_is(&in->j, json_get(&in->j, at, "type"), "text") || !s)
            refuse_field(in, "messages", "only parts of the type text are possible");
        else buffer_text(out, s);
    }
}

/* Is the text a JSON object? */
static int is_object(const char *text) {
    json j;
    bitnet_error err;
    int ok;
    memset(&j, 0, sizeof j);
    j.size = strlen(text);
    j.text = strdup(text);
    ok = j.text && j.size && json_parse(&j, &err) == BITNET_OK &&
         json_kind(&j, JSON_ROOT) == JSON_OBJECT;
    json_free(&j);
    return ok;
}

/* A call that the assistant made, as the model writes it. Its arguments are JSON in a string. */
static void read_call(reader *in, uint32_t node, buffer *out) {
    const uint32_t function = json_get(&in->j, node, "function");
    const char *name = string_of(in, json_get(&in->j, function, "name"));
    const char *arguments = string_of(in, json_get(&in->j, function, "arguments"));
    const uint32_t type = json_get(&in->j, node, "type");
    if (type && !json_is(&in->j, type, "function"))
        refuse_field(in, "messages", "only tool_calls of the type function are possible");
    else if (!name || !name[0] || !arguments || (arguments[0] && !is_object(arguments)))
        refuse_field(in, "messages", "a function in tool_calls needs a name and, as a string, "
                     "arguments in JSON");
    else {
        buffer_text(out, "<tool_call>\n{\"name\": ");
        buffer_json(out, name, strlen(name));
        buffer_format(out, ", \"arguments\": %s}\n</tool_call>", arguments[0] ? arguments : "{}");
    }
}

static void read_calls(reader *in, uint32_t calls, int has_text, buffer *out) {
    const bitnet_chat_template *t = template_of(in);
    uint32_t at = calls + 1, i;
    if (json_kind(&in->j, calls) != JSON_ARRAY)
        refuse_field(in, "messages", "tool_calls must be a list");
    else if (in->j.nodes[calls].n > 0 && (!t || !t->tools_before))
        refuse_field(in, "messages", "the chat template of this model has no tool_calls");
    else for (i = 0; i < in->j.nodes[calls].n && !failed(in); i++, at = in->j.nodes[at].next) {
        if (i || has_text) buffer_text(out, "\n");
        read_call(in, at, out);
    }
}

/* What the assistant wrote: reasoning_content, content and tool_calls, of which some may be
   missing. Templates without thinking leave the first one out. */
static void read_assistant(reader *in, uint32_t node, buffer *out) {
    const bitnet_chat_template *t = template_of(in);
    const uint32_t thinking = json_get(&in->j, node, "reasoning_content"),
                   content = json_get(&in->j, node, "content"),
                   calls = json_get(&in->j, node, "tool_calls");
    const char *thought = string_of(in, thinking);
    size_t before;
    if (thinking && !thought)
        refuse_field(in, "messages", "reasoning_content must be a string without NUL");
    if (thought && thought[0] && t && t->drop_thinking) {
        buffer_text(out, "<think>\n");
        buffer_text(out, thought);
        buffer_text(out, "\n</think>\n\n");
    }
    before = out->n;
    if (content || !calls) read_content(in, content, out);
    if (calls) read_calls(in, calls, out->n > before, out);
}

static int has_role(const bitnet_chat_template *t, const char *role) {
    const bitnet_chat_turn *turn = !strcmp(role, "system") ? &t->system :
                                   !strcmp(role, "user") ? &t->user :
                                   !strcmp(role, "assistant") ? &t->assistant :
                                   !strcmp(role, "tool") ? &t->tool : &t->other;
    return turn->prefix || t->other.prefix;
}

/* Its content, with a NUL. Returns the role; 0: refused. */
static const char *read_message(reader *in, uint32_t node, buffer *out) {
    const char *role = string_of(in, json_get(&in->j, node, "role"));
    const bitnet_chat_template *t = template_of(in);
    const uint32_t calls = json_get(&in->j, node, "tool_calls");
    if (!role || !role[0]) {
        refuse_field(in, "messages", "a role is missing");
        return 0;
    }
    if (!strcmp(role, "developer")) role = "system";
    if (t && !has_role(t, role))
        refuse_field(in, "messages", "the chat template of this model has no such role");
    if (!strcmp(role, "tool") && t && t->tool.prefix &&
        !string_of(in, json_get(&in->j, node, "tool_call_id")))
        refuse_field(in, "messages", "a message of the role tool needs a tool_call_id");
    if (!strcmp(role, "assistant")) read_assistant(in, node, out);
    else if (calls && in->j.nodes[calls].n > 0)
        refuse_field(in, "messages", "only the assistant has tool_calls");
    else read_content(in, json_get(&in->j, node, "content"), out);
    buffer_add(out, "", 1);
    return role;
}

/* The tokens of a chat with the beginning of a reply, in out [cap] as far as they fit. If the last
   message is the assistant's, and not the only one, the reply begins with its text. */
static int chat_tokens(request *r, const bitnet_message *messages, int n, bitnet_token *out,
                       int cap) {
    const bitnet_model *m = r->service->model;
    const char *begun = r->begun ? r->begun : "";
    const int head = bitnet_chat_tokenize(m, &r->chat, messages, n - (r->begun != 0),
                                          BITNET_ADD_BOS | BITNET_OPEN_REPLY, out, (size_t)cap);
    int rest = 0;
    if (head >= 0 && out && head < cap)
        rest = bitnet_tokenize(m, begun, strlen(begun), 0, &out[head], (size_t)(cap - head));
    else if (head >= 0) rest = bitnet_tokenize(m, begun, strlen(begun), 0, 0, 0);
    return head < 0 ? head : rest < 0 ? rest : head + rest;
}

/* least_bytes of a text that the template may trim. */
static size_t least_trimmed(const bitnet_chat_template *t, const char *p, const char *end) {
    const char *blanks = t->trim ? " \t\n\v\f\r" : t->drop_thinking ? "\n" : "";
    while (p < end && strchr(blanks, end[-1])) end--;
    while (p < end && strchr(blanks, *p)) p++;
    return least_bytes(p, (size_t)(end - p));
}

/* The last place of a text within [p, end), or p. */
static const char *find_last(const char *p, const char *end, const char *text) {
    const char *next = p;
    while ((next = strstr(next, text)) != 0 && next < end) p = next++;
    return p;
}

/* The same of an assistant's message. Templates that know thinking leave it out in front of the
   user's last message: what is between the last <think> and the first </think>. The text is what is
   behind the last </think>. The rest goes. */
static size_t least_of_reply(const bitnet_chat_template *t, const char *p, int keeps_thinking) {
    const char *end = p + strlen(p), *first = t->drop_thinking ? strstr(p, "</think>") : 0, *text;
    size_t least;
    if (!first) return least_trimmed(t, p, end);
    text = find_last(first, end, "</think>") + strlen("</think>");
    least = least_trimmed(t, text, end);
    if (!keeps_thinking) return least;
    p = find_last(p, first, "<think>");
    if (!strncmp(p, "<think>", strlen("<think>"))) p += strlen("<think>");
    return least + least_trimmed(t, p, first);
}

/* A role that the template does not know is written into the prompt. */
static size_t least_of_role(const bitnet_chat_template *t, const char *role) {
    const char *prefix = t->other.prefix;
    const int is_known = !strcmp(role, "system") || !strcmp(role, "user") ||
                         !strcmp(role, "assistant") || !strcmp(role, "tool");
    const int is_written = prefix && (strstr(prefix, "{role}") || strstr(prefix, "{Role}"));
    return is_written && !is_known ? least_bytes(role, strlen(role)) : 0;
}

static int are_too_long(reader *in, const bitnet_message *messages, int n) {
    const bitnet_chat_template *t = template_of(in);
    const char *tools = in->r->tools ? in->r->tools : "";
    size_t bytes = strlen(tools), least = least_bytes(tools, bytes);
    int i, query = n;                  /* the user's last message; n: there is none */
    if (!t) return failed(in);
    for (i = 0; i < n; i++)
        if (!strcmp(messages[i].role, "user")) query = i;
    for (i = 0; i < n; i++) {
        const char *text = messages[i].content;
        const size_t size = strlen(text);
        bytes += size + strlen(messages[i].role);
        least += least_of_role(t, messages[i].role);
        if (strcmp(messages[i].role, "assistant")) least += least_trimmed(t, text, text + size);
        else if (i == n - 1 && n > 1) least += least_bytes(text, size);     /* see chat_tokens */
        else least += least_of_reply(t, text, i > query);
    }
    return is_too_long(in, "messages", bytes, least);
}

static void tokenize_messages(reader *in, const bitnet_message *messages, int n) {
    request *r = in->r;
    bitnet_token *tokens = 0;
    int count = BITNET_ERR_MEMORY;
    if (are_too_long(in, messages, n)) return;
    if (n > 1 && !strcmp(messages[n - 1].role, "assistant"))
        r->begun = strdup(messages[n - 1].content);
    if (n < 2 || strcmp(messages[n - 1].role, "assistant") || r->begun) {
        count = chat_tokens(r, messages, n, 0, 0);
        tokens = (bitnet_token *)malloc(((size_t)(count > 0 ? count : 0) + 1) * sizeof *tokens);
    }
    if (count < 0 || !tokens || chat_tokens(r, messages, n, tokens, count) != count) {
        free(tokens);
        in->error = count == BITNET_ERR_UNSUPPORTED
                    ? refuse(400, "messages", "the chat template of this model is not known")
                    : count < 0 ? of_library((bitnet_result)count, "messages",
                                             bitnet_result_text((bitnet_result)count))
                                : no_memory();
        return;
    }
    set_prompt(in, 0, tokens, count);
}

static void read_messages(reader *in) {
    const uint32_t node = field(in, "messages");
    const uint32_t n = json_kind(&in->j, node) == JSON_ARRAY && node ? in->j.nodes[node].n : 0;
    bitnet_message *messages;
    buffer texts = {0};
    size_t *starts;
    uint32_t at = node + 1, i;
    if (n == 0 || n > MOST_MESSAGES) {
        refuse_field(in, "messages", n ? "too many" : "a list of messages is needed");
        return;
    }
    make_texts(in, 1);
    messages = (bitnet_message *)calloc(n, sizeof *messages);
    starts = (size_t *)calloc(n, sizeof *starts);
    if (!messages || !starts) in->error = no_memory();
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        starts[i] = texts.n;
        messages[i].role = read_message(in, at, &texts);
    }
    if (texts.failed) in->error = no_memory();
    for (i = 0; i < n && !failed(in); i++) messages[i].content = texts.p + starts[i];
    if (!failed(in)) tokenize_messages(in, messages, (int)n);
    buffer_free(&texts);
    free(messages);
    free(starts);
}

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
    const int is_token = bitnet_token_find(r->service->model, tag) >= 0;
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

/* The rules as a grammar, once it is known how the reply begins. */
static void compile(reader *in, const rules *from) {
    request *r = in->r;
    service *s = r->service;
    bitnet_grammar_params params;
    bitnet_error err = {BITNET_OK, ""};
    bitnet_result code = BITNET_OK;
    buffer around = {0};
    if (r->must_call && r->begun)
        refuse_field(in, "tool_choice", "a reply that has begun cannot be made to call");
    if (!from->field || failed(in)) return;
    add_around(r, &around);
    memset(&params, 0, sizeof params);
    if (!s->vocabulary)
        code = bitnet_grammar_gbnf(s->model, "root ::= [a]*", 13, 0, &s->vocabulary, &err);
    params.like = s->vocabulary;
    params.around = around.p;
    if (from->text.failed || around.failed) in->error = no_memory();
    else if (code == BITNET_OK)
        code = (from->is_schema ? bitnet_grammar_json_schema : bitnet_grammar_gbnf)
                   (s->model, from->text.p, from->text.n, &params, &r->grammar, &err);
    if (code) in->error = refuse(code == BITNET_ERR_MEMORY ? 503 : 400, from->field, "%s: %s",
                                 from->field, err.text);
    buffer_free(&around);
}

/* ---- the request ---- */

uint64_t request_mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A whole number from -2^63 to 2^64 - 1 as 64 bits; written with a point or an exponent, up to
   2^53. Returns 0 if it is none. */
static int integer_of(const json *j, uint32_t node, uint64_t *out) {
    const json_node *v = &j->nodes[node];
    const char *p = j->text + v->at, *end = p + v->len;
    const int is_negative = *p == '-';
    uint64_t n = 0;
    if (json_kind(j, node) != JSON_NUMBER) return 0;
    for (p += is_negative; p < end && *p >= '0' && *p <= '9'; p++) {
        const uint64_t digit = (uint64_t)(*p - '0');
        if (n > (UINT64_MAX - digit) / 10) return 0;
        n = n * 10 + digit;
    }
    if (p < end) {
        const double x = number_of(j, node);
        if (!(x >= -9007199254740992.0 && x <= 9007199254740992.0) || x != floor(x)) return 0;
        *out = (uint64_t)(int64_t)x;
        return 1;
    }
    *out = is_negative ? 0 - n : n;
    return !is_negative || n <= (uint64_t)1 << 63;
}

/* The seed of each text. OpenAI's are any whole numbers, negative ones too; -1 is llama.cpp's for
   "any", as if there was none. */
static void read_seed(reader *in, uint64_t seed) {
    const uint32_t node = field(in, "seed");
    uint64_t given = 0;
    int is_any = !node;
    int32_t i;
    if (node && !integer_of(&in->j, node, &given))
        refuse_field(in, "seed", "a whole number from -9223372036854775808 to 18446744073709551615 "
                     "is needed");
    else if (node) is_any = given == UINT64_MAX && in->j.text[in->j.nodes[node].at] == '-';
    if (!is_any) seed = given;
    else if (!seed) seed = request_mix(in->r->service->seed++);
    for (i = 0; i < in->r->n_texts; i++) {
        const uint64_t number = (uint64_t)(i % in->r->n);        /* the first has the seed itself */
        in->r->texts[i].sampler.rng = number ? request_mix(seed + number) : seed;
    }
}

/* Its names are those of OpenAI, old and new, and of llama.cpp's server. */
static void read_length(reader *in, int32_t *most) {
    static const char *const names[] = {"max_completion_tokens", "max_tokens", "n_predict"};
    const char *given = 0;
    int i;
    *most = in->r->is_chat ? -1 : 16;  /* OpenAI's default for completions */
    for (i = 0; i < 3; i++) {
        int32_t n = *most;
        if (!field(in, names[i])) continue;
        read_int(in, names[i], -1, INT32_MAX, &n);
        if (n == 0 && in->r->is_chat) refuse_field(in, names[i], "at least 1 is needed");
        if (given && n != *most && !failed(in))
            in->error = refuse(400, names[i], "%s and %s differ", given, names[i]);
        given = names[i];
        *most = n;
    }
}

/* n texts of a prompt. The best of more are not chosen. */
static void read_n(reader *in) {
    request *r = in->r;
    int32_t best = 1;
    r->n = 1;
    read_int(in, "n", 1, r->service->n_best_of, &r->n);
    if (!field(in, "best_of")) return;
    read_int(in, "best_of", 1, INT32_MAX, &best);
    if (best != r->n) refuse_field(in, "best_of", "it must be n: more texts are not compared");
}

static void read_stream_options(reader *in) {
    const uint32_t node = field(in, "stream_options");
    if (node && json_kind(&in->j, node) != JSON_OBJECT)
        refuse_field(in, "stream_options", "an object is needed");
    else if (node) in->r->include_usage = read_bool(in, node, "include_usage");
}

/* OpenAI's clients try again after any 5xx, so what the model cannot do is a 400. */
static void read_request(reader *in, uint64_t seed) {
    request *r = in->r;
    bitnet_sampler sampler;
    rules keeps_to = {0, {0}, 0};
    int32_t most = -1, i;
    refuse_fields(in, r->is_chat ? CHATS : COMPLETIONS);
    if (!r->service->info.has_head) {
        in->error = refuse(400, "model", "this model makes embeddings: it has no output head, so "
                           "it writes no text. Use /v1/embeddings");
        return;
    }
    read_n(in);
    r->stream = read_bool(in, JSON_ROOT, "stream");
    read_stream_options(in);
    r->echo = !r->is_chat && read_bool(in, JSON_ROOT, "echo");
    read_length(in, &most);
    read_sampler(in, &sampler);
    read_logprobs(in);
    read_stops(in);
    read_tools(in, &keeps_to);
    if (r->is_chat) read_thinking(in);
    if (!failed(in)) read_rules(in, &keeps_to);
    if (!failed(in) && r->is_chat) read_messages(in);
    if (!failed(in) && !r->is_chat) read_prompt(in);
    if (!failed(in)) compile(in, &keeps_to);
    buffer_free(&keeps_to.text);
    for (i = 0; i < r->n_texts && !failed(in); i++) {
        engine_text *t = &r->texts[i];
        t->sampler = sampler;
        t->max_tokens = most;
        t->stops = (const char *const *)r->stops;
        t->n_stops = r->n_stops;
        t->grammar = r->grammar;
        t->logprobs = r->logprobs;
        t->echo = r->echo;
        t->first = i % r->n ? &r->texts[i - i % r->n] : 0;
    }
    if (!failed(in)) read_seed(in, seed);
}

/* ---- embeddings ---- */

/* The tokens of input i. */
static void read_input(reader *in, int32_t i, uint32_t node, const char *name, int flags) {
    const service *s = in->r->service;
    const json_type kind = json_kind(&in->j, node);
    bitnet_embed_input *out = &in->r->embed.inputs[i];
    bitnet_token *tokens = 0;
    if (kind != JSON_STRING && kind != JSON_ARRAY)
        refuse_field(in, name, "the inputs must be of one kind");
    else if (kind == JSON_STRING ? in->j.nodes[node].len == 0 : in->j.nodes[node].n == 0)
        refuse_field(in, name, "it is empty");
    else if (kind == JSON_STRING)
        tokens = tokens_that_fit(in, name, node, flags, &out->n_tokens);
    else tokens = tokens_of_list(in, name, node, &out->n_tokens);
    in->r->prompts[i] = tokens;
    out->tokens = tokens;
    if (failed(in)) return;
    if (out->n_tokens == 0) refuse_field(in, name, "it is empty");
    else if (out->n_tokens > s->n_ctx) {
        in->error = refuse(400, name, "%s has %d tokens, but the context holds %d", name,
                           (int)out->n_tokens, (int)s->n_ctx);
        in->error.code = "context_length_exceeded";
    }
}

static http_error make_inputs(request *r, uint32_t n) {
    r->n_prompts = r->embed.n = (int32_t)n;
    r->prompts = (bitnet_token **)calloc(n, sizeof *r->prompts);
    r->embed.inputs = (bitnet_embed_input *)calloc(n, sizeof *r->embed.inputs);
    return r->prompts && r->embed.inputs ? fine() : no_memory();
}

static void read_inputs(reader *in, request *r) {
    const uint32_t node = field(in, "input");
    const int flags = flags_of(&r->service->info) | read_special(in);
    uint32_t at, i, n;
    char name[32] = "input";
    if (failed(in)) return;
    if (node && json_kind(&in->j, node) == JSON_ARRAY && in->j.nodes[node].n == 0) {
        refuse_field(in, "input", "it is empty");
        return;
    }
    n = count_parts(in, "input", &at);
    if (n > MOST_INPUTS) {
        in->error = refuse(400, "input", "at most %d inputs are possible", MOST_INPUTS);
        return;
    }
    if (n > 0) in->error = make_inputs(r, n);
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        if (at != node) snprintf(name, sizeof name, "input[%u]", (unsigned)i);
        read_input(in, (int32_t)i, at, name, flags);
    }
    if (failed(in) && in->error.param[0]) strcpy(in->error.param, "input");
}

static void read_embeddings(reader *in, request *r) {
    const service *s = in->r->service;
    const uint32_t format = field(in, "encoding_format");
    int32_t dim = s->info.dim;
    refuse_fields(in, EMBEDDINGS);
    if (!s->info.pooling) {
        in->error = refuse(400, "model", "this model writes text: its file does not say how to "
                           "make embeddings");
        return;
    }
    r->is_base64 = json_is(&in->j, format, "base64");
    if (format && !in->r->is_base64 && !json_is(&in->j, format, "float"))
        refuse_field(in, "encoding_format", "float or base64 is needed");
    read_int(in, "dimensions", 1, INT32_MAX, &dim);
    if (dim != s->info.dim && !failed(in))
        in->error = refuse(400, "dimensions", "the vectors of this model have %d dimensions, and "
                           "are not cut", (int)s->info.dim);
    if (!failed(in)) read_inputs(in, r);
}

static http_error parse_json(json *j, const char *name, char *body, size_t size) {
    bitnet_error err;
    bitnet_result r;
    memset(j, 0, sizeof *j);
    snprintf(j->name, sizeof j->name, "%s", name);
    j->text = body;
    j->size = size;
    if (size > JSON_MAX_BYTES) return refuse(413, 0, "%s is too large", name);
    r = json_parse(j, &err);
    return r ? of_library(r, 0, err.text) : fine();
}

/* Begins a request, whose body has to be an object. */
static http_error open_request(request *r, service *s, json *j, const char *name, char *body,
                               size_t size) {
    http_error e;
    memset(r, 0, sizeof *r);
    r->service = s;
    r->created = (int64_t)time(0);
    e = parse_json(j, name, body, size);
    if (!e.status && json_kind(j, JSON_ROOT) != JSON_OBJECT)
        e = refuse(400, 0, "the body must be a JSON object");
    if (!e.status && j->nodes[JSON_ROOT].n > MOST_FIELDS)      /* each look-up walks over them */
        e = refuse(400, 0, "the body has more than %d fields", MOST_FIELDS);
    return e;
}

http_error request_parse(request *r, service *s, int is_chat, const char *name, char *body,
                         size_t size, uint64_t seed) {
    reader in = {0};
    in.r = r;
    in.error = open_request(r, s, &in.j, name, body, size);
    r->is_chat = is_chat;
    if (!failed(&in)) read_request(&in, seed);
    json_free(&in.j);
    return in.error;
}

http_error request_parse_embeddings(request *r, service *s, const char *name, char *body,
                                    size_t size) {
    reader in = {0};
    in.r = r;
    in.error = open_request(r, s, &in.j, name, body, size);
    if (!failed(&in)) read_embeddings(&in, r);
    json_free(&in.j);
    return in.error;
}

void request_free(request *r) {
    int32_t i;
    for (i = 0; r->prompts && i < r->n_prompts; i++) free(r->prompts[i]);
    for (i = 0; i < r->n_stops; i++) free(r->stops[i]);
    free(r->prompts);
    free(r->stops);
    free(r->texts);
    free(r->embed.inputs);
    free(r->bias);
    free(r->tools);
    free(r->begun);
    bitnet_grammar_free(r->grammar);
    memset(r, 0, sizeof *r);
}

/* ---- tokens and text ---- */

/* A token as a text, or where that is not UTF-8 as a list of bytes. */
static void add_piece(const service *s, bitnet_token token, buffer *out) {
    size_t n, i;
    const char *p = bitnet_token_text(s->model, token, &n);
    buffer_format(out, "{\"id\":%d,\"piece\":", (int)token);
    if (buffer_is_utf8(p, n)) buffer_json(out, p, n);
    else for (i = 0; i < n; i++) buffer_format(out, i ? ",%d" : "[%d", (uint8_t)p[i]);
    buffer_text(out, buffer_is_utf8(p, n) ? "}" : "]}");
}

static void tokenize_content(reader *in, buffer *out) {
    const service *s = in->r->service;
    const uint32_t node = field(in, "content");
    const int flags = (read_bool(in, JSON_ROOT, "add_special") ? flags_of(&s->info) : 0) |
                      read_special(in),
              with_pieces = read_bool(in, JSON_ROOT, "with_pieces");
    bitnet_token *tokens = 0;
    int32_t i, n;
    if (!node || json_kind(&in->j, node) != JSON_STRING)
        refuse_field(in, "content", "a string is needed");
    if (!failed(in))                   /* some count the tokens of what they then cut */
        tokens = (in->j.nodes[node].len > MOST_TOKENIZED ? tokens_that_fit : tokens_of_text)
                     (in, "content", node, flags, &n);
    if (!tokens) return;
    buffer_text(out, "{\"tokens\":[");
    for (i = 0; i < n; i++) {
        if (i) buffer_text(out, ",");
        if (with_pieces) add_piece(s, tokens[i], out);
        else buffer_format(out, "%d", (int)tokens[i]);
    }
    buffer_text(out, "]}");
    free(tokens);
}

http_error request_tokenize(service *s, char *body, size_t size, buffer *out) {
    reader in = {0};
    request r;
    memset(&r, 0, sizeof r);
    r.service = s;
    r.n = 1;
    in.r = &r;
    in.error = parse_json(&in.j, "the body", body, size);
    if (!failed(&in)) tokenize_content(&in, out);
    json_free(&in.j);
    return in.error;
}

http_error request_detokenize(service *s, char *body, size_t size, buffer *out) {
    reader in = {0};
    request r;
    uint32_t node, at, i;
    uint64_t v = 0;
    buffer text = {0};
    memset(&r, 0, sizeof r);
    r.service = s;
    in.r = &r;
    in.error = parse_json(&in.j, "the body", body, size);
    node = failed(&in) ? 0 : field(&in, "tokens");
    if (!failed(&in) && (!node || json_kind(&in.j, node) != JSON_ARRAY))
        refuse_field(&in, "tokens", "a list of tokens is needed");
    for (i = 0, at = node + 1; !failed(&in) && i < in.j.nodes[node].n; i++) {
        const char *piece;
        size_t n;
        if (!json_uint(&in.j, at, &v) || v >= (uint64_t)s->info.n_vocab) {
            refuse_field(&in, "tokens", "a number is no token of the vocabulary");
            break;
        }
        piece = bitnet_token_text(s->model, (bitnet_token)v, &n);
        buffer_add(&text, piece ? piece : "", n);
        at = in.j.nodes[at].next;
    }
    if (text.failed && !failed(&in)) in.error = no_memory();
    if (!failed(&in)) {
        buffer_text(out, "{\"content\":");
        buffer_json(out, text.p ? text.p : "", text.n);
        buffer_text(out, "}");
    }
    buffer_free(&text);
    json_free(&in.j);
    return in.error;
}
