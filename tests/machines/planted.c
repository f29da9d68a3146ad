/* Plants the faults of planted.txt in the kernels, one after the other, and sees whether
   bitnet_selftest finds each: the right table and the right entry. planted.sh, which says more,
   makes the headers that this file includes. */

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

/* Without a fault all is well. */
static void without_fault(void) {
    int i;
    for (i = 0; i < bitnet_kernels_count(); i++) {
        const bitnet_kernels *k = bitnet_kernels_get(i);
        bitnet_error err = {BITNET_OK, ""};
        if (bitnet_kernels_usable(k))
            verdict(bitnet_selftest(k, &err) == BITNET_OK, 0, k->name, err.text);
    }
}

/* A table that cannot run here is named once. */
static void skip(int i) {
    const char *table = faults[i].table;
    int j;
    skipped++;
    for (j = 0; j < i; j++)
        if (!strcmp(faults[j].table, table)) return;
    printf("skip %s: it is not compiled in, or this CPU cannot run it\n", table);
}

/* The table with nothing but one entry: the others would only take time. */
static bitnet_kernels entry_of(const bitnet_kernels *k, const char *entry) {
    bitnet_kernels one = {0};
    one.name = k->name;
    one.needs = k->needs;
#define KEEP(e) if (!strcmp(entry, #e)) one.e = k->e
    KEEP(quantize);
    KEEP(dotrows_groups);
    KEEP(dotrows_f32);
    KEEP(dotrows_f16);
    KEEP(dotrows_bf16);
    KEEP(scores_f16);
    KEEP(sumrows_f32);
    KEEP(sumrows_f16);
    KEEP(softmax);
    KEEP(rope);
    KEEP(store_f16);
    KEEP(dequantize);
    KEEP(relu2_gate);
    KEEP(sigmoid_gate);
    KEEP(rmsnorm);
    KEEP(dotrows_u8);
    KEEP(dotrows_u4);
    KEEP(dotrows_i2s);
    KEEP(scores_i8);
    KEEP(weigh_i8);
    KEEP(sumrows_i8);
#undef KEEP
    if (strcmp(entry, "dotrows_ternary") && strcmp(entry, "pack")) return one;
    one.layout = k->layout;
    one.row_group = k->row_group;
    one.packed_bytes = k->packed_bytes;
    one.pack = k->pack;
    one.dotrows_ternary = k->dotrows_ternary;
    return one;
}

static void with_fault(int i) {
    const bitnet_kernels *k = bitnet_kernels_find(faults[i].table);
    bitnet_kernels one;
    bitnet_error err = {BITNET_OK, "the self-test does not find it"};
    char expected[100];
    if (!bitnet_kernels_usable(k)) {
        skip(i);
        return;
    }
    one = entry_of(k, faults[i].entry);
    snprintf(expected, sizeof expected, "kernels '%s': %s differs", k->name, faults[i].entry);
    planted = faults[i].line;
    verdict(bitnet_selftest(&one, &err) == BITNET_ERR_SELFTEST && strstr(err.text, expected),
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
