/* What hooks.h declares. The library of the tests works with any program that links this, too. */
#include "hooks.h"

test_refusal test_refuse = {TEST_SYSTEM, 0, -1, 0};
int test_cpus, test_unmapped;
const char *test_point;

int test_refused(int kind) {
    long number;
    if (test_refuse.at < 0 || kind != test_refuse.kind) return 0;
    number = test_refuse.asked++;
    return number == test_refuse.at || (test_refuse.later && number > test_refuse.at);
}
