/* msgpack.h - MessagePack, item by item, out of bytes that lie in memory; and the little of it that
 * we write.
 *
 * What a count promises must be there: an array of n items takes n bytes at least, so no stranger's
 * number makes anybody wait or reserve. Nesting costs no stack.
 *
 * source   the MessagePack specification of 2013 (str, bin, ext)
 * threads  any; pure
 * errors   E_INVALID: cut, or no such item
 */
#ifndef COMMON_CODEC_MSGPACK_H
#define COMMON_CODEC_MSGPACK_H

#include "common/base/buf.h"

enum mp_kind {
    MP_NIL,
    MP_BOOL,
    MP_UINT,
    MP_INT, /* below zero */
    MP_FLOAT,
    MP_STR,
    MP_BIN,
    MP_EXT,
    MP_ARRAY,
    MP_MAP,
};

struct mp_item {
    enum mp_kind kind;
    uint64_t u;         /* MP_BOOL, MP_UINT; items of MP_ARRAY, pairs of MP_MAP: they follow */
    struct slice bytes; /* MP_STR, MP_BIN, MP_EXT */
};

/* Takes the next item from the front of *rest. */
MUST_USE int mp_next(struct slice *rest, struct mp_item *out, struct err *e);
/* The same with all that is in it. */
MUST_USE int mp_skip(struct slice *rest, struct err *e);
void mp_put_str(struct buf *out, struct slice s);

#endif
