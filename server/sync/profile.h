/* profile.h - what is known of a kind of archive: which of its files are indexes, and what they
 * must find beside them.
 *
 * Indexes are taken last, in ranks: whoever looks at an archive half-way through its update then
 * sees at worst an index that names too much, which the gate finds.
 *
 * threads  any; constant
 */
#ifndef SERVER_SYNC_PROFILE_H
#define SERVER_SYNC_PROFILE_H

#include "common/base/err.h"
#include "common/base/slice.h"
#include "server/repo/sync_conf.h"

struct closure;

enum { PROFILE_RANKS = 3 };

struct profile {
    const char *name;                    /* as `profile =` and `list =` say it */
    unsigned (*rank)(struct slice path); /* 0: content; 1, 2: taken after what has less */
    int (*check)(struct closure *x, struct err *e); /* the gate */
};

/* Of a repo's section: its `list` decides, else its `profile`. NULL: none. */
const struct profile *profile_of(const struct sync_conf *c);

#endif
