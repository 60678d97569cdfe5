/* dial.h - a connection to a host by its name: looked up (lookup.h), its addresses raced (race.h); or through a proxy, whose name
 * is then the one that is looked up (proxy.h).
 *
 * owns     the socket until it is handed over; dial_close() at any time, in done() too; nothing comes after it
 * threads  the loop's; done() never runs inside dial_open. There is no deadline: the owner has one
 */
#ifndef SERVER_SYNC_RSYNC_DIAL_H
#define SERVER_SYNC_RSYNC_DIAL_H

#include "common/os/mailbox.h"
#include "server/sync/proxy.h"

struct event_base;
struct dial;

struct link_site {
    struct event_base *base;
    struct mailbox *box;
};

struct dial_to {       /* copied */
    struct slice host; /* at most DIAL_HOST_MAX bytes, and one at least */
    uint16_t port;
    const struct proxy *proxy; /* or NULL: straight */
};

/* done: once; a connected socket that does not block, which is the owner's from then on, or -1 and why. */
MUST_USE int dial_open(const struct dial_to *to, const struct link_site *site,
                       void (*done)(void *arg, int fd, const struct err *why), void *arg,
                       struct dial **out, struct err *e);
void dial_close(struct dial **dp); /* NULL is fine */

#endif
