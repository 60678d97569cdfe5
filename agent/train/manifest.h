/* manifest.h - manifest.sha256: the digests of a folder's files, as sha256sum -c reads them.
 *
 * errors   E_CORRUPT when a file differs, is missing, or the manifest itself is none
 */
#ifndef AGENT_TRAIN_MANIFEST_H
#define AGENT_TRAIN_MANIFEST_H

#include "common/base/buf.h"
#include "common/hash/digest.h"

#define MANIFEST_NAME "manifest.sha256"

enum { MANIFEST_MAX_BYTES = 1 << 20 };

void manifest_add(struct buf *manifest, const struct digest *d, const char *name);
/* Checks every file that the folder's manifest names; at least `least` of them. */
MUST_USE int manifest_verify(const char *dir, int least, struct err *e);

#endif
