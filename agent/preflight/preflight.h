/* preflight.h - is this node fit for a job? Every check of checks.def, in processes that can be
 * killed.
 *
 * Each group of checks has a process of its own; one that hangs (a sick GPU, a dead file server) or
 * crashes costs that check and is told as such, and never holds the caller: not even where the
 * kernel cannot kill it. The quick set takes less than a second where a node is well, and a few
 * where it is not. What a node must have: expect.h.
 *
 *   struct preflight_params w = {.agent = &agent};
 *   rc = preflight_run(&w, &got, e);              // the quick set, as the node's file says
 *   if (rc == 0 && got.worst == LEVEL_CRIT && got.drain) ... got.text: "ecc: GPU 3 (0000:5e:00.0): 2 errors (and 1 more)"
 *
 * owns     nothing: plain memory
 * threads  before threads are started or when they are joined: it forks
 * errors   about preflight itself: E_CONFIG (a wrong file), E_IO; how the node is stands in *out
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
    /* The node's file; NULL: $TRAINAGENT_PREFLIGHT, else /etc/trainagent/preflight.conf where there
     * is one. "": none. */
    const char *node_file;
    const struct expect *job;  /* a job's section over it; NULL */
    const struct expect *said; /* the command line's over both; NULL */
    const char *out;           /* where the job writes; NULL */
    const char *root; /* a folder that holds proc, sys and dev of the node; NULL: this machine */
    bool full;
};

struct preflight_report {
    struct finding finding[CHECKS]; /* those that were asked for, as checks.def orders them */
    size_t n;
    unsigned count[LEVEL_SKIP + 1];
    enum level worst;    /* LEVEL_SKIP: nothing could be looked at */
    bool drain;          /* the node's file allows it */
    enum level start_on; /* the worst verdict with which a job may start */
    uint64_t began_unix_s;
    uint32_t took_ms;
    char text[480]; /* the verdict in a line, without the word for its level */
};

MUST_USE int preflight_run(const struct preflight_params *w, struct preflight_report *out,
                           struct err *e);

/* --- probes: checks in processes of their own, watched: one group after its own clock, all groups
 * at once.
 *
 * A process has no descriptor of ours but its pipe, and a process group of its own. A check without
 * an answer within its limit: the group is killed and the check told as hanging. A process that
 * ends early: as crashed. The checks behind it get another process; after two that were lost the
 * rest is not looked at. A process that stays when it was killed (in an ioctl of a driver that
 * never returns) is left behind, and told of. */

struct probe_check {
    void (*look)(struct look *l, struct finding *f);
    unsigned group;
    uint64_t limit_ms;
    /* one that never answers is sick; what asks none is late on a machine that is busy: a
     * warning */
    bool asks_driver;
};

enum { PROBE_GROUPS = 16 };

/* finding[i] is filled for each of check[i]; its check and worst_allowed are set by the caller
 * before. */
MUST_USE int probe_run(const struct look *l, const struct probe_check *check,
                       struct finding *finding, size_t n, struct err *e);

#endif
