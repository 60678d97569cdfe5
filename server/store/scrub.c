#include <fcntl.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "server/store/damage.h"
#include "server/store/keep.h"
#include "server/store/row.h"
#include "server/store/state.h"

enum { ROW_MAX = 4096 };

#define CURSOR SLICE("scrub_cursor")

struct scrub {
    struct store *s;
    struct buf key;
    struct buf row;
    uint64_t before_unix_s;
    struct err *e;
};

/* Notes that the blob was whole now; when its row changed meanwhile, the newer row stands. */
static void note_verified(struct scrub *x, const struct digest *d, struct blob_row r)
{
    char row[BLOB_ROW_BYTES];
    struct batch *b = batch_new();

    r.verified_unix_s = clock_unix_s();
    blob_row_encode(&r, row);
    batch_require_value(b, TABLE_BLOB, digest_key(d), buf_slice(&x->row));
    batch_put(b, TABLE_BLOB, digest_key(d), slice_of(row, sizeof row));
    if (store_commit(x->s, &b, COMMIT_LAZY, NULL) != 0) {
        return; /* it is hashed again in the next round */
    }
}

static int hash_blob(struct store *s, const struct digest *d, bool *same, struct err *e)
{
    struct blob *b = NULL;
    struct digest got;
    int rc = blob_open(s, d, &b, e);

    if (rc == 0 && blob_fd(b) == -1) {
        digest_of(blob_bytes(b), &got);
    } else if (rc == 0) {
        rc = digest_of_fd(blob_fd(b), blob_size_bytes(b), &got, e);
        if (rc == E_CORRUPT) { /* it ends early */
            memset(&got, 0, sizeof got);
            rc = 0;
        }
        /* What nobody else reads shall not push out what clients do. */
        (void)posix_fadvise(blob_fd(b), 0, 0, POSIX_FADV_DONTNEED);
    }
    *same = rc == 0 && digest_eq(&got, d);
    blob_release(&b);
    return rc;
}

int blob_hash_check(struct store *s, const struct digest *d, bool *whole, struct err *e)
{
    int rc = hash_blob(s, d, whole, e);

    if (rc == E_IO || (rc == 0 && !*whole)) { /* once more: memory and cables err too */
        rc = hash_blob(s, d, whole, e);
    }
    return rc;
}

static int scrub_one(struct scrub *x, const struct digest *d, uint64_t *read_bytes,
                     uint64_t *damaged)
{
    struct blob_row r;
    bool whole = false;
    int rc = blob_row_decode(buf_slice(&x->row), &r, x->e);

    if (rc == 0 && max_u64(r.verified_unix_s, r.created_unix_s) >= x->before_unix_s) {
        return 0;
    }
    if (rc == 0) {
        *read_bytes += r.size_bytes;
        rc = blob_hash_check(x->s, d, &whole, x->e);
    }
    if (rc == 0 && whole) {
        note_verified(x, d, r);
    } else if (rc == 0 || rc == E_CORRUPT || rc == E_IO) {
        enum damage how = rc == E_IO ? DAMAGE_UNREADABLE : DAMAGE_BYTES;
        int dropped = rc == E_CORRUPT ? 0 : damage_confirm(x->s, d, how, x->e);
        *damaged += dropped == 0 || dropped == E_IO;
        rc = dropped == E_CHANGED || dropped == E_IO ? 0 : dropped;
    }
    return rc == E_NOTFOUND ? 0 : rc;
}

static void set_cursor(struct scrub *x, struct slice at)
{
    struct batch *b = batch_new();

    batch_put(b, TABLE_META, CURSOR, at);
    if (store_commit(x->s, &b, COMMIT_LAZY, NULL) != 0) {
        return; /* some blobs are hashed twice */
    }
}

int scrub_step(struct store *s, uint64_t budget_bytes, uint64_t before_unix_s, uint64_t *read_bytes,
               uint64_t *damaged, struct err *e)
{
    struct scrub x = {s, BUF_INIT(ROW_MAX), BUF_INIT(ROW_MAX), before_unix_s, e};
    struct buf at = BUF_INIT(ROW_MAX);
    int rc = kv_get(s->kv, TABLE_META, CURSOR, &at, e);

    *read_bytes = *damaged = 0;
    rc = rc == E_NOTFOUND ? 0 : rc;
    while (rc == 0 && *read_bytes < budget_bytes) {
        struct digest d;
        rc = kv_first(s->kv, TABLE_BLOB, buf_slice(&at), &x.key, &x.row, e);
        if (rc == E_NOTFOUND) { /* the round is done; the next step begins another */
            buf_clear(&at);
            rc = 0;
            break;
        }
        if (rc != 0) {
            break;
        }
        if (x.key.n == DIGEST_BYTES) {
            memcpy(d.b, x.key.p, DIGEST_BYTES);
            rc = scrub_one(&x, &d, read_bytes, damaged);
        }
        buf_clear(&at);
        buf_adds(&at, buf_slice(&x.key));
        buf_byte(&at, 0);
    }
    set_cursor(&x, buf_slice(&at));
    buf_free(&at);
    buf_free(&x.key);
    buf_free(&x.row);
    return rc;
}
