#include "server/request/reply.h"

#include <inttypes.h>
#include <stdlib.h>

#include "server/http/status.h"
#include "server/repo/origin_field.h"
#include "server/request/disposition.h"
#include "server/request/frontend.h"
#include "server/request/rendering.h"
#include "server/request/response.h"

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
    case CACHE_UPDATING:
        return "mirrord; hit; detail=stale-while-revalidate";
    case CACHE_NEGATIVE:
        return "mirrord; hit; detail=negative";
    case CACHE_FAILED:
        return "mirrord; fwd=uri-miss; detail=origin-trouble";
    }
    return "mirrord";
}

/* --- the body of a resolved answer --- */

struct cached_response_body {
    struct body body;
    struct cached_response *cached_response;
    const struct serve_deps *deps;
};

static void cached_response_body_close(struct body *b)
{
    struct cached_response_body *hb = CONTAINER_OF(b, struct cached_response_body, body);

    if (b->unreadable && hb->cached_response->blob != NULL) {
        cache_suspect(hb->deps->cache, hb->cached_response->blob);
        repos_changed(hb->deps->repos, slice_str(hb->cached_response->repo->name));
    }
    cached_response_release(&hb->cached_response);
    free(hb);
}

/* To HEAD only the length matters: the answer may have come from the origin's own HEAD, without a
 * byte. */
static struct body *plain_body(struct serve_loop *d, struct cached_response *h, uint64_t first,
                               uint64_t end, bool head)
{
    static const struct body_ops ops = {.close = cached_response_body_close};
    struct cached_response_body *hb;

    if (h->answer != NULL && !head) {
        return answer_body(d->deps->cache, h->answer, d->loop, first, end);
    }
    hb = NEW(struct cached_response_body);
    hb->deps = d->deps;
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
    hb->cached_response = cached_response_hold(h);
    return &hb->body;
}

static struct body *body_of(struct serve_loop *d, struct cached_response *h, uint64_t first,
                            uint64_t end, bool head)
{
    struct body *plain;

    if (h->framing == NULL || h->plain_bytes == 0 || head) {
        return plain_body(d, h, first, end, head);
    }
    plain = plain_body(d, h, h->framing->plain(first), h->framing->plain(end), false);
    return h->framing->body(plain, h->plain_bytes, first, end);
}

/* --- what this request makes of it --- */

const struct http_reply *reply_word(struct exchange *x, struct request_log *v,
                                    struct cached_response *h, struct body **body)
{
    struct serve_loop *d = exchange_loop(x)->local;
    struct arena *a = exchange_arena(x);
    const struct http_req *req = exchange_req(x);
    struct http_reply *r = arena_raw(a, sizeof *r); /* mostly room for fields: not worth zeroing */
    uint64_t first = 0;
    uint64_t end = h->valid.total_bytes;
    enum range_answer verdict;

    reply_copy(r, &h->reply);
    *body = NULL;
    verdict = request_judge(req, &h->valid, &first, &end);
    if (h->whole && (verdict == RANGE_ANSWER_PART || verdict == RANGE_ANSWER_UNSATISFIED)) {
        verdict = RANGE_ANSWER_FULL;
        first = 0;
        end = h->valid.total_bytes;
    }
    switch (verdict) {
    case RANGE_ANSWER_FULL:
        break;
    case RANGE_ANSWER_PART:
        r->status = 206;
        reply_addf(r, a, "content-range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, first, end - 1,
                   h->valid.total_bytes);
        break;
    case RANGE_ANSWER_UNSATISFIED:
        *r = (struct http_reply){.status = 416};
        reply_add(r, SLICE("cache-control"), SLICE("no-store"));
        reply_addf(r, a, "content-range", "bytes */%" PRIu64, h->valid.total_bytes);
        break;
    case RANGE_ANSWER_NOT_MODIFIED:
        r->status = 304;
        break;
    case RANGE_ANSWER_FAILED:
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

void reply_send(struct exchange *x, struct request_log *v, struct cached_response *h)
{
    struct body *body;
    const struct http_reply *r = reply_word(x, v, h, &body);

    exchange_reply(x, r, body);
}

/* The protocol makes a sentence of its own of `why`. */
static void reply_in_words(struct request *c, struct http_reply *r, struct slice words,
                           struct slice why)
{
    struct arena *a = &c->arena;
    struct slice body = c->request_log->frontend->words(&c->req, words, a, r);

    if (c->repo->ops->failed != NULL) {
        c->repo->ops->failed(c->repo, &c->plan, r->status, why, a, r);
    }
    exchange_reply(c->x, r, body_of_bytes(body));
}

void reply_failure(struct request *c, struct http_reply *r, struct slice why)
{
    reply_in_words(c, r, why, why);
}

/* What is no object, as the origin said it; `why` where the origin gave no text of an error. */
static void reply_words(struct request *c, const struct answer *a, struct slice why)
{
    struct arena *ar = &c->arena;
    struct http_reply *r = ARENA_NEW(ar, struct http_reply);
    uint64_t now = c->serve_loop->loop->unix_s;
    bool silent = a->text.n == 0 && a->status >= 400;
    struct slice said;

    r->status = a->status;
    if (a->content_type.p != NULL && !silent) {
        reply_add(r, SLICE("content-type"), arena_copy(ar, a->content_type));
    }
    said = silent
               ? SLICE_NONE
               : disposition_of(a->content_type, answer_field(a, "content-disposition"), true, ar);
    if (said.p != NULL) {
        reply_add(r, SLICE("content-disposition"), said);
    }
    if (!c->repo->anonymous_read) {
        reply_add(r, SLICE("cache-control"), SLICE("private, no-cache"));
    }
    for (size_t i = 0; i < a->nfields && r->nfields < ORIGIN_FIELDS_MAX; i++) {
        const struct http_field *f = &a->fields[i];
        if (!c->repo->anonymous_read && response_is_freshness(f->name)) {
            continue;
        }
        if (origin_field_passes(c->repo, f->name)) {
            reply_add(r, arena_copy(ar, f->name), arena_copy(ar, f->value));
        } else if (slice_eqs(f->name, "date") && f->value.n <= ORIGIN_DATE_MAX) {
            r->date = arena_copy(ar, f->value);
        }
    }
    if (a->retry_after_s != 0) {
        reply_addf(r, ar, "retry-after", "%" PRIu32, a->retry_after_s);
    }
    reply_add(r, SLICE("age"), arena_u64(ar, now - min_u64(now, a->stored_unix_s)));
    reply_add(r, SLICE("cache-status"), slice_str(reply_cache_status(a->state)));
    if (silent) {
        reply_in_words(c, r, why, why);
    } else {
        exchange_reply(c->x, r, a->text.n != 0 ? body_of_bytes(a->text) : NULL);
    }
}

/* An error of the network names a host and a reason: the client also reads whose host it is, and
 * what follows. */
static struct slice reply_reason(struct request *c, const struct answer *a, struct slice why)
{
    return a->why.code == E_NETWORK || a->why.code == E_TIMEOUT
               ? arena_fmt(&c->arena,
                           "the origin of repo %s failed: %s; this file is not on this mirror yet",
                           c->repo->name, a->why.text)
               : why;
}

void reply_status(struct request *c, const struct answer *a)
{
    struct arena *ar = &c->arena;
    struct http_reply *r = ARENA_NEW(ar, struct http_reply);
    struct slice why =
        a->why.code != 0
            ? arena_copy(ar, slice_str(a->why.text))
            : arena_fmt(ar, "%d %s: the origin of repo %s sent this status for the path", a->status,
                        http_reason(a->status), c->repo->name);

    if (a->text.p != NULL && c->repo->ops->failed == NULL) {
        reply_words(c, a, why);
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
    reply_in_words(c, r, reply_reason(c, a, why), why);
}

void reply_trouble(struct request *c, int rc, const struct err *why)
{
    struct http_reply *r = ARENA_NEW(&c->arena, struct http_reply);

    r->status = status_of_error(rc, STATUS_ORIGIN);
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    if (rc == E_AGAIN) {
        reply_add(r, SLICE("retry-after"), SLICE("1"));
    }
    reply_failure(c, r, arena_fmt(&c->arena, "%s: %s", err_plain(rc), why->text));
}

void reply_bytes(struct exchange *x, int status, struct slice content_type, struct slice bytes)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = status;
    reply_add(r, SLICE("content-type"), content_type);
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
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
    r->policy = policy;
    exchange_reply(x, r, body_of_bytes(html));
}

struct slice reply_base_url(const struct http_req *req, const struct conf *conf, struct arena *a)
{
    if (conf->public_url != NULL) {
        struct slice u = slice_str(conf->public_url);
        return u.n != 0 && u.p[u.n - 1] == '/' ? slice_first(u, u.n - 1) : u;
    }
    return arena_fmt(a, "http%s://" SLICE_FMT, req->tls ? "s" : "", SLICE_ARG(req->host));
}
