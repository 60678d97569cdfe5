/* conda.c - conda channels: indexes that change, packages and shards that do not. A path below the repo is that path below the
 * origin, which is a channel, or a server of many. With a sync section it is mirrored whole, as a generic repo's tree is.
 * docs/protocols/conda.md */
#include "server/repo/conda/path.h"
#include "server/repo/generic/synced.h"
#include "server/repo/plan.h"

enum {
    INDEX_TTL_S = 300,
    INDEX_SWR_S = 300, /* whoever asks within it does not wait for the origin */
};

/* Object stores say 403 for what is not there. Of a form that clients do without, that is all they need to know; of repodata.json
 * they are told what the origin said. */
static const struct status_map forbidden_is_absent[] = {{403, 404}};

static int conda_open(struct repo *r, const struct repo_conf *conf, struct err *e)
{
    if (r->origin == NULL && conf->sync == NULL) {
        return err_set(e, E_CONFIG, "protocol \"conda\" needs an origin = \"https://...\"");
    }
    return 0;
}

static void as_index(const struct conda_path *cp, const struct rule *rule, struct plan *p)
{
    if (!rule->built_in) {
        return;
    }
    p->want.ttl_s = INDEX_TTL_S;
    p->want.swr_s = INDEX_SWR_S;
    if (cp->optional) {
        p->want.status_map = forbidden_is_absent;
        p->want.status_maps = ARRAY_LEN(forbidden_is_absent);
    }
}

static void as_file(const struct conda_path *cp, const struct rule *rule, struct plan *p)
{
    if (rule->built_in) {
        p->want.class = WANT_IMMUTABLE;
    }
    if (cp->kind == CONDA_SHARD) {
        p->want.digest_known = digest_parse(slice_first(cp->name, DIGEST_HEX), &p->want.digest);
    }
}

/* No client of channels has a query, and an origin's files do not depend on one: it would only make copies. */
static void plan_path_of(const struct repo *r, struct slice path, struct arena *a, struct plan *p)
{
    struct conda_path cp = conda_path_of(path);
    const struct rule *rule = plan_rule(r, path, a);

    plan_want(r, rule, path, a, p);
    p->want.key = plan_key(path, SLICE_NONE, a);
    p->want.url = plan_url(origin_url(r->origin), path, SLICE_NONE, a);
    if (cp.kind == CONDA_INDEX) {
        as_index(&cp, rule, p);
    } else {
        as_file(&cp, rule, p);
    }
}

static int conda_plan(const struct repo *r, const struct http_req *req, struct slice path,
                      const struct principal *who, const struct facts *facts, struct arena *arena,
                      struct plan *out, struct err *e)
{
    struct slice clean;
    int rc = plan_path(path, arena, &clean, e);

    (void)who;
    if (rc != 0 || plan_refuses_method(req, out)) {
        return rc;
    }
    if (plan_rule(r, clean, arena)->class == RULE_DENY) {
        plan_reply(out, 403, SLICE("a rule of this repo denies the path\n"));
    } else if (r->synced) {
        synced_plan(r, req, clean, facts, arena, out);
    } else if (conda_path_of(clean).kind == CONDA_JLAP) {
        plan_reply(out, 404,
                   SLICE("this mirror gives no patches of repodata: ask for "
                         "repodata.json.zst or repodata.json\n"));
    } else {
        plan_path_of(r, clean, arena, out);
    }
    return 0;
}

const struct repo_ops repo_conda = {
    .name = "conda",
    .open = conda_open,
    .plan = conda_plan,
};
