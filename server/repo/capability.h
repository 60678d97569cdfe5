/* capability.h - a secret sealed into a URL: whoever was given the URL may use it, for its one
 * purpose and its time.
 *
 * AES-256-GCM under a key that is drawn when the process starts and never leaves it, so what was
 * sealed before a restart is void. Text is base64url without padding.
 *
 * threads  any
 */
#ifndef SERVER_REPO_CAPABILITY_H
#define SERVER_REPO_CAPABILITY_H

#include "common/base/arena.h"

enum { CAPABILITY_SECRET_MAX = 1024 };

/* purpose: what it is good for, told again when it is opened ("xet hf/models/a/b/<sha256>"). secret
 * may be "". */
struct slice capability_seal(struct slice purpose, struct slice secret, uint64_t until_unix_s,
                             struct arena *a);
/* False: forged, for another purpose, or its time is over. */
MUST_USE bool capability_open(struct slice text, struct slice purpose, uint64_t now_unix_s,
                              struct arena *a, struct slice *secret);

#endif
