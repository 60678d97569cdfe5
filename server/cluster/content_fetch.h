/* content_fetch.h - reads an item from a cluster's bucket, by the place that an index names.
 *
 * Every item is checked against its SHA-256. An item that does not match is read once more, because
 * the damage may have happened on the way. Requests that fail are repeated (retry.h).
 *
 * memory   up to 32 MiB for an item of an object of its own, twice the length for one of a pack
 * threads  any except a loop's; blocks
 * errors   E_CORRUPT: the bytes in the bucket do not match the SHA-256; E_NOTFOUND: the object is
 *          not there; the other codes of bucket.h; the code that write() returned
 */
#ifndef SERVER_CLUSTER_CONTENT_FETCH_H
#define SERVER_CLUSTER_CONTENT_FETCH_H

#include <stdatomic.h>

#include "server/cluster/bucket.h"
#include "server/cluster/content.h"
#include "server/cluster/content_index.h"

enum { CONTENT_FETCH_RANGE_BYTES = 16 << 20 };

struct content_fetch {
    struct bucket *bucket;
    uint64_t retry_ms;       /* how long failures are repeated; 0: 30 s */
    const atomic_bool *stop; /* is set to end it early, with E_CANCELLED; may be NULL */
    /* Gets the bytes in order. Offset 0 again: what it got before was damaged, and everything comes
     * anew. The last bytes come only after the whole item has matched. Nonzero ends the fetch. */
    int (*write)(void *arg, uint64_t offset, struct slice bytes);
    void *arg;
};

MUST_USE int content_fetch(const struct content_fetch *f, const struct content_item *it,
                           const struct content_object *o, struct err *e);

/* Reads and checks an index. A damaged one is read once more: the damage may be on the way.
 * retry_ms and stop are as above. */
MUST_USE int content_index_get(struct bucket *b, uint64_t nonce, uint64_t retry_ms,
                               const atomic_bool *stop, struct buf *bytes,
                               struct content_index *out, struct err *e);

#endif
