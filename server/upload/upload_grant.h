/* upload_grant.h - loose objects: bytes brought to a tree before the commit that names them (LFS,
 * as clients of a Hub do it).
 *
 * An upload grant is a session without files (session.h): who knows its id may bring bytes by their
 * digest, and it holds them so that nothing evicts them, for UPLOAD_EXPIRE_S. Nobody can read them
 * by it. A tree "has" a digest when it holds it or an upload grant to it does: only then a commit
 * may name it without bringing the bytes, or whoever may write one tree could read all others by
 * their digests.
 *
 * threads  any; blocks
 */
#ifndef SERVER_UPLOAD_UPLOAD_GRANT_H
#define SERVER_UPLOAD_UPLOAD_GRANT_H

#include "server/upload/session.h"

/* PUT_UPLOAD_GRANT; PUT_OBJECTS_SHARE, which is answered with 200 {"failed": [{"sha256",
 * "error"}]}; PUT_OBJECT_KNOWN and PUT_PIECE_KNOWN: 200, or 404. */
MUST_USE int upload_grant_run(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                              struct upload_reply *out, struct err *e);
/* What a tree remembers of its upload grants: row NUL repo NUL tree NUL what -> the id of the last
 * one that brings `what`, a digest in hex or UPLOAD_GRANT_PIECES for pieces of files. The upload
 * grant may have ended. */
#define UPLOAD_GRANT_PIECES SLICE("xet") /* as rows have it */
void upload_grant_remember(const struct session *s, struct slice what, struct batch *b);
/* Adds to b, when it is still this one. */
void upload_grant_forget(struct store *store, const struct session *s, struct slice what,
                         struct batch *b);
/* p's tree, and with half of its life before it. E_NOTFOUND. Always session_free(). */
MUST_USE int upload_grant_recall(struct store *store, const struct put *p, struct slice what,
                                 uint64_t now_unix_s, struct session *out, struct err *e);
/* The upload grant that a put names. False: answered with 404; or *rc. Always session_free(). */
MUST_USE bool upload_grant_begin(struct store *s, const struct put *p, struct session *out,
                                 struct upload_reply *reply, int *rc, struct err *e);
/* upload grants: ids of the tree's that hold it, 64 at most, one behind the other, UPLOAD_ID bytes
 * each; may be NULL. */
MUST_USE int upload_grant_tree_has(struct store *s, const struct put *p, const struct digest *d,
                                   bool *yes, struct buf *upload_grants, struct err *e);

/* A version of the tree of that name holds it. */
MUST_USE int upload_grant_tree_holds(struct store *s, struct slice repo, struct slice name,
                                     const struct digest *d, bool *yes, struct err *e);

/* A loose object that is whole, and what the tree remembers of it: which upload grant brought it,
 * until a version names it. The upload grant has one file row, UPLOAD_GRANT_FILE, and holds the
 * digest while it lasts. Whoever may publish to the tree finds the object by
 * staged_object_key(). */
#define UPLOAD_GRANT_FILE                                                                          \
    SLICE(                                                                                         \
        "append") /* the upload grant's one file, as rows have it, and its writer's path (live.h) */
/* Adds to b: it is whole, and s has it. */
void upload_grant_staged_object(const struct session *s, const struct digest *d,
                                uint64_t size_bytes, struct batch *b);
/* The row in TABLE_UPLOAD that has the id of the upload grant that brought a digest to a tree: of
 * use as long as that holds it. */
void staged_object_key(struct buf *out, struct slice repo, struct slice name,
                       const struct digest *d);
/* Adds to b, with the rest of an upload grant that ends: nothing tells of it any more. Blocks. */
void upload_grant_forget_staged_object(struct store *store, const struct session *s,
                                       const struct digest *d, struct batch *b);

#endif
