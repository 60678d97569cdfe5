/* path.h - what a path below a conda channel names, by its last segment: an index, a package, or a
 * shard of an index.
 *
 * Only a file whose bytes are known never to change under its name is a package or a shard. Every
 * other file is an index, which may change at any time. So a kind of file that channels introduce
 * later is never cached for ever.
 *
 * owns     nothing: slices of the path
 * threads  any; pure
 */
#ifndef SERVER_REPO_CONDA_PATH_H
#define SERVER_REPO_CONDA_PATH_H

#include "common/base/slice.h"

enum conda_kind {
    CONDA_INDEX,   /* repodata.json and the like, and every file of no other kind */
    CONDA_PACKAGE, /* .conda, .tar.bz2 */
    CONDA_SHARD,   /* <SHA-256>.msgpack.zst */
    /* patches of repodata.json: not served, because every client works without them */
    CONDA_JLAP,
};

struct conda_path {
    enum conda_kind kind;
    struct slice folder; /* with its '/'; "" at the top */
    struct slice name;   /* the part after it */
    bool optional;       /* an index that clients can do without */
};

struct conda_path conda_path_of(struct slice path); /* canonical, below the repo */

#endif
