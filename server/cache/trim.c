/* trim.c - which variants of an object leave when one comes: those that it answers for, and beyond VARIANTS_MAX the least used. What
 * is pinned stays: then the newcomer is not kept, or anybody could put it out by asking for another a few times. */

#include "common/base/log.h"
#include "server/cache/fill_priv.h"
#include "server/cache/variant.h"
#include "server/store/atime.h"
#include "server/store/pin.h"

struct rival {
    struct slice tail;
    struct digest digest;
    uint64_t used; /* the later, the more: its last hour, then when its origin last spoke of it */
};

struct trim {
    const struct variant_comes *comes;
    struct batch *batch;
    struct arena arena;
    struct rival rival[VARIANTS_MAX];
    size_t rivals;
};

static void drop(struct trim *t, const struct rival *r)
{
    struct buf row_key = BUF_INIT(OBJECT_KEY_MAX);
    struct buf holder = BUF_INIT(OBJECT_KEY_MAX);

    variant_key(&row_key, t->comes->row_key, r->tail);
    batch_del(t->batch, TABLE_OBJECT, buf_slice(&row_key));
    holder_key(&holder, &r->digest, t->comes->want->repo, 'o',
               object_key_tail(buf_slice(&row_key)));
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

    if (slice_eq(tail, t->comes->tail)) {
        return 0; /* its row is replaced */
    }
    if (object_decode(row, &a, &o)) {
        r.digest = o.digest;
        r.used = used(t->comes->cache, &o);
        if (variant_suits(tail, t->comes->want)) {
            drop(t, &r);
        } else {
            stays(t, &r);
        }
    }
    arena_fini(&a);
    return 0;
}

struct tally {
    const struct variant_comes *comes;
    size_t others;
    bool replaces; /* one of them: none has to go */
};

static int tally_variant(void *arg, struct slice tail, struct slice row)
{
    struct tally *y = arg;

    (void)row;
    y->others++;
    y->replaces =
        y->replaces || slice_eq(tail, y->comes->tail) || variant_suits(tail, y->comes->want);
    return 0;
}

static bool is_pinned(const struct variant_comes *v)
{
    struct pin_table pins;
    struct err e;
    bool yes = pins_load(v->cache->store, &pins, &e) >= 0 &&
               pins_cover(&pins, v->want->repo, object_key_tail(v->row_key));

    pins_free(&pins);
    return yes;
}

bool variants_refuse(const struct variant_comes *v)
{
    struct tally y = {.comes = v};
    struct err e;

    return v->tail.n != 0 && variants_each(v->cache, v->row_key, tally_variant, &y, &e) == 0 &&
           !y.replaces && y.others >= VARIANTS_MAX && is_pinned(v);
}

void variants_trim(const struct variant_comes *v, struct batch *b)
{
    struct trim t = {.comes = v, .batch = b};
    struct err e;

    if (variants_each(v->cache, v->row_key, on_variant, &t, &e) != 0) {
        log_warn("cache.variants", "why=\"%s\"", e.text); /* one too many does no harm */
    }
    arena_fini(&t.arena);
}
