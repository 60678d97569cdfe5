/* retain.h - decides which snapshots stay: the live one, named ones, one that waits for approval,
 * the last few, and the last of each of so many hours, days, weeks and months that have a
 * snapshot.
 *
 * threads  any; retain_judge is pure, retain_run blocks
 */
#ifndef SERVER_SYNC_RETAIN_H
#define SERVER_SYNC_RETAIN_H

#include "server/repo/sync_conf.h"
#include "server/store/tree.h"

struct retained {
    uint64_t seq, created_unix_s;
    bool must; /* live, named or waiting */
    bool keep; /* retain_judge() sets it */
};

/* Newest first. */
void retain_judge(const struct sync_conf *c, struct retained *snap, size_t count);
/* Removes the snapshots that need not stay; *gone counts them. held_seq: the one that waits, or
 * 0. */
MUST_USE int retain_run(struct store *s, struct slice repo, const struct sync_conf *c,
                        uint64_t held_seq, uint64_t *gone, struct err *e);

#endif
