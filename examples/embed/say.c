#define _DEFAULT_SOURCE 1              /* clock_gettime, sigaction, also with -std=c99 */
#include "say.h"
#include "../threads.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int say_quiet;
const char *say_name = "embed";
static int progress_shown;

static void print(const char *before, const char *format, va_list args, const char *after) {
    char line[1024];
    vsnprintf(line, sizeof line, format, args);
    bitnet_clean_text(line, strlen(line), line, sizeof line);
    fprintf(stderr, "%s%s%s%s", progress_shown ? "\r\033[K" : "", before, line, after);
    progress_shown = 0;
}

static void print_line(const char *format, va_list args) {
    char before[32];
    snprintf(before, sizeof before, "%s: ", say_name);
    print(before, format, args, "\n");
}

void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_line(format, args);
    va_end(args);
}

int fail(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_line(format, args);
    va_end(args);
    return code;
}

void note(const char *format, ...) {
    va_list args;
    if (say_quiet) return;
    va_start(args, format);
    print_line(format, args);
    va_end(args);
}

void note_warning(void *ud, bitnet_log_level level, const char *text) {
    (void)ud;
    if (level == BITNET_LOG_WARNING) note("%s", text);
}

void progress(const char *format, ...) {
    static double last;
    va_list args;
    double now;
    if (say_quiet || !isatty(2)) return;
    now = thread_clock();
    if (now - last < 0.25) return;
    last = now;
    va_start(args, format);
    print("", format, args, "");
    va_end(args);
    progress_shown = 1;
}

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t asked;

static void on_stop(int number) {
    (void)number;
    asked = 1;
}

int stop_is_asked(void *ud) {
    (void)ud;
    return asked != 0;
}

void stop_when_asked(void) {
#ifdef _WIN32
    signal(SIGINT, on_stop);
#else
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action, old;
    int i;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_stop;
    action.sa_flags = (int)SA_RESETHAND;
    for (i = 0; i < 3; i++)
        if (!sigaction(numbers[i], 0, &old) && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, 0);
#endif
}
