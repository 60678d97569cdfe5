/* sshurl.h - parses "ssh://[user@]host[:port]/path/" into parts, each safe to put in a command
 * line.
 *
 * It refuses anything that a remote shell could read as more than a path, and anything that ssh
 * could read as an option.
 */
#ifndef SERVER_SYNC_SSHURL_H
#define SERVER_SYNC_SSHURL_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct ssh_url {
    struct slice user; /* empty: none */
    struct slice host; /* an IPv6 address with its brackets */
    uint16_t port;     /* 0: ssh's default */
    struct slice path; /* "/srv/tree/"; for "/~/tree/" it is "tree/", below the user's home */
};

/* The parts borrow from url. The sentence never contains a possible password. */
MUST_USE int ssh_url_parse(struct slice url, struct ssh_url *out, struct err *e);

#endif
