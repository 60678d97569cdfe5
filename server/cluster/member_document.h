/* member_document.h - what a mirror of a cluster announces of itself (member.h): one JSON object.
 *
 * The bytes come from the bucket, so they may be those of a later or an earlier version, or
 * damaged. A value that is missing or of another type counts as its default: no address, the state
 * "ready", the weight 1, FORMAT_FIRST.
 *
 * owns     nothing
 * threads  any; pure
 */
#ifndef SERVER_CLUSTER_MEMBER_DOCUMENT_H
#define SERVER_CLUSTER_MEMBER_DOCUMENT_H

#include "common/base/buf.h"
#include "server/cluster/member.h"

enum { MEMBER_DOCUMENT_BYTES = 8192, MEMBER_BOOT_ROOM = 17 };

struct member_document {
    struct member member; /* address, version, format, state, weight, applied, stopped */
    char boot[MEMBER_BOOT_ROOM];
    uint64_t beat;
    struct announced_pause {
        uint64_t origin;
        uint64_t until_unix_s; /* by the bucket's clock */
    } pause[MEMBER_PAUSES_MAX];
    size_t pauses;
};

void member_document_write(const struct member_document *d, struct buf *out);
/* False: it is no JSON object; *out then has all defaults. */
MUST_USE bool member_document_read(struct slice bytes, struct member_document *out);

#endif
