/* protocol.h - the messages of mirrords below /-/sync/: the head of a tree, and its nodes.
 *
 *   head    a JSON object {"version": 1, "repo", "tree", "seq", "root", "time", "entries",
 *           "bytes"}; its ETag is the root's hex
 *   node    the encoding of store/node.h, whose SHA-256 is the node's id; on request
 *           (SYNC_WIRE_NODE_ZSTD) as one zstd frame that states its size
 *
 * threads  any; no I/O
 * errors   E_PROTOCOL: not such a message; E_TOOBIG
 * source   docs/protocols/sync.md; RFC 8878 for the frame
 */
#ifndef SERVER_SYNC_MIRRORD_PROTOCOL_H
#define SERVER_SYNC_MIRRORD_PROTOCOL_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "server/store/tree.h"

#define SYNC_WIRE_NODE      "application/vnd.mirrord.node"
#define SYNC_WIRE_NODE_ZSTD "application/vnd.mirrord.node+zstd"

enum { SYNC_WIRE_VERSION = 1, SYNC_WIRE_HEAD_MAX = 64 << 10 };

/* Sets seq, root, created_unix_s, entries and bytes. */
MUST_USE int sync_head_read(struct slice json, struct snap *out, struct err *e);
void sync_node_pack(struct slice encoding, struct buf *out);
/* Unpacks at most NODE_BYTES_MAX, whatever the frame states. */
MUST_USE int sync_node_unpack(struct slice frame, struct buf *out, struct err *e);

#endif
