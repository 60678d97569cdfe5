/* shards.h - a sharded index (CEP 16): the list of shards, and one shard, in MessagePack.
 *
 *   list   {"info": {"base_url", "shards_base_url", ...}, "shards": {name: SHA-256, ...}, ...}
 *   shard  {"packages": {file: {"sha256", "size", ...}, ...}, "packages.conda": {...}, ...}
 *
 * owns     nothing: slices are of the document
 * threads  any; pure
 * errors   E_INVALID: not such a document
 */
#ifndef SERVER_REPO_CONDA_SHARDS_H
#define SERVER_REPO_CONDA_SHARDS_H

#include "common/base/buf.h"
#include "common/hash/digest.h"
#include "server/repo/conda/path.h"

/* The subdirectory that a file in `folder` belongs to. We serve shards in a folder below it. */
struct slice shards_folder(struct slice folder, enum conda_kind kind);

struct shard_file {
    struct slice name; /* a valid file name */
    bool digest_known;
    struct digest digest;
    uint64_t size_bytes; /* UINT64_MAX: unknown */
};
/* doc: unpacked. Invalid file names are skipped. */
MUST_USE int shard_read(struct slice doc,
                        int (*on_file)(void *arg, const struct shard_file *f, struct err *e),
                        void *arg, struct err *e);

struct shards_places {
    struct slice packages, shards; /* as in the list, slices of it; p == NULL: not given */
};
/* Rewrites the list, which is unpacked, with its places changed to "./" and "./shards/". */
MUST_USE int shards_rewrite(struct slice doc, struct shards_places *was, struct buf *out,
                            struct err *e);

#endif
