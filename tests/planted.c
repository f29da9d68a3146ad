/* Plants the faults of planted.txt in the kernels, one after the other, and sees whether
   bitnet_selftest finds each: the right table and the right entry. planted.sh, which says more, makes
   the headers that this file includes. */

int planted;                 /* the number of the fault that is in force; 0: none */

#define BITNET_STATIC
#define BITNET_IMPLEMENTATION
#include "bitnet.h"
#include <stdio.h>

static const struct { int line; const char *table, *entry; } faults[] = {
#include "faults.h"
    {0, 0, 0}
};

static int passed, failed, skipped;

static void verdict(int ok, int line, const char *table, const char *what) {
    if (ok) passed++;
    else {
        failed++;
        printf("FAIL planted.txt:%d, %s: %s\n", line, table, what);
        fflush(stdout);
    }
}

/* Without a fault all is well. Tables that cannot run here are named, with how many faults each would
   have shown. */
static void without_fault(void) {
    int i, j, count;
    for (i = 0; i < bitnet_kernels_count(); i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        bitnet_error err = {BITNET_OK, ""};
        if (bitnet_kernels_usable(k)) {
            verdict(bitnet_selftest(k, &err) == BITNET_OK, 0, k->name, err.text);
            continue;
        }
        for (count = 1, j = 0; faults[j].line; j++) count += !strcmp(faults[j].table, k->name);
        printf("skip %s: this CPU cannot run it\n", k->name);
        skipped += count;
    }
}

static void with_fault(int i) {
    const bitnet_kernels *k = bitnet_kernels_find(faults[i].table);
    bitnet_error err = {BITNET_OK, "the self-test does not find it"};
    char expected[100];
    if (!k) {
        verdict(0, faults[i].line, faults[i].table, "there is no such table");
        return;
    }
    if (!bitnet_kernels_usable(k)) return;
    snprintf(expected, sizeof expected, "kernels '%s': %s differs", k->name, faults[i].entry);
    planted = faults[i].line;
    verdict(bitnet_selftest(k, &err) == BITNET_ERR_SELFTEST && strstr(err.text, expected),
            faults[i].line, k->name, err.text);
    planted = 0;
}

int main(void) {
    int i;
    without_fault();
    for (i = 0; faults[i].line; i++) with_fault(i);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}
