/* naming.h - the puts that change names, not files: names of versions (branches, tags) and of
 * trees.
 *
 * owns     nothing
 * threads  any; blocks
 * errors   as upload.h: an impossible request is a status in the reply
 */
#ifndef SERVER_UPLOAD_NAMING_H
#define SERVER_UPLOAD_NAMING_H

#include "server/upload/upload.h"

/* PUT_REF_ADD, PUT_REF_DROP, PUT_SQUASH, PUT_TREE_MOVE, PUT_TREE_COPY, PUT_TREE_DROP: 200, 404,
 * 409, 413. */
MUST_USE int naming_run(struct store *s, const struct put *p, uint64_t now_unix_s,
                        struct upload_reply *out, struct err *e);

#endif
