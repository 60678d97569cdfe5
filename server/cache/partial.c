/* partial.c - what of a large unfinished fill survives it: rows written after the data they describe is durable.
 *
 * A fill that was stopped, abandoned or left alone by its origin parks its stage; the next one for the key resumes it. Who
 * takes a partial out of the table owns it. */

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/cache/cache_priv.h"
#include "server/cache/variant.h"
#include "server/cache/wire.h"

enum {
    SAVE_MS = 5000,
    SAVE_BYTES = 64 << 20,
    ROW_MAX = 4 << 20,
    KEEP_S = 7 * 86400,
    PARTIALS_MAX = 4096
};
#define ROW_KIND  SLICE("fill") /* the table is shared with uploads */
#define ROW_MAGIC SLICE("fill3")

static void encode(struct fill *f, struct buf *out)
{
    buf_adds(out, ROW_MAGIC);
    wire_put_slice(out, f->row_key);
    buf_be(out, 8, clock_unix_s());
    buf_be(out, 8, f->total_bytes);
    buf_be(out, 8, f->object.origin);
    wire_put_slice(out, f->object.origin_etag);
    buf_byte(out, f->want.digest_known);
    buf_add(out, f->want.digest.b, DIGEST_BYTES);
    lock_take(&f->lock);
    extents_encode(&f->have, out);
    lock_drop(&f->lock);
}

static bool decode(struct slice row, struct partial *p)
{
    struct slice known;
    struct slice digest;

    if (!slice_starts(row, ROW_MAGIC)) {
        return false;
    }
    row = slice_from(row, ROW_MAGIC.n);
    if (!wire_get_slice(&row, &p->key) || !slice_be(&row, 8, &p->saved_unix_s) ||
        !slice_be(&row, 8, &p->total_bytes) || !slice_be(&row, 8, &p->origin) ||
        !wire_get_slice(&row, &p->origin_etag) || !slice_take(&row, 1, &known) ||
        !slice_take(&row, DIGEST_BYTES, &digest) ||
        !extents_decode(&p->have, &row, p->total_bytes) || p->key.n == 0) {
        return false;
    }
    p->digest_known = known.p[0] != 0;
    memcpy(p->digest.b, digest.p, DIGEST_BYTES);
    p->key = arena_copy(&p->arena, p->key);
    p->origin_etag = p->origin_etag.p != NULL ? arena_copy(&p->arena, p->origin_etag) : SLICE_NONE;
    return true;
}

int partial_save(struct fill *f, struct err *e)
{
    struct buf row = BUF_INIT(ROW_MAX);
    struct batch *b = batch_new();
    char key[STAGE_KEY_BYTES];
    int rc;

    encode(f, &row); /* first: what is published while we sync is not yet durable */
    rc = row.rc != 0 ? err_set(e, row.rc, "too many pieces") : stage_sync(f->stage, e);
    if (rc == 0) {
        stage_key(stage_id(f->stage), key);
        batch_put(b, TABLE_PARTIAL, slice_of(key, sizeof key), buf_slice(&row));
        rc = store_commit(f->cache->store, &b, COMMIT_LAZY, e);
    }
    batch_free(&b);
    buf_free(&row);
    return rc;
}

static void save(struct job *j)
{
    struct fill *f = CONTAINER_OF(j, struct fill, sync_job);

    f->sync_rc = partial_save(f, &f->sync_why);
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

    if (f->sync_busy || !f->keep || f->stage == NULL || stage_id(f->stage) == 0) {
        return;
    }
    lock_take(&f->lock);
    have = extents_bytes(&f->have);
    lock_drop(&f->lock);
    if (have == f->synced_bytes ||
        (have - f->synced_bytes < SAVE_BYTES && now_ms - f->synced_ms < SAVE_MS)) {
        return;
    }
    f->synced_bytes = have;
    f->synced_ms = now_ms;
    f->sync_busy = true;
    fill_job(f, &f->sync_job, save, on_saved);
}

/* --- parked ones -------------------------------------------------------------------------------------------------- */

void partial_free(struct partial **pp)
{
    struct partial *p = *pp;

    *pp = NULL;
    if (p != NULL) {
        extents_fini(&p->have);
        arena_fini(&p->arena);
        free(p);
    }
}

struct partial *partial_of(struct fill *f)
{
    struct partial *p = NEW(struct partial);

    p->key = arena_copy(&p->arena, f->row_key);
    p->stage_id = f->parked_id;
    p->saved_unix_s = clock_unix_s();
    p->total_bytes = f->total_bytes;
    p->origin = f->object.origin;
    if (f->object.origin_etag.p != NULL) {
        p->origin_etag = arena_copy(&p->arena, f->object.origin_etag);
    }
    p->digest_known = f->want.digest_known;
    p->digest = f->want.digest;
    extents_copy(&p->have, &f->have);
    return p;
}

/* Two lives began the same object: the fuller one is kept. */
void partial_put(struct cache *c, struct partial **pp)
{
    struct partial *p = *pp;
    struct partial *other = NULL;

    *pp = NULL;
    lock_take(&c->lock);
    HASH_FIND(hh, c->partials, p->key.p, p->key.n, other);
    if (other != NULL && extents_bytes(&other->have) >= extents_bytes(&p->have)) {
        list_push_back(&c->partials_lost, &p->node);
    } else {
        if (other != NULL) {
            HASH_DEL(c->partials, other);
            list_push_back(&c->partials_lost, &other->node);
        }
        HASH_ADD_KEYPTR(hh, c->partials, p->key.p, p->key.n, p);
    }
    lock_drop(&c->lock);
}

void partial_lose(struct cache *c, uint64_t stage_id)
{
    struct partial *p = NEW(struct partial);

    p->stage_id = stage_id;
    lock_take(&c->lock);
    list_push_back(&c->partials_lost, &p->node);
    lock_drop(&c->lock);
}

/* They are few: only large ones are parked. */
static struct partial *find_variant(struct cache *c, struct slice row_key, const struct want *w)
{
    struct partial *p;
    struct partial *tmp;

    HASH_ITER(hh, c->partials, p, tmp)
    {
        struct slice tail = variant_of_row(object_key_tail(p->key));
        if (tail.n != 0 && p->key.n == row_key.n + 1 + tail.n && slice_starts(p->key, row_key) &&
            variant_suits(tail, w)) {
            return p;
        }
    }
    return NULL;
}

struct partial *partial_take(struct cache *c, struct slice row_key, const struct want *w)
{
    struct partial *p;

    lock_take(&c->lock);
    p = want_varies(w) ? find_variant(c, row_key, w) : NULL;
    if (p == NULL) {
        HASH_FIND(hh, c->partials, row_key.p, row_key.n, p);
    }
    if (p != NULL) {
        HASH_DEL(c->partials, p);
    }
    lock_drop(&c->lock);
    return p;
}

void partial_drop(struct cache *c, uint64_t stage_id)
{
    struct batch *b = batch_new();
    struct stage *st = NULL;
    char key[STAGE_KEY_BYTES];
    struct err e;

    if (stage_resume(c->store, stage_id, 0, &st, &e) == 0) {
        stage_abort(&st);
    }
    stage_key(stage_id, key);
    batch_del(b, TABLE_PARTIAL, slice_of(key, sizeof key));
    if (store_commit(c->store, &b, COMMIT_LAZY, &e) != 0) {
        log_warn("fill.partial", "why=\"%s\"", e.text); /* a sweep takes it at the next start */
    }
}

/* --- their end ---------------------------------------------------------------------------------------------------- */

static struct partial *oldest(struct cache *c, uint64_t *sum_bytes)
{
    struct partial *first = NULL;
    struct partial *p;
    struct partial *tmp;

    *sum_bytes = 0;
    HASH_ITER(hh, c->partials, p, tmp)
    {
        *sum_bytes += extents_bytes(&p->have);
        first = first == NULL || p->saved_unix_s < first->saved_unix_s ? p : first;
    }
    return first;
}

/* Out of the table, so that no fill resumes it; NULL: all that are left may stay. */
static struct partial *next_to_go(struct cache *c, uint64_t now_unix_s, uint64_t max_bytes)
{
    struct partial *p;
    struct list *lost;
    uint64_t sum_bytes;

    lock_take(&c->lock);
    lost = list_pop_front(&c->partials_lost);
    if (lost != NULL) {
        p = LIST_ITEM(lost, struct partial, node);
    } else {
        p = oldest(c, &sum_bytes);
        if (p != NULL && sum_bytes <= max_bytes && HASH_COUNT(c->partials) <= PARTIALS_MAX &&
            p->saved_unix_s + KEEP_S > now_unix_s) {
            p = NULL;
        }
        if (p != NULL) {
            HASH_DEL(c->partials, p);
        }
    }
    lock_drop(&c->lock);
    return p;
}

void partials_expire(struct cache *c, uint64_t now_unix_s, uint64_t max_bytes)
{
    struct partial *p;

    while ((p = next_to_go(c, now_unix_s, max_bytes)) != NULL) {
        log_info("partial.dropped", "bytes=%" PRIu64, extents_bytes(&p->have));
        partial_drop(c, p->stage_id);
        partial_free(&p);
    }
}

void partials_forget(struct cache *c, struct slice key, bool below)
{
    struct partial *p;
    struct partial *tmp;

    lock_take(&c->lock);
    HASH_ITER(hh, c->partials, p, tmp)
    {
        if (object_key_is(p->key, key, below)) {
            HASH_DEL(c->partials, p);
            list_push_back(&c->partials_lost, &p->node);
        }
    }
    lock_drop(&c->lock);
    partials_expire(c, clock_unix_s(), UINT64_MAX);
}

/* --- start and end of the cache ----------------------------------------------------------------------------------- */

static int load_row(void *arg, struct slice key, struct slice row)
{
    struct cache *c = arg;
    struct partial *p = NEW(struct partial);

    if (!slice_starts(row, ROW_KIND) || !slice_be(&key, 8, &p->stage_id)) {
        partial_free(&p);
    } else if (decode(row, p)) {
        partial_put(c, &p);
    } else { /* of another version, or damaged */
        lock_take(&c->lock);
        list_push_back(&c->partials_lost, &p->node);
        lock_drop(&c->lock);
    }
    return 0;
}

int partials_load(struct cache *c, struct err *e)
{
    return store_scan(c->store, TABLE_PARTIAL, SLICE_NONE, SLICE_NONE, load_row, c, e);
}

void partials_free(struct cache *c)
{
    struct partial *p;
    struct partial *tmp;
    struct list *n;

    HASH_ITER(hh, c->partials, p, tmp)
    {
        HASH_DEL(c->partials, p);
        partial_free(&p);
    }
    while ((n = list_pop_front(&c->partials_lost)) != NULL) {
        p = LIST_ITEM(n, struct partial, node);
        partial_free(&p);
    }
}
