#include "server/request/neighbor.h"

#include <inttypes.h>

#include "common/codec/httpdate.h"
#include "server/cluster/cluster.h"
#include "server/request/refusal.h"
#include "server/request/reply.h"
#include "server/request/response.h"

/* A status of ours that says nothing of the origin: the mirror asks elsewhere. */
static bool is_the_origins(const struct answer *a)
{
    return a->status != 507 && a->why.code != E_CANCELLED && a->why.code != E_NOSPACE &&
           !(a->status == 504 && a->why.code == E_NOTFOUND);
}

static void add_opt(struct http_reply *r, struct arena *a, const char *name, struct slice value)
{
    if (value.p != NULL) {
        reply_add(r, slice_str(name), arena_copy(a, value));
    }
}

static void add_since(struct request *c, struct http_reply *r, struct arena *ar,
                      const struct answer *a)
{
    uint64_t now = c->serve_loop->loop->unix_s;

    reply_add(r, SLICE(NEIGHBOR_SINCE_FIELD),
              arena_u64(ar, now - min_u64(now, a->validated_unix_s)));
    if (a->age_s != 0) {
        reply_add(r, SLICE("age"), arena_u64(ar, a->age_s));
    }
}

/* What the origin said when it gave or confirmed the object. */
static void add_origins_fields(struct http_reply *r, struct arena *ar, const struct answer *a)
{
    uint64_t now = a->validated_unix_s, said;
    char date[40];

    httpdate_format(now, date);
    r->date = arena_copy(ar, slice_str(date));
    for (size_t i = 0; i < a->nfields; i++) {
        if (!slice_eqs(a->fields[i].name, "date")) {
            reply_add(r, arena_copy(ar, a->fields[i].name), arena_copy(ar, a->fields[i].value));
        } else if (a->fields[i].value.n <= ORIGIN_DATE_MAX &&
                   httpdate_parse(a->fields[i].value, now, &said)) {
            r->date = arena_copy(ar, a->fields[i].value);
        }
    }
}

static struct cached_response *response_for_neighbor(struct request *c, struct answer *a)
{
    struct cached_response *h = cached_response_new(c->set, c->repo, SLICE(""), SLICE(""));
    char date[40];

    h->reply.status = 200;
    h->answer = a;
    h->valid.total_bytes = a->total_bytes;
    h->valid.last_modified_s = a->last_modified_s;
    if (a->etag_weak.p != NULL) {
        h->valid.etag_weak = arena_copy(&h->arena, a->etag_weak);
    } else if (a->origin_etag.p != NULL) {
        h->valid.etag = arena_copy(&h->arena, a->origin_etag);
    }
    add_opt(&h->reply, &h->arena, "content-type", a->content_type);
    add_opt(&h->reply, &h->arena, "etag", a->origin_etag);
    if (a->last_modified_s != 0) {
        httpdate_format(a->last_modified_s, date);
        add_opt(&h->reply, &h->arena, "last-modified", slice_str(date));
    }
    if (a->digest_known) {
        char repr[64];
        digest_repr(&a->digest, repr);
        add_opt(&h->reply, &h->arena, "repr-digest", slice_str(repr));
    }
    reply_add(&h->reply, SLICE("accept-ranges"), SLICE("bytes"));
    add_opt(&h->reply, &h->arena, NEIGHBOR_ETAG_FIELD, a->etag);
    add_opt(&h->reply, &h->arena, NEIGHBOR_URL_FIELD, a->url);
    if (a->state == CACHE_STALE) {
        reply_add(&h->reply, SLICE(NEIGHBOR_WHY_FIELD),
                  SLICE(NEIGHBOR_WHY_NETWORK " the origin is in trouble"));
    }
    add_since(c, &h->reply, &h->arena, a);
    add_origins_fields(&h->reply, &h->arena, a);
    return h;
}

/* What is no object. */
static void reply_no(struct request *c, const struct answer *a)
{
    struct arena *ar = &c->arena;
    struct http_reply *r = ARENA_NEW(ar, struct http_reply);

    r->status = a->status;
    if (is_the_origins(a)) {
        add_since(c, r, ar, a);
        add_opt(r, ar, NEIGHBOR_URL_FIELD, a->url);
        if (a->why.code != 0) {
            reply_addf(r, ar, NEIGHBOR_WHY_FIELD, "%s %s",
                       a->why.code == E_TIMEOUT ? NEIGHBOR_WHY_TIMEOUT
                       : a->why.code == E_BUSY  ? NEIGHBOR_WHY_BUSY
                                                : NEIGHBOR_WHY_NETWORK,
                       a->why.text);
        }
        add_opt(r, ar, "content-type", a->content_type);
        add_origins_fields(r, ar, a);
    }
    if (a->retry_after_s != 0 && a->text.p == NULL) { /* else the origin's own is a field */
        reply_addf(r, ar, "retry-after", "%" PRIu32, a->retry_after_s);
    }
    exchange_reply(c->x, r, a->text.n != 0 ? body_of_bytes(a->text) : NULL);
}

static void on_answer(struct request *c, struct answer *a)
{
    struct cached_response *h;

    c->request_log->cached = true;
    c->request_log->state = a->state;
    if (a->status != 200) {
        reply_no(c, a);
        answer_release(&a);
        return;
    }
    h = response_for_neighbor(c, a);
    c->request_log->cached_response = h;
    reply_send(c->x, c->request_log, h);
}

/* The part that the other mirror asks for. */
static void look_up(struct request *c)
{
    c->plan.lookup.head_only = c->req.method == METHOD_HEAD;
    request_hint(&c->req, NULL, &c->plan.lookup);
    request_lookup(c, &c->plan.lookup, on_answer);
}

/* --- large files of trees, whose origin is the cluster's bucket --- */

struct content_step {
    struct step step;
    struct digest digest;
    enum lookup_asker asker;
    struct arena arena; /* of the lookup */
    struct lookup lookup;
    bool in_bucket; /* and not here */
    struct blob *blob;
};

static void content_work(struct step *s)
{
    struct content_step *p = (struct content_step *)s;
    const struct serve_deps *deps = s->request->serve_loop->deps;
    bool here = false;

    s->rc = blob_is_here(deps->store, &p->digest, &here, &s->why);
    if (s->rc == 0 && here) {
        s->rc = blob_open(deps->store, &p->digest, &p->blob, &s->why);
    } else if (s->rc == 0) {
        p->in_bucket = cluster_lookup(deps->cluster, &p->digest, &p->arena, &p->lookup);
        s->rc = p->in_bucket ? 0 : E_NOTFOUND;
    }
}

static void content_done(struct step *s)
{
    struct content_step *p = (struct content_step *)s;
    struct request *c = s->request;
    struct cached_response *h;

    if (s->rc != 0) {
        refuse(c->x, 404, "this mirror has no such file\n");
    } else if (p->in_bucket) {
        lookup_copy(&c->arena, &p->lookup, &c->plan.lookup);
        c->plan.lookup.asker = p->asker;
        look_up(c);
    } else {
        h = cached_response_new(c->set, c->repo, SLICE(""), SLICE(""));
        h->reply.status = 200;
        h->valid.total_bytes = blob_size_bytes(p->blob);
        h->blob = p->blob;
        p->blob = NULL;
        reply_add(&h->reply, SLICE("accept-ranges"), SLICE("bytes"));
        reply_add(&h->reply, SLICE(NEIGHBOR_SINCE_FIELD), SLICE("0"));
        c->request_log->cached_response = h;
        reply_send(c->x, c->request_log, h);
    }
}

static void content_free(struct step *s)
{
    struct content_step *p = (struct content_step *)s;

    blob_release(&p->blob);
    arena_fini(&p->arena);
}

static void answer_content(struct request *c, const struct lookup *w)
{
    struct content_step *p = NEW(struct content_step);

    p->digest = w->digest;
    p->asker = w->asker;
    p->step = (struct step){.work = content_work, .done = content_done, .free = content_free};
    request_step(c, c->serve_loop->deps->readers, &p->step);
}

/* --- which object --- */

/* NULL: this mirror has no such repository, or another one. */
static struct repo *repo_of(const struct repo_set *set, struct neighbor_asked *w)
{
    struct repo *r = repo_set_find(set, w->lookup.repo);

    if (r == NULL || r->origin == NULL || !origin_owns(r->origin, w->origin)) {
        return NULL;
    }
    w->lookup.origin = r->origin;
    if (w->reader.p != NULL) {
        w->lookup.reader = r->ops->reader != NULL ? r->ops->reader(w->reader) : NULL;
    }
    return w->reader.p != NULL && w->lookup.reader == NULL ? NULL : r;
}

void neighbor_answer(struct serve_loop *d, struct exchange *x, struct request_log *v)
{
    const struct http_req *req = exchange_req(x);
    struct slice text = http_req_field(req, NEIGHBOR_LOOKUP_FIELD);
    struct cluster *cluster = d->deps->cluster;
    struct owners *owners = cluster != NULL ? cluster_owners(cluster) : NULL;
    struct neighbor_asked w;
    struct repo *r;
    struct request *c;

    if (owners == NULL || (req->method != METHOD_GET && req->method != METHOD_HEAD)) {
        refuse(x, 404, "not found: only the mirrors of a cluster ask for this\n");
    } else if (!owners_signed(owners, text, http_req_field(req, NEIGHBOR_SIGNATURE_FIELD))) {
        refuse(x, 403, "the signature is not that of a mirror of this cluster\n");
    } else if (!neighbor_lookup(text, exchange_arena(x), &w)) {
        refuse(x, 400, "the lookup cannot be decoded: the mirrors have different versions\n");
    } else if (slice_eqs(w.lookup.repo, CONTENT_REPO) && w.lookup.digest_known &&
               d->set->count != 0) {
        c = request_new(d, x, v, d->set->repo[0], SLICE(""));
        if (c != NULL) {
            answer_content(c, &w.lookup);
        }
    } else if ((r = repo_of(d->set, &w)) == NULL) {
        refuse(x, 404, "this mirror has no such repository with that origin\n");
    } else if ((c = request_new(d, x, v, r, SLICE(""))) != NULL) {
        lookup_copy(&c->arena, &w.lookup, &c->plan.lookup);
        c->plan.kind = PLAN_LOOKUP;
        v->repo = r;
        look_up(c);
    }
}
