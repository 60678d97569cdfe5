/* files.h - lists the files of a folder that are to be published: names, sizes, digests. */
#ifndef AGENT_PUBLISH_FILES_H
#define AGENT_PUBLISH_FILES_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/hash/digest.h"

struct publish_file {
    const char *path;  /* to open */
    struct slice name; /* in the repository */
    uint64_t size_bytes;
    struct digest digest; /* when it was listed; the sent bytes must still match it */
    bool there;           /* the tree has it under that name, so it is not sent */
};

struct publish_files {
    struct arena arena;
    struct publish_file *at;
    size_t n, room;
    uint64_t bytes;
    int64_t step; /* of the checkpoint among them; -1: none */
};

/* With `after`, nothing unless there is a checkpoint of a later step. */
MUST_USE int publish_files_list(const char *dir, const int64_t *after, struct publish_files *out,
                                struct err *e);
void publish_files_fini(struct publish_files *f);

#endif
