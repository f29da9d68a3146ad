/* Grammars and schemas: the input is a choice of limits, the choices of a text, and the grammar. It
   is refused in words, or its masks hold what bitnet_grammar.h promises. */
#define BITNET_GRAMMAR_IMPLEMENTATION
#define BITNET_GRAMMAR__FEW 2
#define BITNET_GRAMMAR__FEW_NEW 2
#include "../../bitnet_grammar.h"
#include "fuzz.h"

static const bitnet_model *grammar_model(void) {
    static const char *const words[] = {
        "ab", "abc", "\":", "{\"", "\"}", "true", "\xE2\x82", "\x82\xAC", "\xAC\xE2",
            "\xE2\x82\xAC",
        "  ", "[[", "]}", "((", "12", "a\",\""};
    static gb_model g;                 /* memory_load borrows its bytes */
    static bitnet_model *m;
    if (m) return m;
    g.dim = g.ffn = 64;
    g.layers = 1;
    g.heads = 2;
    g.kv_heads = 1;
    g.n_ctx = 16;
    g.words = words;
    g.n_words = (int)(sizeof words / sizeof words[0]);
    gb_make_model(&g);
    FUZZ_CHECK(!bitnet_model_load_memory(g.data, g.size, 0, &m, 0));
    return m;
}

/* In parts of so many steps; 0: at once. */
static void grammar_mask(bitnet_matcher *m, uint32_t *allowed, size_t words, int32_t part) {
    int32_t steps = part;
    while (part && !bitnet_matcher_prepare(m, &steps)) steps += part;
    memset(allowed, 0, words * sizeof *allowed);
    bitnet_matcher_mask(m, allowed);
}

/* One text, and at each token a few others, which a copy gets. */
static void grammar_write(bitnet_matcher *m, bitnet_matcher *other, const bitnet_model *model,
                          const uint8_t *choices, size_t n) {
    const uint32_t n_vocab = model->vocab.n_tokens;
    const size_t words = (n_vocab + 31) / 32;
    uint32_t *allowed = (uint32_t *)gb_malloc(4 * words), *again = (uint32_t *)gb_malloc(4 * words);
    gb_buf text = {0, 0, 0};
    size_t i, size;
    uint32_t t, k, count;
    for (i = 0; i < n; i++) {
        bitnet_token chosen = -1;
        grammar_mask(m, allowed, words, choices[i] % 2 ? 1 + choices[i] : 0);
        for (t = count = 0; t < n_vocab; t++) count += allowed[t / 32] >> t % 32 & 1;
        if (!count) break;
        FUZZ_CHECK(bitnet_matcher_copy(other, m) == BITNET_OK);
        grammar_mask(other, again, words, 0);
        FUZZ_CHECK(!memcmp(allowed, again, 4 * words));
        t = (uint32_t)choices[i] * 7 % n_vocab;
        FUZZ_CHECK((bitnet_matcher_accept(other, (bitnet_token)t) == BITNET_OK) ==
                   (int)(allowed[t / 32] >> t % 32 & 1));
        for (k = choices[i] % count, t = 0; chosen < 0; t++)
            if ((allowed[t / 32] >> t % 32 & 1) && k-- == 0) chosen = (bitnet_token)t;
        bitnet_matcher_chosen(m, chosen);
        FUZZ_CHECK(bitnet_matcher_state(m) != BITNET_MATCHER_REFUSED);
        if (bitnet_matcher_state(m) == BITNET_MATCHER_ENDED) break;
        gb_put(&text, bitnet_token_text(model, chosen, &size), size);
        if (bitnet_matcher_state(m) > BITNET_MATCHER_OPEN)
            FUZZ_CHECK(fuzz_is_utf8((const char *)text.p, text.n));
    }
    FUZZ_CHECK(bitnet_matcher_state(m) < BITNET_MATCHER_STUCK);
    free(text.p);
    free(allowed);
    free(again);
}

enum { RAW = 63 };                     /* a kind */

FUZZ_TARGET(grammar) {
    static const int32_t depths[] = {0, 1, 3, 40}, ways[] = {0, 1, 4, 50}, states[] = {0, 64, 70,
        200};
    const bitnet_model *model = grammar_model();
    fuzz_input in = {data, size};
    gb_counter counter;
    bitnet_grammar_params p;
    bitnet_matcher_params q;
    bitnet_grammar *g = 0;
    bitnet_matcher *m = 0, *other = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_result r;
    const uint8_t *choices;
    const uint32_t limits = fuzz_uint(&in, 1), kind = fuzz_uint(&in, 1);
    gb_buf text = {0, 0, 0};
    size_t n = 24;
    memset(&counter, 0, sizeof counter);
    memset(&p, 0, sizeof p);
    memset(&q, 0, sizeof q);
    p.allocator = q.allocator = gb_counting(&counter);
    counter.fail_at = kind >= 64 ? (long)(kind & 63) : 0;
    p.max_nodes = 20000;
    p.max_work = 1 << 22;
    q.max_depth = depths[limits & 3];
    q.max_ways = ways[limits >> 2 & 3];
    q.max_states = states[limits >> 4 & 3];
    q.max_masks = 1 + (int32_t)(limits >> 6);
    choices = fuzz_bytes(&in, &n);
    if (kind == RAW) {                 /* the schema's strings as they stand, or its values */
        static const char around[] = "text ::= raw-a | \"(\" def-a";
        p.around.data = around;
        p.around.size = sizeof around - 1;
        gb_put(&text, "{\"$defs\":{\"a\":", 14);
        gb_put(&text, in.p, in.n);
        gb_put(&text, "}}", 2);
    } else gb_put(&text, in.p, in.n);
    r = (kind & 1 ? bitnet_grammar_json_schema : bitnet_grammar_gbnf)(
        model, (const char *)text.p, text.n, &p, &g, &err);
    fuzz_check_error(r, &err);
    FUZZ_CHECK(!r == !!g);
    if (g) {
        r = bitnet_matcher_create(g, &q, &m, &err);
        fuzz_check_error(r, &err);
        FUZZ_CHECK(bitnet_grammar_bytes(g) > 0 && bitnet_matcher_bytes(g, &q) > 0);
        if (!r && !bitnet_matcher_create(g, &q, &other, 0)) {
            const long calls = counter.calls;
            grammar_write(m, other, model, choices, n);
            FUZZ_CHECK(counter.calls == calls);
        }
    }
    bitnet_matcher_free(m);
    bitnet_matcher_free(other);
    bitnet_grammar_free(g);
    free(text.p);
    FUZZ_CHECK(counter.live == 0);
}
