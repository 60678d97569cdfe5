#include "server/conf/repo.h"

#include "common/codec/filter.h"
#include "common/codec/nearest.h"
#include "server/conf/value.h"
#include "server/net/tls.h"
#include "server/repo/forward.h"
#include "server/repo/origin_field.h"
#include "server/repo/repo.h"
#include "server/sync/sync.h"

/* --- buckets ---
 *
 * Origins by s3, as a repo's settings say them.
 *
 * errors   E_CONFIG names the line
 */

/* s3://; NULL is not */
static bool s3_origin_is(const char *url)
{
    return url != NULL && strncmp(url, "s3://", 5) == 0;
}

/* Whether its settings make an origin of this URL, that of `key` or another with the same keys. */
/* Built once, so that the error names the line. */
static int try_origin(const struct settings_node *nd, const struct repo_conf *r, const char *key,
                      const char *url, size_t urls_count, struct err *e)
{
    struct origin_settings set = r->origin;
    struct origin *o = NULL;
    struct err why = {0};
    int rc;

    set.url = url;
    set.urls_count = urls_count;
    rc = origin_new(r->name, &set, &o, &why);
    origin_free(&o);
    return rc == 0
               ? 0
               : settings_wrong(settings_where(nd, key), e, "repo \"%s\": %s", r->name, why.text);
}

/* A list of origins: each is one that is asked file by file, and all get the same credential. */
static int check_origins(const struct settings_node *nd, const struct repo_conf *r, struct err *e)
{
    struct settings_place at;

    if (r->origin.urls_count < 2) {
        return 0;
    }
    at = settings_where(nd, "origin");
    for (size_t i = 0; i < r->origin.urls_count; i++) {
        if (!origin_speaks(r->origin.urls[i]) || s3_origin_is(r->origin.urls[i])) {
            return settings_wrong(at, e,
                                  "repo \"%s\" has a list of origins with %.100s, but only http "
                                  "and https origins may be several; for a sync, write the others "
                                  "as upstreams",
                                  r->name, r->origin.urls[i]);
        }
    }
    return try_origin(nd, r, "origin", r->origin.url, r->origin.urls_count, e);
}

/* Settings that are for such an origin alone, and the origin itself. */
static int s3_origin_check(const struct settings_node *nd, const struct repo_conf *r, struct err *e)
{
    static const char *const keys[] = {"endpoint", "region", "addressing"};

    for (size_t i = 0; i < ARRAY_LEN(keys) && !s3_origin_is(r->origin.url); i++) {
        if (settings_written(nd, keys[i])) {
            return settings_wrong(settings_where(nd, keys[i]), e,
                                  "repo \"%s\" has %s, which is only for an s3 origin; write "
                                  "origin = \"s3://bucket/\" or remove it",
                                  r->name, keys[i]);
        }
    }
    if (!s3_origin_is(r->origin.url)) {
        return 0;
    }
    if (strcmp(r->protocol, "generic") != 0) {
        return settings_wrong(settings_where(nd, "origin"), e,
                              "repo \"%s\" has an s3 origin, which protocol %s does not "
                              "support; write protocol = generic",
                              r->name, r->protocol);
    }
    return try_origin(nd, r, "origin", r->origin.url, 0, e);
}

/* --- sync ---
 *
 * The section of a repo's sync: what its list is, and whether all of it goes together.
 */

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
            "repo \"%s\" has a sync section, but protocol %s cannot be synced; remove it", r->name,
            r->protocol);
    }
    if (c->engine != NULL && strcmp(c->engine, "http") != 0) {
        return 0; /* another mirror has such a tree already */
    }
    if (hf != (c->repos_count != 0)) {
        return settings_wrong(nd->at, e,
                              hf ? "repo \"%s\" has a sync section that names no repositories; "
                                   "write repos = {\"owner/name\"}"
                                 : "repo \"%s\" has repos, which are only for protocol hf; "
                                   "remove them",
                              r->name);
    }
    if (pypi != (c->requirements_count != 0)) {
        return settings_wrong(
            nd->at, e,
            pypi ? "repo \"%s\" has a sync section without requirements; write requirements = "
                   "{\"torch>=2.4\"}"
                 : "repo \"%s\" has requirements, which are only for protocol pypi; remove them",
            r->name);
    }
    if (hf && r->credentials != NULL && strcmp(r->credentials, "caller") == 0) {
        return settings_wrong(settings_where(nd, "credentials"), e,
                              "repo \"%s\" has credentials = caller and a sync section, but a "
                              "sync has no caller; remove credentials",
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

/* Of the repo's section `nd`, when it has one. */
static int section_sync(struct settings_node *nd, struct repo_conf *r, struct arena *a,
                        struct err *e)
{
    struct sync_conf *c = ARENA_NEW(a, struct sync_conf);
    struct err why = {0};
    int rc;

    if (settings_children(nd, SECTION_SYNC) == 0) {
        return !is_rsync(r->origin.url)
                   ? 0
                   : settings_wrong(
                         settings_where(nd, "origin"), e,
                         "repo \"%s\" has an rsync or ssh origin, which cannot serve single "
                         "files, and no sync section; add sync { }",
                         r->name);
    }
    rc = values_single(nd, SECTION_SYNC, c, a, e);
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
                     ? try_origin(nd, r, "origin", c->upstreams[i], 0, e)
                     : settings_wrong(nd->at, e,
                                      "repo \"%s\" has an s3 upstream, which uses the endpoint "
                                      "and keys of the origin, but the origin is not s3; write "
                                      "an s3 origin too",
                                      r->name);
        }
    }
    r->sync = c;
    return rc;
}

static bool name_valid(const char *name)
{
    static const char *const reserved[] = {"healthz", "readyz", "metrics", "v2", "-"};
    size_t n = strlen(name);

    for (size_t i = 0; i < ARRAY_LEN(reserved); i++) {
        if (strcmp(name, reserved[i]) == 0) {
            return false;
        }
    }
    return n > 0 && n < 64 && name[0] != '.' && name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

static int read_rules(const struct settings_node *nd, struct repo_conf *r, struct arena *a,
                      struct err *e)
{
    size_t n = settings_children(nd, SECTION_RULE), i = 0;
    struct rule_conf *rules = arena_alloc(a, (n + 1) * sizeof(*rules));
    int rc;

    for (const struct settings_node *c = nd->child; c != NULL; c = c->next) {
        struct rules *compiled = NULL;
        struct err why = {0};
        if (c->section != SECTION_RULE) {
            continue;
        }
        rules[i].pattern = c->title;
        rc = values_fill(c, &rules[i], a, e);
        if (rc != 0) {
            return rc;
        }
        /* One by one, so that the error names the line. */
        if (rules_compile(&rules[i], 1, &compiled, &why) != 0) {
            return settings_wrong(c->at, e,
                                  "rule '%.60s' cannot be compiled: %s; see pcre2pattern(3)",
                                  c->title, why.text);
        }
        rules_free(&compiled);
        i++;
    }
    r->rules = rules;
    r->rules_count = n;
    return 0;
}

static int unknown_protocol(const struct settings_node *nd, const char *said, struct err *e)
{
    static const char *const spoken[] = {
#define REPO(protocol) #protocol,
#include "server/repo/repos.def"
#undef REPO
    };
    const char *near = nearest_word(spoken, ARRAY_LEN(spoken), slice_str(said));

    return settings_wrong(settings_where(nd, "protocol"), e,
                          "protocol = \"%.40s\": unknown protocol; %s%s%s", said,
                          near != NULL ? "did you mean \"" : "see mirrord.conf(5) for the list",
                          near != NULL ? near : "", near != NULL ? "\"?" : "");
}

static int check_protocol(const struct settings_node *nd, const struct repo_conf *r, struct err *e)
{
    bool hosted = strcmp(r->protocol, "hosted") == 0;

    if (repo_ops_find(r->protocol) == NULL) {
        return unknown_protocol(nd, r->protocol, e);
    }
    if (hosted && r->origin.url != NULL) {
        return settings_wrong(
            settings_where(nd, "origin"), e,
            "repo \"%s\" is hosted and has an origin, but hosted files come from uploads; "
            "remove the origin",
            r->name);
    }
    if (!hosted && r->origin.url == NULL) {
        return settings_wrong(
            nd->at, e, "repo \"%s\" has no origin to fetch from; write origin = \"https://...\"",
            r->name);
    }
    return 0;
}

static int check_authorities(const struct settings_node *nd, const struct repo_conf *r,
                             struct err *e)
{
    struct err why = {0};

    if (r->origin.ca_file == NULL || tls_authorities_check(r->origin.ca_file, &why) == 0) {
        return 0;
    }
    return settings_wrong(settings_where(nd, "ca_file"), e,
                          "ca_file = \"%.80s\": the file contains no certificate; put the "
                          "certificates of the authorities there, as PEM",
                          r->origin.ca_file);
}

static int check_names(const struct settings_node *nd, const struct repo_conf *r, struct err *e)
{
    if (r->names_set && strcmp(r->protocol, "oci") != 0) {
        return settings_wrong(settings_where(nd, "names"), e,
                              "repo \"%s\" has names, which are only for protocol oci; remove "
                              "them",
                              r->name);
    }
    return 0;
}

static int wrong_forward(const struct settings_node *nd, struct err *e, const char *name,
                         const char *why)
{
    return settings_wrong(settings_where(nd, "forward"), e,
                          "forward = {\"%.64s\"}: %s; remove it from the list", name, why);
}

static int check_forward(const struct settings_node *nd, const struct repo_conf *r, struct err *e)
{
    const char *why = NULL;

    if (r->forward_count == 0) {
        return 0;
    }
    if (strcmp(r->protocol, "generic") != 0 || r->sync != NULL ||
        strncmp(r->origin.url, "http", 4) != 0) {
        return settings_wrong(settings_where(nd, "forward"), e,
                              "repo \"%s\" has forward, which is only for protocol generic with "
                              "an http origin and no sync; remove it",
                              r->name);
    }
    if (r->forward_count > FORWARD_MAX) {
        return settings_wrong(settings_where(nd, "forward"), e,
                              "repo \"%s\" has %zu fields in forward, but the limit is %d; name "
                              "only those that its responses vary by",
                              r->name, r->forward_count, FORWARD_MAX);
    }
    for (size_t i = 0; i < r->forward_count && why == NULL; i++) {
        why = forward_refuses(r->forward[i]);
        for (size_t j = 0; j < i && why == NULL; j++) {
            why = strcasecmp(r->forward[i], r->forward[j]) == 0 ? "it appears twice" : NULL;
        }
        if (why != NULL) {
            return wrong_forward(nd, e, r->forward[i], why);
        }
    }
    return 0;
}

/* A list of fields of an origin's answers. */
struct origin_names {
    const char *key;
    const char *const *name;
    size_t count, most;
    const char *(*refuses)(const char *name); /* why, or NULL */
    const char *todo;
};

static int check_origin_names(const struct settings_node *nd, const struct repo_conf *r,
                              const struct origin_names *l, struct err *e)
{
    struct settings_place at = settings_where(nd, l->key);

    if (l->count == 0) {
        return 0;
    }
    if (strcmp(r->protocol, "generic") != 0 || r->sync != NULL) {
        return settings_wrong(at, e,
                              "repo \"%s\" has %s, which is only for protocol generic with an "
                              "origin and no sync; remove it",
                              r->name, l->key);
    }
    if (l->count > l->most) {
        return settings_wrong(at, e,
                              "repo \"%s\" has %zu fields in %s, but the limit is %zu; remove "
                              "some",
                              r->name, l->count, l->key, l->most);
    }
    for (size_t i = 0; i < l->count; i++) {
        const char *why = l->refuses(l->name[i]);
        if (why != NULL) {
            return settings_wrong(at, e, "%s = {\"%.64s\"}: %s; %s", l->key, l->name[i], why,
                                  l->todo);
        }
    }
    return 0;
}

static int check_pass_headers(const struct settings_node *nd, const struct repo_conf *r,
                              struct err *e)
{
    return check_origin_names(
        nd, r,
        &(struct origin_names){"pass_headers", r->pass_headers, r->pass_headers_count,
                               ORIGIN_FIELD_NAMES, origin_field_refuses, "remove it from the list"},
        e);
}

static int check_targeted(const struct settings_node *nd, const struct repo_conf *r, struct err *e)
{
    return check_origin_names(
        nd, r,
        &(struct origin_names){"targeted_cache_control", r->targeted_cache_control,
                               r->targeted_cache_control_count, ORIGIN_FIELD_TARGETS,
                               origin_field_no_target, "name one such as CDN-Cache-Control"},
        e);
}

int section_repo(struct settings_node *nd, struct repo_conf *r, struct arena *a, struct err *e)
{
    struct access_conf access = {0};
    int rc = values_fill(nd, r, a, e);

    if (rc != 0) {
        return rc;
    }
    r->origin.url = r->origin.urls_count > 0 ? r->origin.urls[0] : NULL;
    r->name = nd->title;
    r->source = arena_fmt(a, "%s:%u", nd->at.file, nd->at.line).p;
    r->origin.hosts_set = settings_written(nd, "hosts");
    r->names_set = settings_written(nd, "names");
    r->origin.kind = r->protocol;
    r->origin.tokens = strcmp(r->protocol, "oci") == 0;
    if (!name_valid(nd->title)) {
        return settings_wrong(
            nd->at, e,
            "repo \"%.64s\": invalid name: it becomes the first part of its paths; use "
            "lower-case letters, digits, '.', '_' and '-', but not healthz, readyz, metrics or "
            "v2",
            nd->title);
    }
    rc = check_protocol(nd, r, e);
    rc = rc != 0 ? rc : check_authorities(nd, r, e);
    rc = rc != 0 ? rc : check_names(nd, r, e);
    rc = rc != 0 ? rc : check_origins(nd, r, e);
    rc = rc != 0 ? rc : s3_origin_check(nd, r, e);
    rc = rc != 0 ? rc : values_single(nd, SECTION_ACCESS, &access, a, e);
    if (rc == 0) {
        r->anonymous_read = strcmp(access.anonymous, "read") == 0;
        rc = read_rules(nd, r, a, e);
    }
    rc = rc != 0 ? rc : section_sync(nd, r, a, e);
    rc = rc != 0 ? rc : check_forward(nd, r, e);
    rc = rc != 0 ? rc : check_targeted(nd, r, e);
    return rc != 0 ? rc : check_pass_headers(nd, r, e);
}
