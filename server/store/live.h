/* live.h - the upload sessions that live, in memory: how many files each has, who writes to which right now, and how many sessions
 * and bytes each client has in those that it began since the start and has not finished.
 *
 * Sessions of files end with their commit; an offer (offer.h) is finished when what it was opened for has come, an append when
 * it is whole. Finished ones give back what they had of their client's share, as do those that expire.
 *
 * One writer a path, none during a commit. Who comes last has the path: a writer that stands in the way is asked to yield,
 * once, and is gone when its sink is closed.
 *
 * threads  any; takes its own lock, and calls yield() under it
 */
#ifndef SERVER_STORE_LIVE_H
#define SERVER_STORE_LIVE_H

#include <stdatomic.h>

#include "common/base/list.h"
#include "common/os/lock.h"
#include "server/store/upload.h"

enum { SESSIONS_MAX = 4096, CLIENT_SESSIONS = 256 };

struct live; /* one session */
struct writer {
    struct list node;
    const char *id;
    struct slice path;
    bool loose; /* of an offer: finished, or of before the start, it is not among those that live */
    bool fresh; /* counted as a file, but no row tells of it yet: taken back when it leaves so */
    bool yielding;
    void (*yield)(void *arg); /* may be NULL */
    void *yield_arg;
};
struct uploads {
    struct store *store;
    struct lock lock;
    struct live *live;          /* by id */
    struct client_use *clients; /* that have sessions */
    struct list writers;
    struct list joints; /* objects that come in parts (parts.h), the last one used in front */
    unsigned joints_count;
    int (*make_room)(void *arg, uint64_t need_bytes);
    void *make_room_arg;
    _Atomic uint32_t client_sessions; /* that one client may have */
    _Atomic uint64_t client_bytes;    /* in them; 0: a quarter of the quota */
};

#define NO_SESSION ""
/* stage_open(); a full disk is asked once to make room. */
struct stage;
MUST_USE int uploads_stage(struct uploads *u, uint64_t expect_bytes, bool named, struct stage **out,
                           struct err *e);
/* stage_write(), likewise. Space is taken as bytes come: an announced length takes none, it only must not exceed the quota. id: the
 * session whose client answers for the bytes; one that does not live counts for nobody. E_NOSPACE: also when it has its share. */
MUST_USE int uploads_write(struct uploads *u, const char *id, struct stage *st, const void *p,
                           size_t n, uint64_t off, struct err *e);
/* Bytes that uploads_write() counted are gone, or are in a finished object. */
void live_return(struct uploads *u, const char *id, uint64_t bytes);
MUST_USE int uploads_resume(struct uploads *u, uint64_t id, uint64_t expect_bytes,
                            struct stage **out, struct err *e);
/* awaited: of an offer, the objects that will finish it; 0: it has files. client 0: the program's own, it has no share. False:
 * answered with 429, this client has as many as one may have, or with 503, all have. */
MUST_USE bool live_admit(struct uploads *u, const char *id, uint64_t client, size_t awaited,
                         struct upload_reply *out);
/* One of those objects has come. */
void live_came(struct uploads *u, const char *id);
void live_remove(struct uploads *u, const char *id);
/* 0; E_BUSY: another request writes this path, and was asked to yield; E_CHANGED: *why it may not be written. */
MUST_USE int live_enter(struct uploads *u, struct writer *w, const char **why);
/* The writer's path is a file that the session did not have. False: it has UPLOAD_FILES_MAX. */
MUST_USE bool live_count(struct uploads *u, struct writer *w);
/* True: somebody writes this path, and was asked to yield. */
bool live_disturb(struct uploads *u, const char *id, struct slice path);
void live_leave(struct uploads *u, struct writer *w);
/* False: something is being written, or another commit is under way. */
bool live_begin_commit(struct uploads *u, const char *id);
void live_end_commit(struct uploads *u, const char *id);
size_t live_files(struct uploads *u, const char *id);

#endif
