/* parts_end.c - all parts of an object are here: they become a blob, when they are what was announced. */
#include "server/upload/parts_priv.h"

#include <inttypes.h>

#include "server/upload/offer.h"
#include "server/upload/upload_reply.h"

struct ending {
    struct uploads *u;
    const struct put *put;
    const struct session *session;
    struct joint *joint;
    struct session_file f; /* what was awaited */
    struct charge charge;
    struct upload_reply *out;
    struct err *e;
};

static int all_here(struct ending *x)
{
    uint32_t count = parts_count(x->f.total, x->f.bytes);
    struct session_file f;
    int rc = 0;

    if (x->put->parts_count != count) {
        upload_refuse(x->out, 400, "this object has %" PRIu32 " parts, not %" PRIu32, count,
                      x->put->parts_count);
    }
    for (uint32_t n = 1; rc == 0 && x->out->status == 0 && n <= count; n++) {
        rc = parts_row_load(x->u->store, x->session->id, &x->put->digest, n, &f, x->e);
        if (rc == E_NOTFOUND) {
            upload_refuse(x->out, 400, "part %" PRIu32 " of %" PRIu32 " is not here: send it", n,
                          count);
            rc = 0;
        }
    }
    return rc;
}

/* As it is: whole, and of another digest. */
static int drop(struct ending *x)
{
    struct batch *b = batch_new();
    int rc;

    upload_refuse(x->out, 422, "the parts do not make up this digest: send them all again");
    parts_rows_drop(x->u->store, x->session, &x->put->digest, &x->f, b);
    joint_dead(x->u, x->joint);
    rc = store_commit(x->u->store, &b, COMMIT_SYNC, x->e);
    if (rc == 0) {
        charge_keep(&x->charge, 0);
    }
    return rc;
}

static int seal(struct ending *x)
{
    struct ingest *in = x->joint->in;
    struct batch *b = batch_new();
    int rc;

    joint_opened(x->u, x->joint, NULL); /* it is the seal's */
    rc = ingest_seal(&in, b, NULL, x->e);
    if (rc == 0) {
        parts_rows_drop(x->u->store, x->session, &x->put->digest, &x->f, b);
        session_require(x->session, b);
        session_hold(x->session, SLICE_NONE, &x->put->digest, b);
        rc = store_commit(x->u->store, &b, COMMIT_SYNC, x->e);
    }
    if (rc == 0) {
        charge_keep(&x->charge, 0);
        live_came(x->u, x->session->id, &x->put->digest);
    }
    batch_free(&b);
    return rc;
}

static int close_object(struct ending *x)
{
    struct digest d;
    int rc = parts_stage_open(x->u, x->joint, x->session, x->e);

    if (rc == 0) {
        rc = ingest_finish(x->joint->in, x->f.total, &d, x->e);
    }
    if (rc != 0) {
        return rc;
    }
    return digest_eq(&d, &x->put->digest) ? seal(x) : drop(x);
}

static int end_object(struct ending *x)
{
    bool has = false;
    int rc = offer_tree_has(x->u->store, x->put, &x->put->digest, &has, NULL, x->e);

    if (rc == 0 && !has) {
        rc = parts_row_load(x->u->store, x->session->id, &x->put->digest, 0, &x->f, x->e);
    }
    if (rc == E_NOTFOUND) {
        upload_refuse(x->out, 404, "no parts of this object are awaited: ask for addresses anew");
        return 0;
    }
    if (rc == 0 && !has) {
        rc = all_here(x);
    }
    if (rc == 0 && !has && x->out->status == 0) {
        charge_begin(&x->charge, x->u, x->session->id, x->f.total); /* of all its parts */
        rc = close_object(x);
        charge_settle(&x->charge);
    }
    if (rc == E_CHANGED) {
        upload_refuse(x->out, 404, "this upload has ended meanwhile: ask for one anew");
        joint_dead(x->u, x->joint);
        return 0;
    }
    if (rc == 0 && x->out->status == 0) {
        x->out->status = 200;
    }
    return rc;
}

int parts_end(struct uploads *u, const struct put *p, struct upload_reply *out, struct err *e)
{
    struct session s;
    struct ending x = {.u = u, .put = p, .session = &s, .out = out, .e = e};
    int rc;

    if (offer_begin(u->store, p, &s, out, &rc, e)) {
        rc = joint_enter(u, s.id, &p->digest, true, &x.joint, e);
        if (rc == 0) {
            rc = end_object(&x);
        }
        joint_leave(u, &x.joint);
    }
    session_free(&s);
    return rc;
}
