/* Writes a random text for each JSON schema on stdin, one schema a line; test_grammar.mjs checks
   them. Logits are random, so the texts are as odd as the schemas allow.

       grammar_texts MODEL SEED < SCHEMAS > TEXTS

   Each text ends with a NUL byte. A schema that is refused gives "!" and the error. Between texts
   the program checks what a matcher promises: a mask is never empty, a token that it allows is
   accepted, and one that it does not allow is refused. */
#define BITNET_GRAMMAR_IMPLEMENTATION
#define BITNET_GRAMMAR__FEW 2
#define BITNET_GRAMMAR__FEW_NEW 2
#include "../../bitnet_grammar.h"

#define MAX_LINE (1 << 20)

static uint64_t state;
static const bitnet_model *model;
static bitnet_model_info info;
static uint32_t *allowed;
static char line[MAX_LINE];
static char plain[MAX_LINE];           /* line without its backslashes */
static char last[4];                   /* two bytes of the text, and one for the next */

static uint32_t random_below(uint32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) * n >> 31);
}

static int is_allowed(bitnet_token t) { return allowed[t / 32] >> t % 32 & 1; }

/* How much a token is liked: after so many tokens the text should come to an end. Where a pattern
   asks for an end of its own, bytes help that follow the last ones in the schema, too. */
static uint32_t weight(bitnet_token t, int n_tokens) {
    size_t n;
    const char *s = bitnet_token_text(model, t, &n);
    if (bitnet_token_is_end(model, t)) return n_tokens > 40 ? 100000 : 4;
    if (n_tokens > 100 && n == 1 && s[0] == '"') return 100000;
    if (n_tokens > 100 && n == 1 && s[0] > ' ') {
        last[2] = s[0];
        if (strstr(plain, last)) return 4000;
        if (strstr(plain, last + 1)) return 1000;
    }
    if (n_tokens > 40 && n == 1 && strchr("\"}]", s[0])) return n_tokens > 100 ? 100 : 1000;
    return n == 1 ? 8 : 1;
}

/* A token that is allowed, or -1. */
static bitnet_token choose(int n_tokens) {
    uint64_t sum = 0;
    bitnet_token t, chosen = -1;
    for (t = 0; t < info.n_vocab; t++) {
        uint32_t w;
        if (!is_allowed(t)) continue;
        w = weight(t, n_tokens);
        sum += w;
        if (random_below((uint32_t)sum) < w) chosen = t;
    }
    return chosen;
}

static int write_text(bitnet_matcher *m) {
    int n_tokens;
    for (n_tokens = 0; n_tokens < 20000; n_tokens++) {
        const bitnet_token other = (bitnet_token)random_below((uint32_t)info.n_vocab);
        bitnet_token t;
        size_t n;
        const char *s;
        memset(allowed, 0, ((size_t)info.n_vocab + 31) / 32 * sizeof *allowed);
        bitnet_matcher_mask(m, allowed);
        t = choose(n_tokens);
        if (t < 0) return printf("!no token is allowed, status %d", (int)bitnet_matcher_state(m));
        if (!is_allowed(other) && bitnet_matcher_accept(m, other) == BITNET_OK)
            return printf("!a token was accepted that is not allowed");
        if (bitnet_matcher_accept(m, t)) return printf("!a token was refused that is allowed");
        if (bitnet_matcher_state(m) == BITNET_MATCHER_ENDED) return 0;
        s = bitnet_token_text(model, t, &n);
        fwrite(s, 1, n, stdout);
        if (n) last[0] = n > 1 ? s[n - 2] : last[1], last[1] = s[n - 1];
    }
    return printf("!it does not end");
}

int main(int argc, char **argv) {
    bitnet_model *loaded;
    bitnet_grammar *first = 0;
    bitnet_grammar_params params;
    bitnet_error err;
    if (argc != 3 || bitnet_model_load_file(argv[1], 0, &loaded, &err)) return 2;
    model = loaded;
    state = strtoull(argv[2], 0, 10);
    bitnet_model_get_info(model, &info);
    allowed = (uint32_t *)malloc(((size_t)info.n_vocab + 31) / 32 * sizeof *allowed);
    memset(&params, 0, sizeof params);
    if (!allowed || bitnet_grammar_gbnf(model, "root ::= \"\"", 11, 0, &first, &err)) return 2;
    params.like = first;
    while (fgets(line, sizeof line, stdin)) {
        bitnet_grammar *g;
        bitnet_matcher *m = 0;
        size_t i, n = 0;
        for (i = 0; line[i]; i++)
            if (line[i] != '\\') plain[n++] = line[i];
        plain[n] = 0;
        if (bitnet_grammar_json_schema(model, line, strlen(line), &params, &g, &err) ||
            bitnet_matcher_create(g, 0, &m, &err)) printf("!%s", err.text);
        else write_text(m);
        putchar(0);
        bitnet_matcher_free(m);
        bitnet_grammar_free(g);
    }
    bitnet_grammar_free(first);
    bitnet_model_free(loaded);
    free(allowed);
    return 0;
}
