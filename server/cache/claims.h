/* claims.h - which bytes of an object are being fetched, and by that and what is here, which are
 * fetched next.
 *
 * A segment under way claims [cur, end): what it has brought is behind `cur`. Segments for readers
 * begin and end on blocks; a reader whose bytes are claimed but far off gets a segment of its own,
 * and the claim ends where that begins.
 *
 * owns     nothing: plain data
 * threads  one at a time; a fetch's are guarded by its lock
 */
#ifndef SERVER_CACHE_CLAIMS_H
#define SERVER_CACHE_CLAIMS_H

#include "server/store/extent.h"

#define BLOCK_BYTES ((uint64_t)64 << 10)

/* Segments under way: `fillers` of them in the background, the rest for readers. */
enum { CLAIMS_MAX = 8 };

struct claim {
    bool active;
    uint64_t cur;
    uint64_t end;
};

struct claims {
    struct claim of[CLAIMS_MAX];
};

struct reader_need { /* end: LENGTH_UNKNOWN where it reads to the end */
    uint64_t at;
    uint64_t end;
};

/* Is `at` here, or does somebody fetch towards it from at most `near_bytes` before it? */
bool claims_cover(const struct claims *c, const struct extents *have, uint64_t at,
                  uint64_t near_bytes);
/* The first bytes that are neither here nor claimed. False: there are none. */
bool claims_gap(const struct claims *c, const struct extents *have, uint64_t total_bytes,
                struct extent *out);
/* The blocks around what a reader needs that are neither here nor covered. *holder: whose claim is
 * cut for them, at out->first; CLAIMS_MAX: nobody's. False: nothing is to be fetched for it. */
bool claims_cut(const struct claims *c, const struct extents *have, const struct reader_need *n,
                uint64_t total_bytes, uint64_t near_bytes, struct extent *out, unsigned *holder);

#endif
