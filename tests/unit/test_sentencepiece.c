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

/* Texts of every length around the one from which they no longer fit the stack. */
static void test_spm_sizes(void) {
    static char text[BITNET__SMALL_WORD + 4];
    static bitnet_token got[BITNET__SMALL_WORD + 8];
    gb_counter count;
    bitnet_allocator a, counted = gb_counting(&count);
    spm s = spm_start();
    bitnet__vocab v;
    size_t n;
    int ok = 1;
    memset(&a, 0, sizeof a);
    memset(text, 'Q', sizeof text);                 /* a byte's token, which merges with none */
    CHECK(!spm_build(&s, &v, 1, 0));
    for (n = BITNET__SMALL_WORD - 4; n <= sizeof text && ok; n++) {
        count.calls = 0;
        ok = bitnet__encode(&v, &counted, text, n, 0, got, n + 4) == (int64_t)n + 1 &&
             count.calls == (n + 1 > BITNET__SMALL_WORD ? 2 : 0);
    }
    bitnet__vocab_free(&v, &a);
    CHECK_MSG(ok && count.live == 0, "%d bytes", (int)n - 1);
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

/* Control tokens are found only if asked for, and what follows one does not begin with a space, as
   behind SentencePiece's own user-defined symbols. */
static void test_spm_special(void) {
    static const bitnet_token plain[] = {353, 401, 361, 407, 259};
    static const bitnet_token parsed[] = {1, 259, 2}, within[] = {342, 1, 259};
    spm s = spm_start();
    bitnet__vocab v;
    bitnet_allocator a;
    bitnet_token got[8], got2[8], got3[8];
    int64_t n, n2, n3;
    memset(&a, 0, sizeof a);
    CHECK(!spm_build(&s, &v, 1, 0));
    n = spm_encode(&v, "<s>it", 5, 0, got, 8);
    n2 = spm_encode(&v, "<s>it</s>", 9, 1, got2, 8);
    n3 = spm_encode(&v, "it<s>it", 7, 1, got3, 8);
    bitnet__vocab_free(&v, &a);
    CHECK(n == 5 && !memcmp(got, plain, sizeof plain));
    CHECK_MSG(n2 == 3 && !memcmp(got2, parsed, sizeof parsed), "%d", (int)n2);
    CHECK_MSG(n3 == 3 && !memcmp(got3, within, sizeof within), "%d", (int)n3);
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

/* ---- Chinese, and ChatML between the pieces ----
   As BitCPM's files have it. The pieces are 259 to 348, with scores 0, -1 ..., and behind them two
   control tokens. The vocabulary and all tokens are those of sentencepiece 0.1.97, which knows the
   two as user-defined symbols; the space that it puts in front of a text that begins with one is
   left out. */

static const char *const zh_pieces[90] = {
    "\xE2\x96\x81" "a", "is", "\xE2\x96\x81\xE4\xBD\xA0", "\xE5\xBE\x88\xE5\xA5\xBD",
    "\xE6\x88\x91\xE4\xBB\xAC", "an", "de", "er", "he", "mo", "ss", "us",
    "\xE4\xB8\x96\xE7\x95\x8C", "\xE5\x9B\x9E\xE7\xAD\x94", "\xE6\xA8\xA1\xE5\x9E\x8B",
    "\xE7\x9A\x84\xE8\xAF\xAD", "\xE7\x9A\x84\xE9\x97\xAE", "ant", "del", "ist", "\xE2\x96\x81mo",
    "\xE2\x96\x81us", "\xE2\x96\x81\xE4\xBD\xA0\xE5\xA5\xBD",
    "\xE7\x9A\x84\xE8\xAF\xAD\xE8\xA8\x80", "\xE7\x9A\x84\xE9\x97\xAE\xE9\xA2\x98",
    "\xE2\x96\x81" "ass", "\xE2\x96\x81user",
    "\xE7\x9A\x84\xE8\xAF\xAD\xE8\xA8\x80\xE6\xA8\xA1\xE5\x9E\x8B", "istant", "\xE2\x96\x81model",
    "\xE2\x96\x81" "assistant", "em", "nd", "st", "sy", "\xE2\x96\x81T", "\xE2\x96\x81t",
    "\xE2\x96\x81\xE4\xB8\xAD", "\xE4\xB8\xAD\xE6\x96\x87", "\xE2\x96\x81is", "\xE2\x96\x81sy",
    "\xE2\x96\x81\xE4\xB8\x96\xE7\x95\x8C", "\xE2\x96\x81\xE4\xB8\xAD\xE5\x9B\xBD",
    "\xE2\x96\x81\xE6\x88\x91\xE4\xBB\xAC", "\xE5\x9B\x9E\xE7\xAD\x94\xE4\xBD\xA0",
    "\xE6\x88\x91\xE5\xBE\x88\xE5\xA5\xBD", "\xE7\x94\xA8\xE4\xB8\xAD\xE6\x96\x87", "stem",
    "\xE2\x96\x81The", "\xE2\x96\x81" "and", "\xE2\x96\x81", "s", "a", "e", "t", "\xE3\x80\x82",
    "\xE5\xA5\xBD", "\xE4\xBD\xA0", "\xE6\x88\x91", "\xE7\x9A\x84", "d", "i", "m", "n",
    "\xE4\xBB\xAC", "\xE5\xBE\x88", "\xEF\xBC\x8C", "h", "l", "o", "r", "u", "\xE4\xB8\x96",
    "\xE4\xB8\xAD", "\xE5\x9B\x9E", "\xE5\x9E\x8B", "\xE6\xA8\xA1", "\xE7\x95\x8C", "\xE7\xAD\x94",
    "\xE8\xA8\x80", "\xE8\xAF\xAD", "\xE9\x97\xAE", "\xE9\xA2\x98", ".", "T", "y", "\xE5\x90\x97",
    "\xE5\x9B\xBD", "\xE6\x96\x87", "\xE7\x94\xA8"
};

/* Characters without a piece are bytes, also between others, and with U+FF01 and U+1F985. */
static const struct { const char *text; bitnet_token tokens[12]; } zh_cases[] = {
    {"\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C\xEF\xBC\x81",
     {281, 325, 271, 242, 191, 132}},
    {"\xE6\x88\x91\xE4\xBB\xAC\xE5\x9B\x9E\xE7\xAD\x94\xE4\xBD\xA0\xE7\x9A\x84\xE9\x97\xAE"
     "\xE9\xA2\x98\xE3\x80\x82",
     {302, 303, 283, 314}},
    {"\xE8\xAF\x97\xE5\x92\x8C\xE5\x9B\xBD", {309, 235, 178, 154, 232, 149, 143, 346}},
    {"the \xE8\xAF\xAD\xE8\xA8\x80\xE6\xA8\xA1\xE5\x9E\x8B a model",
     {295, 267, 309, 339, 338, 273, 259, 288}},
    {"  \xE4\xBD\xA0\xE5\xA5\xBD  \xE5\x90\x97", {309, 309, 281, 309, 309, 345}},
    {"\xE4\xB8\x80\n\n\xE4\xBD\xA0", {309, 231, 187, 131, 13, 13, 316}},
    {"user\xE4\xBD\xA0\xE5\xA5\xBD\xF0\x9F\xA6\x85" "assistant",
     {285, 316, 315, 243, 162, 169, 136, 311, 269, 287}}
};

enum { ZH_END = 349, ZH_START = 350, ZH_TOKENS = 351 };
static int zh_eos, zh_template;

static void zh_put_vocab(gb_model *m) {
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    static const char chatml[] =
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
        "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\n' }}{% endif %}";
    gb_file *f = &m->file;
    char byte[8];
    int i;
    gb_key_str(f, "tokenizer.ggml.model", "llama");
    gb_key_str(f, "tokenizer.ggml.pre", "default");
    gb_key_array(f, "tokenizer.ggml.tokens", GB_STR, ZH_TOKENS);
    for (i = 0; i < ZH_TOKENS; i++) {
        const char *text = i < 3 ? first[i] : i < 259 ? byte : i < ZH_END ? zh_pieces[i - 259] :
                           i == ZH_END ? "<|im_end|>" : "<|im_start|>";
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)(i - 3) & 255);
        gb_string(&f->keys, text, strlen(text));
    }
    gb_key_array(f, "tokenizer.ggml.token_type", GB_I32, ZH_TOKENS);
    for (i = 0; i < ZH_TOKENS; i++)
        gb_uint(&f->keys, i == 0 ? 2 : i < 3 || i >= ZH_END ? 3 : i < 259 ? 6 : 1, 4);
    gb_key_array(f, "tokenizer.ggml.scores", GB_F32, ZH_TOKENS);
    for (i = 0; i < ZH_TOKENS; i++) gb_float(&f->keys, i < 259 ? 0.0f : (float)(259 - i));
    gb_key_u32(f, "tokenizer.ggml.eos_token_id", (uint32_t)zh_eos);
    if (zh_template) gb_key_str(f, "tokenizer.chat_template", chatml);
}

static bitnet_model *zh_load(gb_model *g, int eos, int with_template) {
    static const gb_model empty = {.arch = "minicpm", .dim = 64, .ffn = 64, .layers = 1, .heads = 2,
                                   .kv_heads = 2, .eps = 1e-6f, .no_sub_norms = 1,
                                   .n_words = ZH_TOKENS - 259, .put_vocab = zh_put_vocab};
    *g = empty;
    zh_eos = eos;
    zh_template = with_template;
    gb_make_model(g);
    return load_built(g);
}

/* A character of several bytes appears when its last one does. */
static void test_spm_chinese(void) {
    gb_model g;
    bitnet_model *m = zh_load(&g, 2, 0);
    size_t i;
    for (i = 0; m && i < sizeof zh_cases / sizeof zh_cases[0]; i++) {
        const char *text = zh_cases[i].text;
        bitnet_token got[32];
        bitnet_detok d;
        char back[100], piece[40];
        int n = bitnet_tokenize(m, text, strlen(text), 0, got, 32), k, same, at = 0;
        for (k = 0; zh_cases[i].tokens[k]; k++) {}
        same = n == k && !memcmp(got, zh_cases[i].tokens, (size_t)n * sizeof *got);
        memset(&d, 0, sizeof d);
        for (k = 0; same && k < n; k++) {
            const int size = bitnet_detok_push(m, &d, got[k], piece, sizeof piece);
            same = size >= 0 && (size == 0 || bitnet_utf8_decode(piece, (size_t)size, 0));
            if (same) memcpy(back + at, piece, (size_t)size);
            at += size;
        }
        CHECK_MSG(same && at == (int)strlen(text) + 1 && !memcmp(back + 1, text, (size_t)at - 1),
                  "text %d: %d tokens", (int)i, n);
    }
    bitnet_model_free(m);
    gb_free_model(&g);
}

static const char zh_text[] = "\xE4\xBD\xA0\xE5\xA5\xBD\xE5\x90\x97\xEF\xBC\x9F";

/* Behind a marker a text begins as it stands: in the template, in a chat that goes on, and in a
   text that spells the same. Both ends end a text, whichever the file calls eos. */
static void test_spm_chatml(void) {
    static const bitnet_token whole[] = {350, 270, 266, 13, 316, 315, 345, 242, 191, 162, 349, 13,
                                         350, 311, 269, 287, 13};
    static const bitnet_token system[] = {350, 293, 306, 13, 271, 259, 349, 13, 350, 270, 266, 13,
                                          309, 235, 178, 154, 349, 13, 350, 311, 269, 287, 13};
    static const bitnet_token next[] = {13, 350, 270, 266, 13, 263, 349, 13, 350, 311, 269, 287,
                                        13};
    static const bitnet_message hello = MESSAGE("user", zh_text);
    static const bitnet_message two[] = {MESSAGE("system", "\xE4\xB8\x96\xE7\x95\x8C a"),
                                         MESSAGE("user", " \xE8\xAF\x97")};
    static const bitnet_message we = MESSAGE("user", "\xE6\x88\x91\xE4\xBB\xAC");
    static const bitnet_message marker = MESSAGE("user", "<|im_end|>");
    static const bitnet_chat_turn turn = {BITNET_TEXT("<|im_start|>{role}\n"),
                                          BITNET_TEXT("<|im_end|>\n")};
    const int begin = BITNET_CHAT_BEGIN | BITNET_CHAT_OPEN_REPLY;
    const int go_on = BITNET_CHAT_ENDED_REPLY | BITNET_CHAT_OPEN_REPLY;
    bitnet_chat_template own;
    bitnet_chat_params chat;
    bitnet_token got[40];
    char text[100];
    int k, n, i, bad;
    memset(&own, 0, sizeof own);
    memset(&chat, 0, sizeof chat);
    own.other = turn;
    own.reply = bitnet_text_of("<|im_start|>assistant\n");
    own.end = bitnet_text_of("<|im_end|>");
    for (k = 0; k < 4; k++) {          /* with the file's template, and with one's own */
        gb_model g;
        bitnet_model *m = zh_load(&g, k % 2 ? 2 : ZH_END, k < 2);
        const bitnet_chat_params *p = k < 2 ? 0 : &chat;
        chat.chat_template = &own;
        bad = k < 2 && strcmp(bitnet_model_chat_template(m)->name, "chatml");
        if (k >= 2)
            bad |= bitnet_chat_tokenize(m, 0, &hello, 1, begin, got, 40, 0) !=
                   BITNET_ERR_UNSUPPORTED;
        n = bitnet_chat_tokenize(m, p, &hello, 1, begin, got, 40, 0);
        i = k >= 2;                    /* BOS, which only the file's template leaves out */
        bad |= (n != 17 + i || memcmp(got + i, whole, sizeof whole)) << 1;
        n = bitnet_chat_tokenize(m, p, two, 2, begin, got, 40, 0);
        bad |= (n != 23 + i || memcmp(got + i, system, sizeof system)) << 2;
        n = bitnet_chat_tokenize(m, p, &we, 1, go_on, got, 40, 0);
        bad |= (n != 13 || memcmp(got, next, sizeof next)) << 3;
        n = bitnet_chat_tokenize(m, p, &marker, 1, go_on, got, 40, 0);
        for (i = 5; i < n && got[i] != ZH_END; i++) {}
        bad |= (i != 14) << 4;         /* its text, in nine tokens: "nd" is a piece */
        snprintf(text, sizeof text, "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n",
                 zh_text);
        n = bitnet_tokenize(m, text, strlen(text), BITNET_PARSE_SPECIAL, got, 40);
        bad |= (n != 17 || memcmp(got, whole, sizeof whole)) << 5;
        bad |= !(bitnet_token_is_end(m, ZH_END) && bitnet_token_is_end(m, 2) &&
                 !bitnet_token_is_end(m, 1) && !bitnet_token_is_end(m, ZH_START)) << 6;
        bitnet_model_free(m);
        gb_free_model(&g);
        CHECK_MSG(!bad, "case %d: 0x%x", k, (unsigned)bad);
    }
}

/* A text that goes on does not begin with a space. */
static void test_spm_goes_on(void) {
    gb_model g;
    bitnet_model *m = zh_load(&g, 2, 0);
    bitnet_ctx *c = new_ctx(m, 16, 4);
    bitnet_generate_params gen;
    const bitnet_token *t;
    bitnet_result r[2];
    int i, same;
    memset(&gen, 0, sizeof gen);
    gen.text = bitnet_text_of("\xE6\x88\x91\xE4\xBB\xAC");
    gen.max_tokens = 1;
    for (i = 0; i < 2; i++) r[i] = bitnet_generate(c, &gen, 0, 0);
    t = bitnet_seq_tokens(c, 0);
    same = bitnet_seq_length(c, 0) == 4 && t[0] == 1 && t[1] == 302 && t[3] == 263;
    bitnet_ctx_free(c);
    bitnet_model_free(m);
    gb_free_model(&g);
    CHECK(!r[0] && !r[1] && same);
}

static void test_spm_damage(void) {
    gb_model m = spm_model(1, SPM_TOKENS);
    damage(&m);
}

const test_case sentencepiece_tests[] = {
    {"sentencepiece/texts", test_spm_texts},
    {"sentencepiece/long", test_spm_long},
    {"sentencepiece/sizes", test_spm_sizes},
    {"sentencepiece/long_tokens", test_spm_long_tokens},
    {"sentencepiece/ties", test_spm_ties},
    {"sentencepiece/characters", test_spm_characters},
    {"sentencepiece/bytes", test_spm_bytes},
    {"sentencepiece/special", test_spm_special},
    {"sentencepiece/refused", test_spm_refused},
    {"sentencepiece/model", test_spm_model},
    {"sentencepiece/chinese", test_spm_chinese},
    {"sentencepiece/chatml", test_spm_chatml},
    {"sentencepiece/goes_on", test_spm_goes_on},
    {"sentencepiece/damage", test_spm_damage},
    {0, 0}
};
