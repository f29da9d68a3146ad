#define _DEFAULT_SOURCE 1              /* fdatasync, realpath and others, also with -std=c99 */
#define _FILE_OFFSET_BITS 64           /* files over 2 GB, also on 32-bit systems */
#include "batch_files.h"
#include "../utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifdef _WIN32
/* ---- Windows ---- */

  #include <io.h>
  #include <windows.h>

int file_open(const char *path) {
    WCHAR wide[UTF8_PATH];
    return utf8_wide(path, wide) ? _wopen(wide, _O_RDWR | _O_CREAT | _O_APPEND | _O_BINARY,
                                          _S_IREAD | _S_IWRITE) : -1;
}

int file_remove(const char *path) {
    WCHAR wide[UTF8_PATH];
    return utf8_wide(path, wide) ? _wremove(wide) : -1;
}

int file_is_ready(int fd) {
    const HANDLE h = (HANDLE)_get_osfhandle(fd);
    DWORD n = 0;
    switch (GetFileType(h)) {
        case FILE_TYPE_PIPE: return !PeekNamedPipe(h, 0, 0, 0, &n, 0) || n > 0;  /* or its end */
        case FILE_TYPE_CHAR: return WaitForSingleObject(h, 0) == WAIT_OBJECT_0;
        default: return 1;
    }
}

static volatile sig_atomic_t is_ended;

/* A signal, which comes on another thread, does not end the wait for a pipe. */
int64_t file_read(int fd, char *p, size_t n) {
    const int is_pipe = GetFileType((HANDLE)_get_osfhandle(fd)) == FILE_TYPE_PIPE;
    while (is_pipe && !file_is_ready(fd)) {
        if (is_ended) {
            errno = EINTR;
            return -1;
        }
        Sleep(10);
    }
    return _read(fd, p, (unsigned)n);
}

int64_t file_write(int fd, const char *p, size_t n) {
    return _write(fd, p, n < 1u << 20 ? (unsigned)n : 1u << 20);
}

int file_seek(FILE *f, uint64_t at) { return _fseeki64(f, (int64_t)at, SEEK_SET); }
int file_rewind(int fd) { return _lseeki64(fd, 0, SEEK_SET) != 0; }
int64_t file_place(int fd) { return _telli64(fd); }

int64_t file_size(int fd) {
    struct _stat64 st;
    return _fstat64(fd, &st) || !(st.st_mode & _S_IFREG) ? -1 : st.st_size;
}

int file_is_other(const char *path) {
    WCHAR wide[UTF8_PATH];
    struct _stat64 st;
    return utf8_wide(path, wide) && !_wstat64(wide, &st) && !(st.st_mode & _S_IFREG);
}

int file_cut(int fd, int64_t size) {
    const int wrong = _chsize_s(fd, size);
    if (wrong) errno = wrong;
    return wrong;
}

int file_sync(int fd) { return _commit(fd); }

/* A lock also keeps others from reading its bytes, so it covers one that no file has. */
int file_lock(int fd) {
    OVERLAPPED at;
    memset(&at, 0, sizeof at);
    at.OffsetHigh = 0x7ffffff0;
    return LockFileEx((HANDLE)_get_osfhandle(fd),
                      LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at) != 0;
}

int files_are_same(int fd, int other) {
    BY_HANDLE_FILE_INFORMATION a, b;
    return file_size(fd) >= 0 &&
           GetFileInformationByHandle((HANDLE)_get_osfhandle(fd), &a) &&
           GetFileInformationByHandle((HANDLE)_get_osfhandle(other), &b) &&
           a.dwVolumeSerialNumber == b.dwVolumeSerialNumber &&
           a.nFileIndexHigh == b.nFileIndexHigh && a.nFileIndexLow == b.nFileIndexLow;
}

/* What is open here keeps its name. */
int file_is_named(int fd, const char *path) {
    (void)fd;
    (void)path;
    return 1;
}

char *file_real_path(const char *path) {
    char *copy = (char *)malloc(strlen(path) + 1);
    return copy ? strcpy(copy, path) : 0;
}

int file_permit(int fd, FILE *copy) {
    (void)fd;
    (void)copy;
    return 0;
}

/* A file that is open cannot be replaced. A run that comes in between finds one file or the other,
   whole, and this one then has no lock. */
int file_take_place(const char *copy, const char *path, int *fd) {
    WCHAR from[UTF8_PATH], to[UTF8_PATH];
    int has_failed;
    if (!utf8_wide(copy, from) || !utf8_wide(path, to)) return -1;
    _close(*fd);
    has_failed = !MoveFileExW(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH);
    *fd = file_open(path);
    if (*fd >= 0 && !file_lock(*fd)) {
        _close(*fd);
        *fd = -1;
    }
    if (has_failed || *fd < 0) errno = EACCES;
    return has_failed || *fd < 0;
}

int file_is_terminal(int fd) { return _isatty(fd); }

static void (*on_end)(int);

static void end(int number) {
    is_ended = 1;
    on_end(number);
}

void file_on_signal(void (*fn)(int)) {
    on_end = fn;
    signal(SIGINT, end);
    signal(SIGTERM, end);
    signal(SIGBREAK, end);
}

#else
/* ---- POSIX ---- */

  #include <poll.h>
  #include <unistd.h>
  #ifdef __APPLE__                     /* has it, but no declaration */
    #define fdatasync fsync
  #endif

int file_open(const char *path) { return open(path, O_RDWR | O_CREAT | O_APPEND, 0666); }
int file_remove(const char *path) { return unlink(path); }

int file_is_ready(int fd) {
    struct pollfd ready = {fd, POLLIN, 0};
    return poll(&ready, 1, 0) != 0;
}

int64_t file_read(int fd, char *p, size_t n) { return read(fd, p, n); }
int64_t file_write(int fd, const char *p, size_t n) { return write(fd, p, n); }
int file_seek(FILE *f, uint64_t at) { return fseeko(f, (off_t)at, SEEK_SET); }
int file_rewind(int fd) { return lseek(fd, 0, SEEK_SET) != 0; }
int64_t file_place(int fd) { return lseek(fd, 0, SEEK_CUR); }

int64_t file_size(int fd) {
    struct stat st;
    return fstat(fd, &st) || !S_ISREG(st.st_mode) ? -1 : st.st_size;
}

int file_is_other(const char *path) {
    struct stat st;
    return !stat(path, &st) && !S_ISREG(st.st_mode);
}

int file_cut(int fd, int64_t size) { return ftruncate(fd, (off_t)size); }
int file_sync(int fd) { return fdatasync(fd); }

int file_lock(int fd) {
    struct flock whole;
    memset(&whole, 0, sizeof whole);
    whole.l_type = F_WRLCK;
    return fcntl(fd, F_SETLK, &whole) == 0;
}

static int are_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int files_are_same(int fd, int other) {
    struct stat a, b;
    return !fstat(fd, &a) && S_ISREG(a.st_mode) && !fstat(other, &b) && are_same(&a, &b);
}

int file_is_named(int fd, const char *path) {
    struct stat st, named;
    return !fstat(fd, &st) && !stat(path, &named) && are_same(&st, &named);
}

char *file_real_path(const char *path) { return realpath(path, 0); }

int file_permit(int fd, FILE *copy) {
    struct stat st;
    return fstat(fd, &st) || fchmod(fileno(copy), st.st_mode & 0777);
}

/* The copy is locked before it gets the name. */
int file_take_place(const char *copy, const char *path, int *fd) {
    const int new_fd = open(copy, O_RDWR | O_APPEND);
    if (new_fd < 0) return -1;
    if (!file_lock(new_fd) || rename(copy, path)) {
        close(new_fd);
        return -1;
    }
    close(*fd);
    *fd = new_fd;
    return 0;
}

int file_is_terminal(int fd) { return isatty(fd); }

void file_on_signal(void (*fn)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = fn;
    sigaction(SIGINT, &action, 0);
    sigaction(SIGTERM, &action, 0);
    signal(SIGPIPE, SIG_IGN);
  #ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN);          /* write says so, and a torn line is taken back */
  #endif
}
#endif
