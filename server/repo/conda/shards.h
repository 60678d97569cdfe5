/* shards.h - a sharded index (CEP 16): the list of shards, and one shard, in MessagePack.
 *
 *   list   {"info": {"base_url", "shards_base_url", ...}, "shards": {name: SHA-256, ...}, ...}
 *   shard  {"packages": {file: {"sha256", "size", ...}, ...}, "packages.conda": {...}, ...}
 *
 * threads  any; pure
 * errors   E_INVALID: no such document
 */
#ifndef SERVER_REPO_CONDA_SHARDS_H
#define SERVER_REPO_CONDA_SHARDS_H

#include "common/base/buf.h"
#include "common/hash/digest.h"
#include "server/repo/conda/path.h"

/* The subdirectory's folder of what lies in `folder`: shards lie in one below it, as we say it. */
struct slice shards_folder(struct slice folder, enum conda_kind kind);

struct shard_file {
    struct slice name; /* one that can be */
    bool digest_known;
    struct digest digest;
    uint64_t size_bytes; /* UINT64_MAX: not told */
};
/* Unpacked. A name that cannot be a file's is passed over. */
MUST_USE int shard_read(struct slice doc,
                        int (*on_file)(void *arg, const struct shard_file *f, struct err *e),
                        void *arg, struct err *e);

struct shards_places {
    struct slice packages, shards; /* as the list says it, slices of it; p == NULL: it does not */
};
/* The list, unpacked, with its places made "./" and "./shards/". */
MUST_USE int shards_rewrite(struct slice doc, struct shards_places *was, struct buf *out,
                            struct err *e);

#endif
