/* serve_log.h - a line of JSON for each request, if --log asks for it

   serve_log.c owns the file. Prompts are in it only with --log-prompts. */
#ifndef SERVER_SERVE_LOG_H
#define SERVER_SERVE_LOG_H

#include "serve_jobs.h"

/* Returns 0, or an exit code. */
int log_open(void);
/* Is it a file, and not stdout? */
int log_is_file(void);
/* Opens the path again: what was there may have been renamed. */
void log_reopen(void);
/* Keeps the body for the log, if it is wanted. */
void log_body(job *j);
/* Writes the line of a job that has ended; on any thread, without the lock. */
void log_job(const job *j);

#endif
