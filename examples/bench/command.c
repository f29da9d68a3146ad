#define _DEFAULT_SOURCE 1              /* fork and the like, also with -std=c99 */
#include "command.h"
#include "../../bitnet.h"
#include "limits.h"
#include "report.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PRINTED = 16 << 20, SHOWN_LINES = 10, SHOWN_BYTES = 200 };

typedef struct printed {               /* so far, with a NUL behind it */
    char *text;
    size_t n;
} printed;

void fail_command(const char *what, const char *which, const char *text) {
    char line[SHOWN_BYTES];
    const char *from = text + strlen(text);
    int lines = 0;
    while (from > text && (from[-1] != '\n' || !from[0] || ++lines < SHOWN_LINES)) from--;
    fprintf(stderr, "bench: the command of --compare %s%s; %s\n", what, which,
            *text ? "it printed:" : "it printed nothing");
    while (*from) {
        const size_t n = strcspn(from, "\n");
        bitnet_clean_text(from, n, line, sizeof line);
        fprintf(stderr, "    %s\n", line);
        from += n + (from[n] == '\n');
    }
    exit(1);
}

/* Appends n bytes; 0 if there are too many. A NUL would end the text: it becomes a '?'. */
static int append(printed *p, const char *bytes, size_t n) {
    char *more;
    size_t i;
    if (p->n + n > MOST_PRINTED) return 0;
    more = (char *)realloc(p->text, p->n + n + 1);
    if (!more) fail(1, "no memory for what the command prints");
    for (i = 0; i < n; i++) more[p->n + i] = bytes[i] ? bytes[i] : '?';
    p->text = more;
    p->n += n;
    more[p->n] = 0;
    return 1;
}

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

char *run_command(const char *command, int limit_s) {
    static WCHAR wide[32768];
    char bytes[4096], code[64];
    printed p = {0, 0};
    size_t n;
    int ended;
    FILE *f = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, command, -1, wide, 32768)
                  ? _wpopen(wide, L"r") : 0;
    (void)limit_s;
    if (!f) fail(1, "cannot start the command %s", command);
    append(&p, "", 0);
    while ((n = fread(bytes, 1, sizeof bytes, f)) > 0)
        if (!append(&p, bytes, n)) fail_command("prints too much", "", p.text);
    ended = _pclose(f);
    snprintf(code, sizeof code, "%d", ended);
    if (ended) fail_command("ended with exit code ", code, p.text);
    return p.text;
}
#else
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile pid_t running;         /* the command's process group; 0: none */

static void kill_command(void) {
    if (running > 0) kill(-running, SIGKILL);
}

/* The group is not the terminal's, so a Ctrl-C there does not reach the command. */
static void stop(int which) {
    kill_command();
    signal(which, SIG_DFL);
    raise(which);
}

/* Starts the command and returns where to read what it prints. */
static int start(const char *command) {
    int ends[2];
    pid_t id;
    fflush(stdout);
    if (pipe(ends) || (id = fork()) < 0) fail(1, "cannot start the command %s", command);
    if (id == 0) {
        const int nothing = open("/dev/null", O_RDONLY);
        setpgid(0, 0);
        if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(ends[1], 1) < 0) _exit(126);
        close(ends[0]);
        close(ends[1]);
        execl("/bin/sh", "sh", "-c", command, (char *)0);
        _exit(127);
    }
    setpgid(id, id);                   /* in both, for either may be first */
    running = id;
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    signal(SIGHUP, stop);
    close(ends[1]);
    return ends[0];
}

/* Reads until the end or that time. Returns 0, or what is wrong. */
static const char *read_all(int from, double until, printed *p) {
    char bytes[4096];
    ssize_t n = 1;
    while (n != 0) {
        struct pollfd one = {0, POLLIN, 0};
        const double left = until - seconds();
        one.fd = from;
        if (left <= 0) return "is not done in time (see --compare-limit)";
        if (poll(&one, 1, left < 1 ? (int)(left * 1000) + 1 : 1000) <= 0) continue;
        n = read(from, bytes, sizeof bytes);
        if (n < 0 && errno != EINTR) return "cannot be read";
        if (n > 0 && !append(p, bytes, (size_t)n)) return "prints too much";
    }
    return 0;
}

char *run_command(const char *command, int limit_s) {
    const double until = seconds() + limit_s;
    const int from = start(command);
    char code[64];
    printed p = {0, 0};
    const char *wrong;
    int status = 0, done = 0;
    append(&p, "", 0);
    wrong = read_all(from, until, &p);
    while (!wrong && !done) {          /* it may go on after it has closed its output */
        done = waitpid(running, &status, WNOHANG) != 0;
        if (!done) poll(0, 0, 10);
        if (!done && seconds() > until) wrong = "is not done in time (see --compare-limit)";
    }
    if (wrong) kill_command();
    if (!done) waitpid(running, &status, 0);
    running = 0;
    close(from);
    if (wrong) fail_command(wrong, "", p.text);
    snprintf(code, sizeof code, "%d", WIFSIGNALED(status) ? WTERMSIG(status)
                                                          : WEXITSTATUS(status));
    if (WIFSIGNALED(status)) fail_command("was ended by signal ", code, p.text);
    if (WEXITSTATUS(status) == 127) fail_command("was not found (exit code 127)", "", p.text);
    if (status) fail_command("ended with exit code ", code, p.text);
    return p.text;
}
#endif
