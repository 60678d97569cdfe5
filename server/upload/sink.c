/* sink.c - writes a body into a hosted tree: staged, hashed and made durable while it arrives, then
 * sealed. */
#include "server/upload/sink.h"

#include <inttypes.h>
#include <stdlib.h>

#include "server/store/blob.h"
#include "server/store/drop.h"
#include "server/upload/arrival.h"
#include "server/upload/live.h"
#include "server/upload/upload_grant.h"
#include "server/upload/publish.h"
#include "server/upload/upload_reply.h"

#define UNKNOWN UINT64_MAX

struct upload_sink {
    bool counted; /* among the bodies that are arriving */
    struct uploads *u;
    struct arena arena; /* strings of put */
    struct put put;
    struct session session; /* of PUT_UPLOAD_FILE, PUT_OBJECT, PUT_PIECE, PUT_ASSEMBLE */
    struct writer writer;
    uint64_t length; /* of this body; UNKNOWN */
    /* of a session's file and of a piece, until its row goes; of an object, while it comes */
    struct charge charge;
    struct session_file old;    /* PUT_PIECE: what is there by its name, if sealed */
    struct arrival file;        /* in: NULL: PUT_ASSEMBLE, PUT_PART, PUT_APPEND */
    struct buf list;            /* PUT_ASSEMBLE: all of it */
    const struct sink_ops *ops; /* PUT_PART, PUT_APPEND: all that matters is there; else NULL */
    void *arg;                  /* theirs */
};

static void sink_free(struct upload_sink **kp)
{
    struct upload_sink *k = *kp;

    *kp = NULL;
    if (k == NULL) {
        return;
    }
    if (k->counted) {
        atomic_fetch_sub(&k->u->bodies, 1);
    }
    if (k->arg != NULL) {
        k->ops->close(k->arg);
    }
    charge_settle(&k->charge);
    live_leave(k->u, &k->writer);
    ingest_drop(&k->file.in);
    buf_free(&k->list);
    session_free(&k->session);
    arena_fini(&k->arena);
    free(k);
}

/* Bytes of the file that are here. */
static uint64_t offset_of(const struct upload_sink *k)
{
    return k->file.in != NULL ? ingest_bytes(k->file.in) : k->list.n;
}

/* The body begins within what is here: what lies behind its first byte goes, the row first. */
static int cut_session_file(struct upload_sink *k, uint64_t old_bytes, struct err *e)
{
    int rc = arrival_save(&k->file, COMMIT_SYNC, e);

    if (rc == 0 && ingest_cut(k->file.in, k->file.saved, old_bytes - k->file.saved, NULL) == 0) {
        charge_settle(&k->charge);
    } else { /* the file system cannot do that: they count on */
        charge_keep(&k->charge, old_bytes);
    }
    return rc;
}

/* A body that says where it begins: behind, or within, what is here. Sets reply when it does not
 * fit. */
static int resume_session_file(struct upload_sink *k, const struct session_file *old,
                               struct upload_reply *reply, struct err *e)
{
    int rc;

    if (old->sealed || k->put.first > old->bytes ||
        (old->total != UNKNOWN && old->total != k->file.total)) {
        upload_reply_file(reply, 409, k->put.path, old);
        return 0;
    }
    rc = uploads_resume(k->u, old->stage, k->put.first, k->file.total, &k->file.in, e);
    if (rc == E_NOTFOUND) {
        upload_reply_file(reply, 409, k->put.path, &(struct session_file){.total = k->file.total});
        return 0;
    }
    if (rc == 0) { /* what an earlier request brought */
        rc = ingest_hash(k->file.in, k->put.first, e);
    }
    k->file.saved = k->put.first;
    if (rc == 0 && k->file.saved < old->bytes) {
        rc = cut_session_file(k, old->bytes, e);
    }
    return rc;
}

/* A file from its first byte; what an earlier try left goes. */
static int start_over(struct upload_sink *k, const struct session_file *old, struct err *e)
{
    struct batch *b = batch_new();
    int rc = uploads_open_ingest(k->u, k->file.total, true, &k->file.in, e);

    if (rc == 0) {
        if (old != NULL && old->sealed) {
            session_unhold(&k->session, k->put.path, &old->digest, b);
        }
        rc = arrival_begin(&k->file, &b, e);
    }
    if (rc == 0) {
        k->writer.fresh = false;
    }
    if (rc == 0 && old != NULL && !old->sealed) {
        partial_lose(k->u->store, old->stage);
        partials_drop_lost(k->u->store);
    } else if (rc == 0 && old != NULL) {
        drop_unheld(k->u->store, &old->digest, 1);
    }
    charge_settle(&k->charge);
    batch_free(&b);
    return rc;
}

static int open_session_file(struct upload_sink *k, struct upload_reply *reply, struct err *e)
{
    struct session_file old;
    const char *why;
    bool there;
    int rc;

    if (!session_begin(k->u->store, &k->put, &k->session, reply, &rc, e)) {
        return rc;
    }
    k->writer.id = k->session.id;
    k->writer.path = k->put.path;
    rc = live_enter(k->u, &k->writer, &why);
    if (rc == E_CHANGED) {
        upload_refuse(reply, 409, "%s", why);
        return 0;
    }
    if (rc != 0) {
        return err_set(e, rc, "another request is still writing this file");
    }
    /* From here on the row is ours alone. */
    rc = session_file_load(k->u->store, k->session.id, k->put.path, &old, e);
    if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    there = rc == 0;
    charge_begin(&k->charge, k->u, k->session.id, there ? old.bytes : 0);
    if (!there && !live_count(k->u, &k->writer)) {
        upload_refuse(
            reply, 413,
            "this upload already has the maximum number of files; commit it and start another");
        return 0;
    }
    if (k->put.first != 0) {
        return resume_session_file(k, there ? &old : &(struct session_file){.total = k->file.total},
                                   reply, e);
    }
    if (k->length <= BLOB_INLINE_BYTES && k->length == k->file.total && !there) {
        return uploads_open_ingest(k->u, k->file.total, false, &k->file.in, e);
    }
    return start_over(k, there ? &old : NULL, e);
}

static int open_sink_file(struct upload_sink *k, struct upload_reply *reply, struct err *e)
{
    struct publish pub = {.store = k->u->store, .put = &k->put, .file = true};
    int rc = publish_check(&pub, reply, e);

    return rc == 0 && reply->status == 0
               ? uploads_open_ingest(k->u, k->file.total, false, &k->file.in, e)
               : rc;
}

/* It counts until its upload grant has made files of it. The upload grant may have done so before,
 * of others: then it awaits more. */
static int open_piece(struct upload_sink *k, struct upload_reply *reply, struct err *e)
{
    struct session *s = &k->session;
    int rc = 0;

    switch (live_admit_again(k->u, s->id, k->put.client, AWAITED_ANY, 1, reply)) {
    case LIVE_ADMITTED: /* has it expired just before? */
        session_free(s);
        if (!upload_grant_begin(k->u->store, &k->put, s, reply, &rc, e)) {
            live_remove(k->u, s->id);
            return rc;
        }
        break;
    case LIVE_ALREADY:
        break;
    case LIVE_REFUSED:
        return 0;
    }
    rc = session_file_load(k->u->store, s->id, k->put.path, &k->old, e);
    if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    k->old.sealed = rc == 0 && k->old.sealed;
    charge_begin(&k->charge, k->u, s->id, k->old.sealed ? k->old.bytes : 0);
    k->charge.part = true;
    return 0;
}

static int open_object(struct upload_sink *k, struct upload_reply *reply, struct err *e)
{
    uint64_t most = k->put.kind == PUT_PIECE      ? k->put.assembler->piece_bytes_max
                    : k->put.kind == PUT_ASSEMBLE ? k->put.assembler->list_bytes_max
                                                  : UNKNOWN;
    int rc;

    if (most != UNKNOWN && k->length > most) {
        upload_refuse(reply, k->length == UNKNOWN ? 411 : 413,
                      "the body may have at most %" PRIu64 " bytes, and needs a Content-Length",
                      most);
        return 0;
    }

    if (!upload_grant_begin(k->u->store, &k->put, &k->session, reply, &rc, e)) {
        return rc;
    }
    if (k->put.kind == PUT_PIECE) {
        rc = open_piece(k, reply, e);
        if (rc != 0 || reply->status != 0) {
            return rc;
        }
    } else {
        charge_begin(&k->charge, k->u, k->session.id, 0);
    }
    if (k->put.kind == PUT_ASSEMBLE) {
        k->list = BUF_INIT((size_t)k->put.assembler->list_bytes_max);
        return 0;
    }
    return uploads_open_ingest(k->u, k->file.total, false, &k->file.in, e);
}

static const struct sink_ops *ops_of(enum put_kind kind)
{
    return kind == PUT_PART ? &part_sink : kind == PUT_APPEND ? &append_sink : NULL;
}

int upload_sink_open(struct uploads *u, const struct put *p, const struct upload_body *body,
                     struct upload_sink **out, struct upload_reply *reply, struct err *e)
{
    struct upload_sink *k = NEW(struct upload_sink);
    int rc = 0;

    *out = NULL;
    k->u = u;
    k->put = put_copy(p, &k->arena);
    k->length = body->length;
    k->file = (struct arrival){.session = &k->session, .charge = &k->charge, .path = k->put.path};
    k->file.total = p->total != UNKNOWN ? p->total : p->first == 0 ? body->length : UNKNOWN;
    k->writer.yield = body->yield;
    k->writer.yield_arg = body->yield_arg;
    k->ops = ops_of(p->kind);
    if (k->ops != NULL) {
        rc = k->ops->open(u, &k->put, body, &k->arg, reply, e);
    } else if (p->kind == PUT_UPLOAD_FILE) {
        rc = open_session_file(k, reply, e);
    } else if (p->kind == PUT_OBJECT || p->kind == PUT_PIECE || p->kind == PUT_ASSEMBLE) {
        rc = open_object(k, reply, e);
    } else {
        rc = open_sink_file(k, reply, e);
    }
    if (rc == 0 && reply->status == 0) {
        k->counted = true;
        atomic_fetch_add(&u->bodies, 1);
        *out = k;
        return 0;
    }
    if (p->kind == PUT_UPLOAD_FILE && k->file.in != NULL) {
        ingest_park(&k->file.in); /* as it was found */
    }
    sink_free(&k);
    return upload_trouble(reply, rc, e);
}

int upload_sink_write(struct upload_sink *k, struct slice bytes, struct upload_reply *reply,
                      struct err *e)
{
    int rc = 0;

    if (k->ops != NULL) {
        return upload_trouble(reply, k->ops->write(k->arg, bytes, reply, e), e);
    }
    if (bytes.n > k->file.total - offset_of(k)) {
        upload_refuse(reply, 400, "the body is longer than the announced %" PRIu64 " bytes",
                      k->file.total);
        return 0;
    }
    if (k->put.max_bytes != 0 && bytes.n > k->put.max_bytes - offset_of(k)) {
        upload_refuse(reply, 413, "this file may have at most %" PRIu64 " bytes", k->put.max_bytes);
        return 0;
    }
    if (k->put.kind == PUT_ASSEMBLE) {
        buf_adds(&k->list, bytes);
        CHECK(k->list.rc == 0); /* total is at most its maximum */
    } else {
        bool free = k->put.kind == PUT_FILE ||
                    (k->put.kind != PUT_UPLOAD_FILE && ingest_state(k->file.in) == INGEST_MEMORY);
        rc = uploads_append(free ? NULL : &k->charge, k->file.in, bytes, e);
    }
    rc = rc != 0 ? rc : arrival_save_if_due(&k->file, e);
    return upload_trouble(reply, rc, e);
}

static int finish_session_file(struct upload_sink *k, const struct digest *d,
                               struct upload_reply *reply, struct err *e)
{
    struct session_file f = {.sealed = true, .bytes = offset_of(k), .digest = *d};
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    int rc = ingest_seal(&k->file.in, b, &blob, e);

    if (rc == 0) {
        arrival_put(&k->file, &f, b);
        session_hold(&k->session, k->put.path, d, b);
        rc = store_commit(k->u->store, &b, COMMIT_SYNC, e);
    }
    if (rc == E_CHANGED) {
        upload_refuse(reply, 409, "this upload has ended in the meantime");
        rc = 0;
    } else if (rc == 0) {
        k->writer.fresh = false;
        charge_keep(&k->charge, f.bytes);
        upload_reply_file(reply, 201, k->put.path, &f);
    }
    blob_release(&blob);
    batch_free(&b);
    return rc;
}

/* Upload of one and commit at once. The blob's rows first: a publish that has to begin anew cannot
 * seal twice. */
static int finish_file(struct upload_sink *k, const struct digest *d, uint64_t now_unix_s,
                       struct upload_reply *reply, struct err *e)
{
    struct tree_edit ed = {
        .entry = {
            .path = k->put.path, .type = ENTRY_FILE, .size_bytes = offset_of(k), .digest = *d}};
    struct publish pub = {.store = k->u->store,
                          .put = &k->put,
                          .edits = &ed,
                          .count = 1,
                          .file = true,
                          .now_unix_s = now_unix_s};
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    int rc = ingest_seal(&k->file.in, b, &blob, e);

    if (rc == 0) {
        publish_hold(&k->put, d, b);
        rc = store_commit(k->u->store, &b, COMMIT_LAZY, e);
    }
    rc = rc != 0 ? rc : publish_run(&pub, reply, e);
    blob_release(&blob);
    batch_free(&b);
    return rc;
}

/* It is the upload grant's, until a commit names it. */
static int finish_object(struct upload_sink *k, const struct digest *d, struct upload_reply *reply,
                         struct err *e)
{
    struct session_file f = {.sealed = true, .bytes = offset_of(k), .digest = *d};
    bool piece = k->put.kind == PUT_PIECE;
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    int rc = ingest_seal(&k->file.in, b, &blob, e);

    if (rc == 0 && piece) { /* found again by its name, and gone with the upload grant */
        arrival_put(&k->file, &f, b);
        if (k->old.sealed) {
            session_unhold(&k->session, k->put.path, &k->old.digest, b);
        }
    }
    if (rc == 0) {
        session_require(&k->session, b);
        session_hold(&k->session, piece ? k->put.path : SLICE_NONE, d, b);
        rc = store_commit(k->u->store, &b, COMMIT_SYNC, e);
    }
    if (rc == E_CHANGED) {
        upload_refuse(reply, 404, "this upload has ended in the meantime; start a new one");
        rc = 0;
    } else if (rc == 0) {
        upload_reply_file(reply, 200, k->put.path, &f);
        charge_keep(&k->charge, piece ? f.bytes : 0);
        if (piece && k->old.sealed) {
            drop_unheld(k->u->store, &k->old.digest, 1);
        }
        if (k->put.kind == PUT_OBJECT) {
            live_came(k->u, k->session.id, d);
        }
    }
    blob_release(&blob);
    batch_free(&b);
    return rc;
}

/* Not what was announced: the bytes go, the next try begins anew. */
static int discard_session_file(struct upload_sink *k, struct upload_reply *reply, struct err *e)
{
    struct batch *b;
    int rc;

    upload_refuse(reply, 422, "the bytes do not match %s; send them again",
                  k->put.kind == PUT_OBJECT ? "this digest" : "Repr-Digest");
    if (k->put.kind != PUT_UPLOAD_FILE || ingest_id(k->file.in) == 0) {
        return 0;
    }
    b = batch_new();
    arrival_put(&k->file, NULL, b);
    rc = store_commit(k->u->store, &b, COMMIT_LAZY, e);
    if (rc == 0) {
        charge_keep(&k->charge, 0);
    }
    return rc;
}

/* One at a time of an upload grant: a client that has lost patience, and asks again, finds the
 * files made instead of making them once more beside. */
static int assemble(struct upload_sink *k, struct upload_reply *reply, struct err *e)
{
    const char *why;
    int rc;

    k->writer.id = k->session.id;
    k->writer.path = SLICE("shard");
    k->writer.loose = true;
    k->writer.yield = NULL;
    if (live_enter(k->u, &k->writer, &why) != 0) {
        upload_refuse(reply, 503, "files of this upload are being assembled; try again later");
        return 0;
    }
    rc = k->put.assembler->run(k->u, &k->put, &k->session, buf_slice(&k->list), reply, e);
    if (rc == 0 && reply->status == 200) {
        bool keeps = live_may_keep(k->u, k->session.id);
        rc = keeps ? 0 : k->put.assembler->forget(k->u, &k->session, buf_slice(&k->list), e);
        live_assembled(k->u, k->session.id, keeps || rc != 0);
    }
    return rc;
}

int upload_sink_finish(struct upload_sink **kp, uint64_t now_unix_s, struct upload_reply *reply,
                       struct err *e)
{
    struct upload_sink *k = *kp;
    struct digest d;
    int rc;

    *kp = NULL;
    if (k->ops != NULL) {
        rc = k->ops->finish(k->arg, now_unix_s, reply, e);
        sink_free(&k);
        return upload_trouble(reply, rc, e);
    }
    if (k->put.kind == PUT_UPLOAD_FILE && k->file.total != UNKNOWN &&
        offset_of(k) < k->file.total) {
        struct session_file f = {.bytes = offset_of(k)};
        rc = ingest_id(k->file.in) != 0 ? arrival_save(&k->file, COMMIT_LAZY, e) : 0;
        if (rc == 0) {
            upload_reply_file(reply, 308, k->put.path, &f);
        }
        upload_sink_close(&k);
        return upload_trouble(reply, rc, e);
    }
    if (k->file.total != UNKNOWN && offset_of(k) != k->file.total) {
        upload_refuse(reply, 400, "the body is shorter than announced");
        sink_free(&k);
        return 0;
    }
    if (k->file.in != NULL) {
        rc = ingest_finish(k->file.in, ingest_bytes(k->file.in), &d, e);
    } else {
        rc = 0;
        digest_of(buf_slice(&k->list), &d);
    }
    if (rc != 0) {
        upload_sink_close(&k);
        return upload_trouble(reply, rc, e);
    }
    if (k->put.digest_known && !digest_eq(&d, &k->put.digest)) {
        rc = discard_session_file(k, reply, e);
    } else if (k->put.kind == PUT_UPLOAD_FILE) {
        rc = finish_session_file(k, &d, reply, e);
    } else if (k->put.kind == PUT_ASSEMBLE) {
        rc = assemble(k, reply, e);
    } else if (k->put.kind == PUT_OBJECT || k->put.kind == PUT_PIECE) {
        rc = finish_object(k, &d, reply, e);
    } else {
        rc = finish_file(k, &d, now_unix_s, reply, e);
    }
    sink_free(&k);
    return upload_trouble(reply, rc, e);
}

void upload_sink_close(struct upload_sink **kp)
{
    struct upload_sink *k = *kp;

    if (k != NULL && k->put.kind == PUT_UPLOAD_FILE && arrival_settle(&k->file)) {
        ingest_park(&k->file.in);
    }
    sink_free(kp);
}
