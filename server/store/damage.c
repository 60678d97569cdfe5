#include "server/store/damage.h"

#include <stdatomic.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/store/drop.h"
#include "server/store/state.h"

struct damaged {
    struct drops drops;
    enum damage how;
};

static int look_inline(struct store *s, const struct digest *d, uint64_t size_bytes, struct err *e)
{
    struct buf bytes = BUF_INIT(BLOB_INLINE_BYTES);
    int rc = kv_get(s->kv, TABLE_INLINE, digest_key(d), &bytes, e);

    if (rc == E_NOTFOUND) {
        rc = err_set(e, E_CORRUPT, "its inline bytes are missing");
    } else if (rc == E_TOOBIG || (rc == 0 && bytes.n != size_bytes)) {
        rc = err_set(e, E_CORRUPT, "its inline bytes are not of its size");
    }
    buf_free(&bytes);
    return rc;
}

static int look_place(struct store *s, const struct drop *x, struct err *e)
{
    struct blob *b = NULL;
    int rc;

    if (x->row.place == BLOB_INLINE) {
        return look_inline(s, &x->digest, x->row.size_bytes, e);
    }
    rc = blob_open_file(s, &x->digest, x->row.size_bytes, &b, e);
    blob_release(&b);
    return rc == E_NOTFOUND ? err_set(e, E_CORRUPT, "its file is missing") : rc;
}

int damage_look(struct store *s, const struct digest *d, struct err *e)
{
    struct drop x;
    int rc = drop_look(s, d, &x, e);

    rc = rc != 0 ? rc : look_place(s, &x, e);
    drop_free(&x);
    return rc;
}

static int still_damaged(struct store *s, void *arg, struct err *e)
{
    struct damaged *x = arg;
    const struct drop *one = x->drops.drop;
    int rc = drops_check(s, &x->drops, e);

    if (rc != 0 || x->how != DAMAGE_PLACE || one->row.place == 0) {
        return rc;
    }
    rc = look_place(s, one, e);
    return rc == 0 ? err_set(e, E_CHANGED, "the blob is whole") : rc == E_CORRUPT ? 0 : rc;
}

static void count(struct store *s)
{
    if (atomic_fetch_add(&s->damaged, 1) == 0) {
        atomic_store(&s->damaged_since_unix_s, clock_unix_s());
    }
}

uint64_t store_damaged(const struct store *s, uint64_t *since_unix_s)
{
    *since_unix_s = atomic_load(&s->damaged_since_unix_s);
    return atomic_load(&s->damaged);
}

int damage_confirm(struct store *s, const struct digest *d, enum damage how, struct err *e)
{
    struct drop x;
    struct damaged arg = {{&x, 1}, how};
    char hex[DIGEST_HEX + 1];
    int rc = drop_look(s, d, &x, e);

    digest_format(d, hex);
    if (rc == 0 && how == DAMAGE_UNREADABLE && x.others != 0) {
        count(s);
        log_error("store.unreadable", "blob=%s held=%zu", hex, x.others);
        rc = err_set(e, E_IO, "it cannot be read, and no origin has it");
    } else if (rc == E_NOTFOUND) {
        rc = err_set(e, E_CHANGED, "the blob is gone by now");
    } else if (rc == 0 || rc == E_CORRUPT) {
        struct batch *b = batch_new();
        batch_check(b, still_damaged, &arg);
        /* Wrong bytes of an upload may be the best copy that is left of it. */
        drop_put(&x, b, x.others != 0 ? AFTER_SET_ASIDE : AFTER_QUARANTINE);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    if (rc == 0) {
        count(s);
        log_error("store.damaged", "blob=%s objects=%zu held=%zu%s", hex, x.objects, x.others,
                  x.others != 0 && x.row.place != BLOB_INLINE ? " kept=quarantine" : "");
    }
    drop_free(&x);
    return rc;
}
