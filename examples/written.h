/* written.h - files that replace others, but only when they are complete

   A new file is PATH.PID-N.part until it is whole and on the disk. Only then does it get its name,
   so a full disk or a power cut leaves the old file as it was. It keeps the permissions of the old
   one; of a link it replaces what the link leads to. A run that is killed leaves the part behind.

   One source file of a program defines WRITTEN_IMPLEMENTATION, _DEFAULT_SOURCE and
   _FILE_OFFSET_BITS 64 before it includes anything. */
#ifndef EXAMPLES_WRITTEN_H
#define EXAMPLES_WRITTEN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- paths ---- */

/* What a path stands for. */
typedef struct file_facts {
    int is_file, is_folder;            /* 0, 0: neither */
    uint64_t size;
    int64_t changed;                   /* seconds since 1970 */
    uint64_t device, number;           /* together no other file's */
} file_facts;

/* follow 1: through links. Returns 0, or an errno. */
int file_look(file_facts *f, const char *path, int follow);

/* Something that exists and is not a regular file. A pipe would block a reader. */
int is_not_a_file(const char *path);

/* Do both paths lead to one file that is there, and no device? a and b may be 0. */
int file_is_same(const char *a, const char *b);

/* Is there a file that is not empty and does not begin with these bytes? A wrong name may lead to
   one, such as a text of the user's, which must not be replaced. */
int file_begins_otherwise(const char *path, const char *begin);

/* The file that a path stands for, in new memory: of a link what it leads to. Returns 0 and sets
   errno if the link leads nowhere. */
char *file_follow(const char *path);

/* The last part of a path, its name without the folder. */
const char *file_last_name(const char *path);

/* The names in a folder but . and .., in the order of their bytes, so that it is the same
   everywhere. Returns 0, or an errno. file_forget_names follows. */
typedef struct file_names {
    char **p;                          /* [n] */
    size_t n, cap;
} file_names;
int file_list(file_names *l, const char *folder);
void file_forget_names(file_names *l);

/* ---- files that are written ---- */

typedef struct written {
    FILE *f;                           /* 0: it is closed */
    char *path, *part;                 /* path 0: standard output; part 0: path is written itself */
    uint64_t start;                    /* where it begins in f */
} written;

/* These return 0, or why it failed, in words. written_free follows in any case.

   Begins a file; path 0 is standard output. What is there and is not a file, such as a device, is
   refused, because renaming would put a file in its place; with devices 1 it is written to as it
   is. */
const char *written_create(written *w, const char *path, int devices);
/* Fails if something could not be written so far. */
const char *written_check(const written *w);
/* Completes it, on the disk, and closes it. */
const char *written_end(written *w);
/* After written_end: gives it its name. */
const char *written_name(written *w);

/* Removes it if it has no name yet, and frees. */
void written_free(written *w);

/* Is this the name, without its folder, of what a killed run left of the file at path? If so, *pid
   is the run's process, unless pid is 0. */
int written_is_leftover(const char *path, const char *name, long *pid);

#endif

#if defined(WRITTEN_IMPLEMENTATION) && !defined(WRITTEN_IS_IMPLEMENTED)
#define WRITTEN_IS_IMPLEMENTED
#include "utf8.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef _WIN32
  #include <io.h>
  #include <windows.h>
#else
  #include <unistd.h>
#endif

static int written_add_name(file_names *l, const char *name);
static void written_sort_names(file_names *l);

#ifdef _WIN32
/* ---- Windows ---- */

/* The errno for the last call of Windows. */
static int written_errno(void) {
    switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME: return ENOENT;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION: return EACCES;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS: return EEXIST;
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
    uint64_t ticks;
    int wrong = 0, is_disk;
    memset(f, 0, sizeof *f);
    if (!utf8_wide(path, wide)) return errno;
    h = CreateFileW(wide, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, 0,
                    OPEN_EXISTING, flags, 0);
    if (h == INVALID_HANDLE_VALUE) return written_errno();
    is_disk = GetFileType(h) == FILE_TYPE_DISK;
    if (is_disk && !GetFileInformationByHandle(h, &info)) wrong = written_errno();
    CloseHandle(h);
    if (wrong || !is_disk || (!follow && info.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT))
        return wrong;
    f->is_folder = (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
    f->is_file = !f->is_folder;
    f->size = (uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow;
    f->device = info.dwVolumeSerialNumber;
    f->number = (uint64_t)info.nFileIndexHigh << 32 | info.nFileIndexLow;
    ticks = (uint64_t)info.ftLastWriteTime.dwHighDateTime << 32 |
            info.ftLastWriteTime.dwLowDateTime;        /* of 100 ns, since 1601 */
    f->changed = (int64_t)(ticks / 10000000) - 11644473600;
    return 0;
}

/* A link is replaced; such are rare here. */
char *file_follow(const char *path) { return _strdup(path); }

static int written_is_separator(char c) { return c == '/' || c == '\\' || c == ':'; }

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
                    ? written_add_name(l, name) : EILSEQ;
    _wclosedir(d);
    written_sort_names(l);
    return wrong;
}

/* Not _wopen: a file that it has open could not be removed. */
static int written_open(const char *path, int is_private) {
    WCHAR wide[UTF8_PATH];
    HANDLE h;
    (void)is_private;
    if (!utf8_wide(path, wide)) return -1;
    h = CreateFileW(wide, GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, 0,
                    CREATE_NEW, FILE_ATTRIBUTE_NORMAL, 0);
    if (h != INVALID_HANDLE_VALUE) return _open_osfhandle((intptr_t)h, _O_WRONLY | _O_BINARY);
    errno = written_errno();
    return -1;
}

/* The folder decides who may read a file. */
static void written_permit(int fd, const char *path) {
    (void)fd;
    (void)path;
}

static int written_sync(int fd) { return _commit(fd); }

static int written_rename(const char *from, const char *to) {
    WCHAR wide_from[UTF8_PATH], wide_to[UTF8_PATH];
    if (!utf8_wide(from, wide_from) || !utf8_wide(to, wide_to)) return -1;
    if (MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH))
        return 0;
    errno = written_errno();
    return -1;
}

static void written_remove(const char *path) {
    WCHAR wide[UTF8_PATH];
    if (utf8_wide(path, wide)) _wremove(wide);
}

static int written_process(void) { return (int)GetCurrentProcessId(); }
#else
/* ---- POSIX ---- */

int file_look(file_facts *f, const char *path, int follow) {
    struct stat st;
    memset(f, 0, sizeof *f);
    if (follow ? stat(path, &st) : lstat(path, &st)) return errno;
    f->is_file = S_ISREG(st.st_mode);
    f->is_folder = S_ISDIR(st.st_mode);
    f->size = (uint64_t)st.st_size;
    f->changed = (int64_t)st.st_mtime;
    f->device = (uint64_t)st.st_dev;
    f->number = (uint64_t)st.st_ino;
    return 0;
}

char *file_follow(const char *path) {
    struct stat st;
    char *copy;
    if (!lstat(path, &st) && S_ISLNK(st.st_mode)) return realpath(path, 0);
    copy = (char *)malloc(strlen(path) + 1);
    return copy ? strcpy(copy, path) : 0;
}

static int written_is_separator(char c) { return c == '/'; }

int file_list(file_names *l, const char *folder) {
    struct dirent **list = 0;
    const int n = scandir(folder, &list, 0, 0);
    int i, wrong = 0;
    memset(l, 0, sizeof *l);
    if (n < 0) return errno;
    for (i = 0; i < n; i++) {
        if (!wrong) wrong = written_add_name(l, list[i]->d_name);
        free(list[i]);
    }
    free(list);
    written_sort_names(l);
    return wrong;
}

static int written_open(const char *path, int is_private) {
    return open(path, O_CREAT | O_EXCL | O_WRONLY, is_private ? 0600 : 0666);
}

/* The file at path, if there is one, passes on its permissions to the new one, which is still
   empty, and its owner and group if that is allowed. If not, the group gets no more rights than
   everybody has. */
static void written_permit(int fd, const char *path) {
    struct stat st;
    mode_t mode;
    if (stat(path, &st)) return;
    mode = st.st_mode & 0777;
    if (fchown(fd, geteuid() ? (uid_t)-1 : st.st_uid, st.st_gid))
        mode &= ~(mode_t)070 | (mode & 07) << 3;
    fchmod(fd, mode);
}

static int written_sync(int fd) { return fsync(fd); }

/* The new name must reach the disk, too. Some file systems cannot sync a folder; ignore that. */
static void written_sync_folder(char *path) {
    char *slash = strrchr(path, '/');
    int fd;
    if (slash) slash[slash == path] = 0;
    fd = open(slash ? path : ".", O_RDONLY);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

/* Spoils from. */
static int written_rename(char *from, const char *to) {
    if (rename(from, to)) return -1;
    written_sync_folder(from);
    return 0;
}

/* A handler of a signal may call it, unlike remove. */
static void written_remove(const char *path) { unlink(path); }

static int written_process(void) { return (int)getpid(); }
#endif

/* ---- paths ---- */

int is_not_a_file(const char *path) {
    file_facts facts;
    return !file_look(&facts, path, 1) && !facts.is_file;
}

int file_is_same(const char *a, const char *b) {
    file_facts x, y;
    return a && b && !file_look(&x, a, 1) && !file_look(&y, b, 1) && x.is_file && y.is_file &&
           x.device == y.device && x.number == y.number;
}

int file_begins_otherwise(const char *path, const char *begin) {
    char bytes[16];
    const size_t most = strlen(begin) < sizeof bytes ? strlen(begin) : sizeof bytes;
    FILE *f = utf8_fopen(path, "rb");
    const size_t n = f ? fread(bytes, 1, most, f) : 0;
    if (f) fclose(f);
    return n > 0 && (n < most || memcmp(bytes, begin, most));
}

const char *file_last_name(const char *path) {
    const char *name = path + strlen(path);
    while (name > path && !written_is_separator(name[-1])) name--;
    return name;
}

/* Puts it behind the others. Returns 0, or an errno. */
static int written_add_name(file_names *l, const char *name) {
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

static int written_by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void written_sort_names(file_names *l) {
    if (l->n > 0) qsort(l->p, l->n, sizeof *l->p, written_by_name);
}

void file_forget_names(file_names *l) {
    while (l->n > 0) free(l->p[--l->n]);
    free(l->p);
    memset(l, 0, sizeof *l);
}

/* ---- files that are written ---- */

/* The reason of the call that failed. */
static const char *written_why(void) { return strerror(errno ? errno : EIO); }

/* Why a new file cannot be created: what is wrong is the folder's. */
static const char *written_why_not(int reason) {
    if (reason == ENOENT) return "there is no such folder";
    return reason == EACCES ? "no permission to write in its folder" : strerror(reason);
}

/* Creates PATH.PID-N.part, a name that nothing has. It is readable by nobody else until it has the
   permissions of the file that it is to replace. */
static const char *written_create_part(written *w) {
    const size_t room = strlen(w->path) + 32;
    file_facts facts;
    const int replaces = !file_look(&facts, w->path, 1);
    char *part = (char *)malloc(room);
    int i, fd = -1;
    if (!part) return strerror(ENOMEM);
    errno = EEXIST;
    for (i = 0; i < 100 && fd < 0 && errno == EEXIST; i++) {
        snprintf(part, room, "%s.%d-%d.part", w->path, written_process(), i);
        fd = written_open(part, replaces);
    }
    if (fd < 0) {
        const int reason = errno;
        free(part);                    /* it is not ours to remove */
        return written_why_not(reason);
    }
    written_permit(fd, w->path);
    w->part = part;
    w->f = fdopen(fd, "wb");
    if (w->f) return 0;
    close(fd);
    return strerror(ENOMEM);
}

const char *written_create(written *w, const char *path, int devices) {
    file_facts facts;
    memset(w, 0, sizeof *w);
#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN);          /* too large a file is an error like a full disk */
#endif
    if (!path) {
        const off_t at = ftello(stdout);
        w->f = stdout;
        w->start = at > 0 ? (uint64_t)at : 0;
        return 0;
    }
    if (file_look(&facts, path, 1) || facts.is_file) {
        if ((w->path = file_follow(path)) != 0) return written_create_part(w);
        return errno == ENOENT ? "it is a link that leads nowhere" : written_why();
    }
    if (!devices || facts.is_folder) return "it is not a file";
    if (!(w->path = (char *)malloc(strlen(path) + 1))) return strerror(ENOMEM);
    strcpy(w->path, path);
    w->f = utf8_fopen(path, "wb");
    return w->f ? 0 : written_why();
}

/* errno is that of the write that failed, perhaps some calls ago. */
const char *written_check(const written *w) {
    return fflush(w->f) || ferror(w->f) ? written_why() : 0;
}

const char *written_end(written *w) {
    const char *why = written_check(w);
    if (!w->path) return why;
    if (!why && w->part && written_sync(fileno(w->f))) why = written_why();
    if (fclose(w->f) && !why) why = written_why();
    w->f = 0;
    return why;
}

const char *written_name(written *w) {
    if (!w->part) return 0;
    if (written_rename(w->part, w->path)) return written_why();
    free(w->part);
    w->part = 0;
    return 0;
}

void written_free(written *w) {
    if (w->f && w->path) fclose(w->f);
    if (w->part) written_remove(w->part);
    free(w->part);
    free(w->path);
    memset(w, 0, sizeof *w);
}

int written_is_leftover(const char *path, const char *name, long *pid) {
    static const char digits[] = "0123456789";
    const char *own = file_last_name(path), *at, *end;
    const size_t n = strlen(own);
    if (!n || strncmp(name, own, n) || name[n] != '.') return 0;
    at = name + n + 1;                 /* PID-N.part */
    end = at + strspn(at, digits);
    if (end == at || *end != '-') return 0;
    if (pid) *pid = strtol(at, 0, 10);
    at = end + 1;
    end = at + strspn(at, digits);
    return end > at && !strcmp(end, ".part");
}
#endif
