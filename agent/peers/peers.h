/* peers.h - fetches from and gives to other nodes, for one run of the agent
 * (docs/protocols/peers.md).
 *
 * A pull calls this back (agent/pull/peer_ops.h). It is off unless the node's file has `peers {
 * }` or --peers was given, and the mirror supports peers. No failure of it makes a pull fail.
 *
 * A swarm is one file and the nodes that fetch it at the same time. From join() on, every few
 * seconds, the mirror gets an announcement of the chunks that are here, and answers which chunks
 * this node should fetch from it, and which other nodes there are. After any failure the mirror
 * is used: if it does not support peers (404), the swarm is off, and everything works as without
 * peers; without an answer in time the pull begins by itself.
 *
 *   joined ─▶ (left, whole: gives on, while the run lasts) ─▶ gone
 *
 * threads  the pull's loop; giving is on another (give.h)
 */
#ifndef AGENT_PEERS_PEERS_H
#define AGENT_PEERS_PEERS_H

#include "agent/pull/peer_ops.h"

extern const struct peer_ops peers_ops;

#endif
