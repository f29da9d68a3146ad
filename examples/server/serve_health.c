/* serve --health: for a container's health check, in which there is no other program. */
#include "serve_health.h"
#include "serve.h"
#include "serve_http.h"
#include "serve_system.h"
#include <stdio.h>
#include <string.h>

enum { WAIT_SECONDS = 5 };

/* Connects s, if it is one, to an address; 0: to the Unix socket. Closes it where that fails. */
static system_socket reach_at(system_socket s, const struct addrinfo *to) {
    if (s == INVALID_SOCKET) return s;
    if (!system_bound(s, WAIT_SECONDS) &&
        !(to ? connect(s, to->ai_addr, (socklen_t)to->ai_addrlen)
             : system_connect_at(s, settings.host))) return s;
    system_close(s);
    return INVALID_SOCKET;
}

/* A connection to the server, on this machine where it listens at all addresses, or none. */
static system_socket reach(void) {
    const int any = !strcmp(settings.host, "0.0.0.0") || !strcmp(settings.host, "::");
    struct addrinfo hints, *found = 0;
    char port[16];
    system_socket s;
    if (http_is_socket()) return reach_at(socket(AF_UNIX, SOCK_STREAM, 0), 0);
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    snprintf(port, sizeof port, "%ld", settings.port);
    if (getaddrinfo(any ? "127.0.0.1" : settings.host, port, &hints, &found) || !found)
        return INVALID_SOCKET;
    s = reach_at(socket(found->ai_family, SOCK_STREAM, 0), found);
    freeaddrinfo(found);
    return s;
}

int serve_health(void) {
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n"
                              "Connection: close\r\n\r\n";
    static const char well[] = "HTTP/1.1 200 ";
    char head[sizeof well];
    size_t n = 0;
    int64_t got = 0;
    const system_socket s = reach();
    const int is_there = s != INVALID_SOCKET;
    if (is_there && system_send(s, ask, sizeof ask - 1) == (int64_t)sizeof ask - 1)
        while (n < sizeof well - 1 &&
               (got = system_receive(s, head + n, sizeof well - 1 - n)) > 0)
            n += (size_t)got;
    if (is_there) system_close(s);
    if (n == sizeof well - 1 && !memcmp(head, well, n)) return 0;
    serve_say(!is_there ? "nothing listens on %s" : n ? "the server on %s is not ready"
              : "the server on %s does not answer", settings.host);
    return 1;
}
