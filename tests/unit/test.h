/* What every test file needs: the library with its private parts visible, and the checks. */
#ifndef TEST_H
#define TEST_H

#include "library.h"

#include "check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes threads share every step of the network, however small and whether or not it pays: tests
   have small models and busy machines. */
static inline void test_share(bitnet_ctx *c) {
    c->min_task = 1;
#if !defined(BITNET_NO_THREADS) && (!defined(__EMSCRIPTEN__) || defined(__EMSCRIPTEN_PTHREADS__))
    if (c->team) c->team->ledger.balance = INT64_MAX / 2;
#endif
}

#endif
