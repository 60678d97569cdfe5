/* sshurl.h - "ssh://[user@]host[:port]/path/", in parts: each is fit to stand in a command line.
 *
 * What a remote shell could read as more than a path, and what ssh could read as an option, is
 * refused.
 */
#ifndef SERVER_SYNC_SSHURL_H
#define SERVER_SYNC_SSHURL_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct ssh_url {
    struct slice user; /* empty: none */
    struct slice host; /* an IPv6 address with its brackets */
    uint16_t port;     /* 0: as ssh has it */
    struct slice path; /* "/srv/tree/"; of "/~/tree/" "tree/", below the user's home */
};

/* The parts borrow from url. The sentence never shows what may be a password. */
MUST_USE int ssh_url_parse(struct slice url, struct ssh_url *out, struct err *e);

#endif
