/* release.h - parses a Debian archive's Release file: which indexes a suite has, with their
 * digests. InRelease is the same within a signature, which clients check.
 *
 * owns     release_free() frees; slices live in the arena
 * threads  any; pure
 * errors   E_INVALID: not a Release file, or one without SHA256
 */
#ifndef SERVER_SYNC_DEBIAN_RELEASE_H
#define SERVER_SYNC_DEBIAN_RELEASE_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/hash/digest.h"
#include "server/repo/sync_conf.h"

struct release_file {
    struct slice path; /* below the suite's folder; a valid one */
    uint64_t size_bytes;
    struct digest digest;
};

struct release {
    struct arena arena;
    struct slice components, architectures; /* split by blanks */
    bool by_hash;
    struct release_file *file;
    size_t count, room;
    uint64_t left_out; /* lines with invalid names */
};

MUST_USE int release_read(struct slice bytes, struct release *out, struct err *e);
void release_free(struct release *r);
const struct release_file *release_find(const struct release *r, struct slice path);
/* Is this an index of the configured components and architectures? path: as in the Release, below
 * the suite's folder. Indexes of other installers, and diffs of indexes, are not. */
bool release_wants(const struct release *r, const struct sync_conf *c, struct slice path);

#endif
