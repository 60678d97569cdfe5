/* command.h - the verbs of the command line: each reads its own arguments behind the common
 * options.
 *
 * A verb returns 0 or an E_*; main() prints the error and turns it into a sysexits code. *exit_code
 * is set where a command's own code must come through (run, launch), or a verdict (preflight).
 */
#ifndef AGENT_COMMAND_H
#define AGENT_COMMAND_H

#include "agent/agent.h"
#include "agent/nodes.h"

enum { EXPECT_WORDS = 64 };

struct preflight_line {
    bool full, list, explain;
    const char *config, *only, *skip, *textfile, *root;
    const char *expect[EXPECT_WORDS];
    unsigned nexpect;
};

struct verb_line {
    struct agent *agent;
    int argc; /* what stands behind the verb, options taken out; argv is NULL-terminated */
    char **argv;
    const char *to;     /* --to */
    bool unpack;        /* --unpack */
    const char *sha256; /* --sha256 */
    uint64_t keep_bytes;
    uint64_t keep_age_s;
    uint64_t jitter_ms;
    uint64_t deadline_ms; /* 0: as the node's file says */
    int ranks;            /* 0: auto */
    unsigned restarts;
    const char *checkpoints; /* NULL: not said */
    uint64_t grace_ms;       /* 0: not said */
    struct nodes_said nodes;
    const char *preempt_url; /* NULL: not said */
    const char *if_match;
    bool follow;
    struct preflight_line preflight;
    int exit_code;
};

struct agent_verb {
    const char *name;
    int (*run)(struct verb_line *v, struct err *e);
    const char *args; /* what stands behind it in a line of --help */
    const char *help; /* what it does, in half a sentence */
    const char *more; /* of its own --help; NULL: that is all */
    const char *example;
};

extern const struct agent_verb verb_pull, verb_run, verb_launch, verb_rendezvous, verb_preflight,
    verb_publish, verb_status, verb_gc, verb_prolog, verb_taskprolog, verb_epilog;

#endif
