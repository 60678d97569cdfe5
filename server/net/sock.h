/* sock.h - TCP sockets: addresses in text, listening, what an accepted socket is set to. */
#ifndef SERVER_NET_SOCK_H
#define SERVER_NET_SOCK_H

#include <sys/socket.h>

#include "common/base/err.h"

enum { SOCK_TEXT_BYTES = 64 };

/* "127.0.0.1:8080", "[::1]:8080", "name:8080", ":0" (any address, any port). The error names the
 * address. */
MUST_USE int sock_listen(const char *address, int *fd_out, struct err *e);
void sock_bound(int fd, char out[SOCK_TEXT_BYTES]); /* "127.0.0.1:40123" */
/* Little unsent data in the kernel: small answers of a multiplexed connection do not queue behind
 * megabytes. */
void sock_short_queue(int fd);
bool sock_delivers(int fd); /* bytes that were sent have not arrived yet */
void sock_tune(int fd);     /* TCP_NODELAY */

#endif
