/* choose.h - chooses the next chunk and its source: the mirror, another node, or none yet. Pure:
 * its input is the present state and a random number.
 *
 *   1. a missing chunk that is assigned to this node: the first, from the mirror, unless it is
 *      fetching enough of them already. When givers have promised for long and given nothing
 *      (starved), one from the mirror, as in 3
 *   2. one that a giver with a free slot has: of the first CHOOSE_AMONG missing ones that a giver
 *      has, one at random, so that nodes which fetch the same file soon have different chunks to
 *      give; of its givers, one at random
 *   3. alone, or when nothing has come for a while (stalled): one from the mirror, unassigned.
 *      Alone the first missing one; stalled one of the first CHOOSE_AMONG at random, because
 *      others may have stalled at the same moment for the same reason
 *   4. wait
 */
#ifndef AGENT_PEERS_CHOOSE_H
#define AGENT_PEERS_CHOOSE_H

#include "agent/pull/peer_ops.h"

enum { CHOOSE_AMONG = 64 };

struct giver {
    const uint8_t *have; /* bits.h; NULL: nothing is known */
    unsigned places;     /* free slots; 0: do not use it now */
};

struct choose_from {
    const uint8_t *state; /* enum part_state of each chunk */
    size_t first;         /* all before it are done */
    size_t count;
    const uint8_t *mine; /* bits: assigned to this node */
    const struct giver *giver;
    size_t ngivers;
    bool brings; /* it may fetch one more from the mirror */
    bool alone;
    bool stalled;
    bool starved;
};

/* dice: state of common/base/dice.h; it changes. */
enum peer_choice choose(const struct choose_from *c, uint64_t *dice, size_t *chunk, size_t *giver);

#endif
