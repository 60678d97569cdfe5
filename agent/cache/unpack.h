/* unpack.h - an archive of the local cache as a folder (extract.h).
 *
 * The folder is shared by all jobs of the node: nothing in it may be written, and one that was
 * changed all the same is unpacked anew before the next job gets it .
 *
 * threads  call it before threads are started, or when they are joined: it forks
 * errors   E_CHANGED (gc took it), E_BUSY (changed by a job that goes on), E_INVALID (not such an
 *          archive, or one that breaks the rules), E_TOOBIG, E_NOSPACE
 */
#ifndef AGENT_CACHE_UNPACK_H
#define AGENT_CACHE_UNPACK_H

#include "agent/cache/cache.h"

/* The folder trees/<digest> of the local cache; made when it is not there. While *hold is held, gc
 * leaves it. */
MUST_USE int unpack_blob(struct local_cache *s, const struct digest *d, char path[PATH_MAX],
                         struct local_cache_lock **hold, struct err *e);
/* The same, as hard links or copies, into a folder of the user's. */
MUST_USE int unpack_copy(const char *tree, const char *to, struct err *e);

/* The stamp of a folder that is removed (unpack.c). */
void stamp_remove(const char *path);

#endif
