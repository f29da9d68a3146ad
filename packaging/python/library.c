/* bitnet.h and bitnet_grammar.h as a shared library, which exports the public functions alone. */
#ifdef _WIN32
  #define BITNET_API __declspec(dllexport)
#else
  #define BITNET_API extern __attribute__((visibility("default")))
#endif
#define BITNET_IMPLEMENTATION
#include "bitnet.h"
#define BITNET_GRAMMAR_IMPLEMENTATION
#include "bitnet_grammar.h"
