/* sha256_block.h - SHA-256's block function with the CPU's own instructions, for one state or for
 * two in one pass.
 *
 * A round waits four cycles for the one before it, and the unit could begin another every two.
 * Two states that hash the same blocks also share the expansion of each block: 0.70 s of CPU per
 * GiB for both on a Zen 5, 0.57 s for one alone (as OpenSSL).
 *
 * threads  any
 * source   FIPS 180-4; Intel's SHA extensions
 */
#ifndef COMMON_HASH_SHA256_BLOCK_H
#define COMMON_HASH_SHA256_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BLOCK = 64, SHA256_WORDS = 8 };

/* this CPU has the instructions; otherwise neither function may be called */
bool sha256_block_here(void);
void sha256_block_one(uint32_t h[SHA256_WORDS], const uint8_t *p, size_t blocks);
void sha256_block_two(uint32_t h[SHA256_WORDS], uint32_t other[SHA256_WORDS], const uint8_t *p,
                      size_t blocks);

#endif
