/* spare.h - what one job's folder held, laid out and kept for the next job that wants the same.
 *
 *   spare/<key>/<stamp>.<job>/   links under their names, as some job had them
 *
 * A thousand links and symlinks cost a prolog more than all else; to hand the folder on costs a
 * rename and a look at each entry. A folder is one job's at a time, and stays within that job's
 * own: nothing in it leads elsewhere, so a container that is given the one has the other. The stamp
 * sums up names, kinds, sizes, mtimes and inodes: what was added, taken away or written to since
 * (jobs that run as the node's user can) makes another, and such a folder is thrown away. It finds
 * accidents, as stamp.h does.
 *
 * Whatever instant somebody is killed at, a folder is whole where one of the two names leads, or
 * does not have its stamp. Nothing is synced: what a power cut leaves of it is checked like all
 * else.
 *
 * threads  any; blocks
 */
#ifndef AGENT_CACHE_SPARE_H
#define AGENT_CACHE_SPARE_H

#include "agent/cache/cache.h"

enum { SPARES_MAX = 16, SPARE_AGE_S = 86400 }; /* of a key; of one that nobody wants */

/* Moves one to `at`, whose parent is there, and looks at it. False: there is none that is whole. */
MUST_USE bool spare_take(struct local_cache *s, const struct digest *key, const char *at,
                         uint64_t *stamp);
/* Of a folder that was laid out just now. */
MUST_USE int spare_stamp(const char *at, uint64_t *stamp, struct err *e);
/* Keeps the folder, or leaves it where it is when there are enough. */
void spare_give(struct local_cache *s, const struct digest *key, uint64_t stamp, const char *job,
                const char *at);
/* Those that were given before. */
void spare_sweep(struct local_cache *s, uint64_t before_unix_s);

#endif
