/* hit.c - finds the row that answers a lookup: its key's own, one of the key's variants, or another
 * key's with the same digest. */

#include <stdlib.h>

#include "server/cache/cache_priv.h"
#include "server/cache/variant.h"

void hit_free(struct hit **hp)
{
    struct hit *h = *hp;

    *hp = NULL;
    if (h != NULL) {
        blob_release(&h->blob);
        arena_fini(&h->arena);
        free(h);
    }
}

/* Takes a row's bytes apart and opens its blob. */
static int hit_of_row(struct cache *c, struct slice row, struct slice vary_key,
                      const struct lookup *w, struct hit **out, struct err *e)
{
    struct hit *h = NEW(struct hit);
    int rc = 0;

    if (!object_decode(row, &h->arena, &h->object) || !object_answers(&h->object, w) ||
        !variant_answers(&h->object, vary_key, w)) {
        rc = err_set(e, E_NOTFOUND, "the row is of another object than the one requested");
        goto out;
    }
    h->vary_key = arena_copy(&h->arena, vary_key);
    rc = blob_open(c->store, &h->object.digest, &h->blob, e);
    if (rc != 0) {
        rc = E_NOTFOUND; /* evicted, or damaged and taken away: it is fetched again */
        goto out;
    }
    *out = h;
    h = NULL;
out:
    hit_free(&h);
    return rc;
}

static int find_at(struct cache *c, struct slice row_key, const struct lookup *w, struct hit **out,
                   struct err *e)
{
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    int rc = store_get(c->store, TABLE_OBJECT, row_key, &row, e);

    *out = NULL;
    rc = rc != 0 ? rc : hit_of_row(c, buf_slice(&row), SLICE(""), w, out, e);
    buf_free(&row);
    return rc;
}

/* --- variants --------------------------------------------------------------------------------- */

struct walk {
    size_t skip; /* of a row's key, up to the tail */
    int (*each)(void *arg, struct slice vary_key, struct slice row);
    void *arg;
};

static int on_object_row(void *arg, struct slice row_key, struct slice row)
{
    struct walk *w = arg;

    return w->each(w->arg, slice_from(row_key, w->skip), row);
}

int variants_each(struct cache *c, struct slice row_key,
                  int (*each)(void *arg, struct slice vary_key, struct slice row), void *arg,
                  struct err *e)
{
    struct buf from = BUF_INIT(OBJECT_KEY_MAX);
    struct buf to = BUF_INIT(OBJECT_KEY_MAX);
    struct walk w = {row_key.n + 1, each, arg};
    int rc;

    variant_key(&from, row_key, SLICE("~"));
    variant_key(&to, row_key, SLICE("\x7f")); /* what follows '~' */
    rc = store_scan(c->store, TABLE_OBJECT, buf_slice(&from), buf_slice(&to), on_object_row, &w, e);
    buf_free(&from);
    buf_free(&to);
    return rc;
}

struct choice {
    const struct lookup *lookup;
    uint64_t latest_unix_s; /* of those that suit */
    struct buf vary_key, row;
    uint64_t like_unix_s; /* of all */
    struct buf like;
};

static void set_hit_field(struct buf *to, struct slice s)
{
    buf_clear(to);
    buf_adds(to, s);
}

/* Of several that suit the latest counts (RFC 9111 4.1). */
static int on_variant(void *arg, struct slice vary_key, struct slice row)
{
    struct choice *x = arg;
    struct arena a = {0};
    struct object o;

    if (object_decode(row, &a, &o)) {
        if (o.validated_unix_s >= x->like_unix_s) {
            x->like_unix_s = o.validated_unix_s;
            set_hit_field(&x->like, vary_key);
        }
        if (o.validated_unix_s >= x->latest_unix_s && variant_answers(&o, vary_key, x->lookup)) {
            x->latest_unix_s = o.validated_unix_s;
            set_hit_field(&x->vary_key, vary_key);
            set_hit_field(&x->row, row);
        }
    }
    arena_fini(&a);
    return 0;
}

static int find_variant(struct cache *c, struct slice row_key, const struct lookup *w,
                        struct hit **out, struct buf *like, struct err *e)
{
    struct choice x = {
        w, 0, BUF_INIT(VARY_KEY_MAX), BUF_INIT(OBJECT_ROW_MAX), 0, BUF_INIT(VARY_KEY_MAX)};
    int rc = variants_each(c, row_key, on_variant, &x, e);

    *out = NULL;
    if (rc == 0) {
        rc = x.row.n == 0 ? E_NOTFOUND
                          : hit_of_row(c, buf_slice(&x.row), buf_slice(&x.vary_key), w, out, e);
    }
    if (like != NULL) {
        set_hit_field(like, buf_slice(&x.like));
    }
    buf_free(&x.vary_key);
    buf_free(&x.row);
    buf_free(&x.like);
    return rc;
}

/* --- all of it -------------------------------------------------------------------------------- */

struct held_search {
    struct cache *cache;
    const struct lookup *lookup;
    struct hit *hit;
};

static int try_holder(void *arg, struct slice repo, char kind, struct slice key)
{
    struct held_search *s = arg;
    const struct lookup *w = s->lookup;
    struct buf row_key = BUF_INIT(OBJECT_KEY_MAX);

    /* A NUL: it was fetched with somebody's own credential. */
    if (kind == 'o' && slice_eq(repo, w->repo) && slice_find(key, '\0') < 0 &&
        memmem(key.p, key.n, w->held_by.p, w->held_by.n) != NULL) {
        object_key(&row_key, repo, key, SLICE(""));
        if (row_key.rc == 0) {
            (void)find_at(s->cache, buf_slice(&row_key), w, &s->hit, NULL);
        }
    }
    buf_free(&row_key);
    return s->hit != NULL;
}

/* A variant goes before the key's own row: some origins do not say Vary when a request asks for
 * nothing in particular, and that answer would be everybody's (RFC 9111 4.1). What neither has may
 * have come by another name: layers are in many images. */
int hit_find(struct cache *c, struct slice row_key, const struct lookup *w, struct hit **out,
             struct buf *like, struct err *e)
{
    struct held_search s = {.cache = c, .lookup = w};
    int rc = lookup_varies(w) ? find_variant(c, row_key, w, out, like, e) : E_NOTFOUND;

    if (rc == E_NOTFOUND) {
        rc = find_at(c, row_key, w, out, e);
    }
    if (rc == E_NOTFOUND && w->digest_known && w->held_by.p != NULL && w->principal.n == 0) {
        rc = holder_each(c->store, &w->digest, try_holder, &s, e);
        *out = s.hit;
        rc = s.hit != NULL ? 0 : rc < 0 ? rc : E_NOTFOUND;
    }
    return rc;
}
