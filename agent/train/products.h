/* products.h - which algorithms a run's products take, for --deterministic: kept in checkpoints,
 * the same on all ranks.
 *
 * A GPU's library has several for each product, of which the fastest is chosen by time
 * (kernels/cuda/matmul_plan.h): another process, or a rank on another node, may choose otherwise
 * and get other bits. CPUs have nothing to choose; then nothing here does anything.
 *
 * threads  one at a time, the one that uses the model
 */
#ifndef AGENT_TRAIN_PRODUCTS_H
#define AGENT_TRAIN_PRODUCTS_H

#include "agent/train/model.h"
#include "kernels/comm.h"

#define PRODUCTS_NAME "algorithms.txt"

/* Replaces the text. */
MUST_USE int products_read(struct model *m, struct buf *out, struct err *e);
/* From a checkpoint that has them, into `before` too; one without leaves it empty. */
MUST_USE int products_load(struct model *m, const char *dir, struct buf *before, struct err *e);
/* The first rank's become those of all. All ranks call, after a step, when every product has been
 * seen. */
MUST_USE int products_share(struct model *m, struct comm *comm, struct err *e);
/* How many of the products take algorithms that `before` did not have. */
MUST_USE int products_changed(struct model *m, const struct buf *before, size_t *count,
                              struct err *e);

#endif
