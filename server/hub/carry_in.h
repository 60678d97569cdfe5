/* carry_in.h - a revision that is being carried in: begun, its files taken one by one, then
 * committed or given up.
 *
 * What has come is held by an upload session: it outlives a client that is killed (the next try
 * finds it here), is given up by carry_in_abort(), and expires with the session. Nothing shows
 * before the commit, which is one batch.
 *
 * owns     carry_in_free() forgets it in memory alone
 * threads  the control connection's own; blocks
 * errors   E_INVALID, E_CORRUPT: what is carried is not what it says; E_DENIED: it may not be shown
 *          here; E_NOSPACE
 */
#ifndef SERVER_HUB_CARRY_IN_H
#define SERVER_HUB_CARRY_IN_H

#include "server/hub/carry.h"
#include "server/upload/session.h"

struct carry_in_ask { /* as the client says it */
    struct slice type, id, rev, commit;
    const struct slice *names; /* that clients know it by, beside its id */
    size_t names_count;
    uint64_t seen_unix_s;
    struct slice info, tree;
    struct slice digests; /* of each file, in the listing's order: 64 hex digits, ' ', path, NUL */
    bool open; /* what is closed at the Hub may be read here by whoever may read the repo */
    bool pin;  /* eviction leaves it alone */
};

struct carry_in_file {
    uint32_t at; /* of the listing */
    bool here;
    struct digest digest;
};

struct carry_group {     /* small files that have come and are written together */
    struct batch *batch; /* NULL: none waits */
    struct session session;
    size_t files;
    uint64_t bytes;
};

struct carry_in {
    struct carry_in *next; /* of one connection */
    unsigned number;
    struct repo_set *set; /* held: keeps repo alive */
    struct carry is;      /* what comes in */
    struct slice *names;  /* its id, and others */
    size_t names_count;
    bool open, pin;
    char id[UPLOAD_ID + 1]; /* of the session */
    struct slice tree_name; /* the session's */
    struct carry_in_file *file;
    size_t files, missing;
    uint64_t missing_bytes;
    struct carry_group group;
    bool kept_later; /* the revision's name stays at what was seen later than this */
};

/* Takes a hold of set. */
MUST_USE int carry_in_begin(const struct hub_deps *hub, struct repo_set *set, struct repo *r,
                            const struct carry_in_ask *ask, struct carry_in **out, struct err *e);
/* E_NOTFOUND: it has no such file. */
MUST_USE int carry_in_find(const struct carry_in *c, struct slice path, struct carry_in_file **out,
                           struct manifest_entry *entry, struct err *e);
/* The bytes of a file that is missing, read from fd: exactly as many as its size says. over(): the
 * client has left. */
MUST_USE int carry_in_take(struct carry_in *c, struct carry_in_file *f,
                           const struct manifest_entry *entry, int fd,
                           bool (*over)(void *arg, int fd), void *arg, struct err *e);
/* What has come is written, as far as it still waits: before other names of the same bytes. */
MUST_USE int carry_in_flush(struct carry_in *c, struct err *e);
/* carry_in_take() for a file whose bytes have come under another name, and were flushed. */
MUST_USE int carry_in_again(struct carry_in *c, struct carry_in_file *f, struct err *e);
MUST_USE int carry_in_commit(struct carry_in *c, struct err *e);
MUST_USE int carry_in_abort(struct carry_in *c, struct err *e);
void carry_in_free(struct carry_in **cp);

/* --- between it and carry_rows.c: what a pull-through repo has of it in the end --------------- */

/* The session as it stands. Always session_free(). */
MUST_USE int carry_in_session(const struct carry_in *c, struct session *out, struct err *e);
/* Words and files become objects, and the session ends, in one batch. */
MUST_USE int carry_rows_commit(struct carry_in *c, struct err *e);

#endif
