/* probe.h - asks every mirror at once: is it ready, how soon does it answer, what time has it?
 *
 * threads  blocks until all have answered, or for patience_ms
 */
#ifndef AGENT_PROBE_H
#define AGENT_PROBE_H

#include "agent/agent.h"

struct probe;

struct mirror_probe { /* what one mirror answered */
    struct slice url; /* the mirror's */
    int rc;
    struct err why;
    int status; /* of /readyz; 0: no answer */
    uint64_t took_ms;
    uint64_t date_s;  /* 0: unknown */
    uint64_t here_ms; /* our clock, in the middle of the request */
    struct probe *of;
};

/* Fills mirrors_count() of them. */
void probe_mirrors(const struct agent *a, uint64_t patience_ms, struct mirror_probe *out);

#endif
