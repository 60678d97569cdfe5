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
    free(u->upstream);
    u->of.release(u->of.held);
    free(u);
}

/* Its key is the origin's own; another bucket of the same service is reached by the same ones. */
static bool same_key(const char *a, const char *b)
{
    return strncmp(a, "s3://", 5) == 0 && strncmp(b, "s3://", 5) == 0;
}

static int add_upstreams(struct setup *u, const struct sync_repo_settings *r, struct err *e)
{
    size_t n = 1 + u->conf->upstreams_count;
    struct run_upstream *up = mem_array(n, sizeof *up);
    int rc = 0;

    u->job.upstream = u->upstream = up;
    up[0].url = r->conf->origin.url;
    up[0].origin = r->repo->origin != NULL ? origin_hold(r->repo->origin) : NULL;
    u->job.upstreams = 1;
    for (size_t i = 1; rc == 0 && i < n; i++) {
        struct origin_settings set = r->conf->origin;
        struct origin *o = NULL;
        set.url = up[i].url = u->conf->upstreams[i - 1];
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
    u->of = *r;
    u->conf = r->conf->sync;
    u->job = (struct run_job){
        .repo = r->conf->name,
        .conf = u->conf,
        .secret = origin_speaks(o->url) ? NULL : bare(o->authorization),
        .ca_file = o->ca_file,
        .proxy = o->proxy,
        .no_proxy = o->no_proxy,
        .connect_ms = o->connect_ms,
        .stall_ms = o->stall_ms,
    };
    u->scheduled = u->conf->schedule != NULL;
    if (u->scheduled) {
        rc = cron_parse(slice_str(u->conf->schedule), &u->cron, e);
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
