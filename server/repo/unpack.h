/* unpack.h - decompresses an index in pieces: gzip, xz, zstd, bzip2, or no compression.
 *
 * Data from an origin may unpack to any size: the caller sets the limit, and a stream that needs
 * more memory than a legitimate index does is refused (128 MiB of window).
 *
 * owns     unpack_close() frees it
 * threads  one at a time; pure
 * errors   E_INVALID: not such a format, or truncated; E_TOOBIG; the code that on_bytes()
 * returns
 */
#ifndef SERVER_REPO_UNPACK_H
#define SERVER_REPO_UNPACK_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum packing { PACKING_NONE, PACKING_GZIP, PACKING_XZ, PACKING_ZSTD, PACKING_BZIP2 };

/* By the name's suffix; *bare is the name without it and may be NULL. */
enum packing packing_of(struct slice name, struct slice *bare);

struct unpack;
struct unpack *unpack_open(enum packing how,
                           int (*on_bytes)(void *arg, struct slice bytes, struct err *e), void *arg,
                           uint64_t max_bytes);
MUST_USE int unpack_feed(struct unpack *u, struct slice bytes, struct err *e);
MUST_USE int unpack_finish(struct unpack *u, struct err *e); /* E_INVALID: truncated */
void unpack_close(struct unpack **up);                       /* NULL is fine */

#endif
