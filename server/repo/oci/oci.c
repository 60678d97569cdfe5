/* oci.c - registries of container images: manifests and layers are stored by digest, for ever; tags
 * are fresh for a minute, then compared with the origin's by a HEAD. Nothing in a manifest is
 * rewritten. docs/protocols/oci.md */
#include <stdlib.h>

#include "common/codec/form.h"
#include "common/codec/url.h"
#include "server/repo/oci/code.h"
#include "server/repo/oci/names.h"
#include "server/repo/oci/path.h"
#include "server/repo/plan.h"

/* --- answers ---
 *
 * Plans' answers in the words of registries.
 *
 * threads  any; everything is made in the arena that is given
 */

enum { NS_MAX = 300 };

/* What every answer has. */
static void oci_fields(const struct http_req *req, struct plan *p, struct arena *a)
{
    struct slice query = req->query;
    struct slice ns = form_find(&query, "ns", NS_MAX, a);

    plan_field(p, SLICE("docker-distribution-api-version"), SLICE("registry/2.0"));
    if (ns.n != 0) { /* it scoped the request */
        plan_field(p, SLICE("oci-namespace"), plan_line(ns, a));
    }
}

/* A no, with its code's usual status; a 405 names GET and HEAD. message: what, why, what to do. */
static void oci_say(struct plan *p, enum oci_code c, struct slice message, struct arena *a)
{
    plan_reply(p, oci_code_status(c), oci_errors(c, message, a));
    p->content_type = OCI_ERRORS_TYPE;
    if (p->status == 405) {
        p->allow = SLICE("GET, HEAD");
    }
    plan_field(p, SLICE("docker-distribution-api-version"), SLICE("registry/2.0"));
    plan_field(p, SLICE("cache-control"), SLICE("no-store"));
}

enum { TAG_TTL_S = 60, NO_TTL_S = 10 };

struct oci {
    char *base;   /* "https://registry.example/v2/", with what the origin's path has */
    char *prefix; /* that path, "team/" or "": part of every name there */
    bool library; /* names without a '/' are the hub's own: "library/alpine" */
};

/* All kinds of manifests that there are: asked in one way, so that a tag is one thing
 * (docs/protocols/oci.md). */
#define MANIFEST_TYPES                                                                             \
    "application/vnd.oci.image.index.v1+json, "                                                    \
    "application/vnd.docker.distribution.manifest.list.v2+json, "                                  \
    "application/vnd.oci.image.manifest.v1+json, "                                                 \
    "application/vnd.docker.distribution.manifest.v2+json"

/* Registries say 401 of what does not exist, or is private; to a client of ours that would mean
 * that it needs another token from us. */
static const struct status_map refused_is_denied[] = {{401, 403}};

/* --- the settings ----------------------------------------------------------------------------- */

/* A reload frees the configuration that they come from. */
static int take_registry_names(struct repo *r, const struct repo_conf *conf, struct err *e)
{
    struct arena a = {0};
    const char **names;
    size_t n = 0;
    int rc = oci_names(conf, &a, &names, e);

    while (rc == 0 && names[n] != NULL) {
        n++;
    }
    r->names = mem_array(n + 1, sizeof *r->names);
    for (size_t i = 0; i < n; i++) {
        r->names[i] = mem_strdup(names[i]);
    }
    arena_fini(&a);
    return rc;
}

/* "https://host/team/" is https://host/v2/team/...; whoever writes /v2/ itself means the same. */
static void take_base(struct oci *state, const struct url *u)
{
    struct buf b = BUF_INIT(4096);
    struct slice below = slice_from(u->path, 1);

    if (slice_starts(below, SLICE("v2/"))) {
        below = slice_from(below, 3);
    }
    buf_adds(&b, below);
    state->prefix = mem_strdup(buf_cstr(&b));
    buf_clear(&b);
    url_write_origin(u, &b);
    buf_addf(&b, "%s%s", OCI_ROOT, state->prefix);
    state->base = mem_strdup(buf_cstr(&b));
    buf_free(&b);
}

static int oci_open(struct repo *r, const struct repo_conf *conf, struct err *e)
{
    struct oci *state;
    struct url u;
    int rc;

    if (r->origin == NULL || origin_bucket(r->origin) != NULL) {
        return err_set(e, E_CONFIG, "protocol \"oci\" needs an origin = \"https://...\"");
    }
    rc = url_split(slice_str(origin_url(r->origin)), &u, e);
    if (rc != 0) {
        return rc;
    }
    r->state = state = NEW(struct oci);
    take_base(state, &u);
    rc = take_registry_names(r, conf, e);
    state->library = oci_is_hub(r->names);
    return rc;
}

static void oci_close(struct repo *r)
{
    struct oci *state = r->state;

    if (state != NULL) {
        free(state->base);
        free(state->prefix);
        free(state);
    }
}

/* --- plans ------------------------------------------------------------------------------------ */

struct ask {
    const struct repo *r;
    const struct oci *state;
    const struct http_req *req;
    struct oci_path at;
    const struct rule *rule;
    struct arena *a;
    struct plan *p;
};

/* The query without `ns`: that was ours to read. */
static struct slice query_of(const struct ask *k)
{
    struct slice rest = k->req->query;
    struct slice out = SLICE_NONE;

    while (rest.n != 0) {
        struct slice one = slice_cut(&rest, '&');
        if (one.n == 0 || slice_starts(one, SLICE("ns="))) {
            continue;
        }
        out = out.p == NULL
                  ? one
                  : arena_fmt(k->a, SLICE_FMT "&" SLICE_FMT, SLICE_ARG(out), SLICE_ARG(one));
    }
    return out;
}

/* path: "library/alpine/manifests/latest" */
static void lookup(struct ask *k, struct slice path, struct slice query)
{
    struct plan *p = k->p;

    plan_lookup(k->r, k->rule, path, k->a, p);
    p->lookup.key = plan_key(path, query, k->a);
    p->lookup.url = plan_url(k->state->base, path, query, k->a);
    p->lookup.token_scope =
        arena_fmt(k->a, "repository:%s" SLICE_FMT ":pull", k->state->prefix, SLICE_ARG(k->at.name));
    if (k->rule->built_in) {
        p->lookup.ttl_s = TAG_TTL_S;
        p->lookup.neg_ttl_s = NO_TTL_S;
    }
    p->lookup.refusal_ttl_s = p->lookup.neg_ttl_s;
    if (k->rule->status_maps == 0) {
        p->lookup.status_map = refused_is_denied;
        p->lookup.status_maps = ARRAY_LEN(refused_is_denied);
    }
}

/* The digest is its name: it is for ever, and held to it. Where all may read all, a layer that came
 * with one image is there for the others. */
static void plan_by_digest(struct ask *k, struct slice held_by)
{
    const struct oci_digest *d = &k->at.digest;
    struct plan *p = k->p;

    p->lookup.class = LOOKUP_IMMUTABLE;
    p->lookup.digest_known = d->called.by == CALLED_SHA256;
    p->lookup.digest = d->called.sha256;
    if (d->called.by == CALLED_SHA512) {
        p->lookup.sum = (struct lookup_sum){LOOKUP_SUM_SHA512, .sha512 = d->called.sha512};
    }
    p->lookup.held_by = k->r->anonymous_read ? held_by : SLICE_NONE;
    p->etag = arena_fmt(k->a, "\"" SLICE_FMT "\"", SLICE_ARG(d->text));
    plan_field(p, SLICE("docker-content-digest"), d->text);
}

static void plan_manifest(struct ask *k, struct slice path)
{
    struct plan *p = k->p;

    lookup(k, path, SLICE_NONE);
    p->lookup.accept = SLICE(MANIFEST_TYPES);
    p->delivery = DELIVERY_WHOLE;
    p->content_type = SLICE("application/vnd.oci.image.manifest.v1+json");
    if (k->at.by_digest) {
        plan_by_digest(k, SLICE("/manifests/"));
    } else {
        p->lookup.class = LOOKUP_MUTABLE;
        p->lookup.repr_digest = REPR_DIGEST_ASKED;
    }
}

static void plan_blob(struct ask *k, struct slice path)
{
    struct plan *p = k->p;

    lookup(k, path, SLICE_NONE);
    plan_by_digest(k, SLICE("/blobs/"));
    p->lookup.redirects = REDIRECTS_HOLD;
    p->fields_of = FIELDS_OWN;
    p->content_type = SLICE("application/octet-stream");
}

static void plan_list(struct ask *k, struct slice path)
{
    lookup(k, path, query_of(k));
    k->p->lookup.class = LOOKUP_MUTABLE;
    k->p->content_type = k->at.kind == OCI_TAGS ? SLICE("application/json")
                                                : SLICE("application/vnd.oci.image.index.v1+json");
    k->p->location = k->req->path; /* what the link to its next part begins with */
}

static void plan_image(struct ask *k, struct slice path)
{
    switch (k->at.kind) {
    case OCI_MANIFEST:
        plan_manifest(k, path);
        break;
    case OCI_BLOB:
        plan_blob(k, path);
        break;
    case OCI_TAGS:
    case OCI_REFERRERS:
        plan_list(k, path);
        break;
    case OCI_UPLOADS:
    case OCI_UPLOAD:
    case OCI_OTHER:
        CHECK(false); /* answered before */
    }
    oci_fields(k->req, k->p, k->a);
}

/* "<name>/manifests/<reference>" again, as the origin spells the name. */
static struct slice path_of_synced_oci(struct ask *k)
{
    static const char *const word[] = {
        [OCI_MANIFEST] = "/manifests/",
        [OCI_BLOB] = "/blobs/",
        [OCI_TAGS] = "/tags/list",
        [OCI_REFERRERS] = "/referrers/",
    };

    if (k->state->library && slice_find(k->at.name, '/') < 0) {
        k->at.name = arena_fmt(k->a, "library/" SLICE_FMT, SLICE_ARG(k->at.name));
    }
    return arena_fmt(k->a, SLICE_FMT "%s" SLICE_FMT, SLICE_ARG(k->at.name), word[k->at.kind],
                     SLICE_ARG(k->at.reference));
}

/* True: answered. */
static bool refuses(struct ask *k)
{
    bool reads = k->req->method == METHOD_GET || k->req->method == METHOD_HEAD;

    if (k->at.kind == OCI_UPLOADS || k->at.kind == OCI_UPLOAD || !reads) {
        oci_say(k->p, OCI_UNSUPPORTED,
                arena_fmt(k->a,
                          "repo %s is a mirror of a registry and does not accept pushes; push to a "
                          "hosted repo",
                          k->r->name),
                k->a);
        return true;
    }
    if (k->at.kind == OCI_OTHER) {
        oci_say(k->p, OCI_NAME_UNKNOWN,
                SLICE("no such path in a registry; there are <name>/manifests/<reference>, "
                      "<name>/blobs/<digest>, <name>/tags/list and <name>/referrers/<digest>"),
                k->a);
        return true;
    }
    return false;
}

static int oci_plan(const struct repo *r, const struct http_req *req, struct slice path,
                    const struct principal *who, const struct results *results, struct arena *arena,
                    struct plan *out, struct err *e)
{
    struct ask k = {.r = r, .state = r->state, .req = req, .a = arena, .p = out};
    struct err why = {0};
    enum oci_code code;

    (void)who;
    (void)results;
    (void)e;
    if (!oci_asked(req)) {
        plan_reply(
            out, 404,
            arena_fmt(arena,
                      "repo %s is a registry of container images; clients use it below /v2/%s/, "
                      "for example `skopeo inspect docker://<this host>/%s/<name>`\n",
                      r->name, r->name, r->name));
        return 0;
    }
    if (oci_path_parse(path, arena, &k.at, &code, &why) != 0) {
        oci_say(out, code, arena_copy(arena, slice_str(why.text)), arena);
        return 0;
    }
    if (refuses(&k)) {
        return 0;
    }
    path = path_of_synced_oci(&k);
    k.rule = plan_rule(r, path, arena);
    if (k.rule->class == RULE_DENY) {
        oci_say(out, OCI_DENIED, SLICE("a rule of this repo denies this path"), arena);
        return 0;
    }
    plan_image(&k, path);
    return 0;
}

/* --- answers ---------------------------------------------------------------------------------- */

/* What else an origin says is about its own machinery, budgets and addresses. */
static bool passes(struct slice name)
{
    static const char *const names[] = {
        "content-type", "etag", "accept-ranges",       "cache-control",    "last-modified",
        "repr-digest",  "link", "oci-filters-applied", "content-encoding",
    };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (slice_eqs(name, names[i])) {
            return true;
        }
    }
    return false;
}

/* Where the list goes on at the origin, only the query tells; the path is the client's own. p ==
 * NULL: it does not. */
static struct slice next_of(const struct plan *p, struct slice link, struct arena *a)
{
    struct slice rest = link;
    struct slice target;

    (void)slice_cut(&rest, '<');
    target = slice_cut(&rest, '>');
    if (memmem(rest.p, rest.n, "next", 4) == NULL || slice_find(target, '?') < 0) {
        return SLICE_NONE;
    }
    (void)slice_cut(&target, '?');
    for (size_t i = 0; i < target.n; i++) {
        if (target.p[i] <= ' ' || target.p[i] >= 0x7f || target.p[i] == '"') {
            return SLICE_NONE;
        }
    }
    for (size_t i = 0; i < p->nfields; i++) {
        if (slice_eqs(p->fields[i].name, "oci-namespace")) {
            return arena_fmt(a, "<" SLICE_FMT "?ns=" SLICE_FMT "&" SLICE_FMT ">; rel=\"next\"",
                             SLICE_ARG(p->location), SLICE_ARG(url_encoded(p->fields[i].value, a)),
                             SLICE_ARG(target));
        }
    }
    return arena_fmt(a, "<" SLICE_FMT "?" SLICE_FMT ">; rel=\"next\"", SLICE_ARG(p->location),
                     SLICE_ARG(target));
}

/* The origin's own link leads past this server and is not passed on: this is its query at our
 * path. */
static void add_next(const struct plan *p, const struct answer *a, struct arena *arena,
                     struct http_reply *reply)
{
    for (size_t i = 0; i < a->nfields; i++) { /* there may be several */
        struct slice next = slice_eqs(a->fields[i].name, "link")
                                ? next_of(p, a->fields[i].value, arena)
                                : SLICE_NONE;
        if (next.p != NULL && reply->nfields < ARRAY_LEN(reply->fields)) {
            reply->fields[reply->nfields++] = (struct http_field){SLICE("link"), next};
            return;
        }
    }
}

static void oci_answer(const struct repo *r, const struct plan *p, const struct answer *a,
                       struct arena *arena, struct http_reply *reply)
{
    size_t n = 0;

    (void)r;
    for (size_t i = 0; i < reply->nfields; i++) {
        struct http_field f = reply->fields[i];
        if (slice_eqs(f.name, "content-type")) {
            f.value = slice_trim(slice_cut(&f.value, ';')); /* a media type is compared as text */
        }
        if (passes(f.name)) {
            reply->fields[n++] = f;
        }
    }
    reply->nfields = n;
    if (a != NULL && p->location.p != NULL) {
        add_next(p, a, arena, reply);
    }
    if (p->kind == PLAN_LOOKUP && p->delivery == DELIVERY_WHOLE &&
        p->etag.p == NULL) { /* a tag: the digest is known by now */
        char hex[DIGEST_HEX + 1];
        digest_format(&p->lookup.digest, hex);
        reply_addf(reply, arena, "docker-content-digest", "sha256:%s", hex);
    }
}

static bool oci_kept(const struct repo *r, struct slice key, struct arena *a, struct lookup *out)
{
    struct slice path = slice_cut(&key, '?');
    struct plan p = {0};
    struct ask k = {.r = r, .state = r->state, .a = a, .p = &p};
    enum oci_code code;

    k.rule = plan_rule(r, path, a);
    if (oci_path_parse(path, a, &k.at, &code, NULL) != 0 || k.rule->class == RULE_DENY) {
        return false;
    }
    lookup(&k, path, SLICE_NONE);
    *out = p.lookup;
    out->class = k.at.by_digest && k.at.kind != OCI_REFERRERS ? LOOKUP_IMMUTABLE : LOOKUP_MUTABLE;
    return true;
}

const struct repo_ops repo_oci = {
    .name = "oci",
    .stale_first = true,
    .registry = true,
    .open = oci_open,
    .close = oci_close,
    .plan = oci_plan,
    .answer = oci_answer,
    .kept = oci_kept,
};
