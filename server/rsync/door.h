/* door.h - where rsync clients come in: a socket, a thread that accepts, a thread for each of a bounded number of sessions.
 *
 * owns     all of it; door_close() ends every session and joins
 * threads  sessions of their own: reading rows and files blocks
 */
#ifndef SERVER_RSYNC_DOOR_H
#define SERVER_RSYNC_DOOR_H

#include "server/rsync/session.h"

struct rsync_conf {
    const char *address;
    uint32_t connections;
    uint32_t stall_ms;
};

struct door_modules { /* asked by sessions, on their threads */
    bool (*readable)(void *arg, struct slice module, struct slice *tree); /* as in session.h */
    void (*each)(void *arg, void (*tell)(void *to, const char *module), void *to);
    void *arg;
};

struct door;

/* Listens at once; door_start() lets clients in. */
MUST_USE int door_open(const struct rsync_conf *conf, struct store *s, const struct door_modules *m,
                       struct door **out, struct err *e);
void door_start(struct door *d);
const char *door_address(const struct door *d);
uint64_t door_sessions(struct door *d); /* so far */
void door_close(struct door **dp);

#endif
