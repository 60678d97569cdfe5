#include "server/request/response.h"

#include <inttypes.h>

#include "common/codec/httpdate.h"
#include "server/cache/variant.h"
#include "server/repo/origin_field.h"
#include "server/request/disposition.h"
#include "server/request/rendering.h"

enum { REPORTED_S = 300 };

/* The Content-Security-Policy of pages of links that we write: package indexes. */
#define LINKS_POLICY                                                                               \
    "default-src 'none'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

static void add_reply_field(struct cached_response *h, const char *name, struct slice value)
{
    if (value.p != NULL) {
        reply_add(&h->reply, slice_str(name), arena_copy(&h->arena, value));
    }
}

static void add_digest(struct cached_response *h, const struct digest *d, bool has_list)
{
    char repr[64];
    char hex[DIGEST_HEX + 1];

    digest_repr(d, repr);
    add_reply_field(h, "repr-digest", slice_str(repr));
    /* The chunk list helps only where there is more than one chunk to fetch
     * (docs/protocols/peers.md). */
    if (h->valid.total_bytes != LENGTH_UNKNOWN && h->valid.total_bytes > CHUNK_BYTES && has_list) {
        digest_format(d, hex);
        reply_addf(&h->reply, &h->arena, "link", "</-/chunks/%s>; rel=\"describedby\"", hex);
    }
}

bool response_is_freshness(struct slice name)
{
    return slice_eqs(name, "cache-control") || slice_eqs(name, "expires") ||
           slice_eqs(name, "pragma");
}

/* When the origin made it: our own Date beside its Expires would promise another time (RFC 9110
 * 6.6.1). */
static void add_date(struct cached_response *h, struct slice date, uint64_t now_unix_s)
{
    uint64_t said;

    if (date.n <= ORIGIN_DATE_MAX && httpdate_parse(date, now_unix_s, &said)) {
        h->reply.date = arena_copy(&h->arena, date);
    }
}

/* Two words on one thing leave a cache to guess (RFC 9111 4.2.1): the origin's own go on where ours
 * would only repeat them. Elsewhere a rule, the class or the repo's access has decided, and ours
 * stand alone. */
static bool origin_says(const struct request *c, const struct answer *a)
{
    bool said = false;

    for (size_t i = 0; a != NULL && i < a->nfields && !said; i++) {
        said = slice_eqs(a->fields[i].name, "cache-control") ||
               slice_eqs(a->fields[i].name, "expires");
    }
    return said && c->repo->anonymous_read && c->plan.kind == PLAN_LOOKUP &&
           c->plan.cache_control.p == NULL && c->plan.lookup.class == LOOKUP_MUTABLE &&
           c->plan.lookup.ttl_s == TTL_ORIGIN;
}

/* Up to `most` of the origin's fields that reach clients: those about freshness, or the others. */
static void add_response_fields(struct cached_response *h, const struct repo *r,
                                const struct answer *a, bool freshness, size_t most)
{
    for (size_t i = 0; i < a->nfields && h->reply.nfields < most; i++) {
        const struct http_field *f = &a->fields[i];
        if (response_is_freshness(f->name) == freshness && origin_field_passes(r, f->name)) {
            reply_add(&h->reply, arena_copy(&h->arena, f->name), arena_copy(&h->arena, f->value));
        }
    }
}

/* How long a copy is good here, by a field that is for caches such as this one: that is nothing to
 * its clients. */
static bool is_targeted(const struct request *c, const struct answer *a)
{
    for (size_t i = 0; a != NULL && i < c->plan.lookup.ntargets; i++) {
        for (size_t j = 0; j < a->nfields; j++) {
            if (slice_eq(a->fields[j].name, c->plan.lookup.targets[i])) {
                return c->plan.lookup.ttl_s == TTL_ORIGIN;
            }
        }
    }
    return false;
}

static void add_cache_control(struct request *c, struct cached_response *h)
{
    /* "public" would let a cache behind us answer those who have no right (RFC 9111 3.5). */
    const char *who = c->repo->anonymous_read ? "public" : "private";

    if (origin_says(c, h->answer)) {
        add_response_fields(h, c->repo, h->answer, true, h->reply.nfields + 4);
        return;
    }
    if (c->plan.cache_control.p != NULL) {
        add_reply_field(h, "cache-control", c->plan.cache_control);
    } else if (c->plan.kind == PLAN_LOOKUP && c->plan.lookup.class == LOOKUP_IMMUTABLE) {
        reply_addf(&h->reply, &h->arena, "cache-control", "%s, max-age=31536000, immutable", who);
    } else if (h->answer != NULL && h->fresh_until_unix_s > h->stored_unix_s &&
               h->fresh_until_unix_s != UINT64_MAX && !is_targeted(c, h->answer)) {
        reply_addf(&h->reply, &h->arena, "cache-control", "%s, max-age=%" PRIu64, who,
                   h->fresh_until_unix_s - h->stored_unix_s);
    } else {
        add_reply_field(h, "cache-control",
                        c->repo->anonymous_read ? SLICE("no-cache") : SLICE("private, no-cache"));
    }
}

/* Of an origin: its page is a list that people walk through. */
static bool is_folder_path(struct slice path)
{
    return path.n == 0 || path.p[path.n - 1] == '/';
}

static void add_answer(struct request *c, struct cached_response *h, const struct answer *a)
{
    bool own = c->plan.fields_of != FIELDS_ORIGIN;
    struct slice type = a->content_type.p != NULL && !own ? a->content_type
                        : c->plan.content_type.p != NULL  ? c->plan.content_type
                                                          : SLICE("application/octet-stream");
    char date[40];
    struct slice etag = c->plan.etag.p != NULL ? c->plan.etag : a->etag;
    char hex[DIGEST_HEX + 1];

    if (c->plan.delivery == DELIVERY_WHOLE &&
        c->plan.etag.p == NULL) { /* as adapters that ask for this write it */
        digest_format(&c->plan.lookup.digest, hex);
        etag = arena_fmt(&h->arena, "\"sha256:%s\"", hex);
    }
    h->valid.etag = arena_copy(&h->arena, etag);
    h->valid.etag.p = etag.p != NULL ? h->valid.etag.p : NULL;
    if (a->etag_alias.p != NULL) {
        h->valid.etag_alias = arena_copy(&h->arena, a->etag_alias);
    }
    if (a->etag_weak.p != NULL && !own && c->plan.etag.p == NULL) {
        h->valid.etag_weak = arena_copy(&h->arena, a->etag_weak);
    }
    h->valid.last_modified_s = own ? 0 : a->last_modified_s;
    h->valid.total_bytes = a->total_bytes;
    h->stored_unix_s = a->stored_unix_s;
    h->fresh_until_unix_s =
        c->plan.lookup.class == LOOKUP_IMMUTABLE ? UINT64_MAX : a->fresh_until_unix_s;
    if (c->plan.until_unix_s != 0) {
        h->fresh_until_unix_s = min_u64(h->fresh_until_unix_s, c->plan.until_unix_s);
    }
    add_reply_field(h, "content-type", type);
    if (a->last_modified_s != 0 && !own) {
        httpdate_format(a->last_modified_s, date);
        add_reply_field(h, "last-modified", slice_str(date));
    }
    if (a->digest_known && c->plan.framing == NULL) {
        add_digest(h, &a->digest, a->blob != NULL);
    }
    if (!own) {
        add_reply_field(h, "content-disposition",
                        disposition_of(type, answer_field(a, "content-disposition"),
                                       is_folder_path(c->path), &h->arena));
        add_response_fields(h, c->repo, a, false, ORIGIN_FIELDS_MAX);
        add_date(h, answer_field(a, "date"), c->serve_loop->loop->unix_s);
    }
}

/* A file of a tree. Where its modification time was not kept, Last-Modified is the time of the
 * version that was requested. */
static void add_tree_file(struct request *c, struct cached_response *h, const struct digest *d,
                          uint64_t size_bytes)
{
    char hex[DIGEST_HEX + 1];
    char date[40];

    digest_format(d, hex);
    h->valid.etag = arena_fmt(&h->arena, "\"sha256-%s\"", hex);
    if (c->plan.etag.p != NULL) {
        h->valid.etag_alias = h->valid.etag;
        h->valid.etag = arena_copy(&h->arena, c->plan.etag);
    }
    h->valid.total_bytes = size_bytes;
    h->stored_unix_s = 0;               /* ours: it has no age */
    h->fresh_until_unix_s = UINT64_MAX; /* until the repo's generation moves */
    add_reply_field(h, "content-type",
                    c->plan.content_type.p != NULL ? c->plan.content_type
                                                   : SLICE("application/octet-stream"));
    h->valid.is_commit_time = c->plan.entry.mtime_ns <= 0;
    h->valid.may_go_back = true;
    h->valid.last_modified_s = h->valid.is_commit_time
                                   ? c->plan.snap.created_unix_s
                                   : (uint64_t)c->plan.entry.mtime_ns / 1000000000u;
    if (h->valid.last_modified_s != 0) {
        httpdate_format(h->valid.last_modified_s, date);
        add_reply_field(h, "last-modified", slice_str(date));
    }
    if (c->plan.framing == NULL) {
        add_digest(h, d, true); /* also while its bytes are in the cluster's bucket alone */
    }
}

/* It varies by a field that is not in the name of a reply in memory, or has fields that no other
 * answer may have. */
static bool is_for_some(const struct request *c, const struct answer *a)
{
    return a != NULL && (a->once || (c->plan.lookup.varies &&
                                     variant_names_another(a->fields, a->nfields, c->repo->forward,
                                                           c->repo->forwards)));
}

struct cached_response *response_of_object(struct request *c, struct slice name, struct slice key,
                                           struct answer *a, struct blob *b)
{
    struct cached_response *h =
        cached_response_new(c->set, c->repo, is_for_some(c, a) ? SLICE("") : name, key);

    h->generation = c->repo_generation;
    h->for_all = c->plan.reuse == REUSE_ALL || c->plan.reuse == REUSE_KEPT;
    h->whole = c->plan.delivery == DELIVERY_WHOLE;
    h->reply.status = 200;
    h->answer = a;
    h->blob = b;
    if (c->plan.kind == PLAN_LOOKUP) {
        h->floor_s = c->plan.lookup.floor_s;
    }
    if (a != NULL && c->plan.kind == PLAN_BLOB) { /* from elsewhere */
        add_tree_file(c, h, &c->plan.entry.digest, a->total_bytes);
    } else if (a != NULL) {
        add_answer(c, h, a);
    } else if (b != NULL) {
        add_tree_file(c, h, blob_digest(b), blob_size_bytes(b));
    }
    if (c->plan.framing != NULL) {
        h->framing = c->plan.framing;
        h->plain_bytes = h->valid.total_bytes != LENGTH_UNKNOWN ? h->valid.total_bytes
                                                                : c->plan.lookup.size_bytes;
        h->valid.total_bytes = h->framing->framed(h->plain_bytes);
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

/* An answer from a listing is resolved again from time to time, even if it is valid for ever:
 * otherwise its use would not be noted. */
static uint64_t reported_until(const struct request *c)
{
    uint64_t most = c->serve_loop->loop->unix_s + REPORTED_S;

    return c->plan.until_unix_s != 0 ? min_u64(c->plan.until_unix_s, most) : most;
}

/* A PLAN_REPLY, but for its body. */
static struct cached_response *response_reply(struct request *c)
{
    struct cached_response *h =
        cached_response_new(c->set, c->repo, request_cached_name(c), c->plan.key);

    h->generation = c->repo_generation;
    h->for_all = c->plan.reuse == REUSE_ALL || c->plan.reuse == REUSE_KEPT;
    h->reply.status = c->plan.status;
    h->fresh_until_unix_s = reported_until(c);
    add_reply_field(h, "content-type", c->plan.content_type);
    for (size_t i = 0; i < c->plan.nfields; i++) {
        reply_add(&h->reply, arena_copy(&h->arena, c->plan.fields[i].name),
                  arena_copy(&h->arena, c->plan.fields[i].value));
    }
    return h;
}

struct cached_response *response_of_text(struct request *c, struct rendering *worded)
{
    struct cached_response *h = response_reply(c);

    if (worded != NULL) {
        h->rendering = rendering_hold(worded);
        h->valid.total_bytes = worded->size_bytes;
    } else {
        h->valid.total_bytes = c->plan.text.n;
        buf_adds(&h->bytes, c->plan.text);
    }
    return h;
}

struct cached_response *response_known(struct request *c)
{
    struct cached_response *h =
        response_of_object(c, request_cached_name(c), c->plan.lookup.key, NULL, NULL);

    h->head_only = true;
    h->fresh_until_unix_s = reported_until(c);
    h->valid.etag = arena_copy(&h->arena, c->plan.etag);
    h->valid.total_bytes = c->plan.lookup.size_bytes;
    reply_add(&h->reply, SLICE("etag"), h->valid.etag);
    add_reply_field(h, "content-type", c->plan.content_type);
    if (c->plan.lookup.digest_known) {
        add_digest(h, &c->plan.lookup.digest, false);
    }
    return h;
}

struct cached_response *response_of_rendering(struct request *c, struct slice key,
                                              struct rendering *r)
{
    struct cached_response *h = response_of_object(c, request_cached_name(c), key, NULL, NULL);

    h->rendering = rendering_hold(r);
    h->valid.etag = slice_str(r->etag);
    h->valid.total_bytes = r->size_bytes;
    reply_add(&h->reply, SLICE("etag"), h->valid.etag);
    reply_add(&h->reply, SLICE("content-type"), r->content_type);
    if (slice_starts(r->content_type, SLICE("text/html"))) {
        h->reply.policy = SLICE(LINKS_POLICY);
    }
    return h;
}
