/* metadata.h - parses the core metadata of a wheel or of its sidecar (PEP 566, 643, 658).
 *
 * owns     nothing: slices are of the text
 * threads  any; pure
 * errors   the code that on_requires() returns; E_INVALID: a malformed line
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
