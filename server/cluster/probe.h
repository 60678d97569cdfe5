/* probe.h - checks that a bucket keeps the promises on which a cluster relies.
 *
 * One promise matters most: of several requests that create the same key at the same time, exactly
 * one succeeds, and the key then has the bytes of that request. Some stores keep this promise in a
 * sequential test and break it under concurrency, so the probe sends concurrent requests. A probe
 * takes ten small requests for each round, and removes the keys that it has made.
 *
 * threads  any except a loop's; blocks, and starts some dozens of threads for its races
 * errors   E_UNSUPPORTED: the bucket breaks a promise; the message says which and how. The codes of
 *          bucket.h: the bucket could not be tested
 */
#ifndef SERVER_CLUSTER_PROBE_H
#define SERVER_CLUSTER_PROBE_H

#include "server/cluster/bucket.h"

/* A store that breaks the promise only now and then is found by many rounds. Each round is a key
 * that PROBE_RACERS requests create at the same time; a few keys are raced for at once. */
enum { PROBE_RACERS = 8, PROBE_ROUNDS = 16, PROBE_ROUNDS_MANY = 256 };

enum probe_check {
    PROBE_READ,     /* it can be read */
    PROBE_CLOCK,    /* its clock is right */
    PROBE_CREATE,   /* a key is created once */
    PROBE_RACE,     /* of simultaneous creations one succeeds */
    PROBE_BODIES,   /* bytes are checked when they arrive */
    PROBE_RANGE,    /* a range is that range */
    PROBE_VERSIONS, /* it keeps no old versions */
};

struct probe_step {
    enum probe_check check;
    const char *what; /* the same as a sentence */
    int rc;
    const struct err *why; /* of a failure, or what is missing but can be done without */
    uint64_t took_ms;
};

/* step() is called after each step, also after a step that failed, which is the last. step may be
 * NULL. rounds: PROBE_ROUNDS, up to PROBE_ROUNDS_MANY. nonce: makes the keys of this run differ
 * from those of other runs. */
MUST_USE int probe_run(struct bucket *b, unsigned rounds, uint64_t nonce,
                       void (*step)(void *arg, const struct probe_step *s), void *arg,
                       struct err *e);

#endif
