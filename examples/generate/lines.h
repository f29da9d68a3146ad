/* lines.h - lines that a person types, with libedit or without */
#ifndef GENERATE_LINES_H
#define GENERATE_LINES_H

#include "files.h"

enum line { LINE_END, LINE_OK, LINE_REFUSED };

/* A message is a line, or several lines of which all but the last end in a backslash. */
enum line read_message(struct text *message);

/* Lines are edited from one to the other, if this program and the terminal can do it. */
void open_editor(void);
void close_editor(void);
/* The terminal shows what is typed, as it did before open_editor; for signal handlers, too. */
void show_keys(void);

#endif
