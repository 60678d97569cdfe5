/* deps.h - the parts of a running mirrord that server/hub uses.
 *
 * The daemon fills it in before it calls anything of this folder.
 *
 * owns     nothing: all parts live longer
 * threads  constant once filled in
 */
#ifndef SERVER_HUB_DEPS_H
#define SERVER_HUB_DEPS_H

#include "server/cache/cache.h"
#include "server/live/lifecycle.h"
#include "server/live/repo_set.h"
#include "server/net/loop.h"
#include "server/plan/run.h"

struct uploads;
struct hub_deps {
    struct store *store;
    struct cache *cache;
    struct uploads *uploads;
    struct loops *loops; /* the cache's answers arrive there */
    struct planners *planners;
    struct repos *repos;
    struct lifecycle *lifecycle;
};

#endif
