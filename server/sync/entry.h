/* entry.h - one thing that an upstream has, as an engine lists it and the pipeline plans with it.
 *
 * Paths are bytes below the upstream's root: no leading or trailing '/', no empty, "." or ".."
 * part, no NUL, at most 4095. An engine checks with tree_path_valid() and leaves out (and counts)
 * what is not so; the pipeline checks again.
 *
 * owns     plain data; the slices are borrowed for as long as the call that gives the entry lasts
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
    bool executable;       /* any x bit of a file */
    bool digest_known;     /* by the list or a signed index: what is fetched must match it */
    struct digest digest;
    struct slice target; /* links: as the upstream says it, any bytes but NUL */
    /* A file that is a hard link: the path of its group's first, which is listed too and has none
     * itself. The content is the first one's: it is not fetched again. With digest_known it is
     * judged by itself. */
    /* of a link that is a hard link, too; that has its own target all the same */
    struct slice leader;
    /* Strong, of the list or of the file's own head (an ETag with its quotes): equal means the same
     * bytes. */
    struct slice validator;
    uint64_t ref; /* the engine's own: where in its list, which URL. Given back with a want */
};

#endif
