#include "server/serve/sheaf.h"

#include <stdlib.h>

#include <zstd.h>

#include "common/codec/sheaf.h"
#include "server/serve/refusal.h"
#include "server/serve/right.h"
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
    unsigned seat; /* of serve.sheaves; 0: a body has taken it over */
};

/* Its length and bytes, or why they are not here. */
static void add_blob(struct gleaning *ss, struct store *s, const struct digest *d)
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
        sheaf_put_head(&ss->out, (uint32_t)ss->one.n);
        buf_adds(&ss->out, buf_slice(&ss->one));
        CHECK(ss->out.rc == 0); /* SHEAF_ANSWER_MAX */
    } else {                    /* of trouble it is told when it asks for that one */
        sheaf_put_head(&ss->out, rc == E_NOTFOUND ? SHEAF_ABSENT : SHEAF_ALONE);
    }
}

/* What does not shrink goes as it is: to unpack it would cost its reader more than a copy. */
static void pack(struct gleaning *ss)
{
    struct buf small = BUF_INIT(2 * SHEAF_ANSWER_MAX);
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

static void sheaf_work(struct step *st)
{
    struct gleaning *ss = (struct gleaning *)st;
    struct store *s = st->call->desk->parts->store;
    struct digest d;

    for (size_t at = 0; at < ss->digests.n && ss->out.n < SHEAF_BYTES; at += DIGEST_BYTES) {
        memcpy(d.b, ss->digests.p + at, DIGEST_BYTES);
        add_blob(ss, s, &d);
    }
    if (ss->may_pack) {
        pack(ss);
    }
}

/* --- the answer --- */

struct sheaf_body {
    struct body body;
    struct buf bytes;
    struct seats *seats;
    unsigned seat;
};

static void sheaf_close(struct body *b)
{
    struct sheaf_body *sb = CONTAINER_OF(b, struct sheaf_body, body);

    seats_leave(sb->seats, &sb->seat);
    buf_free(&sb->bytes);
    free(sb);
}

static void sheaf_done(struct step *st)
{
    static const struct body_ops ops = {.close = sheaf_close};
    struct gleaning *ss = (struct gleaning *)st;
    struct call *c = st->call;
    struct http_reply *r = ARENA_NEW(exchange_arena(c->x), struct http_reply);
    struct sheaf_body *sb = NEW(struct sheaf_body);

    sb->bytes = ss->out;
    sb->seats = &c->desk->serve->sheaves;
    sb->body = (struct body){.ops = &ops, .end = sb->bytes.n, .fd = -1, .bytes = sb->bytes.p};
    ss->out = BUF_INIT(0);
    sb->seat = ss->seat;
    ss->seat = 0;
    r->status = 200;
    reply_add(r, SLICE("content-type"), ss->packed ? SLICE(SHEAF_BLOBS_ZSTD) : SLICE(SHEAF_BLOBS));
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    exchange_pace(c->x, c->visit->pace);
    exchange_reply(c->x, r, &sb->body);
}

static void sheaf_free(struct step *st)
{
    struct gleaning *ss = (struct gleaning *)st;

    seats_leave(&st->call->desk->serve->sheaves, &ss->seat);
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
                   body_of_bytes(SLICE("busy with other sheaves; come again, or ask file by file "
                                       "at /-/blob/<sha256>\n")));
}

static void refuse_asked(struct exchange *x, int status)
{
    refuse(x, status,
           "not what this path takes: 1 to %d SHA-256, 32 bytes each, one behind the other; see "
           "docs/protocols/sync.md\n",
           SHEAF_COUNT_MAX);
}

static void on_digests(struct call *c, int rc, struct slice digests)
{
    const struct serve_parts *parts = c->desk->parts;
    struct gleaning *ss;
    unsigned seat;

    if (rc != 0 || digests.n == 0 || digests.n % DIGEST_BYTES != 0) {
        refuse_asked(c->x, rc != 0 ? 413 : 400);
        return;
    }
    seat = seats_take(&c->desk->serve->sheaves, c->who.client);
    if (seat == 0) {
        refuse_crowd(c->x);
        return;
    }
    gate_owe(parts->gate, &c->who, c->req.peer, c->desk->loop->now_ms,
             (unsigned)(digests.n / DIGEST_BYTES / SHEAF_COUNT_AS_ONE));
    ss = NEW(struct gleaning);
    ss->set = c->set;
    ss->who = &c->who;
    ss->digests = digests;
    ss->now_unix_s = c->desk->loop->unix_s;
    ss->out = BUF_INIT(SHEAF_ANSWER_MAX);
    ss->one = BUF_INIT(SHEAF_BLOB_MAX);
    ss->seat = seat;
    ss->may_pack = slice_eqs(slice_trim(http_req_field(&c->req, "accept")), SHEAF_BLOBS_ZSTD);
    ss->step.work = sheaf_work;
    ss->step.done = sheaf_done;
    ss->step.free = sheaf_free;
    call_step(c, parts->readers, &ss->step);
}

void sheaf_answer(struct desk *d, struct exchange *x, struct visit *v)
{
    const struct http_req *req = exchange_req(x);

    if (req->method != METHOD_POST) {
        refuse_method(x, SLICE("POST"), SLICE("this path takes POST; docs/protocols/sync.md\n"));
    } else if (d->set->count == 0) {
        refuse(x, 404, "no repo here, so no files\n");
    } else {
        struct call *c = call_new(d, x, v, d->set->repo[0], slice_first(req->path, 0));
        if (c != NULL) {
            call_body(c, (size_t)SHEAF_COUNT_MAX * DIGEST_BYTES, on_digests);
        }
    }
}
