/* admission.h - does a batch hold, and what does it change: judged against the database and the batches before it in its group.
 *
 * What is taken is pending until admission_write(). A batch with a check of its own looks at the database itself: nothing may
 * be pending then.
 *
 * owns     what is pending; the counters of TABLE_META, as of it
 * threads  the commit thread
 * errors   E_CHANGED: a precondition does not hold; E_NOSPACE: no room is left for rows; E_INVALID, E_TOOBIG, those of kv.h
 */
#ifndef SERVER_STORE_ADMISSION_H
#define SERVER_STORE_ADMISSION_H

#include "server/store/batch.h"
#include "server/store/kv.h"
#include "server/store/space.h"

struct admission {
    struct store *s;
    struct kv_batch *kvb;
    struct buf row;
    struct counts counts;  /* with what is pending */
    struct counts written; /* without */
    bool counted;          /* they are to be written, too */
};

void admission_init(struct admission *a, struct store *s, const struct counts *counts);
void admission_fini(struct admission *a);
/* A batch that fails changes nothing. */
MUST_USE int admission_take(struct admission *a, const struct batch *b, struct err *e);
void admission_put(struct admission *a, enum table t, struct slice key, struct slice value);
/* Nothing is pending afterwards, also when it fails. */
MUST_USE int admission_write(struct admission *a, bool sync, struct err *e);

/* The counters of TABLE_META; E_NOTFOUND in a new store. */
MUST_USE int counts_load(struct store *s, struct counts *out, struct err *e);

#endif
