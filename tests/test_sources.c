/* Where bytes come from and what is said when they do not: files that are mapped, read or refused, in
   several threads, large, or with unusual names; and texts of errors. */
#include "test.h"

/* ---- texts that are safe to show ---- */

static const struct { const char *text, *clean; } clean_cases[] = {
    {"", ""},
    {"plain ~ text", "plain ~ text"},
    {"W\xC3\xB6rld \xE2\x82\xAC \xF0\x9F\x98\x80", "W\xC3\xB6rld \xE2\x82\xAC \xF0\x9F\x98\x80"},
    {"tab\there\r\n", "tab?here??"},
    {"\x1B[31m", "?[31m"},
    {"\x7F\xC2\x80\xC2\x9F\xC2\xA0", "???\xC2\xA0"},                    /* DEL, C1, not U+00A0 */
    {"\xFF\xC3=\xE2\x82", "?" "?=??"},                                     /* no UTF-8, one a byte */
    {"\xED\xA0\x80", "???"},                                            /* a surrogate */
    {"a\xC2\xAD" "b\xD8\x9C" "c\xE1\xA0\x8E", "a?b?c?"},                /* U+00AD, 061C, 180E */
    {"\xE2\x80\x8A\xE2\x80\x8B\xE2\x80\x8F\xE2\x80\x90", "\xE2\x80\x8A??\xE2\x80\x90"}, /* 200A.. */
    {"\xE2\x80\xA7\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAA\xE2\x80\xAE\xE2\x80\xAF",
     "\xE2\x80\xA7????\xE2\x80\xAF"},                                   /* 2027 to 202F */
    {"\xE2\x81\x9F\xE2\x81\xA0\xE2\x81\xA6\xE2\x81\xA9\xE2\x81\xAF\xE2\x81\xB0",
     "\xE2\x81\x9F????\xE2\x81\xB0"},                                   /* 205F to 2070 */
    {"\xEF\xBB\xBF\xEF\xBF\xB9\xEF\xBF\xBB\xEF\xBF\xBC", "???\xEF\xBF\xBC"},   /* FEFF, FFF9.. */
    {"\xF3\xA0\x80\x80\xF3\xA0\x80\xA0\xF3\xA0\xBF\xBF\xF3\xA1\x80\x80", "???\xF3\xA1\x80\x80"}
};

/* Each of them, into every size of buffer, and where it stands. */
static void test_clean_text(void) {
    size_t i, cap;
    for (i = 0; i < sizeof clean_cases / sizeof clean_cases[0]; i++) {
        const char *text = clean_cases[i].text, *want = clean_cases[i].clean;
        const size_t n = strlen(text), size = strlen(want);
        char buf[64];
        CHECK_MSG(bitnet_clean_text(text, n, 0, 0) == (int)size, "text %d: length", (int)i);
        for (cap = 0; cap <= size + 2; cap++) {
            size_t kept = cap <= size ? (cap ? cap - 1 : 0) : size;
            while (((uint8_t)want[kept] & 0xC0) == 0x80) kept--;        /* whole code points */
            memset(buf, '#', sizeof buf);
            CHECK(bitnet_clean_text(text, n, buf, cap) == (int)size);
            CHECK_MSG(!memcmp(buf, want, cap ? kept : 0), "text %d in %d bytes", (int)i, (int)cap);
            CHECK_MSG(cap == 0 || buf[kept] == 0, "text %d in %d bytes: no end", (int)i, (int)cap);
            CHECK_MSG(buf[cap] == '#', "text %d in %d bytes: one more", (int)i, (int)cap);
        }
        memcpy(buf, text, n);
        CHECK(bitnet_clean_text(buf, n, buf, sizeof buf) == (int)size);
        CHECK_MSG(!strcmp(buf, want), "text %d, in place: %s", (int)i, buf);
    }
    CHECK(bitnet_clean_text("a\0b", 3, 0, 0) == 3);
#if SIZE_MAX > INT32_MAX
    CHECK(bitnet_clean_text("a", (size_t)INT32_MAX + 1, 0, 0) == BITNET_ERR_LIMIT);
#endif
}

/* Names from a file, in the text of an error. */
static void test_clean_errors(void) {
    static const char name[] = "weight\xE2\x80\xAE" "1\xE2\x81\xA6" "2\xE2\x80\x8B" "3\xE2\x80\xA8"
                               "4\xE2\x80\xA9" "5\n6";
    bitnet_gguf_writer w;
    bitnet_gguf *g = 0;
    memset(&w, 0, sizeof w);
    CHECK(!g && bitnet_gguf_add_tensor(&w, name, 77, 1, 0) == BITNET_ERR_ARG);
    CHECK_MSG(strstr(w.err.text, "weight?1?2?3?4?5?6"), "%s", w.err.text);
    bitnet_gguf_writer_free(&w);
}

const test_case sources_tests[] = {
    {"sources/clean_text", test_clean_text},
    {"sources/clean_errors", test_clean_errors},
    {0, 0}
};
