/* dial.h - a connection to a host by its name: looked up on the pool, its addresses raced (race.h).
 *
 * owns     the socket until it is handed over; dial_close() at any time, in done() too; nothing comes after it
 * threads  the loop's; done() never runs inside dial_open. There is no deadline: the owner has one
 */
#ifndef SERVER_SYNC_RSYNC_DIAL_H
#define SERVER_SYNC_RSYNC_DIAL_H

#include "common/os/pool.h"

struct event_base;
struct dial;

enum { DIAL_HOST_MAX = 255 };

struct link_site {
    struct event_base *base;
    struct mailbox *box;
    struct pool *pool;
};

/* host: at most DIAL_HOST_MAX bytes, copied. done: once; a connected socket that does not block, which is the owner's from
 * then on, or -1 and why. */
struct dial *dial_open(const char *host, uint16_t port, const struct link_site *site,
                       void (*done)(void *arg, int fd, const char *why), void *arg);
void dial_close(struct dial **dp); /* NULL is fine */

#endif
