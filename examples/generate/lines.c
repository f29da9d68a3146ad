#define _DEFAULT_SOURCE 1              /* isatty, also with -std=c99 */
#include "lines.h"
#include "options.h"
#include "screen.h"
#include "../utf8.h"
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
  #include <io.h>
#else
  #include <unistd.h>
#endif
#ifdef GENERATE_EDITLINE
  #include <histedit.h>
  #include <langinfo.h>
  #include <locale.h>
  #include <termios.h>
#endif

/* Without line editing, arrow keys and the like arrive as escape sequences. They and other control
   characters are not part of the message. */
static void drop_keys(struct text *line) {
    const char *s = line->s, *end = s + line->n;
    char *out = line->s;
    while (s < end) {
        if (*s == '\033') {
            s++;
            if (s < end && *s == '[') {
                s++;
                while (s < end && *s >= 0x20 && *s < 0x40) s++;    /* parameters */
            } else if (s < end && *s == 'O') s++;
            if (s < end) s++;                                      /* the key itself */
        } else if (((unsigned char)*s < 0x20 && *s != '\t') || *s == 0x7F) s++;
        else *out++ = *s++;
    }
    line->n = (size_t)(out - line->s);
    *out = 0;
}

/* A line without its newline. A line that is too long is read to its end as well. */
static enum line read_plain(const char *mark, struct text *line) {
    int c, fits = 1;
    char byte;
    if (screen) {
        paint(screen, COLOUR_INPUT);
        fputs(mark, screen);
        fflush(screen);
    }
    while ((c = utf8_getc()) != EOF && c != '\n') {
        byte = (char)c;
        if (fits) fits = append(line, &byte, 1);
    }
    if (screen) paint(screen, COLOUR_NONE);
    if (c == EOF && line->n == 0) return LINE_END;
    if (fits) return LINE_OK;
    say("the message is not sent: it is longer than 16 MiB, or there is no memory for it");
    return LINE_REFUSED;
}

#ifdef GENERATE_EDITLINE
static EditLine *editor;
static History *history_lines;
static char editor_mark[64];
static struct termios keys_shown, keys_hidden;

static char *get_editor_mark(EditLine *e) {
    (void)e;
    return editor_mark;
}

/* Keys that terminals send as ESC [ or ESC O and a sequence, and emacs keys of the same effect. */
static const char *const key_sequences[][2] = {
    {"A", "\020"}, {"B", "\016"}, {"C", "\006"}, {"D", "\002"},        /* arrows: ^P ^N ^F ^B */
    {"H", "\001"}, {"1~", "\001"}, {"7~", "\001"},                     /* Home: ^A */
    {"F", "\005"}, {"4~", "\005"}, {"8~", "\005"},                     /* End: ^E */
    {"1;5C", "\033f"}, {"1;5D", "\033b"},                              /* Ctrl and an arrow */
    {"3~", "\030\004"},                                               /* Delete: see open_editor */
};

/* libedit would take the end of an unknown sequence for text. */
static unsigned char take_key(EditLine *e, int first) {
    char sequence[16] = "", c;
    size_t n = 0, i;
    (void)first;
    do {
        if (el_getc(e, &c) != 1) return CC_EOF;
        if (n + 1 < sizeof sequence) sequence[n++] = c;
    } while (c >= 0x20 && c < 0x40);                   /* parameters, then the last byte */
    for (i = 0; i < sizeof key_sequences / sizeof key_sequences[0]; i++)
        if (!strcmp(sequence, key_sequences[i][0])) el_push(e, key_sequences[i][1]);
    return CC_NORM;
}

/* The terminal itself shows no keys: libedit shows them while it reads a line, and keys that are
   typed while the model writes are kept for the next line. */
static void hide_keys(void) {
    tcsetattr(0, TCSADRAIN, &keys_hidden);
}

void show_keys(void) {
    if (editor) tcsetattr(0, TCSANOW, &keys_shown);
}

void close_editor(void) {
    show_keys();
    if (history_lines) history_end(history_lines);
    if (editor) el_end(editor);
    editor = 0;
}

void open_editor(void) {
    HistEvent event;
    const char *term = getenv("TERM");
    if (plain_input || !screen || !isatty(0) || tcgetattr(0, &keys_shown)) return;
    if (!term || !strcmp(term, "dumb")) return;
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") && !setlocale(LC_CTYPE, "C.UTF-8")) return;
    keys_hidden = keys_shown;
    keys_hidden.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    editor = el_init("generate", stdin, screen, screen);
    history_lines = history_init();
    if (!editor || !history_lines) {
        close_editor();
        return;
    }
    history(history_lines, &event, H_SETSIZE, 1000);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 1);
    el_set(editor, EL_HIST, history, history_lines);
    el_set(editor, EL_PROMPT_ESC, get_editor_mark, '\1');
    el_set(editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(editor, EL_BIND, "^X^D", "ed-delete-next-char", NULL);
    el_set(editor, EL_ADDFN, "take-key", "a key with a sequence", take_key);
    el_set(editor, EL_BIND, "\\e[", "take-key", NULL);
    el_set(editor, EL_BIND, "\\eO", "take-key", NULL);
    el_source(editor, NULL);
}

static enum line read_line(const char *mark, struct text *line) {
    HistEvent event;
    const char *s;
    int n = 0;
    if (!editor) return read_plain(mark, line);
    if (painting)
        snprintf(editor_mark, sizeof editor_mark, "\1" COLOUR_INPUT "\1%s", mark);
    else snprintf(editor_mark, sizeof editor_mark, "%s", mark);
    hide_keys();                       /* Ctrl-C has shown them */
    s = el_gets(editor, &n);
    hide_keys();                       /* libedit makes the terminal show them */
    paint(screen, COLOUR_NONE);
    fflush(screen);
    if (!s || n <= 0) return LINE_END;
    if (s[strspn(s, " \t\n")]) history(history_lines, &event, H_ENTER, s);
    if (s[n - 1] == '\n') n--;
    if (append(line, s, (size_t)n)) return LINE_OK;
    say("the message is not sent: it is longer than 16 MiB, or there is no memory for it");
    return LINE_REFUSED;
}
#else
void open_editor(void) {}
void close_editor(void) {}
void show_keys(void) {}
static enum line read_line(const char *mark, struct text *line) { return read_plain(mark, line); }
#endif

enum line read_message(struct text *message) {
    static struct text line;
    static int is_later;               /* a line was read before */
    enum line result;
    const char *mark = "> ";
    message->n = 0;
    if (screen) fputc('\n', screen);
    for (;;) {
        int more;
        line.n = 0;
        if (!append(&line, "", 0)) return LINE_REFUSED;
        result = read_line(mark, &line);
        if (result == LINE_END && message->n > 0) return LINE_OK;
        if (result != LINE_OK) return result;
        if (strlen(line.s) < line.n) {
            say("the message is not sent: it contains a zero byte");
            return LINE_REFUSED;
        }
        if (!is_later) drop_mark(&line);
        is_later = 1;
        if (line.n > 0 && line.s[line.n - 1] == '\r') line.s[--line.n] = 0;
        if (isatty(0)) drop_keys(&line);
        more = line.n > 0 && line.s[line.n - 1] == '\\';
        if (more) line.s[line.n - 1] = '\n';
        if (!append(message, line.s, line.n)) {
            say("the message is not sent: it is longer than 16 MiB, or there is no memory for it");
            return LINE_REFUSED;
        }
        if (!more) return LINE_OK;
        mark = "... ";
    }
}
