/* walk.h - a working tree, read back: as the list that an rsync daemon would give of it.
 *
 * Nothing is followed: every folder is opened part by part from the top, and a link is text.
 *
 * threads  any; blocks for as long as the tree is large, so on the disk pool
 * errors   E_IO, E_TOOBIG; E_CANCELLED when *stop became true
 */
#ifndef SERVER_SYNC_EXEC_WALK_H
#define SERVER_SYNC_EXEC_WALK_H

#include <stdatomic.h>

#include "server/sync/exec/said.h"
#include "server/sync/rsync/list.h"

struct walk_params {
    int top;
    const struct said *said; /* sorted: what it passed over is left out */
    struct list_limits limits;
    const _Atomic bool *stop;
};

/* *out: sorted, with hard links' leaders. *left_out: what is none of a list's. */
MUST_USE int walk_tree(const struct walk_params *w, struct file_list **out, uint64_t *left_out,
                       struct err *e);
/* A descriptor of what is at `path` below top, or -1 and errno. flags: beside O_NOFOLLOW and
 * O_CLOEXEC. */
int walk_open(int top, const char *path, int flags);

#endif
