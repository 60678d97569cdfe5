/* session.h - one rsync client, served from a snapshot: list and whole files, never a search for blocks.
 *
 * The client's block sums are read past: an answer of literals alone is always right, and costs us no more than reading the file.
 *
 * threads  one a session; blocks
 * source   research/sync 3; sessions of the installed client and server
 */
#ifndef SERVER_RSYNC_SESSION_H
#define SERVER_RSYNC_SESSION_H

#include <stdatomic.h>

#include "server/rsync/listing.h"
#include "server/rsync/welcome.h"

struct session_site { /* outlives the session */
    struct listings *listings;
    struct welcome_site welcome;
    uint32_t stall_ms;
    const atomic_bool *stop;
};

struct session_end { /* for logs and counters */
    char module[WELCOME_MODULE_MAX + 1];
    char user[WELCOME_USER_MAX + 1];
    uint64_t files, bytes, sent_bytes, received_bytes, waits;
};

/* Until the client is served or lost. The fd stays the caller's. */
MUST_USE int session_run(int fd, const struct sockaddr_storage *peer,
                         const struct session_site *site, struct session_end *out, struct err *e);

#endif
