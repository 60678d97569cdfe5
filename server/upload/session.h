/* session.h - what is remembered of an upload session: its rows in TABLE_UPLOAD.
 *
 * A session row's value changes when it is committed and goes when it is aborted; every batch that
 * touches its files requires the value it began with, so nothing is added to a session that has
 * ended. Who writes to it right now: live.h.
 *
 * threads  any; blocks
 */
#ifndef SERVER_UPLOAD_SESSION_H
#define SERVER_UPLOAD_SESSION_H

#include "server/upload/upload.h"

struct session {
    char id[UPLOAD_ID + 1];
    char repo[64];
    char name[256];
    /* of loose objects (upload_grant.h): no files, no commit of its own, not counted by live.h */
    bool upload_grant;
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

/* A new one of p's tree, not in the table yet. False: answered; or *rc. Always to be freed. */
MUST_USE bool session_new(const struct put *p, bool upload_grant, uint64_t now_unix_s,
                          struct session *s, struct upload_reply *out, int *rc, struct err *e);
/* Adds to b: its row, as it was made. */
void session_put(const struct session *s, struct batch *b);
/* Where a client finds it: behind the put's own location. */
void session_locate(const struct session *s, const struct put *p, struct upload_reply *out);
/* The row of an id. E_NOTFOUND: none, or of another tree. Always to be freed. */
MUST_USE int session_load(struct store *store, const struct put *p, struct session *out,
                          struct err *e);
bool session_row_is_upload_grant(struct slice row);
void session_encode(const struct session *s, struct buf *out);

/* The session that a put names. False: none of that id in that tree, the reply says so; or *rc.
 * Always to be freed. */
MUST_USE bool session_begin(struct store *store, const struct put *p, struct session *s,
                            struct upload_reply *out, int *rc, struct err *e);
void session_free(struct session *s);
MUST_USE int session_file_load(struct store *s, const char *id, struct slice path,
                               struct session_file *out, struct err *e);
/* Each adds to b: the row of a file; that it goes. */
void session_file_put(const struct session *s, struct slice path, const struct session_file *f,
                      struct batch *b);
void session_file_del(const struct session *s, struct slice path, struct batch *b);
/* ingest_save(), as a stage of this session. */
struct ingest;
MUST_USE int session_save(const struct session *s, struct ingest *in, struct batch **bp,
                          enum durability how, struct err *e);
/* Adds to b: the session still stands as it was read. */
void session_require(const struct session *s, struct batch *b);
/* Adds to b: while it lasts, the session's file at that path holds the digest, or the session
 * itself where path.p is NULL, so that nothing evicts it before the commit; and no more. */
void session_hold(const struct session *s, struct slice path, const struct digest *d,
                  struct batch *b);
void session_unhold(const struct session *s, struct slice path, const struct digest *d,
                    struct batch *b);
/* Every file of a session, in path order. */
MUST_USE int session_each_file(struct store *s, const char *id,
                               int (*each)(void *arg, struct slice path,
                                           const struct session_file *f),
                               void *arg, struct err *e);
/* All rows and stages of a session, and what its files alone held of a client's share; then its
 * place in memory. */
MUST_USE int session_drop(struct uploads *u, const char *id, struct err *e);

#endif
