/* The JSON reader of examples/convert: what it takes, what it refuses and where; damage. */
#include "test.h"

#include "../../examples/json/json.h"
#include "json_sound.h"

/* ---- helpers ---- */

/* Parses n bytes, copied to memory of exactly that size and one NUL. json_free afterwards. */
static bitnet_result parse_as(json *j, int python, const char *text, size_t n, bitnet_error *err) {
    memset(j, 0, sizeof *j);
    memset(err, 0, sizeof *err);
    j->python = python;
    snprintf(j->name, sizeof j->name, "x");
    j->size = n;
    j->text = (char *)malloc(n + 1);
    if (!j->text) return BITNET_ERR_MEMORY;
    memcpy(j->text, text, n);
    j->text[n] = 0;
    return json_parse(j, err);
}

static bitnet_result parse_json(json *j, const char *text, size_t n, bitnet_error *err) {
    return parse_as(j, 0, text, n, err);
}

/* ---- tests ---- */

static void test_json_values(void) {
    static const char text[] = " { \"a\" : [ 1 , -2.5e+3 , [ ] , { } ] ,\r\n\t\"\\u0062\\/\" : "
                               "\"\\\"\\\\\\b\\f\\n\\r\\t\\u00e9\\uD83D\\ude00\\u0000z\" , "
                               "\"c\":true,\"d\":false,\"e\":null,\"\":0}\n";
    static const char decoded[] = "\"\\\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80\0z";
    json j;
    bitnet_error err;
    bitnet_result r = parse_json(&j, text, sizeof text - 1, &err);
    uint32_t a, b;
    CHECK_MSG(r == BITNET_OK, "%s", err.text);
    CHECK(json_is_sound(&j) && j.nodes[JSON_ROOT].n == 6);
    a = json_get(&j, JSON_ROOT, "a");
    b = json_get(&j, JSON_ROOT, "b/");
    CHECK(a && j.nodes[a].type == JSON_ARRAY && j.nodes[a].n == 4);
    CHECK(b && j.nodes[b].len == sizeof decoded - 1);
    CHECK(!memcmp(j.text + j.nodes[b].at, decoded, sizeof decoded));
    CHECK(json_kind(&j, json_get(&j, JSON_ROOT, "c")) == JSON_TRUE);
    CHECK(json_kind(&j, json_get(&j, JSON_ROOT, "d")) == JSON_FALSE);
    CHECK(!json_get(&j, JSON_ROOT, "e") && json_get(&j, JSON_ROOT, ""));
    CHECK(!json_get(&j, JSON_ROOT, "f") && !json_get(&j, a, "a") && !json_get(&j, 0, "a"));
    json_free(&j);
    CHECK(!json_get(&j, JSON_ROOT, "a"));                /* a document that is not there */
}

static void test_json_integers(void) {
    static const struct { const char *text; int ok; uint64_t v; } cases[] = {
        {"0", 1, 0}, {"9007199254740993", 1, 9007199254740993u},         /* 2^53 + 1 */
        {"18446744073709551615", 1, UINT64_MAX}, {"18446744073709551616", 0, 0},
        {"18446744073709551620", 0, 0}, {"99999999999999999999999", 0, 0}, {"-0", 0, 0},
        {"-1", 0, 0}, {"1.0", 0, 0}, {"1e3", 0, 0}, {"\"1\"", 0, 0}, {"null", 0, 0}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json j;
        bitnet_error err;
        uint64_t v = 0;
        bitnet_result r = parse_json(&j, cases[i].text, strlen(cases[i].text), &err);
        int ok = r == BITNET_OK && json_uint(&j, JSON_ROOT, &v);
        json_free(&j);
        CHECK_MSG(r == BITNET_OK, "%s: %s", cases[i].text, err.text);
        CHECK_MSG(ok == cases[i].ok && v == cases[i].v, "%s", cases[i].text);
    }
}

/* Editors of Windows put a byte order mark in front of a text. Offsets count it. */
static void test_json_byte_order_mark(void) {
    static const char text[] = "\xef\xbb\xbf \r\n{\"a\": \"b\"}\r\n", bad[] = "\xef\xbb\xbf[1,]";
    json j;
    bitnet_error err;
    bitnet_result r = parse_json(&j, text, sizeof text - 1, &err);
    CHECK_MSG(r == BITNET_OK, "%s", err.text);
    CHECK(json_is_sound(&j) && json_is(&j, json_get(&j, JSON_ROOT, "a"), "b"));
    json_free(&j);
    r = parse_json(&j, bad, sizeof bad - 1, &err);
    json_free(&j);
    CHECK_MSG(r == BITNET_ERR_FORMAT && strstr(err.text, "offset 6: a value"), "%s", err.text);
}

/* What Python writes for numbers that are none, where the caller allows it. */
static void test_json_python(void) {
    static const char text[] = "{\"a\":NaN,\"b\":[Infinity,-Infinity],\"c\":-1}";
    static const char *const bad[] = {"nan", "-NaN", "Infinit", "-Infinit", "+Infinity", "-"};
    json j;
    bitnet_error err;
    bitnet_result r = parse_as(&j, 1, text, sizeof text - 1, &err);
    char word[80];
    uint64_t v;
    size_t i;
    CHECK_MSG(r == BITNET_OK, "%s", err.text);
    CHECK(json_is_sound(&j) && !json_uint(&j, json_get(&j, JSON_ROOT, "a"), &v));
    json_describe(&j, json_get(&j, JSON_ROOT, "a"), word, sizeof word);
    CHECK(!strcmp(word, "NaN"));
    json_describe(&j, json_get(&j, JSON_ROOT, "b") + 2, word, sizeof word);
    CHECK(!strcmp(word, "-Infinity"));
    json_free(&j);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        r = parse_as(&j, 1, bad[i], strlen(bad[i]), &err);
        json_free(&j);
        CHECK_MSG(r == BITNET_ERR_FORMAT, "%s is taken", bad[i]);
    }
    r = parse_json(&j, "[-Infinity]", 11, &err);
    json_free(&j);
    CHECK(r == BITNET_ERR_FORMAT);
}

/* In the words of an error. */
static void test_json_describe(void) {
    static const struct { const char *text, *words; } cases[] = {
        {"null", "null"}, {"true", "true"}, {"1.50", "1.50"}, {"\"a\\nb\"", "'a\nb'"},
        {"[1]", "an array"}, {"{}", "an object"}
    };
    char words[80];
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json j;
        bitnet_error err;
        CHECK(parse_json(&j, cases[i].text, strlen(cases[i].text), &err) == BITNET_OK);
        json_describe(&j, JSON_ROOT, words, sizeof words);
        CHECK_MSG(!strcmp(words, cases[i].words), "%s", words);
        json_describe(&j, 0, words, sizeof words);
        CHECK(!strcmp(words, "null"));
        json_free(&j);
    }
}

static void test_json_refused(void) {
    static const struct { const char *text; int at; const char *word; } cases[] = {
        {"", 0, "the text is empty"}, {" \r\n", 0, "the text is empty"},
        {"\xef\xbb\xbf\n", 0, "the text is empty"}, {"\x1f\x8b\x08", 0, "gzip"},
        {"\xff\xfe{", 0, "UTF-16"}, {"\xfe\xff", 0, "UTF-16"}, {"[", 1, "value"}, {"{", 1, "key"},
        {"[1,]", 3, "value"}, {"{\"a\":1,}", 7, "key"}, {"[1 2]", 3, "',' or ']'"},
        {"{\"a\":1]", 6, "',' or '}'"}, {"[1}", 2, "',' or ']'"}, {"{1:2}", 1, "key"},
        {"{\"a\" 1}", 5, "':'"}, {"{\"a\":}", 5, "value"}, {"1 2", 2, "after"}, {"[]]", 2, "after"},
        {"nul", 0, "value"}, {"True", 0, "value"}, {"NaN", 0, "value"}, {"'a'", 0, "value"},
        {"01", 0, "number"}, {"-", 0, "number"}, {"+1", 0, "value"}, {".5", 0, "value"},
        {"1.", 0, "number"}, {"1e", 0, "number"}, {"1e+", 0, "number"}, {"[-01]", 1, "number"},
        {"1x", 1, "after"}, {"\"a", 0, "has no end"}, {"\"a\n\"", 2, "control"},
        {"\"\\x\"", 1, "escape"}, {"\"\\", 1, "escape"}, {"\"\\u12g4\"", 1, "escape"},
        {"\"\\ud800\"", 1, "surrogate"}, {"\"\\ud800\\u0041\"", 1, "surrogate"},
        {"\"\\udc00\"", 1, "surrogate"}, {"\"\\ud800\\ud800\"", 1, "surrogate"},
        {"\"\xc0\x80\"", 1, "UTF-8"}, {"\"\xed\xa0\x80\"", 1, "UTF-8"}, {"\"\xff\"", 1, "UTF-8"},
        {"\xef\xbb\xbf\xef\xbb\xbf{}", 3, "value"}, {" \xef\xbb\xbf{}", 1, "value"},
        {"{\xef\xbb\xbf}", 1, "key"}, {"\xef\xbb", 0, "value"}, {"/**/1", 0, "value"},
        {"{\"a\":1,\"b\":2,\"\\u0061\":3}", 13, "'a' occurs twice"},
        {"[{\"\":1,\"\":2}]", 7, "'' occurs twice"}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char where[64];
        json j;
        bitnet_error err;
        bitnet_result r = parse_json(&j, cases[i].text, strlen(cases[i].text), &err);
        json_free(&j);
        snprintf(where, sizeof where, "x: JSON at offset %d: ", cases[i].at);
        CHECK_MSG(r == BITNET_ERR_FORMAT, "%s is taken", cases[i].text);
        CHECK_MSG(!strncmp(err.text, where, strlen(where)) && strstr(err.text, cases[i].word),
                  "%s: %s", cases[i].text, err.text);
    }
}

/* As deep as allowed, one deeper, and far deeper. */
static void test_json_depth(void) {
    static char text[200001];
    int depth;
    for (depth = JSON_DEPTH; depth <= 100000; depth = depth == JSON_DEPTH ? depth + 1 : 100000) {
        json j;
        bitnet_error err;
        bitnet_result r;
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        r = parse_json(&j, text, 2 * (size_t)depth, &err);
        json_free(&j);
        CHECK_MSG(r == (depth == JSON_DEPTH ? BITNET_OK : BITNET_ERR_FORMAT), "%d: %s", depth,
                  err.text);
        if (depth == 100000) break;
    }
}

/* Many keys, then the first one once more. */
static void test_json_many_keys(void) {
    enum { N = 100000 };
    char *text = (char *)malloc(N * 24), *p = text;
    json j;
    bitnet_error err;
    bitnet_result r;
    int i;
    CHECK(text);
    *p++ = '{';
    for (i = 0; i < N; i++) p += sprintf(p, "\"key%d\":%d,", i, i);
    p[-1] = '}';
    r = parse_json(&j, text, (size_t)(p - text), &err);
    i = r == BITNET_OK && json_is_sound(&j) && json_get(&j, JSON_ROOT, "key99999") != 0;
    json_free(&j);
    if (i) {
        p += sprintf(p - 1, ",\"key0\":1}") - 1;
        r = parse_json(&j, text, (size_t)(p - text), &err);
        json_free(&j);
    }
    free(text);
    CHECK(i);
    CHECK_MSG(r == BITNET_ERR_FORMAT && strstr(err.text, "'key0' occurs twice"), "%s", err.text);
}

/* Each byte replaced, left out, or the last one: an error with a text, or a sound document. */
static void test_json_damaged(void) {
    static const char text[] = "{\"__metadata__\":{\"f\":\"pt\\u00e9\\ud83d\\ude00\"},\"a.b\":{"
                               "\"dtype\":\"BF16\",\"shape\":[2,-1.5e7,3],\"data_offsets\":[0,12]},"
                               "\"x\":[true,false,null,[],{},\"\xc3\xa9\"]}";
    static const char bytes[] = "\0\"\\{}[]:,0-.eu \x7f\x80\xc3\xf0\xff";
    char changed[sizeof text];
    size_t at, i;
    for (at = 0; at < sizeof text - 1; at++)
        for (i = 0; i < sizeof bytes + 1; i++) {
            size_t n = sizeof text - 1;
            json j;
            bitnet_error err;
            bitnet_result r;
            int ok;
            memcpy(changed, text, n);
            if (i < sizeof bytes - 1) changed[at] = bytes[i];
            else if (i < sizeof bytes) n = at;
            else memmove(changed + at, changed + at + 1, --n - at);
            r = parse_json(&j, changed, n, &err);
            ok = r == BITNET_OK ? json_is_sound(&j) : r == BITNET_ERR_FORMAT && err.text[0] != 0;
            json_free(&j);
            CHECK_MSG(ok, "byte %d, change %d: %s", (int)at, (int)i, err.text);
        }
}

extern const test_case convert_json_tests[];
const test_case convert_json_tests[] = {
    {"convert_json/values", test_json_values},
    {"convert_json/integers", test_json_integers},
    {"convert_json/byte_order_mark", test_json_byte_order_mark},
    {"convert_json/python", test_json_python},
    {"convert_json/describe", test_json_describe},
    {"convert_json/refused", test_json_refused},
    {"convert_json/depth", test_json_depth},
    {"convert_json/many_keys", test_json_many_keys},
    {"convert_json/damaged", test_json_damaged},
    {0, 0}
};
