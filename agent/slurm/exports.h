/* exports.h - the variables that a task gets: its clients come to the mirror, whatever its user knows of it.
 *
 * Without `export` in the node's file: TRAINAGENT_MIRROR, HF_ENDPOINT, PIP_INDEX_URL, PIP_TRUSTED_HOST (over plain HTTP), UV_DEFAULT_INDEX;
 * else what stands there. What the user has set stays. And MIRROR_STAGED, where the job's files are, whatever it was.
 */
#ifndef AGENT_SLURM_EXPORTS_H
#define AGENT_SLURM_EXPORTS_H

#include "agent/node.h"
#include "common/base/buf.h"

/* "NAME=value" with {mirror}, {host}, {staged}, {job} filled in; false: it is none, or names what there is not. */
MUST_USE bool exports_fill(const char *line, const struct node *n, const char *job,
                           const char *staged, struct buf *out);
/* On stdout, as Slurm reads it: "export NAME=value". */
void exports_print(const struct node *n, const char *job, const char *staged);

#endif
