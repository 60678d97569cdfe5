/* assemble.h - files put together of xorbs: Xet's way of uploading, which brings xorbs, stretches
 * of chunks, first (PUT_PIECE), then a shard, which says of which of them each file consists
 * (PUT_ASSEMBLE).
 *
 * Both belong to an offer (offer.h). A xorb is kept as it came, as a file "xorb/<hash>" of the
 * offer; from the shard on the files are the offer's loose objects, for a commit to name. What a
 * shard says is not believed: each file's SHA-256 is taken of the bytes that come of it; xorbs of
 * one that came out wrong are forgotten, to be brought again. Xorbs go when the offer ends, for
 * later shards may name them again.
 *
 * threads  pool threads; blocks, for as long as it takes to read, unpack and write the files
 */
#ifndef SERVER_REPO_HOSTED_ASSEMBLE_H
#define SERVER_REPO_HOSTED_ASSEMBLE_H

#include "server/upload/session.h"

#define XORB_PATH "xorb/"

/* forget: the xorbs that no shard has named yet stay, one that is still to come may name them.
 * Later uploads to the offer's tree have another offer, so that their clients know of none of
 * them. */
extern const struct assembler xet_assembler;

#endif
