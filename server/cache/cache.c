#include "server/cache/cache.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/cache/cache_priv.h"

/* --- change ----------------------------------------------------------------------------------- */

void cache_ask_neighbors(struct cache *c, const struct neighbor_ops *ops, void *arg)
{
    c->neighbors = ops;
    c->neighbors_arg = arg;
}

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

struct change { /* found on another thread, reported on the fetch thread */
    struct message message;
    struct cache *cache;
    struct slice row_key;
    char bytes[];
};

static void on_change_message(struct message *l)
{
    struct change *g = CONTAINER_OF(l, struct change, message);

    cache_changed(g->cache, g->row_key);
    free(g);
}

void cache_changed_post(struct cache *c, struct slice repo, struct slice key)
{
    size_t n = repo.n + 1 + key.n;
    struct change *g = mem_new(sizeof *g + n);

    g->cache = c;
    g->message.deliver = on_change_message;
    memcpy(g->bytes, repo.p, repo.n);
    memcpy(g->bytes + repo.n + 1, key.p, key.n);
    g->row_key = slice_of(g->bytes, n);
    message_queue_post(c->mail, &g->message);
}

/* --- numbers ---------------------------------------------------------------------------------- */

static void print_slice(char *out, size_t room, struct slice s)
{
    size_t n = min_u64(s.n, room - 1);

    memcpy(out, s.p, n);
    out[n] = '\0';
}

/* False: it rests, or is a HEAD. */
static bool describe_running_fetch(struct fetch *f, struct fetch_info *out)
{
    const struct lookup *w = fetch_lookup(f);
    struct fetch_view v = fetch_view(f);

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

size_t cache_fetches(struct cache *c, struct fetch_info *out, size_t room)
{
    size_t n = 0;

    lock_take(&c->lock);
    LIST_EACH (&c->fetches, it) {
        n += n < room && describe_running_fetch(fetch_of(it), &out[n]);
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
    GET(fetches);
    GET(fetch_total_bytes);
    GET(verify_failures);
    GET(evicted_bytes);
    GET(evicted_blobs);
    GET(waiting);
    GET(crowded);
#undef GET
}

/* --- open and close --------------------------------------------------------------------------- */

static bool nothing_left(struct cache *c)
{
    return list_empty(&c->fetches) && c->busy == 0 && atomic_load(&c->asks) == 0;
}

static void on_cache_tick(evutil_socket_t fd, short what, void *arg)
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
    LIST_EACH (&c->fetches, it) {
        struct fetch *f = fetch_hold(fetch_of(it));
        fetch_tick(f, now);
        fetch_release(&f);
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

static void on_cache_close(struct message *l)
{
    struct cache *c = CONTAINER_OF(l, struct cache, close_message);

    c->closing = true;
    LIST_EACH (&c->fetches, it) {
        struct fetch *f = fetch_hold(fetch_of(it));
        fetch_stop(f);
        fetch_release(&f);
    }
    entries_drop_all(c);
    on_cache_tick(-1, 0, c);
}

static void *run_cache_thread(void *arg)
{
    struct cache *c = arg;

    event_base_loop(c->base, EVLOOP_NO_EXIT_ON_EMPTY);
    origin_client_close(&c->origin_client);
    message_queue_close(&c->mail);
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
    list_init(&c->fetches);
    list_init(&c->resting);
    list_init(&c->forsaken);
    c->base = event_base_new();
    CHECK(c->base != NULL);
    c->mail = message_queue_open(c->base);
    c->origin_client = origin_client_open(c->base, ORIGIN_CLIENT_SHARED);
    c->forsake = event_new(c->base, -1, 0, on_forsaken, c);
    CHECK(c->forsake != NULL);
    c->tick = evtimer_new(c->base, on_cache_tick, c);
    CHECK(c->tick != NULL && evtimer_add(c->tick, &soon) == 0);
    c->thread = thread_start("fetch", run_cache_thread, c);
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
    c->close_message.deliver = on_cache_close;
    message_queue_post(c->mail, &c->close_message);
    pthread_join(c->thread, NULL);
    event_free(c->tick);
    event_free(c->forsake);
    event_base_free(c->base);
    share_close(&c->share);
    lock_fini(&c->keep_lock);
    lock_fini(&c->lock);
    forgotten_free(&c->forgotten);
    free(c);
}
