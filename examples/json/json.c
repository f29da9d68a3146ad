#include "json.h"
#include "text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_free(json *j) {
    free(j->text);
    free(j->nodes);
    memset(j, 0, sizeof *j);
}

bitnet_result json_fail(const json *j, size_t at, const char *what, bitnet_error *err) {
    return set_error(err, BITNET_ERR_FORMAT, "%s: JSON at offset %llu: %s", j->name,
                     (unsigned long long)(j->base + at), what);
}

static void json_skip_space(json *j) {
    while (j->at < j->size && strchr(" \t\r\n", j->text[j->at]) && j->text[j->at]) j->at++;
}

/* Four hexadecimal digits at p, or -1. The NUL after the text stops it. */
static int32_t json_hex4(const char *p) {
    int32_t v = 0;
    int i;
    for (i = 0; i < 4; i++) {
        const char c = p[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return -1;
        v = v << 4 | digit;
    }
    return v;
}

size_t json_put_utf8(char *out, uint32_t c) {
    uint32_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4, i;
    for (i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(n == 1 ? c : c | (0xf00u >> n & 0xffu));     /* 2: C0, 3: E0, 4: F0 */
    return n;
}

/* Reads the escape whose backslash is at j->at: one code point, from two escapes if they are a
   surrogate pair. */
static bitnet_result json_escape(json *j, uint32_t *cp, bitnet_error *err) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *p = j->text + j->at + 1, *found = *p ? strchr(names, *p) : 0;
    int32_t high, low;
    if (found) {
        *cp = (uint8_t)values[found - names];
        j->at += 2;
        return BITNET_OK;
    }
    if (*p != 'u' || (high = json_hex4(p + 1)) < 0)
        return json_fail(j, j->at, "this escape does not exist in JSON", err);
    j->at += 6;
    *cp = (uint32_t)high;
    if (high < 0xd800 || high > 0xdfff) return BITNET_OK;
    low = p[5] == '\\' && p[6] == 'u' ? json_hex4(p + 7) : -1;
    if (high > 0xdbff || low < 0xdc00 || low > 0xdfff)
        return json_fail(j, j->at - 6, "half of a surrogate pair", err);
    j->at += 6;
    *cp = 0x10000 + (((uint32_t)high - 0xd800) << 10 | ((uint32_t)low - 0xdc00));
    return BITNET_OK;
}

static bitnet_result json_read_string(json *j, json_node *node, bitnet_error *err) {
    const size_t start = j->at++;
    char *out = j->text + j->at;
    bitnet_result r;
    node->at = (uint32_t)j->at;
    for (;;) {
        const uint8_t *p = (const uint8_t *)j->text + j->at;
        uint32_t cp = 0;
        size_t n;
        if (j->at == j->size) return json_fail(j, start, "this string has no end", err);
        if (*p == '"') break;
        if (*p < 0x20) return json_fail(j, j->at, "a control character in a string", err);
        if (*p == '\\') {
            if ((r = json_escape(j, &cp, err))) return r;
            out += json_put_utf8(out, cp);
            continue;
        }
        n = bitnet_utf8_decode((const char *)p, j->size - j->at, 0);
        if (!n) return json_fail(j, j->at, "this is not UTF-8", err);
        memmove(out, p, n);
        out += n;
        j->at += n;
    }
    j->at++;
    node->len = (uint32_t)(out - (j->text + node->at));
    *out = 0;                          /* at or before the closing quote */
    return BITNET_OK;
}

/* Also the words that Python's json writes for what is no number of JSON: they have a text, as
   numbers have. */
static bitnet_result json_read_word(json *j, json_node *node, bitnet_error *err) {
    static const struct { const char *word; json_type type; } words[] = {
        {"null", JSON_NULL}, {"false", JSON_FALSE}, {"true", JSON_TRUE}, {"NaN", JSON_NUMBER},
        {"Infinity", JSON_NUMBER}, {"-Infinity", JSON_NUMBER}
    };
    const size_t n_words = j->python ? 6 : 3;
    size_t i;
    for (i = 0; i < n_words; i++) {
        const size_t n = strlen(words[i].word);
        if (j->size - j->at < n || memcmp(j->text + j->at, words[i].word, n)) continue;
        node->type = words[i].type;
        node->at = (uint32_t)j->at;
        node->len = (uint32_t)n;
        j->at += n;
        return BITNET_OK;
    }
    return json_fail(j, j->at, "a value is expected here", err);
}

static size_t json_digits(json *j) {
    const size_t from = j->at;
    while (j->text[j->at] >= '0' && j->text[j->at] <= '9') j->at++;
    return j->at - from;
}

static bitnet_result json_read_number(json *j, json_node *node, bitnet_error *err) {
    size_t n;
    int ok;
    if (j->python && j->text[j->at] == '-' && j->text[j->at + 1] == 'I')
        return json_read_word(j, node, err);
    node->at = (uint32_t)j->at;
    j->at += j->text[j->at] == '-';
    ok = j->text[j->at] != '0';
    n = json_digits(j);
    ok = n == 1 || (n > 1 && ok);                                /* no 01 */
    if (ok && j->text[j->at] == '.') {
        j->at++;
        ok = json_digits(j) > 0;
    }
    if (ok && (j->text[j->at] == 'e' || j->text[j->at] == 'E')) {
        j->at++;
        j->at += j->text[j->at] == '+' || j->text[j->at] == '-';
        ok = json_digits(j) > 0;
    }
    node->len = (uint32_t)(j->at - node->at);
    return ok ? BITNET_OK : json_fail(j, node->at, "this is not a number", err);
}

/* Adds a node; 0: no memory. Pointers to other nodes become invalid. */
static json_node *json_add(json *j, json_type type) {
    json_node *node;
    if (!j->nodes || j->n_nodes == j->cap) {
        const size_t cap = j->cap ? 2 * (size_t)j->cap : j->size / 8 + 16;
        json_node *more = (json_node *)realloc(j->nodes, cap * sizeof *more);
        if (!more) return 0;
        j->nodes = more;
        j->cap = (uint32_t)cap;        /* at most 2 * JSON_MAX_BYTES */
    }
    node = &j->nodes[j->n_nodes++];
    memset(node, 0, sizeof *node);
    node->type = (uint32_t)type;
    node->next = j->n_nodes;
    return node;
}

typedef struct json_key { const char *s; uint32_t len, node; } json_key;

static int json_compare_keys(const void *a, const void *b) {
    const json_key *x = (const json_key *)a, *y = (const json_key *)b;
    const int c = memcmp(x->s, y->s, x->len < y->len ? x->len : y->len);
    return c ? c : x->len < y->len ? -1 : x->len > y->len;
}

/* A key that occurs twice is an error: readers differ in which of its values they take. */
static bitnet_result json_check_keys(const json *j, const json_node *object, bitnet_error *err) {
    json_key *keys = (json_key *)malloc((object->n + 1) * sizeof *keys);
    uint32_t node = (uint32_t)(object - j->nodes) + 1, i;
    bitnet_result r = BITNET_OK;
    if (!keys) return set_error(err, BITNET_ERR_MEMORY, "%s: no memory for its keys", j->name);
    for (i = 0; i < object->n; i++, node = j->nodes[node + 1].next) {
        keys[i].s = j->text + j->nodes[node].at;
        keys[i].len = j->nodes[node].len;
        keys[i].node = node;
    }
    qsort(keys, object->n, sizeof *keys, json_compare_keys);
    for (i = 1; i < object->n && !r; i++)
        if (!json_compare_keys(&keys[i - 1], &keys[i])) {
            const uint32_t a = keys[i - 1].node, b = keys[i].node;
            r = set_error(err, BITNET_ERR_FORMAT, "%s: JSON at offset %llu: the key '%.*s' "
                          "occurs twice", j->name,
                          (unsigned long long)j->base + j->nodes[a > b ? a : b].at - 1,
                          keys[i].len < 64 ? (int)keys[i].len : 64, keys[i].s);
        }
    free(keys);
    return r;
}

/* Steps over a byte order mark, and names what is no JSON at all. */
static bitnet_result json_begin(json *j, bitnet_error *err) {
    const uint8_t *p = (const uint8_t *)j->text;
    if (j->size >= 2 && p[0] == 0x1F && p[1] == 0x8B)
        return json_fail(j, 0, "this is gzip-compressed data", err);
    if (j->size >= 2 && ((p[0] == 0xFF && p[1] == 0xFE) || (p[0] == 0xFE && p[1] == 0xFF)))
        return json_fail(j, 0, "this is UTF-16, and UTF-8 is needed", err);
    if (j->size >= 3 && p[0] == 0xEF && p[1] == 0xBB && p[2] == 0xBF) j->at = 3;
    json_skip_space(j);
    return j->at < j->size ? BITNET_OK : json_fail(j, 0, "the text is empty", err);
}

bitnet_result json_parse(json *j, bitnet_error *err) {
    uint32_t stack[JSON_DEPTH], depth = 0;
    json_node *node, *parent;
    bitnet_result r = json_begin(j, err);
    if (r) return r;
    while (j->n_nodes || json_add(j, JSON_NULL)) {   /* a value starts, or a key and its value */
        char c;
        json_skip_space(j);
        parent = depth ? &j->nodes[stack[depth - 1]] : 0;
        if (parent) parent->n++;
        if (parent && parent->type == JSON_OBJECT) {
            if (j->text[j->at] != '"') return json_fail(j, j->at, "a key is expected here", err);
            if (!(node = json_add(j, JSON_STRING))) break;
            if ((r = json_read_string(j, node, err))) return r;
            json_skip_space(j);
            if (j->text[j->at] != ':') return json_fail(j, j->at, "':' is expected here", err);
            j->at++;
            json_skip_space(j);
        }
        c = j->text[j->at];
        if (!(node = json_add(j, c == '{' ? JSON_OBJECT : c == '[' ? JSON_ARRAY
                                 : c == '"' ? JSON_STRING : JSON_NUMBER))) break;
        if (c == '{' || c == '[') {
            if (depth == JSON_DEPTH) return json_fail(j, j->at, "this is nested too deeply", err);
            stack[depth++] = j->n_nodes - 1;
            j->at++;
            json_skip_space(j);
            if (j->text[j->at] != (c == '{' ? '}' : ']')) continue;
        } else {
            r = c == '"' ? json_read_string(j, node, err)
                : c == '-' || (c >= '0' && c <= '9') ? json_read_number(j, node, err)
                                                     : json_read_word(j, node, err);
            if (r) return r;
        }
        for (;;) {                     /* a value has ended, or a container is empty */
            json_skip_space(j);
            if (depth == 0 && j->at == j->size) return BITNET_OK;
            if (depth == 0) return json_fail(j, j->at, "text after the value", err);
            parent = &j->nodes[stack[depth - 1]];
            c = j->text[j->at];
            if (c != ',' && c != (parent->type == JSON_OBJECT ? '}' : ']'))
                return json_fail(j, j->at, parent->type == JSON_OBJECT
                                 ? "',' or '}' is expected here"
                                 : "',' or ']' is expected here", err);
            j->at++;
            if (c == ',') break;
            parent->next = j->n_nodes;
            if (parent->type == JSON_OBJECT && (r = json_check_keys(j, parent, err))) return r;
            depth--;
        }
    }
    return set_error(err, BITNET_ERR_MEMORY, "%s: no memory for its %u values", j->name,
                     (unsigned)j->n_nodes);
}

/* ---- looking things up ---- */

json_type json_kind(const json *j, uint32_t node) {
    return j->n_nodes ? (json_type)j->nodes[node].type : JSON_NULL;
}

int json_is(const json *j, uint32_t node, const char *text) {
    return json_kind(j, node) == JSON_STRING && j->nodes[node].len == strlen(text) &&
           !memcmp(j->text + j->nodes[node].at, text, strlen(text));
}

uint32_t json_get(const json *j, uint32_t object, const char *key) {
    uint32_t node = object + 1, i;
    if (json_kind(j, object) != JSON_OBJECT) return 0;
    for (i = 0; i < j->nodes[object].n; i++, node = j->nodes[node + 1].next)
        if (json_is(j, node, key)) return j->nodes[node + 1].type == JSON_NULL ? 0 : node + 1;
    return 0;
}

void json_describe(const json *j, uint32_t node, char *out, size_t cap) {
    static const char *const names[] = {"null", "false", "true", 0, 0, "an array", "an object"};
    const json_type type = json_kind(j, node);
    const char *text = names[type] ? names[type] : j->text + j->nodes[node].at;
    const uint32_t len = names[type] ? (uint32_t)strlen(text) : j->nodes[node].len;
    const char *quote = type == JSON_STRING ? "'" : "";
    snprintf(out, cap, "%s%.*s%s", quote, len < 64 ? (int)len : 64, text, quote);
}

int json_uint(const json *j, uint32_t node, uint64_t *out) {
    const json_node *s = &j->nodes[node];
    uint64_t v = 0;
    uint32_t i;
    if (json_kind(j, node) != JSON_NUMBER) return 0;
    for (i = 0; i < s->len; i++) {
        const uint32_t digit = (uint32_t)((uint8_t)j->text[s->at + i] - '0');
        if (digit > 9 || v > (UINT64_MAX - digit) / 10) return 0;
        v = v * 10 + digit;
    }
    *out = v;
    return 1;
}
