/* Tests of bitnet.h's `@unicode` and `@tokenizer` sections. Three kinds of evidence: the golden
   files, made by the reference implementation with the real LLaMA-3 vocabulary; slow second
   implementations of the scanner, of BPE and of the U+FFFD rule, written from their definitions
   in another way and compared on random input; and hostile input with exact-size heap buffers, so
   that a sanitizer build sees every byte read or written out of place. */

#include <time.h>

#include "test.h"

/* ---- helpers: memory and random numbers ---- */

/* Counts what is asked of it and fails on request. Blocks are of the exact size (behind 16 bytes
   that remember it), so ASan sees an overrun by one. */
typedef struct counter {
    size_t total;                   /* bytes ever asked for */
    long live;                      /* blocks not freed */
    long calls, fail_at;            /* the call with this number fails; -1: none */
} counter;

static void *counter_alloc(void *ud, size_t size, size_t align) {
    counter *c = (counter *)ud;
    char *p;
    (void)align;                    /* nothing in the tokenizer needs more than malloc gives */
    if (c->calls++ == c->fail_at) return 0;
    p = (char *)malloc(size + 16);
    if (!p) return 0;
    c->total += size - 64;          /* in front of its block the library keeps the size */
    c->live++;
    memcpy(p, &size, sizeof size);
    return p + 16;
}

/* What is freed with another size than it was allocated with stays counted. */
static void counter_free(void *ud, void *p, size_t size) {
    size_t had;
    if (p) {
        memcpy(&had, (char *)p - 16, sizeof had);
        ((counter *)ud)->live -= had == size;
        free((char *)p - 16);
    }
}

static bitnet_allocator counter_allocator(counter *c) {
    bitnet_allocator a;
    memset(&a, 0, sizeof a);
    c->total = 0;
    c->live = c->calls = 0;
    c->fail_at = -1;
    a.alloc_fn = counter_alloc;
    a.free_fn = counter_free;
    a.ud = c;
    return a;
}

static uint32_t random_below(uint64_t *state, uint32_t n)     /* xorshift64, Marsaglia 2003 */ {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 32) % n);
}

/* ---- helpers: vocabularies ---- */

/* A GGUF string array (or, for types, plain int32s), grown to its exact size each time. */
typedef struct list {
    uint8_t *data;
    size_t size;
    uint64_t count;
} list;

static void list_bytes(list *l, const void *p, size_t n) {
    uint8_t *grown = (uint8_t *)realloc(l->data, l->size + n + (l->size + n == 0));
    if (!grown) abort();
    if (n > 0) memcpy(grown + l->size, p, n);
    l->data = grown;
    l->size += n;
}

static void list_le(list *l, uint64_t value, int bytes) {
    uint8_t b[8];
    int i;
    for (i = 0; i < bytes; i++) b[i] = (uint8_t)(value >> 8 * i);
    list_bytes(l, b, (size_t)bytes);
}

static void list_string(list *l, const void *p, size_t n) {
    list_le(l, n, 8);
    list_bytes(l, p, n);
    l->count++;
}

/* GPT-2's byte encoding, from its definition: printable bytes are themselves, the others are
   numbered from U+0100 on. All are below U+0800. */
static size_t spell(const char *raw, size_t n, char *out) {
    size_t i, at = 0;
    for (i = 0; i < n; i++) {
        int b = (uint8_t)raw[i], cp = b, k;
        int next = 256;
        for (k = 0; k <= b; k++) {
            int printable = (k >= '!' && k <= '~') || (k >= 0xA1 && k <= 0xAC) || k >= 0xAE;
            cp = printable ? k : next++;
        }
        if (cp < 0x80) {
            out[at++] = (char)cp;
        } else {
            out[at++] = (char)(0xC0 | cp >> 6);
            out[at++] = (char)(0x80 | (cp & 0x3F));
        }
    }
    return at;
}

typedef struct small_vocab {        /* what a file would hold; ids of bytes are the bytes */
    list tokens, types, merges;
} small_vocab;

static void small_token(small_vocab *s, const char *raw, size_t n, int type) {
    char *text = (char *)malloc(2 * n + 1);
    if (!text) abort();
    if (type == 1)
        list_string(&s->tokens, text, spell(raw, n, text));
    else
        list_string(&s->tokens, raw, n);
    list_le(&s->types, (uint64_t)type, 4);
    free(text);
}

static void small_merge(small_vocab *s, const char *left, size_t n_left, const char *right,
                        size_t n_right) {
    char *text = (char *)malloc(2 * (n_left + n_right) + 2);
    size_t n;
    if (!text) abort();
    n = spell(left, n_left, text);
    text[n++] = ' ';
    n += spell(right, n_right, text + n);
    list_string(&s->merges, text, n);
    free(text);
}

static void small_init(small_vocab *s) {
    int b;
    memset(s, 0, sizeof *s);
    for (b = 0; b < 256; b++) {
        char c = (char)b;
        small_token(s, &c, 1, 1);
    }
}

static void small_free(small_vocab *s) {
    free(s->tokens.data);
    free(s->types.data);
    free(s->merges.data);
    memset(s, 0, sizeof *s);
}

static bitnet__strings list_strings(const list *l) {
    bitnet__strings s;
    s.data = l->data;
    s.size = l->size;
    s.count = l->count;
    return s;
}

static bitnet_result small_build(const small_vocab *s, const bitnet_allocator *a,
                                 bitnet__vocab *v, bitnet_error *err) {
    bitnet__strings tokens = list_strings(&s->tokens), merges = list_strings(&s->merges);
    memset(err, 0, sizeof *err);
    return bitnet__vocab_build(v, a, &tokens, s->types.data, &merges, 0, err);
}

/* Merges and tokens for the words below, in a usual order, and special tokens that contain and
   overlap each other. Numbers: 256 on in the order of the calls. */
static void small_fill(small_vocab *s) {
    small_token(s, "he", 2, 1);                                     /* 256 */
    small_token(s, "ll", 2, 1);
    small_token(s, "llo", 3, 1);
    small_token(s, "hello", 5, 1);
    small_token(s, " h", 2, 1);                                     /* 260 */
    small_token(s, "AA", 2, 1);
    small_token(s, "AAAA", 4, 1);
    small_token(s, "  ", 2, 1);
    small_token(s, "\n\n", 2, 1);
    small_token(s, "\xF0\x9F", 2, 1);                               /* 265 */
    small_token(s, "whole", 5, 1);                                  /* no merges lead to it */
    small_token(s, "<|a|>", 5, 3);
    small_token(s, "<|a|><|b|>", 10, 3);
    small_token(s, "<|b|>", 5, 4);
    small_token(s, "hello", 5, 3);                                  /* 270 */
    small_token(s, "unused", 6, 5);
    small_merge(s, "h", 1, "e", 1);
    small_merge(s, "l", 1, "l", 1);
    small_merge(s, "ll", 2, "o", 1);
    small_merge(s, "he", 2, "llo", 3);
    small_merge(s, " ", 1, "h", 1);
    small_merge(s, "A", 1, "A", 1);
    small_merge(s, "AA", 2, "AA", 2);
    small_merge(s, " ", 1, " ", 1);
    small_merge(s, "\n", 1, "\n", 1);
    small_merge(s, "\xF0", 1, "\x9F", 1);
}

/* Just enough of a GGUF walker to find the three arrays in the test vocabulary. It trusts the
   file, which is ours. Value types: FORMATS of GGUF v3; 8 = string, 9 = array. */
static const uint8_t *gguf_skip(const uint8_t *p, uint32_t type, bitnet__strings *array) {
    static const uint8_t size[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t i;
    if (type == 8) return p + 8 + bitnet__get_u64(p);
    if (type != 9) return p + size[type];
    array->count = bitnet__get_u64(p + 4);
    type = bitnet__get_u32(p);
    array->data = p = p + 12;
    for (i = 0; i < array->count; i++) p = gguf_skip(p, type, array);
    array->size = (size_t)(p - array->data);
    return p;
}

static int gguf_array(const uint8_t *file, const char *name, bitnet__strings *array) {
    const uint8_t *p = file + 24;                   /* magic, version, tensors, entries */
    uint64_t i, n = bitnet__get_u64(file + 16);
    for (i = 0; i < n; i++) {
        uint64_t length = bitnet__get_u64(p);
        int found = length == strlen(name) && memcmp(p + 8, name, (size_t)length) == 0;
        p += 8 + length;
        p = gguf_skip(p + 4, bitnet__get_u32(p), array);
        if (found) return 1;
    }
    return 0;
}

/* The place of a pre-tokenizer in bitnet__pres. */
static int pre_named(const char *name) {
    int pre = 0;
    while (strcmp(bitnet__pres[pre].name, name)) pre++;
    return pre;
}

/* A vocabulary of the shared test data, or a failed result. *total is the bytes of its three
   arrays. pre: its pre-tokenizer, a place in bitnet__pres. */
static bitnet_result shared_build(const char *name, int pre, bitnet__vocab *v,
                                  const bitnet_allocator *a, size_t *total, bitnet_error *err) {
    bitnet__strings tokens, types, merges = {0, 0, 0}, scores = {0, 0, 0};
    bitnet_result r = BITNET_ERR_IO;
    const char *path = test_shared(name);
    size_t n;
    uint8_t *file = path ? (uint8_t *)test_read_file(path, &n) : 0;
    memset(err, 0, sizeof *err);
    if (file && gguf_array(file, "tokenizer.ggml.tokens", &tokens) &&
        gguf_array(file, "tokenizer.ggml.token_type", &types) &&
        (gguf_array(file, "tokenizer.ggml.merges", &merges) ||
         gguf_array(file, "tokenizer.ggml.scores", &scores))) {
        r = bitnet__vocab_build(v, a, &tokens, types.data, merges.data ? &merges : 0, scores.data,
                                err);
        *total = tokens.size + types.size + merges.size + scores.size;
        if (r == BITNET_OK) v->pre = &bitnet__pres[pre];
    }
    free(file);
    return r;
}

/* LLaMA 3's. */
static bitnet_result llama_build(bitnet__vocab *v, const bitnet_allocator *a, size_t *total,
                                 bitnet_error *err) {
    return shared_build("tokenizer/llama3-vocab.gguf", 0, v, a, total, err);
}

#define NEED_VOCAB(name) \
    do { \
        if (!test_shared("tokenizer/" name "-vocab.gguf")) \
            SKIP("no tokenizer/" name "-vocab.gguf in the shared test data"); \
    } while (0)
#define NEED_LLAMA() NEED_VOCAB("llama3")

/* Encodes into an exact-size buffer. *n tokens; 0 if anything went wrong. */
static bitnet_token *encode(const bitnet__vocab *v, const bitnet_allocator *a, const void *text,
                            size_t size, int special, size_t *n) {
    const char *p = (const char *)text;
    const int flags = special ? BITNET_PARSE_SPECIAL : 0;
    int64_t need = bitnet__encode(v, a, p, size, flags, 0, 0);
    bitnet_token *out;
    *n = 0;
    if (need < 0) return 0;
    out = (bitnet_token *)malloc((size_t)need * sizeof *out + (need == 0));
    if (!out || bitnet__encode(v, a, p, size, flags, out, (size_t)need) != need) {
        free(out);
        return 0;
    }
    *n = (size_t)need;
    return out;
}

/* Whether the raw bytes of the tokens are the text again. */
static int decodes_to(const bitnet__vocab *v, const bitnet_token *t, size_t n, const void *text,
                      size_t size) {
    const uint8_t *want = (const uint8_t *)text;
    size_t i, length, at = 0;
    for (i = 0; i < n; i++) {
        const uint8_t *p = bitnet__vocab_bytes(v, t[i], &length);
        if (length > size - at || memcmp(p, want + at, length) != 0) return 0;
        at += length;
    }
    return at == size;
}

static int round_trips(const bitnet__vocab *v, const bitnet_allocator *a, const void *text,
                       size_t size, int special) {
    size_t n;
    bitnet_token *t = encode(v, a, text, size, special, &n);
    int ok = t && decodes_to(v, t, n, text, size);
    free(t);
    return ok;
}

/* ---- classes and UTF-8 ---- */

static void test_classes(void) {
    /* tests/checks/unicode_tables.py --digest, computed before it packs anything into tables */
    const uint64_t want = (uint64_t)0xC0DC33ADu << 32 | 0x07C0D500u;
    const uint64_t want_punctuation = (uint64_t)0x489D8DA1u << 32 | 0x63D30B4Eu;
    const uint64_t prime = (uint64_t)0x100u << 32 | 0x1B3u;
    uint64_t h = (uint64_t)0xCBF29CE4u << 32 | 0x84222325u, g = h;
    uint32_t cp, count[6] = {0, 0, 0, 0, 0, 0}, punctuation = 0;
    for (cp = 0; cp < 0x110000; cp++) {
        int c = bitnet__class_of(cp);
        CHECK_MSG(c >= BITNET__OTHER && c <= BITNET__NEWLINE, "U+%04X: class %d", cp, c);
        count[c]++;
        h = (h ^ (uint64_t)(c == BITNET__NEWLINE ? BITNET__SPACE : c)) * prime;
        c = bitnet__is_punctuation(cp);
        punctuation += (uint32_t)c;
        g = (g ^ (uint64_t)c) * prime;
    }
    CHECK(count[BITNET__LETTER] == 136104 && count[BITNET__NUMBER] == 1831);
    CHECK(count[BITNET__SPACE] == 23 && count[BITNET__NEWLINE] == 2);
    CHECK(count[BITNET__MARK] == 2450);
    CHECK(h == want);
    CHECK(punctuation == 819 && g == want_punctuation);
}

/* The rows of Table 3-7 of the Unicode Standard: ranges of each byte, length. */
static const uint8_t utf8_rows[9][9] = {
    {1, 0x00, 0x7F, 0, 0, 0, 0, 0, 0},
    {2, 0xC2, 0xDF, 0x80, 0xBF, 0, 0, 0, 0},
    {3, 0xE0, 0xE0, 0xA0, 0xBF, 0x80, 0xBF, 0, 0},
    {3, 0xE1, 0xEC, 0x80, 0xBF, 0x80, 0xBF, 0, 0},
    {3, 0xED, 0xED, 0x80, 0x9F, 0x80, 0xBF, 0, 0},
    {3, 0xEE, 0xEF, 0x80, 0xBF, 0x80, 0xBF, 0, 0},
    {4, 0xF0, 0xF0, 0x90, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
    {4, 0xF1, 0xF3, 0x80, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
    {4, 0xF4, 0xF4, 0x80, 0x8F, 0x80, 0xBF, 0x80, 0xBF},
};

/* How many bytes at p match a row, at best; *whole if they match all of it. */
static size_t slow_utf8(const uint8_t *p, size_t n, int *whole) {
    size_t best = 0, row, i;
    *whole = 0;
    for (row = 0; row < 9; row++) {
        const uint8_t *r = utf8_rows[row];
        for (i = 0; i < r[0] && i < n && p[i] >= r[1 + 2 * i] && p[i] <= r[2 + 2 * i]; i++)
            ;
        if (i > best) best = i;
        if (i == r[0]) *whole = 1;
    }
    return best;
}

/* Every sequence of up to three bytes, and of four with the last two from the edges, decodes as
   the table says; with bytes cut off it never does, and nothing behind the end is read. */
static void test_utf8(void) {
    static const uint8_t edge[6] = {0x7F, 0x80, 0x8F, 0xA0, 0xBF, 0xC0};
    static const char text[] = "\x7F\xC2\x80\xE2\x82\xAC\xF4\x8F\xBF\xBF";
    const uint8_t *t = (const uint8_t *)text, *end = t + sizeof text - 1;
    uint32_t lead, second = 0, k, n, cp = 0, got;
    uint8_t *p = (uint8_t *)malloc(4);
    int whole, ok = p != 0;
    for (lead = 0; ok && lead < 256; lead++)
        for (second = 0; ok && second < 256; second++)
            for (k = 0; ok && k < 36; k++) {
                p[0] = (uint8_t)lead;
                p[1] = (uint8_t)second;
                p[2] = edge[k / 6];
                p[3] = edge[k % 6];
                for (n = 1; ok && n <= 4; n++) {
                    size_t want = slow_utf8(p + 4 - n, n, &whole);
                    got = bitnet__utf8_decode(p + 4 - n, p + 4, &cp);
                    ok = got == (whole ? want : 0);
                }
                for (n = 1; ok && n <= 4; n++) {
                    size_t want = slow_utf8(p, n, &whole);
                    got = bitnet__utf8_decode(p, p + n, &cp);
                    ok = got == (whole ? want : 0);
                }
            }
    free(p);
    CHECK_MSG(ok, "lead %02X second %02X", (unsigned)lead - 1, (unsigned)second - 1);
    CHECK(bitnet__utf8_decode(t, end, &cp) == 1 && cp == 0x7F);
    CHECK(bitnet__utf8_decode(t + 1, end, &cp) == 2 && cp == 0x80);
    CHECK(bitnet__utf8_decode(t + 3, end, &cp) == 3 && cp == 0x20AC);
    CHECK(bitnet__utf8_decode(t + 6, end, &cp) == 4 && cp == 0x10FFFF);
}

/* ---- the scanner against a slow one ---- */

/* Characters that any rule of the regular expression looks at, or nearly, with their class:
   L letter, N number, S white space, n CR or LF, M mark, o other, x bytes that are not UTF-8. The
   sequences of invalid bytes stay invalid whatever follows them here. */
typedef struct nasty { const char *bytes; uint8_t n; char cls; } nasty;
static const nasty alphabet[] = {
    {"'", 1, 'o'}, {"s", 1, 'L'}, {"S", 1, 'L'}, {"\xC5\xBF", 2, 'L'}, {"t", 1, 'L'},
    {"r", 1, 'L'}, {"R", 1, 'L'}, {"e", 1, 'L'}, {"E", 1, 'L'}, {"v", 1, 'L'}, {"M", 1, 'L'},
    {"l", 1, 'L'}, {"L", 1, 'L'}, {"D", 1, 'L'}, {"k", 1, 'L'},
    {"\xE2\x84\xAA", 3, 'L'},                   /* U+212A KELVIN SIGN */
    {"\xEF\xAC\x86", 3, 'L'},                   /* U+FB06 folds to "st", but only in full folding */
    {"\xC7\x85", 2, 'L'}, {"\xC2\xAA", 2, 'L'}, {"\xE6\x9D\xB1", 3, 'L'},
    {"\xF0\x9D\x9D\xB7", 4, 'L'},               /* U+1D777 */
    {"\xCC\x81", 2, 'M'},                       /* combining acute, of category Mn ... */
    {"\xE0\xA4\xBE", 3, 'M'}, {"\xE2\x83\x9D", 3, 'M'},         /* Mc U+093E, Me U+20DD, ... */
    {"\xF3\xA0\x87\xAF", 4, 'M'},               /* ... and the last of all, U+E01EF */
    {"1", 1, 'N'}, {"\xD9\xA3", 2, 'N'}, {"\xE2\x85\xA7", 3, 'N'}, {"\xC2\xBD", 2, 'N'},
    {" ", 1, 'S'}, {"\t", 1, 'S'}, {"\v", 1, 'S'}, {"\xC2\xA0", 2, 'S'}, {"\xC2\x85", 2, 'S'},
    {"\xE2\x80\xA8", 3, 'S'}, {"\xE3\x80\x80", 3, 'S'},
    {"\r", 1, 'n'}, {"\n", 1, 'n'},
    {"!", 1, 'o'}, {"_", 1, 'o'}, {"\0", 1, 'o'}, {"\x1C", 1, 'o'},
    {"\xE2\x80\x8B", 3, 'o'},                   /* U+200B is not white space */
    {"\xEF\xBB\xBF", 3, 'o'}, {"\xF0\x9F\x98\x80", 4, 'o'}, {"\xEE\x80\x80", 3, 'o'},
    {"\xFF", 1, 'x'}, {"\xC0", 1, 'x'}, {"\xE2\x82", 2, 'x'}, {"\xED\xA0", 2, 'x'},
    {"\xF0\x9F\x98", 3, 'x'}
};
enum { N_NASTY = sizeof alphabet / sizeof alphabet[0], MAX_CHARS = 24 };

static int is_space(char c) { return c == 'S' || c == 'n'; }

static int same_letter(const nasty *c, const char *letters)     /* under simple case folding */ {
    if (c->n == 2 && memcmp(c->bytes, "\xC5\xBF", 2) == 0) return letters[0] == 's';
    return c->n == 1 && (c->bytes[0] == letters[0] || c->bytes[0] == letters[0] - 'a' + 'A');
}

/* Where the piece at `at` ends, by trying the alternatives in order and backtracking in each as a
   regular expression engine does, longest first. Characters [at, n) hold no 'x'. digits: 3 for
   \p{N}{1,3}, 1 for \p{N}. letters: the classes of a word's run, "L" or "LM"; marks that are not
   there are in the runs of other characters. */
static int slow_piece(const nasty *const *t, int at, int n, int digits, const char *letters) {
    static const char *const words[7] = {"s", "t", "re", "ve", "m", "ll", "d"};
    const char *const others = strchr(letters, 'M') ? "o" : "oM";
    int i, q, k, max;
    if (t[at]->bytes[0] == '\'')                                /* (?i:'s|'t|'re|...) */
        for (i = 0; i < 7; i++) {
            for (q = 0; words[i][q]; q++)
                if (at + 1 + q >= n || !same_letter(t[at + 1 + q], words[i] + q)) break;
            if (!words[i][q]) return at + 1 + q;
        }
    for (k = 1; k >= 0; k--) {          /* [^\r\n\p{L}\p{N}]?\p{L}+, or [\p{L}\p{M}]+ for this */
        if (k == 1 && (t[at]->cls == 'n' || t[at]->cls == 'L' || t[at]->cls == 'N'))
            continue;
        for (q = at + k; q < n && strchr(letters, t[q]->cls); q++)
            ;
        if (q > at + k) return q;
    }
    for (q = at; q < n && q < at + digits && t[q]->cls == 'N'; q++)  /* \p{N}{1,3} or \p{N} */
        ;
    if (q > at) return q;
    for (k = 1; k >= 0; k--) {                                  /*  ?[^\s\p{L}\p{N}]+[\r\n]* */
        if (k == 1 && t[at]->bytes[0] != ' ') continue;
        for (q = at + k; q < n && strchr(others, t[q]->cls); q++)
            ;
        if (q > at + k) {
            while (q < n && t[q]->cls == 'n') q++;
            return q;
        }
    }
    for (max = at; max < n && is_space(t[max]->cls); max++)
        ;
    for (k = max; k >= at; k--) {                               /* \s*[\r\n]+ */
        for (q = k; q < n && t[q]->cls == 'n'; q++)
            ;
        if (q > k) return q;
    }
    for (k = max; k > at; k--)                                  /* \s+(?!\S) */
        if (k == n || is_space(t[k]->cls)) return k;
    return max;                                                 /* \s+ */
}

/* Compares both scanners on one string of characters; returns 1 if all pieces agree. */
static int same_pieces(const nasty *const *t, int n, const bitnet__pre *pre, const char *letters) {
    uint8_t *text, *p;
    size_t size = 0;
    int i, j, end, ok = 1;
    for (i = 0; i < n; i++) size += t[i]->n;
    text = p = (uint8_t *)malloc(size + (size == 0));
    if (!text) return 0;
    for (i = 0; i < n; p += t[i++]->n) memcpy(p, t[i]->bytes, t[i]->n);
    p = text;
    for (i = 0; ok && i < n; i = end) {
        size_t want = 0;
        if (t[i]->cls == 'x') {                     /* each byte a piece */
            for (j = 0; ok && j < t[i]->n; j++)
                ok = bitnet__word_length(p++, text + size, pre) == 1;
            end = i + 1;
            continue;
        }
        for (end = i; end < n && t[end]->cls != 'x'; end++)
            ;
        /* an invalid byte is like the text's end */
        end = slow_piece(t, i, end, pre->digits, letters);
        for (j = i; j < end; j++) want += t[j]->n;
        ok = bitnet__word_length(p, text + size, pre) == want;
        p += want;
    }
    free(text);
    return ok;
}

/* The scanner with the pre-tokenizer of this name. */
static void check_scanner(const char *name, const char *letters) {
    const nasty *t[MAX_CHARS];
    const bitnet__pre *pre = &bitnet__pres[pre_named(name)];
    uint64_t seed = 20261121;
    int i, n, a, b, c;
    for (a = 0; a < N_NASTY; a++)                   /* all strings of three */
        for (b = 0; b < N_NASTY; b++)
            for (c = 0; c < N_NASTY; c++) {
                t[0] = alphabet + a;
                t[1] = alphabet + b;
                t[2] = alphabet + c;
                CHECK_MSG(same_pieces(t, 3, pre, letters), "%s: entries %d %d %d", name, a, b, c);
            }
    for (i = 0; i < 400000; i++) {                  /* longer ones, often of one rule's kind */
        uint32_t kind = random_below(&seed, 4);
        n = 1 + (int)random_below(&seed, MAX_CHARS);
        for (a = 0; a < n; a++) {
            uint32_t k = random_below(&seed, N_NASTY);
            if (kind == 1)                          /* white space and little else */
                k = 29 + random_below(&seed, 10);
            else if (kind == 2)                     /* contractions */
                k = random_below(&seed, 15);
            t[a] = alphabet + k;
        }
        CHECK_MSG(same_pieces(t, n, pre, letters), "%s: random string %d", name, i);
    }
}

static void test_scanner(void) {
    uint32_t length;
    int a;
    for (a = 0; a < N_NASTY; a++)                   /* the alphabet is what it says it is */
        if (alphabet[a].cls != 'x') {
            const uint8_t *p = (const uint8_t *)alphabet[a].bytes;
            int cls = bitnet__class_at(p, p + alphabet[a].n, BITNET__MARK, &length);
            CHECK_MSG("oLNSMn"[cls] == alphabet[a].cls && length == alphabet[a].n, "entry %d", a);
        }
    check_scanner("llama-bpe", "L");
}

static void test_scanner_qwen(void) {
    check_scanner("qwen2", "L");
    check_scanner("qwen35", "LM");
}

/* ---- falcon_e's scanner against three slow ones, one after the other ---- */

/* As alphabet, but with P what its first expression matches, and D the ASCII digits. */
static const nasty falcon_alphabet[] = {
    {"'", 1, 'P'}, {"s", 1, 'L'}, {"r", 1, 'L'}, {"e", 1, 'L'}, {"l", 1, 'L'},
    {"\xC3\xA9", 2, 'L'}, {"\xE6\x9D\xB1", 3, 'L'}, {"0", 1, 'D'}, {"9", 1, 'D'},
    {"\xD9\xA3", 2, 'N'}, {"\xC2\xBD", 2, 'N'}, {"\xEF\xBC\x91", 3, 'N'},
    {" ", 1, 'S'}, {"\t", 1, 'S'}, {"\n", 1, 'S'}, {"\r", 1, 'S'}, {"\xC2\xA0", 2, 'S'},
    {"\xE3\x80\x80", 3, 'S'}, {"!", 1, 'P'}, {"$", 1, 'P'}, {"`", 1, 'P'},
    {"\xC2\xA1", 2, 'P'},                       /* the table's first, ... */
    {"\xE3\x80\x82", 3, 'P'}, {"\xF0\x9E\xA5\x9F", 4, 'P'},       /* ... and its last */
    {"\0", 1, 'o'}, {"\x7F", 1, 'o'}, {"\xCC\x81", 2, 'o'}, {"\xC2\xA2", 2, 'o'},
    {"\xE2\x82\xAC", 3, 'o'}, {"\xF0\x9F\x98\x80", 4, 'o'}, {"\xFF", 1, 'x'}, {"\xE2\x82", 2, 'x'}
};
enum { N_FALCON = sizeof falcon_alphabet / sizeof falcon_alphabet[0] };

/* Where the run of characters of these classes ends. */
static int falcon_run(const nasty *const *t, int at, int end, const char *classes) {
    while (at < end && strchr(classes, t[at]->cls)) at++;
    return at;
}

/* Where the match of one of the three expressions at `at` ends, which sees [at, end); at: none. */
static int falcon_match(int expression, const nasty *const *t, int at, int end) {
    static const char *const words[7] = {"s", "t", "re", "ve", "m", "ll", "d"};
    static const char *const runs[3] = {"L", "ND", "Po"};
    int i, q, k;
    if (expression == 0) return falcon_run(t, at, end, "P");
    if (expression == 2) return at + (t[at]->cls == 'D');
    for (i = 0; i < 7 && t[at]->bytes[0] == '\''; i++) {        /* 's|'t|'re|'ve|'m|'ll|'d */
        for (q = 0; words[i][q]; q++)
            if (at + 1 + q >= end || t[at + 1 + q]->bytes[0] != words[i][q]) break;
        if (!words[i][q]) return at + 1 + q;
    }
    for (i = 0; i < 3; i++)             /*  ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+ */
        for (k = t[at]->bytes[0] == ' '; k >= 0; k--) {
            q = falcon_run(t, at + k, end, runs[i]);
            if (q > at + k) return q;
        }
    q = falcon_run(t, at, end, "S");
    for (k = q; k > at; k--)                                    /* \s+(?!\S) */
        if (k == end || t[k]->cls == 'S') return k;
    return q;                                                   /* \s+ */
}

/* starts[i] becomes 1 for each character that begins a piece. */
static void falcon_cut(const nasty *const *t, int n, uint8_t *starts) {
    int expression, i, from, end;
    memset(starts, 0, (size_t)n + 1);
    for (i = 0; i < n; i++)                         /* an invalid byte is like the text's end */
        if (i == 0 || t[i]->cls == 'x' || t[i - 1]->cls == 'x') starts[i] = 1;
    starts[n] = 1;
    for (expression = 0; expression < 3; expression++)
        for (from = 0; from < n; from = end) {
            for (end = from + 1; !starts[end]; end++)
                ;
            for (i = from; i < end;) {
                int behind = falcon_match(expression, t, i, end);
                if (behind > i) starts[i] = starts[behind] = 1;
                i = behind > i ? behind : i + 1;
            }
        }
}

/* Compares the scanner with them on one string of characters. */
static int same_falcon_pieces(const nasty *const *t, int n) {
    uint8_t starts[MAX_CHARS + 1], *text, *p;
    size_t size = 0;
    int i, j, end, ok = 1;
    for (i = 0; i < n; i++) size += t[i]->n;
    text = p = (uint8_t *)malloc(size + (size == 0));
    if (!text) return 0;
    for (i = 0; i < n; p += t[i++]->n) memcpy(p, t[i]->bytes, t[i]->n);
    p = text;
    falcon_cut(t, n, starts);
    for (i = 0; ok && i < n; i = end) {
        size_t want = 0, pieces = t[i]->cls == 'x' ? t[i]->n : 1;
        for (end = i + 1; !starts[end]; end++)
            ;
        for (j = i; j < end; j++) want += t[j]->n;
        for (; ok && pieces > 0; pieces--) {
            size_t length = t[i]->cls == 'x' ? 1 : want;
            ok = bitnet__falcon_length(p, text + size) == length;
            p += length;
        }
    }
    free(text);
    return ok;
}

static void test_falcon_scanner(void) {
    const nasty *t[MAX_CHARS];
    uint64_t seed = 42;
    uint32_t length;
    int i, n, a, b, c;
    for (a = 0; a < 128; a++) {                     /* \p{P} of ASCII, and what is named besides */
        uint8_t byte = (uint8_t)a;
        int is = a && strchr("!\"#%&'()*,-./:;?@[\\]_{}" "$+<=>^~|`", a);
        c = bitnet__falcon_class(&byte, &byte + 1, &length);
        CHECK_MSG((c == BITNET__PUNCTUATION) == is, "punctuation %d: %d", a, c);
        CHECK_MSG((c == BITNET__DIGIT) == (a >= '0' && a <= '9'), "digit %d: %d", a, c);
        CHECK_MSG((c == BITNET__SPACE) == (a == ' ' || (a >= 9 && a <= 13)), "space %d: %d", a, c);
    }
    for (a = 0; a < N_FALCON; a++)                  /* all strings of three */
        for (b = 0; b < N_FALCON; b++)
            for (c = 0; c < N_FALCON; c++) {
                t[0] = falcon_alphabet + a;
                t[1] = falcon_alphabet + b;
                t[2] = falcon_alphabet + c;
                CHECK_MSG(same_falcon_pieces(t, 3), "entries %d %d %d", a, b, c);
            }
    for (i = 0; i < 300000; i++) {                  /* longer ones, many with much white space */
        uint32_t kind = random_below(&seed, 3);
        n = 1 + (int)random_below(&seed, MAX_CHARS);
        for (a = 0; a < n; a++)
            t[a] = falcon_alphabet + (kind == 1 ? 7 + random_below(&seed, 12)
                                                : random_below(&seed, N_FALCON));
        CHECK_MSG(same_falcon_pieces(t, n), "random string %d", i);
    }
}

/* Long runs: how many pieces, and in time that grows with the text and not with its square, which
   would be some 10 s. */
static void test_falcon_long(void) {
    enum { SIZE = 120000 };
    static const struct { const char *unit; size_t pieces; } cases[] = {
        {" ", 1}, {"\n", 1}, {"a", 1}, {"!", 1}, {"\x01", 1}, {"\xC2\xBD", 1}, {"\xC2\xA1", 1},
        {"1", SIZE}, {"\xFF", SIZE}, {" a", SIZE / 2}, {" 1", SIZE}, {" !", SIZE}, {" \n", 1},
        {" \xC2\xBD", SIZE / 3}, {"a1", SIZE}, {"a!", SIZE}, {"a \n ", SIZE / 2}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = strlen(cases[i].unit), at, pieces = 0;
        uint8_t *text = (uint8_t *)malloc(SIZE);
        clock_t start = clock();
        CHECK(text != 0);
        for (at = 0; at < SIZE; at += n) memcpy(text + at, cases[i].unit, n);
        for (at = 0; at < SIZE && n > 0; pieces++) {
            n = bitnet__falcon_length(text + at, text + SIZE);
            at += n;
        }
        free(text);
        CHECK_MSG(at == SIZE && pieces == cases[i].pieces, "text %d: %lu pieces", (int)i,
                  (unsigned long)pieces);
        CHECK_MSG((double)(clock() - start) / CLOCKS_PER_SEC < 3.0, "text %d is slow", (int)i);
    }
}

/* ---- BPE against a slow one ---- */

enum { MAX_WORD = 40, MAX_RULES = 60 };
typedef struct rule { char left[MAX_WORD], right[MAX_WORD]; } rule;     /* rank = index */

/* BPE from its definition: of all neighbours that a rule joins, take the lowest rule, leftmost,
   until none is left. parts: strings, returned count. */
static int slow_bpe(const rule *rules, int n_rules, const char *word, char parts[][MAX_WORD]) {
    int n = (int)strlen(word), i, r, found = 1;
    for (i = 0; i < n; i++) {
        parts[i][0] = word[i];
        parts[i][1] = 0;
    }
    while (found) {
        found = 0;
        for (r = 0; !found && r < n_rules; r++)
            for (i = 0; !found && i + 1 < n; i++)
                if (!strcmp(parts[i], rules[r].left) && !strcmp(parts[i + 1], rules[r].right)) {
                    memcpy(parts[i] + strlen(parts[i]), parts[i + 1], strlen(parts[i + 1]) + 1);
                    n--;
                    memmove(parts[i + 1], parts[i + 2], (size_t)(n - i - 1) * sizeof parts[0]);
                    found = 1;
                }
    }
    return n;
}

/* Random rules in random order, so that ranks need not rise with length as in trained ones. */
static int random_rules(uint64_t *seed, rule *rules, small_vocab *s) {
    char known[MAX_RULES + 4][MAX_WORD];
    int n_known = 4, n = 0, i;
    for (i = 0; i < 4; i++) {
        known[i][0] = (char)('a' + i);
        known[i][1] = 0;
    }
    while (n < MAX_RULES) {
        rule r, swap;
        uint32_t at;
        strcpy(r.left, known[random_below(seed, (uint32_t)n_known)]);
        strcpy(r.right, known[random_below(seed, (uint32_t)n_known)]);
        if (strlen(r.left) + strlen(r.right) > 9) continue;
        strcpy(known[n_known], r.left);
        strcat(known[n_known], r.right);
        small_token(s, known[n_known], strlen(known[n_known]), 1);
        n_known++;
        rules[n++] = r;
        at = random_below(seed, (uint32_t)n);
        swap = rules[at];
        rules[at] = rules[n - 1];
        rules[n - 1] = swap;
    }
    for (i = 0; i < n; i++)
        small_merge(s, rules[i].left, strlen(rules[i].left), rules[i].right,
                    strlen(rules[i].right));
    return n;
}

/* One random vocabulary and words over it: the tokens' texts must be the slow one's parts. */
static int same_bpe(uint64_t *seed, const bitnet_allocator *a) {
    static rule rules[MAX_RULES];
    static char parts[MAX_WORD][MAX_WORD];
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    int n_rules, w, i, ok;
    small_init(&s);
    n_rules = random_rules(seed, rules, &s);
    ok = small_build(&s, a, &v, &err) == BITNET_OK;
    small_free(&s);
    if (!ok) return 0;
    for (w = 0; ok && w < 100; w++) {
        char word[MAX_WORD];
        int n = 1 + (int)random_below(seed, MAX_WORD - 1), n_parts;
        size_t n_tokens = 0, length;
        bitnet_token *t;
        for (i = 0; i < n; i++) word[i] = (char)('a' + random_below(seed, 4));
        word[n] = 0;
        if (bitnet__vocab_find(&v, word, (size_t)n) >= 0)
            continue;                               /* emitted whole: another test's business */
        n_parts = slow_bpe(rules, n_rules, word, parts);
        t = encode(&v, a, word, (size_t)n, 0, &n_tokens);
        ok = t && n_tokens == (size_t)n_parts;
        for (i = 0; ok && i < n_parts; i++) {
            const uint8_t *p = bitnet__vocab_bytes(&v, t[i], &length);
            ok = length == strlen(parts[i]) && memcmp(p, parts[i], length) == 0;
        }
        free(t);
    }
    bitnet__vocab_free(&v, a);
    return ok;
}

static void test_bpe(void) {
    uint64_t seed = 11;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    int i;
    for (i = 0; i < 200; i++)
        CHECK_MSG(same_bpe(&seed, &a), "random vocabulary %d", i);
    CHECK(c.live == 0);
}

/* ---- goldens ---- */

/* Four hex digits, or -1. */
static int32_t json_hex(const char *p) {
    int32_t value = 0;
    int i;
    for (i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *at = p[i] ? strchr(digits, p[i]) : 0;
        if (!at) return -1;
        value = value * 16 + (int32_t)(at - digits) % 16;
    }
    return value;
}

static char *put_utf8(char *out, uint32_t cp) {
    if (cp < 0x80) {
        *out++ = (char)cp;
    } else if (cp < 0x800) {
        *out++ = (char)(0xC0 | cp >> 6);
        *out++ = (char)(0x80 | (cp & 0x3F));
    } else if (cp < 0x10000) {
        *out++ = (char)(0xE0 | cp >> 12);
        *out++ = (char)(0x80 | (cp >> 6 & 0x3F));
        *out++ = (char)(0x80 | (cp & 0x3F));
    } else {
        *out++ = (char)(0xF0 | cp >> 18);
        *out++ = (char)(0x80 | (cp >> 12 & 0x3F));
        *out++ = (char)(0x80 | (cp >> 6 & 0x3F));
        *out++ = (char)(0x80 | (cp & 0x3F));
    }
    return out;
}

/* A JSON string from behind its opening quote, into out (never longer). Returns what is behind
   its closing quote, or 0. */
static const char *json_string(const char *p, char *out, size_t *n) {
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char *start = out;
    for (; *p != '"'; p++) {
        if (*p == 0) return 0;
        if (*p != '\\') {
            *out++ = *p;
            continue;
        }
        p++;
        if (*p == 'u') {
            int32_t cp = json_hex(p + 1), low;
            if (cp < 0) return 0;
            p += 4;
            if (cp >= 0xD800 && cp < 0xDC00) {      /* the first half of a pair */
                low = p[1] == '\\' && p[2] == 'u' ? json_hex(p + 3) : -1;
                if (low < 0xDC00 || low > 0xDFFF) return 0;
                cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
                p += 6;
            }
            out = put_utf8(out, (uint32_t)cp);
        } else {
            const char *at = *p ? strchr(names, *p) : 0;
            if (!at) return 0;
            *out++ = meant[at - names];
        }
    }
    *n = (size_t)(out - start);
    return p + 1;
}

/* Checks one line {"text":"...","ids":[1,2]}. Returns 1, or 0 if it is wrong in any way. */
static int golden_line(const bitnet__vocab *v, const bitnet_allocator *a, const char *line,
                       int special) {
    char *text = (char *)malloc(strlen(line) + 1), *end;
    bitnet_token *got = 0;
    const char *p = 0;
    size_t n = 0, n_got = 0, i;
    int ok;
    if (text && strncmp(line, "{\"text\":\"", 9) == 0) p = json_string(line + 9, text, &n);
    ok = p != 0 && strncmp(p, ",\"ids\":[", 8) == 0;
    if (ok) {
        p += 8;
        got = encode(v, a, text, n, special, &n_got);
        /* a text that is not NFC comes back as NFC */
        ok = got != 0 && (v->pre->nfc || decodes_to(v, got, n_got, text, n));
    }
    for (i = 0; ok && i < n_got; i++) {
        ok = strtol(p, &end, 10) == got[i] && end > p && (i + 1 == n_got || *end == ',');
        p = i + 1 < n_got ? end + 1 : end;
    }
    ok = ok && strcmp(p, "]}") == 0;
    free(got);
    free(text);
    return ok;
}

/* All lines of the golden file at path. Returns the number of the first bad line, 0 if all are
   good, and their count; -1 if there is no file or vocabulary. */
static int golden_file(const char *vocab, int pre, const char *path, int special, int *count) {
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    size_t size = 0, total;
    char *file = path ? (char *)test_read_file(path, &size) : 0, *line = file, *end;
    int bad = 0;
    *count = 0;
    if (!file || shared_build(vocab, pre, &v, &a, &total, &err) != BITNET_OK) {
        free(file);
        return -1;
    }
    while (!bad && (end = (char *)memchr(line, '\n', size - (size_t)(line - file))) != 0) {
        *end = 0;
        ++*count;
        if (!golden_line(&v, &a, line, special)) bad = *count;
        line = end + 1;
    }
    bitnet__vocab_free(&v, &a);
    free(file);
    return c.live == 0 ? bad : -1;
}

static void test_golden(void) {
    int count, bad;
    NEED_LLAMA();
    bad = golden_file("tokenizer/llama3-vocab.gguf", 0, test_shared("tokenizer/golden.jsonl"), 0,
                      &count);
    CHECK_MSG(bad == 0, "line %d", bad);
    CHECK_MSG(count == 3000, "%d texts", count);
}

static void test_golden_special(void) {
    int count, bad;
    NEED_LLAMA();
    bad = golden_file("tokenizer/llama3-vocab.gguf", 0,
                      test_shared("tokenizer/golden-special.jsonl"), 1, &count);
    CHECK_MSG(bad == 0, "line %d", bad);
    CHECK_MSG(count == 300, "%d texts", count);
}

/* Chats with real vocabularies, whose pieces reach over the ends of messages: the tokens are those
   of the whole text. */
static int real_chat(const char *vocab, int pre, const char *name, const char *text) {
    static const bitnet_message talk[] = {
        MESSAGE("system", "\n\nBe brief.\n"), MESSAGE("user", "  don't\n\n"),
        MESSAGE("assistant", "\xC3\xA9: 1234 \n"), MESSAGE("user", "\nx")
    };
    static bitnet_token got[200], want[200];
    static bitnet__encoder e;
    bitnet_chat_params p = {.thinking = BITNET_THINK_OFF};
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    size_t total, k = 0;
    int n, n_want;
    if (shared_build(vocab, pre, &v, &a, &total, &err) != BITNET_OK) return 0;
    while (strcmp(bitnet__chat_rows[k].t.name, name)) k++;
    p.chat_template = &bitnet__chat_rows[k].t;
    bitnet__encoder_open(&e, &v, &a, got, 200);
    if (bitnet__encode_chat(&e, &p, talk, 4, BITNET_CHAT_OPEN_REPLY, 0)) return 0;
    n = bitnet__encoder_close(&e);
    n_want = bitnet__encode(&v, &a, text, strlen(text), BITNET_PARSE_SPECIAL, want, 200);
    bitnet__vocab_free(&v, &a);
    return n > 20 && n == n_want && !memcmp(got, want, (size_t)n * sizeof *got) && c.live == 0;
}

static void test_chat_llama(void) {
    NEED_LLAMA();
    CHECK(real_chat("tokenizer/llama3-vocab.gguf", 0, "llama-3",
                    "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
                    "<|start_header_id|>user<|end_header_id|>\n\ndon't<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\n\xC3\xA9: 1234<|eot_id|>"
                    "<|start_header_id|>user<|end_header_id|>\n\nx<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\n"));
    CHECK(real_chat("tokenizer/llama3-vocab.gguf", 0, "bitnet-2b-4t",
                    "System: Be brief.<|eot_id|>User: don't<|eot_id|>Assistant: \xC3\xA9: 1234"
                    "<|eot_id|>User: x<|eot_id|>Assistant: "));
}

static void test_chat_qwen(void) {
    NEED_VOCAB("qwen3");
    CHECK(real_chat("tokenizer/qwen3-vocab.gguf", pre_named("qwen2"), "qwen-3",
                    "<|im_start|>system\n\n\nBe brief.\n<|im_end|>\n<|im_start|>user\n  don't\n\n"
                    "<|im_end|>\n<|im_start|>assistant\n\xC3\xA9: 1234 \n<|im_end|>\n"
                    "<|im_start|>user\n\nx<|im_end|>\n<|im_start|>assistant\n"
                    "<think>\n\n</think>\n\n"));
}

static void test_golden_qwen(void) {
    int count, bad;
    NEED_VOCAB("qwen3");
    bad = golden_file("tokenizer/qwen3-vocab.gguf", pre_named("qwen2"),
                      test_shared("tokenizer/golden-qwen3.jsonl"), 0, &count);
    CHECK_MSG(bad == 0, "line %d", bad);
    CHECK_MSG(count == 2000, "%d texts", count);
}

/* Texts full of combining marks, by the tokenizers library (npm, 0.2.0) with Qwen3's vocabulary and
   qwen35's expression; Python's regex cut them at the same places. */
static void test_golden_qwen35(void) {
    int count, bad;
    NEED_VOCAB("qwen3");
    bad = golden_file("tokenizer/qwen3-vocab.gguf", pre_named("qwen35"),
                      test_data("golden-qwen35.jsonl"), 0, &count);
    CHECK_MSG(bad == 0, "line %d", bad);
    CHECK_MSG(count == 600, "%d texts", count);
}

static void test_golden_gemma(void) {
    int count, bad;
    NEED_VOCAB("gemma3");
    bad = golden_file("tokenizer/gemma3-vocab.gguf", 0,
                      test_shared("tokenizer/golden-gemma3.jsonl"), 0, &count);
    CHECK_MSG(bad == 0, "line %d", bad);
    CHECK_MSG(count == 2000, "%d texts", count);
}

/* ---- round trips ---- */

/* Random bytes: all kinds, mostly UTF-8's own, or the small vocabulary's words. */
static size_t random_text(uint64_t *seed, uint8_t *text, size_t max) {
    static const char *const bits[12] = {
        "hello", " he", "<|a|>", "<|", "|>", "\xF0\x9F\x98\x80", "\xE2\x82", "AAA", "  ", "\n",
        "'LL", "\xED\xA0\x80"
    };
    size_t n = 0, want = random_below(seed, (uint32_t)max - 8);
    uint32_t kind = random_below(seed, 3);
    while (n < want) {
        if (kind == 0) {
            text[n++] = (uint8_t)random_below(seed, 256);
        } else if (kind == 1) {
            text[n++] = (uint8_t)(0x80 + random_below(seed, 128));
        } else {
            const char *s = bits[random_below(seed, 12)];
            memcpy(text + n, s, strlen(s));
            n += strlen(s);
        }
    }
    return n;
}

static int random_round_trips(const bitnet__vocab *v, const bitnet_allocator *a, int times) {
    uint64_t seed = 7;
    uint8_t buffer[400];
    int i, ok = 1;
    for (i = 0; ok && i < times; i++) {
        size_t n = random_text(&seed, buffer, sizeof buffer);
        uint8_t *exact = (uint8_t *)malloc(n + (n == 0));
        if (!exact) return 0;
        memcpy(exact, buffer, n);
        ok = round_trips(v, a, exact, n, i & 1);
        free(exact);
    }
    return ok;
}

/* A megabyte (quick: a tenth) of each of these must finish: nobody waits for a quadratic run. */
static int megabytes(const bitnet__vocab *v, const bitnet_allocator *a) {
    static const char *const patterns[] = {
        "A", " ", "\n", "\t", "\xF0\x9F\x98\x80", "'", " \n", "\n ", "<", "<|", "<|a|", "\xFF",
        "\xE2\x82", "1", "l", "'l", " '", "\xE3\x80\x80", "\xCC\x81", "=", "<|reserved_special_",
        "AB", "\xD0\xB0"
    };
    const size_t size = test_quick() ? 100000 : 1000000;
    char *text = (char *)malloc(size);
    bitnet_token *out = (bitnet_token *)malloc(size * sizeof *out);
    size_t k, i, period;
    int ok = text && out;
    for (k = 0; ok && k < sizeof patterns / sizeof patterns[0]; k++) {
        int64_t n;
        period = strlen(patterns[k]);
        for (i = 0; i < size; i++) text[i] = patterns[k][i % period];
        n = bitnet__encode(v, a, text, size, k & 1 ? BITNET_PARSE_SPECIAL : 0, out, size);
        ok = n > 0 && decodes_to(v, out, (size_t)n, text, size);
    }
    free(out);
    free(text);
    return ok;
}

static void test_roundtrip_small(void) {
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    bitnet_result r;
    char all[256];
    int b, ok;
    for (b = 0; b < 256; b++) all[b] = (char)b;
    small_init(&s);
    small_fill(&s);
    r = small_build(&s, &a, &v, &err);
    small_free(&s);
    CHECK_MSG(r == BITNET_OK, "%s", err.text);
    ok = round_trips(&v, &a, all, 256, 0) &&
         random_round_trips(&v, &a, test_quick() ? 2000 : 20000) && megabytes(&v, &a);
    bitnet__vocab_free(&v, &a);
    CHECK(ok);
    CHECK(c.live == 0);
}

static void test_roundtrip_llama(void) {
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    size_t total;
    bitnet_result r;
    int ok;
    NEED_LLAMA();
    r = llama_build(&v, &a, &total, &err);
    CHECK_MSG(r == BITNET_OK, "%s", err.text);
    ok = random_round_trips(&v, &a, test_quick() ? 500 : 5000) && megabytes(&v, &a);
    bitnet__vocab_free(&v, &a);
    CHECK(ok);
}

/* ---- known encodings ---- */

/* Checks one encoding against numbers that end with -1. */
static int encodes_as(const bitnet__vocab *v, const bitnet_allocator *a, const char *text,
                      size_t size, int special, const bitnet_token *want) {
    size_t n, i;
    bitnet_token *t = encode(v, a, text, size, special, &n);
    int ok = t != 0;
    for (i = 0; ok && i < n; i++) ok = want[i] >= 0 && t[i] == want[i];
    ok = ok && want[n] < 0;
    free(t);
    return ok;
}

static void test_small_encodings(void) {
    static const bitnet_token hello[] = {259, -1}, whole[] = {266, -1}, a3[] = {261, 'A', -1};
    static const bitnet_token spaced[] = {' ', 259, -1};
    static const bitnet_token invalid[] = {'h', 0xFF, 0xE2, 0x82, 263, 0xC0, 'e', -1};
    static const bitnet_token nul[] = {0, 'h', -1};
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    int ok[8];
    small_init(&s);
    small_fill(&s);
    CHECK(small_build(&s, &a, &v, &err) == BITNET_OK);
    small_free(&s);
    ok[0] = encodes_as(&v, &a, "hello", 5, 0, hello);
    ok[1] = encodes_as(&v, &a, "whole", 5, 0, whole);
    ok[2] = encodes_as(&v, &a, "AAA", 3, 0, a3);
    ok[3] = encodes_as(&v, &a, " hello", 6, 0, spaced);     /* "h e" ranks before "  h" */
    ok[4] = encodes_as(&v, &a, "h\xFF\xE2\x82  \xC0" "e", 8, 0, invalid);
    ok[5] = encodes_as(&v, &a, "\0h", 2, 0, nul);
    ok[6] = bitnet__encode(&v, &a, 0, 0, BITNET_PARSE_SPECIAL, 0, 0) == 0;     /* no text at all */
    ok[7] = encodes_as(&v, &a, "", 0, 0, hello + 1);
    bitnet__vocab_free(&v, &a);
    CHECK(ok[0]);
    CHECK(ok[1]);
    CHECK(ok[2]);
    CHECK(ok[3]);
    CHECK(ok[4]);
    CHECK(ok[5]);
    CHECK(ok[6]);
    CHECK(ok[7]);
}

static void test_special(void) {
    static const bitnet_token longest[] = {268, 267, -1};
    static const bitnet_token nested[] = {'<', '|', 267, '|', '>', -1};
    static const bitnet_token adjacent[] = {269, 270, '<', '|', 'b', '|', -1};
    static const bitnet_token plain[] = {'<', '|', 'a', '|', '>', -1};
    static const bitnet_token user[] = {269, '<', '|', 'a', '|', '>', -1};
    static const bitnet_token word[] = {259, -1}, control[] = {270, -1};
    static const bitnet_token unused[] = {'u', 'n', 'u', 's', 'e', 'd', -1};
    static const bitnet_token around[] = {263, 267, 263, -1};
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    int ok[10], found[7];
    small_init(&s);
    small_fill(&s);
    CHECK(small_build(&s, &a, &v, &err) == BITNET_OK);
    small_free(&s);
    ok[0] = encodes_as(&v, &a, "<|a|><|b|><|a|>", 15, 1, longest);
    ok[1] = encodes_as(&v, &a, "<|<|a|>|>", 9, 1, nested);
    ok[2] = encodes_as(&v, &a, "<|b|>hello<|b|", 14, 1, adjacent);
    ok[3] = encodes_as(&v, &a, "<|a|>", 5, 0, plain);
    ok[9] = encodes_as(&v, &a, "<|b|><|a|>", 10, 0, user);  /* user-defined tokens always count */
    ok[4] = encodes_as(&v, &a, "hello", 5, 0, word);
    ok[5] = encodes_as(&v, &a, "hello", 5, 1, control);
    ok[6] = encodes_as(&v, &a, "unused", 6, 1, unused);
    ok[7] = encodes_as(&v, &a, "unused", 6, 0, unused);
    ok[8] = encodes_as(&v, &a, "  <|a|>  ", 9, 1, around);  /* to \s+(?!\S) each stretch ends */
    found[0] = bitnet__vocab_find(&v, "<|a|>", 5);
    found[1] = bitnet__vocab_find(&v, "hello", 5);          /* special before normal */
    found[2] = bitnet__vocab_find(&v, "unused", 6);
    found[3] = bitnet__vocab_find(&v, "<|a|", 4);
    found[4] = bitnet__vocab_find(&v, "AAAA", 4);
    found[5] = bitnet__vocab_find(&v, "<|a|>>", 6);         /* all of the text, not its start */
    found[6] = bitnet__vocab_find(&v, "unused ", 7);
    bitnet__vocab_free(&v, &a);
    CHECK(ok[0]);
    CHECK(ok[1]);
    CHECK(ok[2]);
    CHECK(ok[3]);
    CHECK(ok[4]);
    CHECK(ok[5]);
    CHECK(ok[6]);
    CHECK(ok[7]);
    CHECK(ok[8]);
    CHECK(ok[9]);
    CHECK(found[0] == 267 && found[1] == 270 && found[2] == 271);
    CHECK(found[3] == -1 && found[4] == 262);
    CHECK(found[5] == -1 && found[6] == -1);
}

/* Special tokens, and a third that is unused or unknown, against comparing all of them: the longest
   special one at the first place that has any, the first of equals; and each by its name. */
enum { N_LITERALS = 36 };

static int same_search(const bitnet__vocab *v, char texts[][8], const char *text, size_t n) {
    const uint8_t *at = 0, *p = (const uint8_t *)text;
    size_t length = 0, place, best = 0;
    int want = -1, got, i;
    for (place = 0; want < 0 && place < n; place++)
        for (i = 0; i < N_LITERALS; i++) {
            size_t len = strlen(texts[i]);
            if (i % 3 && len > best && len <= n - place && !memcmp(texts[i], text + place, len)) {
                best = len;
                want = 256 + i;
            }
        }
    got = bitnet__find_special(v, 1, p, p + n, &at, &length);
    return got == want && (want < 0 ? at == p + n : at == p + place - 1 && length == best);
}

static int same_name(const bitnet__vocab *v, char texts[][8], const char *name) {
    int i, special = -1, other = -1;
    for (i = N_LITERALS - 1; i >= 0; i--)
        if (name[0] && !strcmp(texts[i], name)) *(i % 3 ? &special : &other) = 256 + i;
    if (special < 0 && strlen(name) == 1) special = (uint8_t)name[0];   /* the byte's own token */
    return bitnet__vocab_find(v, name, strlen(name)) == (special >= 0 ? special : other);
}

static int same_special(uint64_t *seed, const bitnet_allocator *a) {
    static const int types[6] = {5, 3, 4, 2, 4, 3};
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    char texts[N_LITERALS][8], text[20];
    int i, k, ok;
    small_init(&s);
    for (i = 0; i < N_LITERALS; i++) {
        int n = (int)random_below(seed, 7);
        for (k = 0; k < n; k++) texts[i][k] = "ab<"[random_below(seed, 3)];
        texts[i][n] = 0;
        small_token(&s, texts[i], (size_t)n, types[i % 6]);
    }
    ok = small_build(&s, a, &v, &err) == BITNET_OK;
    small_free(&s);
    if (!ok) return 0;
    for (i = 0; ok && i < N_LITERALS; i++) ok = same_name(&v, texts, texts[i]);
    for (k = 0; ok && k < 200; k++) {
        int n = (int)random_below(seed, 20);
        for (i = 0; i < n; i++) text[i] = "abc<"[random_below(seed, 4)];
        ok = same_search(&v, texts, text, (size_t)n);
    }
    bitnet__vocab_free(&v, a);
    return ok;
}

static void test_special_random(void) {
    uint64_t seed = 5;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    int i;
    for (i = 0; i < 200; i++)
        CHECK_MSG(same_special(&seed, &a), "random special tokens %d", i);
    CHECK(c.live == 0);
}

/* A buffer of every size from none to enough: the count never changes, the start is the same,
   and, each buffer being of that exact size, ASan would see a token too many. */
static void test_capacity(void) {
    static const char text[] = "hello AAAAAAA \xFF<|a|> whole";
    const uint8_t *p = (const uint8_t *)text;
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    bitnet_token *full;
    size_t n, cap, size = sizeof text - 1;
    int ok;
    small_init(&s);
    small_fill(&s);
    CHECK(small_build(&s, &a, &v, &err) == BITNET_OK);
    small_free(&s);
    full = encode(&v, &a, text, size, 1, &n);
    ok = full != 0 && n > 8;
    for (cap = 0; ok && cap < n + 2; cap++) {
        bitnet_token *t = (bitnet_token *)malloc(cap * sizeof *t + (cap == 0));
        ok = t && bitnet__encode(&v, &a, p, size, BITNET_PARSE_SPECIAL, cap ? t : 0, cap) ==
                      (int64_t)n &&
             memcmp(t, full, (cap < n ? cap : n) * sizeof *t) == 0;
        free(t);
    }
    free(full);
    bitnet__vocab_free(&v, &a);
    CHECK(ok);
}

/* ---- memory ---- */

/* Fails each allocation in turn, of building and of a piece too long for the stack. */
static void test_memory_failures(void) {
    small_vocab s;
    bitnet__vocab v, zero;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    static uint8_t text[5000];
    bitnet_result r = BITNET_ERR_MEMORY;
    int64_t n = BITNET_ERR_MEMORY;
    long tries;
    memset(&zero, 0, sizeof zero);
    memset(text, 'x', sizeof text);
    text[400] = ' ';                                /* two pieces, so that the room grows twice */
    small_init(&s);
    small_fill(&s);
    for (tries = 0; r == BITNET_ERR_MEMORY && tries < 100; tries++) {
        c.calls = 0;
        c.fail_at = tries;
        r = small_build(&s, &a, &v, &err);
        if (r != BITNET_OK) {
            CHECK(c.live == 0 && err.code == BITNET_ERR_MEMORY && err.text[0] != 0);
            CHECK(memcmp(&v, &zero, sizeof v) == 0);
        }
    }
    CHECK(r == BITNET_OK && tries > 1);
    bitnet__vocab_free(&v, &a);
    CHECK(c.live == 0);
    c.fail_at = -1;
    CHECK(small_build(&s, &a, &v, &err) == BITNET_OK);
    small_free(&s);
    for (tries = 0; n == BITNET_ERR_MEMORY && tries < 10; tries++) {
        long live = c.live;
        c.calls = 0;
        c.fail_at = tries;
        n = bitnet__encode(&v, &a, text, sizeof text, 0, 0, 0);
        CHECK(c.live == live);
    }
    CHECK(n == (int64_t)sizeof text && tries > 2);
    bitnet__vocab_free(&v, &a);
    CHECK(c.live == 0);
}

/* Pieces of every length around the one from which they no longer fit the stack. */
static void test_piece_sizes(void) {
    static char text[3 * BITNET__SMALL_WORD];
    static bitnet_token out[3 * BITNET__SMALL_WORD];
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    size_t n, i;
    memset(text, 'A', sizeof text);
    small_init(&s);
    small_fill(&s);
    CHECK(small_build(&s, &a, &v, &err) == BITNET_OK);
    small_free(&s);
    for (n = 3; n <= sizeof text; n++) {            /* one and two letters are tokens */
        size_t whole = n / 4, want = whole + n % 4 / 2 + n % 2;
        c.calls = 0;
        CHECK(bitnet__encode(&v, &a, text, n, 0, out, want) == (int64_t)want);
        CHECK(c.calls == (n > BITNET__SMALL_WORD));
        for (i = 0; i < want; i++)
            CHECK(out[i] == (i < whole ? 262 : n % 4 >= 2 && i == whole ? 261 : 'A'));
    }
    bitnet__vocab_free(&v, &a);
    CHECK(c.live == 0);
}

/* Everything a build asks for, added up, stays under four times what the file holds. */
static void test_memory_budget(void) {
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    int extra, ok = 1;
    small_init(&s);
    for (extra = 0; ok && extra < 600; extra++) {           /* past the steps of both tables */
        char two[2];
        size_t input = s.tokens.size + s.merges.size;       /* even with no types */
        c.total = 0;
        ok = small_build(&s, &a, &v, &err) == BITNET_OK && c.total < 4 * input;
        ok = ok && v.memory == c.total;
        bitnet__vocab_free(&v, &a);
        two[0] = (char)(extra / 256);
        two[1] = (char)extra;
        if (extra % 3 == 0)
            small_token(&s, "", 0, 1);                      /* the least a token can take */
        small_token(&s, two, 2, 1);
        small_merge(&s, two, 1, two + 1, 1);
    }
    small_free(&s);
    CHECK(ok);
    CHECK(c.live == 0);
    if (test_shared("tokenizer/llama3-vocab.gguf")) {
        size_t total = 0;
        bitnet_result r;
        c.total = 0;
        r = llama_build(&v, &a, &total, &err);
        CHECK_MSG(r == BITNET_OK, "%s", err.text);
        bitnet__vocab_free(&v, &a);
        CHECK_MSG(c.total < 2 * total, "%.0f of %.0f bytes", (double)c.total, (double)total);
    }
}

/* ---- hostile vocabularies ---- */

/* Builds s, frees both, and tells whether the result was r, with `part` in the error text, for no
   more memory than a good file of that size could cost. */
static int fails_with(small_vocab *s, bitnet_result want, const char *part) {
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    bitnet__strings tokens = list_strings(&s->tokens), merges = list_strings(&s->merges);
    bitnet_result r = small_build(s, &a, &v, &err), silent;
    int ok = r == want && err.code == want && strstr(err.text, part) != 0;
    if (!ok) printf("  got %d \"%s\", wanted %d \"%s\"\n", (int)r, err.text, (int)want, part);
    if (r == BITNET_OK) bitnet__vocab_free(&v, &a);
    ok = ok && c.total <= 4 * (s->tokens.size + s->types.size + s->merges.size);
    silent = bitnet__vocab_build(&v, &a, &tokens, s->types.data, &merges, 0, 0); /* no err */
    if (silent == BITNET_OK) bitnet__vocab_free(&v, &a);
    small_free(s);
    return ok && silent == r && c.live == 0;
}

static void raw_merge(small_vocab *s, const char *text) {
    small_init(s);
    small_fill(s);
    list_string(&s->merges, text, strlen(text));
}

static void test_hostile_merges(void) {
    small_vocab s;
    raw_merge(&s, "he llo ");
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 10"));
    raw_merge(&s, "he  llo");
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 10"));
    raw_merge(&s, "hello");
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 10"));
    raw_merge(&s, "");
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 10"));
    raw_merge(&s, " ");
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 10"));
    raw_merge(&s, " he");
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 10"));
    raw_merge(&s, "h\te");                                  /* only a blank separates */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 10"));
    raw_merge(&s, "he ");
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 10"));
    raw_merge(&s, "he l\xC2");                              /* ends inside a character */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 10"));
    raw_merge(&s, "h\xE2\x82\xAC l");                       /* a character that spells no byte */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 10"));
    raw_merge(&s, "AAA A");                                 /* one part missing, else fine */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "left part"));
    raw_merge(&s, "A AAA");
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "right part"));
    raw_merge(&s, "h h");
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "its result"));
    raw_merge(&s, "<|a|> <|b|>");                           /* special tokens never merge */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 10"));
    raw_merge(&s, "h e");                                   /* twice the same: the first counts */
    CHECK(fails_with(&s, BITNET_OK, ""));
    raw_merge(&s, "h e");
    s.merges.count++;                                       /* one more than there are */
    CHECK(fails_with(&s, BITNET_ERR_TRUNCATED, "ends early"));
    raw_merge(&s, "h e");
    s.merges.count = (1u << 22) + 1;
    CHECK(fails_with(&s, BITNET_ERR_LIMIT, "merges"));
    raw_merge(&s, "h e");
    s.merges.count = 1u << 22;
    CHECK(fails_with(&s, BITNET_ERR_TRUNCATED, "ends early"));
    raw_merge(&s, "h e");
    s.merges.count = ~(uint64_t)0;
    CHECK(fails_with(&s, BITNET_ERR_LIMIT, "merges"));
    raw_merge(&s, "h e");
    s.merges.data[7] = 0xFF;                                /* the first one's length */
    CHECK(fails_with(&s, BITNET_ERR_TRUNCATED, "merge 0"));
    small_init(&s);                                         /* none at all */
    CHECK(fails_with(&s, BITNET_OK, ""));
    small_init(&s);                                         /* the first one, both parts empty */
    list_string(&s.merges, " ", 1);
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "merge 0"));
}

static void raw_token(small_vocab *s, const char *text, size_t n, int type) {
    small_init(s);
    list_string(&s->tokens, text, n);
    list_le(&s->types, (uint64_t)(int64_t)type, 4);
}

static void test_hostile_tokens(void) {
    static char big[1100];
    small_vocab s;
    int b;
    memset(&s, 0, sizeof s);
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "too few"));
    for (b = 0; b < 256; b += 51) {                         /* a byte without token */
        char name[8];
        int i;
        memset(&s, 0, sizeof s);
        for (i = 0; i < 256; i++) {
            char two[2];
            two[0] = two[1] = (char)i;
            small_token(&s, two, i == b ? 2 : 1, 1);
        }
        sprintf(name, "0x%02X", (unsigned)b);
        CHECK(fails_with(&s, BITNET_ERR_FORMAT, name));
    }
    raw_token(&s, "a b", 3, 1);                             /* a blank is not in GPT-2's encoding */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "token 256"));
    raw_token(&s, "a\xC5\x84", 3, 1);                       /* U+0144: one past its end */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "token 256"));
    raw_token(&s, "a\xC2\xAD", 3, 1);                       /* U+00AD: a hole in it */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "token 256"));
    raw_token(&s, "a\xC1\xA1", 3, 1);                       /* overlong 'a' */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "token 256"));
    raw_token(&s, "a\xC4", 2, 1);                           /* cut */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "token 256"));
    raw_token(&s, "a\xE2\x82\xAC", 4, 1);
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "token 256"));
    raw_token(&s, "a\xE2\xA1", 3, 1);                       /* the same, cut */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "token 256"));
    raw_token(&s, "a\xC3" "A", 3, 1);                       /* no continuation byte */
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "token 256"));
    raw_token(&s, "a b\xFF", 4, 3);                         /* in a special token all is literal */
    CHECK(fails_with(&s, BITNET_OK, ""));
    raw_token(&s, "", 0, 1);
    CHECK(fails_with(&s, BITNET_OK, ""));
    raw_token(&s, "", 0, 3);
    CHECK(fails_with(&s, BITNET_OK, ""));
    raw_token(&s, "a", 1, 7);
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "type 7"));
    raw_token(&s, "a", 1, -1);
    CHECK(fails_with(&s, BITNET_ERR_FORMAT, "type -1"));
    memset(big, '<', sizeof big);
    raw_token(&s, big, 1025, 3);
    CHECK(fails_with(&s, BITNET_ERR_LIMIT, "token 256"));
    raw_token(&s, big, 1024, 3);
    CHECK(fails_with(&s, BITNET_OK, ""));
    raw_token(&s, big, 1100, 1);
    CHECK(fails_with(&s, BITNET_OK, ""));
    raw_token(&s, "ab", 2, 1);
    s.tokens.data[s.tokens.size - 10]++;                    /* its length, one too long */
    CHECK(fails_with(&s, BITNET_ERR_TRUNCATED, "token 256"));
    raw_token(&s, "ab", 2, 1);
    memset(s.tokens.data + s.tokens.size - 10, 0xFF, 8);    /* its length, all ones */
    CHECK(fails_with(&s, BITNET_ERR_TRUNCATED, "token 256"));
    small_init(&s);                 /* a special token whose text swallows half of the others */
    s.types.data[0] = 3;
    s.tokens.data[0] = 1000 & 0xFF;
    s.tokens.data[1] = 1000 >> 8;
    CHECK(fails_with(&s, BITNET_ERR_TRUNCATED, "token 0"));
    raw_token(&s, "ab", 2, 1);
    s.tokens.count = 1u << 20;
    CHECK(fails_with(&s, BITNET_ERR_LIMIT, "tokens"));
    raw_token(&s, "ab", 2, 1);
    s.tokens.count = ~(uint64_t)0;
    CHECK(fails_with(&s, BITNET_ERR_LIMIT, "tokens"));
    raw_token(&s, "ab", 2, 1);
    s.tokens.count = (1u << 20) - 1;
    CHECK(fails_with(&s, BITNET_ERR_TRUNCATED, "ends early"));
}

/* Tokens, then merges, chosen to share a few places of their hash table: refused rather than
   searched in quadratic time. Both tables have 2048 or 4096 places here. */
static void test_collisions(void) {
    small_vocab s;
    bitnet__vocab table;
    uint32_t n = 0, left, right;
    uint8_t word[4];
    small_init(&s);
    while (s.tokens.count < 256 + 1100) {
        n++;
        memcpy(word, &n, 4);
        if ((bitnet__hash_bytes(word, 4) & 2047) == 99)
            small_token(&s, (const char *)word, 4, 1);
    }
    CHECK(fails_with(&s, BITNET_ERR_LIMIT, "collisions"));
    small_init(&s);
    memset(&table, 0, sizeof table);
    table.pair_mask = 4095;
    for (left = 0; left < 256; left++)
        for (right = 0; right < 256; right++)
            if (bitnet__pair_home(&table, bitnet__pair_key(left, right)) < 92) {
                char two[2];
                two[0] = (char)left;
                two[1] = (char)right;
                small_token(&s, two, 2, 1);
                small_merge(&s, two, 1, two + 1, 1);
            }
    CHECK_MSG(s.merges.count > 1366 && s.merges.count < 2700, "%d", (int)s.merges.count);
    CHECK(fails_with(&s, BITNET_ERR_LIMIT, "merge"));
}

/* A table that is full over 1200 places in a row, each entry near its home, is accepted; what is
   not in it is still not found, however the search ends. Nor is a word that differs from a token
   in nothing that the table itself stores, though the token begins with it. */
static void test_long_chains(void) {
    static const char stem[] = "a long token, whose first part is";
    const size_t n = sizeof stem - 1;
    const uint64_t places = 4095, tag = (uint64_t)0xFFFu << 52;
    static uint32_t words[1200];                    /* one for each home; 0: none yet */
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    char word[sizeof stem + 4];
    uint8_t *p = (uint8_t *)word;
    uint32_t i, left;
    uint64_t h;
    int found = 0;
    small_init(&s);
    word[4] = 1;
    for (i = 1, left = 1200; left > 0; i++) {
        memcpy(word, &i, 4);
        h = bitnet__hash_bytes(p, 5) & places;
        if (h >= 1200 || words[h]) continue;
        words[h] = i;
        left--;
    }
    for (i = 0; i < 1200; i++) {                    /* in this order none is pushed far */
        memcpy(word, words + i, 4);
        small_token(&s, word, 5, 1);
    }
    memcpy(word, stem, n);
    h = bitnet__hash_bytes(p, n);
    for (i = 0; i == 0 || ((bitnet__hash_bytes(p, n + 4) ^ h) & (places | tag)) != 0; i++)
        memcpy(word + n, &i, 4);
    small_token(&s, word, n + 4, 1);
    CHECK_MSG(small_build(&s, &a, &v, &err) == BITNET_OK, "%s", err.text);
    small_free(&s);
    CHECK(v.slot_mask == places);
    CHECK(bitnet__find_normal(&v, p, n) == -1);
    CHECK(bitnet__find_normal(&v, p, n + 4) == (int32_t)v.n_tokens - 1);
    for (i = 0; i < 20000; i++) {                   /* one in 50 meets 1024 full places */
        memcpy(word, &i, 4);
        word[4] = 2;
        found += bitnet__find_normal(&v, p, 5) >= 0;
    }
    CHECK(found == 0);
    bitnet__vocab_free(&v, &a);
}

/* The same for merges: 1200 of all pairs of bytes, one for each of the first places. */
static void test_long_pair_chain(void) {
    static uint8_t taken[1200];
    static uint32_t absent[65536];
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    uint32_t i, n_absent = 0, found = 0;
    small_init(&s);
    v.pair_mask = 2047;
    for (i = 0; i < 65536; i++) {
        uint32_t home = bitnet__pair_home(&v, bitnet__pair_key(i >> 8, i & 255));
        char two[2];
        two[0] = (char)(i >> 8);
        two[1] = (char)i;
        if (home < 1200 && !taken[home]++) {
            small_token(&s, two, 2, 1);
            small_merge(&s, two, 1, two + 1, 1);
        } else {
            absent[n_absent++] = i;
        }
    }
    CHECK(s.merges.count == 1200);
    CHECK_MSG(small_build(&s, &a, &v, &err) == BITNET_OK, "%s", err.text);
    small_free(&s);
    CHECK(v.pair_mask == 2047);
    for (i = 0; i < n_absent; i++)
        found += bitnet__pair_rank(&v, absent[i] >> 8, absent[i] & 255) != 0xFFFFFFFFu;
    bitnet__vocab_free(&v, &a);
    CHECK(found == 0);
}

static void test_duplicates(void) {
    static const bitnet_token first[] = {256, -1}, special[] = {259, -1};
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    int ok[2];
    small_init(&s);
    small_token(&s, "ab", 2, 1);
    small_token(&s, "ab", 2, 1);
    small_token(&s, "a", 1, 1);                             /* of a byte, too */
    small_token(&s, "<x>", 3, 3);
    small_token(&s, "<x>", 3, 3);
    small_merge(&s, "a", 1, "b", 1);
    small_merge(&s, "a", 1, "b", 1);
    CHECK(small_build(&s, &a, &v, &err) == BITNET_OK);
    small_free(&s);
    ok[0] = encodes_as(&v, &a, "ab", 2, 0, first);
    ok[1] = encodes_as(&v, &a, "<x>", 3, 1, special);
    CHECK(v.byte_token[97] == 97);
    bitnet__vocab_free(&v, &a);
    CHECK(ok[0]);
    CHECK(ok[1]);
}

/* Types left out, as some files do: all tokens are normal. */
static void test_no_types(void) {
    static const bitnet_token want[] = {256, -1};
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    int ok;
    small_init(&s);
    small_token(&s, "ab", 2, 1);
    free(s.types.data);
    s.types.data = 0;
    CHECK(small_build(&s, &a, &v, &err) == BITNET_OK);
    small_free(&s);
    ok = encodes_as(&v, &a, "ab", 2, 1, want);
    bitnet__vocab_free(&v, &a);
    CHECK(ok);
}

/* In byte-level BPE a byte token is as a normal one: found, made by a merge, encoded; this one is
   the longest of all. */
static void test_byte_types(void) {
    static const bitnet_token want[] = {257, 256, -1};
    small_vocab s;
    bitnet__vocab v;
    bitnet_error err;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    int found, ok;
    small_init(&s);
    small_token(&s, "ab", 2, 1);
    small_token(&s, "long", 4, BITNET__TOKEN_BYTE);
    small_token(&s, "lo", 2, 1);
    small_token(&s, "ng", 2, 1);
    small_merge(&s, "l", 1, "o", 1);
    small_merge(&s, "n", 1, "g", 1);
    small_merge(&s, "lo", 2, "ng", 2);
    small_merge(&s, "a", 1, "b", 1);
    CHECK_MSG(small_build(&s, &a, &v, &err) == BITNET_OK, "%s", err.text);
    small_free(&s);
    v.pre = &bitnet__pres[pre_named("falcon_e")];    /* falcon_e's merges every piece */
    found = bitnet__vocab_find(&v, "long", 4);
    ok = encodes_as(&v, &a, "longab", 6, 0, want);
    bitnet__vocab_free(&v, &a);
    CHECK(found == 257);
    CHECK(ok);
}

/* Mutations of a good vocabulary: any result will do, as long as nothing is read or written out
   of place, nothing leaks, and what was accepted works. */
static void test_mutations(void) {
    uint64_t seed = 3;
    small_vocab good;
    counter c;
    bitnet_allocator a = counter_allocator(&c);
    int i, k, built = 0;
    small_init(&good);
    small_fill(&good);
    for (i = 0; i < 8000; i++) {
        small_vocab bad;
        bitnet__vocab v;
        bitnet_error err;
        memset(&bad, 0, sizeof bad);
        list_bytes(&bad.tokens, good.tokens.data, good.tokens.size);
        list_bytes(&bad.types, good.types.data, good.types.size);
        list_bytes(&bad.merges, good.merges.data, good.merges.size);
        bad.tokens.count = good.tokens.count;
        bad.merges.count = good.merges.count;
        for (k = (int)random_below(&seed, 3); k >= 0; k--) {
            list *l = random_below(&seed, 3) ? &bad.merges
                    : random_below(&seed, 3) ? &bad.tokens : &bad.types;
            uint8_t *p = l->data + random_below(&seed, (uint32_t)l->size);
            switch (random_below(&seed, 5)) {
            case 0: *p = (uint8_t)random_below(&seed, 256); break;
            case 1: *p = (uint8_t)(*p ^ 1u << random_below(&seed, 8)); break;
            case 2: *p = (uint8_t)" l\xC4\xFF"[random_below(&seed, 4)]; break;
            case 3: l->count -= l != &bad.types && l->count > 0; break;
            default: l->size -= l != &bad.types && l->size > 9 ? random_below(&seed, 9) : 0;
            }
        }
        if (small_build(&bad, &a, &v, &err) == BITNET_OK) {
            built++;
            CHECK(round_trips(&v, &a, "hello <|a|> AAAA", 16, i & 1));
            bitnet__vocab_free(&v, &a);
        }
        small_free(&bad);
        CHECK(c.live == 0);
    }
    small_free(&good);
    CHECK_MSG(built > 500 && built < 7500, "%d of 8000 were accepted", built);
}

/* ---- the detokenizer ---- */

/* U+FFFD for maximal subparts, from the table of rows: an incomplete row is one, any other byte
   is one. Returns the length. */
static size_t slow_replace(const uint8_t *p, size_t n, char *out) {
    size_t i, at = 0, length;
    int whole;
    for (i = 0; i < n; i += length) {
        length = slow_utf8(p + i, n - i, &whole);
        if (whole) {
            memcpy(out + at, p + i, length);
            at += length;
        } else {
            memcpy(out + at, "\xEF\xBF\xBD", 3);
            at += 3;
            length += length == 0;
        }
    }
    return at;
}

/* Pushes [p, p + n) in one portion into a buffer of the largest size, appends it to out and checks
   that it consists of whole code points. */
static int push(bitnet_detok *d, const uint8_t *p, size_t n, char *out, size_t *at) {
    char *buf = (char *)malloc(3 * n + 3);
    size_t length = buf ? bitnet__detok_push(d, p, n, buf) : 0, i, step;
    int whole = 1, ok = buf != 0 && length <= 3 * n + 3;
    for (i = 0; ok && i < length; i += step) {
        step = slow_utf8((const uint8_t *)buf + i, length - i, &whole);
        ok = whole;
    }
    if (ok) memcpy(out + *at, buf, length);
    *at += length;
    free(buf);
    return ok;
}

/* All of [p, p + n) in portions that end at the places a and b, then at the end. */
static int replaces_as(const uint8_t *p, size_t n, size_t a, size_t b, const char *want,
                       size_t n_want) {
    bitnet_detok d;
    char out[200];
    size_t at = 0;
    memset(&d, 0, sizeof d);
    if (!push(&d, p, a, out, &at) || !push(&d, p + a, b - a, out, &at) ||
        !push(&d, p + b, n - b, out, &at))
        return 0;
    at += bitnet__detok_flush(&d, out + at);
    return at == n_want && memcmp(out, want, at) == 0 && d.n_pending == 0;
}

static int every_split(const uint8_t *p, size_t n, const char *want, size_t n_want) {
    size_t a, b;
    for (a = 0; a <= n; a++)
        for (b = a; b <= n; b++)
            if (!replaces_as(p, n, a, b, want, n_want)) return 0;
    return 1;
}

#define FFFD "\xEF\xBF\xBD"

static void test_detok_examples(void) {
    /* Unicode 15.0, section 3.9: Tables 3-8 to 3-11, with the result printed there; then others */
    static const struct { const char *in; size_t n; const char *out; } cases[] = {
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82" "A", 9,
         FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF" "A", 9,
         FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
        {"\xF4\x91\x92\x93\xFF" "A" "\x80\xBF" "B", 9,
         FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF" "A", 9, FFFD FFFD FFFD FFFD "A"},
        {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", 13,
         "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d"},
        {"a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z", 11, "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"},
        {"\xE2\x82", 2, FFFD}, {"\xF0\x9F\x98", 3, FFFD}, {"\xC3", 1, FFFD},
        {"\xF0\x9F\x98\xE2\x82\xAC", 6, FFFD "\xE2\x82\xAC"}, {"\xFF\xFE", 2, FFFD FFFD},
        {"", 0, ""}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_MSG(every_split((const uint8_t *)cases[i].in, cases[i].n, cases[i].out,
                              strlen(cases[i].out)), "case %u", (unsigned)i);
}

static void test_detok_random(void) {
    static const uint8_t edges[24] = {
        0x00, 'a', 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1,
        0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF
    };
    uint64_t seed = 9;
    int i;
    for (i = 0; i < 20000; i++) {
        uint8_t text[12];
        char want[40];
        size_t n = random_below(&seed, 13), k, n_want;
        for (k = 0; k < n; k++)                     /* continuation bytes half of the time */
            text[k] = random_below(&seed, 2) ? edges[random_below(&seed, 24)]
                                             : edges[3 + random_below(&seed, 6)];
        n_want = slow_replace(text, n, want);
        CHECK_MSG(every_split(text, n, want, n_want), "random text %d", i);
    }
}

extern const test_case tokenizer_tests[];
const test_case tokenizer_tests[] = {
    {"tokenizer/classes", test_classes},
    {"tokenizer/utf8", test_utf8},
    {"tokenizer/scanner", test_scanner},
    {"tokenizer/scanner_qwen", test_scanner_qwen},
    {"tokenizer/falcon_scanner", test_falcon_scanner},
    {"tokenizer/falcon_long", test_falcon_long},
    {"tokenizer/bpe", test_bpe},
    {"tokenizer/golden", test_golden},
    {"tokenizer/golden_special", test_golden_special},
    {"tokenizer/golden_qwen", test_golden_qwen},
    {"tokenizer/golden_qwen35", test_golden_qwen35},
    {"tokenizer/chat_llama", test_chat_llama},
    {"tokenizer/chat_qwen", test_chat_qwen},
    {"tokenizer/golden_gemma", test_golden_gemma},
    {"tokenizer/small_encodings", test_small_encodings},
    {"tokenizer/special", test_special},
    {"tokenizer/special_random", test_special_random},
    {"tokenizer/capacity", test_capacity},
    {"tokenizer/roundtrip_small", test_roundtrip_small},
    {"tokenizer/roundtrip_llama", test_roundtrip_llama},
    {"tokenizer/memory_failures", test_memory_failures},
    {"tokenizer/piece_sizes", test_piece_sizes},
    {"tokenizer/memory_budget", test_memory_budget},
    {"tokenizer/hostile_merges", test_hostile_merges},
    {"tokenizer/hostile_tokens", test_hostile_tokens},
    {"tokenizer/collisions", test_collisions},
    {"tokenizer/long_chains", test_long_chains},
    {"tokenizer/long_pair_chain", test_long_pair_chain},
    {"tokenizer/duplicates", test_duplicates},
    {"tokenizer/no_types", test_no_types},
    {"tokenizer/byte_types", test_byte_types},
    {"tokenizer/mutations", test_mutations},
    {"tokenizer/detok_examples", test_detok_examples},
    {"tokenizer/detok_random", test_detok_random},
    {0, 0}
};
