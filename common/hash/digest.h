/* digest.h - SHA-256, by which all blobs are named.
 *
 * struct digest is a plain value (32 bytes). A hasher hashes a stream; with `chunk_bytes` it also
 * gives the digest of every chunk (the chunk list: docs/protocols/peers.md). The algorithm is
 * fetched from OpenSSL once per process.
 *
 * threads  a hasher is used by one thread at a time
 */
#ifndef COMMON_HASH_DIGEST_H
#define COMMON_HASH_DIGEST_H

#include "common/base/buf.h"

enum { DIGEST_BYTES = 32, DIGEST_HEX = 64 };
#define CHUNK_BYTES ((uint64_t)8 << 20) /* of chunk lists */

struct digest {
    uint8_t b[DIGEST_BYTES];
};

struct hasher;

void digest_of(struct slice bytes, struct digest *out);
bool digest_eq(const struct digest *a, const struct digest *b);
bool digest_is_zero(const struct digest *d);
MUST_USE bool digest_parse(struct slice hex, struct digest *out); /* 64 hex digits, either case */
void digest_format(const struct digest *d, char out[DIGEST_HEX + 1]);
/* The value of a Repr-Digest field (RFC 9530), "sha-256=:<base64>:". */
void digest_repr(const struct digest *d, char out[64]);
/* Finds sha-256 in the value of a Repr-Digest or Digest field; false when it is missing or
 * malformed. */
MUST_USE bool digest_from_field(struct slice value, struct digest *out);
MUST_USE int digest_of_fd(int fd, uint64_t size_bytes, struct digest *out, struct err *e);

struct hasher *hasher_new(void);
struct hasher *hasher_new_whole(void); /* no chunk digests: half the work after the first chunk */
void hasher_add(struct hasher *h, const void *p, size_t n);
/* Hashes the file from hasher_count() up to upto. After an error it has hashed what came before. */
MUST_USE int hasher_add_file(struct hasher *h, int fd, uint64_t upto, struct err *e);
struct hasher *hasher_copy(const struct hasher *h); /* both continue from here independently */
uint64_t hasher_count(const struct hasher *h);      /* bytes so far */
void hasher_so_far(const struct hasher *h, struct digest *out); /* and it can continue */
/* then only hasher_free() may be called */
void hasher_final(struct hasher *h, struct digest *out);
/* Digests of the complete chunks so far and, after hasher_final, of the last short one; NULL when
 * there are none. */
const struct digest *hasher_chunks(const struct hasher *h, size_t *count);
void hasher_free(struct hasher **hp);

/* The chunk list as served at /-/chunks/<sha256>: 8 bytes "mrdchnk1", u32 BE log2(chunk), u32 BE
 * count, u64 BE size, 32 bytes whole digest, then count x 32 bytes. */
void chunks_encode(const struct digest *whole, uint64_t size_bytes, const struct digest *chunk,
                   size_t count, struct buf *out);
struct chunk_list {
    struct digest whole;
    uint64_t size_bytes;
    uint64_t chunk_bytes;
    size_t count;
    struct digest *chunk; /* malloc()ed: chunks_free() */
};
MUST_USE int chunks_decode(struct slice bytes, struct chunk_list *out, struct err *e);
void chunks_free(struct chunk_list *c);

#endif
