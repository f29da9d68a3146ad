/* serve --health: for a container's health check, in which there is no other program. */
#include "serve_health.h"
#include "serve.h"
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { WAIT_SECONDS = 5 };

/* A connection to the server, on this machine where it listens at all addresses; -1: none. */
static int reach(void) {
    const int any = !strcmp(settings.host, "0.0.0.0") || !strcmp(settings.host, "::");
    const struct timeval wait = {WAIT_SECONDS, 0};
    struct addrinfo hints, *found = 0;
    char port[16];
    int fd;
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    snprintf(port, sizeof port, "%ld", settings.port);
    if (getaddrinfo(any ? "127.0.0.1" : settings.host, port, &hints, &found) || !found) return -1;
    fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) ||
                    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) ||
                    connect(fd, found->ai_addr, found->ai_addrlen))) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

int serve_health(void) {
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n"
                              "Connection: close\r\n\r\n";
    static const char well[] = "HTTP/1.1 200 ";
    char answer[sizeof well];
    size_t n = 0;
    ssize_t got = 0;
    const int fd = reach();
    if (fd >= 0 && write(fd, ask, sizeof ask - 1) == (ssize_t)sizeof ask - 1)
        while (n < sizeof well - 1 && (got = read(fd, answer + n, sizeof well - 1 - n)) > 0)
            n += (size_t)got;
    if (fd >= 0) close(fd);
    if (n == sizeof well - 1 && !memcmp(answer, well, n)) return 0;
    serve_fail(fd < 0 ? "nothing listens on %s%s" : n ? "the server on %s is not ready%s"
               : "the server on %s does not answer%s", settings.host, "");
    return 1;
}
