/* stage.h - downloaded small files that are not sealed yet. For them a lock file, a .state and an
 * fsync() each would cost more than the files.
 *
 *   locks/small-<0..f>   a byte of one is locked for each digest that a process is fetching
 *   partial/<hex>.whole  complete and verified, in its final form, but not durable:
 *                        local_cache_seal() makes it so
 *
 * A claim lasts as long as the transfer. A process that finds a staged file, left by a crash or
 * by a process that is about to seal it, hashes it and takes it over; two that seal the same one
 * do no harm. So nothing that arrived completely is fetched again.
 *
 * owns     stage_close() releases all claims, as does the end of the process; claims of one struct
 *          do not exclude each other
 * threads  claims on one thread; stage_find() and stage_put() any, one at a time for a digest; all
 *          block
 * errors   E_BUSY: another process fetches it
 */
#ifndef AGENT_CACHE_STAGE_H
#define AGENT_CACHE_STAGE_H

#include "agent/cache/cache.h"

struct stage;

MUST_USE int stage_open(struct local_cache *s, struct stage **out, struct err *e);
void stage_close(struct stage **sp); /* NULL is fine */

MUST_USE int stage_claim(struct stage *st, const struct digest *d, struct err *e);
void stage_drop(struct stage *st, const struct digest *d);
/* True: it is there and matches its digest. A wrong one is removed. */
MUST_USE bool stage_find(struct local_cache *s, const struct digest *d, uint64_t size_bytes);
/* `bytes` are known to hash to d, which must be claimed. */
MUST_USE int stage_put(struct local_cache *s, const struct digest *d, struct slice bytes,
                       struct err *e);

#endif
