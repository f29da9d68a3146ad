/* NFC against Unicode's NormalizationTest.txt on stdin, whose lines have five columns of code
   points: of each line NFC(c1) = NFC(c2) = NFC(c3) = c2 and NFC(c4) = NFC(c5) = c4. And a point
   that is not in the first column of part 1 is its own NFC.

       cc -O2 -I. tests/checks/nfc.c -o nfc -lpthread && ./nfc <NormalizationTest.txt */
#define BITNET_IMPLEMENTATION
#include "bitnet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 400 };
typedef struct text { uint8_t p[ROOM]; size_t n; } text;

static uint8_t listed[0x110000];       /* code points in the first column of part 1 */

static const char *column(const char *p, text *out, uint32_t *first) {
    char *end;
    out->n = 0;
    *first = 0;
    while (*p && *p != ';') {
        const uint32_t cp = (uint32_t)strtoul(p, &end, 16);
        if (out->n == 0) *first = cp;
        out->n += bitnet__utf8_encode(cp, out->p + out->n);
        p = end;
        while (*p == ' ') p++;
    }
    return *p ? p + 1 : p;
}

/* As bitnet__encode_nfc: a text without unstable segments stays as it is. */
static int becomes(const text *from, const text *want) {
    uint64_t cps[ROOM];
    uint8_t out[3 * ROOM];
    const size_t longest = bitnet__longest_unstable(from->p, from->p + from->n);
    size_t n = from->n;
    if (4 * longest > ROOM) return 0;
    if (longest > 0) n = bitnet__nfc(from->p, from->p + from->n, cps, out);
    else memcpy(out, from->p, n);
    return n == want->n && !memcmp(out, want->p, n);
}

int main(void) {
    static char line[4096];
    text c[5];
    uint32_t cp, first;
    int lines = 0, bad = 0, part1 = 0, i;
    while (fgets(line, sizeof line, stdin)) {
        const char *p = line;
        if (line[0] == '@') part1 = !strncmp(line, "@Part1 ", 7);
        if (line[0] == '#' || line[0] == '@' || line[0] == '\n') continue;
        for (i = 0; i < 5; i++) {
            p = column(p, &c[i], &first);
            if (i == 0 && part1) listed[first] = 1;
        }
        lines++;
        for (i = 0; i < 5; i++)
            if (!becomes(&c[i], &c[i < 3 ? 1 : 3])) {
                printf("column %d: %s", i + 1, line);
                bad++;
            }
    }
    for (cp = 0; cp < 0x110000; cp++) {
        if (listed[cp] || (cp >= 0xD800 && cp < 0xE000)) continue;
        c[0].n = bitnet__utf8_encode(cp, c[0].p);
        if (!becomes(&c[0], &c[0])) {
            printf("U+%04X is not its own NFC\n", (unsigned)cp);
            bad++;
        }
    }
    printf("%d lines, %d wrong\n", lines, bad);
    return bad > 0 || lines < 10000;
}
