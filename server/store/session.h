/* session.h - what upload.c remembers of a session: its rows in TABLE_UPLOAD, and who is writing to it right now.
 *
 * A session row's value changes when it is committed and goes when it is aborted; every batch that touches its files
 * requires the value it began with, so nothing is added to a session that has ended. In memory stand the sessions that live,
 * with a count of their files and the paths being written: one writer a path, none during a commit.
 *
 * threads  any; lookups take the table's own lock, rows block
 */
#ifndef SERVER_STORE_SESSION_H
#define SERVER_STORE_SESSION_H

#include "common/base/list.h"
#include "common/os/lock.h"
#include "server/store/upload.h"

enum { SESSIONS_MAX = 4096 };

struct session {
    char id[UPLOAD_ID + 1];
    char repo[64];
    char name[256];
    uint64_t begun_unix_s;
    struct snap done; /* seq 0: not committed */
    struct buf row;   /* as it stands in the table */
};

struct session_file {
    bool sealed;
    uint64_t stage; /* not sealed: what has arrived durably */
    uint64_t bytes; /* durable, or the size */
    uint64_t total; /* not sealed: as announced; UINT64_MAX unknown */
    struct digest digest;
};

struct live; /* a session in memory */
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

void session_encode(const struct session *s, struct buf *out);
void session_key(struct buf *out, const char *id,
                 struct slice path); /* path.p == NULL: the session */
void session_file_encode(const struct session_file *f, struct buf *out);

/* E_NOTFOUND: none of that id in that tree. */
MUST_USE int session_load(struct store *s, const struct put *p, struct session *out, struct err *e);
void session_free(struct session *s);
MUST_USE int session_file_load(struct store *s, const char *id, struct slice path,
                               struct session_file *out, struct err *e);
/* Adds to b: the session still stands as it was read. */
void session_require(const struct session *s, struct batch *b);
/* Adds to b: while it lasts, the session holds the digest, so that nothing evicts it before the commit; and no more. */
void session_hold(const struct session *s, const struct digest *d, struct batch *b);
void session_unhold(const struct session *s, const struct digest *d, struct batch *b);
/* Every file of a session, in path order. */
MUST_USE int session_each_file(struct store *s, const char *id,
                               int (*each)(void *arg, struct slice path,
                                           const struct session_file *f),
                               void *arg, struct err *e);
/* All rows and stages of a session; then its place in memory. */
MUST_USE int session_drop(struct uploads *u, const char *id, struct err *e);

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
