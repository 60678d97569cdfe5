/* be.h - big-endian numbers in keys, rows and on the wire. No alignment is assumed. */
#ifndef COMMON_BASE_BE_H
#define COMMON_BASE_BE_H

#include <stdint.h>

static inline void be_put(void *p, unsigned bytes, uint64_t v)
{
    uint8_t *at = p;
    while (bytes-- > 0) {
        at[bytes] = (uint8_t)v;
        v >>= 8;
    }
}

static inline uint64_t be_get(const void *p, unsigned bytes)
{
    const uint8_t *at = p;
    uint64_t v = 0;
    while (bytes-- > 0) {
        v = v << 8 | *at++;
    }
    return v;
}

#endif
