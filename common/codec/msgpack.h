/* msgpack.h - reads MessagePack item by item from memory, and writes the few kinds that we need.
 *
 * A count is checked against the bytes that are there: an array of n items takes at least n
 * bytes, so no stranger's number makes us wait or allocate. Nesting uses no stack.
 *
 *
 * source   the MessagePack specification of 2013 (str, bin, ext)
 * threads  any; pure
 * errors   E_INVALID: truncated, or an invalid item
 */
#ifndef COMMON_CODEC_MSGPACK_H
#define COMMON_CODEC_MSGPACK_H

#include "common/base/buf.h"

enum mp_kind {
    MP_NIL,
    MP_BOOL,
    MP_UINT,
    MP_INT, /* negative */
    MP_FLOAT,
    MP_STR,
    MP_BIN,
    MP_EXT,
    MP_ARRAY,
    MP_MAP,
};

struct mp_item {
    enum mp_kind kind;
    /* MP_BOOL, MP_UINT; the number of items of MP_ARRAY, of pairs of MP_MAP, which follow */
    uint64_t u;
    struct slice bytes; /* MP_STR, MP_BIN, MP_EXT */
};

/* Removes the next item from the front of *rest. */
MUST_USE int mp_next(struct slice *rest, struct mp_item *out, struct err *e);
/* The same, including everything in it. */
MUST_USE int mp_skip(struct slice *rest, struct err *e);
void mp_put_str(struct buf *out, struct slice s);

#endif
