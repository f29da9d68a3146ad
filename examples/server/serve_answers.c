#include "serve_answers.h"
#include "reply.h"
#include "serve.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void name_request(request *r) {
    static unsigned long long number;
    thread_take(&serve_lock);
    number++;
    snprintf(r->id, sizeof r->id, "%s-%llx%05llx", r->endpoint->id, (unsigned long long)time(0),
             number);
    thread_give(&serve_lock);
}

http_error read_request(job *j) {
    size_t size;
    char *body = job_take_body(j, &size);
    const http_error e =
        body ? request_parse(&j->request, &serving, route_endpoint(j->route), "the body", body,
                             size, 0)
             : refuse_memory();
    if (!e.status) name_request(&j->request);
    return e;
}

/* ---- when a request has been read ---- */

static answer send_stream(job *j) {
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, job_read_stream, j, 0);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");       /* nginx would hold it back */
    return http_send(j->connection, 200, r, "text/event-stream; charset=utf-8");
}

answer answer_read(job *j) {
    int is_done, is_stream;
    thread_take(&serve_lock);
    is_stream = j->is_read && j->request.stream;
    is_done = j->is_done && !j->is_gone;
    thread_give(&serve_lock);
    if (is_stream) return send_stream(j);
    if (!is_done) return MHD_NO;
    if (j->error.status) return http_send_error(j->connection, route_endpoint(j->route), j->error);
    return http_send(j->connection, 200,
                     MHD_create_response_from_buffer(j->out.n, j->out.p, MHD_RESPMEM_PERSISTENT),
                     HTTP_JSON);       /* the job lives until it is sent */
}

/* ---- the other addresses ---- */

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
        refuse(404, 0, "there is no model of this name: /v1/models has those that are");
    e.code = "model_not_found";
    if (strcmp(j->name, serving.name)) return http_send_error(j->connection, 0, e);
    add_model(&out);
    return http_send_buffer(j->connection, HTTP_JSON, &out);
}
