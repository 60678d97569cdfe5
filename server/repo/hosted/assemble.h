/* assemble.h - assembles files from xorbs, as Xet clients upload them: first the xorbs, which are
 * sequences of chunks (PUT_PIECE), then a shard, which says of which chunks each file consists
 * (PUT_ASSEMBLE).
 *
 * Both belong to an upload grant (upload_grant.h). A xorb is stored as it came, as a file
 * "xorb/<hash>" of the grant. After the shard, the files are the grant's loose objects, for a
 * commit to name. A shard's statements are not trusted: each file's SHA-256 is computed from the
 * assembled bytes. If it differs, the file's xorbs are forgotten and must be uploaded again. Xorbs
 * are removed when the grant ends, because later shards may name them again.
 *
 * owns     nothing
 * threads  pool threads; blocks for as long as it takes to read, unpack and write the files
 * errors   as upload.h
 */
#ifndef SERVER_REPO_HOSTED_ASSEMBLE_H
#define SERVER_REPO_HOSTED_ASSEMBLE_H

#include "server/upload/session.h"

#define XORB_PATH "xorb/"

/* forget: xorbs that no shard has named yet stay, because a later shard may name them. Later
 * uploads to the same tree get another grant, so their clients do not know of them. */
extern const struct assembler xet_assembler;

#endif
