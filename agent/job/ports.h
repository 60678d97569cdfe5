/* ports.h - picks a port for the ranks of one attempt, at which they find rank 0. */
#ifndef AGENT_JOB_PORTS_H
#define AGENT_JOB_PORTS_H

/* A free port whose successor is free too: a launcher's store may listen on the first, the
 * trainer's rank 0 listens on the second. Both are below the kernel's range for outgoing
 * connections, and differ from attempt to attempt, so that a late process of an earlier attempt
 * finds no listener. */
unsigned port_pick(void);

#endif
