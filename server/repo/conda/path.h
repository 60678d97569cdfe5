/* path.h - what a path below a conda channel names, by its last segment: an index, a package, a
 * shard of an index.
 *
 * Only what is known to keep its bytes under its name is a package or a shard. All else is an
 * index, and may change at any time: whatever files a channel gets in years to come, none of them
 * sticks.
 *
 * threads  any; pure
 */
#ifndef SERVER_REPO_CONDA_PATH_H
#define SERVER_REPO_CONDA_PATH_H

#include "common/base/slice.h"

enum conda_kind {
    CONDA_INDEX,   /* repodata.json and its likes, and what is none of the others */
    CONDA_PACKAGE, /* .conda, .tar.bz2 */
    CONDA_SHARD,   /* <SHA-256>.msgpack.zst */
    CONDA_JLAP,    /* patches of repodata.json: not served, every client goes on without */
};

struct conda_path {
    enum conda_kind kind;
    struct slice folder; /* with its '/'; "" at the top */
    struct slice name;   /* behind it */
    bool optional;       /* an index that clients do without where it is missing */
};

struct conda_path conda_path_of(struct slice path); /* canonical, below the repo */

#endif
