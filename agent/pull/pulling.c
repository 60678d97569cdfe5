#include "agent/pull/pulling.h"

#include "common/os/clock.h"
#include "common/codec/progress.h"

static void draw(void *arg, const struct puller *pl, bool last)
{
    if (!last) {
        progress_draw(arg, pl->done_bytes, pl->known_bytes != 0 ? pl->known_bytes : UINT64_MAX,
                      clock_now_ms());
    }
}

int pulling(const struct agent *a, struct artifact *one, size_t count, struct err *e)
{
    struct progress *bar =
        a->quiet || a->json ? NULL : progress_open(count == 1 ? one->from : "artifacts");
    struct puller *pl = NULL;
    int rc = puller_open(a, &pl, e);

    if (rc == 0) {
        pl->on_tick = draw;
        pl->tick_arg = bar;
        rc = artifacts_pull(pl, one, count, e);
    }
    puller_close(&pl);
    progress_close(&bar);
    return rc;
}
