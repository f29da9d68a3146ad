/* output.h - messages on stderr, and an output file that appears complete or not at all

   The output is OUT.gguf.PID-N.part in the same folder until it is complete, synced to the disk and
   renamed. A run that is killed (kill -9, a power cut) leaves this file behind. The next run that
   writes OUT.gguf names every such file that no running program holds, and leaves it alone: only
   its owner knows whether it is of use. */
#ifndef CONVERT_OUTPUT_H
#define CONVERT_OUTPUT_H

#include "gguf_write.h"
#include <stdarg.h>
#include <stdio.h>

/* A line of clean text: names of files, and names in them, may hold anything. */
void print_line(FILE *f, const char *format, va_list args);
/* Part of a line on stdout: n bytes of untrusted text, cut to 72. */
void print_clean(const char *text, int n);
/* One line on stderr, also while the progress bar is shown. */
void say(const char *format, ...);
/* One line on stderr, then exit. The unfinished output is removed. */
#ifdef __GNUC__
__attribute__((noreturn))
#endif
void fail(int code, const char *format, ...);
/* fail("out of memory") if there is none. */
void *grow(void *p, uint64_t size);

/* Writes to the output, between output_open and output_close. */
extern gguf_writer writer;

/* Reports what killed runs have left of this output. */
void output_report_leftovers(const char *path);
/* Creates the output, which file_set_output has named, and sets up the writer, once all files that
   are read are open. An existing file is replaced only if force is set. */
void output_open(const char *path, int force);
/* Ends the file and returns the name that it has until output_close. */
const char *output_end(void);
/* Gives the complete file its name, after output_end. */
void output_close(int force);
/* Ends the program if a signal has come. */
void stop_if_interrupted(void);

#endif
