#include "messages.h"
#include "tokens.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MESSAGES = 65536 };

/* ---- thinking ---- */

const bitnet_chat_template *messages_template(const reader *in) {
    return bitnet_model_chat_template(in->r->service->model);
}

/* What a client says of thinking: enable_thinking, in chat_template_kwargs or as a field, as vLLM
   and llama.cpp's server have it, or OpenAI's reasoning_effort. 1: yes, 0: no, -1: nothing. */
static int wants_thinking(reader *in) {
    static const char name[] = "enable_thinking", effort[] = "reasoning_effort";
    const uint32_t options = field_get(in, "chat_template_kwargs"), node = field_get(in, effort);
    if (options && json_kind(&in->j, options) != JSON_OBJECT)
        refuse_field(in, "chat_template_kwargs", "an object is needed");
    else if (json_get(&in->j, options, name)) return field_bool(in, options, name);
    if (field_get(in, name)) return field_bool(in, JSON_ROOT, name);
    if (!node) return -1;
    if (json_is(&in->j, node, "none")) return 0;
    if (!json_is(&in->j, node, "minimal") && !json_is(&in->j, node, "low") &&
        !json_is(&in->j, node, "medium") && !json_is(&in->j, node, "high") &&
        !json_is(&in->j, node, "xhigh"))
        refuse_field(in, effort, "none, minimal, low, medium, high or xhigh is needed");
    return 1;
}

/* With yes, Qwen3's template leaves it to the model. */
void messages_read_thinking(reader *in) {
    const bitnet_chat_template *t = messages_template(in);
    const int wanted = wants_thinking(in);
    if (failed(in) || !t || wanted < 0) return;
    if (wanted == 0 && t->think.data && !t->no_think.data)
        refuse_field(in, field_get(in, "reasoning_effort") ? "reasoning_effort" : "enable_thinking",
                     "this model always thinks");
    if (wanted == 0) in->r->chat.thinking = BITNET_THINK_OFF;
    else if (t->think.data && t->thinking == BITNET_THINK_OFF)
        in->r->chat.thinking = BITNET_THINK_ON;
}

/* ---- a message ---- */

/* The content of a message: a string, or parts whose texts are joined. */
static void read_content(reader *in, uint32_t content, buffer *out) {
    uint32_t at = content + 1, i;
    const char *s;
    if (!content) refuse_field(in, "messages", "a content is missing");
    else if ((s = node_string(in, content)) != 0) buffer_text(out, s);
    else if (json_kind(&in->j, content) != JSON_ARRAY)
        refuse_field(in, "messages", "a content must be a string, or a list of texts, without NUL");
    else for (i = 0; i < in->j.nodes[content].n && !failed(in); i++, at = in->j.nodes[at].next) {
        s = node_string(in, json_get(&in->j, at, "text"));
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
    const char *name = node_string(in, json_get(&in->j, function, "name"));
    const char *arguments = node_string(in, json_get(&in->j, function, "arguments"));
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
    uint32_t at = calls + 1, i;
    if (json_kind(&in->j, calls) != JSON_ARRAY)
        refuse_field(in, "messages", "tool_calls must be a list");
    else for (i = 0; i < in->j.nodes[calls].n && !failed(in); i++, at = in->j.nodes[at].next) {
        if (i || has_text) buffer_text(out, "\n");
        read_call(in, at, out);
    }
}

/* What the assistant wrote: reasoning_content, content and tool_calls, of which some may be
   missing. Templates without thinking leave the first one out. */
static void read_assistant(reader *in, uint32_t node, buffer *out) {
    const bitnet_chat_template *t = messages_template(in);
    const uint32_t thinking = json_get(&in->j, node, "reasoning_content"),
                   content = json_get(&in->j, node, "content"),
                   calls = json_get(&in->j, node, "tool_calls");
    const char *thought = node_string(in, thinking);
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

/* What a tool says is a turn of the user where the template has no role for it. */
static int has_role(const bitnet_chat_template *t, const char *role) {
    const bitnet_chat_turn *turn = !strcmp(role, "system") ? &t->system :
                                   !strcmp(role, "user") || !strcmp(role, "tool") ? &t->user :
                                   !strcmp(role, "assistant") ? &t->assistant : &t->other;
    return turn->prefix.data || t->other.prefix.data;
}

/* Its content, with a NUL. Returns the role; 0: refused. */
static const char *read_message(reader *in, uint32_t node, buffer *out) {
    const char *role = node_string(in, json_get(&in->j, node, "role"));
    const bitnet_chat_template *t = messages_template(in);
    const uint32_t calls = json_get(&in->j, node, "tool_calls");
    if (!role || !role[0]) {
        refuse_field(in, "messages", "a role is missing");
        return 0;
    }
    if (!strcmp(role, "developer")) role = "system";
    if (t && !has_role(t, role))
        refuse_field(in, "messages", "the chat template of this model has no such role");
    if (!strcmp(role, "tool") && !node_string(in, json_get(&in->j, node, "tool_call_id")))
        refuse_field(in, "messages", "a message of the role tool needs a tool_call_id");
    if (!strcmp(role, "assistant")) read_assistant(in, node, out);
    else if (calls && in->j.nodes[calls].n > 0)
        refuse_field(in, "messages", "only the assistant has tool_calls");
    else read_content(in, json_get(&in->j, node, "content"), out);
    buffer_add(out, "", 1);
    return role;
}

/* ---- all of them as tokens ---- */

/* The tokens of a chat with the beginning of a reply, in out [cap] as far as they fit. If the last
   message is the assistant's, and not the only one, the reply begins with its text. */
static int chat_tokens(request *r, const bitnet_message *messages, int n, bitnet_token *out,
                       int cap, bitnet_error *err) {
    const bitnet_model *m = r->service->model;
    const char *begun = r->begun ? r->begun : "";
    const int head = bitnet_chat_tokenize(m, &r->chat, messages, n - (r->begun != 0),
                                          BITNET_CHAT_BEGIN | BITNET_CHAT_OPEN_REPLY, out,
                                          (size_t)cap, err);
    int rest = 0;
    if (head >= 0 && out && head < cap)
        rest = bitnet_tokenize(m, begun, strlen(begun), 0, &out[head], (size_t)(cap - head));
    else if (head >= 0) rest = bitnet_tokenize(m, begun, strlen(begun), 0, 0, 0);
    return head < 0 ? head : rest < 0 ? rest : head + rest;
}

/* tokens_least_bytes of a text that the template may trim. */
static size_t least_trimmed(const bitnet_chat_template *t, const char *p, const char *end) {
    const char *blanks = t->trim ? " \t\n\v\f\r" : t->drop_thinking ? "\n" : "";
    while (p < end && strchr(blanks, end[-1])) end--;
    while (p < end && strchr(blanks, *p)) p++;
    return tokens_least_bytes(p, (size_t)(end - p));
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
    const char *prefix = t->other.prefix.data;
    const int is_known = !strcmp(role, "system") || !strcmp(role, "user") ||
                         !strcmp(role, "assistant") || !strcmp(role, "tool");
    const int is_written = prefix && (strstr(prefix, "{role}") || strstr(prefix, "{Role}"));
    return is_written && !is_known ? tokens_least_bytes(role, strlen(role)) : 0;
}

static int are_too_long(reader *in, const bitnet_message *messages, int n) {
    const bitnet_chat_template *t = messages_template(in);
    const char *tools = in->r->tools ? in->r->tools : "";
    size_t bytes = strlen(tools), least = tokens_least_bytes(tools, bytes);
    int i, query = n;                  /* the user's last message; n: there is none */
    if (!t) return failed(in);
    for (i = 0; i < n; i++)
        if (!strcmp(messages[i].role.data, "user")) query = i;
    for (i = 0; i < n; i++) {
        const char *text = messages[i].content.data;
        const size_t size = messages[i].content.size;
        bytes += size + messages[i].role.size;
        least += least_of_role(t, messages[i].role.data);
        if (strcmp(messages[i].role.data, "assistant"))
            least += least_trimmed(t, text, text + size);
        else if (i == n - 1 && n > 1)  /* see chat_tokens */
            least += tokens_least_bytes(text, size);
        else least += least_of_reply(t, text, i > query);
    }
    return tokens_too_long(in, "messages", bytes, least);
}

static void tokenize_messages(reader *in, const bitnet_message *messages, int n) {
    request *r = in->r;
    bitnet_token *tokens = 0;
    bitnet_error err = {0};
    int count = BITNET_ERR_MEMORY;
    if (are_too_long(in, messages, n)) return;
    if (n > 1 && !strcmp(messages[n - 1].role.data, "assistant"))
        r->begun = strdup(messages[n - 1].content.data);
    if (n < 2 || strcmp(messages[n - 1].role.data, "assistant") || r->begun) {
        count = chat_tokens(r, messages, n, 0, 0, &err);
        tokens = (bitnet_token *)malloc(((size_t)(count > 0 ? count : 0) + 1) * sizeof *tokens);
    }
    if (count < 0 || !tokens || chat_tokens(r, messages, n, tokens, count, &err) != count) {
        free(tokens);
        if (count < 0 && !err.text[0])
            snprintf(err.text, sizeof err.text, "%s", bitnet_result_text((bitnet_result)count));
        in->error = !messages_template(in)
                    ? refuse(400, "messages", "the chat template of this model is not known")
                    : count < 0 ? refuse_library((bitnet_result)count, "messages", err.text)
                                : refuse_memory();
        return;
    }
    tokens_set_prompt(in, 0, tokens, count);
}

void messages_read(reader *in) {
    const uint32_t node = field_get(in, "messages");
    const uint32_t n = json_kind(&in->j, node) == JSON_ARRAY && node ? in->j.nodes[node].n : 0;
    const bitnet_chat_template *t = messages_template(in);
    bitnet_message *messages;
    buffer texts = {0};
    size_t *starts;
    uint32_t at = node + 1, i;
    if (n == 0 || n > MOST_MESSAGES) {
        refuse_field(in, "messages", n ? "too many" : "a list of messages is needed");
        return;
    }
    tokens_make_texts(in, 1);
    messages = (bitnet_message *)calloc(n, sizeof *messages);
    starts = (size_t *)calloc(n, sizeof *starts);
    if (!messages || !starts) in->error = refuse_memory();
    for (i = 0; i < n && !failed(in); i++, at = in->j.nodes[at].next) {
        starts[i] = texts.n;
        messages[i].role = bitnet_text_of(read_message(in, at, &texts));
        if (messages[i].role.data && i > 0 && t && t->system_first &&
            !strcmp(messages[i].role.data, "system"))
            refuse_field(in, "messages", "the chat template of this model takes a system message "
                         "only as the first one");
    }
    if (texts.failed) in->error = refuse_memory();
    for (i = 0; i < n && !failed(in); i++)
        messages[i].content = bitnet_text_of(texts.p + starts[i]);
    if (!failed(in)) tokenize_messages(in, messages, (int)n);
    buffer_free(&texts);
    free(messages);
    free(starts);
}
