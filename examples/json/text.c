#include "text.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bitnet_result set_error(bitnet_error *err, bitnet_result code, const char *format, ...) {
    va_list args;
    if (!err) return code;
    err->code = code;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    bitnet_clean_text(err->text, strlen(err->text), err->text, sizeof err->text);
    return code;
}

size_t utf8_size(const uint8_t *p, size_t n) {
    const uint8_t c = p[0];
    const size_t size = c < 0x80 ? 1 : c < 0xC2 || c > 0xF4 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    size_t i;
    if (size == 0 || size > n) return 0;
    for (i = 1; i < size; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    if (c == 0xE0 && p[1] < 0xA0) return 0;            /* longer than needed */
    if (c == 0xED && p[1] > 0x9F) return 0;            /* a surrogate */
    if (c == 0xF0 && p[1] < 0x90) return 0;
    if (c == 0xF4 && p[1] > 0x8F) return 0;            /* over U+10FFFF */
    return size;
}
