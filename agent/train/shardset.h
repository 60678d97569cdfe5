/* shardset.h - writes tokens into numbered shards, train-00000.bin, train-00001.bin, ..., each
 * filled to the same size.
 *
 * A set that was aborted, or whose process died, leaves only whole shards.
 *
 * threads  one at a time
 * errors   E_NOSPACE and E_IO from the file system
 */
#ifndef AGENT_TRAIN_SHARDSET_H
#define AGENT_TRAIN_SHARDSET_H

#include "agent/train/shard.h"

struct shardset;

/* `path` is the prefix of the shards' names; "-00000.bin" follows, or nothing when `only` one is
 * made. A shard's file has at most limit bytes. `about` as for shard_create(). */
MUST_USE int shardset_open(const char *path, bool only, uint64_t limit_bytes,
                           const struct shard *about, struct shardset **out, struct err *e);
MUST_USE int shardset_add(struct shardset *s, const void *tokens, size_t bytes, struct err *e);
/* Finishes the last shard; without tokens there is none. */
MUST_USE int shardset_finish(struct shardset *s, struct err *e);
void shardset_close(struct shardset **sp); /* NULL is fine; removes an unfinished one */

uint64_t shardset_tokens(const struct shardset *s);
size_t shardset_count(const struct shardset *s);
/* Tokens and digest of a finished one, and the last part of its path. */
const struct shard *shardset_at(const struct shardset *s, size_t i, const char **name);

#endif
