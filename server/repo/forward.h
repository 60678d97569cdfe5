/* forward.h - fields of a client's request that its repo passes on to the origin (`forward`), and
 * by which its answers may vary.
 *
 * Requests are compared by the fields' normalized values: several lines are joined and blanks
 * around commas removed. Accept, Accept-Language and Accept-Charset are compared without regard to
 * case, except for the values of their parameters, and one that accepts anything counts as absent.
 * The order is kept, because some origins depend on it. The origin gets what the client wrote.
 *
 * owns     nothing: results are in the request's arena
 * threads  any
 */
#ifndef SERVER_REPO_FORWARD_H
#define SERVER_REPO_FORWARD_H

#include "server/cache/lookup.h"
#include "server/http/msg.h"

struct repo;

/* Why a field cannot be forwarded, in a few words; NULL: it can be. */
const char *forward_refuses(const char *name);
enum { FORWARD_MAX = 8 }; /* fields of one repo */
/* False: the values are longer than the limit. */
MUST_USE bool forward_read(const struct repo *r, const struct http_req *req, struct lookup *w);
/* The normalized form of a value, for comparison; p == NULL: as if the field were absent. */
struct slice forward_same(struct slice name, struct slice value, struct arena *a);

#endif
