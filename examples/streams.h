/* streams.h - standard streams that a parent has closed

   A file takes the lowest descriptor that is free. Without descriptor 2 that would be 2, and what
   the program says on stderr would get into the file. */
#ifndef EXAMPLES_STREAMS_H
#define EXAMPLES_STREAMS_H

#ifdef _WIN32
  #include <fcntl.h>
  #include <io.h>

/* The C library keeps descriptors 0 to 2 for the standard streams, also if these are missing. */
static inline int streams_fill(void) { return 1; }

/* Input and output have the same bytes as on other systems, but for what is typed. */
static inline void streams_binary(void) {
    if (!_isatty(0)) _setmode(0, _O_BINARY);
    _setmode(1, _O_BINARY);
}
#else
  #include <fcntl.h>

/* main calls this before it opens anything. What stands in for a closed stream fails when it is
   used, as a closed one does. Returns 0 if there is no /dev/null. */
static inline int streams_fill(void) {
    int fd;
    for (fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd) return 0;
    return 1;
}

static inline void streams_binary(void) {}
#endif

#endif
