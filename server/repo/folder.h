/* folder.h - a folder of a tree, or the trees of a repo, as JSON for programs and as a page for
 * people.
 *
 * threads  blocks (tree nodes are read): a pool thread
 * errors   E_NOTFOUND: no file lies below that folder
 */
#ifndef SERVER_REPO_FOLDER_H
#define SERVER_REPO_FOLDER_H

#include "server/repo/repo.h"

/* A repo_ops.list for adapters whose every PLAN_LIST is one of plan_folder()'s. */
MUST_USE int folder_list(const struct repo *r, const struct plan *p, struct store *s,
                         const struct listing_sight *sight, struct listing_out *out, struct err *e);
/* The same without the trees of which hides() holds. */
MUST_USE int folder_list_but(const struct repo *r, const struct plan *p, struct store *s,
                             bool (*hides)(struct slice tree), struct listing_out *out,
                             struct err *e);

#endif
