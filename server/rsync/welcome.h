/* welcome.h - the lines before the frames: versions, the module, a password where it wants one, then the client's arguments.
 *
 * A module that anybody may read is open; one that anonymous may not asks for a password where there are users, and is unknown
 * where there are none. Whoever proves a password is who the token of that name says. Both fall under the limits of the gate.
 *
 * owns     who it is, its pace, its arguments; welcome_fini()
 * threads  its session's own; blocks
 * errors   E_CANCELLED with `listed`: the modules were told, that was all; E_NOTFOUND, E_DENIED, E_BUSY: as the client was told; those of the stream
 * source   research/sync 1.1 (1, 2); sessions of the installed client
 */
#ifndef SERVER_RSYNC_WELCOME_H
#define SERVER_RSYNC_WELCOME_H

#include <sys/socket.h>

#include "server/gate/gate.h"
#include "server/rsync/stream.h"

enum module_kind { MODULE_NONE, MODULE_OPEN, MODULE_LOCKED };

struct module {
    struct slice
        tree; /* the one that is all of it; or p == NULL, then trees stand below their names */
    bool passed_through; /* file by file from its origin: no snapshot of it is ever published */
};

struct welcome_site { /* outlives all sessions; calls come on their threads */
    struct gate *gate;
    const char *users; /* file of passwords, or NULL */
    enum module_kind (*find)(void *arg, struct slice name, struct module *out);
    void (*each)(void *arg, void (*tell)(void *to, const char *module), void *to); /* open ones */
    void *arg;
};

enum { WELCOME_MODULE_MAX = 63, WELCOME_USER_MAX = 64 };

struct welcome {
    unsigned version; /* agreed */
    bool listed;
    char module[WELCOME_MODULE_MAX + 1];
    struct module is;
    enum module_kind kind;
    struct principal who;
    struct pace *pace; /* or NULL */
    struct buf arguments;
};

void welcome_init(struct welcome *w);
/* Up to the module's OK, which is not said yet. */
MUST_USE int welcome_client(struct welcome *w, struct stream *s, const struct welcome_site *site,
                            const struct sockaddr_storage *peer, struct err *e);
MUST_USE int welcome_in(struct welcome *w, struct stream *s, struct err *e); /* OK, arguments */
/* May this one read all that is below `path` of the module? */
bool welcome_reads(const struct welcome *w, struct slice path);
void welcome_fini(struct welcome *w, const struct welcome_site *site);

/* A line of the client's language for errors, before there are frames. */
int welcome_refuse(struct stream *s, const char *text, struct err *e);

#endif
