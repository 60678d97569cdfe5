/* listing.h - a folder of a hosted tree, or the trees of a repo, as JSON for programs and as a page for people.
 *
 * threads  blocks (tree nodes are read): a pool thread
 * errors   E_NOTFOUND: no file lies below that folder
 */
#ifndef SERVER_REPO_HOSTED_LISTING_H
#define SERVER_REPO_HOSTED_LISTING_H

#include "server/repo/repo.h"

/* p: a PLAN_LIST. *content_type is static. */
MUST_USE int hosted_listing(struct store *s, const struct repo *r, const struct plan *p,
                            struct buf *body, struct slice *content_type, struct err *e);

#endif
