/* dial.h - opens a connection to a host by its name: looks it up (lookup.h) and races its
 * addresses; or connects through a proxy, whose name is then the one that is looked up (proxy.h).
 *
 * In a race the address that answers first wins, so a dead address hardly delays the others.
 *
 * owns     the sockets until one is handed over; dial_close() and race_close() at any time, also
 *          inside done() or won(); no event follows them
 * threads  the loop's; done() and won() never run inside the call that opens. There is no
 *          deadline: the owner has one
 * source   RFC 8305 (4, 5) for the race
 */
#ifndef SERVER_SYNC_RSYNC_DIAL_H
#define SERVER_SYNC_RSYNC_DIAL_H

#include "common/os/message_queue.h"
#include "server/sync/proxy.h"

struct addrinfo;
struct event_base;
struct dial;

struct link_site {
    struct event_base *base;
    struct message_queue *box;
};

struct dial_to {       /* copied */
    struct slice host; /* at least one byte, at most DIAL_HOST_MAX */
    uint16_t port;
    const struct proxy *proxy; /* or NULL: direct */
};

/* done: once, with a connected non-blocking socket, which then belongs to the owner, or with -1
 * and the reason. */
MUST_USE int dial_open(const struct dial_to *to, const struct link_site *site,
                       void (*done)(void *arg, int fd, const struct err *why), void *arg,
                       struct dial **out, struct err *e);
void dial_close(struct dial **dp); /* NULL is fine */

/* Only the race, of known addresses: at least one; borrowed until race_close(). won: once, with a
 * connected non-blocking socket, which then belongs to the owner, or with -1 and why the last
 * address failed. */
struct race;
struct race *race_open(struct event_base *base, const struct addrinfo *addresses,
                       void (*won)(void *arg, int fd, const char *why), void *arg);
void race_close(struct race **rp); /* NULL is fine */

#endif
