/* route.h - whose image a path below /v2/ names. */
#ifndef SERVER_REGISTRY_ROUTE_H
#define SERVER_REGISTRY_ROUTE_H

#include "server/repo/repo.h"

/* Of a path that begins with "/v2/": whose image it is. A client that says `?ns=<host>` names the
 * registry that it means: a key to look up here, never a host to call, and the path is that
 * registry's own (or has our repo's name in front). Else the first segment is a repo, else all of
 * it is of the listener's. Only repos whose ops say `registry` count. */
struct route registry_route(struct repo *const *repos, size_t count, struct slice path,
                            struct slice query, const char *root, struct arena *a);

#endif
