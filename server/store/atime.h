/* atime.h - when a blob was last used, in hours.
 *
 * Each hit is noted in memory, in a table of the blobs that were used since the last flush. Rows
 * are written lazily: at most one per digest in ATIME_STEP_HOURS, while the digest stays in the
 * table. When the table is full, hits are dropped until the next flush, which does no harm because
 * eviction samples anyway.
 *
 * owns     struct atimes, from atimes_init() to atimes_fini()
 * threads  any; blob_touch() takes a lock only for the first hit in an hour (or when two blobs
 *          share a slot)
 */
#ifndef SERVER_STORE_ATIME_H
#define SERVER_STORE_ATIME_H

#include <stdatomic.h>

#include "common/os/lock.h"
#include "server/store/store.h"

enum { ATIME_STEP_HOURS = 6, ATIME_SLOTS = 1 << 16 };

struct atime;
struct recent {
    _Atomic uint32_t tag;
};
struct atimes {
    struct lock lock; /* LOCK_LEAF */
    struct atime *slot;
    size_t used;
    size_t dirty;
    struct recent *recent; /* by digest: a tag of the blob and of the last hour that was noted */
};

void atimes_init(struct atimes *x);
void atimes_fini(struct atimes *x);
/* Puts up to `max` rows that are due into b and returns their number. Afterwards the table is
 * emptied if it is more than half full. */
size_t atime_collect(struct atimes *x, struct batch *b, size_t max);
/* The latest access, in memory or in a row; 0: none is known. */
MUST_USE int atime_hour(struct store *s, const struct digest *d, uint32_t *hour, struct err *e);

static inline uint32_t hour_of(uint64_t unix_s)
{
    return (uint32_t)(unix_s / 3600);
}

#endif
