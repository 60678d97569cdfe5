/* choose.h - which chunk next, and from whom: the mirror, another node, or nobody yet. Pure: told
 * what there is, and a throw of the dice.
 *
 *   1. a missing chunk that this node is to bring from the mirror: the first, unless it brings enough already; and when givers have
 *      promised for long and given nothing (starved): one from the mirror, as in 3
 *   2. one that a giver with a free place has: of the first CHOOSE_AMONG missing ones that some giver has, one at random, so that those
 *      who fetch the same file soon have different chunks to give; of its givers one at random
 *   3. alone, or nothing has come for a while (stalled): from the mirror, unasked. Alone the first missing; stalled one of the first
 *      CHOOSE_AMONG at random, for others may have stalled at the same moment for the same reason
 *   4. wait
 */
#ifndef AGENT_PEERS_CHOOSE_H
#define AGENT_PEERS_CHOOSE_H

#include "agent/pull/peer_ops.h"

enum { CHOOSE_AMONG = 64 };

struct giver {
    const uint8_t *have; /* bits.h; NULL: nothing is known */
    unsigned places;     /* 0: not from this one now */
};

struct choose_from {
    const uint8_t *state; /* enum part_state of each chunk */
    size_t first;         /* those before are done */
    size_t count;
    const uint8_t *mine; /* bits: to be brought from the mirror */
    const struct giver *giver;
    size_t ngivers;
    bool brings; /* one more from the mirror */
    bool alone;
    bool stalled;
    bool starved;
};

/* dice: common/base/dice.h's; moves on. */
enum peer_choice choose(const struct choose_from *c, uint64_t *dice, size_t *chunk, size_t *giver);

#endif
