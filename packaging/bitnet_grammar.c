/* bitnet_grammar.h as an object file of its own: a program that has BITNET_GRAMMAR_IMPLEMENTATION in a
   file of its own links without this one. */
#include "exports.h"
#define BITNET_GRAMMAR_IMPLEMENTATION
#include "../bitnet_grammar.h"
