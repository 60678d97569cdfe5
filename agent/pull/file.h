/* file.h - one file of an artifact, as a listing names it.
 *
 * owns     its texts are the artifact's, or the listing's while that is read
 */
#ifndef AGENT_PULL_FILE_H
#define AGENT_PULL_FILE_H

#include "common/hash/digest.h"

struct artifact_file {
    struct slice name;    /* below the folder; of a single file its last segment */
    struct digest digest; /* zero: not known before it has come */
    uint64_t size_bytes;
    struct slice etag; /* of a Hub's file: what its client calls its blob by */
};

#endif
