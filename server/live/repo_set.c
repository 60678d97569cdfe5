#include "server/live/repo_set.h"

#include <stdlib.h>

#include "server/serve/traffic.h"
#include "server/daemon.h"

static void repo_set_free(struct repo_set *rs)
{
    for (size_t i = 0; i < rs->count; i++) {
        repo_close(&rs->repo[i]);
    }
    free(rs->repo);
    conf_free(&rs->conf);
    free(rs);
}

static void count_in_slot(struct repo *r, struct traffic *t)
{
    r->slot = traffic_repo(t, r->name);
    if (r->origin != NULL) {
        origin_count_in(r->origin, traffic_upstream(t, r->slot));
    }
}

int repo_set_open(struct conf *conf, struct traffic *t, struct repo_set **out, struct err *e)
{
    struct repo_set *rs = NEW(struct repo_set);
    int rc = 0;

    rs->holds = 1;
    rs->conf = conf;
    rs->repo = mem_array(conf->repos_count, sizeof rs->repo[0]);
    for (size_t i = 0; rc == 0 && i < conf->repos_count; i++) {
        rc = repo_open(&conf->repos[i], &rs->repo[i], e);
        if (rc == 0) {
            rs->repo[i]->public_url = conf->public_url;
            count_in_slot(rs->repo[i], t);
            rs->count++;
        } else {
            err_prefix(e, "%s", conf->repos[i].source);
        }
    }
    if (rc != 0) {
        repo_set_free(rs);
        return rc;
    }
    *out = rs;
    return 0;
}

struct repo_set *repo_set_hold(struct daemon *d)
{
    struct repo_set *rs;

    lock_take(&d->lock);
    rs = d->set;
    atomic_fetch_add(&rs->holds, 1);
    lock_drop(&d->lock);
    return rs;
}

struct repo_set *repo_set_share(struct repo_set *rs)
{
    atomic_fetch_add(&rs->holds, 1);
    return rs;
}

void repo_set_release(struct repo_set **rp)
{
    struct repo_set *rs = *rp;

    *rp = NULL;
    if (rs != NULL && atomic_fetch_sub(&rs->holds, 1) == 1) {
        repo_set_free(rs);
    }
}

struct repo *repo_set_find(const struct repo_set *rs, struct slice name)
{
    for (size_t i = 0; i < rs->count; i++) {
        if (slice_eqs(name, rs->repo[i]->name)) {
            return rs->repo[i];
        }
    }
    return NULL;
}
