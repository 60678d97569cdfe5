/* repo_set.h - the repos of one configuration: a reload makes another set, and this one lives on with those who hold it.
 *
 * owns     counted; the last release closes its repos and frees its conf
 * threads  any; nothing in it changes but what is atomic
 */
#ifndef SERVER_LIVE_REPO_SET_H
#define SERVER_LIVE_REPO_SET_H

#include "server/conf/conf.h"

struct daemon;
struct traffic;

struct repo_set { /* counted */
    _Atomic unsigned holds;
    struct conf *conf;
    struct repo **repo;
    size_t count;
};

/* The repos of a configuration, held once; takes conf, also when it fails. */
MUST_USE int repo_set_open(struct conf *conf, struct traffic *t, struct repo_set **out,
                           struct err *e);
struct repo_set *repo_set_hold(struct daemon *d);
struct repo_set *repo_set_share(struct repo_set *rs); /* one hold more of one that is held */
void repo_set_release(struct repo_set **rp);
struct repo *repo_set_find(const struct repo_set *rs, struct slice name);

#endif
