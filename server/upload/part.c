/* part.c - one part of an object, as it comes: into its place in the stage, or compared with what came before. */
#include "server/upload/parts_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/log.h"
#include "server/store/blob.h"
#include "server/upload/offer.h"
#include "server/upload/upload_reply.h"

#define SYNC_BYTES ((uint64_t)64 << 20) /* of a part that is longer: what its end has to wait for */
enum { CATCH_UP = 4 };                  /* parts whose digest is made up for at the end of one */

struct part {
    struct uploads *u;
    struct session session;
    struct joint *joint;
    struct writer writer;
    char name[PARTS_NAME_BYTES]; /* the writer's path, and the row's */
    uint32_t n;
    struct session_file awaited; /* the whole object */
    uint64_t first, bytes;
    uint64_t written, synced;
    bool there; /* it is durable: what comes is compared */
    struct digest sum;
    XXH3_state_t *summing;
    struct charge charge;
};

/* What is to come, from its row. False: answered. */
static bool find_place(struct part *x, const struct put *p, uint64_t length,
                       struct upload_reply *reply, int *rc, struct err *e)
{
    struct session_file *f = &x->awaited;

    *rc = parts_row_load(x->u->store, x->session.id, &p->digest, 0, f, e);
    if (*rc == E_NOTFOUND) {
        upload_refuse(reply, 404, "no parts of this object are awaited: ask for addresses anew");
        *rc = 0;
        return false;
    }
    if (*rc != 0) {
        return false;
    }
    if (p->part == 0 || p->part > parts_count(f->total, f->bytes)) {
        upload_refuse(reply, 404, "this object has %" PRIu32 " parts",
                      parts_count(f->total, f->bytes));
        return false;
    }
    x->first = (p->part - 1) * f->bytes;
    x->bytes = min_u64(f->bytes, f->total - x->first);
    if (length != UINT64_MAX && length != x->bytes) {
        upload_refuse(reply, 400, "part %" PRIu32 " has %" PRIu64 " bytes", p->part, x->bytes);
        return false;
    }
    return true;
}

static int enter(struct part *x, const struct put *p, const struct upload_body *body, struct err *e)
{
    const char *why = "";
    int rc;

    x->n = p->part;
    x->writer = (struct writer){.id = x->session.id,
                                .path = parts_row_name(&p->digest, p->part, x->name),
                                .loose = true,
                                .yield = body->yield,
                                .yield_arg = body->yield_arg};
    rc = live_enter(x->u, &x->writer, &why);
    if (rc != 0) {
        return err_set(e, E_BUSY, "another request still writes this part");
    }
    return joint_enter(x->u, x->session.id, &p->digest, false, &x->joint, e);
}

static int begin(struct part *x, struct err *e)
{
    struct session_file f;
    int rc = parts_stage_open(x->u, x->joint, &x->session, e);

    if (rc != 0) {
        return rc;
    }
    /* From here on the row is ours alone, and the stage stays: an object is not closed while somebody is at a part. */
    rc = session_file_load(x->u->store, x->session.id, x->writer.path, &f, e);
    charge_begin(&x->charge, x->u, x->session.id, rc == 0 ? x->bytes : 0);
    x->charge.part = true;
    if (rc == 0) {
        x->there = true;
        x->sum = f.digest;
    } else if (rc == E_NOTFOUND) {
        if (ingest_hashed(x->joint->in) == x->first) {
            ingest_mark(x->joint->in); /* where the digest goes back to if this one is cut off */
        }
        rc = 0;
    }
    x->summing = XXH3_createState();
    CHECK(x->summing != NULL && XXH3_128bits_reset(x->summing) == XXH_OK);
    return rc;
}

int part_open(struct uploads *u, const struct put *p, const struct upload_body *body,
              struct part **out, struct upload_reply *reply, struct err *e)
{
    struct part *x = NEW(struct part);
    int rc;

    x->u = u;
    *out = x;
    if (offer_begin(u->store, p, &x->session, reply, &rc, e) &&
        find_place(x, p, body->length, reply, &rc, e)) {
        rc = enter(x, p, body, e);
        if (rc == 0) {
            rc = begin(x, e);
        }
    }
    if (rc != 0 || reply->status != 0) {
        part_close(out);
    }
    if (rc == E_CHANGED) {
        upload_refuse(reply, 404, "this upload has ended meanwhile: ask for one anew");
        rc = 0;
    }
    return rc;
}

/* What its end then has not to wait for. */
static int sync_bytes(struct part *x, struct err *e)
{
    return fdatasync(ingest_fd(x->joint->in)) == 0 ? 0 : err_sys(e, "fdatasync");
}

static int write_on(struct part *x, struct slice bytes, struct err *e)
{
    struct ingest *in = x->joint->in;
    uint64_t at = x->first + x->written;
    int rc = charge_take(&x->charge, bytes.n, e);

    if (rc != 0) {
        return rc;
    }
    rc = ingest_write(in, bytes.p, bytes.n, at, e);
    if (rc == 0) {
        ingest_hash_along(in, bytes, at);
    } else {
        charge_give(&x->charge, bytes.n);
    }
    return rc;
}

int part_write(struct part *x, struct slice bytes, struct upload_reply *reply, struct err *e)
{
    int rc = 0;

    if (bytes.n > x->bytes - x->written) {
        upload_refuse(reply, 400, "more bytes than the %" PRIu64 " of this part", x->bytes);
        return 0;
    }
    CHECK(XXH3_128bits_update(x->summing, bytes.p, bytes.n) == XXH_OK);
    if (!x->there) {
        rc = write_on(x, bytes, e);
    }
    x->written += bytes.n;
    if (rc == 0 && !x->there && x->written - x->synced >= SYNC_BYTES && x->written < x->bytes) {
        rc = sync_bytes(x, e);
        x->synced = x->written;
    }
    return rc;
}

static void answer(const struct digest *sum, struct upload_reply *reply)
{
    char hex[DIGEST_HEX + 1];

    digest_format(sum, hex);
    snprintf(reply->etag, sizeof reply->etag, "\"%.32s\"", hex);
    reply->status = 200;
}

/* No row speaks of its bytes: they leave the stage. When the file system cannot do that, they count until the session ends. */
static void void_bytes(struct part *x)
{
    struct err e;

    if (ingest_cut(x->joint->in, x->first, x->charge.bytes, &e) == 0) {
        charge_keep(&x->charge, 0);
    } else {
        log_warn("upload.part", "why=\"%s\"", e.text);
        charge_keep(&x->charge, x->charge.bytes);
    }
}

/* Which of the two is right nobody can say: both are void, and the client is asked for a third. */
static int differs(struct part *x, struct upload_reply *reply, struct err *e)
{
    struct batch *b = batch_new();
    int rc;

    session_require(&x->session, b);
    parts_row_put(&x->session, &x->joint->digest, x->n, NULL, b);
    upload_refuse(reply, 503, "part %" PRIu32 " differs from what came of it before: send it again",
                  x->n);
    rc = store_commit(x->u->store, &b, COMMIT_SYNC, e);
    if (rc == 0) {
        void_bytes(x);
    }
    return rc;
}

static int keep(struct part *x, const struct digest *sum, struct err *e)
{
    struct session_file f = {.sealed = true, .bytes = x->bytes, .digest = *sum};
    struct batch *b = batch_new();
    int rc;

    session_require(&x->session, b);
    parts_row_put(&x->session, &x->joint->digest, x->n, &f, b);
    rc = session_save(&x->session, x->joint->in, &b, COMMIT_SYNC, e);
    if (rc == 0) {
        charge_keep(&x->charge, x->bytes);
    }
    return rc != 0 ? rc : parts_hash_on(x->u, x->joint, &x->awaited, CATCH_UP, e);
}

int part_finish(struct part *x, struct upload_reply *reply, struct err *e)
{
    XXH128_canonical_t canonical;
    struct digest sum = {{0}};
    int rc = 0;

    if (x->written != x->bytes) {
        upload_refuse(reply, 400, "fewer bytes than the %" PRIu64 " of this part", x->bytes);
        return 0;
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(x->summing));
    memcpy(sum.b, canonical.digest, sizeof canonical.digest);
    if (x->there && !digest_eq(&sum, &x->sum)) {
        rc = differs(x, reply, e);
    } else if (!x->there) {
        rc = keep(x, &sum, e);
    }
    if (rc == E_CHANGED) {
        upload_refuse(reply, 404, "this upload has ended meanwhile: ask for one anew");
        joint_dead(x->u, x->joint);
        return 0;
    }
    if (rc == 0 && reply->status == 0) {
        answer(&sum, reply);
    }
    return rc;
}

void part_close(struct part **xp)
{
    struct part *x = *xp;

    *xp = NULL;
    if (x == NULL) {
        return;
    }
    XXH3_freeState(x->summing);
    if (!x->there && x->charge.bytes != 0 && x->charge.kept == 0) { /* cut off */
        void_bytes(x);
    }
    charge_settle(&x->charge);
    live_leave(x->u, &x->writer);
    joint_leave(x->u, &x->joint);
    session_free(&x->session);
    free(x);
}
