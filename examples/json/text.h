/* text.h - error texts, for programs of several files */
#ifndef TEXT_H
#define TEXT_H

#include "../../bitnet.h"

/* Fills err, which may be 0, with one line of clean text, and returns code. */
bitnet_result set_error(bitnet_error *err, bitnet_result code, const char *format, ...);

#endif
