/* metadata.h - what a package says of itself: the core metadata of a wheel or its sidecar (PEP 566,
 * 643, 658).
 *
 * threads  any; pure
 * errors   what on_requires gives; E_INVALID: a line that is no field
 */
#ifndef SERVER_REPO_PYTHON_METADATA_H
#define SERVER_REPO_PYTHON_METADATA_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct metadata_events {
    /* A Requires-Dist, PEP 508. */
    int (*on_requires)(void *arg, struct slice requirement, struct err *e);
    void *arg;
};

/* Name and version are slices of the text, or p == NULL. */
MUST_USE int metadata_read(struct slice text, const struct metadata_events *ev, struct slice *name,
                           struct slice *version, struct err *e);

#endif
