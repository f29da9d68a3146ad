/* convert_output.h - a part of convert.c: a file that appears whole or not at all. It is written
   under another name in the same folder, brought to the disk, then renamed. */
#include <fcntl.h>
#include <signal.h>
#ifdef _WIN32
  #include <io.h>
  #include <process.h>
  #define fsync _commit
  #define open _open
  #define close _close
  #define fdopen _fdopen
  #define fileno _fileno
  #define isatty _isatty
  #define getpid _getpid
  #define OUTPUT_FLAGS (_O_CREAT | _O_EXCL | _O_WRONLY | _O_BINARY)
  #define OUTPUT_MODE (_S_IREAD | _S_IWRITE)
#else
  #include <unistd.h>
  #define OUTPUT_FLAGS (O_CREAT | O_EXCL | O_WRONLY)
  #define OUTPUT_MODE 0666
#endif

static bitnet_gguf_writer writer;      /* writes to the output */
static struct {
    const char *path;
    char *temporary;                   /* 0: nothing to be removed */
    FILE *file;
    uint64_t done;
    int percent, terminal;
} result;
static volatile sig_atomic_t interrupted;      /* a signal's number */

/* For other lines on the terminal; the next piece of the output draws the bar again. */
static void clear_progress(void) {
    if (result.terminal && result.percent >= 0) fputs("\r\033[K", stderr);
    result.percent = -1;
}

static void drop_output(void) {
    clear_progress();
    if (result.file) fclose(result.file);
    if (result.temporary) remove(result.temporary);
    free(result.temporary);
    result.temporary = 0;
    result.file = 0;
}

/* Names of files, and names out of them, may hold anything. */
static void print_line(FILE *f, const char *format, va_list args) {
    char text[8192];
    vsnprintf(text, sizeof text, format, args);
    bitnet_clean_text(text, strlen(text), text, sizeof text);
    fprintf(f, "%s\n", text);
}

/* Part of a line on stdout, n bytes from a file, and no more of them than fits a line. */
static void print_clean(const char *text, int n) {
    char clean[73];
    bitnet_clean_text(text, (size_t)n, clean, sizeof clean);
    printf("%s", clean);
    if (n > 72) printf("... (%d bytes)", n);
}

/* One line on stderr, beside the progress bar. */
static void say(const char *format, ...) {
    va_list args;
    clear_progress();
    fputs("convert: ", stderr);
    va_start(args, format);
    print_line(stderr, format, args);
    va_end(args);
}

/* One line on stderr, and out: nothing of the output is left. */
static void fail(int code, const char *format, ...) {
    va_list args;
    drop_output();
    fputs("convert: ", stderr);
    va_start(args, format);
    print_line(stderr, format, args);
    va_end(args);
    exit(code);
}

static void on_signal(int number) { interrupted = number; }

/* Whoever started the program may want a signal ignored, as nohup does. */
static void take_signal(int number) {
    if (signal(number, SIG_IGN) != SIG_IGN) signal(number, on_signal);
}

/* Ends as the signal alone would have ended it. */
static void stop_if_interrupted(void) {
    int number = interrupted;
    if (!number) return;
    drop_output();
    signal(number, SIG_DFL);
    raise(number);
    exit(1);
}

static void show_progress(void) {
    const double total = (double)bitnet_gguf_writer_total(&writer);
    const int percent = total > 0 ? (int)(100.0 * (double)result.done / total) : 0;
    char bar[33] = "................................";
    if (!result.terminal || percent == result.percent) return;
    result.percent = percent;
    memset(bar, '#', (size_t)(percent < 100 ? percent * 32 / 100 : 32));
    fprintf(stderr, "\rconvert: [%s] %3d %%", bar, percent);
}

static int write_output(void *ud, const void *p, size_t n) {
    (void)ud;
    stop_if_interrupted();
    if (fwrite(p, 1, n, result.file) != n)
        fail(1, "%s: cannot write: %s", result.path, strerror(errno));
    result.done += n;
    show_progress();
    return 0;
}

static int is_folder(const char *path) {
    file_stat st;
    return !look_at(path, &st) && (st.st_mode & S_IFMT) == S_IFDIR;
}

static int same_file(const char *a, const char *b) {
#ifdef _WIN32
    char full_a[4096], full_b[4096];
    return _fullpath(full_a, a, sizeof full_a) && _fullpath(full_b, b, sizeof full_b) &&
           !_stricmp(full_a, full_b);
#else
    file_stat st_a, st_b;
    return !look_at(a, &st_a) && !look_at(b, &st_b) && st_a.st_dev == st_b.st_dev &&
           st_a.st_ino == st_b.st_ino;
#endif
}

/* What stands there may only be a file, and is replaced only with --force. A link would be replaced
   instead of what it leads to: /dev/stdout is one. */
static void check_place(const char *path, int force) {
    file_stat st;
#ifndef _WIN32
    if (!lstat(path, &st) && (st.st_mode & S_IFMT) == S_IFLNK)
        fail(1, "%s: there is a link; name the file itself", path);
#endif
    if (look_at(path, &st)) {
        if (errno == ENOENT) return;
        fail(1, "%s: cannot be written: %s", path, strerror(errno));
    }
    if ((st.st_mode & S_IFMT) != S_IFREG) fail(1, "%s: there is something that is no file", path);
    if (!force) fail(1, "%s: there is such a file; --force replaces it", path);
}

/* A file that is replaced leaves its permissions to the new one, which has no byte yet, and where
   that is allowed its owner and group. Another group may do no more than everybody. On Windows the
   folder decides. */
static void keep_permissions(int fd, const char *path) {
#ifdef _WIN32
    (void)fd;
    (void)path;
#else
    file_stat st;
    mode_t mode;
    if (look_at(path, &st)) return;
    mode = st.st_mode & 0777;
    if (fchown(fd, geteuid() ? (uid_t)-1 : st.st_uid, st.st_gid))
        mode &= ~(mode_t)070 | (mode & 07) << 3;
    fchmod(fd, mode);
#endif
}

/* Locks the open file until it is closed, so that other runs know that it is in use; see
   convert_leftovers.h. Windows needs no lock: an open file cannot be opened without sharing. */
static void lock_output(int fd) {
#ifdef _WIN32
    (void)fd;
#else
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    fcntl(fd, F_SETLK, &lock);
#endif
}

/* Sets up the writer. in is refused as the result. */
static void open_output(const char *path, const char *in, int force) {
    const size_t room = strlen(path) + 32;
    file_stat st;
    int i, fd = -1;
    if (same_file(in, path)) fail(2, "%s: input and output are the same file", path);
    check_place(path, force);
    result.path = path;
    result.percent = -1;
    result.terminal = isatty(2);
    take_signal(SIGINT);
    take_signal(SIGTERM);
#ifdef SIGHUP
    take_signal(SIGHUP);
#endif
#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN);          /* a limit on sizes is an error like a full disk */
#endif
    result.temporary = (char *)malloc(room);
    if (!result.temporary) fail(1, "out of memory");
    for (i = 0; i < 100 && fd < 0; i++) {
        snprintf(result.temporary, room, "%s.%d-%d.part", path, (int)getpid(), i);
        fd = open(result.temporary, OUTPUT_FLAGS, look_at(path, &st) ? OUTPUT_MODE : 0600);
        if (fd < 0 && errno != EEXIST) break;
    }
    if (fd < 0) {
        free(result.temporary);        /* not ours to remove */
        result.temporary = 0;
        fail(1, "%s: cannot write in its folder: %s", path, strerror(errno));
    }
    lock_output(fd);
    keep_permissions(fd, path);
    result.file = fdopen(fd, "wb");
    if (!result.file) {
        close(fd);
        fail(1, "%s: cannot write: %s", path, strerror(errno));
    }
    setvbuf(result.file, 0, _IOFBF, 1 << 20);
    writer.write_fn = write_output;
}

/* The renaming itself has to reach the disk, too; file systems that can't do that refuse it. */
static void sync_folder(void) {
#ifndef _WIN32
    char *folder = result.temporary, *slash = strrchr(folder, '/');
    int fd;
    if (slash) slash[slash == folder] = 0;
    fd = open(slash ? folder : ".", O_RDONLY);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
#endif
}

static void rename_output(void) {
#ifdef _WIN32
    if (!MoveFileExA(result.temporary, result.path, MOVEFILE_REPLACE_EXISTING |
                     MOVEFILE_WRITE_THROUGH))
        fail(1, "%s: cannot rename to it (error %lu)", result.path, GetLastError());
#else
    if (rename(result.temporary, result.path))
        fail(1, "%s: cannot rename to it: %s", result.path, strerror(errno));
#endif
}

/* The writer has ended; its file takes its place. */
static void close_output(int force) {
    FILE *f = result.file;
    int bad;
    stop_if_interrupted();
    bad = fflush(f) || fsync(fileno(f));
    result.file = 0;
    if (fclose(f) || bad) fail(1, "%s: cannot write: %s", result.path, strerror(errno));
    stop_if_interrupted();
    check_place(result.path, force);
    rename_output();
    sync_folder();
    free(result.temporary);
    result.temporary = 0;
    if (result.terminal && result.percent >= 0) fputc('\n', stderr);
}
