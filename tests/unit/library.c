/* The library, once for all test files; see library.h. */
#include "hooks.h"

#define BITNET_IMPLEMENTATION
#include "../../bitnet.h"
