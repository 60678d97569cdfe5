/* endian.h - numbers as bytes: be_*() with the highest byte first (our keys, rows and protocols),
 * le_*() with the lowest first (formats of others).
 *
 * `bytes` is 1 to 8; no alignment is assumed. buf_be() and buf_le() append to a buf. slice_be()
 * and slice_le() read from the front of a slice, and check that there are enough bytes.
 */
#ifndef COMMON_BASE_ENDIAN_H
#define COMMON_BASE_ENDIAN_H

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

static inline void le_put(void *p, unsigned bytes, uint64_t v)
{
    uint8_t *at = p;
    while (bytes-- > 0) {
        *at++ = (uint8_t)v;
        v >>= 8;
    }
}

static inline uint64_t le_get(const void *p, unsigned bytes)
{
    const uint8_t *at = p;
    uint64_t v = 0;
    while (bytes-- > 0) {
        v = v << 8 | at[bytes];
    }
    return v;
}

#endif
