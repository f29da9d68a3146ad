/* grammar.c - the implementation of bitnet_grammar.h, for all programs of this folder */
#define BITNET_GRAMMAR_IMPLEMENTATION
#include "../../bitnet_grammar.h"
