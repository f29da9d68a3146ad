#include "fields.h"
#include "../json/text.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- failures ---- */

http_error refuse_none(void) {
    http_error e;
    memset(&e, 0, sizeof e);
    return e;
}

http_error refuse(int status, const char *param, const char *format, ...) {
    http_error e = refuse_none();
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

http_error refuse_memory(void) { return refuse(503, 0, "the server has no memory for this"); }

http_error refuse_library(bitnet_result r, const char *param, const char *text) {
    return refuse(r == BITNET_ERR_MEMORY ? 503 : 400, param, "%s", text);
}

void refuse_field(reader *in, const char *field, const char *what) {
    if (!failed(in)) in->error = refuse(400, field, "%s: %s", field, what);
}

/* ---- values ---- */

uint32_t field_get(const reader *in, const char *name) {
    return json_get(&in->j, JSON_ROOT, name);
}

/* The body ends with a NUL, and behind a number is what ends it. strtod wants the point of the
   locale "C", in which a program is that never calls setlocale, as these. */
double node_number(const json *j, uint32_t node) {
    return strtod(j->text + j->nodes[node].at, 0);
}

static void field_number(reader *in, const char *name, double low, double high, double *out) {
    const uint32_t node = field_get(in, name);
    char what[96];
    double v;
    if (!node) return;
    v = json_kind(&in->j, node) == JSON_NUMBER ? node_number(&in->j, node) : NAN;
    if (v >= low && v <= high) *out = v;
    else {
        snprintf(what, sizeof what, "a number from %.0f to %.0f is needed", low, high);
        refuse_field(in, name, what);
    }
}

void field_float(reader *in, const char *name, double low, double high, float *out) {
    double v = (double)*out;
    field_number(in, name, low, high, &v);
    *out = (float)v;
}

void field_int(reader *in, const char *name, int32_t low, int32_t high, int32_t *out) {
    double v = *out;
    field_number(in, name, low, high, &v);
    if (v != floor(v)) refuse_field(in, name, "a whole number is needed");
    else *out = (int32_t)v;
}

int field_bool(reader *in, uint32_t object, const char *name) {
    const uint32_t node = json_get(&in->j, object, name);
    const json_type type = json_kind(&in->j, node);
    if (node && type != JSON_TRUE && type != JSON_FALSE)
        refuse_field(in, name, "true or false is needed");
    return node && type == JSON_TRUE;
}

int field_bool_or_true(reader *in, const char *name) {
    return !field_get(in, name) || field_bool(in, JSON_ROOT, name);
}

const char *node_string(const reader *in, uint32_t node) {
    const json_node *v = &in->j.nodes[node];
    if (!node || v->type != JSON_STRING || memchr(in->j.text + v->at, 0, v->len)) return 0;
    return in->j.text + v->at;
}

/* ---- what cannot be ---- */

enum { TEXTS = CHATS | COMPLETIONS, ALL = TEXTS | EMBEDDINGS };

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
            found = node_number(j, node) == strtod(text, 0);
        text += n + (text[n] == ' ');
    }
    buffer_free(&value);
    return found;
}

void refuse_impossible(reader *in, int where) {
    size_t i;
    for (i = 0; i < sizeof impossibles / sizeof impossibles[0] && !failed(in); i++) {
        const struct impossible *f = &impossibles[i];
        const uint32_t node = f->where & where ? field_get(in, f->name) : 0;
        if (!node || is_as_is(&in->j, node, f->as_is)) continue;
        in->error = refuse(400, f->name, "%s: %s%s is possible here%s%s", f->name,
                           f->as_is[0] ? "only " : "nothing of this", f->as_is,
                           f->instead ? ": " : "", f->instead ? f->instead : "");
    }
}
