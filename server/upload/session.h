/* session.h - the rows of an upload session in TABLE_UPLOAD.
 *
 * A session's row changes when it is committed and is removed when it is aborted. Every batch that
 * touches its files requires the value it began with, so nothing is added to a session that has
 * ended. live.h knows who is writing to it.
 *
 * owns     session_free() frees the row that a session has read
 * threads  any; blocks
 * errors   E_NOTFOUND; E_CHANGED from a commit: the session has ended
 */
#ifndef SERVER_UPLOAD_SESSION_H
#define SERVER_UPLOAD_SESSION_H

#include "server/upload/upload.h"

struct session {
    char id[UPLOAD_ID + 1];
    char repo[64];
    char name[256];
    /* For loose objects (upload_grant.h): no files, no commit of its own, not counted by live.h. */
    bool upload_grant;
    uint64_t begun_unix_s;
    struct snap done; /* seq 0: not committed */
    struct buf row;   /* its value in the table */
};

struct session_file {
    bool sealed;
    uint64_t stage; /* not sealed: the stage with the durable bytes */
    uint64_t bytes; /* durable, or the size */
    uint64_t total; /* not sealed: as announced; UINT64_MAX unknown */
    struct digest digest;
};

/* A new session of p's tree, not in the table yet. False: answered; or *rc. Always call
 * session_free(). */
MUST_USE bool session_new(const struct put *p, bool upload_grant, uint64_t now_unix_s,
                          struct session *s, struct upload_reply *out, int *rc, struct err *e);
/* Adds its row to b, as session_new() made it. */
void session_put(const struct session *s, struct batch *b);
/* Sets the address at which a client finds it: the put's own location, followed by the id. */
void session_locate(const struct session *s, const struct put *p, struct upload_reply *out);
/* Loads the row of an id. E_NOTFOUND: none, or of another tree. Always call session_free(). */
MUST_USE int session_load(struct store *store, const struct put *p, struct session *out,
                          struct err *e);
bool session_row_is_upload_grant(struct slice row);
void session_encode(const struct session *s, struct buf *out);

/* Loads the session that a put names. False: the tree has no such session, and the reply says so;
 * or *rc. Always call session_free(). */
MUST_USE bool session_begin(struct store *store, const struct put *p, struct session *s,
                            struct upload_reply *out, int *rc, struct err *e);
void session_free(struct session *s);
MUST_USE int session_file_load(struct store *s, const char *id, struct slice path,
                               struct session_file *out, struct err *e);
/* Add to b: the row of a file; its removal. */
void session_file_put(const struct session *s, struct slice path, const struct session_file *f,
                      struct batch *b);
void session_file_del(const struct session *s, struct slice path, struct batch *b);
/* As ingest_save(), for a stage of this session. */
struct ingest;
MUST_USE int session_save(const struct session *s, struct ingest *in, struct batch **bp,
                          enum durability how, struct err *e);
/* Adds to b: the session must be unchanged since it was read. */
void session_require(const struct session *s, struct batch *b);
/* Adds to b that the session's file at that path, or the session itself where path.p is NULL, holds
 * the digest while the session lasts, so that it is not evicted before the commit. session_unhold()
 * adds the opposite. */
void session_hold(const struct session *s, struct slice path, const struct digest *d,
                  struct batch *b);
void session_unhold(const struct session *s, struct slice path, const struct digest *d,
                    struct batch *b);
/* Calls each() for every file of a session, in path order. */
MUST_USE int session_each_file(struct store *s, const char *id,
                               int (*each)(void *arg, struct slice path,
                                           const struct session_file *f),
                               void *arg, struct err *e);
/* Removes all rows and stages of a session, returns what its files used of a client's share, and
 * removes it from memory. */
MUST_USE int session_drop(struct uploads *u, const char *id, struct err *e);

#endif
