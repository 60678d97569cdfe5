#include "server/cache/cache.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/cache/cache_priv.h"

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

/* False: it rests, or is a HEAD. */
static bool describe(struct fill *f, struct fill_info *out)
{
    const struct want *w = fill_want(f);
    struct fill_view v = fill_view(f);

    if (v.rests || w->head_only) {
        return false;
    }
    print_slice(out->repo, sizeof out->repo, w->repo);
    print_slice(out->key, sizeof out->key, w->key);
    out->have_bytes = v.have_bytes;
    out->total_bytes = v.total_bytes;
    out->readers = v.readers;
    out->rate_bytes_per_s = v.rate_bytes_per_s;
    out->age_ms = v.age_ms;
    return true;
}

size_t cache_fills(struct cache *c, struct fill_info *out, size_t room)
{
    size_t n = 0;

    lock_take(&c->lock);
    LIST_EACH (&c->fills, it) {
        n += n < room && describe(fill_of(it), &out[n]);
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
    GET(waiting);
    GET(crowded);
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
    c->idle_now = 0;
    LIST_EACH (&c->fills, it) {
        struct fill *f = fill_hold(fill_of(it));
        fill_tick(f, now);
        fill_release(&f);
    }
    c->idle = c->idle_now;
    entries_rest_tick(c, now);
    evtimer_add(c->tick, &tv);
}

static void on_forsaken(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    entries_end_forsaken(arg);
}

static void on_close(struct letter *l)
{
    struct cache *c = CONTAINER_OF(l, struct cache, close_letter);

    c->closing = true;
    LIST_EACH (&c->fills, it) {
        struct fill *f = fill_hold(fill_of(it));
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

void cache_limit(struct cache *c, uint64_t client_store_bytes)
{
    share_limit(c->share, client_store_bytes);
}

struct cache *cache_open(struct store *st, struct pool *disk, const struct cache_settings *set)
{
    struct cache *c = NEW(struct cache);
    struct timeval soon = {1, 0};

    c->store = st;
    c->disk = disk;
    c->set = *set;
    lock_init(&c->lock, LOCK_CACHE);
    lock_init(&c->keep_lock, LOCK_KEEP);
    c->share = share_open();
    list_init(&c->fills);
    list_init(&c->resting);
    list_init(&c->forsaken);
    c->base = event_base_new();
    CHECK(c->base != NULL);
    c->mail = mailbox_open(c->base);
    c->fetcher = fetcher_open(c->base, FETCHER_SHARED);
    c->forsake = event_new(c->base, -1, 0, on_forsaken, c);
    CHECK(c->forsake != NULL);
    c->tick = evtimer_new(c->base, on_tick, c);
    CHECK(c->tick != NULL && evtimer_add(c->tick, &soon) == 0);
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
    event_free(c->forsake);
    event_base_free(c->base);
    share_close(&c->share);
    lock_fini(&c->keep_lock);
    lock_fini(&c->lock);
    free(c);
}
