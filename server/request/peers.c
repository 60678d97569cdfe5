#include "server/request/peers.h"

#include <inttypes.h>

#include "server/request/refusal.h"
#include "server/request/right.h"
#include "server/store/blob.h"
#include "server/store/keep.h"
#include "server/store/row.h"

enum { ANSWER_BYTES = 8 << 10 };

/* --- on the pool --- */

struct announcing {
    struct step step;
    const struct repo_set *set;
    const struct principal *who;
    struct digest digest;
    struct slice body;           /* kept by the call */
    uint8_t from[ADDRESS_BYTES]; /* of who announces: no other address ever gets into a list */
    uint64_t now_ms, now_unix_s;
    struct swarm_answer answer;
    bool left;
};

/* Bytes may be held by a hundred thousand trees, and a name is for people. */
enum { HOLDERS_SEEN = 64 };

struct naming {
    unsigned seen;
    struct peers *peers;
    const struct repo_set *set;
    const struct digest *digest;
};

static int name_announced_key(void *arg, struct slice repo, char kind, struct slice key)
{
    struct naming *n = arg;
    const struct repo *r = repo_set_find(n->set, repo);

    if (r == NULL || (kind != 'o' && kind != 't') || slice_find(key, '\0') >= 0) {
        return ++n->seen == HOLDERS_SEEN;
    }
    peers_name(n->peers, n->digest, repo, key);
    /* One that is shown to anybody: there is no better name. */
    return r->anonymous_read || ++n->seen == HOLDERS_SEEN;
}

/* By its row: in a cluster its bytes may still be elsewhere, and are not brought for a word. */
static int size_of_blob(struct store *s, const struct digest *d, uint64_t *out, struct err *e)
{
    struct buf value = BUF_INIT(2 * BLOB_ROW_BYTES); /* a newer one may be longer */
    struct blob_row row = {0};
    int rc = store_get(s, TABLE_BLOB, slice_of(d->b, DIGEST_BYTES), &value, e);

    rc = rc != 0 ? rc : blob_row_decode(buf_slice(&value), &row, e);
    *out = row.size_bytes;
    buf_free(&value);
    return rc == 0 && *out == 0 ? E_NOTFOUND : rc; /* of nothing there are no chunks */
}

static int answer_announcement(struct announcing *a, const struct serve_deps *deps, struct err *e)
{
    struct node_announcement said;
    uint64_t size_bytes;
    bool began = false;
    int rc = size_of_blob(deps->store, &a->digest, &size_bytes, e);

    if (rc != 0) {
        return rc;
    }
    rc = announcement_read(a->body, &said, e);
    if (rc == 0) {
        rc = peers_announce(deps->peers, &a->digest, size_bytes, a->who->client, &said, a->from,
                            a->now_ms, &a->answer, &began, e);
    }
    a->left = said.leave;
    announcement_free(&said);
    if (rc == 0) {
        blob_touch(deps->store, &a->digest, a->now_unix_s); /* what is being pulled stays */
    }
    if (began) {
        struct naming n = {0, deps->peers, a->set, &a->digest};
        (void)!holder_each(deps->store, &a->digest, name_announced_key, &n,
                           NULL); /* without one it is a digest */
    }
    return rc;
}

static void announce_work(struct step *s)
{
    struct announcing *a = (struct announcing *)s;
    const struct serve_deps *deps = s->request->serve_loop->deps;

    s->rc = right_to_digest(deps->store, a->set, a->who, &a->digest, NULL, &s->why);
    s->rc = s->rc != 0 ? s->rc : answer_announcement(a, deps, &s->why);
}

/* --- the answer --- */

static void refuse_crowd(struct exchange *x, uint64_t again_s, const char *why)
{
    struct arena *a = exchange_arena(x);
    struct http_reply *r = ARENA_NEW(a, struct http_reply);

    r->status = 503;
    reply_addf(r, a, "retry-after", "%" PRIu64, again_s);
    reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    exchange_reply(x, r,
                   body_of_bytes(arena_fmt(a, "%s; fetch the file from this mirror only\n", why)));
}

static void refuse_announcement(struct request *c, int rc, const char *why)
{
    switch (rc) {
    case E_INVALID:
        refuse(c->x, 400, "%s; see docs/protocols/peers.md\n", why);
        return;
    case E_BUSY:
        refuse_crowd(c->x, max_u64(c->set->conf->peers.again_s, 1), why);
        return;
    case E_NOTFOUND:
        refuse(c->x, 404, "not found: the digest is not here, or you have no access to it\n");
        return;
    default:
        refuse(c->x, 500, "%s: %s\n", err_plain(rc), why);
        return;
    }
}

static void announce_done(struct step *s)
{
    struct announcing *a = (struct announcing *)s;
    struct exchange *x = s->request->x;
    struct http_reply *r;
    struct buf out = BUF_INIT(ANSWER_BYTES);

    if (s->rc != 0) {
        refuse_announcement(s->request, s->rc, s->why.text);
        return;
    }
    r = ARENA_NEW(exchange_arena(x), struct http_reply);
    r->status = 200;
    if (a->left) {
        buf_str(&out, "{}\n");
    } else {
        swarm_answer_write(&a->answer, &out);
    }
    CHECK(out.rc == 0);
    reply_add(r, SLICE("content-type"), SLICE("application/json"));
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    exchange_reply(x, r, body_of_bytes(arena_copy(exchange_arena(x), buf_slice(&out))));
    buf_free(&out);
}

/* --- what is asked for --- */

static void on_announcement_body(struct request *c, int rc, struct slice body)
{
    struct announcing *a;

    if (rc != 0) {
        refuse(c->x, 413, "too large: an announcement has at most %d KiB\n",
               ANNOUNCEMENT_BYTES >> 10);
        return;
    }
    a = NEW(struct announcing);
    a->set = c->set;
    a->who = &c->who;
    CHECK(digest_parse(slice_from(c->req.path, c->req.path.n - DIGEST_HEX), &a->digest));
    a->body = body;
    address_of(c->req.peer, a->from);
    a->now_ms = c->serve_loop->loop->now_ms;
    a->now_unix_s = c->serve_loop->loop->unix_s;
    a->step.work = announce_work;
    a->step.done = announce_done;
    request_step(c, c->serve_loop->deps->readers, &a->step);
}

void peers_answer(struct serve_loop *d, struct exchange *x, struct request_log *v, struct slice hex)
{
    const struct http_req *req = exchange_req(x);
    struct digest digest;

    if (d->set->count == 0 || !peers_on(d->deps->peers)) {
        refuse(x, 404,
               "not found: sharing between nodes is disabled, because this mirror has no peers "
               "section\n");
    } else if (!digest_parse(hex, &digest)) {
        refuse(x, 404, "not a SHA-256 in hex\n");
    } else if (req->method != METHOD_POST) {
        refuse_method(x, SLICE("POST"),
                      SLICE("this path accepts POST only; see docs/protocols/peers.md\n"));
    } else {
        struct request *c = request_new(d, x, v, d->set->repo[0], slice_first(req->path, 0));
        if (c != NULL) {
            request_body(c, ANNOUNCEMENT_BYTES, on_announcement_body);
        }
    }
}
