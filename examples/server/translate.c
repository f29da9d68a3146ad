#include "translate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bodies ---- */

void translate_name(translation *t, const char *name) {
    if (t->body.n > 1) buffer_text(&t->body, ",");
    buffer_format(&t->body, "\"%s\":", name);
}

void translate_value(translation *t, const char *name, uint32_t node) {
    if (!node) return;
    translate_name(t, name);
    buffer_value(&t->body, &t->in->j, node);
}

static int is_one_of(const json *j, uint32_t node, const char *const *names) {
    while (*names && !json_is(j, node, *names)) names++;
    return *names != 0;
}

void translate_begin(translation *t, reader *in, const char *const *taken) {
    const json *j = &in->j;
    uint32_t i, at = JSON_ROOT + 1;
    memset(t, 0, sizeof *t);
    t->in = in;
    buffer_text(&t->body, "{");
    for (i = 0; i < j->nodes[JSON_ROOT].n; i++, at = j->nodes[at + 1].next) {
        if (is_one_of(j, at, taken) || json_kind(j, at + 1) == JSON_NULL) continue;
        if (t->body.n > 1) buffer_text(&t->body, ",");
        buffer_value(&t->body, j, at);
        buffer_text(&t->body, ":");
        buffer_value(&t->body, j, at + 1);
    }
}

/* Names the client's field in an error. */
static void rename_error(http_error *e, const renamed *name) {
    const char *at = strstr(e->text, name->from);
    const char *behind = at ? at + strlen(name->from) : 0;
    const int is_named = at && (at == e->text || at[-1] == ' ') && strchr(": ,", *behind);
    const char *code = e->code;
    *e = is_named ? refuse(e->status, name->to, "%.*s%s%s", (int)(at - e->text), e->text, name->to,
                           behind)
                  : refuse(e->status, name->to, "%s", e->text);
    e->code = code;
}

/* The same for the place in a tool that an error is about. */
static void rename_parameters(http_error *e, const char *to) {
    static const char own[] = ".function.parameters:";
    const char *at = strstr(e->text, own);
    if (at && to) *e = refuse(e->status, e->param, "%.*s%s:%s", (int)(at - e->text), e->text, to,
                              at + sizeof own - 1);
}

void translate_read(translation *t, void (*read)(reader *in, uint64_t seed), uint64_t seed) {
    reader *in = t->in;
    bitnet_error err;
    bitnet_result r;
    json j;
    int i;
    memset(&j, 0, sizeof j);
    memcpy(j.name, in->j.name, sizeof j.name);
    buffer_text(&t->body, "}");
    if (t->body.failed && !failed(in)) in->error = refuse_memory();
    json_free(&in->j);
    memset(&in->j, 0, sizeof in->j);
    if (failed(in)) {
        buffer_free(&t->body);
        return;
    }
    j.text = t->body.p;
    j.size = t->body.n;
    r = json_parse(&j, &err);          /* it may nest deeper than the client's did */
    in->j = j;
    if (r) in->error = refuse_library(r, 0, err.text);
    else read(in, seed);
    for (i = 0; i < t->n_names; i++)
        if (!strcmp(in->error.param, t->names[i].from)) {
            rename_error(&in->error, &t->names[i]);
            break;
        }
    rename_parameters(&in->error, t->parameters);
}

/* ---- messages ---- */

static void add_string(buffer *out, const char *name, const buffer *text) {
    buffer_format(out, ",\"%s\":", name);
    buffer_json(out, text->n ? text->p : "", text->n);
}

static void close_message(chat_writer *w) {
    buffer *out = &w->out;
    if (!w->role) return;
    buffer_text(out, out->n ? ",{\"role\":" : "{\"role\":");
    buffer_json(out, w->role, strlen(w->role));
    if (w->id) {
        buffer_text(out, ",\"tool_call_id\":");
        buffer_json(out, w->id, strlen(w->id));
    }
    if (w->thought.n) add_string(out, "reasoning_content", &w->thought);
    add_string(out, "content", &w->text);
    if (w->calls.n) buffer_format(out, ",\"tool_calls\":[%s]", w->calls.p);
    buffer_text(out, "}");
    out->failed |= w->thought.failed | w->text.failed | w->calls.failed;
    w->thought.n = w->text.n = w->calls.n = 0;
    w->role = w->id = 0;
}

void chat_open(chat_writer *w, const char *role, const char *id, chat_part part) {
    if (!w->role || strcmp(role, "assistant") || strcmp(w->role, "assistant") || part < w->last) {
        close_message(w);
        w->role = role;
        w->id = id;
    }
    w->last = part;
}

void chat_add(chat_writer *w, const char *text, const char *between) {
    buffer *out = w->last == CHAT_THOUGHT ? &w->thought : &w->text;
    if (out->n) buffer_text(out, between);
    buffer_text(out, text);
}

void chat_call(chat_writer *w, const char *id, const char *name, const char *arguments) {
    buffer *out = &w->calls;
    buffer_text(out, out->n ? ",{\"id\":" : "{\"id\":");
    buffer_json(out, id, strlen(id));
    buffer_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
    buffer_json(out, name, strlen(name));
    buffer_text(out, ",\"arguments\":");
    buffer_json(out, arguments, strlen(arguments));
    buffer_text(out, "}}");
}

void chat_end(chat_writer *w, translation *t) {
    close_message(w);
    translate_name(t, "messages");
    buffer_text(&t->body, "[");
    buffer_add(&t->body, w->out.n ? w->out.p : "", w->out.n);
    buffer_text(&t->body, "]");
    t->body.failed |= w->out.failed;
    buffer_free(&w->out);
    buffer_free(&w->thought);
    buffer_free(&w->text);
    buffer_free(&w->calls);
}
