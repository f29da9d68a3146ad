#include "serve_answers.h"
#include "serve.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static answer send_stream(job *j) {
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, job_read, j, 0);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");       /* nginx would hold it back */
    return http_send(j->connection, 200, r, "text/event-stream; charset=utf-8");
}

static void name_request(request *r) {
    static unsigned long long number;
    pthread_mutex_lock(&serve_lock);
    number++;
    snprintf(r->id, sizeof r->id, "%s-%llx%05llx", r->endpoint->id, (unsigned long long)time(0),
             number);
    pthread_mutex_unlock(&serve_lock);
}

answer answer_request(job *j) {
    const endpoint *how = route_endpoint(j->route);
    size_t size;
    char *body = http_take_body(j, &size);
    http_error e = body ? request_parse(&j->request, &serving, how, "the body", body, size, 0)
                        : http_error_of(503, "no memory");
    if (!e.status) {
        j->choices = (choice *)calloc((size_t)j->request.n_texts + 1, sizeof *j->choices);
        if (!j->choices) e = http_error_of(503, "no memory");
    }
    if (!e.status) {
        name_request(&j->request);
        e = job_submit(j);
    }
    if (e.status) return http_send_error(j->connection, how, e);
    return j->request.stream ? send_stream(j) : MHD_YES;
}

answer answer_ended(job *j) {
    int is_done;
    pthread_mutex_lock(&serve_lock);
    is_done = j->is_done && !j->is_gone;
    pthread_mutex_unlock(&serve_lock);
    if (!is_done) return MHD_NO;
    if (j->error.status) return http_send_error(j->connection, j->request.endpoint, j->error);
    return http_send_text(j->connection, 200, HTTP_JSON, j->out.p, j->out.n);
}

/* ---- the other addresses ---- */

static answer answer_tokens(job *j, http_error (*make)(service *, char *, size_t, buffer *)) {
    buffer out = {0};
    size_t size;
    char *body = http_take_body(j, &size);
    const http_error e = body ? make(&serving, body, size, &out) : http_error_of(503, "no memory");
    if (!e.status) return http_send_buffer(j->connection, HTTP_JSON, &out);
    buffer_free(&out);
    return http_send_error(j->connection, 0, e);
}

answer answer_tokenize(job *j) { return answer_tokens(j, request_tokenize); }
answer answer_detokenize(job *j) { return answer_tokens(j, request_detokenize); }

static void add_model(buffer *out) {
    const bitnet_model_info *info = &serving.info;
    buffer_text(out, "{\"id\":");
    buffer_json(out, serving.name, strlen(serving.name));
    buffer_format(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"bitnet.h\","
                  "\"capabilities\":[%s%s%s],\"meta\":"
                  "{\"n_ctx\":%d,\"n_ctx_train\":%d,\"n_vocab\":%d,\"n_embd\":%d,\"n_layers\":%d,"
                  "\"n_params\":%llu,\"size\":%llu,"
                  "\"kernels\":\"%s\"}}", (long long)time(0),
                  info->has_head ? "\"completion\"" : "",
                  info->has_head && info->pooling ? "," : "",
                  info->pooling ? "\"embedding\"" : "", (int)serving.n_ctx, (int)info->ctx_train,
                  (int)info->n_vocab, (int)info->dim, (int)info->n_layers,
                  (unsigned long long)info->n_params, (unsigned long long)info->file_bytes,
                  info->kernels_name);
}

answer answer_models(job *j) {
    buffer out = {0};
    buffer_text(&out, "{\"object\":\"list\",\"data\":[");
    add_model(&out);
    buffer_text(&out, "]}");
    return http_send_buffer(j->connection, HTTP_JSON, &out);
}

answer answer_model(job *j) {
    buffer out = {0};
    http_error e =
        http_error_of(404, "there is no model of this name: /v1/models has those that are");
    e.code = "model_not_found";
    if (strcmp(j->name, serving.name)) return http_send_error(j->connection, 0, e);
    add_model(&out);
    return http_send_buffer(j->connection, HTTP_JSON, &out);
}
