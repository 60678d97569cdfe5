/* git_oid.h - the object id that Git gives a file: SHA-1 of "blob <size>\0" and its bytes.
 *
 * It is weak as a hash, but for files that are not LFS a Hub states nothing else. It detects
 * files that were truncated or mixed up on the way.
 *
 * threads  plain data
 */
#ifndef COMMON_HASH_GIT_OID_H
#define COMMON_HASH_GIT_OID_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum { GIT_OID_BYTES = 20, GIT_OID_HEX = 40 };

struct git_oid {
    uint8_t b[GIT_OID_BYTES];
};

MUST_USE bool git_oid_parse(struct slice hex, struct git_oid *out); /* 40 hex digits */
void git_oid_format(const struct git_oid *o, char out[GIT_OID_HEX + 1]);
bool git_oid_eq(const struct git_oid *a, const struct git_oid *b);
void git_oid_of(struct slice bytes, struct git_oid *out);

/* Of bytes that come in pieces; their number must be known before. */
struct git_hasher;
struct git_hasher *git_hasher_new(uint64_t size_bytes);
void git_hasher_add(struct git_hasher *h, struct slice bytes);
void git_hasher_final(struct git_hasher *h, struct git_oid *out); /* once */
void git_hasher_free(struct git_hasher **hp);                     /* NULL is fine */

/* Of the first size_bytes of a file. Blocks. */
MUST_USE int git_oid_of_fd(int fd, uint64_t size_bytes, struct git_oid *out, struct err *e);

#endif
