/* sha256.h - SHA-256 of a stream and, in the same pass, of a part of it that begins at a multiple
 * of 64 bytes.
 *
 * It uses the CPU's own instructions (sha256_block.h) if there are any; then both take little
 * longer than one. Otherwise it uses OpenSSL, for one after the other.
 *
 * owns     sha256_fini() frees what OpenSSL holds, and may be repeated
 * threads  one at a time for each stream
 * source   FIPS 180-4; docs/decisions/0014
 */
#ifndef COMMON_HASH_SHA256_H
#define COMMON_HASH_SHA256_H

#include "common/base/slice.h"
#include "common/hash/sha256_block.h"

enum { SHA256_BYTES = 32 };

enum sha256_way { SHA256_BY_OPENSSL, SHA256_BY_CPU };
/* SHA256_BY_CPU if this CPU has the instructions and has once given the same results as OpenSSL. */
enum sha256_way sha256_best(void);

struct sha256 {
    enum sha256_way way;
    bool parted;
    uint64_t count; /* bytes so far */
    uint64_t part_at;
    uint32_t whole[SHA256_WORDS], part[SHA256_WORDS];
    uint8_t rest[SHA256_BLOCK]; /* the bytes after the last full block */
    void *whole_md, *part_md;   /* OpenSSL's */
};

void sha256_init(struct sha256 *s, enum sha256_way way);
void sha256_copy(const struct sha256 *from, struct sha256 *to); /* both continue independently */
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_part_begin(
    struct sha256 *s); /* at a count that is a multiple of 64; ends a part that was begun */
void sha256_part_end(struct sha256 *s, uint8_t out[SHA256_BYTES]);
/* of the whole; it can continue */
void sha256_so_far(const struct sha256 *s, uint8_t out[SHA256_BYTES]);
void sha256_fini(struct sha256 *s);
/* In one call. */
void sha256_of(const void *p, size_t n, uint8_t out[SHA256_BYTES]);

#endif
