#include "server/cluster/retry.h"

#include "common/base/dice.h"
#include "common/base/err.h"
#include "common/os/clock.h"

enum { PAUSE_MS = 20, PAUSE_MAX_MS = 1000, SLICE_MS = 50 };

bool retry_may_pass(int rc)
{
    return rc == E_AGAIN || rc == E_NETWORK || rc == E_TIMEOUT || rc == E_PROTOCOL;
}

static bool is_stopped(const struct retry *r)
{
    return r->stop != NULL && atomic_load(r->stop);
}

static void sleep_ms(uint64_t ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};

    nanosleep(&t, NULL);
}

bool retry_wait(struct retry *r, int rc)
{
    uint64_t now_ms = clock_now_ms(), end_ms, pause_ms;

    if (r->failures++ == 0) {
        r->until_ms = now_ms + r->limit_ms;
        r->dice = clock_now_ns() | 1;
    }
    if (!retry_may_pass(rc) || now_ms >= r->until_ms || is_stopped(r)) {
        return false;
    }
    pause_ms = min_u64((uint64_t)PAUSE_MS << min_u64(r->failures - 1, 8), PAUSE_MAX_MS);
    end_ms = now_ms + pause_ms / 2 + dice_below(&r->dice, pause_ms);
    while (!is_stopped(r) && now_ms < end_ms) {
        sleep_ms(min_u64(SLICE_MS, end_ms - now_ms));
        now_ms = clock_now_ms();
    }
    return !is_stopped(r);
}
