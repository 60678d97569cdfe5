/* place.h - gives a blob of the local cache another name: by reflink, else hard link, else copy;
 * whole or not at all.
 *
 * A name from a listing stays below `dir`: no '.', '..', empty segment or control byte, and no
 * link on the way is followed.
 *
 * threads  any, one at a time for a placer; blocks
 */
#ifndef AGENT_CACHE_PLACE_H
#define AGENT_CACHE_PLACE_H

#include <sys/types.h>

#include "agent/cache/cache.h"

/* mkdir -p. fleeting, here and below: not synced, because the files are not needed after a power
 * cut. */
MUST_USE int place_folder(const char *dir, bool fleeting, struct err *e);
/* Copies are slower, but can be written to. */
MUST_USE int place_blob(struct local_cache *s, const struct digest *d, const char *dir,
                        struct slice name, bool copy, struct err *e);
/* The same for many: consecutive names of one folder open it once. */
struct placer;
struct placer *placer_open(struct local_cache *s, const char *dir, bool copy, bool fleeting);
MUST_USE int placer_put(struct placer *p, const struct digest *d, struct slice name, struct err *e);
void placer_close(struct placer **pp); /* NULL is fine */
/* A copy (or clone) of one file, for trees that are copied whole; `to` must not exist. */
MUST_USE int place_copy_file(const char *from, const char *to, mode_t mode, struct err *e);

#endif
