/* The library, once for all test files; see library.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "hooks.h"

/* Formats as in a locale whose decimal point is test_point. */
static int test_vsnprintf(char *buf, int size, const char *format, va_list args) {
#ifdef BITNET_VSNPRINTF
    int n = BITNET_VSNPRINTF(buf, size, format, args);
#else
    int n = vsnprintf(buf, (size_t)size, format, args);
#endif
    char *at = test_point && !strcmp(format, "%.*g") ? strchr(buf, '.') : 0;
    if (at) {
        const size_t more = strlen(test_point) - 1;
        memmove(at + more + 1, at + 1, strlen(at));
        memcpy(at, test_point, more + 1);
        n += (int)more;
    }
    return n;
}
#undef BITNET_VSNPRINTF
#define BITNET_VSNPRINTF test_vsnprintf

#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
