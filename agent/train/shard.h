/* shard.h - a file of tokens, mapped into memory.
 *
 * 128 bytes of header, then the tokens, little-endian, in as few bytes each as the vocabulary needs (1, 2 or 4):
 *
 *      0  "mrdtoken"           8  u32 version (1)     12  u32 bytes a token
 *     16  u64 tokens          24  u32 vocabulary      28  u32 zero
 *     32  SHA-256 of the tokens' bytes                64  tokenizer's name, NUL-padded ("bytes")    96  zeros
 *
 * shard_open() judges header and length; each token is checked against the vocabulary when it is read; the digest is
 * checked by shard_verify() (`trainer info`).
 *
 * owns     struct shard maps its file until shard_close()
 * threads  any number may read
 * errors   E_CORRUPT for a file that is not a shard, E_NOTFOUND and E_IO from the file system
 */
#ifndef AGENT_TRAIN_SHARD_H
#define AGENT_TRAIN_SHARD_H

#include "common/hash/digest.h"

enum { SHARD_HEADER_BYTES = 128, SHARD_VERSION = 1, SHARD_NAME_BYTES = 32 };

struct shard {
    const uint8_t *map;
    size_t map_bytes;
    uint64_t tokens;
    uint32_t vocab;
    uint32_t token_bytes;
    char tokenizer[SHARD_NAME_BYTES];
    struct digest digest;
};

MUST_USE int shard_open(const char *path, struct shard *out, struct err *e);
void shard_close(struct shard *s);
/* Copies n tokens from position `at`; the range must lie inside. E_CORRUPT for one beyond the vocabulary. */
MUST_USE int shard_read(const struct shard *s, uint64_t at, size_t n, int32_t *out, struct err *e);
MUST_USE int shard_verify(const struct shard *s, struct err *e);

/* Bytes that a token of this vocabulary takes. */
uint32_t shard_token_bytes(uint32_t vocab);
void shard_header(uint64_t tokens, uint32_t vocab, const char *tokenizer, const struct digest *d,
                  uint8_t out[SHARD_HEADER_BYTES]);

#endif
