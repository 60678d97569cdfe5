/* row_bytes.h - strings in the cache's rows.
 *
 * Each string follows its length in eight bytes. An absent string (p == NULL) and "" stay
 * different.
 *
 * threads  pure functions
 */
#ifndef SERVER_CACHE_ROW_BYTES_H
#define SERVER_CACHE_ROW_BYTES_H

#include "common/base/buf.h"
#include "common/base/slice.h"

static inline void row_put_slice(struct buf *b, struct slice s)
{
    buf_be(b, 8, s.p == NULL ? UINT64_MAX : s.n);
    buf_adds(b, s.p == NULL ? SLICE_NONE : s);
}

MUST_USE static inline bool row_get_slice(struct slice *in, struct slice *out)
{
    uint64_t n;

    if (!slice_be(in, 8, &n)) {
        return false;
    }
    if (n == UINT64_MAX) {
        *out = SLICE_NONE;
        return true;
    }
    return n <= in->n && slice_take(in, (size_t)n, out);
}

#endif
