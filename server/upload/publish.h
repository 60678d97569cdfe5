/* publish.h - makes edits the next snapshot of a tree, under the conditions of a put: the only
 * place where a head moves.
 *
 * It reads the head, checks the conditions, builds the tree, and commits nodes, holder rows,
 * snapshot and head in one synced batch that requires the head it began with. If another publisher
 * was faster, it starts again. So a put without conditions never fails for that reason, and one
 * with If-Match finds that its root is gone.
 *
 * owns     nothing
 * threads  any; blocks
 * errors   as upload.h
 */
#ifndef SERVER_UPLOAD_PUBLISH_H
#define SERVER_UPLOAD_PUBLISH_H

#include "server/upload/session.h"

struct publish {
    struct store *store;
    const struct put *put;
    const struct tree_edit *edits;
    size_t count;
    bool file;    /* If-Match: * and the like refer to put->path, not to the tree */
    bool replace; /* the edits are the whole tree */
    const struct session *session; /* or NULL: must be open, and is marked as committed */
    uint64_t now_unix_s;
};

/* Answers 201 (200 when nothing changed), 409, 412; rc as upload.h. */
MUST_USE int publish_run(const struct publish *p, struct upload_reply *out, struct err *e);
/* Only checks the conditions, before a body is read: sets a status in *out when they do not hold
 * already. */
MUST_USE int publish_check(const struct publish *p, struct upload_reply *out, struct err *e);
/* The version that a put builds on, from its branch. E_NOTFOUND. */
MUST_USE int publish_base(struct store *s, const struct put *p, struct snap *out, struct err *e);
/* Adds to b that the tree holds the digest, so that the blob is not removed before the edit is
 * published. The collector releases what was never published. */
void publish_hold(const struct put *p, const struct digest *d, struct batch *b);

#endif
