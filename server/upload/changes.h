/* changes.h - edits of a tree that are gathered while a request's body comes, then published as one
 * version.
 *
 * Files that come with their bytes become blobs immediately; objects were uploaded before
 * (upload_grant.h). Nothing is visible before changes_commit(). The commit applies all edits, to
 * the tree as it is then or, with a parent, only to that state.
 *
 * owns     changes_close() frees it
 * threads  all block: pool threads, one call at a time
 * errors   as upload.h: a client's error is a status in the reply; the changes must then not be
 *          used any more
 */
#ifndef SERVER_UPLOAD_CHANGES_H
#define SERVER_UPLOAD_CHANGES_H

#include "server/upload/upload.h"

struct changes;
struct changes *changes_open(struct uploads *u, const struct put *p); /* copies what it needs */
const struct put *changes_put(const struct changes *c); /* the put, for the reader of the body */
/* The tree is created if it does not exist. */
void changes_make(struct changes *c);
/* Does the present tree have a file of that path? */
MUST_USE int changes_see(struct changes *c, struct slice path, bool *yes, struct err *e);
/* changes_find(): the digest that has this name, as alias_find(). changes_called(): records that
 * those bytes have this name. */
MUST_USE int changes_find(struct changes *c, const struct called *name, struct digest *out,
                          bool *known, struct err *e);
MUST_USE int changes_called(struct changes *c, const struct sha512 *name, const struct digest *d,
                            struct err *e);
/* The first hex digits of the root that the tree must have, at least 16. */
void changes_parent(struct changes *c, struct slice hex, struct upload_reply *out);
/* The title and message of the version; its author is in the put. */
void changes_note(struct changes *c, struct slice title, struct slice message,
                  struct upload_reply *out);
MUST_USE int changes_file(struct changes *c, struct slice path, struct slice bytes,
                          struct upload_reply *out, struct err *e);
/* size_bytes: UINT64_MAX for the size of the stored object. The tree, or an upload grant to it,
 * must have the object. */
MUST_USE int changes_object(struct changes *c, struct slice path, const struct digest *d,
                            uint64_t size_bytes, struct upload_reply *out, struct err *e);
/* Removes a file or, with a '/' at the end, all below it. A missing path is answered with 404, at
 * the commit. */
MUST_USE int changes_remove(struct changes *c, struct slice path, struct upload_reply *out,
                            struct err *e);
/* Removes all files below the folder ("a/") that `which` selects, in the tree as the commit finds
 * it; there may be none. At most four such calls. */
void changes_remove_where(struct changes *c, struct slice folder,
                          bool (*which)(const struct entry *en, const struct digest *d),
                          const struct digest *d);
/* 201, 200 when nothing changed, 404, 409, 412. */
MUST_USE int changes_commit(struct changes *c, uint64_t now_unix_s, struct upload_reply *out,
                            struct err *e);
void changes_close(struct changes **cp); /* NULL is fine */

#endif
