/* bearer.h - the tokens of one origin that wants to be shown one of its own token server's
 * (registries of container images).
 *
 * A token is for a scope ("repository:library/alpine:pull"). Nobody knows that one is wanted before
 * the origin has said so, by a 401 that tells where tokens are (its realm). From then on requests
 * of that scope wait for one, whoever asks for it first; it is used until four fifths of its time
 * are over. What an origin calls its token server is believed only within bounds: bearer_admits().
 * There goes the Basic credential that the configuration has for the origin, and none of a
 * client's.
 *
 * owns     bearers_open() holds the origin; a wait is in its owner's memory, who takes it off its
 *          list to wait no more
 * threads  the fetcher's
 * errors   E_DENIED: the token server has said no, or may not be asked; E_BUSY, E_NETWORK,
 *          E_TIMEOUT, E_PROTOCOL: it is in trouble
 * source   "Token Authentication Specification" of the distribution project
 */
#ifndef SERVER_FETCH_BEARER_H
#define SERVER_FETCH_BEARER_H

#include "common/base/list.h"
#include "common/xfer/xfer.h"
#include "server/fetch/origin.h"

struct bearers;
struct bearers *bearers_open(struct xfer_loop *xfers, const struct origin *o);
void bearers_close(struct bearers **bp);    /* NULL is fine; nobody waits any more */
bool bearers_busy(const struct bearers *b); /* one is being fetched */

struct bearer_wait {
    struct list node;
    /* From the loop, once, unless it was taken off: rc 0, there is one now. */
    void (*go)(struct bearer_wait *w, int rc, const struct err *why);
};

enum bearer_state {
    BEARER_NONE,  /* none is known to be wanted */
    BEARER_READY, /* *line is "Authorization: Bearer ...", *number tells it from the ones before */
    BEARER_WAIT,  /* one is on its way; w->go() will be called */
};
enum bearer_state bearer_get(struct bearers *b, struct slice scope, uint64_t now_ms,
                             struct arena *a, struct slice *line, uint64_t *number,
                             struct bearer_wait *w);
/* The origin has answered 401 to a request that showed token `number` (0: none). True: ask again by
 * bearer_get(). False: it wants no token that could be fetched; a sentence in *e then, when there
 * is something to say. */
bool bearer_refused(struct bearers *b, struct slice scope, uint64_t number,
                    const struct xfer_head *h, struct err *e);

/* May this be the token server of that origin? Its own host, one among its `hosts`, or, where those
 * are not set, one of the same registered domain; never plain http for an origin by https. */
MUST_USE int bearer_admits(const struct origin *o, struct slice realm, struct err *e);
/* A token server's answer; token in the arena. E_PROTOCOL. */
MUST_USE int bearer_answer(struct slice json, struct arena *a, struct slice *token,
                           uint64_t *good_s, struct err *e);

#endif
