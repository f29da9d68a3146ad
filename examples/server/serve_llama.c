#include "serve_llama.h"
#include "llama.h"
#include "serve.h"
#include "serve_figures.h"
#include <stdlib.h>
#include <string.h>

/* A token's text, or "". */
static void add_token(buffer *out, const char *name, bitnet_token t) {
    size_t n = 0;
    const char *text = t >= 0 ? bitnet_token_text(serving.model, t, &n) : 0;
    buffer_format(out, ",\"%s\":", name);
    buffer_json(out, text ? text : "", text ? n : 0);
}

/* The file's chat template, or "". */
static void add_template(buffer *out) {
    static const char key[] = "tokenizer.chat_template";
    const int n = bitnet_model_get_meta(serving.model, key, 0, 0);
    char *text = n > 0 ? (char *)malloc((size_t)n + 1) : 0;
    if (text) bitnet_model_get_meta(serving.model, key, text, (size_t)n + 1);
    buffer_text(out, ",\"chat_template\":");
    buffer_json(out, text ? text : "", text ? strlen(text) : 0);
    free(text);
}

answer answer_props(job *j) {
    buffer out = {0};
    buffer_format(&out, "{\"default_generation_settings\":{\"n_ctx\":%d,\"params\":",
                  (int)serving.n_ctx);
    llama_add_defaults(&out, &serving);
    buffer_format(&out, "},\"total_slots\":%ld,\"model_alias\":", settings.n_slots);
    buffer_json(&out, serving.name, strlen(serving.name));
    buffer_text(&out, ",\"model_path\":");
    buffer_json(&out, settings.model_path, strlen(settings.model_path));
    add_template(&out);
    add_token(&out, "bos_token", serving.info.bos);
    add_token(&out, "eos_token", serving.info.eos);
    buffer_format(&out, ",\"modalities\":{\"vision\":false,\"audio\":false},\"build_info\":"
                  "\"bitnet.h-%s\"}", bitnet_version());
    return http_send_buffer(j->connection, HTTP_JSON, &out);
}

/* How many slots are busy is so; which of them does not matter to anybody outside. */
answer answer_slots(job *j) {
    const char *needs_one =
        MHD_lookup_connection_value(j->connection, MHD_GET_ARGUMENT_KIND, "fail_on_no_slot");
    buffer out = {0};
    long i, busy;
    thread_take(&serve_lock);
    busy = figures.busy_slots;
    thread_give(&serve_lock);
    if (needs_one && busy >= settings.n_slots)
        return http_send_error(j->connection, 0, refuse(503, 0, "no slot is free"));
    for (i = 0; i < settings.n_slots; i++)
        buffer_format(&out, "%s{\"id\":%ld,\"n_ctx\":%d,\"speculative\":false,"
                      "\"is_processing\":%s}", i ? "," : "[", i, (int)serving.n_ctx,
                      i < busy ? "true" : "false");
    buffer_text(&out, "]");
    return http_send_buffer(j->connection, HTTP_JSON, &out);
}

static http_error read_by(job *j, http_error (*make)(service *, const endpoint *, char *, size_t,
                                                     buffer *)) {
    size_t size;
    char *body = job_take_body(j, &size);
    const http_error e = body ? make(&serving, route_endpoint(j->route), body, size, &j->out)
                              : refuse_memory();
    return !e.status && j->out.failed ? refuse_memory() : e;
}

http_error read_template(job *j) { return read_by(j, llama_template); }
http_error read_count(job *j) { return read_by(j, llama_count); }
http_error read_tokenize(job *j) { return read_by(j, request_tokenize); }
http_error read_detokenize(job *j) { return read_by(j, request_detokenize); }
