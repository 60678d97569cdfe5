/* options.h - the arguments that an rsync client sends to its server: what we can do is read, what we cannot is named.
 *
 * With --secluded-args (-s) the first list of arguments holds only letters; the real ones follow in a second list, whose first
 * word is the name of the program. options_secluded() says whether a second list comes.
 *
 * threads  any; plain values that borrow from the arguments
 * errors   E_UNSUPPORTED names the option
 * source   sessions of the installed client; research/sync 3 (2)
 */
#ifndef SERVER_RSYNC_OPTIONS_H
#define SERVER_RSYNC_OPTIONS_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum { OPTIONS_BYTES_MAX = 64 << 10, OPTIONS_COUNT_MAX = 256 };

struct client_options {
    bool sender; /* the client receives; without it the client wants to push */
    bool recurse, folders, links, owner, group, numeric_ids, dry_run, list_only, hard_links,
        relative;
    struct slice abilities; /* the letters behind "e." */
    struct slice paths;     /* that are asked for, with their module; NUL behind each */
    uint64_t bwlimit_bytes_per_s;
    bool seeded;
    struct slice checksum; /* chosen by the client: names are not exchanged then */
    bool compress;
    bool level_zero;            /* of compression: zlib is off then, in both of its kinds */
    struct slice compression;   /* the same of compression; empty: names are exchanged */
    struct slice skip_compress; /* endings, "gz/jpg" */
    int32_t seed;
    bool names;          /* the client sends a list of them, each below its one path */
    bool absent_is_fine; /* what is not there is passed over */
    bool cvs;            /* -C (--cvs-exclude) */
};

/* args: NUL-terminated, one after the other, without the empty one at the end. *out is filled as far as it was read, also
 * when it fails. */
MUST_USE int options_parse(struct slice args, struct client_options *out, struct err *e);
/* The same arguments: does a second list follow them? */
bool options_secluded(struct slice args);

#endif
