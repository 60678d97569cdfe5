/* assemble.h - files put together of xorbs: Xet's way of uploading, which brings stretches of chunks first (PUT_XORB), then
 * says of which of them each file consists (PUT_SHARD).
 *
 * Both belong to an offer (offer.h). A xorb is kept as it came, as a file "xorb/<hash>" of the offer; from the shard on the
 * files are the offer's loose objects, for a commit to name. What a shard says is not believed: each file's SHA-256 is taken
 * of the bytes that come of it; xorbs of one that came out wrong are forgotten, to be brought again. Xorbs go when the offer ends, for later shards may name them again.
 *
 * threads  pool threads; blocks, for as long as it takes to read, unpack and write the files
 */
#ifndef SERVER_UPLOAD_ASSEMBLE_H
#define SERVER_UPLOAD_ASSEMBLE_H

#include "server/upload/session.h"

enum { XORB_BYTES_MAX = 72 << 20, SHARD_BYTES_MAX = 128 << 20 };
#define XORB_PATH "xorb/"

/* Removes the xorbs of an offer that this shard names; the others may be named by a shard that is still to come. Later uploads to
 * the offer's tree have another offer, so that their clients know of none of them. */
MUST_USE int assemble_forget(struct uploads *u, const struct session *s, struct slice shard,
                             struct err *e);

MUST_USE int assemble_run(struct uploads *u, const struct put *p, const struct session *s,
                          struct slice shard, struct upload_reply *reply, struct err *e);

#endif
