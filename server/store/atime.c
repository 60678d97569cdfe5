#include "server/store/atime.h"

#include <stdlib.h>

#include "common/base/endian.h"
#include "server/store/state.h"

enum { PROBES = 16, RECENT = 1 << 16 };

struct atime {
    struct digest digest;
    uint32_t hour;    /* 0: the slot is free */
    uint32_t written; /* what its row says; 0: not known */
};

void atimes_init(struct atimes *x)
{
    lock_init(&x->lock, LOCK_LEAF);
    x->slot = mem_array(ATIME_SLOTS, sizeof x->slot[0]);
    x->recent = mem_array(RECENT, sizeof x->recent[0]);
}

void atimes_fini(struct atimes *x)
{
    free(x->slot);
    free(x->recent);
    lock_fini(&x->lock);
}

/* Its slot, or a free one near it, or NULL. Digests are uniform: any of their bytes are a hash. */
static struct atime *atime_slot(struct atimes *x, const struct digest *d)
{
    size_t at = (size_t)be_get(d->b + 8, 8);

    for (size_t i = 0; i < PROBES; i++) {
        struct atime *a = &x->slot[(at + i) % ATIME_SLOTS];
        if (a->hour == 0 || digest_eq(&a->digest, d)) {
            return a;
        }
    }
    return NULL;
}

static bool due(const struct atime *a)
{
    return a->hour != 0 && (a->written == 0 || a->hour >= a->written + ATIME_STEP_HOURS);
}

static void note_atime(struct atimes *x, const struct digest *d, uint32_t hour)
{
    struct atime *a = atime_slot(x, d);

    if (a == NULL) {
        return;
    }
    if (a->hour == 0) {
        *a = (struct atime){.digest = *d};
        x->used++;
    }
    if (hour > a->hour) {
        bool was_due = due(a);
        a->hour = hour;
        x->dirty += due(a) && !was_due;
    }
}

static void atime_touch(struct atimes *x, const struct digest *d, uint32_t hour)
{
    uint32_t tag = ((uint32_t)be_get(d->b + 2, 3) << 8) | (hour & 255);
    _Atomic uint32_t *seen = &x->recent[be_get(d->b, 2)].tag;

    if (atomic_load_explicit(seen, memory_order_relaxed) == tag) {
        return; /* the hot path: this blob was noted in this hour */
    }
    lock_take(&x->lock);
    note_atime(x, d, hour);
    lock_drop(&x->lock);
    atomic_store_explicit(seen, tag, memory_order_relaxed);
}

size_t atime_collect(struct atimes *x, struct batch *b, size_t max)
{
    size_t n = 0;

    lock_take(&x->lock);
    for (size_t i = 0; i < ATIME_SLOTS && n < max && x->dirty != 0; i++) {
        struct atime *a = &x->slot[i];
        char value[4];

        if (due(a)) {
            be_put(value, 4, a->hour);
            batch_put(b, TABLE_ATIME, digest_key(&a->digest), slice_of(value, 4));
            a->written = a->hour;
            x->dirty--;
            n++;
        }
    }
    if (x->dirty == 0 && x->used > ATIME_SLOTS / 2) {
        memset(x->slot, 0, ATIME_SLOTS * sizeof x->slot[0]);
        x->used = 0;
    }
    lock_drop(&x->lock);
    return n;
}

int atime_hour(struct store *s, const struct digest *d, uint32_t *hour, struct err *e)
{
    struct buf row = BUF_INIT(64);
    struct atime *a;
    int rc = kv_get(s->kv, TABLE_ATIME, digest_key(d), &row, e);

    *hour = rc == 0 && row.n >= 4 ? (uint32_t)be_get(row.p, 4) : 0;
    buf_free(&row);
    lock_take(&s->atimes.lock);
    a = atime_slot(&s->atimes, d);
    if (a != NULL && a->hour > *hour) {
        *hour = a->hour;
    }
    lock_drop(&s->atimes.lock);
    return rc == E_NOTFOUND ? 0 : rc;
}

void blob_touch(struct store *s, const struct digest *d, uint64_t unix_s)
{
    atime_touch(&s->atimes, d, hour_of(unix_s));
}
