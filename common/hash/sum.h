/* sum.h - a file's digest as stated by an index, of any kind.
 *
 * threads  any; pure */
#ifndef COMMON_HASH_SUM_H
#define COMMON_HASH_SUM_H

#include "common/base/slice.h"
#include "common/hash/digest.h"

enum sum_kind { SUM_NONE, SUM_MD5, SUM_SHA1, SUM_SHA256, SUM_SHA512 };
enum { SUM_BYTES = 64 };

struct sum {
    enum sum_kind kind;
    uint8_t b[SUM_BYTES]; /* as many bytes as the kind has, the rest zero */
};

/* False: an unknown kind ("sha256", "SHA512", "sha" for SHA-1...), or the wrong number of hex
 * digits. */
MUST_USE bool sum_parse(struct slice kind, struct slice hex, struct sum *out);
bool sum_eq(const struct sum *a, const struct sum *b);
/* True: it is a SHA-256, by which the store names blobs. */
bool sum_digest(const struct sum *s, struct digest *out);

/* Of bytes that come in pieces. */
struct summer;
struct summer *summer_open(enum sum_kind kind); /* not SUM_NONE */
void summer_add(struct summer *m, struct slice bytes);
void summer_final(struct summer *m, struct sum *out);
void summer_close(struct summer **mp); /* NULL is fine */

#endif
