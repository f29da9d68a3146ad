#define _GNU_SOURCE 1                  /* POLLRDHUP */
#include "serve_system.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PART = 512 };                   /* bytes of a path below a folder, or more */

#ifdef _WIN32
/* ---- Windows ---- */

  #include "../utf8.h"
  #include <io.h>

int system_begin(void) {
    WSADATA data;
    return !WSAStartup(MAKEWORD(2, 2), &data);
}

const char *system_socket_error(void) {
    static char text[32];
    const int code = WSAGetLastError();
    switch (code) {
        case WSAEADDRINUSE: return "the address is in use";
        case WSAEADDRNOTAVAIL: return "this machine has no such address";
        case WSAEACCES: return "it is not allowed";
        default: snprintf(text, sizeof text, "error %d of Windows", code); return text;
    }
}

void system_forget_error(void) { WSASetLastError(0); }

void system_close(system_socket s) { closesocket(s); }
void system_shut(system_socket s) { shutdown(s, SD_BOTH); }

int system_bound(system_socket s, int seconds) {
    const DWORD wait = (DWORD)seconds * 1000;
    return setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, (const char *)&wait, sizeof wait) ||
           setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, (const char *)&wait, sizeof wait);
}

int64_t system_send(system_socket s, const char *p, size_t n) {
    return send(s, p, n < 1u << 20 ? (int)n : 1 << 20, 0);
}

int64_t system_receive(system_socket s, char *p, size_t n) {
    return recv(s, p, n < 1u << 20 ? (int)n : 1 << 20, 0);
}

int system_listen_at(const char *path) {
    fprintf(stderr, "serve: cannot listen at %s: there are no Unix sockets on Windows\n", path);
    return -1;
}

void system_unlink(const char *path) { (void)path; }

int system_connect_at(system_socket s, const char *path) {
    (void)s;
    (void)path;
    return 1;
}

/* Only epoll needs one: see http_wake. */
int system_pair(int pair[2]) {
    (void)pair;
    return 1;
}

void system_watch(struct pollfd *p, system_socket s) {
    p->fd = s;
    p->events = POLLIN;
    p->revents = 0;
}

int system_ask(struct pollfd *p, size_t n) { return WSAPoll(p, (ULONG)n, 0) >= 0; }

/* libmicrohttpd's sockets do not block. */
int system_has_left(const struct pollfd *p) {
    char next;
    int n;
    if (p->revents & (POLLERR | POLLHUP | POLLNVAL)) return 1;
    if (!(p->revents & POLLIN)) return 0;
    n = recv(p->fd, &next, 1, MSG_PEEK);
    return n == 0 || (n < 0 && WSAGetLastError() != WSAEWOULDBLOCK);
}

static DWORD attributes(const char *path) {
    WCHAR wide[UTF8_PATH];
    return utf8_wide(path, wide) ? GetFileAttributesW(wide) : INVALID_FILE_ATTRIBUTES;
}

int system_is_there(const char *path) { return attributes(path) != INVALID_FILE_ATTRIBUTES; }

int system_is_folder(const char *path) {
    const DWORD a = attributes(path);
    return a != INVALID_FILE_ATTRIBUTES && (a & FILE_ATTRIBUTE_DIRECTORY);
}

/* A program is also found by a name alone. */
const char *system_program(const char *name) {
    static char path[4 * MAX_PATH];
    WCHAR wide[MAX_PATH];
    const DWORD n = GetModuleFileNameW(0, wide, MAX_PATH);
    char *at = path;
    if (!n || n >= MAX_PATH ||
        !WideCharToMultiByte(CP_UTF8, 0, wide, -1, path, sizeof path, 0, 0)) return name;
    while ((at = strchr(at, '\\')) != 0) *at = '/';
    return path;
}

/* May a part of a path have this name? Windows has a second sign between parts, and streams behind
   colons; it drops dots and blanks at an end. It has devices in all folders, too: they show when
   they are open, as no files on a disk. */
static int is_plain(const char *part, size_t n) {
    size_t i;
    for (i = 0; i < n; i++)
        if ((unsigned char)part[i] < 32 || strchr("\\:*?\"<>|", part[i])) return 0;
    return n > 0 && part[n - 1] != '.' && part[n - 1] != ' ';
}

/* Without openat a link may take a part's place after that was looked at. Making one needs rights
   that others have not. */
int system_open_below(const char *folder, const char *path) {
    char whole[2 * PART];
    WCHAR wide[UTF8_PATH];
    size_t n = strlen(folder), more;
    HANDLE h;
    int fd;
    if (n + strlen(path) + 2 > sizeof whole) n = 0;      /* longer than any name of the page */
    memcpy(whole, folder, n);
    for (path += strspn(path, "/"); n && *path; path += more + strspn(path + more, "/")) {
        DWORD a;
        more = strcspn(path, "/");
        if (!is_plain(path, more)) n = 0;
        else {
            whole[n++] = '/';
            memcpy(whole + n, path, more);
            whole[n += more] = 0;
            a = attributes(whole);
            if (a == INVALID_FILE_ATTRIBUTES || a & FILE_ATTRIBUTE_REPARSE_POINT ||
                !(a & FILE_ATTRIBUTE_DIRECTORY) != !path[more]) n = 0;
        }
    }
    errno = ENOENT;
    if (!n || !utf8_wide(whole, wide)) return -1;
    h = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, 0,
                    OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT, 0);
    if (h == INVALID_HANDLE_VALUE) {
        errno = GetLastError() == ERROR_TOO_MANY_OPEN_FILES ? EMFILE : ENOENT;
        return -1;
    }
    fd = GetFileType(h) == FILE_TYPE_DISK
             ? _open_osfhandle((intptr_t)h, _O_RDONLY | _O_BINARY | _O_NOINHERIT) : -1;
    if (fd < 0) CloseHandle(h);
    return fd;
}

int64_t system_file_size(int fd) {
    struct _stat64 st;
    if (_fstat64(fd, &st)) return -1;
    if (st.st_mode & _S_IFREG) return st.st_size;
    errno = ENOENT;
    return -1;
}

int system_open_log(const char *path) {
    WCHAR wide[UTF8_PATH];
    return utf8_wide(path, wide) ? _wopen(wide, _O_WRONLY | _O_APPEND | _O_CREAT | _O_BINARY |
                                          _O_NOINHERIT, _S_IREAD | _S_IWRITE) : -1;
}

int64_t system_write(int fd, const char *p, size_t n) {
    return _write(fd, p, n < 1u << 20 ? (unsigned)n : 1u << 20);
}

void system_close_file(int fd) { _close(fd); }

int system_utc(struct tm *parts, int *milliseconds) {
    SYSTEMTIME t;
    GetSystemTime(&t);
    memset(parts, 0, sizeof *parts);
    parts->tm_year = t.wYear - 1900;
    parts->tm_mon = t.wMonth - 1;
    parts->tm_mday = t.wDay;
    parts->tm_hour = t.wHour;
    parts->tm_min = t.wMinute;
    parts->tm_sec = t.wSecond;
    *milliseconds = t.wMilliseconds;
    return 1;
}

static void (*on_end)(int);

/* On a thread of its own. When a console closes, or the user logs off, the process ends when this
   returns, or seconds later: the server's end comes before. */
static BOOL WINAPI on_event(DWORD event) {
    on_end(0);
    if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) Sleep(INFINITE);
    return TRUE;
}

void system_on_signals(void (*end_fn)(int), void (*hang_up_fn)(int)) {
    (void)hang_up_fn;
    on_end = end_fn;
    SetConsoleCtrlHandler(0, FALSE);   /* a parent may have turned Ctrl-C off */
    SetConsoleCtrlHandler(on_event, TRUE);
}

#else
/* ---- POSIX ---- */

  #include <signal.h>
  #include <sys/time.h>
  #include <sys/un.h>
  #include <unistd.h>

  #ifndef POLLRDHUP
    #define POLLRDHUP 0
  #endif

int system_begin(void) { return 1; }

const char *system_socket_error(void) { return strerror(errno); }
void system_forget_error(void) { errno = 0; }

void system_close(system_socket s) { close(s); }
void system_shut(system_socket s) { shutdown(s, SHUT_RDWR); }

int system_bound(system_socket s, int seconds) {
    struct timeval wait = {0, 0};
    wait.tv_sec = seconds;
    return setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) ||
           setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
}

int64_t system_send(system_socket s, const char *p, size_t n) { return write(s, p, n); }
int64_t system_receive(system_socket s, char *p, size_t n) { return read(s, p, n); }

/* Nonzero: a path is too long. */
static int set_address(struct sockaddr_un *a, const char *path) {
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof a->sun_path) {
        errno = ENAMETOOLONG;
        return 1;
    }
    strcpy(a->sun_path, path);
    return 0;
}

int system_connect_at(system_socket s, const char *path) {
    struct sockaddr_un a;
    return set_address(&a, path) || connect(s, (struct sockaddr *)(void *)&a, sizeof a);
}

int system_listen_at(const char *path) {
    struct sockaddr_un a;
    struct stat st;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), is_ok = fd >= 0 && !set_address(&a, path);
    if (is_ok && !stat(path, &st) && S_ISSOCK(st.st_mode) && system_connect_at(fd, path) &&
        errno == ECONNREFUSED) unlink(path);
    if (is_ok) {
        close(fd);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        is_ok = fd >= 0 && !bind(fd, (struct sockaddr *)(void *)&a, sizeof a) &&
                !listen(fd, 1024);
    }
    if (is_ok) return fd;
    fprintf(stderr, "serve: cannot listen at %s: %s\n", path, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

void system_unlink(const char *path) { unlink(path); }

int system_pair(int pair[2]) { return socketpair(AF_UNIX, SOCK_STREAM, 0, pair); }

void system_watch(struct pollfd *p, system_socket s) {
    p->fd = s;
    p->events = POLLRDHUP ? POLLRDHUP : POLLIN;
    p->revents = 0;
}

int system_ask(struct pollfd *p, size_t n) { return poll(p, (nfds_t)n, 0) >= 0; }

/* The client may have sent more before, hence the end is looked for behind that. Where a system
   cannot say it, a connection has left if nothing but the end is there. */
int system_has_left(const struct pollfd *p) {
    char next;
    ssize_t n;
    if (p->revents & (POLLRDHUP | POLLERR | POLLHUP | POLLNVAL)) return 1;
    if (POLLRDHUP || !(p->revents & POLLIN)) return 0;
    n = recv(p->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

int system_is_there(const char *path) {
    struct stat st;
    return !stat(path, &st);
}

int system_is_folder(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

const char *system_program(const char *name) { return name; }

int system_open_below(const char *folder, const char *path) {
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), above;
    char part[PART];
    size_t n;
    for (path += strspn(path, "/"); fd >= 0 && *path; path += n + strspn(path + n, "/")) {
        n = strcspn(path, "/");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        above = fd;
        fd = openat(above, part, path[n] ? flags | O_DIRECTORY : flags);
        close(above);
    }
    return fd;
}

int64_t system_file_size(int fd) {
    struct stat st;
    if (fstat(fd, &st)) return -1;
    if (S_ISREG(st.st_mode)) return st.st_size;
    errno = ENOENT;
    return -1;
}

int system_open_log(const char *path) { return open(path, O_WRONLY | O_APPEND | O_CREAT, 0666); }
int64_t system_write(int fd, const char *p, size_t n) { return write(fd, p, n); }
void system_close_file(int fd) { close(fd); }

int system_utc(struct tm *parts, int *milliseconds) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    *milliseconds = (int)(t.tv_nsec / 1000000);
    return gmtime_r(&t.tv_sec, parts) != 0;
}

void system_on_signals(void (*end_fn)(int), void (*hang_up_fn)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = end_fn;
    sigaction(SIGINT, &action, 0);
    sigaction(SIGTERM, &action, 0);
    action.sa_handler = hang_up_fn;
    if (hang_up_fn) sigaction(SIGHUP, &action, 0);
    signal(SIGPIPE, SIG_IGN);
}
#endif
