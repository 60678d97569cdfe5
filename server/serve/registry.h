/* registry.h - /v2/, where clients of container registries knock: the version, tokens, and noes in their words.
 *
 * What an image is about is its repo's (repo/route.c, repo/oci/path.h); here is what all of them share. Clients ask
 * GET /v2/ first and take from its 401 how to come again, once for all repos. They are sent to a token server of ours, which
 * gives those with a token that token, and the others one that says nothing: so nobody needs an account to pull what
 * everybody may read, and a push finds its way.
 */
#ifndef SERVER_SERVE_REGISTRY_H
#define SERVER_SERVE_REGISTRY_H

#include "server/serve/call.h"

bool registry_asked(const struct http_req *req); /* "/v2" and what lies below */
/* Of a path that is no repo's: GET /v2/, the token server, an unknown name. */
void registry_answer(struct desk *d, struct exchange *x, struct visit *v, struct slice ns);
/* As refuse_token() and refuse_haste(). */
void registry_refuse_token(struct desk *d, struct exchange *x, const char *why);
void registry_refuse_haste(struct exchange *x, const struct gate_verdict *g);
/* The challenge of a 401: where tokens are, and what to ask for there when the request is about an image: to pull it, and
 * to push when it is to be published to. */
struct slice registry_challenge(const struct http_req *req, const struct conf *conf, bool publish,
                                struct arena *a);
/* The body of an answer that is none. */
struct slice registry_words(const struct http_req *req, int status, struct slice why,
                            struct arena *a);

#endif
