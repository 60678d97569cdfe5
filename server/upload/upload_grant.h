/* upload_grant.h - loose objects: bytes uploaded to a tree before the commit that names them (LFS,
 * as clients of a Hub use it).
 *
 * An upload grant is a session without files (session.h). A client that knows its id may upload
 * bytes by their digest. The grant holds them against eviction for UPLOAD_EXPIRE_S, but gives no
 * right to read them. A tree "has" a digest when the tree or an upload grant to it holds the
 * digest. Only then may a commit name it without sending the bytes: otherwise a client that may
 * write one tree could read all others by their digests.
 *
 * owns     nothing
 * threads  any; blocks
 * errors   as upload.h
 */
#ifndef SERVER_UPLOAD_UPLOAD_GRANT_H
#define SERVER_UPLOAD_UPLOAD_GRANT_H

#include "server/upload/session.h"

/* PUT_UPLOAD_GRANT; PUT_OBJECTS_SHARE, which is answered with 200 {"failed": [{"sha256",
 * "error"}]}; PUT_OBJECT_KNOWN and PUT_PIECE_KNOWN: 200, or 404. */
MUST_USE int upload_grant_run(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                              struct upload_reply *out, struct err *e);
/* What a tree remembers of its upload grants: row NUL repo NUL tree NUL what -> the id of the
 * latest grant for `what`, a digest in hex or UPLOAD_GRANT_PIECES for pieces of files. That grant
 * may have ended. */
#define UPLOAD_GRANT_PIECES SLICE("xet") /* as rows have it */
void upload_grant_remember(const struct session *s, struct slice what, struct batch *b);
/* Adds the removal to b, if the row still names this grant. */
void upload_grant_forget(struct store *store, const struct session *s, struct slice what,
                         struct batch *b);
/* Finds the grant of p's tree that has half of its life left. E_NOTFOUND. Always call
 * session_free(). */
MUST_USE int upload_grant_recall(struct store *store, const struct put *p, struct slice what,
                                 uint64_t now_unix_s, struct session *out, struct err *e);
/* Loads the upload grant that a put names. False: answered with 404; or *rc. Always call
 * session_free(). */
MUST_USE bool upload_grant_begin(struct store *s, const struct put *p, struct session *out,
                                 struct upload_reply *reply, int *rc, struct err *e);
/* upload_grants: the ids of the tree's grants that hold the digest, 64 at most, UPLOAD_ID bytes
 * each; may be NULL. */
MUST_USE int upload_grant_tree_has(struct store *s, const struct put *p, const struct digest *d,
                                   bool *yes, struct buf *upload_grants, struct err *e);

/* Does a version of the tree of that name hold the digest? */
MUST_USE int upload_grant_tree_holds(struct store *s, struct slice repo, struct slice name,
                                     const struct digest *d, bool *yes, struct err *e);

/* A loose object that is complete: until a version names it, the tree remembers which upload grant
 * has it. The grant has one file row, UPLOAD_GRANT_FILE, and holds the digest while it lasts.
 * Clients that may publish to the tree find the object by staged_object_key(). */
#define UPLOAD_GRANT_FILE                                                                          \
    SLICE("append") /* the grant's one file, in its rows and as its writer's path (live.h) */
/* Adds to b: the object is complete, and s has it. */
void upload_grant_staged_object(const struct session *s, const struct digest *d,
                                uint64_t size_bytes, struct batch *b);
/* The row in TABLE_UPLOAD with the id of the upload grant that brought a digest to a tree. It is
 * valid as long as the grant holds the digest. */
void staged_object_key(struct buf *out, struct slice repo, struct slice name,
                       const struct digest *d);
/* Adds to b, when an upload grant ends: the row that names it is removed. Blocks. */
void upload_grant_forget_staged_object(struct store *store, const struct session *s,
                                       const struct digest *d, struct batch *b);

#endif
