/* forward.h - fields of a client's request that its repo passes on to the origin (`forward`), and
 * by which its answers may vary.
 *
 * Requests are held against each other by the fields' values without what means nothing: several
 * lines are one, blanks around commas go; of Accept, Accept-Language and Accept-Charset case goes,
 * too, but for their parameters' values, and one that takes anything is none. The order stays: some
 * origins read it. The origin gets what the client wrote.
 *
 * threads  any; what is read is in the request's arena
 */
#ifndef SERVER_REPO_FORWARD_H
#define SERVER_REPO_FORWARD_H

#include "server/cache/lookup.h"
#include "server/http/msg.h"

struct repo;

/* Why a field cannot be forwarded, in a few words; NULL: it can. */
const char *forward_refuses(const char *name);
enum { FORWARD_MAX = 8 }; /* of a repo */
/* False: the values have more bytes than are taken. */
MUST_USE bool forward_read(const struct repo *r, const struct http_req *req, struct lookup *w);
/* How such values are held against each other; p == NULL: as if there were none. */
struct slice forward_same(struct slice name, struct slice value, struct arena *a);

#endif
