#include "server/sync/setup.h"

#include <stdlib.h>

#include "server/repo/hf/synced.h"
#include "server/sync/engine.h"
#include "server/sync/sshurl.h"
#include "server/sync/gate.h"
#include "server/sync/hook.h"
#include "server/sync/pace.h"
#include "server/sync/python/marker.h"
#include "server/sync/python/requirement.h"

void setup_release(struct setup **sp)
{
    struct setup *u = *sp;

    *sp = NULL;
    if (u == NULL || --u->holds != 0) {
        return;
    }
    for (size_t i = 0; i < u->job.upstreams; i++) {
        struct origin *o = (struct origin *)(uintptr_t)u->job.upstream[i].origin;
        origin_free(&o);
    }
    arena_fini(&u->arena);
    free(u);
}

static const char *copy(struct arena *a, const char *s)
{
    return s != NULL ? arena_cstr(a, slice_str(s)) : NULL;
}

static void copy_list(struct arena *a, const char *const **list, size_t n)
{
    const char **mine = arena_alloc(a, (n + 1) * sizeof *mine);

    for (size_t i = 0; i < n; i++) {
        mine[i] = copy(a, (*list)[i]);
    }
    *list = mine;
}

static void copy_conf(struct arena *a, const struct sync_conf *from, struct sync_conf *to)
{
    *to = *from;
    to->schedule = copy(a, from->schedule);
    to->engine = copy(a, from->engine);
    to->ssh = copy(a, from->ssh);
    to->ssh_key = copy(a, from->ssh_key);
    to->known_hosts = copy(a, from->known_hosts);
    to->list = copy(a, from->list);
    to->profile = copy(a, from->profile);
    to->probe = copy(a, from->probe);
    to->trace = copy(a, from->trace);
    to->max_delete = copy(a, from->max_delete);
    to->links = copy(a, from->links);
    copy_list(a, &to->filter, to->filter_count);
    copy_list(a, &to->upstreams, to->upstreams_count);
    copy_list(a, &to->suites, to->suites_count);
    copy_list(a, &to->components, to->components_count);
    copy_list(a, &to->architectures, to->architectures_count);
    copy_list(a, &to->repos, to->repos_count);
    copy_list(a, &to->requirements, to->requirements_count);
    copy_list(a, &to->python, to->python_count);
    copy_list(a, &to->platforms, to->platforms_count);
    to->index = copy(a, from->index);
    to->files = copy(a, from->files);
    to->sdists = copy(a, from->sdists);
    copy_list(a, &to->subdirs, to->subdirs_count);
    copy_list(a, &to->hours, to->hours_count);
    copy_list(a, &to->hook_before, to->hook_before_count);
    copy_list(a, &to->hook_published, to->hook_published_count);
    copy_list(a, &to->hook_held, to->hook_held_count);
    copy_list(a, &to->hook_failed, to->hook_failed_count);
}

/* Its key is the origin's own; another bucket of the same service is reached by the same ones. */
static bool same_key(const char *a, const char *b)
{
    return strncmp(a, "s3://", 5) == 0 && strncmp(b, "s3://", 5) == 0;
}

static int add_upstreams(struct setup *u, const struct sync_repo_settings *r, struct err *e)
{
    size_t n = 1 + u->conf.upstreams_count;
    struct run_upstream *up = arena_alloc(&u->arena, n * sizeof *up);
    int rc = 0;

    u->job.upstream = up;
    up[0].url = copy(&u->arena, r->conf->origin.url);
    up[0].origin = r->repo->origin != NULL ? origin_hold(r->repo->origin) : NULL;
    u->job.upstreams = 1;
    for (size_t i = 1; rc == 0 && i < n; i++) {
        struct origin_settings set = r->conf->origin;
        struct origin *o = NULL;
        set.url = up[i].url = u->conf.upstreams[i - 1];
        set.moved_from_count = 0;
        if (!same_key(set.url, r->conf->origin.url)) {
            set.authorization = NULL;
        }
        if (origin_speaks(set.url)) {
            rc = origin_new(r->repo->name, &set, &o, e);
        }
        up[i].origin = o;
        u->job.upstreams += rc == 0;
    }
    return rc;
}

/* What stands alone in its file was read as a token of HTTP's: others have no such word before it. */
static const char *bare(const char *authorization)
{
    static const char word[] = "Bearer ";
    bool has = authorization != NULL && strncmp(authorization, word, sizeof word - 1) == 0;

    return has ? authorization + sizeof word - 1 : authorization;
}

int setup_new(const struct sync_repo_settings *r, struct setup **out, struct err *e)
{
    struct setup *u = NEW(struct setup);
    const struct origin_settings *o = &r->conf->origin;
    int rc = 0;

    u->holds = 1;
    copy_conf(&u->arena, r->conf->sync, &u->conf);
    u->job = (struct run_job){
        .repo = copy(&u->arena, r->repo->name),
        .conf = &u->conf,
        .secret = origin_speaks(o->url) ? NULL : copy(&u->arena, bare(o->authorization)),
        .ca_file = copy(&u->arena, o->ca_file),
        .proxy = copy(&u->arena, o->proxy),
        .connect_ms = o->connect_ms,
        .stall_ms = o->stall_ms,
    };
    u->scheduled = u->conf.schedule != NULL;
    if (u->scheduled) {
        rc = cron_parse(slice_str(u->conf.schedule), &u->cron, e);
    }
    if (rc == 0) {
        rc = add_upstreams(u, r, e);
    }
    if (rc != 0) {
        setup_release(&u);
    }
    *out = u;
    return rc;
}

static int check_hooks(const struct sync_conf *c, struct err *e)
{
    int rc = hook_check("hook_before", c->hook_before, c->hook_before_count, e);

    if (rc == 0) {
        rc = hook_check("hook_published", c->hook_published, c->hook_published_count, e);
    }
    if (rc == 0) {
        rc = hook_check("hook_held", c->hook_held, c->hook_held_count, e);
    }
    return rc == 0 ? hook_check("hook_failed", c->hook_failed, c->hook_failed_count, e) : rc;
}

static int check_python(const struct sync_conf *c, struct err *e)
{
    struct arena a = {0};
    struct requirement r;
    struct pyenv env;
    bool unused;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < c->requirements_count; i++) {
        if (strncmp(c->requirements[i], "file:", 5) == 0) {
            continue; /* read by each run */
        }
        rc = requirement_parse(slice_str(c->requirements[i]), &a, &r, e);
        if (rc == 0 && r.marker.p != NULL && pyenv_init(&env, "3.12", "linux_x86_64")) {
            rc = marker_eval(r.marker, &env, SLICE(""), &unused, e);
        }
        if (rc == 0 && r.url.p != NULL) {
            rc = err_set(e, E_CONFIG, "\"%.100s\" is at an address of its own, no index has it",
                         c->requirements[i]);
        }
    }
    if (rc == 0 && c->index[0] != '\0' &&
        (c->index[strlen(c->index) - 1] != '/' ||
         !tree_path_valid(slice_of(c->index, strlen(c->index) - 1)))) {
        rc = err_set(e, E_CONFIG,
                     "index = \"%.100s\", that is no folder below the origin, write \"simple/\"",
                     c->index);
    }
    for (size_t i = 0; rc == 0 && i < c->python_count * c->platforms_count; i++) {
        const char *python = c->python[i % c->python_count];
        const char *platform = c->platforms[i / c->python_count];
        if (!pyenv_init(&env, python, platform)) {
            rc = err_set(e, E_CONFIG,
                         "python = \"%.20s\" on \"%.60s\", that is not known here, write \"3.11\" "
                         "and a wheel's platform such as \"manylinux_2_28_x86_64\"",
                         python, platform);
        }
    }
    if (rc == 0 && c->python_count * c->platforms_count > 64) {
        rc = err_set(e, E_CONFIG, "python and platforms come to more than 64 environments");
    }
    arena_fini(&a);
    return rc;
}

int sync_check(const struct sync_conf *c, const char *origin_url, struct err *e)
{
    struct gate_limit l;
    struct cron cron;
    struct err why = {0};

    if (c->schedule != NULL && cron_parse(slice_str(c->schedule), &cron, &why) != 0) {
        return err_set(e, E_CONFIG, "schedule = \"%.60s\", %.100s, mend it", c->schedule, why.text);
    }
    if (c->max_delete != NULL && !gate_limit_parse(c->max_delete, &l)) {
        return err_set(e, E_CONFIG,
                       "max_delete = \"%.40s\", that is neither a number nor a share, write 40000 "
                       "or 5%%",
                       c->max_delete);
    }
    if (strcmp(c->list, "debian") == 0 && c->suites_count == 0) {
        return err_set(e, E_CONFIG, "list = debian needs suites = {\"...\"}, as below dists/");
    }
    if (check_python(c, &why) != 0) {
        return err_set(e, E_CONFIG, "%.230s", why.text);
    }
    for (size_t i = 0; i < c->repos_count; i++) {
        struct hf_spec s;
        if (!hf_spec_parse(slice_str(c->repos[i]), &s)) {
            return err_set(e, E_CONFIG,
                           "repos: \"%.100s\" names no repository, write \"owner/name\", "
                           "\"owner/name@revision\" or \"datasets/owner/name\"",
                           c->repos[i]);
        }
    }
    for (size_t i = 0; i < c->hours_count; i++) {
        struct hours h;
        if (i == PACE_WINDOWS) {
            return err_set(e, E_CONFIG, "hours: more than %d windows", PACE_WINDOWS);
        }
        if (hours_parse(slice_str(c->hours[i]), &h, &why) != 0) {
            return err_set(e, E_CONFIG, "hours: \"%.60s\", %.120s", c->hours[i], why.text);
        }
    }
    if (strcmp(c->list, "conda") == 0 && c->subdirs_count == 0) {
        return err_set(e, E_CONFIG,
                       "list = conda needs subdirs = {\"linux-64\", \"noarch\"}, or others");
    }
    for (size_t i = 0; i < c->subdirs_count; i++) {
        if (!tree_path_valid(slice_str(c->subdirs[i])) || strlen(c->subdirs[i]) > 200) {
            return err_set(e, E_CONFIG, "subdirs: \"%.60s\" is no path below the origin",
                           c->subdirs[i]);
        }
    }
    if (c->trace != NULL && !tree_path_valid(slice_str(c->trace))) {
        return err_set(e, E_CONFIG, "trace = \"%.80s\" is no path below the repo", c->trace);
    }
    for (size_t i = 0; i < c->suites_count; i++) {
        if (!tree_path_valid(slice_str(c->suites[i])) || strlen(c->suites[i]) > 200) {
            return err_set(e, E_CONFIG, "suites: \"%.60s\" is no path below dists/", c->suites[i]);
        }
    }
    for (size_t i = 0; i <= c->upstreams_count; i++) {
        const char *url = i == 0 ? origin_url : c->upstreams[i - 1];
        struct ssh_url unused;
        if (strncmp(url, "ssh://", 6) == 0 && ssh_url_parse(slice_str(url), &unused, &why) != 0) {
            return err_set(e, E_CONFIG, "an upstream by ssh: %.200s", why.text);
        }
        if (engine_find(c->engine, slice_str(url)) == NULL) {
            return err_set(e, E_CONFIG, "no engine%s%.20s reaches %.100s, see mirrord.conf(5)",
                           c->engine != NULL ? " " : "", c->engine != NULL ? c->engine : "", url);
        }
    }
    return check_hooks(c, e);
}
