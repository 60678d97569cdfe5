/* publish.h - publishes a folder into a hosted repository: everything becomes visible in one
 * commit, or nothing does.
 *
 * If DIR has checkpoint-<step> folders, the newest is published, at the top, together with DIR's
 * own files: the result is a model folder. A checkpoint is complete when it has that name; one
 * that is being written has another. Names that begin with '.' or end in '~' or .partial are not
 * published. An interrupted upload continues where the mirror says.
 *
 * All of an upload goes to one mirror. If that one fails, it begins anew at the next of the list
 * (agent/mirrors.h), with the digests that are known already. So the mirrors must share their
 * repositories, as those of a cluster do.
 */
#ifndef AGENT_PUBLISH_PUBLISH_H
#define AGENT_PUBLISH_PUBLISH_H

#include "agent/agent.h"

struct publish_params {
    const char *dir;
    const char *to;       /* "<repo>/[datasets/|spaces/]<owner>/<name>[@<branch>]" */
    const char *if_match; /* the root that must be the current one; NULL: any */
    const int64_t *after; /* publish only a checkpoint of a later step; NULL: any */
};

struct publish_result {
    struct digest root; /* zero if the mirror did not state it */
    uint64_t files;     /* 0: there was nothing to publish */
    uint64_t bytes;
    int64_t step;     /* of the checkpoint; -1: none */
    char version[64]; /* "" if the mirror did not state it */
};

bool publish_to_ok(struct slice to);
MUST_USE int publish(const struct agent *a, const struct publish_params *w,
                     struct publish_result *out, struct err *e);

#endif
