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
    struct reader_rate_limit reader;
    uint64_t max_steps; /* of budget.h */
    const atomic_bool *stop;
};

struct session_end { /* for logs and counters */
    char module[WELCOME_MODULE_MAX + 1];
    char user[WELCOME_USER_MAX + 1];
    uint64_t files, bytes, sent_bytes, received_bytes, waits, steps;
};

struct session_peer {
    int fd; /* stays the caller's */
    const struct sockaddr_storage *address;
    /* Its token is known: false when that has all the sessions that it may have, `most`. */
    bool (*is)(void *arg, uint64_t client, uint32_t *most);
    void *arg;
};

/* Until the client is served or lost. */
MUST_USE int session_run(const struct session_peer *peer, const struct session_site *site,
                         struct session_end *out, struct err *e);

#endif
