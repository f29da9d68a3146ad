/* json.h - a strict parser of JSON (RFC 8259), for files that may be hostile

   A document is a flat array of nodes in the order of the text; nothing recurses. Node 0 means "no
   node", node 1 is the root. Children follow their parent; next is the node after everything that a
   node contains:

       {"a": [1, 2], "b": "x"}      1 object  n 2  next 8      2 "a"  next 3
                                    3 array   n 2  next 6      4 1    5 2
                                    6 "b"     next 7           7 "x"  next 8

   Strings are decoded in place, which only makes them shorter, and end with a NUL. A node has 20
   bytes and stands for at least one byte of text, so the file's size bounds the memory. */
#ifndef JSON_H
#define JSON_H

#include "../../bitnet.h"

enum { JSON_ROOT = 1, JSON_DEPTH = 64, JSON_MAX_BYTES = 256 << 20 };

typedef enum json_type {
    JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT
} json_type;

typedef struct json_node {
    uint32_t type, next;
    uint32_t at, len;                  /* of a number or string: its bytes in the text */
    uint32_t n;                        /* elements of an array, pairs of an object */
} json_node;

typedef struct json {
    char name[128];                    /* the file's, without its folder, for errors */
    char *text;                        /* [size + 1], ends with a NUL */
    json_node *nodes;
    size_t size, base;                 /* base: the text's offset in its file */
    size_t at;                         /* the parser's position */
    uint32_t n_nodes, cap;
    int python;                        /* 1: NaN, Infinity and -Infinity are numbers, too */
} json;

/* Parses j->text[j->size], which may begin with a byte order mark. The caller has set name,
   text (from malloc), size, base and python, and all else to zero. json_free must follow even after
   an error. */
bitnet_result json_parse(json *j, bitnet_error *err);
void json_free(json *j);

/* An error at an offset of the text. */
bitnet_result json_fail(const json *j, size_t at, const char *what, bitnet_error *err);
/* Writes a code point and returns its size. */
size_t json_put_utf8(char *out, uint32_t cp);

/* These also work in a document without nodes, that of a missing file. */
json_type json_kind(const json *j, uint32_t node);
/* Is the node this string? */
int json_is(const json *j, uint32_t node, const char *text);
/* The value of a key of an object; 0 if there is none, or if it is null. */
uint32_t json_get(const json *j, uint32_t object, const char *key);
/* A value in few words, for errors: 'text', 1.5, true, an array. */
void json_describe(const json *j, uint32_t node, char *out, size_t cap);
/* Reads a number that is written as an integer from 0 to 2^64 - 1; 0 if the node is not one. */
int json_uint(const json *j, uint32_t node, uint64_t *out);

#endif
