#define _DEFAULT_SOURCE 1              /* lstat, realpath and others, also with -std=c99 */
#define _FILE_OFFSET_BITS 64           /* files beyond 2 GB, also on 32-bit systems */
#include "save.h"
#include "../permissions.h"
#include "../utf8.h"
#include "model.h"
#include "report.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef _WIN32
  #include <io.h>
  #define close _close
  #define fdopen _fdopen
  #define getpid GetCurrentProcessId
typedef struct _stat64 file_info;
#else
  #include <unistd.h>
typedef struct stat file_info;
#endif

enum { SAVE_PATH = 4096 };

/* ---- what Windows does in another way ---- */

#ifdef _WIN32
static int look(const char *path, file_info *st) {
    WCHAR wide[UTF8_PATH];
    return utf8_wide(path, wide) ? _wstat64(wide, st) : -1;
}

static int create_new(const char *path, int is_private) {
    WCHAR wide[UTF8_PATH];
    (void)is_private;
    return utf8_wide(path, wide) ? _wopen(wide, _O_CREAT | _O_EXCL | _O_WRONLY | _O_BINARY,
                                          _S_IREAD | _S_IWRITE) : -1;
}

static int rename_over(const char *from, const char *to) {
    WCHAR a[UTF8_PATH], b[UTF8_PATH];
    errno = EACCES;
    return utf8_wide(from, a) && utf8_wide(to, b) && MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING)
               ? 0 : -1;
}

static void remove_file(const char *path) {
    WCHAR wide[UTF8_PATH];
    if (utf8_wide(path, wide)) _wremove(wide);
}

/* Links are rare here: the path as it is. */
static int follow_link(const char *path, char out[SAVE_PATH]) {
    errno = ENAMETOOLONG;
    return snprintf(out, SAVE_PATH, "%s", path) < SAVE_PATH;
}

static int is_same_file(const char *a, const char *b) {
    WCHAR wide[UTF8_PATH], x[UTF8_PATH], y[UTF8_PATH];
    return utf8_wide(a, wide) && _wfullpath(x, wide, UTF8_PATH) && utf8_wide(b, wide) &&
           _wfullpath(y, wide, UTF8_PATH) && !_wcsicmp(x, y);
}
#else
static int look(const char *path, file_info *st) { return stat(path, st); }

static int create_new(const char *path, int is_private) {
    return open(path, O_CREAT | O_EXCL | O_WRONLY, is_private ? 0600 : 0666);
}

static int rename_over(const char *from, const char *to) { return rename(from, to); }

static void remove_file(const char *path) { remove(path); }

/* The file that a path stands for: of a link what it leads to, because renaming would replace the
   link. Returns 0 and sets errno if the link leads nowhere. */
static int follow_link(const char *path, char out[SAVE_PATH]) {
    file_info st;
    const int is_link = !lstat(path, &st) && (st.st_mode & S_IFMT) == S_IFLNK;
    char *target = is_link ? realpath(path, 0) : 0;
    int n;
    if (is_link && !target) return 0;
    n = snprintf(out, SAVE_PATH, "%s", target ? target : path);
    free(target);
    errno = ENAMETOOLONG;
    return n < SAVE_PATH;
}

static int is_same_file(const char *a, const char *b) {
    file_info x, y;
    return !look(a, &x) && !look(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
#endif

/* ---- writing ---- */

/* Creates PATH.PID-N.part, a name that nothing has; it is in part then. */
static FILE *create_part(const char *path, char part[SAVE_PATH]) {
    file_info st;
    const int replaces = !look(path, &st);
    FILE *f;
    int i, fd = -1;
    errno = EEXIST;
    for (i = 0; i < 100 && fd < 0 && errno == EEXIST; i++) {
        const int n = snprintf(part, SAVE_PATH, "%s.%d-%d.part", path, (int)getpid(), i);
        errno = ENAMETOOLONG;
        if (n < SAVE_PATH) fd = create_new(part, replaces);
    }
    if (fd < 0) {
        part[0] = 0;                   /* it is not ours to remove */
        return 0;
    }
    keep_permissions(fd, path);
    f = fdopen(fd, "wb");
    if (!f) close(fd);
    return f;
}

void save_file(const char *path, const char *model) {
    char shown[1024], to[SAVE_PATH], part[SAVE_PATH] = "";
    file_info st;
    FILE *f = 0;
    int good, reason;
    if (model && is_same_file(path, model)) fail(2, "--save %s: it is the model", path);
#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN);          /* too large a file is an error like a full disk */
#endif
    /* renaming would put a file in the place of a device */
    if (!look(path, &st) && (st.st_mode & S_IFMT) != S_IFREG) f = utf8_fopen(path, "wb");
    else if (follow_link(path, to)) f = create_part(to, part);
    good = f && (file ? fwrite(file, 1, file_size, f) == file_size : write_model(f));
    if (f && fclose(f)) good = 0;
    if (good && part[0] && rename_over(part, to)) good = 0;
    reason = errno;
    if (!good && part[0]) remove_file(part);
    if (!good) fail(1, "cannot write %s: %s", path, strerror(reason));
    bitnet_clean_text(path, strlen(path), shown, sizeof shown);
    fprintf(stderr, "%s: %.1f MB written\n", shown, (double)file_size * 1e-6);
}
