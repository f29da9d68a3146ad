/* The library as one object file, for build systems that want a source file. With BITNET_SHARED it
   is for a shared library, which exports the public functions alone. */
#ifdef BITNET_SHARED
  #ifdef _WIN32
    #define BITNET_API __declspec(dllexport)
  #else
    #define BITNET_API extern __attribute__((visibility("default")))
  #endif
#endif
#define BITNET_IMPLEMENTATION
#include "../bitnet.h"
