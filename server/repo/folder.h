/* folder.h - lists a folder of a tree, or the trees of a repo, as JSON for programs and as a page
 * for people.
 *
 * owns     nothing: it writes to the given listing_out
 * threads  blocks (tree nodes are read): a pool thread
 * errors   E_NOTFOUND: there is no file below that folder
 */
#ifndef SERVER_REPO_FOLDER_H
#define SERVER_REPO_FOLDER_H

#include "server/repo/repo.h"

/* A repo_ops.list for adapters whose every PLAN_LIST comes from plan_folder(). */
MUST_USE int folder_list(const struct repo *r, const struct plan *p, struct store *s,
                         const struct listing_sight *sight, struct listing_out *out, struct err *e);
/* The same, without the trees that hides() selects. */
MUST_USE int folder_list_but(const struct repo *r, const struct plan *p, struct store *s,
                             bool (*hides)(struct slice tree), struct listing_out *out,
                             struct err *e);

#endif
