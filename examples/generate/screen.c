#define _DEFAULT_SOURCE 1              /* clock_gettime, isatty and others, also with -std=c99 */
#include "screen.h"
#include "lines.h"
#include "options.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32
  #include <io.h>
#else
  #include <sys/time.h>
  #include <unistd.h>
#endif

FILE *screen;
int text_on_terminal, painting, line_open, write_error;
static int interrupt_ignored;          /* SIGINT was ignored when the program started */
volatile sig_atomic_t interrupted;

double now(void) {
#ifdef _WIN32
    return (double)clock() / CLOCKS_PER_SEC;      /* wall-clock time on Windows */
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
}

/* ---- a progress bar, for whatever takes longer than a quarter of a second ----
   A timer draws it first, because on a slow machine the library reports no progress for seconds. */

enum { BAR_DELAY_MS = 250, BAR_WIDTH = 40 };

static char bar_line[80];
static const char *bar_name;
static int bar_percent;
static double bar_start;
static volatile sig_atomic_t bar_shown;

static void bar_format(double share) {
    static const char full[] = "########################################";
    bar_percent = (int)(100.0 * share);
    snprintf(bar_line, sizeof bar_line, "\r%-6s [%-*.*s] %3d%%", bar_name, BAR_WIDTH,
             (int)(BAR_WIDTH * share), full, bar_percent);
}

/* For signal handlers, which must not use stdio. */
static void write_stderr(const char *text) {
    if (write(2, text, (unsigned)strlen(text)) >= 0) return;
}

#ifndef _WIN32
static void on_alarm(int sig) {
    (void)sig;
    write_stderr(bar_line);
    bar_shown = 1;
}

static void bar_timer(int milliseconds) {
    struct itimerval t;
    memset(&t, 0, sizeof t);
    t.it_value.tv_usec = milliseconds * 1000;
    if (milliseconds > 0) signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &t, 0);
}
#else
static void bar_timer(int milliseconds) { (void)milliseconds; }
#endif

void bar_begin(const char *name) {
    if (quiet || !isatty(2)) return;
    bar_name = name;
    bar_start = now();
    bar_format(0);
    bar_timer(BAR_DELAY_MS);
}

void bar_update(double share) {
    if (!bar_name || (int)(100.0 * share) == bar_percent) return;
    if (!bar_shown && now() - bar_start < BAR_DELAY_MS / 1000.0) return;
    bar_timer(0);
    bar_format(share);
    fputs(bar_line, stderr);
    bar_shown = 1;
}

void bar_end(void) {
    if (!bar_name) return;
    bar_timer(0);
    if (bar_shown) fprintf(stderr, "\r%*s\r", (int)strlen(bar_line), "");
    bar_shown = 0;
    bar_name = 0;
}

/* ---- messages ---- */

/* One line on stderr. It is cleaned, because file names and other untrusted words may contain
   anything. */
static void say_args(const char *format, va_list args) {
    char line[2048];
    vsnprintf(line, sizeof line, format, args);
    bitnet_clean_text(line, strlen(line), line, sizeof line);
    bar_end();
    fprintf(stderr, "generate: %s\n", line);
}

void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say_args(format, args);
    va_end(args);
}

void note(const char *format, ...) {
    va_list args;
    if (quiet) return;
    va_start(args, format);
    say_args(format, args);
    va_end(args);
}

int fail(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    say_args(format, args);
    va_end(args);
    return code;
}

/* ---- the text ---- */

/* Would a terminal act on it? These are the controls C0 except newline and tab, DEL, C1, and those
   that change the direction of writing. */
static int is_control(uint32_t cp) {
    if (cp < 0x20) return cp != '\n' && cp != '\t';
    return (cp >= 0x7F && cp < 0xA0) || cp == 0x61C || cp == 0x200E || cp == 0x200F ||
           (cp >= 0x202A && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069);
}

/* Writes text to a terminal, with controls as symbols. */
static void show(const char *text, size_t n) {
    uint32_t cp = 0;
    size_t size;
    for (; n > 0; text += size, n -= size) {
        size = bitnet_utf8_decode(text, n, &cp);
        if (!size) {
            fputs("\xEF\xBF\xBD", stdout);            /* U+FFFD for a byte */
            size = 1;
        } else if (!is_control(cp)) fwrite(text, 1, size, stdout);
        else if (cp < 0x20) printf("\xE2\x90%c", (int)(0x80 + cp));         /* U+2400 and up */
        else if (cp == 0x7F) fputs("\xE2\x90\xA1", stdout);                 /* U+2421 */
        else printf("<U+%04X>", (unsigned)cp);
    }
}

int put(const char *text, size_t n) {
    if (write_error) return write_error;
    line_open |= n > 0;
    errno = 0;
    if (text_on_terminal) show(text, n);
    else fwrite(text, 1, n, stdout);
    if (fflush(stdout) || ferror(stdout)) write_error = errno ? errno : EIO;
    return write_error;
}

void paint(FILE *to, const char *colour) {
    if (painting) fputs(colour, to);
}

/* ---- Ctrl-C ---- */

void on_interrupt_writing(int sig) {
    interrupted = 1;
    show_keys();
    signal(sig, SIG_DFL);              /* the second Ctrl-C ends the program */
}

void on_interrupt_waiting(int sig) {
    show_keys();
    write_stderr(painting ? COLOUR_NONE "\n" : "\n");
    signal(sig, SIG_DFL);
    raise(sig);
}

void catch_interrupt(void (*handler)(int)) {
    if (!interrupt_ignored) signal(SIGINT, handler);
}

void look_around(void) {
    const char *term = getenv("TERM");
    int plain = getenv("NO_COLOR") || !term || !strcmp(term, "dumb");
    text_on_terminal = isatty(1);
    if (isatty(0) && isatty(2)) screen = stderr;
    else if (isatty(0) && isatty(1)) screen = stdout;
    painting = screen && text_on_terminal && (colours == YES || (colours == AUTO && !plain));
#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN);          /* too large a file is an error like a full disk */
#endif
    interrupt_ignored = signal(SIGINT, SIG_IGN) == SIG_IGN;
    catch_interrupt(on_interrupt_writing);
}
