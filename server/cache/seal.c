/* seal.c - what becomes of a fill's bytes: hashed behind the frontier, read for what they tell of other keys, and sealed; or parked, for
 * a fill after a restart.
 *
 * An index that has come whole is read for what it tells of other keys (want.h: want_reader). Its rows are there before its own is,
 * and before the last of its bytes leave: whoever has read it and asks for what it names finds them.
 *
 * A fill that was stopped, abandoned or left alone by its origin parks its stage (server/store/partial.h); the next one for the key
 * resumes it. Whoever takes a partial out of the store's table owns it.
 */

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/codec/httpdate.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"
#include "server/cache/fill_priv.h"
#include "server/cache/variant.h"
#include "server/store/atime.h"
#include "server/store/pin.h"

/* --- what an index tells ----------------------------------------------------------------------------------------- */

enum {
    PIECE_BYTES = 256 << 10,
    ROWS_BYTES = 1 << 20, /* a commit: others wait behind it */
    TOLD_MAX = 4 << 20,   /* of one index: many times what the largest channels name */
};

struct note {
    struct want_rows rows;
    struct fill *fill;
    uint64_t told;
    bool changed;
};

static int keep_rows(struct note *n, struct err *e)
{
    struct fill *f = n->fill;
    struct batch *b = n->rows.batch;
    bool replaces;
    int rc = 0;

    n->rows.batch = batch_new();
    if (batch_sift(b, f->cache->store, f->want.reader->replaces, &replaces)) {
        batch_free(&b);
    } else {
        rc = store_commit(f->cache->store, &b, COMMIT_LAZY, e);
        /* The first word on a file counts for those who had it without any. Shards say little each, and are many. */
        n->changed = n->changed || replaces || f->want.class == WANT_MUTABLE;
    }
    return rc;
}

static int on_told(struct want_rows *rows, struct err *e)
{
    struct note *n = CONTAINER_OF(rows, struct note, rows);

    if (n->told == TOLD_MAX) {
        return err_set(e, E_TOOBIG, "an index that names more than %d things", TOLD_MAX);
    }
    n->told++;
    return batch_bytes(rows->batch) < ROWS_BYTES ? 0 : keep_rows(n, e);
}

static int read_all(struct note *n, void *state, struct buf *piece, struct err *e)
{
    struct fill *f = n->fill;
    const struct want_reader *r = f->want.reader;
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

static int read_notes(struct fill *f, struct err *e)
{
    const struct object *o = &f->object;
    struct buf piece = BUF_INIT(PIECE_BYTES);
    struct note n = {.rows = {batch_new(), on_told}, .fill = f};
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
    state = f->want.reader->open(&f->want, o->url, modified, o->validated_unix_s);
    rc = read_all(&n, state, &piece, e);
    f->want.reader->close(state);
    kept = keep_rows(&n, &why); /* also of one that is refused: they say what to do about it */
    if (kept != 0) {
        log_warn("fill.note", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(f->want.repo), why.text);
    }
    if (n.changed && c->on_change != NULL) { /* once: it voids all answers of the repo */
        c->on_change(c->on_change_arg, f->want.repo, SLICE_NONE);
    }
    batch_free(&n.rows.batch);
    buf_free(&piece);
    log_debug("fill.noted", "repo=" SLICE_FMT " bytes=%" PRIu64 " took_ms=%" PRIu64 " rc=%d",
              SLICE_ARG(f->want.repo), f->total_bytes, clock_now_ms() - began_ms, rc);
    return rc;
}

/* --- hashing and sealing ----------------------------------------------------------------------------------------- */

enum {
    STEP_BYTES = 8 << 20, /* hashed by one job */
    LAG_BYTES = 1 << 20,  /* worth a job before the end */
};
#define SYNCED_ROW_BYTES ((uint64_t)1 << 20) /* from here on a lost row costs more than a sync */

static void hash_step(struct job *j)
{
    struct fill *f = CONTAINER_OF(j, struct fill, hash_job);
    uint64_t end = min_u64(fill_frontier(f), ingest_hashed(f->ingest) + STEP_BYTES);

    f->job_rc = ingest_hash(f->ingest, end, &f->job_why);
}

static void on_hashed(struct job *j)
{
    struct fill *f = CONTAINER_OF(j, struct fill, hash_job);

    fill_job_done(f);
    f->busy &= ~(unsigned)FILL_HASHES;
    if (f->rc != 0) {
        fill_settle(f);
    } else if (f->job_rc != 0) {
        fill_fail(f, f->job_rc, &f->job_why);
    } else {
        fill_hash(f);
    }
}

/* --- variants that make room -------------------------------------------------------------------------------------- */

/* Which variants of an object leave when one comes: those that it answers for, and beyond VARIANTS_MAX the least used. What is pinned
 * stays: then the newcomer is not kept, or anybody could put it out by asking for another a few times. */
struct variant_comes {
    struct cache *cache;
    const struct want *want;
    struct slice row_key; /* without the tail */
    struct slice tail;
};

struct rival {
    struct slice tail;
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

static void drop(struct trim *t, const struct rival *r)
{
    struct buf row_key = BUF_INIT(OBJECT_KEY_MAX);
    struct buf holder = BUF_INIT(OBJECT_KEY_MAX);

    variant_key(&row_key, t->comes->row_key, r->tail);
    batch_del(t->batch, TABLE_OBJECT, buf_slice(&row_key));
    holder_key(&holder, &r->digest, t->comes->want->repo, 'o',
               object_key_tail(buf_slice(&row_key)));
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
        drop(t, &t->rival[least]);
        t->rival[least] = *r;
    } else {
        drop(t, r);
    }
}

static int on_variant(void *arg, struct slice tail, struct slice row)
{
    struct trim *t = arg;
    struct rival r = {.tail = arena_copy(&t->arena, tail)};
    struct arena a = {0};
    struct object o;

    if (slice_eq(tail, t->comes->tail)) {
        return 0; /* its row is replaced */
    }
    if (object_decode(row, &a, &o)) {
        r.digest = o.digest;
        r.used = used(t->comes->cache, &o);
        if (variant_suits(tail, t->comes->want)) {
            drop(t, &r);
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

static int tally_variant(void *arg, struct slice tail, struct slice row)
{
    struct tally *y = arg;

    (void)row;
    y->others++;
    y->replaces =
        y->replaces || slice_eq(tail, y->comes->tail) || variant_suits(tail, y->comes->want);
    return 0;
}

static bool is_pinned(const struct variant_comes *v)
{
    struct pin_table pins;
    struct err e;
    bool yes = pins_load(v->cache->store, &pins, &e) >= 0 &&
               pins_cover(&pins, v->want->repo, object_key_tail(v->row_key));

    pins_free(&pins);
    return yes;
}

/* True: they are pinned, and it is not kept itself. */
static bool variants_refuse(const struct variant_comes *v)
{
    struct tally y = {.comes = v};
    struct err e;

    return v->tail.n != 0 && variants_each(v->cache, v->row_key, tally_variant, &y, &e) == 0 &&
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

/* --- the rows ----------------------------------------------------------------------------------------------------- */

/* The row that is replaced, whatever became of its blob, gives its hold on another digest back. */
static void drop_old_holder(struct fill *f, struct batch *b)
{
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct buf key = BUF_INIT(OBJECT_KEY_MAX);
    struct digest old;

    if (store_get(f->cache->store, TABLE_OBJECT, f->row_key, &row, NULL) == 0 &&
        object_row_digest(buf_slice(&row), &old) && !digest_eq(&old, &f->object.digest)) {
        holder_key(&key, &old, f->want.repo, 'o', object_key_tail(f->row_key));
        batch_del(b, TABLE_HOLDER, buf_slice(&key));
    }
    buf_free(&row);
    buf_free(&key);
}

static struct variant_comes variant_of(const struct fill *f)
{
    size_t tail = f->tail.n != 0 ? 1 + f->tail.n : 0;

    return (struct variant_comes){f->cache, &f->want, slice_first(f->row_key, f->row_key.n - tail),
                                  f->tail};
}

static void put_rows(struct fill *f, struct batch *b)
{
    struct variant_comes v = variant_of(f);
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct buf key = BUF_INIT(OBJECT_KEY_MAX);

    drop_old_holder(f, b);
    if (want_varies(&f->want)) {
        variants_trim(&v, b);
    }
    object_encode(&f->object, &row);
    batch_put(b, TABLE_OBJECT, f->row_key, buf_slice(&row));
    holder_key(&key, &f->object.digest, f->want.repo, 'o', object_key_tail(f->row_key));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
    CHECK(row.rc == 0 && key.rc == 0);
    buf_free(&row);
    buf_free(&key);
}

static void mark_verified(struct fill *f)
{
    lock_take(&f->lock);
    f->verified = true;
    lock_drop(&f->lock);
    fill_wake_all(f);
}

/* What was promised, by SHA-256, by git's name or by SHA-512. */
static int verify(struct fill *f, struct err *e)
{
    char got[DIGEST_HEX + 1];
    struct git_oid oid;
    struct sha512 sum;
    int rc = 0;

    if (f->want.digest_known && !digest_eq(&f->object.digest, &f->want.digest)) {
        digest_format(&f->object.digest, got);
        rc = err_set(e, E_CORRUPT, "the origin's bytes have SHA-256 %.16s..., another was promised",
                     got);
    } else if (f->want.sum.kind == WANT_SUM_GIT_OID) {
        rc = git_oid_of_fd(f->fd, f->total_bytes, &oid, e);
        if (rc == 0 && !git_oid_eq(&oid, &f->want.sum.git_oid)) {
            git_oid_format(&oid, got);
            rc = err_set(e, E_CORRUPT,
                         "the origin's bytes have the git id %.16s..., another was promised", got);
        }
    } else if (f->want.sum.kind == WANT_SUM_SHA512) {
        rc = sha512_of_fd(f->fd, f->total_bytes, &sum, e);
        if (rc == 0 && !sha512_eq(&sum, &f->want.sum.sha512)) {
            rc = err_set(e, E_CORRUPT, "the origin's bytes have another SHA-512 than was promised");
        }
    }
    if (rc == E_CORRUPT) {
        COUNT(f->cache, verify_failures, 1);
    }
    return rc;
}

static void seal(struct job *j)
{
    struct fill *f = CONTAINER_OF(j, struct fill, seal_job);
    struct object *o = &f->object;
    struct variant_comes v = variant_of(f);
    bool there = false;

    o->size_bytes = f->total_bytes;
    f->job_rc = ingest_finish(f->ingest, f->total_bytes, &o->digest, &f->job_why);
    f->job_rc = f->job_rc != 0 ? f->job_rc : verify(f, &f->job_why);
    if (f->job_rc == 0 && f->want.reader != NULL) {
        f->job_rc = read_notes(f, &f->job_why);
    }
    if (f->job_rc != 0) {
        return;
    }
    mark_verified(f); /* readers do not wait for the disk */
    if (!fill_keeps(f) || (want_varies(&f->want) && variants_refuse(&v))) {
        return;
    }
    f->batch = batch_new();
    f->sealed_id = ingest_id(f->ingest);
    f->brought = blob_exists(f->cache->store, &o->digest, &there, NULL) == 0 && !there;
    f->job_rc = ingest_seal(&f->ingest, f->batch, NULL, &f->job_why);
    if (f->job_rc == 0) {
        put_rows(f, f->batch);
    } else {
        batch_free(&f->batch);
    }
}

static void finish(struct fill *f, int rc, const struct err *why)
{
    if (rc == 0 || f->rc != 0) {
        fill_settle(f);
    } else if (f->verified) {
        /* The bytes are good and readers have them: only keeping them failed. */
        log_warn("fill.seal", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(f->want.repo), why->text);
        fill_use_less(f, USE_ALL);
        fill_settle(f);
    } else {
        fill_fail(f, rc, why);
    }
}

static void on_committed(struct commit_wait *w, int rc, const struct err *e)
{
    struct fill *f = CONTAINER_OF(w, struct fill, commit);

    f->jobs--;
    f->sealed_id = rc == 0 ? 0 : f->sealed_id;
    if (rc == 0 && f->brought) {
        share_brought(f->cache->share, f->want.client, &f->object.digest, f->object.size_bytes);
    }
    finish(f, rc, e);
}

static void on_sealed(struct job *j)
{
    struct fill *f = CONTAINER_OF(j, struct fill, seal_job);

    fill_job_done(f);
    if (!fill_keeps(f)) { /* removed meanwhile */
        batch_free(&f->batch);
    }
    if (f->batch == NULL) {
        if (f->job_rc == 0) {
            fill_use_less(f, USE_ALL);
        }
        finish(f, f->job_rc, &f->job_why);
        return;
    }
    f->jobs++;
    f->commit.done = on_committed;
    f->commit.reply = f->cache->mail;
    store_commit_async(f->cache->store, &f->batch,
                       f->object.size_bytes >= SYNCED_ROW_BYTES ? COMMIT_SYNC : COMMIT_LAZY,
                       &f->commit);
}

void fill_hash(struct fill *f)
{
    uint64_t frontier;

    if (f->state != FILL_RUNNING || f->rc != 0 || (f->busy & FILL_HASHES) != 0) {
        return;
    }
    frontier = fill_frontier(f);
    if (fill_complete(f) && filler_count(f) == 0 && f->busy == 0) {
        fill_becomes(f, FILL_SEALING);
        fill_job(f, &f->seal_job, seal, on_sealed);
    } else if (frontier >= ingest_hashed(f->ingest) + LAG_BYTES) {
        f->busy |= FILL_HASHES;
        fill_job(f, &f->hash_job, hash_step, on_hashed);
    }
}

/* --- what survives a fill ---------------------------------------------------------------------------------------- */

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
    f->busy &= ~(unsigned)FILL_SAVES;
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

    if ((f->busy & FILL_SAVES) != 0 || !fill_keeps(f) || f->ingest == NULL) {
        return;
    }
    lock_take(&f->lock);
    have = extents_bytes(&f->have);
    lock_drop(&f->lock);
    if (ingest_save_is_due(f->ingest, have, now_ms)) {
        f->busy |= FILL_SAVES;
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
