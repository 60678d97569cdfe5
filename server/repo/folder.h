/* listing.h - a folder of a hosted tree, or the trees of a repo, as JSON for programs and as a page for people.
 *
 * threads  blocks (tree nodes are read): a pool thread
 * errors   E_NOTFOUND: no file lies below that folder
 */
#ifndef SERVER_REPO_HOSTED_LISTING_H
#define SERVER_REPO_HOSTED_LISTING_H

#include "server/repo/repo.h"

struct listing_sight { /* may the caller read that? "<repo>/<tree>/" */
    bool (*sees)(const void *arg, struct slice subject);
    const void *arg;
};
struct listing_out {
    struct buf *body;
    struct slice content_type; /* static */
    struct buf next;           /* the address of the list's next part; empty: there is none */
};

/* p: a PLAN_LIST. sight: of a list of trees, NULL: all of them. */
MUST_USE int hosted_listing(struct store *s, const struct repo *r, const struct plan *p,
                            const struct listing_sight *sight, struct listing_out *out,
                            struct err *e);
/* The Content-Security-Policy of such a page. */
void hosted_listing_policy(struct buf *out);

#endif
