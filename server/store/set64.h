/* set64.h - a set of 64-bit hashes, for marking.
 *
 * Two keys that share a hash can keep garbage, but never lose data.
 *
 * owns     set64_free() frees the slots; a zeroed struct is empty
 * threads  one at a time
 */
#ifndef SERVER_STORE_SET64_H
#define SERVER_STORE_SET64_H

#include "common/base/slice.h"

struct set64 {
    uint64_t *slot; /* 0: free */
    size_t room;
    size_t count;
};

bool set64_add(struct set64 *x, uint64_t hash); /* false: it was present */
bool set64_has(const struct set64 *x, uint64_t hash);
void set64_free(struct set64 *x);

#endif
