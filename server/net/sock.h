/* sock.h - TCP sockets: addresses as text, listening, options of accepted sockets.
 *
 * owns     a descriptor belongs to the caller
 * threads  any
 * errors   the error names the address
 */
#ifndef SERVER_NET_SOCK_H
#define SERVER_NET_SOCK_H

#include <sys/socket.h>

#include "common/base/err.h"

enum { SOCK_TEXT_BYTES = 64 };

/* "127.0.0.1:8080", "[::1]:8080", "name:8080", ":0" (any address, any port). The error names the
 * address. */
MUST_USE int sock_listen(const char *address, int *fd_out, struct err *e);
void sock_bound(int fd, char out[SOCK_TEXT_BYTES]); /* "127.0.0.1:40123" */
/* Keeps little unsent data in the kernel, so that small answers of a multiplexed connection do not
 * queue after megabytes. */
void sock_short_queue(int fd);
bool sock_delivers(int fd); /* true while sent bytes have not arrived yet */
void sock_tune(int fd);     /* TCP_NODELAY */

#endif
