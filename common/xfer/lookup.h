/* lookup.h - addresses of a host's name, found by getaddrinfo() on threads of its own.
 *
 * owns     a lookup that was cancelled ends by itself; lookups_close() waits for those that run
 * threads  all on the loop's; done() comes from the loop, never inside lookup_start()
 */
#ifndef COMMON_XFER_LOOKUP_H
#define COMMON_XFER_LOOKUP_H

#include <netdb.h>

#include "common/base/slice.h"

struct event_base;
struct lookup;
struct lookups;

struct lookups *lookups_open(struct event_base *base);
void lookups_close(struct lookups **lp); /* NULL is fine; no done() comes any more */

/* done: once, unless it was cancelled; found == NULL: the name does not resolve. *found is gone when done() returns. */
struct lookup *lookup_start(struct lookups *ls, struct slice host, uint16_t port,
                            void (*done)(void *arg, const struct addrinfo *found), void *arg);
void lookup_cancel(struct lookup **lp); /* NULL is fine */

#endif
