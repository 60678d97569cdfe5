/* inventory.h - what is here of the repositories of a Hub, pulled through, synced or hosted: for
 * `mirrorctl hf` and the pages.
 *
 *   inventory.c   which kind a repo is, how a repository is named     repo_index.c   pulled through: out of the cache's rows
 *   inventory_trees.c   synced and hosted: out of trees
 *
 * Nothing is asked of an origin, nothing is changed. What the Hub said of a repository by a
 * caller's own right (private ones) is told to administrators alone: `all`.
 *
 * threads  any; blocks (rows and small files are read)
 * errors   E_NOTFOUND: no such repository or revision is known here. A callback's nonzero ends it,
 *          and is returned
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

/* "[REPO/][TYPE/]ID[@REV]", or with the repo said apart. */
struct inventory_name {
    struct repo *repo;
    struct slice type, prefix, id; /* "datasets", "datasets/", "owner/name" */
    struct slice rev;              /* p == NULL: none was said */
};

struct inventory_sum { /* of a commit's files */
    bool known;        /* its listing is here */
    uint64_t files, bytes, files_here, bytes_here;
};

struct inventory_repo { /* one repository */
    enum inventory_kind kind;
    struct slice type, id, commit; /* of main, else of what was asked for last; "": none is known */
    uint64_t revisions;
    struct inventory_sum sum;   /* of that commit */
    uint64_t cached_bytes;      /* of all its commits together */
    uint64_t last_asked_unix_s; /* 0: not noted */
    bool pinned, held;          /* some revision is */
};

struct inventory_revision {
    struct slice name; /* "main", "v1.0", "v7"; "": a commit that no known branch stands for */
    struct slice commit;
    struct slice upstream; /* that the Hub gave for it last, where it is held at another; else "" */
    uint64_t asked_unix_s; /* when the Hub was last asked for it; of trees: when it was made */
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

/* Is it a Hub's, and of which kind? */
bool inventory_kind_of(const struct repo *r, enum inventory_kind *out);
const char *inventory_kind_name(enum inventory_kind k);   /* "pull-through", "synced", "hosted" */
const char *inventory_state_name(enum inventory_state s); /* "absent", "partial", "whole" */

/* repo.p == NULL: the name's first part, when a repo of that kind is called so, else the only one
 * there is. Slices of `text`, or static. E_INVALID, E_NOTFOUND, E_USAGE: which one is meant cannot
 * be told. */
MUST_USE int inventory_name_read(const struct repo_set *rs, struct slice repo, struct slice text,
                                 struct inventory_name *out, struct err *e);

/* Repositories in the order of their names, "[TYPE/]ID" beginning with prefix. */
MUST_USE int inventory_each(const struct inventory_view *v, struct slice prefix,
                            int (*each)(void *arg, const struct inventory_repo *x), void *arg,
                            struct err *e);
MUST_USE int inventory_revisions(const struct inventory_view *v, struct slice type, struct slice id,
                                 int (*each)(void *arg, const struct inventory_revision *x),
                                 void *arg, struct err *e);
/* The name that the Hub knows a repository by, which was asked for by any of its names; in a. */
MUST_USE int inventory_id(const struct inventory_view *v, struct slice type, struct slice id,
                          struct arena *a, struct slice *out, struct err *e);
/* rev.p == NULL: main; a commit may be short. each: file by file, by path; may be NULL. about->name
 * and commit are in a. */
MUST_USE int inventory_files(const struct inventory_view *v, struct slice type, struct slice id,
                             struct slice rev, struct arena *a, struct inventory_revision *about,
                             int (*each)(void *arg, const struct inventory_file *f), void *arg,
                             struct err *e);

#endif
