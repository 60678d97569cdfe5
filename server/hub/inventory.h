/* inventory.h - lists what is here of a Hub's repositories, pulled through, synced or hosted: for
 * `mirrorctl hf` and the pages.
 *
 *   inventory.c         the kind of a repo, the names of repositories
 *   repo_index.c        pulled through: from the cache's rows
 *   inventory_trees.c   synced and hosted: from trees
 *
 * No origin is asked and nothing is changed. What the Hub said by a caller's own right (about
 * private repositories) is only shown to administrators: `all`.
 *
 * owns     nothing: what a callback gets is borrowed until it returns
 * threads  any; blocks (rows and small files are read)
 * errors   E_NOTFOUND: no such repository or revision is known here. A callback's nonzero ends the
 *          call and is returned
 */
#ifndef SERVER_HUB_INVENTORY_H
#define SERVER_HUB_INVENTORY_H

#include "common/hash/git_oid.h"
#include "server/hub/deps.h"

enum inventory_kind { INVENTORY_PULLED, INVENTORY_SYNCED, INVENTORY_HOSTED };

struct inventory_view {
    const struct hub_deps *hub;
    const struct repo *r;
    bool all;
};

/* "[REPO/][TYPE/]ID[@REV]", or with the repo given separately. */
struct inventory_name {
    struct repo *repo;
    struct slice type, prefix, id; /* "datasets", "datasets/", "owner/name" */
    struct slice rev;              /* p == NULL: not given */
};

struct inventory_sum { /* the sum of a commit's files */
    bool known;        /* its listing is here */
    uint64_t files, bytes, files_here, bytes_here;
};

struct inventory_repo { /* one repository */
    enum inventory_kind kind;
    /* of main, else of the revision requested last; "": none is known */
    struct slice type, id, commit;
    uint64_t revisions;
    struct inventory_sum sum;   /* of that commit */
    uint64_t cached_bytes;      /* of all its commits together */
    uint64_t last_asked_unix_s; /* 0: not noted */
    bool pinned, held;          /* true when some revision is */
};

struct inventory_revision {
    struct slice name; /* "main", "v1.0", "v7"; "": a commit that is no known branch's */
    struct slice commit;
    /* the commit that the Hub gave last, where the revision is held at another; else "" */
    struct slice upstream;
    uint64_t asked_unix_s; /* when the Hub was last asked for it; in trees: when it was made */
    struct inventory_sum sum;
    bool pinned, held;
};

enum inventory_state { INVENTORY_ABSENT, INVENTORY_PARTIAL, INVENTORY_WHOLE };
struct inventory_file {
    struct slice path;
    uint64_t size_bytes, have_bytes;
    bool lfs; /* named by sha256, else by oid */
    struct digest sha256;
    struct git_oid oid;
    enum inventory_state state;
};

/* Is it a Hub's repo, and of which kind? */
bool inventory_kind_of(const struct repo *r, enum inventory_kind *out);
const char *inventory_kind_name(enum inventory_kind k);   /* "pull-through", "synced", "hosted" */
const char *inventory_state_name(enum inventory_state s); /* "absent", "partial", "whole" */

/* repo.p == NULL: the name's first part if a repo of that kind has this name, else the only repo
 * there is. Slices of `text`, or static. E_INVALID, E_NOTFOUND; E_USAGE: the name is ambiguous. */
MUST_USE int inventory_name_read(const struct repo_set *rs, struct slice repo, struct slice text,
                                 struct inventory_name *out, struct err *e);

/* Repositories sorted by name, those whose "[TYPE/]ID" begins with prefix. */
MUST_USE int inventory_each(const struct inventory_view *v, struct slice prefix,
                            int (*each)(void *arg, const struct inventory_repo *x), void *arg,
                            struct err *e);
MUST_USE int inventory_revisions(const struct inventory_view *v, struct slice type, struct slice id,
                                 int (*each)(void *arg, const struct inventory_revision *x),
                                 void *arg, struct err *e);
/* The Hub's name of a repository that was requested by any of its names; in a. */
MUST_USE int inventory_id(const struct inventory_view *v, struct slice type, struct slice id,
                          struct arena *a, struct slice *out, struct err *e);
/* rev.p == NULL: main; a commit may be abbreviated. each() gets the files in order of path; it may
 * be NULL. about->name and commit are in a. */
MUST_USE int inventory_files(const struct inventory_view *v, struct slice type, struct slice id,
                             struct slice rev, struct arena *a, struct inventory_revision *about,
                             int (*each)(void *arg, const struct inventory_file *f), void *arg,
                             struct err *e);

#endif
