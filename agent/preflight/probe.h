/* probe.h - checks in processes of their own, watched: one group after its own clock, all groups at once.
 *
 * A process has no descriptor of ours but its pipe, and a process group of its own. A check without an answer within its
 * limit: the group is killed and the check told as hanging. A process that ends early: as crashed. The checks behind it get
 * another process; after two that were lost the rest is not looked at. A process that stays when it was killed (in an ioctl of a
 * driver that never returns) is left behind, and told of.
 */
#ifndef AGENT_PREFLIGHT_PROBE_H
#define AGENT_PREFLIGHT_PROBE_H

#include "agent/preflight/look.h"

struct probe_check {
    void (*look)(struct look *l, struct finding *f);
    unsigned group;
    uint64_t limit_ms;
    bool
        asks_driver; /* one that never answers is sick; what asks none is late on a machine that is busy: a warning */
};

enum { PROBE_GROUPS = 16 };

/* finding[i] is filled for each of check[i]; its check and worst_allowed are set by the caller before. */
MUST_USE int probe_run(const struct look *l, const struct probe_check *check,
                       struct finding *finding, size_t n, struct err *e);

#endif
