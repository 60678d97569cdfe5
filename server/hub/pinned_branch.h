/* pinned_branch.h - a branch of a repository rolled back to an older commit, and held there until
 * it is released.
 *
 * Of what is pulled through the branch has a row (TABLE_HELD), and the repo's adapter a table in
 * memory (repo/hf/held.h), so that a request costs nothing for it. Repositories that a sync keeps
 * are rolled back with the snapshot that has the commit, all of them together; our own by their
 * head or branch.
 *
 * threads  any; blocks. Changes wait for a reload that is under way, which reads the rows
 */
#ifndef SERVER_HUB_PINNED_BRANCH_H
#define SERVER_HUB_PINNED_BRANCH_H

#include "server/hub/inventory.h"

/* Of all repos of a configuration that is not in force yet. */
MUST_USE int pinned_branch_load(struct store *s, const struct repo_set *rs, struct err *e);

struct pinned_branch_news {
    char id[256], commit[41];
    uint64_t seq;             /* of trees: the version */
    struct inventory_sum sum; /* of its files; not known: listed when they are asked for */
};
/* rev: a commit (seven digits do), a branch or tag, of trees also "v7". */
MUST_USE int pinned_branch_set(const struct hub_deps *hub, const struct inventory_name *n,
                               struct slice branch, struct slice rev,
                               struct pinned_branch_news *out, struct err *e);
MUST_USE int pinned_branch_release(const struct hub_deps *hub, const struct inventory_name *n,
                                   struct slice branch, struct err *e);

#endif
