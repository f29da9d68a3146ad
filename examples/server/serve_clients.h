/* serve_clients.h - who a client is, and whether it may come in

   serve_clients.c owns the keys, and what a proxy says of its clients. All of it is on HTTP's
   thread, but for clients_read_keys and clients_check_proxies. */
#ifndef SERVER_SERVE_CLIENTS_H
#define SERVER_SERVE_CLIENTS_H

#include "serve_http.h"

/* Reads --api-key and --api-key-file. Returns 0, or an exit code. */
int clients_read_keys(void);
int clients_have_keys(void);
/* Are those of --trusted-proxy addresses? Returns 0, or an exit code. */
int clients_check_proxies(void);

/* What is wrong with a request's key, Host or Origin; status 0: nothing. */
http_error client_check(struct MHD_Connection *c, int needs_key);
/* Of a connection, from its address; 0: they have no number, since they may be of many clients:
   this machine's, a trusted proxy's, or those of a Unix socket. */
uint64_t client_of_address(const struct sockaddr *a);
/* Who sends a request, so that places are shared out fairly: with several keys the key, else the
   address. An IPv6 address counts by its first 64 bits, which a provider gives to one customer. */
void client_identify(struct MHD_Connection *c, client *out);

#endif
