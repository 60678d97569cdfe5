/* kin.c - entries of one key: one for each variant that somebody asks for, or that is remembered.
 *
 * While nobody knows what the key's answers vary by, all wait at one entry, for the head that tells; from then on each variant
 * goes its own way. A key that does not vary has one.
 */

#include <stdlib.h>

#include "server/cache/entry.h"

static struct kin *find(struct cache *c, struct slice row_key)
{
    struct kin *k = NULL;

    HASH_FIND(hh, c->kins, row_key.p, row_key.n, k);
    return k;
}

/* What is said of just these values goes before what is for everybody, and that before what nobody knows yet. */
static int rank(const struct cache_entry *n, const struct want *w)
{
    if (!n->tail_known) {
        return 1;
    }
    return !variant_suits(buf_slice(&n->tail), w) ? 0 : n->tail.n == 0 ? 2 : 3;
}

struct cache_entry *kin_find(struct cache *c, struct slice row_key, const struct want *w)
{
    const struct kin *k = find(c, row_key);
    struct cache_entry *best = NULL;
    int highest = 0;

    if (k == NULL) {
        return NULL;
    }
    LIST_EACH (&k->entries, it) {
        struct cache_entry *n = LIST_ITEM(it, struct cache_entry, node);
        int r = rank(n, w);
        if (r > highest) {
            highest = r;
            best = n;
        }
    }
    return best;
}

bool kin_is_full(struct cache *c, struct slice row_key)
{
    const struct kin *k = find(c, row_key);

    return k != NULL && k->count >= KIN_MAX;
}

void kin_join(struct cache_entry *n, const struct want *w)
{
    struct cache *c = n->cache;
    struct kin *k = find(c, n->row_key);

    if (k == NULL) {
        k = mem_new(sizeof *k + n->row_key.n);
        memcpy(k->bytes, n->row_key.p, n->row_key.n);
        k->row_key = slice_of(k->bytes, n->row_key.n);
        k->like = BUF_INIT(VARIANT_TAIL_MAX);
        list_init(&k->entries);
        HASH_ADD_KEYPTR(hh, c->kins, k->row_key.p, k->row_key.n, k);
    }
    n->kin = k;
    k->count++;
    list_push_back(&k->entries, &n->node);
    if (k->like.n != 0) {
        kin_like(n, w, buf_slice(&k->like));
    }
}

static void free_if_empty(struct cache *c, struct kin *k)
{
    if (k->count == 0 && !k->walked) {
        HASH_DEL(c->kins, k);
        buf_free(&k->like);
        free(k);
    }
}

void kin_leave(struct cache_entry *n)
{
    struct kin *k = n->kin;

    n->kin = NULL;
    list_remove(&n->node);
    k->count--;
    free_if_empty(n->cache, k);
}

void kins_each(struct cache *c, struct slice key, bool below, void (*each)(struct cache_entry *n))
{
    struct kin *k;
    struct kin *tmp;

    HASH_ITER(hh, c->kins, k, tmp)
    {
        if (!object_key_is(k->row_key, key, below)) {
            continue;
        }
        k->walked = true;
        LIST_EACH (&k->entries, it) {
            each(LIST_ITEM(it, struct cache_entry, node));
        }
        k->walked = false;
        free_if_empty(c, k);
    }
}

static void set(struct buf *to, struct slice s)
{
    buf_clear(to);
    buf_adds(to, s);
    CHECK(to->rc == 0);
}

void kin_is(struct cache_entry *n, struct slice tail)
{
    set(&n->tail, tail);
    n->tail_known = true;
    if (n->kin != NULL && tail.n != 0) {
        set(&n->kin->like, tail);
    }
}

void kin_like(struct cache_entry *n, const struct want *w, struct slice tail)
{
    struct arena a = {0};

    kin_is(n, variant_like(w, tail, &a));
    arena_fini(&a);
}

struct cache_entry *kin_rest(struct cache_entry *n)
{
    struct cache_entry *oldest = NULL;
    unsigned resting = 0;

    list_remove(&n->node);
    list_push_back(&n->kin->entries, &n->node);
    LIST_EACH (&n->kin->entries, it) {
        struct cache_entry *m = LIST_ITEM(it, struct cache_entry, node);
        if (list_linked(&m->rest)) {
            oldest = oldest == NULL ? m : oldest;
            resting++;
        }
    }
    return resting > VARIANTS_MAX ? oldest : NULL;
}
