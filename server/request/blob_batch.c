#include "server/request/blob_batch.h"

#include <stdlib.h>

#include <zstd.h>

#include "common/codec/blob_batch.h"
#include "server/request/refusal.h"
#include "server/request/right.h"
#include "server/store/blob.h"

enum { PACK_LEVEL = 1 };

/* --- on the pool --- */

struct gleaning {
    struct step step;
    const struct repo_set *set;
    const struct principal *who;
    struct slice digests; /* kept by the call */
    uint64_t now_unix_s;
    struct right_last last;
    struct buf one; /* blob */
    struct buf out;
    bool may_pack, packed;
    unsigned slot; /* of serve.sheaves; 0: a body has taken it over */
};

/* Its length and bytes, or why they are not here. */
static void add_batch_blob(struct gleaning *ss, struct store *s, const struct digest *d)
{
    bool there = false;
    int rc = right_to_digest(s, ss->set, ss->who, d, &ss->last, NULL);

    if (rc == 0) {
        rc = blob_inline(s, d, &ss->one, NULL);
        if (rc == E_NOTFOUND) { /* in a file, maybe */
            rc = blob_exists(s, d, &there, NULL);
            rc = rc != 0 ? rc : there ? E_TOOBIG : E_NOTFOUND;
        }
    }
    if (rc == 0) {
        blob_touch(s, d, ss->now_unix_s); /* an agent's read, else it looks idle to eviction */
        blob_batch_put_head(&ss->out, (uint32_t)ss->one.n);
        buf_adds(&ss->out, buf_slice(&ss->one));
        CHECK(ss->out.rc == 0); /* BLOB_BATCH_ANSWER_MAX */
    } else {                    /* the client gets the error when it requests that one */
        blob_batch_put_head(&ss->out, rc == E_NOTFOUND ? BLOB_BATCH_ABSENT : BLOB_BATCH_ALONE);
    }
}

/* What does not shrink goes as it is: to unpack it would cost its reader more than a copy. */
static void pack(struct gleaning *ss)
{
    struct buf small = BUF_INIT(2 * BLOB_BATCH_ANSWER_MAX);
    size_t room = ZSTD_compressBound(ss->out.n), n;

    n = ZSTD_compress(buf_room(&small, room), room, ss->out.p, ss->out.n, PACK_LEVEL);
    CHECK(!ZSTD_isError(n));
    ss->packed = n < ss->out.n - ss->out.n / 8;
    if (ss->packed) {
        buf_grew(&small, n);
        buf_free(&ss->out);
        ss->out = small;
    } else {
        buf_free(&small);
    }
}

static void blob_batch_work(struct step *st)
{
    struct gleaning *ss = (struct gleaning *)st;
    struct store *s = st->request->serve_loop->deps->store;
    struct digest d;

    for (size_t at = 0; at < ss->digests.n && ss->out.n < BLOB_BATCH_BYTES; at += DIGEST_BYTES) {
        memcpy(d.b, ss->digests.p + at, DIGEST_BYTES);
        add_batch_blob(ss, s, &d);
    }
    if (ss->may_pack) {
        pack(ss);
    }
}

/* --- the answer --- */

struct blob_batch_body {
    struct body body;
    struct buf bytes;
    struct client_slots *slots;
    unsigned slot;
};

static void blob_batch_close(struct body *b)
{
    struct blob_batch_body *sb = CONTAINER_OF(b, struct blob_batch_body, body);

    client_slots_leave(sb->slots, &sb->slot);
    buf_free(&sb->bytes);
    free(sb);
}

static void blob_batch_done(struct step *st)
{
    static const struct body_ops ops = {.close = blob_batch_close};
    struct gleaning *ss = (struct gleaning *)st;
    struct request *c = st->request;
    struct http_reply *r = ARENA_NEW(exchange_arena(c->x), struct http_reply);
    struct blob_batch_body *sb = NEW(struct blob_batch_body);

    sb->bytes = ss->out;
    sb->slots = &c->serve_loop->serve->blob_batches;
    sb->body = (struct body){.ops = &ops, .end = sb->bytes.n, .fd = -1, .bytes = sb->bytes.p};
    ss->out = BUF_INIT(0);
    sb->slot = ss->slot;
    ss->slot = 0;
    r->status = 200;
    reply_add(r, SLICE("content-type"),
              ss->packed ? SLICE(BLOB_BATCH_BLOBS_ZSTD) : SLICE(BLOB_BATCH_BLOBS));
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    exchange_pace(c->x, c->request_log->pace);
    exchange_reply(c->x, r, &sb->body);
}

static void blob_batch_free(struct step *st)
{
    struct gleaning *ss = (struct gleaning *)st;

    client_slots_leave(&st->request->serve_loop->serve->blob_batches, &ss->slot);
    buf_free(&ss->last.holder);
    buf_free(&ss->one);
    buf_free(&ss->out);
}

/* --- what is asked for --- */

static void refuse_crowd(struct exchange *x)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 503;
    reply_add(r, SLICE("retry-after"), SLICE("1"));
    reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    exchange_reply(x, r,
                   body_of_bytes(SLICE("too many batches at the same time; try again later, or "
                                       "request file by file at /-/blob/<sha256>\n")));
}

static void refuse_asked(struct exchange *x, int status)
{
    refuse(x, status,
           "invalid body: it must be 1 to %d SHA-256 digests of 32 bytes, one after the other; see "
           "docs/protocols/sync.md\n",
           BLOB_BATCH_COUNT_MAX);
}

static void on_digests(struct request *c, int rc, struct slice digests)
{
    const struct serve_deps *deps = c->serve_loop->deps;
    struct gleaning *ss;
    unsigned slot;

    if (rc != 0 || digests.n == 0 || digests.n % DIGEST_BYTES != 0) {
        refuse_asked(c->x, rc != 0 ? 413 : 400);
        return;
    }
    slot = client_slots_take(&c->serve_loop->serve->blob_batches, c->who.client);
    if (slot == 0) {
        refuse_crowd(c->x);
        return;
    }
    gate_owe(deps->gate, &c->who, c->req.peer, c->serve_loop->loop->now_ms,
             (unsigned)(digests.n / DIGEST_BYTES / BLOB_BATCH_COUNT_AS_ONE));
    ss = NEW(struct gleaning);
    ss->set = c->set;
    ss->who = &c->who;
    ss->digests = digests;
    ss->now_unix_s = c->serve_loop->loop->unix_s;
    ss->out = BUF_INIT(BLOB_BATCH_ANSWER_MAX);
    ss->one = BUF_INIT(BLOB_BATCH_BLOB_MAX);
    ss->slot = slot;
    ss->may_pack = slice_eqs(slice_trim(http_req_field(&c->req, "accept")), BLOB_BATCH_BLOBS_ZSTD);
    ss->step.work = blob_batch_work;
    ss->step.done = blob_batch_done;
    ss->step.free = blob_batch_free;
    request_step(c, deps->readers, &ss->step);
}

void blob_batch_answer(struct serve_loop *d, struct exchange *x, struct request_log *v)
{
    const struct http_req *req = exchange_req(x);

    if (req->method != METHOD_POST) {
        refuse_method(x, SLICE("POST"),
                      SLICE("this path accepts POST only; see docs/protocols/sync.md\n"));
    } else if (d->set->count == 0) {
        refuse(x, 404, "no repos are configured here, so there are no files\n");
    } else {
        struct request *c = request_new(d, x, v, d->set->repo[0], slice_first(req->path, 0));
        if (c != NULL) {
            request_body(c, (size_t)BLOB_BATCH_COUNT_MAX * DIGEST_BYTES, on_digests);
        }
    }
}
