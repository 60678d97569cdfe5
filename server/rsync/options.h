/* options.h - parses the arguments that an rsync client sends to its server; an unsupported one
 * is named.
 *
 * With --secluded-args (-s) the first list of arguments has only letters. The real ones follow in
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

enum client_folders { /* how folders are listed; the option that lists most counts */
                      FOLDERS_PASSED_OVER,
                      FOLDERS_THEMSELVES, /* -d */
                      FOLDERS_ENTERED,    /* -r */
};

struct client_facts { /* the metadata of entries that the client requests */
    bool links;       /* link targets */
    bool owner, group;
    bool numeric_ids; /* only their numbers */
    bool hard_links;
};

struct client_compression {
    bool wanted;
    bool level_zero;   /* turns zlib off, in both of its forms */
    struct slice kind; /* chosen by the client; empty: names are exchanged */
    struct slice skip; /* name endings, "gz/jpg" */
};

struct client_options {
    bool sender; /* the client receives; false: it requests to push */
    bool relative;
    bool dry_run;
    bool names;          /* the client sends a list of names, each below its one path */
    bool absent_is_fine; /* missing files are skipped */
    bool cvs;            /* -C (--cvs-exclude) */
    enum client_folders folders;
    struct client_facts facts;
    struct client_compression compression;
    struct slice checksum;  /* chosen by the client: then names are not exchanged */
    int64_t seed;           /* of checksums, chosen by the client; -1: we choose */
    struct slice abilities; /* the letters after "e." */
    struct slice paths;     /* the requested paths, with their module; a NUL after each */
    uint64_t bwlimit_bytes_per_s;
};

/* args: NUL-terminated, one after the other, without the empty one at the end. *out has what was
 * parsed, also after an error. */
MUST_USE int options_parse(struct slice args, struct client_options *out, struct err *e);
/* For the same arguments: does a second list follow? */
bool options_secluded(struct slice args);

#endif
