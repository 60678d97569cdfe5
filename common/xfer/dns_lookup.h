/* dns_lookup.h - the addresses of a host's name, found by getaddrinfo() on a thread of its own.
 *
 * getaddrinfo() takes as long as the system's name servers do, and nothing ends it. A lookup that
 * is cancelled leaves its thread behind: nobody waits for it, the end of the program neither.
 *
 * threads  all on the message queue's loop; done() comes from there, never inside
 *          dns_lookup_start()
 */
#ifndef COMMON_XFER_DNS_LOOKUP_H
#define COMMON_XFER_DNS_LOOKUP_H

#include <netdb.h>

#include "common/base/slice.h"
#include "common/os/message_queue.h"

enum { DNS_LOOKUP_HOST_MAX = 255 };

struct dns_lookup;

/* done: once, unless it was cancelled. *found is the callee's to free, by freeaddrinfo(); NULL: the
 * name does not resolve, and why. `box` may be closed once no lookup of it runs that was not
 * cancelled. `host` has at most DNS_LOOKUP_HOST_MAX bytes. */
struct dns_lookup *
dns_lookup_start(struct message_queue *box, struct slice host, uint16_t port,
                 void (*done)(void *arg, struct addrinfo *found, const char *why), void *arg);
void dns_lookup_cancel(struct dns_lookup **lp); /* NULL is fine */

#endif
