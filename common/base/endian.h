/* endian.h - numbers as bytes: be_*() the highest byte first (keys, rows and wires of ours), le_*()
 * the lowest (formats of others).
 *
 * `bytes` is 1 to 8; no alignment is assumed. At the end of a buf: buf_be(), buf_le(); from the
 * front of a slice: slice_be(), slice_le(), which look whether there is enough.
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
