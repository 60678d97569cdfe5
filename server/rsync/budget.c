#include "server/rsync/budget.h"

#include <inttypes.h>

int budget_spend(struct budget *b, uint64_t steps, struct err *e)
{
    b->steps += steps;
    if (b->max != 0 && b->steps > b->max) {
        return err_set(e, E_TOOBIG,
                       "the rules and paths of this session cost more than %" PRIu64
                       " steps; use fewer or simpler rules, or request fewer paths at a time",
                       b->max);
    }
    if (b->steps < b->look) {
        return 0;
    }
    b->look = b->steps + BUDGET_LOOK;
    return b->stream != NULL ? stream_goes_on(b->stream, e) : 0;
}
