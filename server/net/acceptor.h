/* acceptor.h - one thread that accepts and hands each socket to the loop with the least to do.
 *
 * Least is: bytes of answers under way, then connections. At the ceiling it asks for idle
 * connections to be ended, and accepts a few more as spare ones, for health checks. Beyond those,
 * or out of file descriptors, it leaves new connections in the kernel's queue until others end;
 * nothing is accepted only to be thrown away.
 *
 * threads  acceptor_open/watch/start/stop/close one at a time, from others than its own; on_accept
 *          runs on the chosen loop
 */
#ifndef SERVER_NET_ACCEPTOR_H
#define SERVER_NET_ACCEPTOR_H

#include <stdatomic.h>
#include <sys/socket.h>

#include "server/net/listener.h"
#include "server/net/loop.h"

struct acceptor;

struct accepted {
    int fd;                    /* on_accept takes it */
    struct listener *listener; /* held; on_accept takes the count */
    struct sockaddr_storage peer;
    bool spare; /* it came at the ceiling */
};

enum { SPARE_CONNECTIONS = 16 }; /* above the ceiling */

struct acceptor_events {
    void (*on_accept)(void *arg, struct loop *l, const struct accepted *a);
    void (*on_full)(void *arg); /* at the ceiling, for each that comes; on the acceptor's thread */
    void *arg;
};

/* `open` counts connections from accept() on; the owner counts them down when they end. */
struct acceptor *acceptor_open(struct loops *ls, uint32_t connections_max, _Atomic uint64_t *open,
                               struct acceptor_events ev);
/* These and no others from now on, each held. Those that leave have been emptied: nobody who had
 * connected is refused. After it returns, nothing is accepted on them any more. */
void acceptor_watch(struct acceptor *a, struct listener *const *ls, size_t count);
void acceptor_start(struct acceptor *a);
void acceptor_stop(struct acceptor *a); /* joins the thread: nothing is accepted after it returns */
void acceptor_close(struct acceptor **ap);

#endif
