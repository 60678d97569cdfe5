/* place.h - where in the cluster's bucket an item of content lies: rows of TABLE_PLACE.
 *
 *   key    digest, kind (1)
 *   value  object's kind (1), nonce (8), size (8), coding (1), offset (8), stored (8), length (8),
 *          the nonce of the index that names it (8)
 *
 * A place counts while its index has a row in TABLE_INDEX, which all mirrors share. Collection
 * (collect.h) removes such rows, so one entry of the log ends all places of an index on all
 * mirrors. What a place that does not count names can still be read until it is deleted, but
 * nothing new may rely on it.
 *
 * threads  any; all block
 * errors   E_NOTFOUND; E_CORRUPT: the row cannot be decoded
 */
#ifndef SERVER_CLUSTER_PLACE_H
#define SERVER_CLUSTER_PLACE_H

#include "server/cluster/content_index.h"
#include "server/store/batch.h"

enum { INDEX_KEY_BYTES = 8 }; /* of TABLE_INDEX: the nonce */

struct place {
    struct content_item item;
    struct content_object object;
    uint64_t index; /* nonce; 0: an earlier build did not note it */
};

void place_put(struct batch *b, const struct place *p);
/* Of all items of an index. */
void places_put(struct batch *b, const struct content_index *ix, uint64_t nonce);
/* Whether it counts or not. */
MUST_USE int place_get(struct store *s, enum content_kind kind, const struct digest *d,
                       struct place *out, struct err *e);
/* *yes: there is a place, and it counts. */
MUST_USE int place_counts(struct store *s, enum content_kind kind, const struct digest *d,
                          bool *yes, struct err *e);
/* Whether the batch puts a place of the item. */
bool place_in_batch(const struct batch_rows *rows, enum content_kind kind, const struct digest *d);
/* E_CORRUPT. */
MUST_USE int place_decode(struct slice key, struct slice value, struct place *out, struct err *e);

/* A row of TABLE_INDEX. */
struct index_row {
    uint64_t nonce;
    uint64_t begun_unix_s; /* by the bucket's clock, before its first object was uploaded */
    bool timeless;         /* of an earlier build, which did not note it */
};
void index_put(struct batch *b, uint64_t nonce, uint64_t begun_unix_s);
/* Both, of an index that was written as these bytes. */
MUST_USE int index_put_written(struct batch *b, uint64_t nonce, struct slice bytes,
                               uint64_t begun_unix_s, struct err *e);
/* Requires that the row is there, and removes it. */
void index_del(struct batch *b, const struct index_row *row);
/* E_CORRUPT. */
MUST_USE int index_decode(struct slice key, struct slice value, struct index_row *out,
                          struct err *e);
/* *yes: the index has its row. */
MUST_USE int index_is_there(struct store *s, uint64_t nonce, bool *yes, struct err *e);

#endif
