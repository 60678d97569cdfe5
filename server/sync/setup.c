#include "server/sync/setup.h"

#include <stdlib.h>

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
