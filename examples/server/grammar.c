/* grammar.c - the implementations of bitnet.h and bitnet_grammar.h, for all programs of this
   folder. build.sh compiles that of bitnet.h elsewhere. */
#define BITNET_IMPLEMENTATION
#define BITNET_GRAMMAR_IMPLEMENTATION
#include "../../bitnet.h"
#include "../../bitnet_grammar.h"
