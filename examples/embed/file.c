#define _DEFAULT_SOURCE 1              /* fileno and ftello, also with -std=c99 */
#define _FILE_OFFSET_BITS 64
#include "file.h"
#include "say.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map_descriptor(mapped *m, int fd) {
    struct stat st;
    void *p;
    if (fstat(fd, &st)) return errno;
    if (S_ISDIR(st.st_mode)) return EISDIR;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > SIZE_MAX) return EINVAL;
    m->size = (size_t)st.st_size;
    if (m->size == 0) return 0;
    p = mmap(0, m->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return errno;
    m->p = (const uint8_t *)p;
    return 0;
}

int file_map(mapped *m, const char *path) {
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int wrong;
    memset(m, 0, sizeof *m);
    if (fd < 0) return errno;
    wrong = map_descriptor(m, fd);
    close(fd);
    return wrong;
}

void file_unmap(mapped *m) {
    if (m->p) munmap((void *)(uintptr_t)m->p, m->size);
    memset(m, 0, sizeof *m);
}

static const char *name_of(const written *w) { return w->path ? w->path : "standard output"; }

/* errno is that of the write that failed, perhaps some calls ago. */
static int cannot_write(const written *w) {
    return fail(FAILED, "cannot write to %s: %s", name_of(w), strerror(errno ? errno : EIO));
}

int file_create(written *w, const char *path) {
    const size_t n = path ? strlen(path) : 0;
    struct stat st;
    memset(w, 0, sizeof *w);
    if (!path) {
        const off_t at = ftello(stdout);
        w->f = stdout;
        w->start = at > 0 ? (uint64_t)at : 0;
        return DONE;
    }
    w->path = (char *)malloc(n + 1);
    w->part = (char *)malloc(n + 6);
    if (!w->path || !w->part) return fail(FAILED, "there is no memory");
    memcpy(w->path, path, n + 1);
    snprintf(w->part, n + 6, "%s.part", path);
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        return fail(FAILED, "cannot write to %s: it is not a file", path);
    w->f = fopen(w->part, "wb");
    return w->f ? DONE : fail(FAILED, "cannot write to %s: %s", w->part, strerror(errno));
}

int file_check(written *w) {
    return fflush(w->f) || ferror(w->f) ? cannot_write(w) : DONE;
}

int file_can_seek(const written *w) {
    struct stat st;
    const int fd = fileno(w->f), flags = fcntl(fd, F_GETFL);
    return !fstat(fd, &st) && S_ISREG(st.st_mode) && flags >= 0 && !(flags & O_APPEND);
}

int file_replace_start(written *w, const void *p, size_t n) {
    if (fseeko(w->f, (off_t)w->start, SEEK_SET) || fwrite(p, 1, n, w->f) != n ||
        fseeko(w->f, 0, SEEK_END)) return cannot_write(w);
    return DONE;
}

int file_end(written *w) {
    int code;
    if (!w->f) return DONE;
    code = file_check(w);
    if (!w->path) return code;
    if (fclose(w->f) && code == DONE) code = cannot_write(w);
    w->f = 0;
    return code;
}

int file_name(written *w) {
    if (!w->part) return DONE;
    if (rename(w->part, w->path)) return cannot_write(w);
    free(w->part);
    w->part = 0;
    return DONE;
}

void file_free(written *w) {
    if (w->f && w->path) fclose(w->f);
    if (w->part && w->path) remove(w->part);
    free(w->part);
    free(w->path);
    memset(w, 0, sizeof *w);
}
