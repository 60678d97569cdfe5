/* dns_lookup.h - finds the addresses of a host's name by getaddrinfo() on its own thread.
 *
 * getaddrinfo() takes as long as the system's name servers do, and cannot be interrupted. A
 * cancelled lookup leaves its thread running: nothing waits for it, not even the end of the
 * program.
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

/* done: once, unless it was cancelled. The callee frees *found with freeaddrinfo(); NULL: the
 * name does not resolve, and why. `box` may be closed once all its uncancelled lookups have
 * ended. `host` has at most DNS_LOOKUP_HOST_MAX bytes. */
struct dns_lookup *
dns_lookup_start(struct message_queue *box, struct slice host, uint16_t port,
                 void (*done)(void *arg, struct addrinfo *found, const char *why), void *arg);
void dns_lookup_cancel(struct dns_lookup **lp); /* NULL is fine */

#endif
