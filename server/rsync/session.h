/* session.h - one rsync client, from its handshake to its goodbye, served from a snapshot: the
 * list and whole files, without block matching.
 *
 *   handshake -> module, password -> arguments -> compatibility flags -> filters, names -> list
 *   -> files (sender.h)
 *
 * The client's block sums are skipped: an answer of literals only is always right, and costs us
 * no more than reading the file.
 *
 * threads  one per session; blocks
 * source   sessions of the installed client and server
 */
#ifndef SERVER_RSYNC_SESSION_H
#define SERVER_RSYNC_SESSION_H

#include <stdatomic.h>
#include <sys/socket.h>

#include "server/gate/gate.h"
#include "server/rsync/listing.h"
#include "server/rsync/stream.h"

enum module_kind { MODULE_NONE, MODULE_OPEN, MODULE_LOCKED };

struct module {
    /* the tree that is the whole module; p == NULL: the trees are below their names */
    struct slice tree;
    bool passed_through; /* a pull-through repository: it never has a published snapshot */
};

enum { SESSION_MODULE_MAX = 63, SESSION_USER_MAX = 64 };

struct session_site { /* outlives all sessions; calls come on their threads */
    struct listings *listings;
    struct gate *gate;
    const char *users; /* file of passwords, or NULL */
    enum module_kind (*find)(void *arg, struct slice name, struct module *out);
    /* modules that everybody may list */
    void (*each)(void *arg, void (*tell)(void *to, const char *module), void *to);
    void *arg;
    uint32_t stall_ms;
    struct reader_rate_limit reader;
    uint64_t max_steps; /* of budget.h */
    const atomic_bool *stop;
};

struct session_end { /* for logs and counters */
    char module[SESSION_MODULE_MAX + 1];
    char user[SESSION_USER_MAX + 1];
    uint64_t files, bytes, sent_bytes, received_bytes, waits, steps;
};

struct session_peer {
    int fd; /* stays the caller's */
    const struct sockaddr_storage *address;
    /* Its token is known: false when that token already has `most` sessions. */
    bool (*is)(void *arg, uint64_t client, uint32_t *most);
    void *arg;
};

/* Runs until the client is served or gone. */
MUST_USE int session_run(const struct session_peer *peer, const struct session_site *site,
                         struct session_end *out, struct err *e);

#endif
