#define _DEFAULT_SOURCE 1              /* realpath and others, also with -std=c99 */
#define _FILE_OFFSET_BITS 64
#include "file.h"
#include "say.h"
#include "../permissions.h"
#include "../utf8.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef _WIN32
  #include <io.h>
  #define getpid GetCurrentProcessId
#else
  #include <sys/mman.h>
  #include <unistd.h>
#endif

/* ---- what Windows does in another way ---- */

static int add_name(file_names *l, const char *name);
static void sort_names(file_names *l);

#ifdef _WIN32
/* The errno for the last call of Windows. */
static int last_errno(void) {
    switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME: return ENOENT;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION: return EACCES;
    case ERROR_DISK_FULL: return ENOSPC;
    case ERROR_NOT_ENOUGH_MEMORY: return ENOMEM;
    default: return EIO;
    }
}

int file_look(file_facts *f, const char *path, int follow) {
    const DWORD flags = FILE_FLAG_BACKUP_SEMANTICS | (follow ? 0 : FILE_FLAG_OPEN_REPARSE_POINT);
    WCHAR wide[UTF8_PATH];
    BY_HANDLE_FILE_INFORMATION info;
    HANDLE h;
    int wrong = 0, is_disk;
    memset(f, 0, sizeof *f);
    if (!utf8_wide(path, wide)) return errno;
    h = CreateFileW(wide, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, 0,
                    OPEN_EXISTING, flags, 0);
    if (h == INVALID_HANDLE_VALUE) return last_errno();
    is_disk = GetFileType(h) == FILE_TYPE_DISK;
    if (is_disk && !GetFileInformationByHandle(h, &info)) wrong = last_errno();
    CloseHandle(h);
    if (wrong || !is_disk || (!follow && info.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT))
        return wrong;
    f->is_folder = (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
    f->is_file = !f->is_folder;
    f->size = (uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow;
    f->device = info.dwVolumeSerialNumber;
    f->number = (uint64_t)info.nFileIndexHigh << 32 | info.nFileIndexLow;
    return 0;
}

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

static int open_new(const char *path, int is_private) {
    WCHAR wide[UTF8_PATH];
    (void)is_private;
    return utf8_wide(path, wide) ? _wopen(wide, _O_CREAT | _O_EXCL | _O_WRONLY | _O_BINARY |
                                          _O_NOINHERIT, _S_IREAD | _S_IWRITE) : -1;
}

static int map_read_only(mapped *m, int fd) {
    const HANDLE map = CreateFileMappingW((HANDLE)_get_osfhandle(fd), 0, PAGE_READONLY, 0, 0, 0);
    if (!map) return last_errno();
    m->p = (const uint8_t *)MapViewOfFile(map, FILE_MAP_READ, 0, 0, m->size);
    CloseHandle(map);                  /* the view keeps it */
    return m->p ? 0 : last_errno();
}

static void unmap(mapped *m) { UnmapViewOfFile(m->p); }

static int rename_over(const char *from, const char *to) {
    WCHAR wide_from[UTF8_PATH], wide_to[UTF8_PATH];
    if (!utf8_wide(from, wide_from) || !utf8_wide(to, wide_to)) return -1;
    if (MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING)) return 0;
    errno = last_errno();
    return -1;
}

static void remove_file(const char *path) {
    WCHAR wide[UTF8_PATH];
    if (utf8_wide(path, wide)) _wremove(wide);
}

/* A link is replaced. */
static char *follow_link(const char *path) { return _strdup(path); }

/* >> of its shells begins at the end, and lets a program write before that. */
static int appends(int fd) {
    (void)fd;
    return 0;
}

int file_list(file_names *l, const char *folder) {
    WCHAR wide[UTF8_PATH];
    char name[4 * MAX_PATH];
    struct _wdirent *entry;
    _WDIR *d;
    int wrong = 0;
    memset(l, 0, sizeof *l);
    if (!utf8_wide(folder, wide) || !(d = _wopendir(wide))) return errno;
    while (!wrong && (entry = _wreaddir(d)) != 0)
        wrong = WideCharToMultiByte(CP_UTF8, 0, entry->d_name, -1, name, sizeof name, 0, 0)
                    ? add_name(l, name) : EILSEQ;
    _wclosedir(d);
    sort_names(l);
    return wrong;
}
#else
static void take_facts(file_facts *f, const struct stat *st) {
    f->is_file = S_ISREG(st->st_mode);
    f->is_folder = S_ISDIR(st->st_mode);
    f->size = (uint64_t)st->st_size;
    f->device = (uint64_t)st->st_dev;
    f->number = (uint64_t)st->st_ino;
}

int file_look(file_facts *f, const char *path, int follow) {
    struct stat st;
    memset(f, 0, sizeof *f);
    if (follow ? stat(path, &st) : lstat(path, &st)) return errno;
    take_facts(f, &st);
    return 0;
}

static int open_to_read(const char *path) {
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

static int open_new(const char *path, int is_private) {
    return open(path, O_CREAT | O_EXCL | O_WRONLY, is_private ? 0600 : 0666);
}

static int map_read_only(mapped *m, int fd) {
    void *p = mmap(0, m->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return errno;
    m->p = (const uint8_t *)p;
    return 0;
}

static void unmap(mapped *m) { munmap((void *)(uintptr_t)m->p, m->size); }

static int rename_over(const char *from, const char *to) { return rename(from, to); }

static void remove_file(const char *path) { remove(path); }

/* The file that a path stands for, in new memory: of a link what it leads to, because renaming
   would replace the link. Returns 0 and sets errno if the link leads nowhere. */
static char *follow_link(const char *path) {
    struct stat st;
    char *copy;
    if (!lstat(path, &st) && S_ISLNK(st.st_mode)) return realpath(path, 0);
    copy = (char *)malloc(strlen(path) + 1);
    return copy ? strcpy(copy, path) : 0;
}

/* Is all that is written put at the end? */
static int appends(int fd) {
    const int flags = fcntl(fd, F_GETFL);
    return flags < 0 || flags & O_APPEND;
}

int file_list(file_names *l, const char *folder) {
    struct dirent **list = 0;
    const int n = scandir(folder, &list, 0, 0);
    int i, wrong = 0;
    memset(l, 0, sizeof *l);
    if (n < 0) return errno;
    for (i = 0; i < n; i++) {
        if (!wrong) wrong = add_name(l, list[i]->d_name);
        free(list[i]);
    }
    free(list);
    sort_names(l);
    return wrong;
}
#endif

/* ---- names in a folder ---- */

/* Puts it behind the others. Returns 0, or an errno. */
static int add_name(file_names *l, const char *name) {
    char *copy;
    if (!strcmp(name, ".") || !strcmp(name, "..")) return 0;
    if (l->n == l->cap) {
        const size_t cap = 2 * l->cap + 64;
        char **more = (char **)realloc(l->p, cap * sizeof *more);
        if (!more) return ENOMEM;
        l->p = more;
        l->cap = cap;
    }
    if (!(copy = (char *)malloc(strlen(name) + 1))) return ENOMEM;
    l->p[l->n++] = strcpy(copy, name);
    return 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_names(file_names *l) {
    if (l->n > 0) qsort(l->p, l->n, sizeof *l->p, by_name);
}

void file_forget_names(file_names *l) {
    while (l->n > 0) free(l->p[--l->n]);
    free(l->p);
    memset(l, 0, sizeof *l);
}

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

int file_is_same(const char *a, const char *b) {
    file_facts x, y;
    return a && b && !file_look(&x, a, 1) && !file_look(&y, b, 1) && x.device == y.device &&
           x.number == y.number;
}

/* ---- writing ---- */

static const char *name_of(const written *w) { return w->path ? w->path : "standard output"; }

/* errno is that of the write that failed, perhaps some calls ago. */
static int cannot_write(const written *w) {
    return fail(FAILED, "cannot write to %s: %s", name_of(w), strerror(errno ? errno : EIO));
}

/* Creates PATH.PID-N.part, a name that nothing has, readable by those who may read the file that it
   is to replace. Returns 0, or an errno. */
static int create_part(written *w) {
    const size_t room = strlen(w->path) + 32;
    file_facts facts;
    const int replaces = !file_look(&facts, w->path, 1);
    char *part = (char *)malloc(room);
    int i, fd = -1;
    if (!part) return ENOMEM;
    errno = EEXIST;
    for (i = 0; i < 100 && fd < 0 && errno == EEXIST; i++) {
        snprintf(part, room, "%s.%d-%d.part", w->path, (int)getpid(), i);
        fd = open_new(part, replaces);
    }
    if (fd < 0) {
        const int wrong = errno;
        free(part);                    /* it is not ours to remove */
        return wrong;
    }
    keep_permissions(fd, w->path);
    w->part = part;
    w->f = fdopen(fd, "wb");
    if (w->f) return 0;
    close(fd);
    return ENOMEM;
}

int file_create(written *w, const char *path) {
    file_facts facts;
    int wrong;
    memset(w, 0, sizeof *w);
    if (!path) {
        const off_t at = ftello(stdout);
        w->f = stdout;
        w->start = at > 0 ? (uint64_t)at : 0;
        return DONE;
    }
    if (!file_look(&facts, path, 1) && !facts.is_file)
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
    const int fd = fileno(w->f);
    return !fstat(fd, &st) && S_ISREG(st.st_mode) && !appends(fd);
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
    if (rename_over(w->part, w->path)) return cannot_write(w);
    free(w->part);
    w->part = 0;
    return DONE;
}

void file_free(written *w) {
    if (w->f && w->path) fclose(w->f);
    if (w->part && w->path) remove_file(w->part);
    free(w->part);
    free(w->path);
    memset(w, 0, sizeof *w);
}
