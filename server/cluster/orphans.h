/* orphans.h - keys of a cluster's bucket that nothing names: what uploads that failed, and mirrors
 * that died, have left.
 *
 * Named are the indexes that have a row of TABLE_INDEX, the objects in them, and what is condemned
 * already (its own deletion is under way).
 *
 * memory   about 14 bytes for each object that is named, 17 for each orphan
 * threads  one at a time; blocks
 * errors   E_NOTFOUND: an index is gone; the codes of bucket.h
 */
#ifndef SERVER_CLUSTER_ORPHANS_H
#define SERVER_CLUSTER_ORPHANS_H

#include <stdatomic.h>

#include "server/cluster/bucket.h"
#include "server/cluster/dead_list.h"
#include "server/cluster/place.h"
#include "server/store/set64.h"

struct named {
    struct set64 objects; /* of all kinds */
    struct set64 indexes; /* nonces of those that were added */
};
void named_add(struct named *n, uint64_t nonce, const struct content_index *ix);
/* Adds what is condemned. */
MUST_USE int named_add_condemned(struct named *n, struct store *s, struct bucket *b, struct err *e);
bool named_has(const struct named *n, const struct dead_object *o);
void named_free(struct named *n);

struct orphans {
    struct buf objects; /* struct dead_object, as dead_list_next() reads them */
    uint64_t count, bytes;
    uint64_t unknown; /* keys of no known form */
};
/* Lists what was last written before that time, by the bucket's clock. UINT64_MAX: everything. */
MUST_USE int orphans_list(struct bucket *b, const struct named *n, uint64_t before_unix_s,
                          const atomic_bool *stop, struct orphans *out, struct err *e);
/* Removes those that are named now. */
void orphans_spare(struct orphans *o, const struct named *n);
void orphans_free(struct orphans *o);

#endif
