/* Verbs about what is kept of origins: cache.*. */
#include "common/os/clock.h"
#include "server/admin/talk.h"
#include "server/cache/freshness.h"
#include "server/cache/variant.h"
#include "server/plan/run.h"
#include "server/repo/plan.h"
#include "server/store/keep.h"

/* --- cache.ls --- */

struct listing {
    struct talk *t;
    struct repo *repo;
    uint64_t now_unix_s;
    uint64_t most, rows;
};

struct asked { /* a request that nobody has made */
    struct arena arena;
    struct http_req req;
    struct plan plan;
    struct plan_run run;
};

static void asked_fini(struct asked *x)
{
    plan_run_fini(&x->run);
    arena_fini(&x->arena);
}

/* For how long an object is good is the rules' word, not the row's: the adapter plans a request for
 * its key. NULL: no request leads to it (any more), or not by rows alone. */
static const struct lookup *lookup_of(const struct listing *l, struct slice key, struct asked *x)
{
    static const struct principal nobody = {.name = SLICE_NONE};
    struct arena *a = &x->arena;

    *x = (struct asked){.req = {.method = METHOD_GET, .method_text = SLICE("GET"), .arena = a}};
    x->run = (struct plan_run){.planner = planners_at(l->t->deps->hub->planners, 0),
                               .repo = l->repo,
                               .req = &x->req,
                               .who = &nobody,
                               .arena = a,
                               .plan = &x->plan,
                               .reads_only = true};
    plan_run_init(&x->run);
    if (l->repo->ops->kept != NULL && l->repo->ops->kept(l->repo, key, a, &x->plan.lookup)) {
        return &x->plan.lookup;
    }
    x->run.path = plan_url("", slice_cut(&key, '?'), SLICE_NONE, a);
    x->req.query = key.n > 0 ? key : SLICE_NONE;
    x->req.path = arena_fmt(a, "/%s/" SLICE_FMT, l->repo->name, SLICE_ARG(x->run.path));
    return plan_run_wait(&x->run, NULL, NULL) == 0 && x->plan.kind == PLAN_LOOKUP ? &x->plan.lookup
                                                                                  : NULL;
}

static void freshness_members(struct buf *row, const struct listing *l, const struct object_info *o)
{
    struct object known = {.digest = o->digest,
                           .origin = o->origin,
                           .validated_unix_s = o->validated_unix_s,
                           .fresh_until_unix_s = o->fresh_until_unix_s,
                           .must_ask = o->must_ask};
    struct slice variant = variant_of_row(o->key);
    struct asked x;
    const struct lookup *w =
        lookup_of(l, slice_first(o->key, o->key.n - (variant.n != 0 ? variant.n + 1 : 0)), &x);
    uint64_t until_s;

    if (w == NULL) {
        jwrite_str(row, "state", "unreachable");
        jwrite_null(row, "fresh_until_unix_s");
    } else if (!object_answers(&known, w)) {
        jwrite_str(row, "state", "other-origin");
        jwrite_null(row, "fresh_until_unix_s");
    } else if (w->class == LOOKUP_IMMUTABLE) {
        jwrite_str(row, "state", "immutable");
        jwrite_null(row, "fresh_until_unix_s");
    } else {
        until_s = known.must_ask ? 0 : freshness_until(&known, w);
        jwrite_str(row, "state", l->now_unix_s < until_s ? "fresh" : "stale");
        jwrite_u64(row, "fresh_until_unix_s", until_s);
    }
    asked_fini(&x);
}

static int on_cache_object(void *arg, const struct object_info *o)
{
    struct listing *l = arg;
    struct slice variant = variant_of_row(o->key);
    struct buf *row;

    if (l->rows++ >= l->most) {
        return 1;
    }
    row = talk_row(l->t);
    jwrite_text(row, "repo", o->repo);
    jwrite_text(row, "key",
                variant.n != 0 ? slice_first(o->key, o->key.n - variant.n - 1) : o->key);
    if (variant.n != 0) {
        jwrite_text(row, "variant", slice_first(slice_from(variant, 1), variant.n - 2));
    }
    jwrite_u64(row, "size", o->size_bytes);
    if (!digest_is_zero(&o->digest)) {
        jwrite_hex(row, "sha256", o->digest.b, DIGEST_BYTES);
    }
    jwrite_u64(row, "stored_unix_s", o->stored_unix_s);
    freshness_members(row, l, o);
    return talk_row_end(l->t);
}

int verb_cache_ls(struct talk *t, struct err *e)
{
    struct listing l = {
        .t = t, .now_unix_s = clock_unix_s(), .most = talk_number(t, "limit", 1000)};
    struct repo_set *rs;
    int rc = talk_need_repo(t, &rs, &l.repo, e);

    if (rc == 0) {
        rc = cache_list(t->deps->cache, slice_str(l.repo->name), talk_text(t, "prefix"),
                        on_cache_object, &l, e);
        jwrite_bool(t->result, "more", l.rows > l.most);
    }
    repo_set_release(&rs);
    return rc < 0 ? rc : 0;
}

/* --- the other verbs of cache --- */

int verb_cache_stats(struct talk *t, struct err *e)
{
    struct store_space sp;
    struct cache_stats st;

    (void)e;
    store_space(t->deps->store, &sp);
    cache_stats(t->deps->cache, &st);
    jwrite_u64(t->result, "used", sp.used_bytes);
    jwrite_u64(t->result, "quota", sp.quota_bytes);
    jwrite_u64(t->result, "small", sp.small_bytes);
    jwrite_u64(t->result, "staged", sp.staged_bytes);
    jwrite_u64(t->result, "parked", sp.parked_bytes);
    jwrite_u64(t->result, "free", sp.disk_free_bytes);
    jwrite_u64(t->result, "blobs", sp.blobs);
    jwrite_bool(t->result, "full", sp.full);
    jwrite_u64(t->result, "hits", st.hits);
    jwrite_u64(t->result, "misses", st.misses);
    jwrite_u64(t->result, "collapsed", st.collapsed);
    jwrite_u64(t->result, "revalidated", st.revalidated);
    jwrite_u64(t->result, "stale", st.stale);
    jwrite_u64(t->result, "negative", st.negative);
    jwrite_u64(t->result, "failed", st.failed);
    jwrite_u64(t->result, "fills", st.fetches);
    jwrite_u64(t->result, "fill_bytes", st.fetch_total_bytes);
    jwrite_u64(t->result, "verify_failures", st.verify_failures);
    jwrite_u64(t->result, "evicted_blobs", st.evicted_blobs);
    jwrite_u64(t->result, "evicted_bytes", st.evicted_bytes);
    return 0;
}

/* A scope is a repo, or a repo, '/' and the beginning of keys. */
static int need_scope(struct talk *t, struct slice *scope, struct err *e)
{
    struct repo_set *rs;
    struct slice rest;
    int rc = talk_need(t, "scope", scope, e);

    if (rc != 0) {
        return rc;
    }
    rest = *scope;
    rs = repo_set_hold(t->deps->repos);
    if (repo_set_find(rs, slice_cut(&rest, '/')) == NULL) {
        rc = err_set(e, E_NOTFOUND,
                     "\"" SLICE_FMT "\" does not begin with the name of a repo; write REPO or "
                     "REPO/PREFIX, see `mirrorctl repo ls`",
                     SLICE_ARG(*scope));
    }
    repo_set_release(&rs);
    return rc;
}

int verb_cache_pin(struct talk *t, struct err *e)
{
    struct slice scope;
    int rc = need_scope(t, &scope, e);

    return rc != 0 ? rc : pin_set(t->deps->store, scope, SLICE("mirrorctl"), e);
}

int verb_cache_unpin(struct talk *t, struct err *e)
{
    struct slice scope;
    int rc = talk_need(t, "scope", &scope, e); /* its repo may be gone from the configuration */

    return rc != 0 ? rc : pin_clear(t->deps->store, scope, e);
}

static int on_pin(void *arg, const struct pin_info *p)
{
    struct buf *row = talk_row(arg);

    jwrite_text(row, "scope", p->scope);
    jwrite_text(row, "owner", p->owner);
    return talk_row_end(arg);
}

int verb_cache_pins(struct talk *t, struct err *e)
{
    int rc = pin_list(t->deps->store, on_pin, t, e);

    return rc < 0 ? rc : 0;
}

static int count_object(void *arg, const struct object_info *o)
{
    (void)o;
    ++*(uint64_t *)arg;
    return 0;
}

static int first_object(void *arg, const struct object_info *o)
{
    (void)o;
    *(bool *)arg = true;
    return 1;
}

/* What was published is no cache: nothing of it could be fetched again. */
static int not_hosted(struct talk *t, struct slice scope, struct err *e)
{
    struct slice rest = scope;
    struct repo_set *rs = repo_set_hold(t->deps->repos);
    const struct repo *r = repo_set_find(rs, slice_cut(&rest, '/'));
    int rc = 0;

    if (r != NULL && r->origin == NULL) {
        rc = err_set(e, E_USAGE,
                     "\"" SLICE_FMT "\" is in a hosted repo, whose files have no origin to "
                     "fetch them from again; see `mirrorctl snapshot`, or DELETE it with a token",
                     SLICE_ARG(scope));
    }
    repo_set_release(&rs);
    return rc;
}

/* Also what a repo left behind that is gone from the configuration. */
static int need_kept_scope(struct talk *t, struct slice *scope, struct err *e)
{
    struct slice rest;
    bool kept = false;
    int rc = talk_need(t, "scope", scope, e);

    if (rc == 0) {
        rest = *scope;
        rc = cache_list(t->deps->cache, slice_cut(&rest, '/'), SLICE_NONE, first_object, &kept, e);
    }
    if (rc < 0) {
        return rc;
    }
    rc = kept ? 0 : need_scope(t, scope, e);
    return rc != 0 || kept ? rc : not_hosted(t, *scope, e);
}

int verb_cache_rm(struct talk *t, struct err *e)
{
    struct slice scope, repo, rest;
    uint64_t removed = 0;
    int rc = need_kept_scope(t, &scope, e);

    if (rc != 0) {
        return rc;
    }
    rest = scope;
    repo = slice_cut(&rest, '/');
    if (rest.n == 0 && !talk_flag(t, "all")) {
        return err_set(e, E_USAGE,
                       "\"" SLICE_FMT "\" is a whole repo, which would be fetched again; give "
                       "REPO/PREFIX, or add --all if you mean that",
                       SLICE_ARG(scope));
    }
    if (talk_flag(t, "dry_run")) {
        uint64_t rows = 0;
        rc = cache_list(t->deps->cache, repo, rest, count_object, &rows, e);
        jwrite_u64(t->result, "removed", 0);
        jwrite_u64(t->result, "would_remove", rows);
        return rc < 0 ? rc : 0;
    }
    rc = cache_remove(t->deps->cache, repo, rest, true, &removed, e);
    repos_changed(t->deps->repos, repo);
    jwrite_u64(t->result, "removed", removed);
    return rc;
}

/* --- cache.refresh --- */

/* What never changes is left alone; of what is kept for one caller alone, no plan of ours tells. */
static bool may_change(void *arg, const struct object_info *o)
{
    const struct listing *l = arg;
    struct slice variant = variant_of_row(o->key);
    struct slice key = slice_first(o->key, o->key.n - (variant.n != 0 ? variant.n + 1 : 0));
    struct asked x;
    const struct lookup *w = lookup_of(l, key, &x);
    bool may = w == NULL || w->class == LOOKUP_MUTABLE;

    asked_fini(&x);
    return may;
}

static int expire(struct listing *l, const json_t *prefixes, struct err *e)
{
    struct slice repo = slice_str(l->repo->name);
    uint64_t all = 0, expired;
    const json_t *one;
    size_t i;
    int rc = 0;

    json_array_foreach(prefixes, i, one)
    {
        const char *prefix = json_string_value(one);
        if (rc == 0) {
            rc = prefix == NULL ? err_set(e, E_USAGE, "\"prefixes\" may contain only strings")
                                : cache_expire(l->t->deps->cache, repo, slice_str(prefix),
                                               may_change, l, &expired, e);
            all += rc == 0 ? expired : 0;
        }
    }
    repos_changed(l->t->deps->repos, repo);
    jwrite_u64(l->t->result, "marked", all);
    return rc;
}

int verb_cache_refresh(struct talk *t, struct err *e)
{
    struct listing l = {.t = t};
    struct repo_set *rs;
    int rc = talk_need_repo(t, &rs, &l.repo, e);

    if (rc == 0 && (l.repo->origin == NULL || l.repo->synced)) {
        rc = err_set(e, E_USAGE,
                     "repo \"%s\" is hosted or synced, so its requests never ask an origin; a "
                     "synced one is refreshed by `mirrorctl sync run`",
                     l.repo->name);
    } else if (rc == 0) {
        rc = expire(&l, json_object_get(t->request, "prefixes"), e);
    }
    repo_set_release(&rs);
    return rc;
}
