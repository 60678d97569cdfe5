/* sync.c - the section of a repo's sync: what its list is, and whether all of it goes together. */
#include "server/conf/section.h"

#include "common/codec/filter.h"
#include "server/conf/s3.h"
#include "server/sync/sync.h"

static bool is_rsync(const char *url)
{
    return url != NULL && (strncmp(url, "rsync", 5) == 0 || strncmp(url, "ssh://", 6) == 0);
}

/* What a repo of a protocol of its own is listed by follows from that. */
static int settle_list(const struct settings_node *nd, const struct repo_conf *r,
                       struct sync_conf *c, struct err *e)
{
    static const char *const pythons[] = {"3.10", "3.11", "3.12", "3.13"};
    static const char *const platforms[] = {"manylinux_2_28_x86_64"};
    bool hf = strcmp(r->protocol, "hf") == 0;
    bool pypi = strcmp(r->protocol, "pypi") == 0;
    bool conda = strcmp(r->protocol, "conda") == 0;

    if (!hf && !pypi && !conda && strcmp(r->protocol, "generic") != 0) {
        return settings_wrong(
            nd->at, e,
            "repo \"%s\" has a sync section, protocol %s cannot be synced, remove "
            "it",
            r->name, r->protocol);
    }
    if (c->engine != NULL && strcmp(c->engine, "http") != 0) {
        return 0; /* another mirror has such a tree already */
    }
    if (hf != (c->repos_count != 0)) {
        return settings_wrong(nd->at, e,
                              hf ? "repo \"%s\" has a sync section that lists nothing, write repos "
                                   "= {\"owner/name\"}"
                                 : "repo \"%s\" is no Hub, it cannot have repos, remove them",
                              r->name);
    }
    if (pypi != (c->requirements_count != 0)) {
        return settings_wrong(
            nd->at, e,
            pypi ? "repo \"%s\" has a sync section that requires nothing, write requirements "
                   "= {\"torch>=2.4\"}"
                 : "repo \"%s\" is no package index, it cannot have requirements, remove them",
            r->name);
    }
    if (hf && r->credentials != NULL && strcmp(r->credentials, "caller") == 0) {
        return settings_wrong(settings_where(nd, "credentials"), e,
                              "repo \"%s\" has credentials = caller, what is synced was fetched "
                              "before anybody asked, remove it",
                              r->name);
    }
    if (conda && strcmp(c->list, "index") == 0 && r->origin.url != NULL &&
        origin_speaks(r->origin.url)) {
        c->list = "conda";
    }
    c->list = hf ? "hf" : pypi ? "pypi" : c->list;
    if (c->python_count == 0) {
        c->python = pythons;
        c->python_count = ARRAY_LEN(pythons);
    }
    if (c->platforms_count == 0) {
        c->platforms = platforms;
        c->platforms_count = ARRAY_LEN(platforms);
    }
    return 0;
}

/* Rule by rule, so that the error names the line. */
static int check_filter(const struct settings_node *nd, struct err *e)
{
    const struct filter_rule *bad = NULL;
    struct filter f = {.count = 0};
    struct err why = {0};
    int rc = 0;

    for (const struct settings_given *g = settings_given(nd, "filter"); g != NULL && rc == 0;
         g = g->next) {
        if (filter_add_own(&f, slice_str(g->text), &why) != 0) {
            rc = settings_wrong(g->at, e, "filter: %s", why.text);
        }
    }
    if (rc == 0 && filter_check(&f, &bad, &why) != 0) {
        rc = settings_wrong(settings_where(nd, "filter"), e, "filter: %s", why.text);
    }
    filter_fini(&f);
    return rc;
}

int section_sync(struct settings_node *nd, struct repo_conf *r, struct arena *a, struct err *e)
{
    struct sync_conf *c = ARENA_NEW(a, struct sync_conf);
    struct err why = {0};
    int rc;

    if (settings_children(nd, SECTION_SYNC) == 0) {
        return !is_rsync(r->origin.url)
                   ? 0
                   : settings_wrong(
                         settings_where(nd, "origin"), e,
                         "repo \"%s\" has an origin by rsync or ssh and no sync section, single "
                         "files cannot be asked for that way, add sync { }",
                         r->name);
    }
    rc = section_single(nd, SECTION_SYNC, c, a, e);
    rc = rc != 0 ? rc : settle_list(nd, r, c, e);
    for (const struct settings_node *s = nd->child; s != NULL && rc == 0; s = s->next) {
        rc = s->section == SECTION_SYNC ? check_filter(s, e) : 0;
    }
    if (rc == 0 && sync_check(c, &r->origin, &why) != 0) {
        rc = settings_wrong(nd->at, e, "repo \"%s\": %s", r->name, why.text);
    }
    for (size_t i = 0; rc == 0 && i < c->upstreams_count; i++) {
        if (s3_origin_is(c->upstreams[i])) {
            rc = s3_origin_is(r->origin.url)
                     ? s3_origin_try(nd, r, "origin", c->upstreams[i], e)
                     : settings_wrong(nd->at, e,
                                      "repo \"%s\" has an upstream by s3 and an origin that is "
                                      "not, endpoint and keys are the origin's, let both be s3",
                                      r->name);
        }
    }
    r->sync = c;
    return rc;
}
