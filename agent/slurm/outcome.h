/* outcome.h - what became of a job's files, and what follows from it: the table is outcomes.def,
 * the answers the node's own. */
#ifndef AGENT_SLURM_OUTCOME_H
#define AGENT_SLURM_OUTCOME_H

#include "agent/node_conf.h"

enum outcome {
    OUTCOME_HERE,
#define OUTCOME(name, key, absent, words) OUTCOME_##name,
#include "agent/outcomes.def"
#undef OUTCOME
};

/* Of an E_* that a pull ended with; 0 is OUTCOME_HERE. */
enum outcome outcome_of(int rc);
/* What the node's file says; OUTCOME_HERE is no trouble. */
enum node_act outcome_act(const struct node_slurm *s, enum outcome o);
const char *outcome_name(enum outcome o);  /* "disk_full" */
const char *outcome_words(enum outcome o); /* "the node's disk is full" */

#endif
