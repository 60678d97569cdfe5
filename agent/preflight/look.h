/* look.h - the input of every check: where to look, what is expected, and where to report.
 *
 * A check is one function, check_<name>(), named in checks.def. It runs in a process of its group
 * that may be killed at any time, holds nothing that others wait for, and leaves nothing behind.
 */
#ifndef AGENT_PREFLIGHT_LOOK_H
#define AGENT_PREFLIGHT_LOOK_H

#include "agent/preflight/expect.h"
#include "agent/preflight/finding.h"
#include "agent/preflight/sight.h"

struct agent;
struct nvml;
struct mirror_probe;

struct look {
    struct sight sight;
    struct expect expect;
    const struct agent *agent; /* mirror and folders */
    const char *out;           /* where a job writes; NULL: no job */
    /* Shared by the checks of one group; NULL until one has asked the mirror. */
    struct mirror_probe *mirror;
    struct nvml *nvml;
    bool nvml_asked;
    int nvml_rc;
    struct err nvml_why;
};

#define LOOK(name, text, group, cost, severity, limit_s, what)                                     \
    void check_##name(struct look *l, struct finding *f);
#include "agent/preflight/checks.def"
#undef LOOK

#endif
