/* shard.h - a file of tokens.
 *
 * 128 bytes of header, then the tokens, little-endian, in as few bytes each as the vocabulary
 * needs (1, 2 or 4):
 *
 *      0  "mrdtoken"           8  u32 version (1)     12  u32 bytes a token
 *     16  u64 tokens          24  u32 vocabulary      28  u32 zero
 *     32  SHA-256 of the tokens' bytes
 *     64  tokenizer's name, NUL-padded ("bytes", "gpt2", "llama3")
 *     96  the tokenizer's identity (tokenizer.h), zeros: unknown
 *
 * llm.c's shards are supported too: 256 int32, of which magic, version and count are set, then
 * GPT-2's tokens in uint16 (20240520, version 1) or Llama-3's in uint32 (20240801, version 7).
 * They carry no digest.
 *
 * shard_open() checks header and length; each token is checked against the vocabulary when it is
 * read. Reads use pread, not a mapping: a file that is truncated or fails during a read is an
 * error and not a SIGBUS (docs/decisions/0006).
 *
 * owns     struct shard holds its file open until shard_close(); a shard_writer's file does not
 *          exist before shard_commit()
 * threads  any number may read; a writer is used by one at a time
 * errors   E_CORRUPT for a file that is not a shard, E_NOTFOUND and E_IO from the file system
 */
#ifndef AGENT_TRAIN_SHARD_H
#define AGENT_TRAIN_SHARD_H

#include "common/hash/digest.h"

enum { SHARD_HEADER_BYTES = 128, SHARD_VERSION = 1, SHARD_NAME_BYTES = 32, SHARD_HEAD_MAX = 1024 };

struct shard {
    uint64_t tokens;
    uint32_t vocab;
    char tokenizer[SHARD_NAME_BYTES];
    struct digest digest;   /* of the tokens' bytes; zero: unknown */
    struct digest identity; /* of the tokenizer; zero: unknown */
    uint32_t token_bytes;
    uint32_t head_bytes;
    int fd;
    char *path;
};

MUST_USE int shard_open(const char *path, struct shard *out, struct err *e);
void shard_close(struct shard *s);
/* Parses the first SHARD_HEAD_MAX bytes, or the whole file if it is shorter, of a file of so many
 * bytes. */
MUST_USE int shard_parse(struct slice head, uint64_t file_bytes, struct shard *out, struct err *e);
/* Copies n tokens from position `at`; the range must be inside. E_CORRUPT for one beyond the
 * vocabulary. */
MUST_USE int shard_read(const struct shard *s, uint64_t at, size_t n, int32_t *out, struct err *e);
/* Announces that this range will be read soon: a slow disk may begin. */
void shard_expect(const struct shard *s, uint64_t at, size_t n);
/* Reads everything: checks every token against the vocabulary, and the digest if there is one. */
MUST_USE int shard_verify(const struct shard *s, struct err *e);
/* Do the tokens of both have the same meaning, as far as is known? */
bool shard_alike(const struct shard *a, const struct shard *b);

/* Bytes that a token of this vocabulary takes. */
uint32_t shard_token_bytes(uint32_t vocab);
/* From tokens, vocabulary, tokenizer, digest and identity. */
void shard_header(const struct shard *s, uint8_t out[SHARD_HEADER_BYTES]);

struct shard_writer;

/* `about` gives vocabulary, tokenizer and identity. */
MUST_USE int shard_create(const char *path, const struct shard *about, struct shard_writer **out,
                          struct err *e);
/* Whole tokens, in as many bytes each as they take. */
MUST_USE int shard_write(struct shard_writer *w, const void *tokens, size_t bytes, struct err *e);
uint64_t shard_written(const struct shard_writer *w); /* tokens */
/* Frees *wp, also when it fails; `made`, which may be NULL, gets tokens and digest. */
MUST_USE int shard_commit(struct shard_writer **wp, struct shard *made, struct err *e);
void shard_abort(struct shard_writer **wp); /* leaves no file; NULL is fine */

#endif
