/* checksum.h - the digests by which rsync checks a transfer: of whole files as they stream by,
 * and of single blocks.
 *
 * They protect against errors, not against attackers: stored files are named by their SHA-256.
 *
 * owns     a checksum owns its state; checksum_fini() frees it and may be repeated
 * threads  one at a time
 * source   xxHash and OpenSSL for the sums
 */
#ifndef SERVER_SYNC_RSYNC_CHECKSUM_H
#define SERVER_SYNC_RSYNC_CHECKSUM_H

#include "common/base/buf.h"

enum checksum_kind { CHECKSUM_XXH128, CHECKSUM_XXH3, CHECKSUM_XXH64, CHECKSUM_MD5 };
enum { CHECKSUM_KINDS = 4, CHECKSUM_BYTES_MAX = 16 };

/* The names that we offer, the best first. */
#define CHECKSUM_OFFER "xxh128 xxh3 xxh64 md5"

const char *checksum_name(enum checksum_kind k);
size_t checksum_bytes(enum checksum_kind k);
/* The first of the client's names that the server has too; false if there is none. Unknown names
 * are skipped. */
MUST_USE bool checksum_agree(struct slice clients, struct slice servers, enum checksum_kind *out);

struct checksum {
    enum checksum_kind kind;
    void *state;
};
void checksum_init(struct checksum *c, enum checksum_kind k); /* of a whole file: no seed */
void checksum_begin(struct checksum *c);                      /* the next file */
void checksum_add(struct checksum *c, struct slice bytes);
void checksum_end(struct checksum *c, uint8_t out[CHECKSUM_BYTES_MAX]);
void checksum_fini(struct checksum *c);

/* Of one block, mixed with the session's seed. seed_first: as agreed at the start; older peers
 * put MD5's seed after the block. */
void checksum_block(enum checksum_kind k, int32_t seed, bool seed_first, struct slice block,
                    uint8_t out[CHECKSUM_BYTES_MAX]);

#endif
