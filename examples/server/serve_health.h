/* serve_health.h - asks a server that runs whether it is well */
#ifndef SERVE_HEALTH_H
#define SERVE_HEALTH_H

/* Asks /health of the server at --host and --port. Returns the exit code: 0, or 1 and says why. */
int serve_health(void);

#endif
