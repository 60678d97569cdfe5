/* delta.h - whether a delta is worth asking for: it costs the peer a search through its file and us
 * sums of ours.
 *
 * Never below DELTA_LEAST, never for names that say "compressed": a change there changes all.
 * Otherwise it is tried, and what came of it is remembered for names with the same ending, while
 * the visit lasts: a class of which less than a twentieth was found is asked for whole from then
 * on.
 *
 * threads  one at a time; plain memory
 */
#ifndef SERVER_SYNC_RSYNC_DELTA_H
#define SERVER_SYNC_RSYNC_DELTA_H

#include "common/base/slice.h"

enum { DELTA_LEAST = 64 << 10, DELTA_CLASSES = 64 };

struct delta {
    uint64_t given_up; /* a bit a class */
};

struct slice delta_ending(struct slice path); /* behind its last dot; empty without */
unsigned delta_class(struct slice path);
bool delta_compressed(struct slice path); /* its name says so */
bool delta_pays(const struct delta *d, struct slice path, uint64_t size_bytes,
                uint64_t basis_bytes);
/* One has come: so much of it was found in the basis. */
void delta_learn(struct delta *d, unsigned class, uint64_t found_bytes, uint64_t all_bytes);

#endif
