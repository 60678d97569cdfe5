/* seal.c - what becomes of a fetch's bytes: hashed behind the writes, read for what they say of
 * other keys, and sealed; or parked, for a fetch after a restart.
 *
 * A complete index is read for what it says of other keys (lookup.h: lookup_reader). Those rows are
 * committed before its own row, and before its last bytes are sent, so a client that has read the
 * index and requests what it names finds them.
 *
 * A fetch that was stopped, abandoned or cut off by its origin parks its stage
 * (server/store/partial.h), and the next fetch of the key resumes it. The code that takes a partial
 * out of the store's table owns it.
 */

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/codec/httpdate.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"
#include "server/cache/fetch_priv.h"
#include "server/cache/variant.h"
#include "server/store/atime.h"
#include "server/store/pin.h"

/* --- what an index tells ---------------------------------------------------------------------- */

enum {
    PIECE_BYTES = 256 << 10,
    ROWS_BYTES = 1 << 20,   /* a commit: others wait behind it */
    REPORTED_MAX = 4 << 20, /* of one index: many times what the largest channels name */
};

struct note {
    struct lookup_rows rows;
    struct fetch *fetch;
    uint64_t reported;
    bool changed;
};

static int keep_rows(struct note *n, struct err *e)
{
    struct fetch *f = n->fetch;
    struct batch *b = n->rows.batch;
    bool replaces;
    int rc = 0;

    n->rows.batch = batch_new();
    if (batch_filter(b, f->cache->store, f->lookup.reader->replaces, &replaces)) {
        batch_free(&b);
    } else {
        rc = store_commit(f->cache->store, &b, COMMIT_LAZY, e);
        /* The first word on a file counts for those who had it without any. Shards say little each,
         * and are many. */
        n->changed = n->changed || replaces || f->lookup.class == LOOKUP_MUTABLE;
    }
    return rc;
}

static int on_reported(struct lookup_rows *rows, struct err *e)
{
    struct note *n = CONTAINER_OF(rows, struct note, rows);

    if (n->reported == REPORTED_MAX) {
        return err_set(e, E_TOOBIG, "the index names more than %d objects", REPORTED_MAX);
    }
    n->reported++;
    return batch_bytes(rows->batch) < ROWS_BYTES ? 0 : keep_rows(n, e);
}

static int read_note_pieces(struct note *n, void *state, struct buf *piece, struct err *e)
{
    struct fetch *f = n->fetch;
    const struct lookup_reader *r = f->lookup.reader;
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < f->total_bytes; at += PIECE_BYTES) {
        size_t bytes = (size_t)min_u64(PIECE_BYTES, f->total_bytes - at);
        char *to;
        buf_clear(piece);
        to = buf_room(piece, bytes);
        CHECK(to != NULL);
        rc = fd_pread_all(f->fd, to, bytes, at, e);
        if (rc == 0) {
            rc = r->feed(state, slice_of(to, bytes), &n->rows, e);
        }
    }
    return rc != 0 ? rc : r->finish(state, &n->rows, e);
}

static int read_notes(struct fetch *f, struct err *e)
{
    const struct object *o = &f->object;
    struct buf piece = BUF_INIT(PIECE_BYTES);
    struct note n = {.rows = {batch_new(), on_reported}, .fetch = f};
    struct cache *c = f->cache;
    uint64_t began_ms = clock_now_ms();
    uint64_t modified = 0;
    struct err why = {0};
    void *state;
    int rc, kept;

    if (o->last_modified.p == NULL ||
        !httpdate_parse(o->last_modified, clock_unix_s(), &modified)) {
        modified = 0;
    }
    state = f->lookup.reader->open(&f->lookup, o->url, modified, o->validated_unix_s);
    rc = read_note_pieces(&n, state, &piece, e);
    f->lookup.reader->close(state);
    kept = keep_rows(&n, &why); /* also of one that is refused: they say what to do about it */
    if (kept != 0) {
        log_warn("fetch.note", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(f->lookup.repo),
                 why.text);
    }
    if (n.changed && c->on_change != NULL) { /* once: it voids all answers of the repo */
        c->on_change(c->on_change_arg, f->lookup.repo, SLICE_NONE);
    }
    batch_free(&n.rows.batch);
    buf_free(&piece);
    log_debug("fetch.noted", "repo=" SLICE_FMT " bytes=%" PRIu64 " took_ms=%" PRIu64 " rc=%d",
              SLICE_ARG(f->lookup.repo), f->total_bytes, clock_now_ms() - began_ms, rc);
    return rc;
}

/* --- hashing and sealing ---------------------------------------------------------------------- */

enum {
    STEP_BYTES = 8 << 20, /* hashed by one job */
    LAG_BYTES = 1 << 20,  /* worth a job before the end */
};
#define SYNCED_ROW_BYTES ((uint64_t)1 << 20) /* from here on a lost row costs more than a sync */

static void hash_step(struct job *j)
{
    struct fetch *f = CONTAINER_OF(j, struct fetch, hash_job);
    uint64_t end = min_u64(fetch_frontier(f), ingest_hashed(f->ingest) + STEP_BYTES);

    f->job_rc = ingest_hash(f->ingest, end, &f->job_why);
}

static void on_hashed(struct job *j)
{
    struct fetch *f = CONTAINER_OF(j, struct fetch, hash_job);

    fetch_job_done(f);
    f->busy &= ~(unsigned)FETCH_HASHES;
    if (f->rc != 0) {
        fetch_settle(f);
    } else if (f->job_rc != 0) {
        fetch_fail(f, f->job_rc, &f->job_why);
    } else {
        fetch_hash(f);
    }
}

/* --- variants that make room ------------------------------------------------------------------ */

/* Which variants of an object leave when one comes: those that it answers for, and beyond
 * VARIANTS_MAX the least used. What is pinned stays: then the newcomer is not kept, or anybody
 * could put it out by asking for another a few times. */
struct variant_comes {
    struct cache *cache;
    const struct lookup *lookup;
    struct slice row_key; /* without the tail */
    struct slice vary_key;
};

struct rival {
    struct slice vary_key;
    struct digest digest;
    uint64_t used; /* the later, the more: its last hour, then when its origin last spoke of it */
};

struct trim {
    const struct variant_comes *comes;
    struct batch *batch;
    struct arena arena;
    struct rival rival[VARIANTS_MAX];
    size_t rivals;
};

static void drop_rival_object(struct trim *t, const struct rival *r)
{
    struct buf row_key = BUF_INIT(OBJECT_KEY_MAX);
    struct buf holder = BUF_INIT(OBJECT_KEY_MAX);

    variant_key(&row_key, t->comes->row_key, r->vary_key);
    batch_del(t->batch, TABLE_OBJECT, buf_slice(&row_key));
    holder_key(&holder, &r->digest, t->comes->lookup->repo, 'o',
               object_key_of_row(buf_slice(&row_key)));
    batch_del(t->batch, TABLE_HOLDER, buf_slice(&holder));
    CHECK(row_key.rc == 0 && holder.rc == 0);
    buf_free(&row_key);
    buf_free(&holder);
}

static uint64_t used(struct cache *c, const struct object *o)
{
    uint32_t hour = 0;

    if (atime_hour(c->store, &o->digest, &hour, NULL) != 0) {
        hour = 0;
    }
    return (uint64_t)hour << 40 | (o->validated_unix_s & (((uint64_t)1 << 40) - 1));
}

/* Keeps the newcomer's place free. */
static void stays(struct trim *t, const struct rival *r)
{
    size_t least = 0;

    if (t->rivals < VARIANTS_MAX - 1) {
        t->rival[t->rivals++] = *r;
        return;
    }
    for (size_t i = 1; i < t->rivals; i++) {
        least = t->rival[i].used < t->rival[least].used ? i : least;
    }
    if (t->rival[least].used < r->used) {
        drop_rival_object(t, &t->rival[least]);
        t->rival[least] = *r;
    } else {
        drop_rival_object(t, r);
    }
}

static int on_variant(void *arg, struct slice vary_key, struct slice row)
{
    struct trim *t = arg;
    struct rival r = {.vary_key = arena_copy(&t->arena, vary_key)};
    struct arena a = {0};
    struct object o;

    if (slice_eq(vary_key, t->comes->vary_key)) {
        return 0; /* its row is replaced */
    }
    if (object_decode(row, &a, &o)) {
        r.digest = o.digest;
        r.used = used(t->comes->cache, &o);
        if (vary_matches(vary_key, t->comes->lookup)) {
            drop_rival_object(t, &r);
        } else {
            stays(t, &r);
        }
    }
    arena_fini(&a);
    return 0;
}

struct tally {
    const struct variant_comes *comes;
    size_t others;
    bool replaces; /* one of them: none has to go */
};

static int tally_variant(void *arg, struct slice vary_key, struct slice row)
{
    struct tally *y = arg;

    (void)row;
    y->others++;
    y->replaces = y->replaces || slice_eq(vary_key, y->comes->vary_key) ||
                  vary_matches(vary_key, y->comes->lookup);
    return 0;
}

static bool is_pinned(const struct variant_comes *v)
{
    struct pin_table pins;
    struct err e;
    bool yes = pins_load(v->cache->store, &pins, &e) >= 0 &&
               pins_cover(&pins, v->lookup->repo, object_key_of_row(v->row_key));

    pins_free(&pins);
    return yes;
}

/* True: they are pinned, and it is not kept itself. */
static bool variants_refuse(const struct variant_comes *v)
{
    struct tally y = {.comes = v};
    struct err e;

    return v->vary_key.n != 0 && variants_each(v->cache, v->row_key, tally_variant, &y, &e) == 0 &&
           !y.replaces && y.others >= VARIANTS_MAX && is_pinned(v);
}

/* The rows that it puts out. */
static void variants_trim(const struct variant_comes *v, struct batch *b)
{
    struct trim t = {.comes = v, .batch = b};
    struct err e;

    if (variants_each(v->cache, v->row_key, on_variant, &t, &e) != 0) {
        log_warn("cache.variants", "why=\"%s\"", e.text); /* one too many does no harm */
    }
    arena_fini(&t.arena);
}

/* --- the rows --------------------------------------------------------------------------------- */

/* The row that is replaced, whatever became of its blob, gives its hold on another digest back. */
static void drop_old_holder(struct fetch *f, struct batch *b)
{
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct buf key = BUF_INIT(OBJECT_KEY_MAX);
    struct digest old;

    if (store_get(f->cache->store, TABLE_OBJECT, f->row_key, &row, NULL) == 0 &&
        object_row_digest(buf_slice(&row), &old) && !digest_eq(&old, &f->object.digest)) {
        holder_key(&key, &old, f->lookup.repo, 'o', object_key_of_row(f->row_key));
        batch_del(b, TABLE_HOLDER, buf_slice(&key));
    }
    buf_free(&row);
    buf_free(&key);
}

static struct variant_comes variant_of(const struct fetch *f)
{
    size_t vary_key = f->vary_key.n != 0 ? 1 + f->vary_key.n : 0;

    return (struct variant_comes){f->cache, &f->lookup,
                                  slice_first(f->row_key, f->row_key.n - vary_key), f->vary_key};
}

static void put_rows(struct fetch *f, struct batch *b)
{
    struct variant_comes v = variant_of(f);
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct buf key = BUF_INIT(OBJECT_KEY_MAX);

    drop_old_holder(f, b);
    if (lookup_varies(&f->lookup)) {
        variants_trim(&v, b);
    }
    object_encode(&f->object, &row);
    batch_put(b, TABLE_OBJECT, f->row_key, buf_slice(&row));
    holder_key(&key, &f->object.digest, f->lookup.repo, 'o', object_key_of_row(f->row_key));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
    CHECK(row.rc == 0 && key.rc == 0);
    buf_free(&row);
    buf_free(&key);
}

static void mark_verified(struct fetch *f)
{
    lock_take(&f->lock);
    f->verified = true;
    lock_drop(&f->lock);
    fetch_wake_all(f);
}

/* What was promised, by SHA-256, by git's name or by SHA-512. */
static int verify_fetched_blob(struct fetch *f, struct err *e)
{
    char got[DIGEST_HEX + 1];
    struct git_oid oid;
    struct sha512 sum;
    int rc = 0;

    if (f->lookup.digest_known && !digest_eq(&f->object.digest, &f->lookup.digest)) {
        digest_format(&f->object.digest, got);
        rc = err_set(e, E_CORRUPT, "the origin's bytes have SHA-256 %.16s..., not the expected one",
                     got);
    } else if (f->lookup.sum.kind == LOOKUP_SUM_GIT_OID) {
        rc = git_oid_of_fd(f->fd, f->total_bytes, &oid, e);
        if (rc == 0 && !git_oid_eq(&oid, &f->lookup.sum.git_oid)) {
            git_oid_format(&oid, got);
            rc = err_set(e, E_CORRUPT,
                         "the origin's bytes have the git id %.16s..., not the expected one", got);
        }
    } else if (f->lookup.sum.kind == LOOKUP_SUM_SHA512) {
        rc = sha512_of_fd(f->fd, f->total_bytes, &sum, e);
        if (rc == 0 && !sha512_eq(&sum, &f->lookup.sum.sha512)) {
            rc = err_set(e, E_CORRUPT, "the SHA-512 of the origin's bytes is not the expected one");
        }
    }
    if (rc == E_CORRUPT) {
        COUNT(f->cache, verify_failures, 1);
    }
    return rc;
}

static void seal_fetched_blob(struct job *j)
{
    struct fetch *f = CONTAINER_OF(j, struct fetch, seal_job);
    struct object *o = &f->object;
    struct variant_comes v = variant_of(f);
    bool there = false;

    o->size_bytes = f->total_bytes;
    f->job_rc = ingest_finish(f->ingest, f->total_bytes, &o->digest, &f->job_why);
    f->job_rc = f->job_rc != 0 ? f->job_rc : verify_fetched_blob(f, &f->job_why);
    if (f->job_rc == 0 && f->lookup.reader != NULL) {
        f->job_rc = read_notes(f, &f->job_why);
    }
    if (f->job_rc != 0) {
        return;
    }
    mark_verified(f); /* readers do not wait for the disk */
    if (!fetch_keeps(f) || (lookup_varies(&f->lookup) && variants_refuse(&v))) {
        return;
    }
    f->batch = batch_new();
    f->sealed_id = ingest_id(f->ingest);
    f->contributed = blob_is_here(f->cache->store, &o->digest, &there, NULL) == 0 && !there;
    f->job_rc = ingest_seal(&f->ingest, f->batch, NULL, &f->job_why);
    if (f->job_rc == 0) {
        put_rows(f, f->batch);
    } else {
        batch_free(&f->batch);
    }
}

static void finish_fetch_seal(struct fetch *f, int rc, const struct err *why)
{
    if (rc == 0 || f->rc != 0) {
        fetch_settle(f);
    } else if (f->verified) {
        /* The bytes are good and readers have them: only keeping them failed. */
        log_warn("fetch.seal", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(f->lookup.repo),
                 why->text);
        fetch_use_less(f, USE_ALL);
        fetch_settle(f);
    } else {
        fetch_fail(f, rc, why);
    }
}

static void on_committed(struct commit_wait *w, int rc, const struct err *e)
{
    struct fetch *f = CONTAINER_OF(w, struct fetch, commit);

    f->jobs--;
    f->sealed_id = rc == 0 ? 0 : f->sealed_id;
    if (rc == 0 && f->contributed) {
        share_contributed(f->cache->share, f->lookup.client, &f->object.digest,
                          f->object.size_bytes);
    }
    finish_fetch_seal(f, rc, e);
}

static void on_fetch_sealed(struct job *j)
{
    struct fetch *f = CONTAINER_OF(j, struct fetch, seal_job);

    fetch_job_done(f);
    if (!fetch_keeps(f)) { /* removed meanwhile */
        batch_free(&f->batch);
    }
    if (f->batch == NULL) {
        if (f->job_rc == 0) {
            fetch_use_less(f, USE_ALL);
        }
        finish_fetch_seal(f, f->job_rc, &f->job_why);
        return;
    }
    f->jobs++;
    f->commit.done = on_committed;
    f->commit.reply = f->cache->mail;
    store_commit_async(f->cache->store, &f->batch,
                       f->object.size_bytes >= SYNCED_ROW_BYTES ? COMMIT_SYNC : COMMIT_LAZY,
                       &f->commit);
}

void fetch_hash(struct fetch *f)
{
    uint64_t frontier;

    if (f->state != FETCH_RUNNING || f->rc != 0 || (f->busy & FETCH_HASHES) != 0) {
        return;
    }
    frontier = fetch_frontier(f);
    if (fetch_complete(f) && range_request_count(f) == 0 && f->busy == 0) {
        fetch_becomes(f, FETCH_SEALING);
        fetch_job(f, &f->seal_job, seal_fetched_blob, on_fetch_sealed);
    } else if (frontier >= ingest_hashed(f->ingest) + LAG_BYTES) {
        f->busy |= FETCH_HASHES;
        fetch_job(f, &f->hash_job, hash_step, on_hashed);
    }
}

/* --- what survives a fetch -------------------------------------------------------------------- */

static struct partial *describe_fetch_partial(struct fetch *f)
{
    struct partial *p = partial_new(PARTIAL_FETCH, f->row_key);
    char origin[8];

    be_put(origin, sizeof origin, f->object.origin);
    p->total_bytes = f->total_bytes;
    p->source = arena_copy(&p->arena, slice_of(origin, sizeof origin));
    p->validator = arena_copy(&p->arena, f->object.origin_etag);
    p->digest_known = f->lookup.digest_known;
    p->digest = f->lookup.digest;
    lock_take(&f->lock);
    extents_copy(&p->have, &f->have);
    lock_drop(&f->lock);
    return p;
}

/* Described first: what is published while we sync is not yet durable. */
static int save_part(struct fetch *f, struct partial **out, struct err *e)
{
    struct partial *p = describe_fetch_partial(f);
    int rc = ingest_save(f->ingest, p, NULL, COMMIT_LAZY, e);

    if (rc == 0 && out != NULL) {
        *out = p;
    } else {
        partial_free(&p);
    }
    return rc;
}

static void save_fetch_progress(struct job *j)
{
    struct fetch *f = CONTAINER_OF(j, struct fetch, sync_job);

    f->sync_rc = save_part(f, NULL, &f->sync_why);
}

static void on_saved(struct job *j)
{
    struct fetch *f = CONTAINER_OF(j, struct fetch, sync_job);

    fetch_job_done(f);
    f->busy &= ~(unsigned)FETCH_SAVES;
    if (f->sync_rc != 0) {
        log_warn("fetch.partial", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(f->lookup.repo),
                 f->sync_why.text);
    }
    if (f->rc != 0) {
        fetch_settle(f);
    } else {
        fetch_hash(f); /* a seal waits for the save: it would bring the row back */
    }
}

void fetch_save(struct fetch *f, uint64_t now_ms)
{
    uint64_t have;

    if ((f->busy & FETCH_SAVES) != 0 || !fetch_keeps(f) || f->ingest == NULL) {
        return;
    }
    lock_take(&f->lock);
    have = extents_bytes(&f->have);
    lock_drop(&f->lock);
    if (ingest_save_is_due(f->ingest, have, now_ms)) {
        f->busy |= FETCH_SAVES;
        fetch_job(f, &f->sync_job, save_fetch_progress, on_saved);
    }
}

/* Worth it is what nothing was wrong with. */
void fetch_put_away(struct fetch *f, bool worth)
{
    struct err e;

    if (worth && ingest_id(f->ingest) != 0 && ingest_state(f->ingest) == INGEST_FILE &&
        save_part(f, &f->earlier, &e) == 0) {
        ingest_park(&f->ingest);
    } else {
        ingest_drop(&f->ingest);
    }
}
