#include "server/serve/reply.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/codec/httpdate.h"
#include "server/store/xorb.h"
#include "server/serve/door.h"
#include "server/serve/rendering.h"
#include "server/serve/xorb_body.h"

const char *reply_cache_status(enum cache_state s)
{
    switch (s) {
    case CACHE_HIT:
        return "mirrord; hit";
    case CACHE_MISS:
        return "mirrord; fwd=uri-miss; stored";
    case CACHE_COLLAPSED:
        return "mirrord; fwd=uri-miss; collapsed";
    case CACHE_REVALIDATED:
        return "mirrord; hit; fwd=stale; fwd-status=304";
    case CACHE_REFRESHED:
        return "mirrord; fwd=stale; stored";
    case CACHE_STALE:
        return "mirrord; hit; fwd=stale; detail=origin-trouble";
    case CACHE_NEGATIVE:
        return "mirrord; hit; detail=negative";
    case CACHE_FAILED:
        return "mirrord; fwd=uri-miss; detail=origin-trouble";
    }
    return "mirrord";
}

/* --- the body of a resolved answer --- */

struct hot_body {
    struct body body;
    struct hot *hot;
};

static void hot_body_close(struct body *b)
{
    struct hot_body *hb = CONTAINER_OF(b, struct hot_body, body);
    hot_release(&hb->hot);
    free(hb);
}

/* To HEAD only the length matters: the answer may have come from the origin's own HEAD, without a byte. */
static struct body *plain_body(struct desk *d, struct hot *h, uint64_t first, uint64_t end,
                               bool head)
{
    static const struct body_ops ops = {.close = hot_body_close};
    struct hot_body *hb;

    if (h->answer != NULL && !head) {
        return answer_body(d->daemon->cache, h->answer, d->loop, first, end);
    }
    hb = NEW(struct hot_body);
    hb->body.ops = &ops;
    hb->body.off = first;
    hb->body.end = end;
    hb->body.fd = -1;
    if (h->rendering != NULL) {
        hb->body.fd = h->rendering->fd;
        hb->body.bytes = h->rendering->bytes;
    } else if (h->blob != NULL) {
        hb->body.fd = blob_fd(h->blob);
        hb->body.bytes = hb->body.fd == -1 ? blob_bytes(h->blob).p : NULL;
    } else {
        hb->body.bytes = h->bytes.p;
    }
    hb->hot = hot_hold(h);
    return &hb->body;
}

static struct body *body_of(struct desk *d, struct hot *h, uint64_t first, uint64_t end, bool head)
{
    struct body *plain;

    if (h->plain_bytes == 0 || head) {
        return plain_body(d, h, first, end, head);
    }
    plain = plain_body(d, h, xorb_plain(first), xorb_plain(end), false);
    return xorb_body_new(plain, h->plain_bytes, first, end);
}

/* --- fields of a 200 --- */

enum {
    FIELDS_MAX = REPLY_FIELDS - 14, /* the origin's go so far; the rest is for ours */
    TOLD_S = 300,
    DATE_BYTES = 40,
};

static void add(struct hot *h, const char *name, struct slice value)
{
    if (value.p != NULL) {
        reply_add(&h->reply, slice_str(name), arena_copy(&h->arena, value));
    }
}

static void add_digest(struct hot *h, const struct digest *d)
{
    char repr[64];
    char hex[DIGEST_HEX + 1];

    digest_repr(d, repr);
    add(h, "repr-digest", slice_str(repr));
    /* The chunk list helps only where there is more than one chunk to fetch (DESIGN 3.4). */
    if (h->valid.total_bytes != LENGTH_UNKNOWN && h->valid.total_bytes > CHUNK_BYTES &&
        (h->blob != NULL || (h->answer != NULL && h->answer->blob != NULL))) {
        digest_format(d, hex);
        reply_addf(&h->reply, &h->arena, "link", "</-/chunks/%s>; rel=\"describedby\"", hex);
    }
}

static bool about_freshness(struct slice name)
{
    return slice_eqs(name, "cache-control") || slice_eqs(name, "expires") ||
           slice_eqs(name, "pragma");
}

/* When the origin made it: our own Date beside its Expires would promise another time (RFC 9110 6.6.1). */
static void add_date(struct hot *h, struct slice date, uint64_t now_unix_s)
{
    uint64_t said;

    if (date.n <= DATE_BYTES && httpdate_parse(date, now_unix_s, &said)) {
        h->reply.date = arena_copy(&h->arena, date);
    }
}

/* Two words on one thing leave a cache to guess (RFC 9111 4.2.1): the origin's own go on where ours would only repeat them.
 * Elsewhere a rule, the class or the repo's access has decided, and ours stand alone. */
static bool origin_says(const struct call *c, const struct answer *a)
{
    bool said = false;

    for (size_t i = 0; a != NULL && i < a->nfields && !said; i++) {
        said = slice_eqs(a->fields[i].name, "cache-control") ||
               slice_eqs(a->fields[i].name, "expires");
    }
    return said && c->repo->anonymous_read && c->plan.kind == PLAN_WANT &&
           c->plan.cache_control.p == NULL && c->plan.want.class == WANT_MUTABLE &&
           c->plan.want.ttl_s == TTL_ORIGIN;
}

/* Up to `most` of the origin's fields: those about freshness, or the others. */
static void add_fields(struct hot *h, const struct answer *a, bool freshness, size_t most)
{
    for (size_t i = 0; i < a->nfields && h->reply.nfields < most; i++) {
        const struct http_field *f = &a->fields[i];
        if (about_freshness(f->name) == freshness && !slice_eqs(f->name, "date")) {
            reply_add(&h->reply, arena_copy(&h->arena, f->name), arena_copy(&h->arena, f->value));
        }
    }
}

static void add_cache_control(struct call *c, struct hot *h)
{
    /* "public" would let a cache behind us answer those who have no right (RFC 9111 3.5). */
    const char *who = c->repo->anonymous_read ? "public" : "private";

    if (origin_says(c, h->answer)) {
        add_fields(h, h->answer, true, h->reply.nfields + 4);
        return;
    }
    if (c->plan.cache_control.p != NULL) {
        add(h, "cache-control", c->plan.cache_control);
    } else if (c->plan.kind == PLAN_WANT && c->plan.want.class == WANT_IMMUTABLE) {
        reply_addf(&h->reply, &h->arena, "cache-control", "%s, max-age=31536000, immutable", who);
    } else if (h->answer != NULL && h->fresh_until_unix_s > h->stored_unix_s &&
               h->fresh_until_unix_s != UINT64_MAX) {
        reply_addf(&h->reply, &h->arena, "cache-control", "%s, max-age=%" PRIu64, who,
                   h->fresh_until_unix_s - h->stored_unix_s);
    } else {
        add(h, "cache-control",
            c->repo->anonymous_read ? SLICE("no-cache") : SLICE("private, no-cache"));
    }
}

static void add_answer(struct call *c, struct hot *h, const struct answer *a)
{
    bool own = c->plan.own_fields;
    char date[40];
    struct slice etag = c->plan.etag.p != NULL ? c->plan.etag : a->etag;
    char hex[DIGEST_HEX + 1];

    if (c->plan.whole && c->plan.etag.p == NULL) { /* as registries write it */
        digest_format(&c->plan.want.digest, hex);
        etag = arena_fmt(&h->arena, "\"sha256:%s\"", hex);
    }
    h->valid.etag = arena_copy(&h->arena, etag);
    h->valid.etag.p = etag.p != NULL ? h->valid.etag.p : NULL;
    if (a->etag_alias.p != NULL) {
        h->valid.etag_alias = arena_copy(&h->arena, a->etag_alias);
    }
    h->valid.last_modified_s = own ? 0 : a->last_modified_s;
    h->valid.total_bytes = a->total_bytes;
    h->stored_unix_s = a->stored_unix_s;
    h->fresh_until_unix_s =
        c->plan.want.class == WANT_IMMUTABLE ? UINT64_MAX : a->fresh_until_unix_s;
    if (c->plan.until_unix_s != 0) {
        h->fresh_until_unix_s = min_u64(h->fresh_until_unix_s, c->plan.until_unix_s);
    }
    add(h, "content-type",
        a->content_type.p != NULL && !own ? a->content_type
        : c->plan.content_type.p != NULL  ? c->plan.content_type
                                          : SLICE("application/octet-stream"));
    if (a->last_modified_s != 0 && !own) {
        httpdate_format(a->last_modified_s, date);
        add(h, "last-modified", slice_str(date));
    }
    if (a->digest_known && !c->plan.xorb) {
        add_digest(h, &a->digest);
    }
    if (!own) {
        add_fields(h, a, false, FIELDS_MAX);
        add_date(h, answer_field(a, "date"), c->desk->loop->unix_s);
    }
}

static void add_blob(struct call *c, struct hot *h, struct blob *b)
{
    char hex[DIGEST_HEX + 1];
    char date[40];

    digest_format(blob_digest(b), hex);
    h->valid.etag = arena_fmt(&h->arena, "\"sha256-%s\"", hex);
    if (c->plan.etag.p != NULL) {
        h->valid.etag_alias = h->valid.etag;
        h->valid.etag = arena_copy(&h->arena, c->plan.etag);
    }
    h->valid.total_bytes = blob_size_bytes(b);
    h->stored_unix_s = 0;               /* ours: it has no age */
    h->fresh_until_unix_s = UINT64_MAX; /* until the repo's generation moves */
    add(h, "content-type",
        c->plan.content_type.p != NULL ? c->plan.content_type : SLICE("application/octet-stream"));
    if (c->plan.entry.mtime_ns > 0) {
        h->valid.last_modified_s = (uint64_t)c->plan.entry.mtime_ns / 1000000000u;
        httpdate_format(h->valid.last_modified_s, date);
        add(h, "last-modified", slice_str(date));
    }
    if (!c->plan.xorb) {
        add_digest(h, blob_digest(b));
    }
}

struct hot *reply_resolve(struct call *c, struct slice name, struct slice key, struct answer *a,
                          struct blob *b)
{
    struct hot *h = hot_new(c->set, c->repo, name, key);

    h->generation = c->repo_generation;
    h->for_all = c->plan.for_all;
    h->whole = c->plan.whole;
    h->reply.status = 200;
    h->answer = a;
    h->blob = b;
    if (a != NULL) {
        add_answer(c, h, a);
    } else if (b != NULL) {
        add_blob(c, h, b);
    }
    if (c->plan.xorb) {
        h->plain_bytes =
            h->valid.total_bytes != LENGTH_UNKNOWN ? h->valid.total_bytes : c->plan.want.size_bytes;
        h->valid.total_bytes = xorb_framed(h->plain_bytes);
    }
    if (h->valid.etag.p != NULL) {
        reply_add(&h->reply, SLICE("etag"), h->valid.etag);
    }
    if (!h->whole) {
        reply_add(&h->reply, SLICE("accept-ranges"), SLICE("bytes"));
    }
    add_cache_control(c, h);
    if (c->repo->ops->answer != NULL) {
        c->repo->ops->answer(c->repo, &c->plan, a, &h->arena, &h->reply);
    }
    for (size_t i = 0; i < c->plan.nfields; i++) {
        reply_add(&h->reply, arena_copy(&h->arena, c->plan.fields[i].name),
                  arena_copy(&h->arena, c->plan.fields[i].value));
    }
    return h;
}

/* What a listing told is asked again now and then, though it be for ever: else nobody would see that it is in use. */
static uint64_t told_until(const struct call *c)
{
    uint64_t most = c->desk->loop->unix_s + TOLD_S;

    return c->plan.until_unix_s != 0 ? min_u64(c->plan.until_unix_s, most) : most;
}

struct hot *reply_resolve_text(struct call *c)
{
    struct hot *h = hot_new(c->set, c->repo, hot_name(&c->req, c->repo, c->path), c->plan.want.key);

    h->generation = c->repo_generation;
    h->for_all = c->plan.for_all;
    h->reply.status = c->plan.status;
    h->fresh_until_unix_s = told_until(c);
    h->valid.total_bytes = c->plan.text.n;
    buf_adds(&h->bytes, c->plan.text);
    add(h, "content-type", c->plan.content_type);
    for (size_t i = 0; i < c->plan.nfields; i++) {
        reply_add(&h->reply, arena_copy(&h->arena, c->plan.fields[i].name),
                  arena_copy(&h->arena, c->plan.fields[i].value));
    }
    return h;
}

struct hot *reply_resolve_known(struct call *c)
{
    struct hot *h =
        reply_resolve(c, hot_name(&c->req, c->repo, c->path), c->plan.want.key, NULL, NULL);

    h->head_only = true;
    h->fresh_until_unix_s = told_until(c);
    h->valid.etag = arena_copy(&h->arena, c->plan.etag);
    h->valid.total_bytes = c->plan.want.size_bytes;
    reply_add(&h->reply, SLICE("etag"), h->valid.etag);
    add(h, "content-type", c->plan.content_type);
    if (c->plan.want.digest_known) {
        add_digest(h, &c->plan.want.digest);
    }
    return h;
}

struct hot *reply_resolve_rendering(struct call *c, struct slice key, struct rendering *r)
{
    struct hot *h = reply_resolve(c, hot_name(&c->req, c->repo, c->path), key, NULL, NULL);

    h->rendering = rendering_hold(r);
    h->valid.etag = slice_str(r->etag);
    h->valid.total_bytes = r->size_bytes;
    reply_add(&h->reply, SLICE("etag"), h->valid.etag);
    reply_add(&h->reply, SLICE("content-type"), r->content_type);
    return h;
}

/* --- what this request makes of it --- */

const struct http_reply *reply_word(struct exchange *x, struct visit *v, struct hot *h,
                                    struct body **body)
{
    struct desk *d = exchange_loop(x)->local;
    struct arena *a = exchange_arena(x);
    const struct http_req *req = exchange_req(x);
    struct http_reply *r = ARENA_NEW(a, struct http_reply);
    uint64_t first = 0;
    uint64_t end = h->valid.total_bytes;
    enum verdict verdict;

    reply_copy(r, &h->reply);
    *body = NULL;
    verdict = request_judge(req, &h->valid, &first, &end);
    if (h->whole && (verdict == VERDICT_PART || verdict == VERDICT_UNSATISFIED)) {
        verdict = VERDICT_FULL;
        first = 0;
        end = h->valid.total_bytes;
    }
    switch (verdict) {
    case VERDICT_FULL:
        break;
    case VERDICT_PART:
        r->status = 206;
        reply_addf(r, a, "content-range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, first, end - 1,
                   h->valid.total_bytes);
        break;
    case VERDICT_UNSATISFIED:
        *r = (struct http_reply){.status = 416};
        reply_add(r, SLICE("cache-control"), SLICE("no-store"));
        reply_addf(r, a, "content-range", "bytes */%" PRIu64, h->valid.total_bytes);
        break;
    case VERDICT_NOT_MODIFIED:
        r->status = 304;
        break;
    case VERDICT_FAILED:
        *r = (struct http_reply){.status = 412};
        reply_add(r, SLICE("cache-control"), SLICE("no-store"));
        break;
    }
    if (h->stored_unix_s != 0) {
        uint64_t now = d->loop->unix_s;
        reply_add(r, SLICE("age"), arena_u64(a, now - min_u64(now, h->stored_unix_s)));
    }
    if (v->cached) {
        reply_add(r, SLICE("cache-status"), slice_str(reply_cache_status(v->state)));
    }
    if (r->status == 200 || r->status == 206) {
        *body = body_of(d, h, first, end, req->method == METHOD_HEAD);
    }
    exchange_pace(x, v->pace);
    return r;
}

void reply_send(struct exchange *x, struct visit *v, struct hot *h)
{
    struct body *body;
    const struct http_reply *r = reply_word(x, v, h, &body);

    exchange_reply(x, r, body);
}

void reply_failure(struct call *c, struct http_reply *r, struct slice why)
{
    struct arena *a = &c->arena;
    struct slice body = c->visit->door->words(&c->req, why, a, r);

    if (c->repo->ops->failed != NULL) {
        c->repo->ops->failed(c->repo, &c->plan, r->status, why, a, r);
    }
    exchange_reply(c->x, r, body_of_bytes(body));
}

/* What is no object, as the origin said it. */
static void reply_words(struct call *c, const struct answer *a)
{
    struct arena *ar = &c->arena;
    struct http_reply *r = ARENA_NEW(ar, struct http_reply);
    uint64_t now = c->desk->loop->unix_s;

    r->status = a->status;
    if (a->content_type.p != NULL) {
        reply_add(r, SLICE("content-type"), arena_copy(ar, a->content_type));
    }
    if (!c->repo->anonymous_read) {
        reply_add(r, SLICE("cache-control"), SLICE("private, no-cache"));
    }
    for (size_t i = 0; i < a->nfields && r->nfields < FIELDS_MAX; i++) {
        const struct http_field *f = &a->fields[i];
        if (!c->repo->anonymous_read && about_freshness(f->name)) {
            continue;
        }
        if (!slice_eqs(f->name, "date")) {
            reply_add(r, arena_copy(ar, f->name), arena_copy(ar, f->value));
        } else if (f->value.n <= DATE_BYTES) {
            r->date = arena_copy(ar, f->value);
        }
    }
    if (a->retry_after_s != 0) {
        reply_addf(r, ar, "retry-after", "%" PRIu32, a->retry_after_s);
    }
    reply_add(r, SLICE("age"), arena_u64(ar, now - min_u64(now, a->stored_unix_s)));
    reply_add(r, SLICE("cache-status"), slice_str(reply_cache_status(a->state)));
    exchange_reply(c->x, r, a->text.n != 0 ? body_of_bytes(a->text) : NULL);
}

void reply_status(struct call *c, const struct answer *a)
{
    struct arena *ar = &c->arena;
    struct http_reply *r = ARENA_NEW(ar, struct http_reply);
    struct slice text =
        a->why.code != 0
            ? arena_copy(ar, slice_str(a->why.text))
            : arena_fmt(ar, "%d %s: that is what the origin of repo %s says for this path",
                        a->status, http_reason(a->status), c->repo->name);

    if (a->text.p != NULL && c->repo->ops->failed == NULL) {
        reply_words(c, a);
        return;
    }
    r->status = a->status;
    reply_add(r, SLICE("cache-status"),
              a->status == 504 ? SLICE("mirrord; detail=only-if-cached")
                               : slice_str(reply_cache_status(a->state)));
    reply_add(r, SLICE("cache-control"), SLICE("no-cache"));
    if (a->retry_after_s != 0) {
        reply_addf(r, ar, "retry-after", "%" PRIu32, a->retry_after_s);
    }
    reply_failure(c, r, text);
}

static int status_of_trouble(int rc)
{
    switch (rc) {
    case E_NETWORK:
    case E_TIMEOUT:
    case E_CHANGED:
    case E_BUSY:
    case E_CANCELLED:
        return 503;
    case E_TOOBIG:
    case E_CORRUPT:
    case E_PROTOCOL:
    case E_UNSUPPORTED:
        return 502;
    case E_NOSPACE:
        return 507;
    case E_REFUSED:
        return 403;
    default:
        return 500;
    }
}

void reply_trouble(struct call *c, int rc, const struct err *why)
{
    struct http_reply *r = ARENA_NEW(&c->arena, struct http_reply);

    r->status = status_of_trouble(rc);
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    reply_add(r, SLICE("x-content-type-options"), SLICE("nosniff"));
    reply_failure(c, r, arena_fmt(&c->arena, "%s: %s", err_plain(rc), why->text));
}

void reply_bytes(struct exchange *x, int status, struct slice content_type, struct slice bytes)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = status;
    reply_add(r, SLICE("content-type"), content_type);
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    reply_add(r, SLICE("x-content-type-options"), SLICE("nosniff"));
    exchange_reply(x, r, body_of_bytes(bytes));
}

void reply_text(struct exchange *x, int status, struct slice text)
{
    reply_bytes(x, status, SLICE("text/plain; charset=utf-8"), text);
}

void reply_page(struct exchange *x, struct slice html, struct slice policy)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 200;
    reply_add(r, SLICE("content-type"), SLICE("text/html; charset=utf-8"));
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    reply_add(r, SLICE("x-content-type-options"), SLICE("nosniff"));
    reply_add(r, SLICE("content-security-policy"), policy);
    exchange_reply(x, r, body_of_bytes(html));
}
