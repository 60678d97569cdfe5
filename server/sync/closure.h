/* closure.h - what a tree's own indexes name is in the tree, as they name it: else the upstream was
 * seen half-way, and nothing is published.
 *
 * Which files are indexes, and what is read from them, is a profile's (profile.h): it asks for the
 * tree's files, feeds what an index says to closure_names(), and goes on when something lacks, so
 * that the report can tell all of it.
 *
 * threads  any; blocks: reads the indexes, and files whose digest is named in another kind than
 *          ours
 * errors   E_AGAIN with what is missing where; E_UNSUPPORTED, E_TOOBIG: an index that no next state
 *          of the upstream mends
 */
#ifndef SERVER_SYNC_CLOSURE_H
#define SERVER_SYNC_CLOSURE_H

#include "server/store/tree.h"
#include "server/sync/pieces.h"
#include "server/sync/profile.h"
#include "server/sync/file_filter.h"

struct closure_report {
    uint64_t indexes, files; /* checked */
    uint64_t unread;         /* indexes, or links of them, that are not read here */
    uint64_t wrong;          /* files that are not there, or are others */
    uint64_t unwanted;       /* files that are not there, and were left out on purpose */
};

struct closure_want {
    struct store *store;
    const struct digest *root;
    const struct profile *profile;
    struct file_filter *file_filter; /* what it does not want may be missing; or NULL */
    void (*say)(void *arg, const char *fmt, ...)
        PRINTF_LIKE(2, 3); /* of some wrong files; or NULL */
    void *arg;
};

MUST_USE int closure_check(const struct closure_want *w, struct closure_report *out, struct err *e);

/* --- for profiles --- */

struct closure;

struct closure_file { /* of the tree; path is the caller's, or good during the call alone */
    struct slice path;
    struct digest digest;
    uint64_t size_bytes;
};

/* Every file for which is_index() is true, in the order of paths. What check() gives ends it. */
MUST_USE int closure_each(struct closure *x, bool (*is_index)(struct slice path),
                          int (*check)(struct closure *x, const struct closure_file *f,
                                       struct err *e),
                          struct err *e);
/* A file of the tree. E_NOTFOUND: no such file. */
MUST_USE int closure_find(struct closure *x, struct slice path, struct closure_file *out,
                          struct err *e);
struct store *closure_store(struct closure *x);
struct closure_report *closure_report(struct closure *x);
/* The index `index` says that `path` is there. size_bytes UINT64_MAX, sum SUM_NONE: that it does
 * not say. What is wrong is noted and told; 0 all the same. */
MUST_USE int closure_names(struct closure *x, struct slice index, struct slice path,
                           uint64_t size_bytes, const struct sum *sum, struct err *e);
/* Noted and told as well. */
void closure_wrong(struct closure *x, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The last part of a path, and what stands before it with its '/'. */
struct slice closure_name_of(struct slice path, struct slice *folder);

#endif
