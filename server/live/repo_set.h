/* repo_set.h - the repos of one configuration: a reload makes another set, and this one lives on
 * with those who hold it. And which set is in force.
 *
 * owns     sets are counted; the last release closes its repos and frees its conf. `struct repos`
 *          holds the set in force
 * threads  any; nothing in a set changes but what is atomic
 */
#ifndef SERVER_LIVE_REPO_SET_H
#define SERVER_LIVE_REPO_SET_H

#include "server/conf/conf.h"

struct repo_set { /* counted */
    struct repo_owner owner;
    struct conf *conf;
    struct repo **repo;
    size_t count;
};

/* The repos of a configuration, held once; takes conf, also when it fails. */
MUST_USE int repo_set_open(struct conf *conf, struct repo_set **out, struct err *e);
struct repo_set *repo_set_share(struct repo_set *rs); /* one hold more of one that is held */
void repo_set_release(struct repo_set **rp);
struct repo *repo_set_find(const struct repo_set *rs, struct slice name);

/* --- the set in force --- */
struct repos;
struct repos *repos_open(struct repo_set *first); /* takes the hold */
void repos_close(struct repos **rp);              /* NULL is fine */
struct repo_set *repo_set_hold(struct repos *in_force);
/* Takes the hold of `fresh`; returns the set that it replaces, with its hold. */
struct repo_set *repos_replace(struct repos *in_force, struct repo_set *fresh);
/* A published, rolled back or removed tree or object: resolved answers of that repo are void from
 * now on. */
void repos_changed(struct repos *in_force, struct slice repo);

#endif
