/* bitnet.h as one object file, for build systems that want a source file. */
#include "exports.h"
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"
