/* pinning.h - a commit's files kept whatever the pressure.
 *
 * A pin names keys, not bytes: files that are not here yet are kept when they come, and bytes that
 * another commit or repository shares stay because one of their names is pinned. It is one row,
 * "repo/type/id@commit", beside the prefixes of `cache pin`; the listing and the Hub's word on the
 * revision are in it, so that the revision is found while the Hub is gone.
 *
 * threads  any; blocks
 */
#ifndef SERVER_HUB_PINNING_H
#define SERVER_HUB_PINNING_H

#include "server/hub/plan_runner.h"

/* rev: as it was asked for. chosen: NULL, or which of the files; arg is its. */
MUST_USE int pinning_set(struct plan_runner *x, struct slice type, struct slice id,
                         struct slice rev, const struct plan_runner_commit *c,
                         bool (*chosen)(const void *arg, struct slice path), const void *arg,
                         uint64_t *files, struct err *e);
/* rev.p == NULL: all of the repository's, an import's too; else by name, or by the beginning of a
 * commit. */
MUST_USE int pinning_clear(struct store *s, struct slice repo, struct slice type, struct slice id,
                           struct slice rev, uint64_t *count, struct err *e);
/* What an import pins: all of a repository's files, which are under its id (the first name), and
 * all the words on it, by any name. */
void pinning_import(struct slice repo, struct slice type, const struct slice *names, size_t count,
                    struct batch *b);
bool pinning_has(struct store *s, struct slice repo, struct slice type, struct slice id,
                 struct slice commit);

#endif
