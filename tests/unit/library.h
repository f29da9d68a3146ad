/* bitnet.h with its private parts visible. All test files share the public functions, which
   library.c compiles once. A private function that a test file calls is compiled again there.

   This works through gnu_inline: to GNU C, an "extern inline" function with this attribute is only
   there to be inlined and its code is in another object; noinline leaves that one. So neither the
   public functions nor what only they call are compiled here: a test file takes about a second, and
   all of them see the same tables.

   With BITNET_STATIC, which the fuzzers define, the whole library is compiled in this file. */
#ifndef LIBRARY_H
#define LIBRARY_H
#if defined(__GNUC__) && !defined(FUZZ_COVERAGE)     /* clang counts no lines of a system header */
  #pragma GCC system_header   /* no warnings here: library.c has them */
#endif

#include "hooks.h"

#ifndef BITNET_STATIC
  #define BITNET_API extern inline __attribute__((gnu_inline, noinline))
#endif
#ifndef BITNET_IMPLEMENTATION
  #define BITNET_IMPLEMENTATION
#endif
#include "../../bitnet.h"

#endif
