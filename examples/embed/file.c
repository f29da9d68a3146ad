#define _DEFAULT_SOURCE 1              /* realpath and others, also with -std=c99 */
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
    void *p;
    if (wrong || m->size == 0) return wrong;
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

static int read_descriptor(mapped *m, int fd, size_t most) {
    const int wrong = measure(m, fd);
    uint8_t *p;
    size_t at = 0;
    ssize_t n = 1;
    if (wrong) return wrong;
    if (m->size > most) return EFBIG;
    if (!(p = (uint8_t *)malloc(m->size + 1))) return ENOMEM;
    m->p = p;
    for (; at < m->size && n > 0; at += n > 0 ? (size_t)n : 0) n = read(fd, p + at, m->size - at);
    m->size = at;                      /* it may have become shorter meanwhile */
    return n < 0 ? errno : 0;
}

int file_read(mapped *m, const char *path, size_t most) {
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int wrong;
    memset(m, 0, sizeof *m);
    if (fd < 0) return errno;
    wrong = read_descriptor(m, fd, most);
    close(fd);
    return wrong;
}

int file_try(const char *path) {
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno;
    close(fd);
    return 0;
}

void file_forget(mapped *m) {
    free((void *)(uintptr_t)m->p);
    memset(m, 0, sizeof *m);
}

int file_is_same(const char *a, const char *b) {
    struct stat x, y;
    return a && b && !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static const char *name_of(const written *w) { return w->path ? w->path : "standard output"; }

/* errno is that of the write that failed, perhaps some calls ago. */
static int cannot_write(const written *w) {
    return fail(FAILED, "cannot write to %s: %s", name_of(w), strerror(errno ? errno : EIO));
}

/* The file that a path stands for, in new memory: of a link what it leads to, because renaming
   would replace the link. Returns 0 and sets errno if the link leads nowhere. */
static char *follow_link(const char *path) {
    struct stat st;
    char *copy;
    if (!lstat(path, &st) && S_ISLNK(st.st_mode)) return realpath(path, 0);
    copy = (char *)malloc(strlen(path) + 1);
    return copy ? strcpy(copy, path) : 0;
}

/* Creates PATH.PID-N.part, a name that nothing has. Returns 0, or an errno. */
static int create_part(written *w) {
    const size_t room = strlen(w->path) + 32;
    char *part = (char *)malloc(room);
    int i, fd = -1;
    if (!part) return ENOMEM;
    errno = EEXIST;
    for (i = 0; i < 100 && fd < 0 && errno == EEXIST; i++) {
        snprintf(part, room, "%s.%d-%d.part", w->path, (int)getpid(), i);
        fd = open(part, O_CREAT | O_EXCL | O_WRONLY, 0666);
    }
    if (fd < 0) {
        const int wrong = errno;
        free(part);                    /* it is not ours to remove */
        return wrong;
    }
    w->part = part;
    w->f = fdopen(fd, "wb");
    if (w->f) return 0;
    close(fd);
    return ENOMEM;
}

int file_create(written *w, const char *path) {
    struct stat st;
    int wrong;
    memset(w, 0, sizeof *w);
    if (!path) {
        const off_t at = ftello(stdout);
        w->f = stdout;
        w->start = at > 0 ? (uint64_t)at : 0;
        return DONE;
    }
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        return fail(FAILED, "cannot write to %s: it is not a file", path);
    if (!(w->path = follow_link(path)))
        return fail(FAILED, "cannot write to %s: %s", path,
                    errno == ENOENT ? "it is a link that leads nowhere" : strerror(errno));
    wrong = create_part(w);
    return wrong ? fail(FAILED, "cannot write to %s: %s", path, strerror(wrong)) : DONE;
}

/* Is the text PID-N.part? */
static int is_part_end(const char *text) {
    static const char digits[] = "0123456789";
    const size_t pid = strspn(text, digits);
    const char *end;
    if (!pid || text[pid] != '-') return 0;
    text += pid + 1;
    end = text + strspn(text, digits);
    return end > text && !strcmp(end, ".part");
}

int file_is_leftover(const written *w, const char *name) {
    const char *slash = w->path ? strrchr(w->path, '/') : 0, *own = slash ? slash + 1 : w->path;
    const size_t n = own ? strlen(own) : 0;
    return n && !strncmp(name, own, n) && name[n] == '.' && is_part_end(name + n + 1);
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
