/* retry.h - when a request to a cluster's bucket that failed is sent again, and when it is given
 * up.
 *
 * It is for requests that may be repeated with the same bytes. The pause between two tries doubles,
 * from 20 ms to 1 s, with jitter. The limit counts from the first failure, however long a request
 * takes.
 *
 * threads  one at a time; retry_wait() sleeps
 */
#ifndef SERVER_CLUSTER_RETRY_H
#define SERVER_CLUSTER_RETRY_H

#include <stdatomic.h>

#include "common/base/check.h"

struct retry {
    uint64_t limit_ms;
    const atomic_bool *stop; /* is set to end it early; may be NULL */
    unsigned failures;       /* so far */
    uint64_t until_ms, dice;
};

/* Whether a repetition may succeed without a person. */
bool retry_may_pass(int rc);
/* Sleeps, then returns true, if the request that failed with this code of bucket.h should be sent
 * again. False: no repetition helps, or the limit has passed. */
bool retry_wait(struct retry *r, int rc);

#endif
