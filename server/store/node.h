/* node.h - one node of a tree: its encoding, its id (the SHA-256 of the encoding), and its row.
 *
 *   leaf    version 1, level 0, u32 count, count x (u16 n, path, u8 type, u8 flags, i64 mtime,
 *           then a file's u64 size and digest, and with the flag of a hard link u16 n and its
 *           first; or a link's u16 n and target)
 *   above   version 1, level,   u32 count, count x (u16 n, first path, id, u64 entries, u64 bytes)
 *
 * Numbers are big-endian; everything is sorted by path bytes. A row in TABLE_NODE is the u64 time
 * of its last write, then the encoding. Collection spares rows written within its grace, so a
 * publish can rely on nodes that it has just put.
 *
 * owns     node_free() frees a loaded node
 * threads  one at a time per node; node_load() blocks
 * errors   E_CORRUPT: the bytes are not a node, or do not match the id
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
/* Reads a node and checks it against its id; the node owns its bytes. A missing row is E_CORRUPT,
 * because an id always comes from an existing tree. */
MUST_USE int node_load(struct store *s, const struct digest *id, struct tree_node *out,
                       struct err *e);
void node_free(struct tree_node *n);
/* The encoding of a loaded node: the bytes whose SHA-256 is its id. Borrowed. */
struct slice node_encoding(const struct tree_node *n);

/* Appends one item to a node that node_begin() began and node_put() completes. */
void node_add_entry(struct buf *to, const struct entry *en);
void node_add_child(struct buf *to, const struct child *c);
void node_begin(struct buf *to);
/* Completes the encoding and puts the row into b. */
void node_put(struct buf *encoding, unsigned level, size_t count, struct batch *b,
              struct digest *id);
/* The id of a complete encoding; no row is written. */
void node_name(struct buf *encoding, unsigned level, size_t count, struct digest *id);
/* The index of the last item whose path is <= path; -1 when all come after it. */
ptrdiff_t node_find(const struct tree_node *n, struct slice path);

#endif
