/* rendezvous.h - rank 0 sends a few bytes to all other ranks over TCP, once, before there is any
 * other connection between them.
 *
 * Every rank sends the run's name, the generation and its rank. Rank 0 answers only when all are
 * there and agree, so a process of another run, or a late one of an earlier attempt, cannot join.
 * Rank 0 listens at the address that the others dial, for as long as it takes; if the port is in
 * use it waits for it. Unknown connections to the port are dropped and delay nobody. If an
 * unknown program listens there, its bytes are not taken for rank 0's.
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
    const char *generation; /* which attempt of the run; "" if attempts are not counted */
    uint64_t timeout_ms;
};

/* Rank 0 gives `bytes`, the others receive them. */
MUST_USE int rendezvous_share(const struct rendezvous *r, void *bytes, size_t n, struct err *e);

#endif
