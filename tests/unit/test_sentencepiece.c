/* SentencePiece's tokenizer, as files with tokenizer.ggml.model = llama have it (1bitLLM's models).
   The vocabulary below was trained by the reference implementation (sentencepiece 0.1.97, BPE with
   byte_fallback, identity normalization, as LLaMA's), which also gave the tokens of the texts. */

#include "gguf_helpers.h"
#include "vocab_helpers.h"

static const struct { const char *text; bitnet_token tokens[22]; } spm_cases[] = {
    {"the cat sat on the mat",
     {264, 270, 267, 273, 267, 328, 264, 311, 267}},
    {"the model, the mode and the node of bitnet",
     {264, 333, 372, 264, 353, 281, 290, 264, 284, 279, 298, 293}},
    {"Hello, world!",
     {353, 75, 354, 362, 309, 372, 275, 336, 362, 364, 406}},
    {" leading and trailing ",
     {353, 353, 280, 335, 312, 290, 260, 359, 357, 349, 312, 353}},
    {"two  spaces   three    four",
     {260, 376, 360, 353, 273, 375, 357, 346, 361, 353, 353, 260, 363, 276, 354, 353, 353, 353, 287,
     317, 359}},
    {"tabs\t" "and\nnewlines\n\n",
     {260, 357, 371, 361, 12, 357, 278, 13, 262, 376, 362, 358, 262, 361, 13, 13}},
    {"na\xC3\xAFve caf\xC3\xA9 \xC3\xA9lan",
     {284, 357, 198, 178, 352, 270, 357, 370, 397, 353, 397, 325}},
    {"\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E \xF0\x9F\xA6\x85",
     {353, 233, 154, 168, 233, 159, 175, 235, 173, 161, 353, 243, 162, 169, 136}},
    {"12345 bitnet bitnets 1.58bit",
     {353, 385, 380, 400, 394, 399, 293, 293, 361, 353, 385, 373, 399, 392, 268}},
    {"\xE2\x96\x81marked\xE2\x96\x81text\xE2\x96\x81",
     {353, 311, 294, 393, 348, 260, 306, 353}},
    {" ",
     {353, 353}},
    {"   ",
     {353, 353, 353, 353}},
    {"<s> </s> <0x0A> <unk>",
     {353, 401, 361, 407, 353, 401, 386, 361, 407, 353, 401, 389, 377, 389, 68, 407, 353, 401, 337,
     393, 407}},
    {"I'm in it.",
     {353, 408, 42, 365, 296, 342, 373}},
    {"nenenenenene",
     {353, 262, 262, 262, 262, 262, 262}},
    {"ititititit modemodelmodel",
     {342, 259, 259, 259, 259, 353, 281, 282, 282}}
};

typedef struct spm { gb_buf tokens, types, scores; } spm;

static spm spm_start(void) {
    spm s;
    memset(&s, 0, sizeof s);
    spm_put_tokens(&s.tokens);
    spm_put_types(&s.types);
    spm_put_scores(&s.scores);
    return s;
}

/* Builds the vocabulary and frees s. */
static bitnet_result spm_build(spm *s, bitnet__vocab *v, int prefix, bitnet_error *err) {
    bitnet_allocator a;
    bitnet__strings tokens;
    bitnet_result r;
    memset(&a, 0, sizeof a);
    memset(&tokens, 0, sizeof tokens);
    tokens.data = s->tokens.p;
    tokens.size = s->tokens.n;
    tokens.count = SPM_TOKENS;
    r = bitnet__vocab_build(v, &a, &tokens, s->types.p, 0, s->scores.p, err);
    v->space_prefix = prefix;
    free(s->tokens.p);
    free(s->types.p);
    free(s->scores.p);
    return r;
}

static int64_t spm_encode(const bitnet__vocab *v, const char *text, size_t n, int special,
                          bitnet_token *out, size_t cap) {
    bitnet_allocator a;
    memset(&a, 0, sizeof a);
    return bitnet__encode(v, &a, text, n, special ? BITNET_PARSE_SPECIAL : 0, out, cap);
}

static void test_spm_texts(void) {
    spm s = spm_start();
    bitnet__vocab v;
    bitnet_allocator a;
    char bad[200] = "";
    size_t i, k;
    memset(&a, 0, sizeof a);
    CHECK(!spm_build(&s, &v, 1, 0));
    for (i = 0; i < sizeof spm_cases / sizeof spm_cases[0] && !bad[0]; i++) {
        bitnet_token got[32];
        int64_t n = spm_encode(&v, spm_cases[i].text, strlen(spm_cases[i].text), 0, got, 32), m;
        for (m = 0; spm_cases[i].tokens[m]; m++) {}
        for (k = 0; n == m && k < (size_t)n; k++)
            if (got[k] != spm_cases[i].tokens[k]) n = -1;
        if (n != m)
            snprintf(bad, sizeof bad, "'%s' has other tokens, %d", spm_cases[i].text, (int)n);
    }
    bitnet__vocab_free(&v, &a);
    CHECK_MSG(!bad[0], "%s", bad);
}

/* All texts in a row, 1 to 8 times each, in one piece of 11 KB: as many tokens, with the same FNV
   hash, as the reference gives. */
static void test_spm_long(void) {
    enum { MOST = 20000 };
    spm s = spm_start();
    bitnet__vocab v;
    bitnet_allocator a;
    bitnet_token *got = (bitnet_token *)gb_malloc(MOST * sizeof *got);
    uint64_t hash = ((uint64_t)0xcbf29ce4u << 32) | 0x84222325u;
    gb_buf text = {0};
    size_t i, k, j;
    int64_t n;
    memset(&a, 0, sizeof a);
    CHECK(!spm_build(&s, &v, 1, 0));
    for (k = 1; k < 9; k++)
        for (i = 0; i < sizeof spm_cases / sizeof spm_cases[0]; i++)
            for (j = 0; j < k; j++) {
                gb_put(&text, spm_cases[i].text, strlen(spm_cases[i].text));
                gb_put(&text, " ", 1);
            }
    n = spm_encode(&v, (const char *)text.p, text.n, 0, got, MOST);
    for (i = 0; n <= MOST && i < (size_t)(n < 0 ? 0 : n); i++)
        hash = (hash ^ (uint64_t)got[i]) * (((uint64_t)0x100u << 32) | 0x1b3u);
    bitnet__vocab_free(&v, &a);
    free(text.p);
    free(got);
    CHECK(text.n == 11232);
    CHECK_MSG(n == 6517, "%d tokens", (int)n);
    CHECK(hash == (((uint64_t)0x1413a874u << 32) | 0xceafe788u));
}

/* Tokens of 2, 4, ... 1024 bytes, far more than the table has powers: a text of 2046 bytes is one
   of each. And a file that is nearly all one token takes no more than four times its size. */
static void test_spm_long_tokens(void) {
    enum { STEPS = 10, LAST = 2 << (STEPS - 1), LONG = 1 << 20 };
    static char as[LONG];
    bitnet_allocator counted;
    gb_counter count;
    spm s = spm_start();
    bitnet__vocab v;
    bitnet_allocator a;
    bitnet__strings tokens;
    bitnet_token got[32];
    bitnet_result r;
    uint64_t power = 1;
    int64_t n;
    int i, ok = 1;
    memset(&a, 0, sizeof a);
    memset(as, 'a', sizeof as);
    for (i = 0; i < STEPS; i++) {
        gb_string(&s.tokens, as, (size_t)2 << i);
        gb_uint(&s.types, 1, 4);
        gb_float(&s.scores, 1.0f);
    }
    memset(&tokens, 0, sizeof tokens);
    tokens.data = s.tokens.p;
    tokens.size = s.tokens.n;
    tokens.count = SPM_TOKENS + STEPS;
    CHECK(!bitnet__vocab_build(&v, &a, &tokens, s.types.p, 0, s.scores.p, 0));
    n = spm_encode(&v, as, 2 * LAST - 2, 0, got, 32);
    for (i = 0; i < STEPS && i < n; i++) ok = ok && got[i] == SPM_TOKENS + STEPS - 1 - i;
    for (i = 0; i < LAST && bitnet__power(&v, (size_t)i) == power; i++)
        power *= bitnet__roll_factor;
    bitnet__vocab_free(&v, &a);
    CHECK_MSG(n == STEPS && ok, "%d tokens", (int)n);
    CHECK_MSG(i == LAST, "power %d", i);
    gb_string(&s.tokens, as, LONG);
    gb_uint(&s.types, 1, 4);
    gb_float(&s.scores, 1.0f);
    tokens.data = s.tokens.p;
    tokens.size = s.tokens.n;
    tokens.count++;
    counted = gb_counting(&count);
    r = bitnet__vocab_build(&v, &counted, &tokens, s.types.p, 0, s.scores.p, 0);
    bitnet__vocab_free(&v, &counted);
    CHECK(r == BITNET_OK && count.live == 0);
    CHECK_MSG(count.peak <= 4 * tokens.size, "%.1f times the file",
              (double)count.peak / (double)tokens.size);
    free(s.tokens.p);
    free(s.types.p);
    free(s.scores.p);
}

/* Two pairs that overlap: the higher score goes first, of equal ones the left pair. No prefix. */
static void test_spm_ties(void) {
    int i, an = 0;
    for (i = 0; i < 150; i++) if (!strcmp(spm_pieces[i], "an")) an = 259 + i;
    for (i = 0; i < 3; i++) {                              /* ne (token 262) has -3 */
        const float score = i == 0 ? -4.0f : i == 1 ? -3.0f : -2.0f;
        spm s = spm_start();
        bitnet__vocab v;
        bitnet_allocator a;
        bitnet_token got[4];
        uint32_t bits;
        int64_t n;
        memset(&a, 0, sizeof a);
        memcpy(&bits, &score, 4);
        s.scores.n = 4 * (size_t)an;                       /* overwrite one of them */
        gb_uint(&s.scores, bits, 4);
        CHECK(an && !spm_build(&s, &v, 0, 0));
        n = spm_encode(&v, "ane", 3, 0, got, 4);
        bitnet__vocab_free(&v, &a);
        CHECK(n == 2);
        if (i == 0) CHECK(got[0] == 357 && got[1] == 262);         /* a ne */
        else CHECK(got[0] == an && got[1] == 354);                 /* an e */
    }
}

/* Characters are what is merged, so one of three bytes is found without a token for its first two;
   a character that is cut is bytes. */
static void test_spm_characters(void) {
    spm s;
    bitnet__vocab v;
    bitnet_allocator a;
    bitnet_token got[8];
    int64_t n, n_cut;
    memset(&a, 0, sizeof a);
    spm_last = "\xE6\x97\xA5";
    s = spm_start();
    spm_last = 0;
    CHECK(!spm_build(&s, &v, 0, 0));
    n = spm_encode(&v, "it\xE6\x97\xA5it", 7, 0, got, 8);
    n_cut = spm_encode(&v, "it\xE6\x97it", 6, 0, got + 3, 5);
    bitnet__vocab_free(&v, &a);
    CHECK(n == 3 && got[0] == 259 && got[1] == 408 && got[2] == 259);
    CHECK(n_cut == 4 && got[3] == 259 && got[4] == 3 + 0xE6 && got[5] == 3 + 0x97 && got[6] == 259);
}

/* Any bytes come back, behind the space that was added. */
static void test_spm_bytes(void) {
    spm s = spm_start();
    bitnet__vocab v;
    bitnet_allocator a;
    uint64_t seed = 5;
    int round, bad = 0;
    memset(&a, 0, sizeof a);
    CHECK(!spm_build(&s, &v, 1, 0));
    for (round = 0; round < 300 && !bad; round++) {
        char text[600], back[700];
        bitnet_token got[601];
        size_t n = gb_random(&seed) % sizeof text, i, at = 0, len;
        int64_t count;
        for (i = 0; i < n; i++)
            text[i] = round % 2 ? (char)gb_random(&seed)
                                : " thenmodbit\xC3\xA9"[gb_random(&seed) % 13];
        count = spm_encode(&v, text, n, round % 3 == 0, got, 601);
        if (count < 0 || count > 601) bad = 1;
        for (i = 0; !bad && i < (size_t)count; i++) {
            const uint8_t *p = bitnet__vocab_bytes(&v, got[i], &len);
            memcpy(back + at, p, len);
            at += len;
        }
        if (!bad && n && (at != n + 1 || back[0] != ' ' || memcmp(back + 1, text, n))) bad = 2;
        if (!bad && !n && count) bad = 3;
    }
    bitnet__vocab_free(&v, &a);
    CHECK_MSG(!bad, "round %d: %d", round, bad);
}

/* Control tokens are found only if asked for, and what follows one begins with a space again. */
static void test_spm_special(void) {
    static const bitnet_token plain[] = {353, 401, 361, 407, 259}, parsed[] = {1, 342, 2};
    spm s = spm_start();
    bitnet__vocab v;
    bitnet_allocator a;
    bitnet_token got[8], got2[8];
    int64_t n, n2;
    memset(&a, 0, sizeof a);
    CHECK(!spm_build(&s, &v, 1, 0));
    n = spm_encode(&v, "<s>it", 5, 0, got, 8);
    n2 = spm_encode(&v, "<s>it</s>", 9, 1, got2, 8);
    bitnet__vocab_free(&v, &a);
    CHECK(n == 5 && !memcmp(got, plain, sizeof plain));
    CHECK_MSG(n2 == 3 && got2[0] == parsed[0] && got2[2] == parsed[2], "%d", (int)n2);
}

static void test_spm_refused(void) {
    static const uint32_t wild[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffffffffu};
    static const char *const bytes[] = {"<0xG0>", "<0x0G>", "<0y00>", "0x0000"};
    bitnet__vocab v;
    bitnet_error err;
    bitnet_result r;
    int i;
    for (i = 0; i < 4; i++) {
        spm s = spm_start();
        uint8_t *p = s.scores.p + 4 * 300;
        p[0] = (uint8_t)wild[i];
        p[1] = (uint8_t)(wild[i] >> 8);
        p[2] = (uint8_t)(wild[i] >> 16);
        p[3] = (uint8_t)(wild[i] >> 24);
        r = spm_build(&s, &v, 1, &err);
        CHECK(r == BITNET_ERR_FORMAT && strstr(err.text, "token 300"));
    }
    for (i = 0; i < 4; i++) {                              /* token 3: behind the first three */
        spm s = spm_start();
        memcpy(s.tokens.p + 3 * 8 + 5 + 3 + 4 + 8, bytes[i], 6);
        r = spm_build(&s, &v, 1, &err);
        CHECK_MSG(r == BITNET_ERR_FORMAT && strstr(err.text, "token 3:"), "%s", err.text);
    }
    {
        spm s = spm_start();                               /* no token for byte 0x41 */
        memcpy(s.types.p + 4 * (3 + 0x41), "\1\0\0\0", 4);
        r = spm_build(&s, &v, 1, &err);
        CHECK(r == BITNET_ERR_FORMAT && strstr(err.text, "0x41"));
    }
}

static void test_spm_model(void) {
    gb_model g = spm_model(-1, SPM_TOKENS);
    bitnet_model_params p;
    bitnet_model *m = 0;
    bitnet_error err = {BITNET_OK, "", {0}};
    bitnet_token got[8], bare[8];
    char text[64];
    int n, n_bare = 0, n_text, end, quiet;
    gb_make_model(&g);
    memset(&p, 0, sizeof p);
    p.log_fn = count_warnings;
    warnings = 0;
    CHECK_MSG(!bitnet_model_load_memory(g.data, g.size, &p, &m, &err), "%s", err.text);
    n = bitnet_tokenize(m, "the cat", 7, BITNET_ADD_BOS, got, 8);
    n_text = bitnet_detokenize(m, got + 1, n - 1, text, sizeof text);
    end = bitnet_token_is_end(m, 2) && !bitnet_token_is_end(m, 1) && m->vocab.bos == 1 &&
          m->vocab.add_bos;
    quiet = !warnings && bitnet_chat_tokenize(m, 0, 0, 0, 0, 0, 0, NULL) == BITNET_ERR_UNSUPPORTED;
    bitnet_model_free(m);
    gb_free_model(&g);
    CHECK(n == 4 && got[0] == 1 && got[1] == 264 && got[2] == 270 && got[3] == 267);
    CHECK(n_text == 8 && !memcmp(text, " the cat", 8) && end && quiet);
    g = spm_model(0, SPM_TOKENS);
    gb_make_model(&g);
    CHECK(!bitnet_model_load_memory(g.data, g.size, 0, &m, 0));
    n_bare = bitnet_tokenize(m, "the", 3, 0, bare, 8);
    bitnet_model_free(m);
    gb_free_model(&g);
    CHECK(n_bare == 2 && bare[0] == 355 && bare[1] == 261);        /* t he */
    g = spm_model(1, SPM_TOKENS - 1);                      /* a score is missing */
    expect(&g, BITNET_ERR_FORMAT, "tokenizer.ggml.scores", 0);
}

static void test_spm_damage(void) {
    gb_model m = spm_model(1, SPM_TOKENS);
    damage(&m);
}

const test_case sentencepiece_tests[] = {
    {"sentencepiece/texts", test_spm_texts},
    {"sentencepiece/long", test_spm_long},
    {"sentencepiece/long_tokens", test_spm_long_tokens},
    {"sentencepiece/ties", test_spm_ties},
    {"sentencepiece/characters", test_spm_characters},
    {"sentencepiece/bytes", test_spm_bytes},
    {"sentencepiece/special", test_spm_special},
    {"sentencepiece/refused", test_spm_refused},
    {"sentencepiece/model", test_spm_model},
    {"sentencepiece/damage", test_spm_damage},
    {0, 0}
};
