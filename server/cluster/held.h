/* held.h - the blobs that the trees of a store hold.
 *
 * owns     held_list() gives a list that the caller frees with free()
 * threads  any except a loop's; blocks
 * errors   those of the store
 */
#ifndef SERVER_CLUSTER_HELD_H
#define SERVER_CLUSTER_HELD_H

#include "server/cluster/tree_content.h"
#include "server/store/store.h"

enum held_what {
    HELD_NOT_IN_BUCKET, /* without a place */
    HELD_NOT_HERE,      /* without bytes on this disk */
};

struct held_blob {
    struct digest digest;
    uint64_t size_bytes; /* 0 if nobody knows it */
};

/* Each such blob once, in the order of digests. all_bytes: of all that the trees hold. */
MUST_USE int held_list(struct store *s, struct tree_content *t, enum held_what what,
                       struct held_blob **out, size_t *n, uint64_t *all_bytes, struct err *e);

#endif
