/* seal.c - hashing behind the frontier, and the way from a fill to a blob (server/store/ingest.h). */

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/cache/cache_priv.h"

enum {
    STEP_BYTES = 8 << 20, /* hashed by one job */
    LAG_BYTES = 1 << 20,  /* worth a job before the end */
};
#define SYNCED_ROW_BYTES ((uint64_t)1 << 20) /* from here on a lost row costs more than a sync */

bool fill_complete(struct fill *f)
{
    return f->total_bytes != LENGTH_UNKNOWN && fill_frontier(f) >= f->total_bytes;
}

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
    f->hash_busy = false;
    if (f->rc != 0) {
        fill_settle(f);
    } else if (f->job_rc != 0) {
        fill_fail(f, f->job_rc, &f->job_why);
    } else {
        fill_hash(f);
    }
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

static void put_rows(struct fill *f, struct batch *b)
{
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct buf key = BUF_INIT(OBJECT_KEY_MAX);

    drop_old_holder(f, b);
    if (want_varies(&f->want)) {
        variants_trim(f, b);
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
    } else if (f->want.git_known) {
        rc = git_oid_of_fd(f->fd, f->total_bytes, &oid, e);
        if (rc == 0 && !git_oid_eq(&oid, &f->want.git_oid)) {
            git_oid_format(&oid, got);
            rc = err_set(e, E_CORRUPT,
                         "the origin's bytes have the git id %.16s..., another was promised", got);
        }
    } else if (f->want.sha512_known) {
        rc = sha512_of_fd(f->fd, f->total_bytes, &sum, e);
        if (rc == 0 && !sha512_eq(&sum, &f->want.sha512)) {
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
    bool there = false;

    o->size_bytes = f->total_bytes;
    f->job_rc = ingest_finish(f->ingest, f->total_bytes, &o->digest, &f->job_why);
    if (f->job_rc == 0) {
        f->job_rc = verify(f, &f->job_why);
    }
    if (f->job_rc == 0 && f->want.reader != NULL) {
        f->job_rc = fill_note(f, &f->job_why);
    }
    if (f->job_rc != 0) {
        return;
    }
    mark_verified(f); /* readers do not wait for the disk */
    if (!f->keep || (want_varies(&f->want) && variants_refuse(f))) {
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
        f->keep = false;
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
    f->hash_busy = false;
    if (!f->keep) { /* removed meanwhile */
        batch_free(&f->batch);
    }
    if (f->batch == NULL) {
        f->keep = f->keep && f->job_rc != 0;
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

    if (f->state != FILL_RUNNING || f->rc != 0 || f->hash_busy) {
        return;
    }
    frontier = fill_frontier(f);
    if (fill_complete(f) && filler_count(f) == 0 && !f->sync_busy) {
        f->state = FILL_SEALING;
        f->hash_busy = true;
        fill_job(f, &f->seal_job, seal, on_sealed);
    } else if (frontier >= ingest_hashed(f->ingest) + LAG_BYTES) {
        f->hash_busy = true;
        fill_job(f, &f->hash_job, hash_step, on_hashed);
    }
}
