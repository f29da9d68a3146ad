/* bitnet_format.h - snprintf and vsnprintf for bitnet_web.c, in a tenth of the C library's bytes

   They know what bitnet.h and bitnet_grammar.h write: %c %d %g %s %u %x %X, with l and ll, a
   precision of strings (a number or *), a width and zeros in front of numbers. %g has 6 digits and
   numbers of F32's range. Both take the places of the C library's functions, so that the module
   has no others. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct format_out { char *to; size_t size, cap; } format_out;

static void put_char(format_out *o, char c) {
    if (o->size + 1 < o->cap) o->to[o->size] = c;
    o->size++;
}

static void put_text(format_out *o, const char *s, size_t n) {
    while (n-- > 0) put_char(o, *s++);
}

/* v with at least `least` characters, which `fill` fills up; the sign is in front of zeros. */
static void put_number(format_out *o, uint64_t v, int negative, unsigned base, char letters,
                       int least, char fill) {
    char digits[24];
    int n = 0, i;
    do {
        const unsigned digit = (unsigned)(v % base);
        digits[n++] = (char)(digit < 10 ? '0' + digit : (unsigned)letters + digit - 10);
        v /= base;
    } while (v);
    if (negative && fill == '0') put_char(o, '-');
    for (i = n + negative; i < least; i++) put_char(o, fill);
    if (negative && fill != '0') put_char(o, '-');
    while (n > 0) put_char(o, digits[--n]);
}

/* 10^n for n from 0 to 60: exact to 22, where it counts. */
static double power10(int n) {
    double x = 1.0;
    while (n-- > 0) x *= 10.0;
    return x;
}

/* As %g does, six digits without zeros behind. */
static void put_float(format_out *o, double x) {
    char text[8];
    double scaled = 0.0;
    int e = 0, n, point, i;
    uint32_t v;
    if (x < 0.0 || (x == 0.0 && 1.0 / x < 0.0)) {
        put_char(o, '-');
        x = -x;
    }
    if (x != x || x - x != 0.0) {
        put_text(o, x != x ? "nan" : "inf", 3);
        return;
    }
    if (x > 0.0) {
        while (e < 38 && x >= power10(e + 1)) e++;
        while (x * power10(-e) < 1.0) e--;
        scaled = e <= 5 ? x * power10(5 - e) : x / power10(e - 5);
        scaled = scaled + 4503599627370496.0 - 4503599627370496.0;      /* 2^52: half to even */
        if (scaled >= 1e6) scaled /= 10.0, e++;
    }
    v = (uint32_t)scaled;
    for (n = 5; n >= 0; n--, v /= 10) text[n] = (char)('0' + v % 10);
    for (n = 6; n > 1 && text[n - 1] == '0'; n--) {}
    point = e < -4 || e > 5 ? 0 : e;               /* the digit in front of the point */
    if (point < 0) put_text(o, "0.0000", (size_t)(1 - point));
    for (i = 0; i < n || i <= point; i++) {
        put_char(o, i < n ? text[i] : '0');
        if (i == point && i + 1 < n) put_char(o, '.');
    }
    if (point == e) return;
    put_char(o, 'e');
    put_char(o, e < 0 ? '-' : '+');
    put_number(o, (uint64_t)(e < 0 ? -e : e), 0, 10, 0, 2, '0');
}

int vsnprintf(char *restrict to, size_t cap, const char *restrict format, va_list args) {
    format_out o = {to, 0, cap};
    for (; *format; format++) {
        int width = 0, most = -1, longs = 0;
        char fill = ' ';
        if (*format != '%') {
            put_char(&o, *format);
            continue;
        }
        if (*++format == '0') fill = *format++;
        if (*format == '*') width = va_arg(args, int), format++;
        while (*format >= '0' && *format <= '9') width = width * 10 + *format++ - '0';
        if (*format == '.') {
            most = 0;
            if (*++format == '*') most = va_arg(args, int), format++;
            while (*format >= '0' && *format <= '9') most = most * 10 + *format++ - '0';
        }
        while (*format == 'l') longs++, format++;
        if (*format == 'c') put_char(&o, (char)va_arg(args, int));
        else if (*format == 's') {
            const char *s = va_arg(args, const char *);
            for (; most != 0 && *s; most--) put_char(&o, *s++);
        } else if (*format == 'g') put_float(&o, va_arg(args, double));
        else if (*format == 'd') {
            const int64_t v = longs > 1 ? va_arg(args, int64_t) : va_arg(args, int32_t);
            put_number(&o, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0, 10, 0, width, fill);
        } else if (*format == 'u' || *format == 'x' || *format == 'X') {
            const uint64_t v = longs > 1 ? va_arg(args, uint64_t) : va_arg(args, uint32_t);
            put_number(&o, v, 0, *format == 'u' ? 10 : 16, (char)(*format == 'x' ? 'a' : 'A'),
                       width, fill);
        } else put_char(&o, *format);  /* %% */
    }
    if (cap > 0) to[o.size < cap ? o.size : cap - 1] = 0;
    return (int)o.size;
}

int snprintf(char *restrict to, size_t cap, const char *restrict format, ...) {
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(to, cap, format, args);
    va_end(args);
    return n;
}
