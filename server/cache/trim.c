/* trim.c - which variants of an object leave when one comes: those that it answers for, and beyond VARIANTS_MAX the least used. What
 * is pinned stays: then the newcomer is not kept, or anybody could put it out by asking for another a few times. */

#include "common/base/log.h"
#include "server/cache/cache_priv.h"
#include "server/cache/variant.h"
#include "server/store/atime.h"
#include "server/store/pin.h"

struct rival {
    struct slice tail;
    struct digest digest;
    uint64_t used; /* the later, the more: its last hour, then when its origin last spoke of it */
};

struct trim {
    struct fill *fill;
    struct batch *batch;
    struct slice row_key; /* without a tail */
    struct arena arena;
    struct rival rival[VARIANTS_MAX];
    size_t rivals;
};

static void drop(struct trim *t, const struct rival *r)
{
    struct buf row_key = BUF_INIT(OBJECT_KEY_MAX);
    struct buf holder = BUF_INIT(OBJECT_KEY_MAX);

    variant_key(&row_key, t->row_key, r->tail);
    batch_del(t->batch, TABLE_OBJECT, buf_slice(&row_key));
    holder_key(&holder, &r->digest, t->fill->want.repo, 'o', object_key_tail(buf_slice(&row_key)));
    batch_del(t->batch, TABLE_HOLDER, buf_slice(&holder));
    CHECK(row_key.rc == 0 && holder.rc == 0);
    buf_free(&row_key);
    buf_free(&holder);
}

static uint64_t used(struct cache *c, const struct object *o)
{
    uint32_t hour = 0;

    if (atime_hour(c->store, &o->digest, &hour, NULL) != 0) {
        hour = 0;
    }
    return (uint64_t)hour << 40 | (o->validated_unix_s & (((uint64_t)1 << 40) - 1));
}

/* Keeps the newcomer's place free. */
static void stays(struct trim *t, const struct rival *r)
{
    size_t least = 0;

    if (t->rivals < VARIANTS_MAX - 1) {
        t->rival[t->rivals++] = *r;
        return;
    }
    for (size_t i = 1; i < t->rivals; i++) {
        least = t->rival[i].used < t->rival[least].used ? i : least;
    }
    if (t->rival[least].used < r->used) {
        drop(t, &t->rival[least]);
        t->rival[least] = *r;
    } else {
        drop(t, r);
    }
}

static int on_variant(void *arg, struct slice tail, struct slice row)
{
    struct trim *t = arg;
    struct rival r = {.tail = arena_copy(&t->arena, tail)};
    struct arena a = {0};
    struct object o;

    if (slice_eq(tail, t->fill->tail)) {
        return 0; /* its row is replaced */
    }
    if (object_decode(row, &a, &o)) {
        r.digest = o.digest;
        r.used = used(t->fill->cache, &o);
        if (variant_suits(tail, &t->fill->want)) {
            drop(t, &r);
        } else {
            stays(t, &r);
        }
    }
    arena_fini(&a);
    return 0;
}

static struct slice without_tail(const struct fill *f)
{
    return slice_first(f->row_key, f->row_key.n - (f->tail.n != 0 ? 1 + f->tail.n : 0));
}

struct tally {
    const struct fill *fill;
    size_t others;
    bool replaces; /* one of them: none has to go */
};

static int tally_variant(void *arg, struct slice tail, struct slice row)
{
    struct tally *y = arg;

    (void)row;
    y->others++;
    y->replaces =
        y->replaces || slice_eq(tail, y->fill->tail) || variant_suits(tail, &y->fill->want);
    return 0;
}

static bool is_pinned(const struct fill *f)
{
    struct pins pins;
    struct err e;
    bool yes = pins_load(f->cache->store, &pins, &e) >= 0 &&
               pins_cover(&pins, f->want.repo, object_key_tail(without_tail(f)));

    pins_free(&pins);
    return yes;
}

bool variants_refuse(struct fill *f)
{
    struct tally y = {.fill = f};
    struct err e;

    return f->tail.n != 0 && variants_each(f->cache, without_tail(f), tally_variant, &y, &e) == 0 &&
           !y.replaces && y.others >= VARIANTS_MAX && is_pinned(f);
}

void variants_trim(struct fill *f, struct batch *b)
{
    struct trim t = {.fill = f, .batch = b, .row_key = without_tail(f)};
    struct err e;

    if (variants_each(f->cache, t.row_key, on_variant, &t, &e) != 0) {
        log_warn("cache.variants", "why=\"%s\"", e.text); /* one too many does no harm */
    }
    arena_fini(&t.arena);
}
