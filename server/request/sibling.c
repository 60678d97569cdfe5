#include "server/request/sibling.h"

#include <stdlib.h>

#include "common/codec/form.h"
#include "server/cluster/relay_fetch.h"
#include "server/request/refusal.h"
#include "server/request/reply.h"
#include "server/request/response.h"
#include "server/upload/upload_grant.h"

struct sibling_step {
    struct step step;
    struct put put;       /* repo and name */
    struct digest digest; /* of an object */
    struct slice key;     /* of a row */
    struct blob *blob;
    struct buf row;
};

static struct slice find_value(const struct request *c, const char *name, size_t max,
                               struct arena *a)
{
    struct slice query = c->req.query;

    return form_find(&query, name, max, a);
}

static struct request *start(struct serve_loop *d, struct exchange *x, struct request_log *v)
{
    if (!v->relayed || d->set->count == 0) {
        refuse(x, 404, "not found: only the mirrors of a cluster ask for this\n");
        return NULL;
    }
    return request_new(d, x, v, d->set->repo[0], slice_first(exchange_req(x)->path, 0));
}

static void sibling_free(struct step *s)
{
    struct sibling_step *b = (struct sibling_step *)s;

    blob_release(&b->blob);
    buf_free(&b->row);
}

/* --- objects --- */

static void uploaded_work(struct step *s)
{
    struct sibling_step *b = (struct sibling_step *)s;
    struct store *store = s->request->serve_loop->deps->store;
    bool has = false;

    s->rc = upload_grant_tree_has(store, &b->put, &b->digest, &has, NULL, &s->why);
    if (s->rc == 0) {
        s->rc = has ? blob_open(store, &b->digest, &b->blob, &s->why) : E_NOTFOUND;
    }
}

static void uploaded_done(struct step *s)
{
    struct sibling_step *b = (struct sibling_step *)s;
    struct request *c = s->request;
    struct cached_response *h;

    if (s->rc != 0) {
        refuse(c->x, s->rc == E_NOTFOUND ? 404 : 503, "no upload here has brought that object\n");
        return;
    }
    c->plan = (struct plan){.kind = PLAN_BLOB, .cache_control = SLICE("no-store")};
    h = response_of_object(c, SLICE(""), SLICE(""), NULL, b->blob);
    b->blob = NULL;
    c->request_log->cached_response = h;
    reply_send(c->x, c->request_log, h);
}

void sibling_answer_uploaded(struct serve_loop *d, struct exchange *x, struct request_log *v)
{
    struct request *c = start(d, x, v);
    struct sibling_step *b;

    if (c == NULL) {
        return;
    }
    b = NEW(struct sibling_step);
    b->put.repo = find_value(c, "repo", RELAY_NAME_MAX, &c->arena);
    b->put.name = find_value(c, "tree", RELAY_NAME_MAX, &c->arena);
    if (b->put.repo.n == 0 || b->put.name.n == 0 ||
        !digest_parse(find_value(c, "sha256", DIGEST_HEX, &c->arena), &b->digest)) {
        free(b);
        refuse(x, 400, "repo, tree and sha256 are needed\n");
        return;
    }
    b->step.work = uploaded_work;
    b->step.done = uploaded_done;
    b->step.free = sibling_free;
    request_step(c, d->deps->readers, &b->step);
}

/* --- rows --- */

static void row_work(struct step *s)
{
    struct sibling_step *b = (struct sibling_step *)s;

    s->rc = store_get(s->request->serve_loop->deps->store, TABLE_ORIGIN, b->key, &b->row, &s->why);
}

static void row_done(struct step *s)
{
    struct sibling_step *b = (struct sibling_step *)s;
    struct exchange *x = s->request->x;
    struct http_reply *r;

    if (s->rc != 0) {
        refuse(x, s->rc == E_NOTFOUND ? 404 : 503, "this mirror does not have that row\n");
        return;
    }
    r = ARENA_NEW(exchange_arena(x), struct http_reply);
    r->status = 200;
    reply_add(r, SLICE("content-type"), SLICE("application/octet-stream"));
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    exchange_reply(x, r, body_of_bytes(buf_slice(&b->row)));
}

void sibling_answer_row(struct serve_loop *d, struct exchange *x, struct request_log *v)
{
    struct request *c = start(d, x, v);
    struct sibling_step *b;

    if (c == NULL) {
        return;
    }
    b = NEW(struct sibling_step);
    b->key = find_value(c, "key", RELAY_KEY_MAX, &c->arena);
    b->row = BUF_INIT(RELAY_ROW_BYTES);
    b->step.work = row_work;
    b->step.done = row_done;
    b->step.free = sibling_free;
    request_step(c, d->deps->disk, &b->step);
}
