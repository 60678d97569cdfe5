/* abandon.c - what becomes of a fill when nobody wants it any more.
 *
 * It stops reading from its origin at once. Whoever comes within two seconds, as a client that was restarted does, finds the
 * request where it stood, and not a byte is asked for twice; then the request ends. What has come stays: whoever comes within
 * `grace` goes on from there, later the parked stage is resumed (partial.c). When others wait for the connection the request
 * ends without those two seconds.
 *
 * A fill goes on to its end all the same when next to nothing is missing, when it is small, or when several clients have asked
 * for all of it: GOING_ON_MAX of one client's at a time, GOING_ON_ALL of all clients'.
 */

#include <stdlib.h>

#include "common/base/err.h"
#include "server/cache/cache_priv.h"

enum {
    NEARLY_PARTS = 10, /* a tenth may be missing */
    GOING_ON_MAX = 4,
    GOING_ON_ALL = 32,
    REST_MS = 2000,
    IDLE_MAX = 256, /* that wait for somebody to come back; beyond, they are parked at once */
    TRICKLE_BYTES_PER_S = 1024, /* slower than this it is not worth going on */
};

void fill_answered(struct fill *f, const struct want *w)
{
    bool whole = want_is_whole(w);

    lock_take(&f->lock);
    f->answers++;
    f->idle = false;
    f->several = f->several || (whole && w->client != f->want.client);
    lock_drop(&f->lock);
    fill_goes_on(f, false);
    f->idle_since_ms = 0;
    fill_share(f, w->client);
    filler_wake_all(f);
}

void fill_given_back(struct fill *f)
{
    lock_take(&f->lock);
    CHECK(f->answers > 0);
    if (--f->answers == 0) {
        fill_post_demand(f);
    }
    lock_drop(&f->lock);
}

bool fill_nearly_there(struct fill *f)
{
    bool yes;

    lock_take(&f->lock);
    yes = f->total_bytes != LENGTH_UNKNOWN &&
          f->total_bytes - extents_bytes(&f->have) <= f->total_bytes / NEARLY_PARTS;
    lock_drop(&f->lock);
    return yes;
}

struct going { /* a client whose fills go on without it */
    UT_hash_handle hh;
    uint64_t client;
    unsigned fills;
};

static struct going *going_of(struct cache *c, uint64_t client)
{
    struct going *g = NULL;

    HASH_FIND(hh, c->going, &client, sizeof client, g);
    return g;
}

/* What the mirror fetches of its own accord is on no client's account. */
void fill_goes_on(struct fill *f, bool yes)
{
    struct cache *c = f->cache;
    struct going *g = f->going;

    f->going_on = yes;
    if (yes && g == NULL && !f->want.background) {
        g = going_of(c, f->want.client);
        if (g == NULL) {
            g = NEW(struct going);
            g->client = f->want.client;
            HASH_ADD(hh, c->going, client, sizeof g->client, g);
        }
        f->going = g;
        g->fills++;
        c->going_count++;
    } else if (!yes && g != NULL) {
        f->going = NULL;
        c->going_count--;
        if (--g->fills == 0) {
            HASH_DEL(c->going, g);
            free(g);
        }
    }
}

static bool has_room_to_go_on(const struct fill *f)
{
    const struct going *g = going_of(f->cache, f->want.client);

    return f->cache->going_count < GOING_ON_ALL && (g == NULL || g->fills < GOING_ON_MAX);
}

static bool worth_finishing(struct fill *f)
{
    if (f->want.background) {
        return true;
    }
    return (fill_nearly_there(f) || f->several || (f->want_all && f->total_bytes <= SMALL_BYTES)) &&
           has_room_to_go_on(f);
}

static void end(struct fill *f)
{
    struct err why;

    err_set(&why, E_CANCELLED, "nobody reads it any more");
    f->stopping = true;
    fill_fail(f, E_CANCELLED, &why);
}

void fill_forsake(struct fill *f)
{
    if (f->state == FILL_ASKING && f->rc == 0) {
        end(f);
    }
}

void fill_abandon(struct fill *f)
{
    bool wanted;

    lock_take(&f->lock);
    wanted = f->answers > 0;
    lock_drop(&f->lock);
    if (wanted || f->going_on || f->state != FILL_RUNNING || f->rc != 0 || fill_complete(f)) {
        return;
    }
    if (worth_finishing(f)) {
        fill_goes_on(f, true);
        f->want_all = true;
    } else if (!f->splices || f->total_bytes == LENGTH_UNKNOWN) {
        end(f); /* there is no way to go on later */
    } else {
        f->want_all = false;
        lock_take(&f->lock);
        f->whole_wanted = false;
        f->idle = true;
        lock_drop(&f->lock);
        filler_rest_all(f);
    }
}

void fill_rest(struct fill *f, uint64_t now_ms)
{
    struct cache *c = f->cache;
    bool wanted, idle;

    lock_take(&f->lock);
    wanted = f->answers > 0;
    idle = f->idle;
    lock_drop(&f->lock);
    if (wanted || fill_complete(f)) {
        return;
    }
    c->idle_now += !f->going_on;
    if (f->idle_since_ms == 0) {
        f->idle_since_ms = now_ms;
        return;
    }
    if (idle && f->state == FILL_RUNNING && now_ms - f->idle_since_ms >= REST_MS) {
        filler_finish_all(f);
    }
    if (f->going_on ? now_ms - f->idle_since_ms >= c->set.grace_ms &&
                          atomic_load_explicit(&f->rate_bytes_per_s, memory_order_relaxed) <
                              TRICKLE_BYTES_PER_S
                    : now_ms - f->idle_since_ms >= c->set.grace_ms || c->idle > IDLE_MAX) {
        end(f);
    }
}
