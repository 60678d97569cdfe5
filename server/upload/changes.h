/* changes.h - what is to become of a tree, gathered while a request's body comes, then published as
 * one version.
 *
 * Files that come with their bytes are blobs at once; objects were brought before (upload_grant.h).
 * Nothing shows before changes_commit(): all of it, on the tree as it then is, or, with a parent,
 * on that state alone.
 *
 * threads  all block: pool threads, one call at a time
 * errors   as upload.h: what the client did is a status in the reply, and the changes are then of
 *          no use
 */
#ifndef SERVER_UPLOAD_CHANGES_H
#define SERVER_UPLOAD_CHANGES_H

#include "server/upload/upload.h"

struct changes;
struct changes *changes_open(struct uploads *u, const struct put *p); /* copies what it needs */
const struct put *
changes_put(const struct changes *c); /* what was asked for, for who reads the body */
/* The tree is made, when it is not there. */
void changes_make(struct changes *c);
/* There is a file of that path in the tree as it stands. */
MUST_USE int changes_see(struct changes *c, struct slice path, bool *yes, struct err *e);
/* The digest of what is called so, as alias_find(); and: those bytes are called so. */
MUST_USE int changes_find(struct changes *c, const struct called *name, struct digest *out,
                          bool *known, struct err *e);
MUST_USE int changes_called(struct changes *c, const struct sha512 *name, const struct digest *d,
                            struct err *e);
/* The first hex digits of the root that the tree must have, at least 16 of them. */
void changes_parent(struct changes *c, struct slice hex, struct upload_reply *out);
/* What is said of the version; the put says who. */
void changes_note(struct changes *c, struct slice title, struct slice message,
                  struct upload_reply *out);
MUST_USE int changes_file(struct changes *c, struct slice path, struct slice bytes,
                          struct upload_reply *out, struct err *e);
/* size_bytes: UINT64_MAX for the size that the stored object has. The tree, or an upload grant to
 * it, must have the object. */
MUST_USE int changes_object(struct changes *c, struct slice path, const struct digest *d,
                            uint64_t size_bytes, struct upload_reply *out, struct err *e);
/* A file, or with a '/' at its end all that lies below. What is not there is answered with 404, at
 * the commit. */
MUST_USE int changes_remove(struct changes *c, struct slice path, struct upload_reply *out,
                            struct err *e);
/* All below the folder ("a/") of which `which` holds, in the tree as the commit finds it; there may
 * be none. One of them. */
void changes_remove_where(struct changes *c, struct slice folder,
                          bool (*which)(const struct entry *en, const struct digest *d),
                          const struct digest *d);
/* 201, 200 when nothing changed, 404, 409, 412. */
MUST_USE int changes_commit(struct changes *c, uint64_t now_unix_s, struct upload_reply *out,
                            struct err *e);
void changes_close(struct changes **cp); /* NULL is fine */

#endif
