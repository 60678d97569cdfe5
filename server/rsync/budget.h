/* budget.h - what one session may cost the processor: the steps of its rules, paths and names
 * together.
 *
 * A step is about a comparison of a byte with a part of a rule, a few nanoseconds. Whoever works in
 * a loop spends here as it goes; every BUDGET_LOOK steps the client is looked at, so work ends soon
 * after the client has left or the server stops.
 *
 * threads  its session's own
 * errors   E_TOOBIG: the budget is spent, the client is to be told; those of stream_goes_on()
 */
#ifndef SERVER_RSYNC_BUDGET_H
#define SERVER_RSYNC_BUDGET_H

#include "server/rsync/stream.h"

enum { BUDGET_LOOK = 1 << 18 };

struct budget {
    struct stream *stream; /* NULL: nobody is looked at */
    uint64_t max;          /* 0: any */
    uint64_t steps;
    uint64_t look; /* at so many */
};

/* steps: of what was just done, or is about to be. */
MUST_USE int budget_spend(struct budget *b, uint64_t steps, struct err *e);

#endif
