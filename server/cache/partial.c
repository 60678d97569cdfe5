/* partial.c - what of a large unfinished fill survives it: rows written after the data they describe is durable.
 *
 * A fill that was stopped, abandoned or left alone by its origin parks its stage; the next one for the key resumes it. Whoever
 * takes a partial out of the store's table owns it. */

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/cache/cache_priv.h"
#include "server/cache/variant.h"

static struct partial *describe(struct fill *f)
{
    struct partial *p = partial_new(PARTIAL_FILL, f->row_key);
    char origin[8];

    be_put(origin, sizeof origin, f->object.origin);
    p->total_bytes = f->total_bytes;
    p->source = arena_copy(&p->arena, slice_of(origin, sizeof origin));
    p->validator = arena_copy(&p->arena, f->object.origin_etag);
    p->digest_known = f->want.digest_known;
    p->digest = f->want.digest;
    lock_take(&f->lock);
    extents_copy(&p->have, &f->have);
    lock_drop(&f->lock);
    return p;
}

/* Described first: what is published while we sync is not yet durable. */
static int save_part(struct fill *f, struct partial **out, struct err *e)
{
    struct partial *p = describe(f);
    int rc = ingest_save(f->ingest, p, NULL, COMMIT_LAZY, e);

    if (rc == 0 && out != NULL) {
        *out = p;
    } else {
        partial_free(&p);
    }
    return rc;
}

static void save(struct job *j)
{
    struct fill *f = CONTAINER_OF(j, struct fill, sync_job);

    f->sync_rc = save_part(f, NULL, &f->sync_why);
}

static void on_saved(struct job *j)
{
    struct fill *f = CONTAINER_OF(j, struct fill, sync_job);

    fill_job_done(f);
    f->sync_busy = false;
    if (f->sync_rc != 0) {
        log_warn("fill.partial", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(f->want.repo),
                 f->sync_why.text);
    }
    if (f->rc != 0) {
        fill_settle(f);
    } else {
        fill_hash(f); /* a seal waits for the save: it would bring the row back */
    }
}

void fill_save(struct fill *f, uint64_t now_ms)
{
    uint64_t have;

    if (f->sync_busy || !f->keep || f->ingest == NULL) {
        return;
    }
    lock_take(&f->lock);
    have = extents_bytes(&f->have);
    lock_drop(&f->lock);
    if (ingest_save_is_due(f->ingest, have, now_ms)) {
        f->sync_busy = true;
        fill_job(f, &f->sync_job, save, on_saved);
    }
}

/* Worth it is what nothing was wrong with. */
void fill_put_away(struct fill *f, bool worth)
{
    struct err e;

    if (worth && ingest_id(f->ingest) != 0 && ingest_state(f->ingest) == INGEST_FILE &&
        save_part(f, &f->earlier, &e) == 0) {
        ingest_park(&f->ingest);
    } else {
        ingest_drop(&f->ingest);
    }
}

/* --- the next one ------------------------------------------------------------------------------------------------- */

struct wanted {
    struct slice row_key;
    const struct want *w;
};

static bool is_variant(void *arg, const struct partial *p)
{
    const struct wanted *x = arg;
    struct slice name = partial_name(p);
    struct slice tail = variant_of_row(object_key_tail(name));

    return tail.n != 0 && name.n == x->row_key.n + 1 + tail.n && slice_starts(name, x->row_key) &&
           variant_suits(tail, x->w);
}

/* An earlier life left a part of it. True: what is missing is to be asked for, on the condition that it is still the same. */
bool fill_take_part(struct fill *f)
{
    struct wanted x = {f->row_key, &f->want};
    struct store *s = f->cache->store;
    struct partial *p = NULL;
    bool same;

    if (want_varies(&f->want)) { /* they are few: only large ones are parked */
        p = partial_take_if(s, PARTIAL_FILL, is_variant, &x);
    }
    p = p != NULL ? p : partial_take(s, PARTIAL_FILL, f->row_key);
    f->earlier = p;
    if (p == NULL) {
        return false;
    }
    same = f->want.digest_known ? p->digest_known && digest_eq(&p->digest, &f->want.digest)
                                : etag_is_strong(p->validator) && p->source.n == 8 &&
                                      origin_owns(f->origin, be_get(p->source.p, 8));
    if (!same || extents_bytes(&p->have) >= p->total_bytes) {
        return false;
    }
    f->resume_id = p->id;
    f->object.origin_etag = p->validator.n != 0 ? arena_copy(&f->arena, p->validator) : SLICE_NONE;
    f->total_bytes = p->total_bytes;
    extents_copy(&f->have, &p->have);
    return true;
}

/* --- removal ------------------------------------------------------------------------------------------------------ */

void partials_expire(struct cache *c, uint64_t now_unix_s, uint64_t max_bytes)
{
    partials_lose_old(c->store, now_unix_s, max_bytes);
    partials_drop_lost(c->store);
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

void partials_forget(struct cache *c, struct slice key, bool below)
{
    partials_lose(c->store, PARTIAL_FILL, is_forgotten, &(struct forgotten){key, below});
    partials_drop_lost(c->store);
}
