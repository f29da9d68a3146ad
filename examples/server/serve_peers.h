/* serve_peers.h - connections: which of them have left, and which never send their request

   serve_peers.c owns the list of all connections. libmicrohttpd looks neither at those that are
   suspended, nor at the end of one that has sent a part of a request; and its timeout begins anew
   with each byte, so that a client could keep a connection with a byte in a minute. */
#ifndef SERVER_SERVE_PEERS_H
#define SERVER_SERVE_PEERS_H

#include "serve_http.h"

/* libmicrohttpd's MHD_OPTION_NOTIFY_CONNECTION. */
void peers_notify(void *cls, struct MHD_Connection *c, void **context,
                  enum MHD_ConnectionNotificationCode what);
/* Its MHD_AcceptPolicyCallback: an address has at most --peer-connections, and all have
   --connections. Those are fewer than libmicrohttpd's own bound, at which it accepts none, by one:
   the bell of serve_http.c, which has no address, and may come after its clients. */
enum MHD_Result peers_accept(void *cls, const struct sockaddr *a, socklen_t n);
/* The connection's request has this job, or 0. */
void peer_has_job(struct MHD_Connection *c, job *j);
job *peer_job(struct MHD_Connection *c);
/* The whole request is here; its answer has ended. */
void peer_has_request(struct MHD_Connection *c);
void peer_has_answer(struct MHD_Connection *c);

/* On the main thread, with the lock: tells the jobs whose clients have left (job_has_left), and
   ends connections that have left or are too slow. It looks from time to time, however often it
   is called: the more connections, the more seldom. */
void peers_look(double time);
/* With the lock: 1 if libmicrohttpd may need http_wake. */
int peers_are_many(void);

#endif
