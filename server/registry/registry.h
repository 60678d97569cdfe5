/* registry.h - /v2/, where clients of container registries knock: the version, tokens, and refusals
 * in their words.
 *
 * What an image is about is its repo's (repo/route.c, repo/oci/path.h); here is what all of them
 * share. Clients ask GET /v2/ first and take from its 401 how to come again, once for all repos.
 * They are sent to a token server of ours, which gives those with a token that token, and the
 * others one that says nothing: so nobody needs an account to pull what everybody may read, and a
 * push finds its way.
 */
#ifndef SERVER_REGISTRY_REGISTRY_H
#define SERVER_REGISTRY_REGISTRY_H

#include "server/request/frontend.h"

extern const struct frontend frontend_registry; /* "/v2" and what lies below */

#endif
