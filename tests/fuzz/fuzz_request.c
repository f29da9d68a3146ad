/* Bodies of requests to examples/server: the first byte says which address, 0 .. 4 for completions,
   chat, tokenize, detokenize and embeddings, and 8 more for the others; with 128 the model has the
   template qwen-3.8, whose calls have another form; the rest is the body. It is
   refused with a status and words, or all of its texts have a prompt and options within their
   limits. Then an answer is written, whole and as a stream, which is JSON. */
#include "../../examples/server/buffer.c"
#include "../../examples/server/fields.c"
#include "../../examples/server/tokens.c"
#include "../../examples/server/calls.c"
#include "../../examples/server/messages.c"
#include "../../examples/server/rules.c"
#include "../../examples/server/request.c"
#include "../../examples/server/choice.c"
#include "../../examples/server/reply.c"
#include "../../examples/server/translate.c"
#include "../../examples/server/responses.c"
#include "../../examples/server/anthropic.c"
#include "../../examples/server/llama.c"
#include "../../examples/server/rerank.c"
#include "../../examples/server/endpoint.c"

enum { REQUEST_CTX = 512 };

/* The service is made once: its vocabulary's table is shared by all grammars, as in the server. */
static service *request_service(int is_qwen) {
    static service s;
    static bitnet_model *m;
    static const bitnet_chat_template *own, *qwen;
    bitnet_error err;
    int i = 0;
    if (!m) {
        FUZZ_CHECK(!bitnet_model_load_file("examples/tiny.gguf", 0, &m, &err));
        FUZZ_CHECK(!service_open(&s, m, "a/b.gguf", REQUEST_CTX, &err));
        while (strcmp(bitnet__chat_rows[i].t.name, "qwen-3.8")) i++;
        qwen = &bitnet__chat_rows[i].t;
        own = m->vocab.chat;
    }
    m->vocab.chat = is_qwen ? qwen : own;
    s.seed = 7;
    s.info.pooling = BITNET_POOLING_MEAN;        /* as if the model also made embeddings */
    return &s;
}

static void request_check_error(const http_error *e) {
    FUZZ_CHECK_MSG(e->status == 400 || e->status == 413 || e->status == 503, "%d", e->status);
    FUZZ_CHECK(e->text[0] && memchr(e->text, 0, sizeof e->text));
    FUZZ_CHECK(memchr(e->param, 0, sizeof e->param) && fuzz_is_utf8(e->text, strlen(e->text)));
}

static void request_check_text(const request *r, const engine_text *t) {
    int32_t i;
    FUZZ_CHECK(t->n_prompt >= 1 && t->n_prompt < REQUEST_CTX && t->max_tokens >= -1);
    for (i = 0; i < t->n_prompt; i++)
        FUZZ_CHECK(t->prompt[i] >= 0 && t->prompt[i] < r->service->info.n_vocab);
    FUZZ_CHECK(t->n_unspelled == 0 || (t->n_unspelled == 1 && t->n_prompt >= 1));
    FUZZ_CHECK(t->grammar == r->grammar);
    FUZZ_CHECK(t->logprobs >= -1 && t->logprobs <= 20 && !t->first == (t == r->texts ||
               (t - r->texts) % r->n == 0));
    FUZZ_CHECK(t->sampler.temperature >= 0 && t->sampler.top_p >= 0 && t->sampler.top_p <= 1);
    for (i = 0; i < t->sampler.n_bias; i++)
        FUZZ_CHECK(t->sampler.bias[i].token >= 0 &&
                   t->sampler.bias[i].token < r->service->info.n_vocab);
    for (i = 0; i < t->n_stops; i++)
        FUZZ_CHECK(t->stops[i].size > 0 && fuzz_is_utf8(t->stops[i].data, t->stops[i].size));
}

/* A body of exactly its size and a NUL, which is taken over. */
static char *request_body(const uint8_t *data, size_t size) {
    char *body = (char *)gb_malloc(size + 1);
    if (size) memcpy(body, data, size);
    body[size] = 0;
    return body;
}

static void request_check_inputs(const service *s, const request *r) {
    int32_t i, k;
    FUZZ_CHECK(r->embed.n <= 2048);
    for (i = 0; i < r->embed.n; i++) {
        const bitnet_embed_input *in = &r->embed.inputs[i];
        FUZZ_CHECK(!in->text.data && in->n_tokens >= 1 && in->n_tokens <= REQUEST_CTX);
        for (k = 0; k < in->n_tokens; k++)
            FUZZ_CHECK(in->tokens[k] >= 0 && in->tokens[k] < s->info.n_vocab);
    }
}

static void request_check_json(const char *p, size_t n) {
    json j;
    memset(&j, 0, sizeof j);
    j.text = request_body((const uint8_t *)p, j.size = n);
    FUZZ_CHECK(!json_parse(&j, 0));
    json_free(&j);
}

/* Each line of a stream that has data is JSON, but for the last of OpenAI's. */
static void request_check_stream(const buffer *out) {
    const char *p = out->p, *end;
    for (; p && (p = strstr(p, "data: ")) != 0; p = end) {
        p += strlen("data: ");
        end = strchr(p, '\n');
        FUZZ_CHECK(end);
        if (strncmp(p, "[DONE]", 6)) request_check_json(p, (size_t)(end - p));
    }
}

/* What an endpoint makes of a reply that thinks, speaks and calls. */
static void request_answer(const request *r, int is_stream) {
    static const char text[] = "<think>\na\n</think>\n\nb<tool_call>\n{\"name\": \"f\"}\n"
                               "</tool_call><tool_call>\n<function=f>\n<parameter=x>\n1\n"
                               "</parameter>\n</function>\n</tool_call>";
    const endpoint *how = r->endpoint;
    choice *c = (choice *)gb_malloc(((size_t)r->n_texts + 1) * sizeof *c);
    buffer out = {0};
    int32_t i;
    size_t k;
    memset(c, 0, ((size_t)r->n_texts + 1) * sizeof *c);
    for (i = 0; i < r->n_texts; i++) {
        for (k = 0; k + 1 < sizeof text; k++) {
            choice_add(&c[i], r, &r->texts[i], text + k, 1, 0);
            if (is_stream) how->event(&out, r, i, &c[i]);
        }
        if (is_stream) how->last_event(&out, r, i, &c[i]);
    }
    if (is_stream) how->done(&out, r, c);
    else how->whole(&out, r, c);
    FUZZ_CHECK(!out.failed);
    if (is_stream) request_check_stream(&out);
    else request_check_json(out.p, out.n);
    for (i = 0; i < r->n_texts; i++) choice_free(&c[i]);
    buffer_free(&out);
    free(c);
}

static void request_parse_one(service *s, const endpoint *to, const uint8_t *data, size_t size) {
    request r;
    int32_t i;
    const http_error e =
        request_parse(&r, s, to, "the body", request_body(data, size), size, 0);
    if (e.status) request_check_error(&e);
    else {
        FUZZ_CHECK(r.embed.n >= 1 || (r.n >= 1 && r.n_texts >= r.n && r.n_texts % r.n == 0));
        FUZZ_CHECK(r.n_texts <= s->n_best_of);
        for (i = 0; i < r.n_texts; i++) request_check_text(&r, &r.texts[i]);
        request_check_inputs(s, &r);
        if (r.n_texts && to->whole) {
            request_answer(&r, 0);
            request_answer(&r, 1);
        }
    }
    request_free(&r);
}

/* What tokenize and detokenize give is JSON again. */
static void request_convert(service *s, int back, const uint8_t *data, size_t size) {
    buffer out = {0};
    json j;
    const http_error e = back ? request_detokenize(s, 0, request_body(data, size), size, &out)
                              : request_tokenize(s, 0, request_body(data, size), size, &out);
    if (e.status) request_check_error(&e);
    else {
        memset(&j, 0, sizeof j);
        j.text = request_body((const uint8_t *)out.p, j.size = out.n);
        FUZZ_CHECK(!json_parse(&j, 0));
        json_free(&j);
    }
    buffer_free(&out);
}

FUZZ_TARGET(request) {
    static const endpoint *const to[] = {&endpoint_completions, &endpoint_chat,
                                         &endpoint_embeddings};
    static const endpoint *const others[] = {
        &endpoint_responses, &endpoint_messages, &endpoint_messages_count, &endpoint_llama,
        &endpoint_rerank, &endpoint_responses, &endpoint_messages, &endpoint_llama
    };
    service *s;
    if (size == 0) return;
    s = request_service(*data >> 7);
    if (*data & 8) request_parse_one(s, others[*data & 7], data + 1, size - 1);
    else if ((*data & 6) == 2) request_convert(s, *data & 1, data + 1, size - 1);
    else request_parse_one(s, to[*data & 4 ? 2 : *data & 1], data + 1, size - 1);
}
