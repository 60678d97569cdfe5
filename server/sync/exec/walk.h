/* walk.h - reads a working tree back as the list that an rsync daemon would send of it.
 *
 * No link is followed: every folder is opened part by part from the top, and a link is text.
 *
 * threads  any; blocks for long on a large tree, so call it on the disk pool
 * errors   E_IO, E_TOOBIG; E_CANCELLED when *stop became true
 */
#ifndef SERVER_SYNC_EXEC_WALK_H
#define SERVER_SYNC_EXEC_WALK_H

#include <stdatomic.h>

#include "server/sync/exec/said.h"
#include "server/sync/rsync/list.h"

struct walk_params {
    int top;
    const struct said *said; /* sorted: the paths that it skipped are left out */
    struct list_limits limits;
    const _Atomic bool *stop;
};

/* *out: sorted, with hard links' leaders. *left_out: the number of files that cannot be in a
 * list. */
MUST_USE int walk_tree(const struct walk_params *w, struct file_list **out, uint64_t *left_out,
                       struct err *e);
/* A descriptor of the file at `path` below top, or -1 and errno. flags: in addition to O_NOFOLLOW
 * and O_CLOEXEC. */
int walk_open(int top, const char *path, int flags);

#endif
