#include "server/upload/append.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "server/store/alias.h"
#include "server/store/blob.h"
#include "server/upload/brought.h"
#include "server/upload/joint.h"
#include "server/upload/offer.h"
#include "server/upload/publish.h"
#include "server/upload/upload_reply.h"

#define UNKNOWN UINT64_MAX
/* Made durable that often while it comes: what a SIGKILL may cost. */
#define SAVE_BYTES ((uint64_t)64 << 20)

struct append {
    struct uploads *u;
    struct session session;
    struct put put; /* its texts are the sink's */
    bool at_once;   /* no upload was begun: all of it comes in this body */
    struct writer writer;
    struct joint *joint; /* remembers the hasher between requests; NULL: at_once */
    struct hasher *hasher;
    unsigned epoch;
    struct stage *stage; /* NULL: in `small` */
    struct buf small;
    uint64_t offset; /* bytes that are here */
    uint64_t saved;  /* of those, told of by a row */
    struct charge charge;
    bool over; /* whole, or dropped: nothing is kept for later */
};

/* The put says what the bytes are: it ends the upload. */
static bool ends(const struct put *p)
{
    return p->called.by != CALLED_NOT;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* The row that tells of a new stage comes before its bytes, so that no sweep takes them. */
static int new_stage(struct append *x, uint64_t expect_bytes, struct err *e)
{
    struct session_file f = {.total = UNKNOWN};
    struct batch *b;
    int rc = uploads_stage(x->u, expect_bytes, !x->at_once, &x->stage, e);

    if (rc != 0 || x->at_once) {
        return rc;
    }
    f.stage = stage_id(x->stage);
    b = batch_new();
    session_require(&x->session, b);
    session_file_put(&x->session, BROUGHT_FILE, &f, b);
    session_stage_put(&x->session, f.stage, b);
    rc = store_commit(x->u->store, &b, COMMIT_LAZY, e);
    if (rc == 0) { /* of a stage that was lost nothing is left */
        charge_keep(&x->charge, 0);
        charge_settle(&x->charge);
    }
    return rc;
}

static int same_end(struct append *x, const struct session_file *f, struct upload_reply *reply,
                    struct err *e)
{
    struct digest d;
    bool known;
    int rc = alias_find(x->u->store, &x->put.called, &d, &known, e);

    if (rc == 0 && known && digest_eq(&f->digest, &d)) {
        reply->status = 201;
    } else if (rc == 0) {
        upload_refuse_gone(reply);
    }
    return rc;
}

/* Where it stands. A status in *reply: it is whole, or it does not go on there. */
static int find_end(struct append *x, struct upload_reply *reply, struct err *e)
{
    struct session_file f = {0};
    int rc = session_file_load(x->u->store, x->session.id, BROUGHT_FILE, &f, e);

    if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    if (f.sealed) { /* the end was asked for twice: the same answer */
        return same_end(x, &f, reply, e);
    }
    charge_begin(&x->charge, x->u, x->session.id, f.bytes);
    if (f.stage != 0) {
        rc = stage_resume(x->u->store, f.stage, 0, &x->stage, e);
        x->offset = x->saved = rc == 0 ? f.bytes : 0;
    }
    if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    if (x->put.first != UNKNOWN && x->put.first != x->offset) {
        upload_refuse(reply, 416, "%" PRIu64 " bytes of this upload are here: go on behind them",
                      x->offset);
        reply->offset_known = true;
        reply->offset = x->offset;
    }
    return 0;
}

/* One that has run ahead of what is told of it, when the disk was full, begins again. */
static void take_hasher(struct append *x)
{
    x->hasher = joint_hash_take(x->u, x->joint, UNKNOWN, &x->epoch);
    CHECK(x->hasher != NULL); /* it has one user */
    if (hasher_count(x->hasher) > x->offset) {
        joint_hash_void(x->u, x->joint);
        joint_hash_give(x->u, x->joint, x->hasher, x->epoch);
        x->hasher = joint_hash_take(x->u, x->joint, UNKNOWN, &x->epoch);
    }
}

static int enter(struct append *x, const struct upload_body *body, struct upload_reply *reply,
                 struct err *e)
{
    static const struct digest none; /* an offer has one of these */
    const char *why = "";
    int rc;

    if (!offer_begin(x->u->store, &x->put, &x->session, reply, &rc, e)) {
        return rc;
    }
    x->writer = (struct writer){.id = x->session.id,
                                .path = BROUGHT_FILE,
                                .loose = true,
                                .yield = body->yield,
                                .yield_arg = body->yield_arg};
    if (live_enter(x->u, &x->writer, &why) != 0) {
        return err_set(e, E_BUSY, "another request still writes this upload");
    }
    rc = joint_enter(x->u, x->session.id, &none, true, &x->joint, e);
    if (rc == 0) {
        rc = find_end(x, reply, e);
    }
    if (rc == 0 && reply->status == 0) {
        take_hasher(x);
    }
    return rc;
}

/* All that there will be is small: no file for it. */
static bool is_small(const struct append *x, const struct upload_body *body)
{
    return ends(&x->put) && x->stage == NULL && body->length <= BLOB_INLINE_BYTES;
}

int append_open(struct uploads *u, const struct put *p, const struct upload_body *body,
                struct append **out, struct upload_reply *reply, struct err *e)
{
    struct append *x = NEW(struct append);
    int rc = 0;

    *out = x;
    x->u = u;
    x->put = *p;
    x->small = BUF_INIT(BLOB_INLINE_BYTES);
    x->at_once = p->upload_id.n == 0;
    charge_begin(&x->charge, u, x->session.id, 0);
    if (x->at_once) {
        CHECK(ends(p));
        x->hasher = hasher_new();
        rc = publish_check(&(struct publish){.store = u->store, .put = p}, reply, e);
    } else {
        rc = enter(x, body, reply, e);
    }
    if (rc == 0 && reply->status == 0 && x->stage == NULL && !is_small(x, body)) {
        rc = new_stage(x, body->length != UNKNOWN ? body->length : 0, e);
    }
    if (rc == E_CHANGED) {
        upload_refuse_gone(reply);
        rc = 0;
    }
    if (rc != 0 || reply->status != 0) {
        append_close(out);
    }
    return rc;
}

/* --- what comes --------------------------------------------------------------------------------------------------- */

/* Data, then the row that speaks of it. */
static int save(struct append *x, struct err *e)
{
    struct session_file f = {.stage = stage_id(x->stage), .bytes = x->offset, .total = UNKNOWN};
    struct batch *b;
    int rc = stage_sync(x->stage, e);

    if (rc != 0) {
        return rc;
    }
    b = batch_new();
    session_require(&x->session, b);
    session_file_put(&x->session, BROUGHT_FILE, &f, b);
    rc = store_commit(x->u->store, &b, COMMIT_LAZY, e);
    if (rc == 0) {
        x->saved = x->offset;
        charge_keep(&x->charge, x->saved);
    }
    return rc;
}

int append_write(struct append *x, struct slice bytes, struct upload_reply *reply, struct err *e)
{
    bool along = hasher_count(x->hasher) == x->offset;
    int rc = 0;

    if (x->stage == NULL) {
        buf_adds(&x->small, bytes);
        CHECK(x->small.rc == 0); /* the body is at most as long */
    } else {
        rc = uploads_write(x->u, &x->charge, x->stage, bytes.p, bytes.n, x->offset, e);
    }
    if (rc != 0) {
        return rc;
    }
    if (along) {
        hasher_add(x->hasher, bytes.p, bytes.n);
    }
    x->offset += bytes.n;
    if (x->stage != NULL && !x->at_once && x->offset - x->saved >= SAVE_BYTES) {
        rc = save(x, e);
    }
    if (rc == E_CHANGED) {
        upload_refuse_gone(reply);
        rc = 0;
    }
    return rc;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The bytes become a blob, its rows in b. */
static int seal(struct append *x, struct hasher *whole, const struct digest *d, struct batch *b,
                struct blob **out, struct err *e)
{
    const struct digest *chunk;
    size_t count;

    if (x->stage == NULL) {
        return blob_put_bytes(x->u->store, buf_slice(&x->small), b, out, e);
    }
    chunk = hasher_chunks(whole, &count);
    return stage_seal(&x->stage, d, x->offset, chunk, count, b, out, e);
}

static int keep(struct append *x, struct hasher *whole, const struct digest *d, uint64_t now_unix_s,
                struct upload_reply *reply, struct err *e)
{
    uint64_t stage = x->stage != NULL ? stage_id(x->stage) : 0;
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    int rc = 0;

    if (!x->at_once) {
        session_require(&x->session, b);
    } else if (session_new(&x->put, true, now_unix_s, &x->session, reply, &rc, e)) {
        session_put(&x->session, b);
    }
    if (rc == 0 && reply->status == 0) {
        rc = seal(x, whole, d, b, &blob, e);
    }
    if (rc == 0 && reply->status == 0) {
        if (x->put.called.by == CALLED_SHA512) {
            alias_put(b, &x->put.called.sha512, d);
        }
        brought_put(&x->session, d, x->offset, stage, b);
        rc = store_commit(x->u->store, &b, COMMIT_SYNC, e);
    }
    if (rc == E_CHANGED) {
        upload_refuse_gone(reply);
        rc = 0;
    } else if (rc == 0 && reply->status == 0) {
        reply->status = 201;
        live_came(x->u, x->session.id, AWAITED_ANY);
    }
    blob_release(&blob);
    batch_free(&b);
    return rc;
}

/* Not what was announced: the upload ends. */
static int discard(struct append *x, struct upload_reply *reply, struct err *e)
{
    upload_refuse(reply, 422, "the bytes are not those of this digest: send them again");
    if (x->at_once) {
        return 0;
    }
    stage_abort(&x->stage);
    return session_drop(x->u, x->session.id, e);
}

/* Are these the bytes that the put names? *d is their own digest. */
static int compare(struct append *x, const struct digest *d, bool *same, struct err *e)
{
    struct sha512 other;
    int rc = 0;

    if (x->put.called.by == CALLED_SHA256) {
        *same = digest_eq(d, &x->put.called.sha256);
        return 0;
    }
    if (x->stage != NULL) {
        rc = sha512_of_fd(stage_fd(x->stage), x->offset, &other, e);
    } else {
        sha512_of(buf_slice(&x->small), &other);
    }
    *same = rc == 0 && sha512_eq(&other, &x->put.called.sha512);
    return rc;
}

static int end(struct append *x, uint64_t now_unix_s, struct upload_reply *reply, struct err *e)
{
    struct hasher *whole;
    struct digest d;
    bool same;
    int rc = 0;

    if (x->stage != NULL) {
        rc = hasher_add_file(x->hasher, stage_fd(x->stage), x->offset, e);
    }
    if (rc != 0) {
        return rc;
    }
    whole = hasher_copy(x->hasher);
    hasher_final(whole, &d);
    rc = compare(x, &d, &same, e);
    if (rc == 0 && !same) {
        x->over = true;
        rc = discard(x, reply, e);
    } else if (rc == 0) {
        rc = keep(x, whole, &d, now_unix_s, reply, e);
        x->over = rc == 0;
    }
    hasher_free(&whole);
    return rc;
}

int append_finish(struct append *x, uint64_t now_unix_s, struct upload_reply *reply, struct err *e)
{
    int rc;

    if (ends(&x->put)) {
        return end(x, now_unix_s, reply, e);
    }
    rc = save(x, e);
    if (rc == E_CHANGED) {
        upload_refuse_gone(reply);
        return 0;
    }
    if (rc == 0) {
        reply->status = 202;
        reply->offset_known = true;
        reply->offset = x->offset;
    }
    return rc;
}

static void park(struct append *x)
{
    struct err e = {0};
    int rc = 0;

    if (x->stage == NULL || x->over || x->at_once) {
        stage_abort(&x->stage);
        return;
    }
    if (x->offset > x->saved) {
        rc = save(x, &e);
    }
    if (rc == E_CHANGED) { /* the upload has ended: nobody goes on with this */
        stage_abort(&x->stage);
        return;
    }
    if (rc != 0) {
        log_warn("upload.save", "why=\"%s\"", e.text); /* less is there to go on from */
        (void)!stage_unwrite(x->stage, x->saved, x->offset - x->saved, NULL);
    }
    stage_park(&x->stage);
}

void append_close(struct append **xp)
{
    struct append *x = *xp;

    *xp = NULL;
    if (x == NULL) {
        return;
    }
    park(x);
    charge_settle(&x->charge);
    if (x->joint == NULL) {
        hasher_free(&x->hasher);
    } else if (x->hasher != NULL) {
        joint_hash_give(x->u, x->joint, x->hasher, x->epoch);
    }
    if (x->joint != NULL && x->over) {
        joint_dead(x->u, x->joint);
    }
    joint_leave(x->u, &x->joint);
    live_leave(x->u, &x->writer);
    session_free(&x->session);
    buf_free(&x->small);
    free(x);
}
