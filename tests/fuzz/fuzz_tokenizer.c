/* Text to tokens and back. The input begins with a description of a vocabulary and damage to it
   (fuzz_vocab.h), the rest is text. */
#include "fuzz_vocab.h"

enum { TOKENIZER_MAX = 4096 };         /* bytes of text */
#define TOKENIZER_NO_RANK 0xFFFFFFFFu

/* The token whose rank is the lowest of all pairs is made again and again: slowly, from the
   definition, in symbols [from, to) of the text. */
typedef struct tokenizer_symbol { uint32_t from, to; int32_t token; } tokenizer_symbol;

static uint32_t tokenizer_rank(const bitnet_model *m, const uint8_t *p, const tokenizer_symbol *s,
                               int32_t *made) {
    const bitnet__vocab *v = &m->vocab;
    uint32_t rank;
    if (v->ranks) {
        *made = bitnet__find_normal(v, p + s[0].from, s[1].to - s[0].from);
        return *made < 0 ? TOKENIZER_NO_RANK : v->ranks[*made];
    }
    rank = bitnet__pair_rank(v, (uint32_t)s[0].token, (uint32_t)s[1].token);
    if (rank != TOKENIZER_NO_RANK) *made = (int32_t)v->results[rank];
    return rank;
}

static int tokenizer_merge(const bitnet_model *m, const uint8_t *p, size_t n, bitnet_token *out) {
    static tokenizer_symbol s[TOKENIZER_MAX + 1];
    size_t count = 0, i, at, k;
    int n_out = 0;
    for (at = 0; at < n; at = s[count++].to) {
        uint32_t length = 1, cp;
        if (m->vocab.ranks) length = bitnet__utf8_decode(p + at, p + n, &cp);
        s[count].from = (uint32_t)at;
        s[count].to = (uint32_t)at + (length ? length : 1);
        s[count].token = m->vocab.ranks ? bitnet__find_normal(&m->vocab, p + at, s[count].to - at)
                                        : m->vocab.byte_token[p[at]];
    }
    for (;;) {
        uint32_t best = TOKENIZER_NO_RANK;
        int32_t made = -1, token = -1;
        size_t where = 0;
        for (i = 0; i + 1 < count; i++) {
            const uint32_t rank = tokenizer_rank(m, p, s + i, &made);
            if (rank >= best) continue;
            best = rank;
            where = i;
            token = made;
        }
        if (best == TOKENIZER_NO_RANK) break;
        s[where].to = s[where + 1].to;
        s[where].token = token;
        memmove(s + where + 1, s + where + 2, (count - where - 2) * sizeof *s);
        count--;
    }
    for (i = 0; i < count; i++)
        if (s[i].token >= 0) out[n_out++] = s[i].token;
        else for (k = s[i].from; k < s[i].to; k++) out[n_out++] = m->vocab.byte_token[p[k]];
    return n_out;
}

/* The text in NFC, if the vocabulary wants that. Returns its length; 0: the text itself. */
static size_t tokenizer_nfc(const bitnet_model *m, const uint8_t *p, size_t n, uint8_t *out) {
    static uint64_t cps[4 * TOKENIZER_MAX];
    return m->vocab.pre->nfc && !m->vocab.ranks ? bitnet__nfc(p, p + n, cps, out) : 0;
}

/* What bitnet_tokenize should say of a short text without special tokens. */
static int tokenizer_expect(const bitnet_model *m, const uint8_t *p, size_t n, bitnet_token *out) {
    static uint8_t nfc[3 * TOKENIZER_MAX];
    const bitnet__vocab *v = &m->vocab;
    uint8_t text[TOKENIZER_MAX + 1];
    size_t at, length = tokenizer_nfc(m, p, n, nfc);
    int count = 0;
    if (length > 0) {
        p = nfc;
        n = length;
    }
    if (v->ranks) {
        text[0] = ' ';
        length = n ? bitnet__unmark_spaces(p, n, text + v->space_prefix) : 0;
        return n ? tokenizer_merge(m, text, length + (size_t)v->space_prefix, out) : 0;
    }
    for (at = 0; at < n; at += length) {
        int32_t whole;
        length = v->pre->digits ? bitnet__word_length(p + at, p + n, v->pre)
                                : bitnet__falcon_length(p + at, p + n);
        FUZZ_CHECK(length > 0 && length <= n - at);
        whole = !v->pre->whole ? -1 : bitnet__find_normal(v, p + at, length);
        if (whole >= 0) out[count++] = whole;
        else count += tokenizer_merge(m, p + at, length, out + count);
    }
    return count;
}

/* Pushed token by token, a text comes out as when filtered at once, in whole code points. */
static void tokenizer_push(const bitnet_model *m, const bitnet_token *tokens, int n,
                           const char *raw, size_t n_raw) {
    static char whole[3 * TOKENIZER_MAX * 20], pieces[3 * TOKENIZER_MAX * 20];
    bitnet_detok d;
    size_t length, at = 0;
    int i, got;
    memset(&d, 0, sizeof d);
    length = bitnet__detok_push(&d, (const uint8_t *)raw, n_raw, whole);
    length += bitnet__detok_flush(&d, whole + length);
    memset(&d, 0, sizeof d);
    for (i = 0; i <= n; i++) {
        const bitnet_token t = i < n ? tokens[i] : -1;
        got = bitnet_detok_push(m, &d, t, pieces + at, sizeof pieces - at);
        FUZZ_CHECK(got >= 0 && fuzz_is_utf8(pieces + at, (size_t)got));
        at += (size_t)got;
    }
    FUZZ_CHECK(at == length && !memcmp(pieces, whole, at));
}

/* Into less room: the same count, the same beginning, nothing behind it. */
static void tokenizer_cuts(const bitnet_model *m, const char *text, size_t n, int flags,
                           const bitnet_token *tokens, int count) {
    static bitnet_token few[3 * TOKENIZER_MAX + 2];
    int cap, i;
    for (cap = 0; cap < count; cap = 2 * cap + 1) {
        memset(few, 0xEE, sizeof few);
        FUZZ_CHECK(bitnet_tokenize(m, text, n, flags, few, (size_t)cap) == count);
        FUZZ_CHECK(!memcmp(few, tokens, (size_t)cap * sizeof *few));
        for (i = cap; i < count; i++) FUZZ_CHECK(few[i] == (bitnet_token)0xEEEEEEEE);
    }
}

static void tokenizer_text(const bitnet_model *m, const char *text, size_t n, int flags) {
    static bitnet_token tokens[3 * TOKENIZER_MAX + 2], expected[3 * TOKENIZER_MAX + 2];
    static uint8_t nfc[3 * TOKENIZER_MAX];
    static char back[60 * TOKENIZER_MAX];
    /* user-defined tokens always count */
    const int special = (flags & BITNET_PARSE_SPECIAL) || m->vocab.n_user > 0;
    const int spm = m->vocab.ranks != 0;
    const size_t n_nfc = special ? 0 : tokenizer_nfc(m, (const uint8_t *)text, n, nfc);
    const int bos = (flags & BITNET_ADD_BOS) && m->vocab.bos >= 0;
    int count = bitnet_tokenize(m, text, n, flags, 0, 0), i, length;
    /* SentencePiece gives a space to each stretch between special tokens */
    FUZZ_CHECK_MSG(count >= 0 && count <= 3 * (int)n + 2, "%d", count);
    FUZZ_CHECK(bitnet_tokenize(m, text, n, flags, tokens, (size_t)count) == count);
    tokenizer_cuts(m, text, n, flags, tokens, count);
    if (bos) FUZZ_CHECK(tokens[0] == m->vocab.bos);
    for (i = bos; i < count; i++) {
        FUZZ_CHECK(tokens[i] >= 0 && (uint32_t)tokens[i] < m->vocab.n_tokens);
        FUZZ_CHECK(special || m->vocab.types[tokens[i]] == BITNET__TOKEN_NORMAL ||
                   m->vocab.types[tokens[i]] == BITNET__TOKEN_BYTE);
    }
    if (spm && special) return;        /* each stretch has a space of its own */
    if (special && m->vocab.pre->nfc) return;      /* each stretch is NFC by itself */
    length = bitnet_detokenize(m, tokens + bos, count - bos, back, sizeof back);
    FUZZ_CHECK(length >= 0 && length <= (int)sizeof back);
    if (spm) {
        static uint8_t unmarked[TOKENIZER_MAX + 1];
        size_t want = bitnet__unmark_spaces((const uint8_t *)text, n, unmarked);
        const size_t prefix = n && m->vocab.space_prefix;
        FUZZ_CHECK((size_t)length == want + prefix && (!prefix || back[0] == ' '));
        FUZZ_CHECK(!memcmp(back + prefix, unmarked, want));
    } else {
        const size_t want = n_nfc > 0 ? n_nfc : n;
        FUZZ_CHECK((size_t)length == want && !memcmp(back, n_nfc > 0 ? (char *)nfc : text, want));
    }
    if (special) return;
    tokenizer_push(m, tokens + bos, count - bos, back, (size_t)length);
    if (n > 300) return;
    FUZZ_CHECK(tokenizer_expect(m, (const uint8_t *)text, n, expected) == count - bos);
    FUZZ_CHECK(!memcmp(expected, tokens + bos, (size_t)(count - bos) * sizeof *tokens));
}

/* Every token is found by its text, or one of the same text before it; ids that are none, are
   refused. */
static void tokenizer_names(const bitnet_model *m) {
    char text[2048], back[2048];
    bitnet_detok d;
    int t, n = (int)m->vocab.n_tokens, len;
    memset(&d, 0, sizeof d);
    for (t = 0; t < n; t += t < 250 ? 23 : 1) {
        bitnet_token found;
        len = bitnet_detokenize(m, &t, 1, text, sizeof text);
        FUZZ_CHECK(len >= 0 && len <= (int)sizeof text);
        bitnet_token_is_end(m, t);
        if (!len) continue;
        found = bitnet_token_find(m, text, (size_t)len);
        if (found < 0) FUZZ_CHECK(m->vocab.ranks && m->vocab.types[t] == BITNET__TOKEN_BYTE);
        else FUZZ_CHECK(bitnet_detokenize(m, &found, 1, back, sizeof back) == len &&
                        !memcmp(text, back, (size_t)len));
    }
    for (t = -2; t <= n; t += n + 2) {
        FUZZ_CHECK(t == m->n_vocab - 1 ||
                   bitnet_detokenize(m, &t, 1, text, sizeof text) == BITNET_ERR_ARG);
        FUZZ_CHECK(bitnet_detok_push(m, &d, t, text, sizeof text) == BITNET_ERR_ARG ||
                   t == m->n_vocab - 1);
    }
}

FUZZ_TARGET(tokenizer) {
    fuzz_input in = {data, size};
    static bitnet_model m;
    bitnet_error err = {BITNET_OK, "", {0}};
    gb_counter count;
    bitnet_allocator a = gb_counting(&count);
    uint8_t *file = 0;
    size_t n_file = 0, n = TOKENIZER_MAX;
    bitnet_result r = vocab_load(&in, &m, &file, &n_file, &a, &err);
    const uint8_t *text;
    fuzz_check_error(r, &err);
    FUZZ_CHECK(count.peak_own <= 4 * n_file);
    if (r == BITNET_OK) {
        const uint32_t flags = fuzz_uint(&in, 1);
        text = fuzz_bytes(&in, &n);
        tokenizer_names(&m);
        tokenizer_text(&m, n ? (const char *)text : "", n, flags & BITNET_ADD_BOS);
        tokenizer_text(&m, n ? (const char *)text : "", n,
                       (int)(flags & BITNET_ADD_BOS) | BITNET_PARSE_SPECIAL);
    }
    fuzz_free_vocab(&m);
    FUZZ_CHECK(count.live == 0);
    if (r == BITNET_OK) {              /* once more, with an allocation that fails */
        r = BITNET_ERR_ARG;
        a = gb_counting(&count);
        count.fail_at = (long)(size % 16);
        r = fuzz_load_vocab(&m, file, n_file, &a, &err);
        fuzz_check_error(r, &err);
        FUZZ_CHECK(r == BITNET_OK || r == BITNET_ERR_MEMORY);
        if (r == BITNET_OK) {
            const int got = bitnet_tokenize(&m, (const char *)data, size, 0, 0, 0);
            FUZZ_CHECK(got >= 0 || got == BITNET_ERR_MEMORY);
        }
        fuzz_free_vocab(&m);
        FUZZ_CHECK(count.live == 0);
    }
    free(file);
}
