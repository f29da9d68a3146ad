/* buffer.h - bytes that grow, and JSON text */
#ifndef SERVER_BUFFER_H
#define SERVER_BUFFER_H

#include "../json/json.h"
#include <stddef.h>

/* All zero: empty. Without memory it keeps what it has, and failed becomes 1. */
typedef struct buffer {
    char *p;                           /* [n], and a NUL */
    size_t n, cap;
    int failed;
} buffer;

void buffer_free(buffer *b);
void buffer_add(buffer *b, const char *p, size_t n);
void buffer_text(buffer *b, const char *text);
#ifdef __GNUC__                        /* the compiler checks the arguments */
__attribute__((format(printf, 2, 3)))
#endif
void buffer_format(buffer *b, const char *format, ...);

int buffer_is_utf8(const char *p, size_t n);
/* A string in quotes. Bytes that are not UTF-8 become U+FFFD. */
void buffer_json(buffer *b, const char *p, size_t n);
/* Base64 in these 64 digits, without padding. */
void buffer_base64(buffer *b, const char *p, size_t n, const char *digits);
/* A value as it was parsed, without white space. */
void buffer_value(buffer *b, const json *j, uint32_t node);
/* The same with a space behind each comma and colon, as Python and chat templates write it. */
void buffer_spaced(buffer *b, const json *j, uint32_t node);

#endif
