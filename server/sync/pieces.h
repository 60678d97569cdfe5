/* pieces.h - reads a blob in pieces: unpacked, as it is, or only for a checksum. Indexes are read
 * this way, for a list and at the gate.
 *
 * threads  any; blocks
 * errors   of the store; E_INVALID, E_TOOBIG from unpacking; any result of feed
 */
#ifndef SERVER_SYNC_PIECES_H
#define SERVER_SYNC_PIECES_H

#include "server/store/store.h"
#include "common/hash/sum.h"
#include "server/repo/unpack.h"

/* An index that unpacks to more than 8 GiB is E_TOOBIG. */
MUST_USE int pieces_read(struct store *s, const struct digest *d, enum packing how,
                         int (*feed)(void *arg, struct slice bytes, struct err *e), void *arg,
                         struct err *e);
/* E_TOOBIG above out->max. */
MUST_USE int pieces_load(struct store *s, const struct digest *d, struct buf *out, struct err *e);
MUST_USE int pieces_sum(struct store *s, const struct digest *d, enum sum_kind kind,
                        struct sum *out, struct err *e);

#endif
