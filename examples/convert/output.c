#define _DEFAULT_SOURCE 1              /* fsync, fchown and others, also with -std=c99 */
#define _FILE_OFFSET_BITS 64           /* stat beyond 2 GB, also on 32-bit systems */
#include "output.h"
#include "files.h"
#include "../permissions.h"
#include "../utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32
  #include <io.h>
  #include <windows.h>
  #define fsync _commit
  #define close _close
  #define fdopen _fdopen
  #define fileno _fileno
  #define isatty _isatty
  #define getpid GetCurrentProcessId
#else
  #include <dirent.h>
  #include <unistd.h>
#endif

gguf_writer writer;

static struct {
    const char *path;
    char *temporary;                   /* 0: nothing to remove */
    FILE *file;
    uint64_t done;
    int percent;                       /* of the progress bar; -1: it is not on the screen */
    int terminal;
} output;
static volatile sig_atomic_t interrupted;      /* a signal's number */

/* ---- messages ---- */

/* Makes room for another line; the next write draws the bar again. */
static void clear_progress(void) {
    if (output.terminal && output.percent >= 0) fputs("\r\033[K", stderr);
    output.percent = -1;
}

void print_line(FILE *f, const char *format, va_list args) {
    char text[8192];
    vsnprintf(text, sizeof text, format, args);
    bitnet_clean_text(text, strlen(text), text, sizeof text);
    fprintf(f, "%s\n", text);
}

void print_clean(const char *text, int n) {
    char clean[73];
    bitnet_clean_text(text, (size_t)n, clean, sizeof clean);
    printf("%s", clean);
    if (n > 72) printf("... (%d bytes)", n);
}

void say(const char *format, ...) {
    va_list args;
    clear_progress();
    fputs("convert: ", stderr);
    va_start(args, format);
    print_line(stderr, format, args);
    va_end(args);
}

static void remove_output(void) {
    clear_progress();
    if (output.file) fclose(output.file);
    if (output.temporary) file_remove(output.temporary);
    free(output.temporary);
    output.temporary = 0;
    output.file = 0;
}

void fail(int code, const char *format, ...) {
    va_list args;
    remove_output();
    fputs("convert: ", stderr);
    va_start(args, format);
    print_line(stderr, format, args);
    va_end(args);
    exit(code);
}

void *grow(void *p, uint64_t size) {
    p = size < SIZE_MAX ? realloc(p, size ? (size_t)size : 1) : 0;
    if (!p) fail(1, "out of memory");
    return p;
}

/* ---- signals ---- */

static void on_signal(int number) { interrupted = number; }

/* A parent may have set a signal to be ignored, as nohup does. */
static void catch_signal(int number) {
    if (signal(number, SIG_IGN) != SIG_IGN) signal(number, on_signal);
}

static void catch_signals(void) {
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
#ifdef SIGHUP
    catch_signal(SIGHUP);
#endif
#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN);          /* too large a file is an error like a full disk */
#endif
}

/* Ends in the way the signal by itself would have ended the program. */
void stop_if_interrupted(void) {
    const int number = interrupted;
    if (!number) return;
    remove_output();
    signal(number, SIG_DFL);
    raise(number);
    exit(1);
}

/* ---- leftovers of killed runs ---- */

/* Is the file being written now, or is that unknown? A run locks its file after creating it, and
   loads it at the end without a lock. */
static int is_in_use(const char *path, const file_info *info, long pid) {
#ifdef _WIN32
    WCHAR wide[UTF8_PATH];
    HANDLE h = utf8_wide(path, wide) ? CreateFileW(wide, GENERIC_READ, 0, 0, OPEN_EXISTING, 0, 0)
                                     : INVALID_HANDLE_VALUE;
    (void)info;
    (void)pid;
    if (h == INVALID_HANDLE_VALUE) return 1;
    CloseHandle(h);
    return 0;
#else
    struct flock lock;
    int unknown, fd = open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return 1;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    unknown = fcntl(fd, F_GETLK, &lock);
    close(fd);
    return unknown || lock.l_type != F_UNLCK ||
           ((!info->st_size || difftime(time(0), info->st_mtime) < 600) &&
            (!kill((pid_t)pid, 0) || errno != ESRCH));
#endif
}

/* "3 hours" */
static void format_age(double seconds, char out[32]) {
    static const struct { const char *unit; double seconds; } units[] = {
        {"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}
    };
    const size_t last = sizeof units / sizeof units[0] - 1;
    size_t i = 0;
    double n;
    while (i < last && seconds < units[i].seconds) i++;
    n = seconds > 0 ? (double)(int64_t)(seconds / units[i].seconds) : 0;
    snprintf(out, 32, "%.0f %s%s", n, units[i].unit, n == 1 ? "" : "s");
}

/* Is the name base and ".PID-N.part"? */
static int is_part_name(const char *name, const char *base) {
    const size_t n = strlen(base);
    const char *p = name + n + 1;
    int number;
    if (strncmp(name, base, n) || name[n] != '.') return 0;
    for (number = 0; number < 2; number++) {
        if (*p < '0' || *p > '9') return 0;
        while (*p >= '0' && *p <= '9') p++;
        if (number == 0 && *p++ != '-') return 0;
    }
    return !strcmp(p, ".part");
}

/* Reports the file of this name in the output's folder, if it is a leftover. folder is the length
   of the folder's name in path. */
static void report_leftover(const char *path, size_t folder, const char *name) {
    const char *base = path + folder;
    char full[FILE_PATH], age[32];
    file_info info;
    int n;
    if (!is_part_name(name, base)) return;
    n = snprintf(full, sizeof full, "%.*s%s", (int)folder, path, name);
    if (n < 0 || n >= FILE_PATH || file_stat(full, &info) || (info.st_mode & S_IFMT) != S_IFREG ||
        is_in_use(full, &info, strtol(name + strlen(base) + 1, 0, 10))) return;
    format_age(difftime(time(0), info.st_mtime), age);
    say("%s: left behind %s ago by a run that was killed (%.1f MB); it can be deleted", full, age,
        (double)info.st_size / 1e6);
}

#ifdef _WIN32
void output_report_leftovers(const char *path) {
    const char *base = path + strlen(path);
    char pattern[FILE_PATH], name[3 * MAX_PATH + 1];
    WCHAR wide[UTF8_PATH];
    WIN32_FIND_DATAW found;
    HANDLE h;
    const int n = snprintf(pattern, sizeof pattern, "%s.*.part", path);
    while (base > path && !strchr("/\\:", base[-1])) base--;
    if (n < 0 || n >= FILE_PATH || !utf8_wide(pattern, wide)) return;
    h = FindFirstFileW(wide, &found);
    if (h == INVALID_HANDLE_VALUE) return;
    do {
        WideCharToMultiByte(CP_UTF8, 0, found.cFileName, -1, name, sizeof name, 0, 0);
        report_leftover(path, (size_t)(base - path), name);
    } while (FindNextFileW(h, &found));
    FindClose(h);
}
#else
void output_report_leftovers(const char *path) {
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    char name[FILE_PATH];
    const int n = snprintf(name, sizeof name, "%.*s.", (int)folder, path);   /* "folder/." */
    DIR *dir = n < 0 || n >= FILE_PATH ? 0 : opendir(name);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) != 0) report_leftover(path, folder, entry->d_name);
    if (dir) closedir(dir);
}
#endif

/* ---- writing ---- */

static void show_progress(void) {
    const double total = (double)gguf_writer_total(&writer);
    const int percent = total > 0 ? (int)(100.0 * (double)output.done / total) : 0;
    char bar[33] = "................................";
    if (!output.terminal || percent == output.percent) return;
    output.percent = percent;
    memset(bar, '#', (size_t)(percent < 100 ? percent * 32 / 100 : 32));
    fprintf(stderr, "\rconvert: [%s] %3d %%", bar, percent);
}

static int write_output(void *ud, const void *p, size_t n) {
    (void)ud;
    stop_if_interrupted();
    if (fwrite(p, 1, n, output.file) != n)
        fail(1, "%s: cannot write: %s", output.path, strerror(errno));
    output.done += n;
    show_progress();
    return 0;
}

/* The output may only replace a regular file, and only with --force. A link is refused, because
   renaming would replace it rather than its target; /dev/stdout is one. */
static void check_place(const char *path, int force) {
    file_info info;
#ifndef _WIN32
    if (!lstat(path, &info) && (info.st_mode & S_IFMT) == S_IFLNK)
        fail(1, "%s: this is a link; name the file itself", path);
#endif
    if (file_stat(path, &info)) {
        if (errno == ENOENT) return;
        fail(1, "%s: cannot be written: %s", path, strerror(errno));
    }
    if ((info.st_mode & S_IFMT) != S_IFREG) fail(1, "%s: this exists and is not a file", path);
    if (!force) fail(1, "%s: this file exists; --force replaces it", path);
}

/* Locks the open file, so that other runs know that it is in use. Windows needs no lock: there an
   open file cannot be opened without sharing. */
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

/* Creates the temporary file, readable by nobody else if it is to replace a file. */
static int create_temporary(const char *path) {
    const size_t room = strlen(path) + 32;
    file_info info;
    const int replaces = !file_stat(path, &info);
    int i, fd = -1;
    output.temporary = (char *)grow(0, room);
    for (i = 0; i < 100 && fd < 0; i++) {
        snprintf(output.temporary, room, "%s.%d-%d.part", path, (int)getpid(), i);
        fd = file_create(output.temporary, replaces);
        if (fd < 0 && errno != EEXIST) break;
    }
    if (fd >= 0) return fd;
    free(output.temporary);            /* it is not ours to remove */
    output.temporary = 0;
    fail(1, "%s: cannot write in its folder: %s", path, strerror(errno));
}

void output_open(const char *path, int force) {
    int fd;
    if (file_output_is_read()) fail(2, "%s: input and output are the same file", path);
    check_place(path, force);
    output.path = path;
    output.percent = -1;
    output.terminal = isatty(2);
    catch_signals();
    fd = create_temporary(path);
    lock_output(fd);
    keep_permissions(fd, path);
    output.file = fdopen(fd, "wb");
    if (!output.file) {
        close(fd);
        fail(1, "%s: cannot write: %s", path, strerror(errno));
    }
    setvbuf(output.file, 0, _IOFBF, 1 << 20);
    writer.write_fn = write_output;
}

/* The renaming must reach the disk too. Some file systems cannot sync a folder; ignore that. */
static void sync_folder(void) {
#ifndef _WIN32
    char *folder = output.temporary, *slash = strrchr(folder, '/');
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
    WCHAR from[UTF8_PATH], to[UTF8_PATH];
    if (!utf8_wide(output.temporary, from) || !utf8_wide(output.path, to) ||
        !MoveFileExW(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH))
        fail(1, "%s: cannot rename to it (error %lu)", output.path, GetLastError());
#else
    if (rename(output.temporary, output.path))
        fail(1, "%s: cannot rename to it: %s", output.path, strerror(errno));
#endif
}

static void print_on_stdout(const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_line(stdout, format, args);
    va_end(args);
}

/* The last line of a run that succeeds. */
static void print_written(void) {
    print_on_stdout("%s: %.1f MB written", output.path, (double)output.done / 1e6);
}

const char *output_end(void) {
    FILE *f = output.file;
    int bad;
    stop_if_interrupted();
    bad = fflush(f) || fsync(fileno(f));
    output.file = 0;
    if (fclose(f) || bad) fail(1, "%s: cannot write: %s", output.path, strerror(errno));
    return output.temporary;
}

void output_close(int force) {
    stop_if_interrupted();
    check_place(output.path, force);
    rename_output();
    sync_folder();
    free(output.temporary);
    output.temporary = 0;
    if (output.terminal && output.percent >= 0) fputc('\n', stderr);
    print_written();
}
