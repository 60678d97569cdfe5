#include "server/upload/append.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/store/alias.h"
#include "server/store/blob.h"
#include "server/upload/arrival.h"
#include "server/upload/multipart_upload.h"
#include "server/upload/upload_grant.h"
#include "server/upload/publish.h"
#include "server/upload/sink.h"
#include "server/upload/upload_reply.h"

#define UNKNOWN UINT64_MAX

struct append {
    struct uploads *u;
    struct session session;
    struct put put; /* its texts are the sink's */
    bool at_once;   /* no upload was begun: all of it comes in this body */
    struct writer writer;
    /* remembers the hasher between requests; NULL: at_once */
    struct multipart_upload *multipart_upload;
    struct charge charge;
    struct arrival file;
    bool over; /* whole, or dropped: nothing is kept for later */
};

/* The put says what the bytes are: it ends the upload. */
static bool append_ends_upload(const struct put *p)
{
    return p->called.by != CALLED_NOT;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* All that there will be is small: no file for it. */
static bool is_small(const struct append *x, uint64_t length)
{
    return append_ends_upload(&x->put) && length <= BLOB_INLINE_BYTES;
}

static int begin_upload_append(struct append *x, uint64_t length, struct err *e)
{
    bool named = !x->at_once && !is_small(x, length);
    int rc = uploads_open_ingest(x->u, length, named, &x->file.in, e);

    if (rc != 0 || !named) {
        return rc;
    }
    rc = arrival_begin(&x->file, NULL, e);
    if (rc == 0) { /* of a stage that was lost nothing is left */
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
    int rc = session_file_load(x->u->store, x->session.id, UPLOAD_GRANT_FILE, &f, e);

    if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    if (f.sealed) { /* the end was asked for twice: the same answer */
        return same_end(x, &f, reply, e);
    }
    charge_begin(&x->charge, x->u, x->session.id, f.bytes);
    if (f.stage != 0) {
        rc = uploads_resume(x->u, f.stage, f.bytes, UNKNOWN, &x->file.in, e);
        x->file.saved = arrival_bytes(&x->file);
    }
    if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    if (x->put.first != UNKNOWN && x->put.first != arrival_bytes(&x->file)) {
        upload_refuse(reply, 416,
                      "%" PRIu64 " bytes of this upload are already here; continue after them",
                      arrival_bytes(&x->file));
        reply->offset_known = true;
        reply->offset = arrival_bytes(&x->file);
    }
    return 0;
}

/* The hasher of earlier requests; but not one that is ahead of the recorded offset, because the
 * disk was full. */
static void take_hasher(struct append *x)
{
    struct hasher *h = multipart_upload_hasher_take(x->multipart_upload);

    if (h != NULL && x->file.in != NULL && hasher_count(h) <= arrival_bytes(&x->file)) {
        ingest_hasher_give(x->file.in, &h);
    }
    hasher_free(&h);
}

static int open_append_session(struct append *x, const struct upload_body *body,
                               struct upload_reply *reply, struct err *e)
{
    static const struct digest none; /* an upload grant has one of these */
    const char *why = "";
    int rc;

    if (!upload_grant_begin(x->u->store, &x->put, &x->session, reply, &rc, e)) {
        return rc;
    }
    x->writer = (struct writer){.id = x->session.id,
                                .path = UPLOAD_GRANT_FILE,
                                .loose = true,
                                .yield = body->yield,
                                .yield_arg = body->yield_arg};
    if (live_enter(x->u, &x->writer, &why) != 0) {
        return err_set(e, E_BUSY, "another request is still writing to this upload");
    }
    rc = multipart_upload_enter(x->u, x->session.id, &none, true, &x->multipart_upload, e);
    rc = rc != 0 ? rc : find_end(x, reply, e);
    if (rc == 0 && reply->status == 0) {
        take_hasher(x);
    }
    return rc;
}

static void append_close(void *arg);

static int append_open(struct uploads *u, const struct put *p, const struct upload_body *body,
                       void **out, struct upload_reply *reply, struct err *e)
{
    struct append *x = NEW(struct append);
    int rc = 0;

    *out = x;
    x->u = u;
    x->put = *p;
    x->at_once = p->upload_id.n == 0;
    x->file = (struct arrival){
        .session = &x->session, .charge = &x->charge, .path = UPLOAD_GRANT_FILE, .total = UNKNOWN};
    charge_begin(&x->charge, u, x->session.id, 0);
    if (x->at_once) {
        CHECK(append_ends_upload(p));
        rc = publish_check(&(struct publish){.store = u->store, .put = p}, reply, e);
    } else {
        rc = open_append_session(x, body, reply, e);
    }
    if (rc == 0 && reply->status == 0 && x->file.in == NULL) {
        rc = begin_upload_append(x, body->length, e);
    }
    if (rc == E_CHANGED) {
        upload_refuse_gone(reply);
        rc = 0;
    }
    if (rc != 0 || reply->status != 0) {
        append_close(x);
        *out = NULL;
    }
    return rc;
}

/* --- what comes ------------------------------------------------------------------------------- */

static int append_write(void *arg, struct slice bytes, struct upload_reply *reply, struct err *e)
{
    struct append *x = arg;
    bool small = ingest_state(x->file.in) == INGEST_MEMORY;
    int rc = uploads_append(small ? NULL : &x->charge, x->file.in, bytes, e);

    rc = rc != 0 ? rc : arrival_save_if_due(&x->file, e);
    if (rc == E_CHANGED) {
        upload_refuse_gone(reply);
        rc = 0;
    }
    return rc;
}

/* --- the end ---------------------------------------------------------------------------------- */

static int keep_appended_blob(struct append *x, const struct digest *d, uint64_t now_unix_s,
                              struct upload_reply *reply, struct err *e)
{
    uint64_t bytes = ingest_bytes(x->file.in);
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    int rc = 0;

    if (!x->at_once) {
        session_require(&x->session, b);
    } else if (session_new(&x->put, true, now_unix_s, &x->session, reply, &rc, e)) {
        session_put(&x->session, b);
    }
    if (rc == 0 && reply->status == 0) {
        rc = ingest_seal(&x->file.in, b, &blob, e);
    }
    if (rc == 0 && reply->status == 0) {
        if (x->put.called.by == CALLED_SHA512) {
            alias_put(b, &x->put.called.sha512, d);
        }
        upload_grant_staged_object(&x->session, d, bytes, b);
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
static int discard_append(struct append *x, struct upload_reply *reply, struct err *e)
{
    upload_refuse(reply, 422, "the bytes do not match this digest; send them again");
    if (x->at_once) {
        return 0;
    }
    ingest_drop(&x->file.in);
    return session_drop(x->u, x->session.id, e);
}

/* Are these the bytes that the put names? *d is their own digest. */
static int compare_appended_digest(struct append *x, const struct digest *d, bool *same,
                                   struct err *e)
{
    struct sha512 other;
    int rc = 0;

    if (x->put.called.by == CALLED_SHA256) {
        *same = digest_eq(d, &x->put.called.sha256);
        return 0;
    }
    rc = ingest_sha512(x->file.in, ingest_bytes(x->file.in), &other, e);
    *same = rc == 0 && sha512_eq(&other, &x->put.called.sha512);
    return rc;
}

static int end_upload_append(struct append *x, uint64_t now_unix_s, struct upload_reply *reply,
                             struct err *e)
{
    struct digest d;
    bool same;
    int rc = ingest_finish(x->file.in, ingest_bytes(x->file.in), &d, e);

    rc = rc != 0 ? rc : compare_appended_digest(x, &d, &same, e);
    if (rc == 0 && !same) {
        x->over = true;
        rc = discard_append(x, reply, e);
    } else if (rc == 0) {
        rc = keep_appended_blob(x, &d, now_unix_s, reply, e);
        x->over = rc == 0;
    }
    return rc;
}

/* 202 with the offset; with a digest 201, it is here. */
static int append_finish(void *arg, uint64_t now_unix_s, struct upload_reply *reply, struct err *e)
{
    struct append *x = arg;
    int rc;

    if (append_ends_upload(&x->put)) {
        return end_upload_append(x, now_unix_s, reply, e);
    }
    rc = arrival_save(&x->file, COMMIT_LAZY, e);
    if (rc == E_CHANGED) {
        upload_refuse_gone(reply);
        return 0;
    }
    if (rc == 0) {
        reply->status = 202;
        reply->offset_known = true;
        reply->offset = x->file.saved;
    }
    return rc;
}

static void park(struct append *x)
{
    if (x->over) {
        ingest_drop(&x->file.in);
    } else if (arrival_settle(&x->file)) {
        multipart_upload_hasher_put(x->multipart_upload, ingest_hasher_take(x->file.in));
        ingest_park(&x->file.in);
    }
}

/* What has come is kept, for going on. */
static void append_close(void *arg)
{
    struct append *x = arg;

    park(x);
    charge_settle(&x->charge);
    if (x->multipart_upload != NULL && x->over) {
        multipart_upload_dead(x->u, x->multipart_upload);
    }
    multipart_upload_leave(x->u, &x->multipart_upload);
    live_leave(x->u, &x->writer);
    session_free(&x->session);
    free(x);
}

const struct sink_ops append_sink = {append_open, append_write, append_finish, append_close};

/* --- what needs no body ----------------------------------------------------------------------- */

/* Its bytes are here, for this tree or the one that p->to names: the session has them from now on.
 * *yes: answered with 201. */
static int adopt_held_blob(struct uploads *u, const struct put *p, const struct digest *d,
                           const struct session *s, bool *yes, struct upload_reply *out,
                           struct err *e)
{
    struct batch *b;
    uint64_t size_bytes = 0;
    bool has = false;
    int rc = upload_grant_tree_has(u->store, p, d, &has, NULL, e);

    *yes = false;
    if (rc == 0 && !has && p->to.p != NULL) {
        rc = upload_grant_tree_holds(u->store, p->repo, p->to, d, &has, e);
    }
    rc = rc == 0 && has ? blob_length(u->store, d, &size_bytes, e) : rc;
    if (rc != 0 || !has) {
        return rc == E_NOTFOUND ? 0 : rc;
    }
    b = batch_new();
    session_put(s, b);
    upload_grant_staged_object(s, d, size_bytes, b);
    rc = store_commit(u->store, &b, COMMIT_SYNC, e);
    if (rc == 0) {
        out->status = 201;
        *yes = true;
    }
    return rc == E_CHANGED ? 0 : rc; /* it went meanwhile */
}

static void answer_open(const struct put *p, const struct session *s, struct upload_reply *out)
{
    out->status = 202;
    out->offset_known = true;
    memcpy(out->upload, s->id, sizeof out->upload);
    session_locate(s, p, out);
}

static int run_open(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                    struct upload_reply *out, struct err *e)
{
    struct session s = {0};
    struct batch *b = NULL;
    bool here = false, known = false;
    struct digest d;
    /* A tree that was renamed: better reported before the bytes come than after. */
    int rc = publish_check(&(struct publish){.store = u->store, .put = p}, out, e);

    if (rc != 0 || out->status != 0 || !session_new(p, true, now_unix_s, &s, out, &rc, e)) {
        goto out;
    }
    rc = alias_find(u->store, &p->called, &d, &known, e);
    if (rc == 0 && known) {
        rc = adopt_held_blob(u, p, &d, &s, &here, out, e);
    }
    if (rc == 0 && !here && live_admit(u, s.id, p->client, AWAITED_ANY, 1, out)) {
        b = batch_new();
        session_put(&s, b);
        rc = store_commit(u->store, &b, COMMIT_LAZY, e);
        if (rc == 0) {
            answer_open(p, &s, out);
        } else {
            live_remove(u, s.id);
        }
    }
out:
    session_free(&s);
    return upload_trouble(out, rc, e);
}

static int answer_append_status(struct uploads *u, const struct session *s,
                                struct upload_reply *out, struct err *e)
{
    struct session_file f = {0};
    int rc;

    if (live_disturb(u, s->id, UPLOAD_GRANT_FILE)) {
        return err_set(e, E_BUSY, "another request is still writing to this upload");
    }
    rc = session_file_load(u->store, s->id, UPLOAD_GRANT_FILE, &f, e);
    if (rc == 0 && f.sealed) {
        upload_refuse_gone(out);
    } else if (rc == 0 || rc == E_NOTFOUND) {
        out->status = 204;
        out->offset_known = true;
        out->offset = f.bytes;
        rc = 0;
    }
    return rc;
}

static int run_drop(struct uploads *u, const struct session *s, struct upload_reply *out,
                    struct err *e)
{
    int rc;

    if (live_disturb(u, s->id, UPLOAD_GRANT_FILE)) {
        return err_set(e, E_BUSY, "another request is still writing to this upload");
    }
    rc = session_drop(u, s->id, e);
    out->status = 204;
    return rc;
}

int append_run(struct uploads *u, const struct put *p, uint64_t now_unix_s,
               struct upload_reply *out, struct err *e)
{
    struct session s;
    int rc;

    if (p->kind == PUT_APPEND_OPEN) {
        return run_open(u, p, now_unix_s, out, e);
    }
    if (upload_grant_begin(u->store, p, &s, out, &rc, e)) {
        rc = p->kind == PUT_APPEND_STATUS ? answer_append_status(u, &s, out, e)
                                          : run_drop(u, &s, out, e);
    }
    session_free(&s);
    return upload_trouble(out, rc, e);
}
