/* registry.h - /v2/, the entry point of container registry clients: the version, tokens, and
 * errors in their format.
 *
 * A request about an image belongs to its repository (repo/route.c, repo/oci/path.h); this module
 * has what all of them share. Clients send GET /v2/ first and learn from its 401 how to
 * authenticate, once for all repositories. They are sent to our token server, which gives clients
 * with a token that token, and the others one without any right. So no account is needed to pull
 * what is public, and a push is authenticated.
 */
#ifndef SERVER_REGISTRY_REGISTRY_H
#define SERVER_REGISTRY_REGISTRY_H

#include "server/request/frontend.h"

extern const struct frontend frontend_registry; /* "/v2" and all paths below it */

#endif
