/* bitnet_grammar.h: texts that a grammar or schema takes and refuses, byte by byte and in longer
   tokens; masks against the matcher's own verdict on each token; errors with their places; hostile
   grammars; limits and memory. tests/tools/test_grammar.sh has ajv's opinion of schemas. */
#include "test.h"
#define BITNET_GRAMMAR_API extern
#define BITNET_GRAMMAR_IMPLEMENTATION
#define BITNET_GRAMMAR__FEW 2
#define BITNET_GRAMMAR__FEW_NEW 2
#include "../../bitnet_grammar.h"
#include "vocab_helpers.h"

/* Tokens 0 to 255 are the bytes. */
static const char *const longer[] = {
    "ab", "abc", "aab", "xy", "\":", "{\"", "\"}", "\", \"", "[[", "]]", "12", "00", "true",
        "\xE2\x82",
    "\x82\xAC", "\xAC\xE2", "\xE2\x82\xAC", "\xC3\xA9", "\xE3\x81\x82\xE3", "  ", "\n ", "1,",
        "\\u00",
    "((", "x)", "))", "ab", "\xF0\x9F", "\x98\x80\"", "-1", "]}",
    /* long ways of the vocabulary's tree, which are decided at once */
    "abcdefgh", "abcdefg\"", "\xC3\xA9xyzwv", "\xE3\x81\x82\xE3\x81\x84\xE3",
        "\xE3\x81\x82\xE3\x82x",
    "\xE2\x82\xAC\xED\xA0\x80", "\xE2\x82\xAC\xED\x9F\xBF", "aaaaaaa", "aaaaaax", "aaaa\xC3\xA9"};
enum { N_LONGER = sizeof longer / sizeof longer[0], FIRST_LONGER = 256 };

static gb_model built;
static bitnet_model *model;
static uint32_t allowed[16];

static int set_up(void) {
    if (model) return 1;
    memset(&built, 0, sizeof built);
    built.dim = built.ffn = 64, built.layers = 1, built.heads = 2, built.kv_heads = 1;
    built.words = longer, built.n_words = N_LONGER, built.embed_type = GB_TENSOR_F16;
    gb_make_model(&built);
    model = load_built(&built);
    return model != 0;
}

static int is_allowed(int t) { return (int)(allowed[t / 32] >> t % 32 & 1); }

static void ask(bitnet_matcher *m) {
    memset(allowed, 0, sizeof allowed);
    bitnet_matcher_mask(m, allowed);
}

typedef bitnet_result (*compile)(const bitnet_model *m, const char *text, size_t n,
                                 const bitnet_grammar_params *params, bitnet_grammar **out,
                                 bitnet_error *err);

static bitnet_matcher *matcher_of(compile how, const char *text, bitnet_grammar **g,
                                  const bitnet_matcher_params *p) {
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_matcher *m = 0;
    *g = 0;
    if (!set_up() || how(model, text, strlen(text), 0, g, &err) ||
        bitnet_matcher_create(*g, p, &m, &err))
        test_fail(__FILE__, __LINE__, "%s: %s", text, err.text);
    return m;
}

/* The token that spells most of a text. */
static int longest_token(const char *text) {
    int i, best = (uint8_t)text[0];
    size_t n = 1;
    for (i = 0; i < N_LONGER; i++) {
        const size_t size = strlen(longer[i]);
        if (size <= n || strncmp(text, longer[i], size)) continue;
        best = FIRST_LONGER + i;
        n = size;
    }
    return best;
}

/* Does the mask say of each token what the matcher says when it gets it? */
static int mask_is_right(bitnet_matcher *m, bitnet_matcher *other) {
    int t;
    ask(m);
    for (t = 0; t < built.n_vocab; t++) {
        if (bitnet_matcher_copy(other, m)) return 0;
        if ((bitnet_matcher_accept(other, t) == BITNET_OK) != is_allowed(t)) return 0;
    }
    return 1;
}

/* How a text ends: x it is refused, o it is incomplete, m it may end, c nothing may follow. */
static char verdict(bitnet_matcher *m, bitnet_matcher *other, const char *text, int long_tokens) {
    static const char names[] = "omc";
    bitnet_matcher_reset(m);
    while (*text) {
        const int t = long_tokens ? longest_token(text) : (uint8_t)*text;
        if (other && !mask_is_right(m, other)) return '!';
        if (bitnet_matcher_accept(m, t)) return 'x';
        text += t < FIRST_LONGER ? 1 : strlen(longer[t - FIRST_LONGER]);
    }
    if (other && !mask_is_right(m, other)) return '!';
    ask(m);
    if (is_allowed(built.eot) != (bitnet_matcher_state(m) > BITNET_MATCHER_OPEN)) return '?';
    return names[bitnet_matcher_state(m)];
}

/* Cases of one grammar: "verdict text", the last one 0. */
typedef struct grammar_case { const char *grammar; const char *texts[14]; } grammar_case;

static void check_cases(compile how, const grammar_case *cases, int n) {
    int i, k, level;
    for (i = 0; i < n; i++) {
        bitnet_grammar *g;
        bitnet_matcher *m = matcher_of(how, cases[i].grammar, &g, 0), *other = 0;
        CHECK(m && !bitnet_matcher_create(g, 0, &other, 0));
        for (k = 0; cases[i].texts[k]; k++)
            for (level = 0; level < 2; level++) {
                const char *text = cases[i].texts[k];
                const char got = verdict(m, k < 3 ? other : 0, text + 2, level);
                CHECK_MSG(got == text[0], "%s: '%s' is %c, not %c (%s)", cases[i].grammar,
                          text + 2, got, text[0], level ? "long tokens" : "bytes");
            }
        bitnet_matcher_free(m);
        bitnet_matcher_free(other);
        bitnet_grammar_free(g);
    }
}

/* The same with rules around what is compiled. */
static const char *around;

static bitnet_result compile_around(const bitnet_model *m, const char *text, size_t n,
                                    const bitnet_grammar_params *params, bitnet_grammar **out,
                                    bitnet_error *err) {
    bitnet_grammar_params p;
    memset(&p, 0, sizeof p);
    (void)params;
    p.around = text_of(around);
    return (*text == '{' ? bitnet_grammar_json_schema : bitnet_grammar_gbnf)(m, text, n, &p, out,
                                                                             err);
}

typedef struct error_case { const char *text; bitnet_result code; const char *words; } error_case;

static void check_errors(compile how, const error_case *cases, int n) {
    int i;
    CHECK(set_up());
    for (i = 0; i < n; i++) {
        static const bitnet_error none;
        bitnet_grammar *g = 0;
        bitnet_error err;
        bitnet_result r;
        memset(&err, 0xFF, sizeof err);
        r = how(model, cases[i].text, strlen(cases[i].text), 0, &g, &err);
        CHECK_MSG(r == cases[i].code && r == err.code && strstr(err.text, cases[i].words) && !g,
                  "%s: %d '%s'", cases[i].text, (int)r, err.text);
        CHECK(!memcmp(err.reserved, none.reserved, sizeof err.reserved));
    }
}

/* ---- GBNF ---- */

static void test_gbnf(void) {
    static const grammar_case cases[] = {
        {"root ::= \"abc\"", {"c abc", "o ", "o ab", "x abd", "x abcc", "x b", 0}},
        {"root ::= \"a\" | \"bc\"\n", {"c a", "c bc", "o b", "x ab", "x c", 0}},
        {"root ::= \"a\"*", {"m ", "m aaa", "x ab", 0}},
        {"root ::= \"ab\"+ \"c\"", {"c ababc", "o abab", "x c", "x abcab", 0}},
        {"root ::= \"a\"? \"b\"?", {"m ", "m a", "c b", "c ab", "x ba", 0}},
        {"root ::= \"a\"{3}", {"c aaa", "o aa", "x aaaa", 0}},
        {"root ::= \"a\"{2,}", {"m aa", "m aaaaaaa", "o a", 0}},
        {"root ::= \"a\"{2,4} \"b\"", {"c aab", "c aaaab", "x ab", "x aaaaa", "o aaaa", 0}},
        {"root ::= \"a\"{0,2}", {"m ", "m a", "c aa", "x aaa", 0}},
        {"root ::= \"a\"{0} \"b\"{ 1 , 1 }", {"c b", "x a", 0}},
        {"root ::= (\"a\"{2}){2,3}", {"m aaaa", "c aaaaaa", "o aaaaa", "o aaa", 0}},
        {"root ::= x{2,2} \"]\"\nx ::= \",\" s \"1\" s\ns ::= \" \"?",
         {"c ,1,1]", "c , 1 , 1 ]", "x ,1]", "x ,1,1,", 0}},
        {"root ::= s x (\",\" s x s){2,2} \"]\"\nx ::= \"1\"\ns ::= \" \"?",
         {"c 1,1,1]", "x 1,1]", "o 1,1", 0}},
        {"root ::= [a-cx] [^a-c\\n] [\\]\\-^] [-]", {"c ad^-", "c xd]-", "x adx", 0}},
        {"root ::= [a-cx][^a-c\\n]", {"c xy", "c az", "x ab", "x d", "x a\n", "c a\xC3\xA9", 0}},
        {"root ::= [\\]\\-\\[]+ [x^-]+", {"m ]-[x", "m ]x-^", "x x", 0}},
        {"root ::= \"\\x41\\u00e9\\U0001F600\\\"\\\\\\t\"", {"c A\xC3\xA9\xF0\x9F\x98\x80\"\\\t",
            0}},
        {"root ::= [\xE3\x81\x81-\xE3\x82\x9F]+", {"m \xE3\x81\x82", "o \xE3\x81", "x \xE3\x83",
                                               "m \xE3\x81\x82\xE3\x82\x80", "x a", 0}},
        {"root ::= .", {"c a", "c \n", "c \xE2\x82\xAC", "o \xE2\x82", "x \x80", "x \xC0",
            "x \xED\xA0",
                        "o \xED\x9F", "x \xF4\x90", "o \xF4\x8F", "x \xE0\x80", "x \xFF", 0}},
        {"root ::= [^x\xC3\xA9]*", {"m ", "m abcdefgh\xE2\x82\xAC\xED\x9F\xBF", "o a\xC3", 0}},
        {"root ::= [a-z]* [^a-z]", {"o ", "o abcdefgh", 0}},
        {"root ::= ([a-z] | [\\U00000080-\\U0010FFFF])*", {"m ", "m a", 0}},
        {"root ::= [^x]*", {"m \xF0\x9F\x98\x80", "o a\xF0\x9F\x98", "x \xF5", "x x", 0}},
        {"# all\nroot ::= a # b\n  # c\na ::= # d\n  \"x\" |\n  \"y\"", {"c x", "c y", "x #", 0}},
        {"root ::= (\"a\"\n | # or\n \"b\")\n \n\nx-y_1 ::= \"z\"", {"c a", "c b", 0}},
        {"root ::= ((\"a\" (\"b\" | \"c\")) | \"d\")+", {"m abd", "o a", "m dac", 0}},
        {"root ::= \"(\" root \")\" | \"x\"", {"c ((x))", "o (x", "x x)", "o ((", "c x", 0}},
        {"root ::= \"a\" root | \"b\"", {"c aaaab", "o aaaa", 0}},
        {"root ::= e \"c\"\ne ::= | \"a\" e \"b\"", {"c aabbc", "c c", "x aabc", 0}},
        {"root ::= ((\"a\"*)*)+ (\"b\"?){2,5} \"c\"", {"c c", "c aabbbbbc", "x bbbbbb", 0}},
        {"root ::= (\"a\" | \"ab\") (\"c\" | \"bc\")", {"c ac", "c abc", "c abbc", "x abb c", 0}},
        {"root ::= \"\"", {"c ", "x a", 0}},
        {"root ::= \"a\" none | \"b\"\nnone ::= \"x\" none", {"c b", "x a", 0}},
        {"root ::= \"a\"+?", {"m ", "m aa", 0}},
        {"root ::= <[65]> !<[66]> !<[66]>*\n", {"o A", "m AA", "x AB", "m AAA", 0}},
    };
    check_cases(bitnet_grammar_gbnf, cases, (int)(sizeof cases / sizeof cases[0]));
}

/* Lines as other tools write them: with | in front, with CR LF, behind a byte order mark. */
static void test_lines(void) {
    static const grammar_case cases[] = {
        {"root ::= foo\n  | bar\nfoo ::= \"a\"\nbar ::= \"b\"\n", {"c a", "c b", "x ab", 0}},
        {"root ::= a\n# or\n\n\t| \"b\"+ # and\n  | \"xy\"\na ::= \"1\"",
         {"c 1", "m bb", "c xy", "x a", 0}},
        {"root ::=\n  | \"a\"\n  | \"b\"", {"m ", "c a", "c b", 0}},
        {"\xEF\xBB\xBFroot ::= a\r\n  | \"b\"\r\n\r\na ::= (\r\n \"1\") # one\r\n",
         {"c 1", "c b", "x a", 0}},
    };
    static const error_case errors[] = {
        {"\xEF\xBB\xBFroot ::= a", BITNET_ERR_FORMAT, "line 1, column 10: the rule a is not"},
        {"root ::= \"a\"\r\n| )", BITNET_ERR_FORMAT, "line 2, column 3"},
        {"root ::= \"a\"\n\"b\"", BITNET_ERR_FORMAT, "line 2, column 1: a rule's name"},
    };
    static const grammar_case schemas[] = {
        {"\xEF\xBB\xBF{\r\n\"type\":\r\n\"null\"}", {"c null", "x 1", 0}}};
    check_cases(bitnet_grammar_gbnf, cases, (int)(sizeof cases / sizeof cases[0]));
    check_errors(bitnet_grammar_gbnf, errors, (int)(sizeof errors / sizeof errors[0]));
    check_cases(bitnet_grammar_json_schema, schemas, 1);
}

/* Tokens that a grammar names: special ones, and split characters, which `any but` never is. */
static void test_tokens(void) {
    bitnet_grammar *g;
    bitnet_matcher *m = matcher_of(bitnet_grammar_gbnf,
                                   "root ::= <|begin_of_text|> (!<[256]> | <[271]>)* <|eot_id|> "
                                       "\"a\"*",
                                   &g, 0);
    CHECK(m);
    ask(m);
    CHECK(is_allowed(built.bos) && !is_allowed('a') && !is_allowed(built.eot));
    CHECK(bitnet_matcher_accept(m, built.eot) == BITNET_ERR_ARG);
    CHECK(!bitnet_matcher_accept(m, built.bos));
    ask(m);
    CHECK(is_allowed('a') && is_allowed(built.eot) && !is_allowed(built.bos));
    CHECK(!is_allowed(0x80) && !is_allowed(0xE2) && is_allowed(272) && is_allowed(271));
    CHECK(!is_allowed(256) && is_allowed(257) && is_allowed(282));     /* "ab" is there twice */
    CHECK(!bitnet_matcher_accept(m, 257) && !bitnet_matcher_accept(m, built.eot));
    CHECK(bitnet_matcher_state(m) == BITNET_MATCHER_MAY_END);
    CHECK(!bitnet_matcher_accept(m, 'a') && !bitnet_matcher_accept(m, built.eot));
    CHECK(bitnet_matcher_state(m) == BITNET_MATCHER_ENDED);
    CHECK(bitnet_matcher_accept(m, 'a') == BITNET_ERR_ARG);
    ask(m);
    CHECK(!is_allowed('a') && !is_allowed(built.eot));
    bitnet_matcher_reset(m);
    bitnet_matcher_chosen(m, 'a');
    CHECK(bitnet_matcher_state(m) == BITNET_MATCHER_REFUSED);
    ask(m);
    CHECK(!is_allowed(built.bos));
    CHECK(bitnet_matcher_accept(m, built.bos) == BITNET_ERR_ARG);
    CHECK(bitnet_matcher_accept(m, -1) == BITNET_ERR_ARG);
    bitnet_matcher_free(m);
    bitnet_grammar_free(g);
}

static void test_gbnf_errors(void) {
    static const error_case cases[] = {
        {"", BITNET_ERR_FORMAT, "no rule root"},
        {"a ::= \"x\"", BITNET_ERR_FORMAT, "no rule root"},
        {"root ::= a\n", BITNET_ERR_FORMAT, "line 1, column 10: the rule a is not defined"},
        {"root ::= \"x\"\nroot ::= \"y\"", BITNET_ERR_FORMAT,
            "line 2, column 1: the rule root is defined"},
        {"root ::= \"\xC3\xA9\" )", BITNET_ERR_FORMAT, "line 1, column 14: a symbol"},
        {"root ::= (\"a\"", BITNET_ERR_FORMAT, "')' expected, not the end"},
        {"root ::= \"a", BITNET_ERR_FORMAT, "not the end"},
        {"root ::= [a", BITNET_ERR_FORMAT, "not the end"},
        {"root ::= []", BITNET_ERR_FORMAT, "empty class"},
        {"root ::= [b-a]", BITNET_ERR_FORMAT, "backwards"},
        {"root ::= *", BITNET_ERR_FORMAT, "nothing to repeat"},
        {"root ::= \"a\"{2,1}", BITNET_ERR_FORMAT, "from more to fewer"},
        {"root ::= \"a\"{x}", BITNET_ERR_FORMAT, "a number expected"},
        {"root ::= \"a\"{1000001}", BITNET_ERR_LIMIT, "1000000"},
        {"root ::= \"\\q\"", BITNET_ERR_FORMAT, "column 11: unknown escape"},
        {"root ::= \"\\x4\"", BITNET_ERR_FORMAT, "hexadecimal"},
        {"root ::= \"\\ud800\"", BITNET_ERR_FORMAT, "U+D800 is no character"},
        {"root ::= \"\xFF\"", BITNET_ERR_FORMAT, "not UTF-8"},
        {"root = \"a\"", BITNET_ERR_FORMAT, "'::=' expected"},
        {"root ::= <nothing>", BITNET_ERR_FORMAT, "no token <nothing>"},
        {"root ::= <[99999]>", BITNET_ERR_FORMAT, "no such token"},
        {"root ::= <[]>", BITNET_ERR_FORMAT, "a token's number expected"},
        {"root ::= !a", BITNET_ERR_FORMAT, "'<' expected"},
        {"root ::= root \"a\" | \"b\"", BITNET_ERR_UNSUPPORTED, "rule root begins with itself"},
        {"root ::= a\na ::= \"\" b? (c)\nb ::= \"x\"\nc ::= \"y\"{0,3} a | \"z\"",
         BITNET_ERR_UNSUPPORTED, "begins with itself"},
        {"root ::= \"x\" root", BITNET_ERR_FORMAT, "root has no text that ends"},
    };
    check_errors(bitnet_grammar_gbnf, cases, (int)(sizeof cases / sizeof cases[0]));
}

/* ---- schemas ---- */

static void test_schemas(void) {
    static const grammar_case cases[] = {
        {"{}", {"c {\"a\":[1,{}],\"b\" : null}", "c \"x\"", "m -1.5e-7", "x 01", "x 1e100",
            "x [1,]", 0}},
        {"true", {"c null", 0}},
        {"{\"type\":\"string\"}", {"c \"a\\n\\u00e9\xC3\xA9\"", "x \"\n", "x \"\\q", "o \"\\u00",
            0}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"c \"\xC3\xA9\xF0\x9F\x98\x80\"", "x \"a\"", "x \"abcd", "c \"\\ud83d\\ude00a\"",
          "x \"\\ud83d\\ude00\"", "x \"\\ud83da", 0}},
        {"{\"type\":\"string\",\"pattern\":\"^a[^\\\"b]{1,2}(?:\\\\.|\\\\d+)$\"}",
         {"c \"axx.\"", "c \"ax123\"", "x \"a1\"", "o \"ax", "x \"a\\\"", 0}},
        {"{\"type\":\"integer\",\"minimum\":-3,\"exclusiveMaximum\":12}",
         {"c -3", "x -4", "c 11", "x 12", "m 1", "c 0", "x 00", "x -0", 0}},
        {"{\"type\":\"integer\",\"minimum\":0e999,\"maximum\":5.00000000000000000000000000000}",
         {"c 0", "c 5", "x 6", "x -", 0}},
        {"{\"type\":\"integer\",\"minimum\":8.5}", {"m 9", "o 8", "m 80", "x 7 ", 0}},
        {"{\"enum\":[\"a\\\"\",12,null,[1,{\"a\":2}]]}",
         {"c \"a\\\"\"", "c 12", "c null", "c [1,{\"a\":2}]", "x \"b", 0}},
        {"{\"enum\":[\"a\",1],\"type\":\"string\"}", {"c \"a\"", "x 1", 0}},
        {"{\"const\":{\"k\\n\":\"\\u0008\\f\\r\\t\\\\\\u0001/\"}}",
         {"c {\"k\\n\":\"\\b\\f\\r\\t\\\\\\u0001/\"}", "x {\"k\\u", 0}},
        {"{\"const\":{}}", {"c {}", 0}},
        {"{\"const\":\"\\uD7FF\\uE000\"}", {"c \"\xED\x9F\xBF\xEE\x80\x80\"", 0}},
        {"{\"type\":[\"null\",\"boolean\"]}", {"c true", "c false", "c null", "x 1", 0}},
        {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}},\"required"
            "\":[\"b\"]}",
         {"c {\"a\":null,\"b\":null}", "c {\"b\":null}", "x {\"a\":null}", "x {}", "x {\"b\":null,",
          "c {\n \"b\" : null }", 0}},
        {"{\"properties\":{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"bool"
            "ean\"}}",
         {"c {\"ab\":null,\"a\":true,\"abc\":true}", "c {\"b\":true,\"\":true}", "x {\"ab\":t",
          "x {\"x\":null", "c {}", "x {\"x\":true,\"ab\"", "x {\"\\u", 0}},
        {"{\"properties\":{\"a\\\"b\":{},\"c\\\\\":{},\"d\\n\":{},\"dd\":{}},"
         "\"additionalProperties\":true}",
         {"c {\"a\\\"b\":1,\"a\":2,\"ab\":3,\"d\":4}", "x {\"a\"c", "x {\"c\\x", "x {\"d\n",
          "c {\"dd\":1,\"ddd\":1}", "x {\"dd\":1,\"dd\"", 0}},
        {"{\"type\":\"object\",\"required\":[\"x\"]}", {"c {\"x\":1,\"y\":2}", "x {}",
            "c {\"x\":1}", 0}},
        {"{\"items\":{\"type\":\"null\"},\"minItems\":1,\"maxItems\":2}",
         {"c [null]", "c [null,null]", "x []", "x [null,null,", 0}},
        {"{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false}", {"c [1,2]", "x [1]",
            "x [1,2,", 0}},
        {"{\"items\":[{\"const\":1}],\"additionalItems\":{\"const\":3},\"minItems\":2}",
         {"c [1,3]", "c [1,3,3]", "x [1]", 0}},
        {"{\"$ref\":\"#/$defs/a~1b\",\"$defs\":{\"a/b\":{\"type\":\"array\",\"items\":{\"$ref"
            "\":\"#\"}}}}",
         {"c [[],[[]]]", "x [1", 0}},
        {"{\"anyOf\":[{\"type\":\"null\"},false,{\"const\":5}]}", {"c null", "c 5", "x 6", 0}},
        {"{\"oneOf\":[{\"type\":\"null\"},{\"type\":\"integer\"},{\"type\":\"string\"}]}", {"m 1",
            "c null", 0}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{\"properties"
            "\":{\"b\":"
         "{\"const\":2}}}]}", {"c {\"a\":1}", "c {\"a\":1,\"b\":2}", "x {\"b\"", 0}},
        {"{\"type\":\"string\",\"format\":\"date\"}",
         {"c \"2024-02-29\"", "x \"2023-02-29", "x \"1900-02-29", "c \"2000-02-29\"",
             "x \"2023-04-31", 0}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}", {"c \"2024-01-31T23:59:59.123-01:30\"",
            0}},
        {"{\"type\":\"string\",\"format\":\"uuid\"}", {"c \"00000000-0000-0000-0000-00000000abCD"
            "\"", 0}},
    };
    check_cases(bitnet_grammar_json_schema, cases, (int)(sizeof cases / sizeof cases[0]));
}

/* Notes, and keywords beside each other. */
static void test_keywords(void) {
    static const grammar_case cases[] = {
        {"{\"\":1,\" title\":1,\"example\":2,\"x-order\":3,\"discriminator\":{},\"minLenght\":9,"
         "\"type\":\"null\"}", {"c null", 0}},
        {"{\"type\":\"boolean\",\"nullable\":true}", {"c null", "c true", "x 1", 0}},
        {"{\"nullable\":true,\"const\":1}", {"c 1", "x n", 0}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},"
         "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
         {"c {\"a\":1}", "c {\"b\":2}", "c {\"a\":1,\"b\":2}", "x {}", 0}},
        {"{\"type\":[\"integer\",\"null\"],\"anyOf\":[{\"minimum\":5},{\"type\":\"null\"}]}",
         {"m 5", "x 4 ", "c null", "x \"", 0}},
        {"{\"$ref\":\"#/$defs/a\",\"maxLength\":2,\"$defs\":{\"a\":{\"type\":\"string\","
         "\"minLength\":1}}}", {"c \"a\"", "c \"ab\"", "x \"\"", "x \"abc", 0}},
        {"{\"$ref\":\"#/$defs/%7E1%25%00\",\"$defs\":{\"/%\\u0000\":{\"const\":1},\"/%\":{}}}",
         {"c 1", "x 2", 0}},
        {"{\"allOf\":[{\"minimum\":3,\"type\":\"integer\"},{\"maximum\":12},{\"multipleOf\":4}]}",
         {"c 4", "c 8", "c 12", "x 3", "x 16", "x 5", 0}},
        {"{\"allOf\":[{\"enum\":[1,2,\"a\"]},{\"enum\":[\"a\",2]}],\"type\":\"integer\"}",
         {"c 2", "x 1", "x \"", 0}},
        {"{\"type\":\"string\",\"enum\":[\"a\",\"abc\",5],\"maxLength\":2}", {"c \"a\"", "x \"ab",
         "x 5",
            0}},
        {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},"
         "{\"properties\":{\"b\":{}}}]}", {"c {}", "c {\"a\":1}", "x {\"b", 0}},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^a\",\"maxLength\":2},"
         "\"additionalProperties\":{\"type\":\"null\"}}",
         {"c {\"ab\":null}", "c {}", "x {\"b", "x {\"abc", "x {\"a\":1", 0}},
        {"{\"type\":\"object\",\"unevaluatedProperties\":false}", {"c {}", "x {\"", 0}},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"a\",\"b\",1,1.0]}}",
         {"c []", "c [\"a\",1]", "c [\"a\",\"b\",1]", "x [\"b\",\"a", "x [1,", "x [\"a\",\"a", 0}},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1,2,3]},\"minItems\":2,"
         "\"maxItems\":2}", {"c [1,3]", "c [2,3]", "x [3", "x [1]", "x [1,2,", 0}},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\"}}",
         {"c []", "c [\"a\"]", "x [\"a\",", 0}},
        {"{\"type\":\"array\",\"items\":{\"const\":1},\"maxItems\":4000000000}", {"c [1,1]", 0}},
    };
    check_cases(bitnet_grammar_json_schema, cases, (int)(sizeof cases / sizeof cases[0]));
}

/* Strings that keep several patterns, formats and lengths at once. */
static void test_strings(void) {
    static const grammar_case cases[] = {
        {"{\"type\":\"string\",\"pattern\":\"[0-9]b\"}",
         {"c \"1b\"", "c \"xy1b ab\"", "x \"1\"", "o \"abcdefgh", "x \"\"", 0}},
        {"{\"type\":\"string\",\"pattern\":\"^ab\"}", {"c \"ab\"", "c \"abc\\\"\"", "x \"b", 0}},
        {"{\"type\":\"string\",\"pattern\":\"ab$\"}", {"c \"ab\"", "c \"xyab\"", "x \"abc\"", 0}},
        {"{\"type\":\"string\",\"pattern\":\"^a$|^b|c$\"}",
         {"c \"a\"", "c \"bx\"", "c \"xc\"", "x \"ax\"", "c \"ac\"", 0}},
        {"{\"type\":\"string\",\"pattern\":\"(^|,)x(,|$)\"}",
         {"c \"x\"", "c \"a,x,b\"", "x \"ax\"", "x \"xy\"", "c \"x,y\"", 0}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"minLength\":2,\"maxLength\":3}",
         {"c \"ab\"", "c \"abc\"", "x \"a\"", "x \"abcd", "x \"A", 0}},
        {"{\"type\":\"string\",\"pattern\":\"\\\\S\",\"maxLength\":6700000}",
         {"c \"a \"", "x \"  \"", "x \"\"", "c \"\xC3\xA9\"", 0}},
        {"{\"type\":\"string\",\"pattern\":\"^[^\\\\b-a]$\"}",
         {"c \"b\"", "x \"a", "x \"A", "x \"-", 0}},
        {"{\"type\":\"string\",\"pattern\":\"^.\",\"maxLength\":1}",
         {"c \"\xF0\x9F\x98\x80\"", "c \"\\\"\"", "x \"ab", "x \"\\n", 0}},
        {"{\"type\":\"string\",\"pattern\":\"^(?!ab)(?=.*c)[a-c]{2,4}$\"}",
         {"c \"ac\"", "c \"bac\"", "x \"ab", "x \"aa\"", "x \"c\"", 0}},
        {"{\"type\":\"string\",\"pattern\":\"(?=.*[B-Z])(?!a)[a-zB-Z]{2,4}$\"}",
         {"c \"bC\"", "c \"CabD\"", "x \"a", "x \"bb\"", 0}},
        {"{\"type\":\"string\",\"pattern\":\"^P(?!$)[A-Z]{2}(?=.*9)(?!8)\\\\d{2}$\"}",
         {"c \"PXY19\"", "c \"PAB97\"", "x \"PXY8", "x \"PXY12\"", "x \"P\"", 0}},
        {"{\"type\":\"string\",\"pattern\":\"(?!^1+$)^[12]{2}$\"}", {"c \"12\"", "x \"11\"", 0}},
        /* pydantic's Decimal, with max_digits 5, and decimal_places 2 or any */
        {"{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}",
         {"c \"-0.50\"", "c \"7\"", "c \"1.\"", "x \"-\"", "x \".\"", "x \"1e", 0}},
        {"{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)[+-]?0*(?:\\\\d{0,3}|(?=[\\\\d.]{1,6}0*$)"
         "\\\\d{0,3}\\\\.\\\\d{0,2}0*$)\"}",
         {"c \"123\"", "c \"-00123.45000\"", "c \".5\"", "x \"1234", "x \"1.234", "x \"1a",
          "x \"+\"", 0}},
        {"{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)[+-]?0*(?:\\\\d{0,5}|(?=[\\\\d.]{1,6}0*$)"
         "\\\\d*\\\\.\\\\d*0*$)\"}",
         {"c \"12345\"", "c \"0012.345\"", "c \"1.23450\"", "x \"123456", "x \"12.3456", "x \".\"",
          0}},
        {"{\"type\":\"string\",\"pattern\":\"^(?<n>a\\\\!\\\\_\\\\u{62})$\"}", {"c \"a!_b\"", 0}},
        {"{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^2024-02\"}",
         {"c \"2024-02-29\"", "x \"2023", "x \"2024-02-3", 0}},
        {"{\"type\":\"string\",\"format\":\"email\",\"maxLength\":6}",
         {"c \"a@b.cd\"", "x \"a@b.cde", "x \"aa@bc", "o \"a@", 0}},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", {"c \"127.0.0.1\"", "x \"256",
         "x \"1.2.3\"", 0}},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}", {"c \"::1\"", "c \"1:2::f\"", "x \"1::2::",
         0}},
        {"{\"type\":\"string\",\"format\":\"uri\"}",
         {"c \"https://a.b/c?d#e\"", "c \"urn:x:y\"", "x \"/", 0}},
        {"{\"allOf\":[{\"type\":\"string\",\"pattern\":\"a\"},{\"pattern\":\"b\"}],"
         "\"maxLength\":2}",
         {"c \"ab\"", "c \"ba\"", "x \"aa\"", "x \"c", 0}},
        {"{\"type\":\"integer\",\"format\":\"date\"}", {"m 1", 0}},
    };
    check_cases(bitnet_grammar_json_schema, cases, (int)(sizeof cases / sizeof cases[0]));
}

/* Numbers between bounds. */
static void test_numbers(void) {
    static const grammar_case cases[] = {
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
         {"m 0", "c 1.000000", "m 0.5", "m 1", "x 1.000001", "x -", "x 2", "x 0e", "c 0.999999",
          0}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
         {"o 0", "m 0.01", "x 1", "o 0.00000", "c 0.000001", 0}},
        {"{\"type\":\"number\",\"minimum\":-2.25,\"maximum\":-1.5}",
         {"m -2", "m -1.5", "o -1", "o -1.", "x -1.4", "x -2.3", "m -2.25", "x -2.26",
          "c -1.500000", 0}},
        {"{\"type\":\"number\",\"minimum\":2.5,\"maximum\":2.5}", {"m 2.5", "o 2", "m 2.50",
         "x 2.51",
            0}},
        {"{\"type\":\"number\",\"minimum\":1e3,\"exclusiveMinimum\":true,\"maximum\":1.0015e+3}",
         {"m 1001", "o 1000", "m 1000.1", "c 1001.500000", "x 1001.6", "x 1002", 0}},
        {"{\"type\":\"number\",\"maximum\":1e20}", {"m 1", "x 1e", "x 1E", "c 123456789012345", 0}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":2.5,\"exclusiveMaximum\":5}",
         {"c 3", "c 4", "x 2", "x 5", 0}},
        {"{\"type\":\"number\",\"minimum\":10}", {"m 10", "m 99999999999999", "x 9.",
         "m 9876543.21", 0}},
        {"{\"type\":\"number\",\"minimum\":0.0000001,\"maximum\":0.0000002}", {"c 0.00000015",
         "x 1",
            "x 0.0000003", 0}},
        {"{\"type\":\"number\",\"format\":\"int32\"}", {"c 0", "c 2147483647", "x 2147483648",
         "x 1.",
            "c -2147483648", "x -2147483649", 0}},
        {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":-14,\"maximum\":100}",
         {"c 0", "m 7", "c 98", "o 1", "c 14", "c -14", "x -2", "c 91", "x 99", 0}},
        {"{\"minimum\":0,\"maximum\":1}", {"m 0", "m 0.5", "x 2", "x -", "x \"", 0}},
        {"{\"minimum\":2.5,\"maximum\":2.5}", {"m 2.5", "x 3", 0}},
        {"{\"multipleOf\":0.25,\"maximum\":1}", {"c 0.25", "x 0.3", "m -1", 0}},
        {"{\"multipleOf\":5}", {"m 15", "o 16", "x 1.", 0}},
        {"{\"type\":\"number\",\"multipleOf\":1000}", {"c 0", "m 12000", "o 12001", "o 120",
         "x 1.", 0}},
    };
    check_cases(bitnet_grammar_json_schema, cases, (int)(sizeof cases / sizeof cases[0]));
}

/* Schemas that a value keeps together, and what must not hold. */
static void test_together(void) {
    static const grammar_case cases[] = {
        {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"bc\"]}}",
         {"c \"b\"", "x \"a\"", "x \"bc\"", "c \"abc\"", "c \"\"", 0}},
        {"{\"not\":{\"type\":[\"string\",\"number\"]}}",
         {"c null", "c [1]", "x \"", "x 1", 0}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"^a\"},\"minLength\":1}",
         {"c \"ba\"", "x \"a", "x \"\"", 0}},
        {"{\"type\":\"integer\",\"not\":{\"minimum\":5}}",
         {"c 4", "x 5 ", "m -7", 0}},
        {"{\"type\":\"string\",\"not\":{\"anyOf\":[{\"maxLength\":1},{\"minLength\":4}]}}",
         {"c \"ab\"", "c \"abc\"", "x \"a\"", "x \"abcd\"", 0}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"not\":{\"required\":[\"a\","
         "\"b\"]}}",
         {"c {\"a\":1}", "c {\"b\":1}", "c {}", "x {\"a\":1,\"b\"", 0}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2,\"x\"]}},\"not\":{\"properti"
         "es\":{\"a\":{\"const\":1}}}}",
         {"c {\"a\":\"x\"}", "x {\"a\":1", "x {}", 0}},
        {"{\"enum\":[1,2,\"a\"],\"not\":{\"const\":2}}",
         {"c 1", "x 2", "c \"a\"", 0}},
        {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"type\":\"object\",\"prope"
         "rties\":{\"a\":{},\"b\":{}}}",
         {"c {\"a\":1}", "c {\"b\":1}", "x {}", "x {\"a\":1,\"b\"", 0}},
        {"{\"oneOf\":[{\"type\":\"string\",\"pattern\":\"^a\"},{\"type\":\"string\",\"pattern\":"
         "\"b$\"}]}",
         {"c \"ac\"", "c \"cb\"", "x \"ab\"", "x \"c\"", "c \"aba\"", 0}},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":fa"
         "lse},{\"type\":\"object\",\"properties\":{\"b\":{}},\"additionalProperties\":false}]"
         "}",
         {"c {\"a\":1}", "c {\"b\":1}", "x {}", "x {\"c", 0}},
        {"{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"x\",\"y\"]},\"v\":{\"const\":1"
         "}},\"required\":[\"k\"],\"if\":{\"properties\":{\"k\":{\"const\":\"x\"}}},\"then\":{"
         "\"required\":[\"v\"]},\"else\":{\"not\":{\"required\":[\"v\"]}}}",
         {"c {\"k\":\"x\",\"v\":1}", "x {\"k\":\"x\"}", "c {\"k\":\"y\"}", "x {\"k\":\"y\",\"",
          0}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"dependentRequired\""
         ":{\"a\":[\"c\"]}}",
         {"c {\"b\":1}", "c {\"a\":1,\"c\":1}", "x {\"a\":1}", "c {\"c\":1}", 0}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependencies\":{\"a\":{\"pro"
         "perties\":{\"b\":{\"const\":1}},\"required\":[\"b\"]}}}",
         {"c {\"a\":0,\"b\":1}", "x {\"a\":0}", "c {\"b\":2}", "x {\"a\":0,\"b\":2", 0}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^x-\":{\"const\":1}},\"additionalPropert"
         "ies\":{\"const\":2}}",
         {"c {\"x-\":1,\"a\":2}", "c {\"a\":2,\"x-b\":1}", "x {\"x-\":2", "x {\"x\":1",
          "c {\"x\":2}", 0}},
        {"{\"type\":\"object\",\"properties\":{\"ab\":{\"minLength\":2}},\"patternProperties\":{"
         "\"a\":{\"type\":\"string\"},\"b\":{\"maxLength\":3}},\"additionalProperties\":false}",
         {"c {\"ab\":\"12\"}", "x {\"ab\":\"1\"", "x {\"ab\":\"1234", "c {\"ac\":\"1234\"}",
          "x {\"c\"", "c {\"bab\":\"123\"}", 0}},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"additionalProperties"
         "\":{\"const\":1}}",
         {"c {\"a\":1,\"b\":1}", "c {\"b\":1}", "x {\"c", "x {\"a\":2", "c {}", 0}},
        {"{\"type\":\"object\",\"properties\":{\"abc\":{},\"d\":{}},\"propertyNames\":{\"maxLeng"
         "th\":2},\"additionalProperties\":{}}",
         {"c {\"d\":1,\"xy\":2}", "x {\"abc", "x {\"xyz", 0}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"propertyNames\":false}",
         {"c {}", "x {\"", 0}},
        {"{\"allOf\":[{\"propertyNames\":{\"enum\":[\"a\"]}},{\"propertyNames\":false}]}",
         {"c {}", "x {\"", 0}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2,"
         "\"additionalProperties\":false}",
         {"c {\"a\":1,\"c\":1}", "c {\"a\":1,\"b\":1,\"c\":1}", "x {\"b\":1}", "x {}", 0}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"b\"],"
         "\"maxProperties\":2}",
         {"c {\"b\":1}", "c {\"a\":1,\"b\":1}", "x {\"a\":1,\"b\":1,\"", "x {\"a\":1}", 0}},
        {"{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2}",
         {"c {\"a\":1}", "c {\"a\":1,\"b\":2}", "x {}", "x {\"a\":1,\"b\":2,", 0}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":[\"string\",\"null\"]}}},{\"properties\":"
         "{\"a\":{\"maxLength\":1}},\"additionalProperties\":{\"const\":1}}],\"type\":\"object"
         "\"}",
         {"c {\"a\":\"x\"}", "c {\"a\":null,\"b\":1}", "x {\"a\":\"xy", "x {\"b\":2", 0}},
        {"{\"type\":\"array\",\"allOf\":[{\"items\":{\"type\":\"integer\"}},{\"items\":{\"minimu"
         "m\":5}}]}",
         {"c [5,60]", "x [4,", "c []", "x [\"", 0}},
        {"{\"type\":\"array\",\"items\":{\"type\":[\"integer\",\"string\"]},\"contains\":{\"type"
         "\":\"string\"},\"maxContains\":1}",
         {"c [\"a\",1]", "x []", "x [1", "x [\"a\",\"", 0}},
        {"{\"type\":\"string\",\"enum\":[\"ab\",\"c\",\"abd\"],\"pattern\":\"^ab\"}",
         {"c \"ab\"", "c \"abd\"", "x \"c", 0}},
        {"{\"const\":{\"a\":[1,2]},\"properties\":{\"a\":{\"items\":{\"type\":\"integer\"},\"uni"
         "queItems\":true}}}",
         {"c {\"a\":[1,2]}", 0}},
        {"{\"enum\":[6,7,8.5],\"multipleOf\":2}",
         {"c 6", "x 7", "x 8", 0}},
        {"{\"enum\":[{\"a\":1,\"b1\":2},{\"a\":1,\"b1\":3},{\"z\":\"\"},{\"b\":2}],\"patternPr"
         "operties\":{\"^b\":{\"const\":2}},\"additionalProperties\":{\"type\":\"integer\"}}",
         {"c {\"a\":1,\"b1\":2}", "x {\"a\":1,\"b1\":3", "x {\"z", "c {\"b\":2}", 0}},
        {"{\"enum\":[1,{\"a\":1},{\"b\":1}],\"not\":{\"required\":[\"a\"]}}",
         {"c {\"b\":1}", "x 1", "x {\"a", 0}},
        {"{\"anyOf\":[{\"$ref\":\"#/$defs/x/prefixItems/1\"},{\"$ref\":\"#/$defs/x/prefixItems"
         "/0\"}],\"$defs\":{\"x\":{\"prefixItems\":[{\"const\":2},{\"const\":3},{\"const\":4}]"
         "}}}",
         {"c 2", "c 3", "x 4", 0}},
        {"{\"$schema\":\"http://json-schema.org/draft-04/schema\",\"$ref\":\"b\",\"definitions"
         "\":{\"b\":{\"id\":\"b\",\"const\":1}}}",
         {"c 1", "x 2", 0}},
        {"{\"type\":\"number\",\"multipleOf\":0.1,\"minimum\":0}",
         {"c 0.2", "x 0.7", "x 0.3", "m 12", "m 123456789", "c 123456.5", "x 123456.7", 0}},
        {"{\"type\":\"integer\",\"format\":\"uint8\"}",
         {"c 255", "x 256", "x -", "m 7", 0}},
        {"{\"type\":\"string\",\"format\":\"x-none\",\"maxLength\":1}",
         {"c \"a\"", "x \"ab", 0}},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\p{Lu}\\\\p{L}*$\"}",
         {"c \"A\xC3\xA9\"", "x \"a", "x \"A1", 0}},
        {"{\"type\":\"string\",\"pattern\":\"a(?=b)\"}",
         {"c \"xabc\"", "x \"ac\"", 0}},
        {"{\"properties\":{\"a\":{\"$ref\":\"#x\"},\"b\":{\"$ref\":\"urn:y#/$defs/z\"},\"c\":{\""
         "$ref\":\"urn:y\"}},\"required\":[\"a\",\"b\",\"c\"],\"$defs\":{\"x\":{\"$anchor\":\""
         "x\",\"const\":1},\"z\":{\"const\":9},\"y\":{\"$id\":\"urn:y\",\"type\":\"array\",\"i"
         "tems\":{\"$ref\":\"#/$defs/z\"},\"$defs\":{\"z\":{\"const\":2}}}}}",
         {"c {\"a\":1,\"b\":2,\"c\":[2]}", "x {\"a\":1,\"b\":9", "x {\"a\":1,\"b\":2,\"c\":[9",
          0}},
    };
    check_cases(bitnet_grammar_json_schema, cases, (int)(sizeof cases / sizeof cases[0]));
}

/* unevaluatedProperties beside schemas that do not apply, or whose properties do not count. */
static void test_unevaluated(void) {
    static const grammar_case cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"unevaluatedProperties\":false,\"depende"
         "ntSchemas\":{\"a\":{\"properties\":{\"b\":{}}}}}",
         {"c {}", "c {\"a\":1}", "c {\"a\":1,\"b\":2}", "x {\"b\"", 0}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"c\":{}},\"unevaluatedProperties\":false,"
         "\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":{}}},\"c\":{\"properties\":{\"d\":{}}"
         "}}}",
         {"c {\"a\":1,\"b\":2}", "c {\"c\":1,\"d\":2}", "c {\"a\":1,\"c\":1,\"b\":2,\"d\":2}",
          "x {\"a\":1,\"d\"", "x {\"d\"", "x {\"c\":1,\"b\"", 0}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"unevaluatedProperties\":false,"
         "\"dependencies\":{\"a\":{\"properties\":{\"x\":{}}},\"b\":true,\"c\":[\"a\"],\"d\":{}}}",
         {"c {}", "x {\"x\"", 0}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"d\":{}},\"unevaluatedProperties"
         "\":false,\"dependencies\":{\"a\":{\"properties\":{\"x\":{}}},\"b\":true,\"c\":[\"a\"],\""
         "d\":{}}}",
         {"c {}", "c {\"a\":1,\"b\":1,\"d\":1,\"x\":1}", "x {\"x\"", "x {\"a\":1,\"x\"", 0}},
        {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"not\":{\"not\":{\"properties\":{"
         "\"a\":{}}}}}",
         {"c {}", "x {\"", 0}},
        {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"not\":{\"not\":{\"patternProperti"
         "es\":{\"a\":{}}}}}",
         {"c {}", "x {\"", 0}},
        {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"not\":{\"not\":{\"additionalPrope"
         "rties\":{}}},\"properties\":{\"a\":{}}}",
         {"c {}", "c {\"a\":1}", "x {\"b", 0}},
        {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"if\":{\"not\":{\"properties\":{\""
         "a\":{}}}},\"else\":{}}",
         {"c {}", "x {\"", 0}},
        {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"oneOf\":[{\"properties\":{\"b\":{"
         "}}},{\"not\":{\"properties\":{\"a\":{\"const\":1}}}}]}",
         {"c {}", "c {\"b\":1}", "x {\"a", 0}},
        {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"patternProperties\":{\"^a\":{}},"
         "\"not\":{\"not\":{\"patternProperties\":{\"b\":{\"const\":1}},\"allOf\":[{\"properties\""
         ":{\"ac\":{\"const\":2},\"c\":{}}}]}}}",
         {"c {\"a\":1,\"ad\":2,\"ab\":1}", "c {\"ac\":2}", "x {\"ac\":1", "x {\"ab\":2",
          "x {\"b\"", "x {\"c\"", 0}},
        {"{\"not\":{\"not\":{\"type\":\"object\",\"unevaluatedProperties\":false,\"properties\":{"
         "\"a\":{}},\"allOf\":[{\"properties\":{\"b\":{}}}]}}}",
         {"c {\"a\":1}", "x {\"b\"", 0}},
    };
    check_cases(bitnet_grammar_json_schema, cases, (int)(sizeof cases / sizeof cases[0]));
}

/* 26 of them, and the same in a pointer. */
#define TILDES "~~~~~~~~~~~~~" "~~~~~~~~~~~~~"
#define ESCAPED "~0~0~0~0~0~0~0~0~0~0~0~0~0" "~0~0~0~0~0~0~0~0~0~0~0~0~0"

static void test_schema_errors(void) {
    static const error_case cases[] = {
        {"", BITNET_ERR_FORMAT, "a JSON value expected, not the end"},
        {"{\"type\": \"string\"\n,}", BITNET_ERR_FORMAT, "line 2, column 2: a string expected"},
        {"{} {}", BITNET_ERR_FORMAT, "the end expected"},
        {"{\"a\":1,\"a\":2}", BITNET_ERR_FORMAT, "column 8: a key for the second time"},
        {"{\"type\":\"string\",\"pattern\":\"^a{ 2}$\"}", BITNET_ERR_FORMAT, "a number expected"},
        {"{\"type\":\"string\",\"pattern\":\"^a{2 }$\"}", BITNET_ERR_FORMAT, "'}' expected"},
        {"{\"type\":\"string\",\"pattern\":\"^a{1, 2}$\"}", BITNET_ERR_FORMAT, "'}' expected"},
        {"{\"type\":\"text\"}", BITNET_ERR_FORMAT, "#/type: none of the types object, array"},
        {"{\"properties\":{\"a\":{\"type\":\"array\",\"items\":[{},{\"not\":2}]}}}",
         BITNET_ERR_FORMAT, "#/properties/a/items/1/not: a schema is"},
        {"{\"properties\":{\"a\":{\"type\":\"array\",\"items\":[{},{\"extends\":2}]}}}",
         BITNET_ERR_UNSUPPORTED, "#/properties/a/items/1/extends: this keyword"},
        {"{\"type\":\"number\",\"multipleOf\":0.33333}", BITNET_ERR_UNSUPPORTED,
            "#/multipleOf: only one"},
        {"{\"multipleOf\":0.5,\"allOf\":[{\"multipleOf\":3}]}", BITNET_ERR_UNSUPPORTED,
            "#/allOf/0/multipleOf: beside one with a fraction"},
        {"{\"multipleOf\":20000}", BITNET_ERR_UNSUPPORTED, "#/multipleOf: only up to 10000"},
        {"{\"type\":\"integer\",\"multipleOf\":0}", BITNET_ERR_FORMAT, "#/multipleOf: not a"},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":2}", BITNET_ERR_UNSUPPORTED,
            "#/uniqueItems: for more than one item"},
        {"{\"type\":\"array\",\"contains\":{},\"allOf\":[{\"contains\":{}}]}",
            BITNET_ERR_UNSUPPORTED, "#/allOf/0/contains: beside another"},
        {"{\"type\":\"array\",\"contains\":{},\"maxContains\":0}", BITNET_ERR_UNSUPPORTED,
            "#/contains: minContains is over"},
        {"{\"type\":\"string\",\"format\":5}", BITNET_ERR_FORMAT, "#/format: not a string"},
        {"{\"type\":\"string\\u0000\"}", BITNET_ERR_FORMAT, "#/type: none of the types object"},
        {"{\"prefixItems\":[{}],\"items\":[{}]}", BITNET_ERR_FORMAT, "#/items"},
        {"{\"anyOf\":[{\"const\":1},{\"$ref\":\"#/anyOf/x\"}]}", BITNET_ERR_FORMAT,
            "no such schema"},
        {"{\"anyOf\":[{\"const\":1},{\"$ref\":\"#/anyOf/00\"}]}", BITNET_ERR_FORMAT,
            "no such schema"},
        {"{\"type\":\"object\",\"unevaluatedProperties\":{\"type\":\"string\"}}",
            BITNET_ERR_UNSUPPORTED, "only true and false"},
        {"{\"type\":\"string\",\n\"pattern\":\"^\\\\x4$\"}", BITNET_ERR_FORMAT,
            "line 2, column 11: #/pattern: a hexa"},
        {"{\"type\":\"string\",\n\"pattern\":\"^[b-a]$\"}", BITNET_ERR_FORMAT,
            "line 2, column 11: #/pattern: a range backwards"},
        {"{\"properties\":{\"a\":{\"patternProperties\":{\"^[b-a]$\":{}}}}}", BITNET_ERR_FORMAT,
            "column 52: #/properties/a/patternProperties/^[b-a]$: a range backwards"},
        {"{\"propertyNames\":{\"pattern\":\"a(\"}}", BITNET_ERR_FORMAT,
            "column 29: #/propertyNames/pattern: ')' expected"},
        {"{\"properties\":{\"a\":{\"pattern\":\"^a{9}\",\"minLength\":20000,\"maxLength\":30000}}}",
            BITNET_ERR_LIMIT, "column 20: #/properties/a: minLength 20000 is too large"},
        {"{\"not\":{}}", BITNET_ERR_FORMAT, "column 1: #: has no text that ends"},
        {"{\"properties\":{\"a\":{\"items\":{\"enum\":[]},\"minItems\":1}},\"required\":[\"a\"]}",
            BITNET_ERR_FORMAT, "column 29: #/properties/a/items: has no text that ends"},
        {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", BITNET_ERR_FORMAT,
            ": has no text that ends"},
        {"{\"not\":{\"not\":{\"not\":{\"format\":\"date\"}}}}", BITNET_ERR_UNSUPPORTED,
            "#/not/not/not: what this allows"},
        {"{\"type\":\"object\",\"not\":{\"additionalProperties\":false}}",
            BITNET_ERR_UNSUPPORTED, "#/not: what this allows cannot be left out"},
        {"{\"type\":\"number\",\"minimum\":1e15}", BITNET_ERR_UNSUPPORTED,
            "#/minimum: nothing beyond"},
        {"{\"type\":\"integer\",\"minimum\":9007199254740992}", BITNET_ERR_UNSUPPORTED,
            "#/minimum: nothing beyond 2^53"},
        {"{\"type\":\"integer\",\"minimum\":true}", BITNET_ERR_FORMAT, "#/minimum: not a number"},
        {"{\"type\":\"string\",\"format\":\"date\",\"minLength\":11}", BITNET_ERR_FORMAT,
            "no text that ends"},
        {"{\"type\":\"string\",\"pattern\":\"a(?=b)c\"}", BITNET_ERR_UNSUPPORTED,
            "#/pattern: a lookahead only at the beginning"},
        {"{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)[+-]?0*(?:1|"
         "(?=[\\\\d.]{1,2}0*$)00\\\\d)\"}",
            BITNET_ERR_UNSUPPORTED, "#/pattern: a lookahead only at the beginning"},
        {"{\"type\":\"string\",\"pattern\":\"^(?!a)b|c\"}", BITNET_ERR_UNSUPPORTED, "alternative"},
        {"{\"type\":\"string\",\"pattern\":\"a\\\\\"}", BITNET_ERR_UNSUPPORTED, "escape"},
        {"{\"type\":\"string\",\"pattern\":\"[^\\\\p{L}]\"}", BITNET_ERR_UNSUPPORTED,
            "must not match"},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\bx$\"}", BITNET_ERR_UNSUPPORTED, "escape \\b"},
        {"{\"type\":\"string\",\"pattern\":\"^(a$\"}", BITNET_ERR_FORMAT, "')' expected"},
        {"{\"type\":\"string\",\"minLength\":-1}", BITNET_ERR_FORMAT, "#/minLength"},
        {"{\"$ref\":\"#/nowhere\"}", BITNET_ERR_FORMAT, "no such schema"},
        {"{\"$ref\":\"http://x/y\"}", BITNET_ERR_UNSUPPORTED, "only #/"},
        {"{\"$ref\":\"#/a%\",\"a%\":{}}", BITNET_ERR_FORMAT, "#/$ref: an escape that is none"},
        {"{\"$ref\":\"#/a% 5f\",\"a_\":{}}", BITNET_ERR_FORMAT, "an escape that is none"},
        {"{\"$ref\":\"#/a~2\",\"a~2\":{}}", BITNET_ERR_FORMAT, "an escape that is none"},
        {"{\"$ref\":\"#/a%00b\",\"a\":{}}", BITNET_ERR_FORMAT, "no such schema"},
        {"{\"$ref\":\"#/a\\u0000/b\",\"a\":{}}", BITNET_ERR_FORMAT, "no such schema"},
        {"{\"allOf\":[{\"$ref\":\"#\"}],\"type\":\"string\"}", BITNET_ERR_UNSUPPORTED, "itself"},
        {"{\"type\":\"integer\",\"const\":5.5}", BITNET_ERR_FORMAT,
            "#/const: the constant is not what"},
        {"{\"$ref\":\"#\"}", BITNET_ERR_UNSUPPORTED, "begins with itself"},
        {"{\"oneOf\":[{\"items\":{}},{\"items\":{\"const\":1}}],\"type\":\"array\"}",
            BITNET_ERR_UNSUPPORTED, "#/oneOf/0: what this allows cannot be left out"},
        {"{\"type\":\"integer\",\"not\":{\"const\":5}}", BITNET_ERR_UNSUPPORTED,
            "#/not: what this allows cannot be left out"},
        {"{\"properties\":{\"a\":{\"type\":\"array\"}},\"required\":[\"a\"],\"allOf\":[{"
            "\"properties\":{\"a\":{\"not\":{\"enum\":[[1],[]]}}}}]}", BITNET_ERR_UNSUPPORTED,
            "#/allOf/0/properties/a/not: what this allows cannot be left out"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", BITNET_ERR_UNSUPPORTED,
            "#/oneOf/0: what this allows cannot be left out"},
        {"{\"not\":{\"type\":\"integer\"},\"type\":\"integer\"}", BITNET_ERR_FORMAT,
            "no text that ends"},
        {"{\"not\":{\"const\":null},\"type\":\"null\"}", BITNET_ERR_FORMAT, "no text that ends"},
        {"{\"enum\":[\"a\"],\"format\":\"date\"}", BITNET_ERR_UNSUPPORTED,
            "beside enum or const: whether"},
        {"{\"minProperties\":2}", BITNET_ERR_UNSUPPORTED, "#/minProperties: more"},
        {"{\"propertyNames\":{\"anyOf\":[{}]}}", BITNET_ERR_UNSUPPORTED, "#/propertyNames: "},
        {"{\"$ref\":\"#a\",\"b\":{\"$anchor\":\"a\"},\"c\":{\"$anchor\":\"a\"}}",
            BITNET_ERR_UNSUPPORTED, "only #/"},
        {"{\"required\":[\"a\"],\"additionalProperties\":false}", BITNET_ERR_FORMAT,
            "no text that ends"},
        {"{\"required\":[\"a\"],\"propertyNames\":false}", BITNET_ERR_FORMAT,
            "no text that ends"},
        {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", BITNET_ERR_FORMAT,
            "no text that ends"},
        {"false", BITNET_ERR_FORMAT, "no text that ends"},
        {"{\"enum\":[]}", BITNET_ERR_FORMAT, "no text that ends"},
        {"\"\\ud800\"", BITNET_ERR_FORMAT, "surrogate"},
        {"{\"properties\":{\"a\":5}}", BITNET_ERR_FORMAT, "#/properties/a: a schema is"},
        {"{\"properties\":{\"a/b~~1\":5}}", BITNET_ERR_FORMAT,
            "#/properties/a~1b~0~01: a schema is"},
        /* a pointer that is cut */
        {"{\"$defs\":{\"" TILDES "\":{\"$defs\":{\"/" TILDES "\":{\"$defs\":{\"a\":5}}}}},"
            "\"$ref\":\"#/$defs/" ESCAPED "/$defs/~1" ESCAPED "/$defs/a\"}", BITNET_ERR_FORMAT,
            "~0~0: a schema is"},
    };
    check_errors(bitnet_grammar_json_schema, cases, (int)(sizeof cases / sizeof cases[0]));
}

/* ---- hostile grammars, limits ---- */

/* Masks inside of repetitions, which are decided by their counts, against the matcher's verdict:
   those that begin anew, that overlap with what follows, of several bytes, near their ends. */
static void test_counts(void) {
    static const char *const grammars[] = {
        "root ::= [a-z\xC3\xA9]{3,9} \"\\\"\"",
        "root ::= ([a-h]{0,3})* [a-z]",
        "root ::= [a-z]{2,6} [a-c]? [ab]{0,4} \"y\"",
        "root ::= ([a-h]{2,5} | \"aa\"{1,3}){2,} \"\\\"\"",
        "root ::= ([a-d]{1,2} [a-h]{0,7}){0,3} [^a]{4,12}",
        "root ::= (\"a\"? [ab]{4,8} .{0,5}){1,20} \"x)\"",
        "root ::= \"a\"{20,30} [a-z]{5,} \"\xE2\x82\xAC\"",
    };
    static const char *const starts[] = {"", "a", "ab", "abcd", "aaaaaa", "abababab",
        "aaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaa", "abcabcabcabcabcabcabcabcabcabcabcabc"};
    static const bitnet_matcher_params small = {.max_states = 64, .max_masks = 1};
    size_t i, k, n;
    for (i = 0; i < sizeof grammars / sizeof grammars[0]; i++)
        for (k = 0; k < 2; k++) {
            bitnet_grammar *g;
            bitnet_matcher *m = matcher_of(bitnet_grammar_gbnf, grammars[i], &g, k ? &small : 0);
            bitnet_matcher *other = 0;
            CHECK(m && !bitnet_matcher_create(g, 0, &other, 0));
            for (n = 0; n < sizeof starts / sizeof starts[0]; n++)
                CHECK_MSG(verdict(m, other, starts[n], n % 2) != '!', "%s: %s", grammars[i],
                          starts[n]);
            bitnet_matcher_free(m);
            bitnet_matcher_free(other);
            bitnet_grammar_free(g);
        }
}

/* A random text of a grammar, at most so many tokens; each is allowed, and accepted. 0: neither. */
static int write_some(bitnet_matcher *m, uint64_t *seed, int n, char *out) {
    bitnet_matcher_reset(m);
    *out = 0;
    for (; n > 0; n--) {
        int t, count = 0, chosen = -1;
        ask(m);
        for (t = 0; t < built.n_vocab; t++)
            if (is_allowed(t) && gb_random(seed) % (uint64_t)++count == 0) chosen = t;
        if (chosen < 0 || bitnet_matcher_accept(m, chosen)) return 0;
        if (bitnet_matcher_state(m) == BITNET_MATCHER_ENDED) return 1;
        if (chosen < FIRST_LONGER) out[strlen(out) + 1] = 0, out[strlen(out)] = (char)chosen;
        else if (chosen < FIRST_LONGER + N_LONGER) strcat(out, longer[chosen - FIRST_LONGER]);
    }
    return 1;
}

/* Whatever the limits are, something can follow, and what is written is of the grammar. */
static void test_limits(void) {
    static const char *const grammars[] = {
        ("root ::= \"(\" root \")\" | \"[\" x \"]\" | \"x\"\n"
         "x ::= \"a\" y \"b\" | \"1\"\ny ::= root x | \"z\""),
        "root ::= (\"a\" | \"ab\" | \"aab\" | \"b\"){3,40} [ab] [ab] [ab] \"c\"",
        "root ::= ([ab]* \"a\" [ab] [ab] [ab] [ab] [ab] [ab] [ab] | \"x\" root \"y\") \"z\"",
    };
    static const bitnet_matcher_params limits[] = {
        {.max_depth = 4}, {.max_ways = 3, .max_states = 64, .max_masks = 1},
        {.max_depth = 5, .max_ways = 1, .max_states = 64, .max_masks = 2},
        {.max_depth = 6, .max_ways = 40, .max_states = 64, .max_masks = 1}, {.max_depth = 0}};
    static char text[20000];
    uint64_t seed = 3;
    size_t i, k, round;
    for (i = 0; i < 3; i++)
        for (k = 0; k < 5; k++) {
            bitnet_grammar *g;
            bitnet_matcher *m = matcher_of(bitnet_grammar_gbnf, grammars[i], &g, &limits[k]),
                *all = 0;
            CHECK(m && !bitnet_matcher_create(g, 0, &all, 0));
            for (round = 0; round < 20; round++) {
                CHECK_MSG(write_some(m, &seed, 100, text), "%s, limits %d", grammars[i], (int)k);
                CHECK_MSG(strchr("omc", verdict(all, 0, text, 0)), "%s: %s", grammars[i], text);
            }
            bitnet_matcher_free(m);
            bitnet_matcher_free(all);
            bitnet_grammar_free(g);
        }
}

/* At the greatest depth what goes deeper is not allowed, and the way out is. */
static void test_depth(void) {
    static const char nested[] = "root ::= a \"x\"\na ::= b \"y\"\nb ::= \"z\"";
    const bitnet_matcher_params p = {.max_depth = 3};
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_grammar *g;
    bitnet_matcher *m = matcher_of(bitnet_grammar_gbnf, "root ::= \"(\" root \")\" | \"x\"", &g,
        &p);
    int i;
    CHECK(m);
    for (i = 0; i < 3; i++) CHECK(!bitnet_matcher_accept(m, '('));
    ask(m);
    CHECK(!is_allowed('(') && !is_allowed(279) && is_allowed('x') && is_allowed(280));
    CHECK(bitnet_matcher_accept(m, '(') == BITNET_ERR_ARG);
    CHECK(!bitnet_matcher_accept(m, 280) && !bitnet_matcher_accept(m, 281));     /* x) and )) */
    CHECK(bitnet_matcher_state(m) == BITNET_MATCHER_COMPLETE);
    bitnet_matcher_free(m);
    bitnet_grammar_free(g);
    /* b needs two levels behind the parenthesis: it is closed earlier. */
    m = matcher_of(bitnet_grammar_gbnf, "root ::= \"(\" root b \")\" | \"x\"\nb ::= c \"1\"\nc :"
        ":= d \"2\"\nd "
                   "::= \"3\"", &g, &p);
    CHECK(m && !bitnet_matcher_accept(m, '('));
    CHECK(bitnet_matcher_accept(m, '(') == BITNET_ERR_ARG && !bitnet_matcher_accept(m, 'x'));
    for (i = 0; i < 4; i++) CHECK(!bitnet_matcher_accept(m, "321)"[i]));
    CHECK(bitnet_matcher_state(m) == BITNET_MATCHER_COMPLETE);
    bitnet_matcher_free(m);
    bitnet_grammar_free(g);
    CHECK(!bitnet_grammar_gbnf(model, nested, strlen(nested), 0, &g, 0));
    {
        const bitnet_matcher_params one = {.max_depth = 1};
        CHECK(bitnet_matcher_create(g, &one, &m, &err) == BITNET_ERR_LIMIT && !m);
        CHECK(strstr(err.text, "depth of 2"));
    }
    bitnet_grammar_free(g);
}

static void repeat_text(char *out, const char *what, int n) {
    for (*out = 0; n > 0; n--) out += sprintf(out, "%s", what);
}

/* Nothing that 64 bits can count is allocated in 32. */
static void test_block(void) {
    bitnet_grammar g;
    bitnet_matcher_params p;
    uint64_t size;
    memset(&g, 0, sizeof g);
    memset(&p, 0, sizeof p);
    g.n_vocab = 524288;
    g.n_classes = 60;
    g.longest = 200;
    p.max_masks = 65536;
    size = bitnet_matcher_bytes(&g, &p);
    CHECK(sizeof(size_t) < 8 ? size == 0 : size > (uint64_t)65536 * (524288 / 32) * 4);
}

/* Bounded in time and memory, whatever they say. */
static void test_hostile(void) {
    static char text[1 << 20], out[20000];
    static const char *const bad[] = {
        "root ::= (((\"a\"{1000000}){1000000}){1000000}){1000000}",
        "root ::= ((((\"a\"?){0,1000}){0,1000}){0,1000}){0,1000}",
        "root ::= ((((\"a\"*)*)*)*)* ((((\"a\"+)+)+)+)+ \"b\"",
        "root ::= (.* \"a\" .{500} | .* \"b\" .{500})* \"c\"",
        "root ::= a a a a a a a a\na ::= b b b b b b b b\nb ::= c c c c c c c c\nc ::= \"a\"? | "
            "\"ab\"? | e\n"
        "e ::= (\"a\" | \"aa\" | \"aaa\" | \"b\")*",
        "root ::= \"a\" root root root | \"b\"",
    };
    bitnet_grammar *g;
    bitnet_matcher *m;
    bitnet_error err = {BITNET_OK, "", {0}};
    uint64_t seed = 1;
    size_t i, n;
    CHECK(set_up());
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        m = matcher_of(bitnet_grammar_gbnf, bad[i], &g, 0);
        CHECK(m);
        CHECK_MSG(write_some(m, &seed, 12, out), "%s", bad[i]);
        bitnet_matcher_free(m);
        bitnet_grammar_free(g);
    }
    strcpy(text, "root ::= ");
    repeat_text(text + 9, "(", 5000);
    CHECK(bitnet_grammar_gbnf(model, text, strlen(text), 0, &g, &err) == BITNET_ERR_LIMIT);
    CHECK(strstr(err.text, "deep"));
    repeat_text(text, "[", 5000);
    CHECK(bitnet_grammar_json_schema(model, text, strlen(text), 0, &g, &err) == BITNET_ERR_LIMIT);
    repeat_text(text, "[", 60);
    for (n = 60, i = 0; i < 30000; i++) n += (size_t)sprintf(text + n, "1,");
    CHECK(bitnet_grammar_json_schema(model, text, n, 0, &g, &err) == BITNET_ERR_LIMIT);
    /* A chain of 20000 rules, backwards, with a ring at its end or not. */
    for (n = 0, i = 0; i < 20000; i++)
        n += (size_t)sprintf(text + n, "r%d ::= r%d \"a\"?\n", (int)i + 1, (int)i);
    n += (size_t)sprintf(text + n, "root ::= r20000\nr0 ::= ");
    strcpy(text + n, "\"x\"");
    CHECK_MSG(bitnet_grammar_gbnf(model, text, strlen(text), 0, &g, &err) == BITNET_ERR_FORMAT,
        "%s",
              err.text);
    strcpy(text + n, "r500 | \"x\"");
    CHECK(bitnet_grammar_gbnf(model, text, strlen(text), 0, &g, &err) == BITNET_ERR_UNSUPPORTED);
    CHECK(strstr(err.text, "begins with itself"));
    {
        const bitnet_grammar_params small = {.max_nodes = 500};
        CHECK(bitnet_grammar_gbnf(model, text, strlen(text), &small, &g, &err) == BITNET_ERR_LIMIT);
        CHECK(strstr(err.text, "500 nodes"));
    }
    strcpy(text, "root ::= [");
    for (n = strlen(text), i = 0; i < 2000; i++) n += (size_t)sprintf(text + n, "\\U%08x",
        (int)(2 * i + 64));
    strcpy(text + n, "]");
    CHECK(bitnet_grammar_gbnf(model, text, strlen(text), 0, &g, &err) == BITNET_ERR_LIMIT);
    CHECK(bitnet_grammar_gbnf(model, text, (1 << 20) + 1, 0, &g, &err) == BITNET_ERR_LIMIT);
}

/* A grammar in which each byte can be read in very many ways. */
static const char *many_ways(void) {
    static char text[4000];
    size_t n = (size_t)sprintf(text, "root ::= r*\nr ::= [^a]");
    int i;
    for (i = 0; i < 60; i++)
        n += (size_t)sprintf(text + n, " | [\\x%02x-\\x%02x] r{0,%d}", 32 + i % 40, 64 + i, i);
    return text;
}

/* Makes a mask in parts of so many steps. Returns how many parts it took; 0: one took too long. */
static int make_in_parts(bitnet_matcher *m, int32_t steps) {
    int parts = 1;
    int32_t left = steps;
    for (; !bitnet_matcher_prepare(m, &left); parts++) {
        if (left > 0 || left < -(1 << 17) || parts > 1000000) return 0;
        left += steps;
    }
    return left < -(1 << 17) ? 0 : parts;
}

/* A mask that is made in parts is that which is made at once. What took too many steps is paid for
   before it goes on; what is begun when the text goes on is forgotten. The first grammar's mask
   depends on what has been looked at before: it is always made in whole. */
static void test_prepare(void) {
    const char *const grammars[] = {
        many_ways(), "root ::= [a-z]* \"c\"?", "root ::= (\"bacca\" | \"baccb\"){2,9}",
        "root ::= (([ab]{0,9} | a){0,9} \"c\"){0,9}\na ::= . a? | \"xy\" a?",
    };
    size_t i, k;
    for (i = 0; i < sizeof grammars / sizeof grammars[0]; i++) {
        bitnet_grammar *g;
        bitnet_matcher *m = matcher_of(bitnet_grammar_gbnf, grammars[i], &g, 0), *whole = 0;
        int32_t steps = 0;
        CHECK(m && !bitnet_matcher_create(g, 0, &whole, 0));
        CHECK(!bitnet_matcher_prepare(m, &steps) && steps < 0);        /* what beginning took */
        steps = 0;
        CHECK(!bitnet_matcher_accept(m, 'b'));
        CHECK(!bitnet_matcher_prepare(m, &steps) && steps < 0);        /* what a token took */
        bitnet_matcher_free(m);
        CHECK(!bitnet_matcher_create(g, 0, &m, 0));
        for (k = 0; k < 12; k++) {
            uint32_t wanted[16];
            int parts, t;
            ask(whole);
            memcpy(wanted, allowed, sizeof wanted);
            for (t = 'a'; t < 'd' && !is_allowed(t); t++) continue;
            steps = 1;
            if (i && k % 2) bitnet_matcher_prepare(m, &steps);         /* begun */
            else {
                parts = make_in_parts(m, 50);
                CHECK_MSG(parts > (i || k ? 0 : 1000), "%d parts: %s", parts, grammars[i]);
                steps = 1 << 30;
                CHECK(bitnet_matcher_prepare(m, &steps) && steps == 1 << 30);
                ask(m);
                CHECK_MSG(!memcmp(wanted, allowed, sizeof wanted), "%s", grammars[i]);
            }
            CHECK(!bitnet_matcher_accept(whole, t));
            CHECK(i && k % 4 == 1 ? !bitnet_matcher_copy(m, whole) : !bitnet_matcher_accept(m, t));
        }
        bitnet_matcher_free(m);
        bitnet_matcher_free(whole);
        bitnet_grammar_free(g);
    }
    {
        int32_t steps = 5;
        CHECK(bitnet_matcher_prepare(0, &steps) && steps == 5);
    }
}

/* More alternatives than ways: the first ones are there. So deep a beginning has no way. */
static void test_more_than_ways(void) {
    static char text[1 << 20];
    bitnet_grammar *g;
    bitnet_matcher *m;
    bitnet_error err = {BITNET_OK, "", {0}};
    size_t i, n;
    CHECK(set_up());
    n = (size_t)sprintf(text, "a ::= \"x\" | \"y\"\nroot ::= a \"1\"");
    for (i = 0; i < 5000; i++) n += (size_t)sprintf(text + n, " | a \"2\"");
    m = matcher_of(bitnet_grammar_gbnf, text, &g, 0);
    CHECK(m && verdict(m, 0, "y1", 0) == 'c' && verdict(m, 0, "x2", 0) == 'c');
    bitnet_matcher_free(m);
    bitnet_grammar_free(g);
    n = (size_t)sprintf(text, "x ::= \"x\"\nr9000 ::= x\nroot ::= r0");
    for (i = 0; i < 9000; i++)
        n += (size_t)sprintf(text + n, "\nr%d ::= r%d | x", (int)i, (int)i + 1);
    CHECK(!bitnet_grammar_gbnf(model, text, n, 0, &g, &err));
    CHECK(bitnet_matcher_create(g, 0, &m, &err) == BITNET_ERR_LIMIT && !m);
    CHECK_MSG(strstr(err.text, "begin with each other that no text"), "%s", err.text);
    bitnet_grammar_free(g);
}

/* Alternatives that could be told apart in 40^5 ways, all in vain: only a bound ends it. */
static void test_exclusive(void) {
    static char text[1 << 16];
    bitnet_grammar *g;
    bitnet_error err = {BITNET_OK, "", {0}};
    size_t i, n;
    int k;
    CHECK(set_up());
    n = (size_t)sprintf(text, "{\"oneOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}],"
                              "\"$defs\":{\"\":0");
    for (k = 'a'; k <= 'b'; k++) {
        n += (size_t)sprintf(text + n, ",\"%c\":{\"type\":\"object\",\"required\":[\"0\"", k);
        for (i = 1; i < 40; i++) n += (size_t)sprintf(text + n, ",\"%d\"", (int)i);
        n += (size_t)sprintf(text + n, "],\"properties\":{\"x\":{}");
        for (i = 0; i < 40; i++)
            n += (size_t)sprintf(text + n, ",\"%d\":{\"$ref\":\"#/$defs/%c\"}", (int)i, k);
        n += (size_t)sprintf(text + n, "}}");
    }
    strcpy(text + n, "}}");
    CHECK(bitnet_grammar_json_schema(model, text, n + 2, 0, &g, &err) == BITNET_ERR_LIMIT);
    CHECK_MSG(strstr(err.text, "more than 67108864 steps"), "%s", err.text);
}

/* As many rules as fit, in the order of their names, which makes a plain tree of them a list. */
static size_t write_rules(char *text, size_t cap) {
    size_t n = (size_t)sprintf(text, "root ::= \"a\"\n");
    unsigned i;
    for (i = 0; n + 12 < cap; i++) n += (size_t)sprintf(text + n, "%05x::=\"\"\n", i);
    return n;
}

/* Alternatives of oneOf that lead through long chains of references, beside many other names: 90
   objects of 30 properties, told apart by the last one. */
static size_t write_chains(char *text) {
    size_t n = (size_t)sprintf(text, "{\"$defs\":{\"c62\":{\"type\":\"string\"}");
    int i, k;
    for (i = 0; i < 6000; i++) n += (size_t)sprintf(text + n, ",\"f%x\":0", (unsigned)i);
    for (i = 0; i < 62; i++)
        n += (size_t)sprintf(text + n, ",\"c%d\":{\"$ref\":\"#/$defs/c%d\"}", i, i + 1);
    n += (size_t)sprintf(text + n, "},\"oneOf\":[false");
    for (k = 0; k < 90; k++) {
        n += (size_t)sprintf(text + n, ",{\"type\":\"object\",\"properties\":{\"z\":{\"const\":%d}",
                             k);
        for (i = 0; i < 30; i++)
            n += (size_t)sprintf(text + n, ",\"p%d\":{\"$ref\":\"#/$defs/c0\"}", i);
        n += (size_t)sprintf(text + n, "},\"required\":[\"p0\"");
        for (i = 1; i < 30; i++) n += (size_t)sprintf(text + n, ",\"p%d\"", i);
        n += (size_t)sprintf(text + n, ",\"z\"]}");
    }
    return n + (size_t)sprintf(text + n, "]}");
}

/* A list of as many values as a schema may have. */
static size_t write_enum(char *text) {
    size_t n = (size_t)sprintf(text, "{\"enum\":[null");
    int i;
    for (i = 3; i < 20000; i++) n += (size_t)sprintf(text + n, i & 1 ? ",%d" : ",\"x%d\"", i);
    return n + (size_t)sprintf(text + n, "]}");
}

/* Lookaheads that stand behind many characters, which each of them counts. */
static size_t write_lookaheads(char *text) {
    size_t n = (size_t)sprintf(text, "{\"type\":\"string\",\"pattern\":\"^");
    int i;
    memset(text + n, 'a', 500000);
    n += 500000;
    for (i = 0; i < 60; i++) n += (size_t)sprintf(text + n, "(?=a)");
    return n + (size_t)sprintf(text + n, "\"}");
}

/* Compiling takes steps in proportion to the text, also where it is made to take more. */
static void test_work(void) {
    static char text[1 << 20];
    bitnet_grammar_params p;
    bitnet_grammar *g = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    size_t n;
    CHECK(set_up());
    memset(&p, 0, sizeof p);
    n = write_rules(text, sizeof text);
    CHECK(n > sizeof text - 20);
    p.max_work = 1 << 23;
    CHECK_MSG(!bitnet_grammar_gbnf(model, text, n, &p, &g, &err), "%s", err.text);
    bitnet_grammar_free(g);
    p.max_work = 1 << 19;
    CHECK(bitnet_grammar_gbnf(model, text, n, &p, &g, &err) == BITNET_ERR_LIMIT);
    CHECK_MSG(strstr(err.text, "compiling takes more than 524288 steps"), "%s", err.text);
    n = write_chains(text);
    p.max_work = 1 << 25;
    CHECK_MSG(!bitnet_grammar_json_schema(model, text, n, &p, &g, &err), "%s", err.text);
    bitnet_grammar_free(g);
    n = write_enum(text);
    p.max_work = 1 << 21;
    CHECK_MSG(!bitnet_grammar_json_schema(model, text, n, &p, &g, &err), "%s", err.text);
    bitnet_grammar_free(g);
    n = write_lookaheads(text);
    p.max_work = 1 << 25;
    CHECK(bitnet_grammar_json_schema(model, text, n, &p, &g, &err) == BITNET_ERR_LIMIT);
    CHECK_MSG(strstr(err.text, "compiling takes more than"), "%s", err.text);
    p.max_work = 999;
    CHECK(bitnet_grammar_gbnf(model, "root ::= \"a\"", 12, &p, &g, &err) == BITNET_ERR_ARG);
    CHECK(strstr(err.text, "max_work"));
}

/* A byte has one way at most out of a class, however many ranges that has, and its ways are sorted.
   So a step costs little, and a class is one way to read a text, not one for each range. */
static void test_classes(void) {
    static char text[20000];
    bitnet_grammar *g;
    bitnet_matcher *m;
    size_t n = (size_t)sprintf(text, "root ::= [x");
    uint32_t i, k;
    for (i = 0; i < 900; i++)
        n += (size_t)sprintf(text + n, "\\U%08x", (unsigned)(0x10FFF0 - i * 401));
    sprintf(text + n, "]*");
    m = matcher_of(bitnet_grammar_gbnf, text, &g, 0);
    CHECK(m);
    for (i = 0; i < g->n_nodes; i++)
        for (k = 1; g->nodes[i].type == BITNET_GRAMMAR__BYTES && k < (uint32_t)g->nodes[i].min; k++)
            CHECK(g->edges[g->nodes[i].alt + k - 1].high < g->edges[g->nodes[i].alt + k].low);
    CHECK(verdict(m, 0, "x\xF4\x8F\xBF\xB0", 0) == 'm');
    CHECK(verdict(m, 0, "\xF4\x8F\xBF\xB1", 0) == 'x');
    CHECK(verdict(m, 0, "\xF4", 0) == 'o');
    CHECK(m->states[m->now].n == 1);
    bitnet_matcher_free(m);
    bitnet_grammar_free(g);
}

/* 1024 ways, each with frames of its own, fill the matcher's memory just before all of them need 40
   more: some ways are given up, but not all. */
static void test_frames(void) {
    char text[8000];
    int more, i, n;
    for (more = 29; more < 32; more++) {
        bitnet_grammar *g;
        bitnet_matcher *m;
        n = sprintf(text, "root ::= a0\na10 ::= b0\nb%d ::= c0 \"q\"\nc40 ::= \"v\"\n", more + 1);
        for (i = 0; i < 10; i++)
            n += sprintf(text + n, "a%d ::= \"x\" (a%d \"y\" | a%d \"z\")\n", i, i + 1, i + 1);
        for (i = 0; i <= more; i++) n += sprintf(text + n, "b%d ::= \"w\" b%d \"q\"\n", i, i + 1);
        for (i = 0; i < 40; i++) n += sprintf(text + n, "c%d ::= c%d \"r\"\n", i, i + 1);
        m = matcher_of(bitnet_grammar_gbnf, text, &g, 0);
        CHECK(m);
        for (n = 0; n < 200 && bitnet_matcher_state(m) != BITNET_MATCHER_COMPLETE; n++) {
            ask(m);
            for (i = 'q'; i < 'z' && !is_allowed(i); i++) continue;
            CHECK_MSG(bitnet_matcher_accept(m, i) == BITNET_OK, "nothing after %d bytes", n);
        }
        CHECK(n < 200);
        bitnet_matcher_free(m);
        bitnet_grammar_free(g);
    }
}

/* ---- vocabularies that lack bytes ---- */

/* All bytes and the longer tokens; two of the bytes end texts, so nothing can spell them alone. */
static uint32_t end_bytes[2];

static void put_lacking(gb_model *m) {
    gb_file *f = &m->file;
    int i;
    m->bos = -1;
    m->eos = (int)end_bytes[0];
    m->eot = (int)end_bytes[1];
    m->n_vocab = 256 + m->n_words;
    gb_key_str(f, "tokenizer.ggml.model", "gpt2");
    gb_key_array(f, "tokenizer.ggml.tokens", GB_STR, (uint64_t)m->n_vocab);
    for (i = 0; i < 256; i++) {
        const char c = (char)i;
        gb_spelled(&f->keys, &c, 1);
    }
    for (i = 0; i < m->n_words; i++) gb_spelled(&f->keys, m->words[i], strlen(m->words[i]));
    gb_key_array(f, "tokenizer.ggml.merges", GB_STR, 0);
    gb_key_u32(f, "tokenizer.ggml.eos_token_id", end_bytes[0]);
    gb_key_u32(f, "tokenizer.ggml.eot_token_id", end_bytes[1]);
}

/* What such a vocabulary cannot finish is not begun, or the grammar is refused. */
static void test_lacking(void) {
    static const struct {
        const char *lacks;
        compile how;
        grammar_case cases[3];
        error_case errors[2];
    } all[] = {
        {"}\"", bitnet_grammar_gbnf,
         {{"root ::= [a]* \"}\" | \"x\"", {"c x", "x a", "x }", 0}},
          {"root ::= ([a]* \"}\")* [^a-z]", {"c 1", "x a", "o \xE2\x82", 0}},
          {"root ::= a{0,3} \"b\"\na ::= \"a\" \"}\"?", {"c aab", "c b", "o aaa", 0}}},
         {{"root ::= \"a\"+ \"}\"", BITNET_ERR_UNSUPPORTED, "root has no text that ends"},
          {"root ::= a\na ::= \"(\" a \")\" | \"}\"", BITNET_ERR_UNSUPPORTED, "0x22 0x7D"}}},
        {"12", bitnet_grammar_json_schema,
         {{"{\"type\":\"integer\",\"minimum\":9,\"maximum\":23}", {"c 9", "x 1", "x 2", 0}},
          {"{\"enum\":[\"a1\",\"a\",[12]]}", {"c \"a\"", "x \"a1", "x [", 0}},
          {"{\"type\":\"string\",\"maxLength\":3}", {"c \"abc\"", "x \"1", 0}}},
         {{"{\"const\":21}", BITNET_ERR_UNSUPPORTED, "0x31 0x32"},
          {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"minItems\":1}",
           BITNET_ERR_UNSUPPORTED, "0x31 0x32"}}},
        {"\"\xA9", bitnet_grammar_json_schema,
         {{"{}", {"m 12", "c [[], 1,null]", "c {}", "x \"", "x {\"", 0}},
          {"{\"enum\":[\"a\",7]}", {"c 7", "x \"", 0}},
          {"{\"type\":[\"string\",\"null\"]}", {"c null", "x \"", 0}}},
         {{"{\"type\":\"string\"}", BITNET_ERR_UNSUPPORTED, "0x22 0xA9"},
          {"{\"properties\":{\"a\":{}},\"required\":[\"a\"]}", BITNET_ERR_UNSUPPORTED,
           "0x22 0xA9"}}}};
    const gb_model kept = built;
    bitnet_model *const kept_model = model;
    size_t i;
    for (i = 0; i < sizeof all / sizeof all[0]; i++) {
        memset(&built, 0, sizeof built);
        end_bytes[0] = (uint8_t)all[i].lacks[0];
        end_bytes[1] = (uint8_t)all[i].lacks[1];
        built.dim = built.ffn = 64, built.layers = 1, built.heads = 2, built.kv_heads = 1;
        built.words = longer, built.n_words = N_LONGER, built.embed_type = GB_TENSOR_F16;
        built.arch = "bitnet", built.eps = 1e-5f, built.put_vocab = put_lacking;
        gb_make_model(&built);
        model = load_built(&built);
        if (model) {
            check_cases(all[i].how, all[i].cases, 3);
            check_errors(all[i].how, all[i].errors, 2);
        }
        bitnet_model_free(model);
        gb_free_model(&built);
    }
    built = kept;
    model = kept_model;
}

/* ---- memory, copies, arguments ---- */

static void test_memory(void) {
    static const char schema[] =
        "{\"properties\":{\"a\":{\"enum\":[1,\"x\"]},\"b\":{\"type\":\"string\",\"pattern\":"
        "\"^[a-z]+$\"},\"c\":{\"$ref\":\"#/%61\",\"maxLength\":3},\"d\":{\"type\":\"number\","
        "\"minimum\":0.5,\"maximum\":1},\"e\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":"
        "{\"enum\":[1,2]}},\"f\":{\"oneOf\":[{\"type\":\"integer\",\"multipleOf\":7},{\"type\":"
        "\"null\"}]},\"g\":{\"patternProperties\":{\"^x\":{\"multipleOf\":0.5}},\"propertyNames\":"
        "{\"maxLength\":2},\"properties\":{\"a\":{},\"b\":{\"contains\":{\"not\":{\"enum\":[\"a\","
        "1]}}}},\"minProperties\":1,\"dependentRequired\":{\"a\":[\"b\"]}},\"h\":{\"enum\":[\"a\",{"
        "\"b\":[1]}],"
        "\"pattern\":\"^a\",\"properties\":{\"b\":{\"items\":{\"$ref\":\"#i\"}}}}},"
        "\"additionalProperties\":true,\"a\":{\"type\":\"string\",\"format\":\"email\"},"
        "\"i\":{\"$anchor\":\"i\",\"type\":\"integer\"}}";
    gb_counter counter;
    bitnet_grammar_params p;
    bitnet_matcher_params q;
    bitnet_grammar *g = 0;
    bitnet_matcher *m = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    char out[4000];
    uint64_t seed = 5;
    long n, calls;
    CHECK(set_up());
    memset(&p, 0, sizeof p);
    memset(&q, 0, sizeof q);
    memset(&counter, 0, sizeof counter);
    p.allocator = q.allocator = gb_counting(&counter);
    for (n = 1; n < 800; n++) {
        counter.calls = 0;
        counter.fail_at = n;
        if (!bitnet_grammar_json_schema(model, schema, sizeof schema - 1, &p, &g, &err)) break;
        CHECK(err.code == BITNET_ERR_MEMORY && !g && counter.live == 0);
    }
    CHECK(n > 60 && n < 800);
    counter.fail_at = 0;
    CHECK(!bitnet_matcher_create(g, &q, &m, &err));
    calls = counter.calls;
    CHECK(write_some(m, &seed, 200, out) && counter.calls == calls);
    bitnet_matcher_free(m);
    bitnet_grammar_free(g);
    CHECK(counter.live == 0);
}

static void test_copy(void) {
    const bitnet_matcher_params small = {.max_depth = 2, .max_ways = 4, .max_states = 64,
                                         .max_masks = 1};
    bitnet_grammar *g, *like = 0;
    bitnet_grammar_params p;
    bitnet_matcher *m = matcher_of(bitnet_grammar_gbnf, "root ::= \"(\" root \")\" | \"x\"*", &g,
        0), *n = 0;
    CHECK(m && !bitnet_matcher_create(g, &small, &n, 0));
    CHECK(!bitnet_matcher_accept(m, 279));                             /* (( */
    CHECK(!bitnet_matcher_accept(m, '('));
    CHECK(bitnet_matcher_copy(n, m) == BITNET_ERR_LIMIT);
    CHECK(verdict(n, 0, "x", 0) == 'm');
    bitnet_matcher_free(n);
    CHECK(!bitnet_matcher_create(g, 0, &n, 0) && !bitnet_matcher_copy(n, m));
    CHECK(!bitnet_matcher_accept(m, ')') && !bitnet_matcher_accept(n, 280));      /* x) */
    CHECK(!bitnet_matcher_accept(n, 281) && bitnet_matcher_accept(n, ')'));       /* )) */
    CHECK(bitnet_matcher_state(n) == BITNET_MATCHER_COMPLETE);
    CHECK(bitnet_matcher_state(m) == BITNET_MATCHER_OPEN);
    bitnet_matcher_free(n);
    memset(&p, 0, sizeof p);
    p.like = g;
    CHECK(!bitnet_grammar_gbnf(model, "root ::= \"ab\"", 13, &p, &like, 0));
    CHECK(bitnet_grammar_bytes(like) < bitnet_grammar_bytes(g));
    CHECK(!bitnet_matcher_create(like, 0, &n, 0) && verdict(n, 0, "ab", 1) == 'c');
    CHECK(bitnet_matcher_copy(n, m) == BITNET_ERR_ARG);
    bitnet_matcher_free(n);
    bitnet_grammar_free(like);
    bitnet_matcher_free(m);
    bitnet_grammar_free(g);
}

static void test_arguments(void) {
    bitnet_grammar *g;
    bitnet_matcher *m = matcher_of(bitnet_grammar_gbnf, "root ::= \"a\"", &g, 0);
    bitnet_matcher_params p;
    bitnet_grammar_params q;
    bitnet_error err = {BITNET_OK, "", {0}};
    CHECK(m);
    CHECK(bitnet_matcher_bytes(g, 0) > 0 && bitnet_matcher_bytes(0, 0) == 0);
    CHECK(bitnet_grammar_gbnf(0, "", 0, 0, &g, &err) == BITNET_ERR_ARG && !g);
    CHECK(bitnet_grammar_gbnf(model, 0, 1, 0, &g, &err) == BITNET_ERR_ARG);
    CHECK(bitnet_grammar_gbnf(model, "", 0, 0, 0, &err) == BITNET_ERR_ARG);
    g = (bitnet_grammar *)(uintptr_t)m->g;
    memset(&q, 0, sizeof q);
    q.max_nodes = 3;
    CHECK(bitnet_grammar_gbnf(model, "root ::= \"a\"", 12, &q, &g, &err) == BITNET_ERR_ARG);
    g = (bitnet_grammar *)(uintptr_t)m->g;
    memset(&p, 0, sizeof p);
    p.max_depth = -1;
    {
        bitnet_matcher *none = m;
        CHECK(bitnet_matcher_create(g, &p, &none, &err) == BITNET_ERR_ARG && !none);
        CHECK(strstr(err.text, "max_depth") && bitnet_matcher_bytes(g, &p) == 0);
        CHECK(bitnet_matcher_create(0, 0, &none, &err) == BITNET_ERR_ARG);
    }
    bitnet_matcher_mask(0, allowed);
    bitnet_matcher_mask(m, 0);
    bitnet_matcher_chosen(0, 1);
    bitnet_matcher_reset(0);
    bitnet_matcher_free(0);
    CHECK(bitnet_matcher_accept(0, 1) == BITNET_ERR_ARG);
    CHECK(bitnet_matcher_state(0) == BITNET_MATCHER_REFUSED);
    CHECK(bitnet_matcher_accept(m, built.n_vocab) == BITNET_ERR_ARG);
    CHECK(bitnet_matcher_copy(m, 0) == BITNET_ERR_ARG && !bitnet_matcher_copy(m, m));
    bitnet_matcher_free(m);
    bitnet_grammar_free(g);
    bitnet_grammar_free(0);
}

/* With bitnet_sampler, as a program has it: whatever the model wants, the text is the grammar's. */
static void test_sampler(void) {
    bitnet_grammar *g;
    bitnet_matcher *m = matcher_of(bitnet_grammar_json_schema,
                                   "{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"maxItems"
                                       "\":3}", &g, 0);
    bitnet_matcher *again = 0;
    bitnet_ctx *c;
    bitnet_sampler s;
    char text[400] = "";
    int i, round;
    CHECK(m && !bitnet_matcher_create(g, 0, &again, 0));
    c = new_ctx(model, 64, 8);
    for (round = 0; c && round < 20; round++) {
        memset(&s, 0, sizeof s);
        s.temperature = 2;
        s.rng = (uint64_t)round;
        s.mask_fn = bitnet_matcher_mask;
        s.chosen_fn = bitnet_matcher_chosen;
        s.mask_ud = s.chosen_ud = m;
        bitnet_matcher_reset(m);
        CHECK(!bitnet_seq_rewind(c, 0, 0, NULL));
        text[0] = 0;
        for (i = 0; i < 60; i++) {
            bitnet_token t = 'a';
            if (i == 0) CHECK(!bitnet_eval(c, 0, &t, 1, 1, 0));
            t = bitnet_sample(c, -1, &s, NULL);
            CHECK(t >= 0);
            if (bitnet_token_is_end(model, t)) break;
            if (t < FIRST_LONGER) text[strlen(text) + 1] = 0, text[strlen(text)] = (char)t;
            else strcat(text, longer[t - FIRST_LONGER]);
            CHECK(!bitnet_eval(c, 0, &t, 1, 1, 0));
        }
        CHECK_MSG(strchr(i < 60 ? "c" : "o", verdict(again, 0, text, 0)), "%s", text);
    }
    bitnet_ctx_free(c);
    bitnet_matcher_free(m);
    bitnet_matcher_free(again);
    bitnet_grammar_free(g);
}

/* Strings of a schema as they stand, in rules around it. */
static void test_raw(void) {
    static const grammar_case a[] = {
        {"{\"$defs\": {\"a\": {\"pattern\": \"^[ab\\\"\\\\\\\\\\n]{1,3}$\"}}}",
         {"m a", "m b\"", "c \\\n\"", "x \"c", "x abab", "o ", 0}},
        {"{\"$defs\": {\"a\": {\"anyOf\": [{\"enum\": [\"x\\\"y\", 1]}, {\"type\": \"null\"}, "
         "{\"$ref\": \"#/$defs/f\"}]}, \"f\": {\"type\": \"string\", \"format\": \"date\"}}}",
         {"c x\"y", "c 2024-02-29", "o 1", "x \"", "x n", 0}},
        {"{\"$defs\": {\"a\": {\"$ref\": \"#/$defs/d\", \"not\": {\"pattern\": \"<.>\"}}, "
         "\"d\": {}}}",
         {"m ", "m <>\"\n\xC3\xA9\x01\\", "m null", "x <x>", 0}},
        {"{\"$defs\": {\"a\": {\"type\": [\"string\", \"null\"], \"minLength\": 1, "
         "\"maxLength\": 2}}}",
         {"c \"\"", "m \xC3\xA9", "x abc", "o ", 0}},
    };
    static const error_case errors[] = {
        {"{\"$defs\": {\"a\": {\"type\": \"string\",\n\"pattern\": \"(\"}}}", BITNET_ERR_FORMAT,
         "line 2, column 12: #/$defs/a/pattern: "},
        {"{\"$defs\": {\"a\": {\"type\": [\"integer\", \"null\"]}}}", BITNET_ERR_FORMAT,
         "has no text that ends"},
        {"{\"$defs\": {\"b\": {}}}", BITNET_ERR_FORMAT, "the rule raw-a is not defined"},
    };
    around = "text ::= raw-a";
    check_cases(compile_around, a, 4);
    check_errors(compile_around, errors, 3);
    around = 0;
}

/* Rules around a grammar or schema, whose names are their own. */
static void test_around(void) {
    static const grammar_case cases[] = {
        {"root ::= text \"b\"\ntext ::= \"a\"", {"c <ab>", "c <ab,ab>", "x ab", "o <ab", 0}},
        {"{\"enum\": [1, true]}", {"c <1>", "c <true,1>", "x <2", "o <true", 0}}
    };
    static const error_case errors[] = {
        {"root ::= \"a\"", BITNET_ERR_FORMAT, "line 2, column 11: "},
    };
    static const error_case endless[] = {
        {"{\"type\": \"array\", \"minItems\": 1,\n\"items\": {\"enum\": []}}", BITNET_ERR_FORMAT,
         "line 2, column 10: #/items: has no text that ends"},
        {"{\"type\": \"array\",\n\"items\": {\"pattern\": \"[b-a]\"}}", BITNET_ERR_FORMAT,
         "line 2, column 22: #/items/pattern: a range backwards"},
    };
    static const error_case blamed[] = {
        {"{\"$defs\": {\"a\": {\"not\": {}},\n"
         "\"b\": {\"items\": {\"enum\": []}, \"minItems\": 1}}}",
         BITNET_ERR_FORMAT, "line 2, column 16: #/$defs/b/items: has no text that ends"},
    };
    static const grammar_case defs[] = {
        {"{\"$defs\": {\"a\": {\"enum\": [1, 2]}, \"b-1\": {\"$ref\": \"#/$defs/c\"}, \"c\": "
         "{\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/a\"}}, \"d\": {\"not\": 1}, "
         "\"e\": 1}, \"enum\": [true, \"space\"]}",
         {"c 1", "c [2,1]", "c <[]>true", "c <[1]>\"space\"", "x true", "x 3", "o <[", "c own", 0}}
    };
    static const error_case no_defs[] = {
        {"{\"$defs\": {\"a\": {\"enum\": [1]}, \"b-1\": {\"properties\": {\"x\": "
         "{\"$ref\": \"y.json\"}}}}}",
         BITNET_ERR_UNSUPPORTED, "#/$defs/b-1/properties/x"},
        {"{\"$defs\": {\"a\": {\"enum\": [1]}, \"b\": true}}", BITNET_ERR_FORMAT,
         "the rule def-b-1 is not defined"},
        {"root ::= \"a\"", BITNET_ERR_FORMAT, "the rule def-a is not defined"},
        {"{\"$defs\": 1}", BITNET_ERR_FORMAT, "the rule def-a is not defined"},
    };
    around = "text ::= def-a | def-b-1 | \"<\" def-b-1 \">\" root | def-e\ndef-e ::= \"own\"";
    check_cases(compile_around, defs, 1);
    check_errors(compile_around, no_defs, 4);
    around = "text ::= \"<\" list \">\"\nlist ::= root (\",\" root)*";
    check_cases(compile_around, cases, 2);
    check_errors(compile_around, endless, 2);
    around = "text ::= call (\",\" call)*\n"
             "call ::= <|eot_id|> (\"a\" def-a | \"b\"* [cd] def-b) <|eot_id|>";
    check_errors(compile_around, blamed, 1);
    around = "text ::= root\nother ::= )";
    check_errors(compile_around, errors, 1);
    around = "txt ::= root";
    CHECK(set_up());
    {
        bitnet_grammar *g = 0;
        bitnet_error err = {BITNET_OK, "", {0}};
        CHECK(compile_around(model, "root ::= \"a\"", 12, 0, &g, &err) == BITNET_ERR_FORMAT && !g);
        CHECK_MSG(strstr(err.text, "there is no rule text"), "%s", err.text);
        around = "text ::= root\nroot ::= \"a\"";
        CHECK(compile_around(model, "root ::= \"a\"", 12, 0, &g, &err) == BITNET_ERR_FORMAT && !g);
        CHECK_MSG(strstr(err.text, "twice") || strstr(err.text, "root"), "%s", err.text);
    }
    around = 0;
}

/* A thought ends with the first </think>, however it is cut into tokens. */
static void test_thought(void) {
    static const grammar_case cases[] = {
        {"root ::= \"x\"", {
            "c </think>\n\nx", "c a < b </ </t </thi <<</think>\n\nx",
            "c </thin</think>\n\nx", "x </think>y", "x </think>\nx", "x <</think>\n\ny",
            "o </think\xE2\x82\xAC>\n\nx", "o </think", "o </thinx>", "o x", "o </</",
            "c <think></t</think>\n\nx", 0}}
    };
    static const char *const tags[] = {"</think>", "a</", "think>"};
    static const uint8_t types[] = {3, 1, 1};
    gb_model g;
    bitnet_model *m;
    bitnet_grammar *grammar = 0;
    bitnet_matcher *matcher = 0;
    bitnet_grammar_params p;
    bitnet_error err = {BITNET_OK, "", {0}};
    const char *spelt = "a<b", *rest = "\n\nx";
    int ok = 1;
    around = BITNET_GRAMMAR_THOUGHT "text ::= thought \"\\n\\n\" root\n";
    /* Without such a token the rule says so. */
    CHECK(set_up());
    CHECK(compile_around(model, "root ::= \"x\"", 12, 0, &grammar, &err) && !grammar);
    CHECK_MSG(strstr(err.text, "</think>"), "%s", err.text);
    memset(&g, 0, sizeof g);
    g.dim = g.ffn = 64, g.layers = 1, g.heads = 2, g.kv_heads = 1;
    g.words = tags, g.n_words = 3, g.word_types = types, g.embed_type = GB_TENSOR_F16;
    gb_make_model(&g);
    m = load_built(&g);
    memset(&p, 0, sizeof p);
    p.around = text_of(around);
    ok = m && !bitnet_grammar_gbnf(m, "root ::= \"x\"", 12, &p, &grammar, &err) &&
         !bitnet_matcher_create(grammar, 0, &matcher, &err);
    for (; ok && *spelt; spelt++) ok = !bitnet_matcher_accept(matcher, (uint8_t)*spelt);
    ok = ok && !bitnet_matcher_accept(matcher, token_named(m, "</think>"));
    for (; ok && *rest; rest++) ok = !bitnet_matcher_accept(matcher, (uint8_t)*rest);
    ok = ok && bitnet_matcher_state(matcher) == BITNET_MATCHER_COMPLETE;
    if (ok) {                          /* spelt by others, it ends the thought, too */
        bitnet_matcher_reset(matcher);
        ok = !bitnet_matcher_accept(matcher, token_named(m, "a</")) &&
             !bitnet_matcher_accept(matcher, token_named(m, "think>")) &&
             bitnet_matcher_accept(matcher, 'x') && !bitnet_matcher_accept(matcher, '\n');
    }
    bitnet_matcher_free(matcher);
    bitnet_grammar_free(grammar);
    bitnet_model_free(m);
    gb_free_model(&g);
    CHECK_MSG(ok, "%s", err.text);
    /* By bytes and in long tokens; the token itself is left out. */
    around = "thought ::= ([^<] | thought-part* thought-on)* thought-part* \"</think>\"\n";
    {
        static char rules[1000];
        const char *others = strstr(BITNET_GRAMMAR_THOUGHT, "thought-part ::=");
        snprintf(rules, sizeof rules, "%s%stext ::= thought \"\\n\\n\" root\n", around, others);
        around = rules;
        check_cases(compile_around, cases, 1);
    }
    around = 0;
}

/* Words that a later version may use. */
static void test_reserved(void) {
    bitnet_grammar_params p;
    bitnet_matcher_params q;
    bitnet_grammar *g = 0, *none = 0;
    bitnet_matcher *m = 0;
    bitnet_error err;
    int i;
    CHECK(set_up() && !bitnet_grammar_gbnf(model, "root ::= \"a\"", 12, 0, &g, &err));
    for (i = 0; i < 6; i++) {
        const char *of = i < 2 ? "bitnet_allocator: a reserved" : "_params: a reserved";
        memset(&p, 0, sizeof p);
        memset(&q, 0, sizeof q);
        CHECK(bitnet_matcher_bytes(g, &q) > 0);
        *(i < 2 ? &p.allocator.reserved[i] : &p.reserved[i - 2]) = (uint64_t)1 << 40;
        *(i < 2 ? &q.allocator.reserved[i] : &q.reserved[i - 2]) = (uint64_t)1 << 40;
        CHECK(bitnet_grammar_gbnf(model, "root ::= \"a\"", 12, &p, &none, &err) == BITNET_ERR_ARG);
        CHECK_MSG(err.code == BITNET_ERR_ARG && !none && strstr(err.text, of), "%s", err.text);
        CHECK(bitnet_matcher_create(g, &q, &m, &err) == BITNET_ERR_ARG);
        CHECK_MSG(err.code == BITNET_ERR_ARG && !m && strstr(err.text, of), "%s", err.text);
        CHECK(bitnet_matcher_bytes(g, &q) == 0);
    }
    bitnet_grammar_free(g);
}

/* A NUL in a text is a character like others. */
static void test_nul(void) {
    static const bitnet_text text = BITNET_TEXT("# \0\nroot ::= \"\0b\"");
    static const bitnet_text ahead = BITNET_TEXT("text ::= \"\0\" root # \0\n");
    static const char schema[] = "{\"const\":\"\\u0000\"}\0";
    bitnet_grammar_params p;
    bitnet_grammar *g = 0;
    bitnet_matcher *m = 0;
    bitnet_error err;
    memset(&p, 0, sizeof p);
    p.around = ahead;
    CHECK(set_up() && !bitnet_grammar_gbnf(model, text.data, text.size, &p, &g, &err));
    CHECK(!bitnet_matcher_create(g, 0, &m, 0) && bitnet_matcher_accept(m, 'b'));
    CHECK(!bitnet_matcher_accept(m, 0) && !bitnet_matcher_accept(m, 0));
    CHECK(bitnet_matcher_state(m) == BITNET_MATCHER_OPEN && !bitnet_matcher_accept(m, 'b'));
    CHECK(bitnet_matcher_state(m) == BITNET_MATCHER_COMPLETE);
    bitnet_matcher_free(m);
    bitnet_grammar_free(g);
    CHECK(bitnet_grammar_json_schema(model, schema, sizeof schema - 1, 0, &g, &err) ==
          BITNET_ERR_FORMAT);
    CHECK(!bitnet_grammar_json_schema(model, schema, sizeof schema - 2, 0, &g, &err));
    bitnet_grammar_free(g);
}

extern const test_case grammar_tests[];
const test_case grammar_tests[] = {
    {"grammar/around", test_around},
    {"grammar/raw", test_raw},
    {"grammar/thought", test_thought},
    {"grammar/gbnf", test_gbnf},
    {"grammar/gbnf_errors", test_gbnf_errors},
    {"grammar/lines", test_lines},
    {"grammar/tokens", test_tokens},
    {"grammar/schemas", test_schemas},
    {"grammar/keywords", test_keywords},
    {"grammar/strings", test_strings},
    {"grammar/numbers", test_numbers},
    {"grammar/together", test_together},
    {"grammar/unevaluated", test_unevaluated},
    {"grammar/schema_errors", test_schema_errors},
    {"grammar/limits", test_limits},
    {"grammar/counts", test_counts},
    {"grammar/depth", test_depth},
    {"grammar/block", test_block},
    {"grammar/hostile", test_hostile},
    {"grammar/prepare", test_prepare},
    {"grammar/more_than_ways", test_more_than_ways},
    {"grammar/exclusive", test_exclusive},
    {"grammar/work", test_work},
    {"grammar/classes", test_classes},
    {"grammar/frames", test_frames},
    {"grammar/lacking", test_lacking},
    {"grammar/memory", test_memory},
    {"grammar/copy", test_copy},
    {"grammar/arguments", test_arguments},
    {"grammar/sampler", test_sampler},
    {"grammar/reserved", test_reserved},
    {"grammar/nul", test_nul},
    {0, 0}
};
