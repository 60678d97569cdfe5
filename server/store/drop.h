/* drop.h - removes a blob with all rows that lead to it, for eviction, collection and damage.
 *
 * drop_look() reads the blob's row and its holders; the caller decides; drop_put() adds the removal
 * to a batch. Anything may change between the two, so a batch with drops carries drops_check(),
 * which looks again on the commit thread: the row and the holders must be the same, and no seal of
 * the digest may be under way. Otherwise the commit fails with E_CHANGED and nothing is removed.
 *
 * owns     drop_free() frees what drop_look() read
 * threads  one at a time per drop; blocks
 * errors   E_NOTFOUND; E_CHANGED from the commit
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

/* E_NOTFOUND: there is no such blob. E_CORRUPT: its row cannot be decoded; the drop is usable all
 * the same. */
MUST_USE int drop_look(struct store *s, const struct digest *d, struct drop *out, struct err *e);
void drop_free(struct drop *x);
/* Iterates over the holders in order: *at starts at 0; false at the end. Keys that cannot be parsed
 * are skipped. */
bool drop_holder(const struct drop *x, size_t *at, struct slice *repo, char *kind,
                 struct slice *key);
/* Removes the blob's rows, its 'o' holders and their objects; other holders stay. The file follows,
 * as `after` says. */
void drop_put(const struct drop *x, struct batch *b, enum after_kind after);

struct drops {
    struct drop *drop;
    size_t count;
};
int drops_check(struct store *s, void *drops, struct err *e); /* for batch_check() */

/* Removes those blobs that have no holder. One that changes in the meantime or cannot be read is
 * left to a later collection. */
void drop_unheld(struct store *s, const struct digest *d, size_t count);

/* Parses a row's key in TABLE_HOLDER. */
MUST_USE bool holder_parse(struct slice row_key, struct slice *repo, char *kind, struct slice *key);
/* The first key after all keys that begin with prefix; false: there is none. */
MUST_USE bool key_after_prefix(struct slice prefix, struct buf *out);

#endif
