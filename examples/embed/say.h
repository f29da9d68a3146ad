/* say.h - what embed and perplexity say on stderr, one line at a time, and how they are stopped */
#ifndef EMBED_SAY_H
#define EMBED_SAY_H

#include "../../bitnet.h"

/* Exit codes: done, a text or a file failed, wrong usage, a refused model, Ctrl-C. */
enum { DONE, FAILED, USAGE, MODEL_REFUSED, STOPPED = 130 };

#ifdef __GNUC__                        /* the compiler checks the arguments */
  #define SAY_FORMAT(n) __attribute__((format(printf, n, n + 1)))
#else
  #define SAY_FORMAT(n)
#endif

/* A line, cleaned, since names of files and texts may contain anything. */
void say(const char *format, ...) SAY_FORMAT(1);
/* The same; returns the code. */
int fail(int code, const char *format, ...) SAY_FORMAT(2);
/* The same, but for --quiet. */
void note(const char *format, ...) SAY_FORMAT(1);
/* For bitnet_model_params.log_fn: notes what the library warns of. */
void note_warning(void *ud, bitnet_log_level level, const char *text);
/* A line that replaces itself, on a terminal, a few times a second. */
void progress(const char *format, ...) SAY_FORMAT(1);

/* From now on Ctrl-C and the like, unless they are ignored, ask the program to stop in order, and a
   second one ends it at once. */
void stop_when_asked(void);
int stop_is_asked(void *ud);           /* a cancel_fn */

extern int say_quiet;                  /* 1: neither notes nor progress */
extern const char *say_name;           /* the program's, in front of each line */

#endif
