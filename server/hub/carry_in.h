/* carry_in.h - the import of one revision: begun, its files taken one by one, then committed or
 * aborted.
 *
 * The files that have arrived are held by an upload session. The session outlives a client that is
 * killed, and the next try finds it here. It ends with carry_in_abort(), or it expires. Nothing is
 * visible before the commit, which is one batch.
 *
 * owns     carry_in_free() only frees the memory; the session stays
 * threads  the control connection's own; blocks
 * errors   E_INVALID, E_CORRUPT: the content does not match its description; E_DENIED: it may not
 *          be shown here; E_NOSPACE
 */
#ifndef SERVER_HUB_CARRY_IN_H
#define SERVER_HUB_CARRY_IN_H

#include "server/hub/carry.h"
#include "server/upload/session.h"

struct carry_in_ask { /* as the client sends it */
    struct slice type, id, rev, commit;
    const struct slice *names; /* further names by which clients know it, beside its id */
    size_t names_count;
    uint64_t seen_unix_s;
    struct slice info, tree;
    struct slice digests; /* of each file, in the listing's order: 64 hex digits, ' ', path, NUL */
    /* a revision that is closed at the Hub may be read here by everybody who may read the repo */
    bool open;
    bool pin; /* eviction must not touch it */
};

struct carry_in_file {
    uint32_t at; /* index in the listing */
    bool here;
    struct digest digest;
};

struct carry_group {     /* small files that have arrived and are written together */
    struct batch *batch; /* NULL: no file waits */
    struct session session;
    size_t files;
    uint64_t bytes;
};

struct carry_in {
    struct carry_in *next; /* of the same connection */
    unsigned number;
    struct repo_set *set; /* held: keeps repo alive */
    struct carry is;      /* the revision that is being imported */
    struct slice *names;  /* its id, and the other names */
    size_t names_count;
    bool open, pin;
    char id[UPLOAD_ID + 1]; /* of the session */
    struct slice tree_name; /* the session's tree */
    struct carry_in_file *file;
    size_t files, missing;
    uint64_t missing_bytes;
    struct carry_group group;
    /* the revision's name keeps its present commit, which was seen later than this one */
    bool kept_later;
};

/* Holds set. */
MUST_USE int carry_in_begin(const struct hub_deps *hub, struct repo_set *set, struct repo *r,
                            const struct carry_in_ask *ask, struct carry_in **out, struct err *e);
/* E_NOTFOUND: the revision has no such file. */
MUST_USE int carry_in_find(const struct carry_in *c, struct slice path, struct carry_in_file **out,
                           struct manifest_entry *entry, struct err *e);
/* Reads the bytes of a missing file from fd: exactly as many as its size. over(): the client has
 * disconnected. */
MUST_USE int carry_in_take(struct carry_in *c, struct carry_in_file *f,
                           const struct manifest_entry *entry, int fd,
                           bool (*over)(void *arg, int fd), void *arg, struct err *e);
/* Writes the files that still wait. Call it before other names of the same bytes. */
MUST_USE int carry_in_flush(struct carry_in *c, struct err *e);
/* As carry_in_take(), for a file whose bytes arrived under another name and were flushed. */
MUST_USE int carry_in_again(struct carry_in *c, struct carry_in_file *f, struct err *e);
MUST_USE int carry_in_commit(struct carry_in *c, struct err *e);
MUST_USE int carry_in_abort(struct carry_in *c, struct err *e);
void carry_in_free(struct carry_in **cp);

/* --- between this and carry_rows.c, which makes rows of it in a pull-through repo
 * --------------- */

/* The session as it is now. Always call session_free(). */
MUST_USE int carry_in_session(const struct carry_in *c, struct session *out, struct err *e);
/* Turns documents and files into objects and ends the session, in one batch. */
MUST_USE int carry_rows_commit(struct carry_in *c, struct err *e);

#endif
