/* command.h - the verbs of the command line: each parses its own arguments after the common
 * options.
 *
 * A verb returns 0 or an E_*; main() prints the error and turns it into a sysexits code. A verb
 * sets *exit_code where a command's own exit status must be passed on (run, launch), or a verdict
 * (preflight).
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
    int argc; /* the arguments after the verb, without options; argv is NULL-terminated */
    char **argv;
    const char *to;     /* --to */
    bool unpack;        /* --unpack */
    const char *sha256; /* --sha256 */
    uint64_t keep_bytes;
    uint64_t keep_age_s;
    uint64_t jitter_ms;
    uint64_t deadline_ms; /* 0: from the node's file */
    int ranks;            /* 0: auto */
    unsigned restarts;
    const char *checkpoints; /* NULL: not given */
    uint64_t grace_ms;       /* 0: not given */
    struct nodes_said nodes;
    const char *preempt_url; /* NULL: not given */
    const char *if_match;
    bool follow;
    struct preflight_line preflight;
    int exit_code;
};

struct agent_verb {
    const char *name;
    int (*run)(struct verb_line *v, struct err *e);
    const char *args; /* what follows it in a line of --help */
    const char *help; /* what it does, as half a sentence */
    const char *more; /* more text for its own --help; NULL: none */
    const char *example;
};

extern const struct agent_verb verb_pull, verb_run, verb_launch, verb_rendezvous, verb_preflight,
    verb_publish, verb_status, verb_gc, verb_prolog, verb_taskprolog, verb_epilog;

#endif
