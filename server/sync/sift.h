/* sift.h - which entries of a list a repo wants: rules in rsync's syntax, a largest size, links that stay inside.
 *
 * The pipeline asks for every entry, whatever the engine; an engine may ask earlier, where that saves a folder's page, or hand
 * the rules to an upstream that applies them itself. Entries that are published fall under them like listed ones: so a
 * rule takes effect on what is there.
 *
 * Where a lister writes documents that name files (list = hf, pypi) it applies them itself, to the names that those documents have
 * (sift_wants_below()), and the pipeline takes what it lists.
 *
 * owns     sift_free(); rules are copied
 * threads  one at a time
 * errors   E_CONFIG
 */
#ifndef SERVER_SYNC_SIFT_H
#define SERVER_SYNC_SIFT_H

#include "common/base/err.h"
#include "server/repo/sync_conf.h"
#include "server/store/tree.h"
#include "server/sync/entry.h"

struct sift;

/* *out is NULL when everything is wanted; all calls below take that. */
MUST_USE int sift_new(const struct sync_conf *c, struct sift **out, struct err *e);
void sift_free(struct sift **sp);

MUST_USE bool sift_wants(struct sift *s, const struct sync_entry *en);
MUST_USE bool sift_wants_old(struct sift *s, const struct entry *en);
/* For such listers: a file's path below the repository, or the index. */
MUST_USE bool sift_wants_below(struct sift *s, struct slice path, uint64_t size_bytes);
/* The rules alone, for a path and the folders above it. */
MUST_USE bool sift_wants_path(struct sift *s, struct slice path, bool is_folder);
/* As rsync writes them. */
const char *const *sift_rules(const struct sift *s, size_t *count);

/* Of all that decides what a list has: another number, another list of the same upstream. */
uint64_t sift_print(const struct sync_conf *c);
/* A link's target does not lead above the top, and says so: as rsync's --safe-links judges. */
MUST_USE bool sift_link_stays(struct slice path, struct slice target);

#endif
