#include "choice.h"
#include "calls.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a text has given ---- */

void choice_free(choice *c) {
    int32_t i;
    for (i = 0; i < c->n_calls; i++) {
        buffer_free(&c->calls[i].name);
        buffer_free(&c->calls[i].arguments);
    }
    free(c->calls);
    buffer_free(&c->text);
    buffer_free(&c->thinking);
    buffer_free(&c->raw);
    buffer_free(&c->tokens);
    buffer_free(&c->values);
    buffer_free(&c->best);
    buffer_free(&c->offsets);
    buffer_free(&c->waiting);
    buffer_free(&c->late);
    buffer_free(&c->late_entries);
    buffer_free(&c->ids);
    buffer_free(&c->tail);
    buffer_free(&c->held);
    free(c->begun_stops);
    buffer_free(&c->said);
    buffer_free(&c->said_tokens);
    buffer_free(&c->items);
}

int choice_has_news(const choice *c) {
    return c->text.n || c->thinking.n || c->tokens.n || c->n_told_calls < c->n_calls;
}

size_t choice_bytes(const choice *c) {
    size_t n = c->text.n + c->thinking.n + c->raw.n + c->tokens.n + c->values.n + c->best.n +
               c->offsets.n + c->waiting.n + c->late_entries.n + c->held.n + c->said.n +
               c->said_tokens.n + c->items.n;
    int32_t i;
    for (i = c->n_told_calls; i < c->n_calls; i++)
        n += c->calls[i].name.n + c->calls[i].arguments.n;
    return n;
}

text_part choice_text(const choice *c, int32_t k) {
    const call *before = k > c->n_told_calls ? &c->calls[k - 1] : 0,
               *next = k < c->n_calls ? &c->calls[k] : 0;
    const size_t from = before ? before->text : 0, comma = before && before->tokens,
                 tokens = before ? before->tokens : 0;
    text_part part;
    part.n = (next ? next->text : c->text.n) - from;
    part.n_tokens = (next ? next->tokens : c->tokens.n) - tokens;
    if (part.n_tokens) part.n_tokens -= comma;
    part.p = part.n ? c->text.p + from : "";
    part.tokens = part.n_tokens ? c->tokens.p + tokens + comma : "";
    return part;
}

void choice_told(choice *c) {
    c->text.n = c->thinking.n = c->tokens.n = c->values.n = c->best.n = c->offsets.n = 0;
    c->ids.n = 0;
    c->n_told_calls = c->n_calls;
}

int choice_has_failed(const choice *c) {
    return c->text.failed || c->thinking.failed || c->tokens.failed || c->values.failed ||
           c->best.failed || c->offsets.failed || c->waiting.failed || c->late.failed ||
           c->late_entries.failed || c->ids.failed || c->tail.failed || c->held.failed ||
           c->said.failed || c->said_tokens.failed || c->items.failed;
}

void choice_call_id(buffer *out, const request *r, int32_t i, int32_t k) {
    const char *id = strchr(r->id, '-');
    buffer_format(out, "call%s-%d-%d", id ? id : "", (int)i, (int)k);
}

/* A token in quotes. Where it is only a part of a character, the bytes as OpenAI spells them:
   bytes:\xe2\x96. So tokens with other bytes never look the same. */
static void add_token_text(buffer *out, const request *r, bitnet_token t) {
    size_t n, i;
    const char *s = bitnet_token_text(r->service->model, t, &n);
    if (!s || buffer_is_utf8(s, n)) {
        buffer_json(out, s ? s : "", n);
        return;
    }
    buffer_text(out, "\"bytes:");
    for (i = 0; i < n; i++) {
        const uint8_t c = (uint8_t)s[i];
        const int is_plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        buffer_format(out, is_plain ? "%c" : "\\\\x%02x", c);
    }
    buffer_text(out, "\"");
}

/* JSON has no infinity; OpenAI's clients know -9999 for what is impossible. */
static void add_logprob(buffer *out, float x) {
    if (x >= -9999.0f && x <= 0.01f) buffer_format(out, "%.9g", (double)x);
    else buffer_text(out, "-9999.0");
}

/* Of chat: "token": "a", "logprob": -1, "bytes": [97]. Special tokens are no bytes of the text. */
static void add_chat_token(buffer *out, const request *r, bitnet_token t, float logprob) {
    size_t n, i;
    const char *s = bitnet_token_text(r->service->model, t, &n);
    if (r->has_ids) buffer_format(out, "\"id\":%d,", (int)t);
    buffer_text(out, "\"token\":");
    add_token_text(out, r, t);
    buffer_text(out, ",\"logprob\":");
    add_logprob(out, logprob);
    buffer_text(out, ",\"bytes\":");
    if (bitnet_token_is_special(r->service->model, t)) {
        buffer_text(out, "null");
        return;
    }
    buffer_text(out, "[");
    for (i = 0; i < n; i++) buffer_format(out, i ? ",%d" : "%d", (uint8_t)s[i]);
    buffer_text(out, "]");
}

/* The characters that begin in a text. OpenAI's clients count these, and not bytes. */
static size_t count_characters(const char *p, size_t n) {
    size_t i, count = 0;
    for (i = 0; i < n; i++) count += ((uint8_t)p[i] & 0xc0) != 0x80;
    return count;
}

/* The characters, and their bytes, that a token of the reply completes. Its text waits where a stop
   string may begin. */
static size_t complete_text(choice *c, const request *r, bitnet_token t, size_t *bytes) {
    const size_t cap = 3 * (size_t)r->service->info.longest_token + 3;
    char *room = (char *)malloc(cap);
    const int n = room ? bitnet_detok_push(r->service->model, &c->detok, t, room, cap) : 0;
    const size_t count = count_characters(room, n > 0 ? (size_t)n : 0);
    *bytes = n > 0 ? (size_t)n : 0;
    c->offsets.failed |= !room;
    free(room);
    return count;
}

static void add_chat_logprobs(choice *c, const request *r, const token_info *token) {
    buffer *out = r->has_items ? &c->late_entries : &c->tokens;
    const size_t before = out->n;
    late_token late = {0, 0};
    int32_t i;
    if (out->n && !r->has_items) buffer_text(out, ",");
    buffer_text(out, "{");
    add_chat_token(out, r, token->token, token->logprob);
    buffer_text(out, ",\"top_logprobs\":[");
    for (i = 0; i < token->n_best; i++) {
        buffer_text(out, i ? ",{" : "{");
        add_chat_token(out, r, token->best[i].token, token->best[i].logprob);
        buffer_text(out, "}");
    }
    buffer_text(out, "]}");
    if (!r->has_items) return;
    late.entry = out->n - before;
    complete_text(c, r, token->token, &late.text);
    buffer_add(&c->late, (const char *)&late, sizeof late);
}

/* The first of the late tokens begins to be divided: it waits for what its text is. */
static void take_late(choice *c) {
    late_token *first = (late_token *)(void *)c->late.p;
    if (c->late_entries.failed || !first->entry) return;
    if (c->waiting.n) buffer_text(&c->waiting, ",");
    c->own = c->waiting.n;
    buffer_add(&c->waiting, c->late_entries.p, first->entry);
    c->late_entries.n -= first->entry;
    memmove(c->late_entries.p, c->late_entries.p + first->entry, c->late_entries.n);
    first->entry = 0;
}

static void forget_late(choice *c) {
    c->late.n -= sizeof(late_token);
    memmove(c->late.p, c->late.p + sizeof(late_token), c->late.n);
}

/* The tokens that have waited, or the first n bytes of their list, are text's. */
static void take_waiting(choice *c, size_t n) {
    if (n == 0) return;
    if (c->tokens.n) buffer_text(&c->tokens, ",");
    buffer_add(&c->tokens, c->waiting.p, n);
}

/* It is known what they are but for the last one, which may have other bytes. */
static void drop_waiting(choice *c) {
    if (c->own == 0) return;
    c->waiting.n -= c->own;
    memmove(c->waiting.p, c->waiting.p + c->own, c->waiting.n);
    c->own = 0;
}

/* Adds to the text or thinking. */
static void add_to_part(choice *c, bitnet_reply_part part, const char *p, size_t n) {
    buffer_add(part == BITNET_REPLY_THINKING ? &c->thinking : &c->text, p, n);
    if (n == 0) return;
    if (part != BITNET_REPLY_THINKING) {
        if (c->own) take_waiting(c, c->own - 1);           /* without the comma */
        c->has_text = 1;
    }
    drop_waiting(c);
    c->is_behind_call = 0;
}

/* An object of tokens and values. Tokens may have the same bytes, such as SentencePiece's <0x41>
   and A: then the second one's key is its number. */
static void add_best(buffer *out, const request *r, const token_info *token) {
    const bitnet_model *m = r->service->model;
    int32_t i, k;
    buffer_text(out, "{");
    for (i = 0; i < token->n_best; i++) {
        size_t n, size;
        const char *s = bitnet_token_text(m, token->best[i].token, &n), *other;
        for (k = 0; k < i; k++) {
            other = bitnet_token_text(m, token->best[k].token, &size);
            if (size == n && (n == 0 || !memcmp(other, s, n))) break;
        }
        if (i) buffer_text(out, ",");
        if (k < i) buffer_format(out, "\"token_id:%d\"", (int)token->best[i].token);
        else add_token_text(out, r, token->best[i].token);
        buffer_text(out, ":");
        add_logprob(out, token->best[i].logprob);
    }
    buffer_text(out, "}");
}

/* Of completions: four lists of the same length. The first token of a prompt has no value. */
static void add_lists(choice *c, const request *r, const token_info *token) {
    const char *comma = c->tokens.n ? "," : "";
    buffer_text(&c->tokens, comma);
    add_token_text(&c->tokens, r, token->token);
    buffer_text(&c->values, comma);
    buffer_text(&c->best, comma);
    if (token->has_logprobs) {
        add_logprob(&c->values, token->logprob);
        add_best(&c->best, r, token);
    } else {
        buffer_text(&c->values, "null");
        buffer_text(&c->best, "null");
    }
    buffer_format(&c->offsets, "%s%llu", comma, (unsigned long long)c->length);
}

static void forget_call(choice *c) {
    buffer_free(&c->calls[--c->n_calls].name);
    buffer_free(&c->calls[c->n_calls].arguments);
}

/* Another call, which is empty; 0: there is no memory. */
static call *new_call(choice *c) {
    call *more = (call *)realloc(c->calls, ((size_t)c->n_calls + 1) * sizeof *more);
    c->text.failed |= !more;
    if (!more) return 0;
    c->calls = more;
    memset(&more[c->n_calls], 0, sizeof *more);
    more[c->n_calls].text = c->text.n;
    more[c->n_calls].tokens = c->tokens.n;
    return &more[c->n_calls++];
}

/* Adds a call that the model has written. arguments: node of an object; 0: there are none. */
static void take_call(choice *c, const json *j, uint32_t name, uint32_t arguments) {
    call *new_one = new_call(c);
    if (!new_one) return;
    buffer_add(&new_one->name, j->text + j->nodes[name].at, j->nodes[name].len);
    if (arguments) buffer_value(&new_one->arguments, j, arguments);
    else buffer_text(&new_one->arguments, "{}");
    c->text.failed |= new_one->name.failed | new_one->arguments.failed;
}

/* Is it {"name": "...", "arguments": {...}}, or the same with parameters, as Llama 3 writes it? The
   arguments may be missing, but then there is nothing else that might be them. */
static int is_call(const json *j, uint32_t node, uint32_t *name, uint32_t *arguments) {
    const uint32_t parameters = json_get(j, node, "parameters");
    uint32_t i, at = node + 1;
    *name = json_get(j, node, "name");
    *arguments = json_get(j, node, "arguments");
    if (!*name || json_kind(j, *name) != JSON_STRING || !j->nodes[*name].len) return 0;
    if (*arguments && parameters) return 0;
    if (!*arguments) *arguments = parameters;
    if (*arguments) return json_kind(j, *arguments) == JSON_OBJECT;
    for (i = 0; i < j->nodes[node].n; i++, at = j->nodes[at + 1].next)
        if (at + 1 != *name && !json_is(j, at, "arguments") && !json_is(j, at, "parameters"))
            return 0;
    return 1;
}

/* Takes a call, or a list of some, as Falcon 3 writes them; most: the first so many. Returns 0 if
   it is none. */
static int take_calls(choice *c, const json *j, uint32_t most) {
    const int is_list = json_kind(j, JSON_ROOT) == JSON_ARRAY;
    const uint32_t n = is_list ? j->nodes[JSON_ROOT].n : 1, first = JSON_ROOT + (uint32_t)is_list;
    uint32_t at, i, name, arguments;
    for (i = 0, at = first; i < n; i++, at = j->nodes[at].next)
        if (!is_call(j, at, &name, &arguments)) return 0;
    for (i = 0, at = first; i < n && i < most; i++, at = j->nodes[at].next) {
        is_call(j, at, &name, &arguments);
        take_call(c, j, name, arguments);
    }
    return n > 0;
}

/* A call in the form of calls.h. */
static int add_xml_call(choice *c, const request *r, const char *text, size_t n) {
    call *one = new_call(c);
    const int ok = one && calls_read(text, n, r->tools, &one->name, &one->arguments);
    if (one) c->text.failed |= one->name.failed | one->arguments.failed;
    if (one && !ok) forget_call(c);
    return ok;
}

/* The text between the tags of a call. Returns 0 if it is none. */
static int add_call(choice *c, const request *from, const char *text, size_t n) {
    const uint32_t most = from->one_call ? 1 : UINT32_MAX;
    json j;
    bitnet_result r;
    int ok;
    if (c->n_open > 0) return add_xml_call(c, from, text, n);
    memset(&j, 0, sizeof j);
    j.size = n;
    j.text = (char *)malloc(n + 1);
    if (!j.text) c->text.failed = 1;
    if (!j.text || n == 0) {
        free(j.text);
        return 0;
    }
    memcpy(j.text, text, n);
    j.text[n] = 0;
    r = json_parse(&j, 0);
    c->text.failed |= r == BITNET_ERR_MEMORY;    /* it is not known whether it is a call */
    ok = r == BITNET_OK && take_calls(c, &j, most);
    json_free(&j);
    return ok;
}

/* What seemed to be a call, or the beginning of one, is text as it was written, to the byte. */
static void be_text(choice *c) {
    const size_t told = c->n_told < c->raw.n ? c->n_told : c->raw.n;
    add_to_part(c, BITNET_REPLY_TEXT, c->raw.n ? c->raw.p + told : "", c->raw.n - told);
    c->text.failed |= c->raw.failed;
    c->raw.n = c->n_told = 0;
    c->parts.part = BITNET_REPLY_TEXT;
    c->parts.n_held = c->parts.n_newlines = c->parts.skips = 0;
}

/* Does JSON end within a string? */
static int ends_in_string(const char *p, size_t n) {
    int is_inside = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        if (p[i] == '"') is_inside = !is_inside;
        else if (is_inside && p[i] == '\\') i++;
    }
    return is_inside;
}

/* The tag that ends a call has come. Where a grammar binds calls it may be a part of an argument;
   a model without one that spoils a call shall not lose the next. */
static int is_within(const choice *c, const request *r, size_t end) {
    if (!r->binds_calls || !c->is_divided) return 0;
    return c->n_open > 0 ? calls_are_open(c->raw.p + c->inside)
                         : ends_in_string(c->raw.p + c->inside, end - c->inside);
}

/* A call has ended. Newlines behind it stay where a text follows, and none of it is text. */
static void end_call(choice *c, const request *r) {
    const size_t end = c->raw.n - strlen("</tool_call>");
    if (is_within(c, r, end)) {
        c->parts.part = BITNET_REPLY_TOOL_CALL;
        return;
    }
    if (!add_call(c, r, c->raw.p + c->inside, end - c->inside)) {
        be_text(c);
        return;
    }
    drop_waiting(c);
    c->raw.n = c->n_told = 0;
    c->parts.skips = 0;
    c->is_behind_call = 1;
    c->is_closed = r->one_call;
}

/* Forgets what is no longer held back. */
static void trim_raw(choice *c) {
    const size_t held = (size_t)c->parts.n_newlines + (size_t)c->parts.n_held;
    if (held >= c->raw.n) return;
    memmove(c->raw.p, c->raw.p + (c->raw.n - held), held);
    c->raw.n = held;
}

static int is_blank(char b) { return b == ' ' || b == '\t' || b == '\n' || b == '\r'; }

/* Gives a byte of a reply to the buffer of its part. Since bytes come one by one, it is known what
   belongs to a tag and to the newlines around it, which the library leaves out: where there is no
   call they are text. */
static void divide_byte(choice *c, const request *r, const char *byte) {
    static const char opens[] = "<function=";
    const bitnet_reply_part before = c->parts.part;
    const char *p = byte, *text;
    bitnet_reply_part part;
    size_t n = 1, size;
    if (before == BITNET_REPLY_TOOL_CALL && !c->seems_call && (c->n_open || !is_blank(*byte))) {
        if (!c->n_open && (*byte == '{' || *byte == '[')) c->seems_call = 1;
        else if (calls_are_xml(r->service) && *byte == opens[c->n_open])
            c->seems_call = !opens[++c->n_open];
        else {                                 /* a text that mentions the tag */
            const int again = c->n_told ? 0 : c->n_open;
            int i;
            c->raw.n -= (size_t)again;         /* another tag may begin there */
            c->n_open = 0;
            be_text(c);
            for (i = 0; i < again; i++) divide_byte(c, r, &opens[i]);
        }
    }
    buffer_add(&c->raw, byte, 1);
    while (bitnet_reply_next(&c->parts, &p, &n, &part, &text, &size))
        if (part != BITNET_REPLY_TOOL_CALL) add_to_part(c, part, text, size);
    if (c->raw.failed) return;
    if (c->parts.part != BITNET_REPLY_TOOL_CALL) {
        if (before == BITNET_REPLY_TOOL_CALL && c->seems_call) end_call(c, r);
        else trim_raw(c);
    } else if (before != BITNET_REPLY_TOOL_CALL) {
        c->inside = c->raw.n;
        c->seems_call = c->n_open = 0;
    }
}

static void divide(choice *c, const request *r, const char *piece, size_t n) {
    size_t i;
    for (i = 0; i < n && !c->is_closed; i++) divide_byte(c, r, piece + i);
    c->text.failed |= c->raw.failed;
}

/* Divides the text of one token, or a part of it. */
static void divide_part(choice *c, const request *r, const char *piece, size_t n) {
    c->has_text = 0;
    divide(c, r, piece, n);
    if (c->raw.n >= n) return;         /* all of it is held back */
    if (c->has_text) take_waiting(c, c->waiting.n);
    c->waiting.n = c->own = 0;
}

/* A piece may be the text of several tokens: that of each is divided by itself. */
static void divide_tokens(choice *c, const request *r, const char *piece, size_t n) {
    while (c->late.n && !c->late.failed) {
        late_token *first = (late_token *)(void *)c->late.p;
        const size_t size = first->text < n ? first->text : n;
        if (first->text && !n) return;
        take_late(c);
        divide_part(c, r, piece, size);
        piece += size;
        n -= size;
        first->text -= size;
        if (first->text) return;
        forget_late(c);
    }
    divide_part(c, r, piece, n);
}

/* The longest text that ends with this byte and begins a stop string, of which `state` bytes have
   come: the links say what is left of them if it does not fit. */
static size_t advance_stop(bitnet_text stop, const size_t *links, size_t state, char byte) {
    while (state && stop.data[state] != byte) state = links[state - 1];
    return state + (stop.data[state] == byte);
}

size_t *choice_stop_links(const bitnet_text *stops, int32_t n) {
    size_t total = 0, k, *all, *links;
    int32_t i;
    for (i = 0; i < n; i++) total += stops[i].size;
    links = all = (size_t *)calloc(total, sizeof *all);
    for (i = 0; all && i < n; links += stops[i++].size)
        for (k = 1; k < stops[i].size; k++)
            links[k] = advance_stop(stops[i], links, links[k - 1], stops[i].data[k]);
    return all;
}

/* Divides text behind thinking, but for what may become a stop string. Returns 1 if there is one:
   of several the one that begins first, as in the library. */
static int divide_searched(choice *c, const request *r, const char *piece, size_t n) {
    const size_t from = c->held.n, *links = r->stop_links;
    size_t first = SIZE_MAX, begun = 0, size;
    int32_t i;
    if (!c->begun_stops) c->begun_stops = (size_t *)calloc((size_t)r->n_stops, sizeof(size_t));
    buffer_add(&c->held, piece, n);
    c->held.failed |= !c->begun_stops;
    if (c->held.failed) return 1;
    for (i = 0; i < r->n_stops; links += r->stops[i++].size) {
        const bitnet_text stop = r->stops[i];
        size_t *state = &c->begun_stops[i], at;
        for (at = from; at < c->held.n && *state < stop.size; at++)
            *state = advance_stop(stop, links, *state, c->held.p[at]);
        if (*state == stop.size && at - stop.size < first) first = at - stop.size, c->stop = i + 1;
        if (*state > begun) begun = *state;
    }
    size = first != SIZE_MAX ? first : c->held.n - begun;
    divide_tokens(c, r, c->held.p, size);
    c->held.n = first != SIZE_MAX ? 0 : begun;
    memmove(c->held.p, c->held.p + size, c->held.n);
    if (first == SIZE_MAX) return 0;
    memset(c->begun_stops, 0, (size_t)r->n_stops * sizeof *c->begun_stops);
    return 1;
}

/* Divides a piece of a chat. Returns 1 if a stop string ends the text. They are not searched for in
   thinking, its tags, and the newlines behind it. */
static int divide_piece(choice *c, const request *r, const char *piece, size_t n) {
    static const char open[] = "<think>";
    const bitnet_reply *parts = &c->parts;
    size_t k = 0;
    if (!n || !r->stop_links ||
        (parts->thinks && !parts->begun && n == sizeof open - 1 && !memcmp(piece, open, n))) {
        divide_tokens(c, r, piece, n);
        return 0;
    }
    while (k < n && !c->held.n &&
           (parts->part == BITNET_REPLY_THINKING ||
            (parts->part == BITNET_REPLY_TEXT && parts->skips && piece[k] == '\n')))
        divide_tokens(c, r, &piece[k++], 1);
    return k < n && divide_searched(c, r, piece + k, n - k);
}

/* Those that the client has written itself. */
static void forget_calls(choice *c) {
    while (c->n_calls > 0) forget_call(c);
}

/* Where it begins with a text of the client's, that comes first. */
static void begin_parts(choice *c, const request *r) {
    bitnet_reply_begin(&c->parts, r->service->model, &r->chat);
    if (r->begun) divide(c, r, r->begun, strlen(r->begun));
    c->is_divided = 1;                 /* what follows keeps to the grammar */
    forget_calls(c);
    c->text.n = c->thinking.n = 0;
    c->parts.n_held = c->parts.n_newlines = 0;
    c->is_behind_call = c->is_closed = 0;
    if (c->parts.part == BITNET_REPLY_TOOL_CALL) c->n_told = c->raw.n;
    else c->raw.n = 0;
}

static void end_echo(choice *c) {
    buffer_add(&c->text, c->raw.p, c->raw.n);
    c->raw.n = 0;
}

void choice_end(choice *c, const request *r) {
    const char *none = 0, *text;
    bitnet_reply_part part;
    size_t size;
    if (!r->is_chat) end_echo(c);
    if (!r->is_chat || !c->is_divided || c->is_closed) return;
    if (c->held.n) divide_tokens(c, r, c->held.p, c->held.n);
    c->held.n = 0;
    while (c->late.n && !c->late.failed) {       /* of a stop string */
        take_late(c);
        forget_late(c);
    }
    if (c->parts.part == BITNET_REPLY_TOOL_CALL) be_text(c);     /* it was cut */
    if (c->is_behind_call && !c->parts.n_held) c->parts.n_newlines = 0;
    while (bitnet_reply_next(&c->parts, &none, &size, &part, &text, &size))
        add_to_part(c, part, text, size);
    if (c->parts.part == BITNET_REPLY_TEXT && !c->is_behind_call)
        take_waiting(c, c->waiting.n);
    c->waiting.n = c->own = 0;
}

/* Remembers the bytes of a token behind the others: as many as a stop string may have. */
static void add_to_tail(choice *c, const request *r, bitnet_token t) {
    size_t n;
    const char *s = bitnet_token_text(r->service->model, t, &n);
    if (c->tail.n > 4 * MOST_STOP_BYTES) {
        memmove(c->tail.p, c->tail.p + (c->tail.n - MOST_STOP_BYTES), MOST_STOP_BYTES);
        c->tail.n = MOST_STOP_BYTES;
    }
    c->last = c->tail.n;
    if (!bitnet_token_is_special(r->service->model, t)) buffer_add(&c->tail, s ? s : "", n);
}

/* Where a string ends at or behind `from`; 0: nowhere. */
static size_t end_of(const buffer *text, size_t from, bitnet_text string) {
    size_t end;
    for (end = from + 1; end <= text->n; end++)
        if (end >= string.size && !memcmp(text->p + (end - string.size), string.data, string.size))
            return end;
    return 0;
}

/* Of those that end within the last token, the library cuts the text where the first one begins. */
int32_t choice_stop(const choice *c, const request *r) {
    size_t first = 0, end;
    int32_t i, found = -1;
    if (r->stop_links) return c->stop - 1;
    for (i = 0; i < r->n_stops; i++) {
        if ((end = end_of(&c->tail, c->last, r->stops[i])) == 0) continue;
        end -= r->stops[i].size;
        if (found < 0 || end < first) found = i, first = end;
    }
    return found;
}

/* Adds text of a prompt, of which the next token may end the last character. */
static void add_echo(choice *c, const char *p, size_t n) {
    buffer *raw = &c->raw;
    size_t whole = 0, size = 1;
    buffer_add(raw, p, n);
    c->text.failed |= raw->failed;
    if (raw->failed) return;
    for (; size && whole < raw->n; whole += size) {
        size = bitnet_utf8_decode(raw->p + whole, raw->n - whole, 0);
        if (!size) size = raw->n - whole > 3;    /* with more it is none */
    }
    buffer_add(&c->text, raw->p, whole);
    raw->n -= whole;
    memmove(raw->p, raw->p + whole, raw->n);
}

void choice_add(choice *c, const request *r, engine_text *t, const char *piece, size_t n,
                const token_info *token) {
    const int echoed = token && t->n_new == 0;
    size_t bytes;
    int is_stopped;
    if (r->is_chat && !c->is_divided) begin_parts(c, r);
    if (echoed && t->n_echoed > t->n_unspelled)
        piece = bitnet_token_text(r->service->model, token->token, &n);
    if (token && !echoed && r->has_ids)
        buffer_format(&c->ids, c->ids.n ? ",%d" : "%d", (int)token->token);
    if (token && !echoed && r->n_stops && !r->stop_links) add_to_tail(c, r, token->token);
    if (token && r->logprobs >= 0 && (r->is_chat || r->has_ids)) add_chat_logprobs(c, r, token);
    else if (token && r->logprobs >= 0) {
        add_lists(c, r, token);
        c->length += echoed ? count_characters(piece, n)
                            : complete_text(c, r, token->token, &bytes);
    }
    if (echoed) add_echo(c, piece, n);
    else if (!r->is_chat) {
        end_echo(c);
        buffer_add(&c->text, piece, n);
    } else {
        is_stopped = divide_piece(c, r, piece, n);
        c->n_thinking += token && c->parts.part == BITNET_REPLY_THINKING;
        t->is_enough = c->is_closed || is_stopped;
    }
}
