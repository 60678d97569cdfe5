#include "server/live/repo_set.h"

#include <stdlib.h>

#include "common/os/lock.h"

struct repos {
    struct lock lock; /* guards `set` */
    struct repo_set *set;
};

static void repo_set_free(struct repo_owner *o)
{
    struct repo_set *rs = CONTAINER_OF(o, struct repo_set, owner);

    for (size_t i = 0; i < rs->count; i++) {
        repo_close(&rs->repo[i]);
    }
    free(rs->repo);
    conf_free(&rs->conf);
    free(rs);
}

int repo_set_open(struct conf *conf, struct repo_set **out, struct err *e)
{
    struct repo_set *rs = NEW(struct repo_set);
    int rc = 0;

    rs->owner.holds = 1;
    rs->owner.last = repo_set_free;
    rs->conf = conf;
    rs->repo = mem_array(conf->repos_count, sizeof rs->repo[0]);
    for (size_t i = 0; rc == 0 && i < conf->repos_count; i++) {
        rc = repo_open(&conf->repos[i], &rs->repo[i], e);
        if (rc == 0) {
            rs->repo[i]->public_url = conf->public_url;
            rs->repo[i]->owner = &rs->owner;
            rs->count++;
        } else {
            err_prefix(e, "%s", conf->repos[i].source);
        }
    }
    if (rc != 0) {
        repo_set_free(&rs->owner);
        return rc;
    }
    *out = rs;
    return 0;
}

struct repo_set *repo_set_share(struct repo_set *rs)
{
    atomic_fetch_add(&rs->owner.holds, 1);
    return rs;
}

void repo_set_release(struct repo_set **rp)
{
    struct repo_set *rs = *rp;

    *rp = NULL;
    if (rs != NULL && atomic_fetch_sub(&rs->owner.holds, 1) == 1) {
        repo_set_free(&rs->owner);
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

/* --- the set in force --- */

struct repos *repos_open(struct repo_set *first)
{
    struct repos *r = NEW(struct repos);

    lock_init(&r->lock, LOCK_DAEMON);
    r->set = first;
    return r;
}

void repos_close(struct repos **rp)
{
    struct repos *r = *rp;

    if (r != NULL) {
        *rp = NULL;
        repo_set_release(&r->set);
        lock_fini(&r->lock);
        free(r);
    }
}

struct repo_set *repo_set_hold(struct repos *in_force)
{
    struct repo_set *rs;

    lock_take(&in_force->lock);
    rs = repo_set_share(in_force->set);
    lock_drop(&in_force->lock);
    return rs;
}

struct repo_set *repos_replace(struct repos *in_force, struct repo_set *fresh)
{
    struct repo_set *old;

    lock_take(&in_force->lock);
    old = in_force->set;
    in_force->set = fresh;
    lock_drop(&in_force->lock);
    return old;
}

void repos_changed(struct repos *in_force, struct slice repo)
{
    struct repo_set *rs = repo_set_hold(in_force);
    struct repo *r = repo_set_find(rs, repo);

    if (r != NULL) {
        atomic_fetch_add(&r->generation, 1);
    }
    repo_set_release(&rs);
}
