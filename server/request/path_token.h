/* path_token.h - a token that clients of channels write into the path: "/t/<token>/forge/..." or
 * "/forge/t/<token>/...".
 *
 * It is taken out before anybody looks at the path: no key, log or origin ever has it, whosesoever
 * it is. One of ours then counts as if it had come in an Authorization field; some clients end a
 * token at the first '_', so that ours may be written with '-' there.
 */
#ifndef SERVER_REQUEST_PATH_TOKEN_H
#define SERVER_REQUEST_PATH_TOKEN_H

#include "server/http/exchange.h"
#include "server/repo/repo.h"

/* Where the request goes, with a token taken out where the repo's clients have them. */
struct route path_token_take(struct exchange *x, struct repo *const *repos, size_t count,
                             const char *root);

/* Cuts "t/<token>/" from the front of a path without its leading '/'. False: there is none. */
MUST_USE bool path_token_cut(struct slice *path, struct slice *token);

#endif
