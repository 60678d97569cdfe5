/* unpack.h - a packed index in pieces, as what it unpacks to: gzip, xz, zstd, bzip2, or nothing at
 * all.
 *
 * What a stranger packed may unpack to anything: the caller says how much is too much, and a format
 * that wants more memory than an honest index needs is refused (128 MiB of window).
 *
 * owns     unpack_close() frees
 * threads  one at a time; pure
 * errors   E_INVALID: no such format, or cut; E_TOOBIG; what on_bytes gives
 */
#ifndef SERVER_REPO_UNPACK_H
#define SERVER_REPO_UNPACK_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum packing { PACKING_NONE, PACKING_GZIP, PACKING_XZ, PACKING_ZSTD, PACKING_BZIP2 };

/* By the name's ending; *bare is the name without it, may be NULL. */
enum packing packing_of(struct slice name, struct slice *bare);

struct unpack;
struct unpack *unpack_open(enum packing how,
                           int (*on_bytes)(void *arg, struct slice bytes, struct err *e), void *arg,
                           uint64_t max_bytes);
MUST_USE int unpack_feed(struct unpack *u, struct slice bytes, struct err *e);
MUST_USE int unpack_finish(struct unpack *u, struct err *e); /* E_INVALID: it was cut */
void unpack_close(struct unpack **up);                       /* NULL is fine */

#endif
