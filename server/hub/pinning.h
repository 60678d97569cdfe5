/* pinning.h - keeps a commit's files from eviction.
 *
 * A pin names keys, not bytes. Files that are not here yet are kept when they arrive, and bytes
 * that another commit or repository shares stay because one of their names is pinned. A pin is one
 * row, "repo/type/id@commit", beside the prefixes of `cache pin`. It includes the listing and the
 * Hub's document on the revision, so that the revision is found while the Hub is unreachable.
 *
 * owns     nothing
 * threads  any; blocks
 * errors   E_NOTFOUND
 */
#ifndef SERVER_HUB_PINNING_H
#define SERVER_HUB_PINNING_H

#include "server/hub/plan_runner.h"

/* rev: as it was requested. chosen: selects files, with arg; NULL: all of them. */
MUST_USE int pinning_set(struct plan_runner *x, struct slice type, struct slice id,
                         struct slice rev, const struct plan_runner_commit *c,
                         bool (*chosen)(const void *arg, struct slice path), const void *arg,
                         uint64_t *files, struct err *e);
/* rev.p == NULL: all pins of the repository, also an import's; else by name, or by the beginning of
 * a commit. */
MUST_USE int pinning_clear(struct store *s, struct slice repo, struct slice type, struct slice id,
                           struct slice rev, uint64_t *count, struct err *e);
/* The pin of an import: all files of a repository, which are stored under its id (the first name),
 * and all documents about it, by any name. */
void pinning_import(struct slice repo, struct slice type, const struct slice *names, size_t count,
                    struct batch *b);
bool pinning_has(struct store *s, struct slice repo, struct slice type, struct slice id,
                 struct slice commit);

#endif
