#include "server/serve/tree.h"

#include "common/base/log.h"
#include "server/repo/hosted/listing.h"
#include "server/serve/opening.h"
#include "server/serve/refusal.h"
#include "server/serve/reply.h"

/* --- files --- */

struct blob_step {
    struct step step;
    struct digest digest;
    struct blob *blob;
};

static void blob_work(struct step *s)
{
    struct blob_step *b = (struct blob_step *)s;
    s->rc = blob_open(s->call->desk->daemon->store, &b->digest, &b->blob, &s->why);
}

static void blob_done(struct step *s)
{
    struct blob_step *b = (struct blob_step *)s;
    struct call *c = s->call;

    if (s->rc != 0) {
        log_error("serve.blob_missing", "repo=%s path=" SLICE_FMT " why=\"%s\"", c->repo->name,
                  SLICE_ARG(c->path), s->why.text);
        /* 404 only when it went since its tree was read: damage must not look like "never was". */
        refuse(c->x, s->rc == E_NOTFOUND ? 404 : 500, "%s: %s\n", err_plain(s->rc), s->why.text);
        return;
    }
    opening_send(
        c, reply_resolve(c, hot_name(&c->req, c->repo, c->path), c->plan.entry.path, NULL, b->blob),
        true);
    b->blob = NULL;
}

static void blob_free(struct step *s)
{
    blob_release(&((struct blob_step *)s)->blob);
}

void tree_send_file(struct call *c)
{
    struct blob_step *b = NEW(struct blob_step);

    b->digest = c->plan.entry.digest;
    b->step.work = blob_work;
    b->step.done = blob_done;
    b->step.free = blob_free;
    call_step(c, c->desk->daemon->readers, &b->step);
}

/* --- folders --- */

struct list_step {
    struct step step;
    struct buf body;
    struct slice content_type;
};

static void list_work(struct step *s)
{
    struct list_step *l = (struct list_step *)s;
    s->rc = hosted_listing(s->call->desk->daemon->store, s->call->repo, &s->call->plan, &l->body,
                           &l->content_type, &s->why);
}

static void list_done(struct step *s)
{
    struct list_step *l = (struct list_step *)s;
    struct call *c = s->call;
    struct hot *h;

    if (s->rc != 0) {
        refuse(c->x, s->rc == E_NOTFOUND ? 404 : 500, "%s: %s\n", err_plain(s->rc), s->why.text);
        return;
    }
    h = reply_resolve(c, SLICE(""), SLICE(""), NULL, NULL);
    h->bytes = l->body;
    l->body = BUF_INIT(0);
    h->valid.total_bytes = h->bytes.n;
    reply_add(&h->reply, SLICE("content-type"), l->content_type);
    reply_add(&h->reply, SLICE("vary"), SLICE("accept"));
    opening_send(c, h, false);
}

static void list_free(struct step *s)
{
    buf_free(&((struct list_step *)s)->body);
}

void tree_send_listing(struct call *c)
{
    struct list_step *l = NEW(struct list_step);

    l->body = BUF_INIT(256 << 20);
    l->step.work = list_work;
    l->step.done = list_done;
    l->step.free = list_free;
    call_step(c, c->desk->daemon->readers, &l->step);
}
