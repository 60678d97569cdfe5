/* node.h - one node of a tree: its encoding, which its SHA-256 names, and its row.
 *
 *   leaf    version 1, level 0, u32 count, count x (u16 n, path, u8 type, u8 flags, i64 mtime, then a file's u64 size and
 *           digest, and with the flag of a hard link u16 n and its first; or a link's u16 n and target)
 *   above   version 1, level,   u32 count, count x (u16 n, first path, id, u64 entries, u64 bytes)
 *
 * Numbers are big-endian; everything is sorted by path bytes. A row in TABLE_NODE is u64 time of
 * its last writing, then the encoding: collection spares what was written within its grace, so a
 * publish may rely on nodes that it has just put.
 */
#ifndef SERVER_STORE_NODE_H
#define SERVER_STORE_NODE_H

#include "server/store/tree.h"

enum {
    NODE_COUNT_MAX = 512,
    NODE_LEVELS = 16,
    NODE_HEAD = 6,
    NODE_TIME = 8,
    NODE_BYTES_MAX = 8 << 20,
    TREE_PATH_MAX = 4095,
};

struct child {
    struct slice first;
    struct digest id;
    uint64_t entries;
    uint64_t bytes;
};

struct tree_node {
    unsigned level;
    size_t count;
    struct entry *entry; /* level 0 */
    struct child *child; /* above */
    struct buf bytes;    /* what the slices point into */
};

/* E_CORRUPT: not a node. The node borrows `bytes`. */
MUST_USE int node_decode(struct slice bytes, struct tree_node *out, struct err *e);
/* Reads and checks against its id; the node owns its bytes. Absent: E_CORRUPT, for whoever has an
 * id has a tree. */
MUST_USE int node_load(struct store *s, const struct digest *id, struct tree_node *out,
                       struct err *e);
void node_free(struct tree_node *n);
/* The encoding of one that was loaded: what its id is the SHA-256 of. Borrowed. */
struct slice node_encoding(const struct tree_node *n);

/* Appends one item behind a head that node_put() completes. */
void node_add_entry(struct buf *to, const struct entry *en);
void node_add_child(struct buf *to, const struct child *c);
void node_begin(struct buf *to);
/* The row goes into b. */
void node_put(struct buf *encoding, unsigned level, size_t count, struct batch *b,
              struct digest *id);
/* Of a finished encoding, without a row. */
void node_name(struct buf *encoding, unsigned level, size_t count, struct digest *id);
/* Index of the last item whose path is <= path; -1 when all are behind it. */
ptrdiff_t node_find(const struct tree_node *n, struct slice path);

#endif
