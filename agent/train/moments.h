/* moments.h - the optimizer's state out of a checkpoint, by however many ranks that was written.
 *
 * Several ranks write slices (region.h), each into its own optimizer-<rank>-of-<ranks>.safetensors;
 * one rank alone writes whole tensors in the Hub's form, optimizer.safetensors. A rank reads what
 * it holds now, and nothing else.
 *
 * errors   E_CORRUPT when a part is missing, or elements are in none of them
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
