#include "server/upload/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/log.h"
#include "server/store/blob.h"
#include "server/upload/multipart_upload.h"
#include "server/upload/upload_grant.h"
#include "server/upload/sink.h"
#include "server/upload/upload_reply.h"

#define ROWS "part/"
enum { PARTS_NAME_BYTES = 5 + DIGEST_HEX + 12 };
_Static_assert(PARTS_NAME_BYTES >= sizeof ROWS + DIGEST_HEX + 11, "a row's name has room");

/* --- how an object is divided ----------------------------------------------------------------- */

uint32_t parts_count(uint64_t size_bytes, uint64_t part_bytes)
{
    return (uint32_t)((size_bytes + part_bytes - 1) / part_bytes);
}

void parts_divide(const struct put_object *object, size_t count, uint64_t *part_bytes)
{
    uint64_t all;

    for (size_t i = 0; i < count; i++) {
        uint64_t size = object[i].size_bytes;
        part_bytes[i] = size >= PARTS_FROM_BYTES ? PART_BYTES : 0;
        while (part_bytes[i] != 0 && (size - 1) / part_bytes[i] >= PARTS_MAX) {
            part_bytes[i] *= 2;
        }
    }
    do {
        all = 0;
        for (size_t i = 0; i < count; i++) {
            all += part_bytes[i] != 0 ? parts_count(object[i].size_bytes, part_bytes[i]) : 0;
        }
        for (size_t i = 0; i < count && all > PARTS_BATCH_MAX; i++) {
            part_bytes[i] *= 2;
        }
    } while (all > PARTS_BATCH_MAX);
}

/* --- rows ------------------------------------------------------------------------------------- */

static struct slice row_name(const struct digest *d, uint32_t n, char out[PARTS_NAME_BYTES])
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    if (n == 0) {
        snprintf(out, PARTS_NAME_BYTES, ROWS "%s", hex);
    } else {
        snprintf(out, PARTS_NAME_BYTES, ROWS "%s/%" PRIu32, hex, n);
    }
    return slice_str(out);
}

struct slice parts_awaited(struct slice path)
{
    struct slice hex = slice_starts(path, SLICE(ROWS)) ? slice_from(path, sizeof ROWS - 1) : path;

    return hex.n == DIGEST_HEX && hex.p != path.p ? hex : SLICE_NONE;
}

static void row_put(const struct session *s, const struct digest *d, uint32_t n,
                    const struct session_file *f, struct batch *b)
{
    char name[PARTS_NAME_BYTES];

    if (f != NULL) {
        session_file_put(s, row_name(d, n, name), f, b);
    } else {
        session_file_del(s, row_name(d, n, name), b);
    }
}

static int row_load(struct store *store, const char *id, const struct digest *d, uint32_t n,
                    struct session_file *out, struct err *e)
{
    char name[PARTS_NAME_BYTES];

    return session_file_load(store, id, row_name(d, n, name), out, e);
}

void parts_await(const struct session *s, const struct put_object *o, uint64_t part_bytes,
                 struct batch *b)
{
    struct session_file f = {.bytes = part_bytes, .total = o->size_bytes};
    char hex[DIGEST_HEX + 1];

    digest_format(&o->digest, hex);
    row_put(s, &o->digest, 0, &f, b);
    upload_grant_remember(s, slice_of(hex, DIGEST_HEX), b);
}

int parts_recall(struct store *store, const struct put *p, const struct put_object *o,
                 uint64_t now_unix_s, char id[UPLOAD_ID + 1], uint64_t *part_bytes, struct err *e)
{
    struct session_file f;
    struct session s;
    char hex[DIGEST_HEX + 1];
    int rc;

    digest_format(&o->digest, hex);
    rc = upload_grant_recall(store, p, slice_of(hex, DIGEST_HEX), now_unix_s, &s, e);
    rc = rc != 0 ? rc : row_load(store, s.id, &o->digest, 0, &f, e);
    if (rc == 0 && f.total != o->size_bytes) {
        rc = E_NOTFOUND;
    }
    if (rc == 0) {
        memcpy(id, s.id, sizeof s.id);
        *part_bytes = f.bytes;
    }
    session_free(&s);
    return rc;
}

static void rows_drop(struct store *store, const struct session *s, const struct digest *d,
                      const struct session_file *f, struct batch *b)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    for (uint32_t n = 0; n <= parts_count(f->total, f->bytes); n++) {
        row_put(s, d, n, NULL, b);
    }
    upload_grant_forget(store, s, slice_of(hex, DIGEST_HEX), b);
    partial_del(b, f->stage);
}

/* --- the one stage that all parts are written into, and how far its digest has been taken --- */

/* What the rows of the object's parts say is here. */
static int rows_bytes(struct store *store, const struct session *s, const struct digest *d,
                      const struct session_file *f, uint64_t *bytes, struct err *e)
{
    struct session_file part;
    int rc = 0;

    *bytes = 0;
    for (uint32_t n = 1; rc == 0 && n <= parts_count(f->total, f->bytes); n++) {
        rc = row_load(store, s->id, d, n, &part, e);
        *bytes += rc == 0 ? part.bytes : 0;
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    return rc;
}

/* A new one, where there is none yet, or its file is lost; parts that were in that one are, too. */
static int begin_stage(struct uploads *u, const struct session *s, const struct digest *d,
                       struct session_file *f, struct ingest **out, struct err *e)
{
    struct charge lost;
    struct batch *b;
    uint64_t bytes = 0;
    int rc = uploads_open_ingest(u, f->total, true, out, e);

    if (rc == 0 && f->stage != 0) {
        rc = rows_bytes(u->store, s, d, f, &bytes, e);
    }
    if (rc != 0) {
        return rc;
    }
    b = batch_new();
    session_require(s, b);
    if (f->stage != 0) {
        rows_drop(u->store, s, d, f, b);
        parts_await(s, &(struct put_object){*d, f->total}, f->bytes, b);
    }
    f->stage = ingest_id(*out);
    row_put(s, d, 0, f, b);
    charge_begin(&lost, u, s->id, bytes);
    rc = session_save(s, *out, &b, COMMIT_LAZY, e);
    if (rc == 0) {
        charge_keep(&lost, 0);
        charge_settle(&lost);
    }
    return rc;
}

static int open_part_stage(struct uploads *u, struct multipart_upload *j, const struct session *s,
                           struct err *e)
{
    struct session_file f;
    struct ingest *in = NULL;
    struct hasher *h;
    int rc;

    if (!multipart_upload_opens(u, j, &rc)) {
        return rc;
    }
    rc = row_load(u->store, s->id, &j->digest, 0, &f, e);
    if (rc == 0) {
        rc = f.stage != 0 ? uploads_resume(u, f.stage, 0, f.total, &in, e) : E_NOTFOUND;
    }
    if (rc == 0) {
        h = multipart_upload_hasher_take(j);
        if (h != NULL) {
            ingest_hasher_give(in, &h);
        }
    } else if (rc == E_NOTFOUND) {
        multipart_upload_hasher_put(j, NULL); /* what it has seen has to come again */
        rc = begin_stage(u, s, &j->digest, &f, &in, e);
    }
    if (rc != 0) {
        ingest_drop(&in);
    }
    multipart_upload_opened(u, j, in);
    return rc;
}

static int hash_on(struct uploads *u, struct multipart_upload *j,
                   const struct session_file *awaited, uint32_t most, struct err *e)
{
    struct session_file f;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < most && ingest_hashed(j->in) < awaited->total; i++) {
        uint64_t before = ingest_hashed(j->in) / awaited->bytes; /* whole parts */
        if (row_load(u->store, j->id, &j->digest, (uint32_t)before + 1, &f, NULL) != 0) {
            break;
        }
        rc = ingest_hash(j->in, before * awaited->bytes + f.bytes, e);
    }
    return rc;
}

/* --- one part: into its place in the stage, or compared with what came before --- */

#define SYNC_BYTES ((uint64_t)64 << 20) /* of a part that is longer: what its end has to wait for */
enum { CATCH_UP = 4 };                  /* parts whose digest is made up for at the end of one */

struct part {
    struct uploads *u;
    struct session session;
    struct multipart_upload *multipart_upload;
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

    *rc = row_load(x->u->store, x->session.id, &p->digest, 0, f, e);
    if (*rc == E_NOTFOUND) {
        upload_refuse(reply, 404,
                      "no upload of this object in parts is open; request new addresses");
        *rc = 0;
        return false;
    }
    if (*rc != 0) {
        return false;
    }
    if (p->part == 0 || p->part > parts_count(f->total, f->bytes)) {
        upload_refuse(reply, 404,
                      "this object is uploaded in %" PRIu32 " parts; there is no such part",
                      parts_count(f->total, f->bytes));
        return false;
    }
    x->first = (p->part - 1) * f->bytes;
    x->bytes = min_u64(f->bytes, f->total - x->first);
    if (length != UINT64_MAX && length != x->bytes) {
        upload_refuse(reply, 400, "part %" PRIu32 " must have %" PRIu64 " bytes", p->part,
                      x->bytes);
        return false;
    }
    return true;
}

static int open_part_session(struct part *x, const struct put *p, const struct upload_body *body,
                             struct err *e)
{
    const char *why = "";
    int rc;

    x->n = p->part;
    x->writer = (struct writer){.id = x->session.id,
                                .path = row_name(&p->digest, p->part, x->name),
                                .loose = true,
                                .yield = body->yield,
                                .yield_arg = body->yield_arg};
    rc = live_enter(x->u, &x->writer, &why);
    if (rc != 0) {
        return err_set(e, E_BUSY, "another request is still writing this part");
    }
    return multipart_upload_enter(x->u, x->session.id, &p->digest, false, &x->multipart_upload, e);
}

static int begin_part_upload(struct part *x, struct err *e)
{
    struct session_file f;
    int rc = open_part_stage(x->u, x->multipart_upload, &x->session, e);

    if (rc != 0) {
        return rc;
    }
    /* From here on the row is ours alone, and the stage stays: an object is not closed while
     * somebody is at a part. */
    rc = session_file_load(x->u->store, x->session.id, x->writer.path, &f, e);
    charge_begin(&x->charge, x->u, x->session.id, rc == 0 ? x->bytes : 0);
    x->charge.part = true;
    if (rc == 0) {
        x->there = true;
        x->sum = f.digest;
    } else if (rc == E_NOTFOUND) {
        if (ingest_hashed(x->multipart_upload->in) == x->first) {
            ingest_mark(
                x->multipart_upload->in); /* where the digest goes back to if this one is cut off */
        }
        rc = 0;
    }
    x->summing = XXH3_createState();
    CHECK(x->summing != NULL && XXH3_128bits_reset(x->summing) == XXH_OK);
    return rc;
}

static void part_close(void *arg);

static int part_open(struct uploads *u, const struct put *p, const struct upload_body *body,
                     void **out, struct upload_reply *reply, struct err *e)
{
    struct part *x = NEW(struct part);
    int rc;

    x->u = u;
    *out = x;
    if (upload_grant_begin(u->store, p, &x->session, reply, &rc, e) &&
        find_place(x, p, body->length, reply, &rc, e)) {
        rc = open_part_session(x, p, body, e);
        rc = rc != 0 ? rc : begin_part_upload(x, e);
    }
    if (rc != 0 || reply->status != 0) {
        part_close(x);
        *out = NULL;
    }
    if (rc == E_CHANGED) {
        upload_refuse(reply, 404, "this upload has ended in the meantime; start a new one");
        rc = 0;
    }
    return rc;
}

static int write_part_bytes(struct part *x, struct slice bytes, struct err *e)
{
    struct ingest *in = x->multipart_upload->in;
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

static int part_write(void *arg, struct slice bytes, struct upload_reply *reply, struct err *e)
{
    struct part *x = arg;
    int rc = 0;

    if (bytes.n > x->bytes - x->written) {
        upload_refuse(reply, 400, "the body is longer than the %" PRIu64 " bytes of this part",
                      x->bytes);
        return 0;
    }
    CHECK(XXH3_128bits_update(x->summing, bytes.p, bytes.n) == XXH_OK);
    if (!x->there) {
        rc = write_part_bytes(x, bytes, e);
    }
    x->written += bytes.n;
    if (rc == 0 && !x->there && x->written - x->synced >= SYNC_BYTES && x->written < x->bytes) {
        rc = ingest_sync(x->multipart_upload->in, e); /* what its end then has not to wait for */
        x->synced = x->written;
    }
    return rc;
}

static void answer_part_digest(const struct digest *sum, struct upload_reply *reply)
{
    char hex[DIGEST_HEX + 1];

    digest_format(sum, hex);
    snprintf(reply->etag, sizeof reply->etag, "\"%.32s\"", hex);
    reply->status = 200;
}

/* No row speaks of its bytes: they leave the stage. When the file system cannot do that, they count
 * until the session ends. */
static void void_bytes(struct part *x)
{
    struct err e;

    if (ingest_cut(x->multipart_upload->in, x->first, x->charge.bytes, &e) == 0) {
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
    row_put(&x->session, &x->multipart_upload->digest, x->n, NULL, b);
    upload_refuse(reply, 503,
                  "part %" PRIu32 " differs from the bytes received earlier; send it again", x->n);
    rc = store_commit(x->u->store, &b, COMMIT_SYNC, e);
    if (rc == 0) {
        void_bytes(x);
    }
    return rc;
}

static int keep_part_digest(struct part *x, const struct digest *sum, struct err *e)
{
    struct session_file f = {.sealed = true, .bytes = x->bytes, .digest = *sum};
    struct batch *b = batch_new();
    int rc;

    session_require(&x->session, b);
    row_put(&x->session, &x->multipart_upload->digest, x->n, &f, b);
    rc = session_save(&x->session, x->multipart_upload->in, &b, COMMIT_SYNC, e);
    if (rc == 0) {
        charge_keep(&x->charge, x->bytes);
    }
    return rc != 0 ? rc : hash_on(x->u, x->multipart_upload, &x->awaited, CATCH_UP, e);
}

/* 200 with an ETag. */
static int part_finish(void *arg, uint64_t now_unix_s, struct upload_reply *reply, struct err *e)
{
    struct part *x = arg;
    XXH128_canonical_t canonical;
    struct digest sum = {{0}};
    int rc = 0;

    (void)now_unix_s;
    if (x->written != x->bytes) {
        upload_refuse(reply, 400, "the body is shorter than the %" PRIu64 " bytes of this part",
                      x->bytes);
        return 0;
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(x->summing));
    memcpy(sum.b, canonical.digest, sizeof canonical.digest);
    if (x->there && !digest_eq(&sum, &x->sum)) {
        rc = differs(x, reply, e);
    } else if (!x->there) {
        rc = keep_part_digest(x, &sum, e);
    }
    if (rc == E_CHANGED) {
        upload_refuse(reply, 404, "this upload has ended in the meantime; start a new one");
        multipart_upload_dead(x->u, x->multipart_upload);
        return 0;
    }
    if (rc == 0 && reply->status == 0) {
        answer_part_digest(&sum, reply);
    }
    return rc;
}

/* What is not durable counts for nothing. */
static void part_close(void *arg)
{
    struct part *x = arg;

    XXH3_freeState(x->summing);
    if (!x->there && x->charge.bytes != 0 && x->charge.kept == 0) { /* cut off */
        void_bytes(x);
    }
    charge_settle(&x->charge);
    live_leave(x->u, &x->writer);
    multipart_upload_leave(x->u, &x->multipart_upload);
    session_free(&x->session);
    free(x);
}

const struct sink_ops part_sink = {part_open, part_write, part_finish, part_close};

/* --- all parts are here: they become a blob, when they are what was announced --- */

struct ending {
    struct uploads *u;
    const struct put *put;
    const struct session *session;
    struct multipart_upload *multipart_upload;
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
        upload_refuse(x->out, 400, "this object is uploaded in %" PRIu32 " parts, not %" PRIu32,
                      count, x->put->parts_count);
    }
    for (uint32_t n = 1; rc == 0 && x->out->status == 0 && n <= count; n++) {
        rc = row_load(x->u->store, x->session->id, &x->put->digest, n, &f, x->e);
        if (rc == E_NOTFOUND) {
            upload_refuse(x->out, 400, "part %" PRIu32 " of %" PRIu32 " is missing; send it", n,
                          count);
            rc = 0;
        }
    }
    return rc;
}

/* As it is: whole, and of another digest. */
static int drop_uploaded_parts(struct ending *x)
{
    struct batch *b = batch_new();
    int rc;

    upload_refuse(x->out, 422,
                  "the parts together do not match this digest; send all of them again");
    rows_drop(x->u->store, x->session, &x->put->digest, &x->f, b);
    multipart_upload_dead(x->u, x->multipart_upload);
    rc = store_commit(x->u->store, &b, COMMIT_SYNC, x->e);
    if (rc == 0) {
        charge_keep(&x->charge, 0);
    }
    return rc;
}

static int seal_joined_parts(struct ending *x)
{
    struct ingest *in = x->multipart_upload->in;
    struct batch *b = batch_new();
    int rc;

    multipart_upload_opened(x->u, x->multipart_upload, NULL); /* it is the seal's */
    rc = ingest_seal(&in, b, NULL, x->e);
    if (rc == 0) {
        rows_drop(x->u->store, x->session, &x->put->digest, &x->f, b);
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
    int rc = open_part_stage(x->u, x->multipart_upload, x->session, x->e);

    if (rc == 0) {
        rc = all_here(x); /* again: where its file was lost, all are to be sent anew */
    }
    if (rc == 0 && x->out->status == 0) {
        rc = ingest_finish(x->multipart_upload->in, x->f.total, &d, x->e);
    }
    if (rc != 0 || x->out->status != 0) {
        return rc;
    }
    return digest_eq(&d, &x->put->digest) ? seal_joined_parts(x) : drop_uploaded_parts(x);
}

static int end_object(struct ending *x)
{
    bool has = false;
    int rc = upload_grant_tree_has(x->u->store, x->put, &x->put->digest, &has, NULL, x->e);

    if (rc == 0 && !has) {
        rc = row_load(x->u->store, x->session->id, &x->put->digest, 0, &x->f, x->e);
    }
    if (rc == E_NOTFOUND) {
        upload_refuse(x->out, 404,
                      "no upload of this object in parts is open; request new addresses");
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
        upload_refuse(x->out, 404, "this upload has ended in the meantime; start a new one");
        multipart_upload_dead(x->u, x->multipart_upload);
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

    if (upload_grant_begin(u->store, p, &s, out, &rc, e)) {
        rc = multipart_upload_enter(u, s.id, &p->digest, true, &x.multipart_upload, e);
        rc = rc != 0 ? rc : end_object(&x);
        multipart_upload_leave(u, &x.multipart_upload);
    }
    session_free(&s);
    return rc;
}
