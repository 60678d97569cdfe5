/* jitter.h - a wait that spreads the nodes of a cluster over a period, always the same for one
 * host.
 *
 * Timers fire on all nodes at the same time, which would overload a mirror. Random waits would
 * help too, but a node whose job begins at 4:10 today should not begin at 4:50 tomorrow.
 */
#ifndef AGENT_JOB_JITTER_H
#define AGENT_JOB_JITTER_H

#include "common/base/slice.h"

uint64_t jitter_ms(struct slice host, uint64_t span_ms); /* below span_ms; 0 of 0 */
void jitter_wait(uint64_t span_ms);                      /* this host's; SIGTERM ends the program */

#endif
