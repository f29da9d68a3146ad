#define _DEFAULT_SOURCE 1              /* realpath and others, also with -std=c99 */
#define _FILE_OFFSET_BITS 64
#define WRITTEN_IMPLEMENTATION
#include "file.h"
#include "say.h"
#include "../utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef _WIN32
  #include <io.h>
#else
  #include <sys/mman.h>
  #include <unistd.h>
#endif

/* ---- what Windows does in another way ---- */

#ifdef _WIN32
static int open_to_read(const char *path) {
    WCHAR wide[UTF8_PATH];
    file_facts facts;
    int fd;
    if (!utf8_wide(path, wide)) return -1;
    fd = _wopen(wide, _O_RDONLY | _O_BINARY | _O_NOINHERIT);
    if (fd < 0 && errno == EACCES && !file_look(&facts, path, 1) && facts.is_folder)
        errno = EISDIR;
    return fd;
}

static int map_read_only(mapped *m, int fd) {
    const HANDLE map = CreateFileMappingW((HANDLE)_get_osfhandle(fd), 0, PAGE_READONLY, 0, 0, 0);
    if (!map) return written_errno();
    m->p = (const uint8_t *)MapViewOfFile(map, FILE_MAP_READ, 0, 0, m->size);
    CloseHandle(map);                  /* the view keeps it */
    return m->p ? 0 : written_errno();
}

static void unmap(mapped *m) { UnmapViewOfFile(m->p); }

/* >> of its shells begins at the end, and lets a program write before that. */
static int appends(int fd) {
    (void)fd;
    return 0;
}
#else
static int open_to_read(const char *path) {
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

static int map_read_only(mapped *m, int fd) {
    void *p = mmap(0, m->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return errno;
    m->p = (const uint8_t *)p;
    return 0;
}

static void unmap(mapped *m) { munmap((void *)(uintptr_t)m->p, m->size); }

/* Is all that is written put at the end? */
static int appends(int fd) {
    const int flags = fcntl(fd, F_GETFL);
    return flags < 0 || flags & O_APPEND;
}
#endif

/* ---- reading ---- */

/* Sets the size of a regular file. */
static int measure(mapped *m, int fd) {
    struct stat st;
    if (fstat(fd, &st)) return errno;
    if (S_ISDIR(st.st_mode)) return EISDIR;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > SIZE_MAX) return EINVAL;
    m->size = (size_t)st.st_size;
    return 0;
}

static int map_descriptor(mapped *m, int fd) {
    const int wrong = measure(m, fd);
    return wrong || m->size == 0 ? wrong : map_read_only(m, fd);
}

int file_map(mapped *m, const char *path) {
    const int fd = open_to_read(path);
    int wrong;
    memset(m, 0, sizeof *m);
    if (fd < 0) return errno;
    wrong = map_descriptor(m, fd);
    close(fd);
    return wrong;
}

void file_unmap(mapped *m) {
    if (m->p) unmap(m);
    memset(m, 0, sizeof *m);
}

static int read_descriptor(mapped *m, int fd, size_t most) {
    const int wrong = measure(m, fd);
    uint8_t *p;
    size_t at = 0;
    long n = 1;
    if (wrong) return wrong;
    if (m->size > most) return EFBIG;
    if (!(p = (uint8_t *)malloc(m->size + 1))) return ENOMEM;
    m->p = p;
    while (at < m->size && n > 0) {
        const size_t left = m->size - at;
        n = (long)read(fd, p + at, left < 1 << 30 ? (unsigned)left : 1u << 30);
        at += n > 0 ? (size_t)n : 0;
    }
    m->size = at;                      /* it may have become shorter meanwhile */
    return n < 0 ? errno : 0;
}

int file_read(mapped *m, const char *path, size_t most) {
    const int fd = open_to_read(path);
    int wrong;
    memset(m, 0, sizeof *m);
    if (fd < 0) return errno;
    wrong = read_descriptor(m, fd, most);
    close(fd);
    return wrong;
}

int file_try(const char *path) {
    const int fd = open_to_read(path);
    if (fd < 0) return errno;
    close(fd);
    return 0;
}

void file_forget(mapped *m) {
    free((void *)(uintptr_t)m->p);
    memset(m, 0, sizeof *m);
}

/* ---- writing ---- */

/* why 0: nothing failed. */
static int cannot_write(const char *path, const char *why) {
    return why ? fail(FAILED, "cannot write to %s: %s", path ? path : "standard output", why)
               : DONE;
}

int file_create(written *w, const char *path, int devices) {
    return cannot_write(path, written_create(w, path, devices));
}

int file_check(const written *w) { return cannot_write(w->path, written_check(w)); }

int file_can_seek(const written *w) {
    struct stat st;
    const int fd = fileno(w->f);
    return !fstat(fd, &st) && S_ISREG(st.st_mode) && !appends(fd);
}

int file_replace_start(const written *w, const void *p, size_t n) {
    if (fseeko(w->f, (off_t)w->start, SEEK_SET) || fwrite(p, 1, n, w->f) != n ||
        fseeko(w->f, 0, SEEK_END)) return cannot_write(w->path, strerror(errno ? errno : EIO));
    return DONE;
}

int file_end(written *w) { return w->f ? cannot_write(w->path, written_end(w)) : DONE; }

int file_name(written *w) { return cannot_write(w->path, written_name(w)); }
