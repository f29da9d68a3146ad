/* serve_system.h - sockets, files and signals: those of POSIX, or of Windows

   Paths are UTF-8. What Windows lacks: Unix sockets, which its older versions have not; epoll, in
   place of which libmicrohttpd asks all connections in turn (WSAPoll), so that thousands of them
   take time; and SIGHUP, so that a log is not opened again. */
#ifndef SERVER_SERVE_SYSTEM_H
#define SERVER_SERVE_SYSTEM_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef _WIN32
  #ifndef WIN32_LEAN_AND_MEAN
    #define WIN32_LEAN_AND_MEAN        /* else windows.h has older sockets */
  #endif
  #include <winsock2.h>
  #include <ws2tcpip.h>
typedef SOCKET system_socket;
enum { SYSTEM_IS_WINDOWS = 1 };
#else
  #include <arpa/inet.h>
  #include <netdb.h>
  #include <netinet/in.h>
  #include <poll.h>
  #include <sys/socket.h>
  #define INVALID_SOCKET (-1)
typedef int system_socket;
enum { SYSTEM_IS_WINDOWS = 0 };
#endif

/* Before all else. Returns 0 if the system has no sockets for us. */
int system_begin(void);

/* ---- sockets ---- */

/* What the last call on a socket failed with, as text; forgets it. */
const char *system_socket_error(void);
void system_forget_error(void);

void system_close(system_socket s);
/* Nothing comes and goes any more; it stays open. */
void system_shut(system_socket s);
/* Sending and receiving wait no longer than that. Nonzero: it failed. */
int system_bound(system_socket s, int seconds);
/* Some of n bytes. Return how many, 0 at the end, -1. */
int64_t system_send(system_socket s, const char *p, size_t n);
int64_t system_receive(system_socket s, char *p, size_t n);

/* A socket that listens at a path; one that is left of a server that has died goes first. -1: it
   says on stderr why there is none. */
int system_listen_at(const char *path);
void system_unlink(const char *path);
/* Connects a socket to what listens at a path. Nonzero: it failed. */
int system_connect_at(system_socket s, const char *path);
/* Two that are connected. Nonzero: there are none. */
int system_pair(int pair[2]);

/* Which of n connections have left: watch each, ask once, and then look at each. ask returns 0 if
   the system does not say. */
void system_watch(struct pollfd *p, system_socket s);
int system_ask(struct pollfd *p, size_t n);
int system_has_left(const struct pollfd *p);

/* ---- files; what fails sets errno ---- */

int system_is_there(const char *path);
int system_is_folder(const char *path);
/* The path of this program, with slashes; name: as it was called. */
const char *system_program(const char *name);

/* To read a file below a folder, on which no other name leads out of it: no part of the path may be
   a link, and reading does not block. Returns its descriptor, or -1. */
int system_open_below(const char *folder, const char *path);
/* -1: it is no regular file. */
int64_t system_file_size(int fd);
/* To add to its end; it is made if it is not there. */
int system_open_log(const char *path);
int64_t system_write(int fd, const char *p, size_t n);
void system_close_file(int fd);

/* ---- the rest ---- */

/* The time of the world. Returns 0 if it has no parts. */
int system_utc(struct tm *parts, int *milliseconds);
/* end_fn: the user or the system wants an end. hang_up_fn: SIGHUP; 0: it stays as it is. A client
   that leaves is an error of what writes to it, no signal. */
void system_on_signals(void (*end_fn)(int), void (*hang_up_fn)(int));

#endif
