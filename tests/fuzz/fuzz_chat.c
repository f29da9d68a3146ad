/* The chat template: roles and contents are the input's strings. What comes out is the parts'
   tokens, and no special token is from a text. Besides, all other templates, and the parts of a
   reply. */
#include "fuzz_vocab.h"

enum { CHAT_MESSAGES = 8 };

/* The tokens of "Role: text", as the template wants them. */
static int chat_line(const bitnet_model *m, const bitnet_message *msg, bitnet_token *out,
                     size_t cap) {
    gb_buf line = {0, 0, 0};
    const char *p = msg->content, *end = p + strlen(p);
    size_t i;
    int n;
    for (i = 0; msg->role[i]; i++) {
        const int c = (uint8_t)msg->role[i];
        const int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        gb_uint(&line, (uint64_t)(!letter ? c : i == 0 ? c & ~32 : c | 32), 1);
    }
    gb_put(&line, ": ", 2);
    while (p < end && strchr(" \t\n\v\f\r", *p)) p++;
    while (end > p && strchr(" \t\n\v\f\r", end[-1])) end--;
    gb_put(&line, p, (size_t)(end - p));
    n = bitnet_tokenize(m, (const char *)line.p, line.n, 0, out, cap);
    free(line.p);
    return n;
}

/* The input's next string, with a NUL at its end, from a heap block of its size. */
static char *chat_string(fuzz_input *in, size_t n) {
    const uint8_t *p = fuzz_bytes(in, &n), *nul = n ? (const uint8_t *)memchr(p, 0, n) : 0;
    char *s;
    if (nul) n = (size_t)(nul - p);
    s = (char *)gb_malloc(n + 1);
    if (n) memcpy(s, p, n);
    s[n] = 0;
    return s;
}

/* The parts of a reply in steps of so many bytes: each with its number in front. */
static void chat_parts(const char *text, size_t step, bitnet_reply r, gb_buf *out) {
    const size_t size = strlen(text);
    size_t at = 0;
    int last = -1;
    while (at <= size) {
        size_t n = size - at < step ? size - at : step, n_piece;
        const char *p = at < size ? text + at : 0, *piece;
        bitnet_reply_part part;
        at += p ? n : 1;
        while (bitnet_reply_next(&r, &p, &n, &part, &piece, &n_piece)) {
            const int now = (int)part + 4 * r.n_calls;
            FUZZ_CHECK(n_piece > 0);
            if (now != last) gb_uint(out, (uint64_t)now, 4);
            last = now;
            gb_put(out, piece, n_piece);
        }
        FUZZ_CHECK(!p || n == 0);
    }
}

/* However a reply is cut into pieces, its parts are the same. */
static void chat_divide(const char *text, size_t step) {
    gb_buf whole = {0, 0, 0}, pieces = {0, 0, 0};
    bitnet_reply r;
    memset(&r, 0, sizeof r);
    r.thinks = r.calls = 1;
    chat_parts(text, strlen(text) + 1, r, &whole);
    chat_parts(text, step, r, &pieces);
    FUZZ_CHECK(whole.n == pieces.n && (!whole.n || !memcmp(whole.p, pieces.p, whole.n)));
    FUZZ_CHECK(whole.n <= 5 * strlen(text));
    free(whole.p);
    free(pieces.p);
}

/* All templates: what is counted is what is written, and control tokens are the template's. */
static void chat_templates(const bitnet_model *m, const bitnet_message *messages, int n,
                           int flags) {
    size_t k;
    for (k = 0; k < sizeof bitnet__chat_rows / sizeof bitnet__chat_rows[0]; k++) {
        const bitnet_chat_params p = {&bitnet__chat_rows[k].t, (bitnet_thinking)(flags >> 6 & 3),
                                      flags & 8 && n > 0 ? messages[0].content : 0};
        const int count = bitnet_chat_tokenize(m, &p, messages, n, flags, 0, 0, NULL);
        bitnet_token *got = (bitnet_token *)gb_malloc((size_t)(count > 0 ? count : 0) *
                                                      sizeof *got);
        int i, control = 0;
        FUZZ_CHECK(bitnet_chat_tokenize(m, &p, messages, n, flags, got, (size_t)(count > 0 ? count : 0), NULL) == count);
        for (i = 0; i < count; i++) control += m->vocab.types[got[i]] == BITNET__TOKEN_CONTROL;
        FUZZ_CHECK(control <= 2 * n + 3);
        free(got);
    }
}

FUZZ_TARGET(chat) {
    static const char words[] =        /* description of a vocabulary, see vocab_describe */
        "\0\5\0\5hello\0\0\5 user\0\4\5<|x|>\0\5\4User\0\0\2: \0"
        "\10UsseerAsstasisth" "\20\0";
    static bitnet_model m;
    static uint8_t *file;
    fuzz_input in = {(const uint8_t *)words, sizeof words - 1};
    bitnet_message messages[CHAT_MESSAGES];
    bitnet_token *expected, *got;
    bitnet_error err = {BITNET_OK, "", {0}};
    size_t n_file, cap = 2 * size + 64 * CHAT_MESSAGES;
    int n, i, flags, asked, want = 0, bad = 0, count;
    if (!file)
        FUZZ_CHECK_MSG(!vocab_load(&in, &m, &file, &n_file, 0, &err), "%s", err.text);
    in.p = data;
    in.n = size;
    flags = (int)fuzz_uint(&in, 1);
    asked = flags & (BITNET_ADD_BOS | BITNET_CHAT_OPEN_REPLY);
    n = fuzz_range(&in, 0, CHAT_MESSAGES);
    expected = (bitnet_token *)gb_malloc(cap * sizeof *expected);
    if (flags & BITNET_ADD_BOS) expected[want++] = m.vocab.bos;
    for (i = 0; i < n; i++) {
        const size_t len = (size_t)fuzz_range(&in, 0, 15);
        messages[i].role = chat_string(&in, len);
        messages[i].content = chat_string(&in, (size_t)fuzz_uint(&in, 1));
        if (!messages[i].role[0]) bad = 1;
        if (bad) continue;
        want += chat_line(&m, &messages[i], expected + want, cap - (size_t)want);
        expected[want++] = m.vocab.eot;
    }
    if (flags & BITNET_CHAT_OPEN_REPLY)
        want += bitnet_tokenize(&m, "Assistant: ", 11, 0, expected + want, cap - (size_t)want);
    count = bitnet_chat_tokenize(&m, 0, messages, n, asked, 0, 0, NULL);
    FUZZ_CHECK_MSG(count == (bad ? (int)BITNET_ERR_ARG : want), "%d, not %d", count, want);
    if (!bad) {
        const size_t room = (size_t)(count - (flags >> 4)) < (size_t)count
                            ? (size_t)(count - (flags >> 4)) : (size_t)count;
        got = (bitnet_token *)gb_malloc(room * sizeof *got);
        FUZZ_CHECK(bitnet_chat_tokenize(&m, 0, messages, n, asked, got, room, NULL) == count);
        FUZZ_CHECK(!memcmp(got, expected, room * sizeof *got));
        free(got);
        for (i = 0, count = 0; i < want; i++)
            count += m.vocab.types[expected[i]] == BITNET__TOKEN_CONTROL;
        FUZZ_CHECK(count == n + (flags & BITNET_ADD_BOS));
    }
    chat_templates(&m, messages, n, flags);
    for (i = 0; i < n; i++) chat_divide(messages[i].content, 1 + (size_t)(flags >> 2 & 15));
    for (i = 0; i < n; i++) {
        free((void *)(uintptr_t)messages[i].role);
        free((void *)(uintptr_t)messages[i].content);
    }
    free(expected);
}
