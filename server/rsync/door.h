/* door.h - the server for rsync clients: a socket, a thread that accepts, and a thread for each
 * of a limited number of sessions, of which one client may have a part.
 *
 * owns     all of it; door_close() ends every session and joins
 * threads  sessions have their own threads: reading rows and files blocks
 */
#ifndef SERVER_RSYNC_DOOR_H
#define SERVER_RSYNC_DOOR_H

#include "server/rsync/session.h"

struct rsync_conf {
    const char *address;
    uint32_t connections;
    uint32_t client_connections; /* 0: a quarter of them, and at least two */
    uint32_t max_steps;          /* of a session */
    uint32_t stall_ms;
    struct reader_rate_limit reader;
    const char *users; /* file of passwords, or NULL */
};

enum door_outcome {
    DOOR_SERVED,
    DOOR_ABSENT,  /* no such module, nothing published in it, no such path */
    DOOR_DENIED,  /* a wrong password, or a path without the right to it */
    DOOR_BUSY,    /* over a limit */
    DOOR_REFUSED, /* a request that is not supported */
    DOOR_BROKEN,  /* the client disconnected, fell silent, or sent invalid data */
    DOOR_STOPPED, /* by us: the server stops, or a file could not be read */
};
enum { DOOR_OUTCOMES = DOOR_STOPPED + 1 };
const char *door_outcome_name(enum door_outcome o);

struct door_visit {
    const struct sockaddr_storage *peer;
    struct session_end end;
    uint64_t took_ns;
    int rc;
    enum door_outcome outcome;
};

struct door_stats {
    uint64_t sessions[DOOR_OUTCOMES]; /* that have ended */
    uint64_t files, bytes, sent_bytes, waits, steps;
    uint32_t open;
};

struct door_site { /* outlives the door; calls come on the sessions' threads */
    struct store *store;
    struct gate *gate;
    enum module_kind (*find)(void *arg, struct slice name, struct module *out);
    void (*each)(void *arg, void (*tell)(void *to, const char *module), void *to);
    /* Once per session, also for one that was refused. */
    void (*ended)(void *arg, const struct door_visit *v);
    void *arg;
};

struct door;

/* Listens immediately; clients are accepted after door_start(). */
MUST_USE int door_open(const struct rsync_conf *conf, const struct door_site *site,
                       struct door **out, struct err *e);
void door_start(struct door *d);
const char *door_address(const struct door *d);
void door_stats(const struct door *d, struct door_stats *out); /* since it opened */
void door_close(struct door **dp);

#endif
