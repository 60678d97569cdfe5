#include "server/cache/cache.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/cache/cache_priv.h"

enum { KEY_MAX = 16384 };

/* --- wants -------------------------------------------------------------------------------------------------------- */

static struct slice copy(struct arena *a, struct slice s)
{
    return s.p != NULL ? arena_copy(a, s) : SLICE_NONE;
}

void want_copy(struct arena *a, const struct want *w, struct want *out)
{
    struct status_map *map = arena_alloc(a, (w->status_maps + 1) * sizeof *map);

    *out = *w;
    out->repo = copy(a, w->repo);
    out->key = copy(a, w->key);
    out->url = copy(a, w->url);
    out->via = copy(a, w->via);
    out->accept = copy(a, w->accept);
    out->authorization = copy(a, w->authorization);
    out->principal = copy(a, w->principal);
    if (w->status_maps > 0) {
        memcpy(map, w->status_map, w->status_maps * sizeof *map);
    }
    out->status_map = map;
}

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

int hit_find(struct cache *c, struct slice row_key, const struct want *w, struct hit **out,
             struct err *e)
{
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct hit *h = NEW(struct hit);
    int rc = store_get(c->store, TABLE_OBJECT, row_key, &row, e);

    *out = NULL;
    if (rc != 0) {
        goto out;
    }
    if (!object_decode(buf_slice(&row), &h->arena, &h->object) || !object_answers(&h->object, w)) {
        rc = err_set(e, E_NOTFOUND, "another object is wanted than the row has");
        goto out;
    }
    rc = blob_open(c->store, &h->object.digest, &h->blob, e);
    if (rc != 0) {
        rc = E_NOTFOUND; /* evicted, or damaged and taken away: it is fetched again */
        goto out;
    }
    *out = h;
    h = NULL;
out:
    hit_free(&h);
    buf_free(&row);
    return rc;
}

static void on_ask_letter(struct letter *l)
{
    struct cache_ask *k = CONTAINER_OF(l, struct cache_ask, letter);

    entry_ask(k->cache, k);
}

static struct cache_ask *ask_new(struct cache *c, struct loop *l, const struct want *w)
{
    struct cache_ask *k = NEW(struct cache_ask);
    struct buf key = BUF_INIT(KEY_MAX);

    atomic_fetch_add(&c->asks, 1);
    k->cache = c;
    k->loop = l;
    want_copy(&k->arena, w, &k->want);
    k->origin = origin_hold(w->origin);
    object_key(&key, w->repo, w->key, w->principal);
    CHECK(key.rc == 0); /* the parser's limits are below KEY_MAX */
    k->row_key = arena_copy(&k->arena, buf_slice(&key));
    buf_free(&key);
    return k;
}

static void refresh_behind(struct cache *c, const struct want *w)
{
    struct cache_ask *k = ask_new(c, NULL, w);

    k->want.head_only = false;
    k->want.hint_first = 0;
    k->want.hint_end = LENGTH_UNKNOWN;
    k->want.refresh = true;
    k->want.floor_s = 0;
    k->letter.deliver = on_ask_letter;
    mailbox_post(c->mail, &k->letter);
}

/* On a pool thread: the row alone answers most wants. */
static void look(struct job *j)
{
    struct cache_ask *k = CONTAINER_OF(j, struct cache_ask, job);
    struct cache *c = k->cache;
    uint64_t now = clock_unix_s();
    struct hit *h = NULL;
    struct err e;

    if (hit_find(c, k->row_key, &k->want, &h, &e) == 0) {
        enum verdict_fresh v = freshness_judge(&h->object, &k->want, now);
        if (v != STALE) {
            struct answer *a = answer_of_blob(c, &h->object, h->blob, &k->want,
                                              v == FRESH ? CACHE_HIT : CACHE_STALE);
            blob_touch(c->store, &h->object.digest, now);
            if (v == STALE_OK) {
                refresh_behind(c, &k->want);
            }
            ask_answer(k, a);
            hit_free(&h);
            return;
        }
    }
    hit_free(&h);
    k->letter.deliver = on_ask_letter;
    mailbox_post(c->mail, &k->letter);
}

struct cache_ask *cache_want(struct cache *c, struct loop *l, const struct want *w,
                             void (*on_answer)(void *arg, struct answer *a), void *arg)
{
    struct cache_ask *k = ask_new(c, l, w);

    k->on_answer = on_answer;
    k->arg = arg;
    k->job.work = look;
    pool_submit(c->disk, &k->job);
    return k;
}

void cache_cancel(struct cache_ask **kp)
{
    if (*kp != NULL) {
        atomic_store(&(*kp)->cancelled, true); /* freed when its answer comes by */
        *kp = NULL;
    }
}

/* --- change ------------------------------------------------------------------------------------------------------- */

void cache_on_change(struct cache *c, void (*fn)(void *arg, struct slice repo, struct slice key),
                     void *arg)
{
    c->on_change_arg = arg;
    c->on_change = fn;
}

void cache_changed(struct cache *c, struct slice row_key)
{
    struct slice key = row_key;
    struct slice repo = slice_cut(&key, '\0');
    struct slice plain = slice_cut(&key, '\0');

    if (c->on_change != NULL) {
        c->on_change(c->on_change_arg, repo, plain);
    }
}

struct change { /* found elsewhere, told on the fetch thread */
    struct letter letter;
    struct cache *cache;
    struct slice row_key;
    char bytes[];
};

static void on_change_letter(struct letter *l)
{
    struct change *g = CONTAINER_OF(l, struct change, letter);

    cache_changed(g->cache, g->row_key);
    free(g);
}

void cache_changed_post(struct cache *c, struct slice repo, struct slice key)
{
    size_t n = repo.n + 1 + key.n;
    struct change *g = mem_new(sizeof *g + n);

    g->cache = c;
    g->letter.deliver = on_change_letter;
    memcpy(g->bytes, repo.p, repo.n);
    memcpy(g->bytes + repo.n + 1, key.p, key.n);
    g->row_key = slice_of(g->bytes, n);
    mailbox_post(c->mail, &g->letter);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static void print_slice(char *out, size_t room, struct slice s)
{
    size_t n = min_u64(s.n, room - 1);

    memcpy(out, s.p, n);
    out[n] = '\0';
}

size_t cache_fills(struct cache *c, struct fill_info *out, size_t room)
{
    uint64_t now = clock_now_ms();
    size_t n = 0;

    lock_take(&c->lock);
    LIST_EACH (&c->fills, it) {
        struct fill *f = LIST_ITEM(it, struct fill, node);
        if (n == room || f->want.head_only) {
            continue;
        }
        print_slice(out[n].repo, sizeof out[n].repo, f->want.repo);
        print_slice(out[n].key, sizeof out[n].key, f->want.key);
        lock_take(&f->lock);
        out[n].have_bytes = extents_bytes(&f->have);
        out[n].total_bytes = f->total_bytes;
        out[n].readers = f->readers;
        lock_drop(&f->lock);
        out[n].rate_bytes_per_s = atomic_load_explicit(&f->rate_bytes_per_s, memory_order_relaxed);
        out[n].age_ms = now - f->born_ms;
        n++;
    }
    lock_drop(&c->lock);
    return n;
}

void cache_stats(struct cache *c, struct cache_stats *out)
{
#define GET(name) out->name = atomic_load_explicit(&c->count.name, memory_order_relaxed)
    GET(hits);
    GET(misses);
    GET(collapsed);
    GET(revalidated);
    GET(stale);
    GET(negative);
    GET(failed);
    GET(fills);
    GET(fill_bytes);
    GET(verify_failures);
    GET(evicted_bytes);
    GET(evicted_blobs);
#undef GET
}

/* --- open and close ----------------------------------------------------------------------------------------------- */

static bool nothing_left(struct cache *c)
{
    return list_empty(&c->fills) && c->busy == 0 && atomic_load(&c->asks) == 0;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct cache *c = arg;
    struct timeval tv = {c->closing ? 0 : 1, c->closing ? 5000 : 0};
    uint64_t now = clock_now_ms();

    (void)fd;
    (void)what;
    if (c->closing && nothing_left(c)) {
        event_base_loopbreak(c->base);
        return;
    }
    LIST_EACH (&c->fills, it) {
        struct fill *f = fill_hold(LIST_ITEM(it, struct fill, node));
        fill_tick(f, now);
        fill_release(&f);
    }
    entries_rest_tick(c, now);
    evtimer_add(c->tick, &tv);
}

static void on_close(struct letter *l)
{
    struct cache *c = CONTAINER_OF(l, struct cache, close_letter);

    c->closing = true;
    LIST_EACH (&c->fills, it) {
        struct fill *f = fill_hold(LIST_ITEM(it, struct fill, node));
        fill_stop(f);
        fill_release(&f);
    }
    entries_drop_all(c);
    on_tick(-1, 0, c);
}

static void *run(void *arg)
{
    struct cache *c = arg;

    event_base_loop(c->base, EVLOOP_NO_EXIT_ON_EMPTY);
    fetcher_close(&c->fetcher);
    mailbox_close(&c->mail);
    return NULL;
}

struct cache *cache_open(struct store *st, struct pool *disk, const struct cache_settings *set)
{
    struct cache *c = NEW(struct cache);
    struct timeval soon = {1, 0};
    struct err e;

    c->store = st;
    c->disk = disk;
    c->set = *set;
    lock_init(&c->lock, LOCK_CACHE);
    lock_init(&c->keep_lock, LOCK_KEEP);
    list_init(&c->fills);
    list_init(&c->resting);
    list_init(&c->partials_lost);
    c->base = event_base_new();
    CHECK(c->base != NULL);
    c->mail = mailbox_open(c->base);
    c->fetcher = fetcher_open(c->base);
    c->tick = evtimer_new(c->base, on_tick, c);
    CHECK(c->tick != NULL && evtimer_add(c->tick, &soon) == 0);
    if (partials_load(c, &e) != 0) {
        log_warn("cache.partials", "why=\"%s\"", e.text); /* they are fetched again */
    }
    c->thread = thread_start("fetch", run, c);
    c->keeper = keeper_open(c);
    return c;
}

void cache_close(struct cache **cp)
{
    struct cache *c = *cp;

    *cp = NULL;
    if (c == NULL) {
        return;
    }
    keeper_close(&c->keeper);
    c->close_letter.deliver = on_close;
    mailbox_post(c->mail, &c->close_letter);
    pthread_join(c->thread, NULL);
    event_free(c->tick);
    event_base_free(c->base);
    partials_free(c);
    lock_fini(&c->keep_lock);
    lock_fini(&c->lock);
    free(c);
}
