/* drop.h - taking a blob away with all rows that lead to it: what eviction, collection and damage
 * have in common.
 *
 * drop_look() reads the blob's row and its holders; the caller judges. drop_put() adds the removal
 * to a batch. Between the two anything may have changed, so a batch with drops carries
 * drops_check(), which looks again on the commit thread: same row, same holders, nobody sealing the
 * digest; else E_CHANGED and nothing happens.
 *
 * threads  one at a time a drop; blocks
 */
#ifndef SERVER_STORE_DROP_H
#define SERVER_STORE_DROP_H

#include "server/store/batch.h"
#include "server/store/keep.h"
#include "server/store/row.h"

struct drop {
    struct digest digest;
    struct blob_row row;
    struct buf row_bytes;
    struct buf holders; /* each: u32 length, row key */
    size_t objects, others;
};

/* E_NOTFOUND: no such blob; E_CORRUPT: its row does not decode (the drop is usable all the
 * same). */
MUST_USE int drop_look(struct store *s, const struct digest *d, struct drop *out, struct err *e);
void drop_free(struct drop *x);
/* Holders in order: *at starts at 0; false at the end. Keys that do not parse are skipped. */
bool drop_holder(const struct drop *x, size_t *at, struct slice *repo, char *kind,
                 struct slice *key);
/* Removes the blob's rows, its 'o' holders and their objects; other holders stay. Then the file, as
 * `after` says. */
void drop_put(const struct drop *x, struct batch *b, enum after_kind after);

struct drops {
    struct drop *drop;
    size_t count;
};
int drops_check(struct store *s, void *drops, struct err *e); /* for batch_check() */

/* Takes away those that nobody holds; of what changes meanwhile, or cannot be read, the collection
 * takes care later. */
void drop_unheld(struct store *s, const struct digest *d, size_t count);

/* Parts of a row's key in TABLE_HOLDER. */
MUST_USE bool holder_parse(struct slice row_key, struct slice *repo, char *kind, struct slice *key);
/* The first key behind all that begin with prefix; false: there is none. */
MUST_USE bool key_after_prefix(struct slice prefix, struct buf *out);

#endif
