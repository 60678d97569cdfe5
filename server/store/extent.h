/* extent.h - a set of byte ranges of an object, as sorted runs that do not touch.
 *
 * owns     extents_fini() frees the runs; a zeroed struct is empty
 * threads  one at a time
 */
#ifndef SERVER_STORE_EXTENT_H
#define SERVER_STORE_EXTENT_H

#include "common/base/buf.h"
#include "common/base/slice.h"

struct extent {
    uint64_t first;
    uint64_t end;
};

struct extents {
    struct extent *run;
    size_t count;
    size_t room;
};

void extents_add(struct extents *x, uint64_t first, uint64_t end);
void extents_copy(struct extents *to, const struct extents *from);
/* The end of the run that contains pos; pos itself when it is missing. */
uint64_t extents_until(const struct extents *x, uint64_t pos);
/* The first present byte at or after pos; UINT64_MAX: there is none. */
uint64_t extents_next(const struct extents *x, uint64_t pos);
uint64_t extents_bytes(const struct extents *x);
void extents_fini(struct extents *x);

void extents_encode(const struct extents *x, struct buf *out);
/* Takes what extents_encode() wrote from the front of *in. False: it is malformed, or reaches past
 * `total`. */
MUST_USE bool extents_decode(struct extents *x, struct slice *in, uint64_t total);

#endif
