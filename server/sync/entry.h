/* entry.h - one file, link or folder of an upstream, as an engine lists it and the pipeline plans
 * with it.
 *
 * Paths are bytes below the upstream's root: no leading or trailing '/', no empty, "." or ".."
 * part, no NUL, at most 4095 bytes. An engine checks them with tree_path_valid(), and leaves out
 * and counts invalid ones. The pipeline checks again.
 *
 * owns     plain data; the slices are borrowed for the duration of the call that gives the entry
 */
#ifndef SERVER_SYNC_ENTRY_H
#define SERVER_SYNC_ENTRY_H

#include "common/base/slice.h"
#include "common/hash/digest.h"

enum sync_type { SYNC_FILE = 1, SYNC_LINK = 2, SYNC_DIR = 3 };

#define SYNC_SIZE_UNKNOWN UINT64_MAX
#define SYNC_TIME_UNKNOWN INT64_MIN

struct sync_entry {
    enum sync_type type;
    struct slice path;
    uint64_t size_bytes;   /* of a file; SYNC_SIZE_UNKNOWN */
    uint64_t size_step;    /* the list rounds sizes to about this ("1.2M"); 0 or 1: exact */
    int64_t mtime_ns;      /* unix, may be before 1970; SYNC_TIME_UNKNOWN */
    uint32_t mtime_step_s; /* the list rounds times to this: 60 for "12:21"; 0: it does not */
    bool executable;       /* a file with any x bit */
    bool digest_known;     /* by the list or a signed index: the fetched file must match it */
    struct digest digest;
    struct slice target; /* of a link: as the upstream sent it, any bytes except NUL */
    /* Of a file that is a hard link: the path of the first file of its group, which is listed too
     * and has no leader. The content is the first file's and is not fetched again. With
     * digest_known the file is verified on its own. */
    /* Of a link that is a hard link, too; it has its own target all the same */
    struct slice leader;
    /* Strong, from the list or the file's response (an ETag with its quotes): equal means the
     * same bytes. */
    struct slice validator;
    uint64_t ref; /* for the engine: where in its list, which URL. Given back with a download */
};

#endif
