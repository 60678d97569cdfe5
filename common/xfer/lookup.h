/* lookup.h - the addresses of a host's name, found by getaddrinfo() on a thread of its own.
 *
 * getaddrinfo() takes as long as the system's name servers do, and nothing ends it. A lookup that
 * is cancelled leaves its thread behind: nobody waits for it, the end of the program neither.
 *
 * threads  all on the mailbox's loop; done() comes from there, never inside lookup_start()
 */
#ifndef COMMON_XFER_LOOKUP_H
#define COMMON_XFER_LOOKUP_H

#include <netdb.h>

#include "common/base/slice.h"
#include "common/os/mailbox.h"

enum { LOOKUP_HOST_MAX = 255 };

struct lookup;

/* done: once, unless it was cancelled. *found is the callee's to free, by freeaddrinfo(); NULL: the
 * name does not resolve, and why. `box` may be closed once no lookup of it runs that was not
 * cancelled. `host` has at most LOOKUP_HOST_MAX bytes. */
struct lookup *lookup_start(struct mailbox *box, struct slice host, uint16_t port,
                            void (*done)(void *arg, struct addrinfo *found, const char *why),
                            void *arg);
void lookup_cancel(struct lookup **lp); /* NULL is fine */

#endif
