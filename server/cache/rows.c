/* rows.c - lists, removes and expires the objects of a repo by their rows, for administrators.
 *
 * A removal is final: whatever was being fetched, revalidated or committed when it began leaves no
 * row.
 */

#include <stdlib.h>

#include "common/base/log.h"
#include "server/cache/cache_priv.h"
#include "server/cache/row_bytes.h"
#include "server/store/partial.h"

enum { KEYS_MAX = 1 << 30 };

struct listing {
    struct cache *cache;
    struct slice repo;
    struct buf prefix;
    int (*each)(void *arg, const struct object_info *o);
    void *arg;
};

static int list_row(void *arg, struct slice row_key, struct slice row)
{
    struct listing *x = arg;
    struct arena a = {0};
    struct object o;
    int rc = 0;

    if (!slice_starts(row_key, buf_slice(&x->prefix))) {
        return 1;
    }
    if (object_decode(row, &a, &o)) {
        struct object_info info = {
            .repo = x->repo,
            .key = object_key_of_row(row_key),
            .size_bytes = o.size_bytes,
            .digest = o.digest,
            .origin = o.origin,
            .stored_unix_s = o.stored_unix_s,
            .validated_unix_s = o.validated_unix_s,
            .fresh_until_unix_s = o.fresh_until_unix_s,
            .must_ask = o.must_ask,
        };
        rc = x->each(x->arg, &info);
    }
    arena_fini(&a);
    return rc;
}

int cache_list(struct cache *c, struct slice repo, struct slice prefix,
               int (*each)(void *arg, const struct object_info *o), void *arg, struct err *e)
{
    struct listing x = {c, repo, BUF_INIT(OBJECT_KEY_MAX), each, arg};
    int rc;

    object_key(&x.prefix, repo, prefix, SLICE(""));
    rc = x.prefix.rc != 0 ? x.prefix.rc
                          : store_scan(c->store, TABLE_OBJECT, buf_slice(&x.prefix), SLICE_NONE,
                                       list_row, &x, e);
    buf_free(&x.prefix);
    return rc > 0 ? 0 : rc; /* 1: past the prefix */
}

struct unfinished {
    struct slice repo;
    void (*each)(void *arg, struct slice tail, uint64_t have_bytes, uint64_t total_bytes);
    void *arg;
};

static void each_part(void *arg, const struct partial *p)
{
    const struct unfinished *x = arg;
    struct slice tail = partial_name(p);

    if (slice_eq(slice_cut(&tail, '\0'), x->repo)) {
        x->each(x->arg, tail, extents_bytes(&p->have), p->total_bytes);
    }
}

void cache_unfinished(struct cache *c, struct slice repo,
                      void (*each)(void *arg, struct slice tail, uint64_t have_bytes,
                                   uint64_t total_bytes),
                      void *arg)
{
    struct unfinished x = {repo, each, arg};

    lock_take(&c->lock);
    partials_each(c->store, PARTIAL_FETCH, each_part, &x);
    LIST_EACH (&c->fetches, it) {
        struct fetch *f = fetch_of(it);
        struct fetch_view v = fetch_view(f);
        struct slice tail = v.row_key;
        if (!fetch_lookup(f)->head_only && slice_eq(slice_cut(&tail, '\0'), repo)) {
            each(arg, tail, v.have_bytes, v.total_bytes);
        }
    }
    lock_drop(&c->lock);
}

/* --- removal ---------------------------------------------------------------------------------- */

struct cut { /* made on the fetch thread, while the remover waits */
    struct message message;
    struct cache *cache;
    struct slice key; /* of rows */
    bool below;       /* ... and of all that begin so */
    void (*entries)(struct cache *c, struct slice key, bool below);
    struct lock lock;
    struct cond over;
    bool done;
};

static void on_cut(struct message *l)
{
    struct cut *x = CONTAINER_OF(l, struct cut, message);

    x->entries(x->cache, x->key, x->below);
    lock_take(&x->lock);
    x->done = true;
    cond_signal(&x->over);
    lock_drop(&x->lock);
}

/* From here on the fetch thread hands in no row of what began before. What it had handed in is
 * committed: batches keep their order, and an empty one has come through, whatever became of it. */
static void cut_fetches(struct cache *c, struct slice key, bool below,
                        void (*entries)(struct cache *c, struct slice key, bool below))
{
    struct cut x = {
        .message.deliver = on_cut, .cache = c, .key = key, .below = below, .entries = entries};
    struct batch *last = batch_new();
    struct err e;

    lock_init(&x.lock, LOCK_LEAF);
    cond_init(&x.over);
    message_queue_post(c->mail, &x.message);
    lock_take(&x.lock);
    while (!x.done) {
        cond_wait(&x.over, &x.lock);
    }
    lock_drop(&x.lock);
    cond_fini(&x.over);
    lock_fini(&x.lock);
    if (store_commit(c->store, &last, COMMIT_LAZY, &e) != 0) {
        log_debug("cache.remove", "why=\"%s\"", e.text);
    }
}

struct removal {
    struct slice repo;
    struct slice key;
    bool below;
    struct batch *batch;
    struct buf keys; /* of the objects, a length before each */
    uint64_t count;
};

static int remove_row(void *arg, const struct object_info *o)
{
    struct removal *r = arg;
    struct buf key = BUF_INIT(OBJECT_KEY_MAX);

    if (!object_key_is(o->key, r->key, r->below)) {
        return 0;
    }
    object_key(&key, r->repo, o->key, SLICE(""));
    batch_del(r->batch, TABLE_OBJECT, buf_slice(&key));
    buf_clear(&key);
    holder_key(&key, &o->digest, r->repo, 'o', o->key);
    batch_del(r->batch, TABLE_HOLDER, buf_slice(&key));
    buf_free(&key);
    row_put_slice(&r->keys, o->key);
    r->count++;
    return r->keys.rc;
}

static void tell_all(struct cache *c, struct slice repo, struct slice keys)
{
    struct slice key;

    while (keys.n > 0 && row_get_slice(&keys, &key)) {
        cache_changed_post(c, repo, key);
    }
}

struct forgotten {
    struct slice key;
    bool below;
};

static bool is_forgotten(void *arg, const struct partial *p)
{
    const struct forgotten *x = arg;

    return object_key_is(partial_name(p), x->key, x->below);
}

/* What is parked of fetches of these row keys. */
static void drop_parked(struct cache *c, struct slice key, bool below)
{
    partials_lose(c->store, PARTIAL_FETCH, is_forgotten, &(struct forgotten){key, below});
    partials_drop_lost(c->store);
}

int cache_remove(struct cache *c, struct slice repo, struct slice key, bool below,
                 uint64_t *removed, struct err *e)
{
    struct removal r = {repo, key, below, batch_new(), BUF_INIT(KEYS_MAX), 0};
    struct buf prefix = BUF_INIT(OBJECT_KEY_MAX);
    int rc;

    object_key(&prefix, repo, key, SLICE(""));
    rc = prefix.rc != 0 ? err_set(e, prefix.rc, "the key is too long") : 0;
    if (rc == 0) {
        cut_fetches(c, buf_slice(&prefix), below, entries_forget);
        drop_parked(c, buf_slice(&prefix), below);
        rc = cache_list(c, repo, key, remove_row, &r, e);
    }
    rc = rc != 0 ? rc : store_commit(c->store, &r.batch, COMMIT_SYNC, e);
    if (rc == 0) {
        tell_all(c, repo, buf_slice(&r.keys));
    }
    *removed = rc == 0 ? r.count : 0;
    batch_free(&r.batch);
    buf_free(&r.keys);
    buf_free(&prefix);
    return rc;
}

/* --- marked to be revalidated ----------------------------------------------------------------- */

enum { MARKS_A_BATCH = 256 };

struct marking {
    struct cache *cache;
    struct slice repo;
    bool (*lookup)(void *arg, const struct object_info *o);
    void *arg;
    struct buf keys; /* of the objects, a length before each */
};

static int note_key(void *arg, const struct object_info *o)
{
    struct marking *m = arg;

    if (!o->must_ask && m->lookup(m->arg, o)) {
        row_put_slice(&m->keys, o->key);
    }
    return m->keys.rc;
}

/* Adds to b, unless the row is gone. */
static void mark_row(const struct marking *m, struct slice key, struct batch *b)
{
    struct buf row_key = BUF_INIT(OBJECT_KEY_MAX);
    struct buf old = BUF_INIT(OBJECT_ROW_MAX);
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct arena a = {0};
    struct object o;

    object_key(&row_key, m->repo, key, SLICE(""));
    if (store_get(m->cache->store, TABLE_OBJECT, buf_slice(&row_key), &old, NULL) == 0 &&
        object_decode(buf_slice(&old), &a, &o)) {
        o.must_ask = true;
        object_encode(&o, &row);
        batch_require_value(b, TABLE_OBJECT, buf_slice(&row_key), buf_slice(&old));
        batch_put(b, TABLE_OBJECT, buf_slice(&row_key), buf_slice(&row));
    }
    arena_fini(&a);
    buf_free(&row);
    buf_free(&old);
    buf_free(&row_key);
}

/* All or nothing; E_CHANGED: one of them was fetched or revalidated meanwhile. */
static int mark_batch(const struct marking *m, struct slice keys, struct err *e)
{
    struct batch *b = batch_new();
    struct slice key;
    int rc;

    while (keys.n > 0 && row_get_slice(&keys, &key)) {
        mark_row(m, key, b);
    }
    rc = store_commit(m->cache->store, &b, COMMIT_SYNC, e);
    batch_free(&b);
    return rc;
}

/* One by one: what changed under our hands has just come from the origin, and is right as it is. */
static int mark_singly(const struct marking *m, struct slice keys, struct err *e)
{
    int rc = 0;

    while (keys.n > 0 && (rc == 0 || rc == E_CHANGED)) {
        struct slice rest = keys, key;
        if (!row_get_slice(&rest, &key)) {
            break;
        }
        rc = mark_batch(m, slice_first(keys, keys.n - rest.n), e);
        keys = rest;
    }
    return rc == E_CHANGED ? 0 : rc;
}

static int mark_all(const struct marking *m, uint64_t *count, struct err *e)
{
    struct slice rest = buf_slice(&m->keys);
    int rc = 0;

    while (rest.n > 0 && rc == 0) {
        struct slice from = rest, key;
        for (unsigned i = 0; i < MARKS_A_BATCH && rest.n > 0 && row_get_slice(&rest, &key); i++) {
            ++*count;
        }
        from = slice_first(from, from.n - rest.n);
        rc = mark_batch(m, from, e);
        if (rc == E_CHANGED) {
            rc = mark_singly(m, from, e);
        }
    }
    return rc;
}

int cache_expire(struct cache *c, struct slice repo, struct slice key_prefix,
                 bool (*lookup)(void *arg, const struct object_info *o), void *arg,
                 uint64_t *expired, struct err *e)
{
    struct marking m = {c, repo, lookup, arg, BUF_INIT(KEYS_MAX)};
    struct buf prefix = BUF_INIT(OBJECT_KEY_MAX);
    int rc;

    *expired = 0;
    object_key(&prefix, repo, key_prefix, SLICE(""));
    rc = prefix.rc != 0 ? err_set(e, prefix.rc, "the key is too long") : 0;
    if (rc == 0) {
        cut_fetches(c, buf_slice(&prefix), true, entries_expire);
        rc = cache_list(c, repo, key_prefix, note_key, &m, e);
    }
    rc = rc != 0 ? rc : mark_all(&m, expired, e);
    tell_all(c, repo, buf_slice(&m.keys));
    buf_free(&m.keys);
    buf_free(&prefix);
    return rc;
}
