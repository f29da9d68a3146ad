/* text.h - error texts and UTF-8, for programs of several files */
#ifndef TEXT_H
#define TEXT_H

#include "../../bitnet.h"

/* Fills err, which may be 0, with one line of clean text, and returns code. */
bitnet_result set_error(bitnet_error *err, bitnet_result code, const char *format, ...);

/* The size of the code point at p, of which n > 0 bytes are left; 0 if it is not valid UTF-8. */
size_t utf8_size(const uint8_t *p, size_t n);

#endif
