/* content_index.h - idx/<nonce>: where in the bucket the items of one publish lie.
 *
 *   "mrdidx01"           8 bytes
 *   objects, rows        4, 4: their number; big-endian as all numbers
 *   objects              each: kind (1: enum content_object_kind), nonce (8), size (8)
 *   rows, sorted by digest and kind, each pair once:
 *       digest           32
 *       kind, coding     1, 1: enum content_kind, enum content_coding
 *       object           4, its position among the objects, from 0
 *       offset           8
 *       stored, length   8, 8: bytes in the object, bytes when decoded
 *   SHA-256              32, of all that precedes
 *
 * A publish with more rows than one index may have writes several.
 *
 * owns     a writer owns its rows, about 25 MB for CONTENT_INDEX_ROWS_MAX; a reader borrows the
 *          bytes
 * threads  one at a time for each writer; any for a reader; pure
 * errors   E_CORRUPT: not an index, or a damaged one; E_UNSUPPORTED: of a later format; E_TOOBIG:
 *          more bytes than an index may have
 */
#ifndef SERVER_CLUSTER_CONTENT_INDEX_H
#define SERVER_CLUSTER_CONTENT_INDEX_H

#include "server/cluster/content.h"

enum {
    CONTENT_INDEX_ROWS_MAX = 1 << 18,
    CONTENT_INDEX_HEAD_BYTES = 8 + 4 + 4,
    CONTENT_INDEX_OBJECT_BYTES = 1 + 8 + 8,
    CONTENT_INDEX_ROW_BYTES = DIGEST_BYTES + 1 + 1 + 4 + 8 + 8 + 8,
    CONTENT_INDEX_BYTES_MAX =
        CONTENT_INDEX_HEAD_BYTES +
        CONTENT_INDEX_ROWS_MAX * (CONTENT_INDEX_OBJECT_BYTES + CONTENT_INDEX_ROW_BYTES) +
        DIGEST_BYTES,
};

struct content_index_writer;
struct content_index_writer *content_index_writer_new(void);
void content_index_writer_free(struct content_index_writer **wp);
/* The next object's number. Its name and size may follow later, with ..._set_object(). */
uint32_t content_index_new_object(struct content_index_writer *w);
void content_index_set_object(struct content_index_writer *w, uint32_t object,
                              const struct content_object *o);
bool content_index_has(const struct content_index_writer *w, enum content_kind kind,
                       const struct digest *d);
size_t content_index_count(const struct content_index_writer *w);
/* Adds a row that it does not have yet; fewer than CONTENT_INDEX_ROWS_MAX are there. */
void content_index_add(struct content_index_writer *w, const struct content_item *it,
                       uint32_t object);
/* Clears out, then writes the index into it. The writer begins a new, empty index. */
void content_index_finish(struct content_index_writer *w, struct buf *out);

struct content_index {
    struct slice objects, rows; /* borrowed */
    size_t count;               /* of rows */
};
/* Checks all of the index. */
MUST_USE int content_index_open(struct slice bytes, struct content_index *out, struct err *e);
/* Row i < ix->count. */
void content_index_row(const struct content_index *ix, size_t i, struct content_item *it,
                       struct content_object *o);
/* The objects, by their position. */
size_t content_index_objects(const struct content_index *ix);
void content_index_object(const struct content_index *ix, size_t i, struct content_object *o);
/* That of the item of a row. */
uint32_t content_index_row_object(const struct content_index *ix, size_t row);
/* Looks an item up by binary search. False: it is not there. */
MUST_USE bool content_index_find(const struct content_index *ix, enum content_kind kind,
                                 const struct digest *d, struct content_item *it,
                                 struct content_object *o);

#endif
