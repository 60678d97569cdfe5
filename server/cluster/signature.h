/* signature.h - by which mirrors of a cluster know each other: HMAC-SHA256 with the cluster's
 * secret, in hex. Each kind of request has a purpose, so that none can be taken for another.
 *
 * owns     nothing
 * threads  any
 */
#ifndef SERVER_CLUSTER_SIGNATURE_H
#define SERVER_CLUSTER_SIGNATURE_H

#include "common/base/slice.h"

enum { SIGNATURE_ROOM = 65 };

void signature_make(const char *secret, const char *purpose, struct slice text,
                    char out[SIGNATURE_ROOM]);
/* In constant time. */
MUST_USE bool signature_is(const char *secret, const char *purpose, struct slice text,
                           struct slice signature);

#endif
