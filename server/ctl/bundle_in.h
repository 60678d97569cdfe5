/* bundle_in.h - reads a bundle: a folder, or a tar as it arrives.
 *
 * The bundle is not trusted: the manifest is checked against its own digest, and everything else
 * against the manifest. Files that it does not name are refused in a tar, and ignored in a
 * folder; so is everything that is not a plain file. No name of a bundle ever becomes a path
 * outside its folder, and nothing is written.
 *
 * owns     bundle_in_close() frees
 * threads  one at a time; blocks
 * errors   E_INVALID, E_CORRUPT: with the path and what is wrong with it
 */
#ifndef SERVER_CTL_BUNDLE_IN_H
#define SERVER_CTL_BUNDLE_IN_H

#include "server/ctl/bundle.h"

struct bundle_in;
/* from: a folder, a tar file, or "-": a tar on standard input. */
MUST_USE int bundle_in_open(const char *from, struct bundle_in **out, struct err *e);
/* A tar in memory, for tests. */
MUST_USE int bundle_in_open_bytes(struct slice tar, struct bundle_in **out, struct err *e);
/* Once, first. sha256: the required digest of the manifest; NULL: the one in SHA256SUMS. *digest
 * is the actual one. bundle_free(). */
MUST_USE int bundle_in_manifest(struct bundle_in *in, const struct digest *sha256,
                                struct bundle *out, struct digest *digest, struct err *e);
/* The next item of the manifest that is in the bundle, words/ before files; NULL: that was the
 * last, and none is missing. *as: an earlier item whose bytes it shares (a hard link), so it has
 * none in the tar; else NULL. */
MUST_USE int bundle_in_next(struct bundle_in *in, struct bundle_item **out, struct bundle_item **as,
                            struct err *e);
/* Its bytes, checked; for small items. */
MUST_USE int bundle_in_bytes(struct bundle_in *in, const struct bundle_item *it, struct buf *out,
                             struct err *e);
/* *fd: a descriptor of its bytes, the caller's; -1: there is none, use bundle_in_pump(). */
MUST_USE int bundle_in_fd(struct bundle_in *in, const struct bundle_item *it, int *fd,
                          struct err *e);
/* Writes its bytes to a descriptor. A reader that is gone is not an error: *left. on_bytes may be
 * NULL. */
MUST_USE int bundle_in_pump(struct bundle_in *in, const struct bundle_item *it, int to, bool *left,
                            void (*on_bytes)(void *arg, uint64_t n), void *arg, struct err *e);
/* Reads its bytes only to check their SHA-256. */
MUST_USE int bundle_in_check(struct bundle_in *in, const struct bundle_item *it,
                             void (*on_bytes)(void *arg, uint64_t n), void *arg, struct err *e);
void bundle_in_close(struct bundle_in **ip);

#endif
