/* products.h - the algorithms of a run's matrix products, for --deterministic: kept in
 * checkpoints, the same on all ranks.
 *
 * A GPU's library has several for each product, and the fastest is chosen by timing
 * (kernels/cuda/matmul_plan.h). Another process, or a rank on another node, may choose
 * differently and get other bits. CPUs have no choice; then these functions do nothing.
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
/* From a checkpoint that has them, into `before` too; otherwise empty. */
MUST_USE int products_load(struct model *m, const char *dir, struct buf *before, struct err *e);
/* The first rank's become those of all. All ranks call it, after a step, when every product has
 * occurred. */
MUST_USE int products_share(struct model *m, struct comm *comm, struct err *e);
/* The number of products for which `before` has another algorithm. How many more the machine's
 * speed is measured by differs from run to run. */
MUST_USE int products_changed(struct model *m, const struct buf *before, size_t *count,
                              struct err *e);

#endif
