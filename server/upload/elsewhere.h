/* elsewhere.h - brings objects here that uploads to the same tree have brought to another mirror of
 * a cluster.
 *
 * All uploads to a tree go to one mirror (cluster/relay.h), so this is for those that were under
 * way when another mirror became responsible for the tree.
 *
 * owns     nothing
 * threads  pool threads; blocks until the bytes are here
 * errors   as upload.h; E_NOTFOUND: no mirror has it, or this one stands alone; E_AGAIN: a mirror
 *          that may have it cannot be reached; E_CORRUPT: the bytes that came are others
 */
#ifndef SERVER_UPLOAD_ELSEWHERE_H
#define SERVER_UPLOAD_ELSEWHERE_H

#include "server/upload/upload.h"

/* Afterwards the tree holds the object, until the collector finds that nothing names it. */
MUST_USE int elsewhere_bring(struct uploads *u, const struct put *p, const struct digest *d,
                             struct err *e);

#endif
