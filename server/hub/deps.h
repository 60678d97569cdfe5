/* deps.h - what server/hub uses of a running mirrord. The daemon fills it in before anything of it
 * is called. */
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
    struct loops *loops; /* what is asked of the cache comes back there */
    struct planners *planners;
    struct repos *repos;
    struct lifecycle *lifecycle;
};

#endif
