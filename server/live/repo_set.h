/* repo_set.h - the repositories of one configuration, and which set is active. A reload makes
 * another set, and the old one lives until its last user releases it.
 *
 * owns     sets are counted; the last release closes its repositories and frees its conf. `struct
 *          repos` holds the active set
 * threads  any; in a set only atomics change
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

/* The repositories of a configuration, with one reference; takes conf, also when it fails. */
MUST_USE int repo_set_open(struct conf *conf, struct repo_set **out, struct err *e);
struct repo_set *repo_set_share(struct repo_set *rs); /* one more reference to a set that is held */
void repo_set_release(struct repo_set **rp);
struct repo *repo_set_find(const struct repo_set *rs, struct slice name);

/* --- the active set --- */
struct repos;
struct repos *repos_open(struct repo_set *first); /* takes the reference */
void repos_close(struct repos **rp);              /* NULL is fine */
struct repo_set *repo_set_hold(struct repos *in_force);
/* Takes the reference to `fresh`; returns the set that it replaces, with its reference. */
struct repo_set *repos_replace(struct repos *in_force, struct repo_set *fresh);
/* A tree or object was published, rolled back or removed: cached responses of that repository are
 * invalid from now on. */
void repos_changed(struct repos *in_force, struct slice repo);

#endif
