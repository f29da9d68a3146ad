/* What every test file needs: the library with its private parts visible, and the checks. */
#ifndef TEST_H
#define TEST_H

#include "library.h"

#include "check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A string as a text, without its NUL; 0: none. */
static inline bitnet_text text_of(const char *s) {
    bitnet_text t;
    t.data = s;
    t.size = s ? strlen(s) : 0;
    return t;
}

static inline int same_text(bitnet_text t, const char *s) {
    return t.data && t.size == strlen(s) && !memcmp(t.data, s, t.size);
}

/* Initialises a bitnet_message with string literals. */
#define MESSAGE(role, content) {BITNET_TEXT(role), BITNET_TEXT(content), {0, 0}}

static inline bitnet_token token_named(const bitnet_model *m, const char *name) {
    return bitnet_token_find(m, name, strlen(name));
}

/* 1: the library has threads, and with them a clock. */
#if defined(BITNET_NO_THREADS) || (defined(__EMSCRIPTEN__) && !defined(__EMSCRIPTEN_PTHREADS__))
  #define TEST_THREADS 0
#else
  #define TEST_THREADS 1
#endif

/* Makes threads share every step of the network, however small and whether or not it pays: tests
   have small models and busy machines. */
static inline void test_share(bitnet_ctx *c) {
    c->min_task = 1;
#if TEST_THREADS
    if (c->team) c->team->ledger.balance = INT64_MAX / 2;
#endif
}

#endif
