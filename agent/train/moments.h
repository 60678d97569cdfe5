/* moments.h - reads the optimizer's state from a checkpoint, whatever number of ranks wrote it.
 *
 * Several ranks write slices (region.h), each into its own
 * optimizer-<rank>-of-<ranks>.safetensors; a single rank writes whole tensors in the Hub's form,
 * optimizer.safetensors. A rank reads only what it holds now.
 *
 * errors   E_CORRUPT when a part is missing, or some elements are in no part
 */
#ifndef AGENT_TRAIN_MOMENTS_H
#define AGENT_TRAIN_MOMENTS_H

#include "agent/train/integrity.h"
#include "agent/train/optim.h"

#define MOMENTS_BASE   "optimizer"
#define MOMENTS_FIRST  "exp_avg."
#define MOMENTS_SECOND "exp_avg_sq."

MUST_USE int moments_load(const char *dir, struct model *m, struct optim *o, struct integrity *i,
                          struct err *e);

#endif
