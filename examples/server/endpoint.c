#include "endpoint.h"
#include "reply.h"

const endpoint endpoint_chat = {
    "/v1/chat/completions", "chatcmpl", request_read_chat, reply_whole, reply_event,
    reply_last_event, reply_done, reply_error, reply_error_event
};
const endpoint endpoint_completions = {
    "/v1/completions", "cmpl", request_read_completion, reply_whole, reply_event,
    reply_last_event, reply_done, reply_error, reply_error_event
};
const endpoint endpoint_embeddings = {
    "/v1/embeddings", "embd", request_read_embeddings, 0, 0, 0, 0, reply_error, reply_error_event
};
