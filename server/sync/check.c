/* check.c - whether a sync section makes sense, before a run finds out that it does not. */
#include "server/repo/hf/synced.h"
#include "server/repo/python/marker.h"
#include "server/repo/python/requirement.h"
#include "server/sync/cron.h"
#include "server/sync/engine.h"
#include "server/sync/removal_limit.h"
#include "server/sync/hook.h"
#include "server/sync/pace.h"
#include "server/sync/proxy.h"
#include "server/sync/sshurl.h"
#include "server/sync/sync.h"

enum {
    FOLDER_MAX = 200
}; /* bytes of a suite's or a subdir's name: more goes in front of each path */

static int check_times(const struct sync_conf *c, struct err *e)
{
    struct cron cron;
    struct err why = {0};

    if (c->schedule != NULL && cron_parse(slice_str(c->schedule), &cron, &why) != 0) {
        return err_set(e, E_CONFIG, "schedule = \"%.60s\": %.100s", c->schedule, why.text);
    }
    if (c->hours_count > PACE_WINDOWS) {
        return err_set(e, E_CONFIG, "hours: more than %d windows; remove or merge some",
                       PACE_WINDOWS);
    }
    for (size_t i = 0; i < c->hours_count; i++) {
        struct hours h;
        if (hours_parse(slice_str(c->hours[i]), &h, &why) != 0) {
            return err_set(e, E_CONFIG, "hours: \"%.60s\": %.120s", c->hours[i], why.text);
        }
    }
    return 0;
}

static bool is_valid_folder(const char *name)
{
    return tree_path_valid(slice_str(name)) && strlen(name) <= FOLDER_MAX;
}

static int check_list(const struct sync_conf *c, struct err *e)
{
    if (strcmp(c->list, "debian") == 0 && c->suites_count == 0) {
        return err_set(e, E_CONFIG,
                       "list = debian needs suites, the paths below dists/; write for example "
                       "suites = {\"bookworm\"}");
    }
    if (strcmp(c->list, "conda") == 0 && c->subdirs_count == 0) {
        return err_set(
            e, E_CONFIG,
            "list = conda needs subdirs; write for example subdirs = {\"linux-64\", \"noarch\"}");
    }
    for (size_t i = 0; i < c->suites_count; i++) {
        if (!is_valid_folder(c->suites[i])) {
            return err_set(e, E_CONFIG, "suites: \"%.60s\" is not a valid path below dists/",
                           c->suites[i]);
        }
    }
    for (size_t i = 0; i < c->subdirs_count; i++) {
        if (!is_valid_folder(c->subdirs[i])) {
            return err_set(e, E_CONFIG, "subdirs: \"%.60s\" is not a valid path below the origin",
                           c->subdirs[i]);
        }
    }
    for (size_t i = 0; i < c->repos_count; i++) {
        struct hf_spec s;
        if (!hf_spec_parse(slice_str(c->repos[i]), &s)) {
            return err_set(
                e, E_CONFIG,
                "repos: \"%.100s\" is not the name of a repository; write \"owner/name\", "
                "\"owner/name@revision\" or \"datasets/owner/name\"",
                c->repos[i]);
        }
    }
    return 0;
}

static int check_requirements(const struct sync_conf *c, struct arena *a, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < c->requirements_count; i++) {
        struct requirement r;
        struct pyenv env;
        bool unused;
        if (strncmp(c->requirements[i], "file:", 5) == 0) {
            continue; /* read by each run */
        }
        rc = requirement_parse(slice_str(c->requirements[i]), a, &r, e);
        if (rc == 0 && r.marker.p != NULL && pyenv_init(&env, "3.12", "linux_x86_64")) {
            rc = marker_eval(r.marker, &env, SLICE(""), &unused, e);
        }
        if (rc == 0 && r.url.p != NULL) {
            rc = err_set(
                e, E_CONFIG,
                "\"%.100s\" names a URL, which no index lists; name a project and its version",
                c->requirements[i]);
        }
    }
    return rc;
}

static int check_python(const struct sync_conf *c, struct err *e)
{
    size_t index_n = strlen(c->index);

    if (index_n != 0 &&
        (c->index[index_n - 1] != '/' || !tree_path_valid(slice_of(c->index, index_n - 1)))) {
        return err_set(
            e, E_CONFIG,
            "index = \"%.100s\" is not a folder below the origin; write one such as \"simple/\"",
            c->index);
    }
    for (size_t i = 0; i < c->python_count * c->platforms_count; i++) {
        const char *python = c->python[i % c->python_count];
        const char *platform = c->platforms[i / c->python_count];
        struct pyenv env;
        if (!pyenv_init(&env, python, platform)) {
            return err_set(e, E_CONFIG,
                           "python = \"%.20s\" on \"%.60s\" is not supported; write \"3.11\" and a "
                           "wheel's platform such as \"manylinux_2_28_x86_64\"",
                           python, platform);
        }
    }
    if (c->python_count * c->platforms_count > PYENVS_MAX) {
        return err_set(
            e, E_CONFIG,
            "python and platforms make %zu environments, but at most %d are possible; name fewer",
            c->python_count * c->platforms_count, PYENVS_MAX);
    }
    return 0;
}

static int check_url(const struct sync_conf *c, const struct origin_settings *o, const char *url,
                     struct err *e)
{
    struct ssh_url unused;
    struct proxy way;
    bool through;
    struct err why = {0};

    if (strncmp(url, "ssh://", 6) == 0 && ssh_url_parse(slice_str(url), &unused, &why) != 0) {
        return err_set(e, E_CONFIG, "upstream by ssh: %.200s", why.text);
    }
    if (strncmp(url, "rsync", 5) == 0 &&
        proxy_choose(o->proxy, NULL, SLICE_NONE, &way, &through, &why) != 0) {
        return err_set(e, E_CONFIG, "proxy: %.200s", why.text);
    }
    if (engine_find(c->engine, slice_str(url)) == NULL) {
        return err_set(e, E_CONFIG, "%s%.20s %s %.100s; see mirrord.conf(5)",
                       c->engine != NULL ? "engine " : "no engine",
                       c->engine != NULL ? c->engine : "",
                       c->engine != NULL ? "does not support" : "supports", url);
    }
    return 0;
}

static int check_urls(const struct sync_conf *c, const struct origin_settings *o, struct err *e)
{
    int rc = check_url(c, o, o->url, e);

    for (size_t i = 0; rc == 0 && i < c->upstreams_count; i++) {
        rc = check_url(c, o, c->upstreams[i], e);
    }
    return rc;
}

static int check_snapshot(const struct sync_conf *c, struct err *e)
{
    struct removal_limit l;

    if (c->max_delete != NULL && !removal_limit_parse(c->max_delete, &l)) {
        return err_set(e, E_CONFIG,
                       "max_delete = \"%.40s\" is neither a number nor a percentage; write one "
                       "such as 40000 or 5%%",
                       c->max_delete);
    }
    if (c->trace != NULL && !tree_path_valid(slice_str(c->trace))) {
        return err_set(e, E_CONFIG, "trace = \"%.80s\" is not a valid path below the repo",
                       c->trace);
    }
    return 0;
}

static int check_hooks(const struct sync_conf *c, struct err *e)
{
    int rc = hook_check("hook_before", c->hook_before, c->hook_before_count, e);

    rc = rc != 0 ? rc : hook_check("hook_published", c->hook_published, c->hook_published_count, e);
    rc = rc != 0 ? rc : hook_check("hook_held", c->hook_held, c->hook_held_count, e);
    return rc != 0 ? rc : hook_check("hook_failed", c->hook_failed, c->hook_failed_count, e);
}

int sync_check(const struct sync_conf *c, const struct origin_settings *origin, struct err *e)
{
    struct arena a = {0};
    struct err why = {0};
    int rc = check_times(c, e);

    rc = rc != 0 ? rc : check_snapshot(c, e);
    rc = rc != 0 ? rc : check_list(c, e);
    if (rc == 0 && check_requirements(c, &a, &why) != 0) {
        rc = err_set(e, E_CONFIG, "%.230s", why.text);
    }
    arena_fini(&a);
    rc = rc != 0 ? rc : check_python(c, e);
    rc = rc != 0 ? rc : check_urls(c, origin, e);
    return rc != 0 ? rc : check_hooks(c, e);
}
