/* peers.h - fetching from and giving to other nodes, for one run of the agent
 * (docs/protocols/peers.md).
 *
 * A pull calls this back (agent/pull/peer_ops.h). Off unless the node's file has `peers { }` or
 * --peers was said, and the mirror has a door for it. Nothing of it makes a pull fail.
 *
 * A swarm is one file, and those who fetch it at the same time. From join() on the mirror is told
 * every few seconds what is here, and says which chunks this node should bring, and who else there
 * is. Trouble of any kind ends at the mirror: without a door for peers there (404) the swarm is
 * off, and all is as if there were none; without an answer in time the pull begins by itself.
 *
 *   joined ─▶ (left, whole: gives on, while the run lasts) ─▶ gone
 *
 * threads  the pull's loop; what is given is on another (give.h)
 */
#ifndef AGENT_PEERS_PEERS_H
#define AGENT_PEERS_PEERS_H

#include "agent/pull/peer_ops.h"

extern const struct peer_ops peers_ops;

#endif
