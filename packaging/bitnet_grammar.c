/* bitnet_grammar.h as an object file of its own: a program that compiles the grammar itself links
   without this one. */
#include "exports.h"
#define BITNET_GRAMMAR_IMPLEMENTATION
#include "../bitnet_grammar.h"
