/* python_inside.h - what a distribution that was sent is, whatever its name and its form say: a wheel tells it by its METADATA, of
 * a source archive only the kind is looked at, for installers build it to know.
 *
 * owns     metadata; python_inside_fini(). Slices live with it, or in the arena
 * threads  a pool thread; reads the file
 * errors   a status in *out: the file is not what it should be, in words
 */
#ifndef SERVER_REPO_HOSTED_PYTHON_INSIDE_H
#define SERVER_REPO_HOSTED_PYTHON_INSIDE_H

#include "server/repo/python/distribution.h"
#include "server/store/blob.h"
#include "server/upload/upload.h"

struct python_inside {
    struct arena *arena;
    struct slice project; /* normalized; given */
    /* found: */
    struct slice requires; /* python */
    struct buf metadata;   /* of a wheel */
};

void python_inside_init(struct python_inside *in, struct arena *a);
void python_inside_fini(struct python_inside *in);
/* d: what the file's name says; said: what the form says it requires, which counts for sources. */
MUST_USE int python_look_inside(struct python_inside *in, struct blob *b,
                                const struct distribution *d, struct slice file, struct slice said,
                                struct upload_reply *out, struct err *e);

#endif
