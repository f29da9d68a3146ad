#define _DEFAULT_SOURCE 1              /* kill, fileno and others, also with -std=c99 */
#define _FILE_OFFSET_BITS 64           /* locks beyond 2 GB, also on 32-bit systems */
#include "output.h"
#include "files.h"
#include "../utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32
  #include <io.h>
  #define isatty _isatty
#else
  #include <unistd.h>
#endif

gguf_writer writer;

static struct {
    const char *path;
    written file;
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
    written_free(&output.file);
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

static double seconds_since(const file_facts *facts) {
    return difftime(time(0), (time_t)facts->changed);
}

/* Is the file being written now, or is that unknown? A run locks its file after creating it, and
   loads it at the end without a lock. */
static int is_in_use(const char *path, const file_facts *facts, long pid) {
#ifdef _WIN32
    WCHAR wide[UTF8_PATH];
    HANDLE h = utf8_wide(path, wide) ? CreateFileW(wide, GENERIC_READ, 0, 0, OPEN_EXISTING, 0, 0)
                                     : INVALID_HANDLE_VALUE;
    (void)facts;
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
           ((!facts->size || seconds_since(facts) < 600) &&
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

/* Reports the file of this name beside path, if it is a leftover. */
static void report_leftover(const char *path, const char *name) {
    char full[FILE_PATH], age[32];
    file_facts facts;
    long pid;
    int n;
    if (!written_is_leftover(path, name, &pid)) return;
    n = snprintf(full, sizeof full, "%.*s%s", (int)(file_last_name(path) - path), path, name);
    if (n < 0 || n >= FILE_PATH || file_look(&facts, full, 1) || !facts.is_file ||
        is_in_use(full, &facts, pid)) return;
    format_age(seconds_since(&facts), age);
    say("%s: left behind %s ago by a run that was killed (%.1f MB); it can be deleted", full, age,
        (double)facts.size / 1e6);
}

void output_report_leftovers(const char *path) {
    char *to = file_follow(path), folder[FILE_PATH];
    const int n = to ? snprintf(folder, sizeof folder, "%.*s.", (int)(file_last_name(to) - to), to)
                     : -1;             /* "folder/." */
    file_names list = {0};
    size_t i;
    if (n > 0 && n < FILE_PATH) file_list(&list, folder);
    for (i = 0; i < list.n; i++) report_leftover(to, list.p[i]);
    file_forget_names(&list);
    free(to);
}

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
    if (fwrite(p, 1, n, output.file.f) != n)
        fail(1, "%s: cannot write: %s", output.path, strerror(errno));
    output.done += n;
    show_progress();
    return 0;
}

static void cannot_write(const char *path, const char *why) {
    if (why) fail(1, "%s: cannot write: %s", path, why);
}

/* The output may only replace a regular file, and only with --force. */
static void check_place(const char *path, int force) {
    file_facts facts;
    const int wrong = file_look(&facts, path, 1);
    if (wrong == ENOENT) return;
    if (wrong) fail(1, "%s: cannot write: %s", path, strerror(wrong));
    if (!facts.is_file) fail(1, "%s: this exists and is not a file", path);
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

void output_open(const char *path, int force) {
    if (file_output_is_read()) fail(2, "%s: input and output are the same file", path);
    check_place(path, force);
    output.path = path;
    output.percent = -1;
    output.terminal = isatty(2);
    catch_signals();
    cannot_write(path, written_create(&output.file, path, 0));
    lock_output(fileno(output.file.f));
    setvbuf(output.file.f, 0, _IOFBF, 1 << 20);
    writer.write_fn = write_output;
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
    stop_if_interrupted();
    cannot_write(output.path, written_end(&output.file));
    return output.file.part;
}

void output_close(int force) {
    stop_if_interrupted();
    check_place(output.path, force);
    cannot_write(output.path, written_name(&output.file));
    written_free(&output.file);
    if (output.terminal && output.percent >= 0) fputc('\n', stderr);
    print_written();
}
