/* The library as one object file, for build systems that want a source file. */
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"
