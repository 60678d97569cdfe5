/* atime.h - when a blob was last wanted, in hours: noted in memory on every hit, written lazily and
 * seldom.
 *
 * A table of what was touched since the last flush; a row is written at most once in
 * ATIME_STEP_HOURS while the digest stays in the table. When the table is full, touches are dropped
 * until the next flush: eviction samples anyway.
 *
 * threads  any; blob_touch() takes a lock only for the first touch in an hour (or when two blobs
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
    struct recent *recent; /* by digest: a tag of the blob and the hour that was noted last */
};

void atimes_init(struct atimes *x);
void atimes_fini(struct atimes *x);
/* Puts up to `max` rows that are due into b; the count. When the table is more than half full, it
 * is emptied after. */
size_t atime_collect(struct atimes *x, struct batch *b, size_t max);
/* The latest access, noted or written; 0: none known. */
MUST_USE int atime_hour(struct store *s, const struct digest *d, uint32_t *hour, struct err *e);

static inline uint32_t hour_of(uint64_t unix_s)
{
    return (uint32_t)(unix_s / 3600);
}

#endif
