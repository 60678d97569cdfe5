#include "agent/job/restart.h"

#include <inttypes.h>
#include <signal.h>
#include <sysexits.h>

#include "common/base/dice.h"
#include "common/base/slice.h"

enum { BACKOFF_MAX_MS = 300000, SIGNALLED = 128 };

void restart_init(struct restart *r, unsigned limit, uint64_t backoff_ms, uint64_t seed)
{
    *r = (struct restart){.limit = limit,
                          .backoff_ms = backoff_ms,
                          .next_ms = backoff_ms,
                          .dice = seed != 0 ? seed : 1,
                          .last = PROGRESS_NONE};
}

bool failure_may_pass(const struct failure *f)
{
    return f->code == EX_TEMPFAIL || f->by_signal ||
           (f->code > SIGNALLED && f->code <= SIGNALLED + SIGSYS);
}

static void note_progress(struct restart *r, const struct failure *f)
{
    const struct progress *at = &f->at;

    if (at->checkpoint > r->last.checkpoint) {
        r->last.checkpoint = at->checkpoint;
        r->count = r->lost = 0;
        r->next_ms = r->backoff_ms;
    }
    if (at->step < 0 || f->lost) {
        return;
    }
    r->same = at->step == r->last.step ? r->same + 1 : 1;
    r->last.step = at->step;
}

int restart_judge(struct restart *r, const struct failure *f, uint64_t *wait_ms, struct err *e)
{
    uint64_t half;

    note_progress(r, f);
    if (f->lost && r->lost < r->spare) {
        r->lost++;
        r->total++;
        *wait_ms = 0;
        return 0;
    }
    if (!failure_may_pass(f)) {
        return err_set(e, E_INVALID, "exit code %d is not retried", f->code);
    }
    if (f->at.step >= 0 && !f->lost && r->same >= RESTART_SAME_STEP) {
        return err_set(
            e, E_INTERNAL,
            "the command failed %u times in a row after step %" PRId64
            ", the last time with exit code %d, and is not restarted; the cause is probably in "
            "the program or its data: see its output",
            r->same, f->at.step, f->code);
    }
    if (r->count >= r->limit && f->lost) {
        return err_set(e, E_AGAIN, "a node was lost after %u restarts without a newer checkpoint",
                       r->count);
    }
    if (r->count >= r->limit) {
        return err_set(e, E_AGAIN,
                       "the command exited with %d after %u restarts without a newer checkpoint",
                       f->code, r->count);
    }
    r->count++;
    r->total++;
    half = r->next_ms / 2;
    *wait_ms = r->next_ms - (half != 0 ? dice_below(&r->dice, half + 1) : 0);
    r->next_ms = min_u64(2 * r->next_ms, BACKOFF_MAX_MS);
    return 0;
}

int restart_exit_code(const struct restart *r, const struct failure *f, int rc)
{
    return rc == E_INTERNAL || (rc == E_AGAIN && r->limit > 0) ? EX_SOFTWARE : f->code;
}
