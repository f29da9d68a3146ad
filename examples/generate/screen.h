/* screen.h - what a person sees: the text, messages, a progress bar, and Ctrl-C */
#ifndef GENERATE_SCREEN_H
#define GENERATE_SCREEN_H

#include "generate.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

extern FILE *screen;                   /* a terminal for everything but text; 0: none */
extern int text_on_terminal;           /* stdout is one */
extern int painting;                   /* in colours */
extern int line_open;                  /* the text so far does not end in a newline */
extern int write_error;                /* errno of the first failed write to stdout */
extern volatile sig_atomic_t interrupted;      /* by Ctrl-C */

/* Finds out which streams are terminals, and whether a parent wants SIGINT to be ignored. */
void look_around(void);

double now(void);                      /* seconds */

/* A progress bar, which appears after a quarter of a second. */
void bar_begin(const char *name);
void bar_update(double share);
void bar_end(void);

/* One line on stderr. */
void say(const char *format, ...);
void note(const char *format, ...);    /* --log-disable turns these off */
int fail(int code, const char *format, ...);   /* returns the exit code */

/* Writes to stdout, unchanged if that is a file or a pipe. Nonzero: stdout accepts no more. */
int put(const char *text, size_t n);

/* In one of these colours, if there are colours. */
#define COLOUR_PROMPT "\033[33m"
#define COLOUR_INPUT "\033[1;32m"
#define COLOUR_THINKING "\033[2m"
#define COLOUR_NONE "\033[0m"
void paint(FILE *to, const char *colour);

/* What Ctrl-C does: while the model writes it sets interrupted; while the program waits for a line
   it ends it. */
void on_interrupt_writing(int sig);
void on_interrupt_waiting(int sig);
void catch_interrupt(void (*handler)(int));

#endif
