/* bundle_in.h - a bundle being read: a folder, or a tar as it comes.
 *
 * Whoever made it is not trusted: the manifest is checked against its own digest, and everything
 * else against the manifest. What it does not name is refused in a tar, and left alone in a folder;
 * so is whatever is no plain file. No name of a bundle ever becomes a path outside its folder, and
 * nothing is written.
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
/* A tar that is in memory, for tests. */
MUST_USE int bundle_in_open_bytes(struct slice tar, struct bundle_in **out, struct err *e);
/* Once, first. sha256: what the manifest must have, NULL: what SHA256SUMS says. *digest is what it
 * has. bundle_free(). */
MUST_USE int bundle_in_manifest(struct bundle_in *in, const struct digest *sha256,
                                struct bundle *out, struct digest *digest, struct err *e);
/* The next item of it that is in the bundle, words before files; NULL: that were all, and none is
 * missing. *as: bytes that it shares with an item before (a hard link), and has not of its own;
 * else NULL. */
MUST_USE int bundle_in_next(struct bundle_in *in, struct bundle_item **out, struct bundle_item **as,
                            struct err *e);
/* Its bytes, checked; for what is small. */
MUST_USE int bundle_in_bytes(struct bundle_in *in, const struct bundle_item *it, struct buf *out,
                             struct err *e);
/* A descriptor of its bytes, *fd: the caller's; -1: there is none, they go through
 * bundle_in_pump(). */
MUST_USE int bundle_in_fd(struct bundle_in *in, const struct bundle_item *it, int *fd,
                          struct err *e);
/* Writes its bytes to a descriptor. A reader that has left is no error of ours: *left. on_bytes may
 * be NULL. */
MUST_USE int bundle_in_pump(struct bundle_in *in, const struct bundle_item *it, int to, bool *left,
                            void (*on_bytes)(void *arg, uint64_t n), void *arg, struct err *e);
/* Reads them for nothing but their SHA-256. */
MUST_USE int bundle_in_check(struct bundle_in *in, const struct bundle_item *it,
                             void (*on_bytes)(void *arg, uint64_t n), void *arg, struct err *e);
void bundle_in_close(struct bundle_in **ip);

#endif
