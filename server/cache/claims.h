/* claims.h - which bytes of an object are being fetched, and which are fetched next.
 *
 * A segment under way claims [cur, end); the bytes that it has delivered are before `cur`. Segments
 * for readers begin and end on block boundaries. A reader whose bytes are claimed but far ahead of
 * `cur` gets a segment of its own, and the older claim is cut where the new one begins.
 *
 * owns     nothing: plain data
 * threads  one at a time; a fetch's claims are guarded by its lock
 */
#ifndef SERVER_CACHE_CLAIMS_H
#define SERVER_CACHE_CLAIMS_H

#include "server/store/extent.h"

#define BLOCK_BYTES ((uint64_t)64 << 10)

/* Segments under way: struct cache_settings says how many run in the background; the rest are for
 * readers. */
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

/* Is the byte `at` present, or will a segment that is at most `near_bytes` before it deliver it? */
bool claims_cover(const struct claims *c, const struct extents *have, uint64_t at,
                  uint64_t near_bytes);
/* The first bytes that are neither present nor claimed. False: there are none. */
bool claims_gap(const struct claims *c, const struct extents *have, uint64_t total_bytes,
                struct extent *out);
/* The blocks around what a reader needs that are neither present nor covered. *holder: the claim
 * that is cut for them at out->first, or CLAIMS_MAX for none. False: nothing has to be fetched. */
bool claims_cut(const struct claims *c, const struct extents *have, const struct reader_need *n,
                uint64_t total_bytes, uint64_t near_bytes, struct extent *out, unsigned *holder);

#endif
