/* delta.h - decides whether a delta is worth a request: it costs the peer a search through its
 * file, and us the sums of our file.
 *
 * It is not worth it below DELTA_LEAST, nor for names of compressed files, where any change
 * changes everything. Otherwise it is tried, and the result is remembered for names with the same
 * ending during the visit. A class of which less than a twentieth was found in the basis is
 * requested whole from then on.
 *
 * threads  one at a time; plain memory
 */
#ifndef SERVER_SYNC_RSYNC_DELTA_H
#define SERVER_SYNC_RSYNC_DELTA_H

#include "common/base/slice.h"

enum { DELTA_LEAST = 64 << 10, DELTA_CLASSES = 64 };

struct delta {
    uint64_t given_up; /* one bit per class */
};

/* what follows its last dot; empty if there is none */
struct slice delta_ending(struct slice path);
unsigned delta_class(struct slice path);
bool delta_compressed(struct slice path); /* by its name */
bool delta_pays(const struct delta *d, struct slice path, uint64_t size_bytes,
                uint64_t basis_bytes);
/* A file of this class arrived: found_bytes of it were in the basis. */
void delta_learn(struct delta *d, unsigned class, uint64_t found_bytes, uint64_t all_bytes);

#endif
