/* acceptor.h - one thread that accepts connections and hands each socket to the least busy loop.
 *
 * The least busy loop has the fewest bytes of answers under way, then the fewest connections. At
 * the limit of connections the acceptor asks for idle ones to be ended, and accepts a few more as
 * spare ones, for health checks. Beyond those, or without file descriptors, it leaves new
 * connections in the kernel's queue until others end. No connection is accepted only to be closed.
 *
 * owns     struct acceptor, from acceptor_open() to acceptor_close(); watched listeners are held
 * threads  the calls: one at a time, from other threads than its own; on_accept() runs on the
 *          chosen loop
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
    bool spare; /* it came at the limit */
};

enum { SPARE_CONNECTIONS = 16 }; /* above the limit */

struct acceptor_events {
    void (*on_accept)(void *arg, struct loop *l, const struct accepted *a);
    /* at the limit, for each new connection; on the acceptor's thread */
    void (*on_full)(void *arg);
    void *arg;
};

/* `open` counts connections from accept() on; the owner decrements it when they end. */
struct acceptor *acceptor_open(struct loops *ls, uint32_t connections_max, _Atomic uint64_t *open,
                               struct acceptor_events ev);
/* Watches these listeners and no others; each is held. The queues of those that are removed were
 * emptied, so no client that had connected is refused. Nothing is accepted on them after this
 * returns. */
void acceptor_watch(struct acceptor *a, struct listener *const *ls, size_t count);
void acceptor_start(struct acceptor *a);
void acceptor_stop(struct acceptor *a); /* joins the thread: nothing is accepted afterwards */
void acceptor_close(struct acceptor **ap);

#endif
