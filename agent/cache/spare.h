/* spare.h - keeps one job's folder for the next job that needs the same files.
 *
 *   spare/<key>/<stamp>.<job>/   links under the names that a job had
 *
 * A thousand links and symlinks cost a prolog more than all else; to pass the folder on costs a
 * rename and a check of each entry. A folder belongs to one job at a time and stays inside that
 * job's folder: nothing in it leads elsewhere, so a container that gets the one has the other.
 * The stamp sums up names, kinds, sizes, mtimes and inodes. If anything was added, removed or
 * written since (jobs that run as the node's user can do that), the stamp differs, and the folder
 * is thrown away. It detects accidents, as stamp.h does.
 *
 * Whenever a process is killed, a folder is complete under one of the two names, or does not have
 * its stamp. Nothing is synced: what a power cut leaves is checked like everything else.
 *
 * threads  any; blocks
 */
#ifndef AGENT_CACHE_SPARE_H
#define AGENT_CACHE_SPARE_H

#include "agent/cache/cache.h"

enum { SPARES_MAX = 16, SPARE_AGE_S = 86400 }; /* per key; of one that no job needs */

/* Moves one to `at`, whose parent exists, and checks it. False: there is no complete one. */
MUST_USE bool spare_take(struct local_cache *s, const struct digest *key, const char *at,
                         uint64_t *stamp);
/* Of a new folder. */
MUST_USE int spare_stamp(const char *at, uint64_t *stamp, struct err *e);
/* Keeps the folder, or leaves it in place if there are enough. */
void spare_give(struct local_cache *s, const struct digest *key, uint64_t stamp, const char *job,
                const char *at);
/* Removes those that were given before. */
void spare_sweep(struct local_cache *s, uint64_t before_unix_s);

#endif
