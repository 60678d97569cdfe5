/* preflight.h - checks whether this node is fit for a job: every check of checks.def, in
 * processes that can be killed.
 *
 * Each group of checks has its own process. A check that hangs (a sick GPU, a dead file server)
 * or crashes is lost and reported as such, and never blocks the caller, not even if the kernel
 * cannot kill it. The quick set takes less than a second on a healthy node, and a few seconds on
 * a sick one. expect.h says what a node must have.
 *
 *   struct preflight_params w = {.agent = &agent};
 *   rc = preflight_run(&w, &got, e);              // the quick set, as the node's file says
 *   if (rc == 0 && got.worst == LEVEL_CRIT && got.drain) ...
 *       // got.text: "ecc: GPU 3 (0000:5e:00.0): 2 errors (and 1 more)"
 *
 * owns     nothing: plain memory
 * threads  before threads are started or when they are joined: it forks
 * errors   of preflight itself: E_CONFIG (a wrong file), E_IO; the state of the node is in *out
 */
#ifndef AGENT_PREFLIGHT_PREFLIGHT_H
#define AGENT_PREFLIGHT_PREFLIGHT_H

#include "agent/agent.h"
#include "agent/preflight/look.h"
#include "agent/preflight/expect.h"
#include "agent/preflight/finding.h"

struct preflight_params {
    /* after agent_settle() or agent_open(); without a mirror its checks are skipped */
    const struct agent *agent;
    /* The node's file; NULL: $TRAINAGENT_PREFLIGHT, else /etc/trainagent/preflight.conf if it
     * exists. "": none. */
    const char *node_file;
    const struct expect *job;  /* a job's section, which overrides it; NULL */
    const struct expect *said; /* from the command line, overrides both; NULL */
    const char *out;           /* where the job writes; NULL */
    const char *root; /* a folder that holds proc, sys and dev of the node; NULL: this machine */
    bool full;
};

struct preflight_report {
    struct finding finding[CHECKS]; /* the requested checks, in the order of checks.def */
    size_t n;
    unsigned count[LEVEL_SKIP + 1];
    enum level worst;    /* LEVEL_SKIP: nothing could be checked */
    bool drain;          /* the node's file allows it */
    enum level start_on; /* the worst level with which a job may start */
    uint64_t began_unix_s;
    uint32_t took_ms;
    char text[480]; /* the verdict as a line, without the name of its level */
};

MUST_USE int preflight_run(const struct preflight_params *w, struct preflight_report *out,
                           struct err *e);

/* --- probes: checks in separate processes: each group has its own clock, and all groups run at
 * the same time.
 *
 * A process has no descriptor of ours except its pipe, and its own process group. If a check does
 * not answer within its limit, the group is killed and the check is reported as hanging. If a
 * process ends early, it is reported as crashed. The remaining checks get another process; after
 * two lost ones the rest is not checked. A process that cannot be killed (in an ioctl of a driver
 * that never returns) is left running, and reported. */

struct probe_check {
    void (*look)(struct look *l, struct finding *f);
    unsigned group;
    uint64_t limit_ms;
    /* if it never answers the device is sick; a check that calls no driver is only late on a busy
     * machine: a warning */
    bool asks_driver;
};

enum { PROBE_GROUPS = 16 };

/* Sets finding[i] for each check[i]; the caller sets its check and worst_allowed before. */
MUST_USE int probe_run(const struct look *l, const struct probe_check *check,
                       struct finding *finding, size_t n, struct err *e);

#endif
