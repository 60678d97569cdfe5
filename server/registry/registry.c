#include "server/registry/registry.h"

#include <inttypes.h>

#include "common/codec/form.h"
#include "common/codec/jwrite.h"
#include "server/registry/route.h"
#include "server/repo/oci/path.h"
#include "server/request/reply.h"

#define TOKEN_PATH OCI_ROOT "-/token"

enum { TOKEN_S = 3600, SCOPE_MAX = 1024 };

/* --- refusals --- */

static struct slice registry_refusal_words(const struct http_req *req, struct slice why,
                                           struct arena *a, struct http_reply *r)
{
    bool manifest = memmem(req->path.p, req->path.n, "/manifests/", 11) != NULL;
    bool list = slice_ends(req->path, SLICE("/tags/list"));

    reply_add(r, SLICE("content-type"), OCI_ERRORS_TYPE);
    return oci_errors(r->status == 404 && list ? OCI_NAME_UNKNOWN
                                               : oci_code_of_status(r->status, manifest),
                      why, a);
}

static void refuse_with(struct exchange *x, struct http_reply *r, struct slice body)
{
    reply_add(r, SLICE("content-type"), OCI_ERRORS_TYPE);
    reply_add(r, SLICE("docker-distribution-api-version"), SLICE("registry/2.0"));
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    exchange_reply(x, r, body_of_bytes(body));
}

static void refuse_coded(struct exchange *x, int status, enum oci_code code, struct slice why)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = status;
    if (status == 405) {
        reply_add(r, SLICE("allow"), SLICE("GET, HEAD"));
    }
    refuse_with(x, r, oci_errors(code, why, exchange_arena(x)));
}

/* Where tokens are, and what to ask for there when the request is about an image: to pull it, and
 * to push when it is to be published to. */
static struct slice bearer(const struct http_req *req, const struct conf *conf, bool publish,
                           struct arena *a)
{
    /* The image as the client names it: a listener's root and ?ns= stand for a repo that it does
     * not know of. */
    struct slice path = oci_asked(req) ? slice_from(req->path, strlen(OCI_ROOT)) : SLICE("");
    struct slice base = reply_base_url(req, conf, a);
    struct oci_path at;
    enum oci_code code;

    if (oci_path_parse(path, a, &at, &code, NULL) != 0 || at.kind == OCI_OTHER) {
        return arena_fmt(a, "Bearer realm=\"" SLICE_FMT TOKEN_PATH "\",service=\"mirrord\"",
                         SLICE_ARG(base));
    }
    return arena_fmt(a,
                     "Bearer realm=\"" SLICE_FMT TOKEN_PATH
                     "\",service=\"mirrord\",scope=\"repository:" SLICE_FMT ":pull%s\"",
                     SLICE_ARG(base), SLICE_ARG(at.name), publish ? ",push" : "");
}

static void challenge(const struct http_req *req, const struct conf *conf, bool publish,
                      struct arena *a, struct http_reply *r)
{
    reply_add(r, SLICE("www-authenticate"), bearer(req, conf, publish, a));
}

static void refuse_unnamed(struct serve_loop *d, struct exchange *x, struct slice why)
{
    const struct http_req *req = exchange_req(x);
    struct arena *a = exchange_arena(x);
    struct http_reply *r = ARENA_NEW(a, struct http_reply);
    bool publish = req->method != METHOD_GET && req->method != METHOD_HEAD;

    r->status = 401;
    challenge(req, d->set->conf, publish, a, r);
    refuse_with(x, r, oci_errors(OCI_UNAUTHORIZED, why, a));
}

static void refuse_token(struct serve_loop *d, struct exchange *x, const char *why)
{
    refuse_unnamed(d, x, slice_str(why));
}

static void refuse_rate_limited(struct exchange *x, const struct gate_decision *g)
{
    struct arena *a = exchange_arena(x);
    struct http_reply *r = ARENA_NEW(a, struct http_reply);

    r->status = 429;
    reply_addf(r, a, "retry-after", "%" PRIu32, g->retry_after_s);
    refuse_with(x, r,
                oci_errors(OCI_TOOMANYREQUESTS,
                           arena_fmt(a,
                                     "too many requests: the limit is %" PRIu64
                                     " at the same time; try again in %" PRIu32 " s",
                                     g->limit, g->retry_after_s),
                           a));
}

/* --- GET /v2/ --- */

/* Is there anything here that somebody may have to show a token for? Pushes always are. */
static bool wants_tokens(const struct repo_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct repo *r = set->repo[i];
        if (r->ops->registry && (!r->anonymous_read || r->shown_origin == NULL)) {
            return true;
        }
    }
    return false;
}

static void answer_json(struct exchange *x, struct slice json)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 200;
    reply_add(r, SLICE("content-type"), SLICE("application/json"));
    reply_add(r, SLICE("docker-distribution-api-version"), SLICE("registry/2.0"));
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    exchange_reply(x, r, body_of_bytes(json));
}

static void answer_version(struct serve_loop *d, struct exchange *x)
{
    /* A client that has been at the token server comes back with its token, and is not sent there
     * again. */
    if (wants_tokens(d->set) && http_req_field(exchange_req(x), "authorization").p == NULL) {
        refuse_unnamed(d, x, SLICE("get a token first; to pull, an anonymous one is enough"));
        return;
    }
    answer_json(x, SLICE("{}"));
}

/* --- the token server --- */

/* Foreign credentials are accepted for everything that needs none. A login names no scope, and is
 * answered that they are wrong. */
static bool only_pulls(struct slice query, struct arena *a)
{
    bool any = false;
    struct slice scope;

    while ((scope = form_find(&query, "scope", SCOPE_MAX, a)).p != NULL) {
        any = true;
        if (!slice_ends(scope, SLICE(":pull"))) {
            return false;
        }
    }
    return any;
}

static void answer_token(struct serve_loop *d, struct exchange *x, struct request_log *v)
{
    const struct http_req *req = exchange_req(x);
    struct buf out = BUF_INIT(4096);
    char token[TOKEN_TEXT] = "anonymous";

    if (v->who.token != NULL) {
        gate_token_text(req, token);
    } else if (http_req_field(req, "authorization").p != NULL &&
               !only_pulls(req->query, exchange_arena(x))) {
        refuse_unnamed(
            d, x,
            SLICE("the password is not a token of this mirror; use one from `mirrorctl token "
                  "create`, with any user name"));
        return;
    }
    jwrite_open(&out, NULL, '{');
    jwrite_str(&out, "token", token);
    jwrite_str(&out, "access_token", token);
    jwrite_u64(&out, "expires_in", TOKEN_S);
    jwrite_close(&out, '}');
    answer_json(x, buf_slice(&out));
    explicit_bzero(token, sizeof token);
    buf_free(&out);
}

/* --- nobody's --- */

static bool names_repo(const struct repo_set *set, struct slice first)
{
    for (size_t i = 0; i < set->count; i++) {
        if (slice_eqs(first, set->repo[i]->name)) {
            return true;
        }
    }
    return false;
}

static void answer_unknown(struct serve_loop *d, struct exchange *x, struct slice ns)
{
    struct arena *a = exchange_arena(x);
    struct slice rest = slice_from(exchange_req(x)->path, strlen(OCI_ROOT));
    struct slice first = slice_cut(&rest, '/');
    struct slice why;

    if (ns.n != 0) {
        why = arena_fmt(a,
                        "no repo of this mirror serves the registry \"" SLICE_FMT "\"; add it "
                        "to `names` of one",
                        SLICE_ARG(ns));
    } else if (names_repo(d->set, first)) {
        why = arena_fmt(a, "repo " SLICE_FMT " is not a registry of images", SLICE_ARG(first));
    } else {
        why = arena_fmt(a,
                        "no repo of this mirror is called \"" SLICE_FMT "\"; ask for an image "
                        "as <repo>/<name>, GET / lists the repos",
                        SLICE_ARG(first));
    }
    refuse_coded(x, 404, OCI_NAME_UNKNOWN, why);
}

static void answer_registry_request(struct serve_loop *d, struct exchange *x, struct request_log *v,
                                    const struct route *to)
{
    const struct http_req *req = exchange_req(x);
    bool ours = slice_eqs(req->path, OCI_ROOT) || slice_eqs(req->path, "/v2") ||
                slice_eqs(req->path, TOKEN_PATH);

    if (!ours) {
        answer_unknown(d, x, to->ns);
    } else if (req->method != METHOD_GET && req->method != METHOD_HEAD) {
        refuse_coded(x, 405, OCI_UNSUPPORTED, SLICE("this path accepts only GET and HEAD"));
    } else if (slice_eqs(req->path, TOKEN_PATH)) {
        answer_token(d, x, v);
    } else {
        answer_version(d, x);
    }
}

/* --- the frontend --- */

static struct route route(struct serve_loop *d, struct exchange *x)
{
    const struct http_req *req = exchange_req(x);

    if (!oci_asked(req)) { /* "/v2" itself */
        return (struct route){0};
    }
    return registry_route(d->set->repo, d->set->count, req->path, req->query,
                          listener_root(req->listener), exchange_arena(x));
}

static bool registry_request_is_counted(const struct http_req *req)
{
    (void)req;
    return true;
}

/* The same path is another document than elsewhere, and its links begin with what stands before
 * it. */
const struct frontend frontend_registry = {
    .root = "/v2",
    .by_target = true,
    .route = route,
    .answer = answer_registry_request,
    .counted = registry_request_is_counted,
    .refuse_token = refuse_token,
    .refuse_rate_limited = refuse_rate_limited,
    .challenge = challenge,
    .words = registry_refusal_words,
};
