/* manifest.h - manifest.sha256: the digests of a folder's files, as sha256sum -c reads them.
 *
 * errors   E_CORRUPT when a file differs, is missing, or the manifest itself is invalid */
#ifndef AGENT_TRAIN_MANIFEST_H
#define AGENT_TRAIN_MANIFEST_H

#include "common/base/buf.h"
#include "common/hash/digest.h"

#define MANIFEST_NAME "manifest.sha256"

enum { MANIFEST_MAX_BYTES = 16 << 20 };

void manifest_add(struct buf *manifest, const struct digest *d, const char *name);
/* Reads the folder's manifest: calls `file` for each of its files, until it returns an error;
 * requires at least `least` of them. */
MUST_USE int manifest_each(const char *dir, int least,
                           int (*file)(void *arg, const char *dir, const char *name,
                                       const struct digest *want, struct err *e),
                           void *arg, struct err *e);
/* Checks every file of the folder's manifest; requires at least `least` of them. */
MUST_USE int manifest_verify(const char *dir, int least, struct err *e);
MUST_USE int manifest_verify_file(const char *dir, const char *name, const struct digest *want,
                                  struct err *e);

#endif
