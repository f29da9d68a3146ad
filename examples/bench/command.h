/* command.h - runs a command of the shell and returns what it prints */
#ifndef BENCH_COMMAND_H
#define BENCH_COMMAND_H

enum { MOST_SECONDS = 86400 };         /* of a command's time limit */

/* What the command writes to its standard output, a text from malloc that ends with a NUL. Its
   standard input is empty, and its standard error stays ours. Fails, and shows what the command has
   printed, if it ends with another code than 0, or is not done in limit_s seconds; then it is
   killed, with all processes that it has started. (On Windows there is no time limit.) */
char *run_command(const char *command, int limit_s);
/* Fails with this error, and shows what the command has printed. */
#ifdef __GNUC__
__attribute__((noreturn))
#endif
void fail_command(const char *what, const char *which, const char *printed);

#endif
