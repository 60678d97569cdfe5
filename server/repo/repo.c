#include "server/repo/repo.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/repo/forward.h"
#include "server/repo/origin_field.h"

enum { NAME_MAX_BYTES = 63 };

static const struct repo_ops *const adapters[] = {
#define REPO(protocol) &repo_##protocol,
#include "server/repo/repos.def"
#undef REPO
};

/* ", conda, generic": begins with what stands between two. */
static const char protocols[] =
#define REPO(protocol) ", " #protocol
#include "server/repo/repos.def"
#undef REPO
    ;

const struct repo_ops *repo_ops_find(const char *protocol)
{
    for (size_t i = 0; protocol != NULL && i < ARRAY_LEN(adapters); i++) {
        if (strcmp(adapters[i]->name, protocol) == 0) {
            return adapters[i];
        }
    }
    return NULL;
}

/* A name is the first segment of every path below the repo, as written: nothing that a URL would
 * escape. */
static bool name_valid(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)name[i]) && (i == 0 || strchr("._-", name[i]) == NULL)) {
            return false;
        }
    }
    return n > 0 && n <= NAME_MAX_BYTES;
}

static int check_name(const struct repo_conf *conf, struct err *e)
{
    char path[NAME_MAX_BYTES + 2];

    if (!name_valid(conf->name)) {
        return err_set(e, E_CONFIG,
                       "%s: repo \"%s\": the name must have 1 to %d letters, digits, '.', '_' and "
                       "'-', and begin with a letter or digit",
                       conf->source, conf->name, NAME_MAX_BYTES);
    }
    snprintf(path, sizeof path, "/%s", conf->name);
    if (route_of(NULL, 0, slice_str(path), NULL).reserved) {
        return err_set(e, E_CONFIG, "%s: repo \"%s\": this name is reserved; choose another",
                       conf->source, conf->name);
    }
    return 0;
}

/* Addresses of ssh may name a user, and of rsync anything: whoever reads a page need not know. */
static char *without_user(const char *url)
{
    const char *host = strstr(url, "://"), *at;
    char *out = NULL;

    host = host != NULL ? host + 3 : url;
    at = memrchr(host, '@', strcspn(host, "/"));
    CHECK(asprintf(&out, "%.*s%s", (int)(host - url), url, at != NULL ? at + 1 : host) >= 0);
    return out;
}

static const char *sync_conf_kind(const struct sync_conf *sync)
{
    static const char *const kinds[] = {"debian", "conda", "rpm"};

    for (size_t i = 0; sync != NULL && i < ARRAY_LEN(kinds); i++) {
        if ((sync->list != NULL && strcmp(sync->list, kinds[i]) == 0) ||
            (sync->profile != NULL && strcmp(sync->profile, kinds[i]) == 0)) {
            return kinds[i];
        }
    }
    return NULL;
}

static int fill_repo_conf(struct repo *r, const struct repo_conf *conf, struct err *e)
{
    int rc = rules_compile(conf->rules, conf->rules_count, &r->rules, e);

    r->synced = conf->sync != NULL;
    r->holds = sync_conf_kind(conf->sync);
    if (rc == 0 && conf->origin.url != NULL && origin_speaks(conf->origin.url)) {
        rc = origin_new(conf->name, &conf->origin, &r->origin, e);
    }
    if (rc == 0 && conf->origin.url != NULL) {
        r->shown_origin =
            r->origin != NULL ? mem_strdup(origin_url(r->origin)) : without_user(conf->origin.url);
    }
    rc = rc != 0 ? rc : r->ops->open(r, conf, e);
    return rc != 0 ? err_prefix(e, "%s: repo \"%s\"", conf->source, conf->name) : 0;
}

/* --- names of header fields ------------------------------------------------------------------- */

static int compare_repo_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In small letters. conf/repo.c has judged them. */
static char **small_names(const char *const *names, size_t count, size_t most)
{
    char **to = mem_array(count + 1, sizeof *to);

    CHECK(count <= most);
    for (size_t i = 0; i < count; i++) {
        to[i] = mem_strdup(names[i]);
        for (char *p = to[i]; *p != '\0'; p++) {
            *p = (char)tolower((unsigned char)*p);
        }
    }
    return to;
}

static void open_names(struct repo *r, const struct repo_conf *conf)
{
    char **targets = small_names(conf->targeted_cache_control, conf->targeted_cache_control_count,
                                 ORIGIN_FIELD_TARGETS);

    r->forwards = conf->forward_count;
    r->forward = small_names(conf->forward, r->forwards, FORWARD_MAX);
    qsort(r->forward, r->forwards, sizeof *r->forward, compare_repo_names);
    r->passes = conf->pass_headers_count;
    r->pass = small_names(conf->pass_headers, r->passes, ORIGIN_FIELD_NAMES);
    r->ntargets = conf->targeted_cache_control_count;
    r->targets = mem_array(r->ntargets + 1, sizeof *r->targets);
    for (size_t i = 0; i < r->ntargets; i++) {
        r->targets[i] = slice_str(targets[i]);
    }
    free(targets);
}

static void close_names(struct repo *r)
{
    for (size_t i = 0; i < r->forwards; i++) {
        free(r->forward[i]);
    }
    for (size_t i = 0; i < r->passes; i++) {
        free(r->pass[i]);
    }
    for (size_t i = 0; i < r->ntargets; i++) {
        free((void *)(uintptr_t)r->targets[i].p);
    }
    free(r->forward);
    free(r->pass);
    free(r->targets);
}

/* --- open and close --------------------------------------------------------------------------- */

int repo_open(const struct repo_conf *conf, struct repo **out, struct err *e)
{
    struct repo *r;
    int rc = check_name(conf, e);

    *out = NULL;
    if (rc != 0) {
        return rc;
    }
    r = NEW(struct repo);
    r->ops = repo_ops_find(conf->protocol);
    r->name = mem_strdup(conf->name);
    r->anonymous_read = conf->anonymous_read;
    r->max_object_bytes = conf->max_object_bytes;
    open_names(r, conf);
    if (r->ops == NULL) {
        rc = err_set(e, E_CONFIG, "%s: repo \"%s\": unknown protocol \"%s\"; use one of %s",
                     conf->source, conf->name, conf->protocol != NULL ? conf->protocol : "",
                     protocols + 2);
        goto out;
    }
    rc = fill_repo_conf(r, conf, e);
    if (rc == 0) {
        *out = r;
        r = NULL;
    }
out:
    repo_close(&r);
    return rc;
}

struct repo *repo_hold(struct repo *r)
{
    if (r->owner != NULL) {
        atomic_fetch_add(&r->owner->holds, 1);
    }
    return r;
}

void repo_release(struct repo **rp)
{
    struct repo_owner *o = (*rp)->owner;

    *rp = NULL;
    if (o != NULL && atomic_fetch_sub(&o->holds, 1) == 1) {
        o->last(o);
    }
}

void repo_close(struct repo **rp)
{
    struct repo *r = *rp;

    *rp = NULL;
    if (r == NULL) {
        return;
    }
    if (r->ops != NULL && r->ops->close != NULL) {
        r->ops->close(r);
    }
    for (const char **name = r->names; name != NULL && *name != NULL; name++) {
        free((void *)(uintptr_t)*name);
    }
    free(r->names);
    close_names(r);
    rules_free(&r->rules);
    origin_free(&r->origin);
    free((void *)(uintptr_t)r->shown_origin);
    free((void *)(uintptr_t)r->name);
    free(r);
}
