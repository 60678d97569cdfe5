/* rendezvous.h - rank 0 tells all other ranks a few bytes over TCP, once, before there is any other way to speak.
 *
 * Everyone says hello with the run's name and its rank; rank 0 answers only when all are there and agree, so a process
 * of another run cannot join. (The launcher's count of restarts is no part of the name: after a change of members
 * torchrun's agents count differently.) Rank 0 listens on every address of this host: what is shared is no
 * secret, and a stranger who says the wrong hello is dropped.
 *
 * errors   E_TIMEOUT names how many ranks are missing
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
    uint64_t timeout_ms;
};

/* Rank 0 gives `bytes`, the others receive them. */
MUST_USE int rendezvous_share(const struct rendezvous *r, void *bytes, size_t n, struct err *e);

#endif
