#include "anthropic.h"
#include "llama.h"
#include "reply.h"
#include "rerank.h"
#include "responses.h"

const endpoint endpoint_chat = {
    "/v1/chat/completions", "chatcmpl", request_read_chat, reply_whole, reply_event,
    reply_last_event, reply_done, reply_error, reply_error_event, 0
};
const endpoint endpoint_completions = {
    "/v1/completions", "cmpl", request_read_completion, reply_whole, reply_event,
    reply_last_event, reply_done, reply_error, reply_error_event, 0
};
const endpoint endpoint_responses = {
    "/v1/responses", "resp", responses_read, responses_whole, responses_event,
    responses_last_event, responses_done, reply_error, responses_error_event, 0
};
const endpoint endpoint_messages = {
    "/v1/messages", "msg", anthropic_read, anthropic_whole, anthropic_event, anthropic_last_event,
    anthropic_done, anthropic_error, anthropic_error_event, 0
};
const endpoint endpoint_messages_count = {
    "/v1/messages/count_tokens", "msg", anthropic_read_counted, 0, 0, 0, 0, anthropic_error,
    anthropic_error_event, 0
};
const endpoint endpoint_llama = {
    "/completion", "cmpl", llama_read, llama_whole, llama_event, llama_last_event, llama_done,
    reply_error, reply_error_event, 0
};
const endpoint endpoint_embeddings = {
    "/v1/embeddings", "embd", request_read_embeddings, 0, 0, 0, 0, reply_error, reply_error_event,
    reply_vector
};
const endpoint endpoint_rerank = {
    "/v1/rerank", "rank", rerank_read, rerank_whole, 0, 0, 0, reply_error, reply_error_event,
    rerank_vector
};
