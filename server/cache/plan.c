/* plan.c - which bytes are fetched next: those that a reader waits for, then the gaps from the front. */

#include "server/cache/cache_priv.h"

/* Somebody fetches towards `at` and will be there soon, or it is there. Under the lock. */
static bool covered(const struct fill *f, uint64_t at)
{
    if (extents_until(&f->have, at) > at) {
        return true;
    }
    for (unsigned i = 0; i < FILLERS_MAX; i++) {
        const struct claim *c = &f->claims[i];
        if (c->active && c->cur <= at && at < c->end && at - c->cur <= f->cache->set.jump_bytes) {
            return true;
        }
    }
    return false;
}

bool fill_covers(const struct fill *f, uint64_t at)
{
    return covered(f, at);
}

/* First byte at or after `from` that is neither there nor claimed; *end: where that stops being so. Under the lock. */
static bool next_gap(const struct fill *f, uint64_t from, uint64_t *first, uint64_t *end)
{
    uint64_t at = from;
    bool moved = true;

    while (moved) {
        uint64_t until = extents_until(&f->have, at);
        moved = until > at;
        at = until;
        for (unsigned i = 0; i < FILLERS_MAX; i++) {
            const struct claim *c = &f->claims[i];
            if (c->active && c->cur <= at && at < c->end) {
                at = c->end;
                moved = true;
            }
        }
    }
    if (at >= f->total_bytes) {
        return false;
    }
    *first = at;
    *end = min_u64(extents_next(&f->have, at), f->total_bytes);
    for (unsigned i = 0; i < FILLERS_MAX; i++) {
        const struct claim *c = &f->claims[i];
        if (c->active && c->cur > at) {
            *end = min_u64(*end, c->cur);
        }
    }
    return true;
}

/* As long as what is there already, from a jump's length to a segment's: see first_segment(). */
static void start(struct fill *f, uint64_t first, uint64_t end)
{
    const struct cache_settings *set = &f->cache->set;
    uint64_t step;

    lock_take(&f->lock);
    step = max_u64(set->jump_bytes, extents_bytes(&f->have));
    lock_drop(&f->lock);
    filler_start(f, first, min_u64(end, first + min_u64(step, set->segment_bytes)), NULL);
}

/* A segment for a reader that waits at `at`: block by block around what it asked for, cut out of whoever is on the way
 * there but still far. */
static void fetch_for(struct fill *f, const struct reader_need *n)
{
    uint64_t first = n->at / BLOCK_BYTES * BLOCK_BYTES;
    uint64_t end =
        n->end == LENGTH_UNKNOWN || n->end > f->total_bytes
            ? f->total_bytes
            : min_u64((n->end + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES, f->total_bytes);
    unsigned holder = FILLERS_MAX;

    lock_take(&f->lock);
    if (!covered(f, n->at)) {
        uint64_t behind = 0; /* where what is there or claimed before `at` ends */
        for (size_t i = 0; i < f->have.count && f->have.run[i].end <= n->at; i++) {
            behind = f->have.run[i].end;
        }
        end = min_u64(end, extents_next(&f->have, n->at));
        for (unsigned i = 0; i < FILLERS_MAX; i++) {
            const struct claim *c = &f->claims[i];
            if (c->active && c->cur <= n->at && n->at < c->end) {
                holder = i;
                behind = max_u64(behind, c->cur);
            } else if (c->active && c->end <= n->at) {
                behind = max_u64(behind, c->end);
            } else if (c->active) {
                end = min_u64(end, c->cur);
            }
        }
        first = max_u64(first, behind);
    } else {
        first = end;
    }
    lock_drop(&f->lock);
    if (first >= end) {
        return;
    }
    if (holder < FILLERS_MAX) {
        filler_shorten(f, holder, first);
    }
    start(f, first, end);
}

/* While all fillers are out the others stay on the list: the next plan serves them. */
static void serve_readers(struct fill *f)
{
    while (filler_count(f) < FILLERS_MAX) {
        struct reader_need need;
        bool more;
        lock_take(&f->lock);
        more = reader_need(f, &need);
        lock_drop(&f->lock);
        if (!more) {
            return;
        }
        fetch_for(f, &need);
    }
}

/* A range alone does not make us fetch all of it, unless next to nothing is missing. */
static void decide_about_the_rest(struct fill *f)
{
    bool little = fill_nearly_there(f);

    lock_take(&f->lock);
    f->want_all = f->want_all || f->whole_wanted ||
                  (f->answers > 0 && (little || f->total_bytes <= PEEK_WHOLE_BYTES));
    lock_drop(&f->lock);
}

static void fetch_gaps(struct fill *f)
{
    unsigned most = f->total_bytes >= f->cache->set.parallel_bytes ? f->cache->set.fillers : 1;

    while (filler_count(f) < most && filler_count(f) < FILLERS_MAX) {
        uint64_t first;
        uint64_t end;
        bool gap;
        lock_take(&f->lock);
        gap = next_gap(f, 0, &first, &end);
        lock_drop(&f->lock);
        if (!gap) {
            return;
        }
        start(f, first, end);
    }
}

void fill_plan(struct fill *f)
{
    if (f->state != FILL_RUNNING || f->rc != 0 || f->total_bytes == LENGTH_UNKNOWN) {
        return;
    }
    if (f->splices) {
        serve_readers(f);
    }
    if (filler_count(f) == 0) {
        decide_about_the_rest(f);
    }
    if (f->want_all && (f->splices || filler_count(f) == 0)) {
        fetch_gaps(f);
    }
}

void fill_post_demand(struct fill *f)
{
    if (!f->demand_posted && !f->ended) {
        f->demand_posted = true;
        f->demand.deliver = fill_on_demand;
        fill_hold(f);
        mailbox_post(f->cache->mail, &f->demand);
    }
}

void fill_on_demand(struct letter *l)
{
    struct fill *f = CONTAINER_OF(l, struct fill, demand);

    lock_take(&f->lock);
    f->demand_posted = false;
    f->want_all = f->want_all || f->whole_wanted;
    lock_drop(&f->lock);
    fill_abandon(f);
    fill_plan(f);
    fill_release(&f);
}
