/* publish.h - a folder into a hosted repository: all of it becomes visible in one commit, or
 * nothing does.
 *
 * Where DIR holds checkpoint-<step> folders, the newest is what is published, at the top, beside
 * DIR's own files: what comes out is a model folder. A checkpoint is complete when it has that
 * name; one that is being written has another. Names that begin with '.' or end in '~' or .partial
 * stay here. An upload that breaks goes on where the mirror says.
 */
#ifndef AGENT_PUBLISH_PUBLISH_H
#define AGENT_PUBLISH_PUBLISH_H

#include "agent/agent.h"

struct publish_params {
    const char *dir;
    const char *to;       /* "<repo>/[datasets/|spaces/]<owner>/<name>[@<branch>]" */
    const char *if_match; /* the root that must still be there; NULL: whatever is */
    const int64_t *after; /* only a checkpoint of a later step; NULL: whatever is there */
};

struct publish_result {
    struct digest root; /* zero when the mirror did not say */
    uint64_t files;     /* 0: there was nothing to publish */
    uint64_t bytes;
    int64_t step;     /* of the checkpoint; -1: it is none */
    char version[64]; /* "" when the mirror did not say */
};

bool publish_to_ok(struct slice to);
MUST_USE int publish(const struct agent *a, const struct publish_params *w,
                     struct publish_result *out, struct err *e);

#endif
