/* stage.h - small files on their way onto the local cache: what a lock file, a .state and an
 * fsync() each would cost more than themselves.
 *
 *   locks/small-<0..f>   a byte of one is locked for each digest that some process fetches just now
 *   partial/<hex>.whole  came whole and right, looks as it will on the local cache, but is not durable: local_cache_seal() sees to that
 *
 * A claim is for the time of the transfer. Whoever finds a staged file, left by a crash or by a
 * process that is about to seal it, hashes it and takes it up; two that seal the same one do no
 * harm. So nothing that came whole is fetched again.
 *
 * owns     stage_close() gives back all claims, as does the end of the process; claims of one
 *          struct do not shut each other out
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
/* True: it is there, and is what it should be. One that is not is removed. */
MUST_USE bool stage_find(struct local_cache *s, const struct digest *d, uint64_t size_bytes);
/* `bytes` are known to hash to d, which is claimed. */
MUST_USE int stage_put(struct local_cache *s, const struct digest *d, struct slice bytes,
                       struct err *e);

#endif
