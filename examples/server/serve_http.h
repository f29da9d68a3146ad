/* serve_http.h - connections, with libmicrohttpd

   serve_http.c owns the daemon and its callbacks, all on a thread of its own: what a request's head
   may say, which address does what, and how answers are sent.

   It is libmicrohttpd, and not libevent, since it hands a body over in parts, so that what is too
   large is thrown away as it comes; bounds connections, and the memory and the silence of each; and
   has connections that other threads wake. */
#ifndef SERVER_SERVE_HTTP_H
#define SERVER_SERVE_HTTP_H

#include "serve_jobs.h"
#include <microhttpd.h>

/* Some clients read Latin-1 without a charset. */
#define HTTP_JSON "application/json; charset=utf-8"

typedef enum MHD_Result answer;

/* --host is the path of a Unix socket. */
int http_is_socket(void);
/* Returns 0, or an exit code. */
int http_start(void);
/* Lets the last answers reach their clients. */
void http_stop(void);
/* Makes its thread look at all connections; without the lock. */
void http_wake(void);
/* Is it the connection that does this, and no client's? */
int http_is_bell(struct MHD_Connection *c);

/* Each counts the answer. r is taken over; type 0: it has no content. */
answer http_send(struct MHD_Connection *c, int status, struct MHD_Response *r, const char *type);
answer http_send_text(struct MHD_Connection *c, int status, const char *type, const char *text,
                      size_t n);
/* Sends and frees what was written, unless there was no memory for all of it. */
answer http_send_buffer(struct MHD_Connection *c, const char *type, buffer *b);
/* In the form of an endpoint; 0: in OpenAI's. */
answer http_send_error(struct MHD_Connection *c, const endpoint *how, http_error error);
/* 0: it has none. */
const endpoint *route_endpoint(const struct route *r);

#endif
