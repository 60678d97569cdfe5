/* publish.h - a folder into a hosted repository: all of it becomes visible in one commit, or nothing does.
 *
 * Where DIR holds checkpoint-<step> folders, the newest is what is published, at the top, beside DIR's own files: what
 * comes out is a model folder. A checkpoint is complete when it has that name; one that is being written has another.
 * Names that begin with '.' or end in '~' or .partial stay here. An upload that breaks goes on where the mirror says.
 */
#ifndef AGENT_PUBLISH_PUBLISH_H
#define AGENT_PUBLISH_PUBLISH_H

#include "agent/agent.h"

struct publish_want {
    const char *dir;
    const char *to;       /* "<repo>/[datasets/|spaces/]<owner>/<name>[@<branch>]" */
    const char *if_match; /* the root that must still be there; NULL: whatever is */
};

struct publish_result {
    struct digest root; /* zero when the mirror did not say */
    uint64_t files;
    uint64_t bytes;
    char version[64]; /* "" when the mirror did not say */
};

bool publish_to_ok(struct slice to);
/* Step of the newest complete checkpoint in the folder; -1: there is none. */
int64_t publish_newest_step(const char *dir);
MUST_USE int publish(const struct agent *a, const struct publish_want *w,
                     struct publish_result *out, struct err *e);

#endif
