/* sha512.h - SHA-512, the alternative name of container images and their blobs. All blobs here
 * are named by SHA-256.
 *
 * threads  any
 * source   FIPS 180-4
 */
#ifndef COMMON_HASH_SHA512_H
#define COMMON_HASH_SHA512_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum { SHA512_BYTES = 64 };

struct sha512 {
    uint8_t b[SHA512_BYTES];
};

bool sha512_eq(const struct sha512 *a, const struct sha512 *b);
void sha512_of(struct slice bytes, struct sha512 *out);
/* Of a file's first size_bytes. Blocks. E_CORRUPT: it is shorter. */
MUST_USE int sha512_of_fd(int fd, uint64_t size_bytes, struct sha512 *out, struct err *e);

#endif
