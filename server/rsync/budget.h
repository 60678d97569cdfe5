/* budget.h - limits the CPU time of one session: counts the steps of its rules, paths and names
 * together.
 *
 * A step is about one comparison of a byte with a part of a rule, a few nanoseconds. Code that
 * works in a loop spends steps as it goes. Every BUDGET_LOOK steps the client is checked, so work
 * ends soon after the client is gone or the server stops.
 *
 * threads  its session's own
 * errors   E_TOOBIG: the budget is spent, to be reported to the client; those of stream_goes_on()
 */
#ifndef SERVER_RSYNC_BUDGET_H
#define SERVER_RSYNC_BUDGET_H

#include "server/rsync/stream.h"

enum { BUDGET_LOOK = 1 << 18 };

struct budget {
    struct stream *stream; /* NULL: no client is checked */
    uint64_t max;          /* 0: no limit */
    uint64_t steps;
    uint64_t look; /* the next check, in steps */
};

/* steps: just done, or about to be done. */
MUST_USE int budget_spend(struct budget *b, uint64_t steps, struct err *e);

#endif
