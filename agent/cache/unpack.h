/* unpack.h - unpacks an archive of the local cache into a folder (extract.h).
 *
 * All jobs of the node share the folder, so nothing in it may be written. A folder that was
 * changed anyway is unpacked again before the next job gets it.
 *
 * threads  call it before threads are started, or when they are joined: it forks
 * errors   E_CHANGED (gc removed it), E_BUSY (changed by a job that still runs), E_INVALID (not
 *          such an archive, or one that breaks the rules), E_TOOBIG, E_NOSPACE
 */
#ifndef AGENT_CACHE_UNPACK_H
#define AGENT_CACHE_UNPACK_H

#include "agent/cache/cache.h"

/* The folder trees/<digest> of the local cache; created if missing. While *hold is held, gc keeps
 * it. */
MUST_USE int unpack_blob(struct local_cache *s, const struct digest *d, char path[PATH_MAX],
                         struct local_cache_lock **hold, struct err *e);
/* The same, as hard links or copies, into a folder of the user's. */
MUST_USE int unpack_copy(const char *tree, const char *to, struct err *e);

/* The stamp of a folder that is removed (unpack.c). */
void stamp_remove(const char *path);

#endif
