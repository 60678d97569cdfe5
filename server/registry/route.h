/* route.h - finds the repository of an image by a path below /v2/. */
#ifndef SERVER_REGISTRY_ROUTE_H
#define SERVER_REGISTRY_ROUTE_H

#include "server/repo/repo.h"

/* For a path that begins with "/v2/". A client that sends `?ns=<host>` names the registry that it
 * means: it is a key to look up here, never a host to contact, and the path is that registry's
 * own (or begins with our repository's name). Without it, the first segment names a repository;
 * if there is no such one, the whole path belongs to the listener's repository. Only repositories
 * whose ops say `registry` count. */
struct route registry_route(struct repo *const *repos, size_t count, struct slice path,
                            struct slice query, const char *root, struct arena *a);

#endif
