/* profile.h - what is known about one kind of archive: which of its files are indexes, and which
 * files they must find next to them.
 *
 * Indexes are downloaded last, in ranks. So a client that reads an archive in the middle of its
 * update sees at worst an index that names too much, and the gate finds that.
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
    const char *name; /* the value of `profile =` and `list =` */
    /* 0: content; 1, 2: downloaded after files of a lower rank */
    unsigned (*rank)(struct slice path);
    int (*check)(struct closure *x, struct err *e); /* the gate */
};

/* For a repository's section: its `list` decides, else its `profile`. NULL: none. */
const struct profile *profile_of(const struct sync_conf *c);

#endif
