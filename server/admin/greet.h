/* greet.h - is a peer there that speaks first: an rsync daemon, an sshd. Its first word is all that is asked of it.
 *
 * owns     copies its URL; greet_close() at any time, also in done()
 * threads  the loop's; done() never runs inside greet_open
 * errors   E_NETWORK, E_TIMEOUT, E_DENIED as link.h has them; E_PROTOCOL for one that says something else
 */
#ifndef SERVER_ADMIN_GREET_H
#define SERVER_ADMIN_GREET_H

#include "server/fetch/origin.h"
#include "server/sync/rsync/link.h"

struct greet;

/* Of an origin whose URL begins with rsync://, rsyncs:// or ssh://. done: once. */
MUST_USE int greet_open(const struct origin_settings *o, const struct link_site *site,
                        void (*done)(void *arg, int rc, const struct err *why), void *arg,
                        struct greet **out, struct err *e);
void greet_close(struct greet **gp); /* NULL is fine */

bool greet_speaks(const char *url);

#endif
