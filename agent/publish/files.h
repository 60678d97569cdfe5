/* files.h - what of a folder is to be published: names, sizes, digests. */
#ifndef AGENT_PUBLISH_FILES_H
#define AGENT_PUBLISH_FILES_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/hash/digest.h"

struct publish_file {
    const char *path;  /* to open */
    struct slice name; /* in the repository */
    uint64_t size_bytes;
    struct digest digest; /* when it was listed; what is sent must still be it */
    bool there;           /* the tree has it under that name: it is not sent */
};

struct publish_files {
    struct arena arena;
    struct publish_file *at;
    size_t n, room;
    uint64_t bytes;
};

MUST_USE int publish_files_list(const char *dir, struct publish_files *out, struct err *e);
void publish_files_fini(struct publish_files *f);
/* Step of the newest complete checkpoint in the folder; -1: there is none. */
int64_t publish_files_newest_step(const char *dir);

#endif
