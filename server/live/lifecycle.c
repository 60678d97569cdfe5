#include "server/live/lifecycle.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "common/os/clock.h"

struct lifecycle *lifecycle_open(void)
{
    struct lifecycle *l = NEW(struct lifecycle);

    lock_init(&l->reloading, LOCK_RELOAD);
    lock_init(&l->lock, LOCK_LEAF);
    l->started_unix_s = clock_unix_s();
    return l;
}

void lifecycle_close(struct lifecycle **lp)
{
    struct lifecycle *l = *lp;

    if (l != NULL) {
        *lp = NULL;
        lock_fini(&l->lock);
        lock_fini(&l->reloading);
        free(l);
    }
}

void lifecycle_reloaded(struct lifecycle *l, int rc, const struct err *why)
{
    if (rc == 0) {
        l->reload_ok_unix_s = clock_unix_s();
    } else {
        lock_take(&l->lock);
        l->refusal = *why;
        l->refused_unix_s = clock_unix_s();
        lock_drop(&l->lock);
    }
    l->reload_ok = rc == 0;
    l->reloads++;
}

uint64_t lifecycle_refusal(struct lifecycle *l, struct err *why)
{
    uint64_t at_unix_s;

    lock_take(&l->lock);
    *why = l->refusal;
    at_unix_s = l->refused_unix_s;
    lock_drop(&l->lock);
    return at_unix_s;
}

void reload_news_fini(struct reload_news *news)
{
    buf_free(&news->needs_restart);
    buf_free(&news->warnings);
}
