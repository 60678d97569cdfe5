/* keep.h - a list's document that is published too: into the store as it comes, and noted in a stage row, so that a large index
 * is fetched once, read from there, and served as it was read.
 *
 * owns     keep_free() frees; while it is being sealed it turns the run's loop until that is over, so: not inside an event
 * threads  the run's; the sealing is the disk pool's
 * errors   E_TOOBIG, E_NOSPACE, E_IO
 */
#ifndef SERVER_SYNC_HTTP_KEEP_H
#define SERVER_SYNC_HTTP_KEEP_H

#include "server/sync/engine.h"
#include "server/sync/seen.h"

struct keep;

struct keep *keep_open(const struct engine_site *site, const char *path, uint64_t max_bytes);
void keep_begin(struct keep *k); /* what came before is void */
MUST_USE int keep_add(struct keep *k, struct slice bytes, struct err *e);
/* All has come. done() once, later. mtime_ns: SYNC_TIME_UNKNOWN. validator: "" or NULL for none; copied. */
void keep_seal(struct keep *k, int64_t mtime_ns, const char *validator,
               void (*done)(void *arg, int rc, const struct err *why), void *arg);
/* After done(0): its name in the store, and its bytes. */
const struct digest *keep_digest(const struct keep *k);
uint64_t keep_size(const struct keep *k);
void keep_free(struct keep **kp); /* NULL is fine */

#endif
