/* options.h - the arguments that an rsync client sends to its server: what we can do is read, what
 * we cannot is named.
 *
 * With --secluded-args (-s) the first list of arguments holds only letters; the real ones follow in
 * a second list, whose first word is the name of the program. options_secluded() says whether a
 * second list comes.
 *
 * threads  any; plain values that borrow from the arguments
 * errors   E_UNSUPPORTED names the option
 * source   sessions of the installed client
 */
#ifndef SERVER_RSYNC_OPTIONS_H
#define SERVER_RSYNC_OPTIONS_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum { OPTIONS_BYTES_MAX = 64 << 10, OPTIONS_COUNT_MAX = 256 };

enum client_folders { /* what is told of a folder that is asked for; the most that the client says counts */
                      FOLDERS_PASSED_OVER,
                      FOLDERS_THEMSELVES, /* -d */
                      FOLDERS_ENTERED,    /* -r */
};

struct client_facts { /* of an entry, that the client wants to know */
    bool links;       /* where they lead */
    bool owner, group;
    bool numeric_ids; /* of them the numbers alone */
    bool hard_links;
};

struct client_compression {
    bool wanted;
    bool level_zero;   /* zlib is off then, in both of its kinds */
    struct slice kind; /* chosen by the client; empty: names are exchanged */
    struct slice skip; /* endings, "gz/jpg" */
};

struct client_options {
    bool sender; /* the client receives; without it the client wants to push */
    bool relative;
    bool dry_run;
    bool names;          /* the client sends a list of them, each below its one path */
    bool absent_is_fine; /* what is not there is passed over */
    bool cvs;            /* -C (--cvs-exclude) */
    enum client_folders folders;
    struct client_facts facts;
    struct client_compression compression;
    struct slice checksum;  /* chosen by the client: names are not exchanged then */
    int64_t seed;           /* of checksums, chosen by the client; -1: ours to choose */
    struct slice abilities; /* the letters behind "e." */
    struct slice paths;     /* that are asked for, with their module; NUL behind each */
    uint64_t bwlimit_bytes_per_s;
};

/* args: NUL-terminated, one after the other, without the empty one at the end. *out is filled as
 * far as it was read, also when it fails. */
MUST_USE int options_parse(struct slice args, struct client_options *out, struct err *e);
/* The same arguments: does a second list follow them? */
bool options_secluded(struct slice args);

#endif
