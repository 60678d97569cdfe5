/* bearer.h - bearer tokens of one origin whose own token server issues them (registries of
 * container images).
 *
 * A token is for a scope ("repository:library/alpine:pull"). That one is needed is only known after
 * the origin has answered 401 with the address of its token server (the realm). From then on
 * requests of that scope wait for a token, whichever of them causes it to be fetched. A token is
 * used until four fifths of its lifetime are over. The address that an origin names is only
 * accepted within bounds: bearer_admits(). The token server gets the Basic credential that the
 * configuration has for the origin, and never a client's credential.
 *
 * owns     bearers_open() holds the origin; a wait is in its owner's memory, and the owner takes it
 *          off its list to stop waiting
 * threads  the fetcher's
 * errors   E_DENIED: the token server refused, or may not be asked; E_BUSY, E_NETWORK, E_TIMEOUT,
 *          E_PROTOCOL: it is in trouble
 * source   "Token Authentication Specification" of the distribution project
 */
#ifndef SERVER_FETCH_BEARER_H
#define SERVER_FETCH_BEARER_H

#include "common/base/list.h"
#include "common/xfer/xfer.h"
#include "server/fetch/origin.h"

struct bearers;
struct bearers *bearers_open(struct xfer_loop *xfers, const struct origin *o);
void bearers_close(struct bearers **bp);    /* NULL is fine; no request waits any more */
bool bearers_busy(const struct bearers *b); /* a token is being fetched */

struct bearer_wait {
    struct list node;
    /* Called from the loop, once, unless the wait was taken off. rc 0: there is a token now. */
    void (*go)(struct bearer_wait *w, int rc, const struct err *why);
};

enum bearer_state {
    BEARER_NONE,  /* as far as is known, no token is needed */
    BEARER_READY, /* *line is "Authorization: Bearer ..."; *number differs for each token */
    BEARER_WAIT,  /* a token is being fetched; w->go() will be called */
};
enum bearer_state bearer_get(struct bearers *b, struct slice scope, uint64_t now_ms,
                             struct arena *a, struct slice *line, uint64_t *number,
                             struct bearer_wait *w);
/* The origin has answered 401 to a request with token `number` (0: none). True: try again with
 * bearer_get(). False: no token that it needs can be fetched; then *e has a sentence, if there is
 * something to say. */
bool bearer_refused(struct bearers *b, struct slice scope, uint64_t number,
                    const struct xfer_head *h, struct err *e);

/* May this be the token server of that origin? It may be the origin's own host, one of its `hosts`
 * or, where those are not set, a host of the same registered domain; never plain http for an origin
 * by https. */
MUST_USE int bearer_admits(const struct origin *o, struct slice realm, struct err *e);
/* Parses a token server's answer; token in the arena. E_PROTOCOL. */
MUST_USE int bearer_answer(struct slice json, struct arena *a, struct slice *token,
                           uint64_t *good_s, struct err *e);

#endif
