/* file.h - one file of an artifact, as a listing names it.
 *
 * owns     its texts are the artifact's, or the listing's while that is being read */
#ifndef AGENT_PULL_FILE_H
#define AGENT_PULL_FILE_H

#include "common/hash/digest.h"

struct artifact_file {
    struct slice name;    /* below the folder; for a single file the last segment */
    struct digest digest; /* zero: not known before it has arrived */
    uint64_t size_bytes;
    struct slice etag; /* of a Hub's file: the name that the Hub's client gives its blob */
};

#endif
