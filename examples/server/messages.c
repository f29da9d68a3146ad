#include "messages.h"
#include "calls.h"
#include "tokens.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MESSAGES = 65536,
       MOST_SORTED = 128 };            /* answers of tools, and calls: OpenAI's limit of these */

/* ---- thinking ---- */

/* 0: it is not known. */
static const bitnet_chat_template *template_of(const reader *in) {
    return bitnet_model_chat_template(in->r->service->model);
}

/* What a client wants of the template: a field of chat_template_kwargs, as vLLM and llama.cpp's
   server have it, or of the body. Returns 0 if it says nothing, else the object that has it. */
static uint32_t asks_for(reader *in, const char *name) {
    const uint32_t options = field_get(in, "chat_template_kwargs");
    if (options && json_kind(&in->j, options) != JSON_OBJECT)
        refuse_field(in, "chat_template_kwargs", "an object is needed");
    if (json_get(&in->j, options, name)) return options;
    return field_get(in, name) ? JSON_ROOT : 0;
}

/* OpenAI's and Anthropic's names for how much a model is to think. */
static const char *effort_named(const char *name) {
    static const char *const names[] = {"minimal", "low", "medium", "high", "xhigh", "max"};
    size_t i;
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name, names[i])) return names[i];
    return 0;
}

/* What a client says of thinking: enable_thinking or reasoning_effort. 1: yes, 0: no, -1:
   nothing. */
static int wants_thinking(reader *in) {
    static const char name[] = "enable_thinking", effort[] = "reasoning_effort";
    const uint32_t on = asks_for(in, name), object = asks_for(in, effort);
    const char *wanted = node_string(in, json_get(&in->j, object, effort));
    const bitnet_chat_template *t = template_of(in);
    if (object && (!wanted || (strcmp(wanted, "none") && !effort_named(wanted))))
        refuse_field(in, effort, "none, minimal, low, medium, high, xhigh or max is needed");
    if (wanted && t && t->efforts) in->r->chat.effort = bitnet_text_of(effort_named(wanted));
    if (on) return field_bool(in, on, name);
    return !object ? -1 : wanted && strcmp(wanted, "none") != 0;
}

/* With yes, Qwen3's template leaves it to the model. preserve_thinking, which Qwen3.6's and 3.8's
   templates have: does thinking stay in earlier replies? */
void messages_read_thinking(reader *in) {
    static const char keep[] = "preserve_thinking";
    const bitnet_chat_template *t = template_of(in);
    const int wanted = wants_thinking(in);
    const uint32_t object = asks_for(in, keep);
    if (object) in->r->chat.earlier_thinking = field_bool(in, object, keep) ? 1 : -1;
    if (failed(in) || !t || wanted < 0) return;
    if (wanted == 0 && t->think.data && !t->no_think.data)
        refuse_field(in, field_get(in, "reasoning_effort") ? "reasoning_effort" : "enable_thinking",
                     "this model always thinks");
    if (wanted == 0) in->r->chat.thinking = BITNET_THINK_OFF;
    else if (t->think.data && t->thinking == BITNET_THINK_OFF)
        in->r->chat.thinking = BITNET_THINK_ON;
}

/* ---- a message ---- */

/* The content of a message: a string, or parts whose texts are joined. A client that sends a
   conversation back has refusals of the assistant in it. */
static void read_content(reader *in, uint32_t content, buffer *out) {
    uint32_t at = content + 1, i;
    const char *s;
    if (!content) refuse_field(in, "messages", "a content is missing");
    else if ((s = node_string(in, content)) != 0) buffer_text(out, s);
    else if (json_kind(&in->j, content) != JSON_ARRAY)
        refuse_field(in, "messages", "a content must be a string, or a list of texts, without NUL");
    else for (i = 0; i < in->j.nodes[content].n && !failed(in); i++, at = in->j.nodes[at].next) {
        const uint32_t type = json_get(&in->j, at, "type");
        const char *name = json_is(&in->j, type, "refusal") ? "refusal" : "text";
        s = node_string(in, json_get(&in->j, at, name));
        if (!json_is(&in->j, type, name) || !s)
            refuse_field(in, "messages", "only parts of the type text are possible");
        else buffer_text(out, s);
    }
}

/* Parses a text. Is it a JSON object? j must be freed in any case. */
static int parse_object(json *j, const char *text) {
    bitnet_error err;
    memset(j, 0, sizeof *j);
    j->size = strlen(text);
    j->text = strdup(text);
    return j->text && j->size && json_parse(j, &err) == BITNET_OK &&
           json_kind(j, JSON_ROOT) == JSON_OBJECT;
}

/* A call that the assistant made, as the model writes it. Its arguments are JSON in a string. */
static void read_function(reader *in, uint32_t function, buffer *out) {
    const char *name = node_string(in, json_get(&in->j, function, "name"));
    const char *arguments = node_string(in, json_get(&in->j, function, "arguments"));
    const char *text = arguments && arguments[0] ? arguments : "{}";
    json j;
    const int is_object = arguments && parse_object(&j, text);
    if (!name || !name[0] || !is_object)
        refuse_field(in, "messages", "a function in tool_calls needs a name and, as a string, "
                     "arguments in JSON");
    else {
        buffer_text(out, "<tool_call>\n");
        if (calls_are_xml(in->r->service)) calls_write(out, name, &j, JSON_ROOT);
        else {
            buffer_text(out, "{\"name\": ");
            buffer_json(out, name, strlen(name));
            buffer_format(out, ", \"arguments\": %s}", text);
        }
        buffer_text(out, "\n</tool_call>");
    }
    if (arguments) json_free(&j);
}

/* tool_calls, or function_call, which OpenAI had before: a call without a list. */
static void read_calls(reader *in, uint32_t calls, uint32_t old, int has_text, buffer *out) {
    uint32_t at = calls + 1, i;
    if (has_text && calls_are_xml(in->r->service)) buffer_text(out, "\n");
    if (!calls) {
        if (has_text) buffer_text(out, "\n");
        read_function(in, old, out);
    } else if (json_kind(&in->j, calls) != JSON_ARRAY)
        refuse_field(in, "messages", "tool_calls must be a list");
    else for (i = 0; i < in->j.nodes[calls].n && !failed(in); i++, at = in->j.nodes[at].next) {
        const uint32_t type = json_get(&in->j, at, "type");
        if (type && !json_is(&in->j, type, "function"))
            refuse_field(in, "messages", "only tool_calls of the type function are possible");
        if (i || has_text) buffer_text(out, "\n");
        if (!failed(in)) read_function(in, json_get(&in->j, at, "function"), out);
    }
}

/* Leaves white space out of what was added since. */
static void trim_from(buffer *out, size_t from) {
    size_t n = from;
    while (out->n > from && strchr(" \t\n\v\f\r", out->p[out->n - 1])) out->n--;
    while (n < out->n && strchr(" \t\n\v\f\r", out->p[n])) n++;
    if (n == from) return;
    memmove(out->p + from, out->p + n, out->n - n);
    out->n -= n - from;
}

/* What the assistant wrote: reasoning_content, content and tool_calls, of which some may be
   missing. Templates without thinking leave the first one out. */
static void read_assistant(reader *in, uint32_t node, buffer *out) {
    const bitnet_chat_template *t = template_of(in);
    const uint32_t thinking = json_get(&in->j, node, "reasoning_content"),
                   content = json_get(&in->j, node, "content"),
                   text = content ? content : json_get(&in->j, node, "refusal"),
                   old = json_get(&in->j, node, "function_call"),
                   list = json_get(&in->j, node, "tool_calls"),
                   calls = old && json_kind(&in->j, list) == JSON_ARRAY &&
                           in->j.nodes[list].n == 0 ? 0 : list;
    const char *thought = node_string(in, thinking);
    size_t before;
    if (thinking && !thought)
        refuse_field(in, "messages", "reasoning_content must be a string without NUL");
    if (t && (t->drop_thinking == 3 || (thought && thought[0] && t->drop_thinking))) {
        buffer_text(out, "<think>\n");
        buffer_text(out, thought ? thought : "");
        buffer_text(out, "\n</think>\n\n");
    }
    before = out->n;
    if (text || (!calls && !old)) read_content(in, text, out);
    if (t && t->drop_thinking > 1) trim_from(out, before);
    if (calls || old) read_calls(in, calls, old, out->n > before, out);
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
    const bitnet_chat_template *t = template_of(in);
    const uint32_t calls = json_get(&in->j, node, "tool_calls"),
                   content = json_get(&in->j, node, "content");
    const int is_old = role && !strcmp(role, "function");
    if (!role || !role[0]) {
        refuse_field(in, "messages", "a role is missing");
        return 0;
    }
    if (!strcmp(role, "developer")) role = "system";
    if (is_old) role = "tool";         /* it answers a function_call, without an id */
    else if (!strcmp(role, "tool") && !node_string(in, json_get(&in->j, node, "tool_call_id")))
        refuse_field(in, "messages", "a message of the role tool needs a tool_call_id");
    if (t && !has_role(t, role))
        refuse_field(in, "messages", "the chat template of this model has no such role");
    if (!strcmp(role, "assistant")) read_assistant(in, node, out);
    else if (calls && in->j.nodes[calls].n > 0)
        refuse_field(in, "messages", "only the assistant has tool_calls");
    else if (content || !is_old) read_content(in, content, out);       /* OpenAI's could be null */
    buffer_add(out, "", 1);
    return role;
}

/* ---- all of them as tokens ---- */

/* Clients send what tools say as it comes. Chat templates do not write which call it answers, so it
   is put in the order of the calls. */
static void sort_answers(const reader *in, uint32_t *nodes, uint32_t n) {
    uint32_t i, end, next, call, k, m;
    for (i = 0; i < n; i = end) {
        const uint32_t calls = json_get(&in->j, nodes[i], "tool_calls");
        const uint32_t n_calls = json_kind(&in->j, calls) == JSON_ARRAY ? in->j.nodes[calls].n : 0;
        end = next = i + 1;
        while (end < n && json_is(&in->j, json_get(&in->j, nodes[end], "role"), "tool")) end++;
        if (n_calls > MOST_SORTED || end - next > MOST_SORTED) continue;
        for (k = 0, call = calls + 1; k < n_calls; k++, call = in->j.nodes[call].next) {
            const char *id = node_string(in, json_get(&in->j, call, "id"));
            for (m = next; id && m < end; m++) {
                const uint32_t node = nodes[m];
                if (!json_is(&in->j, json_get(&in->j, node, "tool_call_id"), id)) continue;
                memmove(&nodes[next + 1], &nodes[next], (m - next) * sizeof *nodes);
                nodes[next++] = node;
            }
        }
    }
}

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

/* How a reply begins that goes on from the assistant's last message. chat_tokens writes it behind
   the opening of a reply, which may have begun to think already: a text without thinking ends
   that. */
static char *begun_by(const request *r, const bitnet_chat_template *t, const char *text) {
    static const char open[] = "<think>", close[] = "</think>", ends[] = "\n</think>\n\n";
    const bitnet_thinking thinking = r->chat.thinking != BITNET_THINK_AUTO ? r->chat.thinking
                                     : t ? t->thinking : BITNET_THINK_OFF;
    const int opens = !strncmp(text, open, sizeof open - 1);
    const char *closes = strstr(text, close);
    char *out;
    if (!t || t->drop_thinking < 2) return strdup(text);
    if (thinking == BITNET_THINK_ON && !opens && !closes) {
        out = (char *)malloc(sizeof ends + strlen(text));
        if (out) strcat(strcpy(out, ends), text);
        return out;
    }
    if (thinking == BITNET_THINK_ON && opens) {
        text += sizeof open - 1;
        text += *text == '\n';
    } else if (opens && closes) {
        text = closes + sizeof close - 1;
        text += strspn(text, "\n");
    }
    return strdup(text);
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
   behind the last </think>, or for Qwen3.8 the first. The rest goes. */
static size_t least_of_reply(const bitnet_chat_template *t, const char *p, int keeps_thinking) {
    const char *end = p + strlen(p), *first = t->drop_thinking ? strstr(p, "</think>") : 0, *text;
    size_t least;
    if (!first) return least_trimmed(t, p, end);
    text = t->drop_thinking == 3 ? first : find_last(first, end, "</think>");
    text += strlen("</think>");
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
    const bitnet_chat_template *t = template_of(in);
    const char *tools = in->r->tools ? in->r->tools : "";
    size_t bytes = strlen(tools), least = tokens_least_bytes(tools, bytes);
    const int asked = in->r->chat.earlier_thinking,
              keeps = asked ? asked > 0 : t && t->drop_thinking == 3;
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
        else if (i == n - 1 && in->r->begun)       /* see chat_tokens */
            least += tokens_least_bytes(in->r->begun, strlen(in->r->begun));
        else least += least_of_reply(t, text, keeps || i > query);
    }
    return tokens_too_long(in, "messages", bytes, least);
}

static void tokenize_messages(reader *in, const bitnet_message *messages, int n) {
    request *r = in->r;
    bitnet_token *tokens = 0;
    bitnet_error err = {0};
    int count = BITNET_ERR_MEMORY;
    if (n > 1 && !strcmp(messages[n - 1].role.data, "assistant"))
        r->begun = begun_by(r, template_of(in), messages[n - 1].content.data);
    if (are_too_long(in, messages, n)) return;
    if (n < 2 || strcmp(messages[n - 1].role.data, "assistant") || r->begun) {
        count = chat_tokens(r, messages, n, 0, 0, &err);
        tokens = (bitnet_token *)malloc(((size_t)(count > 0 ? count : 0) + 1) * sizeof *tokens);
    }
    if (count < 0 || !tokens || chat_tokens(r, messages, n, tokens, count, &err) != count) {
        free(tokens);
        if (count < 0 && !err.text[0])
            snprintf(err.text, sizeof err.text, "%s", bitnet_result_text((bitnet_result)count));
        in->error = !template_of(in)
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
    const bitnet_chat_template *t = template_of(in);
    bitnet_message *messages;
    buffer texts = {0};
    size_t *starts;
    uint32_t *nodes, at = node + 1, i;
    if (n == 0 || n > MOST_MESSAGES) {
        refuse_field(in, "messages", n ? "too many" : "a list of messages is needed");
        return;
    }
    tokens_make_texts(in, 1);
    messages = (bitnet_message *)calloc(n, sizeof *messages);
    starts = (size_t *)calloc(n, sizeof *starts);
    nodes = (uint32_t *)calloc(n, sizeof *nodes);
    if (!messages || !starts || !nodes) in->error = refuse_memory();
    for (i = 0; nodes && i < n; i++, at = in->j.nodes[at].next) nodes[i] = at;
    if (nodes) sort_answers(in, nodes, n);
    for (i = 0; nodes && i < n && !failed(in); i++) {
        starts[i] = texts.n;
        messages[i].role = bitnet_text_of(read_message(in, nodes[i], &texts));
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
    free(nodes);
}
