/* publish.h - edits become the next snapshot of a tree, under the conditions of a put: the one
 * place where a head moves.
 *
 * Reads the head, judges the conditions, builds the tree, and commits nodes, holder rows, snapshot
 * and head in one synced batch that requires the head it began with. When another publisher was
 * faster it begins anew, so that a put without conditions never fails for that, and one with
 * If-Match finds its root gone.
 *
 * threads  any; blocks
 */
#ifndef SERVER_UPLOAD_PUBLISH_H
#define SERVER_UPLOAD_PUBLISH_H

#include "server/upload/session.h"

struct publish {
    struct store *store;
    const struct put *put;
    const struct tree_edit *edits;
    size_t count;
    bool file;    /* If-Match: * and the like speak of put->path, not of the tree */
    bool replace; /* the edits are the whole tree */
    const struct session *session; /* or NULL: required, and marked as committed */
    uint64_t now_unix_s;
};

/* Answers 201 (200 when nothing changed), 409, 412; rc as upload.h. */
MUST_USE int publish_run(const struct publish *p, struct upload_reply *out, struct err *e);
/* The conditions alone, before a body is taken in: a status in *out when they do not hold
 * already. */
MUST_USE int publish_check(const struct publish *p, struct upload_reply *out, struct err *e);
/* The version that a put builds on: its branch's. E_NOTFOUND. */
MUST_USE int publish_base(struct store *s, const struct put *p, struct snap *out, struct err *e);
/* Adds to b: the tree holds the digest, so that nothing takes the blob from under an edit. The
 * collector lets go of what was never published. */
void publish_hold(const struct put *p, const struct digest *d, struct batch *b);

#endif
