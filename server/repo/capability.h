/* capability.h - a secret sealed into a URL: everybody who has the URL may use it, for its one
 * purpose and until it expires.
 *
 * It is AES-256-GCM under a key that is generated at the start of the process and never leaves it,
 * so a restart invalidates earlier URLs. The mirrors of a cluster derive the same key from their
 * secret, so each opens what another one has sealed. The text is base64url without padding.
 *
 * owns     nothing: results are in the given arena
 * threads  any
 */
#ifndef SERVER_REPO_CAPABILITY_H
#define SERVER_REPO_CAPABILITY_H

#include "common/base/arena.h"

enum { CAPABILITY_SECRET_MAX = 1024 };

/* Derives the key from the secret of a cluster. Before the first call of the others. */
void capability_share_key(const char *secret);
/* purpose: what it is for; the same text is needed to open it ("xet hf/models/a/b/<sha256>").
 * secret may be "". */
struct slice capability_seal(struct slice purpose, struct slice secret, uint64_t until_unix_s,
                             struct arena *a);
/* False: forged, for another purpose, or expired. */
MUST_USE bool capability_open(struct slice text, struct slice purpose, uint64_t now_unix_s,
                              struct arena *a, struct slice *secret);

#endif
