/* live.h - the upload sessions that live, in memory: how many files each has, and who writes to which right now.
 *
 * One writer a path, none during a commit.
 *
 * threads  any; takes its own lock
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
    bool fresh; /* counted as a file, but no row tells of it yet: taken back when it leaves so */
};
struct uploads {
    struct store *store;
    struct lock lock;
    struct live *live; /* by id */
    struct list writers;
    int (*make_room)(void *arg, uint64_t need_bytes);
    void *make_room_arg;
};

/* False: there are SESSIONS_MAX already. */
bool live_add(struct uploads *u, const char *id);
void live_remove(struct uploads *u, const char *id);
/* NULL, or why this path may not be written now. new_file: counted against UPLOAD_FILES_MAX (then *full). */
const char *live_enter(struct uploads *u, struct writer *w, bool new_file, bool *full);
void live_leave(struct uploads *u, struct writer *w);
/* False: something is being written, or another commit is under way. */
bool live_begin_commit(struct uploads *u, const char *id);
void live_end_commit(struct uploads *u, const char *id);
size_t live_files(struct uploads *u, const char *id);

#endif
