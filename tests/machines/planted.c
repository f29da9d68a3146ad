/* The self-test, or examples/crosscheck, with one fault in force. planted.py links this with a
   library that holds many, and says more.

     planted 0             every usable table is in order; prints its name and the faults it reaches
     planted N TABLE...    1 if the self-test finds fault N in one of the tables
     planted N crosscheck  the report of crosscheck, with that fault */
#include "bitnet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int planted;                          /* the number of the fault; 0: none */
extern const int planted_count;
extern unsigned char planted_hit[];          /* 1 once a fault's place is reached; */
extern unsigned char planted_twin[];         /* the same, in code for other instructions */

#ifdef CROSSCHECK
int crosscheck_main(int argc, char **argv);
#endif

static void show_numbers(const char *kind, const char *name, const unsigned char *hit) {
    int i;
    printf("%s %s", kind, name);
    for (i = 1; i <= planted_count; i++)
        if (hit[i]) printf(" %d", i);
    printf("\n");
}

static void show(const bitnet_kernels *k) {
    bitnet_error err = {BITNET_OK, "", {0}};
    memset(planted_hit, 0, (size_t)planted_count + 1);
    if (bitnet_selftest(k, &err)) {
        printf("FAIL without a fault: %s\n", err.text);
        exit(2);
    }
    show_numbers("table", bitnet_kernels_name(k), planted_hit);
}

int main(int argc, char **argv) {
    int i;
    planted = argc > 1 ? atoi(argv[1]) : 0;
#ifdef CROSSCHECK
    if (argc > 2 && !strcmp(argv[2], "crosscheck")) return crosscheck_main(1, argv);
#endif
    for (i = 0; !planted && i < bitnet_kernels_count(); i++)
        if (bitnet_kernels_usable(bitnet_kernels_get(i))) show(bitnet_kernels_get(i));
    if (!planted) show_numbers("twins", "-", planted_twin);
    for (i = 2; i < argc; i++)
        if (bitnet_selftest(bitnet_kernels_find(argv[i]), 0)) return 1;
    return 0;
}
