/* path_token.h - tokens that clients of channels write into the path: "/t/<token>/forge/..." or
 * "/forge/t/<token>/...".
 *
 * The token is removed before any other code looks at the path, so no key, log or origin ever gets
 * it, whoever issued it. One of our tokens then counts as if it had come in an Authorization field.
 * Some clients end a token at the first '_', so '-' may be written in its place.
 *
 * owns     nothing: results are in the exchange's arena
 * threads  the loop
 */
#ifndef SERVER_REQUEST_PATH_TOKEN_H
#define SERVER_REQUEST_PATH_TOKEN_H

#include "server/http/exchange.h"
#include "server/repo/repo.h"

/* Finds the request's route and removes a token where the repo's clients send them in the path. */
struct route path_token_take(struct exchange *x, struct repo *const *repos, size_t count,
                             const char *root);

/* Cuts "t/<token>/" from the front of a path without its leading '/'. False: there is no token. */
MUST_USE bool path_token_cut(struct slice *path, struct slice *token);

#endif
