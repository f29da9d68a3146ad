/* With BITNET_SHARED this is for a shared library, which exports the public functions alone. */
#ifdef BITNET_SHARED
  #ifdef _WIN32
    #define BITNET_API __declspec(dllexport)
  #else
    #define BITNET_API extern __attribute__((visibility("default")))
  #endif
#endif
