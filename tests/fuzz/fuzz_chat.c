/* The chat template: roles and contents are the input's strings. What comes out is the parts'
   tokens, and no special token is from a text. Besides, all other templates, and the parts of a
   reply. */
#include "fuzz_vocab.h"

enum { CHAT_MESSAGES = 8 };

/* Bytes of the white space, to Python's strip, with which p begins or, at_end, ends. */
static size_t chat_space(const char *p, size_t n, int at_end) {
    static const char *const spaces =
        " |\t|\n|\v|\f|\r|\x1c|\x1d|\x1e|\x1f|\xc2\x85|\xc2\xa0|\xe1\x9a\x80|\xe2\x80\x80|"
        "\xe2\x80\x81|\xe2\x80\x82|\xe2\x80\x83|\xe2\x80\x84|\xe2\x80\x85|\xe2\x80\x86|"
        "\xe2\x80\x87|\xe2\x80\x88|\xe2\x80\x89|\xe2\x80\x8a|\xe2\x80\xa8|\xe2\x80\xa9|"
        "\xe2\x80\xaf|\xe2\x81\x9f|\xe3\x80\x80|";
    const char *s;
    size_t size;
    for (s = spaces; *s; s += size + 1) {
        size = (size_t)(strchr(s, '|') - s);
        if (size <= n && !memcmp(at_end ? p + n - size : p, s, size)) return size;
    }
    return 0;
}

/* The tokens of "Role: text", as the template wants them. */
static int chat_line(const bitnet_model *m, const bitnet_message *msg, bitnet_token *out,
                     size_t cap) {
    gb_buf line = {0, 0, 0};
    const char *p = msg->content.data;
    size_t left = msg->content.size, i;
    int n;
    for (i = 0; i < msg->role.size; i++) {
        const int c = (uint8_t)msg->role.data[i];
        const int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        gb_uint(&line, (uint64_t)(!letter ? c : i == 0 ? c & ~32 : c | 32), 1);
    }
    gb_put(&line, ": ", 2);
    while ((i = chat_space(p, left, 0)) > 0) p += i, left -= i;
    while ((i = chat_space(p, left, 1)) > 0) left -= i;
    gb_put(&line, p, left);
    n = bitnet_tokenize(m, (const char *)line.p, line.n, 0, out, cap);
    free(line.p);
    return n;
}

/* The input's next bytes, in a heap block of their size. */
static bitnet_text chat_text(fuzz_input *in, size_t n) {
    const uint8_t *p = fuzz_bytes(in, &n);
    char *copy = (char *)gb_malloc(n);
    bitnet_text text;
    if (n) memcpy(copy, p, n);
    text.data = copy;
    text.size = n;
    return text;
}

/* The parts of a reply in steps of so many bytes: each with its number in front. */
static void chat_parts(bitnet_text text, size_t step, bitnet_reply r, gb_buf *out) {
    const size_t size = text.size;
    size_t at = 0;
    int last = -1;
    while (at <= size) {
        size_t n = size - at < step ? size - at : step, n_piece;
        const char *p = at < size ? text.data + at : 0, *piece;
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
static void chat_divide(bitnet_text text, size_t step) {
    gb_buf whole = {0, 0, 0}, pieces = {0, 0, 0};
    bitnet_reply r;
    memset(&r, 0, sizeof r);
    r.thinks = r.calls = 1;
    chat_parts(text, text.size + 1, r, &whole);
    chat_parts(text, step, r, &pieces);
    FUZZ_CHECK(whole.n == pieces.n && (!whole.n || !memcmp(whole.p, pieces.p, whole.n)));
    FUZZ_CHECK(whole.n <= 5 * text.size);
    free(whole.p);
    free(pieces.p);
}

/* All templates: what is counted is what is written, and control tokens are the template's. */
static void chat_templates(const bitnet_model *m, const bitnet_message *messages, int n,
                           int flags) {
    size_t k;
    for (k = 0; k < sizeof bitnet__chat_rows / sizeof bitnet__chat_rows[0]; k++) {
        bitnet_chat_params p;
        bitnet_token *got;
        size_t room;
        int i, count, control = 0;
        memset(&p, 0, sizeof p);
        p.chat_template = &bitnet__chat_rows[k].t;
        p.thinking = (bitnet_thinking)(flags >> 6 & 3);
        if (flags & 16 && n > 0) p.tools = messages[0].content;
        count = bitnet_chat_tokenize(m, &p, messages, n, flags & 15, 0, 0, NULL);
        room = (size_t)(count > 0 ? count : 0);
        got = (bitnet_token *)gb_malloc(room * sizeof *got);
        FUZZ_CHECK(bitnet_chat_tokenize(m, &p, messages, n, flags & 15, got, room, NULL) == count);
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
    memset(messages, 0, sizeof messages);
    in.p = data;
    in.n = size;
    flags = (int)fuzz_uint(&in, 1);
    asked = flags & (BITNET_CHAT_BEGIN | BITNET_CHAT_OPEN_REPLY);
    n = fuzz_range(&in, 0, CHAT_MESSAGES);
    expected = (bitnet_token *)gb_malloc(cap * sizeof *expected);
    if (flags & BITNET_CHAT_BEGIN) expected[want++] = m.vocab.bos;
    for (i = 0; i < n; i++) {
        const size_t len = (size_t)fuzz_range(&in, 0, 15);
        messages[i].role = chat_text(&in, len);
        messages[i].content = chat_text(&in, (size_t)fuzz_uint(&in, 1));
        if (!messages[i].role.size) bad = 1;
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
        FUZZ_CHECK(count == n + (flags & BITNET_CHAT_BEGIN));
    }
    chat_templates(&m, messages, n, flags);
    for (i = 0; i < n; i++) chat_divide(messages[i].content, 1 + (size_t)(flags >> 2 & 15));
    for (i = 0; i < n; i++) {
        free((void *)(uintptr_t)messages[i].role.data);
        free((void *)(uintptr_t)messages[i].content.data);
    }
    free(expected);
}
