/* sha256_block.h - SHA-256's blocks by the CPU's own instructions: into one state, or into two at
 * once.
 *
 * A round waits four cycles for the one before it, and the unit could begin another every two. Two
 * states that take in the same blocks share the expansion of each block as well: 0.70 s of CPU a
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

bool sha256_block_here(void); /* this CPU has them; else neither of these may be called */
void sha256_block_one(uint32_t h[SHA256_WORDS], const uint8_t *p, size_t blocks);
void sha256_block_two(uint32_t h[SHA256_WORDS], uint32_t other[SHA256_WORDS], const uint8_t *p,
                      size_t blocks);

#endif
