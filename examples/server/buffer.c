#include "buffer.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_free(buffer *b) {
    free(b->p);
    memset(b, 0, sizeof *b);
}

/* Room for n more bytes and a NUL; 0: there is none. */
static char *buffer_room(buffer *b, size_t n) {
    if (b->failed || n > SIZE_MAX / 4 || b->n > SIZE_MAX / 4) b->failed = 1;
    else if (!b->p || b->cap - b->n <= n) {
        const size_t cap = 2 * (b->n + n) + 256;
        char *more = (char *)realloc(b->p, cap);
        if (more) b->p = more, b->cap = cap;
        else b->failed = 1;
    }
    return b->failed ? 0 : b->p + b->n;
}

void buffer_add(buffer *b, const char *p, size_t n) {
    char *out = buffer_room(b, n);
    if (!out) return;
    if (n) memcpy(out, p, n);
    b->n += n;
    b->p[b->n] = 0;
}

void buffer_text(buffer *b, const char *text) { buffer_add(b, text, strlen(text)); }

void buffer_format(buffer *b, const char *format, ...) {
    va_list args;
    char *out;
    int n;
    va_start(args, format);
    n = vsnprintf(0, 0, format, args);
    va_end(args);
    if (n < 0 || !(out = buffer_room(b, (size_t)n))) return;
    va_start(args, format);
    vsnprintf(out, (size_t)n + 1, format, args);
    va_end(args);
    b->n += (size_t)n;
}

int buffer_is_utf8(const char *p, size_t n) {
    size_t i = 0, size = 1;
    for (; i < n && size; i += size) size = bitnet_utf8_decode(p + i, n - i, 0);
    return size > 0;
}

void buffer_json(buffer *b, const char *p, size_t n) {
    size_t i = 0, size;
    buffer_text(b, "\"");
    for (; i < n; i += size) {
        const uint8_t c = (uint8_t)p[i];
        size = bitnet_utf8_decode(p + i, n - i, 0);
        if (!size) {
            buffer_text(b, "\357\277\275");
            size = 1;
        } else if (c == '"' || c == '\\') buffer_format(b, "\\%c", c);
        else if (c == '\n') buffer_text(b, "\\n");
        else if (c < 0x20 || c == 0x7f) buffer_format(b, "\\u%04x", c);
        else buffer_add(b, p + i, size);
    }
    buffer_text(b, "\"");
}

void buffer_base64(buffer *b, const char *p, size_t n, const char *digits) {
    uint32_t bits = 0;
    size_t i;
    int left = 0;                      /* so many bits are in no digit yet */
    for (i = 0; i < n; i++) {
        bits = bits << 8 | (uint8_t)p[i];
        for (left += 8; left >= 6; left -= 6) buffer_add(b, &digits[bits >> (left - 6) & 63], 1);
    }
    if (left) buffer_add(b, &digits[bits << (6 - left) & 63], 1);
}

/* Values nest at most JSON_DEPTH deep. */
static void put_value(buffer *b, const json *j, uint32_t node, const char *comma,
                      const char *colon) {
    static const char *const words[] = {"null", "false", "true"};
    const json_node *v = &j->nodes[node];
    uint32_t child = node + 1, i;
    if (v->type <= JSON_TRUE) buffer_text(b, words[v->type]);
    else if (v->type == JSON_NUMBER) buffer_add(b, j->text + v->at, v->len);
    else if (v->type == JSON_STRING) buffer_json(b, j->text + v->at, v->len);
    else {
        buffer_text(b, v->type == JSON_ARRAY ? "[" : "{");
        for (i = 0; i < v->n; i++, child = j->nodes[child].next) {
            if (i) buffer_text(b, comma);
            if (v->type == JSON_OBJECT) {
                buffer_json(b, j->text + j->nodes[child].at, j->nodes[child].len);
                buffer_text(b, colon);
                child++;
            }
            put_value(b, j, child, comma, colon);
        }
        buffer_text(b, v->type == JSON_ARRAY ? "]" : "}");
    }
}

void buffer_value(buffer *b, const json *j, uint32_t node) { put_value(b, j, node, ",", ":"); }

void buffer_spaced(buffer *b, const json *j, uint32_t node) { put_value(b, j, node, ", ", ": "); }
