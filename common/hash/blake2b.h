/* blake2b.h - BLAKE2b without a key: package indexes state files' digests in it, 32 bytes long
 * (OpenSSL 3.0 cannot compute these).
 *
 * owns     nothing: plain memory of the caller
 * threads  one at a time
 * source   RFC 7693
 */
#ifndef COMMON_HASH_BLAKE2B_H
#define COMMON_HASH_BLAKE2B_H

#include "common/base/slice.h"

enum { BLAKE2B_BLOCK = 128, BLAKE2B_256_BYTES = 32 };

struct blake2b {
    uint64_t h[8];
    uint64_t count; /* bytes hashed so far; 2^64 is out of reach */
    uint8_t block[BLAKE2B_BLOCK];
    size_t held;
    size_t out_bytes;
};

void blake2b_init(struct blake2b *b, size_t out_bytes); /* 1 to 64 */
void blake2b_add(struct blake2b *b, struct slice bytes);
void blake2b_final(struct blake2b *b,
                   uint8_t *out); /* out_bytes of them; then only blake2b_init() may follow */

#endif
