/* live.h - the upload sessions that live, in memory: how many files each has, and who writes to which right now.
 *
 * One writer a path, none during a commit. Who comes last has the path: a writer that stands in the way is asked to yield,
 * once, and is gone when its sink is closed.
 *
 * threads  any; takes its own lock, and calls yield() under it
 */
#ifndef SERVER_STORE_LIVE_H
#define SERVER_STORE_LIVE_H

#include "common/base/list.h"
#include "common/os/lock.h"
#include "server/store/upload.h"

enum { SESSIONS_MAX = 4096 };

struct live; /* one session */
struct writer {
    struct list node;
    const char *id;
    struct slice path;
    bool loose; /* of an offer: those are not among the sessions that live */
    bool fresh; /* counted as a file, but no row tells of it yet: taken back when it leaves so */
    bool yielding;
    void (*yield)(void *arg); /* may be NULL */
    void *yield_arg;
};
struct uploads {
    struct store *store;
    struct lock lock;
    struct live *live; /* by id */
    struct list writers;
    struct list joints; /* objects that come in parts (parts.h), the last one used in front */
    unsigned joints_count;
    int (*make_room)(void *arg, uint64_t need_bytes);
    void *make_room_arg;
};

/* stage_open(); a full disk is asked once to make room. */
struct stage;
MUST_USE int uploads_stage(struct uploads *u, uint64_t expect_bytes, bool named, struct stage **out,
                           struct err *e);
/* False: there are SESSIONS_MAX already. */
bool live_add(struct uploads *u, const char *id);
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
