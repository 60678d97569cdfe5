/* generic.c - any tree of files at an origin: a path below the repo is that path below the origin,
 * and the rules say how long it is fresh. With a sync section it is synced, and answered from its
 * snapshot. docs/protocols/generic.md */
#include "server/repo/forward.h"
#include "server/repo/folder.h"
#include "server/repo/generic/synced.h"
#include "server/repo/plan.h"

static int generic_open(struct repo *r, const struct repo_conf *conf, struct err *e)
{
    if (r->origin == NULL && conf->sync == NULL) {
        return err_set(e, E_CONFIG, "protocol \"generic\" needs an origin = \"https://...\"");
    }
    return 0;
}

/* Of a bucket single objects are for everybody who may read the repo; its lists, policies and the
 * like, which a query or the bucket's own path would ask for with our keys, are not. */
static bool is_object(struct slice clean, struct slice query)
{
    return clean.n != 0 && clean.p[clean.n - 1] != '/' && !slice_ends(clean, SLICE("%2F")) &&
           (query.p == NULL || (slice_starts(query, SLICE("versionId=")) && query.n > 10 &&
                                slice_find(query, '&') < 0));
}

static int generic_plan(const struct repo *r, const struct http_req *req, struct slice path,
                        const struct principal *who, const struct results *results,
                        struct arena *arena, struct plan *out, struct err *e)
{
    const struct rule *rule;
    struct slice clean;
    int rc;

    (void)who;
    if (!plan_enter(req, path, arena, &clean, out, &rc, e)) {
        return rc;
    }
    rule = plan_rule(r, clean, arena);
    if (rule->class == RULE_DENY) {
        plan_reply(out, 403, SLICE("a rule of this repo denies this path\n"));
        return 0;
    }
    if (r->synced) {
        synced_plan(r, req, clean, results, arena, out);
        return 0;
    }
    if (origin_bucket(r->origin) != NULL && !is_object(clean, req->query)) {
        plan_reply(out, req->query.p != NULL ? 403 : 404,
                   SLICE("this repo is a bucket; request an object by its key, with no query "
                         "except versionId\n"));
        return 0;
    }
    plan_lookup(r, rule, clean, arena, out);
    if (origin_bucket(r->origin) == NULL) { /* a bucket's errors name it and its keys */
        out->lookup.errors |= ERRORS_PASSED_ON;
    }
    out->lookup.key = plan_key(clean, req->query, arena);
    out->lookup.url = plan_url(origin_url(r->origin), clean, req->query, arena);
    out->lookup.targets = r->targets;
    out->lookup.ntargets = r->ntargets;
    out->lookup.varies = origin_bucket(r->origin) == NULL && out->lookup.class == LOOKUP_MUTABLE;
    if ((r->forwards != 0 || out->lookup.varies) && !forward_read(r, req, &out->lookup)) {
        plan_reply(out, 431,
                   SLICE("the request fields that this repo forwards are longer than 2048 bytes; "
                         "shorten them\n"));
    }
    return 0;
}

const struct repo_ops repo_generic = {
    .name = "generic",
    .open = generic_open,
    .plan = generic_plan,
    .list = folder_list,
};
