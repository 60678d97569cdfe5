/* pinned_branch.h - a branch of a repository that is rolled back to an older commit and held there
 * until it is released.
 *
 * For pull-through repositories the branch has a row (TABLE_HELD), and the repo's adapter has a
 * table in memory (repo/hf/held.h), so that requests cost no lookup. Repositories of a synced repo
 * are all rolled back together, with the snapshot that has the commit. Hosted ones are rolled back
 * by their head or branch.
 *
 * owns     nothing
 * threads  any; blocks. Changes wait for a reload that is under way, which reads the rows
 * errors   E_NOTFOUND; E_USAGE: a commit was named instead of a branch
 */
#ifndef SERVER_HUB_PINNED_BRANCH_H
#define SERVER_HUB_PINNED_BRANCH_H

#include "server/hub/inventory.h"

/* Loads the rows for all repos of a configuration that is not in force yet. */
MUST_USE int pinned_branch_load(struct store *s, const struct repo_set *rs, struct err *e);

struct pinned_branch_news {
    char id[256], commit[41];
    uint64_t seq;             /* in trees: the version */
    struct inventory_sum sum; /* of its files; unknown: they are listed when they are requested */
};
/* rev: a commit (seven digits suffice), a branch or tag; in trees also "v7". */
MUST_USE int pinned_branch_set(const struct hub_deps *hub, const struct inventory_name *n,
                               struct slice branch, struct slice rev,
                               struct pinned_branch_news *out, struct err *e);
MUST_USE int pinned_branch_release(const struct hub_deps *hub, const struct inventory_name *n,
                                   struct slice branch, struct err *e);

#endif
