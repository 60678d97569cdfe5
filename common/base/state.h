/* state.h - a state machine as a table: each state's name, and which states may follow it.
 *
 *   static const struct state door[] = {
 *       [DOOR_SHUT] = {"shut", STATE(DOOR_OPEN) | STATE(DOOR_LOCKED)},
 *       [DOOR_OPEN] = {"open", STATE(DOOR_SHUT)},
 *       [DOOR_LOCKED] = {"locked", STATE(DOOR_SHUT)},
 *   };
 *   const struct state_table door_states = STATE_TABLE("door", door);
 *
 *   d->state = state_step(&door_states, d->state, DOOR_OPEN);
 *
 * A transition that the table lacks is a bug of ours: state_step() names both states and aborts.
 * Unit tests compare each table with its drawing (tests/harness/states.h).
 */
#ifndef COMMON_BASE_STATE_H
#define COMMON_BASE_STATE_H

#include "common/base/check.h"

struct state {
    const char *name;
    uint32_t next; /* a set: STATE() of each that may follow; 0: a final state */
};

struct state_table {
    const char *what; /* what has these states */
    const struct state *of;
    unsigned count;
};

#define STATE(s) (UINT32_C(1) << (s))
#define STATE_TABLE(what, rows)                                                                    \
    {                                                                                              \
        (what), (rows), ARRAY_LEN(rows)                                                            \
    }

NORETURN void state_failed(const struct state_table *t, unsigned from, unsigned to);

static inline bool state_may(const struct state_table *t, unsigned from, unsigned to)
{
    return from < t->count && to < t->count && (t->of[from].next >> to & 1) != 0;
}

static inline unsigned state_step(const struct state_table *t, unsigned from, unsigned to)
{
    if (!state_may(t, from, to)) {
        state_failed(t, from, to);
    }
    return to;
}

#endif
