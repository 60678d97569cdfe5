#include "server/store/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/os/newfile.h"
#include "server/store/blob.h"
#include "server/store/joint.h"
#include "server/store/offer.h"
#include "server/store/upload_reply.h"

#define ROWS        "part/"
#define READ_BYTES  ((size_t)1 << 20)
#define SYNC_BYTES  ((uint64_t)64 << 20) /* of a part that is longer: what its end has to wait for */
#define ALL_OF_THEM UINT32_MAX
enum {
    NAME_BYTES = sizeof ROWS + DIGEST_HEX + 12,
    CATCH_UP = 4, /* parts whose digest is made up for at the end of one */
};

/* --- how an object is divided ------------------------------------------------------------------------------------- */

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

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* n: 0 for the object's own. */
static struct slice row_name(const struct digest *d, uint32_t n, char out[NAME_BYTES])
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    if (n == 0) {
        snprintf(out, NAME_BYTES, ROWS "%s", hex);
    } else {
        snprintf(out, NAME_BYTES, ROWS "%s/%" PRIu32, hex, n);
    }
    return slice_str(out);
}

struct slice parts_awaited(struct slice path)
{
    struct slice hex = slice_starts(path, SLICE(ROWS)) ? slice_from(path, sizeof ROWS - 1) : path;

    return hex.n == DIGEST_HEX && hex.p != path.p ? hex : SLICE_NONE;
}

/* f == NULL: it goes. */
static void put_row(const struct session *s, const struct digest *d, uint32_t n,
                    const struct session_file *f, struct batch *b)
{
    struct buf key = BUF_INIT(1024);
    struct buf row = BUF_INIT(256);
    char name[NAME_BYTES];

    session_key(&key, s->id, row_name(d, n, name));
    if (f != NULL) {
        session_file_encode(f, &row);
        batch_put(b, TABLE_UPLOAD, buf_slice(&key), buf_slice(&row));
    } else {
        batch_del(b, TABLE_UPLOAD, buf_slice(&key));
    }
    buf_free(&key);
    buf_free(&row);
}

static int load_row(struct store *store, const char *id, const struct digest *d, uint32_t n,
                    struct session_file *out, struct err *e)
{
    char name[NAME_BYTES];

    return session_file_load(store, id, row_name(d, n, name), out, e);
}

void parts_await(const struct session *s, const struct put_object *o, uint64_t part_bytes,
                 struct batch *b)
{
    struct session_file f = {.bytes = part_bytes, .total = o->size_bytes};
    char hex[DIGEST_HEX + 1];

    digest_format(&o->digest, hex);
    put_row(s, &o->digest, 0, &f, b);
    offer_remember(s, slice_of(hex, DIGEST_HEX), b);
}

int parts_recall(struct store *store, const struct put *p, const struct put_object *o,
                 uint64_t now_unix_s, char id[UPLOAD_ID + 1], uint64_t *part_bytes, struct err *e)
{
    struct session_file f;
    struct session s;
    char hex[DIGEST_HEX + 1];
    int rc;

    digest_format(&o->digest, hex);
    rc = offer_recall(store, p, slice_of(hex, DIGEST_HEX), now_unix_s, &s, e);
    if (rc == 0) {
        rc = load_row(store, s.id, &o->digest, 0, &f, e);
    }
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

static void put_stage(uint64_t stage, const char *id, struct batch *b)
{
    struct buf row = BUF_INIT(64);
    char key[STAGE_KEY_BYTES];

    stage_key(stage, key);
    if (id != NULL) {
        buf_addf(&row, "upload %s", id);
        batch_put(b, TABLE_PARTIAL, slice_of(key, sizeof key), buf_slice(&row));
    } else {
        batch_del(b, TABLE_PARTIAL, slice_of(key, sizeof key));
    }
    buf_free(&row);
}

/* All of an object's rows go. */
static void drop_rows(struct store *store, const struct session *s, const struct digest *d,
                      const struct session_file *f, struct batch *b)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    for (uint32_t n = 0; n <= parts_count(f->total, f->bytes); n++) {
        put_row(s, d, n, NULL, b);
    }
    offer_forget(store, s, slice_of(hex, DIGEST_HEX), b);
    if (f->stage != 0) {
        put_stage(f->stage, NULL, b);
    }
}

/* --- the stage ---------------------------------------------------------------------------------------------------- */

/* A new one, where there is none yet, or its file is lost; parts that were in that one are, too. */
static int begin_stage(struct uploads *u, const struct session *s, const struct digest *d,
                       struct session_file *f, struct stage **out, struct err *e)
{
    struct batch *b;
    int rc = uploads_stage(u, f->total, true, out, e);

    if (rc == 0) {
        rc = stage_sync(*out, e); /* its name, before rows tell of parts in it */
    }
    if (rc != 0) {
        return rc;
    }
    b = batch_new();
    session_require(s, b);
    if (f->stage != 0) {
        drop_rows(u->store, s, d, f, b);
        parts_await(s, &(struct put_object){*d, f->total}, f->bytes, b);
    }
    f->stage = stage_id(*out);
    put_row(s, d, 0, f, b);
    put_stage(f->stage, s->id, b);
    return store_commit(u->store, &b, COMMIT_LAZY, e);
}

/* E_BUSY: somebody opens it, or has just let go of it. */
static int open_stage(struct uploads *u, struct joint *j, const struct session *s, struct err *e)
{
    struct session_file f;
    struct stage *st = NULL;
    int rc;

    if (!joint_opens(u, j, &rc)) {
        return rc;
    }
    rc = load_row(u->store, s->id, &j->digest, 0, &f, e);
    if (rc == 0) {
        rc = f.stage != 0 ? stage_resume(u->store, f.stage, f.total, &st, e) : E_NOTFOUND;
        rc = rc == E_NOTFOUND ? begin_stage(u, s, &j->digest, &f, &st, e) : rc;
    }
    if (rc != 0) {
        stage_abort(&st);
    }
    joint_opened(u, j, st);
    return rc;
}

/* --- the digest --------------------------------------------------------------------------------------------------- */

static int add_from_stage(struct joint *j, struct hasher *h, uint64_t bytes, struct err *e)
{
    char *room = mem_new(READ_BYTES);
    uint64_t at = hasher_count(h);
    uint64_t end = at + bytes;
    int rc = 0;

    while (rc == 0 && at < end) {
        size_t n = (size_t)min_u64(READ_BYTES, end - at);
        rc = fd_pread_all(stage_fd(j->stage), room, n, at, e);
        if (rc == 0) {
            hasher_add(h, room, n);
            at += n;
        }
    }
    free(room);
    return rc;
}

/* Of parts that are durable and next in order, up to `most`. */
static int catch_up(struct uploads *u, struct joint *j, const struct session_file *awaited,
                    uint32_t most, struct err *e)
{
    unsigned epoch;
    struct hasher *h = joint_hash_take(u, j, UINT64_MAX, &epoch);
    int rc = 0;

    for (uint32_t i = 0; h != NULL && rc == 0 && i < most && hasher_count(h) < awaited->total;
         i++) {
        struct session_file f;
        uint32_t next = (uint32_t)(hasher_count(h) / awaited->bytes) + 1;
        if (load_row(u->store, j->id, &j->digest, next, &f, NULL) != 0) {
            break;
        }
        rc = add_from_stage(j, h, f.bytes, e);
    }
    if (h != NULL && rc != 0) { /* part of a part: of no use */
        joint_hash_void(u, j);
    }
    if (h != NULL) {
        joint_hash_give(u, j, h, epoch);
    }
    return rc;
}

/* --- one part ----------------------------------------------------------------------------------------------------- */

struct part {
    struct uploads *u;
    struct session session;
    struct joint *joint;
    struct writer writer;
    char name[NAME_BYTES]; /* the writer's path, and the row's */
    uint32_t n;
    struct session_file awaited; /* the whole object */
    uint64_t first, bytes;
    uint64_t written, synced;
    bool there; /* it is durable: what comes is compared */
    struct digest sum;
    XXH3_state_t *summing;
    struct hasher *before, *hasher; /* the joint's, and its copy that runs along; or NULL */
    unsigned epoch;
};

/* What is to come, from its row. False: answered. */
static bool find_place(struct part *x, const struct put *p, uint64_t length,
                       struct upload_reply *reply, int *rc, struct err *e)
{
    struct session_file *f = &x->awaited;

    *rc = load_row(x->u->store, x->session.id, &p->digest, 0, f, e);
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
                                .path = row_name(&p->digest, p->part, x->name),
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
    int rc = open_stage(x->u, x->joint, &x->session, e);

    if (rc != 0) {
        return rc;
    }
    /* From here on the row is ours alone, and the stage stays: an object is not closed while somebody is at a part. */
    rc = session_file_load(x->u->store, x->session.id, x->writer.path, &f, e);
    if (rc == 0) {
        x->there = true;
        x->sum = f.digest;
    } else if (rc == E_NOTFOUND) {
        x->before = joint_hash_take(x->u, x->joint, x->first, &x->epoch);
        x->hasher = x->before != NULL ? hasher_copy(x->before) : NULL;
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

/* Not stage_sync(): other requests write and sync the same stage. Its name is durable. */
static int sync_bytes(struct part *x, struct err *e)
{
    return fdatasync(stage_fd(x->joint->stage)) == 0 ? 0 : err_sys(e, "fdatasync");
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
        rc = stage_write(x->joint->stage, bytes.p, bytes.n, x->first + x->written, e);
    }
    if (rc == 0 && x->hasher != NULL) {
        hasher_add(x->hasher, bytes.p, bytes.n);
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

/* Which of the two is right nobody can say: both are void, and the client is asked for a third. */
static int differs(struct part *x, struct upload_reply *reply, struct err *e)
{
    struct batch *b = batch_new();

    session_require(&x->session, b);
    put_row(&x->session, &x->joint->digest, x->n, NULL, b);
    joint_hash_void(x->u, x->joint);
    upload_refuse(reply, 503, "part %" PRIu32 " differs from what came of it before: send it again",
                  x->n);
    return store_commit(x->u->store, &b, COMMIT_SYNC, e);
}

static int keep(struct part *x, const struct digest *sum, struct err *e)
{
    struct session_file f = {.sealed = true, .bytes = x->bytes, .digest = *sum};
    struct batch *b;
    int rc = sync_bytes(x, e);

    if (rc != 0) {
        return rc;
    }
    b = batch_new();
    session_require(&x->session, b);
    put_row(&x->session, &x->joint->digest, x->n, &f, b);
    rc = store_commit(x->u->store, &b, COMMIT_SYNC, e);
    if (rc == 0 && x->hasher != NULL) {
        joint_hash_give(x->u, x->joint, x->hasher, x->epoch);
        x->hasher = x->before = NULL;
    }
    return rc != 0 ? rc : catch_up(x->u, x->joint, &x->awaited, CATCH_UP, e);
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
    if (x->before != NULL) {
        joint_hash_give(x->u, x->joint, x->before, x->epoch);
    }
    hasher_free(&x->hasher);
    XXH3_freeState(x->summing);
    live_leave(x->u, &x->writer);
    joint_leave(x->u, &x->joint);
    session_free(&x->session);
    free(x);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

struct ending {
    struct uploads *u;
    const struct put *put;
    const struct session *session;
    struct joint *joint;
    struct session_file f; /* what was awaited */
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
        rc = load_row(x->u->store, x->session->id, &x->put->digest, n, &f, x->e);
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

    upload_refuse(x->out, 422, "the parts do not make up this digest: send them all again");
    drop_rows(x->u->store, x->session, &x->put->digest, &x->f, b);
    joint_dead(x->u, x->joint);
    return store_commit(x->u->store, &b, COMMIT_SYNC, x->e);
}

static int seal(struct ending *x, struct hasher *h)
{
    struct stage *st = x->joint->stage;
    struct batch *b = batch_new();
    const struct digest *chunk;
    size_t count;
    int rc;

    chunk = hasher_chunks(h, &count);
    joint_opened(x->u, x->joint, NULL); /* the stage is the seal's */
    rc = stage_seal(&st, &x->put->digest, x->f.total, chunk, count, b, NULL, x->e);
    if (rc == 0) {
        drop_rows(x->u->store, x->session, &x->put->digest, &x->f, b);
        session_require(x->session, b);
        session_hold(x->session, &x->put->digest, b);
        rc = store_commit(x->u->store, &b, COMMIT_SYNC, x->e);
    }
    batch_free(&b);
    return rc;
}

static int close_object(struct ending *x)
{
    unsigned epoch;
    struct hasher *h;
    struct hasher *whole;
    struct digest d;
    int rc = open_stage(x->u, x->joint, x->session, x->e);

    if (rc == 0) {
        rc = catch_up(x->u, x->joint, &x->f, ALL_OF_THEM, x->e);
    }
    h = rc == 0 ? joint_hash_take(x->u, x->joint, x->f.total, &epoch) : NULL;
    if (h == NULL) {
        return rc != 0 ? rc
                       : err_set(x->e, E_INTERNAL, "the digest of parts did not come to its end");
    }
    whole = hasher_copy(h);
    joint_hash_give(x->u, x->joint, h, epoch);
    hasher_final(whole, &d);
    rc = digest_eq(&d, &x->put->digest) ? seal(x, whole) : drop(x);
    hasher_free(&whole);
    return rc;
}

static int end_object(struct ending *x)
{
    bool has = false;
    int rc = offer_tree_has(x->u->store, x->put, &x->put->digest, &has, NULL, x->e);

    if (rc == 0 && !has) {
        rc = load_row(x->u->store, x->session->id, &x->put->digest, 0, &x->f, x->e);
    }
    if (rc == E_NOTFOUND) {
        upload_refuse(x->out, 404, "no parts of this object are awaited: ask for addresses anew");
        return 0;
    }
    if (rc == 0 && !has) {
        rc = all_here(x);
    }
    if (rc == 0 && !has && x->out->status == 0) {
        rc = close_object(x);
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
