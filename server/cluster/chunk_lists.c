#include "server/cluster/chunk_lists.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/lock.h"
#include "server/cluster/content_fetch.h"
#include "server/cluster/place.h"

enum { KEPT = 8, KEPT_BYTES_MAX = 1 << 20 };

struct kept_list {
    struct digest digest;
    struct buf bytes; /* n == 0: none */
};

struct chunk_lists {
    struct chunk_lists_settings set;
    struct lock lock; /* LOCK_LEAF; guards what follows */
    struct kept_list kept[KEPT];
    unsigned next; /* which one is replaced */
};

/* --- the lists that were asked for last: all nodes of a job ask for the same one --- */

static bool recall(struct chunk_lists *l, const struct digest *d, struct buf *out)
{
    bool found = false;

    lock_take(&l->lock);
    for (size_t i = 0; i < KEPT && !found; i++) {
        const struct kept_list *k = &l->kept[i];
        if (k->bytes.n != 0 && digest_eq(&k->digest, d)) {
            buf_adds(out, buf_slice(&k->bytes));
            found = true;
        }
    }
    lock_drop(&l->lock);
    return found;
}

static void keep(struct chunk_lists *l, const struct digest *d, const struct buf *list)
{
    struct kept_list *k;

    if (list->n > KEPT_BYTES_MAX) {
        return;
    }
    lock_take(&l->lock);
    k = &l->kept[l->next++ % KEPT];
    k->digest = *d;
    buf_clear(&k->bytes);
    buf_adds(&k->bytes, buf_slice(list));
    lock_drop(&l->lock);
}

/* --- from the bucket --- */

static int on_list_bytes(void *arg, uint64_t offset, struct slice bytes)
{
    struct buf *out = arg;

    (void)offset;
    buf_clear(out);
    buf_adds(out, bytes);
    return out->rc;
}

static int fetch_list(struct chunk_lists *l, const struct digest *d, struct buf *out, struct err *e)
{
    const struct content_fetch f = {l->set.bucket, l->set.retry_ms, l->set.stop, on_list_bytes,
                                    out};
    struct place p;
    int rc = place_get(l->set.store, CONTENT_CHUNKS, d, &p, e);

    if (rc != 0) {
        return rc;
    }
    rc = content_fetch(&f, &p.item, &p.object, e);
    if (rc == E_CORRUPT) {
        log_warn("cluster.chunk_list_damaged", "why=\"%s\"", e->text);
        rc = err_set(e, E_NOTFOUND, "the chunk list in the bucket is damaged");
    }
    return rc;
}

int chunk_lists_get(struct chunk_lists *l, const struct digest *d, struct buf *out, struct err *e)
{
    struct place blob;
    int rc = place_get(l->set.store, CONTENT_BLOB, d, &blob, e);

    buf_clear(out);
    if (rc != 0) {
        return rc;
    }
    if (blob.item.length_bytes <= CHUNK_BYTES) { /* its one chunk is the file */
        chunks_encode(d, blob.item.length_bytes, d, blob.item.length_bytes != 0, out);
        return out->rc;
    }
    if (recall(l, d, out)) {
        return out->rc;
    }
    rc = fetch_list(l, d, out, e);
    if (rc == 0) {
        keep(l, d, out);
    }
    return rc;
}

/* --- into the bucket --- */

int chunk_list_of_file(struct store *s, const struct batch_rows *rows, const struct digest *d,
                       struct buf *out, struct err *e)
{
    struct slice key = slice_of(d->b, DIGEST_BYTES), value;

    buf_clear(out);
    if (batch_rows_get(rows, TABLE_CHUNKS, key, &value)) {
        buf_adds(out, value);
        return out->rc;
    }
    return store_get(s, TABLE_CHUNKS, key, out, e);
}

/* --- open and close --- */

struct chunk_lists *chunk_lists_open(const struct chunk_lists_settings *set)
{
    struct chunk_lists *l = NEW(struct chunk_lists);

    l->set = *set;
    lock_init(&l->lock, LOCK_LEAF);
    for (size_t i = 0; i < KEPT; i++) {
        l->kept[i].bytes = BUF_INIT(KEPT_BYTES_MAX);
    }
    return l;
}

void chunk_lists_close(struct chunk_lists **lp)
{
    struct chunk_lists *l = *lp;

    *lp = NULL;
    if (l == NULL) {
        return;
    }
    for (size_t i = 0; i < KEPT; i++) {
        buf_free(&l->kept[i].bytes);
    }
    lock_fini(&l->lock);
    free(l);
}
