#define _DEFAULT_SOURCE 1              /* for threads.h, also with -std=c99 */
#include "choice.h"
#include "endpoint.h"
#include "messages.h"
#include "rules.h"
#include "tokens.h"
#include "../threads.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_STOPS = 64, MOST_TEXTS = 128, MOST_INPUTS = 2048,
       MOST_FIELDS = 1024, MOST_ENDS = 64, MOST_TOKENIZED = 1 << 20, MOST_ENTRIES = 1 << 20,
       MOST_DETOKENIZED = 16 << 20 };

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

bitnet_result service_vocabulary(service *s, const bitnet_grammar **out, bitnet_error *err) {
    static thread_lock making = THREAD_LOCK;
    bitnet_result r = BITNET_OK;
    thread_take(&making);
    if (!s->vocabulary)
        r = bitnet_grammar_gbnf(s->model, "root ::= [a]*", 13, 0, &s->vocabulary, err);
    *out = s->vocabulary;
    thread_give(&making);
    return r;
}

void service_close(service *s) { bitnet_grammar_free(s->vocabulary); }

/* ---- options ---- */

static void read_stops(reader *in) {
    const uint32_t node = field_get(in, "stop");
    const int is_list = node && json_kind(&in->j, node) == JSON_ARRAY;
    const uint32_t n = !node ? 0 : is_list ? in->j.nodes[node].n : 1;
    uint32_t at = is_list ? node + 1 : node, i;
    size_t bytes = 0;
    request *r = in->r;
    if (n > MOST_STOPS) {
        refuse_field(in, "stop", "too many strings");
        return;
    }
    if (n > 0 && !(r->stops = (bitnet_text *)calloc(n, sizeof *r->stops)))
        in->error = refuse_memory();
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        const char *s = node_string(in, at);
        bytes += s ? in->j.nodes[at].len : 0;
        if (!s || !s[0])
            refuse_field(in, "stop", "a string without NUL that is not empty, or a list of these, "
                         "is needed");
        else if (bytes > MOST_STOP_BYTES)        /* each text searches for them by tables */
            in->error = refuse(400, "stop", "stop: the strings have more than %d bytes together",
                               MOST_STOP_BYTES);
        else if (!(r->stops[i] = bitnet_text_of(strdup(s))).data) in->error = refuse_memory();
        else r->n_stops++;
    }
}

/* The token whose number a key is, or -1. */
static bitnet_token token_of(const service *s, const char *key) {
    char *end;
    const long t = strtol(key, &end, 10);
    return *key >= '0' && *key <= '9' && !*end && t < s->info.n_vocab ? (bitnet_token)t : -1;
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
    const uint32_t node = field_get(in, "logit_bias");
    const int has_end = !field_bool(in, JSON_ROOT, "ignore_eos");
    const uint32_t n = node ? in->j.nodes[node].n : 0;
    uint32_t at = node + 1, i;
    request *r = in->r;
    if (!node && has_end) return;
    if (node && json_kind(&in->j, node) != JSON_OBJECT) {
        refuse_field(in, "logit_bias", "an object of tokens and numbers is needed");
        return;
    }
    r->bias = (bitnet_logit_bias *)calloc(n + MOST_ENDS, sizeof *r->bias);
    if (!r->bias) in->error = refuse_memory();
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at + 1].next) {
        const char *key = node_string(in, at);
        const bitnet_token token = key ? token_of(r->service, key) : -1;
        const int is_number = json_kind(&in->j, at + 1) == JSON_NUMBER;
        const double bias = is_number ? node_number(&in->j, at + 1) : NAN;
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
    const uint32_t node = field_get(in, "logprobs");
    int32_t n = 0;
    r->logprobs = -1;
    if (!r->is_chat) {
        if (!node || json_kind(&in->j, node) == JSON_FALSE) return;
        field_int(in, "logprobs", 0, 20, &n);
        r->logprobs = n;
    } else if (field_bool(in, JSON_ROOT, "logprobs")) {
        field_int(in, "top_logprobs", 0, 20, &n);
        r->logprobs = n;
    } else {
        field_int(in, "top_logprobs", 0, 20, &n);
        if (n > 0) refuse_field(in, "top_logprobs", "it needs logprobs: true");
    }
}

/* The defaults are OpenAI's: temperature 1 and top_p 1; top_k and min_p are those of generate. */
static void read_sampler(reader *in, bitnet_sampler *s) {
    memset(s, 0, sizeof *s);
    s->temperature = s->top_p = 1;
    s->top_k = 40;
    s->min_p = 0.05f;
    field_float(in, "temperature", 0, 100, &s->temperature);
    field_float(in, "top_p", 0, 1, &s->top_p);
    if (s->top_p < 1e-9f) s->top_p = 1e-9f;      /* the best token; 0 is all in the library */
    field_float(in, "min_p", 0, 1, &s->min_p);
    field_float(in, "repeat_penalty", 0, 100, &s->repeat_penalty);
    field_float(in, "frequency_penalty", -2, 2, &s->frequency_penalty);
    field_float(in, "presence_penalty", -2, 2, &s->presence_penalty);
    field_int(in, "top_k", -1, INT32_MAX, &s->top_k);
    if (in->r->endpoint != &endpoint_llama &&
        (s->frequency_penalty != 0 || s->presence_penalty != 0))
        s->repeat_window = -1;         /* OpenAI's penalties see all of the text */
    field_int(in, "repeat_last_n", -1, INT32_MAX, &s->repeat_window);
    if (field_get(in, "repeat_last_n") && s->repeat_window == 0)     /* no token counts */
        s->repeat_penalty = s->frequency_penalty = s->presence_penalty = 0;
    read_bias(in, s);
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
        const double x = node_number(j, node);
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
    const uint32_t node = field_get(in, "seed");
    uint64_t given = 0;
    int is_any = !node;
    int32_t i;
    if (node && !integer_of(&in->j, node, &given))
        refuse_field(in, "seed", "a whole number from -9223372036854775808 to 18446744073709551615 "
                     "is needed");
    else if (node) is_any = given == UINT64_MAX && in->j.text[in->j.nodes[node].at] == '-';
    if (!is_any) seed = given;
    else if (!seed)
        seed = request_mix(__atomic_fetch_add(&in->r->service->seed, 1, __ATOMIC_RELAXED));
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
        if (!field_get(in, names[i])) continue;
        field_int(in, names[i], -1, INT32_MAX, &n);
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
    field_int(in, "n", 1, r->service->n_best_of, &r->n);
    if (!field_get(in, "best_of")) return;
    field_int(in, "best_of", 1, INT32_MAX, &best);
    if (best != r->n) refuse_field(in, "best_of", "it must be n: more texts are not compared");
}

static void read_stream_options(reader *in) {
    const uint32_t node = field_get(in, "stream_options");
    if (node && json_kind(&in->j, node) != JSON_OBJECT)
        refuse_field(in, "stream_options", "an object is needed");
    else if (node) in->r->include_usage = field_bool(in, node, "include_usage");
}

/* Log-probabilities make an answer a hundred times as long as its text, all of which is kept until
   its end. A stream of items says all of them four times when it ends. */
static void bound_logprobs(reader *in) {
    const request *r = in->r;
    const int64_t most = r->stream && r->has_items ? MOST_ENTRIES / 4 : MOST_ENTRIES;
    const int64_t entries = r->logprobs + 1;
    int64_t tokens = 0;
    int32_t i;
    for (i = 0; i < r->n_texts; i++) {
        const engine_text *t = &r->texts[i];
        const int32_t room = r->service->n_ctx - t->n_prompt;
        tokens += t->max_tokens >= 0 && t->max_tokens < room ? t->max_tokens : room;
        tokens += r->echo ? t->n_prompt : 0;
    }
    if ((!r->stream || r->has_items) && entries > 0 && tokens * entries > most)
        in->error = refuse(400, "logprobs", "logprobs: the answer may have up to %lld entries, and "
                           "%d are possible: say %s", (long long)(tokens * entries), (int)most,
                           r->has_items ? "max_output_tokens, or ask for less"
                                        : "max_tokens, ask for less, or use a stream");
}

/* A thought may have what shall end the reply. */
static void read_stops_of_reply(reader *in) {
    request *r = in->r;
    bitnet_reply parts;
    bitnet_reply_begin(&parts, r->service->model, &r->chat);
    if (failed(in) || !r->is_chat || !r->n_stops || !parts.thinks) return;
    r->stop_links = choice_stop_links(r->stops, r->n_stops);
    if (!r->stop_links) in->error = refuse_memory();
}

/* OpenAI's clients try again after any 5xx, so what the model cannot do is a 400. */
static void read_request(reader *in, uint64_t seed) {
    request *r = in->r;
    bitnet_sampler sampler;
    rules keeps_to;
    int32_t most = -1, i;
    memset(&keeps_to, 0, sizeof keeps_to);
    refuse_impossible(in, r->is_chat ? CHATS : COMPLETIONS);
    if (!r->service->info.has_head) {
        in->error = refuse(400, "model", "this model makes embeddings: it has no output head, so "
                           "it writes no text. Use /v1/embeddings");
        return;
    }
    read_n(in);
    r->stream = field_bool(in, JSON_ROOT, "stream");
    read_stream_options(in);
    r->echo = !r->is_chat && field_bool(in, JSON_ROOT, "echo");
    read_length(in, &most);
    read_sampler(in, &sampler);
    read_logprobs(in);
    read_stops(in);
    rules_read_tools(in, &keeps_to);
    if (r->is_chat) messages_read_thinking(in);
    if (!failed(in)) rules_read(in, &keeps_to);
    if (!failed(in) && r->is_chat) messages_read(in);
    if (!failed(in) && !r->is_chat) tokens_read_prompt(in);
    if (!failed(in)) rules_compile(in, &keeps_to);
    read_stops_of_reply(in);
    rules_free(&keeps_to);
    for (i = 0; i < r->n_texts && !failed(in); i++) {
        engine_text *t = &r->texts[i];
        t->sampler = sampler;
        t->max_tokens = most;
        t->stops = r->stops;
        t->n_stops = r->stop_links ? 0 : r->n_stops;
        t->grammar = r->grammar;
        t->logprobs = r->logprobs;
        t->echo = r->echo;
        t->first = i % r->n ? &r->texts[i - i % r->n] : 0;
    }
    if (!failed(in)) read_seed(in, seed);
    if (!failed(in)) bound_logprobs(in);
}

void request_read_chat(reader *in, uint64_t seed) {
    in->r->is_chat = 1;
    read_request(in, seed);
}

void request_read_completion(reader *in, uint64_t seed) { read_request(in, seed); }

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
    return r->prompts && r->embed.inputs ? refuse_none() : refuse_memory();
}

static void read_inputs(reader *in, request *r) {
    const uint32_t node = field_get(in, "input");
    const int flags = tokens_flags(&r->service->info) | tokens_special(in);
    uint32_t at, i, n;
    char name[32] = "input";
    if (failed(in)) return;
    if (node && json_kind(&in->j, node) == JSON_ARRAY && in->j.nodes[node].n == 0) {
        refuse_field(in, "input", "it is empty");
        return;
    }
    n = tokens_count_parts(in, "input", &at);
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

void request_read_embeddings(reader *in, uint64_t seed) {
    request *r = in->r;
    const service *s = in->r->service;
    const uint32_t format = field_get(in, "encoding_format");
    int32_t dim = s->info.dim;
    (void)seed;
    refuse_impossible(in, EMBEDDINGS);
    if (!s->info.pooling) {
        in->error = refuse(400, "model", "this model writes text: its file does not say how to "
                           "make embeddings");
        return;
    }
    r->is_base64 = json_is(&in->j, format, "base64");
    if (format && !in->r->is_base64 && !json_is(&in->j, format, "float"))
        refuse_field(in, "encoding_format", "float or base64 is needed");
    field_int(in, "dimensions", 1, INT32_MAX, &dim);
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
    return r ? refuse_library(r, 0, err.text) : refuse_none();
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

http_error request_parse(request *r, service *s, const endpoint *from, const char *name,
                         char *body, size_t size, uint64_t seed) {
    reader in = {0};
    in.r = r;
    in.error = open_request(r, s, &in.j, name, body, size);
    r->endpoint = from;
    if (!failed(&in)) from->read(&in, seed);
    json_free(&in.j);
    return in.error;
}

void request_free(request *r) {
    int32_t i;
    for (i = 0; r->prompts && i < r->n_prompts; i++) free(r->prompts[i]);
    for (i = 0; i < r->n_stops; i++) free((void *)(uintptr_t)r->stops[i].data);
    free(r->prompts);
    free(r->stops);
    free(r->stop_links);
    free(r->texts);
    free(r->embed.inputs);
    free(r->bias);
    free(r->tools);
    free(r->begun);
    free(r->repeats);
    free(r->ranking);
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
    const uint32_t node = field_get(in, "content");
    const int flags = (field_bool(in, JSON_ROOT, "add_special") ? tokens_flags(&s->info) : 0) |
                      tokens_special(in),
              with_pieces = field_bool(in, JSON_ROOT, "with_pieces");
    bitnet_token *tokens = 0;
    int32_t i, n = 0;
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

static void detokenize_tokens(reader *in, buffer *out) {
    const service *s = in->r->service;
    const uint32_t node = field_get(in, "tokens");
    uint32_t at = node + 1, i;
    uint64_t v = 0;
    buffer text = {0};
    if (!node || json_kind(&in->j, node) != JSON_ARRAY)
        refuse_field(in, "tokens", "a list of tokens is needed");
    for (i = 0; !failed(in) && i < in->j.nodes[node].n; i++, at = in->j.nodes[at].next) {
        const char *piece;
        size_t n;
        if (!json_uint(&in->j, at, &v) || v >= (uint64_t)s->info.n_vocab) {
            refuse_field(in, "tokens", "a number is no token of the vocabulary");
            break;
        }
        piece = bitnet_token_text(s->model, (bitnet_token)v, &n);
        buffer_add(&text, piece ? piece : "", n);
        if (text.n > MOST_DETOKENIZED)
            refuse_field(in, "tokens", "their text has more than 16 MB");
    }
    if (text.failed && !failed(in)) in->error = refuse_memory();
    if (!failed(in)) {
        buffer_text(out, "{\"content\":");
        buffer_json(out, text.p ? text.p : "", text.n);
        buffer_text(out, "}");
    }
    buffer_free(&text);
}

/* Reads a body and lets `make` add the answer of it. */
static http_error answer_body(service *s, const endpoint *how, char *body, size_t size, buffer *out,
                              void (*make)(reader *in, buffer *out)) {
    reader in = {0};
    request r;
    memset(&r, 0, sizeof r);
    r.service = s;
    r.endpoint = how;
    r.n = 1;
    in.r = &r;
    in.error = parse_json(&in.j, "the body", body, size);
    if (!failed(&in)) make(&in, out);
    json_free(&in.j);
    return in.error;
}

http_error request_tokenize(service *s, const endpoint *how, char *body, size_t size, buffer *out) {
    return answer_body(s, how, body, size, out, tokenize_content);
}

http_error request_detokenize(service *s, const endpoint *how, char *body, size_t size,
                              buffer *out) {
    return answer_body(s, how, body, size, out, detokenize_tokens);
}
