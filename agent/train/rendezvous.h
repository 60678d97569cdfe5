/* rendezvous.h - rank 0 tells all other ranks a few bytes over TCP, once, before there is any other
 * way to speak.
 *
 * Everyone says hello with the run's name, the generation and its rank; rank 0 answers only when
 * all are there and agree, so a process of another run, or a late one of an earlier attempt, cannot
 * join. Rank 0 listens at the address that the others dial, for as long as it takes; where the port
 * is in use it waits for it. Strangers at the port are dropped, and hold nobody up; what a stranger
 * says who listens there is not taken for rank 0's word.
 *
 * errors   E_TIMEOUT names how many ranks are missing; E_AGAIN: a rank that was there is gone
 */
#ifndef AGENT_TRAIN_RENDEZVOUS_H
#define AGENT_TRAIN_RENDEZVOUS_H

#include <stddef.h>

#include "common/base/err.h"

struct rendezvous {
    const char *host;
    int port;
    int rank;
    int world;
    const char *run_id;
    const char *generation; /* which attempt of the run; "" where nothing counts them */
    uint64_t timeout_ms;
};

/* Rank 0 gives `bytes`, the others receive them. */
MUST_USE int rendezvous_share(const struct rendezvous *r, void *bytes, size_t n, struct err *e);

#endif
