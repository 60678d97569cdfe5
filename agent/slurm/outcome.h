/* outcome.h - the outcome of fetching a job's files, and what follows from it: outcomes.def has
 * the table, and the node's file has the answers. */
#ifndef AGENT_SLURM_OUTCOME_H
#define AGENT_SLURM_OUTCOME_H

#include "agent/node_conf.h"

enum outcome {
    OUTCOME_HERE,
#define OUTCOME(name, key, absent, words) OUTCOME_##name,
#include "agent/outcomes.def"
#undef OUTCOME
};

/* For the E_* that a pull ended with; 0 is OUTCOME_HERE. */
enum outcome outcome_of(int rc);
/* The node file's setting; OUTCOME_HERE needs no action. */
enum node_act outcome_act(const struct node_slurm *s, enum outcome o);
const char *outcome_name(enum outcome o);  /* "disk_full" */
const char *outcome_words(enum outcome o); /* "the node's disk is full" */

#endif
