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
