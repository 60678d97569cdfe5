#include "server/store/drop.h"

#include "common/base/endian.h"
#include "common/base/log.h"
#include "server/store/state.h"

enum { HOLDERS_MAX = 64 << 20, ROW_MAX = 4096, UNHELD_AT_ONCE = 64 };

static int add_holder(void *arg, struct slice key, struct slice value)
{
    struct drop *x = arg;
    struct slice repo, rest;
    char kind = 0;

    (void)value;
    buf_counted(&x->holders, 4, key);
    if (holder_parse(key, &repo, &kind, &rest) && kind == 'o') {
        x->objects++;
    } else {
        x->others++;
    }
    return 0;
}

int drop_look(struct store *s, const struct digest *d, struct drop *out, struct err *e)
{
    struct buf end = BUF_INIT(DIGEST_BYTES);
    bool bounded = key_after_prefix(digest_key(d), &end);
    int rc;

    *out = (struct drop){
        .digest = *d, .row_bytes = BUF_INIT(ROW_MAX), .holders = BUF_INIT(HOLDERS_MAX)};
    rc = kv_get(s->kv, TABLE_BLOB, digest_key(d), &out->row_bytes, e);
    if (rc == 0) {
        rc = kv_scan(s->kv, NULL, TABLE_HOLDER, digest_key(d),
                     bounded ? buf_slice(&end) : SLICE_NONE, add_holder, out, e);
    }
    if (rc == 0 && out->holders.rc != 0) {
        rc = err_set(e, out->holders.rc, "the blob has too many holders");
    }
    rc = rc != 0 ? rc : blob_row_decode(buf_slice(&out->row_bytes), &out->row, e);
    buf_free(&end);
    return rc;
}

void drop_free(struct drop *x)
{
    buf_free(&x->row_bytes);
    buf_free(&x->holders);
}

static bool next_key(const struct drop *x, size_t *at, struct slice *key)
{
    if (*at == x->holders.n) {
        return false;
    }
    *key = slice_of(x->holders.p + *at + 4, (size_t)be_get(x->holders.p + *at, 4));
    *at += 4 + key->n;
    return true;
}

bool drop_holder(const struct drop *x, size_t *at, struct slice *repo, char *kind,
                 struct slice *key)
{
    struct slice row_key;

    while (next_key(x, at, &row_key)) {
        if (holder_parse(row_key, repo, kind, key)) {
            return true;
        }
    }
    return false;
}

void drop_put(const struct drop *x, struct batch *b, enum after_kind after)
{
    static const enum table of_blob[] = {TABLE_BLOB, TABLE_INLINE, TABLE_CHUNKS, TABLE_PIECES,
                                         TABLE_ATIME};
    struct buf object = BUF_INIT(KV_KEY_MAX);
    struct slice row_key, repo, key;
    char kind;

    for (size_t i = 0; i < ARRAY_LEN(of_blob); i++) {
        batch_del(b, of_blob[i], digest_key(&x->digest));
    }
    for (size_t at = 0; next_key(x, &at, &row_key);) {
        if (!holder_parse(row_key, &repo, &kind, &key) || kind != 'o') {
            continue;
        }
        buf_clear(&object);
        buf_adds(&object, repo);
        buf_byte(&object, 0);
        buf_adds(&object, key);
        batch_del(b, TABLE_OBJECT, buf_slice(&object));
        batch_del(b, TABLE_HOLDER, row_key);
    }
    buf_free(&object);
    batch_after(b, after, &x->digest, 0);
}

static int check_drop(struct store *s, const struct drop *x, struct err *e)
{
    struct drop now;
    int rc = drop_look(s, &x->digest, &now, e);

    if (rc == E_NOTFOUND) {
        rc = err_set(e, E_CHANGED, "the blob was deleted in the meantime");
    } else if ((rc == 0 || rc == E_CORRUPT) &&
               (!slice_eq(buf_slice(&now.row_bytes), buf_slice(&x->row_bytes)) ||
                !slice_eq(buf_slice(&now.holders), buf_slice(&x->holders)) ||
                seal_entered(s, &x->digest))) {
        rc = err_set(e, E_CHANGED, "the blob is in use again");
    } else if (rc == E_CORRUPT) {
        rc = 0;
    }
    drop_free(&now);
    return rc;
}

int drops_check(struct store *s, void *drops, struct err *e)
{
    struct drops *all = drops;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < all->count; i++) {
        rc = check_drop(s, &all->drop[i], e);
    }
    return rc;
}

/* Whoever holds one of them in the same moment is safe: either drops_check() sees the holder, or
 * the batch with the holder fails because the blob is gone. */
static int drop_some(struct store *s, const struct digest *d, size_t count, struct err *e)
{
    struct drop drop[UNHELD_AT_ONCE];
    struct drops all = {drop, 0};
    struct batch *b = batch_new();
    int rc = 0;

    CHECK(count <= UNHELD_AT_ONCE);
    batch_check(b, drops_check, &all);
    for (size_t i = 0; i < count; i++) {
        struct drop *x = &drop[all.count];
        if (drop_look(s, &d[i], x, NULL) == 0 && x->objects + x->others == 0 &&
            !seal_entered(s, &d[i])) {
            drop_put(x, b, AFTER_UNLINK);
            all.count++;
        } else {
            drop_free(x);
        }
    }
    if (all.count != 0) {
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    for (size_t i = 0; i < all.count; i++) {
        drop_free(&drop[i]);
    }
    return rc;
}

void drop_unheld(struct store *s, const struct digest *d, size_t count)
{
    struct err e = {0};

    for (size_t i = 0; i < count; i += UNHELD_AT_ONCE) {
        size_t n = (size_t)min_u64(count - i, UNHELD_AT_ONCE);
        int rc = drop_some(s, d + i, n, &e);
        if (rc != 0 && rc != E_CHANGED) {
            log_warn("store.unheld", "why=\"%s\"", e.text);
        }
    }
    space_freed(s);
}
