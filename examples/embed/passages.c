#include "passages.h"
#include <string.h>

enum { MOST_WORDS = 200, MOST_BYTES = 2000, FEW_WORDS = 50 };

static int is_white(char c) { return c != 0 && strchr(" \t\r\n\v\f", c) != 0; }

/* Is there an empty line in this white space? */
static int ends_paragraph(const char *p, size_t n) {
    size_t i;
    int newlines = 0;
    for (i = 0; i < n; i++) newlines += p[i] == '\n';
    return newlines > 1;
}

/* The end of the word that begins at i, or of as much of it as has MOST_BYTES. */
static size_t word_end(const char *text, size_t i, size_t n) {
    const size_t from = i;
    while (i < n && !is_white(text[i]) && i - from < MOST_BYTES) i++;
    while (i < n && i > from && ((unsigned char)text[i] & 0xC0) == 0x80) i--;
    return i;
}

size_t passage_next(const char *text, size_t n, size_t *at) {
    size_t i, end, from, paragraph = 0, sentence = 0, word = 0;
    int words = 0;
    while (*at < n && is_white(text[*at])) ++*at;
    from = i = *at;
    while (i < n) {
        end = word_end(text, i, n);
        if (words == MOST_WORDS || (words > 0 && end - from > MOST_BYTES)) break;
        words++;
        word = end;
        for (i = end; i < n && is_white(text[i]);) i++;
        if (i < n && ends_paragraph(text + end, i - end) && words >= FEW_WORDS) paragraph = end;
        if (i > end && strchr(".!?", text[end - 1])) sentence = end;
    }
    if (i >= n) end = word;            /* all that is left */
    else end = paragraph ? paragraph : sentence ? sentence : word;
    return end > from ? end - from : 0;
}
