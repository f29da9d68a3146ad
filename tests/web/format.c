/* format.c - tests web/bitnet_format.h: what it writes is what the C library's snprintf writes

   Run by ./build.sh suite web-node. */
#include <stdio.h>
#include <string.h>
static int (*const system_snprintf)(char *, size_t, const char *, ...) = snprintf;
#define vsnprintf own_vsnprintf
#define snprintf own_snprintf
#include "../../web/bitnet_format.h"

static int checks, wrong;

#define CHECK(cap, ...) \
    do { \
        char want[80], got[80]; \
        const int n = system_snprintf(want, cap, __VA_ARGS__); \
        const int m = own_snprintf(got, cap, __VA_ARGS__); \
        checks++; \
        if (n == m && ((cap) == 0 || !strcmp(want, got))) break; \
        if (wrong++ >= 10) break; \
        printf("line %d: %d \"%s\", not %d \"%s\"\n", __LINE__, m, got, n, want); \
    } while (0)

static uint32_t next_random(void) {
    static uint32_t x = 1;
    x ^= x << 13;
    x ^= x >> 17;
    return x ^= x << 5;
}

int main(void) {
    static const double floats[] = {0.0, -0.0, 1.0, -1.0, 0.5, 100000.5, 100001.5, 999999.5, 1e6,
        9999995e-1, 1e5, 123456.0, 1e-4, 1e-5, 0.00012345678, 1e38, 1e-38, 3.4028235e38,
        1.1754944e-38, 1e-45, 127.5, 1e-6, 7.8886091e-31};
    const char unended[] = {'a', 'b', 'c'};
    int i, cap;
    for (cap = 0; cap < 12; cap++) {
        CHECK((size_t)cap, "%s", "seven..");
        CHECK((size_t)cap, "%d%%", -1234567);
        CHECK((size_t)cap, "a%.*sz", 2, unended);
    }
    CHECK(80, "%.3s|%.40s|%s|%c", unended, "all", "", 'x');
    CHECK(80, "%d %d %d %u", 0, INT32_MIN, INT32_MAX, UINT32_MAX);
    CHECK(80, "%lld %lld %llu", (long long)INT64_MIN, (long long)INT64_MAX,
          (unsigned long long)UINT64_MAX);
    CHECK(80, "%x %X %02X %04x %04X \\u%04x", 0xabcu, 0xabcu, 7u, 0xabu, 0x1F600u, 0u);
    CHECK(80, "%0*lld %0*lld %0*lld", 5, 42LL, 1, 42LL, 6, -42LL);
    CHECK(80, "%5d|%1d|%4d", 42, 42, -42);
    for (i = 0; i < (int)(sizeof floats / sizeof *floats); i++) CHECK(80, "%g", floats[i]);
    for (i = 0; i < 2000000; i++) {                /* every float that an error could name */
        const uint32_t bits = next_random();
        float x;
        memcpy(&x, &bits, sizeof x);
        if (x - x == 0.0f) CHECK(80, "%g", (double)x);
    }
    for (i = -1000; i <= 1000; i++) CHECK(80, "%g", i / 8.0);
    CHECK(80, "%g", 1e30 * 1e30 * 1e300);
    if (wrong) printf("format: %d of %d are wrong\n", wrong, checks);
    else printf("format: %d as the C library's\n", checks);
    return wrong != 0;
}
