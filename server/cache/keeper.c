/* keeper.c - the thread that keeps the store within its bounds: it evicts above the high mark,
 * scrubs blobs, and collects. */

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/lasting.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/cache/cache_priv.h"
#include "server/store/atime.h"
#include "server/store/partial.h"

enum {
    LOOK_MS = 1000,
    SCRUB_STEP_MS = 1000,
    SCRUB_REST_MS = 600000,
    COLLECT_EVERY_MS = 3600000,
    COLLECT_GRACE_S = 3600,
    PARTIAL_SHARE = 10,     /* parked fetches hold at most a tenth of the quota */
    OWN_MAX = 64,           /* objects of a client that are looked at in one go */
    UNUSED_LOOK_MS = 60000, /* when nothing was unused for an hour, so long nobody looks again */
};
struct keeper {
    struct cache *cache;
    struct lock lock;
    struct cond wake;
    bool closing;
    pthread_t thread;
    uint64_t scrub_due_ms;
    uint64_t collect_due_ms;
    struct lasting cramped; /* nothing can be evicted although the high mark is exceeded */
};

static void on_forget(void *arg, struct slice repo, struct slice key)
{
    struct cache *c = arg;

    COUNT(c, evicted_blobs, 1);
    cache_changed_post(c, repo, key);
}

static void on_blob_gone(void *arg, const struct digest *d)
{
    struct cache *c = arg;

    share_gone(c->share, d);
}

static void tell_freed(struct cache *c, uint64_t freed)
{
    COUNT(c, evicted_bytes, freed);
    if (freed > 0) {
        log_info("evict.done", "bytes=%" PRIu64, freed);
    }
}

static int evict(struct cache *c, uint64_t need_bytes, struct err *e)
{
    struct evict_events ev = {on_forget, c, on_blob_gone};
    uint64_t freed = 0;
    int rc;

    lock_take(&c->keep_lock);
    rc = evict_run(c->store, need_bytes, &ev, &freed, e);
    lock_drop(&c->keep_lock);
    tell_freed(c, freed);
    return rc;
}

/* Drops what nobody has come back for, and the oldest while they hold more than max_bytes. */
static void drop_parked(struct cache *c, uint64_t max_bytes)
{
    partials_lose_old(c->store, clock_unix_s(), max_bytes);
    partials_drop_lost(c->store);
}

int cache_make_room(struct cache *c, uint64_t need_bytes, struct err *e)
{
    int rc = evict(c, need_bytes, e);
    struct store_space space;

    store_space(c->store, &space);
    /* What somebody asks for now counts for more than what nobody has come back for. */
    if (rc == E_NOSPACE && add_u64(need_bytes, space.staged_bytes, &need_bytes) &&
        need_bytes <= space.quota_bytes) {
        drop_parked(c, 0);
        rc = evict(c, need_bytes - space.staged_bytes, e);
    }
    return rc;
}

/* --- beyond a client's share ------------------------------------------------------------------ */

static uint64_t below_low(struct cache *c, struct store_space *space)
{
    uint64_t held;

    store_space(c->store, space);
    held = space->used_bytes + space->staged_bytes + space->parked_bytes;
    return space->low_bytes - min_u64(space->low_bytes, held);
}

/* By atimes, which count in hours: all of the last one, and what has passed of this. */
static uint32_t hour_in_use(void)
{
    uint32_t hour = hour_of(clock_unix_s());

    return hour > 1 ? hour - 1 : 1;
}

static int evict_own(struct cache *c, uint64_t client, uint64_t n, const struct evict_events *ev,
                     uint64_t *freed, struct err *e)
{
    struct digest own[OWN_MAX];
    size_t count;
    bool others;
    int rc = E_NOSPACE;

    while (rc == E_NOSPACE && (count = share_own(c->share, client, own, OWN_MAX)) != 0) {
        uint64_t now_freed;
        rc = evict_bounded(c->store, n, &(struct evict_bounds){own, count, 0}, ev, &now_freed,
                           &others, e);
        *freed += now_freed;
        for (size_t i = 0; rc == E_NOSPACE && i < count; i++) {
            share_gone(c->share, &own[i]); /* what is still here is pinned, or gone before */
        }
    }
    return rc;
}

static int evict_unused(struct cache *c, uint64_t n, const struct evict_events *ev, uint64_t *freed,
                        struct err *e)
{
    uint64_t now_ms = clock_now_ms();
    uint64_t now_freed;
    bool others = true;
    int rc = E_NOSPACE;

    if (now_ms >= c->unused_none_until_ms) {
        rc = evict_bounded(c->store, n, &(struct evict_bounds){NULL, 0, hour_in_use()}, ev,
                           &now_freed, &others, e);
        *freed += now_freed;
    }
    if (rc == E_NOSPACE && others) {
        c->unused_none_until_ms = max_u64(c->unused_none_until_ms, now_ms + UNUSED_LOOK_MS);
    }
    return rc == E_NOSPACE && !others ? 0 : rc; /* a store that others do not use may be filled */
}

int cache_make_room_beyond(struct cache *c, uint64_t client, uint64_t n, struct err *e)
{
    struct evict_events ev = {on_forget, c, on_blob_gone};
    struct store_space space;
    uint64_t freed = 0;
    int rc = 0;

    lock_take(&c->keep_lock);
    if (below_low(c, &space) < n) {
        rc = evict_own(c, client, n, &ev, &freed, e);
        rc = rc == E_NOSPACE ? evict_unused(c, n, &ev, &freed, e) : rc;
    }
    lock_drop(&c->keep_lock);
    tell_freed(c, freed);
    return rc;
}

bool cache_is_tight(struct cache *c, uint64_t client, uint64_t n)
{
    struct store_space space;

    return below_low(c, &space) + share_own_bytes(c->share, client) < n;
}

int cache_room_beyond(struct cache *c, uint64_t client, uint64_t within, uint64_t own_bytes,
                      uint64_t n, struct err *e)
{
    struct store_space space;
    uint64_t room = below_low(c, &space);
    uint64_t own = share_own_bytes(c->share, client) + own_bytes;
    uint64_t unused = 0;
    int rc = 0;

    room -= min_u64(room, within);
    if (room + own >= n || own >= space.used_bytes) {
        return 0;
    }
    lock_take(&c->keep_lock);
    if (clock_now_ms() >= c->unused_none_until_ms) {
        rc = evict_measure(c->store, hour_in_use(), n - room - own, &unused, e);
    }
    if (rc == 0 && unused == 0) {
        c->unused_none_until_ms = max_u64(c->unused_none_until_ms, clock_now_ms() + UNUSED_LOOK_MS);
    }
    lock_drop(&c->keep_lock);
    return rc == 0 && room + own + unused < n ? E_NOSPACE : rc;
}

/* --- the thread ------------------------------------------------------------------------------- */

static void scrub(struct keeper *k, uint64_t now_ms)
{
    const struct cache_settings *set = &k->cache->set;
    uint64_t rate = set->scrub_rate_bytes_per_s, rest_ms = SCRUB_STEP_MS;
    uint64_t read = 0;
    uint64_t damaged = 0;
    uint64_t now_s = clock_unix_s();
    struct err e;
    int rc;

    if (rate == 0) {
        return;
    }
    rc = scrub_step(k->cache->store, rate * SCRUB_STEP_MS / 1000,
                    now_s > set->scrub_every_s ? now_s - set->scrub_every_s : 0, &read, &damaged,
                    &e);
    if (rc != 0) {
        log_warn("scrub.failed", "why=\"%s\"", e.text);
    } else if (damaged > 0) {
        log_error("scrub.damaged", "blobs=%" PRIu64, damaged);
    }
    /* A large blob is read at once, and paid for after; when none was due, looking costs more than
     * it finds. */
    if (rc != 0 || read == 0) {
        rest_ms = min_u64(SCRUB_REST_MS, (uint64_t)set->scrub_every_s * 1000);
    } else {
        rest_ms = max_u64(rest_ms, read * 1000 / rate);
    }
    k->scrub_due_ms = now_ms + rest_ms;
}

static void collect(struct keeper *k)
{
    struct gc_report r;
    struct err e;

    if (gc_run(k->cache->store, COLLECT_GRACE_S, false, &r, &e) != 0) {
        log_warn("gc.failed", "why=\"%s\"", e.text);
    } else if (r.blobs > 0 || r.nodes > 0) {
        log_info("gc.done", "blobs=%" PRIu64 " bytes=%" PRIu64 " nodes=%" PRIu64, r.blobs, r.bytes,
                 r.nodes);
    }
}

static void evict_to_marks(struct keeper *k, uint64_t now_ms)
{
    struct err e = {0};
    bool fails = evict_needed(k->cache->store) && cache_make_room(k->cache, 0, &e) != 0;
    enum lasting_line line = lasting_check(&k->cramped, fails, now_ms);
    uint64_t for_s = (now_ms - k->cramped.since_ms) / 1000;

    switch (line) {
    case LASTING_NONE:
        break;
    case LASTING_BEGINS:
    case LASTING_LASTS:
        log_warn("evict.failed", "for_s=%" PRIu64 " why=\"%s\"", for_s, e.text);
        break;
    case LASTING_OVER:
        log_info("evict.recovered", "after_s=%" PRIu64, for_s);
        break;
    }
}

static void step_keeper(struct keeper *k, uint64_t now_ms)
{
    struct store_space space;

    store_space(k->cache->store, &space);
    drop_parked(k->cache, space.quota_bytes / PARTIAL_SHARE);
    evict_to_marks(k, now_ms);
    if (now_ms >= k->scrub_due_ms) {
        scrub(k, now_ms);
    }
    if (now_ms >= k->collect_due_ms) {
        collect(k);
        k->collect_due_ms = now_ms + COLLECT_EVERY_MS;
    }
}

static void *run_keeper_thread(void *arg)
{
    struct keeper *k = arg;

    lock_take(&k->lock);
    while (!k->closing) {
        cond_wait_ms(&k->wake, &k->lock, LOOK_MS);
        if (!k->closing) {
            lock_drop(&k->lock);
            step_keeper(k, clock_now_ms());
            lock_take(&k->lock);
        }
    }
    lock_drop(&k->lock);
    return NULL;
}

struct keeper *keeper_open(struct cache *c)
{
    struct keeper *k = NEW(struct keeper);
    uint64_t now = clock_now_ms();

    k->cache = c;
    k->scrub_due_ms = now + SCRUB_STEP_MS;
    k->collect_due_ms = now + COLLECT_EVERY_MS;
    lock_init(&k->lock, LOCK_LEAF);
    cond_init(&k->wake);
    k->thread = thread_start("keeper", run_keeper_thread, k);
    return k;
}

void keeper_close(struct keeper **kp)
{
    struct keeper *k = *kp;

    *kp = NULL;
    lock_take(&k->lock);
    k->closing = true;
    cond_signal(&k->wake);
    lock_drop(&k->lock);
    pthread_join(k->thread, NULL);
    cond_fini(&k->wake);
    lock_fini(&k->lock);
    free(k);
}
