#include "server/request/tree.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "server/cluster/cluster.h"
#include "server/gate/gate.h"
#include "server/http/status.h"
#include "server/page/html.h"
#include "server/request/refusal.h"
#include "server/request/rendering.h"
#include "server/request/reply.h"
#include "server/request/response.h"

enum { LISTING_BYTES = 256 << 20, NEXT_BYTES = 8192 };

/* --- files --- */

struct blob_step {
    struct step step;
    struct digest digest;
    struct blob *blob;
    struct arena arena; /* of the lookup */
    struct lookup lookup;
    bool elsewhere; /* a large one, which is sent while it arrives */
    bool brings;    /* it may wait for the cluster's bucket */
    bool must_bring;
};

static void blob_work(struct step *s)
{
    struct blob_step *b = (struct blob_step *)s;
    const struct serve_deps *deps = s->request->serve_loop->deps;
    bool here = true;

    if (deps->cluster != NULL) {
        s->rc = blob_is_here(deps->store, &b->digest, &here, &s->why);
    }
    if (s->rc == 0 && !here) {
        b->elsewhere = cluster_lookup(deps->cluster, &b->digest, &b->arena, &b->lookup);
        b->must_bring = !b->elsewhere && !b->brings;
    }
    if (s->rc == 0 && !b->elsewhere && !b->must_bring) {
        s->rc = blob_open(deps->store, &b->digest, &b->blob, &s->why);
    }
}

/* Whoever comes next by this path and query may be answered so. */
static bool is_reused(const struct plan *p)
{
    return p->reuse != REUSE_NONE && p->reuse != REUSE_ALONE;
}

/* Never 404: its tree names it, and a damaged blob has lost its row. That must not look like "never
 * was". */
static void refuse_file(struct request *c, int rc, const char *why)
{
    int status = rc == E_NOTFOUND || rc == E_CORRUPT ? 500 : status_of_error(rc, STATUS_REQUEST);

    log_error("serve.blob_missing", "repo=%s path=" SLICE_FMT " why=\"%s\"", c->repo->name,
              SLICE_ARG(c->path), why);
    if (status == 500) {
        refuse(c->x, 500, "%s: the bytes of this file are damaged or missing; publish it again\n",
               rc == E_NOTFOUND ? err_plain(E_CORRUPT) : err_plain(rc));
    } else {
        refuse(c->x, status, "the bytes of this file are not here now: %s; try again\n", why);
    }
}

static void on_file_from_elsewhere(struct request *c, struct answer *a)
{
    c->request_log->cached = true;
    c->request_log->state = a->state;
    if (a->status != 200) {
        refuse_file(c, a->status == 404 ? E_CORRUPT : E_AGAIN, a->why.text);
        answer_release(&a);
        return;
    }
    request_send(c, response_of_object(c, request_cached_name(c), c->plan.entry.path, a, NULL),
                 a->blob != NULL && is_reused(&c->plan));
}

static void ask_elsewhere(struct request *c, struct blob_step *b)
{
    struct lookup *w = ARENA_NEW(&c->arena, struct lookup);

    *w = b->lookup;
    w->key = arena_copy(&c->arena, w->key);
    w->url = arena_copy(&c->arena, w->url);
    w->head_only = c->req.method == METHOD_HEAD;
    request_hint(&c->req, c->plan.framing, w);
    request_lookup(c, w, on_file_from_elsewhere);
}

static void open_file(struct request *c, const struct digest *d, bool brings);

static void blob_done(struct step *s)
{
    struct blob_step *b = (struct blob_step *)s;
    struct request *c = s->request;

    if (s->rc != 0) {
        refuse_file(c, s->rc, s->why.text);
        return;
    }
    if (b->must_bring) {
        open_file(c, &b->digest, true);
        return;
    }
    if (b->elsewhere) {
        ask_elsewhere(c, b);
        return;
    }
    request_send(c,
                 response_of_object(c, request_cached_name(c), c->plan.entry.path, NULL, b->blob),
                 is_reused(&c->plan));
    b->blob = NULL;
}

static void blob_free(struct step *s)
{
    struct blob_step *b = (struct blob_step *)s;

    blob_release(&b->blob);
    arena_fini(&b->arena);
}

/* brings: on threads of their own, so that files that are here do not wait for others. */
static void open_file(struct request *c, const struct digest *d, bool brings)
{
    const struct serve_deps *deps = c->serve_loop->deps;
    struct blob_step *b = NEW(struct blob_step);

    b->digest = *d;
    b->brings = brings;
    b->step.work = blob_work;
    b->step.done = blob_done;
    b->step.free = blob_free;
    request_step(c, brings ? deps->content : deps->readers, &b->step);
}

void tree_send_file(struct request *c)
{
    open_file(c, &c->plan.entry.digest, false);
}

/* --- folders --- */

struct listing_work { /* what the maker has is the call's */
    struct store *store;
    const struct repo *repo;
    const struct plan *plan;
    const struct principal *who; /* sees what the tokens' scopes give; NULL: all */
};

/* The first who asked for it: others who get the same have the same token, or the repo is open to
 * all. */
static bool sees(const void *arg, struct slice subject)
{
    return gate_allows(arg, "read", subject);
}

static int make_tree_page(void *arg, struct buf *out, struct rendering *about, struct err *e)
{
    struct listing_work *l = arg;
    struct listing_sight sight = {sees, l->who};
    struct listing_out to = {.body = out, .next = BUF_INIT(NEXT_BYTES)};
    int rc = l->repo->ops->list(l->repo, l->plan, l->store, l->who != NULL ? &sight : NULL, &to, e);

    about->content_type = to.content_type;
    about->next = to.next.n != 0 ? mem_strdup(buf_cstr(&to.next)) : NULL;
    buf_free(&to.next);
    return rc;
}

static void refuse_listing(struct request *c, int rc, const struct err *why)
{
    struct http_reply *r = ARENA_NEW(&c->arena, struct http_reply);

    r->status = status_of_error(rc, STATUS_REQUEST);
    reply_failure(c, r, arena_fmt(&c->arena, "%s: %s", err_plain(rc), why->text));
}

/* Links of a page are relative to the folder's path with its '/'. Temporary: a file may take the
 * name later. */
static void send_to_page(struct request *c)
{
    struct http_reply *r = ARENA_NEW(&c->arena, struct http_reply);

    r->status = 307;
    reply_add(r, SLICE("location"), c->plan.location);
    reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    reply_add(r, SLICE("cache-control"), c->plan.cache_control);
    reply_add(r, SLICE("vary"), SLICE("accept"));
    exchange_reply(c->x, r, body_of_bytes(SLICE("this is a folder; see the Location field\n")));
}

static void on_listed(struct request *c, struct rendering *r, int rc, const struct err *why)
{
    struct buf policy = BUF_INIT(1024);
    struct cached_response *h;

    if (rc != 0) {
        refuse_listing(c, rc, why);
        return;
    }
    if (c->plan.html && c->plan.location.p != NULL) {
        send_to_page(c);
        return;
    }
    h = response_of_rendering(c, c->plan.entry.path, r);
    h->fresh_until_unix_s = UINT64_MAX; /* until the repo's generation moves */
    if (c->plan.html) {
        html_policy(&policy, HTML_FOLDER);
        h->reply.policy = arena_copy(&h->arena, buf_slice(&policy));
        buf_free(&policy);
    }
    reply_add(&h->reply, SLICE("vary"), SLICE("accept"));
    if (r->next != NULL) {
        reply_addf(&h->reply, &h->arena, "link", "<%s>; rel=\"next\"", r->next);
    }
    request_send(c, h, is_reused(&c->plan));
}

static struct slice key_of_tree_request(struct request *c)
{
    const struct plan *p = &c->plan;
    char root[DIGEST_HEX + 1];
    char asked[DIGEST_HEX + 1];
    struct digest of_text;

    if (p->reuse == REUSE_ALONE) {
        return SLICE_NONE;
    }
    digest_format(&p->snap.root, root);
    digest_of(p->text.p != NULL ? p->text : SLICE(""), &of_text);
    digest_format(&of_text, asked);
    return arena_fmt(&c->arena,
                     "folder %s " SLICE_FMT " %d %d %d %d %s %s %" PRIu64 " " SLICE_FMT
                     " / " SLICE_FMT,
                     p->sift ? token_id(c->who.token) : "", SLICE_ARG(p->location), p->form,
                     p->html, p->recursive, p->expand, asked, root, p->snap.seq, SLICE_ARG(p->name),
                     SLICE_ARG(p->entry.path));
}

void tree_send_listing(struct request *c)
{
    static const struct rendering_work work = {make_tree_page, free};
    struct listing_work *l = NEW(struct listing_work);

    l->store = c->serve_loop->deps->store;
    l->repo = c->repo;
    l->plan = &c->plan;
    l->who = c->plan.sift ? &c->who : NULL;
    rendering_ask(c, key_of_tree_request(c), LISTING_BYTES, &work, l, on_listed);
}
