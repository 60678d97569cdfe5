/* chunk_lists.h - lists of chunks (common/hash/digest.h) of files that lie in a cluster's bucket.
 *
 * trainagent asks for a file's list before its bytes, and nodes that share a file need it. So a
 * publish uploads the list with the file, as an item of CONTENT_CHUNKS, which is named by the
 * file's digest: in the pack that has the nodes, without a request of its own. Collection keeps it
 * as long as the file.
 *
 * A file has no such item if an earlier version of mirrord has published it. Its list is then not
 * known before the file is on the disk, and clients do without: no request for a list reads a whole
 * file from the bucket.
 *
 * owns     the lists that were asked for last, up to 8 MiB
 * threads  any except a loop's; all block
 * errors   E_NOTFOUND: the list is not known, or is damaged; the other codes of content_fetch.h
 */
#ifndef SERVER_CLUSTER_CHUNK_LISTS_H
#define SERVER_CLUSTER_CHUNK_LISTS_H

#include <stdatomic.h>

#include "server/cluster/bucket.h"
#include "server/store/batch.h"

struct chunk_lists_settings { /* all are borrowed */
    struct store *store;
    struct bucket *bucket;
    uint64_t retry_ms;
    const atomic_bool *stop;
};

struct chunk_lists;
struct chunk_lists *chunk_lists_open(const struct chunk_lists_settings *set);
void chunk_lists_close(struct chunk_lists **lp); /* NULL is fine */
/* Of a file that the store does not have. *out is cleared first. */
MUST_USE int chunk_lists_get(struct chunk_lists *l, const struct digest *d, struct buf *out,
                             struct err *e);

/* What a publish uploads: the list of a file, if the batch or the store has it and it has more than
 * one chunk. *out is cleared first. */
MUST_USE int chunk_list_of_file(struct store *s, const struct batch_rows *rows,
                                const struct digest *d, struct buf *out, struct err *e);

#endif
