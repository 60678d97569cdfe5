/* wire.h - numbers and strings in the cache's rows: big-endian, lengths before bytes, every read bounded. */
#ifndef SERVER_CACHE_WIRE_H
#define SERVER_CACHE_WIRE_H

#include "common/base/buf.h"
#include "common/base/slice.h"

static inline void wire_put_u64(struct buf *b, uint64_t v)
{
    char p[8];

    for (int i = 0; i < 8; i++) {
        p[i] = (char)(v >> (56 - 8 * i));
    }
    buf_add(b, p, sizeof p);
}

/* p == NULL and "" stay different. */
static inline void wire_put_slice(struct buf *b, struct slice s)
{
    wire_put_u64(b, s.p == NULL ? UINT64_MAX : s.n);
    buf_adds(b, s.p == NULL ? SLICE_NONE : s);
}

MUST_USE static inline bool wire_get_bytes(struct slice *in, size_t n, struct slice *out)
{
    if (in->n < n) {
        return false;
    }
    *out = slice_first(*in, n);
    *in = slice_from(*in, n);
    return true;
}

MUST_USE static inline bool wire_get_u64(struct slice *in, uint64_t *out)
{
    struct slice s;
    uint64_t v = 0;

    if (!wire_get_bytes(in, 8, &s)) {
        return false;
    }
    for (int i = 0; i < 8; i++) {
        v = v << 8 | (uint8_t)s.p[i];
    }
    *out = v;
    return true;
}

MUST_USE static inline bool wire_get_slice(struct slice *in, struct slice *out)
{
    uint64_t n;

    if (!wire_get_u64(in, &n)) {
        return false;
    }
    if (n == UINT64_MAX) {
        *out = SLICE_NONE;
        return true;
    }
    return n <= in->n && wire_get_bytes(in, (size_t)n, out);
}

#endif
