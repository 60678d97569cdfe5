/* tcp.h - TCP connections between processes that find each other by a host's name and a port.
 *
 * A listener listens on the address of its host's name only. But many hosts resolve their own
 * name to a loopback address (127.0.1.1), where no other host could reach the listener: then it
 * listens on all IPv4 addresses. "localhost" and numeric addresses are used as they are.
 *
 * owns     descriptors are the caller's: non-blocking, and closed by exec()
 * threads  any; names are looked up for as long as the resolver takes
 * errors   E_AGAIN: an unknown name or a port in use, both may be temporary; E_NOTFOUND: not an
 *          address of this machine; E_TIMEOUT: the limit; E_NETWORK: refused, closed, broken
 */
#ifndef COMMON_XFER_TCP_H
#define COMMON_XFER_TCP_H

#include <netdb.h>
#include <sys/socket.h>

#include "common/base/err.h"

enum { TCP_ADDRESS_TEXT = 64 };

/* How long to wait. */
struct tcp_limit {
    uint64_t until_ms; /* on the monotonic clock */
    int wake;          /* a descriptor that ends the wait when it becomes readable; -1: none */
};

/* On the first free one of `ports` ports, from `port` on. */
MUST_USE int tcp_listen(const char *host, unsigned port, unsigned ports, int *fd, struct err *e);
unsigned tcp_port(int fd); /* that a socket is bound to */
/* To that address, at `port`. The text of an error is only the reason. */
MUST_USE int tcp_connect(const struct addrinfo *a, unsigned port, struct tcp_limit limit, int *fd,
                         struct err *e);
/* To the first of the host's addresses that answers; they share the time. */
MUST_USE int tcp_dial(const char *host, unsigned port, struct tcp_limit limit, int *fd,
                      struct err *e);
/* All n bytes. */
MUST_USE int tcp_receive(int fd, void *to, size_t n, struct tcp_limit limit);

/* True when only this machine can reach it: 127.0.0.0/8, ::1, and IPv4's as an IPv6 socket shows
 * them. */
bool tcp_is_loopback(const struct sockaddr *a);
/* As getaddrinfo() reads it, without a port: IPv4 as four numbers on any socket, an IPv6
 * link-local address with its interface. */
void tcp_address(const struct sockaddr *a, socklen_t n, char out[TCP_ADDRESS_TEXT]);
/* An IPv6 link-local address from another machine contains that machine's name of the interface.
 * Replaces it by this machine's: the interface of the connection fd, which is link-local too.
 * Leaves any other text alone. */
void tcp_localize(int fd, char *address, size_t room);

#endif
