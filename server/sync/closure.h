/* closure.h - checks that every file that a tree's own indexes name is in the tree, as they name
 * it. If one is not, the upstream was listed in the middle of an update, and nothing is
 * published.
 *
 * A profile (profile.h) knows which files are indexes and how to read them. It asks for the
 * tree's files, passes what an index names to closure_names(), and continues after a missing
 * file, so that the report lists all of them.
 *
 * threads  any; blocks: reads the indexes, and files whose digest is named in another kind than
 *          SHA-256
 * errors   E_AGAIN: files are missing; the sentence says which and where. E_UNSUPPORTED, E_TOOBIG:
 *          an index that no later state of the upstream will repair
 */
#ifndef SERVER_SYNC_CLOSURE_H
#define SERVER_SYNC_CLOSURE_H

#include "server/store/tree.h"
#include "server/sync/pieces.h"
#include "server/sync/profile.h"
#include "server/sync/file_filter.h"

struct closure_report {
    uint64_t indexes, files; /* checked */
    uint64_t unread;         /* indexes, or links to indexes, that are not read here */
    uint64_t wrong;          /* files that are missing or differ */
    uint64_t unwanted;       /* files that are missing because a filter left them out */
};

struct closure_want {
    struct store *store;
    const struct digest *root;
    const struct profile *profile;
    struct file_filter *file_filter; /* a file that it leaves out may be missing; or NULL */
    void (*say)(void *arg, const char *fmt, ...)
        PRINTF_LIKE(2, 3); /* reports some of the wrong files; or NULL */
    void *arg;
};

MUST_USE int closure_check(const struct closure_want *w, struct closure_report *out, struct err *e);

/* --- for profiles --- */

struct closure;

struct closure_file { /* of the tree; path is the caller's, or valid during the call only */
    struct slice path;
    struct digest digest;
    uint64_t size_bytes;
};

/* Calls check() for every file for which is_index() is true, in path order. A nonzero result of
 * check() ends it. */
MUST_USE int closure_each(struct closure *x, bool (*is_index)(struct slice path),
                          int (*check)(struct closure *x, const struct closure_file *f,
                                       struct err *e),
                          struct err *e);
/* A file of the tree. E_NOTFOUND: no such file. */
MUST_USE int closure_find(struct closure *x, struct slice path, struct closure_file *out,
                          struct err *e);
struct store *closure_store(struct closure *x);
struct closure_report *closure_report(struct closure *x);
/* The index `index` names `path`. size_bytes UINT64_MAX or sum SUM_NONE: the index does not say.
 * A wrong file is noted and reported; the result is 0 all the same. */
MUST_USE int closure_names(struct closure *x, struct slice index, struct slice path,
                           uint64_t size_bytes, const struct sum *sum, struct err *e);
/* Noted and reported as well. */
void closure_wrong(struct closure *x, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The last part of a path; *folder is what precedes it, with its '/'. */
struct slice closure_name_of(struct slice path, struct slice *folder);

#endif
