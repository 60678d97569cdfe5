/* ports.h - a port for the ranks of one attempt, by which rank 0 is found. */
#ifndef AGENT_JOB_PORTS_H
#define AGENT_JOB_PORTS_H

/* A port that is free, and the next one too: a launcher's store may listen on the first, the
 * trainer's rank 0 does on the second. Both are below those that the kernel gives to connections,
 * and differ from attempt to attempt, so that a late process of an earlier one finds nobody. */
unsigned port_pick(void);

#endif
