/* lifecycle.h - the state of the daemon: ready, leaving, draining; and how its last reload ended.
 *
 * threads  any */
#ifndef SERVER_LIVE_LIFECYCLE_H
#define SERVER_LIVE_LIFECYCLE_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/os/lock.h"

struct lifecycle {
    uint64_t started_unix_s;
    _Atomic bool ready;    /* listeners are open */
    _Atomic bool draining; /* it stops when all transfers are complete */
    _Atomic bool leaving;  /* its cluster: it answers, but new requests should go elsewhere */
    /* held for a whole reload: what a reload reads does not change in the meantime */
    struct lock reloading;
    _Atomic uint64_t reloads, reload_ok_unix_s;
    _Atomic bool reload_ok;
    struct lock lock; /* guards what follows */
    struct err refusal;
    uint64_t refused_unix_s;
};

struct lifecycle *lifecycle_open(void);
void lifecycle_close(struct lifecycle **lp); /* NULL is fine */
/* A reload ended: with rc == 0, or the old settings stay and *why says why. */
void lifecycle_reloaded(struct lifecycle *l, int rc, const struct err *why);
/* Why the last reload was refused, and when; only if `reload_ok` is false. */
uint64_t lifecycle_refusal(struct lifecycle *l, struct err *why);

struct reload_news {          /* the messages of a successful reload */
    struct buf needs_restart; /* new settings that need a restart, by name */
    struct buf warnings;      /* sentences, one a line */
};
#define RELOAD_NEWS ((struct reload_news){BUF_INIT(64 << 10), BUF_INIT(1 << 20)})
void reload_news_fini(struct reload_news *news);

#endif
